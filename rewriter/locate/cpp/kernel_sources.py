"""The sources of kernels in a C++ wrapper.

It defines `cpp_fused_*` functions, or leaves them to another file, and quotes Triton sources: in a
comment of the kernel's `call_` function (AOTInductor), in a string named `<kernel>_source` (since
torch 2.12), or in the Python around the C++ (just in time). See
torch/_inductor/codegen/cpp_wrapper_gpu.py.
"""

from __future__ import annotations

import bisect
import re
import textwrap
from collections.abc import Iterator

from rewriter.core.scan import spans
from rewriter.core.source import Source
from rewriter.locate.types import KernelSource

_FUNCTION = re.compile(rb'extern\s+"C"\s+(?:\w+\s+)*?(?P<name>\w+)\s*\([^(){};]*\)\s*\{')
_FUNCTION_END = re.compile(rb"^\}", re.MULTILINE)
# Launched by its own name, by that of the function around it, or of the string that quotes it.
_TRITON = re.compile(
    rb"async_compile\.triton\(\s*['\"](?P<name>\w+)['\"],\s*'''(?P<text>.*?)'''", re.DOTALL
)
_OWNER = re.compile(
    rb'\b(?P<string>\w+)_source\s*=\s*R"TRITON\('
    rb"|^(?P<variable>\w+)\s*=\s*(?=async_compile\.triton\()",
    re.MULTILINE,
)
_CALLER = re.compile(rb"\bvoid\s+call_(?P<caller>\w+)\s*\(")
_CALLER_BODY = re.compile(rb"\)\s*\{|(?P<stop>[{};])")


def kernels(source: Source) -> Iterator[KernelSource]:
    """The kernels in the order of the file; of two with one name the first is what is launched."""
    yield from functions(source.data)
    owners = [*_OWNER.finditer(source.data)]
    owners += [head for head, _ in spans(_CALLER, _CALLER_BODY, source.data)]
    owners.sort(key=lambda owner: owner.start())
    starts = [owner.start() for owner in owners]
    for match in _TRITON.finditer(source.data):
        above = bisect.bisect_right(starts, match.start()) - 1
        owner = owners[above] if above >= 0 else None
        name = (owner and owner[owner.lastgroup or 0]) or match["name"]
        text = textwrap.dedent(match["text"].decode("utf-8", "replace"))
        yield KernelSource(name.decode(), text, *match.span("text"))


def defined(data: bytes) -> tuple[str, ...]:
    """The names of the C++ kernels that a file defines."""
    return tuple(kernel.name for kernel in functions(data))


def functions(data: bytes) -> Iterator[KernelSource]:
    """The C++ kernels that are defined here; other functions of C linkage are no kernels."""
    for head, tail in spans(_FUNCTION, _FUNCTION_END, data):
        name = head["name"].decode()
        if "_fused" in name or name == "kernel":
            start, end = head.start(), tail.end()
            yield KernelSource(name, data[start:end].decode("utf-8", "replace"), start, end)
