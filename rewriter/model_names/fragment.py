"""Reads the graph that a Triton kernel computes from the comment above it.

`get_kernel_metadata` (torch/_inductor/utils.py) writes the text by `Node.format_node`
(torch/fx/node.py), one node per line. The placeholders are what the kernel reads, in that order;
those that it also writes are its own intermediate values. `return` has the names of what it
computes. An item of a tuple has a name, but no line.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import takewhile

from rewriter.model_names.graph import MOST_BYTES, FxGraph, FxNode

BEFORE = "__before"  # how the name of a value before an update ends
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
_NUMBERED = re.compile(r"getitem(?:_(\d+))?$")
_TUPLES = {
    "var_mean", "sort", "topk", "max", "min", "prepare_softmax_online", "aminmax",
    "_low_memory_max_pool_with_offsets", "max_pool2d_with_indices",
}  # fmt: skip
# Operators that change some elements of their first argument and keep the others.
_UPDATES = ("index_put", "scatter", "scatter_add", "scatter_reduce", "index_add")
_FIRST = re.compile(r"([\w.]+\()\w+(?=[,)])")
_WORD = re.compile(r"\w+")


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


def updated_in_place(graph: FxGraph) -> FxGraph:
    """The graph of a kernel that updates some elements of a buffer that an earlier kernel filled.

    The placeholder for the buffer then has the name of the node. It is renamed, and becomes the
    first argument of the node: the value before the update.
    """
    nodes, types = dict(graph.nodes), dict(graph.types)
    for node in graph.nodes.values():
        is_update = node.operator.rstrip("_") in _UPDATES and node.name in types and node.reads
        match = _FIRST.match(node.call) if is_update else None
        if match is None:
            continue
        name, rest = node.name + BEFORE, node.call[match.end() :]
        read = set(_WORD.findall(rest))
        reads = (name, *(x for x in node.reads if x in read))
        nodes[node.name] = replace(node, call=f"{match[1]}{name}{rest}", reads=reads)
        types = {name if x == node.name else x: kind for x, kind in types.items()}
    return replace(graph, nodes=nodes, types=types, inputs=dict.fromkeys(types, ""))


def with_items(graph: FxGraph) -> FxGraph:
    """The graph with `getitem` nodes for the items of tuples, which fragments leave out.

    Inductor numbers these nodes in the order of the graph, and all tuples here have two items.
    """
    tuples = [x.name for x in graph.nodes.values() if x.operator in _TUPLES and not x.type]
    names = {x for node in graph.nodes.values() for x in node.reads} | set(graph.outputs)
    outside = {x for x in graph.types if x not in graph.outputs}
    numbers = {
        name: int(match[1] or 0)
        for name in names - set(graph.nodes) - outside
        if (match := _NUMBERED.match(name))
    }
    for odd in (0, 1):
        groups = sorted({(number + odd) // 2 for number in numbers.values()})
        if tuples and len(groups) == len(tuples):
            items = {
                name: (tuples[groups.index((number + odd) // 2)], (number + odd) % 2)
                for name, number in numbers.items()
            }
            break
    else:
        return graph
    nodes: dict[str, FxNode] = {}
    for node in graph.nodes.values():
        nodes[node.name] = node
        for name, (source, item) in items.items():
            if source == node.name:
                kind = graph.types.get(name, "")
                nodes[name] = FxNode(name, "getitem", (source,), None, item, "", kind)
    return replace(graph, nodes=nodes)


def _python(target: str, args: str, kwargs: str) -> str:
    """The call as it is written in an FX graph."""
    keywords = _KEYWORD.sub(r"\1=", kwargs)
    arguments = ", ".join(filter(None, (args.rstrip(", "), keywords)))
    return f"{target}({_DEVICE.sub(_device, arguments)})"


def _device(match: re.Match[str]) -> str:
    index = f", index={match[2]}" if match[2] else ""
    return f"device(type='{match[1]}'{index})"
