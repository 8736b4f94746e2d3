"""Small programs drawn at random, as text: the same seed gives the same program.

A program is a function of a few tensors, of 3 to 14 lines. Each line is executed as it is drawn, so
that the next one knows the shapes and types that there are. `python -m
benchmarks.faults.random_models SEED` prints one.
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

if TYPE_CHECKING:
    from models import Case

_FLOATS = (
    torch.float32,
    torch.float32,
    torch.float32,
    torch.bfloat16,
    torch.float16,
    torch.float64,
)
_SIZES = (1, 2, 3, 4, 5, 7, 8, 16, 17, 24, 33)
_SMOOTH = (
    "torch.tanh({x})", "torch.sigmoid({x})", "F.gelu({x})", "F.gelu({x}, approximate='tanh')",
    "F.silu({x})", "torch.sin({x})", "{x} * 0.5 + 1.25", "({x} * {x} + 1).sqrt()",
    "torch.log1p({x}.abs())", "torch.exp(-{x}.abs())", "F.softplus({x})", "torch.erf({x})",
    "1 / (1.5 + {x}.abs())",
)  # fmt: skip
_CUT = ("F.relu({x})", "{x}.clamp(-0.75, 1.5)", "{x}.abs()", "-{x}", "{x}.neg().clamp_min(0)")
_BINARY = (
    "{x} + {y}", "{x} - {y}", "{x} * {y}", "{x} / (2 + {y}.abs())", "torch.maximum({x}, {y})",
    "torch.where({x} > {y}, {x}, {y} * 0.5)", "torch.where({y} < 0, {y}, {x})",
    "torch.addcmul({x}, {x}, {y}, value=0.25)", "torch.lerp({x}, {y}, 0.3)",
)  # fmt: skip
_REDUCTIONS = (
    "{x}.sum({d}{k})", "{x}.mean({d}{k})", "{x}.amax({d}{k})", "{x}.var({d}{k}, unbiased=False)",
    "torch.logsumexp({x}, {d}{k})", "({x} * {x}).mean({d}{k}).add(1e-3).rsqrt()",
    "torch.linalg.vector_norm({x}, dim={d}{k})",
)  # fmt: skip
_SAME = (
    "{x}.softmax({d})", "F.log_softmax({x}, {d})", "{x} - {x}.mean({d}, keepdim=True)",
    "{x}.cumsum({d})", "{x}.flip({d})", "{x}.roll(1, {d})",
    "{x} * torch.rsqrt({x}.pow(2).mean({d}, keepdim=True) + 1e-5)",
)  # fmt: skip
_WHOLE = ("{x}.sort(-1).values", "{x}.argmax(-1)", "({x} > 0).sum(-1)", "{x}.sum()", "{x}.std(-1)")
_IN_PLACE = (
    "{x}.mul_(0.5)", "{x}.add_({y})", "{x}.copy_({y} * 2)", "{x}[..., 1:].add_(1)",
    "{x}[..., :1] = {y}[..., :1] - 1", "{x}.clamp_(-1, 1)", "{x}.t_() if {x}.dim() == 2 else {x}",
    "{x}[0] = 0.25", "{x}.transpose(0, -1).mul_(1.5)",
)  # fmt: skip


@dataclass(frozen=True)
class RandomProgram:
    """A drawn program: its text, the inputs that it was drawn with, and how to compile it."""

    text: str
    inputs: tuple[Tensor, ...]
    train: bool
    dynamic: bool
    autocast: bool

    def case(self) -> Case:
        """The program as a model of the fixtures."""
        from models import Case

        space: dict[str, Any] = {"torch": torch, "F": F}
        exec(compile(self.text, "<random program>", "exec"), space)
        call = space["program"]
        if self.autocast:
            plain = call

            def call(*inputs: Tensor) -> Any:
                with torch.autocast("cpu", torch.bfloat16):
                    return plain(*inputs)

        return Case(call, self.inputs, train=self.train, dynamic=self.dynamic or None)


class _Drawing:
    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.values: dict[str, Tensor] = {}
        self.constants: set[str] = set()  # must not be written: inputs that need a gradient
        self.train = self.random.random() < 0.35
        self.autocast = self.random.random() < 0.15

    def program(self) -> RandomProgram:
        dtype = self.random.choice(_FLOATS)
        rank = self.random.choice((1, 2, 2, 3, 3, 4))
        shape = [self.random.choice(_SIZES) for _ in range(rank)]
        inputs = {}
        for number in range(self.random.randint(1, 3)):
            now = list(shape)
            if number and self.random.random() < 0.3:
                now[self.random.randrange(rank)] = 1
            value = torch.randn(now, dtype=torch.float32).to(dtype)
            if rank > 1 and self.random.random() < 0.2:
                value = value.transpose(-1, -2).contiguous().transpose(-1, -2)
            if self.train:
                value.requires_grad_()
                self.constants.add(f"x{number}")
            inputs[f"x{number}"] = value
        originals = {
            name: x.detach().clone().requires_grad_(self.train) for name, x in inputs.items()
        }
        self.values = inputs
        for _ in range(self.random.randint(3, 14)):
            self._draw_line()
        kept = self._returned()
        head = f"def program({', '.join(originals)}):\n"
        body = "".join(f"    {line}\n" for line in self.lines)
        text = f"{head}{body}    return {', '.join(kept)}\n"
        dynamic = self.random.random() < 0.25
        return RandomProgram(text, tuple(originals.values()), self.train, dynamic, self.autocast)

    def _returned(self) -> list[str]:
        drawn = [name for name in self.values if not name.startswith("x")] or list(self.values)
        last, *others = reversed(drawn)
        floats = [x for x in (last, *others) if self.values[x].is_floating_point()]
        if self.train:
            chosen = [f"{x}.float().mean()" for x in floats[:3]] or ["x0.float().sum()"]
            return [" + ".join(chosen)]
        return [last, *(x for x in others if self.random.random() < 0.25)]

    def _draw_line(self) -> None:
        for _ in range(20):
            try:
                line = self.random.choice(_DRAWERS)(self)
            except LookupError:  # there is no value of this kind yet
                continue
            if self._execute(line):
                return

    def _execute(self, line: str) -> bool:
        name = f"v{len(self.values)}"
        assigns = not line.startswith("!")
        statement = f"{name} = {line}" if assigns else line[1:]
        space = {"torch": torch, "F": F, **self.values}
        try:
            exec(statement, space)
        except (RuntimeError, IndexError, TypeError, ValueError):
            return False
        if assigns:
            value = space[name]
            usable = isinstance(value, Tensor) and 0 < value.numel() < 20_000
            if not usable or (value.is_floating_point() and not bool(value.isfinite().all())):
                return False
            if value.is_floating_point() and float(value.detach().abs().max()) > 1e3:
                return False
            self.values[name] = value
        self.lines.append(statement)
        return True

    def pick(self, fits: Callable[[Tensor], bool] = lambda x: True) -> str:
        """The name of a value, a late one more often than an early one."""
        found = [name for name, x in self.values.items() if fits(x)]
        if not found:
            raise LookupError
        return self.random.choices(found, range(1, len(found) + 1))[0]

    def dim(self, name: str) -> int:
        return self.random.randrange(-self.values[name].dim(), 0)


def _is_float(x: Tensor) -> bool:
    return x.is_floating_point()


def _unary(d: _Drawing) -> str:
    return d.random.choice(_SMOOTH + _CUT).format(x=d.pick(_is_float))


def _binary(d: _Drawing) -> str:
    x, y = d.pick(_is_float), d.pick(_is_float)
    return d.random.choice(_BINARY).format(x=x, y=y)


def _reduction(d: _Drawing) -> str:
    x = d.pick(lambda one: _is_float(one) and one.dim() > 0)
    keep = d.random.choice((", keepdim=True", ", keepdim=True", ""))
    return d.random.choice(_REDUCTIONS).format(x=x, d=d.dim(x), k=keep)


def _along(d: _Drawing) -> str:
    x = d.pick(lambda one: _is_float(one) and one.dim() > 0)
    return d.random.choice(_SAME).format(x=x, d=d.dim(x))


def _whole(d: _Drawing) -> str:
    return d.random.choice(_WHOLE).format(x=d.pick(lambda x: _is_float(x) and x.dim() > 0))


def _product(d: _Drawing) -> str:
    x = d.pick(lambda one: _is_float(one) and one.dim() > 1)
    y = d.pick(lambda one: _is_float(one) and one.dim() > 1)
    scale = d.values[x].shape[-1] ** -0.5
    way = d.random.choice((f"({x} @ {y}.mT)", f"({x}.mT @ {x})", f"torch.matmul({x}, {y})"))
    return f"{way} * {scale:.3f}"


def _norm(d: _Drawing) -> str:
    x = d.pick(lambda one: _is_float(one) and one.dim() > 1)
    size = d.values[x].shape[-1]
    return d.random.choice((
        f"F.layer_norm({x}, ({size},))",
        f"F.rms_norm({x}, ({size},))",
        f"F.normalize({x}, dim=-1)",
    ))  # fmt: skip


def _view(d: _Drawing) -> str:
    x = d.pick(lambda one: one.dim() > 1)
    value, dim = d.values[x], d.dim(x)
    size = value.shape[dim]
    begin = d.random.randrange(size)
    return d.random.choice((
        f"{x}.transpose({dim}, 0)",
        f"{x}.transpose({dim}, 0).contiguous()",
        f"{x}.reshape(-1, {value.shape[-1]})",
        f"{x}.flatten()",
        f"{x}.narrow({dim}, {begin}, {size - begin})",
        f"{x}.select({dim}, {begin})",
        f"{x}.unsqueeze({dim}).expand({', '.join(str(n) for n in _expanded(value, dim))})",
        f"{x}[..., ::2]",
        f"{x}.chunk(2, {dim})[0]",
        f"{x}.diagonal(0, 0, 1)",
        f"{x}.unfold(-1, {max(1, value.shape[-1] // 2)}, 1)",
    ))  # fmt: skip


def _expanded(value: Tensor, dim: int) -> list[int]:
    shape = list(value.shape)
    shape.insert(value.dim() + 1 + dim, 2)
    return shape


def _joined(d: _Drawing) -> str:
    x = d.pick(lambda one: one.dim() > 0)
    dim = d.dim(x)
    y = d.pick(lambda one: one.dim() == d.values[x].dim())
    return d.random.choice((
        f"torch.cat([{x}, {y}], {dim})",
        f"torch.stack([{x}, {y}], {dim})",
        f"F.pad({x}, (1, 2), value=0.5)",
        f"torch.cat([{x}[..., 1:], {x}[..., :1] * 2], -1)",
    ))  # fmt: skip


def _cast(d: _Drawing) -> str:
    return f"{d.pick()}.to({d.random.choice((*_FLOATS, torch.int32, torch.int64))})"


def _integer(d: _Drawing) -> str:
    x = d.pick(lambda one: not _is_float(one) and one.dtype != torch.bool)
    return d.random.choice((
        f"{x} * 3 + 1", f"{x} // 2", f"{x} % 5", f"{x} & 6", f"{x} << 1", f"{x}.float() / 7",
        f"({x} > 1) & ({x} < 9)", f"{x}.abs().clamp_max(100)",
    ))  # fmt: skip


def _boolean(d: _Drawing) -> str:
    x = d.pick(lambda one: one.dtype == torch.bool)
    return d.random.choice(
        (f"~{x}", f"{x}.float()", f"torch.where({x}, 1.5, -2.0)", f"{x}.any(-1)")
    )


def _indexed(d: _Drawing) -> str:
    x = d.pick(lambda one: one.dim() > 0 and one.shape[0] > 1)
    size = d.values[x].shape[0]
    length = d.random.randint(1, 9)
    index = f"torch.arange({length}) * 5 % {size}"
    # Where an element is put twice, a kernel of torch 2.13 reads what it has just put: `x[i] * 2`
    # into `x[i]` doubles twice, which is found, and rightly.
    once = f"torch.arange({min(length, size)}).flip(0)"
    return d.random.choice((
        f"{x}[{index}]",
        f"{x}.index_select(0, {index})",
        f"torch.zeros_like({x}).index_add(0, {index}, {x}[{index}])",
        f"{x}.index_put(({once},), {x}[{once}] * 2)",
        f"{x}.index_fill(0, {index}, 1)",
        f"{x}.masked_fill({x} > 0.5, 0.125)",
        f"{x}.gather(0, ({x} > 0).long())",
        f"torch.zeros_like({x}).scatter_add(0, ({x} > 0).long(), {x})",
        f"{x}.slice_scatter({x}[1:] * 2, 0, 1)",
        f"{x}.select_scatter({x}[0] + 1, 0, {size - 1})",
        f"F.embedding({x}.abs().long().clamp_max({size - 1}), {x}.reshape({size}, -1))",
        f"torch.as_strided({x}.contiguous(), ({size // 2},), (2,))",
        f"{x}.tril() if {x}.dim() > 1 else {x}",
    ))  # fmt: skip


def _written(d: _Drawing) -> str:
    """An update in place: of an input, of a value, or of a copy."""
    x = d.pick(lambda one: _is_float(one) and one.dim() > 0)
    y = d.pick(_is_float)
    if x in d.constants or d.random.random() < 0.5:
        return f"{x}.clone()"
    return "!" + d.random.choice(_IN_PLACE).format(x=x, y=y)


_DRAWERS: tuple[Callable[[_Drawing], str], ...] = (
    _unary, _unary, _unary, _binary, _binary, _binary, _reduction, _reduction, _along, _whole,
    _product, _norm, _view, _view, _joined, _cast, _integer, _boolean, _indexed, _indexed, _written,
    _written,
)  # fmt: skip


def drawn(seed: int) -> RandomProgram:
    """Draw the program of a seed: the first one that eager PyTorch runs, backward too."""
    torch.manual_seed(seed)
    for attempt in count():
        found = _Drawing(f"{seed} {attempt}").program()
        try:
            run(found.case().fn, found)
        except RuntimeError:  # an update in place of what the backward pass needs
            continue
        return found
    raise AssertionError("unreachable")


def run(call: Callable[..., Any], program: RandomProgram) -> None:
    """Call a program on copies of its inputs, and go back through it if it is trained."""
    inputs = [x.detach().clone().requires_grad_(x.requires_grad) for x in program.inputs]
    with contextlib.nullcontext() if program.train else torch.no_grad():
        results = call(*inputs)
    if program.train:
        results.backward()


def main(first: int, last: int) -> None:
    """Compile and run the programs of a range of seeds, each with its own graph. A program that
    torch cannot compile is named: torch 2.11 fails at one of a hundred."""
    for seed in range(first, last):
        program = drawn(seed)
        case = program.case()
        torch._dynamo.reset()
        try:
            run(torch.compile(case.fn, dynamic=case.dynamic), program)
        except torch._dynamo.exc.TorchDynamoException as error:
            why = str(error).partition("\n")[0]
            print(f"seed {seed} does not compile: {type(error).__name__}: {why}", file=sys.stderr)


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parents[2] / "fixtures"))
    if len(sys.argv) == 2:
        print(drawn(int(sys.argv[1])).text)
    else:
        main(*map(int, sys.argv[1:3]))
