r"""What holds a trap: the set of states round its modal state, grown until the time to leave it converges.

A single state is left by every move, also by those from which the chain comes straight back. The mean time h to leave a
set solves :math:`(I - Q) h = 1`, with Q the kernel within the set. A set that holds the states to which a chain makes
its excursions is left only for good, and its h is then the duration of the trap.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular
from tqdm.auto import tqdm

from glauber_lib.checks import check_contexts, check_count, check_numbers, check_temperature
from glauber_lib.checksums import vocabulary_checksum
from glauber_lib.margins import scores_by_site
from glauber_lib.models import ConditionalModel

# Linear systems without subtraction ----------------------------------------------------------------------------------


def factor_leaving(inside: np.ndarray, out: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    r"""Triangular factors of :math:`I - Q`, by Gaussian elimination without a subtraction.

    The pivot of a state is the sum of its probabilities to move to the states that are left and out of the set
    (Grassmann, Taksar & Heyman, 1985; Alfa, Xue & Ye, 2002), not one minus what was eliminated. All entries keep their
    relative precision, however rarely the set is left.

    Parameters
    ----------
    inside : ndarray, float64[K, K]
        Probability of a step from each state to each other one; the diagonal is not used.
    out : ndarray, float64[K]
        Probability of a step out of the set; from every state a chain must get out.

    Returns
    -------
    lower, upper : ndarray, float64[K, K]
        With :math:`I - Q = L U`; L has a unit diagonal, and no entry beside a diagonal is positive.

    Raises
    ------
    ValueError
        If from some state no chain gets out, or with no probability that float64 holds; unless both are of the same
        states; if one is masked or no real number.
    """
    move, out = check_numbers(inside, "probabilities within the set"), check_numbers(out, "probabilities to leave")
    if out.ndim != 1 or move.shape != (len(out), len(out)):
        raise ValueError(f"need probabilities between K states and out of each, got {move.shape} and {out.shape}")
    np.fill_diagonal(move, 0.0)
    size = len(out)
    lower, upper = np.eye(size), np.zeros((size, size))
    for k in range(size):
        rest = slice(k + 1, size)
        pivot = out[k] + move[k, rest].sum()
        if not pivot > 0:
            raise ValueError(f"from every state a chain must get out of the set, got none from state {k} of {size}")
        share = move[rest, k] / pivot
        lower[rest, k] = -share
        upper[k, k], upper[k, rest] = pivot, -move[k, rest]
        move[rest, rest] += share[:, None] * move[k, rest]
        out[rest] += share * out[k]
        np.fill_diagonal(move[rest, rest], 0.0)  # what comes back counts as staying
    return lower, upper


def times_to_leave(inside: np.ndarray, out: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    r"""Mean times to leave a set, and where a chain from its first state spends them.

    Parameters
    ----------
    inside, out
        See `factor_leaving`.

    Returns
    -------
    times : ndarray, float64[K]
        :math:`h = (I - Q)^{-1} 1`, in steps.
    spent : ndarray, float64[K]
        Row of :math:`(I - Q)^{-1}`: steps spent in each state by a chain from the first one; their sum is its time.

    Raises
    ------
    ValueError
        As `factor_leaving`.
    """
    lower, upper = factor_leaving(inside, out)
    times = solve_triangular(upper, solve_triangular(lower, np.ones(len(out)), lower=True, unit_diagonal=True))
    first = np.eye(len(out))[0]
    spent = solve_triangular(lower.T, solve_triangular(upper.T, first, lower=True), unit_diagonal=True)
    return times, spent


# Growth --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GrownSet:
    """A set of states grown from its first one.

    Attributes
    ----------
    states : ndarray, int64[K, n]
        In the order in which they joined.
    sizes : ndarray, int64[R]
        Size of the set after each round, from one on.
    times : ndarray, float64[R]
        Mean time to leave the set from its first state, in steps, at each of `sizes`. It only grows. It is infinite for
        a set that cannot be left, or with no probability that float64 holds; such a set grows no further.
    converged : bool
        Whether the last doubling of the set changed the time by less than the tolerance, or the time is infinite. If
        not, the cap ended the growth, and the time is a lower bound of that of the larger set.
    vocabulary_checksum : str
        Digest of the words that tokens stand for (`checksums.vocabulary_checksum`); empty where it is not known.
    """

    states: np.ndarray
    sizes: np.ndarray
    times: np.ndarray
    converged: bool
    vocabulary_checksum: str = ""

    @property
    def time(self) -> float:
        """Mean time to leave the whole set from its first state, in steps."""
        return float(self.times[-1])


def grow_sets(
    model: ConditionalModel,
    seeds: ArrayLike,
    temperature: ArrayLike,
    *,
    cap: int,
    tolerance: float = 0.2,
    least: int = 16,
    kept: int = 64,
    progress: str | None = None,
) -> list[GrownSet]:
    """Grow a set of states from each of some states, until the mean time to leave it converges.

    Every round adds the outside states through which a chain from the first state leaves the set with highest
    probability, an eighth of the set's size at once and one at least. The conditionals of what all sets add are asked
    for together.

    Parameters
    ----------
    model : ConditionalModel
    seeds : array_like, int[T, n]
    temperature : float or array_like, float[T]
    cap : int
        States of a set, at most.
    tolerance : float
        A set has converged when it has `least` states or more, an earlier set had at most half its size, and its time
        is less than 1 + `tolerance` times that of the largest such set.
    least : int
    kept : int
        Tokens of each conditional, the likeliest ones, that may join. Moves to the others leave the set for good, so
        that the time is a lower bound where they matter.
    progress : str, optional
        Title of a progress bar.

    Returns
    -------
    list of GrownSet
        One for each of `seeds`.

    Raises
    ------
    ValueError
        For a temperature that is not positive and finite, a tolerance that is no number >= 0, or a `cap`, `least` or
        `kept` below one.
    """
    seeds, cap = check_contexts(seeds, model.n_tokens), check_count(cap, "cap", least=1)
    temperature = check_temperature(temperature, (len(seeds),))
    kept, least = min(check_count(kept, "kept", least=1), model.n_tokens - 1), check_count(least, "least", least=1)
    if not 0 <= tolerance < np.inf:
        raise ValueError(f"tolerance must be a number >= 0, got {tolerance}")
    sets = [_Growing(state, tau, kept) for state, tau in zip(seeds, temperature, strict=True)]
    growing = sets
    with tqdm(total=len(sets), desc=progress, unit="set", disable=progress is None, leave=False) as bar:
        while growing:
            _learn(model, growing)
            for grown in growing:
                grown.solve(cap, tolerance, least)
            growing = [grown for grown in growing if len(grown.joining)]
            bar.update(len(sets) - len(growing) - bar.n)
    words = vocabulary_checksum(model)
    return [grown.result(words) for grown in sets]


class _Growing:
    """A set on its way. States have numbers in the order in which they were seen, as members or as targets of moves."""

    def __init__(self, seed, temperature, kept):
        self.temperature, self.kept, self.n = temperature, kept, len(seed)
        self.number, self.known = {}, []
        self.members = np.zeros(0, np.int64)
        self.joining = [self._number(seed)]
        self.target = np.zeros((0, self.n * kept), np.int64)  # number of the state that each move leads to
        self.chance = np.zeros((0, self.n * kept))
        self.tail = np.zeros(0)  # probability of the moves that are not kept
        self.sizes, self.times, self.converged = [], [], False

    def _number(self, state):
        key = state.tobytes()
        if key not in self.number:
            self.number[key] = len(self.known)
            self.known.append(state)
        return self.number[key]

    def learn(self, tokens, chances, tails):
        """Take in conditionals of the states that join: likeliest other tokens [J, n, kept], and the rest [J, n]."""
        target = np.empty((len(self.joining), self.n, self.kept), np.int64)
        for row, i in np.ndindex(target.shape[:2]):
            reached = np.tile(self.known[self.joining[row]], (self.kept, 1))
            reached[:, i] = tokens[row, i]
            target[row, i] = [self._number(state) for state in reached]
        flat = (len(self.joining), -1)
        self.members = np.concatenate([self.members, self.joining])
        self.target = np.concatenate([self.target, target.reshape(flat)])
        self.chance = np.concatenate([self.chance, chances.reshape(flat) / self.n])
        self.tail = np.concatenate([self.tail, tails.sum(1) / self.n])

    def solve(self, cap, tolerance, least):
        """Time to leave the set as it is, and the states that join next: none when it is done."""
        size, place = len(self.members), np.full(len(self.known), -1)
        place[self.members] = np.arange(size)
        to = place[self.target]
        row, move = np.nonzero(to >= 0)
        inside = np.zeros((size, size))
        np.add.at(inside, (row, to[row, move]), self.chance[row, move])
        leaves = np.where(to < 0, self.chance, 0.0)
        time, spent = _time_from_first(inside, leaves.sum(1) + self.tail)
        self.sizes.append(size)
        self.times.append(time)
        half = np.searchsorted(self.sizes, size // 2, side="right") - 1
        settled = half >= 0 and size >= least and time < (1 + tolerance) * self.times[half]
        self.converged = np.isinf(time) or settled
        self.joining = []
        if spent is not None and not self.converged and size < cap:
            flow = np.bincount(self.target.ravel(), (spent[:, None] * leaves).ravel(), minlength=len(self.known))
            most = np.argsort(-flow, kind="stable")[: min(1 + size // 8, cap - size)]
            self.joining = most[flow[most] > 0].tolist()
            self.converged = not self.joining  # no state is left that could join

    def result(self, words):
        states = np.array([self.known[k] for k in self.members])
        return GrownSet(states, np.array(self.sizes), np.array(self.times), bool(self.converged), words)


def _time_from_first(inside, out):
    """Mean time to leave from the first state, from which all others are reached, and where it is spent."""
    try:
        times, spent = times_to_leave(inside, out)
    except ValueError:  # some state has no way out
        return np.inf, None
    return times[0], spent


def _learn(model: ConditionalModel, growing: Sequence[_Growing]) -> None:
    """Ask for the conditionals of all states that join the sets, each different state once."""
    joining = [(grown, k) for grown in growing for k in grown.joining]
    states = np.array([grown.known[k] for grown, k in joining])
    distinct, place = np.unique(states, axis=0, return_inverse=True)
    place, kept = place.ravel(), growing[0].kept
    n = states.shape[1]
    tokens = np.empty((len(joining), n, kept), np.int64)
    chances, tails = np.empty((len(joining), n, kept)), np.empty((len(joining), n))
    users = [np.flatnonzero(place == k) for k in range(len(distinct))]
    for rows, scores in scores_by_site(model, distinct):
        for score, row in zip(scores, rows, strict=True):
            k, i = divmod(int(row), n)
            for user in users[k]:
                law = ((score - score.max()) / joining[user][0].temperature).log_softmax(0)  # finite when cold
                law[distinct[k, i]] = -torch.inf
                best = law.topk(kept)
                tokens[user, i], chances[user, i] = best.indices.cpu().numpy(), best.values.exp().cpu().numpy()
                law[best.indices] = -torch.inf
                tails[user, i] = float(law.logsumexp(0).exp())
    for grown in growing:
        mine = [k for k, (owner, _) in enumerate(joining) if owner is grown]
        grown.learn(tokens[mine], chances[mine], tails[mine])
