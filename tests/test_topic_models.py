"""Topic models: conditionals against listed joint laws, gaps against spectra, escape against simulation."""

import numpy as np
import pytest
import scipy.special

from glauber_lib import escape, exact, incompatibility, margins
from glauber_lib.chains import run_chains
from glauber_lib.models import TabularModel, all_states
from glauber_lib.topic_models import (
    DirichletTopics,
    PresentTopics,
    count_chain,
    count_states,
    diversity,
    topic_counts,
)


def dirichlet_law(model, n):
    """Log probability of every document of n tokens, from the Dirichlet integral."""
    counts = topic_counts(all_states(model.n_tokens, n), model.n_topics, model.n_words)
    log = scipy.special.gammaln(counts + model.alpha).sum(1) - n * np.log(model.n_words)
    return log.reshape((model.n_tokens,) * n)


def present_law(model, n):
    """Log probability of every document of n tokens, by listing the sets of topics."""
    counts = topic_counts(all_states(model.n_tokens, n), model.n_topics, model.n_words)
    seen = (counts > 0).sum(1)
    sets = scipy.special.comb(model.n_topics - seen, np.maximum(model.n_present - seen, 0)) * (seen <= model.n_present)
    with np.errstate(divide="ignore"):
        return np.log(sets).reshape((model.n_tokens,) * n)


# Conditionals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hide", [False, True])
@pytest.mark.parametrize(
    ("model", "law"),
    [(DirichletTopics(3, 2, 0.3), dirichlet_law), (DirichletTopics(2, 1, 2.0), dirichlet_law),
     (PresentTopics(3, 2, 2), present_law), (PresentTopics(3, 1, 3), present_law),
     (PresentTopics(4, 1, 1), present_law)],
)  # fmt: skip
def test_conditionals_are_those_of_the_listed_joint(model, law, hide):
    n, rng = 4, np.random.default_rng(0)
    log = law(model, n)
    states = all_states(model.n_tokens, n)
    states = states[np.isfinite(log).ravel()]
    states = states[rng.choice(len(states), 40)] if len(states) > 40 else states
    sites = rng.integers(n, size=len(states))
    hidden = rng.random(states.shape) < 0.3 if hide else None
    found = model.scores(states, sites, hidden).softmax(1)
    expected = TabularModel.from_joint(log).scores(states, sites, hidden).softmax(1)
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_documents_are_of_the_law_that_the_conditionals_are_of():
    for model, law in ((DirichletTopics(2, 2, 0.5), dirichlet_law), (PresentTopics(3, 1, 2), present_law)):
        log = law(model, 3).ravel()
        counts = np.bincount(model.draw(10_000, 3, 1) @ model.n_tokens ** np.arange(2, -1, -1), minlength=log.size)
        expected = np.exp(log - scipy.special.logsumexp(log)) * 10_000
        z = (counts - expected) / np.sqrt(np.maximum(expected, 1))
        assert np.abs(z).max() < 4.5


def test_rectangles_vanish_on_the_exact_conditionals():
    for model, top in ((DirichletTopics(10, 10, 0.1), 50), (PresentTopics(10, 10, 4), 30)):
        rectangles = incompatibility.sample_rectangles(model, model.draw(30, 60), 100, top=top)
        assert incompatibility.measure_rectangles(model, rectangles).delta.max() < 1e-12


# Spectra -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "topics", "alpha"), [(4, 2, 0.5), (6, 3, 0.1), (5, 4, 1.0), (10, 2, 0.05)])
def test_the_gap_is_that_of_a_moran_model_with_mutation(n, topics, alpha):
    model = DirichletTopics(topics, 1, alpha)
    _, matrix = count_chain(model, n)
    assert exact.spectral_gap(matrix) == pytest.approx(model.spectral_gap(n), rel=1e-9)
    rates = np.sort(1 - np.linalg.eigvals(matrix.toarray()).real)
    assert np.abs(rates - model.fixation_rate(n)).min() < 1e-9


def test_words_within_topics_leave_the_gap_as_it_is():
    model = DirichletTopics(2, 2, 0.3)
    assert exact.spectral_gap(exact.transition_matrix(model, 4)) == pytest.approx(model.spectral_gap(4), rel=1e-9)
    assert 1 / DirichletTopics(10, 10, 0.1).spectral_gap(125) == pytest.approx(15_625)  # of the thesis's setting
    assert DirichletTopics(2, 2, 0.0).spectral_gap(4) == DirichletTopics(2, 2, 1.0).spectral_gap(1) * 0 == 0


def test_the_counts_lump_the_chain_of_words():
    model, n = PresentTopics(3, 2, 2), 3
    counts, matrix = count_chain(model, n, 2)
    whole, states = exact.transition_matrix(model, n), all_states(6, n)
    own = topic_counts(states, 3, 2)
    for start in range(0, len(states), 17):
        if (own[start] > 0).sum() <= 2:
            row = whole[start].toarray().ravel()
            lumped = [row[(own == c).all(1)].sum() for c in counts]
            np.testing.assert_allclose(lumped, matrix[(counts == own[start]).all(1)].toarray().ravel(), atol=1e-12)
    with pytest.raises(ValueError, match="more than 1 topics"):
        count_chain(model, n, 1)


def test_the_plug_in_loses_diversity_at_the_exact_rate():
    model, n = DirichletTopics(3, 2, 0.0), 8
    assert np.isinf(model.scores([[0, 0, 1, 1]], [0]).numpy()).sum() == 4
    counts, matrix = count_chain(model, n)
    expected = (1 - model.fixation_rate(n)) * diversity(counts)
    np.testing.assert_allclose(matrix @ diversity(counts), expected, atol=1e-12)
    trace = run_chains(model, np.tile([0, 0, 0, 2, 2, 2, 4, 4], (30, 1)), n_steps=1000, seed=1)
    assert (diversity(topic_counts(trace.final, 3, 2)) == 0).mean() > 0.9


# Basins of the generator with so many topics -------------------------------------------------------------------------


def test_the_gap_of_two_present_topics_halves_with_every_token():
    for n in range(4, 17, 2):
        _, matrix = count_chain(PresentTopics(3, 1, 2), n, 2)
        assert 1.1 < exact.spectral_gap(matrix) * 2**n < 1.3


def test_the_escape_from_a_pair_of_topics_is_predicted_and_has_no_margin():
    model, n = PresentTopics(3, 1, 2), 6
    basin = all_states(2, n)
    counts, matrix = count_chain(model, n, 2)
    inside = np.flatnonzero(counts[:, 2] == 0)
    lumped = dict(zip(counts[inside, 0].tolist(), exact.escape_times(matrix, inside), strict=True))
    by_words = margins.basin_escape_times(model, basin, 1.0)
    np.testing.assert_allclose(by_words, [lumped[n - k] for k in basin.sum(1)], rtol=1e-9)
    start = np.arange(n) % 2
    timed = escape.time_escapes(model, start, basin, 1.0, repeats=300, n_steps=5_000, seed=2)
    assert timed.left.all() and timed.exposure.mean() == pytest.approx(lumped[n // 2], rel=0.2)
    assert exact.margin(model, basin) == pytest.approx(-np.log(2))  # no positive one: the basin is entropic


def test_one_topic_is_frozen():
    _, matrix = count_chain(PresentTopics(4, 1, 1), 5, 1)
    assert (matrix.toarray() == np.eye(4)).all()


# Input ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [lambda: DirichletTopics(0, 1, 0.1), lambda: DirichletTopics(2, 1, np.nan), lambda: PresentTopics(2, 1, 3),
     lambda: DirichletTopics(2, 1, 0.0).draw(3, 3), lambda: count_states(10, 100), lambda: diversity([[1, 0]]),
     lambda: PresentTopics(2, 2, 1).scores([[0, 4]], [0]), lambda: DirichletTopics(2, 1, 0.1).topic_law([[1, 2, 3]])],
)  # fmt: skip
def test_what_is_no_topic_model_or_document_is_refused(call):
    with pytest.raises(ValueError, match=r"must|need|share"):
        call()
