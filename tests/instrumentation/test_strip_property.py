"""`strip(instrument(x)) == x`, byte for byte, on real wrappers and on mutations of them."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

import rewriter
import text_changes
from artifacts import CPP_FIXTURES, FIXTURES, Fixture, get, plain
from examples import examples
from rewriter.artifact.types import Artifact, Wrapper
from rewriter.cli import main
from rewriter.core import markers
from rewriter.core.errors import BAD_INPUT, RewriterError
from rewriter.instrumentation.probes import PLAIN
from rewriter.instrumentation.types import Instrumented
from rewriter.locate.types import Launch
from sampling import one_in, sampled
from text_changes import (
    PROBES,
    TEXTS,
    Change,
    Language,
    byte_order_mark,
    check_restored,
    crlf,
    lone_cr,
    no_final_newline,
)

pytestmark = pytest.mark.properties


def opened(data: bytes) -> Artifact:
    """An artifact that is not in a file, located once."""
    return _of_a_file(data) if data in RECORDED else _of_others(data)


def _opened(data: bytes) -> Artifact:
    path = Path("output_code.py")
    return Artifact(path, (Wrapper(path.name, data, "python", path),))


RECORDED = frozenset(fixture.data for fixture in FIXTURES)
_of_a_file = cache(_opened)
_of_others = lru_cache(maxsize=8)(_opened)


def instrumented(data: bytes, probes: str = "print", **options: Any) -> Instrumented:
    standalone = options.pop("standalone", False)
    names = probes.split(",")
    if standalone:
        names = [name for name in names if name in PLAIN] or ["print"]
    return rewriter.instrument(
        opened(data), rewriter.select(names, **options), standalone=standalone
    )


def unplaced(launches: tuple[Launch, ...]) -> list[Launch]:
    """Launches without what a shift of lines changes."""
    return [replace(launch, line=0, insertion_point=None) for launch in launches]  # type: ignore[arg-type]


def check(data: bytes, result: Instrumented) -> None:
    """Everything that is promised of an instrumented file."""
    assert result.source != data or not result.plan.insertions
    ast.parse(result.source.decode("utf-8-sig"))
    check_restored(opened, data, result)
    assert unplaced(opened(result.source).launches) == unplaced(opened(data).launches)


@pytest.mark.parametrize(("fixture", "probes"), sampled(FIXTURES, PROBES))
def test_each_combination_of_probes(fixture: Fixture, probes: str) -> None:
    data = fixture.data
    result = instrumented(data, probes, when="both")
    assert len(result.plan.probed) == len(opened(data).launches)
    check(data, result)


OPTIONS: list[dict[str, Any]] = [
    {},
    {"when": "before"},
    {"when": "after"},
    {"when": "both"},
    {"format": "upstream", "when": "both"},
    {"values": True},
    {"launches": [0]},
    {"standalone": True},
]


@pytest.mark.parametrize(("fixture", "options"), sampled(FIXTURES, OPTIONS))
def test_each_option(fixture: Fixture, options: dict[str, Any]) -> None:
    data = fixture.data
    result = instrumented(data, "names,print,save", **dict(options))
    if "launches" in options:
        assert [launch.index for launch in result.plan.probed] == [0]
    check(data, result)


@pytest.mark.parametrize("fixture", one_in(3, FIXTURES))
def test_a_filter_by_kernel(fixture: Fixture) -> None:
    data = fixture.data
    launches = opened(data).launches
    kernel = launches[-1].kernel
    result = instrumented(data, "print", kernels=[kernel])
    expected = [launch.index for launch in launches if launch.kernel == kernel]
    assert [launch.index for launch in result.plan.probed] == expected
    check(data, result)


@pytest.mark.parametrize("fixture", one_in(3, FIXTURES))
def test_replacing_is_instrumenting_the_plain_file(fixture: Fixture) -> None:
    first = instrumented(fixture.data, "save", when="both")
    for options in ({}, {"standalone": True}):
        selection = rewriter.select("names,print")
        again = rewriter.instrument(opened(first.source), selection, replace=True, **options)
        assert again.source == instrumented(fixture.data, "names,print", **options).source


@pytest.mark.parametrize("fixture", [*FIXTURES, *one_in(3, CPP_FIXTURES)], ids=str)
def test_stripping_a_plain_file_changes_nothing(fixture: Fixture) -> None:
    stripped = rewriter.strip(plain(fixture))
    assert (stripped.source, stripped.removed, stripped.exact) == (fixture.data, 0, True)


# --- Text that is laid out otherwise ------------------------------------------------------------

SMALL = tuple(fixture for fixture in FIXTURES if len(fixture.data) < 20_000)


def _statement_lines(data: bytes) -> list[int]:
    """Where the lines start on which statements do. The first line may start with a BOM."""
    source = rewriter_source(data)
    tree = ast.parse(data.decode("utf-8-sig"))
    lines = {node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt)}
    return [source.line_start(line) for line in sorted(lines - _inner_lines(tree)) if line > 1]


def _inner_lines(tree: ast.Module) -> set[int]:
    """Lines that start inside an expression, and so perhaps inside a string."""
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.expr) and node.end_lineno != node.lineno
        for line in range(node.lineno + 1, (node.end_lineno or 0) + 1)
    }


def rewriter_source(data: bytes) -> Any:
    from rewriter.core.source import Source

    return Source("output_code.py", data)


COMMENTS = [b"#" + text for text in TEXTS] + [b"# fmt: off ; del buf0  # reuse"]
NEW_NAMES = ["_rw", "größe", "tmp9", "_rw_attach", "x" * 300]
PYTHON = Language(opened, instrumented, check, _statement_lines, COMMENTS, NEW_NAMES)


def mixed_ends(data: bytes, draw: st.DataObject) -> bytes:
    random = draw.draw(st.randoms(use_true_random=False))
    return re.sub(rb"\r\n|\r|\n", lambda _: random.choice([b"\r\n", b"\n", b"\r"]), data)


def tabs(data: bytes, draw: st.DataObject) -> bytes:
    return tabbed(data)


def tabbed(data: bytes) -> bytes:
    """`data` with tabs for every four spaces of indentation."""
    inner = _inner_lines(ast.parse(data.decode("utf-8-sig")))
    return b"".join(
        line if number in inner else re.sub(rb"^(?:    )+", _tabs, line)
        for number, line in enumerate(markers.lines(data), 1)
    )


def _tabs(match: re.Match[bytes]) -> bytes:
    return b"\t" * (len(match[0]) // 4)


def launch_is_last(data: bytes, draw: st.DataObject) -> bytes:
    """The file ends right behind a launch, without a newline."""
    source = rewriter_source(data)
    launch = draw.draw(st.sampled_from(opened(data).launches))
    line = data[source.line_start(launch.line) : source.line_end(launch.line)].strip()
    return data.rstrip() + b"\n\ndef late(args):\n    extern_kernels.relu_(buf0)\n    " + line


def joined_statements(data: bytes, draw: st.DataObject) -> bytes:
    """Two lines of the same depth become one, joined by a semicolon."""
    source = rewriter_source(data)
    simple = (ast.Assign, ast.Expr, ast.Delete)
    tree = ast.parse(data.decode("utf-8-sig"))
    pairs = [
        (one.end_lineno, other.lineno)
        for node in ast.walk(tree)
        for body in (getattr(node, "body", None), getattr(node, "orelse", None))
        if isinstance(body, list)
        for one, other in itertools.pairwise(body)
        if isinstance(one, simple)
        and isinstance(other, simple)
        and node is not tree
        and other.lineno == (one.end_lineno or 0) + 1
        and b"#" not in source.line_text(one.end_lineno or 0).encode()
    ]
    if not pairs:
        return data
    first, second = draw.draw(st.sampled_from(pairs))
    head = data[: source.line_end(first)].rstrip(b"\r\n")
    return head + b"; " + data[source.line_start(second) :].lstrip(b" \t")


def swapped_statements(data: bytes, draw: st.DataObject) -> bytes:
    """Two neighbours change places, be they dependent or not: the text is what counts here."""
    return _swapped(data, draw, top_level=False)


def swapped_functions(data: bytes, draw: st.DataObject) -> bytes:
    return _swapped(data, draw, top_level=True)


def _swapped(data: bytes, draw: st.DataObject, *, top_level: bool) -> bytes:
    source = rewriter_source(data)
    tree = ast.parse(data.decode("utf-8-sig"))
    pairs = []
    for node in [tree] if top_level else ast.walk(tree):
        body = getattr(node, "body", None)
        if not isinstance(body, list) or (node is tree) != top_level:
            continue
        for one, other in itertools.pairwise(body):
            spans = [(s.lineno, s.end_lineno or s.lineno) for s in (one, other)]
            # A call that does not end in its return is taken for truncated.
            if isinstance(other, ast.Return):
                continue
            if spans[0][1] < spans[1][0] and one.lineno > 1:
                pairs.append(spans)
    if not pairs:
        return data
    (a, b), (c, d) = draw.draw(st.sampled_from(pairs))
    cut = [source.line_start(a), source.line_end(b), source.line_start(c), source.line_end(d)]
    pieces = [data[: cut[0]], data[cut[2] : cut[3]], data[cut[1] : cut[2]], data[cut[0] : cut[1]]]
    if not pieces[1].endswith((b"\r", b"\n")):
        return data
    return b"".join([*pieces, data[cut[3] :]])


CHANGES: list[Change] = [
    PYTHON.comment, PYTHON.trailing_comment, PYTHON.header_like, PYTHON.blank_lines,
    PYTHON.trailing_space, crlf, lone_cr, mixed_ends, tabs, byte_order_mark, no_final_newline,
    launch_is_last, PYTHON.renamed, joined_statements, swapped_statements, swapped_functions,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@examples(6)
def test_each_change(change: Change, draw: st.DataObject) -> None:
    fixture = draw.draw(st.sampled_from(SMALL))
    data = change(fixture.data, draw)
    probes = draw.draw(st.sampled_from(PROBES))
    when = draw.draw(st.sampled_from([None, "before", "after", "both"]))
    done = PYTHON.attempt(data, probes, when=when, standalone=draw.draw(st.booleans()))
    # A file that was only laid out otherwise is no reason to refuse.
    assert done or change == PYTHON.header_like


@examples(40)
def test_several_changes(draw: st.DataObject) -> None:
    data = draw.draw(st.sampled_from(SMALL)).data
    changes = draw.draw(st.lists(st.sampled_from(CHANGES), min_size=2, max_size=5))
    PYTHON.several(data, changes, draw)


# --- Through files and the command line ---------------------------------------------------------

FILES: dict[str, Callable[[bytes], bytes]] = {
    **text_changes.FILES,
    "CR": lambda data: data.replace(b"\n", b"\r"),
    "launch last": lambda data: data + b"\ndef late(args):\n    extern_kernels.relu_(args)",
    "tabs": tabbed,
}


@pytest.mark.parametrize(
    ("layout", "name"),
    sampled(
        list(FILES), ["cuda-torch2.11/cond", "cuda-torch2.6/mlp", "cpu-torch2.13/transformer 1"]
    ),
)
def test_command_line(name: str, layout: str, tmp_path: Path) -> None:
    plain, probed, back = (tmp_path / name for name in ("plain.py", "probed.py", "back.py"))
    data = FILES[layout](get(name).data)
    plain.write_bytes(data)
    options = ["--probe", "names,print,save", "--when", "both"]
    assert main(["instrument", str(plain), *options, "-o", str(probed)]) == 0
    assert probed.read_bytes() != data
    if layout == "CRLF":
        assert b"\n" not in probed.read_bytes().replace(b"\r\n", b"")
    launches = rewriter.open(plain).launches
    relocated = rewriter.open(probed).launches
    assert [launch.kernel for launch in launches] == [launch.kernel for launch in relocated]
    lines = probed.read_bytes().splitlines()
    for launch, moved in zip(launches, relocated, strict=True):
        assert moved.line > launch.line
        assert lines[moved.line - 1] == data.splitlines()[launch.line - 1]
    assert main(["instrument", str(probed), "-o", str(tmp_path / "twice.py")]) == BAD_INPUT
    assert not (tmp_path / "twice.py").exists()
    again = ["instrument", str(probed), "--replace", *options, "-o", str(tmp_path / "again.py")]
    assert main(again) == 0
    # Less the name of the file, which is in the header.
    renamed = probed.read_bytes().replace(b"plain.py", b"probed.py")
    assert (tmp_path / "again.py").read_bytes() == renamed
    assert main(["strip", str(probed), "-o", str(back)]) == 0
    assert back.read_bytes() == data
    assert plain.read_bytes() == data


@pytest.mark.parametrize("layout", FILES)
def test_in_place_and_back(layout: str, tmp_path: Path) -> None:
    path = tmp_path / "output_code.py"
    data = FILES[layout](get("cuda-torch2.11/while").data)
    path.write_bytes(data)
    assert main(["instrument", str(path), "--in-place", "--standalone"]) == 0
    assert path.read_bytes() != data
    assert main(["strip", str(path), "--in-place"]) == 0
    assert path.read_bytes() == data
    assert [file.name for file in tmp_path.iterdir()] == ["output_code.py"]


def test_a_quoted_header_is_refused_or_restored() -> None:
    data = get("cpu-torch2.13/mlp").data
    quoted = PYTHON.check_quoted_header(get("cpu-torch2.13/conv").data, data)
    with pytest.raises(RewriterError) as caught:
        rewriter.instrument(opened(quoted + b"\n" + data), replace=True)
    assert caught.value.code == BAD_INPUT
    # Anywhere else it is text.
    assert PYTHON.attempt(b"if True:\n    " + quoted + b"\n    pass\n" + data, "print")
    assert PYTHON.attempt(b'x = """\n  ' + quoted + b'\n"""\n' + data, "print")


def test_a_mark_that_is_in_the_file_is_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ("# rewriter:{}", "x = 1  # rewriter:{} +newline")
    PYTHON.check_mark(get("cpu-torch2.13/mlp").data, lines, monkeypatch)
