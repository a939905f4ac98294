"""Where the numbers of a run come from: profile, seed, commit, device, versions, models."""

import subprocess
from typing import Any

import torch

from glauber_lib import hub
from glauber_lib.checksums import matmul_precision
from glauber_lib.language import CausalLM, MaskedLM
from glauber_lib.paper import profiles
from glauber_lib.paper.keys import versions


def git(*arguments: str) -> str:
    """What git answers in the repository; nothing where it is none."""
    command = ["git", "-C", str(profiles.ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def commit() -> str | None:
    """Short name of the commit that is checked out; None outside a repository."""
    return git("rev-parse", "--short", "HEAD") or None


def describe_run(
    profile: str,
    seed: int,
    models: dict[str, MaskedLM | CausalLM],
    revisions: dict[str, str | None],
    readers: dict[str, Any] | None = None,
) -> dict:
    """Profile, seed, commit, device, precision, versions, and of the models checksums, commits and what computes.

    Parameters
    ----------
    profile : str
    seed : int
    models : dict
        Of each name the model that was loaded.
    revisions : dict
        Of each name the revision that was asked for; only what is in the hub's cache has a commit.
    readers : dict, optional
        Of each name what was loaded to read texts; it has a `computation`, as the models have.
    """
    commits = {name: hub.cached_commit(name, revision) for name, revision in revisions.items()}
    device = next((model.device for model in models.values()), torch.device("cpu"))
    return {
        "profile": profile, "seed": seed, "commit": commit(),
        "dirty": bool(git("status", "--porcelain", "--", "glauber_lib", "notebooks", "data")),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "matmul": matmul_precision(),  # in full by default, and nothing here changes it
        "versions": versions(),
        "models": {str(name): model.checksum for name, model in models.items()},
        "computation": {str(name): loaded.computation for name, loaded in {**(readers or {}), **models}.items()},
        "hub_commits": {str(name): found for name, found in commits.items() if found},
    }  # fmt: skip
