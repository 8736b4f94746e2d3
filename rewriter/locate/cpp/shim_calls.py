"""Tells which functions that an AOTInductor library imports are launches, by the C++ grammar."""

from __future__ import annotations

import tree_sitter

from rewriter.locate.cpp import grammar as grammars
from rewriter.locate.cpp.grammar import LANGUAGE


def kind_of(name: str) -> str:
    """The kind of launches by a function of the C shim; empty if it launches nothing."""
    grammar = grammars.load()
    if grammar.effect(name) is not None:
        return ""
    tree = tree_sitter.Parser(LANGUAGE).parse(f"void f() {{ {name}(buf0); }}".encode())
    matches = tree_sitter.QueryCursor(grammar.launches).matches(tree.root_node)
    shapes = [grammar.owners[pattern] for pattern, _ in sorted(matches, key=lambda match: match[0])]
    return shapes[0].kind_of(name, "") if shapes else ""
