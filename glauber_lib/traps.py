r"""Traps: where a chain hardly moves, and what holds it there (paper App. A.1, C)."""

import functools

import numpy as np
import pandas as pd
from sklearn.cluster import AgglomerativeClustering

from glauber_lib.escape import describe_trap
from glauber_lib.instruments import cosine_distance, embed_states
from glauber_lib.stats import _true_runs


def still_runs(vectors, steps, *, window=300, threshold=0.12):
    """Maximal runs of windows in which the embedding hardly moves.

    A window starts at each recorded step and lasts `window` steps; its drift is the mean cosine distance of the
    records in it from its first one.

    Parameters
    ----------
    vectors : ndarray, float[K, d]
        Unit embeddings of one chain at `steps`.
    steps : ndarray, int[K]
        Increasing.
    window : int
        Steps.
    threshold : float
        A window is still if its drift is below.

    Returns
    -------
    list of (int, int)
        First and last step of each run.
    """
    steps = np.asarray(steps)
    starts = [k for k in range(len(steps)) if steps[k] + window <= steps[-1]]
    still = []
    for k in starts:
        end = np.searchsorted(steps, steps[k] + window, side="right")
        still.append(cosine_distance(vectors[k + 1 : end], vectors[k]).mean() < threshold)
    return [(int(steps[a]), int(steps[b - 1] + window)) for a, b in _true_runs(still)]


def occupied_runs(visits, steps, *, window=300, n_states=5, share=0.9):
    """Maximal runs of windows that are spent in few states: what a trap is in state space, without any embedding.

    Parameters
    ----------
    visits : (ndarray, ndarray, ndarray)
        From `Trace.visits`.
    steps : ndarray, int[K]
        A window starts at each of these increasing steps.
    window : int
        Steps.
    n_states : int
        How many states a trap may hop between.
    share : float
        Least share of a window's steps in its `n_states` most occupied states.

    Returns
    -------
    list of (int, int)
        First and last step of each run.
    """
    states, entered, durations = visits
    steps, code = np.asarray(steps), np.unique(states, axis=0, return_inverse=True)[1].ravel()
    starts = steps[steps + window <= steps[-1]]
    held = []
    for first in starts:
        a, b = np.searchsorted(entered, [first, first + window - 1], side="right") - 1
        spent = np.minimum(entered + durations, first + window)[a : b + 1] - np.maximum(entered, first)[a : b + 1]
        per_state = np.bincount(np.unique(code[a : b + 1], return_inverse=True)[1], weights=spent)
        held.append(np.sort(per_state)[-n_states:].sum() >= share * window)
    return [(int(starts[a]), int(starts[b - 1] + window)) for a, b in _true_runs(held)]


def inside_runs(runs, steps):
    """Whether each of `steps` lies in one of the runs (first, last), bool[K]."""
    steps, inside = np.asarray(steps), np.zeros(len(steps), bool)
    for first, last in runs:
        inside |= (steps >= first) & (steps <= last)
    return inside


def template_families(states, *, threshold=0.5):
    """Families of states that share a template: average linkage on the share of sites that differ.

    Parameters
    ----------
    states : array_like, int[K, n]
    threshold : float
        Families that differ at this share of the sites or more stay separate.

    Returns
    -------
    family : ndarray, int64[K]
        Number of each state's family, the largest first.
    templates : list of ndarray, int64[n]
        Of each family the token at each site, -1 where its states differ.
    """
    states = np.asarray(states)
    if len(states) < 2:
        return np.zeros(len(states), int), [row.copy() for row in states]
    apart = (states[:, None] != states).mean(2)
    options = {"n_clusters": None, "metric": "precomputed", "linkage": "average", "distance_threshold": threshold}
    found = AgglomerativeClustering(**options).fit_predict(apart)
    rank = np.argsort(np.argsort(-np.bincount(found), kind="stable"), kind="stable")
    family = rank[found]
    templates = []
    for k in range(family.max() + 1):
        mine = states[family == k]
        templates.append(np.where((mine == mine[0]).all(0), mine[0], -1))
    return family, templates


def modal_state(visits, first, last):
    """The state in which a chain spends most of the steps ``first .. last``, and its share of them.

    Parameters
    ----------
    visits : (ndarray, ndarray, ndarray)
        From `Trace.visits`.
    first, last : int
    """
    states, entered, durations = visits
    a, b = np.searchsorted(entered, [first, last], side="right") - 1
    inside = np.minimum(entered + durations, last)[a : b + 1] - np.maximum(entered, first)[a : b + 1]
    distinct, index = np.unique(states[a : b + 1], axis=0, return_inverse=True)
    spent = np.bincount(index.ravel(), weights=inside)
    return distinct[spent.argmax()], spent.max() / max(1, last - first)


def survey_traps(model, trace, embedder, *, stride=25, window=300, threshold=0.12):
    """Every trap of every chain (paper App. A.1).

    Parameters
    ----------
    model : ConditionalModel
        The language model the trace was run with.
    trace : Trace
    embedder : Embedder
    stride : int
        Steps between the states that are embedded.
    window, threshold
        See `still_runs`.

    Returns
    -------
    DataFrame
        One row per trap, longest first: ``chain, start, duration`` (from the start of the first still window to that
        of the last, plus `stride`; ``censored`` if the last one ends with the budget), ``text`` of the modal state,
        its tokens ``state`` and its ``share`` of the steps, ``mean_gap``, ``min_gap`` (logits), ``type`` (perfect if
        every gap is positive), and for the modal state alone ``escape``, the exact one-step escape probability,
        ``bound``, the paper's bound on it, and ``holding``, the longest single stay in it.
    """
    steps = np.arange(0, trace.n_steps + 1, stride)
    states = trace.states(steps)  # (K, B, n)
    describe = functools.cache(lambda state, temperature: describe_trap(model, state, temperature))
    rows = []
    for chain in range(states.shape[1]):
        vectors, visits = embed_states(model, embedder, states[:, chain]), trace.visits(chain)
        for first, last in still_runs(vectors, steps, window=window, threshold=threshold):
            state, share = modal_state(visits, first, last)
            holding, temperature = int(visits[2][(visits[0] == state).all(1)].max()), trace.temperature[chain]
            rows.append(
                {
                    "chain": chain, "temperature": temperature, "start": first,
                    "duration": last - first - window + stride, "censored": last + stride > trace.n_steps,
                    "text": model.texts(state[None])[0], "state": tuple(state.tolist()), "share": share,
                    **describe(tuple(state.tolist()), temperature), "holding": holding,
                }
            )  # fmt: skip
    columns = ["chain", "temperature", "start", "duration", "censored", "text", "state", "share", "mean_gap",
               "min_gap", "type", "escape", "bound", "holding"]  # fmt: skip
    return pd.DataFrame(rows, columns=columns).sort_values("duration", ascending=False, ignore_index=True)
