"""The command line: each command answers as the library does, in each form, and says what it refuses."""

import io
import json

import numpy as np
import pandas as pd
import pytest
from conftest import TEXTS

from glauber_lib.__main__ import main
from glauber_lib.chains import run_chains
from glauber_lib.incompatibility import measure_rectangles, sample_rectangles
from glauber_lib.influence import measure_influence, replacement_tokens
from glauber_lib.language import load_model
from glauber_lib.starts import random_states, states_from_masks
from glauber_lib.traces import Trace


@pytest.fixture(scope="module")
def folder(tiny_folders):
    return str(tiny_folders["bert"])


@pytest.fixture(scope="module")
def model(folder):
    return load_model(folder)


def test_chains_are_those_of_the_library_in_each_form(folder, model, tmp_path, capsys):
    command = ["run", folder, "--text", TEXTS[0], "--text", TEXTS[1], "-n", "6", "--steps", "40", "--seed", "3"]
    assert main([*command, "--temperature", "0.7"]) == 0
    trace = run_chains(model, model.states(TEXTS[:2], n=6), temperature=0.7, n_steps=40, seed=3)
    printed = pd.read_csv(io.StringIO(capsys.readouterr().out), keep_default_na=False)
    pd.testing.assert_frame_equal(printed, trace.to_pandas(model), check_dtype=False)
    for kind in ("npz", "json"):
        assert main([*command, "--temperature", "0.7", "--out", str(tmp_path / f"run.{kind}")]) == 0
    np.testing.assert_array_equal(Trace.load(tmp_path / "run.npz").final, trace.final)
    assert [row["final"] for row in json.loads((tmp_path / "run.json").read_text())] == model.texts(trace.final)


def test_starts_may_be_a_file_of_texts_masks_or_random_tokens(folder, model, tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS[:3]))
    for option, states in {
        ("--texts", str(tmp_path / "texts.txt")): model.states(TEXTS[:3], n=5),
        ("--masks", "2"): states_from_masks(model, 2, 5),
        ("--random", "2"): random_states(model, 2, 5),
    }.items():
        assert main(["run", folder, *option, "-n", "5", "--steps", "1", "--out", str(tmp_path / "run.npz")]) == 0
        np.testing.assert_array_equal(Trace.load(tmp_path / "run.npz").initial, states)


def test_rectangles_and_influence_are_those_of_the_library(folder, model, tmp_path):
    states = model.states(TEXTS[:2], n=5)
    command = [folder, "--text", TEXTS[0], "--text", TEXTS[1], "-n", "5"]
    assert main(["rectangles", *command, "--rectangles", "7", "--out", str(tmp_path / "r.json")]) == 0
    wanted = measure_rectangles(model, sample_rectangles(model, states, 7))
    pd.testing.assert_frame_equal(pd.DataFrame(json.loads((tmp_path / "r.json").read_text())), wanted)
    assert main(["influence", *command, "--replacements", "3", "--out", str(tmp_path / "i.npz")]) == 0
    found = measure_influence(model, states, replacement_tokens(model, states, 3), [1.0])
    with np.load(tmp_path / "i.npz") as file:
        np.testing.assert_array_equal(file["largest"], found.maximum[0][file["i"], file["j"]])
        np.testing.assert_array_equal(file["oscillation"], found.oscillation[file["i"], file["j"]])
        assert len(file["mean"]) == 20


def test_a_model_is_checked_and_allowed_words_are_honoured(folder, model, tmp_path, capsys):
    assert main(["check", folder]) == 0
    row = pd.read_csv(io.StringIO(capsys.readouterr().out)).iloc[0]
    assert (row.kind, row.tokens, row["where"]) == ("MaskedLM", model.n_tokens, "directory")
    (tmp_path / "words.txt").write_text("the\nof\nand\n")
    command = ["run", folder, "--random", "3", "-n", "4", "--words", str(tmp_path / "words.txt"), "--steps", "30"]
    assert main([*command, "--out", str(tmp_path / "run.csv")]) == 0
    assert set(pd.read_csv(tmp_path / "run.csv").new_word) <= {"the", "of", "and"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--text", "the of", "-n", "9"], "text has 2 tokens, at least 9 are needed"),
        (["--random", "0", "-n", "5"], "size must be a whole number"),
        (["--random", "1", "-n", "5", "--temperature", "0"], "temperature must be"),
        (["--random", "1", "-n", "5", "--out", "run.txt"], "--out must end in one of .csv, .json, .npz, got 'run.txt'"),
        (["--random", "1", "-n", "5", "--out", "nowhere/run.csv"], "in a folder that is there, got 'nowhere/run.csv'"),
        (["--texts", "nowhere.txt", "-n", "5"], "nowhere.txt"),
    ],
)
def test_what_is_refused_is_said_in_a_line(arguments, says, folder, capsys):
    assert main(["run", folder, *arguments]) == 2
    said = capsys.readouterr().err
    assert says in said and said.count("\n") == 1


def test_a_model_that_is_not_there_is_said(capsys):
    assert main(["check", "no/such/model/anywhere"]) == 2
    assert "not found" in capsys.readouterr().err


@pytest.mark.parametrize("command", [[], ["run"], ["rectangles"], ["influence"], ["check"]])
def test_help_is_there(command, capsys):
    with pytest.raises(SystemExit) as end:
        main([*command, "--help"])
    assert end.value.code == 0 and "usage: python -m glauber_lib" in capsys.readouterr().out
