"""First passages against the distance looked at after every step."""

import numpy as np
import pytest

from glauber_lib.chains import run_chains
from glauber_lib.hitting import drift_passages, first_passages
from glauber_lib.models import IsingModel, TabularModel
from glauber_lib.readings import cosine_distance, embed_states


def share_changed(states, starts):
    return (states != starts).mean(1)


@pytest.fixture(scope="module")
def trace():
    model = IsingModel(0.3 * (np.eye(6, k=1) + np.eye(6, k=-1)))
    return run_chains(model, np.random.default_rng(0).integers(2, size=(12, 6)), n_steps=40, seed=1)


@pytest.mark.parametrize("at_once", [1, 3, 100])
def test_first_passages_are_those_of_looking_after_every_step(trace, at_once):
    levels = [0.9, 0.2, 0.5]
    found = first_passages(trace, share_changed, levels, at_once=at_once)
    every = share_changed(trace.states(range(41)).reshape(-1, 6), np.tile(trace.initial, (41, 1))).reshape(41, 12)
    for level, rows in found.groupby("level"):
        hit = every >= level
        np.testing.assert_array_equal(rows.reached, hit.any(0))
        np.testing.assert_array_equal(rows.time, np.where(hit.any(0), hit.argmax(0), 40))
    assert found.reached.any() and not found.reached.all() and list(found.level.unique()) == sorted(levels)
    assert (np.diff(every, axis=0) < 0).any()  # the distance also falls, so that looks in between would miss passages


def test_a_chain_at_the_largest_level_is_not_looked_at_again(trace):
    asked = []

    def counted(states, starts):
        asked.append(len(states))
        return share_changed(states, starts)

    found = first_passages(trace, counted, [0.1], at_once=1)
    assert sum(asked) == np.unique(trace.chain).size and found.reached.sum() == np.unique(trace.chain).size


def test_chains_that_never_move_reach_nothing(trace):
    still = run_chains(IsingModel(np.zeros((6, 6))), trace.initial, n_steps=0)
    found = first_passages(still, share_changed, [0.1, 0.2])
    assert not found.reached.any() and (found.time == 0).all() and len(found) == 24


def test_semantic_drift_is_that_of_the_texts(trace):
    class Words:
        def texts(self, states):
            return ["".join(map(str, state)) for state in states]

    class Letters:
        def embed(self, texts):
            vectors = np.array([[t == "0" for t in text] + [t == "1" for t in text] for text in texts], float)
            return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    found = drift_passages(Words(), Letters(), trace, [0.3])
    vectors = embed_states(Words(), Letters(), trace.states(range(41)))
    every = cosine_distance(vectors, vectors[0])
    np.testing.assert_array_equal(found.time, np.where((every >= 0.3).any(0), (every >= 0.3).argmax(0), 40))


def test_a_distance_that_misses_a_level_by_rounding_has_reached_it_and_a_nan_is_refused(trace):
    fifth = 1 - 4 / 5
    assert fifth < 0.2
    found = first_passages(trace, lambda states, starts: np.full(len(states), fifth), [0.2])
    assert found.reached.sum() == np.unique(trace.chain).size
    with pytest.raises(ValueError, match="got nan"):
        first_passages(trace, lambda states, starts: np.full(len(states), np.nan), [0.2])
    with pytest.raises(ValueError, match="above the distance at the start"):
        first_passages(trace, share_changed, [0.0])


def test_levels_that_are_none_are_refused_and_a_large_one_does_not_lower_the_others(trace):
    with pytest.raises(ValueError, match="at_once must be a whole number"):
        first_passages(trace, share_changed, [0.5], at_once=0)
    with pytest.raises(ValueError, match="above the distance at the start"):
        first_passages(trace, share_changed, [0.5, np.inf])
    near = lambda states, starts: np.full(len(states), 0.2 - 1e-9)  # noqa: E731
    assert not first_passages(trace, near, [0.2, 1e9]).reached.any()


def test_a_stopped_chain_is_censored_where_it_was_stopped():
    trace = run_chains(
        TabularModel(np.zeros((3, 2, 2, 2))), np.zeros((1, 3), int), n_steps=500, until=lambda states: states.sum(1) > 1
    )
    found = first_passages(trace, lambda states, starts: (states != starts).mean(1), [1.0])
    assert not found.reached[0] and found.time[0] == trace.stopped[0] < 500


def test_a_level_below_the_rounding_of_distances_is_refused(trace):
    nowhere = lambda states, starts: np.zeros(len(states), np.float32)  # noqa: E731
    with pytest.raises(ValueError, match=r"levels must be above the rounding of the distances, 4\.8e-07, got 1e-07"):
        first_passages(trace, nowhere, [1e-6, 1e-7])
    assert not first_passages(trace, nowhere, [1e-6]).reached.any()
