"""Conditional models: scores, frame, vocabulary, loading."""

import copy
import json
import re
import shutil
import sys

import joblib
import numpy as np
import onnx
import pytest
import torch
import transformers
from conftest import MASKED, TEXTS, build_tiny, corpus, random_joint, save_tiny, small_vocabulary
from onnx import helper, numpy_helper
from safetensors.torch import load_file, save_file

from glauber_lib import answers
from glauber_lib import embedded as embedded_models
from glauber_lib.chains import run_chains
from glauber_lib.checksums import model_checksum
from glauber_lib.contraction import drawn_influence
from glauber_lib.draws import probabilities
from glauber_lib.embedded import (
    EMBEDDED,
    PACKAGES,
    empty_network,
    load_embedded,
    package_folder,
    package_tokenizer,
    package_weights,
    save_embedded,
    stored_weights,
)
from glauber_lib.language import CausalLM, MaskedLM, load_model
from glauber_lib.models import IsingModel, TabularModel, all_states
from glauber_lib.networks import n_positions

# Pinned answers of the final embedded weights: name -> (best token at the site, its log-probability), for the causal
# model given what stands to the left.
CANARY = {
    "distilbert": ("of", -0.0253498),
    "distilbert-fast": ("of", -0.1839645),
    "minilm-6l": ("of", -0.0810645),
    "minilm-3l": ("of", -0.0472125),
    "distilbert-causal": ("and", -1.0374980),
}
CANARY_TEXT, CANARY_SITE = "the capital of france is paris .", 2


# Listed models -----------------------------------------------------------------------------------------------------


def test_tabular_scores_are_the_listed_ones():
    table = np.random.default_rng(0).normal(size=(3, 4, 4, 4))
    model, states = TabularModel(table), all_states(4, 3)
    for site in range(3):
        # table[site], with the axis of the site last, is indexed by the other two tokens
        expected = [np.moveaxis(table[site], site, -1)[tuple(np.delete(x, site))] for x in states]
        np.testing.assert_array_equal(model.scores(states, np.full(64, site)), expected)


def test_ising_scores_are_the_local_fields():
    couplings = np.array([[0, 1.0, -0.5], [1.0, 0, 0.25], [-0.5, 0.25, 0]])
    field = np.array([0.1, -0.2, 0.3])
    model = IsingModel(couplings, field)
    for x in all_states(2, 3):
        spins = 2 * x - 1
        log_joint = lambda s: s @ couplings @ s / 2 + field @ s  # noqa: E731
        for site in range(3):
            up, down = spins.copy(), spins.copy()
            up[site], down[site] = 1, -1
            scores = model.scores(x[None], [site])[0]
            assert float(scores[1] - scores[0]) == pytest.approx(log_joint(up) - log_joint(down), abs=1e-12)


@pytest.mark.parametrize(
    "build",
    [
        lambda: TabularModel(np.zeros((2, 3, 4))),
        lambda: TabularModel(np.zeros((3, 2, 2))),
        lambda: IsingModel([[0.0, 1.0], [0.5, 0.0]]),
        lambda: IsingModel([[1.0, 0.0], [0.0, 0.0]]),
    ],
)
def test_a_table_or_coupling_of_wrong_shape_is_refused(build):
    with pytest.raises(ValueError, match="must"):
        build()


def vocabulary_biases(network):
    """Names and parameters with one number per vocabulary id: the bias of the decoder, wherever it is kept."""
    return [(name, p) for name, p in network.named_parameters() if p.shape == (network.config.vocab_size,)]


# Scores of language models -----------------------------------------------------------------------------------------


def test_scores_have_one_row_per_state_and_one_column_per_token(system):
    states = all_states(system.model.n_tokens, system.n)[:5]
    scores = system.model.scores(states, np.arange(5) % system.n)
    assert scores.shape == (5, system.model.n_tokens)
    assert scores.is_floating_point() and scores.isfinite().all()


def test_masked_scores_are_float32(masked_lm):
    assert masked_lm.scores(masked_lm.states(corpus(masked_lm)[:2], n=6), [0, 5]).dtype == torch.float32


def test_scores_do_not_depend_on_the_token_at_the_site(system):
    states = np.repeat(all_states(system.model.n_tokens, system.n)[-1:], system.model.n_tokens, axis=0)
    for site in range(system.n):
        states[:, site] = np.arange(system.model.n_tokens)
        scores = probabilities(system.model.scores(states, np.full(len(states), site)), np.ones(len(states)))
        torch.testing.assert_close(scores, scores[:1].expand_as(scores), atol=1e-6, rtol=0)
        states[:, site] = states[0, site]


def test_scores_do_depend_on_the_other_sites(system):
    n_tokens = system.model.n_tokens
    states = all_states(n_tokens, system.n)
    for site in range(system.n):
        laws = probabilities(system.model.scores(states, np.full(len(states), site)), np.ones(len(states)))
        for other in {*range(system.n)} - {site}:
            changed = [(a, b) for a, b in zip(states, laws, strict=True) if a[other] == 0]
            moved = [b for a, b in zip(states, laws, strict=True) if a[other] == 1]
            assert max((b - c).abs().max() for (_, b), c in zip(changed, moved, strict=True)) > 1e-3


def test_scores_equal_the_plain_forward_of_the_network(masked_lm):
    texts = corpus(masked_lm)
    states = masked_lm.states(texts[:6], n=9)
    sites = np.array([0, 1, 4, 5, 7, 8])
    scores = masked_lm.scores(states, sites)
    for x, site, row in zip(states, sites, scores, strict=True):
        framed = masked_lm.tokenizer(texts[0])["input_ids"]
        ids = [framed[0], *masked_lm.vocabulary[x].tolist(), framed[-1]]
        at = 1 + site
        ids[at] = masked_lm.tokenizer.mask_token_id
        with torch.no_grad():
            logits = masked_lm.network(input_ids=torch.tensor([ids]), attention_mask=torch.ones(1, len(ids))).logits
        torch.testing.assert_close(row, logits[0, at, masked_lm.vocabulary], atol=1e-4, rtol=0)


def test_the_network_sees_the_tokenizer_s_frame_and_one_mask(masked_lm):
    seen = []
    hook = masked_lm.network.get_input_embeddings().register_forward_pre_hook(
        lambda _, arguments: seen.append(arguments[0].clone())
    )
    try:
        masked_lm.scores(masked_lm.tokens(corpus(masked_lm)[0], n=8)[None], [3])
    finally:
        hook.remove()
    # the first eight tokens of the text as the tokenizer frames them, the mask by id: nothing else differs
    ids = masked_lm.tokenizer(corpus(masked_lm)[0])["input_ids"]
    expected = [*ids[:9], ids[-1]]
    expected[4] = masked_lm.tokenizer.mask_token_id
    assert seen[0].tolist() == [expected]


def test_no_padding_ever_enters_a_network(masked_lm):
    # kernels that leave out padding, and position ids that count what is no padding, never have any to treat
    seen = []
    hook = masked_lm.network.get_input_embeddings().register_forward_pre_hook(
        lambda _, arguments: seen.append(arguments[0].clone())
    )
    try:
        run_chains(masked_lm, masked_lm.states(corpus(masked_lm)[:3], n=5), n_steps=20, temperature=3.0)
    finally:
        hook.remove()
    assert masked_lm.tokenizer.pad_token_id is not None and len(seen) > 3
    assert not any((ids == masked_lm.tokenizer.pad_token_id).any() for ids in seen)


@pytest.mark.parametrize("kind", MASKED)
def test_the_bias_of_the_decoder_is_loaded_and_added(kind, tiny, tmp_path):
    network, tokenizer = build_tiny(kind)
    ((_, bias),) = vocabulary_biases(network)
    with torch.no_grad():
        bias.normal_()
    network.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    model, plain = load_model(tmp_path), tiny[kind]
    states, sites = plain.states(corpus(plain)[:2], n=6), [0, 4]
    added = model.scores(states, sites) - plain.scores(states, sites)
    torch.testing.assert_close(added, bias.detach()[model.vocabulary].expand(2, -1), atol=1e-4, rtol=0)


@pytest.mark.parametrize("kind", [kind for kind in MASKED if kind != "deberta-v3"])  # it has no other decoder
def test_a_decoder_of_its_own_is_loaded_and_used(kind, tmp_path):
    network, tokenizer = build_tiny(kind, tie_word_embeddings=False)
    decoder = network.get_output_embeddings().weight
    assert decoder.data_ptr() != network.get_input_embeddings().weight.data_ptr()
    with torch.no_grad():
        decoder.normal_()
    network.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    model = load_model(tmp_path)
    assert torch.equal(model.network.get_output_embeddings().weight, decoder)
    assert not torch.equal(model.network.get_input_embeddings().weight, decoder)
    test_scores_equal_the_plain_forward_of_the_network(model)


@pytest.mark.parametrize("kind", MASKED)
def test_batching_changes_no_score(kind, tiny_folders):
    model = load_model(tiny_folders[kind])
    atol = 3e-5 if kind == "deberta-v2" else 1e-5  # its convolution takes other kernels for other batches
    states, sites = model.states(corpus(model)[:7], n=10), np.arange(7)
    together = model.scores(states, sites)
    model.batch_tokens = 25  # two states at a time
    torch.testing.assert_close(model.scores(states, sites), together, atol=atol, rtol=0)
    alone = torch.cat([model.scores(states[k : k + 1], sites[k : k + 1]) for k in range(7)])
    torch.testing.assert_close(alone, together, atol=atol, rtol=0)


def short_of_memory(model, rows):
    """Let the network of a model fail as it would without memory wherever it is given more than `rows` rows."""

    def fail(_, arguments):
        if len(arguments[0]) > rows:
            raise torch.OutOfMemoryError("no memory for so many")

    model.network.get_input_embeddings().register_forward_pre_hook(fail)


def test_where_memory_runs_out_the_batch_is_halved_and_no_score_changes(tiny, tiny_folders):
    model, states, sites = load_model(tiny_folders["bert"]), tiny["bert"].states(TEXTS[:11], n=10), np.arange(11) % 10
    short_of_memory(model, 3)
    torch.testing.assert_close(model.scores(states, sites), tiny["bert"].scores(states, sites), atol=1e-5, rtol=0)
    assert model.batch_tokens == 2 * 12  # of 11 rows to 5 to 2, each of 10 tokens and a frame of 2
    short_of_memory(model, 0)
    with pytest.raises(torch.OutOfMemoryError, match="no memory for so many"):
        model.scores(states, sites)
    assert model.batch_tokens == 12


def test_where_memory_runs_out_a_causal_model_goes_on_too(tiny, tiny_folders):
    model, states, sites = load_model(tiny_folders["gpt2"], causal=True), tiny["gpt2"].states(TEXTS[:5], n=8), [0] * 5
    short_of_memory(model, 2)
    torch.testing.assert_close(model.log_prob(states), tiny["gpt2"].log_prob(states), atol=1e-4, rtol=0)
    torch.testing.assert_close(model.proposals(states, sites), tiny["gpt2"].proposals(states, sites), atol=1e-5, rtol=0)
    assert model.batch_tokens == 2 * 8 * 8


# positions of the published configurations and, for relative ones, none; two are taken by the frame
LIMITS = {"roberta": 510, "xlm-roberta": 510, "mpnet": 510, "esm": None, "modernbert": None} | dict.fromkeys(
    ["deberta-v2", "deberta-v3"]
)


@pytest.mark.parametrize("kind", MASKED)
def test_states_as_long_as_the_network_has_positions_are_scored_and_longer_ones_refused(kind):
    limit = LIMITS.get(kind, 512)
    model = MaskedLM(*build_tiny(kind, max_position_embeddings=40), name=kind)
    state = np.zeros((1, 100), int)
    if limit is None:
        assert n_positions(model.network) == model.max_sites == np.inf
        assert model.scores(state, [99]).isfinite().all()
        return
    assert n_positions(build_tiny(kind)[0]) == limit  # those the network has by default
    most = 40 - (512 - limit) - 2
    assert model.max_sites == most
    assert model.scores(state[:, :most], [most - 1]).isfinite().all()
    entered = []
    model.network.get_input_embeddings().register_forward_pre_hook(lambda *_: entered.append(1))
    with pytest.raises(ValueError, match=rf"states have {most + 1} tokens, '{kind}' has positions for at most {most}$"):
        model.scores(state[:, : most + 1], [0])
    assert not entered
    with pytest.raises((IndexError, RuntimeError)):  # the limit is where the network itself ends
        model.network(input_ids=torch.full((1, most + 3), int(model.vocabulary[0])))


def test_esm_with_a_table_of_positions_counts_them_from_the_padding_id():
    model = MaskedLM(*build_tiny("esm", position_embedding_type="absolute", max_position_embeddings=40))
    assert model.max_sites == 40 - 2 - 2  # ids 0 and 1 come before the first position
    test_scores_equal_the_plain_forward_of_the_network(model)
    assert model.scores(np.zeros((1, 36), int), [35]).isfinite().all()
    with pytest.raises(ValueError, match="states have 37 tokens"):
        model.scores(np.zeros((1, 37), int), [0])


def test_a_causal_model_refuses_states_beyond_its_positions(tiny):
    with pytest.raises(ValueError, match=r"states have 1025 tokens, .* at most 1024"):
        tiny["gpt2"].log_prob(np.zeros((1, 1025), int))


# Vocabulary and text -----------------------------------------------------------------------------------------------


def is_placeholder(word):
    """Whether a word only fills up a vocabulary."""
    return word.startswith(("[unused", "<null_"))


@pytest.mark.parametrize("kind", MASKED)
def test_no_special_token_is_ever_drawn_even_if_the_head_prefers_it(kind, tiny_folders):
    model = load_model(tiny_folders[kind])
    words = model.tokenizer.convert_ids_to_tokens(range(len(model.tokenizer)))
    banned = [k for k, word in enumerate(words) if word in model.tokenizer.all_special_tokens or is_placeholder(word)]
    banned += range(len(model.tokenizer), model.network.config.vocab_size)
    assert len(banned) >= 10
    with torch.no_grad():
        vocabulary_biases(model.network)[0][1][banned] = 100.0
    states = model.states(corpus(model)[:20], n=6)
    logits = model.network(input_ids=torch.from_numpy(model.vocabulary[states])).logits
    assert logits.softmax(-1)[..., banned].sum(-1).min() > 0.99  # the rig works: the head alone would draw them
    trace = run_chains(model, states, n_steps=50, temperature=2.0)
    assert len(trace.new) > 500
    assert not set(model.vocabulary[trace.new]) & set(banned)
    law = probabilities(model.scores(states, np.zeros(20, int)), np.ones(20))
    torch.testing.assert_close(law.sum(1), torch.ones(20, dtype=torch.float64))


def test_placeholders_and_added_special_tokens_are_no_words(tiny_folders):
    tokenizer = load_model(tiny_folders["roberta"]).tokenizer
    tokenizer.add_tokens(["madeupword0000", "ordinary"])
    tokenizer.add_tokens(["<|speaker|>"], special_tokens=True)
    network = load_model(tiny_folders["roberta"]).network
    words = MaskedLM(network, tokenizer).words(range(len(MaskedLM(network, tokenizer).vocabulary)))
    assert "ordinary" in words and not {"madeupword0000", "<|speaker|>"} & set(words)


@pytest.mark.parametrize("kind", MASKED)
def test_a_word_added_to_the_tokenizer_alone_is_refused(kind, tiny_folders):
    model = load_model(tiny_folders[kind])
    extra = [f"extraword{k}" for k in range(8)]  # five have a row in the head, which is padded; three have none
    model.tokenizer.add_tokens(extra)
    model = MaskedLM(model.network, model.tokenizer)
    known = [word for word in extra if word in model.words(range(model.n_tokens))]
    assert known == extra[:5]
    with pytest.raises(ValueError, match=r"outside the model's vocabulary \['extraword7'\]"):
        model.tokens("extraword7")


def test_every_ordinary_word_is_in_the_vocabulary(masked_lm):
    specials = set(masked_lm.tokenizer.all_special_ids)
    words = masked_lm.tokenizer.convert_ids_to_tokens(range(len(masked_lm.tokenizer)))
    ordinary = {k for k, word in enumerate(words) if k not in specials and not is_placeholder(word)}
    assert set(masked_lm.vocabulary) == ordinary
    assert masked_lm.n_tokens == len(ordinary)


@pytest.mark.parametrize("kind", [*MASKED, "gpt2"])
def test_text_to_tokens_to_text_round_trip(kind, tiny):
    model = tiny[kind]
    lossy = {"bert", "distilbert", "electra", "mpnet", "esm"}  # WordPiece loses case and spacing, bytes lose nothing
    for text in corpus(model)[:20]:
        tokens = model.tokens(text)
        (back,) = model.texts(tokens[None])
        np.testing.assert_array_equal(model.tokens(back), tokens)
        assert model.round_trips(tokens[None]).tolist() == [True]
        assert back == text or kind in lossy
        assert len(model.words(tokens)) == len(tokens)


FIRST = {"WordPiece": "##e", "BPE": "Ġ", "Unigram": "s"}  # a piece that cannot begin a text, by kind of tokenizer
PAIR = {"WordPiece": ("t", "##h"), "BPE": ("i", "n"), "Unigram": ("i", "n")}  # two that are one piece when joined


@pytest.mark.parametrize("kind", [kind for kind in MASKED if kind != "esm"])
def test_a_state_that_no_text_has_does_not_round_trip(kind, tiny):
    model = tiny[kind]
    sort = type(model.tokenizer.backend_tokenizer.model).__name__
    number = model.vocabulary.tolist().index
    state = lambda *words: [number(k) for k in model.tokenizer.convert_tokens_to_ids([*words])]  # noqa: E731
    honest, n = model.states(TEXTS[:4], n=6), 6
    merged = np.concatenate([honest[0, : n - 2], state(*PAIR[sort])])
    bad = [merged]
    if sort != "BPE":  # every byte may come first; a leading space stays a space
        bad.append(np.concatenate([state(FIRST[sort]), honest[0, : n - 1]]))
    states = np.stack([*honest, *bad])
    assert (states >= 0).all()
    assert model.round_trips(states).tolist() == [True] * 4 + [False] * len(bad)


def test_every_state_of_amino_acids_round_trips(tiny):
    states = np.random.default_rng(0).integers(tiny["esm"].n_tokens, size=(50, 12))
    assert tiny["esm"].round_trips(states).all()


def test_a_leading_space_survives_in_bytes_and_is_put_before_a_sentence_piece(tiny):
    spaced = tiny["roberta"].states([" the plan"], n=2)
    assert tiny["roberta"].texts(spaced)[0].startswith(" ") and tiny["roberta"].round_trips(spaced).all()
    assert not np.array_equal(tiny["roberta"].states(["the plan"], n=2), spaced)
    for kind in ("xlm-roberta", "albert", "deberta-v2"):
        assert tiny[kind].words(tiny[kind].tokens("the"))[0].startswith("▁")
        assert tiny[kind].texts(tiny[kind].tokens("the plan")[None]) == ["the plan"]


def test_from_text_through_the_chain_to_text(masked_lm):
    start = masked_lm.states(corpus(masked_lm)[:3], n=6)
    trace = run_chains(masked_lm, start, n_steps=30, temperature=2.0, seed=1)
    assert (trace.final != start).any()
    assert [len(masked_lm.words(state)) for state in trace.final] == [6, 6, 6]
    assert all(text and text != before for text, before in zip(
        masked_lm.texts(trace.final), masked_lm.texts(start), strict=True))  # fmt: skip


def test_a_text_is_cut_to_its_first_tokens(tiny):
    np.testing.assert_array_equal(tiny["bert"].tokens(TEXTS[0], n=7), tiny["bert"].tokens(TEXTS[0])[:7])


def test_a_text_that_is_too_short_is_refused(masked_lm):
    with pytest.raises(ValueError, match="at least 500 are needed"):
        masked_lm.tokens(corpus(masked_lm)[0], n=500)
    with pytest.raises(ValueError, match="at least 1 are needed"):
        masked_lm.tokens("")


def test_a_text_with_a_special_token_is_refused(tiny):
    with pytest.raises(ValueError, match=r"outside the model's vocabulary \['\[SEP\]'\]"):
        tiny["bert"].tokens("the [SEP] school")


# Loading -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*MASKED, "gpt2"])
def test_two_loads_agree_bitwise(kind, tiny, tiny_folders):
    again = load_model(tiny_folders[kind], causal=kind == "gpt2")
    assert again.checksum == tiny[kind].checksum
    if kind != "gpt2":
        states = again.states(corpus(again)[:3], n=5)
        assert torch.equal(again.scores(states, [0, 2, 4]), tiny[kind].scores(states, [0, 2, 4]))


def test_the_checksum_changes_with_any_weight(tiny, tiny_folders):
    other = load_model(tiny_folders["bert"])
    with torch.no_grad():
        next(other.network.bert.encoder.parameters()).view(-1)[0] += 1e-3
    assert other.checksum != tiny["bert"].checksum


@pytest.mark.parametrize("kind", ["bert", "esm"])  # with a tokenizer of the tokenizers library, and one in Python
def test_the_cache_key_depends_on_the_tokenizer_and_not_on_the_folder(kind, tiny, tiny_folders, tmp_path):
    again = load_model(shutil.copytree(tiny_folders[kind], tmp_path / "copy"))
    assert joblib.hash(again.cache_key) == joblib.hash(tiny[kind].cache_key)
    again.tokenizer.add_tokens(["zzz"])
    assert joblib.hash(again.cache_key) != joblib.hash(tiny[kind].cache_key)


@pytest.mark.parametrize("kind", [*[kind for kind in MASKED if kind != "deberta-v3"], "gpt2"])
def test_decoder_and_embedding_share_storage_also_after_save_and_reload(kind, tiny, tmp_path):
    def tied(network):
        return network.get_output_embeddings().weight.data_ptr() == network.get_input_embeddings().weight.data_ptr()

    model = tiny[kind]
    assert tied(model.network)
    model.network.save_pretrained(tmp_path)
    model.tokenizer.save_pretrained(tmp_path)
    again = load_model(tmp_path, causal=kind == "gpt2")
    assert tied(again.network) and again.checksum == model.checksum


@pytest.mark.parametrize("kind", [kind for kind in MASKED if kind != "deberta-v3"])
def test_a_decoder_in_the_file_is_never_replaced_by_the_embeddings_unseen(kind, tmp_path):
    network, tokenizer = build_tiny(kind, tie_word_embeddings=False)
    decoder = network.get_output_embeddings().weight
    with torch.no_grad():
        decoder.normal_()
    network.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text()) | {"tie_word_embeddings": True}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert torch.equal(load_model(tmp_path).network.get_output_embeddings().weight, decoder)


HEAD = {  # what a message must name where the head is missing
    "albert": "predictions.dense", "bert": "cls.predictions", "deberta-v2": "cls.predictions",
    "deberta-v3": "lm_predictions", "distilbert": "vocab_transform", "electra": "generator_predictions",
    "esm": "lm_head", "modernbert": "head.dense", "mpnet": "lm_head", "roberta": "lm_head", "xlm-roberta": "lm_head",
}  # fmt: skip


@pytest.mark.parametrize("kind", MASKED)
def test_a_checkpoint_without_head_is_refused_by_name(kind, tiny, tmp_path):
    tiny[kind].network.base_model.save_pretrained(tmp_path)
    tiny[kind].tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=rf"lacks weights.*{HEAD[kind]}"):
        load_model(tmp_path)


@pytest.mark.parametrize("kind", MASKED)
def test_a_checkpoint_with_the_head_of_another_architecture_is_refused_by_name(kind, tiny, tmp_path):
    network = tiny[kind].network
    network.save_pretrained(tmp_path)
    tiny[kind].tokenizer.save_pretrained(tmp_path)
    other = tiny["roberta" if HEAD[kind] != "lm_head" else "bert"].network
    encoder, foreign = f"{network.base_model_prefix}.", f"{other.base_model_prefix}."
    weights = {k: w for k, w in load_file(tmp_path / "model.safetensors").items() if k.startswith(encoder)}
    weights |= {k: w.clone() for k, w in other.state_dict().items() if not k.startswith(foreign)}
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=rf"lacks weights.*{HEAD[kind]}"):
        load_model(tmp_path)


@pytest.mark.parametrize("kind", MASKED)
def test_a_checkpoint_without_the_bias_of_its_decoder_is_refused_by_name(kind, tiny, tmp_path):
    tiny[kind].network.save_pretrained(tmp_path)
    tiny[kind].tokenizer.save_pretrained(tmp_path)
    ((name, bias),) = vocabulary_biases(tiny[kind].network)
    weights = load_file(tmp_path / "model.safetensors")
    save_file(
        {k: w for k, w in weights.items() if w.shape != bias.shape},
        tmp_path / "model.safetensors",
        metadata={"format": "pt"},
    )
    with pytest.raises(ValueError, match=rf"lacks weights.*{name}"):
        load_model(tmp_path)


@pytest.mark.parametrize(("kind", "legacy"), [("deberta-v2", False), ("deberta-v3", True)])
def test_a_deberta_with_the_head_of_the_other_version_is_refused(kind, legacy, tiny, tmp_path):
    tiny[kind].tokenizer.save_pretrained(tmp_path)
    tiny[kind].network.save_pretrained(tmp_path)
    config = transformers.AutoConfig.from_pretrained(tmp_path)
    config.legacy = legacy
    config.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="lacks weights.*" + ("cls.predictions" if legacy else "lm_predictions")):
        load_model(tmp_path)


def test_the_discriminator_of_electra_is_refused(tiny, tmp_path):
    transformers.ElectraForPreTraining(tiny["electra"].network.config).save_pretrained(tmp_path)
    tiny["electra"].tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"lacks weights.*generator_lm_head.*generator_predictions"):
        load_model(tmp_path)


class Bomb:
    """Writes a file where it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


def test_a_pickled_checkpoint_is_refused_and_never_opened(tiny, tmp_path):
    tiny["bert"].network.config.save_pretrained(tmp_path)
    tiny["bert"].tokenizer.save_pretrained(tmp_path)
    torch.save(tiny["bert"].network.state_dict() | {"x": Bomb(tmp_path / "went-off")}, tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"pytorch_model\.bin is a pickle, without safetensors"):
        load_model(tmp_path)
    assert not (tmp_path / "went-off").exists()


def test_a_checkpoint_without_one_layer_norm_is_refused(tiny_folders, tiny, tmp_path):
    save_tiny("bert", tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["cls.predictions.transform.LayerNorm.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"cls\.predictions\.transform\.LayerNorm\.weight"):
        load_model(tmp_path)


def test_a_tokenizer_without_mask_token_is_refused(tiny):
    with pytest.raises(ValueError, match="no mask token"):
        MaskedLM(tiny["bert"].network, tiny["gpt2"].tokenizer)


def test_an_unsupported_architecture_is_refused(tiny):
    with pytest.raises(ValueError, match=r"'gpt2' is not supported, only \['albert', 'bert', .*'xlm-roberta'\]"):
        MaskedLM(tiny["gpt2"].network, tiny["bert"].tokenizer)


def test_an_unknown_name_is_refused_with_the_accepted_ones():
    accepted = re.escape(str(sorted(EMBEDDED)))
    assert accepted.startswith(r"\['distilbert',\ 'distilbert\-causal'")
    with pytest.raises(ValueError, match=rf"no masked model 'no-such-model': not one of {accepted}"):
        load_model("no-such-model")
    with pytest.raises(ValueError, match=f"only {accepted}"):
        load_embedded("no-such-model")


# The causal control ------------------------------------------------------------------------------------------------


def test_a_causal_joint_sums_to_one_over_the_states(tiny_folders):
    model = small_vocabulary("gpt2", tiny_folders, 5)
    assert float(model.log_prob(all_states(5, 3)).exp().sum()) == pytest.approx(1, abs=1e-9)


def test_causal_scores_are_the_exact_conditionals_of_the_joint(tiny_folders):
    model, states = small_vocabulary("gpt2", tiny_folders, 5), all_states(5, 3)
    joint = model.log_prob(states).exp().numpy().reshape(5, 5, 5)
    for site in range(3):
        exact = np.moveaxis(joint / joint.sum(site, keepdims=True), site, -1)
        rest = np.delete(states, site, axis=1)
        law = probabilities(model.scores(states, np.full(125, site)), np.ones(125))
        np.testing.assert_allclose(law, exact[tuple(rest.T)], atol=1e-6)


def test_causal_log_probability_is_the_sum_of_the_network_s_next_token_ones(tiny):
    model = tiny["gpt2"]
    states = model.states(TEXTS[:3], n=8)
    ids = torch.from_numpy(np.insert(model.vocabulary[states], 0, model.tokenizer.bos_token_id, axis=1))
    with torch.no_grad():
        logits = model.network(input_ids=ids).logits[:, :-1, model.vocabulary].double()
    expected = logits.log_softmax(-1).gather(2, torch.from_numpy(states)[..., None]).sum((1, 2))
    torch.testing.assert_close(model.log_prob(states), expected, atol=1e-4, rtol=0)
    at = model.proposals(states, [0, 3, 7])
    torch.testing.assert_close(at, logits.log_softmax(-1)[range(3), [0, 3, 7]], atol=1e-4, rtol=0)


def test_a_masked_network_is_no_causal_model(tiny):
    model = tiny["bert"]
    with pytest.raises(ValueError, match="not a causal model"):
        CausalLM(model.network, model.tokenizer)


def test_an_embedded_model_of_the_other_kind_is_refused():
    with pytest.raises(ValueError, match="'minilm-3l' is a masked language model"):
        load_model("minilm-3l", causal=True)
    with pytest.raises(ValueError, match="'distilbert-causal' is a causal language model"):
        load_model("distilbert-causal", causal=False)


def test_enumerating_a_large_causal_vocabulary_is_refused(tiny_folders):
    model = load_model(tiny_folders["gpt2"], causal=True)
    model.n_tokens = 513
    with pytest.raises(ValueError, match="pass a smaller vocabulary"):
        model.scores(np.zeros((1, 3), int), [0])


def test_a_causal_model_needs_a_token_to_begin_with(tiny):
    bare = transformers.PreTrainedTokenizerFast(tokenizer_object=tiny["gpt2"].tokenizer.backend_tokenizer)
    with pytest.raises(ValueError, match="no token to begin"):
        CausalLM(tiny["gpt2"].network, bare)


# The embedded models -----------------------------------------------------------------------------------------------


EXPORTED = {"minilm-3l": "cls.predictions", "distilbert": "vocab"}  # name -> what its head's weights are called


@pytest.fixture(scope="module", params=EXPORTED)
def exported(request, tmp_path_factory):
    """Name and network of an embedded architecture with random weights, and the folder it was exported to."""
    name = request.param
    torch.manual_seed(1)
    network = empty_network(**EMBEDDED[name])
    with torch.no_grad():
        for weight in network.parameters():
            if weight.ndim == 1:  # biases start from zeros, norms from ones
                weight.normal_()
    folder = tmp_path_factory.mktemp("embedded")
    save_embedded(network, folder / name, {"steps": 0})
    return name, network, folder


def test_an_exported_network_comes_back_within_half_a_step_of_each_row(exported):
    name, network, folder = exported
    again, stored = load_embedded(name, folder), load_file(folder / name / "model.safetensors")
    want, got = network.state_dict(), again.state_dict()
    assert want.keys() == got.keys()
    for key, weight in want.items():
        if f"{key}.scale" in stored:  # a matrix: 127 steps to the largest number of each row
            scale = weight.abs().amax(1, keepdim=True) / 127
            torch.testing.assert_close(stored[f"{key}.scale"], scale)
            assert stored[key].dtype == torch.int8 and stored[key].shape == weight.shape
            assert ((got[key] - weight).abs() <= scale * 0.5001).all(), key
        else:
            assert torch.equal(got[key], weight), key
    assert json.loads((folder / name / "training.json").read_text()) == {"steps": 0}


def test_the_word_embeddings_are_the_package_s_and_not_in_the_file(exported):
    name, _, folder = exported
    again, stored = load_embedded(name, folder), load_file(folder / name / "model.safetensors")
    decoder, embedding = again.get_output_embeddings(), again.get_input_embeddings()
    assert decoder.weight.data_ptr() == embedding.weight.data_ptr()
    weights = package_weights(EMBEDDED[name]["base"])
    assert torch.equal(embedding.weight.detach(), weights["embeddings.word_embeddings.weight"])
    rows = len(embedding.weight)
    assert not [key for key, weight in stored.items() if weight.ndim == 2 and len(weight) == rows]
    assert [key for key in stored if key.startswith(EXPORTED[name])]  # the head is


def test_what_was_loaded_and_is_exported_again_is_the_same_file_but_for_rounding(exported, tmp_path):
    name, _, folder = exported
    save_embedded(load_embedded(name, folder), tmp_path / name, {})
    first, second = (load_file(place / name / "model.safetensors") for place in (folder, tmp_path))
    assert first.keys() == second.keys()
    for key, weight in first.items():
        torch.testing.assert_close(second[key], weight, rtol=1e-6, atol=0, msg=key)


def test_a_file_in_float16_is_read_too(exported, tmp_path):
    name, network, folder = exported
    keys = [key for key in load_file(folder / name / "model.safetensors") if not key.endswith(".scale")]
    halves = {key: network.state_dict()[key].half() for key in keys}
    (tmp_path / name).mkdir()
    save_file(halves, tmp_path / name / "model.safetensors")
    read = stored_weights(tmp_path / name)
    assert read.keys() == halves.keys() and all(weight.dtype == torch.float32 for weight in read.values())
    again = load_embedded(name, tmp_path).state_dict()
    assert all(torch.equal(again[key], halves[key].float()) for key in keys)


def test_an_exported_matrix_without_its_scale_is_refused_by_name(exported, tmp_path):
    name, _, folder = exported
    weights = load_file(folder / name / "model.safetensors")
    matrix = next(key for key, weight in weights.items() if weight.dtype == torch.int8)
    del weights[f"{matrix}.scale"]
    (tmp_path / name).mkdir()
    save_file(weights, tmp_path / name / "model.safetensors")
    with pytest.raises(ValueError, match=rf"int8 matrices without '\.scale': \['{re.escape(matrix)}'\]"):
        load_embedded(name, tmp_path)


@pytest.mark.parametrize("change", ["missing", "extra"])
def test_an_exported_file_with_other_keys_is_refused(exported, change, tmp_path):
    model, _, folder = exported
    weights = load_file(folder / model / "model.safetensors")
    name = next(key for key in weights if key.startswith(EXPORTED[model]))
    if change == "missing":
        del weights[name]
    else:
        name = f"{EXPORTED[model]}.gate.weight"
        weights[name] = torch.zeros(2)
    (tmp_path / model).mkdir()
    save_file(weights, tmp_path / model / "model.safetensors")
    with pytest.raises(ValueError, match=name.replace(".", r"\.")):
        load_embedded(model, tmp_path)


# The packages they start from --------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", sorted(PACKAGES))
def test_a_package_is_found_and_read_without_importing_it(base, monkeypatch):
    monkeypatch.delenv(f"GLAUBER_{base.upper()}", raising=False)
    _, folder, name, _ = PACKAGES[base]
    weights, tokenizer = package_weights(base), package_tokenizer(base)
    assert (package_folder(base) / name).is_file() and tokenizer.mask_token == "[MASK]"
    assert all(weight.dtype == torch.float32 for weight in weights.values() if weight.is_floating_point())
    assert folder.split("/")[0] not in sys.modules


@pytest.mark.parametrize("base", sorted(PACKAGES))
def test_an_altered_file_of_a_package_is_refused(base, monkeypatch, tmp_path):
    distribution, _, name, expected = PACKAGES[base]
    content = bytearray((package_folder(base) / name).read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / name).write_bytes(content)
    monkeypatch.delenv(f"GLAUBER_{base.upper()}", raising=False)
    monkeypatch.setattr(embedded_models, "package_folder", lambda base: tmp_path)
    with pytest.raises(ValueError, match=f"{name} of the package '{distribution}' has SHA-256 ") as refused:
        package_weights(base)
    assert f"expected {expected}: install the version that constraints.txt pins" in str(refused.value)


def quantised(name, matrix, scale, zero, kind=np.uint8):
    """Initializers of a quantised matrix, and the node that restores it."""
    parts = {f"{name}_quantized": np.asarray(matrix, kind), f"{name}_scale": np.float32(scale)}
    parts[f"{name}_zero_point"] = np.asarray(zero, kind)
    node = helper.make_node("DequantizeLinear", [*parts], [f"{name}_out"], name=f"{name}_DequantizeLinear")
    return [numpy_helper.from_array(np.asarray(value), key) for key, value in parts.items()], node


def save_graph(path):
    """A graph as the package's, of one matrix of each kind, with activations that are quantised as well."""
    norm = np.array([0.5, -1.5, 2.0], np.float32)
    stored = [
        numpy_helper.from_array(norm, "distilbert.transformer.layer.0.sa_layer_norm.weight"),
        numpy_helper.from_array(norm[:2], "classifier.bias"),
        numpy_helper.from_array(np.float32(0.1), "/distilbert/embeddings/Gather_output_0_scale"),
        numpy_helper.from_array(np.int8(0), "/distilbert/embeddings/Gather_output_0_zero_point"),
    ]
    nodes = []
    for name, matrix, scale, zero, kind in (
        ("distilbert.embeddings.word_embeddings.weight", [[0, 128, 255], [130, 126, 127]], 0.25, 128, np.uint8),
        ("onnx::MatMul_7", [[1, -2], [3, -128], [127, 0]], 0.5, 1, np.int8),
        ("onnx::MatMul_9", [[1, 1], [1, 1]], 1.0, 0, np.int8),
    ):
        parts, node = quantised(name, matrix, scale, zero, kind)
        stored += parts
        nodes.append(node)
    here = "/distilbert/embeddings/Gather_output_0"
    nodes += [
        helper.make_node("Gather", ["distilbert.embeddings.word_embeddings.weight_out", "input_ids"], [here]),
        helper.make_node("QuantizeLinear", [here, f"{here}_scale", f"{here}_zero_point"], [f"{here}_quantized"]),
        helper.make_node("DequantizeLinear", [f"{here}_quantized", f"{here}_scale", f"{here}_zero_point"], ["hidden"]),
        helper.make_node(
            "MatMul", ["hidden", "onnx::MatMul_7_out"], ["wide"], name="/distilbert/transformer/layer.0/ffn/lin1/MatMul"
        ),
        helper.make_node("MatMul", ["wide", "onnx::MatMul_9_out"], ["logits"], name="/classifier/MatMul"),
    ]
    value = lambda name, kind: helper.make_tensor_value_info(name, kind, None)  # noqa: E731
    inputs, outputs = [value("input_ids", onnx.TensorProto.INT64)], [value("logits", onnx.TensorProto.FLOAT)]
    onnx.save(helper.make_model(helper.make_graph(nodes, "tagger", inputs, outputs, stored)), str(path))


def test_int8_matrices_of_a_graph_are_read_exactly_and_by_the_place_they_have_in_it(tmp_path, monkeypatch):
    save_graph(tmp_path / "tagger.onnx")
    monkeypatch.setenv("GLAUBER_DISTILBERT", str(tmp_path))  # a folder named so is taken as it is
    weights = package_weights("distilbert")
    expected = {
        "transformer.layer.0.sa_layer_norm.weight": [0.5, -1.5, 2.0],
        "embeddings.word_embeddings.weight": [[-32.0, 0.0, 31.75], [0.5, -0.5, -0.25]],
        "transformer.layer.0.ffn.lin1.weight": [[0.0, 1.0, 63.0], [-1.5, -64.5, -0.5]],  # (3, 2), transposed
    }
    assert weights.keys() == expected.keys()  # nothing of the classifier
    for name, values in expected.items():
        assert torch.equal(weights[name], torch.tensor(values)) and weights[name].is_contiguous(), name


def test_the_graph_of_the_package_has_the_whole_encoder_of_distilbert():
    with torch.device("meta"):
        network = transformers.DistilBertForMaskedLM(transformers.DistilBertConfig(vocab_size=28_996))
    wanted = {k: w.shape for k, w in network.base_model.state_dict().items() if not k.endswith("position_ids")}
    assert {k: w.shape for k, w in package_weights("distilbert").items()} == wanted


def test_folders_named_in_the_environment_stand_for_the_packages(tmp_path, monkeypatch):
    for base in PACKAGES:
        monkeypatch.setenv(f"GLAUBER_{base.upper()}", str(tmp_path / base))
        assert package_folder(base) == tmp_path / base


def test_the_cased_tokenizer_cuts_and_pads_nothing_and_frames_as_bert_does():
    tokenizer = package_tokenizer("distilbert")
    ids = lambda text: tokenizer(text, add_special_tokens=False)["input_ids"]  # noqa: E731
    assert len(tokenizer) == 28_996 and tokenizer.mask_token_id == 103
    assert len(ids("plan " * 3_000)) == 3_000
    assert [len(row) for row in tokenizer(["a plan", "a"])["input_ids"]] == [4, 3]
    assert tokenizer.convert_ids_to_tokens(tokenizer("Paris")["input_ids"]) == ["[CLS]", "Paris", "[SEP]"]
    assert ids("Paris") != ids("paris") and tokenizer.decode(ids("In Paris")) == "In Paris"
    assert ids("[MASK]") == [103] and set(tokenizer.all_special_ids) == {0, *range(100, 104)}


# Their weights -----------------------------------------------------------------------------------------------------


def canary_law(model):
    """The law of the canary's site."""
    states, sites = model.tokens(CANARY_TEXT)[None], [CANARY_SITE]
    scores = model.proposals(states, sites) if isinstance(model, CausalLM) else model.scores(states, sites)
    return probabilities(scores, np.ones(1))[0]


@pytest.mark.parametrize("name", sorted(EMBEDDED))
def test_the_canary_is_far_from_uniform(name, embedded):
    model = embedded(name)
    law = canary_law(model)
    # word frequencies alone, as from a head whose context is lost, give about 0.75 log |V|
    assert float(-(law * law.clamp(min=1e-300).log()).sum()) < 0.5 * np.log(model.n_tokens)


@pytest.mark.parametrize("name", sorted(EMBEDDED))
def test_the_canary_answers_as_pinned(name, embedded):
    model = embedded(name)
    if name not in CANARY:
        pytest.skip(f"no pinned answer of {name} yet")
    law = canary_law(model)
    assert model.words([int(law.argmax())]) == [CANARY[name][0]]
    assert float(law.max().log()) == pytest.approx(CANARY[name][1], abs=1e-3)


@pytest.mark.parametrize("name", sorted(name for name, facts in EMBEDDED.items() if not facts["causal"]))
def test_scores_of_an_embedded_model_are_those_of_the_plain_forward(name, embedded):
    test_scores_equal_the_plain_forward_of_the_network(embedded(name))


@pytest.mark.parametrize("name", sorted(EMBEDDED))
def test_two_loads_of_an_embedded_model_agree_bitwise(name, embedded):
    assert load_model(name).checksum == embedded(name).checksum


def test_all_states_are_numbered_by_their_codes():
    states = all_states(3, 4)
    assert len(states) == 81
    np.testing.assert_array_equal(states @ 3 ** np.arange(3, -1, -1), np.arange(81))


def test_a_model_from_a_joint_scores_every_site_by_it():
    model, log_joint = random_joint(2, 3)
    np.testing.assert_array_equal(model.scores([[2, 1]], [0])[0], log_joint[:, 1])
    np.testing.assert_array_equal(model.scores([[2, 1]], [1])[0], log_joint[2])


# What is not there ---------------------------------------------------------------------------------------------------


def test_a_language_model_refuses_sites_and_tokens_that_are_not_there(tiny):
    model, states = tiny["bert"], np.full((2, 4), 7)
    for sites in ([-1, 0], [0, 4], [0]):
        with pytest.raises(ValueError, match=r"sites must be integers in 0\.\.3|need one site"):
            model.scores(states, np.array(sites))
    for stray in (-1, model.n_tokens):
        states[1, 2] = stray
        asks = (lambda: model.scores(states, [0, 0]), lambda: model.texts(states), lambda: model.words(states[1]))
        for ask in asks:
            with pytest.raises(ValueError, match=r"tokens|filled up"):
                ask()


def test_a_causal_model_refuses_sites_and_tokens_that_are_not_there(tiny):
    model, states = tiny["gpt2"], np.full((2, 4), 7)
    with pytest.raises(ValueError, match=r"sites must be integers in 0\.\.3"):
        model.proposals(states, np.array([0, -1]))
    states[0, 3] = -1
    for ask in (model.log_factors, model.log_prob, lambda x: model.proposals(x, np.array([0, 0]))):
        with pytest.raises(ValueError, match="tokens of states must be integers"):
            ask(states)


def test_the_number_of_tokens_of_a_text_is_a_count(tiny):
    model = tiny["bert"]
    for n in (-1, 0, 1.5, True):
        with pytest.raises(ValueError, match="n must be a whole number >= 1"):
            model.tokens(TEXTS[0], n=n)
    with pytest.raises(ValueError, match="need a text at least, got none"):
        model.states([], n=3)


@pytest.mark.parametrize("ids", [[-1, 300], [300, 10**6], [300, 300], [300.5]])
def test_a_vocabulary_of_ids_that_are_not_there_is_refused(ids, tiny_folders):
    with pytest.raises(ValueError, match="vocabulary must be"):
        load_model(tiny_folders["bert"], vocabulary=ids)


def test_a_field_has_a_value_for_each_site():
    for field in ([0.1], [0.1] * 3, 0.1):
        with pytest.raises(ValueError, match=r"field must have shape \(2,\)"):
            IsingModel([[0.0, 1.0], [1.0, 0.0]], field)


@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.uint16, np.uint64])
def test_states_and_sites_of_every_type_of_integers_are_read_as_indices(kind, tiny, tiny_folders):
    for model in (random_joint(3, 2)[0], IsingModel(np.ones((3, 3)) - np.eye(3)), tiny["bert"],
                  small_vocabulary("gpt2", tiny_folders, 4)):  # fmt: skip
        states, sites = np.array([[0, 1, 1], [1, 1, 0], [1, 0, 0]]), np.array([1, 0, 1])  # as truth values: others
        assert torch.equal(model.scores(states.astype(kind), sites.astype(kind)), model.scores(states, sites))


def test_no_state_is_asked_about_nothing(tiny):
    model, none = tiny["bert"], np.zeros((0, 4), np.int64)
    assert answers.ask(model, none, none[:, 0]).shape == (0, model.n_tokens) and model.round_trips(none).shape == (0,)
    for read in (lambda: model.scores(none, none[:, 0]), lambda: tiny["gpt2"].log_prob(none)):
        with pytest.raises(ValueError, match="need a state at least"):
            read()
    assert drawn_influence(model, [[0], [1]], 1.0).tolist() == [0, 0]  # one site has no other


def test_spins_keep_their_own_couplings():
    couplings, field = np.array([[0.0, 1.0], [1.0, 0.0]]), np.ones(2)
    model = IsingModel(couplings, field)
    before = model.scores([[1, 1]], [0]).clone()
    couplings *= 5
    field += 1
    assert (model.scores([[1, 1]], [0]) == before).all()


# What would be answered otherwise than is said -----------------------------------------------------------------------


def test_the_special_tokens_that_a_model_uses_are_part_of_its_key(tiny_folders):
    model, causal = (load_model(tiny_folders[kind], causal=kind == "gpt2") for kind in ("bert", "gpt2"))
    changes = ((model, MaskedLM, "mask_token", "[UNK]"), (causal, CausalLM, "bos_token", causal.words([300])[0]))
    for own, kind, change, token in changes:
        other = copy.deepcopy(own.tokenizer)
        setattr(other, change, token)
        again, changed = (kind(own.network, t, vocabulary=range(310, 316)) for t in (own.tokenizer, other))
        assert model_checksum(again) == model_checksum(kind(own.network, own.tokenizer, vocabulary=range(310, 316)))
        assert model_checksum(changed) and model_checksum(changed) != model_checksum(again)
    states = model.states(TEXTS[:1], n=5)
    before = model.scores(states, [2])
    model.tokenizer.mask_token = "[UNK]"  # too late: the model masks as it did when it was made
    assert torch.equal(model.scores(states, [2]), before)


@pytest.mark.parametrize("part", ["all", "a layer"])
def test_a_network_in_training_mode_is_refused(part, tiny_folders):
    model = load_model(tiny_folders["bert"])
    causal = load_model(tiny_folders["gpt2"], causal=True, vocabulary=range(300, 304))
    states, few = model.states(TEXTS[:1], n=5), np.zeros((1, 3), int)
    asks = [
        lambda: model.scores(states, [2]), lambda: causal.log_factors(few), lambda: causal.log_prob(few),
        lambda: causal.proposals(few, [1]), lambda: causal.scores(few, [1]),
    ]  # fmt: skip
    before = [ask() for ask in asks]
    for network, layers in ((model.network, model.network.bert.encoder), (causal.network, causal.network.transformer)):
        (network if part == "all" else layers).train()
    for ask in asks:
        with pytest.raises(ValueError, match=r"is in training mode, .* call eval\(\) on it"):
            ask()
    model.network.eval(), causal.network.eval()
    assert all(torch.equal(ask(), answer) for ask, answer in zip(asks, before, strict=True))


def resaved(folder, target, settings=None, **weights):
    """A copy of a checkpoint with other settings or further weights."""
    shutil.copytree(folder, target)
    file = target / "model.safetensors"
    save_file({**load_file(file), **weights}, file, metadata={"format": "pt"})
    config = json.loads((target / "config.json").read_text()) | (settings or {})
    (target / "config.json").write_text(json.dumps(config))
    return target


@pytest.mark.parametrize(
    ("settings", "further", "named"),
    [
        ({"num_hidden_layers": 1}, "", r"bert\.encoder\.layer\.1\."),
        ({}, "bert.encoder.layer.0.attention.self.distance_embedding.weight", r"distance_embedding"),
        ({}, "bert.encoder.layer.1.attention.self.query.lora_A.default.weight", r"lora_A"),
        ({}, "encoder.layer.2.output.adapter.weight", "adapter"),
    ],
)
def test_weights_below_the_encoder_that_the_network_does_not_use_are_refused(
    settings, further, named, tiny_folders, tmp_path
):
    weights = {further: torch.ones(4, 4)} if further else {}
    with pytest.raises(ValueError, match=f"weights that BertForMaskedLM would leave out.*{named}"):
        load_model(resaved(tiny_folders["bert"], tmp_path / "bert", settings, **weights))


def test_weights_that_no_score_depends_on_are_left_out_without_a_word(tiny, tiny_folders, tmp_path):
    names = ["bert.pooler.dense.weight", "cls.seq_relationship.bias", "bert.embeddings.position_ids", "dropped.weight"]
    folder = resaved(tiny_folders["bert"], tmp_path / "bert", **{name: torch.ones(4) for name in names})
    assert load_model(folder).checksum == tiny["bert"].checksum


def test_a_decoder_is_refused_as_a_masked_model(tmp_path):
    network, tokenizer = build_tiny("bert", is_decoder=True)
    with pytest.raises(ValueError, match=r"BertForMaskedLM\) is a decoder .* causal=True"):
        MaskedLM(network, tokenizer)
    transformers.BertLMHeadModel(network.config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"is a decoder \(config\.is_decoder\)"):
        load_model(tmp_path)
    assert load_model(tmp_path, causal=True).n_tokens


def test_one_text_is_no_list_of_texts(tiny):
    with pytest.raises(ValueError, match=r"need a list of texts, got one text: 'the cat'; write \[text\]"):
        tiny["roberta"].states("the cat", n=1)


def test_the_checksum_sees_an_exchange_of_weights_whatever_their_distance(tiny_folders):
    model = load_model(tiny_folders["bert"])
    rows = model.network.bert.embeddings.word_embeddings.weight.data
    for a, b in ((300, 304), (300, 428), (301, 301 + 16)):
        before = model.checksum
        rows[[a, b]] = rows[[b, a]]  # through .data: torch does not count it
        assert model.checksum != before
    flat = rows.view(-1)
    for a, b, value in ((2, 4, 1.0), (7, 1031, -1.0), (9, 11, 3.0)):  # one place the other's negative, too
        flat[a], flat[b] = value, -value
        before = model.checksum
        flat[a], flat[b] = -value, value
        assert model.checksum != before


def test_a_revision_of_what_has_none_is_refused(tiny_folders):
    with pytest.raises(ValueError, match="is a local directory and has no revision: leave out revision='v1'"):
        load_model(tiny_folders["bert"], revision="v1")
    with pytest.raises(ValueError, match="is an embedded model and has no revision: leave out revision='v1'"):
        load_model("minilm-3l", revision="v1")
