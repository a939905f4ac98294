"""What the tests share: tiny random models, the list of all conditional models, and a chi-square test."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # read when the hub client is imported: no test waits for a network

import importlib
import json
import string
import tempfile
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import coverage
import hypothesis
import numpy as np
import pytest
import scipy.stats
import torch
import transformers
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from glauber_lib.embedded import DATA
from glauber_lib.language import load_model
from glauber_lib.models import IsingModel, TabularModel

# derandomized: the suite gives the same answer each time, so that a failure is a change
hypothesis.settings.register_profile("glauber", deadline=None, derandomize=True, database=None, max_examples=50)
hypothesis.settings.load_profile("glauber")

if workers := os.environ.get("PYTEST_XDIST_WORKER_COUNT"):  # more threads than cores are much slower than too few
    torch.set_num_threads(max(1, os.cpu_count() // int(workers)))

SLOW_FIXTURES = {"embedded", "installed", "exported"}  # the weights of data/models, a wheel, an embedded architecture
SLOW_KINDS = {"electra", "mpnet", "xlm-roberta", "albert", "deberta-v2", "deberta-v3"}  # half of the tiny models


def pytest_collection_modifyitems(items):
    """Mark slow what uses a slow fixture, and what is repeated for an architecture that `make quick` does without."""
    for item in items:
        params = item.callspec.params.values() if hasattr(item, "callspec") else ()
        kinds = {value for value in params if isinstance(value, str)}
        if SLOW_FIXTURES & set(getattr(item, "fixturenames", ())) or SLOW_KINDS & kinds:
            item.add_marker(pytest.mark.slow)


TEXTS = [json.loads(line)["text"] for line in (DATA / "passages.jsonl").read_text(encoding="utf-8").splitlines()]
PROTEINS = ["".join(row) for row in np.random.default_rng(0).choice([*"LAGVSERTIDPKQNFYMHWC"], size=(24, 120))]


def pytest_sessionfinish(session):
    """Let a worker of pytest-xdist write what it measured: it ends without the end that coverage waits for."""
    measured = coverage.Coverage.current()
    if hasattr(session.config, "workerinput") and measured:
        measured.stop()
        measured.save()


def script(name):
    """A script of the repository as a module; it finds the scripts beside it, as when it is run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[1] / "scripts"))
        return importlib.import_module(name)


# Tiny Hugging Face models ------------------------------------------------------------------------------------------


def _word_pieces(special, frame):
    """A lowercasing WordPiece tokenizer trained on the passages, with two placeholders as BERT has them."""
    tokenizer = Tokenizer(models.WordPiece(unk_token=special["unk"]))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=500, special_tokens=[*_names(special), "[unused0]", "[unused1]"], show_progress=False,
        initial_alphabet=list(string.punctuation),
    )  # fmt: skip
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.decoder = decoders.WordPiece()
    return _finished(tokenizer, special, frame)


def _byte_pairs(special, frame):
    """A byte-level BPE tokenizer trained on the passages."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=_names(special),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.decoder = decoders.ByteLevel()
    return _finished(tokenizer, special, frame)


def _sentence_pieces(special, frame):
    """A Unigram tokenizer trained on the passages, its spaces written as SentencePiece writes them."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=500, special_tokens=_names(special), unk_token=special["unk"], show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS[:40], trainer)  # Unigram is slow to train
    tokenizer.decoder = decoders.Metaspace()
    return _finished(tokenizer, special, frame)


def _amino_acids(special, frame):
    """The tokenizer of ESM with the vocabulary of ESM-2; it is written in Python."""
    words = "<cls> <pad> <eos> <unk> L A G V S E R T I D P K Q N F Y M H W C X B U Z O . - <null_1> <mask>".split()
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(words))
        file.flush()
        return transformers.EsmTokenizer(file.name)


def _names(special):
    return list(dict.fromkeys(special.values()))


def _finished(tokenizer, special, frame):
    """As a tokenizer of transformers, with its special tokens and what it puts around a text."""
    if frame:
        ids = [(token, tokenizer.token_to_id(token)) for token in frame]
        single, pair = f"{frame[0]} $A {frame[1]}", f"{frame[0]} $A {frame[1]} $B {frame[1]}"
        tokenizer.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=ids)
    specials = {f"{name}_token": token for name, token in special.items()}
    if special.get("mask") == "<mask>":  # the published ones swallow the space before it
        specials["mask_token"] = transformers.AddedToken(special["mask"], lstrip=True, special=True)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **specials)


BERT_SPECIALS = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
ROBERTA_SPECIALS = {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>", "mask": "<mask>"}
ESM_SPECIALS = {"pad": "<pad>", "cls": "<cls>", "eos": "<eos>"}
GPT_SPECIALS = {"bos": "<|endoftext|>", "eos": "<|endoftext|>", "unk": "<|endoftext|>"}
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
WIDE = {"initializer_range": 0.3}  # wide initial weights: the scores then depend visibly on the context
DEBERTA = {  # as published for v2 and v3: positions are relative only
    "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8, "norm_rel_ebd": "layer_norm",
    "share_att_key": True, "position_biased_input": False, "type_vocab_size": 0,
}  # fmt: skip
RECIPES = {  # tokenizer, its special tokens, its frame, network class, configuration
    "bert": (
        _word_pieces, BERT_SPECIALS, ("[CLS]", "[SEP]"),
        transformers.BertForMaskedLM, partial(transformers.BertConfig, **SIZES, **WIDE),
    ),
    "distilbert": (
        _word_pieces, BERT_SPECIALS, ("[CLS]", "[SEP]"), transformers.DistilBertForMaskedLM,
        partial(transformers.DistilBertConfig, dim=32, n_layers=2, n_heads=2, hidden_dim=48, **WIDE),
    ),
    "electra": (  # embeddings narrower than the encoder, as in the generators published
        _word_pieces, BERT_SPECIALS, ("[CLS]", "[SEP]"),
        transformers.ElectraForMaskedLM, partial(transformers.ElectraConfig, embedding_size=24, **SIZES, **WIDE),
    ),
    "mpnet": (  # counts positions from id 1 on, whatever its configuration says: the padding must be there
        _word_pieces, ROBERTA_SPECIALS, ("<s>", "</s>"),
        transformers.MPNetForMaskedLM, partial(transformers.MPNetConfig, **SIZES, **WIDE),
    ),
    "roberta": (
        _byte_pairs, ROBERTA_SPECIALS, ("<s>", "</s>"),
        transformers.RobertaForMaskedLM, partial(transformers.RobertaConfig, **SIZES, **WIDE),
    ),
    "modernbert": (
        _byte_pairs, BERT_SPECIALS, ("[CLS]", "[SEP]"), transformers.ModernBertForMaskedLM,
        partial(transformers.ModernBertConfig, **SIZES, **WIDE, local_attention=8, global_attn_every_n_layers=2),
    ),
    "xlm-roberta": (
        _sentence_pieces, ROBERTA_SPECIALS, ("<s>", "</s>"),
        transformers.XLMRobertaForMaskedLM, partial(transformers.XLMRobertaConfig, **SIZES, **WIDE),
    ),
    "albert": (
        _sentence_pieces, BERT_SPECIALS, ("[CLS]", "[SEP]"),
        transformers.AlbertForMaskedLM, partial(transformers.AlbertConfig, embedding_size=24, **SIZES, **WIDE),
    ),
    "deberta-v2": (
        _sentence_pieces, BERT_SPECIALS, ("[CLS]", "[SEP]"), transformers.DebertaV2ForMaskedLM,
        partial(transformers.DebertaV2Config, conv_kernel_size=3, conv_act="gelu", **DEBERTA, **SIZES, **WIDE),
    ),
    "deberta-v3": (  # the same architecture with the newer head
        _sentence_pieces, BERT_SPECIALS, ("[CLS]", "[SEP]"), transformers.DebertaV2ForMaskedLM,
        partial(transformers.DebertaV2Config, legacy=False, **DEBERTA, **SIZES, **WIDE),
    ),
    "esm": (
        _amino_acids, ESM_SPECIALS, None, transformers.EsmForMaskedLM,
        partial(
            transformers.EsmConfig, mask_token_id=32, position_embedding_type="rotary", token_dropout=True,
            emb_layer_norm_before=False, **SIZES, **WIDE,
        ),
    ),
    "gpt2": (
        _byte_pairs, GPT_SPECIALS, None,
        transformers.GPT2LMHeadModel, partial(transformers.GPT2Config, n_embd=32, n_layer=2, n_head=2, **WIDE),
    ),
}  # fmt: skip
MASKED = [kind for kind in RECIPES if kind != "gpt2"]


def build_tiny(kind, **changes):
    """A tiny random-weight network of an architecture and its tokenizer; the head is five ids wider than that one."""
    build, special, frame, architecture, config = RECIPES[kind]
    tokenizer = build(special, frame)
    names = {"pad", "bos", "eos", "cls", "sep"} & set(special)
    ids = {f"{name}_token_id": tokenizer.convert_tokens_to_ids(special[name]) for name in names}
    torch.manual_seed(0)
    return architecture(config(vocab_size=len(tokenizer) + 5, **ids, **changes)), tokenizer


def save_tiny(kind, folder, **changes):
    """Write `build_tiny` as Hugging Face writes a model."""
    for part in build_tiny(kind, **changes):
        part.save_pretrained(folder)
    return folder


def save_classifier(folder, tiny, architecture=None, config=None, labels=("contradiction", "neutral", "entailment")):
    """The folder of a tiny classifier, BERT for entailment by default, with the tokenizer of another tiny model."""
    tokenizer, labels = transformers.AutoTokenizer.from_pretrained(tiny), dict(enumerate(labels))
    torch.manual_seed(0)
    ids = {"id2label": labels, "label2id": {label: k for k, label in labels.items()}}
    config = config or partial(transformers.BertConfig, **SIZES)
    network = (architecture or transformers.BertForSequenceClassification)(config(vocab_size=len(tokenizer), **ids))
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def corpus(model):
    """Texts for a model: passages, or sequences of amino acids."""
    return PROTEINS if model.network.config.model_type == "esm" else TEXTS


class Made(dict):
    """What `make` makes of a key when it is first asked for: a worker builds only what its tests need."""

    def __init__(self, make):
        self.make = make

    def __missing__(self, key):
        self[key] = self.make(key)
        return self[key]


@pytest.fixture(scope="session")
def tiny_folders(tmp_path_factory):
    """Folder of each tiny model, by architecture."""
    return Made(lambda kind: save_tiny(kind, tmp_path_factory.mktemp(kind)))


@pytest.fixture(scope="session")
def tiny(tiny_folders):
    """The tiny models, loaded by the library under test."""
    return Made(lambda kind: load_model(tiny_folders[kind], causal=kind == "gpt2"))


@pytest.fixture(params=MASKED)
def masked_lm(request, tiny):
    """Every masked architecture in turn."""
    return tiny[request.param]


@pytest.fixture(scope="session")
def embedded():
    """A function that loads an embedded model once, skipping the test where its weights are not there (yet)."""
    loaded = {}

    def load(name):
        if not (DATA / "models" / name / "model.safetensors").exists():
            pytest.skip(f"no weights of {name} in data/models")
        if name not in loaded:
            loaded[name] = load_model(name)
        return loaded[name]

    return load


# All conditional models: what every law test runs over -------------------------------------------------------------


def random_table(n_sites, n_tokens, *, seed=0, spread=1.0):
    """An (in general incompatible) tabular model with normal scores."""
    rng = np.random.default_rng(seed)
    return TabularModel(spread * rng.normal(size=(n_sites, *[n_tokens] * n_sites)))


def random_joint(n_sites, n_tokens, *, seed=0):
    """A compatible tabular model and its unnormalised log joint."""
    log_joint = np.random.default_rng(seed).normal(size=[n_tokens] * n_sites)
    return TabularModel.from_joint(log_joint), log_joint


def random_ising(n_sites, *, seed=0, strength=0.5):
    """Spins with random couplings and fields."""
    rng = np.random.default_rng(seed)
    couplings = np.triu(rng.normal(scale=strength, size=(n_sites, n_sites)), 1)
    return IsingModel(couplings + couplings.T, rng.normal(scale=0.3, size=n_sites))


def small_vocabulary(kind, folders, size):
    """A tiny language model on `size` ids: its whole state space can be listed."""
    return load_model(folders[kind], causal=kind == "gpt2", vocabulary=range(300, 300 + size))


SYSTEMS = {  # name -> (number of sites, model)
    "tabular": (3, lambda folders: random_table(3, 3)),
    "joint": (3, lambda folders: random_joint(3, 3)[0]),
    "ising": (4, lambda folders: random_ising(4)),
    "bert": (3, lambda folders: small_vocabulary("bert", folders, 4)),
    "roberta": (3, lambda folders: small_vocabulary("roberta", folders, 4)),
    "modernbert": (3, lambda folders: small_vocabulary("modernbert", folders, 4)),
    "gpt2": (3, lambda folders: small_vocabulary("gpt2", folders, 4)),
}


@pytest.fixture(scope="session", params=SYSTEMS)
def system(request, tiny_folders):
    """Every conditional model in turn, small enough for exact answers: ``.model`` and ``.n`` sites."""
    n_sites, build = SYSTEMS[request.param]
    return SimpleNamespace(name=request.param, model=build(tiny_folders), n=n_sites)


# What tests of chains share ----------------------------------------------------------------------------------------

MOVES = ("step", "chain", "site", "old", "new")


class Watched:
    """A model that notes what it is asked and raises `error` at call number `at`; it wants nothing remembered."""

    memory = 0

    def __init__(self, model, *, at=None, error=KeyboardInterrupt):
        self.model, self.n_tokens, self.at, self.error = model, model.n_tokens, at, error
        self.calls, self.asked = 0, []

    @property
    def cache_key(self):
        return self.model.cache_key

    def scores(self, states, sites):
        self.calls += 1
        if self.calls == self.at:
            raise self.error
        self.asked.append(states.copy())
        return self.model.scores(states, sites)


def moves_of(trace, row=None):
    """Moves (step, site, old, new) of one chain, or (step, chain, site, old, new) of all."""
    if row is None:
        return list(zip(*(getattr(trace, k).tolist() for k in MOVES), strict=True))
    mine = trace.chain == row
    return list(zip(*(getattr(trace, k)[mine].tolist() for k in MOVES if k != "chain"), strict=True))


memories = st.sampled_from([0, 100, 1_000, 3_000, 10**7])  # bytes: nothing, no row, a few, some, all


@st.composite
def systems(draw, *, n_sites=(2, 3), spreads=(0.1, 1.0, 10.0)):
    """A random tabular model, its number of sites, a temperature."""
    n, n_tokens = draw(st.integers(*n_sites)), draw(st.integers(2, 3))
    model = random_table(n, n_tokens, seed=draw(st.integers(0, 2**32)), spread=draw(st.sampled_from(spreads)))
    return model, n, draw(st.sampled_from([0.3, 1.0, 4.0]))


# Statistics --------------------------------------------------------------------------------------------------------


def codes(states, n_tokens):
    """Base-V codes of states int[..., n], as `models.all_states` numbers them."""
    return np.asarray(states) @ n_tokens ** np.arange(np.shape(states)[-1] - 1, -1, -1)


def fit(counts, law):
    """p-value of counts under a law; 0 if an outcome of probability zero occurred."""
    counts, law = np.asarray(counts, float), np.asarray(law, float)
    if counts[law == 0].any():
        return 0.0
    counts, law = counts[law > 0], law[law > 0]
    order = np.argsort(law)  # outcomes too rare for the approximation are pooled
    rare = np.cumsum(law[order]) * counts.sum() < 5
    pooled, expected = order[rare], order[~rare]
    observed = np.append(counts[expected], counts[pooled].sum())
    wanted = np.append(law[expected], law[pooled].sum()) * counts.sum()
    keep = wanted > 0
    if keep.sum() < 2:
        return 1.0
    return scipy.stats.chisquare(observed[keep], wanted[keep] * observed[keep].sum() / wanted[keep].sum()).pvalue
