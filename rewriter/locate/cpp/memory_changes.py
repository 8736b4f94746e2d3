"""Follows what the statements of a C++ wrapper do to memory, and which names share it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rewriter.locate.flow import Content, Flow
from rewriter.locate.types import MemoryAction

_ALLOCATIONS = ("aoti_torch_empty_strided", "aoti_torch__alloc_from_pool")
# Inductor cuts a pool into parts by their offsets, so it must begin its storage and stay as it is.
# Each part is a buffer.
_POOL = re.compile(r"pool\d+$")


@dataclass(frozen=True)
class MemoryChange:
    """As `MemoryEvent`; `root` is the variable that the memory was allocated for."""

    action: MemoryAction
    buffer: str
    of: str
    root: str
    is_held: bool
    obstacle: str = ""


class MemoryChanges:
    """Gets the changes in file order, each before the flow of variables is updated, except for
    `shared` and `moved`."""

    def __init__(self) -> None:
        self._waiting: list[MemoryChange] = []
        self._allocated: set[str] = set()  # handles of new memory that no buffer has yet
        self._given: set[str] = set()  # names of memory from outside
        self._own: set[str] = set()  # buffers that the wrapper allocated
        self._empty: set[str] = set()  # variables without a value
        self._holders: dict[str, set[str]] = {}  # by root, the names for its memory

    def take(self) -> list[MemoryChange]:
        """The changes since the last call of this method."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def made_by(self, function: str, handle: str) -> None:
        if function in _ALLOCATIONS:
            self._allocated.add(handle)

    def given(self, name: str) -> None:
        self._given.add(name)
        self._empty.discard(name)

    def declared(self, name: str) -> None:
        self._empty.add(name)

    def shared(self, name: str, flow: Flow) -> None:
        """`name` became a view of something."""
        root = flow.get(name).root
        self._holders.setdefault(root, {root}).add(name)
        self._empty.discard(name)

    def moved(self, name: str, old: str, flow: Flow) -> None:
        """`name` has the value of `old`, which no longer exists."""
        self._empty.discard(name)
        if old in self._allocated:
            self._allocated.discard(old)
            self._own.add(name)
            self._holders[name] = {name}
            obstacle = "its parts are guarded, each by itself" if _POOL.match(name) else ""
            self._waiting.append(MemoryChange("allocate", name, "", name, False, obstacle))
            return
        holders = self._holders.setdefault(flow.get(name).root, set())
        holders.discard(old)
        holders.add(name)

    def reused(self, name: str, base: str, flow: Flow, *, through: str = "") -> None:
        """`name` takes over the memory of `base`, possibly through another name."""
        known = flow.get(base)
        if known.content is not Content.NOTHING and known.root not in self._given:
            held = self._is_held(known.root, name, base, through)
            self._waiting.append(MemoryChange("reuse", name, base, known.root, held))

    def released(self, name: str, flow: Flow) -> None:
        known = flow.variables.get(name)
        if known is None or known.type != "tensor" or name in self._empty or name in flow.lost:
            return
        if known.root not in self._given:
            held = self._is_held(known.root, name)
            self._waiting.append(MemoryChange("release", name, "", known.root, held))

    def gone(self, name: str, flow: Flow) -> None:
        if (known := flow.variables.get(name)) is not None:
            self._holders.get(known.root, set()).discard(name)
        self._empty.add(name)

    def _is_held(self, root: str, *names: str) -> bool:
        """Whether others may use the memory: by the text, or since a kernel allocated it."""
        others = self._holders.get(root, set()).difference(names)
        return root not in self._own or bool(others)
