"""What a cached result and a notebook's outputs depend on: sources, arguments, versions, in digests of them."""

import dataclasses
import functools
import hashlib
import importlib.metadata
import inspect
import json
import os
import platform
import sys
import types
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from glauber_lib.checksums import check_methods, matmul_precision
from glauber_lib.hub import UNWANTED
from glauber_lib.imports import imported_names, read_source
from glauber_lib.paper import profiles
from glauber_lib.sources import (
    LIBRARY,
    PACKAGES,
    SourceChangedError,
    codes,
    followed_file,
    library_file,
    refuse_replaced,
    source_file,
)

PLAIN = (bool, int, float, str, type(None))  # what JSON holds as it is


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that results depend on."""
    return {"python": platform.python_version()} | {name: _installed(name) for name in PACKAGES}


@functools.lru_cache(None)
def _installed(name):
    """The version of a package as it was when first asked for: of what runs."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:  # but named by GLAUBER_MINILM or GLAUBER_DISTILBERT
        return "not installed"


def digest(*contents: str | bytes) -> str:
    """Hexadecimal digest of texts and bytes, in their order, each with its length."""
    found = hashlib.blake2b(digest_size=16)
    for content in contents:
        data = content if isinstance(content, bytes) else content.encode()
        found.update(f"{len(data)} ".encode() + data)
    return found.hexdigest()


def files_digest(place: Path, *, every: bool = False) -> str | None:
    """Digest of a file by its content, or of a folder by the names and contents of its files; None if it is not there.

    Of a folder, as that of a model, hidden files do not count, nor those that are never loaded (`hub.UNWANTED`), unless
    `every` file does.
    """
    if place.is_file():
        with place.open("rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
    if not place.is_dir():
        return None
    names = sorted(_files_below(place))
    left_out = () if every else (".*", "*/.*", *UNWANTED)
    unwanted = lambda name: any(fnmatch(name, pattern) for pattern in left_out)  # noqa: E731
    return digest(*(part for name in names if not unwanted(name) for part in (name, files_digest(place / name) or "")))


def _files_below(place):
    """Names of the files below a folder, those of linked folders too; of a folder that links to one above it once."""
    seen = set()
    for folder, below, names in os.walk(place, followlinks=True):
        if (real := os.path.realpath(folder)) in seen:
            below.clear()
            continue
        seen.add(real)
        for name in names:
            if (path := Path(folder, name)).is_file():
                yield path.relative_to(place).as_posix()


# Sources -----------------------------------------------------------------------------------------------------------


def imported_sources(source: str, package: str = "") -> dict[str, str]:
    """Sources of the modules that a source imports, and of those that they import in turn.

    Parameters
    ----------
    source : str
        Of a module or a notebook.
    package : str
        The package it is in, from which relative imports count.

    Returns
    -------
    dict of str to str
        Name of each module to its source, in the order of the names: modules of the library, and a reader's own
        (`sources.followed_file`), of compiled ones a digest. The package that a module is in counts where it is
        imported itself, or by ``import package.module``.

    Raises
    ------
    SyntaxError, MemoryError
        As `ast.parse`, of what is no Python.
    """
    found: dict[str, str] = {}
    waiting = [(name, package) for name in imported_names(source, package)]
    while waiting:
        module, importer = waiting.pop()
        if module in found or not (path := followed_file(module, importer.split(".")[0])):
            continue
        found[module] = read_source(path)
        inside = module if path.name == "__init__.py" else module.rpartition(".")[0]
        waiting += [(name, inside) for name in imported_names(found[module], inside)]
    return dict(sorted(found.items()))


def source_digest(source: str, package: str = "") -> str:
    """Digest of a source and of all that it imports; SyntaxError or MemoryError as of `imported_sources`."""
    return _digest_with(source, imported_sources(source, package))


def _digest_with(source, imported):
    return digest(source, *(text for item in imported.items() for text in item))


_SEEN = {str(path): path.read_text(encoding="utf-8") for path in (profiles.ROOT / LIBRARY).rglob("*.py")}


def module_digest(module: str, source: str) -> str:
    """`source_digest` of a module as it runs in this process.

    Raises
    ------
    SourceChangedError
        If it or a module that it imports is not what stands in its file: something of it was replaced
        (`sources.refuse_replaced`), or the file, of the library, was edited since this process began.
    SyntaxError, MemoryError
        As of `imported_sources`.
    """
    imported = imported_sources(source, module.rpartition(".")[0])
    for name, text in {**imported, module: source}.items():
        _refuse_edited(name, text)
        refuse_replaced(name, text)
    return _digest_with(source, imported)


def _refuse_edited(module, text):
    """SourceChangedError if the file of a module of the library held another text before."""
    if module.split(".")[0] == LIBRARY and _SEEN.setdefault(path := str(library_file(module)), text) != text:
        raise SourceChangedError(f"{path!r} was edited after {module} was imported; restart Python")


def function_digest(compute: Callable) -> str:
    """Digest of the module of a function and of all that it imports (`imported_sources`).

    Raises
    ------
    TypeError
        If the function is not one of a module, or was wrapped elsewhere, so that its source cannot be told from
        another's.
    SourceChangedError
        If it is not what stands in the module's file: it was defined anew under its name, or the file was edited after
        it was imported; or for another of these modules, as `module_digest`.
    """
    module, name = getattr(compute, "__module__", None), getattr(compute, "__qualname__", "<nameless>")
    if not module or module == "__main__" or "<" in name:
        raise TypeError(f"only a function of a module can be cached, got {name}: put it into a module of {LIBRARY}")
    path = source_file(module)
    if path is None:
        raise TypeError(f"no source of {module}.{name}: its result cannot be cached")
    own = getattr(compute, "__code__", None)
    wrapped = hasattr(compute, "__wrapped__") or (own is not None and own.co_qualname != name)
    if wrapped and not _holds(module, name, compute):
        raise TypeError(f"{module}.{name} was wrapped, and its module holds another: what wraps it does not "
                        "count; write a function of its own into a module")  # fmt: skip
    source, code = path.read_text(encoding="utf-8"), getattr(inspect.unwrap(compute), "__code__", None)
    if code is not None and code not in codes(source).get(code.co_qualname, ()):
        raise SourceChangedError(f"{module}.{name} is not what stands in {str(path)!r}: it was defined anew under its "
                                 "name, or the file was edited after it was imported; restart Python")  # fmt: skip
    return module_digest(module, source)


def _holds(module, name, compute):
    """Whether a function, or that of a bound method, is what its module has under its qualified name."""
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return getattr(found, "__func__", found) is getattr(compute, "__func__", compute)


# Arguments ---------------------------------------------------------------------------------------------------------


def describe(value: Any) -> Any:
    """What stands for an argument in the key of a cached result, as JSON can hold it.

    Plain data stand by their content: numbers, strings, containers, numpy arrays, tables, and dataclasses by the fields
    that count when two are compared; paths by their name and by the content of the file or folder. Text stands for
    itself: whether it names a file cannot be told, so a file that counts is passed as a ``Path``. Any other object
    stands by its `cache_key`, which must hold all that its results depend on, such as the checksum of a model's
    weights; a bound method by its object and name. Of an object whose class is in a file the source of it counts too,
    with all that its module imports within the library.

    Raises
    ------
    TypeError
        For anything else.
    """
    if type(value) in PLAIN:
        return value
    if isinstance(value, np.void):
        return ["record", repr(np.lib.format.dtype_to_descr(value.dtype)), value.tobytes().hex()]
    if isinstance(value, np.generic):
        return ["scalar", value.dtype.str, value.tobytes().hex()]
    if issubclass(type(value), np.ndarray) and type(value).__module__.split(".")[0] == "numpy":
        return _describe_array(value)
    if isinstance(value, pd.DataFrame | pd.Series | pd.Index):
        return _describe_table(value)
    if type(value) in (list, tuple, range):
        return [type(value).__name__, *map(describe, value)]
    if type(value) in (set, frozenset):
        return ["set", *sorted(json.dumps(describe(v)) for v in value)]
    if type(value) in (dict, OrderedDict, types.MappingProxyType):  # in its order, which may matter
        return ["dict", *([describe(k), describe(v)] for k, v in value.items())]
    if isinstance(value, Path):
        return ["path", str(value), files_digest(value, every=True)]
    if isinstance(value, types.MethodType):
        return ["method", describe(value.__self__), value.__func__.__qualname__]
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if hasattr(type(value), "cache_key") or hasattr(value, "cache_key"):
        try:
            check_methods(value)
            return ["object", kind, _class_digest(value), describe(value.cache_key)]
        except AttributeError as error:
            raise TypeError(f"a cached result cannot depend on a {kind}, whose cache_key fails: {error}") from error
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        counted = [field.name for field in dataclasses.fields(value) if field.compare]
        return ["dataclass", kind, _class_digest(value), *([name, describe(getattr(value, name))] for name in counted)]
    raise TypeError(
        f"a cached result cannot depend on a {kind}: pass plain data, or give the class a cache_key that holds all its "
        "results depend on (of a model the checksum of its weights)"
    )


def _class_digest(value):
    """Digest of the module of an object's class and of its imports; None for a class that is compiled.

    TypeError for one that was defined in a notebook or at the prompt, or is based on one: its source is not known.
    """
    if any(kind.__module__ == "__main__" for kind in type(value).__mro__):
        raise TypeError(f"no source of the class {type(value).__qualname__}: put it into a module of {LIBRARY}")
    module = type(value).__module__
    path = source_file(module)
    return module_digest(module, path.read_text(encoding="utf-8")) if path else None


def _describe_array(array):
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError("a cached result cannot depend on a masked array, whose mask would not count: fill it")
    if array.dtype.hasobject:
        return ["objects", list(array.shape), *map(describe, array.ravel().tolist())]
    content = digest(np.ascontiguousarray(array).tobytes())
    kind = "array" if type(array) in (np.ndarray, np.memmap) else type(array).__name__  # a matrix multiplies otherwise
    return [kind, repr(np.lib.format.dtype_to_descr(array.dtype)), list(array.shape), content]


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
    attrs = getattr(table, "attrs", None)  # an index has none
    beside = [describe(attrs)] if attrs else []
    return [type(table).__name__, describe(labels), kinds, describe(columns), *beside]


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
    TypeError, SourceChangedError
        As `function_digest` and `describe`, and if the arguments do not fit the function.
    """
    sources = function_digest(compute)
    counted = {name: value for name, value in options.items() if name != "progress"}
    bound = inspect.signature(compute).bind(*arguments, **counted).arguments
    owner = describe(compute.__self__) if isinstance(compute, types.MethodType) else None
    described = [compute.__module__, compute.__qualname__, owner, describe(dict(sorted(bound.items()))), versions()]
    described += [torch.cuda.is_available(), matmul_precision()]
    return digest(sources, json.dumps(described))
