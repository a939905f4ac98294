"""Masked and causal language models of transformers as conditional models.

States hold content tokens only: a model adds its own frame ([CLS] … [SEP], <s> … </s>) and maps token indices to its
vocabulary.
"""

import copy
import hashlib
import json
import math
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

from glauber_lib.embedded import EMBEDDED, load_embedded, package_tokenizer
from glauber_lib.hub import first_line, place_to_load

# From the encoder's vector at one site to the scores of the whole vocabulary, per architecture.
HEADS = {
    "albert": lambda network, hidden: network.predictions(hidden),
    "bert": lambda network, hidden: network.cls(hidden),
    "deberta-v2": lambda network, hidden: (  # also v3; its newer head decodes with the word embeddings
        network.cls(hidden)
        if network.legacy
        else network.lm_predictions(hidden, network.base_model.embeddings.word_embeddings)
    ),
    "distilbert": lambda network, hidden: network.vocab_projector(
        network.vocab_layer_norm(network.activation(network.vocab_transform(hidden)))
    ),
    "electra": lambda network, hidden: network.generator_lm_head(network.generator_predictions(hidden)),
    "esm": lambda network, hidden: network.lm_head(hidden),
    "modernbert": lambda network, hidden: network.decoder(network.head(hidden)),
    "mpnet": lambda network, hidden: network.lm_head(hidden),
    "roberta": lambda network, hidden: network.lm_head(hidden),
    "xlm-roberta": lambda network, hidden: network.lm_head(hidden),
}
# Architectures whose last layer `hidden_at` evaluates at the asked sites alone.
ONE_QUERY = {"bert", "distilbert", "roberta", "xlm-roberta"}
PLACEHOLDERS = ("[unused", "madeupword", "<null_")  # entries that fill up a vocabulary: BERT's, RoBERTa's, ESM's


def n_positions(network):
    """Tokens, frame included, that the network's table of positions has rows for; infinity where it has no table.

    Where positions are counted from the padding id on (RoBERTa and its kin), the rows up to there are never used.
    """
    base = network.base_model
    table = getattr(getattr(base, "embeddings", None), "position_embeddings", None)
    table = getattr(base, "wpe", None) if table is None else table  # GPT-2's
    if table is None:
        return math.inf
    return table.num_embeddings - (0 if table.padding_idx is None else table.padding_idx + 1)


def hidden_at(network, ids, positions, *, causal=False):
    """What the encoder says at a few positions.

    Parameters
    ----------
    network : transformers.PreTrainedModel
        Of an architecture in `ONE_QUERY` the last layer is evaluated at `positions` alone: it needs all keys and
        values, but only these queries.
    ids : torch.Tensor, int64[B, T]
    positions : torch.Tensor, int64[B, k]
    causal : bool
        Whether a position sees only itself and those before it.

    Returns
    -------
    torch.Tensor, float[B, k, H]
    """
    at = lambda hidden: hidden.gather(1, positions[..., None].expand(-1, -1, hidden.shape[-1]))  # noqa: E731
    if network.config.model_type not in ONE_QUERY:
        return at(network.base_model(input_ids=ids).last_hidden_state)
    heads = network.config.num_attention_heads
    split = lambda x: x.unflatten(-1, (heads, -1)).transpose(1, 2)  # (B, heads, T, d)  # noqa: E731
    sites = torch.arange(ids.shape[1], device=ids.device)
    mask = (sites <= sites[:, None])[None, None] if causal else None
    hidden = network.base_model.embeddings(input_ids=ids)
    *layers, last = _layers(network)
    for layer in layers:
        hidden = layer(hidden, attention_mask=mask)
    asked = at(hidden)
    if causal:
        mask = (sites <= positions[..., None])[:, None]  # (B, 1, k, T)
    query, key, value, rest = _open_layer(last)
    mixed = F.scaled_dot_product_attention(
        split(query(asked)), split(key(hidden)), split(value(hidden)), attn_mask=mask
    )
    return rest(mixed.transpose(1, 2).flatten(2), asked)


def _layers(network):
    """The encoder's layers, of an architecture in `ONE_QUERY`."""
    base = network.base_model
    return base.transformer.layer if network.config.model_type == "distilbert" else base.encoder.layer


def _open_layer(layer):
    """Maps of a layer to its queries, keys and values, and from the mixed values and its input to its output."""
    attention = layer.attention
    if hasattr(attention, "q_lin"):  # DistilBERT

        def rest(mixed, hidden):
            mixed = layer.sa_layer_norm(attention.out_lin(mixed) + hidden)
            return layer.output_layer_norm(layer.ffn(mixed) + mixed)

        return attention.q_lin, attention.k_lin, attention.v_lin, rest

    def rest(mixed, hidden):
        mixed = attention.output(mixed, hidden)
        return layer.output(layer.intermediate(mixed), mixed)

    return attention.self.query, attention.self.key, attention.self.value, rest


class _LanguageModel:
    """What masked and causal language models share: vocabulary, frame, text and batching."""

    def __init__(self, network, tokenizer, *, name="", vocabulary=None, batch_tokens=8_192, device=None):
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.network = network.eval().to(self.device)
        self.tokenizer = tokenizer
        self.name = name
        self.batch_tokens = batch_tokens
        if vocabulary is None:
            added = tokenizer.added_tokens_decoder.items()
            banned = set(tokenizer.all_special_ids) | {k for k, token in added if token.special}
            words = tokenizer.convert_ids_to_tokens(range(min(len(tokenizer), network.config.vocab_size)))
            vocabulary = [
                k for k, word in enumerate(words) if k not in banned and word and not word.startswith(PLACEHOLDERS)
            ]
        self.vocabulary = np.asarray(vocabulary, dtype=np.int64)  # token index -> vocabulary id
        self._ids = torch.from_numpy(self.vocabulary).to(self.device)
        self.n_tokens = len(self.vocabulary)
        self._index = np.full(max(len(tokenizer), network.config.vocab_size), -1)
        self._index[self.vocabulary] = np.arange(self.n_tokens)

    def tokens(self, text, *, n=None):
        """Token indices int64[n] of `text`, truncated to its first `n` tokens.

        Raises
        ------
        ValueError
            If the text has fewer than `n` tokens, or a token that is not in the vocabulary.
        """
        ids = self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"][:n]
        if not ids or (n is not None and len(ids) < n):
            raise ValueError(f"text has {len(ids)} tokens, at least {n or 1} are needed: {text!r}")
        indices = self._index[ids]
        if (indices < 0).any():
            bad = self.tokenizer.convert_ids_to_tokens([i for i, k in zip(ids, indices, strict=True) if k < 0])
            raise ValueError(f"text has tokens outside the model's vocabulary {bad}: {text!r}")
        return indices

    def reads(self, text):
        """Whether every token of `text` is in the vocabulary."""
        ids = self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return bool((self._index[ids] >= 0).all())

    def states(self, texts, *, n):
        """States int64[len(texts), n]: the first `n` tokens of each text."""
        return np.stack([self.tokens(text, n=n) for text in texts])

    def words(self, state):
        """The tokens of one state as strings, one per site."""
        return self.tokenizer.convert_ids_to_tokens(self.vocabulary[np.asarray(state)].tolist())

    def texts(self, states):
        """States int[B, n] as a list of B strings."""
        return self.tokenizer.batch_decode(self.vocabulary[np.asarray(states)].tolist())

    def round_trips(self, states):
        """Whether the text of each of B states is tokenised to the state again, bool[B].

        Not every state is the state of a text: two pieces may merge, a WordPiece ## or a piece without its leading
        space cannot come first. Such states are legal for the chain, but their text hides what they are.
        """
        again = self.tokenizer(self.texts(states), add_special_tokens=False, verbose=False)["input_ids"]
        return np.array([ids == own for ids, own in zip(again, self.vocabulary[states].tolist(), strict=True)], bool)

    @cached_property
    def checksum(self):
        """Hexadecimal digest of all weights; results are cached by it."""
        digest = hashlib.blake2b(digest_size=8)
        for name, tensor in sorted(self.network.state_dict().items()):
            digest.update(name.encode() + tensor.cpu().contiguous().view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()

    @property
    def cache_key(self):
        """What cached results depend on: kind, weights and vocabulary."""
        if backend := getattr(self.tokenizer, "backend_tokenizer", None):
            tokenizer = backend.to_str()
        else:  # written in Python, as ESM's: not its repr, which names the folder it was read from
            words, special = sorted(self.tokenizer.get_vocab().items()), self.tokenizer.special_tokens_map
            tokenizer = json.dumps([type(self.tokenizer).__name__, special, words], default=str)
        return [type(self).__name__, self.checksum, self.network.config.to_json_string(), tokenizer, self.vocabulary]

    def double(self):
        """The same model in float64, to measure rounding with."""
        return type(self)(
            copy.deepcopy(self.network).double(), self.tokenizer, name=self.name, vocabulary=self.vocabulary,
            batch_tokens=self.batch_tokens, device=self.device,
        )  # fmt: skip

    def __repr__(self):
        return f"{type(self).__name__}({self.name!r}, n_tokens={self.n_tokens})"

    def _check_length(self, n):
        if n > self.max_sites:
            raise ValueError(f"states have {n} tokens, {self.name!r} has positions for at most {self.max_sites}")

    def _in_parts(self, compute, cost, *arrays):
        """`compute` over a few rows of `arrays` at a time: at most `batch_tokens`, `cost` of them per row.

        Where memory runs out, `batch_tokens` is lowered to half of what failed, for good, until a single row fails.
        """
        done, parts, size = 0, [], len(arrays[0])
        while done < size or not parts:
            rows = min(size - done, max(1, self.batch_tokens // cost))
            try:
                parts.append(compute(*(x[done : done + rows] for x in arrays)))
                done += rows
                continue
            except torch.OutOfMemoryError:
                if rows <= 1:
                    raise
            # not in the handler: the exception's traceback keeps the tensors of the failed pass alive
            self.batch_tokens = rows // 2 * cost
            torch.cuda.empty_cache()  # does nothing where CUDA is not in use
        return torch.cat(parts) if len(parts) > 1 else parts[0]


class MaskedLM(_LanguageModel):
    """A masked language model as a conditional model.

    Parameters
    ----------
    network : transformers.PreTrainedModel
        With a masked-LM head, of an architecture listed in `HEADS`.
    tokenizer : transformers.PreTrainedTokenizerBase
        With a mask token.
    name : str
        Shown in tables.
    vocabulary : sequence of int, optional
        Vocabulary ids a site may hold. Default: all but the special tokens, placeholders ([unused…]) and ids
        the tokenizer does not know.
    batch_tokens : int
        Tokens of one forward pass; bounds the memory, changes no result. Lowered where memory runs out.
    device : str or torch.device, optional
        A GPU where torch sees one.
    compiled : bool
        Compile the forward pass with `torch.compile`: 10-20% faster on the CPU, after half a minute (needs a C++
        compiler).
    """

    def __init__(self, network, tokenizer, *, compiled=False, **options):
        if tokenizer.mask_token_id is None:
            raise ValueError(f"{type(tokenizer).__name__} has no mask token: not the tokenizer of a masked LM")
        if network.config.model_type not in HEADS:
            raise ValueError(f"architecture {network.config.model_type!r} is not supported, only {sorted(HEADS)}")
        super().__init__(network, tokenizer, **options)
        # no mask of special tokens is asked: where "a" is unknown, as to a protein model, it counts as special itself
        content, framed = (tokenizer("a", add_special_tokens=frame)["input_ids"] for frame in (False, True))
        at = next(k for k in range(len(framed)) if framed[k : k + len(content)] == content)
        ids = torch.tensor(framed, device=self.device)
        self._before, self._after = ids[:at], ids[at + len(content) :]
        self.max_sites = n_positions(network) - len(self._before) - len(self._after)
        self._logits = torch.compile(self._logits_at, dynamic=True) if compiled else self._logits_at

    @torch.inference_mode()
    def scores(self, states, sites):
        """Logits float32[B, n_tokens] at ``sites``, with the mask token there (§1 of the paper)."""
        states, sites = torch.as_tensor(states, device=self.device), torch.as_tensor(sites, device=self.device)
        self._check_length(states.shape[1])
        return self._in_parts(self._scores, states.shape[1] + 2, states, sites)

    def _scores(self, states, sites):
        size = len(states)
        ids = torch.cat([self._before.expand(size, -1), self._ids[states], self._after.expand(size, -1)], dim=1)
        positions = (sites + len(self._before))[:, None]
        scores = self._logits(ids.scatter(1, positions, self.tokenizer.mask_token_id), positions)[:, self._ids]
        return scores if scores.dtype == torch.float64 else scores.float()

    def _logits_at(self, ids, positions):
        """Logits of the whole vocabulary at one position of each row: only that one goes through the head."""
        return HEADS[self.network.config.model_type](self.network, hidden_at(self.network, ids, positions)[:, 0])


class CausalLM(_LanguageModel):
    r"""An autoregressive language model: a real joint law :math:`p(x) = \prod_t p(x_t \mid x_{<t})` on :math:`V^n`.

    Raises
    ------
    ValueError
        If the tokenizer has no token to begin with, or a factor depends on a later token: no causal model.

    Notes
    -----
    The first token is conditioned on the tokenizer's beginning-of-sequence token ([CLS], <s> or <|endoftext|>), and
    every factor is normalised over the vocabulary, so that the joint sums to one over the states.
    """

    def __init__(self, network, tokenizer, **options):
        super().__init__(network, tokenizer, **options)
        self.max_sites = n_positions(network)  # the first token stands for the last one, which nothing looks back to
        starts = [tokenizer.bos_token_id, tokenizer.cls_token_id, tokenizer.eos_token_id]
        self._start = next((k for k in starts if k is not None), None)
        if self._start is None:
            raise ValueError(f"{type(tokenizer).__name__} has no token to begin a sequence with (bos, cls or eos)")
        first, second = np.zeros((2, 1, 4), dtype=np.int64)
        second[0, 2] = 1
        if not torch.allclose(self.log_factors(first)[:, :3], self.log_factors(second)[:, :3], atol=1e-4):
            raise ValueError(f"{self.name!r} is not a causal model: a token changes the probability of those before it")

    @torch.inference_mode()
    def log_factors(self, states):
        """Log-probabilities float64[B, n, n_tokens] of every token at every site given the tokens before it."""
        states = torch.as_tensor(states, device=self.device)
        self._check_length(states.shape[1])
        start = torch.full((len(states), 1), self._start, device=self.device)
        ids = torch.cat([start, self._ids[states[:, :-1]]], dim=1)
        return self.network(input_ids=ids).logits[..., self._ids].double().log_softmax(-1)

    @torch.inference_mode()
    def log_prob(self, states):
        """Joint log-probability float64[B] of states int[B, n]."""
        states = torch.as_tensor(states, device=self.device)
        chosen = lambda part: self.log_factors(part).gather(2, part[..., None])[..., 0].sum(1)  # noqa: E731
        return self._in_parts(chosen, self._cost(states), states)

    def proposals(self, states, sites):
        """Next-token log-probabilities float64[B, n_tokens] at ``sites`` given what stands to the left."""
        states, sites = torch.as_tensor(states), torch.as_tensor(sites)
        at_sites = lambda part, at: self.log_factors(part)[torch.arange(len(part)), at]  # noqa: E731
        return self._in_parts(at_sites, self._cost(states), states, sites)

    def _cost(self, states):
        """Tokens one sequence counts for: it asks for n rows of |V| float64, not for one of float32."""
        return 8 * states.shape[1]

    def scores(self, states, sites):
        """The exact conditionals of the joint, by enumeration: only for a small `vocabulary`."""
        if self.n_tokens > 512:
            raise ValueError(f"conditionals of a joint need |V| <= 512 evaluations, got |V| = {self.n_tokens}; "
                             "pass a smaller vocabulary")  # fmt: skip
        states, sites = torch.as_tensor(states), torch.as_tensor(sites)
        every = states[:, None].repeat(1, self.n_tokens, 1)  # (B, V, n)
        tokens = torch.arange(self.n_tokens).expand(len(states), -1)[..., None]
        every.scatter_(2, sites[:, None, None].expand(-1, self.n_tokens, 1), tokens)
        return self.log_prob(every.flatten(0, 1)).view(len(states), self.n_tokens)


def load_model(name, *, causal=None, revision=None, **options):
    """A language model by name.

    Parameters
    ----------
    name : str or Path
        An embedded model (`EMBEDDED`), a local directory in Hugging Face format, or a name on the hub.
    causal : bool, optional
        Load a causal model; default: False for anything that is not embedded.
    revision : str, optional
        Pinned revision of a hub model.
    **options
        Passed to `MaskedLM` or `CausalLM`.

    Raises
    ------
    ValueError
        If there is no such model (`hub.locate` says why), or its checkpoint lacks weights of the language-model head,
        which Hugging Face would fill with random numbers.
    """
    options.setdefault("name", str(name))
    if name in EMBEDDED:
        if causal not in (None, EMBEDDED[name]["causal"]):
            raise ValueError(f"{name!r} is a {'causal' if EMBEDDED[name]['causal'] else 'masked'} language model")
        kind = CausalLM if EMBEDDED[name]["causal"] else MaskedLM
        return kind(load_embedded(name), package_tokenizer(EMBEDDED[name]["base"]), **options)
    refusal = f"no {'causal' if causal else 'masked'} model {str(name)!r}: not one of {sorted(EMBEDDED)}, no directory"
    auto = AutoModelForCausalLM if causal else AutoModelForMaskedLM
    network, tokenizer = load_checkpoint(auto, name, refusal, revision)
    return (CausalLM if causal else MaskedLM)(network, tokenizer, **options)


def load_checkpoint(auto, name, refusal, revision=None):
    """A network in float32 and its tokenizer, from a local directory or the hub: all of it, and from safetensors.

    Parameters
    ----------
    auto : type
        One of the classes ``AutoModelFor…`` of transformers.
    name : str or Path
    refusal : str
        What the error says first.
    revision : str, optional
        Pinned revision of a hub model.

    Raises
    ------
    ValueError
        If it cannot be had or loaded, or its checkpoint lacks weights, which would be random numbers.
    """
    source, place = place_to_load(name, refusal, revision)
    place["trust_remote_code"] = False  # by default transformers asks whoever sits there
    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, **place)
        network, report = auto.from_pretrained(
            source, output_loading_info=True, use_safetensors=True, dtype=torch.float32, **place
        )
    except (OSError, KeyError, ValueError) as error:
        raise ValueError(f"{refusal} that loads ({first_line(error)})") from error
    finally:
        transformers.logging.set_verbosity(verbosity)
    missing = sorted(set(report["missing_keys"]) | {str(k) for k in report.get("mismatched_keys", ())})
    if missing:
        raise ValueError(f"checkpoint {str(name)!r} lacks weights that would be random numbers: {missing}")
    return network, tokenizer
