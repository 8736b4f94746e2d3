// Memory with guard bands that serves one buffer of a Python wrapper after the other: making bands is
// most of what a guarded buffer costs, and bands that were compared are as they were. What a buffer of
// the same size leaves is taken again, and only the inside is filled.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "bands.h"
#include "python_objects.h"
#include "python_tensors.h"

namespace {
namespace regions {

using inductor_rewriter::Band;
using inductor_rewriter::Damage;
using inductor_rewriter::Filled;
using inductor_rewriter::MemoryJob;
using inductor_rewriter::MemoryWork;
using tensors::Facts;
using tensors::name_cdata;
using tensors::name_untyped_storage;
using tensors::read;

constexpr int64_t aligned = 512;                // bytes
constexpr int64_t most_free = int64_t{64} << 20;  // bytes of memory that nobody has, of one wrapper
constexpr int64_t most_kept = int64_t{16} << 20;  // bytes that were given back and nobody gets yet
constexpr std::size_t most_forms = 4096;

PyObject *name_use_count, *name_requires_grad;

struct Region;
using Regions = std::vector<std::shared_ptr<Region>>;

// How buffers of a dtype are made on a device: what fills them, 8 bytes each.
struct Ways {
  uint64_t edge = 0, inside = 0, stale = 0;
  int64_t item = 1;
  bool has_inside = false;
  const Damage* damage = nullptr;
  Object where, dtype, bands;
};

// What a region is made for, and those that nobody has.
struct Form {
  int32_t dtype, device;
  uint64_t stream;
  int64_t bytes, guard;
  std::shared_ptr<Ways> ways;
  Regions free;
};

// The regions of one wrapper. `ended` are those that were given back since, in any thread and at any
// time: they are looked at later.
struct Pool {
  std::map<std::tuple<int32_t, int32_t, uint64_t, int64_t>, std::shared_ptr<Form>> forms;
  Regions ended;
  int64_t bytes = 0;
  bool is_open = true;

  bool has_room(const Region& region) const;
  bool give(const std::shared_ptr<Region>& region);
  void drop(const std::shared_ptr<Region>& region);
  void clear();
  void close();
};

struct Watch;

// A function of the wrapper that runs, to be compared: the object of a frame that is over may be that of
// another one of other code.
struct Frame {
  const void *frame = nullptr, *code = nullptr;

  static Frame current() {
    PyFrameObject* const frame = PyEval_GetFrame();
    if (!frame) return {};
    const Object code(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)));
    return {frame, code.get()};
  }
  bool operator==(const Frame& other) const {
    return frame && frame == other.frame && code == other.code;
  }
};

// `guard` bytes, `bytes` of a buffer at `address`, `guard` bytes. `lease` is there for as long as
// anybody has the buffer, and `watch` is the call that got it. What is `kept` was given back, and is
// nobody's yet. `tensor` is that of the last buffer, where only its variable had it, and `facts` are what
// it is since: nobody can change it. `is_inference` is whether it was made in the mode of inference.
struct Region {
  Frame frame;  // that allocated the buffer
  std::shared_ptr<Form> form;
  std::shared_ptr<Pool> pool;
  Object memory, tensor, storage_address;
  Facts facts;
  bool is_inference = false;
  const PyObject* lease = nullptr;
  PyObject* storage = nullptr;  // that of the tensor, not ours: as long as there is a lease
  int64_t alone = 0;            // uses of the storage by one tensor
  Py_ssize_t references = 0;    // to its object, by nobody
  unsigned char* address = nullptr;
  int64_t total = 0;
  Band bands[2] = {};
  bool has_places = true, kept = false;
  std::weak_ptr<Watch> watch;
  std::size_t at = 0;  // its place in the table of bands, plus 1

  // What nobody else has goes without that the region comes back.
  void give_up_tensor() {
    if (!tensor) return;
    lease = nullptr;
    tensor = Object();
  }
};

bool Pool::has_room(const Region& region) const {
  return region.memory && region.has_places && bytes + region.total <= most_free;
}

// False: there is no room for what nobody has any more, and it has no memory.
bool Pool::give(const std::shared_ptr<Region>& region) {
  if (!has_room(*region)) {
    region->memory = Object();
    return false;
  }
  bytes += region->total;
  region->form->free.push_back(region);
  return true;
}

// It is not used again. Who still has its memory keeps that.
void Pool::drop(const std::shared_ptr<Region>& region) {
  Regions& free = region->form->free;
  const auto found = std::find(free.begin(), free.end(), region);
  if (found != free.end()) {
    free.erase(found);
    bytes -= region->total;
  }
  region->tensor = Object();
  if (!region->lease) region->memory = Object();
}

void Pool::clear() {
  const auto gone = std::move(forms);  // objects that go may run code
  forms.clear();
  for (const auto& [key, form] : gone) {
    const Regions free = std::move(form->free);
    form->free.clear();
    for (const auto& region : free) {
      bytes -= region->total;
      region->give_up_tensor();
    }
  }
}

void Pool::close() {
  is_open = false;
  clear();
  const Regions last = std::move(ended);
  ended.clear();
}

// --- What torch keeps with the storage of a buffer ---------------------------------------------------

struct Lease {
  PyObject_HEAD
  std::shared_ptr<Region>* region;
};

// Whether something is to be done yet that may be in the memory of a region.
bool is_worked_on(const Region& region);

void lease_free(PyObject* self) {
  Lease& lease = *reinterpret_cast<Lease*>(self);
  if (lease.region) {
    const std::shared_ptr<Region> region = std::move(*lease.region);
    delete lease.region;
    if (region->lease == self) {
      region->lease = nullptr;
      Pool& pool = *region->pool;
      if (!region->kept && !pool.has_room(*region) && !is_worked_on(*region)) region->memory = Object();
      if (pool.is_open) pool.ended.push_back(region);
    }
  }
  PyTypeObject* const type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyType_Slot lease_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(lease_free)}, {0, nullptr}};
PyType_Spec lease_spec = {
    "inductor_rewriter_calls.Lease", sizeof(Lease), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, lease_slots};
PyTypeObject* lease_type;

Object lease_of(const std::shared_ptr<Region>& region) {
  Object made(lease_type->tp_alloc(lease_type, 0));
  if (!made) return made;
  reinterpret_cast<Lease*>(made.get())->region = new std::shared_ptr<Region>(region);
  region->lease = made.get();
  return made;
}

// --- What is watched of one call ---------------------------------------------------------------------

// A buffer of a call: where it was allocated, behind how many of the launches that are compared. Its
// region may be that of several, one after the other.
struct Buffer {
  int64_t event;
  Py_ssize_t since;
  std::shared_ptr<Region> region;
};

// Memory that was given back: a region, or the storage of what is in none.
struct Kept {
  std::shared_ptr<Region> region;
  Object storage;
  int64_t bytes;
};

// The bands of a device, two for each region.
struct Table {
  int32_t device;
  const Damage* damage;
  std::vector<Band> bands;
  std::vector<Region*> regions;
};

struct Watch {
  MemoryWork work;
  bool uses_cuda = false;  // a CUDA graph may be captured
  Frame not_captured;      // which function of the wrapper was last asked for that, and is not captured
  const Damage* damage = nullptr;  // where damage of its bands is known
  bool is_damaged = false;         // bands are, which was not reported yet
  Object launches;  // a list: those after which bands were compared
  std::vector<Buffer> buffers;
  std::vector<Table> tables;
  std::unordered_map<const void*, std::shared_ptr<Region>> alive;  // by address
  std::deque<Kept> kept;  // the oldest first
  int64_t kept_bytes = 0;
  Regions closing;  // their places are free when the call is over
  int64_t done[3] = {0, 0, 0}, failed[3] = {0, 0, 0};  // by probe: bounds, poison, stale
  bool has_others = false;  // buffers that Python compares
  bool is_busy = false;     // without the global lock

  void add(const std::shared_ptr<Region>& region) {
    const int32_t device = region->form->device;
    auto table = std::find_if(
        tables.begin(), tables.end(), [&](const Table& one) { return one.device == device; });
    if (table == tables.end()) {
      table = tables.insert(table, {device, region->form->ways->damage, {}, {}});
    }
    table->bands.insert(table->bands.end(), region->bands, region->bands + 2);
    table->regions.push_back(region.get());
    region->at = table->regions.size();
    alive[region->address] = region;
  }

  // Its bands are not compared any more.
  void forget(const std::shared_ptr<Region>& region) {
    if (!region->at) return;
    const std::size_t at = std::exchange(region->at, 0) - 1;
    for (Table& table : tables) {
      if (table.device != region->form->device) continue;
      table.regions[at] = table.regions.back();
      if (table.regions[at] != region.get()) table.regions[at]->at = at + 1;
      table.regions.pop_back();
      std::copy(table.bands.end() - 2, table.bands.end(), table.bands.begin() + 2 * at);
      table.bands.resize(2 * table.regions.size());
    }
    alive.erase(region->address);
  }

  // Keep memory from those who allocate next: a launch that still reads it reads its fill.
  void keep(Kept one) {
    if (one.region) one.region->kept = true;
    kept_bytes += one.bytes;
    kept.push_back(std::move(one));
    let_go_of_most();
  }

  // Nothing goes that is worked on.
  void let_go_of_most() {
    while (work.is_empty() && kept_bytes > most_kept) let_go();
  }

  // The memory that was given back first is anybody's.
  void let_go() {
    const Kept one = std::move(kept.front());
    kept.pop_front();
    kept_bytes -= one.bytes;
    if (!one.region) return;
    one.region->kept = false;
    if (one.region->tensor && !one.region->pool->has_room(*one.region)) {
      one.region->tensor = Object();
      return;  // it comes back when nobody has it
    }
    if (!one.region->lease || one.region->tensor) take_back(one.region);
  }

  void take_back(const std::shared_ptr<Region>& region) {
    if (!region->pool->give(region)) closing.push_back(region);
  }

  // Regions that nobody has any more come back.
  void drain(Pool& pool) {
    if (pool.ended.empty()) return;
    Regions ended;
    ended.swap(pool.ended);
    for (const auto& region : ended) {
      const std::shared_ptr<Watch> had = region->watch.lock();
      if (had && (!had->work.is_empty() || (had.get() != this && had->is_busy))) {
        pool.ended.push_back(region);
        continue;
      }
      if (had) had->forget(region);
      if (!region->kept) take_back(region);
    }
  }
};

bool is_worked_on(const Region& region) {
  const std::shared_ptr<Watch> watch = region.watch.lock();
  return watch && !watch->work.is_empty();
}

}  // namespace regions
}  // namespace
