r"""Conditional models: the one question everything else asks.

A conditional model answers :math:`s_i(v; x_{-i})`, the score of every token `v` at site `i` given the tokens of a
state `x` at all other sites. At temperature :math:`\tau` the conditional law is

.. math:: \pi_{i,\tau}(v \mid x_{-i}) = \mathrm{softmax}_v\bigl(s_i(v; x_{-i}) / \tau\bigr).

States are arrays of *token indices* ``0 .. n_tokens - 1``: content only, no [CLS] or [SEP]. A language model maps them
to its own vocabulary and adds its own frame.
"""

import itertools
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from glauber_lib.answers import ask, check_rows
from glauber_lib.checks import check_count, check_indices, check_numbers, check_question, check_state, unmasked
from glauber_lib.checksums import small_model_key, vocabulary_checksum

LISTED = 2**16  # most states that are listed to sum hidden sites out of one conditional
LARGEST = 2**22  # most states of a small system


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

    def scores(self, states: Any, sites: Any, hidden: Any = None) -> torch.Tensor:
        """The model's answer: scores of every token at one site of each state.

        Parameters
        ----------
        states : array_like, int[B, n]
        sites : array_like, int[B]
            The asked sites. The token that a state has at its asked site does not matter.
        hidden : array_like, bool[B, n], optional
            Further sites whose tokens do not matter. The asked site may be marked: it is hidden anyway. A model that
            cannot hide sites may leave this parameter out; `chains`, `couplings` and the estimators never pass it.

        Returns
        -------
        torch.Tensor, float[B, n_tokens]
            Logarithms of the conditional law given the visible sites, up to a constant per row; float32 or float64,
            and -inf for a banned token. Everything here asks through `answers.ask`, which checks them.
        """
        ...


# Hidden sites --------------------------------------------------------------------------------------------------------


def hidden_besides(hidden: Any, states: torch.Tensor, sites: torch.Tensor) -> torch.Tensor:
    """The sites hidden besides the asked one, bool[B, n].

    Parameters
    ----------
    hidden : array_like, bool[B, n]
    states : torch.Tensor, int64[B, n]
    sites : torch.Tensor, int64[B]

    Raises
    ------
    ValueError
        If `hidden` is not boolean or has another shape than `states`.
    RuntimeError
        Of torch, for what is no array, or sites that a state lacks.
    """
    marked = torch.as_tensor(hidden, device=states.device)
    if marked.dtype != torch.bool or marked.shape != states.shape:
        got = f"{str(marked.dtype).removeprefix('torch.')}{list(marked.shape)}"
        raise ValueError(f"hidden must be bool{list(states.shape)}, one entry per site of each state, got {got}")
    return marked.scatter(1, sites.long()[:, None], False)


def marginal_scores(
    log_joint: Callable[[torch.Tensor], torch.Tensor],
    n_tokens: int,
    states: torch.Tensor,
    sites: torch.Tensor,
    hidden: torch.Tensor,
) -> torch.Tensor:
    r"""Scores of a joint law `p` with hidden sites `H` summed out by listing their tokens.

    .. math:: s_i(v) = \log \sum_{x_H} p(x_i = v, x_H, x_{\text{visible}})

    Parameters
    ----------
    log_joint : callable
        Logarithm float64[K] of :math:`p`, up to a constant, of states int64[K, n].
    n_tokens : int
    states : torch.Tensor, int64[B, n]
    sites : torch.Tensor, int64[B]
    hidden : torch.Tensor, bool[B, n]
        From `hidden_besides`.

    Returns
    -------
    torch.Tensor, float64[B, n_tokens]
        Up to the constant of `log_joint`: the conditional given the visible sites, up to a constant per row.

    Raises
    ------
    ValueError
        If a row needs more than `LISTED` states, or `check_rows` refuses what `log_joint` makes of it.
    """
    states, sites, n_hidden = states.long(), sites.long(), hidden.sum(1)
    scores = torch.empty(len(states), n_tokens, dtype=torch.float64, device=states.device)
    for k in n_hidden.unique().tolist():
        n_listed = n_tokens ** (k + 1)
        if n_listed > LISTED:
            raise ValueError(
                f"a conditional with {k} hidden sites needs {n_tokens}^{k + 1} states, at most {LISTED} are listed: "
                "hide fewer sites or pass a smaller vocabulary"
            )
        row = torch.nonzero(n_hidden == k)[:, 0]  # b of them
        places = torch.cat([sites[row, None], torch.nonzero(hidden[row])[:, 1].view(len(row), k)], dim=1)  # (b, k + 1)
        tokens = torch.from_numpy(all_states(n_tokens, k + 1)).to(states.device)  # the asked site varies slowest
        listed = states[row, None].repeat(1, n_listed, 1)  # (b, V^(k+1), n)
        listed.scatter_(2, places[:, None].expand(-1, n_listed, -1), tokens.expand(len(row), -1, -1))
        scores[row] = log_joint(listed.flatten(0, 1)).view(len(row), n_tokens, -1).logsumexp(-1)
    check_rows(scores, getattr(log_joint, "__self__", log_joint), states, sites)
    return scores


# Small models --------------------------------------------------------------------------------------------------------


class TabularModel:
    """A model on a tiny state space whose scores are listed: the ground truth of the tests.

    Parameters
    ----------
    table : array_like, shape (n, V, ..., V)
        ``table[i][x]`` is the score of token ``x[i]`` at site ``i`` given the other tokens of ``x``.

    Raises
    ------
    ValueError
        If the table has another shape.
    """

    memory = 0

    def __init__(self, table: npt.ArrayLike):
        scores = torch.as_tensor(check_numbers(table, "table"), dtype=torch.float64)
        n = len(scores) if scores.ndim else 0
        if n == 0 or scores.ndim != n + 1 or len(set(scores.shape[1:])) != 1 or not scores.numel():
            raise ValueError(f"table must have shape (n, V, ..., V) with n axes of size V, got {tuple(scores.shape)}")
        self.n_sites, self.n_tokens = n, scores.shape[1]
        self.device = torch.device("cpu")
        self._of_joint = False
        # one row of V scores per site and state of the other sites; its number is a sum over the other sites
        self._rows = torch.stack([scores[i].movedim(i, -1).reshape(-1, self.n_tokens) for i in range(n)]).flatten(0, 1)
        powers = self.n_tokens ** torch.arange(n - 2, -1, -1)
        self._powers = torch.stack([torch.cat([powers[:i], torch.zeros(1).long(), powers[i:]]) for i in range(n)])

    @property
    def cache_key(self) -> list:
        """What stands for the model in the key of a cached result."""
        return small_model_key(self, [self._rows.numpy(), self._of_joint])

    def to_arrays(self) -> dict[str, np.ndarray]:
        """The arrays that `from_arrays` makes the model from again: ``table``, and ``of_joint`` of no dimension."""
        rows, shape = self._rows.numpy(), (self.n_tokens,) * self.n_sites
        by_site = rows.reshape(self.n_sites, *shape)  # the last axis of each site's part is the site's own token
        table = np.stack([np.moveaxis(part, -1, i) for i, part in enumerate(by_site)])
        return {"table": table, "of_joint": np.array(self._of_joint)}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> "TabularModel":
        """The model whose `to_arrays` gave `arrays`."""
        model = cls(arrays["table"])
        model._of_joint = bool(arrays["of_joint"])
        return model

    @classmethod
    def from_joint(cls, log_joint: npt.ArrayLike) -> "TabularModel":
        """The compatible model of a joint law, given by its logarithm up to a constant, shape (V, ..., V).

        Every site scores by `log_joint`. Only a table made so can hide sites.
        """
        log_joint = unmasked(log_joint, "log_joint")
        if not log_joint.ndim:
            raise ValueError(f"log_joint must have an axis for each site, got the number {log_joint}")
        model = cls(np.stack([log_joint] * log_joint.ndim))
        model._of_joint = True
        return model

    def scores(self, states: Any, sites: Any, hidden: Any = None) -> torch.Tensor:
        """See `ConditionalModel.scores`.

        Of a joint the scores are its unnormalised logarithm, summed over the hidden sites.

        Raises
        ------
        ValueError
            If a site is hidden and the table was not made from a joint, or for tokens or sites that the model lacks
            (`checks.check_question`).
        """
        check_question(states, sites, self.n_tokens, self.n_sites)
        states, sites = torch.as_tensor(states).long(), torch.as_tensor(sites).long()
        if hidden is not None and (besides := hidden_besides(hidden, states, sites)).any():
            if not self._of_joint:
                raise ValueError(
                    "a table of conditionals does not say what the conditional given fewer sites is: its conditionals "
                    "need not fit any joint law; to hide sites, make the model with TabularModel.from_joint"
                )
            return marginal_scores(self._log_joint, self.n_tokens, states, sites, besides)
        row = (states * self._powers[sites]).sum(1) + sites * (len(self._rows) // self.n_sites)
        return self._rows[row]

    def _log_joint(self, states):
        """What every site of a joint's table scores by: here the first."""
        return self.scores(states, torch.zeros(len(states), dtype=torch.int64)).gather(1, states[:, :1])[:, 0]


class IsingModel:
    r"""Ising spins: token 0 is spin -1, token 1 is spin +1, and the joint is
    :math:`\propto \exp(\tfrac12 \sum_{ij} J_{ij} s_i s_j + \sum_i h_i s_i)`.

    Parameters
    ----------
    couplings : array_like, shape (n, n)
        Symmetric :math:`J` with a zero diagonal.
    field : array_like, shape (n,), optional
        :math:`h`, zero by default.

    Raises
    ------
    ValueError
        If the couplings are not symmetric or have a diagonal, or the field has not one value for each site.
    """

    n_tokens, memory = 2, 0

    def __init__(self, couplings: npt.ArrayLike, field: npt.ArrayLike | None = None):
        self.couplings = torch.tensor(check_numbers(couplings, "couplings"), dtype=torch.float64)  # a copy
        n = len(self.couplings) if self.couplings.ndim else 0
        if n == 0 or self.couplings.shape != (n, n) or not torch.equal(self.couplings, self.couplings.T):
            raise ValueError(f"couplings must be a symmetric (n, n) matrix, got shape {tuple(self.couplings.shape)}")
        if self.couplings.diagonal().any():
            raise ValueError("couplings must have a zero diagonal")
        self.field = (
            torch.zeros(n, dtype=torch.float64) if field is None else torch.tensor(check_numbers(field, "field"))
        )
        if self.field.shape != (n,):
            raise ValueError(f"field must have shape ({n},), got {tuple(self.field.shape)}")
        self.n_sites = n
        self.device = torch.device("cpu")

    @property
    def cache_key(self) -> list:
        """What stands for the model in the key of a cached result."""
        return small_model_key(self, [self.couplings.numpy(), self.field.numpy()])

    def scores(self, states: Any, sites: Any, hidden: Any = None) -> torch.Tensor:
        """See `ConditionalModel.scores`.

        The two scores are minus and plus the local field. In a row with hidden sites they are the unnormalised log
        joint, summed over these. ValueError for tokens or sites that the model lacks (`checks.check_question`).
        """
        check_question(states, sites, self.n_tokens, self.n_sites)
        states, sites = torch.as_tensor(states).long(), torch.as_tensor(sites).long()
        local = (self.couplings[sites] * (2.0 * states - 1)).sum(1) + self.field[sites]
        scores = torch.stack([-local, local], dim=1)
        if hidden is None:
            return scores
        besides = hidden_besides(hidden, states, sites)
        summed = marginal_scores(self._log_joint, self.n_tokens, states, sites, besides)
        return torch.where(besides.any(1, keepdim=True), summed, scores)

    def _log_joint(self, states):
        spins = 2 * states.double() - 1  # (K, n)
        return (spins * (spins @ self.couplings / 2 + self.field)).sum(1)


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

    Raises
    ------
    ValueError
        If a site or a token is named twice or is none of the template or of `model`, or none is named.
    """

    def __init__(self, model: Any, template: npt.ArrayLike, sites: npt.ArrayLike, tokens: npt.ArrayLike):
        self.model, self.template = model, check_state(template, model.n_tokens)
        self.sites = check_indices(sites, len(self.template), "sites")
        self.tokens = check_indices(tokens, model.n_tokens, "tokens")
        if self.sites.ndim != 1 or self.tokens.ndim != 1 or not self.sites.size or not self.tokens.size:
            raise ValueError(f"need a list of sites and one of tokens, got {sites!r} and {tokens!r}")
        if len(set(self.sites.tolist())) < len(self.sites) or len(set(self.tokens.tolist())) < len(self.tokens):
            raise ValueError(f"sites and tokens must be distinct, got {self.sites.tolist()}, {self.tokens.tolist()}")
        self.n_sites, self.n_tokens, self.device = len(self.sites), len(self.tokens), model.device

    @property
    def cache_key(self) -> list:
        """What cached results depend on."""
        return small_model_key(self, [self.model, self.template, self.sites, self.tokens])

    @property
    def vocabulary_key(self) -> list | None:
        """What the tokens stand for: words of the inner model, by sites of a template; None where those are unknown."""
        if not (words := vocabulary_checksum(self.model)):
            return None
        return [words, self.template.tolist(), self.sites.tolist(), self.tokens.tolist()]

    def fill(self, states: npt.ArrayLike) -> np.ndarray:
        """States int[B, n] of the small system as states int[B, m] of the language model."""
        states = check_indices(states, self.n_tokens, "tokens of states")
        if states.ndim != 2 or states.shape[1] != self.n_sites:
            raise ValueError(f"states must have shape (B, {self.n_sites}), got {states.shape}")
        full = np.tile(self.template, (len(states), 1))
        full[:, self.sites] = self.tokens[states]
        return full

    def scores(self, states: Any, sites: Any, hidden: Any = None) -> torch.Tensor:
        """See `ConditionalModel.scores`.

        The sites are hidden from `model`, to which a hidden site is not restricted to `tokens`. ValueError for tokens
        or sites that the small system lacks (`checks.check_question`).
        """
        check_question(states, sites, self.n_tokens, self.n_sites)
        full, places = self.fill(states), self.sites[np.asarray(sites)]
        full_hidden = None
        if hidden is not None:
            besides = hidden_besides(hidden, torch.as_tensor(states), torch.as_tensor(sites))
            full_hidden = np.zeros(full.shape, bool)
            full_hidden[:, self.sites] = besides.numpy()
        return ask(self.model, full, places, full_hidden)[:, torch.as_tensor(self.tokens)]


def check_system(n_tokens: int, n_sites: int, most: int = LARGEST) -> int:
    """The number of sites of a small system; ValueError if that is no count, or if it has more than `most` states."""
    n_tokens, n_sites = check_count(n_tokens, "n_tokens", 1), check_count(n_sites, "n_sites", 1, LARGEST)
    if n_sites * np.log(n_tokens) > np.log(most) + 1e-9:
        raise ValueError(f"{n_tokens}^{n_sites} is no small system: at most {most} states are accepted")
    return n_sites


def all_states(n_tokens: int, n_sites: int) -> np.ndarray:
    """Every state of a small system, int64[V**n, n], in the order of their base-V codes; ValueError above `LARGEST`."""
    n_sites, n_tokens = check_system(n_tokens, n_sites), int(n_tokens)
    return np.array(list(itertools.product(range(n_tokens), repeat=n_sites)), dtype=np.int64)
