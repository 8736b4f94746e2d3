"""Reads the `.wrapper.json` beside a C++ wrapper: which operators its proxy executor calls.

AOTInductor writes a node of torch.export for each operator, in the order of their numbers
(torch/_inductor/codecache.py, torch/_export/serde/schema.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from rewriter.core import json_text
from rewriter.core.errors import RewriterError
from rewriter.core.types import Json

_Value = dict[str, Any]


class _Argument(msgspec.Struct):
    """The kinds of arguments that hold tensors: one, at most one, several."""

    as_tensor: _Value = {}
    as_optional_tensor: _Value = {}
    as_tensors: list[_Value] = []
    as_optional_tensors: list[_Value] = []


class _Input(msgspec.Struct):
    arg: _Argument = msgspec.field(default_factory=_Argument)


class _Node(msgspec.Struct):
    target: str = ""
    inputs: list[_Input] = []
    outputs: list[Any] = []


class _Entry(msgspec.Struct):
    node: _Node = msgspec.field(default_factory=_Node)


class _File(msgspec.Struct):
    nodes: list[_Entry | str | float | bool | list[Any] | None]


def read(path: Path, data: bytes) -> tuple[Json, ...]:
    """The nodes in a file, after checking that the fields that we read have the types torch writes.

    Raises `RewriterError` if one has not. A node that is not an object becomes an empty one.
    """
    try:
        content = json_text.parse_object(data)
        msgspec.convert(content, _File)
    except (json_text.JsonError, msgspec.ValidationError) as error:
        raise RewriterError(
            "bad-operators-file",
            f"{path}: cannot be read: {error}",
            hint="Expected what AOTInductor writes beside a wrapper with custom operators: a JSON "
            'object with "nodes". Without the file, operators are listed by their number.',
        ) from error
    return tuple(node if isinstance(node, dict) else {} for node in content["nodes"])
