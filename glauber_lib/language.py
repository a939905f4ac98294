"""Masked and causal language models of transformers as conditional models.

States hold content tokens only: a model adds its own frame ([CLS] … [SEP], <s> … </s>) and maps token indices to its
vocabulary.
"""

import copy
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

from glauber_lib import checksums
from glauber_lib.answers import check_rows
from glauber_lib.checks import ABSENT, check_count, check_question, check_state, check_states, check_text
from glauber_lib.draws import check_precision
from glauber_lib.embedded import EMBEDDED, load_embedded, package_tokenizer
from glauber_lib.loading import load_checkpoint
from glauber_lib.models import hidden_besides, marginal_scores
from glauber_lib.modules import describe_modules
from glauber_lib.networks import HEADS, check_evaluating, check_masked, check_unhooked, hidden_at, n_positions
from glauber_lib.vocabularies import allowed_ids, check_special, frame_of, ordinary_words, refuse_one_text, words_by_id


class LanguageModel:
    """What masked and causal language models share: vocabulary, frame, text and batches. See `MaskedLM`."""

    max_sites: float  # most content tokens that the network has positions for
    compiled = False  # whether `torch.compile` made the forward pass
    _special: Any  # dict of str to int: ids of the special tokens that the model puts into a sequence, as it is now

    def __init__(
        self,
        network: Any,
        tokenizer: Any,
        *,
        name: str = "",
        vocabulary: npt.ArrayLike | Callable[[str], Any] | None = None,
        batch_tokens: int = 8_192,
        device: str | torch.device | None = None,
    ):
        checksums.check_weights(network, f"model {name!r}")
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.network: Any = network.eval().to(self.device)
        self._checksum = checksums.WeightsDigest()
        self.tokenizer = tokenizer
        self.name = check_text(name)
        self.batch_tokens = check_count(batch_tokens, "batch_tokens", least=1)
        n_rows = network.config.vocab_size
        words = ordinary_words(tokenizer, n_rows, self._called)
        self.vocabulary = allowed_ids(vocabulary, words, tokenizer, n_rows)
        self._ids = torch.from_numpy(self.vocabulary).to(self.device)
        self.n_tokens = len(self.vocabulary)
        self._index = np.full(max(*words_by_id(tokenizer), n_rows - 1) + 1, -1)
        self._index[self.vocabulary] = np.arange(self.n_tokens)

    def tokens(self, text: str, *, n: int | None = None) -> np.ndarray:
        """Token indices int64[n] of `text`: of its first `n` tokens, or of all.

        Raises
        ------
        ValueError
            If the text has fewer than `n` tokens, or a token that is not in the vocabulary, or `n` is below one.
        """
        n = None if n is None else check_count(n, "n", least=1)
        ids = self.tokenizer(check_text(text), add_special_tokens=False, verbose=False)["input_ids"][:n]
        if not ids or (n is not None and len(ids) < n):
            raise ValueError(f"text has {len(ids)} tokens, at least {n or 1} are needed: {text!r}")
        indices = self._index[ids]
        if (indices < 0).any():
            bad = self.tokenizer.convert_ids_to_tokens([i for i, k in zip(ids, indices, strict=True) if k < 0])
            raise ValueError(f"text has tokens outside the model's vocabulary {bad}: {text!r}")
        return indices

    def reads(self, text: str, *, n: int = 1) -> bool:
        """Whether `text` has at least `n` tokens, all of them in the vocabulary; ValueError as from `tokens`."""
        ids = self.tokenizer(check_text(text), add_special_tokens=False, verbose=False)["input_ids"]
        return len(ids) >= check_count(n, "n") and bool((self._index[ids] >= 0).all())

    def states(self, texts: Iterable[str], *, n: int) -> np.ndarray:
        """States int64[B, n]: the first `n` tokens of each of B texts.

        ValueError as for `tokens`, if B is 0, or for one text in the place of a list.
        """
        refuse_one_text(texts)
        if not (rows := [self.tokens(text, n=n) for text in texts]):
            raise ValueError("need a text at least, got none")
        return np.stack(rows)

    def words(self, state: npt.ArrayLike) -> list[str]:
        """The tokens of one state as strings, one per site; what fills up a short state is left out."""
        return self.tokenizer.convert_ids_to_tokens(self._ids_of([check_state(state, fills=True)])[0])

    def texts(self, states: npt.ArrayLike) -> list[str]:
        """States int[B, n] as a list of B strings; what fills up short states is left out."""
        return self.tokenizer.batch_decode(self._ids_of(states))

    def _ids_of(self, states):
        """Vocabulary ids of each of B states as lists, without what fills it up."""
        if len(states) == 0:
            return []
        rows = check_states(states, self.n_tokens, fills=True)
        ids = self.vocabulary[rows].tolist()
        lengths = (rows != ABSENT).sum(1)
        return ids if (lengths == rows.shape[1]).all() else [own[:n] for own, n in zip(ids, lengths, strict=True)]

    def round_trips(self, states: np.ndarray) -> np.ndarray:
        """Whether the text of each of B states is tokenised to the state again, bool[B].

        Not every state is the state of a text: two pieces may merge; a WordPiece ## or a piece without its leading
        space cannot come first. The chain may visit these states, but their text is the text of another state. What
        fills up short states is left out.
        """
        if not (ids := self._ids_of(states)):
            return np.zeros(0, bool)
        again = self.tokenizer(self.tokenizer.batch_decode(ids), add_special_tokens=False, verbose=False)["input_ids"]
        return np.array([one == own for one, own in zip(again, ids, strict=True)], bool)

    @property
    def checksum(self) -> str:
        """Hexadecimal digest of all weights; results are cached by it."""
        return self._checksum(self.network)

    @property
    def computation(self) -> dict[str, Any]:
        """What computes besides the weights: type of numbers, attention, device, whether compiled."""
        return {**checksums.describe_computation(self.network), "compiled": self.compiled}

    @property
    def cache_key(self) -> list:
        """What results depend on: kind, weights, vocabulary, special tokens, what computes; hooks last one process."""
        settings, tokenizer = self.network.config.to_json_string(), checksums.describe_tokenizer(self.tokenizer)
        words = [tokenizer, self.vocabulary, self._special]
        computed = [self.computation, checksums.matmul_precision(), describe_modules(self.network)]
        return [checksums.class_key(self), self.checksum, settings, *words, *computed]

    def double(self) -> Self:
        """A copy of the model in float64, with the frame that its tokenizer gives, to measure rounding with."""
        return type(self)(
            copy.deepcopy(self.network).double(), self.tokenizer, name=self.name, vocabulary=self.vocabulary,
            batch_tokens=self.batch_tokens, device=self.device,
        )  # fmt: skip

    @property
    def _called(self):
        return self.name or type(self.network).__name__

    def __repr__(self):
        return f"{type(self).__name__}({self.name!r}, n_tokens={self.n_tokens})"

    def _long(self, indices):
        """Indices as int64 on the model's device: torch takes those of 8 bits for truth values."""
        return torch.as_tensor(indices, device=self.device).long()

    def _check_size(self, states):
        if not len(states):
            raise ValueError("need a state at least, got none")
        if (n := states.shape[1]) > self.max_sites:
            raise ValueError(f"states have {n} tokens, {self.name!r} has positions for at most {self.max_sites}")
        return states

    def _in_batches(self, compute, cost, *arrays):
        """The results of `compute` over batches of rows of `arrays`; a row costs `cost` of the `batch_tokens` tokens.

        Where memory runs out, `batch_tokens` is halved for good and the batch is tried again, unless it is one row.
        """
        done, batches, size = 0, [], len(arrays[0])
        while done < size:
            rows = min(size - done, max(1, self.batch_tokens // cost))
            try:
                batches.append(compute(*(x[done : done + rows] for x in arrays)))
                done += rows
                continue
            except torch.OutOfMemoryError:
                if rows <= 1:
                    raise
            # not in the handler: the exception's traceback keeps the tensors of the failed pass alive
            self.batch_tokens = rows // 2 * cost
            torch.cuda.empty_cache()  # does nothing where CUDA is not in use
        return torch.cat(batches) if len(batches) > 1 else batches[0]


class MaskedLM(LanguageModel):
    """A masked language model as a conditional model.

    Parameters
    ----------
    network : transformers.PreTrainedModel
        With a masked-LM head, of an architecture listed in `HEADS`.
    tokenizer : transformers.PreTrainedTokenizerBase
        With a mask token.
    name : str
        Shown in tables.
    vocabulary : array_like of int or of str, or callable, optional
        What a site may hold: ids, words as `words` writes them, or a condition on such a word. Default: all but special
        tokens, placeholders ([unused…]) and ids that the tokenizer does not know (`vocabularies.allowed_ids`).
    batch_tokens : int
        Tokens of one forward pass: bounds the memory and changes no result but for rounding. Lowered where memory
        runs out.
    device : str or torch.device, optional
        A GPU where torch sees one.
    compiled : bool
        Compile the forward pass with `torch.compile`: 10-20% faster on the CPU, after half a minute (needs a C++
        compiler).

    Raises
    ------
    ValueError
        If the architecture is not in `HEADS`, the network is a decoder, weights are in half precision, the tokenizer
        has no mask token, puts no fixed frame around a text, or is not the network's (`vocabularies.ordinary_words`),
        or `vocabulary` names an id twice or one without a row.
    """

    def __init__(self, network: Any, tokenizer: Any, *, compiled: bool = False, **options: Any):
        if tokenizer.mask_token_id is None:
            raise ValueError(f"{type(tokenizer).__name__} has no mask token: not the tokenizer of a masked LM")
        check_masked(network)
        super().__init__(network, tokenizer, **options)
        mask, meant = tokenizer.mask_token_id, getattr(network.config, "mask_token_id", None)
        if meant not in (None, mask):  # ESM's network itself looks for masks
            raise ValueError(f"the tokenizer of {self._called!r} masks with id {mask}, its network knows {meant}")
        before, after = frame_of(tokenizer, self.vocabulary.tolist(), self._called)
        self._mask = mask
        self.before, self.after = (torch.tensor(x, dtype=torch.int64, device=self.device) for x in (before, after))
        check_special(tokenizer, network.config.vocab_size, self._called, self._special)
        self.frame_size = len(before) + len(after)
        self.max_sites = n_positions(network, self.vocabulary) - self.frame_size
        self.compiled = bool(compiled)
        self._logits = torch.compile(self._logits_at, dynamic=True) if compiled else self._logits_at

    @property
    def _special(self):
        sides = ("before", self.before.tolist()), ("after", self.after.tolist())
        return {"mask": self._mask, **{f"{x}[{k}]": v for x, part in sides for k, v in enumerate(part)}}

    def framed(self, states: torch.Tensor) -> torch.Tensor:
        """Vocabulary ids int64[B, T] of states int64[B, n], with the frame around them."""
        size = len(states)
        return torch.cat([self.before.expand(size, -1), self._ids[states], self.after.expand(size, -1)], dim=1)

    @torch.inference_mode()
    def scores(self, states: Any, sites: Any, hidden: Any = None) -> torch.Tensor:
        """Logits float32[B, n_tokens] at ``sites``, with the mask token there and at ``hidden`` sites (paper §1).

        See `ConditionalModel.scores`; ValueError for states longer than the network has positions for, for tokens or
        sites outside of the vocabulary or the states (`checks.check_question`), for logits in half precision, for a
        network in training mode, and for a hook that is not called (`networks.check_unhooked`).
        """
        check_question(states, sites, self.n_tokens)
        check_unhooked(self.network, self._called)
        states, sites = self._long(states), self._long(sites)
        self._check_size(states)
        further = () if hidden is None else (hidden_besides(hidden, states, sites),)
        return self._in_batches(self._scores, states.shape[1] + self.frame_size, states, sites, *further)

    def _scores(self, states, sites, hidden=None):
        positions = (sites + (first := len(self.before)))[:, None]
        ids = self.framed(states).scatter(1, positions, self._mask)
        hidden = hidden if hidden is not None and hidden.any() else None
        if hidden is not None:
            ids[:, first : first + states.shape[1]].masked_fill_(hidden, self._mask)
        logits = self._logits(ids, positions) if hidden is None else self._logits_at(ids, positions, shared=True)
        check_precision(logits.dtype, f"scores of model {self.name!r}")
        return logits[:, self._ids]

    def _logits_at(self, ids, positions, shared=False):
        """Logits of the whole vocabulary at one position of each row: only that one goes through the head."""
        vectors = hidden_at(self.network, ids, positions, shared=shared)[:, 0]
        return HEADS[self.network.config.model_type](self.network, vectors)


class CausalLM(LanguageModel):
    r"""An autoregressive language model: a real joint law :math:`p(x) = \prod_t p(x_t \mid x_{<t})` on :math:`V^n`.

    Raises
    ------
    ValueError
        If the tokenizer has no token to begin with, a factor depends on a later token (no causal model), or weights
        are in half precision.

    Notes
    -----
    The first token is conditioned on the tokenizer's beginning-of-sequence token (``[CLS]``, ``<s>`` or
    ``<|endoftext|>``), and every factor is normalised over the vocabulary: the joint sums to one over the states.
    """

    def __init__(self, network: Any, tokenizer: Any, **options: Any):
        super().__init__(network, tokenizer, **options)
        # the beginning takes the place of the last token, which none follows
        self.max_sites = n_positions(network, self.vocabulary)
        starts = [tokenizer.bos_token_id, tokenizer.cls_token_id, tokenizer.eos_token_id]
        if (start := next((k for k in starts if k is not None), None)) is None:
            raise ValueError(f"{type(tokenizer).__name__} has no token to begin a sequence with (bos, cls or eos)")
        self._start, self._special = start, {"start": start}
        check_special(tokenizer, network.config.vocab_size, self._called, self._special)
        first, second = np.zeros((2, 1, 4), dtype=np.int64)
        second[0, 2] = min(1, self.n_tokens - 1)
        if not torch.allclose(self.log_factors(first)[:, :3], self.log_factors(second)[:, :3], atol=1e-4):
            raise ValueError(f"{self.name!r} is not a causal model: a token changes the probability of those before it")

    def log_factors(self, states: Any) -> torch.Tensor:
        """Log-probabilities float64[B, n, n_tokens] of every token at every site given the tokens before it.

        ValueError for states longer than the network has positions for, for tokens outside of the vocabulary, for a
        network in training mode, and for what `answers.check_rows` refuses.
        """
        return self._log_factors(self._checked(states))

    def _checked(self, states):
        """States as a tensor; ValueError for tokens outside of the vocabulary, or too many of them."""
        check_question(states, np.zeros(len(states), np.int64), self.n_tokens)
        check_evaluating(self.network, self._called)
        return self._check_size(self._long(states))

    @torch.inference_mode()
    def _log_factors(self, states):
        start = torch.full((len(states), 1), self._start, device=self.device)
        ids = torch.cat([start, self._ids[states[:, :-1]]], dim=1)
        scores = self.network(input_ids=ids).logits[..., self._ids]
        check_precision(scores.dtype, f"scores of model {self.name!r}")
        size, n = states.shape
        check_rows(scores.flatten(0, 1), self, states.repeat_interleave(n, 0), list(range(n)) * size)
        return scores.double().log_softmax(-1)

    @torch.inference_mode()
    def log_prob(self, states: Any) -> torch.Tensor:
        """Joint log-probability float64[B] of states int[B, n]."""
        states = self._checked(states)
        chosen = lambda batch: self._log_factors(batch).gather(2, batch[..., None])[..., 0].sum(1)  # noqa: E731
        return self._in_batches(chosen, self._cost(states), states)

    def proposals(self, states: Any, sites: Any) -> torch.Tensor:
        """Next-token log-probabilities float64[B, n_tokens] at ``sites`` given what stands to the left."""
        check_question(states, sites, self.n_tokens)
        states, sites = self._checked(states), self._long(sites)
        at_sites = lambda batch, at: self._log_factors(batch)[torch.arange(len(batch)), at]  # noqa: E731
        return self._in_batches(at_sites, self._cost(states), states, sites)

    def _cost(self, states):
        """Tokens that one sequence counts for: it takes n rows of |V| float64, a masked state one row of float32."""
        return 8 * states.shape[1]

    def scores(self, states: Any, sites: Any, hidden: Any = None) -> torch.Tensor:
        """The joint's log-probability float64[B, n_tokens] of every token at ``sites``, summed over ``hidden`` sites.

        See `ConditionalModel.scores`. Every state that the row leaves open is listed: only for a small `vocabulary`.

        Raises
        ------
        ValueError
            If the vocabulary has more than 512 tokens, or a row needs more than `models.LISTED` states.
        """
        if self.n_tokens > 512:
            raise ValueError(f"conditionals of a joint need |V| <= 512 evaluations, got |V| = {self.n_tokens}; "
                             "pass a smaller vocabulary")  # fmt: skip
        check_question(states, sites, self.n_tokens)
        states, sites = self._long(states), self._long(sites)
        further = hidden_besides(
            torch.zeros_like(states, dtype=torch.bool) if hidden is None else hidden, states, sites
        )
        return marginal_scores(self.log_prob, self.n_tokens, states, sites, further)


def load_model(
    name: str | Path, *, causal: bool | None = None, revision: str | None = None, **options: Any
) -> "MaskedLM | CausalLM":
    """A language model by name.

    Parameters
    ----------
    name : str or Path
        An embedded model (`EMBEDDED`), a local directory in Hugging Face format, or a name on the hub.
    causal : bool, optional
        Load a causal model; default: False for anything that is not embedded.
    revision : str, optional
        Pinned revision of a hub model; refused for any other.
    **options
        Passed to `MaskedLM` or `CausalLM`.

    Raises
    ------
    ValueError
        If there is no such model (`hub.locate` says why), or its checkpoint is refused (`loading.load_checkpoint`).
    """
    options.setdefault("name", str(name))
    if isinstance(name, str) and name in EMBEDDED:
        if causal not in (None, EMBEDDED[name]["causal"]):
            raise ValueError(f"{name!r} is a {'causal' if EMBEDDED[name]['causal'] else 'masked'} language model")
        if revision is not None:
            raise ValueError(f"{name!r} is an embedded model and has no revision: leave out revision={revision!r}")
        kind = CausalLM if EMBEDDED[name]["causal"] else MaskedLM
        return kind(load_embedded(name), package_tokenizer(EMBEDDED[name]["base"]), **options)
    refusal = f"no {'causal' if causal else 'masked'} model {str(name)!r}: not one of {sorted(EMBEDDED)}, no directory"
    auto = AutoModelForCausalLM if causal else AutoModelForMaskedLM
    network, tokenizer = load_checkpoint(auto, name, refusal, revision)
    return (CausalLM if causal else MaskedLM)(network, tokenizer, **options)
