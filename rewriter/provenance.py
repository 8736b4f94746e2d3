"""What the comments above a launch say of where it came from.

Written by `get_kernel_metadata` in torch/_inductor/utils.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_NODES = re.compile(rb"Source Nodes: \[(.*?)\]")
_ORIGINS = re.compile(rb"Original ATen: \[(.*?)\]")


def read(comments: Iterable[bytes]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """`(origins, source_nodes)` of the comment lines above a launch; the last ones count."""
    origins: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    for comment in comments:
        if match := _NODES.search(comment):
            nodes = _names(match.group(1))
        if match := _ORIGINS.search(comment):
            origins = _names(match.group(1))
    return origins, nodes


def _names(listed: bytes) -> tuple[str, ...]:
    names = (name.strip() for name in listed.decode("utf-8", "replace").split(","))
    return tuple(name for name in names if name)
