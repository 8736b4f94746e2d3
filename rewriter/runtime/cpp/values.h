// Reads what a launch was handed: for probes that look at values.
#pragma once

#include <string>
#include <vector>

#include "engine/cpu.h"
#include "host.h"
#include "plan.h"
#include "recorder.h"

namespace {
namespace inductor_rewriter {

constexpr int64_t most_values = 64;  // shown of a tensor, as upstream does

inline Layout layout_of(
    const Tensor& tensor, const std::vector<int64_t>& shape, const std::vector<int64_t>& stride) {
  return {
      tensor.dtype, static_cast<int32_t>(shape.size()), tensor.numel, shape.data(), stride.data(),
      tensor.device_index};
}

// As many threads as the model has.
inline int thread_count() {
  static const auto count = find<int (*)()>("omp_get_max_threads");
  return count ? count() : 1;
}

// Pointers to the first elements in logical order.
inline std::vector<const char*> first_elements(const Host& host, int32_t dtype) {
  std::vector<const char*> elements;
  std::vector<int64_t> place(host.shape.size(), 0);
  for (int64_t size : host.shape) {
    if (!size) return elements;
  }
  while (static_cast<int64_t>(elements.size()) < most_values) {
    int64_t offset = 0;
    for (std::size_t i = 0; i < place.size(); ++i) offset += place[i] * host.stride[i];
    elements.push_back(host.data + offset * dtype_info(dtype).size);
    std::size_t dim = place.size();
    for (; dim-- > 0; place[dim] = 0) {
      if (++place[dim] < host.shape[dim]) break;
    }
    if (dim == std::size_t(-1)) break;
  }
  return elements;
}

inline std::string complex_repr(double real, double imag) {
  std::string text = python_repr(imag, false);
  if (bits_of(real) == 0) return text + "j";
  if (text[0] != '-') text = "+" + text;
  return "(" + python_repr(real, false) + text + "j)";
}

inline std::string element_text(const char* from, int32_t dtype) {
  alignas(64) double parts[8];
  int64_t whole = 0;
  if (is_wide(dtype)) {
    std::memcpy(&whole, from, sizeof whole);
    const bool has_sign = dtype == dtypes::int64;
    return has_sign ? std::to_string(whole) : std::to_string(static_cast<uint64_t>(whole));
  }
  convert(dtype, from, 1, parts);
  if (dtype == dtypes::boolean) return parts[0] ? "True" : "False";
  if (is_complex(dtype)) return complex_repr(parts[0], parts[1]);
  if (is_integer(dtype)) return std::to_string(static_cast<int64_t>(parts[0]));
  return python_general(parts[0]);
}

class Reading : public Values {
 public:
  EventJob* read(
      Moment& moment, const Contents& contents, RunningCall&, Recorder& recorder) const override {
    if (moment.labels->size() != contents.size()) {
      std::string about = moment.phase;
      if (moment.launch) about = "#" + std::to_string(moment.launch->row->launch);
      recorder.warn(about, "the line and the table differ in the number of values");
    }
    if (!moment.plans) {
      static std::mutex making;
      std::lock_guard<std::mutex> guard(making);
      if (!moment.plans) moment.plans = std::make_unique<Remembered>();
    }
    ReadJob* job = static_cast<Remembered*>(moment.plans.get())->read(moment, contents, recorder);
    if (job->plan->gpu >= 0 && is_capturing(job->plan->gpu)) {
      job->release();
      throw std::runtime_error("values cannot be read while a CUDA graph is being captured");
    }
    return job;
  }

  void measure(EventJob& of, bool heads, Recorder& recorder) const override {
    ReadJob& job = static_cast<ReadJob&>(of);
    for (std::size_t i = 0; i < job.event.items.size(); ++i) {
      Item& item = job.event.items[i];
      const Tensor& tensor = item.tensor;
      if (!item.is_tensor() || !tensor.strided || !tensor.in_memory) continue;
      const Dtype& dtype = dtype_info(tensor.dtype);
      if (dtype.name[0] == 'q' || !(dtype.plain || recorder.fingerprints)) continue;
      try {
        measure_one(item, job.results[i], recorder);
        job.states[i] = ReadJob::State::measured;
        if (heads && dtype.plain) read_head(item, recorder);
      } catch (const std::exception& error) {
        recorder.warn(job.event.about() + " " + item.label->name, error.what());
      }
    }
  }

  void describe(Json& json, const Item& item) const override {
    const Tensor& tensor = item.tensor;
    const Statistics& statistics = item.statistics;
    json.key("arg").string(item.label->name).key("role").string(item.label->role);
    if (!item.is_tensor()) {
      json.key("type").string(item.kind).key("value").string(item.text);
      return;
    }
    json.key("dtype").string(dtype_info(tensor.dtype).name);
    json.key("shape").open('[');
    for (int64_t size : tensor.shape) json.number(size);
    json.close(']').key("stride").open('[');
    for (int64_t stride : tensor.stride) json.number(stride);
    json.close(']').key("device").string(tensor.device);
    if (item.measured) {
      json.key("numel").number(statistics.numel);
      extreme(json.key("min"), statistics, statistics.low, statistics.low_text);
      extreme(json.key("max"), statistics, statistics.high, statistics.high_text);
      extreme(json.key("mean"), statistics, statistics.mean, "");
      if (statistics.finite > 1) json.key("std").number(statistics.std);
      else json.key("std").put("null");
      json.key("nan").number(statistics.nan).key("inf").number(statistics.inf);
      if (statistics.magnitude) json.key("of").string("magnitude");
    }
    if (!item.fingerprint.empty()) json.key("fingerprint").string(item.fingerprint);
    if (!item.file.empty()) json.key("file").string(item.file);
    if (!item.unsaved.empty()) json.key("unsaved").string(item.unsaved);
  }

 private:
  static void measure_one(Item& item, Measured& to, Recorder& recorder) {
    const Tensor& tensor = item.tensor;
    // Only torch's own copy knows whether a complex tensor is marked as conjugate.
    const bool copied = !tensor.on_cpu || (recorder.fingerprints && is_complex(tensor.dtype));
    if (copied) fetch(item, tensor.on_cpu);
    const Layout layout = copied ? layout_of(tensor, item.host.shape, item.host.stride)
                                 : layout_of(tensor, tensor.shape, tensor.stride);
    const char* data = copied ? item.host.data : tensor.data;
    if (!measure_on_cpu(layout, data, thread_count(), to)) {
      throw std::runtime_error("it has more dimensions than can be measured");
    }
  }

  static void read_head(Item& item, const Recorder& recorder) {
    const Tensor& tensor = item.tensor;
    fetch(item, !tensor.on_cpu || is_complex(tensor.dtype));
    item.has_head = true;
    if (recorder.upstream) return;
    for (const char* element : first_elements(item.host, tensor.dtype)) {
      item.head.push_back(element_text(element, tensor.dtype));
    }
  }

  static void extreme(
      Json& json, const Statistics& statistics, double value, const std::string& whole) {
    if (!statistics.finite) json.put("null");
    else if (!whole.empty()) json.put(whole);
    else json.number(value);
  }
};

const Reading reading;

}  // namespace inductor_rewriter
}  // namespace
