"""The house: no circle of imports, and nothing heavy imported for something light."""

import ast
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest

import glauber_lib

HOUSE = Path(glauber_lib.__file__).parent
HEAVY = ("sentence_transformers", "matplotlib", "papermill", "sklearn", "transformers", "datasets")
LIGHT = (
    "chains", "couplings", "crossover", "drift", "escape", "exact", "growth", "hitting", "influence", "kernels",
    "margins", "stats", "transition",
)  # fmt: skip


# What is imported ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("room", LIGHT)
def test_a_light_room_loads_nothing_heavy(room):
    code = f"import sys, glauber_lib.{room}; print(*(name for name in {HEAVY} if name in sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=HOUSE.parent, check=True)
    assert not out.stdout.split()


# Circles -------------------------------------------------------------------------------------------------------------


def imports_of(package):
    """The modules of a package that each of its modules imports, wherever the statement stands."""
    names = {path: ".".join(path.relative_to(package.parent).with_suffix("").parts) for path in package.rglob("*.py")}
    names = {path: name.removesuffix(".__init__") for path, name in names.items()}
    known, found = set(names.values()), {}
    for path, name in names.items():
        inside = name if path.name == "__init__.py" else name.rpartition(".")[0]
        imported = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                above = inside.split(".")[: len(inside.split(".")) + 1 - node.level] if node.level else []
                module = ".".join([*above, *([node.module] if node.module else [])])
                for alias in node.names:  # a module of a package, or a name of a module
                    inner = f"{module}.{alias.name}"
                    imported.add(inner if inner in known else module)
        imported = {module for module in imported if module in known and module != package.name}
        found[name] = imported - {name}
    return found


def circle(imports):
    """A circle of imports as a list of modules; none if there is no circle."""
    try:
        graphlib.TopologicalSorter(imports).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return []


def test_no_modules_import_each_other_in_a_circle():
    imports = imports_of(HOUSE)
    assert {"glauber_lib.draws", "glauber_lib.engine"} <= imports["glauber_lib.chains"]
    assert circle(imports) == []


@pytest.mark.parametrize(
    "line", ["from house.attic import roof", "from house import attic", "import house.attic", "from . import attic",
             "from .attic import roof", "def late():\n    from house import attic"],
)  # fmt: skip
def test_a_circle_is_found_however_the_import_is_written(line, tmp_path):
    package = tmp_path / "house"
    package.mkdir()
    for name, source in {"__init__": "", "cellar": line, "attic": "from house.stairs import up", "stairs": ""}.items():
        (package / f"{name}.py").write_text(source)
    assert circle(imports_of(package)) == []
    (package / "stairs.py").write_text("import house.cellar")
    assert set(circle(imports_of(package))) == {"house.cellar", "house.attic", "house.stairs"}
