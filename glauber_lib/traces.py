"""What chains leave behind: initial states, moves, and the states that follow from them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from glauber_lib.checkpoints import Stored
from glauber_lib.checks import ABSENT, check_count, check_whole, unmasked
from glauber_lib.draws import chunks


def moves_before(end: float, moves: Sequence[np.ndarray]) -> np.ndarray:
    """The moves of the first `end` steps as one array, ordered by step and chain.

    Parameters
    ----------
    end : int or float
    moves : sequence of ndarray, int64[C, .]
        One column per move; the first two rows are step and chain.

    Returns
    -------
    ndarray, int64[C, M]
        Moves of one step of one chain keep the order in which they were given.

    Raises
    ------
    ValueError, IndexError
        Of numpy, for moves of other shapes; the first for moves that are masked or no whole numbers >= 0.
    """
    joined = check_whole(np.concatenate([unmasked(part, "moves") for part in moves], axis=1), "moves")
    joined = joined[:, joined[0] < end]
    return joined[:, np.lexsort(joined[:2][::-1])]  # a stable sort


def replay(
    initial: np.ndarray,
    step: np.ndarray,
    places: tuple[np.ndarray, np.ndarray],
    new: np.ndarray,
    steps: npt.ArrayLike,
    n_steps: int,
) -> np.ndarray:
    """States after given numbers of steps.

    Parameters
    ----------
    initial : ndarray, int64[..., B, n]
    step : ndarray, int64[M]
        Of moves in order of time; a move at step `t` (from 0) is seen in the state after `t + 1` steps. A step may
        hold several moves.
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

    Raises
    ------
    ValueError
        If one of `steps` is no whole number in 0 .. n_steps, or they are no list; if something is masked or no whole
        number.
    IndexError
        If a move is at a place that `initial` lacks.
    """
    steps = np.atleast_1d(check_whole(steps, "steps", most=n_steps))
    if steps.ndim != 1:
        raise ValueError(f"steps must be a list, got shape {steps.shape}")
    initial, new = check_whole(initial, "initial", least=ABSENT), check_whole(new, "new tokens")
    step, row, site = (check_whole(values, "steps, rows and sites of moves") for values in (step, *places))
    out = np.empty((len(steps), *initial.shape), dtype=np.int64)
    state, done = initial.copy(), 0
    n_moves = np.searchsorted(step, steps, side="left")  # moves at steps < steps[k]
    for k in np.argsort(steps, kind="stable"):
        now = slice(done, n_moves[k])
        state[..., row[now], site[now]] = new[..., now]  # of several at one place, the last stays
        out[k], done = state, n_moves[k]
    return out


@dataclass(frozen=True)
class Trace(Stored):
    """The path of chains: their initial states and every move.

    A move is the change of one token. `run_chains` makes at most one move in a step of a chain. A kernel that changes
    several sites in a step (`kernels.run`) leaves one move for each of them, with the same step.

    Attributes
    ----------
    initial : ndarray, int64[B, n]
        Shorter states are filled up with -1 at their end.
    step, chain, site, old, new : ndarray, int64[M]
        The moves, ordered by step, then by chain. A move at step `t` (from 0) is seen in the state after `t + 1`
        steps, together with the other moves of that step. `chain` is a row of `initial`.
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
    model_checksum : str
        Digest of what the model's scores depend on (`checksums.model_checksum`); empty where it is not known.
    vocabulary_checksum : str
        Digest of the words that tokens stand for (`checksums.vocabulary_checksum`); empty where it is not known.
    condition : str
        Digest of the condition `until`, where it has a `cache_key`; otherwise empty.
    kernel : str
        Name of the kernel of `kernels.run`; empty for Glauber dynamics, and where it is not known.
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
    model_checksum: str = ""
    vocabulary_checksum: str = ""
    condition: str = ""
    kernel: str = ""

    def states(self, steps: npt.ArrayLike) -> np.ndarray:
        """States int64[K, B, n] after each of the K numbers of `steps`; ValueError outside 0 .. n_steps.

        A state that is shorter than others is filled up with -1.
        """
        return replay(self.initial, self.step, (self.chain, self.site), self.new, steps, self.n_steps)

    @cached_property
    def _final(self):
        return self.states(self.n_steps)[0]

    @property
    def final(self) -> np.ndarray:
        """States int64[B, n] at the end, a copy."""
        return self._final.copy()

    def to_xarray(self, model: Any = None, *, steps: npt.ArrayLike | None = None) -> Any:
        """The states as an `xarray.Dataset` with dimensions chain, draw and site.

        Parameters
        ----------
        model : ConditionalModel, optional
            The model of the trace, to measure margins with.
        steps : array_like, int[K], optional
            Steps after which a state is a draw, in rising order; default: after every step.

        Returns
        -------
        xarray.Dataset
            ``token`` (chain, draw, site), -1 where a shorter state is filled up; ``moves`` (chain, draw), how many the
            chain has made so far; ``temperature`` (chain); ``frozen`` (chain, site); with a model ``margin`` (chain,
            draw, site), the score of the token less the best other one (`margins.score_gaps`). The coordinates are the
            numbers of chains, steps and sites; the settings are attributes.

        Raises
        ------
        ModuleNotFoundError
            Where xarray is not installed.
        ValueError
            For steps that are none of the trace or too many, or a model of another vocabulary.
        """
        from glauber_lib.exports import to_xarray

        return to_xarray(self, model, steps)

    def to_arviz(self, model: Any = None, *, steps: npt.ArrayLike | None = None) -> Any:
        """The states as ArviZ takes them: an ``InferenceData``, from ArviZ 1 on an `xarray.DataTree`.

        Its group ``posterior`` holds what `to_xarray` has for each draw, ``constant_data`` the rest. Parameters and
        errors are those of `to_xarray`. A token is a name, not a number: `arviz.rhat` and `arviz.ess` say something of
        ``moves``, ``margin`` or a count of your own, nothing of ``token``.
        """
        from glauber_lib.exports import to_arviz

        return to_arviz(self, model, steps)

    def to_pandas(self, model: Any = None) -> Any:
        """The moves as a `pandas.DataFrame`, one row each.

        Parameters
        ----------
        model : MaskedLM or CausalLM, optional
            The model of the trace, to write tokens as words.

        Returns
        -------
        pandas.DataFrame
            ``step, chain, temperature, site, old, new``, where ``chain`` is the chain's number; with a model
            ``old_word, new_word`` too.

        Raises
        ------
        ModuleNotFoundError
            Where pandas is not installed.
        ValueError
            For a model of another vocabulary.
        """
        from glauber_lib.exports import to_pandas

        return to_pandas(self, model)

    def visits(self, row: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The states that one chain visits, in order, and how long it stays in each.

        A visit begins with the moves of one step, however many. A step that changes nothing prolongs the visit.

        Returns
        -------
        states : ndarray, int64[K, n]
            Of the chain's own length: without what fills up a shorter state.
        entered : ndarray, int64[K]
            Steps done when the state was entered.
        durations : ndarray, int64[K]
            Steps spent there while the chain was watched; the last one is censored by the end of the run, and zero
            where `until` stopped the chain in its state.

        Raises
        ------
        ValueError
            Unless `row` is one of the chains.
        """
        row = check_count(row, "row", most=len(self.initial) - 1)
        mine = np.flatnonzero(self.chain == row)
        steps, visit = np.unique(self.step[mine], return_inverse=True)
        entered = np.concatenate([[0], steps + 1])
        tokens = np.tile(self.initial[row][self.initial[row] != ABSENT], (len(entered), 1))  # (K, n)
        tokens[visit + 1, self.site[mine]] = self.new[mine]
        last = np.zeros_like(tokens)  # the visit that last changed the site
        last[visit + 1, self.site[mine]] = visit + 1
        states = np.take_along_axis(tokens, np.maximum.accumulate(last), axis=0)
        end = self.stopped[row] if self.stopped[row] >= 0 else self.n_steps
        return states, entered, np.diff(np.append(entered, end))


def refuse_stopped(trace: Trace) -> None:
    """ValueError if a chain was stopped by ``until``: the steps after it were not watched, and count as no stay."""
    if (trace.stopped >= 0).any():
        row = int((trace.stopped >= 0).argmax())
        raise ValueError(
            f"chain {row} was stopped after {trace.stopped[row]} of {trace.n_steps} steps: run the chains without until"
        )


def where_met(until: Callable[[np.ndarray], npt.ArrayLike], states: np.ndarray) -> np.ndarray:
    """Whether a condition holds for each of K states, bool[K]; ValueError where it says anything else."""
    met = unmasked(until(states), "what until returns")
    if met.dtype != bool or met.shape != (len(states),):
        got = f"{met.dtype}{list(met.shape)}"
        raise ValueError(f"until must return bool[{len(states)}], one truth value for each state, got {got}")
    return met


def first_met(trace: Trace, until: Callable[[np.ndarray], npt.ArrayLike]) -> np.ndarray:
    """Steps int64[B] after which each chain first meets a condition, by the states that it visits; -1 if it does not.

    Parameters
    ----------
    trace : Trace
    until : callable
        A condition bool[K] on states int[K, n], which are filled up as those of the trace.

    Raises
    ------
    ValueError
        If it does not return one truth value for each state.
    """
    met = np.full(len(trace.initial), -1)
    for row in range(len(met)):
        visited, entered, _ = trace.visits(row)
        states = np.full((len(visited), trace.initial.shape[1]), ABSENT)
        states[:, : visited.shape[1]] = visited
        for part in chunks(np.arange(len(states)), 2**16):  # of many chains or visits one question would take gigabytes
            if (found := where_met(until, states[part])).any():
                met[row] = entered[part[found.argmax()]]
                break
    return met
