"""What must be the same on a GPU. The tests marked gpu run where there is one (`make gpu`), their twins everywhere."""

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import MASKED, TEXTS, moves_of

from glauber_lib.chains import run_chains
from glauber_lib.couplings import coalesce
from glauber_lib.influence import measure_influence, replacement_tokens
from glauber_lib.language import CausalLM, MaskedLM

pytestmark = pytest.mark.slow
there = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")
CARD = pytest.param("cuda", marks=[pytest.mark.gpu, there])


@pytest.fixture(params=["cpu", CARD])
def pair(request, tiny):
    """Two models of one network in float64: on the processor, and on the device under test."""

    def load(kind):
        model = tiny[kind]
        make = CausalLM if kind == "gpt2" else MaskedLM
        networks = [type(model.network)(model.network.config) for _ in range(2)]
        for network in networks:
            network.load_state_dict(model.network.state_dict())
        devices = zip(networks, ("cpu", request.param), strict=True)
        return [make(network.double(), model.tokenizer, name=kind, device=device) for network, device in devices]

    return load


@pytest.mark.parametrize("kind", MASKED)
def test_scores_are_those_of_the_processor(pair, kind):
    ours, theirs = pair(kind)
    texts = ["LAGVSERTIDPK"] * 6 if kind == "esm" else TEXTS[:6]
    states, sites = ours.states(texts, n=8), np.arange(6)
    assert torch.allclose(theirs.scores(states, sites).cpu(), ours.scores(states, sites), atol=1e-9)


def test_the_control_s_joint_is_that_of_the_processor(pair):
    ours, theirs = pair("gpt2")
    states = ours.states(TEXTS[:6], n=8)
    assert torch.allclose(theirs.log_prob(states).cpu(), ours.log_prob(states), atol=1e-9)


@pytest.mark.parametrize("kind", ["bert", "roberta", "modernbert"])
@pytest.mark.parametrize("holding", ["path", "geometric"])
def test_chains_take_the_path_they_take_on_the_processor(pair, kind, holding):
    traces = [
        run_chains(model, model.states(TEXTS[:5], n=7), n_steps=150, temperature=[0.2, 0.5, 1, 2, 5], holding=holding)
        for model in pair(kind)
    ]
    first, second = map(moves_of, traces)
    if holding == "geometric":  # holding times are floats: those of very long stays follow the rounding
        first, second = ([move[1:] for move in moves] for moves in (first, second))
    assert first == second and len(first) > 50


def test_pairs_meet_when_they_meet_on_the_processor(pair):
    results = [
        coalesce(model, model.states(TEXTS[:5], n=5), model.states(TEXTS[5:10], n=5), n_steps=300, temperature=5.0)
        for model in pair("bert")
    ]
    assert np.array_equal(*(result.hamming for result in results))
    assert not results[0].censored.all()


def test_influence_is_that_of_the_processor(pair):
    points = []
    for model in pair("bert"):
        contexts = model.states(TEXTS[:2], n=6)
        tokens = replacement_tokens(model, contexts, 3)
        points.append(measure_influence(model, contexts, tokens, [0.5, 2.0]).points())
    pd.testing.assert_frame_equal(*points, rtol=1e-9)


@pytest.mark.gpu
@there
def test_a_batch_that_does_not_fit_the_card_is_halved(tiny):
    model = tiny["bert"]
    large = MaskedLM(model.network, model.tokenizer, device="cuda", batch_tokens=2**34)
    states = np.tile(large.states(TEXTS[:64], n=30), (2_000, 1))
    free = torch.cuda.mem_get_info()[0]
    held = torch.empty(max(0, free - 2**31), dtype=torch.uint8, device="cuda")  # leaves 2 GiB
    scores = large.scores(states, np.arange(len(states)) % 30)
    assert large.batch_tokens < len(states) * 32 and len(scores) == len(states)
    del held
