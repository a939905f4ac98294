"""What a conditional model may answer, checked in one place: chains, couplings and estimators all ask through `ask`."""

import inspect
import math
from typing import Any

import numpy as np
import torch

from glauber_lib.draws import check_precision


def ask(model: Any, states: Any, sites: Any, hidden: Any = None) -> torch.Tensor:
    """The scores that a model gives, checked: what every chain and every estimator asks through.

    Parameters
    ----------
    model : ConditionalModel
    states, sites, hidden
        See `models.ConditionalModel.scores`.

    Returns
    -------
    torch.Tensor, float[B, n_tokens]
        On the model's device. It may be the model's own storage, or read-only as torch's inference mode makes it: copy
        before writing to it.

    Raises
    ------
    TypeError, ValueError
        As `check_scores`.
    """
    if not len(states):  # as of the other sites of a state of one
        return torch.empty(0, model.n_tokens, device=getattr(model, "device", None))
    asked = (states, sites) if hidden is None else (states, sites, hidden)
    given = (x.copy() if isinstance(x, np.ndarray) else x for x in asked)  # a model may write into them
    return check_scores(model.scores(*given), model, states, sites)


def check_scores(scores: Any, model: Any, states: Any, sites: Any) -> torch.Tensor:
    """The scores that `model` gave for ``sites`` int[B] of ``states`` int[B, n], on its device and without gradient.

    Raises
    ------
    TypeError
        For anything but a tensor of torch.
    ValueError
        Unless it is float32 or float64 of shape (B, n_tokens) and `check_rows` accepts it.
    """
    wanted = (len(states), model.n_tokens)
    if not isinstance(scores, torch.Tensor):
        raise TypeError(f"scores of {name_of(model)} must be a tensor of torch, got {type(scores).__name__}")
    if tuple(scores.shape) != wanted:
        raise ValueError(
            f"scores of {name_of(model)} must have shape {wanted}, one row per state and one column per token, got "
            f"{tuple(scores.shape)}"
        )
    if scores.dtype not in (torch.float64, torch.float32):
        check_precision(scores.dtype, f"scores of {name_of(model)}")
    if scores.requires_grad:
        scores = scores.detach()
    if scores.device != (device := getattr(model, "device", scores.device)):
        scores = scores.to(device)
    check_rows(scores, model, states, sites)
    return scores


def check_rows(scores: torch.Tensor, model: Any, states: Any, sites: Any) -> None:
    """Whether each row of scores [B, V] makes a conditional law.

    Raises
    ------
    ValueError
        For a row with nan or +inf, or with -inf alone: it names model, site and state.
    IndexError
        Of torch, for scores that are no rows.
    """
    best = scores.amax(1).tolist()  # nan where a row has nan, +inf where it has that, -inf where every token is banned
    if math.isfinite(sum(best)):
        return
    k = next((k for k, value in enumerate(best) if not math.isfinite(value)), None)
    if k is None:  # finite numbers whose sum is not
        return
    what = "nan" if math.isnan(best[k]) else "+inf" if best[k] > 0 else "-inf for every token"
    site, state = int(sites[k]), torch.as_tensor(states[k]).tolist()
    raise ValueError(
        f"{name_of(model)} gives {what} at site {site} of state {state}: a score "
        "must be a finite number, or -inf for a banned token, and one token at least must be left"
    )


def name_of(model: Any) -> str:
    """What an error calls a model: its name, or its class where it has none."""
    name = getattr(model, "name", "")
    return f"model {name!r}" if name else type(model).__name__


def refuse_unable_to_hide(model: Any) -> None:
    """ValueError for a model whose `scores` cannot be asked with further sites hidden: it takes no `hidden`, the third.

    Whether a model heeds what it takes is not asked.
    """
    taken = [p for p in inspect.signature(model.scores).parameters.values() if p.kind is not p.KEYWORD_ONLY]
    if [p.name for p in taken[2:3]] != ["hidden"] and not any(p.kind is p.VAR_POSITIONAL for p in taken):
        raise ValueError(
            f"{name_of(model)} cannot hide sites: take inside='visible', or one site a step; its `scores` has no third "
            "parameter `hidden`"
        )
