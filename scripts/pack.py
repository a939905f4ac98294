"""Tokenise the corpora into one packed file for training.

Input: ``<corpus>/*.jsonl`` with one ``{"source": ..., "text": ...}`` per line, as
``corpus_registry.py`` and ``corpus_debian.py`` write them.
Output: ``tokens.npz`` with

- ``tokens``     uint16[N]   word-piece ids of all paragraphs, end to end
- ``starts``     int64[S]    offsets at which a window may begin (sentence starts)
- ``source``     uint8[S]    the source of each start
- ``names``      str[K]      source names;  ``weights`` float64[K] their sampling weights
- ``held_out``   uint16[M]   tokens of the held-out paragraphs (about 0.2%)
- ``held_starts``, ``held_source``  the same for them
"""

import argparse
import hashlib
import json
from pathlib import Path

import numpy as np
from tqdm.auto import tqdm

from glauber_lib.embedded import PACKAGES, package_tokenizer

SENTENCE_END = (".", "!", "?", ";", ":")


# Sampling weight per sentence: factual prose most, dictionaries and fiction little. Unlisted: 1.
WEIGHTS = {
    "wiki-summaries": 6.0, "wiki-articles": 5.0, "facts": 3.0, "brown": 2.0, "stellarium": 2.0,
    "freeciv": 2.0, "recipes": 1.0, "factbook": 1.0, "foldoc": 0.5, "phenotypes": 0.5, "sotu": 0.5,
    "anarchism": 0.4, "wordnet": 0.4, "handbook": 0.3, "austen": 0.2, "sqlite": 0.2, "gcide": 0.1, "commentary": 0.1,
}  # fmt: skip


def read_paragraphs(folder):
    """Yield ``(source, text)`` of every distinct paragraph under `folder`."""
    seen = set()
    for path in sorted(Path(folder).glob("*.jsonl")):
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                record = json.loads(line)
                digest = hashlib.blake2b(record["text"].lower().encode(), digest_size=8).digest()
                if digest not in seen:
                    seen.add(digest)
                    yield record["source"], record["text"], digest


def pack(folder, weights, base="minilm"):
    """Tokenise all paragraphs of `folder` with a base's tokenizer; see the module docstring for the arrays returned."""
    tokenizer = package_tokenizer(base).backend_tokenizer
    tokenizer.no_padding()
    tokenizer.no_truncation()
    ends = np.array([tokenizer.token_to_id(mark) for mark in SENTENCE_END])
    paragraphs = list(read_paragraphs(folder))
    names = sorted({source for source, _, _ in paragraphs})
    parts = {False: ([], [], []), True: ([], [], [])}  # held out -> tokens, starts, sources
    length = {False: 0, True: 0}
    for first in tqdm(range(0, len(paragraphs), 4096), desc="tokenise", unit_scale=4096):
        block = paragraphs[first : first + 4096]
        encoded = tokenizer.encode_batch([t for _, t, _ in block], add_special_tokens=False)
        for (source, _, digest), encoding in zip(block, encoded, strict=True):
            ids = np.array(encoding.ids, dtype=np.uint16)
            held = digest[0] == 0 and digest[1] < 128  # 0.2%
            tokens, starts, sources = parts[held]
            inner = np.flatnonzero(np.isin(ids[:-1], ends)) + 1
            here = np.concatenate([[0], inner[inner < len(ids) - 4]])
            tokens.append(ids)
            starts.append(here + length[held])
            sources.append(np.full(len(here), names.index(source), dtype=np.uint8))
            length[held] += len(ids)
    train, held = ([np.concatenate(p) for p in parts[h]] for h in (False, True))
    return {
        "tokens": train[0], "starts": train[1], "source": train[2],
        "held_out": held[0], "held_starts": held[1], "held_source": held[2],
        "names": np.array(names), "weights": np.array([weights.get(n, 1.0) for n in names]),
    }  # fmt: skip


def main():
    """Pack the corpus folder into one file and print each source's share."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--base", choices=sorted(PACKAGES), default="minilm", help="whose tokenizer")
    args = parser.parse_args()
    arrays = pack(args.corpus, WEIGHTS, args.base)
    np.savez(args.out, **arrays)
    mass = arrays["weights"] * np.bincount(arrays["source"], minlength=len(arrays["names"]))
    print(f"{len(arrays['tokens']):,} tokens, {len(arrays['held_out']):,} held out")
    for name, weight, share in zip(arrays["names"], arrays["weights"], mass / mass.sum(), strict=True):
        print(f"{name:24s} weight {weight:4.2f}  share of windows {share:6.1%}")


if __name__ == "__main__":
    main()
