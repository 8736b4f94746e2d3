"""Reads the graph that a Triton kernel computes from the comment above it.

`get_kernel_metadata` (torch/_inductor/utils.py) writes the text by `Node.format_node`
(torch/fx/node.py), one node per line. The placeholders are what the kernel reads, in that order;
those that it also writes are its own intermediate values. `return` has the names of what it
computes. An item of a tuple has a name, but no line.
"""

from __future__ import annotations

import re
from itertools import takewhile

from rewriter.model_names.graph import MOST_BYTES, FxGraph, FxNode

_HEAD = "# Graph fragment:"
_LINE = re.compile(r"^#   %(\w+) : (?:Tensor)?(?: ?\"([^\"]*)\")? ?(?:\[num_users=\d+\])? ?= (.*)$")
_CALL = re.compile(r"call_function\[target=([\w.]+)\]\(args = \((.*)\), kwargs = \{(.*)\}\)$")
_ITEM = re.compile(r"operator\.getitem\((\w+), (\d+)\)$")
_RETURN = re.compile(r"^#   return (.*)$")
_DEVICE = re.compile(r"(?<![\w.'])(cuda|cpu|xpu|mps|mtia|hpu|meta)(?::(\d+))?(?![\w.'(:])")
_KEYWORD = re.compile(r"(?:(?<=^)|(?<=, ))(\w+): ")
_VALUE = re.compile(r"%([A-Za-z_]\w*)")
_SEVERAL = re.compile(r"^(\w+) = async_compile\.multi_kernel\(")
_KERNEL = re.compile(r"^(\w+) = async_compile\.\w+\(|^def (\w+)\(")


def fragments(source: str) -> dict[str, FxGraph]:
    """The fragments of a wrapper, by the kernels below them."""
    found: dict[str, FxGraph] = {}
    graph: FxGraph | None = None
    lines = iter(source.replace("\r\n", "\n").split("\n") if len(source) <= MOST_BYTES else ())
    for line in lines:
        if line.rstrip() == _HEAD:
            text = []
            for line in lines:
                text.append(line)
                if not line.startswith("#   ") or _RETURN.match(line):
                    break
            graph = parse_fragment("\n".join(text))
        elif graph is not None and (match := _KERNEL.match(line)):
            found[match[1] or match[2]] = graph
            graph = None
        elif match := _SEVERAL.match(line):
            # The candidates of a multi-kernel, which compute the same; the fastest one runs.
            listed = takewhile(lambda line: not line.startswith("]"), lines)
            names = [line.strip().rstrip(",") for line in listed]
            known = next((found[name] for name in names if name in found), None)
            if known is not None:
                found[match[1]] = known
    return found


def parse_fragment(text: str) -> FxGraph:
    """Read the lines below `# Graph fragment:`."""
    types: dict[str, str] = {}
    calls: list[tuple[str, str, str]] = []
    outputs: tuple[str, ...] = ()
    for line in text.split("\n"):
        if match := _RETURN.match(line):
            outputs = tuple(output.strip().lstrip("%") for output in match[1].split(","))
        elif match := _LINE.match(line):
            name, kind, value = match[1], match[2] or "", match[3]
            if value.startswith("PlaceHolder"):
                types[name] = kind
            elif called := _CALL.match(value):
                calls.append((name, kind, _python(*called.groups())))
    nodes = {}
    for name, kind, call in calls:
        operator = call.partition("(")[0].split(".")[3:4]
        text = _VALUE.sub(r"\1", call.removeprefix("torch.ops."))
        if match := _ITEM.match(text):
            nodes[name] = FxNode(name, "getitem", (match[1],), None, int(match[2]), "", kind)
            continue
        reads = tuple(dict.fromkeys(_VALUE.findall(call)))
        nodes[name] = FxNode(name, "".join(operator), reads, call=text, type=kind)
    return FxGraph(dict.fromkeys(types, ""), nodes, outputs, types)


def _python(target: str, args: str, kwargs: str) -> str:
    """The call as it is written in an FX graph."""
    keywords = _KEYWORD.sub(r"\1=", kwargs)
    arguments = ", ".join(filter(None, (args.rstrip(", "), keywords)))
    return f"{target}({_DEVICE.sub(_device, arguments)})"


def _device(match: re.Match[str]) -> str:
    index = f", index={match[2]}" if match[2] else ""
    return f"device(type='{match[1]}'{index})"
