"""What an input may take: every bound on size, number and depth, and the refusal beyond it.

An input decides how long a command runs and how much memory it takes only up to these. Each is far
above what torch writes.
"""

from __future__ import annotations

import os
from pathlib import Path

from rewriter.core.errors import RewriterError

# Expressions or statements in one another, in Python, which itself reads 200 brackets: generated
# code has 30. Whatever reads a tree goes down to its leaves within Python's limit of recursion.
PYTHON_NESTING = 200
# The same in C++: expressions, blocks, and `else if` after `else if`.
CPP_NESTING = 200
# The text of one wrapper: one of 100,000 launches has 24 MB.
WRAPPER_BYTES = 64 << 20
# All C++ of one model of a package: its wrapper, and kernels, of which thousands have 10 MB.
SOURCES_BYTES = 128 << 20
# Members of a package: a cubin for each Triton kernel, some thousand in the largest.
MEMBERS = 100_000
# Their names and places, at the end of a zip file: torch's take 160 bytes each.
DIRECTORY_BYTES = 24 << 20
# Models in one package: people pack a few buckets of one model, some tens. Each is read whole.
MODELS = 250
# A name in a package: zip has two bytes for its length, file systems of Linux allow 4,096.
NAME_BYTES = 4_096
# One JSON file: `run.json` of a wrapper of 100,000 launches has 50 MB.
JSON_BYTES = 128 << 20
# One line of JSON, an event: some hundred bytes; text of an error may be in it.
JSON_LINE_BYTES = 4 << 20
# Lists and objects in one another: operators of torch.export have 12.
JSON_DEPTH = 100
# The recorded command of the compiler: 20 kB with hundreds of directories. Linux takes 2 MB.
COMMAND_BYTES = 1 << 20
# `<` without `>` in one statement of C++: each may open a template, and the parser tries them all.
ANGLES = 2_000
# One entry of a cache: a graph of thousands of nodes has 2 MB, its Triton kernels may have tens.
ENTRY_BYTES = 256 << 20
# One page of tlparse, or one line of a log: tags make the text of a wrapper ten times longer.
PAGE_BYTES = 256 << 20

# A cache entry, or a file of many: a server's model with its cubins has some hundred MB.
PICKLE_BYTES = 1 << 30
# Instructions of one pickle: 5,000 for each wrapper, with its graphs.
PICKLE_OPCODES = 10_000_000
# Pickles in the bytes of pickles: a server's model has 4.
PICKLE_NESTING = 16


def too_large(name: object, size: str, bound: str, hint: str = "") -> RewriterError:
    """The error of an input that is beyond a bound: its size, and the bound.

    `name` is a file, with the line if there is one.
    """
    return RewriterError(
        "beyond-bounds",
        f"{name}: {size}; this version reads at most {bound}",
        hint=hint or "Nothing that torch writes is near this: get the file from its maker again.",
    )


def require_size(name: object, size: int, bound: int) -> None:
    """Raise where something has more bytes than its bound allows."""
    if size > bound:
        raise too_large(name, f"{size:,} bytes", f"{bound:,}")


def read(path: Path, bound: int, name: object = None) -> bytes:
    """The bytes of a file. Raises `OSError`, or `RewriterError` where there are more than `bound`.

    Not by its size alone: that of a pipe or a file in /proc is 0.
    """
    with path.open("rb") as file:
        require_size(name or path, os.fstat(file.fileno()).st_size, bound)
        data = file.read(bound + 1)
    require_size(name or path, len(data), bound)
    return data
