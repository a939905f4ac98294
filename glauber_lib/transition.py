r"""The transition of coalescence: its temperature, its width, and whether lengths collapse on one curve (paper §6.1).

The share of the pairs that meet within :math:`\kappa n \log n` steps is measured at every temperature and made monotone
(isotonic regression). Between the temperatures its normal quantile is linear in log temperature. No law of the times is
assumed. The transition temperature :math:`\tau_c` is the temperature at which half of the pairs meet. The width is the
distance in log temperature from a quarter to three quarters, over 1.349: of a normal curve that is one standard
deviation. A distance shorter than the step of the grid there is not resolved, and gives no width: the shares beside it
are nearly zero or one, and do not tell how steep the curve is.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.optimize import isotonic_regression
from scipy.special import ndtri

from glauber_lib.censored import group_weights, resampled_interval
from glauber_lib.checks import check_columns, check_numbers, check_temperature, check_whole
from glauber_lib.crossover import budget
from glauber_lib.stats import Estimate, Interval, share_estimate
from glauber_lib.survival import time_until

LEVELS = (0.25, 0.5, 0.75)
QUARTILES = float(ndtri(0.75) - ndtri(0.25))  # of a normal law, in standard deviations: 1.349
NEAR = 1e-6  # what rounding may move a center by, in log temperature, or a width, relatively


@dataclass(frozen=True)
class Transition:
    r"""The transition of one length.

    Attributes
    ----------
    n : int
    steps : int
        The budget that defines it, :math:`\kappa n \log n`.
    center : float
        Temperature at which half of the pairs meet within `steps`; nan if it is not within the temperatures tried.
    width : float
        In log temperature, see the module; nan if a quarter or three quarters are not within the temperatures tried, or
        are closer than these.
    interval : (float, float)
        95% interval of `center`, from its bootstrap.
    temperatures : ndarray, float64[K]
        Those tried, in rising order.
    shares : ndarray, float64[K]
        Share of the pairs that meet within `steps`, made monotone.
    centers, widths : ndarray, float64[R]
        Of every resample of the pairs.
    medians : ndarray, float64[R + 1, K]
        Median coalescence time of the data (first row) and of every resample; infinite where fewer than half met.
    n_pairs : int
    resamples : str
        Digest of the resamples. What is said of several lengths together asks for the same resamples of all.
    """

    n: int
    steps: int
    center: float
    width: float
    interval: Interval
    temperatures: np.ndarray
    shares: np.ndarray
    centers: np.ndarray
    widths: np.ndarray
    medians: np.ndarray
    n_pairs: int
    resamples: str

    def __str__(self):
        if np.isnan(self.center):
            return "τ_c outside the grid"
        return f"τ_c = {self.center:.2f} [{self.interval[0]:.2f}, {self.interval[1]:.2f}]"


def fit_transitions(
    frame: pd.DataFrame, multiple: float, *, n_resamples: int = 1_000, seed: int = 0
) -> dict[int, Transition]:
    """The transition of every length from the coalescence times of its pairs.

    Parameters
    ----------
    frame : DataFrame
        One row per run (`crossover.pair_times`): ``n, temperature, pair, met, time``. At least three temperatures.
    multiple : float
        The multiple of n log n that defines the transition, at most that of the budget of the runs.
    n_resamples : int
        Bootstrap resamples of the pairs, each with all its temperatures and lengths.
    seed : int

    Returns
    -------
    dict of int to Transition
        By length; see there for where a center or a width is nan.

    Raises
    ------
    ValueError
        For fewer than three temperatures of a length, a multiple that is not positive, or a pair that lacks a run at
        one of them, has two, is not known to have met, or was left before `multiple` n log n steps; if a column,
        length, temperature or pair is missing; for a length that is no whole number >= 2.
    """
    if isinstance(multiple, bool) or not 0 < multiple < np.inf:
        raise ValueError(f"multiple must be positive and finite, got {multiple}")
    frame = _checked_runs(frame)
    labels = np.sort(frame.pair.unique())
    weights = np.vstack([np.ones(len(labels)), group_weights(labels, n_resamples, seed)])  # the first: the data
    digest, out = hashlib.sha256(weights.tobytes() + repr(labels.tolist()).encode()).hexdigest(), {}
    for n, group in frame.groupby("n"):
        steps = budget(int(n), multiple)  # type: ignore[arg-type]
        if not (group.met | (group.time >= steps)).all():
            raise ValueError(f"pairs of n = {n} that have not met must be followed for {steps} steps, got fewer")
        times = group.time.where(group.met & (group.time <= steps), np.inf)
        table = times.groupby([group.pair, group.temperature]).first().unstack()  # rows as `labels`
        shares = weights @ np.isfinite(table).to_numpy() / len(labels)
        shares = np.array([row if (np.diff(row) >= 0).all() else isotonic_regression(row).x for row in shares])
        for level in LEVELS:  # a mean of shares may miss it by rounding
            shares[np.abs(shares - level) < 1e-12] = level
        center, width = _read_off(np.log(table.columns.to_numpy(float)), shares, len(labels))
        ends, centers = resampled_interval(center[0], center[1:], len(labels)), np.exp(center)
        out[int(n)] = Transition(  # type: ignore[arg-type]
            int(n), steps, float(centers[0]), float(width[0]), (float(np.exp(ends[0])), float(np.exp(ends[1]))),  # type: ignore[arg-type]
            table.columns.to_numpy(float), shares[0], centers[1:], width[1:], _medians(table.to_numpy(), weights),
            len(labels), digest,
        )  # fmt: skip
    return out


def _read_off(log_grid, shares, n_pairs):
    """Log centers and widths, float[R] each, where rising shares [R, K] pass the `LEVELS`; nan where they do not.

    Where a share stands at a level over several temperatures, the middle of them counts. Of a center that is itself a
    temperature the shorter of the steps beside it counts.
    """
    least = min(0.5 / n_pairs, 0.125)  # of few pairs too it lies below the levels
    quantile = ndtri(np.clip(shares, least, 1 - least))
    rank, levels = 1e-12 * np.arange(len(log_grid)), ndtri(LEVELS)
    first = [np.interp(levels, row + rank, log_grid, np.nan, np.nan) for row in quantile]
    last = [np.interp(levels, row + rank - rank[-1], log_grid, np.nan, np.nan) for row in quantile]
    low, center, high = (np.array(first) + np.array(last)).T / 2
    spaces = np.diff(log_grid)
    below, above = (np.searchsorted(log_grid, center + aside) - 1 for aside in (-NEAR, NEAR))
    space = np.minimum(*(spaces[np.clip(step, 0, len(spaces) - 1)] for step in (below, above)))
    return center, np.where(high - low >= space * (1 - NEAR), (high - low) / QUARTILES, np.nan)


def _medians(times, weights):
    """Medians float[R, K] of times [P, K] that count `weights` [R, P] times each: the first by which half met."""
    out = np.empty((len(weights), times.shape[1]))
    for k, column in enumerate(times.T):
        order = np.argsort(column, kind="stable")
        seen = weights[:, order].cumsum(1) >= weights.sum(1, keepdims=True) / 2
        out[:, k] = column[order][seen.argmax(1)]
    return out


def _checked_runs(frame):
    """The runs, with plain numbers; ValueError unless every pair has one, with a known end, at three temperatures."""
    check_columns(frame, ["n", "temperature", "pair", "met", "time"], "frame")
    if frame.met.isna().any():
        raise ValueError(
            f"met must be true or false, got {frame.met.isna().sum()} runs without it: leave their pairs out"
        )
    if not frame.met.isin([True, False]).all():  # a text such as "False" would count as met
        raise ValueError(f"met must be true or false, got {frame.met[~frame.met.isin([True, False])].iloc[0]!r}")
    if frame.empty or frame[["n", "temperature", "pair", "time"]].isna().any(axis=None):
        raise ValueError(
            f"every run must have its n, temperature, pair and time, got {len(frame.dropna())} of {len(frame)}"
        )
    frame = frame.assign(time=check_numbers(frame.time, "times"), met=frame.met.astype(bool))
    if not (frame.time > 0).all():
        raise ValueError(f"times must be positive, got {frame.time.min()}")
    check_temperature(frame.temperature.to_numpy(float), (len(frame),))
    check_whole(frame.n.to_numpy(), "lengths n", least=2)
    pairs = frame.pair.unique()
    for n, group in frame.groupby("n"):
        if group.temperature.nunique() < 3:
            raise ValueError(f"need at least three temperatures, got {group.temperature.nunique()} at n = {n}")
        count = group.groupby(["temperature", "pair"]).size().unstack(fill_value=0).reindex(columns=pairs, fill_value=0)
        odd = [(float(t), p, int(k)) for t, row in count.iterrows() for p, k in row.items() if k != 1]  # type: ignore
        if odd:
            t, p, k = odd[0]
            raise ValueError(
                f"each pair must have one run at each temperature: at n = {n}, τ = {t:g} pair {p} has {k}"
                f"{f', and {len(odd) - 1} more are such' if len(odd) > 1 else ''}; run those, or leave their pairs out"
            )
    return frame


def shares_and_medians(frame: pd.DataFrame) -> pd.DataFrame:
    """Share of the pairs that met and Kaplan–Meier median coalescence time at every length and temperature.

    Returns
    -------
    DataFrame
        ``n, τ``; ``met`` (share) with its 95% interval ``low, high`` (Wilson); ``median`` (nan where fewer than half
        met) with its interval ``earliest, latest``, whose upper end may be infinite.

    Raises
    ------
    ValueError
        As `fit_transitions`, for a pair that was left before others of its length and temperature.
    """
    rows = []
    for (n, temperature), group in _checked_runs(frame).groupby(["n", "temperature"]):  # type: ignore[misc]
        if (group.time[~group.met] < group.time.max()).any():
            raise ValueError(
                f"pairs of n = {n} at τ = {temperature:g} that have not met must be followed as long as the others, "
                "got fewer steps"
            )
        met = share_estimate(int(group.met.sum()), len(group), unit="pairs")
        median = time_until(group.time, group.met, 0.5, unit="pairs")
        rows.append([n, temperature, met.value, *(met.interval or ()), median.value, *(median.interval or ())])
    return pd.DataFrame(rows, columns=["n", "τ", "met", "low", "high", "median", "earliest", "latest"])


# Across lengths ------------------------------------------------------------------------------------------------------


def ratio_of_centers(transitions: Mapping[int, Transition]) -> Estimate:
    """The transition temperature at the largest length over that at the smallest, with its interval.

    ValueError as `collapse`.
    """
    first, last = _shortest_and_longest(transitions)
    return _ratio(np.log(last.center / first.center), np.log(last.centers / first.centers), first.n_pairs)


def width_exponent(transitions: Mapping[int, Transition]) -> Estimate:
    """The exponent of the width in the length, by regression of its logarithm over all lengths, with its interval.

    Zero: the width does not change. −1/2: it shrinks like the fluctuation of a mean over sites. It is nan where a width
    is not resolved. ValueError as `collapse`.
    """
    _shortest_and_longest(transitions)
    log_n = np.log(list(transitions))
    slope = (log_n - log_n.mean()) / ((log_n - log_n.mean()) ** 2).sum()
    values = np.log([t.width for t in transitions.values()])
    drawn = np.log([t.widths for t in transitions.values()])  # (lengths, resamples)
    value, units = float(slope @ values), next(iter(transitions.values())).n_pairs
    return Estimate(value, resampled_interval(value, slope @ drawn, units), units, "pairs")


def collapse(transitions: Mapping[int, Transition], reduced: float) -> Estimate:
    r"""How far the scaled times of the largest and the smallest length are apart after the collapse.

    Parameters
    ----------
    transitions : mapping of int to Transition
        Of one `fit_transitions`.
    reduced : float
        The reduced temperature :math:`x = \tau / \tau_c(n) > 1` at which they are compared. At x = 1 they meet by
        definition.

    Returns
    -------
    Estimate
        Median :math:`T_c / (n \log n)` of the largest length at x over that of the smallest, with its interval: one
        where the curves collapse; nan beyond the temperatures tried. Between these the logarithm of the median is
        linear in log temperature.

    Raises
    ------
    ValueError
        For transitions of fewer than two lengths, or of other pairs or resamples; for a reduced temperature that is
        not above one.
    """
    first, last = _shortest_and_longest(transitions)
    if not (reduced := float(check_temperature(reduced))) > 1:
        raise ValueError(f"reduced must be above 1, where the curves meet by definition, got {reduced}")
    difference = _scaled(last, reduced * _all_centers(last)) - _scaled(first, reduced * _all_centers(first))
    return _ratio(difference[0], difference[1:], first.n_pairs)


def ratio_at(transitions: Mapping[int, Transition], temperature: float) -> Estimate:
    r"""Median :math:`T_c / (n \log n)` of the largest length over that of the smallest, at one temperature.

    The same ratio as in `collapse` without a scale of temperature; nan below a transition. ValueError as `collapse`.
    """
    first, last = _shortest_and_longest(transitions)
    at = np.full(len(first.centers) + 1, float(check_temperature(temperature)))
    difference = _scaled(last, at) - _scaled(first, at)
    return _ratio(difference[0], difference[1:], first.n_pairs)


def _scaled(transition, temperatures):
    """Logarithm of the median time over n log n, of the data and of every resample, each at its temperature."""
    log_grid, log_steps = np.log(transition.temperatures), np.log(transition.steps)
    out, centers = [], np.log(_all_centers(transition))
    for at, center, medians in zip(np.log(temperatures), centers, np.log(transition.medians), strict=True):
        known = (log_grid > center + NEAR) & np.isfinite(medians)
        knots, values = np.append(center, log_grid[known]), np.append(log_steps, medians[known])
        out.append(np.interp(at, knots, values, np.nan, np.nan) if np.isfinite(center + at) else np.nan)
    return np.array(out) - np.log(transition.n * np.log(transition.n))


def _all_centers(transition):
    return np.append(transition.center, transition.centers)


def _shortest_and_longest(transitions):
    """The transitions of the smallest and the largest length; ValueError unless there are two, of one bootstrap."""
    if len(transitions) < 2:
        raise ValueError(f"need transitions of two lengths or more, got {list(transitions)}")
    if len({t.resamples for t in transitions.values()}) > 1:
        raise ValueError("transitions must come from one call of fit_transitions, which resamples the pairs together")
    return transitions[min(transitions)], transitions[max(transitions)]


def _ratio(log_value, log_draws, units):
    low, high = np.exp(resampled_interval(log_value, log_draws, units))
    return Estimate(float(np.exp(log_value)), (float(low), float(high)), units, "pairs")
