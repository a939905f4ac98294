"""Whether the tests notice small faults: random mutants of the library's core, each against the tests of its lines.

``make mutants`` installs what this needs and runs it; ``tests/mutants.md`` is its log. The operators are those of
cosmic-ray, all that need no arguments. A place is an operator, number, keyword, decorator, condition or loop of the code.
Places are drawn, and one mutant of each. No mutant is drawn of what is no code of a result: annotations and what is
raised. pytest collects once. Every mutant runs in a fork of that process, in which its module is executed anew and takes
the place of the old one wherever that was imported. Its tests are those of `TESTS` that ran the mutated statement, the
module's own first, the fast before the slow. It is killed by the first failure, or by ten times the time they take.
"""

import argparse
import ast
import difflib
import itertools
import json
import os
import random
import resource
import shutil
import sys
from pathlib import Path

import coverage
import hypothesis
import parso
import pytest
from cosmic_ray.ast import ast_nodes
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names
from statsmodels.stats.proportion import proportion_confint

ROOT = Path(__file__).parents[1]
MODULES = ("kernels", "engine", "couplings", "influence", "escape", "exact", "stats")
TESTS = (*MODULES, "chains", "margins", "permutation", "silent", "survival", "checks", "answers")
FAST = ["-q", "-p", "no:cacheprovider", "-p", "no:warnings", "-m", "not slow and not gpu"]


def source_of(module):
    """Where the module lies, and its text."""
    path = ROOT / "glauber_lib" / f"{module}.py"
    return path, path.read_text(encoding="utf-8")


# Mutants -------------------------------------------------------------------------------------------------------------


def places(module):
    """Mutants of a module by their place: {(module, family, line, column): [(operator, occurrence)]}."""
    _, source = source_of(module)
    spans = [(n.lineno, n.col_offset, n.end_lineno, n.end_col_offset) for n in _no_result(ast.parse(source))]
    nodes, found = list(ast_nodes(parso.parse(source))), {}
    for name in sorted(operator_names()):
        operator = get_operator(name)
        positions = [] if operator.arguments() else [at for n in nodes for at, _ in operator().mutation_positions(n)]
        for occurrence, at in enumerate(positions):
            if not any(span[:2] <= at < span[2:] for span in spans):
                found.setdefault((module, name.split("_")[0], *at), []).append((name, occurrence))
    return found


def _no_result(tree):
    for node in ast.walk(tree):
        raised = node.exc if isinstance(node, ast.Raise) else None
        yield from filter(None, (getattr(node, "annotation", None), getattr(node, "returns", None), raised))


def draw(count, seed):
    """So many mutants: dictionaries with the mutated text, and how many places there are."""
    found = {at: mutants for module in MODULES for at, mutants in places(module).items()}
    rng, mutants = random.Random(seed), []
    for at in rng.sample(sorted(found), len(found)):
        name, occurrence = rng.choice(found[at])
        _, source = source_of(at[0])
        code = mutate_code(source, get_operator(name)(), occurrence)
        try:
            if ast.dump(ast.parse(code)) == ast.dump(ast.parse(source)):
                continue
        except SyntaxError:
            continue
        changed = [line for line in difflib.ndiff(source.splitlines(), code.splitlines()) if line[0] in "-+"]
        mutants.append({"module": at[0], "line": at[2], "operator": name.split("/")[1], "diff": changed, "code": code})
        if len(mutants) == count:
            break
    return mutants, len(found)


def install(module, code):
    """Execute the text of a module in its own namespace, and put what it defines wherever the old was imported."""
    space = vars(sys.modules[f"glauber_lib.{module}"])
    before = dict(space)
    exec(compile(code, space["__file__"], "exec"), space)
    for other in [
        vars(m) for name, m in list(sys.modules.items()) if name.startswith(("glauber_lib", "test_", "conf"))
    ]:
        for key, value in list(other.items()):
            for name in [n for n, old in before.items() if value is old and (n == key or callable(old))]:
                other[key] = space[name]


# Tests ---------------------------------------------------------------------------------------------------------------


class Mutants:
    """The plugin of pytest that runs the mutants in the place of the tests."""

    def __init__(self, options):
        self.work, self.options, self.times = options.work, options, {}

    def pytest_runtest_logreport(self, report):
        """Seconds of each test, its fixtures with it."""
        self.times[report.nodeid] = self.times.get(report.nodeid, 0) + report.duration

    def pytest_runtestloop(self, session):
        """What ran which line, then every mutant that has no outcome yet; True: this was the loop."""
        items = {item.nodeid: item for item in session.items}
        if not (self.work / "times.json").exists():
            self.fork(lambda: self.trace(session))
            os.wait()
        self.times = json.loads((self.work / "times.json").read_text(encoding="utf-8"))
        if not (self.work / "mutants.json").exists():
            (self.work / "mutants.json").write_text(
                json.dumps(draw(self.options.count, self.options.seed)), encoding="utf-8"
            )
        mutants, data = read(self.work)[0], coverage.CoverageData(self.work / "coverage")
        data.read()
        again = self.options.again
        due = [m for m in mutants if not m["outcome"] or (again is not None and m["number"] in again)]
        running = {}
        while due or running:
            while due and len(running) < 2:
                mutant = due.pop(0)
                chosen = [items[name] for name in self.tests_of(mutant, data, items)]
                limit = 20 + 10 * sum(self.time_of(item.nodeid) for item in chosen)
                running[self.fork(lambda m=mutant, c=chosen, t=limit: self.attempt(session, m, c, t))] = mutant
            pid, status = os.wait()
            number, last = running.pop(pid)["number"], self.work / f"{pid}.last"
            ended = "survived" if status == 0 else "killed" if os.WIFEXITED(status) else "out of time"
            with (self.work / "outcomes.jsonl").open("a", encoding="utf-8") as file:
                file.write(
                    json.dumps({"number": number, "outcome": ended, "by": last.read_text(encoding="utf-8")}) + "\n"
                )
            last.unlink()
            shutil.rmtree(self.work / f"tmp{pid}")
        return True

    def fork(self, work):
        """Do the work in a process of its own, whose number is returned."""
        if pid := os.fork():
            return pid
        status = 3
        try:
            os.setpriority(os.PRIO_PROCESS, 0, 10)
            os.environ["PYTEST_DEBUG_TEMPROOT"] = str(self.work / f"tmp{os.getpid()}")
            (self.work / f"tmp{os.getpid()}").mkdir()
            status = work()
        finally:
            os._exit(status)

    def trace(self, session):
        """Run all tests under coverage, which notes with each line the tests that ran it."""
        watch = coverage.Coverage(self.work / "coverage", include=str(ROOT / "glauber_lib" / "*"), config_file=False)
        watch.start()
        for item, after in zip(session.items, [*session.items[1:], None], strict=True):
            watch.switch_context(item.nodeid)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        watch.stop()
        watch.save()
        (self.work / "times.json").write_text(json.dumps(self.times), encoding="utf-8")
        return session.testsfailed

    def tests_of(self, mutant, data, items):
        """Names of the tests that ran the mutated statement; of one that is run at import, those of the module."""
        path, source = source_of(mutant["module"])
        contexts, own = data.contexts_by_lineno(str(path)), f"tests/test_{mutant['module']}.py"
        lines = {}  # of each statement, of one with a body the lines before that
        for node in (n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.stmt)):
            end = node.body[0].lineno - 1 if getattr(node, "body", None) else node.end_lineno
            lines |= dict.fromkeys(range(node.lineno, end + 1), range(node.lineno, max(end, node.lineno) + 1))
        statement = lines.get(mutant["line"], ())  # none of a decorator
        names = {name for line in statement for name in contexts.get(line, ())} & set(items)
        new = {name for name in items if name not in self.times}  # not in the record of lines
        names |= {name for name in (new if names else items) if name.startswith(own)}
        order = sorted(names, key=self.time_of)
        mine, others = ([name for name in order if name.startswith(own) == yes] for yes in (True, False))
        spent = itertools.accumulate(map(self.time_of, others))
        return mine + [name for name, total in zip(others, spent, strict=True) if total <= self.options.seconds]

    def time_of(self, name):
        """Seconds of a test; a new one comes first."""
        return self.times.get(name, 0.0)

    def attempt(self, session, mutant, items, limit):
        """Run tests with the mutant until one fails; 1 if one did."""
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit), int(limit) + 5))
        note = self.work / f"{os.getpid()}.last"
        note.write_text("import", encoding="utf-8")
        install(mutant["module"], mutant["code"])
        for item, after in zip(items, [*items[1:], None], strict=True):
            note.write_text(item.nodeid, encoding="utf-8")
            if hasattr(item.function, "_hypothesis_internal_use_settings"):  # a smaller example is no matter here
                found = item.function._hypothesis_internal_use_settings
                phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
                item.function._hypothesis_internal_use_settings = hypothesis.settings(found, phases=phases)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            if session.testsfailed:
                return 1
        note.write_text("", encoding="utf-8")
        return 0


def read(work):
    """The mutants with what came of each, empty if nothing yet, and how many places there are."""
    mutants, n_places = json.loads((work / "mutants.json").read_text(encoding="utf-8"))
    found = [mutant | {"number": k, "outcome": "", "first": "", "by": ""} for k, mutant in enumerate(mutants)]
    file = work / "outcomes.jsonl"
    for line in map(json.loads, file.read_text(encoding="utf-8").splitlines() if file.exists() else ()):
        mutant = found[line["number"]]
        mutant |= line
        mutant["first"] = mutant["first"] or mutant["outcome"]
    return found, n_places


def report(work):
    """Print the score at first and now, and the survivors."""
    mutants, n_places = read(work)
    mutants = [mutant for mutant in mutants if mutant["outcome"]]
    for when in ("first", "outcome"):
        killed = sum(mutant[when] != "survived" for mutant in mutants)
        low, high = proportion_confint(killed, len(mutants), method="wilson")
        share = f"{killed / len(mutants):.1%} [{low:.1%}, {high:.1%}]"
        print(
            f"{killed} of {len(mutants)} killed {'at first' if when == 'first' else 'now'}, {share}; {n_places} places"
        )
    for mutant in (m for m in mutants if m["outcome"] == "survived"):
        print(
            f"\n{mutant['number']} {mutant['module']}.py:{mutant['line']} {mutant['operator']}",
            *mutant["diff"],
            sep="\n",
        )


def main():
    """Run what has no outcome yet, print the score and the survivors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=18)
    parser.add_argument("--seconds", type=float, default=20, help="for the tests of other modules, of each mutant")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "mutants")
    parser.add_argument("--again", type=int, nargs="+", help="numbers of mutants to run again, new tests first")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    files = [str(ROOT / "tests" / f"test_{name}.py") for name in TESTS]
    pytest.main([*FAST, "--rootdir", str(ROOT), *files], plugins=[Mutants(options)])
    report(options.work)


if __name__ == "__main__":
    main()
