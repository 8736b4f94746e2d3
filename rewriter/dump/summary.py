"""What the dump of a program says: which wrappers were called, and where the first NaN is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from rewriter.core.dtypes import is_floating
from rewriter.core.errors import RewriterError
from rewriter.core.types import Json
from rewriter.dump.reading import RunDump, is_recorded, open_dump

Kind = Literal["nan", "inf", "unexpected"]


@dataclass(frozen=True)
class Finding:
    """The first value that holds a NaN, or an infinity, or the first input that is not what its
    wrapper expects: the row of its event."""

    kind: Kind
    artifact: str
    run: str
    row: Json = field(repr=False)


def _is_fault(kind: Kind, row: Json, given: bool) -> bool:
    """Whether a row shows what is a finding of that kind.

    An infinity is one where a launch computed it: it was `given` numbers that could be infinite, or
    updates them. Masks are made of infinities, and come in as inputs.
    """
    if kind != "inf":
        return True
    return row["phase"] == "after" and row.get("role") != "in" and (given or row["role"] == "inout")


@dataclass(frozen=True)
class DumpSummary:
    """`calls` counts the calls of each wrapper, by its file name; `launches` are those recorded."""

    calls: Mapping[str, int] = field(default_factory=dict)
    launches: int = 0
    findings: tuple[Finding, ...] = ()


def summarise(dump: Path) -> DumpSummary:
    """Go through a dump once, in the order in which the calls began."""
    if not is_recorded(dump):
        return DumpSummary()
    calls: Counter[str] = Counter()
    first: dict[Kind, Finding] = {}
    launches = 0
    kinds: tuple[Kind, ...] = ("nan", "inf", "unexpected")
    for run in sorted(open_dump(dump).runs, key=lambda run: (run.number, run.rank)):
        calls[run.artifact] += 1
        current: tuple[object, object] | None = None
        given = False  # numbers that could be infinite, to the current launch
        for row in _rows(run):
            if "launch" in row and (which := (row["launch"], row.get("iteration"))) != current:
                current, given = which, False
                launches += 1
            given |= row.get("role") == "in" and is_floating(row.get("dtype"))
            for kind in kinds:
                if kind not in first and row.get(kind) and _is_fault(kind, row, given):
                    first[kind] = Finding(kind, run.artifact, run.name, row)
    return DumpSummary(calls, launches, tuple(first[kind] for kind in kinds if kind in first))


def _rows(run: RunDump) -> Iterator[Json]:
    """Every value that was recorded, up to the first line that is not as a runtime writes it."""
    with suppress(RewriterError):
        yield from (row for row in run.events() if "time" not in row)
