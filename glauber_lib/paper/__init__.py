"""The paper's side of the library: profiles, passages, cached results, outputs, and the command that runs notebooks.

A notebook opens a `Run`, measures, records its claims and finishes; ``python -m glauber_lib.paper`` runs notebooks
through papermill and skips those whose inputs have not changed.
"""

from glauber_lib.paper.passages import load_passages
from glauber_lib.paper.profiles import ROOT, load_profile
from glauber_lib.paper.run import Run

__all__ = ["ROOT", "Run", "load_passages", "load_profile"]
