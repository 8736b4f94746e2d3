"""Loads the declarations under `grammars/cpp/`: launch shapes, data flow, scopes, non-launches.

What is to be found is written as tree-sitter queries. A launch shape is one TOML file, as for
Python, and its `query` captures the call as `@launch` and what it calls as `@callee`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

import tree_sitter
import tree_sitter_cpp

from rewriter.core.errors import FAILED, RewriterError
from rewriter.locate.grammar import check_keys, compile_glob, folder, read, texts
from rewriter.locate.types import KINDS

Roles = Literal["signature", "shim", "proxy", "block"]

# What a call that is no launch does to the data flow. The first group that a callee is in counts.
GROUPS = (
    "cast",
    "owner",
    "allocation",
    "view",
    "memory",
    "copy",
    "check",
    "device",
    "scalar",
    "plumbing",
)

# What a statement does to a name, as `data_flow.scm` says it.
EFFECTS = ("bind", "declare", "free")

# What the other queries have to capture.
_QUERIES = {
    "scopes": frozenset({"name", "body"}),
    "calls": frozenset({"call", "callee", "arguments"}),
    "data_flow": frozenset({"name", "type", "value"}),
}

# tree-sitter takes a predicate that it does not know for one that always holds, and `not-any-of?`
# for one that holds wherever one text differs.
_PREDICATES = frozenset({"eq?", "not-eq?", "match?", "not-match?", "any-of?", "set!"})
_PREDICATE = re.compile(r"\(#([\w-]+[?!]?)")
# py-tree-sitter 0.26.1 corrupts memory when it frees a query with these in this order.
_CRASHES = re.compile(r"\(#(?!set!)[^()]*\)\s*\(#set!")

LANGUAGE = tree_sitter.Language(tree_sitter_cpp.language())


@dataclass(frozen=True)
class Shape:
    """One launch shape. `kinds` refine its kind by the kernel's name, `sources` by its source.

    `query` has so many `patterns`.
    """

    kind: str
    order: int
    roles: Roles
    query: str
    patterns: int
    kinds: tuple[tuple[re.Pattern[str], str], ...]
    sources: tuple[tuple[str, str], ...]
    valid: tuple[str, ...]
    invalid: tuple[str, ...]

    def kind_of(self, kernel: str, source: str) -> str:
        """The kind of a launch of `kernel`, whose own source, if known, is `source`."""
        for text, kind in self.sources:
            if text in source:
                return kind
        for pattern, kind in self.kinds:
            if pattern.fullmatch(kernel):
                return kind
        return self.kind


class Grammar:
    """All declarations, and the queries made of them."""

    def __init__(
        self,
        shapes: tuple[Shape, ...],
        not_launches: dict[str, re.Pattern[str]],
        scopes: tree_sitter.Query,
        calls: tree_sitter.Query,
        data_flow: tree_sitter.Query,
    ) -> None:
        self.shapes = shapes
        self.scopes = scopes
        self.calls = calls
        self.data_flow = data_flow
        self.effects = [
            str(data_flow.pattern_settings(pattern)["effect"])
            for pattern in range(data_flow.pattern_count)
        ]
        # One query for all shapes: a body is searched once. Its patterns belong to their shapes.
        self.launches = tree_sitter.Query(LANGUAGE, "\n".join(shape.query for shape in shapes))
        self.owners = [shape for shape in shapes for _ in range(shape.patterns)]
        self._not_launches = not_launches
        self._effects: dict[str, str | None] = {}

    def effect(self, callee: str) -> str | None:
        """The group of `not_launches.toml` that `callee` is in, or `None`."""
        if callee not in self._effects:
            self._effects[callee] = next(
                (
                    group
                    for group, pattern in self._not_launches.items()
                    if pattern.fullmatch(callee)
                ),
                None,
            )
        return self._effects[callee]


@cache
def load() -> Grammar:
    """Read and check every declaration for C++.

    Raises `RewriterError` naming the file and what is wrong in it.
    """
    root = folder() / "cpp"
    shapes = []
    not_launches: dict[str, re.Pattern[str]] = {}
    for file in sorted(root.glob("*.toml")):
        try:
            declared = read(file)
            if file.stem == "not_launches":
                check_keys(declared, required=set(GROUPS), optional=set())
                not_launches = {group: compile_glob(*texts(declared, group)) for group in GROUPS}
            else:
                shapes.append(_shape(declared))
        except (KeyError, TypeError, ValueError, tree_sitter.QueryError) as error:
            raise _invalid(file, error) from error
    if not shapes or not not_launches:
        raise RewriterError(
            "grammar-missing",
            f"expected launch shapes and not_launches.toml in {root}",
            hint="The installation is incomplete: reinstall inductor-rewriter.",
            code=FAILED,
        )
    scopes, calls, data_flow = (
        _query_file(root / f"{name}.scm", captures) for name, captures in _QUERIES.items()
    )
    return Grammar(
        tuple(sorted(shapes, key=lambda shape: shape.order)),
        not_launches,
        scopes,
        calls,
        data_flow,
    )


def query(text: str) -> tree_sitter.Query:
    """Compile a query.

    Raises `ValueError` for a predicate that tree-sitter would ignore, or crash at.
    """
    for predicate in _PREDICATE.findall(text):
        if predicate not in _PREDICATES:
            raise ValueError(
                f"unknown predicate #{predicate}; known are {', '.join(sorted(_PREDICATES))}"
            )
    if _CRASHES.search(text):
        raise ValueError("#set! has to stand before the other predicates of a pattern")
    return tree_sitter.Query(LANGUAGE, text)


def _query_file(file: Path, captures: frozenset[str]) -> tree_sitter.Query:
    try:
        found = query(file.read_text(encoding="utf-8"))
        _require_captures(found, captures)
        if file.stem == "data_flow":
            for pattern in range(found.pattern_count):
                effect = found.pattern_settings(pattern).get("effect")
                if effect not in EFFECTS:
                    raise ValueError(
                        f"pattern {pattern}: effect {effect!r} is none of {', '.join(EFFECTS)}"
                    )
    except (OSError, ValueError, tree_sitter.QueryError) as error:
        raise _invalid(file, error) from error
    return found


def _require_captures(found: tree_sitter.Query, captures: frozenset[str]) -> None:
    present = {found.capture_name(index) for index in range(found.capture_count)}
    if missing := captures - present:
        raise ValueError(f"the query captures no @{', @'.join(sorted(missing))}")


def _invalid(file: Path, error: Exception) -> RewriterError:
    return RewriterError(
        "grammar-invalid",
        f"{file}: {type(error).__name__}: {error}",
        hint="See CONTRIBUTING.md for what a declaration holds.",
        code=FAILED,
    )


def _shape(declared: dict[str, Any]) -> Shape:
    check_keys(
        declared,
        required={"kind", "order", "roles", "query", "examples"},
        optional={"kinds", "sources"},
    )
    if declared["roles"] not in get_args(Roles):
        raise ValueError(f"roles {declared['roles']!r} is none of {', '.join(get_args(Roles))}")
    if not isinstance(declared["order"], int):
        raise TypeError(f"order {declared['order']!r} is no whole number")
    found = query(declared["query"])
    _require_captures(found, frozenset({"launch", "callee"}))
    kinds = [(row["kernel"], row["kind"]) for row in declared.get("kinds", [])]
    sources = [(row["text"], row["kind"]) for row in declared.get("sources", [])]
    for kind in (declared["kind"], *(kind for _, kind in (*kinds, *sources))):
        if kind not in KINDS:
            raise ValueError(f"kind {kind!r} is none of {', '.join(KINDS)}")
    return Shape(
        kind=declared["kind"],
        order=declared["order"],
        roles=declared["roles"],
        query=declared["query"],
        patterns=found.pattern_count,
        kinds=tuple((compile_glob(kernel), kind) for kernel, kind in kinds),
        sources=tuple(sources),
        valid=texts(declared["examples"], "valid"),
        invalid=texts(declared["examples"], "invalid"),
    )
