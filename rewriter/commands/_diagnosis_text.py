"""The page of a diagnosis, as lines of text: one sentence, the evidence, what was ruled out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from rewriter.commands._options import CheckOptions
from rewriter.commands._output import emit, from_here
from rewriter.core import json_text
from rewriter.core.documents import Document, as_json
from rewriter.core.errors import DIFFERS, OK
from rewriter.core.labels import short
from rewriter.core.terminal import level_style, message, say
from rewriter.core.text import counted
from rewriter.diagnosis.findings import Diagnosis, Finding, Suspect
from rewriter.dump.directory import DIAGNOSIS
from rewriter.dump.names import listed

_OTHERS = 5  # findings listed after the first one
_SUSPECTS = 8
_WRAPPERS = 3  # facts listed for one suspicion that was ruled out


def conclude(
    arguments: CheckOptions,
    diagnosis: Diagnosis,
    document: Document,
    folder: Path | None,
    *,
    title: str = "diagnosis",
    also: Sequence[str] = (),
    kept: bool = True,
) -> int:
    """Print a diagnosis, with lines that the command `also` has, or its document; `folder` has the
    dumps, and keeps the document."""
    if folder is not None and kept:
        encoded = json_text.encode(as_json(document), indent=1)
        (folder / DIAGNOSIS).write_text(encoded + "\n", encoding="utf-8")
    if arguments.json:
        emit(document)
    else:
        first, *rest = page(diagnosis, title=title)
        say([(first, level_style(diagnosis.level))], *rest, *also)
        if folder is not None:
            message(f"dumps: {from_here(folder)}")
    return DIFFERS if diagnosis.fails(strict=arguments.strict) else OK


def page(diagnosis: Diagnosis, *, title: str = "diagnosis") -> list[str]:
    """The whole page; the first line is the headline."""
    lines = [f"{title}: {diagnosis.headline}"]
    if diagnosis.finding is not None:
        lines += [f"  {line}" for line in diagnosis.finding.text]
        lines += _others(*diagnosis.findings)
    if diagnosis.ruled_out:
        lines.append("ruled out:")
        lines += [f"  {line}" for line in _grouped(diagnosis.ruled_out)]
    lines += _suspects(diagnosis.suspects)
    lines += [f"note: {note}" for note in diagnosis.notes]
    if diagnosis.next:
        lines.append(f"next: {diagnosis.next}")
    return lines


def _grouped(sentences: Sequence[str]) -> Iterator[str]:
    """What was ruled out, each suspicion once, however many wrappers there are."""
    groups: dict[str, list[str]] = {}
    for sentence in sentences:
        suspicion, _, known = sentence.partition(": ")
        groups.setdefault(suspicion, []).append(known)
    for suspicion, facts in groups.items():
        alike = [
            fact if times == 1 else f"{fact} ({times} wrappers)"
            for fact, times in Counter(facts).items()
        ]
        more = f"; and so for {len(alike) - _WRAPPERS} more" if len(alike) > _WRAPPERS else ""
        yield f"{suspicion}: {'; '.join(alike[:_WRAPPERS])}{more}"


def _others(main: Finding, *findings: Finding) -> Iterator[str]:
    if not findings:
        return
    yield f"beside it, {counted(len(findings), 'finding')}, which may follow from it:"
    alike: dict[object, list[Finding]] = {_same(main): []}
    for finding in findings:
        alike.setdefault(_same(finding), []).append(finding)
    main_again, *groups = alike.values()
    if main_again:
        what = "the same" if main.launch is None else "the same launch"
        yield f"  {what} in {counted(len(main_again), 'further call')}"
    for first, *more in groups[:_OTHERS]:
        again = f"; and in {counted(len(more), 'further call')}" if more else ""
        yield f"  {first.headline}{again}"
    if len(groups) > _OTHERS:
        yield f"  and {sum(map(len, groups[_OTHERS:]))} more"


def _same(finding: Finding) -> object:
    """What findings about one launch, or about calls of one wrapper, have in common."""
    of = finding.what.replace(finding.run, "") if finding.launch is None else finding.launch
    return finding.kind, finding.artifact, of


def _suspects(suspects: Sequence[Suspect]) -> Iterator[str]:
    """Launches that could not be checked, first those that feed a wrong output."""
    if not suspects:
        return
    yield "not checked:"
    ordered = sorted(suspects, key=lambda x: not x.feeds)
    several = len({(suspect.run, suspect.artifact) for suspect in suspects}) > 1
    for suspect in ordered[:_SUSPECTS]:
        run = f"{suspect.run or short(suspect.artifact)} " if several else ""
        feeds = ", feeds the wrong output" if suspect.feeds else ""
        model = f" ({listed(suspect.lines)})" if suspect.lines else ""
        yield f"  {run}{suspect.label} {suspect.kernel}{model}{feeds}: {suspect.reason}"
    if len(suspects) > _SUSPECTS:
        yield f"  and {len(suspects) - _SUSPECTS} more"
