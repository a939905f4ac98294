"""Closed-form optima of the one-layer model: the thesis's constants, least squares, and its bounds on attention."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glauber_lib import topic_optima as optima
from glauber_lib.topic_optima import BERT, Landscape, Masking


def test_the_printed_constants():
    assert (BERT.own, BERT.masked) == (pytest.approx(0.865), pytest.approx(0.12))
    entries = optima.block_entries(10, 10)
    assert [round(entries[k], d) for k, d in (("mask", 6), ("other", 7), ("same", 6))] == [
        0.054191,
        -0.0075867,
        0.10802,
    ]
    entries = optima.block_entries(100, 300)
    found = [f"{entries[k]:.5g}" for k in ("mask", "other", "same")]
    assert found == ["0.00027728", "-3.8468e-05", "0.0038151"]
    assert f"{1 / (BERT.own * 10):.5f}" == "0.11561"  # mean same-topic less other-topic product of Theorem 2.1.1
    bounds = optima.attention_bounds(300)
    printed = {"lambda_1": 0.577, "lambda_1 of the proof": 0.371, "lambda_2": 5866.7, "lambda_3": 2.64,
               "lambda_4": 986.9, "lambda_5": 0.003867}  # fmt: skip
    assert bounds == pytest.approx(printed, rel=1e-3)
    small = optima.attention_bounds(10)
    assert [small[f"lambda_{k}"] for k in (3, 4, 5)] == pytest.approx([0.088, 447.1, 0.1285], rel=1e-3)


# Uniform attention ---------------------------------------------------------------------------------------------------

maskings = st.builds(Masking, st.floats(0.05, 0.5), st.floats(0.0, 0.4), st.floats(0.05, 0.4))


@given(maskings, st.integers(2, 5), st.integers(1, 4), st.data())
def test_least_squares_of_minimum_norm_are_theorem_2_1_2(masking, topics, words, data):
    present = data.draw(st.integers(1, topics - 1))
    seen, law = optima.document_frequencies(topics, words, present, masking)
    least = np.linalg.lstsq(seen, law, rcond=None)[0].T
    np.testing.assert_allclose(optima.block_matrix(topics, words, masking), least, atol=1e-9)


@given(maskings, st.integers(2, 5), st.integers(1, 4), st.integers(0, 2**32), st.data())
def test_all_matrices_of_theorem_2_1_4_are_optimal_and_predict_the_law(masking, topics, words, seed, data):
    present = data.draw(st.integers(1, topics - 1))
    seen, law = optima.document_frequencies(topics, words, present, masking)
    free, matrix = (
        np.random.default_rng(seed).normal(size=topics * words + 1),
        optima.block_matrix(topics, words, masking),
    )
    matrix[:, 1:] += free[:, None]
    matrix[:, 0] -= (1 / masking.masked - 1) * free
    assert optima.optimum_defect(matrix, topics, masking) < 1e-9
    np.testing.assert_allclose(seen @ matrix.T, law, atol=1e-9)
    least = optima.prediction_loss(matrix, seen, law)
    assert least == pytest.approx(1 - 1 / (present * words), abs=1e-9)
    worse = matrix + np.random.default_rng(seed + 1).normal(size=matrix.shape)
    assert optima.prediction_loss(worse, seen, law) > least
    assert optima.optimum_defect(worse, topics, masking) > 1e-3


def test_the_diagonal_and_the_embeddings_are_optima():
    assert optima.optimum_defect(optima.diagonal_matrix(10, 10), 10) < 1e-12
    embedding = np.diag([0.0] + [1 / BERT.own] * 100)  # E = I / a, with the bias of Theorem 2.1.1
    assert optima.optimum_defect(embedding, 10, bias=True) < 1e-12 < optima.optimum_defect(embedding, 10)
    seen, law = optima.document_frequencies(4, 3, 2)
    bias = -BERT.noise / (BERT.own * 12)
    predicted = seen @ np.diag([0.0] + [1 / BERT.own] * 12).T + bias
    np.testing.assert_allclose(predicted[:, 1:], law[:, 1:], atol=1e-12)


# Attention -----------------------------------------------------------------------------------------------------------

PUBLISHED = {20: (53.3, 15_100), 40: (66.3, 19_100), 60: (72.1, 20_900), 80: (75.2, 22_400)}


@pytest.mark.parametrize("present", PUBLISHED)
def test_the_best_attention_lies_within_the_theorems_bounds(present):
    scape, bounds = Landscape(100, 300, present), optima.attention_bounds(300)
    gamma, (alpha, beta) = scape.best_block(), scape.best_diagonal()
    assert gamma == pytest.approx(PUBLISHED[present][0], abs=0.05)
    assert beta == pytest.approx(PUBLISHED[present][1], rel=0.03) and alpha <= 1.4  # those of a grid
    for lowest in ("lambda_1", "lambda_1 of the proof"):
        assert bounds[lowest] * (present - 1) < gamma < bounds["lambda_2"] * 100
    assert bounds["lambda_3"] * present < beta < bounds["lambda_4"] * 100 and alpha < bounds["lambda_5"] * beta


def test_the_contrast_of_blocks_is_small_and_small_cases_are_as_listed():
    scape = Landscape(100, 300, 20)
    assert f"{scape.block(1.0, 1.0):.5f}" == "0.19997"
    assert f"{scape.block(scape.best_block(), scape.best_block()):.5f}" == "0.19970"
    assert [f"{Landscape(10, 10, k).best_block():.2f}" for k in (2, 3, 4)] == ["6.26", "7.04", "7.53"]
    with_mask = Landscape(100, 300, 20, attend_mask=True).best_block() / scape.best_block()
    assert with_mask == pytest.approx(1.13, abs=0.005)


def brute_force(scape, alpha, beta, matrix):
    """The loss by the attended frequencies and the matrix, listing the word and what stands in its place."""
    t, v, tau, mask = scape.n_topics, scape.n_words, scape.n_present, scape.masking
    size = t * v
    frequency = np.full(size + 1, mask.noise / size)
    frequency[1 : tau * v + 1] += mask.own / (tau * v)
    frequency[0] = mask.masked
    total = 0.0
    for word in range(1, tau * v + 1):
        for shown in range(1, size + 1):
            chance = mask.kept * (shown == word) + mask.random / size
            same_topic = (np.arange(size + 1) - 1) // v == (shown - 1) // v
            weight = np.where(same_topic, alpha, 1.0)
            weight[shown], weight[0] = beta, 1.0
            attended = frequency * weight / (frequency * weight).sum()
            attended[0] = mask.masked  # the map q takes [MASK]'s share as it is under uniform attention
            error = matrix @ attended - np.eye(size + 1)[word]
            total += chance * (error**2).sum() / (tau * v)
    return total


def test_the_sums_are_those_of_every_word_and_what_stands_in_its_place():
    scape = Landscape(3, 2, 2, Masking(0.3, 0.2, 0.2), attend_mask=True)
    for alpha, beta in ((1.0, 1.0), (3.0, 0.5), (0.2, 7.0)):
        blocks = brute_force(scape, alpha, beta, optima.diagonal_matrix(3, 2, scape.masking))
        assert scape.diagonal(alpha, beta) == pytest.approx(blocks)
        topic = np.arange(6) // 2
        mean = optima.diagonal_matrix(3, 2, scape.masking)
        mean[1:, 1:] = (topic[:, None] == topic) / scape.masking.own / 2
        assert scape.block(alpha, beta) == pytest.approx(brute_force(scape, alpha, beta, mean))


def test_what_is_no_masking_or_matrix_is_refused():
    for call in (
        lambda: Masking(0.0), lambda: Masking(0.5, 0.6, 0.4), lambda: optima.attention_bounds(3),
        lambda: optima.optimum_defect(np.eye(4), 2), lambda: optima.document_frequencies(20, 10, 10),
        lambda: Landscape(3, 2, 3), lambda: Landscape(3, 2, 2).block(-1.0, 1.0), lambda: optima.block_matrix(200, 200),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"must|need|too many"):
            call()
