"""What the scripts of the corpora leave where they are cut off."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from conftest import script

debian, registry = script("corpus_debian"), script("corpus_registry")
STORY = 'legend=_("The people of this land lived in peace for many years.")'


def unpack(text):
    """What stands in for ``apt-get`` and ``dpkg``: a package of one nation, of which unpacking may be cut off."""

    def run(command, **options):
        if command[0] == "apt-get":
            Path(options["cwd"], "package.deb").write_text("")
            return
        place = Path(command[-1], "usr/share/games/freeciv/nation")
        place.mkdir(parents=True)
        if text is None:
            raise KeyboardInterrupt
        (place / "a.ruleset").write_text(text)

    return run


def corpus(monkeypatch, tmp_path, text):
    """Run the script of Debian's corpora for one source; the lines that it wrote."""
    (tmp_path / "work").mkdir(exist_ok=True)
    monkeypatch.setattr(subprocess, "run", unpack(text))
    monkeypatch.setattr(sys, "argv", ["-", "--out", str(tmp_path / "out"), "--work", str(tmp_path / "work"), "freeciv"])
    debian.main()
    return [json.loads(line) for line in (tmp_path / "out" / "debian-freeciv.jsonl").read_text().splitlines()]


def test_a_package_whose_unpacking_was_cut_off_is_fetched_anew(monkeypatch, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        corpus(monkeypatch, tmp_path, None)
    (line,) = corpus(monkeypatch, tmp_path, STORY)
    assert line["text"] == "The people of this land lived in peace for many years."


def test_a_source_without_a_paragraph_is_an_error_and_leaves_no_file(monkeypatch, tmp_path):
    with pytest.raises(SystemExit, match="freeciv: no paragraph in"):
        corpus(monkeypatch, tmp_path, "")
    assert not list((tmp_path / "out").iterdir())


def test_an_archive_that_was_cut_off_is_unpacked_anew(monkeypatch, tmp_path):
    def run(command, cwd, **options):
        with zipfile.ZipFile(Path(cwd, "package.whl"), "w") as file:
            file.writestr("a.txt", "whole")

    def cut_off(self, place, **options):
        Path(place).mkdir()
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "run", run)
    with monkeypatch.context() as context:
        context.setattr(zipfile.ZipFile, "extractall", cut_off)
        with pytest.raises(KeyboardInterrupt):
            registry.fetch("facts", tmp_path)
    assert (registry.fetch("facts", tmp_path) / "a.txt").read_text() == "whole"
