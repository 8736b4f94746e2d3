"""C++ that a formatter laid out anew says the same, and is read as the same."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import rewriter
from artifacts import CPP_FIXTURES, Fixture, get
from rewriter.locate.types import Launch
from sampling import sampled

pytestmark = pytest.mark.properties

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


@pytest.mark.parametrize(
    ("fixture", "layout"),
    sampled(STANDALONE, [spaced, broken], id=lambda one: getattr(one, "__name__", str(one))),
)
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


@pytest.mark.parametrize("comment", [" // foo \\", " \\"], ids=["in a comment", "bare"])
def test_no_line_goes_behind_a_continued_one(comment: str, tmp_path: Path) -> None:
    fixture = get("cpu-torch2.15/cond aoti")
    lines = fixture.data.decode().splitlines(keepends=True)
    first = rewriter.open(fixture.path).launches[0]
    lines[first.line - 1] = lines[first.line - 1].rstrip("\n") + comment + "\n"
    file = tmp_path / "wrapper.cpp"
    file.write_text("".join(lines))
    result = rewriter.instrument(file)
    assert [(s.launch.index, s.reason) for s in result.plan.skipped] == [
        (0, "a backslash joins its line to another")
    ]
    assert b"before(0" not in result.source
    assert b"after(0" not in result.source
