"""Has readers of a dump find runs where the probe `record` left rings.

The calls of a process that is gone are written as runs into the dump, in place of its ring. A
process that runs keeps its ring, and where the dump cannot be written to all rings stay: then the
runs are written into a temporary directory that has links to the rest of the dump.

Each run is a directory, and a ring may have tens of thousands of small calls, so only the last ones
of each process become runs. Such a ring stays in the dump under another name: a reader may ask for
more calls later.
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

from rewriter.core.errors import RewriterError
from rewriter.dump.ring import RingContent, read_ring
from rewriter.dump.ring_runs import read_tables, write_process_end, write_runs
from rewriter.runtime import flight

VARIABLE = "REWRITER_RECORD_CALLS"
_USUAL_CALLS = 1000  # of each process
_MOST_NOTES = 3
# Files beside a ring: the lock of all rings, runs that are not in their place yet, whether all of
# them are written, a ring of which the last calls became runs, their number and names, sentences
# for readers, and whether the process was running.
_LOCK, _STAGED, _DONE, _KEPT, _PART = ".lock", "runs", "done", "ring.taken", "part"
_NOTE, _RUNNING = "note", "running"


def with_runs(path: Path) -> Path:
    """The directory that has all runs of the dump at `path`: mostly `path` itself.

    Raises `RewriterError` where the variable `REWRITER_RECORD_CALLS` is no number.
    """
    around = (path, *path.absolute().parents[:2])
    root = next((x for x in around if _rings(x) or _kept_rings(x)), None)
    if root is None:
        return path
    if root == path.absolute() or root == path:
        return _with_runs(path)
    # Part of a dump was named: what is made of rings that are still written is not in it.
    _with_runs(root)
    return path


def notes(path: Path) -> str:
    """What a reader of the dump at `path` has to know, in sentences; mostly nothing."""
    found: dict[str, None] = {}
    for file in sorted((path / flight.FOLDER).glob(f"*/{_NOTE}")):
        with contextlib.suppress(OSError):
            found |= dict.fromkeys(file.read_text(encoding="utf-8").splitlines())
    shown = [*found][:_MOST_NOTES]
    if len(found) > len(shown):
        shown.append(f"So it is of {len(found) - len(shown):,} more.")
    return " ".join(shown)


def notes_on(content: RingContent) -> Iterator[str]:
    """What a reader of the runs of a ring has to know, in sentences."""
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
    """The rings of which the last calls became runs."""
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
    """Whether the process of a ring runs: it holds a lock on the file."""
    with ring.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _runs_made(ring: Path) -> tuple[int, list[str]]:
    """How many calls were asked for when a kept ring became runs, and the names of these runs."""
    try:
        number, *names = ring.with_name(_PART).read_text(encoding="utf-8").splitlines()
        return int(number), names
    except (OSError, ValueError):
        return _USUAL_CALLS, []


def _replace_by_runs(ring: Path, root: Path, count: int) -> None:
    """Write the last `count` calls of a ring as runs, in place of the ring; all of them, also where
    an earlier reader was interrupted at it.

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
    with contextlib.suppress(OSError):  # not empty: it has a note
        ring.parent.rmdir()


def _temporary_dump(root: Path, rings: Sequence[Path], count: int) -> Path:
    """A dump of links to what is in the one at `root`, and of runs of these rings as they are now:
    those that are still written, those of a dump that cannot be written to, and kept ones of which
    more calls are asked for."""
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
