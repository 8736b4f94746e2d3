"""The rooms of `rewriter/`: arrows between them point down, and none has a circle inside.

    pytest -s tests/core/test_layers.py

prints the rooms, the arrows between them with the number of imports, and the circles.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
import tomllib
from grimp import ImportGraph, build_graph

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "rewriter"
ROOMS = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
ABOUT_TWELVE = 13


@pytest.fixture(scope="module")
def graph() -> ImportGraph:
    """Every import of the package, those in functions and for types alone among them."""
    return build_graph("rewriter", cache_dir=None)


def room(module: str) -> str:
    """The room of a module, or the module itself where it stands at the root."""
    return [*module.split("."), ""][1]


def arrows(graph: ImportGraph) -> Counter[tuple[str, str]]:
    """How many imports lead from one room to another."""
    pairs = (
        (room(module), room(imported))
        for module in graph.modules
        for imported in graph.find_modules_directly_imported_by(module)
    )
    return Counter(pair for pair in pairs if pair[0] != pair[1] and pair[0])


def circles(graph: ImportGraph) -> Iterator[list[str]]:
    """A circle of modules, if there is one."""
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        yield error.args[1]


def test_the_rooms_keep_their_contracts() -> None:
    lint = "from importlinter.cli import lint_imports_command as lint; lint(['--no-cache'])"
    done = subprocess.run(
        [sys.executable, "-c", lint], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_there_is_no_circle(graph: ImportGraph) -> None:
    between = arrows(graph)
    for name in ROOMS:
        below = [f"{to} {count}" for (of, to), count in sorted(between.items()) if of == name]
        print(f"{name} -> {', '.join(below) or 'nothing'}")
    found = [*circles(graph)]
    print(f"{len(ROOMS)} rooms, {len(between)} arrows, circles: {found or 'none'}")
    assert found == []


def test_the_contract_names_every_room(graph: ImportGraph) -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = contracts["contracts"][0]["layers"]
    named = {name.strip().removeprefix("rewriter.") for line in layers for name in line.split("|")}
    at_the_root = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}
    assert named == {*ROOMS, *at_the_root}


def test_there_are_about_twelve_rooms_and_each_says_what_it_is() -> None:
    assert len(ROOMS) <= ABOUT_TWELVE
    for path in PACKAGE.rglob("__init__.py"):
        documented = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        assert documented, f"{path.relative_to(ROOT)} does not say what it is"
        assert documented.split("\n\n")[0].endswith("."), path


def test_few_modules_stand_at_the_root() -> None:
    assert {path.name for path in PACKAGE.glob("*.py")} == {
        "__init__.py", "__main__.py", "cli.py", "version.py",
    }  # fmt: skip
