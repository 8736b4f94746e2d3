"""The source that readers of logs and of tlparse's pages return. No I/O."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_UNKNOWN = "no_frame"


@dataclass(frozen=True)
class TracedSource:
    """A source that torch traced. `folder` says which compilation it is from, `suffix` what it is.

    `damage` says why the text is not what was traced; empty if it is. `rank` is that of the
    process, if it had one.
    """

    file: Path
    folder: str
    suffix: str
    text: bytes
    damage: str = ""
    rank: int | None = None


def folder_of(autograd: object, frame: object, compilation: object, attempt: object) -> str:
    """The compile id as a folder's name: frame, how often it was compiled, attempt.

    The number of compiled autograd comes first, if there is one. A compilation without a frame, as
    by AOTInductor, has no id.
    """
    given = [
        "" if isinstance(part, int) and part.bit_length() > 64 else str(part)
        for part in (autograd, frame, compilation, attempt)
    ]
    # They become part of a folder's name, which may have 255 bytes.
    numbers = [part if re.fullmatch(r"[0-9]{1,18}", part) else "" for part in given]
    if not any(numbers[:3]):
        return _UNKNOWN
    head = [f"autograd_{numbers[0]}"] if numbers[0] else []
    return "_".join([*head, *(number or "0" for number in numbers[1:])])
