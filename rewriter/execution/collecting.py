"""Makes the result of a run from the report and the dump of the host process."""

from __future__ import annotations

import shutil
from pathlib import Path

from rewriter.core import json_text
from rewriter.core.errors import BAD_INPUT, DIFFERS, FAILED, INTERRUPTED, OK, RewriterError
from rewriter.dump import graph_marks
from rewriter.dump.document_files import was_stopped
from rewriter.dump.reading import is_recorded, open_dump
from rewriter.dump.rows import to_json
from rewriter.execution.host_process import HostRun
from rewriter.execution.run_result import Inputs, RunResult
from rewriter.locate.types import Launch

# Hints for the problems that the host reports.
_HINTS = {
    "loader-globals": "Pass --constants FILE.pt with a dict from these names to tensors, or drop "
    "--args: the wrapper's own get_args() then fills them with random values.",
    "no-entry": "Expected the output_code.py of torch.compile.",
    "no-inputs": "Pass --args FILE.pt with a list of inputs.",
    "bad-args-file": "Make it with torch.save([input, …], FILE); only tensors and numbers load.",
    "wrong-machine": "Run it where it was made, or compile the model again on this machine. list, "
    "instrument and strip work here.",
    "no-device": "`rewriter doctor` compares an artifact with this machine; list, instrument and "
    "strip work without the device. `rewriter run --interpret` runs Triton kernels on the CPU.",
    "not-interpreted": "Run it where the device is; list, instrument, strip and `rewriter diagnose "
    "--text` work without it.",
    "not-loaded": "Such files load in the build of torch that made them. list, instrument, strip "
    "and diff read it without torch.",
    "missing-module": "`rewriter doctor` says what this machine lacks for the wrapper.",
    "bad-import": "Pass a module that can be imported from here, or the path of a Python file.",
}


def kept_dump(dump: Path | None, inputs: Inputs, seed: int) -> Path | None:
    """The dump, with the origin of the inputs added. Removed if nothing was recorded in it."""
    if dump is None:
        return None
    graph_marks.keep(dump)
    manifest = dump / "manifest.json"
    if not manifest.exists():
        shutil.rmtree(dump)
        return None
    # Readers of the dump need to know where the inputs were from.
    facts = json_text.parse_object(manifest.read_bytes()) | {"inputs": inputs, "seed": seed}
    manifest.write_text(json_text.encode(facts, indent=1) + "\n", encoding="utf-8")
    return dump


def collect(
    path: Path,
    host: HostRun,
    dump: Path | None,
    *,
    launches: tuple[Launch, ...],
    inputs: Inputs,
) -> RunResult:
    """The result of running `path`. Raises `RewriterError` if it could not be run."""
    ended, report = host.ended, host.report
    if ended.code == BAD_INPUT and "problem" in report:
        problem = report["problem"]
        raise RewriterError(
            problem,
            f"{path}: {report['message']}",
            hint=_HINTS[problem],
            code=FAILED if problem == "missing-module" else BAD_INPUT,
        )
    by_probe = dump is not None and was_stopped(dump)
    if ended.code is not None and ended.code > 0 and not report and not by_probe:
        raise RewriterError(
            "host-failed",
            f"the process that runs {path} could not start (exit code {ended.code})",
            hint="`rewriter doctor` says whether torch can be imported.",
            code=FAILED,
        )
    calls = open_dump(dump).runs if dump and is_recorded(dump) else ()
    events = tuple(to_json(row) for call in calls for row in call.events())
    outputs = tuple(report.get("outputs", ()))
    replayed = tuple(report.get("replayed", ()))
    # NaN that --allow permits may reach the outputs, which do not say where they are from.
    calls_allow = bool(calls) and bool(calls[0].manifest.allow)
    has_finding = (
        ended.code != 0
        or any(row for call in calls for row in call.unexpected())
        or (not calls_allow and any(row.get("nan") for row in outputs))
        or "differs" in replayed
    )
    return RunResult(
        path=path,
        code=INTERRUPTED if ended.interrupted else DIFFERS if has_finding else OK,
        dump=dump,
        launches=launches,
        events=events,
        outputs=outputs,
        random_globals=tuple(report.get("random_globals", ())),
        seconds=round(host.seconds, 3),
        ended=ended,
        inputs=inputs,
        replayed=replayed,
        by_probe=by_probe,
    )
