"""Finds the launches of a Python wrapper.

Two steps. `_Walk` goes through the scopes in file order, sorts every call into launch, known
non-launch or unrecognised, and writes down what each statement does to the variables. Then libcst
reads all launches at once, and the same events are replayed to resolve their arguments.
"""

from __future__ import annotations

import ast
import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import libcst as cst

from rewriter import grammar as grammars
from rewriter.grammar import Grammar, Shape
from rewriter.python import outline as outlines
from rewriter.python import provenance
from rewriter.python.call import Reading, Written, code, elements, parse_calls, reading
from rewriter.python.flow import Flow
from rewriter.python.outline import Outline, ScopeNode, callee, head
from rewriter.python.roles import RESOLVERS, Called, Declared
from rewriter.source import Source
from rewriter.types import Argument, Entry, Launch, Located, Role, Site, Type, Unrecognised


def locate(source: Source) -> Located:
    """Locate every launch. Reads text only; nothing is imported or run.

    Raises `RewriterError` where the source does not parse.
    """
    grammar = grammars.load("python")
    outline = outlines.read(source, grammar)
    walk = _Walk(source, outline, grammar)
    for scope in outline.scopes:
        walk.scope(scope)
    found = sorted(walk.found, key=lambda candidate: candidate.offset)
    written = parse_calls([source.call_text(candidate.call) for candidate in found])
    launches = tuple(
        _launch(index, candidate, arguments, outline, grammar)
        for index, (candidate, arguments) in enumerate(zip(found, written, strict=True))
    )
    return Located(
        launches,
        tuple(sorted(walk.unrecognised, key=lambda call: call.line)),
        _entry(outline, source),
        outline.header,
        outline.loader_globals,
    )


@dataclass(frozen=True)
class _Candidate:
    """A launch before libcst has read it. `flow` holds its variables as they are just before it."""

    call: ast.Call
    callee: str
    shape: Shape
    scope: ScopeNode
    offset: int
    site: Site
    repeats: bool
    targets: tuple[str, ...]
    outputs: tuple[tuple[str, str], ...]
    comments: tuple[bytes, ...]
    flow: Flow


@dataclass
class _Walk:
    source: Source
    outline: Outline
    grammar: Grammar
    found: list[_Candidate] = field(default_factory=list)
    unrecognised: list[Unrecognised] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._functions = {scope.function.name for scope in self.outline.scopes}
        self._classified: dict[str, Shape | str | None] = {}

    def scope(self, scope: ScopeNode) -> None:
        self._scope = scope
        self._loops = 0
        self._last = scope.function.lineno
        self._elements = _Elements(scope.function)
        flow = Flow(self.outline.tensors, self.outline.scalars)
        self._block(scope.function.body, flow)

    def _block(self, body: list[ast.stmt], flow: Flow) -> None:
        for statement in body:
            if isinstance(statement, (ast.If, ast.While, ast.For, ast.With, ast.Try)):
                self._compound(statement, flow)
            elif isinstance(statement, outlines.Function):
                continue
            else:
                self._simple(statement, flow)

    def _compound(
        self, statement: ast.If | ast.While | ast.For | ast.With | ast.Try, flow: Flow
    ) -> None:
        headers: list[ast.expr] = []
        if isinstance(statement, (ast.If, ast.While)):
            headers = [statement.test]
        elif isinstance(statement, ast.For):
            headers = [statement.iter]
        elif isinstance(statement, ast.With):
            headers = [item.context_expr for item in statement.items]
        for header in headers:
            self._calls(statement, header, flow, obstacle="it stands in the head of a block")
        loop = isinstance(statement, (ast.While, ast.For))
        self._loops += loop
        if isinstance(statement, ast.With):
            self._block(statement.body, flow)
        else:
            alternative = flow.branch()
            self._block(statement.body, flow)
            self._block(statement.orelse, alternative)
        if isinstance(statement, ast.Try):
            for handler in statement.handlers:
                self._block(handler.body, flow.branch())
            self._block(statement.finalbody, flow)
        self._loops -= loop

    def _simple(self, statement: ast.stmt, flow: Flow) -> None:
        launches = self._calls(statement, statement, flow, obstacle="")
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                self._assign(statement, target, statement.value, flow, bool(launches))
        elif isinstance(statement, ast.Expr) and isinstance(call := statement.value, ast.Call):
            if self._classify(callee(call), call) == "memory":
                flow.write(head(callee(call)))
        elif isinstance(statement, ast.Delete):
            for name in _names(statement):
                flow.forget(name)
        # Whatever was handed to a launch holds values now: it did before, or was written.
        for candidate in launches:
            for name in _names(candidate.call):
                if name in flow.variables:
                    flow.write(name)

    def _assign(
        self,
        statement: ast.Assign,
        target: ast.expr,
        value: ast.expr,
        flow: Flow,
        launches: bool,
    ) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            received = isinstance(value, ast.Name) and value.id == "args"
            for name in _names(target):
                if received:
                    flow.receive(name)
                else:
                    flow.compute(name, None)
            return
        if not isinstance(target, ast.Name):
            return
        name = target.id
        if launches:
            flow.compute(name, None)
        elif isinstance(value, ast.Name):
            flow.alias(name, value.id, reuse=self._is_reuse(statement))
        elif isinstance(value, ast.Subscript):
            flow.compute(name, None)
        elif isinstance(value, ast.Call):
            effect = self._classify(callee(value), value)
            if effect == "allocation":
                flow.allocate(name)
            elif effect == "view" and (base := _viewed(value)):
                flow.alias(name, base, reuse=self._is_reuse(statement))
            else:
                flow.compute(name, {"copy": "tensor", "scalar": "scalar"}.get(str(effect)))
        elif isinstance(value, (ast.BinOp, ast.UnaryOp, ast.Compare, ast.IfExp)) or (
            isinstance(value, ast.Constant) and isinstance(value.value, (int, float))
        ):
            flow.compute(name, "scalar")
        else:
            flow.compute(name, "other")

    def _is_reuse(self, statement: ast.stmt) -> bool:
        """Inductor frees what it reuses on the same line, or says `# reuse`: `make_buffer_reuse`."""
        rest = self.source.line_text(statement.lineno)[(statement.end_col_offset or 0) :]
        return "del " in rest or "# reuse" in rest

    def _calls(
        self, statement: ast.stmt, inside: ast.AST, flow: Flow, *, obstacle: str
    ) -> list[_Candidate]:
        """Sort the calls under `inside`; the launches among them, as found."""
        launches = []
        for node in ast.walk(inside):
            if not isinstance(node, ast.Call):
                continue
            path = callee(node)
            verdict = self._classify(path, node)
            if isinstance(verdict, Shape):
                launches.append(self._candidate(statement, node, path, verdict, flow, obstacle))
            elif verdict is None:
                text = " ".join(self.source.call_text(node).split())
                self.unrecognised.append(Unrecognised(node.lineno, text))
        if launches:
            self._last = (statement.end_lineno or statement.lineno) + 1
            self.found += launches
        return launches

    def _classify(self, path: str, call: ast.Call) -> Shape | str | None:
        """A launch shape, the group of a known non-launch, or `None`."""
        key = path
        if any(keyword.arg in ("out", "out0", "stream") for keyword in call.keywords):
            key += " " + " ".join(str(keyword.arg) for keyword in call.keywords)
        if key not in self._classified:
            self._classified[key] = (
                match_shape(path, call, self.outline, self.grammar)
                or self.grammar.effect(path)
                or ("scope" if path in self._functions else None)
            )
        return self._classified[key]

    def _candidate(
        self,
        statement: ast.stmt,
        call: ast.Call,
        path: str,
        shape: Shape,
        flow: Flow,
        obstacle: str,
    ) -> _Candidate:
        targets = _targets(statement)
        return _Candidate(
            call=call,
            callee=path,
            shape=shape,
            scope=self._scope,
            offset=self.source.position(call.lineno, call.col_offset),
            site=self._site(statement, obstacle),
            repeats=self._loops > 0 or not _runs_once(self._scope),
            targets=targets,
            outputs=self._elements.of(targets[0], statement) if len(targets) == 1 else (),
            comments=self._comments(statement),
            flow=flow.only(_names(call)),
        )

    def _site(self, statement: ast.stmt, obstacle: str) -> Site:
        source = self.source
        last = statement.end_lineno or statement.lineno
        start, end = source.line_start(statement.lineno), source.line_end(last)
        before = source.data[start : source.position(statement.lineno, statement.col_offset)]
        after = source.data[source.position(last, statement.end_col_offset or 0) : end].strip()
        if not obstacle and (before.strip() or (after and not after.startswith(b"#"))):
            obstacle = "another statement shares its line"
        return Site(
            start,
            end,
            before if not before.strip() else b"",
            obstacle,
            "it is part of a return" if isinstance(statement, ast.Return) else "",
        )

    def _comments(self, statement: ast.stmt) -> tuple[bytes, ...]:
        """The comment lines between the previous launch and this one."""
        start = self.source.line_start(self._last)
        between = self.source.data[start : self.source.line_start(statement.lineno)]
        lines = (line.strip() for line in between.splitlines())
        return tuple(line for line in lines if line.startswith(b"#"))


def _runs_once(scope: ScopeNode) -> bool:
    """A subgraph may be called again in the same run; the entry and graph partitions are not."""
    return scope.entry or scope.name.startswith("partition_")


class _Elements:
    """Where a scope takes the elements out of results: `buf8 = buf7[0]` after `buf7 = op(…)`."""

    def __init__(self, function: outlines.Function) -> None:
        self._events: dict[str, list[tuple[int, str, str]]] = {}
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Name):
                self._add(target.id, node.lineno, "end", "")
                if isinstance(node.value, ast.Subscript) and (base := _subscripted(node.value)):
                    self._add(base, node.lineno, target.id, ast.unparse(node.value))
            elif isinstance(node, ast.Delete):
                for name in _names(node):
                    self._add(name, node.lineno, "end", "")
        for events in self._events.values():
            events.sort()

    def _add(self, base: str, line: int, target: str, expr: str) -> None:
        self._events.setdefault(base, []).append((line, target, expr))

    def of(self, name: str, statement: ast.stmt) -> tuple[tuple[str, str], ...]:
        """`(variable, expression)` of each element of the result that `statement` keeps in `name`."""
        later = itertools.dropwhile(
            lambda event: event[0] <= (statement.end_lineno or 0), self._events.get(name, ())
        )
        return tuple(
            (target, expr)
            for _, target, expr in itertools.takewhile(lambda e: e[1] != "end", later)
        )


def match_shape(path: str, call: ast.Call, outline: Outline, grammar: Grammar) -> Shape | None:
    """The first launch shape that the call has."""
    definition = outline.definitions.get(head(path))
    for shape in grammar.shapes:
        if any(pattern.fullmatch(path) for pattern in shape.excluded):
            continue
        for match in shape.matches:
            if not match.callee.fullmatch(path):
                continue
            if match.defined_by and (definition is None or definition.factory != match.defined_by):
                continue
            if match.source and not any(match.source in text for text in definition.texts):  # type: ignore[union-attr]
                continue
            if match.keyword and all(keyword.arg != match.keyword for keyword in call.keywords):
                continue
            return shape
    return None


def _launch(
    index: int,
    candidate: _Candidate,
    arguments: tuple[Written, ...],
    outline: Outline,
    grammar: Grammar,
) -> Launch:
    kernel = head(candidate.callee) if candidate.shape.roles == "signature" else candidate.callee
    called = Called(candidate.callee, arguments, bool(candidate.targets))
    declared = RESOLVERS[candidate.shape.roles](called, outline.definitions)
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
        args=_distinct(_settle(resolved, candidate.flow)),
        origins=origins,
        source_nodes=nodes,
        site=candidate.site,
        repeats=candidate.repeats,
    )


def _argument(
    value: cst.BaseExpression, declared: Declared, flow: Flow, grammar: Grammar
) -> Argument:
    read = reading(value, grammar)
    if read is None:
        return Argument(code(value), code(value), "", "in", "other")
    if not read.base:
        return Argument(read.expr, read.expr, "", "in", _literal_type(read))
    kind = declared.type or _type(read, flow)
    role: Role = "in" if kind != "tensor" else flow.role(read.base, declared.role)
    return Argument(read.base, read.expr, flow.get(read.base).root, role, kind)


def _literal_type(read: Reading) -> Type:
    number = read.expr.lstrip("-").replace(".", "").replace("e", "").isalnum()
    return "scalar" if number and read.expr.lstrip("-")[0].isdigit() else "other"


def _type(read: Reading, flow: Flow) -> Type:
    if read.kind == "arithmetic":
        return "scalar"
    return flow.type_of(read.base)


def _results(candidate: _Candidate) -> Iterator[Argument]:
    """What the statement keeps of the launch's result, by the names it is used under later."""
    if candidate.outputs:
        for name, expr in candidate.outputs:
            yield Argument(name, expr, name, "out", "tensor")
    else:
        for target in candidate.targets:
            yield Argument(target, target, target, "out", "tensor")


def _settle(arguments: list[Argument], flow: Flow) -> list[Argument]:
    """Agree on one role per buffer: what one argument reads and another writes is updated.

    Unless the buffer had no value before: then the kernel reads what it has written itself, as
    one that fills the parts of a concatenation does.
    """
    tensors = [a for a in arguments if a.type == "tensor"]
    read = {a.buffer for a in tensors if a.role != "out"}
    written = {a.buffer for a in tensors if a.role != "in"}
    roles: dict[str, Role] = {
        buffer: "inout" if flow.holds_value(buffer) else "out" for buffer in read & written
    }
    return [
        replace(a, role=roles.get(a.buffer, a.role))
        if a.type == "tensor" and sum(other.buffer == a.buffer for other in tensors) > 1
        else a
        for a in arguments
    ]


def _distinct(arguments: list[Argument]) -> tuple[Argument, ...]:
    """Give different tensors of one launch different names: two views of `buf4` are two values."""
    exprs: dict[str, str] = {}
    used: Counter[str] = Counter()
    result = []
    for argument in arguments:
        if argument.type == "tensor":
            if argument.expr not in exprs:
                used[argument.name] += 1
                count = used[argument.name]
                exprs[argument.expr] = argument.name + (f".{count}" if count > 1 else "")
            argument = replace(argument, name=exprs[argument.expr])
        result.append(argument)
    return tuple(result)


def _entry(outline: Outline, source: Source) -> Entry | None:
    for scope in outline.scopes:
        if scope.entry:
            first = scope.function.body[0]
            start = source.line_start(first.lineno)
            indent = source.data[start : source.position(first.lineno, first.col_offset)]
            inputs = _inputs(scope.function)
            return None if indent.strip() else Entry(scope.name, start, indent, inputs)
    return None


def _inputs(function: outlines.Function) -> tuple[str, ...]:
    """The names in `arg0_1, arg1_1 = args`."""
    for node in function.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name):
            if node.value.id == "args":
                return tuple(_names(node.targets[0]))
    return ()


def _targets(statement: ast.stmt) -> tuple[str, ...]:
    """The variables, or elements of variables, that keep the statement's result."""
    if not isinstance(statement, ast.Assign):
        return ()
    target = statement.targets[0]
    parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
    return tuple(ast.unparse(part) for part in parts if isinstance(part, (ast.Name, ast.Subscript)))


def _names(node: ast.AST) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name):
            yield inner.id


def _viewed(call: ast.Call) -> str:
    """The variable that a call of a view function looks at."""
    if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
        if call.func.value.id not in ("aten", "torch"):
            return call.func.value.id
    return next((name for arg in call.args[:1] for name in _names(arg) if name not in _VIEWS), "")


_VIEWS = frozenset({"reinterpret_tensor", "aten", "torch"})


def _subscripted(node: ast.expr) -> str:
    """The name at the bottom of `buf7[0][1]`."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
