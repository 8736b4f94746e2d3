"""Reads the nodes of Inductor's graph in the comment above a kernel: `# Graph fragment:`.

`get_kernel_metadata` in torch/_inductor/utils.py writes it above Triton kernels. A kernel that is
launched several times has only the nodes of its first launch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from rewriter.locate.types import Located
from rewriter.model_names.known import FRAGMENT

_KERNEL = re.compile(rb"(\w+) = async_compile\.")


def fragments(source: bytes) -> dict[str, dict[str, str]]:
    """The nodes that each kernel computes, with their texts: `aten.add.Tensor(arg0_1, 1)`."""
    by_kernel: dict[str, dict[str, str]] = {}
    if FRAGMENT not in source:
        return {}
    nodes: dict[str, str] | None = None
    for line in source.split(b"\n"):
        line = line.rstrip(b"\r")
        if line == FRAGMENT:
            nodes = {}
        elif nodes is None:
            continue
        elif line.startswith(b"#   "):
            if (node := _node(line.decode("utf-8", "replace"))) is not None:
                nodes[node[0]] = node[1]
        else:
            if nodes and (kernel := _KERNEL.match(line)):
                by_kernel[kernel[1].decode()] = nodes
            nodes = None
    return by_kernel


def by_launch(
    located: Located, kernels: Mapping[str, Mapping[str, str]]
) -> dict[int, Mapping[str, str]]:
    """The nodes of each launch that is the first of its kernel."""
    nodes: dict[int, Mapping[str, str]] = {}
    seen: set[str] = set()
    for launch in located.launches if kernels else ():
        if launch.kernel in kernels and launch.kernel not in seen:
            nodes[launch.index] = kernels[launch.kernel]
        seen.add(launch.kernel)
    return nodes


def _node(line: str) -> tuple[str, str] | None:
    """The name and text of a node; `None` for inputs and outputs of the kernel."""
    head, called, rest = line.partition(" = call_function[target=")
    target, bracket, given = rest.partition("](args = (")
    if not called or not bracket or not head.startswith("#   %"):
        return None
    args, separator, options = given.rpartition("), kwargs = {")
    if not separator:
        return None
    parts = [args.removesuffix(","), options.removesuffix("})").replace(": ", "=")]
    text = ", ".join(filter(None, parts)).replace("%", "")
    return head[5:].partition(" ")[0], f"{target.removeprefix('torch.ops.')}({text})"
