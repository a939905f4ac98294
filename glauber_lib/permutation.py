"""Permutation tests: what a statistic would be if the labels of what was measured were exchanged."""

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike


def holm(p: ArrayLike) -> np.ndarray:
    """p-values float[K] corrected for the number of them (Holm, 1979), in their order."""
    p = np.asarray(p, dtype=float)
    order, corrected = np.argsort(p), np.empty(len(p))
    corrected[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1)
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
        same less that of their other labels), ``t``, ``p`` (one-sided, of this label alone, never zero) and ``p_max``
        (corrected for S x L tests). All but ``rise`` are nan for a label that fewer than two chains can test, and if
        there are not three labels or more.

    Raises
    ------
    ValueError
        If a gain is not finite, or `own` does not hold one of the labels for each chain.
    """
    gains, own = np.asarray(gains, float), np.asarray(own)
    n_scorers, n_chains, n_labels = gains.shape
    if not np.isfinite(gains).all():
        raise ValueError(f"gains must be finite, got {(~np.isfinite(gains)).sum()} that are not")
    if own.shape != (n_chains,) or not np.isin(own, np.arange(n_labels)).all():
        raise ValueError(f"own must hold one of the labels 0..{n_labels - 1} for each of {n_chains} chains, got {own}")
    table = pd.DataFrame(
        [(s, k) for s in range(n_scorers) for k in range(n_labels)], columns=["scorer", "label"]
    ).assign(rise=_means(gains, own).ravel())
    if n_labels < 3:
        return table.assign(excess=np.nan, t=np.nan, p=np.nan, p_max=np.nan)
    rest = np.stack([np.delete(np.arange(n_labels), k) for k in own])  # (C, L - 1): what is exchanged
    values = np.take_along_axis(gains, rest[None], 2)
    values = (n_labels - 1) / (n_labels - 2) * (values - values.mean(2, keepdims=True))  # less the mean of the others
    place = (rest[..., None] == np.arange(n_labels)).astype(float)  # (C, L - 1, L)
    excess, t = _student(values[None], place)
    rng, drawn = np.random.default_rng(seed), []
    for first in range(0, n_resamples, 250):
        size = min(250, n_resamples - first)
        order = rng.random((size, n_chains, n_labels - 1)).argsort(2)  # the same for every scorer
        drawn.append(_student(np.take_along_axis(values[None], order[:, None], 3), place)[1])
    drawn = np.concatenate(drawn)  # (R, S, L)
    known = np.isfinite(t[0])
    share = lambda hits: np.where(known, (1 + hits.sum(0)) / (1 + n_resamples), np.nan)  # noqa: E731
    largest = np.where(known, drawn, -np.inf).max((1, 2))[:, None, None]
    p, p_max = share(drawn >= t - 1e-9), share(largest >= t - 1e-9)
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
        t = np.where(spread > 1e-24, mean / np.sqrt(spread), 0.0)
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
    """
    values, rng = np.asarray(values, float), np.random.default_rng(seed)
    block = np.zeros(len(values), int) if blocks is None else np.unique(np.asarray(blocks), return_inverse=True)[1]
    places = [np.flatnonzero(block == k) for k in range(block.max() + 1)]
    centered = np.empty_like(values)
    for place in places:
        centered[place] = values[place] - values[place].mean(0)
    index = np.unique(np.asarray(groups), return_inverse=True)[1]
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
