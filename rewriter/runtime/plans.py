"""Measures the values of a launch by one call of the library.

The facts about the values of a launch, such as shapes and dtypes, rarely change. So the text of its
lines and rows is prepared once for each set of facts, as a plan, and the library adds the numbers.
Values that it cannot measure (lists of tensors, sparse, quantized or freed tensors, subclasses,
anything during CUDA graph capture) take the slow path of all probes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence, Set
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .device import is_capturing
from .engine import dtype_numbers, start
from .event import Event, Label, ProbedLaunch, Value
from .event_queue import LAUNCH, EventQueue, PackedText
from .plan import Plan, addresses_of, end_of, forms_of, has_several_gpus, tensor_check
from .rows import base_row, described
from .statistics import has_bytes

if TYPE_CHECKING:
    from .findings import Findings
    from .running_call import RunningCall
    from .text import Text

_MOST = 1024  # plans of one launch and phase: a scalar may have another value in each call
_TENSORS = (Tensor, torch.nn.Parameter)
_SCALARS = (int, float, bool, str, complex, torch.dtype, torch.device)
_PRINTS, _PRINTS_TENSORS, _FINGERPRINTS, _REPEATS, _HEALTH, _STOPS, _TOGETHER = (
    1 << place for place in range(7)
)
_WRITERS = ("triton", "extern_out")  # kinds of launches that do not free memory
_PHASES = {"inputs": 0, "before": 1, "after": 2}
INPUTS = -1  # in place of a launch's index


class Plans:
    """The plans for one phase of all launches of a wrapper, or for its inputs.

    `probes` are the names of the probes that act at the phase: some of `print`, `hash`, `nan` and
    `record`. `findings` says which values may be NaN and whether a NaN ends the program.

    If memory lines follow each launch and keep released memory, the kernel of these lines also
    measures the values of the launch. `held` are then the names of values that the caller may free
    before that (the inputs); otherwise it is None.
    """

    def __init__(
        self,
        phase: str,
        probes: Sequence[str],
        style: Text,
        findings: Findings,
        *,
        held: Set[str] | None = None,
    ) -> None:
        self._phase = phase
        self._style = style
        self._flags = _PRINTS * ("print" in probes)
        self._flags |= _FINGERPRINTS * bool({"hash", "record"} & {*probes})
        if "hash" in probes and "print" not in probes:
            self._flags |= _PRINTS_TENSORS
        if "nan" in probes:
            self._flags |= _HEALTH | _STOPS * findings.stops
        self._findings = findings
        self._known: dict[int, dict[tuple[object, ...], Plan | None]] = {}
        self._last: dict[int, Plan] = {}
        self._held = held if phase == "after" else None
        self._native: Any = None

    def make_native(
        self,
        module: ModuleType,
        queue: EventQueue,
        calls: Mapping[int, RunningCall],
        otherwise: Callable[..., None],
        tell: Callable[[], None],
    ) -> Any:
        """Make the native version of `measure_as_before`, from the extension module.

        It calls `otherwise` for launches whose facts changed, and `tell` if a write failed.
        """
        stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        get_device = getattr(torch._C, "_cuda_getDevice", None) if has_several_gpus() else None
        captures = getattr(torch._C, "_cuda_isCurrentStreamCapturing", is_capturing)
        of_device = (stream, get_device, captures)
        self._native = module.Measuring(
            calls, self._phase, otherwise, tell, *of_device, queue.launch_address
        )
        for index, plan in self._last.items():
            self._keep_native(index, plan)
        return self._native

    def _keep_native(self, index: int, plan: Plan) -> None:
        if plan.check is not None and not plan.has_complex:
            self._native.keep(
                index,
                plan.number,
                plan.device,
                plan.check,
                len(plan.ends),
                plan.freed,
                plan.together,
                plan.held,
            )

    def measure_as_before(
        self, launch: Callable[[bytes], int], call: RunningCall, index: int, values: tuple[Any, ...]
    ) -> int:
        """Measure the values of a launch, or of the `INPUTS`, with the last plan.

        Returns the result of `launch`, or 0 if the facts changed.

        Compares without making tuples where possible: this is most of what a probed launch costs.
        """
        plan = self._last.get(index)
        if plan is None or plan.has_complex:
            return 0
        addresses: list[int] | None
        if plan.check is not None and plan.check(*values):
            for place, end, size in plan.freed:
                if not has_bytes(values[place], end, size):
                    return 0
            addresses = [value.data_ptr() for value in values]
        elif (addresses := addresses_of(values, plan.forms)) is None:
            return 0
        if (stream := plan.stream(call.uses_cuda)) is None:
            return 0
        runs = call.runs[self._phase]
        iteration = runs.get(index, 0)
        result = launch(plan.pack(call.queued, plan.number, iteration, stream, *addresses))
        if result:
            runs[index] = iteration + 1
            call.hold(values, plan)
        return result

    def measure(
        self,
        queue: EventQueue,
        call: RunningCall,
        launch: ProbedLaunch | None,
        labels: tuple[Label, ...],
        values: tuple[Any, ...],
    ) -> int:
        """Measure the values of a launch, or of the inputs if `launch` is None.

        Returns the result of `EventQueue.launch`, or 0 if the values cannot be measured.
        """
        facts: list[object] = []
        tensors: list[Tensor] = []
        for value in values:
            if type(value) in _TENSORS:
                facts += value.shape, value.stride(), value.dtype, value.device
                tensors.append(value)
            elif value is None:
                facts.append(None)
            elif type(value) in _SCALARS:
                facts += type(value), repr(value)
            else:
                return 0
        index = INPUTS if launch is None else launch.index
        plans = self._known.setdefault(index, {})
        key = tuple(facts)
        try:
            plan = plans[key]
        except KeyError:
            plan = self._make(queue, call, plans, key, launch, labels, values)
        if plan is None:
            return 0
        for tensor, (end, size) in zip(tensors, plan.ends, strict=True):
            if (
                not has_bytes(tensor, end, size)
                or tensor.is_neg()
                or (plan.has_complex and tensor.is_conj())
            ):
                return 0
        if (stream := plan.stream(call.uses_cuda)) is None:
            return 0
        runs = call.runs[self._phase]
        iteration = runs.get(index, 0)
        addresses = [tensor.data_ptr() for tensor in tensors]
        packed = plan.pack(call.queued, plan.number, iteration, stream, *addresses)
        result = int(queue.launch(packed))
        if result:
            runs[index] = iteration + 1
            call.hold(values, plan)
            self._last[index] = plan
            if self._native is not None:
                self._keep_native(index, plan)
        elif not (call.uses_cuda and is_capturing()):
            plans[key] = None
        return result

    def _make(
        self,
        queue: EventQueue,
        call: RunningCall,
        plans: dict[tuple[object, ...], Plan | None],
        key: tuple[object, ...],
        launch: ProbedLaunch | None,
        labels: tuple[Label, ...],
        contents: tuple[Any, ...],
    ) -> Plan | None:
        """Make the plan for values whose facts are `key`, and keep it in `plans`.

        Returns None, which is kept as well, if the library cannot measure these values; during CUDA
        graph capture it returns None and keeps nothing.
        """
        if call.uses_cuda and is_capturing():
            return None  # the engine can neither start nor wait
        if len(plans) >= _MOST:
            if self._native is not None:
                self._native.forget()
            for plan in plans.values():
                if plan is not None:
                    queue.forget(plan.number)
            plans.clear()
            self._last.clear()
        plans[key] = made = self._plan(queue, launch, labels, contents)
        return made

    def _plan(
        self,
        queue: EventQueue,
        launch: ProbedLaunch | None,
        labels: tuple[Label, ...],
        contents: tuple[Any, ...],
    ) -> Plan | None:
        event = Event(launch, self._phase, 0, 0)
        for label, content in zip(labels, contents, strict=True):
            event.values += Value.read(label, content)
        tensors = event.tensors
        numbers = dtype_numbers()
        if not all(_is_plain(value, numbers) for value in tensors):
            return None
        devices = {value.content.get_device() for value in tensors if value.content.is_cuda}
        if len(devices) > 1 or any(map(start, devices)):
            return None
        flags = self._flags | _REPEATS * bool(launch and launch.repeats)
        is_joined = self._held is not None
        waits = bool(launch and launch.together and self._phase == "after")
        flags |= _TOGETHER * (is_joined or waits)
        ends = tuple(map(end_of, tensors))
        return Plan(
            number=queue.plan(self._packed(event, flags, numbers)),
            pack=struct.Struct(f"{LAUNCH}{len(tensors)}q").pack,
            ends=ends,
            has_complex=any(value.content.is_complex() for value in tensors),
            device=max(devices, default=-1),
            forms=tuple(forms_of(contents, ends)),
            check=tensor_check(contents) if len(tensors) == len(contents) else None,
            freed=tuple(
                (place, *end)
                for place, (value, end) in enumerate(zip(tensors, ends, strict=True))
                # The memory of a value that a kernel has just written was not freed.
                if value.label.role != "out" or launch is None or launch.kind not in _WRITERS
            ),
            together=waits and not is_joined,
            held=tuple(
                place
                for place, label in enumerate(labels)
                if self._held is not None and label.name in self._held
            ),
        )

    def _packed(self, event: Event, flags: int, numbers: Mapping[torch.dtype, int]) -> bytes:
        """The packed plan for an event: its texts, and the facts about its values."""
        packed = PackedText().number(INPUTS if event.launch is None else event.launch.index)
        packed.number(_PHASES[self._phase], flags)
        base = base_row(event)
        base.pop("iteration", None)  # the engine adds it
        packed.text(self._style.title(event), self._style.head(event), json.dumps(base)[:-1])
        packed.number(len(event.values))
        for value in event.values:
            is_allowed = self._findings.allows(event, value)
            packed.number(value.is_tensor, value.label.role == "in", is_allowed)
            packed.text(value.label.name, self._style.described(value))
            packed.text(f", {json.dumps(described(value))[1:-1]}")
            if value.dtype is not None:
                packed.number(numbers[value.dtype], value.content.get_device())
                packed.number(value.content.numel(), len(value.shape))
                packed.number(*value.shape, *value.stride)
        return packed.bytes()


def _is_plain(value: Value, numbers: Mapping[torch.dtype, int]) -> bool:
    content = value.content
    return (
        (content.is_cpu or content.is_cuda)
        and value.dtype in numbers
        and content.layout is torch.strided
        and not content.is_quantized
    )
