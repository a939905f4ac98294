"""Faults of the machine: the command names notebook and cell, keeps what is finished, and ends."""

import os
import resource
import shutil
import signal
import subprocess
import sys
import time

import pytest
from jupyter_client.manager import start_new_kernel

from glauber_lib.paper import ROOT

pytestmark = pytest.mark.slow  # each starts the command of a copy, its workers and its kernels
HEADER = """# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% tags=["parameters"]
profile = "mini"
"""
FINISHES = """
import pandas as pd
from glauber_lib.paper import Run
run = Run("03_crossover", profile)
run.save_table(pd.DataFrame({"x": [1]}), "whole")
run.finish()
"""
LONGEST = 120  # seconds that a command may take to end, on a machine that does much else


class Copy:
    """A copy of the library with notebooks of its own, and the command in it."""

    def __init__(self, root):
        self.root, self.build = root, root / "build" / "smoke"
        shutil.copytree(ROOT / "glauber_lib", root / "glauber_lib", ignore=shutil.ignore_patterns("__pycache__"))
        (root / "notebooks").mkdir()
        shutil.copy(ROOT / "notebooks" / "profiles.toml", root / "notebooks")
        (root / "notebooks" / "claims.toml").write_text("")
        (root / "data" / "models" / "minilm-3l").mkdir(parents=True)
        shutil.copy(ROOT / "data" / "passages.jsonl", root / "data")
        (root / "data" / "models" / "minilm-3l" / "model.safetensors").write_bytes(b"weights")
        for name in ("01_incompatibility", "02_bounds", "03_crossover", "04_basins"):
            self.write(name)

    def write(self, notebook, *cells):
        text = HEADER + "".join(f"\n# %%\n{cell.strip()}\n" for cell in cells)
        (self.root / "notebooks" / f"{notebook}.py").write_text(text)

    def start(self, *notebooks, jobs=1, **options):
        """The command, in a process group of its own."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith("GLAUBER_")}
        ours |= {"PYTHONPATH": str(self.root), "OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1"}
        command = [sys.executable, "-m", "glauber_lib.paper", "--profile", "smoke", "--jobs", str(jobs)]
        command += [f"--notebook={name}" for name in notebooks]
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen(command, cwd=self.root, env=ours, start_new_session=True, **streams, **options)

    def run(self, *notebooks, **options):
        """Status and output of the command."""
        with self.start(*notebooks, **options) as process:
            return process.communicate(timeout=LONGEST)[0], process.returncode

    def kept(self, notebook="03_crossover"):
        """Whether a notebook ran to its end and its results are there."""
        return (self.build / f"{notebook}.digest").exists() and (self.build / "figures" / "results.json").exists()


@pytest.fixture
def copy(tmp_path):
    return Copy(tmp_path)


def wait_for(happened):
    began = time.monotonic()
    while not happened():
        assert time.monotonic() - began < LONGEST
        time.sleep(0.1)


# Disks that are full or cannot be written ----------------------------------------------------------------------------


def test_a_full_disk_fails_the_cell_that_writes_by_name_and_the_other_notebook_is_kept(copy):
    cell = FINISHES.replace("03_crossover", "02_bounds").replace("whole", "table")
    copy.write("02_bounds", "x = 1", cell)
    copy.write("03_crossover", FINISHES)
    (copy.build / "figures").mkdir(parents=True)
    (copy.build / "figures" / "table.csv").symlink_to("/dev/full")
    said, status = copy.run("02_bounds", "03_crossover")
    assert status == 1 and "Traceback" not in said, said
    assert "02_bounds: OSError: [Errno 28] No space left on device in code cell 4 (import pandas as pd)" in said
    assert copy.kept() and not copy.kept("02_bounds")


def limit_files():
    """Of a process and all that it starts: no file may grow beyond 60 kB, as on a disk that is nearly full."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))


def test_an_executed_notebook_that_cannot_be_written_fails_its_notebook_alone(copy):
    copy.write("02_bounds", "print(100_000 * 'x')")
    copy.write("03_crossover", FINISHES)
    said, status = copy.run("02_bounds", "03_crossover", preexec_fn=limit_files)
    assert status == 1 and "Traceback" not in said, said
    assert "02_bounds: OSError: [Errno 27] File too large" in said
    assert copy.kept() and not copy.kept("02_bounds")


def test_a_folder_of_figures_that_cannot_be_written_is_named(copy):
    copy.write("02_bounds", FINISHES.replace("03_crossover", "02_bounds"))
    copy.build.mkdir(parents=True)
    (copy.build / "figures").write_text("no folder")
    said, status = copy.run("02_bounds")
    assert status and "Traceback" not in said and "smoke/figures" in said, said


def test_without_a_temporary_folder_it_is_said_of_each_notebook(copy):
    """The kernel's connection file is written there."""
    (copy.root / "sitecustomize.py").write_text("import tempfile\ntempfile.tempdir = '/dev/null/gone'\n")
    copy.write("02_bounds", "x = 1")
    said, status = copy.run("02_bounds", "03_crossover")
    assert status == 1 and "Traceback" not in said, said
    assert "02_bounds: NotADirectoryError: " in said and "03_crossover: NotADirectoryError: " in said


# Commands that are killed, and two at once ----------------------------------------------------------------------


WAITS = """
import os, time
first = not os.path.exists(f"begun-{name}")
open(f"begun-{name}", "w").write(str(os.getpid()))
time.sleep(600 * first)
"""


def alive(process):
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_what_a_killed_command_leaves_ends_within_seconds_and_a_new_one_goes_on_at_once(copy):
    names = ("02_bounds", "03_crossover")
    for name in names:
        copy.write(name, f"name = {name!r}", WAITS)
    begun = [copy.root / f"begun-{name}" for name in names]
    with copy.start(*names, jobs=2) as first:
        wait_for(lambda: all(path.exists() and path.read_text() for path in begun))
        kernels = [int(path.read_text()) for path in begun]
        first.send_signal(signal.SIGKILL)  # the command alone: not its workers, and not their kernels
        first.wait()
        said, status = copy.run(*names, jobs=2)
        assert status == 0 and "not started" not in said, said
        wait_for(lambda: not any(map(alive, kernels)))
        first.stdout.read()  # ends when no worker holds it any longer
    assert all((copy.build / f"{name}.digest").exists() for name in names)


def test_two_commands_at_once_do_each_notebook_once_or_say_who_does(copy):
    copy.write("02_bounds", "import os, time\nwhile not os.path.exists('go'):\n    time.sleep(0.1)")
    copy.write("03_crossover", FINISHES)
    with copy.start("02_bounds", "03_crossover") as first:
        wait_for(lambda: list(copy.build.glob(".02_bounds.running")))
        said, status = copy.run("02_bounds", "03_crossover")
        assert status == 1 and f"02_bounds: not started, process {first.pid} " in said, said
        assert copy.kept()
        (copy.root / "go").touch()
        assert first.wait() == 0
    assert copy.kept() and copy.kept("02_bounds")


CHAIN = """
import numpy as np
import torch
from glauber_lib.chains import run_chains
class Slow:
    n_tokens, memory, cache_key = 2, 0, "slow"
    def scores(self, states, sites):
        open("begun", "w").close()
        return torch.zeros((len(states), 2))
trace = run_chains(Slow(), np.zeros((2, 3), int), n_steps=10**7, temperature=1.0, seed=0)
"""
LOOKED_AT = """
assert trace.complete is False and 0 < trace.n_steps < 10**7, trace.n_steps
assert trace.final.shape == (2, 3) and np.array_equal(trace.states([trace.n_steps])[0], trace.final)
more = run_chains(Slow(), None, n_steps=10, resume=trace)
assert more.complete and more.n_steps == trace.n_steps + 10
"""


def test_ctrl_c_in_jupyter_during_a_chain_leaves_a_trace_that_can_be_used_and_gone_on_with(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    manager, client = start_new_kernel(kernel_name="python3", cwd=str(tmp_path))
    try:
        client.execute(CHAIN)
        wait_for((tmp_path / "begun").exists)
        time.sleep(1)
        manager.interrupt_kernel()
        said = client.execute_interactive(LOOKED_AT, timeout=LONGEST, output_hook=lambda _: None)
        assert said["content"]["status"] == "ok", said["content"]
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
