"""Statements: nodes of libcst, which stand for all lines of one form, with the values of one line.

What is to be known about a node is found once for its form, and filled for each line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import libcst as cst
from libcst.metadata import PositionProvider

from rewriter.locate.python.forms import Template, on_one_line, string_value
from rewriter.locate.python.lines import Line, line_ends

_CACHED = 1 << 16  # nodes
_MODULE = cst.Module([])
_CONSTANTS = frozenset({"None", "True", "False"})
# Fields of nodes that hold no expressions or statements.
_NO_CODE: tuple[str, ...] = ("whitespace", "leading", "trailing", "lpar", "rpar", "lbracket")
_NO_CODE += ("rbracket", "lbrace", "rbrace", "semicolon", "comma", "equal", "dot", "star")
_NO_CODE += ("header", "footer", "operator")
_NO_VARIABLES = {cst.Attribute: ("attr",), cst.Arg: ("keyword",), cst.ImportAlias: ("name",)}
_NO_VARIABLES |= dict.fromkeys((cst.Param, cst.FunctionDef, cst.ClassDef), ("name",))

_NOT_IN_HEADS = ("body", "orelse", "handlers", "finalbody", "cases", "decorators")


@dataclass(frozen=True, slots=True)
class Statement:
    """A simple statement, or the head of a compound one, as its line has it.

    `node` is of the line's form, `values` are those of its placeholders. It is `first` if nothing
    stands before it on its line, and `alone` if no other statement does.
    """

    node: cst.CSTNode
    line: Line
    values: Sequence[str] | None
    first: bool = False
    alone: bool = False

    @property
    def is_reuse(self) -> bool:
        """Whether Inductor frees a buffer on the same line, or has a comment there that says that
        its memory is taken over (`make_buffer_reuse`)."""
        written = self.line.form.statement
        return "# reuse" in self.comment or any(isinstance(x, cst.Del) for x in written.body)

    @property
    def comment(self) -> str:
        """The comment at the end of the line."""
        comment = self.line.form.statement.trailing_whitespace.comment
        return Template(comment.value).fill(self.values) if comment else ""

    def code(self, node: cst.CSTNode) -> str:
        """The text of a node with the brackets around it, on one line."""
        return on_one_line(template(node).fill(self.values))

    def names(self, node: cst.CSTNode) -> list[str]:
        """The variables in a node."""
        return [name.fill(self.values) for name in names(node)]

    def name(self, node: cst.CSTNode | None) -> str:
        """The variable that a node is; empty if it is none."""
        return word(node).fill(self.values) if isinstance(node, cst.Name) else ""

    def callee(self, call: cst.Call) -> str:
        """The text of the called function, without arguments and subscripts: `a().b[].c`."""
        return path(call.func).fill(self.values)

    def line_of(self, node: cst.CSTNode) -> int:
        """The number of the line where a node begins."""
        if self.line.number == self.line.last:
            return self.line.number
        before = _before(self.node, node).fill(self.values)
        return self.line.number + line_ends(before)

    def integer(self, node: cst.CSTNode | None) -> int | None:
        """The value of a whole number; `None` for any other node."""
        return int(word(node).fill(self.values), 0) if isinstance(node, cst.Integer) else None

    def literal(self, node: cst.SimpleString) -> str:
        """A string as it is written."""
        return word(node).fill(self.values)

    def string(self, node: cst.CSTNode | None) -> str | None:
        """The value of a string; `None` for any other node."""
        match node:
            case cst.SimpleString():
                literal = self.literal(node)
            case cst.ConcatenatedString():
                literal = f"({self.code(node)})"
            case _:
                return None
        try:
            value = string_value(literal)
        except (SyntaxError, ValueError):
            return None
        return value if isinstance(value, str) else None


def children(node: cst.CSTNode) -> list[cst.CSTNode]:
    """The nodes directly below one, in the order of the text, without whitespace and brackets.
    Names that are no variables are left out: of attributes, keywords and parameters."""
    found: list[cst.CSTNode] = []
    for field in _fields(type(node)):
        value = getattr(node, field)
        if isinstance(value, cst.CSTNode):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += [one for one in value if isinstance(one, cst.CSTNode)]
    return found


def walk(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yield a node and those below it, in the order of the text."""
    todo = [node]
    while todo:
        one = todo.pop()
        yield one
        todo += reversed(children(one))


@cache
def _fields(kind: type[cst.CSTNode]) -> tuple[str, ...]:
    left_out: tuple[str, ...] = _NO_VARIABLES.get(kind, ())
    if issubclass(kind, cst.BaseCompoundStatement):
        left_out += _NOT_IN_HEADS
    return tuple(
        name
        for name in kind.__dataclass_fields__
        if not name.startswith(("_", *_NO_CODE)) and name not in left_out
    )


@lru_cache(maxsize=_CACHED)
def calls(node: cst.CSTNode) -> tuple[cst.Call, ...]:
    """The calls in a node; an outer one comes before those in its arguments."""
    return tuple(one for one in walk(node) if isinstance(one, cst.Call))


@lru_cache(maxsize=_CACHED)
def names(node: cst.CSTNode) -> tuple[Template, ...]:
    """The variables in a node."""
    found = (one for one in walk(node) if isinstance(one, cst.Name))
    return tuple(Template(one.value) for one in found if one.value not in _CONSTANTS)


@lru_cache(maxsize=_CACHED)
def word(node: cst.Name | cst.Integer | cst.SimpleString) -> Template:
    """A name, a number or a string, without brackets around it."""
    return Template(node.value)


@lru_cache(maxsize=_CACHED)
def template(node: cst.CSTNode) -> Template:
    """The text of a node, with the brackets around it."""
    return Template(_MODULE.code_for_node(node))


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


@lru_cache(maxsize=_CACHED)
def _before(statement: cst.CSTNode, node: cst.CSTNode) -> Template:
    """The text of a statement up to a node in it."""
    is_simple = isinstance(statement, cst.BaseSmallStatement)
    part = cst.SimpleStatementLine([statement]) if is_simple else statement  # type: ignore[list-item]
    module = cst.Module([part])  # type: ignore[list-item]
    places = cst.MetadataWrapper(module, unsafe_skip_copy=True).resolve(PositionProvider)
    line, column = places[node].start.line, places[node].start.column
    lines = module.code.splitlines(keepends=True)
    return Template("".join(lines[: line - 1]) + lines[line - 1][:column])


@lru_cache(maxsize=_CACHED)
def keywords(call: cst.Call) -> frozenset[str]:
    """The keywords of a call, as its form has them."""
    return frozenset(arg.keyword.value for arg in call.args if arg.keyword)


@lru_cache(maxsize=_CACHED)
def positional(call: cst.Call) -> tuple[cst.BaseExpression, ...]:
    """The arguments of a call without keywords."""
    return tuple(arg.value for arg in call.args if not arg.keyword)


def head(path: str) -> str:
    """The name that a callee's text starts with."""
    return path.partition(".")[0]


def elements(node: cst.BaseExpression | None) -> list[cst.BaseExpression]:
    """The members of a tuple or a list; of anything else, itself."""
    match node:
        case None:
            return []
        case cst.Tuple() | cst.List():
            return [one.value for one in node.elements]
    return [node]


def subscripted(statement: Statement, node: cst.CSTNode) -> str:
    """The variable at the bottom of `buf7[0][1]`; empty if there is none."""
    while isinstance(node, cst.Subscript):
        node = node.value
    return statement.name(node)
