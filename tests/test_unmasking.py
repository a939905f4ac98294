"""Text from masks in rounds: the law of one round, what is hidden again, and what is never touched."""

import numpy as np
import pytest
from conftest import codes, fit, random_joint, random_table

from glauber_lib import blocks
from glauber_lib.unmasking import unmask


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
