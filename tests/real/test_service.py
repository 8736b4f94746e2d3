"""Services and jobs with dormant probes, which are switched while they run."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import programs
from capture import Compiled
from harness import events, load
from rewriter import cli
from rewriter.execution import control

ROOT = Path(__file__).parents[2]

_WARNING = "it is no rewriter.control; nothing was switched"


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def runs_of(dump: Path) -> list[Path]:
    return sorted(dump.glob("rank*/run*/events.jsonl"))


def test_a_wrapper_is_switched_while_threads_call_it(
    tmp_path: Path,
    compiled: Callable[[str], Compiled],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    path, dump = tmp_path / "ctl", tmp_path / "dump"
    monkeypatch.setenv(control.VARIABLE, str(path))
    graph = compiled("mlp").graphs[0]
    source = tmp_path / "plain.py"
    source.write_text(graph.source)
    probed_file = tmp_path / "probed.py"
    assert cli.main(["instrument", str(source), "--dormant", "-o", str(probed_file)]) == 0
    plain = load(source.read_bytes(), tmp_path)
    probed = load(probed_file.read_bytes(), tmp_path)
    with torch.no_grad():
        expected = plain.call(list(graph.args))
        stopping, changed, counts = threading.Event(), [], [0] * 4

        def work(number: int) -> None:
            with torch.no_grad():
                while not stopping.is_set():
                    results = probed.call(list(graph.args))
                    counts[number] += 1
                    if not all(map(torch.equal, results, expected)):
                        changed.append(number)

        def switch(*words: str) -> None:
            assert cli.main(["control", str(path), *words]) == 0

        def warned() -> bool:
            said.append(capfd.readouterr().err)
            return _WARNING in "".join(said)

        said: list[str] = []
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        try:
            # What is on is replaced while calls begin; only the last request is left on.
            for _ in range(10):
                switch("set", "names", "--calls", "1", "--quiet")
            switch("set", "hash", "--launches", "0", "--calls", "10", "-d", str(dump), "--quiet")
            wait_for(lambda: len(runs_of(dump)) == 10)
            path.write_text("{")
            wait_for(warned)  # the file is looked at now and then, not at each call
            path.unlink()
            switch("off")
            before = sum(counts)
            wait_for(lambda: sum(counts) > before + 20)
        finally:
            stopping.set()
            for thread in threads:
                thread.join()
    assert not changed
    assert len(runs_of(dump)) == 10
    assert {row["launch"] for row in events(dump) if "launch" in row} == {0}
    said.append(capfd.readouterr().err)
    assert "".join(said).count(_WARNING) == 1
    assert not probed._rw.on


@pytest.mark.exhaustive
@pytest.mark.parametrize("form", ["wrapper", "package", "cpp"])
def test_a_service_under_load(tmp_path: Path, form: str) -> None:
    service = ["benchmarks.service", "--forms", form, "--seconds", "2", "--folder", tmp_path]
    line = [sys.executable, "-m", *service, "--json", tmp_path / "rows.json"]
    result = programs.run(*line, cwd=ROOT)
    assert " requests, 0 changed, 10 calls recorded, of cpp_fused__softmax_2" in result.stderr
    assert len(json.loads((tmp_path / "rows.json").read_text())["rows"]) == 9
