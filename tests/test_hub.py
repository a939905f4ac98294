"""Where models are, what is said of those that are not there, and `make check`: without any network."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import datasets
import huggingface_hub
import joblib
import pytest
import torch
import transformers
from conftest import TEXTS, save_classifier
from huggingface_hub import constants
from huggingface_hub.utils import _detect_agent, filter_repo_objects
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Dense

from glauber_lib import hub
from glauber_lib.hub import Location, locate
from glauber_lib.instruments import Embedder, PipelineTopicScorer, load_sentiment
from glauber_lib.language import load_model
from glauber_lib.paper import ROOT, Run, check, load_profile
from glauber_lib.paper.profiles import declared_cost

pytestmark = pytest.mark.slow
COMMIT = "0123456789abcdef0123456789abcdef01234567"
PAPER = check.named_models(load_profile("paper", "01_incompatibility"))
FILES = {  # what the played hub has of a good model
    "config.json": 600, "tokenizer.json": 400_000, "model.safetensors": 440_000_000, "pytorch_model.bin": 440_000_000,
    "onnx/config.json": 600, "onnx/model.onnx": 435_000_000, "README.md": 10_000,
}  # fmt: skip
FAULTS = {  # status and headers of a bad one -> state, what its line says
    "404": ((404, {"X-Error-Code": "RepoNotFound"}), "not found", "has no such model (status 404)"),
    "401": ((401, {"X-Error-Code": "RepoNotFound"}), "not found", "no such model, or it is private and HF_TOKEN must"),
    "gated": ((401, {"X-Error-Code": "GatedRepo"}), "gated", "accept its terms at http://127.0.0.1"),
    "refused": ((403, {"X-Error-Code": "GatedRepo"}), "gated", "set HF_TOKEN (status 403)"),
    "forbidden": ((403, {}), "gated", "refuses access, see HF_TOKEN (status 403)"),
    "revision": ((404, {"X-Error-Code": "RevisionNotFound"}), "not found", "has no revision 'v9' of it"),
    "broken": ((503, {}), "unreachable", "cannot be reached (Server error '503"),
    "busy": ((429, {}), "unreachable", "429 Too Many Requests"),
    "portal": ((200, {}), "unreachable", "cannot be reached (Expecting value"),  # a page in place of an answer
}


def good_answer(files=FILES, **more):
    """Status, headers and body with which the hub describes a model."""
    siblings = [{"rfilename": name, "size": size} for name, size in files.items()]
    return 200, {}, json.dumps({"id": "x", "gated": False, "siblings": siblings, **more})


@pytest.fixture
def played(tmp_path, monkeypatch):
    """A server that plays the hub: ``.answers`` by name, and an empty ``.cache``.

    All that it was asked is in ``.asked``. ``.questions()`` are those about models: beside a question of ours the
    client asks one for its own statistics, once in a process and a day.
    """
    answers, asked = {}, []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            name = self.path.split("?")[0].removeprefix("/api/models/").split("/revision/")[0]
            status, headers, *body = answers.get(name, answers.get("*", FAULTS["404"][0]))
            self.send_response(status)
            for key, value in {**headers, "Content-Length": len("".join(body))}.items():
                self.send_header(key, str(value))
            self.end_headers()
            self.wfile.write("".join(body).encode())

        do_HEAD = do_GET

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "AGENT_HARNESSES_PATH", str(tmp_path / "statistics"))
    monkeypatch.setattr(_detect_agent, "_registry", None)  # as in a new process
    huggingface_hub.close_session()  # the client read the proxies of an earlier test
    questions = lambda: [path for path in asked if path.startswith(("/api/models/", "/api/datasets/"))]  # noqa: E731
    yield SimpleNamespace(answers=answers, asked=asked, questions=questions, cache=tmp_path / "cache")
    server.shutdown()
    server.server_close()
    huggingface_hub.close_session()


def put_in_cache(cache, name, folder, *, without=(), commit=COMMIT):
    """A model's files as the hub's client lays them out."""
    repository = cache / f"models--{name.replace('/', '--')}"
    snapshot, blobs = repository / "snapshots" / commit, repository / "blobs"
    for path in (snapshot, blobs, repository / "refs"):
        path.mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    for k, path in enumerate(path for path in sorted(folder.rglob("*")) if path.is_file()):
        if path.name not in without:
            link = snapshot / path.relative_to(folder)
            link.parent.mkdir(parents=True, exist_ok=True)
            (blobs / str(k)).write_bytes(path.read_bytes())
            link.symlink_to(blobs / str(k))
    return snapshot


# Where a model is --------------------------------------------------------------------------------------------------


def test_embedded_models_and_directories_are_found_without_asking(played, tiny_folders):
    assert locate("minilm-6l").state == "embedded"
    assert locate(tiny_folders["bert"]).state == locate(str(tiny_folders["bert"])).state == "directory"
    assert played.asked == []


def test_a_model_on_the_hub_is_found_with_what_is_to_be_downloaded_in_one_question(played):
    played.answers["org/name"] = good_answer()
    place = locate("org/name")
    assert (place.state, place.bytes, place.found) == ("on the hub", 440_400_600, True)
    assert played.questions() == ["/api/models/org/name?blobs=true"]


def test_of_a_sharded_model_all_shards_are_counted_and_of_two_forms_the_whole_one(played):
    shards = {f"model-0000{k}-of-00002.safetensors": 1_000 for k in (1, 2)}
    played.answers["org/name"] = good_answer({"model.safetensors.index.json": 10, **shards})
    assert locate("org/name").bytes == 2_010
    played.answers["org/name"] = good_answer({"model.safetensors": 1_500, **shards})
    assert locate("org/name").bytes == 1_500


def test_a_model_without_safetensors_is_not_there(played):
    played.answers["org/name"] = good_answer({"config.json": 600, "pytorch_model.bin": 440_000_000})
    assert not (place := locate("org/name")).found and "without safetensors weights but has a pickle" in place.detail


def test_a_gated_model_that_anybody_may_read_about_is_gated_without_access(played):
    played.answers["org/name"] = good_answer(gated="auto")
    played.answers["org/name/auth-check"] = FAULTS["gated"][0]
    assert locate("org/name").state == "gated"
    played.answers["org/name/auth-check"] = (200, {}, "{}")
    assert locate("org/name").state == "on the hub"


@pytest.mark.parametrize("fault", FAULTS)
def test_what_the_hub_refuses_is_one_clear_line_within_seconds(played, fault):
    answer, state, line = FAULTS[fault]
    played.answers["org/name"] = answer
    began = time.monotonic()
    place = locate("org/name", "v9" if fault == "revision" else None)
    assert time.monotonic() - began < 6
    assert place.state == state and line in place.detail and "\n" not in place.detail
    assert (place.bytes, place.found, len(played.questions())) == (0, False, 1)  # no retries


def test_a_hub_that_takes_the_call_and_never_answers_is_given_up(played, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setattr(hub, "PATIENCE", 0.5)
        began = time.monotonic()
        assert locate("org/name").state == "unreachable"
        assert time.monotonic() - began < 2


def test_a_name_that_hangs_in_its_resolution_is_given_up(played, monkeypatch):
    monkeypatch.setattr(hub, "ask_hub", lambda name, revision: time.sleep(5))
    monkeypatch.setattr(hub, "PATIENCE", 0.5)
    assert "no answer in 0.5 s" in locate("org/name").detail


def test_a_name_that_the_hub_could_not_have_is_not_asked_for(played):
    assert locate("no/such/folder").state == "not found" and locate("a b").state == "not found"
    assert played.asked == []


def test_offline_what_is_not_in_the_cache_is_unreachable(played, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert locate("org/name") == Location("unreachable", 0, "not in the cache, and HF_HUB_OFFLINE is set")


# The cache ---------------------------------------------------------------------------------------------------------


def test_a_cached_model_is_loaded_without_asking_the_network(played, tiny, tiny_folders, tmp_path):
    put_in_cache(played.cache, "org/bert", tiny_folders["bert"])
    put_in_cache(played.cache, "org/gpt2", tiny_folders["gpt2"])
    assert locate("org/bert").state == locate("org/bert", COMMIT).state == "cached"
    assert load_model("org/bert").checksum == tiny["bert"].checksum
    assert load_model("org/gpt2", causal=True).checksum == tiny["gpt2"].checksum
    assert Embedder("org/bert").embed(TEXTS[:2]).shape == (2, 32)
    put_in_cache(played.cache, "org/classifier", save_classifier(tmp_path / "classifier", tiny_folders["bert"]))
    PipelineTopicScorer("org/classifier")
    assert played.asked == []


FIRST_LOAD = """
import socket, sys
tried = []
def refuse(*arguments, **_):
    tried.append(arguments)
    raise OSError("no network")
socket.socket.connect = socket.socket.connect_ex = socket.create_connection = socket.getaddrinfo = refuse
from glauber_lib import hub, instruments, language
loaders = {"load_model": language.load_model, "Embedder": instruments.Embedder,
           "load_sentiment": instruments.load_sentiment, "topics": instruments.PipelineTopicScorer,
           "causal": lambda name: language.load_model(name, causal=True)}
loaders[sys.argv[1]](sys.argv[2])
print(hub.locate(sys.argv[2]).state, hub.cached_commit(sys.argv[2]), len(tried), *tried)
"""


@pytest.mark.parametrize("loader", ["load_model", "causal", "Embedder", "topics", "load_sentiment"])
def test_the_first_load_of_a_cached_model_in_a_process_tries_no_connection_and_says_nothing(
    loader, tiny_folders, tmp_path
):
    folder = tiny_folders["gpt2" if loader == "causal" else "bert"]
    if loader in ("topics", "load_sentiment"):
        folder = save_classifier(tmp_path / "model", folder, labels=("NEGATIVE", "entailment", "POSITIVE"))
    put_in_cache(tmp_path / "cache", "org/name", folder)
    ours = {k: v for k, v in os.environ.items() if not k.startswith("HF_") and not k.lower().endswith("_proxy")}
    ours |= {"HF_HOME": str(tmp_path), "HF_HUB_CACHE": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
    answer = subprocess.run(
        [sys.executable, "-c", FIRST_LOAD, loader, "org/name"], env=ours, cwd=ROOT, capture_output=True, text=True
    )
    assert answer.stdout == f"cached {COMMIT} 0\n", answer.stderr
    assert answer.stderr == ""


def test_a_cached_model_has_the_key_of_its_folder(played, tiny, tiny_folders):
    put_in_cache(played.cache, "org/bert", tiny_folders["bert"])
    assert joblib.hash(load_model("org/bert").cache_key) == joblib.hash(tiny["bert"].cache_key)


class Downloads:
    """Has the played hub hand out the files of a folder; ``.taken`` are those that were asked for."""

    def __init__(self, played, name, folder):
        self.taken, files = [], [path for path in folder.rglob("*") if path.is_file()]
        siblings = {str(path.relative_to(folder)): path.stat().st_size for path in files}
        played.answers[name] = good_answer(siblings, sha=COMMIT)
        self.name, self.folder, self.played = name, folder, played

    def __call__(self, name, *, revision, allow_patterns, ignore_patterns, endpoint, cache_dir):
        assert (name, endpoint, cache_dir) == (self.name, constants.ENDPOINT, constants.HF_HUB_CACHE)
        paths = [str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file()]
        self.taken += filter_repo_objects(paths, allow_patterns=allow_patterns, ignore_patterns=ignore_patterns)
        part = self.played.cache.parent / "part"
        for path in self.taken:
            (part / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(self.folder / path, part / path)
        return str(put_in_cache(self.played.cache, self.name, part))


@pytest.mark.parametrize("load", [load_model, Embedder])
def test_of_a_model_on_the_hub_no_pickle_and_nothing_of_other_libraries_is_downloaded(
    load, played, tiny_folders, tmp_path, monkeypatch
):
    folder = tmp_path / "model"
    shutil.copytree(tiny_folders["bert"], folder)
    (folder / "onnx").mkdir()
    for name in ("pytorch_model.bin", "tf_model.h5", "modeling.py", "README.md", "onnx/model.onnx", "onnx/config.json"):
        (folder / name).write_text("{}")
    downloads = Downloads(played, "org/name", folder)
    monkeypatch.setattr(hub, "snapshot_download", downloads)
    load("org/name")
    wanted = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert {*downloads.taken} == wanted | ({"modeling.py", "README.md"} if load is Embedder else set())
    assert locate("org/name").state == "cached" and hub.cached_commit("org/name") == COMMIT


def test_a_download_that_breaks_is_refused_in_one_line(played, monkeypatch):
    played.answers["org/name"] = good_answer()

    def broken(*_, **__):
        raise ConnectionError("the line broke\nat byte 7")

    monkeypatch.setattr(hub, "snapshot_download", broken)
    with pytest.raises(ValueError, match=r"no masked model 'org/name'.*; the download failed \(the line broke\)$"):
        load_model("org/name")


def test_another_revision_than_the_cached_one_is_not_cached(played, tiny_folders):
    put_in_cache(played.cache, "org/bert", tiny_folders["bert"])
    assert locate("org/bert", "v2").state == "not found"


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors", "tokenizer.json"])
def test_an_interrupted_download_is_not_cached(played, tiny_folders, missing, monkeypatch):
    put_in_cache(played.cache, "org/bert", tiny_folders["bert"], without=[missing])
    played.answers["org/bert"] = good_answer()
    assert locate("org/bert").state == "on the hub"
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    place = locate("org/bert")
    assert place.state == "unreachable"
    assert missing == "config.json" or f"only in part in the cache ({missing} missing)" in place.detail


def test_a_link_to_a_file_that_is_gone_is_not_cached(played, tiny_folders):
    snapshot = put_in_cache(played.cache, "org/bert", tiny_folders["bert"])
    (snapshot / "model.safetensors").resolve().unlink()
    assert hub.missing_files("org/bert") == ["model.safetensors"]


def test_a_sharded_model_is_cached_when_all_its_shards_are(played, tiny, tmp_path):
    tiny["bert"].network.save_pretrained(tmp_path / "shards", max_shard_size="40KB")
    tiny["bert"].tokenizer.save_pretrained(tmp_path / "shards")
    shards = sorted(path.name for path in (tmp_path / "shards").glob("model-*.safetensors"))
    assert len(shards) > 1
    put_in_cache(played.cache, "org/whole", tmp_path / "shards")
    put_in_cache(played.cache, "org/part", tmp_path / "shards", without=shards[1:2])
    assert hub.missing_files("org/whole") == [] and hub.missing_files("org/part") == shards[1:2]
    assert load_model("org/whole").checksum == tiny["bert"].checksum


# Loaders -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("load", [load_model, Embedder, PipelineTopicScorer])
@pytest.mark.parametrize("fault", ["404", "gated", "broken"])
def test_what_is_not_there_is_refused_in_one_line(played, load, fault):
    played.answers["org/name"], _, line = FAULTS[fault]
    with pytest.raises(ValueError, match=r"no .*'org/name'") as refused:
        load("org/name")
    assert line in str(refused.value) and "\n" not in str(refused.value)
    assert len(played.questions()) == 1


def test_provenance_states_the_precision_and_the_commit_of_hub_models(played, tiny_folders):
    put_in_cache(played.cache, "org/bert", tiny_folders["bert"])
    run = Run("02_bounds", "smoke")
    for name in ("org/bert", tiny_folders["roberta"]):
        run.model(name)
    assert set(run.provenance["matmul"].values()) <= {"none", "ieee"}
    plain = {"dtype": "float32", "attention": "sdpa", "device": "cpu", "compiled": False}
    assert run.provenance["computation"] == {"org/bert": plain, str(tiny_folders["roberta"]): plain}
    assert run.provenance["hub_commits"] == {"org/bert": COMMIT}


def test_a_pinned_revision_is_what_is_asked_for_loaded_and_recorded(played, tiny, tiny_folders):
    snapshot = put_in_cache(played.cache, "org/bert", tiny_folders["bert"])
    (snapshot.parents[1] / "refs" / "main").write_text("f" * 40)  # main has gone on
    run = Run("04_basins", "smoke")
    run.settings["revisions"] = {"org/bert": COMMIT, "org/other": "v9"}
    assert run.model("org/bert").checksum == tiny["bert"].checksum
    assert Embedder("org/bert", revision=run.revision("org/bert")).embed(TEXTS[:2]).shape == (2, 32)
    with pytest.raises(ValueError, match=r"lacks weights that would be random numbers: .*classifier"):
        PipelineTopicScorer("org/bert", revision=run.revision("org/bert"))
    assert run.provenance["hub_commits"] == {"org/bert": COMMIT} and played.asked == []
    played.answers["org/other"] = FAULTS["revision"][0]
    with pytest.raises(ValueError, match="has no revision 'v9' of it"):
        run.model("org/other")
    assert "/revision/v9" in played.questions()[0]


def test_the_paper_profile_pins_everything_it_names_to_a_commit():
    settings = load_profile("paper", "01_incompatibility")
    assert {*PAPER, settings["passages"]} <= set(settings["revisions"])
    assert all(re.fullmatch("[0-9a-f]{40}", revision) for revision in settings["revisions"].values())
    assert set(settings["remote_code"]) <= set(settings["revisions"])


# Pickles and remote code -------------------------------------------------------------------------------------------

CUSTOM = """
from sentence_transformers.models import Transformer

class Custom(Transformer):
    ran = []

    def __init__(self, *arguments, **options):
        Custom.ran.append(options)
        super().__init__(*arguments, **options)
"""


def save_with_code(folder, tiny_folder):
    """An embedder whose first module is of a class in its own folder."""
    SentenceTransformer(str(tiny_folder)).save(str(folder))
    modules = json.loads((folder / "modules.json").read_text())
    modules[0]["type"] = "custom_st.Custom"
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "custom_st.py").write_text(CUSTOM)
    return folder


def test_an_embedder_s_own_code_runs_only_where_it_is_allowed_and_pinned_and_says_so(played, tiny_folders, tmp_path):
    folder = save_with_code(tmp_path / "embedder", tiny_folders["bert"])
    put_in_cache(played.cache, "org/embedder", folder)
    played.asked.clear()  # saving an embedder asks, for its card
    for name, options in ((folder, {}), ("org/embedder", {"revision": COMMIT})):
        with pytest.raises(ValueError, match=r"does not load: .*not part of Sentence Transformers"):
            Embedder(name, **options)
    for revision in (None, "main", COMMIT[:12]):
        with pytest.raises(ValueError, match=rf"runs code of its own: pin it to a commit, got {revision!r}"):
            Embedder("org/embedder", revision=revision, remote_code={})
    for name, origin in ((folder, "from a folder"), ("org/embedder", f"of commit {COMMIT}")):
        with pytest.warns(UserWarning, match=f"runs code that came with it, {origin}"):
            embedder = Embedder(name, revision=None if name is folder else COMMIT, remote_code={})
        assert type(embedder.model[0]).__name__ == "Custom" and embedder.embed(TEXTS[:2]).shape == (2, 32)
    assert played.asked == []


@pytest.mark.parametrize("load", [load_model, PipelineTopicScorer, load_sentiment, Embedder])
@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
def test_code_under_the_name_of_a_supported_architecture_is_refused_by_name(load, file, tiny_folders, tmp_path):
    folder = save_classifier(tmp_path / "own", tiny_folders["bert"], labels=("NEGATIVE", "entailment", "POSITIVE"))
    settings = json.loads((folder / file).read_text())
    settings["auto_map"] = {"AutoModel": "modeling.Mine", "AutoTokenizer": ["modeling.Slow", None]}
    (folder / file).write_text(json.dumps(settings))
    with pytest.raises(ValueError, match=r"custom code which must be executed.*\['modeling.Mine', 'modeling.Slow'\]"):
        load(folder)


def test_code_of_another_repository_is_refused_even_where_own_code_may_run(tiny_folders, tmp_path):
    folder = save_with_code(tmp_path / "embedder", tiny_folders["bert"])
    settings = json.loads((folder / "config.json").read_text())
    settings["auto_map"] = {"AutoModel": "other/repository--modeling.Model"}
    (folder / "config.json").write_text(json.dumps(settings))
    with pytest.raises(ValueError, match=r"code of another repository, which nothing pins: .*other/repository--"):
        Embedder(folder, remote_code={})


def test_what_an_embedder_s_code_is_told_is_part_of_the_key_of_cached_results(tiny_folders, tmp_path):
    folder = save_with_code(tmp_path / "embedder", tiny_folders["bert"])
    with pytest.warns(UserWarning, match="runs code"):
        keys = [Embedder(folder, remote_code=told).cache_key for told in ({}, {"attn_implementation": "eager"})]
    assert keys[0] != keys[1]


@pytest.mark.parametrize("load", [load_model, PipelineTopicScorer, load_sentiment, Embedder])
def test_nobody_is_asked_whether_code_of_a_checkpoint_may_run(load, tiny_folders, tmp_path, monkeypatch):
    folder = tmp_path / "custom"
    shutil.copytree(tiny_folders["bert"], folder)
    settings = json.loads((folder / "config.json").read_text())
    names = ("AutoConfig", "AutoModel", "AutoModelForMaskedLM", "AutoModelForSequenceClassification")
    settings |= {"model_type": "custom", "auto_map": {name: "evil.Evil" for name in names}}
    (folder / "config.json").write_text(json.dumps(settings))
    (folder / "evil.py").write_text("raise SystemExit('code of the checkpoint ran')")
    asked = []
    monkeypatch.setattr("builtins.input", lambda *text: asked.append(text) or "y")
    with pytest.raises(ValueError, match="contains custom code which must be executed") as refused:
        load(str(folder))
    assert asked == [] and "\n" not in str(refused.value)


def test_a_pickle_in_any_part_of_an_embedder_is_refused(tiny_folders, tmp_path):
    folder = tmp_path / "embedder"
    whole = SentenceTransformer(str(tiny_folders["bert"]))
    whole.append(Dense(32, 8))
    whole.save(str(folder))
    assert Embedder(folder).embed(TEXTS[:2]).shape == (2, 8)
    [part] = [path.parent for path in folder.rglob("model.safetensors") if "Dense" in path.parent.name]
    torch.save(load_file(part / "model.safetensors"), part / "pytorch_model.bin")
    (part / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=rf"{part.name}/pytorch_model.bin is a pickle, without safetensors"):
        Embedder(folder)


def test_check_says_whose_code_would_run(played, capsys, monkeypatch):
    played.answers["*"] = good_answer()
    jina = "jinaai/jina-embeddings-v4"
    plain = check.load_profile
    monkeypatch.setattr(check, "load_profile", lambda *names: {**plain(*names), "embedder": jina})
    lines = checked(capsys, "--profile", "paper")[1]
    assert "runs code that comes with it, of 853c867b65b749f3c3c72a06868140d842e04f06" in row(lines, jina)
    assert sum("runs code" in line for line in lines) == 1


@pytest.mark.parametrize("load", [load_model, Embedder, PipelineTopicScorer, load_sentiment])
def test_a_pickled_checkpoint_is_refused(load, tiny, tiny_folders, tmp_path):
    folder = tmp_path / "pickled"
    shutil.copytree(tiny_folders["bert"], folder)
    (folder / "model.safetensors").unlink()
    torch.save(tiny["bert"].network.state_dict(), folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"is a pickle, without safetensors.*convert it: ") as refused:
        load(str(folder))
    assert "\n" not in str(refused.value)
    exec(str(refused.value).split("convert it: ")[1])
    if load in (load_model, Embedder):  # the others lack a classifier's head
        load(str(folder))


def test_the_advice_on_a_pickled_part_of_an_embedder_converts_it(tiny_folders, tmp_path):
    whole = SentenceTransformer(str(tiny_folders["bert"]))
    whole.append(Dense(32, 8))
    whole.save(str(tmp_path / "embedder"))
    expected = Embedder(tmp_path / "embedder").embed(TEXTS[:2])
    for part in {path.parent for path in (tmp_path / "embedder").rglob("model.safetensors")}:
        torch.save(load_file(part / "model.safetensors"), part / "pytorch_model.bin")
        (part / "model.safetensors").unlink()
    for _ in range(2):
        with pytest.raises(ValueError, match="is a pickle") as refused:
            Embedder(tmp_path / "embedder")
        exec(str(refused.value).split("convert it: ")[1])
    assert (Embedder(tmp_path / "embedder").embed(TEXTS[:2]) == expected).all()


def test_a_missing_model_type_is_named(tiny_folders, tmp_path):
    shutil.copytree(tiny_folders["bert"], tmp_path / "model")
    settings = json.loads((tmp_path / "model" / "config.json").read_text())
    del settings["model_type"], settings["architectures"]
    (tmp_path / "model" / "config.json").write_text(json.dumps(settings))
    for load in (load_model, Embedder, PipelineTopicScorer):
        with pytest.raises(ValueError, match=r"`model_type` key in its config\.json") as refused:
            load(tmp_path / "model")
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("load", [load_model, Embedder])
def test_loading_shows_nothing_and_leaves_the_switches_of_transformers_as_they_were(
    load, tiny_folders, tmp_path, capfd
):
    (tmp_path / "config.json").write_text("{}")
    logging = transformers.utils.logging
    mine = lambda factory, arguments, options: factory(*arguments, **options)  # noqa: E731
    before = logging.set_tqdm_hook(mine)
    try:
        verbosity = logging.get_verbosity()
        load(tiny_folders["bert"])
        assert capfd.readouterr() == ("", "")
        assert logging.get_verbosity() == verbosity and logging.set_tqdm_hook(mine) is mine
        with pytest.raises(ValueError, match="model_type"):
            load(tmp_path)
        assert logging.get_verbosity() == verbosity and logging.set_tqdm_hook(before) is mine
    finally:
        logging.set_tqdm_hook(before)


# make check --------------------------------------------------------------------------------------------------------


def checked(capsys, *arguments):
    """Exit status and lines of `make check`."""
    status = check.main(arguments)
    return status, capsys.readouterr().out.splitlines()


def row(lines, name):
    """The line about one model."""
    return next(line for line in lines if line.startswith(name + " "))


def speed(lines, name):
    """Conditionals per second in the line about one model."""
    return float(re.split(r"\s{2,}", row(lines, name))[4].replace(",", ""))


def test_the_default_profile_can_run_offline(capsys, embedded):
    for name in ("minilm-6l", "minilm-3l", "distilbert"):
        embedded(name)  # skips where the weights are not there
    status, lines = checked(capsys)
    assert status == 0 and lines[-1] == "mini can run here, nothing to download"
    assert "embedded" in row(lines, "minilm-6l") and "comes with the package" in row(lines, "lexical")
    assert "372 (n = 20)" in row(lines, "04_basins") and " min" in row(lines, "04_basins")
    assert speed(lines, "minilm-6l") > 0 and speed(lines, "minilm-3l") > 0
    assert speed(lines, "distilbert") > 0 and "not known" not in "".join(lines)


@pytest.fixture
def two_profiles(played, monkeypatch):
    """Settings by notebook where 04 alone names a model and a control of its own."""
    played.answers["*"] = good_answer()
    named = {"models": ["org/other", "bert-base-uncased"], "control": "org/control"}
    changed = lambda *names: load_profile(*names) | (named if names[1] == "04_basins" else {})  # noqa: E731
    monkeypatch.setattr(check, "load_profile", changed)
    return played


def test_check_looks_at_the_models_of_every_notebook(two_profiles, capsys):
    status, lines = checked(capsys, "--profile", "paper")
    assert status == 0
    assert "on the hub" in row(lines, "org/other") and "  models  " in row(lines, "org/other")
    assert "  control  " in row(lines, "org/control") and "  control  " in row(lines, "gpt2")
    assert "model, models" in row(lines, "bert-base-uncased")  # each role once, whatever the number of notebooks
    assert len(two_profiles.questions()) == len(PAPER) + 3  # each once: those two and the passages too
    two_profiles.answers["org/other"] = FAULTS["404"][0]
    status, lines = checked(capsys, "--profile", "paper")
    assert status == 1 and lines[-1].endswith(f"1 of {len(PAPER) + 3} not to be had: org/other")


def test_the_time_of_a_notebook_is_that_of_its_own_models(two_profiles, capsys, tiny_folders):
    pin = load_profile("paper", "01_incompatibility")["revisions"]["bert-base-uncased"]
    put_in_cache(two_profiles.cache, "bert-base-uncased", tiny_folders["bert"], commit=pin)
    lines = checked(capsys, "--profile", "paper")[1]
    assert "not known" in row(lines, "04_basins") and "not known" not in row(lines, "02_bounds")
    put_in_cache(two_profiles.cache, "org/other", tiny_folders["roberta"])
    lines = checked(capsys, "--profile", "paper")[1]
    assert speed(lines, "org/other") > 0 and "not known" not in row(lines, "04_basins")
    assert "not known" in row(lines, "01_incompatibility")  # whose five models are not here


def test_an_unknown_profile_is_refused_with_status_two(capsys):
    assert check.main(["--profile", "mega"]) == 2
    assert "unknown profile 'mega', choose one of" in capsys.readouterr().err


def test_a_profile_on_the_hub_can_run_after_a_download(played, capsys):
    played.answers["*"] = good_answer()
    status, lines = checked(capsys, "--profile", "paper")
    assert status == 0 and lines[-1] == f"paper can run here, after a download of {len(PAPER) * 0.4404006:.1f} GB"
    assert "on the hub" in row(lines, "roberta-base") and "440 MB" in row(lines, "roberta-base")
    assert "not known before the models are here" in row(lines, "02_bounds")
    assert len(played.questions()) == len(PAPER) + 1  # and the passages
    assert "on the hub" in row(lines, "microsoft/ms_marco")


@pytest.mark.parametrize("fault", FAULTS)
def test_one_model_that_is_not_to_be_had_is_named_and_gives_status_one(played, capsys, fault):
    played.answers.update({"*": good_answer(), "facebook/bart-large-mnli": FAULTS[fault][0]})
    status, lines = checked(capsys, "--profile", "paper")
    assert status == 1
    assert lines[-1] == f"paper cannot run here: 1 of {len(PAPER) + 1} not to be had: facebook/bart-large-mnli"
    state = "not found" if fault == "revision" else FAULTS[fault][1]
    assert state in row(lines, "facebook/bart-large-mnli") and "on the hub" in row(lines, "gpt2")


def test_cached_models_are_timed_and_a_bad_one_is_named(played, capsys, tiny_folders, monkeypatch):
    pins = load_profile("paper", "01_incompatibility")["revisions"]
    prepared = played.cache / "microsoft___ms_marco" / "v2.1" / "0.0.0" / pins["microsoft/ms_marco"]
    prepared.mkdir(parents=True)
    (prepared / "dataset_info.json").write_text("{}")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", played.cache)
    for name in PAPER:
        kind = "gpt2" if name in ("gpt2", "roberta-large") else "bert"  # no masked model
        put_in_cache(played.cache, name, tiny_folders[kind], commit=pins[name])
    status, lines = checked(capsys, "--profile", "paper")
    assert status == 1 and lines[-1].endswith(f"1 of {len(PAPER) + 1} not to be had: roberta-large")
    assert speed(lines, "bert-base-uncased") > 0
    assert "no masked model 'roberta-large'" in row(lines, "roberta-large")
    assert "not known" in row(lines, "01_incompatibility") and "not known" not in row(lines, "02_bounds")
    assert played.asked == []


def test_the_conditionals_and_lengths_of_a_notebook_are_those_that_its_table_declares(capsys, monkeypatch):
    costs = {"cost": [["model", 14, 1_000], ["models", 9, 20]], "models": ["minilm-3l"], "model": "minilm-6l"}
    monkeypatch.setattr(check, "load_profile", lambda *names: load_profile(*names) | costs)
    monkeypatch.setattr(check, "measure_speed", lambda *_: 4.0)
    lines = checked(capsys, "--profile", "smoke")[1]
    cells = re.split(r"\s{2,}", row(lines, "02_bounds"))
    assert cells[1] == "1,040" and cells[3] == "744 (n = 9), 512 (n = 14)"  # both of the second role
    assert (
        cells[2] == f"{(1_000 + 2 * 20 * 11 / 16) / 4 / 60:.0f} min"
    )  # at the speed on the states of most conditionals
    assert any("conditionals/s, n = 14" in line for line in lines)


def test_check_leaves_out_a_notebook_without_a_table_and_says_so(capsys, monkeypatch):
    reason = lambda profile, notebook: "no table of it" if notebook == "04_basins" else None  # noqa: E731
    monkeypatch.setattr(check, "missing_table", reason)
    monkeypatch.setattr(check, "measure_speed", lambda *_: 4.0)
    lines = checked(capsys, "--profile", "smoke")[1]
    assert "04_basins: left out, no table of it" in lines
    assert row(lines, "03_crossover") and not any(line.startswith("04_basins ") for line in lines)


def test_the_timed_measurement_is_of_the_lengths_and_rows_that_are_asked_for(tiny):
    sizes = []
    counted = SimpleNamespace(
        n_tokens=tiny["bert"].n_tokens,
        states=tiny["bert"].states,
        scores=lambda x, sites: sizes.append((x.shape, set(sites))) or tiny["bert"].scores(x, sites),
    )
    assert check.measure_speed(counted, TEXTS, 20) > 0
    assert {shape[1] for shape, _ in sizes} == {20} and max(shape[0] for shape, _ in sizes) <= check.batch(20)
    assert set().union(*(sites for _, sites in sizes)) >= set(range(8))


def test_an_estimate_grows_with_the_tokens_of_a_state_and_needs_every_speed():
    settings = load_profile("mini", "04_basins")
    speeds = {cost.model: 10.0 for cost in declared_cost(settings)}
    hours = check.estimate_hours(settings, speeds, 20)
    assert hours == pytest.approx(sum(cost.conditionals / 10 * (cost.sites + 2) / 22 / 3600
                                      for cost in declared_cost(settings)))  # fmt: skip
    assert check.estimate_hours(settings, speeds, 9) == pytest.approx(2 * hours)
    assert check.estimate_hours(settings, {"another": 10.0}, 20) is None


def test_the_typical_length_is_that_of_most_conditionals_however_many_entries_share_it():
    cost = [["model", 5, 100], ["model", 20, 60], ["control", 20, 60]]
    settings = [load_profile("smoke", "03_crossover") | {"cost": part} for part in (cost[:2], cost[2:])]
    assert check.typical_sites(settings) == 20 and check.typical_sites([]) == check.SITES


def test_a_run_of_minutes_says_how_long_it_takes_and_on_what_that_rests(capsys, monkeypatch, embedded):
    monkeypatch.setattr(check, "measure_speed", lambda *_: 500.0)
    short = load_profile("smoke", "03_crossover")
    assert not check.announce({"03_crossover": short}) and capsys.readouterr().out == ""
    assert not check.announce({})
    embedded("minilm-3l")  # skips where the weights are not there
    long = short | {"cost": [["model", 20, 600_000]]}
    assert check.announce({"03_crossover": long})
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first == "03_crossover: 20 min for 600,000 conditionals, at most"
    assert "minilm-3l 500/s" in second and "at n = 20" in second


LOAD = """
import time
from glauber_lib.language import load_model
began = time.monotonic()
try:
    load_model("bert-base-uncased")
except ValueError as error:
    print(error)
print(time.monotonic() - began)
"""


@pytest.mark.parametrize(
    "environment, line",
    [
        ({"HF_HUB_OFFLINE": "1"}, "not in the cache, and HF_HUB_OFFLINE is set"),
        ({"HTTPS_PROXY": "http://127.0.0.1:9"}, "not in the cache, and https://huggingface.co cannot be reached"),
        ({"HF_ENDPOINT": "http://127.0.0.1:9"}, "not in the cache, and http://127.0.0.1:9 cannot be reached"),
    ],
    ids=["offline", "dead proxy", "dead hub"],
)
def test_in_a_process_of_its_own_the_environment_decides_within_seconds(environment, line, tmp_path):
    ours = {k: v for k, v in os.environ.items() if not k.startswith("HF_") and not k.lower().endswith("_proxy")}
    ours |= {"HF_HUB_CACHE": str(tmp_path), "PYTHONPATH": str(ROOT), **environment}
    answer = subprocess.run([sys.executable, "-c", LOAD], env=ours, cwd=ROOT, capture_output=True, text=True)
    message, seconds = answer.stdout.splitlines()
    assert message.startswith("no masked model 'bert-base-uncased': ") and line in message
    assert float(seconds) < 6 and not answer.stderr
