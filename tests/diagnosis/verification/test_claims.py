"""What of real GPU wrappers can be checked, by their text alone: each launch is judged on random
numbers of the shapes that the wrapper has, and has to have a claim. No GPU is needed.

That clean launches agree with their claims, and others do not, is for `test_fragments.py`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from graph_calls import saved_row
from rewriter.artifact.opening import open_artifact
from rewriter.diagnosis.verification import calls
from rewriter.diagnosis.verification.bounded import UncheckedError, exact
from rewriter.diagnosis.verification.fragments import NoneAgreesError, check_fragment
from rewriter.diagnosis.verification.received import LaunchValues
from rewriter.dump.documents import RunFacts
from rewriter.dump.reading import RunDump
from rewriter.dump.rows import TensorRow
from rewriter.locate.types import Argument, Launch
from rewriter.model_names.fragment import fragments
from rewriter.model_names.graph import FxGraph

_ARTIFACTS = Path(__file__).parents[3] / "fixtures" / "artifacts"
_SIZE = re.compile(r"\b[su]\d+\b")
_TUPLE = r"\(((?:[^()]|\([^()]*\))*)\)"
_MADE = re.compile(rf"(\w+) = empty_strided_\w+\({_TUPLE}, {_TUPLE}, torch\.(\w+)\)")
_INPUT = re.compile(
    rf"(\w+) = rand_strided\({_TUPLE}, {_TUPLE}, device=[^,]*, dtype=torch\.(\w+)\)"
)
_ASSERTED = re.compile(rf"assert_size_stride\((\w+), {_TUPLE}, {_TUPLE}")
_VIEW = re.compile(rf"reinterpret_tensor\((\w+), {_TUPLE}, {_TUPLE}, [^()]*\)")
_SAME = re.compile(r"^ +(\w+) = (\w+|reinterpret_tensor\(.*?\))(?:;|$| *#)", re.MULTILINE)
_CALLED = ("extern_out", "extern_alloc", "fallback", "custom_op")


class _Shapes:
    """The tensors of a wrapper as its text has them; sizes with a name are 4."""

    def __init__(self, text: str) -> None:
        self._known: dict[str, tuple[tuple[int, ...], str]] = {}
        for match in (*_INPUT.finditer(text), *_MADE.finditer(text)):
            self._known[match[1]] = (_numbers(match[2]), match[4])
        for match in _ASSERTED.finditer(text):
            self._known.setdefault(match[1], (_numbers(match[2]), ""))
        for match in _SAME.finditer(text):
            if (known := self.of(match[2])) is not None:
                self._known.setdefault(match[1], known)

    def of(self, expression: str) -> tuple[tuple[int, ...], str] | None:
        """The shape and the dtype of an expression; the dtype is empty where nothing says it."""
        if (view := _VIEW.fullmatch(expression)) is not None:
            base = self._known.get(view[1])
            return _numbers(view[2]), base[1] if base else ""
        return self._known.get(expression)


def _numbers(text: str) -> tuple[int, ...]:
    parts = (one.strip() for one in _SIZE.sub("4", text).split(","))
    return tuple(int(eval(one, {"__builtins__": {}})) for one in parts if one)


def _tensor(shapes: _Shapes, argument: Argument) -> torch.Tensor | None:
    known = shapes.of(argument.expr) or shapes.of(argument.name) or shapes.of(argument.buffer)
    if known is None:
        return None
    dtype = getattr(torch, known[1] or "float32")
    if dtype.is_floating_point:
        return (torch.rand(known[0]) + 0.5).to(dtype)
    return torch.randint(0, 2, known[0]).to(dtype)


def _of_fragment(graph: FxGraph | None, launch: Launch, shapes: _Shapes, folder: Path) -> str:
    """Why a kernel has no claim by its fragment."""
    if graph is None:
        return "no fragment stands above it"
    given: dict[str, TensorRow] = {}
    written: dict[str, TensorRow] = {}
    for argument in launch.tensors:
        if (tensor := _tensor(shapes, argument)) is None:
            continue
        name, about = argument.name, {"launch": 0, "role": argument.role, "device": "cuda:0"}
        if argument.role != "out":
            given[name] = saved_row(folder, name, tensor, "before", **about)
        if argument.role != "in":
            written[name] = saved_row(folder, name, tensor, **about)
    values = LaunchValues(RunDump(folder, 0, 0, RunFacts()), launch, given, written)
    try:
        found = check_fragment(graph, values)
    except NoneAgreesError:
        return ""  # on other values it does
    except UncheckedError as error:
        return str(error)
    return "" if found else "nothing that it writes has a claim"


def _of_call(source: bytes, launch: Launch, shapes: _Shapes) -> str:
    """Why a call has no claim by its operator."""
    tensors = [x for x in launch.args if x.type == "tensor" and x.role != "out"]
    given = {x.expr: _tensor(shapes, x) for x in tensors}
    known = {text: exact(tensor) for text, tensor in given.items() if tensor is not None}
    point = launch.insertion_point
    try:
        value = calls.evaluate(source[point.start : point.end].decode(), known)
    except UncheckedError as error:
        return str(error)
    return "" if any(x is not None for x in calls.outputs(value)) else "it has no result"


def _without_claim(version: str, folder: Path) -> Iterator[tuple[str, str]]:
    """Each launch of the wrappers of a version of torch, and why it has no claim."""
    for file in sorted((_ARTIFACTS / f"cuda-torch{version}").glob("*/python/*.py")):
        wrapper = open_artifact(file).only
        source = wrapper.plain.data
        by_kernel, shapes = fragments(source.decode()), _Shapes(source.decode())
        # The functions that the templates of flex attention run are not in the text.
        for launch in wrapper.launches:
            if "_tem_" in launch.kernel and "flex" in launch.kernel:
                continue
            name = f"{file.parent.parent.name} #{launch.index} {launch.kernel}"
            if launch.kind in _CALLED:
                yield name, _of_call(source, launch, shapes)
            else:
                graph = by_kernel.get(launch.kernel)
                yield name, _of_fragment(graph, launch, shapes, folder)


# Before torch 2.9 a fragment leaves out what it reads, and what is added: the graph has it.
@pytest.mark.properties
@pytest.mark.parametrize(
    ("version", "least"), [("2.6", 0.6), ("2.8", 0.6), ("2.11", 0.9), ("2.15", 0.95)]
)
def test_launches_of_gpu_wrappers_have_claims(version: str, least: float, tmp_path: Path) -> None:
    torch.manual_seed(0)
    launches = list(_without_claim(version, tmp_path))
    without = [f"{name}: {problem}" for name, problem in launches if problem]
    covered = len(launches) - len(without)
    print(f"{version}: {covered} of {len(launches)}", *without, sep="\n  ")
    assert covered >= least * len(launches), Counter(without)
