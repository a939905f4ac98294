"""Repeats: counted in texts, and their probability against the laws of small systems listed in full."""

import numpy as np
import pytest
import torch
from conftest import random_joint, random_table, small_vocabulary

from glauber_lib import blocks, exact, stutter
from glauber_lib.models import RestrictedModel, TabularModel, all_states


def test_repeats_of_tokens_and_of_words(tiny):
    assert stutter.stutters([[1, 1, 2], [0, 1, 0]]).tolist() == [[True, False], [False, False]]
    model = tiny["bert"]
    states = [model.tokens("the cat the")[:1].tolist() * 3, model.tokens("the man the", n=3).tolist()]
    assert stutter.word_stutter(model, states).tolist() == [1.0, 0.0]


def test_diversity_within_and_between_texts():
    table = stutter.diversity([[0, 0, 0, 0], [0, 1, 2, 3], [4, 0, 1, 5]])
    assert table.distinct_1.tolist() == [0.25, 1, 1] and table.distinct_2.tolist() == [1 / 3, 1, 1]
    assert table.overlap.tolist() == [0, 1 / 3, 1 / 3]
    np.testing.assert_allclose(table.entropy, [0, np.log(4), np.log(4)])
    with pytest.raises(ValueError, match="two texts"):
        stutter.diversity([[0, 1]])


def repeat_probability(model, state, site, inside):
    """By the exact matrix of the pair's update: the probability that the two sites are equal after a step."""
    n, n_tokens = len(state), model.n_tokens
    row = blocks.block_matrix(model, n, [[site, site + 1]], inside=inside).toarray()
    code = state @ n_tokens ** np.arange(n - 1, -1, -1)
    after = all_states(n_tokens, n)
    return row[code] @ (after[:, site] == after[:, site + 1])


def test_probabilities_of_repeats_are_those_of_the_exact_kernels():
    model, states, sites = random_joint(3, 4)[0], np.array([[0, 1, 2], [3, 3, 1]]), np.array([0, 1])
    table = stutter.pair_stutter(model, states, sites, exact=4)
    for inside in ("visible", "hidden", "sequential"):
        expected = [repeat_probability(model, x, i, inside) for x, i in zip(states, sites, strict=True)]
        np.testing.assert_allclose(table[inside], expected, atol=1e-12)
    assert (table.error == 0).all() and np.abs(table.visible - table.hidden).min() > 1e-4
    np.testing.assert_allclose(table.delta, 0, atol=1e-12)  # a joint's
    assert (table.influence > 0).all()


def test_the_sum_over_drawn_terms_has_no_bias_and_knows_its_error():
    model, state = random_joint(2, 9)[0], np.array([[0, 1]])
    whole = stutter.pair_stutter(model, state, [0], exact=9).sequential[0]
    many = [stutter.pair_stutter(model, state, [0], exact=3, draws=4, seed=k) for k in range(150)]
    found = np.array([one.sequential[0] for one in many])
    assert abs(found.mean() - whole) < 3 * found.std() / np.sqrt(150)
    assert np.sqrt(np.mean([one.error[0] ** 2 for one in many])) == pytest.approx(found.std(), rel=0.25)
    left_out = stutter.pair_stutter(model, state, [0], exact=3, draws=0)
    assert left_out.sequential[0] < whole and np.isnan(left_out.error[0])
    assert stutter.pair_stutter(model, state, [0], exact=9, draws=0).error[0] == 0
    assert np.isnan(stutter.pair_stutter(model, state, [0], exact=3, draws=1).error[0])


def test_a_template_is_solved_for_every_kernel(tiny_folders):
    model = small_vocabulary("bert", tiny_folders, 12)
    table = stutter.solve_template(model, np.arange(6), [2, 3, 4], 3).set_index("kernel")
    assert list(table.index) == ["single", "block2", "whole", "visible", "hidden"]
    assert table.tv["single"] == 0 and (table.tv.drop("single") > 1e-6).all()
    assert table.gap["whole"] == pytest.approx(1) == table.gap["hidden"] and (table.gap <= 1 + 1e-9).all()
    assert table.stutter.between(0, 1).all()


def test_kernels_solved_together_are_those_solved_alone_for_fewer_questions(tiny_folders):
    model = small_vocabulary("bert", tiny_folders, 12)
    asked = []

    class Noting(RestrictedModel):
        def scores(self, states, sites, hidden=None):
            asked.append(len(states))
            return super().scores(states, sites, hidden)

    small = Noting(model, np.arange(6), [2, 3, 4], [0, 5, 7])
    pairs, whole = blocks.blocks_of_size(3, 2), [(0, 1, 2)]
    moves = {"b": (pairs, "sequential"), "v": (whole, "visible"), "h": (whole, "hidden")}
    together = blocks.block_matrices(small, 3, moves)
    assert sum(asked) == 3 * 9 + 3 * 2 * 3 + 3
    for name, (own, inside) in moves.items():
        assert abs(blocks.block_matrix(small, 3, own, inside=inside) - together[name]).max() < 1e-5
    np.testing.assert_allclose(exact.stationary_law(together["b"]).sum(), 1)


def test_pairs_that_cannot_be_are_refused_before_the_model_is_asked():
    class Unable:
        n_tokens, device = 3, "cpu"

        def scores(self, states, sites):
            raise AssertionError("asked")

    for model, sites, message in (
        (Unable(), [0], "cannot hide sites"),
        (Unable(), [1], "sites"),
        (Unable(), [0, 0], "one left site for each"),
        (random_table(2, 1), [0], "two tokens"),
    ):
        with pytest.raises(ValueError, match=message):
            stutter.pair_stutter(model, [[0, 0]], sites)


def test_a_replacement_is_another_token_however_cold_and_none_is_refused():
    model = random_joint(3, 6)[0]
    for first in range(6):
        table = stutter.pair_stutter(model, [[first, 0, first]], [0], temperature=1e-3)
        assert np.isfinite(table.delta[0])


def test_a_replacement_that_the_model_bans_is_refused():
    class Frozen(TabularModel):
        def scores(self, states, sites, hidden=None):
            present = torch.tensor(states)[torch.arange(len(states)), torch.tensor(sites), None]
            return torch.full((len(states), 3), -np.inf).scatter(1, present, 0.0)

    with pytest.raises(ValueError, match="allows beside the present one"):
        stutter.pair_stutter(Frozen(np.zeros((2, 3, 3))), [[0, 1]], [0])


def test_a_template_has_neighbouring_sites_in_their_order():
    model, _ = random_joint(5, 4)
    for sites in ([3, 1, 2], [0, 2, 4], [1]):
        with pytest.raises(ValueError, match="neighbours in rising order"):
            stutter.solve_template(model, [0] * 5, sites, 4)


def test_of_a_joint_law_single_sites_and_blocks_of_a_template_have_one_law():
    # 0.04 to 0.10 where a hidden site was summed over the whole vocabulary
    model, _ = random_joint(3, 12, seed=4)
    table = stutter.solve_template(model, [0, 1, 2], [0, 1, 2], 4).set_index("kernel")
    assert table.tv["block2"] < 1e-8 and table.tv["whole"] < 1e-8
    assert table.tv["visible"] > 1e-3 and table.tv["hidden"] > 1e-3
