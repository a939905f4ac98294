"""Odd arguments for every public function: the right answer, or an error before a model is asked; no hang, no nan."""

import copy
import inspect
import os
import signal
import zlib

import fuzz
import fuzz_world
import numpy as np
import pytest

DRAWS = int(os.environ.get("GLAUBER_FUZZ", "20"))  # of each function
# odd arguments make numpy warn of nan, of masks and of what overflows; what counts here is what is returned
pytestmark = pytest.mark.filterwarnings("default")
PATIENCE = 30  # seconds of one call
ELSEWHERE = {  # what is tried by tests of its own, and why not here
    "paper.runner": "starts notebooks", "paper.check": "measures speed, asks the hub", "hub": "asks the hub",
    "paper.run.Run": "writes the figures of a notebook", "embedded": "reads and writes weights",
    "loading": "reads weights", "networks": "asks a network of torch", "language": "asks a network of torch",
    "instruments.Embedder": "reads weights", "instruments.load": "reads weights", "paper.provenance": "asks git",
    "instruments.PipelineTopicScorer": "reads weights", "instruments.SentimentClassifier": "reads weights",
    "paper.progress": "draws bars", "paper.claims.check_entries": "reads notebooks", "engine.run_clocks": "chains",
    "checksums": "asks a network of torch", "paper.claims.read_results": "reads figures",
    "paper.compare.beside": "reads figures", "paper.compare.report": "reads figures", "paper.compare.main": "a command",
    "paper.compare.write": "writes files", "paper.cache.drop": "removes files",
    "modules": "asks a network of torch", "classifiers": "reads weights", "traces.where_met": "asked at every step",
}  # fmt: skip
KEEPS_TYPE = ("checks.check_labels", "draws.chunks", "paper.keys.describe")  # and what they hold
AS_IT_IS = ("checks.unmasked", "draws.weights", "draws.probabilities")  # let a nan pass, as they say

CALLS = {
    name: (function, owner)
    for name, function, owner in fuzz.public()
    if not any(name == other or name.startswith((f"{other}.", f"{other}_")) for other in ELSEWHERE)
}


@pytest.fixture(scope="module")
def world():
    return fuzz_world.build()


class Hang(BaseException):
    pass


def within_patience(call):
    """What `call` returns; a generator's whole yield."""

    def stop(*_):
        raise Hang

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(PATIENCE)
    try:
        found = call()
        return list(found) if inspect.isgenerator(found) else found
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


class Trial:
    """One function with its ordinary arguments."""

    def __init__(self, name, world):
        function, owner = CALLS[name]
        ordinary, special, instances, self.model = world
        if owner is not None:
            if owner.__name__ not in instances:
                pytest.skip(f"no ordinary {owner.__name__}")
            function = getattr(instances[owner.__name__], function.__name__)
        self.name, self.function, self.is_class = name, function, inspect.isclass(function)
        self.parameters = inspect.signature(function).parameters.values()
        try:
            self.arguments = fuzz.ordinary(name, inspect.signature(function), ordinary, special)
        except KeyError as error:
            pytest.skip(f"no ordinary {error}")
        self.doc = inspect.getdoc(function) or ""

    def call(self, arguments):
        kinds = {p.name: p.kind for p in self.parameters}
        first = [arguments[n] for n, k in kinds.items() if k != inspect.Parameter.KEYWORD_ONLY and n in arguments]
        named = {n: arguments[n] for n, k in kinds.items() if k == inspect.Parameter.KEYWORD_ONLY and n in arguments}
        return within_patience(lambda: self.function(*first, **named))

    def fresh(self):
        """The ordinary arguments; a generator of random numbers begins anew."""
        return {
            k: np.random.default_rng(0) if isinstance(v, np.random.Generator) else v for k, v in self.arguments.items()
        }

    def may_be_odd(self):
        kinds = (fuzz.PLAIN, list, tuple, dict)
        left_out = ("progress", "checkpoint", "resume", "name", "unit", "what")  # titles, and what tests of files try
        return [k for k, v in self.arguments.items() if k not in left_out and isinstance(v, kinds)]


@pytest.mark.parametrize("name", CALLS)
def test_odd_arguments(name, world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trial, rng = Trial(name, world), np.random.default_rng(zlib.crc32(name.encode()))
    try:
        usual, works = trial.call(trial.fresh()), True
    except Exception:  # no ordinary arguments are known: odd ones are tried all the same
        usual, works = None, False
    for _ in range(DRAWS if trial.may_be_odd() else 0):
        arguments, says_the_same = trial.fresh(), True
        names = trial.may_be_odd()
        for k in rng.choice(names, size=min(len(names), 1 + (rng.random() < 0.2)), replace=False):
            arguments[k], same = fuzz.odd_like(trial.arguments[k], rng)
            says_the_same &= same
        judge(trial, arguments, usual if works and says_the_same and name not in KEEPS_TYPE else None)


def judge(trial, arguments, usual):
    """AssertionError unless what comes is right: an error that is documented, or a result without a nan that is not."""
    shown = {k: v for k, v in arguments.items() if v is not trial.arguments[k]}
    said = f"{trial.name}({', '.join(f'{k}={v!r:.200}' for k, v in shown.items())})"
    before, answered = {k: copy.deepcopy(v) for k, v in shown.items() if k != "rng"}, trial.model.answered
    try:
        found = trial.call(arguments)
    except Hang:
        raise AssertionError(f"{said} takes more than {PATIENCE} s") from None
    except (ValueError, TypeError, AttributeError) as error:  # the last: an argument of another type
        early = trial.model.answered == answered or "model" not in arguments
        cold = "the chain is reducible" in str(error)  # at a small temperature, as only the answers show
        assert early or cold, f"{said}: {error!r} after a model was asked"
        return
    except Exception as error:
        assert type(error).__name__ in trial.doc, f"{said}: {error!r} is not documented"
        return
    if not trial.is_class:
        assert usual is None or fuzz.same(found, usual), f"{said}: {found!r:.200} instead of {usual!r:.200}"
        documented = "nan" in trial.doc or "NaN" in trial.doc or trial.name in AS_IT_IS + KEEPS_TYPE
        assert documented or not fuzz.has_nan(found), f"{said}: {found!r:.300} has a nan"
    changed = [k for k, v in before.items() if not fuzz.same(v, arguments[k])]
    assert not changed, f"{said} changed {changed}"


def test_most_functions_are_called_as_they_should_be(world, tmp_path, monkeypatch):
    """Odd arguments say little of a function whose other arguments are odd as well."""
    monkeypatch.chdir(tmp_path)
    works = []
    for name in CALLS:
        try:
            trial = Trial(name, world)
            trial.call(trial.fresh())
            works.append(name)
        except (Exception, pytest.skip.Exception):
            continue
    assert len(works) > 0.8 * len(CALLS), sorted(set(CALLS) - set(works))


def test_a_new_function_is_tried_without_being_listed():
    assert "chains.run_chains" in CALLS and "traces.Trace.states" in CALLS and "paper.profiles.load_profile" in CALLS
    assert len(CALLS) > 200
