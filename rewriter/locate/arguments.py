"""Rules for the arguments of one launch in every language: unify roles, make names distinct."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from rewriter.core.types import Role, Type
from rewriter.locate.flow import Content, Flow
from rewriter.locate.types import Argument


@dataclass(frozen=True)
class DeclaredArgument:
    """What a kernel declares about one argument; `None` if it does not say. `parameter` as in
    `Argument`."""

    role: Role | None
    type: Type | None
    parameter: str = ""


UNKNOWN = DeclaredArgument(None, None)
INPUT = DeclaredArgument("in", None)


def unify_roles(arguments: list[Argument], flow: Flow) -> list[Argument]:
    """Make the roles of arguments over the same memory agree.

    Memory that one argument reads and another one writes is updated, with two exceptions. If the
    memory had no value before the launch, as when a kernel fills the parts of a concatenation, the
    kernel reads only what it wrote itself. And a part without a value is not updated; nor is one
    if the kernel reads the whole buffer, which then had no value either.
    """
    tensors = [a for a in arguments if a.type == "tensor"]
    if _are_apart(tensors):
        return arguments
    content = {a.name: flow.get(a.name).content for a in tensors}
    written = {a.buffer for a in tensors if a.role != "in"}
    updated = {
        a.buffer for a in tensors if a.role != "in" and content[a.name] is not Content.NOTHING
    }
    read = {a.buffer for a in tensors if a.role != "out" and content[a.name] is Content.WRITTEN}

    filled = {
        a.buffer
        for a in tensors
        if a.role != "in" and content[a.name] is Content.NOTHING and a.name != a.buffer
    }

    def role(argument: Argument) -> Role:
        if argument.name == argument.buffer and argument.buffer in filled:
            return "out"
        if content[argument.name] is Content.NOTHING and argument.buffer in written:
            return "out"
        if content[argument.name] is Content.STALE and argument.buffer in written - read:
            return "out" if argument.role == "in" else argument.role
        return "inout" if argument.buffer in updated & read else argument.role

    # A kernel may read what it writes itself.
    made = {a.buffer for a in tensors if a.role != "in" and a.hazard in ("", "updated")}
    arguments = [
        replace(a, hazard="") if a.hazard in ("unwritten", "taken") and a.buffer in made else a
        for a in arguments
    ]
    return [
        replace(a, role=agreed) if a.type == "tensor" and (agreed := role(a)) != a.role else a
        for a in arguments
    ]


def _are_apart(tensors: list[Argument]) -> bool:
    """Whether each argument is a whole buffer of its own, as most are."""
    names = {a.name for a in tensors if a.name == a.buffer}
    return len(names) == len(tensors)


def distinct_names(arguments: list[Argument]) -> tuple[Argument, ...]:
    """Give different tensors of one launch different names, such as two views of `buf4`."""
    if _are_apart([a for a in arguments if a.type == "tensor"]):
        return tuple(arguments)
    exprs: dict[str, str] = {}
    used: Counter[str] = Counter()
    result = []
    for argument in arguments:
        if argument.type == "tensor":
            if argument.expr not in exprs:
                used[argument.name] += 1
                count = used[argument.name]
                exprs[argument.expr] = argument.name + (f".{count}" if count > 1 else "")
            if exprs[argument.expr] != argument.name:
                argument = replace(argument, name=exprs[argument.expr])
        result.append(argument)
    return tuple(result)
