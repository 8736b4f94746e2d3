"""Loads the declarations under `grammars/cpp/`: launch shapes, known calls, data flow, scopes.

Tree-sitter queries say what to find. A launch shape is one TOML file, as for Python; its `query`
captures the call as `@launch` and the called function as `@callee`.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import tree_sitter
import tree_sitter_cpp

from rewriter.core.signals import held_back
from rewriter.locate.declarations import folder, invalid
from rewriter.locate.grammar import Grammar, Shape, common_fields, compile_glob, read_folder
from rewriter.locate.vocabulary import check_kind, expand

ROLES = ("signature", "shim", "proxy", "block", "encoder")

# The effects of known calls on the data flow. A callee in several groups belongs to the first.
GROUPS = (
    "cast",
    "owner",
    "allocation",
    "view",
    "write",
    "copy",
    "check",
    "device",
    "scalar",
    "plumbing",
)

# The effects of statements on names, as in `data_flow.scm`.
EFFECTS = ("bind", "declare", "free")

# The captures that the other queries need.
_QUERIES = {
    "scopes": frozenset({"name", "body"}),
    "calls": frozenset({"call", "callee", "arguments"}),
    "data_flow": frozenset({"name", "type", "value"}),
}

# Tree-sitter takes an unknown predicate as one that always holds, and `not-any-of?` as one that
# holds if any of the texts differs.
_PREDICATES = frozenset({"eq?", "not-eq?", "match?", "not-match?", "any-of?", "set!"})
_PREDICATE = re.compile(r"\(#([\w-]+[?!]?)")
_CAPTURE = re.compile(r"@(\w+)")
# py-tree-sitter 0.26.1 corrupts memory when it frees a query with these two in this order.
_CRASHES = re.compile(r"\(#(?!set!)[^()]*\)\s*\(#set!")

LANGUAGE = tree_sitter.Language(tree_sitter_cpp.language())


@dataclass(frozen=True)
class CppShape(Shape):
    """A launch shape. `kinds` refine its kind by the kernel's name, `sources` by its source."""

    query: str
    kinds: tuple[tuple[re.Pattern[str], str], ...]
    sources: tuple[tuple[str, str], ...]

    def kind_of(self, kernel: str, source: str) -> str:
        """The kind of a launch of `kernel`. `source` is its source text if that is known."""
        for text, kind in self.sources:
            if text in source:
                return kind
        for pattern, kind in self.kinds:
            if pattern.fullmatch(kernel):
                return kind
        return self.kind


class CppGrammar(Grammar[CppShape]):
    """The shapes and the known calls of C++ wrappers, and the queries made from them."""

    def __init__(
        self,
        shapes: Iterable[CppShape],
        known_calls: dict[str, re.Pattern[str]],
        scopes: tree_sitter.Query,
        calls: tree_sitter.Query,
        data_flow: tree_sitter.Query,
    ) -> None:
        super().__init__(shapes, known_calls)
        self.scopes = scopes
        self.calls = calls
        self.data_flow = data_flow
        self.effects = [
            str(data_flow.pattern_settings(pattern)["effect"])
            for pattern in range(data_flow.pattern_count)
        ]
        # One query for all shapes searches a body once, and compiles ten times faster than a query
        # for each shape. Its patterns are in the order of the shapes.
        texts = [shape.query for shape in self.shapes]
        self.launches = _compiled("\n".join(texts))
        starts = list(accumulate((len(text.encode()) + 1 for text in texts), initial=0))
        self.owners = [
            self.shapes[bisect_right(starts, self.launches.start_byte_for_pattern(pattern)) - 1]
            for pattern in range(self.launches.pattern_count)
        ]


@cache
def load() -> CppGrammar:
    """Read and check every declaration for C++.

    Raises `RewriterError`, naming the file and the mistake.
    """
    shapes, known_calls = read_folder("cpp", GROUPS, _read_shape)
    root = folder() / "cpp"
    scopes, calls, data_flow = (
        _query_file(root / f"{name}.scm", captures) for name, captures in _QUERIES.items()
    )
    try:
        return CppGrammar(shapes, known_calls, scopes, calls, data_flow)
    except ValueError:
        read_folder("cpp", GROUPS, _compile_shape)  # its error names the file
        raise


def query(text: str) -> tree_sitter.Query:
    """Compile a query, in which `{devices}` stands for the names of all devices.

    Raises `ValueError` for other placeholders, and for predicates that tree-sitter would ignore or
    that would crash it.
    """
    return _compiled(_checked(text))


def _compiled(text: str) -> tree_sitter.Query:
    # An interrupt while it compiles a regular expression would be said to be an error of that.
    with held_back():
        return tree_sitter.Query(LANGUAGE, text)


def _checked(text: str) -> str:
    """Fill in the placeholders of a query, and refuse what tree-sitter mishandles."""
    for predicate in _PREDICATE.findall(text):
        if predicate not in _PREDICATES:
            raise ValueError(
                f"unknown predicate #{predicate}; known are {', '.join(sorted(_PREDICATES))}"
            )
    if _CRASHES.search(text):
        raise ValueError("#set! has to stand before the other predicates of a pattern")
    return expand(text)


def _query_file(file: Path, captures: frozenset[str]) -> tree_sitter.Query:
    try:
        compiled = query(file.read_text(encoding="utf-8"))
        _require_captures(compiled, captures)
        if file.stem == "data_flow":
            for pattern in range(compiled.pattern_count):
                effect = compiled.pattern_settings(pattern).get("effect")
                if effect not in EFFECTS:
                    raise ValueError(
                        f"pattern {pattern}: effect {effect!r} is none of {', '.join(EFFECTS)}"
                    )
    except (OSError, ValueError, tree_sitter.QueryError) as error:
        raise invalid(file, error) from error
    return compiled


def _require_captures(compiled: tree_sitter.Query, captures: frozenset[str]) -> None:
    _require_all(
        {compiled.capture_name(index) for index in range(compiled.capture_count)}, captures
    )


def _require_all(present: Collection[str], captures: frozenset[str]) -> None:
    if missing := captures.difference(present):
        raise ValueError(f"the query captures no @{', @'.join(sorted(missing))}")


def _compile_shape(declared: dict[str, Any]) -> CppShape:
    """As `_read_shape`. Raises if tree-sitter refuses the query."""
    query(declared["query"])
    return _read_shape(declared)


def _read_shape(declared: dict[str, Any]) -> CppShape:
    fields = common_fields(declared, ROLES, required={"query"}, optional={"kinds", "sources"})
    text = _checked(declared["query"])
    _require_all(_CAPTURE.findall(text), frozenset({"launch", "callee"}))
    kinds = [(row["kernel"], row["kind"]) for row in declared.get("kinds", [])]
    sources = [(row["text"], row["kind"]) for row in declared.get("sources", [])]
    for _, kind in (*kinds, *sources):
        check_kind(kind)
    return CppShape(
        **fields,
        query=text,
        kinds=tuple((compile_glob(kernel), kind) for kernel, kind in kinds),
        sources=tuple(sources),
    )
