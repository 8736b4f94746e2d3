"""Finds operators that are given one tensor as a source and as a target, by their schemas."""

from __future__ import annotations

from collections.abc import Iterator

from rewriter.diagnosis.evidence import finding_at
from rewriter.diagnosis.findings import Finding
from rewriter.diagnosis.ruling import Examined
from rewriter.dump.reading import Dump, RunDump, RunStep


def examine_operators(dump: Dump) -> Examined:
    """Findings about the operators that only the program knows, from what it said of them.

    An operator that writes one parameter before it has read all of the other makes other values if
    both are the same memory: a copy that the model makes was taken out, or was never made.
    """
    found: dict[tuple[str, int | None], Finding] = {}
    for run in dump.runs:
        for step in run.steps:
            if (run.sha256, step.launch) not in found:
                for finding in _findings(run, step):
                    found[run.sha256, step.launch] = finding
    return Examined(tuple(found.values()))


def _findings(run: RunDump, step: RunStep) -> Iterator[Finding]:
    row = run.launch_row(step.launch)
    if not row.schema:
        return
    from rewriter.diagnosis.verification.bounded import UncheckedError
    from rewriter.diagnosis.verification.operators.operands import is_written, schema_of

    try:
        known = schema_of(row.schema).arguments
    except UncheckedError:  # of a torch that knows other types; nothing is said of this operator
        return
    for name, parameters in row.parameters.items():
        own = [x for n, x in enumerate(known) if {str(n), x.name} & {*parameters}]
        written = [x.name for x in own if is_written(x)]
        read = [x.name for x in own if x.name not in written]
        if written and read:
            what = (
                f"is given {name} as {read[0]}, which it reads, and as {written[0]}, which it "
                "writes: where it writes before it has read all, its results are wrong"
            )
            shown = "shown by its schema and its call"
            yield finding_at(run, step, "aliased", what, shown, "likely", text=(row.schema,))
