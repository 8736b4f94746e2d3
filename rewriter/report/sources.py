"""Finds the sources of the kernels that a run launched: those of the wrapper that it called.

Two wrappers of one program may both have a `cpp_fused_log_0`, so that a name says nothing without
its wrapper.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rewriter.core.errors import RewriterError
from rewriter.dump.reading import RunDump
from rewriter.execution.dumped_wrappers import copy_of, plain_hash, wrapper_of
from rewriter.report.types import Sources


def of_artifact(path: str | Path) -> Sources:
    """The sources in an artifact, which may have several wrappers. A run has those of the wrapper
    with its hash, or else its name; if there is only one wrapper, of that.

    Raises `RewriterError` if it is no artifact.
    """
    from rewriter.artifact.kernel_sources import kernel_sources
    from rewriter.artifact.opening import open_artifact

    wrappers = open_artifact(path).wrappers
    kernels = [kernel_sources(wrapper) for wrapper in wrappers]
    hashes = {
        plain_hash(wrapper.source): found for wrapper, found in zip(wrappers, kernels, strict=True)
    }
    names = {wrapper.path.name: found for wrapper, found in zip(wrappers, kernels, strict=True)}
    if len(names) < len(wrappers):
        names = {}  # two have one name: only the hash tells
    default = kernels[0] if len(kernels) == 1 else {}

    def find(run: RunDump) -> Mapping[str, str]:
        return hashes.get(run.sha256) or names.get(Path(run.artifact).name) or default

    return find


def of_dump() -> Sources:
    """The sources in the copies of wrappers that dumps hold; a run without a copy has none."""
    from rewriter.artifact.kernel_sources import kernel_sources

    known: dict[Path, Mapping[str, str]] = {}

    def find(run: RunDump) -> Mapping[str, str]:
        path = copy_of(run)
        if path is None:
            return {}
        if path not in known:
            try:
                wrapper = wrapper_of(run)
                known[path] = {} if wrapper is None else kernel_sources(wrapper)
            except RewriterError:
                known[path] = {}  # a report does without: what ran is in the events
        return known[path]

    return find
