"""What `make test` compares: a notebook whose stored output is not what it prints fails."""

import os
import re
import subprocess
import sys

import nbformat
import pytest

from glauber_lib.paper import ROOT

FLAGS = re.findall(r"--nbval\S*", (ROOT / "Makefile").read_text(encoding="utf-8"))
CHECKED = "# NBVAL_CHECK_OUTPUT\n"


def compare(folder, source, stored):
    """Status and output of nbval, by the Makefile's flags, on a notebook of one cell and what it should print."""
    printed = [nbformat.v4.new_output("stream", name="stdout", text=stored)]
    cell = nbformat.v4.new_code_cell(source, outputs=printed, execution_count=1)
    notebook = nbformat.v4.new_notebook(cells=[cell])
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, folder / "one.ipynb")
    command = [sys.executable, "-m", "pytest", "-q", *FLAGS, "-p", "no:cacheprovider", "-c", os.devnull, "one.ipynb"]
    answer = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return answer.returncode, answer.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "source, stored, status",
    [
        (CHECKED + "print(0.123)", "0.123\n", 0),
        (CHECKED + "print(0.123)", "0.124\n", 1),
        ("1 / 0", "", 1),
    ],
)
def test_an_altered_output_and_an_error_fail(source, stored, status, tmp_path):
    found, said = compare(tmp_path, source, stored)
    assert found == status, said
    assert ("1 failed" if status else "1 passed") in said


def test_make_test_compares_by_nbval():
    assert FLAGS == ["--nbval-lax", "--nbval-current-env"]
