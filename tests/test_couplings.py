"""The maximal coupling against its law, and coupled pairs against a plain loop."""

import tracemalloc

import numpy as np
import pytest
import torch
from conftest import Watched, codes, fit, memories, random_ising, random_table
from hypothesis import given, settings
from hypothesis import strategies as st

from glauber_lib import checkpoints, exact
from glauber_lib.couplings import Coalescence, coalesce, maximal_coupling
from glauber_lib.draws import probabilities, uniforms
from glauber_lib.models import IsingModel, all_states

LAWS = {
    "random": ([0.1, 0.2, 0.3, 0.4], [0.4, 0.1, 0.25, 0.25]),
    "equal": ([0.1, 0.2, 0.3, 0.4], [0.1, 0.2, 0.3, 0.4]),
    "disjoint": ([0.3, 0.7, 0.0, 0.0], [0.0, 0.0, 0.6, 0.4]),
    "two points": ([1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]),
    "one point": ([1.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]),
    "nested": ([0.5, 0.5, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]),
    "nearly equal": ([0.25, 0.25, 0.25, 0.25], [0.25 + 1e-13, 0.25 - 1e-13, 0.25, 0.25]),
}


def draws(p, q, x, y, *, size=100_000, seed=0):
    """Many independent draws of one coupling."""
    p, q = (torch.tensor(w, dtype=torch.float64).expand(size, -1) for w in (p, q))
    u = torch.from_numpy(np.random.default_rng(seed).random((size, 3)))
    new_x, new_y, stay = maximal_coupling(p, q, torch.full((size,), x), torch.full((size,), y), u)
    return new_x.numpy(), new_y.numpy(), stay.numpy(), u.numpy()


def best_coupling(p, q):
    """Joint law [V, V] of the maximal coupling: overlap on the diagonal, residuals independent."""
    common = np.minimum(p, q)
    rest_p, rest_q = p - common, q - common
    return np.diag(common) + (np.outer(rest_p, rest_q) / rest_p.sum() if rest_p.sum() > 1e-12 else 0)


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("x, y", [(0, 0), (1, 1), (0, 1), (1, 0), (0, 2), (3, 1)])
def test_the_pair_follows_the_maximal_coupling_whatever_the_present_tokens(name, x, y):
    p, q = map(np.array, LAWS[name])
    new_x, new_y, _, _ = draws(p, q, x, y)
    assert fit(np.bincount(new_x, minlength=4), p) > 1e-4
    assert fit(np.bincount(new_y, minlength=4), q) > 1e-4
    assert fit(np.bincount(4 * new_x + new_y, minlength=16), best_coupling(p, q).ravel()) > 1e-4
    agree, share = (new_x == new_y).mean(), np.minimum(p, q).sum()
    assert abs(agree - share) <= 4 * np.sqrt(share * (1 - share) / len(new_x)) + 1e-12


def test_pairs_of_thirty_thousand_tokens_are_drawn_without_a_law_of_pairs():
    n_tokens, blocks = 30_000, 10  # |V|² = 9·10⁸ is beyond what a categorical law holds
    ramp = np.arange(1, n_tokens + 1, dtype=float)
    p, q = ramp / ramp.sum(), ramp[::-1] / ramp.sum()
    tracemalloc.start()
    parts = [draws(p, q, 0, n_tokens - 1, size=100, seed=seed) for seed in range(40)]
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    x, y = (np.concatenate([part[k] for part in parts]) * blocks // n_tokens for k in (0, 1))
    laws = [law.reshape(blocks, -1).sum(1) for law in (p, q)]
    for drawn, law, other in ((x, *laws), (y, *laws[::-1])):
        assert fit(np.bincount(drawn, minlength=blocks), law) > 1e-3
        assert fit(np.bincount(drawn, minlength=blocks), other) < 1e-6
    agree, share = np.mean([part[0] == part[1] for part in parts]), np.minimum(p, q).sum()
    assert abs(agree - share) < 4 * np.sqrt(share * (1 - share) / 4_000) and most < n_tokens**2


def test_the_fit_would_notice_independent_draws():
    p, q = map(np.array, LAWS["random"])
    new_x, new_y, _, _ = draws(p, q, 0, 1)
    assert fit(np.bincount(4 * new_x + new_y, minlength=16), np.outer(p, q).ravel()) < 1e-6


@given(st.integers(0, 2**32), st.integers(0, 3), st.integers(0, 3), st.sampled_from([0.1, 1.0, 10.0]))
def test_stay_is_exactly_the_outcome_that_both_keep_their_token(seed, x, y, spread):
    p, q = np.random.default_rng(seed).dirichlet(np.full(4, spread), size=2)
    new_x, new_y, stay, u = draws(p, q, x, y, size=2_000, seed=seed)
    np.testing.assert_array_equal((new_x == x) & (new_y == y), u[:, 0] < stay)
    assert stay[0] == pytest.approx(best_coupling(p, q)[x, y], abs=1e-12)


# Coupled chains ----------------------------------------------------------------------------------------------------


def plain_coupling(model, x, y, *, n_steps, temperature, seed, pair):
    """States [n_steps + 1, 2, n] of a pair by definition: both conditionals at every step, nothing remembered."""
    state = np.array([x, y])
    path = [state.copy()]
    for u in uniforms(seed, [pair], 0, n_steps)[0]:
        if (state[0] != state[1]).any():
            site = int(u[0] * state.shape[1])
            laws = probabilities(model.scores(state, np.array([site, site])), np.full(2, temperature))
            old = torch.from_numpy(state[:, site])
            *new, _ = maximal_coupling(laws[:1], laws[1:], old[:1], old[1:], torch.from_numpy(u[None, 1:]))
            state[:, site] = [int(v) for v in new]
        path.append(state.copy())
    return np.array(path)


@st.composite
def couples(draw):
    """A small model and two states."""
    n, seed = draw(st.integers(1, 4)), draw(st.integers(0, 2**32))
    n_tokens = draw(st.integers(2, 3))
    ising = draw(st.booleans())
    model = random_ising(n, seed=seed) if ising else random_table(n, n_tokens, seed=seed)
    state = st.lists(st.integers(0, model.n_tokens - 1), min_size=n, max_size=n)
    return model, draw(state), draw(state), {"temperature": draw(st.sampled_from([0.1, 0.5, 2.0])), "seed": seed}


@given(couples(), st.integers(0, 300), memories)
@settings(max_examples=30)
def test_a_coupled_pair_takes_the_path_of_the_plain_loop_whatever_its_company(couple, n_steps, memory):
    model, x, y, options = couple
    path = plain_coupling(model, x, y, n_steps=n_steps, pair=1, **options)
    distance = (path[:, 0] != path[:, 1]).sum(1)
    met = np.flatnonzero(distance == 0)
    for place, pairs in ((0, [1]), (2, [7, 0, 1])):
        starts = [x] * len(pairs), [y] * len(pairs)
        run = coalesce(model, *starts, n_steps=n_steps, pairs=pairs, memory=memory, **options)
        np.testing.assert_array_equal(run.hamming[:, place], distance)
        np.testing.assert_array_equal(run.final[:, place], path[-1])
        np.testing.assert_equal(run.time[place], met[0] if len(met) else np.nan)
        assert run.censored[place] == (len(met) == 0)


@given(couples(), st.lists(st.integers(0, 200), min_size=1, max_size=8).map(sorted))
@settings(max_examples=30)
def test_the_states_and_moves_of_a_pair_are_those_of_the_plain_loop(couple, steps):
    model, x, y, options = couple
    path = plain_coupling(model, x, y, n_steps=200, pair=1, **options)
    run = coalesce(model, [x] * 3, [y] * 3, n_steps=200, pairs=[7, 1, 0], **options)
    np.testing.assert_array_equal(run.initial[:, 1], [x, y])
    np.testing.assert_array_equal(run.states(np.arange(201))[:, :, 1], path)
    np.testing.assert_array_equal(run.states(steps)[:, :, 1], path[steps])
    np.testing.assert_array_equal(run.states(steps[::-1])[:, :, 1], path[steps[::-1]])  # in any order
    np.testing.assert_array_equal(run.states(steps[0])[0, :, 1], path[steps[0]])
    changed = (path[1:] != path[:-1]).any(1)  # (step, site): at most one site a step
    step, site = np.nonzero(changed)
    expected = np.array([step, np.ones_like(step), site, *path[step + 1, :, site].T])
    np.testing.assert_array_equal(run.moves[:, run.moves[1] == 1], expected)
    assert (np.diff(run.moves[0]) >= 0).all() and run.moves.dtype == run.initial.dtype == np.int64


def test_a_coalesced_pair_is_left_where_it_met():
    run = coalesce(random_table(3, 3), np.zeros((40, 3), int), np.full((40, 3), 2), n_steps=60, seed=3)
    path, met = run.states(np.arange(61)), np.flatnonzero(~run.censored)
    assert 0 < len(met) and run.time[met].min() < 30  # some have long to stand still
    for pair in met:
        time = int(run.time[pair])
        assert (path[time - 1, 0, pair] != path[time - 1, 1, pair]).any()
        np.testing.assert_array_equal(path[time:, :, pair], np.tile(path[time, :1, pair], (61 - time, 2, 1)))
        assert run.moves[0, run.moves[1] == pair].max() == time - 1
    np.testing.assert_array_equal(run.final, path[-1])


@pytest.mark.parametrize("steps", [-1, 13, [0, 5, 13], [-1, 5]])
def test_states_at_steps_that_were_not_run_are_refused(steps):
    run = coalesce(random_table(2, 2), [[0, 0]], [[1, 1]], n_steps=12)
    with pytest.raises(ValueError, match=r"steps must be whole numbers in 0\.\.12"):
        run.states(steps)


def test_asking_for_states_changes_nothing_of_a_run():
    run = coalesce(random_table(2, 3), np.zeros((5, 2), int), np.full((5, 2), 2), n_steps=20)
    first = run.states([3, 20])
    first[:] = -7
    run.states(20)[:] = -7
    np.testing.assert_array_equal(run.initial, np.stack([np.zeros((5, 2)), np.full((5, 2), 2)]))
    np.testing.assert_array_equal((run.states([3])[0, 0] != run.states([3])[0, 1]).sum(1), run.hamming[3])


def test_hamming_fits_the_final_states():
    states = np.random.default_rng(0).integers(3, size=(2, 50, 4))
    run = coalesce(random_table(4, 3), *states, n_steps=12)
    np.testing.assert_array_equal(run.hamming[0], (states[0] != states[1]).sum(1))
    np.testing.assert_array_equal(run.hamming[-1], (run.final[0] != run.final[1]).sum(1))
    np.testing.assert_array_equal(run.censored, run.hamming[-1] > 0)
    assert np.abs(np.diff(run.hamming, axis=0)).max() == 1  # one site a step
    assert 0 < run.censored.sum() < 50


def test_one_number_for_two_pairs_and_a_negative_seed_are_refused():
    model, x = IsingModel(np.zeros((2, 2))), np.zeros((2, 2), int)
    with pytest.raises(ValueError, match="one pair number per state"):
        coalesce(model, x, 1 - x, n_steps=5, pairs=[0])
    with pytest.raises(ValueError, match="seed must be a whole number in"):
        coalesce(model, x, 1 - x, n_steps=5, seed=-1)


@pytest.mark.parametrize("n_steps", [-1, 2.5, np.nan, np.inf, "9", True, 2**63])
def test_a_budget_of_pairs_that_is_no_whole_number_is_refused_before_any_model_call(n_steps):
    watched = Watched(random_table(2, 2))
    with pytest.raises(ValueError, match="n_steps must be a whole number in"):
        coalesce(watched, [[0, 0]], [[1, 1]], n_steps=n_steps)
    assert watched.calls == 0


def test_a_result_grows_with_what_happened_and_not_with_the_budget(tmp_path):
    model, starts = random_table(3, 3), (np.zeros((40, 3), int), np.full((40, 3), 2))
    short = coalesce(model, *starts, n_steps=1e3)
    assert not short.censored.any() and short.time.max() < 100
    tracemalloc.start()
    long = coalesce(model, *starts, n_steps=3_000_000_000, checkpoint=tmp_path / "pairs.npz")
    assert tracemalloc.get_traced_memory()[1] < 2**25
    tracemalloc.stop()
    np.testing.assert_array_equal(long.time, short.time)
    np.testing.assert_array_equal(long.moves, short.moves)
    np.testing.assert_array_equal(long.states([7, 3_000_000_000])[0], short.states([7])[0])
    assert (tmp_path / "pairs.npz").stat().st_size < 2**15


def test_pairs_of_states_of_several_lengths_are_refused():
    with pytest.raises(ValueError, match="states must have one length"):
        coalesce(random_table(2, 3), [[0, 0], [1]], [[1, 1], [0]], n_steps=3)


def test_another_model_does_not_go_on_from_a_checkpoint_of_pairs(tmp_path):
    file, options = tmp_path / "pairs.npz", {"n_steps": 30, "temperature": 0.2}
    coalesce(random_table(2, 3), [[0, 0]], [[1, 2]], checkpoint=file, **options)
    with pytest.raises(ValueError, match=r"was made by the model .*, not by"):
        coalesce(random_table(2, 3, seed=1), [[0, 0]], [[1, 2]], checkpoint=file, **options)


def test_identical_pairs_are_coalesced_from_the_start_and_cost_nothing():
    states = all_states(3, 2)
    run = coalesce(random_table(2, 3), states, states, n_steps=30)
    assert (run.time == 0).all() and run.model_calls == 0 and not run.hamming.any()


def test_each_chain_of_a_pair_follows_the_glauber_law(system):
    # the pair differs at every site, so that it cannot meet before step n: its last states are those of both chains
    size, n, n_tokens = 3_000, system.n, system.model.n_tokens
    x, y = np.zeros(n, int), np.full(n, n_tokens - 1)
    run = coalesce(system.model, np.tile(x, (size, 1)), np.tile(y, (size, 1)), n_steps=n, temperature=0.8, seed=2)
    power = np.linalg.matrix_power(exact.transition_matrix(system.model, n, 0.8).toarray(), n)
    for start, final in zip((x, y), run.final, strict=True):
        counts = np.bincount(codes(final, n_tokens), minlength=len(power))
        assert fit(counts, power[codes(start, n_tokens)]) > 1e-3


def test_known_stays_save_model_calls():
    frozen_landscape = IsingModel(10 * (np.ones((3, 3)) - np.eye(3)))  # both ground states hold for ever
    run = coalesce(frozen_landscape, [[0, 0, 0]], [[1, 1, 1]], n_steps=1_000, temperature=0.5)
    assert run.model_calls == 2 * 3 and run.censored.all()


def test_the_model_calls_of_a_pair_are_the_conditionals_it_asked_for():
    starts = np.zeros((20, 3), int), np.full((20, 3), 2)
    runs, asked = [], []
    for memory in (0, 2_000, 10**7):
        watched = Watched(random_table(3, 3))
        runs.append(coalesce(watched, *starts, n_steps=40, temperature=0.5, memory=memory))
        asked.append(sum(map(len, watched.asked)))
    assert [run.model_calls for run in runs] == asked
    assert asked[0] > asked[1] > asked[2] and asked[2] <= 3 * 3**2
    for run in runs[1:]:
        np.testing.assert_array_equal(run.hamming, runs[0].hamming)
        np.testing.assert_array_equal(run.final, runs[0].final)


@pytest.mark.parametrize("call", [1, 2, 10, 25])
def test_what_an_interrupted_run_returns_is_the_beginning_of_the_whole_one(call):
    model, starts = random_table(4, 3), (np.zeros((30, 4), int), np.full((30, 4), 2))
    whole = coalesce(model, *starts, n_steps=60, seed=1)
    part = coalesce(Watched(model, at=call), *starts, n_steps=60, seed=1)
    assert part.n_steps < 60 and not part.complete and whole.complete
    assert part.n_steps > 0 or call < 3
    np.testing.assert_array_equal(part.hamming, whole.hamming[: part.n_steps + 1])
    np.testing.assert_array_equal(part.time, np.where(whole.time <= part.n_steps, whole.time, np.nan))
    np.testing.assert_array_equal(part.moves, whole.moves[:, whole.moves[0] < part.n_steps])
    np.testing.assert_array_equal(part.final, whole.states(part.n_steps)[0])
    np.testing.assert_array_equal(part.final, coalesce(model, *starts, n_steps=part.n_steps, seed=1).final)


def test_free_spins_coalesce_like_a_coupon_collector():
    n, size = 6, 3_000
    free = IsingModel(np.zeros((n, n)), np.linspace(-1, 1, n))
    run = coalesce(free, np.zeros((size, n), int), np.ones((size, n), int), n_steps=200)
    chance = np.arange(1, n + 1) / n  # that a step finds one of the k sites still missing
    mean, variance = (1 / chance).sum(), ((1 - chance) / chance**2).sum()
    assert not run.censored.any()
    assert abs(run.time.mean() - mean) < 4 * np.sqrt(variance / size)
    assert run.time.var() == pytest.approx(variance, rel=0.15)


def test_each_pair_has_its_own_temperature():
    model, x, y = random_table(3, 3), [[0, 0, 0]] * 2, [[2, 2, 2]] * 2
    run = coalesce(model, x, y, n_steps=40, temperature=[0.3, 3.0])
    for k, temperature in enumerate([0.3, 3.0]):
        alone = coalesce(model, x[:1], y[:1], n_steps=40, temperature=temperature, pairs=[k])
        np.testing.assert_array_equal(run.hamming[:, k], alone.hamming[:, 0])


@pytest.mark.parametrize("temperature", [0, -1, np.nan, np.inf])
def test_a_temperature_that_is_not_positive_is_refused(temperature):
    with pytest.raises(ValueError, match="temperature must be > 0"):
        coalesce(random_table(2, 2), [[0, 0]], [[1, 1]], n_steps=3, temperature=temperature)


def test_states_of_wrong_shape_are_refused():
    with pytest.raises(ValueError, match=r"states must have shape \(chains, sites\)"):
        coalesce(random_table(2, 2), [0, 0], [1, 1], n_steps=3)


# Checkpoints -------------------------------------------------------------------------------------------------------


def same_result(a, b):
    """Whether two results are of the same pairs on the same paths."""
    names = ("time", "n_steps", "hamming", "initial", "moves", "temperature", "seed", "pairs")
    return all(np.array_equal(getattr(a, k), getattr(b, k), equal_nan=k == "time") for k in names)


@pytest.mark.parametrize("call", [1, 2, 10, 30])
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_pairs_that_were_interrupted_go_on_from_their_checkpoint(call, error, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "CHECKPOINT", 0.0)
    model, file, rng = random_table(4, 3), tmp_path / "pairs.npz", np.random.default_rng(1)
    x, y = rng.integers(3, size=(2, 6, 4))
    x[0] = y[0]  # one pair has met before it begins
    options = {"n_steps": 36, "temperature": 0.35, "seed": 5}
    whole = coalesce(model, x, y, **options)
    assert 1 < (~whole.censored).sum() < 6
    watched = Watched(model, at=call, error=error)
    if error is RuntimeError:
        with pytest.raises(RuntimeError):
            coalesce(watched, x, y, checkpoint=file, **options)
    else:
        assert not coalesce(watched, x, y, checkpoint=file, **options).complete
    assert file.exists() or call == 1
    again = coalesce(model, x, y, checkpoint=file, **options)
    assert same_result(again, whole) and again.complete
    assert same_result(coalesce(Watched(model, at=1), x, y, checkpoint=file, **options), whole)  # as it was written


def test_pairs_can_be_written_and_read(tmp_path):
    result = coalesce(random_table(3, 3), [[0, 0, 0]], [[1, 1, 2]], n_steps=20)
    result.save(tmp_path / "pairs.npz")
    again = Coalescence.load(tmp_path / "pairs.npz")
    assert same_result(again, result) and again.complete and np.array_equal(again.final, result.final)


def test_a_checkpoint_of_other_pairs_is_refused(tmp_path):
    model, file = random_table(2, 3), tmp_path / "pairs.npz"
    coalesce(Watched(model, at=3), [[0, 0]], [[1, 2]], n_steps=50, temperature=0.2, checkpoint=file)
    with pytest.raises(ValueError, match=r"is of another run \(seed\)"):
        coalesce(model, [[0, 0]], [[1, 2]], n_steps=50, temperature=0.2, seed=1, checkpoint=file)


# What no other test tells from a small fault (mutants.md) ------------------------------------------------------------


def test_the_distance_of_pairs_by_hand_where_no_pair_moves_at_the_site_between():
    initial = np.array([[[0, 0, 0], [0, 0, 0]], [[0, 0, 1], [1, 0, 0]]])
    moves = np.array([[0, 1, 0, 1, 1], [1, 0, 2, 0, 0]]).T
    run = Coalescence(np.array([2.0, 1.0]), 2, initial, moves, np.ones(2), 0, np.arange(2), "", 0)
    assert run.hamming.tolist() == [[1, 1], [1, 0], [0, 0]]


def test_the_model_calls_of_a_run_that_goes_on_are_those_of_both_parts(tmp_path):
    options = {"n_steps": 60, "temperature": 0.2, "checkpoint": tmp_path / "pairs.npz"}
    model, rest = Watched(random_table(4, 3), at=4), Watched(random_table(4, 3))
    before = coalesce(model, [[0] * 4], [[2] * 4], **options).model_calls
    run = coalesce(rest, [[0] * 4], [[2] * 4], **options)
    after = sum(map(len, rest.asked))
    assert run.model_calls == before + after and before & after  # bits that are added, not joined
