// The ring of the probe `record` (flight_file.h): what its records and marks say, and which dumps of it are made.
#pragma once

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "files.h"
#include "flight_file.h"

namespace inductor_rewriter {

class FlightRing : public FlightFile {
 public:
  enum Kind : uint16_t { begin = 1, rows = 2, end = 3 };

  // The ring of this process in the folder of a dump; all copies of the runtime in the process share it.
  // Throws if there can be none. Never freed.
  static FlightRing& of(const std::string& root, int rank) {
    All& all = all_rings();
    const std::lock_guard<std::mutex> guard(all.mutex);
    static const int registered = pthread_atfork(&before_fork, &after_fork, &after_fork_in_child);
    static_cast<void>(registered);
    for (const Known& known : all.known) {
      if (known.root != root || known.pid != getpid()) continue;
      if (!known.ring) throw std::runtime_error(known.problem);
      return *known.ring;
    }
    auto made = std::make_unique<FlightRing>();
    try {
      made->open_or_make(root, rank);
    } catch (const std::exception& error) {  // remembered: not each wrapper tries again, such as on a full disk
      all.known.push_back({root, getpid(), nullptr, error.what()});
      throw;
    }
    all.known.push_back({root, getpid(), made.get(), ""});
    // The process ends by itself, or the library is unloaded.
    static const int finishes = std::atexit([] { finish_all(""); });
    static_cast<void>(finishes);
    return *made.release();
  }

  FlightCall start(uint64_t number, uint64_t table) {
    FlightCall call;
    call.call = header_->calls.fetch_add(1) + 1;
    call.number = number;
    call.thread = static_cast<uint64_t>(pthread_self());
    call.table = table;
    call.started = now();
    header_->state.store(running, std::memory_order_relaxed);
    append(call, begin, nullptr, 0);
    return call;
  }

  // The slot for the marks of a call's thread.
  FlightSlot& enter(const FlightCall& call) {
    const std::lock_guard<FlightHeader> guard(*header_);
    FlightSlot* slot = find_slot(call.thread);
    if (!slot) slot = &new_slot();
    return *slot = FlightSlot{call.thread, call.call, 0, 0, now(), 0, 0, 0, call.number, call.table};
  }

  // Marks that a launch begins. `slot` is the slot of the call. If the slot was given to another call, because
  // there are more threads than slots or the thread was in another call, a new one is found.
  void mark_begin(const FlightCall& call, FlightSlot*& slot, int32_t launch, int32_t iteration) {
    if (slot->call != call.call) slot = &enter(call);
    slot->began = launch + 1;
    slot->began_again = iteration;
    slot->began_ns = now();
  }

  void mark_end(const FlightCall& call, FlightSlot*& slot, int32_t launch, int32_t iteration) {
    if (slot->call != call.call) mark_begin(call, slot, launch, iteration);
    slot->ended_again = iteration;
    slot->ended = launch + 1;
    slot->ended_ns = now();
  }

  // Adds a record; the oldest ones are overwritten. Rows longer than a quarter of the ring are left out.
  void append(const FlightCall& of, Kind kind, const char* data, std::size_t size) {
    const uint64_t whole = (sizeof(FlightRecord) + size + 7) & ~uint64_t{7};
    if (whole > capacity_ / 4) return;
    FlightRecord record{static_cast<uint32_t>(whole), kind,
                        static_cast<uint16_t>(whole - sizeof(FlightRecord) - size),
                        of.call, of.number, of.thread, now(), of.table};
    const std::lock_guard<FlightHeader> guard(*header_);
    const uint64_t head = header_->head.load(std::memory_order_relaxed);
    uint64_t tail = header_->tail.load(std::memory_order_relaxed);
    while (head + whole - tail > capacity_) {
      uint32_t oldest;
      std::memcpy(&oldest, data_ + tail % capacity_, sizeof oldest);
      tail += oldest;
    }
    header_->tail.store(tail, std::memory_order_release);
    put(head, &record, sizeof record);
    put(head + sizeof record, data, size);
    header_->head.store(head + whole, std::memory_order_release);
  }

  // Adds rows; each record has complete ones.
  void append_rows(const FlightCall& of, const char* data, std::size_t size) {
    constexpr std::size_t usual_record = 16 << 10;
    while (size) {
      std::size_t part = size;
      if (size > usual_record) {
        const void* last = memrchr(data, '\n', usual_record);
        if (!last) last = std::memchr(data, '\n', size);
        if (last) part = static_cast<std::size_t>(static_cast<const char*>(last) - data) + 1;
      }
      append(of, rows, data, part);
      data += part;
      size -= part;
    }
  }

  // The process ends by itself, by the exception with this text if it is not empty.
  void finish(const char* exception = "") {
    char* const room = reinterpret_cast<char*>(header_) + message_at;
    if (*exception) std::strncpy(room, exception, header_bytes - message_at - 1);
    header_->state = ended;
  }

  // The same of all rings of the process.
  static void finish_all(const char* exception) {
    All& all = all_rings();
    const std::lock_guard<std::mutex> guard(all.mutex);
    for (const Known& known : all.known) {
      if (known.ring && known.pid == getpid()) known.ring->finish(exception);
    }
  }

  // When the last launch of a call ended, 0 if that is not known any more.
  uint64_t ended_ns(const FlightCall& call) {
    const std::lock_guard<FlightHeader> guard(*header_);
    const FlightSlot* const slot = find_slot(call.thread);
    return slot && slot->call == call.call ? slot->ended_ns : 0;
  }

  static constexpr uint32_t most_dumps = 5;  // that triggers write in a process
  static constexpr int kinds = 5;            // how many kinds of triggers there are
  enum class Dump { write, none, no_more };  // `no_more`: say once that there will be no more dumps

  // Whether a trigger of this kind may write a dump in this call; `number` is set to its number, from 1. One
  // event fires many triggers, in several wrappers, and some never stop. So a dump comes at least ten calls
  // after the last one; for the same kind this distance grows tenfold each time; and each kind leaves one
  // dump for every other kind that is `wanted`.
  Dump admit_dump(int kind, uint32_t wanted, const FlightCall& of, uint32_t& number) {
    const std::lock_guard<FlightHeader> guard(*header_);
    const Dump result = judge_dump(kind, wanted, of.call);
    if (result != Dump::none) number = ++header_->dumps;
    if (result == Dump::write) {
      header_->kinds[kind].call = of.call;
      ++header_->kinds[kind].dumps;
    }
    return result;
  }

  // Copies the ring into a file, while threads go on writing to it. False if that fails.
  bool copy_to(const std::string& path) const {
    std::vector<char> copy(data_at + capacity_);
    auto& header = *reinterpret_cast<FlightHeader*>(copy.data());
    const uint64_t head = header_->head.load(std::memory_order_acquire);
    std::memcpy(copy.data(), static_cast<const void*>(header_), copy.size());
    std::atomic_thread_fence(std::memory_order_acquire);
    // Leave out records that were overwritten meanwhile.
    const uint64_t tail = header_->tail.load(std::memory_order_acquire);
    header.head.store(head);
    header.tail.store(tail);
    header.state.store(copied);
    header.unlock();
    const int error = write_file(path, O_EXCL, copy.data(), copy.size());
    if (error) unlink(path.c_str());  // give the room on the disk back
    errno = error;
    return !error;
  }

  // The folder of the ring: `record/HOST.PID/ring`.
  std::string name() const {
    const std::string folder = path_.substr(0, path_.rfind('/'));
    return folder.substr(folder.rfind('/') + 1);
  }

 private:
  struct Known {
    std::string root;
    pid_t pid;
    FlightRing* ring;
    std::string problem;  // why there is no ring
  };
  struct All {
    std::mutex mutex;
    std::vector<Known> known;
  };

  static All& all_rings() {
    static All& all = *new All;
    return all;
  }

  // A fork must not write to its parent's ring, nor keep the parent's lock: a lock is held for as long as any
  // process has the file open.
  static void before_fork() { all_rings().mutex.lock(); }
  static void after_fork() { all_rings().mutex.unlock(); }
  static void after_fork_in_child() {
    for (const Known& known : all_rings().known) {
      if (known.ring && known.ring->file_ >= 0) ::close(std::exchange(known.ring->file_, -1));
    }
    after_fork();
  }

  void put(uint64_t at, const void* data, std::size_t size) {
    const uint64_t place = at % capacity_;
    const std::size_t first = size < capacity_ - place ? size : capacity_ - place;
    if (first) std::memcpy(data_ + place, data, first);
    if (size > first) std::memcpy(data_, static_cast<const char*>(data) + first, size - first);
  }

  Dump judge_dump(int kind, uint32_t wanted, uint64_t call) const {
    if (header_->dumps >= most_dumps) return header_->dumps == most_dumps ? Dump::no_more : Dump::none;
    uint32_t others = 0;  // kinds that are wanted and had no dump yet
    for (int i = 0; i < kinds; ++i) {
      const auto& known = header_->kinds[i];
      if (!known.dumps) {
        others += i != kind && wanted >> i & 1;
        continue;
      }
      uint64_t distance = 10;
      for (uint32_t n = 1; i == kind && n < known.dumps; ++n) distance *= 10;
      if (call < known.call + distance) return Dump::none;
    }
    const bool is_first = !header_->kinds[kind].dumps;
    return is_first || header_->dumps + others < most_dumps ? Dump::write : Dump::none;
  }

  // The caller holds the lock.
  FlightSlot* find_slot(uint64_t thread) {
    const uint32_t used = header_->slots.load();
    for (uint32_t i = 0; i < used && i < most_slots; ++i) {
      if (slots_[i].thread == thread) return &slots_[i];
    }
    return nullptr;
  }

  // A free slot; if there is none, the slot of a thread that is in no launch, or else of any thread, which was
  // not used for the longest time.
  FlightSlot& new_slot() {
    const uint32_t used = header_->slots.load();
    if (used < most_slots) {
      header_->slots.store(used + 1);
      return slots_[used];
    }
    auto is_in_launch = [](const FlightSlot& slot) {
      return slot.began != slot.ended || slot.began_again != slot.ended_again;
    };
    auto last = [](const FlightSlot& slot) {
      return slot.began_ns < slot.ended_ns ? slot.ended_ns : slot.began_ns;
    };
    FlightSlot* found = slots_;
    for (uint32_t i = 1; i < most_slots; ++i) {
      const bool is_in = is_in_launch(slots_[i]), was_in = is_in_launch(*found);
      if (is_in != was_in ? was_in : last(slots_[i]) < last(*found)) found = &slots_[i];
    }
    header_->lost += is_in_launch(*found);
    return *found;
  }
};

}  // namespace inductor_rewriter
