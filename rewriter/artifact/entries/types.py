"""The values that reading the entries of a cache gives. No I/O."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Frame:
    """A frame of a stack trace: a line of the model, and its text."""

    file: str
    line: int
    function: str
    code: str


@dataclass(frozen=True)
class CacheEntry:
    """One `CompiledFxGraph` (torch/_inductor/output_code.py); what a torch does not keep is empty.

    `cache_key` is the stem of the wrapper's file, `fx_key` the key of the graph. `lowered` is the
    graph that Inductor lowered, `runnable` a program that runs it. `line_map` has lines of the
    wrapper, ascending, each with the innermost frame of the model that the code from there on is
    from. `guards` is a condition on the integers among the inputs, `L['t0']` being the first.
    """

    cache_key: str
    fx_key: str = ""
    lowered: str = ""
    runnable: str = ""
    line_map: tuple[tuple[int, Frame], ...] = ()
    guards: str = ""
    is_backward: bool | None = None


@dataclass(frozen=True)
class AutogradEntry:
    """One result of AOTAutograd: the keys of the graphs that it leads to, and its own graphs.

    `forward` and `backward` are keys of graphs, or of wrappers where the entry holds those itself,
    in `graphs`. An inference has no `backward`.
    """

    forward: str
    backward: str = ""
    forward_graph: str = ""
    backward_graph: str = ""
    graphs: tuple[CacheEntry, ...] = ()
