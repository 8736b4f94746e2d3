"""Faults in what a call leaves: inputs that it updates, inputs that it must not change, regions of
results that are never written, and the types of results."""

from __future__ import annotations

import re
from collections.abc import Iterator

from benchmarks.faults.kinds.base import Change, Kind
from benchmarks.faults.source import Edit, Kernel, Source, Target
from rewriter.locate.types import Argument

_CPP_PARAMETER = re.compile(r"(?:const )?([\w:]+)\* (\w+)[,)]")
_TRITON_PARAMETER = re.compile(r"\b(\w*_ptr\d+)\b")
# Types of the same size: the bytes of a result stay, and mean something else.
_SAME_SIZE = {
    "float32": "int32", "float16": "bfloat16", "bfloat16": "float16", "float64": "int64",
    "int64": "float64", "int32": "float32",
}  # fmt: skip


def _parameters(target: Target, kernel: Kernel) -> Iterator[tuple[str, str, Argument]]:
    """The pointers of a kernel: name, C++ type (not in Triton), and argument of the launch."""
    file = target.source.texts[kernel.file]
    if kernel.language == "cpp":
        head = kernel.text[: kernel.text.find("\n{")]
        names = [(one[2], one[1]) for one in _CPP_PARAMETER.finditer(head)]
    else:
        head = file[file.rfind("def triton_", 0, kernel.start) : kernel.start]
        names = [(one[1], "") for one in _TRITON_PARAMETER.finditer(head)]
    pointers = [x for x in target.launch.args if x.type == "tensor"]
    if len(names) == len(pointers):
        for (name, kind), argument in zip(names, pointers, strict=True):
            yield name, kind, argument


def _is_input(name: str) -> bool:
    return bool(re.match(r"arg|primals", name))


class LostUpdate(Kind):
    """An input of the call that a kernel should update keeps its old value."""

    name = "lost update"

    def changes(self, target: Target) -> Iterator[Change]:
        kernel = target.kernel
        if kernel is None:
            return
        for name, _, argument in _parameters(target, kernel):
            if not name.startswith("out_ptr") or not _is_input(argument.buffer):
                continue
            if kernel.language == "cpp":
                stores = rf"^ +(\w+\.store\({name} .*\);|{name}\[.*\] = .*;)$"
            else:
                stores = rf"^ +(tl\.store\({name} .*\))$"
            nothing = ";" if kernel.language == "cpp" else "pass"
            edits = tuple(
                Edit(kernel.start + x.start(1), kernel.start + x.end(1), nothing, kernel.file)
                for x in re.finditer(stores, kernel.text, re.M)
            )
            if edits:
                what = f"{kernel.name}: what belongs into {argument.buffer} is not stored"
                names = (argument.buffer,)
                yield Change(what, edits, target.sharing, names, outputs=names)


class UndeclaredMutation(Kind):
    """A kernel changes an element of an argument that it only reads."""

    name = "undeclared mutation"

    def changes(self, target: Target) -> Iterator[Change]:
        kernel = target.kernel
        if kernel is None:
            return
        pointers = list(_parameters(target, kernel))
        written = {x.buffer for name, _, x in pointers if not name.startswith("in_ptr")}
        for name, kind, argument in pointers:
            if argument.buffer not in written and self._is_seen(target, argument):
                for edit in self._edits(kernel, name, kind):
                    what = f"{kernel.name}: {argument.buffer}, which it reads, is changed"
                    names = (argument.buffer,)
                    outputs = names if _is_input(argument.buffer) else ()
                    yield Change(what, (edit,), target.sharing, names, outputs=outputs)

    def _is_seen(self, target: Target, argument: Argument) -> bool:
        """Whether the caller or a later launch sees the changed value."""
        later = target.source.launches[target.launch.index + 1 :]
        read = {x.buffer for one in later for x in one.args if "in" in x.role}
        return _is_input(argument.buffer) or argument.buffer in read

    def _edits(self, kernel: Kernel, name: str, kind: str) -> Iterator[Edit]:
        if kernel.language == "cpp":
            if kind in ("float", "double", "at::BFloat16", "at::Half"):
                end = kernel.start + kernel.text.rfind("}\n")
                text = f"    const_cast<{kind}*>({name})[0] += static_cast<{kind}>(1);\n"
                yield Edit(end, end, text, kernel.file)
            return
        for match in re.finditer(rf"^( +)(tmp\d+) = tl\.load\({name} \+ \(x\d+\), xmask.*\n",
                                 kernel.text, re.M):  # fmt: skip
            end = kernel.start + match.end()
            place = re.search(r"\((x\d+)\)", match[0])
            assert place is not None
            text = f"{match[1]}tl.store({name} + ({place[1]}), {match[2]} + 1, xmask)\n"
            yield Edit(end, end, text, kernel.file)


class UnwrittenRegion(Kind):
    """A launch writes memory of its own, not the part of a result that it should fill."""

    name = "unwritten region"

    def changes(self, target: Target) -> Iterator[Change]:
        source, launch = target.source, target.launch
        for argument in launch.args:
            edit = _own_memory(source, argument.name) if argument.role == "out" else None
            if edit is not None:
                what = f"{argument.name} has memory of its own, not a part of {argument.buffer}"
                readers = [
                    one.index
                    for one in source.launches[launch.index + 1 :]
                    for x in one.args
                    if x.buffer == argument.buffer and "in" in x.role
                ]
                outputs = tuple({argument.buffer} & source.returned)
                names = (argument.name, argument.buffer)
                yield Change(what, (edit,), (launch.index, *readers), names, outputs=outputs)


def _own_memory(source: Source, name: str) -> Edit | None:
    """The edit that gives a view of a larger buffer memory of its own; `None` if it is no view."""
    if source.is_cpp:
        view = re.search(
            rf"auto {name} = wrap_\w+\(reinterpret_tensor_wrapper\((buf\d+), (\d+, \w+, \w+), \d+L?"
            r"\)\);(?=  // alias)",
            source.text,
        )
        made = view and re.search(
            rf"aoti_torch_empty_strided\(\d+, \w+, \w+, (.*), &{view[1]}_handle\)", source.text
        )
        if view is None or not made:
            return None
        text = (
            f"AtenTensorHandle {name}_handle; aoti_torch_empty_strided({view[2]}, {made[1]}, "
            f"&{name}_handle); RAIIAtenTensorHandle {name}({name}_handle);"
        )
        return Edit(view.start(), view.end(), text)
    view = re.search(
        rf"\b{name} = reinterpret_tensor\((buf\d+), (\(.*?\), \(.*?\)), \d+\)(?=  # alias)",
        source.text,
    )
    made = view and re.search(
        rf"\b{view[1]} = (empty_strided_\w+)\(\(.*\), (torch\.\w+)\)$", source.text, re.M
    )
    if view is None or not made:
        return None
    return Edit(view.start(), view.end(), f"{name} = {made[1]}({view[2]}, {made[2]})")


class WrongType(Kind):
    """The memory of a result is allocated as another type of the same size. C++ wrappers are left
    out: they declare the types that they use."""

    name = "wrong type"

    def changes(self, target: Target) -> Iterator[Change]:
        source, launch = target.source, target.launch
        for argument in () if source.is_cpp else launch.args:
            name = argument.name
            if argument.role != "out" or name not in source.returned:
                continue
            pattern = rf"^ *{name} = empty_strided_\w+\(.*torch\.(\w+)\)$"
            made = re.search(pattern, source.text, re.M)
            other = _SAME_SIZE.get(made[1]) if made is not None else None
            if made is None or other is None:
                continue
            what = f"{name} is {other}, not {made[1]}"
            edit = Edit(made.start(1), made.end(1), other)
            yield Change(what, (edit,), (), (name,), outputs=(name,))  # no launch is at fault
