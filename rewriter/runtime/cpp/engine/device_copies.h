// Asynchronous copies from a GPU, by functions of the driver that the process has loaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "relaxed.h"

namespace inductor_rewriter {

// An event to wait for before a copy may be read.
struct CopyEvent {
  void* context = nullptr;
  void* event = nullptr;
};

class DeviceCopies {
 public:
  bool available() const { return available_; }

  // Pinned host memory, which copies can go to asynchronously. Null if there is none.
  char* allocate(std::size_t size) const {
    void* made = nullptr;
    constexpr unsigned portable = 1;
    const Relaxed relaxed;
    return available() && !allocate_(&made, size, portable) ? static_cast<char*>(made) : nullptr;
  }
  void release(char* memory) const {
    const Relaxed relaxed;
    free_(memory);
  }

  // Queues a copy on a stream of the current device. 0, or the driver's error.
  int copy(char* to, uint64_t from, std::size_t size, void* stream) const {
    return copy_(to, from, size, stream);
  }

  // Records an event after all that is queued on a stream. 0, or the driver's error.
  int record(void* stream, CopyEvent& mark) {
    if (int error = context_(&mark.context)) return error;
    {
      std::lock_guard<std::mutex> guard(lock_);
      auto& free = free_events_[mark.context];
      if (!free.empty()) {
        mark.event = free.back();
        free.pop_back();
      }
    }
    constexpr unsigned sleeps_untimed = 3;  // flags: waiting threads sleep; no timing
    if (!mark.event) {
      if (int error = create_(&mark.event, sleeps_untimed)) return error;
    }
    return record_(mark.event, stream);
  }

  // Waits for an event; only in a thread of the saver, whose context it changes. 0, or the driver's error.
  int wait(const CopyEvent& mark) {
    static thread_local void* current = nullptr;
    if (current != mark.context) {
      if (int error = use_(mark.context)) return error;
      current = mark.context;
    }
    const Relaxed relaxed;
    int error = wait_(mark.event);
    std::lock_guard<std::mutex> guard(lock_);
    free_events_[mark.context].push_back(mark.event);
    return error;
  }

 private:
  using Copy = int (*)(void*, uint64_t, std::size_t, void*);
  using Allocate = int (*)(void**, std::size_t, unsigned);
  using Act = int (*)(void*);

  const Copy copy_ = find_driver<Copy>("cuMemcpyDtoHAsync_v2");
  const Allocate allocate_ = find_driver<Allocate>("cuMemHostAlloc");
  const Act free_ = find_driver<Act>("cuMemFreeHost");
  int (*const create_)(void**, unsigned) = find_driver<int (*)(void**, unsigned)>("cuEventCreate");
  int (*const record_)(void*, void*) = find_driver<int (*)(void*, void*)>("cuEventRecord");
  const Act wait_ = find_driver<Act>("cuEventSynchronize");
  int (*const context_)(void**) = find_driver<int (*)(void**)>("cuCtxGetCurrent");
  const Act use_ = find_driver<Act>("cuCtxSetCurrent");
  const bool available_ =
      copy_ && allocate_ && free_ && create_ && record_ && wait_ && context_ && use_;
  std::mutex lock_;
  std::map<void*, std::vector<void*>> free_events_;  // by context
};

}  // namespace inductor_rewriter
