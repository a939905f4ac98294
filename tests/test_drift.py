"""Drift of a token's count against the transition matrix."""

import warnings

import numpy as np
import pandas as pd
import pytest
from conftest import random_table
from hypothesis import given
from hypothesis import strategies as st

from glauber_lib import exact
from glauber_lib.drift import (
    birth_death_time,
    predict_count_escape,
    scan_drift,
    states_with_count,
    summarize_drift,
    summarize_scan,
    token_drift,
)
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
    with pytest.raises(ValueError, match=r"count must be a whole number in 0\.\.3, got 4"):
        states_with_count([[0, 1, 1]], 0, 4)


def test_the_lead_is_a_logarithm_where_both_moves_exist_and_nan_elsewhere():
    model = random_table(3, 3)
    table = token_drift(model, all_states(3, 3), 1, [0.7])
    inner = table["count"].between(1, 2)
    np.testing.assert_allclose(table.lead[inner], np.log(table.up[inner]) - np.log(table.down[inner]))
    assert table.lead[~inner].isna().all() and not inner.all()


def test_a_scan_is_the_drift_of_each_token_at_each_count():
    model, states = random_table(4, 3), all_states(3, 4)[::7]
    scan = scan_drift(model, states, [2, 0], [2, 4], [0.5, 1.0], seed=3)
    assert len(scan) == 2 * 2 * 2 * len(states)
    for token in (0, 2):
        for count in (2, 4):
            alone = token_drift(model, states_with_count(states, token, count, seed=3), token, [0.5, 1.0])
            part = scan[(scan.token == token) & (scan["count"] == count)]
            pd.testing.assert_frame_equal(part.drop(columns="token").reset_index(drop=True), alone)


def test_a_summary_of_a_scan_says_where_the_least_lead_is_lost():
    leads = {(0, 2): [(2.0, 3.0), (1.0, 5.0), (-1.0, 4.0)], (0, 3): [(1.0, 2.0)] * 3, (1, 2): [(-1.0, 9.0)] * 3}
    rows = [
        {"token": token, "count": count, "temperature": temperature, "lead": lead}
        for (token, count), values in leads.items()
        for temperature, pair in zip((1.0, 10.0, 100.0), values, strict=True)
        for lead in pair
    ]
    table = summarize_scan(pd.DataFrame(rows)).set_index(["token", "count"])
    assert list(table.lead) == [2.0, 1.0, -1.0]
    np.testing.assert_allclose(table.allowed, np.exp([2.0, 2.0, 0.0]))
    np.testing.assert_allclose(table.lost, [10**1.5, np.inf, np.nan])


def test_a_lead_that_float64_does_not_hold_is_lost_where_it_turns():
    scan = pd.DataFrame({"token": 1, "count": 3, "temperature": [0.1, 1.0, 2.0], "lead": [np.inf, -0.5, -1.0]})
    assert summarize_scan(scan).lost[0] == pytest.approx(1.0)


def test_an_escape_time_beyond_float64_is_infinite_without_a_warning():
    scan = pd.DataFrame({"token": 1, "count": 19, "temperature": [0.05], "lead": [87.0]})
    with warnings.catch_warnings(action="error"):
        assert summarize_scan(scan).allowed[0] == np.inf


def test_a_summary_of_drift_resamples_groups():
    model, states = random_table(4, 3), states_with_count(all_states(3, 4), 1, 2)
    drift = token_drift(model, states, 1, [0.5, 1.0])
    table = summarize_drift(drift, np.arange(len(states)) % 9).set_index("temperature")
    for temperature, rows in drift.groupby("temperature"):
        mine = table.loc[temperature]
        assert mine.states == len(states) and mine["least"] == rows.drift.min() and mine.lead == rows.lead.min()
        assert mine.low < mine["median"] == np.median(rows.drift) < mine.high
        assert mine.positive == (rows.drift > 0).mean()
    one = summarize_drift(drift, np.zeros(len(states)))
    assert one.low.isna().all()  # one group has no interval


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


def test_predictions_of_a_count_escape_are_exact_for_independent_sites():
    n, enter = 5, 0.7  # every site takes token 0 with probability 0.7
    ones = np.indices((2,) * n).sum(0)
    model = TabularModel.from_joint(np.log(enter) * (n - ones) + np.log(1 - enter) * ones)
    strip = scan_drift(model, all_states(2, n), [0], [2, 3, 4, 5], [1.0])
    found = predict_count_escape(model, strip, n, 0, 1, 1.0)
    above = np.flatnonzero((all_states(2, n) == 0).sum(1) > 1)
    exactly = exact.escape_times(exact.transition_matrix(model, n), above)[0]
    assert found["birth_death"] == pytest.approx(exactly) and found["first_move"] == pytest.approx(1 / (1 - enter))
    assert found["lead"] == pytest.approx(np.log(0.2 * enter / (0.8 * (1 - enter)))) and found["bound"] == 1
    with pytest.raises(ValueError, match=r"the counts 1 to 5, got \[2, 3, 4, 5\]"):
        predict_count_escape(model, strip, n, 0, 0, 1.0)


def test_a_step_down_without_a_chance_takes_for_ever():
    assert birth_death_time([0.1, 0.0], [0.2, 0.0]) == np.inf
    assert birth_death_time([0.0, 0.0], [0.5, 0.0]) == np.inf
    assert birth_death_time([0.1, 0.0], [0.2, 0.25]) == pytest.approx(4 + (1 + 0.1 * 4) / 0.2)


def test_a_nan_among_the_states_is_not_skipped():
    columns = ["temperature", "count", "up", "down", "drift", "lead"]
    rows = [(1.0, 3, 0.2, 0.1, 0.1, np.log(2)), (1.0, 3, 0.3, 0.1, 0.2, np.log(3)), (2.0, 3, 0.2, 0.1, 0.1, np.log(2))]
    drift = pd.DataFrame([*rows, (2.0, 3, np.nan, 0.1, np.nan, np.nan)], columns=columns)
    first, second = summarize_drift(drift, [0, 1]).to_dict("records")
    assert (first["positive"], first["least"], first["lead"]) == (1.0, 0.1, np.log(2))
    assert np.isnan([second[name] for name in ("positive", "least", "median", "lead", "low", "high", "up")]).all()
    scan = drift.assign(token=7)
    strip, model = scan.assign(down=scan.down.where(scan.up.notna())), TabularModel(np.zeros((3, 8, 8, 8)))
    assert np.isnan(predict_count_escape(model, strip, 3, 7, 2, 2.0)["birth_death"])
    assert summarize_scan(scan[scan.temperature == 1.0]).lead.tolist() == [np.log(2)]
    assert summarize_scan(scan[scan.temperature == 2.0])[["lead", "allowed", "lost"]].isna().all(axis=None)


@pytest.mark.parametrize("gap", [1.0, 800.0, 5_000.0])
def test_a_lead_stays_finite_where_probabilities_are_below_float64(gap):
    model = TabularModel.from_joint(np.array([[2 * gap, gap], [gap, 0]]))  # token 0 leads by the gap at every site
    table = token_drift(model, [[0, 1], [0, 0]], 0, [1.0])
    assert table.lead[0] == pytest.approx(gap) and np.isnan(table.lead[1])
    assert token_drift(model, [[0, 1]], 1, [1.0]).lead[0] == pytest.approx(-gap)
    assert np.isfinite(token_drift(model, [[0, 1]], 0, [1e-4 * gap]).lead).all()


def test_a_lead_is_infinite_where_one_move_is_banned_and_unknown_where_both_are():
    banned = np.array([0.0, -np.inf])
    for scores, lead in ((banned, np.inf), (banned[::-1], -np.inf)):  # of token 0, then of token 1 at both sites
        model = TabularModel(np.stack([np.tile(scores[:, None], (1, 2)), np.tile(scores, (2, 1))]))
        assert token_drift(model, [[0, 1]], 0, [0.7]).lead[0] == lead
    scores = np.array([[0.0, 0.0], [-np.inf, -np.inf]])  # of tokens 0 and 1 at one site, whatever stands at the other
    neither = TabularModel(np.stack([scores, scores[::-1].T]))  # at site 0 always token 0, at site 1 always token 1
    assert np.isnan(token_drift(neither, [[0, 1]], 0, [0.7]).lead[0])


def test_drift_at_the_lowest_of_temperatures_is_that_of_the_best_token():
    table = token_drift(random_table(2, 3), all_states(3, 2), 0, [1e-320])
    assert set(table.up) | set(table.down) <= {0.0, 0.5, 1.0}


def test_a_bound_beyond_float64_is_infinite_without_a_warning():
    scan = pd.DataFrame({"token": 1, "count": 3, "temperature": [0.1, 1.0], "lead": [900.0, 800.0]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert summarize_scan(scan).allowed[0] == np.inf


def test_counts_are_read_once_for_all_tokens(tiny):
    model, states = tiny["bert"], [[3, 4, 5, 6]]
    lists = scan_drift(model, states, [7, 8], [1, 2], [1.0])
    assert lists.equals(scan_drift(model, states, iter([7, 8]), iter([1, 2]), [1.0])) and set(lists.token) == {7, 8}


def test_a_scan_of_several_tokens_or_counts_is_not_summarized_as_one():
    model = random_table(2, 3, seed=4)
    states = np.random.default_rng(0).integers(3, size=(4, 2))
    for tokens, counts in (([0, 1], [1]), ([0], [1, 2])):
        scan = scan_drift(model, states, tokens, counts, [0.5, 1.0])
        with pytest.raises(ValueError, match=r"must be of one (token|count), got"):
            summarize_drift(scan, [*range(4)] * 2)
        one = scan[(scan.token == 0) & (scan["count"] == 1)]
        assert (summarize_drift(one, range(4)).states == 4).all()
