"""The text of the C++ runtime: each set of probes compiles, alone and apart from the wrapper."""

from __future__ import annotations

import ctypes
import math
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import rewriter
from artifacts import get
from cpp_driver import (
    HEADERS,
    MARKS,
    PROBES,
    STRICT,
    Both,
    Native,
    handle_of,
    lines_alone,
    load,
    options_of,
    row_of,
)
from rewriter.dump.reading import open_dump
from rewriter.dump.ring import Mark, read_ring
from rewriter.instrumentation.probes import registry
from rewriter.locate.vocabulary import vocabulary
from rewriter.runtime.bundle import END, SOURCES, interface, text

pytestmark = MARKS

# The recorder is in it, which serves no wrappers in Python; of the lines, the comments are not.
NOT_IN_IT = {"find.h", "object_calls.h", "lines.h"}

# --- The text itself -----------------------------------------------------------------------------


CALLS = """
namespace { namespace inductor_rewriter {
const char* const options[20] = {"a", "b", "c", "names", "", "text"};
const char* const rows[][14] = {{"1", "k", "cpp", "s", "2"}};
Table wrapper{options, rows, nullptr, sizeof rows / sizeof *rows, nullptr, nullptr};
}}
void run(AtenTensorHandle x) {
  inductor_rewriter::Call _rw(inductor_rewriter::wrapper);
  _rw.before(1);
  static const int64_t sizes[] = {1};
  _rw.after(1, x, _rw.view(x, 1, sizes, sizes, 0L), 5L, 2.5f, true, nullptr, "text");
}
"""


def check_syntax(file: Path, *options: str) -> None:
    command = ["g++", "-fsyntax-only", *HEADERS, *options, str(file)]
    subprocess.run(command, check=True)


@pytest.mark.parametrize("standard", [17, pytest.param(20, marks=pytest.mark.exhaustive)])
def test_the_recorder_compiles_in_a_wrapper(standard: int, tmp_path: Path) -> None:
    """A recorded one; `cpp_driver.py` compiles the same text, without a warning, and calls it."""
    plain, probes = get("cpu-torch2.13/mlp aoti").path, rewriter.select("names,print,save")
    made = tmp_path / "wrapper.cpp"
    made.write_bytes(rewriter.instrument(plain, probes, standalone=True).source)
    of_torch = ("-DCPU_CAPABILITY_DEFAULT", "-DTORCH_INDUCTOR_CPP_WRAPPER", "-w")
    check_syntax(made, f"-std=c++{standard}", "-DSTANDALONE_TORCH_HEADER", *of_torch)


@pytest.mark.parametrize("arrays", [False, True])
@pytest.mark.parametrize("memory", [False, True])
def test_an_interface_compiles_alone(arrays: bool, memory: bool, tmp_path: Path) -> None:
    """The compiler takes it without a warning."""
    (tmp_path / "text.cpp").write_text(interface(arrays=arrays, memory=memory) + END + CALLS)
    check_syntax(tmp_path / "text.cpp", "-std=c++17", *STRICT)


def test_a_text_holds_each_file_once() -> None:
    whole = text()
    for name in SOURCES.rglob("*.h"):
        found = whole.count(name.read_text().splitlines()[0] + "\n")
        if name.parent.name == "engine":  # the kernels of the GPU are a text without comments
            assert found in (0, 1)
        else:
            is_in_it = name.name not in NOT_IN_IT and name.parent.name != "python"
            assert found == is_in_it, name
    assert '#include "' not in whole
    assert "#pragma once" not in whole


def test_a_text_can_stand_in_a_string_of_python() -> None:
    for whole in (text(), interface(arrays=True, memory=True)):
        assert whole.isascii()
        assert "'''" not in whole
        assert '"""' not in whole


# --- Compiled apart ------------------------------------------------------------------------------


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


def test_a_wrapper_apart_holds_no_bodies(tmp_path: Path) -> None:
    source, made = tmp_path / "driver.cpp", tmp_path / "driver.o"
    source.write_text(lines_alone())
    command = ["g++", "-std=c++20", *STRICT, "-fPIC", *HEADERS, "-c", str(source), "-o", str(made)]
    subprocess.run(command, check=True)
    command = ["nm", "-C", "--undefined-only", str(made)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert re.findall(r"\binductor_rewriter\w*", shown) == ["inductor_rewriter_recorder_1"]
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
    files = {path.stem for path in (SOURCES / "probes").glob("*.h")}
    assert files == {name for name, probe in registry().items() if not probe.memory}
    assert set(PROBES) == set(registry())


@pytest.mark.parametrize("name", PROBES)
def test_a_probe_in_cpp_is_as_its_class_in_python_declares(name: str, library: ctypes.CDLL) -> None:
    probe = registry()[name]
    flags = ("spans", "of_results", "reads_values", "measures", "saves")
    facts = (probe.when, *(getattr(probe, flag) for flag in flags))
    library.test_probe.restype = ctypes.c_char_p
    when, *declared = library.test_probe(name.encode()).decode().split()
    assert (when, *(flag == "1" for flag in declared)) == facts


def test_rows_are_free_once_all_before_them_are_read(library: ctypes.CDLL) -> None:
    """Several threads read them, each in its order."""
    events = [(1, 2), (4, 3), (8, 1), (3, 1), (7, 1), (10, 5), (9, 1)]
    ends = [2, 2, 2, 6, 8, 8, 14]
    # Round the ring, several times: the later one of two is read first.
    for first in range(15, 20000, 2000):
        events += [(first + 700, 1300), (first, 700)]
        ends += [first - 1, first + 1999]
    firsts, counts = zip(*events, strict=True)
    size = len(events)
    found = (ctypes.c_uint64 * size)()
    library.test_close(
        ctypes.c_size_t(size),
        (ctypes.c_uint64 * size)(*firsts),
        (ctypes.c_uint32 * size)(*counts),
        found,
    )
    assert list(found) == ends


def test_the_gpu_kinds_are_those_of_the_grammar(library: ctypes.CDLL) -> None:
    library.test_is_gpu_kind.restype = ctypes.c_bool
    kinds = {kind for kind in vocabulary().kinds if library.test_is_gpu_kind(kind.encode())}
    assert kinds == {name for name, kind in vocabulary().kinds.items() if kind.runs == "gpu"}
    assert not library.test_is_gpu_kind(b"tritonless")
