r"""Drift of the number of sites that hold one token (paper §5.4, App. A.2)."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike
from tqdm.auto import tqdm

from glauber_lib.draws import check_temperature
from glauber_lib.margins import scores_by_site
from glauber_lib.models import ConditionalModel


def states_with_count(states: ArrayLike, token: int, count: int, *, seed: int = 0) -> np.ndarray:
    """Copies of states in which exactly `count` sites hold `token`, at random positions.

    A site that loses `token` gets one of the other tokens of its state (0 or 1 where there is none).

    Parameters
    ----------
    states : array_like, int[B, n]
    token, count : int
    seed : int

    Returns
    -------
    ndarray, int64[B, n]

    Raises
    ------
    ValueError
        Unless `count` lies in 0 .. n.
    """
    rng = np.random.default_rng([seed, 2])
    states = np.array(states)
    n = states.shape[1]
    if not 0 <= count <= n:
        raise ValueError(f"count must lie in 0..{n}, got {count}")
    for row in states:
        own = row[row != token]
        fill = own if len(own) else np.array([(token + 1) % 2])
        row[row == token] = rng.choice(fill, size=(row == token).sum())
        row[rng.permutation(n)[:count]] = token
    return states


def token_drift(model: ConditionalModel, states: ArrayLike, token: int, temperatures: ArrayLike) -> pd.DataFrame:
    r"""Drift of the number of sites that hold `token`, by one exact step from each state.

    Parameters
    ----------
    model : ConditionalModel
    states : array_like, int[B, n]
    token : int
    temperatures : array_like, float[K]

    Returns
    -------
    DataFrame
        Per temperature and state: ``temperature``; ``count``; ``up`` = :math:`p_+ = \frac1n \sum_{x_i \ne v} \pi_i(v)`;
        ``down`` = :math:`p_- = \frac1n \sum_{x_i = v} (1 - \pi_i(v))`; ``drift`` = up - down.
    """
    states = np.asarray(states)
    size, n = states.shape
    temperatures = check_temperature(temperatures, np.shape(temperatures))
    chance = np.empty((len(temperatures), 2, size * n))  # of the token, of all others
    for rows, scores in scores_by_site(model, states):
        own = scores[:, token].clone()
        scores[:, token] = -torch.inf  # the others summed, so that a tiny probability to leave keeps its precision
        for k, temperature in enumerate(temperatures):
            lead = own / temperature - (scores / temperature).logsumexp(1)  # log odds of the token
            chance[k, :, rows] = torch.stack([lead.sigmoid(), (-lead).sigmoid()], dim=1).cpu().numpy()
    holds = states == token
    enter, leave = chance.reshape(len(temperatures), 2, size, n).swapaxes(0, 1)  # (K, B, n) each
    up, down = (enter * ~holds).sum(2) / n, (leave * holds).sum(2) / n  # (K, B)
    return pd.DataFrame(
        {
            "temperature": np.repeat(temperatures, size), "count": np.tile(holds.sum(1), len(temperatures)),
            "up": up.ravel(), "down": down.ravel(), "drift": (up - down).ravel(),
        }
    )  # fmt: skip


def birth_death_time(up: ArrayLike, down: ArrayLike) -> float:
    r"""Mean time of a birth–death chain from its highest count to below its lowest.

    :math:`\sum_c T_c` with :math:`T_c = 1/p_-(c) + T_{c+1}\, p_+(c)/p_-(c)`, the mean time from count c to c - 1.

    Parameters
    ----------
    up, down : array_like, float[K]
        Probabilities of a step up and down from each count, lowest first; from the highest there is no step up.

    Returns
    -------
    float
        In steps.
    """
    time = total = 0.0
    for rise, fall in zip(np.asarray(up, float)[::-1], np.asarray(down, float)[::-1], strict=True):
        time = (1 + rise * time) / fall  # of the highest count: time is still zero
        total += time
    return total


def scan_drift(
    model: ConditionalModel,
    states: ArrayLike,
    tokens: Sequence[int],
    count: int,
    temperatures: ArrayLike,
    *,
    seed: int = 0,
    progress: str | None = None,
) -> pd.DataFrame:
    """Drift of every token of a list, each from states that hold it at `count` sites.

    Parameters
    ----------
    model : ConditionalModel
    states : array_like, int[B, n]
        What stands at the other sites.
    tokens : sequence of int
    count : int
    temperatures : array_like, float[K]
    seed : int
    progress : str, optional
        Title of a progress bar.

    Returns
    -------
    DataFrame
        Rows of `token_drift` with a column ``token``.
    """
    tables = [
        token_drift(model, states_with_count(states, token, count, seed=seed), token, temperatures).assign(token=token)
        for token in tqdm(tokens, desc=progress, disable=progress is None, leave=False)
    ]
    return pd.concat(tables, ignore_index=True)
