"""What a run with probes says of the calls that it recorded."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rewriter.commands import _cache_run
from rewriter.instrumentation.select import select


class _Slot:
    short = "a"
    path = Path("a.py")


@pytest.mark.parametrize(
    ("probe", "calls", "free", "expected"),
    [
        ("hash", "", 1 << 30, ["never called: 1 wrapper: a", "no wrapper of the cache was called"]),
        ("hash", "3", 1 << 30, ["no call among those chosen: 1 wrapper: a"]),
        # Where nothing could be written, nobody knows what was called.
        (
            "hash",
            "",
            4096,
            ["no call recorded: 1 wrapper: a", "0 launches", "the disk of the dump"],
        ),
        ("record", "", 1 << 30, ["no call recorded: 1 wrapper: a"]),
    ],
)
def test_calls_that_are_not_recorded(
    probe: str,
    calls: str,
    free: int,
    expected: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrapper = SimpleNamespace(
        slot=_Slot(), result=SimpleNamespace(selection=select([probe], calls=calls), plan=None)
    )
    run: Any = SimpleNamespace(
        placed=[wrapper],
        wrappers=[wrapper],
        summary=SimpleNamespace(calls={}, launches=0),
        ended=SimpleNamespace(code=0),
        dump=tmp_path,
    )
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    lines = [str(line) for line in _cache_run._calls(run)]
    assert len(lines) == len({"0 launches", *expected})
    for words in expected:
        assert any(line.startswith(words) for line in lines), words
