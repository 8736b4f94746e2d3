"""Reads one launch from a dump, with the files of its inputs and results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import UNSET

from rewriter.artifact.recognise import read
from rewriter.core import limits
from rewriter.core.errors import RewriterError
from rewriter.core.strides import contiguous
from rewriter.core.text import some
from rewriter.dump import launched
from rewriter.dump.dataflow import Flow, FlowNode
from rewriter.dump.document_files import corrupt
from rewriter.dump.reading import RunDump, RunStep, label, open_dump
from rewriter.dump.rows import ScalarRow, TensorRow, finite
from rewriter.dump.saved import file_of
from rewriter.execution.dumped_wrappers import flow_of, plain_wrapper_of
from rewriter.locate.types import Launch
from rewriter.reproduction.types import Recorded, Tensor, not_saved

_LISTED = 8
_NUMBERS = ("int", "float", "bool", "int64_t", "double", "int32_t")


def recorded_launch(
    path: str | Path,
    index: int,
    *,
    run: str | None = None,
    iteration: int = 0,
    needs_values: bool = True,
) -> Recorded:
    """The launch with this index, in the first call of the dump that has it, or in the named one.

    Nothing is loaded. Raises `RewriterError` if the dump has no such launch, or not all of its
    inputs, of which it has to have the elements only if it `needs_values`.
    """
    dump = open_dump(path)
    runs = [recorded for recorded in dump.runs if run in (None, recorded.name)]
    if not runs:
        names = some([recorded.name for recorded in dump.runs], _LISTED)
        raise RewriterError(
            "not-a-dump", f"{path}: holds no call {run}", hint=f"Its calls: {names}."
        )
    for recorded in runs:
        if recorded.step(index, iteration) is not None:
            return _of_run(recorded, index, iteration, needs_values=needs_values)
    kernels = {
        step.launch: step.kernel for dump in runs for step in dump.steps if step.launch is not None
    }
    known = some([f"#{index} {kernel}" for index, kernel in sorted(kernels.items())], _LISTED)
    raise RewriterError(
        "no-such-launch",
        f"{path}: no call recorded launch {label(index, iteration)}",
        hint=f"Recorded: {known or 'none'}.",
    )


def _of_run(run: RunDump, index: int, iteration: int, *, needs_values: bool) -> Recorded:
    wrapper = plain_wrapper_of(run)
    launch = next((x for x in wrapper.launches if x.index == index), None)
    if launch is None:
        raise corrupt(wrapper.path, f"it has no launch #{index}, which {run.name} recorded")
    flow = flow_of(run)
    node = next(x for x in flow.nodes if x.step.which == (index, iteration))
    written = {
        row.arg: _tensor(run, row) for row in launched.tensors(launched.results(flow.rows(node)))
    }
    given = dict(_given(run, flow, node))
    in_parts = {
        name
        for name, tensor in given.items()
        if tensor.carried and ("[" in name or _is_part(flow, node, name, wrapper.launches))
    }
    for name, tensor in written.items():
        if name not in given and tensor.role == "out":
            given[name] = Tensor(
                name, "out", tensor.dtype, tensor.shape, tensor.stride, tensor.device, None
            )
    _require_saved(run, launch, given, written, in_parts, needs_values=needs_values)
    inputs = {row.arg: _tensor(run, row) for row in launched.tensors(run.inputs)}
    numbers = _numbers(run, node.step)
    return Recorded(run, wrapper, launch, node, given, written, numbers, inputs, _sources(run))


def _given(run: RunDump, flow: Flow, node: FlowNode) -> Iterator[tuple[str, Tensor]]:
    """Yield the inputs as they were read: recorded at the launch, or where they were written."""
    own = {row.arg for row in launched.tensors(launched.reads(run.rows(node.step)))}
    for row in launched.tensors(launched.reads(flow.rows(node))):
        yield row.arg, _tensor(run, row, carried=row.arg not in own)


def _is_part(flow: Flow, node: FlowNode, name: str, launches: Sequence[Launch]) -> bool:
    """Whether the last writer of a value wrote only a view of the buffer."""
    for source in node.given.get(name, ()):
        index = flow.nodes[source.step].step.launch
        maker = next((x for x in launches if x.index == index), None)
        written = (x for x in maker.args if x.role != "in") if maker else ()
        if any(x.name == name and "reinterpret_tensor" in x.expr for x in written):
            return True
    return False


def _tensor(run: RunDump, row: TensorRow, *, carried: bool = False) -> Tensor:
    stride = contiguous(row.shape) if row.stride is UNSET else row.stride
    return Tensor(
        row.arg, row.role, row.dtype, row.shape, stride, row.device or "cpu",
        file_of(run.path, row), carried, finite(row.min), finite(row.max),
    )  # fmt: skip


def _numbers(run: RunDump, step: RunStep) -> dict[str, str]:
    """The numbers of the call and of the launch, such as sizes: by name, as Python writes them."""
    rows = (row for row in (*run.inputs, *run.rows(step)) if isinstance(row, ScalarRow))
    return {row.arg: str(row.value) for row in rows if row.type in _NUMBERS}


def _sources(run: RunDump) -> dict[str, bytes]:
    """The C++ files with kernels that lie beside the wrapper in the dump, as those of a package."""
    folder = run.path.absolute().parents[1]
    files = sorted(folder.glob("*.kernel.cpp"))
    return {file.name: read(file, limits.WRAPPER_BYTES) for file in files}


def _require_saved(
    run: RunDump,
    launch: Launch,
    given: dict[str, Tensor],
    written: dict[str, Tensor],
    in_parts: set[str],
    *,
    needs_values: bool,
) -> None:
    read = {name: tensor for name, tensor in given.items() if tensor.role != "out"}
    known = {variable for name in read for variable in (name, launched.variable(name))}
    missing = [name for name, tensor in read.items() if needs_values and tensor.file is None]
    missing += [
        name
        for role, name, *_ in run.launch_row(launch.index).reads
        if name not in known and role in ("in", "inout")
    ]
    missing += [
        name for name, tensor in written.items() if tensor.role == "inout" and name not in known
    ]
    if missing or in_parts:
        names = ", ".join(dict.fromkeys([*missing, *sorted(in_parts)][:_LISTED]))
        why = (
            "its parts were written by several launches"
            if in_parts and not missing
            else "no value was saved"
        )
        problem = f"{run.path}: #{launch.index} {launch.kernel} read {names}: {why}"
        raise not_saved(problem, launch.index)
