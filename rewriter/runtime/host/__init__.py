"""Runs a wrapper, or loads a package, in a separate process."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path


class ProblemError(Exception):
    """The wrapper cannot run here, or not with these inputs. `slug` names the error."""

    def __init__(self, slug: str, message: str) -> None:
        super().__init__(message)
        self.slug = slug


def import_operators(name: str) -> None:
    """Import a module or Python file that registers the wrapper's custom operators."""
    sys.path.insert(0, os.getcwd())
    try:
        if name.endswith(".py"):
            path = Path(name).resolve()
            sys.path.insert(0, str(path.parent))
            name = path.stem
        importlib.import_module(name)
    except (Exception, SystemExit) as error:
        reason = str(error) if isinstance(error, ImportError) else repr(error)
        raise ProblemError("bad-import", f"--import {name}: {reason}") from error
