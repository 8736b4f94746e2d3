"""Finds the launches of a C++ wrapper, and their arguments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import tree_sitter

from rewriter.core.errors import RewriterError
from rewriter.core.source import Source
from rewriter.core.types import Role
from rewriter.locate import memory, provenance
from rewriter.locate.arguments import DeclaredArgument, distinct_names, unify_roles
from rewriter.locate.cpp import embedded
from rewriter.locate.cpp import grammar as grammars
from rewriter.locate.cpp.expression import CppValue
from rewriter.locate.cpp.inputs import input_specs
from rewriter.locate.cpp.launch_finder import CppLaunch, CppLaunchFinder
from rewriter.locate.cpp.outline import Body, CppOutline, Operators, without_templates
from rewriter.locate.cpp.roles import RESOLVERS
from rewriter.locate.flow import Content, Flow
from rewriter.locate.inputs import NO_HARNESS, Harness, without_seeds
from rewriter.locate.types import (
    Argument,
    EntryPoint,
    Hazard,
    InputSpec,
    Launch,
    Located,
    MemoryEvent,
    OtherUse,
    StreamAction,
    Unrecognised,
)
from rewriter.locate.vocabulary import kind_of

# Names that Inductor gives to temporaries, which only pass a buffer on.
_TEMPORARY = re.compile(r"(?:tmp|var)_\w+$|\w+_as_strided$|\w+_handle$")
# A tensor that stays undefined: to the operator it is an absent argument.
_UNDEFINED = re.compile(r"var_\d+$")
_OUTPUT = re.compile(
    r"\boutput_handles\[(?P<position>\d{1,5})\] = "
    r"(?:(?P<name>\w+)\.release\(\)|output_handles\[(?P<same>\d{1,5})\];)"
    r"|\baoti_torch_clone\((?P<weight>\w+), &output_handles\[(?P<place>\d{1,5})\]\)"
)
_CALL = re.compile(rb"(?:^|(?<=\r))(?:def call\(|call\s*=)", re.MULTILINE)
_WORD = re.compile(r"\w+")


def locate(source: Source, operators: Operators = ()) -> Located:
    """Locate every launch. Reads text only; nothing is compiled or run.

    `operators` are the nodes of the `.wrapper.json` beside the wrapper. Raises `RewriterError` if
    the C++ in the source does not end, or an entry does not parse.
    """
    text = embedded.extract(source)
    harness = NO_HARNESS
    if text.module is not None:
        from rewriter.locate.python.harness import read_harness

        _require_call(source)
        harness = read_harness(text.module)
    shapes = grammars.load()
    outline = CppOutline(source, text, shapes, operators)
    launches: list[Launch] = []
    entries: list[EntryPoint] = []
    unrecognised: list[Unrecognised] = []
    constants: dict[str, None] = {}
    stream_actions: list[StreamAction] = []
    events: list[MemoryEvent] = []
    other_uses: list[OtherUse] = []
    for body in outline.bodies:
        finder = CppLaunchFinder(body, outline, shapes)
        builder = _Builder(finder)
        before = len(launches)
        flow = None
        for candidate, flow in finder.launches():
            launches.append(builder.launch(len(launches), candidate, flow))
        unrecognised += finder.unrecognised
        stream_actions += finder.stream_actions
        other_uses += finder.other_uses.found
        constants |= dict.fromkeys(finder.names.constants)
        if len(launches) > before and flow:
            if entry := _entry(outline, finder, body, flow, launches[before:]):
                specs = _input_specs(outline, body, entry.inputs, harness)
                entries.append(replace(entry, input_specs=specs))
                events += _held(finder.memory, launches[before:])
            else:
                launches[before:] = map(_unreachable, launches[before:])
    return Located(
        launches=tuple(launches),
        unrecognised=tuple(sorted(unrecognised, key=lambda call: call.line)),
        entries=tuple(without_seeds(entry, launches) for entry in entries),
        header=outline.header,
        loader_globals=tuple(constants),
        stream_actions=tuple(stream_actions),
        other_uses=tuple(other_uses),
        memory=memory.numbered(events, launches),
    )


def _held(
    events: Iterable[tuple[MemoryEvent, str]], launches: Iterable[Launch]
) -> Iterator[MemoryEvent]:
    """Yield the events of a body, marked as held if an earlier launch may have kept the memory."""
    kept: dict[str, int] = {}  # the line of the first launch with a buffer
    for launch in launches:
        for argument in launch.args if kind_of(launch.kind).keeps else ():
            if argument.type == "tensor":
                kept.setdefault(argument.buffer, launch.line)
    for event, root in events:
        is_kept = root in kept and kept[root] < event.line
        is_held = event.action != "allocate" and (event.is_held or is_kept)
        yield replace(event, is_held=is_held)


def count(source: Source) -> int:
    """Only the number of launches. Raises as `locate` does."""
    grammar = grammars.load()
    outline = CppOutline(source, embedded.extract(source), grammar)
    starts = set()
    for body in outline.bodies:
        for _, captures in tree_sitter.QueryCursor(grammar.launches).matches(body.node):
            callee = without_templates("".join(outline.read(captures["callee"][0]).split()))
            if grammar.effect(callee) is None:
                starts.add(captures["launch"][0].start_byte)
    return len(starts)


@dataclass(frozen=True)
class _Builder:
    """Turns candidates into launches: kernel, kind, arguments, roles."""

    finder: CppLaunchFinder

    def launch(self, index: int, candidate: CppLaunch, flow: Flow) -> Launch:
        called = RESOLVERS[candidate.shape.roles](candidate, self.finder)
        arguments: list[Argument] = []
        used: list[tuple[str, str]] = []
        for node, declared in called.arguments:
            for value in self._members(node):
                argument = self._argument(value, declared, candidate, flow)
                if argument is None:
                    continue
                arguments.append(argument)
                if argument.type == "tensor":
                    used.append((value.name, value.expr if value.kind == "view" else ""))
        arguments += [Argument(text, text, "", "in", "scalar") for text in called.literals]
        made = (*candidate.outputs.values(), *candidate.assigned)
        arguments += [Argument(name, name, name, "out", "tensor") for name in made]
        if called.kernel.startswith("torch.ops."):
            # The launch may write the members of a list, which nothing declares.
            arguments = [replace(argument, hazard="") for argument in arguments]
        settled = unify_roles(arguments, flow)
        for name, view in used:
            # Every argument has a value now: it had one before, or the launch wrote it.
            flow.write(name, view)
        origins, nodes = provenance.read(candidate.comments)
        return Launch(
            index=index,
            scope=candidate.scope,
            kernel=called.kernel,
            kind=candidate.shape.kind_of(called.kernel, called.source),
            line=self.finder.outline.line(candidate.call.node),
            args=distinct_names(settled),
            origins=origins,
            source_nodes=nodes,
            insertion_point=candidate.insertion_point,
            repeats=candidate.repeats,
            conditional=candidate.conditional,
            stream=candidate.stream,
        )

    def _members(
        self, node: tree_sitter.Node, within: frozenset[str] = frozenset()
    ) -> Iterator[CppValue]:
        """Yield what one argument passes: itself, or the tensors of a list.

        `within` are the lists around it.
        """
        finder = self.finder
        for member in finder.reader.elements(node):
            value = finder.reader.read(member)
            if value.name in finder.names.lists and value.name not in within:
                for inner in finder.names.lists[value.name]:
                    yield from self._members(inner, within | {value.name})
            elif value.name in finder.names.pointers:
                pointed = finder.names.pointers[value.name]
                yield replace(pointed, const=value.const)
            else:
                yield value

    def _argument(
        self, value: CppValue, declared: DeclaredArgument, candidate: CppLaunch, flow: Flow
    ) -> Argument | None:
        """One argument; `None` for a handle that the launch fills, which becomes a result."""
        name = value.name
        if declared.type == "other":
            return Argument(value.expr, value.expr, "", "in", "other")
        if value.kind == "number":
            return Argument(value.expr, value.expr, "", "in", "scalar")
        known = flow.variables.get(name)
        if value.kind == "other" or known is None or known.type == "other":
            freed: Hazard = "freed" if name in flow.gone else ""
            return Argument(value.expr, value.expr, "", "in", "other", hazard=freed)
        if value.address and (
            name in candidate.outputs or (name.endswith("_handle") and known.root == name)
        ):
            return None
        if _UNDEFINED.match(name) and known.content is Content.NOTHING and known.root == name:
            return Argument(value.expr, value.expr, "", "in", "other")
        if value.kind == "arithmetic" or known.type == "scalar" or declared.type == "scalar":
            if name in candidate.local:
                return Argument(name, value.expr, "", "in", "other")
            return Argument(name, value.expr, name, "in", "scalar")
        view = value.expr if value.kind == "view" else ""
        role: Role = "in" if value.const else flow.role(name, declared.role, view)
        if value.const and known.content is Content.NOTHING:
            role = "out"
        hazard = flow.hazard(name, "in" if value.const else declared.role)
        shown = self._lasting(name, candidate)
        if name in candidate.local:
            # Outside of the block only the variable that it was made from exists.
            if shown in candidate.local:
                return Argument(name, name, "", "in", "other")
            expr = self.finder.names.made.get(name, shown)
            if not candidate.local.isdisjoint(_WORD.findall(expr)):
                expr = shown
            return Argument(shown, expr, known.root, role, "tensor", hazard=hazard)
        later = None
        if value.taken:
            later = self.finder.names.made.get(name, "")
        return Argument(shown, value.expr, known.root, role, "tensor", later, hazard)

    def _lasting(self, name: str, candidate: CppLaunch) -> str:
        """The variable behind a temporary name, or behind one that is local to its block."""
        bases = self.finder.names.bases
        seen = set()
        while name in bases and (name in candidate.local or _TEMPORARY.match(name)):
            if name in seen:
                break  # defined by itself, which does not compile
            seen.add(name)
            name = bases[name]
        return name


def _entry(
    outline: CppOutline, finder: CppLaunchFinder, body: Body, flow: Flow, own: Sequence[Launch]
) -> EntryPoint | None:
    """The entry with this body and its `own` launches; `flow` are its variables at its end."""
    source = outline.source
    statements = [node for node in body.node.named_children if node.type != "comment"]
    if not statements:
        return None
    first = outline.position(statements[0].start_byte)
    start = source.line_start(source.line_of(first))
    indent = source.data[start:first]
    if indent.strip() or outline.is_continued(start):
        return None
    inputs_at = _line_at(outline, finder.inputs_end) if finder.names.inputs else None
    weights, weights_at = tuple(finder.names.weights), _line_at(outline, finder.weights_end)
    inputs, returned = tuple(finder.names.inputs), _outputs(outline, finder, body, flow, own)
    return EntryPoint(
        body.name,
        start,
        indent,
        inputs,
        inputs_at,
        outputs=tuple(buffer for buffer, _, _ in returned),
        returned=tuple(name for _, name, _ in returned),
        hazards=tuple(hazard for *_, hazard in returned),
        weights=weights,
        weights_at=weights_at,
    )


def _line_at(outline: CppOutline, place: int | None) -> int | None:
    """The offset of a statement's line, if another line can go before it."""
    if place is None:
        return None
    line = outline.source.line_start(outline.source.line_of(outline.position(place)))
    return None if outline.is_continued(line) else line


def _unreachable(launch: Launch) -> Launch:
    """A launch that cannot have probes: no line can be put at the start of its entry, where their
    handle is declared."""
    assert launch.insertion_point is not None
    obstacle = (
        launch.insertion_point.obstacle or "no line can be put at the beginning of its function"
    )
    return replace(launch, insertion_point=launch.insertion_point._replace(obstacle=obstacle))


def _input_specs(
    outline: CppOutline, body: Body, names: tuple[str, ...], harness: Harness
) -> tuple[InputSpec, ...]:
    checks = outline.data.find(b"check_input_0(")
    above = outline.data[checks : body.node.start_byte] if checks >= 0 else b""
    text = outline.data[body.node.start_byte : body.node.end_byte]
    return input_specs(
        above.decode("utf-8", "replace"), text.decode("utf-8", "replace"), names, harness.examples
    )


def _outputs(
    outline: CppOutline, finder: CppLaunchFinder, body: Body, flow: Flow, own: Sequence[Launch]
) -> tuple[tuple[str, str, Hazard], ...]:
    """The buffers in `output_handles[0] = buf3.release();`, their names there, and what is wrong
    with their memory.

    A buffer that is returned twice has `output_handles[1] = output_handles[0];`. Of a weight a copy
    is returned, `aoti_torch_clone(ema, &output_handles[2]);`: it counts if a launch writes it.
    """
    written = {arg.buffer for launch in own for arg in launch.tensors if arg.role != "in"}
    nothing: tuple[str, str, Hazard] = "", "", ""
    buffers: dict[int, tuple[str, str, Hazard]] = {}
    for match in _OUTPUT.finditer(outline.read(body.node)):
        buffer = buffers.get(int(match["same"] or -1), nothing)
        if weight := match["weight"]:
            root = flow.get(weight).root
            buffer = (root, weight, "") if root in written else nothing
        elif name := match["name"]:
            variable = flow.gone.get(name) or flow.get(name)  # `release` itself ended it
            is_bare = variable.content is Content.NOTHING and name not in flow.empty
            # A subgraph has its own name for what it leaves.
            root = finder.names.bases.get(name, name) if variable.root == name else variable.root
            buffer = flow.get(root).root, name, "unwritten" if is_bare else ""
        buffers[int(match["position"] or match["place"])] = buffer
    return tuple(buffers.get(position, nothing) for position in range(max(buffers, default=-1) + 1))


def _require_call(source: Source) -> None:
    """Refuse a Python file that was cut off before its end."""
    if not _CALL.search(source.data):
        raise RewriterError(
            "truncated",
            f"{source.name}: the file ends too early: nothing is bound to `call`",
            hint="Expected a complete output_code.py; copy it again.",
        )
