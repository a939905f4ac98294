"""Measure an embedded masked model at every snapshot that its training kept.

One line of JSON a snapshot: step and tokens; the loss on held-out windows; the loss, its standard error and the top-1
share on the project's passages, one mask at a time, at a few sites of each; Δ of every rectangle (nats); the row sums
of the influence matrix of every context; the pseudo-log-likelihood of every text (nats).

All snapshots are asked the same: sites, rectangles, contexts, replacement tokens and texts are drawn once, from one
reference snapshot, and kept beside the output as ``.npz``. The tokens tried at a site are predictions of the reference,
so that other snapshots may find them less likely. A snapshot that the output has already is not measured again; an
output of another model, other counts, other held-out text or another reference is refused. Which training the snapshots
are of is not compared.
"""

import argparse
import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from evaluate import log_probabilities
from safetensors.torch import load_file
from tqdm.auto import tqdm
from train import Windows, held_out_loss

from glauber_lib.answers import ask
from glauber_lib.checkpoints import Stored
from glauber_lib.embedded import EMBEDDED, empty_network, is_stored, package_tokenizer
from glauber_lib.incompatibility import Rectangles, measure_rectangles, sample_rectangles
from glauber_lib.influence import replacement_tokens
from glauber_lib.language import MaskedLM
from glauber_lib.margins import log_pseudo_likelihood
from glauber_lib.paper import load_passages
from glauber_lib.paper.keys import files_digest

TEXT_TOKENS, CONTEXT_TOKENS = 20, 10  # of a rectangle or text, and of a context whose influence is measured


@dataclass(frozen=True)
class Questions(Stored):
    """What every snapshot is asked.

    Attributes
    ----------
    reference : str
        Name of the snapshot whose predictions gave the replacement tokens.
    sites : ndarray, int64[P, k]
        The sites masked in each passage.
    states, passage, i, j, b, d : ndarray
        The fields of `Rectangles`.
    contexts : ndarray, int64[C, 10]
    replacements : ndarray, int64[C, 10]
        Even contexts: the reference's best prediction at each site but for the present token; odd ones: a random token.
    texts : ndarray, int64[T, 20]
    held_out : str
        Digest of the file of the held-out windows; empty where it was not kept.
    """

    reference: str
    sites: np.ndarray
    states: np.ndarray
    passage: np.ndarray
    i: np.ndarray
    j: np.ndarray
    b: np.ndarray
    d: np.ndarray
    contexts: np.ndarray
    replacements: np.ndarray
    texts: np.ndarray
    held_out: str = ""

    @property
    def rectangles(self):
        """The rectangles."""
        return Rectangles(self.states, self.passage, self.i, self.j, self.b, self.d)


def draw_questions(model, reference, passages, *, sites=2, rectangles=200, contexts=20, texts=20, seed=0):
    """Questions about passages, the replacement tokens drawn from a model's predictions.

    Parameters
    ----------
    model : MaskedLM
        The reference snapshot.
    reference : str
        Its name.
    passages : sequence of str
    sites, rectangles, contexts, texts : int
        How many; `sites` in each passage.
    seed : int
    """
    rng = np.random.default_rng([seed, 4])
    asked = np.stack([rng.choice(len(model.tokens(text)), size=sites, replace=False) for text in passages])
    states = model.states(passages, n=TEXT_TOKENS)
    drawn = sample_rectangles(model, states, rectangles, seed=seed)
    short = states[rng.permutation(len(states))[:contexts], :CONTEXT_TOKENS]
    both = replacement_tokens(model, short, 2, seed=seed)  # (C, n, 2): the best prediction and a random token
    tried = both[np.arange(len(short)), :, np.arange(len(short)) % 2]
    long = states[rng.permutation(len(states))[:texts]]
    return Questions(
        reference, asked, drawn.states, drawn.passage, drawn.i, drawn.j, drawn.b, drawn.d, short, tried, long
    )


def row_sums(model, contexts, replacements):
    """Row sums of the influence matrix at temperature one, one change a site: those of `measure_influence`.

    Each conditional is asked for once, which takes five ninths of the time at ten sites.

    Parameters
    ----------
    model : ConditionalModel
    contexts, replacements : ndarray, int64[C, n]
        The token tried at each site in place of its own.

    Returns
    -------
    ndarray, float64[C, n]
    """
    size, n = contexts.shape
    sums = np.zeros((size, n))
    row, site = np.nonzero(~np.eye(n + 1, n, k=-1, dtype=bool))  # a change at site j is row j + 1
    for context, tokens, out in zip(contexts, replacements, sums, strict=True):
        states = np.tile(context, (n + 1, 1))
        states[np.arange(1, n + 1), np.arange(n)] = tokens
        law = ask(model, states[row], site).double().softmax(1)
        for i in range(n):
            before, *after = law[site == i]
            out[i] = sum(0.5 * (before - x).abs().sum().item() for x in after)
    return sums


def load_snapshot(model, path):
    """Put the weights of a snapshot into `model`, in place."""
    weights = {name: weight.float() for name, weight in load_file(path).items()}
    missing = {name for name in model.network.state_dict() if is_stored(name)} ^ set(weights)
    if missing:
        raise ValueError(f"{path} is no snapshot of {model.name}: {sorted(missing)}")
    model.network.load_state_dict(weights, strict=False)


def measure(model, questions, passages, windows, batches):
    """Everything that is logged of one snapshot, as numbers and lists that go into one line of JSON.

    Parameters
    ----------
    model : MaskedLM
    questions : Questions
    passages : DataFrame
        Those of `load_passages`.
    windows : Windows
        Held-out text.
    batches : int
        Of 32 windows each.
    """
    frame = log_probabilities(model, passages, questions.sites)
    rounded = lambda values, digits=4: np.round(values, digits).tolist()  # noqa: E731
    return {
        "held_out": rounded(held_out_loss(model.network, windows, False, model.device, batches=batches)),
        "held_out_windows": 32 * batches,
        "passages": rounded(-frame.log_prob.mean()),
        "passages_error": rounded(frame.groupby("passage").log_prob.mean().sem()),
        "passages_top1": rounded((frame["rank"] == 0).mean()),
        "passages_sites": len(frame),
        "delta": rounded(measure_rectangles(model, questions.rectangles).delta),
        "row_sums": rounded(row_sums(model, questions.contexts, questions.replacements)),
        "pseudo_log_likelihood": rounded(log_pseudo_likelihood(model, questions.texts), 3),
        "text_tokens": questions.texts.shape[1],
    }


def refuse_other(args, questions, lines):
    """ValueError where what is kept was asked or measured with other arguments or text than the present ones."""
    counts = {"rectangles": questions.states, "contexts": questions.contexts, "texts": questions.texts}
    kept = {name: len(asked) for name, asked in counts.items()}
    model, _, step = questions.reference.partition(" at step ")
    kept |= {"model": model, "tokens": questions.held_out or None, "reference": int(step)}
    given = {name: getattr(args, name) for name in kept} | {"tokens": files_digest(args.tokens)}
    if args.reference is None:  # the last snapshot that there was at first
        kept.pop("reference")
    other = {name for name, value in kept.items() if value not in (None, given[name])}
    for line in lines:
        measured = {"batches": line["held_out_windows"] // 32, "reference": line["reference"] == questions.reference,
                    "batch or before": line["tokens"]}  # fmt: skip
        now = {"batches": args.batches, "reference": True, "batch or before": args.before + line["step"] * args.batch}
        other |= {name for name in now if now[name] != measured[name]}
    if other:
        raise ValueError(f"{args.out} is of another measurement ({', '.join(sorted(other))}): delete it and what is kept "
                         "beside it, or name another --out")  # fmt: skip


def follow(args):
    """Measure the snapshots of a folder that are not in the output yet, in the order of their steps."""
    snapshots = {int(path.stem): path for path in sorted(args.snapshots.glob("*.safetensors"))}
    if not snapshots:
        raise SystemExit(f"no snapshots in {args.snapshots}")
    spec, passages = EMBEDDED[args.model], load_passages()
    model = MaskedLM(empty_network(**spec), package_tokenizer(spec["base"]), name=args.model)
    kept = args.out.with_suffix(".npz")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    if not kept.exists():
        reference = max(snapshots) if args.reference is None else args.reference
        load_snapshot(model, snapshots[reference])
        counts = {"rectangles": args.rectangles, "contexts": args.contexts, "texts": args.texts}
        drawn = draw_questions(model, f"{args.model} at step {reference}", passages.text, **counts)
        replace(drawn, held_out=files_digest(args.tokens)).save(kept)
    questions = Questions.load(kept)
    with np.load(args.tokens) as file:
        windows = Windows(dict(file), held_out=True)
    lines = args.out.read_text(encoding="utf-8").splitlines() if args.out.exists() else []
    lines = [json.loads(line) for line in lines]
    refuse_other(args, questions, lines)
    done = {line["step"] for line in lines}
    for step in tqdm([step for step in snapshots if step not in done], desc=args.model, unit="snapshot"):
        load_snapshot(model, snapshots[step])
        line = {"step": step, "tokens": args.before + step * args.batch, "reference": questions.reference}
        line |= measure(model, questions, passages, windows, args.batches)
        with args.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def main():
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=sorted(name for name, spec in EMBEDDED.items() if not spec["causal"]))
    parser.add_argument("snapshots", type=Path, help="folder of snapshots, as train.py keeps them")
    parser.add_argument("--tokens", type=Path, required=True, help="what pack.py wrote")
    parser.add_argument("--out", type=Path, required=True, help="file of JSON lines; what it has is not measured again")
    parser.add_argument("--batch", type=int, default=1_664, help="tokens a step of the training")
    parser.add_argument("--before", type=int, default=0, help="tokens that the first weights had seen already")
    parser.add_argument("--reference", type=int, help="step whose predictions give the replacements (default: last)")
    parser.add_argument("--rectangles", type=int, default=200)
    parser.add_argument("--contexts", type=int, default=20)
    parser.add_argument("--texts", type=int, default=20)
    parser.add_argument("--batches", type=int, default=8, help="of 32 held-out windows")
    follow(parser.parse_args())


if __name__ == "__main__":
    main()
