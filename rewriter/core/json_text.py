"""The one reader of JSON, which anybody may have written, and the one writer. Both are strict.

The runtime (`rewriter/runtime/cpp/`, `rewriter/runtime/plain.py`) and the start-up module
(`rewriter/execution/hook/startup/`) write by the same rules, but may not import this module.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from itertools import accumulate
from typing import Any

from rewriter.core import limits
from rewriter.core.types import Json

# A string in valid JSON, where matching is linear because every string ends.
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_OTHERS = bytes(set(range(256)) - set(b"[]{}"))
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


class JsonError(ValueError):
    """The bytes are not what was expected: not JSON, too long, or another kind of value."""


def parse(data: bytes, *, size: int = limits.JSON_BYTES, lenient: bool = False) -> Any:
    """Parse JSON. Raises `JsonError` on anything that is not strictly JSON.

    That is: bytes that are not UTF-8, NaN and infinities, the same name twice in one object, more
    than `size` bytes, or more than `limits.JSON_DEPTH` levels. A lone surrogate, which Python
    writes for a path that is not UTF-8 and which cannot be printed, becomes the text of its escape.
    With `lenient`, NaN and infinities are accepted.
    """
    if len(data) > size:
        raise JsonError(f"{len(data):,} bytes; at most {size:,} are read")
    try:
        text = data.decode("utf-8")
        value = (_LENIENT if lenient else _DECODER).decode(text)
        if "\\ud" in text or "\\uD" in text:
            value = _with_characters(value)
    except RecursionError:
        raise JsonError(f"nested deeper than {limits.JSON_DEPTH} levels") from None
    except UnicodeDecodeError as error:
        raise JsonError(f"not UTF-8: byte {data[error.start]:#04x} at {error.start}") from None
    except ValueError as error:
        raise JsonError(str(error)) from None
    if data.count(b"[") + data.count(b"{") > limits.JSON_DEPTH:
        _require_shallow(data)
    return value


def parse_object(data: bytes, *, size: int = limits.JSON_BYTES, lenient: bool = False) -> Json:
    """Parse a JSON object. Raises `JsonError` as `parse` does, and for other values."""
    value = parse(data, size=size, lenient=lenient)
    if not isinstance(value, dict):
        raise JsonError(f"expected an object, found {describe(value)}")
    return value


def describe(value: object) -> str:
    """The kind of a value in JSON's terms, on one line."""
    kinds = {dict: "an object", list: "a list", str: "a string", type(None): "null"}
    kinds |= {bool: "true or false", int: "a number", float: "a number"}
    return kinds.get(type(value), type(value).__name__)


def encode(value: Any, *, indent: int | None = None, compact: bool = False) -> str:
    """JSON of a value. Numbers that are not finite become the strings "inf", "-inf" and "nan".

    `compact` omits spaces, and does not escape non-ASCII characters.
    """
    options: dict[str, Any] = {"indent": indent, "allow_nan": False, "ensure_ascii": not compact}
    if compact:
        options["separators"] = (",", ":")
    try:
        return json.dumps(value, **options)
    except ValueError:  # a number that is not finite: rare, so only then everything is copied
        return json.dumps(finite(value), **options)


def finite(value: Any) -> Any:
    """`value` with strings in place of numbers that are not finite, at any depth."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(float(value))
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value


def _with_characters(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {_with_characters(key): _with_characters(item) for key, item in value.items()}
    return [_with_characters(item) for item in value] if isinstance(value, list) else value


def _object(pairs: list[tuple[str, Any]]) -> Json:
    members = dict(pairs)
    if len(members) != len(pairs):
        twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"an object has {twice[:40]!r} twice")
    return members


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_refuse)
_LENIENT = json.JSONDecoder(object_pairs_hook=_object)


def _require_shallow(data: bytes) -> None:
    """Raise if valid JSON is nested too deeply: later code may recurse into it."""
    brackets = _STRING.sub(b"", data).translate(None, _OTHERS)
    if max(accumulate(map(_STEP.__getitem__, brackets)), default=0) > limits.JSON_DEPTH:
        raise JsonError(f"nested deeper than {limits.JSON_DEPTH} levels")
