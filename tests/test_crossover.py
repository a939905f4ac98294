"""Growth laws, censored times and the transition temperature against known answers."""

import numpy as np
import pytest

from glauber_lib.crossover import GROWTH, Transition, compare_growth, median_survival, transition_temperature


def test_median_without_censoring_is_the_sample_median():
    assert median_survival([5, 1, 3, 2, 4], [True] * 5) == 3


def test_censored_times_raise_the_median():
    # two of five end unobserved at 2: after the events at 1, 3 and 4 the survival is 4/5, 2/5, 0
    assert median_survival([1, 2, 2, 3, 4], [True, False, False, True, True]) == 3
    # dropped, as if they had not been run, they would leave the same median; taken as events, a lower one
    assert median_survival([1, 2, 2, 3, 4], [True] * 5) == 2


def test_more_than_half_censored_leaves_no_median():
    assert np.isnan(median_survival([1, 9, 9, 9], [True, False, False, False]))
    assert np.isnan(median_survival([9, 9], [False, False]))


@pytest.mark.parametrize("law", GROWTH)
def test_the_growth_law_that_made_the_times_has_the_lowest_aic(law):
    n = np.array([5, 8, 12, 20, 32, 50])
    noise = 1 + 0.02 * np.random.default_rng(0).normal(size=6)
    fits = compare_growth(n, 3.0 * GROWTH[law](n) * noise)
    assert fits.aic.idxmin() == law
    assert fits.a[law] == pytest.approx(3.0, rel=0.05)


def test_growth_ignores_times_that_are_not_known():
    n = np.array([2, 4, 8, 16])
    fits = compare_growth(n, [2.0, 4.1, np.nan, 16.0])
    assert fits.a["n"] == pytest.approx(1, abs=0.05)
    assert compare_growth(n, [2.0, np.nan, np.nan, 16.0]).isna().all(axis=None)


def test_transition_temperature_finds_a_planted_center():
    rng = np.random.default_rng(0)
    temperature = np.repeat([0.25, 0.5, 1.0, 2.0, 4.0, 8.0], 60)
    chance = Transition(1.5, 0.4, (0, 0)).predict(temperature)
    found = transition_temperature(temperature, rng.random(360) < chance, n_resamples=60)
    assert found.center == pytest.approx(1.5, rel=0.15)
    assert found.width == pytest.approx(0.4, rel=0.4)
    assert found.interval[0] < 1.5 < found.interval[1] < 2 * found.interval[0]


def test_transition_prediction_is_one_half_at_the_center_and_rises():
    curve = Transition(2.0, 0.5, (1, 3))
    assert curve.predict(2.0) == pytest.approx(0.5)
    assert curve.predict(2.0 * np.exp(0.5)) == pytest.approx(1 / (1 + np.exp(-1)))


def test_separated_data_give_a_center_between_and_a_finite_width():
    found = transition_temperature([1, 1, 1, 4, 4, 4], [False] * 3 + [True] * 3, n_resamples=20)
    assert 1 < found.center < 4 and 0.01 < found.width < 2


def test_one_sided_data_give_no_center():
    assert np.isnan(transition_temperature([1, 2, 3], [True] * 3).center)
