"""Runs an AOTInductor library without its source; an interposer reports its launches.

The interposer (`rewriter/execution/interposer.cpp`) was loaded before torch. A first run discovers
the launches and which tensors each one changes. The parent process makes a table of that, and a
second run uses the table to pass the launches to the probes.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from ..plain import say
from .measured import digest
from .wrapper import ProblemError, describe, load_inputs, main, prepare

_REPORT = ctypes.CFUNCTYPE(
    None,
    ctypes.c_int32,
    ctypes.c_int32,
    ctypes.c_int64,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_int64),
    ctypes.POINTER(ctypes.c_int64),
)
# It is loaded already, but its symbols are not global.
_TORCH = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
_Place = tuple[int, int]  # an address, and its generation: how often memory was allocated there


def run(spec: dict[str, Any]) -> dict[str, Any]:
    """Run the library once, under probes if `spec` has a `table`. Returns the report."""
    prepare(spec)
    inputs = torch.utils._pytree.tree_leaves(load_inputs(spec["args"], keywords=True))
    interposer = ctypes.CDLL(spec["interposer"])
    make: Any = getattr(torch._C._aoti, f"AOTIModelContainerRunner{spec['device'].capitalize()}")
    more = () if spec["device"] in ("cpu", "mps") else (spec["device"],)
    try:
        runner = make(spec["library"], 1, *more)
    except RuntimeError as error:
        message = f"{error}".partition("\nException raised from")[0].strip()
        raise ProblemError("unloadable-library", f"it does not load: {message}") from error
    base = _base(spec["library"])
    diverted = [_divert(interposer, index, base, one) for index, one in enumerate(spec["kernels"])]
    constants = {
        tensor.data_ptr(): name for name, tensor in runner.extract_constants_map(False).items()
    }
    listener: _Listener
    listener = _Probes(spec) if spec["table"] else _Discovery(spec, inputs, constants)
    report = _REPORT(listener.report)
    interposer.inductor_rewriter_report(report)
    torch.manual_seed(spec["seed"])
    listener.begin(inputs)
    try:
        outputs = runner.run(inputs)
    except RuntimeError as error:
        if (wanted := spec["inputs"]) is not None and len(inputs) != wanted:
            message = f"the model takes {wanted} inputs, the file holds {len(inputs)}"
            raise ProblemError("bad-args-file", f"{spec['args']}: {message}") from error
        raise
    finally:
        interposer.inductor_rewriter_report(_REPORT(0))
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
    return {
        "outputs": [describe(output) for output in outputs],
        "random_globals": [],
        "hidden": [
            one["name"]
            for one, is_seen in zip(spec["kernels"], diverted, strict=True)
            if not is_seen
        ],
        **listener.result(outputs),
    }


def _base(library: str) -> int:
    """The address at which a library is loaded."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        parts = line.split(maxsplit=5)
        if len(parts) == 6 and parts[5] == library and int(parts[2], 16) == 0:
            return int(parts[0].partition("-")[0], 16)
    raise ProblemError("unloadable-library", "it is not in memory after it was loaded")


def _divert(interposer: ctypes.CDLL, index: int, base: int, kernel: dict[str, Any]) -> bool:
    thunk = ctypes.cast(getattr(interposer, f"inductor_rewriter_thunk_{index}"), ctypes.c_void_p)
    place = ctypes.c_void_p(base + kernel["offset"])
    return bool(interposer.inductor_rewriter_kernel(index, kernel["number"], place, thunk))


class _Listener:
    """Receives each launch of a library, with its tensors. Subclasses act on it."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._new_handle = ctypes.CDLL(str(_TORCH)).aoti_torch_new_tensor_handle

    def begin(self, inputs: list[Any]) -> None:
        pass

    def result(self, outputs: Sequence[Any]) -> dict[str, Any]:
        return {}

    def report(
        self, phase: int, name: int, count: int, handles: Any, addresses: Any, generations: Any
    ) -> None:
        """Called by the interposer before (`phase` 0) and after (1) a launch. Never raises.

        `name` is an index into the names; `handles`, `addresses` and `generations` have `count`
        members, one for each tensor.
        """
        try:
            tensors = [self._tensor(handles[position]) for position in range(count)]
            places = [(addresses[position], generations[position]) for position in range(count)]
            act = self.after if phase else self.before
            act(name, tensors, places)
        except Exception as error:
            say(f"[rewriter] warning: {self._names[name]}: {type(error).__name__}: {error}\n")

    def before(self, name: int, tensors: list[Any], places: list[_Place]) -> None:
        raise NotImplementedError

    def after(self, name: int, tensors: list[Any], places: list[_Place]) -> None:
        raise NotImplementedError

    def _tensor(self, handle: int) -> Any:
        """A tensor for a handle; the library keeps the ownership of the handle."""
        own = ctypes.c_void_p()
        self._new_handle(ctypes.c_void_p(handle), ctypes.byref(own))
        capsule = ctypes.pythonapi.PyCapsule_New
        capsule.restype = ctypes.py_object
        capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return torch._C._aoti.alloc_tensor_by_stealing_from_void_ptr(capsule(own, None, None))


class _Discovery(_Listener):
    """The first run: notes the launches in order, and which of its tensors each one changes."""

    def __init__(
        self, spec: dict[str, Any], inputs: Sequence[Any], constants: dict[int, str]
    ) -> None:
        super().__init__(spec["names"])
        self._buffers: dict[_Place, str] = {}
        self._fixed = dict(constants)
        self._inputs = [f"arg{position}_1" for position in range(len(inputs))]
        for name, tensor in zip(self._inputs, inputs, strict=True):
            if isinstance(tensor, torch.Tensor):
                self._fixed[tensor.data_ptr()] = name
        self._written: set[str] = set(self._fixed.values())
        self._rows: list[dict[str, Any]] = []
        self._read: list[str] = []
        self._begun = os.open(spec["begun"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def before(self, name: int, tensors: list[Any], places: list[_Place]) -> None:
        # Written before the digests, which may crash.
        os.write(self._begun, f"{self._names[name]}\n".encode())
        self._read = list(map(digest, tensors))

    def after(self, name: int, tensors: list[Any], places: list[_Place]) -> None:
        returned = len(tensors) - len(self._read)
        found = [*self._read, *([""] * returned)]
        row: list[tuple[str, bool, bool, bool, str]] = []
        for tensor, place, earlier, now in zip(
            tensors, places, found, map(digest, tensors), strict=True
        ):
            base = self._base(tensor, place)
            is_changed = not earlier or earlier != now
            row.append((base, not earlier, is_changed, base in self._written, _shape(tensor)))
        self._written |= {one[0] for one in row}
        self._rows.append({"name": name, "args": row})

    def _base(self, tensor: Any, place: _Place) -> str:
        """The name of the buffer that has a tensor's memory; made up for a new buffer."""
        start = tensor.untyped_storage().data_ptr()
        for address in (place[0], start):
            if address in self._fixed:
                return self._fixed[address]
        return self._buffers.setdefault((start, place[1]), f"buf{len(self._buffers)}")

    def result(self, outputs: Sequence[Any]) -> dict[str, Any]:
        latest = {place[0]: name for place, name in self._buffers.items()} | self._fixed
        returned = [
            latest.get(output.untyped_storage().data_ptr(), "")
            for output in outputs
            if isinstance(output, torch.Tensor)
        ]
        return {"launches": self._rows, "inputs": self._inputs, "returned": returned}


def _shape(tensor: Any) -> str:
    layout = list(tensor.shape), list(tensor.stride()), tensor.storage_offset()
    return json.dumps([*layout, str(tensor.dtype)])


class _Probes(_Listener):
    """The second run: passes the launches to the probes that the table chooses."""

    def __init__(self, spec: dict[str, Any]) -> None:
        from .. import attach

        super().__init__(spec["names"])
        table = spec["table"]
        self._recorder: Any = attach(table["options"], table["launches"], table["inputs"])
        self._rows = {row["launch"]: row for row in table["launches"]}
        self._order = table["order"]
        self._given = table["given"]
        self._inputs = table["inputs"]
        self._next = 0
        self._is_lost = False

    def begin(self, inputs: list[Any]) -> None:
        self._recorder.begin()
        if self._inputs:
            known = dict(zip(self._given, inputs, strict=True))
            self._recorder.inputs(*(known[name] for name in self._inputs))

    def before(self, name: int, tensors: list[Any], places: list[_Place]) -> None:
        self._hand_over("before", self._recorder.before, name, tensors)

    def after(self, name: int, tensors: list[Any], places: list[_Place]) -> None:
        self._hand_over("after", self._recorder.after, name, tensors)
        self._next += 1

    def _hand_over(
        self, phase: str, act: Callable[..., None], name: int, tensors: list[Any]
    ) -> None:
        index = self._next
        known = self._order[index] if index < len(self._order) else None
        if self._is_lost or known is None or known["name"] != name:
            if not self._is_lost:
                now = self._names[name]
                say(
                    f"[rewriter] warning: #{index} is {now}, and was none in the run before: from "
                    "here on launches go unrecorded\n"
                )
            self._is_lost = True
            return
        row = self._rows.get(index)
        if row is not None and phase in row:
            by_name = dict(zip(known["args"], tensors, strict=False))
            act(index, *(by_name.get(entry[1]) for entry in row[phase]))


def script() -> None:
    """Run the specification that the command line names."""
    raise SystemExit(main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), run))
