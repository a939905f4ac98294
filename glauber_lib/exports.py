"""Traces as the objects of other packages: xarray, ArviZ and pandas, which are imported when they are asked for."""

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

from glauber_lib.checks import ABSENT, check_whole
from glauber_lib.checksums import refuse_other_scores, refuse_other_vocabulary
from glauber_lib.margins import score_gaps

LARGEST = 2**28  # most tokens that are written out: two gigabytes
SETTINGS = ("model", "model_checksum", "seed", "n_steps", "holding", "kernel", "condition")


def to_xarray(trace: Any, model: Any = None, steps: npt.ArrayLike | None = None) -> Any:
    """A trace as an `xarray.Dataset`; see `traces.Trace.to_xarray`."""
    import xarray

    steps = np.arange(1, trace.n_steps + 1) if steps is None else check_whole(steps, "steps", most=trace.n_steps)
    if steps.ndim != 1 or not steps.size or (np.diff(steps) <= 0).any():
        raise ValueError(f"steps must be numbers of steps in rising order, one at least, got {steps!r:.80}")
    n_chains, n = trace.initial.shape
    if (size := len(steps) * n_chains * n) > LARGEST:
        raise ValueError(f"{size:,} tokens are too many to write out, at most {LARGEST:,}: pass fewer steps")
    states = np.moveaxis(trace.states(steps), 0, 1)  # (chain, draw, site)
    moves = np.stack([np.searchsorted(trace.step[trace.chain == row], steps) for row in range(n_chains)])
    of = {"chain": trace.chains, "draw": steps, "site": np.arange(n)}
    found: dict[str, Any] = {
        "token": (("chain", "draw", "site"), states),
        "moves": (("chain", "draw"), moves),
        "temperature": ("chain", trace.temperature),
        "frozen": (("chain", "site"), trace.frozen),
    }
    if model is not None:
        found["margin"] = (("chain", "draw", "site"), _margins(trace, model, states))
    return xarray.Dataset(found, of, {name: getattr(trace, name) for name in SETTINGS})


def _margins(trace, model, states):
    """Gap of every site of every state float64[B, K, n], nan where a short state is filled up; each asked once."""
    refuse_other_vocabulary(model, trace)
    refuse_other_scores(model, trace, "the trace")
    different, where = np.unique(states.reshape(-1, states.shape[-1]), axis=0, return_inverse=True)
    gaps = np.full(different.shape, np.nan)
    for row, state in zip(gaps, different, strict=True):
        there = state != ABSENT
        row[there] = score_gaps(model, state[there])
    return gaps[where.ravel()].reshape(states.shape)


def to_arviz(trace: Any, model: Any = None, steps: npt.ArrayLike | None = None) -> Any:
    """A trace as ArviZ takes it; see `traces.Trace.to_arviz`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # arviz 0.23 announces its next version at import
        import arviz

    found = to_xarray(trace, model, steps)
    drawn = [name for name, values in found.data_vars.items() if "draw" in values.dims]
    groups = {"posterior": found[drawn], "constant_data": found.drop_vars(drawn).drop_vars("draw")}
    if hasattr(arviz, "InferenceData"):  # before version 1
        return arviz.InferenceData(**groups)
    import xarray

    return xarray.DataTree.from_dict(groups)


def to_pandas(trace: Any, model: Any = None) -> Any:
    """The moves of a trace as a `pandas.DataFrame`; see `traces.Trace.to_pandas`."""
    import pandas

    columns = {
        "step": trace.step, "chain": trace.chains[trace.chain], "temperature": trace.temperature[trace.chain],
        "site": trace.site, "old": trace.old, "new": trace.new,
    }  # fmt: skip
    table = pandas.DataFrame(columns)
    if model is not None:
        refuse_other_vocabulary(model, trace)
        for name in ("old", "new"):
            table[f"{name}_word"] = model.words(table[name].to_numpy()) if len(table) else []
    return table
