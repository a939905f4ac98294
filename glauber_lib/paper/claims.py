"""One claim of the paper with what was measured of it, as a record for ``results.json``."""

from typing import Any

import numpy as np

from glauber_lib.stats import KINDS, UNDECIDED

VERDICTS = ("holds", "does not hold", UNDECIDED)


def plain(value: Any) -> Any:
    """`value` as JSON can hold it: numpy's scalars and arrays as Python's numbers, non-finite ones as None."""
    if isinstance(value, np.ndarray | list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value


def is_estimate(measured: Any) -> bool:
    """Whether a measured value brings its interval, sample size, unit and kind (`stats.Estimate`)."""
    return all(hasattr(measured, name) for name in ("value", "interval", "n", "unit", "kind"))


def make_claim(
    id: str,
    statement: str,
    measured: Any,
    *,
    published: float | None = None,
    interval: Any = None,
    kind: str = "estimate",
    n: Any = None,
    verdict: bool | np.bool_ | str,
    why: str = "",
) -> dict:
    """The record of a claim; see `Run.claim` for its parameters.

    Raises
    ------
    ValueError
        For an unknown kind or verdict, or if an estimate and besides it an interval or a sample size is given.
    """
    unit = {}
    if is_estimate(measured):
        if interval is not None or n is not None:
            raise ValueError(f"claim {id!r}: an estimate has an interval and n of its own, got others besides it")
        unit = {"unit": measured.unit}
        measured, interval, n, kind = measured.value, measured.interval, measured.n, measured.kind
    if isinstance(verdict, bool | np.bool_):
        verdict = VERDICTS[0] if verdict else VERDICTS[1]
    if kind not in KINDS or verdict not in VERDICTS:
        raise ValueError(f"kind must be one of {KINDS} and verdict of {VERDICTS}, got {kind!r} and {verdict!r}")
    return {
        "id": id, "statement": statement, "published": plain(published), "measured": plain(measured),
        "interval": plain(interval) if interval is not None else None, "kind": kind, "n": plain(n), **unit,
        "verdict": verdict, "why": why,
    }  # fmt: skip


def claim_line(claim: dict) -> str:
    """A claim in a line: measured value, interval, published value, verdict."""

    def show(value):
        return f"{value:.4g}" if isinstance(value, int | float) else str(value)

    text = f"{claim['id']}: {show(claim['measured'])}"
    if claim["interval"]:
        text += " [" + ", ".join(map(show, claim["interval"])) + "]"
    if claim["published"] is not None:
        text += f", published {show(claim['published'])}"
    return f"{text}: {claim['verdict']}{', ' + claim['why'] if claim['why'] else ''}"
