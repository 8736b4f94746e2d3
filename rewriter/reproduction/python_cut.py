"""Extracts one launch from a Python wrapper: its statement, and the parts of the module it needs.

The text is read and copied, never executed.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import libcst as cst

from rewriter.locate.python import syntax
from rewriter.locate.python.module import Block, Module, parse
from rewriter.locate.python.statements import Statement, names, walk
from rewriter.reproduction import schemas
from rewriter.reproduction.types import Cut, Recorded, refusal

_COMPILER = "async_compile"
_OPERATOR = re.compile(r"\b(?:torch\.ops\.(?=\w+\.\w+\.)|(?=aten\.))(\w+)\.(\w+(?:\.\w+)?)\(")
_BUILTIN = frozenset(dir(builtins)) | {"__file__", "__name__"}
_CODE = cst.Module([])


def cut(recorded: Recorded) -> Cut:
    """Extract a launch. Raises `RewriterError` if its statement needs values not recorded."""
    module = parse(recorded.wrapper.plain)
    statement, scope = _statement(module, recorded)
    written = _read(statement.code(statement.node))
    substitution = _Substitution(recorded, written)
    call = substitution.apply(written)
    results = {name: substitution.apply(_read(text)).strip() for name, text in _results(recorded)}
    bound = {*substitution.variables.values(), *_targets(statement)}
    texts = [call, *results.values()]
    parts = [_Part.of(module, part) for part in module.each(module.body)]
    defined = frozenset().union(*(part.defines for part in parts))
    local, sizes = _locals(module, scope, recorded, bound, texts, defined)
    header, kernels = _of_module(parts, [*local, *texts])
    text = "\n".join([*local, call])
    return Cut(
        header,
        kernels,
        text,
        substitution.variables,
        results,
        is_random=_is_random(call),
        sizes=sizes,
    )


def _is_random(call: str) -> bool:
    """Whether the operator of a statement draws from torch's generator."""
    called = _OPERATOR.search(call)
    known = schemas.of_name(f"{called[1]}::{called[2]}") if called else None
    return known is not None and known.is_random


def _read(text: str) -> cst.BaseSmallStatement:
    """A simple statement as it stands, and not as a form."""
    (node,) = syntax.statement(text).body
    return node


def _statement(module: Module, recorded: Recorded) -> tuple[Statement, Block]:
    """The statement of the launch, and the innermost function around it."""
    line = recorded.launch.line
    found: tuple[Statement, Block] | None = None
    for scope in _functions(module, module.body):
        for statement in module.every(scope.body):
            if statement.line.number <= line <= statement.line.last and statement.whole is not None:
                found = (statement, scope)  # the innermost function comes last
    if found is None or not isinstance(found[0].node, (cst.Assign, cst.Expr)):
        raise refusal(recorded, "its statement cannot stand by itself")
    return found


def _functions(module: Module, suite: Iterable[object]) -> Iterator[Block]:
    for part in suite:
        if isinstance(part, Block):
            if isinstance(part.node, cst.FunctionDef):
                yield part
            for _, inner in part.clauses:
                yield from _functions(module, inner)


class _Substitution(cst.CSTTransformer):
    """Replaces each expression whose own value was recorded by a variable."""

    def __init__(self, recorded: Recorded, written: cst.BaseSmallStatement) -> None:
        super().__init__()
        self.variables: dict[str, str] = {}
        self._by_text: dict[str, str] = {}
        handed = {_text(node) for node in walk(written) if isinstance(node, cst.BaseExpression)}
        arguments = {x.name: x for x in recorded.launch.tensors}
        for name, tensor in recorded.given.items():
            argument = arguments.get(name)
            expression = None if argument is None else syntax.expression(argument.expr)
            text = name if expression is None else _text(expression)
            if tensor.file is None and text not in handed:
                continue  # the launch makes it
            if tensor.carried or isinstance(expression, cst.Name) or expression is None:
                self.variables[name] = name if name.isidentifier() else _variable(name)
            else:
                self.variables[name] = self._by_text[text] = _variable(name)

    def apply(self, node: cst.BaseSmallStatement) -> str:
        return _CODE.code_for_node(node.visit(self))  # type: ignore[arg-type]

    def on_visit(self, node: cst.CSTNode) -> bool:
        return not (isinstance(node, cst.BaseExpression) and _text(node) in self._by_text)

    def on_leave(self, original_node: cst.CSTNode, updated_node: cst.CSTNode) -> cst.CSTNode:  # type: ignore[override]
        if isinstance(original_node, cst.BaseExpression):
            variable = self._by_text.get(_text(original_node))
            return updated_node if variable is None else cst.Name(variable)
        return updated_node


def _text(node: cst.CSTNode) -> str:
    return _CODE.code_for_node(node)


def _variable(name: str) -> str:
    return "given_" + "".join(c if c.isalnum() else "_" for c in name)


def _results(recorded: Recorded) -> Iterator[tuple[str, str]]:
    """Yield the results, each with the expression that reads it after the launch."""
    for argument in recorded.launch.args:
        if argument.name in recorded.written:
            yield argument.name, argument.later or argument.expr


def _locals(
    module: Module,
    scope: Block,
    recorded: Recorded,
    bound: set[str],
    texts: Iterable[str],
    defined: frozenset[str],
) -> tuple[list[str], dict[str, str]]:
    """Assignments that the launch needs besides its tensors: streams, expressions over sizes; and
    the numbers of the call among these, by name."""
    before: dict[str, Statement] = {}
    for statement in module.every(scope.body):
        if statement.line.number < recorded.launch.line:
            before.update(dict.fromkeys(_targets(statement), statement))
    made: list[str] = []
    sizes: dict[str, str] = {}
    pending = [name for text in texts for name in _used(_read(text))]
    seen = set(bound) | defined | _BUILTIN
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        made_by = before.get(name)
        if name in recorded.numbers:
            sizes[name] = recorded.numbers[name]
        elif made_by is not None and len(_targets(made_by)) == 1:
            text = made_by.code(made_by.node)
            made.insert(0, text)
            pending += _used(_read(text))
        else:
            raise refusal(recorded, f"it uses {name}, whose value the dump does not hold")
    return made, sizes


def _of_module(parts: list[_Part], texts: Iterable[str]) -> tuple[str, str]:
    """The statements of the module that some text needs: imports and short names, then kernels."""
    wanted = {"torch"}.union(*(_used(_read(text)) for text in texts))
    taken: set[int] = set()
    while True:
        more = {i for i, part in enumerate(parts) if i not in taken and part.defines & wanted}
        if not more:
            break
        taken |= more
        wanted |= {name for i in more for name in parts[i].uses}
    if _COMPILER in wanted:
        taken |= {i for i, part in enumerate(parts) if part.waits}
    header = [parts[i].text for i in sorted(taken) if not parts[i].is_kernel]
    kernels = [parts[i].text for i in sorted(taken) if parts[i].is_kernel]
    return "".join(header), "\n".join(kernels)


@dataclass(frozen=True)
class _Part:
    """One statement of the module; it `waits` for kernels that are compiled beside."""

    text: str
    defines: frozenset[str]
    uses: frozenset[str]
    is_kernel: bool
    waits: bool

    @staticmethod
    def of(module: Module, part: Statement | Block) -> _Part:
        last = part.last if isinstance(part, Block) else part.line
        text = module.text[part.line.start : last.end].encode("latin-1").decode()
        text = text if text.endswith("\n") else text + "\n"
        node = part.node
        is_class = isinstance(node, cst.ClassDef)
        used = () if is_class else (name for x in module.every([part]) for name in _uses(x))
        uses = frozenset(used)
        waits = isinstance(node, (cst.Expr, cst.Del)) and _COMPILER in uses
        is_source = isinstance(node, cst.Assign) and part.line.last > part.line.number
        is_kernel = isinstance(node, cst.FunctionDef) or is_source or waits
        return _Part(text, frozenset(_defined(module, part)), uses, is_kernel, waits)


def _defined(module: Module, part: Statement | Block) -> Iterator[str]:
    if isinstance(part, Block):
        if isinstance(part.node, cst.FunctionDef):
            yield part.name
        elif isinstance(part.node, (cst.If, cst.Try)):
            for inner in module.each(part.body):
                yield from _defined(module, inner)
    elif isinstance(part.node, (cst.Import, cst.ImportFrom)):
        imported = part.node.names if not isinstance(part.node.names, cst.ImportStar) else ()
        for alias in imported:
            name = alias.asname.name if alias.asname else alias.name
            yield part.code(name).partition(".")[0]
    else:
        yield from _targets(part)


def _targets(statement: Statement) -> list[str]:
    targets = statement.node.targets if isinstance(statement.node, cst.Assign) else ()
    return [name for target in targets for name in statement.names(target.target)]


def _uses(statement: Statement) -> Iterator[str]:
    """The variables that a statement reads."""
    for node in _reads(statement.node):
        yield from statement.names(node)


def _used(node: cst.BaseSmallStatement) -> set[str]:
    """The variables that a statement, which is no form, reads."""
    return {name.text for read in _reads(node) for name in names(read)}


def _reads(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The parts of a statement that are no names it binds."""
    if not isinstance(node, cst.Assign):
        yield node
        return
    yield node.value
    for target in node.targets:
        if not isinstance(target.target, (cst.Name, cst.Tuple, cst.List)):
            yield target.target
