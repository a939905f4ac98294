"""Chains inside a strip against exact quasi-stationary laws."""

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest

from glauber_lib import exact
from glauber_lib.drift import birth_death_time, token_drift
from glauber_lib.models import TabularModel, all_states
from glauber_lib.strips import escape_by_counts, mean_lead, run_in_strip, visited_drift

N, TOKEN, FLOOR = 5, 0, 2


def sticky_system():
    """Two tokens, five sites: the count of token 0 pulls itself up, with a different pull at every site."""
    states = all_states(2, N)
    ones = states.sum(1)
    field = states @ np.array([0.0, 0.3, 0.1, 0.5, 0.2])
    return TabularModel.from_joint((0.9 * (ones == 0) - 0.55 * ones + 0.5 * field).reshape((2,) * N))


def quasi_stationary(model):
    """States of the strip, their exact quasi-stationary law, and the probability to leave under it."""
    states = all_states(2, N)
    inside = np.flatnonzero((states == TOKEN).sum(1) > FLOOR)
    kernel = exact.transition_matrix(model, N).toarray()[np.ix_(inside, inside)]
    law, rate = np.ones(len(inside)), np.nan
    for _ in range(3_000):  # the power method: the left eigenvector of the largest eigenvalue
        law = law @ kernel
        rate, law = law.sum(), law / law.sum()
    return states[inside], law, 1 - rate


@pytest.fixture(scope="module")
def strip_run():
    return run_in_strip(
        sticky_system(), np.full(N, TOKEN), TOKEN, FLOOR, 1.0, n_chains=60, epochs=80, n_steps=60, seed=3
    )


def test_visits_follow_the_exact_quasi_stationary_law(strip_run):
    states, law, _ = quasi_stationary(sticky_system())
    spent = np.zeros((60, len(states)))
    for k, state in enumerate(states):
        same = (strip_run.states == state).all(1)
        spent[:, k] = np.bincount(strip_run.chain[same], strip_run.steps[same], minlength=60)
    shares = spent / spent.sum(1, keepdims=True)
    error = shares.std(0, ddof=1) / np.sqrt(60)
    assert (np.abs(shares.mean(0) - law) < 4.5 * error + 0.01 * law.max()).all()
    assert spent.sum() == strip_run.steps.sum()  # no other state was visited


def test_first_stays_have_the_exact_mean(strip_run):
    states = all_states(2, N)
    inside = np.flatnonzero((states == TOKEN).sum(1) > FLOOR)
    expected = exact.escape_times(exact.transition_matrix(sticky_system(), N), inside)[0]
    assert strip_run.first.left.all()
    assert abs(strip_run.first.exposure.mean() - expected) < 4 * expected / np.sqrt(60)


def test_mean_moves_of_the_quasi_stationary_law_give_the_rate_of_leaving():
    # at its exact weights the flows balance between counts, and the lowest count leaks what the law leaks
    model = sticky_system()
    states, law, leaving = quasi_stationary(model)
    counts = (states == TOKEN).sum(1)
    visited = token_drift(model, states, TOKEN, [1.0]).assign(weight=law, floor=FLOOR, sites=N)
    down = np.array([(visited.down * law)[counts == c].sum() for c in range(FLOOR + 1, N + 1)])
    up = np.array([(visited.up * law)[counts == c].sum() for c in range(FLOOR + 1, N + 1)])
    assert down[0] == pytest.approx(leaving, rel=1e-6)
    np.testing.assert_allclose(
        down[1:] - up[:-1], leaving * np.array([law[counts > c].sum() for c in (3, 4)]), rtol=1e-4
    )
    assert escape_by_counts(visited) == pytest.approx(1 / leaving, rel=0.35)


def test_every_visited_state_counts_by_the_time_spent_in_it(strip_run):
    model = sticky_system()
    found = visited_drift(model, strip_run, TOKEN, 1.0)
    assert found.weight.sum() == strip_run.steps.sum()
    chain = strip_run.chain[0]
    mine = strip_run.chain == chain
    states, steps = strip_run.states[mine], strip_run.steps[mine]
    drift = token_drift(model, states, TOKEN, [1.0])
    rows = found[found.chain == chain]
    assert len(rows) == len(np.unique(states, axis=0))
    for column in ("up", "down"):
        assert (rows[column] * rows.weight).sum() == pytest.approx((drift[column] * steps).sum())


def test_leads_of_visited_states_are_those_of_the_exact_law(strip_run):
    model = sticky_system()
    states, law, _ = quasi_stationary(model)
    exactly = mean_lead(token_drift(model, states, TOKEN, [1.0]).assign(weight=law))
    found = mean_lead(visited_drift(model, strip_run, TOKEN, 1.0))
    assert list(found.index) == [3, 4, 5] and np.isneginf(found[5]) and np.isneginf(exactly[5])
    np.testing.assert_allclose(found[[3, 4]], exactly[[3, 4]], atol=0.2)


def test_a_start_outside_and_a_single_epoch_are_refused():
    enter = partial(run_in_strip, sticky_system(), token=TOKEN, floor=FLOOR, temperature=1.0, n_chains=2, n_steps=10)
    with pytest.raises(ValueError, match="above the floor 2"):
        enter(start=np.ones(N, int), epochs=2)
    with pytest.raises(ValueError, match="epochs must be a whole number >= 2"):
        enter(start=np.zeros(N, int), epochs=1)


@pytest.mark.parametrize("column", ["count", "up", "down", "weight"])
def test_a_row_of_no_number_is_refused_and_not_left_out(column):
    visited = pd.DataFrame({"count": [3, 3, 4.0], "up": 0.1, "down": 0.2, "weight": 1.0, "floor": 2, "sites": 4})
    assert escape_by_counts(visited) == pytest.approx(birth_death_time([0.1, 0.1], [0.2, 0.2]))
    for wrong in (np.nan, -1.0, np.inf):
        bad = visited.copy()
        bad.loc[1, column] = wrong
        for read in (escape_by_counts, mean_lead):
            with pytest.raises(ValueError, match=r"must be numbers >= 0 in every row, got 1 of 3 without"):
                read(bad)


def test_a_run_is_read_with_the_token_temperature_and_model_that_made_it(strip_run):
    model, other = sticky_system(), TabularModel(sticky_system()._rows.numpy().reshape((N,) + (2,) * N) * 2)
    for change, message in (
        ((other, TOKEN, 1.0), "was made by the model"),
        ((model, 1 - TOKEN, 1.0), "made with token 0, got 1"),
        ((model, TOKEN, 2.0), "made with temperature 1.0, got 2.0"),
    ):
        asked, *rest = change
        with pytest.raises(ValueError, match=message):
            visited_drift(asked, strip_run, *rest)
        unknown = replace(strip_run, token=None, temperature=None, model="", model_checksum="")
        assert len(visited_drift(asked, unknown, *rest))  # as an earlier version left it
    assert len(visited_drift(sticky_system(), strip_run, TOKEN, 1.0))
