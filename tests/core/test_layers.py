"""The rooms of `rewriter/`: arrows between them point down, and none has a circle inside."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import tomllib

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "rewriter"
ROOMS = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
ABOUT_TWELVE = 13


def test_the_rooms_keep_their_contracts() -> None:
    lint = "from importlinter.cli import lint_imports_command as lint; lint(['--no-cache'])"
    done = subprocess.run(
        [sys.executable, "-c", lint], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_the_contract_names_every_room() -> None:
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
