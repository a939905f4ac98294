r"""The training target that Appendix A of Kathuria and Kumar (2026) prints, as we read it: what minimises it.

The printed loss has no data in it: what it trains towards is the frozen conditional, or that at half its temperature.
"""

from typing import Any

import numpy as np
import scipy.optimize
from numpy.typing import ArrayLike

from glauber_lib.checks import check_count
from glauber_lib.exact import conditional_laws
from glauber_lib.matrices import check_law
from glauber_lib.models import ConditionalModel, TabularModel, all_states, check_system
from glauber_lib.noising import LARGE


def literal_minimiser(law: ArrayLike, reading: str) -> np.ndarray:
    r"""The conditional P that minimises the printed loss, for a frozen conditional :math:`\hat T`, float64[V].

    As we read Appendix A of Kathuria and Kumar (2026), :math:`Q s` is the model's probability P(y) of the other token,
    :math:`r = \hat T(y) / \hat T(x)`, and s is P over the frozen model's prediction. In reading A that is
    :math:`\hat T(x)`, and :math:`P = \hat T`. In reading B it is :math:`\hat T(y)`, and
    :math:`P(y) = (V - 1) \hat T(y)^2 / (1 - \hat T(y) + \mu)`, nearly :math:`\hat T^2` normalised.

    Parameters
    ----------
    law : array_like, float64[V]
        Positive.
    reading : {"A", "B"}

    Raises
    ------
    ValueError
        For another reading, or what is no positive law of two tokens or more.
    """
    frozen = check_law(law)
    if reading not in ("A", "B") or len(frozen) < 2 or not (frozen > 0).all():
        raise ValueError(f"need reading 'A' or 'B' and a positive law of two tokens, got {reading!r}, {len(frozen)}")
    if reading == "A":
        return frozen.copy()
    square, gap = (len(frozen) - 1) * frozen**2, 1 - frozen
    excess = lambda mu: (square / (gap + mu)).sum() - 1  # noqa: E731
    low = -gap.min()
    step = square[gap.argmin()]  # at low + step the largest term alone is one
    mu = scipy.optimize.brentq(excess, low + step, low + step + len(frozen), xtol=1e-15)
    found = square / (gap + mu)
    return found / found.sum()


def effective_temperature(law: ArrayLike, other: ArrayLike) -> float:
    """The temperature at which a law comes nearest to another one, by its divergence from it.

    ValueError unless both are positive laws of the same tokens, and the first is not flat.
    """
    law = check_law(law)
    other = check_law(other, len(law), "other")
    if not ((law > 0).all() and (other > 0).all() and np.ptp(np.log(law)) > 1e-9):
        raise ValueError("need two positive laws of the same tokens, of which the first is not flat")
    log = np.log(law)
    log = log - log.max()
    weight = lambda power: np.exp(power * log)  # noqa: E731
    slope = lambda power: (weight(power) @ log) / weight(power).sum() - other @ log  # noqa: E731  # of a convex loss
    low, high = 1e-6, 1e3
    if slope(low) >= 0 or slope(high) <= 0:
        return float(1 / (low if slope(low) >= 0 else high))
    found: Any = scipy.optimize.brentq(slope, low, high, xtol=1e-12)
    return float(1 / found)


def sharpened_model(model: ConditionalModel, n_sites: int, times: int) -> TabularModel:
    """Conditionals after so many renewals of the frozen copy by reading B; ValueError for no small system."""
    check_system(model.n_tokens, n_sites, LARGE)
    n, times = int(n_sites), check_count(times, "times", 0, 100)
    own, shape = all_states(model.n_tokens, n), (model.n_tokens,) * n
    rows, table = np.arange(len(own)), []
    for site, law in enumerate(conditional_laws(model, n)):
        alone = np.flatnonzero(own[:, site] == 0)  # a row does not depend on the site's own token
        sharp = law[alone]
        for _ in range(times):
            sharp = np.stack([literal_minimiser(np.maximum(row, 1e-300), "B") for row in sharp])
        law = sharp[np.searchsorted(alone, rows - own[:, site] * model.n_tokens ** (n - 1 - site))]
        table.append(np.log(law[rows, own[:, site]]).reshape(shape))
    return TabularModel(np.stack(table))
