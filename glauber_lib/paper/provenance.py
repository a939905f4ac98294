"""Where the numbers of a run come from: profile, seed, commit, device, versions, models."""

import os
import subprocess
from typing import Any

import torch

from glauber_lib import hub
from glauber_lib.checksums import matmul_precision
from glauber_lib.language import CausalLM, MaskedLM
from glauber_lib.paper import profiles
from glauber_lib.paper.keys import versions

UNKNOWN = "unknown"
TREE = ("glauber_lib", "notebooks", "data")  # what results depend on
ELSEWHERE = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR")  # what names a repository to git


def git(*arguments: str) -> str | None:
    """What git answers in the repository; None where there is no git, or it refuses."""
    command = ["git", "--no-optional-locks", "-C", str(profiles.ROOT), *arguments]
    variables = {name: value for name, value in os.environ.items() if name not in ELSEWHERE}
    try:
        answer = subprocess.run(command, capture_output=True, env=variables, check=False)
    except OSError:
        return None
    return answer.stdout.decode(errors="replace").strip() if answer.returncode == 0 else None


def repository_state() -> tuple[str, bool | str]:
    """Short name of the commit that is checked out, and whether the working tree differs from it.

    Both are "unknown" where git does not say, and where the repository is another one, in which the package lies.
    """
    own = "glauber_lib/__init__.py"
    if git("ls-files", "--full-name", "--", own) != own:  # of another repository it has another name, or none
        return UNKNOWN, UNKNOWN
    commit = git("rev-parse", "--short", "HEAD")
    changes = git("status", "--porcelain", "--untracked-files=all", "--", *TREE)  # settings may leave new files out
    return commit or UNKNOWN, UNKNOWN if changes is None or not commit else bool(changes)


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
    commit, dirty = repository_state()
    device = next((model.device for model in models.values()), torch.device("cpu"))
    return {
        "profile": profile, "seed": seed, "commit": commit, "dirty": dirty,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "matmul": matmul_precision(),  # in full by default, and nothing here changes it
        "versions": versions(),
        "models": {str(name): model.checksum for name, model in models.items()},
        "computation": {str(name): loaded.computation for name, loaded in {**(readers or {}), **models}.items()},
        "hub_commits": {str(name): found for name, found in commits.items() if found},
    }  # fmt: skip
