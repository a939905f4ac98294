"""Whether the numbers of the smoke profile depend on how its notebooks are run.

    python scripts/determinism.py

Every notebook of the paper is run anew, without the cache, in each way of `WAYS`. The tables and claims are compared
with those of the first way: how many are equal to the byte, and by how much the others differ. The last line of a way
says how much of a claim's own range in ``tests/expected/smoke.json`` the largest difference takes.
"""

import csv
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
MADE = ROOT / "build" / "smoke" / "figures"
KEPT = ROOT / "build" / "determinism"
NOTEBOOKS = sorted(path.stem for path in (ROOT / "notebooks").glob("0[1-4]_*.py"))
WAYS = {  # threads; the commands' options
    "side by side": (1, [["--jobs", "2"]]),
    "side by side, again": (1, [["--jobs", "2"]]),
    "alone, in the reverse order": (1, [["--jobs", "1", "--notebook", name] for name in reversed(NOTEBOOKS)]),
    "two threads": (2, [["--jobs", "1"]]),
}


def run(way):
    """Run all notebooks in one way, unless that is done, and keep what they made."""
    place = KEPT / way.replace(", ", "-").replace(" ", "-")
    if not place.exists():
        threads, commands = WAYS[way]
        shutil.rmtree(MADE.parent, ignore_errors=True)
        environment = {**os.environ, "GLAUBER_CACHE": "off", "OMP_NUM_THREADS": str(threads), "TQDM_DISABLE": "1"}
        for options in commands:
            command = [sys.executable, "-m", "glauber_lib.paper", "--profile", "smoke", "--force", *options]
            subprocess.run(command, cwd=ROOT, env={**environment, "PYTHONPATH": str(ROOT)}, check=True)
        shutil.copytree(MADE, place)
    return place


def numbers(claim):
    """The numbers of a claim: measured, and the ends of its interval."""
    return [x for x in (claim["measured"], *(claim["interval"] or ())) if isinstance(x, float | int)]


def compare(one, two):
    """Print what differs between two folders."""
    names = sorted(path.name for path in one.iterdir() if path.suffix in (".csv", ".md", ".png"))
    for kind in (".csv", ".md", ".png"):
        mine = [name for name in names if name.endswith(kind)]
        odd = [name for name in mine if (one / name).read_bytes() != (two / name).read_bytes()]
        print(
            f"  {len(mine) - len(odd)} of {len(mine)} {kind[1:]} files are equal to the byte; not {', '.join(odd) or 'none'}"
        )
        for name in odd if kind == ".csv" else ():
            rows = [list(csv.reader((folder / name).read_text().splitlines())) for folder in (one, two)]
            cells = [(a, b) for x, y in zip(*rows, strict=True) for a, b in zip(x, y, strict=True) if a != b]
            print(f"    {name}: {len(cells)} of {sum(map(len, rows[0]))} cells differ, as {cells[:3]}")
    first, second = (json.loads((folder / "results.json").read_text())["claims"] for folder in (one, two))
    odd = [(a, b) for a, b in zip(first, second, strict=True) if a != b]
    print(f"  {len(first) - len(odd)} of {len(first)} claims are equal to the last digit")
    for a, b in odd:
        gaps = [abs(x - y) / (max(abs(x), abs(y)) or 1) for x, y in zip(numbers(a), numbers(b), strict=True)]
        most = max((gap for gap in gaps if not math.isnan(gap)), default=0)
        print(f"    {a['id']}: relative difference {most:.1e}, verdict {a['verdict']!r} and {b['verdict']!r}")


def main():
    """Run and compare."""
    print("not kept: provenance.json, which holds seconds and the time of day")
    first, *others = WAYS
    base = run(first)
    for way in others:
        place = run(way)
        print(f"{way} against {first}:")
        compare(base, place)


if __name__ == "__main__":
    main()
