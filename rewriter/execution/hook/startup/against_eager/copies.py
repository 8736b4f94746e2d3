"""Copies of the tensors that a call can reach: the plain call works on these."""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Callable
from typing import Any

import torch

from .state import Held, Reached


class Copies:
    """A copy of each tensor that is reached; views of the same memory stay so."""

    def __init__(self, reached: Reached, memory: dict[int, Any] | None = None) -> None:
        """`memory` has the bytes to copy, where those of a tensor have been changed."""
        self._reached = reached
        self._copies: dict[int, torch.Tensor] = {}
        self.storages: dict[int, Any] = {}
        self.leaves: dict[str, torch.Tensor] = {}  # those that gradients are computed for
        shared: dict[int, int] = {}
        for held in reached.tensors.values():
            key = held.storage._cdata
            shared[key] = shared.get(key, 0) + 1
            if key not in self.storages:
                self.storages[key] = (memory or {}).get(key, held.storage).clone()
        for key, held in reached.tensors.items():
            self._copies[key] = self._copy(held, alone=shared[held.storage._cdata] == 1)
        for key, held in reached.tensors.items():
            if held.grad is not None:
                self._copies[key].grad = self._copies[id(held.grad)].detach()

    def _copy(self, held: Held, *, alone: bool) -> torch.Tensor:
        tensor = held.tensor
        with torch.no_grad():
            copy = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
            copy.set_(self.storages[held.storage._cdata], *held.place)
            if isinstance(tensor, torch.nn.Parameter):
                copy = torch.nn.Parameter(copy, requires_grad=held.requires_grad)
            elif held.requires_grad:
                copy.requires_grad_()
        if held.requires_grad:
            self.leaves[held.name] = copy
            if not held.is_leaf and alone:  # so that it may be updated in place
                with torch.enable_grad():
                    copy = copy.clone()
        return copy

    def memory(self) -> dict[int, Any]:
        """The bytes of the tensors before the call, while the originals still have them."""
        found = {}
        for held in self._reached.tensors.values():
            key = held.storage._cdata
            if key not in found:
                same = torch.equal(_bytes(self.storages[key]), _bytes(held.storage))
                found[key] = self.storages[key] if same else held.storage.clone()
        return found

    def tensors(self) -> dict[str, torch.Tensor]:
        """The copies by the names of what they are copies of."""
        return {held.name: self._copies[key] for key, held in self._reached.tensors.items()}

    def of(self, value: Any) -> Any:
        """A value with copies in the place of tensors; containers stay the same objects."""
        if isinstance(value, torch.Tensor):
            return self._copies.get(id(value), value)
        # Results for copies are not to be kept: plain calls are of the function inside of a cache,
        # as those of Dynamo are.
        if isinstance(value, functools._lru_cache_wrapper):
            return value.__wrapped__
        if isinstance(value, (tuple, frozenset)):
            made = [self.of(item) for item in value]
            if all(x is y for x, y in zip(made, value, strict=True)):
                return value
            return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
        if isinstance(value, functools.partial):
            words = {key: self.of(x) for key, x in value.keywords.items()}
            return type(value)(value.func, *map(self.of, value.args), **words)
        return value

    def call(self, function: Callable[[], Any]) -> tuple[Any, list[Any], bool]:
        """What a function returns that works on the copies, what containers hold then, and whether
        it drew random numbers. Everything is as it was afterwards."""
        held = self._reached.containers
        with self._reached.unchanged() as draws:
            for container in held:
                container.write(self._inside(container.before))
            result = contextvars.copy_context().run(function)
            return result, [container.read() for container in held], draws()

    def _inside(self, contents: Any) -> Any:
        if isinstance(contents, dict):
            return {self.of(key): self.of(value) for key, value in contents.items()}
        if not isinstance(contents, (list, set)):
            return contents
        return type(contents)(map(self.of, contents))


def _bytes(storage: Any) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
