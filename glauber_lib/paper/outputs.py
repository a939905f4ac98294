"""What a notebook wrote in a profile, and the digests that tell whether it is still there."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from glauber_lib.paper import claims, keys, profiles


def outputs_file(notebook: str, profile: str) -> Path:
    """The file with the names and digests of all that a notebook wrote in a profile."""
    return profiles.build_folder(profile) / f"{notebook}.outputs.json"


def outputs_digests(notebook: str, profile: str, names: Iterable[str]) -> dict[str, str | None]:
    """Digest of each output of a notebook; None of one that is not there.

    ``results.json`` is shared: what it holds of the notebook's section counts. ``claims.md`` follows from it.
    """
    figures, section = profiles.figures_folder(profile), profiles.short_name(notebook)
    found = {name: keys.files_digest(figures / name) for name in names}
    if found.get("results.json"):
        results = json.loads((figures / "results.json").read_text(encoding="utf-8"))
        if found.get("claims.md") and (figures / "claims.md").read_text(encoding="utf-8") == page_of(figures, results):
            found["claims.md"] = "from results.json"
        own = [claim for claim in results.get("claims", []) if claims.section_of(claim["id"]) == section]
        facts = [results.get(key, {}).get(section) for key in ("seeds", "models", "not_asked")]
        found["results.json"] = keys.digest(json.dumps([own, facts], sort_keys=True))
    return found


def page_of(folder: Path, results: dict) -> str:
    """What ``claims.md`` in a folder says of its ``results.json``; that of the default profile shows the others too.

    KeyError for results without claims.
    """
    main = folder == profiles.ROOT / "figures"
    return claims.claims_page(*claims.committed_results()) if main else claims.claims_page(results)


def read_facts(path: Path) -> dict[str, Any]:
    """What a JSON file of a run holds; nothing where it is not there or damaged, as every notebook writes its own."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return {}
