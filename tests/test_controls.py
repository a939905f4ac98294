"""Controls of the scorers: by hand, and intervals that cover at the n of the claims."""

import numpy as np
import pytest

from glauber_lib.controls import (
    chance_crossing,
    crossing_excess,
    first_crossings,
    shuffle_sites,
    surviving_difference,
)


def covered(estimates, truth):
    """Share of the intervals that hold the truth."""
    return np.mean([low <= truth <= high for low, high in (estimate.interval for estimate in estimates)])


def test_a_shuffled_state_has_the_same_tokens_in_an_order_of_its_own():
    states = np.tile(np.arange(12), (4, 3, 1))
    shuffled = shuffle_sites(states, np.random.default_rng(0))
    np.testing.assert_array_equal(np.sort(shuffled, axis=-1), states)
    assert len(np.unique(shuffled.reshape(-1, 12), axis=0)) == 12
    np.testing.assert_array_equal(shuffled, shuffle_sites(states, np.random.default_rng(0)))


def test_crossings_by_hand():
    low, crossed = first_crossings([[[0.1, 0.5], [0.1, 0.1]], [[0.3, 0.0], [0.1, 0.1]], [[0.0, 0.9], [0.2, 0.1]]], 0.2)
    assert low.tolist() == [[True, False], [True, True]]
    assert crossed.tolist() == [[True, False], [False, False]]  # 0.2 is not above 0.2; label 1 started above


def test_the_excess_of_crossings_by_hand():
    low = np.array([[1, 1, 1, 1], [1, 1, 0, 1], [0, 1, 1, 1], [1, 1, 1, 1]], bool)
    crossed = np.array([[1, 1, 0, 1], [1, 0, 0, 1], [0, 1, 1, 1], [0, 1, 0, 0]], bool)
    # of label 0: seeds 3, 1, 1, 0; the third chain starts above its baseline, of the last one it is the seed's own
    estimate = crossing_excess(low, crossed, [3, 1, 1, 0], 0)
    assert estimate.n == 2 and estimate.value == pytest.approx(((1 - 1 / 2) + (1 - 1)) / 2)
    assert np.isnan(crossing_excess(low & False, crossed & False, [3, 1, 1, 0], 0).value)


def test_the_chance_of_a_crossing_is_that_of_any_of_several_looks():
    assert chance_crossing(0.25, 1) == pytest.approx(0.25) and chance_crossing(0.5, 3) == pytest.approx(7 / 8)


def test_the_difference_that_survival_makes_by_hand():
    values = np.array([[1.0, 4.0, 3.0], [2.0, 6.0, 5.0]])  # (looks, chains)
    survives = np.array([[True, True, False], [False, True, False]])
    estimate = surviving_difference(values, survives)
    assert estimate.n == 2 and estimate.value == pytest.approx((1 - 1.5 + 0) / 2)  # of the last chain no look survives
    assert np.isnan(surviving_difference(values, survives & False).value)


@pytest.mark.slow
def test_intervals_of_thirty_chains_cover_in_500_draws():
    rng, crossings, differences = np.random.default_rng(0), [], []
    for _ in range(500):
        level = rng.beta(2, 6, size=(1, 30, 1))  # chains differ in how much they fluctuate
        crossed = (rng.random((20, 30, 9)) < 0.15 * level).any(0)
        crossings.append(crossing_excess(np.ones((30, 9), bool), crossed, rng.integers(1, 9, 30), 0))
        survives = rng.random((10, 30)) < 0.8
        values = rng.beta(1, 4, size=(1, 30)) + 0.1 * rng.exponential(size=(10, 30)) - 0.04 * ~survives
        differences.append(surviving_difference(values, survives))
    assert 0.90 <= covered(crossings, 0.0) <= 0.98
    # a chain's mean over all looks is lower by 0.04 for each that is lost: 0.2 in the mean, a chance of 0.8^10 of none
    assert 0.90 <= covered(differences, 0.04 * 0.2) <= 0.98


def test_what_is_no_score_and_no_label_is_refused():
    with pytest.raises(ValueError, match="must be numbers, got 1 nan"):
        first_crossings([[[np.nan]], [[0.3]]], 0.2)
    with pytest.raises(ValueError, match="baseline nan"):
        first_crossings([[[0.1]], [[0.3]]], np.nan)
    low = np.ones((2, 3), bool)
    with pytest.raises(ValueError, match="own must be"):
        crossing_excess(low, low, [0, -1], 1)
    with pytest.raises(ValueError, match="label must be a whole number"):
        crossing_excess(low, low, [0, 1], -1)
    with pytest.raises(ValueError, match="token"):
        shuffle_sites([[3, 4, -1]], np.random.default_rng(0))  # a fill would move to a site


@pytest.mark.parametrize(("share", "looks"), [(1.5, 3), (-0.1, 3), (np.nan, 3), (0.5, -1), (0.5, 2.5), (0.5, np.nan)])
def test_a_chance_of_no_share_or_no_count_is_refused(share, looks):
    with pytest.raises(ValueError, match=r"share must lie in 0 \.\. 1|looks must be a whole number"):
        chance_crossing(share, looks)
