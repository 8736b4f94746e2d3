"""What the dump of a run says: where it crashed, and where its first NaN is from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rewriter.diagnosis import nonfinite
from rewriter.diagnosis.triage import examine
from rewriter.diagnosis.verdict import Verdict
from rewriter.diagnosis.verdict_text import next_command
from rewriter.dump import timing
from rewriter.dump.document_files import was_stopped
from rewriter.dump.timing import Timed
from rewriter.execution.conclusion import Conclusion, write_conclusion
from rewriter.instrumentation.types import Selection


class Judged(NamedTuple):
    """The verdicts, for each the command that finds out more (empty if there is none), and the
    times of launches. `skipped` are the calls whose NaN and infinities are those of a scaled
    loss."""

    verdicts: tuple[Verdict, ...] = ()
    following: tuple[str, ...] = ()
    times: tuple[Timed, ...] = ()
    trace: Path | None = None
    skipped: frozenset[str] = frozenset()

    @property
    def next(self) -> str:
        return next(iter(self.following), "")

    @property
    def first(self) -> Verdict | None:
        return next(iter(self.verdicts), None)

    @property
    def pairs(self) -> Iterator[tuple[Verdict, str]]:
        return zip(self.verdicts, self.following, strict=True)


def judge(
    dump: Path | None,
    conclusion: Conclusion,
    ran: Selection | None = None,
    *,
    is_timed: bool = False,
) -> Judged:
    """Add to a dump how its program ended, which `report` needs to make the verdicts again, and
    make them; write its trace if launches were timed. No command asks for what `ran` recorded."""
    if dump is None:
        return Judged()
    write_conclusion(dump, conclusion)
    verdicts: tuple[Verdict, ...] = ()
    if conclusion.ended.code != 0 and not was_stopped(dump):
        verdicts = examine(dump, conclusion.ended, blocking=conclusion.blocking)
    found = nonfinite.search(dump, values=True)
    verdicts += found.verdicts
    following = (next_command(conclusion.again, verdict, ran) for verdict in verdicts)
    times = timing.table(dump) if is_timed else ()
    trace = timing.write_trace(dump) if times else None
    return Judged(verdicts, tuple(following), times, trace, found.skipped)
