"""Tracks the variables of a scope: which one owns their memory, and whether it holds a value.

Inductor names each buffer once, when something computes it. So if a launch writes a buffer that was
already written under its own name, it updates the buffer. And a buffer that was only allocated, or
took over the memory of a dead buffer, has no meaningful value before the launch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum

from rewriter.core.types import Role, Type
from rewriter.locate.types import Hazard

# Buffers and inputs, as Inductor names them.
_VALUE = re.compile(r"(?:buf|primals_|tangents_)\d+$|arg\d+_\d+$")
# Symbolic sizes (s0, u1, ks0, ps0), and numbers that launches compute from them.
_SYMBOL = re.compile(r"(s|u|ks|ps|zuf|i)\d+$|.*_[xyzr]\d*_?numel$")


class Content(Enum):
    """The state of a variable's memory."""

    NOTHING = "allocated, never written"
    STALE = "what a buffer that is gone left there"
    WRITTEN = "its own value"


@dataclass(frozen=True, slots=True)
class Variable:
    """`root` was allocated with the memory, `owner` has it now: a view of it is neither. `parts`
    are the views through which it was written so far; empty if all of it was written.
    """

    root: str
    content: Content
    type: Type | None
    owner: str
    parts: frozenset[str] = frozenset()


@dataclass(slots=True)
class Flow:
    """The variables at one point of a scope. Copied where control flow branches."""

    tensors: frozenset[str]
    scalars: frozenset[str]
    variables: dict[str, Variable] = field(default_factory=dict)
    # Variables that were deleted and not bound again, as they were; `None` if the text does not
    # bind them, as that of a part.
    gone: dict[str, Variable | None] = field(default_factory=dict)
    # Variables whose memory another buffer has taken over as a whole.
    lost: set[str] = field(default_factory=set)
    # Other names for memory, by the variable that owns it.
    aliases: dict[str, set[str]] = field(default_factory=dict)
    # Owners of memory without elements, which nothing has to write.
    empty: set[str] = field(default_factory=set)
    is_closed: bool = False  # whether all values that exist here are known

    def branch(self) -> Flow:
        return Flow(
            self.tensors,
            self.scalars,
            dict(self.variables),
            dict(self.gone),
            set(self.lost),
            {root: set(names) for root, names in self.aliases.items()},
            self.empty,
            self.is_closed,
        )

    def join(self, other: Flow) -> None:
        """Control flow also comes here from `other`: what either has written may hold a value. If
        both have written a variable, this flow's is kept: a loop may have given it other memory."""
        for name, variable in other.variables.items():
            mine = self.variables.get(name)
            written = variable.content is Content.WRITTEN
            if mine is None or (written and mine.content is not Content.WRITTEN):
                self.variables[name] = variable

    def only(self, names: Iterable[str]) -> Flow:
        """A copy with `names` alone: copying everything for each launch would be quadratic."""
        names = set(names)
        known = {name: self.variables[name] for name in names if name in self.variables}
        gone = {name: self.gone[name] for name in names if name in self.gone}
        lost = self.lost & names
        return Flow(self.tensors, self.scalars, known, gone, lost, {}, self.empty, self.is_closed)

    def forget(self, name: str) -> None:
        """`name` was deleted."""
        variable = self.variables.pop(name, None)
        if variable is not None or _VALUE.match(name):
            self.gone[name] = variable

    def hazard(self, name: str, declared: Role | None) -> Hazard:
        """What is wrong with memory that a kernel reads, judging by the text."""
        if name in self.gone:
            return "freed"
        if (known := self.variables.get(name)) is None:
            return "unbound" if self.is_closed and _VALUE.match(name) else ""
        if declared in ("out", None):
            return ""
        if name in self.lost:
            return "stale"
        if known.root in self.empty:
            return ""
        if declared == "inout":
            return "updated" if known.content is Content.NOTHING else ""
        if known.content is Content.NOTHING:
            return "unwritten"
        return "taken" if known.content is Content.STALE else ""

    def _bind(self, name: str, variable: Variable) -> None:
        self.variables[name] = variable
        self.gone.pop(name, None)
        self.lost.discard(name)

    def outdate(self, name: str) -> None:
        """`name` still holds the value of a buffer that no longer exists, not one of its own."""
        if name in self.variables and self.variables[name].content is Content.WRITTEN:
            self.variables[name] = replace(self.variables[name], content=Content.STALE)

    def get(self, name: str) -> Variable:
        """A variable; one that was never seen here is from outside, and counts as written."""
        known = self.variables.get(name)
        return known or Variable(name, Content.WRITTEN, self._outside(name), name)

    def type_of(self, name: str) -> Type:
        """The type of a variable; an unknown one counts as a tensor."""
        return self.get(name).type or "tensor"

    def receive(self, name: str) -> None:
        """`name` is an input of the scope."""
        self._bind(name, Variable(name, Content.WRITTEN, self._outside(name), name))

    def allocate(self, name: str, *, empty: bool = False) -> None:
        """`name` is new memory; `empty` if it has no elements."""
        self._bind(name, Variable(name, Content.NOTHING, "tensor", name))
        if empty:
            self.empty.add(name)
        else:
            self.empty.discard(name)

    def compute(self, name: str, kind: Type | None) -> None:
        """`name` holds a new value of its own."""
        self._bind(name, Variable(name, Content.WRITTEN, kind, name))

    def alias(
        self, name: str, base: str, *, reuse: bool, fresh: bool = False, whole: bool = False
    ) -> None:
        """`name` is `base`, or a view of it; with `reuse`, `base` is dead.

        With `fresh`, `name` is a part of `base` that nothing has written yet. With `whole`, it is
        the same tensor under another name, and Inductor uses only the new name from then on.
        """
        old = self.get(base)
        content = old.content
        if reuse and content is Content.WRITTEN:
            content = Content.STALE
        if fresh:
            content = Content.NOTHING
        kind = old.type
        if kind is None and _SYMBOL.match(name):
            # `s77 = arg2_1` at the top of a scope: the input is a size.
            kind = "scalar"
            self.variables[base] = replace(old, type=kind)
        if kind == "scalar" and not reuse:  # `s97 = s23`: a number has no memory that is taken over
            self._bind(name, replace(old, type=kind))
            return
        self._bind(name, Variable(old.root, content, kind, name if reuse else old.owner))
        if reuse or whole:
            self.lost.add(base)
        others = self.aliases.setdefault(old.root, set())
        if reuse:  # all other names for that memory
            self.lost |= {x for x in others if x != name and self.get(x).root == old.root}
            others.clear()
        others.add(name)

    def write(self, name: str, view: str = "") -> None:
        """Something wrote `name`, or only the part of it that `view`, an expression over it, shows.

        If `name` is itself a view, the buffer that has the memory has a value now, too.
        """
        old = self.get(name)
        partly = bool(view) and (old.content is Content.NOTHING or bool(old.parts))
        parts = old.parts | {view} if partly else frozenset()
        for written in {name, old.owner}:
            known = self.get(written)
            if known.content is not Content.WRITTEN or written not in self.variables:
                self.variables[written] = replace(known, content=Content.WRITTEN)
        if self.variables[name].parts != parts:
            self.variables[name] = replace(self.variables[name], parts=parts)

    def role(self, name: str, declared: Role | None, view: str = "") -> Role:
        """The role of an argument, from what its kernel declares and what its memory holds.

        `view` is the expression over `name` that is passed, empty for `name` itself.
        """
        variable = self.get(name)
        content = variable.content
        if view and variable.parts and view not in variable.parts and declared != "in":
            # Another part of the buffer was written, but not this one.
            return "out"
        if content is Content.NOTHING:
            # Whatever the operator's name says, there is no value yet that it could read.
            return "out"
        if declared == "in":
            return "in"
        if declared == "out":
            return "inout" if content is Content.WRITTEN else "out"
        return "inout"

    def _outside(self, name: str) -> Type | None:
        if name in self.tensors:
            return "tensor"
        if name in self.scalars or _SYMBOL.match(name):
            return "scalar"
        return None
