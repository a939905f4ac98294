"""Checks of what is passed in: counts, seeds, temperatures, states, sites, tokens. All come before a model is asked."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

ABSENT = -1  # fills up states that are shorter than others

# Numbers -------------------------------------------------------------------------------------------------------------


def check_count(value: Any, name: str, least: int = 0, most: int | None = None) -> int:
    """A whole number as int: a count, a budget, one index.

    Parameters
    ----------
    value : int or float
        Of Python or numpy. A float must be whole: ``1e3`` is one thousand.
    name : str
        What the error calls it.
    least, most : int
        The numbers accepted; by default from zero on without end.

    Raises
    ------
    ValueError
        For anything else: a fraction, nan, a bool, a string, a masked number, a number out of bounds.
    """
    number = value.item() if getattr(value, "ndim", None) == 0 else value
    whole = (isinstance(number, int) and not isinstance(number, bool)) or (
        isinstance(number, float) and number.is_integer()
    )
    if not whole or _masked(value) or number < least or (most is not None and number > most):
        raise ValueError(f"{name} must be a whole number {_span(least, most)}, got {value!r}")
    return int(number)


def check_seed(seed: Any) -> int:
    """A seed as int: a whole number in 0 .. 2**64 - 1; ValueError for anything else, None among it."""
    return check_count(seed, "seed", most=2**64 - 1)


def unmasked(values: Any, name: str) -> np.ndarray:
    """Values as array; ValueError for an array, or a list of arrays, with some masked: they would count like others."""
    if masked := _masked(values):
        raise ValueError(f"{name} must be an array without a mask, got {masked} masked: leave out")
    return np.asarray(values)


def _masked(values):
    """How many values are masked, in lists of any depth."""
    if isinstance(values, list | tuple):
        return sum(_masked(part) for part in values if isinstance(part, list | tuple | np.ma.MaskedArray))
    return np.ma.getmaskarray(values).sum() if isinstance(values, np.ma.MaskedArray) else 0


def check_numbers(values: npt.ArrayLike, name: str, *, listed: bool = False) -> np.ndarray:
    """Numbers as float64 array of their shape, nan and infinite ones as they are.

    Raises
    ------
    ValueError
        For texts, also of digits, complex numbers, dates, and an array of which some values are masked; where they
        shall be `listed`, for any but one row of them.
    """
    array = unmasked(values, name)
    if listed and array.ndim != 1:
        raise ValueError(f"{name} must be a list of numbers, got shape {array.shape}: take one row at a time")
    each = map(np.asarray, array.flat) if array.dtype.kind == "O" else [array]
    kinds = {part.dtype.kind: part.dtype for part in each}
    if unreal := [kinds[kind] for kind in "cmM" if kind in kinds]:
        raise ValueError(f"{name} must be real numbers, got {unreal[0]}")
    if kinds.keys() & {"S", "U"}:
        raise ValueError(f"{name} must be numbers, got texts such as {next(iter(array.flat))!r}")
    return array.astype(float)


def check_whole(values: npt.ArrayLike, name: str, least: int = 0, most: int | None = None) -> np.ndarray:
    """Whole numbers as int64 array of their shape; as `check_count`, and of at most 63 bits."""
    array = unmasked(values, name)
    kind = array.dtype.kind
    if kind == "f" and np.all(array == np.floor(array)) and np.all(np.abs(array) < 2.0**63):
        array, kind = array.astype(np.int64), "i"
    top = 2**63 - 1 if most is None else most
    if array.size and (kind not in "iu" or array.min() < least or array.max() > top):
        raise ValueError(f"{name} must be whole numbers {_span(least, most)}, got {_extent(array)}")
    return array.astype(np.int64)


def check_indices(values: npt.ArrayLike, size: int, name: str) -> np.ndarray:
    """Integers in 0 .. size - 1 as int64 array of their shape; ValueError for others, negative ones among them.

    Parameters
    ----------
    values : array_like, int
    size : int
    name : str
        What the error calls them.
    """
    array = unmasked(values, name)
    if array.size and (array.dtype.kind not in "iu" or array.min() < 0 or array.max() >= size):
        raise ValueError(f"{name} must be integers in 0..{size - 1}, got {_extent(array)}")
    return array.astype(np.int64)


def check_flags(values: npt.ArrayLike, name: str) -> np.ndarray:
    """True or false in every place as bool array of their shape; ValueError for others, nan and texts among them."""
    array = unmasked(values, name)
    if not np.isin(array, (0, 1)).all() or array.dtype.kind not in "biufO":
        raise ValueError(f"{name} must be true or false in every place, got {array.ravel()[:5].tolist()}")
    return array.astype(bool)


def check_labels(values: npt.ArrayLike, name: str, size: int | None = None) -> np.ndarray:
    """One label for each row, of which there are `size`, as array in which different labels differ.

    Raises
    ------
    ValueError
        Where one is missing (None or nan), for texts among numbers, or for an array of which some are masked.
    """
    array = unmasked(values, name)
    labels = array.tolist() if hasattr(values, "dtype") or array.ndim != 1 else list(values)  # type: ignore
    missing = sum(one is None or type(one).__name__ == "NAType" or one != one for one in labels)
    if array.ndim != 1 or missing or len(array) != (len(array) if size is None else size):
        rows = "each row" if size is None else f"each of {size} rows"
        raise ValueError(f"{name} must hold one label for {rows}, got shape {array.shape} with {missing} missing")
    texts = sum(isinstance(one, str) for one in labels)
    if 0 < texts < len(labels):
        raise ValueError(f"{name} must be all texts or all numbers, got {texts} texts of {len(labels)} labels")
    if array.tolist() == labels:
        return array
    array = np.empty(len(labels), object)  # numpy rounds whole numbers beside others, and cuts texts at their end
    array[:] = labels
    return array


def check_text(text: Any) -> str:
    """ValueError for anything but one text: of a list of texts a tokenizer gives a list of ids for each."""
    if not isinstance(text, str):
        raise ValueError(f"need one text, got {type(text).__name__}: for several, call states")
    return text


def check_replacements(number: Any, name: str, n_tokens: int) -> int:
    """How many tokens to try in place of a site's own: half are the best others, and so many there must be."""
    if n_tokens < 2:
        raise ValueError("a replacement needs two tokens, got a model of one")
    return check_count(number, name, least=1, most=2 * n_tokens - 1)


def _span(least, most):
    return f">= {least}" if most is None else f"in {least}..{most}"


def _extent(array):
    """What an array holds, for an error: its ends, or its type."""
    return f"{array.min()}..{array.max()}" if array.dtype.kind in "iuf" else f"{array.dtype}"


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
        Unless every temperature is a positive and finite number, and there is one, or as many as the shape asks for.
    """
    values = check_numbers(temperature, "temperature")
    if np.asarray(temperature).dtype == bool:
        raise ValueError(f"temperature must be a number, got {temperature}")
    if not np.all(np.isfinite(values) & (values > 0)):
        raise ValueError(f"temperature must be > 0 and finite, got {temperature}")
    if values.size != 1 and values.shape != shape:
        raise ValueError(f"temperature must be one number or of shape {shape}, got shape {values.shape}")
    return np.broadcast_to(values.reshape(()) if values.size == 1 else values, shape).copy()


def check_temperatures(temperatures: npt.ArrayLike) -> np.ndarray:
    """Temperatures float64[K] to measure at; ValueError unless they are a list of positive and finite numbers."""
    if np.ndim(temperatures) != 1 or np.size(temperatures) == 0:
        raise ValueError(f"temperatures must be a list of numbers, got {temperatures!r}")
    return check_temperature(temperatures, np.shape(temperatures))


def check_columns(frame: Any, columns: Sequence[str], name: str) -> None:
    """Refuse a DataFrame without some columns that are read from it.

    Parameters
    ----------
    frame : DataFrame
    columns : sequence of str
        Those that it must have.
    name : str
        What the error calls the frame.

    Raises
    ------
    ValueError
        If one lacks; it names all that do.
    TypeError
        For what is no DataFrame.
    """
    if getattr(frame, "columns", None) is None:
        raise TypeError(f"{name} must be a DataFrame, got {type(frame).__name__}")
    if lacking := [column for column in columns if column not in frame.columns]:
        raise ValueError(f"{name} must have the columns {list(columns)}, lacks {lacking}, got {list(frame.columns)}")


def check_one(frame: Any, columns: Sequence[str], name: str) -> None:
    """ValueError where one of the columns, of those that a DataFrame has, holds several values: they would be mixed."""
    for column in columns:
        if column in frame and frame[column].nunique(dropna=False) > 1:
            raise ValueError(
                f"{name} must be of one {column}, got {frame[column].unique().tolist()}: take one at a time"
            )


# States --------------------------------------------------------------------------------------------------------------


def check_states(
    states: npt.ArrayLike | Sequence[npt.ArrayLike], n_tokens: int | None = None, *, fills: bool = False
) -> np.ndarray:
    """A copy of states as int64[B, n].

    Parameters
    ----------
    states : array_like, int[B, n], or a list of B states of any lengths
        Shorter states are filled up with `ABSENT` at their end.
    n_tokens : int, optional
        Number of tokens a site may hold; any number if it is not given.
    fills : bool
        Whether states that are filled up already are accepted.

    Raises
    ------
    ValueError
        Unless all tokens are integers in 0 .. n_tokens - 1, and every state has a site.
    """
    states = states.to_numpy() if hasattr(states, "columns") else states  # type: ignore
    listed: Any = [states] if isinstance(states, np.ndarray) else states
    rows = [unmasked(row, "states") for row in listed]
    if len({row.shape for row in rows}) <= 1:
        whole = unmasked(states, "states")
        of_tuples = whole.dtype == object and listed is states and rows  # in a Series
        rows = [np.stack(rows) if of_tuples else whole]
        if rows[0].ndim != 2 or rows[0].size == 0:
            raise ValueError(f"states must have shape (chains, sites), got {rows[0].shape}")
    for row in rows:
        _check_tokens(row, n_tokens, fills)
    if len(rows) == 1:
        return rows[0].astype(np.int64)
    filled = np.full((len(rows), max(map(len, rows))), ABSENT, dtype=np.int64)
    for place, row in zip(filled, rows, strict=True):
        place[: len(row)] = row
    return filled


def _check_tokens(states, n_tokens, fills):
    """Refuse what are no tokens, in one state or in many of one length."""
    if states.size == 0:
        raise ValueError("every state must have a site, got one without")
    if not np.issubdtype(states.dtype, np.integer):
        raise ValueError(f"states must be integers, got {states.dtype}")
    tokens = states
    if fills:
        there = states != ABSENT
        if not there[..., 0].all() or (there[..., 1:] > there[..., :-1]).any():
            raise ValueError(f"states may be filled up with {ABSENT} at their end alone, got one within a state")
        tokens = states[there]
    if tokens.min() < 0 or (n_tokens is not None and tokens.max() >= n_tokens):
        top = "" if n_tokens is None else n_tokens - 1
        hint = f"; {ABSENT} fills up a short state: pass states of one length at a time, each without it"
        got = f"{tokens.min()}..{tokens.max()}"
        raise ValueError(f"states must hold tokens 0..{top}, got {got}{hint if (tokens == ABSENT).any() else ''}")


def check_contexts(states: npt.ArrayLike, n_tokens: int | None = None) -> np.ndarray:
    """A copy of states of one length as int64[B, n]; ValueError as from `check_states`, and for several lengths."""
    found = check_states(states, n_tokens)
    if (found == ABSENT).any():
        raise ValueError("states must have one length, got a list of several: take one length at a time")
    return found


def check_state(state: npt.ArrayLike, n_tokens: int | None = None, *, fills: bool = False) -> np.ndarray:
    """A copy of one state as int64[n], without what fills it up; see `check_states`."""
    if np.ndim(state) != 1:
        raise ValueError(f"a state must have shape (sites,), got {np.shape(state)}")
    tokens = check_states(unmasked(state, "state")[None], n_tokens, fills=fills)[0]
    return tokens[tokens != ABSENT]


def check_question(states: Any, sites: Any, n_tokens: int, n_sites: int | None = None) -> None:
    """Refuse what a model cannot be asked: every index is used as it stands, and a negative one would wrap around.

    Parameters
    ----------
    states : array_like or torch.Tensor, int[B, n]
    sites : array_like or torch.Tensor, int[B]
    n_tokens : int
    n_sites : int, optional
        Length of a state, where the model has one.

    Raises
    ------
    ValueError
        Unless the tokens lie in 0 .. n_tokens - 1, the sites in 0 .. n - 1, and there is one site for each state.
    """
    if type(states) is type(sites) is np.ndarray and states.dtype == sites.dtype == np.int64 and states.ndim == 2:
        size, n = (
            states.shape
        )  # the engine asks so at every step; of unsigned numbers the negative ones are the largest
        highest = _LARGEST(states.view(np.uint64), axis=None, initial=0), _LARGEST(sites.view(np.uint64), initial=0)
        if sites.shape == (size,) and n == (n_sites or n) and highest[0] < n_tokens and highest[1] < n:
            return
    states, sites = (x if hasattr(x, "shape") else np.asarray(x) for x in (states, sites))
    if len(states.shape) != 2 or states.shape[1] != (n_sites or states.shape[1]):
        wanted = "(B, n)" if n_sites is None else f"(B, {n_sites})"
        raise ValueError(f"states must have shape {wanted}, got {tuple(states.shape)}")
    if tuple(sites.shape) != (len(states),):
        raise ValueError(f"need one site for each of {len(states)} states, got shape {tuple(sites.shape)}")
    for name, values, size in (("tokens of states", states, n_tokens), ("sites", sites, states.shape[1])):
        check_indices(values.cpu() if hasattr(values, "cpu") else values, size, name)


_LARGEST = np.maximum.reduce


# Chains --------------------------------------------------------------------------------------------------------------


def check_chains(chains: npt.ArrayLike | None, size: int, name: str = "chain") -> np.ndarray:
    """The numbers of `size` chains in the random-number generator, int64[size]; 0 .. size - 1 by default.

    Raises
    ------
    ValueError
        Unless there is one whole number >= 0 for each chain, and no two are the same.
    """
    size = check_count(size, "size")
    numbers = np.arange(size) if chains is None else check_whole(chains, f"{name} numbers")
    if numbers.shape != (size,):
        raise ValueError(f"need one {name} number per state, got shape {numbers.shape} for {size}")
    distinct, times = np.unique(numbers, return_counts=True)
    if (twice := distinct[times > 1]).size:
        raise ValueError(
            f"{name} numbers must be distinct, got {twice[:5].tolist()} more than once: {name}s of one number draw the "
            "same random numbers"
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
        If `frozen` is no such array of truth values, or a chain has no free site.
    """
    marked = np.zeros(states.shape, bool) if frozen is None else unmasked(frozen, "frozen")
    if marked.dtype != bool or marked.shape not in (states.shape, states.shape[1:]):
        raise ValueError(
            f"frozen must be bool[{states.shape[1]}] or bool{list(states.shape)}, one truth value for each site, got "
            f"{marked.dtype}{list(marked.shape)}; from numbers of sites: np.isin(np.arange({states.shape[1]}), numbers)"
        )
    marked = np.broadcast_to(marked, states.shape).copy()
    if (stuck := (marked | (states == ABSENT)).all(1)).any():
        raise ValueError(f"every chain needs a free site; all are frozen in chain {int(np.argmax(stuck))}")
    return marked
