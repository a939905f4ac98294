r"""Learning from masked sites: weighted pseudolikelihood and its asymptotic covariance (Li et al., 2024, §4.1).

An exponential family :math:`p_\theta(x) \propto e^{\theta \cdot T(x)}` is fitted to pairs of a sample and a mask,
drawn independently, by the most likely tokens of the mask given the rest:

.. math:: \hat\theta = \arg\min_\theta -\sum_i \log p_\theta(X^{(i)}_{K_i} \mid X^{(i)}_{-K_i}).

The score of one term is :math:`T(x) - E_\theta[T \mid x_{-K}]`. By the information matrix equality (Lemma 4.1.2) the
Hessian of the population loss is the covariance :math:`I` of the score, so that
:math:`\sqrt n (\hat\theta - \theta^*) \to N(0, I^{-1})`. Masks of all sites give maximum likelihood.

Laws are arrays with an axis of length ``|V|`` for each site, features those with one more axis.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.optimize
import scipy.special
from numpy.typing import ArrayLike

from glauber_lib.blocks import Blocks, block_dynamics, check_block_weights, check_blocks, poincare_constant
from glauber_lib.checks import check_count, check_numbers, check_seed, check_whole
from glauber_lib.models import all_states, check_system

FARTHEST = 30.0  # a parameter beyond it has run away: the counts are separable
ITERATIONS = 60
SINGULAR = 1e-12  # an information whose least eigenvalue is so small a share of the largest determines too little


@dataclass(frozen=True)
class Fit:
    """Result of `fit`.

    Attributes
    ----------
    theta : ndarray, float64[R, d]
        Of a repetition that did not converge, where the iteration stopped.
    converged : ndarray, bool[R]
        False where the counts have no best parameter, as some feature is as large as it can be in every context, or
        have several, as masks or features do not determine them.
    """

    theta: np.ndarray
    converged: np.ndarray


# Families and laws ---------------------------------------------------------------------------------------------------


def ising_features(n_sites: int, *, couplings: bool = True, fields: bool = True) -> np.ndarray:
    """Features float64[2, ..., 2, d] of Ising spins: products of pairs in lexicographic order, then the spins.

    ValueError if neither couplings nor fields are asked for, or for one site without a field.
    """
    n_sites = check_system(2, n_sites, 2**16)
    spins = 2.0 * all_states(2, n_sites) - 1  # (2^n, n)
    i, j = np.triu_indices(n_sites, 1)
    columns = [spins[:, i] * spins[:, j]] * bool(couplings) + [spins] * bool(fields)
    features = np.concatenate([np.zeros((len(spins), 0)), *columns], axis=1)
    if not features.shape[1]:
        raise ValueError("a family needs a feature: ask for couplings or fields")
    return features.reshape((2,) * n_sites + (-1,))


def family_law(features: ArrayLike, theta: ArrayLike) -> np.ndarray:
    """The law proportional to exp(theta · features), float64[V, ..., V]; ValueError for parameters that do not fit."""
    features, theta = _check_features(features), check_numbers(theta, "theta")
    if theta.shape != features.shape[-1:] or not np.isfinite(theta).all():
        raise ValueError(f"theta must be {features.shape[-1]} finite numbers, got {theta.tolist()!r:.80}")
    energy = features @ theta
    return np.exp(energy - scipy.special.logsumexp(energy))


def _check_features(features):
    """Features float64[V, ..., V, d]; ValueError for others."""
    features = check_numbers(features, "features")
    shape = features.shape
    if len(shape) < 2 or len(set(shape[:-1])) != 1 or not features.size or not np.isfinite(features).all():
        raise ValueError(f"features must be finite, with an axis for each site and one more, got shape {shape}")
    return features


def check_law(law: ArrayLike) -> np.ndarray:
    """A law float64[V, ..., V]; ValueError for what has another shape or does not sum to one."""
    law = check_numbers(law, "law")
    if not law.ndim or len(set(law.shape)) != 1 or not (law >= 0).all() or not abs(law.sum() - 1) < 1e-9:
        raise ValueError(
            f"law must be probabilities with an axis of one length for each site, got shape {law.shape}, sum "
            f"{law.sum():.12g}"
        )
    return law


def _masked(law, masks, weights):
    """Every mask as its axes, with the joint law of state and mask float64[V, ..., V]; ValueError for what is none."""
    masks = check_blocks(masks, law.ndim)
    weights = check_block_weights(weights, len(masks), law.size)
    shared = weights.reshape(-1, len(masks)).T.reshape(
        len(masks), *(law.shape if weights.ndim == 2 else [1] * law.ndim)
    )
    return [(mask, law * weight) for mask, weight in zip(masks, shared, strict=True)]


def _scores(law, features, masks, weights):
    """Of every mask the joint law with the state float64[S], and the score float64[S, d] there."""
    law, features = check_law(law), _check_features(features)
    if features.shape[:-1] != law.shape:
        raise ValueError(f"features of shape {features.shape} are not those of the states of a law {law.shape}")
    for mask, mass in _masked(law, masks, weights):
        total = mass.sum(mask, keepdims=True)[..., None]
        mean = (mass[..., None] * features).sum(mask, keepdims=True)
        mean = np.divide(mean, total, out=np.zeros_like(mean), where=total > 0)
        yield mass.ravel(), (features - mean).reshape(law.size, -1)


# Information ---------------------------------------------------------------------------------------------------------


def information(law: ArrayLike, features: ArrayLike, masks: Blocks, weights: ArrayLike | None = None) -> np.ndarray:
    r"""Covariance float64[d, d] of the score at the true law, by listing all states; the Hessian of the loss there.

    Parameters
    ----------
    law : array_like, float64[V, ..., V]
        Of the family.
    features : array_like, float64[V, ..., V, d]
    masks : list of lists of int
    weights : array_like, float64[M] or float64[S, M], optional
        Probabilities of the masks, uniform by default; of adaptive masks those in each of the S states, in the order
        of `models.all_states`. The score then conditions on the mask too: :math:`p(x_K \mid x_{-K}, K)`.

    Raises
    ------
    ValueError
        For laws, features, masks or weights that do not fit each other.
    """
    return np.array(sum((mass[:, None] * score).T @ score for mass, score in _scores(law, features, masks, weights)))


def asymptotic_covariance(
    law: ArrayLike,
    features: ArrayLike,
    masks: Blocks,
    weights: ArrayLike | None = None,
    *,
    per_sample: float = 1,
) -> np.ndarray:
    r"""Limit float64[d, d] of n times the covariance of :math:`\hat\theta`, by listing all states.

    With `m` masks drawn for each of n samples it is :math:`I^{-1}(V + (I - V)/m)I^{-1}`, where V is the covariance of
    the score averaged over the masks; for one mask the inverse of the information.

    Parameters
    ----------
    law, features, masks, weights
        See `information`.
    per_sample : int or inf
        Masks m drawn for each sample; inf reads all of them, by their probabilities.

    Raises
    ------
    ValueError
        As `information`; for `per_sample` below one, or where the masks do not determine the parameters.
    """
    m = np.inf if per_sample == np.inf else check_count(per_sample, "per_sample", 1)
    parts = list(_scores(law, features, masks, weights))
    found = sum((mass[:, None] * score).T @ score for mass, score in parts)
    inverse = _inverse(found)
    if m == 1:
        return inverse
    probability = check_law(law).ravel()
    joint = sum(mass[:, None] * score for mass, score in parts)  # of the averaged score, times the law
    mean = np.divide(joint, probability[:, None], out=np.zeros_like(joint), where=probability[:, None] > 0)
    between = (probability[:, None] * mean).T @ mean
    return inverse @ (between + (found - between) / m) @ inverse


def _inverse(matrix: Any) -> np.ndarray:
    """The inverse of an information; ValueError where it is singular."""
    if not _least_share(matrix) > SINGULAR:
        raise ValueError("the masks do not determine the parameters: the information is singular")
    inverse = np.linalg.inv(matrix)
    return (inverse + inverse.T) / 2


def _least_share(matrices):
    """The least eigenvalue of each matrix over its largest."""
    values = np.linalg.eigvalsh(matrices)
    return values[..., 0] / np.maximum(values[..., -1], 1e-300)


def mixing_constant(law: ArrayLike, masks: Blocks, weights: ArrayLike | None = None) -> float:
    r"""Poincaré constant C of the (adaptive) block dynamics with these masks (`blocks.poincare_constant`).

    ValueError as `blocks.block_dynamics`.

    By Theorem 4.1.2 :math:`\Gamma \preceq C\, \mathcal I^{-1}` with the full information :math:`\mathcal I`.
    """
    law = check_law(law)
    matrix = block_dynamics(all_states(len(law), law.ndim), law.ravel(), masks, weights)
    return poincare_constant(matrix, law.ravel())


# Samples and fits ----------------------------------------------------------------------------------------------------


def draw_counts(
    law: ArrayLike,
    masks: Blocks,
    n: int,
    repetitions: int,
    *,
    weights: ArrayLike | None = None,
    per_sample: int = 1,
    seed: int = 0,
) -> np.ndarray:
    """How often each mask met each state among n samples with their masks, int64[R, M, S].

    Parameters
    ----------
    law, masks, weights
        See `information`.
    n : int
        Samples of each repetition.
    repetitions : int
    per_sample : int
        Masks drawn for each sample.
    seed : int

    Raises
    ------
    ValueError
        As `information`; for counts below one.
    """
    n, repetitions = check_count(n, "n", 1), check_count(repetitions, "repetitions", 1)
    per_sample, rng = check_count(per_sample, "per_sample", 1), np.random.default_rng([check_seed(seed), 4])
    law = check_law(law)
    joint = np.stack([mass.ravel() for _, mass in _masked(law, masks, weights)])  # (M, S)
    states = rng.multinomial(n, law.ravel() / law.sum(), size=repetitions)  # (R, S)
    given = np.divide(joint, law.ravel(), out=np.full_like(joint, 1 / len(joint)), where=law.ravel() > 0)
    given = given / given.sum(0)
    return rng.multinomial(states * per_sample, given.T).transpose(0, 2, 1).astype(np.int64)


def fit(counts: ArrayLike, features: ArrayLike, masks: Blocks) -> Fit:
    """Weighted pseudolikelihood estimates, one for each repetition, by damped Newton steps: the loss is convex.

    Parameters
    ----------
    counts : array_like, int[R, M, S]
        See `draw_counts`.
    features : array_like, float64[V, ..., V, d]
    masks : list of lists of int

    Raises
    ------
    ValueError
        For counts, features or masks that do not fit each other, or a repetition without a sample.
    """
    features = _check_features(features)
    shape, d = features.shape[:-1], features.shape[-1]
    masks, table = check_blocks(masks, len(shape)), features.reshape(-1, d)
    counts = check_whole(counts, "counts")
    if counts.ndim != 3 or counts.shape[1:] != (len(masks), len(table)) or not counts.size:
        raise ValueError(f"counts must have shape (R, {len(masks)}, {len(table)}), got {counts.shape}")
    if not (total := counts.sum((1, 2))).all():
        raise ValueError("every repetition needs a sample, got one without")
    theta, step = np.zeros((len(counts), d)), np.ones((len(counts), d))
    loss, gradient, hessian = _loss(theta, counts, table, shape, masks, total)
    for _ in range(ITERATIONS):
        going = (np.abs(step).max(1) > 1e-10) & (np.abs(theta).max(1) < FARTHEST)
        if not going.any():
            break
        ridge = 1e-13 * np.trace(hessian, axis1=1, axis2=2)[:, None, None] * np.eye(d) + 1e-300 * np.eye(d)
        step = np.where(going[:, None], np.linalg.solve(hessian + ridge, gradient[..., None])[..., 0], 0.0)
        size = np.minimum(1.0, 5.0 / np.maximum(np.abs(step).max(1), 1e-300))  # of one Newton step
        now = _loss(theta - size[:, None] * step, counts, table, shape, masks, total)
        for _ in range(40):  # halved until the loss does not grow
            worse = now[0] > loss + 1e-13 * np.abs(loss) + 1e-15
            if not worse.any():
                break
            size = np.where(worse, size / 2, size)
            now = _loss(theta - size[:, None] * step, counts, table, shape, masks, total)
        theta, (loss, gradient, hessian) = theta - size[:, None] * step, now
    determined = _least_share(hessian) > SINGULAR
    return Fit(theta, (np.abs(step).max(1) <= 1e-6) & (np.abs(theta).max(1) < FARTHEST) & determined)


def _loss(theta, counts, table, shape, masks, total):
    """Mean loss float64[R], its gradient [R, d] and Hessian [R, d, d] at the parameters of each repetition."""
    energy = (theta @ table.T).reshape(-1, *shape)
    loss, gradient, hessian = np.zeros(len(theta)), np.zeros(theta.shape), np.zeros((*theta.shape, theta.shape[1]))
    for k, mask in enumerate(masks):
        axes, found = tuple(i + 1 for i in mask), counts[:, k].reshape(-1, *shape)
        top = energy.max(axes, keepdims=True)
        relative = np.exp(energy - top)
        whole = relative.sum(axes, keepdims=True)
        expected = found.sum(axes, keepdims=True) * relative / whole  # counts that the parameters expect
        loss += (found * (top + np.log(whole) - energy)).sum(tuple(range(1, energy.ndim)))
        flat = expected.reshape(len(theta), -1)
        gradient += (flat - counts[:, k]) @ table
        hessian += np.einsum("rs,sd,se->rde", flat, table, table, optimize=True)
        sums = (expected[..., None] * table.reshape(*shape, -1)).sum(axes)  # (R, contexts..., d)
        sums, weight = sums.reshape(len(theta), -1, theta.shape[1]), found.sum(axes).reshape(len(theta), -1)
        means = np.divide(sums, weight[..., None], out=np.zeros_like(sums), where=weight[..., None] > 0)
        hessian -= np.einsum("rcd,rce->rde", sums, means, optimize=True)
    return loss / total, gradient / total[:, None], hessian / total[:, None, None]


def forgetting(law: ArrayLike, features: ArrayLike, masks: Blocks, weights: ArrayLike) -> np.ndarray:
    """Where the estimate goes, float64[d], if masks depend on the tokens and the loss does not condition on them.

    Parameters
    ----------
    law, features, masks, weights
        See `information`; weights of adaptive masks.

    Raises
    ------
    ValueError
        As `information`, or where the loss has no minimum, or several.
    """
    law, features = check_law(law), _check_features(features)
    if features.shape[:-1] != law.shape:
        raise ValueError(f"features of shape {features.shape} are not those of the states of a law {law.shape}")
    pairs = _masked(law, masks, weights)
    counts, table = np.stack([mass.ravel() for _, mass in pairs])[None], features.reshape(law.size, -1)
    arguments = (counts, table, law.shape, [mask for mask, _ in pairs], np.ones(1))

    def at(theta):
        loss, gradient, _ = _loss(theta[None], *arguments)
        return loss[0], gradient[0]

    found = scipy.optimize.minimize(at, np.zeros(table.shape[1]), jac=True, method="BFGS", options={"gtol": 1e-10})
    if not np.abs(found.jac).max() < 1e-6 or not np.abs(found.x).max() < FARTHEST:
        raise ValueError("the loss has no minimum: some parameter runs away")
    _inverse(_loss(found.x[None], *arguments)[2][0])
    return found.x


# Which masks are best ------------------------------------------------------------------------------------------------


def best_share(law: ArrayLike, features: ArrayLike, first: Blocks, second: Blocks, goal: str) -> float:
    r"""The share s of masks of a first kind, the others of a second, each kind uniform, that is best for a goal.

    Mixing means the least Poincaré constant, learning the least trace of :math:`\Gamma`. Both are quasi-convex in s:
    a spectral gap is concave and the trace of an inverse convex in the law of the masks. Where symmetries of the law
    carry all masks of a kind into each other, no other law of these masks does better.

    Parameters
    ----------
    law, features
        See `information`.
    first, second : list of lists of int
        Masks of either kind.
    goal : {"mixing", "learning"}

    Raises
    ------
    ValueError
        As `information`, for an unknown goal, or where mixing is so slow that rounding decides.
    """
    if goal not in ("mixing", "learning"):
        raise ValueError(f"goal must be 'mixing' or 'learning', got {goal!r}")
    law = check_law(law)
    first, second = check_blocks(first, law.ndim), check_blocks(second, law.ndim)

    def cost(share):
        weights = shared_weights(share, len(first), len(second))
        if goal == "mixing":
            return -np.nan_to_num(1 / mixing_constant(law, first + second, weights))
        return np.log(np.trace(asymptotic_covariance(law, features, first + second, weights)))

    found = scipy.optimize.minimize_scalar(cost, bounds=(1e-6, 1 - 1e-6), method="bounded", options={"xatol": 1e-7})
    if goal == "mixing" and not found.fun < 0:
        raise ValueError("mixing is too slow for a best share: the gap is below 1e-10, where rounding decides")
    return float(found.x)


def shared_weights(share: float, first: int, second: int) -> np.ndarray:
    """Weights of masks of two kinds, so many of each: the first have the share together; ValueError for no share."""
    number, first = check_numbers(share, "share"), check_count(first, "first", 1)
    second = check_count(second, "second", 1)
    if number.ndim or not 0 <= number <= 1:
        raise ValueError(f"share must lie in 0..1, got {share!r}")
    share = float(number)
    return np.concatenate([np.full(first, share / first), np.full(second, (1 - share) / second)])
