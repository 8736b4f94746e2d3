// The type `Marking` of the extension module: marks in the ring of the probe `record`, which
// flight_marks.py leaves in Python.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <cstddef>
#include <cstdint>

#include "flight_slot.h"
#include "python_objects.h"

namespace {
namespace marks {

using inductor_rewriter::FlightSlot;

PyObject *name_slot_address, *name_mark, *name_marked, *name_enter;

// Takes the place of the function `otherwise` of flight_marks.py, which handles a thread without a known
// call. `calls` are the running calls of the wrapper, by thread; `act` is what else is done at the phase of
// a launch: after the mark that it ended, before the mark that it begins, and not at all if marks are
// `alone`.
struct Marking {
  PyObject_HEAD
  vectorcallfunc leave;
  PyObject *calls, *act, *otherwise;
  bool begins, alone;
};

// The slot of a call; null if it leaves no marks, or with an exception.
FlightSlot* slot_of(PyObject* call) {
  int64_t address;
  if (!number(attribute(call, name_slot_address), address)) return nullptr;
  return reinterpret_cast<FlightSlot*>(static_cast<intptr_t>(address));
}

// Counts that the launch of a call begins, or looks up how often it did before. False: with an exception.
bool count(PyObject* call, PyObject* launch, bool begins, int64_t& iteration) {
  const Object marked = attribute(call, name_marked);  // a dict: how often each launch began
  if (!marked) return false;
  PyObject* const before = PyDict_GetItemWithError(marked.get(), launch);
  int64_t began = begins ? 0 : 1;  // after a launch whose beginning left no mark
  if (before ? (began = PyLong_AsLongLong(before)) < 0 : PyErr_Occurred() != nullptr) return false;
  iteration = begins ? began : began - 1;
  if (!begins) return true;
  const Object next(PyLong_FromLongLong(began + 1));
  return next && !PyDict_SetItem(marked.get(), launch, next.get());
}

// False: with an exception.
bool leave_mark(PyObject* call, PyObject* launch, bool begins) {
  FlightSlot* slot = slot_of(call);
  if (!slot) return !PyErr_Occurred();
  const long index = PyLong_AsLong(launch);
  if (index == -1 && PyErr_Occurred()) return false;
  int64_t serial, iteration;
  if (!number(attribute(call, name_mark), serial)) return false;
  const bool was_lost = slot->call != static_cast<uint64_t>(serial);  // to another thread or call
  if (was_lost) {
    if (!call_method(call, name_enter)) return false;
    if (!(slot = slot_of(call))) return !PyErr_Occurred();
  }
  if (!count(call, launch, begins, iteration)) return false;
  const auto which = static_cast<int32_t>(index), again = static_cast<int32_t>(iteration);
  if (begins || was_lost) slot->begin(which, again);
  if (!begins) slot->end(which, again);
  return true;
}

PyObject* marking_call(PyObject* marking, PyObject* const* given, std::size_t count, PyObject* names) {
  Marking& self = *reinterpret_cast<Marking*>(marking);
  const Object call = PyVectorcall_NARGS(count) && !names ? call_of_this_thread(self.calls) : Object();
  if (!call) {
    if (PyErr_Occurred()) return nullptr;
    return PyObject_Vectorcall(self.otherwise, given, count, names);
  }
  if (!self.begins) {
    if (!leave_mark(call.get(), given[0], false)) return nullptr;
    return PyObject_Vectorcall(self.act, given, count, names);
  }
  if (!self.alone) {
    const Object done(PyObject_Vectorcall(self.act, given, count, names));
    if (!done) return nullptr;
  }
  if (!leave_mark(call.get(), given[0], true)) return nullptr;
  Py_RETURN_NONE;
}

// Marking(calls, act, otherwise, begins, alone)
PyObject* marking_new(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject *calls, *act, *otherwise;
  int begins, alone;
  if (!PyArg_ParseTuple(args, "O!OOpp", &PyDict_Type, &calls, &act, &otherwise, &begins, &alone)) {
    return nullptr;
  }
  PyObject* const made = type->tp_alloc(type, 0);
  if (!made) return nullptr;
  Marking& self = *reinterpret_cast<Marking*>(made);
  self.leave = marking_call;
  Py_INCREF(self.calls = calls);
  Py_INCREF(self.act = act);
  Py_INCREF(self.otherwise = otherwise);
  self.begins = begins;
  self.alone = alone;
  return made;
}

int marking_traverse(PyObject* self, visitproc visit, void* arg) {
  Marking& its = *reinterpret_cast<Marking*>(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(its.calls);
  Py_VISIT(its.act);
  Py_VISIT(its.otherwise);
  return 0;
}

int marking_clear(PyObject* self) {
  Marking& its = *reinterpret_cast<Marking*>(self);
  Py_CLEAR(its.calls);
  Py_CLEAR(its.act);
  Py_CLEAR(its.otherwise);
  return 0;
}

void marking_free(PyObject* self) {
  PyObject_GC_UnTrack(self);
  marking_clear(self);
  PyTypeObject* const type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyMemberDef marking_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Marking, leave), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

PyType_Slot marking_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(marking_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(marking_free)},
    {Py_tp_traverse, reinterpret_cast<void*>(marking_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(marking_clear)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_members, marking_members}, {0, nullptr}};
PyType_Spec marking_spec = {
    "inductor_rewriter_calls.Marking", sizeof(Marking), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_HAVE_GC, marking_slots};

}  // namespace marks
}  // namespace
