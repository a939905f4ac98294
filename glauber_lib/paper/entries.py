"""Results on disk without pickle: one zip file with JSON, arrays as npy, tables as parquet, and a checksum.

What is read is data and never code. A frozen dataclass is rebuilt by its class, which is looked up in this library
alone.
"""

import dataclasses
import importlib
import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from glauber_lib.paper.keys import LIBRARY, PLAIN, digest

NUMBERS = "biuf"  # kinds of numpy types that are parquet's too: truth values, integers, floats
OBJECTS = ("object", "str")  # types of columns whose cells are written as JSON


class Writer:
    """A result taken apart: a tree for JSON, and the files that it refers to.

    Attributes
    ----------
    files : dict of str to bytes
        Of every array and table its content.
    """

    def __init__(self):
        self.files: dict[str, bytes] = {}

    def tree(self, value: Any) -> Any:
        """`value` as JSON can hold it.

        Raises
        ------
        TypeError
            For a type that cannot be stored.
        """
        if type(value) in PLAIN:
            return value
        if type(value) is list:
            return [self.tree(v) for v in value]
        if type(value) is tuple:
            return {"tuple": [self.tree(v) for v in value]}
        if type(value) is dict:
            return {"dict": [[self.tree(k), self.tree(v)] for k, v in value.items()]}
        if isinstance(value, np.generic):
            return {"scalar": self.array(np.asarray(value))}
        if type(value) is np.ndarray:
            if value.dtype.hasobject and value.dtype.names:
                raise TypeError(f"an array of records with objects cannot be cached: {value.dtype}")
            if value.dtype.hasobject:
                return {"objects": self.tree(value.ravel().tolist()), "shape": list(value.shape)}
            return {"array": self.array(value)}
        if isinstance(value, pd.Index):
            return self.index(value)
        if getattr(value, "attrs", None) and isinstance(value, pd.Series | pd.DataFrame):
            raise TypeError(f"a table with attrs cannot be cached: clear them, got {value.attrs!r:.60}")
        if type(value) is pd.Series:
            return {"series": self.table(value.to_frame(name=0)), "name": self.tree(value.name)}
        if type(value) is pd.DataFrame:
            return {"table": self.table(value), "columns": self.index(value.columns)}
        return self.instance(value)

    def instance(self, value: Any) -> dict:
        """A dataclass of the library by its fields; another object of it by its arrays, where it has `to_arrays`."""
        kind = type(value)
        name = f"{kind.__module__}.{kind.__qualname__}"
        if kind.__module__.split(".")[0] == LIBRARY:
            if dataclasses.is_dataclass(value):
                fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
                return {"dataclass": name, "fields": self.tree(fields)}
            if hasattr(value, "to_arrays"):
                return {"object": name, "arrays": self.tree(value.to_arrays())}
        raise TypeError(
            f"a result of type {name} cannot be cached: return plain data, arrays, tables or a dataclass of {LIBRARY}"
        )

    def array(self, array: np.ndarray) -> str:
        """Name of the file of an array."""
        content = io.BytesIO()
        np.lib.format.write_array(content, array, allow_pickle=False)
        return self.add(content.getvalue(), "npy")

    def table(self, frame: pd.DataFrame) -> dict:
        """A table's file, the types of its columns and its index; objects are written as JSON."""
        columns = {}
        for k in range(frame.shape[1]):
            column = frame.iloc[:, k]
            if not _is_stored(column.dtype):
                raise TypeError(f"a column of type {column.dtype} cannot be cached: convert it to a type of numpy")
            if str(column.dtype) in OBJECTS:
                columns[str(k)] = pa.array([json.dumps(self.tree(v)) for v in column], pa.string())
            else:
                columns[str(k)] = pa.array(column.to_numpy(), from_pandas=False)  # NaN stays NaN, no missing value
        content = io.BytesIO()
        pq.write_table(pa.table(columns), content)
        file = self.add(content.getvalue(), "parquet")
        return {"file": file, "types": [str(kind) for kind in frame.dtypes], "index": self.index(frame.index)}

    def index(self, index: pd.Index) -> dict:
        """Labels of rows or columns."""
        name = self.tree(index.name)
        if isinstance(index, pd.RangeIndex):
            return {"range": [index.start, index.stop, index.step], "name": name}
        if isinstance(index, pd.MultiIndex) or not _is_stored(index.dtype):
            raise TypeError(f"an index {type(index).__name__} of type {index.dtype} cannot be cached: reset it first")
        return {"labels": self.tree(index.to_numpy()), "type": str(index.dtype), "name": name}

    def add(self, content: bytes, suffix: str) -> str:
        """Put a file beside the tree; its name."""
        name = f"{len(self.files)}.{suffix}"
        self.files[name] = content
        return name


class Reader:
    """A result put together again from what `Writer` made of it.

    Parameters
    ----------
    files : dict of str to bytes
    """

    def __init__(self, files: dict[str, bytes]):
        self.files = files

    def value(self, tree: Any) -> Any:
        """What a tree stands for.

        Raises
        ------
        Exception
            Of whatever kind, if the tree is none that `Writer` makes.
        """
        if isinstance(tree, list):
            return [self.value(v) for v in tree]
        match tree:
            case {"tuple": items}:
                return tuple(map(self.value, items))
            case {"dict": items}:
                return {self.value(k): self.value(v) for k, v in items}
            case {"scalar": file}:
                return self.array(file)[()]
            case {"array": file}:
                return self.array(file)
            case {"objects": items, "shape": shape}:
                return object_array(self.value(items)).reshape(shape)
            case {"range": bounds, "name": name}:
                return pd.RangeIndex(*bounds, name=self.value(name))
            case {"labels": labels, "type": kind, "name": name}:
                return pd.Index(self.value(labels), dtype=kind, name=self.value(name), tupleize_cols=False)
            case {"series": table, "name": name}:
                return self.frame(**table)[0].rename(self.value(name))
            case {"table": table, "columns": columns}:
                return self.frame(**table).set_axis(self.value(columns), axis=1)
            case {"dataclass": name, "fields": fields}:
                return library_class(name)(**self.value(fields))
            case {"object": name, "arrays": arrays}:
                return library_class(name).from_arrays(self.value(arrays))
            case dict():
                raise ValueError(f"unknown entry {list(tree)}")
        return tree

    def array(self, file: str) -> np.ndarray:
        """An array by its file."""
        return np.lib.format.read_array(io.BytesIO(self.files[file]), allow_pickle=False)

    def frame(self, file: str, types: list[str], index: Any) -> pd.DataFrame:
        """A table by its file, with columns 0, 1, ... of the given types."""
        stored = pq.read_table(io.BytesIO(self.files[file]))
        columns = {}
        for k, kind in enumerate(types):
            column = stored.column(k)
            if kind in OBJECTS:
                values = object_array([self.value(json.loads(cell)) for cell in column.to_pylist()])
            else:
                values = np.array(column.to_numpy())
            columns[k] = pd.Series(values, dtype=kind)
        labels = self.value(index)
        return pd.DataFrame(columns, index=range(len(labels)), columns=range(len(types))).set_axis(labels, axis=0)


def _is_stored(kind):
    """Whether columns of a type can be stored."""
    return str(kind) in OBJECTS or (isinstance(kind, np.dtype) and kind.kind in NUMBERS)


def object_array(values: list) -> np.ndarray:
    """A list as an array of objects of one dimension, whatever they are."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def library_class(name: str) -> type:
    """A class of this library by its module and name; ValueError for any other name."""
    module, _, kind = name.rpartition(".")
    if module.split(".")[0] != LIBRARY:
        raise ValueError(f"{name!r} is no class of {LIBRARY}")
    found = getattr(importlib.import_module(module), kind, None)
    if not isinstance(found, type) or found.__module__ != module:
        raise ValueError(f"{name!r} is no class of {LIBRARY}")
    return found


def _checksum(files):
    return digest(*(part for item in sorted(files.items()) for part in item))


def write_entry(path: Path, value: Any) -> None:
    """Write a result to one file, at once: whoever reads finds the whole of it or nothing.

    Raises
    ------
    TypeError
        If a part of it is of a type that cannot be stored.
    """
    writer = Writer()
    tree = json.dumps(writer.tree(value))
    files = {"value.json": tree.encode(), **writer.files}
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
            for name, content in {**files, "checksum": _checksum(files).encode()}.items():
                file.writestr(name, content)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def read_entry(path: Path) -> Any:
    """Read what `write_entry` wrote.

    Raises
    ------
    Exception
        Of whatever kind, if the file was cut short or altered; ValueError if only the checksum says so. OSError, such
        as FileNotFoundError or IsADirectoryError, if it cannot be read.
    """
    with zipfile.ZipFile(path) as file:
        files = {name: file.read(name) for name in file.namelist()}
    if files.pop("checksum", b"").decode() != _checksum(files):
        raise ValueError("its content does not fit its checksum")
    return Reader(files).value(json.loads(files["value.json"]))
