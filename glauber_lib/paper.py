"""Profiles, cached results, figures and tables on disk, and the machine-readable paper.

A notebook opens a `Run`, measures, records its claims and finishes; ``python -m glauber_lib.paper`` runs notebooks
through papermill and skips those whose inputs have not changed.
"""

import argparse
import hashlib
import importlib.metadata
import inspect
import json
import os
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import joblib
import jupytext
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import papermill
import torch
from filelock import FileLock
from papermill.exceptions import PapermillExecutionError

from glauber_lib import hub, language
from glauber_lib.plotting import use_style

ROOT = Path(__file__).parent.parent
NOTEBOOKS = ("01_incompatibility", "02_bounds", "03_crossover", "04_basins")
LONGEST_FIRST = ("04_basins", "02_bounds", "03_crossover", "01_incompatibility")
KINDS = ("estimate", "exact", "lower bound", "upper bound", "censored")
VERDICTS = ("holds", "does not hold", "not measurable here")
PACKAGES = ("torch", "transformers", "sentence-transformers", "numpy", "scipy", "scikit-learn", "matplotlib")


def load_profile(profile, notebook):
    """Settings of one notebook in one profile: the profile's own plus its section for the notebook.

    The section holds the notebook's sizes. It may also name another value of what the profile says for all notebooks,
    such as ``model``, ``models`` or ``control``.

    The environment variable GLAUBER_SIZES names another profile to take the notebook's sizes from: with
    ``GLAUBER_SIZES=smoke`` the models and data of ``paper`` go through everything in minutes. Models are no sizes:
    those that the other profile's section names are left out.

    Raises
    ------
    ValueError
        For an unknown profile or notebook.
    """
    profiles = tomllib.loads((ROOT / "notebooks" / "profiles.toml").read_text())
    if profile not in profiles:
        raise ValueError(f"unknown profile {profile!r}, choose one of {sorted(profiles)}")
    if notebook not in NOTEBOOKS:
        raise ValueError(f"unknown notebook {notebook!r}, choose one of {list(NOTEBOOKS)}")
    common = {key: value for key, value in profiles[profile].items() if key not in NOTEBOOKS}
    sizes = os.environ.get("GLAUBER_SIZES") or profile
    if sizes not in profiles:
        raise ValueError(f"unknown profile {sizes!r} in GLAUBER_SIZES, choose one of {sorted(profiles)}")
    section = {key: value for key, value in profiles[sizes].get(notebook, {}).items() if key not in common}
    own = {key: value for key, value in profiles[profile].get(notebook, {}).items() if key in common}
    return {**common, **section, **own}


def _build(profile):
    """Folder of what a run of `profile` builds; of its own where the sizes are another profile's."""
    sizes = os.environ.get("GLAUBER_SIZES")
    return ROOT / "build" / (f"{profile}-{sizes}" if sizes and sizes != profile else profile)


def _figures(profile):
    """Folder of figures, tables and ``results.json``."""
    build = _build(profile)
    return ROOT / "figures" if build.name == "mini" else build / "figures"


def load_passages(source="passages", *, count=2_000, seed=0, revision=None):
    """Passages to start from, as DataFrame with columns ``id`` and ``text``, and ``topic`` where it is known.

    Parameters
    ----------
    source : str or Path
        ``"passages"`` for the ones of this package; a ``.jsonl`` file with the columns above, or a ``.txt`` file with
        one passage a line; otherwise a dataset in the form of MS MARCO v2.1, by its name on the hub or its folder.
    count : int
        Of a dataset a random sample of this size is taken, from its passages of 40 to 90 words.
    seed : int
        Of the sample: the same passages each time.
    revision : str, optional
        Pinned revision of a dataset on the hub.

    Raises
    ------
    ValueError
        If the file or dataset is not there, or has no usable passage.
    """
    path = ROOT / "data" / "passages.jsonl" if source == "passages" else Path(source)
    if path.suffix in (".jsonl", ".txt"):
        if not path.exists():
            raise ValueError(f"no file of passages {str(path)!r}")
        if path.suffix == ".jsonl":
            return pd.read_json(path, lines=True)
        lines = [line.strip() for line in path.read_text().splitlines() if line.strip()]
        return pd.DataFrame({"id": [f"{path.stem}-{k}" for k in range(len(lines))], "text": lines})
    return _marco_passages(hub.mirrored(str(source)), count, seed, revision)


def _marco_passages(name, count, seed, revision):
    """A fixed sample of the distinct passages of MS MARCO's validation split."""
    import datasets  # seconds to import, for this alone

    refusal = f"no dataset {name!r} on disk, in the cache or on the hub"
    place = hub.locate_passages(name, revision)  # offline, the library would take any revision that it has
    if not place.found:
        raise ValueError(f"{refusal}: {place.detail}")
    try:
        config = None if Path(name).exists() else "v2.1"
        queries = datasets.load_dataset(name, config, split="validation", revision=revision)
    except (OSError, ValueError, ConnectionError) as error:
        raise ValueError(f"{refusal}: {hub.first_line(error)}") from error
    texts = pd.Series([text for passages in queries["passages"] for text in passages["passage_text"]]).drop_duplicates()
    texts = texts[texts.str.split().str.len().between(40, 90)]
    if texts.empty:
        raise ValueError(f"dataset {name!r} has no passage of 40 to 90 words")
    texts = texts.sample(min(count, len(texts)), random_state=seed)
    return pd.DataFrame({"id": [f"marco-{k}" for k in texts.index], "text": texts.to_numpy()})


def _files_digest(paths):
    digest = hashlib.blake2b(digest_size=12)
    for path in sorted(paths):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def library_digest():
    """Digest of the library's source: what every cached result depends on."""
    return _files_digest((ROOT / "glauber_lib").glob("*.py"))


def versions():
    """Versions of the packages that results depend on."""
    return {name: importlib.metadata.version(name) for name in PACKAGES}


def _git(*arguments):
    answer = subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True, check=False)
    return answer.stdout.strip()


def _commit():
    return _git("rev-parse", "--short", "HEAD") or None


def _plain(value):
    """`value` as what JSON can hold: numpy scalars and arrays as Python numbers, non-finite ones as None."""
    if isinstance(value, np.ndarray | list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value


def _describe(value):
    """What stands for `value` in the key of a cached result: of a model its weights, not itself."""
    if hasattr(value, "__self__"):  # a bound method
        return [_describe(value.__self__), value.__name__]
    return getattr(value, "cache_key", value)


class Run:
    """One notebook in one profile.

    Parameters
    ----------
    notebook : str
        One of `NOTEBOOKS`.
    profile : str
        A table of ``notebooks/profiles.toml``.

    Attributes
    ----------
    settings : dict
        What the profile says for this notebook.
    figures : Path
        Where figures, tables and ``results.json`` go: ``figures/`` for the default profile ``mini``,
        ``build/<profile>/figures`` for the others.
    """

    def __init__(self, notebook, profile):
        self.notebook, self.profile = notebook, profile
        self.settings = load_profile(profile, notebook)
        self.seed = self.settings["seed"]
        self.figures = _figures(profile)
        self.figures.mkdir(parents=True, exist_ok=True)
        self.claims, self.outputs = [], []
        self._models, self._asked, self._began = {}, {}, time.monotonic()
        use_style()

    def __getitem__(self, key):
        return self.settings[key]

    def passages(self, *models):
        """The passages of the profile (`load_passages`) that all `models` can read: without unknown tokens."""
        revision = self["revisions"].get(self["passages"])
        frame = load_passages(self["passages"], seed=self.seed, revision=revision)
        readable = [all(model.reads(text) for model in models) for text in frame.text]
        if not any(readable):
            raise ValueError(f"none of the {len(frame)} passages is without tokens outside a model's vocabulary")
        return frame[readable].reset_index(drop=True)

    def revision(self, name):
        """The revision that the profile pins a model on the hub to, or None; noted for the provenance."""
        self._asked[name] = self["revisions"].get(name)
        return self._asked[name]

    def model(self, name, **options):
        """A language model by name (`language.load_model`), at the profile's revision, loaded once."""
        if name not in self._models:
            self._models[name] = language.load_model(name, revision=self.revision(name), **options)
        return self._models[name]

    def cached(self, compute, *arguments, **options):
        """``compute(*arguments, **options)``, or its result from the disk.

        The key is the function, its arguments (a model by its weights), and the library's source; a `progress`
        title does not count. Delete ``build/cache`` to start afresh, or set GLAUBER_CACHE=off. A function with an
        argument `checkpoint` is given a file there, so that what was interrupted goes on where it was.
        """
        names = {k: _describe(v) for k, v in options.items() if k != "progress"}
        source = [compute.__module__, compute.__qualname__, library_digest(), versions()]
        key = joblib.hash([source, [_describe(a) for a in arguments], names])
        path = ROOT / "build" / "cache" / f"{compute.__name__}-{key}.joblib"
        use = os.environ.get("GLAUBER_CACHE", "on") != "off"
        if use and path.exists():
            return joblib.load(path)
        if use:
            path.parent.mkdir(parents=True, exist_ok=True)
            if "checkpoint" in inspect.signature(compute).parameters:
                options["checkpoint"] = path.with_suffix(".npz")
        result = compute(*arguments, **options)
        if not getattr(result, "complete", True):
            raise KeyboardInterrupt
        if use:
            partial = path.with_suffix(f".{os.getpid()}")
            joblib.dump(result, partial)
            partial.replace(path)
            path.with_suffix(".npz").unlink(missing_ok=True)  # only now: the result is kept
        return result

    def claim(
        self, id, statement, measured, *, published=None, interval=None, kind="estimate", n=None, verdict, why=""
    ):
        """Record one claim of the paper with what was measured here; printed, and written by `finish`.

        Parameters
        ----------
        id : str
            Stable name; the notebook's short name is put before it.
        statement : str
            The claim in a sentence.
        measured, published : float or None
        interval : (float, float), optional
            95% interval of `measured`.
        kind : str
            One of `KINDS`: what `measured` is.
        n : int, optional
            Sample size.
        verdict : bool or str
            True for 'holds', False for 'does not hold', or one of `VERDICTS`.
        why : str
            How the verdict follows.
        """
        if isinstance(verdict, bool | np.bool_):
            verdict = VERDICTS[0] if verdict else VERDICTS[1]
        if kind not in KINDS or verdict not in VERDICTS:
            raise ValueError(f"kind must be one of {KINDS} and verdict of {VERDICTS}, got {kind!r} and {verdict!r}")
        section = self.notebook.split("_", 1)[1]
        record = {
            "id": f"{section}/{id}", "statement": statement, "published": _plain(published),
            "measured": _plain(measured), "interval": _plain(interval) if interval is not None else None,
            "kind": kind, "n": _plain(n), "verdict": verdict, "why": why,
        }  # fmt: skip
        if record["id"] in {c["id"] for c in self.claims}:
            raise ValueError(f"claim {record['id']!r} recorded twice")
        self.claims.append(record)

        def show(value):
            return f"{value:.4g}" if isinstance(value, int | float) else str(value)

        text = f"{record['id']}: {show(record['measured'])}"
        if record["interval"]:
            text += " [" + ", ".join(map(show, record["interval"])) + "]"
        if published is not None:
            text += f", published {show(record['published'])}"
        print(f"{text}: {verdict}{', ' + why if why else ''}")

    @property
    def provenance(self):
        """What every output carries: profile, seed, commit, device, precision, versions, and of the models checksums
        and, of those from the hub, the commit there.
        """
        commits = {name: hub.cached_commit(name, revision) for name, revision in self._asked.items()}
        device = next((m.device for m in self._models.values()), torch.device("cpu"))
        return {
            "profile": self.profile, "seed": self.seed, "commit": _commit(),
            "dirty": bool(_git("status", "--porcelain", "--", "glauber_lib", "notebooks", "data")),
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu", "dtype": "float32",
            "tf32": torch.backends.cuda.matmul.allow_tf32,  # off by default, and nothing here turns it on
            "versions": versions(),
            "models": {name: model.checksum for name, model in self._models.items()},
            "hub_commits": {name: commit for name, commit in commits.items() if commit},
        }  # fmt: skip

    def _label(self):
        return f"{self.notebook}, profile {self.profile}, seed {self.seed}, commit {_commit()}"

    def save_figure(self, figure, name):
        """Write ``name.png`` and ``name.pdf`` with their provenance in the metadata."""
        for suffix, metadata in (
            (".png", {"Description": self._label()}),
            (".pdf", {"Subject": self._label(), "CreationDate": None}),
        ):
            figure.savefig(self.figures / (name + suffix), metadata=metadata)
            self.outputs.append(name + suffix)

    def save_table(self, table, name, *, digits=3):
        """Write ``name.csv`` (first line: a comment with the provenance) and ``name.md``; return the table."""
        with (self.figures / f"{name}.csv").open("w") as file:
            file.write(f"# {self._label()}\n")
            table.to_csv(file, index=False, float_format="%.6g")
        shown = table.astype(object).where(table.notna(), None)
        text = shown.to_markdown(index=False, floatfmt=f".{digits}g", missingval="–")
        (self.figures / f"{name}.md").write_text(f"{text}\n\n<!-- {self._label()} -->\n")
        self.outputs += [f"{name}.csv", f"{name}.md"]
        return table

    def finish(self):
        """Put this notebook's claims and provenance into ``results.json``, in place of its earlier ones."""
        path = self.figures / "results.json"
        with FileLock(ROOT / "build" / "results.lock"):  # notebooks run side by side
            self._write_results(path)
        stamp = _build(self.profile) / f"{self.notebook}.outputs.json"
        stamp.parent.mkdir(parents=True, exist_ok=True)
        stamp.write_text(json.dumps([*self.outputs, "results.json"]))
        plt.close("all")
        print(f"{len(self.claims)} claims, {len(self.outputs)} files")

    def _write_results(self, path):
        section = self.notebook.split("_", 1)[1]
        old = json.loads(path.read_text()) if path.exists() else {"provenance": {}, "claims": []}
        facts, before = self.provenance, old["provenance"]
        seconds = {**before.get("seconds", {}), self.notebook: round(time.monotonic() - self._began, 1)}
        mine = {key: facts[key] for key in ("commit", "dirty", "device", "models", "hub_commits")}
        facts["notebooks"] = dict(sorted({**before.get("notebooks", {}), self.notebook: mine}.items()))
        for key in ("models", "hub_commits"):  # the latter is not in what earlier versions wrote
            facts[key] = {k: v for n in facts["notebooks"].values() for k, v in n.get(key, {}).items()}
        results = {
            "provenance": {**facts, "seconds": dict(sorted(seconds.items()))},
            "claims": sorted(
                [c for c in old["claims"] if not c["id"].startswith(section + "/")] + self.claims, key=lambda c: c["id"]
            ),
        }
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(results, indent=1) + "\n")
        partial.replace(path)


# Running notebooks -------------------------------------------------------------------------------------------------


def inputs_digest(notebook, profile):
    """Digest of all that the outputs of a notebook depend on."""
    settings = json.dumps(load_profile(profile, notebook), sort_keys=True)
    data = [ROOT / "data" / "passages.jsonl", *(ROOT / "data" / "models").glob("*/*.safetensors")]
    files = _files_digest([ROOT / "notebooks" / f"{notebook}.py", *data])
    everything = settings + files + library_digest() + json.dumps(versions())
    return hashlib.blake2b(everything.encode(), digest_size=12).hexdigest()


def is_current(notebook, profile):
    """Whether the outputs of a notebook are all there and its inputs have not changed since."""
    build, figures = _build(profile), _figures(profile)
    stamp, outputs = build / f"{notebook}.digest", build / f"{notebook}.outputs.json"
    if not (stamp.exists() and outputs.exists()):
        return False
    complete = all((figures / name).exists() for name in json.loads(outputs.read_text()))
    return complete and stamp.read_text() == inputs_digest(notebook, profile)


def run_notebook(notebook, profile, position=0):
    """Execute one notebook by papermill into ``build/<profile>/``; seconds it took.

    `position` is the line of its progress bar.

    Raises
    ------
    papermill.exceptions.PapermillExecutionError
        If a cell fails; the executed notebook holds its traceback.
    """
    build = _build(profile)
    build.mkdir(parents=True, exist_ok=True)
    source, target = build / f".{notebook}.input.ipynb", build / f"{notebook}.ipynb"
    (build / f"{notebook}.digest").unlink(missing_ok=True)
    digest = inputs_digest(notebook, profile)
    jupytext.write(jupytext.read(ROOT / "notebooks" / f"{notebook}.py"), source)
    began = time.monotonic()
    papermill.execute_notebook(
        str(source), str(target), parameters={"profile": profile}, kernel_name="python3", cwd=str(ROOT),
        progress_bar={"desc": notebook, "position": position}, log_output=False,
    )  # fmt: skip
    source.unlink()
    (build / f"{notebook}.digest").write_text(digest)
    return time.monotonic() - began


def _report(notebook, profile, position):
    """Run one notebook: whether it succeeded, and a line about it."""
    try:
        return True, f"{notebook}: {run_notebook(notebook, profile, position):.0f} s"
    except PapermillExecutionError as error:
        return False, f"{notebook}: {error.ename}: {error.evalue} (see build/{_build(profile).name}/{notebook}.ipynb)"


def main(arguments=None):
    """Command line: run the notebooks of a profile, those that are not current."""
    parser = argparse.ArgumentParser(prog="python -m glauber_lib.paper", description=main.__doc__)
    parser.add_argument("--profile", default="mini")
    parser.add_argument("--notebook", action="append", help="default: all four")
    parser.add_argument("--force", action="store_true", help="run also what is current")
    parser.add_argument("--jobs", type=int, help="notebooks at a time; default: one per core, on a GPU one")
    options = parser.parse_args(arguments)
    chosen = options.notebook or list(NOTEBOOKS)
    try:
        for notebook in chosen:
            load_profile(options.profile, notebook)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    due = [n for n in chosen if options.force or not is_current(n, options.profile)]
    for notebook in [n for n in chosen if n not in due]:
        print(f"{notebook}: up to date")
    # on processors alone, two notebooks side by side with half the threads each are faster than one after the other
    jobs = max(1, options.jobs or (1 if torch.cuda.is_available() else min(len(due), joblib.cpu_count())))
    order = sorted(due, key=(NOTEBOOKS if jobs == 1 else LONGEST_FIRST).index)
    ran = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")(
        joblib.delayed(_report)(notebook, options.profile, k % jobs) for k, notebook in enumerate(order)
    )
    failed = False
    try:
        for succeeded, message in ran:
            failed |= not succeeded
            print(message)
    except KeyboardInterrupt:
        print("interrupted; what was measured so far is kept, run the same command to go on")
        return 130
    figures, build = (path.relative_to(ROOT) for path in (_figures(options.profile), _build(options.profile)))
    print(f"figures, tables and results.json: {figures}/   executed notebooks: {build}/")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
