"""What is read from the states of a chain: the words of its moves, embeddings, topic scores.

A state is read as its text. Embedders and scorers are arguments; `instruments` has those that load models.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from glauber_lib.checks import ABSENT, check_count, check_states, unmasked
from glauber_lib.checksums import refuse_other_vocabulary
from glauber_lib.draws import check_precision
from glauber_lib.traces import Trace


class TextEmbedder(Protocol):
    """What embeds texts, such as `instruments.Embedder`."""

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Unit vectors float[len(texts), d]."""
        ...


class TextScorer(Protocol):
    """What scores the topics of texts, such as `instruments.TopicScorer`."""

    labels: list[str]

    def score(self, texts: Sequence[str]) -> np.ndarray:
        """Probabilities float[len(texts), len(labels)]."""
        ...


def cosine_distance(vectors: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """``1 - cos`` between unit vectors, over the last axis: the semantic drift of the paper's §6.1.

    ValueError for vectors in half precision, not of unit length, as those with a nan, or of different lengths.
    """
    vectors, reference = unmasked(vectors, "vectors"), unmasked(reference, "vectors")
    if np.shape(vectors)[-1:] != np.shape(reference)[-1:]:
        raise ValueError(f"vectors must have one dimension, got shapes {np.shape(vectors)} and {np.shape(reference)}")
    check_unit(vectors, "vectors")
    check_unit(reference, "vectors")
    return 1.0 - (vectors * reference).sum(-1)


def check_unit(vectors: np.ndarray, name: str) -> None:
    """ValueError for vectors in half precision or not of unit length over the last axis, as those with a nan."""
    if vectors.dtype.kind not in "iu":
        check_precision(vectors.dtype, name)
    length = np.sqrt((vectors * vectors).sum(-1, dtype=float))
    if not (np.abs(length - 1) < 1e-5).all():  # of nan it is not
        raise ValueError(f"{name} must have unit length, got lengths {length.min():g} to {length.max():g}")


def embed_states(model: Any, embedder: TextEmbedder, states: ArrayLike) -> np.ndarray:
    """Embeddings float[..., d] of states int[..., n] of a language model; what fills up short states is left out.

    ValueError without states, for tokens that the model lacks, and as the embedder says; for vectors in half precision,
    or not one for each text.
    """
    states = _some_states(states)
    rows = states.reshape(-1, states.shape[-1])
    vectors = embed_texts(embedder, model.texts(rows))
    check_precision(vectors.dtype, f"vectors of {type(embedder).__name__}")
    return vectors.reshape(*states.shape[:-1], -1)


def embed_texts(embedder: TextEmbedder, texts: Sequence[str]) -> np.ndarray:
    """What an embedder gives for texts, float[len(texts), d]; ValueError unless it is one vector for each."""
    vectors = np.asarray(embedder.embed(texts))
    if vectors.ndim != 2 or len(vectors) != len(texts):
        raise ValueError(
            f"{type(embedder).__name__} must give one vector for each of {len(texts)} texts, got shape {vectors.shape}"
        )
    return vectors


def topic_scores(model: Any, scorer: TextScorer, states: ArrayLike) -> np.ndarray:
    """Topic probabilities float64[..., labels] of states int[..., n] of a language model, as `embed_states`.

    ValueError for scores in half precision, that are not finite, or not one for each label of each text.
    """
    states = _some_states(states)
    rows = states.reshape(-1, states.shape[-1])
    scores = np.asarray(scorer.score(model.texts(rows)))
    check_precision(scores.dtype, f"scores of {type(scorer).__name__}")
    if scores.shape != (len(rows), len(scorer.labels)) or not np.isfinite(scores).all():
        raise ValueError(
            f"scores of {type(scorer).__name__} must be finite and of shape {(len(rows), len(scorer.labels))}, got "
            f"shape {scores.shape} with {(~np.isfinite(scores)).sum()} that are nan or infinite"
        )
    return scores.reshape(*states.shape[:-1], -1)


def _some_states(states):
    """States as array int[..., n], of which there is one at least."""
    states = unmasked(states, "states")
    if not states.size or not states.ndim:
        raise ValueError(f"need a state at least, got shape {states.shape}")
    return states


def self_overlap(states: ArrayLike) -> np.ndarray:
    """Share float64[...] of the sites of states int[..., n] whose token stands at an earlier site too.

    What fills up short states is left out.
    """
    states = _some_states(states)
    rows = check_states(states.reshape(-1, states.shape[-1]), fills=True)
    ordered = np.sort(rows, axis=-1)
    again = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != ABSENT)
    return (again.sum(-1) / (rows != ABSENT).sum(-1)).reshape(states.shape[:-1])


def moves_in_words(model: Any, trace: Trace, row: int, moves: Iterable[int]) -> pd.DataFrame:
    """The first state of one chain and some of its moves, as words.

    Parameters
    ----------
    model : MaskedLM or CausalLM
        The model that the trace was run with.
    trace : Trace
    row : int
        The chain.
    moves : iterable of int
        Which of the chain's changes of state, from 0.

    Returns
    -------
    DataFrame
        ``step`` (steps done when the state was entered), ``held`` (steps spent in it), ``words`` (of the whole state),
        and what the move that led there changed: ``sites``, and ``before``, the words they held; none at the start.

    Raises
    ------
    ValueError
        For a move that the chain did not make, or a model whose tokens are other words than those of the trace
        (`checksums.refuse_other_vocabulary`).
    """
    refuse_other_vocabulary(model, trace)
    states, entered, durations = trace.visits(row)
    rows = []
    for k in [0, *(check_count(move, "move", most=len(states) - 2) + 1 for move in moves)]:
        sites = np.flatnonzero(states[k] != states[k - 1]).tolist() if k else []
        earlier = model.words(states[k - 1]) if k else []
        before = [earlier[site] for site in sites]
        rows.append((entered[k], durations[k], model.words(states[k]), sites, before))
    return pd.DataFrame(rows, columns=["step", "held", "words", "sites", "before"])
