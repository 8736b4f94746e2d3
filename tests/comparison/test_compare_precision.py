"""Runs in float32 against runs in lower precision: rounding is told from a fault.

The models are computed here, launch by launch, and dumped as a runtime would: nothing is compiled.
Compiled ones are in test_compare_references.py.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch.nn import functional

import dumps
from dumps import launch, value
from rewriter import cli
from rewriter.comparison.dumps import describe
from rewriter.comparison.dumps.compare import compare
from rewriter.comparison.dumps.types import Comparison
from sampling import one_in

pytestmark = pytest.mark.properties

Tensor = torch.Tensor
Function = Callable[..., Tensor]
Fault = Callable[[Function], Function]


class Program:
    """Runs functions one after the other in a dtype, and keeps what each read and wrote.

    A kernel computes in float32 and rounds its result, as Inductor's do. `faults` are by launch.
    """

    def __init__(self, dtype: torch.dtype, faults: dict[int, Fault]) -> None:
        self.dtype, self._faults = dtype, faults
        self.launches: list[tuple[dumps.Row, list[dumps.Row]]] = []
        self.inputs: list[dumps.Row] = []
        self.tensors: dict[str, Tensor] = {}
        self._names: dict[int, str] = {}
        self._kept: list[Tensor] = []

    def given(self, tensor: Tensor) -> Tensor:
        held = tensor.to(self.dtype)
        name = self._name(held, f"arg{len(self.inputs)}_1")
        self.inputs.append(self._row(name, held, "in"))
        return held

    def run(self, kernel: str, function: Function, *operands: Tensor) -> Tensor:
        index = len(self.launches)
        function = self._faults.get(index, lambda same: same)(function)
        result = function(*(x.float() for x in operands)).to(self.dtype)
        reads = [self._row(self._names[id(x)], x, "in") for x in operands]
        name = self._name(result, f"buf{index}")
        made = launch(index, f"{kernel}", reads, [self._row(name, result, "out")])
        self.launches.append(made)
        return result

    def save(self, folder: Path) -> Path:
        made = dumps.write(folder, self.launches, inputs=self.inputs)
        for name, tensor in self.tensors.items():
            torch.save(tensor, made / f"rank0/run0/{name}.pt")
        return made

    def _name(self, tensor: Tensor, name: str) -> str:
        self._names[id(tensor)] = name
        self._kept.append(tensor)  # or another one would have its number
        self.tensors[name] = tensor.contiguous()
        return name

    def _row(self, name: str, tensor: Tensor, role: str) -> dumps.Row:
        wide = tensor.double()
        finite = wide[wide.isfinite()]
        row = value(name, role, dtype=str(tensor.dtype).partition(".")[2], file=f"{name}.pt")
        row |= {"shape": list(tensor.shape), "numel": tensor.numel()}
        row |= {"nan": int(wide.isnan().sum()), "inf": int(wide.isinf().sum())}
        for fact in ("mean", "min", "max"):
            row[fact] = getattr(finite, fact)().item() if finite.numel() else None
        return row


def convolutions(program: Program) -> None:
    """Twelve launches; the first convolution is #0."""
    x = program.given(torch.randn(4, 3, 16, 16))
    weight = program.given(torch.randn(24, 3, 3, 3) / 5)
    convolved = partial(functional.conv2d, padding=1)
    x = program.run("extern_kernels.convolution", convolved, x, weight)
    x = program.run("cpp_fused_relu_0", functional.relu, x)
    for block in range(5):
        weight = program.given(torch.randn(24, 24, 3, 3) / 15)
        bias = program.given(torch.randn(24) / 10)
        y = program.run("extern_kernels.convolution", convolved, x, weight, bias)
        x = program.run(
            f"cpp_fused_add_relu_{block}", lambda a, b: a * 0.8 + functional.relu(b), x, y
        )
    program.run("cpp_fused_mean_9", lambda a: a.mean((2, 3)), x)


def perceptron(program: Program) -> None:
    """Fifteen launches, with a normalization and a softmax at the end."""
    x = program.given(torch.randn(64, 48))
    for layer in range(6):
        weight = program.given(torch.randn(48, 48) / 7)
        bias = program.given(torch.randn(48) / 10)
        y = program.run("extern_kernels.addmm", torch.addmm, bias, x, weight)
        x = program.run(
            f"cpp_fused_gelu_{layer}", lambda a, b: functional.gelu(a) * 1.25 + b * 0.5, y, x
        )
    x = program.run("cpp_fused_native_layer_norm_6", lambda a: functional.layer_norm(a, (48,)), x)
    x = program.run("cpp_fused_sub_mean_7", lambda a: a * 3 - a.mean(1, keepdim=True), x)
    program.run("cpp_fused__softmax_8", lambda a: a.softmax(-1), x)


MODELS = {"convolutions": convolutions, "perceptron": perceptron}


@pytest.fixture
def compared(tmp_path: Path) -> Callable[..., Comparison]:
    numbers = itertools.count()

    def act(
        model: str, seed: int, dtype: torch.dtype, faults: dict[int, Fault] | None = None
    ) -> Comparison:
        made = []
        for which, planted in ((dtype, faults or {}), (torch.float32, {})):
            torch.manual_seed(seed)
            program = Program(which, planted)
            MODELS[model](program)
            made.append(program.save(tmp_path / str(next(numbers))))
        return compare(*made)

    return act


@pytest.mark.parametrize("seed", one_in(3, range(3)))
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("model", MODELS)
def test_rounding_explains_a_correct_model(
    model: str, dtype: torch.dtype, seed: int, compared: Callable[..., Comparison]
) -> None:
    comparison = compared(model, seed, dtype)
    assert [str(found.place) for found in comparison.culprits] == []
    assert comparison.rounded
    assert str(dtype).partition(".")[2] in describe.verdict(comparison)


def scaled(factor: float) -> Fault:
    return lambda function: lambda *operands: function(*operands) * factor


def swapped(function: Function) -> Function:
    return lambda *operands: function(*reversed(operands))


def summed(factor: float) -> Fault:
    return lambda _: lambda a, b: a * factor + functional.relu(b)


FAULTS: dict[str, tuple[str, int, Fault]] = {
    "a factor off by 1 % in a convolution": ("convolutions", 10, scaled(1.01)),
    "a factor off by 1 % in a sum": ("convolutions", 9, summed(0.808)),
    "a factor off by 10 %": ("convolutions", 9, summed(0.88)),
    "another operator": ("convolutions", 11, lambda _: lambda a, b: a * 0.8 + b.abs()),
    "swapped operands": ("convolutions", 9, swapped),
    "another order": ("convolutions", 10, lambda f: lambda *x: f(*x).roll(1, 0)),
    "a product off by 1 %": ("perceptron", 10, scaled(1.01)),
    "a factor off by 1 % in gelu": ("perceptron", 9, scaled(1.01)),
    "a term left out": ("perceptron", 10, lambda _: lambda bias, x, w: x @ w),
    "swapped terms": ("perceptron", 9, swapped),
    "another activation": ("perceptron", 9, lambda _: lambda a, b: functional.relu(a) * 1.25 + b),
    "a transposed weight": ("perceptron", 10, lambda f: lambda b, x, w: f(b, x, w.T)),
    "something added": ("perceptron", 9, lambda f: lambda *x: f(*x) + 0.02),
}


@pytest.mark.parametrize("name", one_in(4, list(FAULTS)))
def test_a_fault_is_named_and_nothing_before_it(
    name: str, compared: Callable[..., Comparison]
) -> None:
    """Nine launches and more behind the first one, in bfloat16."""
    model, index, fault = FAULTS[name]
    for seed in range(2):
        comparison = compared(model, seed, torch.bfloat16, {index: fault})
        assert not comparison.equal
        assert [found.place.launch for found in comparison.culprits][:1] == [index]
        assert comparison.culprits[0].reasons


def test_the_command_says_it_and_strict_minds_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = []
    for name, dtype in (("a", torch.bfloat16), ("b", torch.float32)):
        torch.manual_seed(0)
        program = Program(dtype, {})
        perceptron(program)
        paths.append(str(program.save(tmp_path / name)))
    assert cli.main(["compare", *paths]) == 0
    said = capsys.readouterr().out
    assert said.startswith("equal up to rounding: bfloat16 explains all differences of 15 of 15")
    assert cli.main(["compare", *paths, "--strict"]) == 1
    # Where somebody says what is allowed, that counts.
    assert cli.main(["compare", *paths, "--rtol", "1e-3"]) == 1
    capsys.readouterr()
    assert cli.main(["compare", *paths, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == "rounding"
    assert found["counts"]["rounding"] == 15
    assert all(x["allowed"] is not None for x in found["launches"][5]["results"])
