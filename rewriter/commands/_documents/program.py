"""The document of a program that ran with probes."""

from __future__ import annotations

from rewriter.commands._program_report import ProgramRun
from rewriter.core.documents import Count, Document, Entry
from rewriter.core.printed import printed
from rewriter.execution.hook.server import Loaded


@printed("wrapper=loaded.path loaded.wrapper.graph launches calls")
class CalledWrapper(Entry, frozen=True, kw_only=True):
    """A wrapper that had probes while the program ran: how many launches had some, and how many
    calls were recorded."""

    loaded: Loaded
    launches: Count
    calls: Count


@printed(
    "ran.request.program ran.request.command ran.run.ended ran.run.interrupted wrappers"
    " ran.run.refused ran.run.unprobed ran.run.summary.launches ran.run.summary.findings"
    " ran.run.dump ran.judged.verdicts ran.judged.next ran.judged.times ran.judged.trace"
)
class ProgramRunDocument(Document, frozen=True, kw_only=True, tag="rewriter.program-run"):
    """`rewriter run --json -- COMMAND`. `refused` are wrappers that got no probes, and `unprobed`
    those that ran without, each with the reason. `findings` are a first NaN, a first infinity that
    a launch computed, and an unexpected input. `next` tells more of the first verdict."""

    ran: ProgramRun
    wrappers: tuple[CalledWrapper, ...]

    @classmethod
    def of(cls, ran: ProgramRun) -> ProgramRunDocument:
        calls = ran.run.summary.calls
        wrappers = tuple(
            CalledWrapper(
                loaded=loaded,
                launches=len(loaded.result.plan.probed),
                calls=calls.get(loaded.path.name, 0),
            )
            for loaded in ran.run.probed
            if loaded.result is not None
        )
        return cls(ran=ran, wrappers=wrappers)
