r"""The engine under `run_chains` and `coalesce`: the same paths as a plain loop, far fewer model calls.

Randomness is counter-based: step `t` of chain `k` uses the numbers that Philox with key (seed, k) gives at counter `t`:
one uniform for the site, one for the token, which is the inverse of the conditional's cumulative distribution in
float64. A path is therefore a function of seed, chain and start. It depends neither on the batch it is computed in, nor
on where it was resumed, nor on these four short cuts (but for the rounding of a language model's scores, which
differs from batch to batch: paths may part where a uniform lies within it of a boundary):

1. Only the masked site goes through the language-model head, and through the last layer (`models.MaskedLM`).
2. A site's conditional is the same until another site changes: the interval of uniforms that keeps its token is
   remembered (``keep``), and nothing is computed for a step whose uniform lies in it.
3. Every chain has its own clock (`run_clocks`). Random numbers are drawn ahead, each clock is moved to the first step
   that falls outside what is known, and one model call serves all chains, whatever their steps.
4. Scores are kept in a bounded store, by masked state (`Conditionals`): for the draw that follows a kept token, for
   states a chain comes back to, and for other chains and temperatures.
"""

import json
import os
import time
import warnings
from collections import OrderedDict
from pathlib import Path

import numpy as np
import torch
from tqdm.auto import tqdm

STORE = 2 * 2**30  # bytes of remembered scores: 512 chains of 20 sites with |V| = 30,000 take 1.2 GiB of them
UNKNOWN = np.array([2.0, -1.0]).reshape(2, 1, 1)  # an interval no uniform lies in, for `keep`
ALWAYS = np.array([0.0, 2.0]).reshape(2, 1, 1)  # an interval every uniform lies in
ABSENT = -1  # fills up states that are shorter than others
MASKED = -2
CHECKPOINT = 300.0  # seconds between two writings of a checkpoint


# Input -------------------------------------------------------------------------------------------------------------


def check_temperature(temperature, shape=()):
    """`temperature` as float64 array broadcast to `shape`; ValueError unless positive and finite."""
    values = np.asarray(temperature, dtype=float)
    if not np.all(np.isfinite(values) & (values > 0)):
        raise ValueError(f"temperature must be > 0 and finite, got {temperature}")
    return np.broadcast_to(values, shape).copy()


def check_states(states, n_tokens):
    """A copy of `states` as int64[B, n]; those of a list that are shorter than others are filled up with `ABSENT`.

    Raises
    ------
    ValueError
        Unless all are whole numbers in 0 .. n_tokens - 1, and every state has a site.
    """
    rows = [states] if isinstance(states, np.ndarray) else [np.asarray(row) for row in states]
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


# Random numbers and draws ------------------------------------------------------------------------------------------


def parts(index, size):
    """Pieces of at most `size` elements of an array; none of an empty one."""
    return [index[k : k + size] for k in range(0, len(index), size)]


def moves_before(end, moves):
    """Moves before step `end`, in order of time: arrays int64[C, M], whose first rows are step and chain, as one."""
    moves = np.concatenate(moves, axis=1)
    moves = moves[:, moves[0] < end]
    return moves[:, np.lexsort(moves[:2][::-1])]


def replay(initial, step, places, new, steps, n_steps):
    """States after given numbers of steps.

    Parameters
    ----------
    initial : ndarray, int64[..., B, n]
    step : ndarray, int64[M]
        Of moves in order of time; a move at step `t` (from 0) is seen in the state after `t + 1` steps.
    places : (ndarray, ndarray), int64[M]
        The row and the site of each move.
    new : ndarray, int64[..., M]
        Its new tokens.
    steps : array_like, int[K]
        In any order, each between 0 and `n_steps`.
    n_steps : int

    Returns
    -------
    ndarray, int64[K, ..., B, n]
    """
    steps = np.atleast_1d(steps)
    if steps.min() < 0 or steps.max() > n_steps:
        raise ValueError(f"steps must lie in 0..{n_steps}, got {steps.min()}..{steps.max()}")
    out = np.empty((len(steps), *initial.shape), dtype=np.int64)
    state, done, (row, site) = initial.copy(), 0, places
    for k in np.argsort(steps, kind="stable"):
        until = np.searchsorted(step, steps[k], side="left")  # moves at steps < steps[k]
        state[..., row[done:until], site[done:until]] = new[..., done:until]  # of several at one place, the last stays
        done = until
        out[k] = state
    return out


def uniforms(seed, chains, first_step, n_steps, *, stream=0):
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
    """
    out = np.empty((len(chains), n_steps, 4))
    for k, chain in enumerate(chains):
        numbers = np.random.Philox(key=np.array([seed, chain], np.uint64), counter=int(first_step) + (stream << 128))
        np.random.Generator(numbers).random(out=out[k])  # 53 bits of each 64
    return out


def weights(scores, temperature):
    """Unnormalised conditional law float64[B, V] of scores [B, V] at temperatures [B]; the largest weight is one."""
    scaled = scores.to(torch.float64, copy=True)
    scaled -= scaled.amax(-1, keepdim=True)
    scaled /= torch.as_tensor(temperature, dtype=torch.float64, device=scores.device)[..., None]
    return scaled.exp_()


def probabilities(scores, temperature):
    """Conditional law float64[B, V] of scores [B, V] at temperatures [B] (paper §3)."""
    law = weights(scores, temperature)
    return law / law.sum(-1, keepdim=True)


def inverse_cdf(weights, uniform):
    """Draw one index per row of non-negative `weights`.

    Parameters
    ----------
    weights : torch.Tensor, float64[B, V]
        Not necessarily normalised.
    uniform : torch.Tensor, float64[B]
        In [0, 1).

    Returns
    -------
    index : torch.Tensor, int64[B]
        First index whose cumulative weight exceeds the uniform share of the total: never one of zero weight.
    low, high : torch.Tensor, float64[B]
        The interval of uniforms that gives this index.
    """
    cumulative = weights.cumsum(-1)
    total = cumulative[:, -1]
    target = torch.minimum(uniform * total, torch.nextafter(total, torch.zeros_like(total)))
    index = torch.searchsorted(cumulative, target[:, None], right=True)  # (B, 1)
    index = index.clamp(max=weights.shape[1] - 1)  # only where all weights are zero
    high = cumulative.gather(1, index)[:, 0]
    low = cumulative.gather(1, (index - 1).clamp(min=0))[:, 0].where(index[:, 0] > 0, torch.zeros_like(total))
    return index[:, 0], low / total, high / total


# Remembered scores -------------------------------------------------------------------------------------------------


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
    """

    def __init__(self, model, memory=None):
        self.model, self.calls = model, 0
        self.memory = getattr(model, "memory", STORE) if memory is None else memory
        if self.memory < 0:
            raise ValueError(f"memory must be >= 0 bytes, got {memory}")
        self._slots = OrderedDict()  # masked state -> row of the pool, least recently used first
        self._pool = None  # (capacity, V)

    def scores(self, states, sites):
        """Scores [B, V] at ``sites`` int[B] of ``states`` int[B, n]."""
        if self.memory == 0:
            return self._evaluate(states, sites)
        masked = states.copy()
        masked[np.arange(len(states)), sites] = MASKED
        keys, new = [row.tobytes() for row in masked], {}
        for k, key in enumerate(keys):
            if key in self._slots:
                self._slots.move_to_end(key)
            else:
                new.setdefault(key, k)
        if not new:
            return self._pool[[self._slots[key] for key in keys]]
        ask = list(new.values())
        fresh = self._evaluate(states[ask], sites[ask])
        answer = fresh
        if len(new) < len(keys):
            row = dict(zip(new, fresh, strict=True))
            answer = torch.stack([row[key] if key in row else self._pool[self._slots[key]] for key in keys])
        self._remember(list(new), fresh)
        return answer

    def _evaluate(self, states, sites):
        """The model's own answer, states of one length at a time."""
        self.calls += len(states)
        lengths = (states != ABSENT).sum(1)
        if (lengths == states.shape[1]).all():
            return self.model.scores(states, sites)
        parts = {n: np.flatnonzero(lengths == n) for n in np.unique(lengths)}
        scores = torch.cat([self.model.scores(states[rows, :n], sites[rows]) for n, rows in parts.items()])
        return scores[np.argsort(np.concatenate(list(parts.values())))]

    def _remember(self, keys, rows):
        if self._pool is None:
            row = rows.shape[1] * rows.element_size() + len(keys[0]) + 300  # with its place in the dictionary
            self._pool = rows.new_empty(self.memory // row, rows.shape[1])  # on the CPU it takes memory as it is filled
        capacity = len(self._pool)
        keys, rows = keys[:capacity], rows[:capacity]
        places = []
        for key in keys:
            free = len(self._slots) if len(self._slots) < capacity else self._slots.popitem(last=False)[1]
            self._slots[key] = free
            places.append(free)
        self._pool[places] = rows


# Clocks ------------------------------------------------------------------------------------------------------------


def run_clocks(update, keep, free, n_free, *, seed, chains, start, n_steps, at_once, progress, go_on):
    """Take B chains, or coupled pairs, through their steps, each by its own clock.

    Parameters
    ----------
    update : callable
        ``update(rows, sites, uniforms, steps)`` does one step of each of the given rows; uniforms are float64[., 3].
    keep : ndarray, float64[2, B, n]
        Lower and upper end of the interval of uniforms for which a step at a site changes nothing; `update` maintains
        it.
    free : ndarray, int64[B, n]
        Each row's sites, those it may choose first.
    n_free : ndarray, int64[B]
        How many it may choose.
    seed, chains
        See `uniforms`.
    start, n_steps : int
        Steps done before, and to do.
    at_once : int
        Most rows of one update.
    progress : str or None
        Title of a progress bar.
    go_on : callable
        ``go_on(steps)`` hears now and then how many steps all rows have done, and says whether to do more.

    Returns
    -------
    int
        Steps that all rows have done: fewer than `n_steps` after Ctrl-C, or where `go_on` ended the run.
    """
    block = int(np.clip(2**21 // len(chains), 64, 4096))  # steps whose random numbers are drawn ahead
    clock = np.full(len(chains), start)
    first_site = np.arange(len(chains))[:, None] * free.shape[1]
    bar = tqdm(total=n_steps, desc=progress, unit="step", disable=progress is None, leave=False)

    def heard():
        done = int(clock.min()) - start
        bar.update(done - bar.n)
        return go_on(done)

    try:
        for first in range(start, start + n_steps, block):
            if (keep == ALWAYS).all():  # every row is at rest for good
                clock[:] = start + n_steps
                break
            draws = uniforms(seed, chains, first, min(block, start + n_steps - first))
            sites = free.take(first_site + (draws[:, :, 0] * n_free[:, None]).astype(np.int64))  # (B, steps)
            uniform = np.ascontiguousarray(draws[:, :, 1])
            while len(rows := _next_events(clock, first, sites, uniform, keep)):
                for part in parts(rows, at_once):
                    at = clock[part] - first
                    seen = part * sites.shape[1] + at
                    update(part, sites.take(seen), draws.reshape(-1, 4)[seen, 1:], clock[part])
                    clock[part] += 1
                if not heard():
                    return int(clock.min()) - start
            if not heard():  # blocks without an event
                break
    except KeyboardInterrupt:
        bar.write(f"interrupted after {clock.min() - start} of {n_steps} steps: what was done by then is returned")
    finally:
        bar.close()
    return int(clock.min()) - start


def _next_events(clock, first, sites, uniform, keep):
    """Move each clock to the next step that may change something; the rows that have one in this block."""
    low, high = keep.reshape(2, -1)
    n, n_steps = keep.shape[2], sites.shape[1]
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


# Results on disk ---------------------------------------------------------------------------------------------------


class Stored:
    """A frozen dataclass of arrays, numbers and strings that can be written to one ``.npz``."""

    def save(self, path):
        """Write everything to one ``.npz``."""
        fields = {k: getattr(self, k) for k in self.__dataclass_fields__}
        arrays = {k: v for k, v in fields.items() if isinstance(v, np.ndarray)}
        settings = {k: v for k, v in fields.items() if k not in arrays}
        with Path(path).open("wb") as file:
            np.savez_compressed(file, settings=json.dumps(settings), **arrays)
            file.flush()
            os.fsync(file.fileno())

    @classmethod
    def load(cls, path):
        """Read what `save` wrote."""
        with np.load(path, allow_pickle=False) as file:
            arrays = {k: file[k] for k in file.files if k != "settings"}
            return cls(**arrays, **json.loads(str(file["settings"])))


class Checkpoint:
    """Where a run is written every `CHECKPOINT` seconds and at its end, also by Ctrl-C, to go on from.

    Parameters
    ----------
    path : str or Path, optional
        None: nothing is written.
    kind : type
        The `Stored` class of the result.
    """

    def __init__(self, path, kind):
        self.path, self.kind, self.last = path and Path(path), kind, time.monotonic()

    def resume(self, n_steps, **same):
        """What an earlier run left, or None; with a warning where that cannot be read.

        Raises
        ------
        ValueError
            If it is of another run: with more than `n_steps`, or a field that differs from `same`.
        """
        if self.path is None or not self.path.exists():
            return None
        try:
            found = self.kind.load(self.path)
        except Exception as error:  # a file cut short may raise anything
            warnings.warn(f"checkpoint {str(self.path)!r} cannot be read ({error!r:.80}): begins anew", stacklevel=3)
            return None
        other = [k for k, value in same.items() if not np.array_equal(getattr(found, k), value)]
        other += ["n_steps"] * (found.n_steps > n_steps)
        if other:
            raise ValueError(f"checkpoint {str(self.path)!r} is of another run ({', '.join(other)}): delete it")
        return found

    def due(self):
        """Whether it is time to write."""
        return self.path is not None and time.monotonic() - self.last > CHECKPOINT

    def write(self, result):
        """Put `result`, which is returned, in the place of what is there, at once."""
        if self.path is not None:
            partial = self.path.with_name(f"{self.path.name}.{os.getpid()}")
            result.save(partial)
            partial.replace(self.path)
            self.last = time.monotonic()
        return result
