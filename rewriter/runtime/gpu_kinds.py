"""The kinds of launches that always run on a GPU, wherever their arguments are."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

# A line of the table: the standard library of Python 3.10 reads no TOML. A test compares the two.
_LINE = re.compile(r'^(\w+) = \{ runs = "gpu"', re.MULTILINE)


@cache
def gpu_kinds() -> tuple[str, ...]:
    """Their names, from `grammars/names.toml`, as installed with the package or in a checkout."""
    package = Path(__file__).resolve().parents[1]
    places = [folder / "grammars" / "names.toml" for folder in (package, package.parent)]
    file = next(filter(Path.is_file, places), places[0])
    return tuple(sorted(_LINE.findall(file.read_text(encoding="utf-8"))))
