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

#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>

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

// The file of a ring: how it is found or made, and where its parts are in memory.
class FlightFile {
 public:
  static constexpr char magic[9] = "rwflight";
  static constexpr uint64_t version = 1;  // the version of the layout
  static constexpr uint64_t header_bytes = 4096, message_at = 1024, most_slots = 255;
  static constexpr uint64_t data_at = header_bytes + most_slots * sizeof(FlightSlot);
  static constexpr uint64_t usual = 32 << 20, most = 64 << 20, least = 64 << 10;
  enum State : uint32_t { running = 1, ended = 2, copied = 3 };

 protected:
  static uint64_t now() { return static_cast<uint64_t>(clock_ns()); }

  void open_or_make(const std::string& root, int rank) {
    std::string host = host_name();
    std::replace(host.begin(), host.end(), '/', '_');
    const std::string folder = root + "/record";
    if (!make_folder(root) || !make_folder(folder)) fail("make", folder);
    const std::string stem = folder + "/" + host + "." + std::to_string(getpid());
    for (int turn = 0; turn < 1000; ++turn) {
      const std::string own = turn ? stem + "." + std::to_string(turn) : stem;
      if (!make_folder(own)) fail("make", own);
      path_ = own + "/ring";
      if (open_existing()) return;
      if (errno != ENOENT) continue;  // that of another process
      if (make(own, rank) || open_existing()) return;
    }
    throw std::runtime_error("there are too many in " + folder);
  }

  std::string path_;
  int file_ = -1;
  FlightHeader* header_ = nullptr;
  FlightSlot* slots_ = nullptr;
  char* data_ = nullptr;
  uint64_t capacity_ = 0;

 private:
  // When this process started, in ticks since the machine booted. Together with its pid this is unique.
  static uint64_t own_start() {
    const std::string text = read_file("/proc/self/stat");
    const char* at = std::strrchr(text.c_str(), ')');
    for (int field = 2; at && field < 22; ++field) at = std::strchr(at + 1, ' ');
    return at ? std::strtoull(at, nullptr, 10) : 0;
  }

  static uint64_t wanted_capacity() {
    const std::string text = environment("REWRITER_RECORD_BYTES");
    uint64_t bytes = usual;
    try {
      if (!text.empty()) bytes = parse_bytes(text);
    } catch (const std::exception&) {
      // It is no size.
    }
    return std::clamp(bytes, least, most) & ~uint64_t{4095};
  }

  bool open_existing() {
    const int file = ::open(path_.c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) return false;
    struct stat about;
    if (fstat(file, &about) || !map(path_, file, static_cast<uint64_t>(about.st_size))) {
      ::close(file);
    } else if (!std::memcmp(header_->magic, magic, 8) && header_->version == version &&
               header_->pid == getpid() && header_->start == own_start()) {
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

  // False: another copy of the runtime was first.
  bool make(const std::string& own, int rank) {
    const std::string temporary =
        own + "/.ring." + std::to_string(reinterpret_cast<uintptr_t>(this)) + "." + std::to_string(getpid());
    const int file = ::open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0) fail("make", temporary);
    const uint64_t size = data_at + wanted_capacity();
    // Allocates all of it: writing to the mapping on a full disk would end the program.
    const int full = posix_fallocate(file, 0, static_cast<off_t>(size));
    if (full || !map(temporary, file, size)) {
      const std::string why = std::strerror(full ? full : errno);
      ::close(file);
      unlink(temporary.c_str());
      throw std::runtime_error("no room for " + own + "/ring: " + why);
    }
    std::memcpy(header_->magic, magic, 8);
    header_->version = version;
    header_->capacity = capacity_;
    header_->state = running;
    header_->pid = getpid();
    header_->start = own_start();
    header_->rank = static_cast<uint32_t>(rank);
    header_->wall_ns = static_cast<uint64_t>(clock_ns(CLOCK_REALTIME));
    header_->clock_ns = now();
    // Renamed, so that a mapping has the name by which others find it, but not over the ring of another copy.
    constexpr unsigned no_replace = 1;  // RENAME_NOREPLACE, since Linux 3.15
    bool is_first = !syscall(SYS_renameat2, AT_FDCWD, temporary.c_str(), AT_FDCWD, path_.c_str(), no_replace);
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
};

}  // namespace inductor_rewriter
