"""Checks that the probes in a file are what `instrument` writes.

The file is stripped and instrumented again with the options that it records, and the two are
compared byte for byte. Nothing in the file is trusted: its options only decide what to compare it
with.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from rewriter.artifact.types import Wrapper
from rewriter.artifact.wrapper_file import operators_beside
from rewriter.core import edit, markers
from rewriter.core.errors import RewriterError
from rewriter.core.printed import printed
from rewriter.instrumentation import options_line, probes
from rewriter.instrumentation.dialect import dialect_of
from rewriter.instrumentation.options_line import OptionsRecord
from rewriter.instrumentation.planning import plan_probes
from rewriter.instrumentation.types import Selection
from rewriter.locate.guards import Guards, is_row
from rewriter.version import __version__

if TYPE_CHECKING:
    from rewriter.core.documents import LineNumber

CheckState = Literal["verified", "unverified", "changed"]
_WIDTH = 80


@printed("state reason")
@dataclass(frozen=True)
class ProbeCheck:
    """`verified`: every byte beyond the original is what `instrument` writes; `changed`: some byte
    is not; `unverified`: it cannot be checked. `reason` explains the last two, `line` is the first
    line that differs."""

    state: CheckState
    reason: str = ""
    line: LineNumber | None = None


def check(wrapper: Wrapper) -> ProbeCheck | None:
    """Check the probes of a wrapper; `None` if it has none."""
    header = wrapper.probes
    if header is None:
        return _without_header(wrapper.source)
    if wrapper.replaced:
        return ProbeCheck("unverified", "its launches are replaced by what its graph says")
    if not wrapper.restored.exact:
        return ProbeCheck("changed", "without them it is not the file that the probes went into")
    if header.version != __version__:
        return ProbeCheck(
            "unverified",
            f"{header.version} wrote them, and this is {__version__}: that version can check them",
        )
    recorded = options_line.read(wrapper.source, header.tag, header.probes)
    if recorded is None:
        return ProbeCheck("unverified", "the file does not say with which options they were made")
    record, selection = recorded
    try:
        probes.check(header.probes)
        with_operators = _with_operators(wrapper, record)
        if with_operators is None:
            return ProbeCheck(
                "unverified", "the .json with the meanings of its operators is missing, or another"
            )
        return _compare(with_operators, record, selection)
    except RewriterError as error:
        return ProbeCheck("changed", f"they cannot be made again: {error.message}")
    except (ValueError, TypeError, AttributeError) as error:
        return ProbeCheck("changed", f"no instrument has such options: {error}")


def _without_header(source: bytes) -> ProbeCheck | None:
    """Check a file without a header of probes; `None` if it has no other line of probes."""
    line = options_line.find(source)
    if not line:
        return None
    return ProbeCheck(
        "changed",
        f"line {line} is theirs, and the line that begins them is missing or edited",
        line,
    )


def _with_operators(wrapper: Wrapper, record: OptionsRecord) -> Wrapper | None:
    """The wrapper with the operators that it was instrumented with; `None` if they are gone."""
    if record.operators == options_line.operators_hash(wrapper.operators):
        return wrapper
    # The operators file is beside the file that was instrumented.
    operators = (
        operators_beside(wrapper.path.with_name(record.artifact), wrapper.language)
        if record.operators
        else ()
    )
    if record.operators != options_line.operators_hash(operators):
        return None
    return replace(wrapper, operators=operators)


def _compare(wrapper: Wrapper, record: OptionsRecord, selection: Selection) -> ProbeCheck:
    source = wrapper.source
    expected = _instrumented(wrapper, record, selection)
    if expected == source:
        return ProbeCheck("verified")
    ours, theirs = markers.lines(expected), markers.lines(source)
    pairs = enumerate(zip([*ours, b""], [*theirs, b""], strict=False), 1)
    number, (one, other) = next((n, pair) for n, pair in pairs if pair[0] != pair[1])
    return ProbeCheck(
        "changed",
        f"line {number} is {_short(other, one)}, and instrument writes {_short(one, other)}",
        number,
    )


def _instrumented(wrapper: Wrapper, record: OptionsRecord, selection: Selection) -> bytes:
    plain = replace(
        wrapper,
        source=wrapper.restored.source,
        path=wrapper.path.with_name(record.artifact),
    )
    guards = tuple(record.guards.split("; ")) if record.guards else ()
    if not all(map(is_row, guards)):
        raise ValueError("a guard is no condition")
    plan = plan_probes(
        plain.plain,
        wrapper.located,
        selection,
        dialect_of(wrapper, standalone=bool(record.packed)),
        wrapper.operators,
        label=record.label,
        guards=Guards(guards),
        key=record.key,
    )
    return edit.apply(plain.plain.data, plan.insertions)


def _short(line: bytes, beside: bytes) -> str:
    """An excerpt of a line, around where it differs from the other one."""
    text, other = (chunk.decode("utf-8", "replace") for chunk in (line, beside))
    if not text:
        return "missing"
    same = next((i for i, (x, y) in enumerate(zip(text, other, strict=False)) if x != y), 0)
    start = max(0, min(same, len(other)) - _WIDTH // 2) if same > _WIDTH // 2 else 0
    piece = text[start : start + _WIDTH]
    return f"{'…' if start else ''}{piece!r}{'…' if start + _WIDTH < len(text) else ''}"
