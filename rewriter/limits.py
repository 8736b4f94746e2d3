"""What an input may be at most. Every bound stands here, with the reason for its size.

Inputs decide how long a command takes and how deep it goes, so that each bound is far above
whatever a compiler writes and far below what would hurt. Beyond one, an input is refused with
`beyond`, which says the bound, what was found, and where.
"""

from __future__ import annotations

from rewriter.errors import RewriterError


def beyond(where: str, found: str, bound: str) -> RewriterError:
    """The error of an input beyond a bound.

    `where` is a file, with the line if there is one; `found` says what is there, `bound` what may
    be at most. Both are parts of a sentence: "expressions nested 1,000 deep", "200".

    >>> print(beyond("output_code.py:7", "an expression is nested 1000 deep", "200"))
    output_code.py:7: an expression is nested 1000 deep; at most 200 is read
      Nothing that Inductor writes is near this bound: the file was damaged, or made by hand.
    """
    return RewriterError(
        "beyond-limit",
        f"{where}: {found}; at most {bound} is read",
        hint="Nothing that Inductor writes is near this bound: the file was damaged, or made by "
        "hand.",
    )
