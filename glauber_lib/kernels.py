r"""The chain as the paper defines it, run plainly: what every short cut of `engine` is tested against.

A kernel is a function from the state of one chain to its next state. `glauber` is the paper's:

.. math:: P_\tau(x, y) = \frac1n \sum_i \mathbf 1\{y_{-i} = x_{-i}\}\, \pi_{i,\tau}(y_i \mid x_{-i})

(paper §3). `run` applies a kernel step by step to one chain after another; a step costs what the kernel asks of the
model. `run` with `glauber` takes exactly the path of `chains.run_chains`.

`update_block` resamples several distinct sites in a step. Of a joint law `p` and a block `K` the kernels are

- ``"sequential"``: the block is hidden and drawn site by site, each given the sites drawn before: block dynamics,
  :math:`x_K' \sim p(\cdot \mid x_{-K})`, whose stationary law is `p`;
- ``"hidden"``: the block is hidden and each site drawn by itself, :math:`x_i' \sim p(\cdot \mid x_{-K})`;
- ``"visible"``: each site is drawn given the old tokens of all others, :math:`x_i' \sim p(\cdot \mid x_{-i})`. With all
  sites in the block this is independent parallel decoding (Li et al., 2024, Definition 4.1.11).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from glauber_lib.answers import ask, refuse_unable_to_hide
from glauber_lib.checks import (
    ABSENT,
    check_chains,
    check_count,
    check_frozen,
    check_indices,
    check_numbers,
    check_seed,
    check_states,
    check_temperature,
)
from glauber_lib.checksums import model_checksum, vocabulary_checksum
from glauber_lib.draws import chunks, inverse_cdf, site_stream, site_uniforms, uniforms, weights
from glauber_lib.models import ConditionalModel
from glauber_lib.traces import Trace, moves_before, where_met

Kernel = Callable[..., np.ndarray]  # takes what `glauber` takes and returns what it returns
SCANS = ("random", "sweep", "sweep-down")
INSIDES = ("sequential", "hidden", "visible")


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


def update_block(
    model: ConditionalModel,
    state: np.ndarray,
    free: np.ndarray,
    *,
    temperature: float,
    step: int,
    draw: Callable[..., np.ndarray],
    block: int | None = None,
    scan: str = "random",
    inside: str = "sequential",
) -> np.ndarray:
    """One step that resamples a block of distinct free sites; a block of one is `glauber`, number for number.

    Parameters
    ----------
    model, state, free, temperature
        See `glauber`.
    step : int
        Number of the step, from 0; a sweep goes on from where the step before ended.
    draw : callable
        See `glauber`. Site j of the block takes two numbers of the stream 0 (j = 0) or 15 + j: which site, which token.
    block, scan, inside
        See `run`.

    Returns
    -------
    ndarray, int64[n]
        The next state.
    """
    size = len(free) if block is None else block
    if size > len(free):
        raise ValueError(f"block must be at most the number of free sites, got {size} of {len(free)}")
    numbers = np.stack([draw(stream=site_stream(j)) for j in range(size)])
    return _resample(model, state[None], free[None], np.array([temperature]), step, numbers[None], scan, inside)[0]


def _resample(model, states, free, temperatures, step, numbers, scan, inside):
    """States int64[B, n] after one step of `update_block` each, with its numbers float64[B, size, 4]."""
    rows, size = np.arange(len(states))[:, None], numbers.shape[1]
    pool = (free[:, ::-1] if scan == "sweep-down" else free).copy()  # (B, m)
    if scan != "random":
        pool = pool[:, (step * size + np.arange(size)) % pool.shape[1]]
    for j in range(size):  # Fisher and Yates: the block in random order
        k = j + (numbers[:, j, 0] * (pool.shape[1] - j)).astype(np.int64)
        pool[rows, [j]], pool[rows, k[:, None]] = pool[rows, k[:, None]], pool[rows, [j]]
    sites, after = pool[:, :size], states.copy()
    for part in np.split(np.arange(size), size) if inside == "sequential" else [np.arange(size)]:
        hidden = np.zeros(states.shape, bool)
        if inside != "visible":
            hidden[rows, sites[:, part[0] :]] = True
        asked = np.repeat(after, len(part), axis=0), sites[:, part].ravel(), np.repeat(hidden, len(part), axis=0)
        asked = asked if hidden.sum(1).max() > 1 else asked[:2]  # the asked site is hidden anyway
        uniform, heat = numbers[:, part, 1].ravel(), np.repeat(temperatures, len(part))
        drawn, _ = draw_tokens(model, asked, heat, uniform)
        after[rows, sites[:, part]] = drawn.reshape(len(states), len(part))
    return after


def draw_tokens(
    model: ConditionalModel,
    asked: Sequence[np.ndarray],
    temperatures: npt.ArrayLike,
    uniform: npt.ArrayLike,
    *,
    trim: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Tokens drawn at a site of each of K states, and the probability of each, asked for 256 rows at a time.

    Parameters
    ----------
    model : ConditionalModel
    asked : tuple of ndarray
        What `scores` is asked: states int64[K, n], sites int64[K], and perhaps hidden sites bool[K, n].
    temperatures : float or array_like, float[K]
    uniform : array_like, float[K]
        The numbers drawn with, in [0, 1).
    trim : callable, optional
        Takes the weights float64[k, V] of k rows and returns those that are drawn with; by default the same.

    Returns
    -------
    tokens : ndarray, int64[K]
    probabilities : ndarray, float64[K]

    Raises
    ------
    ValueError
        For arguments that are not one for each state, numbers outside [0, 1), a temperature that is not positive and
        finite, and as `answers.ask`.
    """
    uniform = check_numbers(uniform, "uniform", listed=True)
    temperatures, asked = check_temperature(temperatures, uniform.shape), [np.asarray(part) for part in asked]
    if any(len(part) != len(uniform) for part in asked) or not ((uniform >= 0) & (uniform < 1)).all():
        raise ValueError(f"need one number in [0, 1) for each of the states, got {uniform.shape}")
    tokens, chances = np.empty(len(uniform), np.int64), np.empty(len(uniform))
    for some in chunks(np.arange(len(uniform)), 256):
        law = weights(ask(model, *(part[some] for part in asked)), temperatures[some])
        law = law if trim is None else trim(law)
        token, low, high = inverse_cdf(law, torch.tensor(uniform[some], device=law.device))
        tokens[some], chances[some] = token.cpu().numpy(), (high - low).cpu().numpy()
    return tokens, chances


def run(
    model: ConditionalModel,
    states: npt.ArrayLike,
    *,
    n_steps: int,
    temperature: npt.ArrayLike = 1.0,
    seed: int = 0,
    chains: npt.ArrayLike | None = None,
    frozen: npt.ArrayLike | None = None,
    until: Callable[[np.ndarray], npt.ArrayLike] | None = None,
    kernel: Kernel = glauber,
    block: int | None = 1,
    scan: str = "random",
    inside: str = "sequential",
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
    until : callable, optional
        A condition bool[K] on states int[K, n]: a chain stops for good as soon as it holds.
    kernel : Kernel
    block : int or None
        Sites that a step resamples, all free ones for None.
    scan : {"random", "sweep", "sweep-down"}
        The block is uniform among those of its size, or the next free sites in rising or falling order, from the first
        again after the last.
    inside : {"sequential", "hidden", "visible"}
        How the tokens of a block are drawn (see the module). Unless the block is one site, the first two ask a model
        that can hide sites. At a temperature other than one sequential draws have not the law of the block at that
        temperature: the conditionals of fewer sites are scaled too.

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
        changes a frozen site, or returns anything but integers of its shape that are tokens. For a block below one or
        larger than a chain's free sites, an unknown `scan` or `inside`, either of these beside a `kernel`, a model that
        cannot hide sites where it must, or an `until` that does not return a truth value for each state.
    """
    n_steps, seed = check_count(n_steps, "n_steps"), check_seed(seed)
    initial = check_states(states, model.n_tokens)
    temperature = check_temperature(temperature, (len(initial),))
    chains, frozen = check_chains(chains, len(initial)), check_frozen(frozen, initial)
    by_block = _check_block(model, kernel, block, scan, inside, (~frozen & (initial != ABSENT)).sum(1))
    counted, moves, stopped = Counted(model), [], np.full(len(initial), -1)
    if by_block:
        moves, stopped = _run_blocks(
            counted, initial, frozen, n_steps, temperature, seed, chains, until, (block, scan, inside)
        )
    for row, state in enumerate([] if by_block else initial):
        state, free = state[state != ABSENT], np.flatnonzero(~frozen[row] & (state != ABSENT))
        free.flags.writeable = False
        for step in range(n_steps):
            if until is not None and where_met(until, state[None].copy())[0]:
                stopped[row] = step
                break
            draw = partial(_draw, seed, chains[row], step)
            state.flags.writeable = False
            after = kernel(counted, state, free, temperature=float(temperature[row]), step=step, draw=draw)
            after = _next_state(after, state, free, model.n_tokens, step)
            moves += [(step, row, site, state[site], after[site]) for site in np.flatnonzero(after != state)]
            state = after
        if until is not None and stopped[row] < 0 and where_met(until, state[None].copy())[0]:
            stopped[row] = n_steps
    step, chain, site, old, new = moves_before(n_steps, [np.array(moves, dtype=np.int64).reshape(-1, 5).T])
    return Trace(
        initial, step, chain, site, old, new, n_steps, temperature, seed, chains, frozen,
        stopped=stopped, model=getattr(model, "name", ""), model_calls=counted.calls,
        model_checksum=model_checksum(model), vocabulary_checksum=vocabulary_checksum(model),
        condition=model_checksum(until), kernel=_name_of(kernel, (block, scan, inside) if by_block else None),
    )  # fmt: skip


def _check_block(model, kernel, block, scan, inside, n_free):
    """Whether `run` resamples blocks; ValueError for a block that its chains or the model cannot have."""
    if scan not in SCANS or inside not in INSIDES:
        raise ValueError(f"scan must be one of {SCANS} and inside one of {INSIDES}, got {scan!r} and {inside!r}")
    block = None if block is None else check_count(block, "block", least=1)
    if (block, scan) == (1, "random"):
        return False
    if kernel is not glauber:
        raise ValueError("a kernel of your own chooses its sites itself: leave out block and scan")
    if block is not None and block > n_free.min():
        raise ValueError(f"block must be at most the number of free sites, got {block} and a chain with {n_free.min()}")
    if inside != "visible" and block != 1:
        refuse_unable_to_hide(model)
    return True


def _run_blocks(model, initial, frozen, n_steps, temperature, seed, chains, until, how):
    """Moves and stops of chains that resample blocks: those of one length and as many free sites step together."""
    (block, scan, inside), there = how, initial != ABSENT
    stopped, moves = np.full(len(initial), -1), []
    shapes = np.stack([there.sum(1), (there & ~frozen).sum(1)])
    for n, m in np.unique(shapes, axis=1).T:
        rows = np.flatnonzero((shapes == [[n], [m]]).all(0))
        states = initial[rows, :n]
        free = np.nonzero(~frozen[rows, :n])[1].reshape(len(rows), m)
        for step in range(n_steps + 1):
            if until is not None:
                met = where_met(until, states.copy())
                stopped[rows[met]] = step
                rows, states, free = rows[~met], states[~met], free[~met]
            if step == n_steps or not len(rows):
                break
            numbers = site_uniforms(seed, chains[rows], step, m if block is None else int(block))
            after = _resample(model, states, free, temperature[rows], step, numbers, scan, inside)
            row, site = np.nonzero(after != states)
            moves += zip(np.full(len(row), step), rows[row], site, states[row, site], after[row, site], strict=True)
            states = after
    return moves, stopped


def _name_of(kernel, blocks):
    """What a trace says of its kernel: nothing of `glauber`, whose paths `run_chains` goes on."""
    if blocks:
        return "blocks of {}, {}, {}".format(*blocks)
    named = kernel if hasattr(kernel, "__qualname__") else type(kernel)
    return "" if kernel is glauber else f"{named.__module__}.{named.__qualname__}"


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
