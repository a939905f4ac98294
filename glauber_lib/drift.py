r"""Drift of the number of sites that hold one token (paper §5.4, App. A.2)."""

from collections.abc import Sequence
from typing import cast

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike
from scipy.special import expit, log_expit, logsumexp
from tqdm.auto import tqdm

from glauber_lib.checks import (
    check_columns,
    check_contexts,
    check_count,
    check_numbers,
    check_one,
    check_seed,
    check_temperatures,
    check_whole,
)
from glauber_lib.margins import escape_probability, scores_by_site
from glauber_lib.models import ConditionalModel
from glauber_lib.stats import bootstrap_interval


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
        Unless `count` lies in 0 .. n, and `token` and what the states hold are no fills and not negative.
    """
    rng = np.random.default_rng([check_seed(seed), 2])
    states, token = check_contexts(states), check_count(token, "token")
    n = states.shape[1]
    count = check_count(count, "count", most=n)
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
        ``down`` = :math:`p_- = \frac1n \sum_{x_i = v} (1 - \pi_i(v))`; ``drift`` = up - down; ``lead`` =
        :math:`\log p_+/p_-`, nan where all sites hold the token or none does, so that one of the two is no move. It is
        summed in logarithms, and so it is finite where float64 rounds a probability to zero. It is infinite where one
        of the two moves is banned, or where the logarithm is beyond float64, and nan where both are banned.

    Raises
    ------
    ValueError
        For a temperature that is not positive and finite, or a `token` or states that the model lacks.
    """
    states, temperatures = check_contexts(states, model.n_tokens), check_temperatures(temperatures)
    token, (size, n) = check_count(token, "token", most=model.n_tokens - 1), states.shape
    odds = np.empty((len(temperatures), size * n))  # log odds of the token
    for rows, scores in scores_by_site(model, states):
        own = scores[:, token].clone()
        scores[:, token] = -torch.inf  # the others summed, so that a tiny probability to leave keeps its precision
        best = scores.amax(1).nan_to_num(neginf=0.0)  # the differences to it are what a low temperature leaves finite
        for k, temperature in enumerate(temperatures):
            others = ((scores - best[:, None]) / temperature).logsumexp(1)
            odds[k, rows] = ((own - best) / temperature - others).cpu().numpy()
    holds, odds = states == token, odds.reshape(len(temperatures), size, n)
    up, down = (expit(odds) * ~holds).sum(2) / n, (expit(-odds) * holds).sum(2) / n  # (K, B)
    count = np.tile(holds.sum(1), len(temperatures))
    lead = np.where((count > 0) & (count < n), _log_ratio(odds, holds).ravel(), np.nan)
    return pd.DataFrame(
        {
            "temperature": np.repeat(temperatures, size), "count": count,
            "up": up.ravel(), "down": down.ravel(), "drift": (up - down).ravel(), "lead": lead,
        }
    )  # fmt: skip


def _log_ratio(odds, holds):
    """Logarithm of the chance to gain a site over that to lose one, [K, B], of log odds [K, B, n] of the token."""
    with np.errstate(divide="ignore", invalid="ignore"):  # of what has no chance, where all are banned
        gain = logsumexp(np.where(holds, -np.inf, log_expit(odds)), axis=2)
        return gain - logsumexp(np.where(holds, log_expit(-odds), -np.inf), axis=2)


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
        In steps; infinite where a step down has no chance, or none that float64 holds; nan where a chance is.

    Raises
    ------
    ValueError
        Without a count, for rows of different lengths, or what is no probability.
    """
    up, down, time, total = check_numbers(up, "up"), check_numbers(down, "down"), 0.0, 0.0
    if up.ndim != 1 or up.shape != down.shape or not up.size:
        raise ValueError(f"up and down must hold one probability for each count, got {up.shape} and {down.shape}")
    if any(((chance < 0) | (chance > 1 + 1e-9)).any() for chance in (up, down)):
        raise ValueError(f"probabilities must lie in 0..1, got up {up.tolist()} and down {down.tolist()}")
    for rise, fall in zip(up[::-1], down[::-1], strict=True):
        longer = rise * time if rise else 0.0  # of the highest count: time is still zero
        time = (1 + longer) / fall if fall else np.inf
        total += time
    return total


def scan_drift(
    model: ConditionalModel,
    states: ArrayLike,
    tokens: Sequence[int],
    counts: Sequence[int],
    temperatures: ArrayLike,
    *,
    seed: int = 0,
    progress: str | None = None,
) -> pd.DataFrame:
    """Drift of every token of a list, each from states that hold it at each of some counts of sites.

    Parameters
    ----------
    model : ConditionalModel
    states : array_like, int[B, n]
        What stands at the other sites.
    tokens : sequence of int
    counts : sequence of int
    temperatures : array_like, float[K]
    seed : int
    progress : str, optional
        Title of a progress bar.

    Returns
    -------
    DataFrame
        Rows of `token_drift` with a column ``token``; ``lead`` is nan as there.
    """
    tokens = check_whole(list(tokens), "tokens", most=model.n_tokens - 1).ravel().tolist()
    states, temperatures = check_contexts(states, model.n_tokens), check_temperatures(temperatures)
    counts = check_whole(list(counts), "counts", most=states.shape[1]).ravel().tolist()
    pairs = [(token, count) for token in tokens for count in counts]
    tables = [
        token_drift(model, states_with_count(states, token, count, seed=seed), token, temperatures).assign(token=token)
        for token, count in tqdm(pairs, desc=progress, disable=progress is None, leave=False)
    ]
    return pd.concat(tables, ignore_index=True)


def summarize_drift(drift: pd.DataFrame, groups: ArrayLike) -> pd.DataFrame:
    """Drift from boundary states at each temperature.

    Parameters
    ----------
    drift : DataFrame
        From `token_drift`, or from `scan_drift` for one token and count.
    groups : array_like, [B]
        What each of its states was made from: whole groups are resampled.

    Returns
    -------
    DataFrame
        Per temperature: ``temperature``, ``states``, ``least`` and ``median`` drift, the 95% interval ``low``, ``high``
        of the median, ``positive`` (share of the states), the medians ``up`` and ``down``, and the least ``lead``.

    Raises
    ------
    ValueError
        If `drift` lacks a column or is a scan of several tokens or counts, or `groups` are not one for each state.
    """
    check_columns(drift, ["temperature", "up", "down", "drift", "lead"], "drift")
    if "token" in drift:  # of a scan
        check_one(drift, ["token", "count"], "drift")
    rows = []
    for temperature, group in drift.groupby("temperature"):
        low, high = bootstrap_interval(group.drift, statistic=np.median, groups=groups)
        rows.append(
            {
                "temperature": temperature, "states": len(group), "least": group.drift.min(skipna=False),
                "median": group.drift.median(skipna=False), "low": low, "high": high,
                "positive": np.nan if group.drift.isna().any() else (group.drift > 0).mean(),
                "up": group.up.median(skipna=False), "down": group.down.median(skipna=False),
                "lead": group.lead.min(skipna=False),
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def summarize_scan(scan: pd.DataFrame) -> pd.DataFrame:
    r"""What a scan allows each token at each count.

    Parameters
    ----------
    scan : DataFrame
        From `scan_drift`.

    Returns
    -------
    DataFrame
        Per token and count, in their order: ``token``, ``count``; ``lead``, the least :math:`\log p_+/p_-` over the
        states at the lowest temperature, which is above its infimum :math:`\lambda`; ``allowed`` =
        :math:`e^{\lambda m}` with it for the m counts below, in steps, infinite beyond float64; ``lost``, the
        temperature above which the lead is lost, nan if there is none at the lowest temperature, infinite if it is not
        lost at the highest.

    Raises
    ------
    ValueError
        If `scan` lacks a column.
    """
    check_columns(scan, ["token", "count", "temperature", "lead"], "scan")
    rows = []
    for key, group in scan.groupby(["token", "count"]):
        token, count = cast(tuple[int, int], key)
        leads = group.groupby("temperature").lead.min(skipna=False)  # nan where all sites hold the token
        lead, lost = leads.iloc[0], np.nan
        if lead > 0:
            lost = _last_fall(leads.index.to_numpy(), leads.to_numpy())
        allowed = _exponential(max(lead, 0.0) * (count - 1))
        rows.append({"token": token, "count": count, "lead": lead, "allowed": allowed, "lost": lost})
    return pd.DataFrame(rows)


def _last_fall(temperatures, leads):
    """Temperature above which leads stay below zero, interpolated in log τ; infinite if they do not at the highest."""
    k = np.flatnonzero(leads > 0)[-1]
    if k == len(leads) - 1:
        return np.inf
    share = leads[k] / (leads[k] - leads[k + 1]) if np.isfinite(leads[k]) else 1.0  # lost at the next temperature
    return float(temperatures[k] * (temperatures[k + 1] / temperatures[k]) ** share)


def predict_count_escape(
    model: ConditionalModel, strip: pd.DataFrame, n_sites: int, token: int, floor: int, temperature: float
) -> dict[str, float]:
    r"""Predicted times from `token` at all sites until at most `floor` sites hold it.

    Parameters
    ----------
    model : ConditionalModel
    strip : DataFrame
        From `scan_drift`, with `token` at every count above `floor`.
    n_sites, token, floor : int
    temperature : float

    Returns
    -------
    dict
        ``lead``, the least :math:`\log p_+/p_-` over the sampled states of the strip, which is above its infimum
        :math:`\lambda`; ``bound`` = :math:`e^{\lambda m}` with it, for the m counts between `floor` and all sites, 1 if
        the lead is not positive or m is 0, infinite beyond float64; ``first_move``, the exact mean time to leave the
        state that holds `token` everywhere; ``birth_death``, `birth_death_time` with the medians of :math:`p_+` and
        :math:`p_-` at each count. In steps.

    Raises
    ------
    ValueError
        If `strip` lacks a column or a count above `floor`, `floor` is none below `n_sites`, or the model lacks `token`.
    """
    check_columns(strip, ["token", "count", "temperature", "up", "down", "lead"], "strip")
    n_sites, token = check_count(n_sites, "n_sites", 1), check_count(token, "token", most=model.n_tokens - 1)
    floor = check_count(floor, "floor", most=n_sites - 1)
    mine = strip[(strip.token == token) & (strip["count"] > floor) & (strip.temperature == temperature)]
    medians = mine.groupby("count")[["up", "down"]].agg(lambda chance: chance.median(skipna=False))
    if list(medians.index) != list(range(floor + 1, n_sites + 1)):
        raise ValueError(f"strip must hold the counts {floor + 1} to {n_sites}, got {list(medians.index)}")
    lead, between = float(mine.lead[mine["count"] < n_sites].min(skipna=False)), n_sites - 1 - floor
    return {
        "lead": lead,
        "bound": _exponential(max(lead, 0.0) * between) if between else 1.0,
        "first_move": _inverse(escape_probability(model, np.full(n_sites, token), temperature)),
        "birth_death": birth_death_time(medians.up, medians.down),
    }


def _exponential(power):
    """Its exponential, infinite where float64 does not hold it."""
    with np.errstate(over="ignore"):
        return float(np.exp(power))


def _inverse(chance):
    """Mean time of a chance per step, infinite where float64 holds no such chance, nan of none."""
    return np.inf if chance == 0 else 1 / chance
