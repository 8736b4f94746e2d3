"""Which files are of Python itself or of packages that are installed, and not the user's own."""

from __future__ import annotations

_PLACES = ("site-packages/", "dist-packages/", "/lib/python3")
_NO_FILES = ("<frozen", "<string>")  # what Python calls code that it has from no file


def is_of_library(file: str) -> bool:
    """Whether a file, as a traceback names it, is one of Python or of an installed package."""
    path = file.replace("\\", "/")
    return path.startswith(_NO_FILES) or any(place in path for place in _PLACES)
