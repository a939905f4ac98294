"""The laws by which hitting times and drift grow with the length (paper §6.1)."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
import pandas as pd
import scipy.stats
from numpy.typing import ArrayLike

from glauber_lib.censored import fit_log_normal, group_weights, resampled_interval
from glauber_lib.checks import check_count, check_flags, check_labels, check_numbers
from glauber_lib.resampling import scale_of
from glauber_lib.stats import Estimate, percentile_interval

GROWTH: Mapping[str, Callable[[np.ndarray], np.ndarray]] = MappingProxyType(
    {
        "n": lambda n: n,
        "n log n": lambda n: n * np.log(n),
        "n²": lambda n: n**2,
        "√n": np.sqrt,
    }
)


def compare_growth(
    n: ArrayLike,
    time: ArrayLike,
    observed: ArrayLike,
    *,
    groups: ArrayLike,
    n_resamples: int = 500,
    seed: int = 0,
    looks: int = 1,
) -> pd.DataFrame:
    r"""Fits of :math:`T = a f(n) e^{\sigma\varepsilon}` with normal :math:`\varepsilon`, for the laws f of `GROWTH`.

    Parameters
    ----------
    n : array_like, int[K]
        Length of each trial.
    time : array_like, float[K]
        Time of the event, or of the end of observation.
    observed : array_like, bool[K]
        Whether the event was seen.
    groups : array_like, [K]
        What was drawn independently, such as the passage that trials of several lengths start from. Whole groups are
        resampled.
    n_resamples : int
    seed : int
    looks : int
        How many such fits are made of the same groups. The intervals are at 1 - 0.05 / looks, 95% for all together
        (Bonferroni).

    Returns
    -------
    DataFrame
        Indexed by law: ``a`` with its interval ``low, high`` (`resampled_interval` of log a); ``aic`` (two
        parameters); ``excess``, the AIC less that of the best other law, with the interval ``excess_low, excess_high``
        (percentiles of the bootstrap; nan where more than a twentieth of the resamples have no fit, and where there are
        fewer than 40 for each look).

    Raises
    ------
    ValueError
        For fewer than two lengths, a length below 2, fewer than two groups, or what `fit_log_normal` refuses.
    """
    n, time, observed, groups = _checked(n, time, observed, groups)
    tail = 0.025 / check_count(looks, "looks", least=1)
    weights, units = group_weights(groups, n_resamples, seed), len(np.unique(groups))
    rows, drawn, constant = {}, {}, np.ones((len(n), 1))
    for law, function in GROWTH.items():
        fit = fit_log_normal(time / function(n), observed, constant)
        many = fit_log_normal(time / function(n), observed, constant, weights)
        location = fit.coefficients[0, 0]
        low, high = np.exp(resampled_interval(location, many.coefficients[:, 0], units, tail))
        rows[law] = {"a": np.exp(location), "low": low, "high": high, "aic": 4 - 2 * fit.log_likelihood[0]}
        drawn[law] = 4 - 2 * many.log_likelihood
    table, aics = pd.DataFrame(rows).T, pd.DataFrame(drawn)  # aics: (resamples, laws)
    table["excess"] = [table.aic[law] - table.aic.drop(law).min() for law in GROWTH]
    excess = {law: _of_fits(aics[law] - aics.drop(columns=law).min(axis=1)) for law in GROWTH}
    table["excess_low"], table["excess_high"] = np.transpose([percentile_interval(v, tail) for v in excess.values()])
    return table


def growth_exponents(
    n: ArrayLike,
    time: ArrayLike,
    observed: ArrayLike,
    *,
    groups: ArrayLike,
    n_resamples: int = 500,
    seed: int = 0,
    looks: int = 1,
) -> pd.DataFrame:
    r"""Fits of :math:`T = a\, n^b (\log n)^c e^{\sigma\varepsilon}`, with c = 1 held and with b and c free.

    Over a few lengths :math:`\log n` and :math:`\log\log n` are nearly collinear. So b and c are known together, and
    each alone hardly: the free fit says which pairs are possible, b with c = 1 held tells the laws apart. The law
    n log n has b = 1; the law n looks like b = 1 less the mean slope of log log n in log n, about 0.6 for 5 to 30.

    Parameters
    ----------
    n, time, observed, groups, n_resamples, seed, looks
        See `compare_growth`.

    Returns
    -------
    DataFrame
        Indexed ``"c = 1", "free"``: ``a, b, c, spread, aic``; the intervals ``b_low, b_high, c_low, c_high``
        (`resampled_interval`); ``correlation`` of b and c over the resamples. A free fit needs three lengths, and is
        nan without.

    Raises
    ------
    ValueError
        As `compare_growth`.
    """
    n, time, observed, groups = _checked(n, time, observed, groups)
    tail = 0.025 / check_count(looks, "looks", least=1)
    weights, units = group_weights(groups, n_resamples, seed), len(np.unique(groups))
    log, one = np.log(n), np.ones(len(n))
    fits = {"c = 1": (time / log, [one, log])}
    if len(np.unique(n)) > 2:
        fits["free"] = (time, [one, log, np.log(log)])
    rows = {}
    for name, (scaled, columns) in fits.items():
        design = np.column_stack(columns)
        fit = fit_log_normal(scaled, observed, design)
        drawn = fit_log_normal(scaled, observed, design, weights).coefficients
        (offset, b), c = fit.coefficients[0, :2], fit.coefficients[0, 2] if name == "free" else 1.0
        row = {"a": np.exp(offset), "b": b, "c": c, "spread": fit.spread[0]}
        row["aic"] = 2 * (len(columns) + 1) - 2 * fit.log_likelihood[0]
        row["b_low"], row["b_high"] = resampled_interval(b, drawn[:, 1], units, tail)
        if name == "free":
            row["c_low"], row["c_high"] = resampled_interval(c, drawn[:, 2], units, tail)
            found = _of_fits(drawn)
            row["correlation"] = np.corrcoef(found[:, 1], found[:, 2])[0, 1] if len(found) > 1 else np.nan
        rows[name] = row
    columns = ["a", "b", "b_low", "b_high", "c", "c_low", "c_high", "correlation", "spread", "aic"]
    return pd.DataFrame(rows).T.reindex(index=["c = 1", "free"], columns=columns)


def _of_fits(drawn):
    """What resamples with a fit gave; nothing where more than a twentieth have none, as in `resampled_interval`."""
    drawn = np.asarray(drawn)
    found = drawn[np.isfinite(drawn.reshape(len(drawn), -1)).all(1)]
    return found if len(found) >= 0.95 * len(drawn) else found[:0]


def _checked(n, time, observed, groups):
    n, time = check_numbers(n, "lengths"), check_numbers(time, "times")
    observed, groups = check_flags(observed, "observed"), check_labels(groups, "groups")
    if not n.shape == time.shape == observed.shape == groups.shape:
        raise ValueError(
            f"lengths, times, events and groups must be as many, got {n.shape}, {time.shape}, {observed.shape}, "
            f"{groups.shape}"
        )
    if len(np.unique(n)) < 2 or n.min() < 2:
        raise ValueError(f"need at least two lengths of 2 or more, got {np.unique(n)}")
    if len(np.unique(groups)) < 2:
        raise ValueError("need at least two groups to resample")
    return n, time, observed, groups


def slope_in_log_length(values: ArrayLike, n: ArrayLike, *, unit: str, looks: int = 1) -> Estimate:
    """Mean over units of the slope of their values in log n, with Student's interval; nan if a value is nan.

    Parameters
    ----------
    values : array_like, float[K, L]
        Of each unit one at every length.
    n : array_like, int[L]
    unit : str
    looks : int
        How many such slopes are judged together. The interval is at 1 - 0.05 / looks (Bonferroni).

    Raises
    ------
    ValueError
        For fewer than two different lengths, one that is not positive and finite, or values that are not one for each.
    """
    n, values = check_numbers(n, "lengths"), check_numbers(values, "values")
    if n.ndim != 1 or not (np.isfinite(n) & (n > 0)).all() or len(np.unique(n)) < 2:
        raise ValueError(f"a slope needs two different lengths or more, each above 0, got {n.tolist()}")
    if values.ndim != 2 or values.shape[1] != len(n):
        raise ValueError(f"values must have shape (units, {len(n)}), one for each length, got {values.shape}")
    tail = 0.025 / check_count(looks, "looks", least=1)
    slopes = np.polyfit(np.log(n), values.T, 1)[0]
    return _mean(slopes, unit, 1e-12 * np.abs(values).max(initial=0.0) / np.ptp(np.log(n)), tail)


def _mean(values, unit, rounding, tail):
    if len(values) < 2 or np.ptp(values) <= rounding:  # equal values do not say how far the next would be
        return Estimate(float(values.mean()) if len(values) else np.nan, None, len(values), unit)
    scale = float(scale_of(values))
    half = scipy.stats.t.ppf(1 - tail, len(values) - 1) * (values / scale).std(ddof=1) * scale / np.sqrt(len(values))
    return Estimate(float(values.mean()), (float(values.mean() - half), float(values.mean() + half)), len(values), unit)
