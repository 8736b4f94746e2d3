"""Finds the launches of a Python wrapper, and what their arguments are.

`launch_finder.py` walks through the scopes; libcst then reads all launches at once. The roles that
their kernels declare are combined with what data flow knows of their buffers.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

import libcst as cst

from rewriter.core import limits
from rewriter.core.errors import RewriterError
from rewriter.core.source import Source
from rewriter.core.types import Role, Type
from rewriter.locate import provenance
from rewriter.locate.arguments import DeclaredArgument, distinct_names, unify_roles
from rewriter.locate.flow import Flow
from rewriter.locate.python import grammar as grammars
from rewriter.locate.python import outline as outlines
from rewriter.locate.python.call import (
    PythonValue,
    UnreadableCallError,
    WrittenArgument,
    code,
    elements,
    parse_calls,
    read_value,
)
from rewriter.locate.python.grammar import PythonGrammar
from rewriter.locate.python.inputs import input_specs
from rewriter.locate.python.launch_finder import (
    CallClassifier,
    PythonLaunch,
    PythonLaunchFinder,
    names,
)
from rewriter.locate.python.outline import PythonOutline, head
from rewriter.locate.python.roles import RESOLVERS, KernelCall
from rewriter.locate.python.signature import Signatures
from rewriter.locate.types import Argument, EntryPoint, Launch, Located


def locate(source: Source) -> Located:
    """Locate every launch. Reads text only; nothing is imported or run.

    Raises `RewriterError` where the source does not parse.
    """
    grammar = grammars.load()
    outline = outlines.read(source, grammar)
    classifier = CallClassifier(outline, grammar)
    finders = [PythonLaunchFinder(scope, source, outline, classifier) for scope in outline.scopes]
    launch_calls = sorted(
        (launch for finder in finders for launch in finder.launches),
        key=lambda launch: launch.offset,
    )
    unrecognised = (call for finder in finders for call in finder.unrecognised)
    returned = {
        scope.name: finder.returned for scope, finder in zip(outline.scopes, finders, strict=True)
    }
    signatures = Signatures(outline.definitions)
    try:
        written = parse_calls([source.call_text(candidate.call) for candidate in launch_calls])
    except UnreadableCallError as error:
        line = launch_calls[error.position].call.lineno
        raise RewriterError(
            "syntax-error",
            f"{source.name}:{line}: the arguments of this launch cannot be read\n"
            f"    {source.line_text(line).strip()}",
            hint="Expected the output_code.py that torch.compile wrote.",
        ) from error
    launches = []
    for index, (candidate, arguments) in enumerate(zip(launch_calls, written, strict=True)):
        try:
            launches.append(_launch(index, candidate, arguments, signatures, grammar))
        except RecursionError as error:
            # libcst nests what is a list to Python: `a and b and c`, strings in a row.
            where = f"{source.name}:{candidate.call.lineno}"
            bound = str(limits.PYTHON_NESTING)
            raise limits.too_large(where, "an argument is nested too deeply", bound) from error
    return Located(
        tuple(launches),
        tuple(sorted(unrecognised, key=lambda call: call.line)),
        tuple(_entries(outline, source, returned)),
        outline.header,
        outline.loader_globals,
    )


def _launch(
    index: int,
    candidate: PythonLaunch,
    arguments: tuple[WrittenArgument, ...],
    signatures: Signatures,
    grammar: PythonGrammar,
) -> Launch:
    kernel = head(candidate.callee) if candidate.shape.roles == "signature" else candidate.callee
    called = KernelCall(candidate.callee, arguments, candidate.kept)
    declared = RESOLVERS[candidate.shape.roles](called, signatures)
    resolved = [
        _argument(member, hint, candidate.flow, grammar)
        for argument, hint in zip(arguments, declared, strict=True)
        # A list of tensors is several arguments of the launch.
        for member in elements(argument.value)
    ]
    if not any(argument.role == "out" for argument in resolved):
        resolved += _results(candidate)
    origins, nodes = provenance.read(candidate.comments)
    return Launch(
        index=index,
        scope=candidate.scope.name,
        kernel=kernel,
        kind=candidate.shape.kind,
        line=candidate.call.lineno,
        args=distinct_names(unify_roles(resolved, candidate.flow)),
        origins=origins,
        source_nodes=nodes,
        insertion_point=candidate.insertion_point,
        repeats=candidate.repeats,
    )


def _argument(
    value: cst.BaseExpression, declared: DeclaredArgument, flow: Flow, grammar: PythonGrammar
) -> Argument:
    read = read_value(value, grammar)
    if read is None:
        return Argument(code(value), code(value), "", "in", "other")
    if not read.base:
        kind: Type = "scalar" if read.kind == "number" else "other"
        return Argument(read.expr, read.expr, "", "in", kind)
    kind = declared.type or _type(read, flow)
    role: Role = "in" if kind != "tensor" else flow.role(read.base, declared.role, _view(read))
    return Argument(read.base, read.expr, flow.get(read.base).root, role, kind)


def _view(read: PythonValue) -> str:
    """A view in the spacing of `ast.unparse`, as data flow has it; empty for other expressions."""
    return ast.unparse(ast.parse(read.expr, mode="eval")) if read.kind == "view" else ""


def _type(read: PythonValue, flow: Flow) -> Type:
    if read.kind == "arithmetic":
        return "scalar"
    return flow.type_of(read.base)


def _results(candidate: PythonLaunch) -> Iterator[Argument]:
    """What the statement keeps of the launch's result, by the names it is used under later."""
    if candidate.outputs:
        for name, expr in candidate.outputs:
            yield Argument(name, expr, name, "out", "tensor")
    else:
        for target in candidate.targets:
            yield Argument(target, target, target, "out", "tensor")


def _entries(
    outline: PythonOutline, source: Source, returned: Mapping[str, tuple[str, ...]]
) -> Iterator[EntryPoint]:
    for scope in outline.scopes:
        if scope.entry:
            first = scope.function.body[0]
            line = outlines.first_line(first)
            start = source.line_start(line)
            before = source.data[start : source.position(first.lineno, first.col_offset)]
            indent = before[: len(before) - len(before.lstrip())]
            alone = line < first.lineno or not before.strip()
            if alone and not source.is_continued(line):
                inputs, inputs_at = _inputs(scope.function, source)
                outputs = returned.get(scope.name, ())
                known = input_specs(outline.module, scope.function, inputs, outline.harness)
                yield EntryPoint(scope.name, start, indent, inputs, inputs_at, outputs, known)
            return


def _inputs(function: outlines.Function, source: Source) -> tuple[tuple[str, ...], int | None]:
    """The names in `arg0_1, arg1_1 = args`, and the offset of the line behind."""
    for node in function.body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Name)
            and node.value.id == "args"
        ):
            end = node.end_lineno or node.lineno
            behind = source.data[source.position(end, node.end_col_offset or 0) :]
            alone = not re.match(rb"[ \t]*[^\s#]", behind)
            return tuple(names(node.targets[0])), source.line_end(end) if alone else None
    return (), None
