// The methods that the lines of a wrapper call.
#pragma once

#include <utility>
#include <vector>

#include "calls.h"

namespace inductor_rewriter::python {

// begin(values): a call starts in this thread. `values`: those that it was given, if their number matters.
inline PyObject* lines_begin(PyObject* of, PyObject* const* given, Py_ssize_t count) {
  Lines& self = lines_of(of);
  if (self.is_closed) Py_RETURN_NONE;
  if (!self.is_dormant) {
    end_here(self);
    find_streams();
    add_call(self, without_lock([&] { return recorder->begin(self.table); }));
    write_collected();
  }
  if (!count || !PyList_Check(given[0]) || PyList_Size(given[0]) == self.inputs) Py_RETURN_NONE;
  std::vector<PyObject*> values;
  for (Py_ssize_t i = 0; i < PyList_Size(given[0]); ++i) values.push_back(PyList_GetItem(given[0], i));
  return pass(self, 'g', 0, values.data(), static_cast<Py_ssize_t>(values.size()));
}

// due(): whether a call of a wrapper with dormant probes is recorded, which starts in this thread.
inline PyObject* lines_due(PyObject* of, PyObject*) {
  Lines& self = lines_of(of);
  if (self.is_closed) Py_RETURN_FALSE;
  if (!self.calls->empty()) {
    end_here(self);
    end_of_dead(self);
  }
  void* const call = recorder->begin(self.table);
  if (call) {
    find_streams();
    add_call(self, call);
  }
  write_collected();
  return PyBool_FromLong(call != nullptr);
}

inline PyObject* lines_on(PyObject* of, void*) {
  Lines& self = lines_of(of);
  return PyBool_FromLong(!self.calls->empty() && find_call(self));
}

inline PyObject* lines_inputs(PyObject* self, PyObject* const* given, Py_ssize_t count) {
  return pass(lines_of(self), 'i', 0, given, count);
}

template <char phase>
PyObject* lines_at(PyObject* self, PyObject* const* given, Py_ssize_t count) {
  if (!takes(count, 1)) return nullptr;
  const long launch = PyLong_AsLong(given[0]);
  if (launch == -1 && PyErr_Occurred()) return nullptr;
  return pass(lines_of(self), phase, static_cast<int>(launch), given + 1, count - 1);
}

// Passes a memory line on. Returns what replaces an allocated tensor, or null.
inline void* pass_memory(Lines& self, char line, PyObject* number, PyObject* tensor, const char* problem) {
  void* const call = call_of_line(self);
  if (!call) return nullptr;
  const long index = PyLong_AsLong(number);
  void* implementation = tensor ? implementation_of(tensor) : nullptr;
  if (tensor && !implementation) return nullptr;
  void* other = nullptr;
  undisturbed([&] {
    set_busy(self, true);
    void* const handle = implementation ? &implementation : nullptr;
    other = without_lock(
        [&] { return recorder->memory(call, line, static_cast<int>(index), handle, problem); });
    set_busy(self, false);
  });
  write_collected();
  return other;
}

// The text that a function of extension.py returns; null for an empty one.
inline const char* reason_of(const Owned& text) {
  const char* const reason = text ? PyUnicode_AsUTF8AndSize(text.get(), nullptr) : nullptr;
  return reason && *reason ? reason : nullptr;
}

// allocated(event, tensor): returns the tensor that the wrapper is to use.
inline PyObject* lines_allocated(PyObject* of, PyObject* const* given, Py_ssize_t count) {
  if (!takes(count, 2)) return nullptr;
  if (is_tensor(given[1])) {
    const Owned problem(PyObject_CallFunctionObjArgs(cannot_guard, given[1], nullptr));
    void* const other = pass_memory(lines_of(of), 'a', given[0], given[1], reason_of(problem));
    if (other) {
      const Owned capsule(PyCapsule_New(other, nullptr, nullptr));
      Owned result(capsule ? PyObject_CallFunctionObjArgs(take_tensor, capsule.get(), nullptr) : nullptr);
      if (result) return result.release();
    }
    const Owned nothing(done_or_interrupt());
    if (!nothing) return nullptr;
  }
  Py_INCREF(given[1]);
  return given[1];
}

inline Py_ssize_t references_of_variable = 0;  // that a line sees of a tensor which one variable refers to

// references(event, object): counts those of an object that one variable refers to.
inline PyObject* count_references(PyObject*, PyObject* const* given, Py_ssize_t count) {
  if (!takes(count, 2)) return nullptr;
  references_of_variable = Py_REFCNT(given[1]);
  Py_RETURN_NONE;
}

template <char line>
PyObject* lines_gone(PyObject* of, PyObject* const* given, Py_ssize_t count) {
  if (!takes(count, 2)) return nullptr;
  const bool is_held = Py_REFCNT(given[1]) > references_of_variable;
  if (!is_tensor(given[1])) Py_RETURN_NONE;
  Owned problem(PyObject_CallFunctionObjArgs(cannot_guard, given[1], nullptr));
  const char* reason = reason_of(problem);
  if (!reason && is_held) reason = "another variable has it";
  if (!reason) {
    problem = Owned(PyObject_CallFunctionObjArgs(is_shared, given[1], nullptr));
    reason = reason_of(problem);
  }
  pass_memory(lines_of(of), line, given[0], given[1], reason);
  return done_or_interrupt();
}

inline PyObject* lines_checked(PyObject* self, PyObject* const* given, Py_ssize_t count) {
  if (!takes(count, 1)) return nullptr;
  pass_memory(lines_of(self), 'c', given[0], nullptr, nullptr);
  return done_or_interrupt();
}

inline PyObject* lines_end(PyObject* self, PyObject*) {
  end_here(lines_of(self));
  Py_RETURN_NONE;
}

// Ends all calls but those whose threads are in a line, and writes what is left.
inline void finish(Lines& self, bool is_last) {
  find_call(self);  // forgets what another process left
  for (std::size_t i = self.calls->size(); i-- > 0;) {
    if (i < self.calls->size() && !(*self.calls)[i].is_busy) end_at(self, i);
  }
  without_lock([&] { return recorder->finish(self.table, is_last), 0; });
  write_collected();
}

// close(): ends recording. No call may be running in the wrapper.
inline PyObject* lines_close(PyObject* self, PyObject*) {
  Lines& its = lines_of(self);
  if (!std::exchange(its.is_closed, true)) finish(its, true);
  Py_RETURN_NONE;
}

template <class F>
PyCFunction method(F function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

inline PyMethodDef lines_methods[] = {
    {"begin", method(lines_begin), METH_FASTCALL, nullptr},
    {"due", method(lines_due), METH_NOARGS, nullptr},
    {"inputs", method(lines_inputs), METH_FASTCALL, nullptr},
    {"before", method(lines_at<'b'>), METH_FASTCALL, nullptr},
    {"after", method(lines_at<'a'>), METH_FASTCALL, nullptr},
    {"allocated", method(lines_allocated), METH_FASTCALL, nullptr},
    {"released", method(lines_gone<'f'>), METH_FASTCALL, nullptr},
    {"reused", method(lines_gone<'r'>), METH_FASTCALL, nullptr},
    {"checked", method(lines_checked), METH_FASTCALL, nullptr},
    {"end", method(lines_end), METH_NOARGS, nullptr},
    {"close", method(lines_close), METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr}};
inline PyGetSetDef lines_attributes[] = {
    {"on", lines_on, nullptr, nullptr, nullptr}, {nullptr, nullptr, nullptr, nullptr, nullptr}};
inline PyType_Slot lines_slots[] = {
    {Py_tp_methods, lines_methods}, {Py_tp_getset, lines_attributes}, {0, nullptr}};
inline PyType_Spec lines_spec = {
    "inductor_rewriter_lines.Lines", sizeof(Lines), 0, Py_TPFLAGS_DEFAULT, lines_slots};
inline PyObject* lines_type = nullptr;

}  // namespace inductor_rewriter::python
