"""A Python file as blocks of statements.

The lines of compound statements, with a placeholder for the simple statements between two of them,
are a small skeleton, which libcst parses. Simple statements are read when they are asked for, one
after the other, so that a file is never in memory as a tree.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from rewriter.core import limits
from rewriter.core.errors import RewriterError
from rewriter.core.source import Source
from rewriter.locate.python import syntax
from rewriter.locate.python.lines import Line, lines
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

    `node` is that of the skeleton; what stands in its head is read with `head`. `decorators` are
    the lines before it. `orelse` of an `if` may hold the block of an `elif`, `clauses` are the
    bodies of handlers or cases. `last` is the last line of all.
    """

    node: cst.CSTNode
    head: Statement
    decorators: Sequence[Statement]
    body: Suite
    orelse: Suite
    clauses: Sequence[Suite]
    finalbody: Suite
    last: Line

    @property
    def line(self) -> Line:
        """The line where it begins."""
        return self.decorators[0].line if self.decorators else self.head.line

    @property
    def name(self) -> str:
        """The name of a function or a class; empty for any other block."""
        return self.head.name(getattr(self.node, "name", None))

    @property
    def parameters(self) -> list[str]:
        """The names of a function's positional parameters."""
        match self.node:
            case cst.FunctionDef(params=cst.Parameters(params=given)):
                return [self.head.name(one.name) for one in given]
        return []

    @property
    def suites(self) -> Sequence[Suite]:
        """All its parts, in the order of the text."""
        return (self.body, *self.clauses, self.orelse, self.finalbody)


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
                values = line.form.values(self.text[line.body : line.end])
                nodes = line.form.statement.body
                for node in nodes:
                    yield Statement(node, line, values, node is nodes[0], len(nodes) == 1)

    def simple_lines(self) -> Iterator[Line]:
        """Yield the lines of simple statements, also those in blocks."""
        suites: list[Suite] = [self.body]
        while suites:
            for part in suites.pop():
                if isinstance(part, Run):
                    yield from part.lines
                elif isinstance(part, Block):
                    suites += part.suites

    def span(self, statement: Statement, string: cst.SimpleString) -> tuple[int, int]:
        """Where a string in a statement begins and ends in the file."""
        text = statement.literal(string).encode().decode("latin-1")
        start = self.text.index(text, statement.line.body)
        return start, start + len(text)

    def last(self, suite: Suite) -> Statement | Block:
        """The last of what is directly in a suite."""
        part = suite[-1]
        *_, last = self.each([Run(part.lines[-1:]) if isinstance(part, Run) else part])
        return last

    def every(self, suite: Suite) -> Iterator[Statement | Block]:
        """Yield what is in a suite, and in the blocks in it. Raises `PythonError`."""
        for part in self.each(suite):
            yield part
            if isinstance(part, Block):
                for inner in part.suites:
                    yield from self.every(inner)


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
            f"{source.name}:{error.line}", error.message, f"{syntax.BRACKETS} brackets"
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
    skeleton = _Skeleton(text)
    fault: PythonError | None = None
    try:
        for line in lines(text):
            skeleton.add(line)
            if checks and not line.form.is_block:
                _check(text, line)
    except PythonError as error:
        fault = error
    tree = skeleton.tree(fault)
    builder = _Builder(text, skeleton.parts)
    return Module(text, [builder.part(node) for node in tree.body])


def _check(text: str, line: Line) -> None:
    """Read the statements of a line. Raises `PythonError` with the place in the file."""
    try:
        _ = line.form.statement
    except PythonError:
        try:
            syntax.statement(text[line.body : line.end].encode("latin-1").decode())
        except PythonError as written:  # the place in the line, not in its form
            error = written
        indent = line.body - line.start if error.line <= 1 else 0
        number = line.number + max(error.line - 1, 0)
        raise type(error)(error.message, min(number, line.last), error.column + indent) from error


class _Skeleton:
    """Collects the text that libcst parses for the blocks of a module."""

    def __init__(self, text: str) -> None:
        self.parts: list[Line | Run] = []
        self._text = text
        self._pieces: list[str] = []
        self._starts: list[int] = []  # the line in the skeleton of each part
        self._length = 0  # in lines
        self._indents = [""]

    def add(self, line: Line) -> None:
        indent = self._text[line.start : line.body]
        before = self.parts[-1] if self.parts else None
        if not line.form.is_block:
            if isinstance(before, Run) and indent == self._indents[-1]:
                before.lines.append(line)
                return
            self.parts.append(Run([line]))
            written = "_"
        else:
            self.parts.append(line)
            written = line.form.text
        self._follow(indent, line)
        self._pieces.append(f"{indent}{written}\n")
        self._starts.append(self._length + 1)
        self._length += written.count("\n") + 1

    def tree(self, fault: PythonError | None) -> cst.Module:
        """The tree. `fault` is what stopped the reading; an earlier one of the blocks is raised
        instead of it."""
        try:
            tree = syntax.module("".join(self._pieces))
        except PythonError as error:
            found = self._placed(error)
            if fault is None or (error.line <= self._length and found.line < fault.line):
                raise found from error
        if fault is not None:
            raise fault
        return tree

    def _follow(self, indent: str, line: Line) -> None:
        """Follow the indentation of blocks, whose end the parser reports without a place."""
        while len(indent) < len(self._indents[-1]):
            self._indents.pop()
        if len(indent) > len(self._indents[-1]):
            self._indents.append(indent)
            if len(self._indents) > _DEEPEST:
                raise TooDeepError("nested too deeply", line.number)
        elif indent != self._indents[-1]:
            raise PythonError("unindent does not match any outer level", line.number)

    def _placed(self, error: PythonError) -> PythonError:
        """An error in the skeleton, with its place in the file."""
        index = bisect_right(self._starts, error.line) - 1
        if not error.line:  # a character that is no Python: the parser does not say where
            index = next(i for i, piece in enumerate(self._pieces) if syntax.is_no_token(piece))
        part = self.parts[max(index, 0)]
        line = part.lines[0] if isinstance(part, Run) else part
        number = line.number + max(error.line - self._starts[max(index, 0)], 0)
        return type(error)(error.message, min(number, line.last), error.column)


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
        decorators = [self._head(one) for one in getattr(node, "decorators", ())]
        head = self._head(node)
        body = self._suite(getattr(node, "body", None), head)
        clauses = [
            self._suite(clause.body, self._head(clause))
            for clause in (*getattr(node, "handlers", ()), *getattr(node, "cases", ()))
        ]
        orelse = self._clause(getattr(node, "orelse", None))
        finalbody = self._clause(getattr(node, "finalbody", None))
        return Block(node, head, decorators, body, orelse, clauses, finalbody, self._last)

    def _clause(self, node: cst.CSTNode | None) -> Suite:
        match node:
            case None:
                return ()
            case cst.If():
                return (self._block(node),)
            case cst.Else() | cst.Finally():
                return self._suite(node.body, self._head(node))
        raise TypeError(type(node))

    def _suite(self, body: cst.BaseSuite | None, head: Statement) -> Suite:
        match body:
            case cst.SimpleStatementSuite(body=nodes):
                return [Statement(node, head.line, head.values) for node in nodes]
            case cst.IndentedBlock(body=nodes):
                return [self.part(node) for node in nodes]
        return ()  # of `match`, which has only cases

    def _head(self, node: cst.CSTNode) -> Statement:
        line = next(self._parts)
        assert isinstance(line, Line)
        self._last = line
        values = line.form.values(self._text[line.body : line.end])
        return Statement(node, line, values)
