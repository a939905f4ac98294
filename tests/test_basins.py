"""Embeddings, topics and traps: planted answers are found."""

import gc

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from conftest import TEXTS, fit
from hypothesis import given
from hypothesis import strategies as st
from sklearn.model_selection import StratifiedKFold

from glauber_lib.chains import run_chains
from glauber_lib.escape import escape_bound, score_gaps
from glauber_lib.exact import transition_matrix
from glauber_lib.instruments import (
    TOPICS,
    Embedder,
    LexicalTopicScorer,
    TopicScorer,
    cosine_distance,
    embed_states,
    load_topic_scorer,
    sentiment,
    topic_scores,
)
from glauber_lib.models import TabularModel
from glauber_lib.paper import load_passages
from glauber_lib.stats import group_difference, label_rises
from glauber_lib.topics import dwell_times, entropy_production, recurrence_times, reversible_paths, transition_counts
from glauber_lib.traces import Trace
from glauber_lib.traps import inside_runs, modal_state, occupied_runs, still_runs, survey_traps, template_families


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


def test_the_lexical_scorer_s_cache_key_is_that_of_the_text_and_topic_of_its_passages():
    passages = load_passages().groupby("topic").head(3)
    key = LexicalTopicScorer(passages).cache_key
    rebuilt = passages[["topic", "text"]].map(lambda word: "".join(list(word))).set_index(np.arange(27) + 5)
    assert LexicalTopicScorer(rebuilt).cache_key == key  # equal strings, whatever the index and the other columns
    edited, swapped = passages.copy(), passages.copy()
    edited.iloc[0, edited.columns.get_loc("text")] += "!"
    swapped["topic"] = passages.topic.to_numpy()[::-1]
    others = [LexicalTopicScorer(frame).cache_key for frame in (edited, swapped, passages.iloc[1:])]
    assert len({str(k) for k in [key, *others]}) == 4


def test_sentiment_has_the_sign_of_the_words():
    good, bad, neither = sentiment(["a wonderful, happy day", "a horrible, sad failure", "the table has four legs"])
    assert good > 0.5 and bad < -0.5 and neither == 0


def test_states_are_embedded_and_scored_as_their_texts(tiny, embedder, scorer):
    model = tiny["bert"]
    states = model.states(TEXTS[:6], n=8).reshape(2, 3, 8)
    texts = model.texts(states.reshape(6, 8))
    np.testing.assert_allclose(embed_states(model, embedder, states).reshape(6, -1), embedder.embed(texts), atol=1e-5)
    np.testing.assert_allclose(topic_scores(model, scorer, states).reshape(6, -1), scorer.score(texts), atol=1e-5)


# Rises of labels ---------------------------------------------------------------------------------------------------


def exchangeable_rises(n_chains, n_labels, rng):
    """Rises exchangeable in each chain but for its seed's label, which falls; chains differ in level and scale."""
    level, scale = rng.normal(size=(n_chains, 1)), rng.exponential(size=(n_chains, 1))
    gain, own = level + scale * rng.normal(size=(n_chains, n_labels)), rng.integers(n_labels, size=n_chains)
    gain[np.arange(n_chains), own] -= 10
    return gain, own


def test_rise_and_excess_by_hand():
    table = label_rises([[-9, 1, 3], [2, -9, 6]], [0, 1], n_resamples=20_000)
    assert list(table.rise) == [2, 1, 4.5]
    np.testing.assert_allclose(table.excess, [2 - 6, 1 - 3, ((3 - 1) + (6 - 2)) / 2])
    # label 2 has the larger of two values in both chains, the other labels the smaller of two in their only one
    np.testing.assert_allclose(table.p, [1, 1, 1 / 4], atol=0.015)
    np.testing.assert_allclose(table.p_holm, [1, 1, 3 / 4], atol=0.045)


def test_a_planted_rise_is_found_and_no_other():
    gain, own = exchangeable_rises(40, 9, np.random.default_rng(0))
    gain[:, 3] += 1.5
    table = label_rises(gain, own, n_resamples=2_000)
    assert table.p.idxmin() == table.excess.idxmax() == 3
    assert table.p[3] == 1 / 2_001  # never zero: the observed one is counted among the resamples
    assert table.p_holm[3] == pytest.approx(9 / 2_001) and table.p_holm.drop(3).min() > 0.05


def test_the_correction_is_holm_s():
    gain, own = exchangeable_rises(25, 6, np.random.default_rng(5))
    table = label_rises(gain + np.linspace(0, 1, 6), own, n_resamples=1_000)
    ordered = np.sort(table.p)
    assert ordered[1] < 0.2 and len(set(ordered)) == 6
    expected = np.minimum(np.maximum.accumulate(ordered * np.arange(6, 0, -1)), 1)  # the least of six, then of five
    np.testing.assert_allclose(np.sort(table.p_holm), expected)
    np.testing.assert_allclose(table.p_holm[table.p.idxmin()], expected[0])


def test_without_a_rise_the_p_values_are_uniform():
    rng = np.random.default_rng(1)
    gc.freeze()  # statsmodels collects garbage at each correction: most of a second, unless what is there is set aside
    p = np.array([label_rises(*exchangeable_rises(15, 5, rng), n_resamples=200, seed=k).p for k in range(200)])
    gc.unfreeze()
    # mean 1/2 and variance 1/12, even if the five of a table were all the same
    assert abs(p.mean() - 0.5) < 3 * np.sqrt(1 / 12 / 200)
    for level in (0.1, 0.3, 0.7):
        assert abs((p <= level).mean() - level) < 3 * np.sqrt(level * (1 - level) / 200)


def test_what_the_seed_s_own_label_does_is_left_out():
    gain, own = exchangeable_rises(30, 5, np.random.default_rng(2))
    other = gain.copy()
    other[np.arange(30), own] = 1e3
    table = label_rises(gain, own, n_resamples=300)
    assert table.equals(label_rises(other, own, n_resamples=300))
    assert table.excess.abs().max() < 2 < label_rises(gain, (own + 1) % 5, n_resamples=300).excess.abs().max()


def test_the_share_between_groups_and_its_p_value_by_hand():
    # groups {0, 2} and {6, 8} in the first column, the same mean twice in the second one
    values = np.array([[0.0, 1.0], [6.0, 1.0], [2.0, -1.0], [8.0, -1.0]])
    share, p = group_difference(values, ["b", "a", "b", "a"], n_resamples=20_000)
    assert share == pytest.approx(4 * 3**2 / (16 + 4 + 4 + 16 + 4))
    assert p == pytest.approx(1 / 3, abs=0.012)  # two of the six ways to halve four chains give as much


def test_the_share_and_p_value_of_one_column_are_those_of_the_analysis_of_variance():
    rng = np.random.default_rng(3)
    groups = np.repeat(["x", "y", "z"], [10, 20, 15])
    values = rng.normal(size=45) + 0.45 * (groups == "y")
    share, p = group_difference(values[:, None], groups, n_resamples=4_000)
    f, expected = scipy.stats.f_oneway(*(values[groups == g] for g in "xyz"))
    assert share == pytest.approx(2 * f / (2 * f + 42))
    assert 0.02 < expected < 0.5 and p == pytest.approx(expected, abs=0.03)


def test_a_planted_difference_of_groups_is_found_and_without_one_the_p_values_are_uniform():
    rng, groups = np.random.default_rng(4), np.repeat(np.arange(3), [4, 8, 6])
    p = []
    for seed in range(200):
        values = rng.exponential(size=(18, 1)) * rng.standard_t(3, size=(18, 4))
        p.append(group_difference(values, groups, n_resamples=100, seed=seed)[1])
    assert scipy.stats.kstest(p, "uniform").pvalue > 0.01
    values[:, 2] += 9.0 * groups
    assert group_difference(values, groups, n_resamples=500)[1] == 1 / 501


# Topics as a Markov chain ------------------------------------------------------------------------------------------


def label_paths(matrix, n_chains, n_records, *, seed=0):
    """Paths int[C, K] of a Markov chain."""
    rng, cumulated = np.random.default_rng(seed), np.cumsum(matrix, axis=1)
    paths = rng.integers(len(matrix), size=(n_chains, n_records))
    for k in range(1, n_records):
        paths[:, k] = (rng.random((n_chains, 1)) >= cumulated[paths[:, k - 1], :-1]).sum(1)
    return paths


def cycle(forward, back):
    """Transition matrix of a chain that goes around a ring of three."""
    ahead = np.roll(np.eye(3), 1, axis=1)
    return forward * ahead + back * ahead.T + (1 - forward - back) * np.eye(3)


LAZY = np.array([[0.9, 0.08, 0.02], [0.3, 0.5, 0.2], [0.1, 0.6, 0.3]])

label_records = st.integers(1, 12).flatmap(
    lambda k: st.lists(st.lists(st.integers(0, 2), min_size=k, max_size=k), min_size=1, max_size=4)
)


def test_transitions_by_hand():
    counts = transition_counts([[0, 0, 2, 1], [2, 1, 2, 2]], 4)  # none from the end of one path to the next one
    np.testing.assert_array_equal(counts, [[1, 0, 1, 0], [0, 0, 1, 0], [0, 2, 1, 0], [0, 0, 0, 0]])
    assert transition_counts([[0], [1]], 2).tolist() == [[0, 0], [0, 0]]


def test_entropy_production_of_a_cycle_in_closed_form():
    expected = (0.5 - 0.2) * np.log(0.5 / 0.2)
    counts = 1e9 * cycle(0.5, 0.2)
    assert entropy_production(counts) == pytest.approx(expected, rel=1e-6)
    assert entropy_production(counts.T) == pytest.approx(expected, rel=1e-6)  # either way around
    # twice around: nine transitions are counted half a time more, so 2.5 against 0.5 of 6 + 4.5
    assert entropy_production(2 * cycle(1, 0)) == pytest.approx(3 * (2.5 - 0.5) / 10.5 * np.log(5))
    counts = transition_counts(label_paths(cycle(0.5, 0.2), 4, 20_000), 3)
    assert entropy_production(counts) == pytest.approx(expected, rel=0.05)


@given(st.lists(st.integers(0, 1_000), min_size=16, max_size=16))
def test_entropy_production_is_zero_for_symmetric_counts_and_never_negative_nor_infinite(counts):
    counts = np.array(counts).reshape(4, 4)
    assert entropy_production(counts + counts.T) == 0
    assert 0 <= entropy_production(counts) < np.inf
    assert (entropy_production(counts) > 0) == (counts != counts.T).any()


def test_reversible_paths_have_the_symmetrised_flow():
    labels = np.array([0, 2, 4])  # 1 and 3 are never visited
    paths = labels[label_paths(cycle(0.5, 0.2), 6, 20_000)]
    drawn = reversible_paths(paths, 5, np.random.default_rng(0))
    before, after = transition_counts(paths, 5), transition_counts(drawn, 5)
    assert drawn.shape == paths.shape and set(drawn.ravel()) == {0, 2, 4} == set(paths[:, 0])
    np.testing.assert_array_equal(drawn[:, 0], paths[:, 0])
    assert (drawn != paths).any(1).all()
    law = before + before.T
    for label in labels:  # and it is Markov: each row has the law of the flow out of its label
        assert fit(after[label], law[label] / law[label].sum()) > 1e-3
        assert fit(after[label], before[label] / before[label].sum()) < 1e-6
    assert (np.abs(after - after.T) <= 4 * np.sqrt(after + after.T)).all()
    assert entropy_production(after) < 1e-3 < 0.2 < entropy_production(before)


def test_one_seed_gives_the_same_reversible_paths():
    paths = label_paths(LAZY, 3, 50)
    first, again, other = (reversible_paths(paths, 3, np.random.default_rng(seed)) for seed in (5, 5, 6))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_blocks_take_out_what_the_starts_share():
    rng = np.random.default_rng(0)
    groups, blocks = np.repeat(np.arange(3), 8), np.tile(np.arange(8), 3)
    values = 10 * rng.normal(size=(8, 2))[blocks] + rng.normal(size=(24, 2))  # starts differ widely
    shifted = values + np.array([0.0, 1.5, 3.0])[groups, None]
    assert group_difference(shifted, groups, n_resamples=500)[1] > 0.1
    assert group_difference(shifted, groups, blocks=blocks, n_resamples=500)[1] < 0.01
    assert group_difference(values, groups, blocks=blocks, n_resamples=500)[1] > 0.05
    share, _ = group_difference(shifted, groups, blocks=np.zeros(24), n_resamples=10)
    assert share == group_difference(shifted, groups, n_resamples=10)[0]


def test_a_lexical_scorer_needs_labelled_passages():
    with pytest.raises(ValueError, match="learns from passages labelled"):
        load_topic_scorer("lexical", None, pd.DataFrame({"id": ["a"], "text": ["words"]}))


def test_dwell_times_by_hand():
    length, ended = dwell_times([[1, 1, 0, 1, 2, 2, 1], [0, 2, 1, 1, 1, 1, 0]], 1)
    assert length.tolist() == [2, 1, 4] and ended.all()  # of the run in the last record alone nothing is known
    length, ended = dwell_times([[2, 2, 2]], 2)
    assert length.tolist() == [2] and ended.tolist() == [False]  # two steps from record to record are seen
    length, ended = dwell_times([[2, 2, 2]], 1)
    assert length.shape == ended.shape == (0,) and ended.dtype == bool


def test_recurrence_times_by_hand():
    # from the first record without the label: back after 1, after 2, not within 1; in the second path never left
    length, back = recurrence_times([[1, 1, 0, 1, 2, 2, 1, 0, 0], [0, 2, 1, 1, 1, 1, 1, 1, 1]], 1)
    assert length.tolist() == [1, 2, 1] and back.tolist() == [True, True, False]
    length, back = recurrence_times([[0, 0, 1, 1]], 0)
    assert length.tolist() == [1] and back.tolist() == [False]
    assert len(recurrence_times([[0, 0, 0, 1]], 0)[0]) == 0  # left in the last record: not waited for
    length, back = recurrence_times([[0, 0, 0]], 1)
    assert length.shape == back.shape == (0,) and back.dtype == bool


@given(label_records)
def test_every_record_of_a_label_is_dwelt_and_every_end_of_a_stay_is_waited_from(paths):
    paths = np.array(paths)
    at = paths == 1
    before = np.concatenate([np.zeros((len(at), 1), bool), at[:, :-1]], axis=1)
    length, ended = dwell_times(paths, 1)
    fresh = (at[:, -1] & ~before[:, -1]).sum()  # entered in the last record: no dwell is seen
    assert length.sum() + (~ended).sum() + fresh == at.sum() and (~ended).sum() + fresh == at[:, -1].sum()
    waited, back = recurrence_times(paths, 1)
    left = (before[:, -1] & ~at[:, -1]).sum()  # left in the last record: not waited for
    assert len(waited) + left == ended.sum() and (~back).sum() <= len(paths)
    away = sum((row[np.flatnonzero(row)[0] :] == 0).sum() for row in at if row.any())  # since first there
    assert waited.sum() + (~back).sum() + left == away


@pytest.mark.parametrize("label", [0, 1, 2])
def test_mean_dwell_and_return_times_are_those_of_the_chain(label):
    paths = label_paths(LAZY, 4, 20_000, seed=1)
    stay = LAZY[label, label]
    law = np.linalg.matrix_power(LAZY, 1_000)[0, label]
    length, ended = dwell_times(paths, label)
    assert abs(length[ended].mean() - 1 / (1 - stay)) < 4 * length[ended].std() / np.sqrt(ended.sum())
    # Kac: from one record at the label to the next is 1/law in the mean, a single record with chance `stay`
    length, back = recurrence_times(paths, label)
    expected = (1 / law - stay) / (1 - stay) - 1  # counted from the first record elsewhere
    assert abs(length[back].mean() - expected) < 4 * length[back].std() / np.sqrt(back.sum())
    assert back.sum() > 1_000


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


# Runs in few states ------------------------------------------------------------------------------------------------


def planted_visits(traps, n_steps):
    """Visits of a chain in a new state at every step, but in steps first .. last - 1 it cycles through `pattern`."""
    path = 1_000 + np.arange(n_steps)
    for first, last, pattern in traps:
        path[first:last] = np.resize(pattern, last - first)
    entered = np.flatnonzero(np.diff(path, prepend=-1))
    return path[entered, None], entered, np.diff(np.append(entered, n_steps))


def windows_held(first, last, n_steps, *, stride, window, spare, share):
    """Starts of the windows of which `share` is spent in one trap and in `spare` single steps outside it."""
    starts = np.arange(0, n_steps - window + 1, stride)
    overlap = np.clip(np.minimum(starts + window, last) - np.maximum(starts, first), 0, None)
    return starts[overlap + np.minimum(spare, window - overlap) >= share * window]


def test_a_planted_single_state_is_found():
    # a window of 300 needs 270 steps in five states: 266 in the trap and four single ones outside it
    visits, steps = planted_visits([(1_000, 3_000, [7])], 5_000), np.arange(0, 5_001, 25)
    first, last = 975, 2_725 + 300  # the first start from 1 000 - 34, the last up to 3 000 - 266
    assert occupied_runs(visits, steps) == [(first, last)]
    assert occupied_runs(visits, steps, n_states=1, share=1.0) == [(1_000, 3_000)]
    assert occupied_runs(visits, np.arange(0, 5_001), n_states=1, share=1.0) == [(1_000, 3_000)]
    assert occupied_runs(visits, np.arange(0, 5_001)) == [(1_000 - 34, 3_000 - 266 + 300)]


@given(
    st.integers(0, 900), st.integers(60, 900), st.sampled_from([1, 7, 20]), st.sampled_from([50, 64]), st.integers(1, 4)
)
def test_a_planted_trap_is_found_up_to_the_part_of_a_window_that_need_not_be_in_it(first, length, stride, window, k):
    visits, last = planted_visits([(first, first + length, np.arange(k))], 2_000), first + length
    found = occupied_runs(visits, np.arange(0, 2_001, stride), window=window, n_states=5, share=0.75)
    n_steps = 2_000 // stride * stride  # the last step that is asked for
    held = windows_held(first, last, n_steps, stride=stride, window=window, spare=5 - k, share=0.75)
    assert found == [(held[0], held[-1] + window)]
    most = window / 4 + 5 - k  # at either end, wherever the windows start
    assert first - most <= found[0][0] <= first + stride and last - stride <= found[0][1] <= last + most


def test_hopping_between_few_states_is_a_trap_and_between_more_is_none():
    steps = np.arange(0, 3_001, 20)
    visits = planted_visits([(1_000, 2_000, [0, 0, 0, 1, 2, 2])], 3_000)
    assert occupied_runs(visits, steps, n_states=3, share=1.0) == [(1_000, 2_000)]
    assert occupied_runs(visits, steps, n_states=2, share=1.0) == []
    # the two most occupied of them hold 5 of 6 steps
    assert occupied_runs(visits, steps, n_states=2, share=0.83) == [(1_000, 2_000)]
    assert occupied_runs(visits, steps, n_states=2, share=0.84) == []
    seven = planted_visits([(1_000, 2_000, np.arange(7))], 3_000)
    assert occupied_runs(seven, steps) == []  # five of seven hold 0.71 of the steps
    assert occupied_runs(seven, steps, share=0.71) != []


def test_two_traps_are_two_runs_and_one_shorter_than_the_share_is_none():
    steps = np.arange(0, 5_001, 50)
    traps = [(500, 1_500, [7]), (1_800, 2_600, [7]), (3_500, 3_700, [8])]
    options = {"n_states": 1, "share": 0.9}  # 270 of 300 steps: up to 30 of them outside
    assert occupied_runs(planted_visits(traps, 5_000), steps, **options) == [(500, 1_500), (1_800, 2_600)]
    assert occupied_runs(planted_visits(traps, 5_000), np.arange(0, 5_001, 10), **options) == [
        (470, 1_530), (1_770, 2_630)
    ]  # fmt: skip


def test_wandering_is_no_run_and_a_chain_that_never_moves_is_one():
    steps = np.arange(0, 1_001, 50)
    assert occupied_runs(planted_visits([], 1_000), steps) == []
    assert occupied_runs(planted_visits([(0, 1_000, [0])], 1_000), steps) == [(0, 1_000)]
    assert occupied_runs(planted_visits([(0, 250, [0])], 250), np.arange(0, 251, 50)) == []  # shorter than one window


def test_the_runs_of_a_trace_are_its_traps():
    # 000 for 100 steps, then a move a step until 222 is reached after 600, which is left for 122 now and then
    hops = [(t, 0, v) for start in range(700, 1_900, 100) for t, v in ((start, 1), (start + 4, 2))]
    moves = [*wandering(100, 597), (597, 0, 2), (598, 1, 2), (599, 2, 2), *hops]
    trace = written_trace(moves, n_steps=2_500, initial=[0, 0, 0])
    steps = np.arange(0, 2_501, 25)
    assert occupied_runs(trace.visits(0), steps, n_states=2, share=1.0) == [(600, 2_500)]
    assert occupied_runs(trace.visits(0), steps, n_states=1, share=1.0) == [(1_825, 2_500)]  # back after 1 805


def test_inside_runs_by_hand():
    steps = [0, 9, 10, 15, 20, 21, 30, 40]
    assert inside_runs([(10, 20), (30, 30)], steps).tolist() == [False, False, True, True, True, False, True, False]
    assert inside_runs([(0, 15), (10, 20)], steps).tolist() == [True] * 5 + [False] * 3
    assert inside_runs([], steps).tolist() == [False] * 8


# Families ----------------------------------------------------------------------------------------------------------


def planted_families(sizes, *, n=12, varying=3, shared=4, seed=0):
    """States int[K, n] of templates that share some sites, in random order; each family varies at sites of its own."""
    rng, rows, templates = np.random.default_rng(seed), [], []
    for k, size in enumerate(sizes):
        template = np.where(np.arange(n) < shared, 7, 100 * (k + 1) + np.arange(n))
        places = shared + rng.permutation(n - shared)[:varying]
        mine = np.tile(template, (size, 1))
        mine[:, places] = 1_000 + rng.permutation(500 * size)[: size * varying].reshape(size, varying)
        rows.append(mine)
        templates.append(np.where(np.isin(np.arange(n), places), -1, template))
    order = rng.permutation(sum(sizes))
    return np.concatenate(rows)[order], np.repeat(np.arange(len(sizes)), sizes)[order], templates


@pytest.mark.parametrize("seed", range(5))
def test_planted_templates_are_found_the_largest_family_first(seed):
    states, planted, templates = planted_families([3, 9, 2, 5, 4, 7], seed=seed)
    family, found = template_families(states)
    assert family.tolist() == np.array([4, 0, 5, 2, 3, 1])[planted].tolist()
    for k, original in enumerate([1, 5, 3, 4, 0, 2]):
        np.testing.assert_array_equal(found[k], templates[original])
    assert len(found) == 6


def test_one_state_is_a_family_and_none_are_none():
    family, found = template_families([[4, 5, 6]])
    assert family.tolist() == [0] and [t.tolist() for t in found] == [[4, 5, 6]]
    family, found = template_families(np.zeros((0, 3), int))
    assert family.shape == (0,) and found == []


def test_equal_states_are_a_family_without_varying_sites():
    family, found = template_families([[4, 5, 6], [1, 2, 3], [4, 5, 6]])
    assert family.tolist() == [0, 1, 0] and [t.tolist() for t in found] == [[4, 5, 6], [1, 2, 3]]


def test_the_threshold_is_the_share_of_sites_at_which_families_may_differ():
    # the third is apart from the first two by 2/4 and 3/4, so by 5/8 on average
    states = [[0, 0, 0, 0], [0, 0, 0, 1], [0, 1, 1, 0]]
    families = {t: template_families(states, threshold=t)[0].tolist() for t in (0.3, 0.6, 0.65)}
    assert families == {0.3: [0, 0, 1], 0.6: [0, 0, 1], 0.65: [0, 0, 0]}
    assert sorted(template_families(states, threshold=0.2)[0]) == [0, 1, 2]
    assert [t.tolist() for t in template_families(states, threshold=0.3)[1]] == [[0, 0, 0, -1], [0, 1, 1, 0]]
    assert template_families(states, threshold=0.65)[1][0].tolist() == [0, -1, -1, -1]


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
    assert (trap.text, trap.state, trap.type, trap.chain) == ("ccc", (2, 2, 2), "perfect", 0)
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
    assert table.state.iloc[0] == tuple(trace.final[0].tolist())
    assert [model.texts([state])[0] for state in table.state] == list(table.text)
