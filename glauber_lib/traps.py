r"""Traps: where a chain hardly moves, and what holds it there (paper App. A.1, C)."""

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.cluster import AgglomerativeClustering

from glauber_lib.checks import ABSENT, check_count, check_flags, check_states, check_whole
from glauber_lib.checksums import refuse_other_scores, refuse_other_vocabulary
from glauber_lib.margins import describe_trap
from glauber_lib.readings import TextEmbedder, cosine_distance, embed_states
from glauber_lib.stats import Estimate, bootstrap_estimate, true_runs
from glauber_lib.traces import Trace, refuse_stopped

Span = tuple[int, int]  # first and last step
Visits = tuple[np.ndarray, np.ndarray, np.ndarray]  # states, entered, durations: see `Trace.visits`


def still_runs(vectors: np.ndarray, steps: ArrayLike, *, window: int = 300, threshold: float = 0.12) -> list[Span]:
    """Maximal runs of windows in which the embedding hardly moves.

    A window starts at each recorded step and lasts `window` steps. The drift of a window is the mean cosine distance
    of its records from its first record.

    Parameters
    ----------
    vectors : ndarray, float[K, d]
        Unit embeddings of one chain at `steps`.
    steps : ndarray, int[K]
        Increasing.
    window : int
        Steps in a window.
    threshold : float
        A window is still if its drift is less.

    Returns
    -------
    list of (int, int)
        First and last step of each run; none of a chain that was recorded for less than a window.

    Raises
    ------
    ValueError
        Unless `steps` increase, there is one embedding for each, and every window holds a record after its first: no
        step between two records may be longer than `window`. If `threshold` is nan.
    """
    steps, window = _check_windows(steps, window)
    if np.isnan(threshold):
        raise ValueError("threshold must be a number, got nan: no window would be still")
    if len(vectors) != len(steps):
        raise ValueError(f"need one embedding for each of {len(steps)} steps, got {len(vectors)}")
    starts = [k for k in range(len(steps)) if steps[k] + window <= steps[-1]]
    still = []
    for k in starts:
        end = np.searchsorted(steps, steps[k] + window, side="right")
        still.append(cosine_distance(vectors[k + 1 : end], vectors[k]).mean() < threshold)
    return [(int(steps[a]), int(steps[b - 1] + window)) for a, b in true_runs(still)]


def _check_windows(steps, window):
    """The steps of records, and steps of a window that starts at each of them."""
    steps, window = check_whole(steps, "steps"), min(check_count(window, "window", least=1), 2**62)
    stride = np.diff(steps)
    if steps.ndim != 1 or not steps.size or (stride <= 0).any():
        raise ValueError(f"steps must be an increasing list, got {steps.tolist()}")
    if stride.max(initial=0) > window:
        raise ValueError(
            f"records are {stride.max()} steps apart, a window has {window}: it would hold its first alone"
        )
    return steps, window


def occupied_runs(
    visits: Visits, steps: ArrayLike, *, window: int = 300, n_states: int = 5, share: float = 0.9
) -> list[Span]:
    """Maximal runs of windows that a chain spends in few states: traps in state space, found without an embedding.

    Parameters
    ----------
    visits : (ndarray, ndarray, ndarray)
        From `Trace.visits`.
    steps : ndarray, int[K]
        Increasing. A window starts at each of them.
    window : int
        Steps in a window.
    n_states : int
        How many states a trap may hop between.
    share : float
        Least share of a window's steps in its `n_states` most occupied states, above 0 and at most 1.

    Returns
    -------
    list of (int, int)
        First and last step of each run.

    Raises
    ------
    ValueError
        Unless `steps` increase by at most `window`, `n_states` is one or more, and `share` a share.
    """
    states, entered, durations = visits
    if not 0 < share <= 1:
        raise ValueError(f"share must be above 0 and at most 1, got {share}")
    (steps, window), n_states = _check_windows(steps, window), check_count(n_states, "n_states", least=1)
    code = np.unique(states, axis=0, return_inverse=True)[1].ravel()
    starts, least = (
        steps[steps + window <= steps[-1]],
        math.ceil(share * window * (1 - 1e-12)),
    )  # 0.55 * 100 is above 55
    trapped = []
    for first in starts:
        a, b = np.searchsorted(entered, [first, first + window - 1], side="right") - 1
        spent = np.minimum(entered + durations, first + window)[a : b + 1] - np.maximum(entered, first)[a : b + 1]
        per_state = np.bincount(np.unique(code[a : b + 1], return_inverse=True)[1], weights=spent)
        trapped.append(np.sort(per_state)[-n_states:].sum() >= least)
    return [(int(starts[a]), int(starts[b - 1] + window)) for a, b in true_runs(trapped)]


def inside_runs(runs: Iterable[Span], steps: ArrayLike) -> np.ndarray:
    """Whether each of `steps` lies in one of the runs, their ends included, bool[K]."""
    steps = check_whole(steps, "steps")
    inside = np.zeros(len(steps), bool)
    for first, last in runs:
        inside |= (steps >= first) & (steps <= last)
    return inside


def overlap_excess(still: ArrayLike, occupied: ArrayLike, *, unit: str = "chains") -> Estimate:
    """Looks in both of two kinds of traps over looks in either, less what independence of the two gives.

    The frequencies that independence starts from are computed again in every resample of the chains. The interval is
    nan, nan of one chain, or if all are equal.

    Parameters
    ----------
    still, occupied : array_like, bool[B, K]
        Whether each of B chains is in a trap of either kind at each of K looks.
    unit : str

    Raises
    ------
    ValueError
        Unless both say true or false of the same chains and looks.
    """
    still, occupied = check_flags(still, "still"), check_flags(occupied, "occupied")
    if still.ndim != 2 or still.shape != occupied.shape:
        raise ValueError(f"need the same looks at the same chains, got shapes {still.shape} and {occupied.shape}")
    both, one, other = (still & occupied).mean(1), still.mean(1), occupied.mean(1)

    def excess(both, one, other):
        both, one, other = both.mean(), one.mean(), other.mean()
        chance, tiny = one * other, 1e-12
        return both / max(tiny, one + other - both) - chance / max(tiny, one + other - chance)

    return bootstrap_estimate(both, one, other, statistic=excess, unit=unit)


def template_families(
    states: np.ndarray | Sequence[ArrayLike], *, threshold: float = 0.5
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Families of states that share a template: average linkage on the share of sites that differ.

    A site that one of two states lacks differs; one that both lack does not count.

    Parameters
    ----------
    states : array_like, int[K, n], or a list of K states of any lengths
    threshold : float
        Families that differ at this share of the sites or more stay separate.

    Returns
    -------
    family : ndarray, int64[K]
        Number of each state's family; family 0 is the largest.
    templates : list of ndarray, int64[n]
        One for each family: the token at each site, or -1 if the family's states differ or end there.
    """
    if len(states) == 0:
        return np.zeros(0, int), []
    states = check_states(states, fills=True)
    if len(states) < 2:
        return np.zeros(len(states), int), [row.copy() for row in states]
    there = states != ABSENT
    apart = (states[:, None] != states).sum(2) / (there[:, None] | there).sum(2)
    least = threshold * (1 - 1e-12)  # a mean of shares falls below itself by rounding
    options: Any = {"n_clusters": None, "metric": "precomputed", "linkage": "average", "distance_threshold": least}
    cluster = AgglomerativeClustering(**options).fit_predict(apart)
    rank = np.argsort(np.argsort(-np.bincount(cluster), kind="stable"), kind="stable")
    family = rank[cluster]
    templates = []
    for k in range(family.max() + 1):
        mine = states[family == k]
        templates.append(np.where((mine == mine[0]).all(0), mine[0], -1))
    return family, templates


def modal_state(visits: Visits, first: int, last: int) -> tuple[np.ndarray, float]:
    """The state in which a chain spends most of the steps ``first .. last``, and its share of these steps.

    Parameters
    ----------
    visits : (ndarray, ndarray, ndarray)
        From `Trace.visits`.
    first, last : int

    Raises
    ------
    ValueError
        For steps that the visits do not cover, as those after a chain was stopped, or visits not in whole steps.
    """
    states, entered, durations = visits
    entered, durations = check_whole(entered, "steps of visits"), check_whole(durations, "steps of visits")
    if not 0 <= first <= last <= entered[-1] + durations[-1]:
        raise ValueError(f"the visits cover steps 0..{entered[-1] + durations[-1]}, got {first}..{last}")
    a, b = np.searchsorted(entered, [first, last], side="right") - 1
    inside = np.minimum(entered + durations, last)[a : b + 1] - np.maximum(entered, first)[a : b + 1]
    distinct, index = np.unique(states[a : b + 1], axis=0, return_inverse=True)
    spent = np.bincount(index.ravel(), weights=inside)
    return distinct[spent.argmax()], spent.max() / max(1, last - first)


LOOKED_AT = 2**28  # tokens of all states that a survey holds at once: 2 GiB
COLUMNS = (
    "chain", "temperature", "start", "duration", "censored", "text", "state", "share", "mean_gap", "min_gap", "type",
    "escape", "bound", "holding",
)  # fmt: skip


@dataclass(frozen=True)
class TrapSurvey:
    """Result of `survey_traps`.

    Attributes
    ----------
    traps : DataFrame
        One row per trap, longest first. Of the trap: ``chain``, ``temperature``, ``start`` (step), ``duration`` (steps,
        from the start of the first still window to the start of the last one, plus the stride), ``censored`` (whether
        the last still window ends with the run). Of its modal state: ``text``, ``state`` (its tokens), ``share`` of
        the trap's steps, ``mean_gap`` and ``min_gap`` (logits), ``type`` (perfect if every gap is positive),
        ``escape`` (exact one-step escape probability), ``bound`` (the paper's bound on it), ``holding`` (the chain's
        longest single stay there, steps). Of its family (`template_families` of the modal states): ``family``, its
        number, and ``template``, the token at each site or -1 (`template_families`).
    looks : ndarray, int64[K]
        Steps of the states that were embedded.
    still : ndarray, bool[B, K]
        Whether each chain is in a trap at each look, by its embedding (`still_runs`).
    occupied : ndarray, bool[B, K]
        The same by the states that it occupies (`occupied_runs`), of runs as long.
    windows : ndarray, bool[B, W]
        Whether each window is still, however short its run. Windows begin at the first W looks.
    """

    traps: pd.DataFrame
    looks: np.ndarray
    still: np.ndarray
    occupied: np.ndarray
    windows: np.ndarray

    @property
    def trapped(self) -> np.ndarray:
        """Share of each chain's windows that are still, float64[B]; 0 for a run shorter than a window."""
        return self.windows.sum(1) / max(1, self.windows.shape[1])

    @property
    def families(self) -> pd.DataFrame:
        """One row per family, the largest first: ``template``, and how many ``traps, chains, states, steps`` it has."""
        groups = self.traps.groupby("family")
        return pd.DataFrame(
            {
                "template": groups.template.first(), "traps": groups.size(), "chains": groups.chain.nunique(),
                "states": groups.state.nunique(), "steps": groups.duration.sum(),
            }
        )  # fmt: skip


def survey_traps(
    model: Any,
    trace: Trace,
    embedder: TextEmbedder,
    *,
    stride: int = 25,
    window: int = 300,
    threshold: float = 0.12,
    shortest: int = 150,
) -> TrapSurvey:
    """Every trap of every chain (paper App. A.1).

    Parameters
    ----------
    model : MaskedLM or CausalLM
        The model that the trace was run with.
    trace : Trace
    embedder : TextEmbedder
    stride : int
        Steps between the states that are embedded.
    window, threshold
        See `still_runs`.
    shortest : int
        Least duration of a trap, in steps; the published ones last 150 or more.

    Raises
    ------
    ValueError
        For a `stride` below one or above the window, a `shortest` that is no number of steps, more looks than memory
        holds, chains that were stopped by ``until``, or if the model's tokens are other words than those of the trace
        or its scores are of another model (`checksums.refuse_other_vocabulary`, `refuse_other_scores`).
    """
    window, shortest = check_count(window, "window", least=1), check_count(shortest, "shortest")
    stride = check_count(stride, "stride", least=1, most=window)
    refuse_other_vocabulary(model, trace)
    refuse_other_scores(model, trace, "the trace")
    refuse_stopped(trace)
    _check_looks(trace, stride)
    looks = np.arange(0, trace.n_steps + 1, stride)
    states = trace.states(looks)  # (K, B, n)
    still, occupied = np.zeros((2, states.shape[1], len(looks)), bool)
    windows = np.zeros((len(still), (looks + window <= looks[-1]).sum()), bool)
    lasts = lambda run: run[1] - run[0] - window + stride  # noqa: E731
    enough = lambda runs: [run for run in runs if lasts(run) >= shortest]  # noqa: E731
    describe = functools.cache(lambda state, temperature: describe_trap(model, state, temperature))
    rows = []
    for chain in range(len(still)):
        visits = trace.visits(chain)
        runs = still_runs(embed_states(model, embedder, states[:, chain]), looks, window=window, threshold=threshold)
        windows[chain] = inside_runs([(first, last - window) for first, last in runs], looks[: windows.shape[1]])
        still[chain] = inside_runs(enough(runs), looks)
        occupied[chain] = inside_runs(enough(occupied_runs(visits, looks, window=window)), looks)
        for first, last in enough(runs):
            state, share = modal_state(visits, first, last)
            duration, tokens = lasts((first, last)), tuple(state.tolist())
            rows.append(
                {
                    "chain": chain, "temperature": trace.temperature[chain], "start": first, "duration": duration,
                    "censored": last + stride > looks[-1], "text": model.texts([state])[0], "state": tokens,
                    "share": share, **describe(tokens, trace.temperature[chain]),
                    "holding": int(visits[2][(visits[0] == state).all(1)].max()),
                }
            )  # fmt: skip
    table = pd.DataFrame(rows, columns=list(COLUMNS)).sort_values("duration", ascending=False, ignore_index=True)
    family, templates = template_families(table.state.tolist())
    template = pd.Series([tuple(templates[k].tolist()) for k in family], dtype=object)
    return TrapSurvey(table.assign(family=family, template=template), looks, still, occupied, windows)


def _check_looks(trace, stride):
    """ValueError where the states of all looks are more than `LOOKED_AT` tokens."""
    looks, (size, n) = trace.n_steps // stride + 1, trace.initial.shape
    if looks * size * n > LOOKED_AT:
        least = -(-trace.n_steps * size * n // max(1, LOOKED_AT - size * n))
        raise ValueError(
            f"{looks} looks at {size} chains of {n} tokens are more than the {LOOKED_AT} tokens that a survey holds: "
            f"take a stride of {least} or more, with a window as long, or survey fewer chains or steps"
        )
