"""The ring of the probe `record` by itself, and its triggers: cpp/engine/flight.h, triggers.h."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import subprocess
from pathlib import Path

from rewriter.dump import flight
from rewriter.runtime.bundle import SOURCES

VALUE = struct.Struct("@3i??2xqqqddQ")  # TriggerValue
_SOURCE = r"""
#include "triggers.h"

using namespace inductor_rewriter;

extern "C" {
void* test_ring(const char* root, int rank) {
  return &FlightRing::of(root, rank);
}
// What a test sees of a ring.
struct Open : FlightRing {
  static const std::string& path(const FlightRing& ring) { return ring.*&Open::path_; }
  static const void* memory(const FlightRing& ring) { return ring.*&Open::header_; }
};
const char* test_path(FlightRing* ring) { return Open::path(*ring).c_str(); }
void test_start(FlightRing* ring, uint64_t number, uint64_t table, FlightCall* to) {
  *to = ring->start(number, table);
}
uint64_t test_enter(FlightRing* ring, const FlightCall* call) {
  const FlightSlot& slot = ring->enter(*call);
  return reinterpret_cast<uintptr_t>(&slot) - reinterpret_cast<uintptr_t>(Open::memory(*ring));
}
void test_rows(FlightRing* ring, const FlightCall* call, const char* data, std::size_t size) {
  ring->append_rows(*call, data, size);
}
void test_end(FlightRing* ring, const FlightCall* call) {
  ring->append(*call, FlightRing::end, nullptr, 0);
}
void test_finish(FlightRing* ring) { ring->finish(); }
void* test_triggers(FlightRing* ring, const char* root, const char* wanted) {
  return new Triggers(*ring, root, 0, wanted, {});
}
void test_see(Triggers* triggers, const FlightCall* call, const TriggerValue* value) {
  triggers->see(*call, *value, "x");
  triggers->fire();
}
}
"""


def build(folder: Path) -> ctypes.CDLL:
    (folder / "rings.cpp").write_text(_SOURCE)
    flags = ["-std=c++17", "-O1", "-shared", "-fPIC", "-fno-gnu-unique", "-pthread"]
    command = ["g++", *flags, f"-I{SOURCES / 'engine'}", str(folder / "rings.cpp")]
    subprocess.run([*command, "-o", str(folder / "rings.so")], check=True)
    library = ctypes.CDLL(str(folder / "rings.so"))
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64
    for name, result, *arguments in (
        ("ring", pointer, text, ctypes.c_int),
        ("path", text, pointer),
        ("start", None, pointer, number, number, text),
        ("enter", number, pointer, text),
        ("rows", None, pointer, text, text, number),
        ("end", None, pointer, text),
        ("finish", None, pointer),
        ("triggers", pointer, pointer, text, text),
        ("see", None, pointer, text, text),
    ):
        function = getattr(library, f"test_{name}")
        function.restype, function.argtypes = result, arguments
    return library


class Ring:
    """That of this process in a dump, whose folder is there; `memory` is the file."""

    def __init__(self, library: ctypes.CDLL, folder: Path) -> None:
        self._library, self._folder = library, os.fsencode(folder)
        self._ring = library.test_ring(self._folder, 0)
        assert self._ring
        self.path = Path(os.fsdecode(library.test_path(self._ring)))
        with self.path.open("r+b") as file:
            self.memory = mmap.mmap(file.fileno(), 0)

    def start(self, number: int, table: int) -> bytes:
        """Begin a call of a wrapper: what identifies it."""
        call = ctypes.create_string_buffer(flight.CALL.size)
        self._library.test_start(self._ring, number, table, call)
        return call.raw

    def enter(self, call: bytes) -> int:
        """The offset of the marks of the thread of a call."""
        return int(self._library.test_enter(self._ring, call))

    def rows(self, call: bytes, data: bytes) -> None:
        self._library.test_rows(self._ring, call, data, len(data))

    def end(self, call: bytes) -> None:
        self._library.test_end(self._ring, call)

    def finish(self) -> None:
        self._library.test_finish(self._ring)

    def triggers(self, wanted: str) -> int:
        return int(self._library.test_triggers(self._ring, self._folder, wanted.encode()))

    def see(self, triggers: int, call: bytes, value: bytes) -> None:
        """Have triggers look at a value, and write what they found."""
        self._library.test_see(triggers, call, value)
