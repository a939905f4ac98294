r"""Margins and slow mixing: how long a chain stays in a state or a set of states (paper §5.3, App. A.1)."""

import numpy as np
import pandas as pd
import statsmodels.api as sm
import torch

from glauber_lib.chains import run_chains
from glauber_lib.draws import check_temperature, chunks
from glauber_lib.stats import poisson_interval

# Margins of a state --------------------------------------------------------------------------------------------------


def _by_site(model, states):
    """Scores float64[., V] of every state at every site, some rows at a time, with the rows' numbers (n per state)."""
    size, n = states.shape
    sites, repeated = np.tile(np.arange(n), size), np.repeat(states, n, axis=0)
    for part in chunks(np.arange(size * n), 256):  # |V| float64 per row
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


# Stays of a trace ----------------------------------------------------------------------------------------------------


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


# Times to leave a set ------------------------------------------------------------------------------------------------


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
        for part in chunks(np.arange(size), 256):  # |V| float64 per row
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
