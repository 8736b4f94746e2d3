// Measures what is on a GPU without waiting for it: the engine's kernel, and the rows that it writes.
#pragma once

#include <dlfcn.h>
#include <sys/stat.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "device.h"
#include "engine/gpu.h"

namespace {
namespace inductor_rewriter {

// The text of the kernel: made of rewriter/runtime/cpp/engine/kernel.h by
// rewriter/instrumentation/bundle.py.
inline const char* kernel_source();

// One device, for all wrappers of this copy of the runtime. Never destroyed: the driver may be gone
// when the process exits.
class GpuRows {
 public:
  // Null where the device is not the current one, or cannot measure: `problem` says why.
  static GpuRows* of(int device, std::string& problem) {
    GpuRows* const one = started(device, problem);
    if (one && !one->gpu_.is_started()) {
      problem = "values are copied to the host, which takes long: " + one->gpu_.problem();
      return nullptr;
    }
    return one;
  }

  // The engine alone; null where it is not there.
  static Gpu* engine(int device, std::string& problem) {
    GpuRows* const one = started(device, problem);
    if (!one || one->gpu_.is_started()) return one ? &one->gpu_ : nullptr;
    problem = one->gpu_.problem();
    return nullptr;
  }

  // The memory of what waits to be measured may be written or freed (engine/gpu.h).
  static void settle() {
    All& all = All::get();
    if (!all.waits.exchange(false)) return;
    std::lock_guard<std::mutex> guard(all.lock);
    for (const auto& one : all.rows) {
      if (GpuRows* rows = one; rows && rows->gpu_.is_started()) rows->gpu_.settle();
    }
  }

  // Nothing follows for now: have merged what was issued (engine/gpu.h).
  static void merge() {
    All& all = All::get();
    std::lock_guard<std::mutex> guard(all.lock);
    for (const auto& one : all.rows) {
      if (GpuRows* rows = one; rows && rows->gpu_.is_started()) rows->gpu_.merge();
    }
  }

  // Issue the measuring of tensors; their rows are those from `first` on. False where it cannot be.
  bool issue(
      const std::vector<const Layout*>& layouts, const std::vector<const void*>& data, void* stream,
      Gpu::When when, uint64_t& first) {
    const int count = static_cast<int>(layouts.size());
    std::lock_guard<std::mutex> guard(issuing_);
    if (All::get().several && All::get().waits) settle_others();
    first = gpu_.ring.reserve(static_cast<uint64_t>(count));
    if (gpu_.measure(layouts.data(), data.data(), count, stream, first, when)) {
      // Behind it: another thread that settles meanwhile takes the mark away.
      if (when == Gpu::When::together) All::get().waits = true;
      return true;
    }
    close(first, static_cast<uint32_t>(count));
    return false;
  }

  // Have tensors measured by each replay of the CUDA graph that a stream is captured into; `first` is
  // the number of the first of the rows, which are the graph's own. Nothing is waited for.
  bool capture(
      const std::vector<const Layout*>& layouts, const std::vector<const void*>& data, void* stream,
      uint64_t& first) {
    const int count = static_cast<int>(layouts.size());
    return gpu_.capture(layouts.data(), data.data(), count, stream, first);
  }

  // What the last replay measured, and how many there were; false before the first.
  bool read_captured(uint64_t number, uint64_t& replays, Measured& to) const {
    return gpu_.read_captured(number, replays, to);
  }

  // Whether a row is there, for which so many nanoseconds were waited.
  bool read(uint64_t sequence, int64_t waited, Measured& to) {
    return gpu_.find(sequence, waited, to);
  }

  // So many rows from `first` on were read, or are given up. Who issues others does not wait for this.
  void close(uint64_t first, uint32_t count) {
    std::lock_guard<std::mutex> guard(closing_);
    gpu_.ring.release(closed_.add(first, count));
  }

  // Wait for the stream, in whatever thread. Empty, or what is wrong with the device.
  std::string synchronize(void* stream) const {
    static const auto set = find_driver<int (*)(void*)>("cuCtxSetCurrent");
    static const auto get = find_driver<int (*)(void**)>("cuCtxGetCurrent");
    void* before = nullptr;
    if (set && get && !get(&before) && !before) set(context_);
    return gpu_.synchronize(stream);
  }

  std::string problem_of_last() const { return gpu_.problem_of_last(); }

 private:
  static constexpr int most_devices = 64;

  struct All {
    std::mutex lock;
    std::atomic<GpuRows*> rows[most_devices] = {};  // those that were started
    std::atomic<bool> waits{false};    // whether something may
    std::atomic<bool> several{false};  // devices measure
    int started = 0;
    static All& get() {
      static All* all = new All;
      return *all;
    }
  };

  GpuRows() = default;

  // Made, whether it can measure or not; null where the device is not the current one.
  static GpuRows* started(int device, std::string& problem) {
    if (device < 0 || device >= most_devices) return nullptr;
    All& all = All::get();
    GpuRows* one = all.rows[device].load(std::memory_order_acquire);
    if (one) return one;
    std::lock_guard<std::mutex> guard(all.lock);
    one = all.rows[device];
    if (one) return one;
    static const auto get_device = find_driver<int (*)(int*)>("cuCtxGetDevice");
    int current = -1;
    if (get_device && (get_device(&current) || current != device)) return nullptr;
    if (is_capturing(device)) {
      problem = "values of a CUDA graph are measured where the wrapper ran before it was captured";
      return nullptr;
    }
    one = new GpuRows;
    one->start();
    all.rows[device] = one;
    all.several = ++all.started > 1;
    return one;
  }

  // What this device measures is not what the others wait for.
  void settle_others() {
    All& all = All::get();
    std::lock_guard<std::mutex> guard(all.lock);
    for (const auto& one : all.rows) {
      GpuRows* const rows = one;
      if (rows && rows != this && rows->gpu_.is_started()) rows->gpu_.settle();
    }
  }

  void start() {
    static const auto get = find_driver<int (*)(void**)>("cuCtxGetCurrent");
    if (get) get(&context_);
    gpu_.start(kernel_source(), torch_directory(), cache_directory());
  }

  static std::string torch_directory() {
    Dl_info about;
    if (!dladdr(reinterpret_cast<const void*>(&aoti_torch_get_dtype), &about)) return "";
    const std::string path = about.dli_fname ? about.dli_fname : "";
    return path.substr(0, path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }

  // `cache_directory` of rewriter/runtime/cache_directory.py; empty where nothing can be kept.
  static std::string cache_directory() {
    auto variable = [](const char* name) {
      const char* value = std::getenv(name);
      return std::string(value ? value : "");
    };
    std::string base = variable("REWRITER_CACHE_DIR");
    if (base.size() == 3 && (base[0] | 32) == 'o' && (base[1] | 32) == 'f' && (base[2] | 32) == 'f') {
      return "";
    }
    if (base.empty()) {
      base = variable("XDG_CACHE_HOME");
      if (base.empty() || base[0] != '/') base = variable("HOME") + "/.cache";
      if (base[0] != '/') return "";
      base += "/rewriter";
    }
    base += "/engine";
    for (std::size_t end = 1; end <= base.size(); ++end) {
      if (end == base.size() || base[end] == '/') mkdir(base.substr(0, end).c_str(), 0777);
    }
    return base;
  }

  Gpu gpu_;
  void* context_ = nullptr;
  std::mutex issuing_, closing_;
  ClosedRows closed_;
};

}  // namespace inductor_rewriter
}  // namespace
