"""Results on disk: frozen dataclasses in one ``.npz``, and the checkpoint from which a run goes on."""

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
        """Write every field to the file `path`."""
        fields = {k: getattr(self, k) for k in self.__dataclass_fields__}
        arrays: dict[str, Any] = {k: v for k, v in fields.items() if isinstance(v, np.ndarray)}
        settings = {k: v for k, v in fields.items() if k not in arrays}
        with Path(path).open("wb") as file:
            np.savez_compressed(file, settings=json.dumps(settings), **arrays)
            file.flush()
            os.fsync(file.fileno())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote."""
        with np.load(path, allow_pickle=False) as file:
            arrays = {k: file[k] for k in file.files if k != "settings"}
            return cls(**arrays, **json.loads(str(file["settings"])))


class Checkpoint:
    """The file in which a run keeps what it has done, to go on from there when it is called again.

    A run calls `resume` before its first step, `write_when_due` while it runs, and `write` at its end, which Ctrl-C
    may bring about.

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

        A file that cannot be read is reported in a warning and not used.

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
            If the file is of another run: a setting differs, or it has more than `n_steps` steps.
        """
        if self.path is None or not self.path.exists():
            return begun
        try:
            found = type(begun).load(self.path)
        except Exception as error:  # a file cut short may raise anything
            warnings.warn(f"checkpoint {str(self.path)!r} cannot be read ({error!r:.80}): begins anew", stacklevel=3)
            return begun
        differing = [k for k in settings if not np.array_equal(getattr(found, k), getattr(begun, k))]
        differing += ["n_steps"] * (found.n_steps > n_steps)
        if differing:
            raise ValueError(f"checkpoint {str(self.path)!r} is of another run ({', '.join(differing)}): delete it")
        return found

    def write_when_due(self, so_far: Callable[[int], Stored], done: int) -> None:
        """Write ``so_far(done)``, the result of the first `done` steps, if the last writing is `CHECKPOINT` s ago."""
        if self.path is not None and time.monotonic() - self.last_written > CHECKPOINT:
            self.write(so_far(done))

    def write(self, result: Result) -> Result:
        """Replace the file by `result`, at once and as a whole; `result` is returned."""
        if self.path is not None:
            partial = self.path.with_name(f"{self.path.name}.{os.getpid()}")
            result.save(partial)
            partial.replace(self.path)
            self.last_written = time.monotonic()
        return result
