"""Kernels that resample several sites: the moves against their exact matrices, and the matrices against theory."""

from functools import partial

import numpy as np
import pytest
from conftest import codes, fit, random_ising, random_joint, random_table
from hypothesis import given
from hypothesis import strategies as st

from glauber_lib import blocks, exact, kernels
from glauber_lib.chains import run_chains
from glauber_lib.models import IsingModel, all_states

START = np.array([0, 1, 2])


@st.composite
def laws(draw, *, n_sites=(2, 4), n_tokens=(2, 3)):
    """A random joint law with all probabilities positive, its model, and its numbers of sites and tokens."""
    n, size = draw(st.integers(*n_sites)), draw(st.integers(*n_tokens))
    model, log_joint = random_joint(n, size, seed=draw(st.integers(0, 2**32)))
    law = np.exp(log_joint)
    return model, (law / law.sum()).ravel(), n, size


@st.composite
def weighted_blocks(draw, n_sites):
    """Random blocks that cover all sites, and their probabilities."""
    found = draw(st.lists(st.sets(st.integers(0, n_sites - 1), min_size=1), min_size=1, max_size=4))
    found += [[site] for site in set(range(n_sites)) - set().union(*found)]
    weights = draw(st.lists(st.floats(0.1, 1), min_size=len(found), max_size=len(found)))
    return [sorted(block) for block in found], np.array(weights) / sum(weights)


# The moves -----------------------------------------------------------------------------------------------------------


def end_of_a_step(model, **how):
    """Counts of the states after one step from `START`."""
    trace = kernels.run(model, np.tile(START, (500, 1)), n_steps=1, seed=2, **how)
    return np.bincount(codes(trace.final, 3), minlength=27)


@pytest.mark.parametrize("inside", kernels.INSIDES)
@pytest.mark.parametrize("block", [2, None])
def test_a_random_block_moves_by_its_exact_matrix(block, inside):
    model = random_joint(3, 3)[0]
    matrix = blocks.block_matrix(model, 3, blocks.blocks_of_size(3, block or 3), inside=inside)
    counts = end_of_a_step(model, block=block, inside=inside)
    assert fit(counts, matrix.toarray()[codes(START, 3)]) > 1e-3
    single = exact.transition_matrix(model, 3).toarray()[codes(START, 3)]
    assert fit(counts, single) < 1e-6  # the test has power


@pytest.mark.parametrize(("scan", "own"), [("sweep", (0, 1)), ("sweep-down", (1, 2))])
@pytest.mark.parametrize("inside", kernels.INSIDES)
def test_a_sweep_moves_its_first_block_by_the_exact_matrix(scan, own, inside):
    model = random_joint(3, 3)[0]
    row = blocks.block_matrix(model, 3, [own], inside=inside).toarray()[codes(START, 3)]
    assert fit(end_of_a_step(model, block=2, scan=scan, inside=inside), row) > 1e-3


def test_a_model_whose_conditionals_fit_no_joint_moves_visible_blocks_by_its_matrix():
    model = random_table(3, 3)
    row = blocks.block_matrix(model, 3, [(0, 1, 2)], inside="visible").toarray()[codes(START, 3)]
    assert fit(end_of_a_step(model, block=None, inside="visible"), row) > 1e-3


def test_a_block_of_one_is_the_plain_step_number_for_number():
    model, states = random_joint(4, 3)[0], np.zeros((3, 4), int)
    plain = kernels.run(model, states, n_steps=60, seed=5, frozen=[True, False, False, False])
    for inside in kernels.INSIDES:
        move = partial(kernels.update_block, block=1, inside=inside)
        other = kernels.run(model, states, n_steps=60, seed=5, frozen=[True, False, False, False], kernel=move)
        for name in ("step", "chain", "site", "old", "new"):
            np.testing.assert_array_equal(getattr(plain, name), getattr(other, name))


@pytest.mark.parametrize("inside", kernels.INSIDES)
@pytest.mark.parametrize("scan", kernels.SCANS)
def test_chains_that_step_together_take_the_path_of_each_alone(scan, inside):
    class Spins(IsingModel):
        """Spins of any number: the couplings are those of the first ones."""

        def scores(self, states, sites, hidden=None):
            n = np.shape(states)[1]
            return IsingModel(self.couplings[:n, :n], self.field[:n]).scores(states, sites, hidden)

    model = Spins(random_ising(5).couplings)
    states = [[0, 1, 0, 1, 1], [0, 0, 0], [1, 1, 1, 1, 1], [0, 1, 0, 0, 0]]
    frozen = np.zeros((4, 5), bool)
    frozen[2, :2] = True
    how, ready = {"scan": scan, "inside": inside}, lambda x: x[:, 0] == x.sum(1)
    settings = {"n_steps": 12, "seed": 6, "chains": [3, 0, 8, 5], "frozen": frozen, "temperature": [1, 0.5, 2, 1]}
    for until in (None, ready):
        together = kernels.run(model, states, block=2, until=until, **settings, **how)
        alone = kernels.run(
            model, states, until=until, **settings, kernel=partial(kernels.update_block, block=2, **how)
        )
        for name in ("step", "chain", "site", "old", "new", "stopped", "model_calls"):
            np.testing.assert_array_equal(getattr(together, name), getattr(alone, name), err_msg=name)
        assert len(together.step) > 10


def test_a_path_depends_on_neither_batch_nor_number_of_steps():
    model, states = random_joint(4, 2)[0], np.array([[0, 0, 1, 1], [1, 0, 1, 0], [1, 1, 1, 1]])
    for how in ({"block": 2}, {"block": 3, "scan": "sweep"}, {"block": None, "inside": "visible"}):
        trace = kernels.run(model, states, n_steps=20, seed=3, chains=[4, 7, 1], **how)
        alone = kernels.run(model, states[1:2], n_steps=9, seed=3, chains=[7], **how)
        np.testing.assert_array_equal(trace.states(9)[0, 1], alone.final[0])


def test_a_step_asks_for_as_many_conditionals_as_its_block_has_distinct_sites():
    asked = []

    class Noting(IsingModel):
        def scores(self, states, sites, hidden=None):
            asked.append((sites.tolist(), None if hidden is None else hidden.sum(1).tolist()))
            return super().scores(states, sites, hidden)

    model, frozen = Noting(np.zeros((5, 5))), [False, True, False, False, False]
    start = np.ones((1, 5), int)
    for inside, expected in (("sequential", [[3], [2], None]), ("hidden", [[3, 3, 3]]), ("visible", [None])):
        asked.clear()
        trace = kernels.run(model, start, n_steps=1, block=3, inside=inside, frozen=frozen)
        sites = [site for part, _ in asked for site in part]
        assert trace.model_calls == 3 and len(set(sites)) == 3 and 1 not in sites
        assert [hidden for _, hidden in asked] == expected


def test_a_sweep_goes_on_where_the_last_step_ended_and_leaves_frozen_sites():
    model, visited = IsingModel(np.zeros((5, 5))), []
    for step in range(4):
        for scan in ("sweep", "sweep-down"):
            frozen = np.array([False, False, True, False, False])
            # zero and one alternate, so that every free site of the block changes in one of two chains of numbers
            ends = kernels.run(model, np.zeros((40, 5), int), n_steps=step + 1, block=3, scan=scan, frozen=frozen)
            visited.append((scan, step, sorted(set(ends.site[ends.step == step].tolist()))))
    rising = [sites for scan, _, sites in visited if scan == "sweep"]
    falling = [sites for scan, _, sites in visited if scan == "sweep-down"]
    assert rising == [[0, 1, 3], [0, 1, 4], [0, 3, 4], [1, 3, 4]]
    assert falling == [[1, 3, 4], [0, 3, 4], [0, 1, 4], [0, 1, 3]]


def test_until_stops_the_plain_chain_where_it_stops_the_engine():
    model, states = random_ising(4), np.zeros((6, 4), int)
    all_up = lambda x: x.sum(1) == 4  # noqa: E731
    plain = kernels.run(model, states, n_steps=30, seed=1, until=all_up)
    engine = run_chains(model, states, n_steps=30, seed=1, until=all_up)
    np.testing.assert_array_equal(plain.stopped, engine.stopped)
    np.testing.assert_array_equal(plain.final, engine.final)
    assert (plain.stopped >= 0).any() and (plain.stopped < 0).any()
    assert kernels.run(model, states + 1, n_steps=3, until=all_up).stopped.tolist() == [0] * 6
    with pytest.raises(ValueError, match=r"until must return bool\[1\]"):
        kernels.run(model, states, n_steps=1, until=lambda x: x.sum(1))


def test_blocks_that_cannot_be_are_refused_before_the_model_is_asked():
    class Unable:
        n_tokens, device = 2, "cpu"

        def scores(self, states, sites):
            raise AssertionError("asked")

    start = np.zeros((1, 3), int)
    for how, message in (
        ({"block": 0}, "block must be a whole number >= 1, got 0"),
        ({"block": 3, "frozen": [True, False, False]}, "at most the number of free sites, got 3 and a chain with 2"),
        ({"scan": "parallel"}, "scan must be one of"),
        ({"inside": "all"}, "and inside one of"),
        ({"block": 2}, "Unable cannot hide sites: take inside='visible'"),
        ({"block": 2, "kernel": lambda *_, **__: start[0]}, "a kernel of your own chooses its sites itself"),
    ):
        with pytest.raises(ValueError, match=message):
            kernels.run(Unable(), start, n_steps=1, **how)


# The matrices --------------------------------------------------------------------------------------------------------


@given(laws(), st.data())
def test_weighted_block_dynamics_keeps_the_law_in_balance_without_negative_eigenvalues(system, data):
    model, law, n, n_tokens = system
    own, weights = data.draw(weighted_blocks(n))
    matrix = blocks.block_matrix(model, n, own, weights)
    np.testing.assert_allclose(matrix.sum(1), 1, atol=1e-12)
    flow = law[:, None] * matrix.toarray()
    np.testing.assert_allclose(flow, flow.T, atol=1e-13)
    root = np.sqrt(law)
    assert np.linalg.eigvalsh(root[:, None] * matrix.toarray() / root).min() > -1e-9
    direct = blocks.block_dynamics(all_states(n_tokens, n), law, own, weights)
    np.testing.assert_allclose(direct.toarray(), matrix.toarray(), atol=1e-12)


@given(laws())
def test_larger_blocks_gain_at_least_their_size_and_all_sites_give_the_law_itself(system):
    model, law, n, _ = system
    constants = []
    for k in range(1, n + 1):
        matrix = blocks.block_matrix(model, n, blocks.blocks_of_size(n, k))
        constants.append(blocks.poincare_constant(matrix, law))
        assert constants[0] >= k * constants[-1] * (1 - 1e-9)
    np.testing.assert_allclose(matrix.toarray(), np.tile(law, (len(law), 1)), atol=1e-12)
    assert constants[-1] == pytest.approx(1)


@pytest.mark.parametrize("inside", kernels.INSIDES)
def test_blocks_of_one_site_are_the_glauber_chain(inside):
    model = random_table(3, 3)
    matrix = blocks.block_matrix(model, 3, [[0], [1], [2]], inside=inside, temperature=0.7)
    assert abs(matrix - exact.transition_matrix(model, 3, 0.7)).max() < 1e-15


def test_the_orders_of_a_block_differ_where_no_joint_is_and_are_averaged():
    class Tilted(IsingModel):
        """A model whose conditional of a pair is no conditional of its single sites."""

        def scores(self, states, sites, hidden=None):
            out = super().scores(states, sites, hidden).clone()
            if hidden is not None:
                out[:, 1] += (hidden.sum(1) > 1) * np.asarray(sites)
            return out

    model, start = Tilted([[0, 0.8, 0], [0.8, 0, 0.5], [0, 0.5, 0]]), np.zeros((800, 3), int)
    row = blocks.block_matrix(model, 3, [[0, 1]]).toarray()[0]
    counts = np.bincount(codes(kernels.run(model, start, n_steps=1, block=2, scan="sweep").final, 2), minlength=8)
    assert fit(counts, row) > 1e-3
    joint = IsingModel(model.couplings)
    assert fit(counts, blocks.block_matrix(joint, 3, [[0, 1]]).toarray()[0]) < 1e-6


def test_the_product_of_marginals_is_off_by_the_total_correlation():
    model, log_joint = random_joint(3, 2)
    law = np.exp(log_joint) / np.exp(log_joint).sum()
    drawn = blocks.block_matrix(model, 3, [[0, 1, 2]], inside="hidden").toarray()[0]
    entropy = lambda p: -(p * np.log(p)).sum()  # noqa: E731
    single = [law.sum(axis=tuple({0, 1, 2} - {i})) for i in range(3)]
    divergence = exact.compare_laws(law.ravel(), drawn)["KL(p‖q)"]
    assert divergence == pytest.approx(sum(map(entropy, single)) - entropy(law), abs=1e-12)


def test_adaptive_blocks_keep_the_law_on_states_and_never_change_the_block_on_pairs():
    log_joint = random_joint(3, 2)[1]
    states, law = all_states(2, 3), np.exp(log_joint).ravel() / np.exp(log_joint).sum()
    own = blocks.blocks_of_size(3, 2)
    weights = np.random.default_rng(0).dirichlet(np.ones(3), size=8)
    matrix = blocks.block_dynamics(states, law, own, weights).toarray()
    np.testing.assert_allclose(matrix.sum(1), 1, atol=1e-12)
    np.testing.assert_allclose(law[:, None] * matrix, (law[:, None] * matrix).T, atol=1e-13)


@given(st.integers(2, 6), st.integers(0, 2**32), st.integers(0, 30))
def test_hitting_times_and_chances_are_those_of_linear_algebra(size, seed, n_steps):
    matrix = np.random.default_rng(seed).dirichlet(np.ones(size), size=size)
    sparse = exact.sp.csr_matrix(matrix)
    rest = slice(1, None)
    means = np.linalg.solve(np.eye(size - 1) - matrix[rest, rest], np.ones(size - 1))
    np.testing.assert_allclose(blocks.hitting_times(sparse, [0]), [0, *means], rtol=1e-9)
    missed = np.linalg.matrix_power(matrix[rest, rest], n_steps).sum(1)
    np.testing.assert_allclose(blocks.reached_within(sparse, [0], n_steps), [1, *(1 - missed)], atol=1e-12)


def test_classes_are_found_and_a_reducible_chain_has_no_constant():
    matrix = exact.sp.csr_matrix([[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1]])
    assert len(np.unique(blocks.classes(matrix))) == 2
    assert blocks.poincare_constant(matrix, [0.25, 0.25, 0.5]) == np.inf
    with pytest.raises(ValueError, match="not reversible"):
        blocks.poincare_constant(exact.sp.csr_matrix(np.roll(np.eye(3), 1, axis=1)), np.full(3, 1 / 3))


def test_the_constant_of_a_cold_chain_that_is_irreducible_is_not_known_and_never_infinite():
    for coupling, known in ((3.0, True), (7.5, False), (10.0, False)):
        model = IsingModel(coupling * (1 - np.eye(3)))
        matrix = blocks.block_matrix(model, 3, [[0], [1], [2]])
        constant = blocks.poincare_constant(matrix, exact.stationary_law(matrix))
        assert constant == pytest.approx(244134, rel=1e-5) if known else np.isnan(constant)


def test_rows_that_are_no_steps_and_laws_that_are_not_kept_are_refused():
    matrix = exact.sp.csr_matrix([[0.5, 0.5], [0.1, 0.9]])
    for odd in (matrix.T.tocsr(), matrix * 2, matrix * 0.5):
        for call in (
            lambda odd=odd: blocks.reached_within(odd, [0], 3),
            lambda odd=odd: blocks.poincare_constant(odd, [0.5, 0.5]),
        ):
            with pytest.raises(ValueError, match="probabilities of a step"):
                call()
    for law in ([1 / 3, 5 / 3], [0.5, 0.5]):
        with pytest.raises(ValueError, match="law must be"):
            blocks.poincare_constant(matrix, law)


def test_weights_typed_with_five_digits_are_refused_and_within_rounding_divided_by_their_sum():
    for weights in ([0.33333] * 3, [0.333334, 0.333333, 0.333334]):
        with pytest.raises(ValueError, match="divide them by their sum"):
            blocks.check_block_weights(weights, 3)
    assert blocks.check_block_weights(np.full(3, 1 / 3 + 3e-10), 3).sum() == pytest.approx(1, abs=1e-15)
    with pytest.raises(ValueError, match="positive probability"):
        blocks.block_dynamics([[0], [1]], [0.5, 0.49999], [[0]])


def test_blocks_and_weights_that_are_none_are_refused():
    model = random_joint(3, 2)[0]
    for own, weights, message in (
        ([], None, "list of lists"), ([[]], None, "distinct sites, one at least"), ([[0, 0]], None, "distinct sites"),
        ([[3]], None, "sites of blocks"), ([[0], [1]], [0.5, 0.6], "probabilities of the blocks"),
        ([[0], [1]], [1.0], "probabilities of the blocks"), ([[0], [1]], [1.5, -0.5], "probabilities of the blocks"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            blocks.block_matrix(model, 3, own, weights)
    with pytest.raises(ValueError, match="to hide sites"):
        blocks.block_matrix(random_table(3, 2), 3, [[0, 1]])
