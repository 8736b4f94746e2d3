"""Lets `rewriter attach` find this program: Python imports this file when it starts.

`rewriter live` puts this folder at the front of `PYTHONPATH`. Nothing happens until the program
imports something that compiles with Inductor; then `rewriter.live` is imported. This file uses only
the standard library, and imports the `sitecustomize` that it displaced.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_COMPILER = "torch._inductor.codecache"
_FOLDER = os.path.dirname(os.path.abspath(__file__))


class Waiting:
    """An entry of `sys.meta_path` that finds nothing, and sees what is imported."""

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> None:
        if name != _COMPILER:
            return
        sys.meta_path.remove(self)
        try:
            _listen()
        except Exception as error:
            sys.stderr.write(f"[rewriter] warning: cannot be attached to: {error}\n")


def _listen() -> None:
    """Import `rewriter.live`, which may not be installed for this Python."""
    package = os.path.dirname(os.path.dirname(os.path.dirname(_FOLDER)))
    sys.path.append(package)
    try:
        import rewriter.live  # noqa: F401
    finally:
        sys.path[:] = [path for path in sys.path if path is not package]


def begin() -> None:
    """Wait for the compiler, and import the module that this file displaced."""
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != _FOLDER]
    sys.path_importer_cache.pop(_FOLDER, None)
    sys.meta_path.insert(0, Waiting())
    del sys.modules[__name__]
    # If there is none, the error tells Python so, as without this file.
    __import__(__name__)


if __name__ == "sitecustomize":
    begin()
