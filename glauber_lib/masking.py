"""Experiments on masks: errors of fits against sample size, and theorems over many random laws."""

from itertools import pairwise

import numpy as np
import pandas as pd
import scipy.special
from numpy.typing import ArrayLike

from glauber_lib.blocks import blocks_of_size, check_blocks
from glauber_lib.checks import check_count, check_numbers, check_seed, check_whole
from glauber_lib.models import all_states, check_system
from glauber_lib.pseudolikelihood import (
    asymptotic_covariance,
    check_law,
    draw_counts,
    family_law,
    fit,
    information,
    ising_features,
    mixing_constant,
)


def clique_family(n_sites: int, coupling: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Spins with one coupling between all pairs and no field: features, true parameters float64[d], and law.

    The family has every coupling and every field as parameters. ValueError for a coupling that is not finite, or so
    many sites that they are no small system.
    """
    number, features = check_numbers(coupling, "coupling"), ising_features(n_sites)
    if number.ndim or not np.isfinite(number):
        raise ValueError(f"coupling must be a finite number, got {coupling!r}")
    n_sites = features.ndim - 1
    theta = np.concatenate([np.full(n_sites * (n_sites - 1) // 2, float(number)), np.zeros(n_sites)])
    return features, theta, family_law(features, theta)


def masking_errors(
    n_sites: int, coupling: float, samples: ArrayLike, repetitions: int, *, seed: int = 0
) -> pd.DataFrame:
    """Squared parameter errors of k-MPLE on a clique of spins, one mask a sample, for every size of mask.

    Parameters
    ----------
    n_sites : int
    coupling : float
    samples : array_like, int[K]
    repetitions : int
        Data sets of each size, drawn anew for each k.
    seed : int

    Returns
    -------
    DataFrame
        A row for each fit: ``k``, ``n``, ``repetition``, ``error`` (the sum of squares), ``converged``.

    Raises
    ------
    ValueError
        As `clique_family` and `draw_counts`.
    """
    samples, seed = check_whole(samples, "samples", 1), check_seed(seed)
    if samples.ndim != 1 or not samples.size:
        raise ValueError(f"samples must be a list of numbers, got shape {samples.shape}")
    features, theta, law = clique_family(n_sites, coupling)
    tables = []
    for k in range(1, law.ndim + 1):
        masks = blocks_of_size(law.ndim, k)
        for n in samples.tolist():
            own = int(np.random.SeedSequence([seed, k, n]).generate_state(1)[0])
            found = fit(draw_counts(law, masks, n, repetitions, seed=own), features, masks)
            error = ((found.theta - theta) ** 2).sum(1)
            table = {"k": k, "n": n, "repetition": np.arange(len(error)), "error": error, "converged": found.converged}
            tables.append(pd.DataFrame(table))
    return pd.concat(tables, ignore_index=True)


def survey_laws(n_laws: int, *, seed: int = 0) -> pd.DataFrame:
    r"""Learning beside mixing on random laws of three to five sites; masks are uniform, weighted and adaptive in turns.

    Parameters
    ----------
    n_laws : int
    seed : int

    Returns
    -------
    DataFrame
        A row for each law: ``masks`` (the kind), ``n_sites``, ``n_tokens``; ``constant``, the Poincaré constant C of
        the block dynamics; ``slack``, the least eigenvalue of :math:`C I - \mathcal I` over the largest of
        :math:`\mathcal I`; ``price``, the trace of :math:`\Gamma` over that of maximum likelihood; ``order``, the least
        eigenvalue of :math:`I_{k+1} - I_k` over all k; ``gain``, the least :math:`C_1 / (k C_k)`
        of 1 < k < n.

    Raises
    ------
    ValueError
        For no law.
    """
    n_laws, rng = check_count(n_laws, "n_laws", 1), np.random.default_rng([check_seed(seed), 7])
    rows = []
    for number in range(n_laws):
        kind, n = ("uniform", "weighted", "adaptive")[number % 3], int(rng.integers(3, 6))
        n_tokens = int(rng.integers(2, 4)) if n < 5 else 2
        features = rng.normal(size=(n_tokens,) * n + (3,))
        law = family_law(features, rng.normal(size=3))
        masks, weights = blocks_of_size(n, int(rng.integers(1, n))), None
        if kind != "uniform":
            weights = rng.dirichlet(np.ones(len(masks)), size=None if kind == "weighted" else law.size)
        constant, whole = mixing_constant(law, masks, weights), information(law, features, [range(n)])
        part = information(law, features, masks, weights)
        every = [information(law, features, blocks_of_size(n, k)) for k in range(1, n + 1)]
        constants = [mixing_constant(law, blocks_of_size(n, k)) for k in range(1, n)]
        rows.append(
            {
                "masks": kind, "n_sites": n, "n_tokens": n_tokens, "constant": constant,
                "slack": np.linalg.eigvalsh(constant * part - whole)[0] / np.linalg.eigvalsh(whole)[-1],
                "price": np.trace(np.linalg.inv(part)) / np.trace(np.linalg.inv(whole)),
                "order": min(np.linalg.eigvalsh(b - a)[0] for a, b in pairwise(every)),
                "gain": min(constants[0] / (k * c) for k, c in enumerate(constants[1:], 2)),
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def two_clusters(size: int, inner: float, outer: float) -> tuple[np.ndarray, np.ndarray]:
    """Features and law of spins in two clusters of `size` each, with couplings within and between them.

    ValueError for couplings that are not finite, or so many sites that they are no small system.
    """
    n = check_system(2, 2 * check_count(size, "size", 1), 2**12)
    numbers = [check_numbers(value, name) for value, name in ((inner, "inner"), (outer, "outer"))]
    if any(number.ndim or not np.isfinite(number) for number in numbers):
        raise ValueError(f"couplings must be finite numbers, got {inner!r} and {outer!r}")
    i, j = np.triu_indices(n, 1)
    features = ising_features(n)
    theta = np.concatenate([np.where((i < n // 2) == (j < n // 2), *map(float, numbers)), np.zeros(n)])
    return features, family_law(features, theta)


def content_weights(n_sites: int, masks: list, tilt: float) -> np.ndarray:
    """Adaptive weights float64[2**n, M] of masks of two spins: proportional to exp(tilt · product of the two).

    ValueError for masks that are no pairs of distinct sites, or a tilt that is not finite.
    """
    masks = check_blocks(masks, check_system(2, n_sites))
    spins, number = 2.0 * all_states(2, n_sites) - 1, check_numbers(tilt, "tilt")
    if number.ndim or not np.isfinite(number) or any(len(mask) != 2 for mask in masks):
        raise ValueError(f"need masks of two sites and a finite tilt, got {masks!r:.60} and {tilt!r}")
    return scipy.special.softmax(
        float(number) * np.stack([spins[:, i] * spins[:, j] for i, j in masks], axis=1), axis=1
    )


def traces_by_size(law: ArrayLike, features: ArrayLike, *, per_sample: float = 1) -> np.ndarray:
    r"""Trace of :math:`\Gamma` for masks of size 1 to n, float64[n]; ValueError as `asymptotic_covariance`."""
    n = check_law(law).ndim
    found = [asymptotic_covariance(law, features, blocks_of_size(n, k), per_sample=per_sample) for k in range(1, n + 1)]
    return np.array([np.trace(one) for one in found])
