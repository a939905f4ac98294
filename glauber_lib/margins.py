r"""Margins of a state: what its conditionals say about how hard it is to leave (paper §5.3, App. A.1).

The margin of a site is the score of its token less the best score of another token. A chain at a state with large
margins leaves it rarely, and a set of such states mixes slowly with the others.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from glauber_lib.answers import ask
from glauber_lib.checks import check_contexts, check_count, check_numbers, check_state, check_temperature
from glauber_lib.draws import chunks, log_probabilities
from glauber_lib.models import ConditionalModel


def scores_by_site(model: ConditionalModel, states: np.ndarray) -> Iterator[tuple[np.ndarray, torch.Tensor]]:
    """Scores of every state at every site, at most 256 of these rows at a time.

    Parameters
    ----------
    model : ConditionalModel
    states : ndarray, int64[B, n]
        From `checks.check_states`.

    Yields
    ------
    rows : ndarray, int64[K]
        Row ``k * n + i`` is state k at site i.
    scores : torch.Tensor, float64[K, V]
        A copy that the caller may write to.
    """
    states = check_contexts(states, model.n_tokens)
    size, n = states.shape
    sites, repeated = np.tile(np.arange(n), size), np.repeat(states, n, axis=0)
    for rows in chunks(np.arange(size * n), 256):
        yield rows, ask(model, repeated[rows], sites[rows]).to(torch.float64, copy=True)


def _site_scores(model, state):
    """Scores float64[n, V] of one state at each of its sites, and its tokens [n, 1] on the same device."""
    state = check_state(state, model.n_tokens)
    scores = torch.cat([scores for _, scores in scores_by_site(model, state[None])])
    return scores, torch.as_tensor(state, device=scores.device)[:, None]


def _gaps(scores, token):
    return (scores.gather(1, token)[:, 0] - scores.scatter(1, token, -torch.inf).amax(1)).cpu().numpy()


def _escape(scores, token, temperature):
    """Summed over the other tokens, so that it keeps its precision when it is tiny."""
    log_law = log_probabilities(scores, temperature).scatter(1, token, -torch.inf)
    return float(log_law.logsumexp(1).exp().mean())


def score_gaps(model: ConditionalModel, state: ArrayLike) -> np.ndarray:
    r"""Gap :math:`g_i = s_i(x_i) - \max_{v \ne x_i} s_i(v)` of every site of a state.

    Parameters
    ----------
    model : ConditionalModel
    state : array_like, int[n]

    Returns
    -------
    ndarray, float64[n]
        In units of the scores. The state is a perfect trap if all are positive.
    """
    return _gaps(*_site_scores(model, state))


def escape_probability(model: ConditionalModel, state: ArrayLike, temperature: float) -> float:
    r"""Probability that one step leaves a state, :math:`\frac1n\sum_i (1 - \pi_i(x_i \mid x_{-i}))`.

    It is exact, and precise however small.

    Parameters
    ----------
    model : ConditionalModel
    state : array_like, int[n]
    temperature : float
    """
    temperature = float(check_temperature(temperature))
    return _escape(*_site_scores(model, state), temperature)


def basin_escape_times(model: ConditionalModel, basin: ArrayLike, temperature: float) -> np.ndarray:
    r"""Mean number of steps to leave a set of states, from each of them: :math:`(I - Q) h = 1`.

    Q is the kernel within the set. The conditionals of the set's K states determine it, however large the vocabulary.
    The equations are solved by state reduction (Grassmann, Taksar and Heyman, 1985) with logarithms of probabilities.
    No step subtracts, so that a time is precise however long it is, and however much faster the moves within the set
    are.

    Parameters
    ----------
    model : ConditionalModel
    basin : array_like, int[K, n]
        Distinct states.
    temperature : float

    Returns
    -------
    ndarray, float64[K]
        Infinite above 1.8e308 steps.

    Raises
    ------
    ValueError
        For states that are no tokens of the model, a state that is there twice, a temperature that is not positive and
        finite, or a set that is never left because all other tokens are banned.
    """
    basin, temperature = check_contexts(basin, model.n_tokens), float(check_temperature(temperature))
    size, n = basin.shape
    if len(np.unique(basin, axis=0)) != size:
        raise ValueError("the states of a basin must be distinct")
    inside, out = np.full((size, size), -np.inf), np.full(size, -np.inf)  # logarithms of n times the probabilities
    for i in range(n):
        others = np.unique(np.delete(basin, i, axis=1), axis=0, return_inverse=True)[1].ravel()
        alike = others[:, None] == others  # states that differ at most at site i
        for part in chunks(np.arange(size), 256):  # |V| float64 per row
            law = log_probabilities(ask(model, basin[part], np.full(len(part), i)), temperature)
            tokens = torch.as_tensor(basin[:, i], device=law.device)
            inside[part] = np.where(alike[part], law[:, tokens].cpu().numpy(), inside[part])
            member = torch.zeros_like(law, dtype=torch.bool)
            row, column = np.nonzero(alike[part])
            member[row, tokens[column]] = True
            left = law.masked_fill(member, -torch.inf).logsumexp(1).cpu().numpy()
            out[part] = np.logaddexp(out[part], left)
    with np.errstate(over="ignore"):  # a time that float64 does not hold
        return np.exp(np.log(n) + log_exit_times(inside, out))


def log_exit_times(inside: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Logarithms float64[K] of mean times to leave a set, from those of its rates within [K, K] and out of it [K].

    What stays where it is, the diagonal of `inside`, does not count. A logarithm may be above zero: rates are no
    probabilities, and such a time is below one. ValueError for a set that is never left, and for rates that are masked
    or no real numbers; a rate that is nan or infinite gives nan.
    """
    rates, out = check_numbers(inside, "rates within the set"), check_numbers(out, "rates out of the set")
    if out.ndim != 1 or rates.shape != (len(out), len(out)):
        raise ValueError(f"need rates between K states and out of each, got {rates.shape} and {out.shape}")
    time = np.zeros(len(out))
    total = np.empty(len(out))  # rate at which a state is left while the chain is watched in it and those before it
    np.fill_diagonal(rates, -np.inf)
    for k in range(len(out) - 1, -1, -1):
        total[k] = np.logaddexp(np.logaddexp.reduce(rates[k, :k], initial=-np.inf), out[k])
        if total[k] == -np.inf:
            raise ValueError("the set is never left: every other token has no chance at all")
        share = rates[:k, k] - total[k]
        rates[:k, :k] = np.logaddexp(rates[:k, :k], share[:, None] + rates[k, :k])
        np.fill_diagonal(rates, -np.inf)  # back where it was: no move
        out[:k] = np.logaddexp(out[:k], share + out[k])
        time[:k] = np.logaddexp(time[:k], share + time[k])
    for k in range(len(out)):
        later = np.logaddexp.reduce(rates[k, :k] + time[:k], initial=-np.inf)
        time[k] = np.logaddexp(time[k], later) - total[k]
    return time


def describe_trap(model: ConditionalModel, state: ArrayLike, temperature: float) -> dict[str, float | str]:
    """What holds a chain in a state: its gaps, its escape probability and the paper's bound on it.

    The model is asked once for each site.

    Parameters
    ----------
    model : ConditionalModel
    state : array_like, int[n]
    temperature : float

    Returns
    -------
    dict
        ``mean_gap``, ``min_gap`` (`score_gaps`), ``type`` (perfect if every gap is positive, else approximate),
        ``escape`` (`escape_probability`) and ``bound`` (`escape_bound`).
    """
    temperature = float(check_temperature(temperature))
    scores, token = _site_scores(model, state)
    gaps = _gaps(scores, token)
    return {
        "mean_gap": gaps.mean(),
        "min_gap": gaps.min(),
        "type": "perfect" if gaps.min() > 0 else "approximate",
        "escape": _escape(scores, token, temperature),
        "bound": escape_bound(gaps.min(), temperature, model.n_tokens),
    }


def log_pseudo_likelihood(model: ConditionalModel, states: ArrayLike) -> np.ndarray:
    r"""Pseudo-log-likelihood :math:`\sum_i \log \pi_i(x_i \mid x_{-i})` of states, at temperature one.

    Divided by -n and exponentiated it is the pseudo-perplexity.

    Parameters
    ----------
    model : ConditionalModel
    states : array_like, int[B, n]

    Returns
    -------
    ndarray, float64[B]
    """
    states = check_contexts(states, model.n_tokens)
    terms = np.empty(states.size)
    for rows, scores in scores_by_site(model, states):
        own = torch.as_tensor(states.ravel()[rows], device=scores.device)[:, None]
        terms[rows] = (scores.gather(1, own)[:, 0] - scores.logsumexp(1)).cpu().numpy()
    return terms.reshape(states.shape).sum(1)


def escape_bound(margin: float, temperature: float, n_tokens: int) -> float:
    r"""The paper's bound on the escape probability, :math:`(|V| - 1) e^{-\gamma/\tau}`, not capped at one.

    Parameters
    ----------
    margin : float or ndarray
        :math:`\gamma`, in units of the scores. One that is nan gives nan.
    temperature : float or ndarray
    n_tokens : int

    Raises
    ------
    ValueError
        For a temperature that is not positive and finite, a margin that is no number, or fewer than one token.
    """
    positive: Any = check_temperature(temperature, np.shape(temperature))
    gamma: Any = check_numbers(margin, "margin")
    return (check_count(n_tokens, "n_tokens", least=1) - 1) * np.exp(-gamma / positive)


def mixing_lower_bound(margin: float, temperature: float, n_tokens: int) -> float:
    r"""The paper's lower bound :math:`e^{\gamma/\tau} / (4 (|V| - 1))` on the mixing time, in steps.

    Parameters
    ----------
    margin : float or ndarray
        :math:`\gamma`, in units of the scores. One that is nan gives nan.
    temperature : float or ndarray
    n_tokens : int

    Raises
    ------
    ValueError
        For a temperature that is not positive and finite, a margin that is no number, or fewer than two tokens.
    """
    positive: Any = check_temperature(temperature, np.shape(temperature))
    gamma: Any = check_numbers(margin, "margin")
    return np.exp(gamma / positive) / (4 * (check_count(n_tokens, "n_tokens", least=2) - 1))
