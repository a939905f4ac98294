r"""Influence of one site on another, and the thresholds of fast mixing that follow (paper §5.1, §5.2)."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike
from tqdm.auto import tqdm

from glauber_lib.answers import ask
from glauber_lib.checkpoints import Checkpoint, Stored
from glauber_lib.checks import (
    check_contexts,
    check_count,
    check_indices,
    check_replacements,
    check_seed,
    check_temperature,
    check_temperatures,
)
from glauber_lib.checksums import model_checksum, refuse_other_model
from glauber_lib.draws import chunks
from glauber_lib.models import ConditionalModel

# Measured over given replacements ------------------------------------------------------------------------------------


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
    def maximum(self) -> np.ndarray:
        r"""Lower bound float64[K, n, n] on :math:`c_{ij}(\tau)`, the supremum of the total variation."""
        return self.by_context.max(0)

    @property
    def average(self) -> np.ndarray:
        """Mean total variation float64[K, n, n] over all pairs tried."""
        return self.average_by_context.mean(0)

    @property
    def oscillation(self) -> np.ndarray:
        r"""Lower bound float64[n, n] on :math:`\delta_{ij}`, the supremum of the score difference's oscillation."""
        return self.oscillation_by_context.max(0)


def replacement_tokens(
    model: ConditionalModel, contexts: ArrayLike, n_replacements: int, *, seed: int = 0
) -> np.ndarray:
    """Tokens to try at each site in place of its own: half the model's best predictions there, half uniformly random.

    Parameters
    ----------
    model : ConditionalModel
    contexts : array_like, int[C, n]
    n_replacements : int
        Tokens R of each site of each context.
    seed : int

    Returns
    -------
    ndarray, int64[C, n, R]
    """
    contexts, rng = check_contexts(contexts, model.n_tokens), np.random.default_rng([check_seed(seed), 3])
    n_replacements = check_replacements(n_replacements, "n_replacements", model.n_tokens)
    at_sites = [_replacements(model, contexts, i, n_replacements, rng) for i in range(contexts.shape[1])]
    return np.stack(at_sites, axis=1)


def _replacements(model, contexts, site, n_replacements, rng):
    """Tokens int64[C, R] for one site: half the best predictions, half random, never the present one."""
    own = contexts[:, site]
    scores = ask(model, contexts, np.full(len(contexts), site)).clone()
    scores[torch.arange(len(own)), torch.as_tensor(own)] = -torch.inf
    best = scores.topk(n_replacements // 2, dim=1).indices.cpu().numpy()
    random = rng.integers(model.n_tokens - 1, size=(len(contexts), n_replacements - n_replacements // 2))
    return np.concatenate([best, random + (random >= own[:, None])], axis=1)


@dataclass(frozen=True)
class _Measured(Stored):
    """What is measured so far: all replacements at the first `n_steps` of the C·n pairs of a context and a site j."""

    contexts: np.ndarray
    replacements: np.ndarray
    temperatures: np.ndarray
    delta: np.ndarray  # (C, j, R, i): oscillation of the score difference
    tv: np.ndarray  # (C, j, K, R, i): total variation
    n_steps: int
    model: str
    model_checksum: str


def measure_influence(
    model: ConditionalModel,
    contexts: ArrayLike,
    replacements: ArrayLike,
    temperatures: ArrayLike,
    *,
    checkpoint: str | Path | None = None,
    progress: str | None = None,
) -> Influence:
    """Influence of every site on every other, over given contexts and replacement tokens.

    Parameters
    ----------
    model : ConditionalModel
    contexts : array_like, int[C, n]
    replacements : array_like, int[C, n, R]
        Tokens put at each site of each context in place of its own.
    temperatures : array_like, float[K]
    checkpoint : str or Path, optional
        A file for what is measured, written every five minutes and at the end, also by Ctrl-C: the same call goes on
        from there.
    progress : str, optional
        Title of a progress bar.

    Returns
    -------
    Influence
        The suprema are over what was tried: lower bounds.

    Raises
    ------
    ValueError
        For a temperature that is not positive and finite, contexts or replacements that are no tokens of the model or
        do not fit each other, or a checkpoint of another run or model.
    """
    contexts = check_contexts(contexts, model.n_tokens)
    replacements = check_indices(replacements, model.n_tokens, "replacements")
    temperatures = check_temperatures(temperatures)
    if replacements.ndim != 3 or replacements.shape[:2] != contexts.shape or not replacements.size:
        raise ValueError(f"replacements must have shape {(*contexts.shape, 'R')}, got {replacements.shape}")
    (n_contexts, n), n_new = contexts.shape, replacements.shape[2]
    # one place each for all numbers: many small arrays that outlive the large tensors between them keep the memory of
    # those from being used again
    delta, tv = np.zeros((n_contexts, n, n_new, n)), np.zeros((n_contexts, n, len(temperatures), n_new, n))
    name, file = getattr(model, "name", ""), Checkpoint(checkpoint)
    begun = _Measured(contexts, replacements, temperatures, delta, tv, 0, name, model_checksum(model))
    measured = file.resume(begun, n_contexts * n, ("contexts", "replacements", "temperatures"))
    refuse_other_model(measured, begun, f"checkpoint {str(checkpoint)!r}")
    _measure_rest(model, measured, file, progress)
    return _summary(measured)


def _measure_rest(model, measured, file, progress):
    """Fill in `delta` and `tv` of the pairs of a context and a site that `measured` lacks."""
    n_contexts, n = measured.contexts.shape
    pairs, done = [(context, j) for context in range(n_contexts) for j in range(n)], measured.n_steps

    def so_far(done: int) -> _Measured:
        return replace(measured, n_steps=done)

    bar = tqdm(pairs[done:], initial=done, total=len(pairs), desc=progress, disable=progress is None, leave=False)
    try:
        for context, j in bar:
            file.write_when_due(so_far, done)
            _measure_pair(model, measured, context, j)
            done += 1
    finally:
        file.write(so_far(done))


def _measure_pair(model, measured, context, j):
    """Fill in `delta` and `tv` of the replacements at site `j` of one context."""
    replacements = measured.replacements[context, j]
    n_new, n = len(replacements), measured.contexts.shape[1]
    changed = np.repeat(measured.contexts[context][None], n_new + 1, axis=0)  # row 0 stays as it is
    changed[1:, j] = replacements
    at_once = max(1, 2**24 // (model.n_tokens * (n_new + 1)))  # sites of (R + 1, V) float64 at a time
    for others in chunks(np.delete(np.arange(n), j), at_once):
        scores = ask(model, np.repeat(changed, len(others), axis=0), np.tile(others, n_new + 1))
        scores = scores.view(n_new + 1, len(others), -1).double()
        measured.delta[context, j][:, others] = _oscillation(scores[1:] - scores[:1]).cpu().numpy()
        for k, temperature in enumerate(measured.temperatures):
            law = torch.softmax(scores / temperature, dim=-1)
            measured.tv[context, j, k][:, others] = 0.5 * (law[1:] - law[:1]).abs().sum(2).cpu().numpy()


def _oscillation(difference):
    """Largest less smallest difference of two rows of scores, of [..., V]; a token that both ban does not count."""
    spread = difference.amax(-1) - difference.amin(-1)
    if spread.isnan().any():
        banned = difference.isnan()
        spread = difference.masked_fill(banned, -torch.inf).amax(-1) - difference.masked_fill(banned, torch.inf).amin(
            -1
        )
    return spread


def _summary(measured):
    """The `Influence` of all pairs."""
    delta, tv, temperatures = measured.delta, measured.tv, measured.temperatures
    n_contexts, n, _, n_new, _ = tv.shape
    apart = np.broadcast_to(~np.eye(n, dtype=bool)[:, None, None], tv.shape)  # i other than j
    columns = {"temperature": temperatures[:, None, None], "delta": delta[:, :, None], "tv": tv}
    points = pd.DataFrame({name: np.broadcast_to(values, tv.shape)[apart] for name, values in columns.items()})
    excess = float((points.tv - np.tanh(points.delta / (4 * points.temperature))).max())
    points = points.sample(min(20_000, len(points)), random_state=0).sort_index()
    # in memory as they are read from the cache, where sums over them run in the same order
    by_context, average = (np.ascontiguousarray(a.transpose(0, 2, 3, 1)) for a in (tv.max(3), tv.mean(3)))
    oscillation = np.ascontiguousarray(delta.max(2).swapaxes(1, 2))
    return Influence(temperatures, by_context, average, oscillation, n_contexts * n_new, excess, points)


# Searched ------------------------------------------------------------------------------------------------------------


def column_influence(
    model: ConditionalModel, x: np.ndarray, y: np.ndarray, site: int, temperature: float
) -> np.ndarray:
    r"""Influence of one site on all others, :math:`\sum_i TV(\pi_i(x), \pi_i(y))`, of B pairs that differ there.

    Parameters
    ----------
    model : ConditionalModel
    x, y : ndarray, int64[B, n]
    site : int
    temperature : float

    Returns
    -------
    ndarray, float64[B]
    """
    x, y = check_contexts(x, model.n_tokens), check_contexts(y, model.n_tokens)
    if x.shape != y.shape:
        raise ValueError(f"x and y must have one shape, got {x.shape} and {y.shape}")
    (size, n), temperature = x.shape, float(check_temperature(temperature))
    site = check_count(site, "site", most=n - 1)
    others = np.delete(np.arange(n), site)
    scores = ask(model, np.repeat(np.concatenate([x, y]), n - 1, axis=0), np.tile(others, 2 * size))
    law = torch.softmax(scores.double() / temperature, dim=-1).view(2, size, n - 1, model.n_tokens)
    return (0.5 * (law[0] - law[1]).abs().sum((1, 2))).cpu().numpy()


def search_influence(
    model: ConditionalModel,
    contexts: ArrayLike,
    site: int,
    temperature: float = 1.0,
    *,
    rounds: int,
    candidates: int = 8,
    climb: bool = True,
    seed: int = 0,
    progress: str | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    r"""Search for the pair of states at which a site's influence on all others is largest.

    What is found is a lower bound on :math:`\max_{x,y} \sum_i TV`, and so on :math:`\alpha(\tau)`. Random pairs are
    far below it.

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

    Raises
    ------
    ValueError
        For contexts, a `site`, `rounds`, `candidates` or a temperature that are none.
    """
    contexts, rounds = check_contexts(contexts, model.n_tokens), check_count(rounds, "rounds", least=1)
    site, n = check_count(site, "site", most=contexts.shape[1] - 1), contexts.shape[1]
    candidates, rng = (
        check_replacements(candidates, "candidates", model.n_tokens),
        np.random.default_rng([check_seed(seed), site]),
    )
    temperature, stalled_for = float(check_temperature(temperature)), 0
    best, here, values = (-np.inf,), None, []  # pairs as (value, x, y): the largest found, and where the climb is
    for _ in tqdm(range(rounds), desc=progress, disable=progress is None, leave=False):
        if here is None or not climb:
            x = contexts[rng.integers(len(contexts), size=candidates)]
            at, tokens = site, _replacements(model, x, site, 2, rng)[np.arange(candidates), np.arange(candidates) % 2]
            y = x.copy()
        else:
            at = int(rng.integers(n))
            tokens = _replacements(model, here[2][None], at, candidates, rng)[0]
            x, y = (np.tile(state, (candidates, 1)) for state in here[1:])
        y[:, at] = tokens
        if at != site:
            x[:, at] = tokens
        value = column_influence(model, x, y, site, temperature)
        k = value.argmax()
        found = value[k], x[k], y[k]
        if here is None or found[0] > here[0]:
            here, stalled_for = found, 0
        else:
            stalled_for += 1
        best = max(best, found, key=lambda pair: pair[0])
        values.append(best[0])
        if stalled_for == 2 * n:
            here, stalled_for = None, 0
    return np.array(values), *best[1:]


# Thresholds ----------------------------------------------------------------------------------------------------------


def contraction_norms(matrix: np.ndarray) -> dict[str, float]:
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

    Raises
    ------
    ValueError
        Unless `matrix` is a square of finite numbers.
    """
    matrix = np.asarray(matrix, float)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size or not np.isfinite(matrix).all():
        raise ValueError(f"influence must be a square matrix of finite numbers, got shape {matrix.shape}")
    return {
        "alpha": float(matrix.sum(0).max()),
        "row sum": float(matrix.sum(1).max()),
        "spectral norm": float(np.linalg.norm(matrix, 2)),
        "spectral radius": float(np.abs(np.linalg.eigvals(matrix)).max()),
    }


def threshold(temperatures: ArrayLike, values: ArrayLike) -> float:
    """Temperature above which `values` float[K] stay below one, by interpolation in log temperature.

    It is nan where it lies outside the `temperatures` float[K], which may come in any order, or if a value is nan. From
    an infinite value on it is the next temperature. ValueError for temperatures that are none, or not one for each.
    """
    temperatures, values = check_temperatures(temperatures), np.asarray(values, float)
    if values.shape != temperatures.shape:
        raise ValueError(f"need one value for each of {len(temperatures)} temperatures, got shape {values.shape}")
    order = np.argsort(temperatures)
    t, v = np.log(temperatures[order]), values[order]
    above = np.flatnonzero(v >= 1)
    if np.isnan(v).any() or len(above) == 0 or above[-1] == len(v) - 1:
        return float("nan")
    k = above[-1]
    share = (v[k] - 1) / (v[k] - v[k + 1]) if np.isfinite(v[k]) else 1.0
    return float(np.exp(t[k] + (t[k + 1] - t[k]) * share))


def sufficient_temperature(oscillation: np.ndarray) -> float:
    r"""Temperature above which mixing is O(n log n): :math:`\tfrac14 \max_j \sum_i \delta_{ij}` (paper §5.2).

    Parameters
    ----------
    oscillation : ndarray, float64[n, n]
        :math:`\delta_{ij}` at [i, j]; from `Influence.oscillation` it is a lower bound, and so is the temperature.
    """
    return float(oscillation.sum(0).max() / 4)


def contraction_bound(alpha: float, n: int, epsilon: float = 0.25) -> float:
    r"""Upper bound on the mixing time, in steps: :math:`\lceil n/(1 - \alpha) \log(n/\epsilon) \rceil`.

    It is infinite for :math:`\alpha \ge 1` (paper §5.1).

    Parameters
    ----------
    alpha : float
        Contraction coefficient (`contraction_norms`).
    n : int
        Sites.
    epsilon : float
        Distance in total variation at which the chain counts as mixed.

    Raises
    ------
    ValueError
        If `alpha` is nan or negative, `n` below one, or `epsilon` not above zero.
    """
    check_contraction(alpha, n, epsilon)
    return float(np.ceil(n / (1 - alpha) * np.log(n / epsilon))) if alpha < 1 else np.inf


def check_contraction(alpha: float, n: int, distance: float) -> None:
    """Refuse what bounds no chain: ValueError unless alpha >= 0, n >= 1 and 0 < distance <= 1."""
    if not (alpha >= 0 and n >= 1 and 0 < distance <= 1):  # nan is none of these
        raise ValueError(
            f"alpha must be a number >= 0, n >= 1 and the distance in (0, 1], got {alpha}, {n} and {distance:g}"
        )
