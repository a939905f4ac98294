"""Experiments on masks: what they return is what the functions below them give, and the theorems hold in them."""

import numpy as np
import pytest

from glauber_lib import masking
from glauber_lib import pseudolikelihood as learning
from glauber_lib.blocks import blocks_of_size


def test_errors_are_those_of_fits_and_do_not_depend_on_the_sizes_beside_them():
    table = masking.masking_errors(3, 0.3, [200, 2_000], 30, seed=4)
    assert len(table) == 3 * 2 * 30 and table.groupby(["k", "n"]).repetition.nunique().eq(30).all()
    alone = masking.masking_errors(3, 0.3, [2_000], 30, seed=4)
    np.testing.assert_array_equal(table[table.n == 2_000].error, alone.error)
    features, _, law = masking.clique_family(3, 0.3)
    limit = masking.traces_by_size(law, features)
    for k, rows in alone[alone.converged].groupby("k"):
        assert abs(2_000 * rows.error.mean() - limit[k - 1]) < 5 * 2_000 * rows.error.std() / np.sqrt(30)


def test_the_theorems_hold_on_a_survey_of_laws():
    table = masking.survey_laws(30, seed=1)
    assert set(table.masks) == {"uniform", "weighted", "adaptive"} and set(table.n_sites) == {3, 4, 5}
    assert table.slack.min() > -1e-9 and table.order.min() > -1e-9 and table.gain.min() > 1 - 1e-9
    assert (table.price >= 1 - 1e-9).all() and (table.price <= table.constant * (1 + 1e-9)).all()


def test_two_clusters_and_weights_by_content():
    features, law = masking.two_clusters(2, 0.6, 0.05)
    assert features.shape == (2, 2, 2, 2, 10)
    assert law[0, 0, 1, 1] > law[0, 1, 0, 1]
    masks = blocks_of_size(4, 2)
    np.testing.assert_allclose(masking.content_weights(4, masks, 0.0), 1 / 6)
    weights = masking.content_weights(4, masks, 1.0)
    assert weights[0b0011, 0] / weights[0b0011, 1] == pytest.approx(np.exp(2))
    found = learning.forgetting(law, features, masks, masking.content_weights(4, masks, 0.0))
    np.testing.assert_allclose(found[[0, 5]], 0.6, atol=1e-5)
    with pytest.raises(ValueError, match="masks of two sites"):
        masking.content_weights(4, blocks_of_size(4, 3), 1.0)
    for odd in ([(0, -1)], [(0, 4)], [(1, 1)]):
        with pytest.raises(ValueError, match="sites"):
            masking.content_weights(4, odd, 1.0)
    with pytest.raises(ValueError, match="finite"):
        masking.clique_family(4, np.inf)
    with pytest.raises(ValueError, match="samples must be"):
        masking.masking_errors(3, 0.1, 5, 3)
