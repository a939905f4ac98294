r"""Tensorization of the Kullback–Leibler divergence over masks, and what it bounds (Li et al., 2024, §4.1.3).

:math:`C_{AT}(q)` is the least constant with

.. math:: \mathrm{KL}(r \| q) \le C_{AT}(q)\; E_{X \sim r} E_{K}\,
    \mathrm{KL}\bigl(r(\cdot \mid X_{-K}) \,\|\, q(\cdot \mid X_{-K})\bigr) \quad\text{for every law } r

(Definition 4.1.9, here for masks that do not depend on the tokens). With `r` the true law it bounds the distance of a
fitted law by its loss. A supremum over laws has no closed form; `tensorization_constant` finds a lower bound.
"""

import numpy as np
import scipy.optimize
import scipy.special
from numpy.typing import ArrayLike

from glauber_lib.blocks import Blocks, check_block_weights, check_blocks
from glauber_lib.checks import check_count, check_numbers, check_seed
from glauber_lib.pseudolikelihood import check_law, mixing_constant


def excess_loss(r: ArrayLike, q: ArrayLike, masks: Blocks, weights: ArrayLike | None = None) -> float:
    """Mean over masks and contexts of the divergence of the conditionals of `q` from those of `r`, in nats.

    It is the loss of `q` under data from `r`, less the `entropy_floor`. Infinite where `q` lacks a state that `r` has.

    Parameters
    ----------
    r, q : array_like, float64[V, ..., V]
    masks : list of lists of int
    weights : array_like, float64[M], optional
        Probabilities of the masks; uniform by default.

    Raises
    ------
    ValueError
        For laws of different shapes, and as `pseudolikelihood.information`.
    """
    r, q, masks, weights = _checked(r, q, masks, weights)
    if ((q == 0) & (r > 0)).any():  # perhaps at the visible sites already, where the difference is no number
        return np.inf
    return float(weights @ [_divergence(r, q) - _divergence(r.sum(mask), q.sum(mask)) for mask in masks])


def entropy_floor(law: ArrayLike, masks: Blocks, weights: ArrayLike | None = None) -> float:
    """Mean over masks of the entropy of the masked tokens given the rest, in nats: the least loss that there is.

    ValueError as `excess_loss`.
    """
    law, _, masks, weights = _checked(law, law, masks, weights)
    entropy = lambda p: -float((p[p > 0] * np.log(p[p > 0])).sum())  # noqa: E731
    return float(weights @ [entropy(law) - entropy(law.sum(mask)) for mask in masks])


def tensorization_constant(
    law: ArrayLike,
    masks: Blocks,
    weights: ArrayLike | None = None,
    *,
    starts: int = 4,
    iterations: int = 100,
    seed: int = 0,
) -> float:
    """A lower bound on the tensorization constant of a law, by climbing from several laws `r`.

    It is never below the Poincaré constant, which is the limit of `r` near the law, where that can be told
    (`blocks.poincare_constant`), nor below what the laws on single states give.

    Parameters
    ----------
    law : array_like, float64[V, ..., V]
        All probabilities positive.
    masks, weights
        See `excess_loss`.
    starts : int
        Random laws to climb from, by L-BFGS.
    iterations : int
        Of each climb.
    seed : int

    Raises
    ------
    ValueError
        As `excess_loss`; for a law with a zero.
    """
    q, _, masks, weights = _checked(law, law, masks, weights)
    starts, iterations = check_count(starts, "starts"), check_count(iterations, "iterations", 1)
    rng, best = np.random.default_rng([check_seed(seed), 5]), mixing_constant(q, masks, weights)
    surprise = -np.log(q)
    at_states = sum(w * (surprise + np.log(q.sum(m, keepdims=True))) for m, w in zip(masks, weights, strict=True))
    best = float(np.fmax(best, (surprise / at_states)[at_states > 1e-12].max(initial=0)))  # of nan the other

    def ratio(logits):
        """Minus the ratio of the two divergences at r = softmax(logits), and its gradient."""
        log_r = (logits - scipy.special.logsumexp(logits)).reshape(q.shape)
        r, relative = np.exp(log_r), log_r - np.log(q)
        whole = (r * relative).sum()
        part, slope = 0.0, np.zeros(q.shape)
        for mask, weight in zip(masks, weights, strict=True):
            inner, outer = scipy.special.logsumexp(log_r, mask, keepdims=True), np.log(q.sum(mask, keepdims=True))
            term = relative - (inner - outer)
            part, slope = part + weight * (r * term).sum(), slope + weight * term
        if part < 1e-9:  # too near the law: rounding would decide
            return 0.0, np.zeros(r.size)
        gradient = (relative * part - slope * whole) / part**2
        gradient = r * (gradient - (r * gradient).sum())
        return -whole / part, -gradient.ravel()

    for scale in np.resize([0.5, 1.0, 3.0], starts):
        first = np.log(q).ravel() + scale * rng.normal(size=q.size)
        found = scipy.optimize.minimize(
            ratio, first, jac=True, method="L-BFGS-B", options={"maxiter": iterations, "maxfun": 4 * iterations}
        )
        best = max(best, float(-found.fun))
    return best


def finite_sample_bound(
    constant: float,
    loss: float,
    *,
    n: int,
    masks_each: float,
    n_sites: int,
    n_tokens: int,
    log_inverse_beta: float,
    log_cells: float,
    epsilon: float = 0.05,
    delta: float = 0.1,
) -> float:
    r"""The bound of Theorem 4.1.4 on the total variation of the fitted law, true with probability 1 - delta.

    .. math:: \sqrt{\tfrac12 C_{AT} (\hat L + B \ln\tfrac1\beta + \varepsilon)}
        + \sqrt{\frac{|\Omega|^{3N}}{8 \delta n}}, \qquad
        B = \sqrt{\frac{2^{3N} |\Omega|^N C_\varepsilon}{m \delta}} + \sqrt{\frac{\ln(8 C_\varepsilon/\delta)}{2n}}

    Above one it says nothing.

    Parameters
    ----------
    constant : float
        Tensorization constant of the fitted law.
    loss : float
        The empirical loss: of cross-entropy as defined, of divergences as the proof takes it.
    n : int
        Samples.
    masks_each : float
        Masks m drawn for each sample; inf where the mask is fixed or all are read.
    n_sites, n_tokens : int
    log_inverse_beta : float
        Logarithm of one over the least conditional probability of the family.
    log_cells : float
        Logarithm of the number of cells, of which each changes log-probabilities by at most epsilon/2.
    epsilon, delta : float

    Raises
    ------
    ValueError
        For numbers that are not positive (the loss and logarithms: not negative), or a delta of one or more.
    """
    n, n_sites, n_tokens = (
        check_count(n, "n", 1),
        check_count(n_sites, "n_sites", 1),
        check_count(n_tokens, "n_tokens", 1),
    )
    values = {"constant": constant, "masks_each": masks_each, "epsilon": epsilon, "delta": delta}
    values |= {"loss": loss, "log_inverse_beta": log_inverse_beta, "log_cells": log_cells}
    for name, value in values.items():
        number, zero = check_numbers(value, name), name in ("loss", "log_inverse_beta", "log_cells")
        least = number >= 0 if zero else number > 0
        if number.ndim or not least or (name == "delta" and number >= 1) or (name != "masks_each" and np.isinf(number)):
            raise ValueError(f"{name} must be one number {'>= 0' if zero else '> 0'}, and delta < 1, got {value!r}")
    with np.errstate(over="ignore"):
        log_first = (3 * n_sites * np.log(2) + n_sites * np.log(n_tokens) + log_cells - np.log(delta)) / 2
        of_masks = np.exp(log_first - np.log(masks_each) / 2) if np.isfinite(masks_each) else 0.0
        of_samples = np.sqrt((np.log(8 / delta) + log_cells) / (2 * n))
        inner = loss + (of_masks + of_samples) * log_inverse_beta + epsilon
        law = np.exp((3 * n_sites * np.log(n_tokens) - np.log(8 * delta * n)) / 2)
        return float(np.sqrt(constant * inner / 2) + law)


def _checked(r, q, masks, weights):
    """Both laws, masks and their weights; ValueError for what does not fit."""
    r, q = check_law(r), check_law(q)
    if r.shape != q.shape:
        raise ValueError(f"need two laws of one shape, got {r.shape} and {q.shape}")
    masks = check_blocks(masks, r.ndim)
    return r, q, masks, check_block_weights(weights, len(masks))


def _divergence(r, q):
    """Kullback–Leibler divergence in nats."""
    there = r > 0
    if (q[there] == 0).any():
        return np.inf
    return float((r[there] * np.log(r[there] / q[there])).sum())
