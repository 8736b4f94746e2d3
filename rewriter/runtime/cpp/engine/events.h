// The launches that a Python wrapper has measured; one thread formats and writes them, in order.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "gpu.h"
#include "plan.h"
#include "rows_file.h"
#include "writer.h"

namespace {
namespace inductor_rewriter {

using SharedPlan = std::shared_ptr<const Plan>;

// One call of a wrapper. Its printed lines begin with `start`.
struct EventCall {
  static constexpr int prints_nothing = -1, collects = -2;  // in place of a descriptor in `lines`

  EventCall(int lines, int rows, std::string start)
      : lines(lines), rows(rows), start(std::move(start)) {}

  int32_t threads = 1;
  bool is_prompt = false;
  const int lines;  // the descriptor that lines are written to
  RowsFile rows;
  const std::string start;
  std::string collected;  // lines that Python will write itself
  bool is_dirty = false;
  Gpu* waits_on = nullptr;  // the GPU on which the last launch's measuring is deferred

  // The values that were last measured before a launch.
  SharedPlan shown;
  int32_t shown_iteration = 0;
  std::vector<Measured> shown_measured;
};

// Collects lines and rows until they are written.
class EventOutput : public Output {
 public:
  std::atomic<int> lines_problem{0}, rows_problem{0};  // errno of a write that failed
  std::atomic<bool> device_failed{false};

  // Takes the error of a device: the launch and the error, each on a line. Empty if there is none.
  std::string take_device_problem() {
    const std::lock_guard<std::mutex> guard(device_);
    std::string problem;
    problem.swap(device_problem_);
    return problem;
  }

  void fail_device(const std::string& problem) {
    const std::lock_guard<std::mutex> guard(device_);
    if (!device_failed) device_problem_ = problem;
    device_failed = true;
  }

  // Takes the first NaN that is to end the program (`--stop`): the launch, the value, and how many of its
  // elements, each on a line. Empty if there is none.
  std::string take_finding() {
    const std::lock_guard<std::mutex> guard(device_);
    std::string finding;
    finding.swap(finding_);
    has_finding_ = false;
    return finding;
  }

  void find(const Plan& plan, const PlannedValue& value, const Measured& measured) {
    const std::lock_guard<std::mutex> guard(device_);
    if (has_finding_) return;
    finding_ = std::to_string(plan.launch) + "\n" + value.name + "\n" + decimal(measured.nan) +
        " of " + decimal(value.layout.numel);
    has_finding_ = true;
  }

  bool has_problem() const { return lines_problem || rows_problem || device_failed || has_finding_; }

  void add_line(EventCall& call, const std::string& line) {
    if (call.lines == EventCall::collects) {
      call.collected += line;
      return;
    }
    if (call.lines < 0) return;
    if (lines_to_ != call.lines) flush_lines();
    lines_to_ = call.lines;
    lines_ += line;
  }

  void add_row(EventCall& call, const std::string& row) {
    if (!call.rows.is_open()) return;
    call.rows.text += row;
    if (!call.is_dirty) dirty_.push_back(&call);
    call.is_dirty = true;
  }

  void flush() override {
    flush_lines();
    for (EventCall* call : dirty_) {
      if (int problem = call->rows.flush()) rows_problem = problem;
      call->is_dirty = false;
    }
    dirty_.clear();
  }

 private:
  void flush_lines() {
    std::size_t done;
    if (int problem = write_all(lines_to_, lines_.data(), lines_.size(), done)) {
      lines_problem = problem;
    }
    lines_.clear();
  }

  std::mutex device_;
  std::string device_problem_, finding_;
  std::atomic<bool> has_finding_{false};
  std::string lines_;
  int lines_to_ = -1;
  std::vector<EventCall*> dirty_;
};

// The measurements of one phase of a launch, to be written when all of them are there.
class MeasuredLaunch : public Job {
 public:
  MeasuredLaunch(EventOutput& output, EventCall& call, SharedPlan plan, int32_t iteration)
      : measured(plan->tensors), output_(output), call_(call), plan_(std::move(plan)),
        iteration_(iteration) {}

  std::vector<Measured> measured;

  // Waits for rows of a GPU's ring, from `first` on: those of the tensors on the GPU. `issued` false: the
  // launch failed, and nothing is written.
  void await(Gpu& gpu, uint64_t first, void* stream, bool issued) {
    gpu_ = &gpu;
    first_ = first;
    stream_ = stream;
    is_void_ = !issued;
  }

  bool is_ready() override {
    if (!gpu_ || is_void_) return true;
    const auto& places = plan_->gpu_places;
    using Clock = std::chrono::steady_clock;
    while (ready_ < places.size() && gpu_->ring.read(first_ + ready_, measured[places[ready_]])) {
      ++ready_;
    }
    if (ready_ == places.size() || output_.device_failed) return true;
    const Clock::time_point now = Clock::now();
    if (asked_ == Clock::time_point()) asked_ = now;
    const int64_t waited = output_.waiting
        ? Gpu::patience
        : std::chrono::duration_cast<std::chrono::nanoseconds>(now - asked_).count();
    while (ready_ < places.size() &&
           gpu_->find(first_ + ready_, waited, measured[places[ready_]])) {
      ++ready_;
    }
    if (ready_ == places.size()) return true;
    if (now - asked_ < std::chrono::milliseconds(500)) return false;
    // Either the device is still busy with earlier work, or it failed and no row will come.
    std::string problem = gpu_->synchronize_elsewhere(stream_);
    if (problem.empty() && !comes_late()) {
      problem = "a measurement did not come";
    }
    if (problem.empty()) return false;
    output_.fail_device(plan_->title.substr(1) + "\n" + problem);
    return true;
  }

  void emit() override {
    if (gpu_) {
      const auto& places = plan_->gpu_places;
      for (std::size_t i = ready_; i < places.size(); ++i) measured[places[i]].finite = -1;
      gpu_->ring.release(first_ + places.size() - 1);
    }
    if (is_void_) {
      delete this;
      return;
    }
    const Plan& plan = *plan_;
    // Lines of print already show NaN and infinities of all values.
    const bool has_health = plan.has(Plan::health) && !plan.has(Plan::prints);
    const bool has_lines = call_.lines != EventCall::prints_nothing &&
        (plan.has(Plan::prints) || plan.has(Plan::prints_tensors) || has_health);
    const std::string again = iteration_ ? "." + std::to_string(iteration_) : "";
    std::size_t tensor = 0;
    for (const PlannedValue& value : plan.values) {
      const std::size_t place = tensor;
      const Measured* its = value.is_tensor ? &measured[tensor++] : nullptr;
      if (call_.rows.is_open()) add_row(value, its);
      if (has_lines && (its || plan.has(Plan::prints)) && is_fresh(value, its)) {
        if (plan.has(Plan::prints) || plan.has(Plan::prints_tensors)) add_line(value, its, again);
        if (has_health && !value.is_allowed) add_health(value, *its, again);
      }
      if (Triggers* triggers = call_.rows.triggers()) see(*triggers, value, its, place);
      if (its && its->nan && !value.is_allowed && plan.has(Plan::stops)) {
        output_.find(plan, value, *its);
      }
    }
    if (has_lines && plan.phase == Plan::before) {
      call_.shown = plan_;
      call_.shown_iteration = iteration_;
      call_.shown_measured.swap(measured);
    }
    delete this;
  }

 private:
  // Whether a row comes after the stream is idle: the last rows need a merging launch of their own.
  bool comes_late() {
    Measured& to = measured[plan_->gpu_places[ready_]];
    for (int turn = 0; turn < 1000; ++turn) {
      if (gpu_->find(first_ + ready_, Gpu::patience, to)) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

  void see(
      Triggers& triggers, const PlannedValue& value, const Measured* its, std::size_t place) const {
    TriggerValue seen;
    const bool is_inputs = plan_->phase != Plan::before && plan_->phase != Plan::after;
    seen.launch = is_inputs ? -1 : plan_->launch;
    seen.iteration = iteration_;
    seen.place = static_cast<int32_t>(place);
    seen.is_written = !is_inputs && plan_->phase == Plan::after && !value.is_read;
    seen.is_allowed = value.is_allowed;
    if (!its) {
      seen.print = std::hash<std::string>()(value.line);
      seen.is_written = false;
    } else {
      const MeasuredText known(*its, value.layout);
      seen.numel = value.layout.numel;
      seen.nan = its->nan;
      seen.inf = its->positive_infinite + its->negative_infinite;
      seen.largest = known.largest();
      seen.deviation = its->finite > 1 ? its->deviation : 0;
      seen.print = its->fingerprint[0] ^ its->fingerprint[1] * 3;
    }
    triggers.see(call_.rows.call(), seen, value.name);
  }

  void add_row(const PlannedValue& value, const Measured* its) {
    text_ = plan_->base;
    if (iteration_ || plan_->has(Plan::repeats)) {
      text_ += ", \"iteration\": " + std::to_string(iteration_);
    }
    text_ += value.row;
    if (its) {
      const MeasuredText known(*its, value.layout);
      known.add_to_row(text_);
      if (plan_->has(Plan::fingerprints) && known.has_fingerprint()) {
        text_ += ", \"fingerprint\": \"" + known.fingerprint() + '"';
      }
    }
    text_ += "}\n";
    output_.add_row(call_, text_);
  }

  void add_line(const PlannedValue& value, const Measured* its, const std::string& again) {
    text_ = call_.start + plan_->title + again + plan_->head + value.line;
    if (its) {
      const MeasuredText known(*its, value.layout);
      text_ += "  ";
      if (plan_->has(Plan::prints)) {
        known.add_to_line(text_);
        if (plan_->has(Plan::fingerprints)) text_ += "  ";
      }
      if (plan_->has(Plan::fingerprints)) {
        text_ += known.has_fingerprint() ? "fingerprint=" + known.fingerprint() : "not hashed";
      }
    }
    text_ += '\n';
    output_.add_line(call_, text_);
  }

  void add_health(const PlannedValue& value, const Measured& its, const std::string& again) {
    text_ = call_.start + plan_->title + again + plan_->head + value.line + "  ";
    const std::size_t before = text_.size();
    MeasuredText(its, value.layout).add_health(text_);
    if (text_.size() == before) return;
    text_ += '\n';
    output_.add_line(call_, text_);
  }

  // Whether to show a value. A value that the launch only reads is shown before it, and after it only if
  // it changed: `RunningCall.fresh` in rewriter/runtime/running_call.py.
  bool is_fresh(const PlannedValue& value, const Measured* its) const {
    const Plan* shown = call_.shown.get();
    if (!value.is_read || plan_->phase != Plan::after || !shown || shown->launch != plan_->launch ||
        call_.shown_iteration != iteration_) {
      return true;
    }
    std::size_t tensor = 0;
    for (const PlannedValue& before : shown->values) {
      const std::size_t at = tensor;
      tensor += before.is_tensor;
      if (before.name != value.name) continue;
      if (before.line != value.line || before.is_tensor != value.is_tensor) return true;
      return its && std::memcmp(&call_.shown_measured[at], its, sizeof *its);
    }
    return true;
  }

  EventOutput& output_;
  EventCall& call_;
  const SharedPlan plan_;
  const int32_t iteration_;
  std::string text_;
  Gpu* gpu_ = nullptr;
  uint64_t first_ = 0;
  void* stream_ = nullptr;
  bool is_void_ = false;
  std::size_t ready_ = 0;  // how many of the rows have come
  std::chrono::steady_clock::time_point asked_{};
};

// The last job of a call: writes what is left and frees it.
class Close : public Job {
 public:
  Close(EventOutput& output, EventCall& call) : output_(output), call_(call) {}

  void emit() override {
    output_.flush();
    call_.rows.close();
    delete &call_;
    delete this;
  }

 private:
  EventOutput& output_;
  EventCall& call_;
};

// The queue of this process, for all calls of all wrappers: lines stay in order.
class Events {
 public:
  // Never destroyed: other threads may still have calls.
  static Events& get() { return *current(); }

  // Starts an empty queue in a fork: the thread, and what is queued, belong to the parent.
  static void start_again() { current() = new Events; }

  EventOutput output;
  Writer writer{output};
  std::mutex issuing;  // keeps the order of reserving rows and of queueing jobs the same

 private:
  Events() { Writers::add(writer); }

  static Events*& current() {
    static Events* events = new Events;
    return events;
  }
};

}  // namespace inductor_rewriter
}  // namespace
