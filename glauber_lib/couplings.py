r"""Maximal coupling and coalescence (paper §6.1).

Two chains update the same site each step; the two tokens come from a maximal coupling of the two conditionals
`p` and `q`: they agree with probability :math:`\sum_v \min(p_v, q_v) = 1 - \mathrm{TV}(p, q)`, the largest possible.
The coalescence time :math:`T_c` is the first step after which the states agree; from then on they stay together.

The unit interval is laid out so that the outcome 'both keep their token' comes first: while it is known and the
uniform falls in it, no model call is needed. This changes nothing in the law.
"""

from dataclasses import dataclass

import numpy as np
import torch
from tqdm.auto import tqdm

from glauber_lib.chains import BLOCK, check_states, check_temperature, inverse_cdf, probabilities, uniforms


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

    # together: a token from the overlap (without x, if keeping x was the first outcome)
    weights = common.scatter(1, x[:, None], torch.where(same, torch.zeros_like(stay), at(common, x))[:, None])
    together, _, _ = inverse_cdf(weights, u[:, 1])
    # apart: tokens from the two residuals, without the pair (x, y) if keeping it was the first outcome
    kept = torch.where(same, torch.zeros_like(tv), at(rest_q, y) / tv.clamp(min=1e-300)).clamp(max=1)
    weights = rest_p.scatter(1, x[:, None], (at(rest_p, x) * (1 - kept))[:, None])
    first, _, _ = inverse_cdf(weights, u[:, 1])
    barred = ~same & (first == x)
    weights = rest_q.scatter(1, y[:, None], torch.where(barred, torch.zeros_like(tv), at(rest_q, y))[:, None])
    second, _, _ = inverse_cdf(weights, u[:, 2])

    keep, join = u[:, 0] < stay, u[:, 0] < stay + diagonal
    new_x = torch.where(keep, x, torch.where(join, together, first))
    new_y = torch.where(keep, y, torch.where(join, together, second))
    return new_x, new_y, stay


@dataclass(frozen=True)
class Coalescence:
    """Result of `coalesce`.

    Attributes
    ----------
    time : ndarray, float64[B]
        Steps until the pair agreed; ``nan`` where it did not within the budget (censored at `n_steps`).
    n_steps : int
        Budget.
    hamming : ndarray, int16[n_steps + 1, B]
        Number of sites at which the pair differs, before the first and after each step.
    final : ndarray, int64[2, B, n]
        States at the end; a coalesced pair is left where it met.
    model_calls : int
        Pairs of conditionals evaluated.
    """

    time: np.ndarray
    n_steps: int
    hamming: np.ndarray
    final: np.ndarray
    model_calls: int

    @property
    def censored(self):
        """Pairs that did not coalesce within the budget, bool[B]."""
        return np.isnan(self.time)


def coalesce(model, x, y, *, n_steps, temperature=1.0, seed=0, pairs=None, progress=None):
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
    progress : str, optional
        Title of a progress bar.

    Returns
    -------
    Coalescence
    """
    if np.ndim(x) != 2 or np.shape(x) != np.shape(y):
        raise ValueError(f"x and y must both have shape (pairs, sites), got {np.shape(x)} and {np.shape(y)}")
    state = np.stack([check_states(x, model.n_tokens), check_states(y, model.n_tokens)])  # (2, B, n)
    _, size, n = state.shape
    temperature = check_temperature(temperature, (size,))
    pairs = np.arange(size) if pairs is None else np.asarray(pairs)
    time = np.where((state[0] == state[1]).all(1), 0.0, np.nan)
    hamming = np.zeros((n_steps + 1, size), dtype=np.int16)
    hamming[0] = (state[0] != state[1]).sum(1)
    stay = np.full((size, n), -1.0)  # probability that both keep their token; -1: not known
    calls = 0
    bar = tqdm(total=n_steps, desc=progress, unit="step", disable=progress is None, leave=False)
    for first in range(0, n_steps, BLOCK):
        draws = uniforms(seed, pairs, first, min(BLOCK, n_steps - first))
        for t, u in enumerate(draws, start=first):
            open_pairs = np.flatnonzero(np.isnan(time))
            site = (u[:, 0] * n).astype(np.int64)
            ask = open_pairs[u[open_pairs, 1] >= stay[open_pairs, site[open_pairs]]]
            hamming[t + 1] = hamming[t]
            if len(ask) == 0:
                if len(open_pairs) == 0:
                    break
                continue
            at = site[ask]
            both = model.scores(np.concatenate(state[:, ask]), np.tile(at, 2))
            law = probabilities(both, np.tile(temperature[ask], 2)).view(2, len(ask), -1)
            old = torch.from_numpy(state[:, ask, at]).to(law.device)
            *new, kept = maximal_coupling(*law, *old, torch.from_numpy(u[ask, 1:]).to(law.device))
            new = torch.stack(new)
            still = (new == old).all(0).cpu().numpy()
            stay[ask[~still]] = -1.0
            stay[ask[still], at[still]] = kept.cpu().numpy()[still]
            state[:, ask, at] = new.cpu().numpy()
            calls += len(ask)
            hamming[t + 1, ask] = (state[0, ask] != state[1, ask]).sum(1)
            time[ask[hamming[t + 1, ask] == 0]] = t + 1
        bar.update(len(draws))
        bar.set_postfix(coalesced=f"{int((~np.isnan(time)).sum())}/{size}")
    bar.close()
    return Coalescence(time, n_steps, hamming, state, calls)
