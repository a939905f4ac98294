"""Digests of networks, tokenizers and folders: what a cached result that used them depends on."""

import hashlib
import json
from pathlib import Path

import torch

CONFIGURATION = (".json", ".txt", ".py", ".model")  # files of settings, vocabularies and code


def weights_checksum(network: torch.nn.Module) -> str:
    """Hexadecimal digest of all weights of a network, by name."""
    digest = hashlib.blake2b(digest_size=8)
    for name, tensor in sorted(network.state_dict().items()):
        values = tensor.cpu().contiguous().reshape(-1).view(torch.uint8)
        digest.update(name.encode() + values.numpy().tobytes())
    return digest.hexdigest()


def configuration_checksum(folder: Path) -> str:
    """Hexadecimal digest of what a model's folder says beside its weights: the files that end in `CONFIGURATION`.

    Names count from `folder` on, so that a copy elsewhere has the same digest.
    """
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(path for path in folder.rglob("*") if path.suffix in CONFIGURATION and path.is_file()):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(folder).as_posix()} {len(content)} ".encode() + content)
    return digest.hexdigest()


def describe_tokenizer(tokenizer) -> str:
    """A tokenizer of transformers as text: whatever its tokens depend on, and not the folder it was read from."""
    if backend := getattr(tokenizer, "backend_tokenizer", None):
        return backend.to_str()
    # written in Python, as ESM's is: its repr names the folder
    words, special = sorted(tokenizer.get_vocab().items()), tokenizer.special_tokens_map
    return json.dumps([type(tokenizer).__name__, special, words], default=str)
