"""Put the claims table of ``figures/results.json`` between the markers of README.md (`make readme`)."""

import json

from glauber_lib.paper import ROOT

START, END = "<!-- claims: written by make readme -->\n", "<!-- end of claims -->"


def claims_table(results):
    """The claims as a Markdown table: one line each, measured value with interval, published value, verdict."""

    def number(value):
        return "–" if value is None else f"{value:.4g}"

    lines = ["| claim | measured | published | verdict |", "|---|---|---|---|"]
    for claim in results["claims"]:
        measured = number(claim["measured"])
        if claim["interval"] and None not in claim["interval"]:
            measured += " [" + ", ".join(map(number, claim["interval"])) + "]"
        if claim["kind"] not in ("estimate", "exact"):
            measured += f" ({claim['kind']})"
        lines.append(
            f"| `{claim['id']}` {claim['statement']} | {measured} | {number(claim['published'])} | {claim['verdict']} |"
        )
    return "\n".join(lines) + "\n"


def rendered(readme, results):
    """`readme` with the text between the markers replaced."""
    before, rest = readme.split(START)
    after = rest.split(END)[1]
    return before + START + claims_table(results) + END + after


if __name__ == "__main__":
    path = ROOT / "README.md"
    results = json.loads((ROOT / "figures" / "results.json").read_text(encoding="utf-8"))
    path.write_text(rendered(path.read_text(encoding="utf-8"), results), encoding="utf-8")
