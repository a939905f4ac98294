"""Checks of transition matrices of finite chains and of laws of their states."""

from typing import Any

import numpy as np
import numpy.typing as npt

from glauber_lib.checks import check_numbers


def check_law(law: npt.ArrayLike, size: int) -> np.ndarray:
    """A law as float64[size]; ValueError unless it is that many numbers >= 0 whose sum is one."""
    law = check_numbers(law, "law")
    if law.shape != (size,) or not (law >= 0).all() or not abs(law.sum() - 1) < 1e-6:
        raise ValueError(
            f"law must be {size} probabilities, got shape {law.shape}, sum {law.sum():.6g}, least "
            f"{law.min(initial=np.inf):.3g}"
        )
    return law


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
