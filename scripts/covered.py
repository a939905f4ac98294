"""Lines and branches of glauber_lib that the tests take, each against a threshold of its own: python scripts/covered.py

Reads what ``coverage run`` left (`pyproject.toml` says where) and exits with status 1 below a threshold. coverage's own
``fail_under`` has one threshold for lines and branches together.
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
REPORT = ROOT / "build" / "coverage" / "report.json"
LEAST = {"lines": 95.0, "branches": 90.0}  # per cent


def shares(totals: dict) -> dict[str, float]:
    """Per cent of lines and of branches that were taken, from the totals of a report."""
    counts = {
        "lines": (totals["covered_lines"], totals["num_statements"]),
        "branches": (totals["covered_branches"], totals["num_branches"]),
    }
    return {what: 100.0 * taken / total if total else 100.0 for what, (taken, total) in counts.items()}


def main() -> int:
    """Combine, report, compare."""
    for arguments in (["combine", "-q"], ["json", "-q", "-o", str(REPORT)]):
        subprocess.run([sys.executable, "-m", "coverage", *arguments], cwd=ROOT, check=True)
    report = json.loads(REPORT.read_text(encoding="utf-8"))
    for name, facts in sorted(report["files"].items(), key=lambda item: item[1]["summary"]["percent_covered"])[:8]:
        print(f"{name}: {facts['summary']['percent_covered']:.0f}%, lines not run {facts['missing_lines'][:12]}")
    found = shares(report["totals"])
    for what, share in found.items():
        print(f"{what}: {share:.1f}%, at least {LEAST[what]:g}%")
    return int(any(found[what] < LEAST[what] for what in LEAST))


if __name__ == "__main__":
    sys.exit(main())
