"""First passages: the step at which a chain is first at a distance from its start (paper §6.1)."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from glauber_lib.checks import ABSENT, check_count, check_numbers
from glauber_lib.checksums import refuse_other_vocabulary
from glauber_lib.readings import TextEmbedder, cosine_distance, embed_states
from glauber_lib.traces import Trace


def first_passages(
    trace: Trace, distance: Callable[[np.ndarray, np.ndarray], np.ndarray], levels: ArrayLike, *, at_once: int = 4
) -> pd.DataFrame:
    """The step at which each chain is first at a distance of `levels` or more from its start.

    A chain's distance changes only where the chain moves. So the states after its moves are looked at in order, some
    moves of all chains at a time, until a chain has reached the largest level.

    Parameters
    ----------
    trace : Trace
    distance : callable
        ``distance(states, starts)`` float[K] of states int[K, n] from the states int[K, n] that their chains began at.
    levels : array_like, float[L]
    at_once : int
        Moves of a chain looked at together; no result depends on it.

    Returns
    -------
    DataFrame
        One row for each level and chain: ``level, chain, time, reached``. The time is in steps; it is that of the end
        of the run, or at which the chain was stopped, for a chain that did not reach the level.

    Raises
    ------
    ValueError
        If there is no level, one is not positive and finite, or no more than the rounding of the distances, `at_once`
        is no whole number above zero, a distance is nan, or there is not one for each state, or the states of the
        chains have several lengths.
    """
    levels = check_numbers(levels, "levels")
    if levels.ndim != 1 or not levels.size:
        raise ValueError(f"levels must be a list of numbers, got shape {levels.shape}")
    levels = np.sort(levels)
    at_once = check_count(at_once, "at_once", least=1)
    if not ((levels > 0) & np.isfinite(levels)).all():
        raise ValueError(f"levels must be above the distance at the start, zero, got {levels}")
    if (trace.initial == ABSENT).any():
        raise ValueError("the chains must have states of one length, got several: take one length at a time")
    visited = [trace.visits(row)[:2] for row in range(len(trace.initial))]
    time = np.full((len(levels), len(visited)), np.inf)
    waiting, begin = np.arange(len(visited)), 1  # the first visit is the start
    while len(waiting):
        parts = [visited[row][0][begin : begin + at_once] for row in waiting]
        sizes = [len(part) for part in parts]
        waiting = waiting[np.array(sizes) > 0]
        if not len(waiting):
            break
        parts, sizes = [p for p in parts if len(p)], [s for s in sizes if s]
        found = np.asarray(distance(np.concatenate(parts), np.repeat(trace.initial[waiting], sizes, axis=0)))
        if found.shape != (sum(sizes),):
            raise ValueError(f"distances must have shape {(sum(sizes),)}, one for each state, got {found.shape}")
        if np.isnan(found).any():
            raise ValueError(f"distances must be numbers, got nan for {np.isnan(found).sum()} states")
        rounding = 4 * np.finfo(found.dtype if found.dtype.kind == "f" else float).eps
        if levels[0] <= rounding:
            raise ValueError(f"levels must be above the rounding of the distances, {rounding:.2g}, got {levels[0]:g}")
        reached_at = levels - rounding * np.maximum(1.0, levels)  # 1 - 4/5 misses 0.2 by its rounding
        for row, values in zip(waiting, np.split(found, np.cumsum(sizes)[:-1]), strict=True):
            entered = visited[row][1][begin : begin + at_once]
            first = np.where(values >= reached_at[:, None], entered, np.inf).min(1)
            time[:, row] = np.minimum(time[:, row], first)
        waiting, begin = waiting[np.isinf(time[-1, waiting])], begin + at_once
    level, chain = (index.ravel() for index in np.indices(time.shape))
    watched = np.where(trace.stopped >= 0, trace.stopped, trace.n_steps)
    reached, time = np.isfinite(time).ravel(), np.where(np.isfinite(time), time, watched).ravel()
    return pd.DataFrame({"level": levels[level], "chain": chain, "time": time, "reached": reached})


def drift_passages(model: Any, embedder: TextEmbedder, trace: Trace, levels: ArrayLike) -> pd.DataFrame:
    """`first_passages` of the semantic drift, 1 - cos of the embeddings of a chain's text and of its first text.

    ValueError too if the model's tokens are other words than those of the trace (`checksums.refuse_other_vocabulary`).
    """
    refuse_other_vocabulary(model, trace)
    return first_passages(
        trace,
        lambda states, starts: cosine_distance(*(embed_states(model, embedder, s) for s in (states, starts))),
        levels,
    )
