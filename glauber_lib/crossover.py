"""Growth laws and the transition temperature (paper §6.1)."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from scipy.special import ndtr
from sklearn.linear_model import LogisticRegression

from glauber_lib.stats import Interval, percentile_interval

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
    """
    return n / (1 - alpha) * np.log(n / (1 - chance)) if alpha < 1 else np.inf


def compare_growth(
    n: ArrayLike, low: ArrayLike, high: ArrayLike, *, n_resamples: int = 200, seed: int = 0
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
    n_resamples : int
        Bootstrap resamples of the trials within each length.
    seed : int

    Returns
    -------
    DataFrame
        Indexed by law: ``a`` with its 95% bootstrap interval ``low, high``, and ``aic`` (two parameters).
    """
    lengths, low, high = (np.asarray(v, float) for v in (n, low, high))
    rng = np.random.default_rng(seed)
    groups = [np.flatnonzero(lengths == value) for value in np.unique(lengths)]
    resamples = [np.concatenate([rng.choice(g, len(g)) for g in groups]) for _ in range(n_resamples)]
    rows = {}
    for law, function in GROWTH.items():
        scale = function(lengths)
        (location, spread), aic = _fit_log_normal(low / scale, high / scale)
        draws = [_fit_log_normal(low[r] / scale[r], high[r] / scale[r], (location, spread))[0][0] for r in resamples]
        ends = np.exp(percentile_interval(draws))
        rows[law] = {"a": np.exp(location), "low": ends[0], "high": ends[1], "aic": aic}
    return pd.DataFrame(rows).T


def _fit_log_normal(low, high, start=None):
    """Location and spread of log-normal times known to lie in (low, high], and the AIC."""
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
        the two temperatures around the change.
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
    """
    rng = np.random.default_rng(seed)
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
            around = (temperatures[k - 1], temperatures[k]) if sharp else ends
            interval = (float(min(ends[0], around[0])), float(max(ends[1], around[1])))
        out[n] = Transition(float(center), float(width), interval, centers, widths)
    return out
