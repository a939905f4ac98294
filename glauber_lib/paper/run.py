"""What a notebook needs of the paper: settings, models, passages, cached results, claims, figures and tables."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from filelock import FileLock
from matplotlib.figure import Figure

from glauber_lib import language
from glauber_lib.paper import profiles, provenance
from glauber_lib.paper.cache import cached
from glauber_lib.paper.claims import claim_line, make_claim
from glauber_lib.paper.passages import load_passages
from glauber_lib.plotting import use_style


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
        ``build/<profile>/figures`` for the others.
    claims : list of dict
        The claims recorded so far.
    outputs : list of str
        Names of the files written so far, in `figures`.

    Raises
    ------
    ValueError
        As `profiles.load_profile`.
    """

    def __init__(self, notebook: str, profile: str):
        self.notebook, self.profile = notebook, profile
        self.section = notebook.split("_", 1)[-1]
        self.settings = profiles.load_profile(profile, notebook)
        self.seed: int = self.settings["seed"]
        self.figures = profiles.figures_folder(profile)
        self.figures.mkdir(parents=True, exist_ok=True)
        self.claims: list[dict] = []
        self.outputs: list[str] = []
        self._models: dict[str, Any] = {}
        self._revisions: dict[str, str | None] = {}
        self._began = time.monotonic()
        use_style()

    def __getitem__(self, key: str) -> Any:
        return self.settings[key]

    # What a measurement needs ------------------------------------------------------------------------------------

    def passages(self, *models: Any) -> pd.DataFrame:
        """The passages of the profile (`load_passages`) that all `models` can read: without unknown tokens.

        Raises
        ------
        ValueError
            If there is none.
        """
        revision = self["revisions"].get(self["passages"])
        frame = load_passages(self["passages"], seed=self.seed, revision=revision)
        readable = [all(model.reads(text) for model in models) for text in frame.text]
        if not any(readable):
            raise ValueError(f"none of the {len(frame)} passages is without tokens outside a model's vocabulary")
        return frame.loc[readable].reset_index(drop=True)

    def revision(self, name: str) -> str | None:
        """The revision that the profile pins a model on the hub to, or None; noted for the provenance."""
        self._revisions[name] = self["revisions"].get(name)
        return self._revisions[name]

    def model(self, name: str, **options: Any) -> Any:
        """A language model by name (`language.load_model`), at the profile's revision, loaded once."""
        if name not in self._models:
            self._models[name] = language.load_model(name, revision=self.revision(name), **options)
        return self._models[name]

    def cached(self, compute: Callable, *arguments: Any, **options: Any) -> Any:
        """``compute(*arguments, **options)``, or its result from the disk (`cache.cached`).

        Delete ``build/cache`` to start afresh (``make clean-cache``), or set GLAUBER_CACHE=off.
        """
        return cached(profiles.cache_folder(), compute, arguments, options)

    # What a notebook says and leaves -----------------------------------------------------------------------------

    def claim(
        self,
        id: str,
        statement: str,
        measured: Any,
        *,
        published: float | None = None,
        interval: Any = None,
        kind: str = "estimate",
        n: Any = None,
        verdict: bool | np.bool_ | str,
        why: str = "",
    ) -> None:
        """Record one claim of the paper with what was measured here; printed, and written by `finish`.

        Parameters
        ----------
        id : str
            Stable name; the notebook's short name is put before it.
        statement : str
            The claim in a sentence.
        measured : float, None or Estimate
            An estimate (`stats.Estimate`) brings `interval`, `kind` and `n`, which are then not given, and a unit.
        published : float or None
        interval : (float, float), optional
            95% interval of `measured`.
        kind : str
            One of `claims.KINDS`: what `measured` is.
        n : int, optional
            Sample size.
        verdict : bool or str
            True for 'holds', False for 'does not hold', or one of `claims.VERDICTS`.
        why : str
            How the verdict follows.

        Raises
        ------
        ValueError
            For an unknown kind or verdict, or a claim that is recorded already.
        """
        record = make_claim(
            f"{self.section}/{id}", statement, measured, published=published, interval=interval, kind=kind, n=n,
            verdict=verdict, why=why,
        )  # fmt: skip
        if record["id"] in {c["id"] for c in self.claims}:
            raise ValueError(f"claim {record['id']!r} recorded twice")
        self.claims.append(record)
        print(claim_line(record))

    @property
    def provenance(self) -> dict:
        """What every output carries (`provenance.describe_run`)."""
        return provenance.describe_run(self.profile, self.seed, self._models, self._revisions)

    @property
    def label(self) -> str:
        """Notebook, profile, seed and commit in a line."""
        return f"{self.notebook}, profile {self.profile}, seed {self.seed}, commit {provenance.commit()}"

    def save_figure(self, figure: Figure, name: str) -> None:
        """Write ``name.png`` and ``name.pdf`` with their provenance in the metadata."""
        label = self.label
        for suffix, metadata in (
            (".png", {"Description": label}),
            (".pdf", {"Subject": label, "CreationDate": None}),
        ):
            figure.savefig(self.figures / (name + suffix), metadata=metadata)
            self.outputs.append(name + suffix)

    def save_table(self, table: pd.DataFrame, name: str, *, digits: int = 3) -> pd.DataFrame:
        """Write ``name.csv`` (first line: a comment with the provenance) and ``name.md``; return the table."""
        label = self.label
        with (self.figures / f"{name}.csv").open("w") as file:
            file.write(f"# {label}\n")
            table.to_csv(file, index=False, float_format="%.6g")
        shown = table.astype(object).where(table.notna(), None)
        text = shown.to_markdown(index=False, floatfmt=f".{digits}g", missingval="–")
        (self.figures / f"{name}.md").write_text(f"{text}\n\n<!-- {label} -->\n")
        self.outputs += [f"{name}.csv", f"{name}.md"]
        return table

    def finish(self) -> None:
        """Put this notebook's claims and provenance into ``results.json``, in place of its earlier ones."""
        build = profiles.build_folder(self.profile)
        build.mkdir(parents=True, exist_ok=True)
        with FileLock(profiles.ROOT / "build" / "results.lock"):  # notebooks run side by side
            self._write_results(self.figures / "results.json")
        outputs_file(self.notebook, self.profile).write_text(json.dumps([*self.outputs, "results.json"]))
        plt.close("all")
        print(f"{len(self.claims)} claims, {len(self.outputs)} files")

    def _write_results(self, path: Path) -> None:
        old = json.loads(path.read_text()) if path.exists() else {"provenance": {}, "claims": []}
        facts, before = self.provenance, old["provenance"]
        seconds = {**before.get("seconds", {}), self.notebook: round(time.monotonic() - self._began, 1)}
        mine = {key: facts[key] for key in ("commit", "dirty", "device", "models", "hub_commits")}
        facts["notebooks"] = dict(sorted({**before.get("notebooks", {}), self.notebook: mine}.items()))
        for key in ("models", "hub_commits"):  # the latter is not in what earlier versions wrote
            facts[key] = {k: v for n in facts["notebooks"].values() for k, v in n.get(key, {}).items()}
        others = [c for c in old["claims"] if not c["id"].startswith(self.section + "/")]
        results = {
            "provenance": {**facts, "seconds": dict(sorted(seconds.items()))},
            "claims": sorted(others + self.claims, key=lambda c: c["id"]),
        }
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(results, indent=1) + "\n")
        partial.replace(path)


def outputs_file(notebook: str, profile: str) -> Path:
    """The file with the names of all that a notebook wrote in a profile."""
    return profiles.build_folder(profile) / f"{notebook}.outputs.json"
