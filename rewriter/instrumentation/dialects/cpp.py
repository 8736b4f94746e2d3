"""Probes in C++: calls of the recorder, to which the file gets a small interface; or with
`standalone` the recorder itself, as C++ source."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rewriter.core.source import Source
from rewriter.core.types import Json
from rewriter.instrumentation.dialect import Dialect
from rewriter.instrumentation.probes import registry
from rewriter.locate.cpp import embedded
from rewriter.locate.cpp.embedded import Embedded
from rewriter.locate.types import MemoryEvent
from rewriter.runtime import bundle
from rewriter.runtime.table import input_texts, option_texts, row_texts

_SPACE = "inductor_rewriter"
_BYTE = re.compile("[\udc80-\udcff]")
_LOADING = "from rewriter.runtime.recorder_library import load"
# How the table begins, and its last line.
TABLE_BEGIN, TABLE_END = "const char* const options[]", "Table wrapper"
_ARRAY = b"ArrayRefTensor"
_VIEW = re.compile(
    r"wrap_with_raii_handle_if_needed\(reinterpret_tensor_wrapper\("
    r"\s*(\w+, \d+, \w+, \w+, [^(){},]+)\)\)$"
)
_COMMENT = re.compile(rb"//[^\r\n]*")
_DECLARED = re.compile(rb"\bRAIIAtenTensorHandle +\w+ *\(")
_CALLED = re.compile(rb"\b(\w+) *\(")
# Statements that name, allocate or release buffers.
_BOOKKEEPING = frozenset(
    b"RAIIAtenTensorHandle AOTI_TORCH_ERROR_CODE_CHECK aoti_torch_empty_strided reset move"
    b" reinterpret_tensor_wrapper wrap_with_raii_handle_if_needed".split()
)
# Also a directive, and where a block begins or ends.
_CONTROL_FLOW = re.compile(
    rb"^\s*#|\{\s*$|^\s*\}|\b(?:if|else|for|while|do|switch|goto|return|throw|try)\b", re.MULTILINE
)


@dataclass(frozen=True)
class Cpp(Dialect):
    """Lines of C++, encoded for the file or for the Python string that they go into."""

    text: Embedded

    name = "C++"
    comment = "//"
    end = ";"
    needs_releases = True
    is_block = True
    own_line = re.compile(
        rb"\s*(?:inductor_rewriter::Call \w+\(|_\w*\.\w+\()|"
        rb"from rewriter\.(?:runtime|instrumentation)\.recorder_library import load"
    )
    at_launch = re.compile(rb"\s*_\w*\.(?:before|after)\((\d{1,9})[,)]")

    @classmethod
    def of(cls, source: Source, *, standalone: bool) -> Cpp:
        return cls(standalone, embedded.extract(source))

    @property
    def loading(self) -> tuple[int, str] | None:
        if self.standalone or self.text.module is None:
            return None
        return self.text.statement, f"{_LOADING} as _rw_load; _rw_load()"

    def begin(self, variable: str, *, checks: bool, is_dormant: bool) -> str:
        return f"{_SPACE}::Call {variable}({_SPACE}::wrapper);"

    def value(self, variable: str, expression: str) -> str:
        # A view as the arguments that make it: temporaries with destructors take long to compile.
        return _VIEW.sub(rf"{variable}.view(\1)", expression)

    def allocated(self, variable: str, event: MemoryEvent) -> str:
        return self.call(variable, "allocated", event.index, event.buffer)

    def header(
        self, variable: str, options: Json, launches: Sequence[Json], inputs: Sequence[str]
    ) -> Sequence[str]:
        if self.standalone:
            begin = f"{bundle.text()}{bundle.BEGIN}\n"
        else:
            begin = bundle.interface(
                arrays=_ARRAY in self.text.data,
                memory=any(registry()[name].memory for name in options["probes"]),
            )
        table = table_lines(options, launches, inputs)
        return (*begin.splitlines(), *table, bundle.END)

    def encode(self, line: str) -> str:
        return self.text.encode(line)

    def is_bookkeeping(self, lines: bytes, indent: bytes) -> bool:
        code = _COMMENT.sub(b"", lines)
        called = _CALLED.findall(_DECLARED.sub(b"", code))
        return not _CONTROL_FLOW.search(code) and _BOOKKEEPING.issuperset(called)


DIALECT = Cpp


def table_lines(options: Json, launches: Sequence[Json], inputs: Sequence[str]) -> Iterator[str]:
    """The table of a wrapper, between `bundle.BEGIN` and `bundle.END`."""
    yield f"{TABLE_BEGIN} = {{{', '.join(map(_literal, option_texts(options)))}}};"
    yield "const char* const rows[][14] = {"
    for row in launches:
        yield f"    {{{', '.join(map(_literal, row_texts(row)))}}},"
    yield "};"
    given = _literal(input_texts(inputs))
    yield f"{TABLE_END}{{options, rows, {given}, sizeof rows / sizeof *rows, nullptr, nullptr}};"


def _literal(value: str | None) -> str:
    if value is None:
        return "nullptr"
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    # The text may stand in a Python string, which three quotes would end.
    escaped = escaped.replace("\r", "\\r").replace("'''", "\\'\\'\\'")
    # A byte of a file's name that is no UTF-8, which Python has as a surrogate.
    escaped = _BYTE.sub(lambda byte: rf"\{ord(byte[0]) - 0xDC00:03o}", escaped)
    return f'"{escaped}"'
