"""Searches for the worst pairs against enumeration."""

import numpy as np
import pytest
from conftest import random_table

from glauber_lib import exact
from glauber_lib.influence import measure_influence
from glauber_lib.models import TabularModel, all_states
from glauber_lib.search import pair_influence, search_column


@pytest.mark.parametrize("climb", [True, False])
@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_a_search_finds_the_influence_of_a_small_system_and_never_passes_it(climb, temperature):
    model, contexts = random_table(3, 3, seed=4), all_states(3, 3)
    supremum = exact.influence(model, 3, temperature)
    for site in range(3):
        found = search_column(model, contexts, site, temperature, rounds=120, candidates=4, climb=climb, seed=1)
        assert found.best.shape == (2, 120) and (np.diff(found.best) >= 0).all()
        for i, x, y, best in zip(found.others, found.x, found.y, found.best[:, -1], strict=True):
            assert (x != y).sum() == 1 and x[site] != y[site]
            assert pair_influence(model, [x], [y], [i], [temperature])[0, 0] == pytest.approx(best)
            assert best <= supremum[i, site] + 1e-12
            if climb:
                assert best == pytest.approx(supremum[i, site])
        assert found.column_sums(model, [temperature])[0] == pytest.approx(found.best[:, -1].sum())


def test_a_climb_passes_what_its_starts_can_reach():
    # site 0 listens to site 1 only where sites 2 and 3 hold token 1: no start is so, and a climb can get there
    table = np.zeros((4, 2, 2, 2, 2))
    table[0, 0, 0] = table[0, 1, 1] = [[0.1, 0.5], [0.5, 3.0]]
    model, starts = TabularModel(table), [[0, 0, 0, 0]]
    options = {"rounds": 40, "candidates": 3, "seed": 0}
    climbed, drawn = (search_column(model, starts, 1, climb=climb, **options).best[0, -1] for climb in (True, False))
    assert climbed == pytest.approx(np.tanh(1.5)) and drawn == pytest.approx(np.tanh(0.05))


def test_the_influence_of_a_pair_is_what_is_measured_of_it():
    model, x = random_table(3, 3), np.array([[0, 1, 2]])
    measured = measure_influence(model, x, np.full((1, 3, 1), 2), [0.7, 2.0]).maximum  # at site 2 nothing changes
    found = pair_influence(model, np.tile(x, (2, 1)), [[0, 2, 2]] * 2, [0, 2], [0.7, 2.0])
    np.testing.assert_allclose(found, measured[:, [0, 2], 1].T, atol=1e-15)


def test_what_cannot_be_searched_is_refused():
    with pytest.raises(ValueError, match="influence needs two sites"):
        search_column(TabularModel([[0.0, 1.0, 2.0]]), [[1]], 0, rounds=3)
    with pytest.raises(ValueError, match="a replacement needs two tokens"):
        search_column(TabularModel(np.zeros((2, 1, 1))), [[0, 0]], 0, rounds=2)
    with pytest.raises(ValueError, match="site must be a whole number"):
        search_column(random_table(2, 3), [[0, 0]], 2, rounds=2)
    with pytest.raises(ValueError, match="x and y must have one shape"):
        pair_influence(random_table(2, 3), [[0, 0]], [[0, 0], [0, 1]], [0], [1.0])


def test_influence_at_a_tiny_temperature_is_that_of_the_largest_scores():
    model = random_table(2, 3)
    assert pair_influence(model, [[0, 0]], [[0, 1]], [0], [1e-320]).tolist() in ([[0.0]], [[1.0]])


@pytest.mark.parametrize("n_tokens", [2, 3, 4])
def test_a_small_vocabulary_is_searched_by_default_and_too_many_candidates_are_refused(n_tokens):
    model = random_table(2, n_tokens)
    found, named = (
        search_column(model, [[0, 1]], 0, rounds=3, **options) for options in ({}, {"candidates": n_tokens})
    )
    np.testing.assert_array_equal(found.best, named.best)
    with pytest.raises(ValueError, match=f"candidates must be a whole number in 1..{2 * n_tokens - 1}"):
        search_column(model, [[0, 1]], 0, rounds=3, candidates=8)


def test_a_large_vocabulary_has_eight_candidates_by_default():
    model = random_table(2, 12)
    found, named = (search_column(model, [[0, 1]], 0, rounds=3, **options) for options in ({}, {"candidates": 8}))
    np.testing.assert_array_equal(found.best, named.best)


def test_a_search_at_a_temperature_below_all_others_finds_a_number_or_says_why_not(monkeypatch):
    try:
        best = search_column(random_table(2, 3), [[0, 1]], 0, 1e-320, rounds=3).best
        assert ((best >= 0) & (best <= 1)).all()
    except ValueError as error:
        assert "temperature" in str(error)
    monkeypatch.setattr("glauber_lib.search.pair_influence", lambda model, x, *_: np.full((len(x), 1), np.nan))
    with pytest.raises(ValueError, match="no influence at temperature 1e-320"):
        search_column(random_table(2, 3), [[0, 1]], 0, 1e-320, rounds=3)
