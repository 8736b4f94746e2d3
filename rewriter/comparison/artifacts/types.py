"""The types that describe how two artifacts differ. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, NamedTuple

from rewriter.core.documents import Count, LineNumber, Sha256
from rewriter.core.printed import printed
from rewriter.instrumentation.probe_check import ProbeCheck
from rewriter.locate.types import Launch

# `unverified`: the same without probes, which cannot be checked.
ArtifactVerdict = Literal["identical", "instrumented", "unverified", "different"]
SideName = Literal["a", "b"]
Change = Literal["kernel", "arguments", "scope", "order", "text"]


@dataclass(frozen=True)
class Probing:
    """The probes of one side, and how many of its launches have one.

    `exact` is false if the file was edited after it was instrumented. `check` says whether the
    probes are what `instrument` writes.
    """

    probes: tuple[str, ...]
    launches: Count
    exact: bool
    check: ProbeCheck


@printed("a b changes details")
@dataclass(frozen=True)
class LaunchChange:
    """A launch that differs, or that only one side has: then the other is `None`.

    `changes` are words: `kernel`, `arguments`, `scope`, `order` (it is at another place), `text`
    (the statement has another form). `details` are sentences for people.
    """

    a: Launch | None
    b: Launch | None
    changes: tuple[Change, ...] = ()
    details: tuple[str, ...] = ()

    @property
    def launch(self) -> Launch:
        """The launch in the second wrapper, or in the first if only that has it."""
        launch = self.b or self.a
        assert launch is not None
        return launch


@dataclass(frozen=True)
class KernelChange:
    """A kernel whose source differs, or that only one side has: then the other name is `None`.

    `part` is `metadata` if the code is equal and only the arguments of its decorators or its
    imports differ. `removed` and `added` are numbers of lines. `apart`: the source is not in the
    wrapper's file.
    """

    a: str | None
    b: str | None
    part: Literal["code", "metadata"] = "code"
    removed: Count = 0
    added: Count = 0
    diff: str = field(default="", repr=False)
    apart: bool = False


@dataclass(frozen=True)
class UnmatchedLine:
    """A line that only one side has, by its number in the file as it is."""

    side: SideName
    number: LineNumber
    text: str


@printed("a b")
class RenamedKernel(NamedTuple):
    """A launch that differs only in the generated name of its kernel."""

    a: Launch
    b: Launch


@printed(
    "a=name_a b=name_b verdict probes_a=probing_a probes_b=probing_b launches_a=count_a"
    " launches_b=count_b launches renamed kernels lines names notes"
)
@dataclass(frozen=True)
class WrapperDifference:
    """Two wrappers without their probes. All bytes that differ are in one of the lists.

    `count_a` and `count_b` are numbers of launches, `lines` those that belong to no differing
    launch or kernel. `names` are pairs of lines, by number, that differ only in names, numbers and
    hashes from the compiler, `notes` sentences about the file as a whole, such as its line ends.
    `plain_a` and `plain_b` are the sources, for a textual difference.
    """

    name_a: str
    name_b: str
    verdict: ArtifactVerdict
    probing_a: Probing | None = None
    probing_b: Probing | None = None
    count_a: Count = 0
    count_b: Count = 0
    launches: tuple[LaunchChange, ...] = ()
    renamed: tuple[RenamedKernel, ...] = ()
    kernels: tuple[KernelChange, ...] = ()
    lines: tuple[UnmatchedLine, ...] = ()
    names: tuple[tuple[LineNumber, LineNumber], ...] = ()
    notes: tuple[str, ...] = ()
    plain_a: bytes = field(default=b"", repr=False)
    plain_b: bytes = field(default=b"", repr=False)

    @property
    def probes_changed(self) -> bool:
        """Whether the only difference is that some probes are not what `instrument` writes."""
        rest = (self.launches, self.kernels, self.lines, self.names, self.renamed)
        return self.verdict == "different" and not any(rest) and self.plain_a == self.plain_b


@printed("a b sha256_a sha256_b state")
@dataclass(frozen=True)
class MemberChange:
    """A member of a package that differs or has another name, or that only one side has.

    Names are without the archive's own; hashes are SHA-256 of the contents.
    """

    a: str | None
    b: str | None
    sha256_a: Sha256 | None
    sha256_b: Sha256 | None

    @property
    def state(self) -> Literal["added", "removed", "renamed", "changed"]:
        if self.a is None:
            return "added"
        if self.b is None:
            return "removed"
        return "renamed" if self.sha256_a == self.sha256_b else "changed"


@dataclass(frozen=True)
class ValueChange:
    """A fact that a model states about itself; `None` if one side does not state it.

    `what` is a key of its metadata, or `constants`: the hash of those in its library.
    """

    model: str
    what: str
    a: str | None
    b: str | None


@dataclass(frozen=True)
class PackageDifference:
    """What differs in packages besides the wrappers.

    `models_a` and `models_b` are models that only one side has. `layout`: the archives differ
    although all members are equal, in the order, dates or compression of members. `built_a` and
    `built_b` say for patched packages whether they are what `instrument` packs.
    """

    members: tuple[MemberChange, ...] = ()
    values: tuple[ValueChange, ...] = ()
    models_a: tuple[str, ...] = ()
    models_b: tuple[str, ...] = ()
    layout: bool = False
    built_a: ProbeCheck | None = None
    built_b: ProbeCheck | None = None


@dataclass(frozen=True)
class Difference:
    """Two artifacts of one kind. `only_a` and `only_b` are wrappers without a counterpart.

    `notes` are sentences for people about what the verdict does not cover.
    """

    a: Path
    b: Path
    verdict: ArtifactVerdict
    wrappers: tuple[WrapperDifference, ...]
    only_a: tuple[str, ...] = ()
    only_b: tuple[str, ...] = ()
    package: PackageDifference | None = None
    notes: tuple[str, ...] = ()

    @property
    def probes_changed(self) -> bool:
        """Whether the only difference is that some probes are not what `instrument` writes."""
        package = self.package or PackageDifference()
        plain = replace(package, built_a=None, built_b=None) == PackageDifference()
        return (
            self.verdict == "different"
            and not (self.only_a or self.only_b)
            and plain
            and all(
                wrapper.verdict != "different" or wrapper.probes_changed
                for wrapper in self.wrappers
            )
        )
