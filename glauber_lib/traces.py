"""What chains leave behind: initial states, moves, and the states that follow from them."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from glauber_lib.checkpoints import Stored


def moves_before(end, moves):
    """Moves before step `end`, in order of time: arrays int64[C, M], whose first rows are step and chain, as one."""
    moves = np.concatenate(moves, axis=1)
    moves = moves[:, moves[0] < end]
    return moves[:, np.lexsort(moves[:2][::-1])]


def replay(initial, step, places, new, steps, n_steps):
    """States after given numbers of steps.

    Parameters
    ----------
    initial : ndarray, int64[..., B, n]
    step : ndarray, int64[M]
        Of moves in order of time; a move at step `t` (from 0) is seen in the state after `t + 1` steps.
    places : (ndarray, ndarray), int64[M]
        The row and the site of each move.
    new : ndarray, int64[..., M]
        Its new tokens.
    steps : array_like, int[K]
        In any order, each between 0 and `n_steps`.
    n_steps : int

    Returns
    -------
    ndarray, int64[K, ..., B, n]
    """
    steps = np.atleast_1d(steps)
    if steps.min() < 0 or steps.max() > n_steps:
        raise ValueError(f"steps must lie in 0..{n_steps}, got {steps.min()}..{steps.max()}")
    out = np.empty((len(steps), *initial.shape), dtype=np.int64)
    state, done, (row, site) = initial.copy(), 0, places
    for k in np.argsort(steps, kind="stable"):
        until = np.searchsorted(step, steps[k], side="left")  # moves at steps < steps[k]
        state[..., row[done:until], site[done:until]] = new[..., done:until]  # of several at one place, the last stays
        done = until
        out[k] = state
    return out


@dataclass(frozen=True)
class Trace(Stored):
    """What `run_chains` leaves: the initial states and every move.

    Attributes
    ----------
    initial : ndarray, int64[B, n]
        Shorter states are filled up with -1 at their end.
    step, chain, site, old, new : ndarray, int64[M]
        The moves in order of time. A move at step `t` (from 0) is seen in the state after `t + 1` steps. `chain` is
        a row of `initial`.
    n_steps : int
        Steps run.
    temperature : ndarray, float64[B]
    seed : int
    chains : ndarray, int64[B]
        The chains' numbers in the random-number generator.
    frozen : ndarray, bool[B, n]
        Sites that are never resampled.
    stopped : ndarray, int64[B]
        Steps after which a chain met the condition `until` and came to rest; -1 if it did not.
    holding : str
        ``"path"`` or ``"geometric"``, see `run_chains`.
    model : str
        Name of the model.
    model_calls : int
        Conditionals evaluated.
    complete : bool
        False after an interruption.
    """

    initial: np.ndarray
    step: np.ndarray
    chain: np.ndarray
    site: np.ndarray
    old: np.ndarray
    new: np.ndarray
    n_steps: int
    temperature: np.ndarray
    seed: int
    chains: np.ndarray
    frozen: np.ndarray
    stopped: np.ndarray
    holding: str = "path"
    model: str = ""
    model_calls: int = field(default=0, compare=False)
    complete: bool = True

    def states(self, steps):
        """States int64[K, B, n] after each of the K numbers of `steps` (each between 0 and `n_steps`)."""
        return replay(self.initial, self.step, (self.chain, self.site), self.new, steps, self.n_steps)

    @cached_property
    def final(self):
        """States int64[B, n] at the end."""
        return self.states(self.n_steps)[0]

    def visits(self, row):
        """The states one chain visits, in order, and how long it stays in each.

        Returns
        -------
        states : ndarray, int64[K, n]
        entered : ndarray, int64[K]
            Steps done when the state was entered.
        durations : ndarray, int64[K]
            Steps spent there; the last one is censored by the end of the run, or by `until`.
        """
        mine = np.flatnonzero(self.chain == row)
        entered = np.concatenate([[0], self.step[mine] + 1])
        states = np.empty((len(entered), self.initial.shape[1]), dtype=np.int64)
        states[0] = self.initial[row]
        for k, (site, token) in enumerate(zip(self.site[mine], self.new[mine], strict=True), start=1):
            states[k] = states[k - 1]
            states[k, site] = token
        return states, entered, np.diff(np.append(entered, self.n_steps))
