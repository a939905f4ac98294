"""Put the headline claims of ``figures/results.json`` between the markers of README.md (`make readme`).

A headline claim is one that an entry of ``notebooks/claims.toml`` with ``headline = true`` stands for. A family gives a
row for each of its members that was measured.
"""

import json

from glauber_lib.paper import ROOT, tables
from glauber_lib.paper.claims import find_entry, measured, number, read_claims

START, END = "<!-- claims: written by make readme -->\n", "<!-- end of claims -->"


def headline_claims(results, entries):
    """The records of headline entries that were measured, by entry in the order of ``claims.toml``.

    Raises
    ------
    ValueError
        If no record of a headline entry was measured: the front page must not lose a claim in silence.
    """
    headlines = [entry for entry in entries if entry.headline]
    found = {entry.id: [] for entry in headlines}
    for claim in results["claims"]:
        entry = find_entry(entries, claim["id"])
        if entry.id in found and claim["measured"] is not None:
            found[entry.id].append(claim)
    if lacking := [id for id, claims in found.items() if not claims]:
        raise ValueError(f"headline claims that results.json does not measure: {lacking}")
    return [claim for claims in found.values() for claim in claims]


def claims_table(claims):
    """Records as a Markdown table: statement, measured value with interval, n, published value, verdict."""
    lines = ["| claim | measured | n | published | verdict |", "|---|---|---|---|---|"]
    for claim in claims:
        published = number(claim["published"]) + (f" ({claim['printed']})" if claim["printed"] else "")
        cells = (claim["statement"], measured(claim), f"{claim['n']} {claim['unit']}", published, claim["verdict"])
        lines.append(tables.line(cells))
    return "\n".join(lines) + "\n"


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
    results = json.loads((ROOT / "figures" / "results.json").read_text(encoding="utf-8"))
    put_between(START, END, claims_table(headline_claims(results, read_claims())), ROOT / "README.md")
