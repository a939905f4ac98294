"""Permutation tests: what a statistic would be if the labels of what was measured were exchanged."""

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from glauber_lib.checks import check_count, check_indices, check_labels, check_numbers, check_seed
from glauber_lib.resampling import scale_of


def _resampling(seed, n_resamples):
    """The generator of a seed, and the number of resamples."""
    return np.random.default_rng(check_seed(seed)), check_count(n_resamples, "n_resamples", least=1)


def holm(p: ArrayLike) -> np.ndarray:
    """p-values float[K] corrected for the number of them (Holm, 1979), in their order.

    A p-value that is nan is of a test that could not be done: it stays nan and counts for nothing. ValueError for
    others outside of 0 .. 1.
    """
    p = check_numbers(p, "p")
    if p.ndim != 1 or ((p < 0) | (p > 1)).any():  # nan is neither
        raise ValueError(f"p must be a list of numbers in 0..1, or nan, got {p}")
    order = np.argsort(p)[: (~np.isnan(p)).sum()]  # nan is sorted last
    corrected = np.full(len(p), np.nan)
    corrected[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1)), 1)
    return corrected


def label_rises(gains: ArrayLike, own: ArrayLike, *, n_resamples: int = 10_000, seed: int = 0) -> pd.DataFrame:
    """Permutation test, for every label by every scorer, of 'it rises more than the labels that were not the seed's'.

    Under the null hypothesis the labels that were not a chain's seed's can be exchanged in this chain. They are, for
    all scorers at once. The statistic of a label is Student's t over chains of its gain less the mean gain of the
    others: it is studentised, so that a label that merely varies more than others does not stand out by that. The
    maximum of t over labels and scorers corrects for their number (Westfall and Young, 1993).

    Parameters
    ----------
    gains : array_like, float[S, C, L]
        By each of S scorers, what each label gained along each of C chains, one number for the whole path.
    own : array_like, int[C]
        The seed's label of each chain.
    n_resamples : int
    seed : int

    Returns
    -------
    DataFrame
        Per ``scorer`` and ``label`` (numbers): ``rise`` (mean over the chains it was not the seed of), ``excess`` (the
        same less that of their other labels), ``t`` (infinite where the excess is the same in all chains), ``p``
        (one-sided, of this label alone, never zero) and ``p_max`` (corrected for S x L tests). All but ``rise`` are nan
        for a label that fewer than two chains can test, and if there are not three labels or more.

    Raises
    ------
    ValueError
        If `gains` are no numbers by scorer, chain and label, one is not finite, or `own` does not hold one of the
        labels for each chain.
    """
    gains, rng, n_resamples = check_numbers(gains, "gains"), *_resampling(seed, n_resamples)
    if gains.ndim != 3 or not gains.size:
        raise ValueError(f"gains must have shape (scorers, chains, labels), got {gains.shape}")
    n_scorers, n_chains, n_labels = gains.shape
    _check_table(gains.transpose(1, 0, 2).reshape(n_chains, -1), "gains")
    if np.shape(own) != (n_chains,) or not np.isin(own, np.arange(n_labels)).all():
        raise ValueError(f"own must hold one of the labels 0..{n_labels - 1} for each of {n_chains} chains, got {own}")
    own, scale = check_indices(own, n_labels, "own"), scale_of(gains, axis=(1, 2))
    gains = gains / scale[:, None, None]
    table = pd.DataFrame(
        [(s, k) for s in range(n_scorers) for k in range(n_labels)], columns=["scorer", "label"]
    ).assign(rise=(_means(gains, own) * scale[:, None]).ravel())
    if n_labels < 3:
        return table.assign(excess=np.nan, t=np.nan, p=np.nan, p_max=np.nan)
    rest = np.stack([np.delete(np.arange(n_labels), k) for k in own])  # (C, L - 1): what is exchanged
    values = np.take_along_axis(gains, rest[None], 2)
    values = (n_labels - 1) / (n_labels - 2) * (values - values.mean(2, keepdims=True))  # less the mean of the others
    values[np.abs(values) <= 1e-12 * np.abs(gains).max((1, 2), keepdims=True)] = 0.0  # equal but for rounding
    place = (rest[..., None] == np.arange(n_labels)).astype(float)  # (C, L - 1, L)
    excess, t = _student(values[None], place)
    drawn = []
    for first in range(0, n_resamples, 250):
        size = min(250, n_resamples - first)
        order = rng.random((size, n_chains, n_labels - 1)).argsort(2)  # the same for every scorer
        drawn.append(_student(np.take_along_axis(values[None], order[:, None], 3), place)[1])
    drawn = np.concatenate(drawn)  # (R, S, L)
    known = ~np.isnan(t[0])
    share = lambda hits: np.where(known, (1 + hits.sum(0)) / (1 + n_resamples), np.nan)  # noqa: E731
    largest = np.where(known, drawn, -np.inf).max((1, 2))[:, None, None]
    # t rounds by about 1e-16 t³, as mean and mean square cancel in it; an infinite one has no equal but itself
    least = np.where(np.isinf(t), t, t - 1e-9 - 5e-16 * np.abs(np.where(np.isinf(t), 0.0, t)) ** 3)
    p, p_max = share(drawn >= least), share(largest >= least)
    excess = excess * scale[:, None]
    return table.assign(excess=excess.ravel(), t=t.ravel(), p=p.ravel(), p_max=p_max.ravel())


def _means(gains, own):
    """Mean gain [S, L] of each label over the chains that it was not the seed of; nan if there is none."""
    counts = own[:, None] != np.arange(gains.shape[2])
    with np.errstate(invalid="ignore"):
        return (gains * counts).sum(1) / counts.sum(0)


def _student(values, place):
    """Mean and Student's t over chains [R, S, L] of values [R, S, C, L - 1] at their places [C, L - 1, L]."""
    n = place.sum((0, 1))
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.einsum("rsck,ckl->rsl", values, place) / n
        spread = (np.einsum("rsck,ckl->rsl", values**2, place) / n - mean**2).clip(min=0) / (n - 1)
        spread = np.where(spread * (n - 1) <= 1e-13 * mean**2, 0.0, spread)  # but for rounding
        t = np.where(mean == 0, 0.0, mean / np.sqrt(spread))
    known = n >= 2
    return np.where(known, mean, np.nan), np.where(known, t, np.nan)


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
    values, rng, n_resamples = check_numbers(values, "values"), *_resampling(seed, n_resamples)
    _check_table(values, "values")
    values = values / scale_of(values)
    groups = check_labels(groups, "groups", len(values))
    blocks = np.zeros(len(values), int) if blocks is None else check_labels(blocks, "blocks", len(values))
    block = np.unique(blocks, return_inverse=True)[1]
    places = [np.flatnonzero(block == k) for k in range(block.max() + 1)]
    centered = np.empty_like(values)
    for place in places:
        centered[place] = values[place] - values[place].mean(0)
    index = np.unique(groups, return_inverse=True)[1]
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
