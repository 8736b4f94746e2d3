// The plans of a moment: what is known about its values from earlier events, so that the next event costs
// less.
#pragma once

#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/elements.h"
#include "gpu_rows.h"
#include "recorder.h"
#include "statistics.h"
#include "tensor.h"

namespace inductor_rewriter {

class ReadJob;

// The facts about the values of an event: kind, dtype, shape, strides, device. Events for which these are the
// same share a plan.
struct Plan {
  // Of everything that the line hands over.
  std::vector<Content::Kind> kinds;
  std::vector<Seen> facts;                 // its pointers are out of date
  std::vector<std::vector<int64_t>> dims;  // sizes, and strides if there are any

  std::vector<std::size_t> places;  // in the line, of what is a value
  int gpu = -1;                     // the device of the first tensor on a GPU

  std::mutex lock;
  std::vector<std::unique_ptr<ReadJob>> free;  // jobs of earlier events

  bool fits(const Contents& contents, const std::vector<Seen>& seen) const {
    if (kinds.size() != seen.size()) return false;
    for (std::size_t i = 0; i < seen.size(); ++i) {
      const Seen &now = seen[i], &then = facts[i];
      if (contents[i].kind != kinds[i] || now.is_present != then.is_present) return false;
      if (!now.is_tensor) continue;
      if (now.dtype != then.dtype || now.dim != then.dim || now.is_strided != then.is_strided) return false;
      if (now.device_type != then.device_type || now.device_index != then.device_index) return false;
      const std::size_t bytes = static_cast<std::size_t>(now.dim) * sizeof(int64_t);
      if (bytes && std::memcmp(now.sizes, dims[i].data(), bytes)) return false;
      if (!bytes || !now.is_strided) continue;
      if (std::memcmp(now.strides, dims[i].data() + now.dim, bytes)) return false;
    }
    return true;
  }
};

// An event whose values are measured. Those on a GPU are measured there, and their results arrive later.
class ReadJob : public EventJob {
 public:
  explicit ReadJob(const std::shared_ptr<Plan>& of)
      : plan(of) {}

  std::shared_ptr<Plan> plan;  // null while the job is in the plan's pool

  // The values that a GPU measures, in the order of their rows.
  std::vector<std::size_t> on_gpu;
  std::vector<Layout> gpu_layouts;
  GpuRows* gpu = nullptr;  // null: measuring was not issued
  bool has_stream = false;
  void* stream = nullptr;  // torch's current one
  uint64_t first_row = 0;
  GpuRows* graph = nullptr;  // if the event was captured into a CUDA graph, whose replays measure it
  bool is_pooled = true;     // whether it goes back to the plan

  bool is_ready() override {
    if (!gpu) return true;
    for (; arrived_ < on_gpu.size(); ++arrived_) {
      Item& item = event.items[on_gpu[arrived_]];
      item.is_measured = gpu->gpu().find(first_row + arrived_, waited(), item.measurement);
      if (!item.is_measured) return is_lost();
    }
    return true;
  }

  void complete() override {
    if (gpu) gpu->close(first_row, static_cast<uint32_t>(on_gpu.size()));
    for (std::size_t i = 0; i < event.items.size(); ++i) {
      Item& item = event.items[i];
      if (!item.is_tensor()) {
        write_scalar(item, plan->kinds[plan->places[i]]);
      } else if (item.is_measured && call->recorder.fingerprints && !event.captured) {
        item.fingerprint = hexadecimal(item.measurement.fingerprint);
      }
    }
  }

  // How many replays of the graph measured this event; 0 if it has no values on a GPU.
  uint64_t replays() const override {
    uint64_t count = 0;
    Measured last;
    if (!on_gpu.empty()) graph->gpu().read_captured(first_row, count, last);
    return count;
  }

  // A copy of this event that is not of the pool, with what the last replay measured.
  OwnedJob<EventJob> replayed() const override {
    OwnedJob<ReadJob> job(new ReadJob(plan));
    job->is_pooled = false;
    job->event.items = std::vector<Item>(event.items.size());
    for (std::size_t i = 0; i < event.items.size(); ++i) {
      const ItemFacts& from = event.items[i];
      Item& item = job->event.items[i];
      static_cast<ItemFacts&>(item) = from;
      item.tensor.handle = nullptr;  // the tensor may be freed by now
    }
    uint64_t count = 0;
    for (std::size_t i = 0; i < on_gpu.size(); ++i) {
      Item& item = job->event.items[on_gpu[i]];
      item.is_measured = graph->gpu().read_captured(first_row + i, count, item.measurement);
    }
    return job;
  }

  // To its plan, for the next event.
  bool go_back() override {
    if (!is_pooled) return false;
    for (Item& item : event.items) item.reset();
    on_gpu.clear();
    gpu_layouts.clear();
    gpu = graph = nullptr;
    event.captured = false;
    arrived_ = 0;
    waiting_since_ = 0;
    std::shared_ptr<Plan> of = std::move(plan);
    std::lock_guard<std::mutex> guard(of->lock);
    of->free.emplace_back(this);
    return true;
  }

 private:
  static void write_scalar(Item& item, Content::Kind kind) {
    const int64_t bits = item.bits;
    using Kind = Content::Kind;
    double floating;
    switch (kind) {
      case Kind::integer: item.text = std::to_string(bits); return;
      case Kind::unsigned_integer: item.text = std::to_string(static_cast<uint64_t>(bits)); return;
      case Kind::floating:
        std::memcpy(&floating, &bits, sizeof floating);
        item.text = python_repr(floating);
        return;
      case Kind::boolean: item.text = bits ? "True" : "False"; return;
      case Kind::text: return;
      default: item.text = "?";
    }
  }

  int64_t waited() const {
    if (call->recorder.is_waited_for()) return Gpu::patience;
    return waiting_since_ ? clock_ns() - waiting_since_ : 0;
  }

  // Whether rows that have not arrived in time never will. If the device only has much to do before, they are
  // waited for; if it failed, the event goes on without them.
  bool is_lost() {
    const int64_t now = clock_ns(), patience = 1000000000;
    if (!waiting_since_) waiting_since_ = now;
    if (now - waiting_since_ < patience) return false;
    std::string problem = gpu->gpu().synchronize(stream);
    // Partial results that no later launch merges get a launch of their own, which may take a while.
    Measured last;
    for (int turn = 0; problem.empty() && turn < 1000; ++turn) {
      if (gpu->gpu().find(first_row + arrived_, Gpu::patience, last)) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (problem.empty()) problem = "a measurement did not come";
    call->recorder.warn(event.about(), problem);
    arrived_ = on_gpu.size();
    return true;
  }

  std::size_t arrived_ = 0;
  int64_t waiting_since_ = 0;
};

// The plans that one moment used last.
class RecentPlans {
 public:
  // Makes the event of the values that a line hands over. Values that cannot be read are left out, with a
  // warning.
  OwnedJob<ReadJob> read(Moment& moment, const Contents& contents, Recorder& recorder) {
    const Labels& labels = *moment.labels;
    const std::size_t count = labels.size() < contents.size() ? labels.size() : contents.size();
    std::lock_guard<std::mutex> guard(lock_);
    seen_.resize(count);
    look_at(moment, contents, recorder);
    const std::shared_ptr<Plan>& plan = find_plan(contents);
    OwnedJob<ReadJob> job = take(plan, labels, contents);
    for (std::size_t i = 0; i < plan->places.size(); ++i) {
      const Content& content = contents[plan->places[i]];
      const Seen& seen = seen_[plan->places[i]];
      Item& item = job->event.items[i];
      item.bits = content.integer;
      if (content.kind == Content::Kind::text) {
        item.kind = content.type;
        item.text = content.text;
      }
      if (!item.is_tensor()) continue;
      recorder.act(AboutValue{moment.launch, moment.phase, *item.label}, [&] { locate(seen, item.tensor); });
      if (content.kind == Content::Kind::view) {
        item.base = seen.handle;
        item.offset = seen.offset;
      } else if (content.kind == Content::Kind::tensor) {
        item.tensor.handle = seen.handle;
      }
    }
    return job;
  }

 private:
  static constexpr std::size_t most = 8;  // plans, for dynamic shapes

  void look_at(const Moment& moment, const Contents& contents, Recorder& recorder) {
    for (std::size_t i = 0; i < seen_.size(); ++i) {
      seen_[i] = contents[i].seen;
      const AboutValue about{moment.launch, moment.phase, (*moment.labels)[i]};
      if (contents[i].kind > Content::Kind::array) seen_[i].is_present = true;
      else recorder.act(about, [&] { look(contents[i].kind, seen_[i]); });
    }
  }

  // The plan with the facts that were seen, a new one if there is none. It is the first from now on.
  const std::shared_ptr<Plan>& find_plan(const Contents& contents) {
    std::size_t place = 0;
    while (place < plans_.size() && !plans_[place]->fits(contents, seen_)) ++place;
    if (place == plans_.size()) {
      if (plans_.size() >= most) plans_.pop_back();
      plans_.insert(plans_.begin(), make(contents));
    } else if (place) {
      std::swap(plans_[place], plans_[0]);
    }
    return plans_[0];
  }

  std::shared_ptr<Plan> make(const Contents& contents) const {
    auto plan = std::make_shared<Plan>();
    plan->facts = seen_;
    plan->dims.resize(seen_.size());
    for (std::size_t i = 0; i < seen_.size(); ++i) {
      plan->kinds.push_back(contents[i].kind);
      const Seen& seen = seen_[i];
      if (seen.is_present) plan->places.push_back(i);
      if (!seen.is_tensor) continue;
      const bool is_on_gpu = seen.device_type == aoti_torch_device_type_cuda();
      if (is_on_gpu && plan->gpu < 0) plan->gpu = seen.device_index;
      plan->dims[i].assign(seen.sizes, seen.sizes + seen.dim);
      if (!seen.is_strided) continue;
      plan->dims[i].insert(plan->dims[i].end(), seen.strides, seen.strides + seen.dim);
    }
    return plan;
  }

  // A job from the pool of the plan, or a new one.
  OwnedJob<ReadJob> take(const std::shared_ptr<Plan>& plan, const Labels& labels, const Contents& contents) const {
    {
      std::lock_guard<std::mutex> guard(plan->lock);
      if (!plan->free.empty()) {
        OwnedJob<ReadJob> job(plan->free.back().release());
        plan->free.pop_back();
        job->plan = plan;
        return job;
      }
    }
    static const char* const kinds[] = {
        "tensor", "tensor", "tensor", "int", "int", "float", "bool", "other", "other"};
    auto job = std::make_unique<ReadJob>(plan);
    job->event.items = std::vector<Item>(plan->places.size());
    for (std::size_t i = 0; i < plan->places.size(); ++i) {
      const std::size_t place = plan->places[i];
      Item& item = job->event.items[i];
      item.label = &labels[place];
      item.kind = kinds[static_cast<int>(contents[place].kind)];
      if (item.is_tensor()) set_facts(seen_[place], item.tensor);
    }
    return OwnedJob<ReadJob>(job.release());
  }

  std::mutex lock_;
  std::vector<Seen> seen_;  // of each value of the line
  std::vector<std::shared_ptr<Plan>> plans_;  // the one used last is the first
};

}  // namespace inductor_rewriter
