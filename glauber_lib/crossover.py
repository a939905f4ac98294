"""Growth laws, censored times and the transition temperature (paper §6.1)."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import statsmodels.api as sm
from scipy.optimize import minimize

GROWTH = {"n": lambda n: n, "n log n": lambda n: n * np.log(n), "n²": lambda n: n**2, "√n": np.sqrt}


def median_survival(time, observed):
    """Kaplan–Meier median of right-censored times; nan if more than half are censored.

    Parameters
    ----------
    time : array_like, float[K]
        Time of the event, or of the end of observation.
    observed : array_like, bool[K]
        Whether the event was seen.
    """
    time, observed = np.asarray(time, float), np.asarray(observed, bool)
    if not observed.any():
        return float("nan")
    return float(sm.SurvfuncRight(time, observed.astype(int)).quantile(0.5))


def compare_growth(n, time):
    r"""Least-squares fits of ``a * f(n)`` to times, for the laws of `GROWTH`.

    Returns
    -------
    DataFrame
        Indexed by law: ``a`` and ``aic`` (Gaussian errors of unknown variance; nan with fewer than three finite times).
    """
    n, time = np.asarray(n, float), np.asarray(time, float)
    finite = np.isfinite(time)
    rows = {}
    for law, function in GROWTH.items():
        if finite.sum() < 3:
            rows[law] = {"a": np.nan, "aic": np.nan}
        else:
            fit = sm.OLS(time[finite], function(n[finite])).fit()
            rows[law] = {"a": fit.params[0], "aic": fit.aic}
    return pd.DataFrame(rows).T


@dataclass(frozen=True)
class Transition:
    """A logistic curve in log temperature.

    Attributes
    ----------
    center : float
        Temperature at which the probability is one half; nan if the data do not show both sides.
    width : float
        Scale of the logistic curve in log temperature.
    interval : tuple of float
        95% bootstrap interval of `center`.
    """

    center: float
    width: float
    interval: tuple

    def __str__(self):
        if np.isnan(self.center):
            return "τ_c outside the grid"
        return f"τ_c = {self.center:.2f} [{self.interval[0]:.2f}, {self.interval[1]:.2f}]"

    def predict(self, temperature):
        """Fitted probability at `temperature`."""
        return 1 / (1 + np.exp(-(np.log(temperature) - np.log(self.center)) / self.width))


def _logistic_fit(x, y):
    """Center and log-width in `x` by penalised likelihood, so that separated data give a finite width."""

    def loss(parameters):
        center, log_width = parameters
        z = (x - center) / np.exp(log_width)
        return (np.logaddexp(0, z) - y * z).sum() + 0.5 * ((log_width - np.log(0.3)) / 1.0) ** 2

    return minimize(loss, [x.mean(), np.log(0.3)], method="Nelder-Mead").x


def transition_temperature(temperature, success, *, n_resamples=200, seed=0):
    """Logistic fit of the share of successes against log temperature.

    A weak prior on the width (log-normal about 0.3, one unit of log) keeps it finite when the data are separated.

    Parameters
    ----------
    temperature : array_like, float[K]
    success : array_like, bool[K]
    n_resamples : int
        Bootstrap resamples, drawn within each temperature.
    seed : int

    Returns
    -------
    Transition
    """
    x, y = np.log(np.asarray(temperature, float)), np.asarray(success, float)
    if y.min() == y.max():
        return Transition(float("nan"), float("nan"), (float("nan"), float("nan")))
    center, log_width = _logistic_fit(x, y)
    rng = np.random.default_rng(seed)
    groups = [np.flatnonzero(x == value) for value in np.unique(x)]
    centers = []
    for _ in range(n_resamples):
        rows = np.concatenate([rng.choice(g, len(g)) for g in groups])
        if y[rows].min() < y[rows].max():
            centers.append(_logistic_fit(x[rows], y[rows])[0])
    low, high = np.exp(np.quantile(centers, [0.025, 0.975]))
    return Transition(float(np.exp(center)), float(np.exp(log_width)), (float(low), float(high)))
