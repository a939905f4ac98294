"""The passages that chains start from: this package's own, a file, or a dataset of the hub."""

from pathlib import Path

import pandas as pd

from glauber_lib import embedded, hub


def load_passages(
    source: str | Path = "passages", *, n_passages: int = 2_000, seed: int = 0, revision: str | None = None
) -> pd.DataFrame:
    """Passages to start from, as DataFrame with columns ``id`` and ``text``, and ``topic`` where it is known.

    Parameters
    ----------
    source : str or Path
        ``"passages"`` for the ones of this package; a ``.jsonl`` file with the columns above, or a ``.txt`` file with
        one passage a line; otherwise a dataset in the form of MS MARCO v2.1, by its name on the hub or its folder.
    n_passages : int
        Of a dataset a random sample of this size is taken, from its passages of 40 to 90 words.
    seed : int
        Of the sample: the same passages each time.
    revision : str, optional
        Pinned revision of a dataset on the hub.

    Raises
    ------
    ValueError
        If the file or dataset is not there, or has no usable passage.
    """
    path = embedded.DATA / "passages.jsonl" if source == "passages" else Path(source)
    if path.suffix in (".jsonl", ".txt"):
        if not path.exists():
            hint = "; set GLAUBER_DATA to the folder data of a clone" if source == "passages" else ""
            raise ValueError(f"no file of passages {str(path)!r}{hint}")
        if path.suffix == ".jsonl":
            return pd.read_json(path, lines=True)
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        return pd.DataFrame({"id": [f"{path.stem}-{k}" for k in range(len(lines))], "text": lines})
    return _marco_passages(hub.mirrored(str(source)), n_passages, seed, revision)


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
