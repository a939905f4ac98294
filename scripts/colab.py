"""A notebook that runs the package on Colab, and its badge (`make colab REPOSITORY=https://…/owner/name`).

Colab opens notebooks by the address they are published at, so both are written once that is known.
"""

import argparse
import re
import sys

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from readme import put_between

from glauber_lib.paper import ROOT

START, END = "<!-- badge: written by make colab -->\n", "<!-- end of badge -->"
PAGE = "docs/paper-profile.md"  # where the badge stands

INTRODUCTION = """# Masked language models as Markov chains, on Colab

Choose a GPU (*Runtime, Change runtime type*), then run the cells in order. What is measured is kept on your Drive: if the session
ends, run the same cells again, and the run goes on where it was."""

INSTALL = """\
import os
import subprocess
import sys

REPOSITORY, FOLDER = "{repository}", "glauber-mlm"
if not os.path.isdir("glauber_lib"):  # not there yet: the first time
    if not os.path.isdir(FOLDER):
        subprocess.run(["git", "clone", "--quiet", "--depth", "1", REPOSITORY, FOLDER], check=True)
    os.chdir(FOLDER)
subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "-e", "."], check=True)"""

KEEP = """\
if "google.colab" in sys.modules:
    from google.colab import drive

    drive.mount("/content/drive")
    os.makedirs("/content/drive/MyDrive/glauber-cache", exist_ok=True)
    os.makedirs("build", exist_ok=True)
    if not os.path.lexists("build/cache"):
        os.symlink("/content/drive/MyDrive/glauber-cache", "build/cache")"""

CHECK = """\
answer = subprocess.run([sys.executable, "-m", "glauber_lib.paper.check", "--profile", PROFILE], capture_output=True, text=True)
print(answer.stdout, answer.stderr)
answer.check_returncode()"""

RUN = "!{sys.executable} -m glauber_lib.paper --profile {PROFILE}"

SHOW = """\
from pathlib import Path

from IPython.display import Image, display

folders = {"mini": "figures", "desk": "figures/desk"}
for path in sorted(Path(folders.get(PROFILE, f"build/{PROFILE}/figures")).glob("*.png")):
    print(path.stem)
    display(Image(path, width=900))"""


def colab_notebook(repository):
    """The notebook: install, keep results on the Drive, check, run, show."""
    cells = [
        new_markdown_cell(INTRODUCTION),
        new_code_cell(INSTALL.format(repository=repository)),
        new_code_cell(KEEP),
        new_markdown_cell("`mini` needs no downloads, `paper` is the published models at the published scale."),
        new_code_cell('PROFILE = "paper"'),
        new_code_cell(CHECK),
        new_code_cell(RUN),
        new_code_cell(SHOW),
    ]
    for k, cell in enumerate(cells):
        cell["id"] = f"cell-{k}"  # random by default
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return new_notebook(cells=cells, metadata={"accelerator": "GPU", "kernelspec": kernel})


def badge(repository, branch="main"):
    """Markdown of the badge that opens the notebook on Colab."""
    owner = re.fullmatch(r"https://github\.com/([\w.-]+/[\w.-]+?)(\.git)?/?", repository)
    if not owner:
        raise ValueError(f"Colab opens repositories such as https://github.com/owner/name, got {repository!r}")
    image = "https://colab.research.google.com/assets/colab-badge.svg"
    return (
        f"[![Open in Colab]({image})](https://colab.research.google.com/github/{owner[1]}/blob/{branch}/colab.ipynb)\n"
    )


def write(repository, root=ROOT):
    """Write ``colab.ipynb``, and the badge into `PAGE`."""
    line = badge(repository)
    nbformat.write(colab_notebook(repository), root / "colab.ipynb")
    put_between(START, END, line, root / PAGE)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repository", required=True, help="https://github.com/owner/name")
    try:
        write(parser.parse_args().repository)
    except ValueError as error:
        sys.exit(str(error))
