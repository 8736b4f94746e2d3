"""Finds the sources of kernels in a Python wrapper: strings that are passed to `async_compile`."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from rewriter.core.source import Source
from rewriter.locate.python.kernel_functions import is_jit
from rewriter.locate.python.module import Block, parse
from rewriter.locate.python.statements import positional
from rewriter.locate.types import KernelSource

# Torch 2.11 and before compile Metal without `async_compile`.
_COMPILED = ("async_compile.", "compile_mps_shader")


def kernels(source: Source) -> Iterator[KernelSource]:
    """Yield the kernels in file order; of two with one name, the last is the one launched."""
    module = parse(source)
    for block in module.body if source.is_fragment else ():
        if isinstance(block, Block) and is_jit(block):
            start, end = block.line.start, block.last.end
            yield KernelSource(block.name, source.data[start:end].decode(), start, end)
    for part in module.statements():
        match part.node:
            case cst.Assign(
                targets=[cst.AssignTarget(cst.Name() as target), *_], value=cst.Call() as call
            ) if part.callee(call).startswith(_COMPILED):
                # A name and a source. A multi-kernel has no source: it is a list of other kernels.
                text, inside = part.code(call), range(0)
                for given in positional(call):
                    source_text = part.string(given) or ""
                    if isinstance(given, cst.SimpleString) and "\n" in source_text:
                        start, end = part.span(given)
                        text = source_text
                        inside = range(source.line_of(start) + 1, source.line_of(end - 1))
                line = part.line
                yield KernelSource(part.name(target), text, line.start, line.end, inside)
