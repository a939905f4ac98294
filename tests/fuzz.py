"""Odd arguments for every public function of the library, found by introspection; `test_fuzz` judges what comes.

`WORLD` holds an ordinary value for the name of a parameter, `SPECIAL` for that of one function where the name means
something else there. A parameter that neither knows gets an ordinary value by its annotation. Each draw takes the
ordinary arguments of a function and replaces one or two by odd ones of the same kind.
"""

import collections.abc
import dataclasses
import importlib
import inspect
import pkgutil
import types
import typing
from pathlib import Path

import numpy as np
import pandas as pd
import torch

import glauber_lib

ODD_NUMBERS = [
    -1,
    0,
    1,
    2,
    0.5,
    -0.0,
    1e-8,
    np.inf,
    -np.inf,
    np.nan,
    -(2**63),
    True,
    "3",
    "",
    None,
    [],
    [1],
    (2, 3),
    1j,
    np.int8(3),
    np.float32(0.1),
    np.array(2),
    np.array([2]),
    np.ma.masked,
    object(),
    {},
]
LARGE = [1e8, 1e300, 1e-300, 2**31, 2**63, 2**64]  # not for counts: as much work as they say would be done
ODD_TEXTS = [
    "",
    " ",
    "\n\t",
    "\x00",
    "🙂🧩",
    "שלום עולם",
    "مرحبا",
    "a\u2028b",
    "\u202e",
    "../x",
    "[MASK]",
    "word " * 20_000,
    "no such name",
    None,
    3,
    b"bytes",
    ["a"],
    np.str_("a"),
]
PLAIN = bool | int | float | str | Path | np.ndarray | np.number | torch.Tensor | pd.DataFrame | pd.Series


def public():
    """Every public function, class and method of the library as (name, callable, class or None)."""
    for module in pkgutil.walk_packages(glauber_lib.__path__, "glauber_lib."):
        if module.name.endswith("__main__"):
            continue
        found = importlib.import_module(module.name)
        for name, value in sorted(vars(found).items()):
            if name.startswith("_") or getattr(value, "__module__", None) != module.name:
                continue
            where = module.name.removeprefix("glauber_lib.")
            if inspect.isfunction(value):
                yield f"{where}.{name}", value, None
            elif inspect.isclass(value) and not _is_abstract(value):
                yield f"{where}.{name}", value, None
                for method, inner in sorted(vars(value).items()):
                    if inspect.isfunction(inner) and not method.startswith("_"):
                        yield f"{where}.{name}.{method}", inner, value


def _is_abstract(kind):
    return getattr(kind, "_is_protocol", False) or issubclass(kind, BaseException)


# Odd values --------------------------------------------------------------------------------------------------------


def odd_like(value, rng):
    """An odd value in the place of an ordinary one; and whether it says the same as that one."""
    if isinstance(value, bool):
        return _pick(rng, [1, 0, "no", None, np.True_, 2, [], np.array([True])]), False
    if isinstance(value, int | float | np.number):
        if rng.random() < 0.1:
            return _pick(rng, [np.array(value), np.float64(value)]), True
        return _pick(rng, ODD_NUMBERS if isinstance(value, int) else ODD_NUMBERS + LARGE), False
    if isinstance(value, str | Path):
        return _pick(rng, ODD_TEXTS), False
    if isinstance(value, np.ndarray):
        return odd_array(value, rng)
    if isinstance(value, torch.Tensor):
        array, same = odd_array(value.numpy(), rng)
        try:
            return torch.as_tensor(np.ascontiguousarray(array)), same
        except (TypeError, ValueError):
            return array, same
    if isinstance(value, pd.DataFrame | pd.Series):
        return odd_frame(value, rng), False
    if isinstance(value, list | tuple):
        if value and all(isinstance(v, bool | int | float | np.number) for v in value):
            return odd_array(np.array(value), rng)
        return _pick(
            rng, [type(value)(), list(value) * 2, value[:1], "text", None, [None], 3, *_with_odd(value, rng)]
        ), False
    if isinstance(value, dict):
        return _pick(rng, [{}, None, [], "text", {"no such": 3}, *_without_one(value, rng)]), False
    return value, True  # a model, a trace, a function: what has another type fails by the attribute that it lacks


def _pick(rng, values):
    return values[rng.integers(len(values))]


def _with_odd(values, rng):
    if not values or not isinstance(values[0], PLAIN):
        return []
    changed = list(values)
    k = rng.integers(len(changed))
    changed[k] = odd_like(changed[k], rng)[0]
    return [type(values)(changed)] * 4


def _without_one(value, rng):
    keys = list(value)
    if not keys:
        return []
    key = _pick(rng, keys)
    if not isinstance(value[key], PLAIN):
        return [{k: v for k, v in value.items() if k != key}]
    return [{k: v for k, v in value.items() if k != key}, {**value, key: odd_like(value[key], rng)[0]}]


def odd_array(array, rng):
    """An array in the place of an ordinary one."""
    array = np.asarray(array)
    same = [
        array.tolist(),
        np.asfortranarray(array),
        _read_only(array),
        np.repeat(array, 2, axis=0)[::2] if array.ndim else array,
    ]
    if array.dtype.kind == "i":
        same += [array.astype(np.int32), array.astype(np.int16)]
    if rng.random() < 0.2:
        return _pick(rng, same), True
    return _pick(rng, _odd_arrays(array, rng)), False


def _read_only(array):
    copy = array.copy()
    copy.setflags(write=False)
    return copy


def _odd_arrays(array, rng):
    """Other shapes, types and contents."""
    flat = array.reshape(-1)
    shapes = [array[None], array[..., None], array[:0] if array.ndim else array[None][:0], array.T, flat, flat[:1]]
    if array.ndim:
        shapes += [
            array[:1],
            array[:-1],
            np.concatenate([array, array[:1]]),
            array[::-1],
            array[..., :1],
            array[..., :0],
        ]
    types_ = [
        array.astype(object),
        array.astype(str),
        array.astype(complex),
        np.ma.masked_array(array, np.ones(array.shape, bool)),
        None,
        "text",
        3,
        object(),
        [array.tolist(), [1]],
        array.tolist() if array.ndim else [[]],
    ]
    contents = []
    if array.dtype.kind in "if" and array.size:
        for odd in (np.nan, np.inf, -np.inf, -1.0, 0.0, 0.5, 1e-8, 1e8, 1e300, 2.0**62):
            changed = array.astype(float).copy()
            changed.flat[rng.integers(array.size)] = odd
            contents.append(changed)
        contents += [
            np.zeros_like(array),
            np.full(array.shape, flat[0]),
            -array,
            array + 1,
            array * 1e6,
            array.astype(float) + 0.5,
        ]
        contents += [np.full(array.shape, np.nan)]
    if array.dtype.kind == "i" and array.size:
        for odd in (-1, -2, 2**40, 2**62):
            changed = array.astype(np.int64).copy()
            changed.flat[rng.integers(array.size)] = odd
            contents.append(changed)
        contents += [np.full(array.shape, -1), array.astype(np.uint64), array > 0]
    if array.dtype.kind == "b":
        contents += [array.astype(int), array.astype(float), np.ones_like(array), np.zeros_like(array), array * 2]
        contents += [np.where(array, np.nan, 0.0)]
    return shapes + types_ + contents * 2


def odd_frame(frame, rng):
    """A table in the place of an ordinary one."""
    if isinstance(frame, pd.Series) or not len(frame.columns):
        return _pick(rng, [frame[:0], frame * 2, None, "text", 3])
    column = _pick(rng, list(frame.columns))
    changed = frame.copy()
    if len(frame):
        values = frame[column].to_numpy().astype(object)
        values[rng.integers(len(values))] = _pick(rng, [np.nan, None, -1, "text", np.inf, 1e300])
        changed[column] = values
    typed = frame.copy()
    typed[column] = frame[column].astype(str)
    numeric = frame.copy()
    if frame[column].dtype.kind in "iuf" and len(frame):
        content = frame[column].to_numpy(dtype=float, copy=True)
        content[rng.integers(len(content))] = _pick(rng, [np.nan, -1.0, np.inf, 0.5, 1e300])
        numeric[column] = content
    doubled = frame.iloc[np.zeros(2, int)] if len(frame) else frame
    return _pick(
        rng,
        [
            frame[:0],
            frame.drop(columns=column),
            changed,
            typed,
            numeric,
            numeric,
            doubled,
            frame[:1],
            frame.to_dict("list"),
            None,
            frame.to_numpy(),
            frame.rename(columns={column: "other"}),
            frame.iloc[::-1],
            pd.DataFrame(),
        ],
    )


# Ordinary values ---------------------------------------------------------------------------------------------------


def by_annotation(annotation):
    """An ordinary value of a type; KeyError for one that has none."""
    text = str(annotation)
    if "_array_like" in text or annotation is np.ndarray:
        return np.array([0.2, 0.5, 0.9])
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        return by_annotation(typing.get_args(annotation)[0])
    if origin is not None and origin is not annotation:
        return by_annotation(origin)
    simple = {
        bool: False,
        int: 2,
        float: 0.5,
        str: "text",
        bytes: b"bytes",
        Path: Path("place"),
        list: [],
        dict: {},
        tuple: (),
        collections.abc.Sequence: [],
        collections.abc.Mapping: {},
        collections.abc.Iterable: [],
        typing.Any: None,
        collections.abc.Callable: np.mean,
        pd.DataFrame: pd.DataFrame({"x": [1.0, 2.0]}),
        pd.Index: pd.Index([1, 2]),
        torch.Tensor: torch.tensor([0.2, 0.8]),
        np.random.Generator: np.random.default_rng(0),
        BaseException: ValueError("x"),
        Exception: ValueError("x"),
        inspect.Parameter.empty: None,
        torch.dtype: torch.float32,
    }
    return simple[annotation]


def ordinary(name, signature, world, special):
    """Ordinary arguments of a function, by name; KeyError where there is none."""
    chosen = special.get(name, {})
    arguments = {}
    for parameter in signature.parameters.values():
        key = parameter.name
        if key in ("self", "cls") or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if key in chosen:
            arguments[key] = chosen[key]
        elif key in world and (parameter.default is parameter.empty or world[key] is not None):
            arguments[key] = world[key]
        elif parameter.default is not parameter.empty:
            arguments[key] = parameter.default
        else:
            arguments[key] = by_annotation(parameter.annotation)
    return arguments


# What came ---------------------------------------------------------------------------------------------------------


def numbers_in(value, depth=0):
    """Every array of floats within a result."""
    if isinstance(value, float | np.floating):
        yield np.asarray(value)
    elif isinstance(value, np.ndarray):
        if value.dtype.kind == "f":
            yield value
    elif isinstance(value, torch.Tensor):
        yield from numbers_in(value.detach().cpu().numpy())
    elif isinstance(value, pd.DataFrame):
        for k in range(value.shape[1]):
            yield from numbers_in(value.iloc[:, k].to_numpy())
    elif isinstance(value, pd.Series):
        yield from numbers_in(value.to_numpy())
    elif depth < 4 and isinstance(value, list | tuple | set):
        for one in value:
            yield from numbers_in(one, depth + 1)
    elif depth < 4 and isinstance(value, dict):
        yield from numbers_in(list(value.values()), depth + 1)
    elif depth < 4 and dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from numbers_in([getattr(value, field.name) for field in dataclasses.fields(value)], depth + 1)


def has_nan(value):
    """Whether a result holds a nan anywhere."""
    return any(np.isnan(array).any() for array in numbers_in(value))


def same(a, b):
    """Whether two results are equal, nan as nan."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return a.shape == b.shape and a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")
    if isinstance(a, torch.Tensor):
        return a.shape == b.shape and bool(torch.equal(a.nan_to_num(), b.nan_to_num()))
    if isinstance(a, pd.DataFrame | pd.Series | pd.Index):
        return a.equals(b)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and same(list(a.values()), list(b.values()))
    if dataclasses.is_dataclass(a) and not isinstance(a, type):
        return all(same(getattr(a, field.name), getattr(b, field.name)) for field in dataclasses.fields(a))
    if isinstance(a, float) and np.isnan(a):
        return np.isnan(b)
    if isinstance(a, bool | int | float | str | bytes | type(None) | np.generic):
        return bool(a == b)
    return True  # an object without a content that can be compared
