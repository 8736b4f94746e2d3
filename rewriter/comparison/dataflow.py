"""Where the values that a launch read came from, as far as a dump tells.

A name means what was written last under it in its scope. Where that is not the value that was
read (a parameter of a subgraph, memory under a new name), the value itself is looked up: by its
digest, or by its statistics.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from rewriter.alignment import Keys, canonical, launch_keys
from rewriter.comparison.types import Place
from rewriter.dump import RunDump, Step
from rewriter.types import Json

_MEMBER = re.compile(r"\[\d+\]|\.\d+$")  # of a list of tensors; a further view of the same tensor
_PLAIN = ("numel", "min", "max", "mean", "std", "nan", "inf")


@dataclass(frozen=True)
class Source:
    """A value by its origin: the `slot`-th result of a step of the same run."""

    step: int
    slot: int


@dataclass(frozen=True)
class Node:
    """A step with what it read and wrote.

    `sources` say of each tensor that it read where that came from, `None` where nobody knows;
    `slots` number its results by their names. `keys` are what it is aligned by.
    """

    step: Step
    place: Place
    sources: tuple[Source | None, ...]
    slots: dict[str, int]
    keys: Keys


def reads(rows: Iterable[Json]) -> list[Json]:
    """The rows of what a launch was given: before it, or after it where only that was recorded.

    What it updates is only known before.
    """
    rows = list(rows)
    before = [row for row in rows if row.get("phase") == "before" and "arg" in row]
    return before or [row for row in _after(rows) if row.get("role") == "in"]


def results(rows: Iterable[Json]) -> list[Json]:
    """The rows of what a launch wrote; the inputs of a call are the results of its first step."""
    rows = list(rows)
    if rows and rows[0].get("phase") == "inputs":
        return [row for row in rows if "arg" in row]
    return [row for row in _after(rows) if row.get("role") != "in"]


def _after(rows: list[Json]) -> list[Json]:
    return [row for row in rows if row.get("phase") == "after" and "arg" in row]


def tensors(rows: Iterable[Json]) -> list[Json]:
    return [row for row in rows if "dtype" in row]


def buffer(name: str) -> str:
    """The variable behind a name of the dump: `buf5.2` and `buf7[0]` are of `buf5` and `buf7`."""
    return _MEMBER.sub("", name)


def fingerprint(row: Json) -> Hashable:
    """What tells a value from others without reading it; `None` where the dump does not say."""
    if "sha256" in row:
        return (row["dtype"], row["sha256"])
    if row.get("numel"):
        return (row["dtype"], *(row.get(name) for name in _PLAIN))
    return None


def trace(run: RunDump) -> list[Node]:
    """The steps of a run in order, with the sources of what they read."""
    tracer = _Tracer()
    return [tracer.node(run, step, run.rows(step)) for step in run.steps]


class _Tracer:
    """Follows one run: who wrote what under which name, and which value."""

    def __init__(self) -> None:
        self._by_name: dict[tuple[str, str], Source] = {}
        self._by_value: dict[Hashable, Source] = {}
        self._values: dict[Source, Hashable] = {}
        self._inputs: dict[str, Source] = {}
        self._names: dict[Source, Hashable] = {}  # for the keys: the same in two like runs
        self._deep: dict[Source, Hashable] = {}

    def node(self, run: RunDump, step: Step, rows: list[Json]) -> Node:
        facts = {} if step.launch is None else run.table.get(step.launch, {})
        place = Place(
            run.name,
            step.position,
            step.launch,
            step.iteration,
            step.kernel,
            str(facts.get("kind", "")),
            str(facts.get("scope", "")),
            int(facts.get("line", 0)),
            tuple(facts.get("source_nodes", ())),
            tuple(facts.get("origins", ())),
        )
        read, written = tensors(reads(rows)), tensors(results(rows))
        sources = tuple(self._source(place.scope, row) for row in read)
        keys = self._keys(place, read, written, sources)
        slots = self._write(place, written, keys)
        return Node(step, place, sources, slots, keys)

    def _source(self, scope: str, row: Json) -> Source | None:
        name, value = buffer(row["arg"]), fingerprint(row)
        named = self._by_name.get((scope, name)) or self._inputs.get(name)
        # A view of a part has another value than the whole, so only a whole can be told apart.
        if named is not None and (
            value is None or row["arg"] != name or self._values.get(named) in (value, None)
        ):
            return named
        return self._by_value.get(value) or named

    def _keys(
        self, place: Place, read: list[Json], written: list[Json], sources: Iterable[Source | None]
    ) -> Keys:
        if place.launch is None:
            return tuple(["inputs"] * 8)
        shapes = (
            tuple(tuple(row["shape"]) for row in read if row.get("role") == "in"),
            tuple(tuple(row["shape"]) for row in written),
        )
        keys = launch_keys(place.kernel, place.kind, shapes, place.source_nodes, place.origins)
        near = tuple(self._names.get(source) if source else None for source in sources)
        deep = tuple(self._deep.get(source) if source else None for source in sources)
        # A hash stands for all that led here, which would be a tree as large as the run.
        return (hash((keys[0], deep)), hash((keys[0], near)), *keys)

    def _write(self, place: Place, written: list[Json], keys: Keys) -> dict[str, int]:
        slots: dict[str, int] = {}
        for slot, row in enumerate(written):
            source = Source(place.step, slot)
            name, value = buffer(row["arg"]), fingerprint(row)
            slots.setdefault(row["arg"], slot)
            if place.launch is None:
                self._inputs[name] = source
                self._names[source] = self._deep[source] = ("input", name)
            else:
                self._by_name[place.scope, name] = source
                self._names[source] = (canonical(place.kernel), slot)
                self._deep[source] = (keys[0], slot)
            if value is not None:
                self._by_value[value] = source
                self._values[source] = value
        return slots
