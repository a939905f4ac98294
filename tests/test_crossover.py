"""Growth laws and the transition temperature against known answers."""

from math import comb

import numpy as np
import pandas as pd
import pytest

from glauber_lib import exact
from glauber_lib.couplings import coalesce
from glauber_lib.crossover import (
    GROWTH,
    Transition,
    coalescence_beside_mixing,
    coalescence_bound,
    compare_growth,
    hitting_times,
    pair_times,
    transition_temperatures,
)
from glauber_lib.influence import contraction_bound
from glauber_lib.models import IsingModel

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


def test_pair_times_name_every_pair_and_keep_the_censored_ones():
    model, rng = IsingModel(np.zeros((3, 3))), np.random.default_rng(0)
    x, y = rng.integers(2, size=(2, 4, 3))
    grid = np.array([0.5, 2.0])
    run = coalesce(model, np.tile(x, (2, 1)), np.tile(y, (2, 1)), n_steps=4, temperature=np.repeat(grid, 4))
    table = pair_times({3: run, 9: run})
    assert list(table.columns) == ["n", "temperature", "pair", "met", "time"] and len(table) == 16
    assert list(table.n.unique()) == [3, 9]
    one = table[table.n == 9]
    assert list(one.pair) == [0, 1, 2, 3] * 2 and list(one.temperature) == [0.5] * 4 + [2.0] * 4
    np.testing.assert_array_equal(one.met, ~run.censored)
    np.testing.assert_array_equal(one.time, np.nan_to_num(run.time, nan=4.0))
    assert run.censored.any() and not run.censored.all()


def test_coalescence_beside_what_is_exactly_known():
    n, size = 4, 400
    ring = 0.4 * (np.roll(np.eye(n), 1, axis=1) + np.roll(np.eye(n), -1, axis=1))
    small = exact.tabulate(IsingModel(ring), n)
    x, y = np.zeros((size, n), int), np.ones((size, n), int)
    found = coalescence_beside_mixing(small, x, y, [0.7, 2.0], n_steps=300).set_index("τ")
    for temperature, row in found.iterrows():
        assert row["α"] == pytest.approx(np.tanh(0.8 / temperature))
        assert row["t_mix"] == exact.mixing_time(exact.transition_matrix(IsingModel(ring), n, temperature))
        assert row["contraction bound"] == contraction_bound(row["α"], n)
        time = coalesce(small, x, y, n_steps=300, temperature=temperature).time
        assert row["three quarters met"] == np.sort(time)[3 * size // 4 - 1]
        assert row.low <= row["three quarters met"] <= row.high < row["contraction bound"] and row.met == 1
    cut = coalescence_beside_mixing(small, x, y, [0.7], n_steps=2).iloc[0]
    assert np.isnan(cut["three quarters met"]) and cut.high == np.inf and cut.met == 0


# Growth ------------------------------------------------------------------------------------------------------------


def test_a_hitting_time_lies_between_the_looks_around_it():
    looks = [0, 10, 20, 40]
    distance = {5: [[0, 0.2, 0.6, 0.3], [0, 0.5, 0.9, 0.9]], 8: [[0, 0.1, 0.2, 0.4], [0, 0.1, 0.2, 0.5]]}
    found = hitting_times(distance, looks, 0.5)
    assert found.to_dict("list") == {
        "n": [5, 5, 8, 8], "trial": [0, 1, 0, 1], "low": [10, 0, 40, 20], "high": [20, 10, np.inf, 40],
        "censored": [False, False, True, False],
    }  # fmt: skip


def test_a_distance_that_misses_a_level_by_rounding_has_reached_it_and_a_nan_is_refused():
    share = 1 - np.array([[5, 5, 4, 1]]) / 5  # 1 - 4/5 is below 0.2 by rounding
    for values in (share, share.astype(np.float32)):
        assert share[0, 2] < 0.2 and hitting_times({5: values}, [0, 1, 2, 3], 0.2).high.tolist() == [2]
    with pytest.raises(ValueError, match="nan in 1 trials of n = 8"):
        hitting_times({5: share, 8: [[0, 0.5, np.nan, 0.9]]}, [0, 1, 2, 3], 0.2)
    with pytest.raises(ValueError, match="above the distance at the start"):
        hitting_times({5: share}, [0, 1, 2, 3], 0.0)


def log_normal_times(law, *, trials=30, spread=0.2, seed=0):
    """Lengths and log-normal times of a growth law with a = 3."""
    n = np.repeat([5, 8, 12, 20, 32], trials)
    return n, 3.0 * GROWTH[law](n) * np.exp(spread * np.random.default_rng(seed).normal(size=len(n)))


@pytest.mark.parametrize("law", GROWTH)
def test_the_growth_law_that_made_the_times_has_the_lowest_aic(law):
    n, time = log_normal_times(law)
    fits = compare_growth(n, time * 0.999, time * 1.001, n_resamples=20)
    assert fits.aic.idxmin() == law
    assert fits.a[law] == pytest.approx(3.0, rel=0.1)
    assert fits.low[law] < 3.0 < fits.high[law] < 1.2 * fits.low[law]


def test_the_fit_is_that_of_the_log_times():
    n, time = log_normal_times("n")
    width = 1e-3
    fits = compare_growth(n, time * np.exp(-width / 2), time * np.exp(width / 2), n_resamples=2)
    residual = np.log(time / n)
    assert fits.a["n"] == pytest.approx(np.exp(residual.mean()), rel=1e-3)
    # twice the parameters less twice the likelihood, each time a density times the width of its interval
    density = 0.5 * np.log(2 * np.pi * residual.var()) + 0.5 - np.log(width)
    assert fits.aic["n"] == pytest.approx(4 + 2 * len(n) * density, rel=1e-3)


def test_coarse_looks_and_censored_trials_do_not_bias_the_growth():
    n, time = log_normal_times("n log n", trials=100)
    looks = np.concatenate([[0], np.geomspace(10, 200, 10), [np.inf]])  # what is known: between which looks
    k = np.searchsorted(looks, time)
    low, high = looks[k - 1], looks[k]
    assert np.isinf(high).mean() > 0.1  # a good part is censored
    fits = compare_growth(n, low, high, n_resamples=5)
    assert fits.a["n log n"] == pytest.approx(3.0, rel=0.05)
    assert fits.aic.idxmin() == "n log n"


@pytest.mark.parametrize("law", GROWTH)
def test_only_the_best_law_has_a_negative_excess(law):
    n, time = log_normal_times(law)
    fits = compare_growth(n, time * 0.999, time * 1.001, n_resamples=20)
    assert list(fits.index[fits.excess < 0]) == [law]
    assert fits.excess[law] == pytest.approx(fits.aic[law] - np.sort(fits.aic)[1])
    assert (fits.excess_low <= fits.excess).all() and (fits.excess <= fits.excess_high).all()
    assert fits.excess_high[law] < 0 < fits.excess_low.drop(law).min()


def test_trials_of_one_passage_are_resampled_together():
    # what all trials of a passage share does not average out over lengths: resampling trials would not see that
    rng, lengths, size = np.random.default_rng(0), [5, 8, 12, 20], 40
    n, passage = np.repeat(lengths, size), np.tile(np.arange(size), len(lengths))
    shared = rng.normal(size=size)
    time = 3.0 * n * np.exp(shared[passage] + 0.05 * rng.normal(size=len(n)))
    widths = []
    for groups in (None, passage):
        fits = compare_growth(n, time * 0.99, time * 1.01, groups=groups, n_resamples=100)
        widths.append(np.log(fits.high["n"] / fits.low["n"]))
    alone, together = widths
    assert together == pytest.approx(2 * 1.96 * shared.std() / np.sqrt(size), rel=0.25)
    assert together > 1.5 * alone


def test_times_that_identify_no_growth_give_no_number():
    n = np.repeat([5, 8, 12], 6)
    for low, high in ((np.full(18, 40.0), np.full(18, np.inf)), (np.zeros(18), np.full(18, 40.0))):
        found = compare_growth(n, low, high, n_resamples=5)
        assert list(found.index) == list(GROWTH) and found.isna().all(axis=None)
    one = compare_growth(np.full(8, 5), np.arange(1, 9), np.arange(2, 10), n_resamples=20)
    assert one.a.notna().all() and one.filter(like="excess").isna().all(axis=None)
    group = compare_growth(n, 3.0 * n, 4.0 * n + np.arange(18), groups=np.zeros(18), n_resamples=5)
    assert group[["low", "high", "excess_low", "excess_high"]].isna().all(axis=None)
    assert np.isnan(group.a["n"]) and group.a["n²"] > 0  # 3.5 n lies in all intervals, no multiple of n² does


def test_resamples_without_an_event_raise_the_upper_end_to_infinity():
    low, high = np.full(12, 40.0), np.full(12, np.inf)
    low[[0, 6]], high[[0, 6]] = 20, 30
    found = compare_growth(np.repeat([5, 8], 6), low, high, n_resamples=100)
    assert (found.low < found.a).all() and np.isinf(found.high).all()


@pytest.mark.parametrize(
    "n, low, high",
    [([5, 8], [1, np.nan], [2, 3]), ([5, 8], [1, 2], [2, np.nan]), ([5, 8], [1, 3], [2, 3]), ([5, 8], [-1, 1], [2, 3]),
     ([1, 8], [1, 1], [2, 3]), ([np.nan, 8], [1, 1], [2, 3]), ([5], [1, 1], [2, 3]), ([], [], [])],
)  # fmt: skip
def test_times_that_are_none_are_refused(n, low, high):
    with pytest.raises(ValueError, match="must"):
        compare_growth(n, low, high)


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


def test_incomplete_runs_are_refused_by_name():
    frame = runs(1.0, 0.4, lengths=(5, 10), pairs=8)
    cold = frame[(frame.n == 5) & (frame.temperature == 0.25) & (frame.pair < 4)].index
    with pytest.raises(ValueError, match=r"at n = 5, τ = 0.25 pair 0 has 0, and 3 more"):
        transition_temperatures(frame.drop(cold))
    with pytest.raises(ValueError, match=r"at n = 10, τ = 0.25 pair 7 has 0, and 5 more"):
        transition_temperatures(frame[(frame.n == 5) | (frame.pair < 7)])
    with pytest.raises(ValueError, match=r"pair 0 has 2;"):
        transition_temperatures(pd.concat([frame, frame.iloc[[0]]]))
    with pytest.raises(ValueError, match="got 4 runs without"):
        transition_temperatures(frame.astype({"met": object}).assign(met=lambda f: f.met.where(~f.index.isin(cold))))
    with pytest.raises(ValueError, match="n = 5 has runs at one temperature"):
        transition_temperatures(frame[frame.temperature == 0.5])


def test_one_pair_or_resamples_without_a_center_give_no_interval():
    (one,) = transition_temperatures(runs(1.0, 0.4, lengths=(5,), pairs=1), n_resamples=20).values()
    assert one.center > 0 and np.isnan(one.interval).all()
    rows = [(5, t, pair, t > 1.5 and pair == 0) for t in (0.5, 1.0, 2.0, 4.0) for pair in range(2)]
    rows[-1] = (5, 4.0, 1, True)
    frame = pd.DataFrame(rows, columns=["n", "temperature", "pair", "met"])
    frame.loc[(frame.pair == 1), "met"] = [True, False, False, False]  # falls: no center in a quarter of the resamples
    (found,) = transition_temperatures(frame, n_resamples=50).values()
    assert np.isfinite(found.centers).mean() < 0.9 and np.isnan(found.interval).all()


@pytest.mark.parametrize("met", [True, False])
def test_one_sided_data_give_no_center(met):
    frame = runs(1.0, 0.4, lengths=(5,), pairs=3).assign(met=met)
    (found,) = transition_temperatures(frame, n_resamples=3).values()
    assert np.isnan(found.center) and np.isnan(found.interval).all() and "outside" in str(found)


def test_missing_lengths_texts_and_temperatures_of_runs_are_refused():
    frame = runs(1.0, 0.4, lengths=(5, 10), pairs=8)
    for column in ("n", "temperature", "pair"):
        with pytest.raises(ValueError, match="every run must have its n, temperature and pair"):
            transition_temperatures(frame.assign(**{column: frame[column].astype(float).where(frame.n == 5)}))
    for met in (frame.met.astype(str), frame.met * 0.5 + 0.2):
        with pytest.raises(ValueError, match="met must be true or false"):
            transition_temperatures(frame.assign(met=met))
    with pytest.raises(ValueError, match="temperature must be > 0"):
        transition_temperatures(frame.replace({"temperature": {0.25: 0.0}}))
    with pytest.raises(ValueError, match="got 0 of 0"):
        transition_temperatures(frame[:0])


@pytest.mark.parametrize("looks, level", [([0, 1, 2, 9], 0.3), ([0, 1], 0.3), ([2, 1, 0], 0.3), ([0, 1, 2], np.nan),
                                          ([0, np.nan, 2], 0.3)])  # fmt: skip
def test_looks_that_are_not_those_of_the_distances_are_refused(looks, level):
    with pytest.raises(ValueError, match=r"looks must rise|distances must have shape"):
        hitting_times({5: [[0, 0.2, 0.6]]}, looks, level)


def test_groups_of_other_trials_and_bounds_of_no_chain_are_refused():
    n = np.repeat([5, 10], 3)
    for groups in ([0, 1, 2], [0, 1, 2, 0, 1, np.nan]):
        with pytest.raises(ValueError, match="one label for each of 6 rows"):
            compare_growth(n, n * 1.0, n * 2.0, groups=groups, n_resamples=2)
    for alpha, size, chance in ((np.nan, 5, 0.5), (-1, 5, 0.5), (0.5, 0, 0.5), (0.5, 5, 1.0), (0.5, 5, 2.0)):
        with pytest.raises(ValueError, match="alpha must be a number"):
            coalescence_bound(alpha, size, chance)
    with pytest.raises(ValueError, match="states must have shape"):
        coalescence_beside_mixing(exact.tabulate(IsingModel(np.zeros((2, 2))), 2), [0, 1], [1, 1], [1.0], n_steps=9)
