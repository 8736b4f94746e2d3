"""A driver that makes calls as lines in a C++ wrapper do, and lines in Python beside it.

One shared object is built from the text of the runtime and the driver; the same tensors go through
the extension module: same lines, same dump, same files.
"""

from __future__ import annotations

import ctypes
import json
import math
import struct
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from harness import settle
from rewriter.runtime import attach, extension
from rewriter.runtime.bundle import END, interface, recorder, text
from rewriter.runtime.table import option_texts, row_texts

HERE = Path(__file__).parent
# Where a script finds this module, and what it imports.
FOLDERS = str(HERE)
INCLUDE = Path(torch.__file__).parent / "include"
LIBRARIES = Path(torch.__file__).parent / "lib"
HEADERS = ["-isystem", str(INCLUDE), "-isystem", str(INCLUDE / "torch/csrc/api/include")]
MARKS = [
    pytest.mark.usefixtures("warm_python"),
    pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental"),
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor"),
]
STRICT = ["-Wall", "-Wextra", "-Werror", "-pedantic"]
# What Inductor compiles wrappers with, and the worst that a user can make of it.
FLAGS = {
    "inductor": "-std=c++17 -O1 -DNDEBUG -fno-trapping-math -funsafe-math-optimizations "
    "-ffinite-math-only -fno-signed-zeros -fno-math-errno -fno-finite-math-only "
    "-fno-unsafe-math-optimizations -ffp-contract=off -fexcess-precision=fast "
    "-fno-tree-loop-vectorize -march=native",
    "fast": "-std=c++20 -O1 -DNDEBUG -ffast-math",
    "fastest": "-std=c++20 -O3 -DNDEBUG -ffast-math",
}
_NAMES = """
bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 bfloat16 float32 float64
float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu
complex32 complex64 complex128
"""
DTYPES = [getattr(torch, name) for name in _NAMES.split() if hasattr(torch, name)]
PROBES = (
    *("bounds", "hash", "inputs", "names", "nan", "poison", "print", "record", "save", "stale"),
    *("sync", "time"),
)

DRIVER = r"""
#include <torch/csrc/inductor/aoti_runtime/arrayref_tensor.h>

using namespace inductor_rewriter;

extern "C" {
// No types of the runtime's here: where they are hidden, so is a function of them.
void* test_wrapper(
    const char* const* options, const char* const (*rows)[14], size_t count, const char* inputs) {
  return new Table{options, rows, inputs, count, nullptr, nullptr};
}
void* test_begin(void* wrapper) { return new Call(*static_cast<Table*>(wrapper)); }
void test_end(void* call) { delete static_cast<Call*>(call); }
// A line with up to four values, each a `Value` of abi.h.
void test_at(void* from, int launch, int phase, int count, const void* values) {
  Call& call = *static_cast<Call*>(from);
  const char name = "bai"[phase];
  const Value* const of = static_cast<const Value*>(values);
  if (count == 0) call.pass(name, launch);
  else if (count == 1) call.pass(name, launch, of[0]);
  else if (count == 2) call.pass(name, launch, of[0], of[1]);
  else call.pass(name, launch, of[0], of[1], of[2], of[3]);
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
    Call call(*static_cast<Table*>(wrapper));
    call.before(3);
    throw 1;
  } catch (int) {
  }
}
// The table as the planner writes it.
const char* const options[] = {
    "wrapper.cpp", "00", "0.1.0", "names,print", "", "text", nullptr, "", nullptr, "1", "", "", "0",
    "all", "", nullptr, nullptr, nullptr, nullptr, nullptr};
const char* const rows[][14] = {
    {"3", "static_kernel", "cpp", "run_impl", "9", "a, b", "aten.mm", nullptr, nullptr, "in x0"},
};
Table wrapper{options, rows, nullptr, sizeof rows / sizeof *rows, nullptr, nullptr};
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
  for (bool flag : {probe->spans, probe->of_results, probe->reads_values, probe->measures,
                    probe->saves}) {
    facts += flag ? " 1" : " 0";
  }
  return facts.c_str();
}
void test_drain(void* of) {
  void* const read = static_cast<Table*>(of)->made;
  void* const recorder = read ? static_cast<Wrapper*>(read)->recorder.load() : nullptr;
  if (recorder) static_cast<Recorder*>(recorder)->drain();
}
bool test_is_gpu_kind(const char* kind) { return is_gpu_kind(kind); }
// Up to which row all are closed, after each of these.
void test_close(std::size_t size, const uint64_t* firsts, const uint32_t* counts, uint64_t* ends) {
  Ring rows;
  for (std::size_t i = 0; i < size; ++i) ends[i] = rows.release(firsts[i], counts[i]);
}
}
"""


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


# What options and rows of tests leave out.
_OPTIONS = {
    "label": "", "calls": "", "last": 0, "args": "all", "max_bytes": "",
    "allow": (), "stop": False,
}  # fmt: skip


def _columns(texts: list[str | None]) -> list[str | None]:
    return texts + [None] * (14 - len(texts))


def _texts(texts: Sequence[str | None]) -> list[bytes | None]:
    return [None if text is None else text.encode() for text in texts]


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
        options = _texts(option_texts(_OPTIONS | self.options))
        rows = [text for row in self.rows for text in _columns(row_texts(row))]
        labels = self.inputs_labels
        joined = None if labels is None else "; ".join(map(" ".join, labels)).encode()
        table = (ctypes.c_char_p * len(options))(*options)
        lines = (ctypes.c_char_p * len(rows))(*_texts(rows))
        self.kept += [options, rows, table, lines, joined]
        self.wrapper = self.library.test_wrapper(
            table, lines, ctypes.c_size_t(len(self.rows)), joined
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
        self.released(event, tensor, is_reused=True)

    def released(self, event: int, tensor: torch.Tensor, *, is_reused: bool = False) -> None:
        handle = ctypes.c_void_p(handle_of(tensor))
        self.library.test_gone(ctypes.c_void_p(self.call), event, handle, is_reused)

    def checked(self, launch: int) -> None:
        self.library.test_checked(ctypes.c_void_p(self.call), launch)

    def at(self, launch: int, phase: int, values: Sequence[Any], call: int | None = None) -> None:
        assert len(values) in (0, 1, 2, 4), "test_at takes no line with so many values"
        handles = [handle_of(x) if isinstance(x, torch.Tensor) else 0 for x in values]
        packed = b"".join(map(_packed, values, handles))
        pointer = ctypes.c_void_p(self.call if call is None else call)
        self.library.test_at(pointer, launch, phase, len(values), packed)
        for handle in filter(None, handles):
            self.library.aoti_torch_delete_tensor_object(ctypes.c_void_p(handle))


def _packed(value: Any, handle: int) -> bytes:
    """A `Value` of cpp/abi.h; the handle is that of a tensor."""
    pack = struct.Struct("=c7xQdQ").pack
    if isinstance(value, (torch.Tensor, Handle)) or value is None:
        return pack(b"t", 0, 0, handle or value or 0)
    if isinstance(value, int):
        kind = b"b" if isinstance(value, bool) else b"u" if value >= 2**63 else b"i"
        return pack(kind, value % 2**64, 0, 0)
    return pack(b"f", 0, value, 0) if isinstance(value, float) else pack(b"o", 0, 0, 0)


def sources_of_driver(*, in_two: bool) -> dict[str, str]:
    """The driver with the recorder in it, or with the recorder compiled apart, as in packages."""
    if not in_two:
        return {"driver": text() + DRIVER + INSIDE}
    return {"driver": lines_alone(), "runtime": recorder("hidden") + INSIDE}


def lines_alone() -> str:
    return f"{interface(arrays=True, memory=True)}{END}\n{DRIVER}"


def compile_sources(folder: Path, flags: str, sources: dict[str, str]) -> Path:
    """A library of these files."""
    objects = []
    for name, source in sources.items():
        (folder / f"{name}.cpp").write_text(source)
        objects.append(str(folder / f"{name}.o"))
        # What the standard library's templates have would keep the driver from being unloaded.
        options = ["-fPIC", "-fno-gnu-unique"]
        command = ["g++", *flags.split(), *STRICT, *options, *HEADERS]
        subprocess.run([*command, "-c", str(folder / f"{name}.cpp"), "-o", objects[-1]], check=True)
    made = folder / "driver.so"
    # Apart: g++ adds code that flushes subnormals in the whole process to what it links for speed.
    link = ["g++", "-shared", *objects, "-o", str(made), f"-L{LIBRARIES}"]
    subprocess.run([*link, f"-Wl,-rpath,{LIBRARIES}", "-ltorch", "-ltorch_cpu"], check=True)
    return made


def load(path: str | Path, kind: type[ctypes.CDLL] = ctypes.CDLL) -> ctypes.CDLL:
    library = kind(str(path))
    for name in ("test_wrapper", "test_begin", "test_allocated"):
        getattr(library, name).restype = ctypes.c_void_p
    return library


@pytest.fixture
def library(built: Callable[..., Path]) -> ctypes.CDLL:
    return load(built())


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
            extension.finish_writing()
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
        inputs: Sequence[str] = (),
        flags: str = "fast",
        **changes: Any,
    ) -> Both:
        rows = rows or [row_of()]
        options = options_of(*names, **changes)
        python, cpp = tmp_path / "python", tmp_path / "cpp"
        monkeypatch.setenv("REWRITER_COMMAND", 'run "me"')
        monkeypatch.setenv("REWRITER_DUMP", str(python))
        recorder = attach(options, rows, inputs)
        recorder.begin()
        monkeypatch.setenv("REWRITER_DUMP", str(cpp))
        native = Native(load(built(flags)), options, rows, [["in", name] for name in inputs])
        native.begin()
        made.append(Both(recorder, native, (python, cpp), capfd))
        return made[-1]

    yield make
    for dump in {dump for runtimes in made for dump in runtimes.dumps}:
        import dump_schemas  # not where a program imports this module

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


def bits_of(tensor: torch.Tensor) -> bytes:
    flat = tensor.resolve_conj().contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).tolist())
