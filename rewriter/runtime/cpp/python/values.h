// The values of a line, as the recorder takes them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "state.h"

namespace inductor_rewriter::python {

// The values of a line, with what keeps them valid until it returns.
class Values {
 public:
  bool add(PyObject* value) {
    Object one{'o', 0, 0, nullptr, nullptr, nullptr};
    if (value == Py_None) return add(one);
    if (is_tensor(value)) {
      one.kind = 't';
      void* implementation = implementation_of(value);
      if (!implementation) return false;
      // The numbers of a negative view are not those in its memory, which torch's C shim does not tell.
      const Owned is_negative(is_plain(value) ? PyObject_CallMethodObjArgs(value, name_is_neg, nullptr) : nullptr);
      if (is_negative.get() == Py_True) {
        kept_.emplace_back(PyObject_CallFunctionObjArgs(make_positive, value, nullptr));
        value = kept_.back().get();
        if (!value || !(implementation = implementation_of(value))) return false;
      }
      tensors_.push_back({implementation, value, all_.size()});
      return add(one);
    }
    if (PyList_Check(value) || PyTuple_Check(value)) {
      const bool is_list = PyList_Check(value);
      const Py_ssize_t size = is_list ? PyList_Size(value) : PyTuple_Size(value);
      one.kind = 'l';
      one.integer = size;
      if (!add(one)) return false;
      for (Py_ssize_t i = 0; i < size; ++i) {
        PyObject* const member = is_list ? PyList_GetItem(value, i) : PyTuple_GetItem(value, i);
        if (!member || !add(member)) return false;
      }
      return true;
    }
    if (value == Py_True || value == Py_False) {
      one.kind = 'b';
      one.integer = value == Py_True;
      return add(one);
    }
    if (PyLong_CheckExact(value)) {
      int overflow = 0;
      one.kind = 'i';
      one.integer = PyLong_AsLongLongAndOverflow(value, &overflow);
      if (!overflow) return add(one);
    } else if (PyFloat_CheckExact(value)) {
      one.kind = 'f';
      one.floating = PyFloat_AsDouble(value);
      return add(one);
    }
    one.kind = 's';
    PyObject* const type = reinterpret_cast<PyObject*>(Py_TYPE(value));
    one.type = text_of(Owned(PyObject_GetAttrString(type, "__name__")));
    one.text = one.type ? text_of(Owned(PyObject_Repr(value))) : nullptr;
    if (!one.text && !is_reported()) return false;
    if (!one.text) one.text = "?";
    return add(one);
  }

  const Object* data() {
    for (const Tensor& tensor : tensors_) all_[tensor.place].tensor = const_cast<void**>(&tensor.implementation);
    return all_.data();
  }
  int count() const { return static_cast<int>(all_.size()); }

  // The object that the handle of a tensor in this line is of.
  PyObject* object_of(const void* handle) const {
    for (const Tensor& tensor : tensors_) {
      if (tensor.implementation == *static_cast<void* const*>(handle)) return tensor.object;
    }
    return nullptr;
  }

  void clear() {
    all_.clear();
    tensors_.clear();
    kept_.clear();
  }

 private:
  struct Tensor {
    void* implementation;
    PyObject* object;
    std::size_t place;
  };

  bool add(const Object& one) {
    all_.push_back(one);
    return true;
  }
  const char* text_of(Owned text) {
    const char* const result = text ? PyUnicode_AsUTF8AndSize(text.get(), nullptr) : nullptr;
    if (!result && text && PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) {
      PyErr_Clear();  // lone surrogates
      Owned bytes(PyUnicode_AsEncodedString(text.get(), "utf-8", "backslashreplace"));
      kept_.push_back(std::move(bytes));
      return kept_.back() ? PyBytes_AsString(kept_.back().get()) : nullptr;
    }
    kept_.push_back(std::move(text));
    return result;
  }

  std::vector<Object> all_;
  std::vector<Tensor> tensors_;
  std::vector<Owned> kept_;
};

inline thread_local Values* line_of_thread = nullptr;  // the line that this thread is in

inline const char* save_for_recorder(void* tensor, const char* path) {
  static thread_local std::string problem;
  const PyGILState_STATE state = PyGILState_Ensure();
  problem = "it is not known to Python";
  PyObject* const object = line_of_thread ? line_of_thread->object_of(tensor) : nullptr;
  if (object) {
    const Owned done(PyObject_CallFunction(save_tensor, "Os", object, path));
    PyErr_Clear();
    const char* const text = done && PyUnicode_Check(done.get()) ? PyUnicode_AsUTF8AndSize(done.get(), nullptr) : "";
    problem = text ? text : "";
  }
  PyGILState_Release(state);
  return problem.empty() ? nullptr : problem.c_str();
}

}  // namespace inductor_rewriter::python
