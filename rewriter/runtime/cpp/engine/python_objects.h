// References to objects of CPython, and short names for what is often done with them.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace {

// A reference that this object owns.
class Object {
 public:
  Object() = default;
  explicit Object(PyObject* owned) : object_(owned) {}
  Object(Object&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Object& operator=(Object&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Object() { Py_XDECREF(object_); }

  static Object of(PyObject* borrowed) {
    Py_XINCREF(borrowed);
    return Object(borrowed);
  }

  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_; }

 private:
  PyObject* object_ = nullptr;
};

Object attribute(PyObject* of, PyObject* name) { return Object(PyObject_GetAttr(of, name)); }

Object call_method(PyObject* of, PyObject* name) {
  return Object(PyObject_VectorcallMethod(name, &of, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
}

Object call_nothing(PyObject* of) { return Object(PyObject_Vectorcall(of, nullptr, 0, nullptr)); }

// 1 or 0, or -1 with an exception.
int truth(const Object& value) { return value ? PyObject_IsTrue(value.get()) : -1; }

bool number(const Object& value, int64_t& to) {
  if (!value) return false;
  to = PyLong_AsLongLong(value.get());
  return to != -1 || !PyErr_Occurred();
}

// The call of the wrapper that runs in this thread, of `calls` by thread; empty if there is none.
Object call_of_this_thread(PyObject* calls) {
  // The key is kept, since mostly one thread asks, many times.
  static unsigned long known = 0;
  static PyObject* key = nullptr;
  const unsigned long thread = PyThread_get_thread_ident();
  if (!key || thread != known) {
    PyObject* const made = PyLong_FromUnsignedLong(thread);
    if (!made) return Object();
    Py_XDECREF(std::exchange(key, made));
    known = thread;
  }
  return Object::of(PyDict_GetItemWithError(calls, key));
}

}  // namespace
