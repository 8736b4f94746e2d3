"""The runtime of C++ wrappers does what the Python one does: same lines, same dump, same files.

One shared object is built from its text and a driver through which tests make calls as injected
lines do; the same tensors go through the Python recorder.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import math
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import dump_schemas
import imports
from exact_statistics import contents, decode, is_near_limit
from fingerprints import fingerprint
from harness import settle
from pages import ROOT, page
from rewriter.dump.reading import open_dump
from rewriter.dump.ring import Mark, read_ring
from rewriter.instrumentation.bundle import SOURCES, apart, text
from rewriter.instrumentation.probes import registry
from rewriter.locate.vocabulary import vocabulary
from rewriter.runtime import attach
from rewriter.runtime.event_queue import drain_queue
from rewriter.runtime.memory import patterns

pytestmark = [
    pytest.mark.usefixtures("warm_python"),
    pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental"),
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor"),
]

HERE = Path(__file__).parent
# Where a script finds this module, and what it imports.
FOLDERS = os.pathsep.join([str(HERE), str(HERE.parent / "support")])
INCLUDE = Path(torch.__file__).parent / "include"
LIBRARIES = Path(torch.__file__).parent / "lib"
HEADERS = ["-isystem", str(INCLUDE), "-isystem", str(INCLUDE / "torch/csrc/api/include")]
STRICT = ["-Wall", "-Wextra", "-Werror", "-pedantic"]
# What Inductor compiles wrappers with, and the worst that a user can make of it: the runtime apart,
# as in packages.
FLAGS = {
    "inductor": "-std=c++17 -O1 -DNDEBUG -fno-trapping-math -funsafe-math-optimizations "
    "-ffinite-math-only -fno-signed-zeros -fno-math-errno -fno-finite-math-only "
    "-fno-unsafe-math-optimizations -ffp-contract=off -fexcess-precision=fast "
    "-fno-tree-loop-vectorize -march=native",
    "fast": "-std=c++20 -O1 -DNDEBUG -ffast-math",
    "fastest": "-std=c++20 -O3 -DNDEBUG -ffast-math",
    # To compile.
    "quick": "-std=c++17 -O0",
}
_NAMES = """
bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 bfloat16 float32 float64
float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu
complex32 complex64 complex128
"""
DTYPES = [getattr(torch, name) for name in _NAMES.split() if hasattr(torch, name)]
# Of the engine, what only its library for Python has.
ONLY_FOR_PYTHON = {"events.h", "plan.h", "rows_file.h", "saving.h"}
FOR_DORMANT = {"control.h", "dormant.h"}
PROBES = (
    *("bounds", "hash", "inputs", "names", "nan", "poison", "print", "record", "save", "stale"),
    *("sync", "time"),
)
# Of those that include the same, one.
INCLUDING = ("bounds", "inputs", "names", "print", "record", "save", "sync", "time")
# What the tests of that format look at.
IN_UPSTREAM_FORMAT = ("hash", "names", "print")

# The types of the values in a line, as `Native.at` tells them apart, and the lines that tests make.
TYPES = {
    "t": "AtenTensorHandle",
    "i": "int64_t",
    "u": "uint64_t",
    "f": "double",
    "b": "bool",
    "o": "const char*",
}
LINES = ["", "t", "tt", "tttt", "ti", "if", "ffib", "ffub", "ffff", "fffb", "ttou"]

DRIVER = r"""
#include <torch/csrc/inductor/aoti_runtime/arrayref_tensor.h>

#include <cstring>
#include <utility>

using namespace inductor_rewriter;

template <class T>
static T value_of(uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// As injected lines make calls: by value.
template <class... T, std::size_t... I>
static bool say(
    Call& _rw, int launch, int phase, [[maybe_unused]] const uint64_t* bits,
    std::index_sequence<I...>) {
  if (phase == 0) _rw.before(launch, value_of<T>(bits[I])...);
  else if (phase == 1) _rw.after(launch, value_of<T>(bits[I])...);
  else _rw.inputs(value_of<T>(bits[I])...);
  return true;
}

extern "C" {
// No types of the runtime's here: where they are hidden, so is a function of them.
void* test_wrapper(const void* options, const void* rows, size_t count, const char* inputs) {
  const Row* table = static_cast<const Row*>(rows);
  return new Wrapper(*static_cast<const Options*>(options), table, count, inputs);
}
void* test_begin(void* wrapper) { return new Call(*static_cast<Wrapper*>(wrapper)); }
void test_end(void* call) { delete static_cast<Call*>(call); }
bool test_at(void* from, int launch, int phase, const char* types, const uint64_t* bits) {
  Call& call = *static_cast<Call*>(from);
  // LINES
  return false;
}
void test_array(void* from, int launch) {
  using namespace torch::aot_inductor;
  static float numbers[6] = {1, 2, 3, 4, 5, 6};
  static const int64_t sizes[] = {2, 3}, strides[] = {3, 1};
  ArrayRefTensor<float> whole(
      MiniArrayRef<float>(numbers, 6), MiniArrayRef<const int64_t>(sizes, 2),
      MiniArrayRef<const int64_t>(strides, 2), aoti_torch_device_type_cpu(), 0);
  RAIIAtenTensorHandle owner;
  ConstantHandle constant;
  Call& call = *static_cast<Call*>(from);
  call.before(launch, call.view(whole, 2, sizes, strides, 0L), owner, constant, int32_t{7});
}
// Every type.
void test_types(void* from, int launch, AtenTensorHandle handle) {
  using namespace torch::aot_inductor;
  static float numbers[6] = {1, 2, 3, 4, 5, 6};
  static const int64_t sizes[] = {2, 3}, strides[] = {3, 1}, row[] = {3}, step[] = {1};
  static const int64_t turned[] = {3, 2}, across[] = {1, 3};
  ArrayRefTensor<float> array(
      MiniArrayRef<float>(numbers, 6), MiniArrayRef<const int64_t>(sizes, 2),
      MiniArrayRef<const int64_t>(strides, 2), aoti_torch_device_type_cpu(), 0);
  RAIIAtenTensorHandle empty;
  ConstantHandle constant(handle);
  Call& _rw = *static_cast<Call*>(from);
  _rw.before(
      launch, handle, constant, _rw.view(constant, 2, turned, across, 0L), array,
      _rw.view(array, 1, row, step, 3L), empty, nullptr, 5L, int32_t{-6}, uint8_t{7},
      uint64_t{1} << 63, 2.5f, 0.1, true, "text", _rw.view(empty, 1, row, step, 0L));
  _rw.after(launch);
  _rw.after(launch, 1.5);
  _rw.inputs(handle, 3L);
}
void test_constant(void* from, int launch, AtenTensorHandle handle) {
  torch::aot_inductor::ConstantHandle constant(handle);
  Call& _rw = *static_cast<Call*>(from);
  static const int64_t row[] = {3}, step[] = {1};
  _rw.after(launch, constant, _rw.view(constant, 1, row, step, 0L), handle);
}
AtenTensorHandle test_allocated(void* from, int event, AtenTensorHandle handle) {
  Call& _rw = *static_cast<Call*>(from);
  torch::aot_inductor::RAIIAtenTensorHandle buffer(handle);
  _rw.allocated(event, buffer);
  return buffer.release();
}
void test_gone(void* from, int event, AtenTensorHandle handle, bool reused) {
  Call& _rw = *static_cast<Call*>(from);
  torch::aot_inductor::RAIIAtenTensorHandle buffer(handle);
  if (reused) _rw.reused(event, buffer);
  else _rw.released(event, buffer);
}
void test_checked(void* from, int launch) {
  Call& _rw = *static_cast<Call*>(from);
  _rw.checked(launch);
}
void test_throw(void* wrapper) {
  try {
    Call call(*static_cast<Wrapper*>(wrapper));
    call.before(3);
    throw 1;
  } catch (int) {
  }
}
// The table as the planner writes it.
const Options options{
    "wrapper.cpp", "00", "0.1.0", "names,print", "", "text", false, "", nullptr, true,
    "", "", 0, "all", false, "", nullptr, false, nullptr};
const Row rows[] = {
    {3, "static_kernel", "cpp", "run_impl", 9, "a, b", "aten.mm", false, nullptr, "in x0", nullptr,
     nullptr},
};
Wrapper wrapper(options, rows, sizeof rows / sizeof *rows, nullptr);
void test_static() {
  Call _rw(wrapper);
  _rw.before(3, nullptr);
}
}
"""

# What looks at the runtime itself, and stands where that is compiled.
INSIDE = r"""
using namespace inductor_rewriter;
extern "C" {
// How a probe is made: `when`, and its flags.
const char* test_probe(const char* name) {
  static std::string facts;
  auto probe = make_probe(name);
  facts = probe->when;
  for (bool flag : {probe->spans, probe->of_results, probe->values != nullptr, probe->measures,
                    probe->saves}) {
    facts += flag ? " 1" : " 0";
  }
  return facts.c_str();
}
void test_drain(void* of) {
  void* recorder = static_cast<Wrapper*>(of)->recorder;
  if (recorder) static_cast<Recorder*>(recorder)->drain();
}
bool test_is_gpu_kind(const char* kind) { return is_gpu_kind(kind); }
}
"""

# Prints the text of the runtime with the probe of the documents.
BUNDLED = """
from rewriter.instrumentation.bundle import text
print(text(["count"], "text"))
"""


class Options(ctypes.Structure):
    _fields_ = [
        ("artifact", ctypes.c_char_p),
        ("sha256", ctypes.c_char_p),
        ("version", ctypes.c_char_p),
        ("probes", ctypes.c_char_p),
        ("when", ctypes.c_char_p),
        ("format", ctypes.c_char_p),
        ("values", ctypes.c_bool),
        ("outputs", ctypes.c_char_p),
        ("expected", ctypes.c_char_p),
        ("reads_inputs", ctypes.c_bool),
        ("label", ctypes.c_char_p),
        ("calls", ctypes.c_char_p),
        ("last", ctypes.c_int),
        ("args", ctypes.c_char_p),
        ("recheck", ctypes.c_bool),
        ("max_bytes", ctypes.c_char_p),
        ("allow", ctypes.c_char_p),
        ("stop", ctypes.c_bool),
        ("memory", ctypes.c_char_p),
        ("dormant", ctypes.c_bool),
        ("on", ctypes.c_char_p),
        ("dump", ctypes.c_char_p),
        ("quiet", ctypes.c_bool),
    ]


class Row(ctypes.Structure):
    _fields_ = [
        ("launch", ctypes.c_int),
        ("kernel", ctypes.c_char_p),
        ("kind", ctypes.c_char_p),
        ("scope", ctypes.c_char_p),
        ("line", ctypes.c_int),
        ("source_nodes", ctypes.c_char_p),
        ("origins", ctypes.c_char_p),
        ("repeats", ctypes.c_bool),
        ("buffers", ctypes.c_char_p),
        ("before", ctypes.c_char_p),
        ("after", ctypes.c_char_p),
        ("reads", ctypes.c_char_p),
        ("together", ctypes.c_bool),
    ]


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype = ctypes.c_void_p
_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


def handle_of(tensor: torch.Tensor) -> int:
    """A handle of a tensor, to be deleted by `aoti_torch_delete_tensor_object`."""
    (capsule,) = torch._C._aoti.unsafe_alloc_void_ptrs_from_tensors([tensor])
    return int(_pointer(capsule, None))


class Handle(int):
    """A handle that was made here; passed on as it is."""


class Other:
    """What is neither tensor nor number."""


def _memory_line(row: dict[str, Any]) -> str:
    return f"{row['event']} {row['buffer']}{' held' if row.get('held') else ''}"


@dataclass
class Native:
    """A wrapper with the C++ runtime in it, with the methods of the Python recorder."""

    library: ctypes.CDLL
    options: dict[str, Any]
    rows: list[dict[str, Any]]
    inputs_labels: list[list[str]] | None = None
    call: int = 0
    kept: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        def joined(labels: Sequence[Sequence[str]] | None) -> bytes | None:
            return None if labels is None else "; ".join(map(" ".join, labels)).encode()

        outputs = self.options["outputs"]
        options = Options(
            *(self.options[name].encode() for name in ("artifact", "sha256", "version")),
            ",".join(self.options["probes"]).encode(),
            *(self.options[name].encode() for name in ("when", "format")),
            self.options["values"],
            "; ".join(" ".join([k, *(x or "-" for x in v)]) for k, v in outputs.items()).encode(),
            "; ".join(self.options.get("expected", ())).encode(),
            self.options.get("reads_inputs", True),
            *(self.options.get(name, "").encode() for name in ("label", "calls")),
            self.options.get("last", 0),
            self.options.get("args", "all").encode(),
            self.options.get("recheck", False),
            self.options.get("max_bytes", "").encode(),
            "; ".join(self.options.get("allow", ())).encode(),
            self.options.get("stop", False),
            "; ".join(map(_memory_line, self.options.get("memory", ()))).encode(),
            self.options.get("dormant", False),
            ",".join(self.options.get("on", ())).encode(),
            None,
            False,
        )
        rows = (Row * len(self.rows))(
            *(
                Row(
                    row["launch"],
                    row["kernel"].encode(),
                    row["kind"].encode(),
                    row["scope"].encode(),
                    row["line"],
                    ", ".join(row["source_nodes"]).encode(),
                    ", ".join(row["origins"]).encode(),
                    row["repeats"],
                    joined(list(row["buffers"].items())) if "buffers" in row else None,
                    joined(row.get("before")),
                    joined(row.get("after")),
                    joined(row.get("reads")),
                    row.get("together", False),
                )
                for row in self.rows
            )
        )
        labels = joined(self.inputs_labels)
        self.kept += [options, rows, labels]
        self.wrapper = self.library.test_wrapper(
            ctypes.byref(options), rows, ctypes.c_size_t(len(rows)), labels
        )

    def begin(self) -> None:
        self.end()
        self.call = self.library.test_begin(ctypes.c_void_p(self.wrapper))

    def end(self) -> None:
        if self.call:
            self.library.test_end(ctypes.c_void_p(self.call))
        self.call = 0

    def before(self, launch: int, *values: Any) -> None:
        self.at(launch, 0, values)

    def after(self, launch: int, *values: Any) -> None:
        self.at(launch, 1, values)

    def inputs(self, *values: Any) -> None:
        self.at(0, 2, values)

    def allocated(self, event: int, tensor: torch.Tensor) -> torch.Tensor:
        handle = self.library.test_allocated(
            ctypes.c_void_p(self.call), event, ctypes.c_void_p(handle_of(tensor))
        )
        capsule = _new_capsule(handle, None, None)
        made: list[torch.Tensor] = torch._C._aoti.alloc_tensors_by_stealing_from_void_ptrs(
            [capsule]
        )
        return made[0]

    def reused(self, event: int, tensor: torch.Tensor) -> None:
        self._gone(event, tensor, True)

    def released(self, event: int, tensor: torch.Tensor) -> None:
        self._gone(event, tensor, False)

    def _gone(self, event: int, tensor: torch.Tensor, is_reused: bool) -> None:
        handle = ctypes.c_void_p(handle_of(tensor))
        self.library.test_gone(ctypes.c_void_p(self.call), event, handle, is_reused)

    def checked(self, launch: int) -> None:
        self.library.test_checked(ctypes.c_void_p(self.call), launch)

    def at(self, launch: int, phase: int, values: Sequence[Any], call: int | None = None) -> None:
        made = []
        types = ""
        numbers = []
        for value in values:
            number = value
            if isinstance(value, torch.Tensor):
                types += "t"
                number = handle_of(value)
                made.append(number)
            elif isinstance(value, Handle) or value is None:
                types += "t"
                number = value or 0
            elif isinstance(value, bool):
                types += "b"
            elif isinstance(value, int):
                types += "i" if value < 2**63 else "u"
            elif isinstance(value, float):
                types += "f"
                number = struct.unpack("Q", struct.pack("d", value))[0]
            else:
                types += "o"
                number = 0
            numbers.append(int(number) % 2**64)
        bits = (ctypes.c_uint64 * len(numbers))(*numbers)
        pointer = ctypes.c_void_p(self.call if call is None else call)
        known = self.library.test_at(pointer, launch, phase, types.encode(), bits)
        assert known, f"add {types} to LINES"
        for handle in made:
            self.library.aoti_torch_delete_tensor_object(ctypes.c_void_p(handle))


def driver() -> str:
    lines = (
        f'  if (!std::strcmp(types, "{line}")) return say<{", ".join(map(TYPES.get, line))}>('
        f"call, launch, phase, bits, std::make_index_sequence<{len(line)}>());\n"
        for line in LINES
    )
    return DRIVER.replace("  // LINES\n", "".join(lines))


def compile_driver(folder: Path, flags: str, format: str, in_two: bool) -> Path:
    """The driver with the runtime in it, or with the runtime compiled apart."""
    probes = IN_UPSTREAM_FORMAT if format == "upstream" else PROBES
    wrapper = text(probes, format) + driver()
    if not in_two:
        return compile_sources(folder, flags, {"driver": wrapper + INSIDE})
    sources = {"driver": wrapper, "runtime": apart(probes, format) + INSIDE}
    return compile_sources(folder, flags, sources, ["-DINDUCTOR_REWRITER_APART"])


def compile_sources(
    folder: Path, flags: str, sources: dict[str, str], more: Sequence[str] = ()
) -> Path:
    """A library of these files; `more` are options of the compiler."""
    objects = []
    for name, source in sources.items():
        (folder / f"{name}.cpp").write_text(source)
        objects.append(str(folder / f"{name}.o"))
        command = ["g++", *flags.split(), *STRICT, "-fPIC", *more, *HEADERS]
        subprocess.run([*command, "-c", str(folder / f"{name}.cpp"), "-o", objects[-1]], check=True)
    made = folder / "driver.so"
    # Apart: g++ adds code that flushes subnormals in the whole process to what it links for speed.
    link = ["g++", "-shared", *objects, "-o", str(made), f"-L{LIBRARIES}"]
    subprocess.run([*link, f"-Wl,-rpath,{LIBRARIES}", "-ltorch", "-ltorch_cpu"], check=True)
    return made


def load(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    for name in ("test_wrapper", "test_begin", "test_allocated"):
        getattr(library, name).restype = ctypes.c_void_p
    library.test_at.restype = ctypes.c_bool
    return library


@pytest.fixture
def library(built: Callable[..., Path]) -> ctypes.CDLL:
    return load(built())


@pytest.fixture
def upstream(built: Callable[..., Path]) -> ctypes.CDLL:
    return load(built("quick", "upstream"))


def options_of(*names: str, **changes: Any) -> dict[str, Any]:
    return {
        "artifact": "wrapper.cpp",
        "sha256": "ab" * 32,
        "version": "0.1.0",
        "probes": list(names),
        "when": "",
        "format": "text",
        "values": False,
        "outputs": {"run_impl": ["buf1", "", "x0"], "_const_run_impl": []},
        **changes,
    }


def row_of(launch: int = 12, **changes: Any) -> dict[str, Any]:
    return {
        "launch": launch,
        "kernel": "triton_poi_fused_0",
        "kind": "triton",
        "scope": "run_impl",
        "line": 345,
        "source_nodes": ["linear", "relu"],
        "origins": ["aten.addmm"],
        "repeats": False,
        **({"buffers": changes.pop("buffers")} if "buffers" in changes else {}),
        "before": [["in", "x0", "view(x0, 2L)"]],
        "after": [["out", "buf1"]],
        **changes,
    }


@dataclass
class Both:
    """The same wrapper with either runtime, each with a dump of its own."""

    python: Any
    native: Native
    dumps: tuple[Path, Path]
    capture: Any

    def each(self, act: Callable[[Any], Any]) -> tuple[str, str]:
        """Do the same with both; what they wrote to standard output."""
        said = []
        for runtime in (self.python, self.native):
            self.capture.readouterr()
            act(runtime)
            # What is measured on a GPU is written a little later.
            drain_queue()
            self.native.library.test_drain(ctypes.c_void_p(self.native.wrapper))
            said.append(self.capture.readouterr().out)
        return said[0], said[1]

    def finish(self) -> None:
        """End the call: what it saved is in files then."""
        self.native.end()
        settle()

    def rows(self, run: int = 0) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        found = [
            [
                json.loads(line)
                for line in (dump / f"rank0/run{run}/events.jsonl").read_text().splitlines()
            ]
            for dump in self.dumps
        ]
        return found[0], found[1]

    def check_rows(self) -> None:
        python, native = self.rows()
        assert len(python) == len(native)
        for expected, found in zip(python, native, strict=True):
            same(expected, found)

    def check_said(self, act: Callable[[Any], Any]) -> None:
        expected, found = self.each(act)
        assert found == expected

    def raw(self, name: str) -> tuple[str, str]:
        python, native = ((dump / name).read_text() for dump in self.dumps)
        return python, native


def same(expected: dict[str, Any], found: dict[str, Any]) -> None:
    """Equal rows; the mean and the deviation up to rounding."""
    assert list(expected) == list(found)
    ends = [expected.get("min"), expected.get("max")]
    largest = max((abs(end) for end in ends if isinstance(end, (int, float))), default=0.0)
    for key, value in expected.items():
        other = found[key]
        assert type(other) is type(value), (key, expected, found)
        rounded = key in ("mean", "std") or (key in ("min", "max") and "of" in expected)
        if rounded and isinstance(value, float):
            # What cancels is known no better than what it is the sum of.
            near = math.isclose(value, other, rel_tol=1e-12)
            assert near or abs(value - other) <= 2.0**-49 * largest, (key, expected, found)
            continue
        assert other == value, (key, expected, found)


@pytest.fixture
def both(
    built: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> Iterator[Callable[..., Both]]:
    """`both("print", values=True)`, with rows of the table after `rows=`.

    Whatever they dump in a test is as the schemas say.
    """
    made = []

    def make(
        *names: str,
        rows: list[dict[str, Any]] | None = None,
        flags: str = "fast",
        **changes: Any,
    ) -> Both:
        rows = rows or [row_of()]
        options = options_of(*names, **changes)
        python, cpp = tmp_path / "python", tmp_path / "cpp"
        monkeypatch.setenv("REWRITER_COMMAND", 'run "me"')
        monkeypatch.setenv("REWRITER_DUMP", str(python))
        recorder = attach(options, rows)
        recorder.begin()
        monkeypatch.setenv("REWRITER_DUMP", str(cpp))
        native = Native(load(built(flags)), options, rows)
        native.begin()
        made.append(Both(recorder, native, (python, cpp), capfd))
        return made[-1]

    yield make
    for dump in {dump for runtimes in made for dump in runtimes.dumps}:
        dump_schemas.check(dump, lines=10)


def tensor_of(dtype: torch.dtype, count: int, seed: int = 0) -> torch.Tensor:
    """Random bit patterns, valid ones for bool."""
    generator = torch.Generator().manual_seed(seed)
    size = (count * dtype.itemsize,)
    bits = torch.randint(0, 256, size, dtype=torch.uint8, generator=generator)
    return (bits & 1 if dtype == torch.bool else bits).view(dtype)


def shapes_of(flat: torch.Tensor) -> list[torch.Tensor]:
    """Views of 5,040 elements that differ in everything that a shape can."""
    whole = flat[:5040].view(7, 8, 9, 10)
    return [
        flat,
        flat[:2047],
        flat[:2048],
        flat[:2049],
        flat[0],
        flat[:1],
        flat[:2],
        flat[:33],
        flat[:0],
        flat[:0].view(3, 0, 2),
        whole,
        whole.permute(3, 1, 0, 2),
        whole.to(memory_format=torch.channels_last),
        whole[:, ::2],
        whole[..., 1:9:3],
        whole[:, :, 2:4].transpose(0, 3),
        whole[:1].expand(7, 8, 9, 10),
        whole[0, 0, 0, 0].expand(5, 4),
        whole[:, :1].expand(7, 8, 9, 10)[1:3],
        flat.as_strided((6, 5), (2, 1)),
        flat.as_strided((3, 1, 2), (4, 7, 2), 3),
    ]


# --- Values -------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("recheck", "roles", "seen"),
    [
        (False, ("in", "in", "in"), [1, 1, 2]),
        (True, ("in", "in", "in"), [2, 2, 2]),
        (False, ("inout", "in", "in"), [2, 1, 2]),
    ],
    ids=["measured once", "recheck", "written by a launch"],
)
def test_a_constant_is_measured_once(
    recheck: bool, roles: tuple[str, ...], seen: list[int], library: ctypes.CDLL, capfd: Any
) -> None:
    """Of AOTInductor: what no launch writes stays as it was loaded, and so does a view of it."""
    labels = [[role, name] for role, name in zip(roles, ("weight", "view", "buf0"), strict=True)]
    table = [row_of(0, before=[], after=labels)]
    native = Native(library, options_of("print", recheck=recheck), table)
    tensor = torch.ones(6)
    handle = handle_of(tensor)
    for value in (1, 2):
        tensor.numpy()[:] = value  # nobody tells torch
        native.begin()
        library.test_constant(ctypes.c_void_p(native.call), 0, ctypes.c_void_p(handle))
    native.end()
    library.aoti_torch_delete_tensor_object(ctypes.c_void_p(handle))
    lines = capfd.readouterr().out.splitlines()
    assert [int(line.split(" max ")[1][0]) for line in lines] == [1, 1, 1, *seen]


def test_other_constants_are_measured(library: ctypes.CDLL, capfd: Any) -> None:
    """Those that take the place of the first ones, and those that their owner writes."""
    table = [row_of(0, before=[], after=[["in", "weight"], ["in", "view"], ["out", "buf0"]])]
    native = Native(library, options_of("print"), table)
    tensor = torch.ones(6)
    handles = [handle_of(tensor), handle_of(tensor)]
    with torch.inference_mode():
        handles.append(handle_of(torch.full((6,), 4.0)))

    def call(handle: int) -> None:
        native.begin()
        library.test_constant(ctypes.c_void_p(native.call), 0, ctypes.c_void_p(handle))

    call(handles[0])
    tensor.numpy()[:] = 2  # as a package does with memory of its own
    call(handles[1])
    tensor.mul_(3)
    call(handles[1])
    call(handles[2])
    call(handles[2])
    native.end()
    for handle in handles:
        library.aoti_torch_delete_tensor_object(ctypes.c_void_p(handle))
    lines = capfd.readouterr().out.splitlines()
    assert [int(line.split(" max ")[1][0]) for line in lines[::3]] == [1, 2, 6, 4, 4]


@pytest.mark.parametrize(
    ("recheck", "role", "seen"),
    [
        (False, "in", [1, 1, 6, 6, 9, 7, 8]),
        (True, "in", [1, 5, 6, 6, 9, 7, 8]),
        (False, "inout", [1, 5, 6, 6, 9, 7, 8]),
    ],
    ids=["not read again", "recheck", "written by a launch"],
)
def test_an_input_that_was_not_written_is_not_read_again(
    recheck: bool, role: str, seen: list[int], library: ctypes.CDLL, capfd: Any
) -> None:
    """As in Python, which calls what is compiled just in time, and knows of writes."""
    labels = [["in", "weight"], ["in", "x"]]
    table = [row_of(0, before=[], after=[[role, "weight"]])]
    native = Native(library, options_of("print", recheck=recheck), table, labels)
    weight = torch.ones(4)
    shown = []
    for call in range(7):
        if call == 1:
            weight.numpy()[:] = 5  # nobody tells torch
        elif call == 2:
            weight.add_(1)
        elif call == 4:
            weight = torch.full((4,), 9.0)  # maybe where the other one was
        elif call == 5:
            with torch.inference_mode():
                weight = torch.full((4,), 7.0)
        elif call == 6:
            weight.numpy()[:] = 8  # no version is there to tell
        native.begin()
        native.inputs(weight, torch.full((2,), float(call)))
        native.end()
        first, second = capfd.readouterr().out.splitlines()
        shown.append(int(first.split(" max ")[1][0]))
        assert f" max {call} " in second
    assert shown == seen


def test_what_a_fused_optimizer_trains_is_read_again(library: ctypes.CDLL, capfd: Any) -> None:
    """It writes parameters, and leaves their versions as they are."""
    native = Native(library, options_of("print"), [], [["in", "weight"], ["in", "frozen"]])
    weight, frozen = torch.nn.Parameter(torch.ones(4)), torch.ones(4)
    for call in range(4):
        if call == 1:  # it was known before
            optimizer = torch.optim.SGD([weight], lr=1.0, fused=True)
            weight.grad = -torch.ones(4)
        if call:
            optimizer.step()
            assert weight._version == 0
            frozen.numpy()[:] += 1
        native.begin()
        native.inputs(weight, frozen)
        native.end()
        lines = capfd.readouterr().out.splitlines()
        assert [int(line.split(" max ")[1][0]) for line in lines] == [call + 1, 1]


def test_tensors_that_are_swapped_have_no_weak_references(library: ctypes.CDLL, capfd: Any) -> None:
    """Torch refuses to swap one that has any; what was known before is forgotten."""
    native = Native(library, options_of("print"), [], [["in", "weight"]])
    weight = torch.ones(4)
    try:
        for call in range(3):
            torch.__future__.set_swap_module_params_on_conversion(call > 0)
            native.begin()
            native.inputs(weight)
            native.end()
            if call:
                torch.utils.swap_tensors(weight, torch.full((4,), 2.0))
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    lines = capfd.readouterr().out.splitlines()
    assert [int(line.split(" max ")[1][0]) for line in lines] == [1, 1, 2]


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


# --- Dump ---------------------------------------------------------------------------------------


def test_dump_is_that_of_python(both: Callable[..., Both]) -> None:
    rows = [
        row_of(12, kernel='a "kernel" \\ with \N{GREEK SMALL LETTER MU} and \N{SNAKE}\t\x7f'),
        row_of(13, source_nodes=[], origins=[], repeats=True, before=[]),
        row_of(14, after=None),
        row_of(15, buffers={"buf1": "buf0"}),
        row_of(16, buffers={"buf18": "buf17", "view": "arg0_1"}),
    ]
    rows[2].pop("after")
    runtimes = both("names", "print", rows=rows)
    runtimes.each(lambda runtime: runtime.before(12, torch.ones(2, 3)))
    runtimes.each(lambda runtime: runtime.before(13))
    runtimes.each(lambda runtime: runtime.before(13))
    runtimes.each(lambda runtime: runtime.after(13, torch.zeros(0)))
    runtimes.check_rows()
    python, native = runtimes.raw("rank0/run0/events.jsonl")
    assert native == python
    changes = r'"(pid|started)": [0-9.]+'
    python, native = runtimes.raw("rank0/run0/run.json")
    assert re.sub(changes, "", native) == re.sub(changes, "", python)
    python, native = runtimes.raw("rank0/run0/launches.json")
    assert native == python
    python, native = runtimes.raw("manifest.json")
    assert native == python.replace(torch.__version__, torch.__version__.split("+")[0])
    assert sorted(path.name for path in runtimes.dumps[1].iterdir()) == ["manifest.json", "rank0"]


@pytest.mark.parametrize(
    ("variables", "rank", "size"),
    [
        ({"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "SLURM_PROCID": "9"}, 5, 8),
        ({"LOCAL_RANK": "3"}, 3, 0),
        ({"LOCAL_RANK": "3", "GROUP_RANK": "2", "LOCAL_WORLD_SIZE": "4"}, 11, 0),
        ({"SLURM_PROCID": "6", "SLURM_LOCALID": "2", "SLURM_NTASKS": "16"}, 6, 16),
        ({"SLURM_PROCID": "6", "SLURM_LOCALID": "2", "LOCAL_RANK": "2"}, 6, 0),
        # A task that starts several processes itself.
        ({"SLURM_PROCID": "6", "SLURM_LOCALID": "0", "LOCAL_RANK": "2"}, 2, 0),
        # A batch script, which no `srun` started.
        ({"SLURM_NTASKS": "16"}, 0, 0),
        ({"RANK": "one", "LOCAL_RANK": "-1", "SLURM_PROCID": "٣", "WORLD_SIZE": "9" * 10}, 0, 0),
    ],
)
def test_ranks_are_found_as_in_python(
    both: Callable[..., Both],
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    rank: int,
    size: int,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    pair = both("names")
    pair.each(lambda runtime: runtime.before(12, torch.ones(2)))
    pair.finish()
    for dump in pair.dumps:
        assert [path.name for path in dump.glob("rank*")] == [f"rank{rank}"]
        facts = json.loads((dump / "manifest.json").read_text())
        assert (facts.get("ranks", 0), facts["host"]) == (size, socket.gethostname())
        assert json.loads((dump / f"rank{rank}/run0/run.json").read_text())["host"]


def test_the_table_of_launches_is_in_a_dump_once(both: Callable[..., Both]) -> None:
    """Each call has a name of its file; one that is gone is written again."""
    pair = both("names", rows=[row_of(before=[], after=[])])
    for number in range(4):
        for runtime in (pair.python, pair.native):
            runtime.begin()
        if number == 1:
            for dump in pair.dumps:
                (dump / "rank0/run2/launches.json").unlink()
    pair.finish()
    for dump in pair.dumps:
        tables = [dump / f"rank0/run{number}/launches.json" for number in (0, 1, 3, 4)]
        found = [path.stat().st_ino for path in tables]
        assert found[0] == found[1] != found[2] == found[3]
        assert len({path.read_bytes() for path in tables}) == 1
        opened = open_dump(dump)
        assert [len(run.facts.launches) for run in opened.runs] == [1, 1, 0, 1, 1]
        assert opened.runs[0].facts.launches is opened.runs[1].facts.launches


def test_a_dump_that_somebody_removed_is_begun_again(both: Callable[..., Both]) -> None:
    pair = both("names", rows=[row_of(before=[], after=[])])
    for runtime in (pair.python, pair.native):
        runtime.begin()
    pair.finish()
    for dump in pair.dumps:
        shutil.rmtree(dump)
    for runtime in (pair.python, pair.native):
        runtime.begin()
        runtime.before(12)
    pair.finish()
    for dump in pair.dumps:
        (run,) = open_dump(dump).runs
        assert [step.launch for step in run.steps] == [12]


def test_names_alone_dump_where_they_are_told_to(both: Callable[..., Both]) -> None:
    runtimes = both("names", rows=[row_of(before=[], after=[])])
    for act in ("before", "before", "after"):
        runtimes.check_said(lambda runtime, act=act: getattr(runtime, act)(12))
    python, native = runtimes.raw("rank0/run0/events.jsonl")
    assert native == python
    assert native.count("\n") == 3


def test_saved_files_are_those_of_python(both: Callable[..., Both]) -> None:
    long = "triton_poi_" + "fused_\N{LATIN SMALL LETTER E WITH ACUTE}_" * 60 + "x/y"
    runtimes = both("save", rows=[row_of(kernel=long, before=[["in", "a/b"]])])
    for dtype in DTYPES:
        flat = tensor_of(dtype, 6000)
        for tensor in shapes_of(flat):
            runtimes.each(lambda runtime, tensor=tensor: runtime.before(12, tensor))
    conjugate = torch.tensor([1 + 2j, 3 - 4j]).conj()
    runtimes.each(lambda runtime: runtime.after(12, conjugate))
    runtimes.finish()
    runtimes.check_rows()
    python, native = runtimes.rows()
    assert [row.get("file") for row in native] == [row.get("file") for row in python]
    assert sum("file" in row for row in native) == len(native)
    for row in native:
        expected, found = (
            torch.load(dump / "rank0/run0" / row["file"], weights_only=True)
            for dump in runtimes.dumps
        )
        mapped = torch.load(
            runtimes.dumps[1] / "rank0/run0" / row["file"], weights_only=True, mmap=True
        )
        assert found.dtype == expected.dtype
        assert found.shape == expected.shape
        assert found.stride() == expected.stride()
        assert found.storage_offset() == 0
        assert found.untyped_storage().nbytes() == found.numel() * found.itemsize
        assert bits_of(found) == bits_of(expected) == bits_of(mapped)
        with zipfile.ZipFile(runtimes.dumps[1] / "rank0/run0" / row["file"]) as archive:
            assert archive.testzip() is None


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
def test_digests_are_those_of_python_and_of_the_saved_files(
    dtype: torch.dtype, both: Callable[..., Both]
) -> None:
    """Python's are compared with what they are defined to be in test_hash.py."""
    runtimes = both("hash", "save")
    tensors = shapes_of(tensor_of(dtype, 6000))
    if dtype.is_complex:
        tensors += [tensors[-1].conj(), tensors[10].permute(3, 1, 0, 2).conj()]
    for tensor in tensors:
        runtimes.check_said(lambda runtime, tensor=tensor: runtime.before(12, tensor))
    runtimes.finish()
    runtimes.check_rows()
    rows = runtimes.rows()[1]
    assert len(rows) == len(tensors)
    for row in rows:
        saved = torch.load(runtimes.dumps[1] / "rank0/run0" / row["file"], weights_only=True)
        assert row["fingerprint"] == fingerprint(saved)


@pytest.mark.parametrize("names", [["hash"], ["hash", "print"]], ids="-".join)
def test_digests_alone_and_at_the_end_of_a_line(
    names: list[str], both: Callable[..., Both]
) -> None:
    freed = torch.ones(4)
    freed.untyped_storage().resize_(0)
    quantized = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8)
    packed = torch.ones(4, dtype=torch.uint8).view(getattr(torch, "float4_e2m1fn_x2", torch.bits8))
    runtimes = both(*names, rows=[row_of(after=[["out", "buf1"], ["in", "s0"]])])
    for value in (freed, quantized, packed, torch.ones(2, device="meta"), torch.ones(3), None):
        runtimes.check_said(lambda runtime, value=value: runtime.after(12, value, 5))
    runtimes.check_rows()
    hashed = ["fingerprint" in row for row in runtimes.rows()[1] if "dtype" in row]
    assert hashed == [False, True, True, False, True]


def test_digests_in_upstream_format(upstream: ctypes.CDLL, capfd: Any) -> None:
    tensor = torch.ones(3)
    line = f"Fingerprint: {fingerprint(tensor)}"
    said = []
    for names in (["hash"], ["print"], ["hash", "print"]):
        native = Native(upstream, options_of(*names, format="upstream"), [row_of()])
        native.begin()
        native.after(12, tensor)
        native.end()
        said.append(capfd.readouterr().out.splitlines())
    assert said[0] == ["[  after_launch - triton_poi_fused_0 - buf1  ]:", line, ""]
    assert said[2] == [*said[1][:-1], line, ""]


def bits_of(tensor: torch.Tensor) -> bytes:
    flat = tensor.resolve_conj().contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).tolist())


def test_what_cannot_be_saved_is_said_once(
    library: ctypes.CDLL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    monkeypatch.setenv("REWRITER_DUMP", str(tmp_path))
    native = Native(library, options_of("save"), [row_of()])
    native.begin()
    freed = torch.ones(4)
    freed.untyped_storage().resize_(0)
    for tensor in (torch.eye(3).to_sparse(), torch.eye(2).to_sparse(), freed):
        native.before(12, tensor)
    quantized = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8)
    native.before(12, quantized)
    native.end()
    err = capfd.readouterr().err
    assert err.count("warning: #12 x0: cannot be saved: ") == err.count("\n") == 2
    assert not list(tmp_path.rglob("*.pt"))


def test_inputs(
    library: ctypes.CDLL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    monkeypatch.setenv("REWRITER_DUMP", str(tmp_path))
    labels = [["in", "arg0_1"], ["in", "s0"]]
    options = options_of("names", "print", "save", when="after")
    native = Native(library, options, [row_of()], labels)
    native.begin()
    native.inputs(torch.ones(2, 3), 5)
    native.end()
    out = capfd.readouterr().out
    assert out == (
        "[rewriter 0] inputs  in arg0_1  f32[2, 3]  cpu  min 1 max 1 mean 1 std 0 nan 0 inf 0\n"
        "[rewriter 0] inputs  in s0  int 5\n"
    )
    first, second = (tmp_path / "rank0/run0/events.jsonl").read_text().splitlines()
    row = json.loads(first)
    assert list(row)[:3] == ["phase", "arg", "role"]
    assert row["phase"] == "inputs"
    assert row["file"] == "inputs/aoti_model_inputs_arg0_1_cpu.pt"
    assert torch.load(tmp_path / "rank0/run0" / row["file"], weights_only=True).shape == (2, 3)
    assert json.loads(second) == {
        "phase": "inputs", "arg": "s0", "role": "in", "type": "int", "value": "5",
    }  # fmt: skip


def test_runs_are_never_shared(
    library: ctypes.CDLL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REWRITER_DUMP", str(tmp_path / "deep" / "dump"))
    monkeypatch.setenv("RANK", "3")
    options = options_of("names", when="after")
    wrappers = [Native(library, options, [row_of()]) for _ in range(4)]

    def work(native: Native) -> None:
        for _ in range(10):
            call = library.test_begin(ctypes.c_void_p(native.wrapper))
            native.at(12, 1, [], call)
            library.test_end(ctypes.c_void_p(call))

    threads = [threading.Thread(target=work, args=(native,)) for native in wrappers * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    runs = sorted((tmp_path / "deep/dump/rank3").iterdir())
    assert len(runs) == 80
    for run in runs:
        assert (run / "events.jsonl").read_text().count("\n") == 1
        assert json.loads((run / "run.json").read_text())["format"] == "rewriter.run"
        assert len(list(run.iterdir())) == 3


def test_without_a_directory_the_model_goes_on(
    library: ctypes.CDLL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REWRITER_DUMP", str(tmp_path / "file" / "dump"))
    native = Native(library, options_of("print", "save"), [row_of()])
    for _ in range(2):
        native.begin()
        native.before(12, torch.ones(2))
    native.end()
    out, err = capfd.readouterr()
    assert out.count("min 1 max 1") == 2
    assert err.count("\n") == 1
    assert "[rewriter 0] warning: dump: cannot make" in err
    assert "Not a directory" in err


def test_a_full_disk_is_said_once(
    library: ctypes.CDLL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    monkeypatch.setenv("REWRITER_DUMP", str(tmp_path))
    native = Native(library, options_of("save"), [row_of()])
    native.begin()
    (tmp_path / "rank0/run0/000012").write_text("in the way")
    for _ in range(2):
        native.before(12, torch.ones(2))
    native.end()
    err = capfd.readouterr().err
    assert err.count("\n") == 1
    assert "warning: save: " in err
    assert "cannot be saved: Not a directory" in err
    second = json.loads((tmp_path / "rank0/run0/events.jsonl").read_text().splitlines()[1])
    assert second["file"].startswith("000012.1/")


# --- Calls --------------------------------------------------------------------------------------


@pytest.mark.parametrize("last", [0, 2])
def test_calls_are_chosen_and_named_as_in_python(both: Callable[..., Both], last: int) -> None:
    """`Both` has begun call 0 already."""
    rows = [row_of(before=[["in", "x"]], after=[["in", "x"], ["out", "z"]])]
    changes = {"calls": "1,3-5,8-", "last": last, "label": "forward"}
    pair = both("names", "print", "hash", "save", rows=rows, **changes)

    def act(runtime: Any) -> None:
        for number in range(10):
            x = torch.full((2,), float(number))
            runtime.before(12, x)
            runtime.after(12, x + (number == 4), x)
            runtime.begin()

    expected, found = pair.each(act)
    assert found == expected
    assert "[rewriter 0] forward call 3 #12 before triton_poi_fused_0\n" in found
    assert found.count("forward call 4 #12 after  triton_poi_fused_0  in x  f32[2]") == 1
    assert found.count("  in x") == 6 + 1
    for runtime in (pair.python, pair.native):
        runtime.begin()  # the call before is over then
    kept = [1, 3, 4, 5, 8, 9, 10, 11] if not last else [9, 10, 11]
    for dump in pair.dumps:
        runs = {path.name: path for path in (dump / "rank0").iterdir()}
        assert set(runs) == {f"run{number}" for number in kept}
        for number in kept:
            facts = json.loads((runs[f"run{number}"] / "run.json").read_text())
            assert (facts["call"], facts["label"]) == (number, "forward")


def test_dumps_rotate_as_in_python(
    both: Callable[..., Both], monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    """By the number of calls, by bytes, and not while somebody reads; without rotation rows have a
    limit."""

    def record(pair: Both, count: int) -> None:
        for number in range(count):
            for runtime in (pair.python, pair.native):
                runtime.after(12, torch.full((1000,), float(number)))
                runtime.begin()
        settle()

    def runs(dump: Path) -> list[int]:
        assert all(path.name.startswith("run") for path in (dump / "rank0").iterdir())
        return sorted(int(path.name[3:]) for path in (dump / "rank0").iterdir())

    rows = [row_of(after=[["out", "z"]])]
    capfd.readouterr()
    pair = both("hash", rows=rows, max_bytes="4K")
    record(pair, 20)
    error = capfd.readouterr().err
    assert error.count("\n") == error.count("--max-bytes: the rows have 4000 bytes; no more") == 2
    for dump in pair.dumps:
        assert 2 < len(runs(dump)) < 12
        shutil.rmtree(dump)

    monkeypatch.setenv("REWRITER_KEEP", "3")
    pair = both("hash", rows=rows)
    for dump in pair.dumps:
        (dump / "rank0/.gone.1.run0").mkdir(parents=True)
    record(pair, 6)
    assert [runs(dump) for dump in pair.dumps] == [[3, 4, 5, 6]] * 2  # the last one is open
    opened = [open_dump(dump) for dump in pair.dumps]
    record(pair, 2)
    assert [runs(dump) for dump in pair.dumps] == [[3, 4, 5, 6, 7, 8]] * 2
    del opened
    record(pair, 1)
    assert [runs(dump) for dump in pair.dumps] == [[6, 7, 8, 9]] * 2

    for dump in pair.dumps:
        shutil.rmtree(dump)
    monkeypatch.setenv("REWRITER_KEEP", "1000")
    pair = both("save", rows=rows, max_bytes="50K")
    record(pair, 20)
    for dump in pair.dumps:
        kept = runs(dump)
        assert 3 < len(kept) < 12
        assert kept == list(range(21 - len(kept), 21))
        assert sum(x.stat().st_size for x in dump.rglob("*") if x.is_file()) < 52_000
        assert list((dump / "rank0/run19").rglob("*.pt"))
        shutil.rmtree(dump)

    monkeypatch.setenv("REWRITER_KEEP", "few")
    pair = both("hash", rows=rows)
    record(pair, 1)
    assert capfd.readouterr().err.count("REWRITER_KEEP: 'few' is no number of calls") == 2


@pytest.mark.parametrize(
    "count", [2000, pytest.param(1_000_000, marks=pytest.mark.exhaustive, id="a million")]
)
@pytest.mark.parametrize("probe", ["hash", "record"])
def test_a_long_run_stays_as_it_is(
    library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch, count: int, probe: str
) -> None:
    """Memory and open files do not grow, and the dump has five calls, or the ring."""

    def taken() -> tuple[int, int]:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir("/proc/self/fd"))

    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        dump = Path(folder, "dump")
        monkeypatch.setenv("REWRITER_DUMP", str(dump))
        monkeypatch.setenv("REWRITER_QUIET", "1")
        monkeypatch.setenv("REWRITER_RECORD_BYTES", "64Ki")
        kept = {"last": 5, "max_bytes": "1M"} if probe == "hash" else {"on": ["nan", "spike:9x"]}
        options = options_of(probe, "print", **kept)
        native = Native(library, options, [row_of(after=[["out", "z"]])])
        value = torch.zeros(16)
        memory = files = 0
        for number in range(count):
            native.begin()
            native.after(12, value)
            if number == max(1000, count // 10):
                memory, files = taken()
        native.end()
        settle()
        found = taken()
        assert found[0] - memory < 8 << 20
        assert found[1] <= files
        if probe == "record":
            parts = [path for path in dump.rglob("*") if path.is_file()]
            assert sum(path.stat().st_size for path in parts) < 100_000
            return
        # Rows may come a little later than the call that they are of.
        deadline = time.monotonic() + 30
        while len(os.listdir(dump / "rank0")) > 5 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(os.listdir(dump / "rank0")) == 5


def test_equal_bytes_are_stored_once(both: Callable[..., Both]) -> None:
    """In either runtime, and what has the same bytes in another shape is another file."""
    pair = both("save", rows=[row_of(before=[["in", "x"]], after=[["in", "x"], ["out", "z"]])])
    x = torch.randn(3, 5)
    for runtime in (pair.python, pair.native):
        for number in range(3):
            runtime.before(12, x)
            runtime.after(12, x, x.view(5, 3) + (number == 2))
            runtime.begin()
    pair.finish()
    for dump in pair.dumps:
        files = sorted(dump.rglob("*.pt"))
        assert len(files) == 9
        assert len({path.stat().st_ino for path in files}) == 3
        for path in files:
            found = torch.load(path, weights_only=True)
            assert torch.equal(found, x) if "x0" in path.name or "_x_" in path.name else True
        changed = torch.load(next(dump.glob("rank0/run2/*/after*_z_*")), weights_only=True)
        assert torch.equal(changed, x.view(5, 3) + 1)


@pytest.mark.parametrize("text", ["two", "3-2", "1,", "-1", "9" * 16])
def test_calls_that_are_none_leave_no_probes(
    both: Callable[..., Both], monkeypatch: pytest.MonkeyPatch, capfd: Any, text: str
) -> None:
    monkeypatch.setenv("REWRITER_CALLS", text)
    pair = both("print")
    pair.each(lambda runtime: runtime.before(12, torch.ones(2)))
    assert not any(dump.exists() for dump in pair.dumps)


# --- Text ---------------------------------------------------------------------------------------


def test_upstream_format_is_what_the_shim_prints(
    upstream: ctypes.CDLL, capfd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    native = Native(upstream, options_of("names", "print", format="upstream"), [row_of()])
    native.begin()
    native.before(12)
    assert capfd.readouterr().out == "[ before_launch: triton_poi_fused_0 ]\n"
    generator = torch.Generator().manual_seed(0)
    tensors = [
        torch.randn(4, 8, generator=generator),
        torch.randn(2, 3, 4, 2, generator=generator),
        torch.randn(3, generator=generator) * 1e6,
        torch.randn(3, 4, generator=generator) * 1e-9,
        torch.tensor([1.0, 1e9, 1e-9]),
        torch.tensor([1.5, -1e6]),
        torch.tensor([-1e6, 1.5]),
        torch.tensor([-1e6, 1.5e5, 2e5]),
        torch.rand(3, 21, generator=generator),
        torch.rand(2, 2, 12, generator=generator),
        torch.rand(2, 2, 3, generator=generator) * 1e-7,
        torch.tensor([[1e6, 2.5e6], [3.0e6, 1.25e6]]),
        torch.tensor([math.nan, math.inf, 1.5]),
        torch.tensor([math.nan]),
        torch.tensor([1e300], dtype=torch.float64),
        torch.arange(64).view(2, 32),
        torch.arange(64).view(2, 32) / 7,
        torch.arange(60).view(3, 4, 5),
        torch.tensor([1e12, 3.0]),
        torch.tensor(2.5),
        torch.tensor(True),
        torch.ones(65, dtype=torch.bfloat16),
        torch.ones(3, 2, dtype=torch.float16).t(),
        torch.zeros(2, 2, dtype=torch.uint8),
        torch.zeros(0, 3),
        torch.zeros(0),
        torch.ones(2, dtype=torch.float8_e4m3fn),
        torch.ones(3, dtype=torch.uint16),
    ]
    for tensor in tensors:
        handle = ctypes.c_void_p(handle_of(tensor))
        message = b"before_launch - triton_poi_fused_0 - view(x0, 2L)"
        upstream.aoti_torch_print_tensor_handle(handle, message)
        ctypes.CDLL(None).fflush(None)
        expected = capfd.readouterr().out.splitlines()
        native.before(12, tensor)
        found = capfd.readouterr().out.splitlines()
        # Their mean is rounded, and with a NaN all of theirs are NaN.
        ours = "Mean value: " if tensor.float().isfinite().all() else " value: "
        expected, found = (
            [line for line in lines if ours not in line] for lines in (expected, found)
        )
        assert found[1:] == expected
    native.end()


def test_scalars_in_upstream_format(upstream: ctypes.CDLL, capfd: Any) -> None:
    row = row_of(before=[["in", "6L"], ["in", "x"]])
    native = Native(upstream, options_of("print", format="upstream"), [row], [["in", "arg0_1"]])
    native.begin()
    native.before(12, 6, 0.5)
    native.inputs(torch.ones(2))
    native.end()
    lines = capfd.readouterr().out.splitlines()
    assert lines[:3] == [
        "[  before_launch - triton_poi_fused_0 - 6L: 6  ]",
        "[  before_launch - triton_poi_fused_0 - x: 0.5  ]",
        "[  aoti_model_inputs - arg0_1  ]:",
    ]
    assert lines[-1] == ""


def test_when_and_iterations(both: Callable[..., Both]) -> None:
    runtimes = both("names", "print", when="after", rows=[row_of(), row_of(13, repeats=True)])
    for launch, act in itertools.product((12, 13, 12), ("before", "after")):
        runtimes.check_said(
            lambda runtime, launch=launch, act=act: getattr(runtime, act)(launch, torch.ones(1))
        )
    python, native = runtimes.rows()
    assert [row["phase"] for row in native] == [row["phase"] for row in python]


def test_sync_writes_what_comes_before_and_prints_nothing(both: Callable[..., Both]) -> None:
    runtimes = both("sync")
    runtimes.check_said(lambda runtime: runtime.before(12, torch.ones(3)))
    python, native = runtimes.rows()
    assert python == native
    assert [(row["arg"], row["max"]) for row in native] == [("x0", 1.0)]
    runtimes.check_said(lambda runtime: runtime.after(12, torch.ones(3)))
    runtimes.check_rows()
    assert "error" not in str(runtimes.rows())


@pytest.mark.parametrize("when", ["before", "after"])
def test_times_are_measured_whatever_the_side(when: str, both: Callable[..., Both]) -> None:
    runtimes = both("time", when=when)
    x = torch.ones(3)
    runtimes.each(lambda runtime: (runtime.before(12, x), runtime.after(12, x)))
    for rows in runtimes.rows():
        assert [row["time"]["clock"] for row in rows if "time" in row] == ["host"]


def test_times_are_rows_of_their_own(both: Callable[..., Both]) -> None:
    runtimes = both("names", "print", "time", rows=[row_of(), row_of(13, repeats=True)])
    said = runtimes.each(
        lambda runtime: [
            (runtime.before(launch, torch.ones(3)), runtime.after(launch, torch.ones(3)))
            for launch in (12, 13, 13)
        ]
    )
    numbers = re.compile(r"\d+\.\d us")
    assert numbers.sub("T us", said[0]) == numbers.sub("T us", said[1])
    assert re.findall(r"^.* us$", numbers.sub("T us", said[1]), re.MULTILINE) == [
        "[rewriter 0] #12 triton_poi_fused_0  T us",
        "[rewriter 0] #13 triton_poi_fused_0  T us",
        "[rewriter 0] #13.1 triton_poi_fused_0  T us",
    ]
    python, native = runtimes.rows()
    for row in (*python, *native):
        if "time" in row:
            time = row["time"]
            assert list(time) == ["start_us", "duration_us", "clock"]
            assert 0 <= time["duration_us"] < 1e6
            assert 0 < time["start_us"] < 1e9
            row["time"] = {"clock": time["clock"]}
    assert python == native
    times = [(row["launch"], row.get("iteration")) for row in native if "time" in row]
    assert times == [(12, None), (13, 0), (13, 1)]
    assert all(
        row.keys() <= {"launch", "phase", "kernel", "iteration", "time"}
        for row in native
        if "time" in row
    )


def test_times_of_one_phase_are_none(both: Callable[..., Both]) -> None:
    runtimes = both("time", when="after")
    runtimes.check_said(lambda runtime: runtime.after(12, torch.ones(3)))
    assert "time" not in str(runtimes.rows())


def test_quiet_prints_nothing_and_dumps_everything(
    both: Callable[..., Both], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REWRITER_QUIET", "1")
    runtimes = both("hash", "names", "print", "sync", "time", values=True)

    def act(runtime: Any) -> None:
        runtime.before(12, torch.ones(3))
        runtime.after(12, torch.ones(3))

    assert runtimes.each(act) == ("", "")
    for rows in runtimes.rows():
        assert [(row["phase"], "fingerprint" in row, "time" in row) for row in rows] == [
            ("before", True, False),
            ("after", False, True),
            ("after", True, False),
        ]


@pytest.mark.parametrize(
    ("rank", "local", "directory"),
    [
        ("", "", 0),
        ("x", "2", 0),
        ("\u0663", "2", 0),
        ("9" * 5000, "2", 0),
        ("", "2", 2),
        ("3", "2", 3),
    ],
    ids=["neither", "no number", "digits of another script", "huge", "only the local one", "both"],
)
def test_ranks(
    rank: str, local: str, directory: int, both: Callable[..., Both], monkeypatch: Any
) -> None:
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("LOCAL_RANK", local)
    runtimes = both("names")
    said = runtimes.each(lambda runtime: runtime.before(12))
    assert said == (f"[rewriter {directory}] #12 before triton_poi_fused_0\n",) * 2
    for dump in runtimes.dumps:
        assert [path.name for path in dump.glob("rank*")] == [f"rank{directory}"]


# --- Around a program ---------------------------------------------------------------------------

SCRIPT = """
import os, pathlib, sys
sys.path[:0] = sys.argv[1].split(os.pathsep)
from test_cpp_runtime import Native, load, options_of, row_of
native = Native(load(pathlib.Path(sys.argv[2])), options_of("names"), [row_of()])
native.begin()
native.before(12)
"""


def run_script(built: Callable[..., Path], more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", SCRIPT + more, FOLDERS, str(built())],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=HERE.parents[1],
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
    )


def test_the_last_name_survives_an_abort(built: Callable[..., Path]) -> None:
    ran = run_script(built, "os.abort()")
    assert ran.returncode < 0
    assert ran.stdout == "[rewriter 0] #12 before triton_poi_fused_0\n"


# What the runtime asks of a driver, without one: the wait for the device whose number is in
# FAULT fails, and CAPTURE says that the stream is captured.
DRIVER_OF_CUDA = """
#include <stdlib.h>
static int waits, clock_of;
int cuCtxGetCurrent(void** context) { *context = &waits; return 0; }
int cuCtxSynchronize(void) {
  const char* at = getenv("FAULT");
  return ++waits == (at ? atoi(at) : 0) ? 700 : 0;
}
int cuGetErrorString(int code, const char** text) {
  *text = code == 700 ? "an illegal memory access was encountered" : "another";
  return 0;
}
int cuStreamIsCapturing(void* stream, int* state) { *state = !!getenv("CAPTURE"); return 0; }
int events_alive, most_alive;
int cuEventCreate(int** event, unsigned flags) {
  *event = malloc(sizeof(int));
  if (++events_alive > most_alive) most_alive = events_alive;
  return 0;
}
int cuEventRecord(int* event, void* stream) { *event = ++clock_of; return 0; }
int cuEventSynchronize(int* event) { return 0; }
int cuEventElapsedTime(float* ms, int* from, int* to) { *ms = *to - *from; return 0; }
int cuEventDestroy_v2(int* event) { --events_alive; free(event); return 0; }
int aoti_torch_get_current_cuda_stream(int device, void** stream) { *stream = 0; return 0; }
"""
ON_A_DEVICE = """
import os, pathlib, sys, torch
sys.path[:0] = sys.argv[1].split(os.pathsep)
from test_cpp_runtime import *
ctypes.CDLL(sys.argv[3], mode=ctypes.RTLD_GLOBAL)
native = Native(load(pathlib.Path(sys.argv[2])), options_of(*sys.argv[4].split(",")), [row_of()])
native.begin()
for _ in range(3):
    native.before(12, torch.ones(2))
    native.after(12, torch.ones(2))
native.end()
"""


@pytest.fixture
def on_a_device(built: Callable[..., Path], tmp_path: Path) -> Callable[..., Any]:
    """Run three launches on a stand-in for a device; what was said and the rows of the dump."""
    source, driver = tmp_path / "cuda.c", tmp_path / "libcuda.so.1"
    source.write_text(DRIVER_OF_CUDA)
    command = ["gcc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", str(driver)]
    subprocess.run([*command, str(source)], check=True)

    def run(names: str, **environment: str) -> tuple[str, str, list[dict[str, Any]]]:
        ran = subprocess.run(
            [sys.executable, "-c", ON_A_DEVICE, FOLDERS, str(built()), str(driver), names],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=HERE.parents[1],
            env={**os.environ, "REWRITER_DUMP": str(tmp_path / "dump"), **environment},
        )
        assert ran.returncode == 0, ran.stderr
        rows = (tmp_path / "dump/rank0/run0/events.jsonl").read_text().splitlines()
        return ran.stdout, ran.stderr, [json.loads(row) for row in rows]

    return run


@pytest.mark.parametrize(
    ("wait", "place", "phase"), [("4", ".1", "after"), ("3", ".1", "before"), ("1", "", "before")]
)
def test_a_fault_of_the_device_ends_the_record(
    wait: str, place: str, phase: str, on_a_device: Callable[..., Any]
) -> None:
    out, err, rows = on_a_device("names,print,sync", FAULT=wait)
    error = "CUDA error: an illegal memory access was encountered"
    earlier = " (of something before this launch)" if phase == "before" else ""
    assert err == f"[rewriter 0] #12{place} triton_poi_fused_0: {error}{earlier}\n"
    assert [row for row in rows if "error" in row] == rows[-1:]
    iteration = {"iteration": 1} if place else {}
    about = {"launch": 12, "phase": phase, "kernel": "triton_poi_fused_0"}
    assert rows[-1] == {**about, **iteration, "error": error}
    names = [line for line in out.splitlines() if "f32" not in line]
    assert names[-1] == f"[rewriter 0] #12{place} before triton_poi_fused_0"


def test_events_of_the_device_time_launches(on_a_device: Callable[..., Any]) -> None:
    _, err, rows = on_a_device("time")
    assert err == ""
    times = [row["time"] for row in rows if "time" in row]
    assert [time["clock"] for time in times] == ["cuda"] * 3
    assert [time["duration_us"] for time in times] == [1000.0] * 3
    starts = [time["start_us"] - times[0]["start_us"] for time in times]
    assert starts == pytest.approx([0, 2000, 4000], abs=0.01)
    # They are read when the call is over.
    assert ["time" in row for row in rows] == [False] * 6 + [True] * 3


def test_events_of_the_device_go_with_the_call(
    on_a_device: Callable[..., Any], built: Callable[..., Path], tmp_path: Path
) -> None:
    """Also in a loop: only so many wait to be read."""
    more = """
native.begin()
for _ in range(5000):
    native.before(12)
    native.after(12)
native.end()
cuda = ctypes.CDLL(sys.argv[3])
alive, most = (ctypes.c_int.in_dll(cuda, name).value for name in ("events_alive", "most_alive"))
sys.exit(f"{alive} {most}")
"""
    driver = str(tmp_path / "libcuda.so.1")
    ran = subprocess.run(
        [sys.executable, "-c", ON_A_DEVICE + more, FOLDERS, str(built()), driver, "time"],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=HERE.parents[1],
    )
    assert ran.stderr.strip() == f"0 {2 * 4096}"


def test_nothing_waits_while_a_graph_is_captured(on_a_device: Callable[..., Any]) -> None:
    out, err, rows = on_a_device("names,sync,time", CAPTURE="1", FAULT="1")
    assert out.count("\n") == 3
    assert len(rows) == 6
    assert not any("time" in row or "error" in row for row in rows)
    assert sorted(line.split(": ")[2].split()[0] for line in err.splitlines()) == [
        "launches",
        "names",
        "sync",
    ]


def test_a_process_that_loads_data_is_not_probed(built: Callable[..., Path]) -> None:
    """Torch names its thread, also where it was spawned and not forked."""
    ran = run_script(
        built,
        "ctypes = __import__('ctypes')\n"
        "ctypes.CDLL(None).prctl(15, b'pt_data_worker', 0, 0, 0)\n"
        "native.begin()\n"
        "native.before(12)\n",
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == "[rewriter 0] #12 before triton_poi_fused_0\n"


def test_a_fork_is_not_probed(built: Callable[..., Path]) -> None:
    ran = run_script(
        built,
        "if not os.fork():\n"
        "    for _ in range(3): native.before(12)\n"
        "    native.begin()\n"
        "    native.before(12)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "native.before(12)\n",
    )
    assert ran.returncode == 0
    assert ran.stdout.splitlines() == [
        "[rewriter 0] #12 before triton_poi_fused_0",
        "[rewriter 0] #12.1 before triton_poi_fused_0",
    ]
    assert ran.stderr.count("this process is a fork of the one that is probed, and is not") == 1


def test_lines_of_threads_do_not_interleave(library: ctypes.CDLL, capfd: Any) -> None:
    rows = [row_of(before=[["in", name] for name in "abcd"])]
    wrappers = [Native(library, options_of("print", values=True), rows) for _ in range(2)]
    tensors = [torch.arange(100.0) for _ in range(4)]

    def work(native: Native) -> None:
        native.begin()
        for _ in range(200):
            native.before(12, *tensors)
        native.end()

    threads = [threading.Thread(target=work, args=(native,)) for native in wrappers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) == 2 * 200 * 8
    names = [re.search(r"in (\w)  f32\[100\]", line) for line in lines[::2]]
    assert "".join(name[1] for name in names if name) == "abcd" * 400
    assert len(set(lines[1::2])) == 1


def test_off_does_nothing(
    library: ctypes.CDLL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    monkeypatch.setenv("REWRITER_PROBE", "Off")
    monkeypatch.chdir(tmp_path)
    native = Native(library, options_of(*PROBES), [row_of()], [["in", "x"]])
    native.begin()
    native.inputs(torch.ones(1))
    native.before(12, torch.ones(1))
    native.end()
    assert capfd.readouterr() == ("", "")
    assert not list(tmp_path.iterdir())


def test_defaults_of_the_dump(
    library: ctypes.CDLL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for names in (["names", "print"], ["save"]):
        native = Native(library, options_of(*names), [row_of()])
        native.begin()
        native.end()
        assert (tmp_path / "rewriter_dump").exists() == ("save" in names)
    command = json.loads((tmp_path / "rewriter_dump/manifest.json").read_text())["command"]
    assert Path(sys.executable).name in command


def test_a_table_in_the_source_and_a_call_that_unwinds(
    library: ctypes.CDLL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    library.test_static()
    assert capfd.readouterr().out == "[rewriter 0] #3 before static_kernel\n"
    monkeypatch.setenv("REWRITER_DUMP", str(tmp_path))
    native = Native(library, options_of("names"), [row_of(3)])
    library.test_throw(ctypes.c_void_p(native.wrapper))
    assert (tmp_path / "rank0/run0/events.jsonl").read_text().count("\n") == 1


def test_grad_mode_and_the_tensor_stay(library: ctypes.CDLL, capfd: Any) -> None:
    native = Native(library, options_of("print", values=True), [row_of()])
    native.begin()
    tensor = torch.tensor([1 + 2j, 3.0], requires_grad=True)
    with torch.enable_grad():
        native.before(12, tensor)
        assert torch.is_grad_enabled()
    assert tensor._version == 0
    native.end()
    assert "[(1+2j), (3+0j)]" in capfd.readouterr().out


# --- What is not finite -------------------------------------------------------------------------

HALF = (torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)


@pytest.mark.parametrize("dtype", [*HALF, torch.float32, torch.complex64, torch.int32])
def test_what_is_not_well_is_said_alike(dtype: torch.dtype, both: Callable[..., Both]) -> None:
    runtimes = both("nan", args="written")
    tensors = shapes_of(tensor_of(dtype, 9000))
    tensors += [torch.zeros(9).to(dtype), torch.full((9,), math.nan).to(dtype)]
    for tensor in tensors:
        runtimes.check_said(lambda runtime, tensor=tensor: runtime.after(12, tensor))
    runtimes.check_rows()
    for row, tensor in zip(runtimes.rows()[1], tensors, strict=True):
        assert row.get("near_limit", 0) == sum(
            is_near_limit(value, dtype)
            for value in decode(contents(tensor), dtype)
            if math.isfinite(value)
        )


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
from test_cpp_runtime import Native, load, options_of, row_of

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


@pytest.mark.parametrize("probes", ["nan", "nan,save"])
@pytest.mark.parametrize("language", ["python", "cpp"])
def test_a_nan_ends_the_program(
    language: str, probes: str, built: Callable[..., Path], tmp_path: Path
) -> None:
    environment = {**os.environ, "REWRITER_DUMP": str(tmp_path / "x"), "PYTHONPATH": FOLDERS}
    ran = subprocess.run(
        [sys.executable, "-c", STOPS, language, str(built()), probes],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 1
    assert "of the program" in ran.stdout
    assert "not reached" not in ran.stdout
    assert "+inf 1 of 2" in ran.stdout
    stopped = "stopped at #12 triton_poi_fused_0: 1 of 3 elements of buf1 are NaN (--stop)"
    assert ran.stderr == f"[rewriter 0] {stopped}\n"
    rows = (tmp_path / "x/rank0/run0/events.jsonl").read_text().splitlines()
    assert [json.loads(row)["nan"] for row in rows] == [0, 1, 0, 1]
    for row in rows:
        file = json.loads(row).get("file")
        assert (file is not None) == ("save" in probes)
        assert file is None or (tmp_path / "x/rank0/run0" / file).is_file()
    found = json.loads((tmp_path / "x/stopped.json").read_text())
    assert (found["run"], found["launch"], found["arg"]) == ("rank0/run0", 12, "buf1")
    dump_schemas.check(tmp_path / "x")


# --- Memory -------------------------------------------------------------------------------------

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


def test_memory_that_was_given_back_is_kept_for_a_while(both: Callable[..., Both]) -> None:
    pair = both("bounds", "stale", memory=MEMORY)
    for runtime in (pair.python, pair.native):
        tensor = runtime.allocated(7, torch.empty(16))
        address = tensor.data_ptr()
        runtime.released(8, tensor)
        del tensor
        others = [torch.zeros(size) for size in [16, 2064, 2128, 2192] for _ in range(20)]
        stale = patterns.pattern("stale", 0, "float32") * 8
        assert ctypes.string_at(address, 64) == stale
        del others


def test_a_band_of_no_bytes_is_none(
    both: Callable[..., Both], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REWRITER_GUARD", "0")
    pair = both("bounds", memory=MEMORY)

    def act(runtime: Any) -> None:
        runtime.allocated(7, torch.empty(16))
        runtime.checked(12)
        runtime.begin()

    pair.each(act)
    (row,) = _memory_rows(pair)
    assert (row["done"], row["why"]) == (0, {"REWRITER_GUARD is 0": 1})


@pytest.mark.parametrize(
    ("fill", "guard"), [("", ""), ("bounds=1, poison=0", "1"), ("2", "x"), ("stale", "4097")]
)
def test_fills_and_guards_are_read_as_in_python(
    fill: str, guard: str, both: Callable[..., Both], monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    monkeypatch.setenv("REWRITER_FILL", fill)
    monkeypatch.setenv("REWRITER_GUARD", guard)
    pair = both("bounds", "poison", memory=MEMORY)
    said = []
    for runtime in (pair.python, pair.native):
        tensor = runtime.allocated(7, torch.empty(16))
        start = ctypes.string_at(tensor.data_ptr() - 512, 512 + 64 + 512)
        runtime.checked(12)
        said.append((start, capfd.readouterr().err))
    size = {"": 4096, "1": 512, "x": 4096, "4097": 4608}[guard]
    assert said[0][0] == said[1][0]
    edge = patterns.pattern("bounds", int(fill.startswith("bounds")), "float32")
    assert ctypes.string_at(tensor.data_ptr() - size, size) == edge * (size // 8)
    python, native = (err.replace("; fill 0 is used", "") for _, err in said)
    if "expected" not in fill + guard:
        assert native in (python, "")  # what was attached warned before it was captured


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


# --- The text itself ----------------------------------------------------------------------------

SUBSETS = [
    *(("text", (name,)) for name in PROBES),
    *(("upstream", two) for two in itertools.combinations(("names", "print", "save"), 2)),
    ("text", PROBES),
    ("upstream", PROBES),
]


def calls_of(number: int) -> str:
    """A wrapper's table, and a function that calls what its lines call."""
    return (
        "\nnamespace { namespace inductor_rewriter {\n"
        'const Options options{"a", "b", "c", "names", "", "text", false, "", nullptr, '
        'true, "", "", 0, "all", false, "", nullptr, false, nullptr};\n'
        'const Row rows[] = {{1, "k", "cpp", "s", 2, "", "", false, nullptr, nullptr, "", '
        "nullptr}};\n"
        "Wrapper wrapper(options, rows, sizeof rows / sizeof *rows, nullptr);\n"
        "}}\n"
        f"void run{number}(AtenTensorHandle x) {{\n"
        "  inductor_rewriter::Call _rw(inductor_rewriter::wrapper);\n"
        "  _rw.before(1);\n"
        "  static const int64_t sizes[] = {1};\n"
        '  _rw.after(1, x, _rw.view(x, 1, sizes, sizes, 0L), 5L, 2.5f, true, nullptr, "text");\n'
        "}\n"
    )


def check_syntax(
    folder: Path, whole: str, bodies: str, standard: str, ways: Sequence[str] = ("whole", "apart")
) -> None:
    """The compiler takes a text in one piece, and with the bodies apart."""
    (folder / "text.cpp").write_text(whole)
    (folder / "apart.cpp").write_text(bodies)
    source, other = str(folder / "text.cpp"), str(folder / "apart.cpp")
    command = ["g++", standard, "-fsyntax-only", *STRICT, *HEADERS]
    if "whole" in ways:
        subprocess.run([*command, source], check=True)
    if "apart" in ways:
        subprocess.run([*command, "-DINDUCTOR_REWRITER_APART", source, other], check=True)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("format", "subset"), SUBSETS, ids=["-".join([format, *names]) for format, names in SUBSETS]
)
def test_every_set_of_probes_compiles_alone(
    format: str, subset: tuple[str, ...], tmp_path: Path
) -> None:
    standard = "-std=c++20" if format == "upstream" else "-std=c++17"
    check_syntax(tmp_path, text(subset, format) + calls_of(0), apart(subset, format), standard)


@pytest.mark.parametrize(
    ("way", "probes"),
    [
        ("whole", INCLUDING),
        pytest.param("whole", PROBES, marks=pytest.mark.exhaustive),
        pytest.param("apart", PROBES, marks=pytest.mark.exhaustive),
    ],
    ids=["whole", "whole, all", "apart, all"],
)
def test_every_probe_compiles_without_the_others(
    way: str, probes: tuple[str, ...], tmp_path: Path
) -> None:
    """Each in a namespace of its own, of one file: torch's headers are read once. Every second one
    has upstream's format.
    """
    wholes, bodies = [], []
    for number, name in enumerate(probes):
        names = ("inductor_rewriter", "inductor_rewriter_apart")
        begin = "".join(f"#define {one} {one}_{number}\n" for one in names)
        end = "".join(f"#undef {one}\n" for one in names)
        format = "upstream" if number % 2 else "text"
        wholes.append(f"{begin}{text([name], format)}{calls_of(number)}{end}")
        bodies.append(f"{begin}{apart([name], format)}{end}")
    check_syntax(tmp_path, "".join(wholes), "".join(bodies), "-std=c++17", [way])


def test_a_text_holds_only_what_its_probes_need() -> None:
    hashed, names, printed, saved, timed = (
        text([name], "text") for name in ("hash", "names", "print", "save", "time")
    )
    for one in (hashed, names, printed, saved, timed):
        assert "class MemoryOfWrapper" not in one
    assert "measure_on_cpu" not in timed
    assert "class Sha256" not in names
    assert "class Sha256" not in printed
    assert "class Sha256" not in hashed
    assert "class Saver" not in hashed
    assert "measure_on_cpu" not in names
    assert "class Saver" not in names
    assert "measure_on_cpu" in printed
    assert "class Saver" not in printed
    assert "class Saver" in saved
    wholes = [text(PROBES, "text"), text(PROBES, "upstream")]
    dormant = text(PROBES, "text", is_dormant=True)
    for name in SOURCES.rglob("*.h"):
        if name.parent.name == "engine" and name.name in ONLY_FOR_PYTHON:
            continue
        first = name.read_text().splitlines()[0]
        found = [whole.count(first + "\n") for whole in wholes]
        if name.parent.name == "formats":
            assert found == [name.stem == "text", name.stem == "upstream"]
        elif name.parent.name == "engine":  # Python alone has some of them
            assert found in ([0, 0], [1, 1])
        elif name.name in FOR_DORMANT:
            assert [*found, dormant.count(first + "\n")] == [0, 0, 1]
        else:
            assert found == [1, 1]
    for whole in wholes:
        assert '#include "' not in whole
        assert "#pragma once" not in whole
    assert "class Columns" not in wholes[0]
    assert "class Columns" not in text(["names", "save"], "upstream")


def test_a_text_can_stand_in_a_string_of_python() -> None:
    for format in ("text", "upstream"):
        whole = text(PROBES, format)
        assert whole.isascii()
        assert "'''" not in whole
        assert '"""' not in whole


# --- Compiled apart -----------------------------------------------------------------------------


@pytest.mark.exhaustive
def test_both_ways_of_compiling_do_the_same(
    built: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    monkeypatch.setenv("REWRITER_COMMAND", "run")
    types = [["in", f"v{i}"] for i in range(16)]
    rows = [row_of(), row_of(13, before=types, repeats=True)]
    tensor = torch.arange(100.0).view(4, 25)
    handle = handle_of(tensor)
    seen = []
    # Both are in this process at once, and neither may take the other's functions.
    # Copies, of which no other test has made a call: those are counted.
    paths = [built("inductor"), built()]
    libraries = [load(shutil.copy(path, tmp_path / f"{i}.so")) for i, path in enumerate(paths)]
    for number, library in enumerate(libraries):
        dump = tmp_path / str(number)
        monkeypatch.setenv("REWRITER_DUMP", str(dump))
        # Times differ, and `record` is not together with `save`.
        probes = [name for name in PROBES if name not in ("time", "record")]
        native = Native(library, options_of(*probes, values=True), rows, [["in", "a"]])
        for _ in range(2):
            native.begin()
            native.inputs(tensor)
            native.before(12, tensor)
            native.after(12, tensor.t()[::2])
            library.test_types(ctypes.c_void_p(native.call), 13, ctypes.c_void_p(handle))
            native.before(99)
            native.end()
        library.test_throw(ctypes.c_void_p(native.wrapper))
        library.test_static()
        files = {
            str(path.relative_to(dump)): re.sub(
                rb'"(pid|started)": [0-9.]+|(?<=\.)(\d{12})\d+', rb"\2", path.read_bytes()
            )
            for path in dump.rglob("*.*")
        }
        seen.append((capfd.readouterr(), files))
    library.aoti_torch_delete_tensor_object(ctypes.c_void_p(handle))
    assert seen[0] == seen[1]
    (out, err), files = seen[0]
    given = r"^\[rewriter 0\] (call \d )?inputs  in a  f32\[4, 25\]  cpu  min 0 max 99 "
    assert len(re.findall(given, out, re.MULTILINE)) == 4
    assert "#3 before static_kernel" in out
    assert err.count("the line and the table differ") == err.count("\n")
    assert sum(name.endswith(".pt") for name in files) > 10


@pytest.mark.parametrize("flags", ["fast", pytest.param("inductor", marks=pytest.mark.exhaustive)])
def test_nothing_of_it_is_visible_to_other_libraries(
    flags: str, built: Callable[..., Path]
) -> None:
    path = built(flags)
    for option in ("-gC", "-DC"):
        command = ["nm", option, "--defined-only", str(path)]
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert "test_begin" in shown
        assert not [line for line in shown.splitlines() if "inductor_rewriter" in line]


def test_a_wrapper_apart_holds_no_bodies(built: Callable[..., Path]) -> None:
    folder = built().parent
    command = ["nm", "-C", "--undefined-only", str(folder / "driver.o")]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    wanted = set(re.findall(r"::Call::(~?\w+)\(", shown))
    assert wanted == {"Call", "~Call", "checked", "keep", "released", "replace", "reused", "send"}
    assert " fopen" not in shown


def test_a_recording_is_the_same_in_both_languages(both: Callable[..., Both]) -> None:
    """The rows, and how far the call came: it began the launch a second time."""
    pair = both("record", rows=[row_of(before=[])], args="written", on=["nan", "inf"])

    def act(runtime: Any) -> None:
        for value in (1.0, math.nan):
            runtime.before(12)
            runtime.after(12, torch.full((5,), value))
        runtime.before(12)

    said = []
    for runtime in (pair.python, pair.native):
        pair.capture.readouterr()
        act(runtime)
        said.append(pair.capture.readouterr().err.strip())
    found = []
    for dump, line in zip(pair.dumps, said, strict=True):
        what = "nan: buf1 of #12 triton_poi_fused_0, call 0: 5 of 5 elements are NaN"
        (folder,) = (dump / "triggered").iterdir()
        assert line == f"[rewriter 0] record: {what}; the last launches are in {folder}"
        opened = open_dump(folder)
        assert opened.manifest.trigger == what
        assert [str(step) for step in opened.runs[0].steps] == ["#12", "#12.1"]
        (ring,) = dump.glob("record/*/ring")
        recording = read_ring(ring)
        assert recording is not None
        assert (recording.pid, recording.rank) == (os.getpid(), 0)
        (one,) = recording.calls
        assert one.thread == threading.get_ident()
        found.append((one.number, one.is_whole, one.rows, one.mark))
    assert found[0] == found[1]
    assert found[0][3] == Mark((12, 2), (12, 1))
    assert len(found[0][2]) == 2
    assert b'"nan": 5' in found[0][2][1]
    pair.finish()


def test_every_probe_has_a_file_in_both_languages() -> None:
    assert {path.stem for path in (SOURCES / "probes").glob("*.h")} == set(registry())
    assert set(PROBES) == set(registry())


@pytest.mark.parametrize("name", PROBES)
def test_a_probe_in_cpp_is_as_its_class_in_python_declares(name: str, library: ctypes.CDLL) -> None:
    probe = registry()[name]
    flags = ("spans", "of_results", "reads_values", "measures", "saves")
    facts = (probe.when, *(getattr(probe, flag) for flag in flags))
    library.test_probe.restype = ctypes.c_char_p
    when, *declared = library.test_probe(name.encode()).decode().split()
    assert (when, *(flag == "1" for flag in declared)) == facts


def test_the_gpu_kinds_are_those_of_the_grammar(library: ctypes.CDLL) -> None:
    library.test_is_gpu_kind.restype = ctypes.c_bool
    kinds = {kind for kind in vocabulary().kinds if library.test_is_gpu_kind(kind.encode())}
    assert kinds == vocabulary().gpu_kinds
    assert not library.test_is_gpu_kind(b"tritonless")


def test_the_probe_of_the_documents_works(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A probe in C++ is a new file in each language, and no other is touched."""
    for package in ("rewriter", "grammars"):
        shutil.copytree(ROOT / package, tmp_path / package)
    extending = page("docs/project/extending.md")
    sources = {"count.py": extending.code("python"), "count.h": extending.code("cpp")}
    for (name, (code,)), folder in zip(sources.items(), ("probes", "cpp/probes"), strict=True):
        (tmp_path / "rewriter/runtime" / folder / name).write_text(code, encoding="utf-8")
    bundled = subprocess.run(
        [sys.executable, "-c", BUNDLED],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    library = load(compile_sources(tmp_path, FLAGS["quick"], {"driver": bundled + driver()}))
    native = Native(library, options_of("count"), [row_of()])
    native.begin()
    native.before(12, torch.ones(5))
    native.after(12, torch.ones(3, 4))
    assert capfd.readouterr().out == "triton_poi_fused_0: 12\n"


# --- On a GPU -----------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
def test_gpu_tensors_read_and_saved_as_in_python(
    dtype: torch.dtype, both: Callable[..., Both]
) -> None:
    runtimes = both("hash", "print", "save", values=True)
    for tensor in shapes_of(tensor_of(dtype, 6000)):
        # A copy of its own, with the same strides.
        size = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
        flat = torch.zeros(max(size, 0) if tensor.numel() else 0, dtype=dtype)
        bits = flat.as_strided(tensor.shape, tensor.stride())
        if tensor.numel() and 0 not in tensor.stride():
            bits.copy_(tensor)
        there = flat.cuda().as_strided(tensor.shape, tensor.stride())
        runtimes.check_said(lambda runtime, there=there: runtime.after(12, there))
    runtimes.finish()
    runtimes.check_rows()
    for row in runtimes.rows()[1]:
        expected, found = (
            torch.load(dump / "rank0/run0" / row["file"], weights_only=True)
            for dump in runtimes.dumps
        )
        assert found.stride() == expected.stride()
        assert bits_of(found) == bits_of(expected)
        assert row["fingerprint"] == fingerprint(found)


@pytest.mark.gpu
def test_gpu_statistics_cost_no_memory_there_and_read_expanded_tensors_once(
    library: ctypes.CDLL, capfd: Any
) -> None:
    native = Native(library, options_of("print"), [row_of()])
    native.begin()
    whole = torch.arange(1 << 20, device="cuda", dtype=torch.float32).view(1024, 1024)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    native.before(12, whole.t())
    assert torch.cuda.max_memory_allocated() == before
    native.before(12, whole[:1].expand(1 << 20, 1024))
    assert torch.cuda.max_memory_allocated() - before < 1 << 20
    native.end()
    first, second = capfd.readouterr().out.splitlines()
    assert "f32[1024, 1024]  cuda:0  min 0 max 1.049e+06 mean 5.243e+05" in first
    assert "f32[1048576, 1024]  cuda:0  min 0 max 1023 mean 511.5 std 295.6" in second


@pytest.mark.gpu
def test_gpu_graphs_measure_in_both_languages_alike(both: Callable[..., Both], capfd: Any) -> None:
    """What replays wrote comes with the next call that is not captured."""
    torch.cuda.init()  # type: ignore[no-untyped-call]  # as it is where a wrapper is called
    pair = both("print", rows=[row_of(after=[["out", "buf1"], ["out", "buf2"]])])
    for runtime in (pair.python, pair.native):
        x = torch.ones(1000, device="cuda")
        wide = torch.ones(64, 1 << 10, device="cuda")[:, ::3]
        runtime.after(12, x, wide)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            runtime.begin()
            runtime.after(12, x.mul_(2), wide.add_(1))
        for _ in range(2):
            graph.replay()
        runtime.begin()
        graph.replay()
        runtime.begin()
        runtime.begin()  # nothing new
    drain_queue()
    pair.finish()
    captured = []
    for dump in pair.dumps:
        rows = [
            json.loads(line)
            for file in sorted(dump.glob("rank0/run*/events.jsonl"))
            for line in file.read_text().splitlines()
        ]
        captured.append([row for row in rows if row.get("captured")])
    first, second = captured
    assert [row["max"] for row in second] == [4.0, 3.0, 8.0, 4.0]
    assert [row["max"] for row in second if row["arg"] == "buf2"] == [3.0, 4.0]
    for expected, found in zip(first, second, strict=True):
        same(expected, found)
    assert "warning" not in capfd.readouterr().err


@pytest.mark.gpu
def test_gpu_probes_that_copy_decline_within_a_graph(library: ctypes.CDLL, capfd: Any) -> None:
    native = Native(library, options_of("names", "print", "hash"), [row_of()])
    native.begin()
    x = torch.ones(8, device="cuda")
    native.before(12, x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x + 1
        native.before(12, y)
        native.before(12, y)
        z = y * 2
    graph.replay()
    torch.cuda.synchronize()
    assert z.tolist() == [4.0] * 8
    native.end()
    out, err = capfd.readouterr()
    assert err.count("hash cannot copy to the host while a CUDA graph is being captured") == 1
    assert [line.partition(" max ")[2][:1] for line in out.splitlines() if " max " in line] == [
        "1",
        "2",
        "2",
    ]


@pytest.mark.gpu
def test_gpu_values_of_a_graph_need_a_call_before_the_capture(
    library: ctypes.CDLL, tmp_path: Path
) -> None:
    """The engine cannot be started within a capture, and the capture goes on."""
    program = (
        "import sys\nsys.path[:0] = sys.argv[1].split(':')\n"
        "from test_cpp_runtime import *\n"
        "native = Native(load(Path(sys.argv[2])), options_of('print'), [row_of()])\n"
        "x = torch.ones(8, device='cuda')\n"
        "graph = torch.cuda.CUDAGraph()\n"
        "with torch.cuda.graph(graph):\n"
        "    native.begin(); native.before(12, x); y = x + 1; native.end()\n"
        "graph.replay()\nprint(y.tolist())\n"
    )
    ran = subprocess.run(
        [imports.PYTHON, "-c", program, FOLDERS, str(library._name)],
        capture_output=True, text=True, timeout=120, cwd=HERE.parents[1], check=False,
    )  # fmt: skip
    assert "[2.0, 2.0" in ran.stdout, ran.stderr
    assert "are measured where the wrapper ran before it was captured" in ran.stderr
