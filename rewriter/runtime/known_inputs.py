"""Avoids measuring inputs again that are the same tensors as in the last call, and unchanged."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

import torch
from torch import Tensor

from . import native_calls
from .device import is_capturing
from .engine import dtype_numbers
from .event_queue import LAUNCH
from .plan import Form, Plan, fits

if TYPE_CHECKING:
    from .running_call import RunningCall


class _Known(NamedTuple):
    """The state of an input when it was measured."""

    tensor: Callable[[], Tensor | None]  # a weak reference
    version: int  # -1 if it does not change with every write
    address: int
    form: tuple[object, ...]  # dtype, shape, stride
    packed: bytes  # all of this as the struct `Seen` of `cpp/engine/python.cpp`

    @classmethod
    def of(cls, x: Tensor, *, has_version: bool = True) -> _Known:
        """The state of a tensor now. `has_version`: its version changes with every write."""
        address = x.data_ptr()
        if not has_version:
            return cls(_no_tensor, -1, address, (), bytes(8 * 5))
        form = dtype, shape, stride = x.dtype, x.shape, x.stride()
        version, dim = x._version, len(shape)
        facts = getattr(x, "_cdata", 0), version, address, dtype_numbers()[dtype], dim
        packed = struct.pack(f"={5 + 2 * dim}q", *facts, *shape, *stride)
        return cls(ref(x), version, address, form, packed)

    def is_now(self, x: Any) -> bool:
        """Whether `x` is this tensor, not written since as far as torch knows, in the same memory.

        Dtype, shape and stride are compared because a program may set `x.data`.
        """
        tensor = self.tensor()
        return (
            tensor is not None
            and tensor is x
            and tensor._version == self.version
            and tensor.data_ptr() == self.address
            and (tensor.dtype, tensor.shape, tensor.stride()) == self.form
        )


class Trust(Enum):
    """Which tensors have a version that changes with every write; as in `known_tensors.h`."""

    NONE = 0
    UNTRAINED = 1  # those that do not require a gradient
    ALL = 2


def _trust() -> Trust:
    """Which versions can be trusted now in this process.

    Fused optimizers write parameters without changing their versions (torch 2.6 to 2.15). So once
    an optimizer was made, tensors that require a gradient are not trusted; torch marks the class of
    an optimizer that was made as `hooked`. If `nn.Module` is set to swap parameters, nothing is:
    swapping fails for a tensor with a weak reference, and `_Known` has one.
    """
    if torch.__future__.get_swap_module_params_on_conversion():
        return Trust.NONE
    kinds: list[type] = [torch.optim.Optimizer]
    while kinds:
        kind = kinds.pop()
        if hasattr(getattr(kind, "step", None), "hooked"):
            return Trust.UNTRAINED
        kinds += kind.__subclasses__()
    return Trust.ALL


class KnownInputs:
    """Remembers the inputs of the last call of a wrapper, and measures only those that changed.

    For an unchanged tensor the library gets the address 0, and repeats the last statistics. With
    `rechecks` all inputs are measured in every call, with `trains` those that require a gradient:
    programs that train without an optimizer often write `weight.data`, which torch does not count.
    """

    def __init__(self, *, rechecks: bool, trains: bool) -> None:
        self._rechecks = rechecks
        self._trains = trains
        self._trust = Trust.NONE
        self._lock = threading.Lock()
        self._plan: Plan | None = None
        self._tensors: list[_Known] = []
        self._same = _SameTensors(())

    def measure_as_before(
        self, launch: Callable[[bytes], int], call: RunningCall, values: tuple[Any, ...]
    ) -> int:
        """Measure the inputs of `call` with the plan of the last call.

        `launch` is `EventQueue.launch`. Returns its result, or 0 if the plan does not fit.
        """
        with self._lock:
            self._ask()
            plan = self._plan
            if plan is None or plan.written or plan.has_complex:
                return 0
            if call.uses_cuda and is_capturing():
                return 0
            if plan.device >= 0 and torch.cuda.current_device() != plan.device:
                return 0
            stream = torch._C._cuda_getCurrentRawStream(plan.device) if plan.device >= 0 else 0
            tensors = values
            if len(values) != len(self._tensors):
                if not _has_others_of(values, plan.forms):
                    return 0
                tensors = tuple(x for x in values if isinstance(x, Tensor))
            if not (places := self._same.differing(tensors)):
                start = struct.pack(LAUNCH, call.queued, plan.number, 0, stream)
                return launch(start + self._same.addresses)
            addresses = [0] * len(tensors)
            now = self._tensors.copy()
            forms = [form for form in plan.forms if form is not None and not form[1]]
            for place in places:
                value = tensors[place]
                if not fits(value, forms[place]):
                    return 0
                addresses[place] = value.data_ptr()
                now[place] = self._as_known(value)
            self._plan = None
            result = launch(plan.pack(call.queued, plan.number, 0, stream, *addresses))
            if result:
                self._keep(plan, now)
            return result

    def measure(
        self,
        launch: Callable[[bytes], int],
        call: int,
        plan: Plan,
        stream: int,
        tensors: Sequence[Tensor],
    ) -> int:
        """Measure inputs with a plan. Returns the result of `launch`."""
        with self._lock:  # so that the inputs remembered are those measured last
            self._ask()
            now = list(map(self._as_known, tensors))
            addresses = [x.address for x in now]
            if self._plan is plan:
                # Kernels, and some operators that call one, write without changing the version.
                written = {tensors[place].untyped_storage().data_ptr() for place in plan.written}
                for place, (tensor, old) in enumerate(zip(tensors, self._tensors, strict=True)):
                    if old.is_now(tensor) and not (
                        written and tensor.untyped_storage().data_ptr() in written
                    ):
                        addresses[place] = 0
            self._plan = None
            result = launch(plan.pack(call, plan.number, 0, stream, *addresses))
            if result:
                self._keep(plan, now)
            return result

    def _ask(self) -> None:
        """Update what is trusted, and forget the inputs if that changed."""
        trust = Trust.NONE if self._rechecks else _trust()
        if self._trains and trust is Trust.ALL:
            trust = Trust.UNTRAINED
        if trust is not self._trust:
            self._trust = trust
            self._plan, self._tensors = None, []

    def _keep(self, plan: Plan, tensors: list[_Known]) -> None:
        if self._trust is not Trust.NONE:
            self._plan, self._tensors, self._same = plan, tensors, _SameTensors(tensors)

    def _as_known(self, x: Tensor) -> _Known:
        # An inference tensor has no version, so writes to it cannot be seen, nor those of other
        # processes to shared memory. Every tensor of a GPU says that it is shared.
        has_version = not x.is_inference() and (self._trust is Trust.ALL or not x.requires_grad)
        has_version = has_version and not (x.is_cpu and x.is_shared())  # type: ignore[no-untyped-call]
        return _Known.of(x, has_version=has_version and self._trust is not Trust.NONE)


def _no_tensor() -> None:
    """Takes the place of a weak reference where the tensor is to be measured again."""


def _has_others_of(values: Sequence[Any], forms: Sequence[Form | None]) -> bool:
    """Whether values have tensors where `forms` has tensors, and are equal to it elsewhere."""
    return len(values) == len(forms) and all(
        value is None
        if form is None
        else (repr(value) == form[1] if form[1] else isinstance(value, Tensor))
        for value, form in zip(values, forms, strict=True)
    )


class _SameTensors:
    """Compares all inputs with the remembered ones at once, since most often all are the same."""

    def __init__(self, known: Sequence[_Known]) -> None:
        self._known = known
        self._tensors = tuple(x.tensor for x in known)
        self._packed = b"".join([x.packed for x in known])
        self.addresses = bytes(8 * len(known))  # packed zeros: all inputs are unchanged

    def differing(self, values: tuple[Any, ...]) -> Sequence[int]:
        """The places of inputs that are other tensors or were written.

        Raises `ValueError` if the number of values differs.
        """
        if (module := native_calls.module()) is not None:
            found: list[int] | None = module.differing(values, self._tensors, self._packed)
            if found is not None:
                return found
        both = zip(values, self._known, strict=True)
        return [place for place, (value, known) in enumerate(both) if not known.is_now(value)]
