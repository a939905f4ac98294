"""Coalescence of chains from different passages, and of small systems beside what is exactly known (paper §6.1)."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from glauber_lib import exact
from glauber_lib.checks import check_contexts, check_count, check_seed, check_temperatures, unmasked
from glauber_lib.couplings import Coalescence, coalesce
from glauber_lib.influence import check_contraction, contraction_bound
from glauber_lib.models import ConditionalModel, TabularModel
from glauber_lib.survival import time_until


def budget(n: int, multiple: float) -> int:
    """Steps of a run whose length is proportional to n log n; ValueError for a length or a multiple that is none."""
    if not 0 <= multiple < np.inf or isinstance(multiple, bool):
        raise ValueError(f"multiple must be a finite number >= 0, got {multiple!r}")
    n = check_count(n, "n", least=1)
    return round(multiple * n * np.log(n))


def couple_passages(
    model: ConditionalModel,
    states: ArrayLike,
    temperatures: ArrayLike,
    *,
    n_pairs: int,
    n_steps: int,
    seed: int = 0,
    progress: str | None = None,
    checkpoint: str | Path | None = None,
) -> Coalescence:
    """Maximally coupled pairs of chains from different passages, the same pairs at every temperature.

    Parameters
    ----------
    model : ConditionalModel
    states : array_like, int[P, n]
        All passages, cut to n tokens. The pairs are the first of a permutation drawn with
        ``np.random.default_rng([seed, 0])``: no passage is in two pairs, and every length has the same pairs.
    temperatures : array_like, float[T]
    n_pairs : int
        Pairs at each temperature.
    n_steps : int
        Budget of a pair.
    seed : int
    progress, checkpoint
        See `couplings.coalesce`.

    Returns
    -------
    Coalescence
        Of ``T * n_pairs`` runs, the pairs of the first temperature first; the time of one that did not meet is nan.

    Raises
    ------
    ValueError
        If there are fewer passages than the pairs take, no pair, or a temperature that is not positive and finite, or
        named twice.
    """
    states, temperatures = unmasked(states, "states"), check_temperatures(temperatures)
    if len(np.unique(temperatures)) < len(temperatures):
        raise ValueError(f"temperatures must differ, got {temperatures.tolist()}: the pairs of one are the same starts")
    n_pairs, seed = check_count(n_pairs, "n_pairs", least=1), check_seed(seed)
    if len(states) < 2 * n_pairs:
        raise ValueError(f"{n_pairs} pairs take {2 * n_pairs} passages, got {len(states)}")
    chosen = np.random.default_rng([seed, 0]).permutation(len(states))[: 2 * n_pairs].reshape(2, n_pairs)
    x, y = (np.tile(states[rows], (len(temperatures), 1)) for rows in chosen)
    return coalesce(
        model, x, y, temperature=np.repeat(temperatures, n_pairs), n_steps=n_steps, seed=seed, progress=progress,
        checkpoint=checkpoint,
    )  # fmt: skip


def coalescence_bound(alpha: float, n: int, chance: float = 0.5) -> float:
    r"""Steps within which a pair has met with probability `chance` or more, if alpha < 1; infinite otherwise.

    By contraction the expected Hamming distance after t steps is at most :math:`n (1 - (1 - \alpha)/n)^t`. A pair that
    has not met is at distance one at least. So :math:`t = n/(1 - \alpha) \log(n/(1 - \mathrm{chance}))` steps suffice.

    ValueError for an `alpha` that is nan or negative, an `n` below one, or a `chance` outside of 0 .. 1.
    """
    check_contraction(alpha, n, 1 - chance)
    return n / (1 - alpha) * np.log(n / (1 - chance)) if alpha < 1 else np.inf


def pair_times(runs: Mapping[int, Coalescence]) -> pd.DataFrame:
    """Coalescence times of runs in which the same pairs of starts were given for every length and temperature.

    Parameters
    ----------
    runs : mapping of int to Coalescence
        By length; each holds the pairs of starts in the same order for every one of its temperatures.

    Returns
    -------
    DataFrame
        One row for each run of a pair: ``n, temperature, pair`` (place of the pair of starts among those of its
        temperature), ``met``, and ``time``, the steps until it met or, if it did not, the budget.

    Raises
    ------
    ValueError
        For a run that is of another length than is said.
    """
    tables = []
    for n, run in runs.items():
        if n != (sites := run.initial.shape[2]):
            raise ValueError(f"runs must be named by their length, got states of {sites} tokens for n = {n}")
        time = np.where(run.censored, run.n_steps, run.time)
        table = pd.DataFrame({"n": n, "temperature": run.temperature, "met": ~run.censored, "time": time})
        table.insert(2, "pair", table.groupby("temperature").cumcount())
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def coalescence_beside_mixing(
    table: TabularModel, x: ArrayLike, y: ArrayLike, temperatures: ArrayLike, *, n_steps: int, seed: int = 0
) -> pd.DataFrame:
    r"""Coalescence of a small system beside what is exactly known of it.

    Parameters
    ----------
    table : TabularModel
        All scores of the system (`exact.tabulate`).
    x, y : array_like, int[B, n]
        Starts of the pairs, the same at every temperature.
    temperatures : array_like, float[K]
    n_steps : int
        Budget of a pair.
    seed : int

    Returns
    -------
    DataFrame
        One row for each temperature: ``τ``; ``α`` and ``t_mix`` :math:`(\tfrac14)`, exact; ``contraction bound`` on
        it, infinite where :math:`\alpha \ge 1`; ``three quarters met``, the step by which that share of the pairs met,
        with its 95% interval ``low, high`` (nan, inf where the budget does not tell); ``met``, the share within the
        budget.
    """
    rows, n = [], check_contexts(x, table.n_tokens).shape[1]
    for temperature in check_temperatures(temperatures):
        alpha = exact.influence(table, n, temperature).sum(0).max()
        run = coalesce(table, x, y, n_steps=n_steps, temperature=temperature, seed=seed)
        met = pair_times({n: run})
        quarter = time_until(met.time, met.met, 0.75, unit="pairs")
        low, high = quarter.interval or (np.nan, np.inf)
        rows.append({
            "τ": temperature, "α": alpha, "t_mix": exact.mixing_time(exact.transition_matrix(table, n, temperature)),
            "contraction bound": contraction_bound(alpha, n), "three quarters met": quarter.value,
            "low": low, "high": high, "met": met.met.mean(),
        })  # fmt: skip
    return pd.DataFrame(rows)
