"""Checkpoints of transformers: whole, in float32, from safetensors, with their own tokenizer and without a word."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoTokenizer
from transformers.utils.logging import EmptyTqdm, set_tqdm_hook

from glauber_lib.hub import CHECKPOINT, fetch_folder, one_line, own_code, refuse_revision
from glauber_lib.vocabularies import check_reading, ordinary_words, tokenizer_files

# Weights below an encoder that no score of ours depends on: what reads the first token's vector, and tables of numbers
# that the network makes by itself.
HARMLESS = re.compile(
    r"(^|\.)(pooler\..+|(position|token_type)_ids|inv_freq|version|(attn|attention)\.(masked_)?bias)$"
)


@contextmanager
def quietly() -> Iterator[None]:
    """Keep transformers' warnings and progress bars off the terminal; what was set before is set again afterwards.

    The hub's client still shows how far a download is.
    """
    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    hook = set_tqdm_hook(lambda factory, arguments, options: EmptyTqdm(*arguments, **options))
    try:
        yield
    finally:
        set_tqdm_hook(hook)
        transformers.logging.set_verbosity(verbosity)


def load_checkpoint(auto: Any, name: str | Path, refusal: str, revision: str | None = None) -> tuple[Any, Any]:
    """A network in float32 and its tokenizer, from a local directory or the hub, with all weights from safetensors.

    Parameters
    ----------
    auto : type
        One of the classes ``AutoModelFor…`` of transformers.
    name : str or Path
    refusal : str
        What the error says first.
    revision : str, optional
        Pinned revision of a hub model; refused for a folder (a mirror stands for what it was made from).

    Raises
    ------
    ValueError
        If the checkpoint is not there, does not load, brings code of its own, lacks weights, which would be random
        numbers, has weights in its encoder that the network does not use (`HARMLESS` ones aside), or has a tokenizer
        that is not its own.
    """
    refuse_revision(name, revision)
    folder = fetch_folder(name, refusal, revision, files=CHECKPOINT, loader=auto.__name__)
    if code := own_code(folder):
        raise ValueError(f"{refusal} that loads: it contains custom code which must be executed, and is not: {code}")
    options: dict[str, Any] = {"trust_remote_code": False}  # by default transformers asks whoever sits there
    with quietly(), refused(f"{refusal} that loads"):
        network, report = auto.from_pretrained(
            folder, output_loading_info=True, use_safetensors=True, dtype=torch.float32, **options
        )
    if missing := _missing(report):
        raise ValueError(f"checkpoint {str(name)!r} lacks weights that would be random numbers: {missing}")
    _refuse_unused(report, network, name)
    files = tokenizer_files(folder)
    if not files:
        raise ValueError(f"{refusal} that loads: its folder has no tokenizer file, such as tokenizer.json or vocab.txt")
    with quietly(), refused(f"{refusal} that loads: its tokenizer does not, from {files}"):
        tokenizer = AutoTokenizer.from_pretrained(folder, **options)
    check_reading(tokenizer, folder, refusal)
    ordinary_words(tokenizer, network.config.vocab_size, str(name))
    return network, tokenizer


def missing_weights(kind: Any, folder: Path, name: str | Path) -> list[str]:
    """Names of the weights of a network of class `kind` that the folder's safetensors lack, in order.

    ValueError, which says `name`, for weights in its encoder that the network does not use, as from `load_checkpoint`.
    """
    with quietly():
        network, report = kind.from_pretrained(folder, output_loading_info=True, use_safetensors=True)
    _refuse_unused(report, network, name)
    return _missing(report)


def _missing(report):
    return sorted({*report["missing_keys"]} | {str(k) for k in report.get("mismatched_keys", ())})


def _refuse_unused(report, network, name):
    """Refuse a file with weights that belong below the network's encoder and have no place there."""
    base, prefix = network.base_model, network.base_model_prefix
    parts = {prefix, *(name for name, _ in base.named_children())}
    below = {key for key in report["unexpected_keys"] if key.split(".")[0] in parts}
    if unused := sorted(key for key in below if not HARMLESS.search(key)):
        raise ValueError(
            f"checkpoint {str(name)!r} has weights that {type(network).__name__} would leave out, and its answers be "
            f"those of another model: {len(unused)}, the first are {unused[:5]}; its config.json is not that of its "
            "weights, or it needs code that transformers has not"
        )


@contextmanager
def refused(refusal: str) -> Iterator[None]:
    """Whatever a loader raises, of which some are bare exceptions, as a ValueError of one line."""
    try:
        yield
    except Exception as error:
        raise ValueError(f"{refusal} ({one_line(error)})") from error
