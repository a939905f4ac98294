"""Whether the numbers of the smoke profile depend on how its notebooks are run.

    python scripts/determinism.py

Every notebook of the paper is run anew, without the cache, in each way of `WAYS`. The files and claims are compared with
those of the first way: how many are equal to the byte, and by how much the others differ. What a way gave is kept in
``build/determinism``, which is to be deleted before the next time.
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


def gap(a, b):
    """The largest relative difference of the numbers of two claims, their values and the ends of their intervals."""
    pairs = zip(
        *([float(x) for x in (c["measured"], *(c["interval"] or ())) if x is not None] for c in (a, b)), strict=False
    )
    gaps = [abs(x - y) / (max(abs(x), abs(y)) or 1) for x, y in pairs if math.isfinite(x) and math.isfinite(y)]
    return max(gaps, default=0.0)


def compare(one, two):
    """Print what differs between two folders."""
    for kind in ("csv", "md", "png", "json"):
        names = sorted(path.name for path in one.glob(f"*.{kind}") if path.name != "provenance.json")
        odd = [name for name in names if (one / name).read_bytes() != (two / name).read_bytes()]
        print(
            f"  {len(names) - len(odd)} of {len(names)} {kind} files are equal to the byte; not {', '.join(odd) or 'none'}"
        )
        for name in odd if kind == "csv" else ():
            rows = [list(csv.reader((folder / name).read_text(encoding="utf-8").splitlines())) for folder in (one, two)]
            cells = [(a, b) for x, y in zip(*rows, strict=False) for a, b in zip(x, y, strict=False) if a != b]
            print(
                f"    {name}: {len(cells)} of {sum(map(len, rows[0]))} cells, as {cells[:3]}; rows {[*map(len, rows)]}"
            )
    first, second = (
        json.loads((folder / "results.json").read_text(encoding="utf-8"))["claims"] for folder in (one, two)
    )
    odd = [(a, b) for a, b in zip(first, second, strict=True) if a != b]
    print(f"  {len(first) - len(odd)} of {len(first)} claims are equal to the last digit")
    for a, b in sorted(odd, key=lambda pair: gap(*pair)):
        print(
            f"    {a['id']}: relative difference {gap(a, b):.1e}, {a['measured']} and {b['measured']}, {a['verdict']!r} and {b['verdict']!r}"
        )


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
