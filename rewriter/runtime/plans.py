"""Measures at the price of one call of the library: what is known of a launch is made ahead.

The facts of the values of a launch rarely change, so the texts of its lines and rows are made once
for each set of facts, a plan, and the library adds the numbers. What it does not measure (a list of
tensors, a sparse, quantized or freed one, a subclass, what a CUDA graph captures) goes the way of
all probes.
"""

from __future__ import annotations

import json
import operator
import struct
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from . import native_calls
from .device import is_capturing
from .engine import dtype_numbers, start
from .event import Event, Label, ProbedLaunch, Value
from .event_queue import LAUNCH, EventQueue, PackedText
from .rows import base_row, described

if TYPE_CHECKING:
    from .findings import Findings
    from .running_call import RunningCall
    from .text import Text

_MOST = 1024  # plans of one launch and phase: an argument may have another value at each call
_TENSORS = (Tensor, torch.nn.Parameter)
_SCALARS = (int, float, bool, str, complex, torch.dtype, torch.device)
_PRINTS, _PRINTS_TENSORS, _FINGERPRINTS, _REPEATS, _HEALTH, _STOPS, _TOGETHER = (
    1 << place for place in range(7)
)
_WRITERS = ("triton", "extern_out")  # kinds of launches that free nothing
_PHASES = {"inputs": 0, "before": 1, "after": 2}


@dataclass(frozen=True)
class Plan:
    """What the library knows of a phase of a launch. `pack` makes what `launch` takes; `ends` are
    the bytes of memory that each tensor needs, from its first element, and those of an element.
    `device` is the GPU of some of them, or -1. `forms` are the facts of the values.
    `written` are the places of inputs that launches write. `check` takes the values where all are
    tensors, and tells whether their facts are these; `freed` are those of them whose memory may
    be gone, by place, with the bytes up to the end and those of an element. `together` is that of
    the launch: its values may wait for those of the next one."""

    number: int
    pack: Callable[..., bytes]
    ends: tuple[tuple[int, int], ...]
    has_complex: bool
    device: int
    forms: tuple[_Form | None, ...]
    written: tuple[int, ...]
    check: Callable[..., bool] | None
    freed: tuple[tuple[int, int, int], ...]
    together: bool


# The facts of a value: its type; of a scalar its text; of a tensor shape, stride, dtype, device,
# and the bytes up to its end and of an element. A tuple, since that is quick to take apart.
_Form = tuple[Any, str, tuple[int, ...], tuple[int, ...], Any, int, int, int]


class _Known:
    """Tensors that were seen, with their versions and addresses: mostly all are the same again."""

    def __init__(self, tensors: list[Any], versions: list[int], addresses: list[int]) -> None:
        self._tensors = tensors
        self._versions = versions
        self._addresses = addresses
        self.none = [0] * len(tensors)

    def are(self, values: tuple[Any, ...]) -> bool:
        if (module := native_calls.module()) is not None:
            known: bool = module.same(values, self._tensors, self._versions, self._addresses)
            return known
        return (
            len(values) == len(self._tensors)
            and all(map(operator.is_, values, [known() for known in self._tensors]))
            and [value._version for value in values] == self._versions
            and [value.data_ptr() for value in values] == self._addresses
        )


class _Seen:
    """The inputs of the last call: one that is the same tensor, and that torch knows of no write
    to, has the numbers that it had. With `rechecks` all are read."""

    def __init__(self) -> None:
        self.rechecks = False
        self._lock = threading.Lock()
        self._plan: Plan | None = None
        self._tensors: list[tuple[weakref.ref[Tensor], int, int]] = []
        self._known: _Known | None = None

    def measure_as_before(
        self, launch: Callable[[bytes], int], call: RunningCall, values: tuple[Any, ...]
    ) -> int:
        """The same for inputs of the same facts, 0 for others: a tensor that was seen has those
        that it had."""
        with self._lock:
            plan = self._plan
            if plan is None or self.rechecks or plan.written or plan.has_complex:
                return 0
            if call.uses_cuda and is_capturing():
                return 0
            if plan.device >= 0 and torch.cuda.current_device() != plan.device:
                return 0
            if self._known is not None and self._known.are(values):
                stream = torch._C._cuda_getCurrentRawStream(plan.device) if plan.device >= 0 else 0
                return launch(plan.pack(call.queued, plan.number, 0, stream, *self._known.none))
            addresses: list[int] = []
            now = self._tensors.copy()
            for value, form in zip(values, plan.forms, strict=True):
                if form is None or form[1]:
                    if (value is not None) if form is None else repr(value) != form[1]:
                        return 0
                    continue
                place = len(addresses)
                known, version, address = now[place]
                if (
                    version >= 0
                    and (tensor := known()) is not None
                    and tensor is value
                    and tensor._version == version
                    and tensor.data_ptr() == address
                ):
                    addresses.append(0)
                    continue
                if not _fits(value, form):
                    return 0
                addresses.append(value.data_ptr())
                now[place] = _seen_as(value)
            stream = torch._C._cuda_getCurrentRawStream(plan.device) if plan.device >= 0 else 0
            self._plan = None
            result = launch(plan.pack(call.queued, plan.number, 0, stream, *addresses))
            if result:
                self._keep(plan, now)
            return result

    def _keep(self, plan: Plan, tensors: list[tuple[weakref.ref[Tensor], int, int]]) -> None:
        self._plan, self._tensors = plan, tensors
        self._known = None
        if (
            tensors
            and len(tensors) == len(plan.forms)
            and all(version >= 0 for _, version, _ in tensors)
        ):
            self._known = _Known(*map(list, zip(*tensors, strict=True)))

    def measure(
        self,
        launch: Callable[[bytes], int],
        call: int,
        plan: Plan,
        stream: int,
        tensors: Sequence[Tensor],
    ) -> int:
        now = list(map(_seen_as, tensors))
        with self._lock:  # what is written last is what was seen last
            addresses = [address for _, _, address in now]
            if self._plan is plan and not self.rechecks:
                # A kernel tells torch of no write; nor do all that call one.
                written = {tensors[place].untyped_storage().data_ptr() for place in plan.written}
                for place, (new, old) in enumerate(zip(now, self._tensors, strict=True)):
                    tensor = tensors[place]
                    if (
                        new[1:] == old[1:]
                        and new[1] >= 0
                        and old[0]() is tensor
                        and not (written and tensor.untyped_storage().data_ptr() in written)
                    ):
                        addresses[place] = 0
            self._plan = None
            result = launch(plan.pack(call, plan.number, 0, stream, *addresses))
            if result:
                self._keep(plan, now)
            return result


def _seen_as(x: Tensor) -> tuple[weakref.ref[Tensor], int, int]:
    # An inference tensor has no version: nobody knows whether it was written.
    return weakref.ref(x), -1 if x.is_inference() else x._version, x.data_ptr()


def _addresses(values: Sequence[Any], forms: Sequence[_Form | None]) -> list[int] | None:
    """Where the tensors are, if the facts of all values are these."""
    addresses = []
    for value, form in zip(values, forms, strict=True):
        if form is None:
            if value is not None:
                return None
        elif form[1]:
            if type(value) is not form[0] or repr(value) != form[1]:
                return None
        elif not _fits(value, form):
            return None
        else:
            addresses.append(value.data_ptr())
    return addresses


def _fits(value: Any, form: _Form) -> bool:
    kind, _, shape, stride, dtype, device, end, size = form
    return (
        type(value) is kind
        and value.shape == shape
        and value.stride() == stride
        and value.dtype is dtype
        and value.get_device() == device
        and not value.is_neg()
        and value.untyped_storage().nbytes() >= value.storage_offset() * size + end
    )


class Plans:
    """The plans of one phase of all launches of a wrapper, or of its inputs.

    `probes` are the names of those that act there, of `print`, `hash`, `nan` and `record`;
    `findings` says what `nan` makes of a value.
    """

    def __init__(
        self,
        phase: str,
        probes: Sequence[str],
        style: Text,
        findings: Findings,
        *,
        written: Set[str] = frozenset(),
        rechecks: bool = False,
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
        self._written = written
        self._native: Any = None
        self._seen = _Seen()
        self._seen.rechecks = rechecks

    def make_native(
        self,
        module: ModuleType,
        queue: EventQueue,
        calls: Mapping[int, RunningCall],
        otherwise: Callable[..., None],
        tell: Callable[[], None],
    ) -> Any:
        """What does the same as `measure_as_before` for launches that come again, and leaves others
        to `otherwise`; `tell` is called where something could not be written."""
        stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        get_device = getattr(torch._C, "_cuda_getDevice", None) if _has_several_gpus() else None
        self._native = module.Measuring(
            calls, self._phase, otherwise, tell, stream, get_device, queue.launch_address
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
            )

    def measure_as_before(
        self, launch: Callable[[bytes], int], call: RunningCall, index: int, values: tuple[Any, ...]
    ) -> int:
        """Measure the values of a launch if their facts are those of the last time, otherwise 0.

        Tuples are not made where comparing does: this is most of what a launch costs.
        """
        plan = self._last.get(index)
        if plan is None or plan.has_complex:
            return 0
        addresses: list[int] | None
        if plan.check is not None and plan.check(*values):
            for place, end, size in plan.freed:
                value = values[place]
                if value.untyped_storage().nbytes() < value.storage_offset() * size + end:
                    return 0
            addresses = [value.data_ptr() for value in values]
        elif (addresses := _addresses(values, plan.forms)) is None:
            return 0
        device = plan.device
        if device >= 0:
            if _has_several_gpus() and torch.cuda.current_device() != device:
                return 0
            stream = torch._C._cuda_getCurrentRawStream(device)
        elif call.uses_cuda and is_capturing():
            return 0
        else:
            stream = 0
        runs = call.runs[self._phase]
        iteration = runs.get(index, 0)
        result = launch(plan.pack(call.queued, plan.number, iteration, stream, *addresses))
        if result:
            runs[index] = iteration + 1
            call.hold(values, plan.together)
        return result

    def measure(
        self,
        queue: EventQueue,
        call: RunningCall,
        launch: ProbedLaunch | None,
        labels: tuple[Label, ...],
        values: tuple[Any, ...],
    ) -> int:
        """Measure the values of a launch; the result is that of `EventQueue.launch`."""
        if launch is None and (result := self._seen.measure_as_before(queue.launch, call, values)):
            return result
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
        index = -1 if launch is None else launch.index
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
                tensor.untyped_storage().nbytes() < tensor.storage_offset() * size + end
                or tensor.is_neg()
                or (plan.has_complex and tensor.is_conj())
            ):
                return 0
        stream = 0
        if plan.device >= 0:
            if _has_several_gpus() and torch.cuda.current_device() != plan.device:
                return 0
            stream = torch._C._cuda_getCurrentRawStream(plan.device)
        elif call.uses_cuda and is_capturing():
            return 0
        if launch is None:
            return self._seen.measure(queue.launch, call.queued, plan, stream, tensors)
        runs = call.runs[self._phase]
        iteration = runs.get(index, 0)
        addresses = [tensor.data_ptr() for tensor in tensors]
        packed = plan.pack(call.queued, plan.number, iteration, stream, *addresses)
        result = int(queue.launch(packed))
        if result:
            runs[index] = iteration + 1
            call.hold(values, plan.together)
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
        device = max(devices, default=-1)
        title = self._style.title(event)
        head = self._style.head(event)
        flags = self._flags | _REPEATS * bool(launch and launch.repeats)
        flags |= _TOGETHER * bool(launch and launch.together and self._phase == "after")
        packed = PackedText().number(-1 if launch is None else launch.index)
        packed.number(_PHASES[self._phase], flags)
        base = base_row(event)
        base.pop("iteration", None)  # which the engine adds
        packed.text(title, head, json.dumps(base)[:-1])
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
        ends = tuple(_end(value) for value in tensors)
        return Plan(
            queue.plan(packed.bytes()),
            struct.Struct(f"{LAUNCH}{len(tensors)}q").pack,
            ends,
            any(value.content.is_complex() for value in tensors),
            device,
            tuple(_forms(contents, ends)),
            tuple(n for n, value in enumerate(tensors) if value.label.name in self._written),
            _guard(contents) if launch is not None and len(tensors) == len(contents) else None,
            tuple(
                (place, *end)
                for place, (value, end) in enumerate(zip(tensors, ends, strict=True))
                # What a kernel has just written as a whole has its memory.
                if value.label.role != "out" or launch is None or launch.kind not in _WRITERS
            ),
            bool(flags & _TOGETHER),
        )


def _guard(tensors: Sequence[Any]) -> Callable[..., bool] | None:
    """What compares tensors with these in one call: types, dispatch keys (also those of views that
    are negated), dtypes, devices, shapes and strides. None where torch has no such thing."""
    try:
        module: Any = import_module("torch._C._dynamo.guards")
        sizes, strides = [list(x.shape) for x in tensors], [list(x.stride()) for x in tensors]
        check: Callable[..., bool] = module.TensorGuards(
            *tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides
        ).check
        return check if check(*tensors) else None
    except Exception:
        return None  # a version of torch that has it in another way


@cache
def _has_several_gpus() -> bool:
    return torch.cuda.device_count() > 1


def _is_plain(value: Value, numbers: Mapping[torch.dtype, int]) -> bool:
    content = value.content
    return (
        (content.is_cpu or content.is_cuda)
        and value.dtype in numbers
        and content.layout is torch.strided
        and not content.is_quantized
    )


def _forms(contents: Sequence[Any], ends: Sequence[tuple[int, int]]) -> Iterator[_Form | None]:
    places = iter(ends)
    for content in contents:
        if content is None:
            yield None
        elif isinstance(content, Tensor):
            shape, stride, device = content.shape, content.stride(), content.get_device()
            yield (type(content), "", shape, stride, content.dtype, device, *next(places))
        else:
            yield type(content), repr(content), (), (), None, -1, 0, 0


def _end(value: Value) -> tuple[int, int]:
    """The bytes up to the end of the last element, from the first one; and those of an element."""
    size = value.content.element_size()
    if not value.content.numel():
        return 0, 0
    last = sum((n - 1) * step for n, step in zip(value.shape, value.stride, strict=True))
    return (last + 1) * size, size
