"""Walks over Python's syntax trees, in which a large wrapper has millions of nodes.

The order is that of `ast.walk`, but operators and contexts, which we never need, are left out. It
is three times as fast, since the fields of a class of nodes that may hold nodes are cached.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

_LEAVES = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
_NO_CHILDREN = frozenset({"id", "attr", "arg", "kind", "type_comment", "level", "module", "ctx"})


class _Fields(dict[type[ast.AST], tuple[str, ...]]):
    """The fields of a class of nodes that may hold nodes, cached."""

    def __missing__(self, kind: type[ast.AST]) -> tuple[str, ...]:
        is_leaf = issubclass(kind, (ast.Constant, ast.Name))
        fields = () if is_leaf else tuple(x for x in kind._fields if x not in _NO_CHILDREN)
        return self.setdefault(kind, fields)


_FIELDS = _Fields()


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and all nodes below it, level by level."""
    found = [node]
    for one in found:  # the list grows in the loop
        yield one
        for name in _FIELDS[one.__class__]:
            value = getattr(one, name, None)
            if value.__class__ is list:
                found += [x for x in value if isinstance(x, ast.AST)]
            elif isinstance(value, ast.AST) and not isinstance(value, _LEAVES):
                found.append(value)


def children(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes directly below one."""
    for name in _FIELDS[node.__class__]:
        value = getattr(node, name, None)
        if value.__class__ is list:
            yield from (x for x in value if isinstance(x, ast.AST))
        elif isinstance(value, ast.AST) and not isinstance(value, _LEAVES):
            yield value


def names(node: ast.AST) -> Iterator[str]:
    """Yield the names in an expression or statement."""
    for inner in walk(node):
        if inner.__class__ is ast.Name:
            yield inner.id


def subscripted(node: ast.expr) -> str:
    """The name at the bottom of `buf7[0][1]`."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def is_partition(function: str) -> bool:
    """Whether a function of a wrapper is a partition of the graph, by its name. Inductor may
    capture a partition into a CUDA graph, and runs it once in a call."""
    return function.startswith("partition_")
