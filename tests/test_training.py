"""The scripts that made the embedded models, on a corpus of a few sentences."""

import argparse
import hashlib
import json
import sys
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
import transformers
from conftest import TEXTS, script
from safetensors.torch import load_file, save_file

from glauber_lib.embedded import DATA, EMBEDDED, load_embedded, package_tokenizer
from glauber_lib.incompatibility import measure_rectangles
from glauber_lib.influence import measure_influence
from glauber_lib.language import MaskedLM
from glauber_lib.margins import log_pseudo_likelihood
from glauber_lib.paper import load_passages

pytestmark = pytest.mark.slow
pack, train, evaluate, along, distil = (script(name) for name in ("pack", "train", "evaluate", "along", "distil"))


# Packing -----------------------------------------------------------------------------------------------------------


def is_held_out(text):
    digest = hashlib.blake2b(text.lower().encode(), digest_size=8).digest()
    return digest[0] == 0 and digest[1] < 128


def held_out_text():
    """A paragraph that the packing rule holds out: a passage with the first suitable number."""
    text = " ".join(TEXTS[:3])
    return next(f"{text} {k}" for k in range(20_000) if is_held_out(f"{text} {k}"))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A corpus of two sources; one paragraph is held out, one comes twice."""
    folder = tmp_path_factory.mktemp("corpus")
    held = held_out_text()
    for source, texts in (("brown", [*TEXTS[:20], held]), ("gcide", [*TEXTS[20:30], TEXTS[0]])):
        lines = [json.dumps({"source": source, "text": text}) for text in texts]
        (folder / f"{source}.jsonl").write_text("\n".join(lines) + "\n")
    return folder, held


def packed_by(base, corpus, folder):
    """What the packing script writes for the corpus."""
    path = folder / "tokens.npz"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["pack.py", "--corpus", str(corpus[0]), "--out", str(path), "--base", base])
        pack.main()
    return path


@pytest.fixture(scope="module")
def packed(corpus, tmp_path_factory):
    return packed_by("minilm", corpus, tmp_path_factory.mktemp("packed"))


@pytest.fixture(scope="module")
def arrays(packed):
    with np.load(packed) as file:
        return dict(file)


@pytest.mark.parametrize("base", ["minilm", "distilbert"])
def test_the_packed_tokens_are_those_of_the_distinct_paragraphs(corpus, tmp_path, base):
    tokenizer = package_tokenizer(base)
    ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in TEXTS[:30]]
    with np.load(packed_by(base, corpus, tmp_path)) as arrays:
        np.testing.assert_array_equal(arrays["tokens"], np.concatenate(ids))
        np.testing.assert_array_equal(arrays["held_out"], tokenizer(corpus[1], add_special_tokens=False)["input_ids"])
    a_capital = any(word != word.lower() for word in tokenizer.convert_ids_to_tokens(ids[0]))
    assert a_capital == (base == "distilbert")


@pytest.mark.parametrize("base", ["minilm", "distilbert"])
def test_the_frame_and_the_mask_of_a_batch_are_those_of_the_tokenizer(base):
    tokenizer = package_tokenizer(base)
    frame = (tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.mask_token_id)
    assert frame == (train.CLS, train.SEP, train.MASK)


def test_windows_begin_at_paragraphs_or_after_a_sentence(arrays):
    ends = {package_tokenizer().convert_tokens_to_ids(m) for m in ".!?;:"}
    tokenizer = package_tokenizer()
    lengths = [len(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in TEXTS[:30]]
    paragraphs = {0, *np.cumsum(lengths)[:-1].tolist()}
    starts = set(arrays["starts"].tolist())
    assert paragraphs <= starts
    assert all(arrays["tokens"][k - 1] in ends for k in starts - paragraphs)
    assert len(starts) > 60


def test_a_source_is_drawn_by_its_weight(arrays):
    names = list(arrays["names"])
    assert names == ["brown", "gcide"]
    np.testing.assert_array_equal(arrays["weights"], [pack.WEIGHTS["brown"], pack.WEIGHTS["gcide"]])
    windows = train.Windows(arrays)
    mass = np.diff(windows.cumulative, prepend=0)
    per_source = np.bincount(arrays["source"], weights=mass)
    counts = np.bincount(arrays["source"])
    np.testing.assert_allclose(per_source[0] / per_source[1], 20 * counts[0] / counts[1])  # weights 2.0 and 0.1
    ids = windows.draw(np.random.default_rng(0), 50, 12)
    assert (ids[:, 0] == train.CLS).all() and (ids[:, -1] == train.SEP).all()
    text = " ".join(map(str, arrays["tokens"].tolist()))
    assert all(" ".join(map(str, row[1:-1].tolist())) in text for row in ids)


# The network as it is trained --------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[False, True], ids=["masked", "causal"])
def tiny_network(request):
    """A small BERT of either kind, with weights wide enough to matter."""
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=200, hidden_size=32, num_hidden_layers=3, num_attention_heads=2, intermediate_size=48,
        is_decoder=request.param, use_cache=False, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        initializer_range=0.3,
    )  # fmt: skip
    kind = transformers.BertLMHeadModel if request.param else transformers.BertForMaskedLM
    return kind(config).eval(), request.param


def test_scores_at_some_sites_are_those_of_the_full_forward(tiny_network):
    network, causal = tiny_network
    ids = torch.randint(0, 200, (5, 11), generator=torch.Generator().manual_seed(1))
    sites = torch.tensor([[0, 3, 10], [1, 1, 2], [9, 4, 0], [10, 9, 8], [5, 6, 7]])
    with torch.no_grad():
        short, full = train.log_scores(network, ids, sites, causal), network(input_ids=ids).logits
    torch.testing.assert_close(short, full[torch.arange(5)[:, None], sites], atol=1e-4, rtol=0)


def test_a_later_token_changes_earlier_scores_only_of_a_masked_model(tiny_network):
    network, causal = tiny_network
    ids = torch.randint(0, 200, (1, 11), generator=torch.Generator().manual_seed(1))
    changed = ids.clone()
    changed[0, 7] = (changed[0, 7] + 1) % 200
    sites = torch.arange(11)[None]
    with torch.no_grad():
        before, after = (train.log_scores(network, x, sites, causal) for x in (ids, changed))
    moved = (before - after).abs().amax(-1)[0]
    assert moved[7:].min() > 1e-3
    assert (moved[:7].max() < 1e-5) == causal


def test_a_masked_batch_asks_for_the_hidden_tokens_and_a_causal_one_for_the_next(arrays):
    windows = train.Windows(arrays)
    ids, sites, answers = train.batch(windows, np.random.default_rng(3), 400, 0.25, False)
    assert (ids.gather(1, sites) == train.MASK).all() and (answers != train.MASK).all()
    assert (ids == train.MASK).sum() == sites.numel()  # nothing else is hidden
    assert sites.min() >= 1 and sites.max() <= ids.shape[1] - 2
    ids, sites, answers = train.batch(windows, np.random.default_rng(3), 400, 0.25, True)
    assert (ids.gather(1, sites + 1) == answers).all() and (ids != train.MASK).all()


@pytest.mark.parametrize(("flat", "masked"), [(0.7, 0.25), (0.4, 0.2)])
def test_the_schedule_warms_up_stays_and_falls_to_zero(flat, masked):
    end = round(10_000 * flat)
    half = (10_000 + end) // 2
    steps = (0, 149, end // 2, end - 1, half, 9_999)
    factors, shares = zip(*(train.schedule(k, 10_000, flat, masked) for k in steps), strict=True)
    np.testing.assert_allclose(factors, [1 / 150, 1, 1, 1, 0.5, 1 / (10_000 - end)], rtol=1e-6)
    np.testing.assert_allclose(shares, [masked, masked, masked, masked, masked / 2, 0])


# Training ----------------------------------------------------------------------------------------------------------


def options(packed, folder, **changes):
    """Arguments of the training script for six small steps."""
    given = dict(
        model="minilm-3l", tokens=packed, work=folder, export=folder / "models" / "minilm-3l", init=None, steps=6,
        batch=64, rate=3e-4, head_rate=2e-3, head_steps=0, flat=0.7, masked=0.25, every=3, seed=0,
        layers=None, teacher=None,
    )  # fmt: skip
    return argparse.Namespace(**given | changes)


@pytest.fixture(scope="module", autouse=True)
def small():
    """Trained on the CPU, and one batch of held-out windows alone."""
    loss = train.held_out_loss
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: False)
        patch.setattr(train, "held_out_loss", lambda *arguments, batches=1: loss(*arguments, batches=1))
        patch.setattr(train, "SNAPSHOTS", (0, 2, 4))
        patch.setattr(train, "JUDGED", 100)
        yield


@pytest.fixture(scope="module")
def whole(packed, tmp_path_factory):
    """The folder of an uninterrupted training, two steps of the head alone first."""
    folder = tmp_path_factory.mktemp("whole")
    train.train(options(packed, folder, head_steps=2))
    return folder


def snapshots(folder):
    """The weights that a training kept, by step."""
    return {int(path.stem): load_file(path) for path in (folder / "minilm-3l").glob("*.safetensors")}


def test_a_resumed_training_gives_the_weights_of_an_uninterrupted_one(packed, whole, tmp_path, monkeypatch):
    batch, calls = train.batch, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == 5:  # the fifth step: the checkpoint is that of the third
            raise KeyboardInterrupt
        return batch(*arguments)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(train, "batch", interrupted)
        train.train(options(packed, tmp_path, head_steps=2))
    checkpoint = torch.load(tmp_path / "minilm-3l.pt", weights_only=True)
    assert checkpoint["step"] == 3 and not (tmp_path / "models").exists()
    train.train(options(packed, tmp_path, head_steps=2))

    once, parts = (torch.load(folder / "minilm-3l.pt", weights_only=True) for folder in (whole, tmp_path))
    assert once["step"] == parts["step"] == 6 and once["tokens"] == parts["tokens"]
    for kind in ("model", "average"):
        for name, weight in once[kind].items():
            assert torch.equal(weight, parts[kind][name]), name
    key = "bert.encoder.layer.0.attention.self.query.weight"
    assert not torch.equal(checkpoint["model"][key], once["model"][key])  # it did learn something in between


@pytest.mark.parametrize("change", ["seed", "steps", "head_steps", "rate", "tokens", "unknown"])
def test_a_checkpoint_of_another_training_is_refused(packed, whole, tmp_path, change):
    (tmp_path / "minilm-3l.pt").write_bytes((whole / "minilm-3l.pt").read_bytes())
    given = {"head_steps": 2, "export": None}
    train.train(options(packed, tmp_path, **given))  # the same: there is nothing left to do
    if change == "tokens":
        with np.load(packed) as file:
            np.savez(tmp_path / "other.npz", **{**file, "weights": 2 * file["weights"]})
        packed = tmp_path / "other.npz"
    elif change == "unknown":  # of a version that kept none
        checkpoint = torch.load(tmp_path / "minilm-3l.pt", weights_only=True)
        torch.save({k: v for k, v in checkpoint.items() if k != "settings"}, tmp_path / "minilm-3l.pt")
    else:
        given[change] = 7
    named = {"unknown": "batch, rate, .*processes"}.get(change, change)
    with pytest.raises(ValueError, match=rf"minilm-3l.pt is of another training \({named}\): delete it"):
        train.train(options(packed, tmp_path, **given))


def test_an_export_holds_the_trained_weights_within_half_a_step_of_their_rows(whole):
    exported = load_embedded("minilm-3l", whole / "models").state_dict()
    stored = load_file(whole / "models" / "minilm-3l" / "model.safetensors")
    trained = torch.load(whole / "minilm-3l.pt", weights_only=True)
    average = {k.removeprefix("module."): v for k, v in trained["average"].items()}
    key = "bert.encoder.layer.0.attention.self.query.weight"
    assert stored[key].dtype == torch.int8 and not any("word_embeddings" in name for name in stored)
    best = min((trained["model"], average), key=lambda weights: (weights[key] - exported[key]).abs().max())
    for name, scale in ((k.removesuffix(".scale"), v) for k, v in stored.items() if k.endswith(".scale")):
        assert ((exported[name] - best[name]).abs() <= 0.501 * scale).all(), name
    name = "cls.predictions.transform.dense.bias"
    assert torch.equal(exported[name], best[name])


def test_what_a_training_was_done_with_is_recorded(packed, whole, tmp_path):
    facts = json.loads((whole / "models" / "minilm-3l" / "training.json").read_text())
    assert facts["steps"] == 6 and facts["tokens"] == 6 * 64 and 0 < facts["held_out_nats"] < 12
    assert (facts["rate"], facts["head_rate"], facts["head_steps"], facts["batch"]) == (3e-4, 2e-3, 2, 64)
    assert "init" not in facts
    onward = options(packed, tmp_path, init=whole / "models" / "minilm-3l", steps=1, every=1)
    train.train(onward)
    facts = json.loads((onward.export / "training.json").read_text())
    assert facts["init"] == "minilm-3l" and facts["before"] == {"steps": 6, "tokens": 384}


def test_three_layers_are_no_start_for_six(packed, whole, tmp_path):
    deeper = options(packed, tmp_path, model="minilm-6l", init=whole / "models" / "minilm-3l")
    with pytest.raises(ValueError, match=r"lacks weights of minilm-6l: .*encoder\.layer\.3\."):
        train.train(deeper)


def test_a_smaller_model_needs_a_larger_one_to_begin_with(packed, tmp_path):
    for change in ({"model": "distilbert-fast"}, {"layers": [0, 2]}):
        with pytest.raises(ValueError, match=r"begins with layers of a larger model, .*: give --init"):
            train.train(options(packed, tmp_path, **change))


def test_the_head_alone_is_trained_at_first(whole):
    kept = snapshots(whole)
    assert sorted(kept) == [0, 2, 4, 6]
    moved = lambda step: {name for name, w in kept[step].items() if not torch.equal(w, kept[0][name])}  # noqa: E731
    assert moved(2) and all(name.startswith("cls.") for name in moved(2))
    assert {name for name, w in kept[0].items() if w.ndim == 2} <= moved(4)  # a vector may move less than float16 shows


# A smaller model from a larger one ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def teacher():
    """A small DistilBERT whose feed-forward networks have units that never fire."""
    torch.manual_seed(0)
    config = transformers.DistilBertConfig(
        vocab_size=200, dim=32, n_layers=3, n_heads=2, hidden_dim=24, dropout=0.0, attention_dropout=0.0,
        initializer_range=0.3,
    )  # fmt: skip
    network = transformers.DistilBertForMaskedLM(config).eval()
    with torch.no_grad():
        for layer, network_layer in enumerate(network.base_model.transformer.layer):
            network_layer.ffn.lin2.weight[:, layer::3] = 0  # a third of the units has no part in the output
    return network


IDS = torch.randint(0, 200, (6, 9), generator=torch.Generator().manual_seed(2))


def test_units_without_a_part_are_those_left_out(teacher):
    config = transformers.DistilBertConfig(**(teacher.config.to_dict() | {"hidden_dim": 16}))
    student = transformers.DistilBertForMaskedLM(config).eval()
    student.load_state_dict(distil.shrunk(teacher, [0, 1, 2], 16, [IDS]))
    with torch.no_grad():
        torch.testing.assert_close(student(input_ids=IDS).logits, teacher(input_ids=IDS).logits, atol=1e-4, rtol=0)


def test_the_layers_kept_are_those_named_in_their_order(teacher):
    weights, whole = distil.shrunk(teacher, [0, 2], 24, [IDS]), teacher.state_dict()
    prefix, kept = "distilbert.transformer.layer.", {0: 0, 1: 2}
    assert not any(name.startswith(f"{prefix}2.") for name in weights)
    for name, weight in weights.items():
        if name.startswith(prefix):
            number, rest = name.removeprefix(prefix).split(".", 1)
            name = f"{prefix}{kept[int(number)]}.{rest}"
        assert torch.equal(weight, whole[name]), name


def test_a_distilbert_under_the_names_of_bert_gives_the_same_scores():
    config = transformers.DistilBertConfig(vocab_size=100, n_layers=2, hidden_dim=64, dropout=0, attention_dropout=0)
    network = transformers.DistilBertForMaskedLM(config).eval()
    same = transformers.BertForMaskedLM(
        transformers.BertConfig(vocab_size=100, num_hidden_layers=2, intermediate_size=64, type_vocab_size=1)
    ).eval()
    missing, unexpected = same.load_state_dict(distil.as_bert(network.state_dict()), strict=False)
    assert not unexpected and all("decoder" in name or "position_ids" in name for name in missing)
    with torch.no_grad():
        torch.testing.assert_close(
            same(input_ids=IDS % 100).logits, network(input_ids=IDS % 100).logits, atol=1e-4, rtol=0
        )


def test_a_student_that_is_its_teacher_loses_half_the_cross_entropy_of_the_text(teacher):
    sites, answers = torch.tensor([[2, 5]] * 6), torch.randint(0, 200, (6, 2))
    loss = distil.distillation_loss(teacher, teacher, IDS, sites, answers)
    torch.testing.assert_close(loss, train.cross_entropy(teacher, IDS, sites, answers, False) / 2)
    assert loss.requires_grad


@pytest.mark.parametrize("name", ["distilbert-fast", "distilbert-causal"])
def test_a_student_is_trained_and_recorded(corpus, tmp_path, name, embedded):
    embedded("distilbert")
    packed = packed_by("distilbert", corpus, tmp_path)
    own = options(
        packed, tmp_path, model=name, export=tmp_path / name, init=DATA / "models" / "distilbert", layers=[0, 3, 5],
        teacher="distilbert" if name == "distilbert-fast" else None, steps=1, every=1, rate=0.0, head_rate=0.0,
    )  # fmt: skip
    train.train(own)
    facts = json.loads((tmp_path / name / "training.json").read_text())
    assert facts["layers"] == [0, 3, 5] and facts["init"] == "distilbert"
    network = load_embedded(name, tmp_path)
    query = network.base_model.get_parameter(
        "transformer.layer.1.attention.q_lin.weight"
        if name == "distilbert-fast"
        else "encoder.layer.1.attention.self.query.weight"
    )
    teachers = load_embedded("distilbert").base_model.transformer.layer[3].attention.q_lin.weight
    torch.testing.assert_close(query, teachers, atol=0.02, rtol=0)  # a learning rate of zero; int8 once more
    text = evaluate.recipe(name, facts, tmp_path / name)
    assert "layers 1, 4, 6 of `distilbert`" in text and "{" not in text
    assert f"{EMBEDDED[name]['width']:,} hidden units" in text
    assert ("conditionals of `distilbert`" in text) == (name == "distilbert-fast")


# Measuring along a training, and the card --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def log(packed, whole, tmp_path_factory):
    """What the script for measuring along a training writes of two snapshots, then of the two that come later."""
    folder = tmp_path_factory.mktemp("log")
    out, early = folder / "training.jsonl", folder / "early"
    early.mkdir()
    for name in ("000000", "000004"):
        (early / f"{name}.safetensors").symlink_to(whole / "minilm-3l" / f"{name}.safetensors")
    counts = {"--rectangles": 6, "--contexts": 2, "--texts": 3, "--batches": 1, "--batch": 64, "--before": 1000}
    rest = ["--tokens", str(packed), "--out", str(out), *(str(part) for pair in counts.items() for part in pair)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(along, "load_passages", lambda: load_passages().head(4))
        written = []
        for snapshots_at in (early, whole / "minilm-3l"):
            patch.setattr(sys, "argv", ["along.py", "minilm-3l", str(snapshots_at), *rest])
            along.main()
            written.append(out.read_text().splitlines())
    return out, written


def test_each_snapshot_is_measured_once(log):
    first, second = log[1]
    assert second[: len(first)] == first
    lines = [json.loads(line) for line in second]
    assert [line["step"] for line in lines] == [0, 4, 2, 6]
    assert [line["tokens"] for line in lines] == [1000, 1256, 1128, 1384]
    assert {line["reference"] for line in lines} == {"minilm-3l at step 4"}  # the last that there was at first


@pytest.mark.parametrize(
    "option, other, named",
    [("--rectangles", 7, "rectangles"), ("--texts", 2, "texts"), ("--batches", 2, "batches"),
     ("--reference", 6, "reference"),
     ("--batch", 65, "batch or before"), ("--before", 0, "batch or before"), ("--tokens", None, "tokens")],
)  # fmt: skip
def test_a_log_of_another_measurement_is_refused(log, whole, packed, tmp_path, monkeypatch, option, other, named):
    given = {"--rectangles": 6, "--contexts": 2, "--texts": 3, "--batches": 1, "--batch": 64, "--before": 1000}
    if option == "--tokens":
        with np.load(packed) as file:
            np.savez(tmp_path / "other.npz", **{**file, "weights": 2 * file["weights"]})
        other = tmp_path / "other.npz"
    given |= {"--tokens": packed, "--out": log[0]} | {option: other}
    before = log[0].read_text()
    words = [str(part) for pair in given.items() for part in pair]
    monkeypatch.setattr(sys, "argv", ["along.py", "minilm-3l", str(whole / "minilm-3l"), *words])
    monkeypatch.setattr(along, "load_passages", lambda: load_passages().head(4))
    with pytest.raises(ValueError, match=rf"training.jsonl is of another measurement \({named}\): delete it"):
        along.main()
    assert log[0].read_text() == before


def test_a_line_of_the_log_holds_every_value_of_its_snapshot(log, whole, packed):
    questions = along.Questions.load(log[0].with_suffix(".npz"))
    line = json.loads(log[1][1][-1])  # step 6
    model = MaskedLM(
        load_embedded("minilm-3l", whole / "models"), package_tokenizer("minilm"), name="minilm-3l", device="cpu"
    )
    along.load_snapshot(model, whole / "minilm-3l" / "000006.safetensors")
    np.testing.assert_allclose(line["delta"], measure_rectangles(model, questions.rectangles).delta, atol=1e-3)
    influence = measure_influence(model, questions.contexts, questions.replacements[..., None], [1.0])
    np.testing.assert_allclose(line["row_sums"], influence.by_context[:, 0].sum(2), atol=1e-3)
    np.testing.assert_allclose(line["pseudo_log_likelihood"], log_pseudo_likelihood(model, questions.texts), atol=0.01)
    assert [len(line[name]) for name in ("delta", "row_sums", "pseudo_log_likelihood")] == [6, 2, 3]
    assert line["passages_sites"] == 8 and 0 < line["passages_error"] < 5
    earlier = json.loads(log[1][1][0])
    assert line["delta"] != earlier["delta"] and line["passages"] != earlier["passages"]


def test_a_snapshot_of_another_model_is_refused(whole, tmp_path):
    save_file({"x": torch.zeros(1)}, tmp_path / "000000.safetensors")
    network = load_embedded("minilm-3l", whole / "models")
    model = MaskedLM(network, package_tokenizer("minilm"), name="minilm-3l", device="cpu")
    with pytest.raises(ValueError, match="is no snapshot of minilm-3l"):
        along.load_snapshot(model, tmp_path / "000000.safetensors")


def test_the_card_says_what_was_measured_and_shows_the_curve(log, whole, packed, monkeypatch):
    here = whole / "models" / "minilm-3l"
    for suffix in (".jsonl", ".npz"):
        (here / f"training{suffix}").write_bytes(log[0].with_suffix(suffix).read_bytes())
    monkeypatch.setattr(evaluate, "load_passages", lambda: load_passages().iloc[28:32].reset_index(drop=True))
    monkeypatch.setattr(evaluate, "samples", partial(evaluate.samples, passage=2, n_steps=3))
    monkeypatch.setattr(
        sys, "argv",
        ["evaluate.py", "minilm-3l", "--tokens", str(packed), "--folder", str(whole / "models"), "--stride", "20"],
    )  # fmt: skip
    evaluate.main()
    card, facts = (here / "README.md").read_text(), json.loads((here / "training.json").read_text())
    assert f"cross-entropy {facts['passages_nats']:.2f} nats" in card
    low, high = facts["passages_nats_interval"]
    assert low < facts["passages_nats"] < high
    assert facts["beside"] == "minilm-6l" and facts["difference_per_word"] > 0  # six steps are not much
    assert "0.002 for the head" in card and "first 2 steps" in card and "int8 with a scale for each row" in card
    assert "4 snapshots, steps 0 to 6" in card and "minilm-3l at step 4" in card
    assert (here / "training.png").stat().st_size > 20_000
    assert "τ = 0.2" in card and "| minilm-6l" in card and "| gcide" in card


def test_nats_per_word_are_those_per_token_times_the_tokens_of_a_word():
    passages = pd.DataFrame({"text": ["a b c d", "a b"]})
    frame = pd.DataFrame({"passage": [0, 0, 1], "tokens": [6, 6, 2], "log_prob": [-1.0, -3.0, -5.0]})
    np.testing.assert_allclose(evaluate.nats_per_word(frame, passages), [2.0 * 6 / 4, 5.0])


@pytest.mark.parametrize("name", ["minilm-6l", "minilm-3l"])
def test_the_recipe_of_a_model_that_has_no_record_can_still_be_written(name):
    folder = DATA / "models" / name
    text = evaluate.recipe(name, json.loads((folder / "training.json").read_text()), folder)
    assert "0.0003 for the encoder" in text and "{" not in text
    assert ("first layers of" in text) == (name != "minilm-6l")
