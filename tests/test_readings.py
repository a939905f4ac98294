"""Readings of states: by hand."""

import numpy as np
import pytest
from conftest import random_table

from glauber_lib.chains import run_chains
from glauber_lib.readings import cosine_distance, moves_in_words, self_overlap


def test_self_overlap_by_hand():
    states = [[[1, 2, 3, 4], [1, 1, 1, 1]], [[5, 1, 5, 1], [7, 7, 7, 0]]]
    assert self_overlap(states).tolist() == [[0, 3 / 4], [1 / 2, 1 / 2]]


def test_cosine_distance_of_equal_orthogonal_and_opposite_vectors():
    vectors = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    assert cosine_distance(vectors, vectors[0]).tolist() == pytest.approx([0, 1, 2])


def test_vectors_that_are_not_of_unit_length_are_refused():
    vectors = np.array([[1.0, 0.0], [0.0, 1.0]])
    for wrong in (5 * vectors, np.where(vectors == 0, np.nan, vectors), 0 * vectors):
        with pytest.raises(ValueError, match="vectors must have unit length"):
            cosine_distance(wrong, vectors[0])


def test_what_fills_up_a_state_repeats_nothing():
    np.testing.assert_allclose(self_overlap(np.array([[[3, 3, -1, -1], [1, 2, 1, 1]]])), [[0.5, 0.5]])
    for states in (np.zeros((0, 3), int), [[0, -1, 1]], [[0.5, 0.5]]):
        with pytest.raises(ValueError, match=r"need a state at least|filled up|must be integers"):
            self_overlap(states)


def test_moves_that_a_chain_did_not_make_are_refused():
    trace = run_chains(random_table(2, 3), [[0, 0]], n_steps=20)
    for move in (-1, len(trace.step), 0.5):
        with pytest.raises(ValueError, match="move must be a whole number in 0"):
            moves_in_words(None, trace, 0, [move])
