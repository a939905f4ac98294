"""Censored times: Kaplan–Meier curves, their medians and other quantiles."""

import math
from fractions import Fraction

import numpy as np
import pandas as pd
import scipy.stats
from numpy.typing import ArrayLike

from glauber_lib.checks import check_flags, check_numbers
from glauber_lib.stats import Estimate


def _kaplan_meier(time, observed):
    """The curve of right-censored times; None if no event was seen."""
    from statsmodels.duration.survfunc import SurvfuncRight  # takes a second, and not every reader of topics asks

    time, observed = check_numbers(time, "times"), check_flags(observed, "observed")
    if time.shape != observed.shape or time.ndim != 1:
        raise ValueError(f"time and observed must be rows of one length, got shapes {time.shape} and {observed.shape}")
    if not np.isfinite(time).all() or (time < 0).any():
        raise ValueError(f"times must be finite and not negative, got {time[~(np.isfinite(time) & (time >= 0))][:5]}")
    return SurvfuncRight(time, observed.astype(int)) if observed.any() else None


def _first_at(curve, left, *, below):
    """First time at which the share `left` or less, or only less if `below`, had no event; nan if there is none.

    The share is a product of fractions. Where its rounded value is near `left` the exact one decides.
    """
    left = Fraction(left).limit_denominator(1_000_000)  # of 0.6 three fifths
    reached = np.asarray(curve.surv_prob) < float(left)
    for k in np.flatnonzero(np.isclose(curve.surv_prob, float(left), rtol=0, atol=1e-9)):
        risk = [int(count) for count in curve.n_risk[: k + 1]]
        rest = [r - int(count) for r, count in zip(risk, curve.n_events, strict=False)]
        cut = [j for j in range(k) if rest[j] != risk[j + 1]]  # without censoring a fraction cancels with the next
        share = Fraction(math.prod(rest[j] for j in [*cut, k]), math.prod(risk[j] for j in [0, *(j + 1 for j in cut)]))
        reached[k] = share < left or (share == left and not below)
    return float(curve.surv_times[reached].min()) if reached.any() else math.nan


def time_until(time: ArrayLike, observed: ArrayLike, share: float, *, unit: str) -> Estimate:
    """Time by which a share of the units had the event, from the Kaplan–Meier curve of right-censored times.

    Parameters
    ----------
    time : array_like, float[K]
        Time of the event, or of the end of observation.
    observed : array_like, bool[K]
        Whether the event was seen.
    share : float
        Share that must have had the event, above 0 and below 1.
    unit : str

    Returns
    -------
    Estimate
        The first time at which the curve is at 1 - `share` or below, nan if the curve does not fall so far, with a
        95% interval (beta products, mid-p) whose upper end may be infinite; both ends are nan if all events came at
        once. Censored unless every event was seen.

    Raises
    ------
    ValueError
        If a time is negative or not finite, `observed` is neither true nor false, or `share` is not between 0 and 1.
    """
    if not 0 < share < 1:
        raise ValueError(f"share must lie above 0 and below 1, got {share!r}")
    share = float(share)
    fit, n = _kaplan_meier(time, observed), len(np.asarray(time))
    kind = "estimate" if check_flags(observed, "observed").all() else "censored"
    if fit is None:
        return Estimate(np.nan, (np.nan, np.inf), n, unit, kind)
    left = 1 - Fraction(share).limit_denominator(1_000_000)
    return Estimate(_first_at(fit, left, below=False), _interval_at(fit, np.asarray(time), left), n, unit, kind)


def _interval_at(curve, time, left):
    """95% interval of the time at which the share `left` had no event (beta products, mid-p).

    Of r units at risk, d events leave a share that is Beta(r - d + 1, d). The curve is a product of these, which is a
    beta variable nearly, by its first two moments (Fay, Brittain and Proschan, 2013; mid-p: Fay and Brittain, 2016).
    """
    at, risk, events = np.append(0.0, curve.surv_times), np.append(1.0, curve.n_risk), np.append(0.0, curve.n_events)
    first = np.cumprod((risk - events + 1) / (risk + 1))
    second = np.cumprod((risk - events + 1) * (risk - events + 2) / (risk + 1) / (risk + 2))
    rest = len(time) - np.searchsorted(
        np.sort(time), at, side="right"
    )  # at risk afterwards: what the next event would leave bounds the share below
    after = np.where(rest, _beta_chance(first * rest / (rest + 1), second * rest / (rest + 2), float(left)), 1.0)
    chance = (_beta_chance(first, second, float(left)) + after) / 2  # that the share is at `left` or below
    low, high = (at[chance >= tail] for tail in (0.025, 0.975))
    ends = low.min() if len(low) else at[-1], high.min() if len(high) else np.inf
    return (np.nan, np.nan) if ends[0] == ends[1] else (float(ends[0]), float(ends[1]))


def _beta_chance(first, second, value):
    """Chance that beta variables of the given first two moments are at most `value`."""
    variance = second - first**2
    with np.errstate(divide="ignore", invalid="ignore"):
        weight = first * (1 - first) / variance - 1
        chance = scipy.stats.beta.cdf(value, first * weight, (1 - first) * weight)
    return np.where(variance > 1e-15, chance, first <= value)


def median_survival(time: ArrayLike, observed: ArrayLike) -> float:
    """Kaplan–Meier median of right-censored times: the first at which less than one half had no event; nan if none is.

    Parameters
    ----------
    time : array_like, float[K]
        Time of the event, or of the end of observation.
    observed : array_like, bool[K]
        Whether the event was seen.

    Raises
    ------
    ValueError
        As `time_until`.
    """
    curve = _kaplan_meier(time, observed)
    return _first_at(curve, Fraction(1, 2), below=True) if curve else math.nan


def survival_curve(time: ArrayLike, observed: ArrayLike) -> pd.DataFrame:
    """Kaplan–Meier curve of right-censored times with its pointwise 95% interval.

    Parameters
    ----------
    time : array_like, float[K]
        Time of the event, or of the end of observation.
    observed : array_like, bool[K]
        Whether the event was seen.

    Returns
    -------
    DataFrame
        ``time`` (0, the times of events, and the end of observation), ``share`` that had no event by then, and its
        interval ``low``, ``high`` (normal on the log–log scale; nan while nobody, or once everybody, had the event).

    Raises
    ------
    ValueError
        As `time_until`, and without a time.
    """
    fit = _kaplan_meier(time, observed)
    if not len(np.asarray(time)):
        raise ValueError("a curve needs a time, got none")
    end = float(np.max(np.asarray(time)))
    if fit is None:
        return pd.DataFrame({"time": [0.0, end], "share": 1.0, "low": np.nan, "high": np.nan})
    share, error = fit.surv_prob, fit.surv_prob_se
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = 1.96 * error / (share * np.abs(np.log(share)))
        low, high = share ** np.exp(spread), share ** np.exp(-spread)
    curve = pd.DataFrame({"time": fit.surv_times.astype(float), "share": share, "low": low, "high": high})
    first = pd.DataFrame({"time": [0.0], "share": [1.0], "low": [np.nan], "high": [np.nan]})
    return pd.concat([first, curve, curve.iloc[[-1]].assign(time=end)], ignore_index=True)
