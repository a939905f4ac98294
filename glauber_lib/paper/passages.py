"""The passages that chains start from: this package's own, a file, or a dataset of the hub."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from glauber_lib import embedded, hub
from glauber_lib.checks import check_columns, check_count


def load_passages(
    source: str | Path = "passages", *, n_passages: int | None = None, seed: int = 0, revision: str | None = None
) -> pd.DataFrame:
    """Passages to start from, as DataFrame with columns ``id`` and ``text``, and ``topic`` where it is known.

    Parameters
    ----------
    source : str or Path
        ``"passages"`` for the ones of this package; a ``.jsonl`` file with the columns above (ids are strings, by
        default of the passages' numbers), or a ``.txt`` file with one passage a line, both in UTF-8 with lines that
        end in a line feed; otherwise a dataset in the form of MS MARCO v2.1, by its name on the hub or its folder.
    n_passages : int, optional
        Of a dataset a random sample of this size is taken, from its passages of 40 to 90 words; 2,000 by default.
        Refused for a file, of which all are taken.
    seed : int
        Of the sample: the same passages each time.
    revision : str, optional
        Pinned revision of a dataset on the hub; refused for any other.

    Raises
    ------
    ValueError
        If the file or dataset is not there, has no name or no usable passage; if a line holds no passage, a blank one
        or one whose id is neither a text nor a whole number, or two have one id or one text; for a revision of what has
        none; if `n_passages` is no whole number >= 1, or `seed` none in 0 .. 2**32 - 1.
    OSError
        Of the system, for a name longer than it takes.
    """
    if not str(source):
        raise ValueError("need the name of a file of passages or of a dataset, got an empty one")
    n_passages = None if n_passages is None else check_count(n_passages, "n_passages", least=1)
    seed = check_count(seed, "seed", most=2**32 - 1)
    path = embedded.DATA / "passages.jsonl" if source == "passages" else Path(source)
    if path.suffix in (".jsonl", ".txt"):
        hub.refuse_revision(source, revision, "a file")
        if n_passages is not None:
            raise ValueError(
                f"all passages of a file are taken, got n_passages={n_passages!r}: leave it out, or cut it"
            )
        if not path.exists():
            hint = "; set GLAUBER_DATA to the folder data of a clone" if source == "passages" else ""
            raise ValueError(f"no file of passages {str(path)!r}{hint}")
        with path.open(encoding="utf-8-sig", newline="\n") as file:  # no line ends at a CR, U+2028 or a form feed
            lines = {number: line.strip() for number, line in enumerate(file, 1) if line.strip()}
        return _passages_of_lines(path, lines)
    hub.refuse_revision(source, revision)
    return _marco_passages(hub.mirrored(str(source)), n_passages or 2_000, seed, revision)


def _passages_of_lines(path, lines):
    """The passages of a file's lines that are not blank, by their numbers; ids stay the strings that they are."""
    if not lines:
        raise ValueError(f"file {str(path)!r} holds no passage")
    numbered = [f"{path.stem}-{k}" for k in range(len(lines))]
    if path.suffix == ".txt":
        return _each_text_once(pd.DataFrame({"id": numbered, "text": [*lines.values()]}), path)
    rows = []
    for default, (number, line) in zip(numbered, lines.items(), strict=True):
        row = _passage_of_line(line)
        if row is None:
            raise ValueError(
                f'{str(path)!r}: line {number} must be like {{"id": "7", "text": "..."}}, no key twice, its text '
                f"not blank and its id, if any, a text or a whole number; got {line:.80}"
            )
        rows.append({**row, "id": str(row.get("id", default))})
    frame = pd.DataFrame(rows)
    if twice := sorted(set(frame.id[frame.id.duplicated()])):
        raise ValueError(f"{str(path)!r}: ids of more than one passage: {twice[:5]}")
    return _each_text_once(frame, path)


def _each_text_once(frame, path):
    """Passages; ValueError where a text stands twice: it would count as two passages in every interval."""
    if twice := frame.id[frame.text.duplicated(keep=False)].tolist():
        raise ValueError(f"{str(path)!r}: passages of one text: {twice[:5]}: keep one of each")
    return frame


def _passage_of_line(line):
    """What a line of JSON says of a passage; None where it says none."""
    try:
        row = json.loads(line, object_pairs_hook=_each_key_once)
    except ValueError:
        return None
    if not isinstance(row, dict) or not isinstance(row.get("text"), str) or not row["text"].strip():
        return None
    name = row.get("id", "")
    return row if isinstance(name, str | int) and not isinstance(name, bool) else None  # 1e2 would become "100.0"


def _each_key_once(pairs):
    if len(row := dict(pairs)) < len(pairs):
        raise ValueError(f"a key stands twice: {[name for name, _ in pairs]}")
    return row


def readable_passages(frame: pd.DataFrame, models: Sequence[Any], n: int = 1) -> tuple[pd.DataFrame, str]:
    """The passages that all of some language models can read, and what to say of those left out.

    Parameters
    ----------
    frame : DataFrame
        As `load_passages` returns it.
    models : sequence of MaskedLM or CausalLM
    n : int
        Tokens that a passage must have, in those of each model.

    Returns
    -------
    frame : DataFrame
        The passages of `n` tokens and more, without tokens outside a model's vocabulary; of those that begin with the
        same `n` tokens, two or more, in a model's eyes, the first: they would count as several units of one state.
    left_out : str
        How many are not among them, and why; empty if all are.

    Raises
    ------
    ValueError
        If none is left, or `frame` lacks the column ``text``.
    """
    check_columns(frame, ["text"], "frame")
    known = np.array([all(model.reads(text, n=0) for model in models) for text in frame.text], dtype=bool)
    long = np.array([all(model.reads(text, n=n) for model in models) for text in frame.text], dtype=bool)
    seen: list[set[bytes]] = [set() for _ in models]
    taken = long.copy()
    for k in np.flatnonzero(long) if n > 1 else ():
        states = [model.tokens(frame.text.iloc[k], n=n).tobytes() for model in models]
        taken[k] = not any(state in own for state, own in zip(states, seen, strict=True))
        for state, own in zip(states, seen, strict=True):
            own.update([state] if taken[k] else [])
    reasons = {
        "with tokens outside a model's vocabulary": (~known).sum(),
        f"of fewer than {n} tokens": (known & ~long).sum(),
        f"of the same first {n} tokens as an earlier one": (long & ~taken).sum(),
    }
    why = ", ".join(f"{count} {reason}" for reason, count in reasons.items() if count)
    left_out = f"passages left out, of {len(frame)}: {why}" if why else ""
    if not long.any():
        raise ValueError(f"no passage can be read; {left_out}")
    return frame.loc[taken].reset_index(drop=True), left_out


def _marco_passages(name, n_passages, seed, revision):
    """A fixed sample of the distinct passages of MS MARCO's validation split."""
    import datasets  # seconds to import, for this alone

    refusal = f"no dataset {name!r} on disk, in the cache or on the hub"
    place = hub.locate_passages(name, revision)  # offline, the library would take any revision that it has
    if not place.found:
        raise ValueError(f"{refusal}: {place.detail}")
    try:
        config = None if Path(name).exists() else "v2.1"
        queries = datasets.load_dataset(name, config, split="validation", revision=revision)
    except (OSError, ValueError, ConnectionError) as error:
        raise ValueError(f"{refusal}: {hub.first_line(error)}") from error
    texts = pd.Series([text for passages in queries["passages"] for text in passages["passage_text"]]).drop_duplicates()
    texts = texts.loc[texts.str.split().str.len().between(40, 90)]
    if texts.empty:
        raise ValueError(f"dataset {name!r} has no passage of 40 to 90 words")
    texts = texts.sample(min(n_passages, len(texts)), random_state=seed)
    return pd.DataFrame({"id": [f"marco-{k}" for k in texts.index], "text": texts.to_numpy()})
