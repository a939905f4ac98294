"""Censored times: Kaplan–Meier curves, their medians and intervals."""

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from glauber_lib.stats import Estimate, Interval


def _kaplan_meier(time, observed):
    """The curve of right-censored times; None if no event was seen."""
    from statsmodels.duration.survfunc import SurvfuncRight  # takes a second, and not every reader of topics asks

    observed = np.asarray(observed, bool)
    return SurvfuncRight(np.asarray(time, float), observed.astype(int)) if observed.any() else None


def median_estimate(time: ArrayLike, observed: ArrayLike, *, unit: str) -> Estimate:
    """`median_survival` with its `median_interval`; censored unless every event was seen."""
    kind = "estimate" if np.all(observed) else "censored"
    interval = median_interval(time, observed)
    return Estimate(median_survival(time, observed), interval, len(np.asarray(time)), unit, kind)


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
        95% interval (inverted test of the curve) whose upper end may be infinite; censored unless every event was seen.
    """
    fit, n = _kaplan_meier(time, observed), len(np.asarray(time))
    kind = "estimate" if np.all(observed) else "censored"
    if fit is None:
        return Estimate(np.nan, (np.nan, np.inf), n, unit, kind)
    with np.errstate(divide="ignore", invalid="ignore"):  # at curves of one and zero
        low, high = fit.quantile_ci(share)
    reached = fit.surv_times[fit.surv_prob <= 1 - share + 1e-12]  # a product of fractions may miss by rounding
    return Estimate(float(reached.min()) if len(reached) else np.nan, (float(low), float(high)), n, unit, kind)


def median_survival(time: ArrayLike, observed: ArrayLike) -> float:
    """Kaplan–Meier median of right-censored times; nan if the curve does not fall below one half.

    Parameters
    ----------
    time : array_like, float[K]
        Time of the event, or of the end of observation.
    observed : array_like, bool[K]
        Whether the event was seen.
    """
    curve = _kaplan_meier(time, observed)
    return float(curve.quantile(0.5)) if curve else float("nan")


def median_interval(time: ArrayLike, observed: ArrayLike) -> Interval:
    """95% interval of `median_survival` (inverted test of the curve); the upper end may be infinite."""
    curve = _kaplan_meier(time, observed)
    if curve is None:
        return float("nan"), float("inf")
    low, high = curve.quantile_ci(0.5)
    return float(low), float(high)


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
    """
    fit, end = _kaplan_meier(time, observed), float(np.max(np.asarray(time)))
    if fit is None:
        return pd.DataFrame({"time": [0.0, end], "share": 1.0, "low": np.nan, "high": np.nan})
    share, error = fit.surv_prob, fit.surv_prob_se
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = 1.96 * error / (share * np.abs(np.log(share)))
        low, high = share ** np.exp(spread), share ** np.exp(-spread)
    curve = pd.DataFrame({"time": fit.surv_times.astype(float), "share": share, "low": low, "high": high})
    first = pd.DataFrame({"time": [0.0], "share": [1.0], "low": [np.nan], "high": [np.nan]})
    return pd.concat([first, curve, curve.iloc[[-1]].assign(time=end)], ignore_index=True)
