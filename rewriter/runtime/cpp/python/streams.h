// Where lines go: to the files that the program's streams write to, or through these streams.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "state.h"

namespace inductor_rewriter::python {

// Where the program prints: -1 where that is no file, so that lines are collected and written by Python.
struct Stream {
  const char* name;
  int standard;
  PyObject* known;  // the object in `sys` that this is about
  int descriptor;
};
inline Stream streams[] = {
    {"stdout", STDOUT_FILENO, nullptr, STDOUT_FILENO},
    {"stderr", STDERR_FILENO, nullptr, STDERR_FILENO}};

// Notes where a stream of `sys` writes to. True if that changed.
inline bool find_stream(Stream& stream) {
  PyObject* const now = PySys_GetObject(stream.name);
  if (now == stream.known) return false;
  Py_XINCREF(now);
  Py_XDECREF(std::exchange(stream.known, now));
  stream.descriptor = -1;  // where there is none, what is collected goes nowhere
  if (!now || now == Py_None) return true;
  const Owned number(PyObject_CallMethodObjArgs(now, name_fileno, nullptr));
  const long descriptor = number ? PyLong_AsLong(number.get()) : -1;
  PyErr_Clear();
  stream.descriptor = static_cast<int>(descriptor);
  return true;
}

inline void flush(const Stream& stream) {
  if (!stream.known || stream.known == Py_None) return;
  const Owned done(PyObject_CallMethodObjArgs(stream.known, name_flush, nullptr));
  PyErr_Clear();
}

// Has lines go where the program prints now, after what it printed.
inline void find_streams() {
  const bool has_changed = find_stream(streams[0]) | find_stream(streams[1]);
  if (streams[0].descriptor >= 0) flush(streams[0]);
  if (has_changed) recorder->print_to(streams[0].descriptor, streams[1].descriptor == STDERR_FILENO ? STDERR_FILENO : -1);
}

// Writes what was collected.
inline void write_collected() {
  for (int i = 0; i < 2; ++i) {
    const bool collects = i ? streams[1].descriptor != STDERR_FILENO : streams[0].descriptor < 0;
    if (!collects) continue;
    std::size_t size = 0;
    char* const text = recorder->collected(i, &size);
    if (!text) continue;
    const Owned lines(PyUnicode_DecodeUTF8(text, static_cast<Py_ssize_t>(size), "backslashreplace"));
    std::free(text);
    PyObject* const to = PySys_GetObject(streams[i].name);
    if (lines && to && to != Py_None) {
      const Owned done(PyObject_CallMethodObjArgs(to, name_write, lines.get(), nullptr));
      PyErr_Clear();
      const Owned flushed(PyObject_CallMethodObjArgs(to, name_flush, nullptr));
    }
    PyErr_Clear();
  }
}

}  // namespace inductor_rewriter::python
