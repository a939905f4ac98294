"""One-step contraction, its crossing and the waterfall against enumeration and simulated data."""

import math

import numpy as np
import pytest
import scipy.stats
from conftest import codes, random_table

from glauber_lib import exact
from glauber_lib.contraction import (
    condition_thresholds,
    crossing_estimate,
    drawn_influence,
    drawn_neighbours,
    growth_with_effort,
    median_estimate,
    ratio_of_independent,
    waterfall,
)
from glauber_lib.couplings import coalesce
from glauber_lib.influence import Influence, measure_influence, replacement_tokens, threshold
from glauber_lib.models import TabularModel, all_states
from glauber_lib.stats import Estimate


def small_influence(seed=0, replacements=2):
    """Influence of a random table over eight contexts."""
    model = random_table(3, 4, seed=seed)
    contexts = np.random.default_rng(seed).integers(4, size=(8, 3))
    tried = replacement_tokens(model, contexts, replacements, seed=seed)
    return measure_influence(model, contexts, tried, [0.1, 0.3, 1.0, 3.0, 10.0])


# Drawn changes -----------------------------------------------------------------------------------------------------


def test_a_drawn_influence_gives_the_distance_after_one_coupled_step():
    model, state = random_table(3, 3), np.array([0, 1, 2])
    neighbours, sites = drawn_neighbours(model, state[None], 0.8, seed=3)
    assert (neighbours[0] != state).sum() == 1 and neighbours[0, sites[0]] != state[sites[0]]
    expected = 1 - (1 - drawn_influence(model, state[None], 0.8, seed=3)[0]) / 3
    run = coalesce(model, [state] * 20_000, [neighbours[0]] * 20_000, n_steps=1, temperature=0.8)
    distance = run.hamming[1]
    assert abs(distance.mean() - expected) < 4 * distance.std() / np.sqrt(20_000)


def test_neighbours_are_drawn_by_the_conditional_without_the_own_token():
    model, temperature = random_table(2, 3, seed=2), 0.7
    neighbours, sites = drawn_neighbours(model, np.tile([1, 0], (30_000, 1)), temperature, seed=1)
    assert abs(sites.mean() - 0.5) < 0.02
    law = exact.conditional_laws(model, 2, temperature)[1, codes(np.array([1, 0]), 3)].copy()
    law[0] = 0  # its own
    drawn = np.bincount(neighbours[sites == 1, 1], minlength=3)
    assert np.abs(drawn / drawn.sum() - law / law.sum()).max() < 0.02
    with pytest.raises(ValueError, match="needs two tokens"):
        drawn_neighbours(TabularModel(np.zeros((2, 1, 1))), [[0, 0]], 1.0)


def test_the_drawn_influence_is_at_most_alpha():
    model, states = random_table(3, 3, seed=5), all_states(3, 3)
    for temperature in (0.5, 2.0):
        alpha = exact.influence(model, 3, temperature).sum(0).max()
        assert drawn_influence(model, states, temperature, seed=0).max() <= alpha + 1e-12


# Intervals ---------------------------------------------------------------------------------------------------------

TAUS = np.array([1.0, 2.0, 4.0, 8.0])


def simulated_influences(rng, size):
    """Influences float[size, K] of units of which each is c / τ with a random c of mean three."""
    return 3 * rng.lognormal(-0.125, 0.5, size)[:, None] / TAUS * rng.lognormal(-0.02, 0.2, (size, 4))


@pytest.mark.slow
def test_the_interval_of_a_crossing_covers():
    rng, truth, covered = np.random.default_rng(0), threshold(TAUS, 3 / TAUS), []
    for _ in range(500):
        low, high = crossing_estimate(TAUS, simulated_influences(rng, 30)).interval
        covered.append(low <= truth <= high)
    assert 0.90 <= np.mean(covered) <= 0.98


def test_a_crossing_outside_the_temperatures_is_no_number():
    assert np.isnan(crossing_estimate(TAUS, np.full((30, 4), 0.5)).value)


@pytest.mark.parametrize("n", [20, 30])
def test_the_interval_of_a_median_covers(n):
    rng = np.random.default_rng(n)
    found = [median_estimate(rng.lognormal(0, 1, n)).interval for _ in range(500)]
    assert 0.94 <= np.mean([low <= 1 <= high for low, high in found]) <= 0.99
    assert np.isnan(median_estimate(np.arange(5.0)).interval).all()
    assert median_estimate(np.arange(6.0)).interval == (0, 5)


def test_the_interval_of_a_ratio_covers():
    rng, covered = np.random.default_rng(1), []
    for _ in range(500):
        samples = 5 * rng.lognormal(0, 0.4, 30), 2 * rng.lognormal(0, 0.4, 20)
        ends = [scipy.stats.t.interval(0.95, len(s) - 1, s.mean(), scipy.stats.sem(s)) for s in samples]
        above, below = (Estimate(s.mean(), tuple(e), len(s), "chains") for s, e in zip(samples, ends, strict=True))
        ratio = ratio_of_independent(above, below)
        covered.append(ratio.interval[0] <= 2.5 <= ratio.interval[1])
        assert ratio.n == 20 and ratio.interval[0] < ratio.value < ratio.interval[1]
    assert 0.90 <= np.mean(covered) <= 0.98
    assert ratio_of_independent(above, Estimate(2.0, None, 9, "pairs")).interval is None
    with pytest.raises(ValueError, match="needs positive estimates"):
        ratio_of_independent(above, Estimate(0.0, None, 9, "pairs"))


# Thresholds --------------------------------------------------------------------------------------------------------


def test_thresholds_are_ordered_as_the_theorems_are():
    found = condition_thresholds(small_influence())
    assert found["spectral radius"] <= found["spectral norm"] * (1 + 1e-9)
    assert found["spectral radius"] <= min(found["alpha"], found["row sum"]) * (1 + 1e-9)
    assert found["alpha"] <= found["tanh"] <= found["oscillation"] * 1.05  # but for interpolation


def test_thresholds_grow_with_effort_up_to_those_of_everything():
    found = small_influence(replacements=4)
    table, whole = growth_with_effort(found, [1, 2, 4, 8]), condition_thresholds(found)
    assert list(table.replacements.unique()) == [2, 4]
    for _, rows in table.groupby("replacements"):
        assert (rows[["alpha", "oscillation"]].diff().dropna() >= -1e-12).all(None)
    for name in ("alpha", "oscillation"):
        assert table[name].iloc[-1] == pytest.approx(whole[name])
        assert (table[f"{name}_low"] <= table[name] + 1e-12).all()


def test_the_waterfall_of_a_known_system():
    n, temperatures = 3, np.array([0.5, 1.0, 2.0, 4.0, 8.0])
    strength = np.array([0.5, 0.75])[:, None, None, None, None] * (1 - np.eye(n))  # two contexts
    tv = np.broadcast_to(strength / temperatures[:, None, None], (2, 1, 5, n, n)).copy()
    found = Influence(temperatures, tv, 4 * np.broadcast_to(strength[:, :, 0], (2, 1, n, n)) * 1.5)
    table = waterfall(
        found, found, Estimate(1.2, (1.1, 1.3), 30, "chains"), Estimate(1.0, (0.9, 1.2), 20, "pairs"), 1.8
    )
    assert (table.temperature.diff().dropna() <= 1e-9).all()
    assert table.temperature.iloc[0] == pytest.approx(2.25) and table.temperature.iloc[2] == 1.8
    by_step = table.set_index("step").temperature
    np.testing.assert_allclose(by_step.iloc[3:6], 1.5)
    np.testing.assert_allclose(by_step.iloc[6:8], 1.25)
    assert list(table.kind.iloc[-2:]) == ["estimate"] * 2 and (table.kind.iloc[:-2] == "lower bound").all()
    assert table.over_next.iloc[-2] == pytest.approx(1.2) and np.isnan(table.over_next.iloc[-1])
    assert len(waterfall(found, found, Estimate(1.2, None, 30, "chains"), Estimate(1.0, None, 20, "pairs"))) == 9


def test_the_interval_of_a_median_is_that_of_order_statistics_at_every_size():
    for n in (6, 20, 100, 1_000, 1_030, 5_000):
        low, high = median_estimate(np.arange(float(n))).interval
        left_out = int(low)  # values below the interval, and as many above it
        assert high == n - 1 - left_out
        ways = [sum(math.comb(n, k) for k in range(most + 1)) for most in (left_out, left_out + 1)]
        assert 40 * ways[0] <= 2**n < 40 * ways[1]  # a fortieth in each tail
