r"""Topic models whose masked conditionals are known: generators, their chains, and what is exact of Glauber dynamics.

T topics have v words each, and word w belongs to topic :math:`\lfloor w / v \rfloor` alone (Li, thesis, §2.1.1). Given
the other tokens, the topic of a token has a law that depends on the counts of topics, and its word is uniform within:

* `DirichletTopics` (latent Dirichlet allocation): topic proportions are Dirichlet(α). With m tokens seen,
  :math:`P(t) = (n_t + \alpha)/(m + T\alpha)`.
* `PresentTopics` (the thesis's own): τ of the topics are present, and each token's topic is uniform among these. With r
  topics seen, each of these has :math:`1/\tau`, each other one :math:`(\tau - r)/(\tau(T - r))`.

Under Glauber dynamics the counts of topics are a Markov chain by themselves, a Moran model with mutation
(`count_chain`).
"""

import math
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import ArrayLike

from glauber_lib.checks import check_count, check_numbers, check_question, check_seed, check_whole
from glauber_lib.checksums import small_model_key
from glauber_lib.exact import DENSE, Sparse
from glauber_lib.models import hidden_besides

MOST = 10_000  # topics, words of a topic, tokens of a document


@dataclass(frozen=True)
class _Topics:
    """A conditional model of T topics with v words each; a child says by `topic_law` what counts of topics tell."""

    n_topics: int
    n_words: int

    device = torch.device("cpu")
    memory = 0

    def __post_init__(self):
        for name in ("n_topics", "n_words"):
            object.__setattr__(self, name, check_count(getattr(self, name), name, 1, MOST))

    @property
    def n_tokens(self) -> int:
        """Words of all topics."""
        return self.n_topics * self.n_words

    def topic_law(self, counts: ArrayLike) -> np.ndarray:
        """Law float64[B, T] of a token's topic, given how many of the other tokens are of each topic, int64[B, T]."""
        counts = check_whole(counts, "counts")
        if counts.ndim != 2 or counts.shape[1] != self.n_topics:
            raise ValueError(f"counts must have shape (B, {self.n_topics}), got {counts.shape}")
        weights = self._weights(counts)
        return weights / weights.sum(1, keepdims=True)

    def _weights(self, counts):
        raise NotImplementedError

    def scores(self, states: Any, sites: Any, hidden: Any = None) -> torch.Tensor:
        """See `models.ConditionalModel.scores`: logarithms of the exact conditionals given the visible tokens."""
        check_question(states, sites, self.n_tokens)
        states, sites = torch.as_tensor(states).long(), torch.as_tensor(sites).long()
        seen = torch.ones(states.shape, dtype=torch.bool)
        if hidden is not None:
            seen = ~hidden_besides(hidden, states, sites)
        seen = seen.scatter(1, sites[:, None], False)
        counts = torch.zeros(len(states), self.n_topics, dtype=torch.int64)
        counts.scatter_add_(1, states // self.n_words, seen.long())
        law = torch.from_numpy(self.topic_law(counts.numpy()) / self.n_words)
        return law.log().repeat_interleave(self.n_words, dim=1)


@dataclass(frozen=True)
class DirichletTopics(_Topics):
    """Latent Dirichlet allocation with disjoint topics, as a conditional model.

    Attributes
    ----------
    n_topics, n_words : int
        T, and the words of each topic.
    alpha : float
        Concentration of the proportions, for each topic. Zero is the plug-in of frequencies, which Theorem 2.1.2
        predicts with: a topic that is not seen has no chance, and one topic absorbs the chain.

    Raises
    ------
    ValueError
        For counts below one, or an alpha that is not in 0..1e6.
    """

    alpha: float

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "alpha", check_within(self.alpha, "alpha", 0.0, 1e6))

    def _weights(self, counts):
        return np.where(
            counts.sum(1, keepdims=True) + self.alpha > 0, counts + self.alpha, 1.0
        )  # nothing seen: uniform

    @property
    def cache_key(self) -> list:
        """What stands for the model in the key of a cached result."""
        return small_model_key(self, [self.n_topics, self.n_words, self.alpha])

    def draw(self, n_documents: int, length: int, seed: int = 0) -> np.ndarray:
        """Documents int64[n_documents, length]; ValueError for counts below one, or an alpha below 1e-3."""
        n_documents, length = (
            check_count(n, k, 1, MOST) for n, k in ((n_documents, "n_documents"), (length, "length"))
        )
        if self.alpha < 1e-3:
            raise ValueError(
                f"documents need an alpha of 1e-3 or more, got {self.alpha}: their law has a limit, no density"
            )
        rng = np.random.default_rng([check_seed(seed), 71])
        bounds = rng.dirichlet(np.full(self.n_topics, self.alpha), size=n_documents).cumsum(1)[:, None, :-1]
        topics = (rng.random((n_documents, length, 1)) >= bounds).sum(2)
        return topics * self.n_words + rng.integers(self.n_words, size=topics.shape)

    def spectral_gap(self, length: int) -> float:
        r"""The gap of the single-site chain on documents of `length` tokens, :math:`T\alpha / (N(N - 1 + T\alpha))`.

        The linear functions of the counts decay slowest (Moran model with mutation). With alpha zero these do not decay
        and the chain has no gap; `fixation_rate` says how fast it is absorbed. ValueError for a length below one.
        """
        n, strength = check_count(length, "length", 1), self.n_topics * self.alpha
        if n * (n - 1 + strength) == 0:
            return 0.0
        return float(strength / (n * (n - 1 + strength)))

    def fixation_rate(self, length: int) -> float:
        r"""Rate :math:`(2T\alpha + 2)/(N(N - 1 + T\alpha))` at which quadratic functions of the counts decay in a step.

        With alpha zero the chance that two sites differ in topic decays by the factor one minus this, exactly.
        ValueError for a length below two.
        """
        n, strength = check_count(length, "length", 2), self.n_topics * self.alpha
        return float((2 * strength + 2) / (n * (n - 1 + strength)))


@dataclass(frozen=True)
class PresentTopics(_Topics):
    """The generator of the thesis as a conditional model: τ of the T topics are present, equally likely in each token.

    States with more than τ topics have no probability. Their conditionals, which no chain from a document asks for, are
    uniform over the topics that are seen.

    Attributes
    ----------
    n_topics, n_words : int
        T, and the words of each topic.
    n_present : int
        τ.

    Raises
    ------
    ValueError
        For counts below one, or more topics present than there are.
    """

    n_present: int

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "n_present", check_count(self.n_present, "n_present", 1, self.n_topics))

    def _weights(self, counts):
        seen = counts > 0
        r = seen.sum(1, keepdims=True)
        left = np.maximum(self.n_present - r, 0) / np.maximum(self.n_topics - r, 1)
        return np.where(seen, 1.0, left)

    @property
    def cache_key(self) -> list:
        """What stands for the model in the key of a cached result."""
        return small_model_key(self, [self.n_topics, self.n_words, self.n_present])

    def draw(self, n_documents: int, length: int, seed: int = 0) -> np.ndarray:
        """Documents int64[n_documents, length]; ValueError for counts below one."""
        n_documents, length = (
            check_count(n, k, 1, MOST) for n, k in ((n_documents, "n_documents"), (length, "length"))
        )
        rng = np.random.default_rng([check_seed(seed), 72])
        present = rng.permuted(np.tile(np.arange(self.n_topics), (n_documents, 1)), axis=1)[:, : self.n_present]
        topics = np.take_along_axis(present, rng.integers(self.n_present, size=(n_documents, length)), axis=1)
        return topics * self.n_words + rng.integers(self.n_words, size=topics.shape)


def check_within(value: Any, name: str, least: float, most: float) -> float:
    """One number within `least` .. `most` as float; ValueError for anything else."""
    number = check_numbers(value, name)
    if number.ndim or not least <= number <= most or isinstance(value, bool):
        raise ValueError(f"{name} must be a number in {least:g}..{most:g}, got {value!r}")
    return float(number)


def check_lengths(lengths: Any, least: int, most: int) -> tuple[int, int]:
    """The least and the largest length as ints within `least` .. `most`; ValueError for anything else."""
    if np.ndim(lengths) != 1 or len(lengths) != 2:
        raise ValueError(f"lengths must be the least and the largest one, got {lengths!r:.100}")
    low = check_count(lengths[0], "the least length", least, most)
    return low, check_count(lengths[1], "the largest length", low, most)


# The chain of counts -------------------------------------------------------------------------------------------------


def count_states(n_topics: int, length: int) -> np.ndarray:
    """Every way to share `length` tokens among topics, int64[S, T]; ValueError for more than `exact.DENSE` of them."""
    n_topics, length = check_count(n_topics, "n_topics", 1, MOST), check_count(length, "length", 1, MOST)
    size = math.comb(length + n_topics - 1, n_topics - 1)
    if size > DENSE:
        raise ValueError(f"{n_topics} topics share {length} tokens in {size} ways: at most {DENSE} are listed")
    bars = np.array(list(combinations(range(length + n_topics - 1), n_topics - 1)), np.int64).reshape(size, -1)
    ends = np.hstack([np.full((size, 1), -1), bars, np.full((size, 1), length + n_topics - 1)])
    return np.diff(ends, axis=1) - 1


def count_chain(
    model: DirichletTopics | PresentTopics, length: int, most: int | None = None
) -> tuple[np.ndarray, Sparse]:
    """The Glauber chain of a topic model on the counts of its topics, which is exact.

    Parameters
    ----------
    model : DirichletTopics or PresentTopics
    length : int
        Tokens of a document.
    most : int, optional
        Leave out states with more topics than this, as those that `PresentTopics` never reaches.

    Returns
    -------
    counts : ndarray, int64[S, T]
    matrix : sparse matrix, float64[S, S]

    Raises
    ------
    ValueError
        For more than `exact.DENSE` states, or if a state that is left out can be reached.
    """
    counts = count_states(model.n_topics, length)
    if most is not None:
        counts = counts[(counts > 0).sum(1) <= check_count(most, "most", 1)]
    index = {tuple(row): k for k, row in enumerate(counts.tolist())}
    size, eye = len(counts), np.eye(model.n_topics, dtype=np.int64)
    rows, columns, chances = [], [], []
    for t in range(model.n_topics):
        here = np.flatnonzero(counts[:, t] > 0)  # a site of topic t is drawn
        rest = counts[here] - eye[t]
        law = model.topic_law(rest)
        for u in range(model.n_topics):
            there = np.flatnonzero(law[:, u] > 0)
            after = (rest[there] + eye[u]).tolist()
            if outside := [row for row in after if tuple(row) not in index]:
                raise ValueError(
                    f"counts {outside[0]} can be reached, and have more than {most} topics: leave out none"
                )
            rows.append(here[there])
            columns.append([index[tuple(row)] for row in after])
            chances.append(counts[here[there], t] / counts[here[there]].sum(1) * law[there, u])
    place = np.concatenate(rows), np.concatenate([np.array(c, np.int64) for c in columns])
    return counts, sp.csr_matrix((np.concatenate(chances), place), shape=(size, size))


def topic_counts(states: ArrayLike, n_topics: int, n_words: int) -> np.ndarray:
    """How many tokens of each document are of each topic, int64[B, T]; ValueError for tokens that are none."""
    n_topics, n_words = check_count(n_topics, "n_topics", 1, MOST), check_count(n_words, "n_words", 1, MOST)
    topics = check_whole(states, "states", most=n_topics * n_words - 1) // n_words
    if topics.ndim != 2:
        raise ValueError(f"states must have shape (documents, tokens), got {topics.shape}")
    return (topics[:, :, None] == np.arange(n_topics)).sum(1)


def diversity(counts: ArrayLike) -> np.ndarray:
    """Chance float64[B] that two distinct tokens of a document differ in topic, by its counts int64[B, T].

    ValueError for a document of fewer than two tokens.
    """
    counts = check_whole(counts, "counts")
    if counts.ndim != 2 or not len(counts) or counts.sum(1).min() < 2:
        raise ValueError(f"counts must have shape (B, T), of two tokens or more in each row, got shape {counts.shape}")
    n = counts.sum(1)
    return 1 - (counts * (counts - 1)).sum(1) / (n * (n - 1))
