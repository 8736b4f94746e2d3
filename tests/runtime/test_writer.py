"""The queue behind the recorder: in order, bounded, and nothing of it is lost."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rewriter.runtime.bundle import SOURCES

pytestmark = pytest.mark.programs
# Numbers, each of which is known only some time after it was put; they are written to a file.
SOURCE = r"""
#include "writer.h"

#include <cstdio>
#include <ctime>
#include <string>

using namespace inductor_rewriter;

static double now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
}

struct File : Writer {
  std::string text;
  FILE* file = nullptr;
  void flush() override {
    std::fwrite(text.data(), 1, text.size(), file);
    std::fflush(file);
    text.clear();
  }
};
static File& output = *new File;  // never destroyed

struct Number : Job {
  Number(int number, double ready) : number(number), ready(ready) {}
  bool is_ready() override { return now() >= ready; }
  void emit() override { output.text += std::to_string(number) + "\n"; }
  int number;
  double ready;
};

static Writer& writer() {
  static const bool added = (Writers::add(output), true);
  (void)added;
  return output;
}

extern "C" {
void test_open(const char* path) { output.file = std::fopen(path, "w"); }
void test_put(int number, double seconds, bool at_once) {
  writer().put(OwnedJob<Job>(new Number(number, now() + seconds)), at_once);
}
bool test_is_idle() { return writer().is_idle(); }
void test_drain() { writer().drain(); }
}
"""

BEGIN = """
import ctypes, os, sys, time
library = ctypes.CDLL(sys.argv[1])
library.test_put.argtypes = [ctypes.c_int, ctypes.c_double, ctypes.c_bool]
library.test_is_idle.restype = ctypes.c_bool
library.test_open(sys.argv[2].encode())
put = library.test_put
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("writer")
    (folder / "writer.cpp").write_text(SOURCE)
    command = ["g++", "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-pedantic", "-shared"]
    # What std::to_string has would keep the library from being unloaded.
    command.append("-fno-gnu-unique")
    options = ["-fPIC", f"-I{SOURCES / 'engine'}", "-o", str(folder / "writer.so"), "-lpthread"]
    subprocess.run([*command, str(folder / "writer.cpp"), *options], check=True)
    return folder / "writer.so"


@pytest.fixture
def written(library: Path, tmp_path: Path) -> Callable[[str], list[int]]:
    """Run a program that puts numbers; those that were written."""

    def run(program: str, status: int = 0) -> list[int]:
        path = tmp_path / "numbers"
        command = [sys.executable, "-c", BEGIN + program, str(library), str(path)]
        ran = subprocess.run(command, check=False, timeout=60, capture_output=True, text=True)
        assert ran.returncode == status, ran.stderr
        return [int(line) for line in path.read_text().splitlines()]

    return run


def test_what_is_ready_is_written_at_once(written: Callable[..., list[int]]) -> None:
    """Also where the program then dies, and no thread is started for it."""
    program = "put(1, 0, False); put(2, 0.05, True); threads = os.listdir('/proc/self/task')\n"
    assert written(program + "assert len(threads) == 1; os.abort()", status=-6) == [1, 2]


def test_the_order_stays(written: Callable[..., list[int]]) -> None:
    program = "put(1, 0.2, False); put(2, 0, False); put(3, 0.05, False); put(4, 0, True)\n"
    assert written(program + "os._exit(0)") == [1, 2, 3, 4]


def test_nothing_is_lost_at_the_end_of_the_process(written: Callable[..., list[int]]) -> None:
    program = "for i in range(100): put(i, 0.3, False)\n"
    assert written(program + "raise SystemExit(3)", status=3) == list(range(100))
    assert written(program + "raise ValueError", status=1) == list(range(100))


def test_nothing_is_lost_when_the_library_is_unloaded(written: Callable[..., list[int]]) -> None:
    """A package's library is, once its loader is gone: no thread may be left in it."""
    program = (
        "import _ctypes\n"
        "for i in range(100): put(i, 0.2, False)\n"
        "_ctypes.dlclose(library._handle)\n"
        "assert len(os.listdir('/proc/self/task')) == 1\n"
        "time.sleep(0.1); os._exit(0)"
    )
    assert written(program) == list(range(100))


def test_it_is_bounded_and_pauses_and_goes_on(written: Callable[..., list[int]]) -> None:
    program = (
        "for i in range(9000): put(i, 0.2 if i == 0 else 0, False)\n"
        "library.test_drain()\n"
        "time.sleep(0.2)\n"  # its thread sleeps
        "put(9000, 0.01, False); library.test_drain(); assert library.test_is_idle()\n"
        "os._exit(0)"
    )
    assert written(program) == list(range(9001))


def test_a_fork_ends_without_it(written: Callable[..., list[int]]) -> None:
    program = (
        "put(1, 0.2, False)\n"
        "if not os.fork(): sys.exit(0)\n"
        "assert os.wait()[1] == 0\n"
        "put(2, 0, False)"
    )
    assert written(program) == [1, 2]
