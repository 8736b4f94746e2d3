"""Finds kernels that a wrapper defines and never launches.

Inductor launches every kernel that it defines, except for the choices of a multi-kernel. So if a
kernel has no launch, the launch is missing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from rewriter.artifact.kernel_sources import find_kernels
from rewriter.artifact.types import OpenWrapper
from rewriter.core.errors import RewriterError
from rewriter.core.labels import beginning
from rewriter.diagnosis.findings import BY_TEXT, Finding
from rewriter.diagnosis.ruling import Examined
from rewriter.locate.types import KernelSource, Launch

# `async_compile.multi_kernel('multi_kernel_0', [` and its kernels, a line each.
_CHOICES = re.compile(rb"multi_kernel\([^\]]*\]")


def examine_kernels(
    wrapper: OpenWrapper, *, run: str = "", readers: Sequence[int] = ()
) -> Examined:
    """Findings for the kernels of a wrapper that no launch runs. `readers` are launches that read
    unwritten memory: the missing launch belongs before the first of them."""
    try:
        kernels = find_kernels(wrapper)
    except RewriterError:  # locating launches does not need the kernels
        return Examined()
    launched = {launch.kernel for launch in wrapper.located.launches}
    # Unrecognised calls may launch any kernel, and a multi-kernel launches one of its choices.
    unknown = b"\n".join(_CHOICES.findall(wrapper.plain.data)).decode("utf-8", "replace")
    unknown += " ".join(call.text for call in wrapper.unrecognised)
    idle = (x for x in kernels if x.name not in launched and not _is_chosen(x, kernels, unknown))
    if found := tuple(_finding(wrapper, kernel, kernels, run, readers) for kernel in idle):
        return Examined(found)
    known = "its kernel" if len(kernels) == 1 else f"each of {len(kernels)} kernels"
    return Examined(ruled_out=f"a missing launch of a kernel: {known} is launched" * bool(kernels))


def _is_chosen(kernel: KernelSource, kernels: Sequence[KernelSource], unknown: str) -> bool:
    """Whether another kernel, a multi-kernel, or an unrecognised call names it."""
    name = re.compile(rf"\b{re.escape(kernel.name)}\b")
    others = (one.text for one in kernels if one.name != kernel.name)
    return bool(name.search(unknown)) or any(name.search(text) for text in others)


def _finding(
    wrapper: OpenWrapper,
    kernel: KernelSource,
    kernels: Sequence[KernelSource],
    run: str,
    readers: Sequence[int],
) -> Finding:
    line = wrapper.plain.data.count(b"\n", 0, kernel.start) + 1 if kernel.end else 0
    before = _launched_before(kernel, kernels, wrapper.located.launches)
    at = 0 if before is None else before.index + 1
    where = f", behind launch #{before.index} {before.kernel}" if before is not None else ""
    if known := [one for one in readers if one >= at]:
        at = min(known)
        where = f", before launch #{at}"
    what = (
        f"the kernel {kernel.name} is defined (line {line} of {beginning(wrapper.path.name)}), and "
        f"no launch runs it: its launch is missing{where}"
    )
    facts: dict[str, Any] = {"launch": at, "kernel": kernel.name, "line": line, "whole": True}
    return Finding("missing", what, BY_TEXT, artifact=wrapper.path.name, run=run, **facts)


def _launched_before(
    kernel: KernelSource, kernels: Sequence[KernelSource], launches: Sequence[Launch]
) -> Launch | None:
    """The last launch of a kernel that is defined earlier: kernels are defined in launch order."""
    above = {one.name for one in kernels if one.start < kernel.start}
    below = {one.name for one in kernels if one.start > kernel.start}
    first = next((one.index for one in launches if one.kernel in below), len(launches))
    found = [one for one in launches if one.kernel in above and one.index < first]
    return found[-1] if found else None
