"""The skeleton of a Python wrapper: its kernel definitions and scopes, with their places.

It is made with the standard library's `ast`, which parses a wrapper seven times faster than libcst.
Its positions are exact byte columns; those of libcst cost more than its parse, and are wrong after
a BOM. The body of a large function is parsed in pieces: use `PythonOutline.module` to get its
statements.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from rewriter.core import limits, python_pieces, python_syntax
from rewriter.core.errors import RewriterError
from rewriter.core.python_pieces import Module, first_line
from rewriter.core.source import Source
from rewriter.locate.inputs import Harness, read_harness
from rewriter.locate.python.grammar import PythonGrammar

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class KernelDefinition:
    """A module-level name bound to the result of a call, as kernels are.

    `factory` is the callee's text, for example `async_compile.triton`.
    """

    name: str
    factory: str
    call: ast.Call

    @property
    def texts(self) -> tuple[str, ...]:
        """The string literals among the arguments: names and sources of kernels."""
        return tuple(
            arg.value
            for arg in self.call.args
            if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
        )


@dataclass(frozen=True)
class ScopeNode:
    """A function that may contain launches. `entry` marks the one that callers run."""

    name: str
    function: Function
    entry: bool


@dataclass(frozen=True)
class PythonOutline:
    """`functions` are those that are not scopes, such as kernels that are Python functions."""

    definitions: dict[str, KernelDefinition]
    scopes: tuple[ScopeNode, ...]
    functions: dict[str, ast.FunctionDef]
    header: int
    loader_globals: tuple[str, ...]
    harness: Harness
    module: Module


def read(source: Source, grammar: PythonGrammar, *, whole: bool = False) -> PythonOutline:
    """Outline a wrapper. Raises `RewriterError` with line and caret on a syntax error.

    With `whole` the tree has everything, so that an error is about the first mistake.
    """
    tree = parse(source, divided=not whole)
    definitions: dict[str, KernelDefinition] = {}
    scopes: list[ScopeNode] = []
    functions: dict[str, ast.FunctionDef] = {}
    header = 0
    loader_globals = []
    above = 0  # the last line of the previous statement
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Name):
            if isinstance(node.value, ast.Call):
                definitions[target.id] = KernelDefinition(target.id, callee(node.value), node.value)
            elif isinstance(node.value, ast.Constant) and node.value.value is None:
                loader_globals.append(target.id)
        for function, qualified in _functions(node):
            if not grammar.is_helper(function.name) and _is_scope(tree, function):
                header = header or _line_above(source, first_line(node), above)
                scopes.append(ScopeNode(qualified, function, entry=function.name == "call"))
            elif isinstance(node, ast.FunctionDef) and not grammar.is_helper(node.name):
                functions[node.name] = node
        above = node.end_lineno or node.lineno
    _check_complete(source, tree, scopes)
    return PythonOutline(
        definitions,
        tuple(scopes),
        functions,
        header,
        tuple(loader_globals),
        read_harness(tree),
        tree,
    )


def parse(source: Source, *, divided: bool = False) -> Module:
    """Parse a source. A syntax error becomes one that shows the line and a caret.

    With `divided`, large functions may be left unparsed until their statements are read.
    """
    try:
        # As text, so that a coding cookie is ignored, and columns are those of the UTF-8 bytes.
        return python_pieces.parse(source.data.decode("utf-8-sig"), divided=divided)
    except SyntaxError as error:
        raise _syntax_error(source, error) from error
    except UnicodeDecodeError as error:
        raise RewriterError(
            "syntax-error",
            f"{source.name}: Python cannot parse this file: {error}",
            hint="Expected the output_code.py that torch.compile wrote.",
        ) from error
    except python_syntax.TooDeepError as error:
        where = f"{source.name}:{error.line}" if error.line else source.name
        raise limits.too_large(where, str(error), str(limits.PYTHON_NESTING)) from error


def _syntax_error(source: Source, error: SyntaxError) -> RewriterError:
    line = error.lineno or 1
    text = source.line_text(line)
    column = max((error.offset or 1) - 1, 0)
    caret = "".join("\t" if c == "\t" else " " for c in text[:column]) + "^"
    return RewriterError(
        "syntax-error",
        f"{source.name}:{line}: {error.msg}\n    {text}\n    {caret}",
        hint="A wrapper is a complete Python file; this one may be truncated or edited.",
    )


def _check_complete(source: Source, tree: Module, scopes: list[ScopeNode]) -> None:
    """Refuse a file that was cut off between two statements: it parses, but lacks its end.

    Inductor ends every call with a return, and a `Runner` with `call = runner.call`.
    """
    for scope in scopes:
        if scope.entry and not isinstance(_last(scope.function), ast.Return):
            _refuse_truncated(source, scope, f"{scope.name} never returns")
        if scope.entry and "." in scope.name and "call" not in _assigned(tree):
            _refuse_truncated(source, scope, f"nothing makes {scope.name} the module's `call`")


def _last(block: Function | ast.With | ast.Try) -> ast.stmt:
    """The last statement; with profiling, the one inside the `with` around the whole call."""
    last = block.body[-1]
    return _last(last) if isinstance(last, (ast.With, ast.Try)) else last


def _refuse_truncated(source: Source, scope: ScopeNode, missing: str) -> None:
    line = scope.function.end_lineno or scope.function.lineno
    raise RewriterError(
        "truncated",
        f"{source.name}:{line}: the file ends too early: {missing}",
        hint="Expected a complete output_code.py; copy it again.",
    )


def _assigned(tree: Module) -> set[str]:
    """The names that module-level statements assign."""
    return {
        node.id
        for statement in tree.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        for node in ast.walk(target)
        if isinstance(node, ast.Name)
    }


def callee(call: ast.Call) -> str:
    """The text of the called function, without arguments and subscripts: `a().b[].c`."""
    return _path(call.func)


def head(path: str) -> str:
    """The name that a callee's text starts with."""
    return path.partition(".")[0]


def _path(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_path(node.value)}.{node.attr}"
    if isinstance(node, ast.Subscript):
        return f"{_path(node.value)}[]"
    if isinstance(node, ast.Call):
        return f"{_path(node.func)}()"
    return "?"


def _functions(node: ast.stmt) -> Iterator[tuple[Function, str]]:
    if isinstance(node, Function):
        yield node, node.name
    elif isinstance(node, ast.ClassDef):
        for member in node.body:
            if isinstance(member, Function):
                yield member, f"{node.name}.{member.name}"


def _is_scope(module: Module, function: Function) -> bool:
    """Whether a function is a scope: Inductor passes its inputs in a list named `args`, which it
    empties (`write_args` in torch/_inductor/codegen/wrapper.py).

    A function that launches under a name that only wrappers use is a scope, too.
    """
    names = [arg.arg for arg in function.args.args if arg.arg != "self"]
    if names == ["args"]:
        return True
    return any(
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and (node.value.id == "extern_kernels" or node.attr == "run")
        for node in module.walk(function)
    )


def _line_above(source: Source, line: int, above: int) -> int:
    """The offset of a line before which lines can go: a backslash may join an empty line to it."""
    while line - 1 > above and source.is_continued(line):
        line -= 1
    return source.line_start(line)
