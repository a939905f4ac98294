r"""Influence and fast mixing, margins and slow mixing (paper §5, App. A.1)."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import scipy.stats
import statsmodels.api as sm
import torch
from tqdm.auto import tqdm

from glauber_lib.chains import run_chains
from glauber_lib.engine import Checkpoint, Stored, check_temperature, parts

# Influence ---------------------------------------------------------------------------------------------------------


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
        for others in parts(np.delete(np.arange(n), j), at_once):
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


def _by_site(model, states):
    """Scores float64[., V] of every state at every site, some rows at a time, with the rows' numbers (n per state)."""
    size, n = states.shape
    sites, repeated = np.tile(np.arange(n), size), np.repeat(states, n, axis=0)
    for part in parts(np.arange(size * n), 256):  # |V| float64 per row
        yield part, model.scores(repeated[part], sites[part]).to(torch.float64, copy=True)


def _site_scores(model, state):
    """Scores float64[n, V] of one state at each of its sites, and its tokens [n, 1] on the same device."""
    state = np.asarray(state)
    scores = torch.cat([scores for _, scores in _by_site(model, state[None])])
    return scores, torch.as_tensor(state, device=scores.device)[:, None]


def _gaps(scores, token):
    return (scores.gather(1, token)[:, 0] - scores.scatter(1, token, -torch.inf).amax(1)).cpu().numpy()


def _escape(scores, token, temperature):
    """Summed over the other tokens, so that it keeps its precision when it is tiny."""
    log_law = (scores / float(check_temperature(temperature))).log_softmax(1).scatter(1, token, -torch.inf)
    return float(log_law.logsumexp(1).exp().mean())


def score_gaps(model, state):
    r"""Gap :math:`g_i = s_i(x_i) - \max_{v \ne x_i} s_i(v)` of every site, float64[n]; all positive: a perfect trap."""
    return _gaps(*_site_scores(model, state))


def escape_probability(model, state, temperature):
    r"""Exact one-step escape probability of a single state, :math:`\frac1n\sum_i (1 - \pi_i(x_i \mid x_{-i}))`."""
    return _escape(*_site_scores(model, state), temperature)


def describe_trap(model, state, temperature):
    """What holds a chain in a state, from one look at its conditionals.

    Returns
    -------
    dict
        ``mean_gap``, ``min_gap`` (`score_gaps`), ``type`` (perfect if every gap is positive, else approximate),
        ``escape`` (`escape_probability`) and ``bound``, the paper's bound on it.
    """
    scores, token = _site_scores(model, state)
    gaps = _gaps(scores, token)
    return {
        "mean_gap": gaps.mean(),
        "min_gap": gaps.min(),
        "type": "perfect" if gaps.min() > 0 else "approximate",
        "escape": _escape(scores, token, temperature),
        "bound": escape_bound(gaps.min(), temperature, model.n_tokens),
    }


def log_pseudo_likelihood(model, states):
    r"""Pseudo-log-likelihood :math:`\sum_i \log \pi_i(x_i \mid x_{-i})` at temperature one, float64[B].

    Divided by -n and exponentiated it is the pseudo-perplexity.
    """
    states = np.asarray(states)
    terms = np.empty(states.size)
    for part, scores in _by_site(model, states):
        own = torch.as_tensor(states.ravel()[part], device=scores.device)[:, None]
        terms[part] = (scores.gather(1, own)[:, 0] - scores.logsumexp(1)).cpu().numpy()
    return terms.reshape(states.shape).sum(1)


def escape_bound(margin, temperature, n_tokens):
    r"""The paper's bound on the escape probability, :math:`(|V| - 1) e^{-\gamma/\tau}` (not capped at one)."""
    return (n_tokens - 1) * np.exp(-margin / temperature)


def mixing_lower_bound(margin, temperature, n_tokens):
    r"""The paper's lower bound :math:`e^{\gamma/\tau} / (4 (|V| - 1))` on the mixing time, in steps."""
    return np.exp(margin / temperature) / (4 * (n_tokens - 1))


def longest_stays(trace, count):
    """The distinct states in which each chain stays longest.

    Parameters
    ----------
    trace : Trace
    count : int
        States per chain, at most.

    Returns
    -------
    DataFrame
        ``chain``, ``temperature``, ``state`` (tuple) and ``stay``, its longest in steps. A long stay was chosen for
        being long: to test a prediction, time the state anew with `time_escapes`.
    """
    rows = []
    for chain, temperature in enumerate(trace.temperature):
        states, _, durations = trace.visits(chain)
        found = {}
        for k in np.argsort(-durations, kind="stable"):
            if len(found) == count:
                break
            found.setdefault(tuple(states[k].tolist()), int(durations[k]))
        rows += [{"chain": chain, "temperature": temperature, "state": x, "stay": t} for x, t in found.items()]
    return pd.DataFrame(rows, columns=["chain", "temperature", "state", "stay"])


def recurrent_states(trace, chain, first, count):
    """States to which a chain returns: visited at least twice from step `first` on, the `count` it spends most time in.

    Returns
    -------
    ndarray, int64[K, n]
        Most time first; empty if the chain never returns anywhere.
    """
    states, entered, durations = trace.visits(chain)
    late = entered + durations > first
    distinct, index, visits = np.unique(states[late], axis=0, return_inverse=True, return_counts=True)
    spent = np.bincount(index.ravel(), weights=durations[late])
    order = np.argsort(-spent, kind="stable")
    return distinct[order[visits[order] > 1][:count]]


def calibrate_stays(stays, *, per_decade=2):
    """Observed against predicted mean stay in groups of similar predicted escape probability.

    Parameters
    ----------
    stays : DataFrame
        From `time_escapes`: ``exposure`` (steps), ``left``, and the predicted ``escape`` probability per step.
    per_decade : int
        Groups in a factor of ten of the predicted mean stay.

    Returns
    -------
    DataFrame
        Per group: ``stays``, ``exits``, ``expected`` exits, ``predicted`` and ``observed`` mean stay (steps; exposure
        per exit, so that censored stays count; infinite where nobody left) and the 95% Poisson interval ``low``,
        ``high`` of the latter.
    """
    rows = []
    for _, group in stays.groupby(np.floor(-np.log10(stays.escape) * per_decade)):
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


def regress_stays(stays):
    r"""Regression of observed on predicted escape, on logarithmic axes, censored stays included.

    Poisson regression of exits with the steps at risk as exposure, :math:`\log E[\mathrm{exits}/\mathrm{exposure}] = a
    + b \log p`: the prediction p is exact if b = 1 and a = 0.

    Parameters
    ----------
    stays : DataFrame
        As for `calibrate_stays`; some stays must have been left, at different predictions.

    Returns
    -------
    dict
        ``slope`` b and ``ratio`` (observed over predicted escape rate where the exits are centred), each with its 95%
        interval ``slope_interval``, ``ratio_interval``; ``center``, the predicted escape probability there; and
        ``decades``, the orders of magnitude that predicted escape probabilities with an exit span.
    """
    x = np.log(stays.escape.to_numpy(float))
    left, exposure = stays.left.to_numpy(float), stays.exposure.to_numpy(float)
    if left.sum() < 2 or np.ptp(x[left > 0]) == 0:
        raise ValueError("need exits at two different predicted escape probabilities at least")
    center = x[left > 0].mean()
    design = sm.add_constant(x - center)
    fit = sm.GLM(left, design, family=sm.families.Poisson(), offset=np.log(exposure)).fit(start_params=[center, 1.0])
    ends = fit.conf_int()
    return {
        "slope": float(fit.params[1]),
        "slope_interval": tuple(map(float, ends[1])),
        "ratio": float(np.exp(fit.params[0] - center)),
        "ratio_interval": tuple(map(float, np.exp(ends[0] - center))),
        "center": float(np.exp(center)),
        "decades": float(np.ptp(x[left > 0]) / np.log(10)),
    }


def basin_escape_times(model, basin, temperature):
    r"""Mean number of steps to leave a set of states, from each of them: :math:`(I - Q) h = 1`.

    Q, the kernel within the set, is built from the conditionals of its K states alone, whatever the vocabulary. The
    diagonal of I - Q is summed from what leaves a state: of a single state the time is precise however long, of a set
    as long as leaving it is not some 1e-14 times rarer than hopping within it.

    Parameters
    ----------
    model : ConditionalModel
    basin : array_like, int[K, n]
        Distinct states.
    temperature : float

    Returns
    -------
    ndarray, float64[K]
    """
    basin, temperature = np.asarray(basin), float(check_temperature(temperature))
    size, n = basin.shape
    if len(np.unique(basin, axis=0)) != size:
        raise ValueError("the states of a basin must be distinct")
    inside, out = np.zeros((size, size)), np.zeros(size)
    for i in range(n):
        rest = np.unique(np.delete(basin, i, axis=1), axis=0, return_inverse=True)[1].ravel()
        alike = rest[:, None] == rest  # states that differ at most at site i
        for part in parts(np.arange(size), 256):  # |V| float64 per row
            law = (model.scores(basin[part], np.full(len(part), i)).double() / temperature).log_softmax(1)
            tokens = torch.as_tensor(basin[:, i], device=law.device)
            inside[part] += np.where(alike[part], law[:, tokens].exp().cpu().numpy(), 0.0) / n
            member = torch.zeros_like(law, dtype=torch.bool)
            row, column = np.nonzero(alike[part])
            member[row, tokens[column]] = True
            out[part] += law.masked_fill(member, -torch.inf).logsumexp(1).exp().cpu().numpy() / n
    np.fill_diagonal(inside, 0.0)
    return np.linalg.solve(np.diag(out + inside.sum(1)) - inside, np.ones(size))


def _time(model, start, inside, repeats, **options):
    until = lambda states: ~inside(states)  # noqa: E731
    trace = run_chains(model, np.tile(start, (repeats, 1)), until=until, **options)
    if not trace.complete:
        raise KeyboardInterrupt
    left = trace.stopped >= 0
    return pd.DataFrame({"exposure": np.where(left, trace.stopped, trace.n_steps), "left": left})


def time_escapes(model, start, basin, temperature, *, repeats, n_steps, seed=0, holding="path", checkpoint=None):
    """Observed times to leave a set of states, of independent chains from one of them.

    Parameters
    ----------
    model : ConditionalModel
    start : array_like, int[n]
    basin : array_like, int[K, n]
        The set; `start` is one of its states.
    temperature : float
    repeats, n_steps : int
        Chains, and the budget of each.
    seed : int
    holding : {"path", "geometric"}
        See `run_chains`. Only ``"path"`` tests a prediction of the holding time of a single state: ``"geometric"``
        draws it from that very prediction.
    checkpoint : str or Path, optional
        See `run_chains`.

    Returns
    -------
    DataFrame
        Per chain: ``exposure`` (steps to the exit, or to the end of the budget) and ``left`` (False: censored).
    """
    members = {tuple(state) for state in np.asarray(basin).tolist()}
    inside = lambda states: np.array([tuple(state) in members for state in states.tolist()])  # noqa: E731
    options = {"n_steps": n_steps, "seed": seed, "holding": holding, "checkpoint": checkpoint}
    return _time(model, start, inside, repeats, temperature=temperature, **options)


def time_count_escapes(
    model, start, token, floor, temperature, *, repeats, n_steps, max_moves=None, seed=0, holding="geometric",
    checkpoint=None,
):  # fmt: skip
    """Observed times until at most `floor` sites hold `token`, of independent chains.

    Otherwise as `time_escapes`. The budget is of `n_steps`, and of `max_moves` of one chain, for basins in which chains
    move without end; what ends first censors all chains at the same step.
    """
    inside = lambda states: (states == token).sum(1) > floor  # noqa: E731
    options = {"n_steps": n_steps, "max_moves": max_moves, "seed": seed, "holding": holding, "checkpoint": checkpoint}
    return _time(model, start, inside, repeats, temperature=temperature, **options)


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
    chance = np.empty((len(temperatures), 2, size * n))  # of the token, of all others
    for part, scores in _by_site(model, states):
        own = scores[:, token].clone()
        scores[:, token] = -torch.inf  # the others summed, so that a tiny probability to leave keeps its precision
        for k, temperature in enumerate(temperatures):
            lead = own / temperature - (scores / temperature).logsumexp(1)  # log odds of the token
            chance[k, :, part] = torch.stack([lead.sigmoid(), (-lead).sigmoid()], dim=1).cpu().numpy()
    holds = states == token
    enter, leave = chance.reshape(len(temperatures), 2, size, n).swapaxes(0, 1)  # (K, B, n) each
    up, down = (enter * ~holds).sum(2) / n, (leave * holds).sum(2) / n  # (K, B)
    return pd.DataFrame(
        {
            "temperature": np.repeat(temperatures, size), "count": np.tile(holds.sum(1), len(temperatures)),
            "up": up.ravel(), "down": down.ravel(), "drift": (up - down).ravel(),
        }
    )  # fmt: skip


def birth_death_time(up, down):
    r"""Mean time of a birth–death chain from its highest count to below its lowest.

    :math:`\sum_c T_c` with :math:`T_c = 1/p_-(c) + T_{c+1}\, p_+(c)/p_-(c)`, the mean time from count c to c - 1.

    Parameters
    ----------
    up, down : array_like, float[K]
        Probabilities of a step up and down from each count, lowest first; from the highest there is no step up.
    """
    time = total = 0.0
    for rise, fall in zip(np.asarray(up, float)[::-1], np.asarray(down, float)[::-1], strict=True):
        time = (1 + rise * time) / fall  # of the highest count: time is still zero
        total += time
    return total


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
