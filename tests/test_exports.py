"""Traces as the objects of xarray, ArviZ and pandas, and what their own functions say of them."""

import warnings

import numpy as np
import pytest
import torch
from conftest import TEXTS

from glauber_lib import exports
from glauber_lib.chains import run_chains
from glauber_lib.margins import score_gaps
from glauber_lib.models import IsingModel
from glauber_lib.stats import convergence

with warnings.catch_warnings():
    warnings.simplefilter("ignore", FutureWarning)
    import arviz

RING = np.roll(np.eye(4), 1, axis=1)
SPINS = IsingModel(RING + RING.T)


@pytest.fixture(scope="module")
def trace():
    return run_chains(SPINS, [[0, 1, 0, 1]] * 3, temperature=[1.0, 2.0, 4.0], n_steps=60, chains=[4, 2, 9])


@pytest.fixture(scope="module")
def worded(tiny):
    model = tiny["bert"]
    return model, run_chains(model, model.states(TEXTS[:2], n=5), n_steps=20)


def test_a_dataset_holds_the_states_by_chain_draw_and_site(trace):
    found = trace.to_xarray()
    assert dict(found.sizes) == {"chain": 3, "draw": 60, "site": 4}
    assert found.chain.values.tolist() == [4, 2, 9] and found.draw.values.tolist() == list(range(1, 61))
    for step in (1, 7, 60):
        np.testing.assert_array_equal(found.token.sel(draw=step), trace.states(step)[0])
    assert found.moves.sel(chain=2).values.tolist() == [
        ((trace.chain == 1) & (trace.step < k)).sum() for k in range(1, 61)
    ]
    assert found.temperature.sel(chain=9) == 4.0 and not found.frozen.any()
    assert found.attrs["n_steps"] == 60 and found.attrs["seed"] == 0


class Favouring:
    """Two tokens at sites of any number, the second one favoured."""

    n_tokens, device, memory = 2, SPINS.device, 0

    def scores(self, states, sites):
        return torch.tensor([[0.0, 0.5]]).repeat(len(states), 1)


def test_draws_may_be_chosen_and_short_states_are_filled_up():
    trace = run_chains(Favouring(), [[0, 1, 0], [1]], n_steps=8)
    found = trace.to_xarray(Favouring(), steps=[0, 4, 8])
    assert found.draw.values.tolist() == [0, 4, 8]
    assert (found.token.values[1, :, 1:] == -1).all() and np.isnan(found.margin.values[1, :, 1:]).all()
    np.testing.assert_allclose(found.margin.values[0], np.where(found.token.values[0] == 1, 0.5, -0.5))


def test_margins_are_those_of_each_state(trace):
    found = trace.to_xarray(SPINS, steps=[3, 30])
    for k, states in enumerate(trace.states([3, 30])):
        for row, state in enumerate(states):
            np.testing.assert_array_equal(found.margin.values[row, k], score_gaps(SPINS, state))


@pytest.mark.parametrize("steps", [[], [2, 2], [5, 3], [[1]], [61], [-1], [0.5]])
def test_draws_are_steps_of_the_trace_in_rising_order(steps, trace):
    with pytest.raises(ValueError, match="steps must be"):
        trace.to_xarray(steps=steps)


def test_what_is_too_large_to_write_out_is_refused(trace, monkeypatch):
    monkeypatch.setattr(exports, "LARGEST", 100)
    with pytest.raises(ValueError, match=r"720 tokens are too many to write out, at most 100: pass fewer steps"):
        trace.to_xarray()


def test_arviz_says_the_same_as_our_own_diagnostics():
    trace = run_chains(SPINS, [[0, 1, 0, 1]] * 4, temperature=2.0, n_steps=400)
    found = trace.to_arviz(SPINS)
    ups = found["posterior"].token.sum("site")
    for values, name in ((ups, "token"), (found["posterior"].margin.mean("site"), "margin")):
        ours = convergence(values.values)
        assert float(arviz.rhat(values.to_dataset())[name]) == pytest.approx(ours["rhat"], rel=1e-12)
        assert float(arviz.ess(values.to_dataset())[name]) == pytest.approx(ours["ess"], rel=1e-12)
    whole = arviz.rhat(found, var_names=["moves", "margin"])  # without conversion
    assert {*whole.data_vars} == {"moves", "margin"} and whole.margin.shape == (4,)
    assert {"token", "moves", "margin"} == {*found["posterior"].data_vars}
    assert {"temperature", "frozen"} == {*found["constant_data"].data_vars}
    assert len(arviz.summary(found, var_names=["margin"])) == 4


def test_from_version_1_on_arviz_gets_a_tree(trace, monkeypatch):
    monkeypatch.delattr(arviz, "InferenceData")
    found = trace.to_arviz()
    assert {*found.children} == {"posterior", "constant_data"} and found["posterior"].sizes["draw"] == 60


def test_a_table_of_moves_has_a_row_for_each_with_words_where_a_model_has_them(trace, worded):
    table = trace.to_pandas()
    assert table.columns.tolist() == ["step", "chain", "temperature", "site", "old", "new"]
    assert len(table) == len(trace.step) and set(table.chain) <= {4, 2, 9}
    assert set(table.temperature[table.chain == 9]) == {4.0}
    model, words = worded
    table = words.to_pandas(model)
    assert table.new_word.tolist() == [model.words([k])[0] for k in words.new]
    none = run_chains(model, model.states(TEXTS[:1], n=5), n_steps=0)
    assert none.to_pandas(model).columns[-2:].tolist() == ["old_word", "new_word"]


def test_a_model_of_other_words_or_scores_is_refused(worded, tiny):
    for export in (worded[1].to_xarray, worded[1].to_arviz, worded[1].to_pandas):
        with pytest.raises(ValueError, match=r"model"):
            export(tiny["roberta"])
