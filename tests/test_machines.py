"""What is written for machines that are not here: times predicted for GPUs, the notebook and the badge for Colab."""

import ast
import re
import subprocess
import sys

import nbformat
import numpy as np
import pytest
import torch
from conftest import TEXTS, script

from glauber_lib.paper import ROOT, load_profile
from glauber_lib.paper.profiles import declared_cost, sections

pytestmark = pytest.mark.slow
sys.modules["bench"], sys.modules["readme"] = script("bench"), script("readme")
gpu, colab = script("gpu"), script("colab")
PAPER = {notebook: load_profile("paper", notebook) for notebook in sections()}
ADDRESS = "https://github.com/some-one/glauber.mlm"


# Predictions -------------------------------------------------------------------------------------------------------


def test_the_operations_of_a_bert_are_those_counted_by_hand():
    h, f, layers, vocabulary, t = 768, 3072, 12, 30_522, 22
    layer = t * (4 * h * h + 2 * h * f) + 2 * t * t * h  # multiply-adds: projections, feed-forward, attention
    last = 2 * t * h * h + (2 * h * h + 2 * h * f) + 2 * t * h  # keys and values of all, the rest of one
    head = h * h + h * vocabulary
    assert gpu.flops("bert-base-uncased", 20) == 2 * ((layers - 1) * layer + last + head)


def test_every_masked_model_of_the_paper_profile_has_a_shape_and_the_large_ones_cost_more():
    settings = PAPER["04_basins"]
    assert {settings["model"], *settings["models"]} == set(gpu.SHAPES)
    cost = {name: gpu.flops(name, 20) for name in gpu.SHAPES}
    assert 3 < cost["bert-large-uncased"] / cost["bert-base-uncased"] < 4
    assert 3 < cost["roberta-large"] / cost["roberta-base"] < 4
    assert gpu.flops("answerdotai/ModernBERT-base", 40) > 1.5 * cost["answerdotai/ModernBERT-base"] > 0


def test_a_prediction_is_work_over_rate():
    table = gpu.predict({"03_crossover": PAPER["03_crossover"]}, {"card": 10.0, "twice": 20.0}, 0.5)
    costs = declared_cost(PAPER["03_crossover"])
    work = sum(cost.conditionals * gpu.flops(cost.model, cost.sites) for cost in costs)
    assert table.loc["03_crossover", "PFLOP"] == pytest.approx(work / 1e15)
    assert table.loc["03_crossover", "card"] == pytest.approx(work / 5e12 / 3600)
    assert table.loc["all four", "twice"] == pytest.approx(table.loc["03_crossover", "card"] / 2)


def test_the_predictions_shown_are_of_the_profile_as_it_is():
    shown = gpu.PAGE.read_text(encoding="utf-8").split(gpu.START)[1].split(gpu.END)[0]
    if "reached on" in shown:
        pytest.skip("measured on a GPU, which is not here")
    table = gpu.predict(PAPER, gpu.CARDS, gpu.ASSUMED)
    for notebook, row in table.iterrows():
        line = next(line for line in shown.splitlines() if line.startswith(f"| {notebook} "))
        assert [float(cell) for cell in line.strip("| ").split("|")[1:]] == pytest.approx(list(row), rel=0.06)


def test_a_shape_is_timed_on_the_processor(monkeypatch):
    import transformers

    small = transformers.BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
    monkeypatch.setitem(gpu.SHAPES, "small", lambda: small)
    rows = gpu.measure_shape("small", TEXTS, (1, 3), "cpu")
    assert [row["chains"] for row in rows] == [1, 3] and all(row["chain-steps/s"] > 0 for row in rows)
    assert all(0 < row["share of it"] < 1 and np.isnan(row["memory, GiB"]) for row in rows)


@pytest.mark.parametrize(
    "card, share", [("NVIDIA H200", 0.4 * 50 / 66.9), ("NVIDIA A100-SXM4-40GB", 0.4 * 50 / 19.5), ("Radeon", 0.4)]
)
def test_the_share_is_of_the_card_s_data_sheet_at_full_batches_in_float32(card, share):
    row = {"precision": "float32", "chains": 512, "matrix rate, TFLOP/s": 50.0, "share of it": 0.4}
    others = [{**row, "chains": 64, "share of it": 0.1}, {**row, "precision": "TF32", "share of it": 0.05}]
    found, source = gpu.own_share([*others, row, {**row, "chains": 4096, "share of it": 0.6}], card)
    assert found == pytest.approx(share) and card in source and ("data sheet's" in source) == (card != "Radeon")
    assert gpu.own_share(others[:1], card)[0] == pytest.approx(share / 4)  # where no batch was full


def test_without_a_gpu_it_says_what_can_be_done(monkeypatch, capsys):
    if torch.cuda.is_available():
        pytest.skip("there is one")
    monkeypatch.setattr(sys, "argv", ["gpu.py"])
    assert gpu.main() == 1 and "--predict needs none" in capsys.readouterr().err


# Colab -------------------------------------------------------------------------------------------------------------


def test_the_badge_opens_the_notebook_of_the_repository():
    line = colab.badge(ADDRESS + ".git")
    assert line.endswith("(https://colab.research.google.com/github/some-one/glauber.mlm/blob/main/colab.ipynb)\n")
    for address in ("https://example.org/a/b", "some-one/glauber", "https://github.com/some-one"):
        with pytest.raises(ValueError, match=r"such as https://github\.com/owner/name, got"):
            colab.badge(address)


def test_the_notebook_and_the_badge_are_written_and_written_again(tmp_path):
    page, notebook = tmp_path / colab.PAGE, tmp_path / "colab.ipynb"
    page.parent.mkdir()
    page.write_text((ROOT / colab.PAGE).read_text(encoding="utf-8"), encoding="utf-8")
    colab.write(ADDRESS, tmp_path)
    first = page.read_text(encoding="utf-8"), notebook.read_text()
    colab.write(ADDRESS, tmp_path)
    assert first == (page.read_text(encoding="utf-8"), notebook.read_text())
    assert first[0].count("[![Open in Colab]") == 1
    notebook = nbformat.read(notebook, as_version=4)
    nbformat.validate(notebook)
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    assert ADDRESS in code[0] and all(ast.parse(cell) for cell in code if not cell.startswith("!"))
    assert [re.search(r"glauber_lib\.([\w.]+)", cell)[1] for cell in code[3:5]] == ["paper.check", "paper"]


def test_the_install_cell_fetches_the_repository_once_and_installs_it(tmp_path, monkeypatch):
    origin, calls, run = tmp_path / "origin", [], subprocess.run
    author = ["-c", "user.name=a", "-c", "user.email=a@b"]
    run(["git", "init", "-q", str(origin)], check=True)
    run(["git", "-C", str(origin), *author, "commit", "-q", "--allow-empty", "-m", "x"], check=True)

    def noted(command, **options):  # nothing is installed
        calls.append(command)
        return "pip" in command or run(command, **options)

    monkeypatch.setattr(subprocess, "run", noted)
    monkeypatch.chdir(tmp_path)
    for again in range(3):  # in the same session, where the cell has changed the folder, and in a new one
        if again == 2:
            monkeypatch.chdir(tmp_path)
        (tmp_path / "glauber-mlm" / "glauber_lib").mkdir(exist_ok=True) if again else None
        exec(colab.INSTALL.format(repository=origin.as_uri()), {})
    assert (tmp_path / "glauber-mlm" / ".git").is_dir()
    assert "clone" in calls[0] and len(calls) == 4 and all("pip" in command for command in calls[1:])
    assert sorted(path.name for path in (tmp_path / "glauber-mlm").iterdir()) == [".git", "glauber_lib"]
    assert calls[1][0] == sys.executable and calls[1][-2:] == ["-e", "."]
