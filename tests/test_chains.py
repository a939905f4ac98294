"""The chain against its law, and every short cut of the engine against a plain loop."""

import dataclasses
import sys
import warnings
from functools import partial

import numpy as np
import pytest
import torch
from conftest import Watched, codes, fit, memories, moves_of, random_ising, random_joint, random_table
from hypothesis import given, settings
from hypothesis import strategies as st

from glauber_lib import checkpoints, exact
from glauber_lib.chains import run_chains
from glauber_lib.checksums import model_checksum
from glauber_lib.couplings import coalesce
from glauber_lib.draws import inverse_cdf, probabilities, uniforms
from glauber_lib.models import IsingModel, RestrictedModel, TabularModel
from glauber_lib.traces import Trace


def plain_moves(model, state, *, n_steps, temperature, seed, chain, frozen):
    """The chain as the paper defines it: scores at each step, no memory, the same uniforms."""
    state, free, moves = np.array(state), np.flatnonzero(~np.array(frozen)), []
    for t in range(n_steps):
        u = np.random.Generator(np.random.Philox(key=np.array([seed, chain], np.uint64), counter=t)).random(2)
        site = free[int(u[0] * len(free))]
        scores = np.asarray(model.scores(state[None], np.array([site]))[0], float) / temperature
        weights = np.cumsum(np.exp(scores - scores.max()))
        token = int(np.searchsorted(weights, u[1] * weights[-1], side="right"))
        if token != state[site]:
            moves.append((t, int(site), int(state[site]), token))
        state[site] = token
    return moves


# Law ---------------------------------------------------------------------------------------------------------------


def test_one_step_follows_the_transition_matrix(system):
    temperatures, size = (0.5, 1.0, 3.0), 4_000
    start = np.arange(system.n) % system.model.n_tokens
    trace = run_chains(
        system.model, np.tile(start, (3 * size, 1)), n_steps=1, temperature=np.repeat(temperatures, size), seed=3
    )
    n_states = system.model.n_tokens**system.n
    rows = {
        t: exact.transition_matrix(system.model, system.n, t)[codes(start, system.model.n_tokens)] for t in temperatures
    }
    for k, t in enumerate(temperatures):
        ends = codes(trace.final[k * size : (k + 1) * size], system.model.n_tokens)
        counts = np.bincount(ends, minlength=n_states)
        assert fit(counts, rows[t].toarray()[0]) > 1e-3
        # the same counts refute the law of another temperature: the test has power
        assert fit(counts, rows[temperatures[k - 1]].toarray()[0]) < 1e-6


def test_ten_steps_follow_the_tenth_power_of_the_transition_matrix(system):
    start = np.zeros(system.n, dtype=int)
    trace = run_chains(system.model, np.tile(start, (1_500, 1)), n_steps=10, temperature=0.7, seed=5)
    matrix = exact.transition_matrix(system.model, system.n, 0.7).toarray()
    law = np.linalg.matrix_power(matrix, 10)[0]
    assert fit(np.bincount(codes(trace.final, system.model.n_tokens), minlength=len(law)), law) > 1e-3


@pytest.mark.parametrize("model", [random_table(3, 2), random_joint(3, 2)[0], random_ising(3)])
def test_long_run_occupation_is_the_stationary_law(model):
    trace = run_chains(model, np.zeros((100, 3), int), n_steps=600, seed=1)
    visited = codes(trace.states(np.arange(60, 601)), 2)  # (steps, chains), after the start is forgotten
    occupation = np.stack([np.bincount(chain, minlength=8) for chain in visited.T]) / len(visited)
    error = occupation.std(0, ddof=1) / 10  # the chains are independent, their steps are not

    def deviation(temperature):
        return np.abs(
            (occupation.mean(0) - exact.stationary_law(exact.transition_matrix(model, 3, temperature))) / error
        )

    assert deviation(1.0).max() < 4
    assert deviation(1.5).max() > 8  # the test has power


def test_sites_are_chosen_uniformly_among_the_free_ones():
    flat = TabularModel(np.zeros((3, 2, 2, 2)))
    frozen = np.array([False, True, False])
    trace = run_chains(flat, np.zeros((2_000, 3), int), n_steps=5, frozen=frozen, seed=0)
    assert fit(np.bincount(trace.site, minlength=3), [0.5, 0, 0.5]) > 1e-3


# Random numbers and draws ------------------------------------------------------------------------------------------


def test_uniforms_are_a_function_of_seed_chain_and_step():
    whole = uniforms(7, [0, 5, 2], 0, 600)
    np.testing.assert_array_equal(uniforms(7, [5], 123, 50)[0], whole[1, 123:173])
    for other in (uniforms(8, [5], 0, 600), uniforms(7, [6], 0, 600)):
        assert not (other[0] == whole[1]).any()
    generator = np.random.Generator(np.random.Philox(key=np.array([7, 2], np.uint64)))
    np.testing.assert_array_equal(whole[2], generator.random((600, 4)))
    for wrong in ((0.5, [0], 0, 1), (0, [0.5], 0, 1), (0, [0], 0.5, 1), (-1, [0], 0, 1), (0, [-1], 0, 1)):
        with pytest.raises((TypeError, ValueError), match=r"integer|seed and chains must lie"):
            uniforms(*wrong)


def test_uniforms_are_uniform_and_uncorrelated():
    u = uniforms(0, range(50), 0, 400).reshape(-1, 4)
    for column in u.T:
        assert fit(np.bincount((column * 50).astype(int), minlength=50), np.full(50, 0.02)) > 1e-3
    assert np.abs(np.corrcoef(u.T) - np.eye(4)).max() < 4 / np.sqrt(len(u))


def test_a_million_draws_never_take_a_token_of_weight_zero():
    weights = torch.rand(40, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    weights[::2] = 0
    uniform = torch.from_numpy(np.random.default_rng(0).random(10**6))
    counts = np.zeros(40)
    for part in uniform.split(50_000):
        counts += np.bincount(inverse_cdf(weights.expand(len(part), -1), part)[0], minlength=40)
    assert counts[::2].sum() == 0
    assert fit(counts, (weights / weights.sum()).numpy()) > 1e-3


@given(
    st.lists(st.sampled_from([0.0, 1e-300, 1e-20, 0.1, 1.0, 1e6]), min_size=1, max_size=6).filter(any), st.booleans()
)
def test_the_extreme_uniforms_draw_a_token_of_positive_weight(weights, last):
    uniform = torch.tensor([np.nextafter(1, 0) if last else 0.0], dtype=torch.float64)
    (index,), _, _ = inverse_cdf(torch.tensor([weights], dtype=torch.float64), uniform)
    assert weights[index] > 0


@given(
    st.lists(st.floats(0, 10), min_size=1, max_size=8).filter(lambda w: sum(w) > 1e-3),
    st.floats(0, 1, exclude_max=True),
)
def test_the_interval_of_a_draw_holds_its_uniform_and_has_its_probability(weights, uniform):
    row = torch.tensor([weights], dtype=torch.float64)
    (index,), (low,), (high,) = inverse_cdf(row, torch.tensor([uniform], dtype=torch.float64))
    assert low - 1e-15 <= uniform <= high + 1e-15
    assert float(high - low) == pytest.approx(weights[index] / sum(weights), abs=1e-14)


def test_of_a_million_draws_from_a_half_banned_row_none_is_banned():
    scores = torch.randn(10, 1_000, generator=torch.Generator().manual_seed(0))
    scores[:, ::2] = -torch.inf
    scores[0, 501:] = scores[1, :500] = -torch.inf  # banned at either end
    law = probabilities(scores, np.ones(10))
    uniform = torch.from_numpy(np.random.default_rng(0).random(10**6))
    drawn = [
        inverse_cdf(law[k].expand(len(part), -1), part)[0] for k in range(10) for part in uniform[k::10].split(1_000)
    ]
    drawn = torch.cat(drawn).view(10, -1)
    assert drawn.numel() == 10**6 and scores.gather(1, drawn).isfinite().all()
    for k in range(10):
        assert fit(np.bincount(drawn[k], minlength=1_000), law[k]) > 1e-4


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float32])
def test_draws_are_in_float64_whatever_the_weights_and_half_precision_is_refused(kind):
    row, uniform = torch.full((1, 30_000), 1e-3, dtype=kind), torch.linspace(0, 1, 101, dtype=torch.float64)[:100]
    if kind != torch.float32:
        with pytest.raises(ValueError, match=r"weights must be float32 or float64, got b?float16"):
            inverse_cdf(row.expand(100, -1), uniform)
        with pytest.raises(ValueError, match=r"uniforms must be float32 or float64, got b?float16"):
            inverse_cdf(row.double().expand(100, -1), uniform.to(kind))
        return
    index, low, high = inverse_cdf(row.expand(100, -1), uniform + 1e-3 / 30_000)
    np.testing.assert_array_equal(index, np.arange(100) * 300)
    assert low.dtype == high.dtype == torch.float64


@pytest.mark.parametrize("weights", [[0.0, 0.0], [np.nan, 1.0]])
def test_weights_without_a_law_are_refused(weights):
    with pytest.raises(ValueError, match="must have a positive and finite sum, got"):
        inverse_cdf(torch.tensor([[1.0, 1.0], weights], dtype=torch.float64), torch.zeros(2, dtype=torch.float64))


def test_a_flat_law_of_thirty_thousand_tokens_is_drawn_in_full_precision():
    scores = torch.zeros(100, 30_000, dtype=torch.float32)
    uniform = torch.linspace(0, 1, 101, dtype=torch.float64)[:100] + 1e-3 / 30_000
    index, low, high = inverse_cdf(probabilities(scores, np.ones(100)), uniform)
    # in float32 the cumulative sum is off by whole tokens at the far end
    np.testing.assert_array_equal(index, np.arange(100) * 300)
    np.testing.assert_allclose(low, index.double() / 30_000, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose((high - low) * 30_000, 1, rtol=1e-10)


def test_probabilities_are_the_softmax_in_float64():
    scores = np.array([[0.0, 1.0, 3.0], [2.0, -1.0, 0.5]], dtype=np.float32)
    law = probabilities(torch.from_numpy(scores), np.array([0.5, 2.0]))
    weights = np.exp(scores.astype(float) / np.array([[0.5], [2.0]]))
    assert law.dtype == torch.float64
    np.testing.assert_allclose(law, weights / weights.sum(1, keepdims=True), rtol=1e-14)


# The engine's short cuts change no path ----------------------------------------------------------------------------


@st.composite
def experiments(draw):
    """A small model, a start, settings of a run."""
    n, n_tokens = draw(st.integers(1, 4)), draw(st.integers(2, 4))
    seed = draw(st.integers(0, 2**32))
    if draw(st.booleans()):
        model, n_tokens = random_ising(n, seed=seed, strength=1.0), 2
    else:
        model = random_table(n, n_tokens, seed=seed, spread=draw(st.sampled_from([0.3, 1.0, 3.0])))
    frozen = draw(st.lists(st.booleans(), min_size=n, max_size=n).filter(lambda f: not all(f)))
    settings = {"temperature": draw(st.sampled_from([0.05, 0.3, 1.0, 10.0])), "seed": seed, "frozen": frozen}
    return model, draw(st.lists(st.integers(0, n_tokens - 1), min_size=n, max_size=n)), settings


@given(experiments(), st.integers(0, 400), st.integers(0, 50), memories)
def test_the_path_is_that_of_the_plain_loop(experiment, n_steps, chain, memory):
    model, state, options = experiment
    trace = run_chains(model, [state], n_steps=n_steps, chains=[chain], memory=memory, **options)
    assert moves_of(trace, 0) == plain_moves(model, state, n_steps=n_steps, chain=chain, **options)


def test_a_language_model_s_path_is_that_of_the_plain_loop(tiny):
    model = tiny["bert"]
    states = np.random.default_rng(0).integers(model.n_tokens, size=(3, 4))
    trace = run_chains(model, states, n_steps=80, temperature=0.5, seed=2)
    assert len(trace.step) > 100
    for row in range(3):
        options = {"temperature": 0.5, "seed": 2, "chain": row, "frozen": [False] * 4}
        assert moves_of(trace, row) == plain_moves(model, states[row], n_steps=80, **options)


def test_what_is_known_is_not_asked_again():
    # no token of state 000 can move: once its three conditionals are known, no call is needed
    table = np.zeros((2, 2, 2))
    table[0, 0, 0] = 100.0
    model = TabularModel.from_joint(table)
    watched = Watched(model)
    trace = run_chains(watched, [[0, 0, 0]], n_steps=2_000)
    assert watched.calls == trace.model_calls == 3
    assert len(trace.step) == 0


@given(
    experiments(), st.sampled_from(["path", "geometric"]), st.integers(1, 3), st.integers(1, 270), st.integers(0, 270),
    memories,
)  # fmt: skip
@settings(max_examples=25)
@pytest.mark.slow
def test_a_chain_does_not_depend_on_its_company_its_place_or_a_resumption(
    experiment, holding, place, before, after, memory
):
    model, state, options = experiment
    options["holding"] = holding
    alone = run_chains(model, [state], n_steps=before + after, chains=[9], **options)
    company = [state] * 4
    chains = [1, 2, 3, 4]
    chains[place] = 9
    crowd = run_chains(model, company, n_steps=before + after, chains=chains, **options)
    assert moves_of(crowd, place) == moves_of(alone, 0)
    half = run_chains(model, [state], n_steps=before, chains=[9], memory=memory, **options)
    whole = run_chains(model, None, n_steps=after, resume=half, memory=memory)
    assert moves_of(whole) == moves_of(alone)
    assert whole.n_steps == before + after
    np.testing.assert_array_equal(whole.final, alone.final)


@pytest.mark.slow
def test_chains_of_a_language_model_do_not_depend_on_their_company(masked_lm):
    states = np.random.default_rng(1).integers(masked_lm.n_tokens, size=(5, 4))
    together = run_chains(masked_lm, states, n_steps=60, seed=4)
    order = [3, 0, 4, 1, 2]
    shuffled = run_chains(masked_lm, states[order], n_steps=60, seed=4, chains=order)
    for place, k in enumerate(order):
        alone = run_chains(masked_lm, states[[k]], n_steps=60, seed=4, chains=[k])
        assert moves_of(together, k) == moves_of(shuffled, place) == moves_of(alone, 0)


def test_two_chains_and_two_seeds_take_different_paths():
    trace = run_chains(random_table(3, 3), np.zeros((2, 3), int), n_steps=100)
    other = run_chains(random_table(3, 3), np.zeros((2, 3), int), n_steps=100, seed=1)
    assert moves_of(trace, 0) != moves_of(trace, 1)
    assert moves_of(trace, 0) != moves_of(other, 0)


def test_each_chain_runs_at_its_own_temperature():
    model, temperatures = random_table(3, 3), [0.2, 1.0, 5.0]
    trace = run_chains(model, np.zeros((3, 3), int), n_steps=300, temperature=temperatures)
    for row, temperature in enumerate(temperatures):
        alone = run_chains(model, [[0, 0, 0]], n_steps=300, temperature=temperature, chains=[row])
        assert moves_of(trace, row) == moves_of(alone, 0)
    np.testing.assert_array_equal(trace.temperature, temperatures)


def test_frozen_sites_never_move_and_all_others_do():
    frozen = np.array([[True, False, False], [False, True, True], [False, False, False]])
    trace = run_chains(random_table(3, 3), np.zeros((3, 3), int), n_steps=500, temperature=5.0, frozen=frozen)
    for row in range(3):
        assert set(trace.site[trace.chain == row]) == set(np.flatnonzero(~frozen[row]))


# The trace ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trace():
    return run_chains(random_table(4, 3), np.array([[0, 1, 2, 0], [2, 2, 2, 2], [1, 1, 0, 0]]), n_steps=700, seed=6)


def test_states_are_the_replayed_moves(trace):
    replay = [trace.initial.copy()]
    for t in range(trace.n_steps):
        state = replay[-1].copy()
        for k in np.flatnonzero(trace.step == t):
            assert state[trace.chain[k], trace.site[k]] == trace.old[k] != trace.new[k]
            state[trace.chain[k], trace.site[k]] = trace.new[k]
        replay.append(state)
    np.testing.assert_array_equal(trace.states(np.arange(701)), replay)
    np.testing.assert_array_equal(trace.states([650, 3, 3, 0, 700]), np.array(replay)[[650, 3, 3, 0, 700]])
    np.testing.assert_array_equal(trace.final, replay[-1])


def test_visits_tell_the_same_story_as_states(trace):
    for row in range(3):
        states, entered, durations = trace.visits(row)
        assert durations.sum() == trace.n_steps
        np.testing.assert_array_equal(entered, np.cumsum([0, *durations[:-1]]))
        # the state after t steps is the visited one whose stay covers t
        expected = np.repeat(states, durations, axis=0)
        np.testing.assert_array_equal(trace.states(np.arange(trace.n_steps))[:, row], expected)
        assert (states[1:] != states[:-1]).sum(1).tolist() == [1] * (len(states) - 1)


def test_steps_outside_the_run_are_refused(trace):
    for steps in ([-1], [0, 701], [np.nan], [2.5], True, [[1, 2]]):
        with pytest.raises(ValueError, match=r"steps must be whole numbers in 0\.\.700|steps must be a list"):
            trace.states(steps)


def test_a_trace_survives_the_disk(trace, tmp_path):
    trace.final  # noqa: B018 - a cached view must not leak into the file
    trace.save(tmp_path / "trace.npz")
    again = Trace.load(tmp_path / "trace.npz")
    for name in Trace.__dataclass_fields__:
        mine, other = getattr(trace, name), getattr(again, name)
        np.testing.assert_array_equal(other, mine)
        assert getattr(other, "dtype", type(other)) == getattr(mine, "dtype", type(mine))
    longer = run_chains(random_table(4, 3), None, n_steps=50, resume=again)
    assert moves_of(longer) == moves_of(run_chains(random_table(4, 3), trace.initial, n_steps=750, seed=6))


def test_zero_steps_leave_the_initial_states():
    trace = run_chains(random_table(2, 2), [[1, 0]], n_steps=0)
    assert trace.n_steps == 0 and trace.final.tolist() == [[1, 0]]
    states, entered, durations = trace.visits(0)
    assert (states.tolist(), entered.tolist(), durations.tolist()) == ([[1, 0]], [0], [0])


# Errors and interruption -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, message",
    [
        *(({"temperature": t}, "temperature must be > 0") for t in (0, -1.0, np.nan, np.inf, [1.0, 0.0])),
        ({"states": [[0, 3], [0, 0]]}, r"states must hold tokens 0\.\.2, got 0\.\.3"),
        ({"states": [[0, -1], [0, 0]]}, r"states must hold tokens 0\.\.2, got -1\.\.0"),
        ({"states": [0, 1]}, r"states must have shape \(chains, sites\)"),
        ({"states": np.zeros((0, 2))}, r"states must have shape \(chains, sites\)"),
        ({"frozen": [True, True]}, "every chain needs a free site"),
        ({"frozen": [[False, True], [True, True]]}, "all are frozen in chain 1"),
        ({"frozen": [0, 1]}, r"frozen must be bool\[2\] or bool\[2, 2\].*got int64\[2\]"),
        ({"frozen": [True]}, r"frozen must be bool\[2\].*got bool\[1\]"),
        *(
            ({"n_steps": n}, "n_steps must be a whole number in")
            for n in (-1, 2.5, np.nan, np.inf, True, "5", None, 2**63)
        ),
        *(({"max_moves": n}, "max_moves must be a whole number >= 1, got") for n in (0, 1.5, True)),
        *(({"seed": s}, "seed must be a whole number in") for s in (-1, 0.5, np.nan, True, "0", None, 2**64)),
        *(
            ({"chains": c}, "chain numbers must be whole numbers >= 0")
            for c in ([0.5, 1], [0, -1], [True, False], "ab")
        ),
        ({"chains": [0]}, r"need one chain number per state, got shape \(1,\) for 2"),
        *(
            ({"until": u}, r"until must return bool\[2\]")
            for u in (lambda x: True, lambda x: x.sum(1), lambda x: x > 0)
        ),
        ({"temperature": [1.0, 1.0, 1.0]}, r"temperature must be one number or of shape \(2,\)"),
    ],
)
def test_bad_input_is_refused_before_any_model_call(options, message):
    watched = Watched(random_table(2, 3))
    with pytest.raises(ValueError, match=message):
        run_chains(watched, **{"states": [[0, 0], [1, 1]], "n_steps": 5, **options})
    assert watched.calls == 0


def test_whole_numbers_of_any_kind_are_one_number():
    model, options = random_table(2, 3), {"states": [[0, 0]], "chains": [4], "seed": 3, "n_steps": 1_000}
    expected = moves_of(run_chains(model, **options))
    for change in (
        {"seed": 3.0},
        {"seed": np.uint8(3)},
        {"n_steps": 1e3},
        {"chains": [4.0]},
        {"n_steps": np.array(1000)},
    ):
        assert moves_of(run_chains(model, **{**options, **change})) == expected
    largest = run_chains(model, [[0, 0]], n_steps=20, seed=2**64 - 1, chains=[2**63 - 1])
    assert len(largest.step) > 3


@pytest.mark.parametrize("checkpoint", [False, True])
def test_another_model_does_not_go_on_from_a_trace_or_a_checkpoint(checkpoint, tmp_path):
    mine, other, file = random_table(2, 3), random_table(2, 3, seed=1), tmp_path / "chains.npz"
    half = run_chains(mine, [[0, 0]], n_steps=50, checkpoint=file if checkpoint else None)
    options = {"checkpoint": file} if checkpoint else {"resume": half}
    with pytest.raises(ValueError, match=r"was made by the model .*, not by"):
        run_chains(other, [[0, 0]], n_steps=90, **options)
    same = random_table(2, 3)  # made again
    assert run_chains(same, [[0, 0]], n_steps=90, **options).model_checksum == half.model_checksum


def test_a_trace_of_a_model_of_another_name_without_checksums_is_not_gone_on_from():
    mine, other = Watched(random_table(2, 3)), Watched(random_table(2, 3))
    mine.name, other.name = "mine", "other"
    half = dataclasses.replace(run_chains(mine, [[0, 0]], n_steps=5), model_checksum="")
    with pytest.raises(ValueError, match=r"made by the model 'mine' .*, not by 'other'"):
        run_chains(other, None, n_steps=5, resume=half)


def test_the_steps_of_a_run_and_of_what_it_goes_on_from_stay_below_64_bits():
    stuck = TabularModel(np.array([[[0.0, 0.0], [-800.0, -800.0]], [[0.0, -800.0]] * 2]))
    half = run_chains(stuck, [[0, 0]], n_steps=2**61, holding="geometric")
    with pytest.raises(ValueError, match="n_steps must be a whole number in"):
        run_chains(stuck, None, n_steps=2**61 + 1, resume=half)
    assert run_chains(stuck, None, n_steps=2**61, resume=half).n_steps == 2**62


def test_visits_are_of_a_chain_of_the_trace_and_of_its_own_length():
    trace = run_chains(random_table(3, 3), [[0, 1, 2], [2, 2, 2]], n_steps=40)
    for row in (-1, 2, 0.5):
        with pytest.raises(ValueError, match=r"row must be a whole number in 0\.\.1"):
            trace.visits(row)
    short = Trace(np.array([[1, 0, -1]]), *np.array([[3, 0, 1, 0, 2]]).T, 9, *trace_settings(3))
    states, entered, durations = short.visits(0)
    assert (states.tolist(), entered.tolist(), durations.tolist()) == ([[1, 0], [1, 2]], [0, 4], [4, 5])


def trace_settings(n):
    return np.array([1.0]), 0, np.array([0]), np.zeros((1, n), bool), np.array([-1])


@pytest.mark.parametrize("holding", ["path", "geometric"])
@pytest.mark.parametrize("call", [1, 2, 40, 120])
@pytest.mark.slow
def test_an_interrupted_run_is_resumed_on_the_path_of_an_uninterrupted_one(call, holding):
    model, states = random_table(3, 3), np.zeros((2, 3), int)
    whole = run_chains(model, states, n_steps=400, seed=8, holding=holding)
    watched = Watched(model, at=call)
    part = run_chains(watched, states, n_steps=400, seed=8, holding=holding)
    assert part.n_steps < whole.n_steps and watched.calls == call and not part.complete
    assert part.n_steps >= call // 2 - 4  # hot chains move at nearly every step, and their clocks keep close
    assert moves_of(part) == [move for move in moves_of(whole) if move[0] < part.n_steps]
    resumed = run_chains(model, None, n_steps=whole.n_steps - part.n_steps, resume=part)
    assert moves_of(resumed) == moves_of(whole)
    assert resumed.n_steps == whole.n_steps and resumed.complete and whole.complete


@pytest.mark.parametrize("holding", ["path", "geometric"])
@pytest.mark.parametrize("line", range(100, 1_500, 61))
@pytest.mark.slow
def test_a_run_may_be_interrupted_at_any_line(line, holding):
    model, states, lines = random_table(3, 3), np.zeros((2, 3), int), iter(range(1, 10**6))

    names = ("step", "move", "stop_where_met", "learn", "forget", "run_clocks", "_next_events")
    names = names if holding == "path" else ("advance", "_leave", "_learn_to_leave", "move", "stop_where_met")

    def interrupt(frame, event, _):  # as Ctrl-C would, at executed line number `line` of the engine
        if frame.f_code.co_name in names:
            if event == "line" and next(lines) == line:
                raise KeyboardInterrupt
            return interrupt

    before = sys.gettrace()
    sys.settrace(interrupt)
    try:
        part = run_chains(model, states, n_steps=150, seed=8, holding=holding)
    finally:
        sys.settrace(before)
    assert not part.complete
    whole = run_chains(model, states, n_steps=150, seed=8, holding=holding)
    resumed = run_chains(model, None, n_steps=whole.n_steps - part.n_steps, resume=part)
    assert moves_of(resumed) == moves_of(whole)


@pytest.mark.parametrize("holding", ["path", "geometric"])
@pytest.mark.parametrize("call", [3, 40, 120])
@pytest.mark.slow
def test_a_run_that_died_goes_on_from_its_checkpoint_on_the_same_path(call, holding, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "CHECKPOINT", 0.0)
    model, states, file = random_table(3, 3), np.zeros((2, 3), int), tmp_path / "chains.npz"
    options = {"n_steps": 400, "seed": 8, "holding": holding}
    whole = run_chains(model, states, **options)
    with pytest.raises(RuntimeError):
        run_chains(Watched(model, at=call, error=RuntimeError), states, checkpoint=file, **options)
    done = Trace.load(file)
    assert 0 <= done.n_steps < 400 and not done.complete
    assert moves_of(done) == [move for move in moves_of(whole) if move[0] < done.n_steps]
    watched = Watched(model)
    again = run_chains(watched, states, checkpoint=file, **options)
    assert moves_of(again) == moves_of(whole) and again.complete and again.n_steps == 400
    assert again.model_calls >= watched.calls and np.array_equal(again.final, whole.final)
    returned = run_chains(Watched(model, at=1, error=RuntimeError), states, checkpoint=file, **options)
    assert moves_of(returned) == moves_of(whole) and returned.complete  # no model is asked
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("content", [b"", b"something else", "cut short"])
def test_a_checkpoint_that_cannot_be_read_is_said_in_a_line_and_begun_anew(content, tmp_path):
    model, file = random_table(2, 3), tmp_path / "chains.npz"
    whole = run_chains(model, [[0, 0]], n_steps=50, checkpoint=file)
    file.write_bytes(file.read_bytes()[:300] if content == "cut short" else content)
    with pytest.warns(UserWarning, match=r"cannot be read .*: begins anew") as said:
        again = run_chains(model, [[0, 0]], n_steps=50, checkpoint=file)
    assert moves_of(again) == moves_of(whole) and "\n" not in str(said[0].message)


@pytest.mark.parametrize("place", ["no/folder/chains.npz", ".", "file/chains.npz"])
def test_a_checkpoint_that_cannot_be_written_is_refused_before_any_work(place, tmp_path):
    (tmp_path / "file").touch()
    watched, pairs = Watched(random_table(2, 3)), ([[0, 0]], [[1, 1]])
    for run in (partial(run_chains, watched, [[0, 0]]), partial(coalesce, watched, *pairs)):
        with pytest.raises(ValueError, match=r"cannot be written \(.*\): name a file in a folder that is there"):
            run(n_steps=50, checkpoint=tmp_path / place)
    assert watched.calls == 0


def test_a_result_whose_checkpoint_cannot_be_written_is_returned_with_a_warning(tmp_path, monkeypatch):
    model, file = random_table(2, 3), tmp_path / "chains.npz"
    whole = run_chains(model, [[0, 0]], n_steps=50)
    monkeypatch.setattr(checkpoints, "CHECKPOINT", 0.0)
    full = lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device"))  # noqa: E731
    monkeypatch.setattr(checkpoints.os, "fsync", full)
    with pytest.warns(UserWarning, match=r"chains.npz' cannot be written \(.*No space left"):
        trace = run_chains(model, [[0, 0]], n_steps=50, checkpoint=file)
    assert moves_of(trace) == moves_of(whole) and trace.complete and not list(tmp_path.iterdir())


def test_numbers_of_numpy_are_kept_in_a_checkpoint(tmp_path):
    model, x, y, count = random_table(2, 3), [[0, 0]], [[1, 1]], np.int64(50)
    for k, run in enumerate((partial(run_chains, model, x), partial(coalesce, model, x, y))):
        file = tmp_path / f"{k}.npz"
        first = run(n_steps=count, seed=np.int64(3), checkpoint=file)
        again = run(n_steps=count, seed=np.int64(3), checkpoint=file)
        assert again.complete and again.n_steps == first.n_steps == 50
        assert np.array_equal(again.final, first.final)


def test_a_file_that_is_no_result_or_another_kind_of_result_is_said_to_be(tmp_path):
    model, file = random_table(2, 3), tmp_path / "chains.npz"
    file.touch()
    with pytest.raises(ValueError, match=r"chains.npz' cannot be read \(EOFError"):
        Trace.load(file)
    file.unlink()
    run_chains(model, [[0, 0]], n_steps=50, checkpoint=file)
    before = file.read_bytes()
    with pytest.raises(ValueError, match=r"chains.npz' is no Coalescence .*; delete it or name another file"):
        coalesce(model, [[0, 0]], [[1, 1]], n_steps=50, checkpoint=file)
    assert file.read_bytes() == before


def test_a_chain_in_which_nothing_happens_is_written_too(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "CHECKPOINT", 0.0)
    stuck = TabularModel(np.array([[[0.0, 0.0], [-200.0, -200.0]], [[0.0, -200.0]] * 2]))
    written, write = [], checkpoints.Checkpoint.write
    monkeypatch.setattr(checkpoints.Checkpoint, "write", lambda self, r: written.append(r.n_steps) or write(self, r))
    trace = run_chains(stuck, [[0, 0]], n_steps=50_000, checkpoint=tmp_path / "chains.npz")
    assert len(trace.step) == 0 and 10 < len(written) < 20 and max(np.diff(written)) <= 4096 and written[-1] == 50_000


def test_a_checkpoint_of_a_resumed_run_with_a_condition_holds_all_of_it(tmp_path):
    model, states, file = random_table(4, 3), np.zeros((6, 4), int), tmp_path / "chains.npz"
    until = lambda x: x.sum(1) >= 7  # noqa: E731
    whole = run_chains(model, states, n_steps=90, until=until)
    half = run_chains(model, states, n_steps=30, until=until)
    part = run_chains(Watched(model, at=9), None, n_steps=60, resume=half, until=until, checkpoint=file)  # Ctrl-C
    assert 30 <= part.n_steps < 90 and file.exists()
    again = run_chains(model, None, n_steps=60, resume=half, until=until, checkpoint=file)
    assert moves_of(again) == moves_of(whole) and np.array_equal(again.stopped, whole.stopped)
    assert (whole.stopped >= 0).any() and (whole.stopped < 0).any()


@pytest.mark.parametrize(
    "options, other",
    [({"seed": 4}, "seed"), ({"temperature": 2.0}, "temperature"), ({"n_steps": 3}, "n_steps"),
     ({"states": [[1, 0]]}, "initial"), ({"holding": "geometric"}, "holding"), ({"frozen": [True, False]}, "frozen")],
)  # fmt: skip
def test_a_checkpoint_of_another_run_is_refused(options, other, tmp_path):
    model, file, mine = random_table(2, 3), tmp_path / "chains.npz", {"states": [[0, 0]], "n_steps": 50}
    run_chains(Watched(model, at=6), checkpoint=file, **mine)
    assert Trace.load(file).n_steps > 3
    with pytest.raises(ValueError, match=rf"is of another run \({other}\): delete it"):
        run_chains(model, checkpoint=file, **{**mine, **options})


@pytest.mark.parametrize("holding", ["path", "geometric"])
@pytest.mark.parametrize("size", [1, 5])
@pytest.mark.slow
def test_a_budget_of_moves_ends_a_run_when_the_first_chain_has_made_them(holding, size):
    model, states = random_table(3, 4), np.zeros((size, 3), int)
    whole = run_chains(model, states, n_steps=500, holding=holding)
    part = run_chains(model, states, n_steps=500, holding=holding, max_moves=40)
    ends = min(np.flatnonzero(whole.chain == k)[39] for k in range(size))
    assert part.n_steps == whole.step[ends] + 1 < 500 and part.complete
    assert moves_of(part) == [move for move in moves_of(whole) if move[0] < part.n_steps]
    half = run_chains(model, states, n_steps=part.n_steps // 2, holding=holding)
    again = run_chains(model, None, n_steps=500, resume=half, max_moves=40)
    assert again.n_steps == part.n_steps and moves_of(again) == moves_of(part)
    for ended in (part, again):  # at the limit there is nothing to go on with
        same = run_chains(Watched(model, at=1, error=RuntimeError), None, n_steps=500, resume=ended, max_moves=40)
        assert same.n_steps == part.n_steps and moves_of(same) == moves_of(part) and same.complete
    enough = run_chains(model, states, n_steps=500, holding=holding, max_moves=501)
    assert moves_of(enough) == moves_of(whole) and enough.n_steps == 500


def test_other_errors_of_a_model_are_not_swallowed():
    with pytest.raises(RuntimeError):
        run_chains(Watched(random_table(2, 2), at=3, error=RuntimeError), [[0, 0]], n_steps=50)


def test_a_trace_cannot_be_changed(trace):
    with pytest.raises(dataclasses.FrozenInstanceError):
        trace.n_steps = 3


def test_a_save_that_fails_leaves_the_file_that_was_there(monkeypatch, tmp_path):
    trace = run_chains(random_table(2, 3), [[0, 1]], n_steps=5)
    trace.save(tmp_path / "trace.npz")
    before = (tmp_path / "trace.npz").read_bytes()

    def full(*_, **__):
        raise OSError("no space left on device")

    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(OSError, match="no space"):
        run_chains(random_table(2, 3), [[0, 1]], n_steps=50).save(tmp_path / "trace.npz")
    assert (tmp_path / "trace.npz").read_bytes() == before and len(list(tmp_path.iterdir())) == 1


class SumAbove:
    """A condition with a key: the tokens of a state add up to more than `most`."""

    def __init__(self, most):
        self.most, self.cache_key = most, ["sum above", most]

    def __call__(self, states):
        return states.sum(1) > self.most


def test_a_trace_of_another_condition_with_a_key_is_refused():
    model = random_table(3, 3)
    half = run_chains(model, [[0, 0, 0]], n_steps=5, until=SumAbove(4))
    assert half.condition and run_chains(model, None, n_steps=5, resume=half, until=SumAbove(4)).n_steps == 10
    with pytest.raises(ValueError, match="stopped by another condition"):
        run_chains(model, None, n_steps=5, resume=half, until=SumAbove(1))


MADE = {"temperature": [0.5, 2.0], "seed": 3, "chains": [4, 2], "frozen": [True, False, False], "holding": "geometric"}
OTHERS = {
    "temperature": 1.0, "seed": 0, "chains": [0, 1], "frozen": [False, False, False], "holding": "path",
}  # fmt: skip


@pytest.mark.parametrize("name", MADE)
def test_a_setting_beside_resume_that_is_not_the_traces_is_refused_and_an_equal_one_accepted(name):
    model, states = random_table(3, 3), [[0, 0, 0], [1, 2, 0]]
    half, whole = (run_chains(model, states, n_steps=k, **MADE) for k in (40, 90))
    watched = Watched(model)
    with pytest.raises(ValueError, match=f"the trace to go on from was made with another {name}: leave out"):
        run_chains(watched, None, n_steps=50, resume=half, **{name: OTHERS[name]})
    assert not watched.calls
    for also in ({}, {name: MADE[name]}, MADE):
        assert moves_of(run_chains(model, None, n_steps=50, resume=half, **also)) == moves_of(whole)
    with pytest.raises(ValueError, match="seed must be a whole number"):
        run_chains(model, states, n_steps=5, seed=None)  # type: ignore


# Whose scores they are -----------------------------------------------------------------------------------------------


class Turned(IsingModel):
    """Spins that repel where others attract, `times` as strongly."""

    def __init__(self, *args, times=1.0):
        super().__init__(*args)
        self.times = times

    def scores(self, states, sites, hidden=None):
        return -self.times * super().scores(states, sites, hidden)


class Renamed(IsingModel):
    """A class with a key of its own."""

    @property
    def cache_key(self):
        return "mine"


def test_a_model_of_a_class_of_its_own_has_the_key_of_that_class_and_its_attributes():
    couplings = np.array([[0.0, 1.0], [1.0, 0.0]])
    parent, turned = IsingModel(couplings), Turned(couplings)
    keys = [model_checksum(m) for m in (parent, turned, Turned(couplings, times=2.0), Turned(couplings, [0.0, 1.0]))]
    assert len({*keys}) == 4 and all(keys)
    assert model_checksum(turned) == model_checksum(Turned(couplings))
    assert model_checksum(Renamed(couplings)) == model_checksum(Renamed(2 * couplings)) != ""
    parent.scores = turned.scores  # of this model alone
    assert model_checksum(parent) == ""
    typed = {"IsingModel": IsingModel, "__name__": "typed_in"}
    exec("class Typed(IsingModel):\n    def scores(self, *args):\n        return 0 * super().scores(*args)", typed)
    assert model_checksum(typed["Typed"](couplings)) == ""
    with pytest.raises(AttributeError, match="Typed has no source; give it a cache_key"):
        _ = typed["Typed"](couplings).cache_key


def test_keys_of_every_small_model_hold_their_class(tmp_path):
    class Tables(TabularModel):
        pass

    class Restricted(RestrictedModel):
        pass

    table, file = random_table(2, 3), tmp_path / "chains.npz"
    same = Tables(table.to_arrays()["table"])
    few = [kind(table, [0, 0], [1], [0, 1]) for kind in (RestrictedModel, Restricted)]
    for one, other in ((table, same), few):
        assert model_checksum(one) and model_checksum(other) and model_checksum(one) != model_checksum(other)
    half = run_chains(table, [[0, 0]], n_steps=50, checkpoint=file)
    for options in ({"resume": half}, {"checkpoint": file}):
        with pytest.raises(ValueError, match="made by the model"):
            run_chains(same, [[0, 0]], n_steps=60, **options)


class Nameless:
    """A model without name and key."""

    n_tokens, device = 2, torch.device("cpu")

    def __init__(self, field):
        self.field = field

    def scores(self, states, sites):
        return torch.tensor([[0.0, self.field]], dtype=torch.float64).repeat(len(states), 1)


@pytest.mark.parametrize("run", [run_chains, lambda m, x, **options: coalesce(m, x, [[1, 1]], **options)])
def test_a_checkpoint_of_a_model_that_cannot_be_told_apart_is_said(run, tmp_path):
    file, options = tmp_path / "run.npz", {"n_steps": 50}
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # none where there is nothing to go on from
        half = run(Nameless(5.0), [[0, 0]], checkpoint=file, **options)
    told = r"whether this model made it cannot be told; give the class of the model a cache_key"
    for other in (Nameless(-5.0), RestrictedModel(Nameless(-5.0), [0, 0], [0, 1], [0, 1])):
        with pytest.warns(UserWarning, match=told):
            run(other, [[0, 0]], checkpoint=file, **options)
    if run is run_chains:
        with pytest.warns(UserWarning, match="the trace to go on from: " + told):
            run(Nameless(-5.0), None, n_steps=5, resume=half)
