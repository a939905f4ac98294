r"""Which attention reads a stack of brackets: the balance condition of Dyck languages (Li, thesis, Theorem 2.2.1).

Brackets of k types nest at most D deep. A first layer gives each token an embedding e of its type and depth, where the
depth counts the brackets that are open after the token: 1 .. D of an opening, 0 .. D - 1 of a closing one. The second
layer attends from the last token. It reads the stack of prefixes of any length if a pair that matches leaves nothing in
its sum. So the logits must satisfy, for all types and depths,

.. math:: (e(\text{open}_{i,d'}) - e(\text{close}_{i,d'-1}))^\top M\,
    (e(\text{close}_{j_1,d_1}) - e(\text{close}_{j_2,d_2})) = 0, \qquad M = W_K^\top W_Q.

Uniform attention, M = 0, does.
"""

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from glauber_lib.checks import check_count, check_numbers, check_seed
from glauber_lib.topic_models import check_within

EMBEDDINGS = ("one-hot", "concatenated", "angles")
ATTENTIONS = ("uniform", "balanced", "random")


def bracket_embeddings(kind: str, n_types: int, depth: int) -> tuple[np.ndarray, np.ndarray]:
    """Embeddings of type and depth.

    Parameters
    ----------
    kind : {"one-hot", "concatenated", "angles"}
        Equations (2.55) to (2.57): an axis for each type and depth, with the depths of closing brackets shifted by one
        (as printed their depth 0 is that of another type's depth D); axes of types and of depths; types and an angle.
    n_types, depth : int
        k and D.

    Returns
    -------
    opens, closes : ndarray, float64[k, D, m]
        Those of the opening brackets of depths 1 .. D, and of the closing ones that match them, of depths 0 .. D - 1.

    Raises
    ------
    ValueError
        For another kind, or counts below one.
    """
    k, d = check_count(n_types, "n_types", 1, 30), check_count(depth, "depth", 1, 30)
    if not isinstance(kind, str) or kind not in EMBEDDINGS:
        raise ValueError(f"kind must be one of {EMBEDDINGS}, got {kind!r}")
    if kind == "one-hot":
        every = np.eye(2 * k * d).reshape(2, k, d, -1)
        return every[0], every[1]
    depths = np.arange(d + 1)
    angle = np.arctan2(depths, d + 2 - depths)
    code = np.eye(d + 1) if kind == "concatenated" else np.stack([np.cos(angle), np.sin(angle)], axis=1)
    types = np.repeat(np.eye(2 * k)[:, None], d, axis=1)  # (2k, D, 2k)
    both = (np.broadcast_to(code[levels], (k, d, code.shape[1])) for levels in (depths[1:], depths[:-1]))
    opens, closes = (np.concatenate([types[start::2], part], axis=2) for start, part in enumerate(both))
    return opens, closes


def balance_defect(opens: ArrayLike, closes: ArrayLike, key_query: ArrayLike) -> float:
    r"""The largest violation of the balance condition (2.47), zero where the logits satisfy it.

    Parameters
    ----------
    opens, closes : array_like, float64[k, D, m]
        As from `bracket_embeddings`.
    key_query : array_like, float64[m, m]
        :math:`W_K^\top W_Q`.

    Raises
    ------
    ValueError
        For embeddings or a matrix of other shapes, or numbers that are not finite.
    """
    opens, closes, key_query = _check_layer(opens, closes, key_query)
    logits = np.einsum("idm,mn,jen->idje", opens - closes, key_query, closes)
    flat = logits.reshape(*logits.shape[:2], -1)
    return float((flat.max(-1) - flat.min(-1)).max())


def _check_layer(opens, closes, key_query):
    named = ((opens, "opens"), (closes, "closes"), (key_query, "key_query"))
    opens, closes, key_query = (check_numbers(x, name) for x, name in named)
    if opens.ndim != 3 or opens.shape != closes.shape or key_query.shape != (opens.shape[2],) * 2 or not opens.size:
        raise ValueError(f"need embeddings (k, D, m) and a matrix (m, m), got {opens.shape}, {closes.shape}, "
                         f"{key_query.shape}")  # fmt: skip
    if not all((np.abs(x) < 1e6).all() for x in (opens, closes, key_query)):
        raise ValueError("embeddings and matrix must hold finite numbers below 1e6 in absolute value")
    return opens, closes, key_query


def balanced_part(opens: ArrayLike, closes: ArrayLike, key_query: ArrayLike) -> np.ndarray:
    """The nearest matrix float64[m, m] that satisfies the balance condition.

    What is taken out maps differences of queries to differences within pairs. ValueError as `balance_defect`.
    """
    opens, closes, key_query = _check_layer(opens, closes, key_query)
    pairs = (opens - closes).reshape(-1, opens.shape[2])
    queries = closes.reshape(-1, opens.shape[2])
    queries = queries - queries[:1]
    project = lambda rows: np.linalg.pinv(rows) @ rows  # onto their span  # noqa: E731
    return key_query - project(pairs) @ key_query @ project(queries)


def draw_brackets(n_types: int, depth: int, length: int, rng: np.random.Generator, opening: float = 0.5) -> np.ndarray:
    """A prefix int64[length, 3] of the thesis's process: opening (1) or closing (0), type, depth after the token.

    ValueError for counts below one, or an opening probability outside 0.01..0.99.
    """
    k, d = check_count(n_types, "n_types", 1, 30), check_count(depth, "depth", 1, 30)
    length, opening = check_count(length, "length", 1, 10**5), check_within(opening, "opening", 0.01, 0.99)
    still, tokens = [], np.empty((length, 3), np.int64)
    for place in range(length):
        if not still or (len(still) < d and rng.random() < opening):
            still.append(int(rng.integers(k)))
            tokens[place] = 1, still[-1], len(still)
        else:
            type_ = still.pop()
            tokens[place] = 0, type_, len(still)
    return tokens


def read_stack(tokens: ArrayLike, opens: ArrayLike, closes: ArrayLike, key_query: ArrayLike) -> np.ndarray:
    r"""What the second layer sums up at the last token of a prefix, float64[k, D]: the open brackets, if balanced.

    An opening bracket of type i and depth d has the value :math:`o_{i,d}`, the one that closes it minus that times
    :math:`e^c`, with c the difference of their logits for the first query. The attention is not normalised: the layer
    norm that follows does not ask.

    Parameters
    ----------
    tokens : array_like, int[n, 3]
        As from `draw_brackets`; the last one is a closing bracket.
    opens, closes, key_query
        See `balance_defect`.

    Raises
    ------
    ValueError
        For tokens that the embeddings lack, or a last token that is no closing bracket.
    """
    opens, closes, key_query = _check_layer(opens, closes, key_query)
    k, d, _ = opens.shape
    tokens = check_numbers(tokens, "tokens")
    highest = np.array([1, k - 1, d])
    if tokens.ndim != 2 or tokens.shape[1:] != (3,) or not len(tokens) or (tokens % 1 != 0).any():
        raise ValueError(f"tokens must be whole numbers of shape (n, 3), got shape {tokens.shape}")
    opening, types, depths = tokens.astype(np.int64).T
    level = depths - opening  # 0 .. D - 1, of an opening and of the closing bracket that matches it
    if (tokens < 0).any() or (tokens > highest).any() or (level < 0).any() or (level >= d).any() or opening[-1]:
        raise ValueError(f"tokens must be brackets of {k} types and depth {d}, the last one closing, got others")
    query = closes[types[-1], level[-1]]
    keys = np.where(opening[:, None] == 1, opens[types, level], closes[types, level])
    logits = keys @ key_query @ query
    constant = np.einsum("idm,mn,n->id", opens - closes, key_query, closes[0, 0])
    values = np.where(opening == 1, 1.0, -np.exp(constant[types, level]))
    stack = np.zeros((k, d))
    np.add.at(stack, (types, level), np.exp(logits - logits.max()) * values)
    return stack


def stack_errors(
    kind: str,
    attention: str,
    lengths: ArrayLike,
    *,
    n_types: int = 2,
    depth: int = 4,
    n_prefixes: int = 100,
    scale: float = 1.0,
    seed: int = 0,
) -> pd.DataFrame:
    """How often the type of the last open bracket is read wrongly, over random prefixes that end in a closing bracket.

    Parameters
    ----------
    kind : str
        See `bracket_embeddings`.
    attention : {"uniform", "balanced", "random"}
        No logits; a random matrix without what violates balance; a random matrix.
    lengths : array_like, int[L]
        Least lengths of the prefixes.
    n_types, depth, n_prefixes : int
    scale : float
        Standard deviation of the random matrix's entries.
    seed : int

    Returns
    -------
    DataFrame
        A row for each length and prefix: ``length``, ``prefix``, ``wrong``, and ``defect``, the `balance_defect`.

    Raises
    ------
    ValueError
        For another kind or attention, no length, or counts below one.
    """
    opens, closes = bracket_embeddings(kind, n_types, depth)
    if attention not in ATTENTIONS:
        raise ValueError(f"attention must be one of {ATTENTIONS}, got {attention!r}")
    wanted = [check_count(n, "a length", 1, 10**5) for n in np.atleast_1d(check_numbers(lengths, "lengths")).tolist()]
    n_prefixes, rng = check_count(n_prefixes, "n_prefixes", 1, 10**5), np.random.default_rng([check_seed(seed), 80])
    if not wanted or opens.shape[1] < 2:
        raise ValueError(f"need a length, and a depth of two or more, got {wanted} and {depth}")
    scale, rows = check_within(scale, "scale", 0.0, 100.0), []
    for length in wanted:
        for k in range(n_prefixes):
            matrix = scale * rng.normal(size=(opens.shape[2],) * 2) * (attention != "uniform")
            if attention == "balanced":
                matrix = balanced_part(opens, closes, matrix)
            tokens = draw_brackets(n_types, depth, length + 200, rng)
            ends = np.flatnonzero((tokens[:, 0] == 0) & (tokens[:, 2] > 0))
            tokens = tokens[: ends[ends >= length - 1][0] + 1]
            last = tokens[-1, 2] - 1  # the level of the last open bracket, which opened at that depth
            opened = tokens[(tokens[:, 0] == 1) & (tokens[:, 2] == last + 1)][-1, 1]
            found = read_stack(tokens, opens, closes, matrix)[:, last]
            rows.append((length, k, bool(found.argmax() != opened), balance_defect(opens, closes, matrix)))
    return pd.DataFrame(rows, columns=["length", "prefix", "wrong", "defect"])
