"""Compares the gradients that a backward of compiled code gives with those of plain Python.

Nothing is run for it in the program's backward: hooks on the nodes of the graph add up what the
outputs are given and what inputs and parameters get. Later the plain call is given the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from .record import NotComparedError
from .state import Reached


@dataclass
class Backward:
    """What was seen of the backward of one call."""

    given: dict[str, torch.Tensor] = field(default_factory=dict)  # by output
    left: dict[str, torch.Tensor] = field(default_factory=dict)  # by input or parameter
    started: float = 0.0
    ended: float = 0.0
    _hooks: list[Any] = field(default_factory=list)
    _reached: Reached = field(default_factory=Reached)

    def watch(self, outputs: dict[str, torch.Tensor], reached: Reached) -> None:
        """Put hooks on the nodes between outputs and what they were computed from."""
        self._reached = reached
        edges = {}
        leaves = {}
        for held in reached.tensors.values():
            if held.requires_grad and held.is_leaf:
                leaves[id(held.tensor)] = held.name
            elif held.requires_grad and held.edge[0] is not None:
                edges[held.edge] = held.name
        ends: dict[tuple[Any, int], str] = {}
        inner: list[Any] = []
        tops = {(x.grad_fn, x.output_nr): name for name, x in outputs.items() if x.grad_fn}
        waiting = [node for node, nr in tops if (node, nr) not in edges]
        seen = set()
        while waiting:
            node = waiting.pop()
            if node in seen:
                continue
            seen.add(node)
            inner.append(node)
            for target, nr in node.next_functions:
                if target is None:
                    continue
                leaf = leaves.get(id(getattr(target, "variable", None)))
                if name := edges.get((target, nr)) or leaf:
                    ends[target, nr] = name
                elif (target, nr) in tops:
                    raise NotComparedError("an output is computed from another one")
                elif getattr(target, "variable", None) is None:
                    waiting.append(target)
        for (node, nr), name in tops.items():
            if node in seen:
                self._hooks.append(node.register_prehook(self._gives(name, nr)))
        for node in inner:
            targets = [ends.get(edge, "") for edge in node.next_functions]
            if any(targets):
                self._hooks.append(node.register_hook(self._leaves(targets)))

    def _gives(self, name: str, nr: int) -> Callable[[Any], None]:
        def hook(grads: Any) -> None:
            self.started = self.started or time.time()
            if nr < len(grads):
                _add(self.given, name, grads[nr])

        return hook

    def _leaves(self, targets: list[str]) -> Callable[[Any, Any], None]:
        def hook(grads: Any, _: Any) -> None:
            self.ended = time.time()
            for name, grad in zip(targets, grads, strict=False):
                if name:
                    _add(self.left, name, grad)

        return hook

    def close(self) -> None:
        """Take the hooks away."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def plain(
        self, outputs: dict[str, Any], leaves: dict[str, torch.Tensor]
    ) -> dict[str, torch.Tensor]:
        """The gradients that plain Python's outputs give for what the compiled ones were given."""
        pairs = list(self._pairs(outputs))
        wanted = [(name, x) for name, x in leaves.items() if x.requires_grad]
        if not pairs or not wanted:
            return {}
        # Hooks of the program may count, or keep what they are given.
        with self._reached.unchanged(), torch.inference_mode(False), torch.enable_grad():
            found = torch.autograd.grad(
                [x for x, _ in pairs],
                [x for _, x in wanted],
                [x for _, x in pairs],
                retain_graph=True,
                allow_unused=True,
            )
        named = zip(wanted, found, strict=True)
        return {name: x for (name, _), x in named if x is not None}

    def _pairs(self, outputs: dict[str, Any]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for name, grad in self.given.items():
            one = outputs.get(name)
            if not isinstance(one, torch.Tensor) or not one.requires_grad:
                raise NotComparedError(f"{name} has no gradient in plain Python")
            if one.shape != grad.shape or one.dtype != grad.dtype:
                raise NotComparedError(f"{name} has another type in plain Python")
            yield one, grad


def _add(into: dict[str, torch.Tensor], name: str, grad: Any) -> None:
    if not isinstance(grad, torch.Tensor):
        return
    with torch.no_grad():
        into[name] = into[name] + grad if name in into else grad.detach().clone()
