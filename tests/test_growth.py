"""Growth laws and exponents on times of known laws, with censoring, at the sizes of the paper's profiles."""

import numpy as np
import pytest
import scipy.stats

from glauber_lib.growth import GROWTH, compare_growth, growth_exponents, slope_in_log_length

LENGTHS = (5, 8, 12, 18, 28)


def times(f, *, size=30, spread=0.4, shared=0.2, end=4.0, seed=0, lengths=LENGTHS):
    """Lengths, times 0.5 f(n) with log-normal scatter, whether each was seen by `end` n log n steps, passages."""
    rng = np.random.default_rng(seed)
    n, passage = np.repeat(np.array(lengths, float), size), np.tile(np.arange(size), len(lengths))
    time = 0.5 * f(n) * np.exp(spread * rng.normal(size=len(n)) + shared * rng.normal(size=size)[passage])
    return n, np.minimum(time, end * n * np.log(n)), time <= end * n * np.log(n), passage


def fits(compare, f, *, n_resamples=200, **options):
    n, time, seen, passage = times(f, **options)
    return compare(n, time, seen, groups=passage, n_resamples=n_resamples, seed=options.get("seed", 0))


@pytest.mark.parametrize("law", GROWTH)
def test_the_growth_law_that_made_the_times_has_the_lowest_aic(law):
    found = fits(compare_growth, GROWTH[law], end=40.0)
    assert found.aic.idxmin() == law and list(found.index[found.excess < 0]) == [law]
    assert found.low[law] < 0.5 < found.high[law] < 1.5 * found.low[law]
    assert found.excess[law] == pytest.approx(found.aic[law] - np.sort(found.aic)[1])
    assert (found.excess_low <= found.excess).all() and (found.excess <= found.excess_high).all()


def test_censored_trials_do_not_bias_the_growth():
    n, time, seen, passage = times(GROWTH["n log n"], size=200, end=0.6)
    assert 0.2 < 1 - seen.mean() < 0.6
    found = compare_growth(n, time, seen, groups=passage, n_resamples=20)
    assert found.a["n log n"] == pytest.approx(0.5, rel=0.06) and found.aic.idxmin() == "n log n"


@pytest.mark.slow
@pytest.mark.parametrize(("law", "other"), [("n log n", "n"), ("n", "n log n")])
def test_the_wrong_law_is_not_preferred_more_often_than_the_level(law, other):
    found = [fits(compare_growth, GROWTH[law], end=1.0, seed=seed, n_resamples=100) for seed in range(200)]
    wrong = np.mean([table.excess_high[other] < 0 for table in found])
    right = np.mean([table.excess_high[law] < 0 for table in found])
    assert wrong <= 0.025 + 3 * np.sqrt(0.025 * 0.975 / 200)
    assert right > 0.8  # with thirty passages and lengths from 5 to 28 the laws can be told apart


@pytest.mark.slow
def test_a_law_between_the_two_decides_for_neither_much_more_often_than_for_the_other():
    halfway = lambda n: n * np.sqrt(np.log(n))  # noqa: E731
    found = [fits(compare_growth, halfway, end=1.0, seed=seed, n_resamples=100) for seed in range(200)]
    for law in ("n", "n log n"):
        assert np.mean([table.excess_high[law] < 0 for table in found]) < 0.25


# Exponents ---------------------------------------------------------------------------------------------------------


def test_exponents_are_recovered_with_censoring():
    power = lambda n: n**1.2 * np.log(n)  # noqa: E731
    n, time, seen, passage = times(power, size=2_000, shared=0.0, end=1.2, lengths=(4, 8, 20, 60, 200))
    assert 0.2 < 1 - seen.mean() < 0.7
    found = growth_exponents(n, time, seen, groups=passage, n_resamples=20)
    held, free = found.loc["c = 1"], found.loc["free"]
    assert held.b == pytest.approx(1.2, abs=0.02) and held.a == pytest.approx(0.5, rel=0.05)
    assert held.spread == pytest.approx(0.4, rel=0.03) and held.c == 1
    assert free.b_low < 1.2 < free.b_high and free.c_low < 1 < free.c_high
    assert free.correlation < -0.9  # log n and log log n are nearly collinear


def test_the_law_n_looks_like_an_exponent_of_about_six_tenths():
    found = fits(growth_exponents, GROWTH["n"], size=500, n_resamples=20)
    assert found.b["c = 1"] == pytest.approx(0.6, abs=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("end", [4.0, 0.6])
def test_the_intervals_of_the_exponents_cover_them_at_the_size_used(end):
    covered = []
    for seed in range(500):
        found = fits(growth_exponents, GROWTH["n log n"], end=end, seed=seed)
        held, free = found.loc["c = 1"], found.loc["free"]
        ends = (held.b_low, held.b_high), (free.b_low, free.b_high), (free.c_low, free.c_high)
        covered.append([low <= 1 <= high for low, high in ends])
    assert (np.mean(covered, axis=0) >= 0.9).all() and (np.mean(covered, axis=0) <= 0.98).all()


def test_two_lengths_give_no_free_fit():
    found = fits(growth_exponents, GROWTH["n"], lengths=(5, 20))
    assert np.isfinite(found.b["c = 1"]) and np.isnan(found.b["free"])


def test_what_all_trials_of_a_passage_share_does_not_average_out():
    n, time, seen, passage = times(GROWTH["n"], spread=0.05, shared=1.0, end=1e9)
    widths = []
    for groups in (np.arange(len(n)), passage):
        found = compare_growth(n, time, seen, groups=groups, n_resamples=300)
        widths.append(np.log(found.high["n"] / found.low["n"]))
    assert widths[1] > 1.5 * widths[0]


@pytest.mark.parametrize(
    ("n", "time", "groups", "said"),
    [([5, 5], [1, 2], [0, 1], "two lengths"), ([1, 5], [1, 2], [0, 1], "two lengths"),
     ([5, 8], [1, 2], [0, 0], "groups"), ([5, 8], [1, 2, 3], [0, 1], "as many"), ([5, 8], [0, 2], [0, 1], "positive")],
)  # fmt: skip
def test_what_allows_no_fit_is_refused(n, time, groups, said):
    with pytest.raises(ValueError, match=said):
        compare_growth(n, time, [True] * len(time), groups=groups)


# Shares and slopes -------------------------------------------------------------------------------------------------


def test_a_slope_in_log_length_is_found_and_its_interval_covers_it():
    rng, covered = np.random.default_rng(0), []
    for _ in range(500):
        values = 0.3 * np.log(LENGTHS) + rng.normal(size=(30, 1)) + rng.normal(size=(30, 5))
        found = slope_in_log_length(values, LENGTHS, unit="passages")
        covered.append(found.interval[0] <= 0.3 <= found.interval[1])
    assert 0.92 <= np.mean(covered) <= 0.98 and found.n == 30
    ends = [slope_in_log_length(values, LENGTHS, unit="passages", looks=looks).interval[1] for looks in (1, 3)]
    half = (np.array(ends) - found.value) / scipy.stats.t.ppf([0.975, 1 - 0.025 / 3], 29)
    assert half[0] == pytest.approx(half[1])  # one standard error, at 95% and at 98.3%


def test_events_and_groups_that_are_missing_are_refused():
    n, time = [4, 4, 8, 8], [1.0, 2.0, 3.0, 4.0]
    with pytest.raises(ValueError, match="observed must be true or false"):
        compare_growth(n, time, [True, np.nan, True, True], groups=[0, 1, 0, 1])
    with pytest.raises(ValueError, match="groups must hold one label"):
        compare_growth(n, time, [True] * 4, groups=[0, 1, 0, np.nan])


@pytest.mark.parametrize(
    ("values", "n", "said"),
    [([[1], [2]], [5], "two different lengths"), ([[1, 2], [2, 3]], [5, 5], "two different lengths"),
     ([[1, 2]], [0, 5], "two different lengths"), ([[1, 2], [2, 3], [4, 5]], [5, 8, 12], "one for each length"),
     ([1, 2], [5, 8], "one for each length")],
)  # fmt: skip
def test_what_has_no_slope_is_refused(values, n, said):
    with pytest.raises(ValueError, match=said):
        slope_in_log_length(values, n, unit="passages")


def test_more_looks_at_the_same_groups_widen_every_interval():
    rng = np.random.default_rng(1)
    n, groups = np.repeat([5, 10, 20], 30), np.tile(np.arange(30), 3)
    time = n * np.exp(0.5 * rng.normal(size=90))
    for fit, ends in ((compare_growth, ("low", "high")), (growth_exponents, ("b_low", "b_high"))):
        one, three = (fit(n, time, np.ones(90, bool), groups=groups, looks=k) for k in (1, 3))
        assert (three[ends[0]] < one[ends[0]]).all() and (three[ends[1]] > one[ends[1]]).all()
    width = lambda table: (table.b_high - table.b_low)["c = 1"]  # noqa: E731
    expected = scipy.stats.t.ppf(1 - 0.025 / 3, 29) / scipy.stats.t.ppf(0.975, 29)
    assert width(three) / width(one) == pytest.approx(expected)
    with pytest.raises(ValueError, match="looks"):
        compare_growth(n, time, np.ones(90, bool), groups=groups, looks=0)
