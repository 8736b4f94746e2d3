"""The names in one wrapper: what its kernels compute, and what its inputs are in the model."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from rewriter.artifact.types import Artifact, Wrapper
from rewriter.core.types import Json
from rewriter.dump.names import Input, Names
from rewriter.locate.types import Located
from rewriter.model_names.attribution import attribute, attribute_inside, left_over
from rewriter.model_names.fragment import fragments
from rewriter.model_names.graph import FxGraph, FxNode, ModelLine, first_place, parse, subgraphs
from rewriter.model_names.known import FRAGMENT, Compilations, grouped
from rewriter.model_names.lines import lines_of_map, lines_of_nodes
from rewriter.model_names.trace import CompilationTrace

_PLAIN = re.compile(r"PlainAOTInput\(idx=(\d+)\)")
_TARGET = re.compile(r"(Param|Buffer)AOTInput\(target='([^']*)'\)")
# A rank's own part of a distributed tensor, which is unwrapped for the graph.
_LOCAL = re.compile(r"SubclassGetAttrAOTInput\(base=(.*), attr='_local_tensor'\)")
_TANGENT = re.compile(r"TangentAOTInput\(output=PlainAOTOutput\(idx=(\d+)\)\)")
_PART = re.compile(r"\['([^']*)'\]|\.(\w+)|\[(\d+)\]")
_CONTAINER = re.compile(r"_(parameter|buffer)s\[")
_COMMON = frozenset({"", "forward", "__call__", "<module>"})
_CONTAINERS = frozenset({"_modules", "_parameters", "_buffers"})


def of_artifact(artifact: Artifact) -> dict[str, Names]:
    """The names of each wrapper about which something is known, by the wrapper's name."""
    return of_wrappers(artifact.wrappers, Compilations.of_artifact(artifact))


def of_wrappers(wrappers: Sequence[Wrapper], compilations: Compilations) -> dict[str, Names]:
    """The names of some wrappers, by the wrapper's name.

    A forward and a backward of one compilation refer to each other. If both are given, the names
    also say which values the forward saves for the backward.
    """
    known: dict[str, tuple[Wrapper, FxGraph | None]] = {}
    by_wrapper: dict[str, Names] = {}
    groups, by_name = grouped(wrappers), {wrapper.name: wrapper for wrapper in wrappers}
    for wrapper in wrappers:
        about = compilations.of_wrapper(wrapper)
        if about is None:
            if FRAGMENT in wrapper.source:
                by_wrapper[wrapper.name] = of_source(wrapper.located, wrapper.plain.data)
            continue
        lowered = parse(about.lowered)
        partner = compilations.partner(wrapper, groups)
        names = replace(
            of_wrapper(wrapper.located, about, wrapper.plain.data),
            graph=title(lowered),
            direction=wrapper.graph,
            partner=partner,
        )
        known[wrapper.path.name if wrapper.has_file else wrapper.name] = wrapper, lowered
        by_wrapper[wrapper.name] = names
    for name, names in by_wrapper.items():
        wrapper = by_name[name]
        if names.partner and wrapper.graph == "backward":
            forward = known.get(names.partner)
            graph = (
                forward[1] if forward else parse(compilations.graph_text(wrapper, names.partner))
            )
            saved = _saved(*forward, names) if forward else {}
            by_wrapper[name] = replace(names, graph=title(graph) or names.graph, saved=saved)
    return {name: names for name, names in by_wrapper.items() if names}


def parts_of(wrappers: Sequence[Wrapper], compilations: Compilations) -> dict[str, Names]:
    """Which parts of the model some wrappers are, and which belong together, by the wrapper's name.
    Leaves out their launches, for lists of many wrappers."""
    groups = grouped(wrappers)
    parts = {}
    for wrapper in wrappers:
        about = compilations.of_wrapper(wrapper)
        partner = compilations.partner(wrapper, groups)
        text = about.lowered if about is not None else ""
        if partner and wrapper.graph == "backward":
            text = compilations.graph_text(wrapper, partner) or text
        graph = _titled(first_place(text))
        if graph or partner:
            parts[wrapper.name] = Names(graph=graph, direction=wrapper.graph, partner=partner)
    return parts


def title(graph: FxGraph | None) -> str:
    """The part of the model that a graph is, by its first line: `model (model.py:9)`."""
    nodes = graph.nodes.values() if graph is not None else ()
    return _titled(next((node.place for node in nodes if node.place is not None), None))


def _titled(place: ModelLine | None) -> str:
    if place is None:
        return ""
    # Most modules have a function of such a name, which says nothing.
    return place.short if place.function in _COMMON else f"{place.function} ({place.short})"


def _saved(wrapper: Wrapper, graph: FxGraph | None, backward: Names) -> dict[str, str]:
    """The variables of a forward that its backward takes, by the names of its inputs."""
    if graph is None or not wrapper.located.entries:
        return {}
    outputs = wrapper.located.entries[0].outputs
    pairs = zip(graph.outputs, outputs, strict=False) if len(graph.outputs) == len(outputs) else ()
    return {name: buffer for name, buffer in pairs if buffer and name in backward.inputs}


def of_wrapper(located: Located, traced: CompilationTrace, source: bytes = b"") -> Names:
    """The names that a log, a debug directory or a cache entry gives to the parts of a wrapper.

    `source` is its text without probes, to which torch's map of lines refers.
    """
    lowered = parse(traced.lowered)
    if lowered is None or not located.entries:
        return Names()
    dynamo = parse(traced.dynamo)
    called = {name for launch in located.launches for name in launch.source_nodes}
    model = _ModelNames(lowered, dynamo, traced.mappings, called)
    computed = {
        **attribute(located.launches, located.entries[0], lowered),
        **_by_provenance(located, traced.mappings),
    }
    for index, fragment in _fragments(located, source).items():
        computed.setdefault(index, tuple(name for name in fragment.nodes if name in lowered.nodes))
    once = [launch for launch in located.launches if not launch.repeats]
    computed |= left_over(once, computed, lowered)
    nodes = {index: model.of(names) for index, names in computed.items()}
    graphs = dict.fromkeys(computed, lowered)
    for scope, inner in subgraphs(traced.lowered).items():
        inside = attribute_inside(located.launches, scope, inner)
        computed |= inside
        nodes |= inside
        graphs |= dict.fromkeys(inside, inner)
    lines = {index: lines_of_nodes(graphs[index], names) for index, names in computed.items()}
    # What the user gives to an operator, such as the `score_mod` of flex attention: in Inductor's
    # graph it has lost its lines.
    given = subgraphs(traced.dynamo)
    for index, names in nodes.items():
        more = [x for name in names if name in given for x in lines_of_nodes(given[name])]
        lines[index] = tuple(dict.fromkeys((*lines[index], *more)))
    mapped = lines_of_map(located, traced.line_map, source)
    return Names(
        {index: names for index, names in nodes.items() if names},
        _inputs(lowered, parse(traced.traced) or lowered, dynamo, traced.sources),
        {**mapped, **{index: found for index, found in lines.items() if found}},
        {index: _calls(graphs[index], names) for index, names in computed.items() if names},
        lowered=traced.lowered,
    )


def _by_provenance(located: Located, mappings: Json) -> dict[int, tuple[str, ...]]:
    """The nodes that torch itself names with INDUCTOR_PROVENANCE=1, by kernel and launch."""
    named = mappings.get("cppCodeToPost")
    if not isinstance(named, dict):
        return {}
    calls: dict[str, list[tuple[int, tuple[str, ...]]]] = {}
    for key, nodes in named.items():
        kernel, _, handle = key.rpartition(":")
        if handle.isdecimal() and isinstance(nodes, list):
            calls.setdefault(kernel, []).append((int(handle), tuple(map(str, nodes))))
    by_launch = {}
    seen: Counter[str] = Counter()
    total = Counter(launch.kernel for launch in located.launches)
    for launch in located.launches:
        ordered = sorted(calls.get(launch.kernel, ()))
        if len(ordered) == total[launch.kernel]:
            by_launch[launch.index] = ordered[seen[launch.kernel]][1]
        seen[launch.kernel] += 1
    return by_launch


class _ModelNames:
    """Maps nodes of Inductor's graph to the names of the model's own operations."""

    def __init__(
        self, lowered: FxGraph, dynamo: FxGraph | None, mappings: Json, called: set[str]
    ) -> None:
        self._lowered = lowered
        self._called = called  # what the file itself says about other launches
        before = mappings.get("postToPre")
        self._before: Json = before if isinstance(before, dict) else {}
        self._blocks: dict[tuple[str, int], dict[int, list[str]]] = {}
        self._turns: Counter[tuple[str, int]] = Counter()
        for node in dynamo.nodes.values() if dynamo else ():
            if node.place is not None and node.operator not in ("getitem", "alias"):
                key = node.place.file, node.place.line
                self._blocks.setdefault(key, {}).setdefault(node.place.turn, []).append(node.name)
        for place in {node.place for node in lowered.nodes.values() if node.place}:
            self._turns[place.file, place.line] += 1

    def of(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        wanted = set(nodes)
        known = [node for name, node in self._lowered.nodes.items() if name in wanted]
        return tuple(dict.fromkeys(name for node in known for name in self._names(node)))

    def _names(self, node: FxNode) -> list[str]:
        before = self._before.get(node.name)
        if isinstance(before, list) and before:
            return list(map(str, before))
        if node.place is None:
            return [node.name]
        if not self._blocks:  # Dynamo's graph is not known
            return [node.name]
        key = node.place.file, node.place.line
        blocks = self._blocks.get(key, {})
        if len(blocks) == 1:
            operations = next(iter(blocks.values()))
        # A line in a loop: its blocks correspond to each other if there are as many.
        elif len(blocks) == self._turns[key] and node.place.turn in blocks:
            operations = blocks[node.place.turn]
        else:
            return [node.place.short]
        return [name for name in operations if name not in self._called] or operations


def of_source(located: Located, source: bytes) -> Names:
    """The names in the text of a wrapper itself: the nodes of its kernels."""
    return Names(
        computes={
            index: tuple(node.statement for node in fragment.nodes.values())
            for index, fragment in _fragments(located, source).items()
        }
    )


def _fragments(located: Located, source: bytes) -> dict[int, FxGraph]:
    """The graph in the comment above a kernel, by its first launch: that of others may differ."""
    known = fragments(source.decode("utf-8", "replace")) if FRAGMENT in source else {}
    first = {launch.kernel: launch.index for launch in reversed(located.launches)}
    return {first[kernel]: graph for kernel, graph in known.items() if kernel in first}


def _calls(graph: FxGraph, names: Iterable[str]) -> tuple[str, ...]:
    """The text of nodes, such as `log = aten.log.default(addmm)`."""
    return tuple(graph.nodes[name].statement for name in names if name in graph.nodes)


def _inputs(
    lowered: FxGraph, traced: FxGraph, dynamo: FxGraph | None, sources: tuple[str, ...]
) -> dict[str, Input]:
    roots = {_parts(x)[0] for x in sources if x.startswith("L[") and _is_inside(_parts(x))}
    root = roots.pop() if len(roots) == 1 else "self"
    known = {re.sub(r"[^a-zA-Z0-9]+", "_", source): source for source in sources}
    places = list(dynamo.inputs) if dynamo and _is_whole(traced, dynamo) else []
    inputs = {}
    for name in lowered.inputs:
        described = traced.inputs.get(name, "")
        model = kind = ""
        if is_local := _LOCAL.fullmatch(described):
            described = is_local[1]
        if match := _PLAIN.fullmatch(described):
            number = int(match[1])
            if source := known.get(places[number], "") if number < len(places) else "":
                model, kind = model_name(source, root), _kind(source)
        elif match := _TARGET.fullmatch(described):
            kind, model = "parameter" if match[1] == "Param" else "buffer", match[2]
        elif match := _TANGENT.fullmatch(described):
            model = f"output_{match[1]}.grad"
        place = lowered.first_use(name)
        if model or place:
            kind = "shard" if is_local else kind
            inputs[name] = Input(model, place.short if place else "", kind)
    return inputs


def _is_whole(traced: FxGraph, dynamo: FxGraph) -> bool:
    """Whether the inputs of a graph can be those of the model's. A backend that splits the model
    and compiles each part by itself numbers the inputs of the part."""
    places = list(dynamo.inputs)
    for name, described in traced.inputs.items():
        if match := _PLAIN.fullmatch(described):
            place = places[int(match[1])] if int(match[1]) < len(places) else ""
            pair = traced.types.get(name, ""), dynamo.types.get(place, "")
            if not place or (all(pair) and pair[0] != pair[1]):
                return False
    return True


def _kind(source: str) -> str:
    """What a tensor is by Dynamo's expression for it; empty if that does not say."""
    if match := _CONTAINER.search(source):
        return match[1]
    return "data" if source.startswith("L[") and len(_parts(source)) == 1 else ""


def model_name(source: str, root: str = "self") -> str:
    """Dynamo's expression for a tensor, as the author of the model `root` would write it.

    >>> model_name("L['self']._modules['blocks']._modules['1']._parameters['temp']")
    'blocks.1.temp'
    >>> model_name("L['x']"), model_name("L['batch']['image']")
    ('x', 'batch.image')
    >>> model_name("G['linear']._parameters['weight']")
    'linear.weight'
    """
    parts = _parts(source)
    inner = [part for part in parts if part not in _CONTAINERS]
    # The parts of a module are named without the module.
    drops = _is_inside(parts) and source.startswith("L[") and parts[0] == root
    return ".".join(inner[drops:])


def _parts(source: str) -> list[str]:
    return [next(filter(None, groups), "") for groups in _PART.findall(source)] or [""]


def _is_inside(parts: list[str]) -> bool:
    """Whether the expression is for a part of a module."""
    return not _CONTAINERS.isdisjoint(parts)
