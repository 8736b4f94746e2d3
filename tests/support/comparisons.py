"""Wrappers with a fault planted at a known launch, and dumps of them.

A plant takes the source of a wrapper and gives another. Each has one fault, at one launch, and the
launches keep their indices (but for `reordered`, which is no fault). Where the launch is planted
in its own text or in that of its kernel, everything that reads the wrapper sees the fault as it
would see one of Inductor's; `corrupted` plants at run time, for one run of a launch among many.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
import torch._inductor.config as inductor_config
from torch import nn

import rewriter
from capture import Graph, compile_case
from harness import call
from models import MODELS, Case
from rewriter.comparison.dumps.types import Comparison, LaunchComparison
from rewriter.dump.launched import RecordedLaunch
from rewriter.instrumentation.types import Selection
from rewriter.locate.types import Launch

DIFFERS = ("numeric", "non-finite", "structural")

Run = tuple[int, int]  # a launch's index in its wrapper, and the iteration


class Layers(nn.Module):
    """Two independent projections, then equal blocks that share their kernels.

    All matrices are square, so that any two of them may change places.
    """

    def __init__(self, depth: int = 6) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(16, 16), nn.Linear(16, 16)
        self.blocks = nn.ParameterList(nn.Parameter(torch.randn(16, 16) / 4) for _ in range(depth))

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = a / 2 - b
        x = self.left(x) - self.right(a)
        for weight in self.blocks:
            x = torch.tanh(x @ weight) - x * 0.5
        return torch.softmax(x, -1), (b * 3).sum(0)


def layers(dtype: torch.dtype = torch.float32) -> Case:
    """The same numbers in every dtype, as far as it holds them."""
    torch.manual_seed(0)
    inputs = (torch.randn(16, 16), torch.randn(16, 16))
    return Case(Layers().to(dtype), tuple(x.to(dtype) for x in inputs))


def bfloat16_layers() -> Case:
    return layers(torch.bfloat16)


class Attention(nn.Module):
    """Attention by hand, which Inductor's pattern matcher makes one launch of, and an output."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(16, 16) for _ in range(3))
        self.out = nn.Parameter(torch.randn(16, 16) / 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (f(x).view(2, 8, 2, 8).transpose(1, 2) for f in (self.q, self.k, self.v))
        weights = torch.softmax(q @ k.transpose(-1, -2) / 8**0.5, -1)
        attended = (weights @ v).transpose(1, 2).reshape(16, 16)
        return torch.relu(x.view(16, 16) @ self.out + attended)


def attention() -> Case:
    torch.manual_seed(0)
    return Case(Attention(), (torch.randn(2, 8, 16),))


class Trained(nn.Module):
    """A product, an activation, and attention, which is an operator without `out`."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = nn.functional.gelu(self.up(x)).view(2, 1, 8, 16)
        return nn.functional.scaled_dot_product_attention(h, h, h, is_causal=True) + 1


def trained() -> Case:
    torch.manual_seed(0)
    return Case(Trained(), (torch.randn(2, 8, 16, requires_grad=True),), train=True)


def dropout() -> Case:
    return MODELS["dropout"]("cpu")


def launches(source: str) -> tuple[Launch, ...]:
    """The launches of a wrapper that is no file."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "output_code.py"
        path.write_text(source)
        return rewriter.open(path).launches


def find(source: str, kernel: str, nth: int = 0) -> int:
    """The index of the `nth` launch whose kernel has `kernel` in its name."""
    found = [launch.index for launch in launches(source) if kernel in launch.kernel]
    return found[nth]


# --- Plants


def swapped(source: str, index: int, first: int, second: int) -> str:
    """Exchange two arguments of a launch, counted from 0."""
    line = launches(source)[index].line - 1
    lines = source.splitlines(keepends=True)
    head, arguments, tail = _call(lines[line], launches(source)[index].kernel)
    arguments[first], arguments[second] = arguments[second], arguments[first]
    lines[line] = head + ", ".join(arguments) + tail
    return "".join(lines)


def argument_changed(source: str, index: int, which: int, text: str) -> str:
    """Replace an argument of a launch, counted from 0, negative from the end."""
    line = launches(source)[index].line - 1
    lines = source.splitlines(keepends=True)
    head, arguments, tail = _call(lines[line], launches(source)[index].kernel)
    assert arguments[which] != text
    arguments[which] = text
    lines[line] = head + ", ".join(arguments) + tail
    return "".join(lines)


def kernel_changed(source: str, index: int, old: str, new: str) -> str:
    """Replace text in the C++ of the kernel of a launch, once, and for this launch alone.

    A kernel that other launches share is defined a second time, with another number, as Inductor
    numbers kernels.
    """
    found = launches(source)
    kernel = found[index].kernel
    start, end = _definition(source, kernel)
    changed = source[start:end].replace(old, new, 1)
    assert changed != source[start:end], f"{old!r} is not in {kernel}"
    if sum(launch.kernel == kernel for launch in found) == 1:
        return source[:start] + changed + source[end:]
    second = re.sub(r"\d+$", "77", kernel)
    lines = source.splitlines(keepends=True)
    line = found[index].line - 1
    lines[line] = lines[line].replace(f"{kernel}(", f"{second}(")
    return "".join(lines).replace(
        source[start:end], source[start:end] + changed.replace(f"{kernel} =", f"{second} =", 1), 1
    )


def rounded(source: str, index: int) -> str:
    """Let a launch's kernel of Inductor's compute its first operand in bfloat16."""
    loaded = re.compile(r"auto tmp0 = (at::vec::Vectorized<float>::loadu\(.*\));")
    start, end = _definition(source, launches(source)[index].kernel)
    match = loaded.search(source, start, end)
    assert match is not None
    rounding = f"auto tmp0 = at::vec::convert<float>(at::vec::convert<at::BFloat16>({match[1]}));"
    return kernel_changed(source, index, match[0], rounding)


def poisoned(source: str, index: int) -> str:
    """Let a launch's kernel of Inductor's store a NaN for the first element of each vector."""
    start, end = _definition(source, launches(source)[index].kernel)
    stored = re.compile(r"(tmp\d+)(\.store\((?:in_)?out_ptr\d+)")
    value, store = stored.findall(source, start, end)[-1]
    vector = "at::vec::Vectorized<float>"
    nan = f"{vector}(std::numeric_limits<float>::quiet_NaN())"
    wrong = f"({value} * {vector}::set({vector}(1), {nan}, 1)){store}"
    return kernel_changed(source, index, value + store, wrong)


def corrupted(source: str, index: int, fault: str, run: int = 0) -> str:
    """Give a fault to one run of a launch of a Python wrapper: `FAULTS` names them.

    `run` counts the runs of that launch. Its text stays as it is: what it calls is another.
    """
    found = launches(source)
    kernel = found[index].kernel
    # Calls are counted by kernel, and none of the others may be in a loop.
    before = [launch for launch in found if launch.kernel == kernel and launch.index < index]
    assert not any(launch.repeats for launch in before)
    nth = len(before) + run
    name, _, member = kernel.partition(".")
    writes = next(i for i, arg in enumerate(found[index].args) if arg.role != "in")
    # Kernels are complete here, and functions look their names up when they run. An assignment
    # would be read as the kernel's definition.
    planted = f"globals(), {name!r}, {member!r}, {nth}, {fault!r}, {writes}"
    line = f"__import__('comparisons').plant({planted})"
    return source.replace("\nrunner = Runner", f"\n{line}\nrunner = Runner", 1)


def plant(module: dict[str, Any], name: str, *fault: Any) -> None:
    """Put a kernel of a wrapper, or its module of kernels, in the place of one with a fault."""
    module[name] = faulty(module[name], *fault)


def faulty(kernel: Any, member: str, nth: int, fault: str, writes: int) -> Any:
    """A kernel, or a module of kernels, whose `nth` call (of `member`) goes wrong.

    It writes its argument `out`, or the one at position `writes`.
    """
    runs = itertools.count()
    function = getattr(kernel, member) if member else kernel

    def launch(*args: Any, **kwargs: Any) -> Any:
        if next(runs) != nth:
            return function(*args, **kwargs)
        out = kwargs["out"] if "out" in kwargs else args[writes]
        return FAULTS[fault](partial(function, **kwargs), args, out)

    if not member:
        return launch
    return type(
        "Kernels",
        (),
        {
            "__getattr__": lambda _, name: getattr(kernel, name),
            member: staticmethod(launch),
        },
    )()


Fault = Callable[[Callable[..., Any], Sequence[Any], torch.Tensor], Any]


def _bfloat16(function: Callable[..., Any], args: Sequence[Any], out: torch.Tensor) -> Any:
    """A launch that reads what it should and computes in lower precision."""
    return function(*(x.to(torch.bfloat16).to(x.dtype) for x in args))


def _overwriting(function: Callable[..., Any], args: Sequence[Any], out: torch.Tensor) -> Any:
    """A launch that writes to what it should only read."""
    result = function(*args)
    args[0].mul_(1.01)
    return result


def _afterwards(change: Callable[[torch.Tensor], Any]) -> Fault:
    def fault(function: Callable[..., Any], args: Sequence[Any], out: torch.Tensor) -> Any:
        result = function(*args)
        change(out)
        return result

    return fault


FAULTS: dict[str, Fault] = {
    "bfloat16": _bfloat16,
    "nan": _afterwards(lambda out: out[..., 3:4].fill_(torch.nan)),
    "scaled": _afterwards(lambda out: out.mul_(1.01)),
    # The right values in the wrong places, which no statistic shows.
    "rolled": _afterwards(lambda out: out.copy_(out.roll(1, 0))),
    "overwriting": _overwriting,
}


def reordered(source: str, index: int) -> str:
    """Let the launch at `index`, in a Python wrapper, run after the one that follows it.

    The two must be independent. What the first one's names are released by moves as well.
    """
    first, second = (launch.line - 1 for launch in launches(source)[index : index + 2])
    lines = source.splitlines(keepends=True)
    start = first
    while lines[start - 1].strip().startswith("#"):
        start -= 1
    between = lines[first + 1 : second]
    released = [line for line in between if line.strip().startswith("del ")]
    kept = [line for line in between if line not in released]
    moved = [*kept, lines[second], *lines[start : first + 1], *released]
    return "".join([*lines[:start], *moved, *lines[second + 1 :]])


def _call(line: str, kernel: str) -> tuple[str, list[str], str]:
    """A line up to the arguments of a call of `kernel`, the arguments, and the rest."""
    start = line.index(f"{kernel}(") + len(kernel) + 1
    arguments, depth, at = [], 0, start
    for end in range(start, len(line)):
        if line[end] in "([{":
            depth += 1
        elif (line[end] == "," and depth == 0) or (line[end] == ")" and depth == 0):
            arguments.append(line[at:end].strip())
            at = end + 1
        if line[end] in ")]}":
            if depth == 0:
                return line[:start], arguments, line[end:]
            depth -= 1
    raise AssertionError(f"no call of {kernel} in {line!r}")


def _definition(source: str, kernel: str) -> tuple[int, int]:
    """Where a kernel of Inductor's is defined in a wrapper."""
    python = re.compile(rf"^{kernel} = async_compile\.cpp_pybinding.*?^'''\)\n", re.M | re.S)
    match = python.search(source)
    assert match is not None, kernel
    return match.span()


# --- Dumps


@dataclass(frozen=True)
class Configured(Graph):
    """A graph that has to run under the settings that it was compiled with.

    How wide vectors are is one: kernels are compiled when the wrapper is imported.
    """

    settings: dict[str, Any] = field(default_factory=dict)


@cache
def graph_of(build: Callable[[], Case], settings: str = "") -> Graph:
    """The one graph of a case under one of `SETTINGS`; compiled once."""
    (graph,) = compile_case(build(), **SETTINGS[settings]).graphs
    return Configured(graph.source, graph.args, SETTINGS[settings])


SETTINGS: dict[str, dict[str, Any]] = {
    "": {},
    "eager": {"fallback_by_default": True},  # a launch for each operator, as in eager mode
    "no patterns": {"pattern_matcher": False},
    "narrow vectors": {"cpp.simdlen": 256},
    "no vectors": {"cpp.simdlen": 1},
    "fusion off": {"max_fusion_size": 1, "cpp.max_horizontal_fusion_size": 1},
    "realized": {"realize_opcount_threshold": 1, "realize_reads_threshold": 1},
    "no reuse": {"allow_buffer_reuse": False, "inplace_buffers": False},
    "random": {"fallback_random": True},
    "eager random": {"fallback_by_default": True, "fallback_random": True},
}


def but(graph: Graph, *plants: Callable[[str], str]) -> Graph:
    """A graph with plants in its source, one after the other."""
    source = graph.source
    for plant in plants:
        source = plant(source)
    assert source != graph.source
    return replace(graph, source=source)


class Dumps:
    """Runs wrappers with probes; a wrapper with the same probes runs once, for all tests."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count()
        self._done: dict[Any, Path] = {}

    def __call__(self, *graphs: Graph, probe: str = "save", **options: Any) -> Path:
        """The dump of one process that called these, in this order, on their own inputs."""
        selection = rewriter.select(probe, **options)
        key = (tuple((graph.source, id(graph.args)) for graph in graphs), selection)
        if key not in self._done:
            self._done[key] = self._dump(graphs, selection)
        return self._done[key]

    def _dump(self, graphs: Sequence[Graph], selection: Selection) -> Path:
        folder = self._folder / str(next(self._numbers))
        folder.mkdir()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("REWRITER_DUMP", str(folder / "dump"))
            for number, graph in enumerate(graphs):
                path = folder / f"graph{number}.py"
                path.write_text(graph.source)
                probed = rewriter.instrument(path, selection)
                assert not probed.plan.skipped
                settings = graph.settings if isinstance(graph, Configured) else {}
                with inductor_config.patch(settings):
                    call(probed.source, graph.args, folder)
        return folder / "dump"


# --- What a comparison should find


def affected(source: str, culprit: int) -> set[int]:
    """The launches that read, by whatever way, what `culprit` writes; it is none of them.

    For wrappers without loops: a launch reads what stands above it.
    """
    found = launches(source)
    wrong: set[str] = set()
    result = set()
    for launch in found[culprit:]:
        reads = {arg.buffer for arg in launch.args if arg.role != "out"}
        writes = {arg.buffer for arg in launch.args if arg.role != "in"}
        if launch.index == culprit:
            wrong |= writes
        elif reads & wrong:
            result.add(launch.index)
            wrong |= writes
        else:
            wrong -= writes
    return result


def ran(place: RecordedLaunch) -> Run:
    assert place.launch is not None
    return place.launch, place.iteration


def culprits(comparison: Comparison) -> list[Run]:
    """The culprits by their places in the first dump, in order."""
    return [ran(found.place) for found in comparison.culprits]


def origins(comparison: Comparison, of: LaunchComparison) -> set[tuple[str, int]]:
    """The runs and steps that what a launch read came from, by whatever way."""
    by_step = {
        (found.a.run, found.a.step): found for found in comparison.launches if found.a is not None
    }
    todo, done = [(place.run, place.step) for place in of.producers], set()
    while todo:
        step = todo.pop()
        if step not in done:
            done.add(step)
            todo += [(place.run, place.step) for place in by_step[step].producers]
    return done


def assert_found(comparison: Comparison, launch: int, iteration: int = 0) -> None:
    """There is one culprit, and it is this run of this launch; see `assert_first`."""
    assert culprits(comparison) == [(launch, iteration)]
    assert_first(comparison, launch, iteration)


def assert_first(comparison: Comparison, launch: int, iteration: int = 0) -> None:
    """The first culprit is this run of this launch.

    What ran before it is equal. What is wrong after it and no culprit follows from a culprit.
    """
    first = comparison.culprits[0]
    assert first.a is not None
    assert ran(first.a) == (launch, iteration)
    assert first.state in DIFFERS
    guilty = {(found.a.run, found.a.step) for found in comparison.culprits if found.a}
    position = comparison.launches.index(first)
    for number, other in enumerate(comparison.launches):
        if other.blame == "downstream":
            assert number > position, other.place
            assert guilty & origins(comparison, other), other.place
        elif other.blame == "" and other.matched:
            assert other.state not in DIFFERS, other.place


def downstream(comparison: Comparison) -> set[int]:
    """The launches that went wrong because of what they were given."""
    return {
        found.place.launch
        for found in comparison.launches
        if found.blame == "downstream" and found.place.launch is not None
    }
