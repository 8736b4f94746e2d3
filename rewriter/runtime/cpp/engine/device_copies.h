// Asynchronous copies from a GPU, by functions of the driver that the process has loaded.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
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
  DeviceCopies() {
    static const Names cuda = {
        "libcuda.so.1", "cuMemcpyDtoHAsync_v2", "cuMemHostAlloc", "cuMemFreeHost",
        "cuEventCreate", "cuEventRecord", "cuEventSynchronize", "cuCtxGetCurrent",
        "cuCtxSetCurrent"};
    static const Names hip = {
        "libamdhip64.so", "hipMemcpyDtoHAsync", "hipHostMalloc", "hipHostFree",
        "hipEventCreateWithFlags", "hipEventRecord", "hipEventSynchronize", "hipCtxGetCurrent",
        "hipCtxSetCurrent"};
    if (!load(cuda)) load(hip);
  }

  bool available() const { return copy_ != nullptr; }

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
  struct Names {
    const char *library, *copy, *allocate, *free, *create, *record, *wait, *context, *use;
  };

  bool load(const Names& names) {
    void* library = dlopen(names.library, RTLD_NOLOAD | RTLD_LAZY);
    if (!library) return false;
    auto find = [library](const char* name, auto& function) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      return function != nullptr;
    };
    const bool whole = find(names.copy, copy_) && find(names.allocate, allocate_) &&
        find(names.free, free_) && find(names.create, create_) && find(names.record, record_) &&
        find(names.wait, wait_) && find(names.context, context_) && find(names.use, use_);
    if (!whole) copy_ = nullptr;
    return whole;
  }

  int (*copy_)(void*, uint64_t, std::size_t, void*) = nullptr;
  int (*allocate_)(void**, std::size_t, unsigned) = nullptr;
  int (*free_)(void*) = nullptr;
  int (*create_)(void**, unsigned) = nullptr;
  int (*record_)(void*, void*) = nullptr;
  int (*wait_)(void*) = nullptr;
  int (*context_)(void**) = nullptr;
  int (*use_)(void*) = nullptr;
  std::mutex lock_;
  std::map<void*, std::vector<void*>> free_events_;  // by context
};

}  // namespace inductor_rewriter
