"""Coalescence against known answers."""

from math import comb

import numpy as np
import pytest

from glauber_lib import exact
from glauber_lib.couplings import coalesce
from glauber_lib.crossover import budget, coalescence_beside_mixing, coalescence_bound, couple_passages, pair_times
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
    short = coalesce(IsingModel(np.zeros((2, 2))), x[:, :2], y[:, :2], n_steps=4)
    table = pair_times({2: short, 3: run})
    assert list(table.columns) == ["n", "temperature", "pair", "met", "time"] and len(table) == 12
    assert list(table.n.unique()) == [2, 3]
    one = table[table.n == 3]
    assert list(one.pair) == [0, 1, 2, 3] * 2 and list(one.temperature) == [0.5] * 4 + [2.0] * 4
    np.testing.assert_array_equal(one.met, ~run.censored)
    np.testing.assert_array_equal(one.time, np.nan_to_num(run.time, nan=4.0))
    assert run.censored.any() and not run.censored.all()
    with pytest.raises(ValueError, match="got states of 3 tokens for n = 9"):
        pair_times({3: run, 9: run})


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


def test_every_temperature_and_length_has_the_same_pairs_of_passages():
    model = IsingModel(np.zeros((3, 3)))
    passages = np.random.default_rng(3).integers(2, size=(9, 3))
    run = couple_passages(model, passages, [0.5, 2.0], n_pairs=4, n_steps=10, seed=5)
    order = np.random.default_rng([5, 0]).permutation(9)
    for k in range(2):
        np.testing.assert_array_equal(run.initial[0, 4 * k : 4 * k + 4], passages[order[:4]])
        np.testing.assert_array_equal(run.initial[1, 4 * k : 4 * k + 4], passages[order[4:8]])
    assert list(run.temperature) == [0.5] * 4 + [2.0] * 4 and run.n_steps == 10
    plain = coalesce(model, *run.initial, n_steps=10, temperature=run.temperature, seed=5)
    np.testing.assert_array_equal(run.time, plain.time)
    with pytest.raises(ValueError, match="10 passages, got 9"):
        couple_passages(model, passages, [1.0], n_pairs=5, n_steps=1)


def test_a_budget_is_a_multiple_of_n_log_n():
    assert budget(14, 6.0) == 222 and budget(5, 1.0) == round(5 * np.log(5))


def test_bounds_of_no_chain_are_refused():
    for alpha, size, chance in ((np.nan, 5, 0.5), (-1, 5, 0.5), (0.5, 0, 0.5), (0.5, 5, 1.0), (0.5, 5, 2.0)):
        with pytest.raises(ValueError, match="alpha must be a number"):
            coalescence_bound(alpha, size, chance)
    with pytest.raises(ValueError, match="states must have shape"):
        coalescence_beside_mixing(exact.tabulate(IsingModel(np.zeros((2, 2))), 2), [0, 1], [1, 1], [1.0], n_steps=9)
