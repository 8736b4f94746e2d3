"""Tracks the names of a C++ wrapper: what declares, moves, views and frees them.

`grammars/cpp/data_flow.scm` declares the statements, `known_calls.toml` what calls do;
`rewriter/locate/flow.py` has the buffers behind the names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

import tree_sitter

from rewriter.locate.cpp.expression import CppValue, ValueReader
from rewriter.locate.cpp.grammar import CppShape
from rewriter.locate.cpp.memory_changes import MemoryChanges
from rewriter.locate.cpp.outline import CppOutline
from rewriter.locate.flow import Flow

Captures = dict[str, list[tree_sitter.Node]]

_SCALARS = re.compile(
    r"(const )?(u?int\d*(_t)?|long|float|double|bool|size_t|half|bfloat16|c10::Sym\w+)$"
)
# An input of an entry: a handle; in arrayref mode a member of a tuple, or of an array of structs.
_INPUT = re.compile(
    r"std::move\(inputs\[|std::get<\d+>\(inputs\)|torch::aot_inductor::c_to_arrayref_tensor\b"
)
# Handles that a buffer will take over: of an allocation, or of a part of a pool.
_MADE = re.compile(r"\w+_handle(_restrided)?$|tmp_tensor_handle_\d+$")
_TEMPORARY = re.compile(r"tmp_\w+$")


@dataclass(frozen=True)
class ClassifiedCall:
    """A call with its launch shape, or its effect on the data flow."""

    node: tree_sitter.Node
    callee: str
    arguments: tree_sitter.Node | None
    shape: CppShape | None
    effect: str | None
    captures: Captures


@dataclass(frozen=True)
class NameChange:
    """A change of a name by a statement: see `grammars/cpp/data_flow.scm`."""

    start: int
    effect: str
    captures: Captures


_BUFFER = re.compile(r"buf\d+_handle$")


class NameTracker:
    """The names of one body, apart from their data flow.

    `pointers` and `lists` say how a name was made: a pointer into a tensor's memory, a list of
    tensors. `made` has an expression that makes a taken handle again, `bases` the variable that a
    name was made from. `inputs` are those of the entry, `constants` what a JIT wrapper adds,
    `weights` what a package holds. `memory` has the changes of memory.
    """

    def __init__(self, outline: CppOutline, reader: ValueReader) -> None:
        self.pointers: dict[str, CppValue] = {}
        self.lists: dict[str, tuple[tree_sitter.Node, ...]] = {}
        self.made: dict[str, str] = {}
        self.bases: dict[str, str] = {}
        self.inputs: list[str] = []
        self.constants: list[str] = []
        self.weights: list[str] = []
        self.memory = MemoryChanges()
        self._outline = outline
        self._reader = reader

    def apply(
        self, calls: Iterable[ClassifiedCall], changes: Iterable[NameChange], flow: Flow
    ) -> None:
        """Apply known calls and changes of names, in file order."""
        steps: list[tuple[int, ClassifiedCall | NameChange]] = [
            (call.node.start_byte, call) for call in calls
        ]
        steps += [(change.start, change) for change in changes]
        for _, step in sorted(steps, key=lambda step: step[0]):
            if isinstance(step, ClassifiedCall):
                self._apply_call(step, flow)
            else:
                self._apply_change(step, flow)

    def of(self, change: NameChange) -> str:
        node = change.captures["name"][0]
        while node.type != "identifier" and node.named_children:
            declared = node.child_by_field_name("declarator")
            node = declared if declared is not None else node.named_children[0]
        return self._outline.read(node)

    def _apply_call(self, call: ClassifiedCall, flow: Flow) -> None:
        """Apply a known call to the variables whose addresses it gets, or to its first argument."""
        if call.arguments is None:
            return
        if call.effect == "write" and call.arguments.named_children:
            flow.write(self._reader.read(call.arguments.named_children[0]).name)
        arguments = call.arguments.named_children
        for argument in arguments:
            if argument.type != "pointer_expression" or call.effect in ("cast", "plumbing"):
                continue
            name = self._reader.read(argument).name
            if call.effect == "allocation":
                size = arguments[1] if len(arguments) > 1 else None
                empty = size is not None and self._outline.read(size) in self._outline.empty_sizes
                flow.allocate(name, empty=empty)
                self.memory.made_by(call.callee, name)
            elif call.effect == "view":
                base = self._reader.read(arguments[0])
                # The handle of `aoti_torch_new_tensor_handle(buf3, &tmp_var_0)` is for one call.
                whole = len(arguments) == 2 and _BUFFER.match(name) is not None
                flow.alias(name, base.name, reuse=False, whole=whole)
                self.memory.shared(name, flow)
                self.made.pop(name, None)
                self.bases[name] = base.name
            elif call.effect == "copy":
                flow.compute(name, "tensor")
            elif call.effect == "scalar":
                flow.compute(name, "scalar")
        if call.effect == "scalar" and any("inputs[" in self._outline.read(a) for a in arguments):
            # JIT wrappers get numbers as tensors: `aoti_torch_item_int64(inputs[1], &arg1_1)`.
            self.inputs += [
                self._reader.read(argument).name
                for argument in arguments
                if argument.type == "pointer_expression"
            ]

    def _apply_change(self, change: NameChange, flow: Flow) -> None:
        name = self.of(change)
        if change.effect == "free":
            if "reuse" in self._line_after(change.captures["name"][0]):
                # `auto buf10 = …buf3…; buf3.reset();  // reuse`, on one line or on two.
                for other in (other for other, base in self.bases.items() if base == name):
                    flow.outdate(other)
            elif self._method(change) == "reset":
                self.memory.released(name, flow)
            self.memory.gone(name, flow)
            flow.forget(name)
        elif change.effect == "declare":
            self.memory.declared(name)
            if _SCALARS.match(self._type(change)):
                flow.compute(name, "scalar")
            elif "Handle" in self._type(change):
                flow.allocate(name)
            else:
                flow.compute(name, "other")
        else:
            self._bind(name, change, flow)

    def _method(self, change: NameChange) -> str:
        """The method by which a name gives up its value: `reset` or `release`."""
        methods = change.captures.get("method")
        return self._outline.read(methods[0]) if methods else ""

    def _type(self, change: NameChange) -> str:
        captured = change.captures.get("type")
        return self._outline.read(captured[0]) if captured else ""

    def _bind(self, name: str, change: NameChange, flow: Flow) -> None:
        value = change.captures["value"][0]
        text = "".join(self._outline.read(value).split())
        declared = self._type(change)
        if _INPUT.match(text):
            flow.compute(name, "tensor")
            (self.constants if self._is_optional(change) else self.inputs).append(name)
            self.memory.given(name)
            return
        if text.startswith("constants_->at("):
            flow.compute(name, "tensor")
            self.weights.append(name)
            self.memory.given(name)
            return
        if declared.startswith("ArrayRefTensor"):
            flow.allocate(name)
            return
        if value.type in ("initializer_list", "compound_literal_expression"):
            self._bind_list(name, value, flow)
            return
        held = self._reader.read(value)
        node = change.captures["name"][0]
        if "CUdeviceptr" in declared or node.type == "pointer_declarator":
            self.pointers[name] = held
            return
        known = flow.variables.get(held.name)
        if held.kind == "view":
            line = self._line_after(value)
            if "reuse" in line:
                self.memory.reused(name, held.name, flow)
            flow.alias(name, held.name, reuse="reuse" in line, fresh="// alias" in line)
            self.memory.shared(name, flow)
            self.made[name] = held.expr
            self.bases[name] = held.name
        elif _SCALARS.match(declared) or held.kind in ("number", "arithmetic"):
            flow.compute(name, "scalar")
            if known is not None and known.type == "tensor" and held.kind == "variable":
                flow.compute(name, "tensor")
        elif held.kind == "variable" and known is not None:
            self._rename(name, held.name, "reuse" in self._line_after(value), flow)
            if node.parent is not None and node.parent.type == "assignment_expression":
                # `buf1 = std::move(true_graph_0_buf1)`: the inner name no longer exists.
                flow.variables[name] = replace(flow.variables[name], root=name, owner=name)
            if held.name in self.made:
                self.made[name] = self.made[held.name]
        elif held.kind in ("variable", "other") and "AtenTensorHandle" in declared:
            flow.compute(name, "tensor")
        else:
            flow.compute(name, "other")

    def _is_optional(self, change: NameChange) -> bool:
        """Whether the variable is declared as maybe unused, as the frozen weights of a JIT wrapper
        are."""
        declaration = change.captures["type"][0].parent if "type" in change.captures else None
        return declaration is not None and self._outline.read(declaration).startswith("[[maybe_")

    def _rename(self, name: str, old: str, reuse: bool, flow: Flow) -> None:
        """`name` takes over the value of `old`: a handle, or a moved buffer."""
        root = flow.get(old).root
        if reuse:
            self.memory.reused(name, self.lasting(old), flow, through=old)
        flow.alias(name, old, reuse=reuse)
        if root in flow.empty:
            flow.empty.add(name)
        self.memory.moved(name, old, flow)
        self.bases.pop(name, None)
        if _MADE.match(root):
            flow.variables[name] = replace(flow.variables[name], root=name, owner=name)
        else:
            self.bases[name] = old

    def lasting(self, name: str) -> str:
        """The variable behind a name that only passes it on."""
        seen = set()
        while name in self.bases and _TEMPORARY.match(name) and name not in seen:
            seen.add(name)
            name = self.bases[name]
        return name

    def _bind_list(self, name: str, value: tree_sitter.Node, flow: Flow) -> None:
        members = value
        if value.type == "compound_literal_expression":
            members = value.child_by_field_name("value") or value
        self.lists[name] = tuple(members.named_children)
        flow.compute(name, "other")

    def _line_after(self, node: tree_sitter.Node) -> str:
        """The rest of the line after a node, such as `// reuse` or `// alias`."""
        data = self._outline.data
        end = data.find(b"\n", node.end_byte)
        return data[node.end_byte : end if end >= 0 else len(data)].decode("utf-8", "replace")
