"""What torch's operators have to compute in the place of each launch of a Python wrapper.

Which node of its graph a buffer holds follows from the flow of data (`model_names/attribution.py`),
without values: the values of a launch that is wrong say nothing. What a launch writes and something
reads has to be such a node, computed from nodes that the launch receives. It also has to lie as the
graph says; a launch for which any of this is not known has no substitute, and a reason.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rewriter.artifact.types import Wrapper
from rewriter.core.quantities import comma_separated
from rewriter.diagnosis.verification.bounded import UncheckedError
from rewriter.diagnosis.verification.evaluate import operator_named
from rewriter.diagnosis.verification.functional import read, subgraphs
from rewriter.diagnosis.verification.replacing.body import (
    Body,
    NoBodyError,
    sizes_of,
    strides_of,
    type_of,
)
from rewriter.diagnosis.verification.replacing.flow import Flow
from rewriter.diagnosis.verification.replacing.in_python import in_python
from rewriter.diagnosis.verification.replacing.layouts import (
    Layout,
    layout_of,
    layouts,
    mentions,
    text_of,
    view_in,
)
from rewriter.locate.types import Argument, Launch
from rewriter.locate.vocabulary import kind_of
from rewriter.model_names.attribution import values_inside, values_of
from rewriter.model_names.graph import FxGraph

_ITEM = re.compile(r"\[(\d+)\]$")
_NAME = re.compile(r"\b[a-z]\w*")
_INSIDE = re.compile(r"[\[(]([^\])]*)[\])]")  # of `f32[s77, 8]` or `Sym(s77)`
_RESULT = re.compile(r"\bnullptr\b|&(\w+)_handle\b")
# A block, or the call: `if (kernel == nullptr) {` of torch 2.6 is neither.
_CALLED = re.compile(r"\s*(?:\{|(?:AOTI_TORCH_ERROR_CODE_CHECK\()?(?!if\b|static\b)\w+\()")
_RETURN = re.compile(r"^ +return \(([\w, ]*)\)$", re.MULTILINE)


@dataclass(frozen=True)
class Substitute:
    """A launch as a function of torch's operators. It is called with `arguments`, expressions of
    the wrapper, in the order of its `parameters`; what it returns is bound to `target`, if there
    is one, as what the launch returns."""

    launch: Launch
    parameters: tuple[str, ...]
    arguments: tuple[str, ...]
    lines: tuple[str, ...]
    target: str = ""


@dataclass(frozen=True)
class Kept:
    """A launch that is never replaced, and why."""

    launch: Launch
    reason: str


@dataclass(frozen=True)
class Substitutes:
    """All launches of a wrapper, each either with a substitute or with a reason."""

    found: tuple[Substitute, ...]
    kept: tuple[Kept, ...]


def substitutes(
    wrapper: Wrapper, graph: str, schemas: Mapping[str, str], *, precise: bool = False
) -> Substitutes:
    """What torch's operators have to compute in the place of the launches of a wrapper, by the
    text of its graph; `schemas` are those of operators that are not registered here."""
    whole = read(graph, schemas) if graph else None
    if whole is None or not wrapper.located.entries:
        why = "no graph of its wrapper is known"
        return Substitutes((), tuple(Kept(x, why) for x in wrapper.located.launches))
    found: list[Substitute] = []
    kept: list[Kept] = []
    source: str = wrapper.plain.data.decode("utf-8", "replace")
    launches: Sequence[Launch] = wrapper.located.launches
    if wrapper.language == "cpp":
        source, launches = in_python(source, launches)
    scopes = _scopes(wrapper, source, launches, whole, graph, schemas)
    for launch in launches:
        scope = scopes.get(launch.scope)
        try:
            if scope is None:
                raise NoBodyError("the graph of its function is not known")
            found.append(scope.substitute(launch, schemas, precise=precise))
        except (NoBodyError, UncheckedError) as error:
            kept.append(Kept(launch, str(error)))
    return Substitutes(tuple(found), tuple(kept))


def _scopes(
    wrapper: Wrapper,
    source: str,
    launches: Sequence[Launch],
    graph: FxGraph,
    text: str,
    schemas: Mapping[str, str],
) -> dict[str, _Scope]:
    """The functions of a wrapper whose graph is known, by name: the entry, and subgraphs. `source`
    and `launches` are those of the wrapper in the notation of Python."""
    entry, data = wrapper.located.entries[0], wrapper.plain.data
    made = _CppScope if wrapper.language == "cpp" else _Scope
    known = layouts(source, wrapper.located.entries)
    dead = {x.buffer for x in wrapper.located.memory if x.is_dead}
    line_of = wrapper.plain.line_of
    points = [x.insertion_point for x in launches]
    lines = {y for x in points for y in range(line_of(x.start), line_of(x.end - 1) + 1)}
    others = mentions(source.split("\n"), lines)
    own = [x for x in launches if x.scope == entry.name]
    returned = dict(zip(entry.outputs, graph.outputs, strict=False))
    returned.pop("", None)  # an output that is no buffer
    returned |= graph.finals
    flow = Flow(graph, own, values_of(own, entry, graph), returned, known, dead, others)
    found = {entry.name: made(data, flow)}
    for name, inner in subgraphs(text, schemas).items():
        inside = [x for x in launches if x.scope == name and name not in found]
        if inside and (outputs := _returned_by(source, name, inside)):
            values = values_inside(inside, name, inner, outputs)
            returned = dict(zip(outputs, inner.outputs, strict=False))
            flow = Flow(inner, inside, values, returned, known, dead, others)
            found[name] = made(data, flow)
    return found


def _returned_by(source: str, scope: str, launches: Sequence[Launch]) -> tuple[str, ...]:
    """The buffers that a function of the wrapper returns; empty if that is not known."""
    body = source.partition(f"def {scope}(")[2]
    match = _RETURN.search(body)
    owners = {x.expr: x.buffer for launch in launches for x in launch.tensors}
    names = comma_separated(match[1]) if match else ()
    return tuple(owners.get(x, x) for x in names)


@dataclass(frozen=True)
class _Scope:
    """One function of a wrapper."""

    source: bytes
    flow: Flow

    def substitute(
        self, launch: Launch, schemas: Mapping[str, str], *, precise: bool
    ) -> Substitute:
        """Raises `NoBodyError`."""
        point, graph = launch.insertion_point, self.flow.graph
        if problem := point.obstacle or point.open_ended:
            raise NoBodyError(f"no line can stand in its place: {problem}")
        given = dict(self._given(launch))
        target = self._target(launch)
        outs = list(self._outs(launch, has_target=bool(target)))
        wanted = [node for _, node in outs]
        called = self.flow.calls.get(launch.index, "")
        if target:
            if not kind_of(launch.kind).operator or not called:
                raise NoBodyError("which node of the graph it calls is not known")
            wanted.append(called)
        if not wanted:
            raise NoBodyError("nothing that it writes is read")
        body = Body(graph, given.keys(), schemas, precise)
        lines = body.lines(wanted)
        parameters = {name: given[name] for name in body.used}
        updated = any(x.role == "inout" for x in launch.tensors)
        for number, (text, node) in enumerate(outs):
            parameters[f"out{number}"] = text
            if updated and graph.base(node) in given:  # a view of an argument changes with it
                lines.append(f"{node} = {node}.clone()")
        lines += [f"out{number}.copy_({node})" for number, (_, node) in enumerate(outs)]
        if target:
            returned, symbols = self._returned(launch, called)
            parameters |= {name: name for name in symbols}
            lines += returned
        else:
            lines.append("return True")
        names, texts = tuple(parameters), tuple(parameters.values())
        return Substitute(launch, names, texts, tuple(lines), target)

    def _given(self, launch: Launch) -> Iterator[tuple[str, str]]:
        """The nodes that a launch receives, each with the expression that has it."""
        flow = self.flow
        for name, text in flow.graph.types.items():
            if text.startswith("Sym("):
                yield name, self._size(name)
        for argument in launch.tensors:
            node = flow.node_before(launch, argument) if argument.role != "out" else ""
            sizes = sizes_of(flow.graph, node) if node else None
            view = view_in(argument.expr, {})
            variable = view.of if view is not None else argument.expr
            if sizes is None or not variable.isidentifier():
                continue
            made = flow.made_as(launch, argument)
            text = _as_made(variable, flow.layouts.get(variable), made)
            if text and (text := self._as_node(text, made, node)):
                yield node, text

    def _outs(self, launch: Launch, *, has_target: bool) -> Iterator[tuple[str, str]]:
        """What a launch has to write into its arguments: the expressions, and their nodes."""
        flow = self.flow
        for argument in launch.tensors:
            if argument.role == "in" or (has_target and argument.role == "out"):
                continue  # the results of a call are bound
            layout = layout_of(argument.expr, flow.layouts)
            if layout is None:
                raise NoBodyError(f"how {argument.name} lies in memory is not known")
            if not flow.is_read(launch, argument):
                continue
            node = flow.node_after(launch, argument)
            sizes = sizes_of(flow.graph, node) if node else None
            kind = type_of(flow.graph, node) if node else None
            if sizes is None or kind is None:
                raise NoBodyError(f"what {argument.name} holds is no node of the graph")
            if layout.dtype and layout.dtype != str(kind.dtype):
                raise NoBodyError(f"{argument.name} is {layout.dtype}, and {node} {kind.dtype}")
            if not (text := self._as_node(argument.expr, layout, node)):
                raise NoBodyError(f"{argument.name} lies otherwise than {node}")
            yield text, node

    def _as_node(self, text: str, layout: Layout | None, node: str) -> str:
        """Memory with the sizes of a node; empty if the order of its elements is not known."""
        sizes = sizes_of(self.flow.graph, node)
        if layout is None or sizes is None or not layout.fits(sizes) or self._is_view(layout, node):
            return ""
        return text if layout.size == sizes else f"{text}.view({text_of(sizes)})"

    def _is_view(self, layout: Layout, node: str) -> bool:
        """Whether memory may have the elements of a node in the order of a view of it: a kernel
        also writes out views, such as the transposed one."""
        graph = self.flow.graph
        own = Layout(sizes_of(graph, node) or (), strides_of(graph, node))
        is_plain = not own.stride and layout.size == own.size and layout.is_contiguous
        if is_plain or layout.lies_as(own):
            return False
        views = (
            Layout(sizes_of(graph, x) or (), strides_of(graph, x)) for x in graph.reordered(node)
        )
        alike = [x for x in (own, *views) if x is own or x.size == layout.size]
        return len(alike) > 1 and not all(x.stride and x.is_contiguous for x in alike)

    def _target(self, launch: Launch) -> str:
        """The variable that what a launch returns is bound to; empty if there is none."""
        try:
            statements = ast.parse(self._statement(launch).strip()).body
        except (SyntaxError, RecursionError) as error:
            raise NoBodyError("its statement cannot be read") from error
        if len(statements) != 1 or not isinstance(statements[0], (ast.Expr, ast.Assign)):
            raise NoBodyError("its statement does more than call it")
        one = statements[0]
        if isinstance(one, ast.Expr):
            return ""
        if len(one.targets) != 1 or not isinstance(one.targets[0], ast.Name):
            raise NoBodyError("its results have no single name")
        return one.targets[0].id

    def _returned(self, launch: Launch, node: str) -> tuple[list[str], list[str]]:
        """The lines that return what a call returns, as it lies in the wrapper, and the sizes that
        these need."""
        flow, items = self.flow, self.flow.graph.items(node)
        lines = [f"results = list({node})"] if items else []
        symbols: dict[str, None] = {}
        inputs = (flow.graph.type_of(x) for x in flow.graph.inputs)
        known = set(_symbols(y for x in inputs for y in _INSIDE.findall(x)))
        results = []
        for argument in launch.tensors:
            if argument.role != "out":
                continue
            place = self._place(launch, argument, node)
            value = node if place is None else f"results[{place}]"
            results.append(value)
            name = items.get(place, "") if place is not None else "" if items else node
            if (kind := type_of(flow.graph, name)) is None:
                continue
            layout = flow.layouts.get(argument.buffer) or flow.layouts.get(argument.name)
            used = _symbols((*layout.size, *layout.stride)) if layout is not None else ()
            if layout is None or not known.issuperset(used):  # or it tells a size itself
                lines.append(f"{value} = {value}.to({kind.dtype})")
                continue
            made = f"torch.empty_strided({text_of(layout.size)}, {text_of(layout.stride)}, "
            made += f"dtype={kind.dtype}, device={value}.device)"
            lines.append(f"{value} = {made}.copy_({value})")
            symbols |= dict.fromkeys(used)
        lines.append(self._return(node, results, has_items=bool(items)))
        return lines, [*symbols]

    def _statement(self, launch: Launch) -> str:
        point = launch.insertion_point
        return self.source[point.start : point.end].decode("utf-8", "replace")

    def _size(self, name: str) -> str:
        """The variable of a size that the graph is given."""
        return name

    def _place(self, launch: Launch, argument: Argument, node: str) -> int | None:
        """Which result of its call an argument is; `None` for the only one."""
        match = _ITEM.search(argument.expr)
        return int(match[1]) if match else None

    def _return(self, node: str, results: Sequence[str], *, has_items: bool) -> str:
        return "return tuple(results)" if has_items else f"return {node}"


class _CppScope(_Scope):
    """The function of a C++ wrapper. Its calls leave what they return in the handles of variables,
    which are the target."""

    def _target(self, launch: Launch) -> str:
        text = self._statement(launch)
        if not _CALLED.match(text):
            raise NoBodyError("no single statement launches it")
        outs = [x.name for x in launch.tensors if x.role == "out"]
        handles = [f"{x}_handle" if f"{x}_handle" in text else x for x in outs]
        bound = [x for x in handles if x not in outs or self._is_new(x, text)]
        if bound and bound != handles:
            raise NoBodyError("it writes some results, and leaves others in new tensors")
        return ", ".join(bound)

    def _is_new(self, name: str, text: str) -> bool:
        """Whether a variable has no tensor yet: its call assigns it, or the proxy executor."""
        made = f"aoti_torch_new_uninitialized_tensor(&{name}_handle)"
        return bool(re.search(rf"\b{name} = ", text)) or made.encode() in self.source

    def _size(self, name: str) -> str:
        return self.flow.graph.types[name].removeprefix("Sym(").removesuffix(")")

    def _place(self, launch: Launch, argument: Argument, node: str) -> int | None:
        if not self.flow.graph.items(node):
            return None
        written = [x.name for x in launch.tensors if x.role != "in"]
        path = self.flow.graph.nodes[node].call.partition("(")[0].split(".")
        results = _RESULT.findall(self._statement(launch))
        if argument.name in results:  # others may not be wanted, and have no handle
            written = results[-len(operator_named(path, in_place=True)._schema.returns) :]
        return written.index(argument.name) if argument.name in written else None

    def _return(self, node: str, results: Sequence[str], *, has_items: bool) -> str:
        return f"return [{', '.join(results)}]"


def _symbols(sizes: Iterable[str]) -> tuple[str, ...]:
    """The names in some sizes."""
    return tuple(y for x in sizes for y in _NAME.findall(x))


def _as_made(variable: str, layout: Layout | None, made: Layout | None) -> str:
    """A variable with the layout in which its memory was written; empty if that is not known."""
    if layout is None or made is None or made.is_part or layout.is_part:
        return ""
    if layout.lies_as(made):
        return variable
    return f"{variable}.as_strided({text_of(made.size)}, {text_of(made.stride)})"
