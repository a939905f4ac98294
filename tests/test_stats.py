"""Intervals, verdicts and estimates against what is known by hand, and how often they cover."""

import dataclasses
import itertools

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.proportion import proportion_confint

from glauber_lib.stats import (
    Estimate,
    binned_intervals,
    bootstrap_estimate,
    bootstrap_interval,
    convergence,
    mean_band,
    percentile_interval,
    poisson_interval,
    rank_correlation,
    share_estimate,
    true_runs,
    verdict,
    wilson_interval,
)

# Verdicts ------------------------------------------------------------------------------------------------------------


def judged(interval, side, than, **change):
    whole = {
        "value": change["value"] if "value" in change else np.mean(interval or np.nan),
        "interval": interval,
        "n": 30,
        "unit": "passages",
    }
    return verdict(Estimate(**(whole | change)), side, than)[0]


@pytest.mark.parametrize(
    "interval, said",
    [((0.1, 0.2), "holds"), ((-0.2, -0.1), "does not hold"), ((-0.1, 0.1), "undecided"), ((0.0, 0.1), "undecided")],
)
def test_a_verdict_needs_the_interval_on_one_side(interval, said):
    low, high = interval
    assert judged(interval, "above", 0) == judged((low + 5, high + 5), "above", 5) == said
    assert judged((-high, -low), "below", 0) == said
    other = {"holds": "does not hold", "does not hold": "holds", "undecided": "undecided"}
    assert judged(interval, "below", 0) == other[said]


@pytest.mark.parametrize(
    "interval, said",
    [((0.95, 1.05), "holds"), ((1.2, 1.3), "does not hold"), ((0.5, 0.8), "does not hold"), ((1.0, 1.2), "undecided"),
     ((0.5, 1.5), "undecided")],
)  # fmt: skip
def test_inside_holds_if_the_whole_interval_is_and_outside_is_its_contrary(interval, said):
    assert judged(interval, "inside", [0.9, 1.1]) == said
    other = {"holds": "does not hold", "does not hold": "holds", "undecided": "undecided"}
    assert judged(interval, "outside", [0.9, 1.1]) == other[said]


@pytest.mark.parametrize(
    "kind, above, below",
    [
        ("exact", "holds", "does not hold"),
        ("lower bound", "holds", "does not hold"),  # the true value is larger still
        ("upper bound", "undecided", "undecided"),
        ("estimate", "undecided", "undecided"),  # without an interval
    ],
)
def test_a_value_without_an_interval_decides_by_what_it_is(kind, above, below):
    for side, said in (("above", above), ("below", below)):
        assert judged(None, side, 1.0, value=2.0, kind=kind) == said
    assert judged(None, "below", 3.0, value=2.0, kind="upper bound") == "holds"
    assert judged(None, "below", 3.0, value=2.0, kind="lower bound") == "undecided"


@pytest.mark.parametrize("interval", [(np.nan, np.nan), (np.nan, np.inf), (-np.inf, np.inf)])
def test_an_interval_that_knows_nothing_decides_nothing(interval):
    assert judged(interval, "above", 0, value=1.0) == judged(interval, "below", 0, value=1.0) == "undecided"


def test_a_test_rejects_or_decides_nothing_and_a_measured_number_claims_nothing():
    assert judged(None, "test", 0.05, value=0.01, kind="exact") == "holds"
    assert judged(None, "test", 0.05, value=0.5, kind="exact") == "undecided"
    assert judged(None, "measured", None, value=0.5) == "measured"
    assert judged(None, "above", 0, value=np.nan) == "not measurable here"


@pytest.mark.parametrize(
    "side, than", [("above", 2.0), ("below", 2.0), ("inside", [2.0, 3.0]), ("outside", [1.0, 2.0])]
)
def test_an_exact_value_at_the_bound_is_not_on_the_claim_s_side(side, than):
    assert judged(None, side, than, value=2.0, kind="exact") == "does not hold"


def test_an_interval_decides_without_a_value():
    median = {"value": np.nan, "kind": "censored"}  # fewer than half had the event
    assert judged((550.0, np.inf), "above", 500, **median) == "holds"
    assert judged((550.0, np.inf), "below", 500, **median) == "does not hold"
    for interval in ((550.0, np.inf), (np.nan, np.inf), None):
        assert judged(interval, "above", 600, **median) == "not measurable here"
    assert judged((0.0, 0.01), "test", 0.05, **median) == "not measurable here"


def test_below_the_least_number_there_is_no_verdict_and_what_would_decide_is_said():
    estimate = Estimate(0.1, (-0.1, 0.3), 30, "passages")
    rule, more = "must lie above 0", "passages would decide if the value stayed"
    assert verdict(estimate, "above", 0) == ("undecided", f"{rule}; about 120 {more}")
    estimate = Estimate(0.05, (-0.36, 0.4), 107, "passages")
    assert verdict(estimate, "above", 0)[1] == f"{rule}; about 7,200 {more}"  # 7194.68, two digits, rounded up
    said, why = verdict(Estimate(0.1, (0.05, 0.3), 29, "passages"), "above", 0, least=30)
    assert said == "undecided" and why == "29 passages, at least 30 are needed; must lie above 0"


@pytest.mark.parametrize(
    "side, than", [("beside", 0), ("above", None), ("above", [0, 1]), ("inside", 0.5), ("outside", [5, 1])]
)
def test_a_rule_that_makes_no_sense_is_refused(side, than):
    with pytest.raises(ValueError, match=r"side must be one of|asks for"):
        judged((0.1, 0.2), side, than)


# Estimates -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change, message",
    [
        ({"kind": "guess"}, "kind must be one of"),
        ({"n": -1}, "n must be a number of units, got -1"),
        ({"n": 2.5}, "n must be a number of units, got 2.5"),
        ({"unit": ""}, "unit must name"),
        ({"interval": (0.6, 0.4)}, "a lower and an upper end"),
        ({"interval": (0.1, 0.2, 0.3)}, "a lower and an upper end"),
        ({"kind": "exact"}, "an exact value has no interval"),
        ({"kind": "".join(("ex", "act"))}, "an exact value has no interval"),  # another text of the same letters
    ],
)
def test_an_estimate_refuses_what_is_none(change, message):
    whole = {"value": 0.5, "interval": (0.4, 0.6), "n": 30, "unit": "passages"}
    assert Estimate(**whole).kind == "estimate"
    with pytest.raises(ValueError, match=message):
        Estimate(**(whole | change))


def test_an_estimate_reads_in_one_line():
    assert str(Estimate(0.4211, (0.36, 0.489), 31, "passages")) == "0.421 [0.36, 0.489] (31 passages)"
    assert str(Estimate(8.8, None, 20, "contexts", "lower bound")) == "≥ 8.8 (20 contexts)"
    assert str(Estimate(0.1, None, 20, "contexts", "upper bound")) == "≤ 0.1 (20 contexts)"
    assert str(Estimate(0.0, None, 8, "states", "exact")) == "0 (exact, 8 states)"
    assert str(Estimate(671, (300, np.inf), 42, "traps", "censored")) == "671 [300, inf] (censored, 42 traps)"


def test_an_estimate_of_a_mean_counts_the_units_that_were_drawn():
    values, passages = np.random.default_rng(0).normal(size=12), np.repeat(["a", "b", "c"], 4)
    rows = bootstrap_estimate(values, unit="rectangles", n_resamples=50)
    assert (rows.value, rows.n, rows.unit) == (values.mean(), 12, "rectangles")
    assert rows.interval == bootstrap_interval(values, n_resamples=50)
    grouped = bootstrap_estimate(values, groups=passages, unit="passages", statistic=np.median, n_resamples=50, seed=3)
    assert (grouped.value, grouped.n) == (np.median(values), 3)
    assert grouped.interval == bootstrap_interval(values, groups=passages, statistic=np.median, n_resamples=50, seed=3)


# Shares and means ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("successes, n", [(0, 6), (1, 6), (6, 6), (50, 200)])
def test_the_ends_of_wilson_s_interval_are_the_shares_at_196_standard_errors(successes, n):
    found = share_estimate(successes, n, unit="pairs")
    low, high = found.interval
    assert (found.value, found.n) == (successes / n, n) and 0 <= low <= successes / n <= high <= 1
    z = scipy.stats.norm.ppf(0.975)
    for end, side in ((low, 1), (high, -1)):
        if 0 < end < 1:
            assert side * (found.value - end) / np.sqrt(end * (1 - end) / n) == pytest.approx(z)
    assert (low == 0) == (successes == 0) and (high == 1) == (successes == n)
    assert found.interval == pytest.approx(proportion_confint(successes, n, method="wilson"), abs=1e-12)


def test_a_band_is_that_of_student_and_nan_where_the_units_are_equal():
    samples = np.array([[0.0, 0.9, 0.5], [1.0, 1.0, 0.5], [0.8, 1.1, 0.5]])
    table = mean_band(samples)
    np.testing.assert_allclose(table["mean"], [0.6, 1.0, 0.5])
    for k in range(2):
        ends = scipy.stats.ttest_1samp(samples[:, k], 0.0).confidence_interval()
        np.testing.assert_allclose(table.loc[k, ["low", "high"]].astype(float), ends)
    assert table.loc[2, ["low", "high"]].isna().all() and mean_band(samples[:1])[["low", "high"]].isna().all(axis=None)


def test_a_band_that_is_cut_still_holds_its_mean():
    samples = np.array([[1.9, 0.2], [1.0, 0.4], [1.2, 0.3]])
    table, cut = mean_band(samples), mean_band(samples, within=(0, 1))
    assert cut.high.tolist() == [table["mean"][0], table.high[1]] and cut.low.tolist() == table.low.tolist()
    assert mean_band(samples, within=(0, 2)).high.tolist() == [2, table.high[1]]


def test_a_share_of_no_units_is_no_number():
    found = share_estimate(0, 0, unit="chains")
    assert np.isnan([found.value, *found.interval]).all() and judged(None, "above", 0, value=found.value) != "holds"
    assert judged((np.nan, np.nan), "above", 0, value=2.0, kind="lower bound") == "undecided"


def test_the_percentile_interval_leaves_a_fortieth_on_either_side():
    assert percentile_interval(np.arange(201)) == (5, 195)
    for draws in ([], [1.0, np.nan], [3.0], [3.0] * 100, [np.inf] * 9):
        assert np.isnan(percentile_interval(draws)).all()
    assert percentile_interval([*range(90), *[np.inf] * 10]) == (2, np.inf)


# Bootstrap ---------------------------------------------------------------------------------------------------------


def test_bootstrap_interval_covers_the_mean_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    covered = [low <= 3.0 <= high for low, high in
               (bootstrap_interval(rng.normal(3.0, 2.0, 50), n_resamples=300, seed=k) for k in range(200))]  # fmt: skip
    assert 0.88 <= np.mean(covered) <= 0.985


def test_bootstrap_interval_has_the_width_of_the_standard_error():
    sample = np.random.default_rng(1).normal(0, 1, 400)
    low, high = bootstrap_interval(sample)
    assert high - low == pytest.approx(2 * 1.96 * sample.std(ddof=1) / 20, rel=0.1)
    assert low < sample.mean() < high


def test_bootstrap_interval_resamples_pairs_together():
    x = np.arange(30.0)
    alone = bootstrap_interval(x, n_resamples=100, statistic=np.median)
    ends = bootstrap_interval(x, 2 * x, statistic=lambda a, b: np.median(a) + np.mean(b - 2 * a), n_resamples=100)
    np.testing.assert_allclose(ends, alone)


@pytest.mark.parametrize("values", [[2.5] * 3, [2.5] * 8, [7.0], [], [0.1] * 30, [1.0, np.nan] * 4, [5.0] * 29 + [6.0]])
def test_values_that_tell_nothing_of_a_spread_have_no_interval(values):
    assert np.isnan(bootstrap_interval(values, statistic=np.median)).all()
    if np.ptp(values or 0) == 0 or np.isnan(values).any():
        assert np.isnan(bootstrap_interval(values)).all()
        assert np.isnan(bootstrap_interval(values, groups=np.arange(len(values)) // 2)).all()


def test_a_nan_is_not_skipped_by_a_statistic_that_would():
    found = bootstrap_estimate([*range(9), np.nan], unit="chains", statistic=lambda x: (x > 3).mean())
    assert np.isnan([found.value, *found.interval]).all() and found.n == 10


def test_the_mean_of_a_few_units_has_student_s_interval_and_another_statistic_none():
    values = [1.0, 4.0, 2.0, 2.5]
    np.testing.assert_allclose(bootstrap_interval(values), scipy.stats.ttest_1samp(values, 0.0).confidence_interval())
    assert np.isnan(bootstrap_interval(values, statistic=np.median)).all()
    grouped = bootstrap_interval(np.repeat(values, 3), groups=np.repeat(list("abcd"), 3))
    np.testing.assert_allclose(grouped, bootstrap_interval(values))


@pytest.mark.parametrize("values", [[True] * 8, [True, False] * 4])
def test_the_mean_of_truth_values_is_a_share(values):
    assert bootstrap_interval(values) == share_estimate(sum(values), 8, unit="chains").interval


def bernoulli(rng, n):
    return (np.repeat(rng.random(n) < 0.4, 3) + 0.1 * rng.normal(size=3 * n), np.repeat(np.arange(n), 3))


def ragged(rng, n):
    group = np.repeat(np.arange(n), rng.integers(2, 7, size=n))
    return rng.normal(size=n)[group] + rng.normal(size=len(group)), group


LAWS = {
    "normal": (lambda rng, n: (rng.normal(size=n), None), np.mean, 0.0),
    "exponential": (lambda rng, n: (rng.exponential(size=n), None), np.mean, 1.0),
    "grouped": (ragged, np.mean, 0.0),
    "grouped shares": (bernoulli, np.mean, 0.4),
    "share": (lambda rng, n: (rng.random(n) < 0.3, None), np.mean, 0.3),
    "median": (lambda rng, n: (rng.exponential(size=n), None), np.median, np.log(2)),
    "grouped median": (ragged, np.median, 0.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("n", [8, 20, 30])
@pytest.mark.parametrize("law", LAWS)
def test_intervals_cover_about_as_often_as_they_say(law, n):
    draw, statistic, true = LAWS[law]
    covered = []
    for k in range(500):
        values, groups = draw(np.random.default_rng([k, n]), n)
        low, high = bootstrap_interval(values, groups=groups, statistic=statistic, n_resamples=400, seed=k)
        covered.append(low <= true <= high)
    assert 0.90 <= np.mean(covered) <= (0.995 if "share" in law else 0.985)  # a share has few values


@pytest.mark.parametrize("n", [4, 8, 20, 30])
def test_bands_and_exact_intervals_cover_about_as_often_as_they_say(n):
    rng = np.random.default_rng(n)
    table = mean_band(rng.normal(size=(n, 500)))
    assert 0.92 <= ((table.low <= 0) & (table.high >= 0)).mean() <= 0.98
    ends = [poisson_interval(k) for k in rng.poisson(n, size=500)]
    assert np.mean([low <= n <= high for low, high in ends]) >= 0.94  # exact: it may cover more


def test_bootstrap_of_groups_of_one_row_is_that_of_rows():
    sample = np.random.default_rng(2).gamma(1.0, 1.0, 120)
    rows = bootstrap_interval(sample, n_resamples=8_000)
    groups = bootstrap_interval(sample, groups=np.arange(120), n_resamples=8_000)
    np.testing.assert_allclose(groups, rows, atol=0.1 * (rows[1] - rows[0]))


def test_bootstrap_of_groups_of_copies_is_that_of_one_row_each():
    sample, groups = np.random.default_rng(3).normal(0, 1, 60), np.arange(60)
    copies = bootstrap_interval(np.repeat(sample, 4), groups=np.repeat(groups, 4))
    np.testing.assert_allclose(copies, bootstrap_interval(sample, groups=groups), atol=1e-12)  # copies add nothing
    low, high = bootstrap_interval(np.repeat(sample, 4))  # taken for independent: half as wide
    assert (high - low) / (copies[1] - copies[0]) == pytest.approx(0.5, abs=0.06)


def test_bootstrap_of_groups_keeps_pairs_and_needs_no_order_of_the_rows():
    x, groups = np.random.default_rng(4).normal(size=30), np.array(list("abcdef") * 5)
    again = bootstrap_interval(x, groups=groups)
    assert again == bootstrap_interval(x, groups=groups) != bootstrap_interval(x, groups=groups, seed=1)
    assert np.isnan(bootstrap_interval(x, 2 * x, statistic=rank_correlation, groups=groups, n_resamples=100)).all()
    order = np.random.default_rng(0).permutation(30)
    np.testing.assert_allclose(bootstrap_interval(x[order], groups=groups[order]), again)


def test_one_group_gives_no_interval_and_groups_must_fit():
    interval = bootstrap_interval([1.0, 2.0], groups=["a", "a"])
    assert np.isnan(interval).all()
    with pytest.raises(ValueError, match="one label for each of 2 rows"):
        bootstrap_interval([1.0, 2.0], groups=[0, 1, 2])


def test_rank_correlation_is_that_of_scipy():
    x, y = np.random.default_rng(0).integers(0, 5, (2, 40))  # with ties
    assert rank_correlation(x, y) == pytest.approx(scipy.stats.spearmanr(x, y).statistic)


def test_a_rank_correlation_that_cannot_be_computed_is_no_number():
    assert np.isnan(rank_correlation([1, 1, 1], [1, 2, 3])) and np.isnan(rank_correlation([1, 2, 3], [1, np.nan, 3]))
    assert rank_correlation([1, 2, np.inf], [1, 2, 3]) == pytest.approx(1)


def test_a_bin_with_a_nan_has_no_mean_and_a_row_without_a_place_is_refused():
    table = binned_intervals(np.arange(12), [*range(11), np.nan], bins=2)
    assert table["mean"][0] == 2.5 and table.loc[1, ["mean", "low", "high"]].isna().all()
    with pytest.raises(ValueError, match="nan or infinity in 1 rows"):
        binned_intervals([*range(11), np.nan], np.arange(12))


def test_bins_of_rows_that_share_a_passage_are_as_wide_as_those_of_one_row_a_passage():
    rng, x = np.random.default_rng(0), np.repeat(np.arange(3.0), 40)
    y, copies = rng.normal(size=120), 5
    once = binned_intervals(x, y, bins=3)
    by_passage = binned_intervals(
        np.repeat(x, copies), np.repeat(y, copies), groups=np.repeat(np.arange(120), copies), bins=3
    )
    by_row = binned_intervals(np.repeat(x, copies), np.repeat(y, copies), bins=3)
    width = lambda table: (table.high - table.low).to_numpy()  # noqa: E731
    np.testing.assert_allclose(width(by_passage), width(once), rtol=0.1)  # copies of a row add nothing
    np.testing.assert_allclose(width(by_row), width(once) / np.sqrt(copies), rtol=0.15)  # taken for independent


def test_bins_hold_every_row_and_equal_values_stay_together():
    x = np.array([9, 8, 7, 6, 5, 4, 3, 2, 1, 1, 1, 1])
    table = binned_intervals(x, 10.0 * x, groups=np.arange(12), bins=4)
    assert table.n.tolist() == [6, 3, 3]  # the first quartile is a one, as the smallest is
    assert table["mean"].tolist() == [15, 50, 80] and table.x.tolist() == [1, 5, 8]
    assert (table.low <= table["mean"]).all() and (table["mean"] <= table.high).all()


# Runs of flags ----------------------------------------------------------------------------------------------------


@given(st.lists(st.booleans(), max_size=20))
def test_runs_of_true_flags_are_maximal_and_hold_all_of_them(flags):
    runs = true_runs(flags).tolist()
    again = np.zeros(len(flags), bool)
    for first, end in runs:
        assert first < end and not again[first:end].any()
        again[first:end] = True
    assert again.tolist() == flags
    assert all(end < first for (_, end), (first, _) in itertools.pairwise(runs))  # else they were one


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


def test_chains_that_stand_still_converge_nowhere():
    np.testing.assert_equal(convergence(np.full((3, 10), 0.3)), {"rhat": np.nan, "ess": np.nan, "stuck": 3})
    apart = convergence(np.repeat([[0.0], [1.0]], 10, axis=1))  # each at its own value
    np.testing.assert_equal(apart, {"rhat": np.inf, "ess": np.nan, "stuck": 2})


def test_chains_that_stand_still_but_for_one_visit_are_stuck():
    draws = np.zeros((4, 200))
    draws[0, 50] = 1.0
    np.testing.assert_equal(convergence(draws), {"rhat": np.inf, "ess": np.nan, "stuck": 4})
    moving = np.random.default_rng(0).normal(size=(4, 201))
    moving[2, 101:] = 0.0  # one chain, in one half
    np.testing.assert_equal(convergence(moving), {"rhat": np.inf, "ess": np.nan, "stuck": 1})
    moving[2, 150] = 1e-9
    assert convergence(moving)["stuck"] == 0
    with pytest.raises(ValueError, match="finite, got 1"):
        convergence(np.where(moving == 1e-9, np.nan, moving))


def test_chains_that_rounding_alone_moves_are_stuck():
    rng = np.random.default_rng(0)
    noise = 1 + 2.0**-52 * rng.integers(0, 2, size=(4, 100))
    assert np.isnan(convergence(noise)["rhat"]) and convergence(noise)["stuck"] == 4
    one = convergence(np.vstack([rng.normal(size=(3, 100)), noise[:1]]))
    assert (one["rhat"], one["stuck"]) == (np.inf, 1)


@pytest.mark.parametrize("shape", [(100,), (1, 100), (4, 3), (2, 5, 5), (0, 9)])
def test_draws_of_wrong_shape_are_refused(shape):
    with pytest.raises(ValueError, match="at least 2 chains of 4 draws"):
        convergence(np.random.default_rng(0).normal(size=shape))


def test_counts_that_are_none_are_refused():
    for make in (lambda: wilson_interval(2.7, 10), lambda: wilson_interval(11, 10), lambda: wilson_interval(1, 0),
                 lambda: poisson_interval(2.5), lambda: poisson_interval(-1), lambda: poisson_interval(np.nan),
                 lambda: share_estimate(1, 0, unit="pairs"), lambda: bootstrap_interval([1, 2], n_resamples=0),
                 lambda: bootstrap_interval([1, 2], seed=None)):  # fmt: skip
        with pytest.raises(ValueError, match="must be a whole number"):
            make()


def test_a_p_value_that_is_none_and_a_number_of_units_without_end_are_refused():
    for p in (-1, 1.5):
        with pytest.raises(ValueError, match="asks for a p-value"):
            verdict(Estimate(p, None, 9, "chains"), "test", 0.05)
    with pytest.raises(ValueError, match="n must be a number of units, got inf"):
        Estimate(0.5, None, np.inf, "chains")  # pyright: ignore[reportArgumentType]


def test_an_estimate_pairs_rows_by_their_place_and_not_by_their_labels():
    x = pd.Series(np.arange(8.0) ** 2)
    y = pd.Series(np.arange(8.0), index=range(4, 12))
    found = bootstrap_estimate(x, y, unit="rows", statistic=lambda a, b: (a - b).max())
    assert (
        found.value
        == 42
        == bootstrap_estimate(list(x), list(y), unit="rows", statistic=lambda a, b: (a - b).max()).value
    )


def test_equal_places_are_one_bin_and_a_row_of_samples_is_no_table():
    table = binned_intervals([1.0] * 9, np.arange(9.0))
    assert table.n.tolist() == [9] and table["mean"].tolist() == [4]
    for x in ([], [1.0, np.inf]):
        with pytest.raises(ValueError, match="x must be finite"):
            binned_intervals(x, x)
    with pytest.raises(ValueError, match="samples must have shape"):
        mean_band([1.0, 2.0])
    assert np.isnan(mean_band([[0.1 + 0.2], [0.3], [0.3]]).low[0])
    assert true_runs([1, 2, 0, 0.5]).tolist() == [[0, 2], [3, 4]]


def test_a_chain_far_away_does_not_make_the_others_stand_still():
    draws = np.random.default_rng(0).normal(size=(4, 100))
    draws[0] = 1e14 * (1 + 0.1 * draws[0])
    found = convergence(draws)
    assert found["stuck"] == 0 and 1.1 < found["rhat"] < np.inf
    draws[1] = 7.0
    assert convergence(draws)["stuck"] == 1


def test_the_mean_of_two_samples_is_refused():
    x = np.random.default_rng(0).normal(size=30)
    for function, options in ((bootstrap_interval, {}), (bootstrap_estimate, {"unit": "passages"})):
        with pytest.raises(ValueError, match="the mean is that of one sample, got 2"):
            function(x, x, **options)
    assert bootstrap_interval(x, x**2, statistic=lambda a, b: np.mean(a * b))[0] < 1


@pytest.mark.parametrize("bins", [2.5, 0.5, [0, 0.5, 1], True, 0])
def test_a_number_of_bins_that_is_none_is_refused(bins):
    with pytest.raises(ValueError, match="bins must be a whole number >= 1"):
        binned_intervals(np.arange(20), np.arange(20), bins=bins)
    assert len(binned_intervals(np.arange(20), np.arange(20), bins=4.0)) == 4


@pytest.mark.parametrize("statistic", [np.mean, np.median])
def test_intervals_of_several_looks_cover_together(statistic):
    rng, covered, single = np.random.default_rng(3), [], []
    for seed in range(300 if statistic is np.mean else 100):
        values = rng.normal(size=(40, 4)) + 0.5 * rng.normal(size=(40, 1))
        options = {"statistic": statistic, "n_resamples": 400, "seed": seed}
        four = [bootstrap_interval(column, looks=4, **options) for column in values.T]
        covered.append(all(low <= 0 <= high for low, high in four))
        low, high = bootstrap_interval(values[:, 0], **options)
        single.append(four[0][0] < low and high < four[0][1])
    assert 0.9 <= np.mean(covered) and all(single)
    share = proportion_confint((values[:, 0] > 0).sum(), 40, 0.05 / 4, "wilson")
    assert bootstrap_interval(values[:, 0] > 0, looks=4) == pytest.approx(share)
    with pytest.raises(ValueError, match="4 looks need 160 resamples, got 100"):
        bootstrap_interval(values[:, 0], looks=4, n_resamples=100)


def test_a_statistic_of_few_units_at_many_looks_takes_more_resamples():
    values = np.random.default_rng(0).normal(size=20)
    options = {"statistic": lambda x: x.mean(), "looks": 10}
    assert np.isnan(bootstrap_interval(values[:6], n_resamples=20_000, **options)).all()
    low, high = bootstrap_interval(values, n_resamples=20_000, **options)
    student = scipy.stats.ttest_1samp(values, 0.0).confidence_interval(1 - 0.05 / 10)
    assert high - low == pytest.approx(student.high - student.low, rel=0.25)
    assert np.isnan(bootstrap_interval(values, statistic=np.median, n_resamples=40)).all()


# What no other test tells from a small fault (mutants.md) ------------------------------------------------------------


def test_an_estimate_is_not_changed_afterwards():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Estimate(0.5, None, 9, "chains").value = 0.6  # pyright: ignore[reportAttributeAccessIssue]


def test_a_p_value_of_one_is_a_p_value_and_an_interval_is_of_two_thousand_resamples():
    assert verdict(Estimate(1.0, None, 9, "chains"), "test", 0.05) == ("undecided", "p must be below 0.05")
    sample = np.random.default_rng(5).normal(size=20)
    assert bootstrap_interval(sample) == bootstrap_interval(sample, n_resamples=2_000)
    assert bootstrap_estimate(sample, unit="rows").interval == bootstrap_interval(sample, n_resamples=2_000)


def test_a_verdict_asks_for_no_number_of_units_by_itself():
    assert verdict(Estimate(0.15, (0.1, 0.2), 0, "passages"), "above", 0) == ("holds", "must lie above 0")


def test_two_units_have_student_s_interval():
    ends = scipy.stats.ttest_1samp([1.0, 2.0], 0.0).confidence_interval()
    np.testing.assert_allclose(bootstrap_interval([1.0, 2.0]), ends)


def test_a_median_is_resampled_in_whole_groups():
    sample, groups = np.random.default_rng(3).normal(size=15), np.arange(15)
    copies = bootstrap_interval(np.repeat(sample, 4), groups=np.repeat(groups, 4), statistic=np.median, n_resamples=99)
    np.testing.assert_allclose(copies, bootstrap_interval(sample, statistic=np.median, n_resamples=99))


def test_a_rule_of_two_ends_names_both_and_bins_are_six():
    assert verdict(Estimate(1.0, (0.95, 1.05), 9, "chains"), "inside", (0.9, 1.1)) == (
        "holds",
        "must lie inside 0.9 to 1.1",
    )
    assert binned_intervals(np.arange(60), np.arange(60)).n.tolist() == [10] * 6
