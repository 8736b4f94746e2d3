"""The probes of memory in C++ wrappers, beside those in Python."""

from __future__ import annotations

import ctypes
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import cpp_driver
import programs
from cpp_driver import (
    DTYPES,
    MARKS,
    Both,
    row_of,
)
from rewriter.diagnosis import fill_patterns as patterns

pytestmark = MARKS


MEMORY = [
    {"event": 7, "action": "allocate", "buffer": "buf3"},
    {"event": 8, "action": "release", "buffer": "buf3"},
    {"event": 9, "action": "release", "buffer": "buf4", "held": True},
]


def _bytes(tensor: torch.Tensor, before: int = 0, behind: int = 0) -> bytes:
    size = tensor.untyped_storage().nbytes()
    return ctypes.string_at(tensor.data_ptr() - before, before + size + behind)


def _beside(tensor: torch.Tensor, element: int, data: bytes) -> None:
    """Store an element that is not one of the tensor's, counted from its start."""
    ctypes.memmove(tensor.data_ptr() + element * tensor.dtype.itemsize, data, len(data))


def _memory_rows(pair: Both, run: int = 0) -> list[dict[str, Any]]:
    """The rows, the same of both."""
    python, native = pair.raw(f"rank0/run{run}/memory.jsonl")
    assert native == python
    return [json.loads(row) for row in python.splitlines()]


@pytest.mark.parametrize("fill", [0, 1])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_memory_is_guarded_filled_and_compared_as_in_python(
    dtype: torch.dtype, fill: int, both: Callable[..., Both], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REWRITER_FILL", str(fill))
    rows = [row_of(number, kernel=f"k{number}") for number in (12, 13, 14)]
    pair = both("bounds", "poison", "stale", rows=rows, memory=MEMORY)
    element = (bytes([1 - fill]) if dtype == torch.bool else bytes(range(1, 17)))[: dtype.itemsize]
    name = str(dtype).removeprefix("torch.")

    def act(runtime: Any) -> None:
        made = torch.empty_strided((3, 5), (7, 1), dtype=dtype)
        tensor = runtime.allocated(7, made)
        assert (tensor.shape, tensor.stride(), tensor.dtype) == (made.shape, made.stride(), dtype)
        assert tensor.data_ptr() % 64 == 0
        if hasattr(ctypes.CDLL(None), "torch_from_blob"):
            assert tensor.storage_offset() == 0
        count = 19
        size = count * dtype.itemsize
        edges = patterns.pattern("bounds", fill, name) * 1024
        whole = ctypes.string_at(tensor.data_ptr() - 4096, size + 2 * 4096)
        assert whole[:4096] == edges[:4096]
        assert whole[4096 + size :] == edges[size % 8 :][:4096]
        inside = patterns.pattern("poison", fill, name) * size
        assert whole[4096 : 4096 + size] == inside[:size]
        del made
        runtime.checked(12)
        _beside(tensor, count + 3, element)
        _beside(tensor, -1, element)
        _beside(tensor, -4, element)
        runtime.checked(13)
        _beside(tensor, count, element)
        runtime.checked(14)
        runtime.released(8, tensor)
        stale = patterns.pattern("stale", fill, name) * size
        assert ctypes.string_at(tensor.data_ptr(), size) == stale[:size]
        runtime.begin()

    expected, found = pair.each(act)
    assert found == expected
    assert found.count("\n") == 2
    assert "#13 k13 wrote outside buf3: 1 element, the nearest 3 elements behind its end" in found
    before, behind, *coverage = _memory_rows(pair)
    assert (before["launch"], before["since"], before["side"]) == (13, 12, "before")
    assert (before["distance"], before["count"]) == (0, 2)
    assert (behind["side"], behind["distance"], behind["count"]) == ("behind", 3, 1)
    assert coverage == [
        {"event": "coverage", "probe": "bounds", "done": 1, "launches": 3},
        {"event": "coverage", "probe": "poison", "done": 1},
        {"event": "coverage", "probe": "stale", "done": 1},
    ]


UNLOADS = """
import _ctypes, sys, torch
from cpp_driver import Native, load, options_of, row_of
library = load(sys.argv[1])
memory = [{"event": 7, "action": "allocate", "buffer": "buf3"}]
native = Native(library, options_of("bounds", memory=memory), [row_of()])
native.begin()
result = native.allocated(7, torch.empty(5))
native.end()
_ctypes.dlclose(library._handle)
print(result.fill_(3).tolist())
del result
print("freed")
"""


def test_a_result_outlives_the_library(library: ctypes.CDLL, tmp_path: Path) -> None:
    """As that of a package does when its loader is gone."""
    shutil.copy(library._name, tmp_path / "model.so")
    path = str(Path(cpp_driver.__file__).parent)
    program = f"import sys; sys.path.insert(0, {path!r})\n{UNLOADS}"
    ran = programs.run(sys.executable, "-c", program, tmp_path / "model.so", cwd=tmp_path)
    assert ran.stdout.splitlines()[-2:] == [str([3.0] * 5), "freed"]


def test_memory_that_the_text_says_others_have_is_not_filled(both: Callable[..., Both]) -> None:
    pair = both("stale", memory=MEMORY)
    tensor = torch.ones(4)
    pair.native.released(9, tensor)
    assert tensor.tolist() == [1, 1, 1, 1]
    pair.native.reused(8, tensor)
    assert tensor.isnan().all()
    pair.native.released(8, torch.empty(0))
    pair.finish()
    rows = (pair.dumps[1] / "rank0/run0/memory.jsonl").read_text()
    why = {"another tensor may have its memory": 1, "it has no elements": 1}
    assert [json.loads(row) for row in rows.splitlines()] == [
        {"event": "coverage", "probe": "stale", "done": 1, "skipped": 2, "why": why}
    ]


def _waiting(both: Callable[..., Both]) -> Both:
    """Behind launch 12 something is given up, and then allocated, with nothing in between."""
    rows = [row_of(12, kernel="k12") | {"memory_waits": True}, row_of(13, kernel="k13")]
    memory = [MEMORY[0], MEMORY[1] | {"waits": True}, MEMORY[2]]
    return both("bounds", "poison", "stale", rows=rows, memory=memory)


def test_lines_that_wait_are_done_by_the_last_one(both: Callable[..., Both]) -> None:
    pair = _waiting(both)
    stale, poison = (patterns.pattern(x, 0, "float32") * 8 for x in ("stale", "poison"))

    def act(runtime: Any) -> None:
        first = runtime.allocated(7, torch.empty(16)).fill_(1)
        address, before = first.data_ptr(), _bytes(first)
        _beside(first, 16, bytes(range(1, 5)))
        runtime.checked(12)
        runtime.released(8, first)
        assert ctypes.string_at(address, 64) == before
        del first
        second = runtime.allocated(7, torch.empty(16))
        assert ctypes.string_at(address, 64) == stale
        assert _bytes(second) == poison
        runtime.checked(13)
        runtime.begin()

    expected, found = pair.each(act)
    assert found == expected
    assert "#12 k12 wrote outside buf3: 1 element, the nearest right behind its end" in found
    damaged, *coverage = _memory_rows(pair)
    assert (damaged["launch"], damaged["side"]) == (12, "behind")
    assert [row["done"] for row in coverage] == [2, 2, 1]


def test_what_an_exception_left_waiting_fills_nothing(both: Callable[..., Both]) -> None:
    """The memory may be somebody else's when the call is over; bands are compared."""
    pair = _waiting(both)

    def act(runtime: Any) -> None:
        first = runtime.allocated(7, torch.empty(16)).fill_(1)
        _beside(first, -1, bytes(range(1, 5)))
        runtime.checked(12)
        runtime.released(8, first)
        runtime.begin()
        assert first.tolist() == [1] * 16

    expected, found = pair.each(act)
    assert found == expected
    assert "#12 k12 wrote outside buf3" in found
    assert [row["done"] for row in _memory_rows(pair)[1:]] == [1, 1, 0]


def test_more_than_is_kept_goes_when_the_work_is_done(both: Callable[..., Both]) -> None:
    pair = _waiting(both)
    large = 5 << 20

    def act(runtime: Any) -> None:
        first = runtime.allocated(7, torch.empty(large))
        runtime.checked(12)
        runtime.released(8, first)
        del first
        second = runtime.allocated(7, torch.empty(large))
        assert second.isnan().all()
        runtime.checked(13)
        runtime.begin()

    expected, found = pair.each(act)
    assert found == expected == ""
    assert [row["done"] for row in _memory_rows(pair)] == [2, 2, 1]


@pytest.mark.parametrize(
    ("fill", "guard", "size"),
    [
        ("", "", 4096),
        ("bounds=1, poison=0", "1", 512),
        ("0,bounds=1", "", 4096),
        ("2", "x", 4096),
        ("stale", "4097", 4608),
    ],
)
def test_fills_and_guards(
    fill: str, guard: str, size: int, both: Callable[..., Both], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REWRITER_FILL", fill)
    monkeypatch.setenv("REWRITER_GUARD", guard)
    pair = both("bounds", "poison", memory=MEMORY)
    edge = patterns.pattern("bounds", int("bounds=1" in fill), "float32")
    for runtime in (pair.python, pair.native):
        tensor = runtime.allocated(7, torch.empty(16))
        assert ctypes.string_at(tensor.data_ptr() - size, size) == edge * (size // 8)


def test_memory_lives_as_long_as_somebody_has_it(both: Callable[..., Both]) -> None:
    """A buffer that is returned outlives its call; one without a line at its end goes with it."""
    pair = both("bounds", memory=MEMORY)
    kept = pair.native.allocated(7, torch.zeros(4))
    kept.fill_(3)
    for _ in range(3):
        pair.native.allocated(7, torch.empty(1 << 16)).fill_(2)  # a loop: the one before is gone
    pair.native.checked(12)
    pair.finish()
    assert kept.tolist() == [3, 3, 3, 3]
    assert kept.untyped_storage().nbytes() in (16, 4096 + 16 + 4096)
