"""Leaves out inputs that are known: the same tensors as in the last call, which nobody wrote."""

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
    """A tensor, its version (-1 if that does not tell), address, dtype, shape and stride; and all
    of that as `Seen` of `cpp/engine/python.cpp`."""

    tensor: Callable[[], Tensor | None]
    version: int
    address: int
    form: tuple[object, ...]
    packed: bytes

    @classmethod
    def of(cls, x: Tensor, *, is_told: bool = True) -> _Known:
        """As a tensor is now; `is_told` is whether its version tells of all writes."""
        address = x.data_ptr()
        if not is_told:
            return cls(_nobody, -1, address, (), bytes(8 * 5))
        form = dtype, shape, stride = x.dtype, x.shape, x.stride()
        version, dim = x._version, len(shape)
        facts = getattr(x, "_cdata", 0), version, address, dtype_numbers()[dtype], dim
        packed = struct.pack(f"={5 + 2 * dim}q", *facts, *shape, *stride)
        return cls(ref(x), version, address, form, packed)

    def is_now(self, x: Any) -> bool:
        """Whether it is this tensor, torch knows of no write to it, and its data are the same: a
        program may have set others, of another form at the same address."""
        tensor = self.tensor()
        return (
            tensor is not None
            and tensor is x
            and tensor._version == self.version
            and tensor.data_ptr() == self.address
            and (tensor.dtype, tensor.shape, tensor.stride()) == self.form
        )


class Trust(Enum):
    """Which tensors have a version that tells of all writes. `known_tensors.h` has the same."""

    NONE = 0
    UNTRAINED = 1  # those that need no gradient
    ALL = 2


def _trust() -> Trust:
    """What can be trusted now in this process.

    Fused optimizers write parameters and leave their versions alone (torch 2.6 to 2.15), so where
    there is an optimizer, what it may train is not trusted: torch marks the class of one that was
    made. Where `nn.Module` swaps parameters, nothing is: that fails for a tensor that anybody has
    a weak reference to.
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
    """The inputs of the last call. One that is the same tensor, and that torch knows of no write
    to, has the statistics that it had: the address 0 says so to the library. With `rechecks` all
    are read."""

    def __init__(self, *, rechecks: bool) -> None:
        self._rechecks = rechecks
        self._trust = Trust.NONE
        self._lock = threading.Lock()
        self._plan: Plan | None = None
        self._tensors: list[_Known] = []
        self._same = _SameTensors(())

    def measure_as_before(
        self, launch: Callable[[bytes], int], call: RunningCall, values: tuple[Any, ...]
    ) -> int:
        """Measure inputs that have the facts of those of the last call; 0 where they do not."""
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
        """Measure inputs with a plan; the result is that of `launch`."""
        with self._lock:  # so that the last ones measured are the last ones kept
            self._ask()
            now = list(map(self._as_known, tensors))
            addresses = [x.address for x in now]
            if self._plan is plan:
                # Torch is told of no write by a kernel, nor by all operators that call one.
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
        """Forget all where something else is trusted than before."""
        trust = Trust.NONE if self._rechecks else _trust()
        if trust is not self._trust:
            self._trust = trust
            self._plan, self._tensors = None, []

    def _keep(self, plan: Plan, tensors: list[_Known]) -> None:
        if self._trust is not Trust.NONE:
            self._plan, self._tensors, self._same = plan, tensors, _SameTensors(tensors)

    def _as_known(self, x: Tensor) -> _Known:
        # An inference tensor has no version: nobody knows whether it was written.
        is_told = not x.is_inference() and (self._trust is Trust.ALL or not x.requires_grad)
        return _Known.of(x, is_told=is_told and self._trust is not Trust.NONE)


def _nobody() -> None:
    """In the place of a weak reference to what is not known again."""


def _has_others_of(values: Sequence[Any], forms: Sequence[Form | None]) -> bool:
    """Whether values are tensors, numbers or none where these are, and the same but for tensors."""
    return len(values) == len(forms) and all(
        value is None
        if form is None
        else (repr(value) == form[1] if form[1] else isinstance(value, Tensor))
        for value, form in zip(values, forms, strict=True)
    )


class _SameTensors:
    """Compares all inputs with known ones at once: mostly all are the same again."""

    def __init__(self, known: Sequence[_Known]) -> None:
        self._known = known
        self._tensors = tuple(x.tensor for x in known)
        self._packed = b"".join([x.packed for x in known])
        self.addresses = bytes(8 * len(known))  # that say that all are known

    def differing(self, values: tuple[Any, ...]) -> Sequence[int]:
        """The places of those that are others, or were written. Raises `ValueError` for another
        number of values."""
        if (module := native_calls.module()) is not None:
            found: list[int] | None = module.differing(values, self._tensors, self._packed)
            if found is not None:
                return found
        both = zip(values, self._known, strict=True)
        return [place for place, (value, known) in enumerate(both) if not known.is_now(value)]
