"""Notebooks run through papermill: those of a profile that are not current, some at a time."""

import argparse
import contextlib
import json
import os
import re
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import joblib
import jupytext
import nbformat
import papermill
import torch
from filelock import FileLock, Timeout
from joblib.externals.loky.process_executor import TerminatedWorkerError
from nbclient.exceptions import DeadKernelError
from papermill.exceptions import PapermillExecutionError

from glauber_lib import embedded, hub
from glauber_lib.language import load_model
from glauber_lib.paper import claims, compare, keys, profiles, progress
from glauber_lib.paper.check import announce, named_models
from glauber_lib.paper.outputs import outputs_digests, outputs_file

WIDGET = "application/vnd.jupyter.widget-view+json"
LEFT = 10.0  # seconds that a killed run's worker and kernel are waited for: they look for their parent every second


class NotRunError(Exception):
    """A notebook that did not run to its end, for a reason that no cell of it gives."""


def inputs_digest(notebook: str, profile: str) -> str:
    """Digest of all that the outputs of a notebook depend on.

    That is the notebook, its entries of ``claims.toml``, the modules of the library that it imports and those that they
    import, its settings, the passages, the weights of the embedded models that the settings name, what was asked along
    the training of any, the files and the folders on this disk that the settings name, the commits of what they name on
    the hub, and the versions of the packages.
    """
    settings = profiles.load_profile(profile, notebook)
    source = (profiles.notebooks_folder() / f"{notebook}.py").read_text(encoding="utf-8")
    values = [v for value in settings.values() for v in (value if isinstance(value, list) else [value])]
    named = [name for name in embedded.EMBEDDED if name in values]
    data = [embedded.DATA / "passages.jsonl", *(embedded.DATA / "models" / k / "model.safetensors" for k in named)]
    data += sorted(path for kind in ("jsonl", "npz") for path in (embedded.DATA / "models").glob(f"*/training.{kind}"))
    data += [embedded.package_folder(base) for base in embedded.PACKAGES if os.environ.get(f"GLAUBER_{base.upper()}")]
    for value in values:
        place = hub.mirrored(value) if isinstance(value, str) and value and value not in named else ""
        place = os.path.join(profiles.ROOT, place)  # where the notebook runs
        if os.path.exists(place) and not os.path.samefile(place, profiles.ROOT):
            data.append(Path(place))
    commits = {name: hub.cached_commit(name, settings["revisions"].get(name)) for name in named_models(settings)}
    section = profiles.short_name(notebook)
    entries = [asdict(entry) for entry in claims.read_claims() if entry.section == section]
    contents = [keys.files_digest(place) for place in data]
    facts = json.dumps([settings, entries, keys.versions(), commits, contents], sort_keys=True)
    return keys.digest(keys.source_digest(source), facts)


def is_current(notebook: str, profile: str) -> bool:
    """Whether the outputs of a notebook are what it wrote, and its inputs have not changed since."""
    try:
        written = json.loads(outputs_file(notebook, profile).read_text(encoding="utf-8"))
        made_from = _stamp(notebook, profile).read_text(encoding="utf-8")
        same = isinstance(written, dict) and written == outputs_digests(notebook, profile, written)
    except (OSError, ValueError):  # not there, or cut short
        return False
    return same and made_from == _stamp_of(notebook, profile, inputs_digest(notebook, profile))


def _stamp(notebook, profile):
    """The file with the digests of the inputs that a notebook's outputs were made from and of the list of these."""
    return profiles.build_folder(profile) / f"{notebook}.digest"


def _stamp_of(notebook, profile, inputs):
    """What the stamp says; a notebook that ran in Jupyter since has written another list of outputs."""
    return f"{inputs} {keys.files_digest(outputs_file(notebook, profile))}"


@contextlib.contextmanager
def _alone(notebook, profile):
    """Hold the lock of a notebook in a profile; NotRunError that says who runs it, where another process does.

    The system drops the lock of a process that dies; what a killed command has left ends within `LEFT` seconds.
    """
    place = profiles.build_folder(profile) / f".{notebook}.lock"
    lock, note = FileLock(place), place.with_suffix(".running")
    try:
        lock.acquire(timeout=LEFT)
    except Timeout:
        who = note.read_text(encoding="utf-8") if note.exists() else "another process"
        raise NotRunError(f"not started, {who} runs it already") from None
    try:
        note.write_text(f"process {os.getpid()} (since {time.strftime('%Y-%m-%d %H:%M:%S')})", encoding="utf-8")
        yield
    finally:
        note.unlink(missing_ok=True)
        lock.release()


def _read_notebook(notebook):
    """A notebook as papermill takes it; NotRunError where it would run with the profile in it, whatever is asked."""
    found = jupytext.read(profiles.notebooks_folder() / f"{notebook}.py")
    tagged = [cell.source for cell in found.cells if "parameters" in cell.metadata.get("tags", [])]
    if len(tagged) != 1 or not re.search(r"^profile\s*=", tagged[0], re.MULTILINE):
        raise NotRunError("must set profile in one cell with the tag parameters, or it runs with its own value")
    return found


def _drop_progress_bars(target):
    """Drop the progress bars of an executed notebook, which would stay at 0%."""
    executed = nbformat.read(target, as_version=4)
    executed.metadata.pop("widgets", None)
    for cell in executed.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if WIDGET not in output.get("data", {})]
    nbformat.write(executed, target)


def _mark_failed(target):
    """Mark the cell in which an executed notebook stopped, and those after it; what the cell is."""
    try:
        executed = nbformat.read(target, as_version=4)
    except (OSError, ValueError):  # not there, or cut short where the disk is full
        return "its kernel"
    code = [cell for cell in executed.cells if cell.cell_type == "code"]
    begun = [cell for cell in code if cell.metadata.get("papermill", {}).get("start_time")]
    if not begun:
        return "its kernel"
    for cell in code[len(begun) :]:
        cell.metadata.papermill["status"] = "pending"
    begun[-1].metadata.papermill.update(status="failed", exception=True)
    with contextlib.suppress(OSError):  # what is said counts more than the mark
        nbformat.write(executed, target)
    return _cell(len(begun), begun[-1].source)


def _cell(number, source):
    """How a code cell is named: its place among them, that of the parameters given to it included, and first line."""
    return f"code cell {number} ({source.strip().splitlines()[0]})"


def run_notebook(notebook: str, profile: str, position: int = 0) -> float:
    """Execute one notebook by papermill into ``build/<profile>/``; seconds it took.

    `position` is the line of its progress bar.

    Raises
    ------
    papermill.exceptions.PapermillExecutionError
        If a cell fails; the executed notebook holds its traceback.
    NotRunError
        If its kernel dies, another process runs it, or the profile cannot be given to it.
    """
    build, stamp = profiles.build_folder(profile), _stamp(notebook, profile)
    build.mkdir(parents=True, exist_ok=True)
    source, target = build / f".{notebook}.input.ipynb", build / f"{notebook}.ipynb"
    with _alone(notebook, profile):
        for old in (stamp, target):
            old.unlink(missing_ok=True)
        digest, began = inputs_digest(notebook, profile), time.monotonic()
        jupytext.write(_read_notebook(notebook), source)
        try:
            _execute(notebook, profile, position, source, target)
        finally:
            source.unlink(missing_ok=True)
            progress_file(notebook, profile).unlink(missing_ok=True)
        _drop_progress_bars(target)
        stamp.write_text(_stamp_of(notebook, profile, digest), encoding="utf-8")
    return time.monotonic() - began


def _execute(notebook, profile, position, source, target):
    """Give a notebook to papermill, in whose paths braces stand for parameters; see `run_notebook` for the errors."""
    os.environ[progress.VARIABLE] = str(progress_file(notebook, profile))  # the kernel has it too
    paths = (str(path).replace("{", "{{").replace("}", "}}") for path in (source, target))
    try:
        papermill.execute_notebook(
            *paths, parameters={"profile": profile}, kernel_name="python3", cwd=str(profiles.ROOT),
            progress_bar={"desc": notebook, "position": position},  # pyright: ignore[reportArgumentType]
            log_output=False,
        )  # fmt: skip
    except PapermillExecutionError:
        raise
    except BaseException as error:  # a dead kernel, or Ctrl-C: papermill says of the cell that it is completed
        cell = _mark_failed(target)
        if isinstance(error, DeadKernelError):
            raise NotRunError(f"the kernel died in {cell}") from error
        raise


def progress_file(notebook: str, profile: str) -> Path:
    """The file in which a running notebook says where it is (`progress.follow`)."""
    return profiles.build_folder(profile) / f"{notebook}.progress"


def _end_with(command):
    """Let a worker end when the command that started it is dead; a kernel ends with its worker of its own accord."""

    def watch():
        while os.getppid() == command:
            time.sleep(1)
        os._exit(1)

    if os.getpid() != command:  # and not where notebooks run in the command itself
        threading.Thread(target=watch, daemon=True).start()


def _report(notebook, profile, position, command):
    """Run one notebook: whether it succeeded, and a line about it; `command` is the process that was started."""
    _end_with(command)
    executed = f"(see build/{profiles.build_folder(profile).name}/{notebook}.ipynb)"
    try:
        return True, f"{notebook}: {run_notebook(notebook, profile, position):.0f} s"
    except PapermillExecutionError as error:
        said = f"{error.ename}: {error.evalue} in {_cell(error.exec_count, error.source)}"
        return False, f"{notebook}: {said} {executed}"
    except NotRunError as error:
        return False, f"{notebook}: {error}"
    except Exception as error:  # of this notebook alone: the others run on
        return False, f"{notebook}: {type(error).__name__}: {hub.first_line(error)} {executed}"


def choose(profile: str, named: list[str] | None, *, companions: bool = False) -> list[str]:
    """The notebooks to run: those named, or all sections of the paper, or all companions.

    Of the latter a notebook without a table in the profile is left out, with a line that says so.

    Raises
    ------
    ValueError
        For an unknown profile or notebook, a named one without a table in the profile, or one whose claims are not
        those of ``claims.toml``.
    """
    available = profiles.companions() if companions else profiles.sections()
    missing = {notebook: profiles.missing_table(profile, notebook) for notebook in available}
    chosen = named or [notebook for notebook in available if not missing[notebook]]
    for notebook in chosen:
        profiles.declared_cost(profiles.load_profile(profile, notebook))  # an error here, not in the middle of a run
    claims.check_entries(chosen)
    for notebook, reason in missing.items():
        if reason and not named:
            print(f"{notebook}: skipped, {reason}")
    if companions and not available:
        print("no companions: notebooks/ has no notebook numbered 05 or higher")
    return sorted(set(chosen))


def run_notebooks(notebooks: list[str], profile: str, jobs: int | None) -> int:
    """Run notebooks, `jobs` at a time, and print a line about each; status of the command.

    One at a time they run in their order, otherwise the one with most work first, as their tables declare it.
    """
    # on processors alone, two notebooks side by side with half the threads each are faster than one after the other
    jobs = max(1, jobs or (1 if torch.cuda.is_available() else min(len(notebooks), joblib.cpu_count())))
    if jobs > 1:
        work = {notebook: profiles.work(profiles.load_profile(profile, notebook)) for notebook in notebooks}
        notebooks = sorted(notebooks, key=lambda notebook: -work[notebook])
    tasks = (joblib.delayed(_report)(notebook, profile, k % jobs, os.getpid()) for k, notebook in enumerate(notebooks))
    ran: Any = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")(tasks)
    failed, done = False, 0
    try:
        for succeeded, message in ran:
            failed, done = failed or not succeeded, done + 1
            print(message)
    except KeyboardInterrupt:
        print("interrupted; what was measured so far is kept, run the same command to go on")
        return 130
    except TerminatedWorkerError as error:
        print(f"a process that ran notebooks died, {len(notebooks) - done} did not end: {hub.first_line(error)}")
        return 1
    return 1 if failed else 0


def _take_model(name):
    """Let one model stand for all of a profile, in this process and the kernels; ValueError where it does not load."""
    place = Path(name)
    if place.is_dir() and Path.cwd() != profiles.ROOT:  # where the notebooks run
        name = str(place.resolve())
    load_model(name)
    os.environ["GLAUBER_MODEL"] = name


def main(arguments: list[str] | None = None) -> int:
    """Command line: run the notebooks of a profile, those that are not current, and compare what a stock run gave."""
    parser = argparse.ArgumentParser(prog="python -m glauber_lib.paper", description=main.__doc__)
    parser.add_argument("--profile", default="mini")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--notebook", action="append", help="default: all sections of the paper, 01 to 04")
    which.add_argument("--companions", action="store_true", help="the companions instead: notebooks from 05 on")
    parser.add_argument("--model", help="a directory or a name: the notebooks for this model alone, into build/")
    parser.add_argument("--force", action="store_true", help="run also what is current")
    parser.add_argument("--jobs", type=int, help="notebooks at a time; default: one per core, on a GPU one")
    options = parser.parse_args(arguments)
    try:
        if options.model:
            _take_model(options.model)
        chosen = choose(options.profile, options.notebook, companions=options.companions)
        claims.read_results(profiles.figures_folder(options.profile) / "results.json")
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    due = [n for n in chosen if options.force or not is_current(n, options.profile)]
    for notebook in [n for n in chosen if n not in due]:
        print(f"{notebook}: up to date")
    if announce({notebook: profiles.load_profile(options.profile, notebook) for notebook in due}):
        where = profiles.build_folder(options.profile).relative_to(profiles.ROOT)
        print(f"It may be stopped at any moment: the same command goes on. Within a cell: {where}/NN_name.progress")
    status = run_notebooks(due, options.profile, options.jobs)
    if status != 130:
        folders = profiles.figures_folder(options.profile), profiles.build_folder(options.profile)
        figures, build = (folder.relative_to(profiles.ROOT) for folder in folders)
        print(f"figures, tables and results.json: {figures}/   executed notebooks: {build}/")
    if status == 0 and not compare.report(options.profile, chosen):
        return 1
    return status
