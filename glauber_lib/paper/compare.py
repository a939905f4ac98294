"""Two ``results.json`` side by side, and what a run gave beside what it should give.

``tests/expected/<profile>.json`` holds for every claim of a stock run the value that the committed one gave, the range
that another machine may give, and why: a number solved exactly differs by rounding alone; a number from chains may
differ by its own interval, as rounding lets paths part between machines.

    python -m glauber_lib.paper.compare a.json b.json      # the second judged by the ranges of the first
    python -m glauber_lib.paper.compare --expect mini      # write the expected values from the results of a profile
"""

import argparse
import json
import math
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from glauber_lib.paper import claims, keys, profiles

EXACT = 0.01  # of the value: scores in float32 differ by less between machines, but thresholds may turn on them
WIDER = 2.5  # times the interval: two independent runs differ by root two more than one from the truth, in any of many
PARTED = 0.5  # of the value, where paths may part and no interval is known
LEAST = {"exact": 1e-6, "parted": 0.1}  # half of a range at least, for what is zero or rounding
SHOWN = ("claim", "measured", "expected", "range", "agrees")
UNLIKELY = 10.0  # a p-value may be so many times smaller or larger


def expected_range(claim: dict[str, Any]) -> tuple[float | None, float | None, str]:
    """The values that another run of the same code may give a claim.

    Parameters
    ----------
    claim : dict
        A record of ``results.json``.

    Returns
    -------
    low, high : float or None
        None where there is no end.
    why : str
        Where the range comes from; empty if no value can be expected.

    Raises
    ------
    KeyError
        For no record.
    """
    value, ends = _as_float(claim["measured"]), [_as_float(end) for end in claim["interval"] or ()]
    if value is None:
        return None, None, ""
    if math.isinf(value):
        return value, value, "infinite"
    if claim["why"].startswith("p must be"):
        return value / UNLIKELY, min(1.0, value * UNLIKELY), f"a p-value, {UNLIKELY:g} times smaller or larger"
    if claim["kind"] == "exact":
        margin = max(EXACT * abs(value), LEAST["exact"])
        return value - margin, value + margin, "exact, but for the rounding of scores"
    known = [end for end in ends if end is not None and math.isfinite(end)]
    if len(known) == 2 and known[0] < known[1]:
        low, high = (value + WIDER * (end - value) for end in known)
        margin = EXACT * abs(value)  # an interval may leave its value out, or end at it
        return min(low, value - margin), max(high, value + margin), f"its own interval, {WIDER:g} times as wide"
    margin = max(PARTED * abs(value), LEAST["parted"])
    lacks = "no interval is known" if not known else "no interval of two ends is known"
    return value - margin, value + margin, f"{lacks}: rounding may part paths"


def _as_float(value):
    """A number of a record, which may be infinite and stands as a text then."""
    return None if value is None else float(value)


def inside(value: float | str | None, low: float | str | None, high: float | str | None) -> bool:
    """Whether a measured value lies in a range; one that is lacking does where nothing was expected."""
    value, low, high = map(_as_float, (value, low, high))
    if value is None or low is None or high is None:
        return value is None and low is None and high is None
    return bool(low <= value <= high)


def _ends_agree(one, other):
    """Whether the intervals of two claims without a value are alike: each end within `PARTED` of the other's."""
    ends = [list(map(_as_float, claim["interval"] or ())) for claim in (one, other)]
    near = lambda a, b: a == b or (None not in (a, b) and math.isclose(a, b, rel_tol=PARTED))  # noqa: E731
    return len(ends[0]) == len(ends[1]) and all(map(near, *ends))


def side_by_side(a: Iterable[dict[str, Any]], b: Iterable[dict[str, Any]]) -> pd.DataFrame:
    """The claims of two runs.

    Parameters
    ----------
    a, b : iterable of dict
        Records of ``results.json``.

    Returns
    -------
    DataFrame
        One row for each claim of either: ``claim``; ``published``; ``first, second``, the measured values; ``verdict``,
        that of the second, after that of the first where it is another; ``range`` of the first, and its reason ``why``;
        ``agrees``, whether the second lies in it or, where neither has a value, their intervals are alike. A claim that
        only one of them has does not agree.
    """
    first, second = ({claim["id"]: claim for claim in run} for run in (a, b))
    rows = []
    for id in sorted(first.keys() | second.keys()):
        one, other = first.get(id), second.get(id)
        known = other or one or {}
        low, high, why = expected_range(one) if one else (None, None, "only in the second")
        agrees = bool(one and other and inside(other["measured"], low, high))
        if one and other and one["measured"] is None:
            agrees = agrees and _ends_agree(one, other)
        said = list(dict.fromkeys(claim["verdict"] for claim in (one, other) if claim))
        rows.append(
            {
                "claim": id, "published": claims.number(known["published"]),
                "first": claims.number(one["measured"] if one else None),
                "second": claims.number(other["measured"] if other else None),
                "verdict": " → ".join(said), "range": f"{claims.number(low)} to {claims.number(high)}",
                "why": why if other else "only in the first",
                "agrees": agrees,
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


# What a stock run should give ----------------------------------------------------------------------------------------


def expected_file(profile: str) -> Path:
    """The file with the expected values of a profile."""
    return profiles.ROOT / "tests" / "expected" / f"{profile}.json"


def settings_digest(profile: str, notebook: str) -> str:
    """Digest of the settings that a notebook has in a profile."""
    return keys.digest(json.dumps(profiles.load_profile(profile, notebook), sort_keys=True))


def write_expected(profile: str) -> Path:
    """Write the expected values of a profile from its results; the file.

    Raises
    ------
    ValueError
        If there are no results.
    """
    found = claims.read_results(profiles.figures_folder(profile) / "results.json")
    if not found:
        raise ValueError(f"no results of {profile!r} in {str(profiles.figures_folder(profile))!r}: run it first")
    ran = {notebook for notebook in profiles.notebooks() if profiles.short_name(notebook) in found["models"]}
    values = {}
    for claim in found["claims"]:
        low, high, why = expected_range(claim)
        values[claim["id"]] = {
            "value": claim["measured"],
            "low": claims.plain(low),
            "high": claims.plain(high),
            "why": why,
        }
    facts = {
        "profile": profile,
        "models": found["models"],
        "settings": {notebook: settings_digest(profile, notebook) for notebook in sorted(ran)},
        "claims": dict(sorted(values.items())),
    }
    path = expected_file(profile)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def why_not_stock(profile: str, notebook: str, expected: dict[str, Any], found: dict[str, Any]) -> str:
    """Why the results of a notebook cannot be compared with the expected ones; empty if they can."""
    section = profiles.short_name(notebook)
    if model := profiles.one_model():
        return f"no values are expected of the model {model!r}"
    if notebook not in expected.get("settings", {}):
        return "no values are expected of it in this profile"
    if settings_digest(profile, notebook) != expected["settings"][notebook]:
        return "its settings are not those of the expected values"
    if found["models"].get(section) != expected["models"].get(section):
        return "its models are not those of the expected values"
    return ""


def beside_expected(profile: str, notebooks: Iterable[str]) -> tuple[pd.DataFrame, list[str]]:
    """What notebooks gave in a profile beside what they should give.

    Parameters
    ----------
    profile : str
    notebooks : iterable of str
        Those that ran.

    Returns
    -------
    DataFrame
        One row for each claim: ``claim, published, expected, measured, verdict``, ``range`` and ``agrees``.
    list of str
        A line for each notebook that was not compared, with the reason.
    """
    path = expected_file(profile)
    expected = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    found = claims.read_results(profiles.figures_folder(profile) / "results.json")
    rows, left_out = [], []
    for notebook in notebooks:
        section = profiles.short_name(notebook)
        if reason := why_not_stock(profile, notebook, expected, found):
            left_out.append(f"{notebook}: not compared, {reason}")
            continue
        measured = {c["id"]: c for c in found["claims"] if claims.section_of(c["id"]) == section}
        values = {id: e for id, e in expected["claims"].items() if claims.section_of(id) == section}
        for id in sorted(measured.keys() | values.keys()):
            claim, value = measured.get(id, {}), values.get(id, {})
            low, high = value.get("low"), value.get("high")
            rows.append(
                {
                    "claim": id, "published": claims.number(claim.get("published")),
                    "expected": claims.number(value.get("value")), "measured": claims.number(claim.get("measured")),
                    "verdict": claim.get("verdict", "not measured"),
                    "range": f"{claims.number(low)} to {claims.number(high)}",
                    "agrees": bool(claim and value) and inside(claim["measured"], low, high),
                }
            )  # fmt: skip
    return pd.DataFrame(rows), left_out


def report(profile: str, notebooks: Iterable[str]) -> bool:
    """Print what notebooks gave beside what they should give; whether every value lies in its range."""
    table, left_out = beside_expected(profile, notebooks)
    if len(table):
        print(table.drop(columns=["range", "agrees"]).to_string(index=False, max_colwidth=60))
        for claim, measured, value, span, agrees in zip(*(table[name] for name in SHOWN), strict=True):
            if not agrees:
                print(f"{claim}: measured {measured}, expected {value} ({span})")
        print(f"{table['agrees'].sum()} of {len(table)} claims are as expected")
    print(*left_out, sep="\n", end="\n" if left_out else "")
    return not len(table) or bool(table["agrees"].all())


def main(arguments: list[str] | None = None) -> int:
    """Command line: set two results side by side, or write the expected values of a profile."""
    parser = argparse.ArgumentParser(prog="python -m glauber_lib.paper.compare", description=main.__doc__)
    parser.add_argument("files", nargs="*", type=Path, help="two files results.json")
    parser.add_argument("--expect", metavar="PROFILE", help="write tests/expected/PROFILE.json from its results")
    options = parser.parse_args(arguments)
    if (len(options.files) == 2) == bool(options.expect):
        parser.error("give two files results.json, or --expect PROFILE")
    try:
        if options.expect:
            print(write_expected(options.expect).relative_to(profiles.ROOT))
            return 0
        if lacking := [str(path) for path in options.files if not path.is_file()]:
            raise ValueError(f"no such file: {lacking}")
        a, b = (claims.read_results(path)["claims"] for path in options.files)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    table = side_by_side(a, b)
    print(table.to_string(index=False, max_colwidth=60))
    print(f"{table.agrees.sum()} of {len(table)} claims agree")
    return 0 if table.agrees.all() else 1


if __name__ == "__main__":
    sys.exit(main())
