"""The scripts that made the embedded models, on a corpus of a few sentences."""

import argparse
import hashlib
import importlib.util
import json
import sys
from functools import partial

import numpy as np
import pytest
import torch
import transformers
from conftest import TEXTS

from glauber_lib.embedded import load_embedded, package_tokenizer
from glauber_lib.paper import ROOT


def script(name):
    """A script of the repository as a module."""
    spec = importlib.util.spec_from_file_location(f"script_{name}", ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


pack, train = script("pack"), script("train")


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


@pytest.fixture(scope="module")
def packed(corpus, tmp_path_factory):
    """What the packing script writes for the corpus."""
    path = tmp_path_factory.mktemp("packed") / "tokens.npz"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["pack.py", "--corpus", str(corpus[0]), "--out", str(path)])
        pack.main()
    return path


@pytest.fixture(scope="module")
def arrays(packed):
    with np.load(packed) as file:
        return dict(file)


def test_the_packed_tokens_are_those_of_the_distinct_paragraphs(arrays, corpus):
    tokenizer = package_tokenizer()
    ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in TEXTS[:30]]
    np.testing.assert_array_equal(arrays["tokens"], np.concatenate(ids))
    np.testing.assert_array_equal(arrays["held_out"], tokenizer(corpus[1], add_special_tokens=False)["input_ids"])


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


def test_the_schedule_warms_up_stays_and_falls_to_zero():
    factors, shares = zip(*(train.schedule(k, 10_000) for k in (0, 149, 5_000, 6_999, 8_500, 9_999)), strict=True)
    np.testing.assert_allclose(factors, [1 / 150, 1, 1, 1, 0.5, 1 / 3_000], rtol=1e-6)
    np.testing.assert_allclose(shares, [0.25, 0.25, 0.25, 0.25, 0.125, 0])


# Training ----------------------------------------------------------------------------------------------------------


def test_a_resumed_training_gives_the_weights_of_an_uninterrupted_one_and_its_export_loads(
    packed, tmp_path, monkeypatch
):
    def options(folder):
        return argparse.Namespace(
            model="minilm-3l", tokens=packed, work=tmp_path / folder, export=tmp_path / folder / "models" / "minilm-3l",
            init=None, steps=6, batch=64, rate=3e-4, head_rate=2e-3, every=3, seed=0,
        )  # fmt: skip

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(train, "held_out_loss", partial(train.held_out_loss, batches=1))
    train.train(options("whole"))

    batch, calls = train.batch, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == 5:  # the fifth step: the checkpoint is that of the third
            raise KeyboardInterrupt
        return batch(*arguments)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(train, "batch", interrupted)
        train.train(options("parts"))
    checkpoint = torch.load(tmp_path / "parts" / "minilm-3l.pt", weights_only=True)
    assert checkpoint["step"] == 3 and not (tmp_path / "parts" / "models").exists()
    train.train(options("parts"))

    whole, parts = (torch.load(tmp_path / name / "minilm-3l.pt", weights_only=True) for name in ("whole", "parts"))
    assert whole["step"] == parts["step"] == 6 and whole["tokens"] == parts["tokens"]
    for kind in ("model", "average"):
        for name, weight in whole[kind].items():
            assert torch.equal(weight, parts[kind][name]), name
    key = "bert.encoder.layer.0.attention.self.query.weight"
    assert not torch.equal(checkpoint["model"][key], whole["model"][key])  # it did learn something in between

    network = load_embedded("minilm-3l", tmp_path / "parts" / "models")
    exported = network.state_dict()
    candidates = [whole["model"], {k.removeprefix("module."): v for k, v in whole["average"].items()}]
    assert any(torch.equal(exported[key], weights[key].half().float()) for weights in candidates)
    deeper = options("deeper")
    deeper.model, deeper.init = "minilm-6l", tmp_path / "parts" / "models" / "minilm-3l"
    with pytest.raises(ValueError, match=r"lacks weights of minilm-6l: .*encoder\.layer\.3\."):
        train.train(deeper)  # three layers are no start for six

    facts = json.loads((tmp_path / "parts" / "models" / "minilm-3l" / "training.json").read_text())
    assert facts["steps"] == 6 and 0 < facts["held_out_nats"] < 12
