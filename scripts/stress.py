"""Kill a run of the smoke profile at random moments, run it again, and compare with an undisturbed run.

    python scripts/stress.py --kills 20

A clone of this repository in a temporary folder runs every notebook. The run is killed (SIGKILL, in turn the whole
process group or the command alone) after a random time and started again until it ends by itself. That is repeated
until there were so many kills. The figures, tables and results of each survivor are compared with those of an
undisturbed run, byte by byte. What was tried and what came goes to ``tests/stress.md``.
"""

import argparse
import filecmp
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOG = ROOT / "tests" / "stress.md"
LONGEST = 300  # seconds that what is left of a killed run may take
SKIPPED = ("provenance.json",)  # holds seconds and the time of day


def begin(clone):
    """Start the command in a process group of its own; a computation is done anew only if the run did not keep it."""
    environment = {**os.environ, "PYTHONPATH": str(clone), "OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1"}
    command = [sys.executable, "-m", "glauber_lib.paper", "--profile", "smoke"]
    with (clone / "stress.log").open("ab") as log:
        return subprocess.Popen(command, cwd=clone, env=environment, stdout=log, stderr=log, start_new_session=True)


def end(process, alone):
    """Kill the command alone, or with its notebooks' kernels; those left behind end by themselves."""
    if alone:
        process.kill()
    else:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def kernels_of(clone):
    """Processes that still run notebooks in the clone."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if (place / "cwd").resolve() == clone and b"ipykernel" in (place / "cmdline").read_bytes():
                found.append(int(place.name))
        except OSError:
            continue
    return found


def wait_for_the_rest(group, clone):
    """Wait until nothing of a killed run is left: a kernel ends when it finds its parent gone, a worker with its notebook."""
    began = time.monotonic()
    while time.monotonic() - began < LONGEST:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            if not kernels_of(clone):
                return
        time.sleep(0.5)
    print(f"  something is left after {LONGEST} s", flush=True)


def differences(a, b):
    """Names of the files that two folders do not share, or that differ."""
    names = {p.relative_to(folder).as_posix() for folder in (a, b) for p in folder.rglob("*") if p.is_file()}
    same = lambda n: (a / n).is_file() and (b / n).is_file() and filecmp.cmp(a / n, b / n, shallow=False)  # noqa: E731
    return sorted(n for n in names if Path(n).name not in SKIPPED and not same(n))


def disturbed(clone, longest, rng, kills):
    """Run until the command ends by itself: when it was killed, how, and its status."""
    killed = []
    while True:
        process, after = begin(clone), rng.uniform(1.0, longest)
        alone = len(killed) % 2 == 1
        try:
            return killed, process.wait(after if len(killed) < kills else None)
        except subprocess.TimeoutExpired:
            end(process, alone)
            killed.append((after, "command alone" if alone else "process group"))
            print(f"  killed after {after:.1f} s ({killed[-1][1]})", flush=True)
            wait_for_the_rest(process.pid, clone)


def main():
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng, rows, left = random.Random(options.seed), [], options.kills
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder).resolve() / "clone"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        began = time.monotonic()
        if begin(clone).wait():
            raise SystemExit((clone / "stress.log").read_text(encoding="utf-8")[-2000:])
        seconds = time.monotonic() - began
        shutil.move(clone / "build" / "smoke" / "figures", clone / "undisturbed")
        print(f"undisturbed: {seconds:.0f} s", flush=True)
        while left > 0:
            shutil.rmtree(clone / "build", ignore_errors=True)
            killed, status = disturbed(clone, 0.5 * seconds, rng, left)
            left -= len(killed)
            odd = differences(clone / "undisturbed", clone / "build" / "smoke" / "figures")
            orphans = kernels_of(clone)
            rows.append((killed, status, odd, orphans))
            print(f"run {len(rows)}: {len(killed)} kills, status {status}, differs in {odd or 'nothing'}", flush=True)
    write(rows, seconds, options.seed)
    return any(status or odd or orphans for _, status, odd, orphans in rows)


def write(rows, seconds, seed):
    """The table."""
    kills = sum(len(killed) for killed, *_ in rows)
    lines = [
        "# Runs killed at random moments", "",
        f"`python scripts/stress.py`, seed {seed}, {time.strftime('%Y-%m-%d')}, Python {platform.python_version()}, "
        f"{os.cpu_count()} cores. All notebooks of the smoke profile take {seconds:.0f} s undisturbed. "
        f"{kills} kills (SIGKILL) in {len(rows)} run{'s' * (len(rows) > 1)}; each was started again until it ended by itself. Differences are those of "
        "the bytes of all figures, tables and results from the undisturbed run, but for provenance.json.", "",
        "| run | killed after (s) | status at the end | files that differ | kernels left |", "|---|---|---|---|---|",
    ]  # fmt: skip
    for k, (killed, status, odd, orphans) in enumerate(rows, 1):
        when = ", ".join(f"{after:.1f}{' (command alone)' if 'alone' in how else ''}" for after, how in killed)
        lines.append(f"| {k} | {when or '–'} | {status} | {', '.join(odd) or 'none'} | {len(orphans)} |")
    LOG.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
