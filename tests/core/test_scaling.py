"""Readers take time linear in their input, whatever it is: four times as much, four times as long.

Each case is text that a backtracking pattern, or a search from each of many beginnings, would go
through again and again.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, AnyStr

import pytest

from artifacts import get
from rewriter.artifact import graph_kind, posted
from rewriter.artifact.kernel_sources import find_kernels
from rewriter.artifact.package import model
from rewriter.artifact.trace import page
from rewriter.artifact.types import Wrapper
from rewriter.comparison.artifacts import accounting
from rewriter.comparison.artifacts.buffer_facts import read_buffer_facts
from rewriter.core import edit, json_text, markers, pickle_values
from rewriter.core.source import Source
from rewriter.instrumentation.rebuild import recipe
from rewriter.locate import kernels, languages, provenance
from rewriter.locate.cpp import embedded, lexer
from rewriter.locate.cpp.grammar import load
from rewriter.locate.cpp.kernel_sources import defined
from rewriter.locate.cpp.outline import CppOutline
from rewriter.locate.guards import read_guards
from rewriter.locate.python import module
from rewriter.locate.python.syntax import TooDeepError
from rewriter.locate.types import Argument, EntryPoint, InsertionPoint, Launch
from rewriter.model_names.attribution import attribute
from rewriter.model_names.entries.reading import innermost
from rewriter.model_names.graph import parse, subgraphs
from rewriter.report.page import isolated

pytestmark = pytest.mark.properties

AOTI = get("cpu-torch2.13/mlp aoti").data
_COMMAND = b"\n// Compile cmd\n// "
_ROUNDS = 2
_RATIO = 6.0  # of four times the input; what is quadratic takes 16 times as long
_SLACK = 0.05  # seconds, of timers and of what is not in proportion to the input
_LIMIT = 100  # times what a million steps of Python take: some 5 seconds, on a slow machine 10


def _outline(data: bytes) -> object:
    found = CppOutline(
        Source("wrapper.cpp", data), embedded.extract(Source("wrapper.cpp", data)), load()
    )
    return found.bodies, found.header, found.cpp_kernels, found.launchers, found.triton_sources


def _page(data: bytes) -> object:
    path = Path("0_0_0/inductor_output_code_a_1.html")
    return page.read(path, b"<pre>" + data + b"</pre>")


def _behind(text: bytes) -> Callable[[int], bytes]:
    """A sound wrapper with so much of something behind it."""
    return lambda size: AOTI + b"\n" + text * (size // len(text))


def _times(text: AnyStr) -> Callable[[int], AnyStr]:
    return lambda size: text * (size // len(text))


def _python(data: bytes) -> object:
    return languages.recognise(".py", data), graph_kind.graph_of(data), markers.find_header(data)


def _pickle(data: bytes) -> object:
    try:
        return list(pickle_values.objects(pickle_values.read(data)))
    except pickle_values.PickleError:
        return None


def _graph(size: int, line: str = "", length: int = 0) -> str:
    """A graph of so many bytes: calls, each of the one before it; or a line, again and again."""
    head = 'class M(torch.nn.Module):\n    def forward(self, v: "f32[1]"):\n'
    if line:
        names = (line.replace("v =", f"v{i} =", 1) for i in range(length // len(line)))
        return head + "".join(names)
    lines = (
        f"        # File: m.py:{i} in f, code: x\n"
        f"    mm_{i} = torch.ops.aten.mm.default(mm_{i - 1}, v)\n"
        for i in range(size // 80)
    )
    return head + "".join(lines) + "    return (mm_1,)\n"


def _names(text: str) -> object:
    """The launches of a wrapper that computes the operators of a graph, one by one."""
    graph = parse(text)
    assert graph is not None
    point = InsertionPoint(0, 0, b"")
    argument = Argument("buf0", "buf0", "buf0", "inout", "tensor")
    launches = [
        Launch(i, "call", "extern_kernels.mm", "extern_out", 1, (argument,), (), (), point)
        for i in range(len(graph.nodes))
    ]
    uses = [graph.first_use(name) for name in graph.nodes]
    return attribute(launches, EntryPoint("call", 0, b"", ("v",)), graph), uses


def _refused(data: bytes) -> None:
    with pytest.raises(json_text.JsonError):
        json_text.parse(data)


def _too_deep(text: str) -> None:
    with pytest.raises(TooDeepError):
        module.read(text)


_HEADER = b"# Instrumented by inductor-rewriter 0.1.0 with print, original sha256 "
_TAGGED = _HEADER + b"0" * 64 + b"  # rewriter:00000000\nx = 1  # rewriter:00000000 begin\n"
CASES: dict[str, tuple[Callable[[Any], object], Callable[[int], Any], int]] = {
    # reader, input of a size, twice the smaller size
    "a command of spaces": (
        lambda text: model.recorded(text, "Compile"),
        lambda size: _COMMAND.decode() + "g++" + " " * size + "x",
        200_000,
    ),
    "many commands": (
        lambda text: model.recorded(text, "Compile"), _times("// Compile cmd\n// g++ x\n"), 100_000
    ),
    "definitions without end": (_outline, _behind(b"void run_impl( a b\n"), 8_000),
    "definitions with comments": (_outline, _behind(b"void run_impl( // a\n// b\n"), 8_000),
    "slashes in a definition": (
        _outline, lambda n: AOTI + b"\nvoid run_impl(" + b"//" * n, 8_000
    ),
    "numbers": (_outline, lambda n: AOTI + b"\nx = " + b"1." * n, 40_000),
    "entries": (_outline, _behind(b"void run_impl() {}\n"), 8_000),
    "functions without end": (_outline, _behind(b'extern "C" a('), 8_000),
    "a function of many words": (_outline, lambda n: AOTI + b'\nextern "C" ' + b"a " * n, 10_000),
    "bodies without end": (_outline, _behind(b'extern "C" void a() { b\n'), 8_000),
    "callers without end": (_outline, _behind(b"void call_a( "), 8_000),
    "raw strings without end": (_outline, _behind(b'x_source = R"TRITON('), 8_000),
    "Triton strings": (_outline, _behind(b"async_compile.triton('a','''"), 8_000),
    "spaces above the includes": (_outline, lambda n: b" " * n + b"\n" + AOTI, 100_000),
    "kernels without end": (defined, _times(b'extern "C" void kernel(a) {\n'), 200_000),
    "owners without end": (
        lambda data: find_kernels(Wrapper("wrapper.cpp", data, "cpp", Path("wrapper.cpp"))),
        _times(b"void call_a( "), 100_000,
    ),
    "a graph": (_names, _graph, 400_000),
    "views of views": (
        _names,
        lambda n: _graph(0, "    v = torch.ops.aten.view.default(v, [1])\n", n),
        400_000,
    ),
    "graphs in a graph": (
        subgraphs,
        _times("class a(torch.nn.Module):\n    def forward(self, "),
        400_000,
    ),
    "empty lines of a trace": (innermost, _times("\n"), 50_000),
    "frames of a trace": (innermost, _times('  File "a", line 1, in f'), 400_000),
    "a pickle": (_pickle, lambda n: b"\x80\x04" + b"](" * (n // 2), 400_000),
    "a condition": (
        lambda text: read_guards(text, ()),
        lambda n: " and ".join(["L['t0'] > 1"] * (n // 16)),
        60_000,
    ),
    "parameters": (kernels.cpp, lambda n: "void kernel(" + "a" * n + "!)", 200_000),
    "atomic parameters": (
        kernels.cpp, lambda n: f"void kernel({'float* a, ' * (n // 10)}b)", 40_000,
    ),
    "kernel names": (kernels.cpp, lambda n: "void a" + "_fused" * (n // 6), 200_000),
    "comments without end": (lexer.code, _times(b"/* "), 300_000),
    "literals without end": (lexer.code, _times(b'R"x('), 300_000),
    "quotes without end": (lexer.code, lambda n: b'"' + b'\\"' * n, 100_000),
    "uses of kernels": (recipe.defined, _times("cpp_fused_a (b, "), 200_000),
    "tags without end": (_page, _times(b"<"), 400_000),
    "entities": (_page, _times(b"&#"), 100_000),
    "blank lines": (_python, lambda n: b"\n" * n + b"torch._inductor", 200_000),
    "spaces in a line": (_python, lambda n: b"torch._inductor\n" + b" " * n + b"x", 200_000),
    "marks": (edit.strip, _times(_TAGGED), 400_000),
    "headers": (
        edit.strip, lambda n: _HEADER.replace(b"0.1.0", b"0.1.0 with " * (n // 11)), 200_000
    ),
    "escaped quotes": (
        lambda data: embedded.extract(Source("x.py", data)),
        lambda n: b"cpp_wrapper_src = '''" + b"\\'' " * (n // 4) + b"'''",
        20_000,
    ),
    "source nodes": (provenance.read, lambda n: [b"Source Nodes: [" * (n // 15)], 200_000),
    "views": (
        lambda line: read_buffer_facts([line]), lambda n: "a = " + "reinterpret_tensor" * (n // 18),
        100_000,
    ),
    "allocations": (
        lambda line: read_buffer_facts([line]), lambda n: "a" * n + " empty_strided", 100_000
    ),
    "shims": (
        lambda line: read_buffer_facts([line]),
        _times("aoti_torch_empty_strided(2, a, "), 100_000,
    ),
    "debug handles": (
        lambda line: accounting.line_keys([line], read_buffer_facts([]), {}),
        _times("[Provenance debug handles]"), 100_000,
    ),
    "spaces in the prefix of a log": (
        lambda line: list(posted._logged(line)), lambda n: b"V1127 1:1 1" + b" " * n, 40_000
    ),
    "sentences and fences in quotations": (
        lambda page: list(posted._blocks(page.splitlines(keepends=True), is_mixed=True)),
        lambda n: b"> It is so:\n>> x = 1\nSee ```\ny\n```\n" * n + b"> a" + b" b" * n + b" `",
        5_000,
    ),
    "clauses": (_too_deep, lambda n: "if a:\n  b\n" + "elif a:\n  b\n" * n, 10_000),
    "words in a page": (isolated, _times("a"), 100_000),
    "names in JSON": (
        _refused,
        lambda n: b"{" + b",".join(b'"%d":1' % i for i in range(n)) + b',"%d":2}' % (n - 1),
        20_000,
    ),
    "strings in JSON": (
        json_text.parse, lambda n: b'["' + b'\\"' * n + b'",' + b"[]," * n + b"1]", 40_000
    ),
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _what_was_there_before() -> None:
    """The collector need not look at it each time: many tests ran in this process."""
    gc.collect()
    gc.freeze()


def _seconds(read: Callable[[Any], object], given: Any) -> float:
    gc.collect()
    gc.disable()  # it looks at all objects every so often, whose number grows
    started = time.process_time()
    read(given)
    seconds = time.process_time() - started
    gc.enable()
    return seconds


@pytest.mark.parametrize("case", CASES)
def test_time_is_linear_in_the_input(case: str) -> None:
    read, make, size = CASES[case]
    small, large = make(size // 2), make(2 * size)
    read(make(size // 8))  # what is loaded once
    once = min(_seconds(read, small) for _ in range(_ROUNDS))
    four = _seconds(read, large)
    for _ in range(_ROUNDS):
        if four <= _RATIO * once + _SLACK:
            break
        four = min(four, _seconds(read, large))
        once = max(once, _seconds(read, small))
    assert four <= _RATIO * once + _SLACK
    assert four <= _LIMIT * max(_seconds(_counted, 1_000_000) for _ in range(_ROUNDS))


def _counted(steps: int) -> int:
    return sum(step * step for step in range(steps))
