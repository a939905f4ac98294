"""Margins, escape probabilities and their bounds against enumeration."""

import numpy as np
import pytest
from conftest import systems
from hypothesis import given
from hypothesis import strategies as st

from glauber_lib import exact
from glauber_lib.margins import escape_bound, escape_probability, log_pseudo_likelihood, mixing_lower_bound, score_gaps
from glauber_lib.models import IsingModel, TabularModel, all_states


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


@pytest.mark.parametrize("temperature", [0, -1, np.nan, np.array([1.0, -1.0])])
def test_a_bound_at_a_temperature_that_is_none_is_refused(temperature):
    for bound in (escape_bound, mixing_lower_bound):
        with pytest.raises(ValueError, match="temperature must be > 0"):
            bound(2.0, temperature, 5)


def test_bounds_of_no_token_are_refused_and_lists_are_taken():
    for bound in (escape_bound, mixing_lower_bound):
        with pytest.raises(ValueError, match="n_tokens must be a whole number"):
            bound(1.0, 1.0, 0)
        with pytest.raises(ValueError, match="margin must be numbers"):
            bound("1", 1.0, 3)
        np.testing.assert_array_equal(bound([1.0, 2.0], 0.5, 3), [bound(1.0, 0.5, 3), bound(2.0, 0.5, 3)])
