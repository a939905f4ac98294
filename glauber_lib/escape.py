r"""Escape: how long a chain stays in a state or in a set of states, observed and predicted (paper §5.3, App. A.1)."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import statsmodels.api as sm
from numpy.typing import ArrayLike

from glauber_lib.chains import run_chains
from glauber_lib.checks import check_contexts, check_count, check_state
from glauber_lib.margins import basin_escape_times, escape_probability
from glauber_lib.models import ConditionalModel
from glauber_lib.stats import poisson_interval
from glauber_lib.traces import Trace

# Stays of a trace ----------------------------------------------------------------------------------------------------


def longest_stays(trace: Trace, n_states: int) -> pd.DataFrame:
    """The distinct states in which each chain stays longest.

    Parameters
    ----------
    trace : Trace
    n_states : int
        States per chain, at most.

    Returns
    -------
    DataFrame
        ``chain``, ``temperature``, ``state`` (tuple) and ``stay``, the longest one in steps. These stays were chosen
        for being long: to test a prediction, time the state anew with `time_escapes`.
    """
    rows, n_states = [], check_count(n_states, "n_states", least=1)
    for chain, temperature in enumerate(trace.temperature):
        states, _, durations = trace.visits(chain)
        found = {}
        for k in np.argsort(-durations, kind="stable"):
            if len(found) == n_states:
                break
            found.setdefault(tuple(states[k].tolist()), int(durations[k]))
        rows += [{"chain": chain, "temperature": temperature, "state": x, "stay": t} for x, t in found.items()]
    return pd.DataFrame(rows, columns=["chain", "temperature", "state", "stay"])


def recurrent_states(trace: Trace, chain: int, first_step: int, n_states: int) -> np.ndarray:
    """The states to which a chain returns and in which it spends most time.

    Parameters
    ----------
    trace : Trace
    chain : int
        A row of the trace.
    first_step : int
        Only visits that end after this step count; a state must have at least two.
    n_states : int
        States, at most.

    Returns
    -------
    ndarray, int64[K, n]
        Most time first; empty if the chain never returns anywhere.
    """
    first_step, n_states = check_count(first_step, "first_step"), check_count(n_states, "n_states", least=1)
    states, entered, durations = trace.visits(chain)
    late = entered + durations > first_step
    distinct, index, visits = np.unique(states[late], axis=0, return_inverse=True, return_counts=True)
    spent = np.bincount(index.ravel(), weights=durations[late])
    order = np.argsort(-spent, kind="stable")
    return distinct[order[visits[order] > 1][:n_states]]


def held_sets(trace: Trace, *, n_states: int, basin_states: int) -> pd.DataFrame:
    """What holds the chains of a trace: the states in which they stay longest, and the sets to which they return.

    Parameters
    ----------
    trace : Trace
    n_states : int
        Single states per chain, at most (`longest_stays`); a state that two chains of a temperature found counts once.
    basin_states : int
        States of a set, at most (`recurrent_states` of the second half of a chain); at least two make a set.

    Returns
    -------
    DataFrame
        First the single states, then the sets: ``chain``, ``temperature``, ``basin`` (a tuple of states, each a tuple
        of tokens, most occupied first), ``kind`` (``"state"`` or ``"set"``).
    """
    stays = longest_stays(trace, n_states).drop_duplicates(["temperature", "state"])
    found = zip(stays.chain, stays.temperature, stays.state, strict=True)
    rows: list[tuple] = [(chain, temperature, (state,), "state") for chain, temperature, state in found]
    for chain, temperature in enumerate(trace.temperature):
        basin = recurrent_states(trace, chain, trace.n_steps // 2, basin_states)
        if len(basin) > 1:
            rows.append((chain, temperature, tuple(map(tuple, basin.tolist())), "set"))
    return pd.DataFrame(rows, columns=["chain", "temperature", "basin", "kind"])


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
        Unless every exposure is a number of steps, and every `left` true or false.
    """
    _check_stays(timed)
    groups = timed.groupby(by, dropna=False)
    left, exposure = groups.left.sum().astype(int), groups.exposure.sum()
    ends = np.array([poisson_interval(k) for k in left])
    with np.errstate(divide="ignore"):
        low, high = exposure / ends[:, 1], exposure / ends[:, 0]
    columns = {"observed": exposure / left.where(left > 0), "low": low, "high": high, "chains": groups.size()}
    return pd.DataFrame({**columns, "left": left})


def calibrate_stays(stays: pd.DataFrame, *, per_decade: int = 2) -> pd.DataFrame:
    """Observed against predicted mean stay in groups of similar predicted escape probability.

    Parameters
    ----------
    stays : DataFrame
        From `time_escapes`: ``exposure`` (steps), ``left``, and the predicted ``escape`` probability per step.
    per_decade : int
        Groups in a factor of ten of the predicted mean stay.

    Returns
    -------
    DataFrame
        Per group: ``stays``, ``exits``, ``expected`` exits, ``predicted`` and ``observed`` mean stay in steps, and the
        95% Poisson interval ``low``, ``high`` of the observed one. A mean stay is exposure per exit, so that censored
        stays count; it is infinite where no chain left.

    Raises
    ------
    ValueError
        Unless every prediction is a probability above zero, every exposure a number of steps, every `left` true or
        false, and `per_decade` a count.
    """
    rows, per_decade = [], check_count(per_decade, "per_decade", least=1)
    _check_predictions(stays)
    for _, group in stays.groupby(np.floor(-np.log10(stays.escape) * per_decade)):
        exits, exposure = group.left.sum(), group.exposure.sum()
        expected = (group.exposure * group.escape).sum()
        low, high = poisson_interval(exits)
        rows.append(
            {
                "stays": len(group),
                "exits": exits,
                "expected": expected,
                "predicted": exposure / expected,
                "observed": exposure / exits if exits else np.inf,
                "low": exposure / high,
                "high": exposure / low if low else np.inf,
            }
        )
    return pd.DataFrame(rows)


def regress_stays(stays: pd.DataFrame) -> dict[str, float | tuple[float, ...]]:
    r"""Regression of observed on predicted escape, on logarithmic axes, censored stays included.

    Poisson regression of exits with the steps at risk as exposure, :math:`\log E[\mathrm{exits}/\mathrm{exposure}] = a
    + b \log p`: the prediction p is exact if b = 1 and a = 0.

    Parameters
    ----------
    stays : DataFrame
        As for `calibrate_stays`; some stays must have been left, at different predictions.

    Returns
    -------
    dict
        ``slope`` b and ``ratio`` (observed over predicted escape rate where the exits are centred), each with its 95%
        interval ``slope_interval``, ``ratio_interval``; ``center``, the predicted escape probability there; and
        ``decades``, the orders of magnitude that predicted escape probabilities with an exit span.

    Raises
    ------
    ValueError
        Unless stays of two different predictions were left, and every prediction is a probability above zero.
    """
    _check_predictions(stays)
    x = np.log(stays.escape.to_numpy(float))
    left, exposure = stays.left.to_numpy(float), stays.exposure.to_numpy(float)
    if left.sum() < 2 or np.ptp(x[left > 0]) == 0:
        raise ValueError("need exits at two different predicted escape probabilities at least")
    center = x[left > 0].mean()
    design = sm.add_constant(x - center)
    fit = sm.GLM(left, design, family=sm.families.Poisson(), offset=np.log(exposure)).fit(start_params=[center, 1.0])
    ends = fit.conf_int()
    return {
        "slope": float(fit.params[1]),
        "slope_interval": tuple(map(float, ends[1])),
        "ratio": float(np.exp(fit.params[0] - center)),
        "ratio_interval": tuple(map(float, np.exp(ends[0] - center))),
        "center": float(np.exp(center)),
        "decades": float(np.ptp(x[left > 0]) / np.log(10)),
    }


def _check_stays(stays):
    """Refuse stays of which the length or the end is not known: sums would leave them out."""
    known = np.isfinite(stays.exposure.to_numpy(float)) & (stays.exposure >= 0) & stays.left.isin([True, False])
    if not known.all():
        raise ValueError(
            f"every stay must have its exposure in steps and left true or false, got {(~known).sum()} of {len(stays)} "
            "without"
        )


def _check_predictions(stays):
    """Refuse what `_check_stays` does, and predictions without a logarithm: below 1e-308 float64 holds zero."""
    _check_stays(stays)
    if not stays.escape.between(0, 1, inclusive="right").all():
        got = f"{stays.escape.min()}..{stays.escape.max()}"
        raise ValueError(f"predicted escape probabilities must lie in (0, 1], got {got}: leave out what never escapes")


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
        See `run_chains`.

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
    members = {tuple(state) for state in basin.tolist()}
    if tuple(start.tolist()) not in members:
        raise ValueError(f"start must be a state of the basin, got {start.tolist()}")
    inside = lambda states: np.array([tuple(state) in members for state in states.tolist()])  # noqa: E731
    options = {"n_steps": n_steps, "seed": seed, "holding": holding, "checkpoint": checkpoint}
    return _time_exits(model, start, inside, repeats, temperature=temperature, **options)


def time_stay(
    model: ConditionalModel,
    basin: ArrayLike,
    temperature: float,
    *,
    repeats: int,
    n_steps: int,
    seed: int = 0,
    checkpoint: str | Path | None = None,
) -> pd.DataFrame:
    """Observed and predicted stays in a set of states, of independent chains from its first state.

    Parameters
    ----------
    model : ConditionalModel
    basin : array_like, int[K, n]
        The set: one state or more.
    temperature : float
    repeats, n_steps, seed, checkpoint
        See `time_escapes`; every step is drawn.

    Returns
    -------
    DataFrame
        As from `time_escapes`, with the predicted ``escape`` probability per step: exact for a single state
        (`escape_probability`), for a set the inverse of the mean time by `basin_escape_times`.

    Raises
    ------
    KeyboardInterrupt
        After Ctrl-C, as `time_escapes`.
    """
    basin = check_contexts(basin, model.n_tokens)
    options = {"repeats": repeats, "n_steps": n_steps, "seed": seed, "checkpoint": checkpoint}
    timed = time_escapes(model, basin[0], basin, temperature, **options)
    if len(basin) == 1:
        return timed.assign(escape=escape_probability(model, basin[0], temperature))
    return timed.assign(escape=1 / basin_escape_times(model, basin, temperature)[0])


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
    ValueError
        As from `run_chains`, for `repeats` below one, a `token` that the model lacks, or a `floor` that no count is
        above.
    """
    start, token = check_state(start, model.n_tokens), check_count(token, "token", most=model.n_tokens - 1)
    floor = check_count(floor, "floor", most=len(start) - 1)
    inside = lambda states: (states == token).sum(1) > floor  # noqa: E731
    options = {"n_steps": n_steps, "max_moves": max_moves, "seed": seed, "holding": holding, "checkpoint": checkpoint}
    return _time_exits(model, start, inside, repeats, temperature=temperature, **options)


def _time_exits(model, start, inside: Callable[[np.ndarray], np.ndarray], repeats, **options):
    """Steps until the first state for which ``inside`` bool[K] does not hold, of `repeats` chains."""
    repeats = check_count(repeats, "repeats", least=1)
    trace = run_chains(model, np.tile(start, (repeats, 1)), until=lambda states: ~inside(states), **options)
    if not trace.complete:
        raise KeyboardInterrupt
    left = trace.stopped >= 0
    return pd.DataFrame({"exposure": np.where(left, trace.stopped, trace.n_steps), "left": left})
