"""`strip(instrument(x)) == x`, byte for byte, on C++ wrappers that are laid out otherwise."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

import rewriter
import text_changes
from artifacts import CPP_FIXTURES, get
from examples import examples
from rewriter.artifact.types import Artifact, Wrapper
from rewriter.cli import main
from rewriter.core import markers
from rewriter.core.errors import RewriterError
from rewriter.core.source import Source
from rewriter.instrumentation.types import Instrumented
from rewriter.locate.cpp import embedded
from sampling import sampled
from text_changes import (
    PROBES,
    TEXTS,
    Change,
    Language,
    byte_order_mark,
    check_restored,
    crlf,
    insert,
    lone_cr,
    no_final_newline,
)

pytestmark = pytest.mark.properties

# Just in time, C++ of its own, arrays for tensors, a string that is not raw.
SMALL = {
    name: get(name).data
    for name in (
        "cpu-torch2.13/cond cpp_wrapper",
        "cpu-torch2.15/customop cpp_wrapper",
        "cpu-torch2.6/mlp cpp_wrapper",
        "cpu-torch2.13/while_loop aoti",
        "cpu-torch2.13/float8 aoti-arrayref",
    )
}


@lru_cache(maxsize=64)
def opened(data: bytes) -> Artifact:
    """An artifact that is not in a file, located once."""
    path = Path("output_code.py" if b"cpp_wrapper_src" in data else "model.wrapper.cpp")
    return Artifact(path, (Wrapper(path.name, data, "cpp", path),))


def instrumented(data: bytes, probes: str = "print", **options: Any) -> Instrumented:
    return rewriter.instrument(opened(data), rewriter.select(probes, **options))


def check(data: bytes, result: Instrumented) -> None:
    """Everything that is promised of an instrumented file."""
    check_restored(opened, data, result)
    again, plain = opened(result.source), opened(data)
    assert [one.args for one in again.launches] == [one.args for one in plain.launches]


# --- Text that is laid out otherwise ------------------------------------------------------------


def body_lines(data: bytes) -> list[int]:
    """Where the lines start on which a launch does, or a statement at the depth of one."""
    source = Source("wrapper", data)
    found = set()
    for launch in opened(data).launches:
        found |= {launch.insertion_point.start, launch.insertion_point.end}
    return sorted(offset for offset in found if source.line_of(offset) > 1)


COMMENTS = [
    *(b"//" + text for text in TEXTS),
    b"// rewriter:0123abcd begin",
    b"// rewriter:0123abcd end",
    b"// What the probes need:  // rewriter:0123abcd begin",
    b"/* _rw.before(0);  // rewriter:0123abcd */",
    b'// } { ( R"(',
]
NEW_NAMES = ["_rw", "_rw_", "tmp9", "inductor_rewriter", "x" * 300]
CPP = Language(opened, instrumented, check, body_lines, COMMENTS, NEW_NAMES)


def raw_string(data: bytes, draw: st.DataObject) -> bytes:
    """Lines that look like ours, in a string of the wrapper."""
    text = draw.draw(st.sampled_from([one for one in COMMENTS if b"rewriter:" in one]))
    return CPP.inserted(
        data, draw, b'    auto quoted = R"(\n' + text + b"\nint x;\n" + text + b'\n)";\n'
    )


def block_like(data: bytes, draw: st.DataObject) -> bytes:
    """A whole block of another file's, quoted in this one."""
    other = instrumented(SMALL["cpu-torch2.13/while_loop aoti"], "names").source
    tag = markers.find_header(other)
    assert tag is not None
    block = (
        b"    // x  // rewriter:%s begin\n    int unused = 0;\n    // y  // rewriter:%s end\n"
        % (tag.tag.encode(), tag.tag.encode())
    )
    return CPP.inserted(data, draw, block)


def mixed_ends(data: bytes, draw: st.DataObject) -> bytes:
    random = draw.draw(st.randoms(use_true_random=False))
    return re.sub(rb"\r\n|\n", lambda _: random.choice([b"\r\n", b"\n"]), data)


def tabs(data: bytes, draw: st.DataObject) -> bytes:
    return tabbed(data)


def tabbed(data: bytes) -> bytes:
    """`data` with tabs for every four spaces of indentation in the C++."""
    text = embedded.extract(Source("wrapper", data))
    end = text.position(len(text.data))
    inner = re.sub(
        rb"^(?:    )+",
        lambda m: b"\t" * (len(m[0]) // 4),
        data[text.start : end],
        flags=re.MULTILINE,
    )
    return data[: text.start] + inner + data[end:]


def no_includes(data: bytes, draw: st.DataObject) -> bytes:
    """The header has no includes to stand behind."""
    return re.sub(rb"^#include[^\n]*\n", b"", data, flags=re.MULTILINE)


def comment_at_the_top(data: bytes, draw: st.DataObject) -> bytes:
    text = embedded.extract(Source("wrapper", data))
    at = text.start if text.start else (3 if data.startswith(b"\xef\xbb\xbf") else 0)
    lines = draw.draw(
        st.sampled_from([b"\n// a comment\n", b"\n/* more\nof one */\n", b"\n\n\n#pragma once\n"])
    )
    return insert(data, at, lines)


CHANGES: list[Change] = [
    CPP.comment, CPP.trailing_comment, raw_string, CPP.header_like, block_like, CPP.blank_lines,
    CPP.trailing_space, crlf, lone_cr, mixed_ends, tabs, byte_order_mark, no_final_newline,
    no_includes, CPP.renamed, comment_at_the_top,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@examples(6)
def test_each_change(change: Change, draw: st.DataObject) -> None:
    data = change(SMALL[draw.draw(st.sampled_from(sorted(SMALL)))], draw)
    probes = draw.draw(st.sampled_from(PROBES))
    when = draw.draw(st.sampled_from([None, "before", "after", "both"]))
    style = draw.draw(st.sampled_from(["text", "upstream"]))
    done = CPP.attempt(data, probes, when=when, format=style)
    # A file that was only laid out otherwise is no reason to refuse. To C++ a carriage return
    # alone ends no line: everything behind the first `//` is a comment.
    assert done or change in (CPP.header_like, lone_cr)


@examples(30)
def test_several_changes(draw: st.DataObject) -> None:
    data = SMALL[draw.draw(st.sampled_from(sorted(SMALL)))]
    changes = draw.draw(st.lists(st.sampled_from(CHANGES), min_size=2, max_size=4))
    CPP.several(data, changes, draw)


@examples(25)
def test_any_selection(draw: st.DataObject) -> None:
    fixture = draw.draw(st.sampled_from(CPP_FIXTURES))
    launches = opened(fixture.data).launches
    options: dict[str, Any] = {
        "when": draw.draw(st.sampled_from([None, "before", "after", "both"])),
        "format": draw.draw(st.sampled_from(["text", "upstream"])),
        "values": draw.draw(st.booleans()),
    }
    if draw.draw(st.booleans()):
        indices = st.integers(0, len(launches) - 1)
        options["launches"] = draw.draw(st.lists(indices, min_size=1, max_size=3))
    elif draw.draw(st.booleans()):
        options["kernels"] = [draw.draw(st.sampled_from(launches)).kernel[:12] + "*"]
    result = instrumented(fixture.data, draw.draw(st.sampled_from(PROBES)), **options)
    assert rewriter.strip(opened(result.source)).source == fixture.data


# --- Files that somebody edited -----------------------------------------------------------------


def marked(source: bytes, what: bytes) -> list[bytes]:
    return [line for line in markers.lines(source) if line.rstrip().endswith(what)]


@pytest.mark.parametrize("lost", [b" begin", b" end"])
@pytest.mark.parametrize("name", SMALL)
def test_a_block_that_lost_a_mark_costs_no_text(name: str, lost: bytes) -> None:
    """Nobody knows how far it went: what is left of it stays, and so does everything else."""
    data = SMALL[name]
    source = instrumented(data, "names").source
    (line,) = marked(source, lost)
    stripped = rewriter.strip(opened(source.replace(line, b"")))
    assert not stripped.exact
    # What was there is there still, in its order; the runtime is what is left over.
    lines = iter(markers.lines(stripped.source))
    assert all(line in lines for line in markers.lines(data))
    assert lost == b" begin" or b"rewriter:" not in stripped.source


@pytest.mark.parametrize("name", SMALL)
def test_what_somebody_wrote_outside_the_block_stays(name: str) -> None:
    data = SMALL[name]
    source = instrumented(data, "names,save", when="both").source
    (end,) = marked(source, b" end")
    mine = b"// my own line\n"
    for at in (0, source.index(end) + len(end), source.rindex(b"_rw"), len(source)):
        at = source.rfind(b"\n", 0, at) + 1
        stripped = rewriter.strip(opened(insert(source, at, mine)))
        assert not stripped.exact
        assert stripped.source.count(mine) == 1
        assert stripped.source.replace(mine, b"") == data


@examples(25)
def test_any_line_that_is_deleted(draw: st.DataObject) -> None:
    """Of the user's text nothing goes but what was deleted, and it is said that it is not all."""
    data = SMALL[draw.draw(st.sampled_from(sorted(SMALL)))]
    lines = markers.lines(instrumented(data, "names", when="both").source)
    tag = markers.find_header(b"".join(lines))
    assert tag is not None
    ours = [n for n, line in enumerate(lines) if b"rewriter:" + tag.tag.encode() in line]
    some = st.one_of(st.integers(0, len(lines) - 1), st.sampled_from(ours))
    gone = draw.draw(some)
    left = [line for number, line in enumerate(lines) if number != gone]
    wrapper = opened(b"".join(left))
    if lines[gone].startswith(b"// Instrumented"):
        # Without its header nobody knows which lines are ours: it is no plain file, and refused.
        with pytest.raises(RewriterError) as caught:
            rewriter.strip(wrapper)
        assert caught.value.slug == "edited-since"
        return
    stripped = rewriter.strip(wrapper)
    assert stripped.exact == (stripped.source == data)
    found = iter(markers.lines(stripped.source))
    missing = [line for line in markers.lines(data) if line not in found]
    if lines[gone] in markers.lines(data):
        assert stripped.source.count(b"\n") >= data.count(b"\n") - 1
    else:
        assert missing == []


def test_a_mark_that_is_in_the_file_is_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["// rewriter:{}" + kind for kind in ("", " begin", " end", " +newline")]
    CPP.check_mark(SMALL["cpu-torch2.13/while_loop aoti"], lines, monkeypatch)


def test_a_quoted_header_is_refused_or_restored() -> None:
    data = SMALL["cpu-torch2.13/while_loop aoti"]
    quoted = CPP.check_quoted_header(SMALL["cpu-torch2.13/float8 aoti-arrayref"], data)
    # Anywhere else it is text.
    assert CPP.attempt(b"  " + quoted + b"\n" + data, "print")


# --- Through files and the command line ---------------------------------------------------------

FILES = {**text_changes.FILES, "tabs": tabbed}


@pytest.mark.parametrize(
    ("layout", "name"),
    sampled(list(FILES), ["cpu-torch2.13/cond cpp_wrapper", "cpu-torch2.13/while_loop aoti"]),
)
def test_command_line(
    name: str, layout: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = FILES[layout](SMALL[name])
    suffix = get(name).path.suffix
    plain, probed, back = (tmp_path / f"{stem}{suffix}" for stem in ("plain", "probed", "back"))
    plain.write_bytes(data)
    options = ["--probe", "names,print,save", "--when", "both"]
    assert main(["instrument", str(plain), *options, "-o", str(probed)]) == 0
    if layout == "CRLF":
        assert b"\n" not in probed.read_bytes().replace(b"\r\n", b"")
    assert main(["instrument", str(probed), "--replace", *options, "--in-place"]) == 0
    assert main(["strip", str(probed), "-o", str(back)]) == 0
    assert back.read_bytes() == data
    assert main(["instrument", str(plain), "--in-place"]) == 0
    assert main(["strip", str(plain), "--in-place"]) == 0
    assert plain.read_bytes() == data
    assert main(["instrument", str(plain), "--diff"]) == 0
    difference = capsys.readouterr().out
    call = r"^\+\s+inductor_rewriter::Call _rw\(inductor_rewriter::wrapper\);"
    assert re.search(call, difference, re.MULTILINE)
    assert not re.search(r"^-(?!--)", difference, re.MULTILINE)
