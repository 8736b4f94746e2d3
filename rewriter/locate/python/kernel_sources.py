"""Finds the sources of kernels in a Python wrapper: strings that are passed to `async_compile`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rewriter.core.source import Source
from rewriter.locate.python.outline import callee, parse
from rewriter.locate.types import KernelSource

# Torch 2.11 and before compile Metal without `async_compile`.
_COMPILED = ("async_compile.", "compile_mps_shader")


def kernels(source: Source) -> Iterator[KernelSource]:
    """Yield the kernels in file order; of two with one name, the last is the one launched."""
    for node in parse(source, divided=True).body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(target := node.targets[0], ast.Name)
            and isinstance(call := node.value, ast.Call)
            and callee(call).startswith(_COMPILED)
        ):
            # A name and a source. A multi-kernel has no source: it is a list of other kernels.
            inside, text = range(0), source.text_of(call)
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
