"""Growth laws, censored times and the transition temperature against known answers."""

from math import comb

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glauber_lib import exact
from glauber_lib.couplings import coalesce
from glauber_lib.crossover import GROWTH, Transition, coalescence_bound, compare_growth, transition_temperatures
from glauber_lib.models import IsingModel
from glauber_lib.stats import convergence, median_interval, median_survival, survival_curve


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


# Survival ----------------------------------------------------------------------------------------------------------

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


# Coalescence -------------------------------------------------------------------------------------------------------


def test_coalescence_bound_by_hand():
    assert coalescence_bound(0.5, 10) == pytest.approx(20 * np.log(20))
    assert coalescence_bound(0.0, 4, chance=0.99) == pytest.approx(4 * np.log(400))
    assert coalescence_bound(1.0, 10) == coalescence_bound(1.5, 10) == np.inf


@pytest.mark.parametrize("n", [3, 6, 20, 100])
@pytest.mark.parametrize("chance", [0.1, 0.5, 0.9, 0.99])
def test_free_spins_meet_within_the_bound(n, chance):
    # a pair that differs everywhere meets when every site was chosen: the coupon collector, by inclusion and exclusion
    apart = lambda t: -sum((-1) ** k * comb(n, k) * (1 - k / n) ** t for k in range(1, n + 1))  # noqa: E731
    bound = coalescence_bound(0.0, n, chance)
    assert 0 < apart(int(bound)) <= 1 - chance
    if n == 100 and chance >= 0.9:  # a union bound of rare events is tight: 1 - 1/n is all it loses to exp(-1/n)
        assert apart(int(bound)) > 0.9 * (1 - chance)


@pytest.mark.parametrize("strength", [0.2, 0.5])
def test_the_spins_of_a_ring_meet_within_the_bound(strength):
    n, size = 6, 2_000
    ring = strength * (np.roll(np.eye(n), 1, axis=1) + np.roll(np.eye(n), -1, axis=1))
    model = IsingModel(ring)
    alpha = exact.influence(model, n).sum(0).max()
    assert alpha == pytest.approx(np.tanh(2 * strength))
    starts, n_steps = (np.zeros((size, n), int), np.ones((size, n), int)), int(coalescence_bound(alpha, n, 0.99))
    run = coalesce(model, *starts, n_steps=n_steps)
    for chance in (0.5, 0.9, 0.99):
        bound = coalescence_bound(alpha, n, chance)
        assert (run.time <= bound).mean() >= chance
        assert (run.time <= bound / 2).mean() < chance  # half as many steps would not do: the rate is 1 - alpha
    apart = (run.hamming > 0).mean(1)
    contraction = n * (1 - (1 - alpha) / n) ** np.arange(n_steps + 1)
    assert (apart <= contraction + 3 * np.sqrt(apart * (1 - apart) / size)).all()


# Convergence -------------------------------------------------------------------------------------------------------


def autoregressive(rho, *, chains=4, draws=5_000, seed=0):
    """Stationary normal chains of variance one whose draws k apart correlate by rho**k."""
    noise = np.random.default_rng(seed).normal(size=(draws, chains))
    path = [noise[0]]
    for row in noise[1:]:
        path.append(rho * path[-1] + np.sqrt(1 - rho**2) * row)
    return np.array(path).T


@pytest.mark.parametrize("rho", [-0.3, 0.0, 0.5, 0.9])
def test_the_effective_size_of_autoregressive_chains_is_the_known_one(rho):
    found = convergence(autoregressive(rho))
    assert found["rhat"] == pytest.approx(1, abs=0.01)
    assert found["ess"] == pytest.approx(20_000 * (1 - rho) / (1 + rho), rel=0.3)


@pytest.mark.parametrize("law", ["normal", "heavy tails"])
def test_independent_draws_count_in_full_whatever_their_law(law):
    rng = np.random.default_rng(1)
    draws = rng.normal(size=(4, 1_000)) if law == "normal" else rng.standard_cauchy(size=(4, 1_000))
    found = convergence(draws)
    assert found["rhat"] == pytest.approx(1, abs=0.01) and found["ess"] == pytest.approx(4_000, rel=0.15)


def test_chains_at_different_levels_or_scales_or_on_the_way_have_a_large_rhat():
    draws = autoregressive(0.0, draws=1_000)
    apart = convergence(draws + 3 * np.arange(4)[:, None])
    assert apart["rhat"] > 2 and apart["ess"] < 10
    assert convergence(draws * np.array([[1], [1], [1], [5]]))["rhat"] > 1.1
    assert convergence(draws + np.linspace(0, 3, 1_000))["rhat"] > 1.1


@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
def test_chains_that_stand_still_converge_nowhere():
    assert np.isnan(list(convergence(np.full((3, 10), 0.3)).values())).all()
    assert convergence(np.repeat([[0.0], [1.0]], 10, axis=1))["rhat"] > 100  # each at its own value


@pytest.mark.parametrize("shape", [(100,), (1, 100), (4, 3), (2, 5, 5), (0, 9)])
def test_draws_of_wrong_shape_are_refused(shape):
    with pytest.raises(ValueError, match="at least 2 chains of 4 draws"):
        convergence(np.random.default_rng(0).normal(size=shape))


# Growth ------------------------------------------------------------------------------------------------------------


def hitting_times(law, *, trials=30, spread=0.2, seed=0):
    """Lengths and log-normal times of a growth law with a = 3."""
    n = np.repeat([5, 8, 12, 20, 32], trials)
    return n, 3.0 * GROWTH[law](n) * np.exp(spread * np.random.default_rng(seed).normal(size=len(n)))


@pytest.mark.parametrize("law", GROWTH)
def test_the_growth_law_that_made_the_times_has_the_lowest_aic(law):
    n, time = hitting_times(law)
    fits = compare_growth(n, time * 0.999, time * 1.001, n_resamples=20)
    assert fits.aic.idxmin() == law
    assert fits.a[law] == pytest.approx(3.0, rel=0.1)
    assert fits.low[law] < 3.0 < fits.high[law] < 1.2 * fits.low[law]


def test_the_fit_is_that_of_the_log_times():
    n, time = hitting_times("n")
    width = 1e-3
    fits = compare_growth(n, time * np.exp(-width / 2), time * np.exp(width / 2), n_resamples=2)
    residual = np.log(time / n)
    assert fits.a["n"] == pytest.approx(np.exp(residual.mean()), rel=1e-3)
    # twice the parameters less twice the likelihood, each time a density times the width of its interval
    density = 0.5 * np.log(2 * np.pi * residual.var()) + 0.5 - np.log(width)
    assert fits.aic["n"] == pytest.approx(4 + 2 * len(n) * density, rel=1e-3)


def test_coarse_looks_and_censored_trials_do_not_bias_the_growth():
    n, time = hitting_times("n log n", trials=100)
    looks = np.concatenate([[0], np.geomspace(10, 200, 10), [np.inf]])  # what is known: between which looks
    k = np.searchsorted(looks, time)
    low, high = looks[k - 1], looks[k]
    assert np.isinf(high).mean() > 0.1  # a good part is censored
    fits = compare_growth(n, low, high, n_resamples=5)
    assert fits.a["n log n"] == pytest.approx(3.0, rel=0.05)
    assert fits.aic.idxmin() == "n log n"


# Transition --------------------------------------------------------------------------------------------------------


def runs(center, width, *, lengths=(5, 10), pairs=60, seed=0, temperatures=(0.25, 0.5, 1.0, 2.0, 4.0, 8.0)):
    """Runs that meet with the chance of a logistic curve; the center doubles with the length."""
    rng, rows = np.random.default_rng(seed), []
    for k, n in enumerate(lengths):
        curve = Transition(center * 2**k, width, (0, 0), None, None)
        for t in temperatures:
            rows += [(n, t, pair, rng.random() < curve.predict(t)) for pair in range(pairs)]
    return pd.DataFrame(rows, columns=["n", "temperature", "pair", "met"])


def test_transition_temperatures_find_planted_centers():
    found = transition_temperatures(runs(1.0, 0.4), n_resamples=60)
    for n, center in ((5, 1.0), (10, 2.0)):
        assert found[n].center == pytest.approx(center, rel=0.15)
        assert found[n].width == pytest.approx(0.4, rel=0.4)
        assert found[n].interval[0] < center < found[n].interval[1] < 2 * found[n].interval[0]
        assert found[n].centers.shape == found[n].widths.shape == (60,)


def test_the_interval_of_the_center_covers_it_about_as_often_as_it_says():
    covered = []
    for seed in range(20):
        (found,) = transition_temperatures(runs(1.5, 0.5, lengths=(5,), seed=seed), n_resamples=30).values()
        covered.append(found.interval[0] <= 1.5 <= found.interval[1])
    assert np.mean(covered) >= 0.8


def test_transition_prediction_is_one_half_at_the_center_and_rises():
    curve = Transition(2.0, 0.5, (1, 3), None, None)
    assert curve.predict(2.0) == pytest.approx(0.5)
    assert curve.predict(2.0 * np.exp(0.5)) == pytest.approx(1 / (1 + np.exp(-1)))


def test_a_sharp_change_is_known_no_better_than_the_grid():
    frame = pd.DataFrame([(5, t, pair, t > 1.5) for t in (0.5, 1.0, 2.0, 4.0) for pair in range(10)],
                         columns=["n", "temperature", "pair", "met"])  # fmt: skip
    (found,) = transition_temperatures(frame, n_resamples=20).values()
    assert found.interval[0] <= 1.0 < found.center < 2.0 <= found.interval[1]


@pytest.mark.parametrize("met", [True, False])
def test_one_sided_data_give_no_center(met):
    frame = runs(1.0, 0.4, lengths=(5,), pairs=3).assign(met=met)
    (found,) = transition_temperatures(frame, n_resamples=3).values()
    assert np.isnan(found.center) and np.isnan(found.interval).all() and "outside" in str(found)
