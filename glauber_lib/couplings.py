r"""Maximal coupling and coalescence (paper §6.1).

Two chains update the same site each step; the two tokens come from a maximal coupling of the two conditionals
`p` and `q`: they agree with probability :math:`\sum_v \min(p_v, q_v) = 1 - \mathrm{TV}(p, q)`, the largest possible.
The coalescence time :math:`T_c` is the first step after which the states agree; from then on they stay together.

The unit interval is laid out so that the outcome 'both keep their token' comes first: while it is known and the
uniform falls in it, nothing is computed (`engine`). This changes nothing in the law.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from glauber_lib.checkpoints import Checkpoint, Stored
from glauber_lib.draws import check_states, check_temperature, inverse_cdf, probabilities
from glauber_lib.engine import ALWAYS, UNKNOWN, Conditionals, run_clocks
from glauber_lib.traces import moves_before, replay


def maximal_coupling(p, q, x, y, u):
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
    """
    common = torch.minimum(p, q)
    rest_p, rest_q = p - common, q - common
    tv = (0.5 * (rest_p.sum(1) + rest_q.sum(1))).clamp(min=0)
    at = lambda w, k: w.gather(1, k[:, None])[:, 0]  # noqa: E731
    same = x == y
    apart = torch.where(tv > 0, at(rest_p, x) * at(rest_q, y) / tv.clamp(min=1e-300), torch.zeros_like(tv))
    stay = torch.where(same, at(common, x), apart)
    diagonal = (1 - tv) - torch.where(same, stay, torch.zeros_like(stay))

    new_x, new_y = x.clone(), y.clone()
    keep = u[:, 0] < stay
    join = ~keep & (u[:, 0] < stay + diagonal)
    part = ~keep & ~join

    # together: a token from the overlap (without x, if keeping x was the first outcome)
    zero = torch.zeros_like(tv)
    weights = common[join].scatter(1, x[join, None], torch.where(same, zero, at(common, x))[join, None])
    new_x[join], _, _ = inverse_cdf(weights, u[join, 1])
    new_y[join] = new_x[join]
    # apart: tokens from the two residuals, without the pair (x, y) if keeping it was the first outcome
    kept = torch.where(same, zero, at(rest_q, y) / tv.clamp(min=1e-300)).clamp(max=1)
    weights = rest_p[part].scatter(1, x[part, None], (at(rest_p, x) * (1 - kept))[part, None])
    new_x[part], _, _ = inverse_cdf(weights, u[part, 1])
    barred = (~same & (new_x == x))[part]
    weights = rest_q[part].scatter(1, y[part, None], torch.where(barred, 0.0, at(rest_q, y)[part])[:, None])
    new_y[part], _, _ = inverse_cdf(weights, u[part, 2])
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
    hamming : ndarray, int16[n_steps + 1, B]
        Number of sites at which the pair differs, before the first and after each step.
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
    """

    time: np.ndarray
    n_steps: int
    hamming: np.ndarray
    initial: np.ndarray
    moves: np.ndarray
    temperature: np.ndarray
    seed: int
    pairs: np.ndarray
    model: str
    model_calls: int
    complete: bool = True

    def states(self, steps):
        """States int64[K, 2, B, n] of both chains after each of the K numbers of `steps` (0 to `n_steps`).

        A coalesced pair is left where it met.
        """
        step, pair, site, *new = self.moves
        return replay(self.initial, step, (pair, site), np.stack(new), steps, self.n_steps)

    @cached_property
    def final(self):
        """States int64[2, B, n] at the end."""
        return self.states(self.n_steps)[0]

    @property
    def censored(self):
        """Pairs that did not coalesce within the budget, bool[B]."""
        return np.isnan(self.time)


class _Pairs:
    """The pairs of one run on their way: states, what is known of their couplings, moves."""

    def __init__(self, conditionals, state, temperature):
        self.conditionals, self.state, self.temperature = conditionals, state, temperature  # state: (2, B, n)
        self.keep = np.empty((2, *state.shape[1:]))  # uniforms for which both keep their token
        self.keep[:] = UNKNOWN
        self.keep[:, (state[0] == state[1]).all(1)] = ALWAYS
        self.moves = []  # arrays (5, .): step, pair, site, new token of x, of y

    def step(self, rows, sites, uniform, steps):
        """One coupled step of each pair of `rows`."""
        both = self.conditionals.scores(np.concatenate(self.state[:, rows]), np.tile(sites, 2))
        law = probabilities(both, np.tile(self.temperature[rows], 2)).unflatten(0, (2, len(rows)))
        old = self.state[:, rows, sites]
        drawn = maximal_coupling(
            *law, *torch.from_numpy(old).to(law.device), torch.from_numpy(uniform.copy()).to(law.device)
        )
        *new, stay = torch.stack(drawn).cpu().numpy()  # one transfer: tokens are small enough for float64
        new = np.array(new, dtype=np.int64)
        moved = (new != old).any(0)
        self.keep[:, rows[moved]] = UNKNOWN
        self.keep[:, rows[~moved], sites[~moved]] = np.stack([np.zeros((~moved).sum()), stay[~moved]])
        self.moves.append(np.stack([steps, rows, sites, *new])[:, moved])
        self.state[:, rows, sites] = new
        met = rows[moved & (self.state[0, rows] == self.state[1, rows]).all(1)]
        self.keep[:, met] = ALWAYS


def coalesce(
    model, x, y, *, n_steps, temperature=1.0, seed=0, pairs=None, memory=None, checkpoint=None, progress=None
):
    """Run B maximally coupled pairs of chains until they agree or the budget ends.

    Parameters
    ----------
    model : ConditionalModel
    x, y : array_like, int[B, n]
        Initial states of the two chains of each pair.
    n_steps : int
        Budget of steps.
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
        After Ctrl-C of the steps done so far.

    Raises
    ------
    ValueError
        For pairs of different shapes, a temperature that is not positive and finite, states that are no int[B, n] of
        tokens of the model, or a checkpoint of another run.
    """
    if np.ndim(x) != 2 or np.shape(x) != np.shape(y):
        raise ValueError(f"x and y must both have shape (pairs, sites), got {np.shape(x)} and {np.shape(y)}")
    initial = np.stack([check_states(x, model.n_tokens), check_states(y, model.n_tokens)])  # (2, B, n)
    _, size, n = initial.shape
    temperature = check_temperature(temperature, (size,))
    pairs = np.arange(size) if pairs is None else np.asarray(pairs)
    same = {"temperature": temperature, "seed": int(seed), "pairs": pairs, "model": getattr(model, "name", "")}
    kept = Checkpoint(checkpoint, Coalescence)
    found = kept.resume(n_steps, initial=initial, **same)
    start, calls, before = 0, 0, np.zeros((5, 0), dtype=np.int64)
    if found:
        start, calls, before = found.n_steps, found.model_calls, found.moves
    conditionals = Conditionals(model, memory)
    running = _Pairs(conditionals, (found.final if found else initial).copy(), temperature)

    def so_far(done):
        moves = moves_before(start + done, [before, *running.moves])
        hamming = _hamming(initial, moves, start + done)
        time = np.where((hamming == 0).any(0), (hamming == 0).argmax(0), np.nan)
        return Coalescence(
            time, start + done, hamming, initial, moves, **same, model_calls=calls + conditionals.calls,
            complete=start + done == n_steps,
        )  # fmt: skip

    def go_on(done):
        if kept.due():
            kept.write(so_far(done))
        return True

    done = run_clocks(
        running.step, running.keep, np.tile(np.arange(n), (size, 1)), np.full(size, n), seed=seed, chains=pairs,
        start=start, n_steps=n_steps - start, at_once=max(1, 2**22 // model.n_tokens), progress=progress, go_on=go_on,
    )  # fmt: skip
    return kept.write(so_far(done))


def _hamming(initial, moves, n_steps):
    """Hamming distance int16[n_steps + 1, B] of each pair over time, from its moves."""
    apart = initial[0] != initial[1]  # (B, n)
    hamming = np.zeros((n_steps + 1, len(apart)), dtype=np.int16)
    hamming[0] = apart.sum(1)
    step, pair, site, x, y = moves[:, np.lexsort(moves[:3])]  # the moves of each site of each pair in order of time
    after = (x != y).astype(np.int16)
    first = np.diff(pair * apart.shape[1] + site, prepend=-1) != 0
    before = np.where(first, apart[pair, site], np.roll(after, 1))
    np.add.at(hamming, (step + 1, pair), after - before)
    return hamming.cumsum(0, dtype=np.int16)
