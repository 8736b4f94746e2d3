"""An artifact and its wrappers, which are read when needed. Nothing is executed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

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
    from rewriter.core.documents import WrapperName
    from rewriter.core.pickle_reader import Pickle
    from rewriter.core.transaction import Transaction

# How torch loads what it saved: `CompiledArtifact.load` with a format, or `load_compiled_function`,
# as `rewriter/runtime/host/saved.py` calls them.
Loader = Literal["binary", "unpacked", "function"]


@cache
def _device() -> re.Pattern[bytes]:
    """A pattern for a device other than the CPU in the text of a wrapper."""
    named = f"({'|'.join(map(re.escape, vocabulary().accelerators))})"
    text = (
        rf"\b{named}(?::\d+)?'|^\s.*empty_strided_{named}\("
        rf"|\bcached_torch_device_type_{named}\b"
    )
    return re.compile(text.encode(), re.MULTILINE)


class Place(NamedTuple):
    """A place of a wrapper in a container: the offsets of its key and of its source."""

    key: int
    source: int


@dataclass(frozen=True)
class Stored:
    """What a container says about a wrapper in it; empty for a wrapper that is in none.

    Unless the file exists, torch writes the source to `<key>.py` in its cache; then it runs that
    file (torch/_inductor/output_code.py). The same wrapper may be at several places. `submodules`
    are the parts of a model that run it, such as `submod_2 (1, 8192)`, and `layers` those whose
    weights they take, such as `layers.3`.
    """

    key: str = ""
    places: tuple[Place, ...] = ()
    submodules: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Other names for the wrapper: its submodules, with or without sizes, and layers."""
        return (
            *self.submodules,
            *(submodule.split(" ")[0] for submodule in self.submodules),
            *self.layers,
        )


@dataclass(frozen=True)
class Wrapper:
    """One source inside an artifact, and what was found in it.

    `name` is its path inside the artifact, `plain` the source without probes. `language` is that of
    the launches; C++ may be inside a Python file: see `is_module`. `operators` are the nodes of the
    `.wrapper.json` beside a C++ wrapper, which describe its calls of the proxy executor. If the
    source is inside another file (a log, a page or a container), `inside` is that file, and no file
    exists at `path`. `stored` is what a container says about the wrapper. `is_fragment` as in
    `Source`.
    """

    name: WrapperName
    source: bytes
    language: Language
    path: Path
    operators: tuple[Json, ...] = ()
    inside: Path | None = None
    stored: Stored = Stored()
    is_fragment: bool = False
    _located: list[Located] = field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def file(self) -> Path:
        """The file that the source is in."""
        return self.inside or self.path

    @property
    def has_file(self) -> bool:
        """Whether the source is a file of its own."""
        return self.inside is None

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

    @property
    def replaced(self) -> tuple[int, ...]:
        """The launches that are replaced by what their graph says, by their indices."""
        if self.probes is None or self.probes.probes != (markers.REFERENCE,):
            return ()
        options = markers.options(self.source, self.probes.tag) or {}
        return tuple(launch["range"][0] for launch in options.get("launches", ()))

    @property
    def original_key(self) -> str:
        """The key under which torch stored the wrapper without probes in a container."""
        if not self.stored.key or self.probes is None:
            return self.stored.key
        # Without a recorded key, the cached file had probes when torch saved the container.
        recorded = markers.options(self.source, self.probes.tag) or {}
        return str(recorded.get("key", "")) or self.stored.key

    @cached_property
    def restored(self) -> Restored:
        return edit.strip(self.source)

    @property
    def removed(self) -> int:
        """The number of lines that were inserted for probes."""
        return len(markers.lines(self.source)) - len(self.restored.kept)

    @cached_property
    def plain(self) -> Source:
        return Source(str(self.path), self.restored.source, self.is_fragment)

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
            replace(launch, line=lines[launch.line - 1], wrapper=self.name)
            for launch in self.located.launches
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
class NewFile:
    """A file of an artifact with new sources in it: its bytes before, after, and without probes.

    `wrappers` are the names of those with new sources. In a directory for results it is called
    `name`. The files `paired` with it are called as it is, but for their suffix, and are written
    with it; those `beside` it stay as they are, and go with it to another directory. `warning` says
    why a file that looks like one of a pair is none.
    """

    path: Path
    name: str
    before: bytes = field(repr=False)
    after: bytes = field(repr=False)
    plain: bytes = field(repr=False)
    wrappers: tuple[str, ...]
    paired: tuple[NewFile, ...] = ()
    beside: tuple[Path, ...] = ()
    warning: str = ""

    @property
    def changed(self) -> bool:
        return self.before != self.after

    @property
    def keeps_probes(self) -> bool:
        """Whether it has probes, and none of them changes."""
        return self.before == self.after != self.plain

    def put(self, changes: Transaction, path: Path, *, overwrite: bool) -> None:
        """Write it elsewhere."""
        from rewriter.core import files

        files.put(changes, path, self.after, overwrite=overwrite)

    def put_in_place(self, changes: Transaction, *, overwrite: bool) -> Path | None:
        """Write it where it was, and keep what it is without probes beside it; returns the path of
        that, if there is one then."""
        from rewriter.core import files

        return files.put_in_place(changes, self.path, self.after, self.plain, overwrite=overwrite)


@dataclass(frozen=True)
class Form:
    """What a file or directory is that is no text: its name for scripts, and for people.

    `loader` is how torch loads it by itself; without one only the program can that it was made for.
    `note` is said where a copy of it is written.
    """

    name: str = ""
    description: str = ""
    loader: Loader | None = None
    note: str = ""


@dataclass(frozen=True)
class Artifact:
    """A file or a directory, and the wrappers in it. Each form is a subclass, which has the answers
    that are not those of one text file.

    `unread` are files of a directory that were not read, and what they are. `damaged` are the names
    of wrappers that cannot be read, and why. New sources go into what `is_text`, and into files
    with other data, by `rewritten`; what `is_rebuilt` is built again.
    """

    path: Path
    wrappers: tuple[Wrapper, ...]
    unread: tuple[tuple[str, str], ...] = ()
    damaged: tuple[tuple[str, RewriterError], ...] = ()
    form: Form = Form()

    is_text: ClassVar[bool] = True
    is_rebuilt: ClassVar[bool] = False
    is_copied_whole: ClassVar[bool] = False

    def rewritten(self, sources: Mapping[str, bytes]) -> tuple[NewFile, ...]:
        """The files that change if wrappers get new sources; `sources` has these by name."""
        raise NotImplementedError

    def makes_one(self, output: str | None) -> bool:
        """Whether the result is one file, rather than several or a directory."""
        return True

    def require_target(
        self, output: str | None, *, in_place: bool, shown: bool, probing: bool
    ) -> None:
        """Raise `RewriterError` if results cannot go where options say.

        They are only `shown`, or go to `output`, or where the artifact is. They have probes if they
        are made by `probing`.
        """
        if output == "-" and not self.is_text:
            raise RewriterError(
                "not-text",
                f"{self.path} is {self.form.description}, and -o - is for text",
                hint="Name a file with -o. --diff prints what changes in the wrappers.",
            )

    def labels(self) -> list[str]:
        """The names of the wrappers in prints; empty if there is only one."""
        from rewriter.core.labels import labels

        return labels([(wrapper.graph, wrapper.name) for wrapper in self.wrappers])

    def title(self, wrapper: Wrapper) -> str:
        """What a diff calls a wrapper."""
        return wrapper.path.name

    def logs(self) -> Iterator[Path]:
        """The logs of `TORCH_TRACE` with facts about the wrappers."""
        return iter(())

    def pickles(self) -> Mapping[Path, Sequence[Pickle]]:
        """The pickles with entries of torch's caches that were read with the wrappers, by file."""
        return {}

    def remainder(self) -> bytes:
        """What a file holds besides its wrappers, their keys and all probes."""
        return b""

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
        listed = "\n    ".join(_label(wrapper) for wrapper in self.wrappers)
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
    return _matches(pattern, wrapper.name, wrapper.graph) or pattern in wrapper.stored.names


def _matches(pattern: str, name: str, graph: str) -> bool:
    return pattern == graph or fnmatchcase(name, pattern)
