r"""Laws along a noise process and its reversal, exactly: small systems, states by their base-V code.

A law evolves by :math:`p_t = p_{t-1} K_t`; rows of a matrix are where a step starts. What the exact reversal has to
learn is measured in nats: for conditionals :math:`\hat T` of a law :math:`\pi`

.. math:: \sum_t E\, \mathrm{KL}\bigl(p_{t-1}(\cdot \mid x_{-k}) \,\|\, \hat T(\cdot \mid x_{-k})\bigr)
    = \mathrm{KL}(p_0 \| \pi) - \mathrm{KL}(p_T \| \pi),

the budget identity: uniform noise has the whole divergence to the uniform law to learn, an energy near the data little.
"""

from collections.abc import Callable, Sequence

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import ArrayLike

from glauber_lib.answers import ask
from glauber_lib.checks import check_count, check_indices, check_numbers, check_temperature
from glauber_lib.diffusion import Bound
from glauber_lib.draws import probabilities
from glauber_lib.exact import Sparse
from glauber_lib.matrices import check_law, check_laws
from glauber_lib.models import LISTED, ConditionalModel, all_states, check_system
from glauber_lib.reversals import TimedModel, TimedTable, timed_tables
from glauber_lib.schedules import Schedule

GENERATOR = 256  # states of a chain in continuous time, whose law takes an exponential of a matrix

# Kernels -------------------------------------------------------------------------------------------------------------


def site_kernel(model: ConditionalModel, n_sites: int, site: int, temperature: float = 1.0) -> Sparse:
    """Sparse matrix float64[V**n, V**n] of a step that draws one site anew; ValueError for a site that is not there."""
    n_sites, n_tokens = check_system(model.n_tokens, n_sites, LISTED), model.n_tokens
    site = check_count(site, "site", 0, n_sites - 1)
    states, heat = all_states(n_tokens, n_sites), float(check_temperature(temperature))
    scores = ask(model, states, np.full(len(states), site))
    return kernel_of(probabilities(scores, np.full(len(states), heat)).cpu().numpy(), n_sites, site)


def kernel_of(law: ArrayLike, n_sites: int, site: int) -> Sparse:
    """The step that draws a site from a law float64[V**n, V] given the state; ValueError for rows that are no laws."""
    law = check_laws(law, "law", 2)
    n_tokens, n_sites = law.shape[1], check_system(law.shape[1], n_sites, LISTED)
    power = n_tokens ** (n_sites - 1 - check_count(site, "site", 0, n_sites - 1))
    size = n_tokens**n_sites
    if len(law) != size:
        raise ValueError(f"law must have a row for each of {size} states, got {len(law)}")
    codes = np.arange(size)
    targets = (codes - codes // power % n_tokens * power)[:, None] + power * np.arange(n_tokens)
    return sp.csr_matrix((law.ravel(), (np.repeat(codes, n_tokens), targets.ravel())), shape=(size, size))


def noise_kernels(model: ConditionalModel, schedule: Schedule, temperature: float = 1.0) -> list[Sparse]:
    """The matrices of the steps 1 .. T of the noise; each site is asked for once."""
    known = {
        site: site_kernel(model, schedule.n_sites, site, temperature) for site in np.unique(schedule.orders).tolist()
    }
    return [known[site] for site in schedule.orders.ravel().tolist()]


def denoise_kernels(timed: TimedModel, schedule: Schedule) -> list[Sparse]:
    """The matrices of the reversal in the order in which its steps are done: from T down to 1."""
    tables = timed.tables if isinstance(timed, TimedTable) else timed_tables(timed, schedule)
    return [kernel_of(tables[t - 1], schedule.n_sites, schedule.site(t)) for t in range(schedule.steps, 0, -1)]


def evolve(law: ArrayLike, kernels: Sequence[Sparse]) -> np.ndarray:
    """The law before the first step and after each, float64[T + 1, S]; ValueError for matrices of other sizes."""
    laws = [check_law(law)]
    for kernel in kernels:
        if kernel.shape != (len(laws[0]), len(laws[0])):
            raise ValueError(f"a kernel must have shape {(len(laws[0]),) * 2}, got {kernel.shape}")
        laws.append(laws[-1] @ kernel)
    return np.stack(laws)


def limit_law(kernels: Sequence[Sparse], *, tolerance: float = 1e-12, limit: int = 10**5) -> np.ndarray:
    """The law float64[S] that repeating some steps leads to, seen after the last of them, from the uniform law on.

    ValueError unless a repetition changes it by less than `tolerance` in total variation within `limit` repetitions.
    """
    limit, close = check_count(limit, "limit", 1), check_numbers(tolerance, "tolerance")
    if close.ndim or not 0 < close < 1 or not len(kernels):
        raise ValueError(f"need a kernel and a tolerance in 0..1, got {len(kernels)} and {tolerance!r}")
    size = kernels[0].shape[0]
    law = evolve(np.full(size, 1 / size), kernels)[-1]
    for _ in range(limit):
        after = law
        for kernel in kernels:
            after = after @ kernel
        if 0.5 * np.abs(after - law).sum() < close:
            return after
        law = after
    raise ValueError(f"the law still moves by {close:g} or more after {limit} repetitions")


# Reversal ------------------------------------------------------------------------------------------------------------


def reverse_conditionals(
    law: ArrayLike, n_sites: int, n_tokens: int, site: int, hidden: ArrayLike | None = None
) -> np.ndarray:
    r"""The conditionals :math:`p(\cdot \mid x_{-k})` of a law for each state, float64[V**n, V].

    Parameters
    ----------
    law : array_like, float64[V**n]
    n_sites, n_tokens, site : int
    hidden : array_like, bool[n], optional
        Sites that are not read either.

    Returns
    -------
    ndarray
        Uniform rows where the law has no state with these tokens.

    Raises
    ------
    ValueError
        For arguments that do not fit each other.
    """
    n_sites = check_system(check_count(n_tokens, "n_tokens", 1), n_sites, LISTED)
    n_tokens, site = int(n_tokens), check_count(site, "site", 0, n_sites - 1)
    joint = check_law(law, n_tokens**n_sites).reshape((n_tokens,) * n_sites)
    marks = np.zeros(n_sites, bool) if hidden is None else np.asarray(hidden)
    if marks.dtype != bool or marks.shape != (n_sites,):
        raise ValueError(f"hidden must be bool[{n_sites}], got {marks.dtype}{list(marks.shape)}")
    unread = tuple(i for i in range(n_sites) if marks[i] and i != site)
    joint = np.broadcast_to(joint.sum(axis=unread, keepdims=True), joint.shape)
    rows = np.moveaxis(joint, site, -1)  # the others, then the site
    whole = rows.sum(-1, keepdims=True)
    rows = np.divide(rows, whole, out=np.full(rows.shape, 1 / n_tokens), where=whole > 0)
    spread = np.broadcast_to(np.expand_dims(rows, site), (*joint.shape, n_tokens))
    return spread.reshape(-1, n_tokens).copy()


def exact_reversal(laws: ArrayLike, schedule: Schedule, n_tokens: int) -> TimedTable:
    """The reversal of a noise process whose laws float64[T + 1, V**n] are known (`evolve`).

    With a window of more than one site it is the best that reads the visible sites alone; if the window shrinks, what
    it generates is exact all the same. ValueError for laws of another schedule.
    """
    laws = check_numbers(laws, "laws")
    if laws.ndim != 2 or len(laws) != schedule.steps + 1:
        raise ValueError(f"laws must have a row before and after each of {schedule.steps} steps, got {laws.shape}")
    hidden = (schedule.hidden(t) if schedule.window > 1 else None for t in range(1, schedule.steps + 1))
    tables = [
        reverse_conditionals(law, schedule.n_sites, n_tokens, site, marks)
        for law, site, marks in zip(laws, schedule.orders.ravel().tolist(), hidden, strict=False)
    ]
    return TimedTable(np.stack(tables), schedule)


def path_budget(laws: ArrayLike, conditionals: ArrayLike, sites: ArrayLike) -> np.ndarray:
    r"""What each step's reversal has to learn beyond the noise's own conditional, nats float64[T].

    Parameters
    ----------
    laws : array_like, float64[T + 1, V**n]
        From `evolve`.
    conditionals : array_like, float64[n, V**n, V]
        Of the noise, from `exact.conditional_laws`.
    sites : array_like, int[T]
        Of each step.

    Raises
    ------
    ValueError
        For arguments that do not fit each other.
    """
    laws, conditionals = check_numbers(laws, "laws"), check_laws(conditionals, "conditionals", 3)
    if laws.ndim != 2 or laws.shape[1] != conditionals.shape[1] or not laws.size:
        raise ValueError(f"need laws [T + 1, S] and conditionals [n, S, V], got {laws.shape}, {conditionals.shape}")
    n, _, n_tokens = conditionals.shape
    sites = check_indices(sites, n, "sites")
    if sites.shape != (len(laws) - 1,):
        raise ValueError(f"need a site for each of {len(laws) - 1} steps, got shape {sites.shape}")
    rows, own = np.arange(laws.shape[1]), all_states(n_tokens, n)
    out = []
    for law, site in zip(laws, sites.tolist(), strict=False):
        mine = reverse_conditionals(law, n, n_tokens, site)[rows, own[:, site]]
        other = conditionals[site][rows, own[:, site]]
        with np.errstate(divide="ignore", invalid="ignore"):
            out.append(np.where(law > 0, law * (np.log(mine) - np.log(other)), 0.0).sum())
    return np.array(out)


def mean_bound(
    timed: TimedModel, model: ConditionalModel, prior: ArrayLike, law: ArrayLike, schedule: Schedule
) -> Bound:
    """The mean of `diffusion.bound` over data of a law, exactly, its terms as float64 of no dimension.

    Of a law at one state it is the bound there, without sampling.

    Parameters
    ----------
    timed, model, schedule
        See `diffusion.bound`.
    prior : array_like, float64[V**n]
    law : array_like, float64[V**n]
        Of the data.

    Raises
    ------
    ValueError
        For arguments that do not fit each other.
    """
    if timed.n_tokens != model.n_tokens:
        raise ValueError(f"reversal and noise have {timed.n_tokens} and {model.n_tokens} tokens: they must be the same")
    size = model.n_tokens ** check_system(model.n_tokens, schedule.n_sites, LISTED)
    law, prior = check_law(law, size), check_law(prior, size, "prior")
    laws = evolve(law, forward := noise_kernels(model, schedule))
    backward = denoise_kernels(timed, schedule)[::-1]
    diagonal = lambda weight, kernel: _weighted_log(weight, kernel.diagonal())  # noqa: E731
    drawn = sum(diagonal(after, kernel) for after, kernel in zip(laws[1:], forward, strict=True))
    kept = sum(diagonal(before, kernel) for before, kernel in zip(laws[:-1], backward, strict=True))
    return Bound(np.array(-_weighted_log(laws[-1], prior)), np.array(drawn), np.array(-kept))


def _weighted_log(weight, values):
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(weight > 0, weight * np.log(values), 0.0).sum()


# Continuous time -----------------------------------------------------------------------------------------------------


def score_entropy(
    law: ArrayLike,
    generator: ArrayLike,
    horizon: float,
    prior: ArrayLike,
    *,
    scores: Callable[[float, np.ndarray], np.ndarray] | None = None,
    nodes: int = 48,
) -> float:
    r"""Denoising score entropy plus the divergence of the end from the prior, in nats, for data of a law.

    .. math:: E_{x_0} \int_0^T E_{x_t} \sum_{y \ne x_t} Q(y, x_t)\, [s(x_t)_y - r \log s(x_t)_y + K(r)]\, dt
        + E_{x_0} \mathrm{KL}(p_{T|0} \| \mathrm{prior}), \quad r = \frac{p_{t|0}(y)}{p_{t|0}(x_t)}

    with :math:`K(r) = r (\log r - 1)` (Lou et al., 2024). Exact scores, the ratios :math:`p_t(y) / p_t(x)` of the laws
    at one time, give the entropy of the data plus the divergence of :math:`p_T` from the prior.

    Parameters
    ----------
    law : array_like, float64[S]
    generator : array_like, float64[S, S]
        Rates from the row's state to the column's; rows sum to zero.
    horizon : float
        T.
    prior : array_like, float64[S]
    scores : callable, optional
        ``scores(t, p_t)`` gives the ratios float64[S, S] of the column's state to the row's; the exact ones by default.
    nodes : int
        Of the quadrature, which crowds at time zero, where the integrand has a logarithm.

    Raises
    ------
    ValueError
        For a generator that is none, more than `GENERATOR` states, or numbers that are out of range.
    """
    law, rates = check_law(law), check_numbers(generator, "generator")
    size, nodes = len(law), check_count(nodes, "nodes", 2, 200)
    prior, end = check_law(prior, size, "prior"), check_numbers(horizon, "horizon")
    off = rates - np.diag(np.diag(rates)) if rates.shape == (size, size) else None
    if off is None or size > GENERATOR or not ((off >= 0).all() and np.allclose(rates.sum(1), 0, atol=1e-9)):
        raise ValueError(f"generator must be rates [S, S] whose rows sum to zero, S = {size} at most {GENERATOR}")
    if end.ndim or not 0 < end < np.inf or (prior == 0).any():
        raise ValueError(f"need a horizon above zero and a prior that is positive, got {horizon!r}")
    points, mass = np.polynomial.legendre.leggauss(nodes)
    u, total = (points + 1) / 2, 0.0
    for t, weight in zip(end * u**4, mass / 2 * end * 4 * u**3, strict=True):
        given = np.maximum(scipy.linalg.expm(t * rates), 1e-300)  # p_{t|0}: start, state
        now = law @ given
        own = now[None, :] / now[:, None] if scores is None else check_numbers(scores(float(t), now), "scores")
        # with q = given: the sum over x, y of Q(y, x) [q(x) s - q(y) log s + q(y) (log q(y) - log q(x) - 1)]
        mixed = off.T * (now[:, None] * own - now[None, :] * np.log(np.where(off.T > 0, own, 1.0)))
        into, log = given @ off, np.log(given)
        rest = law @ (given * log * off.sum(1)).sum(1) - law @ (into * log).sum(1) - law @ (given @ off.sum(1))
        total += weight * (mixed.sum() + rest)
    given = np.maximum(scipy.linalg.expm(float(end) * rates), 1e-300)
    return float(total + law @ (given * (np.log(given) - np.log(prior))).sum(1))
