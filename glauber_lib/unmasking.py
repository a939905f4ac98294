"""Text from masks in a fixed number of parallel rounds: draw all hidden sites, hide the worst again.

A round draws every hidden site by itself given the visible ones, as mask-predict does. After it the least certain sites
are hidden again, fewer from round to round, and on request those that repeat their left neighbour (the refinement of
section 4.2.2 of Li et al., 2024, in small).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from glauber_lib.answers import refuse_unable_to_hide
from glauber_lib.checks import (
    check_chains,
    check_contexts,
    check_count,
    check_seed,
    check_temperature,
    unmasked,
)
from glauber_lib.draws import site_uniforms
from glauber_lib.kernels import draw_tokens
from glauber_lib.models import ConditionalModel

REASONS = ("uncertain", "stutter")


@dataclass(frozen=True)
class Unmasking:
    """Result of `unmask`.

    Attributes
    ----------
    states : ndarray, int64[T, B, n]
        After each of T rounds. Sites that are hidden again keep their tokens here, and nobody reads them.
    hidden : ndarray, bool[T, B, n]
        The sites that each round draws.
    certainty : ndarray, float64[B, n]
        The probability that each token had when it was drawn, one at sites that never were.
    model_calls : int
        Conditionals asked for.
    """

    states: np.ndarray
    hidden: np.ndarray
    certainty: np.ndarray
    model_calls: int


def unmask(
    model: ConditionalModel,
    states: ArrayLike,
    hidden: ArrayLike,
    *,
    rounds: int,
    remask: Sequence[str] = ("uncertain",),
    temperature: float = 1.0,
    seed: int = 0,
    chains: ArrayLike | None = None,
) -> Unmasking:
    """Draw hidden sites in a fixed number of rounds, each time those that were hidden again.

    Parameters
    ----------
    model : ConditionalModel
        One that can hide sites.
    states : array_like, int[B, n]
    hidden : array_like, bool[B, n]
        Sites to draw; their tokens do not matter. The others are never changed.
    rounds : int
        Of m sites, ⌈m (1 - r/T)⌉ are hidden again after round r of T: none after the last.
    remask : sequence of {"uncertain", "stutter"}
        Hide the least certain sites, and those with the token of their left neighbour, these besides the number above.
    temperature : float
    seed : int
        With the chain's number it determines the draws.
    chains : array_like, int[B], optional
        The chains' numbers; default ``0 .. B - 1``.

    Raises
    ------
    ValueError
        For arguments that do not fit each other, a state without a hidden site, an unknown reason in `remask`, none at
        all, or a model that cannot hide sites.
    """
    rounds, seed = check_count(rounds, "rounds", 1), check_seed(seed)
    states, temperature = check_contexts(states, model.n_tokens), float(check_temperature(temperature))
    chains, marked = check_chains(chains, len(states)), unmasked(hidden, "hidden")
    if marked.dtype != bool or marked.shape != states.shape or not marked.any(1).all():
        raise ValueError(f"hidden must be bool{list(states.shape)} with a site in each state, got {marked.dtype}")
    if isinstance(remask, str) or not len(remask) or not set(remask) <= set(REASONS):
        raise ValueError(f"remask must name one or both of {REASONS}, got {remask!r}")
    if marked.sum(1).max() > 1:
        refuse_unable_to_hide(model)
    certainty, calls = np.ones(states.shape), 0
    now, kept, drawn = marked.copy(), [], []
    for r in range(1, rounds + 1):
        rows, sites = np.nonzero(now)
        calls += len(rows)
        uniform = site_uniforms(seed, chains, r - 1, states.shape[1])[rows, sites, 1]
        asked = states[rows], sites, now[rows]
        states[rows, sites], certainty[rows, sites] = draw_tokens(model, asked, temperature, uniform)
        drawn.append(now)
        kept.append(states.copy())
        now = _hidden_again(states, marked, certainty, 1 - r / rounds, remask) if r < rounds else now
        if not now.any():  # nothing to draw: the rounds left change nothing
            drawn += [now] * (rounds - r)
            kept += [states.copy()] * (rounds - r)
            break
    return Unmasking(np.stack(kept), np.stack(drawn), certainty, calls)


def _hidden_again(states, marked, certainty, share, remask):
    """The sites that the next round draws, bool[B, n]."""
    again = np.zeros(states.shape, bool)
    if "uncertain" in remask:
        for row, own in enumerate(marked):
            sites = np.flatnonzero(own)
            count = int(np.ceil(len(sites) * share - 1e-9))
            again[row, sites[np.argsort(certainty[row, sites], kind="stable")[:count]]] = True
    if "stutter" in remask:
        again[:, 1:] |= states[:, 1:] == states[:, :-1]
    return again & marked
