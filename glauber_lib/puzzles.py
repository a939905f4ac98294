"""Sudoku in small: all 4 x 4 grids, their posterior as a model, a soft energy, and how hidden windows connect them.

A grid of side `N = rows * columns` is filled with the tokens 0 .. N - 1, so that every row, column and box of `rows`
rows and `columns` columns holds each once. States are the cells row by row. With the grids listed, the conditional of a
cell given any visible cells is a count of grids: no network, no training.
"""

from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
import torch
from numpy.typing import ArrayLike

from glauber_lib.blocks import block_matrix, blocks_of_size, classes
from glauber_lib.checks import check_contexts, check_count, check_indices, check_numbers, check_question, check_seed
from glauber_lib.checksums import small_model_key
from glauber_lib.exact import DENSE, Sparse
from glauber_lib.models import RestrictedModel, check_system, hidden_besides, marginal_scores

CELLS = 16  # of the largest grids that are listed


def check_box(rows: int, columns: int) -> tuple[int, int]:
    """Rows and columns of a box; ValueError unless a grid of such boxes has at most `CELLS` cells."""
    rows, columns = check_count(rows, "rows", 1, CELLS), check_count(columns, "columns", 1, CELLS)
    if (rows * columns) ** 2 > CELLS:
        raise ValueError(f"grids of at most {CELLS} cells are listed, got boxes of {rows} x {columns}")
    return rows, columns


def peers(rows: int, columns: int) -> np.ndarray:
    """Pairs int64[K, 2] of cells that must differ; ValueError for a box that is none."""
    rows, columns = check_box(rows, columns)
    side = rows * columns
    row, column = np.divmod(np.arange(side * side), side)
    box = row // rows * rows + column // columns
    alike = (row[:, None] == row) | (column[:, None] == column) | (box[:, None] == box)
    return np.argwhere(np.triu(alike, 1)).astype(np.int64)


def grids(rows: int = 2, columns: int = 2) -> np.ndarray:
    """All filled grids int64[G, N * N]: 288 of boxes of 2 x 2. ValueError for a box that is none."""
    pairs, side = peers(rows, columns), int(rows) * int(columns)
    found = np.zeros((1, 0), np.int64)
    for cell in range(side * side):
        found = np.column_stack([np.repeat(found, side, axis=0), np.tile(np.arange(side), len(found))])
        for a, _ in pairs[pairs[:, 1] == cell]:
            found = found[found[:, a] != found[:, cell]]
    return found


def conflicts(states: ArrayLike, rows: int = 2, columns: int = 2) -> np.ndarray:
    """How many pairs of cells that must differ are equal, int64[B]; ValueError for states that are no grids."""
    pairs, side = peers(rows, columns), int(rows) * int(columns)
    states = _check_grids(states, side)
    return (states[:, pairs[:, 0]] == states[:, pairs[:, 1]]).sum(1)


def _check_grids(states, side):
    states = check_contexts(states, side)
    if states.shape[1] != side * side:
        raise ValueError(f"a grid has {side * side} cells, got {states.shape[1]}")
    return states


def make_puzzles(
    count: int, empties: int, *, rows: int = 2, columns: int = 2, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Random puzzles with one solution: filled grids int64[K, N * N], and their empty cells bool[K, N * N].

    Cells are emptied in a random order, each unless the solution is then no longer the only one. ValueError where no
    grid has so many cells that can be emptied, in a thousand orders for each puzzle.
    """
    solutions, side = grids(rows, columns), int(rows) * int(columns)
    count, empties = check_count(count, "count", 1, 10**5), check_count(empties, "empties", 1, side * side)
    rng, chosen, empty, cells = np.random.default_rng([check_seed(seed), 21]), [], [], np.arange(side * side)
    for _ in range(1_000 * count):
        grid, given = solutions[rng.integers(len(solutions))], np.ones(side * side, bool)
        for cell in rng.permutation(cells):
            left = given & (cells != cell)
            given = left if (solutions[:, left] == grid[left]).all(1).sum() == 1 else given
            if (~given).sum() == empties:
                chosen.append(grid)
                empty.append(~given)
                break
        if len(chosen) == count:
            return np.stack(chosen), np.stack(empty)
    raise ValueError(f"no puzzles with one solution and {empties} empty cells were found: ask for fewer")


# Models --------------------------------------------------------------------------------------------------------------


class GridModel:
    """The uniform law on listed states as a conditional model that can hide any sites.

    Parameters
    ----------
    states : array_like, int[G, n]
        Distinct.
    n_tokens : int

    Raises
    ------
    ValueError
        For states listed twice, or tokens that there are not.
    """

    memory = 0

    def __init__(self, states: ArrayLike, n_tokens: int):
        self.n_tokens = check_count(n_tokens, "n_tokens", 1)
        self.states, self.device = check_contexts(states, self.n_tokens), torch.device("cpu")
        if len(np.unique(self.states, axis=0)) < len(self.states):
            raise ValueError("states must be distinct, got some twice")

    @property
    def cache_key(self) -> list:
        """What stands for the model in the key of a cached result."""
        return small_model_key(self, [self.states, self.n_tokens])

    def scores(self, states: Any, sites: Any, hidden: Any = None) -> torch.Tensor:
        """See `ConditionalModel.scores`: logarithms of the numbers of listed states.

        All are -inf, which `answers.ask` refuses, where no listed state has the visible tokens.
        """
        check_question(states, sites, self.n_tokens, self.states.shape[1])
        asked, sites = np.asarray(states), np.asarray(sites)
        unread = np.zeros(asked.shape, bool)
        if hidden is not None:
            unread = hidden_besides(hidden, torch.as_tensor(asked), torch.as_tensor(sites)).numpy()
        unread[np.arange(len(asked)), sites] = True
        fits = ((asked[:, None] == self.states) | unread[:, None]).all(2)  # (B, G)
        tokens = self.states[:, sites].T[..., None] == np.arange(self.n_tokens)  # (B, G, V)
        with np.errstate(divide="ignore"):
            return torch.from_numpy(np.log((fits[..., None] & tokens).sum(1).astype(float)))


class PottsModel:
    r"""A soft energy on grids: :math:`p(x) \propto e^{-\beta \cdot \text{conflicts}}`.

    Parameters
    ----------
    beta : float
        Price of a pair of equal cells that must differ.
    rows, columns : int
        Of a box.

    Raises
    ------
    ValueError
        For another price, or a box that is none.
    """

    memory = 0

    def __init__(self, beta: float, rows: int = 2, columns: int = 2):
        number = check_numbers(beta, "beta")
        if number.ndim or not np.isfinite(number):
            raise ValueError(f"beta must be a finite number, got {beta!r}")
        self.beta, self.pairs, self.device = float(number), peers(rows, columns), torch.device("cpu")
        self.n_tokens = int(rows) * int(columns)
        self.n_sites = self.n_tokens**2

    @property
    def cache_key(self) -> list:
        """What stands for the model in the key of a cached result."""
        return small_model_key(self, [self.beta, self.pairs])

    def scores(self, states: Any, sites: Any, hidden: Any = None) -> torch.Tensor:
        """See `ConditionalModel.scores`: the log joint, hidden cells summed out by listing their tokens."""
        check_question(states, sites, self.n_tokens, self.n_sites)
        states, sites = torch.as_tensor(states).long(), torch.as_tensor(sites).long()
        unread = hidden_besides(torch.zeros_like(states, dtype=torch.bool) if hidden is None else hidden, states, sites)
        return marginal_scores(self._log_joint, self.n_tokens, states, sites, unread)

    def _log_joint(self, states):
        return -self.beta * (states[:, self.pairs[:, 0]] == states[:, self.pairs[:, 1]]).double().sum(1)


# What a window connects ----------------------------------------------------------------------------------------------


def window_matrix(states: ArrayLike, size: int) -> Sparse:
    """The chain on listed states that hides `size` uniform sites and draws them from the uniform law, [G, G].

    ValueError for states listed twice or more than `exact.DENSE`, or a size that there is not.
    """
    total, windows = 0.0, 0
    for key in _visible(states, size):
        same = key[:, None] == key
        total, windows = total + same / same.sum(1, keepdims=True), windows + 1
    return sp.csr_matrix(total / windows)


def movable_share(states: ArrayLike, size: int) -> float:
    """Chance that `size` uniform sites of a uniform listed state can hold anything else; ValueError as above."""
    alone = [np.unique(key, return_counts=True)[1] for key in _visible(states, size)]
    return float(np.mean([counts[counts > 1].sum() / counts.sum() for counts in alone]))


def _visible(states, size):
    """For every window of a size a number of each state that two share if their visible sites are equal."""
    states = check_contexts(states)
    if len(states) > DENSE or len(np.unique(states, axis=0)) < len(states):
        raise ValueError(f"states must be distinct, at most {DENSE} of them, got {len(states)}")
    n = states.shape[1]
    parts = states * (states.max() + 1) ** np.arange(n)
    for window in combinations(range(n), check_count(size, "size", 1, n)):
        seen = np.ones(n, bool)
        seen[list(window)] = False
        yield parts[:, seen].sum(1)


def components(states: ArrayLike, size: int) -> int:
    """Classes of listed states that steps of at most `size` well-chosen sites connect; ValueError as above."""
    states = check_contexts(states)
    size = check_count(size, "size", 1, states.shape[1])
    near = (states[:, None] != states).sum(2) <= size
    return int(classes(sp.csr_matrix(near)).max()) + 1


def solving_times(
    grid: ArrayLike, empty: ArrayLike, betas: ArrayLike, sizes: ArrayLike, *, rows: int = 2, columns: int = 2
) -> pd.DataFrame:
    """Mean steps until a puzzle is solved by hiding cells of the soft energy and drawing them in sequence.

    Parameters
    ----------
    grid : array_like, int[N * N]
        The solution.
    empty : array_like, bool[N * N]
        Cells that are not given: at most so many that they make a system of `exact.DENSE` states.
    betas : array_like, float[K]
        Prices of a conflict.
    sizes : array_like, int[J]
        Cells hidden at once, uniform among the empty ones.
    rows, columns : int

    Returns
    -------
    DataFrame
        A row for each ``beta`` and ``size``: ``steps``, the mean over uniform fillings of the empty cells, by a linear
        solve; ``worst``, that of the worst filling; ``conditionals``, `size` times ``worst``.

    Raises
    ------
    ValueError
        For arguments that do not fit each other.
    """
    side = len(peers(rows, columns)) and int(rows) * int(columns)
    state, open_ = _check_grids(np.asarray(grid)[None] if np.ndim(grid) == 1 else grid, side), np.asarray(empty)
    if len(state) != 1 or open_.dtype != bool or open_.shape != state[0].shape or not open_.any():
        raise ValueError(f"need one grid and bool[{side * side}] with an empty cell, got {open_.dtype}{open_.shape}")
    cells, betas = np.flatnonzero(open_), check_numbers(betas, "betas")
    sizes = check_indices(sizes, len(cells) + 1, "sizes")
    if betas.ndim != 1 or sizes.ndim != 1 or not betas.size or not sizes.size or not (sizes > 0).all():
        raise ValueError(f"betas and sizes must be lists, sizes from 1 to {len(cells)}, got {betas}, {sizes}")
    check_system(side, len(cells), DENSE)
    target, out = int(state[0, cells] @ side ** np.arange(len(cells) - 1, -1, -1)), []
    for beta in betas.tolist():
        model = RestrictedModel(PottsModel(beta, rows, columns), state[0], cells, np.arange(side))
        for size in sizes.tolist():
            matrix = block_matrix(model, len(cells), blocks_of_size(len(cells), size)).toarray()
            inside = np.delete(np.delete(matrix, target, 0), target, 1)
            steps = np.linalg.solve(np.eye(len(inside)) - inside, np.ones(len(inside)))
            worst = steps.max()
            facts = {"beta": beta, "size": size, "steps": steps.sum() / len(matrix), "worst": worst}
            out.append(facts | {"conditionals": size * worst})
    return pd.DataFrame(out)
