"""Tokens to try in the place of a site's own: the model's best predictions and random ones."""

import numpy as np
import torch
from numpy.typing import ArrayLike

from glauber_lib.answers import ask
from glauber_lib.checks import check_contexts, check_count, check_replacements, check_seed
from glauber_lib.models import ConditionalModel


def replacement_tokens(
    model: ConditionalModel, contexts: ArrayLike, n_replacements: int, *, seed: int = 0
) -> np.ndarray:
    """Tokens to try at each site in place of its own: half the model's best predictions there, half uniformly random.

    They come in turns, a best one first, so that the first r of them are about such a set too.

    Parameters
    ----------
    model : ConditionalModel
    contexts : array_like, int[C, n]
    n_replacements : int
        Tokens R of each site of each context.
    seed : int

    Returns
    -------
    ndarray, int64[C, n, R]
    """
    contexts, rng = check_contexts(contexts, model.n_tokens), np.random.default_rng([check_seed(seed), 3])
    n_replacements = check_replacements(n_replacements, "n_replacements", model.n_tokens)
    at_sites = [best_and_random(model, contexts, i, n_replacements, rng) for i in range(contexts.shape[1])]
    return np.stack(at_sites, axis=1)


def best_and_random(
    model: ConditionalModel, contexts: np.ndarray, site: int, n_replacements: int, rng: np.random.Generator
) -> np.ndarray:
    """Tokens int64[C, R] for one site: the best predictions and random ones in turns, never the present one.

    Banned tokens, of score -inf, are not taken; if too few others are left, some come twice, and where there is none,
    the present one stands for all. ValueError for contexts, a site or replacements that the model cannot have.
    """
    contexts = check_contexts(contexts, model.n_tokens)
    site = check_count(site, "site", most=contexts.shape[1] - 1)
    n_replacements = check_replacements(n_replacements, "n_replacements", model.n_tokens)
    own, n_best = contexts[:, site], n_replacements // 2
    scores = ask(model, contexts, np.full(len(contexts), site)).clone()
    scores[torch.arange(len(own)), torch.as_tensor(own)] = -torch.inf
    random = rng.integers(model.n_tokens - 1, size=(len(contexts), n_replacements - n_best))
    tokens = np.insert(random + (random >= own[:, None]), np.arange(n_best), 0, axis=1)
    tokens[:, : 2 * n_best : 2] = scores.topk(n_best, dim=1).indices.cpu().numpy()
    allowed = torch.isfinite(scores).cpu().numpy()
    for k in np.flatnonzero(allowed.sum(1) < model.n_tokens - 1):
        others = np.flatnonzero(allowed[k]) if allowed[k].any() else own[k : k + 1]
        taken = rng.choice(others, n_replacements)
        best = min(n_best, int(allowed[k].sum()))
        taken[: 2 * best : 2] = tokens[k, : 2 * best : 2]
        tokens[k] = taken
    return tokens
