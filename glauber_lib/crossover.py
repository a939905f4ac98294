"""Growth laws, censored times and the transition temperature (paper §6.1)."""

import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
import statsmodels.api as sm
from scipy.optimize import minimize
from scipy.special import ndtr
from sklearn.linear_model import LogisticRegression

GROWTH = {"n": lambda n: n, "n log n": lambda n: n * np.log(n), "n²": lambda n: n**2, "√n": np.sqrt}


def _kaplan_meier(time, observed):
    """The curve of right-censored times; None if no event was seen."""
    observed = np.asarray(observed, bool)
    return sm.SurvfuncRight(np.asarray(time, float), observed.astype(int)) if observed.any() else None


def median_survival(time, observed):
    """Kaplan–Meier median of right-censored times; nan if the curve does not fall below one half.

    Parameters
    ----------
    time : array_like, float[K]
        Time of the event, or of the end of observation.
    observed : array_like, bool[K]
        Whether the event was seen.
    """
    fit = _kaplan_meier(time, observed)
    return float(fit.quantile(0.5)) if fit else float("nan")


def median_interval(time, observed):
    """95% interval of `median_survival` (inverted test of the curve); the upper end may be infinite."""
    fit = _kaplan_meier(time, observed)
    return tuple(map(float, fit.quantile_ci(0.5))) if fit else (float("nan"), float("inf"))


def survival_curve(time, observed):
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
    fit, end = _kaplan_meier(time, observed), float(np.max(time))
    if fit is None:
        return pd.DataFrame({"time": [0.0, end], "share": 1.0, "low": np.nan, "high": np.nan})
    share, error = fit.surv_prob, fit.surv_prob_se
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = 1.96 * error / (share * np.abs(np.log(share)))
        low, high = share ** np.exp(spread), share ** np.exp(-spread)
    curve = pd.DataFrame({"time": fit.surv_times.astype(float), "share": share, "low": low, "high": high})
    first = pd.DataFrame({"time": [0.0], "share": [1.0], "low": [np.nan], "high": [np.nan]})
    return pd.concat([first, curve, curve.iloc[[-1]].assign(time=end)], ignore_index=True)


def coalescence_bound(alpha, n, chance=0.5):
    r"""Steps within which a pair has met with at least `chance`, where alpha < 1; infinite otherwise.

    By contraction the expected Hamming distance after t steps is at most :math:`n (1 - (1 - \alpha)/n)^t`, and a pair
    that has not met is at distance one at least: :math:`t = n/(1 - \alpha) \log(n/(1 - \mathrm{chance}))` suffices.
    """
    return n / (1 - alpha) * np.log(n / (1 - chance)) if alpha < 1 else np.inf


def convergence(draws):
    r"""What practitioners check: rank-normalised split :math:`\hat R` and bulk effective sample size, by arviz.

    Parameters
    ----------
    draws : array_like, float[C, K]
        A scalar summary of C chains at K times.

    Returns
    -------
    dict
        ``rhat`` (near one where the chains agree) and ``ess`` (in draws). Where every chain stands still ``rhat`` is
        infinite, or nan if all stand at one value, and ``ess`` is nan.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # arviz announces its next version at import
        import arviz

    draws = np.asarray(draws, float)
    if draws.ndim != 2 or draws.shape[0] < 2 or draws.shape[1] < 4:
        raise ValueError(f"need at least 2 chains of 4 draws, got shape {draws.shape}")
    if not np.ptp(draws, axis=1).any():
        return {"rhat": np.inf if np.ptp(draws) else np.nan, "ess": np.nan}
    return {"rhat": float(arviz.rhat(draws)), "ess": float(arviz.ess(draws))}


def compare_growth(n, low, high, *, n_resamples=200, seed=0):
    r"""Fits of :math:`T = a f(n) e^{\sigma\varepsilon}`, with normal errors, for the laws f of `GROWTH`.

    Maximum likelihood with every trial counted as what is known of it: an interval, or a bound from below.

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
        Indexed by law: ``a`` with its 95% bootstrap interval ``low, high``, and ``aic``.
    """
    n, low, high = (np.asarray(v, float) for v in (n, low, high))
    rng = np.random.default_rng(seed)
    groups = [np.flatnonzero(n == value) for value in np.unique(n)]
    resamples = [np.concatenate([rng.choice(g, len(g)) for g in groups]) for _ in range(n_resamples)]
    rows = {}
    for law, function in GROWTH.items():
        scale = function(n)
        (location, spread), aic = _fit_log_normal(low / scale, high / scale)
        draws = [_fit_log_normal(low[r] / scale[r], high[r] / scale[r], (location, spread))[0][0] for r in resamples]
        ends = np.exp(np.quantile(draws, [0.025, 0.975]))
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
    interval : tuple of float
        95% bootstrap interval of `center`, at least as wide as the gap of the grid in which the change happens.
    centers, widths : ndarray, float64[R]
        Of the bootstrap resamples, in their order.
    """

    center: float
    width: float
    interval: tuple
    centers: np.ndarray
    widths: np.ndarray

    def __str__(self):
        if np.isnan(self.center):
            return "τ_c outside the grid"
        return f"τ_c = {self.center:.2f} [{self.interval[0]:.2f}, {self.interval[1]:.2f}]"

    def predict(self, temperature):
        """Fitted probability at `temperature`."""
        return 1 / (1 + np.exp(-(np.log(temperature) - np.log(self.center)) / self.width))


def _logistic(temperature, success):
    """Center and log-width of a logistic regression on log temperature, lightly penalised so that it exists."""
    x = np.log(temperature)
    if success.min() == success.max():
        return np.nan, np.nan
    fit = LogisticRegression(C=10.0).fit(x[:, None], success)
    slope = fit.coef_[0, 0]
    center = np.exp(-fit.intercept_[0] / slope) if slope > 0 else np.nan
    inside = slope > 0 and temperature.min() <= center <= temperature.max()
    return (center, 1 / slope) if inside else (np.nan, np.nan)


def transition_temperatures(frame, *, n_resamples=200, seed=0):
    """Logistic fit of the share of pairs that met against log temperature, for every length.

    Parameters
    ----------
    frame : DataFrame
        One row per run: ``n``, ``temperature``, ``pair`` (number of the pair of starts) and ``met`` (bool).
    n_resamples : int
        Bootstrap resamples of the pairs, the same for all lengths and temperatures, since they share the starts.
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
            ends = np.nanquantile(centers, [0.025, 0.975])
            sharp = table.mean().between(0.001, 0.999).sum() == 0  # no temperature with some that met and some not
            around = (temperatures[k - 1], temperatures[k]) if sharp else ends
            interval = (float(min(ends[0], around[0])), float(max(ends[1], around[1])))
        out[n] = Transition(float(center), float(width), interval, centers, widths)
    return out
