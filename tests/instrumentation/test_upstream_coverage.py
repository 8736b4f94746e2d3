"""Ours prints what PyTorch's own printer prints, and the launches which that one leaves out.

Each `python-upstream-print` fixture is the plain wrapper with printing lines added. What those
lines print is read from them, and what ours prints from the source that `instrument` makes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Literal, NamedTuple

import pytest

import rewriter
from artifacts import FIXTURES, UPSTREAM, Fixture, plain
from sampling import one_in

pytestmark = pytest.mark.properties

CALL = "_print_debugging_tensor_value_info("
PRINTED = re.compile(
    r"""\s*_print_debugging_tensor_value_info\("inductor: (before|after)_launch - (.+?) - (.+)", """
)
REUSE = re.compile(r"\s*(\w+) = (?:reinterpret_tensor\((\w+),.*\)|(\w+)); del \w+  # reuse")
ALLOCATION = re.compile(r"\s*(\w+) = empty_strided\w*\(")

upstream_fixtures = pytest.mark.parametrize("fixture", UPSTREAM, ids=str)


class Print(NamedTuple):
    """One value that is printed; `line` is that of the launch in the plain file."""

    phase: str
    line: int
    kernel: str
    argument: str


@cache
def printed_by_upstream(fixture: Fixture) -> frozenset[Print]:
    """What upstream's file prints, at the lines which the plain file has for it."""
    found = set()
    waiting: list[tuple[str, str]] = []
    plain = 0
    for text in fixture.upstream.read_text().split("\n"):
        if match := PRINTED.match(text):
            phase, kernel, argument = match.groups()
            if phase == "before":
                waiting.append((kernel, argument))
            else:
                found.add(Print("after", plain, kernel, argument))
        elif CALL.rstrip("(") in text:
            assert text.startswith("from torch._inductor.codegen.debug_utils import")
        else:
            plain += 1
            found |= {Print("before", plain, *what) for what in waiting}
            waiting = []
    return frozenset(found)


def table(source: bytes) -> dict[int, dict[str, Any]]:
    """The facts in the header of an instrumented source, by launch."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_rw":
            assert isinstance(node.value, ast.Call)
            return {row["launch"]: row for row in ast.literal_eval(node.value.args[1])}
    raise AssertionError("no header")


def printed_by_us(fixture: Fixture, style: Literal["text", "upstream"]) -> Iterator[Print]:
    """What our file prints: the table names the values, and the injected lines hand them over."""
    selection = rewriter.select("print", when="both", format=style)
    source = rewriter.instrument(plain(fixture), selection).source
    rows = table(source)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("_rw.before", "_rw.after"):
            phase = ast.unparse(node.func).removeprefix("_rw.")
            launch, *values = (ast.unparse(value) for value in node.args)
            row = rows[int(launch)]
            named = [entry[-1] for entry in row[phase]]
            assert [ast.unparse(ast.parse(one, mode="eval").body) for one in named] == values
            for _, name, *_ in row[phase]:
                yield Print(phase, row["line"], row["kernel"], name)


def pure_outputs(fixture: Fixture) -> frozenset[tuple[int, str]]:
    """`(line, variable)` where a launch is handed memory with nothing worth reading in it.

    Told from the text alone: a variable is fresh from its allocation, or from taking over the
    memory of a dead one, until the first later line that names it outside a `del`. Memory that
    was taken over still has something in it, which the kernel may read; only where the kernel's
    source never loads from that parameter is it an output.
    """
    fresh: set[str] = set()
    taken: set[str] = set()
    result = set()
    text = fixture.path.read_text()
    for number, line in enumerate(text.split("\n"), 1):
        if match := ALLOCATION.match(line):
            fresh.add(match[1])
        elif match := REUSE.match(line):
            # What was taken over before anything was written is as fresh as it was.
            (fresh if (match[2] or match[3]) in fresh else taken).add(match[1])
        elif not line.lstrip().startswith(("#", "del ")):
            for name in re.findall(r"\w+", line):
                if name in fresh or (name in taken and not is_loaded(text, line, name)):
                    result.add((number, name))
                fresh.discard(name)
                taken.discard(name)
    return frozenset(result)


def is_loaded(text: str, line: str, name: str) -> bool:
    """Whether the kernel that `line` runs loads from the parameter that gets `name`."""
    if "out=" in line:
        return f"out={name}" not in line
    launch = re.match(r"\s*(\w+)\.run\((.*)\)", line)
    assert launch, line
    position = [argument.strip() for argument in launch[2].split(",")].index(name)
    start = text.index(f"{launch[1]} = async_compile.triton(")
    source = text[start : text.index("''', device_str", start)]
    definition = re.search(r"^def \w+\((.*)\):", source, re.MULTILINE)
    assert definition, source
    parameter = definition[1].split(",")[position].split(":")[0].strip()
    return re.search(rf"tl\.load\({parameter}\b", source) is not None


@upstream_fixtures
def test_upstream_s_file_is_the_plain_one_with_prints(fixture: Fixture) -> None:
    lines = fixture.upstream.read_text().split("\n")
    plain = [line for line in lines if CALL.rstrip("(") not in line]
    assert plain == fixture.path.read_text().split("\n")
    assert len(printed_by_upstream(fixture)) > 0


@upstream_fixtures
def test_its_output_is_what_its_file_prints(fixture: Fixture) -> None:
    # The parser of this module, held against what really came out.
    said = set()
    for line in (fixture.upstream.parent / "stdout.txt").read_text().split("\n"):
        if match := re.match(r"inductor: (before|after)_launch - (.+?) - (.+)$", line):
            said.add(match.groups())
    written = {(one.phase, one.kernel, one.argument) for one in printed_by_upstream(fixture)}
    assert said <= written
    # Only one branch of the `cond` ran.
    assert said == written or fixture.model == "cond"


@upstream_fixtures
def test_upstream_format_prints_whatever_upstream_prints(fixture: Fixture) -> None:
    garbage = pure_outputs(fixture)
    wanted = {
        one
        for one in printed_by_upstream(fixture)
        if one.phase == "after" or (one.line, one.argument) not in garbage
    }
    assert wanted - set(printed_by_us(fixture, "upstream")) == set()


@upstream_fixtures
def test_text_format_prints_every_tensor_that_upstream_prints(fixture: Fixture) -> None:
    garbage = pure_outputs(fixture)
    wanted = {
        one
        for one in printed_by_upstream(fixture)
        if one.argument.isidentifier()
        and (one.phase == "after" or (one.line, one.argument) not in garbage)
    }
    assert wanted - set(printed_by_us(fixture, "text")) == set()


@upstream_fixtures
def test_no_garbage_is_printed(fixture: Fixture) -> None:
    garbage = pure_outputs(fixture)
    assert garbage
    for one in printed_by_us(fixture, "upstream"):
        assert one.phase == "after" or (one.line, one.argument) not in garbage


@pytest.mark.parametrize("fixture", one_in(2, FIXTURES))
def test_every_launch_is_printed(fixture: Fixture) -> None:
    launches = plain(fixture).launches
    lines = {launch.line for launch in launches}
    for phase in ("before", "after"):
        values = {one.line for one in printed_by_us(fixture, "text") if one.phase == phase}
        # Before a launch that only writes there is nothing to print.
        expected = {
            launch.line
            for launch in launches
            if phase == "after"
            or any(a.role != "out" and a.type != "other" and a.buffer for a in launch.args)
        }
        assert values == expected
    plan = rewriter.instrument(plain(fixture), rewriter.select("print", when="both")).plan
    assert {launch.line for launch in plan.probed} == lines
    assert plan.skipped == ()


def test_share_of_launches_that_upstream_prints_on_cuda() -> None:
    reached = {
        fixture.model: (
            len({one.line for one in printed_by_upstream(fixture)}),
            len(plain(fixture).launches),
        )
        for fixture in UPSTREAM
    }
    assert reached == {
        "cond": (3, 4),
        "conv": (7, 9),
        "customop": (3, 5),
        "gpt": (17, 34),
        "mlp": (4, 5),
        "usertriton": (5, 5),
    }
    # 63 %; ours is `test_every_launch_is_printed`.
    assert tuple(map(sum, zip(*reached.values(), strict=True))) == (39, 62)
