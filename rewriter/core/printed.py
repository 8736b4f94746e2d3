"""What the values of a type print as JSON: `documents.as_json` does so, and the schemas say so."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

_T = TypeVar("_T")


class PrintedField(NamedTuple):
    """`path` leads to what is printed, over dots; what an inlined one prints has no `name`."""

    name: str
    path: str
    is_optional: bool = False


def printed(fields: str) -> Callable[[type[_T]], type[_T]]:
    """Says which fields and properties of a type are printed, in this order.

    `a` prints `a`, `a=b.c` prints `b.c` as `a`, and `b.c` alone prints it as `c`. `a?` is left out
    where it is `None` or empty text, and `*a` prints what the value `a` does in its own place. A
    dataclass without this prints its fields, one that derives from another the same as that.
    """
    parsed = tuple(map(_parsed, fields.split()))

    def mark(kind: type[_T]) -> type[_T]:
        kind.__printed__ = parsed  # type: ignore[attr-defined]
        return kind

    return mark


def _parsed(text: str) -> PrintedField:
    if text.startswith("*"):
        return PrintedField("", text[1:])
    name, _, path = text.partition("=")
    is_optional, name = name.endswith("?"), name.removesuffix("?")
    return PrintedField(name.rpartition(".")[2], path or name, is_optional)
