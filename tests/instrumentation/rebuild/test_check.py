"""Which process loads a patched package: one with less than all of torch, where that will do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rewriter.core import json_text
from rewriter.core.errors import RewriterError
from rewriter.instrumentation.rebuild import check
from rewriter.instrumentation.rebuild.check import ExpectedModel, Loading

LIBRARY = "c.wrapper.so"
LOADED = {"model": {"libraries": [f"/tmp/{LIBRARY}"]}}
OTHER = {"model": {"libraries": ["/tmp/c.kernels.so"]}}
LACKING = {"model": {"lacking": "cuda"}}
OPERATOR = {"model": {"error": "Could not find schema for demo::f. More"}}
BROKEN = {"model": {"error": "undefined symbol: f"}}
Answer = dict[str, Any] | int  # or the exit code of a process that crashed


@dataclass
class Processes:
    """Processes that would load a package, with what each answers."""

    answers: dict[bool, list[Answer]]  # by whether they have imported all of torch
    started: list[bool] = field(default_factory=list)
    running: int = 0

    def start(self, command: Sequence[str], *_: Any, **__: Any) -> Process:
        whole = "script(full_torch=True, " in command[-1]
        assert whole or "script(full_torch=False, " in command[-1]
        self.started.append(whole)
        self.running += 1
        return Process(self, self.answers[whole].pop(0))


@dataclass
class Process:
    of: Processes
    answer: Answer
    is_running: bool = True

    def communicate(self, text: str = "") -> tuple[int, str, str]:
        self.of.running -= self.is_running
        self.is_running = False
        if isinstance(self.answer, int):
            return self.answer, "", "ImportError: torch._C does not bear that"
        return 0, json_text.encode(self.answer) + "\n", ""

    def kill(self) -> None:
        assert self.is_running


@dataclass(frozen=True)
class Case:
    alone: Answer = 1
    whole: tuple[Answer, ...] = ()
    device: str = "cpu"
    imports: tuple[str, ...] = ()
    started: tuple[bool, ...] = (False,)
    says: str = "loaded"


CASES = {
    # The bindings alone must not decide.
    "an operator that Python registers": Case(OPERATOR, (LOADED,), started=(False, True)),
    "an operator of nobody's": Case(
        OPERATOR, (OPERATOR,), started=(False, True), says="linked: Could not find schema"
    ),
    "another library": Case(OTHER, (LOADED,), started=(False, True)),
    "bindings that cannot be imported alone": Case(1, (LOADED,), started=(False, True)),
    "a crash without the Python of torch": Case(-11, (LOADED,), started=(False, True)),
    "a package that does not load": Case(
        BROKEN, (BROKEN, LOADED), started=(False, True, True), says="check-failed: does not work"
    ),
    "a package that never did": Case(
        BROKEN, (BROKEN, BROKEN), started=(False, True, True), says="check-failed: without probes"
    ),
    "modules to import": Case(whole=(LOADED,), imports=("demo",), started=(True,)),
    "a device that they cannot count": Case(whole=(LOADED,), device="xpu", started=(True,)),
    # They may.
    "a package that loads": Case(LOADED),
    "a device that is not here": Case(LACKING, device="cuda", says="linked: there is no cuda here"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_loads_a_package(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    processes = Processes({False: [case.alone], True: list(case.whole)})
    monkeypatch.setattr(check, "Process", processes)
    models = {"model": ExpectedModel(case.device, LIBRARY)}
    loading = Loading.start_for(tmp_path, {case.device}, case.imports)
    try:
        found, note = check.load(loading, tmp_path, tmp_path, models, case.imports)
        says = f"{found}: {note}"
    except RewriterError as error:
        says = f"{error.slug}: {error.message}"
    loading.stop()
    slug, _, part = case.says.partition(": ")
    assert says.startswith(slug)
    assert part in says
    assert tuple(processes.started) == case.started
    assert processes.running == 0
