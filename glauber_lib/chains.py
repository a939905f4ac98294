r"""Glauber dynamics: choose a free site uniformly, resample its token from the conditional.

.. math:: P_\tau(x, y) = \frac1n \sum_i \mathbf 1\{y_{-i} = x_{-i}\}\, \pi_{i,\tau}(y_i \mid x_{-i})

(paper §3). `run_chains` runs many chains at once, on the paths that the plain loop takes (`kernels`, `engine`) or, for
escape times far beyond what can be run step by step, jumping from move to move (`_Chains.jump`).
"""

import numpy as np
import torch
from tqdm.auto import tqdm

from glauber_lib.checkpoints import Checkpoint
from glauber_lib.draws import ABSENT, check_states, check_temperature, chunks, inverse_cdf, uniforms, weights
from glauber_lib.engine import ALWAYS, UNKNOWN, Conditionals, run_clocks
from glauber_lib.traces import Trace, moves_before


class _Chains:
    """The chains of one run on their way: states, what is known of their conditionals, moves."""

    def __init__(self, conditionals, state, temperature, frozen, until, stopped, max_moves):
        self.conditionals, self.state, self.temperature = conditionals, state, temperature
        self.until, self.stopped = until, stopped
        self.made, self.max_moves = np.zeros(len(state), np.int64), max_moves
        self.end = np.inf  # the step at which the limit of moves ends the run
        self.free = ~frozen & (state != ABSENT)
        self.n_free = self.free.sum(1)
        self.order = np.argsort(~self.free, axis=1, kind="stable")  # row k: its free sites first
        self.keep = np.empty((2, *state.shape))  # uniforms that keep the token
        self.keep[:] = UNKNOWN
        self.keep[:, stopped >= 0] = ALWAYS
        self.leave = np.where(self.free, np.nan, 0.0)  # probability that a step at the site is a move; nan: not known
        self.at_once = max(1, 2**24 // conditionals.model.n_tokens)  # rows of |V| float64 at a time
        self.moves = []  # arrays (5, .): step, chain, site, old, new

    def count(self, rows, start):
        """Take over the moves that `rows` made, each time they are named, in `start` steps before."""
        self.made += np.bincount(rows, minlength=len(self.made))
        if self.max_moves is not None and (self.made >= self.max_moves).any():
            self.end = start  # at the limit already

    def rest(self, rows, steps):
        """Chains that meet the condition after `steps` steps stay where they are."""
        if self.until is None or len(rows) == 0:
            return
        met = np.asarray(self.until(self.state[rows]), bool)
        self.stopped[rows[met]] = steps[met]
        self.keep[:, rows[met]] = ALWAYS

    def move(self, rows, sites, tokens, steps):
        """Change one token of each row."""
        self.moves.append(np.stack([steps, rows, sites, self.state[rows, sites], tokens]))
        self.state[rows, sites] = tokens
        self.made[rows] += 1
        if self.max_moves is not None and (full := self.made[rows] == self.max_moves).any():
            self.end = min(self.end, int(steps[full].min()) + 1)

    def step(self, rows, sites, uniform, steps):
        """One step of the chain `rows`: the token is the inverse of the conditional's distribution function."""
        law = weights(self.conditionals.scores(self.state[rows], sites), self.temperature[rows])
        drawn = torch.stack(inverse_cdf(law, torch.from_numpy(uniform[:, 0]).to(law.device)))
        token, *ends = drawn.cpu().numpy()  # one transfer: tokens are small enough for float64
        token = token.astype(np.int64)
        moved = token != self.state[rows, sites]
        self.keep[:, rows[moved]] = UNKNOWN
        self.keep[:, rows, sites] = ends
        if moved.any():
            self.move(rows[moved], sites[moved], token[moved], steps[moved])
            self.rest(rows[moved], steps[moved] + 1)

    def jump(self, *, seed, chains, entered, start, n_steps, progress, go_on):
        r"""From move to move: holding times are geometric with the exact probability to leave.

        A step moves with probability :math:`\frac1n\sum_i (1 - \pi_i(x_i \mid x_{-i}))`. The site is then chosen by
        its term of the sum, and the token from its conditional without the present one. Move `m` of a chain uses the
        numbers of counter `m` in a stream of its own.

        Parameters
        ----------
        entered : ndarray, int64[B]
            Step at which each chain entered its state.

        Returns
        -------
        int
            Steps that all chains have done.
        """
        end = start + n_steps
        active = self.stopped < 0

        def known():  # steps of which every chain's state is known; a state may have been entered before `start`
            return int(np.where(active, np.clip(entered, start, end), end).min())

        bar = tqdm(total=n_steps, desc=progress, unit="step", disable=progress is None, leave=False)
        try:
            while len(rows := np.flatnonzero(active)):
                self._learn_to_leave(rows)
                u = np.stack([uniforms(seed, chains[[k]], self.made[k], 1, stream=1)[0, 0] for k in rows])
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
                done = known() - start
                bar.update(done - bar.n)
                if not go_on(done):
                    return done
        except KeyboardInterrupt:
            end = known()
            bar.write(f"interrupted after {end - start} of {n_steps} steps: what was done by then is returned")
        finally:
            bar.close()
        return end - start

    def _learn_to_leave(self, rows):
        """Fill in the unknown probabilities to leave; summed over the other tokens, so that tiny ones are exact."""
        at, site = np.nonzero(np.isnan(self.leave[rows]))
        for part in chunks(np.arange(len(at)), self.at_once):
            chain = rows[at[part]]
            law = weights(self.conditionals.scores(self.state[chain], site[part]), self.temperature[chain])
            self.leave[chain, site[part]] = _other_share(law, self.state[chain, site[part]])

    def _leave(self, rows, uniform, steps):
        """The move at which each chain leaves its state."""
        site = inverse_cdf(torch.from_numpy(self.leave[rows]), torch.from_numpy(uniform[:, 0]))[0].numpy()
        law = weights(self.conditionals.scores(self.state[rows], site), self.temperature[rows])
        own = torch.from_numpy(self.state[rows, site]).to(law.device)[:, None]
        u = torch.from_numpy(uniform[:, 1]).to(law.device)
        token = inverse_cdf(law.scatter(1, own, 0.0), u)[0].cpu().numpy()
        self.leave[rows] = np.where(self.free[rows], np.nan, 0.0)
        self.leave[rows, site] = _other_share(law, token)
        self.move(rows, site, token, steps)
        self.rest(rows, steps + 1)


def _other_share(law, token):
    """Share float64[B] of the weights `law` that is not on `token`."""
    index = torch.as_tensor(token, device=law.device)[:, None]
    others = law.scatter(1, index, 0.0).sum(1)
    return (others / (others + law.gather(1, index)[:, 0])).cpu().numpy()


def run_chains(
    model,
    states,
    *,
    n_steps,
    temperature=1.0,
    seed=0,
    chains=None,
    frozen=None,
    until=None,
    holding="path",
    memory=None,
    max_moves=None,
    resume=None,
    checkpoint=None,
    progress=None,
):
    """Run B chains of Glauber dynamics side by side, each updating its own random site.

    Parameters
    ----------
    model : ConditionalModel
    states : array_like, int[B, n]
        Initial states (the final ones of `resume`, if that is given). A list of states of different lengths is filled
        up with -1.
    n_steps : int
        Steps of each chain, at most 2**62.
    temperature : float or array_like, float[B]
        One value or one per chain.
    seed : int
        With the chain's number it determines the path.
    chains : array_like, int[B], optional
        The chains' numbers; default ``0 .. B - 1``.
    frozen : array_like, bool[n] or bool[B, n], optional
        Sites never resampled, such as a prefix; each chain needs a free one.
    until : callable, optional
        A condition bool[K] on states int[K, n]: a chain stops for good as soon as it holds.
    holding : {"path", "geometric"}
        ``"path"``: every step is drawn, and the path is that of the plain loop. ``"geometric"``: the time to the next
        move is drawn at once from its exact law, for holding times of millions of steps and more; the law of the
        trace is the same, the path is another; holding times follow the model's rounding, to a relative 1e-6.
    memory : int, optional
        Bytes for remembered scores (`engine.Conditionals`); no result depends on it.
    max_moves : int, optional
        The run ends, with fewer than `n_steps`, when a chain has made so many moves: a budget of work beside that of
        steps. That is a stopping time of the chains, so that what it censors is censored as by any other budget.
    resume : Trace, optional
        A trace to go on from: `n_steps` more steps with its settings; `states` is then ignored. Give `until` again.
    checkpoint : str or Path, optional
        A file for what is done, written every five minutes and at the end, also by Ctrl-C: the same call goes on from
        there. Give `until` and `max_moves` again, and the same model: only its name is compared.
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
        chain without a free site, an unknown way of `holding`, or a checkpoint of another run.
    """
    if resume is not None:
        states = [row[row != ABSENT] for row in resume.final]
        temperature, seed, holding = resume.temperature, resume.seed, resume.holding
        chains, frozen = resume.chains, resume.frozen
    state = check_states(states, model.n_tokens)
    n_steps, seed = int(n_steps), int(seed)
    if not 0 <= n_steps <= 2**62:
        raise ValueError(f"n_steps must be >= 0 and at most 2**62, got {n_steps}")
    if max_moves is not None and max_moves < 1:
        raise ValueError(f"max_moves must be at least 1, got {max_moves}")
    if holding not in ("path", "geometric"):
        raise ValueError(f"holding must be 'path' or 'geometric', got {holding!r}")
    size, n = state.shape
    temperature = check_temperature(temperature, (size,))
    chains = np.arange(size) if chains is None else np.asarray(chains, dtype=np.int64)
    if chains.shape != (size,) or seed < 0:
        raise ValueError(f"need one chain number per state and a seed >= 0, got {chains.shape} for {size}, seed {seed}")
    frozen = np.broadcast_to(np.zeros(n, bool) if frozen is None else np.asarray(frozen, bool), (size, n)).copy()
    if (stuck := (frozen | (state == ABSENT)).all(1)).any():
        raise ValueError(f"every chain needs a free site; all are frozen in chain {int(np.argmax(stuck))}")

    target = n_steps + (0 if resume is None else resume.n_steps)
    kept = Checkpoint(checkpoint, Trace)
    same = {"initial": state.copy() if resume is None else resume.initial, "temperature": temperature, "seed": seed,
            "chains": chains, "frozen": frozen, "holding": holding, "model": getattr(model, "name", "")}  # fmt: skip
    if found := kept.resume(target, **same):
        resume, state = found, found.final.copy()
    start, calls, stopped, before = 0, 0, np.full(size, -1), np.zeros((5, 0), dtype=np.int64)
    if resume is not None:
        start, calls, stopped = resume.n_steps, resume.model_calls, resume.stopped.copy()
        before = np.stack([resume.step, resume.chain, resume.site, resume.old, resume.new])
    conditionals = Conditionals(model, memory)
    running = _Chains(conditionals, state, temperature, frozen, until, stopped, max_moves)
    running.count(before[1], start)
    running.rest(np.flatnonzero(stopped < 0), np.full((stopped < 0).sum(), start))

    def so_far(done):
        end = min(start + done, running.end)
        step, chain, site, old, new = moves_before(end, [before, *running.moves])
        return Trace(
            **same, step=step, chain=chain, site=site, old=old, new=new, n_steps=end,
            stopped=np.where(stopped > end, -1, stopped), model_calls=calls + conditionals.calls,
            complete=end in (target, running.end),
        )  # fmt: skip

    def go_on(done):
        ended = start + done >= running.end
        if kept.due() and not ended:
            kept.write(so_far(done))
        return not ended

    options = {"seed": seed, "chains": chains, "start": start, "n_steps": target - start, "progress": progress}
    if start in (target, running.end):
        done = 0
    elif holding == "geometric":
        entered = np.zeros(size, np.int64)
        np.maximum.at(entered, before[1], before[0] + 1)
        done = running.jump(entered=entered, go_on=go_on, **options)
    else:
        at_once = running.at_once
        done = run_clocks(
            running.step, running.keep, running.order, running.n_free, at_once=at_once, go_on=go_on, **options
        )
    return kept.write(so_far(done))
