"""What wrappers of a cache are called in the model: traced by the run that compiles them.

`TORCH_TRACE` changes neither the keys of the cache nor a byte of the wrappers (measured with torch
2.13; INDUCTOR_PROVENANCE and TORCH_COMPILE_DEBUG change both, and are left alone).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from rewriter.artifact.naming import trace
from rewriter.artifact.naming.names import of_wrapper
from rewriter.artifact.naming.trace import CompilationTrace
from rewriter.cache.mutate import Placed
from rewriter.core.errors import RewriterError
from rewriter.dump import names as dumped

_VARIABLE = "TORCH_TRACE"


def environment(folder: Path) -> dict[str, str]:
    """What makes a program trace its compilations, unless its user has it do so already."""
    return {} if os.environ.get(_VARIABLE) else {_VARIABLE: str(folder)}


def write(dump: Path, placed: Iterable[Placed], folder: Path) -> None:
    """Add to a dump what the logs in a folder say of the wrappers. Raises `OSError`."""
    traces: dict[str, CompilationTrace] = {}
    for log in sorted(folder.glob("*.log")):
        traces |= trace.read(log)
    names = {}
    for one in placed:
        wrapper = one.slot.wrapper
        key = trace.digest(wrapper.restored.source)
        if (about := traces.get(key)) is None:
            continue
        try:
            names_of_wrapper = of_wrapper(wrapper.located, about)
        except RewriterError:
            continue  # it was instrumented before, and cannot be located as it is
        if names_of_wrapper.nodes or names_of_wrapper.inputs:
            names[key] = names_of_wrapper
    if names:
        dumped.write(dump, names)
