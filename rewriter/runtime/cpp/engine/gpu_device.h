// A GPU with what measuring on it takes: its driver, kernels (kernel_code.h) and memory.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "bands.h"
#include "driver.h"
#include "kernel_code.h"
#include "ring.h"
#include "tasks.h"

namespace inductor_rewriter {

// The GPU of the current context: one object per device, which one thread uses at a time.
class GpuDevice {
 public:
  static constexpr int regions = 16;               // streams and captures that measure
  static constexpr uint64_t captured_rows = 8192;  // of all graphs

  // Loads the kernels and takes memory. Must be called before a CUDA graph is captured, and once.
  // `source` is the text of the kernels. If it fails, `problem` says why.
  void start(const char* source, const gpu::Places& places) {
    problem_ = prepare(source, places);
    started_ = problem_.empty();
  }

  bool is_started() const { return started_; }
  // Why `start` failed. It is written once, before `start` returns.
  const std::string& problem() const { return problem_; }

  Ring ring;

  // Waits until the stream is idle, in any thread. Returns the device's error, or an empty text.
  std::string synchronize(void* stream) const {
    const Current current(driver_, context_);
    const Relaxed relaxed;
    const int code = driver_.synchronize(stream);
    return code ? driver_error("the device failed", code) : "";
  }

  // The records of damaged guard bands, in pinned host memory that the device writes to.
  Damage* damage() const { return damage_; }

 protected:
  enum Kernel { measure_all, measure_quickly, merge_parts, memory, memory_few, measure_and_act, kernels };
  static constexpr const char* names[] = {"measure", "measure_quickly", "merge", "memory", "memory_few",
                                          "measure_and_act"};
  struct Region {
    void* stream = nullptr;
    bool captured = false;
    gpu::Part* parts = nullptr;
    // One for each task; the last one counts the blocks of joined launches (JoinedJob) that have finished
    // measuring, and `measured` is what it is when all of them have.
    uint32_t* counters = nullptr;
    uint32_t measured = 0;
    // Tensors whose partial results are not merged yet.
    gpu::Vector* quick_parts = nullptr;
    gpu::QuickTask tasks[gpu::most_parted];
    uint32_t parted = 0, used_parts = 0;
    uint32_t found = 0;    // a bit for each tensor whose row was merged by `merge_late`, and read
    bool is_late = false;  // whether `merge_late` has run since the last merge
    uint64_t* late_rows = nullptr;
    std::chrono::steady_clock::time_point next_try;
    std::chrono::microseconds pause{};
  };
  static constexpr uint32_t quick_parts = gpu::most_parted * gpu::few;

  // Makes a context current for this thread, for as long as the object lives.
  class Current {
   public:
    Current(const gpu::Driver& driver, void* context) : driver_(driver), context_(context) {
      driver_.get_context(&before_);
      if (before_ != context_) driver_.set_context(context_);
    }
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;
    ~Current() {
      if (before_ && before_ != context_) driver_.set_context(before_);
    }

   private:
    const gpu::Driver& driver_;
    void* const context_;
    void* before_ = nullptr;
  };

  std::string prepare(const char* source, const gpu::Places& places) {
    if (!driver_.lacks.empty()) return "the driver lacks " + driver_.lacks;
    const Relaxed relaxed;
    if (driver_.get_context(&context_) || !context_) return "no device is in use";
    int device = 0, major = 0, minor = 0;
    driver_.get_device(&device);
    driver_.get_attribute(&processors_, 16, device);
    driver_.get_attribute(&major, 75, device);
    driver_.get_attribute(&minor, 76, device);
    int cache = 0;  // bytes of the L2 cache
    driver_.get_attribute(&cache, 38, device);
    if (cache > 0) most_gathered_ = cache / 16 * 7 / fingerprint::vector_bytes;
    if (processors_ <= 0 || processors_ > 512) processors_ = 128;
    std::string problem;
    void* const module = gpu::load_kernels(driver_, source, places, major, minor, problem);
    if (!module) return problem;
    for (int i = 0; i < kernels; ++i) {
      const std::string name = std::string("inductor_rewriter_") + names[i];
      const int error = driver_.get_function(&kernels_[i], module, name.c_str());
      if (error) return driver_error("the kernel is not there", error);
    }
    return take_memory();
  }

  // Allocates all device and pinned memory that is ever used.
  std::string take_memory() {
    const std::size_t parts = std::size_t(gpu::most_tasks) *
        static_cast<std::size_t>(gpu::most_blocks(processors_)) * sizeof(gpu::Part);
    const std::size_t counters = (gpu::most_tasks + 1) * sizeof(uint32_t);
    const std::size_t quick = std::size_t(quick_parts) * gpu::quick_vectors * sizeof(gpu::Vector);
    const std::size_t region = (parts + quick + counters + 255) / 256 * 256;
    const std::size_t bytes = region * regions + captured_rows * sizeof(uint64_t);
    uintptr_t memory = 0;
    int problem = driver_.allocate(&memory, bytes);
    if (!problem) problem = driver_.clear(memory, 0, bytes);
    if (problem) return driver_error("no memory on the device", problem);
    for (int i = 0; i < regions; ++i) {
      const uintptr_t start = memory + region * static_cast<std::size_t>(i);
      regions_[i].parts = reinterpret_cast<gpu::Part*>(start);
      regions_[i].quick_parts = reinterpret_cast<gpu::Vector*>(start + parts);
      regions_[i].counters = reinterpret_cast<uint32_t*>(start + parts + quick);
    }
    replays_ = reinterpret_cast<uint64_t*>(memory + region * regions);
    const std::size_t captured = captured_rows * gpu::row_words * sizeof(uint64_t);
    const std::size_t late = gpu::most_parted * gpu::row_words;
    const std::size_t rows = Ring::bytes + captured + regions * late * sizeof(uint64_t);
    const std::size_t pinned = rows + sizeof(Damage) * most_damaged;
    void* host = nullptr;
    // Flags: usable in every context (1), mapped into the device's address space (2).
    if (int error = driver_.allocate_host(&host, pinned, 1 | 2)) return driver_error("no pinned memory", error);
    std::memset(host, 0, pinned);
    uintptr_t there = 0;
    if (int error = driver_.get_device_pointer(&there, host, 0)) return driver_error("no mapped memory", error);
    to_device_ = there - reinterpret_cast<uintptr_t>(host);
    ring.attach(static_cast<uint64_t*>(host));
    char* const first = static_cast<char*>(host);
    captured_rows_ = reinterpret_cast<uint64_t*>(first + Ring::bytes);
    auto* late_rows = reinterpret_cast<uint64_t*>(first + Ring::bytes + captured);
    for (int i = 0; i < regions; ++i) regions_[i].late_rows = late_rows + std::size_t(i) * late;
    damage_ = reinterpret_cast<Damage*>(first + rows);
    return "";
  }

  Region* find_region(void* stream, bool captured) {
    for (int i = 0; i < used_; ++i) {
      if (regions_[i].stream == stream && regions_[i].captured == captured) return &regions_[i];
    }
    if (used_ == regions) return nullptr;
    Region* region = &regions_[used_++];
    region->stream = stream;
    region->captured = captured;
    return region;
  }

  // Where the device has pinned memory.
  template <class T>
  T* on_device(T* here) const {
    return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(here) + to_device_);
  }

  // `early`: the launch may start while the one before it ends (programmatic dependent launch); the
  // kernel itself waits for that end.
  int launch(Kernel which, void* job, uint32_t blocks, void* stream, bool early) {
    void* const kernel = kernels_[which];
    void* arguments[] = {job};
    if (early && driver_.launch_with) {
      struct Attribute {
        int id;
        char pad[4];
        int value[16];
      } attribute = {6, {}, {1}};
      struct Configuration {
        unsigned grid[3], block[3], shared;
        void* stream;
        Attribute* attributes;
        unsigned count;
      } configuration = {{blocks, 1, 1}, {gpu::threads, 1, 1}, 0, stream, &attribute, 1};
      return driver_.launch_with(&configuration, kernel, arguments, nullptr);
    }
    return driver_.launch(kernel, blocks, 1, 1, gpu::threads, 1, 1, 0, stream, arguments, nullptr);
  }

  std::atomic<bool> started_{false};
  std::string problem_;
  gpu::Driver driver_;
  void* kernels_[kernels] = {};
  void* context_ = nullptr;
  int processors_ = 0;
  // How many vectors of 16 bytes are deferred at most. A launch costs 2.3 us, but tensors that were
  // written last are still in the L2 cache: somewhat less than half of it is a good limit (50 MiB on an
  // H200).
  int64_t most_gathered_ = (21 << 20) / fingerprint::vector_bytes;
  Region regions_[regions];
  int used_ = 0;
  uint64_t* replays_ = nullptr;
  uint64_t* captured_rows_ = nullptr;
  uintptr_t to_device_ = 0;  // from an address of pinned memory to the device's
  Damage* damage_ = nullptr;
};

}  // namespace inductor_rewriter
