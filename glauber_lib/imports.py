"""What a source imports, and the sources that a reader's own class or function depends on."""

import ast
import functools
import hashlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

INSTALLED = {"site-packages", "dist-packages"}  # folders of packages, whose own imports do not count
_READ: dict[str, tuple[Any, str]] = {}  # of each module the import that was last seen, and its source then


@functools.lru_cache(None)
def imported_names(source: str, package: str) -> tuple[str, ...]:
    """Names that a source imports, at its top or in a function: modules, and perhaps what is in one; in order.

    An import whose module is computed (``importlib``) is not seen.
    """
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {name for alias in node.names for name in _with_packages(alias.name)}
        elif isinstance(node, ast.ImportFrom):
            module = origin(node, package)
            names |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
    return tuple(sorted(names))


def _with_packages(name):
    """A module and the packages that it is in, which ``import a.b.c`` runs and of which it binds the first."""
    parts = name.split(".")
    return [".".join(parts[:k]) for k in range(1, len(parts) + 1)]


def read_source(path: Path) -> str:
    """The source in a file; of a compiled module a comment with the digest of its content, which imports nothing."""
    if path.suffix == ".py":
        return path.read_text(encoding="utf-8")
    return f"# compiled: {hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()}"


def origin(node: ast.ImportFrom, package: str) -> str:
    """The module that ``from … import`` names, from a module in `package`."""
    name = "." * node.level + (node.module or "")
    return importlib.util.resolve_name(name, package) if node.level else name


def sources_below(module: str) -> dict[str, str]:
    """Sources of a module and of the loaded ones that it imports, and these in turn, by their names in order.

    Each is as it stood when it was first asked for since it was imported. What is built in, in the standard library or
    in this package does not count; of what is installed the module itself does, if it is the one asked for.
    """
    found: dict[str, str] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        loaded = sys.modules.get(name)
        path = Path(getattr(loaded, "__file__", None) or "")
        installed = bool(INSTALLED & set(path.parts))
        if name in found or not path.is_file() or name.split(".")[0] in _LEFT_OUT or (installed and name != module):
            continue
        spec = getattr(loaded, "__spec__", None)  # another one after a module was loaded again
        if name not in _READ or _READ[name][0] is not spec:
            _READ[name] = spec, read_source(path)
        found[name] = _READ[name][1]
        inside = name if path.name == "__init__.py" else name.rpartition(".")[0]
        waiting += () if installed else imported_names(found[name], inside)
    return dict(sorted(found.items()))


_LEFT_OUT = {*sys.stdlib_module_names, __name__.partition(".")[0]}
