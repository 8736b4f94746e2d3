// The ring of the probe `record`: the last rows and marks of a process, in a file that is mapped into memory.
// It outlives the process, however that ends. rewriter/dump/flight.py has the same layout.
//
//     header   4096 bytes: magic, version, capacity, head, tail, and facts of the process
//     slots    255 of 64 bytes: a thread, its call, the launch that began last, and that ended last
//     data     records of whole words, one after the other; they wrap around at the end
//
// `head` and `tail` count all bytes ever written. The records between them are complete at every moment. A
// record is 48 bytes (size, kind, padding, call, its number in the wrapper, thread, time, table) and its
// rows.
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "../settings.h"
#include "files.h"
#include "process.h"

namespace inductor_rewriter {

// The marks of one thread.
struct FlightSlot {
  uint64_t thread, call;
  int32_t began, began_again;  // the launch plus 1, and its iteration
  uint64_t began_ns;
  int32_t ended, ended_again;
  uint64_t ended_ns;
  uint64_t number, table;  // the call's number in its wrapper, and its table of launches
};
static_assert(sizeof(FlightSlot) == 64, "Python has it as 64 bytes");

struct FlightHeader {
  char magic[8];
  uint64_t version, capacity;
  std::atomic<uint64_t> head, tail;
  std::atomic<uint32_t> locked, state;
  std::atomic<uint64_t> calls;
  int64_t pid;
  uint64_t start;
  uint32_t rank;
  std::atomic<uint32_t> slots;
  uint64_t wall_ns, clock_ns;  // the same moment on two clocks
  uint32_t dumps;  // how many dumps triggers wrote; plus 1 after the message that there will be no more
  uint32_t lost;   // how often a thread lost its slot to another one while it was in a launch
  struct {
    uint64_t call;  // the call of the last dump
    uint32_t dumps, padding;
  } kinds[5];  // by kind of trigger

  void lock() {
    for (int turn = 0;; ++turn) {
      uint32_t free = 0;
      if (locked.compare_exchange_weak(free, 1, std::memory_order_acquire)) return;
      if (turn > 64) sched_yield();
    }
  }
  void unlock() { locked.store(0, std::memory_order_release); }
};
static_assert(offsetof(FlightHeader, lost) == 100, "Python has it there");

struct FlightRecord {
  uint32_t size;  // of the record with its rows and padding, a multiple of 8
  uint16_t kind, padding;
  uint64_t call, number, thread, time, table;
};
static_assert(sizeof(FlightRecord) == 48, "Python has it as 48 bytes");

// The facts of a call that its records contain.
struct FlightCall {
  uint64_t call = 0, number = 0, thread = 0, table = 0, started = 0;
};

class FlightRing {
 public:
  static constexpr char magic[9] = "rwflight";
  static constexpr uint64_t version = 1;  // the version of the layout
  static constexpr uint64_t header_bytes = 4096, message_at = 1024, most_slots = 255;
  static constexpr uint64_t data_at = header_bytes + most_slots * sizeof(FlightSlot);
  static constexpr uint64_t usual = 32 << 20, most = 64 << 20, least = 64 << 10;
  enum Kind : uint16_t { begin = 1, rows = 2, end = 3 };
  enum State : uint32_t { running = 1, ended = 2, copied = 3 };

  // The ring of this process in the folder of a dump; all copies of the runtime in the process share it.
  // Null if there can be none, and `problem` says why. Never freed.
  static FlightRing* of(const std::string& root, int rank, std::string& problem) {
    All& all = all_rings();
    const std::lock_guard<std::mutex> guard(all.mutex);
    static const int registered = pthread_atfork(&before_fork, &after_fork, &after_fork_in_child);
    static_cast<void>(registered);
    for (const Known& known : all.known) {
      if (known.root == root && known.pid == getpid()) {
        if (!known.ring) problem = known.problem;
        return known.ring;
      }
    }
    auto made = std::make_unique<FlightRing>();
    FlightRing* const ring = made->open_or_make(root, rank, problem) ? made.release() : nullptr;
    // A failure, such as a full disk, is remembered: not each call tries again.
    all.known.push_back({root, getpid(), ring, problem});
    // The process ends by itself, or the library is unloaded.
    static const int finishes = std::atexit([] { finish_all(""); });
    static_cast<void>(finishes);
    return ring;
  }

  static uint64_t now() { return static_cast<uint64_t>(clock_ns()); }

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

  // When a process started, in ticks since the machine booted. Together with its pid this is unique.
  static uint64_t start_of(pid_t pid) {
    char text[1024];
    snprintf(text, sizeof text, "/proc/%d/stat", static_cast<int>(pid));
    const int file = ::open(text, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    const ssize_t size = ::read(file, text, sizeof text - 1);
    ::close(file);
    if (size <= 0) return 0;
    text[size] = 0;
    const char* at = std::strrchr(text, ')');
    for (int field = 2; at && field < 22; ++field) at = std::strchr(at + 1, ' ');
    return at ? std::strtoull(at, nullptr, 10) : 0;
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

  static uint64_t wanted_capacity() {
    const std::string text = environment("REWRITER_RECORD_BYTES");
    uint64_t bytes = usual;
    try {
      if (!text.empty()) bytes = parse_bytes(text);
    } catch (const std::exception&) {
      bytes = usual;
    }
    bytes = bytes < least ? least : bytes > most ? most : bytes;
    return bytes & ~uint64_t{4095};
  }

  bool open_or_make(const std::string& root, int rank, std::string& problem) {
    std::string host = host_name();
    std::replace(host.begin(), host.end(), '/', '_');
    const std::string folder = root + "/record";
    if (!make_folder(root) || !make_folder(folder)) return fail("cannot make " + folder, problem);
    const std::string stem = folder + "/" + host + "." + std::to_string(getpid());
    for (int turn = 0; turn < 1000; ++turn) {
      const std::string own = turn ? stem + "." + std::to_string(turn) : stem;
      if (!make_folder(own)) return fail("cannot make " + own, problem);
      path_ = own + "/ring";
      if (open_existing()) return true;
      if (errno != ENOENT) continue;  // that of another process
      if (make(own, rank, problem) || (problem.empty() && open_existing())) return true;
      if (!problem.empty()) return false;
    }
    return fail("there are too many in " + folder, problem);
  }

  static bool fail(const std::string& what, std::string& problem) {
    problem = what + ": " + std::strerror(errno);
    return false;
  }

  bool open_existing() {
    const int file = ::open(path_.c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) return false;
    struct stat about;
    if (fstat(file, &about) || !map(path_, file, static_cast<uint64_t>(about.st_size))) {
      ::close(file);
    } else if (!std::memcmp(header_->magic, magic, 8) && header_->version == version &&
               header_->pid == getpid() && header_->start == start_of(getpid())) {
      return true;
    } else {
      unmap();
    }
    errno = EEXIST;
    return false;
  }

  // Maps the file, which has this path. Closes `file` on success.
  bool map(const std::string& path, int file, uint64_t size) {
    if (size < data_at + least) return false;
    void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) return false;
    header_ = static_cast<FlightHeader*>(memory);
    slots_ = reinterpret_cast<FlightSlot*>(static_cast<char*>(memory) + header_bytes);
    data_ = static_cast<char*>(memory) + data_at;
    capacity_ = size - data_at;
    // The lock shows readers that the process is alive. It is taken on another descriptor, since the mapping
    // would keep a lock on `file` in forks, too.
    file_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file_ < 0) {
      munmap(memory, size);
      return false;
    }
    flock(file_, LOCK_SH | LOCK_NB);
    ::close(file);
    return true;
  }

  // False without a problem: another copy of the runtime was first.
  bool make(const std::string& own, int rank, std::string& problem) {
    const std::string temporary =
        own + "/.ring." + std::to_string(reinterpret_cast<uintptr_t>(this)) + "." + std::to_string(getpid());
    const int file = ::open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0) return fail("cannot make " + temporary, problem);
    const uint64_t size = data_at + wanted_capacity();
    // Allocates all of it: writing to the mapping on a full disk would end the program.
    const int full = posix_fallocate(file, 0, static_cast<off_t>(size));
    if (full || !map(temporary, file, size)) {
      if (full) errno = full;
      fail("no room for " + own + "/ring", problem);
      ::close(file);
      unlink(temporary.c_str());
      return false;
    }
    std::memcpy(header_->magic, magic, 8);
    header_->version = version;
    header_->capacity = capacity_;
    header_->state = running;
    header_->pid = getpid();
    header_->start = start_of(getpid());
    header_->rank = static_cast<uint32_t>(rank);
    header_->wall_ns = static_cast<uint64_t>(clock_ns(CLOCK_REALTIME));
    header_->clock_ns = now();
    // Renamed, so that a mapping has the name by which others find it, but not over the ring of another copy.
    constexpr unsigned no_replace = 1;  // RENAME_NOREPLACE, since Linux 3.15
    bool is_first =
        !syscall(SYS_renameat2, AT_FDCWD, temporary.c_str(), AT_FDCWD, path_.c_str(), no_replace);
    if (!is_first && errno != EEXIST) {  // the file system cannot
      is_first = access(path_.c_str(), F_OK) && !rename(temporary.c_str(), path_.c_str());
    }
    unlink(temporary.c_str());
    if (!is_first) unmap();
    return is_first;
  }

  void unmap() {
    munmap(header_, data_at + capacity_);
    ::close(std::exchange(file_, -1));
  }

  std::string path_;
  int file_ = -1;
  FlightHeader* header_ = nullptr;
  FlightSlot* slots_ = nullptr;
  char* data_ = nullptr;
  uint64_t capacity_ = 0;
};

}  // namespace inductor_rewriter
