"""Where a model is, said within seconds and without loading it: embedded, on this disk, or on the Hugging Face hub.

The hub's own loaders retry and tell of it at length. Here it is asked once, and the answer is one line.
"""

import json
import os
from collections.abc import Callable, Sequence
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
UNWANTED = ("*.bin", "*.ckpt", "*.h5", "*.joblib", "*.msgpack", "*.onnx", "*.ot", "*.pickle", "*.pkl", "*.pt", "*.pth")
UNWANTED += ("onnx/*", "openvino/*")
# What is downloaded of a network and its tokenizer: weights, settings and vocabularies.
CHECKPOINT = ("model.safetensors", "model-*-of-*.safetensors", "*.json", "*.txt", "*.model")

# What a tokenizer is made of: any one of these (vocab.json comes with merges.txt).
TOKENIZERS = ("tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model", "spiece.model", "spm.model")
TOKENIZERS += ("sentencepiece.bpe.model",)


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


def refuse_revision(name: str | Path, revision: str | None, kind: str = "") -> None:
    """ValueError for a revision beside what has none: a local directory, or what `kind` says that it is.

    A mirror (`mirrored`) stands for what it was made from.
    """
    kind = kind or ("a local directory" if Path(name).is_dir() else "")
    if revision is not None and kind:
        raise ValueError(
            f"{str(name)!r} is {kind} and has no revision: leave out revision={revision!r}, or name what is on the hub"
        )


def fetch_folder(
    name: str | Path,
    refusal: str,
    revision: str | None = None,
    *,
    files: Sequence[str] | None = None,
    loader: str = "AutoModel",
) -> Path:
    """The folder of a model, downloaded if need be, without anything pickled.

    Hugging Face's loaders are given this folder and never a name: with a folder they ask the network nothing, with
    the name of a cached model they do. A folder has no revision.

    Parameters
    ----------
    name : str or Path
    refusal : str
        What the error says first.
    revision : str, optional
        Branch, tag or commit of a hub model.
    files : sequence of str, optional
        Patterns of the files that are downloaded, of a model that lies in the folder itself. By default all are, and
        every folder below may hold a part of the model.
    loader : str
        Class of transformers that loads the model, for the advice on a pickle.

    Raises
    ------
    ValueError
        If it cannot be had (`locate` says why, in the same line), or a part of it has weights as a pickle alone.
    """
    place = locate(name, revision)
    if not place.found:
        raise ValueError(f"{refusal}; {place.detail}")
    if place.state == "directory":
        folder = Path(mirrored(name))
    elif place.state == "cached" and (config := cached_config(name, revision)):
        folder = config.parent
    else:
        try:
            fetched = snapshot_download(
                str(name), revision=revision, ignore_patterns=list(UNWANTED), endpoint=constants.ENDPOINT,
                allow_patterns=None if files is None else list(files), cache_dir=constants.HF_HUB_CACHE,
            )  # fmt: skip
            folder = Path(fetched)
        except Exception as error:  # as in `locate`
            raise ValueError(f"{refusal}; the download failed ({first_line(error)})") from error
    for pickled in sorted((folder.rglob if files is None else folder.glob)("pytorch_model*.bin")):
        if not any(pickled.parent.glob("*.safetensors")):
            raise ValueError(f"{refusal} that loads: {_pickle_advice(folder, pickled, loader)}")
    return folder


def _pickle_advice(folder, pickled, loader):
    """That a file is a pickle, and the two lines that convert it."""
    config = pickled.with_name("config.json")
    if config.exists() and "model_type" in json.loads(config.read_text(encoding="utf-8")):
        load = f"{loader}.from_pretrained({str(pickled.parent)!r}, use_safetensors=False)"
        lines = f"from transformers import {loader}; {load}.save_pretrained({str(pickled.parent)!r})"
    else:
        target = str(pickled.with_name("model.safetensors"))
        lines = "import torch, safetensors.torch; "
        lines += f"safetensors.torch.save_file(torch.load({str(pickled)!r}, weights_only=True), {target!r})"
    return (
        f"{pickled.relative_to(folder)} is a pickle, without safetensors, and opening a pickle can run code; if you "
        f"trust it, convert it: {lines}"
    )


def own_code(folder: Path, *, below: bool = False) -> list[str]:
    """Classes that a model's settings take from code that came with it or from another repository (``auto_map``).

    The settings in the folder itself are read, or those in all folders `below` as well.
    """
    find = folder.rglob if below else folder.glob
    paths = [*find("config.json"), *find("tokenizer_config.json")]
    maps = [json.loads(path.read_text(encoding="utf-8")).get("auto_map") or {} for path in sorted(paths)]
    named = [c for found in maps for value in found.values() for c in (value if isinstance(value, list) else [value])]
    return list(dict.fromkeys(c for c in named if c))


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
    config = cached_config(name, revision)
    return config.parent.name if config else None


def cached_config(name: str | Path, revision: str | None = None) -> Path | None:
    """The file ``config.json`` of a hub model in the cache, or None."""
    path = try_to_load_from_cache(str(name), "config.json", cache_dir=constants.HF_HUB_CACHE, revision=revision)
    return Path(path) if isinstance(path, str) else None


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
        pickled = " but has a pickle of them, which is never opened" if "pytorch_model.bin" in sizes else ""
        return Location("not found", 0, f"{constants.ENDPOINT} has it without safetensors weights{pickled}")
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


def one_line(error: BaseException, most: int = 500) -> str:
    """All that an exception says, in one line of at most `most` characters, or its kind if it says nothing."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= most else f"{text[:most]}…"
