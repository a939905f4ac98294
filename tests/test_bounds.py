"""Influence, thresholds, margins, escape and drift against enumeration."""

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from conftest import codes, fit, random_ising, random_table
from hypothesis import given, settings
from hypothesis import strategies as st
from test_chains import Watched

from glauber_lib import checkpoints, exact
from glauber_lib.couplings import coalesce
from glauber_lib.drift import birth_death_time, scan_drift, states_with_count, token_drift
from glauber_lib.escape import (
    basin_escape_times,
    calibrate_stays,
    escape_bound,
    escape_probability,
    log_pseudo_likelihood,
    longest_stays,
    mixing_lower_bound,
    recurrent_states,
    regress_stays,
    score_gaps,
    time_count_escapes,
    time_escapes,
)
from glauber_lib.influence import (
    column_influence,
    contraction_bound,
    contraction_norms,
    measure_influence,
    replacement_tokens,
    search_influence,
    sufficient_temperature,
    threshold,
)
from glauber_lib.models import IsingModel, TabularModel, all_states
from glauber_lib.stats import poisson_interval
from glauber_lib.traces import Trace


def full_influence(model, n, temperatures):
    """`measure_influence` over every context and every replacement: the suprema themselves."""
    contexts = all_states(model.n_tokens, n)
    others = (contexts[..., None] + np.arange(1, model.n_tokens)) % model.n_tokens
    return measure_influence(model, contexts, others, temperatures)


@st.composite
def systems(draw, *, n_sites=(2, 3), spreads=(0.1, 1.0, 10.0)):
    """A random tabular model, its number of sites, a temperature."""
    n, n_tokens = draw(st.integers(*n_sites)), draw(st.integers(2, 3))
    model = random_table(n, n_tokens, seed=draw(st.integers(0, 2**32)), spread=draw(st.sampled_from(spreads)))
    return model, n, draw(st.sampled_from([0.3, 1.0, 4.0]))


# Influence ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_influence_of_two_spins_is_a_hyperbolic_tangent(temperature):
    influence = full_influence(IsingModel([[0.0, 0.8], [0.8, 0.0]]), 2, [temperature])
    np.testing.assert_allclose(influence.maximum[0], np.tanh(0.8 / temperature) * (1 - np.eye(2)), atol=1e-12)
    np.testing.assert_allclose(influence.oscillation, 4 * 0.8 * (1 - np.eye(2)), atol=1e-12)


def test_influence_of_spins_is_the_largest_change_of_a_flip_probability():
    model, temperature = random_ising(4), 0.7
    couplings, field, spins = model.couplings.numpy(), model.field.numpy(), 2 * all_states(2, 4) - 1
    up = lambda local: 1 / (1 + np.exp(-2 * local / temperature))  # noqa: E731
    expected = np.zeros((4, 4))
    average = np.zeros((4, 4))
    for i in range(4):
        for j in {0, 1, 2, 3} - {i}:
            rest = np.delete(spins, j, axis=1) @ np.delete(couplings[i], j) + field[i]  # couplings[i, i] = 0
            change = np.abs(up(rest + couplings[i, j]) - up(rest - couplings[i, j]))
            expected[i, j], average[i, j] = change.max(), change.mean()
    influence = full_influence(model, 4, [temperature])
    np.testing.assert_allclose(influence.maximum[0], expected, atol=1e-12)
    np.testing.assert_allclose(influence.average[0], average, atol=1e-12)


def test_influence_is_that_of_j_on_i():
    table = np.zeros((2, 2, 2))
    table[0] = [[0, 2.0], [1.0, 0]]  # site 0 listens to site 1, site 1 to nobody
    maximum = full_influence(TabularModel(table), 2, [1.0]).maximum[0]
    assert maximum[0, 1] > 0.1 and maximum[1, 0] == 0


def test_influence_over_fewer_contexts_is_a_lower_bound():
    model, contexts = random_table(3, 3), all_states(3, 3)
    whole = full_influence(model, 3, [1.0])
    part = measure_influence(model, contexts[:4], (contexts[:4, :, None] + 1) % 3, [1.0])
    assert (part.maximum <= whole.maximum + 1e-15).all() and (part.maximum < whole.maximum - 1e-3).any()
    assert (part.oscillation <= whole.oscillation + 1e-15).all()
    assert (part.n_pairs, whole.n_pairs) == (4, 54)


@given(systems(n_sites=(2, 2)))
@settings(max_examples=200)
def test_total_variation_is_below_the_hyperbolic_tangent_of_the_oscillation(case):
    model, n, temperature = case
    influence = full_influence(model, n, [temperature])
    points = influence.points
    assert len(points) > 0 and (points.temperature == temperature).all() and influence.excess <= 1e-12
    assert (points.tv <= np.tanh(points.delta / (4 * temperature)) + 1e-12).all()
    assert (influence.maximum[0] <= np.tanh(influence.oscillation / (4 * temperature)) + 1e-12).all()


def test_the_hyperbolic_tangent_is_attained_by_two_tokens_in_balance():
    # scores +-1 against -+1: laws (s, 1 - s) and (1 - s, s)
    table = np.zeros((2, 2, 2))
    table[0] = [[1.0, -1.0], [-1.0, 1.0]]
    points = full_influence(TabularModel(table), 2, [1.0]).points
    assert points.tv.max() == pytest.approx(np.tanh(points.delta.max() / 4), abs=1e-12)
    assert points.delta.max() == pytest.approx(4)


@given(systems(spreads=(0.1, 1.0)))
@settings(max_examples=10)
def test_above_the_sufficient_temperature_the_chain_contracts(case):
    model, n, _ = case
    temperature = 1.001 * sufficient_temperature(full_influence(model, n, [1.0]).oscillation)
    assert full_influence(model, n, [temperature]).maximum[0].sum(0).max() < 1


def test_replacements_are_the_best_predictions_and_random_tokens_but_never_the_own():
    scores = np.array([0.0, 5.0, 1.0, 4.0, 3.0])
    model = TabularModel.from_joint(scores[:, None] + scores)
    contexts = np.array([[0, 1], [3, 4], [2, 2]])
    tokens = replacement_tokens(model, contexts, 4)
    assert tokens.shape == (3, 2, 4)
    np.testing.assert_array_equal(tokens[..., :2], [[[1, 3], [3, 4]], [[1, 4], [1, 3]], [[1, 3], [1, 3]]])
    many = replacement_tokens(model, np.repeat(contexts, 500, axis=0), 1)[..., 0].reshape(3, 500, 2)
    for k, i in np.ndindex(3, 2):
        others = np.arange(5) != contexts[k, i]
        assert fit(np.bincount(many[k, :, i], minlength=5), others / 4) > 1e-3


@pytest.mark.parametrize("climb", [True, False])
@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_a_search_finds_the_supremum_of_a_small_system_and_never_passes_it(climb, temperature):
    model, contexts = random_table(3, 3, seed=4), all_states(3, 3)
    states = all_states(3, 3)
    for site in range(3):
        exact_best = max(
            column_influence(model, x[None], y[None], site, temperature)[0]
            for x in states
            for y in states
            if (np.flatnonzero(x != y) == [site]).all() and (x != y).any()
        )
        best, x, y = search_influence(
            model, contexts, site, temperature, rounds=120, candidates=4, climb=climb, seed=1
        )
        assert (np.diff(best) >= 0).all() and len(best) == 120
        assert column_influence(model, x[None], y[None], site, temperature)[0] == pytest.approx(best[-1])
        assert (x != y).sum() == 1 and x[site] != y[site]
        if climb:
            assert best[-1] == pytest.approx(exact_best)
        else:
            assert best[-1] <= exact_best + 1e-12


def test_a_column_of_influence_is_the_sum_over_the_other_sites():
    model, x, y = random_table(3, 3), np.array([[0, 1, 2]]), np.array([[0, 2, 2]])
    influence = measure_influence(model, x, np.full((1, 3, 1), 2), [0.7])  # at site 2 nothing changes
    assert column_influence(model, x, y, 1, 0.7)[0] == pytest.approx(influence.maximum[0, :, 1].sum())


def test_the_maximum_is_taken_over_contexts():
    model, contexts = random_table(3, 3), all_states(3, 3)[:5]
    others = (contexts[..., None] + 1) % 3
    whole = measure_influence(model, contexts, others, [0.5, 1.0])
    for k in range(5):
        alone = measure_influence(model, contexts[[k]], others[[k]], [0.5, 1.0])
        np.testing.assert_allclose(whole.by_context[k], alone.maximum, atol=1e-15)
    np.testing.assert_array_equal(whole.maximum, whole.by_context.max(0))


# Contraction -------------------------------------------------------------------------------------------------------


def expected_distance(model, n, temperature):
    """Hamming distance of every pair of states, and its mean after one maximally coupled step at a common site."""
    laws, states = exact.conditional_laws(model, n, temperature), all_states(model.n_tokens, n)
    apart = states[:, None] != states[None]  # (S, S, n)
    tv = 0.5 * np.abs(laws[:, :, None] - laws[:, None]).sum(-1)  # (n, S, S)
    before = apart.sum(-1)
    return before, before + (np.moveaxis(tv, 0, -1) - apart).mean(-1)


@given(systems(spreads=(0.1, 0.5, 2.0)))
@settings(max_examples=25)
def test_one_coupled_step_contracts_as_the_theorem_says(case):
    model, n, temperature = case
    alpha = contraction_norms(full_influence(model, n, [temperature]).maximum[0])["alpha"]
    before, after = expected_distance(model, n, temperature)
    assert (after <= (1 - (1 - alpha) / n) * before + 1e-12).all()


def test_a_coupled_step_of_the_library_has_the_enumerated_distance():
    model, x, y = random_table(3, 3), [0, 1, 2], [0, 2, 1]
    run = coalesce(model, [x] * 20_000, [y] * 20_000, n_steps=1)
    _, after = expected_distance(model, 3, 1.0)
    distance = run.hamming[1]
    expected = after[codes(np.array(x), 3), codes(np.array(y), 3)]
    assert abs(distance.mean() - expected) < 4 * distance.std() / np.sqrt(20_000)


@given(systems(spreads=(0.1, 0.3)))
@settings(max_examples=15)
def test_contraction_bounds_the_mixing_time(case):
    model, n, temperature = case
    alpha = full_influence(model, n, [temperature]).maximum[0].sum(0).max()
    assert exact.mixing_time(exact.transition_matrix(model, n, temperature)) <= contraction_bound(alpha, n)


def test_contraction_bound_by_hand():
    assert contraction_bound(0.5, 10) == 74  # 20 log 40 = 73.8
    assert contraction_bound(0.0, 4, epsilon=0.01) == 24  # 4 log 400 = 23.97
    assert contraction_bound(1.0, 10) == contraction_bound(1.5, 10) == np.inf


def test_contraction_norms_of_a_known_matrix():
    norms = contraction_norms(np.array([[0, 3.0, 4.0], [0, 0, 0], [0, 0, 0]]))
    assert norms == pytest.approx({"alpha": 4, "row sum": 7, "spectral norm": 5, "spectral radius": 0}, abs=1e-12)
    norms = contraction_norms(np.array([[0, 0.9], [0.4, 0]]))
    assert norms["spectral radius"] == pytest.approx(0.6)


def test_threshold_is_interpolated_in_log_temperature():
    assert threshold([1, 4], [1.5, 0.5]) == pytest.approx(2)
    assert threshold([4, 1, 16], [1.25, 3.0, 0.75]) == pytest.approx(8)  # any order
    assert threshold([1, 2, 4, 8], [0.5, 1.5, 0.5, 0.2]) == pytest.approx(np.sqrt(8))  # the last crossing counts
    assert np.isnan(threshold([1, 2], [0.9, 0.5])) and np.isnan(threshold([1, 2], [2.0, 1.0]))  # off the grid


# Margins and escape ------------------------------------------------------------------------------------------------


def test_gaps_are_the_token_s_lead_over_the_best_other(system):
    for state in all_states(system.model.n_tokens, system.n)[::7]:
        for site, gap in enumerate(score_gaps(system.model, state)):
            scores = np.asarray(system.model.scores(state[None], np.array([site]))[0], float)
            assert gap == pytest.approx(scores[state[site]] - np.delete(scores, state[site]).max(), abs=2e-5)


def test_escape_probability_is_that_of_the_transition_matrix(system):
    for temperature in (0.3, 1.0, 4.0):
        matrix = exact.transition_matrix(system.model, system.n, temperature)
        for k, state in list(enumerate(all_states(system.model.n_tokens, system.n)))[::9]:
            exact_one = 1 - matrix[k, k]
            assert escape_probability(system.model, state, temperature) == pytest.approx(exact_one, abs=1e-6)


def test_the_pseudo_likelihood_is_the_product_of_the_enumerated_conditionals(system):
    states = all_states(system.model.n_tokens, system.n)
    laws = exact.conditional_laws(system.model, system.n)
    every = np.arange(len(states))
    expected = sum(np.log(law[every, states[:, i]]) for i, law in enumerate(laws))
    found = log_pseudo_likelihood(system.model, states)
    np.testing.assert_allclose(found, expected, atol=1e-4)
    weights = np.exp(found - found.max())
    np.testing.assert_allclose(weights / weights.sum(), exact.pseudo_likelihood(system.model, system.n), atol=1e-4)


def test_the_pseudo_likelihood_of_a_language_model_is_summed_site_by_site(masked_lm):
    states = np.random.default_rng(0).integers(masked_lm.n_tokens, size=(80, 7))  # 560 rows: two parts
    found = log_pseudo_likelihood(masked_lm, states)
    assert found.shape == (80,) and found.dtype == np.float64 and np.ptp(found) > 1
    for k in (0, 17, 79):
        scores = [masked_lm.scores(states[k : k + 1], np.array([site]))[0].double() for site in range(7)]
        expected = sum(float(s.log_softmax(0)[token]) for s, token in zip(scores, states[k], strict=True))
        assert found[k] == pytest.approx(expected, abs=1e-3)
        assert log_pseudo_likelihood(masked_lm, states[k : k + 1])[0] == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("gap", [1.0, 30.0, 60.0, 400.0])
def test_escape_probability_keeps_its_precision_when_it_is_tiny(gap):
    # two sites that both prefer token 0 by `gap`: the mean of two logistic tails
    model = TabularModel.from_joint(np.array([[2 * gap, gap], [gap, 0]]))
    expected = np.exp(-gap) / (1 + np.exp(-gap))
    assert escape_probability(model, [0, 0], 1.0) == pytest.approx(expected, rel=1e-12, abs=0)
    expected = np.exp(-gap / 0.8) / (1 + np.exp(-gap / 0.8))
    assert escape_probability(model, [0, 0], 0.8) == pytest.approx(expected, rel=1e-12, abs=0)


@given(systems(), st.integers(0, 7))
def test_the_paper_s_bound_is_above_the_exact_escape_probability(case, code):
    model, n, temperature = case
    state = all_states(model.n_tokens, n)[code % model.n_tokens**n]
    bound = escape_bound(score_gaps(model, state).min(), temperature, model.n_tokens)
    assert bound >= escape_probability(model, state, temperature) * (1 - 1e-12)


@pytest.mark.parametrize("temperature", [0.3, 0.6, 1.0])
def test_the_paper_s_lower_bound_is_below_the_mixing_time(temperature):
    model = IsingModel(0.5 * (np.ones((3, 3)) - np.eye(3)))  # two ground states, each of mass below one half
    margin = score_gaps(model, [1, 1, 1]).min()
    assert margin == pytest.approx(2)
    mixing = exact.mixing_time(exact.transition_matrix(model, 3, temperature))
    assert mixing_lower_bound(margin, temperature, 2) <= mixing
    assert mixing_lower_bound(margin, temperature, 2) == pytest.approx(np.exp(2 / temperature) / 4)
    # the bound is the reciprocal of four times the bound on the conductance
    assert 4 * mixing_lower_bound(margin, temperature, 5) * escape_bound(margin, temperature, 5) == pytest.approx(1)


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


# Drift -------------------------------------------------------------------------------------------------------------


def test_drift_is_the_expected_change_of_the_count(system):
    states = all_states(system.model.n_tokens, system.n)
    for token in (0, system.model.n_tokens - 1):
        count = (states == token).sum(1)
        table = token_drift(system.model, states, token, [0.5, 2.0])
        np.testing.assert_array_equal(table["count"], np.tile(count, 2))
        for temperature, rows in table.groupby("temperature"):
            matrix = exact.transition_matrix(system.model, system.n, temperature).toarray()
            change = count - count[:, None]
            np.testing.assert_allclose(rows.up, (matrix * (change == 1)).sum(1), atol=1e-6)
            np.testing.assert_allclose(rows.down, (matrix * (change == -1)).sum(1), atol=1e-6)
            np.testing.assert_allclose(rows.drift, (matrix * change).sum(1), atol=1e-6)


@pytest.mark.parametrize("gap", [1.0, 30.0, 60.0])
def test_drift_keeps_its_precision_when_it_is_tiny(gap):
    # the log of up / down is what certifies a basin: down must not be rounded to zero
    model = TabularModel.from_joint(np.array([[2 * gap, gap], [gap, 0]]))
    tail = np.exp(-gap) / (1 + np.exp(-gap))
    assert token_drift(model, [[0, 0]], 0, [1.0]).down[0] == pytest.approx(tail, rel=1e-9, abs=0)
    assert token_drift(model, [[0, 0]], 1, [1.0]).up[0] == pytest.approx(tail, rel=1e-9, abs=0)


@given(st.integers(1, 8), st.integers(2, 5), st.integers(0, 2**16), st.data())
def test_states_with_count_have_exactly_that_count(n, n_tokens, seed, data):
    states = np.random.default_rng(seed).integers(n_tokens, size=(6, n))
    token, count = data.draw(st.integers(0, n_tokens - 1)), data.draw(st.integers(0, n))
    made = states_with_count(states, token, count, seed=seed)
    assert ((made == token).sum(1) == count).all()
    assert made.min() >= 0 and made.max() < n_tokens
    kept = (made != token) & (states != token)
    np.testing.assert_array_equal(made[kept], states[kept])  # no other site is touched


def test_states_with_count_spreads_the_token_over_all_sites_and_leaves_its_input_alone():
    states = np.ones((400, 5), int)
    made = states_with_count(states, 0, 2)
    assert (states == 1).all()
    share = (made == 0).mean(0)
    assert np.abs(share - 0.4).max() < 4 * np.sqrt(0.24 / 400)


def test_an_impossible_count_is_refused():
    with pytest.raises(ValueError, match=r"count must lie in 0\.\.3, got 4"):
        states_with_count([[0, 1, 1]], 0, 4)


def test_a_scan_is_the_drift_of_each_token():
    model, states = random_table(4, 3), all_states(3, 4)[::7]
    scan = scan_drift(model, states, [2, 0], 2, [0.5, 1.0], seed=3)
    for token in (0, 2):
        alone = token_drift(model, states_with_count(states, token, 2, seed=3), token, [0.5, 1.0])
        pd.testing.assert_frame_equal(scan[scan.token == token].drop(columns="token").reset_index(drop=True), alone)
        assert (alone["count"] == 2).all()


@pytest.mark.parametrize("holding", ["path", "geometric"])
def test_a_count_of_independent_sites_is_a_birth_death_chain(holding):
    n, enter = 6, 0.7  # every site takes token 0 with probability 0.7
    ones = np.indices((2,) * n).sum(0)
    model = TabularModel.from_joint(np.log(enter) * (n - ones) + np.log(1 - enter) * ones)
    counts, floor = np.arange(3, n + 1), 2
    expected = birth_death_time((n - counts) / n * enter, counts / n * (1 - enter))
    states, matrix = all_states(2, n), exact.transition_matrix(model, n)
    above = np.flatnonzero((states == 0).sum(1) > floor)
    assert expected == pytest.approx(exact.escape_times(matrix, above)[0])  # state 0 holds the token everywhere
    options = {"repeats": 500, "n_steps": 100_000, "holding": holding}
    timed = time_count_escapes(model, np.zeros(n, int), 0, floor, 1.0, **options)
    assert timed.left.all()
    assert abs(timed.exposure.mean() - expected) < 4 * timed.exposure.std() / np.sqrt(500)


# Interruption ------------------------------------------------------------------------------------------------------


def test_influence_that_was_interrupted_goes_on_from_its_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "CHECKPOINT", 0.0)
    model, file = random_table(4, 3), tmp_path / "influence.npz"
    contexts, tokens = np.array([[0, 1, 2, 0], [1, 1, 0, 2]]), np.tile([1, 2], (2, 4, 1))
    tokens[contexts == 1] = [0, 2]
    tokens[contexts == 2] = [0, 1]
    arguments = (contexts, tokens, [0.5, 2.0])
    whole = measure_influence(model, *arguments)
    with pytest.raises(KeyboardInterrupt):
        measure_influence(Watched(model, at=6), *arguments, checkpoint=file)
    watched = Watched(model)
    again = measure_influence(watched, *arguments, checkpoint=file)
    assert 0 < watched.calls < 8  # a call for each pair of a context and a site
    assert np.array_equal(again.by_context, whole.by_context) and again.points.equals(whole.points)
    assert np.array_equal(again.oscillation, whole.oscillation)
    with pytest.raises(ValueError, match=r"is of another run \(temperatures\)"):
        measure_influence(model, contexts, tokens, [0.5], checkpoint=file)


@pytest.mark.parametrize("holding", ["path", "geometric"])
def test_timed_escapes_that_were_interrupted_give_no_result_and_go_on(holding, tmp_path):
    model, file = random_table(3, 3), tmp_path / "escapes.npz"
    options = {"repeats": 6, "n_steps": 60, "holding": holding}
    whole = time_count_escapes(model, np.zeros(3, int), 0, 0, 1.0, **options)
    with pytest.raises(KeyboardInterrupt):
        time_count_escapes(Watched(model, at=7), np.zeros(3, int), 0, 0, 1.0, checkpoint=file, **options)
    again = time_count_escapes(model, np.zeros(3, int), 0, 0, 1.0, checkpoint=file, **options)
    assert again.equals(whole) and whole.left.any()
