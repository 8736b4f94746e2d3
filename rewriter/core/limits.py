"""Every bound on the size, number and depth of inputs, and the error for an input beyond it.

They limit how long a command can run and how much memory it can take. Each is far above what torch
writes.
"""

from __future__ import annotations

import os
from pathlib import Path

from rewriter.core.errors import RewriterError

# Depth of a statement in Python, by `rewriter/locate/python/syntax.py`: generated code has 5 nested
# brackets and 20 operators. All code that walks a tree stays within Python's recursion limit.
PYTHON_NESTING = "50 nested brackets, 250 operators in a row, and 100 nested blocks"
# Expressions and blocks of C++, and `else if` after `else if`.
CPP_NESTING = 200
# The text of one wrapper: one with 100,000 launches has 24 MB.
WRAPPER_BYTES = 64 << 20
# All C++ of one model in a package: its wrapper, and kernels, thousands of which have 10 MB.
SOURCES_BYTES = 128 << 20
# Members of a package: a cubin for each Triton kernel, some thousand in the largest.
MEMBERS = 100_000
# The names and offsets of members, at the end of a zip file: torch's take 160 bytes each.
DIRECTORY_BYTES = 24 << 20
# Models in one package: people pack a few dozen buckets of one model. Each is read completely.
MODELS = 250
# A name in a package: zip has two bytes for its length, file systems of Linux allow 4,096.
NAME_BYTES = 4_096
# One JSON file: `run.json` of a wrapper of 100,000 launches has 50 MB.
JSON_BYTES = 128 << 20
# One line of JSON, an event: a few hundred bytes, unless it has the text of an error.
JSON_LINE_BYTES = 4 << 20
# Nested lists and objects: operators of torch.export have 12 levels.
JSON_DEPTH = 100
# The recorded compiler command: 20 kB with hundreds of directories. Linux allows 2 MB.
COMMAND_BYTES = 1 << 20
# `<` without `>` in one statement of C++: each may open a template, and the parser tries them all.
ANGLES = 2_000
# One entry of a cache: a graph of thousands of nodes has 2 MB, its Triton kernels maybe dozens.
ENTRY_BYTES = 256 << 20
# One page of tlparse, or one line of a log: tags make the text of a wrapper ten times longer.
PAGE_BYTES = 256 << 20

# A cache entry, or a file with many: a model of a server with its cubins has a few hundred MB.
PICKLE_BYTES = 1 << 30
# Instructions of one pickle: 5,000 for each wrapper, with its graphs.
PICKLE_OPCODES = 10_000_000
# Nesting of pickles: a model of a server has 4 levels.
PICKLE_NESTING = 16


def too_large(name: object, size: str, bound: str) -> RewriterError:
    """The error for an input that is beyond a bound, with its size and the bound.

    `name` is a file, with the line if there is one.
    """
    return RewriterError(
        "beyond-bounds",
        f"{name}: {size}; this version reads at most {bound}",
        hint="Nothing that torch writes is near this: get the file from its maker again.",
    )


def require_size(name: object, size: int, bound: int) -> None:
    """Raise if something has more bytes than its bound allows."""
    if size > bound:
        raise too_large(name, f"{size:,} bytes", f"{bound:,}")


def read(path: Path, bound: int, name: object = None) -> bytes:
    """Read a file. Raises `OSError`, or `RewriterError` if it has more than `bound` bytes.

    Does not rely on its size, which is 0 for a pipe or a file in /proc.
    """
    with path.open("rb") as file:
        require_size(name or path, os.fstat(file.fileno()).st_size, bound)
        data = file.read(bound + 1)
    require_size(name or path, len(data), bound)
    return data
