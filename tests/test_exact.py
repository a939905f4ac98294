"""The exact laboratory against hand calculations and brute force."""

import numpy as np
import pytest
import scipy.special
from conftest import random_ising, random_joint, random_table
from hypothesis import given
from hypothesis import strategies as st

from glauber_lib import exact
from glauber_lib.models import IsingModel, TabularModel, all_states

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


def test_conductance_is_the_flow_out_over_the_mass():
    matrix, basin = exact.transition_matrix(random_table(3, 2), 3), [0, 1, 5]
    law, dense = exact.stationary_law(matrix), matrix.toarray()
    out = sum(law[x] * dense[x, y] for x in basin for y in range(8) if y not in basin)
    assert exact.conductance(matrix, basin) == pytest.approx(out / law[basin].sum())


def test_a_temperature_that_is_not_positive_is_refused():
    for temperature in (0, -1, np.nan, np.inf):
        with pytest.raises(ValueError, match="temperature must be > 0"):
            exact.transition_matrix(random_table(2, 2), 2, temperature)
