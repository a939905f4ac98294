r"""Conditional models: the one question everything else asks.

A conditional model answers :math:`s_i(v; x_{-i})`, the score of every token `v` at site `i` given the
tokens of a state `x` at all other sites. At temperature :math:`\tau` the conditional law is

.. math:: \pi_{i,\tau}(v \mid x_{-i}) = \mathrm{softmax}_v\bigl(s_i(v; x_{-i}) / \tau\bigr).

States are arrays of *token indices* ``0 .. n_tokens - 1``: content only, no [CLS] or [SEP]. A language model
maps them to its own vocabulary and adds its own frame.
"""

import itertools
from typing import Protocol

import numpy as np
import torch


class ConditionalModel(Protocol):
    """What the chain and every estimator need of a model.

    Attributes
    ----------
    n_tokens : int
        Number of tokens :math:`|V|` a site may hold.
    device : torch.device
        Where `scores` computes.
    memory : int, optional
        Bytes of scores worth remembering (`engine.Conditionals`); 0 where asking again costs nothing.
    """

    n_tokens: int
    device: torch.device

    def scores(self, states, sites):
        """Scores float32[B, n_tokens] at ``sites`` int[B] of ``states`` int[B, n], that site masked."""


class TabularModel:
    """A model on a tiny state space whose scores are listed: the ground truth of the tests.

    Parameters
    ----------
    table : array_like, shape (n, V, ..., V)
        ``table[i][x]`` is the score of token ``x[i]`` at site ``i`` given the rest of ``x``.
    """

    memory = 0

    def __init__(self, table):
        table = torch.as_tensor(np.asarray(table), dtype=torch.float64)
        n = table.shape[0]
        if table.ndim != n + 1 or len(set(table.shape[1:])) != 1:
            raise ValueError(f"table must have shape (n, V, ..., V) with n axes of size V, got {tuple(table.shape)}")
        self.n_sites, self.n_tokens = n, table.shape[1]
        self.device = torch.device("cpu")
        # one row of V scores per site and state of the other sites; its number is a sum over the other sites
        self._rows = torch.stack([table[i].movedim(i, -1).reshape(-1, self.n_tokens) for i in range(n)]).flatten(0, 1)
        powers = self.n_tokens ** torch.arange(n - 2, -1, -1)
        self._powers = torch.stack([torch.cat([powers[:i], torch.zeros(1).long(), powers[i:]]) for i in range(n)])

    @property
    def cache_key(self):
        """What stands for the model in the key of a cached result."""
        return ["TabularModel", self._rows.numpy()]

    @classmethod
    def from_joint(cls, log_joint):
        """The compatible model of a joint law: every site scores by ``log_joint`` (shape (V, ..., V))."""
        log_joint = np.asarray(log_joint)
        return cls(np.stack([log_joint] * log_joint.ndim))

    def scores(self, states, sites):
        """See `ConditionalModel.scores`."""
        states, sites = torch.as_tensor(states), torch.as_tensor(sites)
        row = (states * self._powers[sites]).sum(1) + sites * (len(self._rows) // self.n_sites)
        return self._rows[row]


class IsingModel:
    r"""Ising spins: token 0 is spin -1, token 1 is spin +1, and the joint is
    :math:`\propto \exp(\tfrac12 \sum_{ij} J_{ij} s_i s_j + \sum_i h_i s_i)`.

    Parameters
    ----------
    couplings : array_like, shape (n, n)
        Symmetric :math:`J` with a zero diagonal.
    field : array_like, shape (n,), optional
        :math:`h`, zero by default.
    """

    n_tokens, memory = 2, 0

    def __init__(self, couplings, field=None):
        self.couplings = torch.as_tensor(np.asarray(couplings), dtype=torch.float64)
        n = self.couplings.shape[0]
        if self.couplings.shape != (n, n) or not torch.equal(self.couplings, self.couplings.T):
            raise ValueError(f"couplings must be a symmetric (n, n) matrix, got shape {tuple(self.couplings.shape)}")
        if self.couplings.diagonal().any():
            raise ValueError("couplings must have a zero diagonal")
        self.field = torch.zeros(n, dtype=torch.float64) if field is None else torch.as_tensor(np.asarray(field, float))
        self.n_sites = n
        self.device = torch.device("cpu")

    def scores(self, states, sites):
        """See `ConditionalModel.scores`."""
        spins = 2.0 * torch.as_tensor(states) - 1  # (B, n)
        sites = torch.as_tensor(sites)
        local = (self.couplings[sites] * spins).sum(1) + self.field[sites]
        return torch.stack([-local, local], dim=1)


class RestrictedModel:
    """A language model on a few sites of a template with a few tokens: a system small enough to list (`exact`).

    Parameters
    ----------
    model : MaskedLM
    template : array_like, int[m]
        A state of `model`; what stands at the other sites never changes.
    sites : array_like, int[n]
        The sites that are free.
    tokens : array_like, int[V]
        Tokens they may hold; the conditionals are normalised over these.
    """

    def __init__(self, model, template, sites, tokens):
        self.model, self.template = model, np.asarray(template)
        self.sites, self.tokens = np.asarray(sites), np.asarray(tokens)
        if len(set(self.sites.tolist())) < len(self.sites) or len(set(self.tokens.tolist())) < len(self.tokens):
            raise ValueError(f"sites and tokens must be distinct, got {self.sites.tolist()}, {self.tokens.tolist()}")
        self.n_sites, self.n_tokens, self.device = len(self.sites), len(self.tokens), model.device

    @property
    def cache_key(self):
        """What cached results depend on."""
        return ["RestrictedModel", self.model.cache_key, self.template, self.sites, self.tokens]

    def fill(self, states):
        """States int[B, n] of the small system as states int[B, m] of the language model."""
        full = np.tile(self.template, (len(states), 1))
        full[:, self.sites] = self.tokens[np.asarray(states)]
        return full

    def scores(self, states, sites):
        """See `ConditionalModel.scores`."""
        return self.model.scores(self.fill(states), self.sites[np.asarray(sites)])[:, torch.as_tensor(self.tokens)]


def all_states(n_tokens, n_sites):
    """Every state of a small system, int64[V**n, n], in the order of their base-V codes."""
    return np.array(list(itertools.product(range(n_tokens), repeat=n_sites)), dtype=np.int64)
