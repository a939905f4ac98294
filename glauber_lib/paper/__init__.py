"""The paper's side of the library: profiles, passages, cached results, outputs, and the command that runs notebooks.

A notebook opens a `Run`, measures, records its claims and finishes; ``python -m glauber_lib.paper`` runs notebooks
through papermill and skips those whose inputs have not changed.
"""

import importlib
from typing import TYPE_CHECKING

from glauber_lib.paper.profiles import ROOT, load_profile

if TYPE_CHECKING:
    from glauber_lib.paper.passages import load_passages
    from glauber_lib.paper.run import Run

__all__ = ["ROOT", "Run", "load_passages", "load_profile"]

LATER = {"Run": "run", "load_passages": "passages"}  # asked for by notebooks: networks and pictures, seconds to import


def __getattr__(name):
    if name in LATER:
        return getattr(importlib.import_module(f"{__name__}.{LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
