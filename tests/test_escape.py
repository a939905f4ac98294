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
    observed_stays,
    time_count_escapes,
    time_escapes,
)
from glauber_lib.margins import basin_escape_times, escape_probability
from glauber_lib.models import IsingModel, TabularModel, all_states
from glauber_lib.stats import poisson_interval


def test_observed_stays_count_the_steps_of_censored_chains():
    timed = pd.DataFrame({"set": [1, 1, 0, 0], "exposure": [10, 30, 50, 50], "left": [True, True, False, False]})
    table = observed_stays(timed, "set")
    assert list(table.index) == [0, 1] and list(table.chains) == [2, 2] and list(table.left) == [0, 2]
    low, high = poisson_interval(2)
    np.testing.assert_allclose(table.loc[1, ["observed", "low", "high"]].astype(float), [20, 40 / high, 40 / low])
    assert np.isnan(table.observed[0]) and table.high[0] == np.inf
    assert table.low[0] == pytest.approx(100 / -np.log(0.025))  # no exit in 100 steps


def test_stays_of_unknown_length_or_end_are_not_left_out():
    stays = pd.DataFrame({"exposure": [10.0, 20.0, 30.0], "left": [1, 1, 0], "k": 1})
    for wrong in ({"exposure": [10, np.nan, 30]}, {"exposure": [10, np.inf, 30]}, {"left": [1, np.nan, 0]}):
        with pytest.raises(ValueError, match=r"every stay must have its exposure.* got 1 of 3 without"):
            observed_stays(stays.assign(**wrong), "k")
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


def test_a_time_beyond_float64_is_infinite():
    assert np.isinf(basin_escape_times(deep_pair(800.0), [[0, 0], [0, 1]], 1.0)).all()


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


def test_a_checkpoint_of_another_basin_or_floor_is_refused(tmp_path):
    model, states, options = random_table(3, 3), all_states(3, 3), {"repeats": 4, "n_steps": 1_000, "seed": 1}
    basin, count = tmp_path / "basin.npz", tmp_path / "count.npz"
    first = time_escapes(model, states[0], states[:2], 1.0, checkpoint=basin, **options)
    again = time_escapes(model, states[0], states[[1, 0]], 1.0, checkpoint=basin, **options)  # the same set
    assert again.equals(first)
    with pytest.raises(ValueError, match=r"of another run \(condition\)"):
        time_escapes(model, states[0], states[:20], 1.0, checkpoint=basin, **options)
    time_count_escapes(model, states[0], 0, 2, 1.0, checkpoint=count, **options)
    with pytest.raises(ValueError, match=r"of another run \(condition\)"):
        time_count_escapes(model, states[0], 0, 0, 1.0, checkpoint=count, **options)
    with pytest.raises(ValueError, match=r"of another run \(condition\)"):
        time_escapes(model, states[0], states[:2], 1.0, checkpoint=count, **{**options, "holding": "geometric"})


def test_chains_that_are_timed_have_the_seed_zero_unless_another_is_named():
    model, states = random_table(3, 3), all_states(3, 3)
    for time, options in ((time_escapes, (states[:2], 1.0)), (time_count_escapes, (0, 0, 1.0))):
        first, again, other = (
            time(model, states[0], *options, repeats=9, n_steps=500, **seed) for seed in ({}, {"seed": 0}, {"seed": 1})
        )
        assert first.equals(again) and not first.equals(other)


@pytest.mark.parametrize("n", [2, 3])
def test_a_floor_that_no_count_is_above_is_refused(n):
    options = {"repeats": 2, "n_steps": 1}
    assert len(time_count_escapes(random_table(n, 2), [0] * n, 0, n - 1, 1.0, **options)) == 2
    with pytest.raises(ValueError, match=f"floor must be a whole number in 0..{n - 1}, got {n}"):
        time_count_escapes(random_table(n, 2), [0] * n, 0, n, 1.0, **options)
