"""Findings of a comparison with a correct run: the first launches whose results differ."""

from __future__ import annotations

from typing import Any

from rewriter.comparison.dumps import describe
from rewriter.comparison.dumps.types import Comparison, LaunchComparison
from rewriter.core.text import counted
from rewriter.diagnosis.findings import Finding, FindingKind
from rewriter.diagnosis.ruling import Examined
from rewriter.diagnosis.verdict_text import model_lines


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
    return Examined(tuple(_finding(one, artifact) for one in culprits))


def _finding(launch: LaunchComparison, artifact: str) -> Finding:
    place = launch.place
    text = [f"at {line}" for line in model_lines(place.lines)]
    text += launch.reasons
    for tensor in launch.results:
        metrics = tensor.metrics
        if metrics is not None and not metrics.identical:
            worst = metrics.max_abs
            most = f"max abs {worst.error:.4g} at {list(worst.index)}, " if worst else ""
            text.append(
                f"{tensor.name}: {most}{metrics.mismatched:,} of {metrics.numel:,} elements differ"
            )
    facts = ("run", "launch", "iteration", "kernel", "line", "lines")
    where: dict[str, Any] = {name: getattr(place, name) for name in facts} | {"artifact": artifact}
    kind: FindingKind = "differs"
    what = "is where the run diverges from the reference: its inputs agree, its results do not"
    if place.launch is None:
        kind, what = "inputs", "the inputs of the call differ from those of the reference"
    whole = place.launch is None
    return Finding(kind, what, "shown by the reference", text=tuple(text), whole=whole, **where)
