"""Text from masks in a fixed number of parallel rounds: which hidden sites to draw, and which to hide again.

Without an order a round draws every hidden site by itself given the visible ones, as mask-predict does. After it the
least certain sites are hidden again, fewer from round to round, and on request those that repeat their left neighbour
(the refinement of section 4.2.2 of Li et al., 2024, in small). With an order a round draws only the sites that come
first in it: by place, at random, or by what the model says of each hidden site.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike

from glauber_lib.answers import refuse_unable_to_hide
from glauber_lib.checks import (
    check_chains,
    check_contexts,
    check_count,
    check_frozen,
    check_numbers,
    check_seed,
    check_temperature,
    unmasked,
)
from glauber_lib.draws import check_precision, site_uniforms
from glauber_lib.kernels import draw_tokens
from glauber_lib.models import ConditionalModel

REASONS = ("uncertain", "stutter")
BY_MODEL = ("confidence", "margin", "entropy")
ORDERS = ("random", "left", *BY_MODEL)


@dataclass(frozen=True)
class Unmasking:
    """Result of `unmask`.

    Attributes
    ----------
    states : ndarray, int64[T, B, n]
        After each of T rounds. Sites that are hidden again keep their tokens here, and nobody reads them.
    hidden : ndarray, bool[T, B, n]
        The sites that each round draws.
    certainty : ndarray, float64[B, n]
        The probability that each token had when it was drawn, one at sites that never were.
    model_calls : int
        Conditionals asked for.
    """

    states: np.ndarray
    hidden: np.ndarray
    certainty: np.ndarray
    model_calls: int


def unmask(
    model: ConditionalModel,
    states: ArrayLike,
    hidden: ArrayLike,
    *,
    rounds: int | None = None,
    remask: Sequence[str] | None = None,
    temperature: float = 1.0,
    seed: int = 0,
    chains: ArrayLike | None = None,
    order: str | None = None,
    top_p: float = 1.0,
    frozen: ArrayLike | None = None,
) -> Unmasking:
    """Draw hidden sites in a fixed number of rounds.

    Parameters
    ----------
    model : ConditionalModel
        One that can hide sites.
    states : array_like, int[B, n]
    hidden : array_like, bool[B, n]
        Sites to draw; their tokens do not matter. The others are never changed.
    rounds : int, optional
        Of m sites, ⌈m (1 - r/T)⌉ are hidden after round r of T: none after the last. With an order it is by default
        the largest m of a state, so that a round draws one site; without one it must be given.
    remask : sequence of {"uncertain", "stutter"}, optional
        Hide again the least certain sites, and those with the token of their left neighbour, these besides the number
        above. With an order "uncertain" means that a round draws one site more, and the least certain of all drawn so
        far is hidden again; by default nothing is. Without an order the default is the least certain.
    temperature : float
    seed : int
        With the chain's number it determines the draws.
    chains : array_like, int[B], optional
        The chains' numbers; default ``0 .. B - 1``.
    order : {"random", "left", "confidence", "margin", "entropy"}, optional
        Which of the hidden sites a round draws: in a random order, from the left, or first where the best token has the
        largest probability, the largest lead over the second one, or the law the least entropy. The last three ask for
        all hidden sites in each round. By default all are drawn.
    top_p : float
        See `nucleus`.
    frozen : array_like, bool[n] or bool[B, n], optional
        Sites that are visible and stay as they are, whatever `hidden` says.

    Raises
    ------
    ValueError
        For arguments that do not fit each other, a state without a hidden site, an unknown order or reason in
        `remask`, no round or no reason where one is needed, or a model that cannot hide sites.
    """
    seed, top_p = check_seed(seed), check_share(top_p)
    states, temperature = check_contexts(states, model.n_tokens), float(check_temperature(temperature))
    chains, marked = check_chains(chains, len(states)), _check_marked(hidden, frozen, states)
    rounds, remask = _check_rounds(rounds, remask, order, marked)
    if marked.sum(1).max() > 1:
        refuse_unable_to_hide(model)
    certainty, calls, n = np.ones(states.shape), 0, states.shape[1]
    now, kept, drawn, place = marked.copy(), [], [], _places(seed, chains, n, order)
    for r in range(1, rounds + 1):
        left = np.ceil(marked.sum(1) * (1 - r / rounds) - 1e-9).astype(int)  # hidden sites after this round
        more = int(order is not None and r < rounds and "uncertain" in remask)
        count = np.maximum(now.sum(1) - left + more, 0)
        asked = now if place is None else _foremost(now, place, count)
        calls += int(asked.sum())
        uniform = site_uniforms(seed, chains, r - 1, n)[..., 1]
        tokens, sure, score = _draw(model, states, now, asked, uniform, temperature, top_p, order)
        chosen = _foremost(now, score, count) if order in BY_MODEL else asked
        states, certainty = np.where(chosen, tokens, states), np.where(chosen, sure, certainty)
        drawn.append(chosen)
        kept.append(states.copy())
        if r < rounds:
            now = _hidden_after(states, marked, now & ~chosen, certainty, left, remask)
        if not now.any():  # nothing to draw: the rounds left change nothing
            drawn += [now] * (rounds - r)
            kept += [states.copy()] * (rounds - r)
            break
    return Unmasking(np.stack(kept), np.stack(drawn), certainty, calls)


def nucleus(law: torch.Tensor, top_p: float) -> torch.Tensor:
    """Weights [B, V] without those of the least probable tokens, which have less than 1 - `top_p` of the whole.

    The fewest tokens stay whose probabilities sum to `top_p` at least: always the best one. A nan passes. ValueError
    for a `top_p` that does not lie above 0 and at most at 1, and for weights that are no float32 or float64; torch's
    IndexError for no table.
    """
    top_p = check_share(top_p)
    check_precision(law.dtype, "weights")
    if top_p == 1.0:
        return law
    ranked, place = law.sort(dim=1, descending=True, stable=True)
    before = ranked.cumsum(1) - ranked
    ranked = ranked.where(before < top_p * ranked.sum(1, keepdim=True), 0.0)
    ranked[:, 0] = law.amax(1)
    return torch.empty_like(law).scatter_(1, place, ranked)


def check_share(top_p: float) -> float:
    """A share of probability, above 0 and at most 1; ValueError for others."""
    number = check_numbers(top_p, "top_p")
    if number.ndim or not 0 < number <= 1:
        raise ValueError(f"top_p must lie above 0 and at most at 1, got {top_p!r}")
    return float(number)


def _check_marked(hidden, frozen, states):
    """The sites to draw, bool[B, n]."""
    marked = unmasked(hidden, "hidden")
    if marked.dtype != bool or marked.shape != states.shape or not marked.any(1).all():
        raise ValueError(f"hidden must be bool{list(states.shape)} with a site in each state, got {marked.dtype}")
    marked = marked & ~check_frozen(frozen, states)
    if not marked.any(1).all():
        raise ValueError(f"every state needs a site to draw; all are frozen in state {int((~marked.any(1)).argmax())}")
    return marked


def _check_rounds(rounds, remask, order, marked):
    """The number of rounds and the reasons to hide again."""
    if order is not None and order not in ORDERS:
        raise ValueError(f"order must be one of {ORDERS}, or None to draw all hidden sites, got {order!r}")
    if rounds is None:
        if order is None:
            raise ValueError("rounds must be given where all hidden sites are drawn: pass rounds, or an order")
        rounds = int(marked.sum(1).max())
    if remask is None:
        remask = () if order else ("uncertain",)
    if isinstance(remask, str) or not set(remask) <= set(REASONS) or not (len(remask) or order):
        raise ValueError(f"remask must name one or both of {REASONS}, got {remask!r}")
    return check_count(rounds, "rounds", 1, 2**20), remask


def _draw(model, states, now, asked, uniform, temperature, top_p, order):
    """Tokens, their probabilities and the order's scores at the asked sites, each [B, n]."""
    rows, sites = np.nonzero(asked)
    tokens, sure, score, scores = states.copy(), np.ones(states.shape), np.zeros(states.shape), []

    def trim(law):
        if order in BY_MODEL:
            scores.append(_score(law / law.sum(1, keepdim=True), order).cpu().numpy())
        return nucleus(law, top_p)

    several = [now[rows]] if now.sum(1).max() > 1 else []  # the asked site is hidden anyway
    question = (states[rows], sites, *several)
    tokens[asked], sure[asked] = draw_tokens(model, question, temperature, uniform[asked], trim=trim)
    if scores:
        score[asked] = np.concatenate(scores)
    return tokens, sure, score


def _score(law, order):
    """What puts a site first: the larger, the sooner."""
    if order == "entropy":
        return torch.special.xlogy(law, law).sum(1)
    best = law.topk(min(2, law.shape[1]), dim=1).values
    return best[:, 0] if order == "confidence" or best.shape[1] == 1 else best[:, 0] - best[:, 1]


def _places(seed, chains, n, order):
    """What puts a site first in an order that asks no model, float64[B, n]; None for the others."""
    if order == "random":
        return site_uniforms(seed, chains, 0, n)[..., 2]
    return np.tile(-np.arange(n, dtype=float), (len(chains), 1)) if order == "left" else None


def _foremost(now, score, count):
    """Of the marked sites of each row the `count` with the largest score, the left ones first, bool[B, n]."""
    ranked = np.argsort(np.where(now, -score, np.inf), axis=1, kind="stable")
    rank = np.argsort(ranked, axis=1, kind="stable")
    return now & (rank < count[:, None])


def _hidden_after(states, marked, still, certainty, left, remask):
    """The sites that are hidden in the next round, bool[B, n]: those not drawn yet, and those hidden again."""
    again = still
    if "uncertain" in remask:
        lacking = np.maximum(left - still.sum(1), 0)
        again = still | _foremost(marked & ~still, -certainty, lacking)
    if "stutter" in remask:
        same = np.zeros(states.shape, bool)
        same[:, 1:] = (states[:, 1:] == states[:, :-1]) & ~still[:, 1:] & ~still[:, :-1]
        again = again | (same & marked)
    return again
