"""Finds the sources of kernels in a C++ wrapper.

The wrapper defines `cpp_fused_*` functions, or leaves them to another file. Triton sources are
quoted in a comment of the kernel's `call_` function (AOTInductor), in a string named
`<kernel>_source` (since torch 2.12), or in the Python around the C++ (JIT; up to torch 2.11 in its
docstring, with the code that tuned them). See torch/_inductor/codegen/cpp_wrapper_gpu.py.
"""

from __future__ import annotations

import bisect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from rewriter.core.scan import spans
from rewriter.core.source import Source
from rewriter.locate.types import KernelSource

# `extern "C" void cpp_fused_relu_0(const float* in_ptr0, float* out_ptr0)`, declared or defined.
_FUNCTION = re.compile(rb'extern\s+"C"\s+(?:\w+\s+)*?(?P<name>\w+)\s*\(')
_CLOSED = re.compile(rb"\)")
_OPENED = re.compile(rb"\s*\{")
_FUNCTION_END = b"\n}"

_TRITON = re.compile(
    rb"async_compile\.triton\(\s*['\"](?P<name>\w+)['\"],\s*'''(?P<text>.*?)'''", re.DOTALL
)
# What names a quoted kernel: a variable, a string, or a function.
_VARIABLE = re.compile(rb"^(?P<name>\w+)\s*=\s*(?=async_compile\.triton\()", re.MULTILINE)
_STRING = re.compile(rb'\b(?P<name>\w+)_source\s*=\s*R"TRITON\(')
_STRING_END = re.compile(rb'\)TRITON"')
# `const char* mps_lib_0_source = (R"MTL(`, by torch/_inductor/codegen/mps.py.
_METAL = re.compile(rb'\b(?P<name>\w+)_source\s*=\s*\(?R"MTL\(')
_METAL_END = re.compile(rb'\)MTL"')
# `static inline void call_triton_poi_fused_0(const in_ptr0_type_& in_ptr0, …) {`
_LAUNCHER = re.compile(rb"\bvoid\s+call_(?P<name>\w+)\s*\(")
_LAUNCHER_BODY = re.compile(rb"\)\s*\{|(?P<stop>[{};])")

_Span = tuple[re.Match[bytes], re.Match[bytes]]


@dataclass(frozen=True)
class CFunction:
    """A function with C linkage. `start` and `end` are its bytes; `end` is -1 if it does not end.

    `body` is the text after its opening brace, without the closing one; empty for a declaration.
    """

    name: str
    parameters: str
    body: str
    start: int
    end: int

    @property
    def is_kernel(self) -> bool:
        """Whether its name is that of a kernel: other functions have C linkage, too."""
        return "_fused" in self.name or self.name == "kernel"


def c_functions(data: bytes) -> Iterator[CFunction]:
    """Yield the functions with C linkage that are declared or defined, in file order."""
    heads = list(spans(_FUNCTION, _CLOSED, data))
    limits = [*(head.start() for head, _ in heads[1:]), len(data)]
    for (head, closed), limit in zip(heads, limits, strict=False):
        body, end = "", -1
        if _OPENED.match(data, closed.end()):
            last = data.find(_FUNCTION_END, closed.end(), limit)
            body = _text(data[closed.end() : last if last >= 0 else limit])
            end = last + len(_FUNCTION_END) if last >= 0 else -1
        parameters = _text(data[head.end() : closed.start()])
        yield CFunction(head["name"].decode(), parameters, body, head.start(), end)


def kernels(source: Source) -> Iterator[KernelSource]:
    """Yield the kernels in file order; of two with one name, the first is the one launched."""
    yield from functions(source.data)
    yield from triton_kernels(source.data)
    yield from metal_kernels(source.data)


def defined(data: bytes) -> tuple[str, ...]:
    """The names of the C++ kernels that a file defines."""
    return tuple(kernel.name for kernel in functions(data))


def functions(data: bytes) -> Iterator[KernelSource]:
    """Yield the C++ kernels that are defined here."""
    for c_function in c_functions(data):
        if c_function.is_kernel and c_function.body and c_function.end >= 0:
            yield KernelSource(
                c_function.name,
                _text(data[c_function.start : c_function.end]),
                c_function.start,
                c_function.end,
            )


def triton_kernels(data: bytes) -> Iterator[KernelSource]:
    """Yield the quoted Triton kernels, under the names by which they are launched."""
    variables = {match.end(): match for match in _VARIABLE.finditer(data)}
    strings = list(spans(_STRING, _STRING_END, data))
    functions = launchers(data)
    for match in _TRITON.finditer(data):
        owner = variables.get(match.start())
        if owner is None and (above := _last_above(strings, match.start())):
            owner = above[0] if above[1].end() > match.start() else None
        if owner is None and (above := _last_above(functions, match.start())):
            owner = above[0]
        name = (owner or match)["name"].decode()
        yield KernelSource(name, textwrap.dedent(_text(match["text"])), *match.span("text"))


def metal_kernels(data: bytes) -> Iterator[KernelSource]:
    """Yield the quoted Metal kernels, by the names of their libraries."""
    for head, end in spans(_METAL, _METAL_END, data):
        span = head.end(), end.start()
        yield KernelSource(head["name"].decode(), _text(data[slice(*span)]), *span)


def launchers(data: bytes) -> list[_Span]:
    """The headers of the functions `call_<kernel>`, from their names to the opening braces."""
    return list(spans(_LAUNCHER, _LAUNCHER_BODY, data))


def _last_above(heads: list[_Span], offset: int) -> _Span | None:
    above = bisect.bisect_left(heads, offset, key=lambda span: span[0].start())
    return heads[above - 1] if above else None


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
