"""Notebooks run through papermill: those of a profile that are not current, some at a time."""

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import joblib
import jupytext
import papermill
import torch
from papermill.exceptions import PapermillExecutionError

from glauber_lib import embedded, hub
from glauber_lib.checksums import CONFIGURATION
from glauber_lib.paper import claims, keys, profiles
from glauber_lib.paper.run import outputs_file


def inputs_digest(notebook: str, profile: str) -> str:
    """Digest of all that the outputs of a notebook depend on.

    That is the notebook, its entries of ``claims.toml``, the modules of the library that it imports and those that they
    import, its settings, the passages, the weights of the embedded models that the settings name, the files and the
    model folders on this disk that they name, and the versions of the packages.
    """
    settings = profiles.load_profile(profile, notebook)
    source = (profiles.notebooks_folder() / f"{notebook}.py").read_text(encoding="utf-8")
    values = [v for value in settings.values() for v in (value if isinstance(value, list) else [value])]
    named = [name for name in embedded.EMBEDDED if name in values]
    data = [embedded.DATA / "passages.jsonl", *(embedded.DATA / "models" / k / "model.safetensors" for k in named)]
    for value in values:
        place = Path(hub.mirrored(value)) if isinstance(value, str) and value not in named else None
        if place and place.is_dir():
            data += [path for path in sorted(place.rglob("*")) if path.suffix in (".safetensors", *CONFIGURATION)]
        elif place and place.suffix in (".jsonl", ".txt"):
            data.append(place)
    contents = [path.read_bytes() if path.exists() else b"" for path in data]
    section = profiles.short_name(notebook)
    entries = [asdict(entry) for entry in claims.read_claims() if entry.section == section]
    facts = json.dumps([settings, entries, keys.versions()], sort_keys=True)
    return keys.digest(keys.source_digest(source), facts, *contents)


def is_current(notebook: str, profile: str) -> bool:
    """Whether the outputs of a notebook are all there and its inputs have not changed since."""
    stamp, outputs = _stamp(notebook, profile), outputs_file(notebook, profile)
    if not (stamp.exists() and outputs.exists()):
        return False
    figures = profiles.figures_folder(profile)
    complete = all((figures / name).exists() for name in json.loads(outputs.read_text()))
    return complete and stamp.read_text() == inputs_digest(notebook, profile)


def _stamp(notebook, profile):
    """The file with the digest of the inputs that a notebook's outputs were made from."""
    return profiles.build_folder(profile) / f"{notebook}.digest"


def run_notebook(notebook: str, profile: str, position: int = 0) -> float:
    """Execute one notebook by papermill into ``build/<profile>/``; seconds it took.

    `position` is the line of its progress bar.

    Raises
    ------
    papermill.exceptions.PapermillExecutionError
        If a cell fails; the executed notebook holds its traceback.
    """
    build, stamp = profiles.build_folder(profile), _stamp(notebook, profile)
    build.mkdir(parents=True, exist_ok=True)
    source, target = build / f".{notebook}.input.ipynb", build / f"{notebook}.ipynb"
    stamp.unlink(missing_ok=True)
    digest = inputs_digest(notebook, profile)
    jupytext.write(jupytext.read(profiles.notebooks_folder() / f"{notebook}.py"), source)
    began = time.monotonic()
    papermill.execute_notebook(
        str(source), str(target), parameters={"profile": profile}, kernel_name="python3", cwd=str(profiles.ROOT),
        progress_bar={"desc": notebook, "position": position},  # pyright: ignore[reportArgumentType]
        log_output=False,
    )  # fmt: skip
    source.unlink()
    stamp.write_text(digest)
    return time.monotonic() - began


def _report(notebook, profile, position):
    """Run one notebook: whether it succeeded, and a line about it."""
    try:
        return True, f"{notebook}: {run_notebook(notebook, profile, position):.0f} s"
    except PapermillExecutionError as error:
        executed = f"build/{profiles.build_folder(profile).name}/{notebook}.ipynb"
        return False, f"{notebook}: {error.ename}: {error.evalue} (see {executed})"


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
    tasks = (joblib.delayed(_report)(notebook, profile, k % jobs) for k, notebook in enumerate(notebooks))
    ran: Any = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")(tasks)
    failed = False
    try:
        for succeeded, message in ran:
            failed |= not succeeded
            print(message)
    except KeyboardInterrupt:
        print("interrupted; what was measured so far is kept, run the same command to go on")
        return 130
    return 1 if failed else 0


def main(arguments: list[str] | None = None) -> int:
    """Command line: run the notebooks of a profile, those that are not current."""
    parser = argparse.ArgumentParser(prog="python -m glauber_lib.paper", description=main.__doc__)
    parser.add_argument("--profile", default="mini")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--notebook", action="append", help="default: all sections of the paper, 01 to 04")
    which.add_argument("--companions", action="store_true", help="the companions instead: notebooks from 05 on")
    parser.add_argument("--force", action="store_true", help="run also what is current")
    parser.add_argument("--jobs", type=int, help="notebooks at a time; default: one per core, on a GPU one")
    options = parser.parse_args(arguments)
    try:
        chosen = choose(options.profile, options.notebook, companions=options.companions)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    due = [n for n in chosen if options.force or not is_current(n, options.profile)]
    for notebook in [n for n in chosen if n not in due]:
        print(f"{notebook}: up to date")
    status = run_notebooks(due, options.profile, options.jobs)
    if status != 130:
        folders = profiles.figures_folder(options.profile), profiles.build_folder(options.profile)
        figures, build = (folder.relative_to(profiles.ROOT) for folder in folders)
        print(f"figures, tables and results.json: {figures}/   executed notebooks: {build}/")
    return status
