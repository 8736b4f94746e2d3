// The types `Lines` and `Watching` of the extension module: the lines about memory of a Python wrapper, and
// the state of a call that they share.
#pragma once

#include "python_memory.h"

namespace {
namespace regions {

// Acts, and drops exceptions: the Python path then reports what is wrong. False: with an exception that is
// no error, such as KeyboardInterrupt.
template <class F>
bool acts(F act) {
  try {
    act();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  }
  if (!PyErr_Occurred()) return true;
  if (!PyErr_ExceptionMatches(PyExc_Exception)) return false;
  PyErr_Clear();
  return true;
}

bool takes(Py_ssize_t count, Py_ssize_t wanted) {
  if (count != wanted) PyErr_Format(PyExc_TypeError, "expected %zd arguments", wanted);
  return count == wanted;
}

// Calls `act` for a line, in the call that runs in this thread. `is_done` is what it returns; if false, the
// Python path takes the line. The work on memory is left to the next line (`waiting`) if nothing runs in
// between and Python guards no buffers of the call. False: with an exception.
template <class F>
bool take_line(
    Lines& self, const std::unordered_set<int64_t>& waiting, PyObject* number, bool& is_done, F act) {
  bool waits = false;
  const bool is_well = acts([&] {
    Object call;
    const std::shared_ptr<Watch> watch = watch_of(self, call);
    const int64_t index = watch ? PyLong_AsLongLong(number) : -1;
    if (index < 0) return;
    is_done = act(watch, index);
    waits = is_done && !watch->has_others && waiting.count(index);
    if (!waits) settle(self, *watch);
    if (is_done && std::exchange(watch->is_damaged, false)) self.call(report, call.get());
  });
  if (!waits) settle_measured(self);
  return is_well;
}

PyObject* take(Object& result) {
  PyObject* const taken = result.get();
  Py_XINCREF(taken);
  return taken;
}

PyObject* lines_allocated(PyObject* lines, PyObject* const* given, Py_ssize_t count) {
  if (!takes(count, 2)) return nullptr;
  Lines& self = *reinterpret_cast<Lines*>(lines);
  Object result;
  bool is_done = false;
  const auto act = [&](const std::shared_ptr<Watch>& watch, int64_t) {
    result = allocate(self, watch, given[0], given[1]);
    return bool(result);
  };
  if (!take_line(self, self.state->waiting_events, given[0], is_done, act)) return nullptr;
  if (!is_done) result = self.call(slow_allocated, given[0], given[1]);
  return take(result);
}

PyObject* give_up_or_otherwise(
    PyObject* lines, PyObject* const* given, Py_ssize_t count, bool is_reused) {
  if (!takes(count, 2)) return nullptr;
  Lines& self = *reinterpret_cast<Lines*>(lines);
  const bool is_held = Py_REFCNT(given[1]) > self.state->references;
  bool is_done = false;
  const auto act = [&](const std::shared_ptr<Watch>& watch, int64_t) {
    return !is_held && give_up(self, *watch, given[0], given[1], is_reused);
  };
  if (!take_line(self, self.state->waiting_events, given[0], is_done, act)) return nullptr;
  if (is_done) Py_RETURN_NONE;
  PyObject* const held = is_held ? Py_True : Py_False;
  PyObject* const reused = is_reused ? Py_True : Py_False;
  Object result = self.call(slow_gone, given[0], given[1], held, reused);
  return take(result);
}

PyObject* lines_released(PyObject* lines, PyObject* const* given, Py_ssize_t count) {
  return give_up_or_otherwise(lines, given, count, false);
}

PyObject* lines_reused(PyObject* lines, PyObject* const* given, Py_ssize_t count) {
  return give_up_or_otherwise(lines, given, count, true);
}

PyObject* lines_checked(PyObject* lines, PyObject* const* given, Py_ssize_t count) {
  if (!takes(count, 1)) return nullptr;
  Lines& self = *reinterpret_cast<Lines*>(lines);
  bool is_done = false;
  const auto act = [&](const std::shared_ptr<Watch>& watch, int64_t index) {
    return check(self, *watch, given[0], index);
  };
  if (!take_line(self, self.state->waiting_launches, given[0], is_done, act)) return nullptr;
  if (is_done) Py_RETURN_NONE;
  Object result = self.call(slow_checked, given[0]);
  return take(result);
}

// count(event, tensor): notes the reference count of a tensor that only one variable refers to, and the
// use count of its storage.
PyObject* lines_count(PyObject* lines, PyObject* const* given, Py_ssize_t count) {
  if (!takes(count, 2)) return nullptr;
  Lines& self = *reinterpret_cast<Lines*>(lines);
  self.state->references = Py_REFCNT(given[1]);
  if (!count_uses(self, call_method(given[1], name_untyped_storage), self.state->uses)) return nullptr;
  Py_RETURN_NONE;
}

// open(launches, whether CUDA is in use): makes the state of a new call.
PyObject* lines_open(PyObject*, PyObject* const* given, Py_ssize_t count) {
  if (!takes(count, 2)) return nullptr;
  if (!PyList_Check(given[0])) {
    PyErr_SetString(PyExc_TypeError, "expected a list");
    return nullptr;
  }
  Object made(watching_type->tp_alloc(watching_type, 0));
  if (!made) return nullptr;
  acts([&] {
    auto watch = std::make_shared<Watch>();
    watch->launches = Object::of(given[0]);
    watch->uses_cuda = given[1] == Py_True;
    reinterpret_cast<Watching*>(made.get())->watch = new std::shared_ptr<Watch>(std::move(watch));
  });
  if (!reinterpret_cast<Watching*>(made.get())->watch) return PyErr_NoMemory();
  return take(made);
}

// settle(watching): the call is over; compares bands that were left to a next line. There is work left only
// after an exception. Nothing is filled any more: that memory may have been allocated again.
PyObject* lines_settle(PyObject* lines, PyObject* const* given, Py_ssize_t count) {
  if (!takes(count, 1)) return nullptr;
  if (Py_TYPE(given[0]) != watching_type) {
    PyErr_SetString(PyExc_TypeError, "expected the state of a call");
    return nullptr;
  }
  Watch& watch = **reinterpret_cast<Watching*>(given[0])->watch;
  if (watch.is_busy) Py_RETURN_NONE;  // the program ends while a thread is in the call
  for (int probe : {bounds, poison, stale}) watch.done[probe] -= watch.work.filled(probe);
  watch.work.forget_parts();
  settle(*reinterpret_cast<Lines*>(lines), watch);
  Py_RETURN_NONE;
}

// close(watching, damaged, is_short): the call is over. `damaged` are the records of damage that were
// reported; `is_short`: free regions go, because their records are needed. Returns records that are free
// now, as pairs: the `Bands` object and the index.
PyObject* lines_close(PyObject* lines, PyObject* const* given, Py_ssize_t count) {
  if (!takes(count, 3)) return nullptr;
  if (Py_TYPE(given[0]) != watching_type || !PyAnySet_Check(given[1])) {
    PyErr_SetString(PyExc_TypeError, "expected the state of a call, and a set");
    return nullptr;
  }
  Lines& self = *reinterpret_cast<Lines*>(lines);
  const std::shared_ptr<Watch> watch = *reinterpret_cast<Watching*>(given[0])->watch;
  if (watch->is_busy) return PyList_New(0);  // the program ends while a thread is in the call
  Pool& pool = *self.state->pool;
  watch->drain(pool);
  while (!watch->kept.empty()) watch->let_go();
  for (const Buffer& buffer : watch->buffers) {
    const std::shared_ptr<Region>& region = buffer.region;
    bool is_damaged = false;
    for (std::size_t i = 0; PySet_GET_SIZE(given[1]) && i < 2; ++i) {
      const Object place(PyLong_FromLong(region->bands[i].slot));
      is_damaged |= place && PySet_Contains(given[1], place.get()) == 1;
    }
    if (is_damaged) pool.drop(region);
    if (is_damaged || (region->lease && !region->tensor)) watch->closing.push_back(region);
  }
  const Object places(PyList_New(0));
  if (!places) return nullptr;
  for (const auto& region : watch->closing) {
    if (!std::exchange(region->has_places, false)) continue;
    for (const Band& band : region->bands) {
      const Object pair(Py_BuildValue("Oi", region->form->ways->bands.get(), int{band.slot}));
      if (!pair || PyList_Append(places.get(), pair.get())) return nullptr;
    }
  }
  // Buffers that outlive the call are not compared any more.
  for (Table& table : watch->tables) {
    for (Region* const region : table.regions) region->at = 0;
  }
  watch->tables.clear();
  if (given[2] == Py_True) pool.clear();
  const auto alive = std::move(watch->alive);
  const Regions closing = std::move(watch->closing);
  const std::vector<Buffer> buffers = std::move(watch->buffers);
  watch->alive.clear();
  watch->closing.clear();
  watch->buffers.clear();
  Py_INCREF(places.get());
  return places.get();
}

// free_bytes(): the bytes of free regions, and those of regions whose last tensor was freed since.
PyObject* lines_free_bytes(PyObject* lines, PyObject*) {
  const Pool& pool = *reinterpret_cast<Lines*>(lines)->state->pool;
  Py_ssize_t ended = 0;
  for (const auto& region : pool.ended) ended += region->memory ? region->total : 0;
  return Py_BuildValue("Ln", static_cast<long long>(pool.bytes), ended);
}

int lines_traverse(PyObject* self, visitproc visit, void* arg) {
  Lines& its = *reinterpret_cast<Lines*>(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(its.calls);
  for (PyObject* function : its.functions) Py_VISIT(function);
  return 0;
}

int lines_clear(PyObject* self) {
  Lines& its = *reinterpret_cast<Lines*>(self);
  Py_CLEAR(its.calls);
  for (PyObject*& function : its.functions) Py_CLEAR(function);
  return 0;
}

void lines_free(PyObject* self) {
  PyObject_GC_UnTrack(self);
  lines_clear(self);
  Lines& its = *reinterpret_cast<Lines*>(self);
  if (its.state) its.state->pool->close();
  delete its.state;
  PyTypeObject* const type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

void read_numbers(PyObject* tuple, std::unordered_set<int64_t>& to) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
    to.insert(PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i)));
  }
}

// Lines(calls, functions, addresses of functions of the engine, bytes of a band, waiting_events,
// waiting_launches)
PyObject* lines_new(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject *calls, *functions, *addresses, *events, *launches;
  long long guard;
  constexpr Py_ssize_t all = 4;
  if (!PyArg_ParseTuple(
          args, "O!O!O!LO!O!", &PyDict_Type, &calls, &PyTuple_Type, &functions, &PyTuple_Type,
          &addresses, &guard, &PyTuple_Type, &events, &PyTuple_Type, &launches)) {
    return nullptr;
  }
  if (PyTuple_GET_SIZE(functions) != callables || PyTuple_GET_SIZE(addresses) != all) {
    PyErr_SetString(PyExc_TypeError, "a wrong number of functions");
    return nullptr;
  }
  void* at[all];
  for (Py_ssize_t i = 0; i < all; ++i) {
    at[i] = PyLong_AsVoidPtr(PyTuple_GET_ITEM(addresses, i));
    if (!at[i]) return nullptr;
  }
  Object made(type->tp_alloc(type, 0));
  if (!made) return nullptr;
  Lines& self = *reinterpret_cast<Lines*>(made.get());
  Py_INCREF(self.calls = calls);
  for (Py_ssize_t i = 0; i < callables; ++i) {
    Py_INCREF(self.functions[i] = PyTuple_GET_ITEM(functions, i));
  }
  if (!acts([&] { self.state = new Lines::State; }) || !self.state) return PyErr_NoMemory();
  self.state->compare = reinterpret_cast<Compare>(at[0]);
  self.state->act = reinterpret_cast<Act>(at[1]);
  self.state->is_waiting = reinterpret_cast<IsWaiting>(at[2]);
  self.state->settle = reinterpret_cast<Settle>(at[3]);
  self.state->guard = guard;
  if (!acts([&] {
        read_numbers(events, self.state->waiting_events);
        read_numbers(launches, self.state->waiting_launches);
      })) {
    return nullptr;
  }
  return take(made);
}

// devices(): the devices of the guarded buffers of a call.
PyObject* watching_devices(PyObject* self, PyObject*) {
  Object result(PyList_New(0));
  if (!result) return nullptr;
  for (const Table& table : (*reinterpret_cast<Watching*>(self)->watch)->tables) {
    const Object device(PyLong_FromLong(table.device));
    if (!device || PyList_Append(result.get(), device.get())) return nullptr;
  }
  return take(result);
}

// damaged(): a tuple for each buffer with a damaged band: event, dtype, device, its two records of damage,
// and how many launches were compared before it.
PyObject* watching_damaged(PyObject* self, PyObject*) {
  Object result(PyList_New(0));
  if (!result) return nullptr;
  for (const Buffer& buffer : (*reinterpret_cast<Watching*>(self)->watch)->buffers) {
    const Region& region = *buffer.region;
    const Ways& ways = *region.form->ways;
    const Band* const bands = region.bands;
    if (!ways.damage[bands[0].slot].launch && !ways.damage[bands[1].slot].launch) continue;
    const Object row(Py_BuildValue(
        "LOi(ii)n", static_cast<long long>(buffer.event), ways.dtype.get(), region.form->device,
        int{bands[0].slot}, int{bands[1].slot}, buffer.since));
    if (!row || PyList_Append(result.get(), row.get())) return nullptr;
  }
  return take(result);
}

// counts(): how many buffers each probe guarded or filled, and for how many it failed.
PyObject* watching_counts(PyObject* self, PyObject*) {
  const Watch& watch = **reinterpret_cast<Watching*>(self)->watch;
  const auto as = [](int64_t number) { return static_cast<long long>(number); };
  return Py_BuildValue(
      "(LLL)(LLL)", as(watch.done[0]), as(watch.done[1]), as(watch.done[2]), as(watch.failed[0]),
      as(watch.failed[1]), as(watch.failed[2]));
}

// others(): Python guards buffers of the call, too.
PyObject* watching_others(PyObject* self, PyObject*) {
  (*reinterpret_cast<Watching*>(self)->watch)->has_others = true;
  Py_RETURN_NONE;
}

void watching_free(PyObject* self) {
  std::shared_ptr<Watch>* const watch = reinterpret_cast<Watching*>(self)->watch;
  if (watch) {
    for (const Kept& one : (*watch)->kept) {
      if (!one.region) continue;
      one.region->kept = false;
      one.region->give_up_tensor();
    }
  }
  delete watch;
  PyTypeObject* const type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

template <class F>
PyCFunction method(F function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef lines_methods[] = {
    {"allocated", method(lines_allocated), METH_FASTCALL, nullptr},
    {"released", method(lines_released), METH_FASTCALL, nullptr},
    {"reused", method(lines_reused), METH_FASTCALL, nullptr},
    {"checked", method(lines_checked), METH_FASTCALL, nullptr},
    {"count", method(lines_count), METH_FASTCALL, nullptr},
    {"open", method(lines_open), METH_FASTCALL, nullptr},
    {"settle", method(lines_settle), METH_FASTCALL, nullptr},
    {"close", method(lines_close), METH_FASTCALL, nullptr},
    {"free_bytes", method(lines_free_bytes), METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr}};

PyMethodDef watching_methods[] = {
    {"devices", method(watching_devices), METH_NOARGS, nullptr},
    {"damaged", method(watching_damaged), METH_NOARGS, nullptr},
    {"counts", method(watching_counts), METH_NOARGS, nullptr},
    {"others", method(watching_others), METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr}};

PyType_Slot lines_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(lines_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(lines_free)},
    {Py_tp_traverse, reinterpret_cast<void*>(lines_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(lines_clear)},
    {Py_tp_methods, lines_methods}, {0, nullptr}};
PyType_Spec lines_spec = {
    "inductor_rewriter_calls.Lines", sizeof(Lines), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    lines_slots};

PyType_Slot watching_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(watching_free)}, {Py_tp_methods, watching_methods},
    {0, nullptr}};
PyType_Spec watching_spec = {
    "inductor_rewriter_calls.Watching", sizeof(Watching), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, watching_slots};

// Adds the types to the module.
bool add_lines(PyObject* module) {
  if (!make_names()) return false;
  if (!lease_type) lease_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&lease_spec));
  if (!watching_type) {
    watching_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&watching_spec));
  }
  const Object type(PyType_FromSpec(&lines_spec));
  return lease_type && watching_type && type &&
      !PyObject_SetAttrString(module, "Lines", type.get());
}

}  // namespace regions
}  // namespace
