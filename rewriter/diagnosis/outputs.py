"""Findings about the outputs of calls that are not what the whole graph computes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rewriter.core.labels import short
from rewriter.core.text import counted, of_elements, some
from rewriter.diagnosis.findings import Finding
from rewriter.diagnosis.ruling import Examined
from rewriter.diagnosis.verdict import CrashVerdict
from rewriter.diagnosis.verification.end_to_end import CallCheck
from rewriter.diagnosis.verification.graph_types import tensor_type
from rewriter.diagnosis.verification.text import values
from rewriter.diagnosis.verification.types import Checked, node_of
from rewriter.dump import launched
from rewriter.dump.reading import Dump, RunDump
from rewriter.execution.dumped_wrappers import wrapper_of
from rewriter.model_names.graph import parse

_LISTED = 4
_ALLOCATED = re.compile(r"^\s*(\w+) = empty_strided_\w+\(.*torch\.(\w+)\)$", re.MULTILINE)


def with_types(end: Examined, crashes: Sequence[CrashVerdict], dump: Dump) -> Examined:
    """How a program ended, with the results of the call that the launch where it did is given, and
    that are allocated as another type than the graph has. `end` has a finding for each crash."""
    runs = {run.name: run for run in dump.runs}
    findings = []
    for finding, verdict in zip(end.findings, crashes, strict=True):
        given = {launched.variable(argument.name) for argument in verdict.arguments}
        own = [] if verdict.run not in runs else list(_mistyped(runs[verdict.run]))
        wrong = [what for name, what in own if name in given]
        findings.append(replace(finding, what="; ".join([finding.what, *wrong])))
    return replace(end, findings=tuple(findings))


def _mistyped(run: RunDump) -> Iterator[tuple[str, str]]:
    """The results of a call that its wrapper allocates as another type than the graph has."""
    wrapper, graph = wrapper_of(run), parse(run.graph)
    if wrapper is None or graph is None or not wrapper.located.entries:
        return
    entry = wrapper.located.entries[0]
    names = entry.returned or entry.outputs
    allocated = dict(_ALLOCATED.findall(wrapper.plain.data.decode("utf-8", "replace")))
    for name, node in zip(names, graph.outputs, strict=False):
        dtype = allocated.get(name, "")
        kind = tensor_type(graph.nodes[node].type, {}) if node in graph.nodes else None
        wants = "" if kind is None else str(kind.dtype).removeprefix("torch.")
        if len(names) == len(graph.outputs) and dtype and wants and dtype != wants:
            yield name, f"{name} is allocated as {dtype}, and the graph has {wants}"


def of_calls(calls: Sequence[CallCheck], *, is_asked: bool = False, alone: bool = True) -> Examined:
    """The result of `check_outputs`. `alone` says that no single launch was found wrong. If the
    user asked for this check (`is_asked`), notes say why calls were not compared."""
    findings = [finding for call in calls if call.wrong for finding in _findings(call, alone=alone)]
    if findings:
        return Examined(tuple(findings))
    known = [[x for x in call.outputs if not x.comparison.is_unknown] for call in calls]
    number, checked = sum(map(len, known)), [compared for compared in known if compared]
    outputs = number + sum(call.missing for call in calls)
    if not number:
        reasons = list(dict.fromkeys(call.reason for call in calls if call.reason))
        if not (is_asked or outputs) or not reasons:
            return Examined(outputs=outputs)
        what = "call against eager" if is_asked else "output against the whole graph"
        return Examined(notes=(f"no {what}: {some(reasons, _LISTED)}",), outputs=outputs)
    others = next((f"; others were not compared: {x.reason}" for x in calls if x.reason), "")
    return Examined(
        ruled_out=f"wrong outputs: {counted(number, 'output')} of {counted(len(checked), 'call')} "
        f"{'is' if number == 1 else 'are'} what the whole graph gives from the inputs of the call"
        + others,
        outputs_agree=not others and number == outputs,  # those of undefined values are in neither
        outputs=outputs,
        compared=number,
    )


def _findings(call: CallCheck, *, alone: bool) -> list[Finding]:
    names = ", ".join(check.arg for check in call.wrong[:_LISTED])
    subject = f"what {short(call.artifact)} leaves in {call.run}"
    what = f"{subject} ({names}) is not what its graph gives from the same inputs"
    if problem := next((f"{x.arg}: {x.problem}" for x in call.wrong if x.problem), ""):
        what = f"{subject} is not what its graph gives; {problem}"
    outputs = Finding(
        "outputs",
        what + ", though no launch that was checked computes anything else than it claims" * alone,
        "shown by the whole graph, from the inputs of the call",
        artifact=call.artifact,
        run=call.run,
        text=tuple(line for check in call.wrong[:_LISTED] for line in _lines(check)),
        whole=True,
    )
    if call.culprit is None or not alone:
        return [outputs]
    check, of, other, holds = call.culprit
    node = node_of(of.claim)
    leaves = (
        f"does not leave in {of.arg} the {node} that the graph gives from the inputs of the call"
    )
    what = leaves if node else f"is given {of.arg}, of which {of.problem}"
    if other is not None:
        made = "what that made, and this was computed from, is no node of the graph"
        what += f"; or {other.with_line} is wrong: {made}"
    if holds:
        missing = f"it leaves {holds}, and no launch computes {node} of that"
        what += f"; or a launch behind it is missing: {missing}"
    shown = "shown by the whole graph"
    return [Finding.of(check, "wrong", what, shown, "likely", text=tuple(_lines(of))), outputs]


def _lines(output: Checked) -> list[str]:
    comparison = output.comparison
    if output.problem:
        wants = [f"      it should be {output.claim}"] if output.claim else []
        return [f"{output.arg}: {output.problem}", *wants]
    return [
        f"{values(output.arg, comparison)}: "
        f"{of_elements(comparison.wrong, comparison.numel)} differ",
        f"      {comparison.error:.3g} off; {comparison.allowed:.3g} allowed ({comparison.why})",
        f"      it should be {output.claim}",
    ]
