"""Whether a profile can run here, said before it runs: its models, what is to be downloaded, the device, the time.

``python -m glauber_lib.paper.check --profile paper`` (`make check`) downloads nothing and writes nothing.
"""

import argparse
import inspect
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch

from glauber_lib.answers import ask
from glauber_lib.hub import LOCAL, Location, first_line, locate, locate_passages
from glauber_lib.paper.passages import load_passages
from glauber_lib.paper.profiles import declared_cost, load_profile, missing_table, notebooks, show_every_letter, work

ROLES = ("model", "models", "control", "embedder", "topic_scorer", "second_scorer", "sentiment")
PACKAGED = {"minilm", "similarity", "lexical", "vader"}  # embedder and scorers that come with the package
MEASURED = 0.2  # seconds a speed is measured for, at least
WORTH = 250_000  # tokens through the models of a notebook from which its time is said before it runs: about a minute
SITES = 20  # of the states a speed is measured on, where no notebook declares a cost


def named_models(*notebooks: Mapping[str, Any]) -> dict[str, list[str]]:
    """Every model that the settings of notebooks name, with the roles it has."""
    named: dict[str, list[str]] = {}
    for role in ROLES:
        for settings in notebooks:
            names = settings[role] if isinstance(settings[role], list) else [settings[role]]
            for name in names:
                roles = named.setdefault(name, [])
                if role not in roles:
                    roles.append(role)
    return named


def find_model(name: str, roles: Sequence[str], settings: Mapping[str, Any]) -> Location:
    """`hub.locate`, which the embedder and the scorers of the package do not need; with a word about remote code."""
    if name in PACKAGED and not {"model", "models", "control"} & set(roles):
        return Location("embedded", 0, "comes with the package")
    revision = settings["revisions"].get(name)
    place = locate(name, revision)
    runs_code = name in settings["remote_code"] and "embedder" in roles
    origin = "from that folder" if place.state == "directory" else f"of {revision or 'no pinned commit'}"
    code = f"; runs code that comes with it, {origin}" if runs_code else ""
    return replace(place, detail=place.detail + code)


def find_models(named: Mapping[str, Sequence[str]], settings: Mapping[str, Any]) -> dict[str, Location]:
    """`find_model` of each name with its roles, side by side: a network that does not answer is waited for once."""
    with ThreadPoolExecutor(len(named)) as pool:
        return dict(zip(named, pool.map(lambda name: find_model(name, named[name], settings), named), strict=True))


# What there is to do it with ---------------------------------------------------------------------------------------


def batch(n: int) -> int:
    """States of `n` sites that a masked model takes at a time."""
    from glauber_lib.language import LanguageModel  # seconds to import, and a run asks for names alone

    return max(1, inspect.signature(LanguageModel).parameters["batch_tokens"].default // (n + 2))


def describe_device() -> str:
    """The device in a line: its name and memory."""
    if torch.cuda.is_available():
        return f"{torch.cuda.get_device_name()}, {torch.cuda.mem_get_info()[1] / 2**30:.0f} GiB"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"no GPU: {torch.get_num_threads()} threads, {memory:.0f} GiB RAM"


def measure_speed(model: Any, texts: Sequence[str], n: int) -> float:
    """Conditionals per second of a model on states of `n` sites, from the largest batch a short time allows."""
    states = model.states(texts[:8], n=n)
    scores = lambda rows: ask(model, states[rows % len(states)], rows % n).sum().item()  # noqa: E731
    rows = np.arange(8)
    scores(rows)  # the first call is slow
    while True:
        began = time.perf_counter()
        scores(rows)
        took = time.perf_counter() - began
        if took > MEASURED or len(rows) >= batch(n):
            return len(rows) / took
        rows = np.arange(min(4 * len(rows), batch(n)))


def measure_speeds(
    named: Mapping[str, Sequence[str]],
    places: Mapping[str, Location],
    revisions: Mapping[str, str],
    texts: Sequence[str],
    n: int,
) -> tuple[dict[str, float], dict[str, str]]:
    """Speeds of the masked models that are local, and one line for each that does not load."""
    from glauber_lib.language import load_model

    speeds, broken = {}, {}
    for name, roles in named.items():
        if {"model", "models"} & set(roles) and places[name].state in LOCAL:
            try:
                speeds[name] = measure_speed(load_model(name, revision=revisions.get(name)), texts, n)
            except ValueError as error:
                broken[name] = first_line(error)
    return speeds, broken


def estimate_hours(settings: Mapping[str, Any], speeds: Mapping[str, float], n: int) -> float | None:
    """Hours of a notebook, at most: its declared cost at measured speeds; None if the speed of a model is not known.

    Parameters
    ----------
    settings : dict
        Of the notebook.
    speeds : dict of str to float
        Conditionals per second of each model on states of `n` sites. The time of a conditional is taken to grow with
        the number of tokens, those of the frame included.
    n : int
    """
    costs = [cost for cost in declared_cost(dict(settings)) if cost.conditionals]
    if not {cost.model for cost in costs} <= set(speeds):
        return None
    return sum(cost.conditionals / speeds[cost.model] * (cost.sites + 2) / (n + 2) for cost in costs) / 3600


def typical_sites(settings: Iterable[Mapping[str, Any]]) -> int:
    """Length of the states that most conditionals of some notebooks are asked on, as they declare."""
    asked = Counter()
    for cost in (cost for notebook in settings for cost in declared_cost(dict(notebook))):
        asked[cost.sites] += cost.conditionals
    return max(asked, key=lambda sites: asked[sites]) if asked else SITES


def announce(settings: Mapping[str, Mapping[str, Any]]) -> bool:
    """Print how long notebooks will take and on what that rests; whether it was said, as it is of those of minutes.

    Parameters
    ----------
    settings : dict
        Of every notebook that is to run its settings.
    """
    if max((work(dict(mine)) for mine in settings.values()), default=0) < WORTH:
        return False
    named = {cost.model: ["model"] for mine in settings.values() for cost in declared_cost(dict(mine))}
    common, n = next(iter(settings.values())), typical_sites(settings.values())
    places = find_models(named, common)
    speeds, _ = measure_speeds(named, places, common["revisions"], load_passages().text.tolist(), n)
    for notebook, mine in settings.items():
        asked = sum(cost.conditionals for cost in declared_cost(dict(mine)))
        print(f"{notebook}: {_show_time(estimate_hours(mine, speeds, n))} for {asked:,} conditionals, at most")
    said = ", ".join(f"{name} {speed:,.0f}/s" for name, speed in speeds.items())
    print(f"This rests on the declared cost and the speed just now, at n = {n}: {said} ({describe_device()}).")
    print("Cached results are not asked again, and of cold chains far less. Not counted: timed escapes, chains in a")
    print("strip, embeddings, scorers, laws from scores. Notebooks side by side share the processors.")
    return True


# The report --------------------------------------------------------------------------------------------------------


def _show_size(count):
    return "–" if not count else f"{count / 1e6:,.0f} MB" if count < 1e9 else f"{count / 1e9:,.1f} GB"


def _show_time(hours):
    if hours is None:
        return "not known before the models are here"
    return f"{hours * 60:,.0f} min" if hours < 3 else f"{hours:,.0f} h" if hours < 72 else f"{hours / 24:,.0f} days"


def _print_table(rows):
    print(pd.DataFrame(rows).to_markdown(index=False, tablefmt="simple", disable_numparse=True), end="\n\n")


def _notebook_row(notebook, settings, speeds, n):
    costs = declared_cost(settings)
    return {
        "notebook": notebook,
        "conditionals, at most": f"{sum(cost.conditionals for cost in costs):,.0f}",
        "time, at most": _show_time(estimate_hours(settings, speeds, n)),
        "chains at a time": ", ".join(f"{batch(k)} (n = {k})" for k in sorted({cost.sites for cost in costs})),
    }


def report(profile: str, settings: Mapping[str, dict]) -> int:
    """Print what is there for a profile; 0 if it can run, otherwise 1.

    Parameters
    ----------
    profile : str
    settings : dict
        Of every notebook its settings.
    """
    common, passages = next(iter(settings.values())), load_passages()  # revisions are the same for all notebooks
    named = named_models(*settings.values())
    places = find_models(named, common)
    for texts in {s["passages"]: None for s in settings.values()}:
        named[texts], places[texts] = ["passages"], locate_passages(texts, common["revisions"].get(texts))
    n = typical_sites(settings.values())
    speeds, broken = measure_speeds(named, places, common["revisions"], passages.text.tolist(), n)
    _print_table(
        {
            "model or data": name, "used as": ", ".join(named[name]), "state": place.state,
            "download": _show_size(place.bytes),
            f"conditionals/s, n = {n}": f"{speeds[name]:,.0f}" if name in speeds else "–",
            "": broken.get(name, place.detail),
        }
        for name, place in places.items()
    )  # fmt: skip
    _print_table(_notebook_row(notebook, mine, speeds, n) for notebook, mine in settings.items())
    print("At most: as if every step asked a model, at the speed measured just now. The engine asks less, for cold")
    print("chains far less. Not counted: timed escapes, embeddings, scorers. Chains at a time: in one forward pass.")
    print(f"device: {describe_device()}")
    absent = [name for name, place in places.items() if not place.found or name in broken]
    total = sum(place.bytes for place in places.values())
    if absent:
        print(f"{profile} cannot run here: {len(absent)} of {len(named)} not to be had: {', '.join(absent)}")
    else:
        download = f"after a download of {_show_size(total)}" if total else "nothing to download"
        print(f"{profile} can run here, {download}")
    return 1 if absent else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line: whether a profile can run here."""
    parser = argparse.ArgumentParser(prog="python -m glauber_lib.paper.check", description=main.__doc__)
    parser.add_argument("--profile", default="mini")
    profile = parser.parse_args(arguments).profile
    try:
        missing = {notebook: missing_table(profile, notebook) for notebook in notebooks()}
        settings = {notebook: load_profile(profile, notebook) for notebook in notebooks() if not missing[notebook]}
        for mine in settings.values():
            declared_cost(mine)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    for notebook, reason in missing.items():
        if reason:
            print(f"{notebook}: left out, {reason}")
    return report(profile, settings)


if __name__ == "__main__":
    show_every_letter()
    sys.exit(main())
