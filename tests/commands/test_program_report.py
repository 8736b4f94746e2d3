"""What a run with probes says of the calls that it recorded."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rewriter.commands import _program
from rewriter.core.errors import RewriterError
from rewriter.execution.hook.run import Request, Unprobed
from rewriter.instrumentation.select import select


@pytest.mark.parametrize(
    ("probe", "calls", "free", "expected"),
    [
        ("hash", "", 1 << 30, ["never called: 1 wrapper: a"]),
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
        path=Path("a.py"), result=SimpleNamespace(selection=select([probe], calls=calls), plan=None)
    )
    run: Any = SimpleNamespace(
        probed=[wrapper],
        summary=SimpleNamespace(calls={}, launches=0),
        ended=SimpleNamespace(code=0),
        dump=tmp_path,
    )
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    lines = [str(line) for line in _program._calls(run)]
    assert len(lines) == len({"0 launches", *expected})
    for words in expected:
        assert any(line.startswith(words) for line in lines), words


def test_what_ran_without_probes_is_said_once_for_each_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refused(name: str, slug: str) -> SimpleNamespace:
        return SimpleNamespace(short=name, error=RewriterError(slug, f"because of {slug}"))

    run: Any = SimpleNamespace(
        probed=[],
        refused=[
            refused("a", "not-located"),
            refused("b", "no-tensor-matches"),
            refused("c", "no-launch-matches"),
        ],
        unprobed=[
            Unprobed(Path("d.py"), "too late"),
            Unprobed(Path("e.py"), "another"),
            Unprobed(Path("f.py"), "too late"),
        ],
    )
    _program.warn(run)
    assert capsys.readouterr().err.splitlines() == [
        "warning: a is not instrumented: because of not-located",
        "2 wrappers ran without probes, as no launch there was chosen",
        "warning: not probed: d, f: too late",
        "warning: not probed: e: another",
    ]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param({}, "", id="as it was"),
        pytest.param({"timeout": 1.5}, "--timeout 1.5 ", id="with a limit"),
        pytest.param({"blocking": True}, "--blocking ", id="in blocking mode"),
    ],
)
def test_the_command_that_runs_it_again(options: dict[str, Any], words: str) -> None:
    request = Request(("python", "a b.py"), select("print"), **options)
    again = _program.template(request).format(wrapper="cabc", options="--probe save")
    expected = f"rewriter run --wrapper 'cabc*' '--probe save' {words}-- python 'a b.py'"
    assert again == expected
