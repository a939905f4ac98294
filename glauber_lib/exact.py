r"""The exact laboratory: everything about the chain of a small system, by linear algebra.

A system is any conditional model and a number of sites; a language model becomes small as a `models.RestrictedModel`.
`tabulate` evaluates a model once for all temperatures. States are numbered by their base-V code (`models.all_states`).
"""

from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import ArrayLike

from glauber_lib.answers import ask
from glauber_lib.checks import (
    check_contexts,
    check_count,
    check_indices,
    check_numbers,
    check_temperature,
    check_temperatures,
)
from glauber_lib.draws import log_probabilities, probabilities
from glauber_lib.influence import contraction_bound
from glauber_lib.margins import log_exit_times, mixing_lower_bound
from glauber_lib.matrices import check_stationary, check_steps
from glauber_lib.models import ConditionalModel, TabularModel, all_states, check_system
from glauber_lib.stats import rank_correlation

DENSE = 4_096  # states up to which full matrices are used
Sparse = Any  # a matrix of scipy.sparse, float64[S, S]


def tabulate(model: ConditionalModel, n_sites: int) -> TabularModel:
    """All scores of a small system as a `TabularModel`: each conditional is evaluated once."""
    n_sites, n_tokens = check_system(model.n_tokens, n_sites), model.n_tokens
    others = all_states(n_tokens, n_sites - 1) if n_sites > 1 else np.zeros((1, 0), dtype=np.int64)  # the other sites
    table = []
    for i in range(n_sites):
        scores = ask(model, np.insert(others, i, 0, axis=1), np.full(len(others), i)).cpu().numpy().copy()
        table.append(np.moveaxis(scores.reshape((n_tokens,) * n_sites), -1, i))
    return TabularModel(np.stack(table))


def conditional_laws(model: ConditionalModel, n_sites: int, temperature: float = 1.0) -> np.ndarray:
    """Every conditional law of a small system, float64[n, V**n, V]: site, state, token."""
    states = all_states(model.n_tokens, n_sites)
    size, n = states.shape
    temperatures = np.full(size, float(check_temperature(temperature)))
    return np.stack([probabilities(ask(model, states, np.full(size, i)), temperatures).cpu().numpy() for i in range(n)])


def transition_matrix(model: ConditionalModel, n_sites: int, temperature: float = 1.0) -> Sparse:
    """Sparse transition matrix of the Glauber chain, float64[V**n, V**n] (paper §3)."""
    n_sites, n_tokens = check_system(model.n_tokens, n_sites), model.n_tokens
    size = n_tokens**n_sites
    states = all_states(n_tokens, n_sites)
    total = sp.csr_matrix((size, size))
    for i, law in enumerate(conditional_laws(model, n_sites, temperature)):
        power = n_tokens ** (n_sites - 1 - i)
        targets = (np.arange(size) - states[:, i] * power)[:, None] + power * np.arange(n_tokens)
        origins = np.repeat(np.arange(size), n_tokens)
        total = total + sp.csr_matrix((law.ravel() / n_sites, (origins, targets.ravel())), shape=(size, size))
    return total


def stationary_law(matrix: Sparse) -> np.ndarray:
    """The stationary law float64[S] of an irreducible chain, by state reduction (Grassmann, Taksar and Heyman, 1985).

    No step subtracts, so every probability has full relative precision, however slowly the chain passes between its
    basins. An iteration would take more states; but where basins are hardly left, its law is a mixture of theirs that
    depends on where it starts, and nothing tells.

    Raises
    ------
    ValueError
        For more than `DENSE` states, rows that are no steps, or if in float64 some state cannot reach the others.
    """
    size = _check_dense(matrix, "the stationary law")
    left = np.asarray(matrix.todense())
    for k in range(size - 1, 0, -1):  # the chain watched only while it is among the first k states
        out = left[k, :k].sum()
        if out == 0:
            raise ValueError(f"the chain is reducible: state {k} leads to no state before it")
        left[:k, k] /= out
        left[:k, :k] += np.outer(left[:k, k], left[k, :k])
    law = np.ones(size)
    for k in range(1, size):
        law[k] = law[:k] @ left[:k, k]
        law[: k + 1] /= law[: k + 1].sum()
    return law


def _check_dense(matrix, what):
    """How many states a chain has; ValueError where they are too many for full matrices, or rows do not sum to one."""
    if (size := check_steps(matrix)) > DENSE:
        raise ValueError(f"{what} needs full matrices: at most {DENSE} states, got {size}")
    return size


def mixing_time(matrix: Sparse, epsilon: float = 0.25, limit: int = 2**40, *, law: np.ndarray | None = None) -> int:
    r"""Smallest t with :math:`\max_x \mathrm{TV}(P^t(x, \cdot), \pi) \le \epsilon`, by repeated squaring.

    Parameters
    ----------
    matrix : sparse matrix, float64[S, S]
    epsilon : float
    limit : int
        Most steps.
    law : ndarray, float64[S], optional
        The stationary law, if it is known already.

    Raises
    ------
    ValueError
        If t exceeds `limit`, `epsilon` is not above 0 and below 1, or `law` not stationary; as from `stationary_law`.
    """
    limit = check_count(limit, "limit")
    if not 0 < epsilon < 1:
        raise ValueError(f"epsilon must be above 0 and below 1, got {epsilon}")
    size = _check_dense(matrix, "the mixing time")
    stationary = stationary_law(matrix) if law is None else check_stationary(law, matrix)
    close = epsilon * (1 + 1e-12)  # a distance that is `epsilon` but for rounding is no larger
    far = lambda rows: not 0.5 * np.abs(rows - stationary).sum(1).max() <= close  # nan is far  # noqa: E731
    now = np.eye(size)
    if not far(now):
        return 0
    powers = [np.asarray(matrix.todense())]  # P^(2^k), all of them too far from the law but the last
    while far(powers[-1]):
        if 2 ** len(powers) > 2 * limit:
            raise ValueError(f"not mixed to {epsilon} within {limit} steps")
        square = powers[-1] @ powers[-1]
        powers.append(square / square.sum(1, keepdims=True))
    steps = 0
    for k, power in reversed(list(enumerate(powers))):  # the distance never grows: the largest t that is still too far
        ahead = now @ power
        if far(ahead):
            now, steps = ahead, steps + 2**k
    if steps + 1 > limit:
        raise ValueError(f"not mixed to {epsilon} within {limit} steps")
    return steps + 1


def spectral_gap(matrix: Sparse) -> float:
    """One minus the second largest modulus of an eigenvalue; one for a single state.

    nan below 1e-10: eigenvalues have absolute errors, and the difference from one has few digits left. ValueError for
    more than `DENSE` states: an iteration may miss the second of two eigenvalues that are both one within rounding.
    """
    if _check_dense(matrix, "the spectral gap") == 1:
        return 1.0
    moduli = np.abs(np.linalg.eigvals(np.asarray(matrix.todense())))
    gap = float(1 - np.sort(moduli)[-2])
    return gap if gap > 1e-10 else np.nan


def reversibility_defect(matrix: Sparse, *, law: np.ndarray | None = None) -> float:
    r"""Net flow in equilibrium, :math:`\tfrac12 \sum_{xy} |\pi_x P_{xy} - \pi_y P_{yx}|`: 0 in detailed balance.

    `law` is the stationary law, if it is known already; ValueError for another, and as from `stationary_law`.
    """
    flow = sp.diags(stationary_law(matrix) if law is None else check_stationary(law, matrix)) @ matrix
    return float(abs(flow - flow.T).sum() / 2)


def escape_times(matrix: Sparse, basin: ArrayLike) -> np.ndarray:
    """Mean steps to leave `basin` from each of its states, (I - Q) h = 1, precise as `margins.basin_escape_times`.

    Parameters
    ----------
    matrix : sparse matrix, float64[S, S]
    basin : array_like, int[K]
        State codes.

    Returns
    -------
    ndarray, float64[K]

    Raises
    ------
    ValueError
        For codes that are no states or there twice, rows that are no steps, or a basin that no possible path leaves.
    """
    basin = _check_basin(matrix, basin)
    rows = matrix.tocsr()[basin]
    others = np.ones(matrix.shape[0], bool)
    others[basin] = False
    inside, out = rows[:, basin], np.asarray(rows[:, others].sum(1)).ravel()
    leads = out > 0
    while ((further := leads | (inside @ leads > 0)) != leads).any():
        leads = further
    if not leads.all():
        raise ValueError(
            f"state {basin[~leads][0]} never leaves the basin: the probability of every way out is zero in float64, "
            "perhaps because it is below 1e-308; take a higher temperature or `margins.basin_escape_times`"
        )
    with np.errstate(divide="ignore", over="ignore"):  # of no way; of a time that float64 does not hold
        return np.exp(log_exit_times(np.log(inside.toarray()), np.log(out)))


def conductance(matrix: Sparse, basin: ArrayLike) -> float:
    """Flow out of the states `basin` (codes) in equilibrium over their stationary mass (paper §5.3).

    ValueError for codes that are no states or there twice, and as from `stationary_law`.
    """
    inside = np.zeros(matrix.shape[0], bool)
    inside[_check_basin(matrix, basin)] = True
    law = stationary_law(matrix)
    out = np.asarray(matrix.tocsr()[:, ~inside].sum(1)).ravel()
    return float((law * out)[inside].sum() / law[inside].sum())


def _check_basin(matrix, basin):
    """Codes int64[K] of distinct states of a chain whose rows are probabilities."""
    codes = check_indices(basin, check_steps(matrix), "basin")
    if codes.ndim != 1 or not codes.size or len(np.unique(codes)) < len(codes):
        raise ValueError(f"basin must be a list of distinct state codes, got {codes.tolist()}")
    return codes


# Both theorems without sampling ----------------------------------------------------------------------------------


def _pairs(values, n_tokens, j):
    """Differences of ``values`` [S, V] between all states that differ only at site j, float64[pairs, V]."""
    blocks = values.reshape(n_tokens**j, n_tokens, -1, values.shape[1])
    first, second = np.triu_indices(n_tokens, 1)
    return (blocks[:, first] - blocks[:, second]).reshape(-1, values.shape[1])


def influence(model: ConditionalModel, n_sites: int, temperature: float = 1.0) -> np.ndarray:
    r"""The influence matrix :math:`c_{ij}(\tau)`, float64[n, n], by the supremum over all pairs of states."""
    n_sites = check_system(model.n_tokens, n_sites)
    out = np.zeros((n_sites, n_sites))
    for i, law in enumerate(conditional_laws(model, n_sites, temperature)):
        for j in set(range(n_sites)) - {i}:
            out[i, j] = 0.5 * np.abs(_pairs(law, model.n_tokens, j)).sum(1).max(initial=0.0)
    return out


def oscillation(model: ConditionalModel, n_sites: int) -> np.ndarray:
    r"""The oscillation :math:`\delta_{ij}` of score differences, float64[n, n], by the supremum over all pairs.

    It is infinite where one state bans a token that the other allows.
    """
    n_sites, states = check_system(model.n_tokens, n_sites), all_states(model.n_tokens, n_sites)
    out = np.zeros((n_sites, n_sites))
    for i in range(n_sites):
        scores = ask(model, states, np.full(len(states), i)).double().cpu().numpy()
        for j in set(range(n_sites)) - {i}:
            if model.n_tokens == 1:
                continue
            with np.errstate(invalid="ignore"):
                difference = _pairs(scores, model.n_tokens, j)  # nan where both states ban the token
            out[i, j] = (np.nanmax(difference, axis=1) - np.nanmin(difference, axis=1)).max()
    return out


def margin(model: ConditionalModel, basin: ArrayLike) -> float:
    r"""Uniform local margin :math:`\gamma` of a set of states (paper §5.3).

    It is the least gap between the score of the present token and the best other one, over all states of the set and
    all sites at which some change leaves the set. If it is not positive, the theorem on slow mixing does not apply.

    Parameters
    ----------
    model : ConditionalModel
    basin : array_like, int[K, n]
        The states of the set.
    """
    basin = check_contexts(basin, model.n_tokens)
    members, gamma = {tuple(x) for x in basin.tolist()}, np.inf
    for i in range(basin.shape[1]):
        scores = ask(model, basin, np.full(len(basin), i)).double().cpu().numpy()
        for x, row in zip(basin, scores, strict=True):
            inside = [tuple(np.concatenate([x[:i], [v], x[i + 1 :]]).tolist()) in members for v in range(len(row))]
            if not all(inside):
                gamma = min(gamma, row[x[i]] - np.delete(row, x[i]).max())
    return float(gamma)


def margin_sets(model: ConditionalModel, n_sites: int) -> list[np.ndarray]:
    """The smallest sets with a positive margin: each is closed under all moves that a margin allows to leave.

    A set has a positive margin where every site at which some change leaves the set holds the strict favourite. So a
    set that holds a state with another favourite, or a tie, at a site holds all tokens of that site. The sets are the
    closures of single states; every set with a positive margin is a union of such.

    Returns
    -------
    list of ndarray, int64[K]
        State codes of each distinct set, without that of all states.
    """
    n_sites, states = check_system(model.n_tokens, n_sites), all_states(model.n_tokens, n_sites)
    size, rows = len(states), np.arange(len(states))
    leads = np.eye(size, dtype=np.float32)
    for i in range(n_sites):
        scores = ask(model, states, np.full(size, i)).double().cpu().numpy()
        own = scores[rows, states[:, i]].copy()
        scores[rows, states[:, i]] = -np.inf
        loose = rows[own <= scores.max(1)]
        power = model.n_tokens ** (n_sites - 1 - i)
        for v in range(model.n_tokens):
            leads[loose, loose + (v - states[loose, i]) * power] = 1
    while ((further := np.minimum(leads @ leads, 1)) != leads).any():
        leads = further
    sets = np.unique(leads > 0, axis=0)
    return [np.flatnonzero(members) for members in sets if not members.all()]


# Stationary law and pseudo-likelihood ---------------------------------------------------------------------------


def pseudo_likelihood(model: ConditionalModel, n_sites: int, temperature: float = 1.0) -> np.ndarray:
    r"""The law with weights :math:`\prod_i \pi_i(x_i \mid x_{-i})`, float64[V**n], normalised over the small system.

    ValueError if every state holds a token that is banned there.
    """
    states, temperature = all_states(model.n_tokens, n_sites), float(check_temperature(temperature))
    logs, rows = np.zeros(len(states)), np.arange(len(states))
    for i in range(states.shape[1]):  # logarithms, as at a low temperature no state may have a weight in float64
        law = log_probabilities(ask(model, states, np.full(len(states), i)), temperature).cpu().numpy()
        logs += law[rows, states[:, i]]
    if logs.max() == -np.inf:
        raise ValueError("there is no pseudo-likelihood: every state holds a token that is banned there")
    weights = np.exp(logs - logs.max())
    return weights / weights.sum()


def compare_laws(p: np.ndarray, q: np.ndarray) -> dict[str, float]:
    """Total variation, both Kullback–Leibler divergences (nats) and Spearman's rank correlation (nan of a flat law).

    ValueError unless they are probabilities of the same states.
    """
    p, q = check_numbers(p, "p"), check_numbers(q, "q")
    if p.shape != q.shape or not all((law >= 0).all() and np.isclose(law.sum(), 1, atol=1e-6) for law in (p, q)):
        raise ValueError(f"need two laws of the same states that sum to one, got {p.shape} and {q.shape}, sums "
                         f"{p.sum():g} and {q.sum():g}")  # fmt: skip
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = lambda a, b: np.where((b > 0) & (a / b == np.inf), np.log(a) - np.log(b), np.log(a / b))  # noqa: E731
        divergence = lambda a, b: float(np.where(a > 0, a * ratio(a, b), 0.0).sum())  # noqa: E731
        return {
            "TV": float(0.5 * np.abs(p - q).sum()),
            "KL(p‖q)": divergence(p, q),
            "KL(q‖p)": divergence(q, p),
            "rank correlation": rank_correlation(p, q),
        }


# All of it in one table ---------------------------------------------------------------------------------------------


def solve_system(model: ConditionalModel, n_sites: int, temperatures: ArrayLike) -> pd.DataFrame:
    r"""A small system solved at every temperature: mixing time, both of the paper's bounds, and the stationary law.

    Parameters
    ----------
    model : ConditionalModel
    n_sites : int
    temperatures : array_like, float[K]

    Returns
    -------
    DataFrame
        Per temperature: ``temperature``; ``states``; ``alpha``, the contraction coefficient; ``mixing_time`` (steps);
        ``upper``, the contraction bound on it, infinite unless alpha is below one; ``lower``, the margin's bound on it,
        the largest over the `margin_sets` of at most half the mass, nan where there is none;
        ``relaxation_time``, one over the `spectral_gap`, nan above 1e10; ``circulation`` (`reversibility_defect`); the
        `compare_laws` of the stationary law (p) and the normalised pseudo-likelihood (q).

    Raises
    ------
    ValueError
        For a model of one token, of which no state is left, or with more than `DENSE` states.
    """
    if model.n_tokens < 2:
        raise ValueError("a system needs two tokens, got a model of one")
    n_sites, temperatures = check_system(model.n_tokens, n_sites, DENSE), check_temperatures(temperatures)
    sets, states = margin_sets(model, n_sites), all_states(model.n_tokens, n_sites)
    basins = [(codes, margin(model, states[codes])) for codes in sets]
    return pd.DataFrame([_solve(model, n_sites, float(t), basins) for t in temperatures])


def _solve(model, n_sites, temperature, basins):
    chain = transition_matrix(model, n_sites, temperature)
    law = stationary_law(chain)
    gamma = max((gamma for codes, gamma in basins if law[codes].sum() <= 0.5 + 1e-12), default=np.nan)
    alpha = influence(model, n_sites, temperature).sum(0).max()
    return {
        "temperature": temperature,
        "states": len(law),
        "alpha": alpha,
        "mixing_time": mixing_time(chain, law=law),
        "upper": contraction_bound(alpha, n_sites),
        "lower": mixing_lower_bound(gamma, temperature, model.n_tokens),
        "relaxation_time": 1 / spectral_gap(chain),
        "circulation": reversibility_defect(chain, law=law),
        **compare_laws(law, pseudo_likelihood(model, n_sites, temperature)),
    }
