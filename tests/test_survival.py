"""Censored times: curves and medians by hand, intervals that cover as often as they say."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glauber_lib.stats import Estimate
from glauber_lib.survival import median_estimate, median_interval, median_survival, survival_curve, time_until


def test_median_without_censoring_is_the_sample_median():
    assert median_survival([5, 1, 3, 2, 4], [True] * 5) == 3


def test_censored_times_raise_the_median():
    # two of five end unobserved at 2: after the events at 1, 3 and 4 the survival is 4/5, 2/5, 0
    assert median_survival([1, 2, 2, 3, 4], [True, False, False, True, True]) == 3
    assert median_survival([1, 2, 2, 3, 4], [True] * 5) == 2  # taken for events they would lower it


def test_the_interval_of_a_censored_median_covers_it_about_as_often_as_it_says():
    rng, covered = np.random.default_rng(0), []
    for _ in range(200):
        times = rng.exponential(100, size=40)
        low, high = median_interval(np.minimum(times, 150), times <= 150)
        covered.append(low <= 100 * np.log(2) <= high)
    assert 0.9 <= np.mean(covered) <= 0.995
    assert median_interval([5, 5], [False, False])[1] == np.inf


def test_a_curve_that_stays_above_one_half_has_no_median():
    assert np.isnan(median_survival([1, 9, 9, 9], [True, False, False, False]))
    assert np.isnan(median_survival([9, 9], [False, False]))


# Curves ----------------------------------------------------------------------------------------------------------

times = st.lists(st.tuples(st.integers(1, 12), st.booleans()), min_size=1, max_size=25)


@given(st.lists(st.integers(1, 12), min_size=1, max_size=25))
def test_without_censoring_the_curve_is_the_empirical_survival_function(time):
    curve, time = survival_curve(time, [True] * len(time)), np.array(time)
    assert list(curve.time) == [0, *np.unique(time), time.max()]
    np.testing.assert_allclose(curve.share, [(time > t).mean() for t in curve.time], atol=1e-12)
    inner = curve[(curve.share > 0) & (curve.share < 1)]
    assert ((inner.low < inner.share) & (inner.share < inner.high)).all()
    assert curve[["low", "high"]].drop(inner.index).isna().all(axis=None)


def test_a_censored_curve_and_its_interval_by_hand():
    curve = survival_curve([1, 2, 2, 3, 5], [True, False, False, True, False])
    assert list(curve.time) == [0, 1, 3, 5]  # the end of observation is no event
    np.testing.assert_allclose(curve.share, [1, 4 / 5, 2 / 5, 2 / 5])
    # Greenwood: the variance of log S is the sum of d/(r (r - d)) over the events; log-log: it is divided by log S
    spread = 1.96 * np.sqrt([1 / (5 * 4), 1 / (5 * 4) + 1 / (2 * 1)]) / -np.log([4 / 5, 2 / 5])
    np.testing.assert_allclose(curve.low[1:3], np.array([4 / 5, 2 / 5]) ** np.exp(spread))
    np.testing.assert_allclose(curve.high[1:3], np.array([4 / 5, 2 / 5]) ** np.exp(-spread))
    np.testing.assert_array_equal(curve.iloc[-1, 1:], curve.iloc[-2, 1:])
    assert curve.iloc[0, 2:].isna().all()


def test_if_nobody_had_the_event_the_curve_stays_at_one():
    curve = survival_curve([4, 9, 9], [False] * 3)
    assert list(curve.time) == [0, 9] and list(curve.share) == [1, 1]
    assert curve[["low", "high"]].isna().all(axis=None)


@given(times)
def test_the_median_is_where_the_curve_falls_below_one_half(pairs):
    time, observed = map(np.array, zip(*pairs, strict=True))
    curve = survival_curve(time, observed)
    np.testing.assert_equal(median_survival(time, observed), curve.time[curve.share < 0.5].min())


@pytest.mark.parametrize("at", [0.2, 0.7, 1.2])
def test_the_interval_covers_a_known_survival_about_as_often_as_it_says(at):
    rng, rows, expected = np.random.default_rng(0), [], np.exp(-at)
    for _ in range(300):
        event, end = rng.exponential(size=60), rng.uniform(0.3, 3, size=60)  # 0.3 of the events are never seen
        curve = survival_curve(np.minimum(event, end), event <= end)
        rows.append(curve[curve.time <= at].iloc[-1])
    curves = pd.DataFrame(rows)
    assert abs(curves.share.mean() - expected) < 4 * curves.share.std() / np.sqrt(300)
    covered = ((curves.low <= expected) & (expected <= curves.high)).mean()
    assert 0.91 <= covered <= 0.985  # 0.95, and three standard deviations of a share of 300


def test_an_estimate_of_a_median_says_whether_a_time_was_censored():
    time = [1, 2, 2, 3, 4]
    censored = median_estimate(time, [True, False, False, True, True], unit="pairs")
    assert (censored.value, censored.n, censored.unit, censored.kind) == (3, 5, "pairs", "censored")
    assert censored.interval == median_interval(time, [True, False, False, True, True])
    assert median_estimate(time, [True] * 5, unit="pairs").kind == "estimate"
    never = median_estimate(time, [False] * 5, unit="pairs")
    assert isinstance(never, Estimate) and np.isnan(never.value) and never.interval[1] == np.inf


# Other shares ------------------------------------------------------------------------------------------------------


def test_the_time_by_which_a_share_had_the_event_by_hand():
    time = np.arange(1, 41)
    found = time_until(time, [True] * 40, 0.75, unit="pairs")
    assert (found.value, found.n, found.unit, found.kind) == (30, 40, "pairs", "estimate")  # a quarter is left
    assert found.interval[0] < 30 < found.interval[1] < 40
    assert time_until([1, 2, 2, 3, 4], [True, False, False, True, True], 0.6, unit="pairs").value == 3


def test_a_share_that_was_not_reached_has_no_time():
    found = time_until([1, 2, 9, 9], [True, True, False, False], 0.75, unit="pairs")
    assert np.isnan(found.value) and found.interval[1] == np.inf and found.kind == "censored"
    never = time_until([9, 9], [False, False], 0.5, unit="pairs")
    assert np.isnan(never.value) and never.interval[1] == np.inf and never.kind == "censored"


def test_the_interval_of_a_time_covers_it_about_as_often_as_it_says():
    rng, covered = np.random.default_rng(0), []
    for _ in range(200):
        low, high = time_until(rng.exponential(size=80), [True] * 80, 0.75, unit="pairs").interval
        covered.append(low <= np.log(4) <= high)
    assert 0.9 <= np.mean(covered) <= 0.995
