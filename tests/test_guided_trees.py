"""The chain on the tree of prefixes: the closed forms of the thesis's claims, for exact and for wrong guides."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from glauber_lib import exact
from glauber_lib import guided_trees as trees

HEIGHTS = {4: (32, 0.0381), 6: (72, 0.0170), 8: (128, 0.0096)}


def total_variation(p, q):
    return 0.5 * np.abs(p - q).sum()


def target_of(reference, reward):
    return (reference * reward).ravel() / (reference * reward).sum()


@st.composite
def problems(draw):
    """A random law of strings, a reward with some zeros, and a random guide."""
    rng, k, h = np.random.default_rng(draw(st.integers(0, 2**32))), draw(st.integers(2, 3)), draw(st.integers(1, 4))
    reference = rng.dirichlet(np.ones(k**h)).reshape((k,) * h)
    reward = rng.exponential(size=reference.shape) * (rng.random(reference.shape) < 0.8)
    reward.flat[0] = 1.0
    values = trees.exact_values(reference, reward)
    wrong = [level * rng.lognormal(sigma=1.0, size=level.shape) for level in values[:-1]]
    return reference, reward, [*wrong, values[-1]]


# The chain -----------------------------------------------------------------------------------------------------------


@given(problems())
def test_every_guide_gives_a_reversible_chain_whose_leaves_have_the_right_law(problem):
    reference, reward, guide = problem
    for values in (guide, trees.exact_values(reference, reward)):
        tree = trees.guided_chain(reference, values)
        np.testing.assert_allclose(exact.stationary_law(tree.matrix), tree.law, atol=1e-12)
        assert exact.reversibility_defect(tree.matrix, law=tree.law) < 1e-14
        np.testing.assert_allclose(tree.leaf_law(), target_of(reference, reward), atol=1e-12)


@given(problems())
def test_the_exact_guide_hits_leaves_by_the_right_law_in_the_time_of_a_reflecting_walk(problem):
    reference, reward, _ = problem
    values, h = trees.exact_values(reference, reward), reference.ndim
    tree, target = trees.guided_chain(reference, values), target_of(reference, reward)
    np.testing.assert_allclose(tree.first_leaf_law(), target, atol=1e-10)
    np.testing.assert_allclose(trees.action_law(reference, values), target, atol=1e-10)
    assert tree.law[tree.leaves].sum() == pytest.approx(1 / (2 * h))
    assert tree.time_to_leaf() == pytest.approx(2 * h**2)


@pytest.mark.parametrize("height", HEIGHTS)
def test_the_printed_times_and_gaps(height):
    reference = trees.uniform_strings(height)
    tree = trees.guided_chain(reference, trees.exact_values(reference, trees.constraint("some zero", height)))
    gap = tree.gap()
    assert gap == pytest.approx(exact.spectral_gap(tree.matrix), rel=1e-6)
    assert tree.time_to_leaf() == pytest.approx(HEIGHTS[height][0]) and round(gap, 4) == HEIGHTS[height][1]
    assert gap < (1 - np.cos(np.pi / height)) / 2  # the gap of the depth alone


@pytest.mark.parametrize("name", ["some zero", "parity"])
def test_a_wrong_guide_costs_action_level_guidance_most_and_the_stationary_law_nothing(name):
    reference, reward = trees.uniform_strings(8), trees.constraint(name, 8)
    target = target_of(reference, reward)
    found = trees.survey_guides(name, 8, [0.3], 5)
    assert (
        (found.action > found.first_leaf).all() and (found.first_leaf > 0.03).all() and found.stationary.max() < 1e-14
    )
    assert found.defect.max() < 1e-12
    wrong = trees.disturbed(trees.exact_values(reference, reward), 0.3, 2)
    assert total_variation(trees.action_law(reference, wrong), target) == pytest.approx(found.action[2])
    assert (np.abs(np.log(wrong[3] / trees.exact_values(reference, reward)[3])) - np.log(1.3) < 1e-12).all()


def test_a_survey_asks_the_matrix_for_the_stationary_law(monkeypatch):
    def wrong_chain(reference, values):
        tree = build(reference, values)
        odd = tree.matrix.tolil()
        odd[0] = 0.5 * odd[0]  # the root stays too long
        odd[0, 0] += 0.5
        odd[1, 0], odd[1, 1] = odd[1, 0] / 2, odd[1, 1] + odd[1, 0] / 2
        return replace(tree, matrix=odd.tocsr())

    build = trees.guided_chain
    monkeypatch.setattr(trees, "guided_chain", wrong_chain)
    assert trees.survey_guides("some zero", 4, [0.3], 1).stationary.max() > 1e-3
    monkeypatch.setattr(trees, "SOLVED", 0)
    with pytest.raises(ValueError):
        trees.survey_guides("some zero", 4, [0.3], 1)


def test_runs_of_the_chain_have_its_exact_time_and_first_leaf():
    reference, reward = trees.uniform_strings(4), trees.constraint("some zero", 4)
    tree = trees.guided_chain(reference, trees.disturbed(trees.exact_values(reference, reward), 1.0))
    steps, leaf = tree.walk(4000, seed=3)
    assert steps.mean() == pytest.approx(tree.time_to_leaf(), abs=4 * steps.std() / 4000**0.5)
    law, counts = tree.first_leaf_law(), np.bincount(leaf, minlength=16)
    assert scipy.stats.chisquare(counts[law > 0], 4000 * law[law > 0]).pvalue > 1e-3
    assert scipy.stats.chisquare(counts[law > 0], 4000 * tree.leaf_law()[law > 0]).pvalue < 1e-6  # the test has power


# Query complexity ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [4, 6, 8])
def test_costs_of_rejection_and_of_tokenwise_rejection(length):
    reference = trees.uniform_strings(length)
    zeros = trees.constraint("zeros", length)
    assert trees.action_cost(reference, trees.extendable(reference, zeros)) == pytest.approx(2 * length)
    found = trees.simulate_costs(length, 3000, seed=1)
    for name, mean in (("rejection", 2**length * length), ("tokenwise", 2 * length)):
        assert found[name].mean() == pytest.approx(mean, abs=4 * found[name].std() / 3000**0.5)


@pytest.mark.parametrize("length", [2, 4, 8])
def test_tokenwise_rejection_is_biased_towards_the_string_that_it_is_forced_to(length):
    reference, reward = trees.uniform_strings(length), trees.constraint("some zero", length)
    verifier = trees.extendable(reference, reward)
    law, size = trees.action_law(reference, verifier), 2**length
    assert law[-2] == pytest.approx(2.0 ** -(length - 1))  # 1...10
    np.testing.assert_allclose(law[:-2], 2.0**-length)
    assert total_variation(law, target_of(reference, reward)) == pytest.approx((size - 2) / (size * (size - 1)))
    assert trees.action_cost(reference, verifier) == pytest.approx(length + 2.0 ** -(length - 1))


def test_a_search_without_replacement_needs_half_of_the_stated_queries():
    found = trees.search_queries(8, 4000, seed=1)
    assert found.min() == 1 and found.max() == 128
    assert found.mean() == pytest.approx((2**7 + 1) / 2, abs=4 * found.std() / 4000**0.5)


def test_what_is_no_law_or_guide_is_refused():
    reference, reward = trees.uniform_strings(3), trees.constraint("parity", 3)
    for call in (
        lambda: trees.exact_values(reference * 2, reward), lambda: trees.exact_values(reference, reward * 0),
        lambda: trees.guided_chain(reference, trees.exact_values(reference, reward)[:-1]),
        lambda: trees.guided_chain(reference, [np.zeros((2,) * h) for h in range(3)] + [reward]),
        lambda: trees.constraint("odd", 3), lambda: trees.uniform_strings(12),
        lambda: trees.action_cost(reference, trees.exact_values(reference, reward + 1)),
        lambda: trees.disturbed([1.0, [1.0, np.nan]], 0.1),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"must|need|leads|may"):
            call()


@pytest.mark.parametrize("name", ["some zero", "parity", "zeros"])
def test_simulated_tokenwise_rejection_has_its_exact_law(name):
    strings = trees.simulate_tokenwise(name, 3, 20_000, seed=1)
    law = trees.action_law(
        trees.uniform_strings(3), trees.extendable(trees.uniform_strings(3), trees.constraint(name, 3))
    )
    counts = np.bincount(strings @ [4, 2, 1], minlength=8) / 20_000
    assert np.abs(counts - law).max() < 4 * 0.5 / 20_000**0.5
    with pytest.raises(ValueError, match="runs"):
        trees.simulate_tokenwise(name, 3, 0)
