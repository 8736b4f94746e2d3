"""What is printed as JSON, as typed values: the schemas of the site are made of these types.

A document is one object with `format` and `version`, made of entries, and of values of other rooms,
which print their fields, or what `printed` says of their type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, to_builtins

from rewriter.core.printed import PrintedField
from rewriter.core.types import Json

Count = Annotated[int, Meta(ge=0)]
LineNumber = Annotated[int, Meta(ge=1, description="From 1, in the file as it is")]
LineIfKnown = Annotated[
    int, Meta(ge=0, description="From 1, in the file as it is; 0 if it is not known")
]
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$", description="SHA-256")]
WrapperName = Annotated[str, Meta(description="The wrapper's path inside the artifact")]
OutputPath = Annotated[
    str | None, Meta(description="Path of the result, - for standard output; null: nothing written")
]
BackupPath = Annotated[str | None, Meta(description="Where the original is kept, with --in-place")]
CachePath = Annotated[
    str | None, Meta(description="The cache of torch.compiler.precompile that was written with it")
]
Diff = Annotated[str | None, Meta(description="With --diff: as diff -u shows it")]
# JSON has no such numbers: one that is not finite is a string.
Number = Annotated[float, "inf", "-inf", "nan"]
# The schemas of the site describe the rows.
Row = Annotated[dict[str, Any], Meta(description="A row of events.jsonl")]


class Entry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a document: one thing that it lists, or says of it."""


class Document(Entry, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="format"):
    """One object on standard output. Its tag is its `format`."""

    version: Literal[1] = 1


_PLAIN = {str, int, float, bool, type(None)}
_VERSION = PrintedField("version", "version")


def is_document(value: Entry) -> bool:
    """Whether it is printed by itself: only documents have a `format`."""
    return value.__struct_config__.tag_field == "format"


def as_json(value: object) -> Json:
    """The value for `json_text.encode`, which makes strings of numbers that are not finite."""
    content: Json = _as_json(value)
    return content


def _as_json(value: Any) -> Any:
    kind: Any = type(value)
    if kind in _PLAIN:
        return value
    if kind in (tuple, list):
        return [_as_json(item) for item in value]
    if isinstance(value, Mapping):
        return {name: _as_json(item) for name, item in value.items()}
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Struct) and not isinstance(value, Entry):
        return to_builtins(value)  # of a dump
    content: Json = {}
    if isinstance(value, Entry) and is_document(value):
        content["format"] = value.__struct_config__.tag
    for name, get, is_optional in _getters(kind):
        item = get(value)
        if not name:
            content |= _as_json(item) or {}
        elif item is not UNSET and not (is_optional and item in (None, "")):
            content[name] = _as_json(item)
    return content


def printed_fields(kind: type) -> tuple[PrintedField, ...]:
    """What the values of a type print, in order."""
    known: tuple[PrintedField, ...] | None = getattr(kind, "__printed__", None)
    if known is None and issubclass(kind, Struct):
        names = zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True)
        known = tuple(PrintedField(name, path) for name, path in names)
    elif known is None:
        known = tuple(PrintedField(field.name, field.name) for field in fields(kind))
    if issubclass(kind, Document):
        known = (_VERSION, *(field for field in known if field != _VERSION))
    return known


@cache
def _getters(kind: type) -> tuple[tuple[str, Callable[[object], Any], bool], ...]:
    return tuple(
        (field.name, attrgetter(field.path), field.is_optional) for field in printed_fields(kind)
    )
