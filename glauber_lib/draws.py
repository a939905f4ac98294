r"""Random draws: counter-based uniforms and inverse distribution functions.

Step `t` of chain `k` uses the numbers that Philox with key (seed, k) gives at counter `t`. A path is therefore a
function of seed, chain and start; it depends neither on the batch it is computed in nor on where it was resumed.
"""

import math
import operator
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch


def check_precision(dtype: torch.dtype | np.dtype, what: str) -> None:
    """Whether numbers of a type of torch or numpy are as precise as everything here takes for granted.

    Raises
    ------
    ValueError
        Unless it is float32 or float64; `what` says whose numbers they are.
    """
    kind = str(dtype).removeprefix("torch.")
    if kind not in ("float32", "float64"):
        raise ValueError(
            f"{what} must be float32 or float64, got {kind}: load the model in float32, convert it with .float(), and "
            "compute outside torch.autocast"
        )


def chunks(index: np.ndarray, size: int) -> list[np.ndarray]:
    """Consecutive pieces of at most `size` elements of the array `index`; an empty array has none."""
    return [index[k : k + size] for k in range(0, len(index), size)]


def uniforms(
    seed: int, chains: Sequence[int] | np.ndarray, first_step: int, n_steps: int, *, stream: int = 0
) -> np.ndarray:
    """Uniform numbers float64[B, n_steps, 4] in [0, 1): four a step for each chain.

    Parameters
    ----------
    seed : int
        Non-negative; with the chain number it is the key of the generator.
    chains : sequence of int
        Numbers of the B chains.
    first_step, n_steps : int
        The steps ``first_step .. first_step + n_steps - 1``.
    stream : int
        Numbers of different streams are independent.

    Returns
    -------
    ndarray, float64[B, n_steps, 4]
        Philox4x64 (Salmon et al., 2011) with key (seed, chain) at counter step + 2**128 stream.

    Raises
    ------
    TypeError
        For a number that is no integer: cut, it would give the numbers of another.
    ValueError
        For a negative one, or one of more than 64 bits.
    """
    keys = [(operator.index(seed), operator.index(chain)) for chain in chains]
    counter = operator.index(first_step) + (operator.index(stream) << 128)
    if not all(0 <= number < 2**64 for key in keys for number in key):
        raise ValueError(f"seed and chains must lie in 0..{2**64 - 1}, got seed {seed} and chains {list(chains)[:5]}")
    out = np.empty((len(keys), n_steps, 4))
    for k, key in enumerate(keys):
        numbers = np.random.Philox(key=np.array(key, np.uint64), counter=counter)
        np.random.Generator(numbers).random(out=out[k])  # 53 bits of each 64
    return out


def site_stream(j: int) -> int:
    """The stream of the j-th site of a step that draws several: 0 for the first, as of Glauber dynamics, else 15 + j.

    TypeError unless it is an integer.
    """
    return 15 + j if operator.index(j) else 0


def site_uniforms(seed: int, chains: Sequence[int] | np.ndarray, step: int, size: int) -> np.ndarray:
    """Uniform numbers float64[B, size, 4]: four for each of `size` sites of one step, by their `site_stream`.

    OverflowError or ValueError as `uniforms`.
    """
    each = [uniforms(seed, chains, step, 1, stream=site_stream(j)) for j in range(size)]
    return np.concatenate(each, axis=1) if each else np.zeros((len(chains), 0, 4))


def weights(scores: torch.Tensor, temperature: npt.ArrayLike) -> torch.Tensor:
    r"""Unnormalised conditional law float64[B, V] of scores [B, V] at temperatures [B].

    :math:`\exp((s_v - \max_u s_u) / \tau)`: the largest weight is one. ValueError unless every temperature is positive
    and finite; torch's RuntimeError if there is not one for each row, its IndexError where there is no token. Scores
    are those that `answers.ask` lets pass: a nan or an infinite score gives a nan here.
    """
    temperature = torch.as_tensor(temperature, dtype=torch.float64)
    if not ((temperature > 0) & (temperature < torch.inf)).all():
        raise ValueError(f"temperature must be > 0 and finite, got {temperature.tolist()}")
    scaled = scores.to(torch.float64, copy=True)
    if (temperature > 1e305).any():  # otherwise a difference beyond float64 has no weight; half of both is the same
        scaled, temperature = scaled / 2, temperature / 2
    scaled -= scaled.amax(-1, keepdim=True)
    scaled /= temperature.to(scores.device)[..., None]
    return scaled.exp_()


def probabilities(scores: torch.Tensor, temperature: npt.ArrayLike) -> torch.Tensor:
    """Conditional law float64[B, V] of scores [B, V] at temperatures [B] (paper §3).

    A nan and a RuntimeError come as from `weights`.
    """
    law = weights(scores, temperature)
    return law / law.sum(-1, keepdim=True)


def log_probabilities(scores: torch.Tensor, temperature: float) -> torch.Tensor:
    """Logarithms float64[B, V] of the conditional law of scores [B, V] at one temperature.

    Relative to the best score of a row where a score over the temperature is beyond float64.
    """
    scores = scores.double()
    law = (scores / temperature).log_softmax(1)
    if not law[:, 0].isnan().any():  # of a whole row, or of none
        return law
    return ((scores - scores.amax(1, keepdim=True)) / temperature).log_softmax(1)


def inverse_cdf(weights: torch.Tensor, uniform: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Draw one index per row of non-negative `weights`, which is not checked: it would take a quarter of the time.

    Parameters
    ----------
    weights : torch.Tensor, float64[B, V]
        Not necessarily normalised. Float32 is summed in float64.
    uniform : torch.Tensor, float64[B]
        In [0, 1).

    Returns
    -------
    index : torch.Tensor, int64[B]
        First index whose cumulative weight exceeds the uniform share of the total: never one of zero weight.
    low, high : torch.Tensor, float64[B]
        The interval of uniforms that gives this index.

    Raises
    ------
    ValueError
        For weights or uniforms of another precision, weights of a row that sum to zero, to infinity or to no number,
        or what is not one uniform in [0, 1) for each row.
    IndexError
        Of torch, where there is no token.
    """
    if weights.ndim != 2 or uniform.shape != weights.shape[:1]:
        got = f"shapes {tuple(weights.shape)} and {tuple(uniform.shape)}"
        raise ValueError(f"need weights (rows, tokens) and one uniform for each of {len(weights)} rows, got {got}")
    if weights.dtype != torch.float64 or uniform.dtype != torch.float64:
        check_precision(weights.dtype, "weights")
        check_precision(uniform.dtype, "uniforms")
        weights, uniform = weights.double(), uniform.double()
    cumulative = weights.cumsum(-1)
    total = cumulative[:, -1]
    ends = torch.stack([*total.aminmax(), *uniform.aminmax()]).tolist() if len(total) else (1.0, 1.0, 0.0, 0.0)
    least, most, lowest, highest = ends
    if not 0 < least <= most < math.inf:  # of nan both are nan
        raise ValueError(f"weights of a row must have a positive and finite sum, got {least} to {most}")
    if not 0 <= lowest <= highest < 1:
        raise ValueError(f"uniforms must lie in [0, 1), got {lowest} to {highest}")
    target = torch.minimum(uniform * total, torch.nextafter(total, torch.zeros_like(total)))
    index = torch.searchsorted(cumulative, target[:, None], right=True)  # (B, 1)
    high = cumulative.gather(1, index)[:, 0]
    low = cumulative.gather(1, (index - 1).clamp(min=0))[:, 0].where(index[:, 0] > 0, torch.zeros_like(total))
    return index[:, 0], low / total, high / total
