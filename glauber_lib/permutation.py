"""Permutation tests: what a statistic would be if the labels of what was measured were exchanged."""

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from glauber_lib.checks import check_count, check_indices, check_seed


def _resampling(seed, n_resamples):
    """The generator of a seed, and the number of resamples."""
    return np.random.default_rng(check_seed(seed)), check_count(n_resamples, "n_resamples", least=1)


def holm(p: ArrayLike) -> np.ndarray:
    """p-values float[K] corrected for the number of them (Holm, 1979), in their order.

    A p-value that is nan is of a test that could not be done: it stays nan and counts for nothing. ValueError for
    others outside of 0 .. 1.
    """
    p = np.asarray(p, dtype=float)
    if p.ndim != 1 or ((p < 0) | (p > 1)).any():  # nan is neither
        raise ValueError(f"p must be a list of numbers in 0..1, or nan, got {p}")
    order = np.argsort(p)[: (~np.isnan(p)).sum()]  # nan is sorted last
    corrected = np.full(len(p), np.nan)
    corrected[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1)), 1)
    return corrected


def label_rises(gain: ArrayLike, own: ArrayLike, *, n_resamples: int = 10_000, seed: int = 0) -> pd.DataFrame:
    """Permutation test, for every label, of 'it rises more than the other labels that were not the seed's'.

    Under the null hypothesis a chain's rises are exchangeable between the labels that were not its seed's. The
    statistic is a label's mean rise over the chains it was not the seed of, less that of their other labels.

    Parameters
    ----------
    gain : array_like, float[C, L]
        Rise of each label's score along each chain.
    own : array_like, int[C]
        The seed's label of each chain.
    n_resamples : int
    seed : int

    Returns
    -------
    DataFrame
        Per label: ``rise`` (mean over the chains it was not the seed of), ``excess`` (the statistic), ``p`` (one-sided,
        never zero) and ``p_holm`` (corrected for the number of labels that could be tested). All are nan for a label
        that was every chain's seed, and all but ``rise`` if there are not three labels or more.

    Raises
    ------
    ValueError
        If `gain` is no table, a rise is not finite, or `own` does not hold one of the labels for each chain.
    """
    gain, rng, n_resamples = np.asarray(gain, float), *_resampling(seed, n_resamples)
    _check_table(gain, "gain")
    n_labels, rows = gain.shape[1], []
    if np.shape(own) != (len(gain),) or not np.isin(own, np.arange(n_labels)).all():
        raise ValueError(f"own must hold one of the labels 0..{n_labels - 1} for each of {len(gain)} chains, got {own}")
    own = check_indices(own, n_labels, "own")
    for label in range(n_labels):
        mine = gain[own != label]
        if not len(mine) or n_labels < 3:  # no chain, or no other label, to compare with
            rows.append({"rise": mine[:, label].mean() if len(mine) else np.nan, "excess": np.nan, "p": np.nan})
            continue
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
    return table.assign(p_holm=holm(table.p))


def group_difference(
    values: ArrayLike,
    groups: ArrayLike,
    *,
    blocks: ArrayLike | None = None,
    n_resamples: int = 10_000,
    seed: int = 0,
) -> tuple[float, float]:
    """Permutation test of 'the groups have the same mean vector': the share of the variance that lies between them.

    Parameters
    ----------
    values : array_like, float[C, L]
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

        Both are nan if the test cannot be done: within every block all rows are the same, or of one group.

    Raises
    ------
    ValueError
        If `values` is no table, a value is not finite, or `groups` or `blocks` do not hold one label for each row.
    """
    values, rng, n_resamples = np.asarray(values, float), *_resampling(seed, n_resamples)
    _check_table(values, "values")
    for name, labels in {"groups": groups, "blocks": groups if blocks is None else blocks}.items():
        if np.shape(labels) != (len(values),) or pd.isna(np.asarray(labels)).any():
            raise ValueError(f"{name} must hold one label for each of {len(values)} rows, got shape {np.shape(labels)}")
    block = np.zeros(len(values), int) if blocks is None else np.unique(np.asarray(blocks), return_inverse=True)[1]
    places = [np.flatnonzero(block == k) for k in range(block.max() + 1)]
    centered = np.empty_like(values)
    for place in places:
        centered[place] = values[place] - values[place].mean(0)
    index = np.unique(np.asarray(groups), return_inverse=True)[1]
    mixed = any(len(np.unique(index[place])) > 1 for place in places)
    if not mixed or (centered**2).sum() <= 1e-24 * (values**2).sum():  # but for rounding
        return np.nan, np.nan
    member = (index[:, None] == np.arange(index.max() + 1)).astype(float)  # (C, groups)
    between = lambda rows: ((member.T @ rows) ** 2 / member.sum(0)[:, None]).sum()  # noqa: E731
    observed = between(centered)
    drawn, order = [], np.arange(len(values))
    for _ in range(n_resamples):
        for place in places:
            order[place] = rng.permutation(place)
        drawn.append(between(centered[order]))
    p = (1 + (np.array(drawn) >= observed * (1 - 1e-12)).sum()) / (1 + n_resamples)
    return float(observed / (centered**2).sum()), float(p)


def _check_table(values, name):
    if values.ndim != 2 or not values.size:
        raise ValueError(f"{name} must be a table with a row for each chain, got shape {values.shape}")
    if not np.isfinite(values).all():
        rows = np.flatnonzero(~np.isfinite(values).all(axis=1)).tolist()
        raise ValueError(f"{name} must be finite, got nan or infinity in rows {rows[:10]}: leave them out or mend them")
