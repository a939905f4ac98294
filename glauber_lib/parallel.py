r"""Parallel decoding against block updates, exactly: spins with one ferromagnetic clique, and Dyck strings.

Of N spins a clique of c has a coupling J > 0 between each two and a field h at each; the other spins are independent
of it. All kernels treat the spins of the clique alike, so that the number of +1 in the clique is a Markov chain by
itself: c + 1 states, whatever N. Li et al. (2024, §4.1.4) bound how fast its larger mode, all +1, is reached. Their
constants are restored here as they are proved: with

.. math:: J_0 = \min_{1 \le a < c} [a (c - a) J - a h], \qquad h_G = c h

in the place of Assumption 4.1.5, which neither proof needs in full.
"""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import scipy.special
import scipy.stats
from numpy.typing import ArrayLike

from glauber_lib.checks import check_contexts, check_count, check_numbers
from glauber_lib.kernels import INSIDES
from glauber_lib.margins import log_exit_times
from glauber_lib.models import IsingModel, all_states, check_system

# A clique of spins ---------------------------------------------------------------------------------------------------


def log_clique_matrix(
    n_sites: int, size: int, field: float, coupling: float, *, block: int | None = 1, inside: str = "sequential"
) -> np.ndarray:
    """Logarithms float64[c + 1, c + 1] of the transition matrix of the number of +1 in the clique.

    They are differences of logarithms of factorials, with errors of 1e-15 of these: 2e-8 for ten million spins.

    Parameters
    ----------
    n_sites : int
        Spins N.
    size : int
        Of the clique, c.
    field, coupling : float
        Of each spin in the clique, and between each two.
    block : int or None
        Sites that a step resamples, uniform among the blocks of this size; all for None.
    inside : {"sequential", "hidden", "visible"}
        See `kernels.update_block`.

    Raises
    ------
    ValueError
        For a clique larger than the system, a block of no site or of more than there are, numbers that are not finite,
        or an unknown `inside`.
    """
    n, c, h, j = _check_clique(n_sites, size, field, coupling)
    k = n if block is None else check_count(block, "block", 1, n)
    if inside not in INSIDES:
        raise ValueError(f"inside must be one of {INSIDES}, got {inside!r}")
    out = np.full((c + 1, c + 1), -np.inf)
    for plus in range(c + 1):
        for m in range(max(0, k - (n - c)), min(c, k) + 1):  # sites of the clique in the block
            log_m = _log_hypergeometric(m, n, c, k)
            for b in range(max(0, m - (c - plus)), min(m, plus) + 1):  # of these, +1 now
                log_b = log_m + _log_hypergeometric(b, c, plus, m)
                kept = plus - b
                for new, value in enumerate(_log_drawn(c, h, j, plus, m, b, inside)):
                    out[plus, kept + new] = np.logaddexp(out[plus, kept + new], log_b + value)
    return out


def _check_clique(n_sites, size, field, coupling):
    """Numbers of a clique; ValueError for others."""
    n = check_count(n_sites, "n_sites", 1, 10**7)
    c = check_count(size, "size", 1, min(n, 1_000))
    numbers = [check_numbers(value, name) for value, name in ((field, "field"), (coupling, "coupling"))]
    if any(number.ndim or not np.isfinite(number) for number in numbers):
        raise ValueError(f"field and coupling must be finite numbers, got {field!r} and {coupling!r}")
    return n, c, *map(float, numbers)


def _log_choose(n, k):
    return scipy.special.gammaln(n + 1) - scipy.special.gammaln(k + 1) - scipy.special.gammaln(n - k + 1)


def _log_hypergeometric(hits, total, marked, drawn):
    """Log-probability of `hits` marked among those drawn without replacement."""
    return _log_choose(marked, hits) + _log_choose(total - marked, drawn - hits) - _log_choose(total, drawn)


def _log_energy(c, h, j, plus):
    """Log-weight of a clique with so many +1."""
    total = 2 * plus - c
    return h * total + j * (total**2 - c) / 2


def _log_drawn(c, h, j, plus, m, b, inside):
    """Log-law float64[m + 1] of the +1 among the m sites resampled, of which b are +1 now."""
    new, kept = np.arange(m + 1), plus - b
    if inside == "visible":
        total = 2 * plus - c
        stay, turn = 2 * (h + j * (total - 1)), 2 * (h + j * (total + 1))  # log-odds of +1, at a +1 and at a -1
        from_plus, from_minus = _log_binomial(b, stay), _log_binomial(m - b, turn)
        out = np.full(m + 1, -np.inf)
        for k in range(b + 1):
            out[k : k + m - b + 1] = np.logaddexp(out[k : k + m - b + 1], from_plus[k] + from_minus)
        return out
    law = _log_choose(m, new) + _log_energy(c, h, j, kept + new)
    law = law - scipy.special.logsumexp(law)
    if inside == "sequential" or m == 0:
        return law
    with np.errstate(divide="ignore"):
        up = scipy.special.logsumexp(law + np.log(new / m))
        down = scipy.special.logsumexp(law + np.log(1 - new / m))
    return _log_binomial(m, up - down)


def _log_binomial(m, log_odds):
    """Log-law float64[m + 1] of successes of m trials with a log-odds."""
    k = np.arange(m + 1)
    return _log_choose(m, k) - k * np.logaddexp(0, -log_odds) - (m - k) * np.logaddexp(0, log_odds)


def clique_hitting_time(
    n_sites: int, size: int, field: float, coupling: float, *, block: int | None = 1, inside: str = "sequential"
) -> float:
    """Natural logarithm of the mean number of steps from all -1 to all +1 in the clique.

    See `log_clique_matrix`. No step after its entries subtracts, and the logarithm holds where the time is beyond
    float64.
    """
    log = log_clique_matrix(n_sites, size, field, coupling, block=block, inside=inside)
    return float(log_exit_times(log[:-1, :-1], log[:-1, -1])[0])


def clique_law(size: int, field: float, coupling: float) -> np.ndarray:
    """Law float64[c + 1] of the number of +1 in the clique; ValueError as `log_clique_matrix`."""
    _, c, h, j = _check_clique(size, size, field, coupling)
    plus = np.arange(c + 1)
    log = _log_choose(c, plus) + _log_energy(c, h, j, plus)
    return np.exp(log - scipy.special.logsumexp(log))


def clique_model(n_sites: int, size: int, field: float, coupling: float) -> IsingModel:
    """The spins themselves: the first of them are the clique; ValueError as `log_clique_matrix`."""
    n, c, h, j = _check_clique(n_sites, size, field, coupling)
    check_system(2, n)
    inside = np.arange(n) < c
    couplings = j * np.outer(inside, inside).astype(float)
    np.fill_diagonal(couplings, 0.0)
    return IsingModel(couplings, h * inside)


# Bounds of the chapter -----------------------------------------------------------------------------------------------


def mode_excess(size: int, field: float, coupling: float) -> float:
    """What a clique that is neither all +1 nor all -1 has less than all -1 in log-weight over two, at least: J₀.

    Infinite for one spin, which is always in a mode. ValueError as `log_clique_matrix`.
    """
    _, c, h, j = _check_clique(size, size, field, coupling)
    return float(min((a * (c - a) * j - a * h for a in range(1, c)), default=np.inf))


def mode_bound(n_sites: int, size: int, block: int, excess: float, field_sum: float) -> float:
    r"""Lower bound on the probability that one step of k-Gibbs reaches the larger mode, from any state.

    .. math:: \frac{\binom{N - c}{k - c}}{\binom{N}{k}}\;
        \frac{e^{2(J_0 + h_G)}}{e^{2(J_0 + h_G)} + e^{2 J_0} + 2^c - 2}

    Proposition 4.1.4, one minus its :math:`c_{\mathcal R}`. The mean time is at most one over it.

    Parameters
    ----------
    n_sites, size, block : int
        N, c and k, at least c.
    excess : float
        J₀, positive (`mode_excess`).
    field_sum : float
        Sum of the fields in the clique, positive.

    Raises
    ------
    ValueError
        Where the assumptions do not hold.
    """
    n, c, j0, h = _check_clique(n_sites, size, excess, field_sum)
    k = check_count(block, "block", c, n)
    if not (j0 > 0 and h > 0):
        raise ValueError(
            f"the bound needs a positive excess and a positive sum of fields, got {excess} and {field_sum}"
        )
    log_whole = np.logaddexp.reduce([2 * (j0 + h), 2 * j0, np.log(2.0**c - 2) if c > 1 else -np.inf])
    return float(np.exp(_log_choose(n - c, k - c) - _log_choose(n, k) + 2 * (j0 + h) - log_whole))


def stuck_bound(size: int, excess: float, delta: float) -> float:
    r"""Steps :math:`\lfloor \tfrac\delta2 e^{c_{stuck}} \rfloor` that parallel decoding stays in the lower half.

    With probability 1 - delta the sum over the clique stays at -2 or below where it starts so (Proposition 4.1.5), with
    :math:`c_{stuck} = \tfrac2c (\tfrac c2 \tanh J_0 - 1)^2`. Hoeffding's inequality asks for a positive bracket, which
    the chapter does not say: without it the bound is zero here.

    Parameters
    ----------
    size : int
        Of the clique.
    excess : float
        J₀ = J - h, at least 0.
    delta : float
        In 0..1.

    Raises
    ------
    ValueError
        For other numbers.
    """
    c, j0, delta = _check_stuck(size, excess, delta)
    bracket = c * np.tanh(j0) / 2 - 1
    with np.errstate(over="ignore"):
        return float(np.floor(delta / 2 * np.exp(2 / c * bracket**2))) if bracket > 0 else 0.0


def stuck_tail(size: int, excess: float) -> float:
    r"""Upper bound on the chance of one parallel step out of the lower half: P(Bin(c, σ(-2J₀)) > (c - 2)/2).

    So delta over it is another number of steps that is safe, hundreds to millions of times as many as `stuck_bound`.
    ValueError as there.
    """
    c, j0, _ = _check_stuck(size, excess, 0.5)
    return float(scipy.stats.binom.sf((c - 2) // 2, c, scipy.special.expit(-2 * j0)))


def _check_stuck(size, excess, delta):
    _, c, j0, delta = _check_clique(size, size, excess, delta)
    if j0 < 0 or not 0 < delta <= 1:
        raise ValueError(f"the bound needs an excess >= 0 and a delta in 0..1, got {excess} and {delta}")
    return c, j0, delta


@dataclass(frozen=True)
class Separation:
    """The smallest instance that Corollary 4.1.1 admits, see `separation`.

    Attributes
    ----------
    size : int
        Sites of the clique, and of the whole system.
    field_sum, excess : float
        Least sum of fields and least J₀.
    coupling : float
        Least J: J₀ plus the sum of the fields.
    """

    size: int
    field_sum: float
    excess: float
    coupling: float


def separation(delta: float, budget: int) -> Separation:
    """The smallest clique for which one step of k-Gibbs and so many parallel steps are proved apart (Corollary 4.1.1).

    ValueError unless delta lies in 0..1 and the budget is a whole number from one on.
    """
    budget = check_count(budget, "budget", 1)
    number = check_numbers(delta, "delta")
    if number.ndim or not 0 < number < 1:
        raise ValueError(f"delta must lie above 0 and below 1, got {delta!r}")
    size = int(np.ceil(8 * (1 + np.log(4 * budget / number))))
    field_sum = float(np.log(2 * (4 - number) / number) / 2)
    excess = float(size * np.log(2) / 2)
    return Separation(size, field_sum, excess, excess + field_sum)


# The law of parallel decoding ----------------------------------------------------------------------------------------


def synchronous_law(couplings: ArrayLike, field: ArrayLike) -> np.ndarray:
    r"""Stationary law float64[2**n] of all spins updated at once, each given the others' old values.

    .. math:: \pi(x) \propto e^{h \cdot x} \prod_i 2\cosh(h_i + \sum_j J_{ij} x_j)

    (Little, 1974). The chain is reversible. ValueError for couplings and fields that are no `models.IsingModel`, or not
    finite.
    """
    model = IsingModel(couplings, field)
    if not (model.couplings.isfinite().all() and model.field.isfinite().all()):
        raise ValueError("couplings and field must be finite numbers")
    spins = 2.0 * all_states(2, model.n_sites) - 1
    local = spins @ model.couplings.numpy() + model.field.numpy()
    log = spins @ model.field.numpy() + np.logaddexp(local, -local).sum(1)
    return np.exp(log - scipy.special.logsumexp(log))


# Dyck strings --------------------------------------------------------------------------------------------------------


def dyck_words(n_sites: int, n_types: int = 2) -> np.ndarray:
    """All complete strings of brackets, int64[S, n]: token 2t opens type t, and 2t + 1 closes it.

    ValueError for an odd length, or for so many strings that they are no small system.
    """
    n, types = check_count(n_sites, "n_sites", 2), check_count(n_types, "n_types", 1)
    if n % 2:
        raise ValueError(f"a complete string of brackets has an even length, got {n}")
    check_system(2 * types, n)
    found = [([], [])]
    for k in range(n):
        found = [
            grown
            for word, still in found
            for grown in (
                *(([*word, 2 * t], [*still, t]) for t in range(types) if len(still) < n - k),
                *(([*word, 2 * still[-1] + 1], still[:-1]) for _ in still[-1:]),
            )
            if len(grown[1]) <= n - k - 1
        ]
    return np.array([word for word, _ in found], np.int64)


def validity_after_product(words: ArrayLike, size: int) -> float:
    """Chance that a block drawn as independent sites leaves a word a word; words and blocks of `size` are uniform.

    Each site of the hidden block is drawn from its own law given the visible sites. ValueError for words listed twice
    or of several lengths, and blocks that are none.
    """
    words = check_contexts(words)
    if len(np.unique(words, axis=0)) < len(words):
        raise ValueError("words must be distinct, got some twice")
    n = words.shape[1]
    size, stays = check_count(size, "size", 1, n), []
    for block in combinations(range(n), size):
        rest = np.delete(words, block, axis=1)
        group = np.unique(rest, axis=0, return_inverse=True)[1].ravel() if rest.size else np.zeros(len(words), int)
        for members in (words[group == k][:, block] for k in range(group.max() + 1)):  # what the block may hold
            chance = np.prod([(members[:, None, s] == members[None, :, s]).mean(1) for s in range(size)], axis=0)
            stays.append(chance.sum() * len(members) / len(words))
    return float(np.sum(stays) / scipy.special.comb(n, size))
