"""Parallel decoding and blocks on a clique of spins and on Dyck strings: exact chains, and the chapter's bounds."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glauber_lib import blocks, exact, kernels, parallel
from glauber_lib.models import IsingModel, TabularModel, all_states


def full_matrix(model, n, block, inside):
    return blocks.block_matrix(model, n, blocks.blocks_of_size(n, block), inside=inside).toarray()


# The clique ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inside", kernels.INSIDES)
@pytest.mark.parametrize(("n", "size"), [(5, 3), (4, 4)])
def test_the_count_of_the_clique_is_the_chain_of_all_states_lumped(n, size, inside):
    model, plus = parallel.clique_model(n, size, 0.4, 0.7), all_states(2, n)[:, :size].sum(1)
    for block in range(1, n + 1):
        matrix = full_matrix(model, n, block, inside) @ (plus[:, None] == np.arange(size + 1))
        lumped = np.exp(parallel.log_clique_matrix(n, size, 0.4, 0.7, block=block, inside=inside))
        np.testing.assert_allclose(matrix, lumped[plus], atol=1e-12)


def test_the_law_of_the_clique_is_that_of_the_spins():
    counts = parallel.clique_law(3, 0.4, 0.7)
    chain = exact.sp.csr_matrix(np.exp(parallel.log_clique_matrix(3, 3, 0.4, 0.7)))
    np.testing.assert_allclose(counts, exact.stationary_law(chain), atol=1e-12)


def test_the_mean_times_of_the_figure_and_of_the_first_instance():
    means = lambda j, **how: math.exp(parallel.clique_hitting_time(10, 4, 5.0, j, **how))  # noqa: E731
    expected = {
        (3, 1, "sequential"): 1.0e4, (8, 1, "sequential"): 2.2e19, (4, None, "visible"): 3.0e5,
        (8, None, "visible"): 4.3e20, (6, 3, "sequential"): 1.2e4, (6, 4, "sequential"): 199.1, (6, 4, "hidden"): 197.1,
    }  # fmt: skip
    for (j, block, inside), value in expected.items():
        assert means(j, block=block, inside=inside) == pytest.approx(value, rel=0.05)
    found = [means(21, block=k) for k in range(4, 11)]
    np.testing.assert_allclose(found, [210, 42, 14, 6, 3, 5 / 3, 1], rtol=1e-10)


def test_the_plain_loop_reaches_the_mode_in_the_exact_mean_time():
    n, block = 10, 8
    model = parallel.clique_model(n, 4, 5.0, 6.0)
    trace = kernels.run(
        model, np.zeros((150, n), int), n_steps=200, block=block, seed=1, until=lambda x: x[:, :4].all(1)
    )
    mean = math.exp(parallel.clique_hitting_time(n, 4, 5.0, 6.0, block=block))
    assert (trace.stopped >= 0).all()
    assert abs(trace.stopped.mean() - mean) < 3 * trace.stopped.std() / np.sqrt(150)


def test_no_product_step_is_a_block_step():
    # two balanced modes: fast and right, fast and wrong, slow and right
    model = parallel.clique_model(4, 4, 0.0, 1.0)
    law = exact.stationary_law(exact.transition_matrix(model, 4))
    tv = {k: exact.compare_laws(law, exact.stationary_law(exact.sp.csr_matrix(full_matrix(model, 4, 4, k))))["TV"]
          for k in kernels.INSIDES}  # fmt: skip
    assert tv["sequential"] < 1e-12 and tv["hidden"] == pytest.approx(0.86, abs=0.005) and tv["visible"] < 0.01


# Bounds --------------------------------------------------------------------------------------------------------------


def test_the_excess_is_that_of_the_formula_of_either_sign():
    for field in (1.0, -1.0):
        log = parallel.clique_law(3, field, 1.0) / [1, 3, 3, 1]  # of one clique each
        assert parallel.mode_excess(3, field, 1.0) == pytest.approx(np.log(log[0] / log[1:3]).min() / 2)


cliques = st.tuples(st.integers(2, 6), st.floats(0.01, 2.0), st.floats(0.5, 4.0))


@given(cliques, st.integers(0, 3), st.integers(0, 3))
def test_one_step_reaches_the_mode_at_least_as_often_as_the_bound_says(clique, free, more):
    size, field, coupling = clique
    n, block = size + free, size + min(free, more)
    if (excess := parallel.mode_excess(size, field, coupling)) <= 0:
        return
    reach = np.exp(parallel.log_clique_matrix(n, size, field, coupling, block=block)[:, -1]).min()
    assert reach >= parallel.mode_bound(n, size, block, excess, size * field) * (1 - 1e-12)


@given(st.integers(3, 14), st.floats(0.01, 0.2), st.floats(0.2, 3.0), st.sampled_from([0.1, 0.5, 0.9]))
def test_parallel_decoding_stays_at_least_as_long_as_both_bounds_say(size, field, excess, delta):
    low = np.arange(size + 1) <= (size - 2) // 2
    log = parallel.log_clique_matrix(size, size, field, excess + field, block=None, inside="visible")
    inside = np.exp(log)[np.ix_(low, low)]
    assert 1 - inside.sum(1).min() <= parallel.stuck_tail(size, excess) + 1e-12
    steps = min(int(parallel.stuck_bound(size, excess, delta)), 10**6)
    assert np.linalg.matrix_power(inside, steps).sum(1).min() >= 1 - delta - 1e-9


def test_the_bound_of_the_chapter_fails_at_two_sites_where_it_is_zero_here():
    size, field, excess, delta = 2, 5e-4, 1e-3, 0.74
    claimed = np.floor(delta / 2 * np.exp(2 / size * (size * np.tanh(excess) / 2 - 1) ** 2))
    log = parallel.log_clique_matrix(size, size, field, excess + size * field, block=None, inside="visible")
    stays = np.exp(log[0, 0])
    assert claimed == 1 and stays == pytest.approx(0.2508, abs=2e-4) and stays < 1 - delta
    assert parallel.stuck_bound(size, excess, delta) == 0


def test_the_constant_of_the_corollary_proof_is_false():
    size, h, excess = 4, 1e-3, 1e-3
    reach = np.exp(parallel.log_clique_matrix(size, size, h / size, excess + h, block=size)[:, -1]).min()
    top = math.exp(2 * (excess + h))
    assert top / (top + math.exp(2 * excess) + 2 * size - 2) > 1.9 * reach


def test_the_instances_of_the_corollary():
    found = parallel.separation(0.1, 1_000)
    assert found.size == 93 and found.coupling == pytest.approx(34.41, abs=5e-3)
    field = found.field_sum / found.size
    assert parallel.clique_law(93, field, found.coupling)[-1] == pytest.approx(0.98734, abs=1e-5)
    log = parallel.log_clique_matrix(93, 93, field, found.coupling, block=None, inside="visible")
    assert np.logaddexp.reduce(log[0, 47:]) < -1_000 * math.log(10)
    hidden = parallel.clique_hitting_time(93, 93, field, found.coupling, block=None, inside="hidden")
    assert math.exp(hidden) == pytest.approx(3.27, abs=0.01)
    assert parallel.separation(0.999, 1).size == 20
    assert [parallel.stuck_bound(20, 1.5, d) for d in (0.1, 0.5)] == [32, 163] and parallel.stuck_bound(
        12, 1.0, 0.5
    ) == 2
    assert 0.5 / parallel.stuck_tail(12, 1.0) == pytest.approx(359, abs=1)


def test_times_beyond_float64_have_a_logarithm():
    log = parallel.clique_hitting_time(20, 20, 0.02, 1.9, block=None, inside="visible")
    assert log / math.log(10) == pytest.approx(292.3, abs=0.1)
    assert parallel.clique_hitting_time(30, 30, 0.02, 5.0, block=None, inside="visible") > 710


# The law of parallel decoding ----------------------------------------------------------------------------------------


@given(st.integers(1, 4), st.integers(0, 2**32))
def test_the_synchronous_chain_is_reversible_for_its_law(n, seed):
    rng = np.random.default_rng(seed)
    couplings, field = np.triu(rng.normal(size=(n, n)), 1), rng.normal(size=n)
    model = IsingModel(couplings + couplings.T, field)
    law = parallel.synchronous_law(model.couplings, model.field)
    flow = law[:, None] * full_matrix(model, n, n, "visible")
    np.testing.assert_allclose(flow, flow.T, atol=1e-12)


def test_with_interactions_of_three_the_synchronous_chain_is_not_reversible():
    spins = 2.0 * all_states(2, 3) - 1
    log_joint = (1.0 * spins.prod(1) + 0.7 * spins[:, 0]).reshape(2, 2, 2)
    matrix = blocks.block_matrix(TabularModel.from_joint(log_joint), 3, [[0, 1, 2]], inside="visible")
    assert exact.reversibility_defect(matrix) > 0.01


# Dyck strings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "count", "valid", "mixing"), [(4, 8, 0.79, 10), (6, 40, 0.85, 28), (8, 224, 0.87, 55)])
def test_single_sites_are_frozen_and_pairs_are_free(n, count, valid, mixing):
    words, law = parallel.dyck_words(n), np.full(count, 1 / count)
    assert len(words) == len({tuple(word) for word in words.tolist()}) == count
    single = blocks.block_dynamics(words, law, blocks.blocks_of_size(n, 1))
    pairs = blocks.block_dynamics(words, law, blocks.blocks_of_size(n, 2))
    adjacent = blocks.block_dynamics(words, law, [[i, i + 1] for i in range(n - 1)])
    assert [len(set(blocks.classes(matrix))) for matrix in (single, pairs, adjacent)] == [count, 1, 1]
    assert exact.mixing_time(pairs, law=law) == mixing
    assert parallel.validity_after_product(words, 2) == pytest.approx(valid, abs=0.005)
    assert parallel.validity_after_product(words, 1) == pytest.approx(1)


def test_every_string_is_balanced_and_its_chain_stays_among_strings():
    for word in parallel.dyck_words(6).tolist():
        still = []
        for token in word:
            if token % 2:
                assert still.pop() == token // 2
            else:
                still.append(token // 2)
        assert not still
    words = parallel.dyck_words(4)
    log_joint = np.full((4,) * 4, -np.inf)
    log_joint[tuple(words.T)] = 0
    model, start = TabularModel.from_joint(log_joint), np.repeat(words, 3, axis=0)
    known = {tuple(word) for word in words.tolist()}
    for how in ({}, {"block": None, "inside": "visible"}):
        assert len(kernels.run(model, start, n_steps=20, **how).step) == 0
    trace = kernels.run(model, start, n_steps=20, block=2, seed=1)
    assert {tuple(x) for x in trace.states(range(21)).reshape(-1, 4).tolist()} == known


def test_numbers_that_cannot_be_are_refused():
    for call, message in (
        (lambda: parallel.log_clique_matrix(3, 4, 0, 1), "size must be"),
        (lambda: parallel.log_clique_matrix(3, 2, 0, 1, block=4), "block must be"),
        (lambda: parallel.log_clique_matrix(3, 2, np.nan, 1), "finite"),
        (lambda: parallel.log_clique_matrix(3, 2, 0, 1, inside="all"), "inside must be"),
        (lambda: parallel.mode_bound(5, 3, 2, 1, 1), "block must be"),
        (lambda: parallel.mode_bound(5, 3, 3, -1, 1), "positive excess"),
        (lambda: parallel.stuck_bound(5, 1, 2), "delta in 0..1"),
        (lambda: parallel.separation(0, 10), "delta must lie"),
        (lambda: parallel.dyck_words(5), "even length"),
        (lambda: parallel.validity_after_product([[0, 1], [0, 1]], 1), "distinct"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
