"""Leaves out inputs that are known: the same tensors as in the last call, which nobody wrote."""

from __future__ import annotations

import operator
import struct
import threading
from collections.abc import Callable, Sequence
from enum import Enum
from itertools import chain
from typing import TYPE_CHECKING, Any
from weakref import ref

import torch
from torch import Tensor

from . import native_calls
from .device import is_capturing
from .event_queue import LAUNCH
from .plan import Plan, fits

if TYPE_CHECKING:
    from .running_call import RunningCall

# A tensor, its version (-1 if that does not tell) and its address.
_Known = tuple[Callable[[], Tensor | None], int, int]


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
        self._all: _SameTensors | None = None

    def measure_as_before(
        self, launch: Callable[[bytes], int], call: RunningCall, values: tuple[Any, ...]
    ) -> int:
        """Measure inputs that have the facts of those of the last call; 0 where they do not. A
        known tensor needs no comparison of its facts."""
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
            if self._all is not None and self._all.are(values):
                start = struct.pack(LAUNCH, call.queued, plan.number, 0, stream)
                return launch(start + self._all.addresses)
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
                if not fits(value, form):
                    return 0
                addresses.append(value.data_ptr())
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
            addresses = [address for _, _, address in now]
            if self._plan is plan:
                # Torch is told of no write by a kernel, nor by all operators that call one.
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

    def _ask(self) -> None:
        """Forget all where something else is trusted than before."""
        trust = Trust.NONE if self._rechecks else _trust()
        if trust is not self._trust:
            self._trust = trust
            self._plan, self._tensors, self._all = None, [], None

    def _keep(self, plan: Plan, tensors: list[_Known]) -> None:
        self._all = None
        if self._trust is Trust.NONE:
            return
        self._plan, self._tensors = plan, tensors
        if (
            tensors
            and len(tensors) == len(plan.forms)
            and all(version >= 0 for _, version, _ in tensors)
        ):
            self._all = _SameTensors(tensors)

    def _as_known(self, x: Tensor) -> _Known:
        # An inference tensor has no version: nobody knows whether it was written.
        is_told = not x.is_inference() and (self._trust is Trust.ALL or not x.requires_grad)
        if self._trust is Trust.NONE or not is_told:
            return _nobody, -1, x.data_ptr()
        return ref(x), x._version, x.data_ptr()


def _nobody() -> None:
    """In the place of a weak reference to what is not known again."""


class _SameTensors:
    """Compares all inputs with known ones at once: mostly all are the same again."""

    def __init__(self, known: Sequence[_Known]) -> None:
        self._tensors = tuple(tensor for tensor, _, _ in known)
        self._facts = [(version, address) for _, version, address in known]
        implementations = [getattr(tensor(), "_cdata", 0) for tensor in self._tensors]
        facts = [(x, *y) for x, y in zip(implementations, self._facts, strict=True)]
        self._packed = struct.pack(f"={3 * len(known)}q", *chain.from_iterable(facts))
        self.addresses = bytes(8 * len(known))  # that say that all are known

    def are(self, values: tuple[Any, ...]) -> bool:
        if (module := native_calls.module()) is not None:
            same: bool = module.same(values, self._tensors, self._packed)
            return same
        return (
            len(values) == len(self._tensors)
            and all(map(operator.is_, values, [known() for known in self._tensors]))
            and [(value._version, value.data_ptr()) for value in values] == self._facts
        )
