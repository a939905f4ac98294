"""How fast the engine is: measured here and now, written to build/bench.json and docs/benchmarks.md.

Speeds are ratios to the plain loop, measured in turn in the same run, since machines are noisy. The plain loop is what
public code for sampling from masked language models does: one forward pass with logits for all positions
and the whole vocabulary, softmax, `torch.multinomial`, at every step. It lives here and not in the library.
"""

import argparse
import cProfile
import json
import platform
import pstats
import shutil
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode
from tqdm.auto import tqdm

from glauber_lib.chains import run_chains
from glauber_lib.draws import uniforms
from glauber_lib.language import load_model
from glauber_lib.margins import escape_probability
from glauber_lib.models import TabularModel
from glauber_lib.paper import ROOT, load_passages

N, CHAINS = 20, 64


def seconds(function):
    """Wall time of one call, the device's queue empty before and after."""
    wait = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    wait()
    began = time.perf_counter()
    function()
    wait()
    return time.perf_counter() - began


@torch.inference_mode()
def plain_loop(model, states, *, n_steps, temperature, seed=0):
    """The chain as public code runs it: all positions, the whole vocabulary, every step."""
    generator = torch.Generator(model.device).manual_seed(seed)
    size, n = states.shape
    ids = model.framed(torch.as_tensor(states, device=model.device))
    rows = torch.arange(size, device=model.device)
    for _ in range(n_steps):
        at = torch.randint(n, (size,), device=model.device, generator=generator) + len(model.before)
        ids[rows, at] = model.tokenizer.mask_token_id
        law = torch.softmax(model.network(input_ids=ids).logits[rows, at] / temperature, dim=-1)
        ids[rows, at] = torch.multinomial(law, 1, generator=generator)[:, 0]


def calls_needed(trace):
    """Visits of a site for the first time since another site of its chain last moved."""
    count, size = 0, len(trace.initial)
    sites = (uniforms(trace.seed, trace.chains, 0, trace.n_steps)[:, :, 0] * trace.initial.shape[1]).astype(int)
    moved = {(k, t) for k, t in zip(trace.chain.tolist(), trace.step.tolist(), strict=True)}
    for k in range(size):
        known = set()
        for t, site in enumerate(sites[k].tolist()):
            count += site not in known
            known.add(site)
            if (k, t) in moved:
                known = {site}
    return count


def rate(model, states, n_steps, temperature, **options):
    """Chain-steps per second, and the trace."""
    trace = []
    took = seconds(lambda: trace.append(run_chains(model, states, n_steps=n_steps, temperature=temperature, **options)))
    return len(states) * n_steps / took, trace[0]


def matrix_rate(device, size):
    """Float32 multiply-adds x 2 per second of a square matrix product."""
    a = torch.randn(size, size, device=device)
    torch.mm(a, a)
    return np.median([2 * size**3 / seconds(lambda: torch.mm(a, a)) for _ in range(9)])


def measure_hot(model, states, repeats, matrix_size):
    """Engine against plain loop at temperature 1, and the share of the matrix rate."""
    with torch.inference_mode(), FlopCounterMode(display=False) as counter:
        model.scores(states, np.arange(len(states)) % states.shape[1])
    flops = counter.get_total_flops() / len(states)  # per call
    plain, engine, gemm, share = [], [], [], []
    for k in tqdm(range(repeats), desc="τ = 1", leave=False):
        plain.append(2 * len(states) / seconds(lambda: plain_loop(model, states, n_steps=2, temperature=1.0)))
        gemm.append(matrix_rate(model.device, matrix_size))
        speed, trace = rate(model, states, 10, 1.0, seed=k)
        engine.append(speed)
        share.append(trace.model_calls * flops * speed / (len(states) * trace.n_steps) / gemm[-1])
    return {
        "plain loop, chain-steps/s": np.median(plain),
        "engine, chain-steps/s": np.median(engine),
        "ratio": np.median(np.divide(engine, plain)),
        "matrix rate, GFLOP/s": np.median(gemm) / 1e9,
        "share of matrix rate": np.median(share),
        "GFLOP per call": flops / 1e9,
    }


def measure_calls(model, states, n_steps):
    """Model calls made over calls the path needs, for several temperatures and sizes of the store."""
    row = model.n_tokens * 4 + states.shape[1] * 8 + 300
    rows = []
    for temperature in tqdm((0.1, 0.3, 0.5, 1.0), desc="calls", leave=False):
        memories = {"nothing": 0, "present": states.size * row, "default": None}
        made = {
            k: run_chains(model, states, n_steps=n_steps, temperature=temperature, memory=m)
            for k, m in memories.items()
        }
        needed = calls_needed(made["default"])
        ratios = {name: trace.model_calls / needed for name, trace in made.items()}
        rows.append({"temperature": temperature, "needed per chain-step": needed / len(states) / n_steps, **ratios})
    return rows


def deep_states(model, states, temperature):
    """States the chains have fallen into after long cold runs, deepest first, with their exact escape probability."""
    final = run_chains(model, states, n_steps=3_000, temperature=temperature, progress="looking for traps").final
    escape = np.array([escape_probability(model, x, temperature) for x in tqdm(final, desc="escape", leave=False)])
    order = np.argsort(escape)
    return final[order], escape[order]


def measure_traps(model, states, temperature, plain):
    """Engine in states with mean holding time of 1,000 steps and more, and one escape after 10^9 steps."""
    found, escape = deep_states(model, states, temperature)
    deep = found[escape <= 1e-3]
    starts = deep[np.arange(CHAINS) % len(deep)]
    n_steps = 20_000
    speed, trace = rate(model, starts, n_steps, temperature)
    out = {
        "temperature": temperature, "distinct trap states": len(np.unique(deep, axis=0)),
        "mean holding time, least": 1 / escape[escape <= 1e-3].max(), "chain-steps/s": speed, "ratio": speed / plain,
        "calls per chain-step": trace.model_calls / (CHAINS * n_steps),
    }  # fmt: skip
    # one chain that hops around the shallowest of them: calls in the parts of the run
    hop = found[np.searchsorted(escape, 3e-3) - 1][None]
    lengths = [1_000, 4_000, 16_000]
    calls = [run_chains(model, hop, n_steps=n, temperature=temperature).model_calls for n in lengths]
    out["calls per step, by steps done"] = {
        f"{a}-{b}": (q - p) / (b - a) for a, b, p, q in zip([0, *lengths], lengths, [0, *calls], calls, strict=False)
    }
    cold, start = temperature, found[0]
    while escape_probability(model, start, cold) > 2e-10:
        cold *= 0.95
    trace = []
    took = seconds(
        lambda: trace.append(
            run_chains(model, start[None], n_steps=2**62, temperature=cold, holding="geometric",
                       until=lambda x: (x != start).any(1))
        )
    )  # fmt: skip
    out["escape"] = {"temperature": cold, "steps": int(trace[0].stopped[0]), "seconds": took}
    return out


def measure_tabular():
    """The engine's own cost: a model whose scores are looked up, |V| = 50."""
    model = TabularModel(np.random.default_rng(0).normal(size=(3, 50, 50, 50)))
    out = {}
    for size in (64, 512, 4096, 16384):
        states = np.zeros((size, 3), int)
        n_steps = 2**20 // size
        out[size] = np.median([rate(model, states, n_steps, 1.0, seed=k)[0] for k in range(5)])
    return out


def profile_tabular(size=4096):
    """Where the time of the free model goes: share of each function's own time, largest first."""
    model = TabularModel(np.random.default_rng(0).normal(size=(3, 50, 50, 50)))
    profile = cProfile.Profile()
    profile.enable()
    run_chains(model, np.zeros((size, 3), int), n_steps=2**20 // size)
    profile.disable()
    own = {}
    for (file, _, name), row in pstats.Stats(profile).stats.items():
        label = f"{Path(file).stem}.{name}" if file.endswith(".py") else name.split(" of ")[0].strip("<>")
        own[label] = own.get(label, 0.0) + row[2]
    total = sum(own.values())
    return {name: own[name] / total for name in sorted(own, key=own.get, reverse=True)[:12]}


def measure_scaling(model, passages):
    """Chain-steps per second at temperature 1 against chains, length and threads."""
    out = {"chains": {}, "n": {}, "threads": {}}
    pool = [x for x in map(model.tokens, passages) if len(x) >= 80]
    start = lambda size, n: np.stack([pool[k % len(pool)][:n] for k in range(size)])  # noqa: E731
    for size in tqdm((1, 4, 16, 64, 256, 512), desc="chains", leave=False):
        out["chains"][size] = rate(model, start(size, N), max(3, 512 // size), 1.0)[0]
    for n in tqdm((5, 10, 20, 40, 80), desc="n", leave=False):
        out["n"][n] = rate(model, start(CHAINS, n), 8, 1.0)[0]
    threads = torch.get_num_threads()
    for count in range(1, threads + 1):
        torch.set_num_threads(count)
        out["threads"][count] = rate(model, start(CHAINS, N), 8, 1.0)[0]
    torch.set_num_threads(threads)
    return out


def measure_models(names, passages, repeats):
    """Conditionals per second of models, asked for in one batch, and chain-steps per second at temperature 1.

    The models are measured in turn, `repeats` times, each on the first tokens of the same passages.
    """
    models = {name: load_model(name) for name in dict.fromkeys(names)}
    texts = [text for text in passages if all(len(m.tokens(text)) >= N for m in models.values())][:CHAINS]
    states = {name: model.states(texts, n=N) for name, model in models.items()}
    asked, stepped = ({name: [] for name in models} for _ in range(2))
    for k in tqdm(range(repeats), desc="models", leave=False):
        for name, model in models.items():
            asked[name].append(len(texts) / seconds(partial(model.scores, states[name], np.arange(len(texts)) % N)))
            stepped[name].append(rate(model, states[name], 10, 1.0, seed=k)[0])
    return [
        {
            "model": name,
            "parameters": model.network.num_parameters(),
            "conditionals/s": np.median(asked[name]),
            "chain-steps/s": np.median(stepped[name]),
        }
        for name, model in models.items()
    ]


def models_table(rows):
    """Lines of `measure_models` as Markdown."""
    first = rows[0]
    return [
        "",
        f"Models beside each other: conditionals asked for in one batch of {CHAINS} states of {N} tokens, and the engine's "
        "chain-steps at τ = 1.",
        "",
        f"| model | parameters | conditionals/s | chain-steps/s, τ = 1 | of {first['model']}'s |",
        "|---|---|---|---|---|",
        *(
            f"| {row['model']} | {row['parameters'] / 1e6:.0f}M | {row['conditionals/s']:.0f} | {row['chain-steps/s']:.0f} | "
            f"{row['chain-steps/s'] / first['chain-steps/s']:.2f} |"
            for row in rows
        ),
    ]


def page(result):
    """The result as Markdown."""
    hot, traps, machine = result["hot"], result["traps"], result["machine"]
    escape = traps["escape"]
    hops = list(traps["calls per step, by steps done"].items())
    worst = max(row["nothing"] for row in result["calls"])
    best = {row["temperature"]: row["default"] for row in result["calls"]}
    shown = ", ".join(f"{value:.3f} at {t}" for t, value in best.items())
    revisits = max(value for t, value in best.items() if t < 1)
    met = lambda ok: "yes" if ok else "**no**"  # noqa: E731
    tabular = result["tabular"]
    fastest = max(tabular, key=tabular.get)
    lines = [
        "# Benchmarks",
        "",
        f"`make bench` on {machine['device']} ({machine['threads']} threads, torch {machine['torch']}), model "
        f"{machine['model']}, {CHAINS} chains of {N} tokens unless stated; ratios to the plain loop (scripts/bench.py) within one "
        "run, medians of repeats.",
        "",
        "| case | measured | target | met |",
        "|---|---|---|---|",
        f"| τ = 1, engine over plain loop | {hot['ratio']:.2f} × ({hot['engine, chain-steps/s']:.0f} against "
        f"{hot['plain loop, chain-steps/s']:.0f} chain-steps/s) | ≥ 2.5 × | {met(hot['ratio'] >= 2.5)} |",
    ]
    if compiled := result.get("compiled"):
        lines.append(
            f"| the same with `compiled=True` | {compiled['ratio']:.2f} × ({compiled['engine, chain-steps/s']:.0f} chain-steps/s) | – | – |"
        )
    share = hot["share of matrix rate"]
    lines += [
        f"| τ = 1, model's arithmetic over this machine's float32 matrix rate ({hot['matrix rate, GFLOP/s']:.0f} GFLOP/s), "
        f"whole step | {share:.2f} | ≥ 0.65 | {met(share >= 0.65)} |",
    ]
    if compiled:
        lines.append(f"| the same with `compiled=True` | {compiled['share of matrix rate']:.2f} | – | – |")
    lines += [
        f"| calls made / needed, without the store (intervals only), worst τ | {worst:.3f} | ≤ 1.05 | {met(worst <= 1.05)} |",
        f"| calls made / needed, default store, by τ | {shown} | < 1 | {met(max(best.values()) < 1)}"
        f"{'; yes below τ = 1' if max(best.values()) >= 1 > revisits else ''} |",
        f"| trap states, mean holding time ≥ {traps['mean holding time, least']:.0f} steps, over plain loop | {traps['ratio']:.0f} × "
        f"({traps['chain-steps/s']:.0f} chain-steps/s) | ≥ 100 × | {met(traps['ratio'] >= 100)} |",
        f"| a chain that hops in a basin, calls per step in steps {hops[0][0]} and {hops[-1][0]} | {hops[0][1]:.3f}, {hops[-1][1]:.5f} | → 0 | – |",
        f"| one escape after {escape['steps']:.2g} steps (geometric, τ = {escape['temperature']:.3f}) | {escape['seconds']:.1f} s | < 60 s | "
        f"{met(escape['steps'] >= 1e9 and escape['seconds'] < 60)} |",
        f"| free model (table, V = 50 tokens), plain path, {fastest} chains | {tabular[fastest]:.2g} chain-steps/s | ≥ 10⁶ | {met(tabular[fastest] >= 1e6)} |",
        "",
        "Calls made over calls the path needs (a site's first visit since another site last moved), by what is remembered: nothing but "
        "the intervals, as many scores as the present states have, the default of 2 GiB.",
        "",
        "| τ | needed per chain-step | intervals only | present states | default |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {r['temperature']} | {r['needed per chain-step']:.4f} | {r['nothing']:.3f} | {r['present']:.3f} | {r['default']:.3f} |"
        for r in result["calls"]
    ]
    lines += models_table(result["models"])
    lines += ["", "Scaling at τ = 1, chain-steps/s.", "", "| | |", "|---|---|"]
    for name, values in {**result["scaling"], "chains, free model": tabular}.items():
        lines.append(f"| {name} | " + ", ".join(f"{k}: {v:.3g}" for k, v in values.items()) + " |")
    hop_text = ", ".join(f"{k}: {v:.4g}" for k, v in hops)
    parts = ", ".join(f"{name} {share:.0%}" for name, share in result["tabular profile"].items())
    lines += [
        "",
        "Without the store a draw outside the remembered interval asks again for scores that were known, hence more than one. "
        "The calls were counted on 16 chains of 200 steps, traps and scaling are single runs. Where the time of the free model goes "
        f"(4096 chains, each function's own time): {parts}.",
    ]
    lines += ["", f"Calls per step of the hopping chain (τ = {traps['temperature']}): {hop_text}.", ""]
    return "\n".join(lines)


def main():
    """Measure everything and write it down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="minilm-6l")
    parser.add_argument(
        "--beside", nargs="*", default=["distilbert"], help="masked models whose speed stands beside its"
    )
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--trap-temperature", type=float, default=0.15)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench.json")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "benchmarks.md")
    options = parser.parse_args()
    model, passages = load_model(options.model), load_passages().text
    states = model.states([t for t in passages if len(model.tokens(t)) >= N][:CHAINS], n=N)
    cuda = model.device.type == "cuda"
    result = {
        "machine": {
            "device": torch.cuda.get_device_name() if cuda else f"{platform.machine()} CPU",
            "threads": torch.get_num_threads(), "torch": torch.__version__, "model": options.model,
        },
        "hot": measure_hot(model, states, options.repeats, 8192 if cuda else 2048),
    }  # fmt: skip
    if shutil.which("g++"):
        compiled = load_model(options.model, compiled=True)
        compiled.scores(states, np.zeros(CHAINS, int)), compiled.scores(states[1:], np.zeros(CHAINS - 1, int))
        result["compiled"] = measure_hot(compiled, states, options.repeats, 8192 if cuda else 2048)
    result["models"] = measure_models([options.model, *options.beside], passages, options.repeats)
    result["tabular"] = measure_tabular()
    result["tabular profile"] = profile_tabular()
    result["calls"] = measure_calls(model, states[:16], 200)
    result["traps"] = measure_traps(
        model, states[:32], options.trap_temperature, result["hot"]["plain loop, chain-steps/s"]
    )
    result["scaling"] = measure_scaling(model, passages)
    for path, text in ((options.out, json.dumps(result, indent=1, default=float) + "\n"), (options.page, page(result))):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    print(page(result))


if __name__ == "__main__":
    main()
