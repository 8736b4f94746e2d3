"""Probes in Python: calls of the runtime. The wrapper imports it, or holds `runtime/plain.py`."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rewriter.core.source import Source
from rewriter.core.types import Json
from rewriter.instrumentation.dialect import Dialect
from rewriter.locate.types import MemoryEvent

RUNTIME = Path(__file__).parents[2] / "runtime"
_PACKAGE = "_rewriter_runtime_"  # prefix of the name of an embedded runtime
# A statement that names, allocates or releases buffers, or compares their sizes.
_BOOKKEEPING = re.compile(
    rb"(?:del \w+(?:, \w+)*"
    rb"|(?:\w+ = )?(?:empty_strided\w*|reinterpret_tensor|alloc_from_pool|assert_size_stride"
    rb"|assert_alignment|get_raw_stream)\([^()]*(?:(?<!\w)\([^()]*\)[^()]*)*\)"
    rb"|\w+ = \w+(?:\[\d+\])?)"
)
_GPU = "GPU: Sequence[str] = "  # in `plain.py`
_LOADER = """\
def VARIABLE_load(text, name):
    import linecache, sys, types
    if name not in sys.modules:
        module = sys.modules[name] = types.ModuleType(name)
        linecache.cache[name] = len(text), None, text.splitlines(True), name
        exec(compile(text, name, "exec"), module.__dict__)
    return sys.modules[name].attach
VARIABLE_attach = VARIABLE_load(VARIABLE_text, "PACKAGE")
"""


@dataclass(frozen=True)
class Python(Dialect):
    """Lines of Python. With `standalone` the header holds a recorder instead of importing it."""

    name = "Python"
    comment = "#"
    is_block = False
    own_line = re.compile(
        rb"\s*(?:from rewriter\.runtime import |(?:if _\w*\.(?:on|due\(\)): )?_\w*\.\w+\("
        rb"|\w+ = _\w*\.allocated\(|_\w+ = _\w+_attach\(|\{'launch': |\])"
    )
    at_launch = re.compile(rb"\s*(?:if _\w*\.on: )?_\w*\.(?:before|after)\((\d{1,9})[,)]")
    carried = _PACKAGE.encode()

    @classmethod
    def of(cls, source: Source, *, standalone: bool) -> Python:
        return cls(standalone)

    def begin(self, variable: str, *, checks: bool, is_dormant: bool) -> str:
        if_due = f"if {variable}.due(): " if is_dormant else ""
        return f"{if_due}{variable}.begin({'args' if checks else ''})"

    def call(self, variable: str, method: str, *values: object, is_dormant: bool = False) -> str:
        if_on = f"if {variable}.on: " if is_dormant else ""
        return if_on + super().call(variable, method, *values)

    def allocated(self, variable: str, event: MemoryEvent) -> str:
        return f"{event.buffer} = {self.call(variable, 'allocated', event.index, event.buffer)}"

    def header(
        self, variable: str, options: Json, launches: Sequence[Json], inputs: Sequence[str]
    ) -> Sequence[str]:
        given = f", {list(inputs)!r}" if inputs else ""
        return (
            *self._attach(variable),
            f"{variable} = {variable}_attach({options!r}, [",
            *(f"    {row!r}," for row in launches),
            f"]{given})",
        )

    def _attach(self, variable: str) -> list[str]:
        """The lines that make the function `attach`."""
        if not self.standalone:
            return [f"from rewriter.runtime import attach as {variable}_attach"]
        text = standalone_recorder()
        # One process may load several wrappers: those with the same text share its module.
        loader = _LOADER.replace("VARIABLE", variable)
        loader = loader.replace("PACKAGE", f"{_PACKAGE}{zlib.crc32(text.encode()):08x}")
        lines = [f"    {line!r}," for line in text.splitlines(keepends=True)]
        return [f"{variable}_text = ''.join((", *lines, "))", *loader.splitlines()]

    def is_bookkeeping(self, lines: bytes, indent: bytes) -> bool:
        for line in lines.splitlines():
            text = line.lstrip(b" \t")
            if not text or text.startswith(b"#"):
                continue
            if line != indent + text:
                return False
            code = text.removesuffix(b"# reuse").rstrip(b" ;")
            if not all(map(_BOOKKEEPING.fullmatch, re.split(rb"; *", code))):
                return False
        return True


def standalone_recorder() -> str:
    """The text of `plain.py`, with what its loader fills in."""
    from rewriter.runtime.gpu_kinds import gpu_kinds

    text = (RUNTIME / "plain.py").read_text("utf-8")
    return text.replace(f"{_GPU}()", f"{_GPU}{gpu_kinds()!r}", 1)


DIALECT = Python
