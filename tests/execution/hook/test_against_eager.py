"""Calls of compiled functions that are made once more as plain Python, and compared.

Backends of Dynamo's own stand for Inductor, and one that changes a graph for a fault.
"""

from __future__ import annotations

import argparse
import array as arrays
import copy
import itertools
import json
import random
import threading
from collections import ChainMap, OrderedDict, UserDict
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from queue import Queue
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch._dynamo import eval_frame

from rewriter.dump import eager_calls
from rewriter.dump.eager_calls import EagerCall
from rewriter.execution.hook.startup.against_eager import record
from rewriter.execution.hook.startup.against_eager.calls import Calls

Backend = Callable[[torch.fx.GraphModule, Any], Callable[..., Any]]


class Program:
    """Compiles functions, watches their calls, and has what was compared."""

    def __init__(self, dump: Path) -> None:
        self.dump = dump
        self.calls = Calls(3)

    def compiled(self, function: Any, backend: str | Backend = "aot_eager") -> Any:
        made = torch.compile(function, backend=backend)
        if isinstance(made, nn.Module):
            made.forward = self.calls.watched(made.forward, eval_frame)
            return made
        return self.calls.watched(made, eval_frame)

    def compared(self) -> tuple[EagerCall, ...]:
        self.calls.flush()
        return eager_calls.read(self.dump)

    def all_agree(self, number: int) -> None:
        found = self.compared()
        assert [(one.reason, one.problems) for one in found] == [("", ())] * number


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    monkeypatch.setenv(record.DUMP, str(tmp_path))
    torch._dynamo.reset()
    torch.manual_seed(0)
    return Program(tmp_path)


def _wrong(change: Callable[[torch.fx.GraphModule], None]) -> Backend:
    """A backend that changes each graph and runs it."""

    def backend(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        change(graph)
        graph.recompile()
        return graph.forward

    return backend


def _scaled(graph: torch.fx.GraphModule) -> None:
    """Multiplies the first output by 1.001."""
    (last,) = (x for x in graph.graph.nodes if x.op == "output")
    first = last.args[0][0]
    with graph.graph.inserting_before(last):
        scaled = graph.graph.call_function(torch.mul, (first, 1.001))
    last.args = ((scaled, *last.args[0][1:]),)


def test_a_training_with_buffers_is_right_and_stays_the_same(program: Program) -> None:
    def losses(compiled: Callable[[nn.Module], Any]) -> list[float]:
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Linear(8, 2))
        step = compiled(model)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        found = []
        for _ in range(4):
            loss = step(torch.randn(6, 4)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            found.append(loss.item())
        return [*found, int(model[1].num_batches_tracked), model[1].running_mean.sum().item()]

    plain = losses(lambda model: torch.compile(model, backend="aot_eager"))
    assert losses(program.compiled) == plain
    program.all_agree(6)
    assert {one.updated for one in program.compared() if one.part == "call"} == {3}


def test_what_a_call_changes_is_changed_once(program: Program) -> None:
    """Inputs, containers, attributes, globals and the state of random numbers."""

    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.count = 0
            self.cache: torch.Tensor | None = None

        def forward(self, x: torch.Tensor, kept: list[torch.Tensor]) -> dict[str, Any]:
            self.count += 1
            if self.cache is None:
                self.cache = torch.arange(3.0)
            x.mul_(2)
            kept.append(x + self.cache)
            return {"view": x[1:], "none": None, "number": 3, "pair": (x.sum(), x.T)}

    model, x, kept = Counting(), torch.ones(2, 3), []
    compiled = program.compiled(model)
    before = torch.get_rng_state()
    for _ in range(4):
        result = compiled(x, kept)
    assert (model.count, len(kept), x.unique().tolist()) == (4, 4, [16.0])
    assert result["view"].data_ptr() == x[1:].data_ptr()
    assert torch.equal(torch.get_rng_state(), before)
    program.all_agree(3)


def test_state_of_other_kinds_is_changed_once(program: Program) -> None:
    """Of classes, of numpy, of objects of the standard library; attributes that are new."""

    class Shared:
        number = 0

    class Own(dict[str, int]):
        def update(self, *_: Any, **__: Any) -> None:
            raise TypeError("made otherwise")

    array, buffer, own, bytes_ = np.zeros(2), bytearray(1), Own(n=0), arrays.array("b", [0])
    holders: list[Any] = [SimpleNamespace(n=0), argparse.Namespace(n=0), threading.local()]
    holders[-1].n = 0
    user: UserDict[str, int] = UserDict(n=0)
    chained: ChainMap[str, int] = ChainMap({"n": 0})
    variable = ContextVar("variable", default=0)

    def function(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        array[0] += 1
        buffer[0] += 1
        bytes_[0] += 1
        user["n"] += 1
        chained["n"] += 1
        variable.set(variable.get() + 1)
        own["n"] += 1
        Shared.number += 1
        Shared.new = getattr(Shared, "new", 0) + 1  # type: ignore[attr-defined]
        for one in holders:
            one.n += 1
        return x * array[0]

    compiled = program.compiled(function, "eager")
    results = [compiled(torch.ones(2)).tolist() for _ in range(4)]
    assert results == [[n, n] for n in (1, 2, 3, 4)]
    state = [array[0], buffer[0], user["n"], own["n"], Shared.number, *(one.n for one in holders)]
    state += [bytes_[0], chained["n"], variable.get(), vars(Shared)["new"]]
    assert state == [4] * 12
    program.all_agree(3)


def test_containers_that_give_others_than_they_hold_keep_these(program: Program) -> None:
    """As the activations of transformers, a dictionary of classes that gives objects of these."""

    class Made(OrderedDict[str, Any]):
        def __getitem__(self, key: str) -> Any:
            return super().__getitem__(key)()

        def __setitem__(self, key: str, value: Any) -> None:
            super().__setitem__(key, type(value))

    class Doubled(list[int]):
        def __iter__(self) -> Iterator[int]:
            return (2 * x for x in super().__iter__())

    made, doubled = Made(relu=nn.ReLU(), none=nn.Identity()), Doubled([1, 2])

    def function(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        doubled.append(3)
        return made["relu"](x) + sum(doubled)

    compiled = program.compiled(function, "eager")
    assert [compiled(torch.ones(2)).tolist() for _ in range(2)] == [[13, 13], [19, 19]]
    assert list(OrderedDict.items(made)) == [("relu", nn.ReLU), ("none", nn.Identity)]
    assert doubled == [1, 2, 3, 3]
    program.all_agree(2)


def test_a_cache_keeps_no_result_of_a_plain_call(program: Program) -> None:
    """Neither one for copies of tensors, nor one with the errors that show what rounding does."""
    kept = torch.ones(2)

    @lru_cache
    def factor(scale: int) -> torch.Tensor:
        return kept * scale

    @torch.compiler.disable
    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x * factor(3)

    compiled = program.compiled(lambda x: scaled(x) + 1, "eager")
    assert [compiled(torch.ones(2)).tolist() for _ in range(4)] == [[4, 4]] * 4
    assert factor.cache_info()[:2] == (3, 1)  # only of the compiled calls
    program.all_agree(3)


def test_memory_that_nobody_wrote_may_hold_anything(program: Program) -> None:
    """A function may return it; only what is computed from it cannot be compared."""

    def backend(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        def run(*values: torch.Tensor) -> Any:
            scratch, result = graph(*values)
            return scratch.fill_(-7e37), result

        return run

    compiled = program.compiled(lambda x: (torch.empty(3), x + 1), backend)
    compiled(torch.ones(2))
    program.all_agree(1)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (itertools.count(), "source is an iterator, which can be gone through only once"),
        (iter(range(9)), "source is an iterator, which can be gone through only once"),
        (random.Random(0), "it draws random numbers"),
        (np.random.default_rng(0), "it draws random numbers"),
    ],
    ids=["count", "range", "random", "numpy"],
)
def test_what_a_call_draws_is_drawn_once(source: Any, reason: str, program: Program) -> None:
    expected = copy.deepcopy(source)
    draw = getattr(type(source), "__next__", None) or type(source).random

    def function(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x + draw(source)

    assert program.compiled(function, "eager")(torch.zeros(())).item() == pytest.approx(
        draw(expected)
    )
    (found,) = program.compared()
    assert found.reason == reason


class _Cache:
    """As of transformers: a model makes one in its first call, and returns it."""

    def __init__(self, keys: torch.Tensor) -> None:
        self.layers, self.itself = [_Layer(keys)], self


class _Layer:
    def __init__(self, keys: torch.Tensor) -> None:
        self.keys = keys


def test_tensors_of_an_object_that_a_call_makes_are_compared(program: Program) -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, _Cache]:
        return x + 1, _Cache(x.sin())

    def cosine(graph: torch.fx.GraphModule) -> None:
        for node in graph.graph.nodes:
            node.target = "cos" if node.target == "sin" else node.target

    program.compiled(function, _wrong(cosine))(torch.ones(2))
    program.compiled(function, "eager")(torch.ones(2))
    wrong, right = program.compared()
    (problem,) = wrong.problems
    assert problem.startswith("output[1].layers[0].keys")
    assert (right.reason, right.problems) == ("", ())


def test_a_file_that_is_only_written_to_is_no_iterator(program: Program, tmp_path: Path) -> None:
    """Such as the standard error that a bar of progress keeps."""
    with (tmp_path / "log").open("w") as log:

        def function(x: torch.Tensor) -> torch.Tensor:
            torch._dynamo.graph_break()
            log.write("called\n")
            return x + 1

        program.compiled(function, "eager")(torch.ones(2))
    program.all_agree(1)


def test_hooks_of_a_backward_run_once(program: Program) -> None:
    seen: list[float] = []
    layer = nn.Linear(2, 2)
    layer.register_full_backward_hook(lambda *given: seen.append(given[2][0].sum().item()))
    compiled = program.compiled(layer)
    for _ in range(2):
        compiled(torch.ones(2, requires_grad=True)).sum().backward()
    program.all_agree(4)
    assert seen == [2.0, 2.0]


def test_gradients_of_an_input_that_was_computed_and_is_updated(program: Program) -> None:
    compiled = program.compiled(lambda x: x.mul_(3).sum())
    weight = torch.ones(3, requires_grad=True)
    compiled(weight * 2).backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [6.0] * 3
    program.all_agree(2)


def test_low_precision_and_ties_are_rounding(program: Program) -> None:
    """Not accused, though a backend computes in float32 and rounds at the end."""

    def backend(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        def run(*values: torch.Tensor) -> Any:
            outputs = graph(*(x.float() for x in values))
            return [x.bfloat16() if x.is_floating_point() else x for x in outputs]

        return run

    def function(x: torch.Tensor, w: torch.Tensor) -> Any:
        scores = ((x @ w).exp() @ w.T).softmax(-1)
        return scores, scores.argmax(-1), scores > scores.mean()

    compiled = program.compiled(function, backend)
    for _ in range(3):
        compiled(torch.randn(64, 32).bfloat16(), torch.randn(32, 32).bfloat16() / 4)
    program.all_agree(3)


@pytest.mark.parametrize(
    ("function", "arguments", "reason"),
    [
        (lambda x: nn.functional.dropout(x, 0.5), (torch.ones(9),), "it draws random numbers"),
        (lambda x: sum(x), (iter([torch.ones(2)]),), "x is an iterator"),
        (lambda x, to: (to.put(1), x + 1)[1], (torch.ones(2), Queue()), "to is a queue"),
    ],
    ids=["random", "iterator", "queue"],
)
def test_what_is_not_compared(
    function: Any, arguments: tuple[Any, ...], reason: str, program: Program
) -> None:
    program.compiled(function)(*arguments)
    (found,) = program.compared()
    assert (found.problems, reason in found.reason) == ((), True)


def test_a_function_that_is_compiled_inside_of_another_is_a_part_of_it(program: Program) -> None:
    inner = program.compiled(lambda x: x.cos())

    def outer(x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = inner(x)
        torch._dynamo.graph_break()
        z: torch.Tensor = inner(y) + 1
        return z

    program.compiled(outer)(torch.ones(3))
    (found,) = program.compared()
    assert found.function.endswith("outer")
    assert not found.problems


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_small_factor_is_a_fault(dtype: torch.dtype, program: Program) -> None:
    compiled = program.compiled(lambda x: (x @ x).tanh(), _wrong(_scaled))
    compiled(torch.randn(8, 8, dtype=dtype))
    (found,) = program.compared()
    assert found.problems[0].startswith("output[")
    assert "elements differ" in found.problems[0]


def test_a_wrong_gradient_is_a_fault(program: Program) -> None:
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
            return x.sin()

        @staticmethod
        def backward(_: Any, grad: torch.Tensor) -> torch.Tensor:
            return grad

    def backend(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        return lambda *values: [Wrong.apply(values[0])]

    x = torch.randn(5, requires_grad=True)
    program.compiled(torch.sin, backend)(x).sum().backward()
    call, gradients = program.compared()
    assert not call.problems
    assert gradients.part == "gradients"
    assert "5 of 5 elements differ" in gradients.problems[0]


def test_another_type_and_an_update_that_is_lost_are_faults(program: Program) -> None:
    def wider(graph: torch.fx.GraphModule) -> None:
        (last,) = (x for x in graph.graph.nodes if x.op == "output")
        with graph.graph.inserting_before(last):
            wide = graph.graph.call_method("to", (last.args[0][0], torch.int64))
        last.args = ((wide,),)

    def lost(graph: torch.fx.GraphModule) -> None:
        for node in list(graph.graph.nodes):
            if "add_" in str(node.target):
                node.replace_all_uses_with(node.args[0])
                graph.graph.erase_node(node)

    program.compiled(lambda x: x + 1, _wrong(wider))(torch.ones(2, dtype=torch.int8))
    torch._dynamo.reset()

    def update(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * 0

    program.compiled(update, _wrong(lost))(torch.zeros(3))
    first, second = program.compared()
    assert first.problems == ("output has dtype int64, in plain Python int8",)
    assert second.problems[0].startswith("x[0] is 0, in plain Python 1: 3 of 3")


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    row = {"function": "f", "file": "", "line": 0, "call": 0, "part": "call", "pid": 1}
    text = json.dumps({**row, "started": 1.0, "ended": 2.0})
    (tmp_path / "eager").mkdir()
    (tmp_path / "eager" / "1.jsonl").write_text(f"{text}\n{text[:20]}")
    assert [one.place for one in eager_calls.read(tmp_path)] == ["f"]
