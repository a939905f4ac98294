"""What was taken without a word, and computed as something else: each case with the right number beside it."""

import copy
import importlib
import json
import shutil
import sys
from dataclasses import replace
from functools import partial, wraps
from types import MappingProxyType, SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from conftest import random_table
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from glauber_lib import draws, drift, exact, growth, kernels, strips, traps
from glauber_lib.answers import ask
from glauber_lib.censored import resampled_interval
from glauber_lib.chains import LONGEST, run_chains
from glauber_lib.checks import check_numbers, check_states, check_temperature
from glauber_lib.checksums import (
    WeightsDigest,
    model_checksum,
    refuse_other_scores,
    refuse_other_vocabulary,
    vocabulary_checksum,
)
from glauber_lib.contraction import median_estimate, ratio_of_independent
from glauber_lib.couplings import coalesce
from glauber_lib.crossover import couple_passages
from glauber_lib.engine import Conditionals
from glauber_lib.escape import observed_stays
from glauber_lib.hitting import first_passages
from glauber_lib.incompatibility import (
    Rectangles,
    marked_texts,
    mean_without_largest,
    measure_rectangles,
    noise_floor,
    opposite_signs,
    sample_rectangles,
)
from glauber_lib.influence import contraction_norms, measure_influence, sufficient_temperature, threshold
from glauber_lib.instruments import LexicalTopicScorer
from glauber_lib.laboratory import compatible_table
from glauber_lib.language import CausalLM, MaskedLM
from glauber_lib.margins import basin_escape_times, escape_probability, log_exit_times
from glauber_lib.models import IsingModel, RestrictedModel, TabularModel
from glauber_lib.paper import keys
from glauber_lib.paper.passages import load_passages
from glauber_lib.readings import cosine_distance
from glauber_lib.resampling import percentile_interval
from glauber_lib.retention import find_traps, time_traps
from glauber_lib.search import search_column
from glauber_lib.sources import SourceChangedError
from glauber_lib.stats import Estimate, bootstrap_interval
from glauber_lib.trapping import GrownSet, grow_sets

COLD = 1e-308


def frozen_table():
    return TabularModel(np.stack([[[200.0, 200.0], [0, 0]], [[200.0, 0.0], [200, 0]]]))


class Buffer:
    """A model that answers in one buffer again and again."""

    memory = 2**20

    def __init__(self, model):
        self.model, self.n_tokens, self.device = model, model.n_tokens, model.device
        self.place = torch.zeros(1_000, model.n_tokens, dtype=torch.float64)

    def answer(self, states, sites):
        return self.model.scores(states, sites)

    def scores(self, states, sites, hidden=None):
        found = self.answer(states, sites)
        self.place[: len(found)] = found
        return self.place[: len(found)]


class AnyLength(Buffer):
    """Of states of any length; a token is scored by the sum of the others."""

    def __init__(self, *, again):
        self.n_tokens, self.device, self.again = 3, torch.device("cpu"), again
        self.place = torch.zeros(1_000, 3, dtype=torch.float64)

    def scores(self, states, sites, hidden=None):
        states, sites = np.asarray(states), np.asarray(sites)
        others = states.sum(1) - states[np.arange(len(states)), sites]
        found = torch.from_numpy(np.sin(others[:, None] * 1.7 + np.arange(3) * 2.1 + states.shape[1]))
        if not self.again:
            return found
        self.place[: len(found)] = found
        return self.place[: len(found)]


# Models --------------------------------------------------------------------------------------------------------------


def test_influence_through_a_buffer_that_is_used_again():
    model = random_table(3, 3, seed=2)
    tokens = np.array([[[1, 2], [0, 2], [0, 1]]])
    found, right = (measure_influence(m, [[0, 1, 2]], tokens, [1.0]) for m in (Buffer(model), model))
    np.testing.assert_array_equal(found.tv, right.tv)


def test_chains_of_several_lengths_through_a_buffer_that_is_used_again():
    paths = [run_chains(AnyLength(again=k), [[0, 1, 2], [0, 1], [1, 1, 1, 1]], n_steps=100) for k in (True, False)]
    np.testing.assert_array_equal(paths[0].step, paths[1].step)
    np.testing.assert_array_equal(paths[0].final, paths[1].final)


def test_a_model_may_write_into_its_sites():
    class Writing(TabularModel):
        def scores(self, states, sites, hidden=None):
            found = super().scores(states, sites.copy()).clone()
            sites[:] = 0
            return found

    plain = random_table(3, 3, seed=4)
    model = Writing(plain.to_arrays()["table"])
    starts = [[0, 1, 2], [1, 1, 0]]
    np.testing.assert_array_equal(*(run_chains(m, starts, n_steps=50).final for m in (model, plain)))


def test_a_model_of_two_types_of_numbers_is_named():
    class Turning(Buffer):
        def scores(self, states, sites, hidden=None):
            self.asked = getattr(self, "asked", 0) + 1
            found = self.answer(states, sites)
            return found.float() if self.asked == 1 else found

    conditionals = Conditionals(Turning(random_table(2, 3)))
    conditionals.scores(np.array([[0, 1]]), np.array([0]))
    with pytest.raises(ValueError, match="scores of Turning must be of one type"):
        conditionals.scores(np.array([[0, 1]]), np.array([1]))


@pytest.mark.parametrize("change", ["all", "odd columns", "some rows"])
def test_changed_signs_of_weights_are_seen(change):
    network = torch.nn.Linear(512, 16, bias=False)
    network = network if change == "odd columns" else network.double()
    digest = WeightsDigest()
    before = digest(network)
    part = {"all": np.s_[:], "odd columns": np.s_[:, 1::2], "some rows": np.s_[:4]}[change]
    network.weight.data[part].neg_()
    assert digest(network) != before
    network.weight.data[part].neg_()
    assert digest(network) == before


@pytest.fixture
def bert(tiny):
    return MaskedLM(copy.deepcopy(tiny["bert"].network), tiny["bert"].tokenizer, name="bert")


def test_what_is_set_on_a_network_and_what_is_hooked_to_it_is_in_its_key(bert):
    plain = model_checksum(bert)
    layer = bert.network.bert.encoder.layer[0]
    hook = layer.register_forward_hook(lambda module, given, answer: answer)
    assert model_checksum(bert) not in ("", plain)
    hook.remove()
    layer.forward = layer.forward
    assert model_checksum(bert) not in ("", plain)
    del layer.forward
    assert model_checksum(bert) == plain
    layer.output.LayerNorm.eps = 0.5
    assert model_checksum(bert) not in ("", plain)


def test_the_key_is_of_the_network_and_the_frame_that_are_there_now(bert):
    plain, own, state = model_checksum(bert), bert.network, np.array([[5, 6, 7]])
    other = copy.deepcopy(own)
    other.get_input_embeddings().weight.data.mul_(1.5)
    bert.network = other
    assert model_checksum(bert) not in ("", plain) and bert.checksum != MaskedLM(own, bert.tokenizer).checksum
    bert.network = own
    before, scores = bert.before, bert.scores(state, [0])
    bert.before = torch.cat([before, torch.tensor([8, 9])])
    assert model_checksum(bert) not in ("", plain) and (bert.scores(state, [0]) - scores).abs().max() > 1e-4
    bert.before = before
    assert model_checksum(bert) == plain


def test_a_method_of_its_own_leaves_a_model_without_a_key(bert):
    table, scorer = random_table(3, 2), LexicalTopicScorer(load_passages())
    for reader, name in ((bert, "scores"), (bert, "texts"), (table, "scores"), (scorer, "score")):
        keys.describe(reader)
        setattr(reader, name, lambda *asked, **options: None)
        if reader is not scorer:
            assert model_checksum(reader) == ""
        with pytest.raises(TypeError, match="method of its own"):
            keys.describe(reader)
        delattr(reader, name)
    assert model_checksum(bert) and model_checksum(table)


def test_other_scores_under_one_name_are_warned_of():
    one, other = (random_table(3, 2, seed=k) for k in (1, 2))
    one.name = other.name = "m"  # type: ignore
    made = SimpleNamespace(model="m", model_checksum=model_checksum(one))
    refuse_other_scores(one, made, "the trace")
    with pytest.warns(UserWarning, match="the trace was made by a model 'm' of another checksum"):
        refuse_other_scores(other, made, "the trace")


@pytest.mark.parametrize(
    "one, other",
    [("none", "tanh"), ([1.0], [2.0]), (torch.tensor([1.0]), torch.tensor([2.0])), (np.ones(1), np.zeros(1)), (1j, 2j),
     ({"a": (1, None)}, {"a": (2, None)}), ({1}, {2}), (len, abs), (F.silu, F.mish), (lambda x: x, lambda x: -x),
     (partial(F.gelu, approximate="none"), partial(F.gelu, approximate="tanh")), (torch.float32, torch.float64)],
)  # fmt: skip
def test_every_plain_attribute_of_a_module_is_in_the_key(bert, one, other):
    part, found = bert.network.bert.encoder.layer[0].intermediate, set()
    for value in (one, other, one):
        part.own = value
        found.add(model_checksum(bert))
        assert model_checksum(bert) in found
        json.dumps(bert.cache_key, default=np.ndarray.tolist)
    assert len(found) == 2 and "" not in found


def test_hooks_of_all_modules_and_a_class_s_replaced_forward_are_in_the_key(bert, monkeypatch):
    plain = model_checksum(bert)
    hook = torch.nn.modules.module.register_module_forward_hook(lambda module, given, answer: None)
    try:
        assert model_checksum(bert) not in ("", plain)
    finally:
        hook.remove()
    assert model_checksum(bert) == plain
    inner, layer = bert.network.bert.encoder.layer[0].output, type(bert.network.bert.encoder.layer[0])
    found = {plain}
    for kind in (type(inner), type(inner.dense), type(inner.LayerNorm)):
        before = kind.forward
        for wrapped in (lambda *given, before=before: 2 * before(*given), wraps(before)(lambda *given: None)):
            with monkeypatch.context() as patch:
                patch.setattr(kind, "forward", wrapped)
                found.add(model_checksum(bert))
    assert len(found) == 7 and model_checksum(bert) == plain
    monkeypatch.setattr(layer, "forward", lambda self, hidden, **_: hidden)
    with pytest.raises(ValueError, match="is not called as a whole"):  # of the last layer, which is taken apart
        bert.scores([[0, 1, 2]], [1])


def test_an_attention_of_the_reader_s_own_is_in_the_key_by_what_it_is(bert, monkeypatch):
    sdpa, found = ALL_ATTENTION_FUNCTIONS["sdpa"], {model_checksum(bert)}
    for factor in (2, 3):
        own = lambda module, query, *rest, factor=factor, **named: sdpa(module, factor * query, *rest, **named)  # noqa: E731
        monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS._global_mapping, "sdpa", own)
        found.add(model_checksum(bert))
    assert len(found) == 3 and "" not in found


class Attention:
    """Attention as an object: what it holds counts."""

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, module, query, *rest, **named):
        return sdpa_attention_forward(module, self.factor * query, *rest, **named)

    def forward(self, *rest, **named):
        return self(*rest, **named)


def multiplied(module, query, *rest, factor=1.0, **named):
    return sdpa_attention_forward(module, factor * query, *rest, **named)


@pytest.mark.parametrize("make", [Attention, lambda k: Attention(k).forward, lambda k: partial(multiplied, factor=k)])
def test_an_attention_that_is_no_plain_function_is_in_the_key_by_what_it_holds(bert, monkeypatch, make, tmp_path):
    found, states = [], np.arange(6).reshape(2, 3)
    for factor in (2.0, 3.0, 2.0):
        monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS._global_mapping, "sdpa", make(factor))
        found.append(model_checksum(bert))
        keys.describe(bert)
    assert found[0] == found[2] != found[1] and "" not in found
    run_chains(bert, states, n_steps=5, checkpoint=tmp_path / "c.npz")
    with torch.no_grad():
        bert.network.bert.embeddings.word_embeddings.weight.mul_(3.0)
    with pytest.raises(ValueError, match="was made by the model"):
        run_chains(bert, states, n_steps=9, checkpoint=tmp_path / "c.npz")


def test_an_error_within_a_key_is_not_taken_for_a_model_without_one():
    class Broken:
        @property
        def cache_key(self):
            return self.nothing

    with pytest.raises(AttributeError, match="nothing"):
        model_checksum(Broken())
    with pytest.raises(TypeError, match=r"whose cache_key fails: .*nothing"):
        keys.describe(Broken())


OWN = """
import torch
from own_numbers import SCALE

def helper(x):
    return torch.nn.functional.gelu(x) * SCALE * 1.0

class Act(torch.nn.Module):
    def forward(self, x):
        return helper(x)
"""


def test_what_a_reader_s_own_part_calls_and_reads_is_in_the_key(bert, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(tmp_path))
    layer, found = bert.network.bert.encoder.layer[0].intermediate, []
    edits = (("", ""), ("* 1.0", "* 3.0"), ("2.0", "4.0"))
    own, numbers = OWN, "SCALE = 2.0\n"
    for old, new in edits:
        own, numbers = own.replace(old, new) if old else own, numbers.replace(old, new) if old else numbers
        (tmp_path / "own_part.py").write_text(own)
        (tmp_path / "own_numbers.py").write_text(numbers)
        for name in ("own_part", "own_numbers"):  # as in the next session
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
        layer.intermediate_act_fn = importlib.import_module("own_part").Act().eval()
        answer = float(bert.scores([[0, 1, 2]], [1])[0, 0])
        found.append((model_checksum(bert), json.dumps(keys.describe(bert)), answer))
        assert model_checksum(bert) == found[-1][0]
    assert all(len(set(column)) == 3 for column in zip(*found, strict=True))
    (tmp_path / "own_part.py").write_text("edited = True\n")
    assert model_checksum(bert) == found[-1][0]  # what runs is still what was imported


def import_own(folder, monkeypatch, **contents):
    """Modules of a reader's own, imported anew; the last one."""
    monkeypatch.syspath_prepend(str(folder))
    for name, content in contents.items():
        (folder / f"{name}.py").write_text(content)
        sys.modules.pop(name, None)
    importlib.invalidate_caches()
    shutil.rmtree(folder / "__pycache__", ignore_errors=True)
    return [importlib.import_module(name) for name in contents][-1]


@pytest.mark.parametrize("file", ["own_part", "own_numbers"])
def test_an_own_part_whose_file_was_edited_before_it_was_asked_for_has_no_key(file, bert, monkeypatch, tmp_path):
    part = import_own(tmp_path, monkeypatch, own_numbers="SCALE = 2.0\n", own_part=OWN)
    bert.network.bert.encoder.layer[0].intermediate.intermediate_act_fn = part.Act().eval()
    path = tmp_path / f"{file}.py"
    path.write_text(path.read_text().replace("* 1.0", "* 3.0").replace("2.0", "4.0"))
    assert model_checksum(bert) == ""
    with pytest.raises(SourceChangedError, match="restart Python"):
        keys.describe(bert)


def test_what_is_replaced_in_an_own_part_leaves_no_key(bert, monkeypatch, tmp_path):
    part = import_own(tmp_path, monkeypatch, own_numbers="SCALE = 2.0\n", own_part=OWN)
    bert.network.bert.encoder.layer[0].intermediate.intermediate_act_fn = part.Act().eval()
    assert (known := model_checksum(bert))
    for place, name in ((part, "SCALE"), (part, "helper"), (part.Act, "forward")):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, (lambda *asked: asked[-1]) if name != "SCALE" else 3.0)
            assert model_checksum(bert) != known
    assert model_checksum(bert) == known


OWN_MODEL = """
from glauber_lib.models import TabularModel

SCALE = 1.0

class Own(TabularModel):
    scale = 1.0

    def scores(self, states, sites, hidden=None):
        return super().scores(states, sites, hidden) * self.scale * SCALE
"""


def test_what_is_replaced_or_added_in_an_own_class_leaves_its_models_without_a_checksum(monkeypatch, tmp_path):
    module = import_own(tmp_path, monkeypatch, own_model=OWN_MODEL)
    model = module.Own(np.zeros((2, 3, 3)))
    assert (known := model_checksum(model))
    scores = lambda self, states, sites, hidden=None: torch.zeros(len(states), 3)  # noqa: E731
    changes = (module, "SCALE", 5.0), (module.Own, "scale", 3.0), (module.Own, "scores", scores)
    for place, name, value in (*changes, (module.Own, "conditional", scores)):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, value, raising=False)
            assert model_checksum(model) == ""
            with pytest.raises(SourceChangedError):
                keys.describe(model)
    assert model_checksum(model) == known


def test_the_key_of_an_untouched_network_is_that_of_every_process(masked_lm):
    assert "of this process" not in json.dumps(masked_lm.cache_key, default=np.ndarray.tolist)
    before = json.dumps(masked_lm.cache_key, default=np.ndarray.tolist)
    masked_lm.scores([[0, 1, 2]], [1])
    assert json.dumps(masked_lm.cache_key, default=np.ndarray.tolist) == before


def test_the_precision_of_products_is_in_the_key(bert):
    plain, before = model_checksum(bert), torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        assert model_checksum(bert) not in ("", plain)
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("kind", ["bert", "distilbert", "roberta"])
def test_a_hook_that_would_not_be_called_is_refused(tiny, kind):
    model = MaskedLM(copy.deepcopy(tiny[kind].network), tiny[kind].tokenizer, name=kind)
    base = model.network.base_model
    last = (base.transformer if kind == "distilbert" else base.encoder).layer[-1]
    for part in (model.network, base, last, last.attention):
        hook = part.register_forward_hook(lambda module, given, answer: None)
        with pytest.raises(ValueError, match="is not called as a whole"):
            model.scores([[0, 1, 2]], [1])
        hook.remove()
    seen = []
    inner = last.ffn if kind == "distilbert" else last.output
    inner.register_forward_hook(lambda *_: seen.append(1))
    model.scores([[0, 1, 2]], [1])
    assert seen


@pytest.mark.parametrize("kind", ["bert", "distilbert"])
def test_the_last_layer_scales_as_its_attention_does(tiny, kind):
    model = MaskedLM(copy.deepcopy(tiny[kind].network), tiny[kind].tokenizer)
    before = model.scores([[0, 1, 2]], [1]).clone()
    base = model.network.base_model
    last = (base.transformer if kind == "distilbert" else base.encoder).layer[-1]
    (last.attention if kind == "distilbert" else last.attention.self).scaling = 0.01
    ids = model.framed(torch.tensor([[0, 1, 2]]))
    at = 1 + len(model.before)
    ids[0, at] = model.tokenizer.mask_token_id
    with torch.no_grad():
        wanted = model.network(input_ids=ids).logits[0, at, model.vocabulary]
    found = model.scores([[0, 1, 2]], [1])[0]
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=0)
    assert (found - before[0]).abs().max() > 1e-4


def test_the_words_of_a_restricted_model_are_not_those_of_the_whole(bert):
    small = RestrictedModel(bert, [5, 6, 7, 8], [1, 2], [10, 11, 12])
    trace = run_chains(small, [[0, 1]], n_steps=5)
    assert vocabulary_checksum(small) not in ("", vocabulary_checksum(bert))
    with pytest.raises(ValueError, match="whose tokens are other words"):
        refuse_other_vocabulary(bert, trace)
    refuse_other_vocabulary(small, trace)
    assert vocabulary_checksum(RestrictedModel(random_table(3, 3), [0, 1, 2], [0], [0, 1])) == ""


def test_language_models_refuse_what_is_no_text_no_batch_no_state_and_a_padding(tiny):
    model, causal = tiny["bert"], tiny["gpt2"]
    with pytest.raises(ValueError, match="need one text, got list"):
        model.tokens(["a text"])
    for size in (0, np.nan):
        with pytest.raises(ValueError, match="batch_tokens must be a whole number"):
            MaskedLM(model.network, model.tokenizer, batch_tokens=size)
    with pytest.raises(ValueError, match="need a state at least"):
        causal.log_factors(np.zeros((0, 3), int))
    assert CausalLM(causal.network, causal.tokenizer, vocabulary=[20]).n_tokens == 1
    roberta = tiny["roberta"]
    words = [roberta.tokenizer.pad_token_id, *roberta.vocabulary[:3].tolist()]
    with pytest.raises(ValueError, match="is the padding, which has no position"):
        MaskedLM(roberta.network, roberta.tokenizer, vocabulary=words)


def test_a_noise_floor_is_that_of_float32(tiny):
    double = tiny["bert"].double()
    with pytest.raises(ValueError, match="in float64 already"):
        noise_floor(double, sample_rectangles(double, [[5, 6, 7]], 2))


# Chains --------------------------------------------------------------------------------------------------------------


def first_is(token):
    return lambda states: states[:, 0] == token


def test_chains_that_a_condition_stopped_go_on_under_no_other(tmp_path):
    model, file = random_table(3, 3, spread=0.3), tmp_path / "run.npz"
    begun = run_chains(model, [[0, 1, 2]], n_steps=100, until=first_is(2), checkpoint=file)
    assert begun.stopped[0] >= 0
    for until in (None, first_is(1)):
        with pytest.raises(ValueError, match="run with another condition `until`: it stopped chain 0 after"):
            run_chains(model, [[0, 1, 2]], n_steps=200, until=until, checkpoint=file)
        with pytest.raises(ValueError, match="run with another condition `until`: it stopped chain 0 after"):
            run_chains(model, None, n_steps=100, until=until, resume=begun)
    assert run_chains(model, [[0, 1, 2]], n_steps=200, until=first_is(2), checkpoint=file).n_steps == 200


@pytest.mark.parametrize("holding", ["path", "geometric"])
@pytest.mark.parametrize("kept, until", [(None, first_is(2)), (lambda x: (x == 2).all(1), first_is(2))])
def test_what_a_condition_would_have_stopped_earlier_is_not_gone_on_from(kept, until, holding, tmp_path):
    """Without a condition, and with a stricter one: the stops would be those of the end, or of the stricter one."""
    model, starts, file = random_table(3, 3, spread=0.3), [[0, 1, 2], [0, 0, 0]], tmp_path / "run.npz"
    options = {"holding": holding, "seed": 3}
    done = run_chains(model, starts, n_steps=100, until=kept, checkpoint=file, **options)
    right = run_chains(model, starts, n_steps=200, until=until, **options)
    assert (right.stopped >= 0).all() and right.stopped.max() < 100
    row = np.flatnonzero(done.stopped != right.stopped)[0]
    said = rf"chain {row} .* the present one first holds after {right.stopped[row]} steps: give that condition again"
    with pytest.raises(ValueError, match=said):
        run_chains(model, starts, n_steps=200, until=until, checkpoint=file, **options)
    with pytest.raises(ValueError, match=said):
        run_chains(model, None, n_steps=100, until=until, resume=done)


def test_a_condition_met_where_a_run_begins_stops_it_there():
    model = random_table(3, 3, spread=0.3)
    whole = run_chains(model, [[0, 1, 2]], n_steps=100, until=first_is(2), seed=2)
    assert whole.stopped[0] > 1
    for steps in (whole.stopped[0] - 1, whole.stopped[0]):  # never met before, or at the last step
        done = run_chains(model, [[0, 1, 2]], n_steps=steps, seed=2)
        again = run_chains(model, None, n_steps=100 - steps, resume=done, until=first_is(2))
        assert again.stopped.tolist() == whole.stopped.tolist()


def test_a_checkpoint_with_more_moves_than_allowed_is_of_another_run(tmp_path):
    model, file = random_table(3, 3, spread=0.3), tmp_path / "run.npz"
    whole = run_chains(model, [[0, 1, 2]], n_steps=500, max_moves=20, checkpoint=file)
    assert len(whole.step) == 20
    with pytest.raises(ValueError, match="more than 5 moves"):
        run_chains(model, [[0, 1, 2]], n_steps=500, max_moves=5, checkpoint=file)
    assert run_chains(model, [[0, 1, 2]], n_steps=500, max_moves=20, checkpoint=file).n_steps == whole.n_steps


def test_final_states_are_a_copy():
    model = random_table(3, 3)
    for result, place in ((run_chains(model, [[0, 1, 2]], n_steps=20), (0, 0)),
                          (coalesce(model, [[0, 1, 2]], [[1, 1, 1]], n_steps=3), (0, 0, 0))):  # fmt: skip
        before = result.final.copy()
        result.final[place] = 1 - before[place]
        np.testing.assert_array_equal(result.final, before)


def test_a_kernel_cannot_change_which_sites_are_free():
    def kernel(model, state, free, **_):
        free[:] = [0, 2]
        return np.array([state[0], state[1], 1 - state[2]])

    with pytest.raises(ValueError, match="read-only"):
        kernels.run(random_table(3, 2), [[0, 1, 1]], n_steps=1, kernel=kernel, frozen=np.array([False, False, True]))


def test_a_stopped_chain_spends_no_time_where_it_stopped():
    model = TabularModel(np.zeros((2, 2, 2)))
    trace = run_chains(model, [[0, 0]], n_steps=500, until=lambda states: (states != 0).any(1), seed=1)
    states, entered, durations = trace.visits(0)
    assert durations.tolist() == [trace.stopped[0], 0] and entered.tolist() == [0, trace.stopped[0]]
    assert traps.occupied_runs((states, entered, durations), np.arange(0, 501, 50)) == []


def test_first_passages_take_one_length():
    trace = run_chains(AnyLength(again=False), [[0, 1, 2], [0, 1]], n_steps=20)
    with pytest.raises(ValueError, match="states of one length"):
        first_passages(trace, lambda states, starts: (states != starts).mean(1), [0.5])


def test_draws_take_one_uniform_for_each_row():
    law = torch.ones(3, 2, dtype=torch.float64)
    with pytest.raises(ValueError, match="one uniform for each of 3 rows"):
        draws.inverse_cdf(law, torch.tensor([0.5], dtype=torch.float64))
    with pytest.raises(ValueError, match="uniforms must lie in"):
        draws.inverse_cdf(law, torch.tensor([0.5, -0.1, 0.2], dtype=torch.float64))


# Windows and thresholds ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_steps", [1000, 1020])
def test_a_chain_that_never_moves_has_not_ended_by_a_window_that_nobody_looked_at(n_steps):
    grown = GrownSet(np.array([[0, 0]]), np.array([1]), np.array([1.0]), True)
    timed = time_traps(frozen_table(), [grown], 1.0, repeats=1, n_steps=n_steps, stride=50, window=320, seed=1)
    assert not timed.ended[0] and not timed.gone[0] and not timed.left[0]


def test_a_run_without_a_whole_window_is_refused():
    grown = GrownSet(np.array([[0, 0]]), np.array([1]), np.array([1.0]), True)
    with pytest.raises(ValueError, match="no window of 310 at a stride of 50"):
        time_traps(frozen_table(), [grown], 1.0, repeats=1, n_steps=310, stride=50, window=310, seed=1)
    with pytest.raises(ValueError, match="no window of 310 at a stride of 50"):
        find_traps(run_chains(frozen_table(), [[0, 0]], n_steps=310), stride=50, window=310)


def test_a_survey_censors_a_trap_whose_next_window_nobody_looked_at():
    class Text:
        def embed(self, texts):
            return np.tile([1.0, 0.0], (len(texts), 1))

    model = frozen_table()
    model.texts = lambda states: [str(state) for state in states]  # type: ignore
    for n_steps in (1000, 1010, 1020):
        found = traps.survey_traps(model, run_chains(model, [[0, 0]], n_steps=n_steps), Text(), stride=50, window=310)
        assert found.traps.censored.tolist() == [True]


@pytest.mark.parametrize(("share", "spent"), [(0.55, 55), (0.07, 7), (0.14, 14), (0.28, 28), (0.5, 50)])
def test_a_share_that_is_met_exactly_is_met(share, spent):
    states = np.array([[0], *([k] for k in range(1, 101 - spent))])
    durations = np.array([spent, *[1] * (100 - spent)])
    visits = states, np.cumsum([0, *durations[:-1]]), durations
    assert traps.occupied_runs(visits, [0, 100], window=100, n_states=1, share=share) == [(0, 100)]
    assert traps.occupied_runs(visits, [0, 100], window=100, n_states=1, share=share + 1e-6) == []


def test_families_at_the_threshold_stay_separate():
    states = [[0] * 10, [1] + [0] * 9, [0, 1, 1, 1, 1, 1, 1, 0, 0, 0]]
    assert len(traps.template_families(states, threshold=0.65)[1]) == 2
    assert len(traps.template_families(states, threshold=0.66)[1]) == 1


# Numbers -------------------------------------------------------------------------------------------------------------


def two_wells():
    """8192 states of which two are deep: an iteration found the law of the wells at (.410, .590)."""
    rng = np.random.default_rng(191)
    energy = rng.normal(size=(2,) * 13) * rng.choice([0.1, 0.3, 0.5])
    energy[(0,) * 13] += rng.uniform(8, 15)
    energy[(1,) * 13] += rng.uniform(8, 15)
    return TabularModel.from_joint(energy)


def test_more_states_than_full_matrices_hold_have_no_law_and_no_gap():
    matrix = exact.transition_matrix(two_wells(), 13, 0.3)
    for read in (exact.stationary_law, exact.spectral_gap, exact.reversibility_defect, exact.mixing_time):
        with pytest.raises(ValueError, match="needs full matrices: at most 4096 states, got 8192"):
            read(matrix)


def test_the_divergence_of_a_tiny_probability_is_a_number():
    found = exact.compare_laws(np.array([1 - 1e-320, 1e-320]), np.array([1e-320, 1 - 1e-320]))
    assert found["KL(p‖q)"] == pytest.approx(736.83, abs=0.01)


def cold_table():
    table = np.full((2, 2, 2), 5.0)
    table[0][0] = 3
    table[1][:, 0] = 3
    return TabularModel(table)


def test_laws_at_temperatures_at_which_quotients_overflow():
    model = cold_table()
    assert escape_probability(model, [0, 0], COLD) == escape_probability(model, [0, 0], 1e-3) == 1.0
    np.testing.assert_allclose(basin_escape_times(model, [[0, 0]], COLD), [1.0])
    strip = drift.scan_drift(model, [[0, 1], [1, 0]], [0], [1, 2], [COLD])
    assert drift.predict_count_escape(model, strip, 2, 0, 0, COLD)["first_move"] == 1.0
    np.testing.assert_allclose(exact.pseudo_likelihood(model, 2, COLD), exact.pseudo_likelihood(model, 2, 1e-3))
    found, right = (measure_influence(model, [[0, 1]], [[[1], [0]]], [t]) for t in (COLD, 1e-3))
    np.testing.assert_array_equal(found.tv, right.tv)
    assert not np.isnan(found.tv).any()


def test_rectangles_at_a_temperature_that_leaves_no_chance_are_refused_as_such():
    rectangles = sample_rectangles(random_table(3, 3), [[0, 1, 2]], 3)
    with pytest.raises(ValueError, match="no chance in float64 at temperature 1e-308"):
        measure_rectangles(random_table(3, 3), rectangles, temperature=COLD)


def test_no_count_between_the_floor_and_all_sites_bounds_by_one():
    model = random_table(3, 2)
    strip = drift.scan_drift(model, [[0, 1, 1]], [0], [3], [1.0])
    assert drift.predict_count_escape(model, strip, 3, 0, 2, 1.0)["bound"] == 1.0


def test_exposures_beyond_64_bits_are_summed():
    stays = pd.DataFrame({"exposure": [2**62] * 3, "left": [True, False, False], "g": 1})
    assert observed_stays(stays, "g").observed.iloc[0] == pytest.approx(3 * 2.0**62)
    with pytest.raises(ValueError, match="n_steps must be a whole number"):
        strips.run_in_strip(frozen_table(), [0, 0], 0, 0, 1.0, n_chains=2, epochs=3, n_steps=LONGEST)


def test_a_strip_whose_lowest_counts_nobody_visited_has_no_time_by_counts():
    coupling = np.full((8, 8), 0.6)
    np.fill_diagonal(coupling, 0)
    model = IsingModel(coupling)
    run = strips.run_in_strip(model, [1] * 8, 1, 3, 1.0, n_chains=2, epochs=2, n_steps=20, seed=0)
    visited = strips.visited_drift(model, run, 1, 1.0)
    assert set(visited["count"]) < {4, 5, 6, 7, 8}
    assert np.isnan(strips.escape_by_counts(visited))


def test_rectangles_of_small_integers_are_measured_as_others():
    model = random_table(3, 3)
    plain = sample_rectangles(model, [[0, 1, 2], [1, 1, 0]], 20, seed=3)
    small = Rectangles(*(part.astype(np.uint8) for part in vars(plain).values() if isinstance(part, np.ndarray)))
    wanted, found = (measure_rectangles(model, r) for r in (plain, small))
    pd.testing.assert_frame_equal(found, wanted, check_dtype=False)
    assert set(found.distance) <= {1, 2}
    with pytest.raises(ValueError, match="rectangle 0 replaces a token by itself"):
        measure_rectangles(model, replace(plain, b=plain.states[np.arange(20), plain.i]))


def test_what_proposes_replacements_may_write_its_mask_into_the_states():
    model = random_table(3, 3)

    def propose(states, sites):
        scores = model.scores(states.copy(), sites.copy())
        states[np.arange(len(states)), sites] = 0
        sites[:] = 0
        return scores

    plain = sample_rectangles(model, [[1, 1, 2], [2, 1, 1]], 9)
    masking = sample_rectangles(model, [[1, 1, 2], [2, 1, 1]], 9, propose=propose)
    for name in plain.__dataclass_fields__:
        np.testing.assert_array_equal(getattr(masking, name), getattr(plain, name))


def test_pairs_of_one_temperature_named_twice_are_refused():
    with pytest.raises(ValueError, match="temperatures must differ"):
        couple_passages(random_table(2, 3), [[0, 1], [1, 1], [2, 1], [0, 0]], [1.0, 1.0], n_pairs=2, n_steps=5)
    with pytest.raises(ValueError, match="different temperatures"):
        threshold([1.0, 1.0, 2.0], [2.0, 0.5, 0.4])


def test_influences_and_oscillations_are_not_negative():
    for read in (contraction_norms, sufficient_temperature):
        with pytest.raises(ValueError, match=">= 0"):
            read(np.array([[0.0, -1.0], [0.0, 0.0]]))


def test_a_value_outside_its_own_interval_lies_in_that_of_a_ratio():
    low, high = ratio_of_independent(Estimate(2.0, (3.0, 4.0), 9, "x"), Estimate(1.0, (1.0, 1.0), 9, "x")).interval
    assert low == pytest.approx(2) and high == pytest.approx(4)


def test_a_median_is_that_of_a_list():
    with pytest.raises(ValueError, match="a list of numbers"):
        median_estimate(np.ones((8, 2)))


def test_one_site_has_no_excess():
    assert measure_influence(TabularModel(np.zeros((1, 2))), [[0]], [[[1]]], [1.0]).excess == -np.inf


MASKED = np.ma.masked_array
MASKED_INPUT = {
    "frozen": lambda: run_chains(random_table(2, 3), [[0, 1]], n_steps=5, frozen=MASKED([True, False], mask=[1, 0])),
    "rows of states": lambda: check_states([MASKED([1, 2], mask=[0, 1]), [0, 1]]),
    "rows of several lengths": lambda: check_states([MASKED([1, 2], mask=[0, 1]), [0, 1, 1]]),
    "rows of numbers": lambda: check_numbers([MASKED([1.0, 2.0], mask=[0, 1]), [0, 1]], "x"),
    "one of a list": lambda: check_numbers([1.0, np.ma.masked], "x"),
    "readings": lambda: opposite_signs(MASKED([1.0, 2.0], mask=[0, 1]), [1.0, 2.0]),
    "passages": lambda: couple_passages(
        random_table(2, 3), MASKED([[0, 1], [1, 1]], mask=[[0, 1], [0, 0]]), [1.0], n_pairs=1, n_steps=5
    ),
    "laws": lambda: exact.compare_laws(MASKED([0.5, 0.5], mask=[0, 1]), np.array([0.5, 0.5])),
    "steps": lambda: traps.inside_runs([(0, 5)], MASKED([1, 2], mask=[0, 1])),
    "table": lambda: TabularModel(MASKED(np.zeros((2, 2, 2)), mask=np.ones((2, 2, 2)))),
    "joint": lambda: TabularModel.from_joint(MASKED(np.zeros((2, 2)), mask=np.ones((2, 2)))),
    "couplings": lambda: IsingModel(MASKED(np.zeros((2, 2)), mask=np.ones((2, 2)))),
    "vectors": lambda: cosine_distance(MASKED([[0.6, 0.8]], mask=[[0, 1]]), np.array([0.6, 0.8])),
}  # fmt: skip


@pytest.mark.parametrize("name", MASKED_INPUT)
def test_masked_values_are_refused(name):
    with pytest.raises(ValueError, match="without a mask"):
        MASKED_INPUT[name]()


@pytest.mark.parametrize("value", ["0.5", True, 1 + 2j, np.timedelta64(1, "s")])
def test_a_temperature_is_a_number(value):
    with pytest.raises(ValueError, match="temperature must be"):
        check_temperature(value)


def test_dates_and_complex_numbers_are_no_numbers():
    for values in (np.array([1, 2], "timedelta64[s]"), np.array([1, 2], "datetime64[s]"), [1 + 2j]):
        with pytest.raises(ValueError, match="must be real numbers"):
            check_numbers(values, "values")


def test_states_in_a_series_and_joints_without_a_site():
    assert check_states(pd.Series([(0, 1), (1, 1)])).tolist() == [[0, 1], [1, 1]]
    with pytest.raises(ValueError, match="an axis for each site"):
        TabularModel.from_joint(3.0)


def test_a_condition_is_asked_on_states_as_wide_as_those_of_the_run():
    class Any3:
        n_tokens, memory, cache_key = 3, 0, "three tokens"

        def scores(self, states, sites):
            return torch.zeros(len(states), 3, dtype=torch.float64)

    until = lambda states: (states[:, 0] == 1) | (states[:, 4] == 1)  # noqa: E731
    trace = run_chains(Any3(), [[0, 0, 0], [0, 0, 0, 0, 0]], n_steps=6, until=until, seed=3)
    assert (trace.stopped >= 0).tolist() == [True, False]
    more = run_chains(Any3(), None, n_steps=12, until=until, resume=trace)
    whole = run_chains(Any3(), [[0, 0, 0], [0, 0, 0, 0, 0]], n_steps=12, until=until, seed=3)
    np.testing.assert_array_equal(more.final, whole.final)


def test_odd_objects_in_arrays_and_masks_at_any_depth_are_no_numbers():
    dates, numbers = np.array([np.datetime64(5, "ns")], object), np.array([np.complex128(1 + 2j)], object)
    for values in (dates, numbers, np.array([1 + 2j, 1.0], object)):
        with pytest.raises(ValueError, match="must be real numbers"):
            check_numbers(values, "values")
    masked = np.ma.array([1.0, 0.0], mask=[True, False])
    with pytest.raises(ValueError, match="got 2 masked"):
        check_numbers([[masked], [masked]], "values")
    np.testing.assert_array_equal(check_numbers(np.array([1, 2.5, None], object), "x"), [1, 2.5, np.nan])


def test_states_of_another_type_are_refused_by_their_type():
    for states in (np.array([[0, 1], [1, 0]], object), pd.DataFrame({"a": [0, 1], "b": [1, 0]}, dtype="Int64")):
        with pytest.raises(ValueError, match="states must be integers, got object"):
            check_states(states, 3)
    assert check_states(pd.DataFrame({"a": [0, 1], "b": [1, 0]}), 3).tolist() == [[0, 1], [1, 0]]


def test_weights_at_temperatures_near_the_largest_number_are_those_of_their_logarithms():
    scores = torch.tensor([[1.5e308, -1.5e308], [0.0, 1e308]], dtype=torch.float64)
    for tau in (1e308, 1.7e308, 2e305):
        found = draws.probabilities(scores, [tau, tau])
        torch.testing.assert_close(found, draws.log_probabilities(scores, tau).exp(), rtol=1e-12, atol=0)
    assert draws.probabilities(scores, [1e308, 1e-308]).tolist()[1] == [0.0, 1.0]


def test_a_mean_without_the_largest_of_extreme_values():
    values = np.abs(np.random.default_rng(0).normal(size=12))
    for scale in (3e307, 1e-300):
        assert mean_without_largest(values * scale) == pytest.approx(mean_without_largest(values), rel=1e-9)


def test_rates_may_be_whole_numbers_and_a_law_of_a_table_must_be_one():
    rates, out = np.array([[0, -1], [-2, 0]]), np.array([-3, -1])
    np.testing.assert_array_equal(log_exit_times(rates, out), log_exit_times(rates.astype(float), out.astype(float)))
    for law in ([0.5, 0.5, 0.5, -0.5], [np.nan, 0.5, 0.5, 0.0], np.ma.array([0.25] * 4, mask=[1, 0, 0, 0]), [0.5, 0.5]):
        with pytest.raises(ValueError, match="law must be"):
            compatible_table(law, 2, 2)  # type: ignore


def test_a_model_that_writes_into_the_hidden_sites_leaves_the_caller_s_alone():
    class Zeroes(TabularModel):
        def scores(self, states, sites, hidden=None):
            hidden[:] = False
            return super().scores(states, sites)

    hidden = np.array([[False, True, False]])
    ask(Zeroes(np.zeros((3, 2, 2, 2))), np.zeros((1, 3), int), np.zeros(1, int), hidden)
    assert hidden.tolist() == [[False, True, False]]


def test_complex_tables_are_refused():
    with pytest.raises(ValueError, match="numbers"):
        IsingModel(np.array([[0, 1j], [1j, 0]]))
    with pytest.raises(ValueError, match="numbers"):
        TabularModel(np.zeros((2, 3, 3), complex))


def test_a_law_put_into_a_table_of_functions_is_seen(monkeypatch):
    keys.function_digest(growth.compare_growth)
    monkeypatch.setattr(growth, "GROWTH", MappingProxyType({**growth.GROWTH, "n": lambda n: n**3}))
    with pytest.raises(SourceChangedError, match="GROWTH"):
        keys.function_digest(growth.compare_growth)


def test_rectangles_are_not_measured_in_the_words_of_another_vocabulary(tiny):
    model, other = tiny["bert"], tiny["roberta"]
    drawn = sample_rectangles(model, [[1, 2, 3], [4, 5, 6]], 5)
    for rectangles in (drawn, drawn.take([0, 1])):
        assert rectangles.vocabulary_checksum and len(measure_rectangles(model, rectangles)) == len(rectangles)
        for read in (measure_rectangles, marked_texts):
            with pytest.raises(ValueError, match=r"the set of rectangles was made by the model .* other words"):
                read(other, rectangles)
    unknown = replace(drawn, vocabulary_checksum="")
    assert len(measure_rectangles(other, unknown)) == 5  # as an earlier version left it


def test_traps_are_those_of_the_scores_that_made_the_trace(tiny):
    class Still:
        def embed(self, texts):
            return np.ones((len(texts), 1))

    model = tiny["bert"]
    other = MaskedLM(copy.deepcopy(model.network), model.tokenizer, name="other")
    with torch.no_grad():
        other.network.bert.embeddings.word_embeddings.weight.mul_(3.0)
    trace = run_chains(model, [[3, 4, 5]], n_steps=12)
    survey = lambda m, t: traps.survey_traps(m, t, Still(), window=4, stride=2)  # noqa: E731
    with pytest.raises(ValueError, match=r"the trace was made by the model .*, not by 'other'"):
        survey(other, trace)
    earlier = replace(trace, model_checksum="of an earlier version")
    for kept in (trace, replace(trace, model="", model_checksum="")):
        survey(model, kept)
    with pytest.warns(UserWarning, match="another checksum"):
        survey(model, earlier)


@pytest.mark.parametrize("read", [percentile_interval, lambda v: resampled_interval(1.0, v, 9), mean_without_largest])
def test_a_table_of_values_is_not_read_as_one_list(read):
    with pytest.raises(ValueError, match="must be a list of numbers, got shape"):
        read(np.random.default_rng(0).normal(size=(200, 3)))


def test_truth_values_of_a_column_of_objects_are_truth_values():
    met = [True, True, False, True, False, True]
    assert bootstrap_interval(pd.Series([*met, None], dtype=object)[:-1]) == bootstrap_interval(np.array(met))


def test_sets_and_searches_are_read_with_the_words_that_they_were_made_of(bert):
    fewer = MaskedLM(bert.network, bert.tokenizer, vocabulary=bert.vocabulary[:40])
    grown = grow_sets(fewer, [[0, 1, 2]], 1.0, cap=2)
    found = search_column(fewer, [[0, 1, 2], [3, 4, 5]], 0, rounds=1)
    assert np.isfinite(found.column_sums(fewer, [1.0])).all()
    for read in (
        lambda: time_traps(bert, grown, 1.0, repeats=1, n_steps=400, seed=0),
        lambda: found.column_sums(bert, [1.0]),
    ):
        with pytest.raises(ValueError, match="whose tokens are other words"):
            read()


def test_what_a_text_and_a_name_are_is_asked_before_they_are_used(bert):
    for asked in (
        lambda: bert.reads(["a", "b"]),
        lambda: bert.reads("a", n=-1),
        lambda: bert.reads("a", n=1.5),
        lambda: MaskedLM(bert.network, bert.tokenizer, name=5),
    ):
        with pytest.raises(ValueError, match=r"need one text, got|n must be a whole number"):
            asked()
