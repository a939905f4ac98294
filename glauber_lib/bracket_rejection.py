"""Tokenwise rejection sampling with backtracking on oracles for brackets (Li, thesis, §3.2, Algorithm 1).

The tokens are [ ] ( ) as 0 to 3. `Brackets` is the exact next-token law of the thesis's process. `ConfusedOracle` is
an oracle with mistakes of the kind that the thesis counts in its language model: wrong closings, more often behind
prefixes with many square brackets. It stands in for that model, which is not rebuilt here.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from glauber_lib.checks import check_count, check_indices, check_seed
from glauber_lib.topic_models import check_lengths, check_within

KINDS = ("bracket", "moment")
REGENERATE = ("argmax", "sample")


def check_prefix(prefix: ArrayLike) -> tuple[int, ...]:
    """A string of brackets as tuple; ValueError for what is no list of tokens 0 to 3."""
    tokens = check_indices(prefix, 4, "tokens of a prefix")
    if tokens.ndim != 1:
        raise ValueError(f"a prefix must be a list of tokens, got shape {tokens.shape}")
    return tuple(tokens.tolist())


def open_brackets(prefix: ArrayLike) -> tuple[list[int], bool]:
    """Places of the brackets that are open after a prefix, and whether all closings match.

    A closing bracket closes the last open one even where it has the wrong type. ValueError as `check_prefix`.
    """
    return _open(check_prefix(prefix))


def _open(prefix):
    still, right = [], True
    for place, token in enumerate(prefix):
        if token % 2 == 0:
            still.append(place)
        else:
            right &= bool(still) and prefix[still[-1]] == token - 1
            del still[-1:]
    return still, right


@dataclass(frozen=True)
class Brackets:
    """The law of strings of brackets by Remark 3.2.1: forced closing as soon as all places left are needed.

    Attributes
    ----------
    length : int
        D, even.
    square : float
        Probability p that an opening bracket is square.
    opening : float
        Probability q of an opening bracket where both kinds are possible.

    Raises
    ------
    ValueError
        For an odd length, or probabilities outside 0.001..0.999.
    """

    length: int = 32
    square: float = 0.2
    opening: float = 0.5

    def __post_init__(self):
        object.__setattr__(self, "length", check_count(self.length, "length", 2, 1000))
        for name in ("square", "opening"):
            object.__setattr__(self, name, check_within(getattr(self, name), name, 0.001, 0.999))
        if self.length % 2:
            raise ValueError(f"length must be even, got {self.length}")

    def law(self, prefix: ArrayLike) -> np.ndarray:
        """Next-token law float64[4] after a prefix shorter than the length. ValueError for another."""
        prefix = self._checked(prefix)
        return np.array(self._law(prefix, _open(prefix)[0]))

    def _checked(self, prefix):
        prefix = check_prefix(prefix)
        if len(prefix) >= self.length:
            raise ValueError(f"a prefix must have fewer than {self.length} tokens, got {len(prefix)}")
        return prefix

    def _law(self, prefix, still):
        """The same as a list, given the places of the open brackets."""
        if not still:
            return [self.square, 0.0, 1 - self.square, 0.0]
        share = self.opening if len(still) < self.length - len(prefix) else 0.0
        law = [share * self.square, 0.0, share * (1 - self.square), 0.0]
        law[prefix[still[-1]] + 1] = 1 - share
        return law

    def can_end_well(self, prefix: ArrayLike) -> bool:
        """Whether some string of the language begins so: the perfect process verifier. ValueError for no prefix."""
        return self._can_end_well(check_prefix(prefix))

    def _can_end_well(self, prefix):
        still, right = _open(prefix)
        return right and len(still) <= self.length - len(prefix)

    def entropy(self) -> float:
        """Entropy of whole strings in nats a token: the least cross-entropy of a model, exact."""
        binary = lambda p: -(p * np.log(p) + (1 - p) * np.log(1 - p))  # noqa: E731
        depths, total = {0: 1.0}, 0.0
        for left in range(self.length, 0, -1):
            after: dict[int, float] = {}
            for depth, chance in depths.items():
                share = 1.0 if depth == 0 else self.opening if depth < left else 0.0
                total += chance * (share * binary(self.square) + (binary(share) if 0 < share < 1 else 0.0))
                for step, part in ((1, share), (-1, 1 - share)):
                    if part:
                        after[depth + step] = after.get(depth + step, 0.0) + chance * part
            depths = after
        return total / self.length

    def draw(self, length: int, rng: np.random.Generator) -> tuple[int, ...]:
        """A prefix of `length` tokens; ValueError for more than whole strings have."""
        prefix, still = [], []
        for u in rng.random(check_count(length, "length", 0, self.length)):
            token = _pick(self._law(prefix, still), u)
            still = [*still, len(prefix)] if token % 2 == 0 else still[:-1]
            prefix.append(token)
        return tuple(prefix)


def _pick(law, u):
    """The token at which a law's distribution function passes u."""
    for token in range(4):
        u -= law[token]
        if u < 0:
            return token
    return max(range(4), key=law.__getitem__)  # rounding


@dataclass(frozen=True)
class ConfusedOracle:
    """The exact oracle with wrong closings at some prefixes, always the same ones.

    A closing is hard with a chance of `rate` times the share of square brackets among the openings of a context. Of a
    hard one a share of the mass goes to the bracket of the other type, uniform on 0..1. A hash of the context and the
    seed fixes both: the oracle answers the same twice. The context of the kind ``"bracket"`` is the bracket that is to
    be closed and the tokens before it: it was misread, and stays so until it is erased. That of the kind ``"moment"``
    is the last tokens: any other token clears the mind.

    Attributes
    ----------
    process : Brackets
    rate : float
    kind : {"bracket", "moment"}
    window : int
        Tokens of a context.
    seed : int

    Raises
    ------
    ValueError
        For a rate outside 0..1, another kind, a window below one, or no seed.
    """

    process: Brackets = Brackets()
    rate: float = 0.05
    kind: str = "bracket"
    window: int = 12
    seed: int = 0

    def __post_init__(self):
        object.__setattr__(self, "rate", check_within(self.rate, "rate", 0.0, 1.0))
        object.__setattr__(self, "window", check_count(self.window, "window", 1, 1000))
        object.__setattr__(self, "seed", check_seed(self.seed))
        if self.kind not in KINDS:
            raise ValueError(f"kind must be one of {KINDS}, got {self.kind!r}")

    def law(self, prefix: ArrayLike) -> np.ndarray:
        """Next-token law float64[4] after a prefix shorter than the length. ValueError for another."""
        return np.array(self._law(self.process._checked(prefix)))

    def _law(self, prefix):
        still, _ = _open(prefix)
        law = self.process._law(prefix, still)
        if not still:
            return law
        end = still[-1] + 1 if self.kind == "bracket" else len(prefix)
        context = prefix[max(end - self.window, 0) : end]
        square, round_ = context.count(0), context.count(2)
        text = bytes(context) + len(still).to_bytes(2) + self.seed.to_bytes(8)
        digest = hashlib.blake2b(text, digest_size=8).digest()
        hard, share = int.from_bytes(digest[:4]) / 2**32, int.from_bytes(digest[4:]) / 2**32
        if square and hard < self.rate * square / (square + round_):
            right = prefix[still[-1]] + 1
            law[4 - right], law[right] = share * law[right], (1 - share) * law[right]
        return law


# Algorithm 1 ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Completion:
    """A completed string.

    Attributes
    ----------
    string : tuple of int
    calls : int
        Calls of the oracle.
    checks : int
        Calls of the verifier.
    backtracks : int
    """

    string: tuple[int, ...]
    calls: int
    checks: int
    backtracks: int


def complete(
    oracle: Brackets | ConfusedOracle,
    prompt: ArrayLike,
    rng: np.random.Generator,
    *,
    quota: int = 0,
    stride: int = 1,
    verifier_error: float = 0.0,
    regenerate: str = "argmax",
    erase_first: int = 0,
) -> Completion:
    """Complete a prompt by Algorithm 1.

    After each token the verifier says whether the string can still end well. If not, and the quota is not used up, the
    last `stride` tokens are erased, those of the prompt among them, and as many put in unverified. The pseudocode puts
    in a whole stride also where fewer tokens could be erased; here as many as were erased.

    Parameters
    ----------
    oracle : Brackets or ConfusedOracle
    prompt : array_like, int[n]
    rng : Generator
    quota, stride : int
        Q and B. No verifier is asked with a quota of zero.
    verifier_error : float
        Chance that the verifier's answer is turned.
    regenerate : {"argmax", "sample"}
        How erased tokens are put in.
    erase_first : int
        Erase and put in so many tokens before all else (Table 3.1).

    Raises
    ------
    ValueError
        For a prompt as long as whole strings or longer, counts below zero, a stride of zero, or another word.
    """
    process = oracle if isinstance(oracle, Brackets) else oracle.process
    string, quota = process._checked(prompt), check_count(quota, "quota", 0, 10**4)
    stride, erase_first = check_count(stride, "stride", 1), check_count(erase_first, "erase_first")
    error = check_within(verifier_error, "verifier_error", 0.0, 1.0)
    if regenerate not in REGENERATE:
        raise ValueError(f"regenerate must be one of {REGENERATE}, got {regenerate!r}")
    law = oracle._law if isinstance(oracle, ConfusedOracle) else lambda x: process._law(x, _open(x)[0])
    calls = checks = backtracks = 0

    def again(string, size):
        nonlocal calls
        size = min(size, len(string))
        string = string[: len(string) - size]
        for _ in range(size):
            now = law(string)
            string += (now.index(max(now)) if regenerate == "argmax" else _pick(now, rng.random()),)
            calls += 1
        return string

    string = again(string, erase_first)
    while len(string) < process.length:
        string += (_pick(law(string), rng.random()),)
        calls += 1
        if quota:
            checks += 1
            if process._can_end_well(string) == (rng.random() < error):
                string, quota, backtracks = again(string, stride), quota - 1, backtracks + 1
    return Completion(string, calls, checks, backtracks)


def draw_prompts(
    process: Brackets, n_prompts: int, seed: int = 0, lengths: tuple[int, int] = (25, 31)
) -> list[tuple[int, ...]]:
    """Prompts of uniform lengths within bounds, from the law of `process`.

    ValueError for no prompt, or lengths that whole strings do not exceed.
    """
    n_prompts, most = check_count(n_prompts, "n_prompts", 1, 10**6), process.length - 1
    low, high = check_lengths(lengths, 0, most)
    rng = np.random.default_rng([check_seed(seed), 77])
    return [process.draw(int(rng.integers(low, high + 1)), rng) for _ in range(n_prompts)]


def error_prefixes(oracle: ConfusedOracle, prompts: Sequence[ArrayLike], seed: int = 0) -> list[tuple[int, ...]]:
    """Prefixes after which a sampled completion made its first mistake, of those prompts where it made one.

    ValueError for a prompt that is none.
    """
    found, seed = [], check_seed(seed)
    for k, prompt in enumerate(prompts):
        string = complete(oracle, prompt, np.random.default_rng([seed, 78, k])).string
        wrong = [n for n in range(len(string) + 1) if not oracle.process._can_end_well(string[:n])]
        if wrong:
            found.append(string[: wrong[0] - 1])
    return found


def measure_completions(
    oracle: ConfusedOracle, prompts: Sequence[ArrayLike], settings: Sequence[dict[str, Any]], seed: int = 0
) -> pd.DataFrame:
    """How completions of prompts end under several settings of Algorithm 1.

    Parameters
    ----------
    oracle : ConfusedOracle
    prompts : list of array_like
    settings : list of dict
        Keyword arguments of `complete`, one for each setting.
    seed : int
        Prompt k has the same random numbers under every setting.

    Returns
    -------
    DataFrame
        A row for each setting and prompt: ``setting`` (its number), ``prompt``, ``correct``, ``calls``, ``checks``,
        ``backtracks``.

    Raises
    ------
    ValueError
        As `complete`, and for no prompt or no setting.
    """
    seed = check_seed(seed)
    if not len(prompts) or not len(settings):
        raise ValueError(f"need a prompt and a setting, got {len(prompts)} and {len(settings)}")
    rows = []
    for number, options in enumerate(settings):
        for k, prompt in enumerate(prompts):
            found = complete(oracle, prompt, np.random.default_rng([seed, 79, k]), **options)
            correct = oracle.process._can_end_well(found.string)
            rows.append((number, k, correct, found.calls, found.checks, found.backtracks))
    return pd.DataFrame(rows, columns=["setting", "prompt", "correct", "calls", "checks", "backtracks"])
