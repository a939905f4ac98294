"""Permutation tests: p-values by hand, uniform without an effect, and small with a planted one."""

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from statsmodels.stats.multitest import multipletests

from glauber_lib.permutation import group_difference, holm, label_rises


def exchangeable_rises(n_chains, n_labels, rng, *, n_scorers=1):
    """Rises exchangeable in each chain but for its seed's label, which falls; chains differ in level and scale.

    Scorers agree in part, as two that read the same texts do.
    """
    level, scale = rng.normal(size=(n_chains, 1)), rng.exponential(size=(n_chains, 1)) + 0.2
    shared = rng.normal(size=(n_chains, n_labels))
    gains = level + scale * (shared + rng.normal(size=(n_scorers, n_chains, n_labels)))
    own = rng.integers(n_labels, size=n_chains)
    gains[:, np.arange(n_chains), own] -= 10
    return gains, own


def test_rise_excess_and_t_by_hand():
    table = label_rises([[[-9, 1, 3], [2, -9, 6], [-9, 1, 2]]], [0, 1, 0], n_resamples=20_000)
    assert list(table.rise) == [2, 1, 11 / 3]
    np.testing.assert_allclose(table.excess, [np.nan, (-2 - 1) / 2, (2 + 4 + 1) / 3])  # one chain tests the first label
    np.testing.assert_allclose(table.t[1:], [scipy.stats.ttest_1samp(d, 0).statistic for d in ([-2, -1], [2, 4, 1])])
    # the last label has the larger of two values in all three chains: one of eight ways
    assert table.p[2] == pytest.approx(1 / 8, abs=0.01) and table.p_max[2] >= table.p[2]


def test_a_planted_rise_is_found_by_each_scorer_and_no_other():
    gains, own = exchangeable_rises(40, 9, np.random.default_rng(0), n_scorers=2)
    gains[:, :, 3] += 2.5
    table = label_rises(gains, own, n_resamples=2_000).set_index(["scorer", "label"])
    for scorer in (0, 1):
        mine = table.loc[scorer]
        assert mine.p.idxmin() == mine.excess.idxmax() == 3
        assert mine.p[3] == mine.p_max[3] == 1 / 2_001  # never zero: the observed one is counted among the resamples
        assert mine.p_max.drop(3).min() > 0.05


def test_without_a_rise_the_p_values_are_uniform_and_the_corrected_ones_keep_their_level():
    rng = np.random.default_rng(1)
    tables = [
        label_rises(*exchangeable_rises(15, 5, rng, n_scorers=2), n_resamples=199, seed=k).assign(draw=k)
        for k in range(300)
    ]
    p = pd.concat(tables).groupby("draw").p.mean()
    assert abs(p.mean() - 0.5) < 3 * np.sqrt(1 / 12 / 300)  # variance 1/12 at most, if the ten of a table are the same
    least = pd.concat(tables).groupby("draw").p_max.min()
    for level in (0.05, 0.1, 0.3):
        assert abs((least <= level).mean() - level) < 3 * np.sqrt(level * (1 - level) / 300)


@pytest.mark.slow
def test_thirty_chains_of_nine_labels_by_two_scorers_keep_the_level_in_500_draws():
    rng = np.random.default_rng(2)
    least = [
        label_rises(*exchangeable_rises(30, 9, rng, n_scorers=2), n_resamples=199, seed=k).p_max.min()
        for k in range(500)
    ]
    assert abs(np.mean(np.array(least) <= 0.05) - 0.05) < 3 * np.sqrt(0.05 * 0.95 / 500)


@pytest.mark.slow
def test_a_label_that_varies_more_than_the_others_does_not_stand_out_by_that():
    rng, scale = np.random.default_rng(3), np.array([4.0, *np.linspace(0.5, 1.5, 8)])
    least = []
    for seed in range(500):
        gains, own = scale * rng.normal(size=(2, 30, 9)), rng.integers(9, size=30)
        least.append(label_rises(gains, own, n_resamples=199, seed=seed).p_max[0])
    assert np.mean(np.array(least) <= 0.05) < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 500)


def test_what_the_seed_s_own_label_does_is_left_out():
    gains, own = exchangeable_rises(30, 5, np.random.default_rng(2))
    other = gains.copy()
    other[:, np.arange(30), own] = 1e3
    table = label_rises(gains, own, n_resamples=300)
    pd.testing.assert_frame_equal(table, label_rises(other, own, n_resamples=300))
    assert table.excess.abs().max() < 2 < label_rises(gains, (own + 1) % 5, n_resamples=300).excess.abs().max()


def test_labels_that_no_chain_tests_are_nan_and_bad_input_is_refused():
    table = label_rises(np.random.default_rng(0).normal(size=(1, 6, 4)), np.zeros(6, int), n_resamples=99)
    assert table[["rise", "excess", "t", "p", "p_max"]].isna().all(1).tolist() == [True, False, False, False]
    assert label_rises(np.zeros((1, 6, 2)), np.zeros(6, int)).p.isna().all()  # of two labels nothing can be exchanged
    with pytest.raises(ValueError, match="finite"):
        label_rises(np.full((1, 6, 4), np.nan), np.zeros(6, int))
    with pytest.raises(ValueError, match="own"):
        label_rises(np.zeros((1, 6, 4)), np.full(6, 4))


def test_the_share_between_groups_and_its_p_value_by_hand():
    # groups {0, 2} and {6, 8} in the first column, the same mean twice in the second one
    values = np.array([[0.0, 1.0], [6.0, 1.0], [2.0, -1.0], [8.0, -1.0]])
    share, p = group_difference(values, ["b", "a", "b", "a"], n_resamples=20_000)
    assert share == pytest.approx(4 * 3**2 / (16 + 4 + 4 + 16 + 4))
    assert p == pytest.approx(1 / 3, abs=0.012)  # two of the six ways to halve four chains give as much


def test_the_share_and_p_value_of_one_column_are_those_of_the_analysis_of_variance():
    rng = np.random.default_rng(3)
    groups = np.repeat(["x", "y", "z"], [10, 20, 15])
    values = rng.normal(size=45) + 0.45 * (groups == "y")
    share, p = group_difference(values[:, None], groups, n_resamples=4_000)
    f, expected = scipy.stats.f_oneway(*(values[groups == g] for g in "xyz"))
    assert share == pytest.approx(2 * f / (2 * f + 42))
    assert 0.02 < expected < 0.5 and p == pytest.approx(expected, abs=0.03)


def test_a_planted_difference_of_groups_is_found_and_without_one_the_p_values_are_uniform():
    rng, groups = np.random.default_rng(4), np.repeat(np.arange(3), [4, 8, 6])
    p = []
    for seed in range(200):
        values = rng.exponential(size=(18, 1)) * rng.standard_t(3, size=(18, 4))
        p.append(group_difference(values, groups, n_resamples=100, seed=seed)[1])
    assert scipy.stats.kstest(p, "uniform").pvalue > 0.01
    values[:, 2] += 9.0 * groups
    assert group_difference(values, groups, n_resamples=500)[1] == 1 / 501


@pytest.mark.slow
def test_three_prefixes_of_thirty_passages_keep_the_level_in_500_draws():
    rng, (groups, blocks) = np.random.default_rng(6), np.indices((3, 30)).reshape(2, -1)
    p = []
    for seed in range(500):
        values = rng.standard_t(3, size=(30, 9))[blocks] + rng.exponential(size=(90, 1)) * rng.standard_t(3, (90, 9))
        p.append(group_difference(values, groups, blocks=blocks, n_resamples=99, seed=seed)[1])
    assert abs(np.mean(np.array(p) <= 0.05) - 0.05) < 3 * np.sqrt(0.05 * 0.95 / 500)


def test_blocks_take_out_what_the_starts_share():
    rng = np.random.default_rng(0)
    groups, blocks = np.repeat(np.arange(3), 8), np.tile(np.arange(8), 3)
    values = 10 * rng.normal(size=(8, 2))[blocks] + rng.normal(size=(24, 2))  # starts differ widely
    shifted = values + np.array([0.0, 1.5, 3.0])[groups, None]
    assert group_difference(shifted, groups, n_resamples=500)[1] > 0.1
    assert group_difference(shifted, groups, blocks=blocks, n_resamples=500)[1] < 0.01
    assert group_difference(values, groups, blocks=blocks, n_resamples=500)[1] > 0.05
    share, _ = group_difference(shifted, groups, blocks=np.zeros(24), n_resamples=10)
    assert share == group_difference(shifted, groups, n_resamples=10)[0]


@pytest.mark.parametrize("p", [[0.3], [0.01, 0.04, 0.03, 0.005], [0.2, 0.2, 0.2, 0.9, 0.01], [1 / 3, 1e-4, 1.0, 1e-4]])
def test_holm_s_correction_is_that_of_statsmodels(p):
    np.testing.assert_array_equal(holm(p), multipletests(p, method="holm")[1])


def test_a_seed_s_label_that_is_none_and_no_resamples_are_refused():
    gain = np.zeros((4, 3))
    for own in ([0, 1, 2, -1], [0, 1, 2, 3]):
        with pytest.raises(ValueError, match="own must hold one of the labels"):
            label_rises(gain[None], own)
    for options in ({"n_resamples": 0}, {"n_resamples": 1.5}, {"seed": 0.5}, {"seed": None}):
        with pytest.raises(ValueError, match="must be a whole number"):
            label_rises(gain[None], [0, 1, 2, 0], **options)
        with pytest.raises(ValueError, match="must be a whole number"):
            group_difference(gain, [0, 1, 0, 1], **options)


def test_a_nan_is_refused_and_a_test_that_cannot_be_done_gives_none():
    gains, own = exchangeable_rises(20, 9, np.random.default_rng(0), n_scorers=2)
    gains[1, 3, 4] = np.nan
    with pytest.raises(ValueError, match=r"gains must be finite, got nan or infinity in rows \[3\]"):
        label_rises(gains, own)
    with pytest.raises(ValueError, match=r"values must be finite.*rows \[3\]"):
        group_difference(gains[1], own)
    for wrong in (own - 9, own.astype(float) * np.nan, own[:5], own + 9, own + 0.5):
        with pytest.raises(ValueError, match="own must hold one of the labels"):
            label_rises(np.nan_to_num(gains), wrong)


@pytest.mark.parametrize(
    "values, groups, blocks",
    [
        (np.full((6, 2), 0.1), [0, 1] * 3, None),
        (np.arange(12.0).reshape(6, 2), [0] * 6, None),
        (np.arange(12.0).reshape(6, 2), [0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 1]),
        (np.repeat([[0.1], [0.7], [5.3]], 2, axis=0), [0, 1] * 3, [0, 0, 1, 1, 2, 2]),
    ],
)
def test_groups_that_cannot_differ_are_not_tested(values, groups, blocks):
    assert np.isnan(group_difference(values, groups, blocks=blocks, n_resamples=10)).all()
    with pytest.raises(ValueError, match="groups must hold one label for each of 6 rows"):
        group_difference(values, [np.nan] * 6)
    np.testing.assert_array_equal(holm([np.nan, 0.01, 0.02]), [np.nan, 0.02, 0.02])


def test_what_is_no_table_and_p_values_that_are_none_are_refused():
    values = np.arange(4.0)  # of one dimension, as one number for each chain: the share came out doubled
    for wrong in (values, values[:, None, None], np.zeros((0, 3))):
        with pytest.raises(ValueError, match="values must be a table"):
            group_difference(wrong, [0, 0, 1, 1])
    for wrong in (values, np.zeros((4, 3)), np.zeros((1, 0, 3))):
        with pytest.raises(ValueError, match=r"gains must have shape \(scorers, chains, labels\)"):
            label_rises(wrong, [0, 0, 1, 1])
    for p in ([-0.1, 0.2], [np.inf], [-np.inf, 0.1], [[0.1]]):
        with pytest.raises(ValueError, match="p must be a list of numbers in"):
            holm(p)


@pytest.mark.parametrize("scale", [1.0, 1e-15, 1e12])
def test_a_rise_that_all_chains_share_is_the_largest_whatever_the_unit(scale):
    own = np.array([0, 1, 2, 3, 0, 1, 2, 3])
    gains = scale * np.tile(np.eye(5)[4], (1, 8, 1))  # label 4 gains the same in every chain, the others nothing
    table = label_rises(gains, own, n_resamples=500)
    assert table.t[4] == np.inf and (table.t[:4] < 0).all()
    assert table.p[4] < 0.01 and table.p_max[4] < 0.05 and (table.p[:4] > 0.9).all()
    assert (label_rises(gains * 0 + scale / 3, own, n_resamples=50).t == 0).all()  # all gain the same: rounding alone
