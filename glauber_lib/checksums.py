"""Digests of models, networks, tokenizers and folders: what a result that used them depends on."""

import dataclasses
import hashlib
import inspect
import json
import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glauber_lib.draws import check_precision
from glauber_lib.imports import sources_below
from glauber_lib.sources import SourceChangedError, followed_file, refuse_replaced

CONFIGURATION = (".json", ".txt", ".py", ".model")  # files of settings, vocabularies and code


def weights_checksum(network: torch.nn.Module) -> str:
    """Hexadecimal digest of all weights of a network, by name."""
    digest = hashlib.blake2b(digest_size=8)
    for name, tensor in sorted(network.state_dict().items()):
        values = tensor.cpu().contiguous().reshape(-1).view(torch.uint8)
        digest.update(name.encode() + values.numpy().tobytes())
    return digest.hexdigest()


def check_weights(network: torch.nn.Module, name: str) -> None:
    """Whether all weights are float32 or float64; ValueError that names model and weight where one is not."""
    for weight, tensor in network.state_dict().items():
        if tensor.is_floating_point():
            check_precision(tensor.dtype, f"weights of {name} ({weight})")


def attention_names(network: torch.nn.Module) -> set[str]:
    """What a network, and each that it holds, computes attention with, as transformers calls it."""
    settings = [getattr(module, "config", None) for module in network.modules()]
    return {name for config in settings if (name := getattr(config, "_attn_implementation", None)) is not None}


def describe_computation(network: torch.nn.Module) -> dict[str, str]:
    """What computes besides the weights of a network, which changes its answers within rounding or more.

    Returns
    -------
    dict of str to str
        ``dtype`` of the weights, ``attention`` (``"sdpa"``, ``"eager"``, …, as transformers calls them) and ``device``.
        Where a network has several of one, all are named.
    """
    tensors = [tensor for tensor in network.state_dict().values() if tensor.is_floating_point()]
    found = {
        "dtype": {str(tensor.dtype).removeprefix("torch.") for tensor in tensors},
        "attention": attention_names(network),
        "device": {tensor.device.type for tensor in tensors},
    }
    return {name: ", ".join(sorted(kinds)) for name, kinds in found.items()}


def matmul_precision() -> dict[str, str]:
    """How torch multiplies matrices of float32 now: "none" or "ieee" in full, "tf32" or "bf16" with fewer bits.

    Returns
    -------
    dict of str to str
        The settings for ``cuda`` and ``cpu``, and ``all``, which holds where one of these is "none".
    """
    if not hasattr(torch.backends, "fp32_precision"):  # before torch 2.9
        return {"all": torch.get_float32_matmul_precision()}
    backends: Any = torch.backends
    settings = {"cuda": backends.cuda.matmul, "cpu": backends.mkldnn.matmul, "all": backends}
    return {name: setting.fp32_precision for name, setting in settings.items()}


class WeightsDigest:
    """`weights_checksum` of a network, computed again when its weights were written to, or for another network.

    Whether they were is seen at a fraction of the price: by where each tensor is, by torch's count of writings, and,
    as writings through ``tensor.data`` are not counted, by sums of its bits.
    """

    def __init__(self) -> None:
        self._found: tuple[list, str] | None = None

    def __call__(self, network: torch.nn.Module) -> str:
        """Hexadecimal digest of all weights as they are now."""
        tensors = network.state_dict().items()
        now = [(k, t.data_ptr(), None if t.is_inference() else t._version, _bit_sums(t)) for k, t in tensors]
        if self._found is None or self._found[0] != now:
            self._found = now, weights_checksum(network)
        return self._found[1]


def _bit_sums(tensor):
    """Sums of a tensor's bits, as whole numbers, over blocks of 4 kB and over the same places of 128 blocks.

    A change of one number changes both. An exchange of two within a block keeps the block's sum and changes those of
    their places. Bits are mixed before they are summed: of bits as they are, an even number of changed signs is no
    change, as twice the highest bit is zero.
    """
    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    whole = len(flat) // 4096 * 4096 if flat.storage_offset() % 8 == 0 else 0
    parts = flat[:whole].view(torch.int64).view(-1, 512).split(128)  # half a megabyte: the second sum reads the cache
    mixed = ((part >> 31).bitwise_xor_(part) for part in parts)
    sums = torch.cat([sums for part in mixed for sums in (part.sum(1), part.sum(0))])
    return sums.cpu().numpy().tobytes() + flat[whole:].cpu().numpy().tobytes()


def configuration_checksum(folder: Path) -> str:
    """Hexadecimal digest of what a model's folder says beside its weights: the files that end in `CONFIGURATION`.

    Names count from `folder` on, so that a copy elsewhere has the same digest.
    """
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(path for path in folder.rglob("*") if path.suffix in CONFIGURATION and path.is_file()):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(folder).as_posix()} {len(content)} ".encode() + content)
    return digest.hexdigest()


def describe_tokenizer(tokenizer) -> str:
    """A tokenizer of transformers as text: whatever its tokens depend on, and not the folder it was read from.

    Truncation and padding are left out: each call of the tokenizer sets them as it is asked to.
    """
    if backend := getattr(tokenizer, "backend_tokenizer", tokenizer if hasattr(tokenizer, "to_str") else None):
        return _without_use(backend.to_str())
    # written in Python, as ESM's is: its repr names the folder
    words, special = sorted(tokenizer.get_vocab().items()), tokenizer.special_tokens_map
    return json.dumps([type(tokenizer).__name__, special, words], default=str)


@lru_cache(maxsize=16)  # every run of chains asks, and writing 30,000 words anew takes longer than a short run
def _without_use(text):
    """A tokenizer's JSON without what a call of it sets."""
    return json.dumps({**json.loads(text), "truncation": None, "padding": None})


def class_key(model: Any) -> str | list:
    """What stands for a model's class in its `cache_key`: its name and, where it is not the package's, its sources.

    Raises
    ------
    NoSourceError
        For a class without source, as one that was typed into Python, and for a model with a method of its own
        (`check_methods`); there is no `cache_key`, then.
    """
    check_methods(model)
    kind = type(model)
    own = __name__.partition(".")[0]
    foreign = [c for c in kind.__mro__ if c is not object and c.__module__.partition(".")[0] != own]
    return [kind.__qualname__, *map(described_source, foreign)] if foreign else kind.__name__


def check_methods(thing: Any) -> None:
    """NoSourceError for an object that holds something in the place of a method of its class, which says too little."""
    own = [name for name in getattr(thing, "__dict__", ()) if callable(getattr(type(thing), name, None))]
    if own:
        raise NoSourceError(
            f"no cache_key: this {type(thing).__name__} has a method of its own, {own}; write a class with it into a "
            "module"
        )


class NoSourceError(AttributeError):
    """What has no source has no `cache_key`: as of an attribute that is not there."""


def described_source(kind: Any) -> list[str]:
    """Source of a reader's own class or function, and digest of its module and of the reader's modules it imports.

    A script counts by the class or function alone: what else stands in it may be edited between a run and the next.
    NoSourceError as from `source_of`; SourceChangedError where what runs is not what stands in the files of the
    reader's modules (`sources.refuse_replaced`).
    """
    below = {} if kind.__module__ == "__main__" else sources_below(kind.__module__)
    for module, source in below.items():
        if followed_file(module, "") is not None:
            refuse_replaced(module, source)
    digest = hashlib.blake2b(json.dumps(below).encode(), digest_size=8).hexdigest() if below else ""
    return [source_of(kind), digest]


@lru_cache(maxsize=64)
def source_of(kind: Any) -> str:
    """Source of a class or function; NoSourceError for one without, as one that was typed into Python."""
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError) as error:
        raise NoSourceError(f"no cache_key: {kind.__qualname__} has no source; give it a cache_key") from error


def small_model_key(model: Any, content: list) -> list:
    """The `cache_key` of a model whose scores follow from its class and from `content`.

    Of a class that is not the package's it holds the attributes of the model too, whatever they are there for, and of a
    model that holds a function that function: there is no digest of it (`model_checksum`).
    """
    kind = class_key(model)
    if isinstance(kind, str) and not any(map(callable, vars(model).values())):
        return [kind, *content]
    as_data = lambda x: x.cpu().numpy() if isinstance(x, torch.Tensor) else str(x) if isinstance(x, torch.device) else x  # noqa: E731
    return [kind, *content, {name: as_data(value) for name, value in vars(model).items()}]


def model_checksum(model: Any) -> str:
    """Hexadecimal digest of what a model's scores depend on, its `cache_key`.

    It is empty, which means unknown, for a model without one, with one that holds more than plain data, arrays and
    other objects with a `cache_key`, or whose own source was edited or replaced since it was imported. An
    AttributeError within a `cache_key` comes out: the model has one.
    """
    try:
        described = json.dumps(model.cache_key, default=_plain)
    except (TypeError, NoSourceError, SourceChangedError):
        return ""
    except AttributeError:
        if hasattr(type(model), "cache_key"):
            raise
        return ""
    return hashlib.blake2b(described.encode(), digest_size=8).hexdigest()


def vocabulary_checksum(model: Any) -> str:
    """Hexadecimal digest of what a model's tokens stand for: its tokenizer, and the ids that a site may hold.

    It does not depend on weights or devices. A model with a `vocabulary_key`, such as a `models.RestrictedModel`, says
    itself what its tokens stand for. It is empty, which means unknown, for any other model without a tokenizer.
    """
    if (described := getattr(model, "vocabulary_key", None)) is not None:
        return hashlib.blake2b(json.dumps(described).encode(), digest_size=8).hexdigest()
    tokenizer, ids = getattr(model, "tokenizer", None), getattr(model, "vocabulary", None)
    if tokenizer is None or ids is None:
        return ""
    described = [describe_tokenizer(tokenizer), np.asarray(ids).tolist()]
    return hashlib.blake2b(json.dumps(described).encode(), digest_size=8).hexdigest()


def refuse_other_vocabulary(model: Any, trace: Any, what: str = "the trace") -> None:
    """Refuse to read a trace with a model whose tokens stand for other words: the texts would be none of the trace's.

    Parameters
    ----------
    model : MaskedLM or CausalLM
    trace : Trace, Rectangles, ColumnSearch, GrownSet
        With ``vocabulary_checksum``, perhaps with ``model``, a name; nothing is refused where the first is unknown.
    what : str
        What the error says first.

    Raises
    ------
    ValueError
        If the two differ.
    """
    made, own = trace.vocabulary_checksum, vocabulary_checksum(model)
    if made and own and made != own:
        raise ValueError(
            f"{what} was made by the model {getattr(trace, 'model', '')!r}, whose tokens are other words than those of "
            f"{getattr(model, 'name', '')!r} (vocabulary {made}, not {own}): read it with that model"
        )


def refuse_other_scores(model: Any, result: Any, what: str) -> None:
    """Refuse to read a result with a model of other scores than those of the one that made it.

    Two names that differ are two models, and so are two digests where a name is not known. Models of one name are one,
    with a warning where their digests differ: one may be that of an earlier version of this package, or of weights that
    were trained on.

    Parameters
    ----------
    model : ConditionalModel
    result : Trace, StripRun
        With ``model``, a name, and ``model_checksum``; nothing is refused where the result or the model has neither.
    what : str
        What the error says first.

    Raises
    ------
    ValueError
        If the models differ.
    """
    names, sums = (result.model, getattr(model, "name", "")), (result.model_checksum, model_checksum(model))
    decisive = names if all(names) else sums
    if all(decisive) and decisive[0] != decisive[1] and not (all(sums) and sums[0] == sums[1]):
        was, now = (f"{name!r} ({checksum or 'no checksum'})" for name, checksum in zip(names, sums, strict=True))
        raise ValueError(f"{what} was made by the model {was}, not by {now}: read it with that model")
    if all(names) and all(sums) and sums[0] != sums[1]:
        warnings.warn(
            f"{what} was made by a model {names[0]!r} of another checksum ({sums[0]}, not {sums[1]}): by other weights "
            "or settings, or an earlier version of this package",
            stacklevel=3,
        )


def _plain(value):
    """What stands in a digest for an object that JSON does not hold."""
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        content = hashlib.blake2b(np.ascontiguousarray(value).tobytes(), digest_size=8).hexdigest()
        return [value.dtype.str, list(value.shape), content]
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Path):
        return str(value)
    if (key := getattr(value, "cache_key", None)) is not None:
        return [type(value).__qualname__, key]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [type(value).__qualname__, {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}]
    raise TypeError(f"no digest of a {type(value).__qualname__}")


def refuse_other_model(found: Any, begun: Any, what: str) -> None:
    """Refuse to go on from a result that another model made.

    Parameters
    ----------
    found, begun : Trace, Coalescence, …
        What is done, and what the present model would begin with: results with ``model``, a name, and
        ``model_checksum``, which decides where both are known; otherwise the names do. Where these are not known
        either, a warning says so.
    what : str
        What the error says first.

    Raises
    ------
    ValueError
        If the models differ.
    """
    if found is begun:
        return
    names = (found.model, found.model_checksum), (begun.model, begun.model_checksum)
    by = 1 if all(checksum for _, checksum in names) else 0
    if not by and not all(name for name, _ in names):
        warnings.warn(
            f"{what}: whether this model made it cannot be told; give the class of the model a cache_key, of all that "
            "its scores depend on, or each model a name",
            stacklevel=3,
        )
    elif names[0][by] != names[1][by]:
        was, now = (f"{name!r} ({checksum or 'no checksum'})" for name, checksum in names)
        raise ValueError(f"{what} was made by the model {was}, not by {now}: give that model, or begin anew")
