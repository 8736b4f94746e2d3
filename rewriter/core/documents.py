"""What is printed as JSON, as typed values: the schemas of the site are made of these types.

A document is one object with `format` and `version`, made of entries. Fields are printed in order;
all of them are, except those that may be unset.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from msgspec import UNSET, Meta, Struct, convert, to_builtins

from rewriter.core.types import Json

Count = Annotated[int, Meta(ge=0)]
LineNumber = Annotated[int, Meta(ge=1, description="From 1, in the file as it is")]
LineIfKnown = Annotated[
    int, Meta(ge=0, description="From 1, in the file as it is; 0 of a library without its source")
]
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$", description="SHA-256")]
# JSON has no such numbers: one that is not finite is a string.
Number = float | Literal["inf", "-inf", "nan"]
# The schemas of the site describe the rows.
Row = Annotated[dict[str, Any], Meta(description="A row of events.jsonl")]


class Entry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a document: one thing that it lists, or says of it."""


class Document(Entry, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="format"):
    """One object on standard output. Its tag is its `format`."""

    version: Literal[1] = 1


_E = TypeVar("_E", bound=Entry)


def entry(into: type[_E], value: object, **more: object) -> _E:
    """Make an entry from the attributes of a value with the same names, at every depth; `more` are
    those that the value lacks."""
    if more:
        rest = {x: getattr(value, x, UNSET) for x in into.__struct_fields__ if x not in more}
        known = {name: own for name, own in rest.items() if own is not UNSET}
        return convert(more | known, into, from_attributes=True)
    return convert(value, into, from_attributes=True)


def is_document(value: Entry) -> bool:
    """Whether it is printed by itself: only documents have a `format`."""
    return value.__struct_config__.tag_field == "format"


def as_json(value: Entry) -> Json:
    """The value for `json_text.encode`, which makes strings of numbers that are not finite."""
    content: Json = to_builtins(value)
    if not is_document(value):
        return content
    return {"format": content.pop("format"), "version": content.pop("version"), **content}
