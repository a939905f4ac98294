"""The library from a shell: ``python -m glauber_lib run|rectangles|influence|check``; ``--help`` says the rest."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from glauber_lib.chains import run_chains
from glauber_lib.hub import locate
from glauber_lib.incompatibility import measure_rectangles, sample_rectangles
from glauber_lib.influence import measure_influence, replacement_tokens
from glauber_lib.language import load_model
from glauber_lib.starts import random_states, states_from_masks

KINDS = (".csv", ".json", ".npz")


# What is measured ----------------------------------------------------------------------------------------------------


def run(model: Any, states: np.ndarray, options: argparse.Namespace) -> Any:
    """Run chains; the table of their moves, or the trace where it is saved as npz."""
    trace = run_chains(
        model, states, temperature=options.temperature, n_steps=options.steps, seed=options.seed,
        progress="chains" if sys.stderr.isatty() else None,
    )  # fmt: skip
    if options.out and options.out.suffix == ".npz":
        return trace
    if options.out and options.out.suffix == ".json":
        texts = {"initial": model.texts(trace.initial), "final": model.texts(trace.final)}
        return pd.DataFrame({"chain": trace.chains, "temperature": trace.temperature, **texts})
    return trace.to_pandas(model)


def rectangles(model: Any, states: np.ndarray, options: argparse.Namespace) -> pd.DataFrame:
    """Draw rectangles and measure how far the conditionals are from any joint law on each."""
    drawn = sample_rectangles(model, states, options.rectangles, seed=options.seed)
    return measure_rectangles(model, drawn, temperature=options.temperature)


def influence(model: Any, states: np.ndarray, options: argparse.Namespace) -> pd.DataFrame:
    """Measure the influence of every site on every other, over the texts and some replacements of each token."""
    tried = replacement_tokens(model, states, options.replacements, seed=options.seed)
    found = measure_influence(model, states, tried, [options.temperature])
    i, j = np.nonzero(~np.eye(states.shape[1], dtype=bool))
    values = {"largest": found.maximum[0], "mean": found.average[0], "oscillation": found.oscillation}
    return pd.DataFrame({"i": i, "j": j, **{name: matrix[i, j] for name, matrix in values.items()}})


def check(name: str, options: argparse.Namespace) -> pd.DataFrame:
    """Say where a model is, whether it loads, and what it is."""
    place = locate(name, options.revision)
    if not place.found:
        raise ValueError(f"{name}: {place.state}, {place.detail}")
    model = load_model(name, causal=options.causal or None, revision=options.revision)
    facts = {
        "model": name, "where": place.state, "kind": type(model).__name__, "tokens": model.n_tokens,
        "longest": model.max_sites, "parameters": model.network.num_parameters(), "checksum": model.checksum,
    }  # fmt: skip
    return pd.DataFrame([facts])


# The command line ----------------------------------------------------------------------------------------------------


def _parser():
    parser = argparse.ArgumentParser(prog="python -m glauber_lib", description="Glauber dynamics on a language model.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="run | rectangles | influence | check")
    for name, help in {
        "run": "chains: their moves as csv, first and last texts as json, the whole trace as npz",
        "rectangles": "incompatibility of the conditionals, a row for each rectangle",
        "influence": "influence of site j on site i, a row for each pair",
        "check": "where a model is, whether it loads, and what it is",
    }.items():
        command = commands.add_parser(name, help=help, description=help)
        command.add_argument(
            "model", help="an embedded model, a directory in Hugging Face format, or a name on the hub"
        )
        command.add_argument("--revision", help="of a model on the hub")
        command.add_argument("--out", type=Path, help="a file .csv, .json or .npz; default: csv to the terminal")
        if name == "check":
            command.add_argument("--causal", action="store_true", help="a causal model")
            continue
        start = command.add_mutually_exclusive_group(required=True)
        start.add_argument("--text", action="append", help="a text to start from; may be given several times")
        start.add_argument("--texts", type=Path, help="a file with a text in each line")
        start.add_argument("--masks", type=int, metavar="B", help="B starts that are drawn from masks")
        start.add_argument("--random", type=int, metavar="B", help="B starts of random tokens")
        command.add_argument("-n", type=int, required=True, help="tokens of a state: the first n of a text")
        command.add_argument("--words", type=Path, help="a file with the tokens that are allowed, one in each line")
        command.add_argument("--temperature", type=float, default=1.0, help="default: 1")
        command.add_argument("--seed", type=int, default=0, help="default: 0")
    commands.choices["run"].add_argument("--steps", type=int, default=1000, help="of each chain; default: 1000")
    commands.choices["rectangles"].add_argument("--rectangles", type=int, default=100, help="default: 100")
    commands.choices["influence"].add_argument("--replacements", type=int, default=4, help="of a token; default: 4")
    return parser


def _lines(path):
    return path.read_text(encoding="utf-8").splitlines()


def _measured(options):
    """The result of a command."""
    if options.command == "check":
        return check(options.model, options)
    words = {"vocabulary": _lines(options.words)} if options.words else {}
    model = load_model(options.model, revision=options.revision, **words)
    if options.masks is not None:
        states = states_from_masks(model, options.masks, options.n, temperature=options.temperature, seed=options.seed)
    elif options.random is not None:
        states = random_states(model, options.random, options.n, seed=options.seed)
    else:
        states = model.states(options.text or _lines(options.texts), n=options.n)
    return {"run": run, "rectangles": rectangles, "influence": influence}[options.command](model, states, options)


def _write(result, path):
    """A table, or a trace, in the form that the name of the file says."""
    if path is None:
        result.to_csv(sys.stdout, index=False)
    elif not isinstance(result, pd.DataFrame):
        result.save(path)
    elif path.suffix == ".npz":
        plain = {name: result[name].to_numpy() for name in result}
        columns: Any = {name: v.astype(str) if v.dtype == object else v for name, v in plain.items()}
        np.savez_compressed(path, **columns)
    elif path.suffix == ".json":
        records = json.loads(str(result.to_json(orient="records", double_precision=15)))
        path.write_text(json.dumps(records, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    else:
        result.to_csv(path, index=False)


def main(arguments: list[str] | None = None) -> int:
    """Command line: run a command and write its result; 2 where something that was given is refused."""
    options = _parser().parse_args(arguments)
    try:
        if options.out and options.out.suffix not in KINDS:
            raise ValueError(f"--out must end in one of {', '.join(KINDS)}, got {str(options.out)!r}")
        if options.out and not options.out.parent.is_dir():
            raise ValueError(f"--out must be in a folder that is there, got {str(options.out)!r}")
        _write(_measured(options), options.out)
    except (ValueError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
