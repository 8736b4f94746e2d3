"""Launches that go their short way without the interpreter: the same lines and rows."""

from __future__ import annotations

import gc
import json
import os
import shutil
import struct
import sys
import sysconfig
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest
import torch

from rewriter.runtime import attach, engine_library, fast_paths, flight, native_calls, torch_shim
from rewriter.runtime.engine_library import EngineUnavailable

TABLE = [
    {
        "launch": index,
        "kernel": f"k{index}",
        "kind": "cpp",
        "repeats": index == 2,
        "before": [["in", "x"], ["inout", "y"]],
        "after": [["in", "x"], ["inout", "y"], ["out", "z"], ["in", "n"]],
    }
    for index in range(3)
]


def options(probe: str, when: str | None) -> dict[str, Any]:
    facts = {"artifact": "w.py", "sha256": "", "version": "0", "format": "text", "values": False}
    return {**facts, "probes": [probe], "when": when}


def rows(dump: Path, run: int) -> list[dict[str, Any]]:
    text = (dump / f"rank0/run{run}/events.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def finish(recorder: Any) -> None:
    recorder._finish()


@pytest.fixture(autouse=True)
def _needs_the_module() -> None:
    if native_calls.module() is None:
        pytest.skip("no compiler, or no headers of Python")


def native(recorder: Any, phase: str) -> bool:
    return bool(type(getattr(recorder, phase)).__module__ == "inductor_rewriter_calls")


def without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_calls, "module", lambda: None)


def values(call: int) -> Iterator[tuple[Any, ...]]:
    """What launches are handed: as before, of other facts, freed, transposed, no tensor, none."""
    yield torch.full((2, 3), float(call)), torch.ones(2)
    yield torch.ones(call + 1), torch.ones(2)
    freed = torch.ones(1 << 16)[10:]
    if call == 2:
        freed.untyped_storage().resize_(64)
    yield freed, torch.ones(3, dtype=torch.int64)
    yield torch.arange(6.0).view(2, 3).t(), torch.tensor([1 + 2j])
    yield torch.ones(2), None
    yield torch.ones(2), call
    yield torch.ones(2).to_sparse(), torch.ones(0, 4)


def run(folder: Path, capfd: pytest.CaptureFixture[str], probe: str) -> tuple[list[str], Any, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REWRITER_DUMP", str(folder))
        recorder = attach(options(probe, when=None), TABLE)
        for call in range(4):
            recorder.begin()
            for at, (x, y) in enumerate(values(call)):
                recorder.before(at % 3, x, y)
                recorder.after(at % 3, x, y, None, 2.5)
        was_native = native(recorder, "before"), native(recorder, "after")
        finish(recorder)
    lines = capfd.readouterr().out.splitlines()
    return lines, [rows(folder, call) for call in range(4)], was_native


@pytest.fixture(params=[True, False], ids=["shim", "methods"])
def with_shim(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Tensors are asked by torch's C shim, or by their methods."""
    module = native_calls.module()
    assert module is not None
    assert torch_shim.addresses()
    module.use_shim(torch_shim.addresses() if request.param else ())
    yield bool(request.param)
    module.use_shim(torch_shim.addresses())


@pytest.mark.usefixtures("with_shim")
@pytest.mark.parametrize("probe", ["names", "print", "hash", "nan"])
def test_lines_and_rows_are_those_of_python(
    probe: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quick = run(tmp_path / "quick", capfd, probe)
    without(monkeypatch)
    slow = run(tmp_path / "slow", capfd, probe)
    assert quick[0] == slow[0]
    assert json.dumps(quick[1]) == json.dumps(slow[1])
    assert any(quick[2])
    assert not any(slow[2])


@pytest.mark.usefixtures("with_shim")
def test_what_comes_again_is_measured_without_the_interpreter(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    asked = []
    original = fast_paths.Plans.measure

    def measure(self: Any, *given: Any) -> int:
        asked.append(1)
        return original(self, *given)

    monkeypatch.setattr(fast_paths.Plans, "measure", measure)
    monkeypatch.setattr(fast_paths.Plans, "measure_as_before", lambda *_: 0)
    recorder: Any = attach(options("print", when="after"), TABLE)
    for _ in range(5):
        recorder.begin()
        for launch in range(3):
            recorder.after(launch, torch.ones(4), torch.ones(2), torch.ones(1), torch.ones(3))
    finish(recorder)
    assert len(asked) == 3
    assert len(capfd.readouterr().out.splitlines()) == 5 * 3 * 4


def test_a_wrong_number_of_values_is_no_more_than_in_python(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def warned() -> str:
        recorder: Any = attach(options("print", when="before"), TABLE)
        for count in (2, 2, 1, 3):
            recorder.begin()
            recorder.before(0, *[torch.ones(2)] * count)
        finish(recorder)
        return "".join(capfd.readouterr())

    quick = warned()
    without(monkeypatch)
    assert quick == warned()


def test_an_interrupt_gets_through() -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    class Stdout:
        descriptor, flush = 1, staticmethod(stop)

    recorder: Any = attach(options("names", when=None), TABLE)
    recorder.begin()
    assert native(recorder, "before")
    recorder._call().stdout = Stdout()
    with pytest.raises(KeyboardInterrupt):
        recorder.before(0)
    finish(recorder)


def test_nothing_is_kept_of_values() -> None:
    recorder: Any = attach(options("hash", when="before"), TABLE)
    x = torch.ones(4)
    before = sys.getrefcount(x)
    for _ in range(50):
        recorder.begin()
        recorder.before(0, x, x)
        assert native(recorder, "before")
    gc.collect()
    assert sys.getrefcount(x) == before
    finish(recorder)


def test_threads_have_calls_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWRITER_DUMP", str(tmp_path))
    monkeypatch.setenv("REWRITER_QUIET", "1")
    recorder: Any = attach(options("hash", when="before"), TABLE)

    def work(number: int) -> None:
        for _ in range(20):
            recorder.begin()
            for launch in range(3):
                recorder.before(launch, torch.full((number + 1,), 1.0), torch.ones(2))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    finish(recorder)
    sizes = [{row["shape"][0] for row in rows(tmp_path, call)[::2]} for call in range(80)]
    assert sorted(map(list, sizes)) == sorted([[number + 1] for number in range(4)] * 20)
    assert all(len(rows(tmp_path, call)) == 6 for call in range(80))


def test_a_full_pipe_lets_other_threads_run(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    recorder: Any = attach(options("names", when=None), TABLE)

    class Stdout:
        descriptor = writing

        @staticmethod
        def flush() -> None:
            pass

    taken = bytearray()

    def read() -> None:
        while piece := os.read(reading, 1 << 16):
            taken.extend(piece)

    thread = threading.Thread(target=read)
    thread.start()
    for _ in range(4000):
        recorder.begin()
        recorder._call().stdout = Stdout()
        recorder.before(0)
    os.close(writing)
    thread.join(30)
    os.close(reading)
    assert taken.count(b"\n") == 4000
    recorder._calls.clear()
    finish(recorder)


def test_without_headers_it_is_done_in_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda *_: str(tmp_path))
    found = native_calls.load.__wrapped__()
    assert isinstance(found, EngineUnavailable)
    assert "python3-dev" in str(found)


def test_a_damaged_module_is_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWRITER_ENGINE_DIR", str(tmp_path))
    kept = Path(str(native_calls.module().__file__))  # type: ignore[union-attr]
    damaged = tmp_path / kept.name
    damaged.write_bytes(b"no library")
    # Two seconds of the compiler, whose result is there.
    monkeypatch.setattr(
        engine_library, "_build", lambda *arguments: shutil.copy(kept, arguments[-1])
    )
    found = native_calls.load.__wrapped__()
    assert isinstance(found, ModuleType)
    assert found.__file__ == str(damaged)
    assert damaged.read_bytes() == kept.read_bytes()


@pytest.mark.parametrize("is_native", [True, False])
def test_what_waits_for_the_next_launch_is_held_until_then(
    *, is_native: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if not is_native:
        without(monkeypatch)
    table = [{**row, "after": [["out", "z"]], "together": row["launch"] == 0} for row in TABLE]
    recorder = attach(options("hash", when="after"), table)
    settled: list[int] = []
    for number in range(3):
        recorder.begin()
        call = recorder._calls[threading.get_ident()]
        queue = recorder._fast._queue
        monkeypatch.setattr(queue, "settle", lambda: settled.append(len(call.held)))  # noqa: B023
        first = torch.full((2,), float(number))
        recorder.after(0, first)
        assert [one is first for (one,) in call.held] == [True]
        recorder.after(1, torch.ones(3))
        assert call.held == []
        recorder.after(0, first)
        recorder.after(1, torch.ones(2).to_sparse())  # which is measured another way
        assert call.held == []
        assert settled == [1] * (2 * number + 1)
        recorder.after(0, first)  # the call ends here
        recorder.end()
        assert call.held == []
        assert settled == [1] * (2 * number + 2)
    assert native(recorder, "after") == is_native
    finish(recorder)
    capfd.readouterr()


def _slots(folder: Path) -> list[tuple[int, ...]]:
    """The marks of each thread: launches that began and ended last, iterations, and the call."""
    (ring,) = folder.rglob(f"{flight.RING}*")
    data = ring.read_bytes()
    (used,) = struct.unpack_from("<I", data, flight._SLOTS_AT)
    slots = [
        flight.SLOT.unpack_from(data, flight.HEADER_BYTES + place * flight.SLOT.size)
        for place in range(used)
    ]
    return [(began, again, ended, ended_again, number) for
            _, _, began, again, _, ended, ended_again, _, number, _ in slots]  # fmt: skip


def _marks(folder: Path, seed: int) -> list[list[tuple[int, ...]]]:
    """The marks behind each step of calls within each other, loops, and launches that fail."""
    random = Random(seed)
    outer, inner = (
        attach(options("record", None) | {"artifact": name}, TABLE) for name in ("a.py", "b.py")
    )
    seen = []
    for _ in range(40):
        outer.begin()
        for _ in range(random.randrange(12)):
            launch = random.randrange(3)
            outer.before(launch, torch.ones(2), torch.ones(2))
            seen.append(_slots(folder))
            if random.random() < 0.2:
                inner.begin()
                inner.before(1, torch.ones(2), torch.ones(2))
                inner.after(1, torch.ones(2), torch.ones(2), torch.ones(1), 3)
                inner.end()
                seen.append(_slots(folder))
            if random.random() < 0.8:
                outer.after(launch, torch.ones(2), torch.ones(2), torch.ones(1), 3)
                seen.append(_slots(folder))
        if random.random() < 0.8:
            outer.end()
    assert native(outer, "before") == native(outer, "after") == (native_calls.module() is not None)
    return seen


@pytest.mark.parametrize("seed", range(3))
def test_marks_are_those_of_the_interpreter(seed: int, tmp_path: Path) -> None:
    seen = []
    for name in ("native", "python"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("REWRITER_DUMP", str(tmp_path / name))
            patch.setenv("REWRITER_RECORD_BYTES", "64Ki")
            if name == "python":
                without(patch)
            seen.append(_marks(tmp_path / name, seed))
    assert seen[0] == seen[1]
    assert max(max(slot[1] for slot in slots) for slots in seen[0] if slots) > 0
