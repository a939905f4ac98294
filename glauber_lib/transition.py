r"""The transition of coalescence: its temperature, its width, and whether lengths collapse on one curve (paper §6.1).

Coalescence times of one length are modelled as log-normal with a location that is a parabola in log temperature,

.. math:: \log T = \beta_0 + \beta_1 u + \beta_2 u^2 + \sigma \varepsilon, \qquad u = \log \tau,

and pairs that have not met enter as censored. Half of the pairs meet within :math:`\kappa n \log n` steps at the
temperature :math:`\tau_c` where the location equals the logarithm of so many steps. There the share met passes from a
half with the slope :math:`1/w` in units of the normal curve: :math:`w = \sigma / |\beta_1 + 2 \beta_2 \log \tau_c|` is
the width in log temperature.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import ndtr

from glauber_lib.censored import LogNormalFit, fit_log_normal, group_weights, resampled_interval
from glauber_lib.checks import check_columns, check_temperature, check_whole
from glauber_lib.stats import Estimate, Interval
from glauber_lib.survival import time_until


def _columns(temperature):
    """Design [K, 3] of temperatures."""
    log = np.log(np.asarray(temperature, float))
    return np.column_stack([np.ones_like(log), log, log**2])


@dataclass(frozen=True)
class Transition:
    r"""The transition of one length.

    Attributes
    ----------
    n : int
    steps : float
        The budget that defines it, :math:`\kappa n \log n`.
    center : float
        Temperature at which half of the pairs meet within `steps`; nan if it is not within the temperatures tried.
    width : float
        In log temperature, see the module; nan like `center`.
    interval : (float, float)
        95% interval of `center`, from its bootstrap.
    fit, draws : LogNormalFit
        Of the data, and of every resample of the pairs. All lengths share the resamples.
    range : (float, float)
        The lowest and the highest temperature tried.
    n_pairs : int
    """

    n: int
    steps: float
    center: float
    width: float
    interval: Interval
    fit: LogNormalFit
    draws: LogNormalFit
    range: Interval
    n_pairs: int

    def __str__(self):
        if np.isnan(self.center):
            return "τ_c outside the grid"
        return f"τ_c = {self.center:.2f} [{self.interval[0]:.2f}, {self.interval[1]:.2f}]"

    def median(self, temperature: ArrayLike) -> np.ndarray:
        """Fitted median coalescence time at `temperature`; ValueError unless that is positive and finite."""
        return np.exp(_columns(check_temperature(temperature, np.shape(temperature))) @ self.fit.coefficients[0])

    def share_met(self, temperature: ArrayLike) -> np.ndarray:
        """Fitted share of the pairs that meet within `steps` at `temperature`."""
        return ndtr((np.log(self.steps) - np.log(self.median(temperature))) / self.fit.spread[0])

    def bootstrap(self) -> tuple[np.ndarray, np.ndarray]:
        """Center and width of every resample, float64[R] each."""
        return _center_and_width(self.draws, self.steps, None)


def _center_and_width(fit, steps, inside):
    """Centers and widths of fits; nan where the location does not fall through log `steps`, or outside of `inside`."""
    c, b, a = fit.coefficients.T
    c = c - np.log(steps)
    root = np.sqrt(np.where(b**2 >= 4 * a * c, b**2 - 4 * a * c, np.nan))  # minus the slope where it falls
    with np.errstate(divide="ignore", invalid="ignore"):
        stable = 2 * c / (root - b)  # the same root as the next line, without its cancellation
        log_center = np.where(b < 0, stable, (-b - root) / (2 * a))
        width = fit.spread / root
    if inside is not None:
        out = (log_center < np.log(inside[0])) | (log_center > np.log(inside[1]))
        log_center, width = np.where(out, np.nan, log_center), np.where(out, np.nan, width)
    return np.exp(log_center), width


def fit_transitions(
    frame: pd.DataFrame, multiple: float, *, n_resamples: int = 1_000, seed: int = 0
) -> dict[int, Transition]:
    """The transition of every length from the coalescence times of its pairs.

    Parameters
    ----------
    frame : DataFrame
        One row per run (`crossover.pair_times`): ``n, temperature, pair, met, time``. At least three temperatures.
    multiple : float
        The multiple of n log n that defines the transition: the budget of the runs.
    n_resamples : int
        Bootstrap resamples of the pairs, each with all its temperatures and lengths.
    seed : int

    Returns
    -------
    dict of int to Transition
        By length; see there for where a center is nan.

    Raises
    ------
    ValueError
        For fewer than three temperatures of a length, a multiple that is not positive, or a pair that lacks a run at
        one of them, has two, or is not known to have met; if a column, length, temperature or pair is missing; for a
        length that is no whole number >= 2.
    """
    if isinstance(multiple, bool) or not 0 < multiple < np.inf:
        raise ValueError(f"multiple must be positive and finite, got {multiple}")
    _check_runs(frame)
    out = {}
    for n in sorted(frame.n.unique()):
        group = frame[frame.n == n]
        steps, design = multiple * n * np.log(n), _columns(group.temperature)
        fit = fit_log_normal(group.time, group.met, design)
        draws = fit_log_normal(group.time, group.met, design, group_weights(group.pair, n_resamples, seed))
        tried, units = (float(group.temperature.min()), float(group.temperature.max())), group.pair.nunique()
        (center,), (width,) = _center_and_width(fit, steps, tried)
        ends = resampled_interval(np.log(center), np.log(_center_and_width(draws, steps, None)[0]), units)
        interval = (float(np.exp(ends[0])), float(np.exp(ends[1])))
        out[int(n)] = Transition(int(n), steps, float(center), float(width), interval, fit, draws, tried, units)
    return out


def _check_runs(frame):
    """ValueError unless every pair has one run, with a known end, at each of three temperatures or more."""
    check_columns(frame, ["n", "temperature", "pair", "met", "time"], "frame")
    if frame.met.isna().any():
        raise ValueError(
            f"met must be true or false, got {frame.met.isna().sum()} runs without it: leave their pairs out"
        )
    if not frame.met.isin([True, False]).all():  # a text such as "False" would count as met
        raise ValueError(f"met must be true or false, got {frame.met[~frame.met.isin([True, False])].iloc[0]!r}")
    if frame.empty or frame[["n", "temperature", "pair"]].isna().any(axis=None):
        raise ValueError(f"every run must have its n, temperature and pair, got {len(frame.dropna())} of {len(frame)}")
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


def medians_beside_fit(frame: pd.DataFrame, transitions: Mapping[int, Transition]) -> pd.DataFrame:
    """Kaplan–Meier and fitted median coalescence time at every length and temperature, to check the form of the fit.

    Returns
    -------
    DataFrame
        ``n, τ, met`` (share), ``median`` (Kaplan–Meier, nan where fewer than half met), ``fitted``, ``ratio``.

    Raises
    ------
    ValueError
        If a column is missing, or the transition of a length.
    """
    check_columns(frame, ["n", "temperature", "met", "time"], "frame")
    if frame.empty:
        raise ValueError("frame must have a row, got none")
    if lacking := sorted(set(frame.n) - set(transitions)):
        raise ValueError(f"lengths {lacking} have no transition, got those of {sorted(transitions)}")
    rows = []
    for n, temperature in np.unique(frame[["n", "temperature"]].to_numpy(float), axis=0):
        group = frame[(frame.n == n) & (frame.temperature == temperature)]
        seen = time_until(group.time, group.met, 0.5, unit="pairs").value
        fitted = float(transitions[int(n)].median([temperature])[0])
        rows.append({"n": int(n), "τ": temperature, "met": group.met.mean(), "median": seen, "fitted": fitted})
    return pd.DataFrame(rows).assign(ratio=lambda t: t["fitted"] / t["median"])


# Across lengths ------------------------------------------------------------------------------------------------------


def ratio_of_centers(transitions: Mapping[int, Transition]) -> Estimate:
    """The transition temperature at the largest length over that at the smallest, with its interval."""
    first, last = _shortest_and_longest(transitions)
    drawn = np.log(last.bootstrap()[0] / first.bootstrap()[0])
    return _ratio(np.log(last.center / first.center), drawn, first.n_pairs)


def width_exponent(transitions: Mapping[int, Transition]) -> Estimate:
    """The exponent of the width in the length, by regression of its logarithm over all lengths, with its interval.

    Zero: the width does not change. −1/2: it shrinks like the fluctuation of a mean over sites.
    """
    _shortest_and_longest(transitions)
    log_n = np.log(list(transitions))
    slope = (log_n - log_n.mean()) / ((log_n - log_n.mean()) ** 2).sum()
    values = np.log([t.width for t in transitions.values()])
    drawn = np.log([t.bootstrap()[1] for t in transitions.values()])  # (lengths, resamples)
    value, units = float(slope @ values), next(iter(transitions.values())).n_pairs
    return Estimate(value, resampled_interval(value, slope @ drawn, units), units, "pairs")


def collapse(transitions: Mapping[int, Transition], reduced: float) -> Estimate:
    r"""How far the scaled curves of the largest and the smallest length are apart after the collapse.

    Parameters
    ----------
    transitions : mapping of int to Transition
    reduced : float
        The reduced temperature :math:`x = \tau / \tau_c(n)` at which they are compared. At x = 1 they meet by
        definition.

    Returns
    -------
    Estimate
        Fitted median :math:`T_c / (n \log n)` of the largest length at x over that of the smallest, with its interval:
        one where the curves collapse.
    """
    first, last = _shortest_and_longest(transitions)
    reduced = float(check_temperature(reduced))

    def scaled(transition, fit, inside):
        centers = _center_and_width(fit, transition.steps, inside)[0]
        location = (fit.coefficients * _columns(reduced * centers)).sum(1)
        return location - np.log(transition.n * np.log(transition.n))

    value = scaled(last, last.fit, last.range)[0] - scaled(first, first.fit, first.range)[0]
    return _ratio(value, scaled(last, last.draws, None) - scaled(first, first.draws, None), first.n_pairs)


def ratio_at(transitions: Mapping[int, Transition], temperature: float) -> Estimate:
    r"""Fitted median :math:`T_c / (n \log n)` of the largest length over that of the smallest, at one temperature.

    The same ratio as in `collapse` without a scale of temperature; the interval is that of the resamples at this
    temperature.
    """
    first, last = _shortest_and_longest(transitions)
    columns = _columns(check_temperature(temperature, (1,)))

    def scaled(transition, fit):
        return (fit.coefficients * columns).sum(1) - np.log(transition.n * np.log(transition.n))

    value = scaled(last, last.fit)[0] - scaled(first, first.fit)[0]
    return _ratio(value, scaled(last, last.draws) - scaled(first, first.draws), first.n_pairs)


def _shortest_and_longest(transitions):
    """The transitions of the smallest and the largest length; ValueError if there are no two."""
    if len(transitions) < 2:
        raise ValueError(f"need transitions of two lengths or more, got {list(transitions)}")
    return transitions[min(transitions)], transitions[max(transitions)]


def _ratio(log_value, log_draws, units):
    low, high = np.exp(resampled_interval(log_value, log_draws, units))
    return Estimate(float(np.exp(log_value)), (float(low), float(high)), units, "pairs")
