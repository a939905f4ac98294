r"""Glauber dynamics as the noise of a diffusion, and its reversal: schedules, paths, learners, the bound.

N orders of the sites are drawn once. Step :math:`t = (n - 1) L + j` of the noise updates the site :math:`\pi_n(j)`
alone, by the conditional of a model (Kathuria and Kumar, 2026, §3):

.. math:: K_t(x, y) = 1\{y_{-k} = x_{-k}\}\, \hat T(y_k \mid x_{-k}).

A heat-bath step erases :math:`x_k`, so that the reversal of the step is a conditional too,

.. math:: \bar K_t(x \to y) = p_{t-1}(y_k \mid x_{-k}),

learned by cross-entropy on the token *before* the step. Generation runs through the steps from the last to the first.
A `TimedModel` is asked as a conditional model is, and besides for which step.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from glauber_lib.checks import (
    check_chains,
    check_contexts,
    check_count,
    check_frozen,
    check_seed,
    check_temperature,
)
from glauber_lib.draws import chunks, uniforms, weights
from glauber_lib.kernels import draw_tokens
from glauber_lib.models import ConditionalModel
from glauber_lib.reversals import TimedModel, ask_timed, timed_question
from glauber_lib.schedules import Paths, Schedule
from glauber_lib.unmasking import check_share, nucleus

NOISE, DENOISE = 2**20, 2**20 + 1  # streams of random numbers, beyond those of the sites of a block


def noise(
    model: ConditionalModel,
    states: ArrayLike,
    schedule: Schedule,
    *,
    first: int = 0,
    steps: int | None = None,
    temperature: float = 1.0,
    frozen: ArrayLike | None = None,
    seed: int = 0,
    chains: ArrayLike | None = None,
) -> Paths:
    """Run the noise process: each step draws one site anew from the model's conditional.

    Parameters
    ----------
    model : ConditionalModel
    states : array_like, int[B, n]
    schedule : Schedule
    first : int
        Steps that were done before; a path resumed so is the same path.
    steps : int, optional
        How many to do now, by default all that are left.
    temperature : float
    frozen : array_like, bool[n] or bool[B, n], optional
        Sites that keep their tokens, as those of a prefix.
    seed : int
        With the chain's number it determines the path.
    chains : array_like, int[B], optional
        The chains' numbers; default ``0 .. B - 1``.

    Raises
    ------
    ValueError
        For arguments that do not fit each other, or scores that `answers.ask` refuses.
    """
    states, chains, temperature, fixed = _check_start(model, states, schedule, temperature, frozen, chains)
    seed, first = check_seed(seed), check_count(first, "first", 0, schedule.steps)
    left = schedule.steps - first
    steps = left if steps is None else check_count(steps, "steps", 0, left)
    order = range(first + 1, first + steps + 1)
    ask_at = lambda some, t: (model, (some, np.full(len(some), schedule.site(t))))  # noqa: E731
    numbers = uniforms(seed, chains, first, steps, stream=NOISE)[:, :, 1]
    return _walk(ask_at, states, schedule, order, numbers, temperature, 1.0, fixed)


def denoise(
    timed: TimedModel,
    states: ArrayLike,
    schedule: Schedule,
    *,
    temperature: float = 1.0,
    top_p: float = 1.0,
    frozen: ArrayLike | None = None,
    seed: int = 0,
    chains: ArrayLike | None = None,
) -> Paths:
    """Run the reversal from the last step to the first: each draws what its site held before.

    Parameters
    ----------
    timed : TimedModel
        Asked with the window of the schedule hidden, where that is wider than one site.
    states : array_like, int[B, n]
        Drawn from the prior: what the noise ends at, or is thought to.
    schedule : Schedule
    temperature, top_p : float
        Of each draw (`unmasking.nucleus`).
    frozen, seed, chains
        See `noise`; the random numbers are others.

    Raises
    ------
    ValueError
        As `noise`.
    """
    states, chains, temperature, fixed = _check_start(timed, states, schedule, temperature, frozen, chains)
    seed, top_p = check_seed(seed), check_share(top_p)
    order = range(schedule.steps, 0, -1)
    numbers = uniforms(seed, chains, 0, schedule.steps, stream=DENOISE)[:, ::-1, 1]  # of step t, as done
    ask_at = lambda some, t: timed_question(timed, some, schedule, t)  # noqa: E731
    return _walk(ask_at, states, schedule, order, numbers, temperature, top_p, fixed)


def _check_start(model, states, schedule, temperature, frozen, chains):
    states = check_contexts(states, model.n_tokens)
    if states.shape[1] != schedule.n_sites:
        raise ValueError(f"states have {states.shape[1]} sites, the schedule is for {schedule.n_sites}")
    temperature, fixed = float(check_temperature(temperature)), check_frozen(frozen, states)
    return states, check_chains(chains, len(states)), temperature, fixed


def _walk(ask_at, states, schedule, order, numbers, temperature, top_p, fixed):
    """Paths by steps in some order, `ask_at` of states and a step: the model and what it is asked."""
    initial, size, calls = states.copy(), len(states), 0
    tokens, log_prob = np.empty((len(order), size), np.int64), np.zeros((len(order), size))
    trim = partial(nucleus, top_p=top_p)
    for k, t in enumerate(order):
        site = schedule.site(t)
        rows = np.flatnonzero(~fixed[:, site])
        calls += len(rows)
        if len(rows):
            model, asked = ask_at(states[rows], t)
            drawn, chance = draw_tokens(model, asked, temperature, numbers[rows, k], trim=trim)
            states[rows, site], log_prob[k, rows] = drawn, np.log(chance)
        tokens[k] = states[:, site]
    return Paths(initial, np.array([schedule.site(t) for t in order], np.int64), tokens, log_prob, calls)


# The bound -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Bound:
    r"""An upper bound on :math:`-\log p_\theta(x_0)` in nats, by its three terms.

    Attributes
    ----------
    prior : ndarray, float64[B]
        :math:`-\log` of the prior at the end of the noise.
    noise : ndarray, float64[B]
        Sum of the log-probabilities of the noise's draws.
    denoising : ndarray, float64[B]
        Less the sum of the reversal's log-probabilities of what was there before.
    """

    prior: np.ndarray
    noise: np.ndarray
    denoising: np.ndarray

    @property
    def total(self) -> np.ndarray:
        """The bound float64[B]."""
        return self.prior + self.noise + self.denoising


def bound(
    timed: TimedModel,
    model: ConditionalModel,
    prior_log_prob: Callable[[np.ndarray], Any],
    states: ArrayLike,
    schedule: Schedule,
    *,
    seed: int = 0,
    chains: ArrayLike | None = None,
) -> Bound:
    r"""The bound on :math:`-\log p_\theta(x_0)`, without bias from one path of each state.

    .. math:: -\log p_\theta(x_0) \le E\Bigl[-\log \mathrm{prior}(x_T) + \sum_t \log \hat T(x_{t,k} \mid x_{t,-k})
        - \log P_\theta(x_{t-1,k} \mid x_{t,-k}, t)\Bigr]

    Parameters
    ----------
    timed : TimedModel
    model : ConditionalModel
        The noise.
    prior_log_prob : callable
        Log-probabilities float[B] of states int[B, n] under a law that is normalised, as `CausalLM.log_prob`.
    states : array_like, int[B, n]
    schedule : Schedule
    seed, chains
        See `noise`.

    Raises
    ------
    ValueError
        As `noise`, or for models of different numbers of tokens.
    """
    if timed.n_tokens != model.n_tokens:
        raise ValueError(f"reversal and noise have {timed.n_tokens} and {model.n_tokens} tokens: they must be the same")
    paths = noise(model, states, schedule, seed=seed, chains=chains)
    state, loss = paths.initial.copy(), np.zeros(len(paths.initial))
    for t in range(1, schedule.steps + 1):
        site, before = schedule.site(t), state[:, schedule.site(t)].copy()
        state[:, site] = paths.tokens[t - 1]
        for some in chunks(np.arange(len(state)), max(256, 2**23 // model.n_tokens)):
            law = weights(ask_timed(timed, state[some], schedule, t), np.ones(len(some))).cpu().numpy()
            with np.errstate(divide="ignore"):
                loss[some] -= np.log(law[np.arange(len(some)), before[some]]) - np.log(law.sum(1))
    prior = -np.asarray(prior_log_prob(state), dtype=float)
    if prior.shape != (len(state),):
        raise ValueError(f"prior_log_prob must return a number for each of {len(state)} states, got {prior.shape}")
    return Bound(prior, paths.log_prob.sum(0), loss)
