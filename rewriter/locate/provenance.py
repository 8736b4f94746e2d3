"""Reads from the comments above a launch which operations it came from.

Written by `get_kernel_metadata` in torch/_inductor/utils.py.
"""

from __future__ import annotations

from collections.abc import Iterable

_NODES, _ORIGINS = b"Source Nodes: [", b"Original ATen: ["


def read(comments: Iterable[bytes]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """`(origins, source_nodes)` of the comment lines above a launch; the last ones count."""
    origins: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    for comment in comments:
        if (listed := _listed(comment, _NODES)) is not None:
            nodes = _names(listed)
        if (listed := _listed(comment, _ORIGINS)) is not None:
            origins = _names(listed)
    return origins, nodes


def _listed(comment: bytes, head: bytes) -> bytes | None:
    """The text after `head` on its line, up to the closing bracket."""
    _, sign, rest = comment.partition(head)
    listed, end, _ = rest.partition(b"]")
    return listed if sign and end and b"\n" not in listed else None


def _names(listed: bytes) -> tuple[str, ...]:
    names = (name.strip() for name in listed.decode("utf-8", "replace").split(","))
    return tuple(name for name in names if name)
