"""The paper profile from end to end, with a tiny stand-in of the same architecture for everything it downloads."""

import json
import os
import subprocess
import sys
from functools import partial

import datasets
import numpy as np
import pandas as pd
import pytest
import transformers
from conftest import SIZES, TEXTS, save_classifier, save_tiny
from sentence_transformers import SentenceTransformer

from glauber_lib import hub
from glauber_lib.instruments import load_sentiment
from glauber_lib.language import load_model
from glauber_lib.paper import ROOT, Run, load_passages, load_profile
from glauber_lib.paper.profiles import sections
from glauber_lib.topics import choose_seeds

pytestmark = pytest.mark.slow

KINDS = {  # what each published name is a model of
    "bert-base-uncased": "bert",
    "bert-large-uncased": "bert",
    "roberta-base": "roberta",
    "roberta-large": "roberta",
    "answerdotai/ModernBERT-base": "modernbert",
    "gpt2": "gpt2",
}

BART = {
    "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
    "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2,
}  # fmt: skip


def save_embedder(folder, tiny):
    """A sentence-transformers model: tiny encoder, mean pooling."""
    SentenceTransformer(str(tiny)).save(str(folder))  # of a plain encoder it makes one with mean pooling


def save_dataset(folder):
    """Our passages in the form of MS MARCO: some queries, each with passages; and some too short ones."""
    folder.mkdir(parents=True)
    passages = lambda texts: {"is_selected": [0] * len(texts), "passage_text": texts}  # noqa: E731
    rows = [{"query_id": k, "passages": passages([*TEXTS[k : k + 10], "short"])} for k in range(0, len(TEXTS), 10)]
    (folder / "validation.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="session")
def mirror(tmp_path_factory, tiny_folders):
    """A folder that holds a stand-in for everything the paper profile names, by its name."""
    root, settings = tmp_path_factory.mktemp("mirror"), load_profile("paper", "04_basins")
    for name, kind in KINDS.items():
        (root / name).mkdir(parents=True)
        save_tiny(kind, root / name)
    (root / settings["embedder"]).mkdir(parents=True)
    save_embedder(root / settings["embedder"], tiny_folders["bert"])
    save_classifier(
        root / settings["topic_scorer"], tiny_folders["roberta"], transformers.BartForSequenceClassification,
        partial(transformers.BartConfig, **BART),
    )  # fmt: skip
    save_classifier(
        root / settings["second_scorer"], tiny_folders["bert"], transformers.DebertaV2ForSequenceClassification,
        partial(transformers.DebertaV2Config, **SIZES),
    )  # fmt: skip
    save_classifier(
        root / settings["sentiment"], tiny_folders["bert"], transformers.BertForSequenceClassification,
        partial(transformers.BertConfig, **SIZES), labels=("NEGATIVE", "POSITIVE"),
    )  # fmt: skip
    save_dataset(root / settings["passages"])
    return root


def test_the_paper_profile_names_the_published_models():
    settings = load_profile("paper", "01_incompatibility")
    assert {settings["model"], *settings["models"], settings["control"]} == set(KINDS)


@pytest.mark.parametrize("notebook", sections())
def test_the_paper_profile_runs_end_to_end_on_stand_ins(notebook, mirror):
    variables = {"GLAUBER_MODELS": str(mirror), "GLAUBER_SIZES": "smoke", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "glauber_lib.paper", "--profile", "paper", "--notebook", notebook, "--force"]
    answer = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr[-2_000:]
    build = ROOT / "build" / "paper-smoke"
    outputs = json.loads((build / f"{notebook}.outputs.json").read_text())
    assert len(outputs) > 5 and all((build / "figures" / name).stat().st_size > 0 for name in outputs)
    section = notebook.split("_", 1)[1]
    results = json.loads((build / "figures" / "results.json").read_text())
    assert sum(c["id"].startswith(section + "/") for c in results["claims"]) > 5
    assert set(results["models"][notebook.split("_", 1)[1]]) <= set(KINDS)


def test_a_mirror_stands_for_the_hub(mirror, monkeypatch):
    monkeypatch.setenv("GLAUBER_MODELS", str(mirror))
    model = load_model("answerdotai/ModernBERT-base")
    assert model.name == "answerdotai/ModernBERT-base" and model.network.config.model_type == "modernbert"


def test_the_published_sentiment_is_the_classifier_s_and_another_classifier_is_refused(mirror, monkeypatch):
    monkeypatch.setenv("GLAUBER_MODELS", str(mirror))
    settings = load_profile("paper", "04_basins")
    scores = load_sentiment(settings["sentiment"])(["A good day.", "A bad day, and long."])
    assert scores.shape == (2,) and (np.abs(scores) <= 1).all() and scores[0] != scores[1]
    with pytest.raises(ValueError, match="no classifier of sentiment"):
        load_sentiment(settings["second_scorer"])


# Passages ----------------------------------------------------------------------------------------------------------


def test_a_dataset_gives_a_fixed_sample_of_its_distinct_passages(mirror):
    folder = mirror / "microsoft" / "ms_marco"
    frame = load_passages(folder, n_passages=50, seed=3)
    assert len(frame) == 50 and frame.id.is_unique and frame.text.is_unique and set(frame.text) <= set(TEXTS)
    assert frame.equals(load_passages(folder, n_passages=50, seed=3))
    assert not frame.equals(load_passages(folder, n_passages=50, seed=4))
    assert len(load_passages(folder)) == len(TEXTS)  # the short ones are left out


def test_the_profile_s_dataset_is_asked_for_at_its_pinned_revision(monkeypatch):
    asked = []

    def load_dataset(name, config, **options):
        asked.append((name, config, options["split"], options["revision"]))
        return {"passages": [{"passage_text": TEXTS[:5]}]}

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    run = Run("01_incompatibility", "paper")
    with pytest.raises(ValueError, match="not in the cache, and HF_HUB_OFFLINE is set"):
        run.passages()  # offline, the library would take any revision it has
    monkeypatch.setattr(hub, "locate_passages", lambda name, revision: hub.Location("cached", 0, revision))
    frame = run.passages()
    pin = run["revisions"]["microsoft/ms_marco"]
    assert len(frame) == 5 and asked == [("microsoft/ms_marco", "v2.1", "validation", pin)]


def test_a_file_of_passages_takes_the_dataset_s_place(tmp_path):
    (tmp_path / "mine.txt").write_text("The first passage.\n\n  The second one. \n")
    frame = load_passages(tmp_path / "mine.txt")
    assert list(frame.text) == ["The first passage.", "The second one."] and frame.id.is_unique
    assert len(load_passages(ROOT / "data" / "passages.jsonl")) == len(TEXTS)


@pytest.mark.parametrize("name", ["no/such-dataset", "nowhere.jsonl", "nowhere.txt"])
def test_passages_that_are_not_there_are_refused_by_name(name):
    with pytest.raises(ValueError, match=name.split(".")[0]):
        load_passages(name)


def test_a_dataset_of_short_passages_is_refused(tmp_path):
    datasets.Dataset.from_list([{"passages": {"passage_text": ["too short"]}}]).to_json(tmp_path / "validation.jsonl")
    with pytest.raises(ValueError, match="no passage of 40 to 90 words"):
        load_passages(tmp_path)


def test_sizes_of_another_profile_are_taken_only_when_asked_for(monkeypatch):
    whole = load_profile("paper", "03_crossover")
    monkeypatch.setenv("GLAUBER_SIZES", "smoke")
    cut, smoke = load_profile("paper", "03_crossover"), load_profile("smoke", "03_crossover")
    assert cut["model"] == whole["model"] != smoke["model"] and cut["trials"] == smoke["trials"] != whole["trials"]
    monkeypatch.setenv("GLAUBER_SIZES", "tiny")
    with pytest.raises(ValueError, match="GLAUBER_SIZES"):
        load_profile("paper", "03_crossover")


def test_seeds_without_topics_are_the_best_scored_and_each_is_taken_once():
    class Scorer:
        labels = ["food", "sport"]  # noqa: RUF012

        def score(self, texts):
            return np.array([[len(t), 10 - len(t)] for t in texts], float)

    passages = pd.DataFrame({"id": list("abcd"), "text": ["x", "xx", "xxx", "xxxx"]})
    seeds, rest = choose_seeds(passages, ["food", "sport"], 2, Scorer())
    assert list(seeds.id) == ["d", "c", "a", "b"] and list(seeds.topic) == ["food", "food", "sport", "sport"]
    assert rest.empty
    labelled = passages.assign(topic=["food", "sport", "food", "food"])
    seeds, rest = choose_seeds(labelled, ["food", "sport"], 1, None)
    assert list(seeds.id) == ["a", "b"] and list(rest.id) == ["c", "d"]
