"""Profiles and their notebooks, claims and outputs, the runner."""

import collections
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import threading
import tomllib
from types import SimpleNamespace

import joblib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import papermill
import pytest
from conftest import TEXTS
from markdown_it import MarkdownIt
from PIL import Image
from scipy.stats import permutation_test
from tqdm.auto import tqdm

from glauber_lib import embedded, sources, stats
from glauber_lib.influence import measure_influence, replacement_tokens
from glauber_lib.language import MaskedLM
from glauber_lib.paper import (
    ROOT,
    Run,
    claims,
    compare,
    keys,
    load_passages,
    load_profile,
    profiles,
    progress,
    provenance,
    runner,
    tables,
)
from glauber_lib.stats import Estimate

PROFILES = tomllib.loads((ROOT / "notebooks" / "profiles.toml").read_text())
SECTIONS = ["01_incompatibility", "02_bounds", "03_crossover", "04_basins"]
CLAIMS = """
["bounds/alpha"]
statement = "Alpha is below one."
side = "below"
than = 1
contradicted_by = "An interval above one."
units = "contexts"
least = 20
published = 0.25
printed = "Table 2"

["bounds/size/{model}/{temperature}"]
statement = "The size of {model} at τ = {temperature}."
side = "measured"
published = { "0.5" = 0.08, 1 = 0.066 }

["bounds/beats-chance"]
statement = "More than by chance."
side = "above"
contradicted_by = "An interval below chance."

["crossover/alpha"]
statement = "Another alpha."
side = "measured"
"""
STUB = '# %% tags=["parameters"]\nprofile = "mini"\n\n# %%\nfrom glauber_lib import exact\n'
MEASURED = {  # never reached: the check of the entries reads the source
    "02_bounds": """
if False:
    run.claim("bounds/alpha", x)
    run.claim(f"bounds/size/{name}/{temperature:g}", x)
    run.claim("bounds/beats-chance", x, than=y)
""",
    "03_crossover": 'if False:\n    run.claim("crossover/alpha", x)\n',
}


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A copy of what `paper` needs, with empty notebooks: nothing is written into the repository."""
    shutil.copytree(ROOT / "glauber_lib", tmp_path / "glauber_lib", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "notebooks").mkdir()
    shutil.copy(ROOT / "notebooks" / "profiles.toml", tmp_path / "notebooks")
    (tmp_path / "notebooks" / "claims.toml").write_text(CLAIMS)
    (tmp_path / "data" / "models" / "minilm-3l").mkdir(parents=True)
    shutil.copy(embedded.DATA / "passages.jsonl", tmp_path / "data")
    (tmp_path / "data" / "models" / "minilm-3l" / "model.safetensors").write_bytes(b"weights")
    for name in SECTIONS:
        (tmp_path / "notebooks" / f"{name}.py").write_text(STUB + MEASURED.get(name, ""))
    monkeypatch.setattr(profiles, "ROOT", tmp_path)
    monkeypatch.setitem(sources.FOLDERS, sources.LIBRARY, tmp_path)
    monkeypatch.setattr(embedded, "DATA", tmp_path / "data")
    monkeypatch.setattr(provenance, "repository_state", lambda: ("abc1234", False))
    monkeypatch.delenv("GLAUBER_CACHE", raising=False)
    return tmp_path


# Profiles ----------------------------------------------------------------------------------------------------------


def test_an_unknown_profile_or_notebook_is_refused_with_the_accepted_ones():
    with pytest.raises(ValueError, match=r"unknown profile 'mega', choose one of \['desk', 'mini', 'paper', 'smoke'\]"):
        load_profile("mega", "02_bounds")
    with pytest.raises(ValueError, match=r"unknown notebook '05_more', choose one of \['01_incompatibility', "):
        load_profile("mini", "05_more")


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_has_the_keys_and_types_of_the_default(profile):
    kinds = lambda table: {k: type(v) for k, v in table.items() if not profiles.is_notebook_name(k)}  # noqa: E731
    own, default = PROFILES[profile], PROFILES["mini"]
    assert kinds(own) == kinds(default)
    tables = {name for name in own if profiles.is_notebook_name(name)}
    assert set(SECTIONS) <= tables <= set(profiles.notebooks())  # a companion may have no table
    for notebook in tables & set(default):  # whose table may say something else than the profile
        sizes, others = ({k: v for k, v in kinds(p[notebook]).items() if k not in default} for p in (own, default))
        assert sizes == others
        assert kinds(own[notebook]).items() <= (kinds(own) | sizes).items()


def test_settings_are_the_profile_s_own_and_those_of_the_notebook_alone():
    settings = load_profile("mini", "03_crossover")
    assert settings["model"] == PROFILES["mini"]["model"]
    assert settings["trials"] == PROFILES["mini"]["03_crossover"]["trials"]
    assert "rectangles" not in settings and not any(map(profiles.is_notebook_name, settings))


def edit_profiles(root, change):
    """Let `change` alter the text of profiles.toml in the copy."""
    path = root / "notebooks" / "profiles.toml"
    path.write_text(change(path.read_text()))


def test_a_notebook_s_table_may_name_models_of_its_own(root):
    named = '[mini.03_crossover]\nmodel = "distilbert-causal"\nmodels = ["minilm-3l"]\ncontrol = "minilm-6l"\n'
    edit_profiles(root, lambda text: text.replace("[mini.03_crossover]\n", named))
    settings = load_profile("mini", "03_crossover")
    assert (settings["model"], settings["models"], settings["control"]) == (
        "distilbert-causal",
        ["minilm-3l"],
        "minilm-6l",
    )
    assert load_profile("mini", "02_bounds")["model"] == PROFILES["mini"]["model"]  # only there
    assert Run("03_crossover", "mini")["model"] == "distilbert-causal"
    assert runner.inputs_digest("03_crossover", "mini") != runner.inputs_digest("02_bounds", "mini")


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


def test_the_profiles_without_a_hub_need_embedded_models_alone():
    for profile in ("mini", "desk", "smoke"):
        for notebook in profiles.sections():
            settings = load_profile(profile, notebook)
            assert {settings["model"], settings["control"], *settings["models"]} <= set(embedded.EMBEDDED)


def test_passages_that_every_embedded_model_reads_are_all_of_them(embedded):
    run = Run("01_incompatibility", "mini")
    assert len(run.passages(embedded("distilbert"), embedded("minilm-3l"))) == len(load_passages())


def add_notebook(root, name, tables=""):
    """Put a notebook into the copy, and its tables into profiles.toml."""
    (root / "notebooks" / f"{name}.py").write_text(STUB)
    edit_profiles(root, lambda text: f"{text}\n{tables}")


def test_notebooks_are_the_numbered_files_and_those_below_five_are_the_paper(root):
    for name in ("05_other.py", "12_more.py", "explore.py", "1_short.py", "06_notes.md"):
        (root / "notebooks" / name).write_text(STUB)
    assert profiles.notebooks() == [*SECTIONS, "05_other", "12_more"]
    assert profiles.sections() == SECTIONS and profiles.companions() == ["05_other", "12_more"]


def test_two_notebooks_of_one_name_are_refused(root):
    (root / "notebooks" / f"07_{SECTIONS[0].split('_', 1)[1]}.py").write_text(STUB)
    with pytest.raises(ValueError, match="whose claims would replace each other"):
        profiles.notebooks()


def test_the_sections_of_the_paper_have_a_notebook_each():
    assert profiles.sections() == SECTIONS


def test_a_notebook_without_a_table_is_refused_with_what_to_add(root):
    add_notebook(root, "05_other", "[smoke.05_other]\ncost = []\nstride = 3\n")
    assert load_profile("smoke", "05_other")["stride"] == 3
    with pytest.raises(ValueError, match=r"'05_other' cannot run in the profile 'mini': no table \[mini.05_other\]"):
        load_profile("mini", "05_other")


def test_without_notebooks_it_is_said_that_a_clone_is_needed(root, capsys):
    shutil.rmtree(root / "notebooks")
    assert runner.main([]) == 2
    assert "a wheel holds no notebooks, run this in a clone" in capsys.readouterr().err


# Costs -------------------------------------------------------------------------------------------------------------

TABLE = {"model": "a", "models": ["b", "c"], "control": "d"}


def test_a_role_stands_for_the_models_that_have_it_and_models_for_the_chain_s_too():
    costs = profiles.declared_cost({**TABLE, "cost": [["models", 8, 10], ["model", 8, 5], ["control", 3, 7]]})
    rows = [(cost.model, cost.sites, cost.conditionals) for cost in costs]
    assert rows == [("b", 8, 10), ("c", 8, 10), ("a", 8, 10), ("a", 8, 5), ("d", 3, 7)]
    [only] = profiles.declared_cost({**TABLE, "models": ["a"], "cost": [["models", 8, 10]]})
    assert (only.model, only.conditionals) == ("a", 10)
    assert profiles.work({**TABLE, "cost": [["model", 8, 10], ["control", 3, 7]]}) == 10 * 10 + 7 * 5


def test_a_table_without_a_cost_or_with_one_of_an_unknown_role_is_refused():
    with pytest.raises(ValueError, match=r"no cost: add cost = \[\[role, sites, conditionals\], ...\]"):
        profiles.declared_cost(TABLE)
    with pytest.raises(ValueError, match="unknown role 'modle'"):
        profiles.declared_cost({**TABLE, "cost": [["modle", 8, 10]]})


@pytest.mark.parametrize("profile", PROFILES)
def test_every_table_declares_a_cost(profile):
    for notebook in filter(profiles.is_notebook_name, PROFILES[profile]):
        costs = profiles.declared_cost(load_profile(profile, notebook))
        assert all(cost.conditionals > 0 and cost.sites > 1 for cost in costs)
        assert costs or profiles.is_companion(notebook)


def test_influence_asks_for_what_the_profiles_say(tiny):
    model, asked = tiny["bert"], []
    counted = SimpleNamespace(
        n_tokens=model.n_tokens, scores=lambda x, sites: asked.append(len(sites)) or model.scores(x, sites)
    )
    contexts, n, replacements = model.states(TEXTS[:2], n=5), 5, 3
    measure_influence(counted, contexts, replacement_tokens(counted, contexts, replacements), [1.0])
    assert sum(asked) == len(contexts) * n * (2 + (n - 1) * replacements)


@pytest.mark.slow
def test_a_notebook_asks_for_at_most_what_its_table_declares(root, tiny_folders, monkeypatch):
    notebook = "03_crossover"
    shutil.copy(ROOT / "notebooks" / "claims.toml", root / "notebooks")
    source = (ROOT / "notebooks" / f"{notebook}.py").read_text().replace('profile = "mini"', 'profile = "smoke"')
    edit_profiles(root, lambda text: text.replace('"minilm-3l"', f'"{tiny_folders["bert"]}"'))
    monkeypatch.setenv("GLAUBER_CACHE", "off")
    asked, scores = collections.Counter(), MaskedLM.scores

    def counted(self, states, sites, *hidden):
        asked[self.name] += len(states)
        return scores(self, states, sites, *hidden)

    monkeypatch.setattr(MaskedLM, "scores", counted)
    monkeypatch.setattr(Run, "save_figure", lambda *_: None)  # which takes most of the time
    exec(compile(source, notebook, "exec"), {"__name__": "__main__"})
    plt.close("all")
    declared = collections.Counter()
    for cost in profiles.declared_cost(load_profile("smoke", notebook)):
        declared[str(cost.model)] += cost.conditionals
    assert set(asked) == set(declared)
    assert all(declared[name] / 20 < asked[name] <= declared[name] for name in asked), (asked, declared)


@pytest.mark.parametrize("profile", PROFILES)
def test_two_sections_couple_the_same_pairs_so_that_one_result_serves_both(profile):
    bounds, crossover = (load_profile(profile, name) for name in ("02_bounds", "03_crossover"))
    for name in ("temperatures", "pairs", "multiple"):
        assert bounds[f"coupling_{name}"] == crossover[f"coupling_{name}"]
    assert set(bounds["waterfall_lengths"]) <= set(crossover["coupling_lengths"])
    lengths = *crossover["drift_lengths"], *crossover["coupling_lengths"], crossover["convergence_length"]
    assert bounds["coupling_reads"] == max(lengths)  # the passages that are long enough for both


@pytest.mark.parametrize("profile", PROFILES)
def test_a_search_for_influence_takes_as_many_pairs_as_the_protocol(profile):
    sizes = load_profile(profile, "02_bounds")
    assert sizes["search_rounds"] * sizes["search_candidates"] == sizes["contexts"] * sizes["replacements"]


# Claims ------------------------------------------------------------------------------------------------------------


def estimate(value=0.5, interval=(0.25, 0.75), n=20, unit="contexts", kind="estimate"):
    return Estimate(value, interval, n, unit, kind)


def test_a_claim_is_recorded_with_what_its_entry_says_as_json_can_hold_it(root, capsys):
    run = Run("02_bounds", "smoke")
    run.claim("bounds/alpha", estimate(np.float32(0.5), (np.float64(0.25), np.inf), np.int64(20), kind="lower bound"))
    (claim,) = json.loads(json.dumps(run.claims))
    assert claim == {
        "id": "bounds/alpha", "statement": "Alpha is below one.", "published": 0.25, "printed": "Table 2",
        "measured": 0.5, "interval": [0.25, "inf"], "kind": "lower bound", "n": 20, "unit": "contexts",
        "verdict": "undecided", "why": "must lie below 1", "contradicted_by": "An interval above one.",
    }  # fmt: skip
    printed = capsys.readouterr().out
    assert all(
        part in printed for part in ("bounds/alpha: 0.5 [0.25, ∞]", "20 contexts", "published 0.25", "undecided")
    )
    assert run.published("bounds/alpha") == 0.25


def test_a_family_names_its_members_and_their_published_values(root):
    run = Run("02_bounds", "smoke")
    run.claim("bounds/size/org/model/0.5", estimate())
    run.claim("bounds/size/org/model/2", estimate(), note="a note")
    first, second = run.claims
    assert first["statement"] == "The size of org/model at τ = 0.5." and first["published"] == 0.08
    assert second["published"] is None and (second["verdict"], second["why"]) == ("measured", "a note")


def test_below_the_least_number_of_units_there_is_no_verdict(root):
    run = Run("02_bounds", "smoke")
    run.claim("bounds/alpha", estimate(n=19))
    assert run.claims[0]["verdict"] == "undecided" and "19 contexts, at least 20 are needed" in run.claims[0]["why"]


def test_what_is_compared_with_may_be_measured_and_is_given_once(root):
    run = Run("02_bounds", "smoke")
    run.claim("bounds/beats-chance", estimate(), than=0.2)
    assert run.claims[0]["verdict"] == "holds" and "above 0.2" in run.claims[0]["why"]
    for id, than in (("bounds/alpha", 2.0), ("bounds/beats-chance", None)):
        with pytest.raises(ValueError, match=r"either in claims\.toml or in the call"):
            Run("02_bounds", "smoke").claim(id, estimate(), than=than)


def test_a_claim_without_a_number_says_what_is_lacking(root):
    run = Run("02_bounds", "smoke")
    with pytest.raises(ValueError, match="say in `note` what is lacking"):
        run.claim("bounds/alpha", None)
    run.claim("bounds/alpha", None, note="needs two models")
    assert (run.claims[0]["verdict"], run.claims[0]["why"]) == ("not measurable here", "needs two models")
    assert run.claims[0]["measured"] is None


@pytest.mark.parametrize(
    "id, change, message",
    [
        ("bounds/beta", {}, r"no entry in notebooks/claims\.toml"),
        ("crossover/alpha", {}, "must begin with 'bounds/'"),
        ("bounds/alpha", {"unit": "chains"}, "is about contexts, got an estimate from chains"),
    ],
)
def test_a_claim_that_its_entry_does_not_fit_is_refused(root, id, change, message):
    run = Run("02_bounds", "smoke")
    with pytest.raises(ValueError, match=message):
        run.claim(id, estimate(**change))
    assert run.claims == []


def test_a_claim_is_recorded_once(root):
    run = Run("02_bounds", "smoke")
    run.claim("bounds/alpha", estimate())
    with pytest.raises(ValueError, match="'bounds/alpha' recorded twice"):
        run.claim("bounds/alpha", estimate())


@pytest.mark.parametrize(
    "table, message",
    [
        ('statement = "X."', r"lacks \['side'\]"),
        ('statement = "X."\nside = "above"\nthan = 0', "say what would contradict it"),
        ('statement = "X."\nside = "measured"\nrule = 1', r"unknown keys \['rule'\]"),
        ('statement = "X."\nside = "measured"\nleast = 3', "name what is drawn independently"),
        ('statement = "In V^{n}."\nside = "measured"', "write {{ and }} for braces"),
        ('statement = "X."\nside = "measured"\npublished = { "a" = 1 }', "no name in braces to choose by"),
        ('statement = "X."\nside = "beside"\ncontradicted_by = "Y."', "side must be one of"),
        ('statement = "X."\nside = "outside"\nthan = [5, 1]\ncontradicted_by = "Y."', "asks for two rising numbers"),
    ],
)
def test_an_entry_that_cannot_judge_is_refused(root, table, message):
    (root / "notebooks" / "claims.toml").write_text(f'["bounds/x"]\n{table}\n')
    with pytest.raises(ValueError, match=message):
        claims.read_claims()


def test_a_notebook_and_its_entries_must_name_the_same_claims(root):
    source = root / "notebooks" / "02_bounds.py"
    complete = source.read_text()
    claims.check_entries(["02_bounds"])
    source.write_text(complete + 'run.claim("bounds/new", x)\n')
    with pytest.raises(ValueError, match=r"02_bounds: claims without an entry in claims.toml: \['bounds/new'\]"):
        claims.check_entries(["02_bounds"])
    source.write_text(STUB)
    with pytest.raises(ValueError, match=r"entries that 02_bounds does not measure: .*bounds/alpha"):
        claims.check_entries(["02_bounds"])


def test_the_notebooks_and_claims_toml_name_the_same_claims():
    claims.check_entries(profiles.notebooks())
    sections = {name.split("_", 1)[1] for name in profiles.notebooks()}
    assert {entry.id.split("/")[0] for entry in claims.read_claims()} <= sections


DAMAGES = {
    "": r"cannot be read \(JSONDecodeError",
    '{"claims": [{"id"': r"cannot be read \(JSONDecodeError",
    "[]": r"cannot be read \(TypeError",
    '{"profile": "smoke", "seeds": {}, "models": {}, "claims": []}': "is of another version",
    '{"profile": "smoke", "seeds": {}, "models": {}, "not_asked": {}, "claims": [{"id": "bounds/alpha"}]}': "'printed'",
}


@pytest.mark.parametrize("content", DAMAGES)
def test_results_that_cannot_be_read_are_named_before_any_work_with_what_to_do(root, content, monkeypatch, capsys):
    file = root / "build" / "smoke" / "figures" / "results.json"
    file.parent.mkdir(parents=True)
    file.write_text(content)
    with pytest.raises(
        ValueError, match=f"results.json' .*{DAMAGES[content]}.*: delete it and run the notebooks again"
    ):
        Run("02_bounds", "smoke")
    assert chosen_by(monkeypatch) == (2, [])
    assert "delete it and run the notebooks again" in capsys.readouterr().err


def test_facts_and_names_of_outputs_that_cannot_be_read_are_written_anew(root):
    run = finished(root)
    for file in (run.figures / "provenance.json", root / "build" / "smoke" / "02_bounds.outputs.json"):
        file.write_text("[")
    assert not runner.is_current("02_bounds", "smoke")
    finished(root)
    assert list(json.loads((run.figures / "provenance.json").read_text())) == ["02_bounds"]


def results(root):
    return json.loads((root / "build" / "smoke" / "figures" / "results.json").read_text())


def test_finish_replaces_only_its_own_claims_and_lists_what_was_not_asked(root):
    for notebook, values in (
        ("02_bounds", {"bounds/alpha": 1.0, "bounds/size/a/1": 2.0}),
        ("03_crossover", {"crossover/alpha": 3.0}),
        ("02_bounds", {"bounds/size/a/1": 4.0}),
    ):
        run = Run(notebook, "smoke")
        for id, value in values.items():
            run.claim(id, estimate(value, None))
        run.finish()
    found = results(root)
    assert {c["id"]: c["measured"] for c in found["claims"]} == {"bounds/size/a/1": 4.0, "crossover/alpha": 3.0}
    assert found["not_asked"] == {"bounds": ["bounds/alpha", "bounds/beats-chance"], "crossover": []}
    page = (root / "build" / "smoke" / "figures" / "claims.md").read_text()
    assert "The size of a at τ = 1." in page and "Not asked in this profile: `bounds/alpha`" in page


def test_results_say_what_was_measured_and_provenance_where_it_comes_from(root, tiny_folders):
    run = Run("02_bounds", "smoke")
    model = run.model(tiny_folders["bert"])
    assert run.model(tiny_folders["bert"]) is model
    run.finish()
    found = results(root)
    assert (found["profile"], found["seeds"]) == ("smoke", {"bounds": 0})
    assert list(found["models"]["bounds"].values()) == [model.checksum]
    facts = json.loads((run.figures / "provenance.json").read_text())["02_bounds"]
    assert (facts["commit"], facts["dirty"]) == ("abc1234", False) and facts["seconds"] >= 0
    assert facts["versions"]["numpy"] == np.__version__
    wanted = {"dtype": "float32", "attention": "sdpa", "device": "cpu", "compiled": False}
    assert list(facts["computation"].values()) == [wanted]


def test_the_same_run_at_another_commit_leaves_the_same_bytes(root, monkeypatch):
    def leave():
        run = Run("02_bounds", "smoke")
        run.settings["pdf"] = True
        run.claim("bounds/alpha", estimate())
        figure, axis = plt.subplots()
        axis.plot([1, 2])
        run.save_figure(figure, "curve")
        run.save_table(pd.DataFrame({"x": [1]}), "table")
        run.finish()
        return {path.name: path.read_bytes() for path in run.figures.iterdir() if path.name != "provenance.json"}

    first = leave()
    monkeypatch.setattr(provenance, "repository_state", lambda: ("fff0000", True))
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")  # another day
    again = leave()
    assert set(first) == {"curve.png", "curve.pdf", "table.csv", "table.md", "results.json", "claims.md"}
    assert again == first


# Where the numbers come from ---------------------------------------------------------------------------------------

UNKNOWN = ("unknown", "unknown")


def repository(folder):
    """A repository with one commit; the answer of git to a command in it."""

    def git(*arguments):
        who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        command = ["git", "-C", str(folder), *who, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    return git


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A copy of the package which counts as the clone, in no repository."""
    folder = tmp_path / "outer" / "clone"
    (folder / "glauber_lib").mkdir(parents=True)
    (folder / "glauber_lib" / "__init__.py").write_text("")
    (tmp_path / "outer" / "other.txt").write_text("")
    monkeypatch.setattr(profiles, "ROOT", folder)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    return folder


def test_the_commit_is_that_of_the_clone_and_changes_are_seen(clone):
    git = repository(clone)
    assert provenance.repository_state() == (git("rev-parse", "--short", "HEAD"), False)
    (clone / "glauber_lib" / "new.py").write_text("")
    assert provenance.repository_state() == (git("rev-parse", "--short", "HEAD"), True)


def test_new_files_are_changes_whatever_the_settings_of_git_say_of_them(clone):
    git = repository(clone)
    git("config", "status.showUntrackedFiles", "no")
    (clone / "glauber_lib" / "inner").mkdir()
    (clone / "glauber_lib" / "inner" / "new.py").write_text("")
    assert provenance.repository_state() == (git("rev-parse", "--short", "HEAD"), True)


def test_outside_a_repository_and_without_git_the_commit_is_unknown(clone, monkeypatch):
    assert provenance.repository_state() == UNKNOWN
    repository(clone)
    monkeypatch.setenv("PATH", str(clone))
    assert provenance.repository_state() == UNKNOWN


def test_inside_another_repository_the_commit_is_unknown(clone, monkeypatch):
    (clone.parent / ".gitignore").write_text("clone/\n")
    git = repository(clone.parent)
    assert provenance.repository_state() == UNKNOWN  # ignored by it
    git("add", "-f", "clone")
    git("commit", "-qm", "second")
    assert provenance.repository_state() == UNKNOWN  # a part of it
    monkeypatch.setenv("GIT_DIR", str(clone.parent / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(clone))
    assert provenance.repository_state() == UNKNOWN
    repository_of_files_unpacked_over_it = clone.parent / "glauber_lib"
    repository_of_files_unpacked_over_it.mkdir()
    (repository_of_files_unpacked_over_it / "__init__.py").write_text("")
    monkeypatch.setattr(profiles, "ROOT", clone.parent)
    assert provenance.repository_state() == UNKNOWN


def test_where_git_refuses_the_commit_is_unknown(clone, monkeypatch):
    repository(clone)
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")  # as for a folder of another user: safe.directory
    assert provenance.repository_state() == UNKNOWN


def test_a_package_that_is_not_installed_is_said_to_be(monkeypatch):
    monkeypatch.setattr(keys, "PACKAGES", ("numpy", "no-such-package"))
    assert keys.versions() == {"python": platform.python_version(), "numpy": np.__version__,
                               "no-such-package": "not installed"}  # fmt: skip


# Outputs -----------------------------------------------------------------------------------------------------------

LABEL = "02_bounds, profile smoke, seed 0"


def test_tables_carry_notebook_profile_and_seed(root):
    table = pd.DataFrame({"model": ["one", "two"], "mean": [1.23456, np.nan]})
    run = Run("02_bounds", "smoke")
    assert run.save_table(table, "summary") is table
    text = (run.figures / "summary.csv").read_text()
    assert text.splitlines()[0] == f"# {LABEL}"
    pd.testing.assert_frame_equal(pd.read_csv(run.figures / "summary.csv", skiprows=1), table)
    markdown = (run.figures / "summary.md").read_text()
    assert LABEL in markdown and "1.23" in markdown and "nan" not in markdown.lower()


def test_cells_of_tables_are_as_they_are(root):
    texts, mixed = ["a | b", "007", "1e5", "x\ny", "##er", "$$"], ["x", 7, 0.5, None, "08", 1]
    table = pd.DataFrame({"te|xt": texts, "number": [1.0, 2.34567, np.nan, 4, 5, 6], "mixed": mixed})
    run = Run("02_bounds", "smoke")
    run.save_table(table, "texts")
    head, _, *rows = (run.figures / "texts.md").read_text().split("\n\n<!--")[0].splitlines()
    split = lambda row: [c.strip().replace("\0", "|") for c in row.replace("\\|", "\0").split("|")[1:-1]]  # noqa: E731
    cells = list(map(split, (head, *rows)))
    assert cells[0] == ["te|xt", "number", "mixed"]
    assert [row[0] for row in cells[1:]] == ["a | b", "007", "1e5", "x y", "##er", "$$"]
    assert [row[1] for row in cells[1:]] == ["1", "2.35", "–", "4", "5", "6"]
    assert [row[2] for row in cells[1:]] == ["x", "7", "0.5", "–", "08", "1"]
    again = pd.read_csv(run.figures / "texts.csv", skiprows=1, dtype={"te|xt": str})
    assert again["te|xt"].tolist() == texts


def cut(row):
    """Cells of a line of a table, cut at bars as by GitHub: a backslash before a mark, and another one, is its own."""
    return [re.sub(r"\\([\\|])", r"\1", cell) for cell in re.findall(r"\| ((?:\\[\\|]|[^|])*) (?=\|)", row)]


@pytest.mark.parametrize("text", ["a|b", r"a\|b", r"a\\|b", "|", r"\|", "a | b"])
def test_a_bar_in_a_cell_is_shown_as_it_is_by_every_reader_of_tables(text):
    line = tables.line([text, "next"])
    assert cut(line) == [text, "next"]
    read = MarkdownIt().enable("table").parse(f"{tables.line('xy')}\n|---|---|\n{line}\n")
    shown = ["".join(child.content for child in token.children) for token in read if token.type == "inline"]
    assert shown == ["x", "y", text, "next"]


def test_bars_of_a_formula_are_written_by_name():
    assert tables.cell(r"norm $\|C\|_2$ | rate $|x|$") == r"norm $\Vert C\Vert _2$ \| rate $\vert x\vert $"
    assert tables.cell("$5 | and $ 6") == r"$5 \| and $ 6"
    assert tables.cell("a\rb\r\nc") == "a b c"


def test_figures_carry_notebook_profile_and_seed(root):
    run = Run("02_bounds", "smoke")
    figure, _ = plt.subplots()
    run.save_figure(figure, "curve")
    assert run.outputs == ["curve.png"]  # the profile of the tests has no PDF
    run.settings["pdf"] = True
    run.save_figure(figure, "curve")
    with Image.open(run.figures / "curve.png") as image:
        assert image.text["Description"] == LABEL
    assert LABEL.encode() in (run.figures / "curve.pdf").read_bytes()
    assert run.outputs == ["curve.png", "curve.pdf"]
    first = (run.figures / "curve.pdf").read_bytes()
    run.save_figure(figure, "curve")
    assert (run.figures / "curve.pdf").read_bytes() == first  # no time stamp: the same figure is the same file
    plt.close(figure)


def test_mini_and_desk_write_to_figures_and_the_others_to_build(root, monkeypatch):
    assert Run("02_bounds", "mini").figures == root / "figures"
    assert profiles.figures_folder("desk") == root / "figures" / "desk"
    assert Run("02_bounds", "smoke").figures == root / "build" / "smoke" / "figures"
    monkeypatch.setenv("GLAUBER_SIZES", "smoke")  # a trial of desk is not committed
    assert profiles.figures_folder("desk") == root / "build" / "desk-smoke" / "figures"


def test_the_claims_of_a_section_are_shown_of_desk_once_it_ran_in_it(root):
    for profile, value in (("mini", 1.0), ("desk", 2.0), ("mini", 3.0)):
        run = Run("02_bounds", profile)
        run.claim("bounds/alpha", estimate(value, None))
        run.finish()
    page = (root / "figures" / "claims.md").read_text()
    assert "## bounds: profile `desk`" in page and "| 2 |" in page and "| 3 |" not in page
    assert "Profile `desk`" in (root / "figures" / "desk" / "claims.md").read_text()


# The runner --------------------------------------------------------------------------------------------------------


def stamp(root, notebook="02_bounds"):
    """Mark the outputs of a notebook as those of `make paper`."""
    said = runner._stamp_of(notebook, "smoke", runner.inputs_digest(notebook, "smoke"))
    (root / "build" / "smoke" / f"{notebook}.digest").write_text(said)


def finished(root, notebook="02_bounds"):
    """Outputs and stamps of a notebook, as after a run."""
    run = Run(notebook, "smoke")
    run.save_table(pd.DataFrame({"x": [1]}), f"table_{notebook}")
    run.finish()
    stamp(root, notebook)
    return run


def test_a_notebook_is_due_again_when_the_reader_s_own_passages_or_model_change(root):
    own, folder = root / "mine.txt", root / "my-model"
    folder.mkdir()
    own.write_text("one passage\n")
    (folder / "model.safetensors").write_bytes(b"weights")
    models = f'[smoke.02_bounds]\npassages = "{own}"\nmodel = "{folder}"\n'
    edit_profiles(root, lambda text: text.replace("[smoke.02_bounds]\n", models))
    finished(root)
    assert runner.is_current("02_bounds", "smoke")
    own.write_text("another passage\n")
    assert not runner.is_current("02_bounds", "smoke")
    own.write_text("one passage\n")
    assert runner.is_current("02_bounds", "smoke")
    (folder / "model.safetensors").write_bytes(b"other weights")
    assert not runner.is_current("02_bounds", "smoke")


def test_a_finished_notebook_is_current_until_an_output_is_gone(root):
    assert not runner.is_current("02_bounds", "smoke")
    run = finished(root)
    assert runner.is_current("02_bounds", "smoke")
    assert not runner.is_current("03_crossover", "smoke")
    (run.figures / "results.json").unlink()
    finished(root, "03_crossover")  # begins the file anew
    assert runner.is_current("03_crossover", "smoke") and not runner.is_current("02_bounds", "smoke")
    run = finished(root)
    (run.figures / "table_02_bounds.md").unlink()
    assert not runner.is_current("02_bounds", "smoke")


def test_two_notebooks_do_not_write_one_file(root):
    finished(root)
    finished(root)  # again, by the same one
    other = Run("03_crossover", "smoke")
    with pytest.raises(ValueError, match="csv is what 02_bounds wrote"):
        other.save_table(pd.DataFrame({"x": [1]}), "table_02_bounds")
    with pytest.raises(ValueError, match="holds the claims"):
        other.save_table(pd.DataFrame({"x": [1]}), "claims")


def test_what_another_notebook_wrote_is_known_by_its_label_and_may_be_given_up(root):
    run, other = finished(root), Run("03_crossover", "smoke")
    frame, figure = pd.DataFrame({"x": [1]}), plt.figure()
    run.save_figure(figure, "picture")
    (root / "build" / "smoke" / "02_bounds.outputs.json").unlink()  # as in a fresh clone
    for save in (lambda: other.save_table(frame, "Table_02_Bounds"), lambda: other.save_figure(figure, "picture")):
        with pytest.raises(ValueError, match="is what 02_bounds wrote: take another name, or delete that file"):
            save()
    again = Run("02_bounds", "smoke")
    again.finish()  # without that table
    other.save_table(frame, "table_02_bounds")
    again.save_table(frame, "old")
    (root / "notebooks" / "02_bounds.py").rename(root / "notebooks" / "02_other.py")
    other.save_table(frame, "old")  # of a notebook that is there no longer
    plt.close(figure)


def test_two_notebooks_that_run_side_by_side_do_not_both_count_as_the_writer(root):
    first, second = Run("02_bounds", "smoke"), Run("03_crossover", "smoke")
    first.save_table(pd.DataFrame({"x": [1]}), "summary")
    (root / "build" / "smoke" / "02_bounds.outputs.json").write_text("{}")  # of an earlier version of the notebook
    second.save_table(pd.DataFrame({"x": [2]}), "summary")
    for run in (first, second):
        run.finish()
        stamp(root, run.notebook)
    assert runner.is_current("03_crossover", "smoke") and not runner.is_current("02_bounds", "smoke")


def test_what_a_notebook_wrote_in_jupyter_since_is_not_current(root):
    finished(root)
    run = Run("02_bounds", "smoke")
    run.save_table(pd.DataFrame({"x": [99]}), "table_02_bounds")  # of an edited notebook, the edit taken back
    run.finish()
    assert not runner.is_current("02_bounds", "smoke")


def test_claims_that_were_altered_are_not_current(root):
    run = finished(root)
    (run.figures / "claims.md").write_text("altered\n")
    assert not runner.is_current("02_bounds", "smoke")


def test_claims_of_a_run_are_kept_where_those_of_others_were_damaged_meanwhile(root):
    run = Run("02_bounds", "smoke")
    run.claim("bounds/size/a/1", estimate(3.0))
    (run.figures / "results.json").write_text("<<<<<<< HEAD\n")
    with pytest.raises(ValueError, match="cannot be read"):
        run.finish()
    kept = json.loads((root / "build" / "smoke" / "02_bounds.claims.json").read_text())
    assert [claim["measured"] for claim in kept] == [3.0]


def test_the_commit_is_that_at_which_a_run_began(root, monkeypatch):
    for began, ended, wanted in (
        (("abc1234", False), ("abc1234", False), ("abc1234", False)),
        (("abc1234", False), ("fff0000", False), ("abc1234", True)),
        (("abc1234", True), ("fff0000", False), ("abc1234", True)),
        (("unknown", "unknown"), ("fff0000", False), ("unknown", "unknown")),
    ):
        monkeypatch.setattr(provenance, "repository_state", lambda began=began: began)
        run = Run("02_bounds", "smoke")
        monkeypatch.setattr(provenance, "repository_state", lambda ended=ended: ended)
        run.finish()
        facts = json.loads((run.figures / "provenance.json").read_text())["02_bounds"]
        assert (facts["commit"], facts["dirty"]) == wanted


def test_sizes_of_another_profile_are_named_in_all_that_is_written(root, monkeypatch):
    monkeypatch.setenv("GLAUBER_SIZES", "smoke")
    run = Run("02_bounds", "mini")
    run.save_table(pd.DataFrame({"x": [1]}), "table")
    run.finish()
    for file in ("table.csv", "table.md", "claims.md", "results.json", "provenance.json"):
        assert re.search("mini(`? |.*)with the sizes of smoke", (run.figures / file).read_text()), file


def test_one_model_takes_the_place_of_all_and_its_results_go_into_a_folder_of_their_own(root, monkeypatch):
    plain = load_profile("mini", "04_basins")
    monkeypatch.setenv("GLAUBER_MODEL", "org/my model")
    named = load_profile("mini", "04_basins")
    assert named == {**plain, "model": "org/my model", "models": ["org/my model"]}
    assert {cost.model for cost in profiles.declared_cost(named)} == {"org/my model"}
    run = Run("02_bounds", "mini")
    assert run.figures == root / "build" / "mini-of-org-my-model" / "figures"
    run.finish()
    assert "mini for the model org/my model" in (run.figures / "claims.md").read_text()
    monkeypatch.setenv("GLAUBER_SIZES", "smoke")
    assert profiles.build_folder("mini").name == "mini-smoke-of-org-my-model"


def test_of_one_model_nothing_is_compared_and_that_is_said(root, monkeypatch, capsys):
    monkeypatch.setenv("GLAUBER_MODEL", "my-model")
    Run("02_bounds", "mini").finish()
    assert compare.report("mini", ["02_bounds"])
    assert capsys.readouterr().out.splitlines()[-1] == (
        "02_bounds: not compared, no values are expected of the model 'my-model'"
    )


def test_a_model_that_does_not_load_is_said_before_anything_runs(root, capsys, monkeypatch):
    monkeypatch.delenv("GLAUBER_MODEL", raising=False)
    assert runner.main(["--profile", "smoke", "--model", "no/such/model"]) == 2
    assert "no masked model 'no/such/model'" in capsys.readouterr().err
    assert "GLAUBER_MODEL" not in os.environ and not (root / "build").exists()


def test_the_kernel_gets_the_model_of_a_directory_wherever_the_command_was_given(root, tiny_folders, monkeypatch):
    for variable in ("GLAUBER_MODEL", progress.VARIABLE):  # which the command sets, put back afterwards
        monkeypatch.setenv(variable, "")
    monkeypatch.chdir(tiny_folders["bert"].parent)
    told = 'import os\nopen("seen", "w").write(os.environ["GLAUBER_MODEL"])\n'
    cells = f'# %% tags=["parameters"]\nprofile = "mini"\n\n# %%\n{told}'
    (root / "notebooks" / "04_basins.py").write_text(HEADER + cells)
    given = ["--profile", "smoke", "--notebook", "04_basins", "--jobs", "1", "--model", tiny_folders["bert"].name]
    assert runner.main(given) == 0
    assert (root / "seen").read_text() == str(tiny_folders["bert"])
    [build] = (root / "build").glob("smoke-of-*")
    assert (build / "04_basins.ipynb").is_file() and not (root / "build" / "smoke").exists()


@pytest.mark.parametrize(
    ("models", "said"), [(["a"], "one model shows no trend"), (["a", "b"], "as strong in any order")]
)
def test_one_model_shows_no_trend_over_models_and_two_do(models, said):
    notebook = (ROOT / "notebooks" / "01_incompatibility.py").read_text()
    [cell] = [cell for cell in notebook.split("# %%") if "incompatibility/size" in cell and "run.claim" in cell]
    claimed, size = [], dict(zip(models, (1.0, 2.0), strict=False))
    run = SimpleNamespace(seed=0, claim=lambda id, estimate, note: claimed.append((id, estimate is not None, note)))
    names = {
        "masked": models, "parameters": size, "means": {k: SimpleNamespace(value=v) for k, v in size.items()},
        "stats": stats, "permutation_test": permutation_test, "np": np, "run": run,
        "published": size, "PARAMETERS": size,
    }  # fmt: skip
    exec(cell[cell.index("sizes, deltas") :], names)
    [(id, measured, note)] = claimed
    assert id == "incompatibility/size" and measured == (len(models) > 1) and note.startswith(said)


def test_keys_and_names_that_nothing_reads_are_refused(root):
    plain = (root / "notebooks" / "profiles.toml").read_text()
    edit_profiles(root, lambda text: text.replace("[smoke.04_basins]\n", '[smoke.04_basins]\nmodle = "minilm-6l"\n'))
    with pytest.raises(ValueError, match=r"'smoke' of '04_basins' has keys that nothing reads: \['modle'\]"):
        Run("04_basins", "smoke")
    assert Run("02_bounds", "smoke")
    pinned = 'revisions = {"minilm-3I" = "0123"}'
    edit_profiles(
        root, lambda _: re.sub(r"(?s)(\[smoke\].*?)revisions = \{\}", lambda m: m[1] + pinned, plain, count=1)
    )
    with pytest.raises(ValueError, match=r"revisions of profile 'smoke' holds names .* has: \['minilm-3I'\]"):
        Run("02_bounds", "smoke")


def test_outputs_put_back_or_changed_are_not_what_the_notebook_wrote(root):
    run = finished(root)
    table, results = run.figures / "table_02_bounds.md", run.figures / "results.json"
    written = table.read_text(), results.read_text()
    table.write_text("another table\n")
    assert not runner.is_current("02_bounds", "smoke")
    table.write_text(written[0])
    assert runner.is_current("02_bounds", "smoke")
    results.write_text(json.dumps({**json.loads(written[1]), "seeds": {"bounds": 5}}))
    assert not runner.is_current("02_bounds", "smoke")
    results.write_text(written[1])
    finished(root, "03_crossover")  # its part of the shared file is its own
    assert runner.is_current("02_bounds", "smoke") and runner.is_current("03_crossover", "smoke")


@pytest.mark.parametrize(
    "path, change",
    [
        ("notebooks/02_bounds.py", "\n# another cell\n"),
        ("glauber_lib/exact.py", "\n# another line\n"),
        ("data/passages.jsonl", '{"id": "new", "topic": "food", "text": "another"}\n'),
        ("data/models/minilm-3l/model.safetensors", "other weights"),
        ("notebooks/profiles.toml", "\n[smoke.02_bounds.remote_code.minilm]\nx = 1\n"),
        ("notebooks/claims.toml", '\n["bounds/new"]\nstatement = "New."\nside = "measured"\n'),
    ],
)
def test_a_notebook_is_not_current_after_a_change_of_its_input(root, path, change):
    finished(root)
    with (root / path).open("a") as file:
        file.write(change)
    assert not runner.is_current("02_bounds", "smoke")


@pytest.mark.parametrize(
    "path",
    ["notebooks/03_crossover.py", "glauber_lib/couplings.py", "glauber_lib/new.py", "glauber_lib/paper/check.py"],
)
def test_a_notebook_stays_current_after_a_change_of_what_it_does_not_import(root, path):
    finished(root)
    with (root / path).open("a") as file:
        file.write("\n# changed\n")
    assert runner.is_current("02_bounds", "smoke")


def test_a_notebook_stays_current_when_a_model_comes_that_it_does_not_name(root):
    finished(root)
    (root / "data" / "models" / "new").mkdir()
    (root / "data" / "models" / "new" / "model.safetensors").write_bytes(b"new")
    assert runner.is_current("02_bounds", "smoke")


def test_a_notebook_is_not_current_after_an_upgrade(root, monkeypatch):
    finished(root)
    monkeypatch.setattr(keys, "versions", lambda: {"torch": "3.0"})
    assert not runner.is_current("02_bounds", "smoke")


def test_a_notebook_is_due_again_when_what_a_folder_holds_changes(root, monkeypatch, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name / "org" / "data").mkdir(parents=True)
        (tmp_path / name / "org" / "data" / "validation.parquet").write_bytes(b"rows")
    settings = '[smoke.02_bounds]\npassages = "org/data"\n'
    edit_profiles(root, lambda text: text.replace("[smoke.02_bounds]\n", settings))
    monkeypatch.setenv("GLAUBER_MODELS", str(tmp_path / "one"))
    finished(root)
    monkeypatch.setenv("GLAUBER_MODELS", str(tmp_path / "two"))
    assert runner.is_current("02_bounds", "smoke")  # the same, elsewhere
    (tmp_path / "two" / "org" / "data" / "validation.parquet").write_bytes(b"other rows")
    assert not runner.is_current("02_bounds", "smoke")
    monkeypatch.delenv("GLAUBER_MODELS")
    assert not runner.is_current("02_bounds", "smoke")


def test_a_file_counts_as_the_notebook_finds_it_from_whatever_folder_the_command_is_given(root, monkeypatch, tmp_path):
    (root / "mine.txt").write_text("one passage\n")
    edit_profiles(root, lambda text: text.replace("[smoke.02_bounds]\n", '[smoke.02_bounds]\npassages = "mine.txt"\n'))
    finished(root)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert runner.is_current("02_bounds", "smoke")
    (root / "mine.txt").write_text("another passage\n")
    assert not runner.is_current("02_bounds", "smoke")


def test_a_notebook_is_due_again_when_the_word_embeddings_or_a_commit_of_the_hub_change(root, monkeypatch, tmp_path):
    (tmp_path / "words").mkdir()
    monkeypatch.setenv("GLAUBER_MINILM", str(tmp_path / "words"))
    (tmp_path / "words" / "model.safetensors").write_bytes(b"one")
    finished(root)
    assert runner.is_current("02_bounds", "smoke")
    monkeypatch.setattr(runner.hub, "cached_commit", lambda name, revision: "abc")
    assert not runner.is_current("02_bounds", "smoke")
    finished(root)
    (tmp_path / "words" / "model.safetensors").write_bytes(b"two")
    assert not runner.is_current("02_bounds", "smoke")


@pytest.mark.parametrize("arguments", [["--profile", "mega"], ["--notebook", "05_more"]])
def test_the_command_refuses_unknown_names_with_status_two(root, arguments, capsys, monkeypatch):
    monkeypatch.setattr(runner, "run_notebook", lambda *_: pytest.fail("ran a notebook"))
    assert runner.main(arguments) == 2
    assert "choose one of" in capsys.readouterr().err


def test_one_failing_notebook_fails_the_command_but_not_the_others(root, monkeypatch):
    ran = []

    def run_notebook(notebook, profile, position):
        ran.append(notebook)
        if notebook == "02_bounds":
            raise papermill.exceptions.PapermillExecutionError(0, 1, "1 / 0", "ZeroDivisionError", "by zero", [])
        return 0.0

    monkeypatch.setattr(runner, "run_notebook", run_notebook)
    assert runner.main(["--profile", "smoke", "--jobs", "1"]) == 1 and ran == SECTIONS


def test_an_interrupted_command_says_so_by_its_status(root, monkeypatch):
    def interrupted(notebook, profile, position):
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "run_notebook", interrupted)
    assert runner.main(["--profile", "smoke", "--jobs", "1"]) == 130


def test_a_running_notebook_says_in_a_file_where_it_is_within_a_cell(tmp_path, monkeypatch):
    file = tmp_path / "02_bounds.progress"
    monkeypatch.setattr(tqdm, "display", tqdm.display)  # put back afterwards
    progress.follow()
    assert not hasattr(tqdm.display, "followed")
    monkeypatch.setenv(progress.VARIABLE, str(file))
    for _ in range(2):
        progress.follow()
    with tqdm(total=40, desc="pairs, n = 5", unit="step", mininterval=0, file=io.StringIO()) as bar:
        monkeypatch.setattr(progress, "EVERY", -1.0)
        bar.update(10)
        assert re.search(r"^\d\d:\d\d:\d\d pairs, n = 5: 10 of 40 step in 0 s$", file.read_text())
        file.unlink()
        file.mkdir()  # cannot be written
        bar.update(10)


def test_a_second_run_does_nothing_unless_forced(root, monkeypatch):
    ran = []

    def run_notebook(notebook, profile, position):
        ran.append(notebook)
        finished(root, notebook)
        return 0.0

    monkeypatch.setattr(runner, "run_notebook", run_notebook)
    assert runner.main(["--profile", "smoke", "--jobs", "1"]) == 0 and ran == SECTIONS
    assert runner.main(["--profile", "smoke", "--jobs", "1"]) == 0 and ran == SECTIONS
    assert runner.main(["--profile", "smoke", "--notebook", "02_bounds", "--force", "--jobs", "1"]) == 0
    assert ran == [*SECTIONS, "02_bounds"]


def chosen_by(monkeypatch, *arguments):
    """The notebooks that the command runs, and its status."""
    ran = []
    monkeypatch.setattr(runner, "run_notebook", lambda notebook, *_: ran.append(notebook) or 0.0)
    return runner.main(["--profile", "smoke", "--jobs", "1", *arguments]), ran


def test_companions_run_when_asked_for_and_not_with_the_paper(root, monkeypatch, capsys):
    assert chosen_by(monkeypatch, "--companions") == (0, [])
    assert "no companions" in capsys.readouterr().out
    add_notebook(root, "05_other", "[smoke.05_other]\ncost = []\n")
    add_notebook(root, "07_more")
    assert chosen_by(monkeypatch) == (0, SECTIONS)
    assert chosen_by(monkeypatch, "--companions") == (0, ["05_other"])
    assert "07_more: skipped, no table [smoke.07_more]" in capsys.readouterr().out
    assert chosen_by(monkeypatch, "--notebook", "05_other") == (0, ["05_other"])
    assert chosen_by(monkeypatch, "--notebook", "07_more") == (2, [])
    assert (
        "no table [smoke.07_more] with its sizes and its cost in notebooks/profiles.toml: add it"
        in capsys.readouterr().err
    )


def test_side_by_side_the_notebook_with_most_work_runs_first(root, monkeypatch):
    add_notebook(root, "05_other", '[smoke.05_other]\ncost = [["model", 8, 1_000_000]]\n')
    started, both = [], threading.Event()

    def run(notebook, *_):
        started.append(notebook)
        if len(started) > 1:
            both.set()
        both.wait(30)  # or a fast thread takes three before a slow one has begun
        return 0.0

    monkeypatch.setattr(runner, "run_notebook", run)
    chosen = [*SECTIONS, "05_other"]
    with joblib.parallel_config(backend="threading"):
        assert runner.run_notebooks(chosen, "smoke", 2) == 0
    work = {notebook: profiles.work(load_profile("smoke", notebook)) for notebook in chosen}
    assert "05_other" in started[:2] and set(started[:2]) == set(sorted(chosen, key=work.__getitem__)[-2:])


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
    runner.run_notebook("02_bounds", "smoke")
    assert (root / "seen.txt").read_text() == "smoke"
    executed = json.loads((root / "build" / "smoke" / "02_bounds.ipynb").read_text())
    assert not [o for c in executed["cells"] for o in c.get("outputs", []) if o["output_type"] == "error"]
    digest = root / "build" / "smoke" / "02_bounds.digest"
    assert digest.read_text().split()[0] == runner.inputs_digest("02_bounds", "smoke")
    source.write_text(cells + "\n# %%\n1 / 0\n")
    with pytest.raises(papermill.exceptions.PapermillExecutionError, match="ZeroDivisionError"):
        runner.run_notebook("02_bounds", "smoke")
    assert not digest.exists()  # so that the next run starts it again


def write_cells(root, *cells, notebook="02_bounds"):
    """A notebook with a cell of parameters and others."""
    tagged = '# %% tags=["parameters"]\nprofile = "mini"\n'
    (root / "notebooks" / f"{notebook}.py").write_text(HEADER + tagged + "".join(f"\n# %%\n{cell}\n" for cell in cells))


def cells_of(root, notebook="02_bounds"):
    return json.loads((root / "build" / "smoke" / f"{notebook}.ipynb").read_text())["cells"]


DIES = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"


def test_a_kernel_that_dies_is_named_with_its_cell_and_the_other_notebook_runs_on(root, monkeypatch, capsys):
    write_cells(root, "x = 1", DIES, "y = 2")
    write_cells(root, 'open("seen.txt", "w").write(profile)', notebook="03_crossover")
    monkeypatch.setattr(claims, "check_entries", lambda _: None)
    arguments = ["--profile", "smoke", "--notebook", "02_bounds", "--notebook", "03_crossover"]
    with joblib.parallel_config(backend="threading"):  # processes of joblib would not see the copy
        assert runner.main([*arguments, "--jobs", "1"]) == 1
    said = capsys.readouterr().out
    assert "02_bounds: the kernel died in code cell 4 (import os, signal)" in said and "Traceback" not in said
    assert (root / "seen.txt").read_text() == "smoke"
    statuses = [cell["metadata"]["papermill"]["status"] for cell in cells_of(root)]
    assert statuses == ["completed", "completed", "completed", "failed", "pending"]
    assert not list((root / "build" / "smoke").glob(".*.ipynb"))
    assert not runner._stamp("02_bounds", "smoke").exists()


def test_an_error_that_is_none_of_a_cell_fails_its_notebook_alone(root, monkeypatch, capsys):
    def run_notebook(notebook, profile, position):
        if notebook == "02_bounds":
            raise OSError(28, "No space left on device")
        return 0.0

    monkeypatch.setattr(runner, "run_notebook", run_notebook)
    assert runner.main(["--profile", "smoke", "--jobs", "1"]) == 1
    said = capsys.readouterr().out
    assert "02_bounds: OSError: [Errno 28] No space left on device" in said and "04_basins: 0 s" in said


def test_a_notebook_runs_below_a_folder_with_braces_and_leaves_no_input_behind(root, monkeypatch):
    shutil.move(root / "notebooks", root / "a{b}" / "notebooks")
    for name in ("glauber_lib", "data"):
        shutil.move(root / name, root / "a{b}" / name)
    monkeypatch.setattr(profiles, "ROOT", root / "a{b}")
    monkeypatch.setattr(embedded, "DATA", root / "a{b}" / "data")
    write_cells(root / "a{b}", "1 / 0")
    with pytest.raises(papermill.exceptions.PapermillExecutionError, match="ZeroDivisionError"):
        runner.run_notebook("02_bounds", "smoke")
    assert cells_of(root / "a{b}") and not list((root / "a{b}" / "build" / "smoke").glob(".*.ipynb"))


def test_executed_notebooks_hold_no_progress_bar_and_no_error_that_passes(root):
    bar = "from tqdm.auto import tqdm\nfor _ in tqdm(range(3), desc='bar', leave=False):\n    pass\nprint('done')"
    write_cells(root, bar)
    runner.run_notebook("02_bounds", "smoke")
    outputs = [output for cell in cells_of(root) for output in cell.get("outputs", [])]
    assert ["".join(output["text"]) for output in outputs] == ["done\n"]
    path = root / "notebooks" / "02_bounds.py"
    path.write_text(path.read_text() + '\n# %% tags=["raises-exception"]\n1 / 0\n')
    with pytest.raises(papermill.exceptions.PapermillExecutionError, match="ZeroDivisionError"):
        runner.run_notebook("02_bounds", "smoke")


@pytest.mark.parametrize("tagged", ["# %%\nprofile = 'mini'", '# %% tags=["parameters"]\nprofil = "mini"'])
def test_a_notebook_that_would_run_with_its_own_profile_is_refused(root, tagged):
    (root / "notebooks" / "02_bounds.py").write_text(f"{HEADER}{tagged}\n")
    with pytest.raises(runner.NotRunError, match="must set profile in one cell with the tag parameters"):
        runner.run_notebook("02_bounds", "smoke")


HOLDER = """
import sys
from pathlib import Path
from glauber_lib.paper import profiles, runner
profiles.ROOT = Path(sys.argv[1])
with runner._alone("02_bounds", "smoke"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_the_second_run_of_a_notebook_says_who_runs_it_until_that_process_is_dead(root, monkeypatch):
    write_cells(root, "x = 1")
    monkeypatch.setattr(runner, "LEFT", 0.1)
    (root / "build" / "smoke").mkdir(parents=True)
    command = [sys.executable, "-c", HOLDER, str(root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as holder:
        assert holder.stdout.readline() == "held\n"
        said = rf"not started, process {holder.pid} \(since \d{{4}}-\d\d-\d\d .*\) runs it already"
        with pytest.raises(runner.NotRunError, match=said):
            runner.run_notebook("02_bounds", "smoke")
        with runner._alone("03_crossover", "smoke"):
            pass  # another notebook is free
        holder.kill()
    runner.run_notebook("02_bounds", "smoke")
    assert not list((root / "build" / "smoke").glob(".*.running"))


def test_commands_and_tables_do_without_a_locale(root):
    code = """
import sys
from pathlib import Path
import pandas as pd
from glauber_lib.paper import Run, load_passages, profiles
profiles.ROOT = Path(sys.argv[1])
run = Run("02_bounds", "smoke")
run.save_table(pd.DataFrame({"τ": [1.0, None], "text": ["naïve – “x”", "y"]}), "table")
run.finish()
Path("mine.txt").write_text("naïve τ\\n", encoding="utf-8")
assert load_passages("mine.txt").text[0] == "naïve τ"
print("ended")
"""
    ours = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONPATH": str(ROOT)}
    (root / "code.py").write_text(code, encoding="utf-8")
    for command in (["code.py", str(root)], ["-m", "glauber_lib.paper.check", "--profile", "no–where"]):
        answer = subprocess.run([sys.executable, *command], cwd=root, env=ours, capture_output=True, check=False)
        assert b"Traceback" not in answer.stderr, answer.stderr
    assert answer.returncode == 2 and rb"unknown profile" in answer.stderr
    figures = root / "build" / "smoke" / "figures"
    assert "“x”" in (figures / "table.md").read_text(encoding="utf-8")
    assert pd.read_csv(figures / "table.csv", skiprows=1).columns[0] == "τ"


# Passages ----------------------------------------------------------------------------------------------------------


def test_ids_stay_strings_and_lines_are_lines(tmp_path):
    texts = ["one\u2028line", "a form\fof feed", "third\x85line"]
    rows = [{"id": k, "text": text} for k, text in zip(["007", "7", "7.0"], texts, strict=True)]
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(row, ensure_ascii=False) + "\r\n" for row in rows), "utf-8")
    frame = load_passages(tmp_path / "mine.jsonl")
    assert frame.id.tolist() == ["007", "7", "7.0"] and frame.text.tolist() == texts
    (tmp_path / "mine.txt").write_text("\n".join(texts), "utf-8-sig")
    assert load_passages(tmp_path / "mine.txt").text.tolist() == texts
    (tmp_path / "mine.jsonl").write_text('{"text": "1e5"}\n\n{"text": "2020-01-01"}')
    frame = load_passages(tmp_path / "mine.jsonl")
    assert frame.text.tolist() == ["1e5", "2020-01-01"] and frame.id.tolist() == ["mine-0", "mine-1"]


@pytest.mark.parametrize(
    "content, message",
    [
        ('{"id": "7", "text": "x"}\n{"id": 7, "text": "y"}', r"ids of more than one passage: \['7'\]"),
        ('{"id": "7", "text": "x"}\n{"id": "8"}', r"line 2 must be like .*; got {\"id\": \"8\"}"),
        ("words", "line 1 must be like .*; got words"),
        ('{"id": "7", "text": "x"}\n{"id": "8", "text": "x"}', r"passages of one text: \['7', '8'\]"),
        ('{"text": "x"}\n\n{"id": null, "text": "y"}', "line 3 must be like .* id, if any, a text or a whole number"),
        ('{"id": 1e2, "text": "y"}', "line 1 must be like"),
        ('{"id": NaN, "text": "y"}', "line 1 must be like"),
        ('{"id": 1, "id": 2, "text": "y"}', "line 1 must be like .* no key twice"),
        ('{"id": ["7"], "text": "y"}', "line 1 must be like"),
        ('{"text": "x"}\n\n\n{"text": " \\t "}', "line 4 must be like .* its text not blank"),
        ("\n", "holds no passage"),
    ],
)
def test_a_file_that_holds_no_passages_is_refused_with_its_line(content, message, tmp_path):
    (tmp_path / "mine.jsonl").write_text(content)
    with pytest.raises(ValueError, match=message):
        load_passages(tmp_path / "mine.jsonl")


def test_a_carriage_return_within_a_line_ends_no_passage(tmp_path):
    (tmp_path / "mine.txt").write_bytes(b"one\rpassage\r\nanother\n")
    assert load_passages(tmp_path / "mine.txt").text.tolist() == ["one\rpassage", "another"]


def test_passages_that_are_too_short_are_left_out_and_counted(root, tiny, tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("a b c d e f\nshort\n\u200b\na b \N{SNOWMAN} d e f g\n", encoding="utf-8")
    run = Run("02_bounds", "smoke")
    run.settings["passages"] = str(tmp_path / "mine.txt")
    assert list(run.passages(tiny["bert"], n=6).text) == ["a b c d e f"]
    said = "passages left out, of 4: 1 with tokens outside a model's vocabulary, 2 of fewer than 6 tokens"
    assert said in capsys.readouterr().out
    tiny["bert"].states(run.passages(tiny["bert"]).text, n=1)
    assert "1 of fewer than 1 tokens" in capsys.readouterr().out
    with pytest.raises(ValueError, match=r"no passage can be read; passages left out, of 4: .* fewer than 9 tokens"):
        run.passages(tiny["bert"], n=9)


def test_passages_of_one_state_are_one_passage(root, tiny, tmp_path, capsys):
    texts = ["a b c d e f", "a b c d e g", "A B C D e h", "b b c d e f"]
    (tmp_path / "mine.txt").write_text("\n".join(texts))
    run = Run("02_bounds", "smoke")
    run.settings["passages"] = str(tmp_path / "mine.txt")
    frame = run.passages(tiny["bert"], n=4)
    states = tiny["bert"].states(frame.text, n=4)
    assert list(frame.text) == [texts[0], texts[3]] and len(np.unique(states, axis=0)) == len(states)
    assert "passages left out, of 4: 2 of the same first 4 tokens as an earlier one" in capsys.readouterr().out
    assert len(run.passages(tiny["bert"])) == 4  # no state of some length is asked for


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


def test_a_name_stands_for_one_model(root, tiny_folders):
    run = Run("02_bounds", "smoke")
    model = run.model(tiny_folders["bert"], vocabulary=range(10, 20))
    assert run.model(tiny_folders["bert"], vocabulary=range(10, 20)) is model
    with pytest.raises(ValueError, match="loaded with other options already"):
        run.model(tiny_folders["bert"])


def test_each_section_keeps_its_own_seed(root):
    first, second = Run("02_bounds", "smoke"), Run("03_crossover", "smoke")
    second.seed = 7
    first.finish()
    second.finish()
    assert results(root)["seeds"] == {"bounds": 0, "crossover": 7}
    page = (root / "build" / "smoke" / "figures" / "claims.md").read_text(encoding="utf-8")
    assert "## bounds: seed 0" in page and "## crossover: seed 7" in page


@pytest.mark.parametrize("index", [["a", "b"], pd.Index([0, 1], name="n")])
def test_a_table_does_not_lose_an_index_that_says_something(root, index):
    with pytest.raises(ValueError, match="would lose its index"):
        Run("02_bounds", "smoke").save_table(pd.DataFrame({"x": [1, 2]}, index=index), "table")


def test_rows_by_length_do_not_lose_their_lengths_and_sorted_ones_lose_nothing(root):
    run = Run("02_bounds", "smoke")
    for table in (pd.DataFrame({5: {"a": 1.0}, 10: {"a": 2.0}}).T, pd.DataFrame({"a": [1, 2]}, index=[0, 2])):
        with pytest.raises(ValueError, match="would lose its index"):
            run.save_table(table, "lengths")
    run.save_table(pd.DataFrame({"a": [1, 3, 2]}).sort_values("a"), "sorted")


def test_a_cell_may_be_run_again_and_says_what_it_replaces(root, capsys):
    run, figure = Run("02_bounds", "smoke"), plt.figure()
    run.settings["pdf"] = True
    for value in (1, 2):
        run.save_table(pd.DataFrame({"x": [value]}), "table")
        run.save_figure(figure, "picture")
    said = capsys.readouterr().out
    assert "table.csv was written in this run already: replaced" in said and "picture.png was written" in said
    assert run.outputs == ["table.csv", "table.md", "picture.png", "picture.pdf"]
    assert (run.figures / "table.csv").read_text().endswith("x\n2\n")


@pytest.mark.parametrize("file", ["training.jsonl", "training.npz"])
def test_what_was_asked_along_a_training_is_an_input(root, file):
    before = runner.inputs_digest("01_incompatibility", "smoke")
    place = root / "data" / "models" / "distilbert" / file
    place.parent.mkdir()
    place.write_text("one")
    one = runner.inputs_digest("01_incompatibility", "smoke")
    place.write_text("other")
    assert len({before, one, runner.inputs_digest("01_incompatibility", "smoke")}) == 3


def test_an_infinite_value_is_shown_as_such_and_not_as_unknown():
    assert claims.plain([np.inf, -np.inf, np.nan, np.float32(2)]) == ["inf", "-inf", None, 2.0]
    record = {"kind": "estimate", "measured": claims.plain(np.inf), "interval": claims.plain((2.0, np.inf))}
    assert claims.measured(record) == "∞ [2, ∞]"
    assert claims.measured(record | {"measured": None, "interval": [2.0, None]}) == "– [2, –]"
    assert claims.number(0.0) == "0"


def test_names_of_columns_show_as_they_are_in_a_table():
    table = pd.DataFrame({"<img src=x onerror=alert(1)>": [1], "d*": [2], "$x < y$": [3], "[a](b)": [4], 5: [6]})
    head = tables.markdown(table).splitlines()[0]
    assert "<img" not in head and r"d\*" in head and r"$x < y$" in head and r"\[a](b)" in head and " 5 |" in head


def test_all_passages_of_a_file_are_taken(tmp_path):
    for source in ("passages", tmp_path / "mine.txt"):
        with pytest.raises(ValueError, match="all passages of a file are taken, got n_passages=10"):
            load_passages(source, n_passages=10)
