"""Metropolis–Hastings against its exact matrix, the matrix against theory, and energies of language models."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.stats
from conftest import MOVES, codes, fit, random_joint, random_table, small_vocabulary
from hypothesis import given
from hypothesis import strategies as st

from glauber_lib import exact
from glauber_lib.chains import run_chains
from glauber_lib.energy import (
    LeftContext,
    MixtureProposal,
    PseudoLikelihood,
    causal_joint,
    metropolis,
    metropolis_matrix,
)
from glauber_lib.models import TabularModel, all_states
from glauber_lib.reversals import uniform_model
from glauber_lib.unmasking import unmask

STATES = all_states(3, 3)


class Listed:
    """An energy that is listed."""

    def __init__(self, log_joint):
        self.log_joint, self.n_tokens = np.asarray(log_joint), np.shape(log_joint)[0]

    def log_prob(self, states):
        return self.log_joint[tuple(np.asarray(states).T)]


def law_of(log_joint):
    law = np.exp(log_joint - np.max(log_joint)).ravel()
    return law / law.sum()


def causal_table(n, n_tokens, seed=0):
    """The log joint of a random autoregressive table."""
    rng, log = np.random.default_rng(seed), np.zeros(())
    for site in range(n):
        log = log[..., None] + np.log(rng.dirichlet(np.ones(n_tokens), size=(n_tokens,) * site))
    return log


PROPOSALS = {
    "uniform": uniform_model(3),
    "table": random_table(3, 3, seed=5),
    "joint": random_joint(3, 3, seed=6)[0],
    "mixture": MixtureProposal([uniform_model(3), random_table(3, 3, seed=7)], [0.3, 0.7]),
}


# The matrix ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROPOSALS)
@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_every_proposal_is_in_detailed_balance_with_the_energy(name, temperature):
    log_joint = 2 * random_joint(3, 3)[1]
    matrix, law = metropolis_matrix(log_joint, PROPOSALS[name], temperature), law_of(log_joint / temperature)
    np.testing.assert_allclose(matrix.sum(1), 1, atol=1e-12)
    assert exact.reversibility_defect(matrix, law=law) < 1e-12
    np.testing.assert_allclose(exact.stationary_law(matrix), law, atol=1e-10)


@given(st.integers(0, 2**32))
def test_the_conditionals_of_the_law_itself_are_never_refused(seed):
    model, log_joint = random_joint(3, 3, seed=seed)
    matrix = metropolis_matrix(log_joint, model)
    assert abs(matrix - exact.transition_matrix(model, 3)).max() < 1e-12


def test_the_printed_energy_has_the_root_of_the_law_and_with_its_sign_the_root_upside_down():
    log_joint = causal_table(4, 3)
    law, n = law_of(log_joint), 4
    printed = exact.stationary_law(metropolis_matrix(-log_joint / n))  # e^-f with f the mean log-likelihood
    np.testing.assert_allclose(printed, law ** (-1 / n) / (law ** (-1 / n)).sum(), atol=1e-12)
    signed = exact.stationary_law(metropolis_matrix(log_joint / n))
    np.testing.assert_allclose(signed, law ** (1 / n) / (law ** (1 / n)).sum(), atol=1e-12)
    np.testing.assert_allclose(signed, exact.stationary_law(metropolis_matrix(log_joint, temperature=n)), atol=1e-12)
    apart = [exact.compare_laws(law, other)["TV"] for other in (printed, signed)]
    assert apart[0] > apart[1] > 0.1


def test_the_wrong_rules_have_other_laws():
    log_joint = random_joint(3, 3)[1]
    law = law_of(log_joint)
    for rule in ("uncorrected", "printed"):
        matrix = metropolis_matrix(log_joint, PROPOSALS["table"], rule=rule)
        np.testing.assert_allclose(matrix.sum(1), 1, atol=1e-12)
        assert exact.compare_laws(law, exact.stationary_law(matrix))["TV"] > 0.05


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"log_joint": np.zeros((2, 3))}, "log_joint must be"), ({"log_joint": 1.0}, "log_joint must be"),
        ({"log_joint": np.full((2, 2), np.nan)}, "log_joint must be"), ({"rule": "other"}, "rule must be one of"),
        ({"proposal": uniform_model(3)}, "proposal have 2 tokens"), ({"temperature": 0.0}, "temperature"),
    ],
)  # fmt: skip
def test_a_matrix_of_what_is_none_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        metropolis_matrix(**({"log_joint": np.zeros((2, 2))} | change))


# The chain -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROPOSALS)
def test_chains_move_by_the_matrix(name):
    log_joint, steps = 2 * random_joint(3, 3)[1], 3
    matrix = metropolis_matrix(log_joint, PROPOSALS[name], 0.8).toarray()
    found = metropolis(
        Listed(log_joint), np.tile(STATES[5], (6_000, 1)), proposal=PROPOSALS[name], n_steps=steps, temperature=0.8
    )
    counts = np.bincount(codes(found.final, 3), minlength=27)
    assert fit(counts, np.linalg.matrix_power(matrix, steps)[5]) > 1e-3
    assert fit(counts, np.linalg.matrix_power(matrix, steps - 1)[5]) < 1e-6


def test_with_the_law_s_own_conditionals_the_path_is_that_of_glauber_dynamics():
    model, log_joint = random_joint(3, 3)
    plain = run_chains(model, STATES, n_steps=40, seed=3)
    found = metropolis(Listed(log_joint), STATES, proposal=model, n_steps=40, seed=3)
    for name in MOVES:
        np.testing.assert_array_equal(getattr(plain, name), getattr(found.trace, name))
    np.testing.assert_array_equal(found.proposed, found.accepted)


def test_what_is_counted_is_what_happened_and_frozen_sites_stay():
    log_joint, frozen = 3 * random_joint(3, 3)[1], np.array([False, True, False])
    joint = Listed(log_joint)
    found = metropolis(joint, STATES, proposal=uniform_model(3), n_steps=50, frozen=frozen, seed=1)
    assert (found.final[:, 1] == STATES[:, 1]).all() and found.proposed[:, 1].sum() == 0
    assert found.accepted.sum() == len(found.trace.step) and (found.accepted <= found.proposed).all()
    assert 0 < found.accepted.sum() < found.proposed.sum() == found.energy_calls - 27
    assert found.trace.model_calls == 50 * 27
    for step in (0, 17, 50):
        np.testing.assert_allclose(found.log_prob[step], joint.log_prob(found.trace.states(step)[0]), atol=1e-12)
    alone = metropolis(joint, STATES[[4]], proposal=uniform_model(3), n_steps=20, frozen=frozen, seed=1, chains=[4])
    np.testing.assert_array_equal(alone.final[0], found.trace.states(20)[0, 4])


def test_states_of_probability_zero_are_never_entered_and_no_start():
    log_joint = random_joint(3, 3)[1]
    log_joint[0] = -np.inf
    found = metropolis(Listed(log_joint), STATES[9:], proposal=uniform_model(3), n_steps=60)
    assert (found.trace.states(np.arange(61))[:, :, 0] > 0).all()
    with pytest.raises(ValueError, match="state 0 has probability zero"):
        metropolis(Listed(log_joint), STATES[:2], proposal=uniform_model(3), n_steps=1)


def test_energies_that_are_none_are_refused():
    for answer, message in (
        (np.zeros((2, 1)), "a number for each of 2"), (np.array([0.0, np.nan]), "nan for state"),
        (np.array([np.inf, 0.0]), "inf for state"), (np.array(["a", "b"]), "a number for each of 2"),
    ):  # fmt: skip
        energy = SimpleNamespace(n_tokens=3, log_prob=lambda x, answer=answer: answer)
        with pytest.raises(ValueError, match=message):
            metropolis(energy, STATES[:2], proposal=uniform_model(3), n_steps=1)
    with pytest.raises(ValueError, match="the same tokens"):
        metropolis(Listed(np.zeros((2, 2))), [[0, 0]], proposal=uniform_model(3), n_steps=1)


# Energies and proposals ----------------------------------------------------------------------------------------------


def test_the_pseudo_likelihood_is_the_sum_of_the_conditionals_logarithms():
    model = random_table(3, 3)
    laws = exact.conditional_laws(model, 3)
    wanted = sum(np.log(laws[i, np.arange(27), STATES[:, i]]) for i in range(3))
    np.testing.assert_allclose(PseudoLikelihood(model).log_prob(STATES), wanted, atol=1e-12)
    law = exact.pseudo_likelihood(model, 3)
    np.testing.assert_allclose(law_of(PseudoLikelihood(model).log_prob(STATES)), law, atol=1e-12)
    table = model.to_arrays()["table"].reshape(3, 27)
    np.testing.assert_allclose(PseudoLikelihood(model, raw=True).log_prob(STATES), table.sum(0), atol=1e-12)


def test_a_mixture_of_proposals_is_one_and_its_shares_are_checked():
    one, other = random_table(3, 3), random_table(3, 3, seed=4)
    law = exact.conditional_laws(MixtureProposal([one, other], [0.25, 0.75]), 3)
    wanted = 0.25 * exact.conditional_laws(one, 3) + 0.75 * exact.conditional_laws(other, 3)
    np.testing.assert_allclose(law, wanted, atol=1e-12)
    for weights, message in (([0.5, 0.6], "sum to one"), ([1.0], "a share for each"), ([0.0, 1.0], "positive")):
        with pytest.raises(ValueError, match=message):
            MixtureProposal([one, other], weights)
    with pytest.raises(ValueError, match="the same tokens"):
        MixtureProposal([one, random_table(3, 2)], [0.5, 0.5])


def test_a_causal_model_is_sampled_from_the_left_and_its_samples_stay_in_law(tiny_folders):
    causal = small_vocabulary("gpt2", tiny_folders, 4)
    states = all_states(4, 3)
    law = np.exp(causal.log_prob(states).numpy())
    left = LeftContext(causal)
    drawn = unmask(left, np.zeros((3_000, 3), int), np.ones((3_000, 3), bool), order="left", seed=1).states[-1]
    assert fit(np.bincount(codes(drawn, 4), minlength=64), law) > 1e-3
    for proposal in (left, small_vocabulary("bert", tiny_folders, 4)):
        after = metropolis(causal, drawn[:1_500], proposal=proposal, n_steps=6, seed=2)
        assert fit(np.bincount(codes(after.final, 4), minlength=64), law) > 1e-3 and len(after.trace.step) > 300
    hidden = np.array([[True, False, False]])
    with pytest.raises(ValueError, match="to the left"):
        left.scores(states[:1], np.array([1]), hidden)
    joint = causal_joint(causal, states[0], [0, 1, 2], [3, 1, 0, 2])
    np.testing.assert_allclose(joint[0, 1, 3], causal.log_prob([[3, 1, 2]]), atol=1e-5)
    matrix = metropolis_matrix(np.log(law).reshape(4, 4, 4), left)
    np.testing.assert_allclose(exact.stationary_law(matrix), law / law.sum(), atol=1e-10)


@pytest.mark.slow
def test_on_language_a_causal_model_s_samples_stay_in_law_and_other_starts_approach_it(embedded):
    causal, masked = embedded("distilbert-causal"), embedded("distilbert-fast")
    blank, open_ = np.zeros((16, 6), int), np.ones((16, 6), bool)
    drawn = unmask(LeftContext(causal), blank, open_, order="left", seed=3).states[-1]
    kept = metropolis(causal, drawn, proposal=masked, n_steps=12, seed=4)
    change = kept.log_prob[-1] - kept.log_prob[0]
    assert np.count_nonzero(change) > 8 and scipy.stats.wilcoxon(change).pvalue > 1e-3
    thrown = np.random.default_rng(5).integers(causal.n_tokens, size=(16, 6))
    lifted = metropolis(causal, thrown, proposal=masked, n_steps=12, seed=6)
    assert scipy.stats.wilcoxon(lifted.log_prob[-1] - lifted.log_prob[0], alternative="greater").pvalue < 1e-3


def test_the_heat_bath_of_a_joint_is_asked_as_a_table():
    log_joint = causal_table(3, 3)
    matrix = metropolis_matrix(log_joint, TabularModel.from_joint(log_joint))
    assert exact.reversibility_defect(matrix) < 1e-12
