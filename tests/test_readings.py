"""Readings of states: by hand."""

import numpy as np
import pytest

from glauber_lib.readings import cosine_distance, self_overlap


def test_self_overlap_by_hand():
    states = [[[1, 2, 3, 4], [1, 1, 1, 1]], [[5, 1, 5, 1], [7, 7, 7, 0]]]
    assert self_overlap(states).tolist() == [[0, 3 / 4], [1 / 2, 1 / 2]]


def test_cosine_distance_of_equal_orthogonal_and_opposite_vectors():
    vectors = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    assert cosine_distance(vectors, vectors[0]).tolist() == pytest.approx([0, 1, 2])
