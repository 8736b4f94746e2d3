"""The table of a wrapper, its options and launches, as the texts that the recorder reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def option_texts(options: dict[str, Any]) -> list[str | None]:
    """The options, in the order of `Options` in cpp/read_table.h.

    Wrappers that were instrumented by an earlier version lack some of them.
    """
    return list(map(_text, _options(options)))


def row_texts(row: dict[str, Any]) -> list[str | None]:
    """The row of a launch, in the order of `Row` in cpp/read_table.h."""
    return list(map(_text, _row(row)))


def input_texts(names: Any) -> str | None:
    """The labels of the inputs."""
    return "; ".join(f"in {name}" for name in names) or None


def more_texts(row: dict[str, Any]) -> tuple[str | None, str | None]:
    """What only the rows of wrappers in Python have: the schema, and the parameters of values."""
    named = row.get("parameters", {}).items()
    return row.get("schema"), "; ".join(" ".join([name, *own]) for name, own in named) or None


def _options(options: dict[str, Any]) -> Iterator[str | bool | int | None]:
    for key in ("artifact", "sha256", "version"):
        yield options[key]
    yield ",".join(options["probes"])
    yield options["when"] or ""
    yield options["format"]
    yield options["values"]
    yield "; ".join(
        " ".join([scope, *(name or "-" for name in names)])
        for scope, names in options.get("outputs", {}).items()
    )
    yield "; ".join(options.get("expected", ())) or None
    yield options.get("reads_inputs", True)
    yield options.get("label", "")
    yield options.get("calls", "")
    yield options.get("last", 0)
    yield options.get("args", "all")
    yield options.get("max_bytes", "")
    yield "; ".join(options.get("allow", ())) or None
    yield options.get("stop", False)
    lines = (row for row in options.get("memory", ()) if "obstacle" not in row)
    yield "; ".join(map(_memory_line, lines)) or None
    yield options.get("dormant", False)
    yield ",".join(options["on"]) if "on" in options else None


def _memory_line(row: dict[str, Any]) -> str:
    marks = (f" {mark}" for mark in ("held", "waits") if row.get(mark))
    return f"{row['event']} {row['buffer']}{''.join(marks)}"


def _row(row: dict[str, Any]) -> Iterator[str | bool | int | None]:
    for key in ("launch", "kernel", "kind"):
        yield row[key]
    yield row.get("scope", "")
    yield row.get("line", 0)
    yield ", ".join(row.get("source_nodes", ()))
    yield ", ".join(row.get("origins", ()))
    yield row["repeats"]
    yield "; ".join(" ".join(alias) for alias in row.get("buffers", {}).items()) or None
    for phase in ("before", "after"):
        yield "; ".join(" ".join(label) for label in row[phase]) if phase in row else None
    yield "; ".join(" ".join(label) for label in row.get("reads", ())) or None
    marks = [bool(row.get(mark)) for mark in ("together", "memory_waits")]
    while marks and not marks[-1]:
        marks.pop()
    yield from marks


def _text(value: str | bool | int | None) -> str | None:
    if isinstance(value, bool):
        return "1" if value else None
    return str(value) if isinstance(value, int) else value
