"""Log-normal regression of censored times against closed forms, statsmodels' answers and known parameters."""

import numpy as np
import pytest
import scipy.optimize
import scipy.stats

from glauber_lib.censored import fit_log_normal, group_weights, resampled_interval


def simulated(rng, size=80, slope=-2.0, spread=0.5, end=6.0):
    x = rng.uniform(0, 1, size)
    time = np.exp(1.0 + slope * x + spread * rng.normal(size=size))
    return np.minimum(time, end), time < end, np.column_stack([np.ones(size), x])


def test_without_censoring_the_fit_is_least_squares():
    rng = np.random.default_rng(0)
    time, seen, design = simulated(rng, end=np.inf)
    fit = fit_log_normal(time, seen, design)
    line, (rest,), *_ = np.linalg.lstsq(design, np.log(time), rcond=None)
    np.testing.assert_allclose(fit.coefficients[0], line, rtol=1e-6)
    assert fit.spread[0] == pytest.approx(np.sqrt(rest / len(time)), rel=1e-6)
    residual = np.log(time) - design @ line
    assert fit.log_likelihood[0] == pytest.approx(scipy.stats.norm.logpdf(residual, scale=fit.spread[0]).sum())


def test_with_censoring_no_other_parameters_are_more_likely():
    rng = np.random.default_rng(1)
    time, seen, design = simulated(rng, end=1.5)
    assert 0.2 < 1 - seen.mean() < 0.8

    def loss(p):
        z = (np.log(time) - design @ p[:2]) / np.exp(p[2])
        return -np.where(seen, scipy.stats.norm.logpdf(z) - p[2], scipy.stats.norm.logsf(z)).sum()

    fit, other = fit_log_normal(time, seen, design), scipy.optimize.minimize(loss, [1.0, -2.0, 0.0], tol=1e-10)
    assert fit.log_likelihood[0] == pytest.approx(-other.fun, abs=1e-6)
    np.testing.assert_allclose([*fit.coefficients[0], fit.spread[0]], [*other.x[:2], np.exp(other.x[2])], rtol=1e-3)


def test_weights_count_a_time_as_often_as_they_say():
    rng = np.random.default_rng(2)
    time, seen, design = simulated(rng, end=1.5)
    weights = rng.integers(0, 3, size=(4, len(time)))
    many = fit_log_normal(time, seen, design, weights)
    for k, row in enumerate(weights):
        rows = np.repeat(np.arange(len(time)), row)
        one = fit_log_normal(time[rows], seen[rows], design[rows])
        np.testing.assert_allclose(many.coefficients[k], one.coefficients[0], rtol=1e-4)
        assert many.log_likelihood[k] == pytest.approx(one.log_likelihood[0], abs=1e-6)


def test_heavy_censoring_does_not_bias():
    rng, found = np.random.default_rng(3), []
    for _ in range(100):
        time, seen, design = simulated(rng, end=1.0)
        found.append([*fit_log_normal(time, seen, design).coefficients[0]])
    error = np.std(found, axis=0) / 10
    assert (np.abs(np.mean(found, axis=0) - [1.0, -2.0]) < 3.5 * error).all()


def test_nothing_seen_or_all_on_a_line_gives_no_number():
    one = np.ones((3, 1))
    assert np.isnan(fit_log_normal([1, 2, 3], [False] * 3, one).coefficients).all()
    assert np.isnan(fit_log_normal([2, 2, 2], [True] * 3, one).coefficients).all()


@pytest.mark.parametrize("time", [[0.0, 1.0], [np.inf, 1.0], [1.0]])
def test_times_that_are_not_are_refused(time):
    with pytest.raises(ValueError, match=r"positive and finite|as many"):
        fit_log_normal(time, [True, True], np.ones((2, 1)))


def test_whole_groups_are_resampled():
    weights = group_weights(["a", "b", "a", "c"], 200, seed=1)
    assert (weights[:, 0] == weights[:, 2]).all() and (weights[:, [0, 1, 3]].sum(1) == 3).all()
    assert weights.mean(0) == pytest.approx(np.ones(4), abs=0.2)


@pytest.mark.parametrize("size", [8, 20, 30])
def test_the_interval_of_a_mean_from_its_bootstrap_covers_it(size):
    rng, covered = np.random.default_rng(size), []
    for seed in range(500):
        sample = rng.exponential(size=size) if size == 30 else rng.normal(1.0, 1.0, size)
        low, high = resampled_interval(sample.mean(), group_weights(range(size), 200, seed) @ sample / size, size)
        covered.append(low <= 1.0 <= high)
    assert 0.9 <= np.mean(covered) <= 0.98


def test_an_interval_needs_draws():
    assert np.isnan(resampled_interval(1.0, [np.nan] * 10, 5)).all()
    assert np.isnan(resampled_interval(np.nan, [1.0, 2.0], 5)).all()


def test_seen_times_that_do_not_determine_a_line_give_no_number():
    design = np.column_stack([np.ones(6), [1, 1, 1, 2, 2, 2]])
    fit = fit_log_normal([1, 2, 3, 4, 4, 4], [True, True, True, False, False, False], design)
    assert np.isnan(fit.coefficients).all() and np.isnan(fit.spread).all()
    fit = fit_log_normal([1, 2, 3, 4, 4, 3], [True] * 3 + [False, False, True], design, [[1] * 6, [1] * 5 + [0]])
    assert np.isfinite(fit.coefficients[0]).all() and np.isnan(fit.coefficients[1]).all()


@pytest.mark.parametrize("observed", [[True, np.nan], ["yes", "no"], [True, None], [2, 0]])
def test_events_that_are_neither_true_nor_false_are_refused(observed):
    with pytest.raises(ValueError, match="observed must be true or false"):
        fit_log_normal([1.0, 2.0], observed, np.ones((2, 1)))


def test_a_missing_group_and_a_design_that_is_no_number_are_refused():
    with pytest.raises(ValueError, match="groups must hold one label"):
        group_weights(["a", None], 3)
    with pytest.raises(ValueError, match="design and weights must be finite"):
        fit_log_normal([1.0, 2.0], [True, True], [[1.0], [np.nan]])


def test_draws_that_are_all_one_have_no_interval():
    assert np.isnan(resampled_interval(1.0, [1.0] * 10, 5)).all()
