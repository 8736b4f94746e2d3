"""Each run of a program gets all of standard input, as it comes."""

from __future__ import annotations

import errno
import os
import pty
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from rewriter.core.errors import RewriterError
from rewriter.execution.standard_input import StandardInput


def read_by(given: StandardInput, *command: str) -> bytes:
    """What a program writes that is given the standard input."""
    with given.feed() as feed:
        process = subprocess.Popen(command, stdin=feed.descriptor, stdout=subprocess.PIPE)
        feed.start()
        return process.communicate(timeout=30)[0]


@pytest.fixture
def pipe() -> Iterator[tuple[int, Any]]:
    """The end of a pipe that is standard input, and a file to write to it."""
    reads, writes = os.pipe()
    before = set(threading.enumerate())
    with open(writes, "wb", buffering=0) as file:
        yield reads, file
    # Who still waits for the pipe would read from the next one that has its number.
    for waiting in set(threading.enumerate()) - before:
        waiting.join(10)
    os.close(reads)


def test_a_pipe_is_read_each_time(pipe: tuple[int, Any]) -> None:
    """More than a pipe holds, of which the first run reads a part."""
    reads, writes = pipe
    data = os.urandom(1 << 20)
    writer = threading.Thread(target=lambda: (writes.write(data), writes.close()))
    writer.start()
    given = StandardInput(reads)
    assert read_by(given, "head", "-c", "100000") == data[:100000]
    assert read_by(given, "cat") == data
    writer.join()
    assert read_by(given, "cat") == data


def test_a_run_that_ended_holds_up_no_other(pipe: tuple[int, Any]) -> None:
    """The pipe stays open, and the first run's thread waits for what does not come."""
    reads, writes = pipe
    given = StandardInput(reads)
    writes.write(b"line\n")
    for _ in range(3):
        assert read_by(given, "head", "-n", "1") == b"line\n"


def test_what_comes_is_handed_on_as_it_comes(pipe: tuple[int, Any]) -> None:
    """The pipe stays open; the program waits for each line."""
    reads, writes = pipe
    given = StandardInput(reads)
    with given.feed() as feed:
        process = subprocess.Popen(["head", "-n", "2"], stdin=feed.descriptor, stdout=-1)
        feed.start()
        writes.write(b"first\n")
        time.sleep(0.2)
        assert process.poll() is None
        writes.write(b"second\n")
        assert process.communicate(timeout=30)[0] == b"first\nsecond\n"
    writes.write(b"third\n")
    assert read_by(given, "head", "-n", "3") == b"first\nsecond\nthird\n"


@pytest.mark.parametrize("waiting", [0, 1 << 20], ids=["silent", "full"])
def test_a_program_that_does_not_read(waiting: int, pipe: tuple[int, Any]) -> None:
    """It ends, whether or not somebody writes meanwhile; nothing of that is lost."""
    reads, writes = pipe
    data = b"x" * waiting
    writer = threading.Thread(target=lambda: (writes.write(data), writes.close()))
    if waiting:
        writer.start()
    given = StandardInput(reads)
    started = time.monotonic()
    assert read_by(given, "sleep", "0.1") == b""
    assert time.monotonic() - started < 10
    if not waiting:
        writer.start()
    assert read_by(given, "cat") == data
    writer.join()


def test_a_file_is_wound_back(tmp_path: Path) -> None:
    """To where it stood."""
    (tmp_path / "file").write_bytes(b"0123456789")
    with (tmp_path / "file").open("rb", buffering=0) as file:
        file.seek(3)
        given = StandardInput(file.fileno())
        for _ in range(2):
            with given.feed() as feed:
                assert feed.descriptor is None
                assert file.read() == b"3456789"


def test_a_terminal_stays_one() -> None:
    controller, terminal = pty.openpty()
    with StandardInput(terminal).feed() as feed:
        assert feed.descriptor is None
    with open(os.devnull, "rb") as nothing, StandardInput(nothing.fileno()).feed() as feed:
        assert feed.descriptor is None
    os.close(terminal)
    with StandardInput(terminal).feed() as feed:  # closed
        assert feed.descriptor is None
    os.close(controller)


def test_what_cannot_be_kept_is_said(pipe: tuple[int, Any]) -> None:
    """The run that goes on has all of it."""
    reads, writes = pipe
    given = StandardInput(reads)
    full = Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    given._kept = Mock(wraps=given._kept, seek=full, write=full)
    writes.write(b"first\n")
    writes.close()
    assert read_by(given, "cat") == b"first\n"
    with pytest.raises(RewriterError, match="No space left") as caught, given.feed():
        pass
    assert (caught.value.slug, caught.value.code) == ("input-lost", 3)
