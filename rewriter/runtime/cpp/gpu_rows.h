// Measures tensors on a GPU without waiting for it, by the engine's kernel, which writes rows.
#pragma once

#include <atomic>
#include <exception>
#include <mutex>
#include <string>
#include <vector>

#include "device.h"
#include "engine/files.h"
#include "engine/gpu.h"
#include "settings.h"
#include "torch_files.h"

namespace inductor_rewriter {

// The text of the kernel, which rewriter/runtime/bundle.py makes of
// rewriter/runtime/cpp/engine/kernel.h.
inline const char* kernel_source();

// One device, for all wrappers of this copy of the runtime. Never destroyed: the driver may be gone
// when the process exits.
class GpuRows {
 public:
  // Null if the device is not the current one, or cannot measure: `problem` says why.
  static GpuRows* of(int device, std::string& problem) {
    GpuRows* const one = started(device, problem);
    if (one && !one->gpu_.is_started()) {
      problem = "values are copied to the host, which takes long: " + one->gpu_.problem();
      return nullptr;
    }
    return one;
  }

  // The engine of a device; null if it could not be started.
  static Gpu* engine(int device, std::string& problem) {
    GpuRows* const one = started(device, problem);
    if (!one || one->gpu_.is_started()) return one ? &one->gpu_ : nullptr;
    problem = one->gpu_.problem();
    return nullptr;
  }

  // Call before the memory of values that wait to be measured may be written or freed (engine/gpu.h).
  static void settle() {
    if (All::get().waits.exchange(false)) each([](GpuRows& rows) { rows.gpu_.settle(); });
  }

  // Starts merging what was issued, if nothing follows for now (engine/gpu.h).
  static void merge() {
    each([](GpuRows& rows) { rows.gpu_.merge(); });
  }

  // Issues the measuring of tensors; their rows begin at `first`. False if it failed.
  bool issue(const std::vector<Layout>& layouts, void* stream, Gpu::When when, uint64_t& first) {
    const int count = static_cast<int>(layouts.size());
    std::lock_guard<std::mutex> guard(issuing_);
    // What this device measures does not settle the others.
    if (All::get().several && All::get().waits) {
      each([this](GpuRows& rows) {
        if (&rows != this) rows.gpu_.settle();
      });
    }
    first = gpu_.ring.reserve(static_cast<uint64_t>(count));
    if (gpu_.measure(layouts.data(), count, stream, first, when)) {
      // Set after measuring: another thread that settles in between resets it.
      if (when == Gpu::When::together) All::get().waits = true;
      return true;
    }
    close(first, static_cast<uint32_t>(count));
    return false;
  }

  Gpu& gpu() { return gpu_; }

  // Releases rows: they were read, or will not be. `issue` does not wait for this.
  void close(uint64_t first, uint32_t count) {
    std::lock_guard<std::mutex> guard(closing_);
    gpu_.ring.release(first, count);
  }

 private:
  static constexpr int most_devices = 64;

  struct All {
    std::mutex lock;
    std::atomic<GpuRows*> rows[most_devices] = {};  // null if not started
    std::atomic<bool> waits{false};    // whether measuring may be deferred
    std::atomic<bool> several{false};  // whether more than one device measures
    int started = 0;
    static All& get() {
      static All* all = new All;
      return *all;
    }
  };

  GpuRows() = default;

  // Calls `act` with each device that measures.
  template <class Act>
  static void each(Act&& act) {
    std::lock_guard<std::mutex> guard(All::get().lock);
    for (const auto& one : All::get().rows) {
      if (GpuRows* rows = one; rows && rows->gpu_.is_started()) act(*rows);
    }
  }

  // The object of a device, whether it can measure or not; null if the device is not the current one.
  static GpuRows* started(int device, std::string& problem) {
    if (device < 0 || device >= most_devices) return nullptr;
    All& all = All::get();
    GpuRows* one = all.rows[device].load(std::memory_order_acquire);
    if (one) return one;
    std::lock_guard<std::mutex> guard(all.lock);
    one = all.rows[device];
    if (one) return one;
    static int (*const get_device)(int*) = find_driver("cuCtxGetDevice");
    int current = -1;
    if (get_device && (get_device(&current) || current != device)) return nullptr;
    if (is_capturing(device)) {
      problem = "values of a CUDA graph are measured where the wrapper ran before it was captured";
      return nullptr;
    }
    one = new GpuRows;
    one->gpu_.start(kernel_source(), {own_directory(), torch_directory(), cache_directory()});
    all.rows[device] = one;
    all.several = ++all.started > 1;
    return one;
  }

  // `cache_directory` of rewriter/runtime/cache_directory.py; empty if there is no cache.
  static std::string cache_directory() {
    std::string base = environment("REWRITER_CACHE_DIR");
    if (is_off(base)) return "";
    if (base.empty()) {
      base = environment("XDG_CACHE_HOME");
      if (base.empty() || base[0] != '/') base = environment("HOME") + "/.cache";
      if (base[0] != '/') return "";
      base += "/rewriter";
    }
    base += "/engine";
    try {
      make_directories(base);
    } catch (const std::exception&) {
      return "";  // nothing can be kept
    }
    return base;
  }

  Gpu gpu_;
  std::mutex issuing_, closing_;
};

}  // namespace inductor_rewriter
