"""What a chain's moves look like as HTML, and what the figures show of tables with intervals."""

import html
import warnings
import xml.etree.ElementTree as ElementTree

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from conftest import corpus

from glauber_lib.chains import run_chains
from glauber_lib.plotting import (
    PAGE,
    component_labels,
    interval_band,
    interval_bars,
    literal,
    matrix,
    moves_as_html,
    panels,
    plain_ticks,
    trajectory,
    value_ticks,
)
from glauber_lib.readings import moves_in_words


def read_table(text):
    """Class and header of a table, and of every other row its cells and the `mark` elements of the last one."""
    table = ElementTree.fromstring(text)
    head, *rows = table
    cells = [["".join(cell.itertext()) for cell in row] for row in rows]
    return table.get("class"), [cell.tag for cell in head], cells, [row[2].findall("mark") for row in rows]


@pytest.mark.parametrize("row", [0, 2])
@pytest.mark.slow
def test_a_table_shows_the_asked_moves_of_its_chain_and_marks_the_changed_tokens(masked_lm, row):
    trace = run_chains(masked_lm, masked_lm.states(corpus(masked_lm)[:3], n=7), n_steps=60, temperature=2.0)
    states, entered, durations = trace.visits(row)
    moves = [0, 1, 4, len(states) - 2]
    kind, head, cells, marks = read_table(moves_as_html(moves_in_words(masked_lm, trace, row, moves)))
    assert kind == "glauber-chain" and head == ["th"] * 3 and len(cells) == 1 + len(moves)
    assert len(states) > 8 and marks[0] == []
    for k, line, marked in zip([0, *(m + 1 for m in moves)], cells, marks, strict=True):
        assert line == [str(entered[k]), str(durations[k]), " ".join(masked_lm.words(states[k]))]
        if k == 0:
            continue
        (site,) = np.flatnonzero(states[k] != states[k - 1])
        (mark,) = marked
        assert mark.text == masked_lm.words(states[k])[site]
        assert mark.get("title") == f"before: {masked_lm.words(states[k - 1])[site]}"


def test_the_mark_stands_at_the_changed_site_even_where_its_token_occurs_twice(tiny):
    model = tiny["bert"]
    state = np.tile(model.tokens("the")[0], 6)
    trace = run_chains(model, [state], n_steps=40, temperature=50.0)
    states = trace.visits(0)[0]
    for m in range(len(states) - 1):
        cell = ElementTree.fromstring(moves_as_html(moves_in_words(model, trace, 0, [m])))[2][2]
        (site,) = np.flatnonzero(states[m + 1] != states[m])
        assert (cell.text or "").split() == model.words(states[m + 1])[:site]
        assert (cell[0].tail or "").split() == model.words(states[m + 1])[site + 1 :]


def test_characters_of_html_are_escaped(tiny):
    model = tiny["roberta"]
    text = """<b>&amp;"'</b>"""
    state = model.tokens(text)
    assert "".join(model.words(state)) == text
    trace = run_chains(model, [state], n_steps=150, temperature=50.0)
    states = trace.visits(0)[0]
    table = moves_as_html(moves_in_words(model, trace, 0, range(len(states) - 1)))
    assert "<b>" not in table and html.escape(text[:1]) in table
    _, _, cells, marks = read_table(table)
    assert [line[2] for line in cells] == [" ".join(model.words(state)) for state in states]
    before = [mark.get("title").removeprefix("before: ") for (mark,) in marks[1:]]
    assert {"<", ">", "&", '"', "'"} <= set(before)  # all of them were replaced


def test_a_move_of_several_sites_is_marked_at_each_of_them():
    rows = [(0, 3, ["a", "b", "c"], [], []), (3, 2, ["x", "b", "y"], [0, 2], ["a", "c"])]
    table = pd.DataFrame(rows, columns=["step", "held", "words", "sites", "before"])
    _, _, cells, marks = read_table(moves_as_html(table))
    assert cells == [["0", "3", "a b c"], ["3", "2", "x b y"]]
    assert [(mark.text, mark.get("title")) for mark in marks[1]] == [("x", "before: a"), ("y", "before: c")]


def test_bars_and_bands_end_where_the_intervals_do():
    table = pd.DataFrame({"mean": [0.2, 0.5], "low": [0.1, 0.5], "high": [0.6, 0.8]}, index=[7, 8])
    figure, axis = plt.subplots()
    bars = interval_bars(axis, [1.0, 2.0], table, color="black")
    ends = np.array([segment[:, 1] for segment in bars.lines[2][0].get_segments()])
    np.testing.assert_allclose(ends, table[["low", "high"]])
    np.testing.assert_allclose(bars.lines[0].get_xydata(), [[1.0, 0.2], [2.0, 0.5]])
    line = interval_band(axis, [1.0, 2.0], table, color="red")
    np.testing.assert_allclose(line.get_ydata(), table["mean"])
    corners = {tuple(corner) for corner in axis.collections[-1].get_paths()[0].vertices.round(9).tolist()}
    assert corners == {(1.0, 0.1), (1.0, 0.6), (2.0, 0.5), (2.0, 0.8)}
    plt.close(figure)


def test_ticks_are_plain_numbers_and_no_others():
    figure, axis = plt.subplots()
    axis.loglog([0.25, 20], [7, 150])
    value_ticks(axis, [0.25, 0.5, 20])
    assert len(axis.yaxis.get_minorticklocs()) > 5  # along x alone
    plain_ticks(axis.yaxis)
    figure.canvas.draw()
    labels = lambda side: [text.get_text() for text in side.get_ticklabels(which="both") if text.get_text()]  # noqa: E731
    assert labels(axis.xaxis) == ["0.25", "0.5", "20"] and labels(axis.yaxis) == ["10", "30", "100"]
    plt.close(figure)


@pytest.mark.parametrize(
    "low, high, expected",
    [
        (7e3, 2e8, ["10000", "30000", *(rf"${d}10^{{{p}}}$" for p in range(5, 9) for d in ("", r"3\cdot"))][:9]),
        (2e4, 2e6, ["30000", "$10^{5}$", r"$3\cdot10^{5}$", "$10^{6}$"]),
        (5e-9, 2e-6, [r"$10^{-8}$", r"$3\cdot10^{-8}$", r"$10^{-7}$", r"$3\cdot10^{-7}$", r"$10^{-6}$"]),
        (0.5, 4e30, ["1", "10000", *(f"$10^{{{p}}}$" for p in range(8, 31, 4))]),
        (4, 9.5, ["4", "5", "6", "7", "8", "9"]),
    ],
)
def test_a_logarithmic_axis_has_ticks_wherever_it_lies(low, high, expected):
    figure, axis = plt.subplots()
    axis.set(yscale="log", ylim=(low, high))
    plain_ticks(axis.yaxis)
    figure.canvas.draw()
    assert [text.get_text() for text in axis.get_yticklabels() if text.get_text()] == expected
    plt.close(figure)


def test_texts_with_dollar_signs_are_drawn_as_they_are():
    figure, (left, right) = plt.subplots(1, 2)
    matrix(left, np.eye(3), ["$$", "$x_", "a$b$c"], title="$c_{ij}$")
    trajectory(right, np.arange(6.0).reshape(3, 2), title="$$ and $\\")
    right.annotate(literal("$}$"), (0, 0))
    figure.canvas.draw()  # what is no mathematics would raise
    assert literal("$$") == r"\$\$" and literal(3) == "3" and left.get_title() == "$c_{ij}$"
    plt.close(figure)


def test_components_of_what_never_varies_have_no_share():
    figure, axis = plt.subplots()
    component_labels(axis, [0.42, 0.1, 0.05])
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("PC 1 (42% of variance)", "PC 2 (10%)")
    component_labels(axis, np.full(2, np.nan))
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("PC 1 (nothing varies)", "PC 2 (nothing varies)")
    plt.close(figure)


def test_a_figure_without_a_panel_is_refused():
    for count, columns in ((0, 2), (3, 0)):
        with pytest.raises(ValueError, match="needs a panel and a column"):
            panels(count, columns=columns)


@pytest.mark.parametrize(("count", "rows", "columns"), [(1, 1, 1), (2, 1, 2), (3, 2, 2), (4, 2, 2), (5, 3, 2)])
def test_panels_fill_a_page_and_every_column_has_its_labels(count, rows, columns):
    figure, axes = panels(count, sharex=True)
    assert figure.get_size_inches().tolist() == [PAGE, rows * 2.4]
    assert len(axes) == count and sum(axis.get_visible() for axis in figure.axes) == count
    for axis in axes[-columns:]:
        assert axis.xaxis.get_tick_params()["labelbottom"]
    plt.close(figure)


def test_an_interval_beside_its_value_is_drawn_where_it_lies():
    figure, axis = plt.subplots()
    interval_bars(axis, [1, 2], pd.DataFrame({"mean": [0.5, 0.5], "low": [0.6, 0.4], "high": [0.7, 0.8]}))
    ends = [tuple(path.vertices[:, 1]) for bars in axis.collections for path in bars.get_paths() if len(path.vertices)]
    ends = [pair for pair in ends if not np.isnan(pair).any()]
    assert sorted(np.round(ends, 9).tolist()) == [[0.4, 0.8], [0.6, 0.7]]
    plt.close(figure)


def test_an_infinite_mean_has_an_arrow_from_the_end_that_is_known():
    figure, axis = plt.subplots()
    table = pd.DataFrame({"mean": [np.inf, -np.inf, 0.0], "low": [10.0, -np.inf, 1e-17], "high": [np.inf, -4.0, 0.0]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        interval_bars(axis, np.arange(3), table)  # the last is turned by rounding alone
    ends = [tuple(path.vertices[:, 1]) for bars in axis.collections for path in bars.get_paths() if len(path.vertices)]
    assert {(10, 15), (-6, -4)} <= {tuple(np.round(pair, 9)) for pair in ends if np.isfinite(pair).all()}
    plt.close(figure)


def test_an_interval_with_one_end_has_a_bar_from_it_and_an_arrow_where_the_other_is_infinite():
    figure, axis = plt.subplots()
    table = pd.DataFrame(
        {
            "mean": [1.0, 2, 3, np.nan, 0.5],
            "low": [0.5, -np.inf, 2, 4, 1],
            "high": [np.inf, 2.5, np.nan, np.inf, np.inf],
        }
    )
    interval_bars(axis, np.arange(5), table)
    ends = [tuple(path.vertices[:, 1]) for bars in axis.collections for path in bars.get_paths() if len(path.vertices)]
    drawn = {tuple(np.round(pair, 9)) for pair in ends if np.isfinite(pair).all()}
    assert {(0.5, 1), (2, 2.5), (2, 3), (4, 4), (1, 1)} <= drawn  # from the end to the mean, if that is inside
    assert {(1, 1.25), (1.75, 2), (4, 6), (1, 1.5)} <= drawn and len(drawn) == 9
    assert not any(3 < high < 4 for _, high in drawn)
    carets = [line.get_marker() for line in axis.lines if line.get_marker() in range(4, 12)]
    assert len(carets) == 4
    with pytest.raises(ValueError, match="lower end first, got 1 "):
        interval_bars(axis, [1], pd.DataFrame({"mean": [1.0], "low": [2.0], "high": [0.0]}))
    plt.close(figure)


def test_plain_ticks_of_an_axis_that_is_not_logarithmic_are_refused():
    figure, axis = plt.subplots()
    axis.set_ylim(0, 3)
    with pytest.raises(ValueError, match="logarithmic axis, got one from 0 to 3"):
        plain_ticks(axis.yaxis)
    plt.close(figure)
