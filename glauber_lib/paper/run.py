"""What a notebook needs of the paper: settings, models, passages, cached results, claims, figures and tables."""

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from filelock import FileLock
from matplotlib.figure import Figure

from glauber_lib import language
from glauber_lib.paper import claims, keys, profiles, progress, provenance, tables
from glauber_lib.paper.cache import cached
from glauber_lib.paper.outputs import outputs_digests, outputs_file, page_of, read_facts
from glauber_lib.paper.passages import load_passages, readable_passages
from glauber_lib.plotting import use_style
from glauber_lib.stats import Estimate


@dataclass(frozen=True)
class Instruments:
    """What reads the texts of chains; see `Run.instruments`."""

    embedder: Any
    scorer: Any
    second: Any
    sentiment: Callable
    seeds: pd.DataFrame


class Run:
    """One notebook in one profile.

    Parameters
    ----------
    notebook : str
        A notebook of ``notebooks/``, by its name without ending.
    profile : str
        A table of ``notebooks/profiles.toml``.

    Attributes
    ----------
    settings : dict
        What the profile says for this notebook.
    figures : Path
        Where figures, tables and ``results.json`` go: ``figures/`` for the default profile ``mini``,
        ``figures/desk/`` for ``desk``, ``build/<profile>/figures`` for the others.
    claims : list of dict
        The records of claims so far.
    outputs : list of str
        Names of the files written so far, in `figures`.

    Raises
    ------
    ValueError
        As `profiles.load_profile`.
    """

    def __init__(self, notebook: str, profile: str):
        self.notebook, self.profile = notebook, profile
        self.section = profiles.short_name(notebook)
        self.settings = profiles.load_profile(profile, notebook)
        self.seed: int = self.settings["seed"]
        self.figures = profiles.figures_folder(profile)
        self.figures.mkdir(parents=True, exist_ok=True)
        self.claims: list[dict] = []
        self.outputs: list[str] = []
        claims.read_results(self.figures / "results.json")  # an error here, not after the work
        if self.figures in claims.committed_folders():
            claims.committed_results()
        self._entries = claims.read_claims()
        self._models: dict[str, Any] = {}
        self._options: dict[str, str] = {}
        self._readers: dict[str, Any] = {}
        self._revisions: dict[str, str | None] = {}
        self._digests: dict[str, str | None] = {}
        self._repository = provenance.repository_state()  # of what runs, whatever is checked out at the end
        self._began = time.monotonic()
        progress.follow()
        use_style()

    def __getitem__(self, key: str) -> Any:
        return self.settings[key]

    # What a measurement needs ------------------------------------------------------------------------------------

    def passages(self, *models: Any, n: int = 1) -> pd.DataFrame:
        """The passages of the profile (`load_passages`) that all `models` can read (`readable_passages`).

        How many are left out, and why, is printed.

        Parameters
        ----------
        *models : MaskedLM or CausalLM
        n : int
            Length of the longest states that are taken from the passages, in tokens.

        Raises
        ------
        ValueError
            If there is none.
        """
        revision = self["revisions"].get(self["passages"])
        frame, left_out = readable_passages(
            load_passages(self["passages"], seed=self.seed, revision=revision), models, n
        )
        if left_out:
            print(left_out)
        return frame

    def revision(self, name: str) -> str | None:
        """The revision that the profile pins a model on the hub to, or None; noted for the provenance."""
        self._revisions[name] = self["revisions"].get(name)
        return self._revisions[name]

    def model(self, name: str, **options: Any) -> Any:
        """A language model by name (`language.load_model`), at the profile's revision, loaded once.

        ValueError if it was loaded with other `options`: one name stands for one model in all records.
        """
        if self._options.setdefault(name, asked := json.dumps(keys.describe(options))) != asked:
            raise ValueError(f"model {name!r} is loaded with other options already: load it by language.load_model")
        if name not in self._models:
            self._models[name] = language.load_model(name, revision=self.revision(name), **options)
        return self._models[name]

    def embedder(self) -> Any:
        """The sentence embedder of the profile (`instruments.Embedder`)."""
        from glauber_lib.instruments import Embedder  # loads sentence-transformers, which not every notebook needs

        name = self["embedder"]
        return self._noted(
            name, Embedder(name, revision=self.revision(name), remote_code=self["remote_code"].get(name))
        )

    def _noted(self, name, reader):
        """What was loaded to read texts; noted for the provenance where a network computes it."""
        if hasattr(reader, "computation"):
            self._readers[name] = reader
        return reader

    def instruments(self, passages: pd.DataFrame) -> Instruments:
        """What reads texts: embedder, topic scorers and sentiment, and the seeds that the first scorer chooses.

        Parameters
        ----------
        passages : DataFrame
            As `passages` returns them. `topics` and `seeds` of the settings say which topics the chains start from and
            how many passages of each (`topics.choose_seeds`); a scorer that learns from passages knows none of them.
        """
        from glauber_lib.instruments import load_sentiment, load_topic_scorer
        from glauber_lib.topics import choose_seeds

        embedder = self.embedder()
        load = lambda key, texts: self._noted(  # noqa: E731
            self[key], load_topic_scorer(self[key], embedder, texts, revision=self.revision(self[key]))
        )
        scorer = load("topic_scorer", passages)
        seeds, rest = choose_seeds(passages, self["topics"], self["seeds"], scorer)
        name = self["sentiment"]
        sentiment = self._noted(name, load_sentiment(name, revision=self.revision(name)))
        return Instruments(embedder, scorer, load("second_scorer", rest), sentiment, seeds)

    def cached(self, compute: Callable, *arguments: Any, **options: Any) -> Any:
        """``compute(*arguments, **options)``, or its result from the disk (`cache.cached`).

        Delete ``build/cache`` to start afresh (``make clean-cache``), or set GLAUBER_CACHE=off.
        """
        return cached(profiles.cache_folder(), compute, arguments, options)

    # What a notebook says and leaves -----------------------------------------------------------------------------

    def claim(self, id: str, estimate: Estimate | None, *, than: Any = None, note: str = "") -> None:
        """Record what was measured of a claim of ``notebooks/claims.toml``; printed, and written by `finish`.

        Parameters
        ----------
        id : str
            Id of the entry, or of one of its family: ``"incompatibility/mean-delta/distilbert"``.
        estimate : Estimate or None
            None where the profile lacks what it takes to measure it.
        than : float or (float, float), optional
            What the rule compares with, where that is measured itself and the entry leaves it open.
        note : str
            What a reader of the verdict should know besides; what is lacking, where there is no estimate.

        Raises
        ------
        ValueError
            For a claim of another notebook, without an entry, or recorded already; if the units are not those of the
            entry; if `than` is given twice or not at all.
        """
        if claims.section_of(id) != self.section:
            raise ValueError(f"claim {id!r} of {self.notebook!r} must begin with {self.section + '/'!r}")
        if id in {claim["id"] for claim in self.claims}:
            raise ValueError(f"claim {id!r} recorded twice")
        record = claims.find_entry(self._entries, id).record(id, estimate, than, note)
        self.claims.append(record)
        print(claims.claim_line(record))

    def published(self, id: str) -> Any:
        """The published value of an entry of ``claims.toml``: a number or, for a family, a table of numbers."""
        return claims.find_entry(self._entries, id).published

    @property
    def provenance(self) -> dict:
        """Where the numbers come from (`provenance.describe_run`), with the commit at which the run began.

        It counts as altered, ``dirty``, where the repository has changed since.
        """
        commit, dirty = self._repository
        if provenance.repository_state() != self._repository and commit != provenance.UNKNOWN:
            dirty = True
        found = provenance.describe_run(
            profiles.with_sizes(self.profile), self.seed, self._models, self._revisions, self._readers
        )
        return {**found, "commit": commit, "dirty": dirty}

    @property
    def label(self) -> str:
        """Notebook, profile and seed in a line: the same for the same run, at whatever commit."""
        return f"{self.notebook}, profile {profiles.with_sizes(self.profile)}, seed {self.seed}"

    def save_figure(self, figure: Figure, name: str) -> None:
        """Write ``name.png`` and, where the profile has ``pdf``, ``name.pdf``, with the label in their metadata.

        ValueError for a name with a folder in it: all is written to `figures`.
        """
        self._check_output(name, ".png")
        figure.savefig(self.figures / f"{name}.png", metadata={"Description": self.label})
        self._note(f"{name}.png")
        if not self["pdf"]:
            return
        layout = figure.get_layout_engine()
        with plt.rc_context({"figure.constrained_layout.use": False}):  # the layout of the picture, not found again
            figure.set_layout_engine(None)
            figure.savefig(self.figures / f"{name}.pdf", metadata={"Subject": self.label, "CreationDate": None})
        figure.set_layout_engine(layout)
        self._note(f"{name}.pdf")

    def _check_output(self, name, suffix):
        """Refuse a name for a file elsewhere, as of a model ``org/model``, or what another notebook or the claims have.

        A cell may be run again; two cells that write one file show by the line that is printed.
        """
        if not isinstance(name, str) or not re.fullmatch(r"[^./\\\0][^/\\\0]*", name):
            raise ValueError(f"the name of a figure or table must be without a folder and a dot in front, got {name!r}")
        if name == "claims":
            raise ValueError("claims.md holds the claims: take another name")
        file = name + suffix
        for there in (path for path in self.figures.iterdir() if path.name.lower() == file.lower()):
            if (writer := _writer_of(there)) == self.notebook or writer not in profiles.notebooks():
                continue
            outputs = outputs_file(writer, self.profile)
            if there.name in read_facts(outputs) or not outputs.exists():
                raise ValueError(f"{there.name} is what {writer} wrote: take another name, or delete that file if "
                                 f"{writer} writes it no longer")  # fmt: skip
        if file in self.outputs:
            print(f"{file} was written in this run already: replaced")

    def _note(self, *files):
        self.outputs += [file for file in files if file not in self.outputs]
        self._digests.update({file: keys.files_digest(self.figures / file) for file in files})

    def save_table(self, table: pd.DataFrame, name: str, *, digits: int = 3) -> pd.DataFrame:
        """Write ``name.csv`` (first line: a comment with the label) and ``name.md``; return the table.

        Numbers that are not of an integer type have six digits in the first, `digits` in the second.
        Rows are written without their index; ValueError for one that says something: it has a name, or is not the
        numbers from zero on, in any order. ValueError too for a name with a folder in it, as by `save_figure`.
        """
        self._check_output(name, ".csv")
        whole = pd.api.types.is_integer_dtype(table.index) and sorted(table.index) == list(range(len(table)))
        if any(name is not None for name in table.index.names) or not whole:
            raise ValueError(f"table {name!r} would lose its index {table.index.names}: reset_index() first")
        with (self.figures / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            file.write(f"# {self.label}\n")
            table.to_csv(file, index=False, float_format="%.6g")
        text = f"{tables.markdown(table, digits)}\n\n<!-- {self.label} -->\n"
        (self.figures / f"{name}.md").write_text(text, encoding="utf-8")
        self._note(f"{name}.csv", f"{name}.md")
        return table

    def finish(self) -> None:
        """Write the claims into ``results.json`` and ``claims.md``, where they come from into ``provenance.json``.

        ValueError where ``results.json`` was damaged since the run began: the claims are in the folder of the build.
        """
        build = profiles.build_folder(self.profile)
        build.mkdir(parents=True, exist_ok=True)
        own = build / f"{self.notebook}.claims.json"  # what others write may have been damaged since this run began
        own.write_text(json.dumps(self.claims, indent=1) + "\n", encoding="utf-8")
        with FileLock(profiles.ROOT / "build" / "results.lock"):  # notebooks run side by side
            self._write_results()
            self._write_provenance()
        own.unlink()
        written = {**self._digests, **outputs_digests(self.notebook, self.profile, ["results.json", "claims.md"])}
        outputs_file(self.notebook, self.profile).write_text(json.dumps(written), encoding="utf-8")
        plt.close("all")
        print(f"{len(self.claims)} claims, {len(self.outputs)} files")

    def _write_results(self):
        old = claims.read_results(self.figures / "results.json")
        others = [c for c in old.get("claims", []) if claims.section_of(c["id"]) != self.section]
        checksums = {str(name): model.checksum for name, model in sorted(self._models.items())}
        idle = claims.not_asked(self._entries, self.section, self.claims)
        results = {
            "profile": profiles.with_sizes(self.profile),
            "seeds": dict(sorted({**old.get("seeds", {}), self.section: self.seed}.items())),
            "models": dict(sorted({**old.get("models", {}), self.section: checksums}.items())),
            "claims": sorted(others + self.claims, key=lambda c: c["id"]),
            "not_asked": dict(sorted({**old.get("not_asked", {}), self.section: idle}.items())),
        }  # fmt: skip
        _replace(self.figures / "results.json", json.dumps(results, indent=1) + "\n")
        _replace(self.figures / "claims.md", claims.claims_page(results))
        if self.figures in claims.committed_folders():
            main = profiles.ROOT / "figures"
            _replace(main / "claims.md", page_of(main, results))

    def _write_provenance(self):
        seconds = {"seconds": round(time.monotonic() - self._began, 1)}
        facts = {**read_facts(self.figures / "provenance.json"), self.notebook: {**self.provenance, **seconds}}
        _replace(self.figures / "provenance.json", json.dumps(dict(sorted(facts.items())), indent=1) + "\n")


def _writer_of(path):
    """The notebook that wrote a table or a figure, by the label in it; empty where it has none."""
    try:
        with path.open("rb") as file:  # the label stands at the front; a device may have no end
            content = file.read(4096)
    except OSError:
        return ""
    marks = {".csv": b"# ", ".png": b"Description\0"}  # what stands before the label
    label = content.partition(marks.get(path.suffix, b"\0"))[2][:200].decode("latin-1")
    return label.partition(",")[0]


def _replace(path, text):
    """Write a file whole or not at all."""
    partial = path.with_suffix(".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
