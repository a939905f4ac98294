r"""Escape: how long a chain stays in a state or in a set of states, observed and predicted (paper §5.3, App. A.1)."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from glauber_lib.chains import run_chains
from glauber_lib.checks import check_columns, check_contexts, check_count, check_state
from glauber_lib.models import ConditionalModel
from glauber_lib.stats import poisson_interval


def observed_stays(timed: pd.DataFrame, by: str) -> pd.DataFrame:
    """Observed mean stay in each group of timed chains.

    Parameters
    ----------
    timed : DataFrame
        Per chain ``exposure`` (steps) and ``left``, as from `time_escapes`.
    by : str
        The column that tells the groups apart.

    Returns
    -------
    DataFrame
        One row per group, indexed by `by`: ``observed`` (steps of exposure per exit, so that censored stays count; nan
        where no chain left) with its 95% Poisson interval ``low``, ``high``, of which the upper end is infinite where
        no chain left; ``chains``, and ``left``, how many of them did.

    Raises
    ------
    ValueError
        Unless every exposure is a number of steps, every `left` true or false, and the columns and a row are there.
    """
    check_columns(timed.reset_index(), ["exposure", "left", by], "timed")  # or a level of the index
    if timed.empty:
        raise ValueError("timed must have a row, got none")
    _check_stays(timed)
    timed = timed.assign(exposure=timed.exposure.astype(float))  # sums of long stays are beyond 64 bits
    groups = timed.groupby(by, dropna=False)
    left, exposure = groups.left.sum().astype(int), groups.exposure.sum()
    ends = np.array([poisson_interval(k) for k in left])
    with np.errstate(divide="ignore"):
        low, high = exposure / ends[:, 1], exposure / ends[:, 0]
    columns = {"observed": exposure / left.where(left > 0), "low": low, "high": high, "chains": groups.size()}
    return pd.DataFrame({**columns, "left": left})


def _check_stays(stays):
    """Refuse stays of which the length or the end is not known: sums would leave them out."""
    known = np.isfinite(stays.exposure.to_numpy(float)) & (stays.exposure >= 0) & stays.left.isin([True, False])
    if not known.all():
        raise ValueError(
            f"every stay must have its exposure in steps and left true or false, got {(~known).sum()} of {len(stays)} "
            "without"
        )


# Times to leave a set ------------------------------------------------------------------------------------------------


def time_escapes(
    model: ConditionalModel,
    start: ArrayLike,
    basin: ArrayLike,
    temperature: float,
    *,
    repeats: int,
    n_steps: int,
    seed: int = 0,
    holding: str = "path",
    checkpoint: str | Path | None = None,
) -> pd.DataFrame:
    """Observed times to leave a set of states, of independent chains from one of them.

    Parameters
    ----------
    model : ConditionalModel
    start : array_like, int[n]
    basin : array_like, int[K, n]
        The set; `start` is one of its states.
    temperature : float
    repeats, n_steps : int
        Chains, and the budget of each.
    seed : int
    holding : {"path", "geometric"}
        See `run_chains`. Only ``"path"`` tests a prediction of the holding time of a single state: ``"geometric"``
        draws it from that very prediction.
    checkpoint : str or Path, optional
        See `run_chains`. It goes on for the same `basin` alone.

    Returns
    -------
    DataFrame
        Per chain: ``exposure`` (steps to the exit, or to the end of the budget) and ``left`` (False: censored).

    Raises
    ------
    KeyboardInterrupt
        After Ctrl-C, before the budget is used up. The checkpoint holds what is done.
    ValueError
        As from `run_chains`, for `repeats` below one, and if `start` is no state of the set.
    """
    basin, start = check_contexts(basin, model.n_tokens), check_state(start, model.n_tokens)
    outside = _OutsideBasin(basin)
    if outside(start[None])[0]:
        raise ValueError(f"start must be a state of the basin, got {start.tolist()}")
    options = {"n_steps": n_steps, "seed": seed, "holding": holding, "checkpoint": checkpoint}
    return _time_exits(model, start, outside, repeats, temperature=temperature, **options)


def time_count_escapes(
    model: ConditionalModel,
    start: ArrayLike,
    token: int,
    floor: int,
    temperature: float,
    *,
    repeats: int,
    n_steps: int,
    max_moves: int | None = None,
    seed: int = 0,
    holding: str = "geometric",
    checkpoint: str | Path | None = None,
) -> pd.DataFrame:
    """Observed times until at most `floor` sites hold `token`, of independent chains.

    Parameters
    ----------
    model : ConditionalModel
    start : array_like, int[n]
    token, floor : int
    temperature : float
    repeats, n_steps : int
        Chains, and the budget of each.
    max_moves : int, optional
        See `run_chains`: a second budget, for basins in which chains move without end. The budget that ends first
        censors all chains at the same step.
    seed, holding, checkpoint
        See `time_escapes`. The checkpoint goes on for the same `token` and `floor` alone.

    Returns
    -------
    DataFrame
        As from `time_escapes`.

    Raises
    ------
    KeyboardInterrupt
        After Ctrl-C, as `time_escapes`.
    ValueError
        As from `run_chains`, for `repeats` below one, a `token` that the model lacks, or a `floor` that no count is
        above.
    """
    start, token = check_state(start, model.n_tokens), check_count(token, "token", most=model.n_tokens - 1)
    floor = check_count(floor, "floor", most=len(start) - 1)
    options = {"n_steps": n_steps, "max_moves": max_moves, "seed": seed, "holding": holding, "checkpoint": checkpoint}
    return _time_exits(model, start, _AtMost(token, floor), repeats, temperature=temperature, **options)


@dataclass(frozen=True)
class _OutsideBasin:
    """Whether states int[K, n] are none of the states of ``basin`` int64[., n]; its key binds a checkpoint to them."""

    basin: np.ndarray

    @cached_property
    def members(self):
        return {tuple(state) for state in self.basin.tolist()}

    def __call__(self, states):
        return np.array([tuple(state) not in self.members for state in states.tolist()])

    @property
    def cache_key(self):
        return ["outside", sorted(self.members)]


@dataclass(frozen=True)
class _AtMost:
    """Whether at most ``floor`` sites of states int[K, n] hold ``token``; its key binds a checkpoint to both."""

    token: int
    floor: int

    def __call__(self, states):
        return (states == self.token).sum(1) <= self.floor

    @property
    def cache_key(self):
        return ["at most", self.token, self.floor]


def _time_exits(model, start, until, repeats, **options):
    """Steps until the first state for which ``until`` bool[K] holds, of `repeats` chains."""
    repeats = check_count(repeats, "repeats", least=1)
    trace = run_chains(model, np.tile(start, (repeats, 1)), until=until, **options)
    if not trace.complete:
        raise KeyboardInterrupt
    left = trace.stopped >= 0
    return pd.DataFrame({"exposure": np.where(left, trace.stopped, trace.n_steps), "left": left})
