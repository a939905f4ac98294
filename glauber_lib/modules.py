"""What the modules of a network compute with besides weights: attributes, hooks, and what was put in their place."""

import contextlib
import enum
import functools
import hashlib
import itertools
import json
import sys
import types
import uuid
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from glauber_lib.checksums import (
    NoSourceError,
    attention_names,
    describe_computation,
    describe_tokenizer,
    described_source,
    matmul_precision,
)

PACKAGES = ("torch", "transformers", "sentence_transformers", "glauber_lib")  # whose sources their versions stand for
_USED = ("training", "name_or_path", "warnings_issued", "forward")  # what says nothing of answers; forward is a hook
_PROCESS = uuid.uuid4().hex
_NUMBERS: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # of what has no digest; an id may come again
_NEXT = itertools.count()


def describe_reader(network: torch.nn.Module, tokenizer: Any) -> list:
    """What the answers of a reader of texts depend on besides its weights and configuration, as it is set now.

    Parameters
    ----------
    network : torch.nn.Module
    tokenizer : transformers.PreTrainedTokenizerBase

    Returns
    -------
    list
        Its tokenizer, where texts are cut and on which side they are filled up, what computes, and its modules
        (`describe_modules`).
    """
    sides = [getattr(tokenizer, name, None) for name in ("model_max_length", "padding_side", "truncation_side")]
    computed = [describe_computation(network), matmul_precision(), describe_modules(network)]
    return [describe_tokenizer(tokenizer), sides, *computed]


def describe_modules(network: torch.nn.Module) -> list:
    """What a network's modules compute with besides weights: what was set on them after the network was made, too.

    Returns
    -------
    list
        Of each module its name, class and public attributes: numbers, texts, tensors, functions and containers of
        them; of any other object its class alone. A class or function of no package in `PACKAGES` stands with its
        source, that of its module and of the reader's modules which this imports; an object that is registered as
        attention stands with what it holds. Of what was registered as a hook, on a module or on all, of a replaced
        `forward`, and of a function without source there is no digest: each is another one in every process.
    """
    described: list = []
    for name, module in network.named_modules():
        public = {k: _described(v) for k, v in vars(module).items() if not (k.startswith("_") or k in _USED)}
        described.append([name, _name_of(type(module)), public])
        described += [[name, "of this process", _PROCESS, *own] for own in hooks_of(module)]
    described += [["", "of this process", _PROCESS, *own] for own in _hooks_in(torch.nn.modules.module, "_global")]
    for attention in sorted(attention_names(network)):
        for table in (ALL_ATTENTION_FUNCTIONS, ALL_MASK_ATTENTION_FUNCTIONS):  # a reader may register one of their own
            described.append([attention, _called(table[attention]) if attention in table else None])
    kept = network.state_dict().keys()
    described += [[name, _described(buffer)] for name, buffer in network.named_buffers() if name not in kept]
    return described


def hooks_of(module: torch.nn.Module) -> list:
    """What stands around a module's forward pass, or in its place: kind and number of each hook and replacement.

    Those with which transformers itself takes down hidden states are left out.
    """
    own = [["forward", _number(value)] for name, value in vars(module).items() if name == "forward"]
    return [*_hooks_in(module), *own, *_replaced_forward(type(module))]


def _hooks_in(owner, prefix=""):
    """Kind and number of each hook of a module or, with a prefix, of all."""
    kinds = (f"{prefix}_forward_pre_hooks", f"{prefix}_forward_hooks")
    every = [(kind, *item) for kind in kinds for item in getattr(owner, kind).items()]
    origin = lambda hook: str(getattr(hook, "__module__", ""))  # noqa: E731
    return [[kind, k] for kind, k, hook in every if not origin(hook).startswith("transformers.")]


def _number(thing):
    """A number that no other object of this process has."""
    try:
        return _NUMBERS.setdefault(thing, next(_NEXT))
    except TypeError:  # not hashable, or cannot be weakly referenced
        return id(thing)


def _described(value):
    """What stands for an attribute of a module, as JSON holds it."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, torch.Tensor):
        data = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        return [str(value.dtype), list(value.shape), hashlib.blake2b(data, digest_size=8).hexdigest()]
    if isinstance(value, np.ndarray | np.generic):
        return [str(value.dtype), _described(value.tolist())]
    if isinstance(value, Mapping):
        return ["dict", *([_described(k), _described(v)] for k, v in value.items())]
    if isinstance(value, list | tuple):
        return list(map(_described, value))
    if isinstance(value, set | frozenset):
        return sorted(json.dumps(_described(v)) for v in value)
    if isinstance(value, functools.partial):
        return ["partial", *map(_described, (value.func, value.args, value.keywords))]
    if isinstance(value, enum.Enum | torch.dtype | torch.device | complex | Path):
        return str(value)
    return _name_of(value if hasattr(value, "__qualname__") else type(value))


def _called(value):
    """What stands for a function, or for an object that is called or whose method is: that with what it holds."""
    owner = value.__self__ if isinstance(value, types.MethodType) else value
    held = None if hasattr(owner, "__qualname__") else getattr(owner, "__dict__", None)
    return [_described(value), _described(held)] if held else _described(value)


def _name_of(thing):
    """A class or function by its name; one of the reader's own by its source too, where it has one under that name."""
    module, name = getattr(thing, "__module__", None) or "builtins", thing.__qualname__
    packaged = module.split(".")[0] in (*PACKAGES, *sys.stdlib_module_names)
    if packaged and isinstance(thing, type | types.BuiltinFunctionType):
        return name
    held: Any = sys.modules.get(module)
    for part in name.split("."):
        held = getattr(held, part, None)
    if module != "__main__" and getattr(held, "__func__", held) is getattr(thing, "__func__", thing):
        with contextlib.suppress(NoSourceError):
            return name if packaged else [name, *described_source(thing)]
    return [name, "of this process", _PROCESS, _number(thing)]


def _replaced_forward(kind):
    """What was put in the place of a `forward` that a class, or one that it is based on, was written with."""
    found = []
    for owner in kind.__mro__[: kind.__mro__.index(torch.nn.Module)]:
        layers = [vars(owner).get("forward")]
        while (inner := getattr(layers[-1], "__wrapped__", None)) is not None:
            layers.append(inner)
        code, tops = getattr(layers[-1], "__code__", None), (*PACKAGES, owner.__module__.split(".")[0])
        outside = [f for f in layers if getattr(f, "__globals__", {}).get("__name__", "").split(".")[0] not in tops]
        if code is not None and (outside or code.co_qualname != f"{owner.__qualname__}.forward"):
            found.append([f"{owner.__qualname__}.forward", _number(layers[0])])
    return found
