"""Every interval, test and verdict of the package."""

import warnings

import numpy as np
import pandas as pd
import scipy.stats
import statsmodels.api as sm
from statsmodels.stats.multitest import multipletests

# Verdicts and intervals ----------------------------------------------------------------------------------------------


def above(interval, null=0.0):
    """Verdict on 'greater than `null`' from a 95% interval: True, False, or undecided if it contains `null`."""
    low, high = interval
    return True if low > null else False if high < null else "not measurable here"


def bootstrap_interval(*samples, statistic=np.mean, groups=None, n_resamples=2_000, seed=0):
    """95% percentile bootstrap interval of a statistic, rows resampled together.

    Rows that share a passage are no independent draws; with `groups` whole groups are resampled, not rows.

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
    tuple of float
        Lower and upper end; both equal the statistic if all values are the same, both NaN if there is one group only.
    """
    samples = [np.asarray(s, dtype=float) for s in samples]
    if len(samples[0]) < 2 or all(np.ptp(s) == 0 for s in samples):
        value = float(statistic(*samples))
        return value, value
    if groups is not None:
        return _group_interval(samples, statistic, np.asarray(groups), n_resamples, seed)
    result = scipy.stats.bootstrap(
        samples, statistic, paired=True, vectorized=False, n_resamples=n_resamples, method="percentile",
        rng=np.random.default_rng(seed),
    )  # fmt: skip
    return float(result.confidence_interval.low), float(result.confidence_interval.high)


def _group_interval(samples, statistic, groups, n_resamples, seed):
    if groups.shape != (len(samples[0]),):
        raise ValueError(f"groups must hold one label for each of {len(samples[0])} rows, got shape {groups.shape}")
    names, group = np.unique(groups, return_inverse=True)
    if len(names) < 2:
        return np.nan, np.nan
    rng, values = np.random.default_rng(seed), np.empty(n_resamples)
    for k in range(n_resamples):
        times = np.bincount(rng.integers(len(names), size=len(names)), minlength=len(names))
        rows = np.repeat(np.arange(len(group)), times[group])
        values[k] = statistic(*(sample[rows] for sample in samples))
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)


def poisson_interval(count):
    """Exact 95% interval of a Poisson mean given one count."""
    low = scipy.stats.chi2.ppf(0.025, 2 * count) / 2 if count else 0.0
    return float(low), float(scipy.stats.chi2.ppf(0.975, 2 * count + 2) / 2)


def binned_intervals(x, y, *, groups=None, bins=6):
    """Means of `y` along `x` with 95% intervals.

    Parameters
    ----------
    x, y : array_like, float[K]
    groups : array_like, [K], optional
        See `bootstrap_interval`.
    bins : int
        Bins of about equal size, cut at quantiles of `x`; equal values share a bin, so there may be fewer.

    Returns
    -------
    DataFrame
        One row per bin: ``x`` (its median), ``mean, low, high, n``.
    """
    table = pd.DataFrame(
        {"x": np.asarray(x), "y": np.asarray(y), "group": np.arange(len(x)) if groups is None else groups}
    )
    rows = []
    for _, part in table.groupby(pd.qcut(table.x, bins, duplicates="drop"), observed=True):
        low, high = bootstrap_interval(part.y, groups=part.group)
        rows.append({"x": part.x.median(), "mean": part.y.mean(), "low": low, "high": high, "n": len(part)})
    return pd.DataFrame(rows)


def rank_correlation(x, y):
    """Spearman's ρ."""
    return float(np.corrcoef(scipy.stats.rankdata(x), scipy.stats.rankdata(y))[0, 1])


# Censored times ------------------------------------------------------------------------------------------------------


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


# Convergence of chains -----------------------------------------------------------------------------------------------


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


# Permutation tests ---------------------------------------------------------------------------------------------------


def label_rises(gain, own, *, n_resamples=10_000, seed=0):
    """Permutation test, for every label, of 'it rises more than the other labels that were not the seed's'.

    Under the null hypothesis a chain's rises are exchangeable between the labels that were not its seed's. The
    statistic is a label's mean rise over the chains it was not the seed of, less that of their other labels.

    Parameters
    ----------
    gain : ndarray, float[C, L]
        Rise of each label's score along each chain.
    own : ndarray, int[C]
        The seed's label of each chain.
    n_resamples : int
    seed : int

    Returns
    -------
    DataFrame
        Per label: ``rise`` (mean over the chains it was not the seed of), ``excess`` (the statistic), ``p`` (one-sided,
        never zero) and ``p_holm`` (corrected for the number of labels).
    """
    gain, own, rng = np.asarray(gain, float), np.asarray(own), np.random.default_rng(seed)
    n_labels, rows = gain.shape[1], []
    for label in range(n_labels):
        mine = gain[own != label]
        others = np.ones_like(mine, bool)
        others[np.arange(len(mine)), own[own != label]] = False
        values = mine[others].reshape(len(mine), n_labels - 1)  # the labels that were not the seed's
        center = values.mean(1)
        scale = (n_labels - 1) / (n_labels - 2)  # a value less the mean of the others
        observed = scale * (mine[:, label] - center).mean()
        picks = rng.integers(n_labels - 1, size=(n_resamples, len(mine)))
        drawn = scale * (values[np.arange(len(mine)), picks] - center).mean(1)
        p = (1 + (drawn >= observed - 1e-12).sum()) / (1 + n_resamples)
        rows.append({"rise": mine[:, label].mean(), "excess": observed, "p": p})
    table = pd.DataFrame(rows)
    return table.assign(p_holm=multipletests(table.p, method="holm")[1])


def group_difference(values, groups, *, blocks=None, n_resamples=10_000, seed=0):
    """Permutation test of 'the groups have the same mean vector': the share of the variance that lies between them.

    Parameters
    ----------
    values : ndarray, float[C, L]
    groups : array_like, [C]
        Any labels.
    blocks : array_like, [C], optional
        Rows are permuted within blocks alone, whose means are taken off first; default: one block.
    n_resamples : int
    seed : int

    Returns
    -------
    share : float
        Sum of squares between groups over the total one.
    p : float
        Share of random assignments to groups of the same sizes that give as much; never zero.
    """
    values, rng = np.asarray(values, float), np.random.default_rng(seed)
    blocks = np.zeros(len(values), int) if blocks is None else np.unique(blocks, return_inverse=True)[1]
    places = [np.flatnonzero(blocks == k) for k in range(blocks.max() + 1)]
    centered = np.empty_like(values)
    for place in places:
        centered[place] = values[place] - values[place].mean(0)
    index = np.unique(groups, return_inverse=True)[1]
    member = (index[:, None] == np.arange(index.max() + 1)).astype(float)  # (C, groups)
    between = lambda rows: ((member.T @ rows) ** 2 / member.sum(0)[:, None]).sum()  # noqa: E731
    observed = between(centered)
    drawn, order = [], np.arange(len(values))
    for _ in range(n_resamples):
        for place in places:
            order[place] = rng.permutation(place)
        drawn.append(between(centered[order]))
    drawn = np.array(drawn)
    p = (1 + (drawn >= observed * (1 - 1e-12)).sum()) / (1 + n_resamples)
    return float(observed / (centered**2).sum()), float(p)


# Runs of flags -------------------------------------------------------------------------------------------------------


def _true_runs(flags):
    """First and past-the-last index of every maximal run of true flags, int64[K, 2]."""
    return np.flatnonzero(np.diff(np.concatenate([[0], np.asarray(flags, int), [0]]))).reshape(-1, 2)
