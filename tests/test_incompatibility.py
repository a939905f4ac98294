"""Rectangles: zero for a joint, the definition otherwise."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import TEXTS, corpus, fit, random_ising, random_joint, random_table
from hypothesis import given
from hypothesis import strategies as st

from glauber_lib.drift import token_drift
from glauber_lib.incompatibility import (
    Rectangles,
    independent_influence,
    marked_texts,
    mean_without_largest,
    measure_joint,
    measure_rectangles,
    noise_floor,
    opposite_signs,
    sample_rectangles,
)
from glauber_lib.influence import replacement_tokens
from glauber_lib.language import load_model
from glauber_lib.models import TabularModel, all_states


def log_ratio(model, state, site, old, new, temperature):
    """Log-probability of `new` less that of `old` at a site, from the scores."""
    scores = np.asarray(model.scores(state[None], np.array([site]))[0], float)
    return (scores[new] - scores[old]) / temperature


def delta_by_definition(model, state, i, j, b, d, temperature=1.0):
    """Both ways round the rectangle, edge by edge (paper §4)."""
    a, c = state[i], state[j]
    at_b, at_d = np.array(state), np.array(state)
    at_b[i], at_d[j] = b, d
    first = log_ratio(model, state, i, a, b, temperature) + log_ratio(model, at_b, j, c, d, temperature)
    second = log_ratio(model, state, j, c, d, temperature) + log_ratio(model, at_d, i, a, b, temperature)
    return abs(first - second)


def every_rectangle(n_sites, n_tokens, *, limit=200):
    """Rectangles of a small system, all or a spread of them."""
    rows = [
        (state, i, j, b, d)
        for state in all_states(n_tokens, n_sites)
        for i in range(n_sites)
        for j in range(n_sites)
        for b in range(n_tokens)
        for d in range(n_tokens)
        if i != j and b != state[i] and d != state[j]
    ]
    rows = rows[:: max(1, len(rows) // limit)]
    states, *rest = map(np.array, zip(*rows, strict=True))
    return Rectangles(states, np.zeros(len(rows), int), *rest)


@given(st.integers(0, 2**32), st.integers(2, 3), st.integers(2, 3), st.sampled_from([0.1, 1.0, 5.0]))
def test_rectangle_vanishes_for_a_joint(seed, n_sites, n_tokens, temperature):
    model, _ = random_joint(n_sites, n_tokens, seed=seed)
    table = measure_rectangles(model, every_rectangle(n_sites, n_tokens), temperature=temperature)
    assert table.delta.max() < 1e-9
    assert table[["I_ij", "I_ji"]].abs().max().min() > 1e-3  # though the sites do influence each other


def test_rectangle_vanishes_for_ising_spins():
    assert measure_rectangles(random_ising(4), every_rectangle(4, 2)).delta.max() < 1e-9


def test_rectangle_sees_a_perturbed_conditional():
    _, log_joint = random_joint(2, 2)
    table = np.stack([log_joint, log_joint])
    table[0, 1, 1] += 0.01  # one score of one site
    delta = measure_rectangles(TabularModel(table), every_rectangle(2, 2)).delta
    np.testing.assert_allclose(delta, 0.01, rtol=1e-6)


def test_delta_is_that_of_the_definition(system):
    rectangles = every_rectangle(system.n, system.model.n_tokens, limit=30)
    table = measure_rectangles(system.model, rectangles, temperature=0.7)
    expected = [
        delta_by_definition(system.model, *row, temperature=0.7)
        for row in zip(rectangles.states, rectangles.i, rectangles.j, rectangles.b, rectangles.d, strict=True)
    ]
    np.testing.assert_allclose(table.delta, expected, atol=2e-5)
    assert (max(expected) < 2e-5) == (system.name in {"joint", "ising", "gpt2"})


def test_delta_is_the_difference_of_the_log_cross_ratios():
    table = measure_rectangles(random_table(3, 3), every_rectangle(3, 3))
    np.testing.assert_allclose(table.delta, (table.I_ij - table.I_ji).abs(), atol=1e-12)
    np.testing.assert_allclose(table.relative, table.delta / (table.I_ij.abs() + table.I_ji.abs()), atol=1e-12)
    assert table.relative.between(0, 1).all()


def test_rectangle_table_says_which_rectangle():
    rectangles = every_rectangle(3, 3)
    table = measure_rectangles(random_table(3, 3), rectangles)
    rows = np.arange(len(rectangles))
    np.testing.assert_array_equal(table.a, rectangles.states[rows, rectangles.i])
    np.testing.assert_array_equal(table.c, rectangles.states[rows, rectangles.j])
    np.testing.assert_array_equal(table.distance, abs(rectangles.i - rectangles.j))


def test_influence_of_a_rectangle_is_the_mean_total_variation_of_its_sites():
    model, rectangles = random_table(2, 2), every_rectangle(2, 2)
    table = measure_rectangles(model, rectangles)
    law = lambda state, site: np.asarray(torch.softmax(model.scores(state[None], np.array([site]))[0], 0))  # noqa: E731
    for k, state in enumerate(rectangles.states):
        i, j = rectangles.i[k], rectangles.j[k]
        at_j, at_i = state.copy(), state.copy()
        at_j[j], at_i[i] = rectangles.d[k], rectangles.b[k]
        tv_i = np.abs(law(state, i) - law(at_j, i)).sum() / 2
        tv_j = np.abs(law(state, j) - law(at_i, j)).sum() / 2
        assert table.influence[k] == pytest.approx((tv_i + tv_j) / 2, abs=1e-12)


@pytest.mark.parametrize("temperature", [0.01, 0.5, 2.0, 50.0])
def test_log_ratios_scale_as_one_over_the_temperature(temperature):
    # at the lowest, gaps of 30 / 0.01 nats: probabilities underflow, log-ratios must not
    model, rectangles = random_table(3, 3, spread=10.0), every_rectangle(3, 3)
    at_one, here = (measure_rectangles(model, rectangles, temperature=t) for t in (1.0, temperature))
    for column in ("I_ij", "I_ji", "delta"):
        np.testing.assert_allclose(here[column], at_one[column] / temperature, rtol=1e-9, atol=1e-9)


def test_independent_influence_is_a_total_variation_over_further_replacements():
    # with four tokens the two further replacements at a site are the two that the rectangle leaves
    model = random_table(3, 4, seed=5)
    rectangles = sample_rectangles(model, all_states(4, 3), 40, seed=1)
    found = independent_influence(model, rectangles, seed=2)
    for k, state in enumerate(rectangles.states):
        i, j, total = rectangles.i[k], rectangles.j[k], 0.0
        for site, other, taken in ((i, j, rectangles.d[k]), (j, i, rectangles.b[k])):
            laws = []
            for token in sorted({0, 1, 2, 3} - {state[other], taken}):
                changed = state.copy()
                changed[other] = token
                laws.append(model.scores(changed[None], np.array([site]))[0].softmax(-1).numpy())
            total += 0.5 * np.abs(laws[0] - laws[1]).sum()
        assert found[k] == pytest.approx(total / 2, abs=1e-12)


def test_independent_influence_uses_neither_replacement_of_the_rectangle():
    asked = []

    class Watched(TabularModel):
        def scores(self, states, sites, hidden=None):
            asked.append(np.array(states))
            return super().scores(states, sites, hidden)

    model = Watched(random_table(2, 6, seed=3).to_arrays()["table"])
    rectangles = sample_rectangles(model, all_states(6, 2), 200, seed=1)
    asked.clear()
    independent_influence(model, rectangles, top=2)
    rows = np.arange(200)
    for changed, site, taken in ((asked[1:3], rectangles.j, rectangles.d), (asked[4:6], rectangles.i, rectangles.b)):
        present = rectangles.states[rows, site]
        first, second = (states[rows, site] for states in changed)
        assert not np.any(first == second)
        assert not np.any((first == taken) | (second == taken) | (first == present) | (second == present))


def test_independent_influence_needs_four_tokens():
    model = random_table(2, 3)
    with pytest.raises(ValueError, match="four tokens"):
        independent_influence(model, sample_rectangles(model, all_states(3, 2), 5))


def test_the_control_telescopes_to_zero(tiny):
    model = tiny["gpt2"]
    states = model.states(TEXTS[:8], n=12)
    rectangles = sample_rectangles(model, states, 40, propose=model.proposals)
    table = measure_joint(model, rectangles)
    assert table.delta.max() < 1e-4
    assert len(table) == 40
    # the edges themselves are no zeros: what vanishes is their sum
    first = model.log_prob(rectangles.corner(b=True)) - model.log_prob(rectangles.states)
    assert first.abs().min() > 1e-3


def test_the_control_would_notice_a_table_that_is_no_function_of_the_state():
    class Drifting:
        calls = 0.0

        def log_prob(self, states):
            self.calls += 1
            return torch.arange(len(states)) * self.calls

    assert measure_joint(Drifting(), every_rectangle(2, 2)).delta.max() > 0.5


def test_tiny_masked_models_are_far_above_their_noise_floor(masked_lm):
    rectangles = sample_rectangles(masked_lm, masked_lm.states(corpus(masked_lm)[:8], n=10), 24)
    floor = noise_floor(masked_lm, rectangles)
    assert 0 < floor < 1e-3
    assert measure_rectangles(masked_lm, rectangles).delta.median() > 10 * floor


# Sampling ----------------------------------------------------------------------------------------------------------


def test_sampled_rectangles_are_rectangles_with_good_replacements(masked_lm):
    states = masked_lm.states(corpus(masked_lm)[:10], n=8)
    rectangles = sample_rectangles(masked_lm, states, 200, seed=3)
    assert len(rectangles) == 200
    rows = np.arange(200)
    np.testing.assert_array_equal(rectangles.states, states[rectangles.passage])
    assert (rectangles.i != rectangles.j).all()
    for sites, new in ((rectangles.i, rectangles.b), (rectangles.j, rectangles.d)):
        present = rectangles.states[rows, sites]
        assert (new != present).all()
        scores = np.array(masked_lm.scores(rectangles.states, sites))
        own = scores[rows, new]
        scores[rows, present] = -np.inf
        better = (scores > own[:, None] + 1e-5).sum(1)  # tokens that rank before the one drawn
        assert better.max() < 50
        assert better.max() > 0.8 * min(50, masked_lm.n_tokens) and better.min() < 10  # drawn from all of the fifty


def test_replacements_come_from_the_best_predictions_alone():
    scores = np.array([0.0, 5.0, 1.0, 4.0, 3.0])
    model = TabularModel.from_joint(scores[:, None] + scores)
    for token, allowed in ((0, {1, 3}), (1, {3, 4}), (3, {1, 4})):
        rectangles = sample_rectangles(model, [[token, token]], 60, top=2)
        assert set(rectangles.b) == set(rectangles.d) == allowed


@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0])
def test_replacements_at_a_temperature_follow_the_conditional_law(temperature):
    scores = np.array([0.0, 2.0, 1.0, -1.0, 30.0])
    model = TabularModel.from_joint(scores[:, None] + scores)
    rectangles = sample_rectangles(model, [[4, 4]], 3_000, temperature=temperature)  # the most likely token is present
    law = np.exp(scores[:4] / temperature) / np.exp(scores[:4] / temperature).sum()
    for drawn in (rectangles.b, rectangles.d):
        assert fit(np.bincount(drawn, minlength=4), law) > 1e-3
    assert np.corrcoef(rectangles.b, rectangles.d)[0, 1] == pytest.approx(0, abs=0.06)


def test_temperature_changes_the_replacements_alone(masked_lm):
    states = masked_lm.states(corpus(masked_lm)[:8], n=10)
    before = masked_lm.scores(states, np.zeros(8, int)).clone()
    first, second = (sample_rectangles(masked_lm, states, 30, temperature=t) for t in (0.3, 3.0))
    again = sample_rectangles(masked_lm, states, 30, temperature=0.3)
    for name in ("passage", "i", "j"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    np.testing.assert_array_equal(first.b, again.b)
    assert (first.b != second.b).any()
    assert torch.equal(before, masked_lm.scores(states, np.zeros(8, int)))
    with pytest.raises(ValueError, match="temperature must be > 0"):
        sample_rectangles(masked_lm, states, 5, temperature=0.0)


def test_sampling_at_a_temperature_leaves_the_scores_of_the_model_alone():
    model = random_table(2, 3)  # float64 already: nothing is copied on the way
    states = all_states(3, 2)
    before = model.scores(states, np.zeros(9, int)).clone()
    sample_rectangles(model, states, 20, temperature=1.0)
    assert torch.equal(before, model.scores(states, np.zeros(9, int)))


def test_rectangles_are_drawn_from_a_model_in_float64_too(tiny):
    model, states = tiny["bert"], tiny["bert"].states(TEXTS[:4], n=6)
    for temperature in (1.0, None):
        single, double = (sample_rectangles(m, states, 30, temperature=temperature) for m in (model, model.double()))
        np.testing.assert_array_equal(single.states, double.states)
        assert (single.b == double.b).mean() > 0.9  # but for ties within rounding


@pytest.mark.parametrize("temperature", [1.0, None])
def test_sampling_writes_to_no_table_that_a_model_gives_out(temperature):
    table = torch.tensor([[0.0, 1.0, 2.0]], dtype=torch.float64).expand(9, -1).clone()
    model = SimpleNamespace(n_tokens=3, scores=lambda states, sites: table[: len(states)])
    sample_rectangles(model, all_states(3, 2), 9, temperature=temperature)
    replacement_tokens(model, all_states(3, 2), 2)
    token_drift(model, all_states(3, 2)[:4], 0, [1.0])
    assert (table == torch.tensor([0.0, 1.0, 2.0])).all()


def test_exact_conditionals_of_a_causal_model_are_compatible(tiny, tiny_folders):
    model = load_model(tiny_folders["gpt2"], causal=True, vocabulary=tiny["gpt2"].vocabulary[:6])
    rectangles = sample_rectangles(model, np.random.default_rng(0).integers(6, size=(10, 4)), 20)
    table = measure_rectangles(model, rectangles)
    assert table.delta.max() < 1e-3 < 0.01 < table.I_ij.abs().median()


def test_passages_and_pairs_of_sites_are_drawn_uniformly():
    states = np.zeros((3, 4), int)
    rectangles = sample_rectangles(random_table(4, 2), states, 3_000)
    pairs = np.bincount(4 * rectangles.i + rectangles.j, minlength=16)
    assert fit(pairs, (1 - np.eye(4)).ravel() / 12) > 1e-3
    assert fit(np.bincount(rectangles.passage, minlength=3), np.full(3, 1 / 3)) > 1e-3


def test_a_seed_gives_the_same_rectangles_and_another_seed_others():
    model, states = random_table(3, 3), all_states(3, 3)
    first, again, other = (sample_rectangles(model, states, 30, seed=k) for k in (1, 1, 2))
    np.testing.assert_array_equal(first.states, again.states)
    np.testing.assert_array_equal(first.b, again.b)
    assert (first.passage != other.passage).any()


def test_corners_and_parts_of_rectangles():
    rectangles = Rectangles(*map(np.array, ([[0, 1, 2], [2, 2, 2]], [0, 1], [0, 2], [1, 0], [2, 0], [0, 1])))
    assert rectangles.corner().tolist() == [[0, 1, 2], [2, 2, 2]]
    assert rectangles.corner(b=True).tolist() == [[2, 1, 2], [2, 2, 0]]
    assert rectangles.corner(d=True).tolist() == [[0, 0, 2], [1, 2, 2]]
    assert rectangles.corner(b=True, d=True).tolist() == [[2, 0, 2], [1, 2, 0]]
    assert rectangles.take([1]).states.tolist() == [[2, 2, 2]]


def test_one_site_makes_no_rectangle():
    with pytest.raises(ValueError, match="needs two sites"):
        sample_rectangles(random_table(1, 3), [[0]], 5)


# Tables and texts --------------------------------------------------------------------------------------------------


def test_opposite_signs_count_only_above_the_floor():
    x, y = [1.0, 1.0, -1.0, 1.0, 0.0], [-1.0, 2.0, 0.01, -0.001, 1.0]
    assert opposite_signs(x, y).tolist() == [True, False, True, True, False]
    assert opposite_signs(x, y, floor=0.005).tolist() == [True, False, True, False, False]


def test_mean_without_the_largest_is_a_share_of_the_mean():
    assert mean_without_largest([2.0] * 7) == 1.0 and np.isnan(mean_without_largest([]))
    assert mean_without_largest([1.0] * 19 + [21.0]) == pytest.approx(1 / 2)
    assert mean_without_largest([1.0, 3.0], share=0.5) == pytest.approx(1 / 2)
    assert mean_without_largest([0.0] * 50 + [10.0] * 50) == pytest.approx(450 / 95 / 5)  # also where some are equal
    exponential = np.random.default_rng(0).exponential(size=100_000)
    assert mean_without_largest(exponential) == pytest.approx((1 - 0.05 * (1 + np.log(20))) / 0.95, abs=0.01)


@given(values=st.lists(st.floats(0, 1e6), min_size=1, max_size=60, unique=True), eighths=st.integers(0, 8))
def test_the_mean_without_the_largest_leaves_as_many_values_as_a_quantile_does(values, eighths):
    share = eighths / 8
    left = [value for value in values if value <= np.quantile(values, 1 - share)]
    if np.mean(values):
        assert mean_without_largest(values, share) == pytest.approx(np.mean(left) / np.mean(values))


def test_a_reading_that_is_no_number_is_never_counted_as_small():
    for x, y, floor in (([1, np.nan], [-1, 1], 0.0), ([1, 1], [-1, np.nan], 0.0), ([1], [-1], np.nan)):
        with pytest.raises(ValueError, match="readings must be numbers"):
            opposite_signs(x, y, floor=floor)
    assert np.isnan(mean_without_largest([1.0] * 30 + [np.nan])) and np.isnan(mean_without_largest([0.0] * 30))


def test_marked_texts_put_both_sites_in_brackets(tiny):
    for model in tiny.values():
        rectangles = sample_rectangles(
            model, model.states(corpus(model)[:3], n=8), 4, propose=getattr(model, "proposals", None)
        )
        for text in marked_texts(model, rectangles, b=True):
            assert text.count("[") == text.count("]") == 2
        plain, marked = model.texts(rectangles.corner(d=True)), marked_texts(model, rectangles, d=True)
        squeezed = [["".join(c for c in text if c not in "[]# ") for text in texts] for texts in (plain, marked)]
        assert squeezed[0] == squeezed[1]


def test_rectangles_that_are_none_are_refused():
    model, good = random_table(3, 3), {"states": np.zeros((1, 3), int), "passage": [0]}
    good |= {"i": [0], "j": [1], "b": [1], "d": [1]}
    good = {name: np.asarray(values) for name, values in good.items()}
    measure_rectangles(model, Rectangles(**good))
    for change in ({"i": [-1]}, {"j": [3]}, {"b": [-1]}, {"d": [3]}, {"j": [0]}, {"i": [0, 1]}):
        with pytest.raises(ValueError, match=r"must be integers in|two different sites"):
            measure_rectangles(model, Rectangles(**{**good, **{k: np.array(v) for k, v in change.items()}}))


def test_rectangles_of_sites_that_are_not_there_have_no_control_and_no_text(tiny):
    model = tiny["gpt2"]
    states = model.states(TEXTS[:1], n=4)
    wrong = Rectangles(states, *(np.array([k]) for k in (0, 0, -1, 1, 2)))  # j = -1 is the last site, j = i none
    for read in (measure_joint, marked_texts):
        with pytest.raises(ValueError, match="sites j must be integers"):
            read(model, wrong)


def test_readings_of_rounding_alone_are_not_related_to_each_other():
    rng = np.random.default_rng(0)
    parts = rng.normal(size=(3, 4))
    joint = TabularModel.from_joint(parts[0][:, None, None] + parts[1][:, None] + parts[2])
    rectangles = sample_rectangles(joint, rng.integers(4, size=(20, 3)), 200)
    measured = measure_rectangles(joint, rectangles)
    assert measured.delta.max() < 1e-14 and (measured.relative == 0).all()


def test_signs_are_compared_without_a_product():
    assert opposite_signs([1e-200], [-1e-200]).all() and opposite_signs([4_000_000_000], [-3_000_000_000]).all()
    with pytest.raises(ValueError, match="two readings of each rectangle"):
        opposite_signs([[1.0], [2.0]], [1.0, 2.0])
