"""Extracts one launch from a Python wrapper: its statement, and the parts of the module it needs.

The text is parsed and copied, never executed.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rewriter.reproduction import schemas
from rewriter.reproduction.refusal import refusal
from rewriter.reproduction.types import Cut, Recorded

_COMPILER = "async_compile"
_OPERATOR = re.compile(r"\b(?:torch\.ops\.(?=\w+\.\w+\.)|(?=aten\.))(\w+)\.(\w+(?:\.\w+)?)\(")
_BUILTIN = frozenset(dir(builtins)) | {"__file__", "__name__"}


def cut(recorded: Recorded) -> Cut:
    """Extract a launch. Raises `RewriterError` if its statement needs values not recorded."""
    source = recorded.wrapper.plain.data.decode()
    lines = source.splitlines(keepends=True)
    module = ast.parse(source)
    statement, scope = _statement(module, recorded)
    substitution = _Substitution(recorded, statement)
    call = [ast.unparse(substitution.visit(statement))]
    results = {
        name: ast.unparse(substitution.visit(ast.parse(text, mode="eval").body))
        for name, text in _results(recorded)
    }
    bound = {*substitution.variables.values(), *_targets(statement)}
    texts = [*call, *results.values()]
    local, sizes = _locals(scope, recorded, bound, texts, _module_names(module))
    header, kernels = _of_module(module, lines, [*local, *texts])
    text = "\n".join([*local, *call])
    return Cut(
        header,
        kernels,
        text,
        substitution.variables,
        results,
        is_random=_is_random(call[0]),
        sizes=sizes,
    )


def _is_random(call: str) -> bool:
    """Whether the operator of a statement draws from torch's generator."""
    called = _OPERATOR.search(call)
    known = schemas.of_name(f"{called[1]}::{called[2]}") if called else None
    return known is not None and known.is_random


def _statement(module: ast.Module, recorded: Recorded) -> tuple[ast.stmt, ast.AST]:
    """The statement of the launch, and the function around it."""
    line = recorded.launch.line
    found: tuple[ast.stmt, ast.AST] | None = None
    for scope in ast.walk(module):
        if not isinstance(scope, ast.FunctionDef) or not _holds(scope, line):
            continue
        for node in ast.walk(scope):
            if isinstance(node, ast.Assign | ast.Expr | ast.Return) and _holds(node, line):
                found = (node, scope)  # the innermost function is walked last
    if found is None or isinstance(found[0], ast.Return):
        raise refusal(recorded, "its statement cannot stand by itself")
    return found


def _holds(node: ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


class _Substitution(ast.NodeTransformer):
    """Replaces each expression whose own value was recorded by a variable."""

    def __init__(self, recorded: Recorded, statement: ast.stmt) -> None:
        self.variables: dict[str, str] = {}
        self._by_text: dict[str, str] = {}
        value = getattr(statement, "value", statement)
        handed = {ast.unparse(node) for node in ast.walk(value) if isinstance(node, ast.expr)}
        arguments = {x.name: x for x in recorded.launch.args if x.type == "tensor"}
        for name, tensor in recorded.given.items():
            argument = arguments.get(name)
            expression = None if argument is None else _expression(argument.expr)
            text = name if expression is None else ast.unparse(expression)
            if tensor.file is None and text not in handed:
                continue  # the launch makes it
            if tensor.carried or isinstance(expression, ast.Name) or expression is None:
                self.variables[name] = name if name.isidentifier() else _variable(name)
            else:
                self.variables[name] = self._by_text[text] = _variable(name)

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.expr) and (name := self._by_text.get(ast.unparse(node))):
            return ast.Name(name, ast.Load())
        return self.generic_visit(node)


def _variable(name: str) -> str:
    return "given_" + "".join(c if c.isalnum() else "_" for c in name)


def _results(recorded: Recorded) -> Iterator[tuple[str, str]]:
    """Yield the results, each with the expression that reads it after the launch."""
    for argument in recorded.launch.args:
        if argument.name in recorded.written:
            yield argument.name, argument.later or argument.expr


def _locals(
    scope: ast.AST,
    recorded: Recorded,
    bound: set[str],
    texts: Iterable[str],
    module: frozenset[str],
) -> tuple[list[str], dict[str, str]]:
    """Assignments that the launch needs besides its tensors: streams, expressions over sizes; and
    the numbers of the call among these, by name."""
    before: dict[str, ast.Assign] = {}
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign) and node.lineno < recorded.launch.line:
            before.update(dict.fromkeys(_targets(node), node))
    made: list[str] = []
    sizes: dict[str, str] = {}
    pending = [name for text in texts for name in _names(text)]
    seen = set(bound) | module | _BUILTIN
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        assignment = before.get(name)
        if name in recorded.numbers:
            sizes[name] = recorded.numbers[name]
        elif assignment is not None and isinstance(assignment.targets[0], ast.Name):
            text = ast.unparse(assignment)
            made.insert(0, text)
            pending += _names(ast.unparse(assignment.value))
        else:
            raise refusal(recorded, f"it uses {name}, whose value the dump does not hold")
    return made, sizes


def _of_module(module: ast.Module, lines: list[str], texts: Iterable[str]) -> tuple[str, str]:
    """The statements of the module that some text needs: imports and short names, then kernels."""
    wanted = {"torch"}.union(*(_names(text) for text in texts))
    statements = [_Statement.of(node, lines) for node in module.body]
    taken: set[int] = set()
    while True:
        more = {i for i, one in enumerate(statements) if i not in taken and one.defines & wanted}
        if not more:
            break
        taken |= more
        wanted |= {name for i in more for name in statements[i].uses}
    if _COMPILER in wanted:
        taken |= {i for i, one in enumerate(statements) if one.waits}
    header = [statements[i].text for i in sorted(taken) if not statements[i].is_kernel]
    kernels = [statements[i].text for i in sorted(taken) if statements[i].is_kernel]
    return "".join(header), "\n".join(kernels)


@dataclass(frozen=True)
class _Statement:
    """One statement of the module."""

    text: str
    defines: frozenset[str]
    uses: frozenset[str]
    is_kernel: bool
    waits: bool  # for kernels that are compiled beside

    @staticmethod
    def of(node: ast.stmt, lines: list[str]) -> _Statement:
        decorators = getattr(node, "decorator_list", [])
        start = min([node.lineno, *(x.lineno for x in decorators)])
        text = "".join(lines[start - 1 : node.end_lineno])
        text = text if text.endswith("\n") else text + "\n"
        names = frozenset(_defined(node))
        uses = frozenset() if isinstance(node, ast.ClassDef) else frozenset(_loaded(node))
        is_kernel = isinstance(node, ast.FunctionDef) or (
            isinstance(node, ast.Assign) and (node.end_lineno or 0) > node.lineno
        )
        waits = isinstance(node, ast.Expr | ast.Delete) and _COMPILER in _called(node)
        return _Statement(text, names, uses, is_kernel or waits, waits)


def _called(node: ast.AST) -> set[str]:
    return {x.id for x in ast.walk(node) if isinstance(x, ast.Name)}


def _module_names(module: ast.Module) -> frozenset[str]:
    return frozenset(name for node in module.body for name in _defined(node))


def _defined(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield from ((x.asname or x.name).split(".")[0] for x in node.names)
    elif isinstance(node, ast.Assign):
        yield from _targets(node)
    elif isinstance(node, ast.FunctionDef):
        yield node.name
    elif isinstance(node, ast.If | ast.Try):
        yield from (name for inner in node.body for name in _defined(inner))


def _targets(node: ast.stmt) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else []
    return [x.id for target in targets for x in ast.walk(target) if isinstance(x, ast.Name)]


def _names(text: str) -> set[str]:
    return _loaded(ast.parse(text))


def _loaded(node: ast.AST) -> set[str]:
    return {x.id for x in ast.walk(node) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Load)}


def _expression(text):
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError:
        return None
