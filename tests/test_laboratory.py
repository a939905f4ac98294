"""The price of incompatibility and the margin theorem on many small systems, against enumeration."""

import itertools

import numpy as np
import pytest
import scipy.special
import torch
from conftest import random_ising, random_joint, random_table
from hypothesis import given, settings
from hypothesis import strategies as st

from glauber_lib import exact, incompatibility, laboratory
from glauber_lib.models import IsingModel, TabularModel, all_states

# The price of incompatibility --------------------------------------------------------------------------------------


@given(st.integers(0, 2**32), st.sampled_from([0.3, 1.0, 5.0]))
@settings(max_examples=20)
def test_a_joint_has_no_price(seed, temperature):
    for model, n in ((random_ising(4, seed=seed), 4), (random_joint(3, 3, seed=seed)[0], 3)):
        found = laboratory.incompatibility_price(model, n, temperature)
        assert abs(found["price"]) < 1e-13 and found["entropy"] > 0


def test_the_price_is_the_divergence_of_the_conditionals_of_the_stationary_law():
    model, n, temperature = random_table(3, 3, seed=1), 3, 0.7
    law = exact.stationary_law(exact.transition_matrix(model, n, temperature))
    states, price, entropy = all_states(3, n), 0.0, 0.0
    for x, p in zip(states, law, strict=True):
        for i in range(n):
            line = [y for y in range(27) if (np.delete(states[y], i) == np.delete(x, i)).all()]
            scores = model.scores(x[None], np.array([i]))[0].numpy()
            own = scipy.special.softmax(scores / temperature)
            price += p * np.log(p / law[line].sum() / own[x[i]]) / n
            entropy -= p * (own * np.log(own)).sum() / n
    found = laboratory.incompatibility_price(model, n, temperature)
    assert found["price"] == pytest.approx(price) and found["entropy"] == pytest.approx(entropy)


def test_an_incompatible_model_has_a_price_far_above_rounding():
    table = laboratory.price_table([random_table(3, 3, seed=k).to_arrays()["table"] for k in range(5)], [1.0, 4.0])
    assert len(table) == 10 and (table.price > 1e4 * table.floor.abs()).all()
    assert (table.floor.abs() < 1e-12).all() and table.TV.between(0, 1).all()


def test_a_weak_conflict_costs_the_square_of_its_size():
    rng = np.random.default_rng(0)
    joint, conflict = rng.normal(size=(2, 2)), rng.normal(size=(2, 2, 2))
    price = [laboratory.incompatibility_price(TabularModel(joint + e * conflict), 2)["price"] for e in (1e-2, 1e-3)]
    assert price[0] / price[1] == pytest.approx(100, rel=0.05)


def test_the_mean_incompatibility_is_that_of_all_rectangles():
    model = random_table(3, 4, seed=3)
    rows = [
        (x, i, j, b, d)
        for x in all_states(4, 3)
        for i, j in [(0, 1), (0, 2), (1, 2)]
        for b in range(4)
        for d in range(4)
    ]
    rows = [row for row in rows if row[0][row[1]] != row[3] and row[0][row[2]] != row[4]]
    states, i, j, b, d = (np.array(part) for part in zip(*rows, strict=True))
    rectangles = incompatibility.Rectangles(states, np.zeros(len(i), int), i, j, b, d)
    measured = incompatibility.measure_rectangles(model, rectangles).delta
    assert laboratory.mean_delta(model) == pytest.approx(measured.mean())
    assert laboratory.price_table([model.to_arrays()["table"]], [2.0]).delta.item() == pytest.approx(
        measured.mean() / 2
    )
    assert laboratory.mean_delta(random_joint(3, 3, seed=1)[0]) < 1e-6
    with pytest.raises(ValueError, match="two sites and two tokens, got 1"):
        laboratory.mean_delta(random_table(1, 3))


# Margins -----------------------------------------------------------------------------------------------------------


def sets_with_a_margin(model, n):
    """All sets of states of a tiny system with a positive margin, as frozen sets of codes."""
    states = all_states(model.n_tokens, n)
    sets = [[k for k in range(len(states)) if mask >> k & 1] for mask in range(1, 2 ** len(states) - 1)]
    return {frozenset(codes) for codes in sets if exact.margin(model, states[codes]) > 0}


@pytest.mark.parametrize("seed", range(8))
def test_the_smallest_sets_with_a_margin_are_those_of_the_enumeration(seed):
    model = random_table(3, 2, seed=seed)
    everything = sets_with_a_margin(model, 3)
    found = {frozenset(codes.tolist()) for codes in exact.margin_sets(model, 3)}
    assert found <= everything
    for members in everything:  # each is a union of sets found
        assert members == frozenset().union(*(small for small in found if small <= members))


def test_ties_have_no_margin():
    assert exact.margin_sets(TabularModel(np.zeros((2, 2, 2))), 2) == []


@given(st.integers(0, 2**32), st.sampled_from([0.2, 0.5, 1.0]))
@settings(max_examples=30)
def test_the_margin_theorem_holds_in_every_case(seed, temperature):
    cases = laboratory.margin_cases(random_table(3, 3, seed=seed, spread=3.0), 3, [temperature])
    assert (cases.escape <= cases.bound + 1e-12).all() and (cases.conductance <= cases.bound + 1e-12).all()
    assert not (cases.lower > cases.mixing_time).any()


def test_the_cases_hold_what_the_exact_laboratory_gives():
    ring = np.roll(np.eye(5), 1, axis=1)
    model, temperature = IsingModel(ring + ring.T), 0.5
    cases = laboratory.all_margin_cases([exact.tabulate(model, 5).to_arrays()["table"]] * 2, [temperature])
    assert set(cases.template) == {0, 1} and cases.lower.notna().sum() >= 4
    matrix = exact.transition_matrix(model, 5, temperature)
    up = cases[(cases.states == 1) & (cases.template == 0)].iloc[0]
    assert up.margin == pytest.approx(4.0) and up.mixing_time == exact.mixing_time(matrix)
    assert up.conductance == pytest.approx(exact.conductance(matrix, [0])) and up.mass < 0.5
    assert laboratory.margin_cases(model, 5, [temperature], limit=3).mixing_time.isna().all()
    for limit in (-1, 0, 2.5):
        with pytest.raises(ValueError, match="limit must be a whole number >= 1"):
            laboratory.margin_cases(model, 5, [temperature], limit=limit)


def test_a_template_becomes_the_table_of_its_restricted_model(tiny):
    model = tiny["bert"]
    templates = np.array([[10, 11, 10, 13, 14, 15], [20, 21, 22, 23, 24, 24]])
    tables = laboratory.restricted_tables(model, templates, 3, 2, seed=2)
    assert tables.shape == (2, 3, 2, 2, 2) and np.isfinite(tables).all()
    assert (tables == laboratory.restricted_tables(model, templates, 3, 2, seed=2)).all()
    with pytest.raises(ValueError, match="needs 3 different words, got 2"):
        laboratory.restricted_tables(model, [[10, 11, 10, 11]], 3, 3)


def test_each_site_holds_the_models_own_predictions(tiny):
    model, templates = tiny["bert"], np.array([[10, 11, 12, 13, 14], [20, 21, 22, 23, 24]])
    found = laboratory.predicted_tables(model, templates, 2, 3, seed=2)
    assert found.shape == (2, 2, 3, 3) and (found == laboratory.predicted_tables(model, templates, 2, 3, seed=2)).all()
    for template, table in zip(templates, found, strict=True):
        fits = []
        for sites in itertools.combinations(range(5), 2):
            scores = model.scores(np.stack([template] * 2), np.array(sites)).numpy()
            words = np.argsort(-scores, axis=1)[:, :3]
            expected = np.empty((2, 3, 3))
            for k, word in enumerate(words[1]):
                state = template.copy()
                state[sites[1]] = word
                expected[0, :, k] = model.scores(state[None], np.array([sites[0]]))[0].numpy()[words[0]]
            for k, word in enumerate(words[0]):
                state = template.copy()
                state[sites[0]] = word
                expected[1, k] = model.scores(state[None], np.array([sites[1]]))[0].numpy()[words[1]]
            fits.append(np.allclose(expected, table, atol=1e-5))
        assert sum(fits) == 1
    with pytest.raises(ValueError, match="bans all but fewer than 2"):
        laboratory.predicted_tables(Banning(), [[0, 1, 2]], 2, 2)


class Banning(TabularModel):
    """A model of three sites and tokens that allows one token at a site."""

    def __init__(self):
        super().__init__(np.zeros((3, 3, 3, 3)))

    def scores(self, states, sites, hidden=None):
        found = super().scores(states, sites, hidden)
        found[:, 1:] = -np.inf
        return found


def test_the_price_is_finite_where_probabilities_underflow():
    table = np.zeros((2, 2, 2))  # each site prefers what the other does not
    table[0, 0, 1] = table[0, 1, 0] = table[1, 0, 0] = table[1, 1, 1] = 8.0
    found = laboratory.incompatibility_price(TabularModel(table), 2, 0.01)  # e^-800 is zero in float64
    assert found["price"] == pytest.approx(laboratory.incompatibility_price(TabularModel(table / 2), 2, 0.005)["price"])
    assert 100 < found["price"] < np.inf and 0 <= found["entropy"] < 1e-9


def test_the_entropy_of_nearly_certain_sites_is_precise():
    scores = torch.tensor([[0.0, -40.0, -41.0]], dtype=torch.float64)
    found = laboratory._log_softmax(scores)
    assert found[0, 0].item() == pytest.approx(-(np.exp(-40) + np.exp(-41)), rel=1e-12)
    assert (laboratory._log_softmax(scores / 50) - (scores / 50).log_softmax(1)).abs().max() < 1e-15


def test_a_law_that_is_none_has_no_price():
    model = random_table(2, 3, seed=1)
    law = exact.stationary_law(exact.transition_matrix(model, 2, 1.0))
    right = laboratory.incompatibility_price(model, 2)
    assert laboratory.incompatibility_price(model, 2, law=law) == right
    for wrong in (np.full(9, np.nan), 1000 * law, law[:-1], law - 2 * law[0] * (np.arange(9) == 0)):
        with pytest.raises(ValueError, match="law must be 9 probabilities"):
            laboratory.incompatibility_price(model, 2, law=wrong)
    with pytest.raises(ValueError, match="need a table"):
        laboratory.all_margin_cases([], [1.0])


def test_a_whole_float_is_a_number_of_sites():
    model = random_table(4, 4, seed=1)
    for tables in (laboratory.restricted_tables, laboratory.predicted_tables):
        np.testing.assert_array_equal(tables(model, [[0, 1, 2, 3]], 3.0, 2.0), tables(model, [[0, 1, 2, 3]], 3, 2))
