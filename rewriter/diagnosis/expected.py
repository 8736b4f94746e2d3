"""Compares a run with what is right: outputs in a file (--expected), or a correct run (--against).

The file is what `torch.save` wrote of a tensor, or of a list of tensors: the outputs of the call in
order. `None` in the list skips an output. The list may be shorter than what the call returns, as a
forward also returns what its backward needs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rewriter.comparison.dumps import describe
from rewriter.comparison.dumps.blame import behind
from rewriter.comparison.dumps.tolerance import default
from rewriter.comparison.dumps.types import Comparison, LaunchComparison, Tolerance
from rewriter.core.dtypes import ROUNDING
from rewriter.core.errors import RewriterError
from rewriter.core.text import counted, of_elements
from rewriter.diagnosis.findings import Finding
from rewriter.diagnosis.ruling import Examined
from rewriter.diagnosis.verdict_text import model_lines
from rewriter.diagnosis.verification.text import values
from rewriter.diagnosis.verification.types import Checked
from rewriter.dump import dataflow
from rewriter.dump.dataflow import FlowNode, NoResult
from rewriter.dump.reading import Dump, RunDump
from rewriter.dump.rows import TensorRow
from rewriter.execution.dumped_wrappers import flow_of

if TYPE_CHECKING:
    import torch

    from rewriter.diagnosis.verification.call_results import CallResults

_LISTED = 4


@dataclass(frozen=True)
class ComparedCall:
    """The outputs of one call, by their labels, such as `0: buf14`. `feeding` are the steps, by
    launch and iteration, whose results reach a wrong output; `None` if the flow of values is not
    completely known. `missing` is the number of those that were expected and not compared, such as
    an input, or a weight that no launch writes. `narrow` is the narrowest of the floating-point
    types of the call's tensors that have fewer bits than float32; empty if none has."""

    run: RunDump
    outputs: tuple[Checked, ...]
    feeding: frozenset[tuple[int, int]] | None = None
    missing: int = 0
    narrow: str = ""

    @property
    def wrong(self) -> tuple[Checked, ...]:
        return tuple(output for output in self.outputs if not output.agrees)

    def examined(self) -> Examined:
        """The finding about wrong outputs, or what is ruled out."""
        compared = counted(len(self.outputs), "output")
        made = partial(
            Examined, outputs=len(self.outputs) + self.missing, compared=len(self.outputs)
        )
        if not self.wrong:
            verb = "agrees" if len(self.outputs) == 1 else "agree"
            what = f"wrong outputs: {compared} of {self.run.name} {verb} with what is expected"
            within = f", within what {self.narrow} in the call may round off" if self.narrow else ""
            return made(ruled_out=what + within)
        names = ", ".join(output.arg for output in self.wrong[:_LISTED])
        what = f"{len(self.wrong)} of {compared} ({names}) are not as expected"
        text = tuple(map(_line, self.wrong[:_LISTED]))
        if self.narrow:
            more = f"what amplifies roundings of {self.narrow}, as a steep softmax, may differ so"
            text += (more,)
        shown = "shown by the outputs that are right"
        finding = Finding.of_call(self.run, "outputs", what, shown, text=text)
        return made((finding,))


def load_expected(path: Path) -> list[torch.Tensor | None]:
    """Load the correct outputs. Raises `RewriterError` if the file holds something else."""
    import torch

    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        # The unpickler may raise any exception on a damaged file.
        raise _bad(path, "torch.load cannot read it") from error
    values = [loaded] if isinstance(loaded, torch.Tensor) else loaded
    if not isinstance(values, (list, tuple)) or not all(
        value is None or isinstance(value, torch.Tensor) for value in values
    ):
        raise _bad(path, f"it holds {type(loaded).__name__}")
    if not any(value is not None for value in values):
        raise _bad(path, "it holds no tensor")
    return list(values)


def compare_outputs(
    dump: Dump, expected: Sequence[torch.Tensor | None], path: Path
) -> ComparedCall:
    """Compare the first call whose outputs have the sizes of the correct ones.

    Raises `RewriterError` if there is no such call.
    """
    from rewriter.diagnosis.verification.call_results import CallResults

    seen = []
    for run in sorted(dump.runs, key=lambda run: (run.number, run.rank)):
        nodes = flow_of(run).nodes
        last = dataflow.outputs(nodes)
        if last is None:
            continue
        results = CallResults(run, flow_of(run), last)
        seen.append(f"{run.name}: {', '.join(_in_words(results, x) for x in last.returned)}")
        is_whole, narrow = len(last.returned) >= len(expected), _narrowest(run)
        found = _compared(results, last, expected, narrow) if is_whole else None
        if outputs := tuple(found or ()):
            wrong = [output.arg for output in outputs if not output.agrees]
            missing = sum(want is not None for want in expected) - len(outputs)
            return ComparedCall(run, outputs, _feeding(nodes, last, wrong), missing, narrow)
    shapes = ", ".join("-" if tensor is None else str(list(tensor.shape)) for tensor in expected)
    raise RewriterError(
        "bad-expected",
        f"{path}: no recorded call returns tensors of the sizes {shapes}; there are "
        f"{'; '.join(seen[:_LISTED]) or 'none'}",
        hint="Save the outputs of the call in their order, and None for one that is not to be "
        "compared: torch.save([output, None], FILE).",
    )


def _narrowest(run: RunDump) -> str:
    rows = (row for step in run.steps for row in run.rows(step) if isinstance(row, TensorRow))
    kinds = {row.dtype for row in rows} & ROUNDING.keys()
    narrowest = max(kinds, key=lambda kind: (ROUNDING[kind], kind), default="float32")
    return narrowest if ROUNDING[narrowest] > ROUNDING["float32"] else ""


def agree(
    got: Sequence[torch.Tensor | None], expected: Sequence[torch.Tensor | None], narrow: str = ""
) -> bool | None:
    """Whether the outputs of a call are the correct ones; `None` if they have other sizes. `narrow`
    as in `ComparedCall`."""
    pairs = [(x, y) for x, y in zip(got, expected, strict=False) if y is not None]
    if len(got) < len(expected) or any(x is not None and x.numel() != y.numel() for x, y in pairs):
        return None
    return all(_compare("", x, y, narrow).agrees for x, y in pairs if x is not None)


def _in_words(results: CallResults, output: TensorRow | NoResult) -> str:
    """An output with the sizes that it is returned in."""
    if isinstance(output, NoResult):
        return output.text
    view = results.view(output.arg)
    return f"{output.arg} {list(output.shape if view is None else view.size)}"


def _compared(
    results: CallResults,
    last: FlowNode,
    expected: Sequence[torch.Tensor | None],
    narrow: str,
) -> list[Checked] | None:
    """Compare each output that was saved; `None` if one has another size."""
    found: list[Checked] = []
    for want, row in zip(expected, last.returned, strict=False):
        if want is None or not isinstance(row, TensorRow):
            continue
        if (ways := _as_returned(results, row, want)) is None:
            return None
        read = [*ways, *(x for got in ways for x in _as_bits(got, want))]
        if checks := [_compare(row.arg, got, want, narrow) for got in read]:
            found.append(next((check for check in checks if check.agrees), checks[0]))
    return found


def _as_returned(
    results: CallResults, row: TensorRow, want: torch.Tensor
) -> Sequence[torch.Tensor] | None:
    """An output as the call returns it: a view of the memory that its last writer left, or what
    several launches wrote. Two candidates if the text does not say how it lies in memory; none if
    that was not recorded. `None` if it has another size than the expected one."""
    from rewriter.diagnosis.verification import received
    from rewriter.diagnosis.verification.bounded import UncheckedError
    from rewriter.diagnosis.verification.graph_types import TensorType

    kind, size = TensorType(want.dtype, tuple(want.shape), want.stride()), row.size
    with suppress(UncheckedError):
        if (view := results.view(row.arg)) is not None:
            size = math.prod(view.size)
            if size == want.numel() and (returned := results.as_returned(row)) is not None:
                return [returned.tensor]
        else:
            left = results.returned(row, kind)
            size = left.tensor.numel()
            if left.unwritten is None:
                return received.layouts(left.tensor, left.row, kind, viewed=True)
    return [] if size == want.numel() else None


def _as_bits(got: torch.Tensor, want: torch.Tensor) -> Iterator[torch.Tensor]:
    """An output read as the type that is expected, as `x.view(torch.int32)` returns a float32."""
    is_size = got.dtype != want.dtype and got.dtype.itemsize == want.dtype.itemsize
    if is_size and got.is_floating_point() != want.is_floating_point():
        yield got.view(want.dtype)


def _compare(name: str, got: torch.Tensor, want: torch.Tensor, narrow: str) -> Checked:
    """Compare element by element, with the looser tolerance of the two types.

    What is computed from a narrow type may be two of its steps off at the largest element: a kernel
    keeps float32 where eager rounds, and what is small may be a sum of what is not. A tenth of that
    is allowed for one number of a wider type, such as a loss, in which such errors cancel out. A
    number of 8 bits that was rounded from such a value may be the next one.
    """
    import torch

    from rewriter.diagnosis.verification.bounded import Bounded, wide
    from rewriter.diagnosis.verification.judge import compare

    dtype = want.dtype
    names = tuple(str(tensor.dtype).removeprefix("torch.") for tensor in (got, want))
    allowed = default(*names)
    got, want = (wide(tensor.detach()) for tensor in (got.reshape(want.shape), want))
    if narrow and dtype in (torch.int8, torch.uint8) and bool((want.abs() > 1).any()):  # no mask
        allowed = Tolerance(0.0, 1.0)
        got, want = got.double(), want.double()  # those of integers are exact
    if want.is_floating_point():
        got = got.to(torch.promote_types(got.dtype, want.dtype))
    size = (want.to(torch.uint8) if want.dtype == torch.bool else want).abs().double()
    bound = allowed.atol + allowed.rtol * size
    claim = f"rtol {allowed.rtol:g}, atol {allowed.atol:g} allowed"
    if narrow and (dtype.is_floating_point or dtype.is_complex):
        steps = 4 * ROUNDING[narrow] / (10 if size.numel() == 1 and names[1] != narrow else 1)
        finite = size[size.isfinite()]
        most = steps * float(finite.max()) if finite.numel() else 0.0
        bound = bound.clamp_min(most)
        claim += f", or {most:.3g}, for {narrow} in the call"
    bound = torch.where(size.isfinite(), bound, 0.0)
    return Checked(name, claim, compare(got, Bounded(want, bound)))


def _line(output: Checked) -> str:
    found = output.comparison
    worst = values(dataflow.output_variable(output.arg), found)
    return f"{worst}: {of_elements(found.wrong, found.numel)} differ ({output.claim})"


def _feeding(
    nodes: Sequence[FlowNode], last: FlowNode, labels: Sequence[str]
) -> frozenset[tuple[int, int]] | None:
    """The launches whose results reach these outputs; `None` if that is not completely known."""
    if not all(last.given.get(label) for label in labels):
        return None
    _, between = behind(nodes, (x for label in labels for x in last.given[label]), {})
    feeding = [(nodes[x].step, nodes[x].given) for x in between]
    if not all(step.launch is None or all(given.values()) for step, given in feeding):
        return None  # some of its inputs are of unknown origin
    return frozenset((x.launch, x.iteration) for x, _ in feeding if x.launch is not None)


def _bad(path: Path, why: str) -> RewriterError:
    hint = "Make it with torch.save([output, …], FILE), the outputs of the call in their order."
    what = f"{path}: expected a tensor, or a list of tensors: {why}"
    return RewriterError("bad-expected", what, hint=hint)


def of_comparison(comparison: Comparison, artifact: str) -> Examined:
    """The findings of a comparison, or what it rules out."""
    if comparison.equal:
        counts = describe.count(comparison)
        return Examined(
            ruled_out=f"a difference from the reference: {counted(counts.matched, 'launch')} "
            "compared, all equal within rounding"
        )
    culprits = comparison.culprits
    if not culprits:
        finding = Finding(
            "outputs", f"the run and the reference differ: {describe.verdict(comparison)}",
            "shown by the reference", "likely", artifact, whole=True,
        )  # fmt: skip
        return Examined((finding,))
    return Examined(tuple(_finding(culprit, artifact) for culprit in culprits))


def _finding(launch: LaunchComparison, artifact: str) -> Finding:
    place = launch.place
    text = [f"at {line}" for line in model_lines(place.lines)]
    text += launch.reasons
    for tensor in launch.results:
        metrics = tensor.metrics
        if metrics is not None and not metrics.identical:
            worst = metrics.max_abs
            most = f"max abs {worst.error:.4g} at {list(worst.index)}, " if worst else ""
            share = of_elements(metrics.mismatched, metrics.numel)
            text.append(f"{tensor.name}: {most}{share} differ")
    about = partial(Finding.of, place, shown="shown by the reference", artifact=artifact)
    if place.launch is None:
        what = "the inputs of the call differ from those of the reference"
        return about("inputs", what, text=tuple(text), whole=True)
    what = "is where the run diverges from the reference: its inputs agree, its results do not"
    return about("differs", what, text=tuple(text))
