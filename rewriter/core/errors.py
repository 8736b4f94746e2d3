"""The one error that commands report, and the exit codes of the contract.

Every message says what was found, where, and what was expected; `hint` says what to do next.
`slug` is its name, which `docs/errors.md` lists.
"""

from __future__ import annotations

from typing import Final

OK: Final = 0
DIFFERS: Final = 1
BAD_INPUT: Final = 2
FAILED: Final = 3
INTERRUPTED: Final = 130


class RewriterError(Exception):
    """An expected failure: shown as one message, never as a traceback.

    `code` is the exit code: 2 when the input or the request is wrong or unsupported, 3 when the
    toolchain or this program failed.
    """

    slug: str
    message: str

    def __init__(self, slug: str, message: str, *, hint: str = "", code: int = BAD_INPUT) -> None:
        super().__init__(message)
        self.slug = slug
        self.message = message
        self.hint = hint
        self.code = code

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message
