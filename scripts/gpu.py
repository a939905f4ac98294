"""What a GPU makes of it (`make gpu`): the tests marked gpu, the mini profile, speed by model shape, and predictions.

The timed networks have the published shapes and random weights: for timing only. From the number of conditionals that a
profile asks for (`profiles.declared_cost`, an upper estimate) and the arithmetic of each, the time of the ``paper``
profile is predicted for other cards: from their data sheets, at the share of the float32 rate that was reached here.
Without a GPU ``--predict`` gives that table for an assumed share.
"""

import argparse
import functools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import transformers
from bench import matrix_rate, rate
from readme import put_between
from torch.utils.flop_counter import FlopCounterMode
from tqdm.auto import tqdm
from transformers import AutoTokenizer

from glauber_lib.embedded import package_folder
from glauber_lib.language import MaskedLM
from glauber_lib.networks import HEADS, hidden_at
from glauber_lib.paper import ROOT, load_passages, load_profile
from glauber_lib.paper.profiles import declared_cost, sections

CARDS = {"T4": 8.1, "A100": 19.5, "H100": 66.9}  # float32 peak in TFLOP/s (data sheets; without tensor cores)
PEAKS = {**CARDS, "V100": 15.7, "L4": 30.3, "H200": 66.9}  # cards whose own share of it can be measured
ASSUMED = 0.5  # share of the peak where none was measured
LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
ROBERTA = {"vocab_size": 50_265, "max_position_embeddings": 514, "type_vocab_size": 1}
SHAPES = {  # of the masked models of the paper profile
    "bert-base-uncased": lambda: transformers.BertConfig(),
    "bert-large-uncased": lambda: transformers.BertConfig(**LARGE),
    "roberta-base": lambda: transformers.RobertaConfig(**ROBERTA),
    "roberta-large": lambda: transformers.RobertaConfig(**ROBERTA, **LARGE),
    "answerdotai/ModernBERT-base": lambda: transformers.ModernBertConfig(),
}
CHAINS, N, START = (1, 64, 512, 4096), 20, "<!-- predicted: written by make gpu -->\n"
END = "<!-- end of predicted -->"
PAGE = ROOT / "docs" / "paper-profile.md"  # where the predictions stand


@functools.cache
@torch.inference_mode()
def flops(name, n):
    """Floating-point operations of one conditional on a state of `n` sites, counted without weights."""
    config = SHAPES[name]()
    with torch.device("meta"):
        network = transformers.AutoModelForMaskedLM.from_config(config).eval()
        ids, site = torch.zeros(1, n + 2, dtype=torch.long), torch.zeros(1, 1, dtype=torch.long)
        with FlopCounterMode(display=False) as counter:
            HEADS[config.model_type](network, hidden_at(network, ids, site)[:, 0])
    return counter.get_total_flops()


def predict(profile, cards, share):
    """Hours of each notebook on each card, at most, at `share` of its float32 peak.

    Parameters
    ----------
    profile : dict
        Of every notebook its settings.
    cards : dict of str to float
        Float32 peak in TFLOP/s.
    share : float

    Returns
    -------
    DataFrame
        A row per notebook and one for all: operations in PFLOP, and hours by card.
    """
    work = {
        notebook: sum(cost.conditionals * flops(cost.model, cost.sites) for cost in declared_cost(settings))
        for notebook, settings in profile.items()
    }
    work["all four"] = sum(work.values())
    rows = {
        notebook: {
            "PFLOP": total / 1e15,
            **{card: total / (peak * 1e12 * share) / 3600 for card, peak in cards.items()},
        }
        for notebook, total in work.items()
    }
    return pd.DataFrame.from_dict(rows, orient="index")


def predictions(table, share, source):
    """The prediction as Markdown."""
    shown = table.rename_axis("notebook").reset_index()
    rows = shown.to_markdown(index=False, floatfmt=".2g")
    cards = ", ".join(f"{name} {peak:g}" for name, peak in CARDS.items())
    return (
        f"Predicted hours of `PROFILE=paper`, at most, by card: the conditionals asked for (as if every step asked) times the "
        f"operations of each model's shape, at {share:.2f} of the card's float32 peak on its data sheet ({cards} TFLOP/s). {source} "
        f"Chains that stay where they are ask for far less. Not in it: the timed escapes of section 5, embeddings, scorers and "
        f"the control.\n\n{rows}\n"
    )


def measure_shape(name, texts, chains, device):
    """Rows of chain-steps per second at temperature one, share of the matrix rate, and memory, by number of chains."""
    tokenizer = AutoTokenizer.from_pretrained(package_folder())
    torch.manual_seed(0)
    network = transformers.AutoModelForMaskedLM.from_config(SHAPES[name]())
    model, rows = MaskedLM(network, tokenizer, name=name, device=device), []
    each, pool = flops(name, N), model.states([t for t in texts if len(model.tokens(t)) >= N][:200], n=N)
    for tf32 in (False, True) if device == "cuda" else (False,):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        peak = matrix_rate(device, 8192 if device == "cuda" else 2048)
        for size in tqdm(chains, desc=f"{name}, {'TF32' if tf32 else 'float32'}", leave=False):
            states, steps = pool[np.arange(size) % len(pool)], max(2, 256 // size)
            rate(model, states, 2, 1.0)  # the first call is slow
            if device == "cuda":
                torch.cuda.reset_peak_memory_stats()
            speed, trace = rate(model, states, steps, 1.0, seed=1)
            used = torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else np.nan
            share = trace.model_calls * each * speed / (size * steps) / peak
            rows.append(
                {"shape": name, "precision": "TF32" if tf32 else "float32", "chains": size, "chain-steps/s": speed,
                 "matrix rate, TFLOP/s": peak / 1e12, "share of it": share, "memory, GiB": used}
            )  # fmt: skip
    torch.backends.cuda.matmul.allow_tf32 = False
    return rows


def own_share(rows, card):
    """Share of the card's peak on its data sheet that the slowest shape reaches at a full batch, and where it is from.

    For a card not in `PEAKS` it is the share of the matrix rate measured.
    """
    full = [row for row in rows if row["precision"] == "float32"]
    full = [row for row in full if row["chains"] >= min(512, max(r["chains"] for r in full))]
    peak = next((PEAKS[name] for name in PEAKS if name in card.replace("-", " ").split()), None)
    shares = [row["share of it"] * (row["matrix rate, TFLOP/s"] / peak if peak else 1) for row in full]
    of = "its data sheet's peak" if peak else "its measured matrix rate, for want of a data sheet"
    return min(shares), f"The share is the least that {card} reached with a full batch, of {of}."


def main():
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--predict", action="store_true", help=f"only the predictions, into {PAGE.name}")
    parser.add_argument("--device", default="cuda", help="cpu to rehearse")
    parser.add_argument("--shapes", nargs="*", default=["bert-base-uncased", "bert-large-uncased"], choices=SHAPES)
    parser.add_argument("--chains", type=int, nargs="*", default=CHAINS)
    parser.add_argument("--timing-only", action="store_true", help="neither tests nor notebooks")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "gpu.json")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "gpu.md")
    options = parser.parse_args()
    profile = {notebook: load_profile("paper", notebook) for notebook in sections()}
    if options.predict:
        source = "No GPU was at hand: nothing was measured on one, the share is an assumption."
        put_between(START, END, predictions(predict(profile, CARDS, ASSUMED), ASSUMED, source), PAGE)
        return 0
    if options.device == "cuda" and not torch.cuda.is_available():
        print("torch sees no GPU here: --device cpu rehearses, --predict needs none", file=sys.stderr)
        return 1
    failed = 0
    if not options.timing_only:
        failed |= subprocess.run([sys.executable, "-m", "pytest", "-q", "-m", "gpu"], cwd=ROOT).returncode
        failed |= subprocess.run([sys.executable, "-m", "glauber_lib.paper", "--force"], cwd=ROOT).returncode
    rows = [
        row
        for name in options.shapes
        for row in measure_shape(name, load_passages().text, options.chains, options.device)
    ]
    cuda = options.device == "cuda"
    card = torch.cuda.get_device_name() if cuda else "no GPU: a rehearsal"
    share, source = own_share(rows, card)
    predicted = predictions(predict(profile, CARDS, share), share, source)
    table = pd.DataFrame(rows).to_markdown(index=False, floatfmt=".3g")
    text = f"# {card}\n\nRandom weights, for timing only; n = {N}, τ = 1, torch {torch.__version__}.\n\n{table}\n\n{predicted}"
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"card": card, "rows": rows}, indent=1, default=float) + "\n", encoding="utf-8")
    if cuda:
        options.page.write_text(text, encoding="utf-8")
        put_between(START, END, predicted, PAGE)
    print(text)
    return failed


if __name__ == "__main__":
    sys.exit(main())
