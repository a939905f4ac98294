r"""Reversals of a noise process: conditional models that are told the step, and what learns them on small systems.

A heat-bath step erases the token of its site, so that its reversal is a conditional too: of the token before the step
given the others, :math:`p_{t-1}(y_k \mid x_{-k})`.
"""

from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike

from glauber_lib.answers import ask, refuse_unable_to_hide
from glauber_lib.checks import check_contexts, check_count, check_numbers
from glauber_lib.checksums import small_model_key
from glauber_lib.draws import weights
from glauber_lib.matrices import check_laws
from glauber_lib.models import LARGEST, LISTED, ConditionalModel, all_states, check_system
from glauber_lib.schedules import Paths, Schedule

# Noises that are no language model -----------------------------------------------------------------------------------


class UnigramModel:
    """A conditional model that looks at nothing: every site has the same law.

    Parameters
    ----------
    log_frequencies : array_like, float64[V]
        Up to a constant; minus infinity for a token that is never drawn. With one token left it is absorbing noise.

    Raises
    ------
    ValueError
        For anything else, or where no token is left.
    """

    memory = 0

    def __init__(self, log_frequencies: ArrayLike):
        self.log_frequencies = check_numbers(log_frequencies, "log_frequencies")
        if self.log_frequencies.ndim != 1 or not len(self.log_frequencies):
            raise ValueError(f"log_frequencies must have shape (V,), got {self.log_frequencies.shape}")
        if not np.isfinite(self.log_frequencies.max()):
            raise ValueError("log_frequencies must be finite or -inf, and one at least finite")
        self.n_tokens, self.device = len(self.log_frequencies), torch.device("cpu")

    @property
    def cache_key(self) -> list:
        """What stands for the model in the key of a cached result."""
        return small_model_key(self, [self.log_frequencies])

    def scores(self, states: Any, sites: Any, hidden: Any = None) -> torch.Tensor:
        """See `ConditionalModel.scores`; nothing is read."""
        return torch.from_numpy(self.log_frequencies).expand(len(states), -1).clone()


def uniform_model(n_tokens: int) -> UnigramModel:
    """Uniform noise; ValueError for no token."""
    return UnigramModel(np.zeros(check_count(n_tokens, "n_tokens", 1, LARGEST)))


class MaskTokenModel:
    """A model with one more token, the last, which hides its site and is never drawn: what reverses absorbing noise.

    Parameters
    ----------
    model : ConditionalModel
        One that can hide sites.

    Raises
    ------
    ValueError
        If it cannot.
    """

    memory = 0

    def __init__(self, model: ConditionalModel):
        refuse_unable_to_hide(model)
        self.model, self.n_tokens, self.device = model, model.n_tokens + 1, torch.device("cpu")

    @property
    def cache_key(self) -> list:
        """What stands for the model in the key of a cached result."""
        return small_model_key(self, [self.model])

    def scores(self, states: Any, sites: Any, hidden: Any = None) -> torch.Tensor:
        """See `ConditionalModel.scores`."""
        states = np.asarray(states)
        masked = states == self.n_tokens - 1
        unread = masked if hidden is None else masked | np.asarray(hidden)
        found = ask(self.model, np.where(masked, 0, states), np.asarray(sites), unread).cpu()
        return torch.cat([found, torch.full((len(states), 1), -torch.inf, dtype=found.dtype)], dim=1)


# Timed models --------------------------------------------------------------------------------------------------------


class TimedModel(Protocol):
    """What a reversal needs of a model: a conditional model that is told the step.

    Attributes
    ----------
    n_tokens : int
    device : torch.device
    """

    n_tokens: int
    device: torch.device

    def scores(self, states: Any, sites: Any, steps: Any, hidden: Any = None) -> torch.Tensor:
        """Scores float[B, V] of what each site held before the step of its row, int[B]; else `ConditionalModel`."""
        ...


class FrozenInTime:
    """A conditional model as a reversal that does not look at the time: plain Glauber dynamics, backwards.

    Parameters
    ----------
    model : ConditionalModel
    """

    def __init__(self, model: ConditionalModel):
        self.model, self.n_tokens = model, model.n_tokens
        self.device = getattr(model, "device", torch.device("cpu"))

    def scores(self, states: Any, sites: Any, steps: Any, hidden: Any = None) -> torch.Tensor:
        """See `TimedModel.scores`."""
        return ask(self.model, states, sites, hidden)


class TimedTable:
    """A reversal of a small system whose laws are listed.

    Parameters
    ----------
    tables : array_like, float64[T, S, V]
        For each step the law of its site given the other tokens of each state, by its base-V code.
    schedule : Schedule

    Raises
    ------
    ValueError
        For another shape, or rows that are no probabilities.
    """

    def __init__(self, tables: ArrayLike, schedule: Schedule):
        self.tables, self.schedule = check_laws(tables, "tables", 3), schedule
        self.n_tokens, self.device = self.tables.shape[2], torch.device("cpu")
        size = self.n_tokens ** check_system(self.n_tokens, schedule.n_sites)
        if self.tables.shape != (schedule.steps, size, self.n_tokens):
            wanted = (schedule.steps, size, self.n_tokens)
            raise ValueError(f"tables must have shape {wanted} for this schedule, got {self.tables.shape}")

    def scores(self, states: Any, sites: Any, steps: Any, hidden: Any = None) -> torch.Tensor:
        """See `TimedModel.scores`; what is hidden was settled when the tables were made.

        ValueError for a site that is not the one of its step.
        """
        states, steps = np.asarray(states), np.asarray(steps)
        if (self.schedule.orders.ravel()[steps - 1] != np.asarray(sites)).any():
            raise ValueError("a table holds the law of the site of each step alone, got another site")
        codes = states @ self.n_tokens ** np.arange(self.schedule.n_sites - 1, -1, -1)
        with np.errstate(divide="ignore"):
            return torch.from_numpy(np.log(self.tables[steps - 1, codes]))


class CountModel(TimedTable):
    r"""A reversal learned by counting: Dirichlet posterior means of the tokens before each step.

    .. math:: P(v \mid x_{-k}, t) = \frac{c_t(x_{-k}, v) + \alpha\, q_t(v \mid x_{-k})}{c_t(x_{-k}) + \alpha}

    Parameters
    ----------
    paths : Paths
        Of `noise`, from the data on, through all steps.
    schedule : Schedule
    prior : TimedModel
        The start of the learner q: `FrozenInTime` of a model.
    alpha : float
        Strength of the start in samples, positive; infinite for the start itself.

    Raises
    ------
    ValueError
        For another strength, or paths of another schedule.
    """

    def __init__(self, paths: Paths, schedule: Schedule, prior: TimedModel, alpha: float):
        alpha = check_strength(alpha)
        counts, start = path_counts(paths, schedule, prior.n_tokens), timed_tables(prior, schedule)
        super().__init__(posterior(counts, start, alpha), schedule)


def check_strength(alpha: float) -> float:
    """A strength in samples: a positive number, or infinity; ValueError for others."""
    number = check_numbers(alpha, "alpha")
    if number.ndim or not number > 0:
        raise ValueError(f"alpha must be a positive number, got {alpha!r}")
    return float(number)


def posterior(counts: np.ndarray, start: np.ndarray, alpha: float) -> np.ndarray:
    """Posterior means of laws [..., V], given counts and a start of so many samples; see `CountModel`."""
    counts, start, alpha = check_numbers(counts, "counts"), check_numbers(start, "start"), check_strength(alpha)
    if counts.shape != start.shape or not counts.ndim or not (np.isfinite(counts) & np.isfinite(start)).all():
        raise ValueError(f"counts and start must be finite, of one shape, got {counts.shape} and {start.shape}")
    if (counts < 0).any() or (start < 0).any():
        raise ValueError("counts and start must not be negative")
    if np.isinf(alpha):
        return start.copy()
    return (counts + alpha * start) / (counts.sum(-1, keepdims=True) + alpha)


def timed_tables(timed: TimedModel, schedule: Schedule) -> np.ndarray:
    """The laws float64[T, V**n, V] by which a timed model reverses each step, for every state of a small system.

    ValueError for a system of more than `models.LISTED` states.
    """
    check_system(timed.n_tokens, schedule.n_sites, LISTED)
    states, out = all_states(timed.n_tokens, schedule.n_sites), []
    for t in range(1, schedule.steps + 1):
        found = weights(ask_timed(timed, states, schedule, t), np.ones(len(states)))
        out.append((found / found.sum(1, keepdim=True)).cpu().numpy())
    return np.stack(out)


def path_counts(paths: Paths, schedule: Schedule, n_tokens: int) -> np.ndarray:
    """How often a site held each token before its step, given the others after it, float64[T, V**n, V].

    A state stands for all that differ from it at the site of the step: they have the same row. ValueError for paths of
    another schedule, or a system of more than `models.LISTED` states.
    """
    n, orders = schedule.n_sites, schedule.orders.ravel()
    size = n_tokens ** check_system(n_tokens, n, LISTED)
    if paths.initial.shape[1] != n or not np.array_equal(paths.sites, orders):
        raise ValueError("the paths must be of this schedule, from its first step to its last")
    check_contexts(paths.initial, n_tokens)
    powers = n_tokens ** np.arange(n - 1, -1, -1)
    listed, out = all_states(n_tokens, n) @ powers, []
    state, own = paths.initial.copy(), all_states(n_tokens, n)
    for site, new in zip(orders, paths.tokens, strict=True):
        codes = state @ powers - state[:, site] * powers[site]
        found = np.bincount(codes * n_tokens + state[:, site], minlength=size * n_tokens).reshape(size, n_tokens)
        out.append(found[listed - own[:, site] * powers[site]])
        state[:, site] = new
    return np.stack(out).astype(float)


def ask_timed(timed: TimedModel, states: np.ndarray, schedule: Schedule, t: int) -> torch.Tensor:
    """Checked scores float[B, V] of the site of step t, asked with what its window hides unread.

    ValueError and TypeError as from `answers.ask`, or for a step that the schedule lacks.
    """
    model, asked = timed_question(timed, states, schedule, t)
    return ask(model, *asked)


def timed_question(
    timed: TimedModel, states: ArrayLike, schedule: Schedule, t: int
) -> tuple[ConditionalModel, tuple[np.ndarray, ...]]:
    """What the reversal of step t asks of states: a conditional model, and what `ask` takes besides.

    ValueError for states of other sites or tokens, or for a step that the schedule lacks.
    """
    states, site, hidden = check_contexts(states, timed.n_tokens), schedule.site(t), schedule.hidden(t)
    if states.shape[1] != schedule.n_sites:
        raise ValueError(f"states have {states.shape[1]} sites, the schedule is for {schedule.n_sites}")
    asked = states, np.full(len(states), site)
    return _AtStep(timed, t), (*asked, np.tile(hidden, (len(states), 1))) if hidden.sum() > 1 else asked


class _AtStep:
    """A timed model at one step, as `ask` knows models."""

    def __init__(self, timed, t):
        self.timed, self.t, self.n_tokens, self.name = timed, t, timed.n_tokens, getattr(timed, "name", "")
        self.device = getattr(timed, "device", torch.device("cpu"))

    def scores(self, states, sites, hidden=None):
        return self.timed.scores(states, sites, np.full(len(states), self.t), *(() if hidden is None else (hidden,)))
