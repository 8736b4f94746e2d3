"""Programs with a C++ wrapper: aborts, forks, threads, options, and a stand-in for a device."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import programs
from cpp_driver import (
    FOLDERS,
    HERE,
    MARKS,
    PROBES,
    Native,
    options_of,
    row_of,
)
from harness import events

pytestmark = MARKS


SCRIPT = """
import os, pathlib, sys
sys.path[:0] = sys.argv[1].split(os.pathsep)
from cpp_driver import Native, load, options_of, row_of
native = Native(load(pathlib.Path(sys.argv[2])), options_of("names"), [row_of()])
native.begin()
native.before(12)
"""


def run_script(script: str, *words: object, **options: Any) -> programs.Done:
    place: dict[str, Any] = {"timeout": 60, "cwd": HERE.parents[1], "less": "PYTHONUNBUFFERED"}
    return programs.run(sys.executable, "-c", script, FOLDERS, *words, **place, **options)


def test_the_last_name_survives_an_abort(built: Callable[..., Path]) -> None:
    ran = run_script(f"{SCRIPT}os.abort()", built(), code=-signal.SIGABRT)
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
from cpp_driver import *
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
        about = {"REWRITER_DUMP": tmp_path / "dump", **environment}
        ran = run_script(ON_A_DEVICE, built(), driver, names, **about)
        return ran.stdout, ran.stderr, events(tmp_path / "dump")

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
    driver = tmp_path / "libcuda.so.1"
    ran = run_script(ON_A_DEVICE + more, built(), driver, "time", code=1)
    assert ran.stderr.strip() == f"0 {2 * 4096}"


def test_names_alone_need_no_thread(
    on_a_device: Callable[..., Any], built: Callable[..., Path], tmp_path: Path
) -> None:
    """The end of a call would wait for it, some 70 µs."""
    script = ON_A_DEVICE.replace(
        "native.begin()", "count = len(os.listdir('/proc/self/task')); native.begin()"
    )
    script += "sys.exit(str(len(os.listdir('/proc/self/task')) - count))"
    driver = tmp_path / "libcuda.so.1"
    for names, threads in (("names", "0"), ("print", "1")):
        ran = run_script(script, built(), driver, names, code=1)
        assert ran.stderr.strip() == threads
        assert ran.stdout.count("#12") >= 3


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
    more = """ctypes = __import__('ctypes')
ctypes.CDLL(None).prctl(15, b'pt_data_worker', 0, 0, 0)
native.begin()
native.before(12)
"""
    ran = run_script(SCRIPT + more, built())
    assert ran.stderr == ""
    assert ran.stdout == "[rewriter 0] #12 before triton_poi_fused_0\n"


def test_a_fork_is_not_probed(built: Callable[..., Path]) -> None:
    more = """if not os.fork():
    for _ in range(3): native.before(12)
    native.begin()
    native.before(12)
    os._exit(0)
os.wait()
native.before(12)
"""
    ran = run_script(SCRIPT + more, built())
    assert ran.stdout.splitlines() == [
        "[rewriter 0] #12 before triton_poi_fused_0",
        "[rewriter 0] #12.1 before triton_poi_fused_0",
    ]
    said = "a fork of the probed process is not recorded; one that is started anew"
    assert ran.stderr.count(said) == 1


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
