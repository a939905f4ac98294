"""The executed notebooks of a profile as a site that needs no network: build/site.

python scripts/build_site.py --profile mini

The first page holds the main figures and the table of claims, each with a link to its cell. A page for each notebook has
its code folded. The reference is made of the docstrings.
"""

import argparse
import html
import re
import shutil
import subprocess
import sys

import nbformat

from glauber_lib.paper import ROOT, claims, profiles

SOURCE, SITE = ROOT / "build" / "site-source", ROOT / "build" / "site"
MAIN = {  # figures of the first page, where the profile has them, and what each shows
    "fig5-incompatibility": "How far the conditionals are from any joint law",
    "bounds-waterfall": "What each bound on the temperature of fast mixing leaves open",
    "fig2-crossover": "Share of pairs of chains that meet, by temperature and length",
    "basins-topics": "What the chains write about",
}
ENDS = {"inf": 1e308, "-inf": -1e308}  # an infinite value is a text in results.json
COLUMNS = ("claim", "verdict", "measured", "published", "section")
FIRST = """# {title}

Mask one random token of a sentence, draw it anew from the model's conditional law, repeat. These pages measure how that
chain behaves, with the profile `{profile}`, and rebuild the figures and tables of
[Mixing Times of Glauber Dynamics on Masked Language Models](https://arxiv.org/abs/2605.16378). The published models were
not run: a published value beside a measured one is context.

```{{raw}} html
{figures}
```

## Claims

A verdict follows from one rule: the interval (95%) wholly on the claim's side holds, wholly on the other does not hold,
otherwise it is undecided. A heading sorts the table. A claim leads to the cell that measured it.

```{{raw}} html
{table}
```

```{{toctree}}
:hidden:
:caption: Notebooks
:glob:
notebooks/*
```

```{{toctree}}
:hidden:
:caption: Reference
:glob:
api/index
```
"""


def anchor(id):
    """The anchor of a claim's cell."""
    return "claim-" + re.sub(r"[^\w.-]", "-", id)


# Notebooks -----------------------------------------------------------------------------------------------------------


def folded(notebook, ids):
    """An executed notebook for the site, and the claims that it measured.

    Its code is folded. Of the parameters the cell that was given remains, without the default that it replaced. Before a
    cell that printed a claim stands its anchor.
    """
    given = any("injected-parameters" in cell.metadata.get("tags", []) for cell in notebook.cells)
    cells, found = [], []
    for cell in notebook.cells:
        tags = cell.metadata.get("tags", [])
        if given and "parameters" in tags:
            continue
        if cell.cell_type == "code":
            cell.metadata["tags"] = ["hide-input"]
            printed = "\n".join(output.get("text", "") for output in cell.outputs)
            here = [id for id in re.findall(r"^(\S+/\S+): ", printed, re.MULTILINE) if id in ids and id not in found]
            if here:
                marks = "".join(f'<span class="anchor" id="{anchor(id)}"></span>' for id in here)
                cells.append(nbformat.v4.new_markdown_cell(f"```{{raw}} html\n{marks}\n```"))
                found += here
        cells.append(cell)
    notebook.cells = cells
    return notebook, found


def write_notebooks(profile, ids, folder):
    """Write the notebooks of a profile for the site; the page of each claim."""
    places = {}
    folder.mkdir(parents=True)
    executed = sorted(profiles.build_folder(profile).glob("*.ipynb"))
    for path in [path for path in executed if profiles.is_notebook_name(path.stem)]:
        notebook, found = folded(nbformat.read(path, as_version=4), ids)
        nbformat.write(notebook, folder / path.name)
        places |= {id: f"notebooks/{path.stem}.html#{anchor(id)}" for id in found}
    return places


# The first page ------------------------------------------------------------------------------------------------------


def claim_row(claim, place):
    """A row of the table of claims."""
    section, text = claims.section_of(claim["id"]), html.escape(claim["statement"])
    sortable = lambda value: "" if value is None or isinstance(value, dict) else ENDS.get(value, value)  # noqa: E731
    details = "".join(
        f"<div>{said}: {html.escape(claim[key])}</div>"
        for said, key in (("Contradicted by", "contradicted_by"), ("Why", "why"))
        if claim[key]
    )
    id = f'<div class="id">{html.escape(claim["id"])}</div>'
    shown = [
        (f'<a href="{html.escape(place)}">{text}</a>' if place else text)
        + f"<details><summary>more</summary>{id}{details}</details>",
        html.escape(claim["verdict"]),
        f"{html.escape(claims.measured(claim))}<br>n = {claim['n']} {html.escape(claim['unit'])}",
        html.escape(claims.published_value(claim)), section,
    ]  # fmt: skip
    values = [claim["statement"], claim["verdict"], *map(sortable, (claim["measured"], claim["published"])), section]
    cells = "".join(
        f'<td data-value="{html.escape(str(value))}">{cell}</td>' for cell, value in zip(shown, values, strict=True)
    )
    return f'<tr data-section="{section}" data-verdict="{html.escape(claim["verdict"])}">{cells}</tr>'


def claims_table(records, places):
    """The table of claims with its filters, as HTML."""

    def choice(name, values):
        options = "".join(f"<option>{html.escape(value)}</option>" for value in sorted(set(values)))
        return f'<label>{name} <select id="claims-{name}"><option value="">all</option>{options}</select></label>'

    filters = choice("section", (claims.section_of(c["id"]) for c in records))
    filters += choice("verdict", (c["verdict"] for c in records))
    filters += '<label>words <input id="claims-words" type="search"></label> <span id="claims-count"></span>'
    heads = "".join(f'<th scope="col"><button type="button">{name}</button></th>' for name in COLUMNS)
    rows = "\n".join(claim_row(claim, places.get(claim["id"])) for claim in records)
    table = f'<table id="claims-table"><thead><tr>{heads}</tr></thead><tbody>\n{rows}\n</tbody></table>'
    return f'<div class="filters">{filters}</div>\n<div class="scroll">{table}</div>'


def figures_of(folder, static):
    """The main figures as HTML, copied beside the page."""
    shown = [(name, caption) for name, caption in MAIN.items() if (folder / f"{name}.png").is_file()]
    for name, _ in shown:
        shutil.copy(folder / f"{name}.png", static)
    pictures = (
        f'<figure><a href="_static/{name}.png"><img src="_static/{name}.png" alt="{caption}"></a>'
        f"<figcaption>{caption}.</figcaption></figure>"
        for name, caption in shown
    )
    return f'<div class="figures">{"".join(pictures)}</div>'


# The reference -------------------------------------------------------------------------------------------------------


def write_reference(folder):
    """Write a page for each module of the library, and a list of them with the first line of each."""
    folder.mkdir(parents=True)
    lines = ["# Reference", "", "Each module answers one question.", ""]
    for path in sorted((ROOT / "glauber_lib").rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if path.stem.startswith("__"):
            continue
        said = re.match(r'r?"""(.*?)(\n\n|""")', path.read_text(encoding="utf-8"), re.DOTALL)[1].replace("\n", " ")
        title = name.removeprefix("glauber_lib.")
        head = f":orphan:\n\n{title}\n{'=' * len(title)}\n\n"  # no entry beside every page: the list has them all
        (folder / f"{name}.rst").write_text(f"{head}.. automodule:: {name}\n", encoding="utf-8")
        lines.append(f"- [{title}]({name}.rst): {said.replace('``', '`')}")
    (folder / "index.md").write_text("\n".join([*lines, ""]), encoding="utf-8")


def write_source(profile, source=SOURCE):
    """Write what Sphinx makes the site of; ValueError where the profile has not run."""
    figures = profiles.figures_folder(profile)
    found = claims.read_results(figures / "results.json")
    if not found or not list(profiles.build_folder(profile).glob("*.ipynb")):
        raise ValueError(f"the profile {profile!r} has no executed notebooks here: make paper PROFILE={profile}")
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(ROOT / "docs" / "site", source, ignore=shutil.ignore_patterns("__pycache__"))
    places = write_notebooks(profile, {claim["id"] for claim in found["claims"]}, source / "notebooks")
    write_reference(source / "api")
    page = FIRST.format(
        title="Masked language models as Markov chains", profile=found["profile"],
        figures=figures_of(figures, source / "_static"), table=claims_table(found["claims"], places),
    )  # fmt: skip
    (source / "index.md").write_text(page, encoding="utf-8")
    return places


def main():
    """Command line: build the site of a profile."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", default="mini")
    try:
        write_source(parser.parse_args().profile)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    shutil.rmtree(SITE, ignore_errors=True)
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-q", "-W", "--keep-going"]
    status = subprocess.run([*command, "-d", str(SOURCE / ".doctrees"), str(SOURCE), str(SITE)]).returncode
    if not status:
        print(f"the site: {(SITE / 'index.html').relative_to(ROOT)}")
    return status


if __name__ == "__main__":
    sys.exit(main())
