r"""The rectangle test: do the conditionals fit any joint distribution? (paper §4)

Take a sequence with tokens a, c at sites i, j and replacements b, d. With

.. math:: \ell_i(a \to b \mid x_j = c) = \log \pi_i(b \mid \ldots c \ldots) - \log \pi_i(a \mid \ldots c \ldots)

a joint law would make both paths from (a, c) to (b, d) agree, so that

.. math:: \Delta = \bigl| [\ell_i(a \to b \mid c) + \ell_j(c \to d \mid b)]
                        - [\ell_j(c \to d \mid a) + \ell_i(a \to b \mid d)] \bigr| = |I_{ij} - I_{ji}|

vanishes. :math:`I_{ij}` and :math:`I_{ji}` are the log cross-ratio as read from either site.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike

from glauber_lib.answers import ask, check_scores, name_of
from glauber_lib.checks import check_contexts, check_count, check_indices, check_numbers, check_seed, check_temperature
from glauber_lib.checksums import refuse_other_vocabulary, vocabulary_checksum
from glauber_lib.draws import inverse_cdf, log_probabilities, weights
from glauber_lib.models import ConditionalModel
from glauber_lib.resampling import scale_of


@dataclass(frozen=True)
class Rectangles:
    """K rectangles.

    Attributes
    ----------
    states : ndarray, int64[K, n]
        The sequences, with a at site i and c at site j.
    passage : ndarray, int64[K]
        Row of the given states that each comes from.
    i, j : ndarray, int64[K]
    b, d : ndarray, int64[K]
        Replacements at i and j.
    vocabulary_checksum : str
        Digest of the words that tokens stand for (`checksums.vocabulary_checksum`); empty where it is not known.
    """

    states: np.ndarray
    passage: np.ndarray
    i: np.ndarray
    j: np.ndarray
    b: np.ndarray
    d: np.ndarray
    vocabulary_checksum: str = ""

    def __len__(self) -> int:
        return len(self.i)

    def take(self, rows: ArrayLike) -> "Rectangles":
        """The rectangles of some rows; ValueError for rows that are not there."""
        rows = check_indices(rows, len(self.states), "rows")
        arrays = {k: v[rows] for k, v in vars(self).items() if k != "vocabulary_checksum"}
        return replace(self, **arrays)

    def corner(self, *, b: bool = False, d: bool = False) -> np.ndarray:
        """The states with `b` and/or `d` put in, int64[K, n]."""
        states, rows = self.states.copy(), np.arange(len(self))
        if b:
            states[rows, self.i] = self.b
        if d:
            states[rows, self.j] = self.d
        return states


def sample_rectangles(
    model: ConditionalModel,
    states: ArrayLike,
    n_rectangles: int,
    *,
    seed: int = 0,
    top: int = 50,
    temperature: float | None = None,
    propose: Callable[..., torch.Tensor] | None = None,
) -> Rectangles:
    """Random rectangles: passage and sites drawn uniformly, replacements from the model's predictions.

    Parameters
    ----------
    model : ConditionalModel
    states : array_like, int[P, n]
        Passages.
    n_rectangles : int
    seed : int
    top : int
        b and d come uniformly from the model's `top` best predictions at their site, the present token excluded.
    temperature : float, optional
        Draw b and d from the conditional law at this temperature instead, the present token excluded: the moves that a
        chain would make. Rectangles of one seed have the same passages and sites at every temperature.
    propose : callable, optional
        ``propose(states, sites) -> scores`` of the predictions; default ``model.scores``.

    Raises
    ------
    ValueError
        If the states have one site, or the model one token, if `temperature` is not positive, for `n_rectangles` or
        `top` below one, if the scores are none that `answers.ask` accepts, or a site has no token but the present one
        that is not banned.
    """
    states, n_rectangles = check_contexts(states, model.n_tokens), check_count(n_rectangles, "n_rectangles", least=1)
    top = check_count(top, "top", least=1)
    if states.shape[1] < 2 or model.n_tokens < 2:
        raise ValueError(
            f"a rectangle needs two sites and two tokens, got states of {states.shape[1]} and |V| = {model.n_tokens}"
        )
    temperature = None if temperature is None else float(check_temperature(temperature))
    rng = np.random.default_rng([check_seed(seed), 1])
    passage = rng.integers(len(states), size=n_rectangles)
    chosen = states[passage]
    i = rng.integers(states.shape[1], size=n_rectangles)
    j = (i + rng.integers(1, states.shape[1], size=n_rectangles)) % states.shape[1]

    def replacements(sites):
        scores = ask(model, chosen, sites) if propose is None else propose(chosen.copy(), sites.copy())
        predictions, present = check_scores(scores, model, chosen, sites), chosen[np.arange(n_rectangles), sites]
        others = predictions.to(torch.float64, copy=True)
        others[torch.arange(n_rectangles), torch.as_tensor(present)] = -torch.inf
        if len(alone := torch.nonzero(others.amax(1) == -torch.inf)):
            k = int(alone[0])
            raise ValueError(
                f"{name_of(model)} bans every token but the present one at site {sites[k]} of {chosen[k].tolist()}: no "
                "rectangle can be drawn there"
            )
        if temperature is None:
            return _draw_among_best(predictions, present[:, None], top, rng)[:, 0]
        return _draw_by_law(others, temperature, rng)

    return Rectangles(chosen, passage, i, j, replacements(i), replacements(j), vocabulary_checksum(model))


def _draw_by_law(others, temperature, rng):
    """Tokens int64[K] drawn from the law at `temperature` of scores float64[K, V]."""
    uniform = torch.as_tensor(rng.random(len(others)), device=others.device)
    return inverse_cdf(weights(others, temperature), uniform)[0].cpu().numpy()


def _draw_among_best(predictions, without, top, rng, count=1):
    """Different tokens int64[K, count] drawn uniformly from the `top` best of scores [K, V] but `without` [K, W].

    Banned tokens are never drawn; ValueError where too few are left.
    """
    width = min(top + without.shape[1], predictions.shape[1])
    scores, best = (part.cpu().numpy() for part in predictions.topk(width, dim=1))
    drawn = np.empty((len(best), count), dtype=np.int64)
    for k, (row, own) in enumerate(zip(best, without, strict=True)):
        allowed = [v for v in row[scores[k] > -np.inf] if v not in own][:top]
        if len(allowed) < count:
            raise ValueError(f"{count} further replacements are wanted at a site, the model allows {len(allowed)}")
        drawn[k] = rng.choice(allowed) if count == 1 else rng.choice(allowed, count, replace=False)
    return drawn


def measure_rectangles(model: ConditionalModel, rectangles: Rectangles, *, temperature: float = 1.0) -> pd.DataFrame:
    r"""Incompatibility of every rectangle, by four evaluations of the model.

    Parameters
    ----------
    model : ConditionalModel
    rectangles : Rectangles
    temperature : float

    Returns
    -------
    DataFrame
        One row per rectangle: ``passage, i, j, distance, a, b, c, d``; ``I_ij, I_ji`` (nats); ``delta`` =
        :math:`|I_{ij} - I_{ji}|`; ``relative`` = :math:`\Delta/(|I_{ij}| + |I_{ji}|)`, zero where
        both readings are rounding; ``influence``, the mean of
        ``TV(π_i(·|c), π_i(·|d))`` and ``TV(π_j(·|a), π_j(·|b))``.

    Raises
    ------
    ValueError
        For rectangles of tokens that the model lacks, of sites that the states lack, or of one site, for scores that
        `answers.ask` refuses, or a rectangle with a token that the model bans.
    """
    temperature = float(check_temperature(temperature))
    rectangles = _check_rectangles(rectangles, model)
    rows = np.arange(len(rectangles))
    a, c = rectangles.states[rows, rectangles.i], rectangles.states[rows, rectangles.j]

    def law(states, sites):
        return log_probabilities(ask(model, states, sites), temperature).cpu().numpy()  # (K, V)

    def read(sites, old, new, **other):
        """The log cross-ratio read from `sites`, and the total variation that the other site's replacement causes."""
        here, there = law(rectangles.states, sites), law(rectangles.corner(**other), sites)
        corners = np.stack([there[rows, new], there[rows, old], here[rows, new], here[rows, old]])
        if len(banned := np.flatnonzero(~np.isfinite(corners).all(0))):
            raise ValueError(
                f"rectangle {banned[0]}: {name_of(model)} bans one of its tokens at site {sites[banned[0]]}, so that "
                "it has no log cross-ratio: leave it out (a token that is not banned may have "
                f"no chance in float64 at temperature {temperature:g})"
            )
        cross_ratio = (corners[0] - corners[1]) - (corners[2] - corners[3])
        rounding = 8 * np.finfo(float).eps * np.abs(corners).max(0)
        return cross_ratio, 0.5 * np.abs(np.exp(here) - np.exp(there)).sum(1), rounding

    from_i, tv_i, rounding_i = read(rectangles.i, a, rectangles.b, d=True)
    from_j, tv_j, rounding_j = read(rectangles.j, c, rectangles.d, b=True)
    delta = np.abs(from_i - from_j)
    size = np.abs(from_i) + np.abs(from_j)
    measurable = size > rounding_i + rounding_j
    return pd.DataFrame(
        {
            "passage": rectangles.passage, "i": rectangles.i, "j": rectangles.j,
            "distance": np.abs(rectangles.i - rectangles.j),
            "a": a, "b": rectangles.b, "c": c, "d": rectangles.d,
            "I_ij": from_i, "I_ji": from_j, "delta": delta,
            "relative": np.divide(delta, size, out=np.zeros_like(delta), where=measurable),
            "influence": (tv_i + tv_j) / 2,
        }
    )  # fmt: skip


def _check_rectangles(rectangles, model):
    """Rectangles of int64, of which a model can be asked; ValueError for others."""
    refuse_other_vocabulary(model, rectangles, "the set of rectangles")
    n_tokens = getattr(model, "n_tokens", 2**63 - 1)
    states = check_contexts(rectangles.states, n_tokens)
    size, n = states.shape
    i, j = sites = [check_indices(getattr(rectangles, name), n, f"sites {name}") for name in "ij"]
    b, d = tokens = [check_indices(getattr(rectangles, name), n_tokens, f"tokens {name}") for name in "bd"]
    if any(values.shape != (size,) for values in sites + tokens) or (i == j).any():
        raise ValueError(f"each of {size} rectangles needs two different sites i, j and a token b, d at each")
    if (same := (states[np.arange(size), i] == b) | (states[np.arange(size), j] == d)).any():
        raise ValueError(f"rectangle {same.argmax()} replaces a token by itself: it has no side there, leave it out")
    return replace(rectangles, states=states, i=i, j=j, b=b, d=d)


def independent_influence(
    model: ConditionalModel, rectangles: Rectangles, *, seed: int = 0, top: int = 50
) -> np.ndarray:
    r"""Influence of the two sites on each other, by conditionals that no rectangle is measured with.

    .. math:: \tfrac12 [\mathrm{TV}(\pi_i(\cdot \mid d'), \pi_i(\cdot \mid d''))
                      + \mathrm{TV}(\pi_j(\cdot \mid b'), \pi_j(\cdot \mid b''))]

    Δ is made of :math:`\pi_i(\cdot \mid c), \pi_i(\cdot \mid d), \pi_j(\cdot \mid a), \pi_j(\cdot \mid b)`. What is
    peculiar to one of these four raises Δ and the total variation between them alike. It does not enter here.

    Parameters
    ----------
    model : ConditionalModel
        With four tokens or more.
    rectangles : Rectangles
    seed : int
    top : int
        b' and b'' come uniformly from the model's `top` best predictions at site i other than a and b; d' and d'' from
        those at site j other than c and d.

    Returns
    -------
    ndarray, float64[K]

    Raises
    ------
    ValueError
        If the model has fewer than four tokens, or fewer that it does not ban; for `top` below two.
    """
    if model.n_tokens < 4:
        raise ValueError(f"two further replacements at each site need four tokens, the model has {model.n_tokens}")
    rectangles = _check_rectangles(rectangles, model)
    top, rows = check_count(top, "top", least=2), np.arange(len(rectangles))
    rng = np.random.default_rng([check_seed(seed), 4])

    def half(site, other, taken):
        """Total variation of the conditional at `site` between two further replacements at `other`."""
        predictions = ask(model, rectangles.states, other)
        present = rectangles.states[rows, other]
        further = _draw_among_best(predictions, np.stack([present, taken], axis=1), top, rng, count=2)  # (K, 2)
        laws = []
        for token in further.T:
            states = rectangles.states.copy()
            states[rows, other] = token
            laws.append(ask(model, states, site).double().softmax(1).cpu().numpy())
        return 0.5 * np.abs(laws[0] - laws[1]).sum(1)

    return (half(rectangles.i, rectangles.j, rectangles.d) + half(rectangles.j, rectangles.i, rectangles.b)) / 2


def noise_floor(model: Any, rectangles: Rectangles) -> float:
    """Largest change of Δ (nats) when a language model evaluates `rectangles` in float64 instead of float32.

    ValueError for a model that is in float64 already.
    """
    if "float64" in getattr(model, "computation", {}).get("dtype", ""):
        raise ValueError(f"{name_of(model)} computes in float64 already: measure one of float32")
    single, double = (measure_rectangles(m, rectangles).delta for m in (model, model.double()))
    return float((single - double).abs().max(skipna=False))


def measure_joint(model: Any, rectangles: Rectangles) -> pd.DataFrame:
    """The control: the same loop of four edges, each a difference of joint log-probabilities.

    Δ vanishes identically, up to rounding, if the model is a joint: each of its factors depends only on the tokens
    before it. `CausalLM` checks that. Every edge is evaluated by itself, in the order of the paths.

    Parameters
    ----------
    model : CausalLM
        Or another model with ``log_prob(states)``.
    rectangles : Rectangles

    Returns
    -------
    DataFrame
        ``passage, i, j, distance, delta``.

    Raises
    ------
    ValueError
        If a log-probability is not finite, or for rectangles of sites or tokens that are not there.
    """
    rectangles = _check_rectangles(rectangles, model)
    corners = {(b, d): rectangles.corner(b=b, d=d) for b in (False, True) for d in (False, True)}

    def edge(start, end):
        states = np.concatenate([corners[end], corners[start]])
        values = model.log_prob(states).detach().cpu().numpy()
        if len(wrong := np.flatnonzero(~np.isfinite(values))):
            k = wrong[0]
            raise ValueError(f"{name_of(model)} gives log-probability {values[k]} to state {states[k].tolist()}")
        return values[: len(rectangles)] - values[len(rectangles) :]

    first = edge((False, False), (True, False)) + edge((True, False), (True, True))
    second = edge((False, False), (False, True)) + edge((False, True), (True, True))
    return pd.DataFrame(
        {
            "passage": rectangles.passage, "i": rectangles.i, "j": rectangles.j,
            "distance": np.abs(rectangles.i - rectangles.j), "delta": np.abs(first - second),
        }
    )  # fmt: skip


def opposite_signs(x: ArrayLike, y: ArrayLike, *, floor: float = 0.0) -> np.ndarray:
    """Whether two readings have opposite signs and both exceed the noise `floor`, bool[K].

    Raises
    ------
    ValueError
        If a reading or the floor is nan, or there are not as many readings from both sites.
    """
    x, y, noise = check_numbers(x, "readings"), check_numbers(y, "readings"), check_numbers(floor, "floor")
    if x.shape != y.shape:
        raise ValueError(f"need two readings of each rectangle, got shapes {x.shape} and {y.shape}")
    if np.isnan(x).any() or np.isnan(y).any() or np.isnan(noise):
        raise ValueError(f"readings must be numbers, got nan in {(np.isnan(x) | np.isnan(y)).sum()}, floor {floor}")
    return (np.sign(x) * np.sign(y) < 0) & (np.minimum(np.abs(x), np.abs(y)) > noise)


def mean_without_largest(values: ArrayLike, share: float = 0.05) -> float:
    r"""The mean of all but the largest `share` of the values, over the mean of all: one if they are equal.

    Of n values :math:`1 + \lfloor (n - 1)(1 - s) \rfloor` are left for a share s, also where some are equal. For an
    exponential law and a share of 0.05 it is 0.842. It is nan if a value is, if there is none, or if the mean of all is
    zero. ValueError for a share that is not within 0 .. 1, or a table of values.
    """
    values = np.sort(check_numbers(values, "values", listed=True))
    if not 0 <= share <= 1:
        raise ValueError(f"share must lie within 0 .. 1, got {share!r}")
    values = values / scale_of(values)
    if not values.size or np.isnan(values).any() or not np.mean(values):
        return float("nan")
    left = 1 + int((len(values) - 1) * (1 - share) + 1e-9)
    return float(np.mean(values[:left]) / np.mean(values))


def marked_texts(model: Any, rectangles: Rectangles, *, b: bool = False, d: bool = False) -> list[str]:
    """One corner of each rectangle as text, the tokens at i and j in brackets.

    Parameters
    ----------
    model : MaskedLM or CausalLM
    rectangles : Rectangles
    b, d : bool
        See `Rectangles.corner`.

    Raises
    ------
    ValueError
        For rectangles of sites or tokens that are not there.
    """
    rectangles = _check_rectangles(rectangles, model)
    texts = []
    for state, *sites in zip(rectangles.corner(b=b, d=d), rectangles.i, rectangles.j, strict=True):
        words = model.words(state)
        for site in sites:
            words[site] = f"[{words[site]}]"
        texts.append(model.tokenizer.convert_tokens_to_string(words))
    return texts
