// The plans of a moment: what is known about its values from earlier events, so that the next event costs
// less. Most of this runs at each launch, so it is compiled with optimization; the rest of the runtime is
// not, so that it compiles fast (bundle.py).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/measured.h"
#include "gpu_rows.h"
#include "known_tensors.h"
#include "recorder.h"
#include "statistics.h"
#include "tensor.h"

namespace {
namespace inductor_rewriter {

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O2", "no-fast-math")
#endif

class ReadJob;

// Which tensor a value was: a number, and its memory. `KnownTensors` numbers inputs, and `number_of` numbers
// constants of the model. While both stay the same, so do the elements. The number 0 is equal to none.
struct Identity {
  uint64_t number = 0;
  const char* data = nullptr;

  bool operator==(const Identity& other) const {
    return number && number == other.number && data == other.data;
  }
};

// Results that need not be measured again, and the values they are of; the index is that of `Plan::places`.
// Never changed once it is shared.
struct KnownResults {
  explicit KnownResults(std::size_t size) : of(size), results(size) {}
  std::vector<Identity> of;
  std::vector<Measured> results;
};

// The facts about the values of an event: kind, dtype, shape, strides, device. Events for which these are the
// same share a plan.
struct Plan {
  // Of everything that the line hands over.
  std::vector<Content::Kind> kinds;
  std::vector<Seen> facts;                 // its pointers are out of date
  std::vector<std::vector<int64_t>> dims;  // sizes, and strides if there are any

  std::vector<std::size_t> places;  // in the line, of what is a value
  std::vector<char> is_constant;    // of each of these: a constant of the model that no launch writes
  int gpu = -1;                     // the device of the first tensor on a GPU

  std::mutex known_lock;
  std::shared_ptr<const KnownResults> known;

  std::mutex lock;
  std::vector<std::unique_ptr<ReadJob>> free;  // jobs of earlier events

  // `same` has 1 for each value that is as it was when this plan was used last, and may be null.
  bool fits(const Contents& contents, const std::vector<Seen>& seen, const char* same) const {
    if (kinds.size() != seen.size()) return false;
    for (std::size_t i = 0; i < seen.size(); ++i) {
      if (same && same[i]) continue;
      const Seen &now = seen[i], &then = facts[i];
      if (contents[i].kind != kinds[i] || now.is_present != then.is_present) return false;
      if (!now.is_tensor) continue;
      if (now.dtype != then.dtype || now.dim != then.dim || now.is_strided != then.is_strided) {
        return false;
      }
      if (now.device_type != then.device_type || now.device_index != then.device_index) {
        return false;
      }
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
  static constexpr char repeated = 2;  // in `is_measured`: the result is in `known`

  explicit ReadJob(const std::shared_ptr<Plan>& of)
      : plan(of), bits(of->places.size()), results(of->places.size()),
        layouts(of->places.size()), datas(of->places.size()), is_measured(of->places.size()),
        numbers(of->places.size()) {}

  std::shared_ptr<Plan> plan;  // null while the job is in the plan's pool
  // The index is that of `Plan::places`.
  std::vector<int64_t> bits;       // of scalars
  std::vector<Measured> results;   // of tensors
  std::vector<Layout> layouts;     // of tensors in their own memory
  std::vector<const char*> datas;  // the addresses of tensors
  std::vector<char> is_measured;   // 0, 1, or `repeated`
  std::vector<uint64_t> numbers;   // for `Identity`; 0: there is no use in remembering the result

  std::shared_ptr<const KnownResults> known;  // what `share_known` took from the plan

  // The values that a GPU measures, in the order of their rows.
  std::vector<std::size_t> on_gpu;
  std::vector<const Layout*> gpu_layouts;
  std::vector<const void*> gpu_data;
  GpuRows* gpu = nullptr;  // null: measuring was not issued
  bool has_stream = false;
  void* stream = nullptr;  // torch's current one
  uint64_t first_row = 0;
  GpuRows* graph = nullptr;  // if the event was captured into a CUDA graph, whose replays measure it
  bool is_pooled = true;     // whether `release` returns it to the plan

  bool is_ready() override {
    if (!gpu) return true;
    for (; arrived_ < on_gpu.size(); ++arrived_) {
      const std::size_t place = on_gpu[arrived_];
      if (!gpu->read(first_row + arrived_, waited(), results[place])) return is_lost();
      is_measured[place] = true;
    }
    return true;
  }

  void complete() override {
    if (gpu) gpu->close(first_row, static_cast<uint32_t>(on_gpu.size()));
    for (std::size_t i = 0; i < event.items.size(); ++i) {
      Item& item = event.items[i];
      if (!item.is_tensor()) {
        write_scalar(item, plan->kinds[plan->places[i]], bits[i]);
        continue;
      }
      if (!is_measured[i]) continue;
      const Measured& result = is_measured[i] == repeated ? known->results[i] : results[i];
      if (result.finite >= 0 && dtype_info(item.tensor.dtype).plain) {
        item.statistics = statistics_of(result, item.tensor);
        item.measured = true;
      }
      if (call->recorder.fingerprints && !event.captured) item.fingerprint = hexadecimal(result.fingerprint);
    }
    if (!event.captured) remember();
  }

  // Gives values that are the same as in the last call the results of that, if these have arrived. Nothing
  // else of such values is read or kept.
  void repeat(const std::vector<char>& same, const std::vector<Identity>& last) {
    if (!share_known()) return;
    for (std::size_t i = 0; i < plan->places.size(); ++i) {
      const std::size_t place = plan->places[i];
      if (same[place] && known->of[i] == last[place]) is_measured[i] = repeated;
    }
  }

  // Whether the value was measured before and not written since; then it gets that result. Not an input in
  // a CUDA graph, which may be another tensor in each replay.
  bool is_known(std::size_t place, const char* data) {
    if (!numbers[place] || (event.captured && !plan->is_constant[place])) return false;
    if (!share_known() || !(known->of[place] == Identity{numbers[place], data})) return false;
    results[place] = known->results[place];
    return true;
  }

  // How many replays of the graph measured this event; 0 if it has no values on a GPU.
  uint64_t replays() const {
    uint64_t count = 0;
    Measured last;
    if (!on_gpu.empty()) graph->read_captured(first_row, count, last);
    return count;
  }

  // A copy of this event, with what the last replay measured.
  ReadJob* replayed() const {
    std::unique_ptr<ReadJob> job = copy();
    uint64_t count = 0;
    for (std::size_t i = 0; i < on_gpu.size(); ++i) {
      const std::size_t place = on_gpu[i];
      job->is_measured[place] = graph->read_captured(first_row + i, count, job->results[place]);
    }
    return job.release();
  }

  // Returns the job to the pool of its plan, for the next event.
  void release() override {
    if (!is_pooled) {
      delete this;
      return;
    }
    for (Item& item : event.items) item.reset();
    std::fill(is_measured.begin(), is_measured.end(), 0);
    on_gpu.clear();
    gpu_layouts.clear();
    gpu_data.clear();
    gpu = graph = nullptr;
    known.reset();
    event.captured = false;
    arrived_ = 0;
    waiting_since_ = 0;
    std::shared_ptr<Plan> of = std::move(plan);
    std::lock_guard<std::mutex> guard(of->lock);
    of->free.emplace_back(this);
  }

 private:
  // Takes the results that the plan has now, unless this event took some before. False: there are none.
  bool share_known() {
    if (known) return true;
    std::lock_guard<std::mutex> guard(plan->known_lock);
    known = plan->known;
    return known != nullptr;
  }

  // Adds what was measured to the plan, for later events. A result of a later version of an input is kept.
  void remember() {
    std::shared_ptr<KnownResults> all;
    std::unique_lock<std::mutex> guard;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      if (!numbers[i] || !is_measured[i]) continue;
      if (!guard) guard = std::unique_lock<std::mutex>(plan->known_lock);
      const KnownResults* const old = all ? all.get() : plan->known.get();
      const Identity now{numbers[i], datas[i]};
      if (old && (old->of[i] == now || (!plan->is_constant[i] && old->of[i].number > now.number))) continue;
      if (!all) {
        all = old ? std::make_shared<KnownResults>(*old) : std::make_shared<KnownResults>(numbers.size());
      }
      all->of[i] = now;
      all->results[i] = results[i];
    }
    if (all) plan->known = std::move(all);
  }

  static void write_scalar(Item& item, Content::Kind kind, int64_t bits) {
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
      default: item.text = "?";
    }
  }

  // A copy that is not of the pool, with the results so far.
  std::unique_ptr<ReadJob> copy() const {
    auto job = std::make_unique<ReadJob>(plan);
    job->is_pooled = false;
    job->event.items = Fixed<Item>(event.items.size());
    for (std::size_t i = 0; i < event.items.size(); ++i) {
      Item& item = job->event.items[i];
      item.label = event.items[i].label;
      item.kind = event.items[i].kind;
      item.tensor = event.items[i].tensor;
      item.tensor.handle = nullptr;  // the tensor may be freed by now
    }
    job->bits = bits;
    job->results = results;
    job->is_measured = is_measured;
    return job;
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
    std::string problem = gpu->synchronize(stream);
    // Partial results that no later launch merges get a launch of their own, which may take a while.
    Measured last;
    for (int turn = 0; problem.empty() && turn < 1000; ++turn) {
      if (gpu->read(first_row + arrived_, Gpu::patience, last)) return false;
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
class RecentPlans : public Plans {
 public:
  // Makes the event of the values that a line hands over. Values that cannot be read are left out, with a
  // warning.
  ReadJob* read(Moment& moment, const Contents& contents, Recorder& recorder) {
    const Labels& labels = *moment.labels;
    const std::size_t count = labels.size() < contents.size() ? labels.size() : contents.size();
    // Before taking `lock_`: this takes Python's lock, and a thread that has that may wait for `lock_`.
    std::vector<uint64_t> numbers;
    if (!moment.launch && keeps_inputs(labels, recorder)) numbers = known_.numbers_of(contents, trains_);
    std::lock_guard<std::mutex> guard(lock_);
    seen_.resize(count);
    find_same(contents, numbers, recorder);
    look_at_others(moment, contents, recorder);
    const std::shared_ptr<Plan>& plan = find_plan(moment, contents, recorder);
    std::unique_ptr<ReadJob> job = take(plan, labels, contents);
    if (plan == last_plan_) job->repeat(is_same_, last_);
    for (std::size_t i = 0; i < plan->places.size(); ++i) {
      if (job->is_measured[i]) {
        job->numbers[i] = 0;
        continue;
      }
      const std::size_t place = plan->places[i];
      if (plan->is_constant[i]) job->numbers[i] = number_of(contents[place].handle, place);
      else job->numbers[i] = numbers.empty() ? 0 : numbers[place];
      job->bits[i] = contents[place].integer;
      if (job->event.items[i].is_tensor()) {
        locate_tensor(moment, contents[place], seen_[place], job->event.items[i], recorder);
      }
    }
    if (!numbers.empty()) keep_identities(plan, *job, numbers);
    return job.release();
  }

 private:
  static constexpr std::size_t most = 8;  // plans, for dynamic shapes

  // `#12 buf1`; the text is only made if there is a warning.
  struct About {
    const Moment& moment;
    const Label& label;
    operator std::string() const {
      return launch_text(moment.launch, moment.phase) + " " + label.name;
    }
  };

  // Whether inputs are not measured again while torch counts no write to them. Not if a kernel writes an
  // input: torch does not count that, and other inputs may share its memory.
  bool keeps_inputs(const Labels& labels, const Recorder& recorder) {
    std::call_once(asked_, [&] {
      keeps_inputs_ = !recorder.rechecks() &&
          std::none_of(labels.begin(), labels.end(), [&](const Label& label) {
            return recorder.may_be_written(label);
          });
      // Inductor's names of the inputs of a graph of training, as in fast_paths.py.
      trains_ = std::any_of(labels.begin(), labels.end(), [](const Label& label) {
        return !label.name.compare(0, 8, "primals_");
      });
    });
    return keeps_inputs_;
  }

  // Finds which inputs are the same tensors as in the last call, not written since, of the same form and in
  // the same memory. Their results are all that is needed of them. Finds none if elements are shown or
  // saved, or if the call is captured into a CUDA graph, which may be replayed with other inputs.
  void find_same(
      const Contents& contents, const std::vector<uint64_t>& numbers, const Recorder& recorder) {
    is_same_.assign(seen_.size(), 0);
    if (numbers.empty() || !last_plan_ || last_plan_->kinds.size() != seen_.size()) return;
    if (recorder.uses_elements() || (last_plan_->gpu >= 0 && is_capturing(last_plan_->gpu))) return;
    for (std::size_t i = 0; i < seen_.size(); ++i) {
      if (numbers[i] && numbers[i] == last_[i].number) {
        is_same_[i] = has_stayed(contents[i].handle, last_plan_->facts[i], last_plan_->dims[i], i);
      }
    }
  }

  // Whether a tensor still has the form and the memory of the last call. A program that sets `x.data` changes
  // them, and torch does not count that as a write. The memory that its number stands for is not enough:
  // Python may have run since that was read.
  bool has_stayed(
      AtenTensorHandle handle, const Seen& facts, const std::vector<int64_t>& dims, std::size_t place) {
    void* data = nullptr;
    int32_t dtype = -1;
    int64_t dim = -1, *sizes = nullptr, *strides = nullptr;
    if (aoti_torch_get_data_ptr(handle, &data) || data != last_[place].data) return false;
    if (aoti_torch_get_dtype(handle, &dtype) || dtype != facts.dtype) return false;
    if (aoti_torch_get_dim(handle, &dim) || dim != facts.dim) return false;
    if (aoti_torch_get_sizes(handle, &sizes) || aoti_torch_get_strides(handle, &strides)) return false;
    if (!std::equal(sizes, sizes + dim, dims.data())) return false;
    if (!std::equal(strides, strides + dim, dims.data() + dim)) return false;
    seen_[place].handle = handle;
    seen_[place].sizes = sizes;
    seen_[place].strides = strides;
    return true;
  }

  // Remembers what `find_same` compares the inputs of the next call with.
  void keep_identities(
      const std::shared_ptr<Plan>& plan, const ReadJob& job, const std::vector<uint64_t>& numbers) {
    if (plan != last_plan_) last_.assign(seen_.size(), Identity());
    for (std::size_t i = 0; i < plan->places.size(); ++i) {
      if (job.is_measured[i]) continue;
      const Item& item = job.event.items[i];
      const Tensor& tensor = item.tensor;
      const bool is_there = item.is_tensor() && tensor.in_memory && tensor.data;
      last_[plan->places[i]] = {is_there ? numbers[plan->places[i]] : 0, tensor.data};
    }
    last_plan_ = plan;
  }

  // Reads the facts about the values that `find_same` did not find.
  void look_at_others(const Moment& moment, const Contents& contents, Recorder& recorder) {
    for (std::size_t i = 0; i < seen_.size(); ++i) {
      if (is_same_[i]) continue;
      if (contents[i].kind > Content::Kind::array) {
        seen_[i] = Seen();
        seen_[i].is_present = true;
        continue;
      }
      recorder.act(About{moment, (*moment.labels)[i]}, [&] { look(contents[i], seen_[i]); });
    }
  }

  // The plan with the facts that were seen, a new one if there is none. It is the first from now on.
  const std::shared_ptr<Plan>& find_plan(
      const Moment& moment, const Contents& contents, const Recorder& recorder) {
    std::size_t place = 0;
    for (; place < plans_.size(); ++place) {
      const bool is_last = plans_[place] == last_plan_;
      if (plans_[place]->fits(contents, seen_, is_last ? is_same_.data() : nullptr)) break;
    }
    if (place == plans_.size()) {
      if (plans_.size() >= most) plans_.pop_back();
      plans_.insert(plans_.begin(), make(moment, contents, recorder));
    } else if (place) {
      std::swap(plans_[place], plans_[0]);
    }
    return plans_[0];
  }

  static void locate_tensor(
      const Moment& moment, const Content& content, const Seen& seen, Item& item, Recorder& recorder) {
    recorder.act(About{moment, *item.label}, [&] { locate(seen, item.tensor); });
    if (content.kind == Content::Kind::view) {
      item.base = content.handle;
      item.offset = content.offset;
    } else if (content.kind == Content::Kind::tensor) {
      item.tensor.handle = content.handle;
    }
  }

  // The number of a constant for `Identity`: its handle and its version. A program that replaces constants
  // makes new handles. One that has the constants may write them, which torch counts.
  uint64_t number_of(AtenTensorHandle constant, std::size_t place) {
    const uint64_t number = reinterpret_cast<uintptr_t>(constant);
    if (place >= without_version_.size()) without_version_.resize(place + 1);
    if (without_version_[place] == constant) return number;
    const int64_t version = version_of(constant);
    if (version < 0) without_version_[place] = constant;
    return version < 0 ? number : number ^ static_cast<uint64_t>(version) << 48;
  }

  // A new plan with the facts that were seen.
  std::shared_ptr<Plan> make(
      const Moment& moment, const Contents& contents, const Recorder& recorder) const {
    // With `--args ends`, an argument is measured again after the launch that reads it last, to find
    // out whether it was overwritten.
    const bool rechecks = recorder.rechecks() || (recorder.has_ends() && moment.launch);
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
    for (const std::size_t place : plan->places) {
      plan->is_constant.push_back(
          contents[place].is_constant && !rechecks && !recorder.may_be_written((*moment.labels)[place]));
    }
    return plan;
  }

  // A job from the pool of the plan, or a new one.
  std::unique_ptr<ReadJob> take(
      const std::shared_ptr<Plan>& plan, const Labels& labels, const Contents& contents) const {
    {
      std::lock_guard<std::mutex> guard(plan->lock);
      if (!plan->free.empty()) {
        std::unique_ptr<ReadJob> job = std::move(plan->free.back());
        plan->free.pop_back();
        job->plan = plan;
        return job;
      }
    }
    static const char* const kinds[] = {
        "tensor", "tensor", "tensor", "int", "int", "float", "bool", "other"};
    auto job = std::make_unique<ReadJob>(plan);
    job->event.items = Fixed<Item>(plan->places.size());
    for (std::size_t i = 0; i < plan->places.size(); ++i) {
      const std::size_t place = plan->places[i];
      Item& item = job->event.items[i];
      item.label = &labels[place];
      item.kind = kinds[static_cast<int>(contents[place].kind)];
      if (!item.is_tensor()) continue;
      set_facts(seen_[place], item.tensor);
      const Tensor& tensor = item.tensor;
      job->layouts[i] = {
          tensor.dtype, static_cast<int32_t>(tensor.shape.size()), tensor.numel,
          tensor.shape.data(), tensor.stride.data(), tensor.device_index};
    }
    return job;
  }

  std::once_flag asked_;
  bool keeps_inputs_ = false, trains_ = false;
  KnownTensors known_;
  std::vector<AtenTensorHandle> without_version_;  // the last constant at each place, if it has no version
  std::mutex lock_;
  std::vector<Seen> seen_;      // of each value of the line
  std::vector<char> is_same_;   // of each value of the line: see find_same
  std::vector<Identity> last_;  // of each value of the line, in the last call
  std::shared_ptr<Plan> last_plan_;
  std::vector<std::shared_ptr<Plan>> plans_;  // the one used last is the first
};

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

}  // namespace inductor_rewriter
}  // namespace
