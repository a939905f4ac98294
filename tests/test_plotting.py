"""The HTML table of a chain's moves, which shows what the trace holds, and the ticks of the figures."""

import html
import xml.etree.ElementTree as ElementTree

import matplotlib.pyplot as plt
import numpy as np
import pytest
from conftest import corpus

from glauber_lib.chains import run_chains
from glauber_lib.plotting import chain_table, plain_ticks, value_ticks


def read_table(text):
    """Class and header of a table, and of every other row its cells and the `mark` elements of the last one."""
    table = ElementTree.fromstring(text)
    head, *rows = table
    cells = [["".join(cell.itertext()) for cell in row] for row in rows]
    return table.get("class"), [cell.tag for cell in head], cells, [row[2].findall("mark") for row in rows]


@pytest.mark.parametrize("row", [0, 2])
def test_a_table_shows_the_asked_moves_of_its_chain_and_marks_the_changed_tokens(masked_lm, row):
    trace = run_chains(masked_lm, masked_lm.states(corpus(masked_lm)[:3], n=7), n_steps=60, temperature=2.0)
    states, entered, durations = trace.visits(row)
    moves = [0, 1, 4, len(states) - 2]
    kind, head, cells, marks = read_table(chain_table(masked_lm, trace, row, moves))
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
        cell = ElementTree.fromstring(chain_table(model, trace, 0, [m]))[2][2]
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
    table = chain_table(model, trace, 0, range(len(states) - 1))
    assert "<b>" not in table and html.escape(text[:1]) in table
    _, _, cells, marks = read_table(table)
    assert [line[2] for line in cells] == [" ".join(model.words(state)) for state in states]
    before = [mark.get("title").removeprefix("before: ") for (mark,) in marks[1:]]
    assert {"<", ">", "&", '"', "'"} <= set(before)  # all of them were replaced


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
