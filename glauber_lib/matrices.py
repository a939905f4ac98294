"""Checks of transition matrices of finite chains and of laws of their states."""

from typing import Any

import numpy as np
import numpy.typing as npt

from glauber_lib.checks import check_numbers


def check_law(law: npt.ArrayLike, size: int | None = None, name: str = "law") -> np.ndarray:
    """A law as float64[size]; ValueError unless it is that many numbers >= 0, by default any, whose sum is one."""
    law = check_numbers(law, name)
    fits = law.ndim == 1 and len(law) == (len(law) if size is None else size)
    if not fits or not (law >= 0).all() or not abs(law.sum() - 1) < 1e-6:
        raise ValueError(
            f"{name} must be {'' if size is None else f'{size} '}probabilities, got shape {law.shape}, sum "
            f"{law.sum():.6g}, least {law.min(initial=np.inf):.3g}"
        )
    return law


def check_laws(laws: npt.ArrayLike, name: str, ndim: int) -> np.ndarray:
    """Laws float64[..., V] along the last of `ndim` axes; ValueError unless each is numbers >= 0 whose sum is one."""
    laws = check_numbers(laws, name)
    if laws.ndim != ndim or not laws.size or not ((laws >= 0).all() and np.allclose(laws.sum(-1), 1, atol=1e-6)):
        raise ValueError(f"{name} must hold probabilities that sum to one along the last of {ndim} axes, got shape "
                         f"{laws.shape}")  # fmt: skip
    return laws


def check_steps(matrix: Any) -> int:
    """How many states a sparse matrix has; ValueError unless each row holds the probabilities of a step."""
    sums, least = np.asarray(matrix.sum(1)).ravel(), matrix.min()
    if len(set(matrix.shape)) > 1 or not least >= 0 or not (np.abs(sums - 1) < 1e-9).all():  # of nan it is not
        raise ValueError(
            "each row of the matrix must hold the probabilities of a step and sum to one, got shape "
            f"{matrix.shape}, sums {sums.min():g} to {sums.max():g}, least {least:g}; transpose one whose columns do"
        )
    return matrix.shape[0]


def check_stationary(law: npt.ArrayLike, matrix: Any) -> np.ndarray:
    """A law that a step of the sparse matrix leaves as it is, float64[S]; ValueError for any other, or no matrix."""
    law = check_law(law, check_steps(matrix))
    if not (apart := np.abs(matrix.T @ law - law).sum()) < 1e-9:
        raise ValueError(f"law must be the stationary one of the matrix, got one that a step changes by {apart:.3g}")
    return law
