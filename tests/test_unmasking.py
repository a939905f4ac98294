"""Text from masks in rounds: the law of one round, what is hidden again, and what is never touched."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import codes, fit, random_joint, random_table

from glauber_lib import blocks
from glauber_lib.models import all_states
from glauber_lib.unmasking import ORDERS, nucleus, unmask


def test_one_round_is_one_product_draw():
    model, size = random_joint(3, 3)[0], 800
    start, hidden = np.zeros((size, 3), int), np.tile([True, False, True], (size, 1))
    found = unmask(model, start, hidden, rounds=1, seed=1)
    row = blocks.block_matrix(model, 3, [[0, 2]], inside="hidden").toarray()[0]
    assert fit(np.bincount(codes(found.states[0], 3), minlength=27), row) > 1e-3
    assert found.model_calls == 2 * size and (found.certainty[:, 1] == 1).all()


def test_rounds_hide_fewer_and_fewer_of_the_least_certain():
    model, hidden = random_joint(6, 2)[0], np.tile([True] * 5 + [False], (4, 1))
    found = unmask(model, np.ones((4, 6), int), hidden, rounds=4, seed=2)
    assert found.hidden.sum(2).T.tolist() == [[5, 4, 3, 2]] * 4 and found.model_calls == 4 * 14
    assert not found.hidden[:, :, 5].any() and (found.states[:, :, 5] == 1).all()
    for row in range(4):  # a site that stays was no less certain, when it was drawn, than those hidden again
        one = unmask(model, np.ones((1, 6), int), hidden[:1], rounds=1, seed=2, chains=[row])
        np.testing.assert_array_equal(one.states[0, 0], found.states[0, row])
        again = found.hidden[1, row, :5]
        assert one.certainty[0, :5][again].max() <= one.certainty[0, :5][~again].min()
        changed = found.states[1, row] != found.states[0, row]
        assert not (changed & ~found.hidden[1, row]).any()


def test_stutter_is_hidden_again():
    model = random_joint(5, 2)[0]
    hidden = np.ones((20, 5), bool)
    found = unmask(model, np.zeros((20, 5), int), hidden, rounds=3, remask=["stutter"], seed=0)
    first = found.states[0]
    np.testing.assert_array_equal(found.hidden[1][:, 1:], first[:, 1:] == first[:, :-1])
    assert not found.hidden[1][:, 0].any()
    both = unmask(model, np.zeros((20, 5), int), hidden, rounds=3, remask=["uncertain", "stutter"], seed=0)
    assert (both.hidden[1] >= found.hidden[1]).all() and both.hidden[1].sum() > found.hidden[1].sum()


def test_what_has_nothing_left_to_draw_stays():
    model = random_joint(2, 40)[0]
    found = unmask(model, [[0, 0]], [[True, True]], rounds=9, remask=["stutter"], seed=3)
    assert found.states.shape == (9, 1, 2) and found.model_calls < 18
    np.testing.assert_array_equal(found.states[-1], found.states[-2])


def test_a_language_model_never_draws_what_it_bans(tiny):
    model = tiny["bert"]
    found = unmask(model, np.zeros((3, 6), int), np.ones((3, 6), bool), rounds=3, seed=1)
    assert found.states.max() < model.n_tokens and (found.certainty > 0).all()
    for order in ORDERS:
        found = unmask(model, np.zeros((3, 6), int), np.ones((3, 6), bool), order=order, top_p=0.9, seed=1)
        assert found.states.max() < model.n_tokens and (found.hidden.sum(0) == 1).all()


def test_one_hidden_site_a_state_needs_no_model_that_hides():
    model = random_table(3, 2)
    alone = SimpleNamespace(n_tokens=2, device=model.device, scores=lambda states, sites: model.scores(states, sites))
    arguments = np.zeros((2, 3), int), np.eye(3, dtype=bool)[:2]
    np.testing.assert_array_equal(
        unmask(alone, *arguments, rounds=2).states, unmask(model, *arguments, rounds=2).states
    )


def test_arguments_that_do_not_fit_are_refused():
    model, start = random_table(2, 2), [[0, 0]]
    for how, message in (
        ({"hidden": [[True]]}, "hidden must be bool"),
        ({"hidden": [[False, False]]}, "a site in each state"),
        ({"hidden": [[1, 1]]}, "hidden must be bool"),
        ({"rounds": 0}, "rounds must be"),
        ({"remask": "uncertain"}, "remask must name"),
        ({"remask": ["other"]}, "remask must name"),
        ({"temperature": 0}, "temperature"),
    ):
        with pytest.raises(ValueError, match=message):
            unmask(model, start, **({"hidden": [[True, True]], "rounds": 2} | how))


# Orders --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["left", "random"])
def test_one_site_a_round_draws_from_the_joint_itself(order):
    model, log_joint = random_joint(3, 3)
    law, size = np.exp(log_joint).ravel() / np.exp(log_joint).sum(), 3_000
    found = unmask(model, np.zeros((size, 3), int), np.ones((size, 3), bool), order=order, seed=4)
    assert fit(np.bincount(codes(found.states[-1], 3), minlength=27), law) > 1e-3
    assert found.model_calls == 3 * size and (found.hidden.sum(2) == 1).all() and (found.hidden.sum(0) == 1).all()
    if order == "left":
        assert all(found.hidden[r, :, r].all() for r in range(3))
    else:
        assert 0.2 < found.hidden[0, :, 1].mean() < 0.5


@pytest.mark.parametrize("order", ORDERS[2:])
def test_the_site_that_the_model_is_surest_of_comes_first(order):
    model, start = random_joint(3, 3, seed=2)[0], np.zeros((5, 3), int)
    found = unmask(model, start, np.ones((5, 3), bool), order=order, seed=1)
    assert found.model_calls == 5 * (3 + 2 + 1)
    hidden = np.ones((3, 3), bool)
    law = model.scores(start[:3], np.arange(3), hidden).softmax(1).numpy()
    ranked = np.sort(law, axis=1)
    score = {
        "confidence": ranked[:, -1],
        "margin": ranked[:, -1] - ranked[:, -2],
        "entropy": (law * np.log(law)).sum(1),
    }
    np.testing.assert_array_equal(found.hidden[0], np.tile(np.arange(3) == score[order].argmax(), (5, 1)))


def test_fewer_rounds_draw_several_sites_each_and_never_what_is_visible_or_frozen():
    model, start = random_joint(6, 2)[0], np.ones((8, 6), int)
    hidden, frozen = np.tile([True] * 5 + [False], (8, 1)), np.arange(6) == 2
    for order in ORDERS:
        found = unmask(model, start, hidden, order=order, rounds=2, frozen=frozen, seed=3)
        assert found.hidden.sum(2).T.tolist() == [[2, 2]] * 8 and not found.hidden[:, :, [2, 5]].any()
        assert (found.states[:, :, [2, 5]] == 1).all()
        alone = unmask(model, start[:1], hidden[:1], order=order, rounds=2, frozen=frozen, seed=3, chains=[6])
        np.testing.assert_array_equal(alone.states[:, 0], found.states[:, 6])


def test_an_order_hides_the_least_certain_again_and_ends_with_all_drawn():
    model, everything = random_joint(5, 2)[0], np.ones((6, 5), bool)
    found = unmask(model, np.zeros((6, 5), int), everything, order="left", remask=["uncertain"], seed=5)
    assert found.hidden.sum(2).T.tolist() == [[2, 2, 2, 2, 1]] * 6 and (found.hidden.sum(0) >= 1).all()
    stutter = unmask(model, np.zeros((6, 5), int), everything, order="margin", remask=["stutter"], seed=5)
    assert (stutter.hidden.sum(0) >= 1).all() and stutter.hidden.sum() > 30


def test_a_nucleus_holds_the_fewest_tokens_of_its_share_and_the_best_always():
    law = torch.tensor([[0.5, 0.1, 0.3, 0.1], [0.1, 0.2, 0.3, 0.4]], dtype=torch.float64)
    assert nucleus(law, 1.0) is law
    assert nucleus(law, 0.8).tolist() == [[0.5, 0.0, 0.3, 0.0], [0.0, 0.2, 0.3, 0.4]]
    assert (nucleus(3 * law, 1e-9) > 0).tolist() == [[True, False, False, False], [False, False, False, True]]
    model = random_joint(3, 3)[0]
    start, hidden = np.zeros((400, 3), int), np.tile([True, False, False], (400, 1))
    best = model.scores(start[:1], [0]).softmax(1)[0]
    drawn = unmask(model, start, hidden, rounds=1, top_p=float(best.max()) / 2).states[-1]
    assert (drawn[:, 0] == int(best.argmax())).all() and len(all_states(3, 3)) == 27


def test_orders_that_do_not_fit_are_refused():
    model, start, hidden = random_joint(2, 2)[0], [[0, 0]], [[True, True]]
    for how, message in (
        ({"order": "best"}, "order must be one of"), ({}, "rounds must be given"), ({"top_p": 0.0}, "top_p must lie"),
        ({"order": "left", "frozen": [True, True]}, "free site"), ({"rounds": 1, "remask": []}, "remask must name"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            unmask(model, start, hidden, **how)
