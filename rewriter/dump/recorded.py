"""Makes runs for readers of a dump from the rings of the probe `record`.

The calls of a process that has ended are written as runs into the dump, and replace its ring. A
running process keeps its ring, and in a dump that cannot be written all rings stay: then the runs
are written into a temporary directory with links to the rest of the dump.

Each run is a directory, and a ring may have tens of thousands of small calls, so only the last ones
of each process become runs. Their ring stays in the dump under another name, since a reader may ask
for more calls later.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from rewriter.core import locks
from rewriter.core.errors import RewriterError
from rewriter.dump.ring import RingContent, read_ring
from rewriter.dump.ring_runs import read_tables, write_process_end, write_runs
from rewriter.runtime import flight

VARIABLE = "REWRITER_RECORD_CALLS"
_USUAL_CALLS = 1000  # of each process
_MOST_NOTES = 3
# Files beside a ring: the lock for all rings, runs that are not in their place yet, a mark that all
# of them are written, a ring whose last calls became runs, and a file with their number and names,
# sentences for readers, and whether the process was running.
_LOCK, _STAGED, _DONE, _KEPT, _PART = ".lock", "runs", "done", "ring.taken", "part"
_NOTE, _RUNNING = "note", "running"


def with_runs(path: Path) -> Path:
    """The directory that has all runs of the dump at `path`: usually `path` itself.

    Raises `RewriterError` if the variable `REWRITER_RECORD_CALLS` is not a number.
    """
    around = (path, *path.absolute().parents[:2])
    root = next((x for x in around if _rings(x) or _kept_rings(x)), None)
    if root is None:
        return path
    if root == path.absolute() or root == path:
        return _with_runs(path)
    # For a part of a dump, runs made from rings that are still written are not included.
    _with_runs(root)
    return path


def notes(path: Path) -> str:
    """What a reader of the dump at `path` needs to know, in sentences; usually nothing."""
    found: dict[str, None] = {}
    for file in sorted((path / flight.FOLDER).glob(f"*/{_NOTE}")):
        with contextlib.suppress(OSError):
            found |= dict.fromkeys(file.read_text(encoding="utf-8").splitlines())
    shown = [*found][:_MOST_NOTES]
    if len(found) > len(shown):
        shown.append(f"So it is of {len(found) - len(shown):,} more.")
    return " ".join(shown)


def notes_on(content: RingContent) -> Iterator[str]:
    """What a reader of the runs of a ring needs to know, in sentences."""
    if len(content.calls) < content.total:
        yield (
            f"Of process {content.pid} the last {len(content.calls):,} of {content.total:,} "
            f"recorded calls are shown; {VARIABLE}={content.total} shows all."
        )
    if content.lost_marks:
        yield (
            f"More than {flight.SLOTS} threads of process {content.pid} were in launches at once: "
            f"which ones is known of {flight.SLOTS}, and the one at fault may be another."
        )


def was_running(path: Path) -> bool:
    """Whether the dump at `path` has calls of a process that was running when they were read or
    copied."""
    return next((path / flight.FOLDER).glob(f"*/{_RUNNING}"), None) is not None


def unreadable_ring(path: Path) -> Path | None:
    """A ring in the dump at `path` that cannot be read, if there is one."""
    return next((ring for ring in _rings(path) if read_ring(ring) is None), None)


def _rings(root: Path) -> list[Path]:
    found = (root / flight.FOLDER).glob(f"*/{flight.RING}")
    return sorted(ring for ring in found if ring.is_file())


def _kept_rings(root: Path) -> list[Path]:
    """The rings whose last calls became runs."""
    return sorted((root / flight.FOLDER).glob(f"*/{_KEPT}"))


def _wanted_calls() -> int:
    """How many calls of each process become runs."""
    text = os.environ.get(VARIABLE, "")
    if not text:
        return _USUAL_CALLS
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text)):
        raise RewriterError(
            "bad-number",
            f"{VARIABLE} is {text!r}",
            hint="Expected the number of last calls to show for each process, at least 1.",
        )
    return int(text)


def _with_runs(root: Path) -> Path:
    count = _wanted_calls()
    shown: list[Path] = []
    try:
        with (root / flight.FOLDER / _LOCK).open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for ring in _rings(root):
                if _is_written(ring):
                    shown.append(ring)
                else:
                    _replace_by_runs(ring, root, count)
    except OSError:
        shown = _rings(root)  # the dump cannot be written to
    shown += [ring for ring in _kept_rings(root) if _runs_made(ring)[0] < count]
    return _temporary_dump(root, shown, count) if shown else root


def _is_written(ring: Path) -> bool:
    """Whether the process of a ring is running: it holds a lock on the file."""
    with ring.open("rb") as file:
        return not locks.take(file.fileno())


def _runs_made(ring: Path) -> tuple[int, list[str]]:
    """How many calls were wanted when a kept ring was converted to runs, and the runs' names."""
    try:
        number, *names = ring.with_name(_PART).read_text(encoding="utf-8").splitlines()
        return int(number), names
    except (OSError, ValueError):
        return _USUAL_CALLS, []


def _replace_by_runs(ring: Path, root: Path, count: int) -> None:
    """Write the last `count` calls of a ring as runs that replace the ring; completes the work of
    an earlier reader that was interrupted.

    A ring that cannot be read stays: another version of this program may read it.
    """
    staged, done, part = (ring.with_name(name) for name in (_STAGED, _DONE, _PART))
    if not done.exists():
        shutil.rmtree(staged, ignore_errors=True)
        content = read_ring(ring)
        if content is None:
            return
        chosen = content.last(count)
        names = write_runs(chosen, read_tables(root), staged, beside=root)
        write_process_end(content, root)
        _write_notes(chosen, ring.parent, is_running=content.is_copy)
        if len(chosen.calls) < content.total:
            part.write_text("\n".join((str(count), *names)), encoding="utf-8")
        done.touch()
    for run in sorted(staged.glob("rank*/run*")):
        place = root / run.parent.name / run.name
        place.parent.mkdir(exist_ok=True)
        run.rename(place)
    if part.exists():
        ring.rename(ring.with_name(_KEPT))
    else:
        ring.unlink()
    shutil.rmtree(staged)
    done.unlink()
    with contextlib.suppress(OSError):  # not empty if it has a note
        ring.parent.rmdir()


def _temporary_dump(root: Path, rings: Sequence[Path], count: int) -> Path:
    """Make a dump of links to the contents of the one at `root`, and of runs from these rings as
    they are now: rings that are still written, rings in a dump that cannot be written, and kept
    rings of which more calls are wanted."""
    dump = Path(tempfile.mkdtemp(prefix="rewriter-recorded-"))
    atexit.register(shutil.rmtree, dump, ignore_errors=True)
    contents = [(ring, content) for ring in rings if (content := read_ring(ring)) is not None]
    again = {run for ring, _ in contents if ring.name == _KEPT for run in _runs_made(ring)[1]}
    for entry in root.iterdir():
        if entry.name.startswith("rank") and entry.is_dir():
            (dump / entry.name).mkdir()
            for run in entry.iterdir():
                if f"{entry.name}/{run.name}" not in again:
                    (dump / entry.name / run.name).symlink_to(run.absolute())
        elif entry.name != flight.FOLDER:
            (dump / entry.name).symlink_to(entry.absolute())
    for note in (root / flight.FOLDER).glob("*/*"):
        if note.name in (_NOTE, _RUNNING) and note.parent not in {x.parent for x, _ in contents}:
            place = dump / flight.FOLDER / note.parent.name
            place.mkdir(parents=True, exist_ok=True)
            (place / note.name).symlink_to(note.absolute())
    tables = read_tables(root)
    for ring, content in contents:
        chosen = content.last(count)
        write_runs(chosen, tables, dump, beside=dump)
        is_running = content.is_copy or (ring.name == flight.RING and _is_written(ring))
        _write_notes(chosen, dump / flight.FOLDER / ring.parent.name, is_running=is_running)
        if ring.name == flight.RING and not is_running:
            write_process_end(content, dump)
    return dump


def _write_notes(content: RingContent, folder: Path, *, is_running: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if is_running:
        (folder / _RUNNING).touch()
    if lines := list(notes_on(content)):
        (folder / _NOTE).write_text("".join(f"{x}\n" for x in lines), encoding="utf-8")
