"""Artifacts that a function of torch loads: which one it is, and how to copy them with probes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Literal

from rewriter.artifact.saved_directory import STANDALONE
from rewriter.artifact.types import Artifact
from rewriter.core.errors import RewriterError
from rewriter.instrumentation import containers
from rewriter.instrumentation.instrument import instrument_wrapper
from rewriter.instrumentation.types import Selection

# What `rewriter/runtime/host/saved.py` calls: `CompiledArtifact.load` with a format, or
# `load_compiled_function`.
Loader = Literal["binary", "unpacked", "function"]
_LOADERS: dict[str, Loader] = {
    "standalone": "binary",
    "standalone-aot": "binary",
    "aot-compile": "function",
}


def loader_of(artifact: Artifact) -> Loader | None:
    """How torch loads an artifact; `None` if it is not a file that torch saved.

    Raises `RewriterError` for a file that only a program can load.
    """
    if artifact.directory is not None:
        if artifact.directory is STANDALONE:
            return "unpacked"
        raise _not_runnable(artifact, artifact.directory.description)
    if artifact.container is None:
        return None
    form = artifact.container.form
    if form.name not in _LOADERS:
        raise _not_runnable(artifact, form.description)
    return _LOADERS[form.name]


def write_copy(
    artifact: Artifact, selection: Selection | None, scratch: Path
) -> tuple[Path, bytes]:
    """Write a copy with probes in its wrapper. Returns its path, and the source of the wrapper.

    The copy is made without probes, too: torch writes kernels and locks into a directory it loads.
    """
    wrapper = artifact.only
    copy = scratch / "artifact"
    result = None if selection is None else instrument_wrapper(wrapper, selection)
    source = wrapper.source if result is None else result.source
    if artifact.directory is not None:
        shutil.copytree(artifact.path, copy, symlinks=True)
        (copy / wrapper.path.relative_to(artifact.path)).write_bytes(source)
        return copy, source
    assert artifact.container is not None
    data = artifact.container.contents.data
    copy.write_bytes(data if result is None else containers.probed(artifact, [(wrapper, result)]))
    return copy, source


def _not_runnable(artifact: Artifact, what: str) -> RewriterError:
    return RewriterError(
        "not-runnable",
        f"{artifact.path} is {what}, which only the program that it was made for can call",
        hint="Run that program: rewriter run -- COMMAND. Or put probes into the file with "
        "`rewriter instrument`, and run the program as it is. Without --args the wrapper is called "
        "alone, on random inputs.",
    )
