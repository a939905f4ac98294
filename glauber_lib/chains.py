r"""Glauber dynamics: choose a free site uniformly, resample its token from the conditional.

.. math:: P_\tau(x, y) = \frac1n \sum_i \mathbf 1\{y_{-i} = x_{-i}\}\, \pi_{i,\tau}(y_i \mid x_{-i})

(paper §3). Randomness is counter-based: step `t` of chain `k` uses the numbers that Philox with key (seed, k) gives
at counter `t`: one uniform for the site, one for the token, which is the inverse of the conditional's cumulative
distribution in float64. So a path depends neither on the batch it is computed in nor on where it was resumed.

Two facts save model calls without changing a path: only the masked site goes through the language-model head
(`models.MaskedLM`), and a site's conditional stays valid until another site of the chain changes, so that the
interval of uniforms which keeps its token is remembered until then.
"""

import json
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from tqdm.auto import tqdm

BLOCK = 256  # steps whose random numbers are drawn at once


def uniforms(seed, chains, first_step, n_steps):
    """Uniform numbers float64[n_steps, B, 4] in [0, 1): four a step for each chain.

    Parameters
    ----------
    seed : int
        Non-negative; with the chain number it is the key of the generator.
    chains : sequence of int
        Numbers of the B chains.
    first_step, n_steps : int
        The steps ``first_step .. first_step + n_steps - 1``.
    """
    out = np.empty((n_steps, len(chains), 4))
    for k, chain in enumerate(chains):
        generator = np.random.Philox(key=np.array([seed, chain], np.uint64), counter=first_step)
        out[:, k] = (generator.random_raw(4 * n_steps).reshape(n_steps, 4) >> 11) * 2.0**-53
    return out


def check_temperature(temperature, shape=()):
    """`temperature` as float64 array broadcast to `shape`; ValueError unless positive and finite."""
    values = np.asarray(temperature, dtype=float)
    if not np.all(np.isfinite(values) & (values > 0)):
        raise ValueError(f"temperature must be > 0 and finite, got {temperature}")
    return np.broadcast_to(values, shape).copy()


def check_states(states, n_tokens):
    """A copy of `states` as int64[B, n]; ValueError unless they are whole numbers in 0 .. n_tokens - 1."""
    state = np.array(states)
    if state.ndim != 2 or state.size == 0:
        raise ValueError(f"states must have shape (chains, sites), got {state.shape}")
    if not np.issubdtype(state.dtype, np.integer):
        raise ValueError(f"states must be integers, got {state.dtype}")
    if state.min() < 0 or state.max() >= n_tokens:
        raise ValueError(f"states must hold tokens 0..{n_tokens - 1}, got {state.min()}..{state.max()}")
    return state.astype(np.int64)


def probabilities(scores, temperature):
    """Conditional law float64[B, V] of scores [B, V] at temperatures [B] (paper §3)."""
    temperature = torch.as_tensor(temperature, dtype=torch.float64, device=scores.device)
    return torch.softmax(scores.double() / temperature[..., None], dim=-1)


def inverse_cdf(weights, uniform):
    """Draw one index per row of non-negative `weights`.

    Parameters
    ----------
    weights : torch.Tensor, float64[B, V]
        Not necessarily normalised.
    uniform : torch.Tensor, float64[B]
        In [0, 1).

    Returns
    -------
    index : torch.Tensor, int64[B]
        First index whose cumulative weight exceeds the uniform share of the total: never one of zero weight.
    low, high : torch.Tensor, float64[B]
        The interval of uniforms that gives this index.
    """
    cumulative = weights.cumsum(-1)
    total = cumulative[:, -1]
    target = torch.minimum(uniform * total, torch.nextafter(total, torch.zeros_like(total)))
    index = torch.searchsorted(cumulative, target[:, None], right=True)  # (B, 1)
    index = index.clamp(max=weights.shape[1] - 1)  # only where all weights are zero
    high = cumulative.gather(1, index)[:, 0]
    low = cumulative.gather(1, (index - 1).clamp(min=0))[:, 0].where(index[:, 0] > 0, torch.zeros_like(total))
    return index[:, 0], low / total, high / total


@dataclass(frozen=True)
class Trace:
    """What `run_chains` leaves: the initial states and every move.

    Attributes
    ----------
    initial : ndarray, int64[B, n]
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
    model: str = ""
    model_calls: int = field(default=0, compare=False)
    complete: bool = True

    def states(self, steps):
        """States int64[K, B, n] after each of the K numbers of `steps` (each between 0 and `n_steps`)."""
        steps = np.atleast_1d(steps)
        if steps.min() < 0 or steps.max() > self.n_steps:
            raise ValueError(f"steps must lie in 0..{self.n_steps}, got {steps.min()}..{steps.max()}")
        out = np.empty((len(steps), *self.initial.shape), dtype=np.int64)
        state, done = self.initial.copy(), 0
        for k in np.argsort(steps, kind="stable"):
            until = np.searchsorted(self.step, steps[k], side="left")  # moves at steps < steps[k]
            for m in range(done, until):
                state[self.chain[m], self.site[m]] = self.new[m]
            done = max(done, until)
            out[k] = state
        return out

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
            Steps spent there; the last one is censored by the end of the run.
        """
        mine = self.chain == row
        entered = np.concatenate([[0], self.step[mine] + 1])
        states = np.repeat(self.initial[row][None], len(entered), axis=0)
        for k, (site, token) in enumerate(zip(self.site[mine], self.new[mine], strict=True)):
            states[k + 1 :, site] = token
        return states, entered, np.diff(np.append(entered, self.n_steps))

    def save(self, path):
        """Write everything to one ``.npz``."""
        arrays = {k: v for k, v in vars(self).items() if isinstance(v, np.ndarray)}
        settings = {k: v for k, v in vars(self).items() if isinstance(v, int | str)}
        np.savez_compressed(path, settings=json.dumps(settings), **{k: arrays[k] for k in arrays if k != "final"})

    @classmethod
    def load(cls, path):
        """Read what `save` wrote."""
        with np.load(path, allow_pickle=False) as file:
            arrays = {k: file[k] for k in file.files if k != "settings"}
            return cls(**arrays, **json.loads(str(file["settings"])))


def run_chains(
    model, states, *, n_steps, temperature=1.0, seed=0, chains=None, frozen=None, resume=None, progress=None
):
    """Run B chains of Glauber dynamics side by side, each updating its own random site.

    Parameters
    ----------
    model : ConditionalModel
    states : array_like, int[B, n]
        Initial states (the final ones of `resume`, if that is given).
    n_steps : int
        Steps of each chain.
    temperature : float or array_like, float[B]
        One value or one per chain.
    seed : int
        With the chain's number it determines the path.
    chains : array_like, int[B], optional
        The chains' numbers; default ``0 .. B - 1``.
    frozen : array_like, bool[n] or bool[B, n], optional
        Sites never resampled, such as a prefix; each chain needs a free one.
    resume : Trace, optional
        A trace to go on from: `n_steps` more steps with its settings; `states` is then ignored.
    progress : str, optional
        Title of a progress bar; none by default.

    Returns
    -------
    Trace
        After Ctrl-C the steps done so far, with a message on the progress bar; resume from it to go on.

    Raises
    ------
    ValueError
        For a temperature that is not positive and finite, states that are no int[B, n] of tokens of the model, or a
        chain without a free site.
    """
    if resume is not None:
        states, temperature, seed = resume.final, resume.temperature, resume.seed
        chains, frozen = resume.chains, resume.frozen
    state = check_states(states, model.n_tokens)
    if n_steps < 0:
        raise ValueError(f"n_steps must be >= 0, got {n_steps}")
    size, n = state.shape
    temperature = check_temperature(temperature, (size,))
    chains = np.arange(size) if chains is None else np.asarray(chains, dtype=np.int64)
    if chains.shape != (size,) or seed < 0:
        raise ValueError(f"need one chain number per state and a seed >= 0, got {chains.shape} for {size}, seed {seed}")
    frozen = np.broadcast_to(np.zeros(n, bool) if frozen is None else np.asarray(frozen, bool), (size, n)).copy()
    n_free = (~frozen).sum(1)
    if (n_free == 0).any():
        raise ValueError(f"every chain needs a free site; all are frozen in chain {int(np.argmin(n_free))}")
    free = np.argsort(frozen, axis=1, kind="stable")  # row k: its free sites first

    initial, start = state.copy(), 0 if resume is None else resume.n_steps
    rows, moves, calls, done = np.arange(size), [], 0, 0
    keep = np.full((size, n, 2), [2.0, -1.0])  # uniforms that keep the token; this one: not known
    bar = tqdm(total=n_steps, desc=progress, unit="step", disable=progress is None, leave=False)
    try:
        for first in range(0, n_steps, BLOCK):
            draws = uniforms(seed, chains, start + first, min(BLOCK, n_steps - first))
            sites = free[rows, (draws[:, :, 0] * n_free).astype(np.int64)]  # (steps, B)
            for t, (site, uniform) in enumerate(zip(sites, draws[:, :, 1], strict=True)):
                low, high = keep[rows, site].T
                ask = np.flatnonzero((uniform < low) | (uniform >= high))
                if len(ask):
                    at = site[ask]
                    scores = model.scores(state[ask], at)
                    chosen, low, high = inverse_cdf(
                        probabilities(scores, temperature[ask]), torch.from_numpy(uniform[ask]).to(scores.device)
                    )
                    token, old = chosen.cpu().numpy(), state[ask, at]
                    moved = token != old
                    keep[ask[moved]] = [2.0, -1.0]
                    keep[ask, at] = torch.stack([low, high], dim=1).cpu().numpy()
                    state[ask, at] = token
                    calls += len(ask)
                    if moved.any():
                        moves.append(np.stack([np.full(moved.sum(), start + first + t), ask[moved], at[moved],
                                               old[moved], token[moved]]))  # fmt: skip
                done += 1
            bar.update(len(draws))
    except KeyboardInterrupt:
        bar.write(f"interrupted after {done} of {n_steps} steps: the trace ends there and can be resumed")
    finally:
        bar.close()
    columns = np.concatenate(moves, axis=1) if moves else np.zeros((5, 0), dtype=np.int64)
    columns = columns[:, columns[0] < start + done]
    trace = Trace(
        initial, *columns, start + done, temperature, seed, chains, frozen,
        model=getattr(model, "name", ""), model_calls=calls, complete=done == n_steps,
    )  # fmt: skip
    if resume is None:
        return trace
    joined = {
        k: np.concatenate([getattr(resume, k), getattr(trace, k)]) for k in ("step", "chain", "site", "old", "new")
    }
    return replace(trace, initial=resume.initial, model_calls=calls + resume.model_calls, **joined)
