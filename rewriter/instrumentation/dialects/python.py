"""Probes in Python: calls of the runtime, which the wrapper imports or holds itself."""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from rewriter.core.source import Source
from rewriter.core.types import Json, Phase
from rewriter.instrumentation.dialect import HeaderLines
from rewriter.locate.types import Argument, MemoryEvent
from rewriter.runtime import cpp_sources

RUNTIME = Path(__file__).parents[2] / "runtime"
OWN_LINE = re.compile(
    rb"\s*(?:from rewriter\.runtime import |(?:if _\w*\.(?:on|due\(\)): )?_\w*\.\w+\("
    rb"|\w+ = _\w*\.allocated\(|_\w+ = _\w+_attach\(|\{'launch': |\])"
)
AT_LAUNCH = re.compile(rb"\s*(?:if _\w*\.on: )?_\w*\.(?:before|after)\((\d{1,9})[,)]")
_PACKAGE = "_rewriter_runtime_"  # prefix of the name of an embedded runtime
CARRIED = _PACKAGE.encode()
# A statement that names, allocates or releases buffers, or compares their sizes.
_BOOKKEEPING = re.compile(
    rb"(?:del \w+(?:, \w+)*"
    rb"|(?:\w+ = )?(?:empty_strided\w*|reinterpret_tensor|alloc_from_pool|assert_size_stride"
    rb"|assert_alignment|get_raw_stream)\([^()]*(?:(?<!\w)\([^()]*\)[^()]*)*\)"
    rb"|\w+ = \w+(?:\[\d+\])?)"
)
# What a standalone wrapper packs its runtime into: as `_embedded` writes it, and wrote it once.
_PACKED = re.compile(
    rb"_packed = (?:''\.join\()?\([^\r\n]*[\r\n]+((?:    '[^'\r\n]*'[^\r\n]*[\r\n]+)+)\)"
)
_PIECE = re.compile(rb"'([^'\r\n]*)'")


@dataclass(frozen=True)
class Python:
    """Lines of Python. With `standalone` the header holds the runtime instead of importing it.

    `runtime` is that as packed by a version of zlib, `packer`.
    """

    standalone: bool = False
    comment: str = "#"
    runtime: str = ""
    packer: str = ""
    loading: None = None
    needs_releases: bool = False

    def begin(self, variable: str, *, checks: bool = False, is_dormant: bool = False) -> str:
        if_due = f"if {variable}.due(): " if is_dormant else ""
        return f"{if_due}{variable}.begin({'args' if checks else ''})"

    def inputs(self, variable: str, names: Sequence[str], *, is_dormant: bool = False) -> str:
        return f"{_if_on(variable, is_dormant)}{variable}.inputs({', '.join(names)})"

    def around(
        self,
        variable: str,
        phase: Phase,
        launch: int,
        arguments: Sequence[Argument],
        *,
        is_dormant: bool = False,
    ) -> str:
        values = "".join(f", {argument.expr}" for argument in arguments)
        return f"{_if_on(variable, is_dormant)}{variable}.{phase}({launch}{values})"

    def allocated(self, variable: str, event: MemoryEvent) -> str:
        return f"{event.buffer} = {variable}.allocated({event.index}, {event.buffer})"

    def statement(self, call: str) -> str:
        return call

    def header(
        self, variable: str, options: Json, launches: Sequence[Json], inputs: Sequence[str]
    ) -> HeaderLines:
        given = f", {list(inputs)!r}" if inputs else ""
        return HeaderLines(
            marked=(
                *(_embedded(variable, self.runtime) if self.standalone else [_imported(variable)]),
                f"{variable} = {variable}_attach({options!r}, [",
                *(f"    {row!r}," for row in launches),
                f"]{given})",
            )
        )

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

    def encode(self, line: str) -> str:
        return line


def dialect(source: Source, *, standalone: bool) -> Python:
    """How probes are written in a Python wrapper."""
    return Python(standalone, packer=zlib.ZLIB_RUNTIME_VERSION if standalone else "")


def repacked(source: bytes, packer: str) -> Python | None:
    """As `dialect` with `standalone`, with the runtime as it is packed in `source`."""
    match = _PACKED.search(source)
    if match is None:
        return None
    runtime = b"".join(_PIECE.findall(match[1])).decode("ascii", "replace")
    content = _unpacked(runtime)
    if content is None or content != _sources():
        return None
    return Python(True, runtime=runtime, packer=packer)


def _unpacked(text: str) -> bytes | None:
    """The text that `packed` packed; `None` if it is not as `packed` writes it."""
    try:
        data = base64.b85decode(text)
        unpacker = zlib.decompressobj()
        content = unpacker.decompress(data)
    except (ValueError, zlib.error):
        return None
    whole = unpacker.eof and not unpacker.unused_data
    return content if whole and base64.b85encode(data).decode() == text else None


def _if_on(variable: str, is_dormant: bool) -> str:
    return f"if {variable}.on: " if is_dormant else ""


def _imported(variable: str) -> str:
    return f"from rewriter.runtime import attach as {variable}_attach"


def packed() -> str:
    """The runtime's own sources as text."""
    return _packed(_sources())


@lru_cache(maxsize=1)
def _packed(sources: bytes) -> str:
    return base64.b85encode(zlib.compress(sources, 9)).decode()


@cache
def _sources() -> bytes:
    modules = {
        ".".join(path.relative_to(RUNTIME).with_suffix("").parts): path.read_text("utf-8")
        for path in sorted(RUNTIME.rglob("*.py"))
        if path.parent.name != "host"  # runs only in our own processes
    }
    # The engine is compiled where the wrapper runs.
    texts = {name: cpp_sources.together(name) for name in cpp_sources.COMPILED}
    return repr({**modules, **texts}).encode()


def _embedded(variable: str, runtime: str) -> Iterator[str]:
    """The runtime in the file, and the few lines that import it from there."""
    sources, runtime = _sources(), runtime or packed()
    yield f"{variable}_packed = ''.join(("
    for start in range(0, len(runtime), 120):
        yield f"    {runtime[start : start + 120]!r},"
    yield "))"
    loader = (RUNTIME / "embedded.txt").read_text("utf-8")
    # Each version has its own name: one process may load two standalone wrappers.
    for name, value in (
        ("PACKED", f"{variable}_packed"),
        ("PACKAGE", f"{_PACKAGE}{zlib.crc32(sources):08x}"),
        ("VARIABLE", variable),
    ):
        loader = loader.replace(name, value)
    yield from loader.splitlines()
