"""Findings about the outputs of calls that differ from what the whole graph computes."""

from __future__ import annotations

from collections.abc import Sequence

from rewriter.core.text import counted
from rewriter.diagnosis.findings import Finding
from rewriter.diagnosis.ruling import Examined
from rewriter.verification.end_to_end import CallCheck, OutputCheck
from rewriter.verification.text import values
from rewriter.verification.types import node_of

_LISTED = 4


def of_calls(calls: Sequence[CallCheck], *, is_asked: bool = False, alone: bool = True) -> Examined:
    """The result of `check_outputs`. `alone` says that no single launch was found wrong. If the
    user asked for this check (`is_asked`), notes say why calls were not compared."""
    findings = [one for call in calls if call.wrong for one in _findings(call, alone=alone)]
    if findings:
        return Examined(tuple(findings))
    known = [[x for x in call.outputs if not x.comparison.is_unknown] for call in calls]
    number, checked = sum(map(len, known)), [one for one in known if one]
    if not number:
        reasons = dict.fromkeys(call.reason for call in calls if call.reason)
        return Examined(notes=tuple(f"no call against eager: {x}" for x in reasons) * is_asked)
    others = next((f"; others were not compared: {x.reason}" for x in calls if x.reason), "")
    return Examined(
        ruled_out=f"wrong outputs: {counted(number, 'output')} of {counted(len(checked), 'call')} "
        f"are what the whole graph gives from the inputs of the call{others}",
        outputs_agree=not others and number == sum(len(call.outputs) for call in calls),
    )


def _findings(call: CallCheck, *, alone: bool) -> list[Finding]:
    names = ", ".join(one.name for one in call.wrong[:_LISTED])
    what = f"what the call leaves ({names}) is not what its graph gives from the same inputs"
    if problem := next((f"{x.name}, {x.problem}" for x in call.wrong if x.problem), ""):
        what = f"what the call leaves is not what its graph gives: of {problem}"
    outputs = Finding(
        "outputs",
        what + ", though no launch that was checked computes anything else than it claims" * alone,
        "shown by the whole graph, from the inputs of the call",
        artifact=call.artifact,
        run=call.run,
        text=tuple(line for one in call.wrong[:_LISTED] for line in _lines(one)),
        whole=True,
    )
    first = call.first
    if first is None or call.of is None or not alone:
        return [outputs]
    node = node_of(call.of.claim)
    leaves = (
        f"leaves {call.of.name}, which is not the {node} that the graph gives from the inputs of "
        "the call"
    )
    what = leaves if node else f"is given {call.of.name}, of which {call.of.problem}"
    text = tuple(_lines(call.of))
    return [
        Finding.of(first, "wrong", what, "shown by the whole graph", "likely", text=text),
        outputs,
    ]


def _lines(output: OutputCheck) -> list[str]:
    comparison = output.comparison
    if output.problem:
        wants = [f"      it should be {output.claim}"] if output.claim else []
        return [f"{output.name}: {output.problem}", *wants]
    return [
        f"{values(output.name, comparison)}: "
        f"{comparison.wrong:,} of {counted(comparison.numel, 'element', grouped=True)} differ",
        f"      {comparison.error:.3g} off; {comparison.allowed:.3g} allowed ({comparison.why})",
        f"      it should be {output.claim}",
    ]
