"""Starts without a text: uniform tokens, and text from masks, which for a joint law is a draw of it."""

import numpy as np
import pytest
from conftest import codes, fit

from glauber_lib.exact import stationary_law, transition_matrix
from glauber_lib.models import IsingModel, TabularModel
from glauber_lib.starts import random_states, states_from_masks

RING = np.roll(np.eye(3), 1, axis=1)
SPINS = IsingModel(RING + RING.T, [0.5, 0.0, -0.25])


def test_random_tokens_are_uniform_on_what_the_model_allows():
    states = random_states(SPINS, 4000, 3, seed=1)
    counts = np.bincount(codes(states, 2), minlength=8)
    assert states.shape == (4000, 3) and fit(counts, np.full(8, 1 / 8)) > 1e-3
    np.testing.assert_array_equal(states, random_states(SPINS, 4000, 3, seed=1))
    assert (states != random_states(SPINS, 4000, 3, seed=2)).any()


def test_states_from_masks_follow_the_joint_law():
    states = states_from_masks(SPINS, 4000, 3, seed=1)
    law = stationary_law(transition_matrix(SPINS, 3))
    assert fit(np.bincount(codes(states, 2), minlength=8), law) > 1e-3


def test_a_language_model_writes_from_masks(tiny):
    states = states_from_masks(tiny["bert"], 2, 5, temperature=0.5)
    assert states.shape == (2, 5) and len(tiny["bert"].texts(states)) == 2
    np.testing.assert_array_equal(states[:1], states_from_masks(tiny["bert"], 1, 5, temperature=0.5))


@pytest.mark.parametrize("options", [{"size": 0}, {"n": 0}, {"seed": -1}])
def test_starts_of_no_size_or_seed_are_refused(options):
    for start in (random_states, states_from_masks):
        with pytest.raises(ValueError, match=f"{next(iter(options))} must be a whole number"):
            start(SPINS, **{"size": 1, "n": 3, "seed": 0, **options})


def test_a_model_that_cannot_hide_sites_writes_nothing_from_masks():
    with pytest.raises(ValueError, match="does not say what the conditional given fewer sites is"):
        states_from_masks(TabularModel(np.zeros((2, 2, 2))), 1, 2)
