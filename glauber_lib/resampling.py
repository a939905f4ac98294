"""Intervals of units, which are rows or groups of rows (`stats.bootstrap_interval` chooses among the bootstrap's)."""

import warnings
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
import scipy.stats
from numpy.typing import ArrayLike

from glauber_lib.checks import check_count, check_labels, check_numbers

Interval = tuple[float, float]
FEWEST = 5  # units of a bootstrap: the resamples of fewer do not reach as far as a 95% interval must


def has_nan(sample: ArrayLike) -> bool:
    """Whether a value is nan."""
    return bool(np.isnan(check_numbers(sample, "samples")).any())


def members(groups: ArrayLike | None, n_rows: int) -> Sequence[np.ndarray]:
    """The rows of each group; without groups each row by itself."""
    if groups is None:
        return list(np.arange(n_rows)[:, None])
    of_row = np.unique(check_labels(groups, "groups", n_rows), return_inverse=True)[1]
    return np.split(np.argsort(of_row, kind="stable"), np.cumsum(np.bincount(of_row))[:-1]) if n_rows else []


def scale_of(values: np.ndarray, axis: int | tuple[int, ...] | None = None, *, ordinary: float = 1e50) -> np.ndarray:
    """What to divide values by, so that no power of them under- or overflows, float64 of the shape without `axis`.

    One where the largest modulus lies between ``1 / ordinary`` and `ordinary`; otherwise the power of two below it, by
    which multiplication is exact. One too where all are zero, or a value is not finite.
    """
    largest = np.abs(values).max(axis=axis, initial=0.0)
    extreme = np.isfinite(largest) & (largest > 0) & ((largest > ordinary) | (largest < 1 / ordinary))
    return np.where(extreme, np.ldexp(1.0, np.frexp(largest)[1] - 1), 1.0)


def mean_interval(
    values: np.ndarray, units: Sequence[np.ndarray], n_resamples: int, seed: int, tail: float = 0.025
) -> Interval | None:
    """The studentised interval of the mean of rows drawn in units, Student's if there are fewer than `FEWEST`.

    A share `tail` lies beyond either end.
    None if so many resamples repeat one value that they have no standard error. Ends are nan where a value is no finite
    number. The units share out the rows: every unit has one at least. ZeroDivisionError of
    fewer than two units, IndexError for rows that are not there.
    """
    if (scale := float(scale_of(values))) != 1:
        found = mean_interval(values / scale, units, n_resamples, seed, tail)
        return found and (found[0] * scale, found[1] * scale)
    n, mean = len(units), values.mean()
    size = np.array([len(rows) for rows in units], float)
    excess = np.array([(values[rows] - mean).sum() for rows in units])  # the mean is a ratio of sums over units

    def error(times, shift):
        """Standard error of the mean of resamples in which it is `shift` more."""
        squares = times @ excess**2 - 2 * shift * (times @ (excess * size)) + shift**2 * (times @ size**2)
        return np.sqrt(n / (n - 1) * squares.clip(min=0)) / (times @ size)

    spread = error(np.ones(n), 0.0)
    if n < FEWEST or spread <= 1e-12 * abs(mean):
        far = scipy.stats.t.isf(tail, n - 1)
        return with_width(mean - far * spread, mean + far * spread)
    times = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=n_resamples).astype(float)
    shift = times @ excess / (times @ size)
    errors = error(times, shift)
    spread_out = errors > 1e-6 * spread
    if spread_out.mean() < 0.99:
        return None
    low, high = np.quantile(shift[spread_out] / errors[spread_out], [tail, 1 - tail])
    return with_width(mean - high * spread, mean - low * spread)


def bca_interval(statistic: Callable, n: int, n_resamples: int, seed: int, tail: float = 0.025) -> Interval:
    """The interval of a statistic of the numbers of `n` units, at the raised level; nan, nan where it has no width.

    Both ends are nan too where no resample lies beyond them: at the raised level of few units and a small `tail`.
    ZeroDivisionError for fewer than two units, ValueError for resamples that are no count.
    """
    n_resamples = check_count(n_resamples, "n_resamples")
    raised = float(scipy.stats.norm.sf(np.sqrt(n / (n - 1)) * scipy.stats.t.isf(tail, n - 1)))
    if n_resamples * raised < 1:
        return np.nan, np.nan
    with warnings.catch_warnings(), np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        warnings.simplefilter("ignore", scipy.stats.DegenerateDataWarning)
        result = scipy.stats.bootstrap(
            (np.arange(n),), statistic, vectorized=False, n_resamples=n_resamples, method="BCa",
            confidence_level=1 - 2 * raised, rng=np.random.default_rng(seed),
        )  # fmt: skip
    ends, draws = result.confidence_interval, result.bootstrap_distribution
    if (scale := float(scale_of(draws))) != 1:  # the cubes of the jackknife would underflow
        low, high = bca_interval(lambda rows: statistic(rows) / scale, n, n_resamples, seed, tail)
        return low * scale, high * scale
    interval = with_width(ends.low, ends.high)
    return percentile_interval(draws, raised) if np.isnan([*interval, *draws]).any() else interval


def check_tail(tail: float) -> float:
    """The share of values beyond either end of an interval; ValueError unless it lies above 0 and below 0.5."""
    if not 0 < tail < 0.5:
        raise ValueError(f"tail must lie above 0 and below 0.5, got {tail!r}: a 95% interval has 0.025 at either end")
    return tail


def percentile_interval(draws: ArrayLike, tail: float = 0.025) -> Interval:
    """The middle of resampled values float[R] without a share `tail` of them at either end, by default 95%.

    Both ends are nan if a value is nan, if the middle has no width, or if there are too few for one beyond each end:
    nothing is known then. ValueError for a `tail` that is not between 0 and 0.5, or a table of values.
    """
    draws, tail = check_numbers(draws, "draws", listed=True), check_tail(tail)
    if len(draws) * tail < 1 - 1e-9 or np.isnan(draws).any():
        return np.nan, np.nan
    method = "linear" if np.isfinite(draws).all() else "inverted_cdf"
    return with_width(*np.quantile(draws, [tail, 1 - tail], method=method))


def with_width(low: float, high: float) -> Interval:
    """An interval; both ends nan if it has no width, as that of equal data, which tell nothing of a spread."""
    return (np.nan, np.nan) if np.isclose(low, high, rtol=1e-12, atol=0) else (float(low), float(high))


def mean_band(samples: ArrayLike, *, within: Interval = (-np.inf, np.inf)) -> pd.DataFrame:
    """Means of columns with their 95% intervals by Student's t.

    Parameters
    ----------
    samples : array_like, float[R, K]
        K quantities of each of R independent units.
    within : (float, float)
        The values that a mean can have: the intervals are cut to them, but never short of the mean itself.

    Returns
    -------
    DataFrame
        One row for each column: ``mean, low, high``. The interval is nan, nan of one unit and of equal units.

    Raises
    ------
    ValueError
        For samples of another shape.
    """
    samples = check_numbers(samples, "samples")
    if samples.ndim != 2:
        raise ValueError(f"samples must have shape (units, quantities), got {samples.shape}")
    n, scale = len(samples), scale_of(samples, axis=0)
    samples, (least, most) = samples / scale, np.asarray(within)[:, None] / scale
    mean = samples.mean(0)
    half = np.full_like(mean, np.nan)
    if n > 1:
        half = scipy.stats.t.ppf(0.975, n - 1) * samples.std(0, ddof=1) / np.sqrt(n)
        half[np.ptp(samples, axis=0) <= 1e-12 * np.abs(mean)] = np.nan  # but for rounding
    low = np.maximum(mean - half, np.minimum(mean, least)) * scale
    high = np.minimum(mean + half, np.maximum(mean, most)) * scale
    return pd.DataFrame({"mean": mean * scale, "low": low, "high": high})
