"""The sources of the kernels that a wrapper launches, and where they stand in it.

Python wrappers hold them as strings given to `async_compile`. C++ wrappers define `cpp_fused_*`
functions, or leave them to another file, and quote Triton sources: in a comment of the kernel's
`call_` function (AOTInductor), in a string named `<kernel>_source` (since torch 2.12), or in the
Python around the C++ (just in time). See torch/_inductor/codegen/cpp_wrapper_gpu.py.
"""

from __future__ import annotations

import ast
import bisect
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rewriter.artifact.opening import OpenWrapper
from rewriter.core.scan import spans
from rewriter.core.source import Source

_COMPILED = "async_compile."
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


@dataclass(frozen=True)
class KernelSource:
    """A kernel by the name under which it is launched, its source, and where that stands.

    `start` and `end` are bytes of the plain wrapper; both 0 for a kernel of another file. `inside`
    are lines of it, from 1, that are the source and no more: not the call that the source is given
    to. It is empty where nothing can be told apart.
    """

    name: str
    text: str
    start: int = 0
    end: int = 0
    inside: range = range(0)


def kernel_sources(
    wrapper: OpenWrapper, extra: Mapping[str, bytes] | None = None
) -> dict[str, str]:
    """The source of each kernel, by the name under which it is launched.

    `extra` are further C++ files that belong to the wrapper, as in a package, by their names.
    Raises `RewriterError` where a Python wrapper does not parse.
    """
    return {kernel.name: kernel.text for kernel in find_kernels(wrapper, extra)}


def find_kernels(
    wrapper: OpenWrapper, extra: Mapping[str, bytes] | None = None
) -> tuple[KernelSource, ...]:
    """As `kernel_sources`, with the places; each name once, those of the wrapper first.

    Of two definitions in Python the last one is what is launched.
    """
    found: dict[str, KernelSource] = {}
    in_wrapper = _in_python if wrapper.language == "python" else _in_cpp
    for kernel in in_wrapper(wrapper.plain):
        if wrapper.language == "python" or kernel.name not in found:
            found[kernel.name] = kernel
    for data in (extra or {}).values():
        for kernel in _functions(data):
            found.setdefault(kernel.name, KernelSource(kernel.name, kernel.text))
    return tuple(found.values())


def _in_python(source: Source) -> Iterator[KernelSource]:
    from rewriter.locate.python.outline import callee, parse

    for node in parse(source).body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(target := node.targets[0], ast.Name)
            and isinstance(call := node.value, ast.Call)
            and callee(call).startswith(_COMPILED)
        ):
            # The kernel's name and its source; a multi-kernel is a list of other kernels.
            inside, text = range(0), source.call_text(call)
            for given in call.args:
                if (
                    isinstance(given, ast.Constant)
                    and isinstance(given.value, str)
                    and "\n" in given.value
                ):
                    text = given.value
                    inside = range(given.lineno + 1, given.end_lineno or 0)
            yield KernelSource(
                target.id,
                text,
                source.line_start(node.lineno),
                source.line_end(node.end_lineno or node.lineno),
                inside,
            )


def _in_cpp(source: Source) -> Iterator[KernelSource]:
    yield from _functions(source.data)
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
    return tuple(kernel.name for kernel in _functions(data))


def _functions(data: bytes) -> Iterator[KernelSource]:
    """The C++ kernels that are defined here; other functions of C linkage are no kernels."""
    for head, tail in spans(_FUNCTION, _FUNCTION_END, data):
        name = head["name"].decode()
        if "_fused" in name or name == "kernel":
            start, end = head.start(), tail.end()
            yield KernelSource(name, data[start:end].decode("utf-8", "replace"), start, end)
