r"""Random draws: counter-based uniforms, inverse distribution functions, and the checks of what they are given.

Step `t` of chain `k` uses the numbers that Philox with key (seed, k) gives at counter `t`. A path is therefore a
function of seed, chain and start; it depends neither on the batch it is computed in nor on where it was resumed.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

ABSENT = -1  # fills up states that are shorter than others


def check_temperature(temperature: npt.ArrayLike, shape: tuple[int, ...] = ()) -> np.ndarray:
    """The temperature as float64 array of a shape.

    Parameters
    ----------
    temperature : float or array_like
        In units of the model's scores.
    shape : tuple of int
        What `temperature` is broadcast to.

    Raises
    ------
    ValueError
        Unless every temperature is positive and finite.
    """
    values = np.asarray(temperature, dtype=float)
    if not np.all(np.isfinite(values) & (values > 0)):
        raise ValueError(f"temperature must be > 0 and finite, got {temperature}")
    return np.broadcast_to(values, shape).copy()


def check_states(states: npt.ArrayLike | Sequence[npt.ArrayLike], n_tokens: int) -> np.ndarray:
    """A copy of states as int64[B, n].

    Parameters
    ----------
    states : array_like, int[B, n], or a list of B states of any lengths
        Shorter states are filled up with `ABSENT` at their end.
    n_tokens : int
        Number of tokens a site may hold.

    Raises
    ------
    ValueError
        Unless all tokens are whole numbers in 0 .. n_tokens - 1, and every state has a site.
    """
    rows = [states] if isinstance(states, np.ndarray) else [np.asarray(row) for row in states]  # type: ignore
    if len({row.shape for row in rows}) <= 1:
        rows = [np.asarray(states)]
        if rows[0].ndim != 2 or rows[0].size == 0:
            raise ValueError(f"states must have shape (chains, sites), got {rows[0].shape}")
    for row in rows:
        if row.size == 0:
            raise ValueError("every state must have a site, got one without")
        if not np.issubdtype(row.dtype, np.integer):
            raise ValueError(f"states must be integers, got {row.dtype}")
        if row.min() < 0 or row.max() >= n_tokens:
            raise ValueError(f"states must hold tokens 0..{n_tokens - 1}, got {row.min()}..{row.max()}")
    if len(rows) == 1:
        return rows[0].astype(np.int64)
    filled = np.full((len(rows), max(map(len, rows))), ABSENT, dtype=np.int64)
    for place, row in zip(filled, rows, strict=True):
        place[: len(row)] = row
    return filled


def check_chains(chains: npt.ArrayLike | None, size: int, seed: int) -> np.ndarray:
    """The numbers of `size` chains in the random-number generator, int64[size]; 0 .. size - 1 by default.

    Raises
    ------
    ValueError
        Unless there is one number per chain, and the seed is not negative.
    """
    numbers = np.arange(size) if chains is None else np.asarray(chains, dtype=np.int64)
    if numbers.shape != (size,) or seed < 0:
        raise ValueError(
            f"need one chain number per state and a seed >= 0, got {numbers.shape} for {size}, seed {seed}"
        )
    return numbers


def check_frozen(frozen: npt.ArrayLike | None, states: np.ndarray) -> np.ndarray:
    """The sites that are never resampled, bool[B, n]; none by default.

    Parameters
    ----------
    frozen : array_like, bool[n] or bool[B, n], optional
    states : ndarray, int64[B, n]
        From `check_states`.

    Raises
    ------
    ValueError
        If a chain has no free site.
    """
    frozen = np.broadcast_to(False if frozen is None else np.asarray(frozen, bool), states.shape).copy()
    if (stuck := (frozen | (states == ABSENT)).all(1)).any():
        raise ValueError(f"every chain needs a free site; all are frozen in chain {int(np.argmax(stuck))}")
    return frozen


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
    """
    out = np.empty((len(chains), n_steps, 4))
    for k, chain in enumerate(chains):
        numbers = np.random.Philox(key=np.array([seed, chain], np.uint64), counter=int(first_step) + (stream << 128))
        np.random.Generator(numbers).random(out=out[k])  # 53 bits of each 64
    return out


def weights(scores: torch.Tensor, temperature: npt.ArrayLike) -> torch.Tensor:
    r"""Unnormalised conditional law float64[B, V] of scores [B, V] at temperatures [B].

    :math:`\exp((s_v - \max_u s_u) / \tau)`: the largest weight is one.
    """
    scaled = scores.to(torch.float64, copy=True)
    scaled -= scaled.amax(-1, keepdim=True)
    scaled /= torch.as_tensor(temperature, dtype=torch.float64, device=scores.device)[..., None]
    return scaled.exp_()


def probabilities(scores: torch.Tensor, temperature: npt.ArrayLike) -> torch.Tensor:
    """Conditional law float64[B, V] of scores [B, V] at temperatures [B] (paper §3)."""
    law = weights(scores, temperature)
    return law / law.sum(-1, keepdim=True)


def inverse_cdf(weights: torch.Tensor, uniform: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Draw one index per row of non-negative `weights`.

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
        For weights or uniforms of another precision, or weights of a row that sum to zero or to no number.
    """
    if weights.dtype != torch.float64 or uniform.dtype != torch.float64:
        check_precision(weights.dtype, "weights")
        check_precision(uniform.dtype, "uniforms")
        weights, uniform = weights.double(), uniform.double()
    cumulative = weights.cumsum(-1)
    total = cumulative[:, -1]
    if len(total) and not total.min().item() > 0:  # of nan the least is nan
        raise ValueError(f"weights of a row must have a positive sum, got {total.min().item()}")
    target = torch.minimum(uniform * total, torch.nextafter(total, torch.zeros_like(total)))
    index = torch.searchsorted(cumulative, target[:, None], right=True)  # (B, 1)
    high = cumulative.gather(1, index)[:, 0]
    low = cumulative.gather(1, (index - 1).clamp(min=0))[:, 0].where(index[:, 0] > 0, torch.zeros_like(total))
    return index[:, 0], low / total, high / total
