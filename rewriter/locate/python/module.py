"""A Python file as blocks of statements.

The lines of compound statements, with a placeholder for the simple statements between two of them,
are a small skeleton, which libcst parses. Simple statements are read when they are asked for, one
after the other, so that a file is never in memory as a tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from rewriter.core import limits
from rewriter.core.errors import RewriterError
from rewriter.core.source import Source
from rewriter.locate.python import syntax
from rewriter.locate.python.forms import form_of
from rewriter.locate.python.lines import Line, line_ends, lines
from rewriter.locate.python.statements import Statement
from rewriter.locate.python.syntax import PythonError, TooDeepError

_DEEPEST = 100  # blocks in blocks: Python reads no more, either


@dataclass(frozen=True, slots=True)
class Run:
    """Lines of simple statements with one indentation."""

    lines: list[Line]


@dataclass(frozen=True, slots=True)
class Block:
    """A compound statement.

    `head` is the line with its keyword, whose node is that of the skeleton. `decorators` are the
    lines before that. `clauses` are its head and body, and the heads and bodies behind it, of
    `else`, `except`, `case` and so on; the body of an `elif` is a block again, with the same head.
    `last` is the last line of all.
    """

    head: Statement
    decorators: Sequence[Statement]
    clauses: Sequence[tuple[Statement, Suite]]
    last: Line

    @property
    def node(self) -> cst.CSTNode:
        return self.head.node

    @property
    def line(self) -> Line:
        """The line where it begins."""
        return (*self.decorators, self.head)[0].line

    @property
    def body(self) -> Suite:
        """The body behind the head; that of `match` is its first case's."""
        return self.clauses[0][1]

    @property
    def name(self) -> str:
        """The name of a function or a class; empty for any other block."""
        return self.head.name(getattr(self.node, "name", None))

    @property
    def parameters(self) -> list[str]:
        """The names of a function's positional parameters."""
        assert isinstance(self.node, cst.FunctionDef)
        return [self.head.name(param.name) for param in self.node.params.params]


# What is in a block. Only `if x: y` holds statements that are no run.
Suite = Sequence[Run | Block | Statement]


@dataclass(frozen=True, slots=True)
class Module:
    """A module. `text` has a character for each byte of the file."""

    text: str
    body: Suite

    def each(self, suite: Suite) -> Iterator[Statement | Block]:
        """Yield what is directly in a suite. Raises `PythonError`."""
        for part in suite:
            if not isinstance(part, Run):
                yield part
                continue
            for line in part.lines:
                text = self.text[line.body : line.end]
                read = (line.form, line.packed.split("\0")) if line.form else form_of(text)
                assert read is not None
                whole, values = read[0].statement, read[1]
                for node in whole.body:
                    yield Statement(node, whole, line, text, values)

    def statements(self) -> Iterator[Statement]:
        """Yield the simple statements of the module itself. Raises `PythonError`."""
        return (part for part in self.each(self.body) if isinstance(part, Statement))

    def every(self, suite: Suite) -> Iterator[Statement]:
        """Yield the statements in a suite, and the heads and statements of the blocks in it."""
        for part in self.each(suite):
            if isinstance(part, Statement):
                yield part
                continue
            yield part.head
            for head, inner in part.clauses:
                is_elif = isinstance(inner[0], Block) and inner[0].head is head
                if head is not part.head and not is_elif:
                    yield head
                yield from self.every(inner)

    def strings(self, name: str) -> list[tuple[int, list[tuple[int, int]]]]:
        """Where the module binds a name: the lines, and where in the file the strings that it gets
        begin and end."""
        return [
            (part.line.number, [part.span(literal) for literal in _literals(part.node.value)])
            for part in self.statements()
            if isinstance(part.node, cst.Assign)
            if any(part.name(target.target) == name for target in part.node.targets)
        ]

    def last(self, suite: Suite) -> Statement | Block:
        """The last of what is directly in a suite."""
        part = suite[-1]
        *_, last = self.each([Run(part.lines[-1:]) if isinstance(part, Run) else part])
        return last


def _literals(node: cst.BaseExpression) -> list[cst.SimpleString]:
    match node:
        case cst.SimpleString() if "b" not in node.prefix:
            return [node]
        case cst.ConcatenatedString(left=left, right=right):
            return [*_literals(left), *_literals(right)]
    return []


def parse(source: Source) -> Module:
    """Read a file. An error becomes one that shows the line and a caret."""
    try:
        source.data.decode("utf-8")
        return read(source.data.decode("latin-1"))
    except UnicodeDecodeError as error:
        raise RewriterError(
            "syntax-error",
            f"{source.name}: Python cannot parse this file: {error}",
            hint="Expected the output_code.py that torch.compile wrote.",
        ) from error
    except TooDeepError as error:
        raise limits.too_large(
            f"{source.name}:{error.line}", error.message, limits.PYTHON_NESTING
        ) from error
    except PythonError as error:
        text = source.line_text(error.line)
        caret = "".join("\t" if c == "\t" else " " for c in text[: error.column]) + "^"
        raise RewriterError(
            "syntax-error",
            f"{source.name}:{error.line}: {error.message}\n    {text}\n    {caret}",
            hint="A wrapper is a complete Python file; this one may be truncated or edited.",
        ) from error


def read(text: str, *, checks: bool = True) -> Module:
    """Read a module. Without `checks`, simple statements that are never asked for may be invalid.

    Raises `PythonError`, about the first fault of the text.
    """
    if (zero := text.find("\0")) >= 0:  # it separates values in `Line.packed`
        raise PythonError("source has a null byte", line_ends(text[:zero]) + 1)
    skeleton = _Skeleton(text)
    tree = skeleton.read(checks=checks)
    builder = _Builder(text, skeleton.parts)
    return Module(text, [builder.part(node) for node in tree.body])


def read_line(text: str, line: Line) -> None:
    """Read the statements of a line. Raises `PythonError` with the place in the file."""
    if line.form is None or line.is_block:
        return
    try:
        _ = line.form.statement
    except PythonError as error:
        found = error
        try:
            syntax.statement(text[line.body : line.end].encode("latin-1").decode())
        except TooDeepError:
            pass  # perhaps only in a string
        except PythonError as written:  # the place in the line, not in its form
            found = written
        indent = line.body - line.start if found.line <= 1 else 0
        number = line.number + max(found.line - 1, 0)
        raise type(error)(found.message, min(number, line.last), found.column + indent) from error


class _Skeleton:
    """Collects the lines of a module, and the text that libcst parses for its blocks.

    `parts` are the lines of compound statements, and the runs between these.
    """

    def __init__(self, text: str) -> None:
        self.parts: list[Line | Run] = []
        self._text = text
        self._pieces: list[tuple[int, str]] = []  # with the line in the file
        self._indents = [""]
        self._deepest = 0  # blocks in each other

    def read(self, *, checks: bool) -> cst.Module:
        """The tree of the skeleton. Raises `PythonError` about the first fault."""
        fault: PythonError | None = None
        try:
            for line in lines(self._text, reads=checks):
                if checks:
                    read_line(self._text, line)
                self._add(line)
        except PythonError as error:
            fault = error
        try:
            tree = syntax.module("".join(text for _, text in self._pieces), self._deepest)
        except PythonError:
            found = self._placed()
            # What ended the reading also left the last block without an end.
            if fault is None or found.line < min(fault.line, self._pieces[-1][0]):
                raise found from None
        if fault is not None:
            raise fault
        return tree

    def _add(self, line: Line) -> None:
        indent = self._text[line.start : line.body]
        run = self.parts[-1] if self.parts else None
        if isinstance(run, Run) and not line.is_block and indent == self._indents[-1]:
            run.lines.append(line)
            return
        self.parts.append(line if line.is_block else Run([line]))
        self._follow(indent, line)
        # A backslash may join an empty line to it.
        written = line.form.text.lstrip("\\\r\n \t\f") if line.is_block and line.form else "_"
        self._pieces.append((line.number, f"{indent}{written}\n"))

    def _follow(self, indent: str, line: Line) -> None:
        """Follow the indentation of blocks, about which the parser does not say where it fails."""
        if len(indent) > len(self._indents[-1]):
            if len(self.parts) < 2 or not isinstance(self.parts[-2], Line):
                raise PythonError("unexpected indent", line.number, len(indent))
            self._indents.append(indent)
        while len(indent) < len(self._indents[-1]):
            self._indents.pop()
        if indent != self._indents[-1]:
            raise PythonError("unindent does not match any outer level", line.number)
        self._deepest = max(self._deepest, len(self._indents))
        if self._deepest > _DEEPEST:
            raise TooDeepError("nested too deeply", line.number)

    def _placed(self) -> PythonError:
        """The error of the skeleton, with its line in the file."""
        padded: list[str] = []
        line = 1
        for number, text in self._pieces:
            padded += ["\n" * (number - line), text]
            line = number + text.count("\n")
        try:
            syntax.module("".join(padded), self._deepest)
        except PythonError as error:
            if error.line:
                return type(error)(error.message, min(error.line, line), error.column)
            # A character that is no Python: the parser does not say where it is.
            found = (line for line, text in self._pieces if syntax.is_no_token(text))
            return PythonError(error.message, next(found, 1))
        raise AssertionError("the same blocks, and no error")


class _Builder:
    """Joins the tree of a skeleton with the lines that it was made of, in the order of both."""

    def __init__(self, text: str, parts: Sequence[Line | Run]) -> None:
        self._text = text
        self._parts = iter(parts)
        self._last: Line

    def part(self, node: cst.CSTNode) -> Run | Block:
        if not isinstance(node, cst.SimpleStatementLine):
            return self._block(node)
        run = next(self._parts)
        assert isinstance(run, Run)
        self._last = run.lines[-1]
        return run

    def _block(self, node: cst.CSTNode) -> Block:
        decorators = [self._head(decorator) for decorator in getattr(node, "decorators", ())]
        head = self._head(node)
        clauses = [(head, self._suite(node.body, head))] if hasattr(node, "body") else []
        for clause in (
            *getattr(node, "handlers", ()),
            *getattr(node, "cases", ()),
            getattr(node, "orelse", None),
            getattr(node, "finalbody", None),
        ):
            if isinstance(clause, cst.If):  # `elif`
                block = self._block(clause)
                clauses.append((block.head, [block]))
            elif clause is not None:
                head_of_clause = self._head(clause)
                clauses.append((head_of_clause, self._suite(clause.body, head_of_clause)))
        return Block(head, decorators, clauses, self._last)

    def _suite(self, body: cst.BaseSuite, head: Statement) -> Suite:
        if isinstance(body, cst.SimpleStatementSuite):
            return [head._replace(node=node) for node in body.body]
        return [self.part(node) for node in body.body]

    def _head(self, node: cst.CSTNode) -> Statement:
        line = next(self._parts)
        assert isinstance(line, Line)
        self._last = line
        text = self._text[line.body : line.end]
        return Statement(node, None, line, text, line.packed.split("\0"))
