"""Reads from a log of `TORCH_TRACE` the graphs that its wrappers were made from.

For each compilation the log has, in this order: where Dynamo found each tensor (`describe_source`),
Dynamo's graph, AOTAutograd's graphs, and before each wrapper the graph that Inductor lowered
(`inductor_post_grad_graph`; torch/_inductor/compile_fx.py).
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from rewriter.artifact.graph_kind import graph_of
from rewriter.artifact.trace import log
from rewriter.core import edit, json_text
from rewriter.core.types import Json
from rewriter.dump.names import SourceLine
from rewriter.model_names.graph import MOST_BYTES, FxGraph, parse

_GRAPHS = ("aot_forward_graph", "aot_backward_graph", "aot_inference_graph")
_ARTIFACTS = ("inductor_post_grad_graph", "inductor_provenance_tracking_node_mappings")
_ENTRIES = ("describe_source", "dynamo_output_graph", "inductor_output_code", *_GRAPHS)
_WANTED = re.compile("|".join(f'"{name}"' for name in (*_ENTRIES, *_ARTIFACTS)).encode())
_MOST_LINE = 1 << 20  # bytes of the JSON object of an entry


@dataclass(frozen=True)
class CompilationTrace:
    """The facts about one wrapper, as text; empty if the log lacks them.

    `sources` are Dynamo's expressions for tensors, such as `L['self']._parameters['w']`; `lowered`
    is the graph that Inductor lowered, `traced` AOTAutograd's, `dynamo` the graph of the model.
    `line_map` is that of `CacheEntry`.
    """

    sources: tuple[str, ...] = ()
    dynamo: str = ""
    traced: str = ""
    lowered: str = ""
    mappings: Json = field(default_factory=dict)
    line_map: tuple[tuple[int, SourceLine], ...] = ()

    def completed(self, other: CompilationTrace | None) -> CompilationTrace:
        """A copy in which missing facts are taken from another trace."""
        if other is None:
            return self
        pairs = ((x.name, getattr(self, x.name) or getattr(other, x.name)) for x in fields(self))
        return CompilationTrace(**dict(pairs))


@dataclass
class _Compilation:
    sources: list[str] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    last: str = ""


def digest(source: bytes) -> str:
    """The key of a wrapper in the result of `read`: the SHA-256 of its plain source."""
    return hashlib.sha256(source).hexdigest()


def read(path: Path) -> dict[str, CompilationTrace]:
    """The facts about each wrapper whose text is in a log, by `digest`. Raises `OSError`."""
    by_digest: dict[str, CompilationTrace] = {}
    compilations: dict[tuple[object, ...], _Compilation] = {}
    latest: dict[int, _Compilation] = {}  # whose graph Dynamo made last, by process
    for process, about, payload in _entries(path):
        names = ("rank", "compiled_autograd_id", "frame_id", "frame_compile_id", "attempt")
        key = tuple(str(about.get(name)) for name in names)
        one = compilations.setdefault(key, _Compilation())
        if isinstance(source := about.get("describe_source"), dict):
            one.sources.append(str(source.get("source", "")))
        elif "inductor_output_code" in about:
            plain = edit.strip(payload).source  # the program may have run with probes
            one.last = digest(plain)
            by_digest[one.last] = _compilation_trace(one, plain)
            if "frame_id" not in about and process in latest:
                by_digest[one.last] = _with_dynamo(by_digest[one.last], latest[process])
            one.texts.pop("inductor_post_grad_graph", None)
        elif name := _name(about):
            text = payload.decode("utf-8", "replace")
            one.texts[name] = text
            if name == "dynamo_output_graph":
                latest[process] = one
            if name == _ARTIFACTS[1] and one.last:
                # This entry follows the wrapper that it is about.
                by_digest[one.last] = replace(by_digest[one.last], mappings=mappings(text))
    return by_digest


def loaded_wrappers(path: Path) -> tuple[tuple[int, Path], ...]:
    """The process, and the present or former path, of each wrapper in a log, including those loaded
    from a cache of graphs. Raises `OSError`."""
    found: dict[tuple[int, Path], None] = {}
    for process, about, _ in _entries(path):
        facts = about.get("inductor_output_code")
        if isinstance(facts, dict):
            # `file_path` is absolute; torch before 2.9 does not write it.
            name = str(facts.get("file_path") or facts.get("filename") or "")
            if os.path.isabs(name):
                found[process, Path(name)] = None
    return tuple(found)


def mappings(text: str) -> Json:
    """The object of `inductor_provenance_tracking_node_mappings`; empty if the text is not one."""
    try:
        return json_text.parse_object(text.encode("utf-8", "replace"))
    except json_text.JsonError:
        return {}


def _compilation_trace(one: _Compilation, wrapper: bytes) -> CompilationTrace:
    traced = one.texts.get(f"aot_{graph_of(wrapper)}_graph", "")
    lowered = one.texts.get("inductor_post_grad_graph") or traced
    return CompilationTrace(
        tuple(one.sources), one.texts.get("dynamo_output_graph", ""), traced, lowered
    )


def _with_dynamo(trace: CompilationTrace, model: _Compilation) -> CompilationTrace:
    """The same with Dynamo's graph, of what is compiled ahead of time: its entries say no frame. A
    part of the model, which is compiled by itself, has other inputs than that graph."""
    text = model.texts["dynamo_output_graph"]
    dynamo, traced = parse(text), parse(trace.traced)
    if trace.dynamo or dynamo is None or traced is None or not _are_same(dynamo, traced):
        return trace
    return replace(trace, sources=tuple(model.sources), dynamo=text)


def _are_same(dynamo: FxGraph, traced: FxGraph) -> bool:
    """Whether two graphs have the same inputs, by their types. What is no tensor may have none."""
    # Other names of inputs are among the nodes, too.
    one, other = (
        [graph.types.get(name, "") for name in graph.inputs if name not in graph.nodes]
        for graph in (dynamo, traced)
    )
    return one == other


def _name(about: Json) -> str:
    artifact = about.get("artifact")
    name = artifact.get("name") if isinstance(artifact, dict) else None
    if name in _ARTIFACTS:
        return str(name)
    # What is loaded from a cache is traced under a different key: FxGraphCache in codecache.py.
    keys = ("dynamo_output_graph", *_GRAPHS, _ARTIFACTS[0])
    return next((name for name in keys if name in about), "")


def _entries(path: Path) -> Iterator[tuple[int, Json, bytes]]:
    """Yield the relevant entries with their processes and payloads, except those beyond the
    bounds."""
    for (process, about), payload, size in log.entries(path, _about, MOST_BYTES):
        if size <= MOST_BYTES:
            yield process, about, payload


def _about(line: bytes) -> tuple[int, Json] | None:
    if len(line) > _MOST_LINE or not _WANTED.search(line):
        return None
    if not (head := log.ENTRY.match(line)):
        return None
    try:
        return int(head[1]), json_text.parse_object(line[head.end() :])
    except json_text.JsonError:
        return None
