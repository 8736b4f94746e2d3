"""The types of values that are read from cache entries. No I/O."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Frame:
    """A frame of a stack trace: a line of the model, with its text."""

    file: str
    line: int
    function: str
    code: str


@dataclass(frozen=True)
class CacheEntry:
    """One `CompiledFxGraph` (torch/_inductor/output_code.py). What torch did not keep is empty.

    `cache_key` is the stem of the wrapper's file, `fx_key` the key of the graph. `lowered` is the
    graph that Inductor lowered. `line_map` has line numbers of
    the wrapper, ascending, each with the innermost frame of the model that produced the code from
    there on. `guards` is a condition on the integers among the inputs, the first of which is
    `L['t0']`.
    """

    cache_key: str
    fx_key: str = ""
    lowered: str = ""
    line_map: tuple[tuple[int, Frame], ...] = ()
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
