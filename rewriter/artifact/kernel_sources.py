"""Finds the sources of the kernels that a wrapper launches, in it and in the files beside it."""

from __future__ import annotations

from collections.abc import Mapping

from rewriter.artifact.types import Wrapper
from rewriter.locate.cpp.kernel_sources import functions
from rewriter.locate.languages import language
from rewriter.locate.types import KernelSource


def kernel_sources(wrapper: Wrapper, extra: Mapping[str, bytes] | None = None) -> dict[str, str]:
    """The source of each kernel, by the name under which it is launched.

    `extra` are further C++ files that belong to the wrapper, by name, as in a package. Raises
    `RewriterError` if a Python wrapper does not parse.
    """
    return {kernel.name: kernel.text for kernel in find_kernels(wrapper, extra)}


def find_kernels(
    wrapper: Wrapper, extra: Mapping[str, bytes] | None = None
) -> tuple[KernelSource, ...]:
    """As `kernel_sources`, with places; each name once, those in the wrapper first.

    Of two definitions in Python, the last one is launched.
    """
    kernels = language(wrapper.language).kernels(wrapper.plain)
    by_name = {kernel.name: kernel for kernel in kernels}
    for data in (extra or {}).values():
        for kernel in functions(data):
            by_name.setdefault(kernel.name, KernelSource(kernel.name, kernel.text))
    return tuple(by_name.values())
