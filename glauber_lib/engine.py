r"""The engine under `run_chains` and `coalesce`: the paths of the plain loop (`kernels`), with far fewer model calls.

Three pieces make it.

- `Conditionals` remembers the model's scores by masked state, in bounded memory. It answers the draw that follows a
  kept token, states to which a chain comes back, and other chains and temperatures.
- `KeepIntervals` holds for every site the interval of uniforms with which a step there changes nothing. A site's
  conditional is the same until another site changes, so that nothing is computed for a step whose uniform lies in it.
- `run_clocks` gives every chain its own clock. Random numbers are drawn ahead, each clock is moved to the first step
  that may change something, and one model call serves all chains, whatever their steps.

Language models add a fourth saving: only the masked site goes through the last layer and the head
(`language.MaskedLM`).

A path depends on none of this, but for the rounding of a language model's scores, which differs from batch to batch:
paths may part where a uniform lies within the rounding of a boundary.
"""

import sys
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from tqdm.auto import tqdm

from glauber_lib.answers import ask, name_of
from glauber_lib.checks import ABSENT, check_count
from glauber_lib.draws import chunks, uniforms
from glauber_lib.models import ConditionalModel

STORE = 2 * 2**30  # bytes of remembered scores: 512 chains of 20 sites with |V| = 30,000 take 1.2 GiB of them
MASKED = -2  # the token of the masked site in the key of a masked state


# Remembered scores ---------------------------------------------------------------------------------------------------


class Conditionals:
    """A model's scores, none computed twice while it is remembered.

    Parameters
    ----------
    model : ConditionalModel
    memory : int, optional
        Bytes for remembered scores, on the model's device; the least recently used are dropped first. Default: the
        model's attribute `memory`, or `STORE`.

    Attributes
    ----------
    calls : int
        Conditionals the model has evaluated.
    capacity : int
        Conditionals that fit into `memory`; known after the first evaluation, zero before.
    """

    def __init__(self, model: ConditionalModel, memory: int | None = None):
        self.model, self.calls, self.capacity = model, 0, 0
        self.memory = check_count(getattr(model, "memory", STORE) if memory is None else memory, "memory")
        self._slots: OrderedDict[bytes, int] = OrderedDict()  # masked state -> row of the pool, last used last
        self._pool = torch.empty(0, 0)  # (capacity, V)

    @property
    def nbytes(self) -> int:
        """Bytes taken: the pool of scores, all of it from the first evaluation on, and the table of its rows."""
        table = sys.getsizeof(self._slots) + sum(sys.getsizeof(x) for item in self._slots.items() for x in item)
        return self._pool.nbytes + table

    def scores(self, states: np.ndarray, sites: np.ndarray) -> torch.Tensor:
        """Scores [B, V] at ``sites`` int[B] of ``states`` int[B, n], checked as `answers.ask` does."""
        if self.memory == 0:
            return self._evaluate(states, sites)
        masked = states.copy()
        masked[np.arange(len(states)), sites] = MASKED
        keys, first_place = [row.tobytes() for row in masked], {}  # of the keys that are not remembered
        for k, key in enumerate(keys):
            if key in self._slots:
                self._slots.move_to_end(key)
            else:
                first_place.setdefault(key, k)
        if not first_place:
            return self._pool[[self._slots[key] for key in keys]]
        missing = list(first_place.values())
        answer = fresh = self._evaluate(states[missing], sites[missing])
        if len(missing) < len(keys):
            row = dict(zip(first_place, fresh, strict=True))
            answer = torch.stack([row[key] if key in row else self._pool[self._slots[key]] for key in keys])
        self._remember(list(first_place), fresh)
        return answer

    def _evaluate(self, states: np.ndarray, sites: np.ndarray) -> torch.Tensor:
        """The model's own answer, states of one length at a time."""
        self.calls += len(states)
        lengths = (states != ABSENT).sum(1)
        if (lengths == states.shape[1]).all():
            return ask(self.model, states, sites)
        groups = {n: np.flatnonzero(lengths == n) for n in np.unique(lengths)}
        parts = [ask(self.model, states[rows, :n], sites[rows]).clone() for n, rows in groups.items()]  # of one place
        scores = torch.cat(parts)
        return scores[np.argsort(np.concatenate(list(groups.values())))]

    def _remember(self, keys: list[bytes], rows: torch.Tensor) -> None:
        """Put scores into the pool, in the places of the least recently used where it is full."""
        if self._pool.shape[1] == 0:
            row = rows.shape[1] * rows.element_size() + len(keys[0]) + 300  # with its place in the dictionary
            self.capacity = self.memory // row
            self._pool = rows.new_empty(self.capacity, rows.shape[1])  # on the CPU it takes memory as it is filled
        if rows.dtype != self._pool.dtype:
            raise ValueError(
                f"scores of {name_of(self.model)} must be of one type, got {rows.dtype} after {self._pool.dtype}"
            )
        keys, rows = keys[: self.capacity], rows[: self.capacity]
        places = []
        for key in keys:
            free = len(self._slots) if len(self._slots) < self.capacity else self._slots.popitem(last=False)[1]
            self._slots[key] = free
            places.append(free)
        self._pool[places] = rows


# Uniforms that change nothing ----------------------------------------------------------------------------------------


class KeepIntervals:
    """For each site of each row, the interval of uniforms with which a step there changes nothing.

    A row is a chain or a coupled pair. Nothing is known at first.

    Attributes
    ----------
    ends : ndarray, float64[2, B, n]
        Lower and upper end of each interval ``low <= u < high``.
    """

    UNKNOWN = np.array([2.0, -1.0]).reshape(2, 1, 1)  # no uniform lies in it
    ALWAYS = np.array([0.0, 2.0]).reshape(2, 1, 1)  # every uniform lies in it

    def __init__(self, n_rows: int, n_sites: int):
        self.ends = np.empty((2, n_rows, n_sites))
        self.ends[:] = self.UNKNOWN

    def learn(self, rows: np.ndarray, sites: np.ndarray, low: np.ndarray | float, high: np.ndarray) -> None:
        """Note the intervals of one site of each of `rows`."""
        self.ends[0, rows, sites] = low
        self.ends[1, rows, sites] = high

    def forget(self, rows: np.ndarray) -> None:
        """Drop all intervals of rows that have changed."""
        self.ends[:, rows] = self.UNKNOWN

    def stop(self, rows: np.ndarray) -> None:
        """Let no further step change these rows."""
        self.ends[:, rows] = self.ALWAYS

    def all_stopped(self) -> bool:
        """Whether no step can change any row."""
        return bool((self.ends == self.ALWAYS).all())


# Clocks --------------------------------------------------------------------------------------------------------------


class Walkers(Protocol):
    """B chains, or B coupled pairs of chains, as `run_clocks` takes them through their steps.

    Attributes
    ----------
    seed : int
    numbers : ndarray, int64[B]
        The rows' numbers in the random-number generator (`draws.uniforms`).
    sites : ndarray, int64[B, n]
        Each row's sites, those that a step may choose first.
    n_free : ndarray, int64[B]
        How many sites a step may choose.
    at_once : int
        Most rows of one call of `step`.
    keep : KeepIntervals
        What `step` has learned. `run_clocks` leaves out every step whose uniform lies in the interval of its site.
    """

    seed: int
    numbers: np.ndarray
    sites: np.ndarray
    n_free: np.ndarray
    at_once: int
    keep: KeepIntervals

    def step(self, rows: np.ndarray, sites: np.ndarray, uniform: np.ndarray, steps: np.ndarray) -> None:
        """Do one step of each of `rows`: its number ``steps`` int64[K], site, and three uniforms float64[K, 3]."""
        ...


def run_clocks(
    walkers: Walkers, *, start: int, end: int, go_on: Callable[[int], bool], progress: str | None = None
) -> int:
    """Take chains, or coupled pairs, through the steps ``start .. end - 1``, each by its own clock.

    Parameters
    ----------
    walkers : Walkers
    start, end : int
        Steps done before, and at the end.
    go_on : callable
        ``go_on(done)`` is called now and then with the number of steps that all rows have done, those before `start`
        included. It says whether to do more.
    progress : str, optional
        Title of a progress bar.

    Returns
    -------
    int
        Steps that all rows have done: fewer than `end` after Ctrl-C, or where `go_on` ended the run.
    """
    numbers, n_free, keep = walkers.numbers, walkers.n_free, walkers.keep
    block = int(np.clip(2**21 // len(numbers), 64, 4096))  # steps whose random numbers are drawn ahead
    clock = np.full(len(numbers), start)
    first_site = np.arange(len(numbers))[:, None] * walkers.sites.shape[1]
    bar = tqdm(total=end - start, desc=progress, unit="step", disable=progress is None, leave=False)

    def report() -> bool:
        done = int(clock.min())
        bar.update(done - start - bar.n)
        return go_on(done)

    try:
        for first in range(start, end, block):
            if keep.all_stopped():
                clock[:] = end
                break
            draws = uniforms(walkers.seed, numbers, first, min(block, end - first))
            sites = walkers.sites.take(first_site + (draws[:, :, 0] * n_free[:, None]).astype(np.int64))  # (B, steps)
            uniform = np.ascontiguousarray(draws[:, :, 1])
            while len(rows := _next_events(clock, first, sites, uniform, keep.ends)):
                for part in chunks(rows, walkers.at_once):
                    seen = part * sites.shape[1] + clock[part] - first
                    walkers.step(part, sites.take(seen), draws.reshape(-1, 4)[seen, 1:], clock[part])
                    clock[part] += 1
                if not report():
                    return int(clock.min())
            if not report():  # blocks without an event
                break
    except KeyboardInterrupt:
        bar.write(f"interrupted after {clock.min() - start} of {end - start} steps: what was done by then is returned")
    finally:
        bar.close()
    return int(clock.min())


def _next_events(clock: np.ndarray, first: int, sites: np.ndarray, uniform: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Move each clock to the next step that may change something; the rows that have one in this block."""
    low, high = ends.reshape(2, -1)
    n, n_steps = ends.shape[2], sites.shape[1]
    rows, width, found = np.flatnonzero(clock < first + n_steps), 1, []
    while len(rows):
        ahead = (clock[rows] - first)[:, None] + np.arange(width)
        seen = (rows * n_steps)[:, None] + np.minimum(ahead, n_steps - 1)
        at, u = (rows * n)[:, None] + sites.take(seen), uniform.take(seen)
        event = ((u < low.take(at)) | (u >= high.take(at))) & (ahead < n_steps)
        hit = event.any(1)
        clock[rows] = np.minimum(clock[rows] + np.where(hit, event.argmax(1), width), first + n_steps)
        found.append(rows[hit])
        rows = rows[~hit & (clock[rows] < first + n_steps)]
        width = min(8 * width, n_steps)
    return np.sort(np.concatenate(found)) if found else rows
