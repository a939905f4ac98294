"""Tokenizers: words by id, the frame, and what is refused because it is not the tokenizer of the network."""

import json
import shutil

import numpy as np
import pytest
import torch
import transformers
from conftest import MASKED, TEXTS, build_tiny, save_classifier, save_tiny
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors

from glauber_lib import checksums
from glauber_lib.chains import run_chains
from glauber_lib.exact import conditional_laws, transition_matrix
from glauber_lib.incompatibility import measure_rectangles, sample_rectangles
from glauber_lib.influence import measure_influence, replacement_tokens
from glauber_lib.instruments import Embedder, PipelineTopicScorer, load_sentiment
from glauber_lib.language import CausalLM, MaskedLM, load_model
from glauber_lib.vocabularies import frame_of, ordinary_words, words_by_id

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ATOMS = [*"CNOSPFBIHcnosp()=#123-+", "Cl", "Br"]
NAMED = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL, strict=True))


def chemistry(template="[CLS] $A [SEP]", *, words=ATOMS, moved=()):
    """A tokenizer that finds atoms and bonds in a text and drops what else there is; the last ids may be `moved`."""
    ids = {word: k for k, word in enumerate([*SPECIAL, *words])} | dict(zip(words[-len(moved) :], moved, strict=False))
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="[UNK]"))
    pattern = Regex(r"Cl|Br|[CNOSPFBIHcnosp()=#123+\-]")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(pattern, behavior="removed", invert=True)
    tokenizer.decoder = decoders.Fuse()
    if template:
        special = [(token, ids[token]) for token in dict.fromkeys(template.split()) if token in SPECIAL]
        tokenizer.post_processor = processors.TemplateProcessing(single=template, special_tokens=special)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **NAMED)


def bert(n_rows):
    """A tiny network of an architecture, its head as wide as said."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    torch.manual_seed(0)
    return transformers.BertForMaskedLM(transformers.BertConfig(vocab_size=n_rows, initializer_range=0.3, **sizes))


def saved(folder, network, tokenizer):
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def plain_logits(model, ids, at):
    """The network's own logits at one position of framed ids that were written down by hand."""
    with torch.no_grad():
        return model.network(input_ids=torch.tensor([ids])).logits[0, at, model.vocabulary]


# Words by id -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("load", ["made", "loaded"])
def test_of_a_sparse_vocabulary_no_word_is_missing(load, tmp_path):
    words = ATOMS[:23]
    network, tokenizer = bert(61), chemistry(words=words, moved=(45, 60))
    assert len(tokenizer) == 28 and words[-2:] == ["-", "+"]
    model = MaskedLM(network, tokenizer) if load == "made" else load_model(saved(tmp_path, network, tokenizer))
    assert model.n_tokens == 23 and model.words(range(23)) == words
    assert model.vocabulary.tolist() == [*range(5, 26), 45, 60]
    tokens = model.tokens("C-O+")
    assert model.texts(tokens[None]) == ["C-O+"] and model.reads("+-") and model.round_trips(tokens[None]).all()
    expected = plain_logits(model, [2, 5, 45, 4, 60, 3], 3)
    torch.testing.assert_close(model.scores(tokens[None], [2])[0], expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("kind", [*MASKED, "gpt2"])
def test_of_a_dense_vocabulary_the_words_are_those_in_the_order_of_their_ids(kind, tiny):
    tokenizer = tiny[kind].tokenizer
    words = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    assert [*words_by_id(tokenizer).items()] == [*enumerate(words)]


def test_an_id_that_a_tokenizer_in_python_does_not_have_is_no_word():
    made = build_tiny("esm")[1]
    made._token_to_id = {word: (k if k < 30 else k + 20) for word, k in made._token_to_id.items()}
    made._id_to_token = {k: word for word, k in made._token_to_id.items()}
    assert made.convert_ids_to_tokens(40) == "<unk>" and 40 not in words_by_id(made)


@pytest.mark.parametrize(
    ("ids", "says"),
    [([], "at least one"), ([300, 300], "distinct"), ([-1, 300], "got -1"), ([300, 505], "0 … 504"), ([300.0], "ids")],
)
def test_a_vocabulary_is_of_distinct_ids_of_the_network(ids, says, tiny):
    with pytest.raises(ValueError, match=says):
        MaskedLM(tiny["bert"].network, tiny["bert"].tokenizer, vocabulary=ids)


def test_a_vocabulary_may_be_named_by_words_or_by_a_condition_on_them(tiny):
    whole = tiny["bert"]
    words = [word for word in whole.words(np.arange(whole.n_tokens)) if word.isalpha()]
    assert 10 < len(words) < whole.n_tokens
    make = lambda vocabulary: MaskedLM(whole.network, whole.tokenizer, vocabulary=vocabulary)  # noqa: E731
    by_ids = whole.tokenizer.convert_tokens_to_ids(words)
    models = [make(by_ids), make(words), make(np.array(words)), make(str.isalpha)]
    assert all(model.vocabulary.tolist() == by_ids for model in models)
    assert len({checksums.model_checksum(model) for model in models}) == 1
    assert sorted(make({*words}).vocabulary) == by_ids  # a set has no order
    assert make(words[::-1]).vocabulary.tolist() == by_ids[::-1]


@pytest.mark.parametrize(
    ("vocabulary", "says"),
    [
        (["the", "notaword"], r"lacks or keeps for itself: \['notaword'\]; write them as model.words does, such as"),
        (["[MASK]"], r"lacks or keeps for itself: \['\[MASK\]'\]"),
        ("the", "a list of words or ids, got one text: 'the'"),
        (["the", "the"], "distinct"),
        (lambda word: False, "the condition holds for none of"),
        (["the", 500], "lacks"),
        ([["the"]], "distinct ids or words"),
    ],
)
def test_a_vocabulary_of_other_words_is_refused(vocabulary, says, tiny):
    with pytest.raises(ValueError, match=says):
        MaskedLM(tiny["bert"].network, tiny["bert"].tokenizer, vocabulary=vocabulary)


def test_what_is_allowed_holds_for_chains_rectangles_influence_and_exact_answers_alike(tiny):
    allowed = ["the", "of", "and", "in", "a"]
    model = MaskedLM(tiny["bert"].network, tiny["bert"].tokenizer, vocabulary=allowed)
    whole, state = tiny["bert"], [0, 1, 2]
    trace = run_chains(model, [state] * 20, temperature=5.0, n_steps=60)
    rectangles = sample_rectangles(model, [state], 40)
    tried = replacement_tokens(model, [state], 4)
    influence = measure_influence(model, [state], tried, [1.0])
    written = [trace.new, rectangles.b, rectangles.d, tried.ravel()]
    assert {word for tokens in written for word in model.words(tokens)} == {*allowed}
    assert measure_rectangles(model, rectangles).delta.max() > 0 and influence.maximum.max() > 0
    law = conditional_laws(model, 3)  # of every state, in the order of their codes
    among = whole.scores(whole.states(["the of and"], n=3), [1])[0, [int(whole.tokens(word)[0]) for word in allowed]]
    asked = np.ravel_multi_index(state, (5, 5, 5))
    np.testing.assert_allclose(law[1, asked], among.double().softmax(0), rtol=1e-5)
    assert transition_matrix(model, 3).shape == (125, 125)
    with pytest.raises(ValueError, match=r"tokens outside the model's vocabulary \['to'\]"):
        model.tokens("the to")


# The frame ---------------------------------------------------------------------------------------------------------

FRAMES = {  # template -> ids before, ids after
    "[CLS] $A [SEP]": ([2], [3]),
    "": ([], []),
    "$A": ([], []),
    "$A [SEP]": ([], [3]),
    "[CLS] [CLS] [SEP] $A [SEP] [UNK]": ([2, 2, 3], [3, 1]),
}


@pytest.mark.parametrize("template", FRAMES)
def test_the_frame_is_that_of_the_template_also_where_no_letter_is_known(template):
    network, tokenizer = bert(len(ATOMS) + 5), chemistry(template)
    assert tokenizer("a", add_special_tokens=False)["input_ids"] == []
    model, (before, after) = MaskedLM(network, tokenizer), FRAMES[template]
    assert (model.before.tolist(), model.after.tolist()) == (before, after)
    assert model.max_sites == 512 - len(before) - len(after)
    tokens = model.tokens("CC(=O)Cl")
    assert tokenizer("CC(=O)Cl")["input_ids"] == [*before, *model.vocabulary[tokens], *after]
    for site in range(len(tokens)):
        content = model.vocabulary[tokens].tolist()
        content[site] = 4  # [MASK]
        expected = plain_logits(model, [*before, *content, *after], len(before) + site)
        torch.testing.assert_close(model.scores(tokens[None], [site])[0], expected, atol=1e-4, rtol=0)


def test_a_frame_that_the_length_changes_or_a_text_between_is_refused():
    network = bert(len(ATOMS) + 5)
    for template in ("[CLS] $A [SEP] $A", "[CLS]"):
        with pytest.raises(ValueError, match=r"tokenizer of 'mine' \(TokenizersBackend\) puts no fixed frame"):
            MaskedLM(network, chemistry(template), name="mine")


def test_a_tokenizer_that_does_not_follow_its_template_is_refused():
    class Other(transformers.EsmTokenizer):
        def __call__(self, text, **options):
            answer = super().__call__(text, **options)
            return {"input_ids": [*answer["input_ids"], 5]} if options.get("add_special_tokens", True) else answer

    tokenizer = build_tiny("esm")[1]
    tokenizer.__class__ = Other
    with pytest.raises(ValueError, match="does not follow its template"):
        frame_of(tokenizer, range(4, 24), "esm")


# A tokenizer that is not the model's -------------------------------------------------------------------------------

READERS = {
    "masked": load_model,
    "embedder": Embedder,
    "topics": PipelineTopicScorer,
    "sentiment": load_sentiment,
}


@pytest.fixture(scope="module")
def checkpoint(tiny_folders, tmp_path_factory):
    """A folder that every loader takes but the masked one."""
    folder = tmp_path_factory.mktemp("one") / "model"
    return save_classifier(folder, tiny_folders["bert"], labels=("NEGATIVE", "entailment", "POSITIVE"))


def without_tokenizer(folder, target):
    target.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(folder / name, target)
    return target


@pytest.mark.parametrize("kind", [*MASKED, "gpt2"])
def test_a_folder_without_tokenizer_files_is_refused_by_name(kind, tiny_folders, tmp_path):
    folder = without_tokenizer(tiny_folders[kind], tmp_path / "bare")
    with pytest.raises(ValueError, match="its folder has no tokenizer file, such as") as refused:
        load_model(folder, causal=kind == "gpt2")
    assert str(folder) in str(refused.value) and "\n" not in str(refused.value)


UNREAD = {"vocab.json": {"bert", "distilbert", "electra", "mpnet", "esm", "modernbert"}}  # else vocab.txt is not


@pytest.mark.parametrize("kind", MASKED)
def test_a_vocabulary_file_that_the_tokenizer_does_not_read_is_refused_by_name(kind, tiny_folders, tmp_path):
    folder = without_tokenizer(tiny_folders[kind], tmp_path / "bare")
    file = "vocab.json" if kind in UNREAD["vocab.json"] else "vocab.txt"
    (folder / file).write_text("{}")
    with pytest.raises(ValueError, match=rf"tokenizer.*\['{file}'\]") as refused:
        load_model(folder)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("reader", ["embedder", "topics", "sentiment"])
def test_embedders_and_classifiers_refuse_a_folder_without_tokenizer_files_too(reader, checkpoint, tmp_path):
    folder = without_tokenizer(checkpoint, tmp_path / "bare")
    with pytest.raises(ValueError, match="tokenizer"):
        READERS[reader](folder)


def test_a_tokenizer_without_words_or_beyond_the_network_is_refused(tiny):
    network, tokenizer = tiny["bert"].network, tiny["bert"].tokenizer
    empty = transformers.BertTokenizer()
    with pytest.raises(ValueError, match=r"'mine' \(BertTokenizer, 5 entries\) has no words .* network has 505 rows"):
        MaskedLM(network, empty, name="mine")
    with pytest.raises(ValueError, match=r"440 words have ids above the 60 rows of the network, the first is .* 60$"):
        MaskedLM(bert(60), tokenizer, name="mine")
    with pytest.raises(ValueError, match="words have ids above"):
        ordinary_words(tokenizer, 60, "mine")


def test_a_mask_or_a_frame_beyond_the_network_is_refused():
    tokenizer = chemistry()
    tokenizer.add_special_tokens({"mask_token": "<mask>"})
    with pytest.raises(ValueError, match=rf"special tokens \{{'mask': {len(ATOMS) + 5}\}} are not among the"):
        MaskedLM(bert(len(ATOMS) + 5), tokenizer)
    own = build_tiny("gpt2")[1]
    own.add_special_tokens({"bos_token": "<begin>"})
    narrow = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=500, n_embd=32, n_layer=2, n_head=2))
    with pytest.raises(ValueError, match=r"special tokens \{'start': 500\}"):
        CausalLM(narrow, own)


def test_esm_with_the_mask_of_another_tokenizer_is_refused():
    network, tokenizer = build_tiny("esm")
    network.config.mask_token_id = 31
    with pytest.raises(ValueError, match="masks with id 32, its network knows 31"):
        MaskedLM(network, tokenizer)


# Files that are read otherwise than they say -----------------------------------------------------------------------


def save_cased(folder, *files):
    """A BERT whose words have capitals, with only the named files of its tokenizer."""
    words = [*SPECIAL, *"ABCDEFabcdef", "Paris", "paris", "Rome"]
    tokenizer = transformers.BertTokenizer(vocab={word: k for k, word in enumerate(words)}, do_lower_case=False)
    saved(folder, bert(len(words)), tokenizer)
    (folder / "vocab.txt").write_text("\n".join(words))
    for name in {"tokenizer.json", "tokenizer_config.json", "vocab.txt"} - {*files}:
        (folder / name).unlink()
    return folder


@pytest.mark.parametrize("file", ["tokenizer.json", "vocab.txt"])
def test_a_bert_that_lowercases_only_because_its_settings_are_missing_is_refused_and_says_so(file, tmp_path):
    folder = save_cased(tmp_path / "cased", file)
    with pytest.raises(ValueError, match=r"BertTokenizer.*tokenizer_config\.json.*do_lower_case"):
        load_model(folder)
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    model = load_model(folder)
    assert model.words(model.tokens("Rome Paris paris")) == ["Rome", "Paris", "paris"]


def test_a_tokenizer_whose_class_drops_what_its_file_says_is_refused(tmp_path):
    folder = saved(tmp_path, bert(len(ATOMS) + 5), chemistry())
    assert load_model(folder).words(load_model(folder).tokens("CCl")) == ["C", "Cl"]
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tokenizer_class": "BertTokenizer"}))
    with pytest.raises(ValueError, match=r"\(BertTokenizer\) reads a text otherwise than its tokenizer.json"):
        load_model(folder)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tokenizer_class": "PreTrainedTokenizerFast"}))
    assert load_model(folder).words(load_model(folder).tokens("CCl")) == ["C", "Cl"]


def test_settings_that_contradict_the_file_on_capitals_hold(tmp_path):
    folder = save_tiny("bert", tmp_path)
    path = folder / "tokenizer_config.json"
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": False}
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))
    assert load_model(folder).reads("the plan")


def test_texts_are_tokenised_as_by_the_file_for_every_kind(tiny_folders):
    for kind in ("bert", "roberta", "xlm-roberta"):
        model, file = load_model(tiny_folders[kind]), Tokenizer.from_file(str(tiny_folders[kind] / "tokenizer.json"))
        for text in TEXTS[:3]:
            assert model.vocabulary[model.tokens(text)].tolist() == file.encode(text, add_special_tokens=False).ids
