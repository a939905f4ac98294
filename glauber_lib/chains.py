r"""Glauber dynamics: choose a free site uniformly, resample its token from the conditional.

.. math:: P_\tau(x, y) = \frac1n \sum_i \mathbf 1\{y_{-i} = x_{-i}\}\, \pi_{i,\tau}(y_i \mid x_{-i})

(paper §3). `run_chains` runs many chains at once, in one of two ways. `_SteppedChains` draws every step: the paths are
those of the plain loop (`kernels`), by the short cuts of `engine`. `_JumpingChains` goes from move to move, for escape
times far beyond what can be run step by step.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from tqdm.auto import tqdm

from glauber_lib.checkpoints import Checkpoint
from glauber_lib.checks import (
    ABSENT,
    check_chains,
    check_count,
    check_frozen,
    check_seed,
    check_states,
    check_temperature,
)
from glauber_lib.checksums import model_checksum, refuse_other_model, vocabulary_checksum
from glauber_lib.draws import chunks, inverse_cdf, uniforms, weights
from glauber_lib.engine import Conditionals, KeepIntervals, run_clocks
from glauber_lib.models import ConditionalModel
from glauber_lib.traces import Trace, first_met, moves_before, where_met

LONGEST = 2**62  # most steps of a run: twice as many are beyond 64 bits
_SETTINGS = (  # what makes a trace's path
    "initial", "temperature", "seed", "chains", "frozen", "holding", "model", "condition", "kernel"
)  # fmt: skip

REMEMBERED = 2**17  # states whose probabilities to leave are remembered, with 20 sites in 60 MB


# Chains on their way -------------------------------------------------------------------------------------------------


class _Chains:
    """The chains of one run: their states, the moves that they made, and what ends them.

    Parameters
    ----------
    model : ConditionalModel
    past : Trace
        What is done before; of no steps for a new run.
    target : int
        Steps to have done at the end, those of `past` included.
    until, max_moves, memory
        See `run_chains`.
    """

    def __init__(self, model, past, target, *, until, max_moves, memory):
        self.past, self.target, self.until, self.max_moves = past, target, until, max_moves
        self.conditionals = Conditionals(model, memory)
        self.at_once = max(1, 2**24 // model.n_tokens)  # rows of |V| float64 at a time
        self.seed, self.numbers, self.temperature = past.seed, past.chains, past.temperature
        self.state, self.stopped = past.final.copy(), past.stopped.copy()
        self.free = ~past.frozen & (self.state != ABSENT)
        self.n_free = self.free.sum(1)
        self.moves = [np.stack([past.step, past.chain, past.site, past.old, past.new])]  # arrays (5, .)
        self.n_moves = np.bincount(past.chain, minlength=len(self.state))
        spent = max_moves is not None and (self.n_moves >= max_moves).any()
        self.limit = past.n_steps if spent else np.inf  # steps after which `max_moves` ends the run
        waiting = np.flatnonzero(self.stopped < 0)
        self.stop_where_met(waiting, np.full(len(waiting), past.n_steps))

    def move(self, rows, sites, tokens, steps):
        """Change one token of each row."""
        self.moves.append(np.stack([steps, rows, sites, self.state[rows, sites], tokens]))
        self.state[rows, sites] = tokens
        self.n_moves[rows] += 1
        if self.max_moves is not None and (full := self.n_moves[rows] == self.max_moves).any():
            self.limit = min(self.limit, int(steps[full].min()) + 1)

    def stop_where_met(self, rows, steps):
        """Stop, after `steps` steps, the chains of `rows` that meet the condition `until`; returns these."""
        if self.until is None or len(rows) == 0:
            return rows[:0]
        met = where_met(self.until, self.state[rows])
        self.stopped[rows[met]] = steps[met]
        return rows[met]

    def so_far(self, done):
        """The trace of the first `done` steps, without those after the limit."""
        n_steps = min(done, self.limit)
        step, chain, site, old, new = moves_before(n_steps, self.moves)
        return replace(
            self.past, step=step, chain=chain, site=site, old=old, new=new, n_steps=n_steps,
            stopped=np.where(self.stopped > n_steps, -1, self.stopped),
            model_calls=self.past.model_calls + self.conditionals.calls, complete=n_steps in (self.target, self.limit),
        )  # fmt: skip


class _SteppedChains(_Chains):
    """Chains of which every step is drawn: the `engine.Walkers` of one run."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.sites = np.argsort(~self.free, axis=1, kind="stable")  # row k: its free sites first
        self.keep = KeepIntervals(*self.state.shape)
        self.keep.stop(np.flatnonzero(self.stopped >= 0))

    def advance(self, go_on, progress):
        """Run to the target; steps that all chains have done."""
        return run_clocks(self, start=self.past.n_steps, end=self.target, go_on=go_on, progress=progress)

    def step(self, rows, sites, uniform, steps):
        """One step of the chains `rows`: the token is the inverse of the conditional's distribution function."""
        law = weights(self.conditionals.scores(self.state[rows], sites), self.temperature[rows])
        drawn = torch.stack(inverse_cdf(law, torch.from_numpy(uniform[:, 0]).to(law.device)))
        token, low, high = drawn.cpu().numpy()  # one transfer: tokens are small enough for float64
        token = token.astype(np.int64)
        moved = token != self.state[rows, sites]
        self.keep.forget(rows[moved])
        self.keep.learn(rows, sites, low, high)
        if moved.any():
            self.move(rows[moved], sites[moved], token[moved], steps[moved])
            self.keep.stop(self.stop_where_met(rows[moved], steps[moved] + 1))


class _JumpingChains(_Chains):
    r"""Chains that go from move to move: the number of steps between two moves is drawn at once.

    A step from state x is a move with probability :math:`p = \frac1n\sum_i (1 - \pi_i(x_i \mid x_{-i}))`. The steps
    before the move are geometric with p. The site of the move is drawn by its term of the sum, and the token from its
    conditional without the present one. Move `m` of a chain uses the numbers of counter `m` in a stream of its own.
    """

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.leave = np.where(self.free, np.nan, 0.0)  # probability that a step at the site is a move; nan: not known
        self.known = {}  # the same by state: a chain comes back to most of what it leaves

    def advance(self, go_on, progress):
        """Run to the target; steps that all chains have done."""
        start, end = self.past.n_steps, self.target
        entered = np.zeros(len(self.state), np.int64)  # step at which each chain entered its state: before `start` too
        np.maximum.at(entered, self.past.chain, self.past.step + 1)
        active = self.stopped < 0

        def known():  # steps of which every chain's state is known
            return int(np.where(active, np.clip(entered, start, end), end).min())

        bar = tqdm(total=end - start, desc=progress, unit="step", disable=progress is None, leave=False)
        try:
            while len(rows := np.flatnonzero(active)):
                self._learn_to_leave(rows)
                u = np.stack([uniforms(self.seed, self.numbers[[k]], self.n_moves[k], 1, stream=1)[0, 0] for k in rows])
                rate = np.minimum(self.leave[rows].sum(1) / self.n_free[rows], 1.0)
                with np.errstate(divide="ignore", invalid="ignore"):
                    hold = np.where(rate > 0, np.floor(np.log1p(-u[:, 0]) / np.log1p(-rate)), np.inf)
                leaves = hold < end - entered[rows]
                active[rows[~leaves]] = False
                for part in chunks(np.flatnonzero(leaves), self.at_once):
                    now = np.maximum(entered[rows[part]] + hold[part].astype(np.int64), start)
                    self._leave(rows[part], u[part, 1:], now)
                    entered[rows[part]] = now + 1
                active &= self.stopped < 0
                done = known()
                bar.update(done - start - bar.n)
                if not go_on(done):
                    return done
        except KeyboardInterrupt:
            done = known()
            bar.write(f"interrupted after {done - start} of {end - start} steps: what was done by then is returned")
            return done
        finally:
            bar.close()
        return end

    def _learn_to_leave(self, rows):
        """Fill in the unknown probabilities to leave; summed over the other tokens, so that tiny ones are exact."""
        keys = {k: (self.state[k].tobytes(), self.free[k].tobytes(), self.temperature[k]) for k in rows}
        for k, key in keys.items():
            self.leave[k] = self.known.get(key, self.leave[k])
        at, site = np.nonzero(np.isnan(self.leave[rows]))
        for part in chunks(np.arange(len(at)), self.at_once):
            chain = rows[at[part]]
            law = weights(self.conditionals.scores(self.state[chain], site[part]), self.temperature[chain])
            self.leave[chain, site[part]] = _other_share(law, self.state[chain, site[part]])
        if len(self.known) > REMEMBERED:
            self.known.clear()
        self.known.update((key, self.leave[k].copy()) for k, key in keys.items())

    def _leave(self, rows, uniform, steps):
        """The move with which each chain leaves its state."""
        site = inverse_cdf(torch.from_numpy(self.leave[rows]), torch.from_numpy(uniform[:, 0]))[0].numpy()
        law = weights(self.conditionals.scores(self.state[rows], site), self.temperature[rows])
        own = torch.from_numpy(self.state[rows, site]).to(law.device)[:, None]
        u = torch.from_numpy(uniform[:, 1]).to(law.device)
        token = inverse_cdf(law.scatter(1, own, 0.0), u)[0].cpu().numpy()
        self.leave[rows] = np.where(self.free[rows], np.nan, 0.0)
        self.leave[rows, site] = _other_share(law, token)
        self.move(rows, site, token, steps)
        self.stop_where_met(rows, steps + 1)


def _other_share(law, token):
    """Share float64[B] of the weights `law` that is not on `token`."""
    index = torch.as_tensor(token, device=law.device)[:, None]
    others = law.scatter(1, index, 0.0).sum(1)
    return (others / (others + law.gather(1, index)[:, 0])).cpu().numpy()


# A run ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Default:
    """What a setting is where it is not given; told apart from one that is given, with which a trace must agree."""

    value: Any

    def __repr__(self):
        return repr(self.value)


_TEMPERATURE: Any = _Default(1.0)
_SEED: Any = _Default(0)
_HOLDING: Any = _Default("path")


def run_chains(
    model: ConditionalModel,
    states: ArrayLike | list | None,
    *,
    n_steps: int,
    temperature: ArrayLike = _TEMPERATURE,
    seed: int = _SEED,
    chains: ArrayLike | None = None,
    frozen: ArrayLike | None = None,
    until: Callable[[np.ndarray], ArrayLike] | None = None,
    holding: str = _HOLDING,
    memory: int | None = None,
    max_moves: int | None = None,
    resume: Trace | None = None,
    checkpoint: str | Path | None = None,
    progress: str | None = None,
) -> Trace:
    """Run B chains of Glauber dynamics side by side, each updating its own random site.

    Parameters
    ----------
    model : ConditionalModel
    states : array_like, int[B, n]
        Initial states (the final ones of `resume`, if that is given). A list of states of different lengths is filled
        up with -1.
    n_steps : int
        Steps of each chain, at most 2**62, those of `resume` included.
    temperature : float or array_like, float[B]
        One value or one per chain; 1 by default.
    seed : int
        With the chain's number it determines the path.
    chains : array_like, int[B], optional
        The chains' numbers, each its own; default ``0 .. B - 1``.
    frozen : array_like, bool[n] or bool[B, n], optional
        Sites never resampled, such as a prefix; each chain needs a free one.
    until : callable, optional
        A condition bool[K] on states int[K, n]: a chain stops for good as soon as it holds. Where it has a `cache_key`,
        which must hold all that it depends on, a trace or a checkpoint of another such condition is refused.
    holding : {"path", "geometric"}
        ``"path"``: every step is drawn, and the path is that of the plain loop. ``"geometric"``: the time to the next
        move is drawn at once from its exact law, for holding times of millions of steps and more; the law of the
        trace is the same, the path is another; holding times follow the model's rounding, to a relative 1e-6.
    memory : int, optional
        Bytes for remembered scores (`engine.Conditionals`); no result depends on it.
    max_moves : int, optional
        The run ends, with fewer than `n_steps`, when a chain has made so many moves: a budget of work beside that of
        steps. The end is a stopping time of the chains, so that what it censors is censored as by any other budget.
    resume : Trace, optional
        A trace to go on from: `n_steps` more steps of the same model with its settings, which need not be given again;
        `states` is then ignored. Give `until` again.
    checkpoint : str or Path, optional
        A file for what is done, written every five minutes and at the end, also by Ctrl-C: the same call goes on from
        there. Give `until` and `max_moves` again. A model without `cache_key` and name is not told from another: a
        warning says so.
    progress : str, optional
        Title of a progress bar; none by default.

    Returns
    -------
    Trace
        After Ctrl-C the steps done so far, with a message on the progress bar; resume from it to go on.

    Raises
    ------
    ValueError
        For a temperature that is not positive and finite, states that are no int[B, n] of tokens of the model, a
        `frozen` that is not boolean, a chain without a free site, chain numbers that are not one per state or not
        distinct, a seed, `n_steps` or `memory` that is no whole number >= 0, a `max_moves` below one, an `until` that
        does not return one truth value for each state, an unknown way of `holding`, a checkpoint of another run,
        another model or kernel than made the checkpoint or the trace `resume`, a setting beside it that is not the
        trace's, what was done before and `until` would have stopped elsewhere (it is asked of every state visited), or
        a checkpoint with more moves than `max_moves`.
    """
    n_steps = check_count(n_steps, "n_steps", most=LONGEST - (0 if resume is None else resume.n_steps))
    max_moves = None if max_moves is None else check_count(max_moves, "max_moves", least=1)
    settings = {"temperature": temperature, "seed": seed, "chains": chains, "frozen": frozen, "holding": holding}
    past = _unrun(model, states, settings) if resume is None else _gone_on(model, resume, settings)
    past = replace(past, condition=_digest_of(until, past))
    target = past.n_steps + n_steps
    file = Checkpoint(checkpoint)
    begun, past = past, file.resume(past, target, _SETTINGS)
    refuse_other_model(past, begun, f"checkpoint {str(checkpoint)!r}")
    _check_past(past, until, max_moves if past is not begun else None)
    make = _JumpingChains if past.holding == "geometric" else _SteppedChains
    running = make(model, past, target, until=until, max_moves=max_moves, memory=memory)

    def go_on(done: int) -> bool:
        if done >= running.limit:
            return False
        file.write_when_due(running.so_far, done)
        return True

    more = past.n_steps < min(target, running.limit)
    done = running.advance(go_on, progress) if more else past.n_steps
    return file.write(running.so_far(done))


def _check_past(past, until, max_moves):
    """ValueError where what is done is of a run that another condition `until` or number of moves would have ended."""
    if max_moves is not None and np.bincount(past.chain, minlength=1).max() > max_moves:
        raise ValueError(f"the checkpoint is of another run (max_moves): a chain made more than {max_moves} moves")
    if past.n_steps == 0 and (past.stopped < 0).all():  # a new run
        return
    met = np.full(len(past.initial), -1) if until is None else first_met(past, until)
    just = (past.stopped < 0) & (met == past.n_steps)  # where this run begins
    if (differing := np.flatnonzero((met != past.stopped) & ~just)).size:
        said = lambda steps: "at no step" if steps < 0 else f"after {steps} steps"  # noqa: E731
        row = differing[0]
        raise ValueError(
            f"what is done was run with another condition `until`: it stopped chain {row} {said(past.stopped[row])}, "
            f"and the present one first holds {said(met[row])}: give that condition again, or begin anew from "
            "the final states"
        )


def _digest_of(until, past):
    """Digest of a condition with a `cache_key`, otherwise empty; ValueError where `past` was run with another one."""
    condition = model_checksum(until)
    if past.condition and condition and past.condition != condition:
        raise ValueError(
            f"the trace to go on from was stopped by another condition `until` ({past.condition}, not {condition}): "
            "give that one, or begin anew"
        )
    return condition


def _gone_on(model, trace, settings):
    """The trace from which a run goes on; ValueError where the model or a given setting is not the one that made it."""
    if trace.kernel:
        raise ValueError(f"the trace to go on from was made by the kernel {trace.kernel}, not by Glauber dynamics")
    given = {k: v for k, v in settings.items() if v is not None and not isinstance(v, _Default)}
    whole = {k: getattr(trace, k) for k in settings} | given
    begun = _unrun(model, [row[row != ABSENT] for row in trace.final], whole)
    refuse_other_model(trace, begun, "the trace to go on from")
    if differing := [k for k in given if not np.array_equal(getattr(begun, k), getattr(trace, k))]:
        raise ValueError(
            f"the trace to go on from was made with another {', '.join(differing)}: leave out what `resume` holds, or "
            "begin anew from its final states"
        )
    return replace(trace, **{k: getattr(begun, k) for k in ("model", "model_checksum", "vocabulary_checksum")})


def _unrun(model, states, settings):
    """The trace of no steps from which these settings (see `run_chains`) begin; ValueError where one is not valid."""
    temperature, seed, chains, frozen, holding = (v.value if isinstance(v, _Default) else v for v in settings.values())
    initial, seed = check_states(states, model.n_tokens), check_seed(seed)
    size = len(initial)
    temperature = check_temperature(temperature, (size,))
    chains, frozen = check_chains(chains, size), check_frozen(frozen, initial)
    if holding not in ("path", "geometric"):
        raise ValueError(f"holding must be 'path' or 'geometric', got {holding!r}")
    none = np.zeros(0, np.int64)
    return Trace(
        initial, none, none, none, none, none, 0, temperature, seed, chains, frozen, np.full(size, -1), holding,
        getattr(model, "name", ""), complete=False, model_checksum=model_checksum(model),
        vocabulary_checksum=vocabulary_checksum(model),
    )  # fmt: skip
