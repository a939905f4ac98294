r"""Put what training needs into one small folder, for a machine without a package index (a borrowed GPU).

The folder holds the packed tokens, compressed, and of the MiniLM package the tokenizer, the configuration and the word
embeddings in float16: about 45 MB. The encoder comes from an exported model (``--init data/models/minilm-6l``). There::

    export GLAUBER_MINILM=FOLDER
    python scripts/train.py minilm-6l --tokens FOLDER/tokens.npz --work WORK --export OUT/minilm-6l \\
        --init data/models/minilm-6l --batch 32768 --steps 6000
"""

import argparse
import shutil
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from glauber_lib.embedded import package_folder


def main():
    """Write the folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=Path, required=True, help="what pack.py wrote")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    with np.load(args.tokens) as file:
        np.savez_compressed(args.out / "tokens.npz", **file)
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"):
        shutil.copy(package_folder() / name, args.out)
    name = "embeddings.word_embeddings.weight"
    embeddings = load_file(package_folder() / "model.safetensors")[name]
    save_file({name: embeddings.to(torch.float16)}, args.out / "model.safetensors")
    total = sum(path.stat().st_size for path in args.out.iterdir())
    print(f"{args.out}: {total / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
