// What memory probes keep of one call: its guarded buffers, memory that it released, and the work that waits.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "../device.h"
#include "guarded.h"
#include "patterns.h"
#include "rows.h"

namespace inductor_rewriter {

// The memory of a tensor and the stream to act on it, or why that cannot be; `known` is such a reason.
struct Target {
  Target(AtenTensorHandle handle, const char* known) : problem(find_memory(handle, memory)) {
    if (problem.empty() && known) problem = known;
    if (problem.empty()) places = Places::of(memory.device(), problem);
    if (places && !memory.on_cpu && !current_stream(&stream, memory.device_index)) problem = "its stream is not known";
  }
  bool is_usable() const { return places && problem.empty(); }

  Memory memory;
  Places* places = nullptr;
  void* stream = nullptr;
  std::string problem;
};

// `launches` are those after which bands were compared. `kept` is memory that the wrapper released and that is not freed
// yet, oldest first. `released` is freed once `work`, which is on the device of `places`, is issued.
struct Watched {
  explicit Watched(RunningCall& of) : call(of) {}

  struct Buffer {
    // Takes the places of its damage. False if there are none left.
    bool take(Places& of) {
      if (!of.take(places[0])) return false;
      if (of.take(places[1])) return true;
      of.give(places[0]);
      return false;
    }

    int event = -1;
    Memory memory;
    Places* from = nullptr;
    int places[2] = {0, 0};
    Band bands[2] = {};
    bool reported[2] = {false, false};
    Owned whole;  // as long as its bands are compared
  };
  struct Table {
    Places* places;
    std::vector<Band> bands;
    std::vector<void*> streams;  // on which they were compared
  };
  struct Kept {
    int64_t bytes = 0;
    Owned whole;
  };

  // Delays freeing memory that the wrapper released, so that a launch that still reads it reads the fill.
  void keep(AtenTensorHandle handle, const Buffer* buffer) {
    Kept one;
    AtenTensorHandle const whole = buffer ? buffer->whole.handle : handle;
    check(aoti_torch_get_storage_size(whole, &one.bytes), "get_storage_size");
    check(aoti_torch_new_tensor_handle(whole, &one.whole.handle), "new_tensor_handle");
    kept_bytes += one.bytes;
    kept.push_back(std::move(one));
    for (; kept_bytes > most_kept; kept.pop_front()) {
      kept_bytes -= kept.front().bytes;
      release(kept.front().whole);
    }
  }

  // The guarded buffer that a tensor is a part of, while its bands are compared.
  Buffer* find_buffer(const Memory& memory) {
    for (std::size_t i = buffers.size(); i-- > 0;) {
      Buffer& buffer = buffers[i];
      if (!buffer.whole.handle) continue;
      // If the buffer has an offset in its storage, the memory of the tensor begins with a band.
      const unsigned char* const start = buffer.bands[0].data;
      const unsigned char* const end = start + buffer.memory.bytes + 2 * buffer.bands[0].bytes;
      if (memory.address >= start && memory.address < end) return &buffer;
    }
    return nullptr;
  }

  // Stops comparing the bands of a buffer, and frees it.
  void let_go(Buffer& buffer) {
    release(buffer.whole);
    has_tables = false;
  }
  void drop(int event) {
    for (Buffer& buffer : buffers) {
      if (buffer.event == event && buffer.whole.handle) let_go(buffer);
    }
  }

  void make_tables() {
    has_tables = true;
    for (Table& table : tables) table.bands.clear();
    for (Buffer& buffer : buffers) {
      Table* to = nullptr;
      for (Table& table : tables) to = table.places == buffer.from ? &table : to;
      if (!to) to = &tables.emplace_back(Table{buffer.from, {}, {}});
      if (buffer.whole.handle) to->bands.insert(to->bands.end(), buffer.bands, buffer.bands + 2);
    }
  }

  RunningCall& call;  // which a captured one outlives
  MemoryWork work;
  Places* places = nullptr;
  std::vector<Owned> released;
  std::vector<Buffer> buffers;
  std::deque<Kept> kept;
  int64_t kept_bytes = 0;
  std::vector<Table> tables;
  bool has_tables = false, is_captured = false;
  std::vector<int> launches;
  int64_t done[memory_probes] = {};
  LeftOut skipped[memory_probes];

 private:
  static constexpr int64_t most_kept = int64_t{16} << 20;  // bytes in a call

  // Frees memory, once no waiting work uses it.
  void release(Owned& whole) {
    if (work.is_empty()) return whole.reset();
    released.emplace_back().handle = std::exchange(whole.handle, nullptr);
  }
};

}  // namespace inductor_rewriter
