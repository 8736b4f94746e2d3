"""The documents of `strip`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from rewriter.artifact.types import Artifact
from rewriter.commands._deliver import Delivered
from rewriter.commands._documents.fields import BackupPath, CachePath, Diff, OutputPath, WrapperName
from rewriter.core.documents import Count, Document, Entry, LineNumber, entry
from rewriter.instrumentation.probe_check import ProbeCheck
from rewriter.instrumentation.types import Stripped

Exact = Annotated[bool, Meta(description="false: edited since it was instrumented; the edits stay")]


class StripDocument(Document, frozen=True, kw_only=True, tag="rewriter.strip"):
    """`rewriter strip --json` of one wrapper or a package."""

    artifact: str
    removed: Annotated[Count, Meta(description="Lines")]
    exact: Exact
    changed: bool
    output: OutputPath
    backup: BackupPath
    diff: Diff
    cache: CachePath


class StrippedWrapperEntry(Entry, frozen=True, kw_only=True):
    """One of several wrappers that were stripped."""

    wrapper: WrapperName
    removed: Count
    exact: Exact
    changed: bool
    output: OutputPath
    backup: BackupPath
    diff: Diff
    cache: CachePath


class StripDirectoryDocument(Document, frozen=True, kw_only=True, tag="rewriter.strip"):
    """`rewriter strip --json` of a directory, or a file that holds several wrappers."""

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


def strip_document(path: Path, removed: int, delivered: Delivered, *, exact: bool) -> StripDocument:
    """Of one wrapper or a package."""
    return entry(StripDocument, delivered, artifact=str(path), removed=removed, exact=exact)


def directory_document(
    artifact: Artifact, results: Sequence[Stripped], delivered: Delivered
) -> StripDirectoryDocument:
    """Of several wrappers, or those in a file with other data."""
    wrappers = [
        entry(
            StrippedWrapperEntry,
            delivered.each.get(wrapper.name, delivered),
            wrapper=wrapper.name,
            removed=result.removed,
            exact=result.exact,
        )
        for wrapper, result in zip(artifact.wrappers, results, strict=True)
    ]
    return entry(
        StripDirectoryDocument,
        delivered,
        artifact=str(artifact.path),
        removed=sum(result.removed for result in results),
        exact=all(result.exact for result in results),
        wrappers=wrappers,
    )


def check_document(
    artifact: Artifact, checks: Sequence[tuple[str, ProbeCheck | None]]
) -> StripCheckDocument:
    """Of the probes of wrappers, by their names."""
    wrappers = [{"wrapper": name, "check": check} for name, check in checks]
    return entry(StripCheckDocument, artifact, artifact=str(artifact.path), wrappers=wrappers)
