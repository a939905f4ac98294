"""Results on disk: frozen dataclasses in one ``.npz``, and checkpoints that a run goes on from."""

import json
import os
import time
import warnings
from pathlib import Path

import numpy as np

CHECKPOINT = 300.0  # seconds between two writings of a checkpoint


class Stored:
    """A frozen dataclass of arrays, numbers and strings that can be written to one ``.npz``."""

    def save(self, path):
        """Write everything to one ``.npz``."""
        fields = {k: getattr(self, k) for k in self.__dataclass_fields__}
        arrays = {k: v for k, v in fields.items() if isinstance(v, np.ndarray)}
        settings = {k: v for k, v in fields.items() if k not in arrays}
        with Path(path).open("wb") as file:
            np.savez_compressed(file, settings=json.dumps(settings), **arrays)
            file.flush()
            os.fsync(file.fileno())

    @classmethod
    def load(cls, path):
        """Read what `save` wrote."""
        with np.load(path, allow_pickle=False) as file:
            arrays = {k: file[k] for k in file.files if k != "settings"}
            return cls(**arrays, **json.loads(str(file["settings"])))


class Checkpoint:
    """Where a run is written every `CHECKPOINT` seconds and at its end, also by Ctrl-C, to go on from.

    Parameters
    ----------
    path : str or Path, optional
        None: nothing is written.
    kind : type
        The `Stored` class of the result.
    """

    def __init__(self, path, kind):
        self.path, self.kind, self.last = path and Path(path), kind, time.monotonic()

    def resume(self, n_steps, **same):
        """What an earlier run left, or None; with a warning where that cannot be read.

        Raises
        ------
        ValueError
            If it is of another run: with more than `n_steps`, or a field that differs from `same`.
        """
        if self.path is None or not self.path.exists():
            return None
        try:
            found = self.kind.load(self.path)
        except Exception as error:  # a file cut short may raise anything
            warnings.warn(f"checkpoint {str(self.path)!r} cannot be read ({error!r:.80}): begins anew", stacklevel=3)
            return None
        other = [k for k, value in same.items() if not np.array_equal(getattr(found, k), value)]
        other += ["n_steps"] * (found.n_steps > n_steps)
        if other:
            raise ValueError(f"checkpoint {str(self.path)!r} is of another run ({', '.join(other)}): delete it")
        return found

    def due(self):
        """Whether it is time to write."""
        return self.path is not None and time.monotonic() - self.last > CHECKPOINT

    def write(self, result):
        """Put `result`, which is returned, in the place of what is there, at once."""
        if self.path is not None:
            partial = self.path.with_name(f"{self.path.name}.{os.getpid()}")
            result.save(partial)
            partial.replace(self.path)
            self.last = time.monotonic()
        return result
