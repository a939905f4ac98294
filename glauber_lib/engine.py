r"""The engine under `run_chains` and `coalesce`: the paths of the plain loop (`kernels`), with far fewer model calls.

A path depends on none of these short cuts, but for the rounding of a language model's scores, which differs from batch
to batch: paths may part where a uniform lies within it of a boundary.

1. Only the masked site goes through the language-model head, and through the last layer (`language.MaskedLM`).
2. A site's conditional is the same until another site changes: the interval of uniforms that keeps its token is
   remembered (``keep``), and nothing is computed for a step whose uniform lies in it.
3. Every chain has its own clock (`run_clocks`). Random numbers are drawn ahead, each clock is moved to the first step
   that falls outside what is known, and one model call serves all chains, whatever their steps.
4. Scores are kept in a bounded store, by masked state (`Conditionals`): for the draw that follows a kept token, for
   states a chain comes back to, and for other chains and temperatures.
"""

from collections import OrderedDict

import numpy as np
import torch
from tqdm.auto import tqdm

from glauber_lib.draws import ABSENT, chunks, uniforms

STORE = 2 * 2**30  # bytes of remembered scores: 512 chains of 20 sites with |V| = 30,000 take 1.2 GiB of them
UNKNOWN = np.array([2.0, -1.0]).reshape(2, 1, 1)  # an interval no uniform lies in, for `keep`
ALWAYS = np.array([0.0, 2.0]).reshape(2, 1, 1)  # an interval every uniform lies in
MASKED = -2


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


# Clocks --------------------------------------------------------------------------------------------------------------


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
                for part in chunks(rows, at_once):
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
