r"""Exact kernels that resample a block of sites in a step, on small systems.

A block :math:`K` is drawn from a law of blocks, then its tokens by one of the kernels of `kernels.update_block`. For
the law `p` of a joint and sequential draws that is weighted block dynamics (Li et al., 2024, Definition 4.1.6),

.. math:: P(x, y) = \sum_K p_{\mathcal K}(K)\, \mathbf 1\{y_{-K} = x_{-K}\}\, p(y_K \mid x_{-K}),

an average of projections: reversible, with law `p` and without negative eigenvalues. Its Poincaré constant is
:math:`C = 1/(1 - \lambda_2)`: :math:`\mathrm{Var}_p(f) \le C\, \mathcal E(f, f)` for every `f`.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from glauber_lib.answers import ask, refuse_unable_to_hide
from glauber_lib.checks import check_contexts, check_count, check_indices, check_numbers, check_temperature
from glauber_lib.draws import probabilities
from glauber_lib.exact import DENSE, Sparse, escape_times
from glauber_lib.kernels import INSIDES
from glauber_lib.matrices import check_stationary, check_steps
from glauber_lib.models import ConditionalModel, all_states, check_system

Blocks = Sequence[Sequence[int]]


def blocks_of_size(n_sites: int, size: int) -> list[tuple[int, ...]]:
    """All blocks of `size` of the sites ``0 .. n_sites - 1``."""
    n_sites = check_count(n_sites, "n_sites", 1)
    return list(combinations(range(n_sites), check_count(size, "size", 1, n_sites)))


def check_blocks(blocks: Blocks, n_sites: int) -> list[tuple[int, ...]]:
    """Blocks as tuples of rising sites; ValueError for none, an empty one, or sites twice or not there."""
    if isinstance(blocks, str | bytes) or not np.iterable(blocks) or not len(blocks):
        raise ValueError(f"blocks must be a list of lists of sites, got {blocks!r}")
    found = []
    for block in blocks:
        sites = check_indices(block, n_sites, "sites of blocks")
        if sites.ndim != 1 or not sites.size or len(np.unique(sites)) < len(sites):
            raise ValueError(f"a block must hold distinct sites, one at least, got {sites.tolist()}")
        found.append(tuple(sorted(sites.tolist())))
    return found


def check_block_weights(weights: ArrayLike | None, n_blocks: int, size: int | None = None) -> np.ndarray:
    """The law of the blocks, float64[M], or float64[S, M] of S states; uniform by default.

    ValueError for another shape, a negative weight, or weights (of a state) that do not sum to one within 1e-9: what is
    left out would count as a chance to stay, which decides where a chain is slow.
    """
    if weights is None:
        return np.full(n_blocks, 1 / n_blocks)
    law = check_numbers(weights, "weights")
    shapes = [(n_blocks,)] if size is None else [(n_blocks,), (size, n_blocks)]
    sums = law.sum(-1, keepdims=True)
    if law.shape not in shapes or not (law >= 0).all() or not (np.abs(sums - 1) < 1e-9).all():
        wanted = " or ".join(map(str, shapes))
        raise ValueError(
            f"weights must be probabilities of the blocks, of shape {wanted}, got shape {law.shape}, sums "
            f"{sums.min():.12g} to {sums.max():.12g}: divide them by their sum"
        )
    return np.where(np.abs(sums - 1) < 1e-14, law, law / sums)  # rounding of a sum is no reason to change a number


def block_matrix(
    model: ConditionalModel,
    n_sites: int,
    blocks: Blocks,
    weights: ArrayLike | None = None,
    *,
    inside: str = "sequential",
    temperature: float = 1.0,
) -> Sparse:
    """Sparse transition matrix float64[V**n, V**n] of a chain that resamples a block in a step.

    Parameters
    ----------
    model : ConditionalModel
    n_sites : int
    blocks : list of lists of int
    weights : array_like, float64[M], optional
        Probabilities of the blocks; uniform by default.
    inside : {"sequential", "hidden", "visible"}
        See `kernels.update_block`. Sequential draws are averaged over all orders of the block, which matters where the
        conditionals fit no joint law.
    temperature : float

    Raises
    ------
    ValueError
        For blocks or weights that are none, an unknown `inside`, more than `exact.DENSE` states, or a model that cannot
        hide sites where it must.
    """
    return _matrix(model, n_sites, blocks, weights, inside, temperature, {})


def block_matrices(
    model: ConditionalModel, n_sites: int, moves: dict[str, tuple[Blocks, str]], temperature: float = 1.0
) -> dict[str, Sparse]:
    """Several `block_matrix` of one model, by name, each of uniform blocks: no conditional is asked for twice.

    Parameters
    ----------
    model : ConditionalModel
    n_sites : int
    moves : dict of str to (list of lists of int, str)
        Blocks and `inside` of each.
    temperature : float

    Raises
    ------
    ValueError
        As `block_matrix`.
    """
    known: dict[Any, np.ndarray] = {}
    return {
        name: _matrix(model, n_sites, own, None, inside, temperature, known) for name, (own, inside) in moves.items()
    }


def _matrix(model, n_sites, blocks, weights, inside, temperature, known):
    """One matrix; `known` holds the laws of hidden sites that were asked for."""
    n_sites, n_tokens = check_system(model.n_tokens, n_sites, DENSE), model.n_tokens
    blocks, temperature = check_blocks(blocks, n_sites), float(check_temperature(temperature))
    weights = check_block_weights(weights, len(blocks))
    if inside not in INSIDES:
        raise ValueError(f"inside must be one of {INSIDES}, got {inside!r}")
    if inside != "visible" and max(map(len, blocks)) > 1:
        refuse_unable_to_hide(model)
    states, size = all_states(n_tokens, n_sites), n_tokens**n_sites
    powers = n_tokens ** np.arange(n_sites - 1, -1, -1)
    total = sp.csr_matrix((size, size))
    for block, weight in zip(blocks, weights, strict=True):
        own, drawn = list(block), all_states(n_tokens, len(block))  # (V^k, k)
        targets = (states @ powers - states[:, own] @ powers[own])[:, None] + drawn @ powers[own]  # (S, V^k)
        if inside == "visible":  # given the state that is left: at each site its own table, by state and new token
            law = np.ones(targets.shape)
            for site, tokens in zip(own, drawn.T, strict=True):
                alone = _hidden_law(model, n_sites, (site,), site, temperature, known).ravel()
                law *= alone[(states @ powers - states[:, site] * powers[site])[:, None] + tokens * powers[site]]
        else:
            given = _sequential if inside == "sequential" else _product
            law = given(model, n_sites, block, temperature, known).ravel()[targets]
        origins = np.repeat(np.arange(size), targets.shape[1])
        total = total + sp.csr_matrix((weight * law.ravel(), (origins, targets.ravel())), shape=(size, size))
    return total


def _hidden_law(model, n_sites, block, site, temperature, known):
    """Law of a site with its block hidden, by site: axes of the visible sites and its own, the others of length one."""
    if (block, site) not in known:
        n_tokens, visible = model.n_tokens, [i for i in range(n_sites) if i not in block]
        size = n_tokens ** len(visible)
        states = np.zeros((size, n_sites), np.int64)
        if visible:
            states[:, visible] = all_states(n_tokens, len(visible))
        hidden = np.tile(np.isin(np.arange(n_sites), block), (size, 1))
        scores = ask(model, states, np.full(size, site), *((hidden,) if len(block) > 1 else ()))
        law = probabilities(scores, np.full(size, temperature)).cpu().numpy()
        axes = [*visible, site]
        law = law.reshape((n_tokens,) * len(axes)).transpose(np.argsort(axes))
        known[block, site] = np.expand_dims(law, [i for i in block if i != site])
    return known[block, site]


def _sequential(model, n_sites, block, temperature, known):
    """Law of a block's tokens given the rest, by all sites; the mean over the orders in which they are drawn."""
    if not block:
        return np.ones((1,) * n_sites)
    if (block, None) not in known:
        orders = [
            _hidden_law(model, n_sites, block, site, temperature, known)
            * _sequential(model, n_sites, tuple(i for i in block if i != site), temperature, known)
            for site in block
        ]
        known[block, None] = sum(orders) / len(orders)
    return known[block, None]


def _product(model, n_sites, block, temperature, known):
    """Law of a block's tokens drawn independently given the rest, by all sites."""
    law = np.ones((1,) * n_sites)
    for site in block:
        law = law * _hidden_law(model, n_sites, block, site, temperature, known)
    return law


def block_dynamics(states: ArrayLike, law: ArrayLike, blocks: Blocks, weights: ArrayLike | None = None) -> Sparse:
    r"""Weighted block dynamics of a law on listed states, float64[S, S]; adaptive where weights depend on the state.

    .. math:: P(x, y) = \sum_K p_{\mathcal K}(K \mid x)\, \mathbf 1\{y_{-K} = x_{-K}\}\,
        \frac{p(y)\, p_{\mathcal K}(K \mid y)}{\sum_{z_{-K} = x_{-K}} p(z)\, p_{\mathcal K}(K \mid z)}

    The block is drawn anew in each step, from the state of that step. So the chain lives on states, not on pairs of a
    state and a block, of which the block would never change.

    Parameters
    ----------
    states : array_like, int[S, n]
        Distinct states: all with positive probability.
    law : array_like, float64[S]
        Their probabilities.
    blocks : list of lists of int
    weights : array_like, float64[M] or float64[S, M], optional
        Probabilities of the blocks, or those in each state; uniform by default.

    Raises
    ------
    ValueError
        For a law that is none, states listed twice, or more than `exact.DENSE` of them.
    """
    states, law = check_contexts(states), check_numbers(law, "law")
    size, n_sites = states.shape
    if size > DENSE or len(np.unique(states, axis=0)) < size:
        raise ValueError(f"states must be distinct, at most {DENSE} of them, got {size}")
    if law.shape != (size,) or not (law > 0).all() or not abs(law.sum() - 1) < 1e-9:
        raise ValueError(f"law must hold a positive probability of each of {size} states, got shape {law.shape}")
    blocks = check_blocks(blocks, n_sites)
    weights = np.broadcast_to(check_block_weights(weights, len(blocks), size), (size, len(blocks)))
    total = sp.csr_matrix((size, size))
    for block, weight in zip(blocks, weights.T, strict=True):
        rest = np.delete(states, block, axis=1)
        group = np.unique(rest, axis=0, return_inverse=True)[1].ravel() if rest.size else np.zeros(size, np.int64)
        mass = law * weight
        members = sp.csr_matrix((np.ones(size), (np.arange(size), group)))  # (S, groups)
        share = np.divide(mass, (whole := np.bincount(group, mass))[group], out=np.zeros(size), where=mass > 0)
        drawn = members @ members.multiply(share[:, None]).T
        total = total + sp.diags(np.where(whole[group] > 0, weight, 0.0)) @ drawn
    return total.tocsr()


def poincare_constant(matrix: Sparse, law: ArrayLike) -> float:
    r"""The best constant :math:`C` in :math:`\mathrm{Var}(f) \le C\, \mathcal E(f, f)` of a reversible chain.

    Infinite for a chain that is reducible; nan above 1e10, where rounding decides (`exact.spectral_gap`). ValueError
    for a matrix whose rows are no steps, and unless the chain is reversible for `law`.
    """
    law = check_stationary(law, matrix)
    if (size := len(law)) > DENSE or not (law > 0).all():
        raise ValueError(f"law must hold a positive probability of each of {size} states, at most {DENSE}")
    root = np.sqrt(law)
    symmetric = root[:, None] * np.asarray(matrix.todense()) / root
    if not np.allclose(symmetric, symmetric.T, rtol=0, atol=1e-9):
        raise ValueError(
            "the chain is not reversible for this law, so that it has no Poincaré constant by its spectrum"
        )
    if size == 1:
        return 1.0
    if classes(matrix).any():
        return np.inf
    gap = 1 - np.linalg.eigvalsh((symmetric + symmetric.T) / 2)[-2]
    return float(1 / gap) if gap > 1e-10 else np.nan


def hitting_times(matrix: Sparse, target: ArrayLike) -> np.ndarray:
    """Mean steps float64[S] from each state until a set of states is reached, zero in it.

    By `exact.escape_times`: without a subtraction, so that times of 1e20 steps have all their digits. ValueError for
    codes that are no states, or where some state never reaches them.
    """
    size = matrix.shape[0]
    inside = np.zeros(size, bool)
    inside[check_indices(target, size, "target")] = True
    times = np.zeros(size)
    if not inside.all():
        times[~inside] = escape_times(matrix, np.flatnonzero(~inside))
    return times


def reached_within(matrix: Sparse, target: ArrayLike, n_steps: int) -> np.ndarray:
    """Probability float64[S] that a set of states is reached within `n_steps` from each state; one in the set.

    ValueError for codes that are no states, or rows that are no steps.
    """
    size, n_steps = check_steps(matrix), check_count(n_steps, "n_steps")
    inside = np.zeros(size, bool)
    inside[check_indices(target, size, "target")] = True
    reached = inside.astype(float)
    for _ in range(n_steps):
        reached = np.where(inside, 1.0, matrix @ reached)
    return reached


def classes(matrix: Sparse) -> np.ndarray:
    """The communicating class of each state, int64[S], from zero on; what is above zero is a way, as in a graph."""
    return sp.csgraph.connected_components(sp.csr_matrix(matrix) > 0, connection="strong")[1].astype(np.int64)
