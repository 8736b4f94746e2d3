"""The document of `run` on an artifact."""

from __future__ import annotations

from pathlib import Path

from rewriter.commands._run_text import RanLaunch, by_launch
from rewriter.core.documents import Document
from rewriter.core.printed import printed
from rewriter.diagnosis.verdict import Verdict
from rewriter.dump.timing import Timed
from rewriter.execution.run_result import RunResult


@printed(
    "artifact=result.path command result.dump exit=result.code result.ended.signal"
    " result.ended.message result.ended.timed_out result.interrupted verdict verdicts next"
    " result.unexpected times trace result.seconds result.inputs result.outputs result.replayed"
    " result.random_globals launches"
)
class RunDocument(Document, frozen=True, kw_only=True, tag="rewriter.run"):
    """`rewriter run --json` on an artifact. `dump` is null where nothing was recorded, `signal` 0
    where none ended it. `verdict` is the first of `verdicts`, and `next` tells more of it."""

    result: RunResult
    command: str
    verdicts: tuple[Verdict, ...]
    next: str
    times: tuple[Timed, ...]
    trace: Path | None

    @property
    def verdict(self) -> Verdict | None:
        return self.verdicts[0] if self.verdicts else None

    @property
    def launches(self) -> tuple[RanLaunch, ...]:
        return tuple(by_launch(self.result))
