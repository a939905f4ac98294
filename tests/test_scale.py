"""Intervals and tests are of scale: of values as small as escape probabilities, or as large, they are the same."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from glauber_lib import censored, growth, permutation, resampling, stats

SCALES = [1e-300, 1e-167, 1e-161, 1e-108, 1e104, 1e155, 1e300]
X = np.random.default_rng(0).exponential(size=12)


@pytest.mark.parametrize("scale", SCALES)
def test_intervals_of_means_are_of_scale(scale):
    for values in (X, X[:4]):
        band, found = (stats.mean_band(values[:, None] * s).iloc[0] for s in (1.0, scale))
        np.testing.assert_allclose(found / scale, band, rtol=1e-9)
        one, other = (stats.bootstrap_interval(values * s, n_resamples=200) for s in (1.0, scale))
        np.testing.assert_allclose(np.divide(other, scale), one, rtol=1e-9)


@pytest.mark.parametrize("scale", [1e-300, 1e-108, 1e104, 1e300])
@pytest.mark.parametrize("statistic", [np.median, lambda x: np.ptp(x) + x.mean()])
def test_intervals_of_other_statistics_are_of_scale(scale, statistic):
    one, other = (stats.bootstrap_interval(X * s, statistic=statistic, n_resamples=300) for s in (1.0, scale))
    np.testing.assert_allclose(np.divide(other, scale), one, rtol=1e-9)


def test_a_band_is_cut_and_scaled_column_by_column():
    table = stats.mean_band(np.column_stack([X, X * 1e-200]), within=(0, 1e-199))
    assert table.high[0] == table["mean"][0] and 0 < table.low[1] < table.high[1] < 1e-199
    alone = stats.mean_band(X[:, None] * 1e-200).iloc[0]
    assert table.low[1] == alone.low and table.high[1] == alone.high


@pytest.mark.parametrize("scale", SCALES)
def test_slopes_tests_and_student_intervals_are_of_scale(scale):
    rng, n = np.random.default_rng(1), [4, 8, 16]
    values, gains, own = rng.normal(size=(6, 3)), rng.normal(size=(2, 6, 4)), np.arange(6) % 4
    one, other = (growth.slope_in_log_length(values * s, n, unit="units") for s in (1.0, scale))
    np.testing.assert_allclose([other.value / scale, *np.divide(other.interval, scale)], [one.value, *one.interval])
    one, other = (permutation.label_rises(gains * s, own, n_resamples=50) for s in (1.0, scale))
    np.testing.assert_allclose(other.t, one.t)
    assert other.p.equals(one.p) and other.p_max.equals(one.p_max)
    np.testing.assert_allclose(other[["rise", "excess"]] / scale, one[["rise", "excess"]])
    one, other = (permutation.group_difference(values * s, own, n_resamples=50) for s in (1.0, scale))
    np.testing.assert_allclose(other, one)
    one, other = (censored.resampled_interval(s, X * s, 5) for s in (1.0, scale))
    np.testing.assert_allclose(np.divide(other, scale), one)


@pytest.mark.parametrize("scale", [1e-9, 1e-6, 1e6, 1e9])
def test_a_log_normal_fit_is_of_scale_in_its_design(scale):
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, 60)
    time = np.exp(1 + 2 * x + 0.5 * rng.normal(size=60))
    one, other = (
        censored.fit_log_normal(np.minimum(time, 9), time < 9, np.column_stack([np.ones(60), x * s]))
        for s in (1.0, scale)
    )
    np.testing.assert_allclose(other.coefficients * [1, scale], one.coefficients, rtol=1e-7)
    np.testing.assert_allclose([other.spread, other.log_likelihood], [one.spread, one.log_likelihood], rtol=1e-9)


def test_an_ordinary_scale_is_one_and_another_a_power_of_two():
    assert resampling.scale_of(X) == 1 and resampling.scale_of(np.array([])) == 1 == resampling.scale_of(np.zeros(3))
    assert resampling.scale_of(np.array([1e-200, np.inf])) == 1
    for value in (5e-324, 1e-310, 3e-200, 3e200, 1.7e308):
        scale = float(resampling.scale_of(np.array([0.0, -value])))
        assert 1 <= value / scale < 2 and np.frexp(scale)[0] == 0.5


def exact_p(gains):
    """Chance that one label's Student's t is at least the measured one, over all arrangements within chains."""
    number = [[Fraction(str(x)) for x in row] for row in gains]

    def key(row):
        """Sign and square of mean over root of mean square, which rises with t."""
        differences = [a - (b + c) / 2 for a, b, c in row]
        mean = sum(differences) / len(differences)
        return (mean > 0) - (mean < 0), mean**2 / (sum(d * d for d in differences) / len(differences)) * (
            1 if mean > 0 else -1
        )

    arranged = [sorted(itertools.permutations(row)) for row in number]
    drawn = [key(rows) for rows in itertools.product(*([{r[0]: r for r in rows}.values() for rows in arranged]))]
    return np.mean([one >= key(number) for one in drawn])


@pytest.mark.parametrize("gain", ["1.1", "1.0001", "1.00001"])
def test_equal_arrangements_count_however_large_student_s_t_is(gain):
    rng = np.random.default_rng(3)
    chains = [[["1.0", gain, "0"], [gain, "1.0", "0"]][k] for k in rng.integers(2, size=5)]
    gains = np.array([[[-9.0, *map(float, row)] for row in chains]])
    table = permutation.label_rises(gains, np.zeros(5, int), n_resamples=20_000)
    for label in (1, 2):
        order = [[row[label - 1], row[2 - label], row[2]] for row in chains]
        p = exact_p(order)
        assert table.p[label] == pytest.approx(p, abs=4 * np.sqrt(p / 20_000))


@pytest.mark.parametrize("tail", [0, -0.1, 0.5, 0.95, np.nan])
def test_a_tail_that_is_a_level_is_refused(tail):
    for interval in (
        lambda: stats.percentile_interval(X, tail),
        lambda: censored.resampled_interval(1.0, X, 5, tail),
    ):
        with pytest.raises(ValueError, match="tail must lie above 0 and below"):
            interval()


def test_percentiles_beyond_the_resamples_are_not_known():
    assert np.isnan(stats.percentile_interval(np.arange(39.0))).all()
    assert stats.percentile_interval(np.arange(40.0)) == pytest.approx((0.975, 38.025))
    assert np.isnan(stats.percentile_interval(np.arange(500.0), 0.00025)).all()
    with pytest.raises(ValueError, match="n_resamples must be a whole number >= 40, got 3"):
        stats.bootstrap_interval(X, n_resamples=3)
