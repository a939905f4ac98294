"""Train the embedded language models: the encoder of a package under a new language-model head.

The recipe (masked models): windows of 5-80 tokens between [CLS] and [SEP], the mask token only, a fixed
share of the sites masked while the learning rate is constant, less while it decays linearly to zero, and one to three
sites at its end; AdamW, gradient clipping, an exponential average of the weights. The head can be trained alone at
first. The word embeddings stay frozen, so that they need not be stored. The causal model is the same network with a
causal attention mask, trained on the next token at a fixed share of the sites. A smaller model begins with some layers of
a larger one and learns its conditionals beside the text (`distil.py`).

Resumable: the checkpoint holds weights, average, optimiser and step; every batch is a function
of (seed, step, rank), so a resumed run sees the batches it would have seen. It holds what these depend on too, and is
refused by a run with other arguments, other text, another start or another number of processes. Run it under
``python -m torch.distributed.run --nproc-per-node 2`` to give each core its own half of the batch (on two noisy cores
faster than two OpenMP threads, which wait for each other in every operation).
"""

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from distil import as_bert, distillation_loss, shrunk
from safetensors.torch import save_file
from tqdm.auto import tqdm

from glauber_lib.embedded import (
    EMBEDDED,
    bare_network,
    empty_network,
    head_of,
    is_stored,
    load_embedded,
    output_bias,
    save_embedded,
    stored_weights,
)
from glauber_lib.networks import HEADS, hidden_at
from glauber_lib.paper.keys import files_digest

LENGTHS = (5, 8, 12, 20, 20, 32, 48, 64, 80)  # tokens of a window, without its frame
CLS, SEP, MASK = 101, 102, 103
# Steps after which the weights are kept, so that quantities can be followed along training (scripts/along.py).
SNAPSHOTS = (0, 10, 20, 30, 45, 68, 100, 150, 225, 340, 510, 770, 1150, 1730, 2600, 3900, 5800, 8700, 13_000, 20_000)
JUDGED = 4_000  # tokens of each of the four batches by which hidden units are chosen
RECORDED = (
    "batch",
    "rate",
    "head_rate",
    "head_steps",
    "flat",
    "masked",
    "seed",
    "layers",
    "teacher",
)  # arguments kept with the weights


class Windows:
    """Draws windows of running text from the packed corpus.

    Parameters
    ----------
    arrays : mapping
        What ``pack.py`` wrote.
    held_out : bool
        Draw from the held-out paragraphs.
    """

    def __init__(self, arrays, *, held_out=False):
        prefix = "held_" if held_out else ""
        self.tokens = arrays["held_out" if held_out else "tokens"]
        self.starts = arrays[prefix + "starts"]
        mass = arrays["weights"][arrays[prefix + "source"]]
        self.cumulative = np.cumsum(mass / mass.sum())

    def draw(self, rng, count, length):
        """Token ids (count, length + 2), framed by [CLS] and [SEP]; ValueError for a text shorter than a window."""
        if len(self.tokens) < length:
            raise ValueError(f"a window has {length} tokens, the text {len(self.tokens)}: give more text")
        first = self.starts[
            np.searchsorted(self.cumulative, rng.random(count), side="right").clip(max=len(self.starts) - 1)
        ]
        first = np.where(rng.random(count) < 0.2, first + rng.integers(0, 10, count), first)
        first = np.minimum(first, len(self.tokens) - length)
        ids = self.tokens[first[:, None] + np.arange(length)].astype(np.int64)
        frame = lambda token: np.full((count, 1), token)  # noqa: E731
        return torch.from_numpy(np.concatenate([frame(CLS), ids, frame(SEP)], axis=1))


def batch(windows, rng, tokens, rate, causal):
    """One training batch: inputs (B, T), sites asked for (B, k), their tokens (B, k)."""
    length = int(rng.choice(LENGTHS))
    ids = windows.draw(rng, max(1, tokens // (length + 2)), length)
    k = max(1, round(rate * length)) if rate else int(rng.integers(1, 4))
    sites = torch.from_numpy(rng.random((len(ids), length)).argsort(axis=1)[:, :k].copy()) + 1
    answers = ids.gather(1, sites)
    if causal:
        return ids, sites - 1, answers  # the site before predicts the token
    return ids.scatter(1, sites, MASK), sites, answers


def log_scores(network, ids, sites, causal):
    """Vocabulary scores (B, k, |V|) at `sites`; the last layer is evaluated there alone."""
    return HEADS[network.config.model_type](network, hidden_at(network, ids, sites, causal=causal))


def cross_entropy(network, ids, sites, answers, causal):
    """Mean negative log-probability of `answers` in nats."""
    return F.cross_entropy(log_scores(network, ids, sites, causal).flatten(0, 1).float(), answers.flatten())


@torch.inference_mode()
def held_out_loss(network, windows, causal, device, batches=8):
    """Cross-entropy with one masked site a window, always on the same windows of 20-60 tokens."""
    rng = np.random.default_rng(12345)
    losses = []
    for _ in range(batches):
        ids = windows.draw(rng, 32, int(rng.integers(20, 61)))
        sites = torch.from_numpy(rng.integers(1, ids.shape[1] - 1, (len(ids), 1)))
        answers = ids.gather(1, sites)
        inputs, asked = (ids, sites - 1) if causal else (ids.scatter(1, sites, MASK), sites)
        losses.append(cross_entropy(network, inputs.to(device), asked.to(device), answers.to(device), causal).item())
    return float(np.mean(losses))


def schedule(step, steps, flat=0.7, masked=0.25, warmup=150):
    """Learning-rate factor and share of sites masked (0: one to three sites) at `step`."""
    done = step / steps
    if done < flat:
        return min(1.0, (step + 1) / warmup), masked
    left = max((1 - done) / (1 - flat), 0.0)
    return left, masked * max(left, 0.5) if left > 0.15 else 0.0


def starting_weights(folder, spec, layers, windows):
    """The weights of an exported model, made smaller or causal where the model to be trained is."""
    source = EMBEDDED[folder.name]
    if layers:
        rng = np.random.default_rng(0)
        ids = [batch(windows, rng, JUDGED, 0.15, False)[0] for _ in range(4)]
        weights = shrunk(load_embedded(folder.name, folder.parent), layers, spec["width"], ids)
    else:
        weights = stored_weights(folder)
    return as_bert(weights) if spec["base"] == "distilbert" and spec["causal"] > source["causal"] else weights


def keep(network, path):
    """Write the weights that training changes, float16, once."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        weights = {k: w.detach().cpu().half().contiguous() for k, w in network.state_dict().items() if is_stored(k)}
        save_file(weights, path)


def settings_of(args, world):
    """What a training depends on, by name: all arguments but for places and intervals; files stand by their content."""
    given = {name: getattr(args, name) for name in (*RECORDED, "model", "steps")}
    files = {name: path and files_digest(path) for name, path in (("tokens", args.tokens), ("init", args.init))}
    return {**given, **files, "processes": world}


def train(args):
    """Train one model, writing a checkpoint every `args.every` steps and the export at the end."""
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if world > 1:
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")  # TF32 on a GPU; the chains' own arithmetic stays float32
    torch.manual_seed(args.seed)
    spec = EMBEDDED[args.model]
    causal = spec["causal"]
    if not args.init and (args.layers or "width" in spec):
        raise ValueError(f"{args.model} begins with layers of a larger model, got no folder of one: give --init")
    with np.load(args.tokens) as file:
        arrays = dict(file)
    network = (empty_network if args.init else bare_network)(**spec)
    teacher = load_embedded(args.teacher).to(device).eval() if args.teacher else None
    counts = np.bincount(arrays["tokens"], minlength=network.config.vocab_size) + 0.1
    with torch.no_grad():
        output_bias(network).copy_(torch.from_numpy(np.log(counts / counts.sum())))
    network.get_input_embeddings().weight.requires_grad_(False)  # and with them the decoder, which is tied
    train_windows, held_windows = Windows(arrays), Windows(arrays, held_out=True)
    if args.init:
        start = starting_weights(args.init, spec, args.layers, train_windows)
        left = [k for k in network.load_state_dict(start, strict=False).missing_keys if is_stored(k)]
        if left:
            raise ValueError(f"{args.init} lacks weights of {args.model}: {left}")
    network.to(device)
    parameters = [p for p in network.parameters() if p.requires_grad]
    flat = torch.zeros(sum(p.numel() for p in parameters), device=device)  # all gradients, one buffer
    for p, piece in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
        p.grad = piece.view_as(p)
    head = [p for p in head_of(network) if p.requires_grad]
    encoder = [p for p in parameters if all(p is not own for own in head)]
    groups = [{"params": encoder, "lr": args.rate}, {"params": head, "lr": args.head_rate}]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    peak = [group["lr"] for group in groups]
    average = torch.optim.swa_utils.AveragedModel(
        network, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.998)
    )
    args.work.mkdir(parents=True, exist_ok=True)
    checkpoint, log = args.work / f"{args.model}.pt", args.work / f"{args.model}.jsonl"
    step, seen, settings = 0, 0, settings_of(args, world)
    if checkpoint.exists():
        state = torch.load(checkpoint, map_location=device, weights_only=True)
        kept = state.get("settings", {})
        if other := [name for name in settings if name not in kept or kept[name] != settings[name]]:
            differing = ", ".join(other)
            raise ValueError(f"{checkpoint} is of another training ({differing}): delete it, or name another --work")
        network.load_state_dict(state["model"])
        average.load_state_dict(state["average"])
        optimizer.load_state_dict(state["optimizer"])
        step, seen = state["step"], state["tokens"]
    bar = tqdm(total=args.steps, initial=step, desc=args.model, disable=rank > 0, mininterval=10)
    recent, began, began_seen = [], time.time(), seen
    while step < args.steps:
        if rank == 0 and step in SNAPSHOTS:
            keep(network, args.work / args.model / f"{step:06d}.safetensors")
        factor, rate = schedule(step, args.steps, args.flat, args.masked)
        rate = args.masked if causal else rate
        for group, lr in zip(optimizer.param_groups, peak, strict=True):
            group["lr"] = lr * factor
        alone = step < args.head_steps
        for p in encoder:
            p.requires_grad_(not alone)
        if alone:
            optimizer.param_groups[0]["lr"] = 0.0
        rng = np.random.default_rng([args.seed, step, rank])
        data = [x.to(device) for x in batch(train_windows, rng, args.batch // world, rate, causal)]
        flat.zero_()
        loss = distillation_loss(network, teacher, *data) if teacher else cross_entropy(network, *data, causal)
        loss.backward()
        if world > 1:
            dist.all_reduce(flat)
            flat /= world
        flat *= torch.clamp(1.0 / (flat.norm() + 1e-6), max=1.0)  # clip the gradient to norm 1
        optimizer.step()
        average.update_parameters(network)
        recent.append(loss.item())
        step += 1
        seen += args.batch
        bar.update()
        if step % args.every == 0 or step == args.steps:
            if rank == 0:
                if step == args.steps:
                    keep(network, args.work / args.model / f"{step:06d}.safetensors")
                losses = {
                    "model": held_out_loss(network, held_windows, causal, device),
                    "average": held_out_loss(average.module, held_windows, causal, device),
                }
                line = {"step": step, "tokens": seen, "train": float(np.mean(recent)), **losses,
                        "tokens_per_s": (seen - began_seen) / (time.time() - began)}  # fmt: skip
                bar.write(json.dumps(line))
                with log.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
                torch.save(
                    {"model": network.state_dict(), "average": average.state_dict(),
                     "optimizer": optimizer.state_dict(), "step": step, "tokens": seen, "settings": settings},
                    checkpoint.with_suffix(".tmp"),
                )  # fmt: skip
                checkpoint.with_suffix(".tmp").replace(checkpoint)
            recent.clear()
            if world > 1:
                dist.barrier()
    if rank == 0 and args.export:
        losses = {
            name: held_out_loss(m, held_windows, causal, device, batches=48)
            for name, m in (("model", network), ("average", average.module))
        }
        best = network if losses["model"] <= losses["average"] else average.module
        facts = {"steps": step, "tokens": seen, "held_out_nats": round(min(losses.values()), 4)}
        facts |= {name: getattr(args, name) for name in RECORDED}
        if args.init:
            start = json.loads((args.init / "training.json").read_text(encoding="utf-8"))
            before = {name: start[name] for name in ("steps", "tokens", "note") if name in start}
            facts |= {"init": args.init.name, "before": before}
        save_embedded(best, args.export, facts)
    if world > 1:
        dist.destroy_process_group()


def main():
    """Parse the command line and train."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=sorted(EMBEDDED))
    parser.add_argument("--tokens", type=Path, required=True, help="what pack.py wrote")
    parser.add_argument("--work", type=Path, required=True, help="folder for checkpoint and log")
    parser.add_argument("--export", type=Path, help="folder for the weights at the end")
    parser.add_argument(
        "--init", type=Path, help="folder of an exported model, whose first layers and head are taken as the start"
    )
    parser.add_argument("--layers", type=int, nargs="+", help="layers of --init that a smaller model begins with")
    parser.add_argument("--teacher", choices=sorted(EMBEDDED), help="embedded model whose conditionals are learnt too")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--batch", type=int, default=1_664, help="tokens a step, all ranks")
    parser.add_argument("--rate", type=float, default=3e-4)
    parser.add_argument("--head-rate", type=float, default=2e-3)
    parser.add_argument("--head-steps", type=int, default=0, help="steps that train the head alone, at first")
    parser.add_argument("--flat", type=float, default=0.7, help="share of the steps at constant learning rate")
    parser.add_argument(
        "--masked", type=float, default=0.25, help="share of sites masked during that time, or asked of a causal model"
    )
    parser.add_argument("--every", type=int, default=250)
    parser.add_argument("--seed", type=int, default=0)
    train(parser.parse_args())


if __name__ == "__main__":
    main()
