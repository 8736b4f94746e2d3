"""Artifacts that a function of torch loads: which one it is, and how to copy them with probes."""

from __future__ import annotations

import shutil
from pathlib import Path

from rewriter.artifact.types import Artifact, Loader
from rewriter.core.errors import RewriterError
from rewriter.instrumentation.instrument import instrument_wrapper
from rewriter.instrumentation.types import Selection


def loader_of(artifact: Artifact) -> Loader | None:
    """How torch loads an artifact; `None` if it is not a file that torch saved.

    Raises `RewriterError` for a file that only a program can load.
    """
    form = artifact.form
    if form.loader is None and form.description and not artifact.is_rebuilt:
        raise RewriterError(
            "not-runnable",
            f"{artifact.path} is {form.description}, which only the program that it was made for "
            "can call",
            hint="Run that program: rewriter run -- COMMAND. Or put probes into the file with "
            "`rewriter instrument`, and run the program as it is. Without --args the wrapper is "
            "called alone, on random inputs.",
        )
    return form.loader


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
    (file,) = artifact.rewritten({wrapper.name: source})
    if artifact.path.is_dir():
        shutil.copytree(artifact.path, copy, symlinks=True)
        (copy / file.name).write_bytes(file.after)
    else:
        copy.write_bytes(file.after)
    return copy, source
