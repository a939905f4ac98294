"""Stays, and times to leave a set, against planted traces and linear solves."""

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from conftest import Watched, random_table, systems
from hypothesis import given
from hypothesis import strategies as st

from glauber_lib import exact
from glauber_lib.escape import (
    basin_escape_times,
    calibrate_stays,
    held_sets,
    longest_stays,
    observed_stays,
    recurrent_states,
    regress_stays,
    time_count_escapes,
    time_escapes,
    time_stay,
)
from glauber_lib.margins import escape_probability
from glauber_lib.models import IsingModel, TabularModel, all_states
from glauber_lib.stats import poisson_interval
from glauber_lib.traces import Trace

# Stays ---------------------------------------------------------------------------------------------------------------


def planted_trace():
    """00 for 12 steps, 10 for 13, 11 for 3, 10 for 2 to the end."""
    moves = np.array([[11, 0, 0, 0, 1], [24, 0, 1, 0, 1], [27, 0, 1, 1, 0]]).T
    settings = (30, np.array([0.5]), 0, np.array([0]), np.zeros((1, 2), bool), np.array([-1]))
    return Trace(np.array([[0, 0]]), *moves, *settings)


def test_the_longest_stays_are_distinct_states_longest_first():
    stays = longest_stays(planted_trace(), 2)
    assert list(stays.state) == [(1, 0), (0, 0)] and list(stays.stay) == [13, 12]
    assert list(longest_stays(planted_trace(), 9).stay) == [13, 12, 3] and (stays.temperature == 0.5).all()


def test_recurrent_states_are_those_visited_again():
    assert recurrent_states(planted_trace(), 0, 0, 5).tolist() == [[1, 0]]
    assert recurrent_states(planted_trace(), 0, 25, 5).tolist() == []  # 10 is entered once after step 25


def test_what_holds_chains_are_their_longest_stays_and_then_their_recurrent_sets():
    found = held_sets(planted_trace(), n_states=2, basin_states=3)
    assert list(found.basin) == [((1, 0),), ((0, 0),)] and set(found.kind) == {"state"}
    # 00 and 10 in turn, in the second half as well: a set of two
    steps = np.arange(0, 30, 5)
    moves = np.array([[step, 0, 0, k % 2, 1 - k % 2] for k, step in enumerate(steps)]).T
    settings = (30, np.array([0.5]), 0, np.array([0]), np.zeros((1, 2), bool), np.array([-1]))
    found = held_sets(Trace(np.array([[0, 0]]), *moves, *settings), n_states=1, basin_states=3)
    assert list(found.kind) == ["state", "set"] and set(found.basin[1]) == {(0, 0), (1, 0)}
    assert list(found.chain) == [0, 0] and list(found.temperature) == [0.5, 0.5]


def test_observed_stays_count_the_steps_of_censored_chains():
    timed = pd.DataFrame({"set": [1, 1, 0, 0], "exposure": [10, 30, 50, 50], "left": [True, True, False, False]})
    table = observed_stays(timed, "set")
    assert list(table.index) == [0, 1] and list(table.chains) == [2, 2] and list(table.left) == [0, 2]
    low, high = poisson_interval(2)
    np.testing.assert_allclose(table.loc[1, ["observed", "low", "high"]].astype(float), [20, 40 / high, 40 / low])
    assert np.isnan(table.observed[0]) and table.high[0] == np.inf
    assert table.low[0] == pytest.approx(100 / -np.log(0.025))  # no exit in 100 steps


def test_a_timed_stay_carries_its_prediction():
    model, options = random_table(3, 2, spread=2.0), {"repeats": 20, "n_steps": 1_000, "seed": 3}
    basin = np.array([[0, 0, 0], [0, 0, 1], [0, 1, 1]])
    for states in (basin, basin[:1]):
        timed = time_stay(model, states, 0.8, **options)
        plain = time_escapes(model, states[0], states, 0.8, **options)
        pd.testing.assert_frame_equal(timed.drop(columns="escape"), plain)
        np.testing.assert_allclose(timed.escape, 1 / basin_escape_times(model, states, 0.8)[0], rtol=1e-9)


def test_timed_stays_last_as_long_as_the_exact_escape_probability_says():
    model, rows = random_table(2, 3, spread=3.0), []
    for temperature in (0.4, 0.8, 1.6):
        for state in all_states(3, 2):
            timed = time_escapes(model, state, [state], temperature, repeats=30, n_steps=500)
            rows.append(timed.assign(temperature=temperature, escape=escape_probability(model, state, temperature)))
    stays = pd.concat(rows, ignore_index=True)
    # exits are counted against the sum of their probabilities: a martingale, whose variance is at most that sum
    for _, group in stays.groupby("temperature"):
        expected = (group.escape * group.exposure).sum()
        assert abs(group.left.sum() - expected) < 4 * np.sqrt(expected)
    table = calibrate_stays(stays)
    assert table.stays.sum() == len(stays) and table.exits.sum() == stays.left.sum()
    assert (table.low <= table.observed).all() and (table.observed <= table.high).all()
    assert ((table.low < table.predicted) & (table.predicted < table.high)).mean() > 0.7
    assert table.predicted.max() > 3 * table.predicted.min()  # the groups do differ
    low, high = regress_stays(stays)["slope_interval"]
    assert low < 1 < high


def test_a_group_that_nobody_left_has_an_infinite_observed_stay():
    stays = pd.DataFrame({"escape": [0.01, 0.01], "exposure": [10, 20], "left": [False, False]})
    (row,) = calibrate_stays(stays).itertuples()
    assert (row.exits, row.observed, row.high) == (0, np.inf, np.inf)
    assert row.expected == pytest.approx(0.3) and row.predicted == pytest.approx(100)
    assert row.low == pytest.approx(30 / -np.log(0.025))  # no exit in 30 steps


@pytest.mark.parametrize("power", [1.0, 0.7])
def test_the_regression_finds_the_power_that_made_the_stays(power):
    rng = np.random.default_rng(0)
    escape = 10 ** -rng.uniform(1, 5, size=3_000)
    times = rng.geometric(escape**power)
    stays = pd.DataFrame({"escape": escape, "exposure": np.minimum(times, 3_000), "left": times <= 3_000})
    assert not stays.left.all()  # some are censored
    fit = regress_stays(stays)
    low, high = fit["slope_interval"]
    assert low < power < high and high - low < 0.1
    low, high = fit["ratio_interval"]
    assert low < fit["center"] ** (power - 1) < high and fit["ratio"] == pytest.approx(np.sqrt(low * high))
    assert 3 < fit["decades"] <= 4


def test_a_regression_without_exits_is_refused():
    stays = pd.DataFrame({"escape": [0.1, 0.01], "exposure": [10, 20], "left": [True, False]})
    with pytest.raises(ValueError, match="two different predicted"):
        regress_stays(stays)


def test_stays_of_unknown_length_or_end_are_not_left_out():
    stays = pd.DataFrame({"escape": [0.1, 0.01, 0.2], "exposure": [10.0, 20.0, 30.0], "left": [1, 1, 0], "k": 1})
    for wrong in ({"exposure": [10, np.nan, 30]}, {"exposure": [10, np.inf, 30]}, {"left": [1, np.nan, 0]}):
        for read in (calibrate_stays, regress_stays, lambda timed: observed_stays(timed, "k")):
            with pytest.raises(ValueError, match=r"every stay must have its exposure.* got 1 of 3 without"):
                read(stays.assign(**wrong))
    assert observed_stays(stays.assign(k=[1, np.nan, 1]), "k").chains.tolist() == [2, 1]


# Sets of states ----------------------------------------------------------------------------------------------------


@given(systems(), st.integers(1, 5), st.integers(0, 2**32))
def test_escape_times_of_a_set_are_those_of_the_whole_matrix(case, size, seed):
    model, n, temperature = case
    states = all_states(model.n_tokens, n)
    chosen = np.random.default_rng(seed).permutation(len(states))[: min(size, len(states) - 1)]
    expected = exact.escape_times(exact.transition_matrix(model, n, temperature), chosen)
    np.testing.assert_allclose(basin_escape_times(model, states[chosen], temperature), expected, rtol=1e-6)


def test_escape_time_of_one_state_is_the_inverse_of_its_probability_however_small():
    model = TabularModel([[[30.0, 30.0], [0.0, 0.0]], [[32.0, 0.0], [32.0, 0.0]]])
    (time,) = basin_escape_times(model, [[0, 0]], 0.5)
    assert time == pytest.approx(1 / escape_probability(model, [0, 0], 0.5)) and time > 1e25


def deep_pair(depth):
    """Two states, 00 and 01, that a chain hops between; both prefer token 0 at site 0 by `depth`."""
    table = np.zeros((2, 2, 2))
    table[0, 0] = depth
    return TabularModel(table)


@pytest.mark.parametrize("depth", [5.0, 40.0, 300.0, 700.0])
def test_the_time_to_leave_a_set_is_exact_however_much_slower_than_its_moves(depth):
    # site 0 is chosen every second step, and leaves with chance 1 / (1 + e^depth) from either state
    times = basin_escape_times(deep_pair(depth), [[0, 0], [0, 1]], 1.0)
    np.testing.assert_allclose(times, 2 * (1 + np.exp(depth)), rtol=1e-12)


def test_a_time_beyond_float64_is_infinite_and_its_prediction_is_refused_by_name():
    model, basin = deep_pair(800.0), np.array([[0, 0], [0, 1]])
    assert np.isinf(basin_escape_times(model, basin, 1.0)).all()
    timed = time_stay(model, basin, 1.0, repeats=2, n_steps=20)
    assert (timed.escape == 0).all() and not timed.left.any()
    for read in (calibrate_stays, regress_stays):
        with pytest.raises(ValueError, match=r"must lie in \(0, 1\], got 0.0\.\.0.0"):
            read(timed)


def test_a_set_that_is_never_left_is_said_so():
    table = np.zeros((2, 2, 2))
    table[0, 1] = -np.inf
    with pytest.raises(ValueError, match="never left: every other token has no chance"):
        basin_escape_times(TabularModel(table), [[0, 0], [0, 1]], 1.0)


def test_a_start_outside_the_set_is_refused():
    with pytest.raises(ValueError, match=r"start must be a state of the basin, got \[1, 1\]"):
        time_escapes(random_table(2, 2), [1, 1], [[0, 0]], 1.0, repeats=2, n_steps=5)


def test_a_basin_with_a_state_twice_is_refused():
    with pytest.raises(ValueError, match="distinct"):
        basin_escape_times(random_table(2, 2), [[0, 0], [0, 0]], 1.0)


@pytest.mark.parametrize("holding", ["path", "geometric"])
def test_timed_escapes_have_the_mean_of_the_linear_solve(holding):
    model = random_table(3, 2, spread=2.0)
    basin = np.array([[0, 0, 0], [0, 0, 1], [0, 1, 1]])
    expected = basin_escape_times(model, basin, 0.8)[1]
    timed = time_escapes(model, basin[1], basin, 0.8, repeats=1_000, n_steps=100_000, seed=3, holding=holding)
    assert timed.left.all()
    assert abs(timed.exposure.mean() - expected) < 4 * timed.exposure.std() / np.sqrt(1_000)


def test_a_budget_censors_timed_escapes():
    model = IsingModel([[0.0, 9.0], [9.0, 0.0]])
    timed = time_escapes(model, [0, 0], [[0, 0]], 0.5, repeats=3, n_steps=50)
    assert not timed.left.any() and (timed.exposure == 50).all()


@pytest.mark.parametrize("count", [0, 1, 7, 40])
def test_poisson_interval_leaves_a_fortieth_on_either_side(count):
    low, high = poisson_interval(count)
    assert scipy.stats.poisson.cdf(count, high) == pytest.approx(0.025)
    assert low == 0 if count == 0 else scipy.stats.poisson.sf(count - 1, low) == pytest.approx(0.025)


# Interruption --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("holding", ["path", "geometric"])
def test_timed_escapes_that_were_interrupted_give_no_result_and_go_on(holding, tmp_path):
    model, file = random_table(3, 3), tmp_path / "escapes.npz"
    options = {"repeats": 6, "n_steps": 60, "holding": holding}
    whole = time_count_escapes(model, np.zeros(3, int), 0, 0, 1.0, **options)
    with pytest.raises(KeyboardInterrupt):
        time_count_escapes(Watched(model, at=7), np.zeros(3, int), 0, 0, 1.0, checkpoint=file, **options)
    again = time_count_escapes(model, np.zeros(3, int), 0, 0, 1.0, checkpoint=file, **options)
    assert again.equals(whole) and whole.left.any()
