"""How long traps hold chains that start in them anew, and how well a predictor ranks these durations."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from glauber_lib.chains import run_chains
from glauber_lib.checks import check_count, check_flags, check_labels, check_numbers, check_temperature, unmasked
from glauber_lib.checksums import refuse_other_vocabulary
from glauber_lib.models import ConditionalModel
from glauber_lib.stats import Estimate, poisson_interval
from glauber_lib.survival import median_survival
from glauber_lib.traces import Trace, refuse_stopped
from glauber_lib.trapping import GrownSet
from glauber_lib.traps import modal_state, occupied_runs

MOST_LOOKS = 2**26  # starts of windows: half a gibibyte


def find_traps(trace: Trace, *, stride: int = 50, window: int = 300, per_chain: int = 1) -> pd.DataFrame:
    """The traps of a trace, found in state space.

    Parameters
    ----------
    trace : Trace
    stride : int
        Steps between the starts of windows.
    window : int
        See `occupied_runs`, by which a trap is a maximal run of windows that a chain spends in few states.
    per_chain : int
        Traps of a chain, at most: the longest ones of different modal states. A modal state that an earlier chain of
        the same temperature has is left out.

    Returns
    -------
    DataFrame
        ``chain``, ``temperature``, ``state`` (tuple, the modal state of the run), ``found``, the run's length in steps.
        A trap was found because it is long: its duration is to be measured anew, by `time_traps`.

    Raises
    ------
    ValueError
        For a stride, window or number of traps below one, or a stride above the window: steps between would be in none;
        for a run shorter than a window, in which no trap can be seen, or with more windows than `MOST_LOOKS`; for
        chains that were stopped by ``until``.
    """
    stride, window = _check_windows(stride, window)
    per_chain = check_count(per_chain, "per_chain", least=1)
    refuse_stopped(trace)
    looks, rows, seen = _looks(trace.n_steps, stride, window), [], set()
    for chain, temperature in enumerate(trace.temperature):
        visits = trace.visits(chain)
        runs = sorted(occupied_runs(visits, looks, window=window), key=lambda run: run[0] - run[1])
        mine = dict.fromkeys(tuple(modal_state(visits, *run)[0].tolist()) for run in runs)
        lengths = {tuple(modal_state(visits, *run)[0].tolist()): run[1] - run[0] for run in reversed(runs)}
        fresh = [state for state in mine if (temperature, state) not in seen][:per_chain]
        seen.update((temperature, state) for state in fresh)
        rows += [(chain, temperature, state, lengths[state]) for state in fresh]
    return pd.DataFrame(rows, columns=["chain", "temperature", "state", "found"])


def _check_windows(stride, window):
    """Stride and window as int; ValueError unless every step lies in a window."""
    window = check_count(window, "window", least=1)
    return check_count(stride, "stride", least=1, most=window), window


def _looks(n_steps, stride, window):
    """The starts of windows, every `stride` steps of a run; ValueError for too many, or where no window ends."""
    if n_steps // stride * stride < window:
        raise ValueError(
            f"a run of {n_steps} steps has no window of {window} at a stride of {stride}: take a longer run"
        )
    if n_steps // stride > MOST_LOOKS:
        least = -(-n_steps // MOST_LOOKS)
        raise ValueError(
            f"{n_steps} steps have {n_steps // stride} windows at a stride of {stride}, at most {MOST_LOOKS} are "
            f"listed: take a stride of {least} or more, with a window as long, or fewer steps"
        )
    return np.arange(0, n_steps + 1, stride)


def held_longest(trace: Trace) -> pd.DataFrame:
    """The state in which each chain spends most steps, in the columns of `find_traps`; ``found`` is its steps.

    ValueError for chains that were stopped by ``until``.
    """
    refuse_stopped(trace)
    rows = []
    for chain, temperature in enumerate(trace.temperature):
        state, share = modal_state(trace.visits(chain), 0, trace.n_steps)
        rows.append((chain, temperature, tuple(state.tolist()), round(share * trace.n_steps)))
    return pd.DataFrame(rows, columns=["chain", "temperature", "state", "found"])


def time_traps(
    model: ConditionalModel,
    sets: Sequence[GrownSet],
    temperature: ArrayLike,
    *,
    repeats: int,
    n_steps: int,
    stride: int = 50,
    window: int = 300,
    seed: int,
    checkpoint: str | Path | None = None,
    progress: str | None = None,
) -> pd.DataFrame:
    """Durations of traps in independent chains from their modal states, every step drawn.

    Parameters
    ----------
    model : ConditionalModel
    sets : sequence of GrownSet
        One for each trap; its first state is the modal state.
    temperature : float or array_like, float[T]
    repeats, n_steps : int
        Chains from each trap, and the budget of each.
    stride, window : int
        As in `find_traps`: the trap lasts from the start of the chain until the start of the first window that is not
        spent in few states.
    seed : int
        Another one than that of the run in which the traps were found, or the same chains are run again.
    checkpoint : str or Path, optional
        See `run_chains`.
    progress : str, optional
        Title of a progress bar.

    Returns
    -------
    DataFrame
        Per chain, of its ``trap``: ``duration``, its end not later than ``stride`` steps before (0: the first window
        is none of a trap), and ``ended`` (False: censored); ``returned``, the step at which the chain
        left the modal state for good, that is for a window's length, and ``gone`` (False: censored); ``in_set``, steps
        in the grown set, and ``left``, whether it was left.

    Raises
    ------
    KeyboardInterrupt
        After Ctrl-C, before the budget is used up. The checkpoint holds what is done.
    ValueError
        Without a set, for fewer than one chain, a stride, window or run as in `find_traps`, and as from `run_chains`.
    """
    if not len(sets):
        raise ValueError("need a set to time chains in, got none")
    for grown in sets:
        refuse_other_vocabulary(model, grown, "a set")
    stride, window = _check_windows(stride, window)
    repeats, n_steps = check_count(repeats, "repeats", least=1), check_count(n_steps, "n_steps", least=window)
    temperature, looks = check_temperature(temperature, (len(sets),)), _looks(n_steps, stride, window)
    starts = np.repeat([grown.states[0] for grown in sets], repeats, axis=0)
    trace = run_chains(
        model, starts, n_steps=n_steps, temperature=np.repeat(temperature, repeats), seed=seed,
        checkpoint=checkpoint, progress=progress,
    )  # fmt: skip
    if not trace.complete:
        raise KeyboardInterrupt
    rows = []
    for k in range(len(starts)):
        states, entered, steps = trace.visits(k)
        runs = occupied_runs((states, entered, steps), looks, window=window)
        held = runs[0][1] if runs and runs[0][0] == 0 else None
        members = set(map(tuple, sets[k // repeats].states.tolist()))
        outside = [t for state, t in zip(states.tolist(), entered, strict=True) if tuple(state) not in members]
        rows.append(
            {
                "trap": k // repeats, "duration": 0 if held is None else held - window + stride,
                "ended": held is None or held + stride <= looks[-1], **_last_return(states, entered, steps, window),
                "in_set": outside[0] if outside else n_steps, "left": bool(outside),
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def _last_return(states, entered, steps, window):
    """When a chain left its first state for `window` steps or more; censored where that is not seen."""
    there = np.flatnonzero((states == states[0]).all(1))
    away, end = entered[there] + steps[there], entered[-1] + steps[-1]
    long = np.append(entered[there][1:], end) - away >= window
    return {"returned": int(away[long.argmax()] if long.any() else away[-1]), "gone": bool(long.any())}


def rank_concordance(predictor: ArrayLike, time: ArrayLike, ended: ArrayLike, trap: ArrayLike) -> float:
    r"""Somers' D of right-censored times and a predictor: :math:`2C - 1` with Harrell's concordance C.

    Of the pairs of chains from different traps of which it is known which time is shorter (the shorter one ended), the
    share that the predictor orders alike, less the share that it orders the other way. 0: no relation; 1: perfect.

    Parameters
    ----------
    predictor, time : array_like, float[K]
        One row for each chain.
    ended : array_like, bool[K]
    trap : array_like, [K]

    Returns
    -------
    float
        nan if no pair can be ordered.
    """
    x, t = check_numbers(predictor, "predictor"), check_numbers(time, "time")
    ended, trap = check_flags(ended, "ended"), check_labels(trap, "trap")
    if np.isnan(x).any() or np.isnan(t).any() or not x.shape == t.shape == ended.shape == trap.shape:
        raise ValueError(f"need a prediction, a time, an end and a trap in each of {len(trap)} rows, nan among none")
    shorter = ended[:, None] & ((t[:, None] < t) | ((t[:, None] == t) & ~ended))
    known = shorter & (trap[:, None] != trap)
    order = (x > x[:, None]).astype(float) - (x < x[:, None])  # equal ones are 0, infinite ones too
    return float(order[known].mean()) if known.any() else np.nan


def duration_factor(duration: ArrayLike, ended: ArrayLike, predicted: ArrayLike) -> float:
    r"""The factor between durations and their predicted means, censored durations included.

    The Kaplan–Meier median of duration over prediction, divided by :math:`\log 2`: for exponential durations whose
    means are all c times the predicted ones it is c, wherever the budget cuts them.

    Parameters
    ----------
    duration : array_like, float[K]
        One row for each chain; a duration of zero counts as one step.
    ended : array_like, bool[K]
    predicted : array_like, float[K]
        In steps.

    Returns
    -------
    float
        Infinite where half of the durations or fewer ended; nan without a chain.

    Raises
    ------
    ValueError
        Unless every duration is a number of steps and every prediction above zero.
    """
    duration, predicted = check_numbers(duration, "duration"), check_numbers(predicted, "predicted")
    if not duration.shape == predicted.shape == np.shape(ended):
        raise ValueError(f"need one row for each chain, got {duration.shape}, {np.shape(ended)}, {predicted.shape}")
    if not duration.size:
        return np.nan
    if not (duration >= 0).all() or not (predicted > 0).all():
        raise ValueError("durations must be numbers of steps, and predicted ones above zero, in every row")
    ratio = np.maximum(duration, 1.0) / predicted
    median = median_survival(ratio, check_flags(ended, "ended"))
    return np.inf if np.isnan(median) else median / np.log(2)


def exit_ratio(steps: ArrayLike, left: ArrayLike, predicted: ArrayLike) -> Estimate:
    """Observed over expected exits: one where the predicted mean times are right, whatever the budget cut.

    Parameters
    ----------
    steps : array_like, float[K]
        Steps until the exit, or to the end of the budget, one row for each chain.
    left : array_like, bool[K]
    predicted : array_like, float[K]
        Mean time to leave, in steps; infinite where no exit is expected.

    Returns
    -------
    Estimate
        With an exact Poisson interval: the exits are counted as if leaving were memoryless, which it is for a single
        state and nearly so for a set that is left rarely.

    Raises
    ------
    ValueError
        Unless steps are finite numbers >= 0, predicted times above zero and `left` true or false, as many of each, and
        an exit is expected at all.
    """
    steps, left, predicted = (
        check_numbers(steps, "steps"),
        unmasked(left, "left"),
        check_numbers(predicted, "predicted"),
    )
    if not steps.shape == left.shape == predicted.shape or steps.ndim != 1:
        raise ValueError(f"need one row for each chain, got {steps.shape}, {left.shape} and {predicted.shape}")
    if not (np.isfinite(steps) & (steps >= 0) & (predicted > 0) & np.isin(left, (0, 1))).all():
        raise ValueError("steps must be finite, predicted times above zero, and left true or false, in every row")
    exits, expected = int(np.sum(left)), float(np.sum(steps / predicted))
    if not expected > 0:
        raise ValueError(f"a ratio needs expected exits, got {expected} of {len(steps)} chains")
    low, high = poisson_interval(exits)
    return Estimate(exits / expected, (low / expected, high / expected), len(steps), "chains")
