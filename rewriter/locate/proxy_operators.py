"""Reads the `.wrapper.json` beside a C++ wrapper: which operators its proxy executor calls.

AOTInductor writes a node of torch.export for each operator, in the order of their numbers
(torch/_inductor/codecache.py, torch/_export/serde/schema.py).
"""

from __future__ import annotations

from pathlib import Path

from rewriter.core import json_text
from rewriter.core.errors import RewriterError
from rewriter.core.types import Json

# Kinds of arguments that hold tensors: one, at most one, several.
_ONE, _OPTIONAL, _SEVERAL = "as_tensor", "as_optional_tensor", ("as_tensors", "as_optional_tensors")


def read(path: Path, data: bytes) -> tuple[Json, ...]:
    """The nodes in a file, after checking that the fields that we read have the types torch writes.

    Raises `RewriterError` if one has not. A node that is not an object becomes an empty one.
    """
    try:
        nodes = json_text.parse_object(data).get("nodes")
        if not isinstance(nodes, list):
            raise json_text.JsonError(
                f"expected a list as nodes, found {json_text.describe(nodes)}"
            )
        objects = tuple(node if isinstance(node, dict) else {} for node in nodes)
        for number, node in enumerate(objects):
            if wrong := _wrong(node):
                raise json_text.JsonError(f"operator {number}: {wrong}")
    except json_text.JsonError as error:
        raise RewriterError(
            "bad-operators-file",
            f"{path}: cannot be read: {error}",
            hint="Expected what AOTInductor writes beside a wrapper with custom operators: a JSON "
            'object with "nodes". Without the file, operators are listed by their number.',
        ) from error
    return objects


def _wrong(entry: Json) -> str:
    """The field of an entry that has a wrong type; empty if none has."""
    node = entry.get("node", {})
    if not isinstance(node, dict):
        return f"expected an object as node, found {json_text.describe(node)}"
    if not isinstance(node.get("target", ""), str):
        return f"expected a string as target, found {json_text.describe(node['target'])}"
    for name in ("inputs", "outputs"):
        if not isinstance(node.get(name, []), list):
            return f"expected a list as {name}, found {json_text.describe(node[name])}"
    for given in node.get("inputs", ()):
        if not isinstance(given, dict) or not _is_argument(given.get("arg", {})):
            return "an input is not what torch.export writes"
    return ""


def _is_argument(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    for kind, content in value.items():
        if kind in _SEVERAL and not (
            isinstance(content, list) and all(isinstance(one, dict) for one in content)
        ):
            return False
        if kind in (_ONE, _OPTIONAL) and not isinstance(content, dict):
            return False
    return True
