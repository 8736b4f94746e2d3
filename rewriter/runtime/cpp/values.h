// Reads and measures values of launches, for probes that need them.
#pragma once

#include <algorithm>
#include <string>

#include "engine/cpu.h"
#include "tensor.h"
#include "plan.h"
#include "recorder.h"

namespace inductor_rewriter {

constexpr int64_t most_values = 64;  // printed elements of a tensor, as in Inductor's debug printer

inline int thread_count() {
  static int (*const count)() = loaded("omp_get_max_threads");
  return count ? count() : 1;
}

// Calls `act` with each of the first elements that the host can read, in logical order.
template <class Act>
void each_first(const Item& item, Act&& act) {
  const Layout layout = item.fetched();
  Dimensions dims;
  const int64_t count = std::min(layout.numel, most_values);
  if (!count || !dims.read(layout)) return;
  const int size = elements::size(layout.dtype);
  alignas(16) char room[16 * most_values];
  Gather gather(dims, layout.data, size);
  gather.next(count, room);
  for (int64_t i = 0; i < count; ++i) act(room + i * size);
}

inline OwnedJob<EventJob> read_values(Moment& moment, const Contents& contents, Recorder& recorder) {
  if (moment.labels->size() != contents.size()) {
    recorder.warn(launch_text(moment.launch, moment.phase), "the line and the table differ in the number of values");
  }
  std::call_once(moment.planned, [&] { moment.plans = std::make_shared<RecentPlans>(); });
  OwnedJob<ReadJob> job = moment.plans->read(moment, contents, recorder);
  const int gpu = job->plan->gpu;
  job->has_stream = gpu >= 0 && current_stream(&job->stream, gpu);
  job->event.captured = job->has_stream && has_device() && is_captured(job->stream);
  return job;
}

// Whether a tensor is measured in a copy on the host. A complex one may be marked as conjugate, which
// changes its fingerprint but no magnitude, and only a copy by torch takes that into account.
inline bool is_copied(const Tensor& tensor, const Recorder& recorder) {
  return recorder.fingerprints && is_complex(tensor.dtype);
}

// Whether measuring can wait for that of the next launch: nothing writes or frees the values before.
inline bool is_together(const ReadJob& job) {
  const ProbedLaunch* launch = job.event.launch;
  return launch && launch->row->together && job.moment->phase[0] == 'a';
}

// Issues the measuring on the GPU, in one launch. False: it was not issued.
inline bool issue(ReadJob& job, Recorder& recorder) {
  std::string problem;
  GpuRows* gpu = GpuRows::of(job.plan->gpu, problem);
  if (gpu && job.on_gpu.size() > Ring::usable) {  // it would wait for its own rows
    problem = "values are copied to the host, which takes long: there are rows for " +
        std::to_string(Ring::usable) + " at a time, and these are " + std::to_string(job.on_gpu.size());
    gpu = nullptr;
  }
  if (!problem.empty()) recorder.warn(job.event.about(), problem);
  if (!gpu || !job.has_stream) return false;
  const Gpu::When when = recorder.prompt ? Gpu::When::at_once
      : is_together(job)                 ? Gpu::When::together
                                         : Gpu::When::soon;
  if (!gpu->issue(job.gpu_layouts, job.stream, when, job.first_row)) {
    recorder.warn(job.event.about(), gpu->gpu().problem_of_last());
    return false;
  }
  job.gpu = gpu;
  return true;
}

// Has each replay of the CUDA graph that is being captured measure the values. False: it cannot.
inline bool issue_captured(ReadJob& job, Recorder& recorder) {
  std::string problem;
  GpuRows* gpu = GpuRows::of(job.plan->gpu, problem);
  if (gpu) {
    const int count = static_cast<int>(job.on_gpu.size());
    if (gpu->gpu().capture(job.gpu_layouts.data(), count, job.stream, job.first_row)) {
      job.graph = gpu;
      return true;
    }
    problem = gpu->gpu().problem_of_last();
  }
  if (!gpu && problem.find("copied to the host") != std::string::npos) {
    problem = "values of a CUDA graph are measured by the engine alone, which is not there";
  }
  recorder.warn(job.event.about(), problem);
  return false;
}

// Measures a tensor on the host, in its own memory or in a copy. False for more dimensions than can be measured.
inline bool measure_here(Item& item, bool is_copied) {
  const Tensor& tensor = item.tensor;
  const bool direct = (tensor.on_cpu && !is_copied) || !tensor.numel;
  if (!direct) fetch(item, tensor.on_cpu);
  return measure_on_cpu(direct ? tensor.layout() : item.fetched(), thread_count(), item.measurement);
}

inline void measure_on_host(ReadJob& job, std::size_t place, Recorder& recorder) {
  Item& item = job.event.items[place];
  recorder.act(job.event.about(item), [&] {
    item.is_measured = measure_here(item, is_copied(item.tensor, recorder));
    if (!item.is_measured) throw std::runtime_error("it has more dimensions than can be measured");
  });
}

inline bool has_elements(const Item& item) {
  return item.is_tensor() && item.tensor.strided && item.tensor.in_memory;
}

inline void read_head(Item& item, const Recorder& recorder) {
  const Tensor& tensor = item.tensor;
  fetch(item, !tensor.on_cpu || is_complex(tensor.dtype));
  item.has_head = true;
  if (recorder.upstream) return;
  each_first(item, [&](const char* element) { item.head.push_back(element_text(element, tensor.dtype)); });
}

inline void measure_values(EventJob& of, bool heads, Recorder& recorder) {
  ReadJob& job = static_cast<ReadJob&>(of);
  const int gpu = job.plan->gpu;
  for (std::size_t i = 0; i < job.event.items.size(); ++i) {
    Item& item = job.event.items[i];
    const Tensor& tensor = item.tensor;
    if (!has_elements(item)) continue;
    const bool has_numbers = is_number(tensor.dtype);
    if (!has_numbers && !recorder.fingerprints) continue;
    const bool captured = job.event.captured, is_on_gpu = gpu >= 0 && tensor.device_index == gpu && tensor.numel;
    if (is_on_gpu && (captured ? has_numbers : !is_copied(tensor, recorder))) {
      job.on_gpu.push_back(i);
      job.gpu_layouts.push_back(tensor.layout());
    } else if (!captured || tensor.on_cpu || !tensor.numel) {  // nothing on a device can be copied during a capture
      measure_on_host(job, i, recorder);
    }
  }
  if (job.event.captured) {
    if (!job.on_gpu.empty() && !issue_captured(job, recorder)) job.on_gpu.clear();
    return;
  }
  if (!job.on_gpu.empty() && !issue(job, recorder)) {
    for (std::size_t i : job.on_gpu) measure_on_host(job, i, recorder);
    job.on_gpu.clear();
  }
  if (job.on_gpu.empty()) GpuRows::settle();
  for (Item& item : job.event.items) {
    if (!heads || !has_elements(item) || !is_number(item.tensor.dtype)) continue;
    recorder.act(job.event.about(item), [&] { read_head(item, recorder); });
  }
}

}  // namespace inductor_rewriter
