"""Records in a dump how its program ended.

The command that ran the program writes this beside the manifest, as a crashed program cannot. With
it, a report of the dump can show a crash and the next command just as the terminal did.
"""

from __future__ import annotations

import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from msgspec import structs

from rewriter.core import json_text, limits
from rewriter.core.documents import as_json
from rewriter.core.errors import RewriterError
from rewriter.core.exit_status import ExitStatus
from rewriter.dump.document_files import ENDED, document_text
from rewriter.dump.documents import EndedFile, EndedStatus
from rewriter.dump.recorded import was_running
from rewriter.dump.rows import read


@dataclass(frozen=True)
class Conclusion:
    """How a program ended, whether each launch was waited for, and the command to run it again."""

    ended: ExitStatus
    blocking: bool = False
    again: str = ""


_UNKNOWN = Conclusion(ExitStatus(None, message="how it ended is not in the dump"))
_RUNNING = Conclusion(ExitStatus(None, message="the program was running", running=True))


def write_conclusion(dump: Path, conclusion: Conclusion) -> None:
    """Add a conclusion to a dump. If it cannot be written, reports go without it."""
    ended = EndedStatus(**as_json(conclusion.ended))
    content = EndedFile(ended=ended, blocking=conclusion.blocking, again=conclusion.again)
    with suppress(OSError):
        (dump / ENDED).write_text(document_text(content), encoding="utf-8")


def read_conclusion(dump: Path) -> Conclusion | None:
    """The conclusion of a dump, given by its path or that of a part; `None` if it has none."""
    for folder in (dump, *dump.absolute().parents[:2]):
        try:
            content = json_text.parse_object(limits.read(folder / ENDED, limits.JSON_BYTES))
            file = read(content, EndedFile)
            numbers = {x: _number(getattr(file.ended, x)) for x in ("signal", "interrupted")}
            status = ExitStatus(**{**structs.asdict(file.ended), **numbers})
            return Conclusion(status, file.blocking, file.again)
        except (OSError, ValueError, KeyError, RewriterError):
            continue
    return None


def without_conclusion(dump: Path) -> Conclusion:
    """The conclusion for a dump without one."""
    return _RUNNING if was_running(dump) else _UNKNOWN


def _number(name: str) -> int:
    """Raises `KeyError` if this system has no signal of that name."""
    return signal.Signals[name].value if name else 0
