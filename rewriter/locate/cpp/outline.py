"""The skeleton of a C++ wrapper: its entries, the declarations of its kernels, its includes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import tree_sitter

from rewriter.core import limits
from rewriter.core.errors import RewriterError
from rewriter.core.scan import last_word
from rewriter.core.source import Source
from rewriter.core.types import Json
from rewriter.locate import kernels
from rewriter.locate.cpp import lexer
from rewriter.locate.cpp.embedded import Embedded
from rewriter.locate.cpp.grammar import LANGUAGE, CppGrammar
from rewriter.locate.cpp.kernel_sources import c_functions, launchers, metal_kernels, triton_kernels
from rewriter.locate.kernels import Parameter

# Lines after which another may go: not those that continue, by a backslash or in a comment.
_INCLUDES = re.compile(
    rb"(?:[ \t]*(?:#[ \t]*(?:include|pragma once)(?:[^\r\n/]|/(?!\*))*|//[^\r\n]*)?"
    rb"(?<!\\)\r?\n)*"
)
_LAST_INCLUDE = re.compile(rb"^[ \t]*#[ \t]*include[^\n]*\n", re.MULTILINE)
# `static constexpr int64_t int_array_0[] = {0L, 4L};`, the size of a tensor without elements.
_EMPTY_SIZE = re.compile(
    rb"\bint64_t (?P<name>\w{1,64})\[\] = \{(?=[^{};]{0,999}\b0L*\s*[,}])[^{};]{0,999}\}"
)
# `\blong(?=\()`, which `re` would find slowly: see EMBEDDED.
_LONG = re.compile(rb"long(?<=\blong)(?=\()")
# Runs before the model, to fold its constants; often it is empty.
_FOLDING = "_const_run_impl"
_CONTINUED = re.compile(rb"\\(?:\r\n|\r|\n)\Z")
_CARRIAGE_RETURN = re.compile(rb"\r(?!\n)")
_WORD = re.compile(rb"\w+")
# A backslash at the end of a line joins it with the next one.
_SPLICE = re.compile(r"\\\r?\n")
_SPACES = re.compile(rf"(?:{_SPLICE.pattern}|\s)+")


Operators = Sequence[Json]
"""The nodes of a `.wrapper.json`, in order."""


@dataclass(frozen=True)
class Body:
    """The body of an entry. `name` is that of the function, without its class."""

    name: str
    node: tree_sitter.Node


class CppOutline:
    """One C++ wrapper, parsed. `operators` are those that its proxy executor can run."""

    def __init__(
        self, source: Source, text: Embedded, grammar: CppGrammar, operators: Operators = ()
    ) -> None:
        self.source = source
        self.text = text
        self.data = text.data
        self.grammar = grammar
        self.operators = operators
        self._triton: dict[str, tuple[str, tuple[Parameter, ...]]] = {}
        lexer.require_parsable(source.name, text.data)

    @cached_property
    def bodies(self) -> tuple[Body, ...]:
        """The bodies of the entries, in file order.

        Each is parsed separately: the rest of a wrapper never parses without errors, and lines that
        are inserted elsewhere must not change what is found here. Raises `RewriterError` if a body
        does not parse or does not end, or if there is none.
        """
        bodies: list[Body] = []
        if alone := _CARRIAGE_RETURN.search(self.data):
            line = self.data.count(b"\n", 0, alone.start()) + 1
            raise RewriterError(
                "syntax-error",
                f"{self.source.name}:{line}: a carriage return alone, which ends no line in C++",
                hint="Expected a wrapper as Inductor wrote it; convert its line ends.",
            )
        # tree-sitter parses casts such as `bool(x)`, but not `long(x)`, which torch 2.6 writes.
        data = _LONG.sub(b"bool", self.data)
        for definition in lexer.definitions(self.data):
            if definition.end < 0:
                raise self._never_ends(definition)
            bodies += self._parsed(data, definition)
        self._require_entries({body.name for body in bodies})
        return tuple(bodies)

    def _parsed(self, data: bytes, definition: lexer.EntryDefinition) -> Iterator[Body]:
        start, end = self._point(definition.start), self._point(definition.end)
        span = tree_sitter.Range(start, end, definition.start, definition.end)
        tree = tree_sitter.Parser(LANGUAGE, included_ranges=[span]).parse(data)
        matches = tree_sitter.QueryCursor(self.grammar.scopes).matches(tree.root_node)
        if not matches:
            raise self._syntax_error(definition.name)
        for _, captures in matches:
            (name,), (body,) = captures["name"], captures["body"]
            self._require_shallow(body)
            if body.has_error or body.end_byte != definition.end:
                raise self._syntax_error(_first_error(body).start_byte)
            yield Body(without_templates(self.read(name)).split("::")[-1].strip(), body)

    def _point(self, offset: int) -> tuple[int, int]:
        """An offset as tree-sitter gives it: the line, from 0, and the column in bytes."""
        line_start = self.data.rfind(b"\n", 0, offset) + 1
        return self.data.count(b"\n", 0, offset), offset - line_start

    def _require_shallow(self, body: tree_sitter.Node) -> None:
        """Raise if nodes are nested too deeply for recursion. Short nodes cannot be."""
        level = [body]
        for _ in range(limits.CPP_NESTING):
            level = [
                child
                for node in level
                for child in node.named_children
                if child.end_byte - child.start_byte > limits.CPP_NESTING
            ]
            if not level:
                return
        raise limits.too_large(
            f"{self.source.name}:{self.line(level[0])}",
            f"nested more than {limits.CPP_NESTING} deep",
            str(limits.CPP_NESTING),
        )

    def _never_ends(self, definition: lexer.EntryDefinition) -> RewriterError:
        line = self.source.line_of(self.position(definition.name))
        name = _WORD.match(self.data, definition.name)
        return RewriterError(
            "truncated",
            f"{self.source.name}:{line}: the file ends too early: "
            f"{name.group().decode() if name else 'a function'} never ends",
            hint="Expected a complete wrapper; copy it again.",
        )

    def _require_entries(self, names: set[str]) -> None:
        if not names - {_FOLDING}:
            raise RewriterError(
                "truncated",
                f"{self.source.name}: the file ends too early: no inductor_entry_impl, no run_impl",
                hint="Expected a complete wrapper; copy it again.",
            )

    def read(self, node: tree_sitter.Node) -> str:
        """The text of a node on one line, even if a formatter broke it."""
        text = self.data[node.start_byte : node.end_byte].decode("utf-8", "replace")
        return _SPACES.sub(_unbroken, text) if "\n" in text or "\r" in text else text

    def position(self, offset: int) -> int:
        """The offset in the file of an offset in the C++."""
        return self.text.position(offset)

    def is_continued(self, start: int) -> bool:
        """Whether a backslash joins the line at an offset of the file to the line above."""
        return bool(_CONTINUED.search(self.source.data, max(0, start - 3), start))

    def line(self, node: tree_sitter.Node) -> int:
        """The line of the file on which a node starts."""
        return self.source.line_of(self.position(node.start_byte))

    @cached_property
    def header(self) -> int:
        """The offset in the file after the includes at its top."""
        leading = _INCLUDES.match(self.data)
        assert leading is not None
        included = list(_LAST_INCLUDE.finditer(self.data, 0, leading.end()))
        return self.position(included[-1].end() if included else leading.end())

    @cached_property
    def empty_sizes(self) -> frozenset[str]:
        """The names of arrays that are the size of a tensor without elements."""
        return frozenset(match["name"].decode() for match in _EMPTY_SIZE.finditer(self.data))

    @cached_property
    def cpp_kernels(self) -> dict[str, tuple[Parameter, ...]]:
        """The parameters of the C++ kernels that are declared or defined here."""
        by_name = {}
        for function in c_functions(self.data):
            # If a kernel is declared and defined, the definition says more.
            parameters = kernels.cpp(f"void kernel({function.parameters})\n{function.body}")
            if parameters is not None and (function.body or function.name not in by_name):
                by_name[function.name] = parameters
        return by_name

    @cached_property
    def launchers(self) -> dict[str, tuple[str, ...]]:
        """The parameter names of each `call_<kernel>`, by kernel."""
        return {
            head["name"].decode(): tuple(
                _parameter_names(self.data[head.end() : end.start()].decode("utf-8", "replace"))
            )
            for head, end in launchers(self.data)
        }

    @cached_property
    def triton_sources(self) -> dict[str, str]:
        """The Triton sources that the C++ quotes, or the Python above it, by the names of the
        kernels in the wrapper."""
        above = triton_kernels(self.source.data[: self.text.start])
        return {kernel.name: kernel.text for kernel in (*above, *triton_kernels(self.data))}

    def triton(self, kernel: str) -> tuple[str, tuple[Parameter, ...]]:
        """The source and parameters of a Triton kernel, as far as known; each is read once."""
        if kernel not in self._triton:
            from rewriter.locate.python.kernel_functions import triton

            source = self.triton_sources.get(kernel, "")
            self._triton[kernel] = source, triton(source) or ()
        return self._triton[kernel]

    @cached_property
    def metal_sources(self) -> dict[str, str]:
        """The Metal sources that the C++ quotes, by the names of their libraries."""
        return {kernel.name: kernel.text for kernel in metal_kernels(self.data)}

    def _syntax_error(self, offset: int) -> RewriterError:
        line = self.source.line_of(self.position(offset))
        return RewriterError(
            "syntax-error",
            f"{self.source.name}:{line}: this does not parse as C++\n"
            f"    {self.source.line_text(line).strip()}",
            hint="Expected a wrapper as Inductor wrote it; the file may be truncated.",
        )


def without_templates(text: str) -> str:
    """`text` without its template arguments; the arrow of `a->b` does not end one."""
    if "<" not in text:
        return text
    kept = []
    depth = 0
    for position, character in enumerate(text):
        depth += character == "<"
        if depth == 0:
            kept.append(character)
        depth -= character == ">" and depth > 0 and text[position - 1] != "-"
    return "".join(kept)


def _unbroken(spaces: re.Match[str]) -> str:
    """White space as it would be on one line."""
    text = _SPLICE.sub("", spaces[0])
    is_broken = text != spaces[0] or "\n" in text or "\r" in text
    return " " if is_broken and text else text


def _first_error(node: tree_sitter.Node) -> tree_sitter.Node:
    while True:
        for child in node.children:
            if child.is_error or child.is_missing:
                return child
            if child.has_error:
                node = child
                break
        else:
            return node


def _parameter_names(parameters: str) -> Iterator[str]:
    names = (last_word(each.partition("=")[0].rstrip()) for each in lexer.members(parameters))
    return filter(None, names)
