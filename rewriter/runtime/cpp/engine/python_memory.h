// What the lines of a Python wrapper do to memory, without the interpreter: `Memory` of memory/watch.py
// does the same with buffers that are not as they mostly are.
#pragma once

#include <structmember.h>

#include "python_regions.h"

namespace {
namespace regions {

PyObject *name_watch, *name_lease, *name_set, *name_shape, *name_stride,
    *name_is_inference, *name_is_view;

bool make_names() {
  const std::pair<PyObject**, const char*> names[] = {
      {&name_use_count, "_use_count"}, {&name_requires_grad, "requires_grad"},
      {&name_watch, "watch"}, {&name_lease, "lease"},
      {&name_set, "set_"}, {&name_shape, "shape"},
      {&name_stride, "stride"}, {&name_is_inference, "is_inference"},
      {&name_is_view, "_is_view"}};
  for (const auto& [to, text] : names) {
    if (!*to && !(*to = PyUnicode_InternFromString(text))) return false;
  }
  return true;
}

enum Probe { bounds, poison, stale };

struct Watching {
  PyObject_HEAD
  std::shared_ptr<Watch>* watch;
};
PyTypeObject* watching_type;

using Compare = int32_t (*)(int32_t, const Band*, int32_t, uint64_t, void*);
using Act = int32_t (*)(int32_t, MemoryJob*, void*);
using IsWaiting = int32_t (*)();
using Settle = void (*)();

// What is known of the line of an allocation: what it made last, and where.
struct Line {
  int32_t dtype = -1, device = -1;
  std::shared_ptr<Ways> ways;  // null: that cannot be guarded here
};

// The functions of Python that are called, by their names in `new`.
enum Callable {
  // Of torch: the type of tensors; storages; streams.
  tensor_type, make_storage, use_count, dispatch_modes, get_stream, is_capturing,
  // Of watch.py: the state of a call, ways, memory, and what is damaged.
  open_call, find_ways, make_memory, report,
  // Of the recorder: the ways of what is not as it mostly is.
  slow_allocated, slow_gone, slow_checked,
  callables
};

struct Lines {
  PyObject_HEAD
  PyObject *calls, *functions[callables];
  struct State {
    Compare compare;
    Act act;
    IsWaiting is_waiting;  // whether something waits to be measured, and what has it measured
    Settle settle;
    std::unordered_set<int64_t> waiting_events, waiting_launches;  // whose lines wait for the next
    int64_t guard = 0;
    Py_ssize_t references = 0;  // to what only the variable has that a wrapper gives up
    int64_t uses = 0;           // of the storage of such a tensor
    std::unordered_map<int64_t, Line> lines;
    std::shared_ptr<Pool> pool = std::make_shared<Pool>();
  }* state;

  Object call(Callable which) const { return call_nothing(functions[which]); }
  template <class... Given>
  Object call(Callable which, Given... given) const {
    PyObject* const all[] = {given...};
    return Object(PyObject_Vectorcall(functions[which], all, sizeof...(given), nullptr));
  }
};

// Does something of a device without the global lock, if that may take a while.
template <class F>
int32_t act_without_lock(Watch& watch, int32_t device, uint64_t bytes, F act) {
  if (device < 0 && bytes < 1 << 16) return act();
  int32_t result;
  watch.is_busy = true;
  Py_BEGIN_ALLOW_THREADS
  result = act();
  Py_END_ALLOW_THREADS
  watch.is_busy = false;
  return result;
}

// Does what waits.
void settle(const Lines& self, Watch& watch) {
  MemoryWork& work = watch.work;
  if (work.is_empty()) return;
  MemoryJob& job = work.job();
  uint64_t bytes = 0;
  for (uint32_t part = 0; part < job.parts_count; ++part) bytes += job.parts[part].bytes;
  const int32_t damaged = act_without_lock(
      watch, work.device(), bytes, [&] { return self.state->act(work.device(), &job, work.stream()); });
  if (damaged < 0) {
    for (int probe : {bounds, poison, stale}) {
      watch.done[probe] -= work.filled(probe);
      watch.failed[probe] += work.filled(probe);
    }
    if (work.compares()) ++watch.failed[bounds];
  }
  watch.is_damaged |= work.compares() && (damaged > 0 || (work.device() >= 0 && watch.damage->launch));
  work.clear();
  watch.let_go_of_most();
}

// Has measured what waits for lines about memory, if none of these had the GPU do anything.
void settle_measured(const Lines& self) {
  if (!self.state->is_waiting()) return;
  Py_BEGIN_ALLOW_THREADS
  self.state->settle();
  Py_END_ALLOW_THREADS
}

// Fills memory of the watched call, or has that wait.
void fill(
    const Lines& self, Watch& watch, int32_t device, uint64_t stream, const Filled* parts, int count,
    Probe probe) {
  void* const on = reinterpret_cast<void*>(stream);
  if (!watch.work.takes(parts, count, device, on)) settle(self, watch);
  watch.work.fill(parts, count, device, on, probe);
}

// What is captured into a CUDA graph is a whole function of the wrapper, so it is asked once for that.
bool is_captured(const Lines& self, Watch& watch) {
  if (!watch.uses_cuda) return false;
  const Frame frame = Frame::current();
  if (watch.not_captured == frame) return false;
  if (truth(self.call(is_capturing))) return true;  // or it could not be asked
  watch.not_captured = frame;
  return false;
}

// The state of the call that runs in this thread, if its lines can go this way.
std::shared_ptr<Watch> watch_of(const Lines& self, Object& call) {
  call = call_of_this_thread(self.calls);
  if (!call) return nullptr;
  Object watching = attribute(call.get(), name_watch);
  if (watching && watching.get() == Py_None) watching = self.call(open_call, call.get());
  if (!watching || Py_TYPE(watching.get()) != watching_type) return nullptr;
  const std::shared_ptr<Watch> watch = *reinterpret_cast<Watching*>(watching.get())->watch;
  if (is_captured(self, *watch)) {
    settle(self, *watch);
    return nullptr;
  }
  return watch;
}

bool find_stream(const Lines& self, int32_t device, uint64_t& to) {
  int64_t stream = 0;
  if (device >= 0 && !tensors::find_stream(self.functions[get_stream], device, stream)) return false;
  to = static_cast<uint64_t>(stream);
  return true;
}

std::shared_ptr<Ways> ways_of(Lines& self, PyObject* event, PyObject* tensor, const Facts& facts) {
  const int64_t index = PyLong_AsLongLong(event);
  if (index < 0) return nullptr;
  const Line& known = self.state->lines[index];
  if (known.dtype == facts.dtype && known.device == facts.device) return known.ways;
  const Object found = self.call(find_ways, tensor);
  if (!found) return nullptr;
  std::shared_ptr<Ways> ways;
  if (found.get() != Py_None) {
    ways = std::make_shared<Ways>();
    unsigned long long edge, inside, stale_word, damage;
    long long item;
    int has_inside;
    PyObject *where, *dtype, *bands;
    if (!PyArg_ParseTuple(
            found.get(), "KKKpLKOOO", &edge, &inside, &stale_word, &has_inside, &item, &damage, &where,
            &dtype, &bands)) {
      return nullptr;
    }
    ways->edge = edge;
    ways->inside = inside;
    ways->stale = stale_word;
    ways->item = std::min(item, 255LL);
    ways->has_inside = has_inside;
    ways->damage = reinterpret_cast<const Damage*>(static_cast<uintptr_t>(damage));
    ways->where = Object::of(where);
    ways->dtype = Object::of(dtype);
    ways->bands = Object::of(bands);
  }
  self.state->lines[index] = {facts.dtype, facts.device, ways};
  return ways;
}

std::shared_ptr<Form> form_of(
    Lines& self, Watch& watch, const std::shared_ptr<Ways>& ways, const Facts& facts,
    uint64_t stream) {
  Pool& pool = *self.state->pool;
  const auto key = std::make_tuple(facts.dtype, facts.device, stream, facts.bytes);
  const auto found = pool.forms.find(key);
  if (found != pool.forms.end()) return found->second;
  if (pool.forms.size() >= most_forms) {  // sizes that change
    settle(self, watch);
    pool.clear();
  }
  auto made = std::make_shared<Form>(
      Form{facts.dtype, facts.device, stream, facts.bytes, self.state->guard, ways, {}});
  pool.forms.emplace(key, made);
  return made;
}

// Null: there is no memory or no place for damage, maybe with an exception.
std::shared_ptr<Region> make_region(Lines& self, Watch& watch, const std::shared_ptr<Form>& form) {
  const auto region = std::make_shared<Region>();
  const int64_t guard = form->guard;
  region->total = guard + (form->bytes + 15) / 16 * 16 + guard;
  // Allocators of CUDA give multiples of 512, but for those that cache nothing.
  const Object size(PyLong_FromLongLong(region->total + aligned));
  if (!size) return nullptr;
  const Ways& ways = *form->ways;
  const Object made = self.call(make_memory, ways.bands.get(), ways.where.get(), size.get());
  if (!made || made.get() == Py_None) return nullptr;
  PyObject* memory;
  unsigned long long address;
  unsigned short places[2];
  if (!PyArg_ParseTuple(made.get(), "OKHH", &memory, &address, places, places + 1)) return nullptr;
  const uint64_t start = (address + aligned - 1) / aligned * aligned;
  region->form = form;
  region->pool = self.state->pool;
  region->memory = Object::of(memory);
  region->address = reinterpret_cast<unsigned char*>(start) + guard;
  const uint32_t size_of_band = static_cast<uint32_t>(guard);
  const uint8_t item = static_cast<uint8_t>(ways.item);
  unsigned char* const end = region->address + form->bytes;
  region->bands[0] = {region->address - guard, ways.edge, size_of_band, places[0], 1, item};
  region->bands[1] = {end, ways.edge, size_of_band, places[1], 0, item};
  const uint64_t behind = static_cast<uint64_t>(region->total - guard - form->bytes);
  const Filled parts[] = {
      {region->address - guard, size_of_band, ways.edge}, {end, behind, ways.edge}};
  fill(self, watch, form->device, form->stream, parts, 2, bounds);
  return region;
}

bool count_uses(const Lines& self, const Object& storage, int64_t& to) {
  const Object address = storage ? attribute(storage.get(), name_cdata) : Object();
  return address && number(self.call(use_count, address.get()), to);
}

bool has_uses(const Lines& self, const Region& region) {
  int64_t uses;
  return number(self.call(use_count, region.storage_address.get()), uses) && uses != region.alone;
}

// Whether only the region has its tensor, and nobody the storage alone: also in C++.
bool is_alone(const Lines& self, const Region& region) {
  PyObject* const tensor = region.tensor.get();
  int64_t uses;
  return Py_REFCNT(tensor) == 1 && number(call_method(tensor, name_use_count), uses) && uses == 1 &&
      region.lease && Py_REFCNT(region.storage) == region.references &&
      !has_uses(self, region) && !PyErr_Occurred();
}

// Whether two tensors are both of the mode of inference, or both are not.
bool are_of_one_mode(PyObject* one, PyObject* other) {
  const int of_one = truth(call_method(one, name_is_inference));
  return of_one >= 0 && of_one == truth(call_method(other, name_is_inference));
}

// The tensor of a region if it is like another one.
Object ready(const Lines& self, Region& region, PyObject* like, const Facts& wanted) {
  Facts facts;
  if (!read(region.tensor.get(), facts) || facts.data != region.address ||
      facts.offset || facts.bytes != wanted.bytes || !facts.has_form_of(wanted) ||
      !are_of_one_mode(region.tensor.get(), like)) {
    region.give_up_tensor();
    return Object();
  }
  return std::move(region.tensor);
}

// A storage in the memory of a region.
Object storage_for(const Lines& self, Region& region) {
  int64_t modes;
  const Object address(PyLong_FromVoidPtr(region.address));
  const Object bytes(PyLong_FromLongLong(region.form->bytes));
  if (!address || !bytes || !number(self.call(dispatch_modes), modes) || modes) return Object();
  PyObject* const where = region.form->ways->where.get();
  Object made = self.call(make_storage, address.get(), where, bytes.get());
  if (made) region.storage_address = attribute(made.get(), name_cdata);
  return region.storage_address ? std::move(made) : Object();
}

// Has a tensor that has just been made use a storage instead of its own.
bool set_storage(PyObject* tensor, PyObject* storage) {
  const Object shape = attribute(tensor, name_shape), stride = call_method(tensor, name_stride);
  const Object offset(PyLong_FromLong(0));
  if (!shape || !stride || !offset) return false;
  PyObject* const given[] = {tensor, storage, offset.get(), shape.get(), stride.get()};
  return bool(Object(PyObject_VectorcallMethod(name_set, given, 5, nullptr)));
}

// Has a tensor that has just been made use a region. False: the region is the pool's, or will be.
bool lend(
    const Lines& self, Watch& watch, const std::shared_ptr<Region>& region, PyObject* tensor) {
  {
    const Object storage = storage_for(self, *region);
    const Object lease = storage ? lease_of(region) : Object();
    if (!lease) {
      settle(self, watch);
      watch.take_back(region);
      return false;
    }
    if (PyObject_SetAttr(storage.get(), name_lease, lease.get())) return false;
    if (!set_storage(tensor, storage.get())) return false;
    region->storage = storage.get();
  }
  region->references = Py_REFCNT(region->storage);
  if (!number(self.call(use_count, region->storage_address.get()), region->alone)) {
    region->alone = -1;  // it is never known to be alone
    PyErr_Clear();
  }
  return true;
}

// The buffer in the place of one that was allocated; null: another way has to be gone.
Object allocate(
    Lines& self, const std::shared_ptr<Watch>& watch, PyObject* event, PyObject* tensor) {
  if (reinterpret_cast<PyObject*>(Py_TYPE(tensor)) != self.functions[tensor_type]) return Object();
  Facts facts;
  if (!read(tensor, facts) || !facts.bytes) return Object();
  const std::shared_ptr<Ways> ways = ways_of(self, event, tensor, facts);
  uint64_t stream;
  if (!ways || !find_stream(self, facts.device, stream)) return Object();
  watch->drain(*self.state->pool);
  const std::shared_ptr<Form> form = form_of(self, *watch, ways, facts, stream);
  std::shared_ptr<Region> region;
  Object result;
  while (!region && !form->free.empty()) {
    region = std::move(form->free.back());
    form->free.pop_back();
    self.state->pool->bytes -= region->total;
    if (!region->tensor) continue;
    if (is_alone(self, *region)) {
      result = ready(self, *region, tensor, facts);
      continue;
    }
    if (PyErr_Occurred()) return Object();
    region->tensor = Object();  // it comes back when those are gone who have it
    region.reset();
  }
  if (!region && !(region = make_region(self, *watch, form))) return Object();
  if (!result) {
    if (!lend(self, *watch, region, tensor)) return Object();
    result = Object::of(tensor);
  }
  region->watch = watch;
  region->frame = Frame::current();
  watch->buffers.push_back({PyLong_AsLongLong(event), PyList_GET_SIZE(watch->launches.get()), region});
  watch->add(region);
  ++watch->done[bounds];
  if (ways->has_inside) {
    const Filled part = {region->address, static_cast<uint64_t>(form->bytes), ways->inside};
    fill(self, *watch, form->device, form->stream, &part, 1, poison);
    ++watch->done[poison];
  }
  return result;
}

// Whether a tensor can serve the next buffer as it is, once the wrapper's variable is gone. What another
// function of the wrapper allocated went through other hands, such as those of CUDA graphs, which wait
// for the end of a storage.
bool can_serve(const Region& region, PyObject* tensor) {
  if (!(Frame::current() == region.frame)) return false;
  const Py_ssize_t offset = Py_TYPE(tensor)->tp_weaklistoffset;
  if (!offset || *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(tensor) + offset)) {
    return false;  // somebody waits for its end
  }
  const int is_view = truth(call_method(tensor, name_is_view));
  const int requires_grad = is_view ? -1 : truth(attribute(tensor, name_requires_grad));
  if (PyErr_Occurred()) PyErr_Clear();
  return !requires_grad;
}

// Memory in no region, of a tensor that does not share it. False: another way has to be gone.
bool fill_other(
    Lines& self, Watch& watch, PyObject* event, PyObject* tensor, const Facts& facts,
    bool is_reused) {
  const std::shared_ptr<Ways> ways = ways_of(self, event, tensor, facts);
  uint64_t stream;
  if (!ways || !facts.bytes || !find_stream(self, facts.device, stream)) return false;
  int64_t uses;
  Object storage = call_method(tensor, name_untyped_storage);
  if (!count_uses(self, storage, uses) || uses > self.state->uses) return false;
  unsigned char* const start = static_cast<unsigned char*>(facts.data) - facts.offset * ways->item;
  const Filled part = {start, static_cast<uint64_t>(facts.bytes), ways->stale};
  fill(self, watch, facts.device, stream, &part, 1, stale);
  ++watch.done[stale];
  if (!is_reused) watch.keep({nullptr, std::move(storage), facts.bytes});
  return true;
}

// Memory that nobody has but the variable that gives it up. False: another way has to be gone.
bool give_up(Lines& self, Watch& watch, PyObject* event, PyObject* tensor, bool is_reused) {
  PyObject* const type = reinterpret_cast<PyObject*>(Py_TYPE(tensor));
  if (type != self.functions[tensor_type]) {
    return !PyObject_IsInstance(tensor, self.functions[tensor_type]);  // the results of an operator
  }
  Facts facts;
  if (!read(tensor, facts)) return false;
  const auto found = watch.alive.find(facts.data);
  if (found == watch.alive.end() || facts.offset || found->second->form->dtype != facts.dtype) {
    return fill_other(self, watch, event, tensor, facts, is_reused);
  }
  const std::shared_ptr<Region> region = found->second;
  const Form& form = *region->form;
  if (has_uses(self, *region) || PyErr_Occurred()) return false;
  uint64_t stream;
  if (!find_stream(self, form.device, stream) || stream != form.stream) return false;
  const Filled part = {region->address, static_cast<uint64_t>(form.bytes), form.ways->stale};
  fill(self, watch, form.device, stream, &part, 1, stale);
  ++watch.done[stale];
  if (is_reused) return true;
  if (can_serve(*region, tensor)) {
    region->tensor = Object::of(tensor);
    watch.forget(region);
  }
  watch.keep({region, Object(), region->total});
  return true;
}

// Compares bands behind a launch. False: another way has to be gone.
bool check(Lines& self, Watch& watch, PyObject* launch, int64_t index) {
  watch.drain(*self.state->pool);
  const uint64_t number = static_cast<uint64_t>(index) + 1;
  for (Table& table : watch.tables) {
    if (table.bands.empty()) continue;
    uint64_t stream;
    if (!find_stream(self, table.device, stream)) return false;
    void* const on = reinterpret_cast<void*>(stream);
    const std::size_t count = table.bands.size();
    settle(self, watch);
    if (watch.work.takes_bands(count)) {
      watch.damage = table.damage;
      watch.work.compare(table.bands.data(), count, number, table.device, on);
      continue;
    }
    const int32_t damaged = act_without_lock(watch, table.device, 0, [&] {
      return self.state->compare(
          table.device, table.bands.data(), static_cast<int32_t>(count), number, on);
    });
    if (damaged < 0) ++watch.failed[bounds];
    watch.is_damaged |= damaged > 0 || (table.device >= 0 && table.damage->launch);
  }
  if (!watch.has_others) PyList_Append(watch.launches.get(), launch);
  else self.call(slow_checked, launch);  // which counts the launch
  return true;
}

// --- As methods ----------------------------------------------------------------------------------------

// Acts; what is wrong is said another way, but for an interrupt. False: with an exception.
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

// Has `act` do what a line does, in the call that runs in this thread. It returns whether that is done;
// otherwise another way has to be gone. What is done waits for the next line, if nothing runs in between
// and Python has no buffers of the call. False: with an exception.
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

// count(event, tensor): how many references there are to a tensor that only a variable has, and uses
// of its storage.
PyObject* lines_count(PyObject* lines, PyObject* const* given, Py_ssize_t count) {
  if (!takes(count, 2)) return nullptr;
  Lines& self = *reinterpret_cast<Lines*>(lines);
  self.state->references = Py_REFCNT(given[1]);
  if (!count_uses(self, call_method(given[1], name_untyped_storage), self.state->uses)) return nullptr;
  Py_RETURN_NONE;
}

// open(launches, whether CUDA is in use): the state of a call that begins.
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

// settle(watching): a call is over. Only an exception leaves something to be done; what was to be filled
// may be somebody else's by now.
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

// close(watching, damaged places): a call is over; the pairs of bands and a place that is free now.
PyObject* lines_close(PyObject* lines, PyObject* const* given, Py_ssize_t count) {
  if (!takes(count, 2)) return nullptr;
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
    if (is_damaged) pool.drop(region);  // what was damaged is not used again
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
  // What outlives the call is compared no more.
  for (Table& table : watch->tables) {
    for (Region* const region : table.regions) region->at = 0;
  }
  watch->tables.clear();
  const auto alive = std::move(watch->alive);
  const Regions closing = std::move(watch->closing);
  const std::vector<Buffer> buffers = std::move(watch->buffers);
  watch->alive.clear();
  watch->closing.clear();
  watch->buffers.clear();
  Py_INCREF(places.get());
  return places.get();
}

// free(): bytes of memory that nobody has, and of those that were given back since.
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

// Lines(calls, functions, addresses of the engine's, bytes of a band, events and launches
// whose lines wait for the next one)
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

// devices(): of the buffers of a call.
PyObject* watching_devices(PyObject* self, PyObject*) {
  Object result(PyList_New(0));
  if (!result) return nullptr;
  for (const Table& table : (*reinterpret_cast<Watching*>(self)->watch)->tables) {
    const Object device(PyLong_FromLong(table.device));
    if (!device || PyList_Append(result.get(), device.get())) return nullptr;
  }
  return take(result);
}

// damaged(): of the buffers whose bands are: event, dtype, device, places, launches before.
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

// counts(): how many buffers each probe guarded or filled, and with how many it failed.
PyObject* watching_counts(PyObject* self, PyObject*) {
  const Watch& watch = **reinterpret_cast<Watching*>(self)->watch;
  const auto as = [](int64_t number) { return static_cast<long long>(number); };
  return Py_BuildValue(
      "(LLL)(LLL)", as(watch.done[0]), as(watch.done[1]), as(watch.done[2]), as(watch.failed[0]),
      as(watch.failed[1]), as(watch.failed[2]));
}

// others(): Python has buffers of the call, too, which it compares.
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

// Adds the type to the module.
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
