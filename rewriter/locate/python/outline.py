"""The skeleton of a Python wrapper: its kernel definitions and scopes, with their places."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import libcst as cst

from rewriter.core.errors import RewriterError
from rewriter.core.source import Source
from rewriter.locate.inputs import Harness
from rewriter.locate.python.grammar import PythonGrammar
from rewriter.locate.python.harness import read_harness
from rewriter.locate.python.module import Block, Module, Suite, parse
from rewriter.locate.python.statements import Statement, calls, positional, walk

_BODY = "call"  # the scope of a fragment that is the body of a function, without its head


@dataclass(frozen=True)
class KernelDefinition:
    """A module-level name bound to the result of a call, as kernels are."""

    statement: Statement
    call: cst.Call

    @cached_property
    def factory(self) -> str:
        """The callee's text, for example `async_compile.triton`."""
        return self.statement.callee(self.call)

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """The strings among the arguments: names and sources of kernels."""
        found = map(self.statement.string, positional(self.call))
        return tuple(text for text in found if text is not None)


@dataclass(frozen=True)
class ScopeNode:
    """A function that may contain launches. `entry` marks the one that callers run."""

    name: str
    function: Block
    entry: bool


@dataclass(frozen=True)
class PythonOutline:
    """`functions` are those that are not scopes, such as kernels that are Python functions."""

    definitions: dict[str, KernelDefinition]
    scopes: tuple[ScopeNode, ...]
    functions: dict[str, Block]
    header: int
    loader_globals: tuple[str, ...]
    harness: Harness
    module: Module


def read(source: Source, grammar: PythonGrammar) -> PythonOutline:
    """Outline a wrapper. Raises `RewriterError` with line and caret on a syntax error."""
    module = parse(source)
    definitions: dict[str, KernelDefinition] = {}
    scopes: list[ScopeNode] = []
    functions: dict[str, Block] = {}
    header = 0
    loader_globals = []
    assigned: set[str] = set()
    for part in module.each(module.body):
        if isinstance(part, Block):
            for name, function in _functions(part):
                if not grammar.is_helper(function.name) and (
                    _is_scope(module, function)
                    or (source.is_fragment and _launches_by_grid(module, function))
                ):
                    header = header or part.line.start
                    scopes.append(ScopeNode(name, function, entry=function.name == "call"))
                elif function is part and not grammar.is_helper(name):
                    functions[name] = part
        elif isinstance(part.node, cst.Assign):
            value, targets = part.node.value, [target.target for target in part.node.targets]
            assigned.update(name for target in targets for name in part.names(target))
            if isinstance(value, cst.Call) and (name := part.name(targets[0])):
                definitions[name] = KernelDefinition(part, value)
            elif isinstance(value, cst.Name) and value.value == "None":
                loader_globals.append(part.name(targets[0]))
    if source.is_fragment and not scopes and module.body:
        first, last = next(iter(module.each(module.body))), module.last(module.body)
        head = first.head if isinstance(first, Block) else first
        end = last.last if isinstance(last, Block) else last.line
        body = Block(head, (), [(head, module.body)], end)
        scopes.append(ScopeNode(_BODY, body, entry=True))
    for scope in scopes:
        if scope.entry and not source.is_fragment:
            _check_complete(source, module, scope, assigned)
    return PythonOutline(
        definitions,
        tuple(scopes),
        functions,
        header,
        tuple(loader_globals),
        read_harness(module),
        module,
    )


def _functions(block: Block) -> Iterator[tuple[str, Block]]:
    """A function, or the methods of a class, with their qualified names."""
    if isinstance(block.node, cst.FunctionDef):
        yield block.name, block
    elif isinstance(block.node, cst.ClassDef):
        for member in block.body:
            if isinstance(member, Block) and isinstance(member.node, cst.FunctionDef):
                yield f"{block.name}.{member.name}", member


def _is_scope(module: Module, function: Block) -> bool:
    """Whether a function is a scope: Inductor passes its inputs in a list named `args`, which it
    empties (`write_args` in torch/_inductor/codegen/wrapper.py).

    A function that launches under a name that only wrappers use is a scope, too.
    """
    if [name for name in function.parameters if name != "self"] == ["args"]:
        return True
    return any(
        isinstance(node, cst.Attribute)
        and isinstance(node.value, cst.Name)
        and (node.value.value == "extern_kernels" or node.attr.value == "run")
        for statement in module.every(function.body)
        for node in walk(statement.node)
    )


def _launches_by_grid(module: Module, function: Block) -> bool:
    """Whether a function has a call such as `kernel[grid](x, …)`."""
    return any(
        isinstance(node.func, cst.Subscript)
        for statement in module.every(function.body)
        for node in calls(statement.node)
    )


def _check_complete(source: Source, module: Module, scope: ScopeNode, assigned: set[str]) -> None:
    """Refuse a file that was cut off between two statements: it parses, but lacks its end.

    Inductor ends every call with a return, and a `Runner` with `call = runner.call`.
    """
    missing = "" if _returns(module, scope.function.body) else f"{scope.name} never returns"
    if not missing and "." in scope.name and "call" not in assigned:
        missing = f"nothing makes {scope.name} the module's `call`"
    if missing:
        raise RewriterError(
            "truncated",
            f"{source.name}:{scope.function.last.last}: the file ends too early: {missing}",
            hint="Expected a complete output_code.py; copy it again.",
        )


def _returns(module: Module, suite: Suite) -> bool:
    """Whether the last statement returns; with profiling, inside a `with` around the whole call."""
    last = module.last(suite)
    if isinstance(last.node, (cst.With, cst.Try)) and isinstance(last, Block):
        return _returns(module, last.body)
    return isinstance(last.node, cst.Return)
