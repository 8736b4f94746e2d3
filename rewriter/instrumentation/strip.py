"""Takes the probes out of a wrapper again. Nothing is written: the result holds the source."""

from __future__ import annotations

from pathlib import Path

from rewriter.artifact.types import Artifact, OpenWrapper
from rewriter.instrumentation.editable import only_wrapper, require_header
from rewriter.instrumentation.types import Stripped


def strip(artifact: str | Path | Artifact) -> Stripped:
    """Take the probes out again. A plain wrapper comes back as it is, with `removed == 0`."""
    return strip_wrapper(only_wrapper(artifact))


def strip_wrapper(wrapper: OpenWrapper) -> Stripped:
    """Take the probes out of one wrapper of an artifact; as `strip`."""
    require_header(wrapper)
    if wrapper.probes is None:
        # Nothing to take out, so this had better be a sound wrapper. What carries probes is
        # restored in whatever state it is.
        _ = wrapper.located
    restored = wrapper.restored
    return Stripped(wrapper.path, restored.source, wrapper.source, wrapper.removed, restored.exact)
