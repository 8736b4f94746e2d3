"""What `rewriter sanitize` does: the runs that are needed, and the page.

Two runs differ in what memory is filled with that nobody wrote. Only where these find something are
there more: one that fills nothing, to see whether the outputs are the same, and two that save the
values of the launches that differ.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rewriter.artifact.types import OpenWrapper
from rewriter.commands import _program
from rewriter.commands._output import emit, from_here
from rewriter.commands._probed_runs import ArtifactSubject, ProbedRun, ProgramSubject, Runs
from rewriter.commands._run import open_named
from rewriter.commands._selection import check_guard_variable
from rewriter.core import json_text
from rewriter.core.documents import as_json
from rewriter.core.errors import DIFFERS, INTERRUPTED, OK, RewriterError
from rewriter.core.terminal import level_style, message, say
from rewriter.core.types import Which
from rewriter.diagnosis import diagnosis_text, fills, ruling, sanitized
from rewriter.diagnosis.corruption import changed_values, examine_corruption
from rewriter.diagnosis.fills import FILLINGS
from rewriter.diagnosis.findings import Diagnosis
from rewriter.diagnosis.lifetimes import examine_lifetimes
from rewriter.diagnosis.races import examine_races
from rewriter.diagnosis.ruling import Examined
from rewriter.diagnosis.sanitized import CHECKS, Check
from rewriter.dump import dataflow
from rewriter.dump.directory import DIAGNOSIS, dump_directory
from rewriter.dump.reading import Dump, open_dump
from rewriter.execution import program
from rewriter.execution.dumped_wrappers import wrapper_of
from rewriter.instrumentation.editable import already_instrumented
from rewriter.instrumentation.select import check_bytes, select
from rewriter.instrumentation.types import Selection
from rewriter.runtime.memory.patterns import OFF, VARIABLE
from rewriter.runtime.sizes import parse_bytes

_MOST = 2  # runs, unless they find something
_LEAST, _USUAL = 256 << 20, 4 << 30  # bytes of values
_WIDEST = 99_999_999  # bytes of a band that `REWRITER_GUARD` may say


def act_artifact(arguments: argparse.Namespace, path: str) -> int:
    """Look for memory faults of a wrapper or a package."""
    _program.refuse_options_of_programs(arguments)
    checks = chosen(arguments.only)
    _check_guard(arguments.guard)
    artifact = open_named(arguments, path)
    if artifact.only.probes is not None:
        hint = "Name the plain file, or `rewriter strip` it first."
        raise already_instrumented(artifact.only, hint)
    if checks == {"race"}:
        return _report(arguments, checks, _texts([artifact.only], checks), None, None)
    folder = _folder(arguments, artifact.path)
    runs = Runs(ArtifactSubject(arguments, path, artifact), folder, _MOST)
    return _sanitize(arguments, checks, runs, [artifact.only])


def act_program(arguments: argparse.Namespace, command: Sequence[str]) -> int:
    """Look for memory faults of the wrappers of a program."""
    _program.refuse_options_of_artifacts(arguments)
    checks = chosen(arguments.only)
    _check_guard(arguments.guard)
    program.require(command)
    if checks == {"race"}:
        raise RewriterError(
            "bad-check",
            "--only race of a program: races are shown by the text of its wrappers",
            hint="Name a wrapper, or the cache: rewriter list CACHE --strict.",
        )
    folder = _folder(arguments, Path("cache"))
    return _sanitize(arguments, checks, Runs(ProgramSubject(arguments, command), folder, _MOST))


def chosen(only: str) -> set[Check]:
    """The checks of `--only`."""
    wanted = {name.strip() for name in only.split(",") if name.strip()}
    for name in wanted:
        if name not in CHECKS:
            raise RewriterError(
                "bad-check",
                f"--only: {name!r} is nothing that is looked for",
                hint=f"Pass one or more of {', '.join(CHECKS)}.",
            )
    return {name for name in CHECKS if name in wanted} if wanted else set(CHECKS)


def _check_guard(text: str) -> None:
    """Refuse what the runtime would not use: it would guard with another size."""
    if not text:
        check_guard_variable()
    size = check_bytes(text, option="--guard")
    if size and parse_bytes(size) > _WIDEST:
        raise RewriterError(
            "bad-size",
            f"--guard {size!r} is wider than a band can be",
            hint=f"Each buffer gets two: pass at most {_WIDEST} bytes, such as 64K or 1M.",
        )


@dataclass
class _Found:
    """What the runs came to."""

    parts: list[Examined] = field(default_factory=list)
    runs: list[ProbedRun] = field(default_factory=list)

    @property
    def has_findings(self) -> bool:
        return any(part.findings for part in self.parts)

    @property
    def dumps(self) -> list[Path]:
        return [one.dump for one in self.runs if one.dump is not None]


def _sanitize(
    arguments: argparse.Namespace,
    checks: set[Check],
    runs: Runs,
    wrappers: Sequence[OpenWrapper] = (),
) -> int:
    found = _Found()
    selection = _selection(arguments, checks)
    for number, why in enumerate(_reasons(checks)):
        environment = _environment(arguments, number)
        ran = runs.run(f"filling-{number}", selection, why, environment=environment)
        if ran.ended.interrupted:
            return INTERRUPTED
        found.runs.append(ran)
        if ran.dump is None:
            break
    first = found.runs[0]
    if first.dump is None and first.ended.code == 0:
        raise RewriterError(
            "nothing-saved",
            "no launch was recorded",
            hint="Nothing that was chosen ran: see the lines above, and --calls.",
        )
    opened = [open_dump(path) for path in found.dumps]
    known = {run.sha256: one for dump in opened for run in dump.runs if (one := wrapper_of(run))}
    texts = list(known.values()) or list(wrappers)
    found.parts += _texts(texts, checks, opened)
    if checks & set(FILLINGS):
        found.parts.append(sanitized.of_rows(opened, checks))
    if "corrupt" in checks and opened:
        found.parts.append(_corruption(arguments, checks, runs, opened[0]))
    if len(found.dumps) == 2 and not any(one.ended.code for one in found.runs):
        found.parts.append(_unwritten(arguments, checks, runs, found))
    if found.has_findings or any(one.ended.code for one in found.runs):
        _without_filling(arguments, checks, runs, found)
    return _report(arguments, checks, found.parts, runs, found)


def _reasons(checks: set[Check]) -> Iterator[str]:
    watched = ", ".join(check for check in CHECKS if check in checks and check != "race")
    yield f"{watched}: memory that nobody wrote is filled"
    if checks & set(FILLINGS):
        yield "the same, filled with something else: what differs was read"


def _selection(arguments: argparse.Namespace, checks: set[Check]) -> Selection:
    """What the runs have that look at everything. Lines of `names` would keep fingerprints from
    being queued, and a package is built for both fillings at once."""
    names = [name for name in FILLINGS if name in checks]
    which: Which = "ends" if "corrupt" in checks else "written"
    return select([*names, "hash"], calls=arguments.calls, args=which)


def _corruption(
    arguments: argparse.Namespace, checks: set[Check], runs: Runs, dump: Dump
) -> Examined:
    """What changed between its writer and its last reader, and with a further run, which looks at
    that behind each launch, who did it."""
    changed = [one for one in changed_values(dump)[0] if one.is_range]
    if not changed:
        return examine_corruption(dump)
    calls = sorted({one.run.facts.call or 0 for one in changed})
    selection = replace(
        _selection(arguments, checks),
        tensors=tuple(sorted({one.name for one in changed})),
        calls=",".join(map(str, calls)),
        recheck=True,
    )
    why = "what changed, looked at behind each launch"
    watched = runs.run("watched", selection, why, environment=_environment(arguments, 0))
    return examine_corruption(dump, None if watched.dump is None else open_dump(watched.dump))


def _environment(arguments: argparse.Namespace, filling: int) -> dict[str, str]:
    """What the probes of memory go by: a package is not built again for the other filling."""
    guard = {"REWRITER_GUARD": str(parse_bytes(arguments.guard))} if arguments.guard else {}
    return {VARIABLE: str(filling), **guard}


def _unwritten(
    arguments: argparse.Namespace, checks: set[Check], runs: Runs, found: _Found
) -> Examined:
    """The launches that read what nobody wrote, by the two runs, and by two more with values where
    anything differs."""
    compared = fills.compare_fills(*found.dumps[:2])
    if not compared.differences:
        return sanitized.of_fills(compared, [])
    launches, calls = fills.launches_of(compared.differences)
    again = []
    for number in range(2):
        selection = replace(
            _selection(arguments, checks),
            launches=tuple(launches),
            calls=calls,
            max_bytes=str(_limit(runs.folder)),
            args="all",
            when="both",
        )
        selection = replace(selection, probes=(*selection.probes, "save"))
        why = "the values of launches that differ" + ", with the other filling" * number
        environment = _environment(arguments, number)
        ran = runs.run(f"values-{number}", selection, why, environment=environment)
        if ran.dump is None:
            return sanitized.of_fills(compared, [])
        again.append(ran.dump)
    varying = fills.varying(compared.differences, found.dumps[0], again[0])
    left = [one for one in compared.differences if one not in varying]
    return sanitized.of_fills(compared, fills.judge(left, again[0], again[1]), varying)


def _without_filling(
    arguments: argparse.Namespace, checks: set[Check], runs: Runs, found: _Found
) -> None:
    """Run it as it is, to see whether its outputs are the same: then nobody would have seen it.
    What fails runs once more to name the launch."""
    # With the same lines, which leave memory as it is: what is compiled is not compiled again.
    off = {VARIABLE: OFF}
    ends = [one.ended for one in found.runs]
    why = "as it is: are the outputs the same"
    plain = runs.run("plain", _selection(arguments, checks), why, environment=off)
    failed = next((number for number, end in enumerate(ends) if end.code), None)
    crashes = () if failed is None else found.runs[failed].crashes
    if failed is not None and (plain.ended.code == 0 or any(end.code == 0 for end in ends)):
        selection = replace(_selection(arguments, checks), args="written")
        selection = replace(selection, probes=("names", *selection.probes))
        environment = _environment(arguments, failed)
        ran = runs.run("failing", selection, "where it fails", environment=environment)
        crashes = ran.crashes or crashes
    found.parts.append(sanitized.of_ends(ends, plain.ended, crashes))
    if plain.dump is not None and found.has_findings and plain.ended.code == 0:
        found.parts.append(sanitized.of_outputs(plain.dump, found.dumps))


def _texts(
    wrappers: Sequence[OpenWrapper], checks: set[Check], dumps: Sequence[Dump] = ()
) -> Iterator[Examined]:
    """What the texts of the wrappers show."""
    empty = {name for dump in dumps for run in dump.runs for name in dataflow.empty_variables(run)}
    for wrapper in wrappers:
        if "race" in checks:
            yield examine_races(wrapper)
        if checks & {"poison", "stale"}:
            yield examine_lifetimes(wrapper, empty=empty)


def _folder(arguments: argparse.Namespace, path: Path) -> Path:
    if arguments.dump is None:
        return dump_directory(path, None, overwrite=False, suffix=".sanitize")
    return dump_directory(path, arguments.dump, overwrite=arguments.overwrite)


def _limit(folder: Path) -> int:
    """The bytes of values of one run."""
    return max(_LEAST, min(_USUAL, shutil.disk_usage(folder).free // 2))


def _report(
    arguments: argparse.Namespace,
    checks: set[Check],
    parts: Sequence[Examined] | Iterator[Examined],
    runs: Runs | None,
    found: _Found | None,
) -> int:
    from rewriter.commands._documents.sanitize import sanitize_document

    dumps = [open_dump(path) for path in found.dumps] if found is not None else []
    order = [run.name for run in dumps[0].runs] if dumps else []
    steps = () if runs is None else tuple(runs.done)
    diagnosis = ruling.rule(parts, order=order, steps=steps)
    coverage = sanitized.coverage(dumps[:1], checks)
    folder = None if runs is None else runs.folder
    document = sanitize_document("" if folder is None else str(folder), diagnosis, coverage)
    if folder is not None:
        encoded = json_text.encode(as_json(document), indent=1)
        (folder / DIAGNOSIS).write_text(encoded + "\n", encoding="utf-8")
    if arguments.json:
        emit(document)
    else:
        _show(diagnosis, sanitized.coverage_lines(coverage))
        if folder is not None:
            message(f"dumps: {from_here(folder)}")
    return DIFFERS if diagnosis.findings else OK


def _show(diagnosis: Diagnosis, coverage: Sequence[str]) -> None:
    first, *rest = diagnosis_text.page(diagnosis, title="sanitize")
    style = level_style("error" if diagnosis.findings else "good")
    say([(first, style)], *rest)
    if coverage:
        say("looked at:", *(f"  {line}" for line in coverage))
