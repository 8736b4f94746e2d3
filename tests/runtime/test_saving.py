"""What saving promises: bounded memory, whole files, and a model that runs on."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from rewriter.runtime import attach, dump, saved
from rewriter.runtime.engine_files import EngineFiles, SaveResult
from rewriter.runtime.engine_library import EngineLibrary, EngineUnavailable, load
from rewriter.runtime.pickled import pickled_tensor
from rewriter.runtime.sizes import parse_bytes, wanted_bytes

MEGABYTE = 1 << 20
TABLE = [
    {"launch": 0, "kernel": "k", "kind": "cpp", "repeats": False, "after": [["out", "y"]]},
]
PROGRAM = """
import os, signal, sys, torch
from rewriter.runtime import attach
options = {
    "artifact": "w.py", "sha256": "", "version": "0", "probes": ["save"], "when": None,
    "format": "text", "values": False,
}
recorder = attach(options, [
    {"launch": 0, "kernel": "k", "kind": "cpp", "repeats": True, "after": [["out", "y"]]},
])
count, elements = map(int, sys.argv[1:3])
recorder.begin()
for number in range(count):
    recorder.after(0, torch.full((elements,), float(number)))
    if number == 0:
        print("begun", flush=True)
if "killed" in sys.argv:
    os.kill(os.getpid(), signal.SIGKILL)
print("ran on", flush=True)
"""


@pytest.fixture(scope="module")
def library() -> EngineLibrary:
    library = load()
    if isinstance(library, EngineUnavailable):
        pytest.skip(str(library))
    return library


@pytest.fixture(params=["engine", "torch"])
def files(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With the engine, and without."""
    if request.param == "torch":
        monkeypatch.setattr(saved, "load", lambda: EngineUnavailable("not here"))
    return str(request.param)


def content_of(path: Path) -> torch.Tensor:
    content = torch.load(path, weights_only=True, mmap=True)
    assert isinstance(content, torch.Tensor)
    return content


def rows_of(dump: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for path in sorted(dump.glob("rank0/run*/events.jsonl"))
        for line in path.read_text().splitlines()
    ]


def recorder_of(**changes: Any) -> Any:
    options = {
        "artifact": "w.py",
        "sha256": "",
        "version": "0",
        "probes": ["save"],
        "when": None,
        "format": "text",
        "values": False,
        **changes,
    }
    return attach(options, TABLE)


def test_files_are_those_of_torch(library: EngineLibrary, tmp_path: Path) -> None:
    """The same dtype, shape, strides and storage; the same pickle, but for how it is written."""
    names = ["float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8"]
    names += ["uint8", "uint16", "uint32", "uint64", "bool", "complex64", "complex128"]
    names += ["complex32", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"]
    writer = EngineFiles(library.functions, 0)
    for name in names:
        dtype = getattr(torch, name)
        for shape, stride in (((), ()), ((0, 3), (3, 1)), ((2, 3), (1, 2)), ((4, 1, 5), (5, 9, 1))):
            numel = torch.Size(shape).numel()
            flat = torch.arange(numel * dtype.itemsize).to(torch.uint8).view(dtype)
            tensor = flat.as_strided(shape, stride)
            assert writer.save(tensor, tmp_path / "ours") == SaveResult.QUEUED
            writer.wait(writer.last())
            torch.save(tensor, tmp_path / "torch")
            ours, expected = content_of(tmp_path / "ours"), content_of(tmp_path / "torch")
            assert (ours.dtype, ours.shape, ours.stride()) == (dtype, shape, stride)
            assert bytes(ours.untyped_storage()) == bytes(expected.untyped_storage())
            with zipfile.ZipFile(tmp_path / "ours") as archive:
                assert archive.testzip() is None
                assert archive.read("archive/data.pkl") == pickled_tensor(dtype, shape, stride)
            (tmp_path / "ours").unlink()


@pytest.mark.parametrize("size", [0, 1, 4 * MEGABYTE - 1, 4 * MEGABYTE, 9 * MEGABYTE + 3])
def test_sums_of_files_in_pieces(library: EngineLibrary, tmp_path: Path, size: int) -> None:
    writer = EngineFiles(library.functions, 0)
    tensor = torch.randint(0, 256, (size,), dtype=torch.uint8)
    writer.save(tensor, tmp_path / "a.pt")
    writer.wait(writer.last())
    assert torch.equal(content_of(tmp_path / "a.pt"), tensor)
    with zipfile.ZipFile(tmp_path / "a.pt") as archive:
        assert archive.testzip() is None


def test_a_file_that_begins_like_another(library: EngineLibrary, tmp_path: Path) -> None:
    """Its equal pieces are copied from the other file once one is found that differs."""
    writer = EngineFiles(library.functions, 0)
    tensors = [torch.arange(5 * MEGABYTE, dtype=torch.int32) for _ in range(5)]
    tensors[1][-1] += 1
    tensors[2][2 * MEGABYTE] += 1
    tensors[4][2 * MEGABYTE] += 1
    for number, tensor in enumerate(tensors):
        writer.save(tensor, tmp_path / str(number))
        writer.wait(writer.last())
    for number, tensor in enumerate(tensors):
        assert torch.equal(content_of(tmp_path / str(number)), tensor)
    same = [(tmp_path / str(number)).stat().st_ino for number in range(5)]
    assert same[0] == same[3]
    assert same[2] == same[4]
    assert len(set(same)) == 3


def test_many_alike_at_once(library: EngineLibrary, tmp_path: Path) -> None:
    """Files that are not finished when their like comes are waited for."""
    writer = EngineFiles(library.functions, 0)
    tensors = [torch.full((2 * MEGABYTE,), float(number % 3)) for number in range(30)]
    for number, tensor in enumerate(tensors):
        writer.save(tensor, tmp_path / str(number))
        tensor.fill_(-1)
    writer.wait(writer.last())
    for number in range(30):
        found = content_of(tmp_path / str(number))
        assert found.min() == found.max() == number % 3
    assert len({path.stat().st_ino for path in tmp_path.iterdir()}) == 3


def test_memory_is_bounded(library: EngineLibrary, tmp_path: Path) -> None:
    """However slow the disk is: the model waits."""
    functions = library.functions
    functions.inductor_rewriter_saver.restype = None
    writer = EngineFiles(functions, 0)
    writer._saver = functions.inductor_rewriter_saver(0, 1, 16 * MEGABYTE)
    tensor = torch.zeros(2 * MEGABYTE)
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak
    before = _peak()
    for number in range(40):  # 320 MiB
        tensor.fill_(number)
        assert writer.save(tensor, tmp_path / str(number)) == SaveResult.QUEUED
    writer.wait(writer.last())
    assert _peak() - before < 48 * MEGABYTE
    assert content_of(tmp_path / "39").eq(39).all()


def _peak() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


@pytest.mark.programs
@pytest.mark.usefixtures("warm_python")
def test_a_killed_program_leaves_whole_files(tmp_path: Path) -> None:
    environment = {**os.environ, "REWRITER_DUMP": str(tmp_path / "dump")}
    command = [sys.executable, "-c", PROGRAM, "8", str(9 * MEGABYTE), "killed"]
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert "ran on" not in run.stdout
    assert len(rows_of(tmp_path / "dump")) == 8
    found = list(tmp_path.rglob("*.pt"))
    assert found  # the staging holds less than all of them
    for path in found:
        number = int(path.parent.name.partition(".")[2] or 0)
        assert content_of(path).eq(number).all()


def limited(command: Sequence[str], megabytes: int, folder: Path) -> list[str]:
    """A command in a name space of its own, where `folder` is a small file system."""
    mount = f"mount -t tmpfs -o size={megabytes}m none {folder}"
    copy = f"cp -a {folder}/. {folder}.copy"
    script = f'{mount} && "$@"; code=$?; {copy}; exit $code'
    return ["unshare", "-rm", "sh", "-c", script, "sh", *command]


def test_a_full_disk_leaves_no_empty_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWRITER_DUMP", str(tmp_path))
    recorder = recorder_of()
    recorder.begin()
    recorder._finish()

    def fail(descriptor: int, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(dump, "write_all", fail)
    for _ in range(3):
        recorder.begin()
        recorder._finish()
    assert os.listdir(tmp_path / "rank0") == ["run0"]


def test_a_full_disk_leaves_no_half_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(descriptor: int, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setenv("REWRITER_DUMP", str(tmp_path))
    monkeypatch.setattr(dump, "write_all", fail)
    recorder = recorder_of()
    for _ in range(2):
        recorder.begin()
        recorder.end()
    assert capfd.readouterr().err.count("No space left on device") == 1
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


FORKS = """
import os, sys, threading
from rewriter.runtime.saved import saved_in
saved = saved_in(sys.argv[1])
import torch
saved.save(torch.ones(1), f"{sys.argv[1]}/file.pt")
is_over = False
def use():
    while not is_over:
        saved.last()
threads = [threading.Thread(target=use) for _ in range(2)]
for thread in threads:
    thread.start()
for _ in range(40):
    if not (pid := os.fork()):
        saved.drain()
        os._exit(0)
    os.waitpid(pid, 0)
is_over = True
"""


@pytest.mark.programs
@pytest.mark.usefixtures("warm_python", "library")
def test_a_fork_ends_while_another_thread_saves(tmp_path: Path) -> None:
    """Its copy of the saver's lock may be held by a thread that it does not have."""
    subprocess.run([sys.executable, "-c", FORKS, str(tmp_path)], check=True, timeout=60)


SAVES_IN_FORK = """
import os, sys
from pathlib import Path
from rewriter.runtime.saved import saved_in
import torch
root = Path(sys.argv[1])
saved_in(root).save(torch.ones(1), root / "parent.pt")
if not (pid := os.fork()):
    saved = saved_in(root)
    saved.save(torch.ones(2), root / "child.pt")
    saved.drain()
    os._exit(0)
sys.exit(os.waitpid(pid, 0)[1])
"""


@pytest.mark.programs
@pytest.mark.usefixtures("warm_python", "library")
def test_a_fork_saves_by_threads_of_its_own(tmp_path: Path) -> None:
    """A wrapper that a fork is the first to call is recorded there."""
    program = [sys.executable, "-c", SAVES_IN_FORK, str(tmp_path)]
    subprocess.run(program, check=True, timeout=60)
    assert content_of(tmp_path / "child.pt").shape == (2,)
    assert content_of(tmp_path / "parent.pt").shape == (1,)


@pytest.mark.programs
@pytest.mark.parametrize(
    "by_torch",
    [False, pytest.param(True, marks=pytest.mark.exhaustive)],
    ids=["engine", "torch"],
)
def test_a_full_disk_stops_saving_and_nothing_else(tmp_path: Path, by_torch: bool) -> None:
    (folder := tmp_path / "small").mkdir()
    (tmp_path / "small.copy").mkdir()
    if subprocess.run(limited(["true"], 1, folder), capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    environment = {**os.environ, "REWRITER_DUMP": str(folder / "dump")}
    if by_torch:
        environment["CXX"] = "/nowhere"
    program = limited([sys.executable, "-c", PROGRAM, "40", str(MEGABYTE // 4)], 16, folder)
    run = subprocess.run(program, env=environment, capture_output=True, text=True, check=True)
    assert run.stdout == "begun\nran on\n"
    assert run.stderr.count("\n") == 1
    assert "cannot be saved: No space left on device; nothing more is saved" in run.stderr
    rows = rows_of(tmp_path / "small.copy/dump")
    assert len(rows) == 40
    found = sorted((tmp_path / "small.copy").rglob("*.pt"))
    assert 5 <= len(found) <= 15
    for path in found:
        assert content_of(path).eq(int(path.parent.name.partition(".")[2] or 0)).all()
    assert not list((tmp_path / "small.copy").rglob(".writing*"))
    assert rows[-1]["unsaved"] == "the disk had no room for what came before it"
    assert "file" not in rows[-1]


IN_PYTHON = """
import os, sys
from rewriter.runtime.events_file import EventsFile
path = sys.argv[1]
rows = EventsFile(f"{path}/rows", make_room=lambda: os.unlink(f"{path}/other"))
try:
    with open(f"{path}/other", "wb", buffering=0) as other:
        while other.write(bytes(4096)):
            pass
except OSError:
    rows.append(b"row" * 10000)
"""
IN_CPP = """
#include <cstdlib>
#include <fcntl.h>
#include <string>
#include "write_all.h"
using namespace inductor_rewriter;
static std::string path;
int main(int, char** arguments) {
  path = arguments[1];
  wait_for_saved_files() = [] { unlink((path + "/other").c_str()); };
  const int rows = open((path + "/rows").c_str(), O_WRONLY | O_CREAT, 0666);
  const int other = open((path + "/other").c_str(), O_WRONLY | O_CREAT, 0666);
  const std::string page(4096, ' ');
  while (write(other, page.data(), page.size()) > 0) continue;
  close(other);
  std::string text;
  for (int i = 0; i < 10000; ++i) text += "row";
  std::size_t done;
  return write_all(rows, text.data(), text.size(), done);
}
"""


@pytest.mark.programs
@pytest.mark.parametrize("language", ["python", "cpp"])
def test_rows_have_the_room_of_files_that_fail(tmp_path: Path, language: str) -> None:
    """A file that the disk has no room for holds the last of it until it is removed."""
    (folder := tmp_path / "small").mkdir()
    (tmp_path / "small.copy").mkdir()
    if subprocess.run(limited(["true"], 1, folder), capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    program = [sys.executable, "-c", IN_PYTHON]
    if language == "cpp":
        (tmp_path / "rows.cpp").write_text(IN_CPP)
        header = Path(saved.__file__).parent / "cpp/engine"
        program = [str(tmp_path / "rows")]
        compile = ["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-I", str(header)]
        subprocess.run([*compile, str(tmp_path / "rows.cpp"), "-o", program[0]], check=True)
    subprocess.run(limited([*program, str(folder)], 1, folder), check=True)
    assert (tmp_path / "small.copy/rows").read_bytes() == b"row" * 10000


@pytest.mark.programs
@pytest.mark.usefixtures("warm_python", "library")  # which could not be built with the limit
def test_a_file_that_may_not_be_so_large(tmp_path: Path) -> None:
    """The limit comes with a signal, which would end a program that is not Python."""
    program = (
        "import resource, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({MEGABYTE}, {MEGABYTE}))\n" + PROGRAM
    )
    environment = {**os.environ, "REWRITER_DUMP": str(tmp_path)}
    command = [sys.executable, "-c", program, "3", str(MEGABYTE)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (0, "begun\nran on\n")
    assert run.stderr.count("File too large") == run.stderr.count("\n") == 1
    assert not [path for path in tmp_path.rglob("*") if path.suffix == ".pt"]
    assert not list(tmp_path.rglob(".writing*"))


@pytest.mark.usefixtures("files")
def test_no_more_bytes_than_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REWRITER_DUMP", str(tmp_path))
    recorder = recorder_of(max_bytes="10KB")
    kept = torch.arange(1000.0)  # 4,000 bytes
    for number in range(6):
        recorder.begin()
        # The second call has the bytes of the first.
        recorder.after(0, kept + max(0, number - 1))
    recorder._finish()
    rows = rows_of(tmp_path)
    assert ["file" in row for row in rows] == [True, True, True, False, False, False]
    assert [row.get("unsaved") for row in rows[3:]] == ["--max-bytes was reached"] * 3
    error = capfd.readouterr().err
    assert error.count("\n") == error.count("more than 10000 bytes; nothing more is saved") == 1


def test_the_environment_limits_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWRITER_DUMP", str(tmp_path))
    monkeypatch.setenv("REWRITER_MAX_BYTES", "1")
    recorder = recorder_of(max_bytes="10G")
    recorder.begin()
    recorder.after(0, torch.ones(3))
    recorder._finish()
    assert not list(tmp_path.rglob("*.pt"))
    monkeypatch.setenv("REWRITER_MAX_BYTES", "much")
    with pytest.raises(ValueError, match=r"^REWRITER_MAX_BYTES: 'much' is no size"):
        wanted_bytes({})


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5G", "G", "1X", "1GG", "1iB", "٣", "9" * 16])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="is no size"):
        parse_bytes(text)


def test_sizes() -> None:
    texts = {"7": 7, "7B": 7, "2K": 2000, "2KB": 2000, "2Ki": 2048, "3MiB": 3 << 20, "1T": 10**12}
    assert {text: parse_bytes(text) for text in texts} == texts
    assert parse_bytes("9" * 15 + "T") == (1 << 63) - 1  # no file has more
