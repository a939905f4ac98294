"""Where a model is, said within seconds and without loading it: embedded, on this disk, or on the Hugging Face hub.

The hub's own loaders retry and tell of it at length. Here it is asked once, and the answer is one line.
"""

import json
import os
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from threading import Thread
from typing import Any

from huggingface_hub import HfApi, constants, snapshot_download, try_to_load_from_cache
from huggingface_hub.errors import (
    GatedRepoError,
    HFValidationError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from glauber_lib.embedded import EMBEDDED

LOCAL = ("embedded", "directory", "cached")
STATES = (*LOCAL, "on the hub", "unreachable", "not found", "gated")
PATIENCE = 5.0  # seconds for all that is asked about one model

# What is never downloaded: pickles, and weights for other libraries.
UNWANTED = ["*.bin", "*.ckpt", "*.h5", "*.joblib", "*.msgpack", "*.onnx", "*.ot", "*.pickle", "*.pkl", "*.pt", "*.pth"]
UNWANTED += ["onnx/*", "openvino/*"]

# What a tokenizer is made of: any one of these (vocab.json comes with merges.txt).
TOKENIZERS = ("tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model", "spiece.model", "spm.model")


@dataclass(frozen=True)
class Location:
    """What is known of a model.

    Attributes
    ----------
    state : str
        One of `STATES`.
    bytes : int
        What is to be downloaded; 0 for a local model.
    detail : str
        One line for people.
    """

    state: str
    bytes: int
    detail: str

    @property
    def found(self) -> bool:
        """Whether the model can be loaded, perhaps after a download."""
        return self.state in (*LOCAL, "on the hub")


def mirrored(name: str | Path) -> str:
    """The folder of a hub repository below the folder GLAUBER_MODELS, if it is there; otherwise `name`."""
    folder = os.environ.get("GLAUBER_MODELS")
    return str(Path(folder) / name) if folder and (Path(folder) / name).is_dir() else str(name)


def locate(name: str | Path, revision: str | None = None) -> Location:
    """Where a model is, without loading it.

    Parameters
    ----------
    name : str or Path
        An embedded model, a local directory, or a name on the hub.
    revision : str, optional
        Branch, tag or commit of a hub model.

    Returns
    -------
    Location
        The hub is asked only for what is not local, once, and for at most `PATIENCE` seconds.
    """
    if name in EMBEDDED:
        return Location("embedded", 0, "weights in data/models")
    if Path(mirrored(name)).is_dir():
        return Location("directory", 0, "local directory")
    try:
        missing = missing_files(str(name), revision)
    except HFValidationError:
        return Location("not found", 0, "no directory, and no name that the hub could have")
    if not missing:
        return Location("cached", 0, f"in {constants.HF_HUB_CACHE}")
    try:
        return answer_within(PATIENCE, lambda: ask_hub(str(name), revision))
    except Exception as error:  # whatever a network, a proxy or a strange answer may raise, the model is not there
        return failed_location(error, str(name), revision, missing)


def place_to_load(name: str | Path, refusal: str, revision: str | None = None) -> tuple[str, dict[str, Any]]:
    """What Hugging Face's loaders take for a model: its folder or name, and options.

    A cached model is loaded without asking the network. A folder has no revision.

    Raises
    ------
    ValueError
        If it cannot be had: `refusal` and, in the same line, why.
    """
    place = locate(name, revision)
    if not place.found:
        raise ValueError(f"{refusal}; {place.detail}")
    if place.state == "directory":
        return str(mirrored(name)), {}
    return str(name), {"revision": revision, "local_files_only": place.state == "cached"}


def fetch_folder(name: str | Path, refusal: str, revision: str | None = None) -> Path:
    """The folder of a model as a whole, downloaded if need be, without anything pickled.

    Raises
    ------
    ValueError
        As `place_to_load`, and if a part of it has weights as a pickle alone.
    """
    source, options = place_to_load(name, refusal, revision)
    folder = source if Path(source).is_dir() else snapshot_download(source, ignore_patterns=UNWANTED, **options)
    for pickled in Path(folder).rglob("pytorch_model*.bin"):
        if not any(pickled.parent.glob("*.safetensors")):
            raise ValueError(f"{refusal} that loads: {pickled.relative_to(folder)} is a pickle, without safetensors")
    return Path(folder)


def locate_passages(source: str, revision: str | None = None) -> Location:
    """Where passages are (`paper.load_passages`), as `locate` says it of a model."""
    path = Path(mirrored(source))
    if source == "passages":
        return Location("embedded", 0, "passages in data")
    if path.is_dir() or path.suffix in (".jsonl", ".txt"):
        found = path.exists()
        return Location("directory" if found else "not found", 0, "local" if found else "no such file")
    from datasets import config as datasets_config  # seconds to import, for this alone

    prepared = f"{source.replace('/', '___')}/v2.1/*/{revision or '*'}/dataset_info.json"
    if any(Path(datasets_config.HF_DATASETS_CACHE).glob(prepared)):
        return Location("cached", 0, f"in {datasets_config.HF_DATASETS_CACHE}")
    try:
        ask = HfApi(endpoint=constants.ENDPOINT).dataset_info
        info = answer_within(PATIENCE, lambda: ask(source, revision=revision, files_metadata=True, timeout=PATIENCE))
    except Exception as error:  # as in `locate`
        return failed_location(error, f"datasets/{source}", revision, ["config.json"])
    files = [file for file in info.siblings or () if fnmatch(file.rfilename, "*validation*")]
    return Location("on the hub", sum(file.size or 0 for file in files), f"at {constants.ENDPOINT}")


def missing_files(name: str, revision: str | None = None) -> list[str]:
    """Files of a hub model that its cache lacks; none after a download that was not interrupted."""

    def cached(file):
        path = try_to_load_from_cache(name, file, cache_dir=constants.HF_HUB_CACHE, revision=revision)
        return path if isinstance(path, str) else None  # else: not cached, or known not to exist

    wanted, index = ["config.json"], cached("model.safetensors.index.json")
    if index and not cached("model.safetensors"):
        wanted += sorted(set(json.loads(Path(index).read_text(encoding="utf-8"))["weight_map"].values()))
    else:
        wanted.append("model.safetensors")
    missing = [file for file in wanted if not cached(file)]
    return missing if any(map(cached, TOKENIZERS)) else [*missing, "tokenizer.json"]


def cached_commit(name: str | Path, revision: str | None = None) -> str | None:
    """Commit of a hub model that was loaded; None for what is not from the hub.

    Read from the cache, which has a folder per commit: the loaders no longer say which one they took.
    """
    if Path(mirrored(name)).is_dir():
        return None
    config = try_to_load_from_cache(str(name), "config.json", cache_dir=constants.HF_HUB_CACHE, revision=revision)
    return Path(config).parent.name if isinstance(config, str) else None


def ask_hub(name: str, revision: str | None = None) -> Location:
    """What the hub says of a model it has; raises what its client raises."""
    api = HfApi(endpoint=constants.ENDPOINT)
    info = api.model_info(name, revision=revision, files_metadata=True, timeout=PATIENCE)
    if info.gated:  # everybody may read about a gated model, not everybody may have it
        api.auth_check(name)
    sizes = {file.rfilename: file.size or 0 for file in info.siblings or ()}
    weights = [file for file in sizes if fnmatch(file, "model-*-of-*.safetensors")]
    weights = ["model.safetensors"] if "model.safetensors" in sizes else weights
    if not weights:
        return Location("not found", 0, f"{constants.ENDPOINT} has it without safetensors weights")
    small = [file for file in sizes if "/" not in file and file.endswith((".json", ".txt", ".model"))]
    return Location("on the hub", sum(sizes[file] for file in weights + small), f"at {constants.ENDPOINT}")


def answer_within(seconds: float, function: Callable[[], Any]) -> Any:
    """What `function` returns or raises, or TimeoutError.

    A client's own timeout holds for each step of a connection and each address of a host, and not at all for the
    resolution of its name. The thread that is given up ends with the program.
    """
    future = Future()

    def work():
        try:
            future.set_result(function())
        except Exception as error:
            future.set_exception(error)

    Thread(target=work, daemon=True).start()
    try:
        return future.result(seconds)
    except TimeoutError:
        raise TimeoutError(str(future.exception()) if future.done() else f"no answer in {seconds:g} s") from None


def failed_location(error: Exception, name: str, revision: str | None, missing: list[str]) -> Location:
    """The `Location` of a model that the hub did not give, from what its client raised."""
    hub, status = constants.ENDPOINT, getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, RevisionNotFoundError):
        return Location("not found", 0, f"{hub} has no revision {revision!r} of it")
    if isinstance(error, GatedRepoError):
        return Location("gated", 0, f"accept its terms at {hub}/{name} and set HF_TOKEN (status {status})")
    if isinstance(error, RepositoryNotFoundError) or status == 404:
        private = ", or it is private and HF_TOKEN must be set" if status == 401 else ""
        return Location("not found", 0, f"{hub} has no such model{private} (status {status})")
    if status in (401, 403):
        return Location("gated", 0, f"{hub} refuses access, see HF_TOKEN (status {status})")
    partly = "config.json" not in missing
    where = f"only in part in the cache ({', '.join(missing)} missing)" if partly else "not in the cache"
    if isinstance(error, OfflineModeIsEnabled):
        return Location("unreachable", 0, f"{where}, and HF_HUB_OFFLINE is set")
    return Location("unreachable", 0, f"{where}, and {hub} cannot be reached ({first_line(error)[:120]})")


def first_line(error: BaseException) -> str:
    """What an exception says in its first line, or its kind if it says nothing."""
    return next(filter(None, map(str.strip, str(error).splitlines())), type(error).__name__)
