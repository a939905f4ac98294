"""Intervals and verdicts, and the number that carries them from a measurement to a claim.

Censored times are in `survival`, permutation tests in `permutation`.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy.stats
from numpy.typing import ArrayLike

from glauber_lib.checks import check_count, check_seed

KINDS = ("estimate", "exact", "lower bound", "upper bound", "censored")
SIDES = ("above", "below", "inside", "outside", "test", "measured")
VERDICTS = ("holds", "does not hold", "undecided", "measured", "not measurable here")
Interval = tuple[float, float]


@dataclass(frozen=True)
class Estimate:
    """A measured number and its uncertainty, on the way from the measurement to the claim.

    Attributes
    ----------
    value : float
        nan if the measurement gave no number.
    interval : (float, float) or None
        95% interval of `value`. An end may be infinite; an end that is not known is nan. An exact value has none.
    n : int
        Number of units.
    unit : str
        What was drawn independently, in the plural: ``"passages"``, ``"chains"``.
    kind : str
        One of `KINDS`: what `value` is.

    Raises
    ------
    ValueError
        If a field is none of what is listed above, or the interval's lower end exceeds its upper one.
    """

    value: float
    interval: Interval | None
    n: int
    unit: str
    kind: str = "estimate"

    def __post_init__(self):
        if self.kind not in KINDS:
            raise ValueError(f"kind must be one of {KINDS}, got {self.kind!r}")
        if self.n != int(self.n) or self.n < 0:
            raise ValueError(f"n must be a number of units, got {self.n!r}")
        if not self.unit:
            raise ValueError("unit must name what was drawn independently, got none")
        if self.interval is None:
            return
        if len(self.interval) != 2 or self.interval[0] > self.interval[1]:
            raise ValueError(f"interval must be a lower and an upper end, got {self.interval!r}")
        if self.kind == "exact":
            raise ValueError(f"an exact value has no interval, got {self.interval!r}")

    def __str__(self):
        sign = {"lower bound": "≥ ", "upper bound": "≤ "}.get(self.kind, "")
        ends = f" [{self.interval[0]:.3g}, {self.interval[1]:.3g}]" if self.interval else ""
        name = f"{self.kind}, " if self.kind in ("exact", "censored") else ""
        return f"{sign}{self.value:.3g}{ends} ({name}{self.n} {self.unit})"


# Verdicts ------------------------------------------------------------------------------------------------------------


def verdict(estimate: Estimate, side: str, than: Any = None, least: int = 0) -> tuple[str, str]:
    """What an estimate says of a claim: the one rule for all claims.

    The interval wholly on the claim's side holds, wholly on the other does not hold, otherwise it is undecided. An
    exact value is its own interval, a lower bound reaches up to infinity, an upper bound down to minus infinity.

    Parameters
    ----------
    estimate : Estimate
    side : {"above", "below", "inside", "outside", "test", "measured"}
        Where the true value must lie: above or below the number `than`, inside or outside of the pair `than`. For
        ``"test"`` the value is a p-value, which holds below `than` and decides nothing otherwise. ``"measured"`` claims
        nothing.
    than : float or (float, float), optional
    least : int
        With fewer units there is no verdict.

    Returns
    -------
    verdict : str
        One of `VERDICTS`.
    why : str
        How it follows.

    Raises
    ------
    ValueError
        For an unknown side, or a `than` that does not fit it.
    """
    if side == "measured":
        return "measured", ""
    if side not in SIDES:
        raise ValueError(f"side must be one of {SIDES}, got {side!r}")
    ends = np.asarray(than, dtype=float)
    if ends.shape != ((2,) if side in ("inside", "outside") else ()) or np.isnan(ends).any():
        raise ValueError(
            f"side {side!r} asks for {'two numbers' if side in ('inside', 'outside') else 'a number'}, got {than!r}"
        )
    if np.isnan(estimate.value):
        return "not measurable here", "no number came out"
    bound = f"{ends[0]:.3g} to {ends[1]:.3g}" if ends.ndim else f"{float(ends):.3g}"
    rule = f"p must be below {bound}" if side == "test" else f"must lie {side} {bound}"
    if estimate.n < least:
        return "undecided", f"{estimate.n} {estimate.unit}, at least {least} are needed; {rule}"
    if side == "test":
        return ("holds" if estimate.value < ends else "undecided"), rule
    region = _region(estimate)
    if region is None:
        return "undecided", f"no interval; {rule}"
    low, high = region
    if side in ("above", "below"):
        on, off = (low > ends, high < ends) if side == "above" else (high < ends, low > ends)
    else:
        on, off = ends[0] < low and high < ends[1], high < ends[0] or low > ends[1]
        if side == "outside":
            on, off = off, on
    if on or off:
        return ("holds" if on else "does not hold"), rule
    return "undecided", "; ".join(filter(None, (rule, _would_decide(estimate, ends))))


def _region(estimate):
    """Where the true value lies; None if that is not known."""
    if estimate.kind == "exact":
        return estimate.value, estimate.value
    low, high = estimate.interval or (np.nan, np.nan)
    if estimate.kind == "lower bound":
        low, high = estimate.value if np.isnan(low) else low, np.inf
    elif estimate.kind == "upper bound":
        low, high = -np.inf, estimate.value if np.isnan(high) else high
    return None if np.isnan(low) or np.isnan(high) else (low, high)


def _would_decide(estimate, ends):
    """How many units would decide if the value stayed: intervals shrink with the root of their number."""
    distance = np.abs(estimate.value - ends).min()
    if estimate.kind not in ("estimate", "censored") or not distance or not np.isfinite(estimate.interval).all():
        return ""
    half = max(abs(end - estimate.value) for end in estimate.interval)
    return f"about {np.ceil(estimate.n * (half / distance) ** 2):.3g} {estimate.unit} would decide"


# Intervals -----------------------------------------------------------------------------------------------------------


def bootstrap_estimate(
    *samples: ArrayLike,
    unit: str,
    statistic: Callable[..., float] = np.mean,
    groups: ArrayLike | None = None,
    n_resamples: int = 2_000,
    seed: int = 0,
) -> Estimate:
    """A statistic, by default the mean, with its `bootstrap_interval`.

    Parameters
    ----------
    *samples, statistic, groups, n_resamples, seed
        See `bootstrap_interval`.
    unit : str
        What a group is or, without groups, a row.
    """
    options = {"statistic": statistic, "groups": groups, "n_resamples": n_resamples, "seed": seed}
    n = len(np.asarray(samples[0])) if groups is None else len(np.unique(np.asarray(groups)))
    return Estimate(float(statistic(*samples)), bootstrap_interval(*samples, **options), n, unit)


def bootstrap_interval(
    *samples: ArrayLike,
    statistic: Callable[..., float] = np.mean,
    groups: ArrayLike | None = None,
    n_resamples: int = 2_000,
    seed: int = 0,
) -> Interval:
    """95% percentile bootstrap interval of a statistic, rows resampled together.

    Rows of the same passage are not independent draws. With `groups` whole groups are resampled, not rows.

    Parameters
    ----------
    *samples : array_like, float[K]
        Paired samples, passed to `statistic` in order.
    statistic : callable
    groups : array_like, [K], optional
        The group of each row, any labels.
    n_resamples : int
    seed : int

    Returns
    -------
    (float, float)
        Lower and upper end. Both equal the statistic if all values are the same; both are nan if there is one group
        only.

    Raises
    ------
    ValueError
        If `groups` does not hold one label for each row.
    """
    seed, n_resamples = check_seed(seed), check_count(n_resamples, "n_resamples", least=1)
    columns = [np.asarray(sample, dtype=float) for sample in samples]
    if len(columns[0]) < 2 or all(np.ptp(column) == 0 for column in columns):
        value = float(statistic(*columns))
        return value, value
    if groups is not None:
        return _group_interval(columns, statistic, np.asarray(groups), n_resamples, seed)
    result = scipy.stats.bootstrap(
        columns, statistic, paired=True, vectorized=False, n_resamples=n_resamples, method="percentile",
        rng=np.random.default_rng(seed),
    )  # fmt: skip
    return float(result.confidence_interval.low), float(result.confidence_interval.high)


def _group_interval(columns, statistic, groups, n_resamples, seed):
    """The percentile interval of a statistic when whole groups of rows are drawn with replacement."""
    if groups.shape != (len(columns[0]),):
        raise ValueError(f"groups must hold one label for each of {len(columns[0])} rows, got shape {groups.shape}")
    names, group = np.unique(groups, return_inverse=True)
    if len(names) < 2:
        return np.nan, np.nan
    rng, values = np.random.default_rng(seed), np.empty(n_resamples)
    for k in range(n_resamples):
        times = np.bincount(rng.integers(len(names), size=len(names)), minlength=len(names))
        rows = np.repeat(np.arange(len(group)), times[group])
        values[k] = statistic(*(column[rows] for column in columns))
    return percentile_interval(values)


def percentile_interval(draws: ArrayLike) -> Interval:
    """The middle 95% of resampled values float[R]; both ends are nan if there are none."""
    draws = np.asarray(draws, dtype=float)
    low, high = np.quantile(draws, [0.025, 0.975]) if len(draws) else (np.nan, np.nan)
    return float(low), float(high)


def share_estimate(successes: int, n: int, *, unit: str) -> Estimate:
    """The share of `n` units that are successes, with its `wilson_interval`."""
    interval = wilson_interval(successes, n)
    return Estimate(successes / n, interval, n, unit)


def wilson_interval(successes: int, n: int) -> Interval:
    """95% interval of a share (Wilson, 1927): the shares that a score test does not reject."""
    n = check_count(n, "n", least=1)
    low, high = scipy.stats.binomtest(check_count(successes, "successes", most=n), n).proportion_ci(method="wilson")
    return float(low), float(high)


def poisson_interval(events: int) -> Interval:
    """Exact 95% interval of a Poisson mean, given one number of events (Garwood, 1936)."""
    events = check_count(events, "events")
    low = scipy.stats.chi2.ppf(0.025, 2 * events) / 2 if events else 0.0
    return float(low), float(scipy.stats.chi2.ppf(0.975, 2 * events + 2) / 2)


def mean_band(samples: ArrayLike, *, within: Interval = (-np.inf, np.inf)) -> pd.DataFrame:
    """Means of columns with their normal 95% intervals.

    Parameters
    ----------
    samples : array_like, float[R, K]
        K quantities of each of R independent units.
    within : (float, float)
        The intervals are cut to the values that a mean can have.

    Returns
    -------
    DataFrame
        One row for each column: ``mean, low, high``.
    """
    samples = np.asarray(samples, dtype=float)
    mean, half = samples.mean(0), 1.96 * samples.std(0, ddof=1) / np.sqrt(len(samples))
    return pd.DataFrame(
        {"mean": mean, "low": (mean - half).clip(min=within[0]), "high": (mean + half).clip(max=within[1])}
    )


def binned_intervals(x: ArrayLike, y: ArrayLike, *, groups: ArrayLike | None = None, bins: int = 6) -> pd.DataFrame:
    """Means of `y` along `x` with 95% intervals.

    Parameters
    ----------
    x, y : array_like, float[K]
    groups : array_like, [K], optional
        The unit that each row belongs to, see `bootstrap_interval`.
    bins : int
        Bins of about equal size, cut at quantiles of `x`. Equal values share a bin, so there may be fewer.

    Returns
    -------
    DataFrame
        One row per bin: ``x`` (its median), ``mean, low, high``, and ``n`` (its number of rows).
    """
    columns = {
        "x": np.asarray(x),
        "y": np.asarray(y),
        "group": np.arange(len(np.asarray(x))) if groups is None else groups,
    }
    table, rows = pd.DataFrame(columns), []
    for _, inside in table.groupby(pd.qcut(table.x, bins, duplicates="drop"), observed=True):
        low, high = bootstrap_interval(inside.y, groups=inside.group)
        rows.append({"x": inside.x.median(), "mean": inside.y.mean(), "low": low, "high": high, "n": len(inside)})
    return pd.DataFrame(rows)


def rank_correlation(x: ArrayLike, y: ArrayLike) -> float:
    """Spearman's ρ."""
    return float(np.corrcoef(scipy.stats.rankdata(x), scipy.stats.rankdata(y))[0, 1])


# Convergence of chains -----------------------------------------------------------------------------------------------


def convergence(draws: ArrayLike) -> dict[str, float]:
    r"""What practitioners check: rank-normalised split :math:`\hat R` and bulk effective sample size, by arviz.

    Parameters
    ----------
    draws : array_like, float[C, K]
        A scalar summary of C chains at K times.

    Returns
    -------
    dict
        ``rhat`` (near one where the chains agree) and ``ess`` (in draws). If every chain stands still ``rhat`` is
        infinite, or nan if all stand at one value, and ``ess`` is nan.

    Raises
    ------
    ValueError
        Unless there are at least 2 chains of 4 draws.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # arviz announces its next version at import
        import arviz

    draws = np.asarray(draws, float)
    if draws.ndim != 2 or draws.shape[0] < 2 or draws.shape[1] < 4:
        raise ValueError(f"need at least 2 chains of 4 draws, got shape {draws.shape}")
    if not np.ptp(draws, axis=1).any():
        return {"rhat": np.inf if np.ptp(draws) else np.nan, "ess": np.nan}
    return {"rhat": float(arviz.rhat(draws)), "ess": float(arviz.ess(draws))}  # pyright: ignore[reportArgumentType]


# Runs of flags -------------------------------------------------------------------------------------------------------


def true_runs(flags: ArrayLike) -> np.ndarray:
    """First and past-the-last index of every maximal run of true flags, int64[K, 2]."""
    return np.flatnonzero(np.diff(np.concatenate([[0], np.asarray(flags, int), [0]]))).reshape(-1, 2)
