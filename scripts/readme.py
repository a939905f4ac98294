"""Put the headline claims and the picture between the markers of README.md, and results into the models' cards.

A headline claim is one that an entry of ``notebooks/claims.toml`` with ``headline = true`` stands for. A family gives a
row for each of its members that was measured. Of each section the profile desk is shown where it ran, otherwise mini.
A card of ``data/models`` has the claims that name its model, and the sections that ran it alone (`make readme`).
"""

from glauber_lib.paper import ROOT, tables
from glauber_lib.paper.claims import by_section, committed_results, find_entry, measured, published_value, read_claims
from glauber_lib.paper.profiles import COMMITTED

START, END = "<!-- claims: written by make readme -->\n", "<!-- end of claims -->"
PICTURE, AFTER = "<!-- picture: written by make readme -->\n", "<!-- end of picture -->"
RESULTS, REST = "<!-- results: written by make readme -->\n", "<!-- end of results -->"
SHOWN = "crossover", "fig2-crossover.png", "Share of pairs of chains that meet, by temperature and sentence length"


def headline_claims(sections, entries):
    """The records of headline entries that were measured, by entry in the order of ``claims.toml``.

    Parameters
    ----------
    sections : dict
        From `claims.by_section`.
    entries : list of Entry

    Returns
    -------
    list of (dict, str)
        Each record with the profile that measured it.

    Raises
    ------
    ValueError
        If no record of a headline entry was measured: the front page must not lose a claim in silence.
    """
    headlines = [entry for entry in entries if entry.headline]
    found = {entry.id: [] for entry in headlines}
    for section in sections.values():
        for claim in section["claims"]:
            entry = find_entry(entries, claim["id"])
            if entry.id in found and claim["measured"] is not None:
                found[entry.id].append((claim, section["profile"]))
    if lacking := [id for id, claims in found.items() if not claims]:
        raise ValueError(f"headline claims that results.json does not measure: {lacking}")
    return [claim for claims in found.values() for claim in claims]


def claims_table(chosen):
    """Records as a Markdown table: statement, measured value with interval, n, profile, published value, verdict."""
    lines = ["| claim | measured | n | profile | published | verdict |", "|---|---|---|---|---|---|"]
    for claim, profile in chosen:
        count = f"{claim['n']} {claim['unit']}"
        cells = (claim["statement"], measured(claim), count, profile, published_value(claim), claim["verdict"])
        lines.append(tables.line(cells))
    return "\n".join(lines) + "\n"


def picture(sections):
    """The picture of the front page, from the profile that the claims of its section are of."""
    section, name, title = SHOWN
    profile = sections[section]["profile"]
    return f"![{title} (profile {profile})]({COMMITTED[profile]}/{name})\n"


def results_of(model, sections):
    """What the paper's measurements say of a model, in Markdown: the claims that name it, and where all the others are."""
    ran = {name: section for name, section in sections.items() if model in section["models"]}
    if not ran:
        return "No committed profile ran this model.\n"
    said = []
    for name, section in ran.items():
        alone = section["models"] == [model]
        of = "this model alone" if alone else f"{len(section['models'])} models"
        said.append(f"`{name}` (profile {section['profile']}, {of})")
    lines = [f"Sections that ran it: {', '.join(said)}. All claims stand in `figures/claims.md`.", ""]
    named = [
        (claim, section["profile"])
        for section in ran.values()
        for claim in section["claims"]
        if claim["id"].split("/")[-1] == model and claim["measured"] is not None
    ]
    return "\n".join(lines) + "\n" + (claims_table(named) if named else "")


def put_into_card(model, sections, path):
    """Write `results_of` a model into its card, at the end where the card has no place for it yet."""
    card = path.read_text(encoding="utf-8")
    if RESULTS not in card:
        path.write_text(f"{card.rstrip()}\n\n## In the paper's measurements\n\n{RESULTS}{REST}\n", encoding="utf-8")
    put_between(RESULTS, REST, results_of(model, sections), path)


def put_between(start, end, text, path):
    """Replace what stands between two markers of a file.

    Raises
    ------
    ValueError
        If the file does not hold each marker once, the first before the second.
    """
    page = path.read_text(encoding="utf-8")
    if page.count(start) != 1 or page.count(end) != 1 or page.index(start) > page.index(end):
        raise ValueError(f"{path.name} must hold {start.strip()!r} and then {end!r}, once each")
    before, rest = page.split(start)
    path.write_text(before + start + text + end + rest.split(end)[1], encoding="utf-8")


if __name__ == "__main__":
    sections, page = by_section(*committed_results()), ROOT / "README.md"
    put_between(PICTURE, AFTER, picture(sections), page)
    put_between(START, END, claims_table(headline_claims(sections, read_claims())), page)
    for card in sorted((ROOT / "data" / "models").glob("*/README.md")):
        put_into_card(card.parent.name, sections, card)
