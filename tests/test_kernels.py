"""The plain chain against its exact law, the engine's path against the plain chain, and steps of several moves."""

import numpy as np
import pytest
from conftest import codes, fit, random_ising, random_joint, random_table, small_vocabulary

from glauber_lib import exact, kernels
from glauber_lib.chains import run_chains
from glauber_lib.draws import uniforms
from glauber_lib.models import IsingModel, all_states
from glauber_lib.traces import Trace, moves_before

MOVES = ("step", "chain", "site", "old", "new")


def assert_same_path(trace, other):
    """Two traces with the same moves and settings, field by field."""
    for name in set(Trace.__dataclass_fields__) - {"model_calls"}:
        np.testing.assert_array_equal(getattr(trace, name), getattr(other, name), err_msg=name)


# The law of the chain ------------------------------------------------------------------------------------------------


def one_step_law(model, state, free, temperature, *, levels=600):
    """Law of the next state, float64[V**n]: `glauber` over a grid of uniforms, the middles of equal cells."""
    middles = (np.arange(levels) + 0.5) / levels
    law = np.zeros(model.n_tokens ** len(state))
    for site in (np.arange(len(free)) + 0.5) / len(free):
        for token in middles:
            draw = lambda stream=0, u=(site, token): np.array([*u, np.nan, np.nan])  # noqa: E731
            after = kernels.glauber(model, state, free, temperature=temperature, step=0, draw=draw)
            law[codes(after, model.n_tokens)] += 1 / len(free) / levels
    return law


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
@pytest.mark.parametrize(
    "model", [random_table(3, 3), random_joint(3, 3)[0], random_ising(3)], ids=["table", "joint", "ising"]
)
@pytest.mark.slow
def test_one_step_integrated_over_its_uniforms_is_a_row_of_the_transition_matrix(model, temperature):
    state = np.arange(3) % model.n_tokens
    row = exact.transition_matrix(model, 3, temperature)[codes(state, model.n_tokens)].toarray()[0]
    law = one_step_law(model, state, np.arange(3), temperature)
    # a token's probability is off by at most one cell of the grid, the present state's by one for each site
    np.testing.assert_allclose(law, row, atol=1.5 / 600)
    other = exact.transition_matrix(model, 3, 2 * temperature)[codes(state, model.n_tokens)].toarray()[0]
    assert np.abs(law - other).max() > 5 / 600  # the test has power


def test_one_step_with_frozen_sites_resamples_the_free_ones_alone():
    model, state = random_table(3, 3), np.array([2, 0, 1])
    law = one_step_law(model, state, np.array([0, 2]), 1.0)
    each = exact.conditional_laws(model, 3)[[0, 2], codes(state, 3)]  # (2, V)
    expected = np.zeros(27)
    for site, row in zip([0, 2], each, strict=True):
        for token, probability in enumerate(row):
            expected[codes(np.where(np.arange(3) == site, token, state), 3)] += probability / 2
    np.testing.assert_allclose(law, expected, atol=1.5 / 600)


def test_many_chains_end_their_first_step_by_the_transition_matrix(system):
    start, size = np.arange(system.n) % system.model.n_tokens, 250
    trace = kernels.run(system.model, np.tile(start, (size, 1)), n_steps=1, temperature=0.7, seed=4)
    counts = np.bincount(codes(trace.final, system.model.n_tokens), minlength=system.model.n_tokens**system.n)
    row = exact.transition_matrix(system.model, system.n, 0.7)[codes(start, system.model.n_tokens)]
    assert fit(counts, row.toarray()[0]) > 1e-3


def test_occupation_approaches_the_stationary_law():
    model = random_table(3, 2)
    trace = kernels.run(model, np.zeros((25, 3), int), n_steps=250, seed=1)
    visited = codes(trace.states(np.arange(30, 251)), 2)  # (steps, chains), after the start is forgotten
    occupation = np.stack([np.bincount(chain, minlength=8) for chain in visited.T]) / len(visited)
    error = occupation.std(0, ddof=1) / 5  # the chains are independent, their steps are not
    law, other = (exact.stationary_law(exact.transition_matrix(model, 3, t)) for t in (1.0, 2.0))
    assert (np.abs(occupation.mean(0) - law) / error).max() < 4
    assert (np.abs(occupation.mean(0) - other) / error).max() > 8  # the test has power


# The same path as the engine -----------------------------------------------------------------------------------------

SMALL = {
    "table": lambda: random_table(4, 3, spread=2.0),
    "joint": lambda: random_joint(4, 3)[0],
    "ising": lambda: random_ising(4, strength=1.0),
}


@pytest.mark.parametrize("name", SMALL)
def test_the_plain_loop_and_the_engine_take_the_same_path(name):
    model = SMALL[name]()
    states = np.random.default_rng(0).integers(model.n_tokens, size=(4, 4))
    settings = {
        "n_steps": 250, "seed": 11, "chains": [5, 0, 9, 2], "temperature": [0.1, 0.5, 1.0, 4.0],
        "frozen": [[False] * 4, [True, False, False, True], [False] * 4, [False, True, True, True]],
    }  # fmt: skip
    plain = kernels.run(model, states, **settings)
    assert len(plain.step) > 100
    assert_same_path(run_chains(model, states, **settings), plain)
    assert plain.model_calls == 1_000


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_the_plain_loop_and_the_engine_take_the_same_path_on_a_language_model(kind, tiny, tiny_folders):
    model = small_vocabulary(kind, tiny_folders, 5) if kind == "gpt2" else tiny[kind]
    states = np.random.default_rng(0).integers(model.n_tokens, size=(2, 4))
    settings = {"n_steps": 50, "seed": 2, "temperature": [0.5, 2.0], "frozen": [False, True, False, False]}
    plain = kernels.run(model, states, **settings)
    assert len(plain.step) > 40
    assert_same_path(run_chains(model, states, **settings), plain)


def test_states_of_different_lengths_take_the_same_path(tiny):
    spins = (IsingOfAnyLength(), [[0, 1, 1], [1], [0, 0, 1, 0, 1]])
    words = (tiny["bert"], [[3, 8, 90], [40], [7, 7, 12, 300]])
    for model, states in (spins, words):
        plain = kernels.run(model, states, n_steps=60, seed=3)
        assert set(plain.chain) == {0, 1, 2} and (plain.initial == -1).any()
        assert_same_path(run_chains(model, states, n_steps=60, seed=3), plain)


class IsingOfAnyLength:
    """A chain of spins, as long as the states are."""

    n_tokens, memory = 2, 0

    def scores(self, states, sites):
        n = np.shape(states)[1]
        return IsingModel(0.7 * (np.eye(n, k=1) + np.eye(n, k=-1)), np.full(n, 0.2)).scores(states, sites)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"temperature": -1.0}, r"temperature must be > 0 and finite, got -1.0"),
        ({"states": [[0, 3]]}, r"states must hold tokens 0..1, got 0..3"),
        ({"frozen": [True, True]}, r"every chain needs a free site; all are frozen in chain 0"),
        ({"chains": [0, 1]}, r"one chain number per state"),
        ({"n_steps": -1}, r"n_steps must be a whole number >= 0, got -1"),
    ],
)
def test_what_run_cannot_use_is_refused(change, message):
    settings = {"states": [[0, 1]], "n_steps": 3} | change
    with pytest.raises(ValueError, match=message):
        kernels.run(random_ising(2), settings.pop("states"), **settings)


# Kernels of several sites --------------------------------------------------------------------------------------------


def sweep(model, state, free, *, temperature, step, draw):
    """Every free site once, in their order: site number j with the numbers of stream j."""
    for j, site in enumerate(free):
        state = kernels.glauber(
            model, state, np.array([site]), temperature=temperature, step=step, draw=lambda j=j: draw(stream=j)
        )
    return state


@pytest.fixture(scope="module")
def swept():
    model, states = random_table(3, 3, spread=0.5), [[0, 1, 2], [2, 2, 2], [1, 0, 0]]
    frozen = [[False] * 3, [False, True, False], [False] * 3]
    return kernels.run(model, states, n_steps=40, seed=8, chains=[4, 1, 7], frozen=frozen, kernel=sweep)


def naive_states(trace):
    """States int64[n_steps + 1, B, n] by applying one move after another."""
    out = np.tile(trace.initial, (trace.n_steps + 1, 1, 1))
    for step, chain, site, old, new in zip(*(getattr(trace, name) for name in MOVES), strict=True):
        assert (out[step + 1 :, chain, site] == old).all() and old != new
        out[step + 1 :, chain, site] = new
    return out


def test_a_step_of_several_sites_leaves_several_moves_in_order(swept):
    places = list(zip(swept.step, swept.chain, swept.site, strict=True))
    assert places == sorted(set(places))
    moves_of_a_step = np.unique(np.stack([swept.step, swept.chain]), axis=1, return_counts=True)[1]
    assert set(moves_of_a_step) == {1, 2, 3}
    assert not ((swept.chain == 1) & (swept.site == 1)).any()  # frozen
    assert swept.model_calls == 40 * (3 + 2 + 3)


def test_states_of_steps_of_several_moves_are_the_replayed_moves(swept):
    expected = naive_states(swept)
    np.testing.assert_array_equal(swept.states(np.arange(41)), expected)
    np.testing.assert_array_equal(swept.states([40, 3, 3, 0]), expected[[40, 3, 3, 0]])
    np.testing.assert_array_equal(swept.final, expected[-1])


def test_the_moves_of_one_step_are_one_visit(swept):
    for row in range(3):
        states, entered, durations = swept.visits(row)
        assert len(entered) == len(np.unique(swept.step[swept.chain == row])) + 1 < (swept.chain == row).sum()
        assert durations.sum() == 40 and (durations[:-1] > 0).all()
        np.testing.assert_array_equal(np.repeat(states, durations, axis=0), naive_states(swept)[:40, row])
        assert (states[1:] != states[:-1]).any(1).all()


def test_moves_of_one_step_and_chain_keep_their_order_when_traces_are_joined(swept):
    moves = np.stack([getattr(swept, name) for name in MOVES])
    order = np.random.default_rng(0).permutation(3)
    pieces = [moves[:, moves[1] == chain] for chain in order]  # each in order of time, as chains run apart leave them
    np.testing.assert_array_equal(moves_before(np.inf, pieces), moves)
    np.testing.assert_array_equal(moves_before(17, pieces), moves[:, moves[0] < 17])
    # not sorted by site: what was written first stays first
    assert moves_before(9, [np.array([[5, 5, 2], [0, 0, 0], [3, 1, 2]])]).tolist() == [[2, 5, 5], [0, 0, 0], [2, 3, 1]]


def test_a_trace_of_several_moves_a_step_survives_the_disk(swept, tmp_path):
    swept.save(tmp_path / "trace.npz")
    assert_same_path(Trace.load(tmp_path / "trace.npz"), swept)


def test_a_sweep_follows_the_product_of_the_single_site_matrices():
    model, size = random_table(2, 2), 1_500
    trace = kernels.run(model, np.zeros((size, 2), int), n_steps=1, kernel=sweep, seed=5)
    states, each = all_states(2, 2), exact.conditional_laws(model, 2)
    product = np.eye(4)
    for site in (0, 1):
        others = 1 - site
        same = states[:, None, others] == states[None, :, others]
        product = product @ np.where(same, each[site][np.arange(4)[:, None], states[None, :, site]], 0.0)
    counts = np.bincount(codes(trace.final, 2), minlength=4)
    assert fit(counts, product[0]) > 1e-3
    assert fit(counts, exact.transition_matrix(model, 2)[0].toarray()[0]) < 1e-6  # the test has power


def test_a_trace_of_another_kernel_is_not_gone_on_from(swept, tmp_path):
    model, states = random_table(3, 3, spread=0.5), [[0, 1, 1]]
    assert swept.kernel == "test_kernels.sweep" and kernels.run(model, states, n_steps=5).kernel == ""
    with pytest.raises(ValueError, match=r"was made by the kernel test_kernels\.sweep, not by Glauber dynamics"):
        run_chains(model, None, n_steps=20, resume=swept)
    blocks = kernels.run(random_ising(3), states, n_steps=5, block=2, inside="hidden")
    with pytest.raises(ValueError, match="was made by the kernel blocks of 2, random, hidden, not by"):
        run_chains(random_ising(3), None, n_steps=20, resume=blocks)
    whole = run_chains(model, states, n_steps=20)
    again = run_chains(model, None, n_steps=15, resume=kernels.run(model, states, n_steps=5))
    np.testing.assert_array_equal(again.final, whole.final)
    for kernel, refused in ((sweep, True), (kernels.glauber, False)):
        kernels.run(model, states, n_steps=5, kernel=kernel).save(tmp_path / "c.npz")
        if refused:
            with pytest.raises(ValueError, match=r"is of another run \(kernel\)"):
                run_chains(model, states, n_steps=20, checkpoint=tmp_path / "c.npz")
    np.testing.assert_array_equal(
        run_chains(model, states, n_steps=20, checkpoint=tmp_path / "c.npz").final, whole.final
    )


def test_a_kernel_is_given_the_numbers_of_its_chain_step_and_stream():
    given = []

    def note(model, state, free, *, temperature, step, draw):
        given.append((step, draw(), draw(stream=3), temperature, free.tolist()))
        return state

    trace = kernels.run(
        random_ising(3), [[0, 1, 0]], n_steps=2, temperature=0.5, seed=6, chains=[8], frozen=[True, False, False],
        kernel=note,
    )  # fmt: skip
    assert len(trace.step) == trace.model_calls == 0 and [numbers[0] for numbers in given] == [0, 1]
    for step, first, third, temperature, free in given:
        np.testing.assert_array_equal(first, uniforms(6, [8], step, 1)[0, 0])
        np.testing.assert_array_equal(third, uniforms(6, [8], step, 1, stream=3)[0, 0])
        assert (temperature, free) == (0.5, [1, 2])
