"""Embeddings, topic scores and sentiment of texts, and what they are cached by."""

import copy
import json
import pickle
import shutil
import subprocess
import sys
from functools import wraps
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import TEXTS, save_classifier
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sklearn.model_selection import StratifiedKFold
from tokenizers import normalizers

from glauber_lib.instruments import (
    TOPICS,
    Embedder,
    LexicalTopicScorer,
    PipelineTopicScorer,
    TopicScorer,
    load_sentiment,
    load_topic_scorer,
    sentiment,
)
from glauber_lib.paper import load_passages
from glauber_lib.readings import cosine_distance, embed_states, topic_scores


@pytest.fixture(scope="module")
def embedder():
    return Embedder()


# Embeddings and topics ------------------------------------------------------------------------------------------------


def test_embeddings_have_unit_length_and_do_not_depend_on_company(embedder):
    vectors = embedder.embed([*TEXTS[:5], TEXTS[0]])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    np.testing.assert_array_equal(vectors[0], vectors[5])
    np.testing.assert_allclose(embedder.embed(TEXTS[3:4])[0], vectors[3], atol=1e-5)


def test_similar_sentences_are_closer_than_unrelated_ones(embedder):
    cat, kitten, bank = embedder.embed(["the cat sleeps", "a kitten is asleep", "the bank raised its interest rate"])
    assert cosine_distance(cat, kitten) < cosine_distance(cat, bank) - 0.3


def test_an_embedder_that_lacks_weights_is_refused_and_two_loads_have_one_checksum(tiny_folders, tmp_path):
    folder = shutil.copytree(tiny_folders["bert"], tmp_path / "model")  # of a masked model: it has no pooler
    assert Embedder(folder).checksum == Embedder(folder).checksum
    weights = load_file(folder / "model.safetensors")
    del weights["bert.encoder.layer.1.output.dense.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"lacks weights that would be random numbers: \['encoder.layer.1.output"):
        Embedder(folder)


@pytest.mark.parametrize(
    ("settings", "further"),
    [({"num_hidden_layers": 1}, ""), ({}, "bert.encoder.layer.1.attention.self.query.lora_A.default.weight")],
)
def test_an_embedder_that_would_leave_weights_out_is_refused(tiny_folders, tmp_path, settings, further):
    folder = shutil.copytree(tiny_folders["bert"], tmp_path / "model")
    weights = load_file(folder / "model.safetensors") | ({further: torch.ones(4, 4)} if further else {})
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text()) | settings
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"weights that BertModel would leave out.*bert\.encoder\.layer\.1\."):
        Embedder(folder)


def test_cosine_distance_by_hand():
    x = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    np.testing.assert_allclose(cosine_distance(x, x[0]), [0, 1, 2])


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_an_embedder_saved_in_half_precision_computes_in_float32(kind, checkpoint, tmp_path):
    saved = SentenceTransformer(str(checkpoint)).to(kind)
    saved.save(str(tmp_path / "half"))
    embedder = Embedder(tmp_path / "half")
    assert embedder.computation == {"dtype": "float32", "attention": "sdpa", "device": "cpu"}
    vectors = embedder.embed(TEXTS[:4])
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(cosine_distance(vectors, vectors), 0, atol=1e-6)  # in bfloat16 up to 0.007
    wanted = saved.float().encode(TEXTS[:4], normalize_embeddings=True)
    np.testing.assert_allclose(vectors, wanted, atol=1e-6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        np.testing.assert_array_equal(embedder.embed(TEXTS[:4]), vectors)
    embedder.model.to(kind)
    with pytest.raises(
        ValueError, match=r"weights of embedder '.*half' \(.*\) must be float32 or float64, got b?float16"
    ):
        embedder.embed(TEXTS[:1])


def test_vectors_in_half_precision_are_refused_wherever_they_come_from(tiny):
    half = np.eye(3, dtype=np.float16)
    with pytest.raises(ValueError, match="vectors must be float32 or float64, got float16"):
        cosine_distance(half, half.astype(float))

    class Mine:
        def embed(self, texts):
            return half[: len(texts)]

    with pytest.raises(ValueError, match="vectors of Mine must be float32 or float64, got float16"):
        embed_states(tiny["bert"], Mine(), tiny["bert"].states(TEXTS[:2], n=5))


@pytest.mark.parametrize(
    ("change", "message"),
    [(lambda v: 3 * v, "must have unit length, got lengths 3"), (lambda v: v * np.nan, "must have unit length"),
     (lambda v: v.astype(np.float16), "must be float32 or float64, got float16"),
     (lambda v: v[:1], "must give one vector for each of 2 texts"), (lambda v: v[:, 0], "must give one vector")],
)  # fmt: skip
def test_a_scorer_takes_an_embedder_of_unit_vectors_alone(change, message):
    class Mine:
        change = staticmethod(lambda v: v)

        def embed(self, texts):
            return self.change(np.eye(3)[[len(text) % 3 for text in texts]])

    scorer, topics = TopicScorer(Mine(), topics={"a": ["a"], "b": ["bb", "cc"]}), {"c": ["ccc", "d"]}
    assert scorer.score(["abc", "a"]).shape == (2, 2)
    Mine.change = staticmethod(change)
    for ask in (lambda: scorer.score(["abc", "a"]), lambda: TopicScorer(Mine(), topics=topics)):
        with pytest.raises(ValueError, match=f"Mine {message}"):
            ask()


def test_no_text_has_no_vectors_and_no_scores(embedder, scorer, checkpoint):
    assert embedder.embed([]).shape == (0, 384) and embedder.embed([]).dtype == np.float32
    for one in (scorer, LexicalTopicScorer(load_passages()), PipelineTopicScorer(checkpoint)):
        assert one.score([]).shape == (0, len(TOPICS)) and one.score(iter(TEXTS[:2])).shape == (2, len(TOPICS))
        with pytest.raises(ValueError, match="one text"):
            one.score("a text")
    assert load_sentiment(str(checkpoint))([]).shape == sentiment([]).shape == (0,)


def test_one_topic_is_no_choice_for_a_classifier(checkpoint):
    with pytest.raises(ValueError, match=r"give two or more, got \['a'\]"):
        PipelineTopicScorer(checkpoint, topics={"a": ["apples"]})


@pytest.mark.parametrize("load", [PipelineTopicScorer, load_sentiment])
def test_a_classifier_computes_in_float32_within_autocast_and_refuses_half_weights(load, checkpoint):
    read = load(str(checkpoint))
    ask = getattr(read, "score", read)
    plain = ask(TEXTS[:3])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        np.testing.assert_array_equal(ask(TEXTS[:3]), plain)
    read._classify.model.half()
    with pytest.raises(ValueError, match=r"weights of classifier .* must be float32 or float64, got float16"):
        ask(TEXTS[:3])


def test_a_classifier_saved_in_half_precision_computes_in_float32(checkpoint, tmp_path):
    shutil.copytree(checkpoint, tmp_path / "half")
    weights = {name: weight.half() for name, weight in load_file(checkpoint / "model.safetensors").items()}
    save_file(weights, tmp_path / "half" / "model.safetensors", metadata={"format": "pt"})
    for scorer in (PipelineTopicScorer(tmp_path / "half"), load_sentiment(tmp_path / "half")):
        assert scorer.computation == {"dtype": "float32", "attention": "sdpa", "device": "cpu"}


@pytest.fixture(scope="module")
def scorer(embedder):
    return TopicScorer(embedder)


@pytest.mark.slow
def test_topics_of_the_passages_are_recognised(scorer):
    passages = load_passages()
    scores = scorer.score(list(passages.text))
    assert scores.shape == (len(passages), len(TOPICS))
    np.testing.assert_allclose(scores.sum(1), 1, atol=1e-12)
    right = np.array(scorer.labels)[scores.argmax(1)] == passages.topic
    assert right.mean() >= 0.85
    assert right.groupby(passages.topic).mean().min() >= 0.5  # no topic is lost altogether


def test_a_scorer_is_loaded_by_its_name(embedder, scorer):
    passages = load_passages()
    lexical = LexicalTopicScorer(passages)
    for name, expected in (("similarity", scorer), ("lexical", lexical)):
        named = load_topic_scorer(name, embedder, passages)
        np.testing.assert_array_equal(named.score(TEXTS[:2]), expected.score(TEXTS[:2]))
        assert type(named) is type(expected) and named.cache_key == expected.cache_key
    assert lexical.cache_key != scorer.cache_key


def test_topics_of_held_out_passages_are_recognised_by_their_words():
    passages, right = load_passages(), []
    for train, test in StratifiedKFold(5, shuffle=True, random_state=0).split(passages, passages.topic):
        lexical = LexicalTopicScorer(passages.iloc[train])
        scores = lexical.score(list(passages.text.iloc[test]))
        assert lexical.labels == list(TOPICS) and scores.shape == (len(test), len(TOPICS))
        np.testing.assert_allclose(scores.sum(1), 1, atol=1e-12)
        right.extend(np.array(lexical.labels)[scores.argmax(1)] == passages.topic.iloc[test])
    assert np.mean(right) >= 0.95  # 1.00 measured, where chance gives 0.11


def test_a_lexical_scorer_needs_labelled_passages():
    with pytest.raises(ValueError, match=r"passages must have the columns \['text', 'topic'\], lacks \['topic'\]"):
        load_topic_scorer("lexical", None, pd.DataFrame({"id": ["a"], "text": ["words"]}))
    for load in (LexicalTopicScorer, lambda passages: load_topic_scorer("lexical", None, passages)):
        with pytest.raises(ValueError, match="learns from passages labelled"):
            load(pd.DataFrame({"text": ["red words", "blue ones"], "topic": ["food", "sport"]}))


def test_a_lexical_scorer_does_not_learn_topics_that_are_not_its_own():
    passages = load_passages()
    further = passages.head(40).assign(topic="cats")
    with_cats, without = (LexicalTopicScorer(some) for some in (pd.concat([passages, further]), passages))
    scores = with_cats.score(TEXTS[:3])
    np.testing.assert_allclose(scores.sum(1), 1)
    np.testing.assert_array_equal(scores, without.score(TEXTS[:3]))


def test_sentiment_has_the_sign_of_the_words():
    good, bad, neither = sentiment(["a wonderful, happy day", "a horrible, sad failure", "the table has four legs"])
    assert good > 0.5 and bad < -0.5 and neither == 0


def test_states_are_embedded_and_scored_as_their_texts(tiny, embedder, scorer):
    model = tiny["bert"]
    states = model.states(TEXTS[:6], n=8).reshape(2, 3, 8)
    texts = model.texts(states.reshape(6, 8))
    np.testing.assert_allclose(embed_states(model, embedder, states).reshape(6, -1), embedder.embed(texts), atol=1e-5)
    np.testing.assert_allclose(topic_scores(model, scorer, states).reshape(6, -1), scorer.score(texts), atol=1e-5)


# Labels of classifiers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "labels", [("LABEL_0", "LABEL_1", "LABEL_2"), ("no", "neutral", "yes"), ("entailment", "entailed", "neutral")]
)
def test_a_classifier_without_one_label_of_entailment_is_refused_by_name(labels, tiny_folders, tmp_path):
    folder = save_classifier(tmp_path / "nli", tiny_folders["bert"], labels=labels)
    with pytest.raises(ValueError, match=rf"nli'\) is no classifier of entailment: .*{labels[0]}.*'entail' is wanted"):
        PipelineTopicScorer(folder)


@pytest.mark.parametrize("place", range(3))
def test_the_label_of_entailment_is_taken_by_its_name(place, tiny_folders, tmp_path):
    labels = ["contradiction", "neutral"]
    labels.insert(place, "ENTAILMENT")
    scorer = PipelineTopicScorer(save_classifier(tmp_path, tiny_folders["bert"], labels=labels))
    network, tokenizer = scorer._classify.model, scorer._classify.tokenizer
    hypotheses = [f"This example is {label}." for label in TOPICS]
    pairs = tokenizer([TEXTS[0]] * len(TOPICS), hypotheses, padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = network(**pairs).logits[:, place].softmax(0)
    np.testing.assert_allclose(scorer.score(TEXTS[:1])[0], expected, atol=1e-5)


def test_a_classifier_whose_two_lists_of_labels_disagree_is_refused(tiny_folders, tmp_path):
    folder = save_classifier(tmp_path / "nli", tiny_folders["bert"])
    settings = json.loads((folder / "config.json").read_text())
    settings["label2id"] = {"entailment": 0, "neutral": 1, "contradiction": 2}
    (folder / "config.json").write_text(json.dumps(settings))
    with pytest.raises(ValueError, match="the same in label2id"):
        PipelineTopicScorer(folder)


@pytest.mark.parametrize(
    "labels", [("LABEL_0", "LABEL_1"), ("NEGATIVE", "neutral"), ("positive", "POSITIVE", "negative")]
)
def test_a_classifier_without_the_two_labels_of_sentiment_is_refused_by_name(labels, tiny_folders, tmp_path):
    folder = save_classifier(tmp_path / "sentiment", tiny_folders["bert"], labels=labels)
    with pytest.raises(ValueError, match="is no classifier of sentiment: its labels are"):
        load_sentiment(folder)


# Texts that are too long, states that are too short -------------------------------------------------------------------


def test_a_text_beyond_what_a_reader_takes_is_refused_with_both_lengths(checkpoint, embedder):
    long = "the dog " * 200
    with pytest.raises(ValueError, match=r"reads at most 256 tokens, got a text of 403, .*'the dog the dog"):
        embedder.embed(["the cat", f"{long}ran"])
    with pytest.raises(ValueError, match="reads at most 256 tokens"):
        TopicScorer(embedder).score([f"{long}ran"])
    fits = "the dog " * 126 + "ran sat"
    assert np.isfinite(embedder.embed([fits])).all()  # 254 words and the frame
    with pytest.raises(ValueError, match="got a text of 257"):
        embedder.embed([f"{fits} on"])


@pytest.mark.parametrize("load", [PipelineTopicScorer, load_sentiment])
def test_a_classifier_refuses_what_it_would_cut(load, checkpoint):
    read = load(checkpoint)
    ask, tokenizer = getattr(read, "score", read), read._classify.tokenizer
    tokenizer.model_max_length = 60
    assert np.isfinite(ask(["the dog ran"])).all()
    with pytest.raises(ValueError, match=r"reads at most 60 tokens, got a text of .* would cut it"):
        ask(["the dog ran", "the dog " * 40])
    tokenizer.model_max_length = int(1e30)  # the network has 512 positions
    with pytest.raises(ValueError, match="reads at most 512 tokens"):
        ask(["the dog " * 300])


def test_a_classifier_of_topics_counts_the_label_that_it_is_asked_about(checkpoint):
    scorer = PipelineTopicScorer(checkpoint, topics={"a": [], "the dog of the dog": []})
    tokenizer, text = scorer._classify.tokenizer, "the dog ran"
    exactly = max(len(tokenizer(text, f"This example is {label}.")["input_ids"]) for label in scorer.labels)
    tokenizer.model_max_length = exactly
    assert scorer.score([text]).shape == (1, 2)
    tokenizer.model_max_length = exactly - 1
    with pytest.raises(ValueError, match=f"reads at most {exactly - 1} tokens, got a text of {exactly}"):
        scorer.score([text])


def test_what_fills_up_a_short_state_is_no_text(tiny, embedder, scorer):
    model = tiny["bert"]
    rows = [model.tokens(TEXTS[0], n=6), model.tokens(TEXTS[1], n=3)]
    filled = np.array([rows[0], [*rows[1], -1, -1, -1]])
    alone = [model.texts([row])[0] for row in rows]
    assert model.texts(filled) == alone and model.words(filled[1]) == model.words(rows[1])
    assert model.round_trips(filled).tolist() == [model.round_trips([row])[0] for row in rows]
    np.testing.assert_allclose(embed_states(model, embedder, filled), embedder.embed(alone), atol=1e-5)
    np.testing.assert_allclose(topic_scores(model, scorer, filled), scorer.score(alone), atol=1e-5)
    with pytest.raises(ValueError, match="need a state at least"):
        embed_states(model, embedder, filled[:0])
    assert model.texts(filled[:0]) == []


# Keys of cached results --------------------------------------------------------------------------------------------


LOADERS = {
    "embedder": Embedder,
    "similarity": lambda folder: TopicScorer(Embedder(folder)),
    "pipeline": PipelineTopicScorer,
    "sentiment": load_sentiment,
}


@pytest.fixture(scope="module")
def checkpoint(tiny_folders, tmp_path_factory):
    """A folder that every loader takes: an encoder with a tokenizer and a classifier of entailment and sentiment."""
    folder = tmp_path_factory.mktemp("one") / "model"
    return save_classifier(folder, tiny_folders["bert"], labels=("NEGATIVE", "entailment", "POSITIVE"))


def copy_with(folder, target, *, weights=0.0, tokenizer=False):
    """A copy of a checkpoint, its word embeddings moved by `weights`, or its tokenizer made to keep capitals."""
    shutil.copytree(folder, target)
    tensors = load_file(target / "model.safetensors")
    tensors["bert.embeddings.word_embeddings.weight"] += weights
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    if tokenizer:
        path = target / "tokenizer.json"
        settings = json.loads(path.read_text())
        settings["normalizer"] = None
        path.write_text(json.dumps(settings))
    return target


def without_mask(forward):
    """The forward pass of a network that attends to padding too."""

    @wraps(forward)
    def attend_to_all(*arguments, attention_mask, **given):
        return forward(*arguments, attention_mask=torch.ones_like(attention_mask), **given)

    return attend_to_all


def read_alone_and_in_company(kind, checkpoint, mask):
    """What a reader says of a short text alone, and beside long ones, for which it is padded."""
    reader = LOADERS[kind](checkpoint)
    network = reader.model if kind == "embedder" else reader._classify.model

    with torch.no_grad():  # tiny weights would hide a difference
        for weight in network.parameters():
            weight *= 20 if weight.ndim == 2 else 1

    def drop(module, arguments, given):
        return arguments, {**given, "attention_mask": torch.ones_like(given["attention_mask"])}

    if not mask:
        inner = network.get_submodule("0.model" if kind == "embedder" else "bert")
        inner.forward = without_mask(inner.forward)
    read = reader.embed if kind == "embedder" else reader if kind == "sentiment" else reader.score
    return read(["a plan"])[0], read(["a plan", *TEXTS[:3]])[0]


@pytest.mark.parametrize("kind", ["embedder", "pipeline", "sentiment"])
def test_a_text_reads_the_same_padded_in_company_as_alone_and_the_mask_is_why(kind, checkpoint):
    np.testing.assert_allclose(*read_alone_and_in_company(kind, checkpoint, mask=True), atol=1e-5)
    alone, beside = read_alone_and_in_company(kind, checkpoint, mask=False)
    assert np.abs(alone - beside).max() > 1e-4


@pytest.mark.parametrize("kind", LOADERS)
def test_the_key_is_that_of_the_weights_and_tokenizer_and_not_of_the_folder(kind, checkpoint, tmp_path):
    load = LOADERS[kind]
    key, again = load(checkpoint).cache_key, load(copy_with(checkpoint, tmp_path / "elsewhere" / "other")).cache_key
    assert json.dumps(key) == json.dumps(again)
    moved = load(copy_with(checkpoint, tmp_path / "two" / "model", weights=1e-3)).cache_key
    cased = load(copy_with(checkpoint, tmp_path / "three" / "model", tokenizer=True)).cache_key
    assert len({json.dumps(k) for k in (key, moved, cased)}) == 3  # all of them in folders of one name


@pytest.mark.parametrize("kind", LOADERS)
def test_the_key_is_that_of_the_network_that_is_there_now(kind, checkpoint):
    reader = LOADERS[kind](checkpoint)
    holder = getattr(reader, "embedder", reader)
    holder = holder if hasattr(holder, "model") else holder._classify.pipeline
    own, before = holder.model, json.dumps(reader.cache_key)
    holder.model = copy.deepcopy(own)
    assert json.dumps(reader.cache_key) == before
    next(p for name, p in holder.model.named_parameters() if name.endswith("word_embeddings.weight")).data.mul_(1.5)
    assert json.dumps(reader.cache_key) != before
    holder.model = own
    assert json.dumps(reader.cache_key) == before


WRITINGS = {  # the second is not counted by torch
    "in place": lambda weight: weight.detach().add_(1e-3),
    "through data": lambda weight: weight.data.add_(1e-3),
    "rows exchanged": lambda weight: weight.data.copy_(weight.data.roll(64, 0)),
}


@pytest.mark.parametrize("writing", WRITINGS)
@pytest.mark.parametrize("kind", LOADERS)
def test_the_key_changes_when_weights_are_written_to(kind, writing, checkpoint):
    reader = LOADERS[kind](checkpoint)
    network = getattr(reader, "embedder", reader)
    network = network.model if hasattr(network, "model") else network._classify.model
    before = json.dumps(reader.cache_key)
    assert json.dumps(reader.cache_key) == before
    WRITINGS[writing](next(p for name, p in network.named_parameters() if name.endswith("word_embeddings.weight")))
    assert json.dumps(reader.cache_key) != before


SET = {
    "hook": lambda network, tokenizer: network.encoder.layer[0].output.register_forward_hook(lambda *_: None),
    "scaling": lambda network, tokenizer: setattr(network.encoder.layer[0].attention.self, "scaling", 9.0),
    "activation": lambda network, tokenizer: setattr(
        network.encoder.layer[0].intermediate, "intermediate_act_fn", torch.nn.ReLU()
    ),
    "normalizer": lambda network, tokenizer: setattr(
        tokenizer.backend_tokenizer, "normalizer", normalizers.Replace("o", "i")
    ),
    "longest text": lambda network, tokenizer: setattr(tokenizer, "model_max_length", 7),
    "side of padding": lambda network, tokenizer: setattr(tokenizer, "padding_side", "left"),
}


@pytest.mark.parametrize("what", SET)
@pytest.mark.parametrize("kind", LOADERS)
def test_what_is_set_on_a_reader_after_loading_is_in_its_key(kind, what, checkpoint):
    reader = LOADERS[kind](checkpoint)
    assert "of this process" not in json.dumps(reader.cache_key)
    before, inner = json.dumps(reader.cache_key), getattr(reader, "embedder", reader)
    if hasattr(inner, "model"):
        SET[what](inner.model[0].auto_model, inner.model.tokenizer)
    else:
        SET[what](inner._classify.model.bert, inner._classify.tokenizer)
    assert json.dumps(reader.cache_key) != before


def test_pooling_and_settings_of_an_embedder_s_network_are_in_its_key(checkpoint):
    embedder = Embedder(checkpoint)
    keys = [json.dumps(embedder.cache_key)]
    embedder.model[1].pooling_mode = "cls"
    keys += [json.dumps(embedder.cache_key)]
    embedder.model[0].auto_model.config.hidden_act = "relu"
    assert len({*keys, json.dumps(embedder.cache_key)}) == 3


@pytest.mark.parametrize("load", [PipelineTopicScorer, load_sentiment])
def test_a_classifier_in_training_mode_is_refused(load, checkpoint):
    reader = load(checkpoint)
    read = getattr(reader, "score", reader)
    before = read(TEXTS[:2])
    reader._classify.model.train()
    with pytest.raises(ValueError, match=r"is in training mode, in which its answers are random: call eval\(\) on it"):
        read(TEXTS[:2])
    reader._classify.model.eval()
    np.testing.assert_array_equal(read(TEXTS[:2]), before)


@pytest.mark.parametrize("load", [PipelineTopicScorer, load_sentiment])
def test_a_classifier_reads_a_generator_and_no_text_and_refuses_what_is_none(load, checkpoint):
    reader = load(checkpoint)
    read = getattr(reader, "score", reader)
    whole = read(TEXTS[:2])
    np.testing.assert_array_equal(read(text for text in TEXTS[:2]), whole)
    np.testing.assert_array_equal(read(pd.Series(TEXTS[:2])), whole)
    assert read([]).shape == (0, *whole.shape[1:])
    for texts in (pd.Series(["good", np.nan]), iter([None]), pd.Series([1.0])):
        with pytest.raises(ValueError, match="need a list of texts, got"):
            read(texts)


def test_a_scorer_of_topics_can_be_copied_and_pickled(checkpoint):
    scorer = TopicScorer(Embedder(checkpoint), topics={"a": ["apples"], "b": ["boats"]})
    for twin in (copy.deepcopy(scorer), pickle.loads(pickle.dumps(scorer))):
        assert json.dumps(twin.cache_key) == json.dumps(scorer.cache_key) and dict(twin.topics) == dict(scorer.topics)
        np.testing.assert_array_equal(twin.score(TEXTS[:2]), scorer.score(TEXTS[:2]))


def test_topics_embedded_with_weights_that_were_written_to_since_are_others(checkpoint):
    embedder = Embedder(checkpoint)
    old = TopicScorer(embedder)
    WRITINGS["in place"](embedder.model[0].auto_model.embeddings.word_embeddings.weight)
    assert old.cache_key != TopicScorer(embedder).cache_key  # the same embedder, other vectors of the topics


def test_the_key_is_of_what_was_loaded_and_not_of_what_is_in_the_folder_now(checkpoint, tmp_path):
    folder = copy_with(checkpoint, tmp_path / "model")
    embedder = Embedder(folder)
    before = embedder.cache_key
    copy_with(folder, tmp_path / "other", tokenizer=True)
    shutil.copy(tmp_path / "other" / "tokenizer.json", folder)
    assert embedder.cache_key == before != Embedder(folder).cache_key
    embedder.model.max_seq_length = 5
    assert embedder.cache_key != before


def test_the_key_is_the_same_before_and_after_use(checkpoint):
    for reader in (PipelineTopicScorer(checkpoint), load_sentiment(str(checkpoint)), Embedder(checkpoint)):
        before = json.dumps(reader.cache_key)
        next(filter(None, (getattr(reader, name, None) for name in ("score", "embed", "__call__"))))(TEXTS[:2])
        assert json.dumps(reader.cache_key) == before


def test_the_key_of_a_scorer_holds_its_scale_and_its_topics_in_their_order(checkpoint):
    embedder, topics = Embedder(checkpoint), {"a": ["apples"], "b": ["boats"]}
    turned, reworded = dict(reversed(topics.items())), {"a": ["apples"], "b": ["bats"]}
    scorers = [TopicScorer(embedder, scale, t) for scale, t in ((20.0, topics), (5.0, topics), (20.0, turned))]
    scorers += [TopicScorer(embedder, topics=reworded)]
    assert len({json.dumps(scorer.cache_key) for scorer in scorers}) == 4
    pipelines = [PipelineTopicScorer(checkpoint, topics=t) for t in (topics, turned)]
    assert pipelines[0].cache_key != pipelines[1].cache_key


def test_the_key_of_a_lexical_scorer_is_that_of_what_it_learnt():
    passages = load_passages().groupby("topic").head(3)
    key = LexicalTopicScorer(passages).cache_key
    rebuilt = passages[["topic", "text"]].map(lambda word: "".join(list(word))).set_index(np.arange(27) + 5)
    assert LexicalTopicScorer(rebuilt).cache_key == key  # equal strings, whatever the index and the other columns
    edited, swapped = passages.copy(), passages.copy()
    edited.iloc[0, edited.columns.get_loc("text")] += " zebra"
    swapped["topic"] = passages.topic.to_numpy()[::-1]
    others = [LexicalTopicScorer(frame).cache_key for frame in (edited, swapped, passages.iloc[1:])]
    assert len({json.dumps(k) for k in [key, *others]}) == 4


# What is loaded ----------------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_reading_topics_and_traps_loads_no_embedder():
    program = """
import sys
from glauber_lib import readings, stats, topics
print([name for name in ("sentence_transformers", "transformers", "sklearn", "statsmodels") if name in sys.modules])
from glauber_lib import crossover, exact, plotting, traps
print([name for name in ("sentence_transformers", "transformers") if name in sys.modules])
"""
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["[]", "[]"]


def test_one_text_is_no_list_of_its_letters(embedder, scorer):
    for read in (embedder.embed, scorer.score, sentiment):
        with pytest.raises(ValueError, match="need a list of texts, got one text: 'food'"):
            read("food")
    for topics in ({"food": "food, cooking", "sport": ["games"]}, {"food": [], "sport": ["games"]}):
        with pytest.raises(ValueError, match=r"every topic needs a list of descriptions, got none for \['food'\]"):
            TopicScorer(embedder, topics=topics)
    with pytest.raises(ValueError, match="scale must be a finite number"):
        TopicScorer(embedder, np.nan)


@pytest.mark.parametrize("scores", [np.full((2, 2), np.nan), np.ones((2, 3)), np.ones((1, 2)), np.ones((2, 2), "f2")])
def test_scores_that_are_not_those_of_texts_and_labels_are_refused(scores, tiny):
    mine = SimpleNamespace(labels=["a", "b"], score=lambda texts: scores)
    with pytest.raises(ValueError, match="scores of SimpleNamespace must be"):
        topic_scores(tiny["bert"], mine, tiny["bert"].states(TEXTS[:2], n=5))


def test_a_scorer_keeps_its_own_topics():
    topics = {"x": ["aaa"], "y": ["bb b"]}
    scorer, key = TopicScorer(Letters(), topics=topics), None
    key = json.dumps(dict(scorer.topics))
    topics["x"].append("bbbbbbb")
    assert json.dumps(dict(scorer.topics)) == key and TopicScorer(Letters(), topics=topics).topics != scorer.topics


class Letters:
    """An embedder by the shares of two letters."""

    cache_key = "letters"

    def embed(self, texts):
        vectors = np.array([[text.count("a") + 0.1, text.count("b") + 0.1] for text in texts])
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.slow
def test_settings_of_an_embedder_are_in_its_key_and_a_generator_is_read_once(embedder):
    key = embedder.cache_key
    assert embedder.embed(text for text in ["one", "two", "one"]).shape == (3, 384)
    try:
        embedder.model.truncate_dim = 16
        assert embedder.cache_key != key
    finally:
        embedder.model.truncate_dim = None
    assert embedder.cache_key == key


def test_the_topics_of_a_scorer_cannot_change_beside_their_vectors():
    class Flat:
        cache_key = ("flat",)

        def embed(self, texts):
            return np.tile([[0.6, 0.8]], (len(texts), 1))

    scorer = TopicScorer(Flat(), topics={"a": ["b"]})  # type: ignore
    with pytest.raises(TypeError, match="does not support item assignment"):
        scorer.topics["a"] = ["c"]
    for scale in (0, -1.0, np.inf, np.nan):
        with pytest.raises(ValueError, match="scale must be a finite number above zero"):
            TopicScorer(Flat(), scale, topics={"a": ["b"]})  # type: ignore


@pytest.mark.parametrize("texts", [[["good"], ["bad"]], [None], [np.nan, "good"]])
def test_what_is_no_text_has_no_sentiment(texts):
    with pytest.raises(ValueError, match="need a list of texts, got"):
        sentiment(texts)


def test_a_revision_beside_what_has_none_is_refused(checkpoint, tmp_path):
    (tmp_path / "mine.txt").write_text("a text\n")
    for load, name in (
        (Embedder, checkpoint), (Embedder, "minilm"), (PipelineTopicScorer, checkpoint), (load_sentiment, "vader"),
        (lambda name, revision: load_topic_scorer(name, None, None, revision=revision), "similarity"),
        (lambda name, revision: load_topic_scorer(name, None, None, revision=revision), "lexical"),
        (load_passages, "passages"), (load_passages, tmp_path / "mine.txt"), (load_passages, tmp_path),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"and has no revision: leave out revision='v1'"):
            load(name, revision="v1")
