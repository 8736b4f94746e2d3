// Regions: memory with guard bands that is used for one buffer of a Python wrapper after the other.
// Filling bands is most of what a guarded buffer costs, and bands that were compared are still whole. So a
// new buffer takes the region of an earlier one of the same size, and only its inside is filled.
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
constexpr int64_t most_free = int64_t{64} << 20;  // bytes in free regions, of one wrapper
constexpr int64_t most_kept = int64_t{16} << 20;  // bytes that were released and are not reused yet
constexpr std::size_t most_kept_buffers = 512;    // as each has two of the records of damage
constexpr std::size_t most_forms = 4096;

PyObject *name_use_count, *name_requires_grad, *name_give;

struct Region;
using Regions = std::vector<std::shared_ptr<Region>>;

// How buffers of one dtype on one device are made. The patterns are 8 bytes each: for the bands (`edge`),
// for new buffers (`inside`), and for released ones (`stale`).
struct Ways {
  uint64_t edge = 0, inside = 0, stale = 0;
  int64_t item = 1;
  bool has_inside = false;
  const Damage* damage = nullptr;
  Object where, dtype, bands;
};

// The kind of a region, and the free regions of this kind.
struct Form {
  int32_t dtype, device;
  uint64_t stream;
  int64_t bytes, guard;
  std::shared_ptr<Ways> ways;
  Regions free;
};

// The regions of one wrapper. `ended` has regions whose last tensor was freed, by any thread at any time;
// `Watch::drain` deals with them later.
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

// A running function of the wrapper. Frames are compared with their code, since a frame object may be used
// again for another function.
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

// A band of `guard` bytes, `bytes` of a buffer at `address`, a band of `guard` bytes.
//   lease: exists for as long as any tensor uses the region.
//   watch: the call that the region was lent to.
//   kept: the buffer was released, and the region is not reused yet.
//   tensor, facts: the tensor of the released buffer, if nothing but the wrapper's variable referred to it.
//     The next buffer of this kind gets it as it is. Nobody can change it meanwhile.
//   is_inference: whether that tensor was made in inference mode.
struct Region {
  Frame frame;  // the function that allocated the buffer
  std::shared_ptr<Form> form;
  std::shared_ptr<Pool> pool;
  Object memory, tensor, storage_address;
  Facts facts;
  bool is_inference = false;
  const PyObject* lease = nullptr;
  PyObject* storage = nullptr;  // the tensor's, borrowed: valid as long as there is a lease
  int64_t alone = 0;            // the storage's use count if one tensor has it
  Py_ssize_t references = 0;    // the storage's reference count if nobody else has it
  unsigned char* address = nullptr;
  int64_t total = 0;
  Band bands[2] = {};
  bool has_places = true, kept = false;
  std::weak_ptr<Watch> watch;
  std::size_t at = 0;  // its index in the table of bands, plus 1; 0 if its bands are not compared

  Region() = default;
  Region(const Region&) = delete;
  // Gives its records of damage back. Calls that compare its bands refer to it until they are over.
  ~Region() {
    if (!form || !has_places) return;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    for (const Band& band : bands) {
      const Object place(PyLong_FromLong(band.slot));
      PyObject* const given[] = {form->ways->bands.get(), place.get()};
      if (!place || !Object(PyObject_VectorcallMethod(name_give, given, 2, nullptr))) PyErr_Clear();
    }
    PyErr_Restore(type, value, trace);
  }

  // Frees the tensor, without the region coming back to the pool.
  void give_up_tensor() {
    if (!tensor) return;
    lease = nullptr;
    tensor = Object();
  }
};

bool Pool::has_room(const Region& region) const {
  return region.memory && region.has_places && bytes + region.total <= most_free;
}

// Makes a region free. False: the pool is full, and the region's memory is freed.
bool Pool::give(const std::shared_ptr<Region>& region) {
  if (!has_room(*region)) {
    region->memory = Object();
    return false;
  }
  bytes += region->total;
  region->form->free.push_back(region);
  return true;
}

// Removes a region for good. Tensors that still use its memory keep it.
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
  const auto gone = std::move(forms);  // freeing objects may run Python code
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

// --- The lease: an object that torch frees together with the storage of a buffer ---------------------

struct Lease {
  PyObject_HEAD
  std::shared_ptr<Region>* region;
};

// Whether the call that has a region has work left that may be for its memory.
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

// --- The state of one call ---------------------------------------------------------------------------

// A buffer of a call: the number of its allocation, and how many launches were compared before it. Several
// buffers may have had the same region.
struct Buffer {
  int64_t event;
  Py_ssize_t since;
  std::shared_ptr<Region> region;
};

// Memory of a released buffer: its region, or its storage if it was in no region.
struct Kept {
  std::shared_ptr<Region> region;
  Object storage;
  int64_t bytes;
};

// The bands that are compared on one device, two for each region.
struct Table {
  int32_t device;
  const Damage* damage;
  std::vector<Band> bands;
  std::vector<Region*> regions;
};

struct Watch {
  MemoryWork work;
  bool uses_cuda = false;  // whether a CUDA graph may be captured
  Frame not_captured;      // the function of the wrapper that was last found not to be captured
  const Damage* damage = nullptr;  // the records of damage of the device that `work` is for
  bool is_damaged = false;         // whether damage was found and not reported yet
  Object launches;  // a list: the launches after which bands were compared
  std::vector<Buffer> buffers;
  std::vector<Table> tables;
  std::unordered_map<const void*, std::shared_ptr<Region>> alive;  // by address
  std::deque<Kept> kept;  // oldest first
  int64_t kept_bytes = 0;
  Regions closing;  // their records of damage are given back when the call is over
  int64_t done[3] = {0, 0, 0}, failed[3] = {0, 0, 0};  // index: bounds, poison, stale
  bool has_others = false;  // whether Python guards buffers of this call, too
  bool is_busy = false;     // whether its thread acts without the global interpreter lock

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

  // Stops comparing the bands of a region.
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

  // Keeps released memory from being allocated again for a while, so that a launch that still reads it
  // reads the pattern.
  void keep(Kept one) {
    if (one.region) one.region->kept = true;
    kept_bytes += one.bytes;
    kept.push_back(std::move(one));
    let_go_of_most();
  }

  // Lets the oldest memory go if it is too much, unless there is work left for it.
  void let_go_of_most() {
    while (work.is_empty() && (kept_bytes > most_kept || kept.size() > most_kept_buffers)) let_go();
  }

  // Lets the memory that was released first go.
  void let_go() {
    const Kept one = std::move(kept.front());
    kept.pop_front();
    kept_bytes -= one.bytes;
    if (!one.region) return;
    one.region->kept = false;
    if (one.region->tensor && !one.region->pool->has_room(*one.region)) {
      one.region->tensor = Object();
      return;  // the lease brings the region back when no tensor uses it
    }
    if (!one.region->lease || one.region->tensor) take_back(one.region);
  }

  void take_back(const std::shared_ptr<Region>& region) {
    if (!region->pool->give(region)) closing.push_back(region);
  }

  // Makes regions free whose last tensor was freed.
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
