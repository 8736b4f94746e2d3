"""Kinds of memory faults, for each check of `rewriter sanitize`.

They change a mask, bound, offset, size, allocation or lifetime by one element or one line. Many
leave the outputs unchanged, which makes them hard to find.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from benchmarks.faults.kinds.base import Change, Kind
from benchmarks.faults.kinds.indexing import UninitialisedRead
from benchmarks.faults.kinds.memory import MissingLaunch, StaleReuse
from benchmarks.faults.source import Edit, Kernel, Source, Target
from benchmarks.sanitizers.extents import extent
from rewriter.locate.types import Argument, Launch

_STORE = re.compile(r"\.store\((?P<ptr>(?:in_)?out_ptr\d+) \+ static_cast<int64_t>\(([^()\n]*)\)")
_ASSIGN = re.compile(
    r"^ +(?P<ptr>(?:in_)?out_ptr\d+)\[static_cast<int64_t>\(([^()\n]*)\)\] = ", re.M
)
_LOAD = re.compile(r"\b(?P<ptr>in_ptr\d+)(?: \+ |\[)static_cast<int64_t>\(([^()\n]*)\)")
_TRITON_STORE = re.compile(r"tl\.store\((?P<ptr>(?:in_)?out_ptr\d+) \+ \(([^,\n]*)\)")
_TRITON_LOAD = re.compile(r"tl\.load\((?P<ptr>in_ptr\d+) \+ \(([^,\n]*)\)")
_POINTER = re.compile(r"\b((?:in_out|in|out)_ptr\d+)\b")


class PointerKind(Kind):
    """A kernel uses a wrong index with one of its pointers.

    The pointer has to be that of a whole buffer which the wrapper allocates: other memory has no
    guard bands, and next to a part of a buffer lies the rest of it.
    """

    cpp: tuple[re.Pattern[str], ...] = ()
    triton: tuple[re.Pattern[str], ...] = ()
    shift = ""

    def changes(self, target: Target) -> Iterator[Change]:
        kernel, launch = target.kernel, target.launch
        if kernel is None or launch.repeats or len(target.sharing) > 1:
            return
        arguments = _by_pointer(kernel, launch)
        for pattern in self.cpp if kernel.language == "cpp" else self.triton:
            for match in pattern.finditer(kernel.text):
                argument = arguments.get(match["ptr"])
                if argument is None or not _is_whole(target.source, argument):
                    continue
                if not re.search(r"[xyr]", match[2]):
                    continue  # a fixed index: its neighbour is another element of the buffer
                if kernel.language == "cpp" and self._stays_inside(kernel.text, match):
                    continue
                start = kernel.start + match.start(2)
                edit = Edit(start, start + len(match[2]), self._index(match[2]), kernel.file)
                what = f"{kernel.name}: {match['ptr']} ({argument.name}) {self.name}"
                yield Change(what, (edit,), target.sharing, (argument.name,))

    def _stays_inside(self, text: str, match: re.Match[str]) -> bool:
        """Whether the moved index stays between the first and the last element that the kernel
        uses. Inductor cuts a loop into whole vectors and a rest, and each part has only one of the
        two ends."""
        used = [
            extent(text, one)
            for pattern in self.cpp
            for one in pattern.finditer(text)
            if one["ptr"] == match["ptr"]
        ]
        known, here = [one for one in used if one], extent(text, match)
        if here is None:
            return False
        moved = int(self.shift.replace(" ", ""))
        least, most = min(one.start for one in known), max(one.stop for one in known)
        return least <= here.start + moved and here.stop + moved <= most

    def _index(self, text: str) -> str:
        return f"{text} {self.shift}"


def _by_pointer(kernel: Kernel, launch: Launch) -> dict[str, Argument]:
    """The tensor arguments of a launch by the kernel's names of its pointers.

    Empty if their numbers differ.
    """
    names = list(dict.fromkeys(_POINTER.findall(kernel.text)))
    order = [name for kind in ("in_out_ptr", "in_ptr", "out_ptr") for name in sorted(
        (x for x in names if x.rstrip("0123456789") == kind), key=lambda x: int(x[len(kind):])
    )]  # fmt: skip
    tensors = [one for one in launch.args if one.type == "tensor"]
    return dict(zip(order, tensors, strict=False)) if len(order) == len(tensors) else {}


def _is_whole(source: Source, argument: Argument) -> bool:
    return argument.name == argument.expr == argument.buffer and argument.name in source.layouts


class StoreBehind(PointerKind):
    name = "stores one element behind its buffer"
    cpp, triton, shift = (_STORE, _ASSIGN), (_TRITON_STORE,), "+ 1"


class StoreBefore(PointerKind):
    name = "stores one element before its buffer"
    cpp, triton, shift = (_STORE, _ASSIGN), (_TRITON_STORE,), "- 1"


class ReadBehind(PointerKind):
    name = "reads one element behind its buffer"
    cpp, triton, shift = (_LOAD,), (_TRITON_LOAD,), "+ 1"


class ReadBefore(PointerKind):
    name = "reads one element before its buffer"
    cpp, triton, shift = (_LOAD,), (_TRITON_LOAD,), "- 1"


class ReadFurther(PointerKind):
    name = "reads two elements behind its buffer"
    cpp, triton, shift = (_LOAD,), (_TRITON_LOAD,), "+ 2"


# In a C++ wrapper for a GPU: the function that launches a compiled kernel with its arguments.
_LAUNCHER = r"^static inline void call_%s\(.*?^\}\n"
_ADDRESS = re.compile(
    r"CUdeviceptr (var_\d+) = (reinterpret_cast<CUdeviceptr>\((\w+)\.data_ptr\(\)\));"
)
_LAUNCHED = re.compile(r"^( *)launchKernel\(.*?stream_\);\n", re.M)


def _launcher(target: Target) -> tuple[int, str, dict[str, Argument]] | None:
    """The function that launches a compiled kernel: its offset, its text, and the tensor arguments
    of the launch by the function's names. None if there is none, or several launches share it."""
    source, launch = target.source, target.launch
    if not source.is_cpp or launch.repeats or len(target.sharing) > 1:
        return None
    pattern = _LAUNCHER % re.escape(launch.kernel)
    if (match := re.search(pattern, source.text, re.M | re.S)) is None:
        return None
    names = [one[3] for one in _ADDRESS.finditer(match[0])]
    tensors = [one for one in launch.args if one.type == "tensor"]
    if len(names) != len(tensors):
        return None
    return match.start(), match[0], dict(zip(names, tensors, strict=True))


class AddressKind(Kind):
    """A compiled GPU kernel gets an address that is 16 bytes off for one of its pointers.

    It is 16 bytes because the kernel assumes that its pointers are multiples of 16.
    """

    pointers: tuple[str, ...] = ()
    shift = ""

    def changes(self, target: Target) -> Iterator[Change]:
        if (found := _launcher(target)) is None:
            return
        at, text, arguments = found
        for match in _ADDRESS.finditer(text):
            argument = arguments[match[3]]
            if not match[3].startswith(self.pointers) or not _is_whole(target.source, argument):
                continue
            edit = Edit(at + match.start(2), at + match.end(2), f"{match[2]} {self.shift}")
            what = f"{target.launch.kernel}: {match[3]} ({argument.name}) {self.name}"
            yield Change(what, (edit,), (target.launch.index,), (argument.name,))


class StoreAddressBehind(AddressKind):
    name = "stores 16 bytes behind its buffer"
    pointers, shift = ("out_ptr", "in_out_ptr"), "+ 16"


class StoreAddressBefore(AddressKind):
    name = "stores 16 bytes before its buffer"
    pointers, shift = ("out_ptr",), "- 16"


class ReadAddressBehind(AddressKind):
    name = "reads 16 bytes behind its buffer"
    pointers, shift = ("in_ptr",), "+ 16"


class ReadAddressBefore(AddressKind):
    name = "reads 16 bytes before its buffer"
    pointers, shift = ("in_ptr",), "- 16"


class WritesInputAddress(Kind):
    """The first bytes of a kernel's input are overwritten on its stream, after the kernel."""

    name = "the first bytes of what it is given to read are written"

    def changes(self, target: Target) -> Iterator[Change]:
        if (found := _launcher(target)) is None:
            return
        at, text, arguments = found
        launched = list(_LAUNCHED.finditer(text))
        written = {one.buffer for one in target.launch.args if one.role != "in"}
        for match in _ADDRESS.finditer(text):
            argument = arguments[match[3]]
            if argument.role != "in" or argument.buffer in written or len(launched) != 1:
                continue
            place = at + launched[0].end()
            line = f"{launched[0][1]}cuMemsetD32Async({match[1]}, 0x40490fdb, 1, stream_);\n"
            what = f"{target.launch.kernel}: {match[3]} ({argument.name}) is written"
            yield Change(
                what, (Edit(place, place, line),), (target.launch.index,), (argument.name,)
            )


class SmallerBuffer(Kind):
    """A buffer is allocated one row smaller than the kernel that writes it assumes."""

    name = "an allocation one row smaller"

    def changes(self, target: Target) -> Iterator[Change]:
        source, launch = target.source, target.launch
        for argument in launch.args:
            if argument.role != "out" or not _is_whole(source, argument):
                continue
            if argument.name in source.returned or _is_reused(source, argument.name):
                continue  # its shape matters elsewhere, too
            if (edits := _smaller(source, argument.name)) is not None:
                what = f"{argument.name} is allocated with one row less than it has"
                yield Change(what, edits, (launch.index,), (argument.name,))


def _is_reused(source: Source, name: str) -> bool:
    return re.search(rf"(?:= {name}; del {name}|= std::move\({name}\))", source.text) is not None


def _smaller(source: Source, name: str) -> tuple[Edit, ...] | None:
    if not source.is_cpp:
        match = re.search(rf"^ *{name} = empty_strided_\w+\(\((\d+),", source.text, re.M)
        if match is None or int(match[1]) < 2:
            return None
        return (Edit(match.start(1), match.end(1), str(int(match[1]) - 1)),)
    match = re.search(
        rf"^( *).*aoti_torch_empty_strided\((\d+), (\w+), \w+,[^;\n]*&{name}_handle\)",
        source.text,
        re.M,
    )
    sizes = match and re.search(rf"{match[3]}\[\] = \{{([^}}]*)\}}", source.text)
    if match is None or not sizes:
        return None
    first, *rest = [one.strip() for one in sizes[1].split(",")]
    if not first.rstrip("L").isdecimal() or int(first.rstrip("L")) < 2:
        return None
    own = f"smaller_{name}"
    row = ", ".join([f"{int(first.rstrip('L')) - 1}L", *rest])
    declared = Edit(
        match.start(), match.start(), f"{match[1]}static constexpr int64_t {own}[] = {{{row}}};\n"
    )
    return declared, Edit(match.start(3), match.end(3), own)


class NotStored(UninitialisedRead):
    """A result is not stored. The launches that read it count as culprits."""

    name = "a result is not stored"

    def changes(self, target: Target) -> Iterator[Change]:
        kernel, launch = target.kernel, target.launch
        if kernel is None or launch.repeats or len(target.sharing) > 1:
            return
        arguments = _by_pointer(kernel, launch)
        for edit, what in self.edits(kernel):
            text = kernel.text[edit.start - kernel.start : edit.end - kernel.start]
            pointers = _POINTER.findall(text)
            if len(pointers) == 1 and (argument := arguments.get(pointers[0])) is not None:
                yield from _unwritten(target, argument, edit, f"{kernel.name}: {what}")


class LastNotStored(Kind):
    """The last element of a result is not stored."""

    name = "the last element is not stored"
    _loop = re.compile(
        r"for\(int64_t (x\d+)=static_cast<int64_t>\(0L\); \1<static_cast<int64_t>\((\d+)L\); "
        r"\1\+=static_cast<int64_t>\((\d+)L\)\)"
    )
    _numel = re.compile(r"^ +xmask = \w+index < (xnumel)$", re.M)
    _triton_full = re.compile(r"^ +(xmask = tl\.full\(.*\))$", re.M)

    def changes(self, target: Target) -> Iterator[Change]:
        kernel, launch = target.kernel, target.launch
        if kernel is None or launch.repeats or len(target.sharing) > 1:
            return
        written = [one for one in launch.args if one.role != "in" and one.type == "tensor"]
        if len(written) != 1 or written[0].role != "out":
            return  # a buffer that is updated in place was written before
        if kernel.language == "cpp":
            match = self._loop.search(kernel.text)
            if match is None or int(match[2]) < 2:
                return
            by = int(match[3])
            left = int(match[2]) - (int(match[2]) % by or by)
            if left <= 0:
                return
            start = kernel.start + match.start(2)
            edit = Edit(start, start + len(match[2]), str(left), kernel.file)
        else:
            match = self._numel.search(kernel.text)
            if match is None:
                return
            start = kernel.start + match.start(1)
            edit = Edit(start, start + len(match[1]), "xnumel - 1", kernel.file)
        what = f"{kernel.name}: the loop ends before the last of {written[0].name}"
        yield from _unwritten(target, written[0], edit, what)


def _unwritten(target: Target, argument: Argument, edit: Edit, what: str) -> Iterator[Change]:
    """Yield the change if a later launch reads the unwritten buffer, or the wrapper returns it.

    Culprits are the readers; if the buffer is returned, also the launch itself.
    """
    source, launch = target.source, target.launch
    if argument.role != "out" or not _is_whole(source, argument):
        return
    readers = []
    for one in source.launches[launch.index + 1 :]:
        given = [x for x in one.args if x.buffer == argument.buffer]
        if any(x.role in ("in", "inout") for x in given):
            readers.append(one.index)  # also if it only updates the buffer in place
        if any(x.role == "out" for x in given):
            break
    else:
        if argument.name in source.returned:
            readers.append(launch.index)
    if readers:
        yield Change(what, (edit,), tuple(readers), (argument.name,))


class DanglingRead(Kind):
    """A launch reads the memory of a buffer by its address, after the buffer was freed."""

    name = "reads a buffer that is freed"

    def changes(self, target: Target) -> Iterator[Change]:
        source, launch = target.source, target.launch
        if launch.repeats or launch.insertion_point.obstacle:
            return
        indent = launch.insertion_point.indent.decode()
        start, end = source.statement(launch)
        text = source.text[start:end]
        for argument in launch.args:
            name = argument.name
            is_read = argument.role == "in" and _is_whole(source, argument)
            if not is_read or len(re.findall(rf"\b{name}\b", text)) != 1:
                continue
            release = rf"^ *(?:del {name}|{name}\.reset\(\);)\n"
            gone = re.compile(release, re.M).search(source.text, end)
            if gone is None or re.search(rf"\b{name}\b", source.text[end : gone.start()]):
                continue
            lines = _dangling_cpp(name) if source.is_cpp else _dangling(name)
            before = "".join(f"{indent}{line}\n" for line in lines)
            changed = re.sub(rf"\b{name}\b", f"{name}_gone", text)
            edits = (Edit(start, end, before + changed), Edit(gone.start(), gone.end(), ""))
            what = f"{name} is freed before #{launch.index} {launch.kernel} reads it"
            yield Change(what, edits, (launch.index,), (name,))


def _dangling(name: str) -> list[str]:
    # In one expression: the rewriter would take a line that allocates a tensor as an allocation.
    made = "torch._C._construct_storage_from_data_pointer(s.data_ptr(), x.device, s.nbytes())"
    return [
        f"{name}_gone = (lambda x, s: torch.tensor([], dtype=x.dtype, device=x.device).set_("
        f"{made}, x.storage_offset(), x.size(), x.stride()))({name}, {name}.untyped_storage())",
        f"del {name}",
    ]


def _dangling_cpp(name: str) -> list[str]:
    handle = f"{name}_gone_handle"
    return [
        f"int64_t* {name}_sizes; aoti_torch_get_sizes({name}, &{name}_sizes);",
        f"int64_t* {name}_strides; aoti_torch_get_strides({name}, &{name}_strides);",
        f"int64_t {name}_dim; aoti_torch_get_dim({name}, &{name}_dim);",
        f"int32_t {name}_dtype; aoti_torch_get_dtype({name}, &{name}_dtype);",
        f"int32_t {name}_type; aoti_torch_get_device_type({name}, &{name}_type);",
        f"int32_t {name}_index; aoti_torch_get_device_index({name}, &{name}_index);",
        # By address: the rewriter would take a statement with the data pointer as a view.
        f"void* {name}_address; aoti_torch_get_data_ptr({name}, &{name}_address);",
        f"AtenTensorHandle {handle};",
        f"aoti_torch_create_tensor_from_blob({name}_address, {name}_dim, {name}_sizes, "
        f"{name}_strides, 0, {name}_dtype, {name}_type, {name}_index, &{handle});",
        f"RAIIAtenTensorHandle {name}_gone({handle});",
        f"{name}.reset();",
    ]


class WritesInput(Kind):
    """A kernel changes an element of an input that it should only read."""

    name = "writes what it is given to read"

    def changes(self, target: Target) -> Iterator[Change]:
        kernel, launch = target.kernel, target.launch
        if kernel is None or launch.repeats or len(target.sharing) > 1:
            return
        for pointer, argument in _by_pointer(kernel, launch).items():
            if not pointer.startswith("in_ptr") or argument.role != "in":
                continue
            if (edit := _poke(kernel, pointer)) is not None:
                what = f"{kernel.name}: changes the first element of {pointer} ({argument.name})"
                yield Change(what, (edit,), target.sharing, (argument.name,))


def _poke(kernel: Kernel, pointer: str) -> Edit | None:
    """The edit that lets a kernel add one to the first element of an input, as its last line."""
    if kernel.language == "cpp":
        declared = re.search(rf"const (\w+)\* {pointer}\b", kernel.text)
        end = kernel.text.rfind("\n}\n")
        if declared is None or end < 0 or declared[1] in ("bool", "uint8_t"):
            return None
        line = (
            f"\n    const_cast<{declared[1]}*>({pointer})[0] = "
            f"static_cast<{declared[1]}>({pointer}[0] + 1);"
        )
        at = kernel.start + end
        return Edit(at, at, line, kernel.file)
    end = kernel.text.rfind("\n''', device_str")
    if end < 0:
        return None
    at = kernel.start + end
    first = f"{pointer} + xindex, tl.load({pointer} + xindex, xindex < 1) + 1, xindex < 1"
    line = f"\n    tl.store({first})"
    return Edit(at, at, line, kernel.file) if "xindex" in kernel.text else None


class Overwritten(StaleReuse):
    """A buffer takes over the memory of another one that is read later, and overwrites it."""

    name = "memory is taken over too early"


class Unlaunched(MissingLaunch):
    """A launch is removed, so readers of its result read uninitialised memory."""

    name = "a launch is missing"

    def changes(self, target: Target) -> Iterator[Change]:
        for change in super().changes(target):
            if change.culprits:
                yield change


# By the check of `rewriter sanitize` that is to find them.
KINDS: dict[str, tuple[Kind, ...]] = {
    "bounds, stores": (
        StoreBehind(), StoreBefore(), SmallerBuffer(), StoreAddressBehind(), StoreAddressBefore(),
    ),
    "bounds, reads": (
        ReadBehind(), ReadBefore(), ReadFurther(), ReadAddressBehind(), ReadAddressBefore(),
    ),
    "poison": (NotStored(), LastNotStored(), Unlaunched()),
    "stale": (DanglingRead(), Overwritten()),
    "corrupt": (WritesInput(), WritesInputAddress()),
}  # fmt: skip
