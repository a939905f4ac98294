"""Influence, contraction and thresholds against enumeration."""

import dataclasses

import numpy as np
import pytest
from conftest import Watched, codes, fit, random_ising, random_table, systems
from hypothesis import given, settings

from glauber_lib import checkpoints, exact
from glauber_lib.couplings import coalesce
from glauber_lib.influence import (
    Influence,
    contraction_bound,
    contraction_norms,
    measure_influence,
    replacement_tokens,
    sufficient_temperature,
    threshold,
)
from glauber_lib.models import IsingModel, TabularModel, all_states
from glauber_lib.paper.entries import read_entry, write_entry


def full_influence(model, n, temperatures):
    """`measure_influence` over every context and every replacement: the suprema themselves."""
    contexts = all_states(model.n_tokens, n)
    others = (contexts[..., None] + np.arange(1, model.n_tokens)) % model.n_tokens
    return measure_influence(model, contexts, others, temperatures)


# Influence ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_influence_of_two_spins_is_a_hyperbolic_tangent(temperature):
    influence = full_influence(IsingModel([[0.0, 0.8], [0.8, 0.0]]), 2, [temperature])
    np.testing.assert_allclose(influence.maximum[0], np.tanh(0.8 / temperature) * (1 - np.eye(2)), atol=1e-12)
    np.testing.assert_allclose(influence.oscillation, 4 * 0.8 * (1 - np.eye(2)), atol=1e-12)


def test_influence_of_spins_is_the_largest_change_of_a_flip_probability():
    model, temperature = random_ising(4), 0.7
    couplings, field, spins = model.couplings.numpy(), model.field.numpy(), 2 * all_states(2, 4) - 1
    up = lambda local: 1 / (1 + np.exp(-2 * local / temperature))  # noqa: E731
    expected = np.zeros((4, 4))
    average = np.zeros((4, 4))
    for i in range(4):
        for j in {0, 1, 2, 3} - {i}:
            rest = np.delete(spins, j, axis=1) @ np.delete(couplings[i], j) + field[i]  # couplings[i, i] = 0
            change = np.abs(up(rest + couplings[i, j]) - up(rest - couplings[i, j]))
            expected[i, j], average[i, j] = change.max(), change.mean()
    influence = full_influence(model, 4, [temperature])
    np.testing.assert_allclose(influence.maximum[0], expected, atol=1e-12)
    np.testing.assert_allclose(influence.average[0], average, atol=1e-12)


def test_influence_is_that_of_j_on_i():
    table = np.zeros((2, 2, 2))
    table[0] = [[0, 2.0], [1.0, 0]]  # site 0 listens to site 1, site 1 to nobody
    maximum = full_influence(TabularModel(table), 2, [1.0]).maximum[0]
    assert maximum[0, 1] > 0.1 and maximum[1, 0] == 0


def test_influence_over_fewer_contexts_is_a_lower_bound():
    model, contexts = random_table(3, 3), all_states(3, 3)
    whole = full_influence(model, 3, [1.0])
    part = measure_influence(model, contexts[:4], (contexts[:4, :, None] + 1) % 3, [1.0])
    assert (part.maximum <= whole.maximum + 1e-15).all() and (part.maximum < whole.maximum - 1e-3).any()
    assert (part.oscillation <= whole.oscillation + 1e-15).all()
    assert (part.n_pairs, whole.n_pairs) == (4, 54)


@given(systems(n_sites=(2, 2)))
@settings(max_examples=200)
def test_total_variation_is_below_the_hyperbolic_tangent_of_the_oscillation(case):
    model, n, temperature = case
    influence = full_influence(model, n, [temperature])
    points = influence.points()
    assert len(points) > 0 and (points.temperature == temperature).all() and influence.excess <= 1e-12
    assert (points.tv <= np.tanh(points.delta / (4 * temperature)) + 1e-12).all()
    assert (influence.maximum[0] <= np.tanh(influence.oscillation / (4 * temperature)) + 1e-12).all()


def test_the_hyperbolic_tangent_is_attained_by_two_tokens_in_balance():
    # scores +-1 against -+1: laws (s, 1 - s) and (1 - s, s)
    table = np.zeros((2, 2, 2))
    table[0] = [[1.0, -1.0], [-1.0, 1.0]]
    points = full_influence(TabularModel(table), 2, [1.0]).points()
    assert points.tv.max() == pytest.approx(np.tanh(points.delta.max() / 4), abs=1e-12)
    assert points.delta.max() == pytest.approx(4)


@given(systems(spreads=(0.1, 1.0)))
@settings(max_examples=10)
def test_above_the_sufficient_temperature_the_chain_contracts(case):
    model, n, _ = case
    temperature = 1.001 * sufficient_temperature(full_influence(model, n, [1.0]).oscillation)
    assert full_influence(model, n, [temperature]).maximum[0].sum(0).max() < 1


def test_replacements_are_the_best_predictions_and_random_tokens_but_never_the_own():
    scores = np.array([0.0, 5.0, 1.0, 4.0, 3.0])
    model = TabularModel.from_joint(scores[:, None] + scores)
    contexts = np.array([[0, 1], [3, 4], [2, 2]])
    tokens = replacement_tokens(model, contexts, 4)
    assert tokens.shape == (3, 2, 4)
    np.testing.assert_array_equal(tokens[..., ::2], [[[1, 3], [3, 4]], [[1, 4], [1, 3]], [[1, 3], [1, 3]]])
    many = replacement_tokens(model, np.repeat(contexts, 500, axis=0), 1)[..., 0].reshape(3, 500, 2)
    for k, i in np.ndindex(3, 2):
        others = np.arange(5) != contexts[k, i]
        assert fit(np.bincount(many[k, :, i], minlength=5), others / 4) > 1e-3


def test_the_first_replacements_are_those_of_a_smaller_effort():
    model, contexts = random_table(3, 5), all_states(5, 3)[::7]
    few, many = (replacement_tokens(model, contexts, r) for r in (2, 4))
    np.testing.assert_array_equal(few[..., 0], many[..., 0])  # the best prediction; random ones are drawn anew
    tried = measure_influence(model, contexts, many, [0.5, 1.0])
    part = measure_influence(model, contexts[:4], many[:4, :, :2], [0.5, 1.0])
    for name in ("maximum", "average", "oscillation"):
        np.testing.assert_allclose(getattr(tried.first(4, 2), name), getattr(part, name), atol=1e-15)
    assert tried.first(4, 2).n_pairs == 8 and (part.maximum <= tried.maximum + 1e-15).all()


def test_influence_sums_to_the_same_bits_fresh_and_from_the_cache(tmp_path):
    influence = full_influence(random_table(3, 3), 3, [0.7, 1.0])
    write_entry(tmp_path / "entry.zip", influence)
    stored = read_entry(tmp_path / "entry.zip")
    for name in ("by_context", "average_by_context", "oscillation_by_context"):
        fresh, again = getattr(influence, name), getattr(stored, name)
        assert fresh.flags.c_contiguous and fresh.strides == again.strides, name


def test_the_maximum_is_taken_over_contexts():
    model, contexts = random_table(3, 3), all_states(3, 3)[:5]
    others = (contexts[..., None] + 1) % 3
    whole = measure_influence(model, contexts, others, [0.5, 1.0])
    for k in range(5):
        alone = measure_influence(model, contexts[[k]], others[[k]], [0.5, 1.0])
        np.testing.assert_allclose(whole.by_context[k], alone.maximum, atol=1e-15)
    np.testing.assert_array_equal(whole.maximum, whole.by_context.max(0))


# Contraction -------------------------------------------------------------------------------------------------------


def expected_distance(model, n, temperature):
    """Hamming distance of every pair of states, and its mean after one maximally coupled step at a common site."""
    laws, states = exact.conditional_laws(model, n, temperature), all_states(model.n_tokens, n)
    apart = states[:, None] != states[None]  # (S, S, n)
    tv = 0.5 * np.abs(laws[:, :, None] - laws[:, None]).sum(-1)  # (n, S, S)
    before = apart.sum(-1)
    return before, before + (np.moveaxis(tv, 0, -1) - apart).mean(-1)


@given(systems(spreads=(0.1, 0.5, 2.0)))
@settings(max_examples=25)
def test_one_coupled_step_contracts_as_the_theorem_says(case):
    model, n, temperature = case
    alpha = contraction_norms(full_influence(model, n, [temperature]).maximum[0])["alpha"]
    before, after = expected_distance(model, n, temperature)
    assert (after <= (1 - (1 - alpha) / n) * before + 1e-12).all()


def test_a_coupled_step_of_the_library_has_the_enumerated_distance():
    model, x, y = random_table(3, 3), [0, 1, 2], [0, 2, 1]
    run = coalesce(model, [x] * 20_000, [y] * 20_000, n_steps=1)
    _, after = expected_distance(model, 3, 1.0)
    distance = run.hamming[1]
    expected = after[codes(np.array(x), 3), codes(np.array(y), 3)]
    assert abs(distance.mean() - expected) < 4 * distance.std() / np.sqrt(20_000)


@given(systems(spreads=(0.1, 0.3)))
@settings(max_examples=15)
def test_contraction_bounds_the_mixing_time(case):
    model, n, temperature = case
    alpha = full_influence(model, n, [temperature]).maximum[0].sum(0).max()
    assert exact.mixing_time(exact.transition_matrix(model, n, temperature)) <= contraction_bound(alpha, n)


def test_contraction_bound_by_hand():
    assert contraction_bound(0.5, 10) == 74  # 20 log 40 = 73.8
    assert contraction_bound(0.0, 4, epsilon=0.01) == 24  # 4 log 400 = 23.97
    assert contraction_bound(1.0, 10) == contraction_bound(1.5, 10) == np.inf
    for alpha, n, epsilon in ((np.nan, 10, 0.25), (-1, 10, 0.25), (0.5, 0, 0.25), (0.5, 10, 0), (0.5, 10, np.nan)):
        with pytest.raises(ValueError, match="alpha must be a number >= 0"):
            contraction_bound(alpha, n, epsilon)


def test_contraction_norms_of_a_known_matrix():
    norms = contraction_norms(np.array([[0, 3.0, 4.0], [0, 0, 0], [0, 0, 0]]))
    assert norms == pytest.approx({"alpha": 4, "row sum": 7, "spectral norm": 5, "spectral radius": 0}, abs=1e-12)
    norms = contraction_norms(np.array([[0, 0.9], [0.4, 0]]))
    assert norms["spectral radius"] == pytest.approx(0.6)
    for wrong in (np.full((2, 2), np.nan), np.ones((2, 3)), np.ones(3)):
        with pytest.raises(ValueError, match="influence must be a square matrix"):
            contraction_norms(wrong)


def test_threshold_is_that_of_a_power_of_the_temperature():
    for power in (0.5, 1.0, 2.0):
        for order in ([0, 1, 2], [2, 0, 1]):
            taus = np.array([1.0, 4.0, 16.0])[order]
            assert threshold(taus, (3 / taus) ** power) == pytest.approx(3)
    assert threshold([1, 2, 4, 8], [0.5, 1.5, 2.0, 0.5]) == pytest.approx(np.sqrt(32))  # the last crossing counts
    assert threshold([1, 2], [1.0, 0.5]) == 1 and threshold([1, 2], [1.5, 0.0]) == 1
    assert np.isnan(threshold([1, 2], [0.9, 0.5])) and np.isnan(threshold([1, 2], [2.0, 1.0]))  # off the grid
    assert np.isnan(threshold([1, 2, 4], [1.5, 0.5, np.nan]))  # it may be above one
    assert threshold([1, 2, 4], [np.inf, 0.5, 0.2]) == pytest.approx(2)
    for temperatures, values in (([1, 2], [3, 0.5, 0.1]), ([1, 2, 4], [3, 0.5]), ([-1, 2], [3, 0.5]), ([0, 2], [3, 0])):
        with pytest.raises(ValueError, match=r"one value for each|temperature must be"):
            threshold(temperatures, values)


# Interruption --------------------------------------------------------------------------------------------------------


def test_influence_that_was_interrupted_goes_on_from_its_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "CHECKPOINT", 0.0)
    model, file = random_table(4, 3), tmp_path / "influence.npz"
    contexts, tokens = np.array([[0, 1, 2, 0], [1, 1, 0, 2]]), np.tile([1, 2], (2, 4, 1))
    tokens[contexts == 1] = [0, 2]
    tokens[contexts == 2] = [0, 1]
    arguments = (contexts, tokens, [0.5, 2.0])
    whole = measure_influence(model, *arguments)
    with pytest.raises(KeyboardInterrupt):
        measure_influence(Watched(model, at=6), *arguments, checkpoint=file)
    watched = Watched(model)
    again = measure_influence(watched, *arguments, checkpoint=file)
    assert 0 < watched.calls < 10  # a call for each pair of a context and a site, and one for each context
    assert np.array_equal(again.by_context, whole.by_context) and again.points().equals(whole.points())
    assert np.array_equal(again.oscillation, whole.oscillation)
    with pytest.raises(ValueError, match=r"is of another run \(temperatures\)"):
        measure_influence(model, contexts, tokens, [0.5], checkpoint=file)


def test_influence_is_written_by_ctrl_c_and_at_the_end(tmp_path):
    model, file = random_table(4, 3), tmp_path / "influence.npz"
    arguments = np.array([[0, 1, 2, 0], [1, 1, 0, 2]]), np.full((2, 4, 1), 2), [0.5]
    whole = measure_influence(model, *arguments)
    with pytest.raises(KeyboardInterrupt):
        measure_influence(Watched(model, at=6), *arguments, checkpoint=file)  # long before the first five minutes
    watched = Watched(model)
    assert np.array_equal(measure_influence(watched, *arguments, checkpoint=file).by_context, whole.by_context)
    assert watched.calls == 5  # what nothing changes, and four pairs: the first context was on the file
    assert np.array_equal(
        measure_influence(Watched(model, at=1), *arguments, checkpoint=file).by_context, whole.by_context
    )


def test_replacements_of_other_contexts_are_refused():
    model, contexts = random_table(3, 3), np.zeros((2, 3), int)
    for shape in ((1, 3, 2), (3, 3, 2), (2, 2, 2), (2, 3), (2, 3, 0)):
        with pytest.raises(ValueError, match=r"replacements must have shape \(2, 3, 'R'\)"):
            measure_influence(model, contexts, np.ones(shape, int), [1.0])
    with pytest.raises(ValueError, match=r"replacements must be integers in 0\.\.2"):
        measure_influence(model, contexts, np.full((2, 3, 1), -1), [1.0])
    with pytest.raises(ValueError, match="n_replacements must be a whole number in 1"):
        replacement_tokens(model, contexts, 6)  # three best others of two


def test_another_model_does_not_go_on_from_a_checkpoint_of_influences(tmp_path):
    contexts, new, file = np.zeros((2, 3), int), np.ones((2, 3, 1), int), tmp_path / "influence.npz"
    measure_influence(random_table(3, 3), contexts, new, [1.0], checkpoint=file)
    with pytest.raises(ValueError, match="was made by the model"):
        measure_influence(random_table(3, 3, seed=1), contexts, new, [1.0], checkpoint=file)


def test_one_token_has_no_replacement():
    with pytest.raises(ValueError, match="a replacement needs two tokens"):
        replacement_tokens(TabularModel(np.zeros((2, 1, 1))), [[0, 0]], 2)


def test_a_banned_token_is_no_replacement():
    table = np.random.default_rng(0).normal(size=(2, 6, 6))
    table[0, 2:, 0] = -np.inf  # at site 0 beside a zero two tokens are left
    table[0, 1:, 1] = -np.inf  # and beside a one just its own
    model, contexts = TabularModel(table), np.array([[0, 0], [0, 1], [0, 2]])
    for number in (1, 2, 5, 8):
        tokens = replacement_tokens(model, contexts, number, seed=3)
        assert (tokens[0, 0] == 1).all() and (tokens[1, 0] == 0).all()
        assert (tokens[2, 0] != 0).all() and (tokens[:, 1] != contexts[:, 1:]).all()
    assert set(replacement_tokens(model, np.repeat(contexts[2:], 50, axis=0), 8)[:, 0].ravel()) == {1, 2, 3, 4, 5}


# What no other test tells from a small fault (mutants.md) ------------------------------------------------------------


def test_an_oscillation_that_is_no_square_is_refused():
    for wrong in (np.ones((2, 3)), np.ones(4), np.ones((0, 0)), np.ones((2, 2, 2)), [[0, -1.0], [1.0, 0]]):
        with pytest.raises(ValueError, match="oscillation must be a square matrix"):
            sufficient_temperature(wrong)


def test_laws_of_scores_that_are_beyond_float64_over_the_temperature_are_points():
    table = np.zeros((3, 2, 2, 2))
    table[0, :, 0], table[0, :, 1] = [[1, 1], [2, 2]], [[2, 3], [1, 1]]  # site 0 does the contrary of site 1
    found = measure_influence(TabularModel(table), [[0, 0, 0]], [[[1], [1], [1]]], [1e-310])
    np.testing.assert_array_equal(found.maximum[0], [[0, 1, 0], [0, 0, 0], [0, 0, 0]])


def test_the_sufficient_temperature_is_a_quarter_of_the_largest_sum_over_the_sites_that_listen():
    assert sufficient_temperature([[0.0, 3.0, 4.0], [0.0, 0.0, 2.0], [0.0, 1.0, 0.0]]) == 1.5


def test_points_are_twenty_thousand_at_most():
    zero = np.zeros((10_001, 1, 1, 2, 2))
    assert len(Influence(np.ones(1), zero, zero[:, :, 0]).points()) == 20_000


def test_fewer_contexts_and_replacements_are_taken_of_those_that_were_tried_and_nothing_is_changed():
    found = Influence(np.ones(1), np.zeros((3, 2, 1, 2, 2)), np.zeros((3, 2, 2, 2)))
    assert found.first(3, 2).tv.shape == (3, 2, 1, 2, 2)
    for wrong in ((4, 2), (3, 3)):
        with pytest.raises(ValueError, match="must be a whole number in 1"):
            found.first(*wrong)
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.tv = found.tv + 1  # pyright: ignore[reportAttributeAccessIssue]


def test_the_bar_of_influences_is_gone_at_the_end(monkeypatch):
    bars = []
    monkeypatch.setattr("glauber_lib.influence.tqdm", lambda pairs, **options: bars.append(options) or pairs)
    measure_influence(random_table(2, 2), [[0, 0]], [[[1], [1]]], [1.0], progress="title")
    assert bars == [{"initial": 0, "total": 2, "desc": "title", "disable": False, "leave": False}]
