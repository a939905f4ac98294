"""What the site is made of: folded notebooks, anchors of claims, their table; and a browser, or a loud no."""

import re
import subprocess
from html.parser import HTMLParser

import nbformat.v4 as v4
import pytest
from conftest import script

from glauber_lib.paper import ROOT, profiles

site, chromium = script("build_site"), script("chromium")


def record(id, **more):
    """A record as `Entry.record` makes it."""
    return {
        "id": id, "statement": "The mean |x| < 1.", "published": None, "printed": "", "measured": 0.5,
        "interval": [0.4, 0.6], "kind": "estimate", "n": 30, "unit": "chains", "verdict": "holds", "why": "",
        "contradicted_by": "An interval above 1.", **more,
    }  # fmt: skip


def printed(text):
    return v4.new_output("stream", name="stdout", text=text)


def executed():
    """A notebook as papermill leaves it."""
    cells = [
        v4.new_markdown_cell("# Title"),
        v4.new_code_cell('profile = "mini"', metadata={"tags": ["parameters"]}),
        v4.new_code_cell('profile = "smoke"', metadata={"tags": ["injected-parameters"]}),
        v4.new_code_cell(
            "x", outputs=[printed("a/one: 0.5, 30 chains: holds\n"), printed("a/two/x: –\nno claim: x\n")]
        ),
        v4.new_code_cell("y", outputs=[printed("a/one: said again\nother/claim: 1\n")]),
    ]
    return v4.new_notebook(cells=cells)


# Pages ---------------------------------------------------------------------------------------------------------------


def test_code_is_folded_and_the_parameters_stand_once():
    notebook, _ = site.folded(executed(), set())
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.source for cell in code] == ['profile = "smoke"', "x", "y"]
    assert all(cell.metadata["tags"] == ["hide-input"] for cell in code)


def test_a_claim_has_its_anchor_before_the_first_cell_that_printed_it():
    notebook, found = site.folded(executed(), {"a/one", "a/two/x", "a/three"})
    assert found == ["a/one", "a/two/x"]
    [at] = [k for k, cell in enumerate(notebook.cells) if 'id="claim-a-one"' in cell.source]
    assert 'id="claim-a-two-x"' in notebook.cells[at].source and notebook.cells[at + 1].source == "x"


class Rows(HTMLParser):
    """The tags of a page that are open at its end, and its data attributes."""

    def __init__(self):
        super().__init__()
        self.open, self.data = [], []

    def handle_starttag(self, tag, attrs):
        if tag not in ("br", "input", "img"):
            self.open.append(tag)
        self.data += [value for name, value in attrs if name == "data-value"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_a_row_shows_a_claim_escaped_with_what_would_contradict_it():
    rows = Rows()
    claims = [record("a/one", published=0.25, printed="Table 1"), record("b/two", measured=None, interval=None)]
    table = site.claims_table(claims, {"a/one": "notebooks/01_a.html#claim-a-one"})
    rows.feed(table)
    assert rows.open == []
    assert rows.data == [
        "The mean |x| < 1.", "holds", "0.5", "0.25", "a", "The mean |x| < 1.", "holds", "", "", "b",
    ]  # fmt: skip
    assert '<a href="notebooks/01_a.html#claim-a-one">The mean |x| &lt; 1.</a>' in table
    assert table.count("<a ") == 1 and table.count("An interval above 1.") == 2 and "0.25 (Table 1)" in table


def test_a_profile_that_has_not_run_has_no_site(tmp_path, monkeypatch):
    monkeypatch.setattr(profiles, "ROOT", tmp_path)
    with pytest.raises(ValueError, match="'smoke' has no executed notebooks here: make paper PROFILE=smoke"):
        site.write_source("smoke", tmp_path / "source")


def test_the_reference_has_a_page_for_each_module(tmp_path):
    site.write_reference(tmp_path / "api")
    pages = {path.stem for path in (tmp_path / "api").glob("*.rst")}
    assert {"glauber_lib.chains", "glauber_lib.paper.run"} <= pages and not [name for name in pages if "__" in name]
    assert (tmp_path / "api" / "index.md").read_text().count("](glauber_lib.") == len(pages)


# A browser -----------------------------------------------------------------------------------------------------------


def test_no_browser_is_said_with_every_reason_and_no_launcher_is_left(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(chromium.shutil, "which", lambda name: None)
    (tmp_path / "chromium").write_text("of before")

    def refuse(command, **options):
        raise chromium.MissingError(f"{command[0]} says no")

    monkeypatch.setattr(chromium, "said", refuse)
    assert chromium.main(tmp_path) == 1 and not (tmp_path / "chromium").exists()
    said = capsys.readouterr().err
    assert all(way in said for way in ("of machine: none of chromium", "of debian: apt-get", "of playwright: "))


def test_the_machines_own_browser_is_taken_if_it_shows_a_page(tmp_path, monkeypatch):
    program = tmp_path / "bin" / "chromium"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "<p>it starts</p>"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/bin:/usr/bin")
    monkeypatch.setattr(chromium, "NAMES", ("chromium",))
    assert chromium.main(tmp_path / "own") == 0
    started = subprocess.run([tmp_path / "own" / "chromium"], capture_output=True, text=True, check=True)
    assert "it starts" in started.stdout
    program.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(chromium.MissingError, match="chromium"):
        chromium.of_machine(tmp_path / "own")


def test_make_test_builds_the_site_and_opens_it_and_never_without_a_browser():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipe = re.search(r"^test: static \.venv/chromium/chromium .*?(?=^\S)", makefile, re.MULTILINE | re.DOTALL)[0]
    assert "build_site.py --profile smoke" in recipe and "tests/site_in_browser.py" in recipe
    source = (ROOT / "tests" / "site_in_browser.py").read_text(encoding="utf-8")
    assert not re.search(r"skip(if)?\(|importorskip|xfail", source)
