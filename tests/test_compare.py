"""What a run gave beside what it should give, and two runs side by side."""

import json

import pytest

from glauber_lib.paper import claims, compare, profiles

NOTEBOOK, SECTION = "01_incompatibility", "incompatibility"


def record(id, value, interval=None, kind="estimate", why="", verdict="measured"):
    facts = {"id": f"{SECTION}/{id}", "measured": value, "interval": interval, "kind": kind, "why": why}
    rest = {"statement": "", "published": None, "printed": "", "n": 30, "unit": "chains", "contradicted_by": ""}
    return {**facts, **rest, "verdict": verdict}


RECORDS = [
    record("drawn", 1.0, [0.8, 1.4]), record("solved", 2.0, kind="exact"), record("bound", 8.0, kind="lower bound"),
    record("tested", 0.01, why="p must be below 0.05"), record("lacking", None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("claim", "accepted", "refused"),
    [
        (RECORDS[0], [1.0, 0.51, 1.99], [0.49, 2.01, None]),
        (RECORDS[1], [2.0, 1.981, 2.019], [1.97, 2.03, None]),
        (RECORDS[2], [4.1, 11.9], [3.9, 12.1]),
        (RECORDS[3], [0.001, 0.0999], [0.0009, 0.11]),
        (RECORDS[4], [None], [0.0]),
        (record("rounding", 6e-16, kind="exact"), [0.0, 1e-15], [1e-5]),
        (record("none", 0.0, kind="upper bound"), [0.0, -0.05], [0.2]),
        (record("left out", 3.0, [1.0, 2.0]), [3.0, 3.02], [3.1]),  # the interval of a skewed statistic
        (record("open", 3.0, [2.0, "inf"], kind="censored"), [1.6, 4.4], [1.4, 4.6, "inf"]),
        (record("endless", "inf", [2.0, "inf"]), ["inf"], [1e300, None]),
    ],
)
def test_each_value_has_the_range_of_its_kind(claim, accepted, refused):
    low, high, why = compare.expected_range(claim)
    assert all(compare.inside(value, low, high) for value in accepted) and (why or claim["measured"] is None)
    assert not any(compare.inside(value, low, high) for value in refused)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A folder of results, and a function that writes them."""
    monkeypatch.setattr(profiles, "figures_folder", lambda profile: tmp_path)
    monkeypatch.setattr(compare, "expected_file", lambda profile: tmp_path / "expected" / f"{profile}.json")

    def write(records, models="of the run", name="results.json"):
        found = {"profile": "smoke", "seeds": {SECTION: 0}, "models": {SECTION: models}, "not_asked": {}}
        (tmp_path / name).write_text(json.dumps({**found, "claims": records}), encoding="utf-8")
        return tmp_path / name

    write(RECORDS)
    return write


def test_a_stock_run_agrees_with_itself_and_a_changed_value_is_named(run, capsys):
    compare.write_expected("smoke")
    assert compare.report("smoke", [NOTEBOOK])
    assert "5 of 5 claims are as expected" in capsys.readouterr().out
    run([{**RECORDS[0], "measured": 2.5}, *RECORDS[1:]])
    assert not compare.report("smoke", [NOTEBOOK])
    assert f"{SECTION}/drawn: measured 2.5, expected 1 (0.5 to 2)" in capsys.readouterr().out


@pytest.mark.parametrize("records", [RECORDS[1:], [*RECORDS, record("new", 1.0, [0.5, 1.5])]])
def test_a_claim_that_is_lost_or_new_is_not_as_expected(run, records):
    compare.write_expected("smoke")
    run(records)
    assert not compare.report("smoke", [NOTEBOOK])


def test_other_models_settings_and_profiles_are_not_compared(run, capsys, monkeypatch):
    compare.write_expected("smoke")
    run([{**RECORDS[0], "measured": 99.0}], models="others")
    assert compare.report("smoke", [NOTEBOOK]) and "its models are not those" in capsys.readouterr().out
    run([{**RECORDS[0], "measured": 99.0}])
    load = profiles.load_profile
    monkeypatch.setattr(profiles, "load_profile", lambda *names: {**load(*names), "rectangles": 25})
    assert compare.report("smoke", [NOTEBOOK]) and "its settings are not those" in capsys.readouterr().out
    assert compare.report("mini", [NOTEBOOK]) and "no values are expected" in capsys.readouterr().out


def test_two_files_side_by_side(run, capsys, tmp_path):
    first, second = run(RECORDS, name="a.json"), run([{**RECORDS[1], "measured": 2.5}, RECORDS[2]], name="b.json")
    assert compare.main([str(first), str(first)]) == 0
    assert compare.main([str(first), str(second)]) == 1
    table = compare.side_by_side(*(claims.read_results(path)["claims"] for path in (first, second))).set_index("claim")
    assert table.agrees[f"{SECTION}/bound"] and not table.agrees[f"{SECTION}/solved"]
    assert table.why[f"{SECTION}/drawn"] == "only in the first"
    assert compare.main([str(first), str(tmp_path / "no.json")]) == 2
    assert "no such file" in capsys.readouterr().err


def test_claims_without_a_value_agree_where_their_intervals_do():
    ends = {(10.0, "inf"): [(10.5, "inf")], (None, 3.0): [(None, 3.1)], None: [None]}
    others = [(1000.0, "inf"), (10.0, 20.0), (None, 30.0)]
    for interval, alike in ends.items():
        for other in [*alike, *others]:
            table = compare.side_by_side([record("open", None, interval)], [record("open", None, other)])
            assert bool(table.agrees[0]) == (other in alike), (interval, other)


def test_the_command_writes_what_is_expected(run, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(profiles, "ROOT", tmp_path)
    monkeypatch.setattr(profiles, "notebooks", lambda: [NOTEBOOK])
    monkeypatch.setattr(compare, "settings_digest", lambda *names: "digest")
    assert compare.main(["--expect", "smoke"]) == 0 and "expected/smoke.json" in capsys.readouterr().out
    (tmp_path / "results.json").unlink()
    assert compare.main(["--expect", "smoke"]) == 2


@pytest.mark.parametrize("profile", ["smoke", "mini"])
def test_committed_expectations_are_of_the_settings_and_claims_that_there_are(profile):
    expected = json.loads(compare.expected_file(profile).read_text(encoding="utf-8"))
    entries = claims.read_claims()
    for notebook, digest in expected["settings"].items():
        assert compare.settings_digest(profile, notebook) == digest, f"write them anew: --expect {profile}"
    for id in expected["claims"]:
        claims.find_entry(entries, id)
