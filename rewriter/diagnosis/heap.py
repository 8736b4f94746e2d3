"""A crash that may be another launch's fault: one that stored outside of its memory before.

An allocator finds such damage when it is called next, and a library crashes on it: the launch that
runs then is a victim. C++ kernels store without bounds, above all into arrays of their own, which
no guard band surrounds.
"""

from __future__ import annotations

import re
import signal
from dataclasses import replace

from rewriter.core.text import counted
from rewriter.diagnosis.evidence import sources_of
from rewriter.diagnosis.findings import Finding
from rewriter.diagnosis.verdict import Verdict
from rewriter.dump.reading import Dump, RunDump

_LIBRARY = ("extern_out", "extern_alloc", "fallback")
_ARRAY = re.compile(
    r"make_unique<[^;]*\[\]>\([^;]*\)|\bnew \w+\[[^\]]*\]|\b(?:alignas\(\d+\) )?"
    r"(?:float|double|int\w*|bool|at::BFloat16|at::Half) \w+\[[^\]]+\]"
)
_NAMED = 4


def is_suspicious(verdict: Verdict) -> bool:
    """Whether a launch that a program ended in may only be a victim."""
    ended = verdict.ended
    if ended is None or verdict.launch is None:
        return False
    if ended.signal == signal.SIGABRT:
        return True
    faults = (signal.SIGSEGV, signal.SIGBUS)
    return ended.signal in faults and verdict.kind in _LIBRARY and not verdict.on_gpu


def with_suspects(finding: Finding, verdict: Verdict, dump: Dump) -> Finding:
    """The finding about a crash, with the C++ launches that may have damaged the memory."""
    run = next((one for one in dump.runs if one.name == verdict.run), None)
    if run is None or not is_suspicious(verdict):
        return finding
    arrays = _arrays(run)
    reached = [x for x in run.steps if run.launch_row(x.launch).kind == "cpp"]
    launches = {x.launch: x for x in reversed(reached)}
    own = verdict.launch in launches and bool(arrays.get(verdict.kernel))
    ordered = sorted(launches.values(), key=lambda x: (not arrays.get(x.kernel), x.position))
    if own or not ordered:
        lines = [f"its kernel has an array of its own: {arrays[verdict.kernel]}"] if own else []
        return replace(finding, text=(*lines, *finding.text))
    named = []
    for step in ordered[:_NAMED]:
        array = arrays.get(step.kernel)
        has = f", which has an array of its own: {array}" if array else ""
        named.append(f"suspect: #{step.launch} {step.kernel}{has}")
    more = len(ordered) - _NAMED
    named += [f"and {counted(more, 'other C++ launch')}"] if more > 0 else []
    assert verdict.ended is not None
    if verdict.ended.signal != signal.SIGABRT:  # what it was given may be to blame as well
        return replace(finding, text=(*finding.text, "or a launch before damaged memory:", *named))
    what = (
        f"memory was damaged before launch {verdict.label} ended the program ({verdict.ended}): a "
        "launch before it stored outside of its memory"
    )
    return replace(
        finding,
        what=what,
        certainty="possible",
        launch=None,
        kernel="",
        text=(*named, *finding.text),
        others=tuple(x.launch for x in ordered[:_NAMED] if x.launch is not None),
    )


def _arrays(run: RunDump) -> dict[str, str]:
    """The first array that each kernel has of its own, by the kernel's name."""
    found = ((name, _ARRAY.search(text)) for name, text in sources_of(run).items())
    return {name: match[0] for name, match in found if match}
