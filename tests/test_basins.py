"""Embeddings, topics and traps: planted answers are found."""

import numpy as np
import pytest
from conftest import TEXTS

from glauber_lib.basins import (
    TOPICS,
    Embedder,
    TopicScorer,
    cosine_distance,
    embed_states,
    load_topic_scorer,
    modal_state,
    sentiment,
    still_runs,
    survey_traps,
    topic_scores,
)
from glauber_lib.bounds import escape_bound, score_gaps
from glauber_lib.chains import Trace, run_chains
from glauber_lib.exact import transition_matrix
from glauber_lib.models import TabularModel
from glauber_lib.paper import load_passages


@pytest.fixture(scope="module")
def embedder():
    return Embedder()


# Embeddings and topics ---------------------------------------------------------------------------------------------


def test_embeddings_have_unit_length_and_do_not_depend_on_company(embedder):
    vectors = embedder.embed([*TEXTS[:5], TEXTS[0]])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    np.testing.assert_array_equal(vectors[0], vectors[5])
    np.testing.assert_allclose(embedder.embed(TEXTS[3:4])[0], vectors[3], atol=1e-5)


def test_similar_sentences_are_closer_than_unrelated_ones(embedder):
    cat, kitten, bank = embedder.embed(["the cat sleeps", "a kitten is asleep", "the bank raised its interest rate"])
    assert cosine_distance(cat, kitten) < cosine_distance(cat, bank) - 0.3


def test_cosine_distance_by_hand():
    x = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    np.testing.assert_allclose(cosine_distance(x, x[0]), [0, 1, 2])


@pytest.fixture(scope="module")
def scorer(embedder):
    return TopicScorer(embedder)


def test_topics_of_the_passages_are_recognised(scorer):
    passages = load_passages()
    scores = scorer.score(list(passages.text))
    assert scores.shape == (len(passages), len(TOPICS))
    np.testing.assert_allclose(scores.sum(1), 1, atol=1e-12)
    right = np.array(scorer.labels)[scores.argmax(1)] == passages.topic
    assert right.mean() >= 0.85
    assert right.groupby(passages.topic).mean().min() >= 0.5  # no topic is lost altogether


def test_the_named_scorer_is_the_similarity_one(embedder, scorer):
    named = load_topic_scorer("similarity", embedder)
    np.testing.assert_array_equal(named.score(TEXTS[:2]), scorer.score(TEXTS[:2]))
    assert named.cache_key == scorer.cache_key


def test_sentiment_has_the_sign_of_the_words():
    good, bad, neither = sentiment(["a wonderful, happy day", "a horrible, sad failure", "the table has four legs"])
    assert good > 0.5 and bad < -0.5 and neither == 0


def test_states_are_embedded_and_scored_as_their_texts(tiny, embedder, scorer):
    model = tiny["bert"]
    states = model.states(TEXTS[:6], n=8).reshape(2, 3, 8)
    texts = model.texts(states.reshape(6, 8))
    np.testing.assert_allclose(embed_states(model, embedder, states).reshape(6, -1), embedder.embed(texts), atol=1e-5)
    np.testing.assert_allclose(topic_scores(model, scorer, states).reshape(6, -1), scorer.score(texts), atol=1e-5)


# Still periods -----------------------------------------------------------------------------------------------------


def planted_vectors(still, n_records, *, noise=0.0, seed=0):
    """Unit vectors that jump at every record, except in the ranges of records `still`."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(n_records, 64))
    for first, last in still:
        vectors[first : last + 1] = vectors[first] + noise * rng.normal(size=(last + 1 - first, 64))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_planted_still_periods_are_found(noise):
    steps = np.arange(0, 5_001, 25)
    vectors = planted_vectors([(40, 80), (120, 200)], 201, noise=noise)
    # one jump among the twelve records of a window is a mean drift of 1/12 < 0.12, two are not: so the first run ends
    # one record late; none begins early, for there the jump would be the reference of all twelve
    assert still_runs(vectors, steps, window=300) == [(1_000, 2_025), (3_000, 5_000)]


def test_a_still_period_shorter_than_the_window_is_no_run():
    vectors = planted_vectors([(40, 50)], 201)
    assert still_runs(vectors, np.arange(0, 5_001, 25), window=300) == []


def test_a_chain_that_never_moves_is_one_run_and_one_that_always_moves_none():
    steps = np.arange(0, 1_001, 50)
    assert still_runs(np.tile([[1.0, 0.0]], (21, 1)), steps) == [(0, 1_000)]
    assert still_runs(planted_vectors([], 21), steps) == []
    assert still_runs(np.eye(5)[:3], np.arange(3) * 50) == []  # shorter than one window


def test_the_threshold_decides_what_is_still():
    vectors = planted_vectors([(0, 20)], 21, noise=0.3)
    drift = cosine_distance(vectors[1:], vectors[0]).mean()
    steps = np.arange(0, 301, 15)
    assert still_runs(vectors, steps, window=300, threshold=drift * 1.01) == [(0, 300)]
    assert still_runs(vectors, steps, window=300, threshold=drift * 0.99) == []


# Traps -------------------------------------------------------------------------------------------------------------


def written_trace(moves, *, n_steps, initial, temperature=0.5):
    """A trace of one chain with the given moves (step, site, new)."""
    state, rows = list(initial), []
    for step, site, new in moves:
        rows.append((step, 0, site, state[site], new))
        state[site] = new
    columns = np.array(rows, dtype=np.int64).reshape(-1, 5).T
    return Trace(
        np.array([initial]),
        *columns,
        n_steps,
        np.array([temperature]),
        0,
        np.array([0]),
        np.zeros((1, len(initial)), bool),
        np.array([-1]),
    )


def test_modal_state_is_where_most_of_the_period_is_spent():
    trace = written_trace([(9, 0, 1), (39, 1, 1), (44, 1, 0), (89, 0, 0)], n_steps=100, initial=[0, 0])
    # 00 for 10 steps, 10 for 30, 11 for 5, 10 again for 45, 00 for 10
    state, share = modal_state(trace.visits(0), 0, 100)
    assert state.tolist() == [1, 0] and share == pytest.approx(0.75)
    state, share = modal_state(trace.visits(0), 0, 18)
    assert state.tolist() == [0, 0] and share == pytest.approx(10 / 18)
    state, share = modal_state(trace.visits(0), 38, 46)
    assert state.tolist() == [1, 1] and share == pytest.approx(5 / 8)


class Speller(TabularModel):
    """A tabular model whose states have texts."""

    def texts(self, states):
        return ["".join("abc"[v] for v in x) for x in np.asarray(states)]


class OneHot:
    """Every text its own direction: any change of state is a jump."""

    def embed(self, texts):
        return np.eye(27)[[int(t.translate(str.maketrans("abc", "012")), 3) for t in texts]]


def trap_model(*, depth):
    """Flat conditionals but for the state 'ccc', which every site prefers by `depth`."""
    log_joint = np.zeros((3, 3, 3))
    log_joint[2, 2, 2] = depth
    return Speller.from_joint(log_joint)


def wandering(first, last):
    """Moves at every step: site 0 cycles through its tokens."""
    return [(t, 0, (t + 1) % 3) for t in range(first, last)]


def test_a_planted_trap_is_surveyed():
    # wander through x00, reach 222 after step 600, leave it by the move of step 1400, wander through x22
    moves = [*wandering(0, 597), (597, 0, 2), (598, 1, 2), (599, 2, 2), *wandering(1_400, 2_000)]
    trace = written_trace(moves, n_steps=2_000, initial=[0, 0, 0])
    model = trap_model(depth=3.0)
    table = survey_traps(model, trace, OneHot(), stride=25, window=300)
    assert len(table) == 1
    trap = table.iloc[0]
    assert (trap.text, trap.type, trap.chain) == ("ccc", "perfect", 0)
    # still windows start at 600, 625, ..., 1125: the last holds one record from after the exit, as above
    assert (trap.start, trap.duration) == (600, 1_125 - 600 + 25) and not trap.censored
    assert trap.holding == 801 and trap.share == pytest.approx((801 + 8) / 825)  # it comes by again 8 times
    np.testing.assert_allclose([trap.mean_gap, trap.min_gap], 3.0)
    np.testing.assert_allclose(score_gaps(model, [2, 2, 2]), 3.0)
    assert trap.escape == pytest.approx(1 - transition_matrix(model, 3, 0.5)[26, 26], rel=1e-5)
    assert trap.bound == pytest.approx(escape_bound(3.0, 0.5, 3))
    assert trap.escape <= trap.bound


def test_a_trap_at_the_end_is_censored_and_one_site_that_prefers_another_token_makes_it_approximate():
    log_joint = np.zeros((3, 3, 3))
    log_joint[0, 0, 0], log_joint[1, 0, 0] = 3.0, 4.0  # of 000 the first site would rather be 1
    trace = written_trace(wandering(0, 300), n_steps=1_000, initial=[0, 0, 0])
    trap = survey_traps(Speller.from_joint(log_joint), trace, OneHot(), stride=25).iloc[0]
    assert trap.censored and (trap.start, trap.duration) == (300, 700 - 300 + 25)
    assert (trap.text, trap.type) == ("aaa", "approximate")
    np.testing.assert_allclose([trap.min_gap, trap.mean_gap], [-1, 5 / 3])


def test_a_chain_that_falls_into_a_deep_state_is_trapped_and_free_ones_are_not():
    model = trap_model(depth=12.0)
    trace = run_chains(model, np.zeros((4, 3), int), n_steps=1_500, temperature=[0.5, 0.5, 100.0, 100.0], seed=1)
    table = survey_traps(model, trace, OneHot(), stride=25)
    assert set(table.chain) == {0, 1} and set(table.text) == {"ccc"} and table.censored.all()
    assert table.duration.is_monotonic_decreasing


def test_no_trap_gives_an_empty_table_with_the_same_columns():
    model = Speller(np.zeros((3, 3, 3, 3)))
    free = survey_traps(model, run_chains(model, [[0, 0, 0]], n_steps=600), OneHot(), stride=25)
    trace = written_trace([], n_steps=600, initial=[0, 0, 0])
    assert len(free) == 0
    assert list(free.columns) == list(survey_traps(model, trace, OneHot(), stride=25).columns)


def test_a_tiny_language_model_s_frozen_chain_is_a_trap(tiny, embedder):
    model = tiny["bert"]
    trace = run_chains(model, model.states(TEXTS[:1], n=5), n_steps=700, temperature=1e-4)
    table = survey_traps(model, trace, embedder)
    assert len(table) >= 1 and table.text.iloc[0] == model.texts(trace.final)[0]
