r"""Value-guided sampling with backtracking: a Markov chain on the tree of prefixes (Li, thesis, §3.3, Algorithm 2).

Strings have H tokens of an alphabet of K. A node is a prefix y. The chain stays with probability 1/2; otherwise it goes
to the parent with weight :math:`\hat V(y)` (0 at the root), to the child ya with weight
:math:`\pi_{\rm ref}(a | y) \hat V(ya)` (0 at leaves). At leaves :math:`\hat V` is the reward. The edge above y carries
:math:`\pi_{\rm ref}(y) \hat V(y)` in both directions. So the chain is reversible for every :math:`\hat V > 0`, with

.. math:: \tilde\pi(y) \propto \pi_{\rm ref}(y)
    \Bigl[\hat V(y) 1_{|y| > 0} + \sum_a \pi_{\rm ref}(a | y) \hat V(ya) 1_{|y| < H}\Bigr],

and on leaves :math:`\tilde\pi \propto \pi_{\rm ref} \times` reward, whatever the guide says inside: a tree has no
cycles that could be incompatible. The exact guide is :math:`V(y) = E[\text{reward} | y]`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import ArrayLike

from glauber_lib.checks import check_count, check_numbers, check_seed
from glauber_lib.exact import DENSE, Sparse, escape_times, reversibility_defect, stationary_law
from glauber_lib.topic_models import check_within

SOLVED = 5  # guides of each epsilon whose stationary law is solved: a tenth of a second each at 511 nodes
Guide = Sequence[ArrayLike]  # values of the prefixes of length 0 .. H, each float64[K, ..., K]


def _check_string_law(reference, reward):
    """Law and reward of whole strings as float64[K, ..., K]; ValueError for others."""
    reference, reward = check_numbers(reference, "reference"), check_numbers(reward, "reward")
    shape = reference.shape
    if not shape or len(set(shape)) > 1 or shape[0] < 2 or reward.shape != shape:
        raise ValueError(
            f"reference and reward must have one axis of K >= 2 for each token, got {shape}, {reward.shape}"
        )
    if sum(shape[0] ** h for h in range(len(shape) + 1)) > DENSE:
        raise ValueError(f"a tree may have {DENSE} nodes, got strings of {len(shape)} tokens of {shape[0]}")
    if not (reference >= 0).all() or not abs(reference.sum() - 1) < 1e-9:
        raise ValueError(f"reference must be a law of strings, got sum {reference.sum():g}")
    if not ((reward >= 0) & (reward <= 1e6)).all() or not (reference * reward).sum() > 1e-12:
        raise ValueError("reward must lie in 0..1e6 and be positive for some string that the reference allows")
    return reference, reward


def _levels(law):
    """Sums of a law of strings over what follows each prefix: arrays of 0 .. H axes."""
    levels = [law]
    while levels[0].ndim:
        levels.insert(0, levels[0].sum(-1))
    return levels


def exact_values(reference: ArrayLike, reward: ArrayLike) -> list[np.ndarray]:
    r"""The exact guide: mean reward of each prefix of length 0 .. H under the reference, 0 where this never goes.

    Parameters
    ----------
    reference : array_like, float64[K, ..., K]
        Law of the strings of H tokens.
    reward : array_like, float64[K, ..., K]
        Of each string, >= 0.

    Raises
    ------
    ValueError
        For what is no law of strings, a reward that is negative or nowhere positive, or more than `exact.DENSE` nodes.
    """
    reference, reward = _check_string_law(reference, reward)
    pairs = zip(_levels(reference * reward), _levels(reference), strict=True)
    return [np.divide(good, all_, out=np.zeros_like(good), where=all_ > 0) for good, all_ in pairs]


def extendable(reference: ArrayLike, reward: ArrayLike) -> list[np.ndarray]:
    """The perfect process verifier: 1 for prefixes that some string with a reward extends, else 0 (Definition 3.1.5).

    ValueError as `exact_values`.
    """
    return [(values > 0).astype(float) for values in exact_values(reference, reward)]


def disturbed(values: Guide, epsilon: float, seed: int = 0) -> list[np.ndarray]:
    r"""A guide whose inner values are wrong by a factor :math:`(1 + \epsilon)^{\pm 1}`, each sign by a fair coin.

    The leaves are those of `values`. ValueError for an epsilon not in 0..1e3, or values that are no guide.
    """
    values, factor = _check_guide(values), 1 + check_within(epsilon, "epsilon", 0.0, 1e3)
    rng = np.random.default_rng([check_seed(seed), 73])
    wrong = [level * factor ** rng.choice([-1.0, 1.0], size=level.shape) for level in values]
    return [*wrong[:-1], values[-1]]


def _check_guide(values):
    """Values of the prefixes of length 0 .. H; ValueError unless level h has h axes of one size."""
    if not isinstance(values, list | tuple) or len(values) < 2:
        raise ValueError("a guide must be a list of values of the prefixes, by their length from 0 on")
    levels = [check_numbers(level, "values") for level in values]
    size = levels[1].size
    if any(level.shape != (size,) * h or not ((level >= 0) & (level < 1e100)).all() for h, level in enumerate(levels)):
        raise ValueError(f"level h of a guide must hold numbers >= 0 on h axes, got shapes {[x.shape for x in levels]}")
    return levels


# The chain -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GuidedTree:
    """The chain of Algorithm 2 on the prefixes that it can reach.

    Attributes
    ----------
    depth : ndarray, int64[S]
        Length of each prefix; the root is the first.
    code : ndarray, int64[S]
        Number of the prefix among those of its length.
    law : ndarray, float64[S]
        Stationary law by the closed form.
    matrix : sparse matrix, float64[S, S]
    size : int
        Strings of whole length, those that are not reached included.
    """

    depth: np.ndarray
    code: np.ndarray
    law: np.ndarray
    matrix: Sparse
    size: int

    @property
    def leaves(self) -> np.ndarray:
        """Numbers of the states that are whole strings."""
        return np.flatnonzero(self.depth == self.depth.max())

    def leaf_law(self, weights: ArrayLike | None = None) -> np.ndarray:
        """A law of all strings, float64[K**H], from weights float64[S] of the states; the stationary one by default.

        ValueError unless there is one weight for each state, >= 0, and some leaf has one.
        """
        weights = self.law if weights is None else check_numbers(weights, "weights")
        if weights.shape != self.law.shape or not (weights >= 0).all() or not 0 < weights[self.leaves].sum() < np.inf:
            raise ValueError(f"need a weight >= 0 of each of {len(self.law)} states, got shape {weights.shape}")
        found = np.zeros(self.size)
        found[self.code[self.leaves]] = weights[self.leaves]
        return found / found.sum()

    def first_leaf_law(self) -> np.ndarray:
        """Law float64[K**H] of the leaf at which the chain from the root first arrives."""
        inner = np.setdiff1d(np.arange(len(self.law)), self.leaves)
        matrix = self.matrix.tocsr()
        rest = sp.eye_array(len(inner), format="csr") - matrix[inner][:, inner]
        start = np.zeros(len(inner))
        start[0] = 1.0
        visits = sp.linalg.spsolve(rest.T.tocsc(), start)  # mean visits of each inner node
        weights = np.zeros(len(self.law))
        weights[self.leaves] = np.maximum(matrix[inner][:, self.leaves].T @ visits, 0)
        return self.leaf_law(weights)

    def time_to_leaf(self) -> float:
        """Mean steps from the root until a leaf is reached."""
        inner = np.setdiff1d(np.arange(len(self.law)), self.leaves)
        return float(escape_times(self.matrix, inner)[0])

    def gap(self) -> float:
        """Spectral gap: the chain is reversible and lazy, so that its second eigenvalue is the next largest modulus."""
        root = np.sqrt(self.law)
        symmetric = root[:, None] * self.matrix.toarray() / root
        return float(1 - np.linalg.eigvalsh((symmetric + symmetric.T) / 2)[-2])

    def walk(self, runs: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Runs of the chain from the root: steps int64[runs] until a leaf, and the code int64[runs] of that leaf.

        ValueError for no run.
        """
        runs, rng = check_count(runs, "runs", 1, 10**6), np.random.default_rng([check_seed(seed), 76])
        matrix = self.matrix.tocsr()
        bounds = np.cumsum(matrix.data)  # one more in every row
        state, steps, left = np.zeros(runs, np.int64), np.zeros(runs, np.int64), np.arange(runs)
        while len(left):
            here = state[left]
            base = np.where(matrix.indptr[here] > 0, bounds[matrix.indptr[here] - 1], 0.0)
            place = np.searchsorted(bounds, base + rng.random(len(left)), side="right")
            state[left] = matrix.indices[np.clip(place, matrix.indptr[here], matrix.indptr[here + 1] - 1)]
            steps[left] += 1
            left = left[self.depth[state[left]] < self.depth.max()]
        return steps, self.code[state]


def guided_chain(reference: ArrayLike, values: Guide) -> GuidedTree:
    """The chain of Algorithm 2 for any guide.

    Parameters
    ----------
    reference : array_like, float64[K, ..., K]
        Law of the strings.
    values : list of arrays
        The guide: values of the prefixes of length 0 .. H, at the leaves the reward. That of the root does not matter.

    Returns
    -------
    GuidedTree
        Prefixes with a value or a probability of zero are left out, as is what lies below them.

    Raises
    ------
    ValueError
        For what is no law of strings, a guide of another shape, or one that leads to no leaf.
    """
    values = _check_guide(values)
    reference, _ = _check_string_law(reference, values[-1])
    if len(values) != reference.ndim + 1:
        raise ValueError(f"the guide must have levels 0..{reference.ndim}, got {len(values)} of them")
    k, chances = len(reference), _levels(reference)
    flows, ids, alive, at = [], [], np.ones(1, bool), 0
    for h, (chance, value) in enumerate(zip(chances, values, strict=True)):
        flow = np.ones(1) if h == 0 else (chance * value).ravel()  # what the edge above carries
        alive = np.repeat(alive, k if h else 1) & (flow > 0)
        ids.append(np.where(alive, at + np.cumsum(alive) - 1, -1))
        flows.append(np.where(alive, flow, 0.0))
        at += alive.sum()
    if not alive.any():
        raise ValueError("the guide leads to no leaf: some prefix of every string has a value of zero")
    edges = []
    for h in range(1, len(values)):
        below = np.flatnonzero(ids[h] >= 0)
        edges.append(np.stack([ids[h][below], ids[h - 1][below // k], flows[h][below]]))
    below, above, flow = np.hstack(edges)
    below, above = below.astype(np.int64), above.astype(np.int64)
    weight = np.bincount(below, flow, at) + np.bincount(above, flow, at)
    place = np.concatenate([below, above]), np.concatenate([above, below])
    move = sp.csr_matrix((np.concatenate([flow, flow]) / (2 * weight[place[0]]), place), shape=(at, at))
    depth = np.concatenate([np.full((level >= 0).sum(), h) for h, level in enumerate(ids)])
    code = np.concatenate([np.flatnonzero(level >= 0) for level in ids])
    matrix = move + sp.diags(1 - np.asarray(move.sum(1)).ravel())
    return GuidedTree(depth, code, weight / weight.sum(), matrix.tocsr(), reference.size)


def action_law(reference: ArrayLike, values: Guide) -> np.ndarray:
    r"""Law float64[K**H] of strings built token by token with weights :math:`\pi_{\rm ref}(a | y) \hat V(ya)`.

    It is action-level guidance; with `extendable` values it is tokenwise rejection (Definition 3.1.5). A prefix without
    a continuation of positive weight ends without a string; what is left is normalised. ValueError as `guided_chain`.
    """
    tree = guided_chain(reference, values)
    move = tree.matrix.tolil()
    move.setdiag(0)
    reach, matrix = np.zeros(len(tree.law)), move.tocsr()
    reach[0] = 1.0
    down = matrix.multiply(tree.depth[None, :] > tree.depth[:, None]).tocsr()
    sums = np.asarray(down.sum(1)).ravel()
    for h in range(tree.depth.max()):
        here = np.flatnonzero((tree.depth == h) & (sums > 0))
        reach += (reach[here] / sums[here]) @ down[here]
    return tree.leaf_law(reach)


def action_cost(reference: ArrayLike, values: Guide) -> float:
    """Mean calls of the oracle by tokenwise rejection: one over the accepted share at every prefix on the way.

    ValueError as `action_law`, and unless every value is zero or one, as of a verifier.
    """
    values = _check_guide(values)
    reference, _ = _check_string_law(reference, values[-1])
    if any(set(np.unique(level)) - {0.0, 1.0} for level in values):
        raise ValueError("a verifier must say 0 or 1 of every prefix, got other values")
    reached = _levels(action_law(reference, values).reshape(reference.shape))
    total, k = 0.0, len(reference)
    chances = _levels(reference)
    for h in range(reference.ndim):
        next_ = np.divide(chances[h + 1], np.repeat(chances[h].ravel(), k).reshape(chances[h + 1].shape),
                          out=np.zeros_like(chances[h + 1]), where=chances[h + 1] > 0)  # fmt: skip
        accepted = (next_ * values[h + 1]).sum(-1)
        total += float(np.divide(reached[h], accepted, out=np.zeros_like(accepted), where=reached[h] > 0).sum())
    return total


# Constraints of §3.1, with a uniform oracle on two tokens ------------------------------------------------------------


def uniform_strings(length: int) -> np.ndarray:
    """The uniform law of the strings of `length` tokens of two, float64[2, ..., 2]; ValueError for more than 11."""
    length = check_count(length, "length", 1, 11)
    return np.full((2,) * length, 2.0**-length)


def constraint(name: str, length: int) -> np.ndarray:
    """The reward, 1 or 0, of the strings of `length` tokens of two, float64[2, ..., 2].

    Parameters
    ----------
    name : {"zeros", "some zero", "parity"}
        All tokens are 0 (Proposition 3.1.1), some token is 0 (Proposition 3.1.2), or their sum is even.
    length : int

    Raises
    ------
    ValueError
        For another name, or a length above 11.
    """
    places = np.indices(uniform_strings(length).shape)
    found = {"zeros": places.sum(0) == 0, "some zero": places.min(0) == 0, "parity": places.sum(0) % 2 == 0}
    if not isinstance(name, str) or name not in found:
        raise ValueError(f"name must be one of {list(found)}, got {name!r}")
    return found[name].astype(float)


def survey_guides(name: str, length: int, epsilons: ArrayLike, n_guides: int, seed: int = 0) -> pd.DataFrame:
    """What wrong guides cost: total variation of three ways to draw strings from the target, exact.

    Parameters
    ----------
    name, length
        See `constraint`; the reference is uniform.
    epsilons : array_like, float64[E]
        See `disturbed`.
    n_guides : int
        Wrong guides, each with every epsilon.
    seed : int

    Returns
    -------
    DataFrame
        A row for each epsilon and guide: ``epsilon``, ``guide``; the distances of ``action``-level guidance, of the
        ``first_leaf`` and of the ``stationary`` law on leaves; ``gap`` of the chain; ``defect``, its net flow in
        equilibrium. The law of the first `SOLVED` guides is solved from the matrix, of others checked against it.

    Raises
    ------
    ValueError
        As `constraint` and `disturbed`, for no guide or no epsilon.
    """
    reference, reward = uniform_strings(length), constraint(name, length)
    target = (reference * reward).ravel() / (reference * reward).sum()
    values, n_guides = exact_values(reference, reward), check_count(n_guides, "n_guides", 1, 10**5)
    epsilons, rows = check_numbers(epsilons, "epsilons", listed=True), []
    if not len(epsilons):
        raise ValueError("need an epsilon, got none")
    far = lambda law: float(0.5 * np.abs(law - target).sum())  # noqa: E731
    for epsilon in epsilons.tolist():
        for guide in range(n_guides):
            wrong = disturbed(values, epsilon, check_seed(seed) + guide)
            tree = guided_chain(reference, wrong)
            law = stationary_law(tree.matrix) if guide < SOLVED else tree.law
            found = far(action_law(reference, wrong)), far(tree.first_leaf_law()), far(tree.leaf_law(law))
            rows.append((epsilon, guide, *found, tree.gap(), reversibility_defect(tree.matrix, law=law)))
    return pd.DataFrame(rows, columns=["epsilon", "guide", "action", "first_leaf", "stationary", "gap", "defect"])


def simulate_costs(length: int, runs: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Oracle calls int64[runs] until a uniform oracle on two tokens has given all zeros (Proposition 3.1.1).

    Returns
    -------
    dict of str to ndarray
        ``rejection`` draws whole strings until one is right, ``tokenwise`` draws each token until it is.

    Raises
    ------
    ValueError
        For a length not in 1..12, or no run.
    """
    length, runs = check_count(length, "length", 1, 12), check_count(runs, "runs", 1, 10**5)
    rng, calls = np.random.default_rng([check_seed(seed), 74]), {}
    for name, size in (("rejection", length), ("tokenwise", 1)):  # tokens that are drawn together
        calls[name] = np.zeros(runs, np.int64)
        for _ in range(length // size):
            left = np.arange(runs)
            while len(left):
                calls[name][left] += size
                left = left[rng.integers(2, size=(len(left), size)).any(1)]
    return calls


def simulate_tokenwise(name: str, length: int, runs: int, seed: int = 0) -> np.ndarray:
    """Strings int64[runs, length] by tokenwise rejection with a perfect verifier of a `constraint`: each token is drawn
    uniformly until some string with a reward extends the prefix. ValueError as `constraint`, or for no run.
    """
    reward, runs = constraint(name, length), check_count(runs, "runs", 1, 10**5)
    right, rng = extendable(uniform_strings(length), reward), np.random.default_rng([check_seed(seed), 79])
    strings = np.zeros((runs, length), np.int64)
    for h, level in enumerate(right[1:], 1):
        left = np.arange(runs)
        while len(left):
            strings[left, h - 1] = rng.integers(2, size=len(left))
            left = left[level[tuple(strings[left, :h].T)] == 0]
    return strings


def search_queries(length: int, runs: int, seed: int = 0) -> np.ndarray:
    r"""Queries int64[runs] until a search without replacement finds a hidden string of `length` - 1 tokens of two.

    The mean is :math:`(2^{D-1} + 1)/2`, half of the least number of queries that Theorem 3.1.1 states. ValueError for a
    length not in 2..12, or no run.
    """
    length, runs = check_count(length, "length", 2, 12), check_count(runs, "runs", 1, 10**4)
    rng, size = np.random.default_rng([check_seed(seed), 75]), 2 ** (length - 1)
    hidden = rng.integers(size, size=runs)
    return np.array([1 + int(np.flatnonzero(rng.permutation(size) == one)[0]) for one in hidden])
