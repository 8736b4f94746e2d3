"""C++ that a formatter laid out anew says the same, and is read as the same."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import rewriter
from artifacts import CPP_FIXTURES, Fixture
from rewriter.types import Launch

STANDALONE = [fixture for fixture in CPP_FIXTURES if fixture.path.suffix == ".cpp"]


def spaced(text: str) -> str:
    """As GNU style has it: a space before the parentheses of a call."""
    return re.sub(r"(?<=\w)\((?=[^)\n]*\);)", " (", text)


def broken(text: str) -> str:
    """As a narrow column limit has it: arguments on lines of their own."""
    return re.sub(r"(?m)^( +)(\w[\w.:]*\(.*\);)$", _break, text)


def _break(match: re.Match[str]) -> str:
    indent, statement = match.groups()
    if '"' in statement or "//" in statement:
        return match.group()
    inner = statement.replace("(", f"(\n{indent}    ", 2).replace(", ", f",\n{indent}    ")
    return indent + inner


@pytest.mark.parametrize("layout", [spaced, broken], ids=lambda layout: layout.__name__)
@pytest.mark.parametrize("fixture", STANDALONE, ids=str)
def test_layout_does_not_matter(
    fixture: Fixture, layout: Callable[[str], str], tmp_path: Path
) -> None:
    start = fixture.data.index(b"::run_impl(")
    text = fixture.data.decode()
    moved = text[:start] + layout(text[start:])
    assert moved != text
    file = tmp_path / fixture.path.name
    file.write_text(moved)
    for beside in fixture.path.parent.glob("*.json"):
        (tmp_path / beside.name).write_bytes(beside.read_bytes())

    artifact = rewriter.open(file)

    assert artifact.unrecognised == ()
    assert list(map(described, artifact.launches)) == list(
        map(described, rewriter.open(fixture.path).launches)
    )
    plan = rewriter.instrument(artifact, rewriter.select("print")).plan
    assert plan.probed == artifact.only.located.launches


def described(launch: Launch) -> tuple[object, ...]:
    arguments = [(a.name, a.buffer, a.role, a.type) for a in launch.args if a.type != "other"]
    return launch.kernel, launch.kind, launch.scope, arguments
