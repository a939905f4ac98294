"""Networks of transformers at a few positions: encoder, head, and how many positions a network has."""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
import torch.nn.functional as F

from glauber_lib.modules import hooks_of

# Per architecture: from the encoder's vectors, shape [..., H], to the scores of the whole vocabulary.
HEADS: Mapping[str, Callable] = MappingProxyType(
    {
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
)
# Architectures whose last layer `hidden_at` evaluates at the asked sites alone.
ONE_QUERY = frozenset({"bert", "distilbert", "roberta", "xlm-roberta"})


def check_masked(network) -> None:
    """ValueError unless a network is of an architecture in `HEADS` and every position sees all others."""
    config = network.config
    if config.model_type not in HEADS:
        raise ValueError(f"architecture {config.model_type!r} is not supported, only {sorted(HEADS)}")
    if getattr(config, "is_decoder", False):
        raise ValueError(
            f"the network ({type(network).__name__}) is a decoder (config.is_decoder): its positions see only what "
            "stands before them, which is no masked model; load it with causal=True, as CausalLM"
        )


def check_evaluating(network, name: str) -> None:
    """ValueError where a network, or a part of it, is in training mode: its dropout makes noise of every answer."""
    if any(module.training for module in network.modules()):
        raise ValueError(
            f"the network of {name!r} is in training mode, in which its answers are random: call eval() on it"
        )


def check_unhooked(network, name: str) -> None:
    """ValueError for a hook, or a replaced `forward`, on a part of a network that `hidden_at` and `HEADS` never call.

    They call embeddings, layers, maps and head by themselves: not the network as a whole and, for an architecture in
    `ONE_QUERY`, neither its encoder nor the last layer and its attention. Hooks on all other parts are called.
    ValueError as from `check_evaluating` too.
    """
    check_evaluating(network, name)
    base, uncalled = network.base_model, [network]
    if network.config.model_type in ONE_QUERY:
        layer = _layers(network)[-1]
        around = [getattr(base, "encoder", None), getattr(base, "transformer", None)]
        uncalled += [base, *around, _layers(network), layer, layer.attention, getattr(layer.attention, "self", None)]
    if found := next((part for part in uncalled if part is not None and hooks_of(part)), None):
        raise ValueError(
            f"the network of {name!r} has a hook, or another forward, on its {type(found).__name__}, which is not "
            "called as a whole: it would change nothing; put it on a part of it"
        )


def n_positions(network, vocabulary=()) -> float:
    """Most tokens, frame included, that a network of transformers has positions for.

    ValueError where it counts no position for an id of the `vocabulary`, its padding: what follows would be shifted.

    Returns
    -------
    int or float
        Rows of the network's table of positions; infinity where it has no table. RoBERTa and its kin count positions
        from the padding id on: the rows up to there are never used.
    """
    base = network.base_model
    table = getattr(getattr(base, "embeddings", None), "position_embeddings", None)
    table = getattr(base, "wpe", None) if table is None else table  # GPT-2's
    if table is None:
        return math.inf
    if table.padding_idx in vocabulary:
        raise ValueError(
            f"id {table.padding_idx} of the vocabulary is the padding, which has no position: leave it out"
        )
    return table.num_embeddings - (0 if table.padding_idx is None else table.padding_idx + 1)


def hidden_at(
    network, ids: torch.Tensor, positions: torch.Tensor, *, causal: bool = False, shared: bool = False
) -> torch.Tensor:
    """The encoder's output vectors at a few positions.

    Parameters
    ----------
    network : transformers.PreTrainedModel
        The last layer of an architecture in `ONE_QUERY` is evaluated at `positions` alone: it needs the keys and
        values of all positions, but only these queries.
    ids : torch.Tensor, int64[B, T]
    positions : torch.Tensor, int64[B, k]
    causal : bool
        Whether a position sees only itself and those before it.
    shared : bool
        Whether rows of equal ids share a pass; they differ in their positions.

    Returns
    -------
    torch.Tensor, float[B, k, H]
    """
    if shared:
        distinct, row = torch.unique(ids, dim=0, return_inverse=True)
        if len(distinct) < len(ids):
            every = torch.arange(ids.shape[1], device=ids.device).expand(len(distinct), -1)
            return hidden_at(network, distinct, every, causal=causal)[row[:, None], positions]
    if network.config.model_type not in ONE_QUERY:
        return _at(network.base_model(input_ids=ids).last_hidden_state, positions)
    return last_layer_at(network, before_last_layer(network, ids, causal=causal), positions, causal=causal)


def before_last_layer(network, ids: torch.Tensor, *, causal: bool = False) -> torch.Tensor:
    """The vectors that the last layer of an architecture in `ONE_QUERY` is given, float[B, T, H]."""
    sites = torch.arange(ids.shape[1], device=ids.device)
    mask = (sites <= sites[:, None])[None, None] if causal else None
    hidden = network.base_model.embeddings(input_ids=ids)
    for layer in _layers(network)[:-1]:
        hidden = layer(hidden, attention_mask=mask)
    return hidden


def last_layer_at(network, hidden: torch.Tensor, positions: torch.Tensor, *, causal: bool = False) -> torch.Tensor:
    """The last layer's output at `positions`, float[B, k, H], of what `before_last_layer` returned."""
    heads = network.config.num_attention_heads
    split = lambda x: x.unflatten(-1, (heads, -1)).transpose(1, 2)  # (B, heads, T, d)  # noqa: E731
    asked, mask = _at(hidden, positions), None
    if causal:
        mask = (torch.arange(hidden.shape[1], device=hidden.device) <= positions[..., None])[:, None]  # (B, 1, k, T)
    (query, key, value), scale, finish = _open_layer(_layers(network)[-1])
    if scale == (hidden.shape[-1] // heads) ** -0.5:
        scale = None  # torch's own is the same number, by its own rounding
    mixed = F.scaled_dot_product_attention(
        split(query(asked)), split(key(hidden)), split(value(hidden)), attn_mask=mask, scale=scale
    )
    return finish(mixed.transpose(1, 2).flatten(2), asked)


def _at(hidden, positions):
    """The vectors (B, k, H) of `hidden` (B, T, H) at `positions` (B, k)."""
    return hidden.gather(1, positions[..., None].expand(-1, -1, hidden.shape[-1]))


def _layers(network):
    """The layers of the encoder, for an architecture in `ONE_QUERY`."""
    base = network.base_model
    return base.transformer.layer if network.config.model_type == "distilbert" else base.encoder.layer


def _open_layer(layer):
    """A layer's maps to queries, keys and values, the scale of their products (None: one over the root of the width),
    and the map from mixed values and the layer's input to its output.
    """
    attention = layer.attention
    if hasattr(attention, "q_lin"):  # DistilBERT

        def finish(mixed, hidden):
            mixed = layer.sa_layer_norm(attention.out_lin(mixed) + hidden)
            return layer.output_layer_norm(layer.ffn(mixed) + mixed)

        return (attention.q_lin, attention.k_lin, attention.v_lin), getattr(attention, "scaling", None), finish

    def finish(mixed, hidden):
        mixed = attention.output(mixed, hidden)
        return layer.output(layer.intermediate(mixed), mixed)

    own = attention.self
    return (own.query, own.key, own.value), getattr(own, "scaling", None), finish
