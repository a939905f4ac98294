r"""Log-normal regression of right-censored times, for many resamples at once.

.. math:: \log T_k = \sum_j \beta_j X_{kj} + \sigma \varepsilon_k,

with normal :math:`\varepsilon`: an accelerated-failure-time model. In :math:`\beta/\sigma` and :math:`1/\sigma` the
log-likelihood is concave (Olsen, 1978), so that Newton's method finds the one maximum.
"""

from dataclasses import dataclass

import numpy as np
import scipy.stats
from numpy.typing import ArrayLike
from scipy.special import log_ndtr

from glauber_lib.checks import check_count, check_flags, check_labels, check_numbers, check_seed
from glauber_lib.resampling import check_tail, scale_of, with_width
from glauber_lib.stats import Interval

_LOG_ROOT = 0.5 * np.log(2 * np.pi)


@dataclass(frozen=True)
class LogNormalFit:
    """Fits of a log-normal regression, one for each row of weights.

    Attributes
    ----------
    coefficients : ndarray, float64[R, P]
        nan where the seen times do not determine them: there are none, their rows of the design have less than full
        rank, or they lie on a line.
    spread : ndarray, float64[R]
        Standard deviation of log T about the line.
    log_likelihood : ndarray, float64[R]
        Of log T.
    """

    coefficients: np.ndarray
    spread: np.ndarray
    log_likelihood: np.ndarray


def fit_log_normal(
    time: ArrayLike, observed: ArrayLike, design: ArrayLike, weights: ArrayLike | None = None
) -> LogNormalFit:
    """Maximum-likelihood fits of a log-normal regression; nan where the seen times determine none.

    Parameters
    ----------
    time : array_like, float[K]
        Time of the event, or of the end of observation; positive.
    observed : array_like, bool[K]
        Whether the event was seen.
    design : array_like, float[K, P]
    weights : array_like, float[R, K], optional
        How often each time counts in each of R fits; default: one fit in which each counts once.

    Raises
    ------
    ValueError
        For times that are not positive and finite, events that are neither true nor false, a design or weights that are
        no numbers, or arguments of different lengths.
    """
    time, observed = check_numbers(time, "times"), check_flags(observed, "observed")
    design = np.ascontiguousarray(check_numbers(design, "design"))  # sums of another order would round otherwise
    weights = np.ones((1, len(time))) if weights is None else check_numbers(weights, "weights")
    if not (time > 0).all() or not np.isfinite(time).all():
        raise ValueError("times must be positive and finite; give a censored one the end of its observation")
    if observed.shape != time.shape or design.shape[:1] != time.shape or weights.shape[1:] != time.shape:
        raise ValueError(
            f"need as many events and rows of design and columns of weights as times, got {len(time)}, "
            f"{observed.shape}, {design.shape}, {weights.shape}"
        )
    if not np.isfinite(design).all() or not np.isfinite(weights).all() or (weights < 0).any():
        raise ValueError("design and weights must be finite, and weights not negative")
    if design.ndim != 2:
        raise ValueError(f"design must have shape (times, coefficients), got {design.shape}")
    scale = scale_of(design, axis=0, ordinary=1e4)
    design, one = design / scale, np.ones(len(time))
    constant = np.allclose(design @ np.linalg.lstsq(design, one, rcond=None)[0], one, rtol=0, atol=1e-6)
    center = np.log(time).mean() if constant else 0.0  # a shift of log T is one of the coefficients then, or is none
    frame = np.column_stack([-design, np.log(time) - center])  # z = frame @ (beta / sigma, 1 / sigma)
    start = np.linalg.lstsq(design, frame[:, -1], rcond=None)[0]
    spread = max(float(np.std(frame[:, -1] - design @ start)), 0.05)
    found = np.tile(np.append(start, 1.0) / spread, (len(weights), 1))
    found, value, settled = _climb(frame, observed, weights, found)
    coefficients = np.where(settled[:, None], found[:, :-1] / found[:, -1:], np.nan)
    shift = np.linalg.lstsq(design, np.full(len(time), center), rcond=None)[0]
    return LogNormalFit(
        (coefficients + shift) / scale, np.where(settled, 1 / found[:, -1], np.nan), np.where(settled, value, np.nan)
    )


def _likelihood(frame, observed, weights, found):
    """Log-likelihoods float64[R], and the standardised times [R, K] that they are of."""
    z = found @ frame.T
    with np.errstate(invalid="ignore", divide="ignore"):
        each = np.where(observed, np.log(found[:, -1:]) - 0.5 * z**2 - _LOG_ROOT, log_ndtr(-z))
    return (weights * each).sum(1), z


def _climb(frame, observed, weights, found, *, rounds=60, tolerance=1e-9):
    """Newton's method with halved steps: where it ends, the log-likelihood, whether that is a maximum."""
    squares = (frame[:, :, None] * frame[:, None, :]).reshape(len(frame), -1)
    seen, size = (weights * observed).sum(1), frame.shape[1]
    value, z = _likelihood(frame, observed, weights, found)
    gram = ((weights * observed) > 0).astype(float) @ squares  # of the seen times' rows of the design
    rank = np.linalg.matrix_rank(gram.reshape(-1, size, size)[:, :-1, :-1], hermitian=True)
    open_, settled = rank == size - 1, np.zeros(len(found), bool)
    for _ in range(rounds):
        rows = np.flatnonzero(open_)
        if not len(rows):
            break
        u, w = z[rows], weights[rows]
        hazard = np.exp(-0.5 * u**2 - _LOG_ROOT - log_ndtr(-u))
        slope = (w * np.where(observed, -u, -hazard)) @ frame
        curve = ((w * np.where(observed, 1.0, hazard * (hazard - u))) @ squares).reshape(-1, size, size)
        theta = found[rows, -1]
        slope[:, -1] += seen[rows] / theta
        curve[:, -1, -1] += seen[rows] / theta**2
        curve += 1e-12 * np.trace(curve, axis1=1, axis2=2)[:, None, None] * np.eye(size)
        step = np.linalg.solve(curve, slope[:, :, None])[:, :, 0]
        gain = (step * slope).sum(1)  # twice what a parabola promises
        done = gain < tolerance
        settled[rows[done]], open_[rows[done]] = True, False
        length = np.ones(len(rows))
        waiting = ~done
        for _ in range(40):
            at = np.flatnonzero(waiting)
            if not len(at):
                break
            trial = found[rows[at]] + length[at, None] * step[at]
            higher, u = _likelihood(frame, observed, weights[rows[at]], trial)
            better = (trial[:, -1] > 0) & (higher > value[rows[at]])
            to = rows[at[better]]
            found[to], value[to], z[to] = trial[better], higher[better], u[better]
            waiting[at[better]] = False
            length[at] /= 2
        settled[rows[waiting]], open_[rows[waiting]] = gain[waiting] < 1e-6, False  # rounding lets it climb no further
        open_ &= found[:, -1] < 1e6  # the seen times lie on a line
    return found, value, settled


def group_weights(groups: ArrayLike, n_resamples: int, seed: int = 0) -> np.ndarray:
    """How often each row counts when whole groups are drawn with replacement, float64[R, K].

    Parameters
    ----------
    groups : array_like, [K]
        What was drawn independently: the passage, or the pair, that each row belongs to.
    n_resamples : int
    seed : int

    Raises
    ------
    ValueError
        Without a row, or where one has no label.
    """
    names, group = np.unique(check_labels(groups, "groups"), return_inverse=True)
    if not len(names):
        raise ValueError("need a group to draw, got none")
    rng, n_resamples = np.random.default_rng(check_seed(seed)), check_count(n_resamples, "n_resamples", least=1)
    counts = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), size=n_resamples)
    return counts[:, group].astype(float)


def resampled_interval(value: float, draws: ArrayLike, n_units: int, tail: float = 0.025) -> Interval:
    """Interval of an estimate from its bootstrap: Student's quantile times the standard deviation of the draws.

    A share `tail` lies beyond either end; by default it is the 95% interval.

    With few units the percentile interval is too narrow; Student's quantile of ``n_units - 1`` degrees makes up for
    that. Both ends are nan if the value, or more than a twentieth of the draws, is not finite, and of draws that
    are all one. ValueError for a `tail` that is not between 0 and 0.5, or a table of draws.
    """
    draws, value, tail = (
        check_numbers(draws, "draws", listed=True),
        float(check_numbers(value, "value")),
        check_tail(tail),
    )
    found = draws[np.isfinite(draws)]
    if not np.isfinite(value) or len(found) < 0.95 * len(draws) or len(found) < 2 or n_units < 2:
        return np.nan, np.nan
    scale = float(scale_of(found))
    half = scipy.stats.t.ppf(1 - tail, n_units - 1) * (found / scale).std(ddof=1) * scale
    return with_width(value - half, value + half)
