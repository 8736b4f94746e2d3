"""Finds the copy of the wrapper that a recorded run called, in its dump.

`rewriter run` puts a copy of each called wrapper, with or without its probes, beside the manifest.
Names of wrappers are not unique, so the copy without probes must have the hash that the run
recorded. Dumps of early versions have no hash, and the name has to match.
Nothing is executed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from functools import lru_cache
from pathlib import Path

from rewriter.artifact.opening import open_artifact
from rewriter.artifact.types import Wrapper
from rewriter.artifact.wrapper_file import read_wrapper
from rewriter.core import markers
from rewriter.core.errors import RewriterError
from rewriter.dump.dataflow import Flow
from rewriter.dump.document_files import MANIFEST
from rewriter.dump.reading import RunDump
from rewriter.instrumentation import options_line
from rewriter.instrumentation.types import Selection

_KEPT = 64  # wrappers in memory


def copy_of(run: RunDump) -> Path | None:
    """The file of the wrapper that was called, `None` if the dump has no copy."""
    root = run.path.absolute().parents[1]
    name = Path(run.artifact).name
    if not name or name == MANIFEST:
        return None
    try:
        path = root / name
        if not (path.is_file() and (root / MANIFEST).is_file()):
            return None
        return path if run.sha256 in ("", _hash(path, path.stat().st_mtime_ns)) else None
    except (OSError, ValueError):  # a name that no file can have
        return None


def wrapper_of(run: RunDump) -> Wrapper | None:
    """The wrapper that was called, `None` if the dump has no copy that can be read."""
    path = copy_of(run)
    return None if path is None else _open(path, path.stat().st_mtime_ns)


def plain_wrapper_of(run: RunDump) -> Wrapper:
    """The wrapper that was called, without its probes.

    Raises `RewriterError` if the dump has no copy of it.
    """
    copy = copy_of(run)
    opened = None if copy is None else read_wrapper(copy, copy.name, copy.read_bytes())
    if copy is None or opened is None:
        raise RewriterError(
            "no-wrapper-source",
            f"{run.path}: the dump holds no copy of the wrapper as it was called, {run.artifact}",
            hint="Dumps of `rewriter run` have one; record the call once more.",
        )
    plain = opened.restored.source
    if run.sha256 and hashlib.sha256(plain).hexdigest() != run.sha256:
        raise RewriterError(
            "corrupt-dump",
            f"{copy}: without its probes it is not the wrapper that was called",
            hint="Copy the dump again, or run the program once more.",
        )
    wrapper = read_wrapper(copy, copy.name, plain)
    assert wrapper is not None
    return wrapper


def is_whole(run: RunDump) -> bool:
    """Whether all launches of its wrapper were recorded, and all calls in it are known."""
    wrapper = wrapper_of(run)
    if wrapper is None or wrapper.unrecognised:
        return False
    return run.table.keys() >= {x.index for x in wrapper.launches}


def flow_of(run: RunDump) -> Flow:
    """Where the values of a run came from, as far as it was recorded."""
    wrapper = wrapper_of(run)
    return Flow(run, () if wrapper is None else wrapper.launches)


def are_writes_recorded(
    run: RunDump, unrecorded: Collection[str], buffers: Collection[str]
) -> bool:
    """Whether everything that writes these buffers was recorded, as far as the wrapper tells.
    `unrecorded` are those that launches wrote without a record, by the flow of values."""
    wrapper = wrapper_of(run)
    if wrapper is None or wrapper.unrecognised or {*unrecorded} & {*buffers}:
        return False
    return not any(use.buffer in ("", *buffers) for use in wrapper.located.other_uses)


def selection_of(run: RunDump) -> Selection | None:
    """The probes that recorded a run, `None` if the copy of its wrapper does not say."""
    wrapper = wrapper_of(run)
    if wrapper is None or wrapper.probes is None:
        return None
    recorded = options_line.read(wrapper.source, wrapper.probes.tag, wrapper.probes.probes)
    return None if recorded is None else recorded[1]


@lru_cache(maxsize=_KEPT)
def _open(path: Path, changed: int) -> Wrapper | None:
    try:
        return open_artifact(path).only
    except (RewriterError, OSError):
        return None  # callers then use the dump's rows alone


def plain_hash(source: bytes) -> str:
    """The hash of a wrapper without its probes, which the header of probes records."""
    header = markers.find_header(source)
    return hashlib.sha256(source).hexdigest() if header is None else header.sha256


@lru_cache(maxsize=_KEPT)
def _hash(path: Path, changed: int) -> str:
    return plain_hash(path.read_bytes())
