"""What a model may answer: one gate for all who ask, and what passes it."""

import ast
import contextlib
import copy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import random_table

import glauber_lib
from glauber_lib import (
    contraction,
    drift,
    exact,
    influence,
    kernels,
    margins,
    search,
    strips,
    trapping,
)
from glauber_lib.answers import ask, check_scores, refuse_unable_to_hide
from glauber_lib.chains import run_chains
from glauber_lib.couplings import coalesce
from glauber_lib.draws import probabilities
from glauber_lib.incompatibility import Rectangles, measure_joint, measure_rectangles, sample_rectangles
from glauber_lib.language import CausalLM, MaskedLM
from glauber_lib.models import RestrictedModel, TabularModel, all_states, marginal_scores


@pytest.mark.parametrize(
    ("scores", "able"),
    [
        (lambda states, sites: None, False),
        (lambda states, sites, scale=1.0: None, False),
        (lambda states, sites, *, hidden=None: None, False),
        (lambda states, sites, scale=1.0, hidden=None: None, False),
        (lambda states, sites, hidden=None: None, True),
        (lambda states, sites, hidden=None, scale=1.0: None, True),
        (lambda *asked: None, True),
        (lambda states, sites, *further: None, True),
    ],
)
def test_a_model_can_hide_sites_where_its_third_parameter_is_hidden(scores, able):
    with contextlib.nullcontext() if able else pytest.raises(ValueError, match="third parameter"):
        refuse_unable_to_hide(SimpleNamespace(n_tokens=2, scores=scores))


BAD = {"nan": [0.0, np.nan, 0.0], r"\+inf": [np.inf, 0.0, -np.inf], "-inf for every token": [-np.inf] * 3}


class Rigged(TabularModel):
    """Three sites of three tokens; one row of scores, at site 1 of states 0 · 0, is another."""

    name = "rig"

    def __init__(self, row):
        table = random_table(3, 3).to_arrays()["table"]
        table[1, 0, :, 0] = row
        super().__init__(table)


def every_site(model, state, free, *, temperature, step, draw):
    """A kernel of a user, which asks the model itself."""
    model.scores(np.tile(state, (3, 1)), np.arange(3))
    return state


START = np.zeros((2, 3), int)
RECTANGLES = Rectangles(START, np.arange(2), np.array([1, 0]), np.array([0, 1]), np.array([1, 1]), np.array([2, 2]))
NEAR = np.array([[0, 0, 1]] * 2)
SMALL_T = np.array([0.5, 1.0])
ASKERS = {
    "plain loop": lambda m: kernels.run(m, START, n_steps=200),
    "a block of sites": lambda m: kernels.run(m, START, n_steps=1, block=None, inside="visible"),
    "a kernel of one's own": lambda m: kernels.run(m, START, n_steps=1, kernel=every_site),
    "chains by path": lambda m: run_chains(m, START, n_steps=200),
    "chains by path, nothing remembered": lambda m: run_chains(m, START, n_steps=200, memory=0),
    "chains, geometric": lambda m: run_chains(m, START, n_steps=200, holding="geometric"),
    "chains of two lengths": lambda m: run_chains(m, [[0, 0, 0], [0, 0, 0, 0][:3]], n_steps=200),
    "couplings": lambda m: coalesce(m, np.zeros((20, 3), int), NEAR[[0] * 20], n_steps=200),
    "rectangles drawn from the best": lambda m: sample_rectangles(m, START, 50),
    "rectangles drawn by law": lambda m: sample_rectangles(m, START, 50, temperature=1.0),
    "rectangles proposed": lambda m: sample_rectangles(m, START, 50, propose=m.scores),
    "rectangles": lambda m: measure_rectangles(m, RECTANGLES),
    "replacements": lambda m: influence.replacement_tokens(m, START, 2),
    "influence": lambda m: influence.measure_influence(m, START, np.ones((2, 3, 1), int), SMALL_T),
    "influence of pairs": lambda m: search.pair_influence(m, START, NEAR, [1] * len(START), [1.0]),
    "influence searched": lambda m: search.search_column(m, START, 2, rounds=3, candidates=4),
    "influence of drawn changes": lambda m: contraction.drawn_influence(m, START, 1.0),
    "sets grown": lambda m: trapping.grow_sets(m, START, 1.0, cap=3),
    "chains in a strip": lambda m: strips.run_in_strip(
        m, START[0], int(START[0][0]), 0, 1.0, n_chains=9, epochs=2, n_steps=30
    ),
    "tabulate": lambda m: exact.tabulate(m, 3),
    "solve_system": lambda m: exact.solve_system(m, 3, [1.0]),
    "exact oscillation": lambda m: exact.oscillation(m, 3),
    "exact margin": lambda m: exact.margin(m, START[:1]),
    "escape times": lambda m: margins.basin_escape_times(m, START[:1], 1.0),
    "score gaps": lambda m: margins.score_gaps(m, START[0]),
    "escape probability": lambda m: margins.escape_probability(m, START[0], 1.0),
    "trap": lambda m: margins.describe_trap(m, START[0], 1.0),
    "pseudo-likelihood": lambda m: margins.log_pseudo_likelihood(m, START),
    "drift": lambda m: drift.token_drift(m, START, 0, SMALL_T),
    "a restricted model": lambda m: run_chains(RestrictedModel(m, START[0], [1], [0, 2]), [[0]], n_steps=5),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
@pytest.mark.parametrize("asker", ASKERS)
def test_whoever_asks_a_row_without_a_law_is_told_model_site_and_state(asker, what):
    with pytest.raises(
        ValueError, match=rf"^model 'rig' gives {what} at site 1 of state \[0, \d, 0\]: a score must be"
    ):
        ASKERS[asker](Rigged(BAD[what]))


def test_states_of_different_lengths_are_named_without_their_filling():
    broken = lambda states, sites: torch.full((len(states), 2), np.nan if states.shape[1] == 2 else 0.0)  # noqa: E731
    model = SimpleNamespace(n_tokens=2, scores=broken)
    with pytest.raises(ValueError, match=r"^SimpleNamespace gives nan at site 1 of state \[0, 1\]:"):
        run_chains(model, [[1, 0, 1], [0, 1]], n_steps=1, frozen=[[True, True, False], [True, False, True]])


def test_nobody_asks_a_model_but_through_the_gate():
    for path in Path(glauber_lib.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr == "scores" and isinstance(node.ctx, ast.Load):
                asked = ast.unparse(node.value)
                assert asked in ("self", "self.conditionals", "self.timed") or path.name == "answers.py", (
                    f"{path.name}: {asked}.scores"
                )


def test_a_restricted_model_that_keeps_banned_tokens_alone_is_named():
    model = RestrictedModel(Rigged([0.0, -np.inf, -np.inf]), START[0], [1], [1, 2])
    with pytest.raises(ValueError, match=r"^RestrictedModel gives -inf for every token at site 0 of state \[0\]:"):
        run_chains(model, [[0]], n_steps=1)


def test_a_joint_that_is_no_number_is_refused_where_hidden_sites_are_summed():
    joint = np.zeros((2, 2, 2))
    joint[1, 0, 1] = np.nan
    with pytest.raises(ValueError, match=r"^TabularModel gives nan at site 0 of state \[0, 0, 0\]:"):
        TabularModel.from_joint(joint).scores([[0, 0, 0]], [0], [[False, False, True]])
    with pytest.raises(ValueError, match=r"^function gives \+inf at site 0 of state \[0, 1\]:"):
        infinite = lambda states: torch.full((len(states),), torch.inf, dtype=torch.float64)  # noqa: E731
        marginal_scores(infinite, 2, torch.tensor([[0, 1]]), torch.tensor([0]), torch.tensor([[False, True]]))


def test_a_control_whose_joint_is_no_number_is_refused(tiny):
    for value in (np.nan, -np.inf):
        model = SimpleNamespace(log_prob=lambda states, value=value: torch.full((len(states),), value))
        with pytest.raises(ValueError, match=rf"SimpleNamespace gives log-probability {value} to state \[0, 1, 0\]"):
            measure_joint(model, RECTANGLES)


def test_a_causal_network_that_gives_nan_is_named_with_its_site(tiny_folders, tiny):
    model = CausalLM(tiny["gpt2"].network, tiny["gpt2"].tokenizer, name="control")
    hook = model.network.lm_head.register_forward_hook(
        lambda _, given, logits: logits.index_fill(1, torch.tensor([2]), np.nan)
    )
    try:
        for call in (model.log_prob, lambda states: model.proposals(states, [0]), model.log_factors):
            with pytest.raises(ValueError, match=r"^model 'control' gives nan at site 2 of state \[5, 6, 7, 8\]:"):
                call([[5, 6, 7, 8]])
    finally:
        hook.remove()


# What is no table of scores ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (np.zeros((2, 3)), TypeError, "must be a tensor of torch, got ndarray"),
        (torch.zeros(3), ValueError, r"must have shape \(2, 3\), one row per state .* got \(3,\)"),
        (torch.zeros(1, 3), ValueError, r"got \(1, 3\)"),
        (torch.zeros(2, 4), ValueError, r"got \(2, 4\)"),
        (torch.zeros(2, 3, dtype=torch.int64), ValueError, "must be float32 or float64, got int64"),
        (
            torch.zeros(2, 3, dtype=torch.float16),
            ValueError,
            "must be float32 or float64, got float16: load the model in",
        ),
        (torch.zeros(2, 3, dtype=torch.bfloat16), ValueError, "must be float32 or float64, got bfloat16"),
    ],
)
def test_what_is_no_table_of_scores_is_refused(answer, error, message):
    model = SimpleNamespace(name="mine", n_tokens=3, scores=lambda states, sites: answer)
    with pytest.raises(error, match=f"^scores of model 'mine' .*{message}"):
        ask(model, START, [0, 0])


def test_numbers_however_large_pass_and_so_do_scores_with_a_gradient():
    large = torch.full((2, 3), 1e308, dtype=torch.float64)
    model = SimpleNamespace(name="mine", n_tokens=3, scores=lambda states, sites: large)
    assert ask(model, START, [0, 0]) is large
    large.requires_grad_()
    assert not ask(model, START, [0, 0]).requires_grad
    model.scores = lambda states, sites: large[: len(states)]
    assert len(run_chains(model, START, n_steps=20).step) > 0


def test_scores_on_another_device_come_to_the_model_s():
    model = SimpleNamespace(name="mine", n_tokens=3, device=torch.device("meta"))
    assert check_scores(torch.zeros(2, 3), SimpleNamespace(n_tokens=3), START, [0, 0]).device.type == "cpu"
    scores = torch.zeros(2, 3)
    moved = []
    scores.to = lambda device: moved.append(device) or torch.zeros(2, 3)
    check_scores(scores, model, START, [0, 0])
    assert moved == [torch.device("meta")]


# Banned tokens -------------------------------------------------------------------------------------------------------


def banned(table, token=2):
    """A table that never lets a site take `token`."""
    table = table.copy()
    for i in range(len(table)):
        np.moveaxis(table[i], i, -1)[..., token] = -np.inf
    return TabularModel(table)


def test_a_token_banned_everywhere_leaves_the_chain_of_the_others():
    table = random_table(3, 3, seed=5).to_arrays()["table"]
    model, others = banned(table), TabularModel(table[:, :2, :2, :2])
    pairs = np.array([[0, 1, 0], [1, 1, 0], [0, 0, 1]])
    for holding in ("path", "geometric"):
        options = {"n_steps": 500, "temperature": 0.7, "seed": 3, "holding": holding}
        mine, theirs = (run_chains(m, pairs, **options) for m in (model, others))
        assert len(mine.step) > 300 and (mine.final == theirs.final).all() and (mine.new == theirs.new).all()
    met = [coalesce(m, pairs, pairs[::-1], n_steps=300, seed=1) for m in (model, others)]
    np.testing.assert_array_equal(met[0].moves, met[1].moves)
    keep = (all_states(3, 3) < 2).all(1)
    np.testing.assert_allclose(
        exact.transition_matrix(model, 3).todense()[np.ix_(keep, keep)], exact.transition_matrix(others, 3).todense()
    )
    for state in pairs:
        assert margins.escape_probability(model, state, 0.7) == pytest.approx(
            margins.escape_probability(others, state, 0.7), rel=1e-12
        )
        np.testing.assert_allclose(margins.score_gaps(model, state), margins.score_gaps(others, state))


def test_a_token_that_both_states_ban_has_no_part_in_the_oscillation():
    table = random_table(3, 3, seed=5).to_arrays()["table"]
    model, others = banned(table), TabularModel(table[:, :2, :2, :2])
    contexts, new = all_states(2, 3), (1 - all_states(2, 3))[..., None]
    mine, theirs = (influence.measure_influence(m, contexts, new, SMALL_T) for m in (model, others))
    np.testing.assert_allclose(mine.oscillation, theirs.oscillation)
    np.testing.assert_allclose(mine.maximum, theirs.maximum, atol=1e-15)
    assert mine.excess == pytest.approx(theirs.excess, abs=1e-12)
    np.testing.assert_allclose(exact.oscillation(others, 3), theirs.oscillation)
    assert np.isfinite(exact.oscillation(model, 3)).all()
    table[0, 2, 1] = -np.inf  # banned at site 0 in the company of token 1 alone
    alone = TabularModel(table)
    assert exact.oscillation(alone, 3)[0, 1] == np.inf and np.isfinite(exact.oscillation(alone, 3)[1]).all()


def test_no_rectangle_holds_a_banned_token():
    model = banned(random_table(3, 3, seed=5).to_arrays()["table"])
    states = all_states(2, 3)
    for temperature in (None, 1.0):
        drawn = sample_rectangles(model, states, 200, temperature=temperature)
        assert set(drawn.b) | set(drawn.d) == {0, 1}
        assert measure_rectangles(model, drawn).delta.notna().all()
    with pytest.raises(
        ValueError, match="rectangle 0: TabularModel bans one of its tokens at site 1, so that it has no"
    ):
        measure_rectangles(model, Rectangles(states[:1], *np.array([[0], [0], [1], [1], [2]])))
    with pytest.raises(
        ValueError, match=r"bans every token but the present one at site \d of \[0, 0, 0\]: no rectangle"
    ):
        sample_rectangles(banned(model.to_arrays()["table"], 1), states[:1], 3)


def test_the_extremes_of_temperature_and_scores_have_their_laws():
    large = [1e308, -1e308, 1e308]
    scores = torch.tensor([[1e30, -1e30, 0.0], [-np.inf, -1e30, 1e30], [-np.inf, 0.0, 0.0], large], dtype=torch.float64)
    for kind in (torch.float32, torch.float64):  # the last does not fit into float32
        rows = scores.to(kind)[: 4 if kind == torch.float64 else 3]
        for temperature in (1e-300, 1e-8, 1e8):
            law = probabilities(rows, np.full(len(rows), temperature))
            wanted = [[1, 0, 0], [0, 0, 1], [0, 0.5, 0.5], [0.5, 0, 0.5]][: len(rows)]
            np.testing.assert_array_equal(law, wanted)
    flat = probabilities(torch.tensor([[1.0, -1.0, -np.inf]]), [1e8])
    np.testing.assert_allclose(flat, [[0.5, 0.5, 0]], atol=1e-8)


# Half precision ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_a_language_model_in_half_precision_is_refused(kind, tiny_folders, tiny):
    halved = copy.deepcopy(tiny["bert"].network).to(kind)
    name = str(kind).removeprefix("torch.")
    with pytest.raises(
        ValueError, match=rf"weights of model 'b' \(.*\) must be float32 or float64, got {name}: load the"
    ):
        MaskedLM(halved, tiny["bert"].tokenizer, name="b")
    with pytest.raises(ValueError, match=rf"must be float32 or float64, got {name}"):
        CausalLM(copy.deepcopy(tiny["gpt2"].network).to(kind), tiny["gpt2"].tokenizer)
    model = MaskedLM(copy.deepcopy(tiny["bert"].network), tiny["bert"].tokenizer, name="b")
    states = model.states(["the plan of the school"], n=4)
    with torch.autocast("cpu", dtype=kind), pytest.raises(ValueError, match="scores of model 'b' must be float32"):
        run_chains(model, states, n_steps=1)
    model.network.to(kind)
    with pytest.raises(ValueError, match=f"scores of model 'b' must be float32 or float64, got {name}"):
        run_chains(model, states, n_steps=1)
