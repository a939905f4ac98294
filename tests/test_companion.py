"""A companion is added to a copy of the repository by its own files and its tables alone, and runs there."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from glauber_lib.paper import ROOT
from glauber_lib.paper.check import named_models
from glauber_lib.paper.profiles import load_profile

pytestmark = pytest.mark.slow

MODULE = '''"""How often chains move."""

import pandas as pd

from glauber_lib.chains import run_chains


def move_rates(model, states, temperatures, *, n_steps, seed):
    """Moves per step at each temperature, of one chain from each state, as DataFrame."""
    rows = []
    for temperature in temperatures:
        trace = run_chains(model, states, n_steps=n_steps, temperature=temperature, seed=seed)
        rows.append({"temperature": temperature, "rate": len(trace.step) / (len(states) * n_steps)})
    return pd.DataFrame(rows)
'''

TEST = """from conftest import random_table

from glauber_lib.rates import move_rates


def test_hotter_chains_move_more():
    table = move_rates(random_table(3, 3), [[0, 0, 0]] * 20, [0.1, 10.0], n_steps=50, seed=0)
    assert table.rate.is_monotonic_increasing
"""

NOTEBOOK = """# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Hotter chains move more

# %% tags=["parameters"]
profile = "mini"

# %%
import matplotlib.pyplot as plt

from glauber_lib.paper import Run
from glauber_lib.rates import move_rates
from glauber_lib.stats import Estimate

run = Run("99_rates", profile)
model = run.model(run["model"])
states = model.states(run.passages(model).text[: run["chains"]], n=run["n_tokens"])
options = {"n_steps": run["steps"], "seed": run.seed}
table = run.save_table(run.cached(move_rates, model, states, run["temperatures"], **options), "rates")
figure, axis = plt.subplots()
axis.plot(table.temperature, table.rate)
run.save_figure(figure, "rates")
rise = table.rate.diff().min()
run.claim("rates/hotter-moves-more", Estimate(rise, None, len(states), "chains", "exact"))
run.finish()
"""

TABLES = """
[smoke.99_rates]
n_tokens = 6
chains = 2
steps = 10
temperatures = [0.1, 10.0]
cost = [["model", 6, 40]]
"""


CLAIMS = """
["rates/hotter-moves-more"]
statement = "Hotter chains move more: least difference of rates from one temperature to the next."
side = "above"
than = 0
contradicted_by = "A rate that falls."
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the repository with a companion in it; the models are links."""
    listed = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    answer = subprocess.run(listed, capture_output=True, text=True, check=False)
    if answer.returncode:
        pytest.skip("not a git checkout")
    root = tmp_path_factory.mktemp("repository")
    for name in filter(None, answer.stdout.split("\0")):
        if not (ROOT / name).is_file():
            continue
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        if name.startswith("data/models/"):
            (root / name).symlink_to(ROOT / name)
        else:
            shutil.copy(ROOT / name, root / name)
    (root / "glauber_lib" / "rates.py").write_text(MODULE)
    (root / "tests" / "test_rates.py").write_text(TEST)
    (root / "notebooks" / "99_rates.py").write_text(NOTEBOOK)
    with (root / "notebooks" / "profiles.toml").open("a") as file:
        file.write(TABLES)
    with (root / "notebooks" / "claims.toml").open("a") as file:
        file.write(CLAIMS)
    return root


def run_in(root, *arguments):
    """Status and output of ``python -m ...`` in the copy."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("GLAUBER_")}
    ours |= {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", *arguments]
    answer = subprocess.run(command, cwd=root, env=ours, capture_output=True, text=True, check=False)
    return answer.returncode, answer.stdout + answer.stderr


def test_its_notebook_runs_and_leaves_claims_figure_and_table(copy, embedded):
    embedded("minilm-3l")  # skips where the weights are not there
    status, output = run_in(copy, "glauber_lib.paper", "--profile", "smoke", "--notebook", "99_rates")
    assert status == 0, output
    figures = copy / "build" / "smoke" / "figures"
    results = json.loads((figures / "results.json").read_text())
    own = [claim["id"] for claim in results["claims"] if claim["id"].startswith("rates/")]
    assert own == ["rates/hotter-moves-more"]
    assert {path.name for path in figures.iterdir()} >= {"rates.png", "rates.csv", "rates.md", "results.json"}
    assert "move_rates" in {path.name.split("-")[0] for path in (copy / "build" / "cache").iterdir()}


def test_check_counts_it_in(copy, embedded):
    for name, roles in named_models(load_profile("smoke", "01_incompatibility")).items():
        if {"model", "models"} & set(roles):
            embedded(name)
    status, output = run_in(copy, "glauber_lib.paper.check", "--profile", "smoke")
    assert status == 0, output
    row = next(line for line in output.splitlines() if line.startswith("99_rates"))
    assert row.split()[1] == "40" and "(n = 6)" in row


def test_its_own_test_and_those_of_all_profiles_pass(copy):
    chosen = ["-k", "hotter or keys_and_types or declares_a_cost"]
    status, output = run_in(copy, "pytest", "-q", *chosen, "tests/test_rates.py", "tests/test_paper.py")
    assert status == 0 and " passed" in output, output
