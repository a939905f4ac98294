r"""Influence of one site on another, and the thresholds of fast mixing that follow (paper §5.1, §5.2)."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from tqdm.auto import tqdm

from glauber_lib.checkpoints import Checkpoint, Stored
from glauber_lib.draws import check_temperature, chunks


@dataclass(frozen=True)
class Influence:
    r"""Result of `measure_influence`; entry [i, j] is the effect on site i of a change at site j.

    Attributes
    ----------
    temperatures : ndarray, float64[K]
    by_context : ndarray, float64[C, K, n, n]
        Largest total variation over the replacements tried, for each context.
    average_by_context : ndarray, float64[C, K, n, n]
        Mean total variation over the replacements tried, for each context.
    oscillation_by_context : ndarray, float64[C, n, n]
        Largest oscillation of the score difference over the replacements tried, for each context.
    n_pairs : int
        Pairs of contexts tried for each (i, j).
    excess : float
        Largest TV - tanh(δ/4τ) over all pairs tried; the theorem says it is not positive.
    points : DataFrame
        ``temperature, delta, tv`` of at most 20,000 of the pairs tried, at random.
    """

    temperatures: np.ndarray
    by_context: np.ndarray
    average_by_context: np.ndarray
    oscillation_by_context: np.ndarray
    n_pairs: int
    excess: float
    points: pd.DataFrame

    @property
    def maximum(self):
        r"""Lower bound float64[K, n, n] on :math:`c_{ij}(\tau)`, the supremum of the total variation."""
        return self.by_context.max(0)

    @property
    def average(self):
        """Mean total variation float64[K, n, n] over all pairs tried."""
        return self.average_by_context.mean(0)

    @property
    def oscillation(self):
        r"""Lower bound float64[n, n] on :math:`\delta_{ij}`, the supremum of the score difference's oscillation."""
        return self.oscillation_by_context.max(0)


def replacement_tokens(model, contexts, count, *, seed=0):
    """Tokens to try at each site in place of its own: half the model's best predictions there, half uniformly random.

    Parameters
    ----------
    model : ConditionalModel
    contexts : array_like, int[C, n]
    count : int
    seed : int

    Returns
    -------
    ndarray, int64[C, n, count]
    """
    contexts, rng = np.asarray(contexts), np.random.default_rng([seed, 3])
    return np.stack([_replacements(model, contexts, i, count, rng) for i in range(contexts.shape[1])], axis=1)


def _replacements(model, contexts, site, count, rng):
    """Tokens int64[C, count] for one site: half the best predictions, half random, never the present one."""
    own = contexts[:, site]
    scores = model.scores(contexts, np.full(len(contexts), site)).clone()
    scores[torch.arange(len(own)), torch.as_tensor(own)] = -torch.inf
    best = scores.topk(count // 2, dim=1).indices.cpu().numpy()
    random = rng.integers(model.n_tokens - 1, size=(len(contexts), count - count // 2))
    return np.concatenate([best, random + (random >= own[:, None])], axis=1)


@dataclass(frozen=True)
class _Measured(Stored):
    """Influence measured so far: of the first `n_steps` pairs of a context and a site."""

    contexts: np.ndarray
    replacements: np.ndarray
    temperatures: np.ndarray
    delta: np.ndarray  # context, j, replacement, i
    tv: np.ndarray  # context, j, temperature, replacement, i
    n_steps: int


def measure_influence(model, contexts, replacements, temperatures, *, checkpoint=None, progress=None):
    """Influence of every site on every other, over given contexts and replacement tokens.

    Parameters
    ----------
    model : ConditionalModel
    contexts : array_like, int[C, n]
    replacements : array_like, int[C, n, R]
        Tokens put at each site of each context in place of its own.
    temperatures : array_like, float[K]
    checkpoint : str or Path, optional
        A file for what is measured, written every five minutes: the same call with the same model goes on from there.
    progress : str, optional
        Title of a progress bar.

    Returns
    -------
    Influence
        The suprema are over what was tried: lower bounds.
    """
    contexts, replacements = np.asarray(contexts), np.asarray(replacements)
    temperatures = check_temperature(temperatures, np.shape(temperatures))
    n_contexts, n = contexts.shape
    n_new = replacements.shape[2]
    # one place each for all numbers: many small arrays that outlive the large tensors between them keep the memory of
    # those from being used again
    delta, tv = np.zeros((n_contexts, n, n_new, n)), np.zeros((n_contexts, n, len(temperatures), n_new, n))
    pairs = [(context, j) for context in range(n_contexts) for j in range(n)]
    kept = Checkpoint(checkpoint, _Measured)
    same = {"contexts": contexts, "replacements": replacements, "temperatures": temperatures}
    if found := kept.resume(len(pairs), **same):
        delta, tv = found.delta, found.tv
    at_once = max(1, 2**24 // (model.n_tokens * (n_new + 1)))  # sites of (R + 1, V) float64 at a time
    start = found.n_steps if found else 0
    bar = tqdm(pairs[start:], initial=start, total=len(pairs), desc=progress, disable=progress is None, leave=False)
    for done, (context, j) in enumerate(bar, start):
        if kept.due():
            kept.write(_Measured(**same, delta=delta, tv=tv, n_steps=done))
        changed = np.repeat(contexts[context][None], n_new + 1, axis=0)  # row 0 stays as it is
        changed[1:, j] = replacements[context, j]
        for others in chunks(np.delete(np.arange(n), j), at_once):
            scores = model.scores(np.repeat(changed, len(others), axis=0), np.tile(others, n_new + 1))
            scores = scores.view(n_new + 1, len(others), -1).double()
            difference = scores[1:] - scores[:1]  # (R, sites, V)
            delta[context, j][:, others] = (difference.amax(2) - difference.amin(2)).cpu().numpy()
            for k, temperature in enumerate(temperatures):
                law = torch.softmax(scores / temperature, dim=-1)
                tv[context, j, k][:, others] = 0.5 * (law[1:] - law[:1]).abs().sum(2).cpu().numpy()
    apart = np.broadcast_to(~np.eye(n, dtype=bool)[:, None, None], tv.shape)
    columns = {"temperature": temperatures[:, None, None], "delta": delta[:, :, None], "tv": tv}
    points = pd.DataFrame({name: np.broadcast_to(values, tv.shape)[apart] for name, values in columns.items()})
    excess = float((points.tv - np.tanh(points.delta / (4 * points.temperature))).max())
    points = points.sample(min(20_000, len(points)), random_state=0).sort_index()
    n_pairs = n_contexts * n_new
    by_context, average = (a.transpose(0, 2, 3, 1) for a in (tv.max(3), tv.mean(3)))
    return Influence(temperatures, by_context, average, delta.max(2).swapaxes(1, 2), n_pairs, excess, points)


def column_influence(model, x, y, site, temperature):
    r"""Influence of one site on all others, :math:`\sum_i TV(\pi_i(x), \pi_i(y))`, of B pairs that differ there.

    Parameters
    ----------
    model : ConditionalModel
    x, y : ndarray, int64[B, n]
    site : int
    temperature : float
    """
    size, n = x.shape
    others = np.delete(np.arange(n), site)
    scores = model.scores(np.repeat(np.concatenate([x, y]), n - 1, axis=0), np.tile(others, 2 * size))
    law = torch.softmax(scores.double() / temperature, dim=-1).view(2, size, n - 1, -1)
    return (0.5 * (law[0] - law[1]).abs().sum((1, 2))).cpu().numpy()


def search_influence(
    model, contexts, site, temperature=1.0, *, rounds, candidates=8, climb=True, seed=0, progress=None
):
    r"""Search for the pair of states at which a site's influence on all others is largest.

    A lower bound on :math:`\max_{x,y} \sum_i TV`, and so on :math:`\alpha(\tau)`, that random pairs are far below.

    Parameters
    ----------
    model : ConditionalModel
    contexts : array_like, int[C, n]
        States to start from.
    site : int
        The site at which the two states differ.
    temperature : float
    rounds, candidates : int
        `candidates` pairs are evaluated in each round.
    climb : bool
        True: change one token at a time of a pair, at a random site (of both states, or of one at `site`), and keep
        what is larger; start again where 2n rounds bring nothing. False: a random context and a random
        replacement each time. Tokens are half the model's best predictions, half uniformly random, in both.
    seed : int
    progress : str, optional
        Title of a progress bar.

    Returns
    -------
    best : ndarray, float64[rounds]
        Largest value found up to each round.
    x, y : ndarray, int64[n]
        The pair at which the last one is attained.
    """
    contexts, rng = np.asarray(contexts), np.random.default_rng([seed, site])
    temperature = float(check_temperature(temperature))
    found, values = (-np.inf,), []  # the best so far: value, x, y
    top, stalled = None, 0  # where the climb is
    for _ in tqdm(range(rounds), desc=progress, disable=progress is None, leave=False):
        if top is None or not climb:
            x = contexts[rng.integers(len(contexts), size=candidates)]
            at, tokens = site, _replacements(model, x, site, 2, rng)[np.arange(candidates), np.arange(candidates) % 2]
            y = x.copy()
        else:
            at = int(rng.integers(contexts.shape[1]))
            tokens = _replacements(model, top[2][None], at, candidates, rng)[0]
            x, y = (np.tile(state, (candidates, 1)) for state in top[1:])
        y[:, at] = tokens
        if at != site:
            x[:, at] = tokens
        value = column_influence(model, x, y, site, temperature)
        k = value.argmax()
        if top is None or value[k] > top[0]:
            top, stalled = (value[k], x[k], y[k]), 0
        else:
            stalled += 1
        found = max(found, (value[k], x[k], y[k]), key=lambda pair: pair[0])
        values.append(found[0])
        if stalled == 2 * contexts.shape[1]:
            top, stalled = None, 0
    return np.array(values), *found[1:]


# Thresholds ----------------------------------------------------------------------------------------------------------


def contraction_norms(matrix):
    r"""The four numbers that mean fast mixing when below one.

    Parameters
    ----------
    matrix : ndarray, float64[n, n]
        Influence :math:`c_{ij}`.

    Returns
    -------
    dict
        ``alpha`` = :math:`\max_j \sum_i c_{ij}` (the paper's), ``row sum`` = :math:`\max_i \sum_j c_{ij}` (Dobrushin),
        ``spectral norm`` and ``spectral radius`` (Hayes).
    """
    return {
        "alpha": matrix.sum(0).max(),
        "row sum": matrix.sum(1).max(),
        "spectral norm": np.linalg.norm(matrix, 2),
        "spectral radius": np.abs(np.linalg.eigvals(matrix)).max(),
    }


def threshold(temperatures, values):
    """Temperature above which `values` stay below one, interpolated in log temperature; nan if it is off the grid."""
    order = np.argsort(temperatures)
    t, v = np.log(np.asarray(temperatures, float)[order]), np.asarray(values, float)[order]
    above = np.flatnonzero(v >= 1)
    if len(above) == 0 or above[-1] == len(v) - 1:
        return float("nan")
    k = above[-1]
    return float(np.exp(t[k] + (t[k + 1] - t[k]) * (v[k] - 1) / (v[k] - v[k + 1])))


def sufficient_temperature(oscillation):
    r"""Temperature above which mixing is O(n log n): :math:`\tfrac14 \max_j \sum_i \delta_{ij}` (paper §5.2)."""
    return float(oscillation.sum(0).max() / 4)


def contraction_bound(alpha, n, epsilon=0.25):
    r"""Mixing time :math:`\lceil n/(1 - \alpha) \log(n/\epsilon) \rceil`; infinite for alpha >= 1."""
    return float(np.ceil(n / (1 - alpha) * np.log(n / epsilon))) if alpha < 1 else np.inf
