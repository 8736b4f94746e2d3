"""Sessions of dormant probes in C++ go when their last call has ended: eight threads call a wrapper
that is switched all the time."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import torch

from rewriter.runtime.bundle import text

PROGRAM = r"""
#include <torch/csrc/inductor/aoti_runtime/arrayref_tensor.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>
#include <dirent.h>
using namespace inductor_rewriter;
const char* const options[] = {
    "wrapper.cpp", "00", "0.1.0", "names,hash,print,save,record", "", "text", nullptr, "", nullptr,
    "1", "", "", "0", "written", "", nullptr, nullptr, nullptr, "1", "nan"};
const char* const rows[][14] = {
    {"0", "first", "cpp", "", "9", "a", "aten.mm", nullptr, nullptr, "", "out x0"},
    {"1", "last", "cpp", "", "9", "b", "aten.mm", nullptr, nullptr, "", "out x0"},
};
Table wrapper{options, rows, nullptr, 2, nullptr, nullptr};

static long count_threads() {
  long count = 0;
  if (DIR* open = opendir("/proc/self/task")) {
    while (readdir(open)) ++count;
    closedir(open);
  }
  return count;
}

static long resident() {
  long size = 0, pages = 0;
  if (FILE* file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%ld %ld", &size, &pages) != 2) pages = 0;
    std::fclose(file);
  }
  return pages * 4;
}

int main(int, char** given) {
  const int switches = std::atoi(given[1]), threads = std::atoi(given[2]);
  const std::string probe = given[3];
  const std::string path = std::getenv("REWRITER_CONTROL"), dump = std::getenv("DUMP");
  std::atomic<bool> stop{false};
  std::atomic<long> calls{0}, seen{0};
  auto work = [&] {
    float numbers[4] = {1, 2, 3, 4};
    const int64_t sizes[] = {4}, strides[] = {1};
    AtenTensorHandle handle;
    aoti_torch_create_tensor_from_blob(numbers, 1, sizes, strides, 0, 6, 0, 0, &handle);
    while (!stop) {
      Call _rw(wrapper);
      _rw.before(0);
      _rw.after(0, handle);
      _rw.before(1);
      _rw.after(1, handle);
      ++calls;
    }
    aoti_torch_delete_tensor_object(handle);
  };
  std::vector<std::thread> all;
  for (int i = 0; i < threads; ++i) all.emplace_back(work);
  for (int i = 0; i < switches; ++i) {
    const std::string temporary = path + ".new";
    {
      std::ofstream file(temporary);
      file << "rewriter.control 1\nid=" << i << "\nprobes=" << (i % 3 ? probe : "")
           << "\ncalls=" << (i % 2 ? 20 : 0) << "\ndump=" << dump
           << "\nkeep=" << (probe == "record" ? 0 : 3) << "\nquiet=1\n";
    }
    chmod(temporary.c_str(), 0600);
    std::rename(temporary.c_str(), path.c_str());
    std::this_thread::sleep_for(std::chrono::milliseconds(70));
    if (i == switches / 5) seen = resident();
  }
  stop = true;
  for (auto& one : all) one.join();
  std::printf("%ld %ld %ld %ld\n", calls.load(), seen.load(), resident(), count_threads());
}
"""
TORCH = Path(torch.__file__).parent


def build(folder: Path, *flags: str) -> Path:
    source, made = folder / "switched.cpp", folder / "switched"
    source.write_text(text() + PROGRAM)
    directories = [TORCH / "include", TORCH / "include/torch/csrc/api/include"]
    command = ["g++", "-std=c++17", "-O1", *flags, *(f"-I{one}" for one in directories), source]
    libraries = [f"-L{TORCH}/lib", f"-Wl,-rpath,{TORCH}/lib", "-ltorch", "-ltorch_cpu", "-lc10"]
    empty = ["g++", *flags, "-x", "c++", "-", "-o", made]
    if subprocess.run(empty, input=b"int main() {}", check=False).returncode:
        pytest.skip("this compiler has no thread sanitizer")
    subprocess.run([*command, "-o", made, *libraries, "-lpthread"], check=True)
    return made


def run(program: Path, folder: Path, switches: int, probe: str) -> tuple[int, int]:
    """How many calls there were, and by how many KB the process grew in four fifths of them."""
    environment = {
        **os.environ,
        "REWRITER_CONTROL": str(folder / f"{probe}.ctl"),
        "REWRITER_RECORD_BYTES": "64Ki",
        "DUMP": str(folder / f"{probe}.dump"),
        "TSAN_OPTIONS": "exitcode=66",
    }
    ran = subprocess.run(
        [program, str(switches), "8", probe],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[:3000]
    assert ran.stderr == ""
    calls, before, after, threads = map(int, ran.stdout.split())
    assert threads < 30
    return calls, after - before


@pytest.mark.exhaustive
def test_memory_is_flat_in_many_switches(tmp_path: Path) -> None:
    program = build(tmp_path)
    for probe in ("hash", "record", "save"):
        calls, more = run(program, tmp_path, 200, probe)
        assert calls > 100_000
        assert more < 1024  # a session has some 50
        assert (tmp_path / f"{probe}.dump" / ("record" if probe == "record" else "rank0")).is_dir()


@pytest.mark.exhaustive
def test_threads_do_not_race_for_a_session(tmp_path: Path) -> None:
    program = build(tmp_path, "-fsanitize=thread", "-g", "-Wno-tsan")
    for probe in ("hash", "record", "save"):
        run(program, tmp_path, 50, probe)
