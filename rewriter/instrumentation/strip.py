"""Removes the probes of a wrapper. Nothing is written: the result holds the source."""

from __future__ import annotations

from pathlib import Path

from rewriter.artifact.types import Artifact, Wrapper
from rewriter.instrumentation.editable import only_wrapper, require_header
from rewriter.instrumentation.types import Stripped


def strip(artifact: str | Path | Artifact) -> Stripped:
    """Remove the probes. A plain wrapper is returned as it is, with `removed == 0`."""
    return strip_wrapper(only_wrapper(artifact))


def strip_wrapper(wrapper: Wrapper) -> Stripped:
    """As `strip`, for one wrapper of an artifact."""
    require_header(wrapper)
    if wrapper.probes is None:
        # Without probes, require a sound wrapper. One with probes is restored whatever its state.
        _ = wrapper.located
    restored = wrapper.restored
    return Stripped(wrapper.path, restored.source, wrapper.source, wrapper.removed, restored.exact)
