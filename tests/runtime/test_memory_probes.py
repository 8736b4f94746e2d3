"""The probes of memory in a wrapper whose operators do what kernels must not do."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import pytest
import torch

import rewriter
from harness import Outcome, call_module, load
from rewriter.dump.reading import open_dump
from rewriter.dump.rows import CoverageRow, MemoryRow

Run = Callable[..., tuple[Outcome, list[MemoryRow], dict[str, CoverageRow]]]
_HEAD = """\
from torch._inductor.async_compile import AsyncCompile
import torch
async_compile = AsyncCompile()
empty_strided_cpu = torch._C._dynamo.guards._empty_strided_cpu
reinterpret_tensor = torch._C._dynamo.guards._reinterpret_tensor
def call(args):
    arg0_1, = args
    args.clear()
"""


@pytest.fixture(scope="module", autouse=True)
def operators() -> Iterator[None]:
    """`fill` writes a number to so many elements from one on, wherever those are; `copy` is right;
    `keep` leaves its first argument as it is."""
    with torch.library._scoped_library("memtest", "FRAGMENT") as library:  # type: ignore[no-untyped-call]
        library.define("fill(Tensor(a!) out, int start, int count, float value) -> ()")
        library.define("copy(Tensor(a!) out, Tensor x) -> ()")
        library.define("keep(Tensor(a!) out) -> ()")

        def fill(out: torch.Tensor, start: int, count: int, value: float) -> None:
            address = out.data_ptr() + start * out.itemsize
            kind = ctypes.c_float if out.dtype is torch.float32 else ctypes.c_double
            (kind * count).from_address(address)[:] = [value] * count

        library.impl("fill", fill, "CPU")

        def copy(out: torch.Tensor, x: torch.Tensor) -> None:
            out.copy_(x)

        library.impl("copy", copy, "CPU")
        library.impl("keep", lambda out: None, "CPU")
        yield


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a body of statements with probes: its outcome, what was found, and what was covered."""
    calls = iter(range(100))

    def ran(body: str, probes: str, fill: str = "0") -> Any:
        dump = tmp_path / f"dump{next(calls)}"
        monkeypatch.setenv("REWRITER_DUMP", str(dump))
        monkeypatch.setenv("REWRITER_FILL", fill)
        path = tmp_path / "output_code.py"
        path.write_text(_HEAD + indent(dedent(body), "    "))
        source = path.read_bytes()
        if probes:
            source = rewriter.instrument(path, rewriter.select(probes)).source
        module = load(source, tmp_path)
        outcome = call_module(module, [torch.arange(6.0)])
        if not probes:
            return outcome, [], {}
        module._rw.close()
        rows = open_dump(dump).runs[0].memory
        found = [x for x in rows if isinstance(x, MemoryRow)]
        return outcome, found, {x.probe: x for x in rows if isinstance(x, CoverageRow)}

    return ran


CLEAN = """
buf0 = empty_strided_cpu((2, 3), (4, 1), torch.float32)
torch.ops.memtest.copy.default(reinterpret_tensor(buf0, (6, ), (1, ), 1), arg0_1)
buf1 = empty_strided_cpu((6, ), (1, ), torch.float64)
torch.ops.memtest.copy.default(buf1, arg0_1)
buf2 = buf1; del buf1  # reuse
torch.ops.memtest.copy.default(buf2, arg0_1)
buf3 = empty_strided_cpu((0, 4), (4, 1), torch.float32)
buf4 = torch.ops.aten.sort.default(arg0_1, -1, True)
buf5 = buf4[0]
del buf4
buf6 = empty_strided_cpu((6, ), (1, ), torch.float32)
torch.ops.memtest.copy.default(buf6, arg0_1)
del buf6
return (reinterpret_tensor(buf0, (6, ), (1, ), 1), buf2, buf3, buf5, )
"""


@pytest.mark.parametrize("fill", ["0", "1"])
@pytest.mark.parametrize("probes", ["bounds", "poison", "stale", "bounds,hash,poison,stale"])
def test_nothing_changes_where_nothing_is_wrong(run: Run, probes: str, fill: str) -> None:
    plain, *_ = run(CLEAN, "")
    outcome, found, covered = run(CLEAN, probes, fill)
    assert outcome == plain
    assert found == []
    if "bounds" in covered:
        assert (covered["bounds"].done, covered["bounds"].launches) == (3, 5)
        assert covered["bounds"].why == {"it has no elements": 1}
    if "poison" in covered:
        assert (covered["poison"].done, covered["poison"].skipped) == (3, 1)
    if "stale" in covered:
        assert covered["stale"].done == 1


BEYOND = """
buf0 = empty_strided_cpu((2, 3), (3, 1), torch.{dtype})
torch.ops.memtest.fill.default(buf0, 0, 6, 1.0)
buf1 = empty_strided_cpu((6, ), (1, ), torch.{dtype})
torch.ops.memtest.fill.default(buf1, 0, 6, 2.0)
torch.ops.memtest.fill.default(buf{which}, {start}, {count}, 3.5)
torch.ops.memtest.keep.default(buf1)
return (buf0, buf1, )
"""


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize(
    ("start", "count", "side", "distance", "outside"),
    [
        (6, 1, "behind", 0, 1),
        (5, 4, "behind", 0, 3),
        (9, 2, "behind", 3, 2),
        (-1, 1, "before", 0, 1),
        (-4, 2, "before", 2, 2),
        (-3, 4, "before", 0, 3),
    ],
)
def test_a_store_outside_of_its_buffer(
    run: Run,
    dtype: str,
    which: int,
    start: int,
    count: int,
    side: str,
    distance: int,
    outside: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    body = BEYOND.format(dtype=dtype, which=which, start=start, count=count)
    _, found, _ = run(body, "bounds,poison")
    (row,) = found
    assert (row.launch, row.since, row.buffer) == (2, 1, f"buf{which}")
    assert (row.side, row.distance, row.count) == (side, distance, outside)
    assert (row.kernel, row.dtype, row.value) == (
        "torch.ops.memtest.fill.default",
        dtype,
        "3.5",
    )
    elements = "1 element" if outside == 1 else f"{outside} elements"
    assert f"#2 torch.ops.memtest.fill.default wrote outside buf{which}: {elements}" in (
        capsys.readouterr().out
    )


def test_each_launch_that_writes_outside_is_named_once(run: Run) -> None:
    """The first one of each band: what a second one does there is not told apart from it."""
    body = """
    buf0 = empty_strided_cpu((4, ), (1, ), torch.float32)
    torch.ops.memtest.fill.default(buf0, 0, 5, 1.0)
    torch.ops.memtest.fill.default(buf0, -1, 5, 2.0)
    torch.ops.memtest.fill.default(buf0, 0, 6, 1.0)
    return (buf0, )
    """
    _, found, _ = run(body, "bounds")
    assert [(row.launch, row.side) for row in found] == [(0, "behind"), (1, "before")]


def test_a_buffer_that_was_given_up_is_compared_behind_its_last_launch(run: Run) -> None:
    body = """
    buf0 = empty_strided_cpu((4, ), (1, ), torch.float32)
    torch.ops.memtest.fill.default(buf0, 0, 5, 1.0)
    del buf0
    buf1 = empty_strided_cpu((4, ), (1, ), torch.float32)
    torch.ops.memtest.fill.default(buf1, 0, 4, 1.0)
    return (buf1, )
    """
    _, found, _ = run(body, "bounds,stale")
    assert [(row.launch, row.buffer) for row in found] == [(0, "buf0")]


UNWRITTEN = """
buf0 = empty_strided_cpu((6, ), (1, ), torch.float32)
torch.ops.memtest.fill.default(buf0, 0, 4, 1.0)
buf1 = empty_strided_cpu((6, ), (1, ), torch.float32)
torch.ops.memtest.copy.default(buf1, buf0)
return (buf1, )
"""


def test_what_nobody_wrote_shows_in_results(run: Run) -> None:
    first, *_ = run(UNWRITTEN, "poison")
    second, *_ = run(UNWRITTEN, "poison", "1")
    assert first != second
    assert run(UNWRITTEN, "poison", "poison=1")[0] == second
    assert run(UNWRITTEN, "poison", "stale=1")[0] == first


STALE = """
buf0 = empty_strided_cpu((6, ), (1, ), torch.float32)
torch.ops.memtest.copy.default(buf0, arg0_1)
buf1 = buf0; del buf0  # reuse
torch.ops.memtest.{operator}.default({arguments})
return (buf1, )
"""


def test_what_was_given_up_shows_in_results(run: Run) -> None:
    """A launch that was to write all of what it took over, and does not."""
    body = STALE.format(operator="fill", arguments="buf1, 0, 3, 1.0")
    plain, *_ = run(body, "")
    outcomes = [run(body, "poison", fill)[0] for fill in "01"]
    assert outcomes == [plain, plain]  # it was written once
    first, second = (run(body, "stale", fill)[0] for fill in "01")
    kept = {outcome == plain for outcome in (first, second)}
    # An operator that says that it updates its argument may read it: that is left as it is.
    assert kept == {True}


HELD = """
buf0 = empty_strided_cpu((6, ), (1, ), torch.float32)
torch.ops.memtest.copy.default(buf0, arg0_1)
{held}
del buf0
buf1 = empty_strided_cpu((6, ), (1, ), torch.float32)
torch.ops.memtest.copy.default(buf1, arg0_1)
return (buf1, )
"""


@pytest.mark.parametrize(
    "held", ["", "subgraph_args = [buf0]", "view = reinterpret_tensor(buf0, (2, ), (1, ), 1)"]
)
def test_what_somebody_else_has_is_not_given_up(run: Run, held: str) -> None:
    """As the arguments of a subgraph, which the caller deletes before the call."""
    _, _, covered = run(HELD.format(held=held), "stale")
    assert covered["stale"].done == (not held)
    assert covered["stale"].skipped == bool(held)


def test_what_was_given_back_is_nobodys_for_a_while(run: Run) -> None:
    """Whoever allocates next gets other memory: a launch that still reads it reads the fill."""
    body = """
    buf0 = empty_strided_cpu((6, ), (1, ), torch.float32)
    torch.ops.memtest.copy.default(buf0, arg0_1)
    address = buf0.data_ptr()
    del buf0
    others = [torch.zeros(6) for _ in range(100)] + [torch.zeros(2566) for _ in range(10)]
    memory = (__import__("ctypes").c_char * 24).from_address(address)
    buf1 = torch.frombuffer(memory, dtype=torch.int32)
    buf2 = torch.ops.aten.sort.default(buf1, -1, True)
    buf3 = buf2[0]
    return (buf3, )
    """
    for probes in ("bounds,stale", "stale"):
        outcome, *_ = run(body, probes)
        assert (
            outcome
            == run(body.replace("(buf3, )", "(torch.full((6, ), 0x7FC17FC3).int(), )"), "")[0]
        )


def test_a_band_of_no_bytes_is_none(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWRITER_GUARD", "0")
    body = BEYOND.format(dtype="float32", which=1, start=5, count=1)
    _, found, covered = run(body, "bounds,poison")
    assert found == []
    assert covered["bounds"].why == {"REWRITER_GUARD is 0": covered["poison"].done}


def test_probes_that_are_off_leave_memory_as_it_is(run: Run) -> None:
    plain, *_ = run(CLEAN, "")
    off, found, coverage = run(CLEAN, "bounds,poison,stale", fill="off")
    assert (off.outputs, found, coverage) == (plain.outputs, [], {})


def test_a_fill_that_is_none_is_a_warning(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(CLEAN, "poison", "nan")[0] == run(CLEAN, "")[0]
    assert "REWRITER_FILL is 'nan'" in capsys.readouterr().err
