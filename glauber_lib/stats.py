"""Intervals and verdicts, and the number that carries them from a measurement to a claim.

Censored times are in `survival`, permutation tests in `permutation`, how units are resampled in `resampling`.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy.stats
from numpy.typing import ArrayLike

from glauber_lib.checks import check_count, check_numbers, check_seed, unmasked
from glauber_lib.resampling import FEWEST, Interval, bca_interval, has_nan, mean_interval, members
from glauber_lib.resampling import mean_band as mean_band
from glauber_lib.resampling import percentile_interval as percentile_interval

KINDS = ("estimate", "exact", "lower bound", "upper bound", "censored")
SIDES = ("above", "below", "inside", "outside", "test", "measured")
VERDICTS = ("holds", "does not hold", "undecided", "measured", "not measurable here")


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
        if not np.isfinite(self.n) or self.n != int(self.n) or self.n < 0:
            raise ValueError(f"n must be a number of units, got {self.n!r}")
        check_numbers(self.value, "value")
        if not self.unit:
            raise ValueError("unit must name what was drawn independently, got none")
        if self.interval is None:
            return
        if check_numbers(self.interval, "interval").shape != (2,) or self.interval[0] > self.interval[1]:
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
    exact value is its own interval, and at the bound itself it is not on the claim's side; a lower bound reaches up to
    infinity, an upper bound down to minus infinity. Without a value an interval may decide, as of a censored time.

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
        For an unknown side, a `than` that does not fit it, or a p-value outside of 0 .. 1.
    """
    if side == "measured":
        return "measured", ""
    if side not in SIDES:
        raise ValueError(f"side must be one of {SIDES}, got {side!r}")
    ends, pair = check_numbers(than, "than"), side in ("inside", "outside")
    if ends.shape != ((2,) if pair else ()) or np.isnan(ends).any() or (pair and ends[0] >= ends[1]):
        raise ValueError(f"side {side!r} asks for {'two rising numbers' if pair else 'a number'}, got {than!r}")
    region, nothing = _region(estimate), ("not measurable here", "no number came out")
    if np.isnan(estimate.value) and (side == "test" or region is None):
        return nothing
    if side == "test" and not 0 <= estimate.value <= 1:
        raise ValueError(f"side 'test' asks for a p-value in 0..1, got {estimate.value}")
    bound = f"{ends[0]:.3g} to {ends[1]:.3g}" if ends.ndim else f"{float(ends):.3g}"
    rule = f"p must be below {bound}" if side == "test" else f"must lie {side} {bound}"
    if estimate.n < least:
        return "undecided", f"{estimate.n} {estimate.unit}, at least {least} are needed; {rule}"
    if side == "test":
        return ("holds" if estimate.value < ends else "undecided"), rule
    if region is None:
        return "undecided", f"no interval; {rule}"
    low, high = region
    if side in ("above", "below"):
        on, off = (low > ends, high < ends) if side == "above" else (high < ends, low > ends)
    else:
        on, off = ends[0] < low and high < ends[1], high < ends[0] or low > ends[1]
        if side == "outside":
            on, off = off, on
    if on or off or estimate.kind == "exact":
        return ("holds" if on else "does not hold"), rule
    undecided = "undecided", "; ".join(filter(None, (rule, _would_decide(estimate, ends))))
    return nothing if np.isnan(estimate.value) else undecided


def _region(estimate):
    """Where the true value lies; None if that is not known."""
    low, high = estimate.interval or ((estimate.value,) * 2 if estimate.kind == "exact" else (np.nan, np.nan))
    if estimate.kind == "lower bound":
        low, high = low if estimate.interval else estimate.value, np.inf
    elif estimate.kind == "upper bound":
        low, high = -np.inf, high if estimate.interval else estimate.value
    return None if np.isnan(low) or np.isnan(high) else (low, high)


def _would_decide(estimate, ends):
    """How many units would decide if the value stayed: intervals shrink with the root of their number."""
    distance = np.abs(estimate.value - ends).min()
    if estimate.kind not in ("estimate", "censored") or not distance or not np.isfinite(estimate.interval).all():
        return ""
    half = max(abs(end - estimate.value) for end in estimate.interval)
    count = estimate.n * (half / distance) ** 2
    digit = 10.0 ** max(0, np.floor(np.log10(count)) - 1)  # two digits, rounded up
    return f"about {np.ceil(count / digit) * digit:,.0f} {estimate.unit} would decide if the value stayed"


# Intervals -----------------------------------------------------------------------------------------------------------


def bootstrap_estimate(
    *samples: ArrayLike,
    unit: str,
    statistic: Callable[..., float] = np.mean,
    groups: ArrayLike | None = None,
    n_resamples: int = 2_000,
    seed: int = 0,
    looks: int = 1,
) -> Estimate:
    """A statistic, by default the mean, with its `bootstrap_interval`; both are nan if a sample holds nan.

    Parameters
    ----------
    *samples, statistic, groups, n_resamples, seed, looks
        See `bootstrap_interval`.
    unit : str
        What a group is or, without groups, a row.
    """
    options = {"statistic": statistic, "groups": groups, "n_resamples": n_resamples, "seed": seed, "looks": looks}
    interval, unknown = bootstrap_interval(*samples, **options), any(map(has_nan, samples))
    columns = [check_numbers(sample, "samples") for sample in samples]  # tables would be matched by their labels
    n = len(members(groups, len(columns[0])))
    return Estimate(np.nan if unknown or not n else float(statistic(*columns)), interval, n, unit)


def bootstrap_interval(
    *samples: ArrayLike,
    statistic: Callable[..., float] = np.mean,
    groups: ArrayLike | None = None,
    n_resamples: int = 2_000,
    seed: int = 0,
    looks: int = 1,
) -> Interval:
    r"""95% bootstrap interval of a statistic, rows resampled together.

    Rows of the same passage are not independent draws. With `groups` whole groups are resampled, not rows. Of n units,
    groups or rows, the mean gets the studentised interval, whose 1.96 is taken from resamples (Efron and Tibshirani,
    1993, §12.5). Another statistic gets the bias-corrected and accelerated interval (Efron, 1987), at the level at
    which normal values give Student's, with :math:`\sqrt{n/(n-1)}\,t_{n-1}` in the place of 1.96: n units spread less
    in their resamples than they do (Hesterberg, 2015). Resamples of fewer than `FEWEST` units do not reach that far:
    their mean gets Student's interval, another statistic none. The mean of truth values without groups is a share and
    gets its `wilson_interval`.

    Parameters
    ----------
    *samples : array_like, float[K]
        Paired samples, passed to `statistic` in order.
    statistic : callable
    groups : array_like, [K], optional
        The group of each row, any labels.
    n_resamples : int
        At least 40 for each look, of which one lies beyond either end. A statistic of few units takes more (the raised
        level); its ends are nan with fewer.
    looks : int
        Intervals that are read together, of which this is one: all hold at 95% together (Bonferroni).
    seed : int

    Returns
    -------
    (float, float)
        Lower and upper end. Both are nan where nothing is known of the spread: one unit, a value that is nan, or a
        statistic that is the same in all resamples.

    Raises
    ------
    ValueError
        If the samples differ in length or are several of which the mean is asked, `groups` does not hold one label for
        each row, or for fewer resamples.
    """
    seed, n_resamples = check_seed(seed), check_count(n_resamples, "n_resamples", least=40)
    tail = 0.025 / check_count(looks, "looks", least=1)
    if n_resamples * tail < 1 - 1e-9:
        raise ValueError(f"{looks} looks need {40 * looks} resamples, got {n_resamples}")
    columns = [check_numbers(sample, "samples") for sample in samples]
    if len({column.shape for column in columns}) != 1 or columns[0].ndim != 1:
        raise ValueError(f"samples must be rows of one length, got shapes {[column.shape for column in columns]}")
    mean, units = statistic is np.mean, members(groups, len(columns[0]))
    if mean and len(columns) > 1:
        raise ValueError(f"the mean is that of one sample, got {len(columns)}: pass a statistic of all, or one sample")
    if len(units) < 2 or any(map(has_nan, columns)):
        return np.nan, np.nan
    if mean and groups is None and all(isinstance(one, bool | np.bool_) for one in np.asarray(samples[0])):
        return wilson_interval(int(columns[0].sum()), len(units), looks=looks)
    found = mean_interval(columns[0], units, n_resamples, seed, tail) if mean else None
    if found or len(units) < FEWEST:
        return found or (np.nan, np.nan)

    def of_units(chosen):
        rows = chosen if groups is None else np.concatenate([units[k] for k in chosen])
        return statistic(*(column[rows] for column in columns))

    return bca_interval(of_units, len(units), n_resamples, seed, tail)


def share_estimate(successes: int, n: int, *, unit: str) -> Estimate:
    """The share of `n` units that are successes, with its `wilson_interval`; nan of no unit."""
    interval, n = wilson_interval(successes, n), int(n)
    return Estimate(float(successes / n) if n else np.nan, interval, n, unit)


def wilson_interval(successes: int, n: int, *, looks: int = 1) -> Interval:
    """95% interval of a share (Wilson, 1927): the shares that a score test does not reject; nan, nan of no unit.

    For `looks` see `bootstrap_interval`.
    """
    n, level = check_count(n, "n"), 1 - 0.05 / check_count(looks, "looks", least=1)
    successes = check_count(successes, "successes", most=n)
    if not n:
        return np.nan, np.nan
    low, high = scipy.stats.binomtest(successes, n).proportion_ci(level, method="wilson")
    return float(low), float(high)


def poisson_interval(events: int) -> Interval:
    """Exact 95% interval of a Poisson mean, given one number of events (Garwood, 1936)."""
    events = check_count(events, "events")
    low = scipy.stats.chi2.ppf(0.025, 2 * events) / 2 if events else 0.0
    return float(low), float(scipy.stats.chi2.ppf(0.975, 2 * events + 2) / 2)


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

    Raises
    ------
    ValueError
        If there is no row, an `x` is nan or infinite: its row has no bin, or `bins` is no whole number.
    """
    odd = ~np.isfinite(check_numbers(x, "x"))
    if odd.any() or not odd.size:
        raise ValueError(f"x must be finite numbers, got nan or infinity in {odd.sum()} rows of {odd.size}: drop those")
    bins, units = check_count(bins, "bins", least=1), np.arange(odd.size) if groups is None else groups
    table, rows = pd.DataFrame({"x": np.asarray(x), "y": unmasked(y, "y"), "group": units}), []
    places: Any = pd.qcut(table.x, bins, labels=False, duplicates="drop")  # nan where all values are the same
    for _, inside in table.groupby(np.nan_to_num(places)):
        low, high = bootstrap_interval(inside.y, groups=inside.group)
        rows.append(
            {"x": inside.x.median(), "mean": inside.y.mean(skipna=False), "low": low, "high": high, "n": len(inside)}
        )
    return pd.DataFrame(rows)


def rank_correlation(x: ArrayLike, y: ArrayLike) -> float:
    """Spearman's ρ of two rows float[K]; nan if a value is nan, or if all values of `x` or of `y` are the same.

    ValueError unless they are as long.
    """
    x, y = check_numbers(x, "values"), check_numbers(y, "values")
    if x.ndim != 1 or x.shape != y.shape:
        raise ValueError(f"a correlation needs two rows of one length, got shapes {x.shape} and {y.shape}")
    with np.errstate(invalid="ignore", divide="ignore"):
        return float(np.corrcoef(scipy.stats.rankdata(x), scipy.stats.rankdata(y))[0, 1])


# Convergence of chains -----------------------------------------------------------------------------------------------


def convergence(draws: ArrayLike) -> dict[str, float]:
    r"""What practitioners check: rank-normalised split :math:`\hat R` and bulk effective sample size, by arviz.

    :math:`\hat R` compares the variance between halves of chains with the variance within them (Vehtari, Gelman,
    Simpson, Carpenter and Bürkner, 2021). A half in which nothing changes has none, and hides in the mean over halves:
    chains that stand still but for one visit would look converged (stan-dev/posterior, issue 167). So a chain that
    stands still in a half of its draws is stuck.

    Parameters
    ----------
    draws : array_like, float[C, K]
        A scalar summary of C chains at K times.

    Returns
    -------
    dict
        ``rhat`` (near one where the chains agree), ``ess`` (in draws) and ``stuck``, the number of chains that stand
        still, but for rounding, in the first or second half of their draws. If there is one, ``rhat`` is infinite and
        ``ess`` nan; if all draws are the same, ``rhat`` is nan too.

    Raises
    ------
    ValueError
        Unless there are at least 2 chains of 4 draws, all of them finite.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # arviz announces its next version at import
        import arviz

    draws = check_numbers(draws, "draws")
    if draws.ndim != 2 or draws.shape[0] < 2 or draws.shape[1] < 4:
        raise ValueError(f"need at least 2 chains of 4 draws, got shape {draws.shape}")
    if not np.isfinite(draws).all():
        raise ValueError(f"draws must be finite, got {(~np.isfinite(draws)).sum()} that are not")
    half = draws.shape[1] // 2
    still = 1e-12 * np.abs(draws).max(axis=1)  # what rounding alone moves, of each chain
    stuck = int((np.ptp([draws[:, :half], draws[:, -half:]], axis=2) <= still).any(0).sum())
    if stuck:
        return {"rhat": np.inf if np.ptp(draws) > still.max() else np.nan, "ess": np.nan, "stuck": stuck}
    rhat, ess = float(arviz.rhat(draws)), float(arviz.ess(draws))  # pyright: ignore[reportArgumentType]
    return {"rhat": rhat, "ess": ess, "stuck": 0}


# Runs of flags -------------------------------------------------------------------------------------------------------


def true_runs(flags: ArrayLike) -> np.ndarray:
    """First and past-the-last index of every maximal run of true flags, int64[K, 2]; ValueError for nan or texts."""
    if has_nan(flags):
        raise ValueError("flags must be true or false in every place, got nan")
    return np.flatnonzero(np.diff(np.concatenate([[0], check_numbers(flags, "flags") != 0, [0]]))).reshape(-1, 2)
