"""The runtime goes into other people's programs, some of it embedded in their files."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

RUNTIME = Path(__file__).parents[2] / "rewriter/runtime"
FILES = sorted(RUNTIME.rglob("*.py"))


def imported(node: ast.AST) -> list[tuple[int, str]]:
    """The modules that a statement imports: how many packages up, and the name."""
    if isinstance(node, ast.Import):
        return [(0, alias.name) for alias in node.names]
    return [(node.level, node.module or "")] if isinstance(node, ast.ImportFrom) else []


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(RUNTIME)))
def test_the_runtime_imports_the_standard_library_torch_and_itself(file: Path) -> None:
    depth = len(file.relative_to(RUNTIME).parts)
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        for level, name in imported(node):
            top = name.partition(".")[0]
            is_known = top == "torch" or top in sys.stdlib_module_names
            assert 0 < level <= depth or (level == 0 and is_known), f"{file}: {name}"


def test_what_is_embedded_needs_nothing_of_what_is_not() -> None:
    for file in FILES:
        if file.parent.name == "host":
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            assert not any("host" in name.split(".") for _, name in imported(node)), file


def test_who_only_asks_for_the_extension_module_imports_no_torch() -> None:
    """`doctor` does; commands start in a tenth of the time without torch."""
    script = "import sys, rewriter.runtime.extension; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)
