"""Scores with further sites hidden: a mask for language models, an exact sum for joint laws."""

import numpy as np
import pytest
import torch
from conftest import corpus, random_ising, random_joint, random_table, small_vocabulary
from hypothesis import given
from hypothesis import strategies as st

from glauber_lib import exact
from glauber_lib.models import IsingModel, RestrictedModel, TabularModel, all_states


def conditionals_by_hand(joint, states, sites, hidden):
    """Conditional laws float64[B, V] of the asked site given the sites that are neither asked nor hidden."""
    laws = []
    for state, site, out in zip(states, sites, hidden, strict=True):
        summed = sorted({site, *np.flatnonzero(out)})
        seen = tuple(slice(None) if j in summed else state[j] for j in range(len(state)))
        law = joint[seen].sum(tuple(k for k, j in enumerate(summed) if j != site))
        laws.append(law / law.sum())
    return np.array(laws)


def every_question(n_sites, n_tokens):
    """All states with all sites and all sets of hidden sites, or 3 000 of these where they are more."""
    states, patterns = all_states(n_tokens, n_sites), all_states(2, n_sites).astype(bool)
    grid = np.stack(np.meshgrid(*map(np.arange, (len(states), n_sites, len(patterns))), indexing="ij"), -1)
    rows = grid.reshape(-1, 3)
    rows = rows[np.random.default_rng(0).permutation(len(rows))[:3_000]]
    return states[rows[:, 0]], rows[:, 1], patterns[rows[:, 2]]


# Joint laws ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_sites", [1, 2, 3, 4])
@pytest.mark.parametrize("n_tokens", [2, 3, 4])
def test_a_table_made_from_a_joint_sums_the_hidden_sites_out(n_sites, n_tokens):
    model, log_joint = random_joint(n_sites, n_tokens, seed=n_sites)
    states, sites, hidden = every_question(n_sites, n_tokens)
    scores = model.scores(states, sites, hidden)
    expected = conditionals_by_hand(np.exp(log_joint), states, sites, hidden)
    np.testing.assert_allclose(scores.softmax(1), expected, atol=1e-12)
    if n_sites > 1:  # the sum matters
        assert np.abs(model.scores(states, sites).softmax(1).numpy() - expected).max() > 0.05


@pytest.mark.parametrize("n_sites", [2, 4])
def test_an_ising_model_sums_the_hidden_spins_out(n_sites):
    model, states = random_ising(n_sites, seed=n_sites), all_states(2, n_sites)
    spins, couplings, field = 2 * states - 1, model.couplings.numpy(), model.field.numpy()
    joint = np.exp(np.einsum("si,ij,sj->s", spins, couplings, spins) / 2 + spins @ field).reshape([2] * n_sites)
    states, sites, hidden = every_question(n_sites, 2)
    expected = conditionals_by_hand(joint, states, sites, hidden)
    np.testing.assert_allclose(model.scores(states, sites, hidden).softmax(1), expected, atol=1e-12)


def test_a_causal_model_sums_the_hidden_sites_out(tiny_folders):
    model = small_vocabulary("gpt2", tiny_folders, 4)
    joint = model.log_prob(all_states(4, 3)).exp().numpy().reshape(4, 4, 4)
    states, sites, hidden = every_question(3, 4)
    rows = np.random.default_rng(1).permutation(len(states))[:200]
    states, sites, hidden = states[rows], sites[rows], hidden[rows]
    scores = model.scores(states, sites, hidden)
    np.testing.assert_allclose(scores.softmax(1), conditionals_by_hand(joint, states, sites, hidden), atol=1e-6)
    # the scores are logarithms of the joint itself: of all sites hidden they give the site's own marginal
    everything = model.scores(states[:1], [1], np.ones((1, 3), bool)).exp()
    np.testing.assert_allclose(everything[0], joint.sum((0, 2)), atol=1e-6)


def test_states_of_probability_zero_stay_so():
    log_joint = np.full((2, 2, 2), -np.inf)
    log_joint[0, 0, 0], log_joint[1, 1, 0] = 0.0, np.log(3)
    model = TabularModel.from_joint(log_joint)
    scores = model.scores([[0, 0, 0], [0, 0, 1]], [0, 2], np.array([[0, 1, 0], [1, 1, 0]], bool))
    np.testing.assert_allclose(scores.exp(), [[1, 3], [4, 0]], atol=1e-12)


def test_listing_too_many_states_is_refused(tiny_folders):
    causal = small_vocabulary("gpt2", tiny_folders, 50)
    with pytest.raises(ValueError, match=r"2 hidden sites needs 50\^3 states, at most 65536 are listed"):
        causal.scores(np.zeros((1, 4), int), [0], np.array([[False, True, True, False]]))
    spins = IsingModel(np.zeros((20, 20)))
    with pytest.raises(ValueError, match=r"19 hidden sites needs 2\^20 states"):
        spins.scores(np.zeros((1, 20), int), [0], np.ones((1, 20), bool))


@pytest.mark.parametrize("model", [random_table(3, 2), exact.tabulate(random_ising(3), 3)])
def test_a_table_of_conditionals_refuses_to_hide_a_site(model):
    states = np.zeros((2, 3), int)
    with pytest.raises(
        ValueError, match="table of conditionals does not say what the conditional given fewer sites is"
    ):
        model.scores(states, [0, 1], np.array([[False] * 3, [True, False, False]]))
    asked = np.array([[True, False, False], [False, True, False]])  # hidden anyway
    assert torch.equal(model.scores(states, [0, 1], asked), model.scores(states, [0, 1]))


# Language models -----------------------------------------------------------------------------------------------------


def test_hidden_sites_of_a_masked_model_hold_the_mask_token(masked_lm):
    states = masked_lm.states(corpus(masked_lm)[:6], n=7)
    rng = np.random.default_rng(0)
    sites, hidden = rng.integers(7, size=6), rng.random((6, 7)) < 0.4
    framed = masked_lm.tokenizer("a")["input_ids"]
    frame = masked_lm.tokenizer("a", add_special_tokens=False)["input_ids"]
    first = framed.index(frame[0])
    for k, (state, site) in enumerate(zip(states, sites, strict=True)):
        content = masked_lm.vocabulary[state].copy()
        content[hidden[k]] = content[site] = masked_lm.tokenizer.mask_token_id
        ids = torch.tensor([[*framed[:first], *content, *framed[first + len(frame) :]]])
        with torch.no_grad():
            logits = masked_lm.network(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0, first + site]
        scores = masked_lm.scores(state[None], [site], hidden[[k]])[0]
        torch.testing.assert_close(scores, logits[masked_lm.vocabulary], atol=2e-4, rtol=1e-4)
    together, plain = masked_lm.scores(states, sites, hidden), masked_lm.scores(states, sites)
    assert (together - plain).abs().max() > 1e-3  # the mask matters


def test_rows_that_hide_the_same_sites_of_a_state_share_a_pass(masked_lm):
    states = masked_lm.states(corpus(masked_lm)[:3], n=7)
    rows, sites = np.nonzero(
        hidden := np.array([[0, 1, 1, 0, 1, 0, 0], [1, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1, 1]], bool)
    )
    alone = torch.cat([masked_lm.scores(states[[k]], [i], hidden[[k]]) for k, i in zip(rows, sites, strict=True)])
    passes, embed = [], masked_lm.network.get_input_embeddings()
    hook = embed.register_forward_hook(lambda module, inputs, out: passes.append(len(out)))
    together = masked_lm.scores(states[rows], sites, hidden[rows])
    hook.remove()
    assert passes == [3]  # of six rows
    torch.testing.assert_close(together, alone, atol=1e-4, rtol=1e-4)


def test_the_tokens_of_hidden_sites_do_not_matter(tiny_folders):
    joints = [random_joint(4, 3)[0], random_ising(4), small_vocabulary("gpt2", tiny_folders, 4)]
    for model in [*joints, small_vocabulary("bert", tiny_folders, 4)]:
        hidden = np.tile([False, True, False, True], (5, 1))
        states = np.random.default_rng(0).integers(model.n_tokens, size=(5, 4))
        others = np.where(hidden, (states + 1) % model.n_tokens, states)
        sites = np.array([0, 1, 2, 3, 0])
        torch.testing.assert_close(
            model.scores(states, sites, hidden), model.scores(others, sites, hidden), atol=1e-5, rtol=1e-5
        )


def test_a_restricted_model_hides_its_sites_from_its_language_model(tiny):
    model, template = tiny["bert"], tiny["bert"].states(corpus(tiny["bert"])[:1], n=6)[0]
    small = RestrictedModel(model, template, [4, 1], [7, 3, 11])
    states, sites, hidden = all_states(3, 2), np.arange(9) % 2, np.tile([True, False], (9, 1))
    full_hidden = np.zeros((9, 6), bool)
    full_hidden[:, 4] = True
    expected = model.scores(small.fill(states), np.array([4, 1])[sites], full_hidden)[:, [7, 3, 11]]
    assert torch.equal(small.scores(states, sites, hidden), expected)
    assert not torch.equal(small.scores(states, sites, hidden), small.scores(states, sites))


def test_a_model_that_cannot_hide_serves_as_long_as_nothing_is_hidden():
    class Plain:
        n_tokens, device = 3, torch.device("cpu")

        def scores(self, states, sites):
            return torch.zeros(len(states), 3)

    small = RestrictedModel(Plain(), [0, 1], [1], [0, 2])
    assert small.scores([[0]], [0]).shape == (1, 2)
    with pytest.raises(TypeError):
        small.scores([[0]], [0], [[True]])


# All of them ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [False, True])
def test_hiding_nothing_or_the_asked_site_changes_no_bit(system, asked):
    states = np.random.default_rng(0).integers(system.model.n_tokens, size=(12, system.n))
    sites = np.arange(12) % system.n
    hidden = np.zeros(states.shape, bool)
    hidden[np.arange(12), sites] = asked
    plain = system.model.scores(states, sites)
    assert torch.equal(system.model.scores(states, sites, hidden), plain)
    assert torch.equal(system.model.scores(states, sites, torch.from_numpy(hidden)), plain)


@pytest.mark.parametrize(("drop", "add", "kind"), [(1, 0, bool), (0, 1, bool), (0, 0, int)])
def test_hidden_sites_of_another_shape_or_kind_are_refused(system, drop, add, kind):
    n = system.n
    got = rf"{np.dtype(kind)}\[{2 - drop}, {n + add}\]"
    with pytest.raises(ValueError, match=rf"hidden must be bool\[2, {n}\], one entry per site .* got {got}"):
        system.model.scores(np.zeros((2, n), int), [0, 1], np.zeros((2 - drop, n + add), kind))


@given(st.integers(0, 10**6), st.integers(2, 4))
def test_blocks_drawn_one_site_after_another_have_the_joint_s_law(seed, n_sites):
    # the chain rule: what hiding is for
    model, log_joint = random_joint(n_sites, 2, seed=seed)
    joint, states = np.exp(log_joint) / np.exp(log_joint).sum(), all_states(2, n_sites)
    product = np.ones(len(states))
    for i in range(n_sites):
        hidden = np.tile(np.arange(n_sites) > i, (len(states), 1))
        law = model.scores(states, np.full(len(states), i), hidden).softmax(1).numpy()
        product *= law[np.arange(len(states)), states[:, i]]
    np.testing.assert_allclose(product, joint.ravel(), atol=1e-12)
