// What the lines about memory of a Python wrapper do, without the interpreter. This is the fast path for
// common buffers. `Memory` in memory/watch.py is the Python path, which takes all others.
#pragma once

#include "python_regions.h"

namespace {
namespace regions {

PyObject *name_watch, *name_lease, *name_set, *name_shape, *name_stride, *name_is_view;

bool make_names() {
  const std::pair<PyObject**, const char*> names[] = {
      {&name_use_count, "_use_count"}, {&name_requires_grad, "requires_grad"}, {&name_give, "give"},
      {&name_watch, "watch"}, {&name_lease, "lease"},
      {&name_set, "set_"}, {&name_shape, "shape"},
      {&name_stride, "stride"}, {&name_is_view, "_is_view"}};
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

// What a line of the wrapper allocated last: the dtype, the device, and how such buffers are made.
struct Line {
  int32_t dtype = -1, device = -1;
  std::shared_ptr<Ways> ways;  // null: the Python path takes them
};

// The Python functions that are called, in the order in which `Lines` is given them.
enum Callable {
  // Of torch: the type of tensors, storages, modes, streams.
  tensor_type, make_storage, use_count, dispatch_modes, inference_mode, get_stream, is_capturing,
  // Of watch.py: make the state of a call, find the ways of a tensor, make memory, report damage.
  open_call, find_ways, make_memory, report,
  // The Python path of each line.
  slow_allocated, slow_gone, slow_checked,
  callables
};

struct Lines {
  PyObject_HEAD
  PyObject *calls, *functions[callables];
  struct State {
    Compare compare;
    Act act;
    IsWaiting is_waiting;  // whether measuring is deferred; `settle` launches it
    Settle settle;
    // The lines whose work is done together with that of the next line about memory.
    std::unordered_set<int64_t> waiting_events, waiting_launches;
    int64_t guard = 0;
    // For a tensor that only a variable of the wrapper refers to: its reference count as `released` sees
    // it, and the use count of its storage.
    Py_ssize_t references = 0;
    int64_t uses = 0;
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

// Acts on a device's memory; without the global interpreter lock if that may take a while.
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

// Does the work that was collected.
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

// Launches measuring that was deferred, if no job about memory has done so.
void settle_measured(const Lines& self) {
  if (!self.state->is_waiting()) return;
  Py_BEGIN_ALLOW_THREADS
  self.state->settle();
  Py_END_ALLOW_THREADS
}

// Adds memory to be filled to the work of the call.
void fill(
    const Lines& self, Watch& watch, int32_t device, uint64_t stream, const Filled* parts, int count,
    Probe probe) {
  void* const on = reinterpret_cast<void*>(stream);
  if (!watch.work.takes(parts, count, device, on)) settle(self, watch);
  watch.work.fill(parts, count, device, on, probe);
}

// Whether a CUDA graph is being captured. That is always a whole function of the wrapper, so CUDA is asked
// once for each function.
bool is_captured(const Lines& self, Watch& watch) {
  if (!watch.uses_cuda) return false;
  const Frame frame = Frame::current();
  if (watch.not_captured == frame) return false;
  if (truth(self.call(is_capturing))) return true;  // also if CUDA could not be asked
  watch.not_captured = frame;
  return false;
}

// The state of the call that runs in this thread. Null: its lines take the Python path.
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
  if (pool.forms.size() >= most_forms) {  // dynamic shapes
    settle(self, watch);
    pool.clear();
  }
  auto made = std::make_shared<Form>(
      Form{facts.dtype, facts.device, stream, facts.bytes, self.state->guard, ways, {}});
  pool.forms.emplace(key, made);
  return made;
}

// Null: there is no memory, or no record of damage left, maybe with an exception.
std::shared_ptr<Region> make_region(Lines& self, Watch& watch, const std::shared_ptr<Form>& form) {
  const auto region = std::make_shared<Region>();
  const int64_t guard = form->guard;
  region->total = guard + (form->bytes + 15) / 16 * 16 + guard;
  // Caching allocators of CUDA align to 512 bytes, others may not.
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

// Whether nothing but the region refers to its tensor and its storage, in Python or in C++.
bool is_alone(const Lines& self, const Region& region) {
  PyObject* const tensor = region.tensor.get();
  int64_t uses;
  return Py_REFCNT(tensor) == 1 && number(call_method(tensor, name_use_count), uses) && uses == 1 &&
      region.lease && Py_REFCNT(region.storage) == region.references &&
      !has_uses(self, region) && !PyErr_Occurred();
}

// Takes the tensor of a region, if it is just like a new one would be.
Object ready(Region& region, const Facts& wanted, bool is_inference) {
  const Facts& facts = region.facts;
  if (facts.data != region.address || facts.offset || facts.bytes != wanted.bytes ||
      !facts.has_form_of(wanted) || region.is_inference != is_inference) {
    region.give_up_tensor();
    return Object();
  }
  return std::move(region.tensor);
}

// Makes a storage in the memory of a region.
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

// Replaces the storage of a new tensor.
bool set_storage(PyObject* tensor, PyObject* storage) {
  const Object shape = attribute(tensor, name_shape), stride = call_method(tensor, name_stride);
  const Object offset(PyLong_FromLong(0));
  if (!shape || !stride || !offset) return false;
  PyObject* const given[] = {tensor, storage, offset.get(), shape.get(), stride.get()};
  return bool(Object(PyObject_VectorcallMethod(name_set, given, 5, nullptr)));
}

// Puts a new tensor into a region. False: it failed, and the region goes back to the pool.
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
    region->alone = -1;  // no use count is equal to this
    PyErr_Clear();
  }
  return true;
}

// Replaces a new buffer by one in a region. Null: the Python path takes the line.
Object allocate(
    Lines& self, const std::shared_ptr<Watch>& watch, PyObject* event, PyObject* tensor) {
  if (reinterpret_cast<PyObject*>(Py_TYPE(tensor)) != self.functions[tensor_type]) return Object();
  Facts facts;
  if (!read(tensor, facts) || !facts.bytes) return Object();
  const std::shared_ptr<Ways> ways = ways_of(self, event, tensor, facts);
  uint64_t stream;
  if (!ways || !find_stream(self, facts.device, stream)) return Object();
  const int is_inference = truth(self.call(inference_mode));
  if (is_inference < 0) return Object();
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
      result = ready(*region, facts, is_inference);
      continue;
    }
    if (PyErr_Occurred()) return Object();
    region->tensor = Object();  // the region comes back when nobody else has the tensor
    region.reset();
  }
  if (!region && !(region = make_region(self, *watch, form))) return Object();
  if (!result) {
    if (!lend(self, *watch, region, tensor)) return Object();
    region->is_inference = is_inference;
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

// Whether the tensor of a released buffer can be used for the next buffer as it is. Not if another function
// of the wrapper allocated it: code between the two, such as CUDA graphs, may wait for its storage to be
// freed.
bool can_serve(const Region& region, PyObject* tensor) {
  if (!(Frame::current() == region.frame)) return false;
  const Py_ssize_t offset = Py_TYPE(tensor)->tp_weaklistoffset;
  if (!offset || *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(tensor) + offset)) {
    return false;  // there are weak references to it
  }
  const int is_view = truth(call_method(tensor, name_is_view));
  const int requires_grad = is_view ? -1 : truth(attribute(tensor, name_requires_grad));
  if (PyErr_Occurred()) PyErr_Clear();
  return !requires_grad;
}

// Fills the memory of a released tensor that is in no region and shares its memory with no other tensor.
// False: the Python path takes the line.
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

// Fills the memory of a buffer that the wrapper releases or reuses. False: the Python path takes the line.
bool give_up(Lines& self, Watch& watch, PyObject* event, PyObject* tensor, bool is_reused) {
  PyObject* const type = reinterpret_cast<PyObject*>(Py_TYPE(tensor));
  if (type != self.functions[tensor_type]) {
    return !PyObject_IsInstance(tensor, self.functions[tensor_type]);  // a tuple of results, or the like
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
    region->facts = facts;
    watch.forget(region);
  }
  watch.keep({region, Object(), region->total});
  return true;
}

// Compares bands after a launch. False: the Python path takes the line.
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
  else self.call(slow_checked, launch);  // the Python path adds the launch to the list
  return true;
}

}  // namespace regions
}  // namespace
