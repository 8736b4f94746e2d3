"""What is known of a diagnosis as one archive, to attach to a bug report.

The report has the sections that PyTorch asks for in a bug report about torch.compile
(.github/ISSUE_TEMPLATE/pt2-bug-report.yml).
"""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rewriter.core.errors import RewriterError
from rewriter.core.exit_status import first_line
from rewriter.core.text import counted
from rewriter.diagnosis.findings import Diagnosis, Finding
from rewriter.diagnosis.verification.functional import schemas
from rewriter.diagnosis.verification.replacing.insert import replaced
from rewriter.diagnosis.verification.replacing.substitutes import substitutes
from rewriter.dump.reading import RunDump, open_dump
from rewriter.execution.dumped_wrappers import plain_wrapper_of
from rewriter.reproduction import reproduce
from rewriter.reproduction.anonymous import Anonymous
from rewriter.reproduction.recorded import recorded_launch
from rewriter.reproduction.script import SCRIPT
from rewriter.reproduction.types import Tensor

_REPRO, _BEFORE, _AFTER = "repro", "wrapper.py", "wrapper.replaced.py"
_GRAPH, _VERSIONS, _REPORT, _DOCUMENT = "graph.txt", "versions.txt", "report.md", "diagnosis.json"
_COMPUTED = ("wrong", "differs", "nan")  # findings about what a launch computes
_PATIENCE = 120.0  # seconds in which torch has to say what this machine is
_DATE = (1980, 1, 1, 0, 0, 0)  # of files in the archive: the same content is the same archive


@dataclass(frozen=True)
class Bundle:
    """The files of an archive, by their names in it. `missing` says what could not be put in."""

    files: Mapping[str, bytes]
    missing: tuple[str, ...] = ()

    def archive(self) -> bytes:
        written = io.BytesIO()
        with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in self.files.items():
                archive.writestr(zipfile.ZipInfo(name, _DATE), data, zipfile.ZIP_DEFLATED)
        return written.getvalue()


def bundle(
    diagnosis: Diagnosis,
    page: Sequence[str],
    document: str,
    dump: Path | None,
    *,
    weights: bool,
    clean: Anonymous,
) -> Bundle:
    """Put together what is known: `page` is the diagnosis as text, `document` as JSON, and `dump`
    has the values. With `weights`, those of the launch are put in; else others of the same sizes.
    """
    files: dict[str, bytes] = {}
    missing: list[str] = []
    finding = diagnosis.finding
    run = _run(dump, finding)
    for part in ("wrapper", "repro"):
        try:
            if dump is None or run is None or finding is None:
                raise RewriterError("not-recorded", "no finding about a recorded call")
            is_repro = part == "repro"
            files |= _repro(dump, run, finding, weights) if is_repro else _wrapper(run, finding)
        except (RewriterError, OSError) as error:
            missing.append(f"{part}: {first_line(str(error))}")
    if run is not None and run.graph:
        files[_GRAPH] = run.graph.encode()
    files[_VERSIONS] = _versions(run).encode()
    files[_DOCUMENT] = document.encode()
    files = {name: _cleaned(name, data, clean) for name, data in files.items()}
    versions = files[_VERSIONS].decode()
    report = "\n\n".join(_report(diagnosis, page, files, missing, versions, weights=weights))
    return Bundle({_REPORT: clean(f"{report}\n").encode(), **files}, tuple(missing))


def _cleaned(name: str, data: bytes, clean: Anonymous) -> bytes:
    """The names in tensors are those of their files."""
    return data if name.endswith(".pt") else clean(data.decode("utf-8", "replace")).encode()


def _run(dump: Path | None, finding: Finding | None) -> RunDump | None:
    """The call that a finding is about, or the first one."""
    if dump is None:
        return None
    runs = open_dump(dump).runs
    named = finding.run if finding is not None else ""
    return next((x for x in runs if x.name == named), runs[0])


def _wrapper(run: RunDump, finding: Finding) -> dict[str, bytes]:
    """The wrapper as it was called, and with the launch replaced by what its graph says."""
    wrapper = plain_wrapper_of(run)
    found = {_BEFORE: wrapper.source}
    wanted = {finding.launch, *finding.others} if finding.kind in _COMPUTED else set()
    chosen = [
        x for x in substitutes(wrapper, run.graph, schemas(run)).found if x.launch.index in wanted
    ]
    if chosen and wrapper.is_module:
        found[_AFTER] = replaced(wrapper, chosen).source
    return found


def _repro(dump: Path, run: RunDump, finding: Finding, weights: bool) -> dict[str, bytes]:
    """The launch as a script of its own."""
    if finding.launch is None:
        raise RewriterError("no-such-launch", "the finding is about no launch")
    recorded = recorded_launch(dump, finding.launch, run=run.name, iteration=finding.iteration)
    with tempfile.TemporaryDirectory(prefix="rewriter-bundle-") as name:
        if not weights:
            folder = Path(name)
            given = {
                x: replace(tensor, file=_drawn(tensor, folder / f"{number}.pt"))
                for number, (x, tensor) in enumerate(recorded.given.items())
            }
            written = {x: replace(tensor, file=None) for x, tensor in recorded.written.items()}
            recorded = replace(recorded, given=given, written=written)
        notes = () if weights else ("Its values are drawn at random, in the recorded ranges.",)
        made = reproduce.write(
            recorded, reproduce.cut_out(recorded), Path(name, _REPRO), notes=notes
        )
        return {f"{_REPRO}/{x}": (made.directory / x).read_bytes() for x in made.files}


def _drawn(tensor: Tensor, path: Path) -> Path | None:
    """Values of the same type and sizes as a recorded tensor, between its extremes."""
    if tensor.file is None:
        return None
    import torch

    torch.save(tensor.drawn(0), path)
    return path


def _versions(run: RunDump | None) -> str:
    """What torch says of this machine, or else the torch of the recorded run."""
    try:
        ran = subprocess.run(
            [sys.executable, "-m", "torch.utils.collect_env"],
            capture_output=True, text=True, timeout=_PATIENCE, check=True,
        )  # fmt: skip
        return ran.stdout.strip() + "\n"
    except (OSError, subprocess.SubprocessError) as error:
        known = run.manifest.torch if run is not None else ""
        return f"PyTorch version: {known or 'not recorded'}\n(collect_env failed: {error})\n"


_SHOWN = {
    _BEFORE: "the code that Inductor generated",
    _AFTER: "the same, with that launch computed by torch's operators",
    _GRAPH: "the graph that Inductor lowered to it",
    _DOCUMENT: "the diagnosis for a program",
}


def _report(
    diagnosis: Diagnosis,
    page: Sequence[str],
    files: Mapping[str, bytes],
    missing: Sequence[str],
    versions: str,
    *,
    weights: bool,
) -> Iterator[str]:
    """The paragraphs of the report."""
    finding = diagnosis.finding
    yield "### 🐛 Describe the bug"
    yield diagnosis.headline
    if finding is not None and finding.lines:
        yield "Lines of the model:"
        yield "\n".join(f"- `{line}`" for line in finding.lines)
    if any(name.startswith(f"{_REPRO}/") for name in files):
        values = "the recorded values" if weights else "values drawn at random in their ranges"
        yield f"`python {_REPRO}/{SCRIPT}` of the archive runs that launch alone, on {values}."
    yield "The archive also has:"
    shown = (f"- `{name}`: {what}" for name, what in _SHOWN.items() if name in files)
    yield "\n".join([*shown, *(f"- not there: {reason}" for reason in missing)])
    if diagnosis.launches:
        checked = f"{diagnosis.checked} of {counted(diagnosis.launches, 'launch')}"
        yield f"{checked} were compared with what their graph says."
    for title, text in (("Error logs", "\n".join(page)), ("Versions", versions.rstrip())):
        yield f"### {title}"
        yield f"```\n{text}\n```"
