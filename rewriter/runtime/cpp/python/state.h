// What the extension module knows of torch, of Python and of the recorder, and where lines go: to the files that the
// program's streams write to, or through these streams.
#pragma once

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030a0000
#include <Python.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <utility>

#include "../engine/process.h"
#include "../objects.h"

namespace inductor_rewriter::python {

struct Release {
  void operator()(PyObject* object) const { Py_DECREF(object); }
};
using Owned = std::unique_ptr<PyObject, Release>;

inline const ObjectFunctions* recorder = nullptr;

// What `use` was given: torch.Tensor, and functions in extension.py.
inline PyObject *tensor_type, *parameter_type, *find_address, *mode_count, *without_modes, *take_tensor, *cannot_guard,
    *is_shared, *save_tensor, *make_positive, *warn;
inline PyObject *name_cdata, *name_is_neg, *name_write, *name_flush, *name_fileno;

inline bool is_tensor(PyObject* value) {
  PyTypeObject* const type = Py_TYPE(value);
  return reinterpret_cast<PyObject*>(type) == tensor_type ||
      PyType_IsSubtype(type, reinterpret_cast<PyTypeObject*>(tensor_type));
}

// Whether a tensor is of no subclass, which may override its functions.
inline bool is_plain(PyObject* tensor) {
  PyObject* const type = reinterpret_cast<PyObject*>(Py_TYPE(tensor));
  return type == tensor_type || type == parameter_type;
}

// The TensorImpl of a tensor; null with an exception.
inline void* implementation_of(PyObject* tensor) {
  const Owned address(
      is_plain(tensor) ? PyObject_GetAttr(tensor, name_cdata)
                       : PyObject_CallFunctionObjArgs(find_address, tensor, nullptr));
  return address ? PyLong_AsVoidPtr(address.get()) : nullptr;
}

// Reports an exception of reading values, which must not stop the model. False for one that passes, such as an
// interrupt.
inline bool is_reported() {
  if (!PyErr_Occurred()) return true;
  if (!PyErr_ExceptionMatches(PyExc_Exception)) return false;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  const Owned owned[] = {Owned(type), Owned(value), Owned(traceback)};
  const Owned done(PyObject_CallFunctionObjArgs(warn, value, nullptr));
  PyErr_Clear();
  return true;
}

inline PyObject* done_or_interrupt() {
  if (!is_reported()) return nullptr;
  Py_RETURN_NONE;
}

// Where the program prints: -1 where that is no file, so that lines are collected and written by Python.
struct Stream {
  const char* name;
  PyObject* known;  // the object in `sys` that this is about
  int descriptor;
};
inline Stream streams[] = {{"stdout", nullptr, STDOUT_FILENO}, {"stderr", nullptr, STDERR_FILENO}};

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
