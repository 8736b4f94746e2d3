"""The document of `diff`, from a difference of two artifacts."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from rewriter.commands._documents.fields import WrapperName
from rewriter.comparison.artifacts.types import (
    ArtifactVerdict,
    Difference,
    SideName,
    WrapperDifference,
)
from rewriter.core.documents import Count, Document, Entry, LineNumber, Sha256, entry
from rewriter.instrumentation.probe_check import CheckState

OneSided = Annotated[str | None, Meta(description="null: the other side alone has it")]
VerdictField = Annotated[
    ArtifactVerdict,
    Meta(
        description="instrumented: the same without probes, and these are what instrument writes; "
        "unverified: the same without probes, which cannot be checked"
    ),
]


class CheckStateEntry(Entry, frozen=True, kw_only=True):
    """Whether probes are what `instrument` writes."""

    state: Annotated[
        CheckState,
        Meta(
            description="verified: every byte of the probes is what instrument writes; changed: "
            "it is not"
        ),
    ]
    reason: Annotated[str, Meta(description="Empty if verified")]


class ProbingEntry(Entry, frozen=True, kw_only=True):
    """The probes of one side."""

    probes: tuple[str, ...]
    launches: Annotated[Count, Meta(description="How many have one")]
    exact: Annotated[bool, Meta(description="false: edited since it was instrumented")]
    check: CheckStateEntry


class DiffLaunchEntry(Entry, frozen=True, kw_only=True):
    """A launch of one side."""

    index: Count
    kernel: str
    kind: str
    scope: str
    line: LineNumber
    source_nodes: tuple[str, ...]
    origins: tuple[str, ...]


class LaunchChangeEntry(Entry, frozen=True, kw_only=True):
    """A launch that differs, or that one side alone has."""

    a: DiffLaunchEntry | None
    b: DiffLaunchEntry | None
    changes: Annotated[
        tuple[Literal["kernel", "arguments", "scope", "order", "text"], ...],
        Meta(
            description="Empty where one side alone has the launch; text: only the statement is "
            "written in another way"
        ),
    ]
    details: tuple[str, ...]


class RenamedEntry(Entry, frozen=True, kw_only=True):
    """A launch that is the same under another generated kernel name."""

    a: DiffLaunchEntry
    b: DiffLaunchEntry


class KernelChangeEntry(Entry, frozen=True, kw_only=True):
    """A kernel whose source differs."""

    a: OneSided
    b: OneSided
    part: Annotated[
        Literal["code", "metadata"], Meta(description="metadata: the code itself is the same")
    ]
    removed: Annotated[Count, Meta(description="Lines")]
    added: Annotated[Count, Meta(description="Lines")]
    diff: Annotated[str, Meta(description="As diff -u shows it")]
    apart: Annotated[
        bool, Meta(description="Whether the source stands in another file than the wrapper")
    ]


class UnmatchedLineEntry(Entry, frozen=True, kw_only=True):
    """A line of one side alone that belongs to no launch or kernel that differs."""

    side: SideName
    number: LineNumber
    text: str


class WrapperDifferenceEntry(Entry, frozen=True, kw_only=True):
    """Two wrappers without their probes."""

    a: WrapperName
    b: WrapperName
    verdict: VerdictField
    probes_a: ProbingEntry | None
    probes_b: ProbingEntry | None
    launches_a: Count
    launches_b: Count
    launches: Annotated[
        tuple[LaunchChangeEntry, ...],
        Meta(description="Launches that differ, in the order of the wrapper"),
    ]
    renamed: tuple[RenamedEntry, ...]
    kernels: tuple[KernelChangeEntry, ...]
    lines: tuple[UnmatchedLineEntry, ...]
    names: Annotated[
        tuple[tuple[LineNumber, LineNumber], ...],
        Meta(
            description="Pairs of lines that differ only in names and hashes that the compiler gave"
        ),
    ]
    notes: Annotated[
        tuple[str, ...], Meta(description="About the file as a whole, such as its line ends")
    ]


class MemberChangeEntry(Entry, frozen=True, kw_only=True):
    """A member of a package that differs."""

    a: OneSided
    b: OneSided
    sha256_a: Sha256 | None
    sha256_b: Sha256 | None
    state: Literal["added", "removed", "renamed", "changed"]


class ValueChangeEntry(Entry, frozen=True, kw_only=True):
    """Metadata of a model that differs; `constants`: the hash of those in the library."""

    model: str
    what: str
    a: str | None
    b: str | None


class PackageDifferenceEntry(Entry, frozen=True, kw_only=True):
    """What differs in packages beside the wrappers."""

    members: tuple[MemberChangeEntry, ...]
    values: tuple[ValueChangeEntry, ...]
    models_a: Annotated[tuple[str, ...], Meta(description="Models of one side alone")]
    models_b: Annotated[tuple[str, ...], Meta(description="Models of one side alone")]
    layout: Annotated[bool, Meta(description="The archives differ though all members are equal")]
    built_a: Annotated[
        CheckStateEntry | None,
        Meta(
            description="Of a patched package: whether its manifest, and its library by hash, are "
            "what instrument packed"
        ),
    ]
    built_b: CheckStateEntry | None


class DiffDocument(Document, frozen=True, kw_only=True, tag="rewriter.diff"):
    """`rewriter diff --json`. Names ending in _a and _b are of the first and the second."""

    version: Literal[2] = 2  # type: ignore[assignment]
    a: Annotated[str, Meta(description="Path of the first artifact")]
    b: str
    verdict: VerdictField
    wrappers: tuple[WrapperDifferenceEntry, ...]
    only_a: Annotated[tuple[str, ...], Meta(description="Wrappers without a counterpart")]
    only_b: Annotated[tuple[str, ...], Meta(description="Wrappers without a counterpart")]
    package: PackageDifferenceEntry | None
    notes: Annotated[
        tuple[str, ...], Meta(description="What was not compared, and other limits of the verdict")
    ]
    unified: Annotated[
        str | UnsetType, Meta(description="With --unified: the texts as diff -u shows them")
    ] = UNSET


def diff_document(difference: Difference, unified: str | None) -> DiffDocument:
    return entry(
        DiffDocument,
        difference,
        a=str(difference.a),
        b=str(difference.b),
        wrappers=tuple(map(_wrapper, difference.wrappers)),
        **({} if unified is None else {"unified": unified}),
    )


def _wrapper(wrapper: WrapperDifference) -> WrapperDifferenceEntry:
    return entry(
        WrapperDifferenceEntry,
        wrapper,
        a=wrapper.name_a,
        b=wrapper.name_b,
        probes_a=wrapper.probing_a,
        probes_b=wrapper.probing_b,
        launches_a=wrapper.count_a,
        launches_b=wrapper.count_b,
        renamed=tuple({"a": a, "b": b} for a, b in wrapper.renamed),
    )
