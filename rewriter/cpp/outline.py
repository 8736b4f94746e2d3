"""The frame of a C++ wrapper: its entries, its kernels' declarations, its includes."""

from __future__ import annotations

import bisect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import tree_sitter

from rewriter import kernels
from rewriter.cpp.embedded import Embedded
from rewriter.cpp.grammar import LANGUAGE, Grammar
from rewriter.errors import RewriterError
from rewriter.kernels import Parameter
from rewriter.source import Source

# `extern "C" void cpp_fused_relu_0(const float* in_ptr0, float* out_ptr0)`, declared or defined.
_CPP_KERNEL = re.compile(rb'extern\s+"C"\s+(?:\w+\s+)*?(?P<name>\w+)\s*\((?P<parameters>[^)]*)\)')
# `static inline void call_triton_poi_fused_0(const in_ptr0_type_& in_ptr0, …)`
_CALL = re.compile(rb"\bvoid\s+call_(?P<name>\w+)\s*\((?P<parameters>[^{};]*)\)\s*\{")
# The kernel's Triton source, in a comment of its `call_` function (AOTInductor) or in a string
# above it (`<kernel>_source`, since torch 2.12).
_TRITON = re.compile(
    rb"async_compile\.triton\(\s*['\"](?P<name>\w+)['\"],\s*'''(?P<text>.*?)'''", re.DOTALL
)
_TRITON_STRING = re.compile(
    rb"\b(?P<name>\w+)_source\s*=\s*R\"TRITON\((?P<text>.*?)\)TRITON\"", re.DOTALL
)
_INCLUDES = re.compile(rb"(?:[ \t]*(?:#[ \t]*(?:include|pragma once)[^\n]*|//[^\n]*)?\r?\n)*")
_LAST_INCLUDE = re.compile(rb"^[ \t]*#[ \t]*include[^\n]*\n", re.MULTILINE)
# tree-sitter knows casts such as `bool(x)`, but not `long(x)`, as torch 2.6 writes.
_LONG = re.compile(rb"\blong(?=\()")
# An entry as it is defined, not called or declared.
_DEFINITION = re.compile(
    rb"^void (?:AOTInductorModel\w*::)?(?P<name>run_impl|inductor_entry_impl)\("
    rb"(?:[^;{}/]|//[^\r\n]*)*\)\s*\{",
    re.MULTILINE,
)
# Runs before the model, to fold its constants; often there is nothing in it.
_FOLDING = "_const_run_impl"
_BREAK = re.compile(r"\s*[\r\n]\s*")
_PARAMETER = re.compile(r"(\w+)\s*(?:=.*)?$", re.DOTALL)


@dataclass(frozen=True)
class Body:
    """The body of an entry. `name` is the function's, without its class."""

    name: str
    node: tree_sitter.Node


class Outline:
    """One C++ wrapper, parsed."""

    def __init__(self, source: Source, text: Embedded, grammar: Grammar) -> None:
        self.source = source
        self.text = text
        self.data = text.data
        self.grammar = grammar
        self._tree = tree_sitter.Parser(LANGUAGE).parse(_LONG.sub(b"bool", text.data))

    @cached_property
    def bodies(self) -> tuple[Body, ...]:
        """The bodies of the entries, in file order.

        Raises `RewriterError` where one does not parse, or does not end, or where there is none.
        The rest of a wrapper never parses without errors: it is full of macros.
        """
        found = []
        cursor = tree_sitter.QueryCursor(self.grammar.scopes)
        for _, captures in cursor.matches(self._tree.root_node):
            (name,), (body,) = captures["name"], captures["body"]
            if body.has_error:
                raise self._syntax_error(body)
            found.append(Body(without_templates(self.read(name)).split("::")[-1].strip(), body))
        self._require_entries({body.name for body in found})
        return tuple(sorted(found, key=lambda body: body.node.start_byte))

    def _require_entries(self, found: set[str]) -> None:
        """A function that goes on to the end of the file is none to the parser."""
        for match in _DEFINITION.finditer(self.data):
            if (name := match["name"].decode()) not in found:
                line = self.source.line_of(self.position(match.start("name")))
                raise RewriterError(
                    "truncated",
                    f"{self.source.name}:{line}: the file ends too early: {name} never ends",
                    hint="Expected a complete wrapper; copy it again.",
                )
        if not found - {_FOLDING}:
            raise RewriterError(
                "truncated",
                f"{self.source.name}: the file ends too early: no inductor_entry_impl, no run_impl",
                hint="Expected a complete wrapper; copy it again.",
            )

    def read(self, node: tree_sitter.Node) -> str:
        """The text of a node, on one line however a formatter broke it."""
        text = self.data[node.start_byte : node.end_byte].decode("utf-8", "replace")
        return _BREAK.sub(" ", text) if "\n" in text or "\r" in text else text

    def position(self, offset: int) -> int:
        """The offset in the file of an offset in the C++."""
        return self.text.position(offset)

    def line(self, node: tree_sitter.Node) -> int:
        """The line of the file that a node starts in."""
        return self.source.line_of(self.position(node.start_byte))

    @cached_property
    def header(self) -> int:
        """The offset in the file behind the includes at its top."""
        leading = _INCLUDES.match(self.data)
        assert leading is not None
        included = list(_LAST_INCLUDE.finditer(self.data, 0, leading.end()))
        return self.position(included[-1].end() if included else leading.end())

    @cached_property
    def cpp_kernels(self) -> dict[str, tuple[Parameter, ...]]:
        """The parameters of the kernels that are declared or defined here, written in C++."""
        found = {}
        for match in _CPP_KERNEL.finditer(self.data):
            # Of a declaration and a definition the latter tells more.
            body = self._body_after(match.end())
            parameters = kernels.cpp(f"void kernel({match['parameters'].decode()})\n{body}")
            name = match["name"].decode()
            if parameters is not None and (body or name not in found):
                found[name] = parameters
        return found

    def _body_after(self, offset: int) -> str:
        """The text of the definition that goes on at `offset`, empty for a declaration."""
        rest = self.data[offset : offset + 16].lstrip()
        if not rest.startswith(b"{"):
            return ""
        end = self.data.find(b"\n}", offset)
        return self.data[offset:end].decode("utf-8", "replace")

    @cached_property
    def callers(self) -> dict[str, tuple[str, ...]]:
        """The parameter names of each `call_<kernel>`, by kernel."""
        return {
            match["name"].decode(): tuple(_parameter_names(match["parameters"].decode()))
            for match in _CALL.finditer(self.data)
        }

    @cached_property
    def triton_sources(self) -> dict[str, str]:
        """The Triton sources that the C++ quotes, by the name that the wrapper calls them."""
        strings = list(_TRITON_STRING.finditer(self.data))
        callers = list(_CALL.finditer(self.data))
        found = {}
        for match in _TRITON.finditer(self.data):
            owner = _last_above(strings, match.start())
            if owner is None or owner.end() < match.start():
                owner = _last_above(callers, match.start()) or match
            text = match["text"].decode("utf-8", "replace")
            found[owner["name"].decode()] = textwrap.dedent(text)
        return found

    def _syntax_error(self, body: tree_sitter.Node) -> RewriterError:
        node = _first_error(body)
        line = self.line(node)
        return RewriterError(
            "syntax-error",
            f"{self.source.name}:{line}: this does not parse as C++\n"
            f"    {self.source.line_text(line).strip()}",
            hint="Expected a wrapper as Inductor wrote it; the file may be truncated.",
        )


def without_templates(text: str) -> str:
    """`text` less what stands between angle brackets; the arrow of `a->b` is none."""
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


def _last_above(matches: list[re.Match[bytes]], offset: int) -> re.Match[bytes] | None:
    above = bisect.bisect_left(matches, offset, key=lambda match: match.start())
    return matches[above - 1] if above else None


def _first_error(node: tree_sitter.Node) -> tree_sitter.Node:
    for child in node.children:
        if child.is_error or child.is_missing:
            return child
        if child.has_error:
            return _first_error(child)
    return node


def _parameter_names(parameters: str) -> Iterator[str]:
    depth = 0
    written = ""
    for character in parameters + ",":
        depth += (character in "(<[{") - (character in ")>]}")
        if character == "," and depth == 0:
            if match := _PARAMETER.search(written.strip()):
                yield match.group(1)
            written = ""
        else:
            written += character
