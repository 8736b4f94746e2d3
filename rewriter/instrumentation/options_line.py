"""The second inserted line, "Options:", which records how to instrument the file again.

The line is JSON. Characters that could end a string or a comment of the file are percent-encoded.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any
from urllib.parse import quote

from rewriter.core import json_text, markers
from rewriter.core.types import Json
from rewriter.instrumentation.types import Selection

_BEGIN = b" Options: {"
_WHOLE = re.compile(
    rb"(?:\A|(?<=[\r\n]))" + markers.OPTIONS.pattern + rb"[0-9a-f]{8}[ \t]*(?=[\r\n]|\Z)"
)
# How the line begins.
OWN_LINE = re.compile(rb"\s*(?:#|//) Options: ")
_ESCAPED = re.compile(r"\\u(dc[89a-f][0-9a-f])")
_SAFE = '{}[]",:*-_./()+='


@dataclass(frozen=True)
class OptionsRecord:
    """How a file was instrumented, except for the selection.

    `artifact` is the name of the file that was instrumented. `packed` is the language of the
    recorder in the file, empty if there is none. `operators` is the hash of the operators
    file beside a C++ wrapper, empty if there was none. `label` is the wrapper's name in prints,
    `key` the name that torch gave its file, if it was in a container. `guards` are the conditions
    on the inputs from the cache, separated by `; `.
    """

    artifact: str
    packed: str = ""
    operators: str = ""
    label: str = ""
    key: str = ""
    guards: str = ""


def line(record: OptionsRecord, selection: Selection) -> str:
    """The line, without comment sign and mark. Options with their default value are left out."""
    options: Json = {name: _plain(value) for name, value in vars(record).items() if value}
    for field in fields(Selection):
        value = getattr(selection, field.name)
        if field.name != "probes" and value != field.default:
            options[field.name] = _plain(value)
    return "Options: " + quote(json_text.encode(options, compact=True), safe=_SAFE)


def read(data: bytes, tag: str, probes: Sequence[str]) -> tuple[OptionsRecord, Selection] | None:
    """The record and the selection in a file's line; `None` if it has no such line."""
    options = markers.options(data, tag)
    if options is None:
        return None
    try:
        record = {
            name: _as_path(str(options.pop(name)))
            for name in vars(OptionsRecord(""))
            if name in options
        }
        selected = {name: _value(value) for name, value in options.items()}
        return OptionsRecord(**record), Selection(probes=tuple(probes), **selected)
    except (ValueError, TypeError):
        return None


def find(data: bytes) -> int:
    """The number of the first "Options:" line of a file, whatever its mark; 0 if there is none.

    If a file has one but no header of probes, the header is missing or edited.
    """
    match = _WHOLE.search(data) if _BEGIN in data else None
    return 0 if match is None else len(markers.lines(data[: match.start()])) + 1


def operators_hash(operators: Sequence[Json]) -> str:
    """The hash of the operators beside a wrapper; empty if there are none."""
    if not operators:
        return ""
    ordered = json.dumps(operators, sort_keys=True)  # only hashed, so not `json_text`
    return hashlib.sha256(ordered.encode()).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, range):
        return {"range": [value.start, value.stop, value.step]}
    if isinstance(value, str):
        # A path that is not UTF-8 has lone surrogates, which cannot be encoded.
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _as_path(text: str) -> str:
    """A text with the lone surrogates that `_plain` escaped."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)


def _value(value: Any) -> Any:
    if isinstance(value, dict):
        return range(*value["range"]) if "range" in value else {}
    return tuple(_value(item) for item in value) if isinstance(value, list) else value
