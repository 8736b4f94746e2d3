"""What saving promises: bounded memory, whole files, and a model that runs on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from rewriter.core.quantities import parse_bytes
from rewriter.runtime import attach, extension
from rewriter.runtime.bundle import SOURCES
from saved_tensors import Saved, content_of
from tables import options, row

MEGABYTE = 1 << 20
TABLE = [row(repeats=True, after=[["out", "y"]])]
PROGRAM = f"""
import os, signal, sys, torch
from rewriter.runtime import attach
recorder = attach({options("save")!r}, {TABLE!r})
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
def library() -> None:
    """It is built before a program needs it that could not."""
    assert isinstance(extension.load(), ModuleType)


def rows_of(dump: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for path in sorted(dump.glob("rank0/run*/events.jsonl"))
        for line in path.read_text().splitlines()
    ]


def recorder_of(**changes: Any) -> Any:
    return attach(options("save", **changes), TABLE)


def test_files_are_those_of_torch(tmp_path: Path) -> None:
    """The same dtype, shape, strides and storage."""
    names = ["float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8"]
    names += ["uint8", "uint16", "uint32", "uint64", "bool", "complex64", "complex128"]
    names += ["complex32", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"]
    saved = Saved(tmp_path / "dump")
    for name in names:
        dtype = getattr(torch, name)
        for shape, stride in (((), ()), ((0, 3), (3, 1)), ((2, 3), (1, 2)), ((4, 1, 5), (5, 9, 1))):
            numel = torch.Size(shape).numel()
            flat = torch.arange(numel * dtype.itemsize).to(torch.uint8).view(dtype)
            tensor = flat.as_strided(shape, stride)
            path = saved.save(tensor)
            torch.save(tensor, tmp_path / "torch")
            ours, expected = content_of(path), content_of(tmp_path / "torch")
            assert (ours.dtype, ours.shape, ours.stride()) == (dtype, shape, stride)
            assert bytes(ours.untyped_storage()) == bytes(expected.untyped_storage())
            with zipfile.ZipFile(path) as archive:
                assert archive.testzip() is None


@pytest.mark.parametrize("size", [0, 1, 4 * MEGABYTE - 1, 4 * MEGABYTE, 9 * MEGABYTE + 3])
def test_sums_of_files_in_pieces(tmp_path: Path, size: int) -> None:
    tensor = torch.randint(0, 256, (size,), dtype=torch.uint8)
    path = Saved(tmp_path).save(tensor)
    assert torch.equal(content_of(path), tensor)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None


def test_a_file_that_begins_like_another(tmp_path: Path) -> None:
    """Its equal pieces are copied from the other file once one is found that differs."""
    tensors = [torch.arange(5 * MEGABYTE, dtype=torch.int32) for _ in range(5)]
    tensors[1][-1] += 1
    tensors[2][2 * MEGABYTE] += 1
    tensors[4][2 * MEGABYTE] += 1
    saved = Saved(tmp_path)
    paths = [saved.save(tensor) for tensor in tensors]
    for path, tensor in zip(paths, tensors, strict=True):
        assert torch.equal(content_of(path), tensor)
    same = [path.stat().st_ino for path in paths]
    assert same[0] == same[3]
    assert same[2] == same[4]
    assert len(set(same)) == 3


def test_many_alike_at_once(tmp_path: Path) -> None:
    """Files that are not finished when their like comes are waited for."""
    recorder = recorder_of(directory=str(tmp_path))
    recorder.begin()
    for number in range(30):
        tensor = torch.full((2 * MEGABYTE,), float(number % 3))
        recorder.after(0, tensor)
        tensor.fill_(-1)
    recorder.end()
    paths = [tmp_path / "rank0/run0" / row["file"] for row in rows_of(tmp_path)]
    for number, path in enumerate(paths):
        found = content_of(path)
        assert found.min() == found.max() == number % 3
    assert len({path.stat().st_ino for path in paths}) == 3


def test_memory_is_bounded(tmp_path: Path) -> None:
    """However slow the disk is: the model waits."""
    recorder = recorder_of(directory=str(tmp_path))
    tensor = torch.zeros(8 * MEGABYTE)
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak
    before = _peak()
    recorder.begin()
    for number in range(20):  # 640 MiB
        recorder.after(0, tensor.fill_(number))
    recorder.end()
    assert _peak() - before < 400 * MEGABYTE
    last = tmp_path / "rank0/run0" / rows_of(tmp_path)[-1]["file"]
    assert content_of(last).eq(19).all()


def _peak() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


@pytest.mark.programs
@pytest.mark.usefixtures("warm_python")
def test_a_killed_program_leaves_whole_files(tmp_path: Path) -> None:
    ran = run(PROGRAM, 8, 9 * MEGABYTE, "killed", dump=tmp_path / "dump")
    assert "ran on" not in ran.stdout
    assert len(rows_of(tmp_path / "dump")) == 8
    found = list(tmp_path.rglob("*.pt"))
    assert found  # the staging holds less than all of them
    for path in found:
        number = int(path.parent.name.partition(".")[2] or 0)
        assert content_of(path).eq(number).all()


def run(
    text: str, *words: object, dump: Path, within: Sequence[str] = (), **more: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program with a dump; `within` begins the command."""
    command = [*within, sys.executable, "-c", text, *map(str, words)]
    environment = {**os.environ, "REWRITER_DUMP": str(dump)}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, **more
    )


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Where a small file system can be mounted, whose copy is beside it."""
    folder = tmp_path / "small"
    for made in (folder, tmp_path / "small.copy"):
        made.mkdir()
    if subprocess.run([*limited(1, folder), "true"], capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    return folder


def limited(megabytes: int, folder: Path) -> list[str]:
    """Begins a command in a name space of its own, where `folder` is a small file system."""
    mount = f"mount -t tmpfs -o size={megabytes}m none {folder}"
    copy = f"cp -a {folder}/. {folder}.copy"
    script = f'{mount} && "$@"; code=$?; {copy}; exit $code'
    return ["unshare", "-rm", "sh", "-c", script, "sh"]


NO_ROOM = f"""
import resource, sys
from rewriter.runtime import attach
recorder = attach({options("save")!r}, {TABLE!r})
for number in range(4):
    if number == int(sys.argv[1]):
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    recorder.begin()
    recorder.end()
"""


@pytest.mark.programs
@pytest.mark.usefixtures("warm_python", "library")
@pytest.mark.parametrize("whole", [0, 1])
def test_a_full_disk_leaves_neither_empty_calls_nor_half_of_a_file(
    tmp_path: Path, whole: int
) -> None:
    ran = run(NO_ROOM, whole, dump=tmp_path, check=True)
    assert ran.stderr.count("File too large") == ran.stderr.count("\n") == 1
    assert os.listdir(tmp_path / "rank0") == ["run0"] * whole
    assert bool([path for path in tmp_path.rglob("*") if path.is_file()]) == bool(whole)


FORKS = f"""
import os, sys, threading, time, torch
from rewriter.runtime import attach
def save(recorder):
    recorder.begin()
    recorder.after(0, torch.ones(2))
    recorder.end()
recorder = attach({options("save")!r}, {TABLE!r})
other = attach({options("save", label="other")!r}, {TABLE!r})
save(recorder)
is_over = False
def use():
    while not is_over:
        save(recorder)
        time.sleep(0.002)
threads = [threading.Thread(target=use) for _ in range(2)]
for thread in threads:
    thread.start()
for _ in range(40):
    if not (pid := os.fork()):
        save(other)
        os._exit(0)
    assert not os.waitpid(pid, 0)[1]
is_over = True
"""


@pytest.mark.programs
@pytest.mark.usefixtures("warm_python", "library")
def test_a_fork_saves_and_ends_while_another_thread_saves(tmp_path: Path) -> None:
    """Its copy of a lock may be held by a thread that it does not have. A wrapper that a fork is
    the first to call is recorded there."""
    run(FORKS, dump=tmp_path, check=True)
    labels = [json.loads(x.read_text())["label"] for x in tmp_path.glob("rank0/run*/run.json")]
    assert labels.count("other") == 40
    assert all(content_of(path).eq(1).all() for path in tmp_path.rglob("*.pt"))


@pytest.mark.programs
def test_a_full_disk_stops_saving_and_nothing_else(small: Path) -> None:
    dump, within = small / "dump", limited(16, small)
    ran = run(PROGRAM, 40, MEGABYTE // 4, dump=dump, within=within, check=True)
    assert ran.stdout == "begun\nran on\n"
    assert ran.stderr.count("\n") == 1
    assert "cannot be saved: No space left on device; nothing more is saved" in ran.stderr
    copy = small.with_name("small.copy")
    rows = rows_of(copy / "dump")
    assert len(rows) == 40
    found = sorted(copy.rglob("*.pt"))
    assert 5 <= len(found) <= 15
    for path in found:
        assert content_of(path).eq(int(path.parent.name.partition(".")[2] or 0)).all()
    assert not list(copy.rglob(".writing*"))
    assert rows[-1]["unsaved"] == "the disk had no room for what came before it"
    assert "file" not in rows[-1]


IN_CPP = """
#include <cstdlib>
#include <fcntl.h>
#include <string>
#include "files.h"
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
def test_rows_have_the_room_of_files_that_fail(small: Path, tmp_path: Path) -> None:
    """A file that the disk has no room for holds the last of it until it is removed."""
    (tmp_path / "rows.cpp").write_text(IN_CPP)
    program = str(tmp_path / "rows")
    compile = ["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-I", str(SOURCES / "engine")]
    subprocess.run([*compile, str(tmp_path / "rows.cpp"), "-o", program], check=True)
    subprocess.run([*limited(1, small), program, str(small)], check=True)
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
    ran = run(program, 3, MEGABYTE, dump=tmp_path)
    assert (ran.returncode, ran.stdout) == (0, "begun\nran on\n")
    assert ran.stderr.count("File too large") == ran.stderr.count("\n") == 1
    assert not [path for path in tmp_path.rglob("*") if path.suffix == ".pt"]
    assert not list(tmp_path.rglob(".writing*"))


def test_no_more_bytes_than_wanted(dump: Path, capfd: pytest.CaptureFixture[str]) -> None:
    recorder = recorder_of(max_bytes="10KB")
    kept = torch.arange(1000.0)  # 4,000 bytes
    for number in range(6):
        recorder.begin()
        # The second call has the bytes of the first.
        recorder.after(0, kept + max(0, number - 1))
    recorder.end()
    rows = rows_of(dump)
    assert ["file" in row for row in rows] == [True, True, True, False, False, False]
    assert [row.get("unsaved") for row in rows[3:]] == ["--max-bytes was reached"] * 3
    error = capfd.readouterr().err
    assert error.count("\n") == error.count("more than 10000 bytes; nothing more is saved") == 1


def test_the_environment_limits_bytes(
    dump: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REWRITER_MAX_BYTES", "1")
    recorder = recorder_of(max_bytes="10G")
    recorder.begin()
    recorder.after(0, torch.ones(3))
    recorder.end()
    assert not list(dump.rglob("*.pt"))
    monkeypatch.setenv("REWRITER_MAX_BYTES", "much")
    recorder_of(max_bytes="10G").begin()
    assert "no probes: REWRITER_MAX_BYTES: 'much' is no size" in capfd.readouterr().err


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5G", "G", "1X", "1GG", "1iB", "٣", "9" * 16])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="is no size"):
        parse_bytes(text)


def test_sizes() -> None:
    texts = {"7": 7, "7B": 7, "2K": 2000, "2KB": 2000, "2Ki": 2048, "3MiB": 3 << 20, "1T": 10**12}
    assert {text: parse_bytes(text) for text in texts} == texts
    assert parse_bytes("9" * 15 + "T") == (1 << 63) - 1  # no file has more
