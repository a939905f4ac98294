"""Dyck attention: what satisfies the balance condition reads the stack, at any length; what does not, does not."""

import numpy as np
import pytest

from glauber_lib import bracket_attention as attention


def stack_of(tokens):
    """Indicator of the brackets that are open, by following the prefix."""
    still = []
    for opening, type_, _ in tokens:
        if opening:
            still.append(type_)
        else:
            still.pop()
    return still


@pytest.mark.parametrize("kind", attention.EMBEDDINGS)
def test_embeddings_tell_types_and_depths_apart(kind):
    opens, closes = attention.bracket_embeddings(kind, 3, 4)
    rows = np.concatenate([opens.reshape(12, -1), closes.reshape(12, -1)])
    assert len(np.unique(rows.round(9), axis=0)) == 24
    if kind == "angles":
        np.testing.assert_allclose(opens[0, 1, -2:], [np.cos(np.arctan(2 / 4)), np.sin(np.arctan(2 / 4))])


def test_the_printed_one_hot_code_gives_one_place_to_two_brackets():
    index = {(t, d): (t - 1) * 4 + d for t in range(1, 5) for d in (range(1, 5) if t % 2 else range(4))}
    assert index[3, 4] == 12 and len(set(index.values())) < len(index)


def test_the_sum_of_uniform_attention_is_the_stack():
    opens, closes = attention.bracket_embeddings("one-hot", 2, 4)
    zero, rng = np.zeros((opens.shape[2],) * 2), np.random.default_rng(0)
    assert attention.balance_defect(opens, closes, zero) == 0
    checked = 0
    for _ in range(200):
        tokens = attention.draw_brackets(2, 4, 500, rng)
        tokens = tokens[: np.flatnonzero(tokens[:, 0] == 0)[-1] + 1]
        expected = np.zeros((2, 4))
        for level, type_ in enumerate(stack_of(tokens)):
            expected[type_, level] = 1
        np.testing.assert_array_equal(attention.read_stack(tokens, opens, closes, zero), expected)
        checked += expected.any()
    assert checked > 100


@pytest.mark.parametrize("kind", attention.EMBEDDINGS)
def test_a_balanced_layer_attends_unevenly_and_reads_the_stack(kind):
    opens, closes = attention.bracket_embeddings(kind, 2, 4)
    random = np.random.default_rng(1).normal(size=(opens.shape[2],) * 2)
    balanced = attention.balanced_part(opens, closes, random)
    assert (
        attention.balance_defect(opens, closes, balanced)
        < 1e-12
        < 0.5
        < attention.balance_defect(opens, closes, random)
    )
    logits = opens.reshape(-1, opens.shape[2]) @ balanced @ closes[1, 1]
    assert np.ptp(logits) > 0.3  # not uniform
    found = attention.stack_errors(kind, "balanced", [20, 400], n_prefixes=50)
    assert not found.wrong.any() and found.defect.max() < 1e-12


def test_an_unbalanced_layer_loses_the_stack_behind_many_pairs():
    short, long = (
        attention.stack_errors("one-hot", "random", [n], n_prefixes=80, scale=0.5).wrong.mean() for n in (6, 400)
    )
    assert short < long > 0.15
    uniform = attention.stack_errors("angles", "uniform", [400], n_prefixes=30)
    assert not uniform.wrong.any() and (uniform.defect == 0).all()


def test_what_is_no_prefix_or_layer_is_refused():
    opens, closes = attention.bracket_embeddings("one-hot", 2, 2)
    for call in (
        lambda: attention.bracket_embeddings("cosine", 2, 2),
        lambda: attention.balance_defect(opens, closes, np.eye(3)),
        lambda: attention.read_stack([[1, 0, 1]], opens, closes, np.zeros((8, 8))),
        lambda: attention.read_stack([[0, 2, 1]], opens, closes, np.zeros((8, 8))),
        lambda: attention.stack_errors("one-hot", "sparse", [5]),
        lambda: attention.stack_errors("one-hot", "random", []),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"must|need"):
            call()
