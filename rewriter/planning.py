"""Turns launches and probes into insertions. Values in, values out; nothing is edited here."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Iterator
from pathlib import Path

from rewriter import markers, probes
from rewriter.source import Source
from rewriter.types import (
    Argument,
    Format,
    Insertion,
    Json,
    Launch,
    Located,
    Phase,
    Plan,
    Selection,
    Skipped,
)
from rewriter.version import __version__

RUNTIME = Path(__file__).parent / "runtime"


def plan(
    source: Source, located: Located, selection: Selection, *, standalone: bool = False
) -> Plan:
    """Plan the lines that instrumenting `source` puts in.

    One short line goes before and after each chosen launch, as its probes ask for, one line at
    the start of a call, and a header with the facts of every probed launch. With `standalone` the
    header carries the runtime instead of importing it.
    """
    chosen = probes.choose(located.launches, selection)
    lines = _Lines(source)
    if (entry := located.entry) is not None:
        lines.add(entry.start, f"{entry.indent.decode()}{lines.variable}.begin()", "begin")
    phases = probes.phases(selection)
    probed: list[Launch] = []
    skipped: list[Skipped] = []
    facts: list[Json] = []
    for launch in chosen:
        if launch.site.obstacle:
            skipped.append(Skipped(launch, launch.site.obstacle))
            continue
        if launch.site.open_ended and "after" in phases:
            skipped.append(Skipped(launch, f"no line can follow it: {launch.site.open_ended}"))
        values = _values(launch, phases, selection.format, bool(launch.site.open_ended))
        for phase, arguments in values.items():
            lines.around(launch, phase, arguments)
        facts.append(_facts(launch, values))
        probed.append(launch)
    lines.header(located.header, selection, facts, standalone=standalone)
    return Plan(
        lines.insertions(),
        tuple(probed),
        tuple(skipped),
        located.unrecognised,
        probes.unmatched(located.launches, selection),
    )


def _values(
    launch: Launch, phases: dict[Phase, bool], style: Format, ends: bool
) -> dict[Phase, tuple[Argument, ...]]:
    """What each phase of a launch reads, each value once."""
    result: dict[Phase, tuple[Argument, ...]] = {}
    for phase, reads in phases.items():
        if phase == "after" and ends:
            continue
        readable = (a for a in launch.args if _is_read(a, phase, style)) if reads else ()
        result[phase] = tuple({argument.expr: argument for argument in readable}.values())
    return result


def _is_read(argument: Argument, phase: Phase, style: Format) -> bool:
    """A pure output has no value before; a literal is in the source, but upstream prints it."""
    if argument.type == "other" or (phase == "before" and argument.role == "out"):
        return False
    return argument.type == "tensor" or bool(argument.buffer) or style == "upstream"


def _facts(launch: Launch, values: dict[Phase, tuple[Argument, ...]]) -> Json:
    """The row of a launch in the wrapper's table: what is known of it without running it."""
    row: Json = {
        "launch": launch.index,
        "kernel": launch.kernel,
        "kind": launch.kind,
        "scope": launch.scope,
        "line": launch.line,
        "source_nodes": list(launch.source_nodes),
        "origins": list(launch.origins),
        "repeats": launch.repeats,
    }
    for phase, arguments in values.items():
        row[phase] = [
            [a.role, a.name] if a.name == a.expr else [a.role, a.name, a.expr] for a in arguments
        ]
    return row


class _Lines:
    """Collects lines for one file: marked, with its own line ends, in order."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._tag = markers.draw_tag(source.data)
        self._insertions: list[Insertion] = []
        name = "_rw"
        while name.encode() in source.data:
            name += "_"
        self.variable = name

    def add(self, offset: int, line: str, origin: str) -> None:
        data = self._source.data
        at_end = offset == len(data) > 0 and not data.endswith((b"\n", b"\r"))
        text = markers.mark(line, self._tag, self._source.newline_at(offset), at_end=at_end)
        self._insertions.append(Insertion(offset, text, origin))

    def around(self, launch: Launch, phase: Phase, arguments: tuple[Argument, ...]) -> None:
        values = "".join(f", {argument.expr}" for argument in arguments)
        self.add(
            launch.site.start if phase == "before" else launch.site.end,
            f"{launch.site.indent.decode()}{self.variable}.{phase}({launch.index}{values})",
            f"#{launch.index} {phase} {launch.kernel}",
        )

    def header(
        self,
        offset: int,
        selection: Selection,
        facts: list[Json],
        *,
        standalone: bool,
    ) -> None:
        source = self._source
        sha256 = hashlib.sha256(source.data).hexdigest()
        options = {
            "artifact": Path(source.name).name,
            "sha256": sha256,
            "version": __version__,
            "probes": list(selection.probes),
            "when": selection.when,
            "format": selection.format,
            "values": selection.values,
        }
        lines = [
            markers.header_line(__version__, selection.probes, sha256),
            *(_embedded(self.variable) if standalone else [_imported(self.variable)]),
            f"{self.variable} = {self.variable}_attach({options!r}, [",
            *(f"    {row!r}," for row in facts),
            "])",
        ]
        self._insertions[:0] = [
            Insertion(offset, markers.mark(line, self._tag, source.newline_at(offset)), "header")
            for line in lines
        ]

    def insertions(self) -> tuple[Insertion, ...]:
        return tuple(self._insertions)


def _imported(variable: str) -> str:
    return f"from rewriter.runtime import attach as {variable}_attach"


def _embedded(variable: str) -> Iterator[str]:
    """The runtime's own sources in the file, and the few lines that import them from there."""
    modules = {
        ".".join(path.relative_to(RUNTIME).with_suffix("").parts): path.read_text("utf-8")
        for path in sorted(RUNTIME.rglob("*.py"))
    }
    sources = repr(modules).encode()
    packed = base64.b85encode(zlib.compress(sources, 9)).decode()
    yield f"{variable}_packed = ("
    for start in range(0, len(packed), 120):
        yield f"    {packed[start : start + 120]!r}"
    yield ")"
    loader = (RUNTIME / "embedded.txt").read_text("utf-8")
    # A name of its own for each version: two standalone wrappers may meet in one process.
    for name, value in (
        ("PACKED", f"{variable}_packed"),
        ("PACKAGE", f"_rewriter_runtime_{zlib.crc32(sources):08x}"),
        ("VARIABLE", variable),
    ):
        loader = loader.replace(name, value)
    yield from loader.splitlines()
