r"""The chain as the paper defines it, run plainly: what every short cut of `engine` is tested against.

A kernel is a function from the state of one chain to its next state. `glauber` is the paper's:

.. math:: P_\tau(x, y) = \frac1n \sum_i \mathbf 1\{y_{-i} = x_{-i}\}\, \pi_{i,\tau}(y_i \mid x_{-i})

(paper §3). `run` applies a kernel step by step to one chain after another; a step costs what the kernel asks of the
model. `run` with `glauber` takes exactly the path of `chains.run_chains`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from glauber_lib.answers import ask
from glauber_lib.checks import (
    ABSENT,
    check_chains,
    check_count,
    check_frozen,
    check_indices,
    check_seed,
    check_states,
    check_temperature,
)
from glauber_lib.checksums import model_checksum, vocabulary_checksum
from glauber_lib.draws import inverse_cdf, uniforms, weights
from glauber_lib.models import ConditionalModel
from glauber_lib.traces import Trace, moves_before

Kernel = Callable[..., np.ndarray]  # takes what `glauber` takes and returns what it returns


def glauber(
    model: ConditionalModel,
    state: np.ndarray,
    free: np.ndarray,
    *,
    temperature: float,
    step: int,
    draw: Callable[..., np.ndarray],
) -> np.ndarray:
    """One step of Glauber dynamics: choose a free site uniformly, resample its token from the conditional.

    Parameters
    ----------
    model : ConditionalModel
    state : ndarray, int64[n]
        The present state, read-only.
    free : ndarray, int64[m]
        Sites that may be resampled, in rising order, read-only.
    temperature : float
    step : int
        Number of the step, from 0; Glauber dynamics does not depend on it.
    draw : callable
        ``draw(stream=0)`` gives the four uniform numbers float64[4] of this chain, step and stream.

    Returns
    -------
    ndarray, int64[n]
        The next state.
    """
    u = draw()
    site = free[int(u[0] * len(free))]
    scores = ask(model, state[None], np.array([site]))  # (1, V)
    token, _, _ = inverse_cdf(weights(scores, [temperature]), torch.tensor(u[1:2], device=scores.device))
    after = state.copy()
    after[site] = int(token)
    return after


def run(
    model: ConditionalModel,
    states: npt.ArrayLike,
    *,
    n_steps: int,
    temperature: npt.ArrayLike = 1.0,
    seed: int = 0,
    chains: npt.ArrayLike | None = None,
    frozen: npt.ArrayLike | None = None,
    kernel: Kernel = glauber,
) -> Trace:
    """Run B chains of a kernel, one after another and step by step.

    Parameters
    ----------
    model : ConditionalModel
    states : array_like, int[B, n]
        Initial states. A list of states of different lengths is filled up with -1.
    n_steps : int
        Steps of each chain.
    temperature : float or array_like, float[B]
        One value or one per chain.
    seed : int
        With the chain's number it determines the path.
    chains : array_like, int[B], optional
        The chains' numbers; default ``0 .. B - 1``.
    frozen : array_like, bool[n] or bool[B, n], optional
        Sites never resampled; each chain needs a free one.
    kernel : Kernel

    Returns
    -------
    Trace
        A step that changes several sites leaves one move for each, in the order of the sites.

    Raises
    ------
    ValueError
        For a temperature that is not positive and finite, states that are no int[B, n] of tokens of the model, a
        chain without a free site, chain numbers that are not one per state or not distinct, a seed or `n_steps` that is
        no whole number >= 0, scores that `answers.ask` refuses, or a kernel that writes to what it is given,
        changes a frozen site, or returns anything but integers of its shape that are tokens.
    """
    n_steps, seed = check_count(n_steps, "n_steps"), check_seed(seed)
    initial = check_states(states, model.n_tokens)
    temperature = check_temperature(temperature, (len(initial),))
    chains, frozen = check_chains(chains, len(initial)), check_frozen(frozen, initial)
    counted, moves = Counted(model), []
    for row, state in enumerate(initial):
        state, free = state[state != ABSENT], np.flatnonzero(~frozen[row] & (state != ABSENT))
        free.flags.writeable = False
        for step in range(n_steps):
            draw = partial(_draw, seed, chains[row], step)
            state.flags.writeable = False
            after = kernel(counted, state, free, temperature=float(temperature[row]), step=step, draw=draw)
            after = _next_state(after, state, free, model.n_tokens, step)
            moves += [(step, row, site, state[site], after[site]) for site in np.flatnonzero(after != state)]
            state = after
    step, chain, site, old, new = moves_before(n_steps, [np.array(moves, dtype=np.int64).reshape(-1, 5).T])
    return Trace(
        initial, step, chain, site, old, new, n_steps, temperature, seed, chains, frozen,
        stopped=np.full(len(initial), -1), model=getattr(model, "name", ""), model_calls=counted.calls,
        model_checksum=model_checksum(model), vocabulary_checksum=vocabulary_checksum(model),
    )  # fmt: skip


def _next_state(after, state, free, n_tokens, step):
    """A copy of what a kernel answers; ValueError for what is no next state."""
    after = np.asarray(after)
    if after.shape != state.shape or after.dtype.kind not in "iu":
        raise ValueError(
            f"a kernel must return integers of shape {state.shape}, got {after.dtype} of {after.shape} at step {step}"
        )
    changed = np.flatnonzero(after != state)
    check_indices(after[changed], n_tokens, f"tokens from the kernel at step {step}")
    if len(odd := np.setdiff1d(changed, free)):
        raise ValueError(f"a kernel may change free sites alone, got frozen sites {odd.tolist()} at step {step}")
    return after.astype(np.int64)


def _draw(seed, chain, step, stream=0):
    return uniforms(seed, [chain], step, 1, stream=stream)[0, 0]


class Counted:
    """A model that counts the conditionals it is asked for.

    Attributes
    ----------
    calls : int
    """

    n_tokens: int
    device: torch.device

    def __init__(self, model: ConditionalModel):
        self.model, self.calls = model, 0

    def __getattr__(self, name):
        return getattr(self.model, name)

    def scores(self, states: Any, sites: Any, hidden: Any = None) -> torch.Tensor:
        """See `ConditionalModel.scores`."""
        self.calls += len(states)
        return ask(self.model, states, sites, hidden)
