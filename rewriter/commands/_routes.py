"""Which way `instrument` and `strip` go, by what the artifact is. Each way has its own modules,
which are imported when it is gone."""

from __future__ import annotations

from pathlib import Path

from rewriter.artifact.types import Artifact
from rewriter.commands._options import OutputOptions


def makes_several(arguments: OutputOptions, artifact: Artifact) -> bool:
    """Whether results go to a directory or several files, rather than to one file."""
    if artifact.package is not None:
        return False
    if len(artifact.wrappers) != 1 or artifact.damaged or artifact.directory is not None:
        return True
    wrapper = artifact.only
    if arguments.output:
        is_folder = Path(arguments.output).suffix != wrapper.path.suffix
        is_among_others = artifact.path.is_dir() or wrapper.inside is not None
        return bool(is_among_others and is_folder and arguments.output != "-")
    return wrapper.inside is not None
