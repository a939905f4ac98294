r"""The exact laboratory: everything about the chain of a small system, by linear algebra.

States are numbered by their base-V code (`models.all_states`).
"""

import numpy as np
import scipy.sparse as sp

from glauber_lib.engine import check_temperature, probabilities
from glauber_lib.models import all_states


def conditionals(model, n_sites, temperature=1.0):
    """Every conditional of a small system, float64[n, V**n, V]: site, state, token."""
    states = all_states(model.n_tokens, n_sites)
    temperature = check_temperature(temperature, (len(states),))
    return np.stack(
        [
            probabilities(model.scores(states, np.full(len(states), i)), temperature).cpu().numpy()
            for i in range(n_sites)
        ]
    )


def transition_matrix(model, n_sites, temperature=1.0):
    """Sparse transition matrix of the Glauber chain, float64[V**n, V**n] (paper §3)."""
    size, n_tokens = model.n_tokens**n_sites, model.n_tokens
    states = all_states(n_tokens, n_sites)
    total = sp.csr_matrix((size, size))
    for i, law in enumerate(conditionals(model, n_sites, temperature)):
        power = n_tokens ** (n_sites - 1 - i)
        targets = (np.arange(size) - states[:, i] * power)[:, None] + power * np.arange(n_tokens)
        origins = np.repeat(np.arange(size), n_tokens)
        total = total + sp.csr_matrix((law.ravel() / n_sites, (origins, targets.ravel())), shape=(size, size))
    return total


def stationary_law(matrix):
    """The stationary law of an irreducible chain, by one linear solve."""
    size = matrix.shape[0]
    system = (matrix.T - sp.identity(size)).tolil()
    system[-1] = 1.0
    law = sp.linalg.spsolve(system.tocsc(), np.eye(size)[-1])
    return law / law.sum()


def mixing_time(matrix, epsilon=0.25, limit=100_000):
    r"""Smallest t with :math:`\max_x \mathrm{TV}(P^t(x, \cdot), \pi) \le \epsilon`; ValueError past `limit`."""
    law = stationary_law(matrix)
    rows = np.eye(matrix.shape[0])
    for t in range(limit):
        if 0.5 * np.abs(rows - law).sum(1).max() <= epsilon:
            return t
        rows = rows @ matrix
    raise ValueError(f"not mixed to {epsilon} within {limit} steps")


def escape_times(matrix, basin):
    """Mean number of steps to leave `basin` from each of its states: (I - Q) h = 1.

    Parameters
    ----------
    matrix : sparse matrix, float64[S, S]
    basin : array_like, int[K]
        State codes.

    Returns
    -------
    ndarray, float64[K]
    """
    inside = matrix.tocsr()[basin][:, basin]
    return sp.linalg.spsolve((sp.identity(len(basin)) - inside).tocsc(), np.ones(len(basin)))


def conductance(matrix, basin):
    """Flow out of `basin` in equilibrium over its stationary mass (paper §5.3)."""
    law = stationary_law(matrix)
    inside = np.zeros(matrix.shape[0], bool)
    inside[basin] = True
    out = np.asarray(matrix.tocsr()[:, ~inside].sum(1)).ravel()
    return float((law * out)[inside].sum() / law[inside].sum())
