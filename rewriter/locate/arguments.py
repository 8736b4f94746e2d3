"""What every language does with the arguments of one launch: unify roles, tell names apart."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from rewriter.core.types import Role, Type
from rewriter.locate.flow import Content, Flow
from rewriter.locate.types import Argument


@dataclass(frozen=True)
class DeclaredArgument:
    """What a kernel says of one argument; `None` where it does not tell."""

    role: Role | None
    type: Type | None


UNKNOWN = DeclaredArgument(None, None)
INPUT = DeclaredArgument("in", None)


def unify_roles(arguments: list[Argument], flow: Flow) -> list[Argument]:
    """Agree on the roles of arguments over the same memory.

    What one argument reads and another writes is updated. But a kernel that reads memory without a
    value, which another argument writes, reads what it has written itself, as one that fills the
    parts of a concatenation does; and a part that nothing has written yet is no update. So does one
    that reads the whole and writes a part that holds nothing: before it, the whole had no value.
    """
    content = {a.name: flow.get(a.name).content for a in arguments if a.type == "tensor"}
    tensors = [a for a in arguments if a.type == "tensor"]
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

    # What the kernel writes itself, it may read.
    made = {a.buffer for a in tensors if a.role != "in" and a.hazard in ("", "updated")}
    arguments = [
        replace(a, hazard="") if a.hazard in ("unwritten", "taken") and a.buffer in made else a
        for a in arguments
    ]
    return [
        replace(a, role=agreed) if a.type == "tensor" and (agreed := role(a)) != a.role else a
        for a in arguments
    ]


def distinct_names(arguments: list[Argument]) -> tuple[Argument, ...]:
    """Give different tensors of one launch different names: two views of `buf4` are two values."""
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
