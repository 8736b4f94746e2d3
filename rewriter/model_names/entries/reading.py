"""Reads one entry of a cache. See `CompiledFxGraph` in torch/_inductor/output_code.py, and
`GenericAOTAutogradResult` in torch/_functorch/_aot_autograd/aot_autograd_result.py."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rewriter.core import pickle_values
from rewriter.core.pickle_values import Made
from rewriter.dump.names import SourceLine

_GRAPH = "CompiledFxGraph"
_FRAME = re.compile(
    r'^[ \t]*File "([^"\n]+)", line (\d+), in ([^\n]*)\n[ \t]*([^\n]*)', re.MULTILINE
)


@dataclass(frozen=True)
class CacheEntry:
    """One `CompiledFxGraph` (torch/_inductor/output_code.py). What torch did not keep is empty.

    `cache_key` is the stem of the wrapper's file, `fx_key` the key of the graph. `lowered` is the
    graph that Inductor lowered. `line_map` has line numbers of the wrapper, ascending, each with
    the line of the model that produced the code from there on. `guards` is a condition on the
    integers among the inputs, the first of which is `L['t0']`.
    """

    cache_key: str
    fx_key: str = ""
    lowered: str = ""
    line_map: tuple[tuple[int, SourceLine], ...] = ()
    guards: str = ""


@dataclass(frozen=True)
class AutogradEntry:
    """One result of AOTAutograd: the keys of the graphs that it refers to, and its own graphs.

    `forward` and `backward` are keys of graphs, or of wrappers if the entry contains these in
    `graphs`. An inference has no `backward`.
    """

    forward: str
    backward: str = ""
    forward_graph: str = ""
    backward_graph: str = ""
    graphs: tuple[CacheEntry, ...] = ()


def read_graph(data: bytes) -> CacheEntry | None:
    """The compiled graph in the pickle of an entry; `None` if there is none.

    Raises `PickleError` if the data is not a pickle.
    """
    return next(graphs_in(pickle_values.read(data)), None)


def graphs_in(value: Any) -> Iterator[CacheEntry]:
    """Yield the compiled graphs in the value of a pickle."""
    yield from filter(None, map(_graph, pickle_values.objects(value)))


def read_autograd(data: bytes) -> AutogradEntry | None:
    """What an entry of AOTAutograd says; `None` if it is not one. Raises `PickleError`."""
    return next(autograd_in(pickle_values.read(data)), None)


def autograd_in(value: Any) -> Iterator[AutogradEntry]:
    """Yield the results of AOTAutograd in the value of a pickle."""
    for made in pickle_values.objects(value):
        forward = made.get("compiled_fw")
        if not isinstance(forward, Made):
            continue
        backward = made.get("compiled_bw")
        sides = (side for side in (forward, backward) if isinstance(side, Made))
        graphs = (_graph(side.get("result")) for side in sides)
        yield AutogradEntry(
            _key(forward),
            _key(backward),
            _text(made.get("aot_forward_graph_str")),
            _text(made.get("aot_backward_graph_str")),
            tuple(graph for graph in graphs if graph is not None),
        )


def _key(side: Any) -> str:
    """The key of one direction's graph: its own in the cache, or that of the wrapper in it."""
    if not isinstance(side, Made):
        return ""
    graph = _graph(side.get("result"))
    if graph is not None:
        return graph.cache_key
    # Since torch 2.8 with lines that say what the key is made of; before that, only the key.
    info = side.get("fx_graph_cache_info") or side.get("fx_graph_cache_key")
    key = info[0] if isinstance(info, (tuple, list)) and info else info
    return _text(key)


def _graph(one: Any) -> CacheEntry | None:
    if not isinstance(one, Made) or not one.name.endswith(_GRAPH):
        return None
    key = one.get("cache_key")
    if not isinstance(key, str):
        return None
    return CacheEntry(
        cache_key=key,
        fx_key=_text(one.get("_fx_graph_cache_key")),
        lowered=_text(one.get("inductor_post_grad_graph_str")),
        line_map=_line_map(one.get("cache_linemap")),
        guards=_text(one.get("guards_expr")),
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _line_map(value: Any) -> tuple[tuple[int, SourceLine], ...]:
    pairs = []
    known: dict[str, SourceLine | None] = {}  # many lines may share a trace
    for pair in value if isinstance(value, list) else ():
        if isinstance(pair, tuple) and len(pair) == 2:
            line, trace = pair
            if not (isinstance(line, int) and isinstance(trace, str)):
                continue
            if trace not in known:
                known[trace] = innermost(trace)
            if frame := known[trace]:
                pairs.append((line, frame))
    return tuple(sorted(pairs, key=lambda pair: pair[0]))


def innermost(trace: str) -> SourceLine | None:
    """The last frame of a stack trace that has the text of its line. Torch removes its own frames.

    >>> innermost('  File "/m.py", line 9, in f\\n    y = x.log()\\n        ^^^\\n')
    SourceLine(file='/m.py', line=9, function='f', code='y = x.log()')
    """
    frames = _FRAME.findall(trace)
    if not frames:
        return None
    file, line, function, code = frames[-1]
    return SourceLine(file, int(line[:9]), function, code.strip())
