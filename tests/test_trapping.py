"""Sets grown round a state, against linear solves of whole systems and elimination in exact arithmetic."""

from fractions import Fraction

import numpy as np
import pytest
from conftest import random_table
from hypothesis import given
from hypothesis import strategies as st

from glauber_lib import exact
from glauber_lib.margins import escape_probability, log_exit_times
from glauber_lib.models import TabularModel, all_states
from glauber_lib.trapping import factor_leaving, grow_sets, times_to_leave


def exact_times(inside, out):
    """Solution of (I - Q) h = 1 in fractions."""
    size = len(out)
    rows = [[-Fraction(x) for x in row] + [Fraction(1)] for row in inside]
    for k in range(size):
        rows[k][k] = Fraction(out[k]) + sum(Fraction(x) for j, x in enumerate(inside[k]) if j != k)
    for k in range(size):
        for j in range(size):
            if j != k:
                factor = rows[j][k] / rows[k][k]
                rows[j] = [a - factor * b for a, b in zip(rows[j], rows[k], strict=True)]
    return [rows[k][size] / rows[k][k] for k in range(size)]


@pytest.mark.parametrize("rare", [1e-2, 1e-15, 1e-60])
def test_times_keep_their_precision_however_rarely_the_set_is_left(rare):
    rng = np.random.default_rng(0)
    inside = np.exp(rng.uniform(-20, 0, size=(6, 6))) / 6
    out = rare * np.exp(rng.uniform(-9, 0, size=6))
    times, spent = times_to_leave(inside, out)
    expected = exact_times(inside.tolist(), out.tolist())
    np.testing.assert_allclose(times, [float(t) for t in expected], rtol=1e-13)
    assert spent.sum() == pytest.approx(times[0], rel=1e-13) and (spent > 0).all()


def test_the_factors_multiply_to_the_system():
    rng = np.random.default_rng(1)
    inside, out = rng.random((5, 5)) / 10, rng.random(5) / 10
    lower, upper = factor_leaving(inside, out)
    np.fill_diagonal(inside, 0)
    np.testing.assert_allclose(lower @ upper, np.diag(out + inside.sum(1)) - inside, atol=1e-15)


@given(st.integers(0, 2**16), st.sampled_from([0.3, 1.0, 3.0]), st.integers(1, 12))
def test_a_grown_set_has_the_time_of_the_whole_matrix_at_every_size(seed, temperature, cap):
    model, states = random_table(3, 3, spread=3.0, seed=seed), all_states(3, 3)
    matrix = exact.transition_matrix(model, 3, temperature)
    (grown,) = grow_sets(model, states[[seed % 27]], temperature, cap=cap, tolerance=0.0)
    index = [int(np.flatnonzero((states == state).all(1)).item()) for state in grown.states]
    assert index[0] == seed % 27 and len(set(index)) == len(index) == cap and not grown.converged
    for size, time in zip(grown.sizes, grown.times, strict=True):
        assert time == pytest.approx(exact.escape_times(matrix, np.array(index[:size]))[0], rel=1e-5)
    assert (np.diff(grown.times) >= 0).all()
    assert grown.times[0] == pytest.approx(1 / escape_probability(model, states[seed % 27], temperature))


def test_the_state_that_joins_is_the_likeliest_exit():
    model, states = random_table(3, 3, spread=3.0), all_states(3, 3)
    matrix = exact.transition_matrix(model, 3, 1.0).toarray()
    (grown,) = grow_sets(model, states[[5]], 1.0, cap=7, tolerance=0.0)
    index = [int(np.flatnonzero((states == state).all(1)).item()) for state in grown.states]
    for k in range(1, 7):
        members = index[:k]
        green = np.linalg.inv(np.eye(k) - matrix[np.ix_(members, members)])[0]
        exits = green @ matrix[members]
        exits[members] = 0
        assert exits[index[k]] == pytest.approx(exits.max())


def two_wells(barrier):
    """Three tokens, four sites: at most one site without token 0 is a deep well, without token 1 a deeper one."""
    counts = np.stack([(all_states(3, 4) == token).sum(1) for token in range(3)])
    depth = np.where(counts[0] >= 3, barrier, 0.0) + np.where(counts[1] >= 3, barrier + 3, 0.0) - 0.3 * counts[2]
    return TabularModel.from_joint(depth.reshape((3,) * 4))


def test_growth_stops_when_a_well_is_filled_and_not_before():
    model = two_wells(12.0)
    (grown,) = grow_sets(model, [[0, 0, 0, 0]], 1.0, cap=60)
    assert grown.converged and 16 <= len(grown.states) < 60
    matrix, states = exact.transition_matrix(model, 4), all_states(3, 4)
    well = np.flatnonzero((states == 0).sum(1) >= 3)  # nine states
    expected = exact.escape_times(matrix, well)[0]
    assert expected <= grown.time * (1 + 1e-6) and grown.time < 4 * expected and grown.times[0] < expected / 1e3


def test_a_cap_ends_the_growth_and_says_so():
    (grown,) = grow_sets(two_wells(12.0), [[0, 0, 0, 0]], 1.0, cap=5)
    assert not grown.converged and len(grown.states) == 5


def test_sets_grown_together_are_those_grown_alone_at_their_own_temperatures():
    model, seeds = random_table(4, 3), all_states(3, 4)[[3, 3, 50]]
    together = grow_sets(model, seeds, [0.5, 1.0, 2.0], cap=9, tolerance=0.0)
    for seed, tau, grown in zip(seeds, (0.5, 1.0, 2.0), together, strict=True):
        (alone,) = grow_sets(model, [seed], tau, cap=9, tolerance=0.0)
        np.testing.assert_array_equal(alone.states, grown.states)
        np.testing.assert_allclose(alone.times, grown.times)


def test_tokens_that_are_not_kept_leave_the_set():
    model, seed = random_table(3, 6), [[1, 2, 3]]
    every = grow_sets(model, seed, 1.0, cap=20, tolerance=0.0, kept=5)[0]
    few = grow_sets(model, seed, 1.0, cap=20, tolerance=0.0, kept=2)[0]
    assert few.times[0] == pytest.approx(every.times[0]) and few.time < every.time


def test_a_cap_below_one_is_refused():
    with pytest.raises(ValueError, match=r"cap .*got 0"):
        grow_sets(random_table(2, 2), [[0, 0]], 1.0, cap=0)


def test_a_set_that_cannot_be_left_holds_its_chain_for_ever():
    (grown,) = grow_sets(random_table(2, 2), [[0, 0]], 1.0, cap=10, tolerance=0.0)
    assert grown.converged and len(grown.states) == 4 and grown.time == np.inf and np.isfinite(grown.times[:-1]).all()
    scores = np.array([[0.0, 0.0], [-np.inf, 0.0]])  # beside a token 0 no other token is allowed
    absorbing = TabularModel(np.stack([scores, scores.T]))
    stuck, free = grow_sets(absorbing, [[0, 0], [1, 1]], 1.0, cap=10)
    assert stuck.time == np.inf and stuck.converged and stuck.states.tolist() == [[0, 0]]
    assert free.time == np.inf and [0, 0] in free.states.tolist()  # it holds a state that is never left


def test_a_system_without_a_way_out_is_refused():
    for inside, out in ((np.ones((2, 2)) / 2, [0, 0]), ([[0, 0], [0.5, 0]], [0, 0.5])):
        with pytest.raises(ValueError, match="from every state a chain must get out"):
            times_to_leave(np.array(inside), np.array(out, float))


def test_a_single_state_has_not_converged():
    model = random_table(4, 3, seed=0, spread=3.0)
    (grown,) = grow_sets(model, [[0] * 4], 0.5, cap=60, least=1)
    assert grown.sizes[0] == 1 and len(grown.sizes) > 1


def test_a_set_is_grown_at_the_smallest_temperatures():
    model = random_table(4, 3, seed=0, spread=3.0)
    state = [[0] * 4]
    cold, colder = (grow_sets(model, state, t, cap=8)[0] for t in (1e-3, 1e-308))
    assert cold.times.tolist() == colder.times.tolist() and np.isfinite(colder.times[0])


def test_rates_of_other_states_than_the_exits_are_refused():
    with pytest.raises(ValueError, match="between K states"):
        times_to_leave(np.full((3, 3), 0.1), np.array([0.1, 0.2]))
    with pytest.raises(ValueError, match="between K states"):
        log_exit_times(np.zeros((3, 3)), np.zeros(2))
