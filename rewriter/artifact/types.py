"""An artifact and its wrappers, which are read when needed. Nothing is executed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from rewriter.artifact.graph_kind import GraphKind, graph_in, graph_of
from rewriter.core import edit, markers
from rewriter.core.edit import Restored
from rewriter.core.errors import RewriterError
from rewriter.core.markers import ProbeHeader
from rewriter.core.source import Source
from rewriter.core.types import Json, Language
from rewriter.locate.languages import language
from rewriter.locate.types import Launch, Located, Unrecognised
from rewriter.locate.vocabulary import vocabulary

if TYPE_CHECKING:
    # Only needed for wrappers inside other files.
    from rewriter.artifact.containers.types import Container, Stored
    from rewriter.artifact.package.model import Package
    from rewriter.artifact.saved_directory import SavedDirectory


@cache
def _device() -> re.Pattern[bytes]:
    """A pattern for a device other than the CPU in the text of a wrapper."""
    named = f"({'|'.join(map(re.escape, vocabulary().accelerators))})"
    text = (
        rf"\b{named}(?::\d+)?'|^\s.*empty_strided_{named}\("
        rf"|\bcached_torch_device_type_{named}\b"
    )
    return re.compile(text.encode(), re.MULTILINE)


@dataclass(frozen=True)
class Wrapper:
    """One source inside an artifact, and what was found in it.

    `name` is its path inside the artifact, `plain` the source without probes. `language` is that of
    the launches; C++ may be inside a Python file: see `is_module`. `operators` are the nodes of the
    `.wrapper.json` beside a C++ wrapper, which describe its calls of the proxy executor. If the
    source is inside another file (a log, a page or a container), `inside` is that file, and no file
    exists at `path`. `stored` is what a container says about the wrapper.
    """

    name: str
    source: bytes
    language: Language
    path: Path
    operators: tuple[Json, ...] = ()
    inside: Path | None = None
    stored: Stored | None = None
    _located: list[Located] = field(default_factory=list, init=False, repr=False, compare=False)

    @cached_property
    def is_module(self) -> bool:
        """Whether the file is a Python module, which can be imported and called."""
        return language(self.language).is_module(self.name, self.source)

    @cached_property
    def graph(self) -> GraphKind:
        """The graph of a training run that the wrapper computes, by the names of its inputs."""
        return graph_of(self.source)

    @cached_property
    def probes(self) -> ProbeHeader | None:
        """The content of the header, if the wrapper is instrumented."""
        return markers.find_header(self.source)

    @cached_property
    def restored(self) -> Restored:
        return edit.strip(self.source)

    @property
    def removed(self) -> int:
        """The number of lines that were inserted for probes."""
        return len(markers.lines(self.source)) - len(self.restored.kept)

    @cached_property
    def plain(self) -> Source:
        return Source(str(self.path), self.restored.source)

    @property
    def located(self) -> Located:
        """The launches of the plain source; `launches` has the lines in the file as it is."""
        if not self._located:
            self.remember(self.locate(self.plain))
        return self._located[0]

    @property
    def is_located(self) -> bool:
        """Whether `located` was computed already."""
        return bool(self._located)

    def remember(self, located: Located) -> None:
        """Keep `located`, which may have been computed in another process."""
        self._located[:] = [located]

    def locate(self, source: Source) -> Located:
        """Locate the launches of a source of this wrapper's language."""
        return language(self.language).locate(source, self.operators)

    @cached_property
    def launches(self) -> tuple[Launch, ...]:
        lines = self.restored.kept
        return tuple(
            launch.placed(lines[launch.line - 1], self.name) for launch in self.located.launches
        )

    @cached_property
    def unrecognised(self) -> tuple[Unrecognised, ...]:
        lines = self.restored.kept
        return tuple(
            replace(call, line=lines[call.line - 1], wrapper=self.name)
            for call in self.located.unrecognised
        )

    @cached_property
    def devices(self) -> tuple[str, ...]:
        """The types of device other than the CPU that the wrapper runs on, such as `cuda`."""
        matches = _device().findall(self.plain.data)
        return tuple(sorted({name.decode() for names in matches for name in names if name}))


@dataclass(frozen=True)
class Artifact:
    """A file or a directory, and the wrappers in it.

    `unread` are files of a directory that were not read, and what they are. `damaged` are the names
    of wrappers that cannot be read, and why. `package` has the content of a `.pt2` besides its
    wrappers, which are in the order of its models. `container` is a file of torch that contains the
    wrappers among other data, and `stored` are all wrappers in it, including those that were not
    chosen. `directory` is one that is loaded as a whole, and `contained` are the containers in it,
    whose wrappers are among those of the directory.
    """

    path: Path
    wrappers: tuple[Wrapper, ...]
    unread: tuple[tuple[str, str], ...] = ()
    package: Package | None = None
    damaged: tuple[tuple[str, RewriterError], ...] = ()
    directory: SavedDirectory | None = None
    contained: tuple[Artifact, ...] = ()
    container: Container | None = None
    stored: tuple[Wrapper, ...] = ()

    @property
    def launches(self) -> tuple[Launch, ...]:
        """Every launch, wrapper by wrapper; its index counts within its wrapper."""
        return tuple(launch for wrapper in self.wrappers for launch in wrapper.launches)

    @property
    def unrecognised(self) -> tuple[Unrecognised, ...]:
        return tuple(call for wrapper in self.wrappers for call in wrapper.unrecognised)

    @property
    def only(self) -> Wrapper:
        """The wrapper of an artifact that has one. Raises an error that names them if it has
        several."""
        self.require_sound()
        if len(self.wrappers) > 1:
            raise self.several(
                "Choose one: --wrapper takes a name, a pattern, or forward, backward, inference."
            )
        return self.wrappers[0]

    def several(self, hint: str) -> RewriterError:
        """The error if one wrapper was requested, but there are several."""
        names = [_label(wrapper) for wrapper in self.wrappers]
        if self.package is not None:
            names = [model.name for model in self.package.models]
            hint = "Pass --model with one of these names."
        listed = "\n    ".join(names)
        return RewriterError(
            "several-wrappers",
            f"{self.path} holds {len(self.wrappers)} wrappers:\n    {listed}",
            hint=hint,
        )

    def choose(self, patterns: Sequence[str]) -> Artifact:
        """Only the wrappers that a pattern matches by name or graph; all if there is no pattern.

        Raises `RewriterError` if a pattern matches none; the error lists the wrappers.
        """
        if not patterns:
            return self
        if self.package is not None:
            raise RewriterError(
                "idle-options",
                f"--wrapper given, but {self.path} is a package, which has models",
                hint="Pass --model with the name of one.",
            )
        chosen = [
            {wrapper.name for wrapper in self.wrappers if _is_meant(pattern, wrapper)}
            | {name for name, _ in self.damaged if _matches(pattern, name, graph_in(name))}
            for pattern in patterns
        ]
        for pattern, names in zip(patterns, chosen, strict=True):
            if not names:
                there = [_label(wrapper) for wrapper in self.wrappers]
                listed = "\n    ".join([*there, *(name for name, _ in self.damaged)])
                raise RewriterError(
                    "no-such-wrapper",
                    f"--wrapper {pattern!r} matches nothing in {self.path}; "
                    f"there is:\n    {listed}",
                    hint="Pass one of these names, a pattern such as '*forward*', or one of "
                    "forward, backward, inference.",
                )
        wanted = set().union(*chosen)
        return replace(
            self,
            wrappers=tuple(wrapper for wrapper in self.wrappers if wrapper.name in wanted),
            damaged=tuple((name, error) for name, error in self.damaged if name in wanted),
        )

    def require_sound(self) -> None:
        """Raise the error of the first wrapper that cannot be read, if there is one."""
        for _, error in self.damaged:
            raise error


def _label(wrapper: Wrapper) -> str:
    """A wrapper in a list of several, with its graph if the name does not tell."""
    is_named = wrapper.graph == "inference" or wrapper.graph in wrapper.name
    return wrapper.name if is_named else f"{wrapper.name} ({wrapper.graph})"


def _is_meant(pattern: str, wrapper: Wrapper) -> bool:
    names = () if wrapper.stored is None else wrapper.stored.names
    return _matches(pattern, wrapper.name, wrapper.graph) or pattern in names


def _matches(pattern: str, name: str, graph: str) -> bool:
    return pattern == graph or fnmatchcase(name, pattern)
