"""Traps: planted still periods, states, families and traps are found."""

import re

import numpy as np
import pandas as pd
import pytest
from conftest import TEXTS
from hypothesis import given
from hypothesis import strategies as st

from glauber_lib.chains import run_chains
from glauber_lib.exact import transition_matrix
from glauber_lib.instruments import Embedder
from glauber_lib.margins import escape_bound, score_gaps
from glauber_lib.models import TabularModel
from glauber_lib.paper.entries import read_entry, write_entry
from glauber_lib.readings import cosine_distance
from glauber_lib.stats import bootstrap_estimate
from glauber_lib.survival import median_survival
from glauber_lib.traces import Trace
from glauber_lib.traps import (
    LOOKED_AT,
    inside_runs,
    modal_state,
    occupied_runs,
    overlap_excess,
    still_runs,
    survey_traps,
    template_families,
)

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
@pytest.mark.slow
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


@pytest.mark.parametrize("stride", [301, 1_000])
def test_a_stride_above_the_window_is_refused(stride):
    steps, frozen = np.arange(0, 5 * stride + 1, stride), np.tile([1.0, 0.0], (6, 1))
    visits = np.array([[0, 0]]), np.array([0]), np.array([steps[-1]])
    with pytest.raises(ValueError, match=f"records are {stride} steps apart, a window has 300"):
        still_runs(frozen, steps, window=300)
    with pytest.raises(ValueError, match=f"records are {stride} steps apart, a window has 300"):
        occupied_runs(visits, steps, window=300)
    assert still_runs(frozen, steps, window=stride) == occupied_runs(visits, steps, window=stride) == [(0, steps[-1])]


@pytest.mark.parametrize("window", [0, -300, 12.5, np.nan, True])
def test_a_window_of_no_steps_is_refused(window):
    with pytest.raises(ValueError, match="window must be a whole number >= 1"):
        still_runs(np.ones((3, 1)), [0, 5, 10], window=window)


@pytest.mark.parametrize("steps", [[0, 5, 5], [5, 0, 10], [], [[0, 5, 10]], [0, 5]])
def test_records_that_are_no_path_are_refused(steps):
    with pytest.raises(ValueError, match=r"increasing list|one embedding for each"):
        still_runs(np.ones((3, 1)), steps, window=5)


def test_states_of_several_lengths_have_families():
    family, templates = template_families([(0, 1, 2), (0, 1), (0, 1, 2, 2, 2, 2), (0, 1)], threshold=0.4)
    assert family.tolist() == [0, 0, 1, 0]  # one of three sites apart, then four of six
    assert templates[0].tolist() == [0, 1, -1, -1, -1, -1]


def test_a_survey_leaves_out_what_fills_up_a_state():
    model = trap_model(depth=9.0)
    longer = np.array([[2, 2, 2], [2, 2, -1]])
    settings = np.array([0.5, 0.5]), 0, np.arange(2), np.zeros((2, 3), bool), np.full(2, -1)
    trace = Trace(longer, *np.zeros((5, 0), int), 900, *settings)

    class AnyLength(type(model)):
        def scores(self, states, sites):
            return super().scores(np.pad(states, ((0, 0), (0, 3 - np.shape(states)[1]))), sites)

    model.__class__ = AnyLength
    survey = survey_traps(model, trace, OneHot(), window=300, stride=25)
    assert sorted(survey.traps.text) == ["cc", "ccc"] and set(survey.traps.state) == {(2, 2), (2, 2, 2)}
    assert (survey.traps["type"][survey.traps.text == "ccc"] == "perfect").all()


@pytest.mark.parametrize("stride", [0, -1, 301, 2.5])
def test_a_survey_refuses_a_stride_of_no_use_before_anything_is_embedded(stride):
    trace = written_trace([], n_steps=900, initial=[2, 2, 2])
    with pytest.raises(ValueError, match=r"stride must be a whole number in 1\.\.300"):
        survey_traps(None, trace, None, stride=stride)


def test_a_survey_of_more_looks_than_memory_holds_is_refused_before_anything_is_made():
    trace = written_trace([], n_steps=10**12, initial=[2, 2, 2])
    with pytest.raises(
        ValueError, match=r"40000000001 looks at 1 chains of 3 tokens .* stride of (\d+) or more"
    ) as error:
        survey_traps(None, trace, None)
    stride = int(re.search(r"stride of (\d+)", str(error.value))[1])
    assert (10**12 // stride + 1) * 3 <= LOOKED_AT < (10**12 // (stride - 2) + 1) * 3


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
        return ["".join("abc"[v] for v in x if v >= 0) for x in np.asarray(states)]


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
    survey = survey_traps(model, trace, OneHot(), stride=25, window=300)
    assert len(survey.traps) == 1
    trap = survey.traps.iloc[0]
    assert (trap.text, trap.state, trap.type, trap.chain) == ("ccc", (2, 2, 2), "perfect", 0)
    # still windows start at 600, 625, ..., 1125: the last holds one record from after the exit, as above
    assert (trap.start, trap.duration) == (600, 1_125 - 600 + 25) and not trap.censored
    assert trap.holding == 801 and trap.share == pytest.approx((801 + 8) / 825)  # it comes by again 8 times
    np.testing.assert_allclose([trap.mean_gap, trap.min_gap], 3.0)
    np.testing.assert_allclose(score_gaps(model, [2, 2, 2]), 3.0)
    assert trap.escape == pytest.approx(1 - transition_matrix(model, 3, 0.5)[26, 26], rel=1e-5)
    assert trap.bound == pytest.approx(escape_bound(3.0, 0.5, 3))
    assert trap.escape <= trap.bound
    assert survey.trapped.tolist() == [22 / 69]  # of the windows from 0, 25, ..., 1700 those from 600 to 1125
    assert survey.looks.tolist() == list(range(0, 2_001, 25))
    assert survey.still.tolist() == [[600 <= look <= 1_125 + 300 for look in survey.looks]]


def test_a_still_run_shorter_than_the_least_duration_is_no_trap_but_its_windows_are_still():
    # still from step 300 to 650: windows from 300, ..., 350 hold no jump, some later ones one
    moves = [*wandering(0, 300), *wandering(650, 1_500)]
    trace = written_trace(moves, n_steps=1_500, initial=[0, 0, 0])
    short = survey_traps(trap_model(depth=3.0), trace, OneHot(), stride=25)
    assert len(short.traps) == 0 and not short.still.any() and 0 < short.windows.sum() < 6
    every = survey_traps(trap_model(depth=3.0), trace, OneHot(), stride=25, shortest=0)
    assert len(every.traps) == 1 and every.traps.duration[0] == 25 * every.windows.sum() < 150
    np.testing.assert_array_equal(every.windows, short.windows)
    assert every.trapped == short.trapped == every.windows.mean()


def test_the_overlap_of_independent_traps_is_that_of_chance():
    still, occupied = np.array([[1, 1, 0, 0]] * 6, bool), np.array([[1, 0, 1, 0]] * 6, bool)
    assert overlap_excess(still, occupied).value == pytest.approx(0)  # a quarter of the looks in both, three in either
    assert overlap_excess(still, still).value == pytest.approx(1 - (1 / 4) / (3 / 4))
    assert overlap_excess(still, ~still).value == pytest.approx(-1 / 3)
    assert overlap_excess(still & False, occupied & False).value == 0


@pytest.mark.slow
def test_intervals_of_thirty_trapped_chains_cover_in_500_draws():
    """Durations that a chain's traps share in part, cut off by the end of the run; kinds that a chain prefers."""
    rng, medians, shares, chances = np.random.default_rng(0), [], [], []
    large = np.random.default_rng(1)
    truth = np.median(large.gamma(2, 1, 400_000) * large.exponential(150, 400_000))
    for _ in range(500):
        chain = np.repeat(np.arange(30), rng.integers(1, 5, size=30))
        time = rng.gamma(2, 1, 30)[chain] * rng.exponential(150, len(chain))
        until = rng.uniform(300, 1_200, len(chain))
        options = {"groups": chain, "unit": "chains", "n_resamples": 200}
        low, high = bootstrap_estimate(
            np.minimum(time, until), time <= until, statistic=median_survival, **options
        ).interval
        medians.append(low <= truth <= high)
        low, high = bootstrap_estimate(rng.random(len(chain)) < rng.beta(2, 2, 30)[chain], **options).interval
        shares.append(low <= 0.5 <= high)
        level = rng.beta(4, 2, size=(2, 30, 1))
        low, high = overlap_excess(*(rng.random((2, 30, 50)) < level)).interval
        chances.append(low <= 0 <= high)
    assert 0.90 <= np.mean(medians) <= 0.98
    assert 0.90 <= np.mean(shares) <= 0.98
    assert 0.90 <= np.mean(chances) <= 0.985


def test_a_trap_at_the_end_is_censored_and_one_site_that_prefers_another_token_makes_it_approximate():
    log_joint = np.zeros((3, 3, 3))
    log_joint[0, 0, 0], log_joint[1, 0, 0] = 3.0, 4.0  # of 000 the first site would rather be 1
    trace = written_trace(wandering(0, 300), n_steps=1_000, initial=[0, 0, 0])
    trap = survey_traps(Speller.from_joint(log_joint), trace, OneHot(), stride=25).traps.iloc[0]
    assert trap.censored and (trap.start, trap.duration) == (300, 700 - 300 + 25)
    assert (trap.text, trap.type) == ("aaa", "approximate")
    np.testing.assert_allclose([trap.min_gap, trap.mean_gap], [-1, 5 / 3])


def test_a_chain_that_falls_into_a_deep_state_is_trapped_and_free_ones_are_not():
    model = trap_model(depth=12.0)
    trace = run_chains(model, np.zeros((4, 3), int), n_steps=1_500, temperature=[0.5, 0.5, 100.0, 100.0], seed=1)
    survey = survey_traps(model, trace, OneHot(), stride=25)
    table = survey.traps
    assert (survey.trapped[:2] > 0.5).all() and survey.trapped.tolist()[2:] == [0, 0] and not survey.still[2:].any()
    assert set(table.chain) == {0, 1} and set(table.text) == {"ccc"} and table.censored.all()
    assert table.duration.is_monotonic_decreasing


def test_no_trap_gives_an_empty_table_with_the_same_columns():
    model = Speller(np.zeros((3, 3, 3, 3)))
    free = survey_traps(model, run_chains(model, [[0, 0, 0]], n_steps=600), OneHot(), stride=25)
    stuck = survey_traps(model, written_trace([], n_steps=600, initial=[0, 0, 0]), OneHot(), stride=25)
    assert len(free.traps) == len(free.families) == 0 and free.trapped.tolist() == [0] and not free.still.any()
    assert stuck.trapped.tolist() == [1] and stuck.still.all() and stuck.occupied.all()
    assert list(free.traps.columns) == list(stuck.traps.columns)
    assert list(free.families.columns) == list(stuck.families.columns)


def test_a_run_shorter_than_a_window_has_no_trap():
    trace = written_trace([], n_steps=200, initial=[0, 0, 0])
    survey = survey_traps(Speller(np.zeros((3, 3, 3, 3))), trace, OneHot(), stride=25)
    assert len(survey.traps) == 0 and survey.trapped.tolist() == [0] and not survey.occupied.any()


def test_hopping_is_a_trap_in_state_space_alone():
    hops = [(step, 0, (step + 1) % 2) for step in range(0, 900)]  # 000 and 100: each hop a jump of the embedding
    survey = survey_traps(
        trap_model(depth=3.0), written_trace(hops, n_steps=900, initial=[0, 0, 0]), OneHot(), stride=25
    )
    assert survey.occupied.all() and not survey.still.any() and survey.trapped.tolist() == [0]


def test_traps_that_share_a_template_are_a_family_of_the_survey():
    # 222, then 022, which has two of three sites in common with it, then 001; the first site wanders in between
    moves = [*wandering(600, 900), (900, 0, 0), *wandering(1_500, 1_800), (1_800, 0, 0), (1_801, 1, 0), (1_802, 2, 1)]
    trace = written_trace(moves, n_steps=2_400, initial=[2, 2, 2])
    survey = survey_traps(trap_model(depth=3.0), trace, OneHot(), stride=25)
    assert survey.traps.set_index("text").family.to_dict() == {"ccc": 0, "acc": 0, "aab": 1}
    assert survey.traps.set_index("text").template.to_dict() == {"ccc": (-1, 2, 2), "acc": (-1, 2, 2), "aab": (0, 0, 1)}
    families = survey.families
    assert families[["traps", "chains", "states"]].to_numpy().tolist() == [[2, 1, 2], [1, 1, 1]]
    assert families.steps.sum() == survey.traps.duration.sum() and families.template[0] == (-1, 2, 2)


def test_a_survey_is_stored_and_read_again(tmp_path):
    model = trap_model(depth=12.0)
    trace = run_chains(model, np.zeros((2, 3), int), n_steps=900, temperature=[0.5, 100.0], seed=1)
    for survey in (survey_traps(model, trace, OneHot()), survey_traps(model, trace, OneHot(), threshold=-1.0)):
        write_entry(tmp_path / "survey", survey)
        again = read_entry(tmp_path / "survey")
        pd.testing.assert_frame_equal(again.traps, survey.traps)
        pd.testing.assert_frame_equal(again.families, survey.families)
        for name in ("looks", "still", "occupied", "windows"):
            np.testing.assert_array_equal(getattr(again, name), getattr(survey, name))


def test_a_tiny_language_model_s_frozen_chain_is_a_trap(tiny):
    model, embedder = tiny["bert"], Embedder()
    trace = run_chains(model, model.states(TEXTS[:1], n=5), n_steps=700, temperature=1e-4)
    table = survey_traps(model, trace, embedder).traps
    assert len(table) >= 1 and table.text.iloc[0] == model.texts(trace.final)[0]
    assert table.state.iloc[0] == tuple(trace.final[0].tolist())
    assert [model.texts([state])[0] for state in table.state] == list(table.text)


def test_a_threshold_that_is_no_number_finds_no_trap_by_silence():
    with pytest.raises(ValueError, match="threshold must be a number"):
        still_runs(np.tile([1.0, 0.0], (9, 1)), 50 * np.arange(9), window=100, threshold=np.nan)


def test_flags_and_shares_of_traps_are_checked(tiny):
    flags = np.array([[True, False, False], [False, True, True]])
    for still, occupied in (
        ([[np.nan, 0, 0], [0, 0, 0]], flags), (flags.astype(str), flags), (flags[:, :1], flags), (flags[0], flags[0])
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"must be true or false|same looks"):
            overlap_excess(still, occupied)
    visits = run_chains(tiny["bert"], [[3, 4, 5]], n_steps=12).visits(0)
    for share in (np.nan, 0.0, 90):
        with pytest.raises(ValueError, match="share must be above 0 and at most 1"):
            occupied_runs(visits, [0, 4, 8, 12], window=4, share=share)
    with pytest.raises(ValueError, match="shortest"):
        survey_traps(
            tiny["bert"], run_chains(tiny["bert"], [[3, 4, 5]], n_steps=12), None, window=4, stride=2, shortest=np.nan
        )
