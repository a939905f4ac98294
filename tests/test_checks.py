"""Counts, seeds, states, sites and tokens: what is accepted, and that every function asks before it asks a model."""

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import Watched, random_ising, random_table

from glauber_lib import exact, plotting
from glauber_lib.chains import run_chains
from glauber_lib.checks import check_count, check_indices, check_question, check_states, check_whole
from glauber_lib.contraction import drawn_influence
from glauber_lib.couplings import coalesce
from glauber_lib.crossover import couple_passages
from glauber_lib.drift import (
    predict_count_escape,
    scan_drift,
    states_with_count,
    summarize_drift,
    summarize_scan,
    token_drift,
)
from glauber_lib.escape import observed_stays, time_count_escapes, time_escapes
from glauber_lib.incompatibility import Rectangles, measure_rectangles, sample_rectangles
from glauber_lib.influence import measure_influence, replacement_tokens
from glauber_lib.instruments import LexicalTopicScorer
from glauber_lib.kernels import run
from glauber_lib.margins import (
    basin_escape_times,
    describe_trap,
    escape_probability,
    log_pseudo_likelihood,
    score_gaps,
)
from glauber_lib.models import RestrictedModel
from glauber_lib.paper.passages import readable_passages
from glauber_lib.search import pair_influence, search_column
from glauber_lib.strips import escape_by_counts, mean_lead, run_in_strip
from glauber_lib.topics import choose_seeds
from glauber_lib.trapping import grow_sets


@pytest.mark.parametrize("value", [5, 5.0, np.int8(5), np.uint64(5), np.float32(5), np.array(5), torch.tensor(5)])
def test_whole_numbers_of_every_kind_are_counts(value):
    found = check_count(value, "n")
    assert found == 5 and type(found) is int


@pytest.mark.parametrize("value", [-1, 10, 1.5, np.nan, np.inf, True, np.True_, "5", None, [5], np.array([5]), 5j])
def test_what_is_no_count_is_refused_by_name(value):
    with pytest.raises(ValueError, match=r"n must be a whole number in 0\.\.9, got "):
        check_count(value, "n", most=9)


@pytest.mark.parametrize("values", [[1, -1], [0.5], [np.inf], [np.nan], [True], ["1"], np.array([2**63], np.uint64)])
def test_arrays_of_other_than_whole_numbers_are_refused(values):
    with pytest.raises(ValueError, match="k must be whole numbers >= 0, got"):
        check_whole(values, "k")


def test_indices_count_from_the_beginning_alone():
    assert check_indices([0, 2], 3, "sites").tolist() == [0, 2]
    for values in ([-1], [3], [0.0], [True], ["0"]):
        with pytest.raises(ValueError, match=r"sites must be integers in 0\.\.2, got"):
            check_indices(values, 3, "sites")


def test_fills_stand_at_the_end_of_a_state_or_nowhere():
    ragged = check_states([[0, 1, 2], [1]])
    np.testing.assert_array_equal(check_states(ragged, 3, fills=True), ragged)
    with pytest.raises(ValueError, match=r"states must hold tokens 0\.\.2, got -1\.\.2; -1 fills up a short state"):
        check_states(ragged, 3)
    for hole in ([[0, -1, 2]], [[-1, 0, 0]], [[-1, -1, -1]]):
        with pytest.raises(ValueError, match="filled up with -1 at their end alone"):
            check_states(np.array(hole), 3, fills=True)


QUESTIONS = [
    ([[0, 1]], [2], r"sites must be integers in 0\.\.1, got 2"),
    ([[0, 1]], [-1], r"sites must be integers in 0\.\.1, got -1"),
    ([[0, -1]], [0], r"tokens of states must be integers in 0\.\.2, got -1"),
    ([[0, 3]], [0], r"tokens of states must be integers in 0\.\.2, got 0\.\.3"),
    ([[0.0, 1.0]], [0], "tokens of states must be integers"),
    ([[0, 1]], [0.0], "sites must be integers"),
    ([[0, 1]], [True], "sites must be integers"),
    ([[0, 1], [0, 1]], [0], r"one site for each of 2 states, got shape \(1,\)"),
    ([[0, 1]], 0, "one site for each of 1 states"),
    ([0, 1], [0], "states must have shape"),
    ([[0, 1, 1]], [0], r"states must have shape \(B, 2\), got \(1, 3\)"),
]


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor, list])
@pytest.mark.parametrize("states, sites, message", QUESTIONS)
def test_a_question_about_what_is_not_there_is_refused(states, sites, message, kind):
    sites = sites if kind is list else kind(sites)
    with pytest.raises(ValueError, match=message):
        check_question(kind(states), sites, 3, 2)


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor, list, lambda x: np.asarray(x, np.int32)])
def test_a_question_about_what_is_there_passes(kind):
    check_question(kind([[0, 2], [1, 1]]), kind([1, 0]), 3, 2)
    check_question(np.zeros((0, 2), int), np.zeros(0, int), 3, 2)


MODELS = {
    "table": lambda: random_table(3, 2),
    "ising": lambda: random_ising(3),
    "restricted": lambda: RestrictedModel(random_table(4, 3), [0, 1, 2, 0], [0, 1, 3], [2, 0]),
}


@pytest.mark.parametrize("model", MODELS)
def test_models_refuse_tokens_and_sites_that_they_lack(model):
    model = MODELS[model]()
    assert model.scores(np.zeros((2, 3), int), np.array([0, 2])).shape == (2, 2)
    assert model.scores(np.zeros((0, 3), int), np.zeros(0, int)).shape == (0, 2)
    for states, sites in (([[0, 0, 0]], [-1]), ([[0, 0, 0]], [3]), ([[0, -1, 0]], [0]), ([[0, 2, 0]], [0]),
                          ([[0, 0]], [0]), ([[0, 0, 0]] * 2, [0])):  # fmt: skip
        with pytest.raises(ValueError, match=r"must be integers in|must have shape|need one site"):
            model.scores(np.array(states), np.array(sites))


@pytest.mark.parametrize(
    "template, sites, tokens",
    [([0, 1, -1], [0], [0, 1]), ([0, 1, 3], [0], [0, 1]), ([0, 1, 2], [-1], [0, 1]), ([0, 1, 2], [3], [0, 1]),
     ([0, 1, 2], [0], [-1, 1]), ([0, 1, 2], [0], [0, 3]), ([0, 1, 2], [], [0, 1]), ([0, 1, 2], [0], []),
     ([0, 1, 2], [0.0], [0, 1]), ([0, 1, 2], 0, [0, 1]), ([[0, 1, 2]], [0], [0, 1])],
)  # fmt: skip
def test_a_small_system_is_of_sites_and_tokens_that_are_there(template, sites, tokens):
    with pytest.raises(ValueError):
        RestrictedModel(random_table(3, 3), template, sites, tokens)


# Every function that takes them --------------------------------------------------------------------------------------

X = [[0, 1, 2], [2, 1, 0]]
FILLED = np.array([[0, 1, 2], [2, 1, -1]])
STRAY = [[0, 1, 3], [2, 1, 0]]
R = np.ones((2, 3, 2), int)
ASKS_OF_STATES = {
    "sample_rectangles": lambda m, x: sample_rectangles(m, x, 3),
    "measure_rectangles": lambda m, x: measure_rectangles(
        m, Rectangles(np.asarray(x), *np.array([[0, 0, 1, 1, 2]] * 2).T)
    ),
    "replacement_tokens": lambda m, x: replacement_tokens(m, x, 2),
    "measure_influence": lambda m, x: measure_influence(m, x, R, [1.0]),
    "pair_influence": lambda m, x: pair_influence(m, x, np.array(X), [0, 1], [1.0]),
    "search_column": lambda m, x: search_column(m, x, 0, rounds=2, candidates=2),
    "drawn_influence": lambda m, x: drawn_influence(m, x, 1.0),
    "grow_sets": lambda m, x: grow_sets(m, x, 1.0, cap=3),
    "run_in_strip": lambda m, x: [
        run_in_strip(m, row, int(row[0]), 0, 1.0, n_chains=2, epochs=2, n_steps=5) for row in x[::-1]
    ],
    "couple_passages": lambda m, x: couple_passages(m, x, [1.0], n_pairs=1, n_steps=5),
    "score_gaps": lambda m, x: score_gaps(m, x[1]) + score_gaps(m, x[0]),
    "escape_probability": lambda m, x: [escape_probability(m, row, 1.0) for row in x[::-1]],
    "describe_trap": lambda m, x: [describe_trap(m, row, 1.0) for row in x[::-1]],
    "log_pseudo_likelihood": lambda m, x: log_pseudo_likelihood(m, x),
    "basin_escape_times": lambda m, x: basin_escape_times(m, x, 1.0),
    "time_escapes": lambda m, x: time_escapes(m, x[0], x, 1.0, repeats=2, n_steps=5),
    "time_count_escapes": lambda m, x: [time_count_escapes(m, row, 2, 0, 1.0, repeats=2, n_steps=5) for row in x[::-1]],
    "token_drift": lambda m, x: token_drift(m, x, 0, [1.0]),
    "scan_drift": lambda m, x: scan_drift(m, x, [0], [1], [1.0]),
    "margin": lambda m, x: exact.margin(m, x),
    "run": lambda m, x: run(m, x, n_steps=2),
}


@pytest.mark.parametrize("function", ASKS_OF_STATES)
def test_states_that_are_filled_up_or_hold_stray_tokens_are_refused_before_a_model_is_asked(function):
    ask = ASKS_OF_STATES[function]
    ask(random_table(3, 3), np.array(X))
    bad = [FILLED] if function == "scan_drift" else [FILLED, np.array(STRAY)[::-1]]
    for states in bad:
        watched = Watched(random_table(3, 3))
        with pytest.raises(ValueError, match=r"tokens 0\.\."):
            ask(watched, states)
        assert watched.calls == 0


STRIP = token_drift(random_table(3, 3), [[0, 0, 0]], 0, [1.0]).assign(token=0)
BAD_NUMBERS = {
    "rectangles, n": lambda m, k: sample_rectangles(m, X, k),
    "rectangles, top": lambda m, k: sample_rectangles(m, X, 3, top=k),
    "rectangles, seed": lambda m, k: sample_rectangles(m, X, 3, seed=k or -1),
    "replacements, n": lambda m, k: replacement_tokens(m, X, k),
    "replacements, seed": lambda m, k: replacement_tokens(m, X, 2, seed=k or -1),
    "search, site": lambda m, k: search_column(m, X, k or -1, rounds=2),
    "search, rounds": lambda m, k: search_column(m, X, 0, rounds=k),
    "search, candidates": lambda m, k: search_column(m, X, 0, rounds=2, candidates=k or -1),
    "search, seed": lambda m, k: search_column(m, X, 0, rounds=2, seed=k or -1),
    "drawn changes, seed": lambda m, k: drawn_influence(m, X, 1.0, seed=k or -1),
    "growth, cap": lambda m, k: grow_sets(m, X, 1.0, cap=k),
    "strip, chains": lambda m, k: run_in_strip(m, X[0], 2, 0, 1.0, n_chains=k, epochs=2, n_steps=5),
    "strip, epochs": lambda m, k: run_in_strip(m, X[0], 2, 0, 1.0, n_chains=2, epochs=k, n_steps=5),
    "strip, token": lambda m, k: run_in_strip(m, X[0], k or -1, 0, 1.0, n_chains=2, epochs=2, n_steps=5),
    "strip, seed": lambda m, k: run_in_strip(m, X[0], 2, 0, 1.0, n_chains=2, epochs=2, n_steps=5, seed=k or -1),
    "pairs of passages, pairs": lambda m, k: couple_passages(m, X, [1.0], n_pairs=k, n_steps=5),
    "pairs of passages, steps": lambda m, k: couple_passages(m, X, [1.0], n_pairs=1, n_steps=k or -1),
    "pairs of passages, seed": lambda m, k: couple_passages(m, X, [1.0], n_pairs=1, n_steps=5, seed=k or -1),
    "escapes, repeats": lambda m, k: time_escapes(m, X[0], X, 1.0, repeats=k, n_steps=5),
    "escapes, n_steps": lambda m, k: time_escapes(m, X[0], X, 1.0, repeats=2, n_steps=k or -1),
    "escapes, seed": lambda m, k: time_escapes(m, X[0], X, 1.0, repeats=2, n_steps=5, seed=k or -1),
    "counts, token": lambda m, k: time_count_escapes(m, X[0], k or -1, 0, 1.0, repeats=2, n_steps=5),
    "counts, floor": lambda m, k: time_count_escapes(m, X[0], 0, k or -1, 1.0, repeats=2, n_steps=5),
    "drift, token": lambda m, k: token_drift(m, X, k or -1, [1.0]),
    "drift, count": lambda m, k: states_with_count(X, 0, k or -1),
    "drift, seed": lambda m, k: states_with_count(X, 0, 1, seed=k or -1),
    "scan, tokens": lambda m, k: scan_drift(m, X, [k or -1], [1], [1.0]),
    "prediction, floor": lambda m, k: predict_count_escape(m, STRIP, 3, 0, k or -1, 1.0),
    "prediction, token": lambda m, k: predict_count_escape(m, STRIP, 3, k or -1, 2, 1.0),
    "kernel, n_steps": lambda m, k: run(m, X, n_steps=k or -1),
    "kernel, seed": lambda m, k: run(m, X, n_steps=2, seed=k or -1),
    "tabulate": lambda m, k: exact.tabulate(m, k),
    "laws": lambda m, k: exact.conditional_laws(m, k),
    "matrix": lambda m, k: exact.transition_matrix(m, k),
}


@pytest.mark.parametrize("number", [0, -1, 1.5, np.nan, True, "1", None])
@pytest.mark.parametrize("function", BAD_NUMBERS)
def test_numbers_that_count_nothing_are_refused_before_a_model_is_asked(function, number):
    watched = Watched(random_table(3, 3))
    with pytest.raises(ValueError, match=r"must be (a )?whole number|must be one of"):
        BAD_NUMBERS[function](watched, number)
    assert watched.calls == 0


@pytest.mark.parametrize("make", [run, run_chains])
def test_chains_of_one_number_are_refused(make):
    watched = Watched(random_table(2, 3))
    with pytest.raises(ValueError, match=r"chain numbers must be distinct, got \[4\] more than once"):
        make(watched, [[0, 0], [1, 1], [0, 1]], n_steps=3, chains=[4, 1, 4])
    with pytest.raises(ValueError, match=r"pair numbers must be distinct, got \[4\] more than once"):
        coalesce(watched, [[0, 0], [1, 1]], [[1, 0], [1, 0]], n_steps=3, pairs=[4, 4])
    assert not watched.calls


FRAMES = {
    "summarize_drift": ("temperature up down drift lead", lambda f: summarize_drift(f, [0, 1])),
    "summarize_scan": ("token count temperature lead", summarize_scan),
    "predict_count_escape": (
        "token count temperature up down lead", lambda f: predict_count_escape(random_table(2, 3), f, 2, 0, 0, 1.0)
    ),
    "observed_stays": ("exposure left group", lambda f: observed_stays(f, "group")),
    "mean_lead": ("count up down weight", mean_lead),
    "escape_by_counts": ("count up down weight floor sites", escape_by_counts),
    "LexicalTopicScorer": ("text topic", LexicalTopicScorer),
    "readable_passages": ("text", lambda f: readable_passages(f, [])),
    "choose_seeds": ("id text", lambda f: choose_seeds(f, ["a"], 1, None)),  # type: ignore
    "interval_band": ("mean low high", lambda f: plotting.interval_band(None, [0, 1], f)),  # type: ignore
    "interval_bars": ("mean low high", lambda f: plotting.interval_bars(None, [0, 1], f)),  # type: ignore
    "moves_as_html": ("step held words sites before", plotting.moves_as_html),
}  # fmt: skip


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_without_a_column_is_refused_with_its_name(name):
    columns, function = FRAMES[name]
    for lacking in columns.split():
        frame = pd.DataFrame(1.0, index=range(2), columns=[c for c in columns.split() if c != lacking])
        with pytest.raises(ValueError, match=rf"must have the columns .*, lacks \['{lacking}'\], got \["):
            function(frame)
