"""docs/bring-your-own-model.md from top to bottom: its examples in their order, then its commands, on tiny models."""

import re
import shlex
import sys
from functools import partial
from itertools import chain

import numpy as np
import pytest
import torch
import transformers
from conftest import SIZES, WIDE, build_tiny, save_tiny

from glauber_lib.__main__ import main
from glauber_lib.paper import ROOT
from glauber_lib.traces import Trace

PAGE = (ROOT / "docs" / "bring-your-own-model.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = [shlex.split(line) for line in re.findall(r"^    python -m glauber_lib (.*)$", PAGE, re.MULTILINE)]
HEAVY = "EVQLVESGGGLVQPGGSLRLSCAASGFTFSSYAMSWVRQAPGKGLEWVSAISGSGGSTYYADSVKGRFTISRDNSKNTLYLQMNSLRAEDTAVYYC"


def save_pickled(network, folder):
    """A network as older versions of transformers wrote it."""
    network.config.save_pretrained(folder)
    torch.save(network.state_dict(), folder / "pytorch_model.bin")


def save_antibodies(folder):
    """A package like antiberty: a pickled tiny BERT of amino acids, and its vocabulary beside it."""
    inner = folder / "antiberty" / "trained_models" / "AntiBERTy_md_smooth"
    inner.mkdir(parents=True)
    (folder / "antiberty" / "__init__.py").write_text("")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"ACDEFGHIKLMNPQRSTVWY"]
    (inner.parent / "vocab.txt").write_text("\n".join(words))
    config = partial(transformers.BertConfig, **SIZES, **WIDE)(vocab_size=len(words))
    save_pickled(transformers.BertForMaskedLM(config), inner)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Where the examples have run: the folder, and what they left."""
    folder = tmp_path_factory.mktemp("own")
    torch.manual_seed(0)
    save_tiny("bert", folder / "my-model")
    network, tokenizer = build_tiny("bert")
    tokenizer.save_pretrained(folder / "my-old-model")
    save_pickled(network, folder / "my-old-model")
    save_antibodies(folder / "packages")
    left = {"__name__": "example"}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(folder / "packages")
        for k, block in enumerate(BLOCKS):
            exec(compile(block, f"example {k}", "exec"), left)
        sys.modules.pop("antiberty", None)
        yield folder, left


def test_the_first_example_is_of_five_lines():
    lines = [sum(map(bool, block.splitlines())) for block in BLOCKS]
    assert lines[:2] == [5, 2]


def test_the_examples_leave_what_the_page_says(place):
    folder, left = place
    assert all((folder / name / "model.safetensors").is_file() for name in ("my-old-model", "antibodies"))
    assert all(word.isalpha() for word in left["letters"].words(np.arange(left["letters"].n_tokens)))
    assert left["few"].n_tokens == 5
    assert {*left["dataset"].dims} == {"chain", "draw", "site"} and "margin" in left["dataset"]
    assert left["delta"].max() < 1e-9  # a joint law
    assert left["heavy"] == HEAVY and {*left["antibodies"].words(np.arange(20))} == {*"ACDEFGHIKLMNPQRSTVWY"}
    assert "".join(left["antibodies"].words(left["states"][0])) == HEAVY[:60]


def test_the_pickled_checkpoint_is_refused_before_it_is_converted(tmp_path, tiny):
    left = {}
    exec(BLOCKS[0].split("model = ")[0], left)
    tiny["bert"].tokenizer.save_pretrained(tmp_path)
    save_pickled(tiny["bert"].network, tmp_path)
    with pytest.raises(ValueError, match="safetensors"):
        left["load_model"](tmp_path)


def test_the_commands_run_and_write_what_they_name(place):
    folder, _ = place
    assert {command[0] for command in COMMANDS} == {"check", "run", "rectangles", "influence"}
    for command in COMMANDS:
        assert main(command) == 0, command
    named = [option for option in chain(*COMMANDS) if re.fullmatch(r"\w+\.(csv|json|npz)", option)]
    assert len(named) == 4 and all((folder / name).stat().st_size for name in named)
    assert Trace.load(folder / "chains.npz").initial.shape == (3, 8)
