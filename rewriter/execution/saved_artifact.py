"""Artifacts that torch's own functions load: which function, and a copy of one with probes."""

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
    """How torch loads an artifact by itself; `None` for one that a program loads, or that is none
    of torch's files. Raises `RewriterError` where a program has to."""
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
    """Write an artifact with probes in its wrapper; its path, and the source of the wrapper.

    torch puts kernels and locks into a directory that it loads: it gets a copy in any case.
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
