"""What the tests share: tiny random models, the list of all conditional models, and a chi-square test."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # read when the hub client is imported: no test waits for a network

import json
import string
from functools import partial
from types import SimpleNamespace

import hypothesis
import numpy as np
import pytest
import scipy.stats
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from glauber_lib.models import DATA, IsingModel, TabularModel, load_model

# derandomized: the suite gives the same answer each time, so that a failure is a change
hypothesis.settings.register_profile("glauber", deadline=None, derandomize=True, database=None, max_examples=50)
hypothesis.settings.load_profile("glauber")

if workers := os.environ.get("PYTEST_XDIST_WORKER_COUNT"):  # more threads than cores are much slower than too few
    torch.set_num_threads(max(1, os.cpu_count() // int(workers)))

MASKED = ["bert", "roberta", "modernbert"]
TEXTS = [json.loads(line)["text"] for line in (DATA / "passages.jsonl").read_text().splitlines()]


# Tiny Hugging Face models ------------------------------------------------------------------------------------------


def _word_pieces(specials, frame):
    """A lowercasing WordPiece tokenizer trained on the passages, with two placeholders as BERT has them."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=500, special_tokens=[*specials, "[unused0]", "[unused1]"], show_progress=False,
        initial_alphabet=list(string.punctuation),
    )  # fmt: skip
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.decoder = decoders.WordPiece()
    return _framed(tokenizer, frame)


def _byte_pairs(specials, frame):
    """A byte-level BPE tokenizer trained on the passages."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=specials,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.decoder = decoders.ByteLevel()
    return _framed(tokenizer, frame)


def _framed(tokenizer, frame):
    if frame:
        ids = [(token, tokenizer.token_to_id(token)) for token in frame]
        single, pair = f"{frame[0]} $A {frame[1]}", f"{frame[0]} $A {frame[1]} $B {frame[1]}"
        tokenizer.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=ids)
    return tokenizer


BERT_SPECIALS = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
ROBERTA_SPECIALS = {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>", "mask": "<mask>"}
GPT_SPECIALS = {"bos": "<|endoftext|>", "eos": "<|endoftext|>", "unk": "<|endoftext|>"}
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
WIDE = {"initializer_range": 0.3}  # wide initial weights: the scores then depend visibly on the context
RECIPES = {  # tokenizer, its special tokens, its frame, network class, configuration
    "bert": (
        _word_pieces, BERT_SPECIALS, ("[CLS]", "[SEP]"),
        transformers.BertForMaskedLM, partial(transformers.BertConfig, **SIZES, **WIDE),
    ),
    "roberta": (
        _byte_pairs, ROBERTA_SPECIALS, ("<s>", "</s>"),
        transformers.RobertaForMaskedLM, partial(transformers.RobertaConfig, **SIZES, **WIDE),
    ),
    "modernbert": (
        _byte_pairs, BERT_SPECIALS, ("[CLS]", "[SEP]"), transformers.ModernBertForMaskedLM,
        partial(transformers.ModernBertConfig, **SIZES, **WIDE, local_attention=8, global_attn_every_n_layers=2),
    ),
    "gpt2": (
        _byte_pairs, GPT_SPECIALS, None,
        transformers.GPT2LMHeadModel, partial(transformers.GPT2Config, n_embd=32, n_layer=2, n_head=2, **WIDE),
    ),
}  # fmt: skip


def save_tiny(kind, folder):
    """Write a tiny random-weight model of an architecture; its head is five ids wider than its tokenizer."""
    build, special, frame, architecture, config = RECIPES[kind]
    trained = build(list(dict.fromkeys(special.values())), frame)
    specials = {f"{name}_token": token for name, token in special.items()}
    if kind == "roberta":  # the published one swallows the space before it
        specials["mask_token"] = transformers.AddedToken("<mask>", lstrip=True, special=True)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=trained, **specials)
    names = {"pad", "bos", "eos", "cls", "sep"} & set(special)
    ids = {f"{name}_token_id": trained.token_to_id(special[name]) for name in names}
    torch.manual_seed(0)
    network = architecture(config(vocab_size=len(tokenizer) + 5, **ids))
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_folders(tmp_path_factory):
    """Folder of each tiny model, by architecture."""
    return {kind: save_tiny(kind, tmp_path_factory.mktemp(kind)) for kind in RECIPES}


@pytest.fixture(scope="session")
def tiny(tiny_folders):
    """The tiny models, loaded by the library under test."""
    return {kind: load_model(folder, causal=kind == "gpt2") for kind, folder in tiny_folders.items()}


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
