"""Results on disk: frozen dataclasses in one ``.npz``, and the checkpoint from which a run goes on."""

import contextlib
import json
import os
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

CHECKPOINT = 300.0  # seconds between two writings of a checkpoint
Result = TypeVar("Result", bound="Stored")


class Stored:
    """A frozen dataclass of arrays, numbers and strings that can be written to one ``.npz``.

    Attributes
    ----------
    n_steps : int
        Steps done: how far the run has come that made it.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]
    n_steps: int

    def save(self, path: str | Path) -> None:
        """Write every field to the file `path`, whole or not at all; numpy's numbers are written as Python's."""
        fields = {k: getattr(self, k) for k in self.__dataclass_fields__}
        arrays: dict[str, Any] = {k: v for k, v in fields.items() if isinstance(v, np.ndarray)}
        settings = {k: v for k, v in fields.items() if k not in arrays}
        path, partial = Path(path), _partial(Path(path))
        try:
            with partial.open("wb") as file:
                np.savez_compressed(file, settings=json.dumps(settings, default=_as_json), **arrays)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        finally:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote.

        Raises
        ------
        OSError
            If there is no such file, or it may not be read.
        ValueError
            If it is damaged.
        TypeError
            If it holds other fields than those of this class.
        """
        try:
            with np.load(path, allow_pickle=False) as file:
                fields = {k: file[k] for k in file.files if k != "settings"}
                fields |= json.loads(str(file["settings"]))
        except OSError:
            raise
        except Exception as error:  # a file cut short may raise anything
            raise ValueError(f"{str(path)!r} cannot be read ({error!r:.80})") from error
        try:
            return cls(**fields)
        except TypeError as error:
            raise TypeError(f"{str(path)!r} is no {cls.__name__} ({error})") from error


def _partial(path):
    """Where this process writes a file before it takes the place of the old one."""
    return path.with_name(f"{path.name}.{os.getpid()}")


def _as_json(value):
    """What stands in JSON for a value that is none of Python's own: numpy's numbers and truth values, and paths."""
    return value.item() if isinstance(value, np.generic) else str(value)


class Checkpoint:
    """The file in which a run keeps what it has done, to go on from there when it is called again.

    A run calls `resume` before its first step, `write_when_due` while it runs, and `write` at its end, which Ctrl-C
    may bring about. What cannot be written is said in a warning: the run goes on, and its result is returned.

    Parameters
    ----------
    path : str or Path, optional
        None: nothing is written and nothing read.
    """

    def __init__(self, path: str | Path | None):
        self.path = None if path is None else Path(path)
        self.last_written = time.monotonic()

    def resume(self, begun: Result, n_steps: int, settings: Iterable[str]) -> Result:
        """The result from which a run goes on: the one on the file or, where there is none, `begun`.

        A file that cannot be read is reported in a warning and not used. Whether the file can be written is tried here,
        before any work.

        Parameters
        ----------
        begun : Stored
            The run's result before its first step.
        n_steps : int
            Steps that the run shall have done at its end.
        settings : iterable of str
            The fields that must be the same in `begun` and on the file.

        Raises
        ------
        ValueError
            If the file cannot be written, or is of another run: a setting differs, it has more than `n_steps` steps, or
            it holds something else.
        """
        if self.path is None:
            return begun
        self._try_to_write()
        if not self.path.exists():
            return begun
        try:
            found = type(begun).load(self.path)
        except TypeError as error:
            raise ValueError(f"checkpoint {error}; delete it or name another file") from error
        except (OSError, ValueError) as error:
            warnings.warn(f"checkpoint {error}: begins anew", stacklevel=3)
            return begun
        differing = [k for k in settings if not np.array_equal(getattr(found, k), getattr(begun, k))]
        differing += ["n_steps"] * bool(found.n_steps > n_steps)
        if differing:
            raise ValueError(f"checkpoint {str(self.path)!r} is of another run ({', '.join(differing)}): delete it")
        return found

    def write_when_due(self, so_far: Callable[[int], Stored], done: int) -> None:
        """Write ``so_far(done)``, the result of the first `done` steps, if the last writing is `CHECKPOINT` s ago."""
        if self.path is not None and time.monotonic() - self.last_written > CHECKPOINT:
            self.write(so_far(done))

    def write(self, result: Result) -> Result:
        """Replace the file by `result`, at once and as a whole; `result` is returned, also where that fails."""
        if self.path is not None:
            self.last_written = time.monotonic()
            try:
                result.save(self.path)
            except Exception as error:  # whatever it is, what was computed must not be lost by it
                warnings.warn(f"checkpoint {str(self.path)!r} cannot be written ({error!r:.80})", stacklevel=3)
        return result

    def _try_to_write(self):
        """ValueError where the checkpoint has no folder, may not be written there, or its path is that of a folder."""
        assert self.path is not None
        try:
            if self.path.is_dir():
                raise IsADirectoryError("it is a folder")
            partial = _partial(self.path)
            partial.touch()
            partial.unlink()
        except OSError as error:
            reason = error.strerror or str(error)
            raise ValueError(
                f"checkpoint {str(self.path)!r} cannot be written ({reason}): name a file in a folder that is there"
            ) from error
