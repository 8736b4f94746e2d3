// Acts on the buffers that a wrapper's memory lines pass: guards and fills them, and compares bands.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "../recorder.h"
#include "watched.h"

namespace inductor_rewriter {

class MemoryOfWrapper {
 public:
  MemoryOfWrapper(const Options& options, Recorder& recorder) : recorder_(recorder) {
    for (int probe = 0; probe < memory_probes; ++probe) has_[probe] = recorder.has(memory_probe_name(probe));
    read_lines(options.memory);
    const std::string fills = environment("REWRITER_FILL"), bytes = environment("REWRITER_GUARD");
    if (!read_fills(fills, fills_)) {
      recorder.warn(
          "memory", "REWRITER_FILL is '" + fills +
              "': expected 0, 1, off, or PROBE=0 and PROBE=1; fill 0 is used");
    }
    int64_t guard = 0;
    if (read_number(bytes, 8, guard)) {
      guard_ = (guard + 511) / 512 * 512;
    } else if (!bytes.empty()) {
      recorder.warn("memory", "REWRITER_GUARD is '" + bytes + "': expected a number of bytes");
    }
  }

  // Returns a tensor that replaces one that was allocated; null if that one stays. `problem` says why it has to,
  // if the caller knows.
  AtenTensorHandle allocated(RunningCall& call, int event, AtenTensorHandle made, const char* problem) {
    Watched& watched = watched_of(call);
    AtenTensorHandle const other = guard_and_fill(watched, event, made, problem);
    end_line(watched, line_of(event).waits);
    return other;
  }

  // The wrapper no longer needs the value of a buffer; if `is_reused`, it goes on using the memory. `problem`
  // says why it cannot be filled, if the caller knows.
  void gone(RunningCall& call, int event, AtenTensorHandle handle, bool is_reused, const char* problem) {
    Watched& watched = watched_of(call);
    const Line& line = line_of(event);
    if (!problem && line.is_held) problem = "another tensor may have its memory";
    give_up(watched, handle, problem, is_reused);
    end_line(watched, line.waits);
  }

  void checked(RunningCall& call, int launch) {
    Watched& watched = watched_of(call);
    watched.launches.push_back(launch);
    compare(watched, static_cast<uint64_t>(launch) + 1);
    const Row* const row = recorder_.row_of(launch);
    end_line(watched, row && row->memory_waits);
  }

  void finish(RunningCall& call) {
    std::shared_ptr<Watched> watched = std::move(state_of(call));
    if (!watched) return;
    // Work is left here only after an exception. Drop the fills: the memory may have another owner by now.
    for (int probe = 0; probe < memory_probes; ++probe) watched->done[probe] -= watched->work.filled(probe);
    watched->work.forget_parts();
    settle(*watched);
    bool waits = true;
    // Wait for all streams that were used: the current one may be another by now.
    for (const auto& table : watched->tables) {
      if (table.places->device() >= 0 && is_capturing(table.places->device())) waits = false;
    }
    for (const auto& table : watched->tables) {
      for (void* stream : table.streams) {
        if (waits && !watched->is_captured) table.places->synchronize(stream);
      }
    }
    if (waits) {
      std::lock_guard<std::mutex> guard(capturing_);
      for (const auto& capture : captured_) report(call, *capture);
    }
    report(call, *watched);
    write_coverage(*watched);
    for (Buffer& buffer : watched->buffers) buffer.whole.reset();
    watched->kept.clear();
    if (watched->is_captured) {
      // A CUDA graph compares the bands in each replay, so they stay.
      std::lock_guard<std::mutex> guard(capturing_);
      captured_.push_back(std::move(watched));
      return;
    }
    for (Buffer& buffer : watched->buffers) {
      for (int place : buffer.places) buffer.from->give(place);
    }
  }

 private:
  // A memory line, by its number in the wrapper.
  struct Line {
    int event = -1;
    std::string buffer;
    bool is_held = false;
    bool waits = false;  // for the next memory line
  };
  using Buffer = Watched::Buffer;
  static constexpr const char* not_compared = "the bands could not be compared";
  // Makes a filled buffer with bands that replaces one that was allocated; null if that one stays.
  AtenTensorHandle guard_and_fill(Watched& watched, int event, AtenTensorHandle made, const char* known) {
    watched.drop(event);  // from an earlier iteration of a loop
    Target target(made, known);
    Memory& memory = target.memory;
    Places* const places = target.places;
    if (!target.is_usable()) {
      for (int probe : {bounds_probe, poison_probe}) skip(watched, probe, target.problem);
      return nullptr;
    }
    if (!memory.on_cpu && !watched.is_captured) watched.is_captured = is_capturing(memory.device_index);
    Guarded guarded;
    Filled parts[3] = {};  // both bands, and the buffer
    int filled = has_[bounds_probe] ? guard(watched, event, made, *places, memory, guarded, parts) : 0;
    if (has_[poison_probe]) {
      const uint64_t inside = memory_pattern(poison_probe, fills_[poison_probe], memory.dtype);
      parts[filled++] = {memory.address, static_cast<uint64_t>(memory.bytes), inside};
      ++watched.done[poison_probe];
    }
    const int probe = has_[poison_probe] ? poison_probe : bounds_probe;
    if (filled) fill(watched, *places, parts, filled, target.stream, probe);
    return std::exchange(guarded.buffer.handle, nullptr);
  }

  // Makes a buffer with bands that replaces one that was allocated, and sets `memory` to that of the new one.
  // Sets the `parts` to fill and returns their number, 0 if the allocated one stays.
  int guard(Watched& watched, int event, AtenTensorHandle made, Places& places, Memory& memory,
            Guarded& guarded, Filled* parts) {
    if (!guard_) {
      skip(watched, bounds_probe, "REWRITER_GUARD is 0");
      return 0;
    }
    Buffer buffer;
    if (!buffer.take(places)) {
      forget_released(watched, places);
      if (!buffer.take(places)) {
        skip(watched, bounds_probe, "too many buffers at once");
        return 0;
      }
    }
    make_guarded(made, guard_, memory, guarded);
    const uint64_t edge = memory_pattern(bounds_probe, fills_[bounds_probe], memory.dtype);
    const uint64_t bytes = static_cast<uint64_t>(guard_), rest = -memory.bytes & 15;
    const uint32_t size = static_cast<uint32_t>(guard_);
    const uint8_t item = static_cast<uint8_t>(memory.item);
    unsigned char* const starts[] = {memory.address - guard_, memory.address + memory.bytes};
    parts[0] = {starts[0], bytes, edge};
    parts[1] = {starts[1], bytes + rest, edge};
    for (int side = 0; side < 2; ++side) {
      const uint16_t place = static_cast<uint16_t>(buffer.places[side]);
      buffer.bands[side] = {starts[side], edge, size, place, !side, item};
    }
    buffer.event = event;
    buffer.memory = memory;
    buffer.from = &places;
    buffer.whole.handle = std::exchange(guarded.whole.handle, nullptr);
    watched.buffers.push_back(std::move(buffer));
    watched.has_tables = false;
    ++watched.done[bounds_probe];
    return 2;
  }

  // Frees the places of buffers that are no longer compared: a loop may allocate more buffers than there are
  // places. A captured graph keeps its places, since each replay compares them again.
  void forget_released(Watched& watched, Places& places) {
    settle(watched);
    if (watched.is_captured) return;
    for (const auto& table : watched.tables) {
      if (table.places != &places) continue;
      for (void* stream : table.streams) places.synchronize(stream);
    }
    report(watched.call, watched);
    std::vector<Buffer> rest;
    for (Buffer& buffer : watched.buffers) {
      if (buffer.from != &places || buffer.whole.handle) {
        rest.push_back(std::move(buffer));
        continue;
      }
      for (int place : buffer.places) places.give(place);
    }
    watched.buffers.swap(rest);
  }

  // Fills a buffer that the wrapper releases. Unless it is reused, its memory is not freed for a while.
  void give_up(Watched& watched, AtenTensorHandle handle, const char* known, bool is_reused) {
    const Target target(handle, known);
    const Memory& memory = target.memory;
    Buffer* const buffer = memory.address ? watched.find_buffer(memory) : nullptr;
    if (has_[stale_probe]) {
      if (!target.is_usable()) {
        skip(watched, stale_probe, target.problem);
      } else {
        const Memory& whole = buffer ? buffer->memory : memory;
        const uint64_t pattern = memory_pattern(stale_probe, fills_[stale_probe], memory.dtype);
        const Filled part = {whole.address, static_cast<uint64_t>(whole.bytes), pattern};
        ++watched.done[stale_probe];
        fill(watched, *target.places, &part, 1, target.stream, stale_probe);
        if (!is_reused && !watched.is_captured) watched.keep(handle, buffer);
      }
    }
    if (buffer && !is_reused) watched.let_go(*buffer);
  }

  // Compares the bands of all buffers after a launch; `launch` is its number plus 1.
  void compare(Watched& watched, uint64_t launch) {
    if (!watched.has_tables) watched.make_tables();
    for (auto& table : watched.tables) {
      if (table.bands.empty()) continue;
      const int device = table.places->device();
      void* stream = nullptr;
      if (device >= 0 && !current_stream(&stream, device)) {
        skip(watched, bounds_probe, not_compared);
        continue;
      }
      if (std::find(table.streams.begin(), table.streams.end(), stream) == table.streams.end()) {
        table.streams.push_back(stream);
      }
      const std::size_t count = table.bands.size();
      if (!watched.work.is_empty()) settle(watched);
      if (watched.work.takes_bands(count)) {
        watched.places = table.places;
        watched.work.compare(table.bands.data(), count, launch, device, stream);
        continue;
      }
      const bool captured = watched.is_captured;
      const auto act = [&](MemoryJob& job) { return table.places->act(job, stream, captured); };
      if (!compare_all(table.bands.data(), count, launch, act)) skip(watched, bounds_probe, not_compared);
      if (table.places->has_damage()) report(watched.call, watched);
    }
  }

  // Fills memory, if possible by one job together with the work before and after it.
  void fill(Watched& watched, Places& places, const Filled* parts, int count, void* stream, int probe) {
    const int device = places.device();
    if (!watched.work.takes(parts, count, device, stream)) settle(watched);
    watched.places = &places;
    watched.work.fill(parts, count, device, stream, probe);
  }

  // Ends a line. Its work waits for that of the next line if nothing runs in between.
  void end_line(Watched& watched, bool waits) {
    if (!waits || watched.is_captured) settle(watched);
  }

  // Issues the waiting work.
  void settle(Watched& watched) {
    MemoryWork& work = watched.work;
    if (work.is_empty()) return;
    const bool compares = work.compares();
    if (!watched.places->act(work.job(), work.stream(), watched.is_captured)) {
      if (compares) skip(watched, bounds_probe, not_compared);
      for (int probe : {bounds_probe, poison_probe, stale_probe}) {
        for (int i = 0; i < work.filled(probe); ++i) skip(watched, probe, "it could not be filled");
        watched.done[probe] -= work.filled(probe);
      }
    }
    work.clear();
    watched.released.clear();
    if (compares && watched.places->has_damage()) report(watched.call, watched);
  }

  // `7 buf3; 9 buf4 held; 11 buf5 waits`
  void read_lines(const char* text) {
    for (const std::string& part : split(text, "; ")) {
      const std::size_t name = part.find(' ') + 1, behind = std::min(part.find(' ', name), part.size());
      Line line;
      line.event = std::atoi(part.c_str());
      line.buffer = part.substr(name, behind - name);
      line.is_held = part.find(" held", behind) != std::string::npos;
      line.waits = part.find(" waits", behind) != std::string::npos;
      lines_.push_back(std::move(line));
    }
  }

  // Lines are in the order of their numbers.
  const Line& line_of(int event) const {
    static const Line none;
    const auto found = std::lower_bound(
        lines_.begin(), lines_.end(), event, [](const Line& line, int to) { return line.event < to; });
    return found != lines_.end() && found->event == event ? *found : none;
  }

  // The state of a call; only the thread of the model uses it.
  std::shared_ptr<Watched>& state_of(RunningCall& call) {
    return call.state<std::shared_ptr<Watched>>(&key_);
  }
  Watched& watched_of(RunningCall& call) {
    std::shared_ptr<Watched>& state = state_of(call);
    if (!state) state = std::make_shared<Watched>(call);
    return *state;
  }

  void skip(Watched& watched, int probe, const std::string& reason) const {
    if (has_[probe]) ++watched.skipped[probe][reason];
  }

  // Reports the known damage, in the order of launches, each band once.
  void report(RunningCall& call, Watched& watched) {
    struct Found {
      Damage damage;
      Buffer* buffer;
      int side;
    };
    std::vector<Found> found;
    for (Buffer& buffer : watched.buffers) {
      for (int side = 0; side < 2; ++side) {
        Found one{Damage(), &buffer, side};
        if (buffer.reported[side] || !buffer.from->read(buffer.places[side], one.damage)) continue;
        buffer.reported[side] = true;
        found.push_back(one);
      }
    }
    std::stable_sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
      return a.damage.launch < b.damage.launch;
    });
    for (const Found& one : found) write(call, watched, one.damage, *one.buffer, one.side);
  }

  void write(RunningCall& call, const Watched& watched, const Damage& damage, const Buffer& buffer, int side) {
    const int launch = static_cast<int>(damage.launch) - 1;
    const auto at = std::find(watched.launches.begin(), watched.launches.end(), launch);
    const int since = at != watched.launches.begin() ? *(at - 1) : -1;
    const Store store{
        damage, buffer.memory, recorder_.row_of(launch), since, line_of(buffer.event).buffer, buffer.event,
        side != 0, watched.is_captured};
    append(call, store_row(store));
    const std::string line = store_line(recorder_.start(call.number), store);
    recorder_.write_now(line.data(), line.size());
  }

  void write_coverage(const Watched& watched) {
    const int64_t launches = static_cast<int64_t>(watched.launches.size());
    std::string rows;
    for (int probe = 0; probe < memory_probes; ++probe) {
      if (!has_[probe]) continue;
      rows += coverage_row(
          memory_probe_name(probe), watched.done[probe], probe == bounds_probe ? launches : -1,
          watched.skipped[probe]);
    }
    append(watched.call, rows);
  }

  void append(RunningCall& call, const std::string& rows) {
    if (!call.directory || rows.empty()) return;
    recorder_.act("dump", [&] { write_rows(call.directory->path, rows); });
  }

  Recorder& recorder_;
  bool has_[memory_probes] = {};
  int fills_[memory_probes] = {};
  int64_t guard_ = 4096;  // bytes on each side
  std::vector<Line> lines_;
  Probe key_;  // for the state in calls
  std::mutex capturing_;
  std::vector<std::shared_ptr<Watched>> captured_;
};

}  // namespace inductor_rewriter
