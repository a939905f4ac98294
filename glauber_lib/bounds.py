r"""Influence and fast mixing, margins and slow mixing (paper §5, App. A.1)."""

import functools
from dataclasses import dataclass

import numpy as np
import pandas as pd
import scipy.stats
import torch
from tqdm.auto import tqdm

from glauber_lib.engine import check_temperature

# Influence ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Influence:
    r"""Result of `measure_influence`; entry [i, j] is the effect on site i of a change at site j.

    Attributes
    ----------
    temperatures : ndarray, float64[K]
    by_context : ndarray, float64[C, K, n, n]
        Largest total variation over the replacements tried, for each context.
    average : ndarray, float64[K, n, n]
        Mean total variation over the pairs tried.
    oscillation : ndarray, float64[n, n]
        Lower bound on :math:`\delta_{ij}`, the supremum of the oscillation of the score difference.
    n_pairs : int
        Pairs of contexts tried for each (i, j).
    excess : float
        Largest TV - tanh(δ/4τ) over all pairs tried; the theorem says it is not positive.
    points : DataFrame
        ``temperature, delta, tv`` of at most 20,000 of the pairs tried, at random.
    """

    temperatures: np.ndarray
    by_context: np.ndarray
    average: np.ndarray
    oscillation: np.ndarray
    n_pairs: int
    excess: float
    points: pd.DataFrame

    @property
    def maximum(self):
        r"""Lower bound float64[K, n, n] on :math:`c_{ij}(\tau)`, the supremum of the total variation."""
        return self.by_context.max(0)


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


def measure_influence(model, contexts, replacements, temperatures, *, progress=None):
    """Influence of every site on every other, over given contexts and replacement tokens.

    Parameters
    ----------
    model : ConditionalModel
    contexts : array_like, int[C, n]
    replacements : array_like, int[C, n, R]
        Tokens put at each site of each context in place of its own.
    temperatures : array_like, float[K]
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
    by_context = np.zeros((n_contexts, len(temperatures), n, n))
    total = np.zeros((len(temperatures), n, n))
    oscillation = np.zeros((n, n))
    points = []
    pairs = [(context, j) for context in range(n_contexts) for j in range(n)]
    for context, j in tqdm(pairs, desc=progress, disable=progress is None, leave=False):
        others = np.delete(np.arange(n), j)
        changed = np.repeat(contexts[context][None], n_new + 1, axis=0)  # row 0 stays as it is
        changed[1:, j] = replacements[context, j]
        scores = model.scores(np.repeat(changed, n - 1, axis=0), np.tile(others, n_new + 1))
        scores = scores.view(n_new + 1, n - 1, -1).double()
        difference = scores[1:] - scores[:1]  # (R, n - 1, V)
        delta = (difference.amax(2) - difference.amin(2)).cpu().numpy()
        oscillation[others, j] = np.maximum(oscillation[others, j], delta.max(0))
        for k, temperature in enumerate(temperatures):
            law = torch.softmax(scores / temperature, dim=-1)
            tv = 0.5 * (law[1:] - law[:1]).abs().sum(2).cpu().numpy()  # (R, n - 1)
            by_context[context, k, others, j] = tv.max(0)
            total[k, others, j] += tv.sum(0)
            points.append(pd.DataFrame({"temperature": temperature, "delta": delta.ravel(), "tv": tv.ravel()}))
    points = pd.concat(points, ignore_index=True)
    excess = float((points.tv - np.tanh(points.delta / (4 * points.temperature))).max())
    points = points.sample(min(20_000, len(points)), random_state=0).sort_index()
    n_pairs = n_contexts * n_new
    return Influence(temperatures, by_context, total / n_pairs, oscillation, n_pairs, excess, points)


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


# Margins and escape ------------------------------------------------------------------------------------------------


def _site_scores(model, state):
    """Scores [n, V] of one state at each of its sites, and its tokens [n, 1] on the same device."""
    state = np.asarray(state)
    scores = model.scores(np.repeat(state[None], len(state), axis=0), np.arange(len(state)))
    return scores.double(), torch.as_tensor(state, device=scores.device)[:, None]


def score_gaps(model, state):
    r"""Gap :math:`g_i = s_i(x_i) - \max_{v \ne x_i} s_i(v)` of every site, float64[n]; all positive: a perfect trap."""
    scores, token = _site_scores(model, state)
    own = scores.gather(1, token)
    return (own[:, 0] - scores.scatter(1, token, -torch.inf).amax(1)).cpu().numpy()


def escape_probability(model, state, temperature):
    r"""Exact one-step escape probability of a single state, :math:`\frac1n\sum_i (1 - \pi_i(x_i \mid x_{-i}))`.

    Summed over the other tokens, so that it keeps its precision when it is tiny.
    """
    scores, token = _site_scores(model, state)
    temperature = float(check_temperature(temperature))
    log_law = (scores / temperature).log_softmax(1).scatter(1, token, -torch.inf)
    return float(log_law.logsumexp(1).exp().mean())


def escape_bound(margin, temperature, n_tokens):
    r"""The paper's bound on the escape probability, :math:`(|V| - 1) e^{-\gamma/\tau}` (not capped at one)."""
    return (n_tokens - 1) * np.exp(-margin / temperature)


def mixing_lower_bound(margin, temperature, n_tokens):
    r"""The paper's lower bound :math:`e^{\gamma/\tau} / (4 (|V| - 1))` on the mixing time, in steps."""
    return np.exp(margin / temperature) / (4 * (n_tokens - 1))


def observed_stays(model, trace, *, every):
    r"""Predicted and observed holding times of the states a trace is in at fixed times.

    Looked at every `every` steps, each stay once. From such a time on the stay is geometric with the state's exact
    escape probability, whatever happened before, so that neither long nor short stays are favoured.

    Parameters
    ----------
    model : ConditionalModel
    trace : Trace
    every : int
        Steps between looks.

    Returns
    -------
    DataFrame
        Per stay: ``chain``, ``temperature``, ``state`` (tuple), ``escape`` (exact probability per step), ``exposure``
        (steps from the look to the exit, or to the end of the run) and ``left`` (False: censored by the end).

    Raises
    ------
    ValueError
        For a trace with frozen sites, stopped chains or states of different lengths.
    """
    if trace.frozen.any() or (trace.stopped >= 0).any() or (trace.initial < 0).any():
        raise ValueError("holding times are predicted for chains of one length, no site frozen and none stopped")
    looks = np.arange(0, trace.n_steps, every)
    escape = functools.cache(lambda state, temperature: escape_probability(model, state, temperature))
    rows = []
    for chain, temperature in enumerate(trace.temperature):
        states, entered, durations = trace.visits(chain)
        index, first = np.unique(np.searchsorted(entered, looks, side="right") - 1, return_index=True)
        for k, look in zip(index, looks[first], strict=True):
            state = tuple(states[k].tolist())
            rows.append(
                {
                    "chain": chain,
                    "temperature": temperature,
                    "state": state,
                    "escape": escape(state, temperature),
                    "exposure": int(entered[k] + durations[k] - look),
                    "left": k < len(entered) - 1,
                }
            )
    return pd.DataFrame(rows)


def calibrate_stays(stays, *, bins=8):
    """Observed against predicted mean stay in groups of equal predicted escape probability.

    Parameters
    ----------
    stays : DataFrame
        From `observed_stays`.
    bins : int

    Returns
    -------
    DataFrame
        Per group: ``stays``, ``exits``, ``expected`` exits, ``predicted`` and ``observed`` mean stay (steps; exposure
        per exit, so that censored stays count), with the 95% Poisson interval ``low``, ``high`` of the latter.
    """
    rows = []
    for rows_of_group in np.array_split(np.argsort(stays.escape.to_numpy()), bins):
        group = stays.iloc[rows_of_group]
        if len(group) == 0:
            continue
        exits, exposure = group.left.sum(), group.exposure.sum()
        expected = (group.exposure * group.escape).sum()
        low, high = poisson_interval(exits)
        rows.append(
            {
                "stays": len(group),
                "exits": exits,
                "expected": expected,
                "predicted": exposure / expected,
                "observed": exposure / exits if exits else np.inf,
                "low": exposure / high,
                "high": exposure / low if low else np.inf,
            }
        )
    return pd.DataFrame(rows)


def poisson_interval(count):
    """Exact 95% interval of a Poisson mean given one count."""
    low = scipy.stats.chi2.ppf(0.025, 2 * count) / 2 if count else 0.0
    return float(low), float(scipy.stats.chi2.ppf(0.975, 2 * count + 2) / 2)


# Drift of a token count --------------------------------------------------------------------------------------------


def states_with_count(states, token, count, *, seed=0):
    """Copies of `states` int[B, n] with exactly `count` sites holding `token`, at random positions."""
    rng = np.random.default_rng([seed, 2])
    states = np.array(states)
    n = states.shape[1]
    if not 0 <= count <= n:
        raise ValueError(f"count must lie in 0..{n}, got {count}")
    for row in states:
        own = row[row != token]
        fill = own if len(own) else np.array([(token + 1) % 2])
        row[row == token] = rng.choice(fill, size=(row == token).sum())
        row[rng.permutation(n)[:count]] = token
    return states


def token_drift(model, states, token, temperatures):
    r"""Drift of the number of sites that hold `token`, by one exact step from each state.

    Parameters
    ----------
    model : ConditionalModel
    states : array_like, int[B, n]
    token : int
    temperatures : array_like, float[K]

    Returns
    -------
    DataFrame
        Per temperature and state: ``temperature``; ``count``; ``up`` = :math:`p_+ = \frac1n \sum_{x_i \ne v} \pi_i(v)`;
        ``down`` = :math:`p_- = \frac1n \sum_{x_i = v} (1 - \pi_i(v))`; ``drift`` = up - down.
    """
    states = np.asarray(states)
    size, n = states.shape
    temperatures = check_temperature(temperatures, np.shape(temperatures))
    sites, repeated = np.tile(np.arange(n), size), np.repeat(states, n, axis=0)
    chance = np.empty((len(temperatures), 2, size * n))  # of the token, of all others
    for part in np.array_split(np.arange(size * n), max(1, size * n // 256)):  # |V| float64 per row: in parts
        scores = model.scores(repeated[part], sites[part]).double()
        for k, temperature in enumerate(temperatures):
            law = (scores / temperature).log_softmax(1)
            chance[k, 0, part] = law[:, token].exp().cpu().numpy()
            law[:, token] = -torch.inf  # the others summed, so that a tiny probability to leave keeps its precision
            chance[k, 1, part] = law.logsumexp(1).exp().cpu().numpy()
    holds = states == token
    enter, leave = chance.reshape(len(temperatures), 2, size, n).swapaxes(0, 1)  # (K, B, n) each
    up, down = (enter * ~holds).sum(2) / n, (leave * holds).sum(2) / n  # (K, B)
    return pd.DataFrame(
        {
            "temperature": np.repeat(temperatures, size), "count": np.tile(holds.sum(1), len(temperatures)),
            "up": up.ravel(), "down": down.ravel(), "drift": (up - down).ravel(),
        }
    )  # fmt: skip


def scan_drift(model, states, tokens, count, temperatures, *, seed=0, progress=None):
    """Drift of every token of a list, each from states that hold it at `count` sites.

    Parameters
    ----------
    model : ConditionalModel
    states : array_like, int[B, n]
        What stands at the other sites.
    tokens : sequence of int
    count : int
    temperatures : array_like, float[K]
    seed : int
    progress : str, optional
        Title of a progress bar.

    Returns
    -------
    DataFrame
        Rows of `token_drift` with a column ``token``.
    """
    parts = [
        token_drift(model, states_with_count(states, token, count, seed=seed), token, temperatures).assign(token=token)
        for token in tqdm(tokens, desc=progress, disable=progress is None, leave=False)
    ]
    return pd.concat(parts, ignore_index=True)
