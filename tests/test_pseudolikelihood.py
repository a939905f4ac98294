"""Pseudolikelihood: the theorems of the chapter on random laws, the fits against their limit, and its errors."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glauber_lib import pseudolikelihood as learning
from glauber_lib import tensorization
from glauber_lib.blocks import blocks_of_size
from glauber_lib.models import all_states


@st.composite
def families(draw, *, n_sites=(2, 4)):
    """Random features on a random law of the family, with random masks, weighted or adaptive, and their weights."""
    n, n_tokens = draw(st.integers(*n_sites)), draw(st.integers(2, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    features = rng.normal(size=(n_tokens,) * n + (draw(st.integers(1, 3)),))
    law = learning.family_law(features, rng.normal(size=features.shape[-1]))
    masks = [sorted(rng.choice(n, rng.integers(1, n + 1), replace=False)) for _ in range(draw(st.integers(1, 3)))]
    masks += [[site] for site in range(n)]
    adaptive = draw(st.booleans())
    weights = rng.dirichlet(np.ones(len(masks)), size=law.size) if adaptive else rng.dirichlet(np.ones(len(masks)))
    return law, features, [list(map(int, mask)) for mask in masks], weights


def population_loss(theta, law, features, masks, weights):
    """Loss of Definitions 4.1.2 and 4.1.7, term by term: the law of the mask's tokens given the rest and the mask."""
    states, n_tokens = all_states(len(law), law.ndim), len(law)
    model = learning.family_law(features, theta).ravel()
    weights = np.broadcast_to(weights, (len(states), len(masks)))
    total = 0.0
    for k, mask in enumerate(masks):
        rest = np.delete(states, mask, axis=1) @ n_tokens ** np.arange(law.ndim - len(mask))
        joint = model * weights[:, k]
        total -= (law.ravel() * weights[:, k] * np.log(joint / np.bincount(rest, joint)[rest])).sum()
    return total


# Theorems ------------------------------------------------------------------------------------------------------------


@given(families())
def test_the_information_is_the_hessian_of_the_loss_at_the_true_law(family):
    law, features, masks, weights = family
    d = features.shape[-1]
    true = np.linalg.lstsq(np.c_[features.reshape(-1, d), np.ones(law.size)], np.log(law).ravel(), rcond=None)[0][:d]
    h, eye = 1e-3, np.eye(d)
    at = lambda step: population_loss(true + step, law, features, masks, weights)  # noqa: E731
    hessian = [
        [
            sum(a * b * at(h * (a * eye[i] + b * eye[j])) for a in (1, -1) for b in (1, -1)) / (4 * h * h)
            for j in range(d)
        ]
        for i in range(d)
    ]
    np.testing.assert_allclose(hessian, learning.information(law, features, masks, weights), atol=2e-4)


@given(families(n_sites=(2, 4)))
def test_larger_masks_learn_no_worse(family):
    law, features, _, _ = family
    known = [learning.information(law, features, blocks_of_size(law.ndim, k)) for k in range(1, law.ndim + 1)]
    for smaller, larger in pairwise(known):
        assert np.linalg.eigvalsh(larger - smaller).min() > -1e-9


@given(families())
def test_the_mixing_constant_bounds_what_is_lost_to_maximum_likelihood(family):
    law, features, masks, weights = family
    constant = learning.mixing_constant(law, masks, weights)
    whole = learning.information(law, features, [range(law.ndim)])
    part = learning.information(law, features, masks, weights)
    assert np.linalg.eigvalsh(constant * part - whole).min() > -1e-9 * np.linalg.eigvalsh(whole).max()


def test_the_bound_is_attained_along_the_slowest_function():
    law = learning.family_law(learning.ising_features(3), [0.5, 0.2, 0.1, 0.3, 0.0, -0.2])
    masks = blocks_of_size(3, 1)
    matrix = learning.block_dynamics(all_states(2, 3), law.ravel(), masks).toarray()
    root = np.sqrt(law.ravel())
    slowest = np.linalg.eigh(root[:, None] * matrix / root)[1][:, -2] / root
    gamma = learning.asymptotic_covariance(law, slowest.reshape(2, 2, 2, 1), masks)
    whole = learning.asymptotic_covariance(law, slowest.reshape(2, 2, 2, 1), [range(3)])
    assert gamma[0, 0] / whole[0, 0] == pytest.approx(learning.mixing_constant(law, masks), rel=1e-9)


def test_larger_masks_are_not_strictly_better():
    features = learning.ising_features(4, fields=False)
    law = learning.family_law(features, np.full(6, 0.3))
    three, four = (learning.asymptotic_covariance(law, features, blocks_of_size(4, k)) for k in (3, 4))
    np.testing.assert_allclose(three, four, atol=1e-9)


@pytest.mark.parametrize(
    ("coupling", "traces"), [(0.05, [28.26, 15.34, 11.45, 10.11]), (0.3, [43.73, 23.46, 17.82, 16.33])]
)
def test_the_figures_covariances(coupling, traces):
    features = learning.ising_features(4)
    law = learning.family_law(features, [coupling] * 6 + [0] * 4)
    found = [np.trace(learning.asymptotic_covariance(law, features, blocks_of_size(4, k))) for k in (1, 2, 3, 4)]
    np.testing.assert_allclose(found, traces, atol=0.005)
    all_masks = [
        np.trace(learning.asymptotic_covariance(law, features, blocks_of_size(4, k), per_sample=np.inf)) for k in (1, 4)
    ]
    assert all_masks[0] / all_masks[1] < 1.001  # the gain is the price of one mask a sample


def test_masks_that_mix_best_learn_worse_than_uniform_ones():
    i, j = np.triu_indices(6, 1)
    features = learning.ising_features(6)
    law = learning.family_law(features, np.r_[np.where((i < 3) == (j < 3), 0.6, 0.05), np.zeros(6)])
    masks = blocks_of_size(6, 3)
    inside = [mask for mask in masks if mask in ((0, 1, 2), (3, 4, 5))]
    across = [mask for mask in masks if mask not in inside]
    share = learning.best_share(law, features, inside, across, "learning")
    assert share == pytest.approx(0.165, abs=2e-3)
    trace = lambda s: np.trace(  # noqa: E731
        learning.asymptotic_covariance(law, features, inside + across, learning.shared_weights(s, 2, 18))
    )
    assert trace(1 - 1e-6) == pytest.approx(125.0, abs=0.05) and trace(0.1) == pytest.approx(112.4, abs=0.05)
    assert trace(share) < min(trace(share - 0.02), trace(share + 0.02))


def test_forgetting_the_mask_is_biased_and_conditioning_is_not():
    features, masks = learning.ising_features(4), blocks_of_size(4, 2)
    law, spins = learning.family_law(features, [0.3] * 6 + [0] * 4), 2 * all_states(2, 4) - 1
    for a, expected in ((-1, 0.245), (0, 0.3), (1, 0.356)):
        weights = np.exp(a * np.stack([spins[:, i] * spins[:, j] for i, j in masks], axis=1))
        weights /= weights.sum(1, keepdims=True)
        found = learning.forgetting(law, features, masks, weights)
        np.testing.assert_allclose(found[:6], expected, atol=6e-4)


# Fits ----------------------------------------------------------------------------------------------------------------


def test_masks_of_all_sites_match_the_moments():
    features = learning.ising_features(3)
    law = learning.family_law(features, [0.3, -0.2, 0.5, 0.1, 0.0, 0.4])
    counts = learning.draw_counts(law, [range(3)], 400, 5, seed=1)
    found = learning.fit(counts, features, [range(3)])
    assert found.converged.all()
    for theta, own in zip(found.theta, counts[:, 0] / 400, strict=True):
        expected = np.tensordot(learning.family_law(features, theta), features, 3)
        np.testing.assert_allclose(expected, own @ features.reshape(8, -1), atol=1e-8)


@pytest.mark.parametrize(("size", "per_sample"), [(1, 1), (2, 2), (4, 1)])
def test_the_error_of_a_fit_is_the_trace_of_its_limit(size, per_sample):
    features, masks = learning.ising_features(4), blocks_of_size(4, size)
    theta = np.r_[np.full(6, 0.3), np.zeros(4)]
    law = learning.family_law(features, theta)
    found = learning.fit(learning.draw_counts(law, masks, 20_000, 300, per_sample=per_sample, seed=2), features, masks)
    errors = 20_000 * ((found.theta - theta) ** 2).sum(1)
    limit = np.trace(learning.asymptotic_covariance(law, features, masks, per_sample=per_sample))
    assert found.converged.all()
    assert abs(errors.mean() - limit) < 3 * errors.std() / np.sqrt(300)


def test_a_fit_does_not_depend_on_the_other_repetitions_and_a_separable_one_is_flagged():
    features, masks = learning.ising_features(2), blocks_of_size(2, 1)
    law = learning.family_law(features, [0.2, 0.0, 0.1])
    counts = learning.draw_counts(law, masks, 50, 3, seed=3)
    separable = np.zeros_like(counts[:1])
    separable[0, :, 3] = 25
    together = learning.fit(np.concatenate([counts, separable]), features, masks)
    assert together.converged.tolist() == [True, True, True, False]
    np.testing.assert_allclose(together.theta[:3], learning.fit(counts, features, masks).theta, atol=1e-9)


def test_parameters_that_masks_or_features_leave_open_are_not_found():
    twice = learning.ising_features(3, fields=False)
    twice = np.concatenate([twice, twice], axis=-1)
    law = learning.family_law(twice, [0.15] * 6)
    masks = blocks_of_size(3, 1)
    assert not learning.fit(learning.draw_counts(law, masks, 5_000, 3), twice, masks).converged.any()
    fields = learning.ising_features(3, couplings=False)
    law = learning.family_law(fields, [0.5, 0.8, -0.7])
    assert not learning.fit(learning.draw_counts(law, [(0,)], 2_000, 20), fields, [(0,)]).converged.any()
    with pytest.raises(ValueError, match="do not determine the parameters"):
        learning.forgetting(law, fields, [(0,)], [1.0])


def test_a_best_share_is_refused_where_mixing_is_rounding():
    features = learning.ising_features(4)
    law = learning.family_law(features, np.r_[[13.0, 0, 0, 0, 0, 13.0], np.zeros(4)])
    masks = blocks_of_size(4, 1)
    with pytest.raises(ValueError, match="rounding decides"):
        learning.best_share(law, features, masks[:2], masks[2:], "mixing")


def test_counts_are_those_of_samples_and_of_all_their_masks():
    law = np.array([[0.4, 0.1], [0.2, 0.3]])
    weights = np.array([[0.9, 0.1], [0.5, 0.5], [0.2, 0.8], [0.0, 1.0]])
    counts = learning.draw_counts(law, [[0], [1]], 1_000, 200, weights=weights, per_sample=3, seed=0)
    assert counts.shape == (200, 2, 4) and (counts.sum((1, 2)) == 3_000).all() and (counts[:, 0, 3] == 0).all()
    np.testing.assert_allclose(counts.mean(0) / 3_000, (law.ravel()[:, None] * weights).T, atol=4e-3)


def test_laws_masks_and_counts_that_do_not_fit_are_refused():
    features, law = learning.ising_features(2), np.full((2, 2), 0.25)
    cases = [
        (lambda: learning.information(law, learning.ising_features(3), [[0]]), "are not those of the states"),
        (lambda: learning.information(law * 2, features, [[0]]), "law must be probabilities"),
        (lambda: learning.information(law * (1 - 1e-6), features, [[0]]), "sum 0.999999"),
        (lambda: learning.information(law, features, [[2]]), "sites of blocks"),
        (lambda: learning.information(law, features, [[0]], [0.5]), "probabilities of the blocks"),
        (lambda: learning.asymptotic_covariance(law, features, [[0]]), "do not determine the parameters"),
        (lambda: learning.asymptotic_covariance(law, features, [[0, 1]], per_sample=0), "per_sample must be"),
        (lambda: learning.fit(np.zeros((1, 1, 4), int), features, [[0]]), "without"),
        (lambda: learning.fit(np.ones((1, 2, 4), int), features, [[0]]), "counts must have shape"),
        (lambda: learning.family_law(features, [0.0]), "theta must be 3 finite numbers"),
        (lambda: learning.best_share(law, features, [[0]], [[1]], "both"), "goal must be"),
        (lambda: learning.ising_features(2, couplings=False, fields=False), "needs a feature"),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message):
            call()


# Tensorization -------------------------------------------------------------------------------------------------------


@settings(max_examples=15)  # of a search each
@given(families(n_sites=(2, 3)), st.integers(0, 2**32))
def test_no_law_has_a_larger_ratio_than_the_search_finds_by_more_than_the_search_misses(family, seed):
    law, _, masks, _ = family
    constant = tensorization.tensorization_constant(law, masks, starts=3, iterations=60)
    assert constant >= learning.mixing_constant(law, masks) * (1 - 1e-9)
    r = np.random.default_rng(seed).dirichlet(np.ones(law.size)).reshape(law.shape)
    whole = (r * np.log(r / law)).sum()
    assert whole <= 1.02 * constant * tensorization.excess_loss(r, law, masks)


def test_product_laws_tensorize_with_sites_over_mask_size_and_full_masks_with_one():
    law = np.einsum("i,j,k->ijk", [0.3, 0.7], [0.5, 0.5], [0.2, 0.8])
    for size, expected in ((1, 3.0), (2, 1.5), (3, 1.0)):
        found = tensorization.tensorization_constant(law, blocks_of_size(3, size))
        assert found == pytest.approx(expected, rel=1e-6)


def test_the_constant_may_exceed_the_poincare_constant():
    law = learning.family_law(learning.ising_features(2), [0.5, 1.0, 1.0])
    assert learning.mixing_constant(law, [[0], [1]]) == pytest.approx(2.57, abs=0.005)
    assert tensorization.tensorization_constant(law, [[0], [1]]) >= 3.16


def test_a_law_too_cold_for_its_poincare_constant_keeps_the_other_bounds():
    law = learning.family_law(learning.ising_features(3), [8.0] * 3 + [0.0] * 3)
    masks = blocks_of_size(3, 1)
    assert np.isnan(learning.mixing_constant(law, masks))
    assert 1 < tensorization.tensorization_constant(law, masks, starts=1, iterations=5) < np.inf


def test_the_loss_of_a_law_that_lacks_a_state_is_infinite_whatever_the_masks():
    r, q = np.full((2, 2), 0.25), [[0.5, 0.5], [0, 0]]
    for masks, weights in (([(1,)], None), ([(0, 1)], None), ([(0,), (1,)], [0, 1]), ([(0,), (1,)], [1, 0])):
        assert tensorization.excess_loss(r, q, masks, weights) == np.inf
    assert tensorization.excess_loss(q, r, [(0,), (1,)], [0, 1]) == pytest.approx(0, abs=1e-12)


def test_the_loss_never_falls_below_its_floor_and_the_bound_is_vacuous_there():
    floors = []
    for coupling in (0.05, 0.3):
        law = learning.family_law(learning.ising_features(4), [coupling] * 6 + [0] * 4)
        for k in range(1, 5):
            masks = blocks_of_size(4, k)
            constant = max(learning.mixing_constant(law, masks), 1)
            floors.append(np.sqrt(constant * tensorization.entropy_floor(law, masks) / 2))
    np.testing.assert_allclose(floors, [1.27, 1.24, 1.21, 1.18, 1.93, 1.70, 1.43, 1.07], atol=0.006)


def test_the_finite_sample_bound_where_it_speaks():
    law = learning.family_law(learning.ising_features(2), [0.5, 2.0, 2.0])
    loss = tensorization.entropy_floor(law, [[0, 1]])  # cross-entropy, as the chapter defines the loss
    settings = {"masks_each": np.inf, "n_sites": 2, "n_tokens": 2, "log_inverse_beta": 10.1, "log_cells": 20.4}
    found = [tensorization.finite_sample_bound(1.0, loss, n=n, **settings) for n in (10**4, 10**6, 10**8)]
    np.testing.assert_allclose(found, [0.58, 0.30, 0.26], atol=0.012)
    random = tensorization.finite_sample_bound(1.0, loss, n=10**8, **(settings | {"masks_each": 1e12}))
    assert random > 1
    with pytest.raises(ValueError, match="delta < 1"):
        tensorization.finite_sample_bound(1.0, 0.0, n=10, **settings, delta=1.0)


def test_the_rate_of_a_continuous_chain_is_no_rate_of_steps():
    # one site, one mask, C_AT = 1: exp(-t / C_AT) bounds the divergence at time t, exp(-2t / C_AT) does not
    q, start = np.array([1 - 1e-6, 1e-6]), np.array([0.0, 1.0])
    law = np.exp(-1) * start + (1 - np.exp(-1)) * q
    ratio = tensorization._divergence(law, q) / tensorization._divergence(start, q)
    assert ratio == pytest.approx(0.320, abs=5e-4) and np.exp(-2) < ratio < np.exp(-1)
