"""Profiles, cached results, claims and outputs, the runner."""

import dataclasses
import json
import shutil
import tomllib

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import papermill
import pytest
from conftest import random_table
from PIL import Image

from glauber_lib import language, paper
from glauber_lib.chains import run_chains
from glauber_lib.embedded import EMBEDDED
from glauber_lib.models import TabularModel
from glauber_lib.paper import ROOT, Run, load_passages, load_profile
from glauber_lib.traces import Trace

PROFILES = tomllib.loads((ROOT / "notebooks" / "profiles.toml").read_text())


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A copy of what `paper` needs, in an empty folder: nothing is written into the repository."""
    shutil.copytree(ROOT / "glauber_lib", tmp_path / "glauber_lib", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "notebooks").mkdir()
    shutil.copy(ROOT / "notebooks" / "profiles.toml", tmp_path / "notebooks")
    (tmp_path / "data").mkdir()
    shutil.copy(ROOT / "data" / "passages.jsonl", tmp_path / "data")
    for name in paper.NOTEBOOKS:
        (tmp_path / "notebooks" / f"{name}.py").write_text('# %% tags=["parameters"]\nprofile = "mini"\n')
    monkeypatch.setattr(paper, "ROOT", tmp_path)
    monkeypatch.setattr(paper, "_git", lambda *arguments: "abc1234" if arguments[0] == "rev-parse" else "")
    monkeypatch.delenv("GLAUBER_CACHE", raising=False)
    return tmp_path


# Profiles ----------------------------------------------------------------------------------------------------------


def test_an_unknown_profile_or_notebook_is_refused_with_the_accepted_ones():
    with pytest.raises(ValueError, match=r"unknown profile 'mega', choose one of \['mini', 'paper', 'smoke'\]"):
        load_profile("mega", "02_bounds")
    with pytest.raises(ValueError, match=r"unknown notebook '05_more', choose one of \['01_incompatibility', "):
        load_profile("mini", "05_more")


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_has_the_keys_and_types_of_the_default(profile):
    kinds = lambda table: {k: type(v) for k, v in table.items()}  # noqa: E731
    own, default = PROFILES[profile], PROFILES["mini"]
    assert kinds(own) == kinds(default)
    for notebook in paper.NOTEBOOKS:  # whose table may say something else than the profile
        sizes, others = ({k: v for k, v in kinds(p[notebook]).items() if k not in default} for p in (own, default))
        assert sizes == others
        assert kinds(own[notebook]).items() <= (kinds(own) | sizes).items()
    assert {k for k, v in own.items() if isinstance(v, dict)} == {*paper.NOTEBOOKS, "revisions", "remote_code"}


def test_settings_are_the_profile_s_own_and_those_of_the_notebook_alone():
    settings = load_profile("mini", "03_crossover")
    assert settings["model"] == PROFILES["mini"]["model"]
    assert settings["trials"] == PROFILES["mini"]["03_crossover"]["trials"]
    assert "rectangles" not in settings and not set(settings) & set(paper.NOTEBOOKS)


def edit_profiles(root, change):
    """Let `change` alter the text of profiles.toml in the copy."""
    path = root / "notebooks" / "profiles.toml"
    path.write_text(change(path.read_text()))


def test_a_notebook_s_table_may_name_models_of_its_own(root):
    named = '[mini.03_crossover]\nmodel = "gpt-mini"\nmodels = ["minilm-3l"]\ncontrol = "minilm-6l"\n'
    edit_profiles(root, lambda text: text.replace("[mini.03_crossover]\n", named))
    settings = load_profile("mini", "03_crossover")
    assert (settings["model"], settings["models"], settings["control"]) == ("gpt-mini", ["minilm-3l"], "minilm-6l")
    assert load_profile("mini", "02_bounds")["model"] == PROFILES["mini"]["model"]  # only there
    assert Run("03_crossover", "mini")["model"] == "gpt-mini"
    assert paper.inputs_digest("03_crossover", "mini") != paper.inputs_digest("02_bounds", "mini")


def test_sizes_of_another_profile_bring_none_of_its_models(root, monkeypatch):
    for profile in ("mini", "paper"):
        table = f"[{profile}.03_crossover]\n"
        edit_profiles(root, lambda text, t=table, p=profile: text.replace(t, f'{t}model = "of-{p}"\nseed = 7\n'))
    edit_profiles(root, lambda text: text.replace("[mini.04_basins]\n", '[mini.04_basins]\ncontrol = "of-mini"\n'))
    monkeypatch.setenv("GLAUBER_SIZES", "mini")
    cut = load_profile("paper", "03_crossover")
    assert cut["trials"] == PROFILES["mini"]["03_crossover"]["trials"] != PROFILES["paper"]["03_crossover"]["trials"]
    assert cut["model"] == "of-paper" and cut["seed"] == 7  # its own table still counts
    basins = load_profile("paper", "04_basins")
    assert (basins["models"], basins["control"]) == (PROFILES["paper"]["models"], PROFILES["paper"]["control"])
    assert basins["steps"] == PROFILES["mini"]["04_basins"]["steps"]


def test_the_default_profile_needs_embedded_models_alone():
    for profile in ("mini", "smoke"):
        for notebook in paper.NOTEBOOKS:
            settings = load_profile(profile, notebook)
            assert {settings["model"], settings["control"], *settings["models"]} <= set(EMBEDDED)


def test_passages_that_every_embedded_model_reads_are_all_of_them(embedded):
    run = Run("01_incompatibility", "mini")
    assert len(run.passages(embedded("distilbert"), embedded("minilm-3l"))) == len(load_passages())


# Cache -------------------------------------------------------------------------------------------------------------

CALLS = []


def add(x, y=0, progress=None):
    CALLS.append((x, y))
    return x + y


def rank(model, seed=0):
    CALLS.append(model)
    return len(CALLS)


@pytest.fixture(autouse=True)
def no_calls():
    CALLS.clear()


def test_a_result_is_computed_once_and_again_when_an_argument_changes(root):
    run = Run("02_bounds", "smoke")
    assert [run.cached(add, 1, y=2), run.cached(add, 1, y=2), run.cached(add, 1, y=3), run.cached(add, 2, y=2)] == [
        3,
        3,
        4,
        4,
    ]
    assert CALLS == [(1, 2), (1, 3), (2, 2)]
    assert Run("03_crossover", "smoke").cached(add, 1, y=2) == 3 and len(CALLS) == 3  # shared between notebooks


def test_arrays_are_compared_by_content(root):
    run = Run("02_bounds", "smoke")
    run.cached(add, np.arange(3))
    run.cached(add, np.arange(3))
    assert len(CALLS) == 1
    run.cached(add, np.arange(3) + 1)
    assert len(CALLS) == 2


@pytest.mark.parametrize(
    "make", [lambda k: pd.Series([k, 1], name="text"), lambda k: ROOT / str(k) / "same.txt"], ids=["series", "path"]
)
def test_things_that_have_a_name_are_not_taken_for_it(root, make):
    run = Run("02_bounds", "smoke")
    for k in (1, 2):
        run.cached(rank, make(k))
    assert len(CALLS) == 2  # same name, other content: the stored result would be wrong


def test_a_progress_title_does_not_count(root):
    run = Run("02_bounds", "smoke")
    run.cached(add, 1, progress="adding")
    run.cached(add, 1, progress="still adding")
    run.cached(add, 1)
    assert len(CALLS) == 1


def test_a_model_counts_by_its_weights_and_vocabulary(root, tiny_folders):
    run = Run("02_bounds", "smoke")
    load = lambda **options: language.load_model(tiny_folders["bert"], **options)  # noqa: E731
    assert run.cached(rank, load()) == run.cached(rank, load(batch_tokens=50)) == 1
    changed = load()
    changed.network.bert.embeddings.word_embeddings.weight.data[7, 7] += 1e-4
    assert run.cached(rank, changed) == 2
    assert run.cached(rank, load(vocabulary=range(300, 310))) == 3
    assert run.cached(rank, random_table(2, 2)) == 4
    assert run.cached(rank, random_table(2, 2, seed=1)) == 5
    assert run.cached(rank, random_table(2, 2)) == 4  # the same again, another object


def test_a_method_of_a_model_counts_by_the_model(root, tiny_folders):
    run = Run("01_incompatibility", "smoke")  # which ranks replacements by a method of the control
    methods = [language.load_model(tiny_folders["gpt2"], causal=True).proposals for _ in range(2)]
    assert run.cached(rank, methods[0]) == run.cached(rank, methods[1]) == 1


def test_a_change_of_the_library_makes_all_results_stale(root):
    Run("02_bounds", "smoke").cached(add, 1)
    (root / "glauber_lib" / "exact.py").write_text("# changed")
    Run("02_bounds", "smoke").cached(add, 1)
    assert len(CALLS) == 2


def test_the_cache_can_be_switched_off(root, monkeypatch):
    monkeypatch.setenv("GLAUBER_CACHE", "off")
    run = Run("02_bounds", "smoke")
    run.cached(add, 1)
    run.cached(add, 1)
    assert len(CALLS) == 2 and not (root / "build" / "cache").exists()


def test_a_failed_computation_stores_nothing(root):
    run = Run("02_bounds", "smoke")
    with pytest.raises(TypeError):
        run.cached(add, 1, y="2")
    assert not list(root.glob("build/cache/*"))


def test_an_interrupted_run_is_not_stored_as_the_result(root):
    run = Run("02_bounds", "smoke")
    whole = run_chains(random_table(2, 2), [[0, 0]], n_steps=5)
    with pytest.raises(KeyboardInterrupt):
        run.cached(lambda: dataclasses.replace(whole, complete=False))
    assert not list(root.glob("build/cache/*"))


def interruptible(steps, *, checkpoint=None):
    """Half the steps at a time, the first half given up."""
    if checkpoint.exists():
        return steps, int(checkpoint.read_text())
    checkpoint.write_text(str(steps // 2))
    raise KeyboardInterrupt


def test_a_computation_that_can_be_resumed_is_given_a_file_in_the_cache(root):
    run = Run("02_bounds", "smoke")
    with pytest.raises(KeyboardInterrupt):
        run.cached(interruptible, 10)
    [file] = root.glob("build/cache/*")
    assert run.cached(interruptible, 10) == (10, 5)
    assert [path.suffix for path in root.glob("build/cache/*")] == [".joblib"]  # the result is kept, and that is all
    with pytest.raises(KeyboardInterrupt):
        run.cached(interruptible, 20)  # another file
    [other] = root.glob("build/cache/*.npz")
    assert other != file


def test_where_a_result_cannot_be_stored_what_was_done_is_not_lost(root, monkeypatch):
    run, options = Run("02_bounds", "smoke"), {"n_steps": 100, "seed": 1}
    model = TabularModel(np.random.default_rng(0).normal(size=(2, 3, 3)))
    monkeypatch.setattr(paper.joblib, "dump", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        run.cached(run_chains, model, [[0, 0]], **options)
    [file] = root.glob("build/cache/*.npz")
    assert Trace.load(file).n_steps == 100


def test_chains_interrupted_in_a_cached_call_go_on_where_they_were(root):
    class Interrupted(TabularModel):
        left = 30  # calls until Ctrl-C

        def scores(self, states, sites):
            Interrupted.left -= 1
            if Interrupted.left == 0:
                raise KeyboardInterrupt
            return super().scores(states, sites)

    table = np.random.default_rng(0).normal(size=(2, 3, 3))
    run, model, options = Run("02_bounds", "smoke"), Interrupted(table), {"n_steps": 100, "seed": 1}
    with pytest.raises(KeyboardInterrupt):
        run.cached(run_chains, model, [[0, 0]], **options)
    trace = run.cached(run_chains, model, [[0, 0]], **options)
    whole = run_chains(TabularModel(table), [[0, 0]], **options)
    assert np.array_equal(trace.step, whole.step) and np.array_equal(trace.new, whole.new)
    assert trace.model_calls > whole.model_calls / 2 and trace.complete  # the calls of both
    assert [path.suffix for path in root.glob("build/cache/*")] == [".joblib"]


# Claims ------------------------------------------------------------------------------------------------------------


def test_a_claim_is_recorded_as_json_can_hold_it(root, capsys):
    run = Run("02_bounds", "smoke")
    run.claim("alpha", "Alpha is small.", np.float32(0.5), published=0.25, interval=np.array([0.25, np.inf]),
              kind="lower bound", n=np.int64(8), verdict=np.bool_(False), why="0.5 > 0.25")  # fmt: skip
    (claim,) = json.loads(json.dumps(run.claims))
    assert claim == {
        "id": "bounds/alpha", "statement": "Alpha is small.", "published": 0.25, "measured": 0.5,
        "interval": [0.25, None], "kind": "lower bound", "n": 8, "verdict": "does not hold", "why": "0.5 > 0.25",
    }  # fmt: skip
    printed = capsys.readouterr().out
    assert "bounds/alpha: 0.5" in printed and "published 0.25" in printed and "does not hold" in printed


@pytest.mark.parametrize("fault", [{"kind": "guess"}, {"verdict": "maybe"}, {"verdict": "True"}])
def test_a_claim_of_unknown_kind_or_verdict_is_refused(root, fault):
    run = Run("02_bounds", "smoke")
    with pytest.raises(ValueError, match="kind must be one of"):
        run.claim("x", "X.", 1.0, **{"verdict": True, **fault})
    assert run.claims == []


def test_a_claim_is_recorded_once(root):
    run = Run("02_bounds", "smoke")
    run.claim("x", "X.", 1.0, verdict=True)
    with pytest.raises(ValueError, match="'bounds/x' recorded twice"):
        run.claim("x", "X.", 1.0, verdict=True)


def results(root):
    return json.loads((root / "build" / "smoke" / "figures" / "results.json").read_text())


def test_finish_replaces_only_its_own_claims(root):
    for notebook, values in (
        ("02_bounds", {"a": 1.0, "b": 2.0}),
        ("03_crossover", {"a": 3.0}),
        ("02_bounds", {"b": 4.0}),
    ):
        run = Run(notebook, "smoke")
        for id, value in values.items():
            run.claim(id, "A statement.", value, verdict=True)
        run.finish()
    assert {c["id"]: c["measured"] for c in results(root)["claims"]} == {"bounds/b": 4.0, "crossover/a": 3.0}
    assert set(results(root)["provenance"]["seconds"]) == {"02_bounds", "03_crossover"}
    assert results(root)["provenance"]["notebooks"]["02_bounds"]["commit"] == "abc1234"


def test_provenance_names_what_the_result_depends_on(root, tiny_folders):
    run = Run("02_bounds", "smoke")
    model = run.model(tiny_folders["bert"])
    assert run.model(tiny_folders["bert"]) is model
    facts = run.provenance
    assert (facts["profile"], facts["seed"], facts["commit"], facts["dirty"]) == ("smoke", 0, "abc1234", False)
    assert list(facts["models"].values()) == [model.checksum]
    assert facts["versions"]["numpy"] == np.__version__


# Outputs -----------------------------------------------------------------------------------------------------------

LABEL = "02_bounds, profile smoke, seed 0, commit abc1234"


def test_tables_carry_profile_seed_and_commit(root):
    table = pd.DataFrame({"model": ["one", "two"], "mean": [1.23456, np.nan]})
    run = Run("02_bounds", "smoke")
    assert run.save_table(table, "summary") is table
    text = (run.figures / "summary.csv").read_text()
    assert text.splitlines()[0] == f"# {LABEL}"
    pd.testing.assert_frame_equal(pd.read_csv(run.figures / "summary.csv", comment="#"), table)
    markdown = (run.figures / "summary.md").read_text()
    assert LABEL in markdown and "1.23" in markdown and "nan" not in markdown.lower()


def test_figures_carry_profile_seed_and_commit(root):
    run = Run("02_bounds", "smoke")
    figure, _ = plt.subplots()
    run.save_figure(figure, "curve")
    with Image.open(run.figures / "curve.png") as image:
        assert image.text["Description"] == LABEL
    assert LABEL.encode() in (run.figures / "curve.pdf").read_bytes()
    assert run.outputs == ["curve.png", "curve.pdf"]
    first = (run.figures / "curve.pdf").read_bytes()
    run.save_figure(figure, "curve")
    assert (run.figures / "curve.pdf").read_bytes() == first  # no time stamp: the same figure is the same file
    plt.close(figure)


def test_the_default_profile_writes_to_figures_and_the_others_to_build(root):
    assert Run("02_bounds", "mini").figures == root / "figures"
    assert Run("02_bounds", "smoke").figures == root / "build" / "smoke" / "figures"


# The runner --------------------------------------------------------------------------------------------------------


def finished(root, notebook="02_bounds"):
    """Outputs and stamps of a notebook, as after a run."""
    run = Run(notebook, "smoke")
    run.save_table(pd.DataFrame({"x": [1]}), f"table_{notebook}")
    run.finish()
    (root / "build" / "smoke" / f"{notebook}.digest").write_text(paper.inputs_digest(notebook, "smoke"))
    return run


def test_a_finished_notebook_is_current_until_an_output_is_gone(root):
    assert not paper.is_current("02_bounds", "smoke")
    run = finished(root)
    assert paper.is_current("02_bounds", "smoke")
    assert not paper.is_current("03_crossover", "smoke")
    (run.figures / "table_02_bounds.md").unlink()
    assert not paper.is_current("02_bounds", "smoke")


@pytest.mark.parametrize(
    "path, change",
    [
        ("notebooks/02_bounds.py", "\n# another cell\n"),
        ("glauber_lib/exact.py", "\n# another line\n"),
        ("data/passages.jsonl", '{"id": "new", "topic": "food", "text": "another"}\n'),
        ("notebooks/profiles.toml", "\n[smoke.02_bounds.extra]\nx = 1\n"),
    ],
)
def test_a_notebook_is_not_current_after_a_change_of_its_input(root, path, change):
    finished(root)
    with (root / path).open("a") as file:
        file.write(change)
    assert not paper.is_current("02_bounds", "smoke")


def test_a_notebook_stays_current_when_another_one_changes(root):
    finished(root)
    (root / "notebooks" / "03_crossover.py").write_text("# changed")
    assert paper.is_current("02_bounds", "smoke")


def test_a_notebook_is_not_current_after_an_upgrade(root, monkeypatch):
    finished(root)
    monkeypatch.setattr(paper, "versions", lambda: {"torch": "3.0"})
    assert not paper.is_current("02_bounds", "smoke")


@pytest.mark.parametrize("arguments", [["--profile", "mega"], ["--notebook", "05_more"]])
def test_the_command_refuses_unknown_names_with_status_two(root, arguments, capsys, monkeypatch):
    monkeypatch.setattr(paper, "run_notebook", lambda *_: pytest.fail("ran a notebook"))
    assert paper.main(arguments) == 2
    assert "choose one of" in capsys.readouterr().err


def test_one_failing_notebook_fails_the_command_but_not_the_others(root, monkeypatch):
    ran = []

    def run_notebook(notebook, profile, position):
        ran.append(notebook)
        if notebook == "02_bounds":
            raise papermill.exceptions.PapermillExecutionError(0, 1, "1 / 0", "ZeroDivisionError", "by zero", [])
        return 0.0

    monkeypatch.setattr(paper, "run_notebook", run_notebook)
    assert paper.main(["--profile", "smoke", "--jobs", "1"]) == 1 and ran == list(paper.NOTEBOOKS)


def test_an_interrupted_command_says_so_by_its_status(root, monkeypatch):
    def interrupted(notebook, profile, position):
        raise KeyboardInterrupt

    monkeypatch.setattr(paper, "run_notebook", interrupted)
    assert paper.main(["--profile", "smoke", "--jobs", "1"]) == 130


def test_a_second_run_does_nothing_unless_forced(root, monkeypatch):
    ran = []

    def run_notebook(notebook, profile, position):
        ran.append(notebook)
        finished(root, notebook)
        return 0.0

    monkeypatch.setattr(paper, "run_notebook", run_notebook)
    assert paper.main(["--profile", "smoke", "--jobs", "1"]) == 0 and ran == list(paper.NOTEBOOKS)
    assert paper.main(["--profile", "smoke", "--jobs", "1"]) == 0 and ran == list(paper.NOTEBOOKS)
    assert paper.main(["--profile", "smoke", "--notebook", "02_bounds", "--force", "--jobs", "1"]) == 0
    assert ran == [*paper.NOTEBOOKS, "02_bounds"]


HEADER = """# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

"""


def test_a_notebook_is_run_with_the_profile_and_a_failing_one_is_an_error(root):
    source = root / "notebooks" / "02_bounds.py"
    cells = HEADER + '# %% tags=["parameters"]\nprofile = "mini"\n\n# %%\nopen("seen.txt", "w").write(profile)\n'
    source.write_text(cells)
    paper.run_notebook("02_bounds", "smoke")
    assert (root / "seen.txt").read_text() == "smoke"
    executed = json.loads((root / "build" / "smoke" / "02_bounds.ipynb").read_text())
    assert not [o for c in executed["cells"] for o in c.get("outputs", []) if o["output_type"] == "error"]
    digest = root / "build" / "smoke" / "02_bounds.digest"
    assert digest.read_text() == paper.inputs_digest("02_bounds", "smoke")
    source.write_text(cells + "\n# %%\n1 / 0\n")
    with pytest.raises(papermill.exceptions.PapermillExecutionError, match="ZeroDivisionError"):
        paper.run_notebook("02_bounds", "smoke")
    assert not digest.exists()  # so that the next run starts it again


def test_passages_have_an_id_a_topic_and_a_text():
    assert list(load_passages().columns) == ["id", "topic", "text"]


def test_passages_a_model_cannot_read_are_left_out(root, tiny, tmp_path):
    (tmp_path / "mine.txt").write_text("A short text.\nA text with \N{SNOWMAN} in it.\nAnother text.\n")
    run = Run("02_bounds", "smoke")
    run.settings["passages"] = str(tmp_path / "mine.txt")
    model = tiny["bert"]  # whose word pieces know no snowman; byte pairs know everything
    assert model.reads("A short text.") and not model.reads("\N{SNOWMAN}")
    assert list(run.passages(model).text) == ["A short text.", "Another text."]
    assert len(run.passages()) == len(run.passages(tiny["roberta"])) == 3
    (tmp_path / "mine.txt").write_text("\N{SNOWMAN}\n")
    with pytest.raises(ValueError, match="outside a model's vocabulary"):
        run.passages(model)
