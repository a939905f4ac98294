"""What kernels, embedders and distances answer, and draws and drift of what is no law."""

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import random_table

from glauber_lib import draws, drift, kernels, strips
from glauber_lib.chains import run_chains
from glauber_lib.hitting import first_passages
from glauber_lib.models import IsingModel
from glauber_lib.readings import cosine_distance, embed_states


def in_place(state):
    state[0] = 1 - state[0]
    return state


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda state: state + 7, "tokens from the kernel at step 0"),
        (lambda state: state - 3, "tokens from the kernel at step 0"),
        (lambda state: state + 0.6, "must return integers"),
        (lambda state: state[:1], "must return integers of shape"),
        (lambda state: np.append(state[:2], 1 - state[2:]), r"frozen sites \[2\]"),
        (in_place, "read-only"),
    ],
    ids=["large", "negative", "fraction", "short", "frozen", "in place"],
)
def test_what_a_kernel_answers_is_checked(answer, message):
    def kernel(model, state, free, **_):
        return answer(state)

    with pytest.raises(ValueError, match=message):
        kernels.run(random_table(3, 3), [[0, 1, 0]], n_steps=2, kernel=kernel, frozen=np.array([False, False, True]))


def test_a_kernel_may_return_one_array_again_and_again():
    kept = np.zeros(2, np.int64)

    def kernel(model, state, free, *, step, **_):
        kept[:] = state
        kept[step % 2] = 1 - kept[step % 2]
        return kept

    trace = kernels.run(random_table(2, 2), [[0, 0]], n_steps=4, kernel=kernel)
    assert trace.site.tolist() == [0, 1, 0, 1] and trace.new.tolist() == [1, 1, 0, 0]


def test_a_model_may_write_to_the_states_that_a_kernel_asks_about():
    class Masking(IsingModel):
        def scores(self, states, sites, hidden=None):
            found = super().scores(states, sites)
            torch.as_tensor(states)[torch.arange(len(states)), torch.as_tensor(sites)] = 0
            return found

    coupling = np.ones((3, 3)) - np.eye(3)
    paths = [kernels.run(kind(coupling), [[1, 1, 1]], n_steps=50, temperature=3.0) for kind in (IsingModel, Masking)]
    np.testing.assert_array_equal(paths[0].final, paths[1].final)
    assert paths[0].site.tolist() == paths[1].site.tolist()


@pytest.mark.parametrize("row", [[1e308, 1e308], [1.0, np.inf], [np.nan, 1.0], [0.0, 0.0]])
def test_weights_without_a_finite_sum_are_refused(row):
    with pytest.raises(ValueError, match="positive and finite sum"):
        draws.inverse_cdf(torch.tensor([row], dtype=torch.float64), torch.tensor([0.1], dtype=torch.float64))


@pytest.mark.parametrize("temperature", [-1.0, 0.0, np.nan, np.inf])
def test_a_law_needs_a_positive_temperature(temperature):
    with pytest.raises(ValueError, match="temperature must be > 0"):
        draws.probabilities(torch.zeros(1, 2), [temperature])


@pytest.mark.parametrize("column", ["token", "temperature"])
def test_tokens_and_temperatures_are_not_pooled(column):
    one = pd.DataFrame({"count": [1, 2], "up": 0.1, "down": 0.2, "weight": 1.0, "token": 0, "temperature": 1.0})
    one = one.assign(floor=0, sites=2)
    both = pd.concat([one, one.assign(**{column: 2.0})])
    for read in (strips.mean_lead, strips.escape_by_counts):
        with pytest.raises(ValueError, match=f"one {column}"):
            read(both)
        read(one)


def test_an_embedder_gives_one_vector_for_each_text():
    class Model:
        def texts(self, states):
            return [str(state) for state in states]

    for vectors in (np.ones((2, 8)), np.ones((2, 4)).T[:, :1].ravel(), np.ones((8, 4))):
        embedder = type("Embedder", (), {"embed": lambda self, texts, given=vectors: given})()
        with pytest.raises(ValueError, match="one vector for each of 4 texts"):
            embed_states(Model(), embedder, np.zeros((4, 3), int))


def test_vectors_of_different_lengths_have_no_distance():
    with pytest.raises(ValueError, match="one dimension"):
        cosine_distance(np.ones((3, 1)), np.full(4, 0.5))
    assert cosine_distance(np.eye(3), np.eye(3)[0]).tolist() == [0, 1, 1]


def test_distances_are_one_for_each_state_and_levels_a_list():
    trace = run_chains(IsingModel(np.zeros((4, 4))), [[0] * 4] * 3, n_steps=40)

    def column(states, starts):
        return (states != starts).mean(1)[:, None]

    with pytest.raises(ValueError, match="one for each state"):
        first_passages(trace, column, [0.25, 0.5, 0.75, 1.0])
    for levels in (0.5, []):
        with pytest.raises(ValueError, match="levels must be a list"):
            first_passages(trace, lambda states, starts: (states != starts).mean(1), levels)


@pytest.mark.parametrize(("up", "down"), [([], []), ([0.1, 0], [-0.2, 0.1]), (0.1, 0.2), ([0.1, 0], [0.2]), ([2], [1])])
def test_steps_of_a_count_have_probabilities(up, down):
    with pytest.raises(ValueError, match=r"probabilit"):
        drift.birth_death_time(up, down)
