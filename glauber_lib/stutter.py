r"""Adjacent repeats: how often texts stutter, and how probable a pair of equal tokens is under each kind of update.

Of a pair of sites i, i + 1 of a state, a repeat has without any sampling noise the probability

- ``visible``: :math:`\sum_v \pi_i(v)\, \pi_{i+1}(v)`, both drawn given the old tokens;
- ``hidden``: :math:`\sum_v p_i(v)\, p_{i+1}(v)`, both hidden and drawn independently;
- ``sequential``: :math:`\sum_v p_i(v)\, p_{i+1}(v \mid x_i = v)`, both hidden and drawn one after the other.
"""

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike

from glauber_lib.answers import ask, refuse_unable_to_hide
from glauber_lib.blocks import Blocks, block_matrices, blocks_of_size
from glauber_lib.checks import (
    ABSENT,
    check_contexts,
    check_count,
    check_indices,
    check_seed,
    check_state,
    check_temperature,
)
from glauber_lib.draws import log_probabilities, probabilities
from glauber_lib.exact import mixing_time, spectral_gap, stationary_law
from glauber_lib.incompatibility import Rectangles, measure_rectangles
from glauber_lib.models import ConditionalModel, RestrictedModel, all_states, hidden_besides

# Texts ---------------------------------------------------------------------------------------------------------------


def stutters(states: ArrayLike) -> np.ndarray:
    """Whether each token is that of its left neighbour, bool[B, n - 1]; ValueError for what are no states."""
    states = check_contexts(states)
    return states[:, 1:] == states[:, :-1]


def word_stutter(model: Any, states: ArrayLike) -> np.ndarray:
    """Share of adjacent words that are equal in the text of each state, float64[B]; zero of a text of one word.

    Words are what white space parts, pieces joined. ValueError for tokens that the model lacks.
    """
    shares = []
    for text in model.texts(check_contexts(states, model.n_tokens)):
        words = text.split()
        shares.append(np.mean([a == b for a, b in pairwise(words)]) if len(words) > 1 else 0.0)
    return np.array(shares)


def diversity(states: ArrayLike) -> pd.DataFrame:
    """How varied texts are: within each text, and between it and the others.

    Parameters
    ----------
    states : array_like, int[B, n]
        At least two, of two tokens or more.

    Returns
    -------
    DataFrame
        A row for each state: ``distinct_1`` and ``distinct_2``, distinct tokens and pairs over their number;
        ``overlap``, the share of its pairs of adjacent tokens that some other of the texts has; ``entropy`` of its
        tokens, in nats.

    Raises
    ------
    ValueError
        For fewer states or tokens.
    """
    states = check_contexts(states)
    if min(states.shape) < 2:
        raise ValueError(f"need two texts of two tokens, got shape {states.shape}")
    pairs = [set(pairwise(row)) for row in states.tolist()]
    rows = []
    for k, row in enumerate(states.tolist()):
        others = set().union(*(own for j, own in enumerate(pairs) if j != k))
        share = np.unique(row, return_counts=True)[1] / len(row)
        rows.append(
            {
                "distinct_1": len(set(row)) / len(row),
                "distinct_2": len(pairs[k]) / (len(row) - 1),
                "overlap": len(pairs[k] & others) / len(pairs[k]),
                "entropy": max(0.0, float(-(share * np.log(share)).sum())),
            }
        )
    return pd.DataFrame(rows)


# Pairs without sampling noise ----------------------------------------------------------------------------------------


def pair_stutter(
    model: ConditionalModel,
    states: ArrayLike,
    sites: ArrayLike,
    *,
    exact: int = 12,
    draws: int = 4,
    replacements: int = 2,
    temperature: float = 1.0,
    seed: int = 0,
) -> pd.DataFrame:
    """Probability that a redrawn pair of neighbours is equal, for each kind of update, and how the two sites interact.

    Parameters
    ----------
    model : ConditionalModel
        One that can hide sites.
    states : array_like, int[K, n]
    sites : array_like, int[K]
        The left site of each pair.
    exact : int
        Sequential draws: terms of the largest products, asked for one by one.
    draws : int
        Terms drawn from the others in proportion to their products, which leaves the sum without bias.
    replacements : int
        Rectangles measured on each pair: tokens of the model's law in the place of both.
    temperature : float
    seed : int

    Returns
    -------
    DataFrame
        A row for each pair: ``visible``, ``hidden``, ``sequential`` (see the module); ``error``, the standard error of
        the last, nan of one draw, of none where terms are left out, and zero where all were asked for; ``influence``
        and ``delta``, means over the replacements of what `measure_rectangles` gives, from tokens that are there before
        anything is drawn.

    Raises
    ------
    ValueError
        For states or sites that do not fit each other, counts that are none, a model of one token, one that cannot hide
        sites, or one that bans all tokens but the present one.
    """
    states, rng = check_contexts(states, model.n_tokens), np.random.default_rng([check_seed(seed), 6])
    sites = check_indices(sites, max(states.shape[1] - 1, 0), "sites")
    temperature = float(check_temperature(temperature))
    if sites.shape != (len(states),) or model.n_tokens < 2:
        raise ValueError(f"need one left site for each of {len(states)} states and two tokens, got {sites.shape}")
    counts = check_count(exact, "exact", 1), check_count(draws, "draws"), check_count(replacements, "replacements", 1)
    refuse_unable_to_hide(model)
    rows, hidden = np.arange(len(states)), np.zeros(states.shape, bool)
    hidden[rows, sites] = hidden[rows, sites + 1] = True

    asked = [(at, *more) for more in ((), (hidden,)) for at in (sites, sites + 1)]
    scores = [ask(model, states, *one).clone() for one in asked]
    temperatures = np.full(len(states), temperature)
    own, right, free, free_right = (probabilities(one, temperatures).cpu().numpy() for one in scores)
    logs = [log_probabilities(one, temperature).cpu().numpy() for one in scores[:2]]
    table = {"visible": (own * right).sum(1), "hidden": (free * free_right).sum(1)}
    value, error = _sequential(model, states, sites, free, free_right, counts, temperature, rng)
    table |= {"sequential": value, "error": error}
    return pd.DataFrame(table).assign(**_interaction(model, states, sites, logs, counts[2], temperature, rng))


def _sequential(model, states, sites, first, second, counts, temperature, rng):
    """The sum over equal tokens of the law of the first times that of the second given it, and its standard error."""
    value, error = np.zeros(len(states)), np.zeros(len(states))
    for k, (state, site) in enumerate(zip(states, sites, strict=True)):
        product = first[k] * second[k]
        order = np.argsort(-product, kind="stable")
        top, rest = order[: counts[0]], order[counts[0] :]
        mass = product[rest].sum()
        drawn = rng.choice(rest, counts[1], p=product[rest] / mass) if mass > 0 and counts[1] else rest[:0]
        tokens = np.concatenate([top, drawn])
        asked = np.tile(state, (len(tokens), 1))
        asked[:, site] = tokens
        scores = ask(model, asked, np.full(len(tokens), site + 1))
        after = probabilities(scores, np.full(len(tokens), temperature)).cpu().numpy()
        terms = first[k, tokens] * after[np.arange(len(tokens)), tokens]
        value[k] = terms[: len(top)].sum()
        weighted = terms[len(top) :] * mass / product[drawn]
        value[k] += weighted.mean() if len(drawn) else 0.0
        if mass > 0:
            error[k] = weighted.std(ddof=1) / np.sqrt(len(drawn)) if len(drawn) > 1 else np.nan
    return value, error


def _interaction(model, states, sites, logs, replacements, temperature, rng):
    """Means of influence and Δ of each pair, over replacements drawn from the two laws without the present tokens."""

    def other(log, at):
        log = log.copy()
        log[np.arange(len(log)), states[np.arange(len(log)), at]] = -np.inf
        if (top := log.max(1, keepdims=True)).min() == -np.inf:
            raise ValueError("a replacement needs a token that the model allows beside the present one")
        cumulative = np.exp(log - top).cumsum(1)  # however little the law has beside the present token
        return (cumulative > rng.random((len(log), 1)) * cumulative[:, -1:]).argmax(1)

    rows, measured = np.arange(len(states)), []
    for _ in range(replacements):
        rectangles = Rectangles(states, rows, sites, sites + 1, other(logs[0], sites), other(logs[1], sites + 1))
        measured.append(measure_rectangles(model, rectangles, temperature=temperature)[["influence", "delta"]])
    return {name: np.mean([one[name] for one in measured], axis=0) for name in ("influence", "delta")}


# Small systems of a language model -----------------------------------------------------------------------------------


class _Words(RestrictedModel):
    """A `RestrictedModel` in which hidden sites hold the words too: of a joint law the restricted joint.

    The law of a site with others hidden is that of the site and then, in rising order, of the others by the model's own
    conditionals, summed over the words of the others. No conditional of the model is asked for twice.
    """

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self._known: dict[tuple, torch.Tensor] = {}

    def scores(self, states: Any, sites: Any, hidden: Any = None) -> torch.Tensor:
        """Log-probabilities float[B, n_words], but for a constant of each row."""
        states, sites = np.asarray(states), np.asarray(sites)
        none = np.zeros(states.shape, bool)
        others = hidden_besides(none if hidden is None else hidden, torch.tensor(states), torch.tensor(sites)).numpy()
        found = self._log_law(states, sites, others)
        if len(rows := np.flatnonzero(others.any(1))):
            again = np.repeat(states[rows], self.n_tokens, axis=0)
            again[np.arange(len(again)), np.repeat(sites[rows], self.n_tokens)] = np.tile(
                range(self.n_tokens), len(rows)
            )
            left = np.repeat(others[rows], self.n_tokens, axis=0)
            found[rows] += self.scores(again, left.argmax(1), left).logsumexp(1).view(len(rows), -1)
        return found

    def _log_law(self, states, sites, others):
        """What the model itself says of each row, by all of its tokens; asked for where it is not known."""
        shown = np.where(others, ABSENT, states)
        shown[np.arange(len(sites)), sites] = ABSENT
        keys = [(site, *row) for site, row in zip(sites.tolist(), shown.tolist(), strict=True)]
        new = list({key: k for k, key in enumerate(keys) if key not in self._known}.values())
        if new:
            hidden = np.zeros((len(new), len(self.template)), bool)
            hidden[:, self.sites] = others[new]
            scores = ask(self.model, self.fill(states[new]), self.sites[sites[new]], hidden if hidden.any() else None)
            laws = scores.log_softmax(1)[:, torch.as_tensor(self.tokens)]
            self._known.update(zip([keys[k] for k in new], laws, strict=True))
        return torch.stack([self._known[key] for key in keys])


def solve_template(model: Any, template: ArrayLike, sites: ArrayLike, n_words: int) -> pd.DataFrame:
    """Every kernel of three neighbouring sites of a text, solved: what law it has, and how often that stutters.

    Parameters
    ----------
    model : MaskedLM
    template : array_like, int[m]
    sites : array_like, int[k]
        The free sites, each the right neighbour of the one before.
    n_words : int
        Words that they may hold, the same at each: the model's best predictions there, in turns. Hidden sites hold
        them too, so that of a joint law single sites and blocks in sequence have one stationary law.

    Returns
    -------
    DataFrame
        A row for each ``kernel``: ``tv``, total variation of its stationary law to that of single sites; ``gap``
        (`exact.spectral_gap`, nan below 1e-10); ``mixing_time`` in steps; ``stutter``, the mean share of adjacent
        repeats under its law.

    Raises
    ------
    ValueError
        For sites or words that there are not, sites that are no neighbours in rising order, or so many that they make
        no small system; as `exact.mixing_time`.
    """
    state = check_state(template, model.n_tokens)
    sites = check_indices(sites, len(state), "sites")
    n_words = check_count(n_words, "n_words", 2, model.n_tokens)
    if sites.ndim != 1 or len(sites) < 2 or (np.diff(sites) != 1).any():
        raise ValueError(f"need two free sites at least, neighbours in rising order, got {sites.tolist()}")
    refuse_unable_to_hide(model)
    scores = ask(model, np.tile(state, (len(sites), 1)), sites)
    ranked = scores.topk(n_words, dim=1).indices.cpu().numpy()  # (k, n_words)
    words = list(dict.fromkeys(ranked.T.ravel().tolist()))[:n_words]
    small, n = _Words(model, state, sites, words), len(sites)
    single, pairs, whole = blocks_of_size(n, 1), blocks_of_size(n, 2), [tuple(range(n))]
    moves: dict[str, tuple[Blocks, str]]
    moves = {"single": (single, "sequential"), "block2": (pairs, "sequential"), "whole": (whole, "sequential"),
             "visible": (whole, "visible"), "hidden": (whole, "hidden")}  # fmt: skip
    repeats, rows, reference = stutters(all_states(n_words, n)).mean(1), [], None
    for name, matrix in block_matrices(small, n, moves).items():
        law = stationary_law(matrix)
        reference = law if reference is None else reference
        rows.append(
            {
                "kernel": name,
                "tv": 0.5 * np.abs(law - reference).sum(),
                "gap": spectral_gap(matrix),
                "mixing_time": mixing_time(matrix, law=law),
                "stutter": law @ repeats,
            }
        )
    return pd.DataFrame(rows)
