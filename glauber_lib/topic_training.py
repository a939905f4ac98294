r"""The one-layer masked model of the thesis trained on topic-model documents (Li, thesis, §2.1.2, §2.1.5).

One layer, one head, no residual, no norm, no positions. With token embeddings E (one-hot: the identity) a position that
shows token q of a document predicts the scores

.. math:: f = E^\top W^V E\, \hat y + b, \qquad
    \hat y_w \propto y_w \exp\bigl(e_w^\top W^{K\top} W^Q e_q / \sqrt{d}\bigr),

where y are the frequencies of the tokens after masking. So a document enters by its counts alone, and a step costs
milliseconds. Token 0 is [MASK], word w of the generator is token w + 1.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike

from glauber_lib.checks import check_contexts, check_count, check_numbers, check_question, check_seed
from glauber_lib.checksums import small_model_key
from glauber_lib.models import hidden_besides
from glauber_lib.topic_models import MOST, DirichletTopics, PresentTopics, check_lengths, check_within
from glauber_lib.topic_optima import BERT, Masking

LOSSES = ("cross-entropy", "squared")
OPTIMIZERS = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}
TRAINS = {  # what is trained; the rest stays: no logits, values and embeddings the identity
    "attention": ("key", "query", "value", "bias"),
    "values": ("value", "bias"),
    "embeddings": ("embedding", "bias"),
}


@dataclass(frozen=True)
class TrainedTopics:
    r"""A trained one-layer model: a conditional model of words, whose queries are [MASK].

    Attributes
    ----------
    n_topics, n_words : int
        Of the documents.
    logits : ndarray, float64[Tv + 1, Tv + 1]
        Attention logits, from the query (column) to the key (row).
    values : ndarray, float64[Tv + 1, Tv + 1]
        :math:`E^\top W^V E`: what a token (column) adds to the scores of tokens (rows).
    bias : ndarray, float64[Tv + 1]
    """

    n_topics: int
    n_words: int
    logits: np.ndarray
    values: np.ndarray
    bias: np.ndarray

    device = torch.device("cpu")
    memory = 0

    def __post_init__(self):
        size = check_count(self.n_topics, "n_topics", 1, MOST) * check_count(self.n_words, "n_words", 1, MOST) + 1
        for name, shape in (("logits", (size, size)), ("values", (size, size)), ("bias", (size,))):
            found = check_numbers(getattr(self, name), name)
            if found.shape != shape or not (np.abs(found) < 1e6).all():
                raise ValueError(f"{name} must be finite numbers of shape {shape}, got shape {found.shape}")
            object.__setattr__(self, name, found)

    @property
    def n_tokens(self) -> int:
        """Words; [MASK] is not one."""
        return self.n_topics * self.n_words

    @property
    def cache_key(self) -> list:
        """What stands for the model in the key of a cached result."""
        return small_model_key(self, [self.n_topics, self.n_words, self.logits, self.values, self.bias])

    def scores(self, states: Any, sites: Any, hidden: Any = None) -> torch.Tensor:
        """See `models.ConditionalModel.scores`; the site, and what `hidden` marks, shows [MASK]."""
        check_question(states, sites, self.n_tokens)
        states, sites = torch.as_tensor(states).long(), torch.as_tensor(sites).long()
        shown = (states + 1).scatter(1, sites[:, None], 0)
        if hidden is not None:
            shown = shown.masked_fill(hidden_besides(hidden, states, sites), 0)
        counts = torch.zeros(len(states), self.n_tokens + 1, dtype=torch.float64)
        counts.scatter_add_(1, shown, torch.ones(shown.shape, dtype=torch.float64))
        weights = counts * torch.from_numpy(np.exp(self.logits[:, 0] - self.logits[:, 0].max()))
        found = (weights / weights.sum(1, keepdim=True)) @ torch.from_numpy(self.values.T) + torch.from_numpy(self.bias)
        return found[:, 1:].clone()


def _mask(documents, n_tokens, masking, rng):
    """Tokens after masking int64[B, N], and of each chosen position document, token shown and true token, int64[Q]."""
    shown, kind = documents + 1, rng.random(documents.shape)
    chosen = rng.random(documents.shape) < masking.chosen
    chosen[0, 0] |= not chosen.any()  # a few short documents may have none
    drawn = rng.integers(1, n_tokens + 1, size=documents.shape)
    other = np.where(kind < masking.kept, shown, np.where(kind < masking.kept + masking.random, drawn, 0))
    shown = np.where(chosen, other, shown)
    row, place = np.nonzero(chosen)
    return shown, row, shown[row, place], documents[row, place] + 1


def _counts(shown, n_tokens):
    """How often each token, [MASK] the first, stands in each document, float64[B, n_tokens + 1]."""
    rows = np.arange(len(shown))[:, None] * (n_tokens + 1) + shown
    return np.bincount(rows.ravel(), minlength=len(shown) * (n_tokens + 1)).reshape(len(shown), -1).astype(float)


@dataclass(frozen=True)
class Training:
    """A trained model and how it came about.

    Attributes
    ----------
    model : TrainedTopics
    history : DataFrame
        Every tenth step: ``step``, ``loss``, and the Frobenius norms ``key``, ``query``, ``value``, ``embedding``.
    """

    model: TrainedTopics
    history: pd.DataFrame


def train_topics(
    generator: DirichletTopics | PresentTopics,
    *,
    trains: str = "attention",
    loss: str = "cross-entropy",
    optimizer: str = "adam",
    rate: float = 0.01,
    steps: int = 1000,
    batch: int = 32,
    lengths: tuple[int, int] = (100, 150),
    initial: float = 0.02,
    penalty: float = 0.0,
    masking: Masking = BERT,
    seed: int = 0,
) -> Training:
    """Train the one-layer model on documents of a generator, each step on new ones.

    Parameters
    ----------
    generator : DirichletTopics or PresentTopics
    trains : {"attention", "values", "embeddings"}
        With one-hot embeddings keys, queries and values, or values under uniform attention; or embeddings alone, under
        uniform attention and with values the identity. The bias is trained with a cross-entropy; else it is 0.
    loss : {"cross-entropy", "squared"}
    optimizer : {"adam", "sgd"}
    rate : float
    steps, batch : int
        The documents of a step have one length, uniform within `lengths`.
    lengths : (int, int)
    initial : float
        Standard deviation of the initial entries.
    penalty : float
        Weight decay of the optimizer.
    masking : Masking
    seed : int

    Returns
    -------
    Training

    Raises
    ------
    ValueError
        For an unknown word, a rate outside 1e-6..1e3, or counts below one.
    """
    if trains not in TRAINS or loss not in LOSSES or optimizer not in OPTIMIZERS:
        raise ValueError(f"trains must be of {list(TRAINS)}, loss of {LOSSES}, optimizer of {list(OPTIMIZERS)}, got "
                         f"{trains!r}, {loss!r}, {optimizer!r}")  # fmt: skip
    steps, batch = check_count(steps, "steps", 1, 10**6), check_count(batch, "batch", 1, 10**4)
    low, high = check_lengths(lengths, 2, MOST)
    rate, initial = check_within(rate, "rate", 1e-6, 1e3), check_within(initial, "initial", 0.0, 10.0)
    rng, size = np.random.default_rng([check_seed(seed), 81]), generator.n_tokens + 1
    parts = {name: torch.zeros(size, size, dtype=torch.float64) for name in ("key", "query")}
    parts |= {name: torch.eye(size, dtype=torch.float64) for name in ("value", "embedding")}
    parts["bias"] = torch.zeros(size, dtype=torch.float64)
    trained = [name for name in TRAINS[trains] if name != "bias" or loss == "cross-entropy"]
    for name in trained:
        if name != "bias":
            parts[name] = initial * torch.from_numpy(rng.normal(size=(size, size)))
        parts[name].requires_grad_()
    penalty = check_within(penalty, "penalty", 0.0, 1.0)
    take, history = OPTIMIZERS[optimizer]([parts[name] for name in trained], lr=rate, weight_decay=penalty), []
    for step in range(steps):
        documents = generator.draw(batch, int(rng.integers(low, high + 1)), int(rng.integers(2**62)))
        found = _loss(parts, _mask(documents, size - 1, masking, rng), loss)
        take.zero_grad()
        found.backward()
        take.step()
        if step % 10 == 0 or step == steps - 1:
            norms = {name: float(parts[name].detach().norm()) for name in ("key", "query", "value", "embedding")}
            history.append({"step": step, "loss": float(found.detach()), **norms})
    logits, values = (table.detach().numpy() for table in _tables(parts))
    model = TrainedTopics(generator.n_topics, generator.n_words, logits, values, parts["bias"].detach().numpy())
    return Training(model, pd.DataFrame(history))


def _tables(parts):
    """Attention logits and values of every pair of tokens."""
    e, size = parts["embedding"], len(parts["bias"])
    return (parts["key"] @ e).T @ (parts["query"] @ e) / size**0.5, e.T @ parts["value"] @ e


def _loss(parts, masked, loss):
    """Mean loss of the predicted positions of masked documents."""
    shown, row, query, target = masked
    logits, values = _tables(parts)
    counts = torch.from_numpy(_counts(shown, len(parts["bias"]) - 1))
    weights = counts[row] * (logits - logits.amax(0)).exp().T[query]  # (Q, V + 1)
    scores = (weights / weights.sum(1, keepdim=True)) @ values.T + parts["bias"]
    if loss == "cross-entropy":
        return torch.nn.functional.cross_entropy(scores, torch.from_numpy(target))
    truth = torch.nn.functional.one_hot(torch.from_numpy(target), scores.shape[1])
    return ((scores - truth) ** 2).sum(1).mean()


# What was learned ----------------------------------------------------------------------------------------------------


def block_contrast(matrix: ArrayLike, n_topics: int) -> dict[str, float]:
    """Means of a matrix float64[Tv + 1, Tv + 1] over words: its diagonal, within topics off the diagonal, and between.

    Returns
    -------
    dict of str to float
        ``same_word``, ``same_topic`` (nan where topics have one word), ``other`` (nan of a single topic), ``other_sd``.

    Raises
    ------
    ValueError
        For a matrix that is not square, or whose words are not a multiple of the topics.
    """
    matrix, n_topics = check_numbers(matrix, "matrix"), check_count(n_topics, "n_topics", 1, MOST)
    size = len(matrix) - 1 if matrix.ndim == 2 else 0
    if size < 1 or matrix.shape != (size + 1, size + 1) or size % n_topics:
        raise ValueError(f"matrix must be square, 1 + words of {n_topics} topics, got shape {matrix.shape}")
    words, topic = matrix[1:, 1:], np.arange(size) // (size // n_topics)
    diagonal = np.eye(size, dtype=bool)
    same = (topic[:, None] == topic) & ~diagonal
    mean = lambda values, how=np.mean: float(how(values)) if values.size else float("nan")  # noqa: E731
    other = words[~same & ~diagonal]
    return {"same_word": mean(words[diagonal]), "same_topic": mean(words[same]), "other": mean(other),
            "other_sd": mean(other, np.std)}  # fmt: skip


def attention_by_kind(
    model: TrainedTopics, documents: ArrayLike, masking: Masking = BERT, seed: int = 0
) -> dict[str, float]:
    """Mean attention of a word to the same word, to other words of its topic, and to other topics (Table 2.1).

    The weights are scaled to documents of 100 tokens, as in the thesis. Queries and keys are all words that are shown;
    [MASK] is neither. The position of the query itself counts as the same word, as the layer has no positions.

    Parameters
    ----------
    model : TrainedTopics
    documents : array_like, int[B, N]
    masking : Masking
    seed : int

    Returns
    -------
    dict of str to float
        ``same_word``, ``same_topic``, ``other``: means over pairs of positions; nan where there is no such pair.

    Raises
    ------
    ValueError
        For documents of words that the model lacks.
    """
    documents = check_contexts(documents, model.n_tokens)
    rng = np.random.default_rng([check_seed(seed), 82])
    shown = _mask(documents, model.n_tokens, masking, rng)[0]
    counts = _counts(shown, model.n_tokens)  # (B, V + 1)
    topic = np.concatenate([[-1], np.arange(model.n_tokens) // model.n_words])
    same = (topic[:, None] == topic) & (topic >= 0)
    diagonal = np.eye(len(topic), dtype=bool) & (topic >= 0)
    kinds = {
        "same_word": diagonal,
        "same_topic": same & ~diagonal,
        "other": ~same & (topic >= 0) & (topic >= 0)[:, None],
    }
    weights = np.exp(model.logits - model.logits.max(0))  # key, query
    total, pairs = dict.fromkeys(kinds, 0.0), dict.fromkeys(kinds, 0.0)
    for own in counts:
        attention = weights / (own @ weights) * len(documents[0]) / 100  # of one key position
        often = own[:, None] * own
        for name, which in kinds.items():
            total[name] += float((attention * often)[which].sum())
            pairs[name] += float(often[which].sum())
    return {name: total[name] / pairs[name] if pairs[name] else float("nan") for name in kinds}
