"""Results that are computed once: kept on disk under a key of all that they depend on."""

import contextlib
import inspect
import os
import signal
import tempfile
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from glauber_lib.paper.entries import read_entry, write_entry
from glauber_lib.paper.keys import SourceChangedError, result_key

LIMIT = 4_000_000_000  # bytes of the whole folder; the environment variable GLAUBER_CACHE_BYTES sets another limit


def cached(folder: Path, compute: Callable, arguments: Sequence, options: Mapping[str, Any]) -> Any:
    """``compute(*arguments, **options)``, or its result from the disk.

    The result is stored under its `keys.result_key`. An entry that was cut short or altered is reported and computed
    anew. A function with an argument `checkpoint` is given a file beside the entry, so that what was interrupted goes
    on where it was; the file is removed when the result is stored. Where nothing can be written, or the function is not
    what stands in its file, that is said in a warning, and the result is returned all the same. The environment
    variable GLAUBER_CACHE=off switches all of this off.

    Parameters
    ----------
    folder : Path
    compute : callable
        A function of a module, or a bound method of one.
    arguments, options : sequence, dict
        Of what `keys.describe` accepts.

    Raises
    ------
    TypeError
        If the function or an argument cannot be part of a key.
    KeyboardInterrupt
        If the result is incomplete: it has an attribute ``complete`` that is False.
    ValueError
        If GLAUBER_CACHE is neither on nor off, or GLAUBER_CACHE_BYTES no number above zero.
    """
    if (switch := os.environ.get("GLAUBER_CACHE", "on").lower()) not in ("on", "off"):
        raise ValueError(f"GLAUBER_CACHE must be on or off, got {switch!r}")
    if switch == "off":
        return _whole(compute(*arguments, **options))
    limit = size_limit()
    try:
        key = result_key(compute, arguments, options)  # a TypeError for what has no name
        entry = folder / f"{compute.__name__}-{key}.zip"
    except SourceChangedError as error:
        warnings.warn(f"{error}. Computed and not kept", stacklevel=3)
        return _whole(compute(*arguments, **options))
    try:
        result = read_entry(entry)
        with contextlib.suppress(OSError):  # another process may drop the entry, or the folder may be read-only
            os.utime(entry)  # used now: what was not used for longest is dropped first
        return result
    except (FileNotFoundError, NotADirectoryError):
        pass
    except Exception as error:  # a damaged file may raise anything
        warnings.warn(f"cached result {str(entry)!r} cannot be read ({error!r:.80}): computed anew", stacklevel=3)
    keeps, checkpoint = _can_write(folder), entry.with_suffix(".npz")
    if keeps and "checkpoint" in (signature := inspect.signature(compute)).parameters:
        bound = signature.bind(*arguments, **options)
        bound.arguments["checkpoint"] = checkpoint
        arguments, options = bound.args, bound.kwargs
    with _interrupts() as interrupts:
        result = _whole(compute(*arguments, **options))
    if interrupts:  # something inside `compute` ended early and hid it
        raise KeyboardInterrupt
    if keeps:
        _keep(entry, result, checkpoint, limit)
    return result


def _can_write(folder):
    """Whether the cache can be written to, tried before any work; a warning where it cannot."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError as error:
        reason = f"cannot be written ({error.strerror}): no result is kept"
        warnings.warn(f"the cache {str(folder)!r} {reason}", stacklevel=4)
        return False


def _keep(entry, result, checkpoint, limit):
    """Write a result, or say in a warning why not: what was computed must not be lost by it."""
    try:
        write_entry(entry, result)
        checkpoint.unlink(missing_ok=True)  # only now: the result is kept
        drop_least_recently_used(entry.parent, limit, keep=entry)
    except Exception as error:  # no room on the disk, or a result of a type that cannot be stored
        warnings.warn(f"the result {str(entry)!r} cannot be kept: {str(error) or repr(error)}", stacklevel=4)


@contextlib.contextmanager
def _interrupts():
    """A list that grows with every Ctrl-C, also those that what runs inside catches."""
    seen, handler = [], signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield seen  # signals are handled in the main thread alone
        return

    def note(number, frame):
        seen.append(number)
        return handler(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, handler)


def _whole(result):
    complete = getattr(result, "complete", True)
    if isinstance(complete, bool | np.bool_) and not complete:  # a table may have a column of that name
        raise KeyboardInterrupt
    return result


def size_limit() -> int:
    """Bytes that all files of the cache may have together.

    Raises
    ------
    ValueError
        If GLAUBER_CACHE_BYTES is no finite number above zero.
    """
    text = os.environ.get("GLAUBER_CACHE_BYTES", str(LIMIT))
    try:
        limit = int(float(text))
    except (ValueError, OverflowError):
        limit = 0
    if limit <= 0:
        raise ValueError(f"GLAUBER_CACHE_BYTES must be a number of bytes such as 4e9, got {text!r}")
    return limit


def drop_least_recently_used(folder: Path, limit: int, *, keep: Path) -> None:
    """Remove the files that were not used for longest, until all others have at most `limit` bytes; never `keep`.

    Beside the entries these are the checkpoints of what was interrupted, and what a process left that died as it wrote.
    """
    used, total = [], 0
    for path in folder.iterdir():
        try:
            facts = path.stat()
        except FileNotFoundError:  # dropped by another process
            continue
        used.append((facts.st_mtime_ns, facts.st_size, path))
        total += facts.st_size
    for _, size, path in sorted(used):
        if total > limit and path != keep:
            path.unlink(missing_ok=True)
            total -= size
