"""Python as a language of wrappers: see `rewriter/locate/languages.py`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rewriter.core.source import Source
from rewriter.core.types import Json
from rewriter.locate.types import KernelSource, Located

SUFFIXES = (".py",)
_ENTRY = re.compile(rb"(?:^|\r)(?:[ \t\f]*(?:async[ \t]+)?def call\(|call[ \t]*=)", re.MULTILINE)
_INDUCTOR = b"torch._inductor"
# In a file that Inductor writes to measure one kernel: `call` gives it all that `get_args` makes.
_MEASURES = b".run(*args, stream="


def description(is_module: bool) -> str:
    return "a Python wrapper"


def recognises(suffix: str, data: bytes) -> bool:
    return _INDUCTOR in data and bool(_ENTRY.search(data)) and not _is_of_kernel(data)


def explain(source: Source) -> str:
    from rewriter.locate.python.module import parse

    parse(source)  # if the file does not parse, the error with the line is the better answer
    if _is_of_kernel(source.data):
        return "it holds one kernel, and no wrapper that launches it: a kernel file of the cache"
    if _INDUCTOR in source.data:
        return "it has no function `call`; the file may be truncated"
    return "nothing in it comes from torch._inductor"


def _is_of_kernel(data: bytes) -> bool:
    """Whether a file has the source of a kernel itself; wrappers have it in strings."""
    is_kernel = b"@triton.jit" in data and b"async_compile." not in data
    return is_kernel and (_MEASURES in data or not _ENTRY.search(data))


def is_module(name: str, data: bytes) -> bool:
    return True


def operators_file(name: str) -> str:
    return ""


def locate(source: Source, operators: Sequence[Json]) -> Located:
    if source.is_fragment and _MEASURES in source.data:
        return Located((), (), (), 0)  # a kernel alone
    from rewriter.locate.python.locate import locate

    return locate(source)


def count(source: Source) -> int | None:
    return None  # not needed if the result parses: lines are only inserted between statements


def kernels(source: Source) -> Iterable[KernelSource]:
    from rewriter.locate.python.kernel_sources import kernels

    return {kernel.name: kernel for kernel in kernels(source)}.values()


def kernel_names(kernel: str) -> tuple[str, ...]:
    return (kernel,)
