"""What README.md and the pages of docs/ show is true: examples run, commands exist, links lead somewhere."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec

import pytest
import torch
from conftest import save_tiny, script

from glauber_lib.embedded import EMBEDDED
from glauber_lib.paper import ROOT, profiles
from glauber_lib.paper.claims import Entry, by_section, claims_page, committed_results, find_entry, read_claims

readme = script("readme")
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
}
WRITTEN = {"figures/claims.md"}  # by make paper


def blocks(language):
    """Name and text of every fenced block of a language."""
    for name, page in PAGES.items():
        if name == "docs/bring-your-own-model.md":  # whose examples need those before them: tests/test_own_model.py
            continue
        for k, text in enumerate(re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)):
            yield pytest.param(text, id=f"{name}-{k}")


def commands(page):
    """Every command that a page shows: its indented lines, and what stands in backticks."""
    page = re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    lines = [line.split("#")[0].strip() for line in re.findall(r"^    (\S.*)$", page, re.MULTILINE)]
    return [*lines, *re.findall(r"`([^`\n]+)`", page)]


SHOWN = sorted({command for page in PAGES.values() for command in commands(page)})
MAKE = [command for command in SHOWN if re.fullmatch(r"make( [A-Z]+=\S+| [a-z-]+)+", command)]


# Examples and commands -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", blocks("python"))
def test_an_example_runs(block, tmp_path, monkeypatch, embedded):
    for name in re.findall(r'load_model\("([^"]+)"\)', block):
        if name in EMBEDDED:
            embedded(name)  # skips where the weights are not there
        else:  # a tiny model in its place, where GLAUBER_MODELS says
            kind = re.match("[a-z]+", name.rsplit("/", 1)[-1])[0]
            save_tiny(kind, tmp_path / name)
            monkeypatch.setenv("GLAUBER_MODELS", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    exec(compile(block, "example", "exec"), {"__name__": "example"})


def test_there_are_examples_and_commands():
    assert len(list(blocks("python"))) >= 4 and {"make paper", "make quick", "make test"} <= set(MAKE)


@pytest.mark.parametrize("command", MAKE)
@pytest.mark.skipif(not shutil.which("make"), reason="make is not installed")
def test_a_make_command_shown_exists(command):
    clean = {name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MAKELEVEL", "MFLAGS"}}
    answer = subprocess.run([*command.split(), "-n"], cwd=ROOT, env=clean, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr


def test_a_module_or_script_shown_exists():
    for command in SHOWN:
        for module in re.findall(r"python -m ([\w.]+)", command):
            assert find_spec(module), command
        for path in re.findall(r"\b(?:scripts|docs|tests|notebooks|glauber_lib)/[\w./-]+\.\w+", command):
            assert "NN" in path or "yours" in path or path == "docs/gpu.md" or (ROOT / path).is_file(), command


def test_every_environment_variable_is_explained():
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "glauber_lib").rglob("*.py"))
    used = set(re.findall(r"GLAUBER_[A-Z_]*[A-Z]", source))
    assert used and used == set(re.findall(r"GLAUBER_[A-Z_]*[A-Z]", PAGES["docs/paper-profile.md"]))


def slug(heading):
    """The anchor that a Markdown heading gets."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name):
    for target in re.findall(r"\]\(([^)\s]+)\)", PAGES[name]):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        found = (ROOT / name).parent / path if path else ROOT / name
        assert found.exists() or path in WRITTEN, target
        if anchor:
            assert anchor in map(slug, re.findall(r"^#+ (.*)$", found.read_text(encoding="utf-8"), re.MULTILINE)), (
                target
            )


# The front page ------------------------------------------------------------------------------------------------------


def test_the_readme_is_short_and_says_first_what_was_not_done():
    lines = PAGES["README.md"].splitlines()
    assert len(lines) < 120
    assert "The published models were never run here." in "\n".join(lines[:20])
    assert PAGES["README.md"].count("![") == 1


def record(id, measured=0.5, **more):
    """A record as `Entry.record` makes it."""
    return {
        "id": id, "statement": f"{id} |x|.", "published": None, "printed": "", "measured": measured,
        "interval": [0.4, 0.6], "kind": "estimate", "n": 30, "unit": "chains", "verdict": "holds", "why": "",
        "contradicted_by": "", **more,
    }  # fmt: skip


def test_the_headline_claims_are_the_measured_members_of_headline_entries():
    family = Entry("a/size/{model}", "s", "measured", headline=True)
    entries = [family, Entry("a/other", "s", "measured"), Entry("b/one", "s", "measured", headline=True)]
    ids = ("b/one", "a/size/large", "a/other", "a/size/small")
    found = {"profile": "mini", "claims": [record(id, None if id == "a/size/small" else 0.5) for id in ids]}
    chosen = readme.headline_claims({"all": found}, entries)
    assert [(claim["id"], profile) for claim, profile in chosen] == [("a/size/large", "mini"), ("b/one", "mini")]
    row = readme.claims_table(chosen).splitlines()[2]
    assert row == r"| a/size/large \|x\|. | 0.5 [0.4, 0.6] | 30 chains | mini | – | holds |"
    shown = readme.claims_table([(record("b/one", published=0.25, printed="Table 1", kind="lower bound"), "desk")])
    assert "| 0.5 [0.4, 0.6] (lower bound) | 30 chains | desk | 0.25 (Table 1) | holds |" in shown
    with pytest.raises(ValueError, match=r"does not measure: \['b/one'\]"):
        readme.headline_claims({"all": {**found, "claims": found["claims"][1:]}}, entries)
    assert readme.headline_claims({"all": found}, [replace(entry, headline=False) for entry in entries]) == []


def results_of(profile, *ids, idle=()):
    """A small results.json of a profile, one record for each id."""
    sections = {id.split("/")[0] for id in ids}
    return {
        "profile": profile, "seeds": dict.fromkeys(sections, 0), "models": {name: {} for name in sections},
        "not_asked": {name: [] for name in sections} | dict(idle),
        "claims": [record(id, measured={"mini": 0.25, "desk": 0.75}[profile]) for id in ids],
    }  # fmt: skip


def test_a_section_shows_the_desk_profile_where_it_ran_and_mini_elsewhere_each_named(tmp_path, monkeypatch):
    monkeypatch.setattr(profiles, "ROOT", tmp_path)
    mini = results_of("mini", "bounds/one", "bounds/two", "crossover/one")
    desk = results_of("desk", "bounds/one", idle=[("bounds", ["bounds/three"])])
    for folder, results in zip(("figures/desk", "figures"), (desk, mini), strict=True):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "results.json").write_text(json.dumps(results))
    sections = by_section(*committed_results())
    assert {name: found["profile"] for name, found in sections.items()} == {"bounds": "desk", "crossover": "mini"}
    entries = [Entry(f"{name}/one", "s", "measured", headline=True) for name in ("crossover", "bounds")]
    entries += [Entry(id, "s", "measured") for id in ("bounds/two", "bounds/three")]
    table = readme.claims_table(readme.headline_claims(sections, entries)).splitlines()[2:]
    assert ["| 0.25 [" in row and "| mini |" in row for row in table] == [True, False]
    assert ["| 0.75 [" in row and "| desk |" in row for row in table] == [False, True]
    assert readme.picture(sections).endswith("(profile mini)](figures/fig2-crossover.png)\n")
    more = by_section(results_of("desk", "crossover/one"), mini)
    assert readme.picture(more).endswith("(profile desk)](figures/desk/fig2-crossover.png)\n")
    page = claims_page(*committed_results())
    assert "## bounds: profile `desk`" in page and "## crossover: profile `mini`" in page
    assert "bounds/two" not in page and "Not asked in this profile: `bounds/three`" in page
    assert "Profile `mini`." in claims_page(mini) and "## bounds: seed 0\n" in claims_page(mini)


def test_a_card_shows_what_names_its_model_and_keeps_the_rest(tmp_path):
    claims = [record("a/one/x", measured=0.5), record("a/one/y", measured=0.25), record("a/two", measured=0.125)]
    facts = {"claims": claims, "seed": 0, "not_asked": []}
    sections = {
        "a": {**facts, "profile": "desk", "models": ["x", "y"]},
        "b": {**facts, "profile": "mini", "models": ["y"]},
    }
    card = tmp_path / "README.md"
    card.write_text("# x\n\nText.\n", encoding="utf-8")
    for _ in range(2):  # twice is as once
        readme.put_into_card("x", sections, card)
    page = card.read_text(encoding="utf-8")
    assert page.startswith("# x\n\nText.\n") and page.count(readme.RESULTS) == 1
    assert "`a` (profile desk, 2 models)" in page and "| 0.5 [" in page
    assert "0.25 [" not in page and "0.125 [" not in page
    assert "`b` (profile mini, this model alone)" in readme.results_of("y", sections)
    assert readme.results_of("z", sections) == "No committed profile ran this model.\n"


def test_the_readme_shows_the_claims_that_are_headlines():
    entries = read_claims()
    if not any(entry.headline for entry in entries):
        pytest.skip("claims.toml names no headline claim")
    rows = PAGES["README.md"].split(readme.START)[1].split(readme.END)[0].splitlines()[2:]
    statements = [row.strip("| ").split(" | ")[0] for row in rows]
    if any("make readme" in statement for statement in statements):
        pytest.skip("the table was not rendered: make readme")
    patterns = [re.sub(r"\\\{\w+\\\}", ".+", re.escape(e.statement.replace("|", "\\|"))) for e in entries if e.headline]
    assert all(any(re.fullmatch(pattern, row) for pattern in patterns) for row in statements)
    assert all(any(re.fullmatch(pattern, row) for row in statements) for pattern in patterns)
    assert find_entry(entries, entries[0].id).id == entries[0].id


def test_text_is_put_between_markers_that_stand_once(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n<a>\nold\n<b>\nafter\n")
    for _ in range(2):
        readme.put_between("<a>\n", "<b>", "new\n", page)
        assert page.read_text() == "before\n<a>\nnew\n<b>\nafter\n"
    for text in ("<a>\n", "<b> <a>\n", "<a>\n<a>\n<b>"):
        page.write_text(text)
        with pytest.raises(ValueError, match=r"page\.md must hold '<a>' and then '<b>', once each"):
            readme.put_between("<a>\n", "<b>", "new\n", page)
        assert page.read_text() == text


def test_the_tests_named_in_the_table_of_traps_are_there():
    rows = [
        row for row in (ROOT / "tests" / "README.md").read_text().split("## Known traps")[1].splitlines()[7:] if row
    ]
    sources = "".join(path.read_text() for path in (ROOT / "tests").glob("test_*.py"))
    assert len(rows) == 13
    for row in rows:
        named = re.findall(r"`(test_\w+)`", row)
        assert named and all(f"def {name}(" in sources for name in named), row


# What a hosted runner and a commit hook call ----------------------------------------------------------------------


def test_the_workflow_and_the_hooks_call_what_is_here():
    yaml = pytest.importorskip("yaml")
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())
    steps = [step.get("run") for job in workflow["jobs"].values() for step in job["steps"]]
    assert {"make test", "make paper", "make audit"} <= set(steps)
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13"]
    assert workflow[True]["schedule"]  # the key is `on`, which YAML reads as a truth value
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    entries = [hook["entry"] for repository in hooks for hook in repository["hooks"]]
    modules = [re.fullmatch(r"\.venv/bin/python -m (\w+)( .*)?", entry)[1] for entry in entries]
    assert modules == ["ruff", "ruff", "jupytext"] and all(map(find_spec, modules)) and sys.executable
