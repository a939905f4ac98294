"""The engine: paths of a real model, laws of holding times, conditions to stop, ragged states, remembered scores."""

import io
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import MASKED, TEXTS, Watched, codes, fit, moves_of, random_ising, random_table, small_vocabulary
from hypothesis import given, settings
from hypothesis import strategies as st
from tqdm.auto import tqdm

from glauber_lib import engine, exact
from glauber_lib.chains import run_chains
from glauber_lib.couplings import coalesce
from glauber_lib.draws import inverse_cdf, uniforms, weights
from glauber_lib.engine import STORE, Conditionals
from glauber_lib.models import IsingModel, TabularModel, all_states
from glauber_lib.networks import ONE_QUERY, hidden_at

HOLDING = ["path", "geometric"]
both_ways = pytest.mark.parametrize("holding", HOLDING)
SMALL = {"tabular": random_table(3, 3), "ising": random_ising(3)}
small = pytest.mark.parametrize("model", SMALL.values(), ids=SMALL)


# Paths -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "each", "n_steps"), [("minilm-3l", 8, 400), ("distilbert", 2, 60)])
def test_the_embedded_models_paths_are_those_of_a_loop_that_asks_at_every_step(name, each, n_steps, embedded):
    model, n, size = embedded(name), 8, 3 * each  # `each` chains a temperature
    state, temperature = model.states(TEXTS[::11][:size], n=n), np.repeat([0.1, 0.3, 1.0], each)
    trace = run_chains(model, state, n_steps=n_steps, temperature=temperature, seed=3)
    assert trace.model_calls < 0.75 * size * n_steps  # the engine does take its short cuts
    moved = np.bincount(trace.chain, minlength=size).reshape(3, each)
    assert moved[0].sum() > 2 * each and moved[2].min() > 0.5 * n_steps
    path, together = trace.states(np.arange(n_steps + 1)), np.full(size, True)
    for t in range(n_steps):
        keys = [np.random.Philox(key=np.array([3, k], np.uint64), counter=t) for k in range(size)]
        u = np.stack([np.random.Generator(key).random(2) for key in keys])
        site = (u[:, 0] * n).astype(int)
        scores = model.scores(state, site).double().numpy() / temperature[:, None]
        cumulative = np.exp(scores - scores.max(1, keepdims=True)).cumsum(1)
        cumulative /= cumulative[:, -1:]
        token = np.array([np.searchsorted(*pair, side="right") for pair in zip(cumulative, u[:, 1], strict=True)])
        state[np.arange(size), site] = token
        for k in np.flatnonzero(together & (state != path[t + 1]).any(1)):
            other = path[t + 1, k].copy()
            drawn, other[site[k]] = other[site[k]], token[k]
            np.testing.assert_array_equal(other, state[k])  # no other site has moved
            low, high = np.insert(cumulative[k], 0, 0.0)[[drawn, drawn + 1]]
            assert low * (1 - 1e-5) <= u[k, 1] <= high * (1 + 1e-5)
            together[k] = False
    assert together.sum() >= 0.8 * size


@both_ways
@pytest.mark.parametrize("kind", ["tabular", "bert"])
@pytest.mark.slow
def test_a_chain_is_the_same_alone_in_a_crowd_resumed_and_with_any_memory(kind, holding, tiny):
    model = random_table(4, 4) if kind == "tabular" else tiny[kind]
    states = np.random.default_rng(0).integers(model.n_tokens, size=(65, 4))
    options = {"temperature": 0.3 if kind == "tabular" else 0.1, "seed": 5, "holding": holding}
    alone = run_chains(model, states[[40]], n_steps=600, chains=[40], **options)
    moves = moves_of(alone, 0)
    assert len(moves) > 50
    crowd = run_chains(model, states, n_steps=200, **options)
    assert moves_of(crowd, 40) == [move for move in moves if move[0] < 200]
    half = run_chains(model, states[[40]], n_steps=500, chains=[40], memory=10_000, **options)
    assert moves_of(half, 0) == [move for move in moves if move[0] < 500]
    assert moves_of(run_chains(model, None, n_steps=100, resume=half, memory=0), 0) == moves


# Laws --------------------------------------------------------------------------------------------------------------


@small
def test_with_geometric_holding_the_state_at_a_fixed_time_has_the_law_of_the_matrix_power(model):
    start, times = np.zeros((2_500, 3), int), [1, 4, 15]
    trace = run_chains(model, start, n_steps=15, temperature=0.6, seed=1, holding="geometric")
    matrix, other = (exact.transition_matrix(model, 3, t).toarray() for t in (0.6, 0.9))
    for time, states in zip(times, trace.states(times), strict=True):
        counts = np.bincount(codes(states, model.n_tokens), minlength=len(matrix))
        assert fit(counts, np.linalg.matrix_power(matrix, time)[0]) > 1e-3
        assert fit(counts, np.linalg.matrix_power(other, time)[0]) < 1e-6  # the test has power


def fit_times(times, cdf):
    """p-value of times with P(T <= t) = cdf[t], on twenty bins; -1 stands for later than all these t."""
    edges = np.unique(np.searchsorted(cdf, np.arange(1, 20) / 20))
    edges = edges[edges < len(cdf)]
    counts = np.bincount(np.searchsorted(edges, np.where(times < 0, len(cdf), times)), minlength=len(edges) + 1)
    return fit(counts, np.diff([0, *cdf[edges], 1]))


@small
@both_ways
def test_the_first_time_out_of_a_state_is_geometric(model, holding):
    leave = 1 - exact.transition_matrix(model, 3, 0.3).diagonal()
    start, leave = all_states(model.n_tokens, 3)[leave.argmin()], leave.min()
    options = {"n_steps": 400, "temperature": 0.3, "seed": 2, "holding": holding}
    trace = run_chains(model, np.tile(start, (3_000, 1)), until=lambda x: (x != start).any(1), **options)
    np.testing.assert_array_equal(trace.step, np.sort(trace.stopped[trace.stopped >= 0]) - 1)
    assert fit_times(trace.stopped, 1 - (1 - leave) ** np.arange(401)) > 1e-3
    assert fit_times(trace.stopped, 1 - (1 - 1.3 * leave) ** np.arange(401)) < 1e-6  # the test has power


@small
@both_ways
@pytest.mark.slow
def test_the_first_time_in_a_set_has_the_law_of_the_powers_of_the_rest(model, holding):
    n_tokens, n_steps = model.n_tokens, 600
    goal = [n_tokens**3 - 1, n_tokens**3 - 2]
    options = {"n_steps": n_steps, "temperature": 0.5, "seed": 3, "holding": holding}
    start = np.zeros((1_000, 3), int)
    trace = run_chains(model, start, until=lambda x: np.isin(codes(x, n_tokens), goal), **options)

    def cdf(temperature):
        inside = np.delete(np.delete(exact.transition_matrix(model, 3, temperature).toarray(), goal, 0), goal, 1)
        law, missed = np.eye(len(inside))[0], []
        for _ in range(n_steps + 1):
            missed.append(law.sum())
            law = law @ inside
        return 1 - np.array(missed)

    assert fit_times(trace.stopped, cdf(0.5)) > 1e-3
    assert fit_times(trace.stopped, cdf(1.0)) < 1e-6  # the test has power


@pytest.mark.parametrize("leave", [1e-12, 1e-17])  # the second is lost in 1 - leave
def test_a_state_that_holds_for_a_trillion_steps_is_left_after_its_exact_mean_time(leave):
    model = TabularModel.from_joint([[0.0, np.log(leave)], [np.log(leave), 5.0]])
    trace = run_chains(
        model, np.zeros((400, 2), int), n_steps=2**62, holding="geometric", until=lambda x: x.any(1), seed=4
    )
    assert trace.stopped.dtype == trace.step.dtype == np.int64 and trace.complete and trace.n_steps == 2**62
    assert abs(trace.stopped.mean() * leave - 1) < 4 / np.sqrt(400)
    assert abs(np.log(2) - np.median(trace.stopped) * leave) < 4 / np.sqrt(400)
    assert trace.model_calls <= 400 * 3


def test_a_state_that_cannot_be_left_is_held_to_the_end():
    model = TabularModel.from_joint(1e4 * np.eye(2)[:1].T * np.eye(2)[:1])
    trace = run_chains(model, [[0, 0]], n_steps=2**62, temperature=0.01, holding="geometric", until=lambda x: x.any(1))
    assert (len(trace.step), trace.n_steps, trace.complete, trace.stopped.tolist()) == (0, 2**62, True, [-1])


def test_cumulative_sums_in_float32_lower_the_effective_temperature():
    # one token of weight 1 and 29,999 of weight 2e-8: the uniforms of this even grid all belong to the light ones
    light = np.array([1.0, *np.full(29_999, 2e-8)])
    uniform = 1 - (np.arange(600) + 0.5) / 600 * (light[1:].sum() / light.sum())
    blocks = np.array([0, *np.full(30, 1 / 30)])  # the heavy token, then a thousand light ones a block
    row = weights(torch.from_numpy(np.log(light).astype(np.float32)).expand(100, -1), np.ones(100))
    tokens = np.concatenate([inverse_cdf(row, part)[0] for part in torch.from_numpy(uniform).split(100)])
    assert len(set(tokens)) == 600
    assert fit(np.bincount((tokens + 999) // 1000, minlength=31), blocks) > 0.99

    single = light.astype(np.float32).cumsum(dtype=np.float32)
    tokens = np.searchsorted(single, uniform.astype(np.float32) * single[-1], side="right").clip(max=29_999)
    assert fit(np.bincount((tokens + 999) // 1000, minlength=31), blocks) < 1e-6


# A condition to stop at --------------------------------------------------------------------------------------------


def sum_is_five(states):
    return states.sum(1) == 5


UNTIL = {"n_steps": 25, "temperature": 0.5, "seed": 6}


@both_ways
def test_a_chain_rests_from_the_first_step_after_which_its_condition_holds(holding):
    model, starts = Watched(SMALL["tabular"]), all_states(3, 3)
    free = run_chains(model.model, starts, holding=holding, **UNTIL)
    met = np.stack([sum_is_five(x) for x in free.states(np.arange(26))])
    first = np.where(met.any(0), met.argmax(0), -1)
    assert all((first == k).any() for k in (-1, 0)) and (first > 0).sum() > 5
    trace = run_chains(model, starts, until=sum_is_five, holding=holding, **UNTIL)
    np.testing.assert_array_equal(trace.stopped, first)
    before = free.step < np.where(first < 0, 25, first)[free.chain]
    assert moves_of(trace) == [move for move, kept in zip(moves_of(free), before, strict=True) if kept]
    assert not any(sum_is_five(x).any() for x in model.asked)  # a chain at rest costs no model call
    assert (free.stopped == -1).all()


@both_ways
@pytest.mark.parametrize("call", [2, 6, 15])
def test_a_condition_given_again_goes_on_as_if_never_left(holding, call):
    model, starts = SMALL["tabular"], all_states(3, 3)
    options = {"until": sum_is_five, "holding": holding}
    whole = run_chains(model, starts, **UNTIL, **options)
    for part in (
        run_chains(model, starts, **{**UNTIL, "n_steps": call}, **options),
        run_chains(Watched(model, at=call), starts, **UNTIL, **options),
    ):
        assert part.n_steps < 25
        np.testing.assert_array_equal(part.stopped, np.where(whole.stopped <= part.n_steps, whole.stopped, -1))
        again = run_chains(model, None, n_steps=25 - part.n_steps, resume=part, until=sum_is_five)
        assert moves_of(again) == moves_of(whole)
        np.testing.assert_array_equal(again.stopped, whole.stopped)


@both_ways
def test_once_all_chains_rest_more_steps_cost_nothing(holding):
    options = {"until": lambda x: x.any(1), "holding": holding}
    short, long = (run_chains(SMALL["tabular"], [[0, 0, 0]] * 5, n_steps=k, **options) for k in (1_000, 9_000))
    assert (short.stopped > 0).all() and 0 < short.model_calls == long.model_calls
    assert run_chains(SMALL["tabular"], [[0, 0, 1]] * 5, n_steps=100, **options).model_calls == 0


# Interruption ------------------------------------------------------------------------------------------------------


@both_ways
@given(seed=st.integers(0, 2**32), calls=st.lists(st.integers(1, 40), min_size=1, max_size=3))
@settings(max_examples=25)
@pytest.mark.slow
def test_a_run_interrupted_again_and_again_is_never_set_back(holding, seed, calls):
    model = IsingModel(np.ones((3, 3)) - np.eye(3))
    options = {"temperature": 0.7, "seed": seed, "holding": holding}
    whole = run_chains(model, np.zeros((2, 3), int), n_steps=800, **options)
    done = run_chains(model, np.zeros((2, 3), int), n_steps=500, **options)
    for call in calls:
        part = run_chains(Watched(model, at=call), None, n_steps=800 - done.n_steps, resume=done)
        assert done.n_steps <= part.n_steps <= 800 and part.complete == (part.n_steps == 800)
        assert moves_of(part) == [move for move in moves_of(whole) if move[0] < part.n_steps]
        done = part
    again = run_chains(model, None, n_steps=800 - done.n_steps, resume=done)
    assert moves_of(again) == moves_of(whole) and again.complete


# States of different lengths ---------------------------------------------------------------------------------------


@both_ways
@pytest.mark.parametrize("kind", ["bert", "roberta"])
@pytest.mark.slow
def test_states_of_different_lengths_run_together_as_each_runs_alone(kind, holding, tiny):
    model, lengths = tiny[kind], [3, 7, 4, 7, 1]
    states = [model.tokens(text, n=n) for text, n in zip(TEXTS, lengths, strict=False)]
    options = {"temperature": 0.4, "seed": 7, "holding": holding}
    trace = run_chains(model, states, n_steps=60, **options)
    half = run_chains(model, states, n_steps=25, memory=30_000, **options)
    resumed = run_chains(model, None, n_steps=35, resume=half)
    np.testing.assert_array_equal(trace.initial, [[*x, *[-1] * (7 - len(x))] for x in states])
    assert np.bincount(trace.chain).min() > 10
    assert moves_of(resumed) == moves_of(trace)
    for k, state in enumerate(states):
        alone = run_chains(model, [state], n_steps=60, chains=[k], **options)
        assert moves_of(trace, k) == moves_of(alone, 0)
        np.testing.assert_array_equal(trace.final[k], [*alone.final[0], *[-1] * (7 - len(state))])


def test_a_site_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match=r"states must hold tokens 0\.\.2, got -1\.\.0"):
        run_chains(random_table(2, 3), [[0, 0, 0], [0, -1]], n_steps=1)
    with pytest.raises(ValueError, match="every state must have a site"):
        run_chains(random_table(2, 3), [[0, 0], []], n_steps=1)
    with pytest.raises(ValueError, match="all are frozen in chain 1"):
        run_chains(random_table(2, 3), [[0, 0], [0]], n_steps=1, frozen=[True, False])


def test_pairs_of_different_lengths_are_refused():
    ragged = [[0, 0], [0]]
    with pytest.raises(ValueError, match=r"shape|length"):
        coalesce(random_table(2, 3), ragged, ragged, n_steps=1)
    with pytest.raises(ValueError, match="must hold tokens"):
        coalesce(random_table(2, 3), [[0, -1]], [[0, 1]], n_steps=1)


# Remembered scores -------------------------------------------------------------------------------------------------


class Speller:
    """A model whose answer spells out the question: the site, and the others' tokens as digits."""

    n_tokens, row = 2, 2 * 8 + 3 * 8 + 300  # bytes of an answer, with its place in the store

    def __init__(self):
        self.asked = []

    def scores(self, states, sites):
        others = np.where(np.arange(3) == sites[:, None], 9, states)
        self.asked += codes(others, 10).tolist()
        return torch.tensor(np.stack([sites, codes(others, 10)], axis=1), dtype=torch.float64)


questions = st.lists(st.tuples(st.sampled_from([(0, 0, 0), (1, 0, 0)]), st.integers(0, 2)), min_size=1, max_size=4)


@given(
    st.lists(questions, max_size=8) | st.lists(questions.map(lambda call: call[:1]), min_size=8, max_size=16),
    st.integers(0, 4),
    st.sampled_from([0, 1, Speller.row - 1]),
)
def test_what_is_asked_is_new_and_what_is_dropped_is_least_recently_used(calls, capacity, spare):
    model, remembered = Speller(), []
    conditionals, memory = Conditionals(model, capacity * Speller.row + spare), capacity * Speller.row + spare
    for call in calls:
        states, sites = np.array([x for x, _ in call]), np.array([i for _, i in call])
        expected = Speller().scores(states, sites)
        model.asked = []
        before = conditionals.calls
        assert torch.equal(conditionals.scores(states, sites), expected)
        keys = expected[:, 1].int().tolist()
        new = [k for k in dict.fromkeys(keys) if k not in remembered] if memory else keys
        assert model.asked == new and conditionals.calls - before == len(new)
        for key in keys:
            if key in remembered:
                remembered.remove(key)
                remembered.append(key)
        remembered = [*remembered, *new[:capacity]][-capacity:] if capacity else []


@pytest.mark.parametrize("n, n_tokens, share", [(1, 2, 0.5), (20, 500, 0.85)])
def test_the_store_never_takes_more_than_its_memory(n, n_tokens, share):
    model = SimpleNamespace(n_tokens=n_tokens, scores=lambda states, sites: torch.zeros(len(states), n_tokens))
    conditionals, memory = Conditionals(model, 400_000), 400_000
    states = np.random.default_rng(0).integers(10**6, size=(20_000 if n == 1 else 2_000, n))
    states[:, 0] = np.arange(len(states))
    used = []
    for part in np.array_split(states, 100):
        conditionals.scores(np.column_stack([part, part]), np.full(len(part), n))
        used.append(conditionals.nbytes)
    assert conditionals.calls == len(states) > 2 * conditionals.capacity  # it has been full for long
    assert used[-1] > conditionals.capacity * (4 * n_tokens + 8 * n)  # scores and masked states are counted
    assert max(used) <= memory and used[-1] > share * memory


def test_the_default_store_holds_the_conditionals_of_512_chains_of_20_sites(monkeypatch):
    # on this device nothing is allocated, and there are no numbers to check
    monkeypatch.setattr(engine, "ask", lambda model, states, sites: torch.zeros(len(states), 30_000, device="meta"))
    conditionals = Conditionals(SimpleNamespace())
    conditionals.scores(np.zeros((1, 20), int), np.zeros(1, int))
    assert conditionals.capacity >= 512 * 20 and 4 * 30_000 * conditionals.capacity < conditionals.nbytes <= STORE


def test_negative_memory_is_refused():
    with pytest.raises(ValueError, match="memory must be a whole number >= 0, got -1"):
        run_chains(random_table(2, 2), [[0, 0]], n_steps=1, memory=-1)


def first_visits(trace):
    """Visits of a site that are its first since another site of the chain moved."""
    count, n = 0, trace.initial.shape[1]
    for row, chain in enumerate(trace.chains):
        mine = trace.chain == row
        moved = dict(zip(trace.step[mine], trace.site[mine], strict=True))
        known = set()
        for t, u in enumerate(uniforms(trace.seed, [chain], 0, trace.n_steps)[0, :, 0]):
            count += int(u * n) not in known
            known.add(int(u * n))
            if t in moved:
                known = {moved[t]}
    return count


@pytest.mark.parametrize("temperature", [0.2, 1.0])
@pytest.mark.slow
def test_a_model_is_asked_once_per_site_and_change_of_the_others(temperature, tiny):
    model = tiny["bert"]
    states = np.random.default_rng(2).integers(model.n_tokens, size=(3, 6))
    present = 3 * 6 * (4 * model.n_tokens + 8 * 6 + 300)  # bytes of all conditionals of the present states
    options = {"n_steps": 250, "temperature": temperature, "seed": 1}
    traces = {memory: run_chains(model, states, memory=memory, **options) for memory in (present, None, 0)}
    bound = first_visits(traces[None])
    assert traces[present].model_calls <= 1.05 * bound and traces[None].model_calls <= bound
    assert traces[0].model_calls > 1.05 * bound  # the count has power


@both_ways
@pytest.mark.slow
def test_a_chain_among_few_states_ends_up_asking_nothing(holding, tiny_folders):
    model = small_vocabulary("bert", tiny_folders, 3)
    options = {"temperature": 5.0, "holding": holding}
    half, whole = (run_chains(model, [[0, 1, 2]], n_steps=k, **options) for k in (400, 800))
    assert len(whole.step) - len(half.step) > 100
    assert half.model_calls == whole.model_calls <= 3 * 3**2
    assert run_chains(model, [[0, 1, 2]], n_steps=100, memory=0, **options).model_calls > 3 * 3**2


# The last layer ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", MASKED)
def test_hidden_vectors_are_those_of_the_full_forward(kind, tiny):
    network, rng = tiny[kind].network, np.random.default_rng(3)
    ids = torch.from_numpy(rng.choice(tiny[kind].vocabulary, size=(5, 11)))
    positions = torch.from_numpy(rng.integers(11, size=(5, 3)))
    with torch.no_grad():
        full, short = network.base_model(input_ids=ids).last_hidden_state, hidden_at(network, ids, positions)
    torch.testing.assert_close(short, full[torch.arange(5)[:, None], positions], atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", sorted(ONE_QUERY))
def test_the_last_layer_sees_the_asked_positions_only(kind, tiny):
    model, seen = tiny[kind], []
    base = model.network.base_model
    layers, part = (base.transformer.layer, "ffn") if kind == "distilbert" else (base.encoder.layer, "intermediate")
    parts = [getattr(layer, part) for layer in layers]
    hooks = [x.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].shape)) for x in parts]
    try:
        with torch.no_grad():
            hidden_at(model.network, torch.full((5, 11), 20), torch.zeros(5, 3, dtype=torch.long))
        model.scores(model.states(TEXTS[:4], n=6), np.arange(4))
    finally:
        for hook in hooks:
            hook.remove()
    assert seen == [(5, 11, 32), (5, 3, 32), (4, 8, 32), (4, 1, 32)]


# What no other test tells from a small fault (mutants.md) ------------------------------------------------------------


def test_two_states_shorter_than_their_rows_are_asked_at_their_own_length():
    model = random_table(2, 3)
    states, sites, conditionals = np.array([[0, 1, -1], [1, 1, -1]]), np.array([0, 1]), Conditionals(model)
    assert conditionals.capacity == 0  # nothing is known before the first answer
    assert torch.equal(conditionals.scores(states, sites), model.scores(states[:, :2], sites))


def test_a_bar_of_a_resumed_run_counts_the_steps_that_are_left(monkeypatch):
    bars = []
    monkeypatch.setattr(
        engine, "tqdm", lambda **options: bars.append(tqdm(**options | {"file": io.StringIO()})) or bars[-1]
    )
    half = run_chains(SMALL["tabular"], [[0, 0, 0]], n_steps=20, progress="run")
    run_chains(SMALL["tabular"], None, n_steps=30, resume=half, progress="run")
    assert [(bar.total, bar.n, bar.leave) for bar in bars] == [(20, 20, False), (30, 30, False)]


def test_an_interruption_says_how_many_of_its_own_steps_a_run_has_done(capsys):
    half = run_chains(SMALL["tabular"], [[0, 0, 0]], n_steps=20)
    part = run_chains(Watched(SMALL["tabular"], at=3), None, n_steps=30, resume=half)
    assert f"interrupted after {part.n_steps - 20} of 30 steps: what" in capsys.readouterr().out
