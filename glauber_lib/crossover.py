"""Hitting times and their growth laws, coalescence and the transition temperature (paper §6.1)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from scipy.special import ndtr
from sklearn.linear_model import LogisticRegression

from glauber_lib import exact
from glauber_lib.checks import check_contexts, check_count, check_seed, check_temperature, check_temperatures
from glauber_lib.couplings import Coalescence, coalesce
from glauber_lib.influence import check_contraction, contraction_bound
from glauber_lib.models import TabularModel
from glauber_lib.resampling import members
from glauber_lib.stats import Interval, percentile_interval
from glauber_lib.survival import time_until

GROWTH: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "n": lambda n: n,
    "n log n": lambda n: n * np.log(n),
    "n²": lambda n: n**2,
    "√n": np.sqrt,
}


def coalescence_bound(alpha: float, n: int, chance: float = 0.5) -> float:
    r"""Steps within which a pair has met with probability `chance` or more, if alpha < 1; infinite otherwise.

    By contraction the expected Hamming distance after t steps is at most :math:`n (1 - (1 - \alpha)/n)^t`. A pair that
    has not met is at distance one at least. So :math:`t = n/(1 - \alpha) \log(n/(1 - \mathrm{chance}))` steps suffice.

    ValueError for an `alpha` that is nan or negative, an `n` below one, or a `chance` outside of 0 .. 1.
    """
    check_contraction(alpha, n, 1 - chance)
    return n / (1 - alpha) * np.log(n / (1 - chance)) if alpha < 1 else np.inf


def hitting_times(distance: Mapping[int, ArrayLike], looks: ArrayLike, level: float) -> pd.DataFrame:
    """When each trial is first seen at a distance of `level` or more, as far as the looks tell.

    Parameters
    ----------
    distance : mapping of int to array_like, float[K, T]
        For every length the distance of K trials from their starts at T looks.
    looks : array_like, int[T]
        Steps of the looks, rising; the first is the start, where the distance is below `level`.
    level : float

    Returns
    -------
    DataFrame
        One row for each length and trial: ``n, trial, low, high, censored``. The time lies in (low, high]: between the
        look that saw the level and the look before. `high` is infinite for a trial that is censored at the last look.

    Raises
    ------
    ValueError
        If a distance or `level` is nan, a trial is at `level` already at its start, or `looks` do not rise, or a trial
        has not one distance for each.

    Notes
    -----
    A distance that misses `level` by its rounding alone, as 1 - 4/5 misses 0.2, has reached it.
    """
    looks, tables = np.asarray(looks, float), []
    if looks.ndim != 1 or not (np.diff(looks) > 0).all() or np.isnan(level):
        raise ValueError(f"looks must rise and level must be a number, got {looks} and {level}")
    for n, values in distance.items():
        values = np.asarray(values)
        if values.shape[1:] != looks.shape or not len(looks):
            raise ValueError(f"distances must have shape (trials, {len(looks)} looks), got {values.shape} at n = {n}")
        if np.isnan(values).any():
            raise ValueError(f"distances must be numbers, got nan in {np.isnan(values).any(1).sum()} trials of n = {n}")
        rounding = 4 * np.finfo(values.dtype if values.dtype.kind == "f" else float).eps
        reached = values >= level - rounding * max(1, abs(level))  # (K, T)
        if reached[:, 0].any():
            raise ValueError(f"level {level:g} must be above the distance at the start, got {values[:, 0].max():g}")
        hit, first = reached.any(1), reached.argmax(1)
        low = np.where(hit, looks[np.maximum(first - 1, 0)], looks[-1])
        columns = {"low": low, "high": np.where(hit, looks[first], np.inf), "censored": ~hit}
        tables.append(pd.DataFrame({"n": n, "trial": np.arange(len(reached)), **columns}))
    return pd.concat(tables, ignore_index=True)


def compare_growth(
    n: ArrayLike,
    low: ArrayLike,
    high: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    n_resamples: int = 200,
    seed: int = 0,
) -> pd.DataFrame:
    r"""Fits of :math:`T = a f(n) e^{\sigma\varepsilon}` with normal :math:`\varepsilon`, for the laws f of `GROWTH`.

    The fit maximises the likelihood. A trial contributes the probability of the interval that its time is known to
    lie in.

    Parameters
    ----------
    n : array_like, int[K]
        Length of each trial.
    low, high : array_like, float[K]
        The time lies in (low, high]; `high` is infinite for a censored trial, `low` may be zero.
    groups : array_like, [K], optional
        What was drawn independently, such as the passage that trials of several lengths start from. Whole groups are
        resampled; without groups trials are, within each length.
    n_resamples : int
        Bootstrap resamples.
    seed : int

    Returns
    -------
    DataFrame
        Indexed by law: ``a`` with its 95% bootstrap interval ``low, high``; ``aic`` (two parameters); ``excess``, the
        AIC less that of the best other law, with its bootstrap interval ``excess_low, excess_high``.

        What the times do not identify is nan: everything if all trials are censored, or none of them has a lower end;
        ``a`` of a law by which all times can be the same; the excess if there is one length. An interval without
        width, as that of one group, is nan.

    Raises
    ------
    ValueError
        If the three differ in length, a length or an end is nan, an interval is empty or begins below zero, or `groups`
        does not hold one label for each trial.
    """
    lengths, low, high = (np.asarray(v, float) for v in (n, low, high))
    if not lengths.shape == low.shape == high.shape or lengths.ndim != 1 or not len(lengths):
        raise ValueError(f"n, low and high must be rows of one length, got {lengths.shape}, {low.shape}, {high.shape}")
    wrong = ~((lengths > 1) & np.isfinite(low) & (low >= 0) & (low < high))  # nan is wrong
    if wrong.any():
        k = wrong.argmax()
        raise ValueError(
            f"times must lie in (low, high] with 0 <= low < high, of lengths above 1; got ({low[k]:g}, {high[k]:g}] "
            f"of length {lengths[k]:g}, and {wrong.sum() - 1} more"
        )
    seed, n_resamples = check_seed(seed), check_count(n_resamples, "n_resamples", least=1)
    if not np.isfinite(high).any() or not low.any():  # any location beyond all of them fits as well
        columns = ["a", "low", "high", "aic", "excess", "excess_low", "excess_high"]
        return pd.DataFrame(np.nan, index=list(GROWTH), columns=columns)
    resamples = _resamples(lengths, groups, n_resamples, np.random.default_rng(seed))
    rows, drawn = {}, {}
    for law, function in GROWTH.items():
        scale = function(lengths)
        (location, spread), aic = _fit_log_normal(low / scale, high / scale)
        if (low / scale).max() < (high / scale).min():  # no spread, and all locations between the two fit as well
            location = np.nan
        fits = [_fit_log_normal(low[r] / scale[r], high[r] / scale[r], (location, spread)) for r in resamples]
        ends = np.exp(percentile_interval([center for (center, _), _ in fits] if np.isfinite(location) else []))
        rows[law] = {"a": np.exp(location), "low": ends[0], "high": ends[1], "aic": aic}
        drawn[law] = np.array([aic for _, aic in fits])
    table, aics = pd.DataFrame(rows).T, pd.DataFrame(drawn)  # aics: (resamples, laws)
    if len(np.unique(lengths)) < 2:  # then all laws are one
        return table.assign(excess=np.nan, excess_low=np.nan, excess_high=np.nan)
    table["excess"] = [table.aic[law] - table.aic.drop(law).min() for law in GROWTH]
    intervals = [percentile_interval(aics[law] - aics.drop(columns=law).min(axis=1)) for law in GROWTH]
    table["excess_low"], table["excess_high"] = np.transpose(intervals)
    return table


def _resamples(lengths, groups, n_resamples, rng):
    """Bootstrap resamples of rows: of whole groups or, without groups, of the rows within each length."""
    if groups is None:
        units = members(lengths, len(lengths))
        return [np.concatenate([rng.choice(m, len(m)) for m in units]) for _ in range(n_resamples)]
    units = members(groups, len(lengths))
    chosen = rng.integers(len(units), size=(n_resamples, len(units)))
    return [np.concatenate([units[k] for k in row]) for row in chosen]


def _fit_log_normal(low, high, start=None):
    """Location and spread of log-normal times known to lie in (low, high], and the AIC.

    The location is infinite if all times are censored, and minus infinity if none has a lower end: the likelihood then
    rises to one.
    """
    if not np.isfinite(high).any() or not low.any():
        return (-np.inf if np.isfinite(high).any() else np.inf, np.nan), 4.0
    with np.errstate(divide="ignore"):
        low, high = np.log(low), np.log(high)
    middle = np.where(np.isfinite(low) & np.isfinite(high), (low + high) / 2, np.where(np.isfinite(high), high, low))

    def loss(parameters):
        location, log_spread = parameters
        z = lambda x: (x - location) / np.exp(log_spread)  # noqa: E731
        mass = ndtr(z(high)) - ndtr(z(low))
        return -np.log(np.maximum(mass, 1e-300)).sum()

    first = [middle.mean(), np.log(middle.std() + 0.1)] if start is None else [start[0], np.log(start[1])]
    fit = minimize(loss, first, method="Nelder-Mead")
    return (fit.x[0], np.exp(fit.x[1])), 2 * fit.fun + 4


def pair_times(runs: Mapping[int, Coalescence]) -> pd.DataFrame:
    """Coalescence times of runs in which the same pairs of starts were given for every length and temperature.

    Parameters
    ----------
    runs : mapping of int to Coalescence
        By length; each holds the pairs of starts in the same order for every one of its temperatures.

    Returns
    -------
    DataFrame
        One row for each run of a pair: ``n, temperature, pair`` (place of the pair of starts among those of its
        temperature), ``met``, and ``time``, the steps until it met or, if it did not, the budget.
    """
    tables = []
    for n, run in runs.items():
        time = np.where(run.censored, run.n_steps, run.time)
        table = pd.DataFrame({"n": n, "temperature": run.temperature, "met": ~run.censored, "time": time})
        table.insert(2, "pair", table.groupby("temperature").cumcount())
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def coalescence_beside_mixing(
    table: TabularModel, x: ArrayLike, y: ArrayLike, temperatures: ArrayLike, *, n_steps: int, seed: int = 0
) -> pd.DataFrame:
    r"""Coalescence of a small system beside what is exactly known of it.

    Parameters
    ----------
    table : TabularModel
        All scores of the system (`exact.tabulate`).
    x, y : array_like, int[B, n]
        Starts of the pairs, the same at every temperature.
    temperatures : array_like, float[K]
    n_steps : int
        Budget of a pair.
    seed : int

    Returns
    -------
    DataFrame
        One row for each temperature: ``τ``; ``α`` and ``t_mix`` :math:`(\tfrac14)`, exact; ``contraction bound`` on
        it, infinite where :math:`\alpha \ge 1`; ``three quarters met``, the step by which that share of the pairs met,
        with its 95% interval ``low, high`` (nan, inf where the budget does not tell); ``met``, the share within the
        budget.
    """
    rows, n = [], check_contexts(x, table.n_tokens).shape[1]
    for temperature in check_temperatures(temperatures):
        alpha = exact.influence(table, n, temperature).sum(0).max()
        run = coalesce(table, x, y, n_steps=n_steps, temperature=temperature, seed=seed)
        met = pair_times({n: run})
        quarter = time_until(met.time, met.met, 0.75, unit="pairs")
        low, high = quarter.interval or (np.nan, np.inf)
        rows.append({
            "τ": temperature, "α": alpha, "t_mix": exact.mixing_time(exact.transition_matrix(table, n, temperature)),
            "contraction bound": contraction_bound(alpha, n), "three quarters met": quarter.value,
            "low": low, "high": high, "met": met.met.mean(),
        })  # fmt: skip
    return pd.DataFrame(rows)


@dataclass(frozen=True)
class Transition:
    """A logistic curve in log temperature.

    Attributes
    ----------
    center : float
        Temperature at which the probability is one half; nan if it is not within the temperatures tried.
    width : float
        Scale of the logistic curve in log temperature.
    interval : (float, float)
        95% bootstrap interval of `center`. If at no temperature some pairs met and others did not, the interval covers
        the two temperatures around the change. Both ends are nan if `center` is, if there is one pair, or if a tenth
        of the resamples or more has no center: where those lie is not known.
    centers, widths : ndarray, float64[R]
        Center and width of every bootstrap resample, in order; nan like `center`.
    """

    center: float
    width: float
    interval: Interval
    centers: np.ndarray
    widths: np.ndarray

    def __str__(self):
        if np.isnan(self.center):
            return "τ_c outside the grid"
        return f"τ_c = {self.center:.2f} [{self.interval[0]:.2f}, {self.interval[1]:.2f}]"

    def predict(self, temperature: ArrayLike) -> np.ndarray:
        """Fitted probability at `temperature`."""
        return 1 / (1 + np.exp(-(np.log(np.asarray(temperature)) - np.log(self.center)) / self.width))


def _logistic(temperature, success):
    """Center and width of a logistic regression on log temperature; the light penalty makes a fit exist.

    Both are nan if the curve does not rise, or its center is not within the temperatures tried.
    """
    x = np.log(temperature)
    if success.min() == success.max():
        return np.nan, np.nan
    fit = LogisticRegression(C=10.0).fit(x[:, None], success)
    slope = fit.coef_[0, 0]
    center = np.exp(-fit.intercept_[0] / slope) if slope > 0 else np.nan
    inside = slope > 0 and temperature.min() <= center <= temperature.max()
    return (center, 1 / slope) if inside else (np.nan, np.nan)


def transition_temperatures(frame: pd.DataFrame, *, n_resamples: int = 200, seed: int = 0) -> dict[int, Transition]:
    """Logistic fit of the share of pairs that met against log temperature, for every length.

    Parameters
    ----------
    frame : DataFrame
        One row per run: ``n``, ``temperature``, ``pair`` (number of the pair of starts) and ``met`` (bool).
    n_resamples : int
        Bootstrap resamples of the pairs. All lengths and temperatures share the starts, so they share the resamples.
    seed : int

    Returns
    -------
    dict of int to Transition

    Raises
    ------
    ValueError
        If a pair lacks a run at one of the temperatures of its length, has two, or is not known to have met; if a
        length has one temperature; if a length, temperature or pair is missing.
    """
    _check_runs(frame)
    rng, n_resamples = np.random.default_rng(check_seed(seed)), check_count(n_resamples, "n_resamples", least=1)
    pairs = np.sort(frame.pair.unique())
    resamples = [rng.choice(pairs, len(pairs)) for _ in range(n_resamples)]
    out = {}
    for n, group in frame.groupby("n"):
        table = group.pivot(index="pair", columns="temperature", values="met").astype(bool)
        temperatures = table.columns.to_numpy(float)

        def fit(rows, table=table, temperatures=temperatures):
            return _logistic(np.tile(temperatures, len(rows)), table.loc[rows].to_numpy().ravel())

        center, width = fit(pairs)
        centers, widths = np.array([fit(rows) for rows in resamples]).T
        interval = (np.nan, np.nan)
        if np.isfinite(center):
            k = int(np.clip(np.searchsorted(temperatures, center), 1, len(temperatures) - 1))
            ends = percentile_interval(centers[np.isfinite(centers)])
            sharp = table.mean().between(0.001, 0.999).sum() == 0  # no temperature with some that met and some not
            if len(pairs) > 1 and sharp:
                around = temperatures[k - 1], temperatures[k]
                interval = (float(np.fmin(ends[0], around[0])), float(np.fmax(ends[1], around[1])))
            elif len(pairs) > 1 and np.isfinite(centers).mean() > 0.9:
                interval = ends
        out[n] = Transition(float(center), float(width), interval, centers, widths)
    return out


def _check_runs(frame):
    """ValueError unless every pair has one run, with a known end, at each temperature of every length."""
    if frame.met.isna().any():
        raise ValueError(
            f"met must be true or false, got {frame.met.isna().sum()} runs without it: leave their pairs out"
        )
    if not frame.met.isin([True, False]).all():  # a text such as "False" would count as met
        raise ValueError(f"met must be true or false, got {frame.met[~frame.met.isin([True, False])].iloc[0]!r}")
    if frame.empty or frame[["n", "temperature", "pair"]].isna().any(axis=None):
        raise ValueError(f"every run must have its n, temperature and pair, got {len(frame.dropna())} of {len(frame)}")
    check_temperature(frame.temperature.to_numpy(float), (len(frame),))
    pairs = frame.pair.unique()
    for n, group in frame.groupby("n"):
        if group.temperature.nunique() < 2:
            raise ValueError(f"n = {n} has runs at one temperature: a transition takes two or more")
        count = group.groupby(["temperature", "pair"]).size().unstack(fill_value=0).reindex(columns=pairs, fill_value=0)
        odd = [(float(t), p, int(k)) for t, row in count.iterrows() for p, k in row.items() if k != 1]
        if odd:
            t, p, k = odd[0]
            raise ValueError(
                f"each pair must have one run at each temperature: at n = {n}, τ = {t:g} pair {p} has {k}"
                f"{f', and {len(odd) - 1} more are such' if len(odd) > 1 else ''}; run those, or leave their pairs out"
            )
