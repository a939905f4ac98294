"""Cached results: what their key depends on, how they are stored without pickle, which are dropped."""

import dataclasses
import functools
import importlib
import json
import linecache
import math
import multiprocessing
import os
import py_compile
import shutil
import signal
import sys
import types
import zipfile
from collections import Counter, defaultdict
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import random_table
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from transformers import BertForMaskedLM

from glauber_lib import (
    chains,
    checksums,
    draws,
    embedded,
    exact,
    growth,
    imports,
    incompatibility,
    instruments,
    language,
    models,
    networks,
    sources,
)
from glauber_lib.chains import run_chains
from glauber_lib.couplings import coalesce
from glauber_lib.influence import measure_influence, replacement_tokens
from glauber_lib.models import IsingModel, RestrictedModel, TabularModel
from glauber_lib.paper import ROOT, cache, keys, profiles
from glauber_lib.paper.cache import cached
from glauber_lib.paper.entries import library_class, read_entry, write_entry
from glauber_lib.traces import Trace

CALLS = []


def add(x, y=0, progress=None):
    CALLS.append((x, y))
    return x + y


def rank(model, seed=0):
    CALLS.append(model)
    return len(CALLS)


def give(value):
    """What a result is, whatever it is computed from."""
    CALLS.append(value)
    return RESULTS[value]


RESULTS = {}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty folder for cached results."""
    CALLS.clear()
    for name in ("GLAUBER_CACHE", "GLAUBER_CACHE_BYTES"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "cache"


@pytest.fixture
def keep(folder):
    """A function that computes what is not in the cache."""
    return lambda compute, *arguments, **options: cached(folder, compute, arguments, options)


@pytest.fixture
def library(tmp_path, monkeypatch):
    """A copy of the library's sources, which count as those of the functions."""
    shutil.copytree(ROOT / "glauber_lib", tmp_path / "glauber_lib", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(profiles, "ROOT", tmp_path)
    monkeypatch.setitem(sources.FOLDERS, sources.LIBRARY, tmp_path)
    return tmp_path / "glauber_lib"


# What the key depends on -------------------------------------------------------------------------------------------


def test_a_result_is_computed_once_and_again_when_an_argument_changes(keep):
    assert [keep(add, 1, y=2), keep(add, 1, y=2), keep(add, 1, y=3), keep(add, 2, y=2)] == [3, 3, 4, 4]
    assert CALLS == [(1, 2), (1, 3), (2, 2)]
    assert keep(add, 1, 2) == keep(add, y=2, x=1) == 3 and len(CALLS) == 3  # by position or by name


def test_a_progress_title_does_not_count(keep):
    keep(add, 1, progress="adding")
    keep(add, 1, progress="still adding")
    keep(add, 1)
    assert len(CALLS) == 1


FRAME = pd.DataFrame({"a": [1, 2], "text": ["x", "y"], "state": [(1, 2), (3,)]})
DIFFERENT = {  # pairs that must not be taken for each other
    "truth and number": (True, 1),
    "number and float": (1, 1.0),
    "zeros": (0.0, -0.0),
    "string and number": ("1", 1),
    "list and tuple": ([1, 2], (1, 2)),
    "tuples": ((1, (2, 3)), ((1, 2), 3)),
    "mappings": ({"a": 1, "b": 2}, {"b": 2, "a": 1}),  # labels, whose order matters
    "arrays": (np.arange(3), np.arange(3) + 1),
    "shapes": (np.zeros((2, 3)), np.zeros((3, 2))),
    "precisions": (np.zeros(2, np.float32), np.zeros(1, np.float64)),
    "array and matrix": (np.ones((2, 2)), np.ones((2, 2)).view(np.matrix)),
    "scalars": (np.float32(1), np.float64(1)),
    "objects": (np.array([(1, 2), None], object), np.array([(1, 3), None], object)),
    "series": (pd.Series([1, 1], name="text"), pd.Series([2, 1], name="text")),
    "names of series": (pd.Series([1], name="a"), pd.Series([1], name="b")),
    "cells": (FRAME, FRAME.assign(state=[(1, 2), (4,)])),
    "columns": (FRAME, FRAME.rename(columns={"a": "b"})),
    "rows": (FRAME, FRAME.iloc[::-1]),
    "types of columns": (FRAME, FRAME.astype({"a": float})),
    "paths": (ROOT / "1" / "same.txt", ROOT / "2" / "same.txt"),
    "rectangles": tuple(incompatibility.Rectangles(*np.full((6, 1), k)) for k in range(2)),
}


@pytest.mark.parametrize("pair", DIFFERENT)
def test_things_that_differ_are_not_taken_for_each_other(keep, pair):
    first, second = DIFFERENT[pair]
    assert keep(rank, first) == 1 and keep(rank, second) == 2 and keep(rank, first) == 1


@pytest.mark.parametrize("pair", DIFFERENT)
def test_the_same_thing_made_again_is_taken_for_it(keep, pair):
    copy = lambda value: value.copy() if hasattr(value, "copy") else value  # noqa: E731
    assert keep(rank, DIFFERENT[pair][0]) == keep(rank, copy(DIFFERENT[pair][0])) == 1


def test_of_an_array_the_content_counts_and_not_its_place_in_memory(keep):
    array = np.arange(12.0).reshape(3, 4)
    assert keep(rank, array) == keep(rank, np.asfortranarray(array)) == keep(rank, np.repeat(array, 2, 0)[::2]) == 1


@pytest.mark.parametrize("value", [object(), np.mean, lambda: 1, {1: object()}])
def test_what_is_no_plain_data_and_has_no_key_is_refused_with_what_to_do(keep, value):
    with pytest.raises(TypeError, match="give the class a cache_key"):
        keep(rank, value)
    assert CALLS == []


def test_a_table_of_a_type_that_is_not_described_in_full_is_refused(keep):
    with pytest.raises(TypeError, match="cannot depend on a masked array"):
        keep(rank, np.ma.array([1, 2], mask=[0, 1]))
    with pytest.raises(TypeError, match=r"\['category'\]: convert"):
        keep(rank, pd.DataFrame({"a": pd.Categorical(["x", "y"])}))


class Tagged(np.ndarray):
    """An array with something beside its numbers."""


def test_an_array_of_the_reader_s_own_kind_is_refused_for_what_it_may_hold_besides(keep):
    with pytest.raises(TypeError, match=r"cannot depend on a test_cache\.Tagged"):
        keep(rank, np.ones(2).view(Tagged))
    assert keep(rank, np.ones(2)) == 1


def test_a_function_that_has_no_source_of_its_own_is_refused(keep):
    with pytest.raises(TypeError, match="only a function of a module can be cached"):
        keep(lambda: 1)
    with pytest.raises(TypeError, match="only a function of a module can be cached"):
        keep(partial(rank, 1))


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A module of the reader's own: a function that writes it and imports it anew."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # two writings in a second have one time stamp

    def write(source, **others):
        for name, text in {"own_module": source, **others}.items():
            path = (tmp_path / name.replace(".", "/")).with_suffix(".py")
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        forget()
        return importlib.import_module("own_module")

    def forget():
        for name in [name for name in sys.modules if name.startswith("own_")]:
            del sys.modules[name]
        importlib.invalidate_caches()
        linecache.clearcache()

    yield write
    forget()


def test_a_function_that_is_written_anew_in_its_file_is_computed_anew(keep, own):
    assert keep(own("def f(x):\n    return x + 1\n").f, 1) == 2
    assert keep(own("def f(x):\n    return x + 2\n").f, 1) == 3


@pytest.mark.parametrize("change", ["defined anew", "file edited"])
def test_a_function_that_is_not_what_stands_in_its_file_is_computed_and_not_kept(keep, own, folder, change):
    source = "def f(x):\n    return x + 1\n"
    module = own(source)
    assert keep(module.f, 1) == 2
    if change == "defined anew":
        exec(source.replace("1", "2"), vars(module))
    else:
        own(source.replace("1", "2"))
    with pytest.warns(UserWarning, match=r"own_module.f is not what stands in .*: .* Computed and not kept"):
        assert keep(module.f, 1) == (3 if change == "defined anew" else 2)
    assert len(list(folder.iterdir())) == 1


USERS = {  # how a module of the reader's own uses a second one
    "module": "import own_second\n\ndef f(x):\n    return own_second.g(x)\n",
    "name": "from own_second import g\n\ndef f(x):\n    return g(x)\n",
    "later": "def f(x):\n    import own_second\n    return own_second.g(x)\n",
    "by a third": "import own_third\n\ndef f(x):\n    return own_third.g(x)\n",
}
SECOND = "SHIFT = 1\n\ndef g(x):\n    return x + SHIFT\n"


@pytest.mark.parametrize("way", USERS)
def test_a_second_module_of_the_reader_s_own_counts_too(keep, own, way):
    others = {"own_second": SECOND, "own_third": "from own_second import *\n"}
    assert keep(own(USERS[way], **others).f, 1) == keep(own(USERS[way], **others).f, 1) == 2
    assert keep(own(USERS[way], **{**others, "own_second": SECOND.replace("= 1", "= 2")}).f, 1) == 3


@pytest.mark.parametrize("initial", [{"own_package.__init__": ""}, {}])
def test_the_modules_of_the_reader_s_own_package_count_before_they_are_loaded(keep, own, initial):
    source = "def f(x):\n    from own_package import second\n    return second.g(x)\n"
    for shift in (1, 2):
        module = own(source, **initial, **{"own_package.second": SECOND.replace("= 1", f"= {shift}")})
        assert keep(module.f, 1) == 1 + shift


@pytest.mark.parametrize("change", ["function replaced", "constant replaced", "file edited"])
def test_a_second_module_that_is_not_what_stands_in_its_file_is_refused(keep, own, folder, change):
    module = own(USERS["module"], own_second=SECOND)
    assert keep(module.f, 1) == 2
    if change == "file edited":
        (folder.parent / "own_second.py").write_text(SECOND.replace("= 1", "= 2"))
    else:
        name, value = ("SHIFT", 7) if change == "constant replaced" else ("g", lambda x: x + 7)
        setattr(module.own_second, name, value)
    with pytest.warns(UserWarning, match=r"own_second\.\w+ is not what stands in .*own_second.py': .* and not kept"):
        assert keep(module.f, 1) == (2 if change == "file edited" else 8)
    assert len(list(folder.iterdir())) == 1


HOLDS = """import math
import functools
from math import sqrt
import numpy as np
import own_third

LIM = float(5)
ARR = np.array([1.0, 2.0])
A, B = 1, 2
TABLE = dict(a=1)
KNOWN = dict()
NESTED = ((1, float(2)), frozenset(range(3)))

class C:
    scale = 1.0
    other = float(3)
    count = 0

    def of(self, x, by=1, *, to=float(2)):
        C.count += 1
        self.scale
        return x

def hidden(function):
    return functools.partial(function, 1)

@hidden
def partly(x):
    return x

def f(x, by=float(1), *, to=1):
    KNOWN[len(KNOWN)] = x
    return C().of(x)
"""
CHANGES = {
    "LIM": lambda m: setattr(m, "LIM", 6.0),
    "ARR": lambda m: m.ARR.__setitem__(0, 5.0),
    "A": lambda m: setattr(m, "A", 3),
    "NESTED": lambda m: setattr(m, "NESTED", ((1, 3.0), frozenset(range(3)))),
    "TABLE": lambda m: setattr(m, "TABLE", {"a": 1}),
    r"C\.scale": lambda m: setattr(m.C, "scale", 99.0),
    r"C\.other": lambda m: delattr(m.C, "other"),
    r"C\.of\(0\)": lambda m: setattr(m.C.of, "__defaults__", (7,)),
    r"C\.of\(to\)": lambda m: m.C.of.__kwdefaults__.update(to=7),
    r"f\(0\)": lambda m: setattr(m.f, "__defaults__", (7,)),
    r"f\(to\)": lambda m: m.f.__kwdefaults__.update(to=7),
    "own_third": lambda m: setattr(m, "own_third", math),
    "math": lambda m: setattr(m, "math", np),
    "sqrt": lambda m: setattr(m, "sqrt", math.exp),
    "partly": lambda m: setattr(m, "partly", len),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_a_second_module_holds_is_compared_with_what_it_held_at_first(keep, own, folder, what):
    user = own(USERS["module"].replace("g(x)", "f(x)"), own_second=HOLDS, own_third="")
    assert [keep(user.f, x) for x in (1, 2, 1)] == [1, 2, 1] and len(list(folder.iterdir())) == 2
    CHANGES[what](user.own_second)
    with pytest.warns(UserWarning, match=rf"own_second\.{what} is not what .* and not kept"):
        keep(user.f, 1)


def test_a_module_that_is_imported_anew_is_seen_for_the_first_time(keep, own):
    for _ in range(2):
        assert keep(own(HOLDS.replace("import own_third\n", "")).f, 1) == 1


def test_what_is_installed_counts_by_no_source(tmp_path, monkeypatch):
    for place in ("site-packages", "mine"):
        (tmp_path / place).mkdir()
        (tmp_path / place / f"own_{place[:4]}.py").write_text("")
        monkeypatch.syspath_prepend(str(tmp_path / place))
    found = keys.imported_sources("import json, numpy, own_site, own_mine, nowhere_at_all\nimport sklearn.svm\n")
    assert list(found) == ["own_mine"]


def test_a_package_counts_where_a_module_of_it_is_imported_by_its_whole_name(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_pack" / "room").mkdir(parents=True)
    for place in ("own_pack", "own_pack/room"):
        (tmp_path / place / "__init__.py").write_text("")
    (tmp_path / "own_pack" / "room" / "inner.py").write_text("")
    found = keys.imported_sources("import own_pack.room.inner\n")
    assert list(found) == ["own_pack", "own_pack.room", "own_pack.room.inner"]
    assert list(keys.imported_sources("from own_pack.room.inner import f\n")) == ["own_pack.room.inner"]


def test_a_compiled_module_of_the_reader_counts_by_its_content(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_calls.py").write_text("import own_fast\n")
    found = []
    for factor in (1, 9):
        (tmp_path / "fast.txt").write_text(f"def f(x):\n    return x * {factor}\n")
        py_compile.compile(str(tmp_path / "fast.txt"), cfile=str(tmp_path / "own_fast.pyc"))
        for name in ("own_fast", "own_calls"):  # as in the next session
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        importlib.import_module("own_calls")
        found += [
            keys.imported_sources("import own_fast\n")["own_fast"],
            imports.sources_below("own_calls")["own_fast"],
        ]
    assert found[0] == found[1] != found[2] == found[3]


def test_what_changes_as_a_module_runs_is_its_own_affair(keep, own):
    source = (
        "KNOWN = {}\nCOUNT = 0\n\ndef g(x):\n    global COUNT\n    COUNT += 1\n    KNOWN[x] = COUNT\n    return x\n"
    )
    module = own("import own_second\n\ndef f(x):\n    return own_second.g(x)\n", own_second=source)
    assert [keep(module.f, x) for x in (1, 2, 1)] == [1, 2, 1] and module.own_second.COUNT == 2


REPLACED = {
    "function": (draws, "uniforms", "draws.uniforms"),
    "name that it was imported under": (chains, "check_states", "chains.check_states"),
    "method": (TabularModel, "scores", "models.TabularModel"),
    "constant": (models, "LARGEST", "models.LARGEST"),
}


@pytest.mark.parametrize("what", REPLACED)
def test_what_is_replaced_in_the_library_is_seen_and_the_result_is_not_kept(keep, folder, monkeypatch, what):
    owner, name, said = REPLACED[what]
    before = getattr(owner, name)
    assert keep(run_chains, MODEL, [[0, 0]], n_steps=5).n_steps == 5
    monkeypatch.setattr(owner, name, 2**10 if isinstance(before, int) else lambda *a, **b: before(*a, **b))
    with pytest.warns(UserWarning, match=rf"glauber_lib\.{said} is not what stands in .*: .* Computed and not kept"):
        keep(run_chains, MODEL, [[0, 0]], n_steps=5)
    assert len(list(folder.iterdir())) == 1
    monkeypatch.undo()
    keep(run_chains, MODEL, [[0, 0]], n_steps=5)


TABLES = {
    "laws of growth": growth.GROWTH, "topics": instruments.TOPICS, "heads": networks.HEADS,
    "embedded models": embedded.EMBEDDED, "one of them": embedded.EMBEDDED["minilm-3l"], "packages": embedded.PACKAGES,
}  # fmt: skip


@pytest.mark.parametrize("table", TABLES)
def test_a_table_of_the_library_cannot_be_written_to(table):
    with pytest.raises(TypeError, match="does not support item assignment"):
        TABLES[table]["other"] = None
    with pytest.raises(AttributeError, match="'tuple' object has no attribute 'append'"):
        instruments.TOPICS["food"].append("tea")


def test_of_a_path_the_content_counts(keep, tmp_path):
    file = tmp_path / "data" / "mine.txt"
    file.parent.mkdir()
    assert keep(rank, file) == 1
    for k, content in enumerate(["one", "two"]):
        file.write_text(content)
        assert keep(rank, file) == keep(rank, file) == 2 + 2 * k
        assert keep(rank, file.parent) == keep(rank, file.parent) == 3 + 2 * k


def test_a_change_of_the_reader_s_own_class_makes_the_results_of_it_stale(keep, own):
    source = "class Model:\n    cache_key = 'the same'\n    size = 1\n"
    assert keep(rank, own(source).Model()) == keep(rank, own(source).Model()) == 1
    assert keep(rank, own(source.replace("= 1", "= 2")).Model()) == 2


def test_a_model_counts_by_its_weights_and_vocabulary(keep, tiny_folders):
    load = lambda **options: language.load_model(tiny_folders["bert"], **options)  # noqa: E731
    assert keep(rank, load()) == keep(rank, load(batch_tokens=50)) == 1
    changed = load()
    assert keep(rank, changed) == 1
    changed.network.bert.embeddings.word_embeddings.weight.data[7, 7] += 1e-4
    assert keep(rank, changed) == 2
    assert keep(rank, load(vocabulary=range(300, 310))) == 3
    assert keep(rank, random_table(2, 2)) == 4
    assert keep(rank, random_table(2, 2, seed=1)) == 5
    assert keep(rank, random_table(2, 2)) == 4  # the same again, another object


def test_a_model_counts_by_what_computes(keep, tiny_folders):
    load = lambda **options: language.load_model(tiny_folders["bert"], **options)  # noqa: E731
    assert keep(rank, load()) == 1
    eager = BertForMaskedLM.from_pretrained(tiny_folders["bert"], attn_implementation="eager")
    assert keep(rank, language.MaskedLM(eager, load().tokenizer)) == 2
    compiled = load(compiled=True)  # nothing is compiled before it is asked
    assert keep(rank, compiled) == 3
    assert keep(rank, load()) == 1 and keep(rank, load().double()) == keep(rank, compiled.double()) == 4


def test_a_model_whose_weights_are_written_to_counts_anew(keep, tiny_folders):
    model = language.load_model(tiny_folders["bert"])
    assert keep(rank, model) == keep(rank, model) == 1
    weights = {name: weight + 1 for name, weight in model.network.state_dict().items()}
    model.network.load_state_dict(weights)
    assert keep(rank, model) == 2


def test_a_table_of_a_joint_is_not_taken_for_the_same_table_without(keep):
    log_joint = np.random.default_rng(0).normal(size=(2, 2))
    assert keep(rank, TabularModel.from_joint(log_joint)) == 1
    assert keep(rank, TabularModel(np.stack([log_joint] * 2))) == 2


def test_the_precision_of_a_graphics_card_counts(keep):
    assert keep(add, 1) == 1
    before = torch.backends.cuda.matmul.allow_tf32
    try:
        torch.backends.cuda.matmul.allow_tf32 = not before
        assert keep(add, 1) == 1
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    assert len(CALLS) == 2


def test_the_precision_of_the_processor_counts_also_by_the_newer_setting(keep):
    assert keep(add, 1) == 1
    before = torch.backends.mkldnn.matmul.fp32_precision
    try:
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"
        assert checksums.matmul_precision()["cpu"] == "bf16"
        assert keep(add, 1) == 1 and len(CALLS) == 2
    finally:
        torch.backends.mkldnn.matmul.fp32_precision = before


def test_a_method_counts_by_its_object_and_its_name(keep, tiny_folders):
    models = [language.load_model(tiny_folders["gpt2"], causal=True) for _ in range(2)]
    assert keep(rank, models[0].proposals) == keep(rank, models[1].proposals) == 1
    assert keep(rank, models[0].scores) == 2


def test_a_method_that_is_computed_counts_by_its_object(keep):
    tables = [random_table(2, 2, seed=seed) for seed in (0, 1, 0)]
    results = [keep(table.to_arrays)["table"] for table in tables]
    assert np.array_equal(results[0], results[2]) and not np.array_equal(results[0], results[1])


MODEL = random_table(2, 3)


def chains_key(model=MODEL):
    keys._SEEN.clear()  # as in a process that begins now
    return keys.result_key(run_chains, [model, [[0, 0]]], {"n_steps": 5})


@pytest.mark.parametrize("module", ["chains", "draws", "models", "traces"])
def test_a_change_of_a_function_s_module_or_of_what_that_imports_makes_its_results_stale(library, module):
    before = chains_key()
    with (library / f"{module}.py").open("a") as file:
        file.write("\n# another line\n")
    assert chains_key() != before


@pytest.mark.parametrize("module", ["chains", "draws"])
def test_a_library_edited_in_the_middle_of_a_process_has_no_key(library, module):
    chains_key()
    with (library / f"{module}.py").open("a") as file:
        file.write("\n# another line\n")
    with pytest.raises(keys.SourceChangedError, match=rf"{module}.py' was edited after .* restart Python"):
        keys.result_key(run_chains, [MODEL, [[0, 0]]], {"n_steps": 5})


@pytest.mark.parametrize("module", ["plotting", "stats", "paper/run", "language", "new"])
def test_a_change_of_what_a_function_does_not_import_recomputes_nothing(library, module):
    before = chains_key()
    with (library / f"{module}.py").open("a") as file:
        file.write("\n# another line\n")
    assert chains_key() == before


def test_a_change_of_the_class_of_a_model_makes_the_results_of_it_stale(library, tiny):
    small = RestrictedModel(tiny["bert"], np.arange(4), [0, 1], [5, 6])
    before = chains_key(tiny["bert"]), chains_key(small), chains_key()
    with (library / "language.py").open("a") as file:
        file.write("\n# another line\n")
    after = chains_key(tiny["bert"]), chains_key(small), chains_key()
    assert [x == y for x, y in zip(before, after, strict=True)] == [False, False, True]


def test_an_import_within_a_function_and_a_relative_one_count_too(library):
    (library / "room").mkdir()
    (library / "room" / "__init__.py").write_text("")
    (library / "room" / "inner.py").write_text("def f():\n    from . import other\n    from ..exact import margin\n")
    (library / "room" / "other.py").write_text("import glauber_lib.topics\n")
    found = keys.imported_sources("import numpy\nfrom glauber_lib.room.inner import f\n")
    assert {"glauber_lib.room.inner", "glauber_lib.room.other", "glauber_lib.exact", "glauber_lib.topics"} <= set(found)
    assert "glauber_lib.plotting" not in found and "glauber_lib.paper" not in found


def test_an_upgrade_makes_results_stale(monkeypatch):
    before = chains_key()
    monkeypatch.setattr(keys, "versions", lambda: {"torch": "3.0"})
    assert chains_key() != before


# How results are stored --------------------------------------------------------------------------------------------


def assert_same(a, b):
    """Equal in kind, type and every bit."""
    assert type(a) is type(b)
    if isinstance(a, np.ndarray):
        assert a.dtype == b.dtype and a.shape == b.shape
        if a.dtype.hasobject:
            assert_same(a.ravel().tolist(), b.ravel().tolist())
        else:
            assert a.tobytes() == b.tobytes()
    elif isinstance(a, pd.DataFrame):
        assert list(map(str, a.dtypes)) == list(map(str, b.dtypes))
        for labels in ("index", "columns"):
            assert_same(getattr(a, labels), getattr(b, labels))
        for k in range(a.shape[1]):
            assert_same(a.iloc[:, k].to_numpy(), b.iloc[:, k].to_numpy())
    elif isinstance(a, pd.Index | pd.Series):
        assert a.dtype == b.dtype and a.name == b.name
        assert_same(a.to_numpy(), b.to_numpy())
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_same(x, y)
    elif isinstance(a, dict):
        assert_same(list(a.items()), list(b.items()))
    elif dataclasses.is_dataclass(a):
        assert_same({f.name: getattr(a, f.name) for f in dataclasses.fields(a)},
                    {f.name: getattr(b, f.name) for f in dataclasses.fields(b)})  # fmt: skip
    elif isinstance(a, TabularModel):
        assert_same(a.to_arrays(), b.to_arrays())
    elif isinstance(a, float | np.floating):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()  # also -0.0 and nan
    else:
        assert a == b


def stored(value, path):
    """A value after the way to the disk and back."""
    write_entry(path, value)
    assert [other.name for other in path.parent.iterdir()] == [path.name]  # nothing partial is left
    return read_entry(path)


numbers = st.floats(allow_nan=True, allow_infinity=True, width=32) | st.integers(-(2**80), 2**80) | st.booleans()
atoms = st.none() | numbers | st.text(max_size=8)
arrays = hnp.arrays(
    st.sampled_from(["f2", "f4", "f8", "i1", "i2", "i8", "u4", "?", "<U3", "c8"]),
    hnp.array_shapes(min_dims=0, min_side=0),
)
columns = [
    st.lists(st.floats(width=32), min_size=3, max_size=3).map(lambda v: np.array(v, np.float32)),
    st.lists(st.integers(-100, 100), min_size=3, max_size=3).map(lambda v: np.array(v, np.int16)),
    st.lists(st.booleans(), min_size=3, max_size=3).map(np.array),
    st.lists(st.text(max_size=4), min_size=3, max_size=3),
    st.lists(atoms | st.tuples(atoms, atoms), min_size=3, max_size=3).map(lambda v: pd.Series(v, dtype=object)),
]
tables = st.lists(st.one_of(columns), max_size=4).map(lambda v: pd.DataFrame({f"c{k}": x for k, x in enumerate(v)}))
values = st.recursive(
    atoms | arrays | tables,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers() | st.tuples(st.integers()), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(value=values)
@example(value=[-0.0, float("nan"), float("inf"), -float("inf"), 2**70, np.float32(np.nan), np.int8(3), np.bool_(True)])
@example(value={"table": {"columns": 1}, ("tuple",): {"tuple": 1}})  # what the tree itself is written with
@example(value=np.asfortranarray(np.arange(6.0).reshape(2, 3)))
@example(value=pd.DataFrame({"a": [1.0, -0.0, np.nan]}, index=[5, 3, 3]).rename_axis("k"))
@example(value=pd.DataFrame({"text": ["x", None], "state": [(1, 2), ()]}).iloc[:0])
@example(value=pd.DataFrame({0: [1], (1, "a"): [2]}))
@example(value=pd.DataFrame([[1, 2]], columns=["same", "same"]))
@example(value=pd.DataFrame(index=range(2, 9, 3)))
@example(value=pd.Series([1, 2], name="count", index=["a", "b"]))
@example(value=pd.Series([(1, 2), None], index=pd.Index([(1, 2), (3,)], tupleize_cols=False)))
def test_a_value_comes_back_with_every_bit_and_type(tmp_path_factory, value):
    assert_same(value, stored(value, tmp_path_factory.mktemp("entry") / "entry.zip"))


def test_what_the_notebooks_cache_comes_back_with_every_bit(tmp_path):
    model, contexts = random_table(3, 4), np.array([[0, 1, 2], [3, 2, 1]])
    results = [
        run_chains(model, contexts, n_steps=20, temperature=[0.5, 1.0]),
        coalesce(model, contexts[:1], contexts[1:], n_steps=20),
        measure_influence(model, contexts, replacement_tokens(model, contexts, 2), [0.5, 1.0]),
        incompatibility.sample_rectangles(model, contexts, 5, top=3),
        exact.tabulate(model, 3),
        TabularModel.from_joint(np.arange(8.0).reshape(2, 2, 2)),
    ]
    for k, result in enumerate(results):
        (tmp_path / str(k)).mkdir()
        assert_same(result, stored(result, tmp_path / str(k) / "entry.zip"))
    assert np.array_equal(exact.transition_matrix(results[4], 3).todense(), exact.transition_matrix(model, 3).todense())


def test_an_entry_holds_no_pickle(tmp_path):
    write_entry(tmp_path / "entry.zip", [np.arange(3), FRAME, run_chains(MODEL, [[0, 0]], n_steps=5)])
    with zipfile.ZipFile(tmp_path / "entry.zip") as file:
        assert {name.rpartition(".")[2] for name in file.namelist()} == {"json", "npy", "parquet", "checksum"}
        json.loads(file.read("value.json"))


@pytest.mark.parametrize(
    "value", [object(), {1, 2}, pd.DataFrame({"a": pd.Categorical(["x"])}), IsingModel(np.zeros((2, 2))), len]
)
def test_a_result_that_cannot_be_stored_is_refused_and_leaves_nothing(tmp_path, value):
    with pytest.raises(TypeError, match="cannot be cached"):
        write_entry(tmp_path / "entry.zip", value)
    assert not list(tmp_path.iterdir())


def test_only_a_class_of_the_library_is_looked_up(tmp_path):
    assert library_class("glauber_lib.traces.Trace") is Trace
    for name in ("os.system", "subprocess.Popen", "glauber_lib.chains.Path", "glauber_lib.chains.run_chains", "Trace"):
        with pytest.raises(ValueError, match="is no class of glauber_lib"):
            library_class(name)


def entry_of(folder):
    [path] = folder.iterdir()
    return path


def alter_a_file(path):
    """An entry whose parts are sound, but not those that were written."""
    with zipfile.ZipFile(path) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    with zipfile.ZipFile(path, "w") as file:
        for name, content in parts.items():
            file.writestr(name, content.replace(b"3", b"4"))


DAMAGES = {
    "empty": lambda path: path.write_bytes(b""),
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:-30]),
    "one bit": lambda path: path.write_bytes(bytes([*path.read_bytes()[:45], path.read_bytes()[45] ^ 1,
                                                    *path.read_bytes()[46:]])),
    "altered": alter_a_file,
    "no zip": lambda path: path.write_text("a result"),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_entry_is_reported_and_computed_anew(keep, folder, damage):
    assert keep(add, 1, y=2) == 3
    path = entry_of(folder)
    DAMAGES[damage](path)
    with pytest.warns(UserWarning, match=rf"cached result .*{path.name}' cannot be read .*: computed anew"):
        assert keep(add, 1, y=2) == 3
    assert keep(add, 1, y=2) == 3 and len(CALLS) == 2 and entry_of(folder) == path  # sound again, without a warning


def write_often(path, value):
    for _ in range(30):
        write_entry(path, value)


def test_two_processes_may_write_the_same_entry(tmp_path):
    value, path = np.arange(10_000), tmp_path / "entry.zip"
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=write_often, args=(path, value)) for _ in range(2)]
    for worker in workers:
        worker.start()
    seen = 0
    while any(worker.is_alive() for worker in workers):
        if path.exists():
            assert np.array_equal(read_entry(path), value)
            seen += 1
    for worker in workers:
        worker.join()
    assert seen and [worker.exitcode for worker in workers] == [0, 0] and list(tmp_path.iterdir()) == [path]


# What is kept and what is dropped ----------------------------------------------------------------------------------


def test_the_entries_not_used_for_longest_are_dropped_beyond_the_limit(keep, folder, monkeypatch):
    for k in range(4):
        RESULTS[k] = np.random.default_rng(k).integers(256, size=1_000, dtype=np.uint8)
        keep(give, k)
        for path in folder.iterdir():  # an hour passes
            os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns - 3_600_000_000_000))
    size = max(path.stat().st_size for path in folder.iterdir())
    keep(give, 0)  # used again, so that 1 is the oldest
    assert CALLS == [0, 1, 2, 3]
    RESULTS[4] = RESULTS[0] + 1
    monkeypatch.setenv("GLAUBER_CACHE_BYTES", str(3 * size))
    keep(give, 4)
    assert len(list(folder.iterdir())) == 3
    for k in (4, 3, 0):
        keep(give, k)
    assert len(CALLS) == 5
    keep(give, 2)
    assert CALLS[-1] == 2


def test_the_newest_entry_stays_though_it_is_beyond_the_limit(keep, folder, monkeypatch):
    monkeypatch.setenv("GLAUBER_CACHE_BYTES", "1")
    keep(add, 1)
    keep(add, 2)
    keep(add, 2)
    assert len(CALLS) == 2 and len(list(folder.iterdir())) == 1


def test_what_was_left_behind_counts_too(keep, folder, monkeypatch):
    folder.mkdir()
    for k, name in enumerate(["a.npz", "a.npz.12", "a.zip.12.partial"]):
        (folder / name).write_bytes(bytes(1_000))
        os.utime(folder / name, (k + 1, k + 1))
    monkeypatch.setenv("GLAUBER_CACHE_BYTES", "2500")
    keep(add, 1)
    assert {path.name for path in folder.iterdir()} >= {"a.zip.12.partial"} and not (folder / "a.npz").exists()
    monkeypatch.setenv("GLAUBER_CACHE_BYTES", "1")
    keep(add, 2)
    assert len(list(folder.iterdir())) == 1


@pytest.mark.parametrize("text", ["much", "inf"])
def test_a_limit_that_is_no_number_is_refused(keep, text, monkeypatch):
    monkeypatch.setenv("GLAUBER_CACHE_BYTES", text)
    with pytest.raises(ValueError, match=f"must be a number of bytes such as 4e9, got '{text}'"):
        keep(add, 1)
    assert CALLS == []


def test_the_cache_can_be_switched_off(keep, folder, monkeypatch):
    monkeypatch.setenv("GLAUBER_CACHE", "off")
    keep(add, 1)
    keep(add, 1)
    assert len(CALLS) == 2 and not folder.exists()


def test_a_failed_computation_stores_nothing(keep, folder):
    with pytest.raises(TypeError):
        keep(add, 1, y="2")
    assert not list(folder.iterdir())


# What was interrupted ----------------------------------------------------------------------------------------------


def half(complete):
    return dataclasses.replace(run_chains(MODEL, [[0, 0]], n_steps=5), complete=complete)


@pytest.mark.parametrize("complete", [False, np.False_])
def test_an_interrupted_run_is_not_stored_as_the_result(keep, folder, complete):
    with pytest.raises(KeyboardInterrupt):
        keep(half, complete)
    assert not list(folder.iterdir())


def interrupted_inside():
    """A table from a chain that Ctrl-C ended early: the chain returns what it has, and the table hides it."""
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        return 0.5
    return 1.0


def test_a_result_that_hides_an_interruption_is_not_stored(keep, folder):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore Ctrl-C
    try:
        with pytest.raises(KeyboardInterrupt):
            keep(interrupted_inside)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert list(folder.glob("*.zip")) == []


def test_an_entry_in_a_folder_that_cannot_be_touched_is_used(keep, folder, monkeypatch):
    assert keep(add, 1) == 1

    def refuse(path):
        raise PermissionError(path)

    monkeypatch.setattr(cache.os, "utime", refuse)
    assert keep(add, 1) == 1
    assert len(CALLS) == 1


def frame_with_a_column_complete():
    return pd.DataFrame({"complete": [False]})


def test_a_table_with_a_column_of_that_name_is_a_result(keep):
    assert not keep(frame_with_a_column_complete).complete.any()


def interruptible(steps, *, checkpoint=None):
    """Half the steps at a time, the first half given up."""
    if checkpoint.exists():
        return steps, int(checkpoint.read_text())
    checkpoint.write_text(str(steps // 2))
    raise KeyboardInterrupt


def test_a_computation_that_can_be_resumed_is_given_a_file_beside_its_entry(keep, folder):
    with pytest.raises(KeyboardInterrupt):
        keep(interruptible, 10)
    file = entry_of(folder)
    assert keep(interruptible, 10) == (10, 5)
    assert entry_of(folder) == file.with_suffix(".zip")  # the result is kept, and that is all
    with pytest.raises(KeyboardInterrupt):
        keep(interruptible, 20)  # another file
    [other] = folder.glob("*.npz")
    assert other != file


FULL = OSError(28, "No space left on device")


def test_a_result_that_cannot_be_stored_is_returned_with_a_warning_and_its_checkpoint_stays(keep, folder, monkeypatch):
    monkeypatch.setattr(cache, "write_entry", lambda *_: (_ for _ in ()).throw(FULL))
    with pytest.warns(UserWarning, match=r"run_chains-.*' cannot be kept: .*No space left"):
        trace = keep(run_chains, MODEL, [[0, 0]], n_steps=100, seed=1)
    assert trace.n_steps == 100 and Trace.load(entry_of(folder)).n_steps == 100


def test_a_result_of_a_type_that_cannot_be_stored_is_returned_with_a_warning(keep, folder):
    RESULTS["odd"] = {1, 2}
    with pytest.warns(UserWarning, match=r"give-.*' cannot be kept: a result of type builtins.set"):
        assert keep(give, "odd") == {1, 2}
    assert not list(folder.iterdir())


def test_where_the_folder_cannot_be_written_the_result_is_returned_with_a_warning(keep, folder):
    folder.write_text("a file in its place")
    with pytest.warns(UserWarning, match=r"cache' cannot be written \(.*\): no result is kept"):
        assert keep(run_chains, MODEL, [[0, 0]], n_steps=100, seed=1).complete
    with pytest.warns(UserWarning):
        assert keep(add, 1) == 1


class Interrupted(TabularModel):
    """A table that is interrupted once."""

    left = 30  # calls until Ctrl-C

    def scores(self, states, sites, hidden=None):
        Interrupted.left -= 1
        if Interrupted.left == 0:
            raise KeyboardInterrupt
        return super().scores(states, sites, hidden)


def test_chains_interrupted_in_a_cached_call_go_on_where_they_were(keep, folder):
    table = np.random.default_rng(0).normal(size=(2, 3, 3))
    model, options = Interrupted(table), {"n_steps": 100, "seed": 1}
    with pytest.raises(KeyboardInterrupt):
        keep(chains.run_chains, model, [[0, 0]], **options)
    trace = keep(chains.run_chains, model, [[0, 0]], **options)
    whole = run_chains(TabularModel(table), [[0, 0]], **options)
    assert np.array_equal(trace.step, whole.step) and np.array_equal(trace.new, whole.new)
    assert trace.model_calls > whole.model_calls / 2 and trace.complete  # the calls of both
    assert entry_of(folder).suffix == ".zip"


def test_files_of_linked_folders_count(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.txt").write_text("one")
    model = tmp_path / "model"
    model.mkdir()
    (model / "part").symlink_to(tmp_path / "real")
    (model / "round").symlink_to(model)
    before = keys.files_digest(model)
    (tmp_path / "real" / "a.txt").write_text("two")
    assert keys.files_digest(model) != before


@pytest.mark.parametrize(("name", "value"), [("GLAUBER_CACHE", "no"), ("GLAUBER_CACHE_BYTES", "-5")])
def test_a_switch_of_the_cache_that_says_nothing_is_refused(monkeypatch, tmp_path, name, value):
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=name):
        cached(tmp_path, len, ([1],), {})


WRAPPING = """
import functools

def scaled(k):
    def deco(g):
        @functools.wraps(g)
        def inner(*arguments):
            return k * g(*arguments)
        return inner
    return deco

def f(x):
    return x

@scaled(5)
def five(x):
    return x

@functools.lru_cache
def six(x):
    return 6 * x

class Held:
    cache_key = "held"

    @scaled(7)
    def seven(self, x):
        return x
"""


def test_a_function_that_is_wrapped_at_run_time_is_refused_and_a_decorated_one_is_kept(keep, own):
    module = own(WRAPPING)
    assert keep(module.f, 1) == 1
    for wrapped in (module.scaled(2)(module.f), module.scaled(3)(module.f), functools.wraps(module.f)(lambda x: -x)):
        with pytest.raises(TypeError, match=r"own_module\.f was wrapped"):
            keep(wrapped, 1)
    unmarked = module.scaled(2)(module.f)
    del unmarked.__wrapped__
    with pytest.raises(TypeError, match=r"own_module\.f was wrapped"):
        keep(unmarked, 1)
    assert (keep(module.five, 1), keep(module.six, 1), keep(module.Held().seven, 1)) == (5, 6, 7)


def test_an_object_of_a_class_that_has_no_source_is_refused(keep):
    space = {"__name__": "__main__", "dataclass": dataclasses.dataclass}
    exec("class S:\n    cache_key = ['S']\nclass Of(S): pass\n@dataclass\nclass D:\n    x: int = 1\n", space)
    space["Of"].__module__ = __name__
    for name in ("S", "Of", "D"):
        with pytest.raises(TypeError, match=f"no source of the class {name}: put it into a module"):
            keep(rank, space[name]())


def test_records_and_what_stands_beside_a_table_count():
    a, b = (np.zeros(1, [(x, "i4"), (y, "i4")])[0] for x, y in ("ab", "ba"))
    assert keys.describe(a) != keys.describe(b)
    table, noted = pd.DataFrame({"x": [1]}), pd.DataFrame({"x": [1]})
    noted.attrs["unit"] = "steps"
    assert keys.describe(table) != keys.describe(noted) and keys.describe(table.x) != keys.describe(noted.x)


def test_what_would_come_back_as_something_else_is_not_kept(keep, folder):
    table = pd.DataFrame({"x": [1]})
    table.attrs["unit"] = "steps"
    for what, result in {"attrs": table, "records": np.zeros(2, [("a", "O"), ("b", "f8")])}.items():
        RESULTS[what] = result
        with pytest.warns(UserWarning, match=f"{what}.* cannot be (cached|kept)|cannot be kept: .*{what}"):
            keep(give, what)
    assert not list(folder.glob("*.zip"))


def noted(x, checkpoint=None):
    """Whether a checkpoint is given."""
    return str(checkpoint)


def test_a_checkpoint_that_is_given_by_position_is_the_cache_s_own(keep, folder):
    assert keep(noted, 1, None).startswith(str(folder))


def test_a_mapping_that_answers_for_missing_keys_is_not_its_items():
    for value in (defaultdict(lambda: 5), Counter("ab"), type("Own", (dict,), {})(a=1)):
        with pytest.raises(TypeError, match="give the class a cache_key"):
            keys.describe(value)
    assert keys.describe({"a": 1}) == keys.describe(types.MappingProxyType({"a": 1}))


def test_of_a_folder_every_file_counts(keep, tmp_path):
    place = tmp_path / "runs"
    (place / "onnx").mkdir(parents=True)
    for k, name in enumerate(("runs.pt", "runs.bin", ".hidden", "onnx/model.txt")):
        assert keep(rank, place) == 2 * k + 1
        (place / name).write_text("1")
        assert keep(rank, place) == 2 * k + 2
        (place / name).write_text("2")


TENSORS = """
import torch
SPARSE = torch.eye(3).to_sparse()
META = torch.ones(2, device="meta")
HALF = torch.ones(2, dtype=torch.bfloat16)
WIDE = torch.zeros(2_000, 768)

def f(x):
    return x
"""


def test_tensors_of_a_module_count_by_their_bytes_or_as_the_objects_that_they_are(keep, tmp_path, monkeypatch):
    (tmp_path / "own_tensors.py").write_text(TENSORS)
    monkeypatch.syspath_prepend(str(tmp_path))
    own = importlib.import_module("own_tensors")
    assert keep(own.f, 1) == keep(own.f, 1) == 1
    for name in ("SPARSE", "HALF", "WIDE"):
        before = getattr(own, name)
        changed = before.clone() if before.is_sparse else before.clone().index_fill_(0, torch.tensor([1]), 5)
        monkeypatch.setattr(own, name, changed)
        with pytest.warns(UserWarning, match=f"own_tensors.{name} is not what it was"):
            assert keep(own.f, 1) == 1
        monkeypatch.setattr(own, name, before)
