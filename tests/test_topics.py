"""Topics along a chain as a Markov chain: counts by hand, laws in closed form."""

import numpy as np
import pandas as pd
import pytest
from conftest import fit
from hypothesis import given
from hypothesis import strategies as st

from glauber_lib.topics import (
    EntropyProduction,
    choose_seeds,
    describe_labels,
    dwell_times,
    entropy_production,
    measure_entropy_production,
    persistence,
    persistence_excess,
    recurrence_times,
    reversible_paths,
    top_labels,
    transition_counts,
)


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
    counts = np.array(counts).reshape(4, 4) + np.eye(4, dtype=int)
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


def test_a_driven_cycle_produces_more_than_chains_in_detailed_balance_and_a_reversible_one_does_not():
    driven = measure_entropy_production(label_paths(cycle(0.5, 0.2), 30, 60), 3, np.random.default_rng(0))
    balanced = measure_entropy_production(label_paths(cycle(0.35, 0.35), 30, 60), 3, np.random.default_rng(0))
    expected = 0.3 * np.log(0.5 / 0.2)
    assert driven.p == 1 / 501 and balanced.p > 0.05 and driven.n == 30
    assert driven.interval[0] < driven.measured < driven.interval[1]
    low, high = driven.excess("chains").interval
    assert 0 < low < expected < high
    low, high = balanced.excess("chains").interval
    assert low < 0 < high  # measured itself is positive in every sample


def test_resampled_entropy_production_is_centred_at_the_measured_one():
    paths = label_paths(LAZY, 6, 30)
    result = measure_entropy_production(paths, 3, np.random.default_rng(1), n_resamples=50)
    assert result.measured == entropy_production(transition_counts(paths, 3))
    assert result.resampled.mean() == pytest.approx(result.measured)
    assert result.resampled.shape == result.reversible.shape == (50,)
    again = measure_entropy_production(paths, 3, np.random.default_rng(1), n_resamples=50)
    np.testing.assert_array_equal(again.reversible, result.reversible)


def test_simulated_paths_of_the_same_counts_are_as_much_however_they_round():
    for seed in (1, 4):
        paths = np.random.default_rng(4).integers(0, 3, (2, 5))
        result = measure_entropy_production(paths, 3, np.random.default_rng(seed), n_resamples=1_000)
        as_much = np.round(result.reversible, 9) >= np.round(result.measured, 9)
        assert as_much.sum() > (result.reversible >= result.measured).sum()
        assert result.p == (1 + as_much.sum()) / 1_001


def test_excess_and_p_by_hand():
    result = EntropyProduction(0.3, np.repeat([0.2, 0.3, 0.4], 20), np.array([0.1, 0.2, 0.3]), 3)
    assert result.p == 2 / 4 and result.excess("chains").value == pytest.approx(0.1)
    np.testing.assert_allclose(result.excess("chains").interval, np.array(result.interval) - 0.2, atol=1e-12)
    assert EntropyProduction(0.1, np.tile([-0.1, 0.3], 20), np.zeros(1), 2).interval[0] == 0


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


def test_labels_are_described_by_hand():
    table = describe_labels([[1, 1, 0, 1, 2, 2, 1], [0, 2, 1, 1, 1, 1, 0]], ["a", "b", "c", "d"]).set_index("label")
    np.testing.assert_allclose(table.share, np.array([3, 8, 3, 0]) / 14)
    assert table.visits.tolist() == [2, 3, 2, 0]  # nothing is known of a run in the last record alone
    np.testing.assert_array_equal(table.dwell, [1, 2, 2, np.nan])
    np.testing.assert_array_equal(table.recurrence, [5, 2, np.nan, np.nan])
    assert table.cut_off.tolist() == [0, 0, 0, 0] and table.never_back.tolist() == [1, 0, 1, 0]


def test_persistence_by_hand():
    table = persistence([[0, 0, 1, 0], [1, 1, 1, 0]], ["a", "b", "c"]).set_index("label")
    assert table.records.tolist() == [2, 4, 0] and table.chains.tolist() == [1, 2, 0]
    assert table["mean"].tolist()[:2] == [1 / 2, 2 / 4] and np.isnan(table["mean"]["c"])
    assert table.share.tolist() == [3 / 6, 3 / 6, 0]
    assert persistence_excess([[0, 0, 1, 0], [1, 1, 1, 0]], 3).value == pytest.approx(3 / 6 - 1 / 2)


@pytest.mark.slow
def test_intervals_of_thirty_label_paths_cover_in_500_draws():
    law = np.linalg.matrix_power(LAZY, 1_000)[0]
    truth = law @ np.diag(LAZY) - (law**2).sum()
    balanced, kept, produced = cycle(0.35, 0.35), [], []
    for seed in range(500):
        rng = np.random.default_rng(seed)
        start = label_paths(LAZY, 30, 40, seed=seed)[:, 20:]  # near its stationary law
        low, high = persistence_excess(start, 3).interval
        kept.append(low <= truth <= high)
        low, high = (
            measure_entropy_production(label_paths(balanced, 30, 20, seed=seed), 3, rng, n_resamples=200)
            .excess("chains")
            .interval
        )
        produced.append(low <= 0 <= high)
    assert 0.90 <= np.mean(kept) <= 0.98
    assert np.mean(produced) >= 0.90


def test_labels_outside_the_list_are_refused():
    for paths in ([[0, 2, 1]], [[0, -1, 1]], [[0.0, 1.0]], [0, 1], []):
        for read in (lambda p: transition_counts(p, 2), lambda p: describe_labels(p, "ab"),
                     lambda p: reversible_paths(p, 2, np.random.default_rng(0))):  # fmt: skip
            with pytest.raises(ValueError, match=r"labels of paths must be integers in 0\.\.1|shape \(chains, records"):
                read(paths)


def test_a_label_by_its_name_is_refused_and_not_taken_for_one_that_never_comes():
    for label in ("politics", 0.5, -1, np.nan):
        for read in (dwell_times, recurrence_times):
            with pytest.raises(ValueError, match="label must be a whole number"):
                read([[0, 1, 0]], label)


@pytest.mark.parametrize("per_topic", [-1, 0, 1.5, 3])
def test_seeds_that_are_not_there_are_refused(per_topic):
    passages = pd.DataFrame({"id": range(4), "text": "x", "topic": [*"aabb"]})
    with pytest.raises(ValueError, match=r"per_topic must be a whole number|takes? 3 passages"):
        choose_seeds(passages, ["a", "b"], per_topic, None)
    with pytest.raises(ValueError, match=r"per_topic must be a whole number|takes? 3 passages"):
        choose_seeds(passages.drop(columns="topic"), ["a", "b"], per_topic, None)


def test_near_ties_of_labels_are_flagged_and_a_nan_is_refused():
    scores = np.array([[[0.5, 0.5 - 5e-6, 5e-6], [0.2, 0.3, 0.5]], [[0.25, 0.375, 0.375], [0.9, 0.05, 0.05]]])
    labels, near = top_labels(scores)
    assert labels.tolist() == [[0, 2], [1, 0]] and near.tolist() == [[True, False], [True, False]]
    assert not top_labels(scores, resolution=1e-6)[1][0, 0]
    for wrong in (np.nan, np.inf, -np.inf):
        scores[1, 0, 0] = wrong
        with pytest.raises(ValueError, match="nan or infinite ones in 1 texts"):
            top_labels(scores)
    for wrong, resolution in (([[0.5]], 1e-5), (0.5, 1e-5), ([[0.5, 0.5]], np.nan)):
        with pytest.raises(ValueError, match="two labels or more"):
            top_labels(wrong, resolution=resolution)


@pytest.mark.parametrize("shape", [(0, 5), (4, 1), (4, 0), (5,)])
def test_paths_without_a_transition_are_refused(shape):
    with pytest.raises(ValueError, match="two records or more"):
        measure_entropy_production(np.zeros(shape, int), 3, np.random.default_rng(0))


def test_one_path_tells_no_interval():
    result = measure_entropy_production(label_paths(LAZY, 1, 50), 3, np.random.default_rng(0), n_resamples=20)
    assert np.isnan([*result.interval, *result.excess("chains").interval]).all() and 0 < result.p <= 1
    assert np.isnan(EntropyProduction(np.nan, np.ones(3), np.zeros(3), 2).p)


class Judge:
    def __init__(self, scores):
        self.labels, self.scores = ["a", "b"], np.array(scores)

    def score(self, texts):
        return self.scores[: len(texts)]


def test_seeds_that_are_too_few_are_refused_and_no_passage_seeds_two_topics():
    passages = pd.DataFrame({"id": range(4), "text": list("wxyz"), "topic": ["a", "a", "a", "b"]})
    with pytest.raises(ValueError, match=r"takes 2 passages, got \{'b': 1\}"):
        choose_seeds(passages, ["a", "b"], 2, Judge([]))
    blind, judge = passages.drop(columns="topic"), Judge([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]])
    seeds, rest = choose_seeds(blind, ["a", "b"], 2, judge)
    assert seeds.id.tolist() == [0, 1, 2, 3] and rest.empty
    with pytest.raises(ValueError, match="takes 3 passages, got 4"):
        choose_seeds(blind, ["a", "b"], 3, judge)
    with pytest.raises(ValueError, match="nan or infinite ones in 1 texts"):
        choose_seeds(blind, ["a", "b"], 2, Judge([[0.9, 0.1], [np.nan, 0.2], [0.3, 0.7], [0.6, 0.4]]))


def test_passages_of_one_id_are_told_apart_by_their_places():
    passages = pd.DataFrame({"id": [1, 1, 2, 2], "text": list("wxyz"), "topic": list("aabb")}, index=[5, 5, 5, 5])
    for some in (passages, passages.drop(columns="topic")):
        judge = Judge([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.2, 0.8]])
        seeds, rest = choose_seeds(some, ["a", "b"], 1, judge)
        assert seeds.text.tolist() == ["w", "y"] and rest.text.tolist() == ["x", "z"]


@pytest.mark.parametrize("topics", [["a", "a"], [], ["a", "b", "a"]])
def test_a_topic_named_twice_is_refused(topics):
    passages = pd.DataFrame({"id": range(4), "text": list("wxyz"), "topic": list("aabb")})
    for some in (passages, passages.drop(columns="topic")):
        with pytest.raises(ValueError, match="topics must be distinct, one at least"):
            choose_seeds(some, topics, 1, Judge([[0.9, 0.1]] * 4))


def test_a_topic_that_the_scorer_lacks_and_passages_without_texts_are_refused():
    passages = pd.DataFrame({"id": range(4), "text": list("wxyz")})
    with pytest.raises(ValueError, match=r"topics must be labels of the scorer, \['a', 'b'\], got \['c'\]"):
        choose_seeds(passages, ["a", "c"], 1, Judge([[0.9, 0.1]] * 4))
    with pytest.raises(ValueError, match=r"passages must have the columns .* lacks \['text'\]"):
        choose_seeds(passages.drop(columns="text"), ["a"], 1, Judge([[0.9, 0.1]] * 4))


@pytest.mark.parametrize(
    "counts", [[[3, 1]], [3, 1], [[1, np.nan], [2, 3]], [[1, -3], [2, 3]], [[0.9, 0.1], [0.5, 0.5]]]
)
def test_entropy_production_of_what_is_no_square_of_counts_is_refused(counts):
    with pytest.raises(ValueError, match=r"counts must be (a square|whole numbers >= 0)"):
        entropy_production(counts)


def test_entropy_production_of_no_transition_is_refused():
    with pytest.raises(ValueError, match="needs a transition"):
        entropy_production(np.zeros((3, 3)))
