"""C++ as a language of wrappers: see `rewriter/locate/languages.py`.

AOTInductor writes C++ files; a JIT wrapper with `cpp_wrapper` has the C++ inside a Python file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePath

from rewriter.core.source import Source
from rewriter.core.types import Json
from rewriter.locate.cpp.recognition import EMBEDDED, ENTRY, JIT_ENTRY, SUFFIXES
from rewriter.locate.types import KernelSource, Located


def description(is_module: bool) -> str:
    return "a C++ wrapper in a Python file" if is_module else "a C++ wrapper of AOTInductor"


def recognises(suffix: str, data: bytes) -> bool:
    return bool((ENTRY if suffix in SUFFIXES else EMBEDDED).search(data))


def explain(source: Source) -> str:
    if JIT_ENTRY.search(source.data):
        return "it is what a Python file gave to the compiler: that is the wrapper"
    missing = "it has no AOTInductorModel::run_impl"
    if b"cpp_fused" in source.data or b"inductor/cpp_prefix.h" in source.data:
        return f"{missing}: the kernels of a wrapper, or a kernel file of the cache"
    return missing


def is_module(name: str, data: bytes) -> bool:
    return not name.endswith(SUFFIXES) and bool(EMBEDDED.search(data))


def operators_file(name: str) -> str:
    return PurePath(name).with_suffix(".json").name


def locate(source: Source, operators: Sequence[Json]) -> Located:
    if source.is_fragment:
        return Located((), (), (), 0)  # kernels alone
    from rewriter.locate.cpp.locate import locate

    return locate(source, operators)


def count(source: Source) -> int | None:
    from rewriter.locate.cpp.locate import count

    return count(source)


def kernels(source: Source) -> Iterable[KernelSource]:
    from rewriter.locate.cpp.kernel_sources import kernels

    by_name: dict[str, KernelSource] = {}
    for kernel in kernels(source):
        by_name.setdefault(kernel.name, kernel)
    return by_name.values()


def kernel_names(kernel: str) -> tuple[str, ...]:
    return (kernel, f"call_{kernel}", f"{kernel}_source", f"{kernel}_result")
