"""Which notebooks there are, what a profile says for each of them, what they cost, and where their outputs go."""

import io
import os
import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]  # of the clone
FIRST_COMPANION = 5  # notebooks with smaller numbers are the paper's sections
DEFAULT = "mini"
COMMITTED = {"mini": "figures", "desk": "figures/desk"}  # profiles whose outputs are part of the repository


# Notebooks ---------------------------------------------------------------------------------------------------------


def is_notebook_name(name: str) -> bool:
    """Whether `name` is that of a notebook: two digits, an underscore and words, such as ``"03_crossover"``."""
    return re.fullmatch(r"\d\d_[\w-]+", name) is not None


def notebooks_folder() -> Path:
    """The folder of the notebooks and of ``profiles.toml``.

    Raises
    ------
    ValueError
        If there is none, as where the package was installed without its repository.
    """
    folder = ROOT / "notebooks"
    if not folder.is_dir():
        raise ValueError(
            f"no folder {str(folder)!r}: a wheel holds no notebooks, run this in a clone of the repository"
        )
    return folder


def notebooks() -> list[str]:
    """Names of the notebooks, in order of their numbers: the files ``NN_*.py`` of `notebooks_folder`.

    Raises
    ------
    ValueError
        If two have the same name but for their numbers: claims are kept by that name.
    """
    names = sorted(path.stem for path in notebooks_folder().glob("*.py") if is_notebook_name(path.stem))
    short = [short_name(name) for name in names]
    if twice := sorted({name for name in short if short.count(name) > 1}):
        raise ValueError(f"notebooks of the same name, whose claims would replace each other: {twice}; rename one")
    return names


def short_name(notebook: str) -> str:
    """A notebook's name without its number, with which the ids of its claims begin."""
    return notebook.split("_", 1)[-1]


def is_companion(notebook: str) -> bool:
    """Whether a notebook is a companion, numbered 05 or higher, and no section of the paper."""
    return int(notebook[:2]) >= FIRST_COMPANION


def sections() -> list[str]:
    """The notebooks that are sections of the paper."""
    return [notebook for notebook in notebooks() if not is_companion(notebook)]


def companions() -> list[str]:
    """The notebooks that are companions."""
    return [notebook for notebook in notebooks() if is_companion(notebook)]


# Profiles ----------------------------------------------------------------------------------------------------------


def read_profiles() -> dict:
    """The tables of ``notebooks/profiles.toml``."""
    return tomllib.loads((notebooks_folder() / "profiles.toml").read_text(encoding="utf-8"))


def sizes_profile(profile: str) -> str:
    """The profile whose sizes count: `profile`, or the one that GLAUBER_SIZES names."""
    return os.environ.get("GLAUBER_SIZES") or profile


def one_model() -> str:
    """The model that GLAUBER_MODEL names, which takes the place of all that a profile compares; otherwise empty."""
    return os.environ.get("GLAUBER_MODEL") or ""


def with_sizes(profile: str) -> str:
    """How a profile is called in what a notebook writes, with the profile of its sizes and the model, where set."""
    said = profile if (sizes := sizes_profile(profile)) == profile else f"{profile} with the sizes of {sizes}"
    return f"{said} for the model {model}" if (model := one_model()) else said


def _check_profile(profile, profiles, where=""):
    if profile not in profiles:
        raise ValueError(f"unknown profile {profile!r}{where}, choose one of {sorted(profiles)}")


def missing_table(profile: str, notebook: str) -> str | None:
    """What to add to ``profiles.toml`` before a notebook can run in a profile; None if nothing.

    Raises
    ------
    ValueError
        For an unknown profile.
    """
    profiles, sizes = read_profiles(), sizes_profile(profile)
    _check_profile(profile, profiles)
    _check_profile(sizes, profiles, " in GLAUBER_SIZES")
    if notebook in profiles[sizes]:
        return None
    return f"no table [{sizes}.{notebook}] with its sizes and its cost in notebooks/profiles.toml"


def load_profile(profile: str, notebook: str) -> dict:
    """Settings of one notebook in one profile: the profile's own plus its table for the notebook.

    The table holds the notebook's sizes and its cost (`declared_cost`). It may also name another value of what the
    profile says for all notebooks, such as ``model``, ``models`` or ``control``.

    The environment variable GLAUBER_SIZES names another profile to take the notebook's sizes and cost from: with
    ``GLAUBER_SIZES=smoke`` the models and data of ``paper`` go through everything in minutes. Models are no sizes:
    those that the other profile's table names are left out. GLAUBER_MODEL names the one model of all notebooks, in the
    place of ``model`` and ``models``; the control stays.

    Raises
    ------
    ValueError
        For an unknown profile or notebook, or one without a table in the profile; for a key that the default profile
        has not, or a name in ``revisions`` or ``remote_code`` that nothing in the profile has: nothing would read it.
    """
    missing, available, profiles = missing_table(profile, notebook), notebooks(), read_profiles()
    if notebook not in available:
        raise ValueError(f"unknown notebook {notebook!r}, choose one of {available}")
    if missing:
        raise ValueError(f"notebook {notebook!r} cannot run in the profile {profile!r}: {missing}: add it")
    common = {key: value for key, value in profiles[profile].items() if not is_notebook_name(key)}
    table = profiles[sizes_profile(profile)][notebook]
    _check_keys(profile, notebook, profiles, {**profiles[profile].get(notebook, {}), **table})
    sizes = {key: value for key, value in table.items() if key not in common}
    own = {key: value for key, value in profiles[profile].get(notebook, {}).items() if key in common}
    model = one_model()
    return {**common, **sizes, **own, **({"model": model, "models": [model]} if model else {})}


def _check_keys(profile, notebook, profiles, table):
    """Refuse keys and names that nothing reads, such as misspelt ones."""
    default, own = profiles[DEFAULT], profiles[profile]
    tables = {key: value for key, value in own.items() if is_notebook_name(key)}
    known = {*default, *default.get(notebook, table), *tables, "cost"}
    if unknown := [key for key in {**own, **table} if key not in known]:
        raise ValueError(f"profile {profile!r} of {notebook!r} has keys that nothing reads: {unknown}")
    named = {str(name) for part in (own, *tables.values()) for value in part.values()
             for name in (value if isinstance(value, list) else [value])}  # fmt: skip
    pinned, coded = ({**own, **table}[key] for key in ("revisions", "remote_code"))
    for key, names, other in (("revisions", pinned, coded), ("remote_code", coded, pinned)):  # one may wait for its use
        if unknown := [name for name in names if name not in named and name not in other]:
            raise ValueError(f"{key} of profile {profile!r} holds names that nothing else in it has: {unknown}")


# Costs -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    """Conditionals, at most, that a notebook asks of a model on states of one length.

    Attributes
    ----------
    model : str
        Name of the model.
    sites : int
        Length of the states.
    conditionals : int
    """

    model: str
    sites: int
    conditionals: int


def declared_cost(settings: dict) -> list[Cost]:
    """What a notebook costs, as its table declares: ``cost = [[role, sites, conditionals], ...]``.

    A role is a key of the settings that names a model. ``"models"`` stands for each of those compared and for the
    chain's own model, where that is none of them.

    Raises
    ------
    ValueError
        If the settings declare no cost, or for an unknown role.
    """
    if "cost" not in settings:
        raise ValueError("a notebook's table declares no cost: add cost = [[role, sites, conditionals], ...]")
    costs = []
    for role, sites, conditionals in settings["cost"]:
        if role not in settings:
            raise ValueError(f"cost of an unknown role {role!r}: expected a key of the profile that names a model")
        named = [*settings["models"], settings["model"]] if role == "models" else [settings[role]]
        costs += [Cost(name, sites, conditionals) for name in dict.fromkeys(named)]
    return costs


def work(settings: dict) -> int:
    """Tokens, frames included, that go through the models of a notebook at most: by this notebooks are ordered."""
    return sum(cost.conditionals * (cost.sites + 2) for cost in declared_cost(settings))


# Output ------------------------------------------------------------------------------------------------------------


def show_every_letter() -> None:
    """Let a command show by its code what the terminal's encoding lacks, such as τ where there is no locale."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


# Folders -----------------------------------------------------------------------------------------------------------


def build_folder(profile: str) -> Path:
    """Folder of what a run of `profile` builds: one of its own for other sizes, and for a model that is named."""
    sizes, model = sizes_profile(profile), re.sub(r"[^\w.-]+", "-", one_model()).strip("-.")
    name = profile if sizes == profile else f"{profile}-{sizes}"
    return ROOT / "build" / (f"{name}-of-{model}" if model else name)


def figures_folder(profile: str) -> Path:
    """Folder of figures, tables and ``results.json``: in ``figures/`` for one of `COMMITTED` with its own sizes."""
    build = build_folder(profile)
    return ROOT / COMMITTED[build.name] if build.name in COMMITTED else build / "figures"


def cache_folder() -> Path:
    """Folder of the cached results of all notebooks and profiles."""
    return ROOT / "build" / "cache"
