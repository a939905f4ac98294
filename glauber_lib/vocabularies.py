"""What a tokenizer of transformers says: its words by id, its frame, and whether it is the tokenizer of a network."""

import json
from collections.abc import Callable, Iterable, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tokenizers
from tokenizers import models, pre_tokenizers

PLACEHOLDERS = ("[unused", "madeupword", "<null_")  # entries that fill up a vocabulary: BERT's, RoBERTa's, ESM's
LENGTHS = (1, 2, 3, 5, 8, 13)  # of the sequences that a frame is tried on


def words_by_id(tokenizer: Any) -> dict[int, str]:
    """Every entry of a tokenizer by its id, in the order of the ids, which need not be 0, 1, 2, …"""
    known = {*tokenizer.get_vocab().values(), *tokenizer.added_tokens_decoder}
    ids = range(max(known, default=-1) + 1)
    words = zip(ids, tokenizer.convert_ids_to_tokens([*ids]), strict=True)
    # a tokenizer written in Python answers its unknown token for an id that it does not have
    return {k: word for k, word in words if word and (k in known or word != tokenizer.unk_token)}


def ordinary_words(tokenizer: Any, n_rows: int, name: str) -> list[int]:
    """Ids of the words that a site may hold: all but special tokens, placeholders and ids without a row in the network.

    Parameters
    ----------
    tokenizer : transformers.PreTrainedTokenizerBase
    n_rows : int
        The network's ``vocab_size``.
    name : str
        The model's, for the error.

    Raises
    ------
    ValueError
        If the tokenizer cannot be that of the network: it has no word, or words beyond the network's rows. A word
        that was added to the tokenizer may lack a row; it is left out.
    """
    words, added = words_by_id(tokenizer), tokenizer.added_tokens_decoder
    who = f"the tokenizer of {name!r} ({type(tokenizer).__name__}, {len(words)} entries)"
    if beyond := [k for k in words if k >= n_rows and k not in added]:
        raise ValueError(
            f"{who} is not that of its network: {len(beyond)} words have ids above the {n_rows} rows of the network, "
            f"the first is {words[beyond[0]]!r} with id {beyond[0]}"
        )
    banned = {*tokenizer.all_special_ids, *(k for k, token in added.items() if token.special)}
    ids = [k for k, word in words.items() if k < n_rows and k not in banned and not word.startswith(PLACEHOLDERS)]
    if not ids:
        raise ValueError(
            f"{who} has no words but special tokens, the network has {n_rows} rows: tokenizer files are missing, or "
            "its class does not read them"
        )
    return ids


def frame_of(tokenizer: Any, ids: Sequence[int], name: str) -> tuple[list[int], list[int]]:
    """What a tokenizer puts before and after a text, as ids: its template of special tokens.

    Parameters
    ----------
    tokenizer : transformers.PreTrainedTokenizerBase
    ids : sequence of int
        Words to try the template on. No text is tokenised for it: any text may be unknown to some tokenizer.
    name : str
        The model's, for the error.

    Raises
    ------
    ValueError
        If sequences of words do not all come out as they were, between the same two frames, or there are no words.
    """
    if not len(ids):
        raise ValueError(f"{_tokenizer_of(name, tokenizer)} has no words")
    tried = [[ids[(k * len(ids)) // n] for k in range(n)] for n in LENGTHS]
    built = [_with_special_tokens(tokenizer, sequence) for sequence in tried]
    content, whole = tried[-1], built[-1]
    for k in range(len(whole) - len(content) + 1):
        before, after = whole[:k], whole[k + len(content) :]
        if all(out == [*before, *sequence, *after] for sequence, out in zip(tried, built, strict=True)):
            break
    else:
        raise ValueError(
            f"{_tokenizer_of(name, tokenizer)} puts no fixed frame around a text: {tried[2]} becomes {built[2]}; "
            "special tokens before and after the text are accepted"
        )
    alone, framed = (tokenizer("a", add_special_tokens=frame)["input_ids"] for frame in (False, True))
    if framed != [*before, *alone, *after]:
        raise ValueError(
            f"{_tokenizer_of(name, tokenizer)} does not follow its template of special tokens {before} … {after}: "
            f"{alone} becomes {framed}"
        )
    return before, after


def check_special(tokenizer: Any, n_rows: int, name: str, ids: dict[str, int]) -> None:
    """Refuse special tokens that a network has no row for.

    Parameters
    ----------
    tokenizer : transformers.PreTrainedTokenizerBase
    n_rows : int
        The network's ``vocab_size``.
    name : str
        The model's, for the error.
    ids : dict of str to int
        What each special token is there for, and its id.

    Raises
    ------
    ValueError
        If an id is none of the rows.
    """
    if bad := {kind: k for kind, k in ids.items() if not 0 <= k < n_rows}:
        raise ValueError(
            f"{_tokenizer_of(name, tokenizer)} is not that of its network: special tokens {bad} are not among the "
            f"{n_rows} rows of the network"
        )


def _tokenizer_of(name, tokenizer):
    return f"the tokenizer of {name!r} ({type(tokenizer).__name__})"


def _with_special_tokens(tokenizer, ids):
    """The ids with what the tokenizer adds to them, without any text."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:  # written in Python, as ESM's is
        return tokenizer.build_inputs_with_special_tokens([*ids])
    if backend.post_processor is None:
        return [*ids]
    # a tokenizer whose words are the numbers of the places makes the encoding that the template is applied to
    carrier = tokenizers.Tokenizer(models.WordLevel({str(place): k for place, k in enumerate(ids)}, unk_token="0"))
    carrier.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    encoding = carrier.encode(" ".join(map(str, range(len(ids)))))
    return backend.post_processor.process(encoding, None, True).ids


def tokenizer_files(folder: Path) -> list[str]:
    """Names of a folder's files that a tokenizer may be made of; its settings are none."""
    files = {path.name for path in folder.iterdir()}
    named = {f for f in files if f.startswith("tokenizer") or f.endswith(".model")} - {"tokenizer_config.json"}
    return sorted(named | files & {"vocab.txt", "vocab.json", "merges.txt"})


def check_reading(tokenizer: Any, folder: Path, refusal: str) -> None:
    """Refuse a tokenizer that does not come from its folder's files, or reads texts otherwise than these say.

    Parameters
    ----------
    tokenizer : transformers.PreTrainedTokenizerBase
        Loaded from `folder`. Where files are missing, the loader makes a tokenizer without words; where the class
        builds itself anew, it may drop what the file says of capitals or of the cuts between words.
    folder : Path
    refusal : str
        What the error says first.

    Raises
    ------
    ValueError
        As said, with what is to be done.
    FileNotFoundError, NotADirectoryError
        If the folder is none.
    """
    kind, saved = type(tokenizer).__name__, folder / "tokenizer.json"
    here, wanted = tokenizer_files(folder), {*tokenizer.vocab_files_names.values()} - {"tokenizer.json"}
    if not any(file.startswith("tokenizer") for file in here) and not (wanted and wanted <= {*here}):
        raise ValueError(
            f"{refusal} that loads: its tokenizer ({kind}) reads tokenizer.json or {' and '.join(sorted(wanted))}, and "
            f"the folder has {here}; add the model's own tokenizer files"
        )
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return
    settings = _settings(folder)
    if saved.exists() and (difference := _difference(backend, saved, "do_lower_case" in settings)):
        raise ValueError(
            f"{refusal} that loads: its tokenizer ({kind}) reads a text otherwise than its tokenizer.json, "
            f"{difference}; add a tokenizer_config.json with the model's tokenizer_class and do_lower_case "
            '("PreTrainedTokenizerFast" takes tokenizer.json as it is)'
        )
    if not saved.exists() and "do_lower_case" not in settings and (lost := _capitals_lost(tokenizer)):
        raise ValueError(
            f"{refusal} that loads: its tokenizer ({kind}) lowercases, as it does by default, and the vocabulary has "
            f"{len(lost)} words with capitals, as {lost[0]!r}; add a tokenizer_config.json with "
            '{"do_lower_case": false}'
        )


def _settings(folder):
    path = folder / "tokenizer_config.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _difference(backend, saved, declared):
    """How a text of the vocabulary's own words comes out differently from the saved tokenizer, or None."""
    loaded, file = tokenizers.Tokenizer.from_str(backend.to_str()), tokenizers.Tokenizer.from_file(str(saved))
    for encoder in (loaded, file):
        encoder.no_truncation()
        encoder.no_padding()
    ids = sorted(
        k for k in file.get_vocab(with_added_tokens=False).values() if k not in file.get_added_tokens_decoder()
    )
    text = file.decode(ids[:: max(1, len(ids) // 200)])
    if declared:  # the settings say of capitals what holds, whatever the file says
        text = (loaded.normalizer.normalize_str(text) if loaded.normalizer else text).lower()
    read = [encoder.encode(text, add_special_tokens=False) for encoder in (loaded, file)]
    ours, theirs = ([*zip(encoding.tokens, encoding.ids, strict=True)] for encoding in read)
    if ours == theirs:
        return None
    at = next((k for k, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
    return f"as {ours[at : at + 3]} and not {theirs[at : at + 3]}"


def _capitals_lost(tokenizer):
    """Words with capitals of a tokenizer that makes all letters small."""
    normalizer = tokenizer.backend_tokenizer.normalizer
    if normalizer is None or normalizer.normalize_str("A") != "a":
        return []
    added = tokenizer.added_tokens_decoder
    words = words_by_id(tokenizer).items()
    return [word for k, word in words if k not in added and word != word.lower() and not word.startswith(PLACEHOLDERS)]


def allowed_ids(
    vocabulary: npt.ArrayLike | Callable[[str], Any] | None, ordinary: Sequence[int], tokenizer: Any, n_rows: int
) -> np.ndarray:
    """Vocabulary ids that a site may hold, int64[n_tokens], by one policy for all that is asked of a model.

    Parameters
    ----------
    vocabulary : array_like of int or of str, or callable, optional
        Ids, in their order; words as the tokenizer writes them, in their order; a condition on such a word, which the
        ordinary words are asked in the order of their ids. None: all ordinary words.
    ordinary : sequence of int
        From `ordinary_words`.
    tokenizer : transformers.PreTrainedTokenizerBase
    n_rows : int
        The network's ``vocab_size``.

    Raises
    ------
    ValueError
        Unless it comes to distinct rows of the network, at least one; for words that are no ordinary ones.
    """
    if vocabulary is None:
        return np.asarray(ordinary, np.int64)
    known = words_by_id(tokenizer)
    if callable(vocabulary):
        if not (chosen := [k for k in ordinary if vocabulary(known[k])]):
            raise ValueError(f"vocabulary must allow a word at least, the condition holds for none of {len(ordinary)}")
        return np.asarray(chosen, np.int64)
    if isinstance(vocabulary, str):
        raise ValueError(f"vocabulary must be a list of words or ids, got one text: {vocabulary[:60]!r}")
    asked = np.asarray([*vocabulary] if isinstance(vocabulary, Set) else vocabulary)  # pyright: ignore[reportGeneralTypeIssues]
    if asked.ndim == 1 and asked.dtype.kind in "UT":
        ids = {known[k]: k for k in ordinary}
        if lacking := [str(word) for word in asked if word not in ids]:
            some = [known[k] for k in ordinary[:: max(1, len(ordinary) // 5)]][:5]
            raise ValueError(
                f"vocabulary has words that {type(tokenizer).__name__} lacks or keeps for itself: {lacking[:5]}; write "
                f"them as model.words does, such as {some}"
            )
        asked = np.array([ids[word] for word in asked])
    return _distinct_ids(asked, n_rows)


def _distinct_ids(vocabulary, n_rows):
    """Vocabulary ids as int64[n_tokens]; ValueError unless they are distinct rows of a network."""
    ids = np.asarray(vocabulary)
    if ids.ndim != 1 or not len(ids) or ids.dtype.kind not in "iu" or len(np.unique(ids)) < len(ids):
        raise ValueError(f"vocabulary must be distinct ids or words, at least one, got {vocabulary!r:.200}")
    if ids.min() < 0 or ids.max() >= n_rows:
        raise ValueError(f"vocabulary must be ids 0 … {n_rows - 1} of the network, got {ids.min()} … {ids.max()}")
    return ids.astype(np.int64)


# Texts ---------------------------------------------------------------------------------------------------------------


def refuse_one_text(texts: Iterable[str]) -> None:
    """ValueError for a text in the place of a list of texts, whose letters would be read, and for a list of others."""
    if isinstance(texts, str):
        raise ValueError(f"need a list of texts, got one text: {texts[:60]!r}; write [text]")
    if isinstance(texts, Sequence | np.ndarray) and (odd := [text for text in texts if not isinstance(text, str)]):
        raise ValueError(f"need a list of texts, got {odd[0]!r:.60} among them")


def refuse_cut_texts(
    texts: Sequence[str],
    tokenizer: Any,
    most: float | None,
    reader: str,
    *,
    prompt: str = "",
    beside: Sequence[str] = ("",),
) -> None:
    """Refuse texts that a reader would cut.

    Parameters
    ----------
    texts : list of str
    tokenizer : transformers.PreTrainedTokenizerBase
    most : float or None
        Most tokens that are read, special ones included; None if there is no limit.
    reader : str
        What the error calls the reader.
    prompt : str
        What is put before every text.
    beside : list of str
        What may be read together with a text.

    Raises
    ------
    ValueError
        For a text of more tokens, with both lengths; for one text in the place of a list.
    """
    refuse_one_text(texts)
    if most is None or not len(texts):
        return
    count = lambda some, **frame: list(map(len, tokenizer(some, truncation=False, verbose=False, **frame)["input_ids"]))  # noqa: E731
    if any(beside):
        further = max(count(list(beside), add_special_tokens=False)) + tokenizer.num_special_tokens_to_add(pair=True)
        lengths = count(list(texts), add_special_tokens=False)
    else:
        further, lengths = 0, count([prompt + text for text in texts])
    if (longest := max(lengths) + further) > most:
        text = texts[int(np.argmax(lengths))]
        raise ValueError(
            f"{reader} reads at most {most} tokens, got a text of {longest}, and would cut it: pass shorter texts, "
            f"such as states of fewer tokens: {text[:60]!r}…"
        )
