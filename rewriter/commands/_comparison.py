"""Shows compared launches: a table of them, and the details of one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rewriter.comparison.dumps.types import DIFFERS, LaunchComparison, TensorComparison
from rewriter.core.terminal import level_style, say, table
from rewriter.core.text import figure, of_elements
from rewriter.diagnosis.verdict_text import model_lines
from rewriter.dump.rows import ScalarRow, TensorRow

_SHOWN = 20  # rows of a list, unless all are asked for


def show_rows(launches: Iterable[LaunchComparison], everything: bool) -> None:
    rows = [
        launch
        for launch in launches
        if everything
        or launch.blame
        or not launch.matched
        or {launch.state, launch.inputs} & set(DIFFERS)
    ]
    if rows:
        shown = rows if everything else rows[:_SHOWN]
        say("")
        say(*table([_HEAD, *map(_row, shown)], _style))
        if len(shown) < len(rows):
            say(f"… and {len(rows) - len(shown)} more: --all")


def _style(row: int, column: int, cell: str) -> str:
    """Mark launches that went wrong, and those downstream of them."""
    if _HEAD[column] != "why" or not row or not cell:
        return ""
    return level_style("warning" if cell.startswith("downstream") else "error")


def show_culprit(launch: LaunchComparison) -> None:
    say(f"{launch.place}: {_PLAIN[launch.state]}")
    if launch.b and str(launch.b) != str(launch.a):
        say(f"  in B: {launch.b}")
    if launch.place.source_nodes:
        say(f"  source nodes: {' '.join(launch.place.source_nodes)}")
    for line in model_lines(launch.place.lines):
        say(f"  at {line}")
    for reason in launch.reasons:
        say(f"  {reason}")
    if launch.unmatched:
        say(f"  on one side alone: {', '.join(launch.unmatched)}")
    for tensor in launch.tensors:
        if tensor.state in DIFFERS or (tensor.metrics and not tensor.metrics.identical):
            for line in _figures(tensor):
                say(f"  {line}")


_PLAIN = {
    "rounding": "differs by what rounding explains",
    "numeric": "values differ",
    "non-finite": "NaN or infinity on one side",
    "structural": "shapes or types differ",
    "equal": "equal within tolerance",
    "unknown": "not compared",
}


def _figures(tensor: TensorComparison) -> Iterator[str]:
    """The details of how one value differs."""
    kind = _type(tensor)
    name, own = tensor.in_model, f" ({tensor.name})" * (tensor.in_model != tensor.name)
    is_given = tensor.a.role == "inout" and tensor.phase == "before"  # it has another row, too
    when = " before the launch" if is_given else ""
    yield f"{tensor.a.role} {name}{own}  {kind}{when}: {_PLAIN[tensor.state]}"
    if tensor.note:
        yield f"    {tensor.note}"
    metrics = tensor.metrics
    if metrics is None:
        of_a, of_b = (
            row.statistics if isinstance(row, TensorRow) else {} for row in (tensor.a, tensor.b)
        )
        for name in of_a or of_b:
            one, other = of_a.get(name), of_b.get(name)
            if one != other:
                yield f"    {name} {figure(one)} against {figure(other)}"
        return
    if first := metrics.nonfinite:
        yield (
            f"    NaN only in A {metrics.nan_a}, only in B {metrics.nan_b}, other infinities "
            f"{metrics.inf}; the first at {list(first.index)}: {first.a} against {first.b}"
        )
    for name, at in (("abs", metrics.max_abs), ("rel", metrics.max_rel)):
        if at:
            yield (
                f"    max {name} {figure(at.error)} at {list(at.index)}: "
                f"{figure(at.a)} against {figure(at.b)}"
            )
    share = metrics.mismatched / metrics.numel
    enough = f"atol {metrics.atol_needed:.3g} or rtol {metrics.rtol_needed:.3g}"
    enough = "" if metrics.nonfinite else f"; it passes from {enough}"
    within = tensor.tolerance
    assert within is not None
    yield (
        f"    {of_elements(metrics.mismatched, metrics.numel)} ({share:.2%}) outside rtol "
        f"{within.rtol:g} atol {within.atol:g}{enough}"
    )
    ulp = "" if metrics.ulp is None else f"  ulp {metrics.ulp}"
    yield (
        f"    mean {figure(metrics.mean_a)} against {figure(metrics.mean_b)}  cosine "
        f"{metrics.cosine:.6g}  snr {metrics.snr:.4g} dB{ulp}"
    )


_HEAD = ["launch", "in B", "kernel", "inputs", "results", "max abs", "max rel", "mismatched", "why"]


def _row(launch: LaunchComparison) -> list[str]:
    one, other = (str(place).split()[0] if place else "-" for place in (launch.a, launch.b))
    worst = max(
        (tensor for tensor in launch.results if tensor.metrics),
        key=lambda tensor: tensor.metrics.mismatched if tensor.metrics else 0,
        default=None,
    )
    cells = ["", "", ""]
    if worst and (metrics := worst.metrics):
        cells = [
            figure(metrics.max_abs.error if metrics.max_abs else None),
            figure(metrics.max_rel.error if metrics.max_rel else None),
            f"{metrics.mismatched / metrics.numel:.2%}" if metrics.numel else "-",
        ]
    why: str = launch.blame or ""
    if launch.blame == "downstream" and launch.producers:
        starts = [str(place).split()[0] for place in launch.producers]
        why += f" of {' '.join(starts[:3])}{' …' * (len(starts) > 3)}"
    states: tuple[str, str] = (launch.inputs, launch.state)
    if not launch.matched:
        states = ("-", launch.state if launch.blame else "-")
        why = f"{why}, no counterpart"
    if launch.moved:
        why = f"{why}, moved"
    return [one, other, launch.place.kernel, *states, *cells, why.strip(", ")]


def _type(tensor: TensorComparison) -> str:
    from rewriter.core.dtypes import short_dtype

    if tensor.tensors is None:
        texts = (row.value if isinstance(row, ScalarRow) else None for row in (tensor.a, tensor.b))
        return " against ".join(map(str, texts))
    one, other = (f"{short_dtype(row.dtype)}{list(row.shape)}" for row in tensor.tensors)
    return one if one == other else f"{one} against {other}"
