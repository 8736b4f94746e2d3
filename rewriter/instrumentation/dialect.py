"""How probes are written in a language: a subclass of `Dialect` for each, in `dialects/`."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import ClassVar, cast

from rewriter.artifact.types import Wrapper
from rewriter.core.source import Source
from rewriter.core.types import Json, Language, Phase
from rewriter.locate.types import Argument, MemoryEvent


@dataclass(frozen=True)
class Dialect(ABC):
    """Lines of one language for a wrapper, without indent, mark and newline. `variable` is what the
    recorder is called in it. With `standalone` the header holds the recorder."""

    standalone: bool

    name: ClassVar[str]  # of the language
    comment: ClassVar[str]  # what starts one
    end: ClassVar[str] = ""  # of a statement
    needs_releases: ClassVar[bool] = False  # the runtime learns only from a line of a release
    is_block: ClassVar[bool]  # the header is a text between two marks, and not marked lines
    own_line: ClassVar[re.Pattern[bytes]]  # matches the beginning of each marked line
    at_launch: ClassVar[re.Pattern[bytes]]  # matches a line around a launch; group 1 is the index
    carried: ClassVar[bytes] = b""  # is in marked lines that hold the runtime

    @classmethod
    @abstractmethod
    def of(cls, source: Source, *, standalone: bool) -> Dialect:
        """How probes are written in a plain source."""

    @property
    def packer(self) -> str:
        """The language of the recorder that the header holds; empty if it is not there."""
        return self.name if self.standalone else ""

    @property
    def loading(self) -> tuple[int, str] | None:
        """Where a Python module around C++ loads the recorder, as an offset in the file, and the
        line that does so."""
        return None

    @abstractmethod
    def begin(self, variable: str, *, checks: bool, is_dormant: bool) -> str:
        """The line at the start of an entry, where a call of the wrapper begins.

        With `checks`, it passes the arguments of the entry, if the language has them there.
        """

    def call(self, variable: str, method: str, *values: object, is_dormant: bool = False) -> str:
        """The line that passes values to a method of the recorder. A dormant one costs a look at a
        flag."""
        return f"{variable}.{method}({', '.join(map(str, values))}){self.end}"

    def value(self, variable: str, expression: str) -> str:
        """How a line passes the value of an expression."""
        return expression

    @abstractmethod
    def allocated(self, variable: str, event: MemoryEvent) -> str:
        """The line after an allocation, which may replace the buffer by another one."""

    @abstractmethod
    def header(
        self, variable: str, options: Json, launches: Sequence[Json], inputs: Sequence[str]
    ) -> Sequence[str]:
        """What goes in once, in front of the first entry: the runtime, and the table with the facts
        of each launch."""

    def encode(self, line: str) -> str:
        """A line as the file has to hold it."""
        return line

    @abstractmethod
    def is_bookkeeping(self, lines: bytes, indent: bytes) -> bool:
        """Whether lines of a wrapper only name, allocate and release buffers: nothing in them reads
        or writes a tensor, and all of them run if the first one does. `indent` is that of the line
        before them."""


def class_of(language: Language) -> type[Dialect]:
    """How probes are written in a language."""
    module = import_module(f"rewriter.instrumentation.dialects.{language}")
    return cast("type[Dialect]", module.DIALECT)


def dialect_of(wrapper: Wrapper, *, standalone: bool = False) -> Dialect:
    """How probes are written in a wrapper; with `standalone`, with the recorder in it."""
    return class_of(wrapper.language).of(wrapper.plain, standalone=standalone)


def expression(argument: Argument, phase: Phase) -> str:
    """The expression of an argument's value at a phase; empty if it has none there."""
    if phase == "after" and argument.later is not None:
        return argument.later
    return argument.expr
