"""The document of a program that ran with probes."""

from __future__ import annotations

from typing import Literal

from rewriter.core.documents import Count, Document, Entry
from rewriter.core.errors import DIFFERS, INTERRUPTED, OK
from rewriter.core.printed import printed
from rewriter.diagnosis.judged import Judged
from rewriter.execution.hook.run import HookedRun, Request
from rewriter.execution.hook.server import Loaded


@printed("wrapper=loaded.path loaded.wrapper.graph launches calls")
class CalledWrapper(Entry, frozen=True, kw_only=True):
    """A wrapper that had probes while the program ran: how many launches had some, and how many
    calls were recorded."""

    loaded: Loaded
    launches: Count
    calls: Count


@printed(
    "request.program request.command run.ended run.interrupted wrappers run.refused run.unprobed"
    " run.summary.launches run.summary.unexpected run.dump judged.verdicts judged.next judged.times"
    " judged.trace"
)
class ProgramRunDocument(Document, frozen=True, kw_only=True, tag="rewriter.program-run"):
    """`rewriter run --json -- COMMAND`. `refused` are wrappers that got no probes, and `unprobed`
    those that ran without, each with the reason. `unexpected` is the first input that is not what
    its wrapper expects. `next` tells more of the first verdict."""

    version: Literal[2] = 2  # type: ignore[assignment]
    request: Request
    run: HookedRun
    judged: Judged

    @property
    def wrappers(self) -> tuple[CalledWrapper, ...]:
        calls = self.run.summary.calls
        return tuple(
            CalledWrapper(
                loaded=loaded,
                launches=len(loaded.result.plan.probed),
                calls=calls.get(loaded.path.name, 0),
            )
            for loaded in self.run.probed
            if loaded.result is not None
        )

    @property
    def code(self) -> int:
        """The exit code of the command."""
        if self.run.interrupted:
            return INTERRUPTED
        found = self.run.summary.unexpected or any(x.is_fault for x in self.judged.verdicts)
        return DIFFERS if self.run.ended.code != 0 or found else OK
