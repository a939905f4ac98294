r"""Escape: how long a chain stays in a state or in a set of states, observed and predicted (paper §5.3, App. A.1)."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike

from glauber_lib.chains import run_chains
from glauber_lib.draws import check_temperature, chunks
from glauber_lib.growth import times_to_leave
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
    """
    groups = timed.groupby(by)
    left, exposure = groups.left.sum().astype(int), groups.exposure.sum()
    ends = np.array([poisson_interval(k) for k in left])
    with np.errstate(divide="ignore"):
        low, high = exposure / ends[:, 1], exposure / ends[:, 0]
    columns = {"observed": exposure / left.where(left > 0), "low": low, "high": high, "chains": groups.size()}
    return pd.DataFrame({**columns, "left": left})


# Times to leave a set ------------------------------------------------------------------------------------------------


def basin_escape_times(model: ConditionalModel, basin: ArrayLike, temperature: float) -> np.ndarray:
    r"""Mean number of steps to leave a set of states, from each of them: :math:`(I - Q) h = 1`.

    Q is the kernel within the set. The conditionals of the set's K states determine it, however large the vocabulary.
    The times are precise however rarely the set is left (`growth.times_to_leave`).

    Parameters
    ----------
    model : ConditionalModel
    basin : array_like, int[K, n]
        Distinct states.
    temperature : float

    Returns
    -------
    ndarray, float64[K]

    Raises
    ------
    ValueError
        For a state that is there twice, or a temperature that is not positive and finite.
    """
    basin, temperature = np.asarray(basin), float(check_temperature(temperature))
    size, n = basin.shape
    if len(np.unique(basin, axis=0)) != size:
        raise ValueError("the states of a basin must be distinct")
    inside, out = np.zeros((size, size)), np.zeros(size)
    for i in range(n):
        others = np.unique(np.delete(basin, i, axis=1), axis=0, return_inverse=True)[1].ravel()
        alike = others[:, None] == others  # states that differ at most at site i
        for part in chunks(np.arange(size), 256):  # |V| float64 per row
            law = (model.scores(basin[part], np.full(len(part), i)).double() / temperature).log_softmax(1)
            tokens = torch.as_tensor(basin[:, i], device=law.device)
            inside[part] += np.where(alike[part], law[:, tokens].exp().cpu().numpy(), 0.0) / n
            member = torch.zeros_like(law, dtype=torch.bool)
            row, column = np.nonzero(alike[part])
            member[row, tokens[column]] = True
            out[part] += law.masked_fill(member, -torch.inf).logsumexp(1).exp().cpu().numpy() / n
    return times_to_leave(inside, out)[0]


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
        See `run_chains`.

    Returns
    -------
    DataFrame
        Per chain: ``exposure`` (steps to the exit, or to the end of the budget) and ``left`` (False: censored).

    Raises
    ------
    KeyboardInterrupt
        After Ctrl-C, before the budget is used up. The checkpoint holds what is done.
    """
    members = {tuple(state) for state in np.asarray(basin).tolist()}
    inside = lambda states: np.array([tuple(state) in members for state in states.tolist()])  # noqa: E731
    options = {"n_steps": n_steps, "seed": seed, "holding": holding, "checkpoint": checkpoint}
    return _time_exits(model, start, inside, repeats, temperature=temperature, **options)


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
        See `time_escapes`.

    Returns
    -------
    DataFrame
        As from `time_escapes`.

    Raises
    ------
    KeyboardInterrupt
        After Ctrl-C, as `time_escapes`.
    """
    inside = lambda states: (states == token).sum(1) > floor  # noqa: E731
    options = {"n_steps": n_steps, "max_moves": max_moves, "seed": seed, "holding": holding, "checkpoint": checkpoint}
    return _time_exits(model, start, inside, repeats, temperature=temperature, **options)


def _time_exits(model, start, inside: Callable[[np.ndarray], np.ndarray], repeats, **options):
    """Steps until the first state for which ``inside`` bool[K] does not hold, of `repeats` chains."""
    trace = run_chains(model, np.tile(start, (repeats, 1)), until=lambda states: ~inside(states), **options)
    if not trace.complete:
        raise KeyboardInterrupt
    left = trace.stopped >= 0
    return pd.DataFrame({"exposure": np.where(left, trace.stopped, trace.n_steps), "left": left})
