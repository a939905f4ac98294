"""Where a notebook is within a long cell, in a file: the bars of its kernel do not reach the terminal."""

import os
import time
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

VARIABLE = "GLAUBER_PROGRESS"  # names the file, in the environment of the kernel
EVERY = 2.0  # seconds between two writings


def follow() -> None:
    """Write what the latest bar says into the file that the environment names, every few seconds; nothing without one.

    Called again it changes nothing. A file that cannot be written is left: the run goes on.
    """
    path, plain = os.environ.get(VARIABLE), tqdm.display
    if not path or getattr(plain, "followed", None) == path:
        return
    written = [-EVERY, ""]

    def display(bar: Any, *arguments: Any, **options: Any) -> Any:
        if time.monotonic() - written[0] > EVERY or bar.desc != written[1]:
            written[:] = [time.monotonic(), bar.desc]
            try:
                Path(path).write_text(describe(bar) + "\n", encoding="utf-8")
            except OSError:
                pass
        return plain(bar, *arguments, **options)

    display.followed = path  # pyright: ignore[reportFunctionMemberAccess]
    setattr(tqdm, "display", display)  # noqa: B010  # pyright knows its argument by another name


def describe(bar: Any) -> str:
    """A bar in a line: when, what, how far, and for how long."""
    facts = bar.format_dict
    total = f" of {facts['total']:,}" if facts["total"] else ""
    title = (bar.desc or "").removesuffix(": ") or "measuring"
    return f"{time.strftime('%H:%M:%S')} {title}: {facts['n']:,}{total} {facts['unit']} in {facts['elapsed']:.0f} s"
