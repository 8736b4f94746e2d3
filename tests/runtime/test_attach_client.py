"""What `rewriter attach` says while it waits."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rewriter.instrumentation.select import select
from rewriter.loaded import client
from rewriter.loaded.request import Request


@pytest.mark.parametrize("recorded", [False, True])
def test_that_nothing_is_recorded_is_said(
    recorded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, program = socket.socketpair()

    @contextlib.contextmanager
    def connected(pid: int) -> Iterator[socket.socket]:
        with ours:
            yield ours

    said: list[str] = []

    def tell(text: str) -> None:
        said.append(text)
        if text.startswith("nothing"):
            program.sendall(b'{"state": "done", "calls": {}, "notes": []}\n')

    monkeypatch.setattr(client, "_connected", connected)
    monkeypatch.setattr(client, "_SILENT", 0.01)
    program.sendall(b'{"state": "probing"}\n')
    if recorded:
        (tmp_path / "manifest.json").touch()
        program.sendall(b'{"state": "done", "calls": {}, "notes": []}\n')
    client.attach(1, Request(directory=str(tmp_path), selection=select("print")), tell)
    time.sleep(0.05 * recorded)  # it would be said by now
    assert any(text.startswith("nothing recorded yet") for text in said) != recorded
    program.close()
