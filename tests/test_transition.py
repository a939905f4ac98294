"""The transition of coalescence on times of known transitions, with censoring, at the sizes of the profiles."""

import numpy as np
import pandas as pd
import pytest

from glauber_lib.transition import (
    collapse,
    fit_transitions,
    medians_beside_fit,
    ratio_at,
    ratio_of_centers,
    width_exponent,
)

GRID, KAPPA = (1.3, 1.6, 2.0, 2.5, 3.2), 6.0
SHIFT = 0.25  # the exponent of the transition temperature in n


def center_of(n):
    return 1.55 * (n / 5) ** SHIFT


def runs(*, pairs=20, lengths=(5, 9, 14), grid=GRID, power=0.0, width=0.175, steep=4.0, curve=2.0, alike=0.5, seed=0):
    """Coalescence times whose width goes like n to `power`; `alike` is the share of scatter that a pair keeps."""
    rng, tables = np.random.default_rng(seed), []
    own = rng.normal(size=pairs)
    for n in lengths:
        steps = KAPPA * n * np.log(n)
        for temperature in grid:
            u = np.log(temperature / center_of(n))
            scatter = np.sqrt(alike) * own + np.sqrt(1 - alike) * rng.normal(size=pairs)
            slope = steep * (n / 5) ** -power  # at the center
            time = np.ceil(steps * np.exp(-slope * u + curve * u**2 + width * steep * scatter))
            met = time <= round(steps)
            columns = {"pair": np.arange(pairs), "met": met, "time": np.minimum(time, round(steps))}
            tables.append(pd.DataFrame({"n": n, "temperature": temperature, **columns}))
    return pd.concat(tables, ignore_index=True)


def planted_ratio(temperature):
    """Median of T_c / (n log n) of the longest over that of the shortest texts; a time is rounded up to whole steps."""
    scaled = []
    for n in (14, 5):
        u = np.log(temperature / center_of(n))
        scaled.append(KAPPA * np.exp(-4.0 * u + 2.0 * u**2) + 0.5 / (n * np.log(n)))
    return scaled[0] / scaled[1]


def test_transitions_find_planted_centers_and_widths():
    found = fit_transitions(runs(pairs=2_000), KAPPA, n_resamples=50)
    for n, fit in found.items():
        assert fit.center == pytest.approx(center_of(n), rel=0.02) and fit.width == pytest.approx(0.175, rel=0.06)
        assert fit.interval[0] < fit.center < fit.interval[1] < 1.1 * fit.interval[0]
        assert fit.share_met([fit.center])[0] == pytest.approx(0.5)
        assert fit.median([fit.center])[0] == pytest.approx(KAPPA * n * np.log(n))
    assert ratio_of_centers(found).value == pytest.approx((14 / 5) ** SHIFT, rel=0.03)
    assert width_exponent(found).value == pytest.approx(0, abs=0.1)
    assert collapse(found, 1.3).value == pytest.approx(1, rel=0.05)


@pytest.mark.slow
def test_the_intervals_cover_at_the_number_of_pairs_used():
    covered = []
    for seed in range(500):
        found = fit_transitions(runs(seed=seed), KAPPA, n_resamples=200, seed=seed)
        truths = [(found[n].interval, center_of(n)) for n in found]
        truths += [(ratio_of_centers(found).interval, (14 / 5) ** SHIFT), (width_exponent(found).interval, 0.0)]
        truths += [(collapse(found, 1.3).interval, 1.0), (ratio_at(found, 2.5).interval, planted_ratio(2.5))]
        covered.append([low <= truth <= high for (low, high), truth in truths])
    shares = np.mean(covered, axis=0)
    assert (shares >= 0.9).all() and (shares <= 0.98).all(), shares


@pytest.mark.slow
@pytest.mark.parametrize(("power", "above", "inside"), [(-0.5, 0.05, 0.05), (0.0, 0.9, 0.5)])
def test_a_hundred_pairs_tell_sharpening_from_none(power, above, inside):
    lengths, said = (5, 10, 14, 20, 40), []
    grid = (1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.2, 5.0)
    for seed in range(60):
        frame = runs(pairs=100, lengths=lengths, grid=grid, power=power, seed=seed, curve=1.0)
        low, high = width_exponent(fit_transitions(frame, KAPPA, n_resamples=100, seed=seed)).interval
        said.append([low > -0.5, -0.25 < low and high < 0.25, high < 0])
    higher, constant, sharpens = np.mean(said, axis=0)
    if power < 0:
        assert higher <= 0.1 and constant <= inside and sharpens > 0.9
    else:
        assert higher >= above and constant >= inside and sharpens <= 0.1


def test_lengths_without_a_transition_scale_do_not_collapse():
    rng, tables = np.random.default_rng(0), []
    for n, steep in ((5, 2.0), (14, 6.0)):
        steps = KAPPA * n * np.log(n)
        for temperature in GRID:
            u = np.log(temperature / 1.8)
            time = np.ceil(steps * np.exp(-steep * u + 0.5 * rng.normal(size=100)))
            columns = {"pair": np.arange(100), "met": time <= steps, "time": np.minimum(time, steps)}
            tables.append(pd.DataFrame({"n": n, "temperature": temperature, **columns}))
    found = collapse(fit_transitions(pd.concat(tables), KAPPA, n_resamples=200), 1.4)
    assert found.interval[1] < 2 / 3 and found.value == pytest.approx(1.4**-4, rel=0.35)


def test_the_fit_stands_beside_the_median_of_the_times():
    frame = runs(pairs=2_000, lengths=(5,))
    table = medians_beside_fit(frame, fit_transitions(frame, KAPPA, n_resamples=2))
    seen = table[table.met > 0.55]
    assert len(seen) >= 3 and seen.ratio.to_numpy() == pytest.approx(np.ones(len(seen)), abs=0.12)
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
    frame, transitions = runs(lengths=(5,)), fit_transitions(runs(lengths=(5,)), KAPPA)
    for read in (lambda part: fit_transitions(part, KAPPA), lambda part: medians_beside_fit(part, transitions)):
        with pytest.raises(ValueError, match=rf"lacks \['{column}'\]"):
            read(frame.drop(columns=column))
    with pytest.raises(ValueError, match=r"lengths \[5\] have no transition"):
        medians_beside_fit(frame, {})


def test_a_pair_without_a_run_is_refused():
    frame = runs(lengths=(5,))
    with pytest.raises(ValueError, match="pair 0 has 0"):
        fit_transitions(frame.iloc[1:], KAPPA)
    with pytest.raises(ValueError, match="met must be true or false"):
        fit_transitions(frame.assign(met=frame.met.astype(object).mask(frame.index == 3)), KAPPA)


def test_missing_lengths_texts_and_temperatures_of_runs_are_refused():
    frame = runs(lengths=(5, 10), pairs=8)
    for column in ("n", "temperature", "pair"):
        with pytest.raises(ValueError, match="every run must have its n, temperature and pair"):
            fit_transitions(frame.assign(**{column: frame[column].astype(float).where(frame.n == 5)}), KAPPA)
    for met in (frame.met.astype(str), frame.met * 0.5 + 0.2):
        with pytest.raises(ValueError, match="met must be true or false"):
            fit_transitions(frame.assign(met=met), KAPPA)
    with pytest.raises(ValueError, match="temperature must be > 0"):
        fit_transitions(frame.replace({"temperature": {1.3: 0.0}}), KAPPA)
    with pytest.raises(ValueError, match="got 0 of 0"):
        fit_transitions(frame[:0], KAPPA)


def test_the_ratio_at_one_temperature_is_that_of_the_planted_medians():
    transitions = fit_transitions(runs(pairs=400), KAPPA)
    found = ratio_at(transitions, 2.5)
    assert found.value == pytest.approx(planted_ratio(2.5), rel=0.05) and found.interval[1] < 1.2 * found.interval[0]
    with pytest.raises(ValueError, match="temperature must be > 0"):
        ratio_at(transitions, 0.0)


def test_one_length_has_no_ratio_and_no_collapse():
    one = fit_transitions(runs(lengths=(5,)), KAPPA, n_resamples=3)
    for compare in (ratio_of_centers, lambda found: collapse(found, 1.3)):
        with pytest.raises(ValueError, match="two lengths or more, got"):
            compare(one)


@pytest.mark.parametrize("n", [2.5, 1, 0, -3])
def test_a_length_that_is_none_is_refused(n):
    frame = runs(lengths=(5,))
    with pytest.raises(ValueError, match="lengths n must be whole numbers >= 2"):
        fit_transitions(frame.assign(n=n), KAPPA, n_resamples=3)
