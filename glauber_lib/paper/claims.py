"""The claims of ``notebooks/claims.toml``, and the record that one becomes when it is measured.

An entry is found by its id, which begins with the notebook's short name. The id of a family holds names in braces, such
as ``incompatibility/mean-delta/{model}``: it stands for every id that has something in their places, which the
statement may name in the same way.

================= ============================================================================================
key               what it says
================= ============================================================================================
statement         the claim in a sentence
side, than        the rule (`stats.verdict`); without `than` the notebook gives it, where it is measured itself
contradicted_by   what result would contradict it; not for what is only ``measured``
units, least      what is drawn independently, and how few of them allow no verdict
published         value in the paper, of a family by what stands in the place of its last name
printed           where in the paper it is printed
headline          whether README.md shows it
================= ============================================================================================
"""

import ast
import json
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from glauber_lib.paper import profiles, tables
from glauber_lib.stats import SIDES, VERDICTS, Estimate, verdict

GAP = re.compile(r"\{\w*\}")


@dataclass(frozen=True)
class Entry:
    """What ``claims.toml`` says of a claim or a family of claims; see the module for its keys."""

    id: str
    statement: str
    side: str
    than: Any = None
    contradicted_by: str = ""
    units: str = ""
    least: int = 0
    published: Any = None
    printed: str = ""
    headline: bool = False

    @property
    def section(self) -> str:
        """Short name of the notebook that measures it."""
        return section_of(self.id)

    def names(self, id: str) -> dict[str, str] | None:
        """What stands in `id` in the places of this family's names; None if it is not of the family."""
        pattern = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>.+)", re.escape(self.id))
        found = re.fullmatch(pattern, id)
        return found.groupdict() if found else None

    def record(self, id: str, estimate: Estimate | None, than: Any = None, note: str = "") -> dict[str, Any]:
        """The claim `id` of this family with what was measured of it; see `Run.claim` for the parameters."""
        names = self.names(id) or {}
        if (than is None) == (self.than is None) and self.side != "measured":
            raise ValueError(f"claim {id!r}: `than` must stand either in claims.toml or in the call, got it {than!r}")
        if estimate is None:
            if not note:
                raise ValueError(f"claim {id!r} has no estimate: say in `note` what is lacking")
            estimate, said, why = Estimate(np.nan, None, 0, self.units or "units"), "not measurable here", note
        else:
            if self.units and estimate.unit != self.units:
                raise ValueError(f"claim {id!r} is about {self.units}, got an estimate from {estimate.unit}")
            bound = self.than if than is None else than
            said, why = verdict(estimate, self.side, bound, self.least)
            why = "; ".join(filter(None, (why, note)))
        published = self.published
        if isinstance(published, dict):
            published = published.get(list(names.values())[-1])
        return {
            "id": id, "statement": self.statement.format(**names), "published": plain(published),
            "printed": self.printed if published is not None else "", "measured": plain(estimate.value),
            "interval": plain(estimate.interval), "kind": estimate.kind, "n": plain(estimate.n),
            "unit": estimate.unit, "verdict": said, "why": why, "contradicted_by": self.contradicted_by,
        }  # fmt: skip


RECORD = {
    "id", "statement", "published", "printed", "measured", "interval", "kind", "n", "unit", "verdict", "why",
    "contradicted_by",
}  # fmt: skip
KEYS = {field.name for field in fields(Entry)} - {"id"}  # of an entry's table


def section_of(id: str) -> str:
    """Short name of the notebook that a claim belongs to."""
    return id.split("/")[0]


def plain(value: Any) -> Any:
    """`value` as JSON can hold it: numpy's scalars and arrays as Python's numbers, nan as None, ∞ as ``"inf"``."""
    if isinstance(value, np.ndarray | list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return None if np.isnan(value) else str(value)
    return value


def read_claims() -> list[Entry]:
    """The entries of ``notebooks/claims.toml``.

    Raises
    ------
    ValueError
        If an entry lacks a key, has an unknown one, has a rule that makes no sense (`stats.verdict`), or says nothing
        that would contradict it.
    """
    tables = tomllib.loads((profiles.notebooks_folder() / "claims.toml").read_text(encoding="utf-8"))
    entries = []
    for id, table in tables.items():
        if unknown := sorted(table.keys() - KEYS):
            raise ValueError(f"claims.toml: {id!r} has unknown keys {unknown}, accepted are {sorted(KEYS)}")
        if missing := sorted({"statement", "side"} - table.keys()):
            raise ValueError(f"claims.toml: {id!r} lacks {missing}")
        entry = Entry(id, **table)
        if entry.side != "measured" and not entry.contradicted_by:
            raise ValueError(f"claims.toml: {id!r} has a rule but no contradicted_by: say what would contradict it")
        try:
            entry.statement.format(**dict.fromkeys(re.findall(r"\{(\w*)\}", id), ""))
        except (KeyError, IndexError, ValueError) as error:
            raise ValueError(f"claims.toml: {id!r} has braces in its statement that hold no name of its id ({error}): "
                             "write {{ and }} for braces") from error  # fmt: skip
        if isinstance(entry.published, dict) and not GAP.search(id):
            raise ValueError(f"claims.toml: {id!r} has a table of published values but no name in braces to choose by")
        if entry.than is not None or entry.side not in SIDES:
            try:
                verdict(Estimate(np.nan, None, 0, "units"), entry.side, entry.than)
            except (ValueError, TypeError) as error:  # here, and not after the work
                raise ValueError(f"claims.toml: {id!r}: {error}") from error
        if entry.least and not entry.units:
            raise ValueError(f"claims.toml: {id!r} has a least n but no units: name what is drawn independently")
        entries.append(entry)
    return entries


def find_entry(entries: list[Entry], id: str) -> Entry:
    """The entry of a claim: the one with that id, or else the family with the longest id that it is of.

    Raises
    ------
    ValueError
        If there is none.
    """
    matching = [entry for entry in entries if entry.names(id) is not None]
    if not matching:
        raise ValueError(f"claim {id!r} has no entry in notebooks/claims.toml: add its statement and rule there")
    return max(matching, key=lambda entry: (entry.id == id, len(GAP.sub("", entry.id))))


def read_results(path: Path) -> dict[str, Any]:
    """What a file ``results.json`` holds; nothing where there is none.

    Raises
    ------
    ValueError
        If it was cut short or altered, or an older version wrote it.
    """
    if not path.exists():
        return {}
    remedy = "delete it and run the notebooks again, which takes what they computed from the cache"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        lacking = sorted({key for claim in found["claims"] for key in RECORD - claim.keys()})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{str(path)!r} cannot be read ({error!r:.80}): {remedy}") from error
    if lacking or not {"profile", "seeds", "models", "not_asked"} <= found.keys():
        raise ValueError(f"{str(path)!r} is of another version, its claims lack {lacking}: {remedy}")
    return found


def committed_folders() -> list[Path]:
    """Folders of the committed profiles' results, that with the larger sizes first."""
    return [profiles.ROOT / profiles.COMMITTED[profile] for profile in ("desk", "mini")]


def committed_results() -> list[dict[str, Any]]:
    """What the committed files ``results.json`` hold, in the order of `committed_folders`; none that is not there."""
    found = [read_results(folder / "results.json") for folder in committed_folders()]
    return [results for results in found if results]


def by_section(*results: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Of each section, in the order of their names, the first of some results that has it.

    Parameters
    ----------
    *results : dict
        What `read_results` returns, the preferred ones first.

    Returns
    -------
    dict of str to dict
        By section: ``profile``, ``seed``, the names of its ``models``, its ``claims`` and what it has ``not_asked``.
    """
    found: dict[str, dict[str, Any]] = {}
    for one in results:
        for section in {section_of(claim["id"]) for claim in one["claims"]} | one["not_asked"].keys():
            mine = [claim for claim in one["claims"] if section_of(claim["id"]) == section]
            idle = one["not_asked"].get(section, [])
            facts = {"profile": one["profile"], "seed": one["seeds"].get(section), "claims": mine, "not_asked": idle,
                     "models": sorted(one["models"].get(section, {}))}  # fmt: skip
            found.setdefault(section, facts)
    return dict(sorted(found.items()))


def not_asked(entries: list[Entry], section: str, claims: list[dict[str, Any]]) -> list[str]:
    """Ids of the entries of a section that none of its recorded claims is of."""
    asked = {find_entry(entries, claim["id"]).id for claim in claims}
    return [e.id for e in entries if e.section == section and e.id not in asked]


def claims_in(source: str) -> set[str]:
    """Ids that a notebook's source gives to ``run.claim``, with ``{}`` where it puts something in.

    What is no Python raises as `ast.parse` does: SyntaxError, and MemoryError where it is long.
    """
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "run.claim" and node.args:
            id = node.args[0]
            if isinstance(id, ast.Constant):
                found.add(str(id.value))
            elif isinstance(id, ast.JoinedStr):
                parts = [str(part.value) if isinstance(part, ast.Constant) else "{}" for part in id.values]
                found.add("".join(parts))
    return found


def check_entries(notebooks: Iterable[str]) -> None:
    """Compare the claims that notebooks measure with the entries.

    Parameters
    ----------
    notebooks : iterable of str
        Names of notebooks; each must give the ids to ``run.claim`` as a string or an f-string.

    Raises
    ------
    ValueError
        If a notebook measures a claim without an entry, or an entry of its section is measured by no line of it.
    """
    entries = read_claims()
    for notebook in notebooks:
        source = (profiles.notebooks_folder() / f"{notebook}.py").read_text(encoding="utf-8")
        section, measured = profiles.short_name(notebook), claims_in(source)
        listed = {GAP.sub("{}", e.id) for e in entries if e.section == section}
        if unlisted := sorted(measured - listed):
            raise ValueError(f"{notebook}: claims without an entry in claims.toml: {unlisted}")
        if idle := sorted(listed - measured):
            raise ValueError(f"claims.toml: entries that {notebook} does not measure: {idle}")


# Showing them --------------------------------------------------------------------------------------------------------


EXPLAINED = """Intervals are 95%. The rule is one for all: the interval wholly on the claim's side *holds*, wholly on
the other *does not hold*, otherwise, and below the least number of units, it is *undecided*; *measured* is a number
without a proposition. Statements, published values, rules and what would contradict a claim stand in
`notebooks/claims.toml`."""


def number(value: float | str | None) -> str:
    """A number of a record with four digits, ∞, or a dash where it is not known."""
    return {None: "–", "inf": "∞", "-inf": "-∞"}.get(value) or f"{value:.4g}"  # type: ignore


def measured(claim: dict[str, Any]) -> str:
    """The measured value of a record with its interval, and what it is if it is no estimate; KeyError for no record."""
    text = number(claim["measured"])
    if claim["interval"]:
        text += " [" + ", ".join(map(number, claim["interval"])) + "]"
    return text if claim["kind"] == "estimate" else f"{text} ({claim['kind']})"


def published_value(claim: dict[str, Any]) -> str:
    """The published value of a record, and where it is printed; KeyError for no record."""
    return number(claim["published"]) + (f" ({claim['printed']})" if claim["printed"] else "")


def claim_line(claim: dict[str, Any]) -> str:
    """A record in a line: measured value, interval, units, published value, verdict; KeyError for no record."""
    text = f"{claim['id']}: {measured(claim)}, {claim['n']} {claim['unit']}"
    if claim["published"] is not None:
        text += f", published {number(claim['published'])}"
    return f"{text}: {claim['verdict']}{' (' + claim['why'] + ')' if claim['why'] else ''}"


def claims_page(*results: dict[str, Any]) -> str:
    """``claims.md``: the records of each section by verdict, and what its profile does not ask.

    Parameters
    ----------
    *results : dict
        As for `by_section`: a section shows the first that has it, and names the profile where there are several.
    """
    sections, several = by_section(*results), len(results) > 1
    origin = (
        "Each section shows the profile with the largest sizes of those that ran it"
        if several
        else f"Profile `{results[0]['profile']}`"
    )
    lines = ["# Claims", "", f"{origin}. {EXPLAINED}", ""]
    for section, found in sections.items():
        named = (f": profile `{found['profile']}`, " if several else ": ") + f"seed {found['seed']}"
        lines += [f"## {section}{named}", "", *_records_by_verdict(found["claims"])]
        if idle := found["not_asked"]:
            lines += ["Not asked in this profile: " + ", ".join(f"`{id}`" for id in idle) + ".", ""]
    return "\n".join(lines)


def _records_by_verdict(records):
    """Lines of a Markdown table of records for every verdict."""
    lines = []
    for said in VERDICTS:
        chosen = [claim for claim in records if claim["verdict"] == said]
        if not chosen:
            continue
        lines += [f"### {said}", "", "| claim | measured | n | published | why |", "|---|---|---|---|---|"]
        for claim in chosen:
            contradicted = f" *Contradicted by:* {claim['contradicted_by']}" if claim["contradicted_by"] else ""
            cells = (
                f"`{claim['id']}` {claim['statement']}{contradicted}", measured(claim),
                f"{claim['n']} {claim['unit']}", published_value(claim), claim["why"],
            )  # fmt: skip
            lines.append(tables.line(cells))
        lines.append("")
    return lines
