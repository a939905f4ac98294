r"""Closed-form optima of a one-layer masked model on topic-model documents (Li, thesis, §2.1.3, §2.1.4, §2.1.7).

The tokens are 0 for [MASK] and :math:`1 \dots Tv` for words, those of a topic in a row. Of each document a share
:math:`p_m` of the positions is chosen; of these a share :math:`p_c` is kept, :math:`p_r` replaced by a random word, the
others become [MASK]. With :math:`a = 1 - (1 - p_c) p_m` a share a of the positions holds its own word, visible and not
chosen to be kept, and :math:`m = p_m (1 - p_c - p_r)` holds [MASK]. Documents are infinitely long (Assumption 2.1.1),
so that the uniform attention of every position sees the frequencies y of the tokens.
"""

import math
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import scipy.optimize
from numpy.typing import ArrayLike

from glauber_lib.checks import check_count, check_numbers
from glauber_lib.topic_models import MOST, check_within


@dataclass(frozen=True)
class Masking:
    """How positions are masked.

    Attributes
    ----------
    chosen : float
        Share of the positions that are predicted, :math:`p_m`.
    kept, random : float
        Of these, the shares that keep their word and that get a random one, :math:`p_c` and :math:`p_r`.

    Raises
    ------
    ValueError
        Unless the chosen and random shares are positive, the chosen one below one, and some become [MASK].
    """

    chosen: float = 0.15
    kept: float = 0.1
    random: float = 0.1

    def __post_init__(self):
        for name, least, most in (("chosen", 1e-6, 1 - 1e-6), ("kept", 0.0, 1.0), ("random", 1e-6, 1.0)):
            object.__setattr__(self, name, check_within(getattr(self, name), name, least, most))
        if self.kept + self.random > 1 - 1e-6:
            raise ValueError(
                f"some chosen positions must become [MASK], got shares {self.kept} and {self.random} that do not"
            )

    @property
    def own(self) -> float:
        """:math:`a = 1 - (1 - p_c) p_m`, the share of positions that show their own word."""
        return 1 - (1 - self.kept) * self.chosen

    @property
    def masked(self) -> float:
        """:math:`m = p_m (1 - p_c - p_r)`, the share of positions that hold [MASK]."""
        return self.chosen * (1 - self.kept - self.random)

    @property
    def noise(self) -> float:
        """:math:`p_m p_r`, the share of positions that hold a random word."""
        return self.chosen * self.random


BERT = Masking()


def _sizes(n_topics, n_words):
    return check_count(n_topics, "n_topics", 1, MOST), check_count(n_words, "n_words", 1, MOST)


# What uniform attention learns ---------------------------------------------------------------------------------------


def _constants(n_topics, n_words, masking):
    """c1, c2, c3 of Theorem 2.1.2."""
    c1 = masking.random / ((1 - masking.kept - masking.random) * masking.own * n_topics * n_words)
    return c1, 1 / masking.masked - 1, 1 / masking.own


def block_entries(n_topics: int, n_words: int, masking: Masking = BERT) -> dict[str, float]:
    """The three numbers of the optimal value matrix of Theorem 2.1.2.

    Returns
    -------
    dict of str to float
        ``mask``, the entries of column 0; ``same`` and ``other``, those of words of one topic and of two. Row 0 is 0.

    Raises
    ------
    ValueError
        For counts below one.
    """
    n_topics, n_words = _sizes(n_topics, n_words)
    size, (c1, c2, c3) = n_topics * n_words, _constants(n_topics, n_words, masking)
    other = -(c1 * c2 + c3) / (c2**2 + size)
    return {"mask": (c2 * c3 - c1 * size) / (c2**2 + size), "same": other + c3 / n_words, "other": other}


def _square(n_topics, n_words):
    """Zeros float64[Tv + 1, Tv + 1]; ValueError where a full matrix is too large."""
    n_topics, n_words = _sizes(n_topics, n_words)
    if n_topics * n_words > MOST:
        raise ValueError(f"a full matrix needs at most {MOST} words, got {n_topics} topics of {n_words}")
    return np.zeros((n_topics * n_words + 1,) * 2)


def block_matrix(n_topics: int, n_words: int, masking: Masking = BERT) -> np.ndarray:
    r"""The optimal value matrix float64[Tv + 1, Tv + 1] of Theorem 2.1.2, of uniform blocks.

    It is the limit of the optima with an :math:`L_2` penalty that goes to zero. ValueError for counts below one.
    """
    matrix, entries = _square(n_topics, n_words), block_entries(n_topics, n_words, masking)
    topic = np.arange(len(matrix) - 1) // n_words
    matrix[1:, 1:] = np.where(topic[:, None] == topic, entries["same"], entries["other"])
    matrix[1:, 0] = entries["mask"]
    return matrix


def diagonal_matrix(n_topics: int, n_words: int, masking: Masking = BERT) -> np.ndarray:
    """The diagonal optimum float64[Tv + 1, Tv + 1] of Definition 2.1.2: 1/a on the diagonal. ValueError as before."""
    matrix, (c1, _, c3) = _square(n_topics, n_words), _constants(n_topics, n_words, masking)
    matrix[1:, 1:] = c3 * np.eye(len(matrix) - 1)
    matrix[1:, 0] = -c1
    return matrix


def optimum_defect(matrix: ArrayLike, n_topics: int, masking: Masking = BERT, *, bias: bool = False) -> float:
    r"""How far a matrix is from all optima under uniform attention without a penalty (Theorem 2.1.4, Lemma 2.1.1).

    Parameters
    ----------
    matrix : array_like, float64[Tv + 1, Tv + 1]
        :math:`W^V` or, with the `bias` of Theorem 2.1.1, :math:`E = W^{E\top} W^E`.
    n_topics : int
    masking : Masking
    bias : bool
        Whether the model has that bias, which takes the random words out, so that column 0 need not.

    Returns
    -------
    float
        The largest error of the conditions on rows, for the best free constants :math:`u_i`; zero of an optimum.

    Raises
    ------
    ValueError
        For a matrix that is not square, or whose words are not a multiple of the topics.
    """
    matrix, n_topics = check_numbers(matrix, "matrix"), check_count(n_topics, "n_topics", 1, MOST)
    size = len(matrix) - 1 if matrix.ndim == 2 else 0
    if matrix.shape != (size + 1, size + 1) or not size or size % n_topics or not np.isfinite(matrix).all():
        raise ValueError(f"matrix must be finite and square, 1 + words of {n_topics} topics, got shape {matrix.shape}")
    v = size // n_topics
    c1, c2, c3 = _constants(n_topics, v, masking)
    sums = matrix[:, 1:].reshape(size + 1, n_topics, v).sum(2)  # of each row over each topic
    own = np.eye(n_topics)[np.arange(size) // v]
    wanted = sums - np.vstack([np.zeros(n_topics), c3 * own])  # u v in every place, of an optimum
    column = np.concatenate([[-matrix[0, 0]], -matrix[1:, 0] - (0 if bias else c1)]) / c2  # u once more
    free = (v * wanted.sum(1) + column) / (n_topics * v**2 + 1)  # least squares
    return float(max(np.abs(wanted - v * free[:, None]).max(), np.abs(column - free).max()))


def document_frequencies(
    n_topics: int, n_words: int, n_present: int, masking: Masking = BERT
) -> tuple[np.ndarray, np.ndarray]:
    """What uniform attention sees in infinitely long documents, one for every set of τ topics, and the true law.

    Returns
    -------
    seen, law : ndarray, float64[S, Tv + 1]
        Frequencies of the tokens after masking, and the probabilities of the words at a position.

    Raises
    ------
    ValueError
        For counts below one, more topics present than there are, or more than a million numbers.
    """
    n_topics, n_words = _sizes(n_topics, n_words)
    n_present = check_count(n_present, "n_present", 1, n_topics)
    n_sets = math.comb(n_topics, n_present)
    if n_sets * (n_topics * n_words + 1) > 1_000_000:
        raise ValueError(f"{n_sets} sets of {n_present} topics, {n_topics * n_words} words, are too many to list")
    sets = np.array(list(combinations(range(n_topics), n_present)), np.int64)
    law = np.zeros((len(sets), n_topics * n_words + 1))
    words = (sets[:, :, None] * n_words + np.arange(n_words) + 1).reshape(len(sets), -1)
    np.put_along_axis(law, words, 1 / (n_present * n_words), axis=1)
    seen = masking.own * law + masking.noise / (n_topics * n_words)
    seen[:, 0] = masking.masked
    return seen, law


def prediction_loss(matrix: ArrayLike, seen: ArrayLike, law: ArrayLike) -> float:
    r"""Mean squared loss :math:`E\|Wy - e_w\|^2` of predictions from frequencies, w of the true law.

    ValueError unless the shapes fit those of `document_frequencies`.
    """
    matrix, seen, law = (check_numbers(x, n) for x, n in ((matrix, "matrix"), (seen, "seen"), (law, "law")))
    if seen.ndim != 2 or not len(seen) or seen.shape != law.shape or matrix.shape != (seen.shape[1],) * 2:
        raise ValueError(f"need a matrix and frequencies that fit, got {matrix.shape}, {seen.shape} and {law.shape}")
    if not all((np.abs(x) < 1e100).all() for x in (matrix, seen, law)):
        raise ValueError("matrix and frequencies must be finite numbers, got others")
    predicted = seen @ matrix.T
    return float((law.sum(1) - 2 * (predicted * law).sum(1) + (predicted**2).sum(1)).mean())


# What attention is best then -----------------------------------------------------------------------------------------


def attention_bounds(n_words: int, masking: Masking = BERT) -> dict[str, float]:
    r"""The constants of Theorems 2.1.3 and 2.1.5.

    The first bounds :math:`\gamma = ((v-1)\alpha + \beta)/v` by :math:`\lambda_1 (\tau - 1)` and
    :math:`\lambda_2 T`, the second β by :math:`\lambda_3 \tau` and :math:`\lambda_4 T`, and α by
    :math:`\lambda_5 \beta`.

    Returns
    -------
    dict of str to float
        ``lambda_1`` to ``lambda_5`` as stated, and ``lambda_1 of the proof``, which has :math:`2a - 1` where the
        statement has :math:`2 - a`. The stated one follows from the proof's argument only where a is above 0.8.

    Raises
    ------
    ValueError
        Unless the words of a topic are more than :math:`(1 + a)^2 + 1`, where the fourth is positive.
    """
    v, a, noise = check_count(n_words, "n_words", 1, MOST), masking.own, masking.noise
    if np.sqrt(v - 1) <= 1 + a:
        raise ValueError(f"the bounds need more words in a topic than {(1 + a) ** 2 + 1:.3g}, got {v}")
    return {
        "lambda_1": (a + noise) * (1 + (1 - masking.kept) * masking.chosen) / (2 * a),
        "lambda_1 of the proof": (a + noise) * (2 * a - 1) / (2 * a),
        "lambda_2": 100 * (a / noise + 1),
        "lambda_3": (a + noise) * v / 100,
        "lambda_4": a / (float(np.sqrt(v - 1)) - 1 - a) * (a + noise) / noise * v,
        "lambda_5": 1 / ((v - 1) * a),
    }


def _check_attention(alpha, beta):
    """Attentions as arrays of one shape; ValueError unless they are finite and >= 0, and below 1e150."""
    alpha, beta = check_numbers(alpha, "alpha"), check_numbers(beta, "beta")
    if not all(((x >= 0) & (x < 1e150)).all() for x in (alpha, beta)):
        raise ValueError("alpha and beta must be numbers >= 0 and below 1e150, got others")
    return np.broadcast_arrays(alpha, beta)


@dataclass(frozen=True)
class Landscape:
    r"""Squared loss at chosen positions that do not show [MASK], as a function of attention (Figures 2.7, 2.8).

    The token at the position attends with β to its own word, with α to other words of its topic, with 1 to all others
    (Assumption 2.1.2). The sums are those of §2.1.7.7 and §2.1.7.8 before their asymptotics; as printed, the attention
    to [MASK] is left out of the normalisation.

    Attributes
    ----------
    n_topics, n_words, n_present : int
    masking : Masking
    attend_mask : bool
        Whether the [MASK] positions, at weight 1, are put back into the normalisation.

    Raises
    ------
    ValueError
        For counts below one, or as many topics present as there are.
    """

    n_topics: int
    n_words: int
    n_present: int
    masking: Masking = BERT
    attend_mask: bool = False

    def __post_init__(self):
        _sizes(self.n_topics, self.n_words)
        check_count(self.n_present, "n_present", 1, self.n_topics - 1)

    def _attended(self, alpha, beta):
        """Weights of the token's word, of each word of its topic, and of words of a present and an absent topic.

        Once for a token of a present topic, once for one of an absent topic; each prediction after the map q.
        """
        t, v, tau, a, noise = self.n_topics, self.n_words, self.n_present, self.masking.own, self.masking.noise
        absent = noise / (v * t)
        there = a / (v * tau) + absent
        mask = self.masking.masked if self.attend_mask else 0.0
        z1 = there * (beta + alpha * (v - 1) + v * (tau - 1)) + absent * v * (t - tau) + mask
        z2 = absent * (beta + alpha * (v - 1) + v * (t - tau - 1)) + there * v * tau + mask
        q = lambda x: x / a - noise / (a * t * v)  # noqa: E731
        weights = np.broadcast_arrays(beta, alpha, 1.0)
        own = [(q(there * w / z1), q(absent * w / z1)) for w in weights]
        strange = [(q(there * w / z2), q(absent * w / z2)) for w in weights]
        return own, strange

    def block(self, alpha: ArrayLike, beta: ArrayLike) -> np.ndarray:
        r"""Loss with the blocks of Theorem 2.1.2, at attentions of one shape; it depends on γ alone.

        ValueError for attentions that are not finite and >= 0.
        """
        alpha, beta = _check_attention(alpha, beta)
        gamma = (alpha * (self.n_words - 1) + beta) / self.n_words
        return self._loss(gamma, gamma, blocks=True)

    def diagonal(self, alpha: ArrayLike, beta: ArrayLike) -> np.ndarray:
        """Loss with the diagonal of Definition 2.1.2. ValueError for attentions that are not finite and >= 0."""
        return self._loss(*_check_attention(alpha, beta), blocks=False)

    def _loss(self, alpha, beta, *, blocks):
        t, v, tau, pc, pr = self.n_topics, self.n_words, self.n_present, self.masking.kept, self.masking.random
        ((b1, _), (a1, _), (o1, n1)), ((_, b2), (_, a2), (o2, n2)) = self._attended(alpha, beta)
        if blocks:  # a topic's words share its mean, so that the own word is like its neighbours: β = α = γ
            b1, b2 = a1, a2
        squares = b1**2 + a1**2 * (v - 1) + o1**2 * v * (tau - 1) + n1**2 * v * (t - tau)  # of all predictions
        absent = b2**2 + a2**2 * (v - 1) + o2**2 * v * tau + n2**2 * v * (t - tau - 1)
        hit = lambda predicted, total: 1 - 2 * predicted + total  # 1 at the true word  # noqa: E731
        return (
            (pc + pr / (v * t)) * hit(b1, squares)
            + pr / t * (1 - 1 / v) * hit(a1, squares)
            + pr * (tau - 1) / t * hit(o1, squares)
            + pr * (1 - tau / t) * hit(o2, absent)
        )

    def best_block(self) -> float:
        """The γ with the least loss of blocks, within 1e-4 .. 1e7."""
        found: Any = scipy.optimize.minimize_scalar(
            lambda log: float(self.block(np.exp(log), np.exp(log))), bounds=(np.log(1e-4), np.log(1e7)),
            method="bounded", options={"xatol": 1e-9},
        )  # fmt: skip
        return float(np.exp(found.x))

    def best_diagonal(self) -> tuple[float, float]:
        """The α and β with the least loss of the diagonal, α from 0 and β within 1e-4 .. 1e7."""

        def at(alpha):
            found: Any = scipy.optimize.minimize_scalar(
                lambda log: float(self.diagonal(alpha, np.exp(log))), bounds=(np.log(1e-4), np.log(1e7)),
                method="bounded", options={"xatol": 1e-9},
            )  # fmt: skip
            return found.fun, float(np.exp(found.x))

        grid = np.concatenate([[0.0], np.geomspace(1e-4, 1e5, 120)])
        place = int(np.argmin([at(alpha)[0] for alpha in grid]))
        low, high = grid[max(place - 1, 0)], grid[min(place + 1, len(grid) - 1)]
        found: Any = scipy.optimize.minimize_scalar(lambda alpha: at(alpha)[0], bounds=(low, high), method="bounded")
        alpha = float(found.x) if found.fun < at(low)[0] else float(low)  # the search never looks at the ends
        return alpha, at(alpha)[1]
