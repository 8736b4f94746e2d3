"""The rings of running processes: finds those that a process writes, and copies one."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from pathlib import Path

from rewriter.dump.document_files import MANIFEST
from rewriter.dump.ring import Header
from rewriter.runtime import flight
from rewriter.runtime.flight import HEADER


def rings_of(pid: int) -> list[Path]:
    """The rings that a process of this machine writes. Raises `OSError` if its memory map cannot be
    read."""
    mapped = os.fsdecode(Path(f"/proc/{pid}/maps").read_bytes())
    # The kernel writes a line break in a name as `\012`.
    names = (line.partition("/")[2].replace("\\012", "\n") for line in mapped.split("\n"))
    paths = (Path(f"/{name}") for name in sorted({*names}) if name.endswith(f"/{flight.RING}"))
    rings = (x for x in paths if x.parents[1].name == flight.FOLDER and x.is_file())
    # A fork still maps the ring of its parent, but does not write to it.
    own = _number_inside(pid)
    return [x for x in rings if (head := Header.read(x)) is None or head.pid == own]


def _number_inside(pid: int) -> int:
    """The number that a process has for itself, which is another one inside a container."""
    for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    return pid


def copy_ring(ring: Path, into: Path) -> None:
    """Copy the ring of a running process, as it is now, into another dump, which may have rings of
    other processes."""
    root = ring.parents[2]
    with ring.open("rb") as file:
        data = bytearray(file.read())
        file.seek(0)
        after = file.read(HEADER.size)
    fields = list(HEADER.unpack_from(data))
    # The tail from after the copy: records that were overwritten meanwhile are not valid. The copy
    # has no lock, and a state of its own.
    fields[4], fields[5], fields[6] = HEADER.unpack(after)[4], 0, flight.COPIED
    HEADER.pack_into(data, 0, *fields)
    tables = Path(flight.FOLDER, flight.TABLES)
    if not (into / MANIFEST).exists():
        shutil.copy(root / MANIFEST, into / MANIFEST)
    (into / tables).mkdir(parents=True, exist_ok=True)
    for table in (root / tables).glob("*.json"):
        shutil.copy(table, into / tables / table.name)
    folder = into / flight.FOLDER / ring.parent.name
    for number in itertools.count(1):  # the process may have another ring, of another dump
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            break
        folder = folder.with_name(f"{ring.parent.name}.copy{number}")
    (folder / flight.RING).write_bytes(data)
