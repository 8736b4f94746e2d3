// Measures tensors on a GPU. Apart from `start`, nothing waits for the device or takes memory from it.
//
// Two things are deferred. Tensors whose memory nobody writes or frees soon wait, and are measured by
// the same launch as the tensors that come next. And the quick kernel leaves partial results, one for
// each block, which a merging kernel later combines into rows: when there is no room for more of them,
// or on demand (`merge`). When no launch follows for a while, the thread that waits for a row measures
// what is deferred, and merges it on the default stream into rows of its own (`find`).
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

#include "gpu_device.h"

namespace inductor_rewriter {

class Gpu : public GpuDevice {
 public:
  // How soon tensors are measured and their rows are written.
  //   at_once: measured and merged by this launch.
  //   soon: measured by this launch, merged later or when `find` asks for a row.
  //   together: the launch itself may be deferred to the next `measure` or `settle`, since nobody writes
  //   or frees the memory before that.
  enum class When { at_once, soon, together };

  // Measures `count` tensors on a stream that is not being captured, into reserved rows from `first_row`
  // on. False: it failed, and nothing was launched.
  bool measure(const Layout* layouts, int count, void* stream, uint64_t first_row, When when) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (when == When::at_once) {
      launch_gathered();
      return issue(layouts, count, stream, false, first_row);
    }
    // All tensors are checked before the first launch, so that none is measured if one cannot be.
    if (count > gpu::quick_tasks && !can_read(layouts, count)) return false;
    for (int done = 0; done < count; done += gpu::quick_tasks) {
      const int some = count - done < gpu::quick_tasks ? count - done : gpu::quick_tasks;
      const uint64_t first = first_row + static_cast<uint64_t>(done);
      if (gather(layouts + done, some, stream, first, when)) continue;
      if (!issue(layouts + done, some, stream, false, first)) return false;
    }
    const bool waits = when == When::together && keeps_memory() && gathered_vectors_ < most_gathered_;
    return waits || launch_gathered();
  }

  // Launches what is deferred. After it on the stream, the tensors may be written or freed.
  void settle() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!quick_job_.count) return;
    const Current current(driver_, context_);  // another device may be current
    launch_gathered();
  }

  static constexpr int64_t patience = 1000000;  // nanoseconds

  // Launches what is deferred, and merges all partial results, each on its own stream.
  void merge() {
    const std::lock_guard<std::mutex> lock(mutex_);
    launch_gathered();
    for (int i = 0; i < used_; ++i) merge(regions_[i]);
  }

  // Reads a row; false if it is not there yet. `waited` is for how many nanoseconds the caller has waited
  // for it: after `patience` no launch is expected to follow, so this one measures and merges it, with
  // all other partial results of its stream.
  bool find(uint64_t sequence, int64_t waited, Measured& to) {
    if (ring.read(sequence, to)) return true;
    if (waited < patience && !late_.load(std::memory_order_relaxed)) return false;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (gathers(sequence)) {
      if (waited < patience) return false;
      const Current current(driver_, context_);
      launch_gathered();
      return false;
    }
    for (int i = 0; i < used_; ++i) {
      Region& region = regions_[i];
      for (uint32_t place = 0; place < region.parted; ++place) {
        if (region.tasks[place].sequence != sequence) continue;
        uint64_t wanted = sequence;
        if (!read_row(region.late_rows + place * gpu::row_words, wanted, to)) {
          if (waited >= patience) merge_late(region);
          return false;
        }
        region.found |= 1u << place;
        return true;
      }
    }
    return false;
  }

  // Adds the measuring of tensors to a CUDA graph that is being captured on the stream: each replay
  // measures them, into rows that only this graph uses. `first` is set to the number of the first one.
  bool capture(const Layout* layouts, int count, void* stream, uint64_t& first) {
    const std::lock_guard<std::mutex> lock(mutex_);
    launch_gathered();
    if (captured_ + static_cast<uint64_t>(count) > captured_rows) {
      problem_of_last_ = "more tensors were captured than there are rows for";
      return false;
    }
    first = captured_;
    if (!issue(layouts, count, stream, true, first)) return false;
    captured_ += static_cast<uint64_t>(count);
    return true;
  }

  // Reads what the last replay measured, and how many replays there were. False before the first one.
  bool read_captured(uint64_t number, uint64_t& replays, Measured& to) const {
    replays = 0;
    return read_row(captured_rows_ + number * gpu::row_words, replays, to);
  }

  // Launches a job that compares guard bands and fills memory. Tensors deferred on this stream are
  // measured before, by the same launch if possible. `captured`: the stream is being captured. False: the
  // launch failed.
  bool act(MemoryJob& job, void* stream, bool captured) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!is_started()) return false;
    const bool joined = !captured && quick_job_.count && gathering_->stream == stream && job.bands_count <= few_bands;
    if (!joined) launch_gathered();
    job.damage = on_device(damage_);
    const uint64_t most = (joined ? 1 : 8) * static_cast<uint64_t>(processors_);
    job.blocks = 0;
    for (uint32_t part = 0; part < job.parts_count; ++part) {
      const uint64_t wanted = job.parts[part].bytes / (16 * gpu::threads) + 1;
      const uint32_t some = static_cast<uint32_t>(wanted < most ? wanted : most);
      if (some > job.blocks) job.blocks = some;
    }
    if (joined) return launch_gathered(&job);
    const Kernel kernel = job.bands_count <= few_bands ? memory_few : memory;
    return !launch(kernel, &job, job.bands_count + job.blocks, stream, !captured);
  }

  std::string problem_of_last() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return problem_of_last_;
  }

 private:
  // Adds tensors to the next launch of the quick kernel. False if that kernel cannot measure one of them:
  // then none is added. How a tensor is split among blocks depends only on the tensor and on `when`, so
  // that two runs give the same numbers to the last bit.
  bool gather(const Layout* layouts, int count, void* stream, uint64_t first, When when) {
    if (!is_started() || count > gpu::quick_tasks) return false;
    gpu::QuickJob& job = quick_job_;
    Region* const region = find_region(stream, false);
    if (!region) return false;
    if ((region != gathering_ || job.count + static_cast<uint32_t>(count) > gpu::quick_tasks) && !launch_gathered()) {
      return false;
    }
    uint32_t blocks = 0, parted = 0;
    int64_t vectors = 0;
    for (int i = 0; i < count; ++i) {
      const uint32_t place = job.count + static_cast<uint32_t>(i);
      gpu::QuickTask& task = job.tasks[place];
      const bool with_others = when == When::together;
      if (!gpu::make_quick_task(layouts[i], with_others, task, job.rows[place])) return false;
      if (task.split == gpu::carried) continue;
      blocks += task.blocks;
      vectors += task.whole;
      ++parted;
    }
    if (blocks > quick_parts) return false;
    if (region->parted + parted > gpu::most_parted || region->used_parts + blocks > quick_parts) {
      // There is no room for more partial results: measure the deferred tensors, then merge.
      const uint32_t before = job.count;
      if (!launch_gathered() || !merge(*region)) return false;
      for (int i = 0; i < count; ++i) {
        job.tasks[i] = job.tasks[before + static_cast<uint32_t>(i)];
        job.rows[i] = job.rows[before + static_cast<uint32_t>(i)];
      }
    }
    if (!job.count) {
      gathering_ = region;
      gathered_from_ = region->parted;
    }
    gathered_vectors_ += vectors;
    for (int i = 0; i < count; ++i) {
      gpu::QuickTask& task = job.tasks[job.count++];
      task.sequence = first + static_cast<uint64_t>(i);
      task.row = on_device(ring.row(task.sequence));
      task.first_block = gathered_blocks_;
      gathered_blocks_ += task.blocks;
      if (task.split == gpu::carried) continue;
      task.parts = region->quick_parts + region->used_parts * gpu::quick_vectors;
      region->used_parts += task.blocks;
      region->tasks[region->parted++] = task;
    }
    region->pause = std::chrono::microseconds(50);
    region->next_try = {};
    return true;
  }

  // Whether freed device memory stays readable. A wrapper that fails frees tensors whose measuring is
  // deferred. PyTorch's caching allocator keeps the memory mapped, cudaMallocAsync does not.
  static bool keeps_memory() {
    static const bool keeps = [] {
      if (std::getenv("PYTORCH_NO_CUDA_MEMORY_CACHING")) return false;
      for (const char* name : {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"}) {
        const char* const text = std::getenv(name);
        if (text && std::strstr(text, "cudaMallocAsync")) return false;
      }
      return true;
    }();
    return keeps;
  }

  // Whether the tensor of this row is deferred, and not launched yet.
  bool gathers(uint64_t sequence) const {
    for (uint32_t i = 0; i < quick_job_.count; ++i) {
      if (quick_job_.tasks[i].sequence == sequence) return true;
    }
    return false;
  }

  // Measures the gathered tensors, and after that does a job about memory in the same launch, if given.
  bool launch_gathered(const MemoryJob* then = nullptr) {
    if (!quick_job_.count) return true;
    const uint32_t blocks = gathered_blocks_;
    Region& region = *gathering_;
    bool done;
    if (then) {
      gpu::JoinedJob& job = joined_job_;
      const std::size_t bands = sizeof(Band) * then->bands_count;
      std::memcpy(&job.memory, then, offsetof(SmallMemoryJob, bands) + bands);
      job.measured = region.counters + gpu::most_tasks;
      job.blocks = blocks;
      job.until = region.measured + blocks;
      const uint32_t more = then->bands_count + then->blocks;
      done = !launch(measure_and_act, &job, blocks + more, region.stream, true);
      if (done) region.measured = job.until;
    } else {
      done = !launch(measure_quickly, &quick_job_, blocks, region.stream, true);
    }
    quick_job_.count = gathered_blocks_ = 0;
    gathered_vectors_ = 0;
    if (done) return true;
    // The launch failed, so these tensors have no partial results to merge.
    for (uint32_t i = gathered_from_; i < region.parted; ++i) region.found |= 1u << i;
    return false;
  }

  // Merges the partial results of a region into rows, on its stream. Afterwards the region is empty.
  bool merge(Region& region) {
    gpu::MergeJob& job = merge_job_;
    job.count = job.checks = 0;
    for (uint32_t i = 0; i < region.parted; ++i) {
      // A row that was read already may have been reserved for another tensor since.
      if (!(region.found >> i & 1)) job.tasks[job.count++] = region.tasks[i];
    }
    if (job.count && launch(merge_parts, &job, job.count, region.stream, true)) return false;
    region.parted = region.found = region.used_parts = 0;
    if (region.is_late) {
      region.is_late = false;
      bool others = false;
      for (int i = 0; i < used_; ++i) others = others || regions_[i].is_late;
      late_ = others;
    }
    return true;
  }

  // The same for a thread that waits for a row, on the default stream. The partial results may not be
  // there yet, or may have been replaced when the kernel runs: it checks that, and then writes no row.
  void merge_late(Region& region) {
    const auto now = std::chrono::steady_clock::now();
    if (now < region.next_try) return;
    region.next_try = now + region.pause;
    if (region.pause < std::chrono::milliseconds(5)) region.pause *= 2;
    gpu::MergeJob& job = merge_job_;
    job.checks = 1;
    job.count = region.parted;
    for (uint32_t i = 0; i < region.parted; ++i) {
      job.tasks[i] = region.tasks[i];
      job.tasks[i].row = on_device(region.late_rows + i * gpu::row_words);
    }
    const Current current(driver_, context_);
    launch(merge_parts, &job, job.count, nullptr, false);
    late_ = region.is_late = true;
  }

  bool can_read(const Layout* layouts, int count) {
    for (int i = 0; i < count; ++i) {
      if (gpu::make_task(layouts[i], processors_, job_.tasks[0])) continue;
      problem_of_last_ = "more dimensions than the kernel reads";
      return false;
    }
    return true;
  }

  bool issue(const Layout* layouts, int count, void* stream, bool captured, uint64_t first) {
    if (!is_started()) return false;
    Region* region = find_region(stream, captured);
    if (!region) {
      problem_of_last_ = "more streams measure than there is memory for";
      return false;
    }
    // All tensors are checked before the first launch, so that none is measured if one cannot be.
    if (!can_read(layouts, count)) return false;
    for (int done = 0; done < count; done += gpu::most_tasks) {
      const int some = count - done < gpu::most_tasks ? count - done : gpu::most_tasks;
      uint32_t blocks = 0;
      for (int i = 0; i < some; ++i) {
        gpu::Task& task = job_.tasks[i];
        gpu::make_task(layouts[done + i], processors_, task);
        const uint64_t number = first + static_cast<uint64_t>(done + i);
        uint64_t* row = captured ? captured_rows_ + number * gpu::row_words : ring.row(number);
        task.row = on_device(row);
        task.replays = captured ? replays_ + number : nullptr;
        task.sequence = number;
        task.parts = region->parts + blocks;
        task.counter = region->counters + i;
        task.first_block = blocks;
        blocks += task.blocks;
      }
      job_.count = some;
      if (const int error = launch(measure_all, &job_, blocks, stream, false)) {
        problem_of_last_ = driver_error("the kernel cannot be launched", error);
        return false;
      }
    }
    return true;
  }

  mutable std::mutex mutex_;
  std::string problem_of_last_;
  std::atomic<bool> late_{false};  // whether any region `is_late`
  uint64_t captured_ = 0;
  gpu::Job job_;
  gpu::JoinedJob joined_job_{};
  gpu::QuickJob& quick_job_ = joined_job_.quick;  // the deferred tensors
  uint32_t gathered_blocks_ = 0;
  uint32_t gathered_from_ = 0;  // the first of them among the region's `tasks`
  int64_t gathered_vectors_ = 0;
  Region* gathering_ = nullptr;  // the region of their stream
  gpu::MergeJob merge_job_;
};

}  // namespace inductor_rewriter
