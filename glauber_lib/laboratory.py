r"""Many small systems made of a language model, solved exactly: the margin theorem, and what incompatibility costs.

A system is a passage of which a few sites are free to hold the words that stand at these sites. Its kernel, its mixing
time and its stationary law need no sampling.
"""

from itertools import combinations

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike
from tqdm.auto import tqdm

from glauber_lib import exact
from glauber_lib.answers import ask, name_of
from glauber_lib.checks import (
    check_contexts,
    check_count,
    check_seed,
    check_temperature,
    check_temperatures,
    unmasked,
)
from glauber_lib.margins import escape_bound, mixing_lower_bound
from glauber_lib.matrices import check_law
from glauber_lib.models import ConditionalModel, RestrictedModel, TabularModel, all_states, check_system


def restricted_tables(
    model: ConditionalModel,
    templates: ArrayLike,
    n_sites: int,
    n_words: int,
    *,
    seed: int = 0,
    progress: str | None = None,
) -> np.ndarray:
    """All scores of a language model restricted to a few sites of each template, and to words that stand there.

    Parameters
    ----------
    model : MaskedLM
    templates : array_like, int[T, m]
    n_sites : int
        Free sites, drawn from those of each template that hold different words.
    n_words : int
        How many of the words at these sites, from the first on, the sites may hold.
    seed : int
    progress : str, optional
        Title of a progress bar.

    Returns
    -------
    ndarray, float64[T, n, V, ..., V]
        Of each template the table of a `TabularModel`.

    Raises
    ------
    ValueError
        If a template has fewer different words than `n_sites`.
    """
    templates, sites = _free_sites(model, templates, n_sites, seed)
    n_sites = sites.shape[1]
    n_words, tables = check_count(n_words, "n_words", least=2, most=n_sites), []
    pairs = list(zip(templates, sites, strict=True))
    for template, free in tqdm(pairs, desc=progress, disable=progress is None, leave=False):
        small = RestrictedModel(model, template, free, template[free[:n_words]])
        tables.append(exact.tabulate(small, n_sites).to_arrays()["table"])
    return np.array(tables)


def predicted_tables(
    model: ConditionalModel,
    templates: ArrayLike,
    n_sites: int,
    n_words: int,
    *,
    seed: int = 0,
    progress: str | None = None,
) -> np.ndarray:
    """The same systems with other words: each free site holds the model's own best predictions for it.

    Parameters
    ----------
    model : MaskedLM
    templates : array_like, int[T, m]
    n_sites : int
        Free sites, those that `restricted_tables` draws with the same seed.
    n_words : int
        How many words a site may hold: those with the largest scores there while the other sites hold the passage's
        words. Token k of the small system is the k-th of them, another word at each site.
    seed : int
    progress : str, optional
        Title of a progress bar.

    Returns
    -------
    ndarray, float64[T, n, V, ..., V]
        Of each template the table of a `TabularModel`.

    Raises
    ------
    ValueError
        If a template has fewer different words than `n_sites`, or the model allows fewer than `n_words` words at a
        site.
    """
    templates, sites = _free_sites(model, templates, n_sites, seed)
    n_sites = sites.shape[1]
    n_words, tables = check_count(n_words, "n_words", least=2, most=model.n_tokens), []
    others, pairs = all_states(n_words, n_sites - 1), list(zip(templates, sites, strict=True))
    for template, free in tqdm(pairs, desc=progress, disable=progress is None, leave=False):
        scores, words = ask(model, np.tile(template, (n_sites, 1)), free).topk(n_words, dim=1)
        if not scores.isfinite().all():
            raise ValueError(f"{name_of(model)} bans all but fewer than {n_words} tokens at a site: take fewer words")
        words, table = words.cpu().numpy(), []
        for i, site in enumerate(free):
            states = np.tile(template, (len(others), 1))
            states[:, np.delete(free, i)] = np.delete(words, i, axis=0)[np.arange(n_sites - 1), others]
            answer = ask(model, states, np.full(len(states), site))[:, words[i]].cpu().numpy()
            table.append(np.moveaxis(answer.reshape((n_words,) * n_sites), -1, i))
        tables.append(table)
    return np.array(tables)


def _free_sites(model, templates, n_sites, seed):
    """The templates int[T, m] and of each `n_sites` sites, drawn from those with different words, int[T, n]."""
    templates, n_sites = check_contexts(templates, model.n_tokens), check_count(n_sites, "n_sites", least=2)
    rng, sites = np.random.default_rng([check_seed(seed), 7]), []
    for template in templates:
        _, first = np.unique(template, return_index=True)
        if len(first) < n_sites:
            raise ValueError(f"a template needs {n_sites} different words, got {len(first)}")
        sites.append(np.sort(rng.choice(first, n_sites, replace=False)))
    return templates, np.array(sites)


# What incompatibility costs ------------------------------------------------------------------------------------------


def mean_delta(model: TabularModel) -> float:
    r"""Mean incompatibility (nats) of all rectangles of a small system, of every pair of sites in every context.

    With :math:`D = s_i - s_j`, the difference of the scores of two sites in one state, the normalisations cancel:

    .. math:: \Delta = |D(b, d) - D(a, d) - D(b, c) + D(a, c)|

    See `incompatibility` for a, b, c, d. At another temperature it is divided by it.
    """
    table, means = model.to_arrays()["table"].astype(float), []
    if model.n_sites < 2 or model.n_tokens < 2:
        raise ValueError(f"a rectangle needs two sites and two tokens, got {model.n_sites} and |V| = {model.n_tokens}")
    a, b = np.triu_indices(model.n_tokens, 1)
    for i, j in combinations(range(model.n_sites), 2):
        apart = np.moveaxis(table[i] - table[j], (i, j), (0, 1))
        steps = apart[b] - apart[a]
        means.append(np.abs(steps[:, b] - steps[:, a]).mean())
    return float(np.mean(means))


def incompatibility_price(
    model: ConditionalModel, n_sites: int, temperature: float = 1.0, *, law: np.ndarray | None = None
) -> dict[str, float]:
    r"""How far the conditionals of the stationary law are from the model's own, exactly.

    .. math:: \frac1n \sum_i \sum_x \pi(x) \log \frac{\pi(x_i \mid x_{-i})}{\pi_{i,\tau}(x_i \mid x_{-i})}

    This mean Kullback-Leibler divergence is the price of there being no joint with the model's conditionals: the chain
    settles in the law :math:`\pi`, whose conditionals are others. It is zero if and only if the conditionals fit a
    joint. The stationary law may be given where it is known (`law`, float64[V**n]).

    Returns
    -------
    dict
        ``price`` (nats per site) and ``entropy``, that of the model's conditionals in the same mean (nats per site).

    Raises
    ------
    ValueError
        For a `law` that is none: not V**n numbers >= 0 whose sum is one.
    """
    n_sites = check_system(model.n_tokens, n_sites)
    if law is None:
        law = exact.stationary_law(exact.transition_matrix(model, n_sites, temperature))
    law = check_law(law, model.n_tokens**n_sites)
    states, shape, price, entropy = all_states(model.n_tokens, n_sites), (model.n_tokens,) * n_sites, 0.0, 0.0
    for i in range(n_sites):
        joint = np.moveaxis(law.reshape(shape), i, -1)  # the others, then the token at i
        scores = ask(model, states, np.full(len(states), i)).double()
        scores = (scores - scores.amax(1, keepdim=True)) / float(check_temperature(temperature))
        given = _log_softmax(scores).cpu().numpy().reshape(*shape, -1).take(0, axis=i)  # no probability underflows
        rest = joint.sum(-1, keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            price += np.where(joint > 0, joint * (np.log(joint) - np.log(rest) - given), 0.0).sum()
            entropy -= np.where(given > -np.inf, rest * np.exp(given) * given, 0.0).sum()
    return {"price": float(price / n_sites), "entropy": float(entropy / n_sites)}


def _log_softmax(scores):
    """Of scores [K, V] whose largest is zero; precise also where one token has nearly all the probability."""
    given, best = scores.log_softmax(1), scores.argmax(1, keepdim=True)
    others = given.exp().scatter(1, best, 0.0).sum(1, keepdim=True)
    return given.scatter(1, best, torch.where(others < 0.5, torch.log1p(-others), given.gather(1, best)))


def compatible_table(law: np.ndarray, n_tokens: int, n_sites: int) -> TabularModel:
    """The conditionals of a law float64[V**n] as a model at temperature one, with scores rounded as a network's are.

    They fit a joint, so that their price is that of rounding to float32 alone. ValueError for a law that is none.
    """
    n_sites = check_system(n_tokens, n_sites)
    law = check_law(law, n_tokens**n_sites)
    joint = np.log(np.maximum(law, 1e-300)).reshape((n_tokens,) * n_sites)
    normalised = [joint - np.logaddexp.reduce(joint, axis=i, keepdims=True) for i in range(n_sites)]
    return TabularModel(np.stack(normalised).astype(np.float32))


def price_table(tables: ArrayLike, temperatures: ArrayLike, *, progress: str | None = None) -> pd.DataFrame:
    """Price of incompatibility of many systems.

    Parameters
    ----------
    tables : array_like, float[T, n, V, ..., V]
        From `restricted_tables` or `predicted_tables`.
    temperatures : array_like, float[K]
    progress : str, optional
        Title of a progress bar.

    Returns
    -------
    DataFrame
        One row for each table and temperature: ``template, temperature``, those of `incompatibility_price`, ``floor``,
        the price of the `compatible_table`; ``TV``, between stationary law and normalised pseudo-likelihood; ``delta``,
        the `mean_delta` at that temperature.
    """
    rows, taus = [], check_temperatures(temperatures).tolist()
    for k, table in enumerate(tqdm(unmasked(tables, "tables"), desc=progress, disable=progress is None, leave=False)):
        model = TabularModel(table)
        n, delta = model.n_sites, mean_delta(model)
        for t in taus:
            law = exact.stationary_law(exact.transition_matrix(model, n, t))
            found = incompatibility_price(model, n, t, law=law)
            floor = incompatibility_price(compatible_table(law, model.n_tokens, n), n)["price"]
            apart = 0.5 * np.abs(law - exact.pseudo_likelihood(model, n, t)).sum()
            rows.append({"template": k, "temperature": t, **found, "floor": floor, "TV": apart, "delta": delta / t})
    return pd.DataFrame(rows)


# The margin theorem --------------------------------------------------------------------------------------------------


def margin_cases(model: ConditionalModel, n_sites: int, temperatures: ArrayLike, limit: int = 2**40) -> pd.DataFrame:
    r"""Both sides of the margin theorem for every smallest set with a positive margin (`exact.margin_sets`).

    Parameters
    ----------
    model : ConditionalModel
    n_sites : int
    temperatures : array_like, float[K]
    limit : int
        Most steps of a mixing time; ValueError for a number that is none.

    Returns
    -------
    DataFrame
        One row for each set and temperature: ``temperature, states`` (in the set), ``margin``, ``mass``; ``escape``,
        the largest probability of a step out of the set; ``conductance``; ``bound``, :math:`(|V|-1)e^{-\gamma/\tau}` on
        both; ``mixing_time``, nan above `limit`; ``lower``, the bound on it, nan where the set has more than half the
        mass.
    """
    n_sites, temperatures = check_system(model.n_tokens, n_sites), check_temperatures(temperatures)
    states, rows, limit = all_states(model.n_tokens, n_sites), [], check_count(limit, "limit", least=1)
    basins = [(codes, exact.margin(model, states[codes])) for codes in exact.margin_sets(model, n_sites)]
    for t in temperatures.tolist() if basins else []:
        matrix = exact.transition_matrix(model, n_sites, t)
        law, dense = exact.stationary_law(matrix), matrix.toarray()
        try:
            steps = exact.mixing_time(matrix, limit=limit, law=law)
        except ValueError:
            steps = np.nan
        for codes, gamma in basins:
            mass, out = law[codes].sum(), np.delete(dense[codes], codes, axis=1).sum(1)
            lower = (
                mixing_lower_bound(gamma, t, model.n_tokens) if mass <= 0.5 + 1e-12 else np.nan
            )  # half, but for rounding
            rows.append({
                "temperature": t, "states": len(codes), "margin": gamma, "mass": mass, "escape": out.max(),
                "conductance": (law[codes] * out).sum() / mass, "bound": escape_bound(gamma, t, model.n_tokens),
                "mixing_time": steps, "lower": lower,
            })  # fmt: skip
    names = ["temperature", "states", "margin", "mass", "escape", "conductance", "bound", "mixing_time", "lower"]
    return pd.DataFrame(rows, columns=names)


def all_margin_cases(tables: ArrayLike, temperatures: ArrayLike) -> pd.DataFrame:
    """`margin_cases` of tables float[T, n, V, ..., V], with the number of the ``template``; ValueError without one."""
    models = [TabularModel(table) for table in unmasked(tables, "tables")]
    if not models:
        raise ValueError("need a table, got none")
    found = [margin_cases(m, m.n_sites, temperatures).assign(template=k) for k, m in enumerate(models)]
    return pd.concat([cases for cases in found if len(cases)] or found, ignore_index=True)
