r"""Metropolis–Hastings on an energy, one site a step, and the energies that language models give.

.. math:: K(x \to y) = \frac1n \sum_k 1\{y_{-k} = x_{-k}\}\, q(y_k \mid x_{-k})
    \min\Bigl\{1, e^{(f(x) - f(y))/\tau}\, \frac{q(x_k \mid x_{-k})}{q(y_k \mid x_{-k})}\Bigr\}, \quad y \ne x,

and what is left stays: reversible for :math:`p \propto e^{-f/\tau}`. Any proposal `q` will do that does not look at the
present token of the site, so every conditional model is one. With the conditionals of `p` itself nothing is refused,
and the chain is Glauber dynamics. An energy is given by :math:`-f`, as ``log_prob``: `CausalLM` has one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import ArrayLike

from glauber_lib.answers import ask
from glauber_lib.checks import (
    check_chains,
    check_contexts,
    check_count,
    check_frozen,
    check_numbers,
    check_question,
    check_seed,
    check_temperature,
)
from glauber_lib.checksums import model_checksum, small_model_key, vocabulary_checksum
from glauber_lib.draws import chunks, inverse_cdf, log_probabilities, probabilities, uniforms, weights
from glauber_lib.evolution import kernel_of
from glauber_lib.exact import Sparse
from glauber_lib.models import LISTED, ConditionalModel, RestrictedModel, all_states, check_system
from glauber_lib.reversals import uniform_model
from glauber_lib.traces import Trace

RULES = ("metropolis", "uncorrected", "printed")


class Energy(Protocol):
    """What `metropolis` needs of an energy.

    Attributes
    ----------
    n_tokens : int
    """

    n_tokens: int

    def log_prob(self, states: Any) -> Any:
        """Minus the energy, float64[B] of states int[B, n]: an unnormalised log-probability, -inf where it is zero."""
        ...


# Energies and proposals ----------------------------------------------------------------------------------------------


class PseudoLikelihood:
    """The sum over sites of a masked model's log-probabilities given the others: n conditionals a state.

    Parameters
    ----------
    model : ConditionalModel
    raw : bool
        Take the scores as they are, not normalised at each site: the sum of raw logits.
    """

    def __init__(self, model: ConditionalModel, *, raw: bool = False):
        self.model, self.raw, self.n_tokens = model, bool(raw), model.n_tokens

    @property
    def cache_key(self) -> list:
        """What stands for the energy in the key of a cached result."""
        return small_model_key(self, [self.model, self.raw])

    def log_prob(self, states: Any) -> np.ndarray:
        """See `Energy.log_prob`; ValueError for tokens that the model lacks."""
        states = check_contexts(states, self.n_tokens)
        size, n = states.shape
        rows, sites = np.repeat(np.arange(size), n), np.tile(np.arange(n), size)
        found = np.empty(size * n)
        for some in chunks(np.arange(size * n), 256):
            scores = ask(self.model, states[rows[some]], sites[some])
            law = scores.double() if self.raw else log_probabilities(scores, 1.0)
            found[some] = law.cpu().numpy()[np.arange(len(some)), states[rows[some], sites[some]]]
        return found.reshape(size, n).sum(1)


class LeftContext:
    """The next-token law of a causal model as a conditional model: it reads what stands to the left alone.

    `unmasking.unmask` with it in the order ``"left"`` draws from the model's joint law, exactly.

    Parameters
    ----------
    causal : CausalLM
    """

    def __init__(self, causal: Any):
        self.causal, self.n_tokens = causal, causal.n_tokens
        self.device = getattr(causal, "device", torch.device("cpu"))

    @property
    def cache_key(self) -> list:
        """What stands for the model in the key of a cached result."""
        return small_model_key(self, [self.causal])

    def scores(self, states: Any, sites: Any, hidden: Any = None) -> torch.Tensor:
        """See `ConditionalModel.scores`; ValueError for a hidden site to the left of an asked one."""
        check_question(states, sites, self.n_tokens)
        left = np.arange(np.shape(states)[1]) < np.asarray(sites)[:, None]
        if hidden is not None and (np.asarray(hidden) & left).any():
            raise ValueError("a causal model reads every site to the left: hide those to the right alone")
        return self.causal.proposals(states, sites)


class MixtureProposal:
    """A mixture of the conditionals of several models, as a conditional model.

    Parameters
    ----------
    models : sequence of ConditionalModel
        Of as many tokens.
    weights : array_like, float64[K]
        Their shares: positive, of sum one.

    Raises
    ------
    ValueError
        For other shares, or models of different numbers of tokens.
    """

    def __init__(self, models: Sequence[ConditionalModel], weights: ArrayLike):
        self.models, self.weights = list(models), check_numbers(weights, "weights")
        if self.weights.shape != (len(self.models),) or not len(self.models):
            raise ValueError(f"need a share for each of {len(self.models)} models, got shape {self.weights.shape}")
        if not ((self.weights > 0).all() and abs(self.weights.sum() - 1) < 1e-9):
            raise ValueError(f"weights must be positive and sum to one, got {self.weights}")
        if len(numbers := {model.n_tokens for model in self.models}) > 1:
            raise ValueError(f"models must have the same tokens, got numbers {sorted(numbers)}")
        self.n_tokens = self.models[0].n_tokens
        self.device = getattr(self.models[0], "device", torch.device("cpu"))

    @property
    def cache_key(self) -> list:
        """What stands for the model in the key of a cached result."""
        return small_model_key(self, [self.models, self.weights])

    def scores(self, states: Any, sites: Any, hidden: Any = None) -> torch.Tensor:
        """See `ConditionalModel.scores`: the logarithm of the mixture."""
        laws = [log_probabilities(ask(model, states, sites, hidden), 1.0).to(self.device) for model in self.models]
        shares = torch.from_numpy(np.log(self.weights)).to(self.device)
        return torch.logsumexp(torch.stack(laws) + shares[:, None, None], dim=0)


def causal_joint(causal: Any, template: ArrayLike, sites: ArrayLike, tokens: ArrayLike) -> np.ndarray:
    """Log-probabilities float64[V, ..., V] of a template with some sites free to hold some tokens.

    Parameters
    ----------
    causal : CausalLM
    template : array_like, int[m]
    sites, tokens : array_like, int
        See `models.RestrictedModel`.

    Raises
    ------
    ValueError
        As `models.RestrictedModel`, or for more than `models.LISTED` states.
    """
    small = RestrictedModel(causal, template, sites, tokens)
    check_system(small.n_tokens, small.n_sites, LISTED)
    states = all_states(small.n_tokens, small.n_sites)
    return _log_prob(causal, small.fill(states)).reshape((small.n_tokens,) * small.n_sites)


# The chain -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class MetropolisTrace:
    """What `metropolis` leaves.

    Attributes
    ----------
    trace : Trace
        Moves of the chains. Its `model_calls` are conditionals asked of the proposal.
    proposed, accepted : ndarray, int64[B, n]
        By chain and site: steps that proposed another token than the present one, and those of them that took it.
    log_prob : ndarray, float64[n_steps + 1, B]
        Minus the energy before the first step and after each.
    energy_calls : int
        States of which the energy was asked for.
    """

    trace: Trace
    proposed: np.ndarray
    accepted: np.ndarray
    log_prob: np.ndarray
    energy_calls: int

    @property
    def final(self) -> np.ndarray:
        """States int64[B, n] at the end."""
        return self.trace.final


def metropolis(
    joint: Energy,
    states: ArrayLike,
    *,
    proposal: ConditionalModel,
    n_steps: int,
    temperature: float = 1.0,
    frozen: ArrayLike | None = None,
    seed: int = 0,
    chains: ArrayLike | None = None,
) -> MetropolisTrace:
    r"""Run B chains of Metropolis–Hastings on an energy, all of them a step at a time.

    Parameters
    ----------
    joint : Energy
        A `CausalLM`, a `PseudoLikelihood`, or anything with `n_tokens` and `log_prob`.
    states : array_like, int[B, n]
        Initial states, of positive probability.
    proposal : ConditionalModel
        Proposes a token given the others, whatever stands there; `reversals.uniform_model`, a masked model,
        `LeftContext`, a `MixtureProposal`.
    n_steps : int
    temperature : float
        :math:`\tau` of the energy; the proposal is taken as it is.
    frozen : array_like, bool[n] or bool[B, n], optional
        Sites that never move; each chain needs a free one.
    seed : int
        With the chain's number it determines the path: site and token are drawn by the numbers of `run_chains`.
    chains : array_like, int[B], optional
        The chains' numbers; default ``0 .. B - 1``.

    Raises
    ------
    ValueError
        For arguments that do not fit each other, a state of probability zero at the start, scores that `answers.ask`
        refuses, or an energy that is no number for each state, or nan or minus infinite.
    """
    n_steps, seed = check_count(n_steps, "n_steps", most=2**40), check_seed(seed)
    if joint.n_tokens != proposal.n_tokens:
        raise ValueError(f"energy and proposal must have the same tokens, got {joint.n_tokens}, {proposal.n_tokens}")
    states, heat = check_contexts(states, proposal.n_tokens), float(check_temperature(temperature))
    chains, frozen = check_chains(chains, len(states)), check_frozen(frozen, states)
    initial, rows, places = states.copy(), np.arange(len(states)), [np.flatnonzero(~own) for own in frozen]
    logs = [_log_prob(joint, states)]
    if np.isneginf(logs[0]).any():
        raise ValueError(f"state {int(np.isneginf(logs[0]).argmax())} has probability zero: start where it is positive")
    proposed, accepted, moves = np.zeros(states.shape, np.int64), np.zeros(states.shape, np.int64), []
    asked = len(states)
    for step in range(n_steps):
        numbers = uniforms(seed, chains, step, 1)[:, 0]
        sites = np.array([own[int(u * len(own))] for own, u in zip(places, numbers[:, 0], strict=True)])
        old, new, ratio = _propose(proposal, states, sites, numbers[:, 1])
        other = np.flatnonzero(new != old)
        now = logs[-1].copy()
        if len(other):
            target = states[other].copy()
            target[np.arange(len(other)), sites[other]] = new[other]
            there, asked = _log_prob(joint, target), asked + len(other)
            with np.errstate(invalid="ignore", over="ignore"):
                gain = (there - now[other]) / heat + ratio[other]
            taken = np.log1p(-numbers[other, 2]) < gain  # 1 - u is never zero
            proposed[rows[other], sites[other]] += 1
            other = other[taken]
            accepted[rows[other], sites[other]] += 1
            states[other], now[other] = target[taken], there[taken]
            moves += [(step, row, sites[row], old[row], new[row]) for row in other]
        logs.append(now)
    step_of, chain, site, before, after = np.array(moves, dtype=np.int64).reshape(-1, 5).T
    trace = Trace(
        initial, step_of, chain, site, before, after, n_steps, np.full(len(initial), heat), seed, chains, frozen,
        np.full(len(initial), -1), model=getattr(joint, "name", ""), model_calls=n_steps * len(initial),
        model_checksum=model_checksum(proposal), vocabulary_checksum=vocabulary_checksum(proposal),
    )  # fmt: skip
    return MetropolisTrace(trace, proposed, accepted, np.stack(logs), asked)


def _log_prob(joint, states):
    """Minus the energy of states, checked, float64[B]."""
    found = joint.log_prob(states.copy())
    found = found.detach().cpu().numpy() if isinstance(found, torch.Tensor) else np.asarray(found)
    if found.shape != (len(states),) or found.dtype.kind not in "fiu":
        raise ValueError(f"log_prob must give a number for each of {len(states)} states, got {found.shape}")
    if np.isnan(found).any() or np.isposinf(found).any():
        k = int(np.flatnonzero(np.isnan(found) | np.isposinf(found))[0])
        raise ValueError(f"log_prob gives {found[k]} for state {states[k].tolist()}: it must be a number, or -inf")
    return found.astype(float)


def _propose(proposal, states, sites, uniform):
    """Present and proposed tokens int64[B], and the log-ratio of the proposal's probabilities, old over new."""
    rows, new, ratio = np.arange(len(states)), np.empty(len(states), np.int64), np.empty(len(states))
    old = states[rows, sites]
    for some in chunks(rows, 256):
        law = weights(ask(proposal, states[some], sites[some]), np.ones(len(some)))
        drawn = inverse_cdf(law, torch.tensor(uniform[some], device=law.device))[0].cpu().numpy()
        law, new[some] = law.cpu().numpy(), drawn
        with np.errstate(divide="ignore"):
            ratio[some] = np.log(law[np.arange(len(some)), old[some]]) - np.log(law[np.arange(len(some)), drawn])
    return old, new, ratio


# The matrix ----------------------------------------------------------------------------------------------------------


def metropolis_matrix(
    log_joint: ArrayLike,
    proposal: ConditionalModel | None = None,
    temperature: float = 1.0,
    *,
    rule: str = "metropolis",
) -> Sparse:
    """The transition matrix float64[V**n, V**n] of `metropolis` on a listed law, with a random free site each step.

    Parameters
    ----------
    log_joint : array_like, shape (V, ..., V)
        Minus the energy.
    proposal : ConditionalModel, optional
        Uniform by default.
    temperature : float
    rule : {"metropolis", "uncorrected", "printed"}
        The second leaves the proposal's ratio out. The third draws the token in proportion to ``min(1, p(y) / p(x))``
        over all tokens, the present one among them: the printed 'conditional' (Kathuria and Kumar, 2026, §3), which
        has to be normalised to be one. Both have other stationary laws, and are here to be measured.

    Raises
    ------
    ValueError
        For a `log_joint` that is none, not finite or of more than `models.LISTED` states, a proposal of another number
        of tokens, or an unknown rule.
    """
    joint = check_numbers(log_joint, "log_joint")
    if not joint.ndim or len(set(joint.shape)) != 1 or not joint.size or not np.isfinite(joint).all():
        raise ValueError(f"log_joint must be finite numbers of shape (V, ..., V), got shape {joint.shape}")
    n_tokens, n = joint.shape[0], joint.ndim
    check_system(n_tokens, n, LISTED)
    heat, proposal = float(check_temperature(temperature)), proposal or uniform_model(n_tokens)
    if rule not in RULES or proposal.n_tokens != n_tokens:
        raise ValueError(f"rule must be one of {RULES} and the proposal have {n_tokens} tokens, got {rule!r}")
    states, log = all_states(n_tokens, n), joint.ravel() / heat
    codes, total = np.arange(len(states)), sp.csr_matrix((len(states), len(states)))
    for site in range(n):
        power = n_tokens ** (n - 1 - site)
        targets = (codes - states[:, site] * power)[:, None] + power * np.arange(n_tokens)  # (S, V)
        ratio = log[targets] - log[:, None]
        if rule == "printed":
            law = np.exp(np.minimum(ratio, 0.0))
            law = law / law.sum(1, keepdims=True)
        else:
            scores = ask(proposal, states, np.full(len(states), site))
            law = probabilities(scores, np.ones(len(states))).cpu().numpy()
            if rule == "metropolis":
                with np.errstate(divide="ignore", invalid="ignore"):
                    correction = np.log(law[codes, states[:, site]])[:, None] - np.log(law)
                ratio = np.where(law > 0, ratio + correction, -np.inf)
            law = law * np.exp(np.minimum(ratio, 0.0))
            law[codes, states[:, site]] = 0.0
            law[codes, states[:, site]] = 1 - law.sum(1)
        total = total + kernel_of(law, n, site) / n
    return total
