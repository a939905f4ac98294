"""Readings of states: by hand."""

from dataclasses import replace

import numpy as np
import pytest
from conftest import random_table

from glauber_lib import kernels
from glauber_lib.chains import run_chains
from glauber_lib.checksums import model_checksum, vocabulary_checksum
from glauber_lib.hitting import drift_passages
from glauber_lib.language import MaskedLM
from glauber_lib.readings import cosine_distance, moves_in_words, self_overlap, topic_scores
from glauber_lib.traps import survey_traps


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


class Teller:
    """A scorer that gives what it was told."""

    labels = ("a", "b")

    def __init__(self, scores):
        self.scores = scores

    def score(self, texts):
        return np.array(self.scores)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_scores_of_topics_that_are_not_finite_are_refused(tiny, wrong):
    with pytest.raises(ValueError, match=r"must be finite .* with 1 that are nan or infinite"):
        topic_scores(tiny["bert"], Teller([[0.5, wrong]]), [[1, 2]])


# Words of the right model --------------------------------------------------------------------------------------------


def reversed_words(model):
    """The same network with its words in the other order: token 0 is another word."""
    return MaskedLM(model.network, model.tokenizer, name="reversed", vocabulary=model.vocabulary[::-1], device="cpu")


@pytest.mark.parametrize("make", [run_chains, kernels.run])
def test_a_trace_is_not_read_in_the_words_of_another_vocabulary(tiny, make, tmp_path):
    model = tiny["bert"]
    trace = make(model, [[3, 4, 5]], n_steps=12)
    trace.save(tmp_path / "trace.npz")
    for kept in (trace, type(trace).load(tmp_path / "trace.npz")):
        assert moves_in_words(model, kept, 0, []).words[0] == model.words([3, 4, 5])
        for read in (
            lambda m, t: moves_in_words(m, t, 0, []), lambda m, t: survey_traps(m, t, None, window=4, stride=2),
            lambda m, t: drift_passages(m, None, t, [0.3]),
        ):  # fmt: skip
            for other in (reversed_words(model), tiny["roberta"]):
                with pytest.raises(ValueError, match=r"made by the model .* are other words than .* read it with"):
                    read(other, kept)


def test_a_trace_is_read_with_any_weights_and_on_any_device_and_one_of_no_words_by_any_model(tiny):
    model = tiny["bert"]
    assert vocabulary_checksum(model) == vocabulary_checksum(model.double()) != ""
    assert model_checksum(model) != model_checksum(model.double())
    trace = run_chains(random_table(2, 3), [[0, 1]], n_steps=5)
    assert trace.vocabulary_checksum == "" and moves_in_words(model, trace, 0, []).words[0] == model.words([0, 1])
    later = run_chains(
        model, None, n_steps=5, resume=replace(run_chains(model, [[0, 1]], n_steps=5), vocabulary_checksum="")
    )
    assert later.vocabulary_checksum == vocabulary_checksum(model)


def test_vectors_that_were_rounded_to_half_precision_are_not_of_unit_length():
    with pytest.raises(ValueError, match=r"vectors must have unit length, got lengths 1\.0009"):
        cosine_distance(np.array([1.0009, 0.0]), np.array([1.0, 0.0]))
