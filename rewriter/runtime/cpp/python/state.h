// What the extension module knows of torch, of Python and of the recorder.
#pragma once

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030a0000
#include <Python.h>

#include <utility>

#include "../objects.h"

namespace inductor_rewriter::python {

// A reference that this object owns.
class Owned {
 public:
  explicit Owned(PyObject* object = nullptr) : object_(object) {}
  Owned(Owned&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Owned() { Py_XDECREF(object_); }
  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_; }

 private:
  PyObject* object_;
};

inline const ObjectFunctions* recorder = nullptr;

// What `use` was given: torch.Tensor, and functions in extension.py.
inline PyObject *tensor_type, *parameter_type, *find_address, *mode_count, *without_modes, *take_tensor, *cannot_guard,
    *is_shared, *save_tensor, *make_positive, *warn;
inline PyObject *name_cdata, *name_is_neg, *name_write, *name_flush, *name_fileno;
inline long forks = 0;  // how often this process was forked from another one, which recorded

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

}  // namespace inductor_rewriter::python
