"""How probes are written in a language: a module of `dialects/` for each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol, cast

from rewriter.artifact.types import Wrapper
from rewriter.core.source import Source
from rewriter.core.types import Json, Language, Phase
from rewriter.locate.types import Argument, MemoryEvent


@dataclass(frozen=True)
class HeaderLines:
    """What goes in once, in front of the first entry.

    Each of the lines `marked` gets a mark; `block` is text between two marks.
    """

    marked: tuple[str, ...] = ()
    block: tuple[str, ...] = ()


class Dialect(Protocol):
    """Lines of one language, without indent, mark and newline."""

    @property
    def comment(self) -> str:
        """What starts a comment."""

    @property
    def packer(self) -> str:
        """The language of the recorder that the header holds; empty if it is not there."""

    @property
    def loading(self) -> tuple[int, str] | None:
        """Where a Python module around C++ loads the recorder, as an offset in the file, and the
        line that does so."""

    @property
    def needs_releases(self) -> bool:
        """Whether the runtime learns only from a line that a buffer is released."""

    def begin(self, variable: str, *, checks: bool = False, is_dormant: bool = False) -> str:
        """The line at the start of an entry, where a call of the wrapper begins.

        With `checks`, it passes the arguments of the entry, if the language has them there.
        """

    def inputs(self, variable: str, names: Sequence[str], *, is_dormant: bool = False) -> str:
        """The line that passes the inputs of a call to the probes."""

    def around(
        self,
        variable: str,
        phase: Phase,
        launch: int,
        arguments: Sequence[Argument],
        *,
        is_dormant: bool = False,
    ) -> str:
        """The line before or after a launch. A dormant one costs a look at a flag."""

    def allocated(self, variable: str, event: MemoryEvent) -> str:
        """The line after an allocation, which may replace the buffer by another one."""

    def statement(self, call: str) -> str:
        """The line that makes a call and drops its result."""

    def header(
        self, variable: str, options: Json, launches: Sequence[Json], inputs: Sequence[str]
    ) -> HeaderLines:
        """The runtime, and the table with the facts of each launch."""

    def encode(self, line: str) -> str:
        """A line as the file has to hold it."""

    def is_bookkeeping(self, lines: bytes, indent: bytes) -> bool:
        """Whether lines of a wrapper only name, allocate and release buffers: nothing in them reads
        or writes a tensor, and all of them run if the first one does. `indent` is that of the line
        before them."""


class DialectModule(Protocol):
    """What a module of `dialects/` provides."""

    OWN_LINE: re.Pattern[bytes]  # matches the beginning of each marked line that it writes
    AT_LAUNCH: re.Pattern[bytes]  # matches a line around a launch; group 1 is the index
    CARRIED: bytes  # is in marked lines that hold the runtime; may be empty

    def dialect(self, source: Source, *, standalone: bool) -> Dialect:
        """How probes are written in a plain source; with `standalone`, with the recorder in it."""


def module_of(language: Language) -> DialectModule:
    """How probes are written in a language."""
    return cast(DialectModule, import_module(f"rewriter.instrumentation.dialects.{language}"))


def dialect_of(wrapper: Wrapper, *, standalone: bool = False) -> Dialect:
    """How probes are written in a wrapper; with `standalone`, with the recorder in it."""
    return module_of(wrapper.language).dialect(wrapper.plain, standalone=standalone)


def expression(argument: Argument, phase: Phase) -> str:
    """The expression of an argument's value at a phase; empty if it has none there."""
    if phase == "after" and argument.later is not None:
        return argument.later
    return argument.expr
