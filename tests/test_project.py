"""The project's own promises: data, notebooks, environments, no traces of one machine."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from importlib.util import find_spec
from itertools import chain

import jupytext
import pytest
import yaml
from conftest import script

from glauber_lib.embedded import DATA, PACKAGES, package_tokenizer
from glauber_lib.instruments import TOPICS
from glauber_lib.paper import ROOT, keys, load_passages
from glauber_lib.paper.profiles import notebooks

SCRIPTS = sorted((ROOT / "notebooks").glob("*.py"))


# Passages ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def passages():
    return load_passages()


def test_thirty_passages_for_each_of_nine_topics(passages):
    counts = passages.topic.value_counts()
    assert set(counts.index) == set(TOPICS) and len(counts) == 9
    assert counts.min() >= 30


def test_passages_have_unique_ids_and_texts_of_forty_to_ninety_words(passages):
    assert passages.id.is_unique and passages.text.is_unique
    assert passages.text.str.split().str.len().between(40, 90).all()


@pytest.mark.parametrize("base", sorted(PACKAGES))
def test_passages_are_long_enough_for_the_longest_states(passages, base):
    tokenizer = package_tokenizer(base)
    lengths = [len(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in passages.text]
    assert min(lengths) >= 40


def test_no_two_passages_share_eight_words_in_a_row(passages):
    shared = Counter()
    for text in passages.text:
        words = re.findall(r"[a-z0-9']+", text.lower())
        shared.update({tuple(words[k : k + 8]) for k in range(len(words) - 7)})
    assert [" ".join(words) for words, count in shared.items() if count > 1] == []


# Environments ------------------------------------------------------------------------------------------------------


def requirement(line):
    """Name and range of a requirement."""
    return re.match(r"([A-Za-z0-9._-]+)\s*(.*)", line).groups()


def project_requirements():
    """The table [project] of pyproject.toml and all its requirements, the optional ones included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project, [*project["dependencies"], *chain(*project["optional-dependencies"].values())]


def test_conda_and_pip_ask_for_the_same_packages():
    project, wanted = project_requirements()
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    conda = [line for line in environment if isinstance(line, str)]
    pip = next(entry["pip"] for entry in environment if isinstance(entry, dict))
    python = dict(map(requirement, conda)).pop("python")
    assert python == project["requires-python"]
    got = [line for line in [*conda, *pip] if requirement(line)[0] not in {"python", "pip", "make"}]
    assert sorted(map(requirement, got)) == sorted(map(requirement, wanted))


def test_exact_versions_pin_every_dependency_within_its_range():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {name.lower(): version for name, version in map(requirement, lines)}
    assert pinned["torch"] == "==2.13.0"
    assert all(version.startswith("==") for version in pinned.values())
    number = lambda version: [int(part) for part in re.findall(r"\d+", version)]  # noqa: E731
    for name, lowest in map(requirement, project_requirements()[1]):
        assert number(pinned[name.lower()]) >= number(lowest)


# Notebooks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_notebook_survives_the_way_to_ipynb_and_back(path, tmp_path):
    jupytext.write(jupytext.read(path), tmp_path / "notebook.ipynb")
    notebook = jupytext.read(tmp_path / "notebook.ipynb")
    assert jupytext.writes(notebook, "py:percent") == path.read_text()
    assert notebook.metadata["kernelspec"]["name"] == "python3"


@pytest.mark.parametrize("name", notebooks())
def test_the_one_parameter_is_the_profile_and_survives_with_its_tag(name, tmp_path):
    jupytext.write(jupytext.read(ROOT / "notebooks" / f"{name}.py"), tmp_path / "notebook.ipynb")
    cells = jupytext.read(tmp_path / "notebook.ipynb").cells
    tagged = [cell for cell in cells if "parameters" in cell.metadata.get("tags", [])]
    assert [cell.source for cell in tagged] == ['profile = "mini"']
    rest = "\n".join(cell.source for cell in cells if cell.cell_type == "code" and cell is not tagged[0])
    assert re.search(r"\bprofile\b", rest)  # it is read


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_notebook_has_no_magics(path):
    # under a magic an error passes unseen
    code = [cell.source for cell in jupytext.read(path).cells if cell.cell_type == "code"]
    assert not [line for cell in code for line in cell.splitlines() if re.match(r"\s*(# )?[%!]", line)]


@pytest.mark.parametrize("name", notebooks())
def test_beside_its_figures_a_notebook_prints_numbers_that_are_compared(name):
    # nbval does not compare pictures
    code = [cell.source for cell in jupytext.read(ROOT / "notebooks" / f"{name}.py").cells if cell.cell_type == "code"]
    compared = [cell for cell in code if "NBVAL_CHECK_OUTPUT" in cell]
    assert len(compared) >= sum("run.save_figure(" in cell for cell in code)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_notebook_does_not_ask_which_profile_it_runs(path):
    assert not re.search(r"profile\s*(==|!=|in\b)", path.read_text())


# Traces of one machine ---------------------------------------------------------------------------------------------


def tracked_text():
    """Path and text of every file of the repository that is text."""
    listed = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    answer = subprocess.run(listed, capture_output=True, text=True, check=False)
    if answer.returncode:
        pytest.skip("not a git checkout")
    for name in filter(None, answer.stdout.split("\0")):
        try:
            yield name, (ROOT / name).read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError):
            continue


def test_no_file_holds_a_path_of_one_machine():
    # written in pieces, so that this file does not find itself
    pattern = re.compile("|".join("/" + folder + "/" for folder in ("work", "tmp", "root", "home", "Users", "scratch")))
    assert [name for name, text in tracked_text() if pattern.search(text)] == []


def test_no_file_holds_a_key_or_a_token():
    pattern = re.compile(r"hf_[A-Za-z0-9]{20,}|ghp_[A-Za-z0-9]{20,}|-----BEGIN [A-Z ]*PRIVATE KEY")
    assert [name for name, text in tracked_text() if pattern.search(text)] == []


def test_the_library_prints_only_where_it_says_so_and_never_imports_a_notebook():
    for path in (ROOT / "glauber_lib").rglob("*.py"):
        text = path.read_text()
        assert "import notebooks" not in text and "from notebooks" not in text
        says_so = path.parent.name == "paper" and path.stem in ("run", "runner", "check", "compare")
        assert says_so or not re.search(r"^\s*print\(", text, re.MULTILINE), path.name


def opened_without_encoding(source):
    """Lines of a source that read or write text in whatever encoding the machine has."""
    for node in ast.walk(ast.parse(source)):
        called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        name = called.rpartition(".")[2]
        if called in ("", "read_text", "tarfile.open") or name not in ("open", "read_text", "write_text"):
            continue
        texts = [v.value for v in node.args if isinstance(v, ast.Constant) and isinstance(v.value, str)]
        said = {"open": any("b" in text for text in texts), "read_text": texts, "write_text": False}[name]
        if not said and not any(k.arg == "encoding" for k in node.keywords):
            yield node.lineno, ast.unparse(node)


def test_every_text_file_is_opened_in_an_encoding_of_its_own():
    assert list(opened_without_encoding('path.open()\nopen(f, "w")\np.read_text()\np.open("rb")\np.write_text(t)'))
    paths = [path for folder in ("glauber_lib", "scripts", "notebooks") for path in (ROOT / folder).rglob("*.py")]
    found = {path.name: list(opened_without_encoding(path.read_text(encoding="utf-8"))) for path in paths}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_the_versions_are_those_of_every_package_that_computes():
    plumbing = {
        "filelock",
        "joblib",
        "jupytext",
        "nbclient",
        "nbformat",
        "papermill",
        "tqdm",
        "pyarrow",
        "huggingface_hub",
        "cycler",
        "xarray",  # holds what is exported
    }
    names = {"sklearn": "scikit-learn", "sentence_transformers": "sentence-transformers"}
    imported = set()
    for path in (ROOT / "glauber_lib").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                imported.add(node.module.split(".")[0])
    computing = imported - set(sys.stdlib_module_names) - plumbing - {"glauber_lib"}
    assert {names.get(name, name) for name in computing} <= set(keys.PACKAGES)
    assert {"tokenizers", "python", *keys.PACKAGES} <= set(keys.versions())


# The wheel ---------------------------------------------------------------------------------------------------------

PLAIN = """
import glauber_lib, numpy
from glauber_lib.chains import run_chains
from glauber_lib.models import IsingModel
print(glauber_lib.__file__)
print(run_chains(IsingModel(numpy.zeros((3, 3))), [[0, 1, 0]], n_steps=50).final.shape)
from glauber_lib.language import load_model
from glauber_lib.paper import load_passages
for load in (lambda: load_model("minilm-3l"), load_passages):
    try:
        print(type(load()).__name__)
    except ValueError as error:
        print(error)
"""
WITH_DATA = """
from glauber_lib.chains import run_chains
from glauber_lib.language import load_model
from glauber_lib.paper import load_passages
model = load_model("minilm-3l")
trace = run_chains(model, model.states(load_passages().text[:1], n=5), n_steps=3)
print(trace.final.shape)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder into which a wheel of the package is installed, without the packages it needs."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    if subprocess.run([*pip, "--version"], capture_output=True).returncode or not find_spec("setuptools"):
        pytest.skip("pip or setuptools is not installed")
    folder = tmp_path_factory.mktemp("wheel")
    source, site = folder / "source", folder / "site"
    shutil.copytree(ROOT / "glauber_lib", source / "glauber_lib", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    offline = ["--no-deps", "--no-index"]
    subprocess.run([*pip, "wheel", str(source), "--no-build-isolation", *offline, "-w", str(folder)], check=True)
    [wheel] = folder.glob("*.whl")
    subprocess.run([*pip, "install", str(wheel), *offline, "--target", str(site)], check=True)
    return site


def python(installed, folder, *arguments, **variables):
    """What a fresh interpreter answers in another folder, the installed package before all others."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("GLAUBER_")}
    ours |= {"PYTHONPATH": str(installed), "OMP_NUM_THREADS": "1", **variables}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=ours, capture_output=True, text=True, check=False)


def test_a_wheel_runs_a_chain_and_says_where_the_data_are(installed, tmp_path):
    answer = python(installed, tmp_path, "-c", PLAIN)
    assert answer.returncode == 0, answer.stderr
    place, shape, model, passages = answer.stdout.splitlines()
    assert place == str(installed / "glauber_lib" / "__init__.py") and shape == "(1, 3)"
    assert "no weights of the embedded model 'minilm-3l'" in model and "set GLAUBER_DATA to the folder data" in model
    assert "no file of passages" in passages and "set GLAUBER_DATA to the folder data" in passages


def test_a_wheel_with_the_data_of_a_clone_runs_an_embedded_model(installed, tmp_path, embedded):
    embedded("minilm-3l")  # skips where the weights are not there
    answer = python(installed, tmp_path, "-c", WITH_DATA, GLAUBER_DATA=str(DATA))
    assert answer.returncode == 0 and answer.stdout.splitlines()[-1] == "(1, 5)", answer.stderr


@pytest.mark.parametrize("command", ["glauber_lib.paper", "glauber_lib.paper.check"])
def test_a_wheel_says_that_it_holds_no_notebooks(installed, tmp_path, command):
    answer = python(installed, tmp_path, "-m", command)
    assert answer.returncode == 2 and answer.stderr.endswith("run this in a clone of the repository\n")
    assert answer.stderr.count("\n") == 1 and not list(tmp_path.iterdir())


# What make test asks of the tests ------------------------------------------------------------------------------------


@pytest.mark.parametrize("lines, branches, status", [(950, 90, 0), (949, 100, 1), (1000, 89, 1)])
def test_lines_and_branches_have_a_threshold_each(lines, branches, status, monkeypatch, tmp_path, capsys):
    covered = script("covered")
    totals = {"covered_lines": lines, "num_statements": 1000, "covered_branches": branches, "num_branches": 100}
    monkeypatch.setattr(covered, "REPORT", tmp_path / "report.json")
    monkeypatch.setattr(covered.subprocess, "run", lambda *_, **__: None)
    covered.REPORT.write_text(json.dumps({"files": {}, "totals": totals}))
    assert covered.main() == status
    assert f"lines: {lines / 10:.1f}%, at least 95%" in capsys.readouterr().out
