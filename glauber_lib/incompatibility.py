r"""The rectangle test: do the conditionals fit any joint distribution? (paper §4)

Take a sequence with tokens a, c at sites i, j and replacements b, d. With

.. math:: \ell_i(a \to b \mid x_j = c) = \log \pi_i(b \mid \ldots c \ldots) - \log \pi_i(a \mid \ldots c \ldots)

a joint law would make both paths from (a, c) to (b, d) agree, so that

.. math:: \Delta = \bigl| [\ell_i(a \to b \mid c) + \ell_j(c \to d \mid b)]
                        - [\ell_j(c \to d \mid a) + \ell_i(a \to b \mid d)] \bigr| = |I_{ij} - I_{ji}|

vanishes. :math:`I_{ij}` and :math:`I_{ji}` are the log cross-ratio as read from either site.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import scipy.stats
import torch

from glauber_lib.engine import check_temperature, inverse_cdf, weights


@dataclass(frozen=True)
class Rectangles:
    """K rectangles.

    Attributes
    ----------
    states : ndarray, int64[K, n]
        The sequences, with a at site i and c at site j.
    passage : ndarray, int64[K]
        Row of the given states from which each comes.
    i, j : ndarray, int64[K]
    b, d : ndarray, int64[K]
        Replacements at i and j.
    """

    states: np.ndarray
    passage: np.ndarray
    i: np.ndarray
    j: np.ndarray
    b: np.ndarray
    d: np.ndarray

    def __len__(self):
        return len(self.i)

    def take(self, rows):
        """Some of the rectangles."""
        return Rectangles(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))

    def corner(self, *, b=False, d=False):
        """The states with `b` and/or `d` put in, int64[K, n]."""
        states, rows = self.states.copy(), np.arange(len(self))
        if b:
            states[rows, self.i] = self.b
        if d:
            states[rows, self.j] = self.d
        return states


def sample_rectangles(model, states, n_rectangles, *, seed=0, top=50, temperature=None, propose=None):
    """Random rectangles: passage and sites drawn uniformly, replacements from the model's predictions.

    Parameters
    ----------
    model : ConditionalModel
    states : array_like, int[P, n]
        Passages.
    n_rectangles : int
    seed : int
    top : int
        b and d come uniformly from the model's `top` best predictions at their site, the present token excluded.
    temperature : float, optional
        Draw b and d from the conditional law at this temperature instead, the present token excluded: the moves a
        chain would make. Rectangles of one seed have the same passages and sites at every temperature.
    propose : callable, optional
        ``propose(states, sites) -> scores`` of the predictions; default ``model.scores``.

    Returns
    -------
    Rectangles
    """
    states = np.asarray(states)
    if states.shape[1] < 2:
        raise ValueError(f"a rectangle needs two sites, got states of {states.shape[1]}")
    if temperature is not None:
        temperature = float(check_temperature(temperature))
    rng = np.random.default_rng([seed, 1])
    passage = rng.integers(len(states), size=n_rectangles)
    chosen = states[passage]
    i = rng.integers(states.shape[1], size=n_rectangles)
    j = (i + rng.integers(1, states.shape[1], size=n_rectangles)) % states.shape[1]
    scores = propose or model.scores

    def drawn(sites):
        predictions = scores(chosen, sites).double()
        predictions[torch.arange(n_rectangles), torch.as_tensor(chosen[np.arange(n_rectangles), sites])] = -torch.inf
        uniform = torch.as_tensor(rng.random(n_rectangles), device=predictions.device)
        return inverse_cdf(weights(predictions, temperature), uniform)[0].cpu().numpy()

    def best_ones(sites):
        best = scores(chosen, sites).topk(min(top + 1, model.n_tokens), dim=1).indices.cpu().numpy()
        present = chosen[np.arange(n_rectangles), sites]
        out = np.empty(n_rectangles, dtype=np.int64)
        for k, row in enumerate(best):
            out[k] = rng.choice([v for v in row if v != present[k]][:top])
        return out

    replacement = best_ones if temperature is None else drawn
    return Rectangles(chosen, passage, i, j, replacement(i), replacement(j))


def measure_rectangles(model, rectangles, *, temperature=1.0):
    r"""Incompatibility of every rectangle by four masked forward passes.

    Parameters
    ----------
    model : ConditionalModel
    rectangles : Rectangles
    temperature : float

    Returns
    -------
    DataFrame
        One row per rectangle: ``passage, i, j, distance, a, b, c, d``; ``I_ij, I_ji`` (nats); ``delta`` =
        :math:`|I_{ij} - I_{ji}|`; ``relative`` = :math:`\Delta/(|I_{ij}| + |I_{ji}|)`; ``influence``, the mean of
        TV(π_i(·|c), π_i(·|d)) and TV(π_j(·|a), π_j(·|b)).
    """
    temperature = float(check_temperature(temperature))
    rows = np.arange(len(rectangles))
    a, c = rectangles.states[rows, rectangles.i], rectangles.states[rows, rectangles.j]

    def law(corner, sites):
        scores = model.scores(corner, sites)
        return (scores.double() / temperature).log_softmax(1).cpu().numpy()  # (K, V)

    def change(law, old, new):
        return law[rows, new] - law[rows, old]

    parts = []
    for at, other, old, new in (
        (rectangles.i, {"d": True}, a, rectangles.b),
        (rectangles.j, {"b": True}, c, rectangles.d),
    ):
        here, there = law(rectangles.states, at), law(rectangles.corner(**other), at)
        parts.append(
            (change(there, old, new) - change(here, old, new), 0.5 * np.abs(np.exp(here) - np.exp(there)).sum(1))
        )
    (from_i, tv_i), (from_j, tv_j) = parts
    delta = np.abs(from_i - from_j)
    size = np.abs(from_i) + np.abs(from_j)
    return pd.DataFrame(
        {
            "passage": rectangles.passage, "i": rectangles.i, "j": rectangles.j,
            "distance": np.abs(rectangles.i - rectangles.j),
            "a": a, "b": rectangles.b, "c": c, "d": rectangles.d,
            "I_ij": from_i, "I_ji": from_j, "delta": delta,
            "relative": np.divide(delta, size, out=np.zeros_like(delta), where=size > 0),
            "influence": (tv_i + tv_j) / 2,
        }
    )  # fmt: skip


def noise_floor(model, rectangles):
    """Largest change of Δ (nats) when `rectangles` are evaluated in float64 instead of float32."""
    single, double = (measure_rectangles(m, rectangles).delta for m in (model, model.double()))
    return float((single - double).abs().max())


def measure_joint(model, rectangles):
    """The control: the same loop of four edges, each a difference of joint log-probabilities.

    That Δ vanishes is then an identity, up to rounding: what makes the model a joint is that each factor depends on
    the tokens before it alone, which `CausalLM` checks. Every edge is evaluated by itself, in the order of the paths.

    Parameters
    ----------
    model : CausalLM
        Anything with ``log_prob(states)``.
    rectangles : Rectangles

    Returns
    -------
    DataFrame
        ``passage, i, j, distance, delta``.
    """
    corners = {(b, d): rectangles.corner(b=b, d=d) for b in (False, True) for d in (False, True)}

    def edge(start, end):
        values = model.log_prob(np.concatenate([corners[end], corners[start]])).cpu().numpy()
        return values[: len(rectangles)] - values[len(rectangles) :]

    first = edge((False, False), (True, False)) + edge((True, False), (True, True))
    second = edge((False, False), (False, True)) + edge((False, True), (True, True))
    return pd.DataFrame(
        {
            "passage": rectangles.passage, "i": rectangles.i, "j": rectangles.j,
            "distance": np.abs(rectangles.i - rectangles.j), "delta": np.abs(first - second),
        }
    )  # fmt: skip


def above(interval, null=0.0):
    """Verdict on 'greater than `null`' from a 95% interval: True, False, or undecided if it contains `null`."""
    low, high = interval
    return True if low > null else False if high < null else "not measurable here"


def bootstrap_interval(*samples, statistic=np.mean, groups=None, n_resamples=2_000, seed=0):
    """95% percentile bootstrap interval of a statistic, rows resampled together.

    Rows that share a passage are no independent draws; with `groups` whole groups are resampled, not rows.

    Parameters
    ----------
    *samples : array_like, float[K]
        Paired samples, passed to `statistic` in order.
    statistic : callable
    groups : array_like, [K], optional
        The group of each row, any labels.
    n_resamples : int
    seed : int

    Returns
    -------
    tuple of float
        Lower and upper end; both equal the statistic if all values are the same, both NaN if there is one group only.
    """
    samples = [np.asarray(s, dtype=float) for s in samples]
    if len(samples[0]) < 2 or all(np.ptp(s) == 0 for s in samples):
        value = float(statistic(*samples))
        return value, value
    if groups is not None:
        return _group_interval(samples, statistic, np.asarray(groups), n_resamples, seed)
    result = scipy.stats.bootstrap(
        samples, statistic, paired=True, vectorized=False, n_resamples=n_resamples, method="percentile",
        rng=np.random.default_rng(seed),
    )  # fmt: skip
    return float(result.confidence_interval.low), float(result.confidence_interval.high)


def _group_interval(samples, statistic, groups, n_resamples, seed):
    if groups.shape != (len(samples[0]),):
        raise ValueError(f"groups must hold one label for each of {len(samples[0])} rows, got shape {groups.shape}")
    names, group = np.unique(groups, return_inverse=True)
    if len(names) < 2:
        return np.nan, np.nan
    rng, values = np.random.default_rng(seed), np.empty(n_resamples)
    for k in range(n_resamples):
        times = np.bincount(rng.integers(len(names), size=len(names)), minlength=len(names))
        rows = np.repeat(np.arange(len(group)), times[group])
        values[k] = statistic(*(sample[rows] for sample in samples))
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)


def rank_correlation(x, y):
    """Spearman's ρ."""
    return float(np.corrcoef(scipy.stats.rankdata(x), scipy.stats.rankdata(y))[0, 1])


def opposite_signs(x, y, *, floor=0.0):
    """Whether two readings have opposite signs and both exceed the noise `floor`, bool[K]."""
    x, y = np.asarray(x), np.asarray(y)
    return (x * y < 0) & (np.minimum(np.abs(x), np.abs(y)) > floor)


def binned_intervals(x, y, *, groups=None, bins=6):
    """Means of `y` along `x` with 95% intervals.

    Parameters
    ----------
    x, y : array_like, float[K]
    groups : array_like, [K], optional
        See `bootstrap_interval`.
    bins : int
        Bins of about equal size, cut at quantiles of `x`; equal values share a bin, so there may be fewer.

    Returns
    -------
    DataFrame
        One row per bin: ``x`` (its median), ``mean, low, high, n``.
    """
    table = pd.DataFrame(
        {"x": np.asarray(x), "y": np.asarray(y), "group": np.arange(len(x)) if groups is None else groups}
    )
    rows = []
    for _, part in table.groupby(pd.qcut(table.x, bins, duplicates="drop"), observed=True):
        low, high = bootstrap_interval(part.y, groups=part.group)
        rows.append({"x": part.x.median(), "mean": part.y.mean(), "low": low, "high": high, "n": len(part)})
    return pd.DataFrame(rows)


def marked_texts(model, rectangles, *, b=False, d=False):
    """One corner of each rectangle as text, the tokens at i and j in brackets.

    Parameters
    ----------
    model : MaskedLM or CausalLM
    rectangles : Rectangles
    b, d : bool
        See `Rectangles.corner`.
    """
    texts = []
    for state, *sites in zip(rectangles.corner(b=b, d=d), rectangles.i, rectangles.j, strict=True):
        words = model.words(state)
        for site in sites:
            words[site] = f"[{words[site]}]"
        texts.append(model.tokenizer.convert_tokens_to_string(words))
    return texts
