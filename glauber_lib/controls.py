"""Controls of what a scorer says of a chain's texts: what it says of other texts, and of those that are states.

A scorer of topics answers for any text, noise included. A rise of a label along a chain is a property of the chain
only as far as it exceeds the scorer's answer to texts of the same tokens in another order, and to tokens at random.
"""

import numpy as np
from numpy.typing import ArrayLike

from glauber_lib.checks import check_contexts, check_count, check_flags, check_indices, check_numbers, unmasked
from glauber_lib.stats import Estimate, bootstrap_estimate


def shuffle_sites(states: ArrayLike, rng: np.random.Generator) -> np.ndarray:
    """States int[..., n] with the tokens of each permuted over its sites: the same words, no order."""
    if not (states := unmasked(states, "states")).size:
        raise ValueError(f"need a state at least, got shape {states.shape}")
    states = np.atleast_1d(states)
    return rng.permuted(check_contexts(states.reshape(-1, states.shape[-1])).reshape(states.shape), axis=-1)


def first_crossings(scores: ArrayLike, baseline: float) -> tuple[np.ndarray, np.ndarray]:
    """Which labels start below their baseline, and which of these are above it at a later look.

    Parameters
    ----------
    scores : array_like, float[K, C, L]
        Of K looks at C chains.
    baseline : float

    Returns
    -------
    low, crossed : ndarray, bool[C, L]

    Raises
    ------
    ValueError
        For scores that are nan, masked, no real numbers or of another shape, or a baseline that is not finite.
    """
    check_numbers(scores, "scores")
    scores = np.asarray(scores)  # float32 stays
    if scores.ndim < 2 or not len(scores):
        raise ValueError(f"scores must have shape (looks, chains, labels), with a look at least, got {scores.shape}")
    if np.isnan(scores).any() or not np.isfinite(baseline):
        raise ValueError(f"scores and baseline must be numbers, got {np.isnan(scores).sum()} nan, baseline {baseline}")
    low = scores[0] <= baseline
    return low, (scores[1:] > baseline).any(0) & low


def crossing_excess(
    low: np.ndarray, crossed: np.ndarray, own: ArrayLike, label: int, *, unit: str = "chains"
) -> Estimate:
    """How much oftener chains cross the baseline of one label than those of the labels that were not the seed's.

    In each chain: whether it crosses that of `label`, less the share of the others that it crosses, of those that
    started below. The mean is over the chains in which `label` and another one started below; nan if there is none.

    Parameters
    ----------
    low, crossed : ndarray, bool[C, L]
        From `first_crossings`.
    own : array_like, int[C]
        The seed's label of each chain, which is left out.
    label : int
    unit : str

    Raises
    ------
    ValueError
        For labels that there are not, or flags that are neither true nor false, or not of one shape.
    """
    low, crossed = check_flags(low, "low"), check_flags(crossed, "crossed")
    if low.ndim != 2 or low.shape != crossed.shape or np.shape(own) != (len(low),):
        raise ValueError(
            f"low and crossed must have shape (chains, labels), and own one label for each chain, got {low.shape}, "
            f"{crossed.shape} and {np.shape(own)}"
        )
    own, label = check_indices(own, low.shape[1], "own"), check_count(label, "label", most=low.shape[1] - 1)
    rest = low.copy()
    rest[np.arange(len(rest)), own] = False
    there = rest[:, label].copy()
    rest[:, label] = False
    there &= rest.any(1)
    others = (crossed & rest)[there].sum(1) / rest[there].sum(1)
    if not there.any():
        return Estimate(np.nan, None, 0, unit)
    return bootstrap_estimate(crossed[there, label] - others, unit=unit)


def chance_crossing(share: float, looks: int) -> float:
    """Chance that one of some independent looks is above a baseline, if a share of all texts is.

    ValueError for a `share` outside of 0 .. 1, or `looks` that are no whole number >= 0.
    """
    looks = check_count(looks, "looks")
    if not 0 <= share <= 1:
        raise ValueError(f"share must lie in 0 .. 1, got {share!r}")
    return float(-np.expm1(looks * np.log1p(-share))) if share < 1 else float(looks > 0)


def surviving_difference(values: ArrayLike, survives: ArrayLike, *, unit: str = "chains") -> Estimate:
    """What a mean over looks changes by when only looks at states that are the states of their texts are kept.

    In each chain the mean over the looks that survive less that over all looks; chains of which none survives say
    nothing and are not counted. The change is nan where a value is nan, or no look survives.

    Parameters
    ----------
    values, survives : array_like, float[K, C] and bool[K, C]
        Of K looks at C chains: what was read, and whether the text is tokenised to the state again.
    unit : str

    Raises
    ------
    ValueError
        For values that are no numbers, flags that are neither true nor false, or not one of each for every look.
    """
    values, survives = check_numbers(values, "values"), check_flags(survives, "survives")
    if values.ndim != 2 or values.shape != survives.shape:
        raise ValueError(f"values and survives must have shape (looks, chains), got {values.shape}, {survives.shape}")
    some = survives.any(0)
    if not some.any():
        return Estimate(np.nan, None, 0, unit)
    kept = np.where(survives, values, 0).sum(0)[some] / survives.sum(0)[some]
    return bootstrap_estimate(kept - values.mean(0)[some], unit=unit)
