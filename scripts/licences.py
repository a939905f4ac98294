"""The licences of the exact versions in constraints.txt, as their installed packages state them: docs/licences.md.

python scripts/licences.py
"""

import importlib.metadata
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
FIRST = (  # what a page shows of licences that are told by their whole text, or by several names
    ("Apache", "Apache-2.0"), ("BSD-2", "BSD"), ("BSD", "BSD"), ("MIT", "MIT"), ("ISC", "ISC"), ("MPL", "MPL-2.0"),
    ("Mozilla", "MPL-2.0"), ("Python Software", "PSF-2.0"), ("PSF", "PSF-2.0"), ("Historical", "HPND"),
    ("Redistribution and use", "BSD"), ("Permission is hereby granted", "MIT"),
)  # fmt: skip


def licence(name: str) -> str:
    """Licence of an installed package: its expression, else its classifiers, else its text by a few known names."""
    try:
        facts = importlib.metadata.metadata(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed here"
    if expression := facts.get("License-Expression"):
        return expression
    named = [c.rpartition(" :: ")[2] for c in facts.get_all("Classifier") or () if c.startswith("License :: ")]
    named = [n for n in named if n != "OSI Approved"] or [facts.get("License") or "not stated"]
    return " OR ".join(
        sorted({next((short for key, short in FIRST if key in n), n.splitlines()[0][:60]) for n in named})
    )


def main() -> None:
    """Write the page."""
    names = [re.split("==", line)[0] for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").split()]
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(licence(name), []).append(name)
    lines = ["# Licences", "", "Of the packages in `constraints.txt`, as they state them (`make licences`).", ""]
    lines += ["| licence | packages |", "|---|---|"]
    for said, mine in sorted(groups.items(), key=lambda item: -len(item[1])):
        lines.append(f"| {said} | {', '.join(sorted(mine))} |")
    (ROOT / "docs" / "licences.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
