"""The text and the JSON of `rewriter cache`."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rewriter.cache.choose import Chosen
from rewriter.cache.effects import Cleared, Placed, Refused
from rewriter.cache.journal import Running
from rewriter.cache.state import Cache, Slot
from rewriter.commands._common import message, plain_table, printable
from rewriter.types import Json, Selection

if TYPE_CHECKING:
    from rewriter.cache.found import Finding
    from rewriter.cache.run import CacheRun, Request
    from rewriter.verdict import Verdict

_FEW = 3  # kernels and source nodes in a line of a table
_NAMED = 8  # wrappers in a message


def show_listing(cache: Cache, chosen: Chosen, running: Running | None) -> None:
    head = ["wrapper", "when", "graph", "language", "launches", "kernels", "source nodes", "state"]
    rows = [_row(slot) for slot in chosen.slots]
    if rows:
        print(printable(plain_table([head, *rows])))
    for name, reason in chosen.broken:
        message(f"warning: {name} cannot be read: {reason}")
    for name in cache.foreign:
        message(f"not a wrapper: {name}")
    others = len(cache.slots) - len(chosen.slots) - len(chosen.broken)
    message(
        f"{_count(len(chosen.slots), 'wrapper')} in {cache.directory}"
        + (f", {others} not asked for" if others else "")
        + (f", {_count(cache.kernels, 'file')} of kernels" if cache.kernels else "")
    )
    _show_running(running)


def _row(slot: Slot) -> list[str]:
    launches = slot.wrapper.located.launches
    return [
        slot.short,
        _when(slot.modified),
        slot.wrapper.graph,
        slot.wrapper.language,
        str(len(launches)),
        _few(one.kernel for one in launches),
        _few(node for one in launches for node in one.source_nodes),
        _state(slot),
    ]


def listing_json(cache: Cache, chosen: Chosen, running: Running | None) -> Json:
    return {
        "directory": str(cache.directory),
        "wrappers": [
            {
                **_slot_json(slot),
                "graph": slot.wrapper.graph,
                "language": slot.wrapper.language,
                "launches": len(slot.wrapper.located.launches),
                "kernels": _each(x.kernel for x in slot.wrapper.located.launches),
                "source_nodes": _each(
                    node for x in slot.wrapper.located.launches for node in x.source_nodes
                ),
            }
            for slot in chosen.slots
        ],
        "broken": [{"wrapper": name, "reason": reason} for name, reason in chosen.broken],
        "foreign": list(cache.foreign),
        "kernel_files": cache.kernels,
        "running": _running_json(running),
    }


def show_status(cache: Cache, products: int, running: Running | None) -> None:
    held = [slot for slot in cache.slots if slot.state != "plain"]
    rows = [[slot.short, slot.state, ",".join(slot.probes), _backup(slot)] for slot in held]
    if rows:
        print(printable(plain_table([["wrapper", "state", "probes", "original"], *rows])))
    _show_running(running)
    instrumented = sum(bool(slot.probes) for slot in held)
    text = f"{instrumented} of {_count(len(cache.slots), 'wrapper')} in {cache.directory} "
    text += "has probes" if instrumented == 1 else "have probes"
    if products:
        text += f", {_count(products, 'build')} of wrappers that had some"
    if cache.temporary:
        text += f", {_count(len(cache.temporary), 'file')} of a command that was stopped"
    message(text)
    if (held or products or cache.temporary) and running is None:
        message("`rewriter cache restore` gives the originals back, and clears up")


def status_json(cache: Cache, products: int, running: Running | None) -> Json:
    return {
        "directory": str(cache.directory),
        "wrappers": [_slot_json(slot) for slot in cache.slots if slot.state != "plain"],
        "products": products,
        "temporary": [str(path) for path in cache.temporary],
        "running": _running_json(running),
    }


def warn_about(
    placed: Sequence[Placed], refused: Sequence[Refused], broken: Sequence[tuple[str, str]]
) -> None:
    """Name what has no probes though it was asked for."""
    for one in placed:
        for skipped in one.result.plan.skipped:
            launch = skipped.launch
            message(
                f"warning: {one.slot.name}: launch #{launch.index} {launch.kernel} (line "
                f"{launch.line}) is not instrumented in full: {skipped.reason}"
            )
        for call in one.result.plan.unrecognised:
            message(
                f"warning: {one.slot.name}: unrecognised call at line {call.line}, not "
                f"instrumented: {call.text}"
            )
    unmatched = [set(one.result.plan.unmatched) for one in placed]
    for part in sorted(set.intersection(*unmatched) if unmatched else ()):
        message(f"warning: there is no {part}")
    without = [one for one in refused if one.error.slug == "no-launch-matches"]
    if without:
        message(f"{_count(len(without), 'wrapper')} without such a launch stay as they are")
    for other in refused:
        if other not in without:
            message(f"warning: {other.slot.name} is not instrumented: {other.error.message}")
    for name, reason in broken:
        message(f"warning: {name} cannot be read: {reason}")


def show_placed(cache: Cache, placed: Sequence[Placed], asked: Selection) -> None:
    launches = sum(len(one.result.plan.probed) for one in placed)
    message(
        f"{', '.join(asked.probes)} around {_count(launches, 'launch', 'es')} in "
        f"{_count(len(placed), 'wrapper')} of {len(cache.slots)} in {cache.directory}"
    )
    message("every program that uses them is probed until `rewriter cache restore`")


def placed_json(directory: Path, placed: Sequence[Placed], refused: Sequence[Refused]) -> Json:
    return {
        "directory": str(directory),
        "wrappers": [
            {
                "wrapper": one.slot.name,
                "probes": list(one.result.selection.probes),
                "launches": [launch.index for launch in one.result.plan.probed],
                "skipped": [
                    {"launch": skipped.launch.index, "reason": skipped.reason}
                    for skipped in one.result.plan.skipped
                ],
            }
            for one in placed
        ],
        "refused": [
            {"wrapper": one.slot.name, "error": one.error.slug, "reason": one.error.message}
            for one in refused
        ],
    }


def show_cleared(cleared: Cleared) -> None:
    text = f"restored {_count(len(cleared.restored), 'wrapper')}"
    if cleared.stripped:
        text += f", took the probes out of {len(cleared.stripped)} that keep other edits"
    if cleared.products:
        text += f", removed {_count(cleared.products, 'build')} of instrumented C++"
    if cleared.graphs:
        text += f", removed {_count(cleared.graphs, 'compiled graph')} with probes"
    message(text)


def edited(left: Sequence[str]) -> str:
    """What to do about wrappers that were left alone."""
    return (
        f"edited since the probes went in, and left as it is: {_listed(left)}; --overwrite gives "
        "the original back, and loses the edits"
    )


def verdicts(ran: CacheRun, *, blocking: bool) -> tuple[Verdict, ...]:
    """Where a program that did not end well was."""
    if ran.ended.code == 0 or ran.dump is None:
        return ()
    from rewriter.triage import examine

    return examine(ran.dump, ran.ended, blocking=blocking)


def show_ran(request: Request, ran: CacheRun, verdicts: Sequence[Verdict]) -> None:
    """The report, on standard error: standard output is the program's."""
    from rewriter.verdict import describe

    warn_about(ran.placed, ran.refused, ran.broken)
    _warn_of_unprobed(ran)
    for cleared in ran.cleared:
        if cleared.left:
            message("warning: " + edited(cleared.left))
    if ran.placed:
        message(_calls(ran))
    for finding in ran.found.findings:
        message(_finding(request, finding))
    if ran.interrupted:
        message("interrupted; the cache is as it was")
    elif ran.ended.code != 0:
        message(f"{shlex.join(request.program)}: {ran.ended}")
        if ran.placed and not verdicts:
            message("no launch was recorded as running when it ended")
    for verdict in verdicts:
        message(printable(describe(verdict, next_command=_again(request, verdict))))
    if ran.dump is not None:
        message(f"dump: {ran.dump}; see it with: rewriter report {shlex.quote(str(ran.dump))}")


def ran_json(request: Request, ran: CacheRun, verdicts: Sequence[Verdict]) -> Json:
    return {
        "directory": str(request.directory),
        "program": list(request.program),
        "command": request.command,
        "ended": ran.ended.json(),
        "interrupted": ran.interrupted,
        "runs": ran.runs,
        "wrappers": [
            {
                "wrapper": one.slot.name,
                "graph": one.slot.wrapper.graph,
                "launches": len(one.result.plan.probed),
                "calls": ran.found.calls.get(one.slot.path.name, 0),
            }
            for one in ran.placed
        ],
        "refused": placed_json(request.directory, (), ran.refused)["refused"],
        "unprobed": [{"wrapper": one.slot.name, "frozen": one.frozen} for one in ran.unprobed],
        "launches": ran.found.launches,
        "findings": [
            {"kind": x.kind, "artifact": x.artifact, "run": x.run, "event": x.row}
            for x in ran.found.findings
        ],
        "left": [name for cleared in ran.cleared for name in cleared.left],
        "dump": None if ran.dump is None else str(ran.dump),
        "verdicts": [verdict.json() for verdict in verdicts],
    }


def _calls(ran: CacheRun) -> str:
    """How often each wrapper was called; those that were not only in sum."""
    calls = {one.slot: ran.found.calls.get(one.slot.path.name, 0) for one in ran.placed}
    rows = [["wrapper", "graph", "launches", "calls"]]
    rows += [
        [one.slot.short, one.slot.wrapper.graph, str(len(one.result.plan.probed)), str(count)]
        for one in ran.placed
        if (count := calls[one.slot])
    ]
    lines = [plain_table(rows)] if len(rows) > 1 else []
    idle = [slot.short for slot, count in calls.items() if not count]
    if idle:
        lines.append(f"never called: {_count(len(idle), 'wrapper')}: {_listed(idle)}")
    if idle and len(idle) == len(calls):
        lines.append(
            "a program that sets a cache directory of its own, or force_disable_caches, reads none "
            "of these"
        )
    lines.append(f"{_count(ran.found.launches, 'launch', 'es')} recorded")
    return printable("\n".join(lines))


def _warn_of_unprobed(ran: CacheRun) -> None:
    frozen = [one.slot.short for one in ran.unprobed if one.frozen]
    new = [one.slot.short for one in ran.unprobed if not one.frozen]
    if frozen:
        message(
            f"warning: not probed: {_listed(frozen)}: the weights are frozen, and their addresses "
            "are in the text, so that each process makes a wrapper of its own. `rewriter run FILE "
            "--constants` runs one alone."
        )
    if new:
        message(
            f"warning: not probed: {_listed(new)}: the program compiled it only in its last run. "
            "Run the command again."
        )


def _finding(request: Request, finding: Finding) -> str:
    row = finding.row
    what = {"nan": "NaN", "inf": "infinite value"}[finding.kind]
    where = f"{row.get('arg', 'a value')} ({row.get('role', '')})"
    at = f"{row['phase']} #{row['launch']} {row['kernel']}" if "launch" in row else "of the inputs"
    wrapper = Path(finding.artifact).stem[:14]
    count = row.get(finding.kind)
    return printable(f"first {what}: {where} {at} ({count} elements), {finding.run}, {wrapper}")


def _again(request: Request, verdict: Verdict) -> str:
    """The command that would tell more."""
    words = ["rewriter", "cache", "run"]
    if request.pinned:
        words += ["--dir", str(request.directory)]
    words += ["--wrappers", f"{Path(verdict.artifact).stem[:14]}*"]
    words += shlex.split(verdict.wants[0])
    if request.timeout is not None:
        words += ["--timeout", f"{request.timeout:g}"]
    return shlex.join([*words, "--", *request.program])


def _show_running(running: Running | None) -> None:
    if running is not None:
        count = _count(len(running.wrappers), "wrapper")
        message(
            f"in progress since {_when(running.started)}: `{running.command}` (process "
            f"{running.pid} on {running.host}), probes in {count}"
        )


def _running_json(running: Running | None) -> Json | None:
    if running is None:
        return None
    return {**vars(running), "wrappers": list(running.wrappers)}


def _slot_json(slot: Slot) -> Json:
    return {
        "wrapper": slot.name,
        "path": str(slot.path),
        "modified": slot.modified,
        "state": slot.state,
        "backup": slot.backup,
        "probes": list(slot.probes),
    }


def _state(slot: Slot) -> str:
    return f"{slot.state} ({','.join(slot.probes)})" if slot.probes else slot.state


def _backup(slot: Slot) -> str:
    return {
        "none": "from the file itself",
        "original": "kept beside it",
        "foreign": "from the file itself; what lies beside it is another file",
    }[slot.backup]


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _few(names: Iterable[str]) -> str:
    each = _each(names)
    return " ".join(each[:_FEW]) + (" …" if len(each) > _FEW else "")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")


def _each(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _count(number: int, noun: str, plural: str = "s") -> str:
    return f"{number} {noun}{plural * (number != 1)}"
