"""The trained one-layer model: its scores against the layer written out, what it learns, and when it is a joint."""

import numpy as np
import pytest

from glauber_lib import incompatibility, topic_optima
from glauber_lib.topic_models import DirichletTopics, PresentTopics
from glauber_lib.topic_training import TrainedTopics, attention_by_kind, block_contrast, train_topics

SMALL = DirichletTopics(3, 4, 0.1)


@pytest.fixture(scope="module")
def trained():
    return train_topics(SMALL, steps=300, rate=0.03, batch=16, lengths=(30, 40), seed=1)


@pytest.fixture(scope="module")
def tied():
    return train_topics(SMALL, trains="embeddings", steps=150, batch=16, lengths=(30, 40), seed=1)


def layer(model, state, site, hidden=()):
    """Scores at a site by the matrices of the layer, position by position."""
    tokens = state + 1
    tokens[[site, *hidden]] = 0
    logits = np.array([model.logits[key, 0] for key in tokens])
    attention = np.exp(logits) / np.exp(logits).sum()
    return (sum(a * model.values[:, key] for a, key in zip(attention, tokens, strict=True)) + model.bias)[1:]


def test_scores_are_those_of_the_layer(trained):
    states = SMALL.draw(5, 9, 2)
    sites, hidden = np.array([0, 3, 8, 2, 1]), np.zeros(states.shape, bool)
    hidden[:, 5] = True
    for marked, others in ((None, ()), (hidden, (5,))):
        found = trained.model.scores(states, sites, marked).numpy()
        for row, state, site in zip(found, states, sites, strict=True):
            np.testing.assert_allclose(row, layer(trained.model, state.copy(), site, others), atol=1e-9)


def test_it_learns_topics_in_values_and_attention(trained):
    losses = trained.history.loss
    assert losses.iloc[-5:].mean() < losses.iloc[:5].mean() - 0.2
    values = block_contrast(trained.model.values, 3)
    assert values["same_topic"] > values["other"] + 0.5
    attention = attention_by_kind(trained.model, SMALL.draw(50, 40, 3))
    assert attention["same_topic"] > 1.2 * attention["other"]
    again = train_topics(SMALL, steps=300, rate=0.03, batch=16, lengths=(30, 40), seed=1)
    assert (again.model.values == trained.model.values).all()


def test_attention_without_logits_is_uniform(tied):
    attention = attention_by_kind(tied.model, SMALL.draw(20, 40, 3))
    assert list(attention.values()) == pytest.approx([0.01] * 3)


def test_tied_embeddings_under_uniform_attention_are_a_joint_and_trained_attention_is_not(trained, tied):
    for found, joint in ((tied, True), (trained, False)):
        rectangles = incompatibility.sample_rectangles(found.model, SMALL.draw(30, 20, 4), 100, top=12)
        table = incompatibility.measure_rectangles(found.model, rectangles)
        assert (table.delta.max() < 1e-10) == joint
        assert table.I_ij.abs().mean() > 0.01


def test_uniform_attention_with_the_squared_loss_learns_an_optimum_of_the_theorem():
    generator = PresentTopics(3, 2, 2)
    found = train_topics(
        generator, trains="values", loss="squared", steps=400, rate=0.02, lengths=(1500, 1500), batch=8
    )
    seen, law = topic_optima.document_frequencies(3, 2, 2)
    assert topic_optima.prediction_loss(found.model.values, seen, law) < 1 - 1 / 4 + 0.01
    assert found.model.bias.max() == 0 and block_contrast(found.model.values, 3)["other"] < 0.1


def test_near_zero_plain_gradients_train_values_before_keys():
    found = train_topics(SMALL, optimizer="sgd", rate=10.0, initial=1e-3, steps=400, batch=16, lengths=(30, 40)).history
    half = {name: found.step[found[name] > found[name].max() / 2].min() for name in ("key", "query", "value")}
    assert half["value"] < half["key"] and half["value"] < half["query"]


def test_what_cannot_be_trained_is_refused():
    square = np.zeros((5, 5))
    for call in (
        lambda: train_topics(SMALL, trains="all"), lambda: train_topics(SMALL, rate=0.0),
        lambda: train_topics(SMALL, lengths=(5, 4)), lambda: block_contrast(square, 3),
        lambda: TrainedTopics(2, 2, square, square, np.zeros(4)),
        lambda: attention_by_kind(TrainedTopics(2, 2, square, square, np.zeros(5)), [[4, 0]]),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="must"):
            call()
