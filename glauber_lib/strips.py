r"""Chains inside a strip of counts: how long they stay, and the states in which they do (paper §5.4).

The states of a basin are those of chains that have not left it. Their law in the long run is the quasi-stationary law
:math:`\nu` of the strip: the left eigenvector of the kernel Q within it, :math:`\nu Q = \rho\, \nu`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike

from glauber_lib.chains import LONGEST, run_chains
from glauber_lib.checks import (
    check_columns,
    check_contexts,
    check_count,
    check_one,
    check_seed,
    check_state,
    check_temperature,
    check_whole,
)
from glauber_lib.checksums import model_checksum, refuse_other_scores
from glauber_lib.drift import birth_death_time, token_drift
from glauber_lib.engine import Conditionals
from glauber_lib.models import ConditionalModel


class _Remembering:
    """A model that remembers its scores from one run to the next."""

    n_tokens: int
    device: torch.device

    def __init__(self, model):
        self.model, self.conditionals = model, Conditionals(model)

    def __getattr__(self, name):
        return getattr(self.model, name)

    def scores(self, states: Any, sites: Any, hidden: Any = None) -> torch.Tensor:
        """See `ConditionalModel.scores`; no other site is hidden in a chain."""
        return self.conditionals.scores(np.asarray(states), np.asarray(sites))


@dataclass(frozen=True)
class StripRun:
    """Chains that are sent back into a strip whenever they leave it, from `run_in_strip`.

    Attributes
    ----------
    first : DataFrame
        Per chain ``exposure`` (steps until it left for the first time, or to the end of the run) and ``left`` (False:
        censored).
    states : ndarray, int64[K, n]
        Visited states of the later half of the epochs, all of them inside.
    chain, steps : ndarray, int64[K]
        The chain of each visit, and the steps that it took.
    floor : int
        That of the strip: the counts in it are those above.
    token : int, optional
    temperature : float, optional
    model, model_checksum : str
        Name and digest of the model, as of a `Trace`. These are unknown of a run that an earlier version made.
    """

    first: pd.DataFrame
    states: np.ndarray
    chain: np.ndarray
    steps: np.ndarray
    floor: int
    token: int | None = None
    temperature: float | None = None
    model: str = ""
    model_checksum: str = ""


def run_in_strip(
    model: ConditionalModel,
    start: ArrayLike,
    token: int,
    floor: int,
    temperature: float,
    *,
    n_chains: int,
    epochs: int,
    n_steps: int,
    max_moves: int | None = None,
    seed: int = 0,
    progress: str | None = None,
) -> StripRun:
    """Independent chains inside the strip of states in which more than `floor` sites hold `token`.

    A chain that leaves stands still until the epoch ends, and begins the next one in a state drawn from its own past
    inside, by the time that it spent there. The law of its visits tends to the quasi-stationary law of the strip
    (Aldous, Flannery & Palacios, 1988), and no chain knows of another one: chains are the units of every interval.

    Parameters
    ----------
    model : ConditionalModel
    start : array_like, int[n]
        A state inside, in which all chains begin.
    token, floor : int
    temperature : float
    n_chains : int
    epochs : int
        At least two; the visits of the earlier half are not kept.
    n_steps, max_moves : int
        Of each epoch, see `run_chains`. Holding times are drawn at once. All epochs have 2**62 steps at most.
    seed : int
    progress : str, optional
        Title of a progress bar.

    Raises
    ------
    ValueError
        If `start` lies outside, for fewer than two epochs or one chain, a token that the model lacks, a floor that no
        count is above, and as from `run_chains`.
    KeyboardInterrupt
        After Ctrl-C, before the budget is used up.
    """
    start, token = check_state(start, model.n_tokens), check_count(token, "token", most=model.n_tokens - 1)
    n_chains, epochs = check_count(n_chains, "n_chains", least=1), check_count(epochs, "epochs", least=2)
    n_steps = check_count(n_steps, "n_steps", most=LONGEST // epochs)
    seed, floor = check_seed(seed), check_count(floor, "floor", most=len(start) - 1)
    if (start == token).sum() <= floor:
        raise ValueError(
            f"need a start above the floor {floor}, got one with the token at {(start == token).sum()} sites"
        )
    outside = lambda states: (states == token).sum(1) <= floor  # noqa: E731
    rng, remembering = np.random.default_rng([seed, 4]), _Remembering(model)
    state, past = np.tile(start, (n_chains, 1)), [[] for _ in range(n_chains)]
    exposure, alive = np.zeros(n_chains, np.int64), np.ones(n_chains, bool)
    for epoch in range(epochs):
        trace = run_chains(
            remembering, state, n_steps=n_steps, temperature=temperature, seed=seed, until=outside, memory=0,
            chains=np.arange(n_chains) + epoch * n_chains, holding="geometric", max_moves=max_moves,
            progress=progress and f"{progress}, {epoch + 1} of {epochs}",
        )  # fmt: skip
        if not trace.complete:
            raise KeyboardInterrupt
        state, left = trace.final.copy(), trace.stopped >= 0
        exposure += np.where(alive, np.where(left, trace.stopped, trace.n_steps), 0)
        alive &= ~left
        for k in range(n_chains):
            states, _, steps = trace.visits(k)
            inside = len(states) - int(left[k])  # the last visit of a chain that left lies outside
            past[k].append((states[:inside], steps[:inside]))
            if left[k]:
                state[k] = _draw_past(past[k], rng)
    later = [(k, *visits) for k, mine in enumerate(past) for visits in mine[epochs // 2 :]]
    chain = np.concatenate([np.full(len(steps), k) for k, _, steps in later])
    states, steps = (np.concatenate([visits[column] for visits in later]) for column in (1, 2))
    return StripRun(
        pd.DataFrame({"exposure": exposure, "left": ~alive}), states, chain, steps, floor, token,
        float(check_temperature(temperature)), getattr(model, "name", ""), model_checksum(model),
    )  # fmt: skip


def _draw_past(past, rng):
    """A state of a chain's past, drawn by the time that the chain spent in it."""
    states, steps = (np.concatenate(column) for column in zip(*past, strict=True))
    return states[_draw_by_time(steps, rng)]


def _draw_by_time(steps, rng):
    """Index of one of some visits, drawn by the steps that they took."""
    passed = steps.cumsum(dtype=float)
    return int(np.searchsorted(passed, rng.random() * passed[-1], side="right"))


def visited_drift(model: ConditionalModel, run: StripRun, token: int, temperature: float) -> pd.DataFrame:
    """Drift of the count of `token` from all states that chains inside a strip visit.

    Parameters
    ----------
    model : ConditionalModel
    run : StripRun
    token : int
    temperature : float
        Those of the run, as the model.

    Returns
    -------
    DataFrame
        Rows of `token_drift`, one for each chain and state that it visited, with the columns ``token``, ``chain`` and
        ``weight``, the steps that the chain spent in the state; ``floor`` and ``sites``, the ends of the strip.
        ``lead`` is nan as there.

    Raises
    ------
    ValueError
        For a `token` or states that the model lacks, a temperature that is not positive and finite, a run in which
        something is masked or no whole number, or one that was made with another token, temperature or model.
    """
    token = check_count(token, "token", most=model.n_tokens - 1)
    for name, made, given in (("token", run.token, token), ("temperature", run.temperature, temperature)):
        if made is not None and made != given:
            raise ValueError(f"the run in the strip was made with {name} {made}, got {given}: give that one")
    refuse_other_scores(model, run, "the run in the strip")
    states, chain = check_contexts(run.states, model.n_tokens), check_whole(run.chain, "chain")
    distinct, place = np.unique(states, axis=0, return_inverse=True)  # cold chains share many states
    weight = check_whole(run.steps, "steps").astype(float)
    visits = pd.DataFrame({"chain": chain, "state": place.ravel(), "weight": weight})
    spent = visits[visits.weight > 0].groupby(["chain", "state"], as_index=False).weight.sum()
    drift = token_drift(model, distinct, token, [temperature]).iloc[spent.state].reset_index(drop=True)
    strip = {"floor": run.floor, "sites": states.shape[1]}
    return drift.assign(token=token, chain=spent.chain, weight=spent.weight, **strip)


def mean_lead(visited: pd.DataFrame) -> pd.Series:
    r"""Logarithm of the mean :math:`p_+` over the mean :math:`p_-` at each count, states weighted by time.

    Parameters
    ----------
    visited : DataFrame
        From `visited_drift`.

    Raises
    ------
    ValueError
        As `escape_by_counts`.
    """
    means = _weighted_means(visited)
    with np.errstate(divide="ignore"):
        return np.log(means.up / means.down)


def escape_by_counts(visited: pd.DataFrame) -> float:
    r"""Mean time from the token at all sites to the floor, by the mean :math:`p_+` and :math:`p_-` of visited states.

    With the means of the quasi-stationary law at each count the flows between counts are those of the chain: the count
    need not be a Markov chain for `birth_death_time` to give the time of a strip that is left rarely.

    Parameters
    ----------
    visited : DataFrame
        From `visited_drift`, with states at every count above ``floor`` up to all ``sites``.

    Returns
    -------
    float
        In steps; nan where a count lacks.

    Raises
    ------
    ValueError
        If `visited` lacks a column, is empty or holds several tokens, temperatures or strips, or a count, probability
        or weight in it is not finite or is negative.
    """
    check_columns(visited, ["floor", "sites"], "visited")
    if not len(visited):
        raise ValueError("visited must hold a state, got none")
    means = _weighted_means(visited)
    if list(means.index) != list(range(int(visited.floor.iloc[0]) + 1, int(visited.sites.iloc[0]) + 1)):
        return np.nan
    return birth_death_time(means.up, means.down)


def _weighted_means(visited):
    columns = ["count", "up", "down", "weight"]
    check_columns(visited, columns, "visited")
    check_one(visited, ["token", "temperature", "floor", "sites"], "visited")
    values = visited[columns].to_numpy(float)
    if bad := (~(np.isfinite(values) & (values >= 0)).all(1)).sum():
        raise ValueError(f"{', '.join(columns)} must be numbers >= 0 in every row, got {bad} of {len(values)} without")
    weighted = visited[["up", "down"]].multiply(visited.weight, axis=0).assign(weight=visited.weight)
    sums = weighted.groupby(visited["count"]).sum()
    return sums[["up", "down"]].div(sums.weight, axis=0)
