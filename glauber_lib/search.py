r"""Search for the pairs of states at which influence is largest: :math:`\alpha(\tau)` is a supremum over all of them.

:math:`c_{ij}` is the supremum over pairs that differ at site j alone of the total variation that this makes at site i.
Every i has a worst pair of its own. So a search climbs for each (i, j), and :math:`\alpha \ge \sum_i c_{ij}`.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike
from tqdm.auto import tqdm

from glauber_lib.answers import ask
from glauber_lib.checks import (
    check_contexts,
    check_count,
    check_indices,
    check_replacements,
    check_seed,
    check_temperatures,
)
from glauber_lib.checksums import refuse_other_vocabulary, vocabulary_checksum
from glauber_lib.draws import probabilities
from glauber_lib.models import ConditionalModel
from glauber_lib.replacements import best_and_random


def pair_influence(
    model: ConditionalModel, x: ArrayLike, y: ArrayLike, sites: ArrayLike, temperatures: ArrayLike
) -> np.ndarray:
    r"""Total variation :math:`TV(\pi_i(x), \pi_i(y))` of B pairs of states, each at a site i of its own.

    Parameters
    ----------
    model : ConditionalModel
    x, y : array_like, int[B, n]
    sites : array_like, int[B]
    temperatures : array_like, float[K]

    Returns
    -------
    ndarray, float64[B, K]

    Raises
    ------
    ValueError
        For states of different shapes, or sites that are not one of each pair's own.
    """
    x, y = check_contexts(x, model.n_tokens), check_contexts(y, model.n_tokens)
    if x.shape != y.shape:
        raise ValueError(f"x and y must have one shape, got {x.shape} and {y.shape}")
    sites, temperatures, found = check_indices(sites, x.shape[1], "sites"), check_temperatures(temperatures), []
    if sites.shape != (len(x),):
        raise ValueError(f"sites must hold one site for each of {len(x)} pairs, got shape {sites.shape}")
    for rows in np.array_split(np.arange(len(x)), -(-len(x) * model.n_tokens // 2**22)):  # (B, V) float64 at a time
        scores = ask(model, np.concatenate([x[rows], y[rows]]), np.tile(sites[rows], 2)).double()
        both = (probabilities(scores, np.full(len(scores), t)) for t in temperatures)
        laws = (law.view(2, len(rows), -1) for law in both)
        found.append(torch.stack([0.5 * (p - q).abs().sum(-1) for p, q in laws], dim=1).cpu().numpy())
    return np.concatenate(found)


@dataclass(frozen=True)
class ColumnSearch:
    r"""Result of `search_column`; all rows are of the sites other than the changed one, in order.

    Attributes
    ----------
    site : int
        The site j at which the states of a pair differ.
    temperature : float
    best : ndarray, float64[n - 1, rounds]
        Largest total variation found up to each round.
    x, y : ndarray, int64[n - 1, n]
        The pairs at which the last ones are attained.
    vocabulary_checksum : str
        Digest of the words that tokens stand for (`checksums.vocabulary_checksum`); empty where it is not known.
    """

    site: int
    temperature: float
    best: np.ndarray
    x: np.ndarray
    y: np.ndarray
    vocabulary_checksum: str = ""

    @property
    def others(self) -> np.ndarray:
        """The sites other than the changed one, int64[n - 1]."""
        return np.delete(np.arange(self.x.shape[1]), self.site)

    def column_sums(self, model: ConditionalModel, temperatures: ArrayLike) -> np.ndarray:
        r"""Lower bound float64[K] on :math:`\alpha`: the sum over i for the pairs found, at other temperatures too."""
        refuse_other_vocabulary(model, self, "the search")
        return pair_influence(model, self.x, self.y, self.others, temperatures).sum(0)


def search_column(
    model: ConditionalModel,
    contexts: ArrayLike,
    site: int,
    temperature: float = 1.0,
    *,
    rounds: int,
    candidates: int | None = None,
    climb: bool = True,
    seed: int = 0,
    progress: str | None = None,
) -> ColumnSearch:
    """Search, for every other site by itself, for the pair of states at which one site's influence on it is largest.

    Parameters
    ----------
    model : ConditionalModel
    contexts : array_like, int[C, n]
        States to start from.
    site : int
        The site at which the two states differ.
    temperature : float
    rounds, candidates : int
        `candidates` pairs are evaluated in each round, for each of the other sites; by default eight, or as many as
        the model has tokens.
    climb : bool
        True: change one token at a time of a pair, at a random site (of both states, or of one at `site`), and keep
        what is larger; start again where 2n rounds bring nothing. False: a random context and a random replacement
        each time. Tokens are half the model's best predictions, half uniformly random, in both.
    seed : int
    progress : str, optional
        Title of a progress bar.

    Raises
    ------
    ValueError
        For contexts, a `site`, `rounds`, `candidates` or a temperature that are none, or contexts of one site.
    """
    contexts, rounds = check_contexts(contexts, model.n_tokens), check_count(rounds, "rounds", least=1)
    n, temperature = contexts.shape[1], float(check_temperatures([temperature])[0])
    if n < 2:
        raise ValueError("influence needs two sites, got contexts of one")
    site = check_count(site, "site", most=n - 1)
    candidates = min(8, model.n_tokens) if candidates is None else candidates
    candidates = check_replacements(candidates, "candidates", model.n_tokens)
    others = np.delete(np.arange(n), site)
    climbs = []
    for i in tqdm(others, desc=progress, disable=progress is None, leave=False):
        rng = np.random.default_rng([check_seed(seed), site, i])
        climbs.append(_Climb(model, contexts, (int(i), site), temperature, candidates, rng).run(rounds, climb))
    best, x, y = map(np.array, zip(*climbs, strict=True))
    return ColumnSearch(site, temperature, best, x, y, vocabulary_checksum(model))


class _Climb:
    """A search for one (i, j): pairs are (value, x, y)."""

    def __init__(self, model, contexts, sites, temperature, candidates, rng):
        self.model, self.contexts, (self.i, self.j), self.temperature = model, contexts, sites, temperature
        self.candidates, self.rng = candidates, rng
        self.movable = np.delete(np.arange(contexts.shape[1]), self.i)  # what stands at site i is masked

    def run(self, rounds, climb):
        """Best value of every round, and the pair of the last one."""
        best, here, stalled, values = (-np.inf,), None, 0, []
        for _ in range(rounds):
            found = self.best_of(*(self.neighbours(here) if here and climb else self.random_pairs()))
            here, stalled = (found, 0) if here is None or found[0] > here[0] else (here, stalled + 1)
            best = max(best, found, key=lambda pair: pair[0])
            values.append(best[0])
            if stalled == 2 * self.contexts.shape[1]:
                here, stalled = None, 0
        return values, *best[1:]

    def random_pairs(self):
        """Random contexts, each with a replacement at the site j."""
        size = self.candidates
        x = self.contexts[self.rng.integers(len(self.contexts), size=size)]
        y, tokens = x.copy(), best_and_random(self.model, x, self.j, 2, self.rng)
        y[:, self.j] = tokens[np.arange(size), np.arange(size) % 2]
        return x, y

    def neighbours(self, here):
        """Pairs that differ from the present one at one site: of both states or, at site j, of the second."""
        at = int(self.rng.choice(self.movable))
        x, y = (np.tile(state, (self.candidates, 1)) for state in here[1:])
        y[:, at] = best_and_random(self.model, here[2][None], at, self.candidates, self.rng)[0]
        if at != self.j:
            x[:, at] = y[:, at]
        return x, y

    def best_of(self, x, y):
        """The pair of the largest total variation."""
        values = pair_influence(self.model, x, y, np.full(len(x), self.i), [self.temperature])[:, 0]
        if np.isnan(values).any():
            raise ValueError(f"no influence at temperature {self.temperature}: scores over it are beyond float64")
        k = values.argmax()
        return values[k], x[k], y[k]
