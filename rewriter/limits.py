"""What an input may take: every bound on size, number and depth, and the refusal beyond it.

An input decides how long a command runs and how much memory it takes only up to these. Each is far
above what torch writes.
"""

from __future__ import annotations

from rewriter.errors import RewriterError

# Expressions or statements in one another, in Python, which itself reads 200 brackets: generated
# code has 30. Whatever reads a tree goes down to its leaves within Python's limit of recursion.
PYTHON_NESTING = 200
# The same in C++: expressions, blocks, and `else if` after `else if`.
CPP_NESTING = 200


def too_large(name: object, found: str, bound: str, hint: str = "") -> RewriterError:
    """The refusal of an input that is beyond a bound: what was found, and the bound.

    `name` is a file, with the line if there is one.
    """
    return RewriterError(
        "beyond-bounds",
        f"{name}: {found}; this version reads at most {bound}",
        hint=hint or "Nothing that torch writes is near this: get the file from its maker again.",
    )
