"""What statistics are given: labels that are missing or of two kinds, masks, texts in place of numbers, flags."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from glauber_lib import (
    censored,
    checks,
    contraction,
    controls,
    incompatibility,
    laboratory,
    margins,
    models,
    permutation,
    readings,
    retention,
    stats,
    strips,
    survival,
    topics,
    traces,
    trapping,
    traps,
)

VALUES = np.arange(1.0, 9.0)


def test_a_missing_label_in_a_list_of_texts_is_seen():
    holes = [*"abcdef", np.nan, np.nan]
    calls = [
        lambda: stats.bootstrap_estimate(VALUES, groups=holes, unit="groups"),
        lambda: stats.bootstrap_interval(VALUES, groups=holes),
        lambda: stats.bootstrap_estimate(VALUES, groups=[*"abcdefg", None], unit="groups"),
        lambda: censored.group_weights(["a", "b", np.nan, np.nan], 3),
        lambda: permutation.group_difference(VALUES.reshape(4, 2), ["a", "b", np.nan, "a"]),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="missing"):
            call()


def test_texts_beside_numbers_are_no_labels():
    with pytest.raises(ValueError, match="all texts or all numbers"):
        stats.bootstrap_estimate(VALUES, groups=[1, 2, 3, 4, 5, 6, "1", "2"], unit="groups")


@pytest.mark.parametrize(
    "labels",
    [[2**63, 2**63 + 1, -1, 2, 3, 4], [2**53 + 1, 2**53, 1.5, 2, 3, 4], ["a", "a\0", "b", "c", "d", "e"]],
    ids=["large", "beside a fraction", "trailing zero"],
)
def test_labels_that_numpy_makes_equal_stay_apart(labels):
    assert stats.bootstrap_estimate(VALUES[:6], groups=labels, unit="groups").n == 6
    assert censored.group_weights(labels, 2).shape == (2, 6)


def test_labels_of_one_kind_stay_as_numpy_reads_them():
    for labels in (["a", "b"], [1, 2], [1.5, 2], [True, False], np.array([1, 2], np.int32)):
        assert checks.check_labels(labels, "groups").dtype == np.asarray(labels).dtype


def test_masked_values_do_not_count_in_silence():
    masked = np.ma.array([1.0, 2, 3, 1000, 2, 3], mask=[0, 0, 0, 1, 0, 0])
    seen = np.ones(6, bool)
    calls = [
        lambda: stats.bootstrap_estimate(masked, unit="rows"),
        lambda: stats.mean_band(masked[:, None]),
        lambda: stats.rank_correlation(masked, VALUES[:6]),
        lambda: permutation.holm(np.ma.array([0.01, 0.02, 0.9], mask=[0, 1, 0])),
        lambda: permutation.label_rises(np.ma.masked_greater(np.ones((1, 3, 3)), 0), [0, 1, 2]),
        lambda: survival.time_until(masked, seen, 0.5, unit="rows"),
        lambda: censored.fit_log_normal(masked, seen, np.ones((6, 1))),
        lambda: checks.check_states(np.ma.array([[1, 2]], mask=[[0, 1]])),
        lambda: checks.check_indices(np.ma.array([1, 2], mask=[0, 1]), 3, "sites"),
        lambda: checks.check_flags(np.ma.array([True, True], mask=[0, 1]), "flags"),
        lambda: checks.check_temperature(np.ma.array([1.0, 2], mask=[0, 1]), (2,)),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="mask"):
            call()
    assert stats.bootstrap_estimate(np.ma.array(VALUES), unit="rows").value == VALUES.mean()  # nothing is masked


def test_texts_of_digits_are_no_numbers():
    for call in (
        lambda: stats.rank_correlation(["10", "9", "8"], [10, 9, 8]),
        lambda: survival.time_until([1, 2, 3, 4], ["1", "0", "1", "1"], 0.5, unit="rows"),
        lambda: stats.bootstrap_interval(["1", "2", "4"]),
    ):
        with pytest.raises(ValueError, match=r"texts|true or false"):
            call()


def test_runs_are_of_flags_alone():
    for flags in ([0, np.nan, 1.0, 0], ["False", "True", "1"]):
        with pytest.raises(ValueError, match=r"true or false|texts"):
            stats.true_runs(flags)
    assert stats.true_runs([0, 1, 1, 0, 1]).tolist() == [[1, 3], [4, 5]]


PATHS = np.ma.array([[0, 1, 1, 2], [0, 0, 1, 1]], mask=[[0, 0, 0, 1], [0, 0, 1, 1]])
TIMES = np.ma.array([10.0, 20, 30, 1e6, 1e6], mask=[0, 0, 0, 1, 1])
MASKED = {
    "transition counts": lambda: topics.transition_counts(PATHS, 3),
    "dwell times": lambda: topics.dwell_times(PATHS, 1),
    "recurrence times": lambda: topics.recurrence_times(PATHS, 1),
    "persistence": lambda: topics.persistence(PATHS, "abc"),
    "persistence excess": lambda: topics.persistence_excess(PATHS, 3),
    "labels": lambda: topics.describe_labels(PATHS, "abc"),
    "reversible paths": lambda: topics.reversible_paths(PATHS, 3, np.random.default_rng(0)),
    "entropy": lambda: topics.measure_entropy_production(PATHS, 3, np.random.default_rng(0)),
    "exit ratio": lambda: retention.exit_ratio(TIMES, np.ones(5, bool), np.ones(5)),
    "exits": lambda: retention.exit_ratio(np.ones(5), np.ma.array(np.ones(5, bool), mask=TIMES.mask), np.ones(5)),
    "predicted exits": lambda: retention.exit_ratio(np.ones(5), np.ones(5, bool), TIMES),
    "durations": lambda: retention.duration_factor(TIMES, np.ones(5, bool), np.ones(5)),
    "predicted durations": lambda: retention.duration_factor(np.ones(5), np.ones(5, bool), TIMES),
    "concordance": lambda: retention.rank_concordance(np.arange(5), TIMES, np.ones(5, bool), np.arange(5)),
    "predictor": lambda: retention.rank_concordance(TIMES, np.arange(5), np.ones(5, bool), np.arange(5)),
    "overlap": lambda: readings.self_overlap(PATHS),
    "embeddings": lambda: readings.embed_states(None, None, PATHS),  # type: ignore
    "scores": lambda: readings.topic_scores(None, None, PATHS),  # type: ignore
    "shuffled sites": lambda: controls.shuffle_sites(PATHS, np.random.default_rng(0)),
}


RATES, OUT = np.array([[0.0, 0.2], [0.3, 0.0]]), np.array([0.1, 0.4])
MOVES = (np.array([0, 1]), np.array([0, 0]), np.array([1, 0]), np.array([2, 2]))  # steps, chains, sites, new tokens
START = np.zeros((1, 2), int)
ESTIMATE = stats.Estimate(0.5, (0.4, 0.6), 10, "chains")
RUN = strips.StripRun(pd.DataFrame(), np.array([[0, 1], [0, 0]]), np.array([0, 0]), np.array([3, 2]), 0)
LAW = models.TabularModel(np.zeros((2, 2, 2)))
TABLES = np.zeros((1, 2, 2, 2))


def replayed(initial=START, moves=MOVES):
    return traces.replay(initial, moves[0], moves[1:3], moves[3], [2], 2)


def moves_with(k, odd):
    return [odd(values) if j == k else values for j, values in enumerate(MOVES)]


NUMBERS = {  # what is measured, with some of it made odd: masked, or complex
    "rates": lambda odd: margins.log_exit_times(odd(RATES), OUT),
    "rates out": lambda odd: margins.log_exit_times(RATES, odd(OUT)),
    "moves within": lambda odd: trapping.factor_leaving(odd(RATES), OUT),
    "moves out": lambda odd: trapping.times_to_leave(RATES, odd(OUT)),
    "first states": lambda odd: replayed(odd(START)),
    **{f"moves, row {k}": lambda odd, k=k: replayed(moves=moves_with(k, odd)) for k in range(4)},
    "pieces of moves": lambda odd: traces.moves_before(2, [odd(np.zeros((5, 1), int))]),
    "visited states": lambda odd: strips.visited_drift(LAW, replace(RUN, states=odd(RUN.states)), 0, 1.0),
    "chains of visits": lambda odd: strips.visited_drift(LAW, replace(RUN, chain=odd(RUN.chain)), 0, 1.0),
    "steps of visits": lambda odd: strips.visited_drift(LAW, replace(RUN, steps=odd(RUN.steps)), 0, 1.0),
    "scores": lambda odd: topics.top_labels(odd(RATES)),
    "scores of looks": lambda odd: controls.first_crossings(odd(RATES), 0.1),
    "floor": lambda odd: incompatibility.opposite_signs(OUT, -OUT, floor=odd(np.zeros(()))),
    "tables": lambda odd: laboratory.price_table(odd(TABLES), [1.0]),
    "tables with margins": lambda odd: laboratory.all_margin_cases(odd(TABLES), [1.0]),
    "matrices": lambda odd: contraction.crossings(np.array([1.0, 2.0]), odd(np.zeros((1, 2, 2, 2)))),
    "steps of looks": lambda odd: traps.inside_runs([(0, 5)], odd(np.arange(3))),
    "a value": lambda odd: censored.resampled_interval(odd(np.array(1.0)), np.arange(40.0), 30),
    "a bound": lambda odd: stats.verdict(ESTIMATE, "inside", odd(np.array([0.1, 0.2]))),
    "an estimate": lambda odd: stats.Estimate(odd(np.array(1.0)), None, 3, "chains"),
    "an interval": lambda odd: stats.Estimate(1.0, odd(np.array([0.0, 2.0])), 3, "chains"),
    "a share": lambda odd: stats.share_estimate(odd(np.array(3)), 10, unit="chains"),
    "units": lambda odd: stats.share_estimate(3, odd(np.array(10)), unit="chains"),
}


@pytest.mark.parametrize("what", NUMBERS)
def test_numbers_are_neither_masked_nor_complex(what):
    call = NUMBERS[what]
    call(lambda values: values)
    first = lambda values: np.arange(values.size).reshape(values.shape) == 0  # noqa: E731
    with pytest.raises(ValueError, match=r"mask|whole number"):
        call(lambda values: np.ma.array(values, mask=first(values)))
    with pytest.raises(ValueError, match=r"real number|whole number|must be integers"):
        call(lambda values: values + 1j * first(values))


def test_a_condition_that_is_masked_is_refused():
    with pytest.raises(ValueError, match="what until returns must be an array without a mask"):
        traces.where_met(lambda states: np.ma.array([True], mask=[True]), START)


@pytest.mark.parametrize("what", MASKED)
def test_what_is_masked_is_refused(what):
    with pytest.raises(ValueError, match="must be an array without a mask"):
        MASKED[what]()


def test_infinite_predictions_are_equal_and_rows_of_another_shape_are_refused():
    with np.errstate(all="raise"):
        d = retention.rank_concordance([np.inf, np.inf, 1], [3, 2, 1], [True] * 3, [0, 1, 2])
    assert d == (1 + 1 + 0) / 3
    for x, y in ((np.zeros((3, 2)), np.zeros((2, 3))), (np.zeros(3), np.zeros(4)), (np.zeros((3, 2)),) * 2):
        with pytest.raises(ValueError, match="two rows of one length"):
            stats.rank_correlation(x, y)
    with pytest.raises(ValueError, match="values and survives must have shape"):
        controls.surviving_difference(np.zeros(4), np.ones((3, 4), bool))


def test_nothing_at_all_is_refused_in_words():
    with pytest.raises(ValueError, match="a curve needs a time"):
        survival.survival_curve([], [])
    with pytest.raises(ValueError, match="need a group"):
        censored.group_weights([], 3)
    with pytest.raises(ValueError, match="design must have shape"):
        censored.fit_log_normal([1.0, 2.0], [True, True], [1.0, 1.0])


def test_a_share_of_numpy_is_a_share():
    times = [1.0, 2, 3, 4, 5]
    one, other = (survival.time_until(times, [True] * 5, share, unit="units") for share in (0.6, np.float32(0.6)))
    assert one == other and one.value == 3
