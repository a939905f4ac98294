r"""Experiments on noises of a diffusion: what a reversal learned from samples loses.

A reversal is learned by counts (`reversals.CountModel`) from M data with a few noise paths each, and the law that it
generates is computed exactly, by pushing the prior through the learned steps. The strength of its start is chosen by
the likelihood of held-out data, never by the loss that is reported.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy.special
from numpy.typing import ArrayLike

from glauber_lib.checks import check_count, check_numbers, check_seed, check_whole
from glauber_lib.evolution import evolve, exact_reversal, kernel_of, reverse_conditionals
from glauber_lib.matrices import check_law, check_laws
from glauber_lib.models import ConditionalModel, TabularModel, all_states, check_system
from glauber_lib.reversals import (
    FrozenInTime,
    MaskTokenModel,
    UnigramModel,
    path_counts,
    posterior,
    timed_tables,
    uniform_model,
)
from glauber_lib.schedules import Paths, Schedule, make_schedule

LARGE = 4_096  # states of a system whose reversals are learned
KINDS = ("uniform", "unigram", "energy", "absorbing")
STARTS = ("flat", "pretrained", "reversed")
STRENGTHS = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1_000.0, np.inf)  # of the start, in samples

# Systems -------------------------------------------------------------------------------------------------------------


def triple_law(n_sites: int, n_tokens: int, *, spread: float = 0.8, seed: int = 0) -> np.ndarray:
    """A random law float64[V**n] with fields, pairs and triples of neighbours; ValueError for no small system."""
    n, size = check_system(n_tokens, n_sites, LARGE), check_numbers(spread, "spread")
    if size.ndim or not 0 <= size < 100:
        raise ValueError(f"spread must be a number in 0..100, got {spread!r}")
    rng, states = np.random.default_rng([check_seed(seed), 22]), all_states(n_tokens, n)
    log = np.zeros(len(states))
    for order in (1, 2, 3):
        for first in range(n - order + 1):
            table = rng.normal(scale=float(size), size=(n_tokens,) * order)
            log += table[tuple(states[:, first : first + order].T)]
    return scipy.special.softmax(log)


def near_law(law: ArrayLike, epsilon: float, *, seed: int = 0) -> np.ndarray:
    """A law near another: its logarithm with independent normal errors of scale `epsilon`, float64[S].

    ValueError for what is no law with all states, or no scale.
    """
    law, scale = check_law(law), check_numbers(epsilon, "epsilon")
    if scale.ndim or not 0 <= scale < 100 or not (law > 0).all():
        raise ValueError(f"need a law with all states and a scale in 0..100, got {epsilon!r}")
    errors = np.random.default_rng([check_seed(seed), 23]).normal(size=len(law))
    return scipy.special.softmax(np.log(law) + float(scale) * errors)


def divergence(p: ArrayLike, q: ArrayLike) -> float:
    """Kullback–Leibler divergence of p from q in nats; infinite where q lacks a state. ValueError for no laws."""
    p = check_law(p, name="p")
    q = check_law(q, len(p), "q")
    return float(scipy.special.rel_entr(p, q).sum())


# Learned reversals ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Arm:
    """A noise with all that its reversal is learned and judged by; see `make_arm`.

    Attributes
    ----------
    kind : str
    schedule : Schedule
    noise : ndarray, float64[T, S, V]
        Its conditionals by step.
    starts : dict of str to ndarray, float64[T, S, V]
        The starts of the learner: flat, the energy's conditionals, and the exact reversal of this noise for data of
        the energy's law. The second reads tokens that the noise made as if they were text, the third knows them for
        noise; of energy and absorbing noise both are the same.
    data, prior : ndarray, float64[S]
        The law of the data and that which generation starts from, on the states that the noise has.
    codes : ndarray, int64[V**n]
        Which of these the data's own states are.
    """

    kind: str
    schedule: Schedule
    noise: np.ndarray
    starts: dict[str, np.ndarray]
    data: np.ndarray
    prior: np.ndarray
    codes: np.ndarray


def make_arm(kind: str, law: ArrayLike, energy: ArrayLike, n_sites: int, schedule: Schedule) -> Arm:
    """A noise of a kind beside data and an energy that are listed.

    Parameters
    ----------
    kind : {"uniform", "unigram", "energy", "absorbing"}
        Unigram noise has the mean frequencies of the data. Absorbing noise has one more token, the mask.
    law, energy : array_like, float64[V**n]
        Of the data, and the pretrained one, which is the prior of energy noise.
    n_sites : int
    schedule : Schedule

    Raises
    ------
    ValueError
        For an unknown kind, laws that are none or lack states, or a schedule for other sites.
    """
    law, energy = check_law(law), check_law(energy, name="energy")
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {KINDS}, got {kind!r}")
    n_tokens = round(len(law) ** (1 / check_count(n_sites, "n_sites", 1, 20)))
    if len(law) != n_tokens**n_sites or len(energy) != len(law) or not (energy > 0).all():
        raise ValueError(f"laws of {len(law)} and {len(energy)} states are no positive laws of {n_sites} sites")
    if schedule.n_sites != n_sites:
        raise ValueError(f"the schedule is for {schedule.n_sites} sites, got {n_sites}")
    shape = (n_tokens,) * n_sites
    joint, flat = TabularModel.from_joint(np.log(energy).reshape(shape)), uniform_model(n_tokens)
    if kind == "absorbing":
        model: ConditionalModel = UnigramModel([-np.inf] * n_tokens + [0.0])
        states, size = all_states(n_tokens, n_sites), (n_tokens + 1) ** n_sites
        codes, data = states @ (n_tokens + 1) ** np.arange(n_sites - 1, -1, -1), np.zeros(size)
        data[codes] = law
        learners: list[Any] = [MaskTokenModel(flat), MaskTokenModel(joint)]
        prior = np.eye(size)[-1]
    else:
        share = np.mean([np.bincount(column, law, n_tokens) for column in all_states(n_tokens, n_sites).T], axis=0)
        model = {"uniform": flat, "unigram": UnigramModel(np.log(share)), "energy": joint}[kind]
        learners, data, codes = [flat, joint], law, np.arange(len(law))
        product = np.prod(share[all_states(n_tokens, n_sites)], axis=1)
        prior = {"uniform": np.full(len(law), 1 / len(law)), "unigram": product, "energy": energy}[kind]
    plain = Schedule(schedule.orders, n_sites)
    by_site = {
        k: timed_tables(FrozenInTime(model), Schedule(np.array([[k]]), n_sites))[0] for k in plain.orders[0].tolist()
    }
    noise = np.stack([by_site[k] for k in plain.orders.ravel().tolist()])
    starts = {name: timed_tables(FrozenInTime(one), plain) for name, one in zip(STARTS, learners, strict=False)}
    if kind in ("energy", "absorbing"):
        starts["reversed"] = starts["pretrained"]
    else:
        kernels = [kernel_of(table, n_sites, site) for table, site in zip(noise, plain.orders.ravel(), strict=True)]
        starts["reversed"] = exact_reversal(evolve(energy, kernels), plain, n_tokens).tables
    return Arm(kind, plain, noise, starts, data, prior, codes)


def draw_paths(arm: Arm, codes: ArrayLike, rng: np.random.Generator) -> Paths:
    """Noise paths from states by their codes, int[B], fast: by one generator, not by counters.

    ValueError for codes that are no states.
    """
    n_tokens, n = arm.noise.shape[2], arm.schedule.n_sites
    codes = check_whole(codes, "codes", most=len(arm.data) - 1).reshape(-1)
    initial = all_states(n_tokens, n)[codes]
    tokens, powers = [], n_tokens ** np.arange(n - 1, -1, -1)
    code, state = codes.copy(), initial.copy()
    for table, site in zip(arm.noise, arm.schedule.orders.ravel(), strict=True):
        high = table.cumsum(1)[code]
        new = np.minimum((high <= rng.random((len(code), 1)) * high[:, -1:]).sum(1), n_tokens - 1)
        code += (new - state[:, site]) * powers[site]
        state[:, site] = new
        tokens.append(new)
    none = np.zeros((len(tokens), len(codes)))
    return Paths(initial, arm.schedule.orders.ravel(), np.array(tokens).reshape(none.shape), none, 0)


def generate(prior: ArrayLike, tables: np.ndarray, schedule: Schedule) -> np.ndarray:
    """The law float64[S] that a reversal with such laws by step makes of a prior; ValueError for what does not fit."""
    tables, law = check_laws(tables, "tables", 3), check_law(prior)
    n, n_tokens = schedule.n_sites, tables.shape[-1]
    if tables.shape != (schedule.steps, len(law), n_tokens) or len(law) != n_tokens**n:
        raise ValueError(f"tables must have shape (T, V**n, V) for {len(law)} states, got {tables.shape}")
    shape = (n_tokens,) * n
    for t in range(schedule.steps, 0, -1):
        site = schedule.site(t)
        rows = np.take(tables[t - 1].reshape(*shape, n_tokens), 0, axis=site)  # the site's own token does not matter
        law = np.moveaxis(law.reshape(shape).sum(site)[..., None] * rows, -1, site).ravel()
    return law


def learn(arm: Arm, start: str, counts: np.ndarray, held_out: np.ndarray) -> tuple[np.ndarray, float]:
    """Learned laws float64[T, S, V] of all samples, with the strength that the held-out ones like best, and that.

    Parameters
    ----------
    arm : Arm
    start : {"flat", "pretrained", "reversed"}
    counts, held_out : ndarray, float64[T, S, V]
        From `reversals.path_counts`.

    Raises
    ------
    ValueError
        For an unknown start, or counts of another shape.
    """
    if start not in arm.starts:
        raise ValueError(f"start must be one of {STARTS}, got {start!r}")
    counts, held_out = check_numbers(counts, "counts"), check_numbers(held_out, "held_out")
    if counts.shape != held_out.shape or counts.shape != arm.noise.shape:
        raise ValueError(f"counts must have shape {arm.noise.shape}, got {counts.shape} and {held_out.shape}")
    begin, seen = arm.starts[start], held_out > 0
    likelihood = lambda found: (held_out[seen] * np.log(np.maximum(found[seen], 1e-300))).sum()  # noqa: E731
    liked = [likelihood(posterior(counts, begin, strength)) for strength in STRENGTHS]
    best = STRENGTHS[int(np.argmax(liked))]
    return posterior(counts + held_out, begin, best), best


def learning_curve(
    law: ArrayLike,
    energy: ArrayLike,
    n_sites: int,
    *,
    kinds: Sequence[str] = KINDS,
    rounds: Sequence[int] = (1,),
    samples: Sequence[int] = (30, 100, 300),
    data_sets: int = 10,
    paths: int = 4,
    seed: int = 0,
) -> pd.DataFrame:
    """What a reversal learned from M data loses, exactly, for every noise and start of the learner.

    Parameters
    ----------
    law, energy : array_like, float64[V**n]
    n_sites : int
    kinds : sequence of str
        See `make_arm`. Absorbing noise has one round.
    rounds, samples : sequence of int
        N, and M, at least 5: a fifth is held out to choose the strength of the start.
    data_sets : int
        Data are drawn anew for each, the smaller samples from the larger, and each has an order of its own.
    paths : int
        Noise paths of each datum.
    seed : int

    Returns
    -------
    DataFrame
        A row for each ``noise``, ``start``, ``rounds``, ``samples`` and ``data_set``: ``kl``, the divergence of the
        data from what is generated, nats; ``tv``; ``strength`` of the start.

    Raises
    ------
    ValueError
        For arguments that do not fit each other.
    """
    law, seed = check_law(law), check_seed(seed)
    sizes, numbers = check_whole(samples, "samples", 5, 10**7), check_whole(rounds, "rounds", 1, 100)
    if sizes.ndim != 1 or numbers.ndim != 1 or not sizes.size or not numbers.size:
        raise ValueError(f"samples and rounds must be lists of whole numbers, got {samples!r} and {rounds!r}")
    if isinstance(kinds, str) or not len(kinds) or not set(kinds) <= set(KINDS):
        raise ValueError(f"kinds must name some of {KINDS}, got {kinds!r}")
    paths, rows = check_count(paths, "paths", 1, 1_000), []
    for number in range(check_count(data_sets, "data_sets", 1, 10**6)):
        codes = np.random.default_rng([seed, number, 24]).choice(len(law), size=sizes.max(), p=law / law.sum())
        for kind in kinds:
            for n_rounds in numbers.tolist() if kind != "absorbing" else [1]:
                whole = make_schedule(n_sites, n_rounds, seed=seed + 1_000 * number)
                arm = make_arm(kind, law, energy, n_sites, whole)
                rng = np.random.default_rng([seed, number, n_rounds, KINDS.index(kind)])
                drawn = draw_paths(arm, np.repeat(arm.codes[codes], paths), rng)
                for size in sizes.tolist():
                    rows += _learned(arm, _part(drawn, slice(0, size * paths)), size, paths, number, n_rounds)
    return pd.DataFrame(rows)


def _part(drawn, rows):
    """Some of the paths."""
    return Paths(drawn.initial[rows], drawn.sites, drawn.tokens[:, rows], drawn.log_prob[:, rows], 0)


def _learned(arm, drawn, size, paths, number, n_rounds):
    """Rows of the table for one sample of one arm."""
    cut, n_tokens = (size - size // 5) * paths, arm.noise.shape[2]
    counts = path_counts(_part(drawn, slice(0, cut)), arm.schedule, n_tokens)
    held_out = path_counts(_part(drawn, slice(cut, None)), arm.schedule, n_tokens)
    out = []
    for start in STARTS:
        tables, strength = learn(arm, start, counts, held_out)
        made = generate(arm.prior, tables, arm.schedule)
        facts = {"noise": arm.kind, "start": start, "rounds": n_rounds, "samples": size, "data_set": number}
        lost = {"kl": divergence(arm.data, made), "tv": 0.5 * np.abs(arm.data - made).sum(), "strength": strength}
        out.append(facts | lost)
    return out


def learning_curves(
    n_laws: int, epsilon: float, n_sites: int, n_tokens: int, *, spread: float = 0.8, seed: int = 0, **options: Any
) -> pd.DataFrame:
    """`learning_curve` of so many random laws, each with an energy near it: what differs between laws is seen.

    Parameters
    ----------
    n_laws : int
        Laws `triple_law`, with seeds from `seed` on, which are those of their energies and data too.
    epsilon : float
        See `near_law`.
    n_sites, n_tokens : int
    spread : float
        See `triple_law`.
    seed : int
    **options
        See `learning_curve`.

    Returns
    -------
    DataFrame
        Its rows, with the ``law`` they are of.

    Raises
    ------
    ValueError
        For arguments that do not fit each other.
    """
    seed, found = check_seed(seed), []
    for number in range(check_count(n_laws, "n_laws", 1, 10**6)):
        law = triple_law(n_sites, n_tokens, spread=spread, seed=seed + number)
        near = near_law(law, epsilon, seed=seed + number)
        found.append(learning_curve(law, near, n_sites, seed=seed + number, **options).assign(law=number))
    return pd.concat(found, ignore_index=True)


def crossing(gains: ArrayLike, samples: ArrayLike) -> float:
    """The sample size at which a gain ends: where the mean over data sets first falls to zero, linear in log M.

    Parameters
    ----------
    gains : array_like, float64[R, K]
        Of R data sets at K rising sample sizes.
    samples : array_like, int[K]

    Returns
    -------
    float
        Infinite where it stays above zero, the first size where it never was.

    Raises
    ------
    ValueError
        For other shapes, sizes that do not rise, or gains that are not finite.
    """
    gains, sizes = check_numbers(gains, "gains"), check_numbers(samples, "samples")
    if gains.ndim != 2 or not len(gains) or sizes.shape != gains.shape[1:] or not sizes.size:
        raise ValueError(f"gains must be [R, K] for K sizes, got {gains.shape} and {sizes.shape}")
    if not (np.isfinite(gains).all() and (np.diff(sizes) > 0).all() and 0 < sizes[0] and sizes[-1] < np.inf):
        raise ValueError("gains must be finite, and samples positive and rising")
    mean = gains.mean(0)
    if (mean > 0).all():
        return np.inf
    k = int((mean <= 0).argmax())
    if k == 0:
        return float(sizes[0])
    share = mean[k - 1] / (mean[k - 1] - mean[k])
    return float(np.exp(np.log(sizes[k - 1]) + share * (np.log(sizes[k]) - np.log(sizes[k - 1]))))


def conditionals_of(law: ArrayLike, n_sites: int, n_tokens: int) -> np.ndarray:
    """All conditionals of a listed law, float64[n, V**n, V]; ValueError for a law of other states."""
    n_sites = check_system(check_count(n_tokens, "n_tokens", 1), n_sites, LARGE)
    return np.stack([reverse_conditionals(law, n_sites, n_tokens, site) for site in range(n_sites)])
