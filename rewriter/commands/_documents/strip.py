"""The documents of `strip`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from rewriter.artifact.types import Artifact
from rewriter.commands._deliver import Delivered
from rewriter.core.documents import Count, Document, Entry, WrapperName
from rewriter.core.printed import printed
from rewriter.instrumentation.probe_check import ProbeCheck
from rewriter.instrumentation.types import Stripped

Exact = Annotated[bool, Meta(description="false: edited since it was instrumented; the edits stay")]


@printed("artifact removed exact *delivered")
class StripDocument(Document, frozen=True, kw_only=True, tag="rewriter.strip"):
    """`rewriter strip --json` of one wrapper or a package."""

    artifact: str
    removed: Annotated[Count, Meta(description="Lines")]
    exact: Exact
    delivered: Delivered


@printed("wrapper removed exact *delivered")
class StrippedWrapper(Entry, frozen=True, kw_only=True):
    """One of several wrappers that were stripped."""

    wrapper: WrapperName
    removed: Count
    exact: Exact
    delivered: Delivered


@printed("artifact removed exact wrappers delivered.changed delivered.output")
class StripDirectoryDocument(Document, frozen=True, kw_only=True, tag="rewriter.strip"):
    """`rewriter strip --json` of a directory, or a file that holds several wrappers."""

    artifact: str
    removed: Count
    exact: Exact
    wrappers: tuple[StrippedWrapper, ...]
    delivered: Delivered


@printed("*check check.line")
class CheckedProbes(Entry, frozen=True, kw_only=True):
    """Whether every byte of the probes is what `instrument` writes; `line` is the first that is
    not, and `reason` is empty if they are verified."""

    check: ProbeCheck


class CheckedWrapper(Entry, frozen=True, kw_only=True):
    """A wrapper whose probes were checked, or a package as it is packed."""

    wrapper: WrapperName
    check: Annotated[CheckedProbes | None, Meta(description="null: it has no probes")]


class StripCheckDocument(Document, frozen=True, kw_only=True, tag="rewriter.strip-check"):
    """`rewriter strip --check-probes --json`."""

    artifact: str
    wrappers: tuple[CheckedWrapper, ...]


def directory_document(
    artifact: Artifact, results: Sequence[Stripped], delivered: Delivered
) -> StripDirectoryDocument:
    """Of several wrappers, or those in a file with other data."""
    wrappers = (
        StrippedWrapper(
            wrapper=wrapper.name,
            removed=result.removed,
            exact=result.exact,
            delivered=delivered.each.get(wrapper.name, delivered),
        )
        for wrapper, result in zip(artifact.wrappers, results, strict=True)
    )
    return StripDirectoryDocument(
        artifact=str(artifact.path),
        removed=sum(result.removed for result in results),
        exact=all(result.exact for result in results),
        wrappers=tuple(wrappers),
        delivered=delivered,
    )


def check_document(
    artifact: Artifact, checks: Sequence[tuple[str, ProbeCheck | None]]
) -> StripCheckDocument:
    """Of the probes of wrappers, by their names."""
    wrappers = (
        CheckedWrapper(wrapper=name, check=None if check is None else CheckedProbes(check=check))
        for name, check in checks
    )
    return StripCheckDocument(artifact=str(artifact.path), wrappers=tuple(wrappers))
