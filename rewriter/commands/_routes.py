"""Which way `instrument` and `strip` go, by what the artifact is. Each way has its own modules,
which are imported when it is gone."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from rewriter.artifact.types import Artifact
from rewriter.commands._options import refuse_idle


def makes_several(arguments: argparse.Namespace, artifact: Artifact) -> bool:
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


def refuse_package_options(arguments: argparse.Namespace) -> None:
    """Refuse options for packages if the artifact is not a package."""
    names = ("route", "no_rebuild", "no_check", "imports", "models")
    refuse_options(arguments, names, f"{arguments.artifact} is no package")


def refuse_options(arguments: argparse.Namespace, names: Sequence[str], why: str) -> None:
    """Refuse options that would do nothing, rather than drop them in silence."""
    words = {"imports": "import", "models": "model"}
    options = {n: f"--{words.get(n, n).replace('_', '-')}" for n in names}
    refuse_idle({option: getattr(arguments, n) for n, option in options.items()}, why)
