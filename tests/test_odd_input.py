"""What measurements make of input that is complete but odd: no constant, bounds over bounds, equal units, few fits."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch
from conftest import random_table

from glauber_lib import (
    censored,
    contraction,
    controls,
    draws,
    growth,
    influence,
    plotting,
    resampling,
    stats,
    strips,
    traps,
)
from glauber_lib.paper.passages import load_passages
from glauber_lib.stats import Estimate


def test_a_design_without_a_constant_is_fitted_as_it_is():
    rng = np.random.default_rng(0)
    x = rng.uniform(1, 3, 200)
    time = np.exp(1.5 * x + 0.3 * rng.normal(size=200))
    seen = time < np.exp(4)
    fit = censored.fit_log_normal(np.minimum(time, np.exp(4)), seen, x[:, None])
    np.testing.assert_allclose([fit.coefficients[0, 0], fit.spread[0]], [1.5, 0.3], atol=0.04)
    scaled = censored.fit_log_normal(10 * np.minimum(time, np.exp(4)), seen, np.column_stack([1 - x, x]))
    shifted = censored.fit_log_normal(np.minimum(time, np.exp(4)), seen, np.column_stack([1 - x, x]))
    np.testing.assert_allclose(scaled.coefficients, shifted.coefficients + np.log(10), atol=1e-6)  # a constant in it


def test_numbers_of_labels_below_a_baseline_are_flags():
    rng = np.random.default_rng(1)
    low, crossed = rng.random((2, 8, 4)) < 0.6
    own = [0, 1, 2, 3] * 2
    wanted = controls.crossing_excess(low, crossed & low, own, 1)
    assert controls.crossing_excess(low.astype(int), (crossed & low).astype(int), own, 1) == wanted
    for odd in ((low, crossed[:4], own), (low, crossed, [0]), (low * 2, crossed, own)):
        with pytest.raises(ValueError, match=r"crossed|low"):
            controls.crossing_excess(*odd, 1)


def test_a_rare_crossing_has_its_chance():
    assert controls.chance_crossing(1e-17, 10**6) == pytest.approx(1e-11)
    assert [controls.chance_crossing(share, looks) for share, looks in ((0, 3), (1, 3), (1, 0))] == [0, 1, 0]


def test_equal_slopes_have_no_interval():
    n = np.array([5, 10, 20, 40])
    values = 0.1 * np.log(n) + np.array([0.3, 1.7, 2.9, 5.1])[:, None]
    found = growth.slope_in_log_length(values, n, unit="passages")
    assert found.interval is None and stats.verdict(found, "above", 0.05)[0] == "undecided"


def test_fits_that_few_resamples_have_give_no_interval():
    group, n = np.repeat(np.arange(10), 3), np.tile([5, 10, 20], 10)
    seen = group == 0
    table = growth.compare_growth(n, 2.0 * n + group + 1, seen, groups=group, n_resamples=200)
    assert table[["low", "high", "excess_low", "excess_high"]].isna().all(axis=None) and table.excess.notna().all()
    assert growth.growth_exponents(n, 2.0 * n + group, seen, groups=group, n_resamples=200).correlation.isna().all()


@pytest.mark.parametrize(
    ("above", "below", "kind"),
    [
        ("lower bound", "estimate", "lower bound"),
        ("estimate", "lower bound", "upper bound"),
        ("lower bound", "upper bound", "lower bound"),
        ("upper bound", "exact", "upper bound"),
        ("estimate", "censored", "censored"),
        ("exact", "exact", "exact"),
        ("exact", "estimate", "estimate"),
    ],
)
def test_a_ratio_is_a_bound_where_one_of_its_parts_is(above, below, kind):
    def part(value, which):
        return Estimate(value, None if which == "exact" else (0.9 * value, 1.1 * value), 50, "pairs", which)

    ratio = contraction.ratio_of_independent(part(2.0, above), part(1.0, below))
    assert ratio.kind == kind and (ratio.interval is None) == (kind == "exact")
    if kind == "lower bound":
        assert stats.verdict(ratio, "below", 3)[0] == "undecided"


def test_a_ratio_of_two_lower_bounds_is_refused():
    bound = Estimate(2.0, None, 9, "pairs", "lower bound")
    with pytest.raises(ValueError, match="bounds nothing"):
        contraction.ratio_of_independent(bound, bound)
    exact, found = Estimate(2.0, None, 9, "pairs", "exact"), Estimate(1.0, (0.8, 1.25), 9, "pairs")
    assert contraction.ratio_of_independent(exact, found).interval == pytest.approx((1.6, 2.5))


def test_efforts_are_those_that_were_made():
    model, contexts = random_table(3, 3), np.array([[0, 1, 2], [1, 1, 1], [2, 0, 0]])
    tokens = influence.replacement_tokens(model, contexts, 2)
    found = influence.measure_influence(model, contexts, tokens, [0.5, 1.0, 2.0])
    for efforts in ([2, 500], [-1], [1.5]):
        with pytest.raises(ValueError, match="efforts"):
            contraction.growth_with_effort(found, efforts)
    for first in ((-1, 2), (50, 2), (2, 0), (2, 3)):
        with pytest.raises(ValueError, match=r"n_contexts|n_replacements"):
            found.first(*first)


def test_oscillations_of_several_contexts_are_no_matrix():
    with pytest.raises(ValueError, match="square"):
        influence.sufficient_temperature(np.ones((5, 3, 3)))
    assert influence.sufficient_temperature([[0.0, 1.0], [np.inf, 0.0]]) == np.inf


HALVES = torch.full((4, 4, 1), 0.5, dtype=torch.float64)
VISITED = pd.DataFrame(columns=["token", "temperature", "count", "up", "down", "weight", "floor", "sites"], dtype=float)
VISITS = (np.array([[0, 1], [1, 1]]), np.array([0, 4]), np.array([4.0, np.nan]))
REFUSED = {  # what a long fuzz found: an error of numpy, torch or another package, or nan
    "one score": ("scores must have shape", lambda: controls.first_crossings(3, 0.5)),
    "no look": ("scores must have shape", lambda: controls.first_crossings(np.zeros((0, 4)), 0.5)),
    "weights of three axes": ("one uniform for each", lambda: draws.inverse_cdf(HALVES, HALVES[:, 0, 0])),
    "no name": ("an empty one", lambda: load_passages("")),
    "no number": ("n_passages", lambda: load_passages(n_passages="many")),  # type: ignore
    "a masked seed": ("seed", lambda: load_passages(seed=np.ma.masked)),  # type: ignore
    "no point": ("points must have shape", lambda: plotting.trajectory(plt.figure().add_subplot(), np.zeros((0, 2)))),
    "masked resamples": ("n_resamples", lambda: resampling.bca_interval(np.mean, 30, np.ma.masked, 0)),  # type: ignore
    "no state": ("hold a state", lambda: strips.escape_by_counts(VISITED)),
    "a stay of nan": ("steps of visits", lambda: traps.modal_state(VISITS, 0, 3)),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_a_long_fuzz_found_is_refused(what):
    match, call = REFUSED[what]
    with pytest.raises(ValueError, match=match):
        call()


def test_a_design_is_fitted_to_the_last_digit_whatever_its_order_in_memory():
    rng = np.random.default_rng(2)
    design = np.column_stack([np.ones(40), rng.uniform(1, 5, (40, 3))])
    time, seen = np.exp(design.sum(1) / 4 + rng.normal(size=40)), rng.random(40) < 0.8
    one, other = (censored.fit_log_normal(time, seen, x) for x in (design, np.asfortranarray(design)))
    assert one.coefficients.tolist() == other.coefficients.tolist()


def test_a_token_that_is_a_whole_float_is_the_token():
    run = strips.StripRun(pd.DataFrame(), np.array([[0, 1], [0, 0]]), np.array([0, 0]), np.array([3, 2]), 0)
    one, other = (strips.visited_drift(random_table(2, 2), run, token, 1.0) for token in (1, np.float64(1)))
    pd.testing.assert_frame_equal(one, other)
