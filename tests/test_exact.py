"""The exact laboratory against hand calculations and brute force."""

import numpy as np
import pytest
import scipy.special
import torch
from conftest import random_ising, random_joint, random_table
from hypothesis import given, settings
from hypothesis import strategies as st

from glauber_lib import exact
from glauber_lib.influence import contraction_bound, contraction_norms
from glauber_lib.margins import basin_escape_times, escape_bound, mixing_lower_bound
from glauber_lib.models import IsingModel, RestrictedModel, TabularModel, all_states

temperatures = st.sampled_from([0.2, 1.0, 5.0])


def brute_force_matrix(model, n, temperature):
    """The kernel entry by entry, as the paper's §3 writes it."""
    states = all_states(model.n_tokens, n)
    matrix = np.zeros((len(states), len(states)))
    for k, x in enumerate(states):
        for i in range(n):
            scores = np.asarray(model.scores(x[None], np.array([i]))[0], float)
            law = scipy.special.softmax(scores / temperature)
            for m, y in enumerate(states):
                if (np.delete(x, i) == np.delete(y, i)).all():
                    matrix[k, m] += law[y[i]] / n
    return matrix


def test_transition_matrix_is_the_kernel_of_the_paper(system):
    matrix = exact.transition_matrix(system.model, system.n, 0.6).toarray()
    np.testing.assert_allclose(matrix, brute_force_matrix(system.model, system.n, 0.6), atol=1e-6)
    np.testing.assert_allclose(matrix.sum(1), 1, atol=1e-12)


def test_one_site_of_two_tokens_solved_by_hand():
    model = TabularModel([[0.0, np.log(3)]])
    matrix = exact.transition_matrix(model, 1)
    np.testing.assert_allclose(matrix.toarray(), [[0.25, 0.75], [0.25, 0.75]])
    np.testing.assert_allclose(exact.transition_matrix(model, 1, 0.5).toarray()[0], [0.1, 0.9])
    np.testing.assert_allclose(exact.stationary_law(matrix), [0.25, 0.75])
    np.testing.assert_allclose(exact.escape_times(matrix, [0]), [1 / 0.75])
    assert exact.conductance(matrix, [0]) == pytest.approx(0.75)
    assert exact.mixing_time(matrix) == 1


def test_two_spins_solved_by_hand():
    # coupling J: aligned spins flip at rate p = 1 / (1 + e^{2J}) per chosen site, opposed ones at 1 - p
    p = 1 / (1 + np.exp(2.0))
    q = 1 - p
    hand = np.array([[q, p / 2, p / 2, 0], [q / 2, p, 0, q / 2], [q / 2, 0, p, q / 2], [0, p / 2, p / 2, q]])
    matrix = exact.transition_matrix(IsingModel([[0.0, 1.0], [1.0, 0.0]]), 2)
    np.testing.assert_allclose(matrix.toarray(), hand, atol=1e-15)
    np.testing.assert_allclose(exact.stationary_law(matrix), np.array([q, p, p, q]) / 2, atol=1e-12)
    # from ++ the chain leaves the half {++, +-} by the second spin's neighbour alone
    assert exact.conductance(matrix, [3, 2]) == pytest.approx((q * p / 2 + p * q / 2) / (p + q))


@given(st.integers(0, 2**32), temperatures)
def test_stationary_law_of_spins_is_their_gibbs_law(seed, temperature):
    model = random_ising(4, seed=seed)
    spins = 2 * all_states(2, 4) - 1
    couplings, field = model.couplings.numpy(), model.field.numpy()
    energy = np.einsum("ki,ij,kj->k", spins, couplings, spins) / 2 + spins @ field
    law = exact.stationary_law(exact.transition_matrix(model, 4, temperature))
    # resampling at temperature 1 from scores 2h is resampling the Gibbs law itself
    np.testing.assert_allclose(law, scipy.special.softmax(energy / temperature), atol=1e-9)


@given(st.integers(0, 2**32), temperatures)
def test_a_joint_is_stationary_and_in_detailed_balance(seed, temperature):
    model, log_joint = random_joint(3, 2, seed=seed)
    matrix = exact.transition_matrix(model, 3, temperature).toarray()
    law = scipy.special.softmax(log_joint.ravel() / temperature)
    flow = law[:, None] * matrix
    np.testing.assert_allclose(flow, flow.T, atol=1e-14)
    np.testing.assert_allclose(exact.stationary_law(exact.transition_matrix(model, 3, temperature)), law, atol=1e-9)


def test_tiny_stationary_probabilities_keep_their_relative_precision():
    model, log_joint = random_joint(3, 3)
    law = scipy.special.softmax(log_joint.ravel() / 0.1)
    assert law.min() < 1e-16
    np.testing.assert_allclose(exact.stationary_law(exact.transition_matrix(model, 3, 0.1)), law, rtol=1e-12)


def test_the_mass_of_basins_that_hardly_communicate_is_exact():
    # both ground states of cold spins have half of it; a chain takes some e^40 steps from one to the other
    law = exact.stationary_law(exact.transition_matrix(IsingModel(np.ones((3, 3)) - np.eye(3)), 3, 0.1))
    np.testing.assert_allclose(law[[0, -1]], 0.5, rtol=1e-12)
    with pytest.raises(ValueError, match="reducible"):
        exact.stationary_law(exact.transition_matrix(IsingModel([[0.0, 1e4], [1e4, 0.0]]), 2))


def test_incompatible_conditionals_are_not_reversible():
    matrix = exact.transition_matrix(random_table(3, 2), 3)
    law = exact.stationary_law(matrix)
    np.testing.assert_allclose(law @ matrix, law, atol=1e-12)
    flow = law[:, None] * matrix.toarray()
    assert np.abs(flow - flow.T).max() > 1e-3


@pytest.mark.parametrize("temperature", [0.4, 1.0, 3.0])
@pytest.mark.parametrize("epsilon", [0.01, 0.25])
def test_mixing_time_is_that_of_the_matrix_powers(temperature, epsilon):
    matrix = exact.transition_matrix(random_table(3, 2), 3, temperature)
    dense, law = matrix.toarray(), exact.stationary_law(matrix)

    def distance(t):
        return max(np.abs(row - law).sum() / 2 for row in np.linalg.matrix_power(dense, t))

    t = exact.mixing_time(matrix, epsilon)
    assert distance(t) <= epsilon < distance(t - 1)


def test_mixing_past_the_limit_is_an_error():
    cold = exact.transition_matrix(IsingModel([[0.0, 5.0], [5.0, 0.0]]), 2)
    with pytest.raises(ValueError, match=r"not mixed to 0\.25 within 50 steps"):
        exact.mixing_time(cold, limit=50)


@given(st.integers(0, 2**32), temperatures, st.integers(0, 26))
def test_escape_time_of_a_single_state_is_geometric(seed, temperature, state):
    matrix = exact.transition_matrix(random_table(3, 3, seed=seed), 3, temperature)
    (time,) = exact.escape_times(matrix, [state])
    assert time == pytest.approx(1 / (1 - matrix[state, state]), rel=1e-6)


def test_escape_time_of_a_basin_is_the_sum_of_its_survival():
    # E T = sum over t of P(T > t), and P(T > t) is what the matrix restricted to the basin keeps after t steps
    matrix, basin = exact.transition_matrix(random_table(3, 2), 3, 0.5), [1, 3, 7]
    inside = matrix.toarray()[np.ix_(basin, basin)]
    survival, alive = np.zeros(3), np.ones(3)
    for _ in range(5_000):
        survival += alive
        alive = inside @ alive
    np.testing.assert_allclose(exact.escape_times(matrix, basin), survival, rtol=1e-9)


def test_a_basin_without_a_way_out_in_float64_is_said_so():
    table = np.zeros((2, 2, 2))
    table[0, 0] = 800.0  # site 0 leaves token 0 with a chance of e^-800
    matrix = exact.transition_matrix(TabularModel(table), 2)
    with pytest.raises(ValueError, match=r"state 0 never leaves the basin: .*below 1e-308"):
        exact.escape_times(matrix, [0, 1])
    np.testing.assert_allclose(exact.escape_times(matrix, [1]), [4.0])


def test_a_model_of_one_token_has_no_influence_and_no_system_to_solve():
    model = TabularModel(np.zeros((2, 1, 1)))
    assert not exact.influence(model, 2).any() and not exact.oscillation(model, 2).any()
    with pytest.raises(ValueError, match="a system needs two tokens"):
        exact.solve_system(model, 2, [1.0])


@pytest.mark.parametrize("basin", [[-1], [8], [0, 0], [], [0.0], [[0, 1]]])
def test_state_codes_of_no_state_are_refused(basin):
    matrix = exact.transition_matrix(random_table(3, 2), 3)
    for read in (exact.escape_times, exact.conductance):
        with pytest.raises(ValueError, match="basin must be"):
            read(matrix, basin)


@pytest.mark.parametrize("epsilon", [0, 1, -1, np.nan])
def test_a_mixing_time_to_no_distance_is_refused(epsilon):
    with pytest.raises(ValueError, match="epsilon must be above 0 and below 1"):
        exact.mixing_time(exact.transition_matrix(random_table(2, 2), 2), epsilon)


def test_a_table_is_of_as_many_sites_as_it_has():
    for n_sites in (2, 4):
        with pytest.raises(ValueError, match=r"states must have shape \(B, 3\)"):
            exact.tabulate(random_table(3, 2), n_sites)


def test_conductance_is_the_flow_out_over_the_mass():
    matrix, basin = exact.transition_matrix(random_table(3, 2), 3), [0, 1, 5]
    law, dense = exact.stationary_law(matrix), matrix.toarray()
    out = sum(law[x] * dense[x, y] for x in basin for y in range(8) if y not in basin)
    assert exact.conductance(matrix, basin) == pytest.approx(out / law[basin].sum())


def test_a_temperature_that_is_not_positive_is_refused():
    for temperature in (0, -1, np.nan, np.inf):
        with pytest.raises(ValueError, match="temperature must be > 0"):
            exact.transition_matrix(random_table(2, 2), 2, temperature)


# The theorems of the paper's section 5 on small systems ------------------------------------------------------------


@st.composite
def systems(draw):
    """A small model, its number of sites, a temperature."""
    seed, temperature = draw(st.integers(0, 2**32)), draw(st.sampled_from([0.3, 0.7, 1.0, 2.0, 6.0]))
    if draw(st.booleans()):
        n = draw(st.integers(2, 5))
        return random_ising(n, seed=seed, strength=draw(st.sampled_from([0.1, 0.5]))), n, temperature
    n, n_tokens = draw(st.sampled_from([(2, 2), (2, 3), (3, 2), (3, 3)]))
    return random_table(n, n_tokens, seed=seed, spread=draw(st.sampled_from([0.1, 0.5, 1.5]))), n, temperature


@st.composite
def basins(draw):
    """A small model with two favoured states, a set of states around the first, a temperature."""
    n, n_tokens = draw(st.sampled_from([(2, 2), (2, 3), (3, 2), (3, 3)]))
    seed, depth = draw(st.integers(0, 2**32)), draw(st.sampled_from([0.0, 2.0, 5.0]))
    table = np.random.default_rng(seed).normal(scale=0.3 if depth else 1.0, size=(n, *[n_tokens] * n))
    for favoured in (0, n_tokens - 1):
        table[:, *[favoured] * n] += depth
    others = draw(st.sets(st.integers(1, n_tokens**n - 2), max_size=draw(st.sampled_from([0, 2]))))
    codes = np.array(sorted({0, *others}))
    return TabularModel(table), n, codes, draw(st.sampled_from([0.3, 0.7, 1.0, 2.0]))


def brute_force_influence(model, n, temperature):
    """The suprema over pairs of states, pair by pair."""
    states, law = all_states(model.n_tokens, n), exact.conditional_laws(model, n, temperature)
    total_variation, oscillation = np.zeros((n, n)), np.zeros((n, n))
    for j in range(n):
        for a, x in enumerate(states):
            for b, y in enumerate(states):
                if (np.flatnonzero(x != y) == [j]).all() and (x != y).any():
                    for i in set(range(n)) - {j}:
                        tv = 0.5 * np.abs(law[i, a] - law[i, b]).sum()
                        s, t = (np.asarray(model.scores(z[None], np.array([i]))[0], float) for z in (x, y))
                        total_variation[i, j] = max(total_variation[i, j], tv)
                        oscillation[i, j] = max(oscillation[i, j], np.ptp(s - t))
    return total_variation, oscillation


@given(systems())
@settings(max_examples=15)
def test_influence_and_oscillation_are_the_suprema_over_all_pairs(system):
    model, n, temperature = system
    total_variation, oscillation = brute_force_influence(model, n, temperature)
    np.testing.assert_allclose(exact.influence(model, n, temperature), total_variation, atol=1e-14)
    np.testing.assert_allclose(exact.oscillation(model, n), oscillation, atol=1e-12)


@given(systems())
@settings(max_examples=200)
def test_total_variation_stays_under_the_tanh_of_the_oscillation(system):
    model, n, temperature = system
    bound = np.tanh(exact.oscillation(model, n) / (4 * temperature))
    assert (exact.influence(model, n, temperature) <= bound + 1e-12).all()


@given(systems(), st.sampled_from([0.01, 0.1, 0.25]))
@settings(max_examples=200)
def test_the_chain_mixes_within_the_contraction_bound(system, epsilon):
    model, n, temperature = system
    alpha = contraction_norms(exact.influence(model, n, temperature))["alpha"]
    matrix = exact.transition_matrix(model, n, temperature)
    if alpha < 1:  # about two thirds of the systems drawn
        assert exact.mixing_time(matrix, epsilon) <= contraction_bound(alpha, n, epsilon)


@given(basins())
@settings(max_examples=200)
def test_escape_and_conductance_stay_under_the_bound_of_the_margin(basin):
    model, n, codes, temperature = basin
    matrix = exact.transition_matrix(model, n, temperature)
    gamma = exact.margin(model, all_states(model.n_tokens, n)[codes])
    bound = escape_bound(gamma, temperature, model.n_tokens)
    outside = np.setdiff1d(np.arange(matrix.shape[0]), codes)
    assert (matrix.toarray()[np.ix_(codes, outside)].sum(1) <= bound + 1e-12).all()
    assert exact.conductance(matrix, codes) <= bound + 1e-9


@given(basins())
@settings(max_examples=200)
def test_a_basin_of_at_most_half_the_mass_makes_mixing_slow(basin):
    model, n, codes, temperature = basin
    matrix = exact.transition_matrix(model, n, temperature)
    if exact.stationary_law(matrix)[codes].sum() <= 0.5:
        gamma = exact.margin(model, all_states(model.n_tokens, n)[codes])
        assert exact.mixing_time(matrix) >= mixing_lower_bound(gamma, temperature, model.n_tokens)


def test_the_systems_drawn_put_the_theorems_to_the_test():
    # among systems like those above, many contract, many do not, and the slow-mixing bound is not always vacuous
    alphas = [exact.influence(random_table(3, 2, seed=k, spread=0.5), 3, 1.0).sum(0).max() for k in range(40)]
    assert 5 < np.sum(np.array(alphas) < 1) < 40
    table = np.zeros((2, 2, 2))
    table[:, 0, 0] = table[:, 1, 1] = 4.0
    cold = TabularModel(table)
    gamma = exact.margin(cold, [[0, 0]])
    assert gamma == pytest.approx(4.0)
    bound = mixing_lower_bound(gamma, 0.5, 2)
    assert 100 < bound < exact.mixing_time(exact.transition_matrix(cold, 2, 0.5))


def test_margin_counts_only_sites_whose_change_leaves_the_set():
    table = np.zeros((2, 2, 2))
    table[0, 0], table[1, :, 0] = 3.0, 1.0  # site 0 prefers token 0 by 3, site 1 by 1
    model = TabularModel(table)
    assert exact.margin(model, [[0, 0]]) == pytest.approx(1.0)
    assert exact.margin(model, [[0, 0], [0, 1]]) == pytest.approx(3.0)
    assert exact.margin(model, [[0, 1]]) == pytest.approx(-1.0)
    assert exact.margin(model, all_states(2, 2)) == np.inf


# The laboratory's other numbers ------------------------------------------------------------------------------------


@given(systems())
@settings(max_examples=20)
def test_a_tabulated_model_has_the_scores_of_the_model(system):
    model, n, _ = system
    states, table = all_states(model.n_tokens, n), exact.tabulate(model, n)
    for i in range(n):
        at = np.full(len(states), i)
        np.testing.assert_allclose(table.scores(states, at), model.scores(states, at), atol=1e-12)


def test_the_gap_is_that_of_a_two_state_chain_solved_by_hand():
    # two spins without coupling: eigenvalues of the lazy choice of a site are 1, 1/2, 1/2, 0
    assert exact.spectral_gap(exact.transition_matrix(IsingModel(np.zeros((2, 2))), 2)) == pytest.approx(0.5)
    one = exact.transition_matrix(TabularModel([[0.0, np.log(3)]]), 1)
    assert exact.spectral_gap(one) == pytest.approx(1.0)


def test_circulation_is_zero_for_a_joint_and_the_current_of_a_ring_otherwise():
    joint = exact.transition_matrix(random_joint(3, 2)[0], 3)
    assert exact.reversibility_defect(joint) < 1e-12
    table = np.zeros((2, 2, 2))  # 00 -> 10 -> 11 -> 01 -> 00, by strong conditionals
    table[0, 1, 0] = table[1, 1, 1] = table[0, 0, 1] = table[1, 0, 0] = 50.0
    ring = exact.transition_matrix(TabularModel(table), 2)
    assert exact.reversibility_defect(ring) == pytest.approx(0.5)  # each of four states moves on half of the time


def test_the_normalised_pseudo_likelihood_of_independent_sites_is_their_joint():
    fields = np.array([0.3, -0.7, 1.1])
    model = IsingModel(np.zeros((3, 3)), fields)
    law = exact.stationary_law(exact.transition_matrix(model, 3))
    np.testing.assert_allclose(exact.pseudo_likelihood(model, 3), law, atol=1e-12)
    coupled = random_ising(3, strength=1.0)
    apart = exact.compare_laws(
        exact.stationary_law(exact.transition_matrix(coupled, 3)), exact.pseudo_likelihood(coupled, 3)
    )
    assert apart["TV"] > 0.01


def test_laws_compared_by_hand():
    facts = exact.compare_laws(np.array([0.5, 0.5, 0.0]), np.array([0.25, 0.5, 0.25]))
    assert facts["TV"] == pytest.approx(0.25)
    assert facts["KL(p‖q)"] == pytest.approx(0.5 * np.log(2))
    assert facts["KL(q‖p)"] == np.inf
    assert facts["rank correlation"] == pytest.approx(0.5)


def test_a_system_too_large_for_full_matrices_is_refused(monkeypatch):
    matrix = exact.transition_matrix(random_ising(6), 6)
    monkeypatch.setattr(exact, "DENSE", 10)
    for read in (exact.mixing_time, exact.stationary_law, exact.spectral_gap):
        with pytest.raises(ValueError, match="at most 10 states, got 64"):
            read(matrix)


def test_a_restricted_language_model_asks_the_model_about_the_filled_template(tiny):
    model = tiny["bert"]
    template, sites, tokens = np.arange(10, 16), np.array([4, 1]), np.array([30, 7, 12])
    small = RestrictedModel(model, template, sites, tokens)
    states, at = np.array([[0, 2], [1, 1]]), np.array([0, 1])
    full = np.array([[10, 12, 12, 13, 30, 15], [10, 7, 12, 13, 7, 15]])
    np.testing.assert_array_equal(small.fill(states), full)
    np.testing.assert_allclose(small.scores(states, at), model.scores(full, sites[at])[:, tokens], atol=1e-6)
    law = exact.stationary_law(exact.transition_matrix(exact.tabulate(small, 2), 2))
    assert law.shape == (9,) and law.sum() == pytest.approx(1)
    with pytest.raises(ValueError, match="must be distinct"):
        RestrictedModel(model, template, [1, 1], tokens)


def test_a_solved_system_holds_what_its_parts_give():
    model, n = IsingModel(np.ones((4, 4)) - np.eye(4)), 4
    table = exact.solve_system(model, n, [0.8, 8.0])
    assert list(table.temperature) == [0.8, 8.0] and (table.states == 16).all()
    for row in table.itertuples():
        matrix = exact.transition_matrix(model, n, row.temperature)
        alpha = contraction_norms(exact.influence(model, n, row.temperature))["alpha"]
        assert row.mixing_time == exact.mixing_time(matrix) and row.alpha == pytest.approx(alpha)
        assert row.upper == contraction_bound(alpha, n) and row.relaxation_time == 1 / exact.spectral_gap(matrix)
        assert row.lower == pytest.approx(mixing_lower_bound(6.0, row.temperature, 2))  # of all spins aligned
        assert row.lower <= row.mixing_time <= row.upper and row.circulation < 1e-12
        law = exact.stationary_law(matrix)
        apart = exact.compare_laws(law, exact.pseudo_likelihood(model, n, row.temperature))
        assert row.TV == pytest.approx(apart["TV"])
    assert np.isinf(table.upper[0]) and np.isfinite(table.upper[1])


def test_a_system_without_a_margin_has_no_lower_bound():
    assert exact.solve_system(TabularModel(np.zeros((2, 2, 2))), 2, [1.0]).lower.isna().all()


@pytest.mark.parametrize("depth", [30, 45, 300])
def test_the_time_to_leave_a_basin_is_exact_however_much_slower_than_its_moves(depth):
    table = np.zeros((2, 3, 3))
    table[0, 0, :2] = depth  # site 0 holds its token 0, while site 1 changes between 0 and 1
    table[1, :, 2] = -depth
    model = TabularModel(table)
    time = exact.escape_times(exact.transition_matrix(model, 2), [0, 1])
    np.testing.assert_allclose(time, basin_escape_times(model, [[0, 0], [0, 1]], 1.0), rtol=1e-12)


@pytest.mark.parametrize("temperature", [1.0, 0.01, 1e-4])
def test_the_pseudo_likelihood_keeps_its_ratios_where_no_state_has_a_weight_in_float64(temperature):
    table = np.zeros((2, 2, 2))
    table[0, [0, 1], [0, 1]], table[1, [0, 1], [1, 0]] = 5.0, 3.0  # site 0 wants to agree, site 1 to differ
    law = exact.pseudo_likelihood(TabularModel(table), 2, temperature)
    ratio = np.exp(-2 / temperature)  # the state that lacks 5 against the one that lacks 3
    np.testing.assert_allclose(law, np.array([1, ratio, ratio, 1]) / (2 + 2 * ratio), atol=1e-12)


@pytest.mark.parametrize("law", [[np.nan, 1.0], [3, 7], [0.5, 0.6], [-0.5, 1.5], [1.0], [0.5, 0.5, 0.0]])
def test_what_is_no_law_is_refused_and_nan_is_not_mixed(law):
    with pytest.raises(ValueError, match="need two laws"):
        exact.compare_laws(np.array([0.5, 0.5]), np.array(law))
    matrix = exact.transition_matrix(random_table(2, 2), 2)
    with pytest.raises(ValueError, match="law must be 4 probabilities"):
        exact.mixing_time(matrix, law=np.full(4, np.nan))


def test_a_law_that_is_not_the_stationary_one_is_refused():
    model = random_table(2, 3)
    matrix = exact.transition_matrix(model, 2)
    law, other = exact.stationary_law(matrix), exact.stationary_law(exact.transition_matrix(model, 2, 2.0))
    for read in (exact.mixing_time, exact.reversibility_defect):
        assert read(matrix, law=law) == read(matrix)
        for wrong, message in (
            (2 * law, "law must be 9 prob"),
            (other, "must be the stationary"),
            (law[:4], "must be 9"),
        ):
            with pytest.raises(ValueError, match=message):
                read(matrix, law=wrong)


def test_a_matrix_whose_rows_are_no_steps_is_refused():
    matrix = exact.transition_matrix(random_table(2, 3), 2)
    reads = (exact.stationary_law, exact.spectral_gap, exact.mixing_time, exact.reversibility_defect,
             lambda m: exact.conductance(m, [0, 1]), lambda m: exact.escape_times(m, [0, 1]),
             lambda m: exact.reversibility_defect(m, law=np.full(9, 1 / 9)))  # fmt: skip
    broken, negative = matrix.copy(), matrix.copy()
    broken[0, 0], negative[0, [0, 1]] = np.nan, [-1, 1 - matrix[0, 2:].sum() + 1]
    for wrong in (matrix.T.tocsr(), 0.5 * matrix, broken, negative, matrix[:8]):
        for read in reads:
            with pytest.raises(ValueError, match="each row of the matrix must hold the probabilities of a step"):
                read(wrong)


def test_a_system_that_is_not_small_is_refused():
    with pytest.raises(ValueError, match=r"28996\^3 is no small system"):
        all_states(28_996, 3)


# What float64 does not hold ------------------------------------------------------------------------------------------


def test_a_gap_too_small_for_its_digits_is_no_number():
    pair = lambda coupling: exact.transition_matrix(IsingModel([[0, coupling], [coupling, 0]]), 2)  # noqa: E731
    for coupling in (1.0, 5.0, 10.0):
        gap = 1 / (1 + np.exp(2 * coupling))
        assert exact.spectral_gap(pair(coupling)) == pytest.approx(gap, rel=1e-5)
    assert np.isnan(exact.spectral_gap(pair(14.0))) and np.isnan(exact.spectral_gap(pair(20.0)))


@pytest.mark.parametrize(("n_tokens", "epsilon", "steps"), [(3, 2 / 9, 2), (4, 9 / 32, 2), (5, 16 / 25, 1)])
def test_a_distance_that_is_epsilon_but_for_rounding_counts_as_near(n_tokens, epsilon, steps):
    matrix = exact.transition_matrix(TabularModel(np.zeros((2, n_tokens, n_tokens))), 2)  # TV (1 - 1/V)^2 after a step
    assert exact.mixing_time(matrix, epsilon) == steps


class InPlace:
    """A model that writes its mask into the states it is given, and answers in one buffer."""

    memory = 0

    def __init__(self, model, n_sites):
        self.model, self.n_tokens, self.n_sites, self.device = model, model.n_tokens, n_sites, model.device
        self.buffer = torch.zeros(10_000, model.n_tokens)

    def scores(self, states, sites, hidden=None):
        found = self.model.scores(states, sites, hidden)
        torch.as_tensor(states)[torch.arange(len(states)), torch.as_tensor(sites)] = 0
        self.buffer[: len(found)] = found
        return self.buffer[: len(found)]


def test_a_model_that_masks_in_place_and_reuses_its_buffer_is_solved_as_it_is():
    model = random_table(3, 3, seed=5)
    other = InPlace(model, 3)
    assert np.allclose(exact.conditional_laws(other, 3), exact.conditional_laws(model, 3), atol=1e-6)
    tables = [exact.tabulate(one, 3).to_arrays()["table"] for one in (other, model)]
    assert np.allclose(*tables, atol=1e-6)  # the buffer is of float32


def test_a_kernel_has_one_temperature_and_a_solved_system_a_size():
    model = IsingModel(np.ones((2, 2)) - np.eye(2))
    for ask_for in (exact.transition_matrix, exact.conditional_laws, exact.influence):
        with pytest.raises((ValueError, TypeError)):
            ask_for(model, 2, [0.5, 1.0, 1.5, 2.0])
    with pytest.raises(ValueError, match="at most 4096 states"):
        exact.solve_system(IsingModel(np.zeros((13, 13))), 13, [1.0])


# What no other test tells from a small fault (mutants.md) ------------------------------------------------------------


def test_a_basin_of_more_than_half_of_the_mass_bounds_no_mixing_time():
    table = exact.solve_system(IsingModel(np.zeros((2, 2)), [1.0, 1.0]), 2, [1.0])  # one favourite state, (1, 1)
    assert exact.margin(IsingModel(np.zeros((2, 2)), [1.0, 1.0]), [[1, 1]]) == 2 and table.lower.isna().all()


def test_a_chain_of_one_state_is_mixed_before_its_first_step():
    assert exact.mixing_time(exact.transition_matrix(TabularModel(np.zeros((2, 1, 1))), 2)) == 0


@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_a_limit_of_the_mixing_time_itself_is_enough_and_one_less_is_not(temperature):
    matrix = exact.transition_matrix(random_table(3, 2), 3, temperature)
    steps = exact.mixing_time(matrix)
    assert exact.mixing_time(matrix, limit=steps) == steps > 1
    with pytest.raises(ValueError, match=f"not mixed to 0.25 within {steps - 1} steps"):
        exact.mixing_time(matrix, limit=steps - 1)


def test_systems_of_one_site_and_of_one_token():
    one = TabularModel([[0.0, np.log(3)]])
    assert exact.tabulate(one, 1).to_arrays()["table"].tolist() == [[0.0, np.log(3)]]
    still = TabularModel(np.zeros((2, 1, 1)))
    assert exact.spectral_gap(exact.transition_matrix(still, 2)) == 1
    assert exact.tabulate(still, 2).to_arrays()["table"].tolist() == [[[0.0]], [[0.0]]]


def test_the_contraction_of_a_solved_system_is_the_largest_sum_over_the_sites_that_listen():
    table = np.zeros((3, 2, 2, 2))
    table[0, :, 1], table[2, :, 1] = [[2, 2], [0, 0]], [[0, 1], [0, 1]]  # sites 0 and 2 listen to site 1
    found = exact.influence(TabularModel(table), 3)
    assert exact.solve_system(TabularModel(table), 3, [1.0]).alpha[0] == found[:, 1].sum() > found.sum(1).max() > 0
