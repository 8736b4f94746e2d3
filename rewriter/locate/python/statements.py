"""Statements: nodes of libcst, which stand for all lines of one form, with the values of one line.

What is to be known about a node is found once for its form, and filled for each line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from typing import NamedTuple

import libcst as cst

from rewriter.locate.python.forms import Template, on_one_line, string_value
from rewriter.locate.python.lines import Line, line_ends

_DIGITS = 100  # of a number that is read; those in wrappers have 64 bits
_CACHED = 1 << 16  # nodes
_MODULE = cst.Module([])
_CONSTANTS = frozenset({"None", "True", "False"})
# Fields of nodes that hold no expressions, those of compound statements that are not their heads,
# and those with names that are no variables.
_NO_CODE: tuple[str, ...] = ("_", "whitespace", "leading", "trailing", "header", "footer", "comma")
_NO_CODE += ("lpar", "rpar", "lbrac", "rbrac", "semicolon", "equal", "dot", "star", "operator")
_BEHIND_HEADS = ("body", "orelse", "handlers", "finalbody", "cases", "decorators")
_NO_VARIABLES = ("attr", "keyword", "name")


class Statement(NamedTuple):
    """A simple statement, or the head of a compound one, as its line has it.

    `node` is of the form of `line`, `whole` all that stands there, `None` if that is the head of a
    compound statement. `text` is the line as the file has it, `values` are those of the form's
    placeholders.
    """

    node: cst.CSTNode
    whole: cst.SimpleStatementLine | None
    line: Line
    text: str
    values: Sequence[str]

    @property
    def is_first(self) -> bool:
        """Whether nothing stands before it on its line."""
        return self.whole is not None and self.node is self.whole.body[0]

    @property
    def is_alone(self) -> bool:
        """Whether no other statement shares its line."""
        return self.whole is not None and len(self.whole.body) == 1

    @property
    def is_reuse(self) -> bool:
        """Whether Inductor frees a buffer on the same line, or has a comment there that says that
        its memory is taken over (`make_buffer_reuse`)."""
        shared = self.whole.body if self.whole else ()
        return "# reuse" in self.comment or any(
            isinstance(statement, cst.Del) for statement in shared
        )

    @property
    def comment(self) -> str:
        """The comment at the end of the line of a simple statement."""
        comment = self.whole.trailing_whitespace.comment if self.whole else None
        return Template(comment.value).fill(self.values) if comment else ""

    def code(self, node: cst.CSTNode) -> str:
        """The text of a node, on one line."""
        return on_one_line(template(node).fill(self.values))

    def names(self, node: cst.CSTNode) -> list[str]:
        """The variables in a node."""
        return [name.fill(self.values) for name in names(node)]

    def name(self, node: cst.CSTNode | None) -> str:
        """The variable that a node is; empty if it is none."""
        return template(node).fill(self.values) if isinstance(node, cst.Name) else ""

    def callee(self, call: cst.Call) -> str:
        """The text of the called function, without arguments and subscripts: `a().b[].c`."""
        return path(call.func).fill(self.values)

    def line_of(self, call: cst.Call) -> int:
        """The number of the line where a call begins."""
        if self.line.number == self.line.last:
            return self.line.number
        place = self.text.find(head(self.callee(call)))
        return self.line.number + line_ends(self.text[: max(place, 0)])

    def span(self, string: cst.SimpleString) -> tuple[int, int]:
        """Where a string begins and ends in the file."""
        written = template(string).fill(self.values).encode().decode("latin-1")
        start = self.line.body + self.text.index(written)
        return start, start + len(written)

    def integer(self, node: cst.CSTNode | None) -> int | None:
        """The value of a whole number that is not too long; `None` for any other node."""
        text = template(node).fill(self.values) if isinstance(node, cst.Integer) else ""
        return int(text, 0) if 0 < len(text) <= _DIGITS else None

    def string(self, node: cst.CSTNode | None) -> str | None:
        """The value of a string; `None` for any other node."""
        if not isinstance(node, (cst.SimpleString, cst.ConcatenatedString)):
            return None
        try:
            value = string_value(template(node).fill(self.values))
        except (SyntaxError, ValueError):
            return None
        return value if isinstance(value, str) else None


@lru_cache(maxsize=_CACHED)
def template(node: cst.CSTNode) -> Template:
    """The text of a node, with the brackets around it, unless it is a name, number or string."""
    is_atom = isinstance(node, (cst.Name, cst.BaseNumber, cst.SimpleString))
    return Template(node.value if is_atom else _MODULE.code_for_node(node))  # type: ignore[attr-defined]


@lru_cache(maxsize=_CACHED)
def names(node: cst.CSTNode) -> tuple[Template, ...]:
    """The variables in a node."""
    found = (name for name in walk(node) if isinstance(name, cst.Name))
    return tuple(template(name) for name in found if name.value not in _CONSTANTS)


@lru_cache(maxsize=_CACHED)
def calls(node: cst.CSTNode) -> tuple[cst.Call, ...]:
    """The calls in a node; an outer one comes before those in its arguments."""
    return tuple(call for call in walk(node) if isinstance(call, cst.Call))


@lru_cache(maxsize=_CACHED)
def path(function: cst.BaseExpression) -> Template:
    """The text of a function, without arguments and subscripts."""
    return Template(_path(function))


def _path(node: cst.BaseExpression) -> str:
    match node:
        case cst.Name(value=name):
            return name
        case cst.Attribute(value=value, attr=attribute):
            return f"{_path(value)}.{attribute.value}"
        case cst.Subscript(value=value):
            return f"{_path(value)}[]"
        case cst.Call(func=function):
            return f"{_path(function)}()"
    return "?"


def head(path: str) -> str:
    """The name that a callee's text starts with."""
    return path.partition(".")[0].removesuffix("[]")


def walk(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yield a node and those below it, in the order of the text; of a compound statement only its
    head. Whitespace, brackets, and names that are no variables are left out."""
    todo = [node]
    while todo:
        one = todo.pop()
        yield one
        todo += reversed(children(one))


def children(node: cst.CSTNode) -> list[cst.CSTNode]:
    """The nodes directly below one, as `walk` has them."""
    found: list[cst.CSTNode] = []
    for field in _fields(type(node)):
        value = getattr(node, field)
        found += value if isinstance(value, (list, tuple)) else [value]
    return [child for child in found if isinstance(child, cst.CSTNode)]


@cache
def _fields(kind: type[cst.CSTNode]) -> tuple[str, ...]:
    fields = kind.__dataclass_fields__
    # A part of a compound statement has lines before it.
    left_out = (*_NO_VARIABLES, *(_BEHIND_HEADS if "leading_lines" in fields else ()))
    return tuple(x for x in fields if not x.startswith(_NO_CODE) and x not in left_out)


def positional(call: cst.Call) -> list[cst.BaseExpression]:
    """The arguments of a call without keywords."""
    return [arg.value for arg in call.args if not arg.keyword]


def elements(node: cst.BaseExpression | None) -> list[cst.BaseExpression]:
    """The members of a tuple or a list; of anything else, itself."""
    if isinstance(node, (cst.Tuple, cst.List)):
        return [element.value for element in node.elements]
    return [] if node is None else [node]


def subscripted(statement: Statement, node: cst.CSTNode) -> str:
    """The variable at the bottom of `buf7[0][1]`; empty for anything else."""
    if not isinstance(node, cst.Subscript):
        return ""
    return statement.name(node.value) or subscripted(statement, node.value)
