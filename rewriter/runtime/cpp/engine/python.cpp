// The extension module of the Python runtime (native_calls.py): what `FastPaths` and `announce` do for a
// launch, without the interpreter. Anything unusual goes to `otherwise`, the same function in Python.

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "python_lines.h"
#include "python_marks.h"
#include "python_objects.h"
#include "python_tensors.h"

namespace {

PyObject *name_runs, *name_pending, *name_slow, *name_queued, *name_is_quick, *name_uses_cuda,
    *name_stdout, *name_descriptor, *name_flush, *name_start, *name_directory, *name_held;

// The base of `Measuring` and `Naming`. `calls` are the running calls of the wrapper, by thread; `phase` is
// "before", "after" or "inputs".
struct Calls {
  PyObject_HEAD
  vectorcallfunc act;
  PyObject *calls, *phase, *otherwise;

  Object call() const { return call_of_this_thread(calls); }

  // A dict: how often each launch came in this call.
  Object runs(PyObject* call) const {
    const Object all = attribute(call, name_runs);
    if (!all || !PyDict_Check(all.get())) return Object();
    return Object::of(PyDict_GetItemWithError(all.get(), phase));
  }
};

// Handles a launch: 1 done, 2 done and there are problems to report, 0 `otherwise` takes it, less than 0 an
// exception.
using Quick = int (*)(Calls&, PyObject* const*, Py_ssize_t);

PyObject* act(
    Quick quick, Calls& self, PyObject* const* given, std::size_t count, PyObject* names,
    PyObject* problem) {
  const Py_ssize_t size = PyVectorcall_NARGS(count);
  int result = 0;
  if (size && !names) {
    result = quick(self, given, size);
    if (PyErr_Occurred()) {
      // `otherwise` reports what is wrong, but an interrupt passes.
      if (!PyErr_ExceptionMatches(PyExc_Exception)) return nullptr;
      PyErr_Clear();
      if (result < 0) result = 0;
    }
  }
  if (result == 1) Py_RETURN_NONE;
  if (result == 2 && problem) return PyObject_Vectorcall(problem, nullptr, 0, nullptr);
  return PyObject_Vectorcall(self.otherwise, given, count, names);
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  Calls& its = *reinterpret_cast<Calls*>(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(its.calls);
  Py_VISIT(its.phase);
  Py_VISIT(its.otherwise);
  return 0;
}

void clear(Calls& self) {
  Py_CLEAR(self.calls);
  Py_CLEAR(self.phase);
  Py_CLEAR(self.otherwise);
}

void release(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

// --- Launches that are measured ----------------------------------------------------------------------

// For a tensor whose memory may have been freed: how many bytes it needs behind its first element, and the
// size of an element. For other tensors `size` is 0.
struct Freed {
  int64_t end = 0, size = 0;
};

// What is known of a launch: `Plan` of plan.py.
struct Known {
  int64_t plan = 0;
  int32_t device = -1;
  Object check;
  bool together = false;
  std::vector<Freed> tensors;
  std::vector<Py_ssize_t> held;
};

using KnownLaunches = std::unordered_map<int64_t, std::shared_ptr<const Known>>;
using Launch = int32_t (*)(const int64_t*);

struct Measuring : Calls {
  PyObject *tell, *get_stream, *get_device, *is_capturing;
  Launch launch;
  KnownLaunches* known;
};

// Does what `RunningCall.hold` does. False: with an exception.
bool hold(
    PyObject* call, PyObject* const* values, Py_ssize_t count, bool together,
    const std::vector<Py_ssize_t>& places) {
  const Object held = attribute(call, name_held);
  if (!held || !PyList_Check(held.get())) return false;
  const Py_ssize_t before = PyList_GET_SIZE(held.get());
  if (!together && before && PyList_SetSlice(held.get(), 0, before, nullptr)) return false;
  const Py_ssize_t wanted = together ? count : static_cast<Py_ssize_t>(places.size());
  if (!wanted) return true;
  const Object some(PyTuple_New(wanted));
  if (!some) return false;
  for (Py_ssize_t i = 0; i < wanted; ++i) {
    PyObject* const value = values[together ? i : places[static_cast<std::size_t>(i)]];
    Py_INCREF(value);
    PyTuple_SET_ITEM(some.get(), i, value);
  }
  return !PyList_Append(held.get(), some.get());
}

int measure(Calls& calls, PyObject* const* given, Py_ssize_t size) {
  Measuring& self = static_cast<Measuring&>(calls);
  const int64_t index = PyLong_AsLongLong(given[0]);
  if (index == -1 && PyErr_Occurred()) return -1;
  const auto found = self.known->find(index);
  if (found == self.known->end()) return 0;
  // A reference of our own: Python code may run below, and remove the plan.
  const std::shared_ptr<const Known> known = found->second;
  if (static_cast<Py_ssize_t>(known->tensors.size()) != size - 1) return 0;
  const Object call = self.call();
  if (!call) return 0;
  if (truth(attribute(call.get(), name_is_quick)) != 1) return 0;
  if (truth(attribute(call.get(), name_pending))) return 0;
  int64_t slow, queued;
  if (!number(attribute(call.get(), name_slow), slow) || slow == index) return 0;
  const Object fits(PyObject_Vectorcall(known->check.get(), given + 1, size - 1, nullptr));
  if (fits.get() != Py_True) return 0;
  int64_t stream = 0;
  if (known->device >= 0) {
    int64_t current;
    if (self.get_device &&
        (!number(call_nothing(self.get_device), current) || current != known->device)) {
      return 0;
    }
    if (!tensors::find_stream(self.get_stream, known->device, stream)) return 0;
  } else if (const int uses = truth(attribute(call.get(), name_uses_cuda))) {
    if (uses < 0 || truth(call_nothing(self.is_capturing))) return 0;
  }
  const Object runs = self.runs(call.get());
  if (!runs) return 0;
  int64_t iteration = 0;
  PyObject* const before = PyDict_GetItemWithError(runs.get(), given[0]);
  if (!before && PyErr_Occurred()) return -1;
  if (before && (iteration = PyLong_AsLongLong(before)) < 0) return 0;
  if (!number(attribute(call.get(), name_queued), queued) || !queued) return 0;
  constexpr Py_ssize_t few = 60;
  int64_t room[4 + few];
  std::vector<int64_t> more;
  int64_t* packed = room;
  if (size - 1 > few) {
    more.resize(static_cast<std::size_t>(size) + 3);
    packed = more.data();
  }
  packed[0] = queued;
  packed[1] = known->plan;
  packed[2] = iteration;
  packed[3] = stream;
  for (Py_ssize_t i = 1; i < size; ++i) {
    const Freed& freed = known->tensors[static_cast<std::size_t>(i - 1)];
    const bool is_there = freed.size
        ? tensors::find_data_of(given[i], freed.end, freed.size, packed[3 + i])
        : tensors::find_data(given[i], packed[3 + i]);
    if (!is_there) return 0;
  }
  const Object next(PyLong_FromLongLong(iteration + 1));
  if (!next) return -1;
  // The plan may have been removed since.
  const auto still = self.known->find(index);
  if (still == self.known->end() || still->second != known) return 0;
  int result;
  Py_BEGIN_ALLOW_THREADS
  result = self.launch(packed);
  Py_END_ALLOW_THREADS
  // Running out of memory while counting is no reason to measure it again.
  if (result && PyDict_SetItem(runs.get(), given[0], next.get())) PyErr_Clear();
  if (result && !hold(call.get(), given + 1, size - 1, known->together, known->held)) PyErr_Clear();
  return result;
}

PyObject* measuring_call(
    PyObject* self, PyObject* const* given, std::size_t count, PyObject* names) {
  Measuring& its = *reinterpret_cast<Measuring*>(self);
  return act(measure, its, given, count, names, its.tell);
}

PyObject* measuring_new(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject *calls, *phase, *otherwise, *tell, *get_stream, *get_device, *is_capturing;
  unsigned long long launch;
  if (!PyArg_ParseTuple(
          args, "O!UOOOOOK", &PyDict_Type, &calls, &phase, &otherwise, &tell, &get_stream,
          &get_device, &is_capturing, &launch)) {
    return nullptr;
  }
  PyObject* const made = type->tp_alloc(type, 0);
  if (!made) return nullptr;
  Measuring& self = *reinterpret_cast<Measuring*>(made);
  self.act = measuring_call;
  Py_INCREF(self.calls = calls);
  Py_INCREF(self.phase = phase);
  Py_INCREF(self.otherwise = otherwise);
  Py_INCREF(self.tell = tell);
  Py_INCREF(self.get_stream = get_stream);
  if (get_device != Py_None) Py_INCREF(self.get_device = get_device);
  Py_INCREF(self.is_capturing = is_capturing);
  self.launch = reinterpret_cast<Launch>(static_cast<uintptr_t>(launch));
  self.known = new (std::nothrow) KnownLaunches;
  if (!self.known) {
    Py_DECREF(made);
    return PyErr_NoMemory();
  }
  return made;
}

// keep(launch, plan, device, check, tensors, ((place, end, size), ...), together, (place held, ...))
PyObject* measuring_keep(PyObject* self, PyObject* args) {
  long long index, plan;
  int device;
  Py_ssize_t tensors;
  PyObject *check, *all, *held;
  int together;
  if (!PyArg_ParseTuple(
          args, "LLiOnO!pO!", &index, &plan, &device, &check, &tensors, &PyTuple_Type, &all,
          &together, &PyTuple_Type, &held)) {
    return nullptr;
  }
  if (tensors < 0) {
    PyErr_SetString(PyExc_ValueError, "a number of tensors below 0");
    return nullptr;
  }
  const auto known = std::make_shared<Known>();
  known->plan = plan;
  known->device = device;
  known->check = Object::of(check);
  known->tensors.resize(static_cast<std::size_t>(tensors));
  known->together = together;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(all); ++i) {
    long long end, size;
    Py_ssize_t place;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(all, i), "nLL", &place, &end, &size)) return nullptr;
    if (place < 0 || place >= tensors) {
      PyErr_SetString(PyExc_IndexError, "no such tensor");
      return nullptr;
    }
    known->tensors[static_cast<std::size_t>(place)] = {end, size};
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(held); ++i) {
    const Py_ssize_t place = PyLong_AsSsize_t(PyTuple_GET_ITEM(held, i));
    if (place < 0 || place >= tensors) {
      if (!PyErr_Occurred()) PyErr_SetString(PyExc_IndexError, "no such tensor");
      return nullptr;
    }
    known->held.push_back(place);
  }
  // Freed last: that may run Python code.
  const std::shared_ptr<const Known> before = std::exchange(
      (*reinterpret_cast<Measuring*>(self)->known)[index], std::shared_ptr<const Known>(known));
  Py_RETURN_NONE;
}

PyObject* measuring_forget(PyObject* self, PyObject*) {
  KnownLaunches gone;
  gone.swap(*reinterpret_cast<Measuring*>(self)->known);
  Py_RETURN_NONE;
}

int measuring_traverse(PyObject* self, visitproc visit, void* arg) {
  Measuring& its = *reinterpret_cast<Measuring*>(self);
  Py_VISIT(its.tell);
  Py_VISIT(its.get_stream);
  Py_VISIT(its.get_device);
  Py_VISIT(its.is_capturing);
  if (its.known) {
    for (auto& [index, known] : *its.known) {
      // A launch that is running refers to it, too: then it is no garbage.
      if (known.use_count() == 1) Py_VISIT(known->check.get());
    }
  }
  return traverse(self, visit, arg);
}

int measuring_clear(PyObject* self) {
  Measuring& its = *reinterpret_cast<Measuring*>(self);
  clear(its);
  Py_CLEAR(its.tell);
  Py_CLEAR(its.get_stream);
  Py_CLEAR(its.get_device);
  Py_CLEAR(its.is_capturing);
  if (its.known) {
    KnownLaunches gone;
    gone.swap(*its.known);
  }
  return 0;
}

void measuring_free(PyObject* self) {
  PyObject_GC_UnTrack(self);
  measuring_clear(self);
  delete reinterpret_cast<Measuring*>(self)->known;
  release(self);
}

// --- Names ---------------------------------------------------------------------------------------------

struct Naming : Calls {
  PyObject *is_capturing, *lines, *row, *rest;
};

int announce(Calls& calls, PyObject* const* given, Py_ssize_t) {
  Naming& self = static_cast<Naming&>(calls);
  const Object call = self.call();
  if (!call) return 0;
  const Object stdout_ = attribute(call.get(), name_stdout);
  if (!stdout_ || stdout_.get() == Py_None) return 0;
  const Object runs = self.runs(call.get());
  if (!runs || PyDict_Contains(runs.get(), given[0])) return 0;
  if (truth(attribute(call.get(), name_pending))) return 0;
  if (const int uses = truth(attribute(call.get(), name_uses_cuda))) {
    if (uses < 0 || truth(call_nothing(self.is_capturing))) return 0;
  }
  int64_t descriptor;
  if (!number(attribute(stdout_.get(), name_descriptor), descriptor)) return 0;
  const Object line = Object::of(PyDict_GetItemWithError(self.lines, given[0]));
  const Object start = attribute(call.get(), name_start);
  if (!line || !start || !PyBytes_Check(line.get()) || !PyBytes_Check(start.get())) return 0;
  if (descriptor >= 0) {
    const Object flush = attribute(stdout_.get(), name_flush);
    if (!flush || !call_nothing(flush.get())) return 0;
    const std::size_t begin = static_cast<std::size_t>(PyBytes_GET_SIZE(start.get()));
    const std::size_t size = begin + static_cast<std::size_t>(PyBytes_GET_SIZE(line.get()));
    char room[1024];
    std::string more;
    char* text = room;
    if (size > sizeof room) {
      more.resize(size);
      text = &more[0];
    }
    std::memcpy(text, PyBytes_AS_STRING(start.get()), begin);
    std::memcpy(text + begin, PyBytes_AS_STRING(line.get()), size - begin);
    ssize_t written;
    Py_BEGIN_ALLOW_THREADS
    written = write(static_cast<int>(descriptor), text, size);
    Py_END_ALLOW_THREADS
    if (written < 0) return 0;  // Python writes it, or says why it cannot
    if (static_cast<std::size_t>(written) < size) {
      const Object done(PyObject_CallFunction(
          self.rest, "OLy#", given[0], static_cast<long long>(descriptor), text + written,
          static_cast<Py_ssize_t>(size) - written));
      if (!done) return 1;
    }
  }
  const Object once(PyLong_FromLong(1));
  if (!once || PyDict_SetItem(runs.get(), given[0], once.get())) return 1;
  const Object directory = attribute(call.get(), name_directory);
  if (directory && directory.get() != Py_None) {
    PyObject* const about[] = {given[0], directory.get()};
    const Object done(PyObject_Vectorcall(self.row, about, 2, nullptr));
  }
  return 1;
}

PyObject* naming_call(PyObject* self, PyObject* const* given, std::size_t count, PyObject* names) {
  return act(announce, *reinterpret_cast<Naming*>(self), given, count, names, nullptr);
}

PyObject* naming_new(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject *calls, *phase, *otherwise, *is_capturing, *lines, *row, *rest;
  if (!PyArg_ParseTuple(
          args, "O!UOOO!OO", &PyDict_Type, &calls, &phase, &otherwise, &is_capturing, &PyDict_Type,
          &lines, &row, &rest)) {
    return nullptr;
  }
  PyObject* const made = type->tp_alloc(type, 0);
  if (!made) return nullptr;
  Naming& self = *reinterpret_cast<Naming*>(made);
  self.act = naming_call;
  Py_INCREF(self.calls = calls);
  Py_INCREF(self.phase = phase);
  Py_INCREF(self.otherwise = otherwise);
  Py_INCREF(self.is_capturing = is_capturing);
  Py_INCREF(self.lines = lines);
  Py_INCREF(self.row = row);
  Py_INCREF(self.rest = rest);
  return made;
}

int naming_traverse(PyObject* self, visitproc visit, void* arg) {
  Naming& its = *reinterpret_cast<Naming*>(self);
  Py_VISIT(its.is_capturing);
  Py_VISIT(its.lines);
  Py_VISIT(its.row);
  Py_VISIT(its.rest);
  return traverse(self, visit, arg);
}

int naming_clear(PyObject* self) {
  Naming& its = *reinterpret_cast<Naming*>(self);
  clear(its);
  Py_CLEAR(its.is_capturing);
  Py_CLEAR(its.lines);
  Py_CLEAR(its.row);
  Py_CLEAR(its.rest);
  return 0;
}

void naming_free(PyObject* self) {
  PyObject_GC_UnTrack(self);
  naming_clear(self);
  release(self);
}

// --- The module ---------------------------------------------------------------------------------------------

PyMethodDef measuring_methods[] = {
    {"keep", measuring_keep, METH_VARARGS, nullptr},
    {"forget", measuring_forget, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr}};

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Calls, act), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

constexpr unsigned flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_HAVE_GC;

template <class F>
void* pointer(F function) {
  return reinterpret_cast<void*>(function);
}

PyType_Slot measuring_slots[] = {
    {Py_tp_new, pointer(measuring_new)}, {Py_tp_dealloc, pointer(measuring_free)},
    {Py_tp_traverse, pointer(measuring_traverse)}, {Py_tp_clear, pointer(measuring_clear)},
    {Py_tp_call, pointer(PyVectorcall_Call)}, {Py_tp_members, members},
    {Py_tp_methods, measuring_methods}, {0, nullptr}};
PyType_Spec measuring_spec = {
    "inductor_rewriter_calls.Measuring", sizeof(Measuring), 0, flags, measuring_slots};

PyType_Slot naming_slots[] = {
    {Py_tp_new, pointer(naming_new)}, {Py_tp_dealloc, pointer(naming_free)},
    {Py_tp_traverse, pointer(naming_traverse)}, {Py_tp_clear, pointer(naming_clear)},
    {Py_tp_call, pointer(PyVectorcall_Call)}, {Py_tp_members, members}, {0, nullptr}};
PyType_Spec naming_spec = {
    "inductor_rewriter_calls.Naming", sizeof(Naming), 0, flags, naming_slots};

PyMethodDef functions[] = {
    {"use_shim", tensors::use_shim, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef about = {
    PyModuleDef_HEAD_INIT, "inductor_rewriter_calls", nullptr, -1, functions, nullptr, nullptr,
    nullptr, nullptr};

bool add(PyObject* module, const char* name, PyType_Spec& spec) {
  Object type(PyType_FromSpec(&spec));
  return type && !PyObject_SetAttrString(module, name, type.get());
}

}  // namespace

PyMODINIT_FUNC PyInit_inductor_rewriter_calls() {
  const std::pair<PyObject**, const char*> names[] = {
      {&name_runs, "runs"}, {&name_pending, "pending"}, {&name_slow, "slow"},
      {&name_queued, "queued"}, {&name_is_quick, "is_quick"}, {&name_uses_cuda, "uses_cuda"},
      {&name_stdout, "stdout"}, {&name_descriptor, "descriptor"}, {&name_flush, "flush"},
      {&name_start, "start"}, {&name_directory, "directory"}, {&name_held, "held"},
      {&marks::name_slot_address, "slot_address"},
      {&marks::name_mark, "mark"}, {&marks::name_marked, "marked"},
      {&marks::name_enter, "enter"}, {&tensors::name_cdata, "_cdata"},
      {&tensors::name_data_ptr, "data_ptr"}, {&tensors::name_nbytes, "nbytes"},
      {&tensors::name_untyped_storage, "untyped_storage"},
      {&tensors::name_storage_offset, "storage_offset"}};
  for (const auto& [to, text] : names) {
    if (!*to && !(*to = PyUnicode_InternFromString(text))) return nullptr;
  }
  Object module(PyModule_Create(&about));
  if (!module || !add(module.get(), "Measuring", measuring_spec) ||
      !add(module.get(), "Naming", naming_spec) ||
      !add(module.get(), "Marking", marks::marking_spec) || !regions::add_lines(module.get())) {
    return nullptr;
  }
  PyObject* const result = module.get();
  Py_INCREF(result);
  return result;
}
