r"""How much one coupled step contracts on states that chains visit, beside what the theorems ask for (paper §5.2).

Two states that differ at site j alone have the expected distance

.. math:: E d' = 1 - \frac1n \Bigl(1 - \sum_{i \ne j} TV(\pi_i(x), \pi_i(y))\Bigr)

after one maximally coupled step at a common uniform site. The sum is the influence of this one change. The theorem asks
for the largest sum over all states and sites to lie below one; a chain meets typical ones.
"""

from typing import Any

import numpy as np
import pandas as pd
import scipy.stats
import torch
from numpy.typing import ArrayLike
from tqdm.auto import tqdm

from glauber_lib.answers import ask
from glauber_lib.checks import (
    check_contexts,
    check_count,
    check_numbers,
    check_seed,
    check_temperature,
    check_whole,
    unmasked,
)
from glauber_lib.draws import inverse_cdf, probabilities
from glauber_lib.influence import Influence, contraction_norms, sufficient_temperature, threshold
from glauber_lib.models import ConditionalModel
from glauber_lib.search import pair_influence
from glauber_lib.stats import Estimate, bootstrap_estimate

# Measured on states of chains ----------------------------------------------------------------------------------------


def drawn_neighbours(
    model: ConditionalModel, states: ArrayLike, temperature: ArrayLike, *, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """A neighbour of each state: a uniform site gets another token, drawn by its conditional given that it changes.

    Parameters
    ----------
    model : ConditionalModel
    states : array_like, int[B, n]
    temperature : float or array_like, float[B]
    seed : int

    Returns
    -------
    neighbours : ndarray, int64[B, n]
    sites : ndarray, int64[B]
        Where they differ from the states.

    Raises
    ------
    ValueError
        If a site has no other token of positive probability.
    """
    states, rng = check_contexts(states, model.n_tokens), np.random.default_rng([check_seed(seed), 5])
    rows, temperature = np.arange(len(states)), check_temperature(temperature, (len(states),))
    sites = rng.integers(states.shape[1], size=len(states))
    scores = ask(model, states, sites).clone()
    scores[rows, states[rows, sites]] = -torch.inf
    if not (scores.amax(1) > -np.inf).all():
        raise ValueError("a neighbour needs two tokens at every site, got a site that allows one")
    uniform = torch.from_numpy(rng.random(len(states)))
    law = probabilities(scores, temperature)
    neighbours = states.copy()
    neighbours[rows, sites] = inverse_cdf(law, uniform.to(law.device))[0].cpu().numpy()
    return neighbours, sites


def drawn_influence(
    model: ConditionalModel, states: ArrayLike, temperature: ArrayLike, *, seed: int = 0, progress: str | None = None
) -> np.ndarray:
    r"""Influence :math:`\sum_{i \ne j} TV(\pi_i(x), \pi_i(y))` of each state and its drawn neighbour, float64[B].

    Exact for the pair. One step of the coupled pair contracts on average where it is below one.

    Parameters
    ----------
    model, states, temperature, seed
        See `drawn_neighbours`.
    progress : str, optional
        Title of a progress bar.
    """
    states = check_contexts(states, model.n_tokens)
    temperature, n = check_temperature(temperature, (len(states),)), states.shape[1]
    neighbours, sites = drawn_neighbours(model, states, temperature, seed=seed)
    sums = np.zeros(len(states))
    for b in tqdm(range(len(states)), desc=progress, disable=progress is None, leave=False):
        others = np.delete(np.arange(n), sites[b])
        if len(others):
            x, y = (np.tile(state[b], (len(others), 1)) for state in (states, neighbours))
            sums[b] = pair_influence(model, x, y, others, temperature[[b]]).sum()
    return sums


def crossing_estimate(temperatures: ArrayLike, values: ArrayLike, *, unit: str = "chains") -> Estimate:
    """Temperature above which the mean of `values` float[B, K] of B units stays below one, with a bootstrap interval.

    It is nan where it lies outside the `temperatures` float[K].
    """

    def crossing(*columns):
        return threshold(temperatures, [np.mean(column) for column in columns])

    return bootstrap_estimate(*unmasked(values, "values").T, unit=unit, statistic=crossing)


# Beside the theorems -------------------------------------------------------------------------------------------------


def crossings(temperatures: np.ndarray, matrices: np.ndarray) -> np.ndarray:
    """For each context the temperature above which its largest column sum stays below one, or nan; of [C, K, n, n]."""
    return np.array([threshold(temperatures, c.sum(1).max(1)) for c in unmasked(matrices, "matrices")])


def condition_thresholds(found: Influence) -> dict[str, float]:
    r"""Temperatures above which each sufficient condition holds for what was tried: lower bounds of the true ones.

    The four of `influence.contraction_norms`; ``tanh``, the column sums of tanh(δ/4τ); ``oscillation``,
    :math:`\tfrac14 \max_j \sum_i \delta_{ij}`.
    """
    norms = pd.DataFrame([contraction_norms(c) for c in found.maximum])
    bounds = np.tanh(found.oscillation / (4 * found.temperatures[:, None, None]))  # (K, n, n)
    out = {name: threshold(found.temperatures, norms[name]) for name in norms}
    out["tanh"] = threshold(found.temperatures, bounds.sum(1).max(1))
    out["oscillation"] = sufficient_temperature(found.oscillation)
    return out


def growth_with_effort(found: Influence, efforts: ArrayLike, *, n_orders: int = 50, seed: int = 0) -> pd.DataFrame:
    """How the measured thresholds grow with the contexts and the replacements tried.

    Parameters
    ----------
    found : Influence
    efforts : array_like, int[M]
        Numbers of contexts, of those that were tried.
    n_orders : int
        Random orders of the contexts; a number of contexts stands for the first of each order.
    seed : int

    Returns
    -------
    DataFrame
        ``replacements`` (all, and half of them), ``contexts``, and the mean over orders, with the tenth and ninetieth
        percentile ``_low, _high``, of ``alpha`` and ``oscillation``, the thresholds of `condition_thresholds`.

    Raises
    ------
    ValueError
        For efforts that are no whole numbers from one to the number of contexts tried, or no order.
    """
    rng, n_contexts, rows = np.random.default_rng(check_seed(seed)), len(found.tv), []
    n_orders = check_count(n_orders, "n_orders", least=1)
    efforts = check_whole(efforts, "efforts", least=1, most=n_contexts)
    orders = [rng.permutation(n_contexts) for _ in range(n_orders)]
    for n_replacements in sorted({-(-found.tv.shape[1] // 2), found.tv.shape[1]}):
        part = found.first(n_contexts, n_replacements)
        by_context, delta = part.by_context, part.oscillation_by_context
        for count in efforts.tolist():
            drawn = [order[:count] for order in orders]
            values = {
                "alpha": [threshold(found.temperatures, by_context[k].max(0).sum(1).max(1)) for k in drawn],
                "oscillation": [sufficient_temperature(delta[k].max(0)) for k in drawn],
            }
            row = {"replacements": n_replacements, "contexts": int(count)}
            for name, value in values.items():
                row |= {name: np.mean(value), f"{name}_low": np.quantile(value, 0.1)}
                row |= {f"{name}_high": np.quantile(value, 0.9)}
            rows.append(row)
    return pd.DataFrame(rows)


def ratio_of_independent(above: Estimate, below: Estimate) -> Estimate:
    """Ratio of two independent positive estimates, with the interval that follows from theirs.

    On the logarithmic scale the distances from value to end add in squares (Zou and Donner, 2008). `n` and `unit` are
    those of the estimate with fewer units. A lower bound over an estimate is a lower bound, over an upper bound too;
    an exact value is its own interval.

    Raises
    ------
    ValueError
        If an estimate is not positive, or both are bounds of one kind, whose ratio bounds nothing.
    """
    if above.value <= 0 or below.value <= 0:
        raise ValueError(f"a ratio needs positive estimates, got {above.value} and {below.value}")
    fewer = min(above, below, key=lambda estimate: estimate.n)
    value, interval, kind = above.value / below.value, None, _kind_of_ratio(above.kind, below.kind)
    ends: Any = [
        (e.value, e.value) if e.interval is None and e.kind not in ("estimate", "censored") else e.interval
        for e in (above, below)
    ]
    if all(ends) and (above.interval or below.interval):
        with np.errstate(divide="ignore"):
            sides = [-np.inf, 0], [0, np.inf]  # a value outside its own interval is as far as its nearer end
            l1, u1 = np.clip(np.log(np.maximum(ends[0], 0)) - np.log(above.value), *sides)
            l2, u2 = np.clip(np.log(np.maximum(ends[1], 0)) - np.log(below.value), *sides)
        interval = (float(value * np.exp(-np.hypot(l1, u2))), float(value * np.exp(np.hypot(u1, l2))))
    return Estimate(value, interval, fewer.n, fewer.unit, kind)


def _kind_of_ratio(above, below):
    """What the ratio of two kinds of `stats.KINDS` is."""
    turned = {"lower bound": "upper bound", "upper bound": "lower bound"}
    kinds = {above, turned.get(below, below)}
    if kinds >= set(turned):
        raise ValueError(f"a ratio of two bounds of one kind bounds nothing, got {above} over {below}")
    order = (*turned, "censored", "estimate", "exact")
    return next(kind for kind in order if kind in kinds)


def waterfall(
    passages: Influence, chain: Influence, drawn: Estimate, transition: Estimate, searched: float | None = None
) -> pd.DataFrame:
    r"""From the condition of the theorem to the transition: the temperatures at which ever less is asked for.

    Parameters
    ----------
    passages, chain : Influence
        Over coherent passages, and over states of chains. With fewer replacements of the latter the medians of both are
        compared at so many, in a row of its own.
    drawn : Estimate
        Temperature at which the mean influence of drawn changes is one (`crossing_estimate`).
    transition : Estimate
        :math:`\tau_c`, at which half of the coupled pairs meet within their budget.
    searched : float, optional
        Threshold of the pairs that a search found (`search.ColumnSearch.column_sums`).

    Returns
    -------
    DataFrame
        One row a step, from the top: ``step``, ``temperature``, ``low``, ``high``, ``kind`` (lower bound or estimate),
        ``size`` and ``unit`` (how many of what), ``over_next`` (ratio to the row below).
    """
    bound, effort, fewer = condition_thresholds(passages), passages.tv.shape[1], chain.tv.shape[1]
    bounds = {
        r"$\frac{1}{4}\max_j\sum_i\delta_{ij}$": bound["oscillation"],
        r"$\sum_i\tanh(\delta_{ij}/4\tau)$": bound["tanh"],
        r"$\alpha$, searched": searched, r"$\alpha$, all contexts": bound["alpha"],
        r"$\|C\|_2$": bound["spectral norm"], r"$\rho(C)$": bound["spectral radius"],
    }  # fmt: skip
    nowhere = {"low": np.nan, "high": np.nan, "kind": "lower bound", "size": len(passages.tv), "unit": "contexts"}
    rows = [{"step": step, "temperature": t, **nowhere} for step, t in bounds.items() if t is not None]
    medians = {
        rf"$\alpha$ of one passage ({r} repl.)": median_estimate(crossings(part.temperatures, part.by_context))
        for r, part in ((r, passages.first(len(passages.tv), r)) for r in sorted({effort, fewer}, reverse=True))
    }
    medians[rf"$\alpha$ of one chain state ({fewer} repl.)"] = median_estimate(
        crossings(chain.temperatures, chain.by_context)
    )
    for step, e in {**medians, "a drawn change, mean": drawn, r"$\tau_c$, coalescence": transition}.items():
        low, high = e.interval or (np.nan, np.nan)
        kind = "lower bound" if step in medians else "estimate"
        rows.append({"step": step, "temperature": e.value, "low": low, "high": high, "kind": kind,
                     "size": e.n, "unit": e.unit})  # fmt: skip
    table = pd.DataFrame(rows)
    return table.assign(over_next=table.temperature / table.temperature.shift(-1))


def median_estimate(values: ArrayLike, unit: str = "contexts") -> Estimate:
    """Median of independent values with its exact interval, from order statistics at 95% or more (binomial).

    The interval is nan, nan below six values: their range covers less than 95%. ValueError for what is no list.
    """
    values = np.sort(check_numbers(values, "values"))
    if values.ndim != 1:
        raise ValueError(f"values must be a list of numbers, got shape {values.shape}")
    n = len(values)
    if np.isnan(values).any() or not n:
        return Estimate(np.nan, (np.nan, np.nan), n, unit)
    chance = scipy.stats.binom.cdf(np.arange(n), n, 0.5)  # that at most k of n lie below the median
    k = int(np.searchsorted(chance, 0.025, side="right"))
    interval = (float(values[k - 1]), float(values[n - k])) if k else (np.nan, np.nan)
    return Estimate(float(np.median(values)), interval, n, unit)
