"""A Python file as blocks of statements.

The lines of compound statements, with a placeholder for the simple statements between two of them,
are a small skeleton, which libcst parses. Simple statements are read when they are asked for, one
after the other, so that a file is never in memory as a tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import libcst as cst

from rewriter.core import limits
from rewriter.core.errors import RewriterError
from rewriter.core.source import Source
from rewriter.locate.python import syntax
from rewriter.locate.python.forms import form_of
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
    the lines before that. `clauses` has `node` with its body, and the nodes behind it with theirs:
    of `else`, `except`, `case` and so on; that of an `elif` is a block again. `last` is the last
    line of all.
    """

    node: cst.CSTNode
    head: Statement
    decorators: Sequence[Statement]
    clauses: Sequence[tuple[cst.CSTNode, Suite]]
    last: Line

    @property
    def line(self) -> Line:
        """The line where it begins."""
        return (*self.decorators, self.head)[0].line

    @property
    def body(self) -> Suite:
        return self.clauses[0][1]

    @property
    def name(self) -> str:
        """The name of a function or a class; empty for any other block."""
        return self.head.name(getattr(self.node, "name", None))

    @property
    def parameters(self) -> list[str]:
        """The names of a function's positional parameters."""
        if not isinstance(self.node, cst.FunctionDef):
            return []
        return [self.head.name(one.name) for one in self.node.params.params]


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

    def every(self, suite: Suite) -> Iterator[Statement]:
        """Yield the statements in a suite, and the heads and statements of the blocks in it."""
        for part in self.each(suite):
            if isinstance(part, Statement):
                yield part
                continue
            yield part.head
            for _, inner in part.clauses:
                yield from self.every(inner)

    def last(self, suite: Suite) -> Statement | Block:
        """The last of what is directly in a suite."""
        part = suite[-1]
        *_, last = self.each([Run(part.lines[-1:]) if isinstance(part, Run) else part])
        return last


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
    tree = skeleton.read(_read_line if checks else None)
    builder = _Builder(text, skeleton.parts)
    return Module(text, [builder.part(node) for node in tree.body])


def check(text: str, visit: Callable[[Line], None]) -> None:
    """Read a module without keeping it. Raises `PythonError`, as `visit` may, which gets each
    line."""

    def both(text: str, line: Line) -> None:
        _read_line(text, line)
        visit(line)

    _Skeleton(text, keeps=False).read(both)


def _read_line(text: str, line: Line) -> None:
    """Read the statements of a line. Raises `PythonError` with the place in the file."""
    if line.form is None or line.is_block:
        return
    try:
        _ = line.form.statement
    except PythonError:
        try:
            syntax.statement(text[line.body : line.end].encode("latin-1").decode())
        except TooDeepError:
            pass  # in a string
        except PythonError as written:  # the place in the line, not in its form
            error = written
        indent = line.body - line.start if error.line <= 1 else 0
        number = line.number + max(error.line - 1, 0)
        raise type(error)(error.message, min(number, line.last), error.column + indent) from error


class _Skeleton:
    """Collects the lines of a module, and the text that libcst parses for its blocks.

    `parts` are the lines of compound statements and, if it `keeps` them, the runs between these.
    """

    def __init__(self, text: str, *, keeps: bool = True) -> None:
        self.parts: list[Line | Run] = []
        self._text = text
        self._keeps = keeps
        self._pieces: list[tuple[int, str]] = []  # with the line in the file
        self._indents = [""]
        self._in_run = False

    def read(self, visit: Callable[[str, Line], None] | None) -> cst.Module:
        """The tree of the skeleton. Raises `PythonError` about the first fault."""
        fault: PythonError | None = None
        try:
            for line in lines(self._text, reads=visit is not None):
                if visit is not None:
                    visit(self._text, line)
                self._add(line)
        except PythonError as error:
            fault = error
        try:
            tree = syntax.module("".join(text for _, text in self._pieces))
        except PythonError:
            if (found := self._placed()) is not None and (not fault or found.line < fault.line):
                raise found from None
        if fault is not None:
            raise fault
        return tree

    def _add(self, line: Line) -> None:
        indent = self._text[line.start : line.body]
        if self._in_run and not line.is_block and indent == self._indents[-1]:
            if self._keeps and isinstance(run := self.parts[-1], Run):
                run.lines.append(line)
            return
        self._in_run = not line.is_block
        self.parts.append(line if line.is_block else Run([line]))
        self._follow(indent, line)
        written = line.form.text if line.is_block and line.form else "_"
        self._pieces.append((line.number, f"{indent}{written}\n"))

    def _follow(self, indent: str, line: Line) -> None:
        """Follow the indentation of blocks, about which the parser does not say where it fails."""
        while len(indent) < len(self._indents[-1]):
            self._indents.pop()
        if len(indent) > len(self._indents[-1]):
            self._indents.append(indent)
            if len(self._indents) > _DEEPEST:
                raise TooDeepError("nested too deeply", line.number)
        elif indent != self._indents[-1]:
            raise PythonError("unindent does not match any outer level", line.number)

    def _placed(self) -> PythonError | None:
        """The error of the skeleton, with its line in the file; `None` if that is the end."""
        padded = ""
        for number, text in self._pieces:
            padded += "\n" * (number - 1 - padded.count("\n")) + text
        try:
            syntax.module(padded)
        except PythonError as error:
            if error.line:
                return error if error.line <= self._pieces[-1][0] else None
            # A character that is no Python: the parser does not say where it is.
            found = (line for line, text in self._pieces if syntax.is_no_token(text))
            return PythonError(error.message, next(found))
        return None


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
        clauses = [(node, self._suite(node.body, head))] if hasattr(node, "body") else []
        for clause in (
            *getattr(node, "handlers", ()),
            *getattr(node, "cases", ()),
            getattr(node, "orelse", None),
            getattr(node, "finalbody", None),
        ):
            if isinstance(clause, cst.If):  # `elif`
                clauses.append((clause, [self._block(clause)]))
            elif clause is not None:
                clauses.append((clause, self._suite(clause.body, self._head(clause))))
        return Block(node, head, decorators, clauses, self._last)

    def _suite(self, body: cst.BaseSuite, head: Statement) -> Suite:
        if isinstance(body, cst.SimpleStatementSuite):
            return [replace(head, node=node) for node in body.body]
        return [self.part(node) for node in body.body]

    def _head(self, node: cst.CSTNode) -> Statement:
        line = next(self._parts)
        assert isinstance(line, Line)
        self._last = line
        text = self._text[line.body : line.end]
        return Statement(node, None, line, text, line.packed.split("\0"))
