"""The documents of `list`, `instrument`, `strip` and `doctor`."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from rewriter.artifact.graphs import GraphKind
from rewriter.core.documents import Count, Document, Entry, LineNumber
from rewriter.core.types import Role, Type
from rewriter.rebuild.types import Checked, Route

OutputPath = Annotated[
    str | None, Meta(description="Path of the result, - for standard output; null: nothing written")
]
BackupPath = Annotated[str | None, Meta(description="Where the original is kept, with --in-place")]
Diff = Annotated[str | None, Meta(description="With --diff: as diff -u shows it")]
Exact = Annotated[bool, Meta(description="false: edited since it was instrumented; the edits stay")]
WrapperName = Annotated[str, Meta(description="The wrapper's path inside the artifact")]


class ArgumentEntry(Entry, frozen=True, kw_only=True):
    """One argument or result of a launch."""

    name: Annotated[str, Meta(description="As prints and the names of files have it")]
    expr: Annotated[str, Meta(description="The text in the source")]
    buffer: Annotated[str, Meta(description="The variable that owns the memory")]
    role: Role
    type: Type


class LaunchEntry(Entry, frozen=True, kw_only=True):
    """A kernel launch."""

    index: Annotated[Count, Meta(description="In its wrapper")]
    scope: Annotated[str, Meta(description="The function that it stands in")]
    kernel: str
    kind: str
    line: LineNumber
    args: tuple[ArgumentEntry, ...]
    origins: tuple[str, ...]
    source_nodes: Annotated[
        tuple[str, ...], Meta(description="The operations of the model that it computes")
    ]
    wrapper: WrapperName


class UnrecognisedEntry(Entry, frozen=True, kw_only=True):
    """A call that is neither a known launch nor known to be none."""

    line: LineNumber
    text: str


class WrapperUnrecognisedEntry(UnrecognisedEntry, frozen=True, kw_only=True):
    """An unrecognised call, with the wrapper that it stands in."""

    wrapper: WrapperName


class WrapperEntry(Entry, frozen=True, kw_only=True):
    """A wrapper of an artifact."""

    wrapper: WrapperName
    graph: GraphKind
    file: Annotated[str, Meta(description="The file, or the log, that holds it")]
    launches: Count


class InputEntry(Entry, frozen=True, kw_only=True):
    """What an input of a wrapper is in the model."""

    wrapper: WrapperName
    input: str
    name: Annotated[str, Meta(description="In the model; empty if it is not known")]
    at: Annotated[str, Meta(description="The line of the model that uses it first")]


class DamagedEntry(Entry, frozen=True, kw_only=True):
    """What cannot be read as a wrapper."""

    wrapper: WrapperName
    error: Annotated[str, Meta(description="A name in docs/errors.md")]
    message: str


class ListDocument(Document, frozen=True, kw_only=True, tag="rewriter.launches"):
    """`rewriter list --json`."""

    launches: tuple[LaunchEntry, ...]
    unrecognised: tuple[WrapperUnrecognisedEntry, ...]
    wrappers: tuple[WrapperEntry, ...]
    inputs: tuple[InputEntry, ...]
    damaged: tuple[DamagedEntry, ...]


class SkippedEntry(Entry, frozen=True, kw_only=True):
    """A launch that is not instrumented in full."""

    launch: Count
    reason: str


class InstrumentDocument(Document, frozen=True, kw_only=True, tag="rewriter.instrument"):
    """`rewriter instrument --json` of one wrapper."""

    artifact: str
    probes: tuple[str, ...]
    launches: Annotated[tuple[Count, ...], Meta(description="Indices of those with probes")]
    skipped: tuple[SkippedEntry, ...]
    unrecognised: tuple[UnrecognisedEntry, ...]
    changed: bool
    output: OutputPath
    backup: BackupPath
    diff: Diff


class InstrumentedWrapperEntry(Entry, frozen=True, kw_only=True):
    """One of several wrappers that were instrumented."""

    wrapper: WrapperName
    graph: GraphKind
    probes: tuple[str, ...]
    launches: tuple[Count, ...]
    skipped: tuple[SkippedEntry, ...]
    unrecognised: tuple[UnrecognisedEntry, ...]
    changed: bool
    output: OutputPath
    backup: BackupPath
    diff: Diff


class InstrumentDirectoryDocument(Document, frozen=True, kw_only=True, tag="rewriter.instrument"):
    """`rewriter instrument --json` of a directory or a log."""

    artifact: str
    probes: tuple[str, ...]
    wrappers: tuple[InstrumentedWrapperEntry, ...]
    changed: bool
    output: OutputPath


class ModelEntry(Entry, frozen=True, kw_only=True):
    """One model of a package that was instrumented; `route` is null where it was not built."""

    model: str
    wrapper: WrapperName
    route: Route | None
    why: Annotated[str | None, Meta(description="Why this route")]
    changes: Annotated[tuple[str, ...], Meta(description="To the recorded build commands")]
    launches: tuple[Count, ...]
    skipped: tuple[SkippedEntry, ...]
    unrecognised: tuple[UnrecognisedEntry, ...]


class InstrumentPackageDocument(Document, frozen=True, kw_only=True, tag="rewriter.instrument"):
    """`rewriter instrument --json` of a package."""

    artifact: str
    probes: tuple[str, ...]
    models: tuple[ModelEntry, ...]
    check: Annotated[
        Checked,
        Meta(description="linked: it was not loaded, and the note says why"),
    ]
    note: str
    seconds: float
    changed: bool
    output: OutputPath
    backup: BackupPath
    diff: Diff


class StripDocument(Document, frozen=True, kw_only=True, tag="rewriter.strip"):
    """`rewriter strip --json` of one wrapper or a package."""

    artifact: str
    removed: Annotated[Count, Meta(description="Lines")]
    exact: Exact
    changed: bool
    output: OutputPath
    backup: BackupPath
    diff: Diff


class StrippedWrapperEntry(Entry, frozen=True, kw_only=True):
    """One of several wrappers that were stripped."""

    wrapper: WrapperName
    removed: Count
    exact: Exact
    changed: bool
    output: OutputPath
    backup: BackupPath
    diff: Diff


class StripDirectoryDocument(Document, frozen=True, kw_only=True, tag="rewriter.strip"):
    """`rewriter strip --json` of a directory."""

    artifact: str
    removed: Count
    exact: Exact
    wrappers: tuple[StrippedWrapperEntry, ...]
    changed: bool
    output: OutputPath


class ProbeCheckEntry(Entry, frozen=True, kw_only=True):
    """Whether every byte of the probes is what `instrument` writes."""

    state: Literal["verified", "unverified", "changed"]
    reason: Annotated[str, Meta(description="Empty if verified")]
    line: Annotated[LineNumber | None, Meta(description="The first that differs")]


class CheckedWrapperEntry(Entry, frozen=True, kw_only=True):
    """A wrapper whose probes were checked, or a package as it is packed."""

    wrapper: WrapperName
    check: Annotated[ProbeCheckEntry | None, Meta(description="null: it has no probes")]


class StripCheckDocument(Document, frozen=True, kw_only=True, tag="rewriter.strip-check"):
    """`rewriter strip --check-probes --json`."""

    artifact: str
    wrappers: tuple[CheckedWrapperEntry, ...]


class CheckEntry(Entry, frozen=True, kw_only=True):
    """One thing that was looked at."""

    name: str
    found: str
    ok: Annotated[bool | None, Meta(description="null: worth knowing, and no obstacle")]
    hint: str
    error: Annotated[str, Meta(description="What a command stops with where this is not ok")]


class DoctorDocument(Document, frozen=True, kw_only=True, tag="rewriter.doctor"):
    """`rewriter doctor --json`."""

    checks: tuple[CheckEntry, ...]
