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
    check_numbers,
    check_temperatures,
)  # fmt: skip
from glauber_lib.checksums import model_checksum, refuse_other_model
from glauber_lib.draws import chunks
from glauber_lib.models import ConditionalModel
from glauber_lib.replacements import replacement_tokens as replacement_tokens

# Measured over given replacements ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Influence:
    r"""Result of `measure_influence`; entry [i, j] is the effect on site i of a change at site j.

    Attributes
    ----------
    temperatures : ndarray, float64[K]
    tv : ndarray, float64[C, R, K, n, n]
        Total variation of every change tried: C contexts, R replacements of the token at j.
    delta : ndarray, float64[C, R, n, n]
        Oscillation of the score difference of every change tried.

    Notes
    -----
    A maximum over what was tried is a lower bound on the supremum over all sentences; it grows with C and R.
    """

    temperatures: np.ndarray
    tv: np.ndarray
    delta: np.ndarray

    @property
    def by_context(self) -> np.ndarray:
        """Largest total variation over the replacements tried, for each context, float64[C, K, n, n]."""
        return self.tv.max(1)

    @property
    def average_by_context(self) -> np.ndarray:
        """Mean total variation over the replacements tried, for each context, float64[C, K, n, n]."""
        return self.tv.mean(1)

    @property
    def oscillation_by_context(self) -> np.ndarray:
        """Largest oscillation over the replacements tried, for each context, float64[C, n, n]."""
        return self.delta.max(1)

    @property
    def maximum(self) -> np.ndarray:
        r"""Lower bound float64[K, n, n] on :math:`c_{ij}(\tau)`, the supremum of the total variation."""
        return self.by_context.max(0)

    @property
    def average(self) -> np.ndarray:
        """Mean total variation float64[K, n, n] over all changes tried."""
        return self.average_by_context.mean(0)

    @property
    def oscillation(self) -> np.ndarray:
        r"""Lower bound float64[n, n] on :math:`\delta_{ij}`, the supremum of the score difference's oscillation."""
        return self.oscillation_by_context.max(0)

    @property
    def n_pairs(self) -> int:
        """Pairs of states tried for each (i, j)."""
        return self.delta.shape[0] * self.delta.shape[1]

    @property
    def excess(self) -> float:
        """Largest TV - tanh(δ/4τ) over all changes tried, -inf without any; by the theorem it is not positive."""
        bound = np.tanh(self.delta[:, :, None] / (4 * self.temperatures[:, None, None]))
        return float((self.tv - bound)[..., ~np.eye(self.delta.shape[-1], dtype=bool)].max(initial=-np.inf))

    def points(self, most: int = 20_000) -> pd.DataFrame:
        """``temperature, delta, tv`` of at most so many of the changes tried, at random; i other than j."""
        apart = ~np.eye(self.delta.shape[-1], dtype=bool)
        columns = {"temperature": self.temperatures[:, None, None], "delta": self.delta[:, :, None], "tv": self.tv}
        values = {name: np.broadcast_to(column, self.tv.shape)[..., apart].ravel() for name, column in columns.items()}
        points = pd.DataFrame(values)
        return points.sample(min(most, len(points)), random_state=0).sort_index()

    def first(self, n_contexts: int, n_replacements: int) -> "Influence":
        """What a smaller effort finds: the first contexts, and the first replacements of each.

        ValueError for numbers that are not those of contexts and replacements that were tried.
        """
        chosen = (
            slice(check_count(n_contexts, "n_contexts", least=1, most=self.tv.shape[0])),
            slice(check_count(n_replacements, "n_replacements", least=1, most=self.tv.shape[1])),
        )
        return Influence(self.temperatures, self.tv[chosen], self.delta[chosen])


@dataclass(frozen=True)
class _Measured(Stored):
    """What is measured so far: all replacements at the first `n_steps` of the C·n pairs of a context and a site j."""

    contexts: np.ndarray
    replacements: np.ndarray
    temperatures: np.ndarray
    delta: np.ndarray  # (C, R, i, j): oscillation of the score difference
    tv: np.ndarray  # (C, R, K, i, j): total variation
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
        Tokens put at each site of each context in place of its own. The own one among them changes nothing, and counts
        so in every mean.
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
    delta, tv = np.zeros((n_contexts, n_new, n, n)), np.zeros((n_contexts, n_new, len(temperatures), n, n))
    name, file = getattr(model, "name", ""), Checkpoint(checkpoint)
    begun = _Measured(contexts, replacements, temperatures, delta, tv, 0, name, model_checksum(model))
    measured = file.resume(begun, n_contexts * n, ("contexts", "replacements", "temperatures"))
    refuse_other_model(measured, begun, f"checkpoint {str(checkpoint)!r}")
    _measure_rest(model, measured, file, progress)
    return Influence(temperatures, measured.tv, measured.delta)


def _measure_rest(model, measured, file, progress):
    """Fill in `delta` and `tv` of the pairs of a context and a site that `measured` lacks."""
    n_contexts, n = measured.contexts.shape
    pairs, done = [(context, j) for context in range(n_contexts) for j in range(n)], measured.n_steps

    def so_far(done: int) -> _Measured:
        return replace(measured, n_steps=done)

    bar = tqdm(pairs[done:], initial=done, total=len(pairs), desc=progress, disable=progress is None, leave=False)
    before, unchanged = -1, None
    try:
        for context, j in bar:
            file.write_when_due(so_far, done)
            if context != before:  # what the conditionals are without a change, once for all sites j
                same = ask(model, np.tile(measured.contexts[context], (n, 1)), np.arange(n))
                before, unchanged = context, same.clone()  # the model may answer the next question in the same place
            _measure_pair(model, measured, unchanged, context, j)
            done += 1
    finally:
        file.write(so_far(done))


def _measure_pair(model, measured, unchanged, context, j):
    """Fill in `delta` and `tv` of the replacements at site `j` of one context."""
    replacements = measured.replacements[context, j]
    n_new, n = len(replacements), measured.contexts.shape[1]
    changed = np.repeat(measured.contexts[context][None], n_new, axis=0)
    changed[:, j] = replacements
    at_once = max(1, 2**24 // (model.n_tokens * (n_new + 1)))  # sites of (R + 1, V) float64 at a time
    for others in chunks(np.delete(np.arange(n), j), at_once):
        scores = ask(model, np.repeat(changed, len(others), axis=0), np.tile(others, n_new))
        scores = scores.view(n_new, len(others), -1).double()
        base = unchanged[torch.as_tensor(others)].double()
        measured.delta[context][:, others, j] = _oscillation(scores - base).cpu().numpy()
        for k, temperature in enumerate(measured.temperatures):
            measured.tv[context][:, k, others, j] = _variation(scores, base, temperature).cpu().numpy()


def _variation(scores, base, temperature):
    """Total variation [R, m] of laws by scores [R, m, V] from laws by scores [m, V].

    Some replacements at a time, in memory that is used again: new memory for all of them takes three times as long.
    """
    without, out = torch.softmax(base / temperature, dim=-1), []
    at_once = max(1, 2**22 // base.numel())
    scaled, law = (torch.empty_like(scores[:at_once]) for _ in range(2))
    for rows in scores.split(at_once):
        divided = torch.div(rows, temperature, out=scaled[: len(rows)])
        laws = torch.softmax(divided, dim=-1, out=law[: len(rows)])
        out.append(0.5 * laws.sub_(without).abs_().sum(2))
    found = torch.cat(out)
    if not found.isnan().any():
        return found
    less = lambda x: x - x.amax(-1, keepdim=True)  # noqa: E731 - a score over the temperature is beyond float64
    return _variation(less(scores), less(base), temperature)


def _oscillation(difference):
    """Largest less smallest difference of two rows of scores, of [..., V]; a token that both ban does not count."""
    spread = difference.amax(-1) - difference.amin(-1)
    if spread.isnan().any():
        banned = difference.isnan()
        spread = difference.masked_fill(banned, -torch.inf).amax(-1) - difference.masked_fill(banned, torch.inf).amin(
            -1
        )
    return spread


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
        Unless `matrix` is a square of finite numbers >= 0.
    """
    matrix = check_numbers(matrix, "matrix")
    square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1] and matrix.size
    if not square or not (np.isfinite(matrix) & (matrix >= 0)).all():
        raise ValueError(f"influence must be a square matrix of finite numbers >= 0, got shape {matrix.shape}")
    return {
        "alpha": float(matrix.sum(0).max()),
        "row sum": float(matrix.sum(1).max()),
        "spectral norm": float(np.linalg.norm(matrix, 2)),
        "spectral radius": float(np.abs(np.linalg.eigvals(matrix)).max()),
    }


def threshold(temperatures: ArrayLike, values: ArrayLike) -> float:
    """Temperature above which `values` float[K] stay below one, interpolated as a power of the temperature.

    Influence falls as 1/τ at high temperature, which this meets exactly. The threshold is nan where it lies outside the
    `temperatures` float[K], which may come in any order, or if a value is nan. From an infinite value on it is the next
    temperature. ValueError for temperatures that are none, named twice, or not one for each.
    """
    temperatures, values = check_temperatures(temperatures), check_numbers(values, "values")
    if values.shape != temperatures.shape or len(np.unique(temperatures)) < len(temperatures):
        raise ValueError(
            f"need one value for each of {len(temperatures)} different temperatures, got {temperatures.tolist()} and "
            f"values of shape {values.shape}"
        )
    order = np.argsort(temperatures)
    t, v = temperatures[order], values[order]
    above = np.flatnonzero(v >= 1)
    if np.isnan(v).any() or len(above) == 0 or above[-1] == len(v) - 1:
        return float("nan")
    k = above[-1]
    with np.errstate(divide="ignore"):
        above_one, fall = np.log(v[k]), np.log(v[k]) - np.log(v[k + 1])  # of a value of zero the fall is infinite
    share = above_one / fall if np.isfinite(v[k]) else 1.0
    return float(t[k] * (t[k + 1] / t[k]) ** share)


def sufficient_temperature(oscillation: np.ndarray) -> float:
    r"""Temperature above which mixing is O(n log n): :math:`\tfrac14 \max_j \sum_i \delta_{ij}` (paper §5.2).

    Parameters
    ----------
    oscillation : ndarray, float64[n, n]
        :math:`\delta_{ij}` at [i, j]; from `Influence.oscillation` it is a lower bound, and so is the temperature.

    Raises
    ------
    ValueError
        For what is no square, or holds nan or what is negative; an infinite oscillation gives an infinite temperature.
    """
    oscillation = check_numbers(oscillation, "oscillation")
    square = oscillation.ndim == 2 and len(set(oscillation.shape)) == 1 and oscillation.size
    if not square or not (oscillation >= 0).all():  # nan is not
        raise ValueError(f"oscillation must be a square matrix of numbers >= 0, got shape {oscillation.shape}")
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
