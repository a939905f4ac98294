"""Whether a profile can run here, said before it runs: its models, what is to be downloaded, the device, the time.

``python -m glauber_lib.check --profile paper`` (`make check`) downloads nothing and writes nothing.
"""

import argparse
import inspect
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch

from glauber_lib.hub import LOCAL, Location, first_line, locate, locate_passages
from glauber_lib.language import _LanguageModel, load_model
from glauber_lib.paper import NOTEBOOKS, load_passages, load_profile

ROLES = ("model", "models", "control", "embedder", "topic_scorer", "second_scorer", "sentiment")
PACKAGED = {"minilm", "similarity", "lexical", "vader"}  # embedder and scorers that come with the package
BATCH_TOKENS = inspect.signature(_LanguageModel).parameters["batch_tokens"].default
MEASURED = 0.2  # seconds a speed is measured for, at least


@dataclass(frozen=True)
class Asked:
    """So many conditionals of a model on states of `n` sites."""

    model: str
    n: int
    count: float


def named_models(*notebooks):
    """Every model that the settings of notebooks name, with the roles it has: dict of str to list of str."""
    named = {}
    for role in ROLES:
        for settings in notebooks:
            names = settings[role] if isinstance(settings[role], list) else [settings[role]]
            for name in names:
                roles = named.setdefault(name, [])
                if role not in roles:
                    roles.append(role)
    return named


def find_model(name, roles, settings):
    """`hub.locate`, which the embedder and the scorers of the package do not need; with a word about remote code."""
    if name in PACKAGED and not {"model", "models", "control"} & set(roles):
        return Location("embedded", 0, "comes with the package")
    revision = settings["revisions"].get(name)
    place = locate(name, revision)
    runs_code = name in settings["remote_code"] and "embedder" in roles
    origin = "from that folder" if place.state == "directory" else f"of {revision or 'no pinned commit'}"
    code = f"; runs code that comes with it, {origin}" if runs_code else ""
    return replace(place, detail=place.detail + code)


# What a profile asks for -------------------------------------------------------------------------------------------


def conditionals(notebook, settings):
    r"""How many conditionals a notebook asks for, about: what `estimate` multiplies by the speed.

    An upper estimate, as if every step of every chain asked once: the engine asks for no conditional twice and for
    none while a chain stays where it is, pairs that met go on as one, and results may be cached. With C contexts, n
    sites and R replacements,

    - a rectangle asks for 2 to be drawn and 4 to be measured, of which the noise floor repeats 4 in both precisions;
    - influence for :math:`C n [1 + (n - 1)(R + 1)]`, a round of the search for :math:`8 [1 + 2 (n - 1)]`;
    - chains for one per step, pairs for two (and as many pairs from equal states as there are pairs);
    - drift and gaps for n per state, the laboratory for :math:`n |V|^{n-1}`.

    Not in it: the timed escapes of section 5, whose budgets are of up to :math:`10^{11}` steps, most in few states
    (n conditionals per state are counted), the causal control, the embedder and the scorers.

    Returns
    -------
    list of Asked
    """
    count = {
        "01_incompatibility": _ask_rectangles, "02_bounds": _ask_bounds, "03_crossover": _ask_crossover,
        "04_basins": _ask_basins,
    }[notebook]  # fmt: skip
    return count(settings)


def _influence(contexts, n, replacements):
    return contexts * n * (1 + (n - 1) * (replacements + 1))


def _laboratory(s):
    return len(s["lab_sites"]) * len(s["lab_words"]) ** (len(s["lab_sites"]) - 1)


def _ask_rectangles(s):
    each = 6 * s["rectangles"] + 8 * s["noise_rectangles"]
    warmer = 6 * s["temperature_rectangles"] * len(s["temperatures"])
    names = dict.fromkeys([*s["models"], s["model"]])
    return [Asked(name, s["n_tokens"], each + warmer * (name == s["model"])) for name in names]


def _ask_bounds(s):
    n, size = s["n_tokens"], s["drift_sites"]
    influence = 2 * _influence(s["contexts"], n, s["replacements"]) + s["contexts"] * s["context_steps"]
    search = 2 * s["search_rounds"] * 8 * (1 + 2 * (n - 1))
    traps = s["trap_chains"] * (s["trap_steps"] + s["basin_states"] * n)
    traps += s["trap_states"] * len(s["trap_temperatures"]) * 3 * n
    marks = 20  # scanned besides the frequent tokens
    scan = (s["scan_frequent"] + marks) * s["scan_states"] * len(s["scan_counts"]) * size
    strip = (s["strip_tokens"] + 1) * s["strip_states"] * len(s["strip_counts"]) * size
    return [
        Asked(s["model"], n, influence + search + traps + _laboratory(s)),
        Asked(s["model"], size, scan + strip + 2 * s["drift_states"] * size),
    ]


def _ask_crossover(s):
    drift = [(n, s["trials"] * s["drift_steps"]) for n in s["drift_lengths"]]
    pairs = 2 * s["coupling_pairs"] * s["coupling_steps"] * (len(s["coupling_temperatures"]) + 1)
    threshold = lambda n: _influence(s["threshold_contexts"], n, s["threshold_replacements"])  # noqa: E731
    coupling = [(n, pairs + threshold(n)) for n in s["coupling_lengths"]]
    length, chains = s["convergence_length"], s["convergence_chains"] * len(s["convergence_temperatures"])
    draws = 1 + s["convergence_steps"] // 2 // s["convergence_every"]
    convergence = [(length, chains * (s["convergence_steps"] + draws * length))]
    laboratory = [(len(s["lab_template"].split()), _laboratory(s))]
    return [Asked(s["model"], n, count) for n, count in [*drift, *coupling, *convergence, *laboratory]]


def _ask_basins(s):
    n = s["n_tokens"]
    topics = s["seeds"] * len(s["topics"]) * s["steps"]
    own = s["trap_chains"] * s["trap_steps"]
    own += s["regime_passages"] * len(s["regime_temperatures"]) * s["regime_steps"]
    own += (len(s["prefixes"]) + 1) * s["prefix_chains"] * s["prefix_steps"]
    names = dict.fromkeys([s["model"], *s["models"]])
    return [Asked(name, n, topics + own * (name == s["model"])) for name in names]


def lengths(settings):
    """Lengths of states in a profile's notebooks: dict of notebook to sorted list."""
    return {k: sorted({asked.n for asked in conditionals(k, settings[k])}) for k in NOTEBOOKS}


# What there is to do it with ---------------------------------------------------------------------------------------


def batch(n):
    """States of `n` sites that a masked model takes at a time."""
    return max(1, BATCH_TOKENS // (n + 2))


def describe_device():
    """The device in a line: its name and memory."""
    if torch.cuda.is_available():
        return f"{torch.cuda.get_device_name()}, {torch.cuda.mem_get_info()[1] / 2**30:.0f} GiB"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"no GPU: {torch.get_num_threads()} threads, {memory:.0f} GiB RAM"


def measure_speed(model, texts, n):
    """Conditionals per second of a model on states of `n` sites, from the largest batch a short time allows."""
    states = model.states(texts[:8], n=n)
    scores = lambda rows: model.scores(states[rows % len(states)], rows % n).sum().item()  # noqa: E731
    rows = np.arange(8)
    scores(rows)  # the first call is slow
    while True:
        began = time.perf_counter()
        scores(rows)
        took = time.perf_counter() - began
        if took > MEASURED or len(rows) >= batch(n):
            return len(rows) / took
        rows = np.arange(min(4 * len(rows), batch(n)))


def estimate(notebook, settings, speeds, n):
    """Hours of a notebook at measured `speeds` on states of `n` sites (a dict); None if one is not known.

    The time of a conditional is taken to grow with the number of tokens, those of the frame included.
    """
    asked = conditionals(notebook, settings)
    if not {a.model for a in asked} <= set(speeds):
        return None
    return sum(a.count / speeds[a.model] * (a.n + 2) / (n + 2) for a in asked) / 3600


# The report --------------------------------------------------------------------------------------------------------


def _size(count):
    return "–" if not count else f"{count / 1e6:,.0f} MB" if count < 1e9 else f"{count / 1e9:,.1f} GB"


def _time(hours):
    if hours is None:
        return "not known before the models are here"
    return f"{hours * 60:,.0f} min" if hours < 3 else f"{hours:,.0f} h" if hours < 72 else f"{hours / 24:,.0f} days"


def _show(rows):
    print(pd.DataFrame(rows).to_markdown(index=False, tablefmt="simple", disable_numparse=True), end="\n\n")


def measure_speeds(named, places, revisions, texts, n):
    """Speeds of the masked models that are local, and one line for each that does not load."""
    speeds, broken = {}, {}
    for name, roles in named.items():
        if {"model", "models"} & set(roles) and places[name].state in LOCAL:
            try:
                speeds[name] = measure_speed(load_model(name, revision=revisions.get(name)), texts, n)
            except ValueError as error:
                broken[name] = first_line(error)
    return speeds, broken


def report(profile, settings):
    """Print what is there for a profile; 0 if it can run, otherwise 1.

    Parameters
    ----------
    profile : str
    settings : dict
        Of every notebook its settings.
    """
    common, passages = settings[NOTEBOOKS[0]], load_passages()  # revisions are the same for all notebooks
    named = named_models(*settings.values())
    with ThreadPoolExecutor(len(named)) as pool:  # a network that does not answer is waited for once
        places = dict(zip(named, pool.map(lambda name: find_model(name, named[name], common), named), strict=True))
    for texts in {s["passages"]: None for s in settings.values()}:
        named[texts], places[texts] = ["passages"], locate_passages(texts, common["revisions"].get(texts))
    n = settings["04_basins"]["n_tokens"]
    speeds, broken = measure_speeds(named, places, common["revisions"], passages.text, n)
    _show(
        {
            "model or data": name, "used as": ", ".join(named[name]), "state": place.state,
            "download": _size(place.bytes),
            f"conditionals/s, n = {n}": f"{speeds[name]:,.0f}" if name in speeds else "–",
            "": broken.get(name, place.detail),
        }
        for name, place in places.items()
    )  # fmt: skip
    _show(
        {
            "notebook": notebook,
            "conditionals, at most": f"{sum(a.count for a in conditionals(notebook, settings[notebook])):,.0f}",
            "time, at most": _time(estimate(notebook, settings[notebook], speeds, n)),
            "chains at a time": ", ".join(f"{batch(k)} (n = {k})" for k in sizes),
        }
        for notebook, sizes in lengths(settings).items()
    )
    print("At most: as if every step asked a model, at the speed measured just now. The engine asks less, for cold")
    print("chains far less. Not counted: timed escapes, embeddings, scorers. Chains at a time: in one forward pass.")
    print(f"device: {describe_device()}")
    absent = [name for name, place in places.items() if not place.found or name in broken]
    total = sum(place.bytes for place in places.values())
    if absent:
        print(f"{profile} cannot run here: {len(absent)} of {len(named)} not to be had: {', '.join(absent)}")
    else:
        print(f"{profile} can run here{f', after a download of {_size(total)}' if total else ', nothing to download'}")
    return 1 if absent else 0


def main(arguments=None):
    """Command line: whether a profile can run here."""
    parser = argparse.ArgumentParser(prog="python -m glauber_lib.check", description=main.__doc__)
    parser.add_argument("--profile", default="mini")
    profile = parser.parse_args(arguments).profile
    try:
        settings = {notebook: load_profile(profile, notebook) for notebook in NOTEBOOKS}
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    return report(profile, settings)


if __name__ == "__main__":
    sys.exit(main())
