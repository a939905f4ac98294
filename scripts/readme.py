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


def put_between(start, end, text, path=ROOT / "README.md"):
    """Replace what stands between two markers of a file."""
    before, rest = path.read_text(encoding="utf-8").split(start)
    path.write_text(before + start + text + end + rest.split(end)[1], encoding="utf-8")


if __name__ == "__main__":
    results = json.loads((ROOT / "figures" / "results.json").read_text(encoding="utf-8"))
    put_between(START, END, claims_table(results))
