"""Censored times: curves and medians by hand, intervals that cover as often as they say."""

import tracemalloc
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from glauber_lib.survival import median_survival, survival_curve, time_until


def test_median_without_censoring_is_the_sample_median():
    assert median_survival([5, 1, 3, 2, 4], [True] * 5) == 3


def test_censored_times_raise_the_median():
    # two of five end unobserved at 2: after the events at 1, 3 and 4 the survival is 4/5, 2/5, 0
    assert median_survival([1, 2, 2, 3, 4], [True, False, False, True, True]) == 3
    assert median_survival([1, 2, 2, 3, 4], [True] * 5) == 2  # taken for events they would lower it


@pytest.mark.parametrize("censored", [0.0, 0.2])
def test_the_time_of_very_many_units_takes_no_square_of_their_number(censored):
    rng = np.random.default_rng(0)
    time, seen = rng.exponential(size=200_000), rng.random(200_000) >= censored
    tracemalloc.start()
    found = time_until(time, seen, 0.5, unit="pairs")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.value == pytest.approx(np.log(2) / (1 - censored), rel=0.02) and peak < 2**28
    assert found.interval[0] < found.value < found.interval[1] < 1.02 * found.value


@pytest.mark.parametrize("n", [8, 20, 30])
@pytest.mark.parametrize("share", [0.5, 0.75])
@pytest.mark.parametrize("end", [100, 150, np.inf])
def test_the_interval_of_a_censored_time_covers_it_about_as_often_as_it_says(n, share, end):
    rng, covered = np.random.default_rng(n), []
    for _ in range(500):
        event, last = rng.exponential(100, size=n), rng.uniform(size=n) * 2 * min(end, 1e9)
        low, high = time_until(np.minimum(event, last), event <= last, share, unit="pairs").interval
        covered.append(not (low > -100 * np.log(1 - share) or high < -100 * np.log(1 - share)))
    assert 0.90 <= np.mean(covered) <= 0.985


def test_without_censoring_the_interval_is_that_of_the_binomial_law_of_the_number_before():
    found = time_until(np.arange(1, 21), [True] * 20, 0.5, unit="pairs")
    chance = lambda k: scipy.stats.binom.cdf(k, 20, 0.5) - scipy.stats.binom.pmf(k, 20, 0.5) / 2  # noqa: E731
    assert found.interval == tuple(min(k for k in range(21) if chance(k) >= tail) for tail in (0.025, 0.975))
    assert np.isnan(time_until([20] * 6, [True] * 6, 0.5, unit="pairs").interval).all()  # all at once


def exact_curve(time, observed):
    """The curve as fractions, by the definition."""
    share, curve = Fraction(1), []
    for at in sorted({t for t, seen in zip(time, observed, strict=True) if seen}):
        risk = sum(t >= at for t in time)
        share *= Fraction(risk - sum(t == at and seen for t, seen in zip(time, observed, strict=True)), risk)
        curve.append((at, share))
    return curve


def test_the_median_of_1_to_n_is_exact_for_every_n():
    for n in range(1, 201):
        assert median_survival(np.arange(1, n + 1), np.ones(n, bool)) == n // 2 + 1
        quarter = time_until(np.arange(1, n + 1), np.ones(n, bool), 0.75, unit="pairs").value
        assert quarter == -(-3 * n // 4)
    assert median_survival(range(1, 13), [True] * 12) == 7


def test_censored_curves_through_one_half_and_one_quarter_are_exact():
    rng, through = np.random.default_rng(0), 0
    for _ in range(300):
        n = int(rng.integers(4, 13))
        time, observed = rng.integers(1, 3 * n, size=n).tolist(), (rng.random(n) < 0.75).tolist()
        curve = exact_curve(time, observed)
        through += any(share in (Fraction(1, 2), Fraction(1, 4)) for _, share in curve)
        median = min((t for t, share in curve if share < Fraction(1, 2)), default=np.nan)
        np.testing.assert_equal(median_survival(time, observed), median)
        for share in (0.5, 0.75, 0.6, 1 / 3):
            left = 1 - Fraction(share).limit_denominator(100)
            expected = min((t for t, s in curve if s <= left), default=np.nan)
            np.testing.assert_equal(time_until(time, observed, share, unit="pairs").value, expected)
    assert through > 50


@pytest.mark.parametrize(
    "time, observed, message",
    [
        ([1, np.nan], [True, True], "finite and not negative"),
        ([1, -1], [True, True], "finite and not negative"),
        ([1, np.inf], [True, False], "finite and not negative"),
        ([1, 2], [True, np.nan], "true or false"),
        ([1, 2, 3], [True, False], "rows of one length"),
    ],
)
def test_times_that_are_none_are_refused(time, observed, message):
    for compute in (median_survival, survival_curve, lambda *of: time_until(*of, 0.5, unit="pairs")):
        with pytest.raises(ValueError, match=message):
            compute(time, observed)
    with pytest.raises(ValueError, match="share must lie"):
        time_until([1], [True], 1.0, unit="pairs")


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
    exact = [t for t, share in exact_curve(time.tolist(), observed.tolist()) if share < Fraction(1, 2)]
    np.testing.assert_equal(median_survival(time, observed), min(exact, default=np.nan))
    near = curve.time[curve.share < 0.5].min()
    assert near == min(exact, default=np.nan) or np.isclose(curve.share, 0.5).any() or np.isnan(near)


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


def test_a_median_of_more_than_a_thousand_times_is_found():
    time = np.arange(1.0, 1_031.0)
    assert median_survival(time, np.ones(1_030)) == 516  # less than one half is left after 516 of 1030
    assert time_until(time, np.ones(1_030), 0.5, unit="pairs").value == 515
