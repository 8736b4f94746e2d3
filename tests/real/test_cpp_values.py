"""Values in C++ wrappers: lines, statistics and rows are those of the Python runtime."""

from __future__ import annotations

import ctypes
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import dump_schemas
import programs
from cpp_driver import (
    DTYPES,
    FOLDERS,
    MARKS,
    Both,
    Handle,
    Native,
    Other,
    handle_of,
    options_of,
    row_of,
    shapes_of,
    tensor_of,
)
from harness import events

pytestmark = MARKS


# --- Values --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
def test_lines_and_events_for_every_dtype_and_shape(
    dtype: torch.dtype, both: Callable[..., Both]
) -> None:
    runtimes = both("print", values=True)
    for tensor in shapes_of(tensor_of(dtype, 9000)):
        runtimes.check_said(lambda runtime, tensor=tensor: runtime.before(12, tensor))
    runtimes.check_rows()
    assert len(runtimes.rows()[1]) == len(shapes_of(tensor_of(dtype, 9000)))


SPECIAL = [0.0, 1.0, -2.5, math.nan, math.inf, -math.inf, 1e-45, 1e-310, 3e38, 1.7e308, -1.7e308]


@pytest.mark.parametrize(
    "flags",
    ["fast", *(pytest.param(x, marks=pytest.mark.exhaustive) for x in ("inductor", "fastest"))],
)
def test_statistics_of_difficult_values(flags: str, both: Callable[..., Both]) -> None:
    runtimes = both("print", flags=flags)
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(10_000, generator=generator, dtype=torch.float64)
    largest = 2**63 - 1
    difficult = [
        *(torch.tensor(SPECIAL[:end], dtype=torch.float64) for end in range(1, len(SPECIAL) + 1)),
        torch.tensor([math.nan] * 40 + [math.inf] * 3),
        torch.tensor([math.nan] * 5000 + [2.0, 3.0]),
        noise + 1e9,
        noise * 1e-3 + 1e12,
        noise * 1e300,
        noise * 1e-300,
        torch.cat([noise * 1e-300, noise * 1e300, noise]),
        torch.tensor([1.7e308] * 5000 + [-1.7e308] * 3000),
        torch.tensor([1.7e308, -1.7e308], dtype=torch.float64),
        torch.full((3000,), 0.1),
        torch.full((5000,), 1e30, dtype=torch.float64),
        torch.cat([torch.zeros(5000), torch.full((5000,), 1e6)]).double() + noise * 1e-9,
        torch.tensor([largest, -largest - 1, 0]),
        torch.tensor([largest] * 3000 + [largest - 1] * 2000),
        torch.tensor([-largest - 1] * 3000 + [largest]),
        torch.tensor([2**64 - 1, 2**63, 2**53 + 1], dtype=torch.uint64),
        torch.tensor([0, 2**64 - 1] * 3000, dtype=torch.uint64),
        torch.tensor([2**64 - 7] * 5000, dtype=torch.uint64),
        torch.tensor([complex(math.nan, math.inf), complex(math.inf, 1), complex(3, 4)]),
        torch.tensor([complex(1.7e308, 1.7e308), complex(1e-310, 0)], dtype=torch.complex128),
        torch.randn(5000, dtype=torch.complex64, generator=generator) + 1e6,
    ]
    for tensor in difficult:
        runtimes.python.after(12, tensor)
        runtimes.native.after(12, tensor)
    runtimes.check_rows()


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
def test_statistics_of_arbitrary_bits(dtype: torch.dtype, both: Callable[..., Both]) -> None:
    runtimes = both("print")

    @settings(max_examples=25, deadline=None)
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        count = data.draw(st.integers(1, 40))
        bits = data.draw(
            st.binary(min_size=count * dtype.itemsize, max_size=count * dtype.itemsize)
        )
        flat = torch.frombuffer(bytearray(bits), dtype=torch.uint8)
        tensor = (flat & 1 if dtype == torch.bool else flat).view(dtype)
        runtimes.python.before(12, tensor)
        runtimes.native.before(12, tensor)

    check()
    runtimes.check_rows()


def test_scalars_read_as_in_python(both: Callable[..., Both]) -> None:
    row = row_of(before=[["in", f"s{i}"] for i in range(4)])
    runtimes = both("print", rows=[row])

    @settings(max_examples=200, deadline=None)
    @given(
        numbers=st.tuples(
            st.floats(), st.floats(width=32), st.integers(-(2**63), 2**64 - 1), st.booleans()
        )
    )
    def check(numbers: tuple[Any, ...]) -> None:
        runtimes.python.before(12, *numbers)
        runtimes.native.before(12, *numbers)

    check()
    edges = [2.0**power for power in range(-1074, 1024)]
    edges += [1e15, 1e16, 1e17, 123456789012345680.0, 1e22, 1e-4, 1e-5, 0.1, -0.0, 5e-324]
    for four in zip(*[iter(edges)] * 4, strict=False):
        runtimes.python.before(12, *four)
        runtimes.native.before(12, *four)
    runtimes.check_rows()
    runtimes.check_said(lambda runtime: runtime.before(12, math.nan, -math.inf, 1e-05, True))


def test_what_is_no_value_or_cannot_be_read(
    both: Callable[..., Both], library: ctypes.CDLL
) -> None:
    rows = [row_of(before=[["in", "a"], ["in", "b"], ["in", "c"], ["in", "d"]])]
    runtimes = both("print", rows=rows)
    freed = torch.ones(4)
    freed.untyped_storage().resize_(0)
    quantized = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8)
    packed = torch.ones(4, dtype=torch.uint8).view(getattr(torch, "float4_e2m1fn_x2", torch.bits8))
    meta, sparse = torch.empty(2, 3, device="meta"), torch.eye(3).to_sparse()
    dense, mkldnn = torch.ones(2), torch.ones(2, 2).to_mkldnn()
    for four in ((None, freed, quantized, packed), (meta, sparse, dense, None)):
        runtimes.check_said(lambda runtime, four=four: runtime.before(12, *four))
    shrunk = torch.ones(4)
    shrunk.untyped_storage().resize_(8)
    runtimes.check_said(lambda runtime: runtime.before(12, mkldnn, dense, None, shrunk))
    runtimes.check_rows()
    undefined = ctypes.c_void_p()
    library.aoti_torch_new_uninitialized_tensor(ctypes.byref(undefined))
    runtimes.capture.readouterr()
    runtimes.native.before(12, Handle(undefined.value), dense, Other(), 2**63)
    lines = runtimes.capture.readouterr().out.splitlines()
    assert [line.split("in ", 1)[1].split("  ")[0] for line in lines] == ["b", "c", "d"]
    assert lines[1].endswith("in c  other ?")
    assert lines[2].endswith("in d  int 9223372036854775808")


def test_tensors_of_arrayref_mode(library: ctypes.CDLL, capfd: Any) -> None:
    row = row_of(before=[["in", name] for name in "abcd"])
    native = Native(library, options_of("print", values=True), [row])
    native.begin()
    library.test_array(ctypes.c_void_p(native.call), 12)
    native.end()
    first, values, last = capfd.readouterr().out.splitlines()
    assert "in a  f32[2, 3]  cpu  min 1 max 6 mean 3.5 std 1.871 nan 0 inf 0" in first
    assert values == "    [1, 2, 3, 4, 5, 6]"
    assert last.endswith("in d  int 7")


def test_every_type_that_a_line_may_hold(library: ctypes.CDLL, capfd: Any) -> None:
    before = [["in", f"v{i}"] for i in range(16)]
    rows = [row_of(before=before, after=[["out", "y"]])]
    native = Native(library, options_of("print"), rows, [["in", "a"], ["in", "s"]])
    native.begin()
    handle = handle_of(torch.arange(6.0).view(2, 3))
    library.test_types(ctypes.c_void_p(native.call), 12, ctypes.c_void_p(handle))
    native.end()
    library.aoti_torch_delete_tensor_object(ctypes.c_void_p(handle))
    out, err = capfd.readouterr()
    tensor = "min 0 max 5 mean 2.5 std 1.871 nan 0 inf 0"
    assert [line.split("#12 ")[-1].split("  ", 1)[-1] for line in out.splitlines()] == [
        f"in v0  f32[2, 3]  cpu  {tensor}",
        f"in v1  f32[2, 3]  cpu  {tensor}",
        f"in v2  f32[3, 2]  cpu  {tensor}",
        "in v3  f32[2, 3]  cpu  min 1 max 6 mean 3.5 std 1.871 nan 0 inf 0",
        "in v4  f32[3]  cpu  min 4 max 6 mean 5 std 1 nan 0 inf 0",
        "in v7  int 5",
        "in v8  int -6",
        "in v9  int 7",
        "in v10  int 9223372036854775808",
        "in v11  float 2.5",
        "in v12  float 0.1",
        "in v13  bool True",
        "in v14  other ?",
        "triton_poi_fused_0  out y  float 1.5",
        f"in a  f32[2, 3]  cpu  {tensor}",
        "in s  int 3",
    ]
    # A line without values after one that has some: the table says one.
    assert err.count("the line and the table differ") == err.count("\n") == 1


def test_a_line_that_differs_from_the_table_is_said_and_does_not_crash(
    library: ctypes.CDLL, capfd: Any
) -> None:
    native = Native(library, options_of("print"), [row_of()])
    native.begin()
    native.before(12, torch.ones(2), torch.ones(3))
    native.before(99, torch.ones(2))
    native.before(-1)
    native.end()
    out, err = capfd.readouterr()
    assert out.count("f32[2]") == out.count("\n") == 1
    assert err.count("warning: #12: ") == err.count("\n") == 1


# --- What is not finite --------------------------------------------------------------------------


def test_a_line_says_what_is_not_well(both: Callable[..., Both]) -> None:
    runtimes = both("nan", args="written")
    half = torch.tensor([1.0, 40000.0, -65504.0, math.inf, -math.inf, math.nan]).half()
    for again, tensor, expected in (
        (
            "",
            half,
            "[6]  cpu  nan 1 +inf 1 -inf 1 near the limit 1 (16.67%) of 6; "
            "min -6.55e+04 max 4e+04\n",
        ),
        (".1", half[5:], "[1]  cpu  nan 1 of 1\n"),
        (".2", half[:1], ""),
    ):
        said = runtimes.each(lambda runtime, tensor=tensor: runtime.after(12, tensor))
        begin = f"[rewriter 0] #12{again} after  triton_poi_fused_0  out buf1  f16"
        assert said == (begin * bool(expected) + expected,) * 2


@pytest.mark.parametrize("allowed", ["*poi*:buf1", "*:buf?", "triton_poi_fused_0:*"])
def test_what_is_allowed_has_a_row_and_no_line(allowed: str, both: Callable[..., Both]) -> None:
    runtimes = both("nan", args="written", allow=["other:buf1", allowed])
    said = runtimes.each(lambda runtime: runtime.after(12, torch.tensor([math.nan])))
    assert said == ("", "")
    assert [row["nan"] for rows in runtimes.rows() for row in rows] == [1, 1]
    assert json.loads(runtimes.raw("manifest.json")[1])["allow"] == ["other:buf1", allowed]


STOPS = """
import sys
from pathlib import Path
import torch
from rewriter.runtime import attach
from cpp_driver import Native, load, options_of, row_of

language, library, probes = sys.argv[1:]
options = options_of(*probes.split(","), args="written", stop=True, allow=["*:buf9"])
rows = [row_of(after=[["out", "buf1"]]), row_of(13, after=[["out", "buf9"]])]
if language == "python":
    recorder = attach(options, rows)
else:
    recorder = Native(load(Path(library)), options, rows)
recorder.begin()
sys.stdout.write("of the program")
recorder.after(12, torch.ones(3))
recorder.after(13, torch.tensor([float("nan")]))
recorder.after(12, torch.tensor([1.0, float("inf")]))
recorder.after(12, torch.tensor([1.0, float("nan"), 2.0]))
print("not reached")
"""


@pytest.mark.parametrize(("language", "probes"), [("python", "nan"), ("cpp", "nan,save")])
def test_a_nan_ends_the_program(
    language: str, probes: str, built: Callable[..., Path], tmp_path: Path
) -> None:
    about = {"REWRITER_DUMP": tmp_path / "x", "PYTHONPATH": FOLDERS}
    ran = programs.run(sys.executable, "-c", STOPS, language, built(), probes, code=1, **about)
    assert "of the program" in ran.stdout
    assert "not reached" not in ran.stdout
    assert "+inf 1 of 2" in ran.stdout
    stopped = "stopped at #12 triton_poi_fused_0: 1 of 3 elements of buf1 are NaN (--stop)"
    assert ran.stderr == f"[rewriter 0] {stopped}\n"
    rows = events(tmp_path / "x")
    assert [row["nan"] for row in rows] == [0, 1, 0, 1]
    for row in rows:
        file = row.get("file")
        assert (file is not None) == ("save" in probes)
        assert file is None or (tmp_path / "x/rank0/run0" / file).is_file()
    found = json.loads((tmp_path / "x/stopped.json").read_text())
    assert (found["run"], found["launch"], found["arg"]) == ("rank0/run0", 12, "buf1")
    dump_schemas.check(tmp_path / "x")
