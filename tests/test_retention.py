"""Durations of traps and their ranks, against planted paths, simulated lives and exact times."""

import dataclasses

import numpy as np
import pytest
from conftest import Watched, random_table

from glauber_lib.chains import run_chains
from glauber_lib.models import TabularModel, all_states
from glauber_lib.retention import (
    _last_return,
    duration_factor,
    exit_ratio,
    find_traps,
    held_longest,
    rank_concordance,
    time_traps,
)
from glauber_lib.stats import bootstrap_interval
from glauber_lib.trapping import GrownSet, grow_sets


def wells():
    """Two tokens, six sites: all sites alike is deep, everything between is flat."""
    ones = all_states(2, 6).sum(1)
    return TabularModel.from_joint((9.0 * ((ones == 0) | (ones == 6))).reshape((2,) * 6))


def test_a_planted_trap_is_found_by_its_modal_state():
    trace = run_chains(wells(), np.zeros((2, 6), int), n_steps=2_000, seed=1)
    found = find_traps(trace, per_chain=3)
    assert found.state[0] == (0,) * 6 and found.found[0] >= 300 and found.chain[0] == 0
    assert not found.duplicated(["temperature", "state"]).any()  # the second chain's same state is left out


def test_a_run_of_more_windows_than_can_be_listed_is_refused():
    trace = dataclasses.replace(run_chains(wells(), np.zeros((1, 6), int), n_steps=400), n_steps=10**12)
    with pytest.raises(ValueError, match="take a stride of 14902 or more"):
        find_traps(trace)
    with pytest.raises(ValueError, match="take a stride of 14902 or more"):
        time_traps(
            Watched(wells(), at=1), grow_sets(wells(), [[0] * 6], 1.0, cap=2), 1.0, repeats=1, n_steps=10**12, seed=1
        )


def test_the_state_held_longest_is_the_well():
    held = held_longest(run_chains(wells(), np.zeros((2, 6), int), n_steps=2_000, seed=1))
    assert held.chain.tolist() == [0, 1] and held.state[0] == (0,) * 6 and 300 < held.found[0] <= 2_000


def test_durations_from_a_well_are_those_of_its_windows():
    model = wells()
    sets = grow_sets(model, [[0] * 6], 1.0, cap=1)
    timed = time_traps(model, sets, 1.0, repeats=40, n_steps=3_000, seed=2)
    assert (timed.trap == 0).all() and len(timed) == 40
    assert (timed.in_set <= timed.returned).all() and (timed.left | (timed.in_set == 3_000)).all()
    assert timed.duration.between(0, 3_000 - 300 + 50).all()
    assert (timed.ended | (timed.duration == 3_000 - 300 + 50)).all()
    # a state with escape probability p: the mean of the first move, censored moves included
    rate = timed.left.sum() / timed.in_set.sum()
    assert rate == pytest.approx(1 / sets[0].time, rel=0.6)


def test_traps_whose_timing_was_interrupted_give_no_result_and_go_on(tmp_path):
    model, file = wells(), tmp_path / "traps.npz"
    sets = grow_sets(model, [[0] * 6], 1.0, cap=1)
    options = {"repeats": 5, "n_steps": 900, "seed": 2}
    whole = time_traps(model, sets, 1.0, **options)
    with pytest.raises(KeyboardInterrupt):
        time_traps(Watched(model, at=7), sets, 1.0, checkpoint=file, **options)
    watched = Watched(model)
    assert time_traps(watched, sets, 1.0, checkpoint=file, **options).equals(whole)
    assert file.exists() and time_traps(model, sets, 1.0, checkpoint=file, **options).equals(whole)


def test_the_last_return_is_that_before_the_first_long_absence():
    # in the first state during 0-10 and 15-40, away for 50 steps, back during 90-95, away to 100
    states = np.array([[0], [1], [0], [1], [0], [1]])
    entered, steps = np.array([0, 10, 15, 40, 90, 95]), np.array([10, 5, 25, 50, 5, 5])
    assert _last_return(states, entered, steps, 50) == {"returned": 40, "gone": True}
    assert _last_return(states, entered, steps, 5) == {"returned": 10, "gone": True}
    assert _last_return(states, entered, steps, 51) == {"returned": 95, "gone": False}


def test_exits_from_a_grown_set_have_its_exact_rate():
    model = random_table(3, 3, spread=3.0)
    sets = grow_sets(model, all_states(3, 3)[[4, 13]], 0.8, cap=4, tolerance=0.0)
    timed = time_traps(model, sets, 0.8, repeats=150, n_steps=1_500, stride=20, window=40, seed=5)
    for trap, grown in enumerate(sets):
        mine = timed[timed.trap == trap]
        assert mine.left.all() and abs(mine.in_set.mean() - grown.time) < 4 * mine.in_set.std() / np.sqrt(150)


def test_concordance_is_somers_d_where_nothing_is_censored():
    x, t = np.array([1.0, 2.0, 3.0, 4.0]), np.array([5.0, 1.0, 7.0, 9.0])
    every, trap = np.ones(4, bool), np.arange(4)
    assert rank_concordance(x, t, every, trap) == pytest.approx((5 - 1) / 6)
    assert rank_concordance(t, t, every, trap) == 1 and rank_concordance(-t, t, every, trap) == -1
    assert rank_concordance(np.ones(4), t, every, trap) == 0
    assert np.isnan(rank_concordance(x, t, every, np.zeros(4)))  # one trap has no pair


def test_concordance_orders_only_the_pairs_that_censoring_leaves():
    # the second chain is censored at 3: it outlives 1 and 3, and nothing is known of it and 7
    t, ended = np.array([1.0, 3.0, 7.0, 3.0]), np.array([True, False, True, True])
    x = np.array([0.0, 5.0, 2.0, 1.0])
    pairs = [(0, 1), (0, 2), (0, 3), (3, 1), (3, 2)]
    expected = np.mean([np.sign(x[b] - x[a]) for a, b in pairs])
    assert rank_concordance(x, t, ended, np.arange(4)) == pytest.approx(expected)


def test_concordance_of_exponential_lives_is_known_and_censoring_does_not_bias_it():
    # lives of means m and 4m: the longer-lived one outlives the other with chance 4/5, so D = 3/5
    rng = np.random.default_rng(0)
    trap = np.repeat(np.arange(200), 4)
    mean = np.where(trap % 2, 4.0, 1.0)
    life = mean * rng.exponential(size=len(trap))
    different = lambda end: rank_concordance(mean, np.minimum(life, end), life <= end, trap % 2)  # noqa: E731
    assert different(np.inf) == pytest.approx(0.6, abs=0.06)
    assert different(1.0) == pytest.approx(0.6, abs=0.09)  # proportional hazards: no time changes it


def simulated_lives(rng, ratio, *, traps=30, repeats=3, budget=2_000):
    """Exponential durations of means `ratio` times what is predicted, censored; and their predictions and traps."""
    predicted = np.repeat(np.exp(rng.uniform(4, 10, size=traps)), repeats)
    life = ratio * predicted * rng.exponential(size=len(predicted))
    return np.ceil(life).clip(max=budget), life <= budget, predicted, np.repeat(np.arange(traps), repeats)


@pytest.mark.parametrize("ratio", [0.5, 1.0, 2.0])
def test_the_factor_recovers_a_planted_one_under_censoring(ratio):
    duration, ended, predicted, _ = simulated_lives(np.random.default_rng(1), ratio, traps=2_000)
    assert 0.2 < 1 - ended.mean() < 0.8
    assert duration_factor(duration, ended, predicted) == pytest.approx(ratio, rel=0.08)


def test_a_factor_of_durations_that_mostly_go_on_is_infinite():
    assert duration_factor([10, 20, 30], [True, False, False], [10, 10, 10]) == np.inf


@pytest.mark.slow
def test_intervals_of_factor_and_ranks_cover_at_the_number_of_chains_in_use():
    rng, hits = np.random.default_rng(2), np.zeros(2)
    duration, ended, predicted, trap = simulated_lives(np.random.default_rng(3), 1.0, traps=3_000, repeats=1)
    truth = 1.0, rank_concordance(predicted, duration, ended, trap)
    for _ in range(500):
        duration, ended, predicted, trap = simulated_lives(rng, 1.0)
        options = {"groups": trap, "n_resamples": 200}
        low, high = bootstrap_interval(duration, ended, predicted, statistic=duration_factor, **options)
        hits[0] += low <= truth[0] <= high
        low, high = bootstrap_interval(predicted, duration, ended, trap, statistic=rank_concordance, **options)
        hits[1] += low <= truth[1] <= high
    assert ((hits / 500 >= 0.90) & (hits / 500 <= 0.98)).all(), hits / 500


def test_exit_ratios_cover_one():
    rng, hits = np.random.default_rng(4), 0
    for _ in range(500):
        duration, ended, predicted, _ = simulated_lives(rng, 1.0)
        interval = exit_ratio(duration, ended, predicted).interval
        assert interval is not None
        hits += interval[0] <= 1 <= interval[1]
    assert 0.90 <= hits / 500 <= 0.99


def test_a_set_is_named_by_its_first_state():
    grown = GrownSet(np.zeros((2, 3), int), np.array([1, 2]), np.array([5.0, 7.0]), True)
    assert grown.time == 7.0


def test_a_run_shorter_than_a_window_is_refused():
    with pytest.raises(ValueError, match="a run of 200 steps has no window of 300"):
        find_traps(run_chains(wells(), np.zeros((1, 6), int), n_steps=200))
    with pytest.raises(ValueError, match="n_steps must be a whole number >= 300"):
        time_traps(wells(), grow_sets(wells(), [[0] * 6], 1.0, cap=1), 1.0, repeats=2, n_steps=299, seed=1)


@pytest.mark.parametrize(
    "row", [(np.nan, 1.0, True, "b"), (1.0, np.nan, True, "b"), (1.0, 1.0, np.nan, "b"), (1.0, 1.0, True, None)]
)
def test_a_rank_of_what_is_missing_is_refused(row):
    with pytest.raises(ValueError, match=r"ended must be|trap must hold|need a prediction"):
        rank_concordance(*map(list, zip((2.0, 2.0, True, "a"), row, strict=True)))


def test_a_factor_of_no_duration_is_unknown_and_one_over_nothing_is_refused():
    assert np.isnan(duration_factor([], [], []))
    for duration, predicted in (([5], [0]), ([5], [np.nan]), ([np.nan], [5]), ([-1], [5])):
        with pytest.raises(ValueError, match="predicted ones above zero"):
            duration_factor(duration, [True], predicted)


@pytest.mark.parametrize(
    ("steps", "left", "predicted"),
    [([5, 5], [1, 0], [np.inf, np.inf]), ([np.inf, 5], [1, 0], [3, 3]), ([5, 5], [1, 0], [0, 3]), ([], [], []),
     ([5, 5], [1, 0], [np.nan, 3]), ([5, 5], [1, 2], [3, 3]), ([5, 5], [1], [3, 3]), ([0, 0], [0, 0], [3, 3])],
)  # fmt: skip
def test_a_ratio_of_exits_without_expected_ones_is_refused(steps, left, predicted):
    with pytest.raises(ValueError, match=r"expected exits|must be finite|one row for each chain"):
        exit_ratio(steps, left, predicted)


def test_no_exit_is_expected_of_a_set_that_cannot_be_left():
    assert exit_ratio([5, 5], [1, 0], [2.5, np.inf]).value == pytest.approx(1 / 2)


def test_a_grown_set_of_any_integer_type_holds_its_states():
    (grown,) = grow_sets(wells(), [[0] * 6], 1.0, cap=8)
    short = dataclasses.replace(grown, states=grown.states.astype(np.int32))
    times = [time_traps(wells(), [own], 1.0, repeats=2, n_steps=400, seed=3) for own in (grown, short)]
    assert times[0].equals(times[1]) and times[0].in_set.max() > 0


def test_durations_and_predictions_are_of_the_same_chains():
    with pytest.raises(ValueError, match="one row for each chain"):
        duration_factor([5.0], [True] * 3, [1.0, 2.0, 3.0])


def test_chains_that_were_stopped_are_no_stays():
    options = {"n_steps": 2_000, "temperature": 5.0, "until": lambda states: states.sum(1) > 0, "seed": 2}
    trace = run_chains(wells(), np.zeros((2, 6), int), **options)
    assert (trace.stopped >= 0).all()
    for read in (find_traps, held_longest):
        with pytest.raises(ValueError, match="was stopped after"):
            read(trace)
