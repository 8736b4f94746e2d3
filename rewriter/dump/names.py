"""The names of the model in a dump: `names.json`, by the hashes of the wrappers without probes.

The wrapper's own table has what Inductor wrote into the file. These come from what the program's
first run traced, and are a file of their own, so that probes are the same with and without them.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from rewriter.core import json_text, limits
from rewriter.core.json_text import JsonError

if TYPE_CHECKING:
    from rewriter.dump.documents import WrapperNames

FILE = "names.json"


@dataclass(frozen=True)
class Input:
    """An input in the model: its name, empty if not known, and where it is first used."""

    name: str
    at: str = ""


@dataclass(frozen=True)
class Names:
    """`nodes` are the source nodes of launches by index: Dynamo's names, where it is not known
    which, the lines of the model (`model.py:12`), and without those the nodes of Inductor's graph.
    `inputs` are by the names that the wrapper gives to them."""

    nodes: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    inputs: Mapping[str, Input] = field(default_factory=dict)


def write(dump: Path, names: Mapping[str, Names]) -> None:
    """Add the names of wrappers to a dump. Raises `OSError`."""
    from msgspec import to_builtins

    from rewriter.dump.documents import NamesFile, WrapperNames

    content = NamesFile(
        format="rewriter.names",
        version=1,
        wrappers={
            sha256: WrapperNames(
                source_nodes={str(index): nodes for index, nodes in one.nodes.items()},
                inputs={name: (given.name, given.at) for name, given in one.inputs.items()},
            )
            for sha256, one in names.items()
        },
    )
    (dump / FILE).write_text(json_text.encode(to_builtins(content)), encoding="utf-8")


def read(dump: Path) -> Mapping[str, Names]:
    """The names in a dump; none where there are none, or the file is damaged."""
    try:
        facts = (dump / FILE).stat()
    except OSError:
        return {}
    if facts.st_size > limits.JSON_BYTES:
        return {}
    return _read(dump / FILE, facts.st_mtime_ns)


@lru_cache(maxsize=4)
def _read(path: Path, changed: int) -> Mapping[str, Names]:
    """`changed` is the time of the last change: each run of a dump asks for the same."""
    # `list` has names without a dump, and does not pay for the types of one.
    from rewriter.dump.documents import WrapperNames
    from rewriter.dump.rows import SchemaError, read

    try:
        wrappers = json_text.parse_object(path.read_bytes()).get("wrappers")
    except (OSError, JsonError):
        return {}
    names: dict[str, Names] = {}
    for sha256, one in wrappers.items() if isinstance(wrappers, dict) else ():
        with suppress(SchemaError):  # the names of the other wrappers are sound
            names[sha256] = _names(read(one, WrapperNames))
    return names


def _names(one: WrapperNames) -> Names:
    return Names(
        {int(index): nodes for index, nodes in one.source_nodes.items() if index.isdecimal()},
        {name: Input(*given) for name, given in one.inputs.items()},
    )
