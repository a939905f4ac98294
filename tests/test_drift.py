"""Drift of a token's count against the transition matrix."""

import numpy as np
import pandas as pd
import pytest
from conftest import random_table
from hypothesis import given
from hypothesis import strategies as st

from glauber_lib import exact
from glauber_lib.drift import birth_death_time, scan_drift, states_with_count, token_drift
from glauber_lib.escape import time_count_escapes
from glauber_lib.models import TabularModel, all_states


def test_drift_is_the_expected_change_of_the_count(system):
    states = all_states(system.model.n_tokens, system.n)
    for token in (0, system.model.n_tokens - 1):
        count = (states == token).sum(1)
        table = token_drift(system.model, states, token, [0.5, 2.0])
        np.testing.assert_array_equal(table["count"], np.tile(count, 2))
        for temperature, rows in table.groupby("temperature"):
            matrix = exact.transition_matrix(system.model, system.n, temperature).toarray()
            change = count - count[:, None]
            np.testing.assert_allclose(rows.up, (matrix * (change == 1)).sum(1), atol=1e-6)
            np.testing.assert_allclose(rows.down, (matrix * (change == -1)).sum(1), atol=1e-6)
            np.testing.assert_allclose(rows.drift, (matrix * change).sum(1), atol=1e-6)


@pytest.mark.parametrize("gap", [1.0, 30.0, 60.0])
def test_drift_keeps_its_precision_when_it_is_tiny(gap):
    # the log of up / down is what certifies a basin: down must not be rounded to zero
    model = TabularModel.from_joint(np.array([[2 * gap, gap], [gap, 0]]))
    tail = np.exp(-gap) / (1 + np.exp(-gap))
    assert token_drift(model, [[0, 0]], 0, [1.0]).down[0] == pytest.approx(tail, rel=1e-9, abs=0)
    assert token_drift(model, [[0, 0]], 1, [1.0]).up[0] == pytest.approx(tail, rel=1e-9, abs=0)


@given(st.integers(1, 8), st.integers(2, 5), st.integers(0, 2**16), st.data())
def test_states_with_count_have_exactly_that_count(n, n_tokens, seed, data):
    states = np.random.default_rng(seed).integers(n_tokens, size=(6, n))
    token, count = data.draw(st.integers(0, n_tokens - 1)), data.draw(st.integers(0, n))
    made = states_with_count(states, token, count, seed=seed)
    assert ((made == token).sum(1) == count).all()
    assert made.min() >= 0 and made.max() < n_tokens
    kept = (made != token) & (states != token)
    np.testing.assert_array_equal(made[kept], states[kept])  # no other site is touched


def test_states_with_count_spreads_the_token_over_all_sites_and_leaves_its_input_alone():
    states = np.ones((400, 5), int)
    made = states_with_count(states, 0, 2)
    assert (states == 1).all()
    share = (made == 0).mean(0)
    assert np.abs(share - 0.4).max() < 4 * np.sqrt(0.24 / 400)


def test_an_impossible_count_is_refused():
    with pytest.raises(ValueError, match=r"count must lie in 0\.\.3, got 4"):
        states_with_count([[0, 1, 1]], 0, 4)


def test_a_scan_is_the_drift_of_each_token():
    model, states = random_table(4, 3), all_states(3, 4)[::7]
    scan = scan_drift(model, states, [2, 0], 2, [0.5, 1.0], seed=3)
    for token in (0, 2):
        alone = token_drift(model, states_with_count(states, token, 2, seed=3), token, [0.5, 1.0])
        pd.testing.assert_frame_equal(scan[scan.token == token].drop(columns="token").reset_index(drop=True), alone)
        assert (alone["count"] == 2).all()


@pytest.mark.parametrize("holding", ["path", "geometric"])
def test_a_count_of_independent_sites_is_a_birth_death_chain(holding):
    n, enter = 6, 0.7  # every site takes token 0 with probability 0.7
    ones = np.indices((2,) * n).sum(0)
    model = TabularModel.from_joint(np.log(enter) * (n - ones) + np.log(1 - enter) * ones)
    counts, floor = np.arange(3, n + 1), 2
    expected = birth_death_time((n - counts) / n * enter, counts / n * (1 - enter))
    states, matrix = all_states(2, n), exact.transition_matrix(model, n)
    above = np.flatnonzero((states == 0).sum(1) > floor)
    assert expected == pytest.approx(exact.escape_times(matrix, above)[0])  # state 0 holds the token everywhere
    options = {"repeats": 500, "n_steps": 100_000, "holding": holding}
    timed = time_count_escapes(model, np.zeros(n, int), 0, floor, 1.0, **options)
    assert timed.left.all()
    assert abs(timed.exposure.mean() - expected) < 4 * timed.exposure.std() / np.sqrt(500)
