"""Sudoku in small: the grids, what windows connect, and how soon a soft energy is solved."""

import numpy as np
import pytest
from conftest import codes

from glauber_lib import blocks, exact
from glauber_lib.models import RestrictedModel, all_states
from glauber_lib.puzzles import (
    GridModel,
    PottsModel,
    components,
    conflicts,
    grids,
    make_puzzles,
    movable_share,
    peers,
    solving_times,
    window_matrix,
)
from glauber_lib.unmasking import ORDERS, unmask

GRIDS = grids()


def test_there_are_288_grids_without_a_conflict():
    assert GRIDS.shape == (288, 16) and len(np.unique(GRIDS, axis=0)) == 288
    assert (conflicts(GRIDS) == 0).all() and len(peers(2, 2)) == 56
    assert len(grids(1, 3)) == 12  # Latin squares of order three
    assert (conflicts(np.zeros((1, 16), int)) == 56).all()


def test_two_grids_differ_in_four_cells_at_least_so_single_sites_never_move():
    apart = (GRIDS[:, None] != GRIDS).sum(2)
    assert apart[apart > 0].min() == 4
    assert [components(GRIDS, m) for m in (1, 2, 3, 4, 6)] == [288, 288, 288, 1, 1]
    np.testing.assert_allclose(window_matrix(GRIDS, 1).toarray(), np.eye(288), atol=1e-15)


@pytest.mark.parametrize(("size", "share"), [(4, 16 / 5460), (6, 4 / 91)])
def test_few_random_cells_can_move(size, share):
    sets = [len({tuple(row != grid) for row in GRIDS if (row != grid).sum() == 4}) for grid in GRIDS]
    assert np.unique(sets, return_counts=True)[1].tolist() == [192, 96] and set(sets) == {4, 8}  # of 1820 of four cells
    assert movable_share(GRIDS, size) == pytest.approx(share, abs=1e-12)


def test_the_window_s_chain_is_block_dynamics_on_the_grids():
    small = grids(1, 3)
    own = blocks.blocks_of_size(9, 4)
    wanted = blocks.block_dynamics(small, np.full(len(small), 1 / len(small)), own)
    assert abs(window_matrix(small, 4) - wanted).max() < 1e-12


def test_the_posterior_counts_the_grids_that_fit_what_is_visible():
    model, rng = GridModel(GRIDS, 4), np.random.default_rng(0)
    hidden = rng.random((20, 16)) < 0.6
    states = GRIDS[rng.integers(288, size=20)]
    sites = rng.integers(16, size=20)
    found = model.scores(states, sites, hidden).exp().numpy()
    for row, (state, site, unread) in enumerate(zip(states, sites, hidden, strict=True)):
        seen = ~unread & (np.arange(16) != site)
        fits = GRIDS[(GRIDS[:, seen] == state[seen]).all(1)]
        np.testing.assert_allclose(found[row], np.bincount(fits[:, site], minlength=4), atol=1e-9)


def test_puzzles_have_one_solution_and_every_order_finds_it():
    solutions, empty = make_puzzles(12, 9, seed=1)
    assert (empty.sum(1) == 9).all()
    for grid, open_ in zip(solutions, empty, strict=True):
        assert (GRIDS[:, ~open_] == grid[~open_]).all(1).sum() == 1
    start = np.where(empty, 0, solutions)
    for order in ORDERS:
        found = unmask(GridModel(GRIDS, 4), start, empty, order=order, seed=2)
        np.testing.assert_array_equal(found.states[-1], solutions)
        assert (found.hidden.sum((0, 2)) == 9).all() and len(found.states) == 9
    with pytest.raises(ValueError, match="ask for fewer"):
        make_puzzles(1, 16)


def test_the_soft_energy_is_the_law_of_conflicts_and_its_hidden_cells_are_summed():
    grid, cells = GRIDS[7], [0, 5, 10]
    small = RestrictedModel(PottsModel(1.3), grid, cells, np.arange(4))
    law = exact.stationary_law(exact.transition_matrix(small, 3))
    filled = small.fill(all_states(4, 3))
    wanted = np.exp(-1.3 * conflicts(filled))
    np.testing.assert_allclose(law, wanted / wanted.sum(), atol=1e-12)
    found = PottsModel(1.3).scores(filled[:4], np.zeros(4, int), np.isin(np.arange(16), [5])[None].repeat(4, 0))
    joint = (wanted / wanted.sum()).reshape(4, 4, 4).sum(1)[:, 0]
    np.testing.assert_allclose(found[0].softmax(0).numpy(), joint / joint.sum(), atol=1e-12)


def test_solving_times_are_those_of_the_hitting_times_and_fall_with_the_window():
    solutions, empty = make_puzzles(1, 4, seed=3)
    table = solving_times(solutions[0], empty[0], [1.0, 3.0], [1, 2, 4])
    small = RestrictedModel(PottsModel(3.0), solutions[0], np.flatnonzero(empty[0]), np.arange(4))
    matrix = blocks.block_matrix(small, 4, blocks.blocks_of_size(4, 2))
    times = blocks.hitting_times(matrix, [codes(solutions[0][empty[0]], 4)])
    chosen = table[(table.beta == 3.0) & (table["size"] == 2)]
    assert chosen.steps.item() == pytest.approx(times.mean(), rel=1e-9)
    assert chosen.worst.item() == pytest.approx(times.max(), rel=1e-9)
    assert (table.conditionals == table.worst * table["size"]).all() and (table.steps > 1).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: grids(3, 3), "at most 16 cells"), (lambda: grids(0, 2), "rows must be"),
        (lambda: conflicts([[0] * 9]), "a grid has 16 cells"), (lambda: PottsModel(np.nan), "beta must be"),
        (lambda: GridModel([[0, 1], [0, 1]], 2), "distinct"), (lambda: window_matrix(GRIDS, 17), "size must be"),
        (lambda: solving_times(GRIDS[0], np.zeros(16, bool), [1.0], [1]), "an empty cell"),
        (lambda: solving_times(GRIDS[0], np.ones(16, bool), [1.0], [1]), "no small system"),
        (lambda: solving_times(GRIDS[0], np.arange(16) < 3, [1.0], [4]), "sizes must be"),
    ],
)  # fmt: skip
def test_what_is_no_puzzle_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
