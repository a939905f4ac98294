"""Ordinary arguments for `fuzz`: one small system, what was measured on it, and texts, by the names of parameters."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from conftest import TEXTS, Watched, random_joint, random_table

from glauber_lib import (
    bracket_attention,
    bracket_rejection,
    couplings,
    crossover,
    diffusion,
    drift,
    escape,
    exact,
    guided_trees,
    incompatibility,
    influence,
    noising,
    parallel,
    pseudolikelihood,
    puzzles,
    reversals,
    schedules,
    strips,
    topic_models,
    topic_optima,
    topic_training,
    topics,
    transition,
    trapping,
    traps,
)
from glauber_lib.chains import run_chains
from glauber_lib.checks import check_state
from glauber_lib.hub import Location
from glauber_lib.models import all_states
from glauber_lib.paper.claims import Entry
from glauber_lib.paper.profiles import Cost
from glauber_lib.readings import moves_in_words
from glauber_lib.stats import Estimate

SITES, TOKENS, ROWS = 3, 4, 4


class WordModel(Watched):
    """A table model that has words, so that its states can be read."""

    name, answered = "table", 0
    WORDS = ("red", "green", "blue", "grey")

    @property
    def device(self):
        return self.model.device

    def scores(self, states, sites, hidden=None):
        found = super().scores(states, sites)
        self.answered += 1  # what the table refuses is no call
        return found

    def words(self, state):
        return [self.WORDS[token] for token in check_state(state, self.n_tokens)]

    def texts(self, states):
        return [" ".join(self.words(state)) for state in np.asarray(states)]

    def reads(self, text, *, n=1):
        return len(text.split()) >= n

    def round_trips(self, states):
        return np.ones(len(states), bool)


class JointModel(WordModel):
    """A model of a joint, which can hide sites."""

    def scores(self, states, sites, hidden=None):
        self.answered += 1
        return self.model.scores(states, sites, hidden)


class LengthEmbedder:
    """A unit vector for each text, by its letters."""

    def embed(self, texts):
        vectors = np.array([[1.0, *(text.count(letter) for letter in "redgbluy")] for text in texts]).reshape(
            len(texts), -1
        )
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True) if len(texts) else np.zeros((0, 9))


class LetterScorer:
    """Scores of three labels for each text."""

    labels = ("a", "b", "c")

    def score(self, texts):
        counts = np.array([[1.0 + text.count(letter) for letter in "rgb"] for text in texts]).reshape(len(texts), 3)
        return counts / counts.sum(1, keepdims=True)


def build():
    """World and special values; a new model each time, so that its calls count from zero."""
    rng = np.random.default_rng(0)
    model: Any = WordModel(random_table(SITES, TOKENS, spread=1.0))
    states = rng.integers(TOKENS, size=(ROWS, SITES))
    temperatures = np.array([0.5, 1.0, 2.0])
    trace = run_chains(model, states, n_steps=400, temperature=1.0, seed=1)
    pairs = couplings.coalesce(model, states, states[::-1].copy(), n_steps=50, seed=1)
    rectangles = incompatibility.sample_rectangles(model, states, 6, seed=1)
    replacements = influence.replacement_tokens(model, states, 2, seed=1)
    measured = influence.measure_influence(model, states, replacements, temperatures)
    table = exact.tabulate(model, SITES)
    matrix = exact.transition_matrix(table, SITES, 1.0)
    grown = trapping.grow_sets(model, states[:2], 0.5, cap=8, least=2)
    strip = strips.run_in_strip(model, states[0], int(states[0][0]), 0, 1.0, n_chains=3, epochs=2, n_steps=100, seed=1)
    token = int(states[0][0])
    visited = strips.visited_drift(model, strip, token, 1.0)
    scan = drift.scan_drift(model, states, [0, 1], [1, 2], temperatures, seed=1)
    token_table = drift.token_drift(model, states, 0, temperatures)
    timed = escape.time_escapes(model, states[0], states[:1], 1.0, repeats=3, n_steps=200, seed=1)
    survey = traps.survey_traps(model, trace, LengthEmbedder(), stride=10, window=40, shortest=20)
    paths = rng.integers(3, size=(8, 6))
    many = couplings_of(rng)
    frame = crossover.pair_times(many)
    fits = transition.fit_transitions(frame, 6.0, n_resamples=20, seed=1)
    visits = trace.visits(0)
    figure, axes = plt.subplots()
    plt.close(figure)
    estimate = Estimate(0.5, (0.4, 0.6), 40, "chains")
    band = pd.DataFrame({"mean": [0.2, 0.5, 0.8], "low": [0.1, 0.4, 0.7], "high": [0.3, 0.6, 0.9]})
    times = np.array([3.0, 5.0, 8.0, 13.0, 2.0, 7.0, 9.0, 4.0])
    lengths = np.array([4, 4, 8, 8, 16, 16, 32, 32])
    world = {
        "model": model,
        "states": states,
        "contexts": states,
        "state": states[0],
        "seeds": states[:2],
        "x": states,
        "y": states[::-1].copy(),
        "n_sites": SITES,
        "n_tokens": TOKENS,
        "temperature": 1.0,
        "temperatures": temperatures,
        "n_steps": 50,
        "seed": 1,
        "chains": None,
        "frozen": None,
        "until": None,
        "resume": None,
        "checkpoint": None,
        "progress": None,
        "memory": None,
        "max_moves": None,
        "holding": "path",
        "sites": np.zeros(ROWS, int),
        "hidden": None,
        "trace": trace,
        "rectangles": rectangles,
        "replacements": replacements,
        "found": measured,
        "passages": measured,
        "chain": measured,
        "matrix": matrix,
        "law": None,
        "basin": states[:1],
        "start": states[0],
        "token": token,
        "floor": 0,
        "repeats": 3,
        "epochs": 2,
        "n_chains": 3,
        "sets": grown,
        "run": strip,
        "visited": visited,
        "scan": scan,
        "drift": token_table,
        "timed": timed,
        "by": "temperature",
        "paths": paths,
        "counts": rng.integers(1, 6, size=(3, 3)),
        "n_labels": 3,
        "label": 1,
        "labels": ["a", "b", "c"],
        "frame": frame,
        "transitions": fits,
        "runs": many,
        "multiple": 6.0,
        "reduced": 1.0,
        "visits": visits,
        "embedder": LengthEmbedder(),
        "scorer": LetterScorer(),
        "rng": np.random.default_rng(0),
        "axis": axes,
        "figure": figure,
        "estimate": estimate,
        "above": estimate,
        "below": estimate,
        "drawn": estimate,
        "transition": estimate,
        "unit": "chains",
        "time": times,
        "observed": np.array([1, 1, 0, 1, 1, 1, 0, 1], bool),
        "ended": np.array([1, 1, 0, 1, 1, 1, 0, 1], bool),
        "n": lengths,
        "groups": np.array([0, 1, 2, 3, 0, 1, 2, 3]),
        "n_resamples": 50,
        "share": 0.5,
        "levels": [0.1, 0.3],
        "efforts": [1, 2],
        "n_orders": 3,
        "site": 1,
        "rounds": 2,
        "candidates": 2,
        "cap": 8,
        "least": 2,
        "kept": 4,
        "n_words": 2,
        "templates": states,
        "n_rectangles": 4,
        "top": 2,
        "n_replacements": 2,
        "n_pairs": 2,
        "per_topic": 1,
        "topics": ["a", "b"],
        "texts": list(TEXTS[:3]),
        "text": TEXTS[0],
        "table": table,
        "tables": np.stack([random_table(SITES, TOKENS, seed=k).to_arrays()["table"] for k in (1, 2)]),
        "values": np.linspace(0.1, 2.0, 12),
        "name": "values",
        "value": 0.5,
        "size": 5,
        "p": np.array([0.2, 0.8]),
        "q": np.array([0.5, 0.5]),
        "stride": 10,
        "window": 40,
        "shortest": 20,
        "threshold": 0.12,
        "steps": np.arange(0, 400, 10),
        "row": 0,
        "moves": [0, 1],
        "alpha": 0.5,
        "distance": 2.0,
        "epsilon": 0.25,
        "margin": 0.5,
        "successes": 3,
        "events": 3,
        "looks": 2,
        "baseline": 0.4,
        "own": np.array([0, 1, 2, 0]),
        "gains": rng.normal(size=(4, 3)),
        "scores": rng.random((5, 4)),
        "draws": rng.normal(size=(4, 50)),
        "samples": rng.normal(size=40),
        "band": band,
        "columns": ["n"],
        "settings": {},
        "points": rng.normal(size=(6, 2)),
        "predictor": times,
        "predicted": times,
        "duration": times,
        "trap": np.array([0, 0, 1, 1, 2, 2, 3, 3]),
        "left": np.ones(8, bool),
        "after": 4.0 * np.ones(8),
        "entries": [Entry("a/b", "x", "measured")],
        "id": "a/b",
        "shares": [0.5, 0.2],
        "vectors": LengthEmbedder().embed(TEXTS[:5]),
        "reference": LengthEmbedder().embed(TEXTS[:5]),
        "up": np.array([0.2, 0.3]),
        "down": np.array([0.3, 0.2]),
        "inside": np.array([[0.0, 0.4], [0.3, 0.0]]),
        "out": np.array([0.6, 0.7]),
        "couplings": np.array([[0, 1.0], [1.0, 0]]),
        "field": np.zeros(2),
        "log_joint": rng.normal(size=(2, 2)),
        "flags": np.array([0, 1, 1, 0], bool),
        "design": np.stack([np.ones(8), lengths], 1),
        "index": np.arange(6),
    }
    scores = torch.from_numpy(rng.normal(size=(ROWS, TOKENS)))
    weights = torch.rand(ROWS, TOKENS, dtype=torch.float64)
    special = {
        "answers.check_scores": {"scores": scores},
        "answers.check_rows": {"scores": scores},
        "draws.weights": {"scores": scores, "temperature": np.ones(ROWS)},
        "draws.probabilities": {"scores": scores, "temperature": np.ones(ROWS)},
        "draws.inverse_cdf": {"weights": weights, "uniform": torch.rand(ROWS, dtype=torch.float64)},
        "draws.uniforms": {"chains": [0, 1], "first_step": 0, "n_steps": 3},
        "draws.site_uniforms": {"chains": [0, 1], "step": 0, "size": 3},
        "draws.site_stream": {"j": 2},
        "kernels.draw_tokens": {
            "asked": (states, np.zeros(ROWS, int)),
            "temperatures": np.ones(ROWS),
            "uniform": rng.random(ROWS),
        },
        "couplings.maximal_coupling": {
            "p": weights / weights.sum(1, keepdim=True),
            "q": torch.full((ROWS, TOKENS), 1 / TOKENS, dtype=torch.float64),
            "x": torch.from_numpy(states[:, 0]),
            "y": torch.from_numpy(states[:, 1]),
            "u": torch.rand(ROWS, 3, dtype=torch.float64),
        },
        "crossover.budget": {"n": 5},
        "crossover.coalescence_bound": {"n": 5},
        "influence.contraction_bound": {"n": 5},
        "crossover.couple_passages": {"states": rng.integers(TOKENS, size=(6, SITES))},
        "crossover.coalescence_beside_mixing": {"x": states, "y": states[::-1].copy()},
        "contraction.crossing_estimate": {"values": rng.random((30, 3)) + np.array([1.5, 0.5, 0.1])},
        "influence.contraction_norms": {"matrix": rng.random((3, 3))},
        "influence.threshold": {"values": [2.0, 1.2, 0.4]},
        "influence.sufficient_temperature": {"oscillation": rng.random((3, 3))},
        "replacements.best_and_random": {"contexts": states},
        "exact.compare_laws": {},
        "exact.margin": {"basin": states[:1]},
        "exact.escape_times": {"basin": np.array([0, 1])},
        "exact.conductance": {"basin": np.array([0, 1])},
        "hitting.first_passages": {
            "distance": lambda x, y: (np.asarray(x) != np.asarray(y)).mean(-1),
            "levels": [0.3, 0.6],
            "at_once": 4,
        },
        "models.TabularModel": {"table": table.to_arrays()["table"]},
        "models.all_states": {},
        "laboratory.mean_delta": {"model": table},
        "models.RestrictedModel": {"template": states[0], "sites": [0, 1], "tokens": [0, 1]},
        "laboratory.compatible_table": {"law": np.full(TOKENS**SITES, 1.0 / TOKENS**SITES)},
        "drift.states_with_count": {"count": 1},
        "drift.scan_drift": {"tokens": [0, 1], "counts": [1, 2]},
        "retention.exit_ratio": {"steps": times},
        "retention.find_traps": {},
        "retention.time_traps": {"n_steps": 200, "temperature": 0.5},
        "controls.first_crossings": {"scores": rng.random((5, 4))},
        "controls.surviving_difference": {"values": rng.random((6, 4)), "survives": rng.random((6, 4)) > 0.2},
        "topics.top_labels": {"scores": rng.random((5, 4, 3))},
        "topics.choose_seeds": {"passages": pd.DataFrame({"id": list("abcdef"), "text": TEXTS[:6]})},
        "search.pair_influence": {
            "x": states,
            "y": np.where(np.arange(SITES) == 0, (states + 1) % TOKENS, states),
            "sites": np.zeros(ROWS, int),
        },
        "stats.bootstrap_estimate": {"groups": None, "statistic": np.mean},
        "stats.bootstrap_interval": {"groups": None, "statistic": np.mean},
        "stats.binned_intervals": {"x": rng.normal(size=60), "y": rng.normal(size=60), "groups": None, "bins": 2},
        "stats.rank_correlation": {"x": rng.normal(size=12), "y": rng.normal(size=12)},
        "stats.mean_band": {"samples": rng.normal(size=(5, 8))},
        "stats.share_estimate": {"n": 10},
        "stats.wilson_interval": {"n": 10},
        "stats.verdict": {"side": "above", "than": 0.3},
        "stats.Estimate": {"interval": (0.4, 0.6), "n": 10, "kind": "estimate"},
        "incompatibility.opposite_signs": {"x": rng.normal(size=6), "y": rng.normal(size=6)},
        "growth.slope_in_log_length": {"values": rng.random((5, 4)), "n": [4, 8, 16, 32]},
        "permutation.group_difference": {
            "values": rng.normal(size=(8, 2)),
            "groups": np.array([0, 0, 1, 1, 2, 2, 3, 3]) % 2,
            "blocks": None,
        },
        "permutation.holm": {"p": [0.01, 0.2, 0.5]},
        "censored.resampled_interval": {"draws": rng.normal(size=200), "n_units": 30},
        "resampling.percentile_interval": {"draws": rng.normal(size=200)},
        "censored.fit_log_normal": {"weights": None},
        "resampling.members": {"groups": [0, 0, 1, 1], "n_rows": 4},
        "resampling.mean_interval": {"values": rng.normal(size=12), "units": [np.arange(6), np.arange(6, 12)]},
        "resampling.bca_interval": {"statistic": lambda rows: float(np.mean(rows)), "n": 30},
        "resampling.with_width": {"low": 0.2, "high": 0.4},
        "plotting.interval_band": {"x": [0, 1, 2], "table": band},
        "plotting.interval_bars": {"x": [0, 1, 2], "table": band},
        "plotting.matrix": {"values": rng.random((3, 3)), "labels": list("abc")},
        "plotting.plain_ticks": {"axis": axes.xaxis},
        "plotting.value_ticks": {"values": [0.5, 1.0]},
        "plotting.moves_as_html": {"table": first_moves(model, trace)},
        "readings.cosine_distance": {},
        "traps.still_runs": {"vectors": LengthEmbedder().embed(TEXTS[:40]), "steps": np.arange(40) * 10},
        "traps.inside_runs": {"runs": [(0, 100)]},
        "traps.overlap_excess": {"still": rng.random((9, 4)) > 0.5, "occupied": rng.random((9, 4)) > 0.5},
        "traps.modal_state": {"first": 0, "last": 100},
        "traps.occupied_runs": {"n_states": 5, "share": 0.9},
        "traces.replay": {
            "initial": trace.initial,
            "step": trace.step,
            "places": (trace.chain, trace.site),
            "new": trace.new,
            "steps": [0, 5],
            "n_steps": 400,
        },
        "traces.first_met": {"until": lambda states: states[:, 0] == 1},
        "traces.moves_before": {"end": 10, "moves": [np.zeros((5, 0), int)]},
        "checks.check_columns": {"frame": frame, "columns": ["n"]},
        "strips.visited_drift": {},
        "strips.run_in_strip": {"n_steps": 100},
        "survival.time_until": {},
        "transition.ratio_at": {"temperature": 1.0},
        "transition.collapse": {"reduced": 1.2},
        "couplings.coalesce": {"pairs": None},
        "incompatibility.sample_rectangles": {"temperature": None, "propose": None},
        "checks.check_temperature": {"temperature": 1.0, "shape": ()},
        "checks.check_indices": {"values": [1, 2]},
        "checks.check_flags": {"values": [True, False]},
        "checks.check_labels": {"values": [1, 1, 2], "size": 3},
        "checks.check_one": {"frame": visited, "columns": ["token", "floor"]},
        "matrices.check_law": {"law": exact.stationary_law(matrix), "size": matrix.shape[0]},
        "matrices.check_stationary": {"law": exact.stationary_law(matrix)},
        "exact.mixing_time": {"law": None},
        "exact.reversibility_defect": {"law": None},
        "readings.check_unit": {"vectors": np.eye(3)},
        "readings.embed_texts": {"texts": ["one", "two"]},
        "hub.refuse_revision": {"revision": None, "kind": ""},
        "imports.imported_names": {"source": "import os", "package": ""},
        "checks.check_whole": {"values": [3, 4]},
        "contraction.crossings": {"matrices": rng.random((3, 3, 4, 4)), "temperatures": temperatures},
        "controls.crossing_excess": {"low": rng.random((4, 3)) > 0.2, "crossed": rng.random((4, 3)) > 0.5},
        "drift.summarize_drift": {"groups": np.arange(len(token_table)) % ROWS},
        "escape.observed_stays": {"timed": timed.assign(temperature=1.0)},
        "influence.check_contraction": {"n": 5, "distance": 0.5},
        "laboratory.restricted_tables": {"n_sites": 2},
        "laboratory.predicted_tables": {"n_sites": 2},
        "permutation.label_rises": {"gains": rng.normal(size=(2, 12, 3)), "own": np.arange(12) % 3},
        "plotting.panels": {"count": 2, "columns": 2},
        "plotting.reference_line": {"value": 0.5, "text": "half"},
        "paper.check.batch": {"n": 5},
        "drift.predict_count_escape": {"strip": scan.assign(token=0), "token": 0},
        "checks.check_count": {"value": 3, "least": 0},
        "checks.check_replacements": {"number": 2},
        "margins.log_exit_times": {},
        "instruments.sentiment": {},
        "incompatibility.Rectangles.take": {"rows": [0, 1]},
        "influence.Influence.first": {"n_contexts": 2, "n_replacements": 1},
        "influence.Influence.points": {"most": 100},
        "traces.Trace.states": {"steps": [0, 5]},
        "traces.Trace.visits": {"row": 0},
        "couplings.Coalescence.states": {"steps": [0, 5]},
        "paper.tables.markdown": {"table": band},
        "paper.profiles.load_profile": {"profile": "smoke", "notebook": "01_incompatibility"},
        "paper.check.find_model": {"name": "minilm-3l", "roles": ["model"]},
    }
    special |= learning_arguments(states) | diffusion_arguments(states) | topic_arguments()
    instances = {
        "Trace": trace,
        "Coalescence": pairs,
        "Rectangles": rectangles,
        "Influence": measured,
        "TabularModel": table,
        "StripRun": strip,
        "GrownSet": grown[0],
        "TrapSurvey": survey,
        "Transition": next(iter(fits.values())),
        "EntropyProduction": topics.measure_entropy_production(paths, 3, np.random.default_rng(0), n_resamples=20),
        "Entry": Entry("a/b", "x", "measured"),
        "Cost": Cost("model", 3, 10),
        "Location": Location("here", 3, ""),
        "Schedule": schedules.make_schedule(SITES, 2),
        "Paths": diffusion.noise(table, states, schedules.make_schedule(SITES, 2)),
        **topic_instances(),
    }
    return world, special, instances, model


def learning_arguments(states):
    """Special values of what is about masks, blocks and parallel decoding: two spins with one feature or three."""
    features, law, masks = pseudolikelihood.ising_features(2), np.array([[0.4, 0.1], [0.2, 0.3]]), [[0], [1]]
    joint: Any = JointModel(random_joint(SITES, TOKENS)[0])
    family = {"law": law, "features": features, "masks": masks, "weights": None, "per_sample": 1}
    two, chain = all_states(2, 2), exact.transition_matrix(random_joint(2, 2)[0], 2)
    clique = {"n_sites": 5, "size": 3, "field": 0.2, "coupling": 0.5, "block": 2, "inside": "sequential"}
    special = {
        "kernels.run": {"block": 1, "scan": "random", "inside": "visible"},
        "answers.refuse_unable_to_hide": {},
        "blocks.blocks_of_size": {"size": 2},
        "blocks.check_blocks": {"blocks": masks},
        "blocks.check_block_weights": {"weights": [0.5, 0.5], "n_blocks": 2, "size": None},
        "blocks.block_matrix": {"model": joint, "blocks": [[0, 1]], "weights": None, "inside": "sequential"},
        "blocks.block_matrices": {"model": joint, "moves": {"pair": ([[0, 1]], "hidden")}},
        "blocks.block_dynamics": {"states": two, "law": law.ravel(), "blocks": masks, "weights": None},
        "blocks.poincare_constant": {"matrix": chain, "law": exact.stationary_law(chain)},
        "blocks.hitting_times": {"target": [0]},
        "blocks.reached_within": {"target": [0]},
        "pseudolikelihood.ising_features": {"couplings": True, "fields": True},
        "pseudolikelihood.family_law": {"features": features, "theta": [0.3, 0.0, 0.1]},
        "pseudolikelihood.check_law": {"law": law},
        "pseudolikelihood.draw_counts": family | {"n": 20, "repetitions": 3},
        "pseudolikelihood.fit": {"counts": np.ones((2, 2, 4), int), "features": features, "masks": masks},
        "pseudolikelihood.best_share": family | {"first": [[0]], "second": [[0, 1]], "goal": "learning"},
        "pseudolikelihood.shared_weights": {"share": 0.5, "first": 1, "second": 2},
        "tensorization.tensorization_constant": family | {"starts": 1, "iterations": 5},
        "tensorization.excess_loss": family | {"r": law, "q": law},
        "tensorization.entropy_floor": family,
        "tensorization.finite_sample_bound": {
            "constant": 1.5, "loss": 0.2, "n": 100, "masks_each": 2.0, "log_inverse_beta": 3.0, "log_cells": 5.0,
            "delta": 0.1, "epsilon": 0.05,
        },
        "masking.clique_family": {"n_sites": 3, "coupling": 0.3},
        "masking.masking_errors": {"n_sites": 2, "coupling": 0.3, "samples": [50, 80], "repetitions": 3},
        "masking.survey_laws": {"n_laws": 2},
        "masking.two_clusters": {"size": 2, "inner": 0.5, "outer": 0.1},
        "masking.content_weights": {"n_sites": 3, "masks": [[0, 1], [1, 2]], "tilt": 0.5},
        "masking.traces_by_size": family,
        "parallel.log_clique_matrix": clique,
        "parallel.clique_hitting_time": clique,
        "parallel.clique_model": clique,
        "parallel.clique_law": clique,
        "parallel.mode_excess": clique,
        "parallel.mode_bound": {"n_sites": 5, "size": 3, "block": 4, "excess": 0.5, "field_sum": 0.3},
        "parallel.stuck_bound": {"size": 8, "excess": 1.0, "delta": 0.5},
        "parallel.stuck_tail": {"size": 8, "excess": 1.0},
        "parallel.separation": {"delta": 0.1, "budget": 100},
        "parallel.dyck_words": {"n_sites": 4, "n_types": 2},
        "parallel.validity_after_product": {"words": parallel.dyck_words(4), "size": 2},
        "stutter.diversity": {"states": states},
        "stutter.pair_stutter": {"model": joint, "exact": 2, "draws": 2, "replacements": 1},
        "stutter.solve_template": {"model": joint, "template": states[0], "sites": [0, 1], "n_words": 2},
        "unmasking.unmask": {"model": joint, "hidden": np.ones(states.shape, bool), "remask": ["uncertain"]},
    }  # fmt: skip
    names = ("information", "asymptotic_covariance", "mixing_constant")
    special |= {f"pseudolikelihood.{name}": family for name in names}
    special["pseudolikelihood.forgetting"] = family | {"weights": [0.5, 0.5]}
    return special


def diffusion_arguments(states):
    """Special values of what is about noise, reversals, energies and puzzles."""
    joint: Any = JointModel(random_joint(SITES, TOKENS)[0])
    schedule, size = schedules.make_schedule(SITES, 2), TOKENS**SITES
    law, energy = noising.triple_law(SITES, TOKENS), noising.triple_law(SITES, TOKENS, seed=1)
    paths, timed = diffusion.noise(joint.model, states, schedule), reversals.FrozenInTime(joint)
    start = reversals.timed_tables(reversals.FrozenInTime(joint.model), schedule)
    counts = reversals.path_counts(paths, schedule, TOKENS)
    arm = noising.make_arm("uniform", law, energy, SITES, schedule)
    grids = puzzles.grids(1, 3)
    box = {"rows": 2, "columns": 2}
    step = exact.transition_matrix(joint.model, SITES)
    process = {"model": joint, "timed": timed, "schedule": schedule, "law": law, "prior": energy, "top_p": 0.9}
    rates = size * (exact.transition_matrix(joint.model, SITES).toarray() - np.eye(size))
    special = {
        "schedules.Schedule": {"orders": np.array([[0, 2, 1], [1, 0, 2]]), "window": 2, "shrinks": True},
        "schedules.Schedule.site": {"t": 2},
        "schedules.Schedule.hidden": {"t": 2},
        "schedules.Paths.state": {"done": 3},
        "schedules.make_schedule": {"window": 2, "frozen": np.array([True, False, False])},
        "reversals.UnigramModel": {"log_frequencies": np.array([0.0, -1.0, -np.inf])},
        "reversals.MaskTokenModel": {"model": joint},
        "reversals.TimedTable": {"tables": start, "schedule": schedule},
        "reversals.CountModel": {"paths": paths, "schedule": schedule, "prior": timed, "alpha": 2.0},
        "reversals.check_strength": {"alpha": 2.0},
        "reversals.posterior": {"counts": counts, "start": start, "alpha": 2.0},
        "reversals.path_counts": {"paths": paths, "schedule": schedule},
        "diffusion.noise": process | {"first": 2, "steps": 3},
        "diffusion.bound": process | {"prior_log_prob": lambda states: np.zeros(len(states))},
        "evolution.site_kernel": {"model": joint},
        "evolution.kernel_of": {"law": start[0], "site": 1},
        "matrices.check_laws": {"laws": start, "name": "laws", "ndim": 3},
        "evolution.evolve": {"law": law, "kernels": [step]},
        "evolution.limit_law": {"kernels": [step], "tolerance": 1e-9, "limit": 500},
        "evolution.reverse_conditionals": {"law": law, "hidden": np.array([True, False, True])},
        "evolution.exact_reversal": {"laws": np.tile(law, (7, 1)), "schedule": schedule},
        "evolution.path_budget": {
            "laws": np.tile(law, (4, 1)), "sites": [0, 1, 2],
            "conditionals": exact.conditional_laws(joint.model, SITES),
        },
        "evolution.score_entropy": {"law": law, "prior": energy, "generator": rates, "horizon": 0.5, "nodes": 5},
        "energy.MixtureProposal": {"models": [joint, joint], "weights": np.array([0.4, 0.6])},
        "energy.PseudoLikelihood": {"model": joint, "raw": True},
        "energy.metropolis": {"joint": noising_energy(), "proposal": joint, "n_steps": 20},
        "energy.metropolis_matrix": {"log_joint": np.log(law).reshape([TOKENS] * SITES), "proposal": None,
                                     "rule": "metropolis"},
        "puzzles.solving_times": {
            "grid": puzzles.grids()[0], "empty": np.arange(16) < 3, "betas": [1.0, 2.0], "sizes": [1, 2], **box,
        },
        "puzzles.make_puzzles": {"count": 2, "empties": 4, **box},
        "puzzles.GridModel": {"states": grids, "n_tokens": 3},
        "puzzles.PottsModel": {"beta": 1.0, **box},
        "puzzles.conflicts": {"states": puzzles.grids()[:3], **box},
        "noising.triple_law": {"spread": 0.5},
        "noising.near_law": {"law": law, "epsilon": 0.5},
        "noising.divergence": {"p": law, "q": energy},
        "noising.make_arm": {"kind": "energy", "law": law, "energy": energy, "schedule": schedule},
        "noising.draw_paths": {"arm": arm, "codes": np.array([0, 3, 5])},
        "noising.generate": {"prior": energy, "tables": start, "schedule": schedule},
        "noising.learn": {"arm": arm, "start": "flat", "counts": counts, "held_out": counts},
        "noising.learning_curve": {
            "law": law, "energy": energy, "kinds": ["energy"], "rounds": [1], "samples": [10, 20], "data_sets": 2,
            "paths": 2,
        },
        "noising.learning_curves": {"n_laws": 2, "epsilon": 0.5, "spread": 0.5},
        "noising.crossing": {"gains": np.array([[1.0, -0.5], [0.5, -1.0]]), "samples": [10, 100]},
        "printed.literal_minimiser": {"law": np.array([0.2, 0.5, 0.3]), "reading": "B"},
        "printed.effective_temperature": {"law": np.array([0.2, 0.8]), "other": np.array([0.1, 0.9])},
        "printed.sharpened_model": {"model": joint, "times": 1},
        "noising.conditionals_of": {"law": law},
    }  # fmt: skip
    special |= {f"puzzles.{name}": box for name in ("check_box", "peers", "grids")}
    special |= {
        f"puzzles.{name}": {"states": grids, "size": 4} for name in ("window_matrix", "movable_share", "components")
    }
    names = ("diffusion.denoise", "evolution.noise_kernels", "evolution.denoise_kernels", "evolution.mean_bound")
    special |= {name: process for name in (*names, "reversals.timed_tables", "reversals.ask_timed")}
    asked = ("reversals.ask_timed", "reversals.timed_question")
    special |= {name: process | {"states": states, "t": 2} for name in asked}
    special["unmasking.nucleus"] = {"law": torch.rand(ROWS, TOKENS, dtype=torch.float64), "top_p": 0.5}
    special["unmasking.check_share"] = {"top_p": 0.5}
    return special


def noising_energy():
    """An energy of states: minus the sum of their tokens."""

    class Energy:
        n_tokens = TOKENS

        def log_prob(self, states):
            return -np.asarray(states).sum(1).astype(float)

    return Energy()


def topic_instances():
    """Small systems of companion 07: generators, a guided tree, oracles for brackets, and a one-layer model."""
    matrix = np.random.default_rng(0).normal(size=(7, 7))
    reference, reward = guided_trees.uniform_strings(3), guided_trees.constraint("parity", 3)
    return {
        "DirichletTopics": topic_models.DirichletTopics(3, 2, 0.5),
        "PresentTopics": topic_models.PresentTopics(3, 2, 2),
        "Landscape": topic_optima.Landscape(4, 3, 2),
        "GuidedTree": guided_trees.guided_chain(reference, guided_trees.exact_values(reference, reward)),
        "Brackets": bracket_rejection.Brackets(6),
        "ConfusedOracle": bracket_rejection.ConfusedOracle(bracket_rejection.Brackets(6), rate=0.5),
        "TrainedTopics": topic_training.TrainedTopics(3, 2, matrix, matrix.T, matrix[0]),
    }


def topic_arguments():
    """Special values of what is about topic models, guided trees and brackets."""
    rng, found = np.random.default_rng(0), topic_instances()
    sizes = {"n_topics": 3, "n_words": 2}
    counts, documents, square = (
        np.array([[2, 1, 1], [0, 4, 0]]),
        np.array([[0, 1, 5, 2], [3, 3, 4, 0]]),
        rng.random((7, 7)),
    )
    reference, reward = guided_trees.uniform_strings(3), guided_trees.constraint("parity", 3)
    values = guided_trees.exact_values(reference, reward)
    tree = {"reference": reference, "reward": reward, "values": values, "epsilon": 0.3}
    opens, closes = bracket_attention.bracket_embeddings("one-hot", 2, 2)
    layer = {"opens": opens, "closes": closes, "key_query": rng.normal(size=(8, 8))}
    brackets = bracket_attention.draw_brackets(2, 2, 9, rng)
    asked = {"states": documents, "sites": np.array([0, 2]), "hidden": None, "counts": counts, "length": 4}
    drawn = {"n_documents": 3, "length": 4, "topics": 3}
    trees = ("exact_values", "extendable", "disturbed", "guided_chain", "action_law")
    special = {f"guided_trees.{name}": tree for name in trees} | {
        "guided_trees.action_cost": tree | {"values": guided_trees.extendable(reference, reward)},
        "guided_trees.survey_guides": {"name": "parity", "length": 3, "epsilons": [0.1, 0.5], "n_guides": 2},
        "guided_trees.uniform_strings": {"length": 3},
        "guided_trees.constraint": {"name": "parity", "length": 3},
        "guided_trees.simulate_costs": {"length": 3, "runs": 5},
        "guided_trees.search_queries": {"length": 3, "runs": 5},
        "guided_trees.GuidedTree.walk": {"runs": 5},
        "guided_trees.GuidedTree.leaf_law": {"weights": None},
        "topic_models.check_within": {"value": 0.5, "least": 0.0, "most": 1.0},
        "topic_models.DirichletTopics": sizes | {"alpha": 0.5},
        "topic_models.PresentTopics": sizes | {"n_present": 2},
        "topic_models.count_states": {"n_topics": 3, "length": 4},
        "topic_models.count_chain": {"model": found["DirichletTopics"], "length": 4, "most": None},
        "topic_models.topic_counts": sizes | asked,
        "topic_models.diversity": {"counts": counts},
        "topic_models.DirichletTopics.draw": drawn,
        "topic_models.PresentTopics.draw": drawn,
        "topic_models.DirichletTopics.spectral_gap": {"length": 4},
        "topic_models.DirichletTopics.fixation_rate": {"length": 4},
        "topic_optima.Masking": {"chosen": 0.15, "kept": 0.1, "random": 0.1},
        "topic_optima.block_entries": sizes,
        "topic_optima.block_matrix": sizes,
        "topic_optima.diagonal_matrix": sizes,
        "topic_optima.optimum_defect": {"matrix": square, "n_topics": 3},
        "topic_optima.document_frequencies": sizes | {"n_present": 2},
        "topic_optima.prediction_loss": {"matrix": square, "seen": rng.random((5, 7)), "law": rng.random((5, 7))},
        "topic_optima.attention_bounds": {"n_words": 10},
        "topic_optima.Landscape": {"n_topics": 4, "n_words": 3, "n_present": 2, "attend_mask": False},
        "topic_optima.Landscape.block": {"alpha": [0.5, 2.0], "beta": [1.0, 3.0]},
        "topic_optima.Landscape.diagonal": {"alpha": [0.5, 2.0], "beta": [1.0, 3.0]},
        "topic_training.TrainedTopics": sizes | {"logits": square, "values": square, "bias": square[0]},
        "topic_training.TrainedTopics.scores": asked,
        "topic_training.train_topics": {
            "generator": found["DirichletTopics"], "trains": "attention", "loss": "squared", "optimizer": "sgd",
            "rate": 0.1, "steps": 2, "batch": 2, "lengths": (4, 5), "initial": 0.1, "penalty": 0.0,
        },
        "topic_training.block_contrast": {"matrix": square, "n_topics": 3},
        "topic_training.attention_by_kind": {"model": found["TrainedTopics"], "documents": documents},
        "bracket_rejection.check_prefix": {"prefix": [0, 2, 3]},
        "bracket_rejection.open_brackets": {"prefix": [0, 2, 3]},
        "bracket_rejection.Brackets": {"length": 6, "square": 0.2, "opening": 0.5},
        "bracket_rejection.Brackets.draw": {"length": 4},
        "bracket_rejection.ConfusedOracle": {"rate": 0.5, "kind": "bracket", "window": 5, "seed": 0},
        "bracket_rejection.complete": {
            "oracle": found["ConfusedOracle"], "prompt": [0, 2], "quota": 2, "stride": 1, "verifier_error": 0.1,
            "regenerate": "argmax", "erase_first": 1,
        },
        "bracket_rejection.draw_prompts": {"process": found["Brackets"], "n_prompts": 3, "lengths": (2, 4)},
        "bracket_rejection.error_prefixes": {"oracle": found["ConfusedOracle"], "prompts": [[0], [2, 3]]},
        "bracket_rejection.measure_completions": {
            "oracle": found["ConfusedOracle"], "prompts": [[0], [2, 3]], "settings": [{"quota": 1}, {}],
        },
        "bracket_attention.bracket_embeddings": {"kind": "angles", "n_types": 2, "depth": 3},
        "bracket_attention.balance_defect": layer,
        "bracket_attention.balanced_part": layer,
        "bracket_attention.draw_brackets": {"n_types": 2, "depth": 2, "length": 9},
        "bracket_attention.read_stack": layer | {"tokens": brackets[: np.flatnonzero(brackets[:, 0] == 0)[-1] + 1]},
        "bracket_attention.stack_errors": {
            "kind": "angles", "attention": "random", "lengths": [4, 6], "n_types": 2, "depth": 2, "n_prefixes": 2,
        },
    }  # fmt: skip
    names = ("law", "can_end_well")
    special |= {
        f"bracket_rejection.{kind}.{name}": {"prefix": [0, 2]}
        for kind in ("Brackets", "ConfusedOracle")
        for name in names
    }
    return special


def couplings_of(rng):
    """Coupled pairs of two lengths at five temperatures: few, and enough for a fit."""
    return {
        n: crossover.couple_passages(
            random_table(n, TOKENS, seed=n),
            rng.integers(TOKENS, size=(16, n)),
            [0.3, 0.6, 1.0, 2.0, 4.0],
            n_pairs=8,
            n_steps=crossover.budget(n, 6.0),
            seed=1,
        )
        for n in (3, 4)
    }


def first_moves(model, trace):
    """The first moves of a chain in words."""
    return moves_in_words(model, trace, 0, range(3))
