r"""Maximal coupling and coalescence (paper §6.1).

Two chains update the same site each step. Their two tokens come from a maximal coupling of the two conditionals `p`
and `q`: they agree with probability :math:`\sum_v \min(p_v, q_v) = 1 - \mathrm{TV}(p, q)`, the largest possible.
The coalescence time :math:`T_c` is the first step after which the states agree. From then on they stay together.

The unit interval is cut so that the outcome 'both keep their token' comes first. The law does not depend on that order.
Once this outcome's probability is known, nothing is computed for a step whose uniform lies below it (`engine`).
"""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import ArrayLike

from glauber_lib.checkpoints import Checkpoint, Stored
from glauber_lib.checks import check_chains, check_contexts, check_count, check_seed, check_temperature
from glauber_lib.checksums import model_checksum, refuse_other_model
from glauber_lib.draws import inverse_cdf, probabilities
from glauber_lib.engine import Conditionals, KeepIntervals, run_clocks
from glauber_lib.models import ConditionalModel
from glauber_lib.traces import moves_before, replay

LONGEST = 2**62  # most steps of a run, as in `chains`
_SETTINGS = ("initial", "temperature", "seed", "pairs", "model")  # what makes the paths of pairs


def maximal_coupling(
    p: torch.Tensor, q: torch.Tensor, x: torch.Tensor, y: torch.Tensor, u: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Draw a pair of tokens from the maximal coupling of two laws.

    Parameters
    ----------
    p, q : torch.Tensor, float64[B, V]
        The two laws, normalised.
    x, y : torch.Tensor, int64[B]
        The present tokens; they decide only the order in which the unit interval is cut.
    u : torch.Tensor, float64[B, 3]
        Independent uniforms.

    Returns
    -------
    new_x, new_y : torch.Tensor, int64[B]
        Marginally from `p` and `q`; equal with probability 1 - TV(p, q).
    stay : torch.Tensor, float64[B]
        Probability of (x, y): both keep their token exactly when ``u[:, 0] < stay``.

    Raises
    ------
    ValueError, IndexError, RuntimeError
        Of torch, for shapes that do not fit, tokens that are not there or a uniform that is nan.
    """
    common = torch.minimum(p, q)
    residual_p, residual_q = p - common, q - common
    tv = (0.5 * (residual_p.sum(1) + residual_q.sum(1))).clamp(min=0)
    at = lambda w, k: w.gather(1, k[:, None])[:, 0]  # noqa: E731
    equal, zero = x == y, torch.zeros_like(tv)
    stay_apart = torch.where(tv > 0, at(residual_p, x) * at(residual_q, y) / tv.clamp(min=1e-300), zero)
    stay = torch.where(equal, at(common, x), stay_apart)
    diagonal = (1 - tv) - torch.where(equal, stay, zero)

    new_x, new_y = x.clone(), y.clone()
    keep = u[:, 0] < stay
    join = ~keep & (u[:, 0] < stay + diagonal)
    split = ~keep & ~join

    # together: a token from the overlap (without x, if keeping x was the first outcome)
    weights = common[join].scatter(1, x[join, None], torch.where(equal, zero, at(common, x))[join, None])
    new_x[join], _, _ = inverse_cdf(weights, u[join, 1])
    new_y[join] = new_x[join]
    # apart: tokens from the two residuals, without the pair (x, y) if keeping it was the first outcome
    y_given_x = torch.where(equal, zero, at(residual_q, y) / tv.clamp(min=1e-300)).clamp(max=1)
    weights = residual_p[split].scatter(1, x[split, None], (at(residual_p, x) * (1 - y_given_x))[split, None])
    new_x[split], _, _ = inverse_cdf(weights, u[split, 1])
    barred = (~equal & (new_x == x))[split]
    weights = residual_q[split].scatter(1, y[split, None], torch.where(barred, 0.0, at(residual_q, y)[split])[:, None])
    new_y[split], _, _ = inverse_cdf(weights, u[split, 2])
    return new_x, new_y, stay


@dataclass(frozen=True)
class Coalescence(Stored):
    """Result of `coalesce`.

    Attributes
    ----------
    time : ndarray, float64[B]
        Steps until the pair agreed; ``nan`` where it did not within the budget (censored at `n_steps`).
    n_steps : int
        Budget, or the steps done when interrupted.
    initial : ndarray, int64[2, B, n]
    moves : ndarray, int64[5, M]
        Step, pair, site and the two new tokens of every step that changed a state, in order of time.
    temperature : ndarray, float64[B]
    seed : int
    pairs : ndarray, int64[B]
        The pairs' numbers in the random-number generator.
    model : str
        Name of the model.
    model_calls : int
        Conditionals evaluated.
    complete : bool
        False after an interruption.
    model_checksum : str
        Digest of what the model's scores depend on (`checksums.model_checksum`); empty where it is not known.

    Notes
    -----
    It holds the moves: its size grows with what happened, not with the budget. `hamming` has a row for every step and
    is made when it is asked for.
    """

    time: np.ndarray
    n_steps: int
    initial: np.ndarray
    moves: np.ndarray
    temperature: np.ndarray
    seed: int
    pairs: np.ndarray
    model: str
    model_calls: int
    complete: bool = True
    model_checksum: str = ""

    def states(self, steps: ArrayLike) -> np.ndarray:
        """States int64[K, 2, B, n] of both chains after each of the K numbers of `steps` (0 to `n_steps`).

        A coalesced pair is left where it met.
        """
        step, pair, site, *new = self.moves
        return replay(self.initial, step, (pair, site), np.stack(new), steps, self.n_steps)

    @cached_property
    def _final(self):
        return self.states(self.n_steps)[0]

    @property
    def final(self) -> np.ndarray:
        """States int64[2, B, n] at the end, a copy."""
        return self._final.copy()

    @cached_property
    def hamming(self) -> np.ndarray:
        """Number of sites at which each pair differs, before the first and after each step, int32[n_steps + 1, B]."""
        return _hamming(self.initial, self.moves, self.n_steps)

    @property
    def censored(self) -> np.ndarray:
        """Pairs that did not coalesce within the budget, bool[B]."""
        return np.isnan(self.time)


class _Pairs:
    """The pairs of one run: their states and the moves that they made; the `engine.Walkers` of that run.

    Parameters
    ----------
    model : ConditionalModel
    past : Coalescence
        What is done before; of no steps for a new run.
    n_steps : int
        Steps to have done at the end.
    memory : int or None
        See `coalesce`.
    """

    def __init__(self, model, past, n_steps, memory):
        self.past, self.n_steps = past, n_steps
        self.conditionals = Conditionals(model, memory)
        self.at_once = max(1, 2**22 // model.n_tokens)
        self.seed, self.numbers, self.temperature = past.seed, past.pairs, past.temperature
        self.state = past.final.copy()  # (2, B, n)
        self.moves = [past.moves]  # arrays (5, .): step, pair, site, new token of x, of y
        _, size, n = self.state.shape
        self.sites, self.n_free = np.tile(np.arange(n), (size, 1)), np.full(size, n)
        self.keep = KeepIntervals(size, n)  # uniforms with which both keep their token
        self.keep.stop(np.flatnonzero((self.state[0] == self.state[1]).all(1)))

    def step(self, rows, sites, uniform, steps):
        """One coupled step of each pair of `rows`."""
        both = self.conditionals.scores(np.concatenate(self.state[:, rows]), np.tile(sites, 2))
        p, q = probabilities(both, np.tile(self.temperature[rows], 2)).unflatten(0, (2, len(rows)))
        old = self.state[:, rows, sites]
        x, y = torch.from_numpy(old).to(p.device)
        drawn = maximal_coupling(p, q, x, y, torch.from_numpy(uniform.copy()).to(p.device))
        *new, stay = torch.stack(drawn).cpu().numpy()  # one transfer: tokens are small enough for float64
        new = np.array(new, dtype=np.int64)
        moved = (new != old).any(0)
        self.keep.forget(rows[moved])
        self.keep.learn(rows[~moved], sites[~moved], 0.0, stay[~moved])
        self.moves.append(np.stack([steps, rows, sites, *new])[:, moved])
        self.state[:, rows, sites] = new
        self.keep.stop(rows[moved & (self.state[0, rows] == self.state[1, rows]).all(1)])

    def so_far(self, done):
        """The coalescence of the first `done` steps."""
        moves = moves_before(done, self.moves)
        return replace(
            self.past, time=_meeting_times(self.past.initial, moves), n_steps=done, moves=moves,
            model_calls=self.past.model_calls + self.conditionals.calls, complete=done == self.n_steps,
        )  # fmt: skip


def coalesce(
    model: ConditionalModel,
    x: ArrayLike,
    y: ArrayLike,
    *,
    n_steps: int,
    temperature: ArrayLike = 1.0,
    seed: int = 0,
    pairs: ArrayLike | None = None,
    memory: int | None = None,
    checkpoint: str | Path | None = None,
    progress: str | None = None,
) -> Coalescence:
    """Run B maximally coupled pairs of chains until they agree or the budget ends.

    Parameters
    ----------
    model : ConditionalModel
    x, y : array_like, int[B, n]
        Initial states of the two chains of each pair.
    n_steps : int
        Budget of steps, at most 2**62.
    temperature : float or array_like, float[B]
    seed : int
    pairs : array_like, int[B], optional
        The pairs' numbers in the random-number generator; default ``0 .. B - 1``.
    memory : int, optional
        Bytes for remembered scores (`engine.Conditionals`); no result depends on it.
    checkpoint : str or Path, optional
        A file for what is done, as for `run_chains`.
    progress : str, optional
        Title of a progress bar.

    Returns
    -------
    Coalescence
        After Ctrl-C of the steps done so far. The time of a pair that has not met is nan.

    Raises
    ------
    ValueError
        For pairs of different shapes, a temperature that is not positive and finite, states that are no int[B, n] of
        tokens of the model, pair numbers that are not one per pair, a seed, `n_steps` or `memory` that is no whole
        number >= 0, or a checkpoint of another run or model.
    """
    n_steps = check_count(n_steps, "n_steps", most=LONGEST)
    past, file = _unrun(model, x, y, temperature, seed, pairs), Checkpoint(checkpoint)
    begun, past = past, file.resume(past, n_steps, _SETTINGS)
    refuse_other_model(past, begun, f"checkpoint {str(checkpoint)!r}")
    running = _Pairs(model, past, n_steps, memory)

    def go_on(done: int) -> bool:
        file.write_when_due(running.so_far, done)
        return True

    done = run_clocks(running, start=past.n_steps, end=n_steps, go_on=go_on, progress=progress)
    return file.write(running.so_far(done))


def _unrun(model, x, y, temperature, seed, pairs):
    """The coalescence of no steps from which these pairs begin; ValueError where they are not valid."""
    x, y = check_contexts(x, model.n_tokens), check_contexts(y, model.n_tokens)
    if x.shape != y.shape:
        raise ValueError(f"x and y must both have shape (pairs, sites), got {x.shape} and {y.shape}")
    initial, size, moves = np.stack([x, y]), len(x), np.zeros((5, 0), np.int64)  # (2, B, n)
    return Coalescence(
        _meeting_times(initial, moves), 0, initial, moves, check_temperature(temperature, (size,)), check_seed(seed),
        check_chains(pairs, size, "pair"), getattr(model, "name", ""), 0, complete=False,
        model_checksum=model_checksum(model),
    )  # fmt: skip


def _meeting_times(initial, moves):
    """Steps float64[B] until each pair agreed, its last move: none follows. nan where it did not agree."""
    step, pair, site, *new = moves
    x, y = replay(initial, step, (pair, site), np.stack(new), int(step.max(initial=0)) + 1, LONGEST)[0]
    last = np.zeros(initial.shape[1])
    np.maximum.at(last, pair, step + 1)
    return np.where((x == y).all(1), last, np.nan)


def _hamming(initial, moves, n_steps):
    """Hamming distance int32[n_steps + 1, B] of each pair over time, from its moves."""
    apart = initial[0] != initial[1]  # (B, n)
    hamming = np.zeros((n_steps + 1, len(apart)), dtype=np.int32)
    hamming[0] = apart.sum(1)
    step, pair, site, x, y = moves[:, np.lexsort(moves[:3])]  # the moves of each site of each pair in order of time
    after = (x != y).astype(np.int32)
    first = np.diff(pair * apart.shape[1] + site, prepend=-1) != 0
    before = np.where(first, apart[pair, site], np.roll(after, 1))
    np.add.at(hamming, (step + 1, pair), after - before)
    return hamming.cumsum(0, dtype=np.int32)
