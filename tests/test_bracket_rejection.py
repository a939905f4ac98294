"""Tokenwise rejection with backtracking on oracles for brackets: the process, its mistakes, and Algorithm 1."""

from collections import Counter

import numpy as np
import pytest

from glauber_lib.bracket_rejection import (
    Brackets,
    ConfusedOracle,
    complete,
    draw_prompts,
    error_prefixes,
    measure_completions,
    open_brackets,
)

RNG = np.random.default_rng


def strings_of(process, prefix=(), chance=1.0):
    """Every whole string with its probability, by the law of the process."""
    if len(prefix) == process.length:
        yield prefix, chance
        return
    for token, p in enumerate(process.law(prefix)):
        if p > 0:
            yield from strings_of(process, (*prefix, token), chance * p)


# The process ---------------------------------------------------------------------------------------------------------


def test_the_process_gives_all_strings_of_brackets_their_law():
    process = Brackets(6, 0.2, 0.5)
    law = dict(strings_of(process))
    assert len(law) == 40 and sum(law.values()) == pytest.approx(1)
    assert all(process.can_end_well(string) and open_brackets(string) == ([], True) for string in law)
    rng = RNG(0)
    seen = Counter(process.draw(6, rng) for _ in range(20_000))
    assert max(abs(seen[s] / 20_000 - p) / np.sqrt(p / 20_000) for s, p in law.items()) < 4.5
    closings = sum(p for s, p in law.items() if s[:2] == (2, 3))
    assert closings == pytest.approx(0.8 * 0.5)
    assert process.law([0, 2, 0])[1] == 1  # three open, three places left


def test_the_verifier_knows_what_can_end_well():
    process = Brackets(4)
    wanted = {string[:n] for string, _ in strings_of(process) for n in range(5)}
    for n in range(5):
        for string in np.ndindex(*(4,) * n):
            assert process.can_end_well(list(string) or np.zeros(0, int)) == (tuple(string) in wanted)


def test_the_entropy_of_the_thesis_s_strings():
    small = Brackets(6, 0.2, 0.5)
    listed = -sum(p * np.log(p) for _, p in strings_of(small)) / 6
    assert small.entropy() == pytest.approx(listed)
    assert f"{Brackets(32, 0.2, 0.5).entropy():.4f}" == "0.7493"


# Its mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bracket", "moment"])
def test_mistakes_are_wrong_closings_that_do_not_change(kind):
    oracle = ConfusedOracle(rate=0.5, kind=kind, seed=3)
    prompts = draw_prompts(Brackets(square=0.8), 200, seed=1)
    wrong = 0
    for prompt in prompts:
        law, right = oracle.law(prompt), oracle.process.law(prompt)
        np.testing.assert_array_equal(law, oracle.law(prompt))
        assert law.sum() == pytest.approx(1) and law[[0, 2]] == pytest.approx(right[[0, 2]])
        wrong += not np.allclose(law, right)
    assert 40 < wrong < 120
    assert all(np.allclose(ConfusedOracle(rate=0.0).law(p), oracle.process.law(p)) for p in prompts)


def test_a_misread_bracket_stays_misread_and_a_moment_passes():
    base = draw_prompts(Brackets(square=0.8), 300, seed=2, lengths=(10, 14))
    kept = {"bracket": [], "moment": []}
    for kind, found in kept.items():
        oracle = ConfusedOracle(rate=0.5, kind=kind)
        for prompt in base:
            still, _ = open_brackets(prompt)
            longer = (*prompt, 2, 3)  # a pair that changes nothing of the stack
            if still and len(still) < 10 and not np.allclose(oracle.law(prompt), oracle.process.law(prompt)):
                share = lambda x: oracle.law(x)[1::2].min() / oracle.law(x)[1::2].sum()  # noqa: E731, B023
                found.append(share(prompt) == pytest.approx(share(longer)))
    assert all(kept["bracket"]) and len(kept["bracket"]) > 20 and np.mean(kept["moment"]) < 0.1


def test_prefixes_before_a_mistake_are_right_and_the_next_token_goes_wrong_for_a_third():
    oracle = ConfusedOracle(rate=0.3)
    prompts = draw_prompts(Brackets(square=0.8), 1500, seed=3)
    found = error_prefixes(oracle, prompts, seed=1)
    assert len(found) > 200 and all(oracle.process.can_end_well(prefix) for prefix in found)
    share = measure_completions(oracle, found, [{}], seed=2).correct.mean()
    assert 0.15 < share < 0.4  # a share uniform on 0..1, met in proportion to itself, leaves one third right


# Algorithm 1 ---------------------------------------------------------------------------------------------------------


def test_without_quota_it_is_the_oracle():
    process, rng = Brackets(6), RNG(5)
    law = dict(strings_of(process))
    seen = Counter(complete(process, np.zeros(0, int), rng).string for _ in range(20_000))
    assert max(abs(seen[s] / 20_000 - p) / np.sqrt(p / 20_000) for s, p in law.items()) < 4.5


def test_calls_checks_and_backtracks_are_counted():
    process, prompt = Brackets(8), (2, 2, 3, 0)
    assert complete(process, prompt, RNG(0)).calls == 4
    found = complete(process, prompt, RNG(0), quota=3, stride=2, verifier_error=1.0)  # rejects what is right
    assert (found.backtracks, found.checks, found.calls) == (3, 3, 4 + 3 * 2)
    assert complete(process, prompt, RNG(0), quota=2, stride=2).backtracks == 0
    once = complete(process, prompt, RNG(0), erase_first=99)
    assert once.calls == 4 + 4 and len(once.string) == 8  # as many as were erased


def test_erased_tokens_come_back_by_argmax_and_reach_into_the_prompt():
    process = Brackets(8, 0.2, 0.4)
    found = complete(process, (0, 0, 0), RNG(1), erase_first=3)
    assert found.string[:3] == (2, 3, 2)  # the likeliest: open round, close, open round
    strings = {complete(process, (0, 0, 0), RNG(k), erase_first=3, regenerate="sample").string[:3] for k in range(30)}
    assert len(strings) > 3


def test_a_perfect_verifier_with_a_quota_makes_fewer_mistakes_and_one_that_lies_costs_calls():
    oracle, prompts = ConfusedOracle(rate=0.2), draw_prompts(Brackets(square=0.8), 400, seed=4)
    settings = [{}, {"quota": 4, "stride": 4}, {"quota": 4, "stride": 4, "verifier_error": 0.3}]
    table = measure_completions(oracle, prompts, settings).groupby("setting").mean()
    assert table.correct[1] > table.correct[0] + 0.03 and table.correct[1] > table.correct[2]
    assert table.calls[2] > table.calls[1] > table.calls[0] and table.checks[0] == 0
    again = measure_completions(oracle, prompts[:20], settings)
    assert again.equals(measure_completions(oracle, prompts[:20], settings))


def test_what_is_no_prompt_or_oracle_is_refused():
    for call in (
        lambda: Brackets(7), lambda: Brackets(8, 0.0), lambda: ConfusedOracle(kind="mood"),
        lambda: Brackets(4).law([0] * 4),
        lambda: complete(Brackets(4), [5], RNG(0)), lambda: complete(Brackets(4), [0], RNG(0), regenerate="beam"),
        lambda: measure_completions(ConfusedOracle(), [], [{}]), lambda: draw_prompts(Brackets(8), 2, lengths=(5, 9)),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"must|need"):
            call()
