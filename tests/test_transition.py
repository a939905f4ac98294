"""The transition of coalescence on times of known transitions, with censoring, at the sizes of the profiles."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from glauber_lib import stats
from glauber_lib.crossover import budget
from glauber_lib.transition import (
    LEVELS,
    QUARTILES,
    collapse,
    fit_transitions,
    ratio_at,
    ratio_of_centers,
    shares_and_medians,
    width_exponent,
)

GRID, KAPPA = (1.0, 1.3, 1.6, 2.0, 2.5, 3.2), 6.0
SHIFT = 0.25  # the exponent of the transition temperature in n


def center_of(n):
    return 1.55 * (n / 5) ** SHIFT


def runs(*, pairs=20, lengths=(5, 9, 14), grid=GRID, power=0.0, width=0.175, steep=4.0, curve=0.0, slow=0.0, seed=0):
    """Coalescence times whose width goes like n to `power`; half of the scatter is the pair's own.

    The pairs that are slow, a share of them, never meet: no log-normal law of the times is right then.
    """
    rng, tables = np.random.default_rng(seed), []
    own, fast = rng.normal(size=pairs), rng.random(pairs) >= slow
    for n in lengths:
        steps = KAPPA * n * np.log(n)
        for temperature in grid:
            u = np.log(temperature / center_of(n))
            scatter = np.sqrt(0.5) * own + np.sqrt(0.5) * rng.normal(size=pairs)
            slope = steep * (n / 5) ** -power  # at the center
            time = np.ceil(steps * np.exp(-slope * u + curve * u**2 + width * steep * scatter))
            met = (time <= round(steps)) & fast
            columns = {"pair": np.arange(pairs), "met": met, "time": np.where(met, time, round(steps))}
            tables.append(pd.DataFrame({"n": n, "temperature": temperature, **columns}))
    return pd.concat(tables, ignore_index=True)


def planted(n, *, power=0.0, width=0.175, steep=4.0, curve=0.0, slow=0.0):
    """Center and width in log temperature of the law that `runs` draws from."""
    log_center, sigma = np.log(center_of(n)), width * steep

    def beyond(log_temperature, level):
        u = log_temperature - log_center
        return (1 - slow) * ndtr((steep * (n / 5) ** -power * u - curve * u**2) / sigma) - level

    low, middle, high = (brentq(beyond, -0.5, log_center + 0.8, args=(level,)) for level in LEVELS)
    return np.exp(middle), (high - low) / QUARTILES


def planted_ratio(temperature):
    """Median of T_c / (n log n) at 14 sites over that at nine; a time is rounded up to whole steps."""
    scaled = [KAPPA * (temperature / center_of(n)) ** -4.0 + 0.5 / (n * np.log(n)) for n in (14, 9)]
    return scaled[0] / scaled[1]


def test_transitions_find_planted_centers_and_widths():
    grid = np.geomspace(1.0, 2.7, 12)
    found = fit_transitions(runs(pairs=2_000, grid=grid), KAPPA, n_resamples=50)
    for n, fit in found.items():
        assert fit.center == pytest.approx(center_of(n), rel=0.02) and fit.width == pytest.approx(0.175, rel=0.06)
        assert fit.interval[0] < fit.center < fit.interval[1] < 1.1 * fit.interval[0]
    assert ratio_of_centers(found).value == pytest.approx((14 / 5) ** SHIFT, rel=0.03)
    assert width_exponent(found).value == pytest.approx(0, abs=0.1)
    assert collapse(found, 1.3).value == pytest.approx(1, rel=0.05)


@pytest.mark.parametrize("law", [{"slow": 0.15}, {"curve": -2.0}, {"curve": 1.5}])
def test_no_law_of_the_times_is_assumed(law):
    frame = runs(pairs=4_000, lengths=(5,), grid=np.geomspace(0.9, 3.2, 14), **law)
    fit, (center, width) = fit_transitions(frame, KAPPA, n_resamples=2)[5], planted(5, **law)
    assert fit.center == pytest.approx(center, rel=0.02) and fit.width == pytest.approx(width, rel=0.08)


def test_a_transition_read_by_hand():
    """Shares 0, 1/4, 3/4, 3/4, 1/2, 1 are 0, 1/4, 2/3, 2/3, 2/3, 1 when made monotone."""
    met = np.array([[0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 1]], bool)
    grid = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
    frame = pd.DataFrame({
        "n": 5, "temperature": np.repeat(grid, 4), "pair": np.tile(list("abcd"), 6), "met": met.ravel(),
        "time": np.where(met, 7, 48).ravel(),
    })  # fmt: skip
    (fit,) = fit_transitions(frame.sample(frac=1, random_state=0), KAPPA, n_resamples=5).values()
    assert fit.shares == pytest.approx([0, 1 / 4, 2 / 3, 2 / 3, 2 / 3, 1]) and fit.steps == 48 and fit.n_pairs == 4
    low, middle = ndtri(0.25), ndtri(2 / 3)
    assert fit.center == pytest.approx(2.0 * 2 ** (-low / (middle - low)))
    high = 16 * 2 ** ((ndtri(0.75) - middle) / (ndtri(1 - 1 / 8) - middle))
    assert fit.width == pytest.approx(np.log(high / 2.0) / (ndtri(0.75) - low))
    assert fit.medians[0].tolist() == [np.inf, np.inf, 7, 7, 7, 7]


def fit_of_counts(grid, counts, pairs, n_resamples=3):
    """The transition of pairs of which the first so many meet at each temperature."""
    met = np.arange(pairs) < np.array(counts)[:, None]
    columns = {"temperature": np.repeat(grid, pairs), "pair": np.tile(np.arange(pairs), len(grid))}
    frame = pd.DataFrame({"n": 5, **columns, "met": met.ravel(), "time": np.where(met, 7, 48).ravel()})
    return fit_transitions(frame, KAPPA, n_resamples=n_resamples)[5]


@pytest.mark.parametrize("pairs", [4, 8, 12, 400])
def test_quartiles_met_at_neighbouring_temperatures_give_the_step_between_them(pairs):
    rng = np.random.default_rng(pairs)
    for _ in range(40):
        grid = np.exp(np.cumsum(rng.uniform(0.05, 0.5, 4)))
        fit = fit_of_counts(grid, [0, pairs // 4, 3 * pairs // 4, pairs], pairs)
        assert fit.width == pytest.approx(np.log(grid[2] / grid[1]) / QUARTILES)
        assert np.isnan(fit_of_counts(grid, [0, pairs // 4 - 1, 3 * pairs // 4 + 1, pairs], pairs).width)


def test_of_a_center_that_is_a_temperature_the_shorter_step_beside_it_counts():
    rng, share, resolved = np.random.default_rng(0), ndtri(0.75) / ndtri(11 / 12), set()
    for _ in range(40):
        steps = rng.uniform(0.05, 0.5, 2)
        grid = np.exp(np.cumsum([0.3, *steps, 0.2]))
        fit = fit_of_counts(grid, [1, 6, 11, 12], 12)  # a quarter and three quarters are met within the steps beside it
        assert fit.center == pytest.approx(grid[1])
        resolved.add(not np.isnan(fit.width))
        assert np.isnan(fit.width) == (steps.sum() * share < steps.min())
    assert True in resolved


def test_of_a_center_that_is_a_temperature_the_median_there_is_none_of_the_curve():
    rng = np.random.default_rng(1)
    for _ in range(60):
        grid, tables = np.exp(np.cumsum(rng.uniform(0.1, 0.5, 4))), []
        times = {n: np.sort(rng.integers(3, budget(n, KAPPA) // 2, 3))[::-1] for n in (5, 9)}
        for n, some in times.items():
            for k, count in enumerate((0, 2, 4, 4)):  # half of the pairs meet at the second temperature
                met = np.arange(4) < count
                time = np.where(met, some[k - 1], budget(n, KAPPA))
                columns = {"n": n, "temperature": grid[k], "pair": np.arange(4), "met": met, "time": time}
                tables.append(pd.DataFrame(columns))
        at, scaled = np.sqrt(grid[1] * grid[2]), {}
        for n, some in times.items():
            ends = [np.log(budget(n, KAPPA)), np.log(some[1])]
            scaled[n] = np.interp(np.log(at), np.log(grid[1:3]), ends) - np.log(n * np.log(n))
        found = ratio_at(fit_transitions(pd.concat(tables), KAPPA, n_resamples=2), at).value
        assert found == pytest.approx(np.exp(scaled[9] - scaled[5]), rel=1e-6)


def test_means_of_shares_that_are_one_half_but_for_rounding_are_one_half():
    fit = fit_of_counts([1.0, 1.5, 2.0, 3.0], [5, 2, 2, 1], 5)
    assert fit.shares.tolist() == [0.5] * 4 and fit.center == pytest.approx(np.sqrt(3.0))


def test_a_share_that_stands_at_one_half_is_read_in_its_middle():
    met = np.array([[0, 0], [1, 0], [1, 0], [1, 1]], bool)
    columns = {"temperature": np.repeat([1.0, 2.0, 8.0, 16.0], 2), "pair": [0, 1] * 4, "met": met.ravel()}
    frame = pd.DataFrame({"n": 5, **columns, "time": np.where(met, 7, 48).ravel()})
    assert fit_transitions(frame, KAPPA, n_resamples=3)[5].center == pytest.approx(4.0)


def test_a_smaller_budget_counts_what_met_within_it():
    frame = runs(pairs=200)
    half = fit_transitions(frame, KAPPA / 2, n_resamples=3)
    steps = {n: round(KAPPA / 2 * n * np.log(n)) for n in (5, 9, 14)}
    cut = frame.assign(met=frame.met & (frame.time <= frame.n.map(steps)))
    cut["time"] = frame.time.where(cut.met, frame.n.map(steps))
    for n, one in fit_transitions(cut, KAPPA / 2, n_resamples=3).items():
        assert half[n].steps == one.steps == steps[n] and half[n].center == one.center
        assert half[n].width == pytest.approx(one.width, nan_ok=True)
    with pytest.raises(ValueError, match="followed for 97 steps"):
        fit_transitions(runs(lengths=(5,)), 2 * KAPPA)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pairs", "lengths", "grid"),
    [(20, (5, 9, 14), GRID), (80, (5, 10, 28), (0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.3, 2.7, 3.2))],
)
def test_the_intervals_cover_at_the_number_of_pairs_used(pairs, lengths, grid):
    """For the smallest and the largest sample, half of them by a law that is not log-normal.

    The smallest sample has too coarse a grid for a width.
    """
    covered = []
    for seed in range(500):
        law = {"slow": 0.05} if seed % 2 else {}
        frame = runs(pairs=pairs, lengths=lengths, grid=grid, seed=seed, **law)
        found = fit_transitions(frame, KAPPA, n_resamples=200, seed=seed)
        truths = [(found[n].interval, planted(n, **law)[0]) for n in found]
        truths.append((ratio_of_centers(found).interval, (lengths[-1] / 5) ** SHIFT))
        truths.append((collapse(found, 1.2).interval, 1.0))
        if pairs > 20:
            truths.append((width_exponent(found).interval, 0.0))
        covered.append([low <= truth <= high if np.isfinite(low) else np.nan for (low, high), truth in truths])
    shares, known = np.nanmean(covered, axis=0), np.isfinite(covered).sum(0)
    assert (shares >= 0.9).all() and (shares <= 0.98).all(), (shares, known)
    assert (known > 350).all(), known


@pytest.mark.slow
@pytest.mark.parametrize(("power", "above", "inside"), [(-0.5, 0.05, 0.05), (0.0, 0.8, 0.3)])
def test_a_hundred_pairs_tell_sharpening_from_none(power, above, inside):
    said, grid = [], np.geomspace(0.9, 3.6, 20)
    for seed in range(60):
        frame = runs(pairs=100, lengths=(5, 10, 14, 20), grid=grid, power=power, seed=seed)
        low, high = width_exponent(fit_transitions(frame, KAPPA, n_resamples=100, seed=seed)).interval
        said.append([low > -0.5, -0.25 < low and high < 0.25, high < 0])
    higher, constant, sharpens = np.mean(said, axis=0)
    if power < 0:
        assert higher <= 0.1 and constant <= inside and sharpens > 0.9
    else:
        assert higher >= above and constant >= inside and sharpens <= 0.1


def test_a_transition_within_one_step_of_the_grid_has_no_width():
    fit = fit_transitions(runs(pairs=500, lengths=(5,), grid=(1.0, 1.4, 1.75, 2.2), width=0.04), KAPPA, n_resamples=9)
    assert fit[5].center == pytest.approx(1.55, rel=0.05) and np.isnan(fit[5].width)


def test_lengths_without_a_transition_scale_do_not_collapse():
    rng, tables = np.random.default_rng(0), []
    for n, steep in ((5, 2.0), (14, 6.0)):
        steps = KAPPA * n * np.log(n)
        for temperature in GRID:
            u = np.log(temperature / 1.8)
            time = np.ceil(steps * np.exp(-steep * u + 0.5 * rng.normal(size=100)))
            columns = {"pair": np.arange(100), "met": time <= round(steps), "time": np.minimum(time, round(steps))}
            tables.append(pd.DataFrame({"n": n, "temperature": temperature, **columns}))
    found = collapse(fit_transitions(pd.concat(tables), KAPPA, n_resamples=200), 1.4)
    assert found.interval[1] < 2 / 3 and found.value == pytest.approx(1.4**-4, rel=0.35)


def test_shares_and_medians_stand_beside_their_intervals():
    frame = runs(pairs=40, lengths=(5, 9))
    table = shares_and_medians(frame).set_index(["n", "τ"])
    rows = frame[(frame.n == 9) & (frame.temperature == 2.0)]
    one, share = table.loc[(9, 2.0)], stats.share_estimate(int(rows.met.sum()), 40, unit="pairs")
    assert one.met == rows.met.mean() and (one.low, one.high) == share.interval
    assert one["median"] == np.sort(rows.time)[19] and one.earliest < one["median"] < one.latest
    assert table[table.met < 0.5]["median"].isna().all()


@pytest.mark.parametrize("met", [True, False])
def test_one_sided_data_give_no_center(met):
    frame = runs(lengths=(5,)).assign(met=met)
    (found,) = fit_transitions(frame.assign(time=3.0 if met else 48.0), KAPPA, n_resamples=3).values()
    assert np.isnan(found.center) and np.isnan(found.width) and "outside" in str(found)


def test_a_center_beyond_the_grid_is_no_number():
    (found,) = fit_transitions(runs(lengths=(5,), grid=(2.5, 3.2, 4.0)), KAPPA, n_resamples=3).values()
    assert np.isnan(found.center)


def test_too_few_temperatures_and_no_budget_are_refused():
    with pytest.raises(ValueError, match="three temperatures"):
        fit_transitions(runs(grid=(1.3, 2.0)), KAPPA)
    with pytest.raises(ValueError, match="positive"):
        fit_transitions(runs(), 0.0)


@pytest.mark.parametrize("column", ["n", "temperature", "met", "time"])
def test_a_missing_column_is_named(column):
    frame = runs(lengths=(5,))
    for read in (lambda part: fit_transitions(part, KAPPA), shares_and_medians):
        with pytest.raises(ValueError, match=rf"lacks \['{column}'\]"):
            read(frame.drop(columns=column))


def test_a_pair_without_a_run_is_refused():
    frame = runs(lengths=(5,))
    with pytest.raises(ValueError, match="pair 0 has 0"):
        fit_transitions(frame.iloc[1:], KAPPA)
    with pytest.raises(ValueError, match="met must be true or false"):
        fit_transitions(frame.assign(met=frame.met.astype(object).mask(frame.index == 3)), KAPPA)


def test_missing_lengths_texts_and_temperatures_of_runs_are_refused():
    frame = runs(lengths=(5, 10), pairs=8)
    for column in ("n", "temperature", "pair", "time"):
        with pytest.raises(ValueError, match="every run must have its n, temperature, pair and time"):
            fit_transitions(frame.assign(**{column: frame[column].astype(float).where(frame.n == 5)}), KAPPA)
    for met in (frame.met.astype(str), frame.met * 0.5 + 0.2):
        with pytest.raises(ValueError, match="met must be true or false"):
            fit_transitions(frame.assign(met=met), KAPPA)
    with pytest.raises(ValueError, match="temperature must be > 0"):
        fit_transitions(frame.replace({"temperature": {1.3: 0.0}}), KAPPA)
    with pytest.raises(ValueError, match="got 0 of 0"):
        fit_transitions(frame[:0], KAPPA)


def test_the_ratio_at_one_temperature_is_that_of_the_planted_medians():
    transitions = fit_transitions(runs(pairs=2_000, lengths=(9, 14)), KAPPA)
    found = ratio_at(transitions, 2.5)
    assert found.value == pytest.approx(planted_ratio(2.5), rel=0.05) and found.interval[1] < 1.2 * found.interval[0]
    with pytest.raises(ValueError, match="temperature must be > 0"):
        ratio_at(transitions, 0.0)


def test_one_length_has_no_ratio_and_no_collapse():
    one = fit_transitions(runs(lengths=(5,)), KAPPA, n_resamples=3)
    for compare in (ratio_of_centers, lambda found: collapse(found, 1.3)):
        with pytest.raises(ValueError, match="two lengths or more, got"):
            compare(one)


def test_transitions_of_other_resamples_or_pairs_are_not_compared():
    frame = runs(pairs=12)
    apart = {n: fit_transitions(frame[frame.n == n], KAPPA, seed=n, n_resamples=9)[n] for n in (5, 9, 14)}
    other = {n: fit_transitions(frame[(frame.n == n) & (frame.pair < n)], KAPPA, n_resamples=9)[n] for n in (5, 9)}
    alike = {n: fit_transitions(frame[frame.n == n], KAPPA, n_resamples=9)[n] for n in (5, 9, 14)}
    together = fit_transitions(frame, KAPPA, n_resamples=9)
    for compare in (ratio_of_centers, width_exponent, lambda t: collapse(t, 1.3), lambda t: ratio_at(t, 2.0)):
        for wrong in (apart, other):
            with pytest.raises(ValueError, match="from one call of fit_transitions"):
                compare(wrong)
        assert repr(compare(alike)) == repr(compare(together))
    with pytest.raises(ValueError, match="reduced must be above 1"):
        collapse(together, 1.0)


@pytest.mark.parametrize("n", [2.5, 1, 0, -3])
def test_a_length_that_is_none_is_refused(n):
    frame = runs(lengths=(5,))
    with pytest.raises(ValueError, match="lengths n must be whole numbers >= 2"):
        fit_transitions(frame.assign(n=n), KAPPA, n_resamples=3)


def test_a_length_without_a_center_has_no_scaled_time():
    grid, tables = np.array([1.2, 1.5, 2.0, 2.5]), []
    for n, steps, times in ((8, 50, (27, 16, 8, 4)), (16, 133, (133, 133, 75, 60))):
        for temperature, time in zip(grid, times, strict=True):
            columns = {"pair": np.arange(12), "met": time < steps, "time": time}
            tables.append(pd.DataFrame({"n": n, "temperature": temperature, **columns}))
    found = fit_transitions(pd.concat(tables), 3.0, n_resamples=20)
    assert np.isnan(found[8].center) and np.isfinite(found[16].center)
    for one in (ratio_at(found, 2.4), collapse(found, 1.1), ratio_of_centers(found)):
        assert np.isnan(one.value) and np.isnan(one.interval).all()


def test_pairs_left_early_and_nullable_columns():
    frame = runs(pairs=12, lengths=(5,))
    typed = frame.assign(time=frame.time.astype("Int64"), met=frame.met.astype("boolean"))
    assert repr(fit_transitions(typed, KAPPA, n_resamples=9)) == repr(fit_transitions(frame, KAPPA, n_resamples=9))
    left = frame.assign(time=frame.time.mask(frame.index == frame.index[~frame.met][0], 3))
    with pytest.raises(ValueError, match="followed as long as the others"):
        shares_and_medians(left)
    longer = frame.assign(time=frame.time.where(frame.met | (frame.temperature > 1.0), 96))  # all of one temperature
    wanted = shares_and_medians(frame)[["met", "median"]]
    pd.testing.assert_frame_equal(shares_and_medians(longer)[["met", "median"]], wanted)


def test_one_or_two_pairs_are_read_as_more_are():
    def of(*met):
        met = np.array(met, bool).reshape(len(met), -1)
        temperature = np.repeat([1.0, 1.2, 1.5, 2.0, 3.0], met.shape[1])
        columns = {
            "pair": np.tile(np.arange(met.shape[1]), 5),
            "met": met.ravel(),
            "time": np.where(met, 5, 50).ravel(),
        }
        return fit_transitions(pd.DataFrame({"n": 8, "temperature": temperature, **columns}), 3.0, n_resamples=3)[8]

    assert np.isnan(of(0, 0, 0, 0, 0).center)
    assert of(0, 0, 0, 0, 1).center == pytest.approx(np.sqrt(2.0 * 3.0))
    assert of(0, 0, 0, 1, 1).center == pytest.approx(np.sqrt(1.5 * 2.0))
    both = of((0, 0), (0, 0), (0, 0), (1, 1), (1, 1))
    assert both.center == pytest.approx(np.sqrt(1.5 * 2.0)) and np.isnan(both.width)
