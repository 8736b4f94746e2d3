// Receives the calls that an instrumented wrapper makes, and passes them to the probes.
#pragma once

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "settings.h"
#include "captures.h"
#include "device.h"
#include "findings.h"
#include "engine/process.h"
#include "gpu_rows.h"
#include "moments.h"
#include "probe.h"
#include "printer.h"
#include "running_call.h"

namespace inductor_rewriter {

class MemoryOfWrapper;

class Recorder : public QueuedOutput {
 public:
  // `directory` is where it dumps to; null means the one of the environment.
  explicit Recorder(const Wrapper& wrapper, const char* directory = nullptr, bool be_quiet = false);
  // All calls are over and written.
  ~Recorder() override;

  const bool heads;
  const bool fingerprints;  // whether fingerprints are shown

  bool has(const char* probe) const { return contains(options_.probes, probe); }

  const char* expected() const { return options_.expected ? options_.expected : ""; }
  const char* max_bytes() const { return options_.max_bytes; }
  // Whether the user named a value in `--allow`.
  bool allows(const Event& event, const Item& item) const {
    if (!options_.allow) return false;
    return is_allowed(options_.allow, event.launch ? event.launch->row->kernel : "inputs", item.label->name);
  }

  // Ends the program at this NaN, with `--stop`, once the event is written.
  void found(const Event& event, const RunningCall& call, const Item& item) {
    if (options_.stop) finding_.note(event, item, call.directory.get());
  }

  // Whether device events can time a launch, by the kinds of all launches.
  bool runs_on_gpu(const Event& event) const {
    return event.launch && std::strcmp(event.launch->row->kind, "cpp") && !on_cpu_;
  }

  // Waits until the calls that ended are written.
  void finish() {
    if (probes_.reads_values) GpuRows::merge();
    drain();
    for (auto& probe : probes_.all) probe->finish();
  }

  // Calls `then` when the call is over, or earlier if too many wait. It gets the event without its values.
  template <class Act>
  void later(const Event& event, RunningCall& call, Act then) {
    const EventPlace place = event;
    call.later.push_back([this, place, then] {
      Event past(place);
      this->act(past, [&] { then(past); });
    });
    if (call.later.size() >= most_later) call.catch_up();
  }

  // Whether this process is a data loader worker, by the name that torch gives its thread.
  static bool is_worker() {
    char name[16] = "";
    return !pthread_getname_np(pthread_self(), name, sizeof name) && !std::strcmp(name, "pt_data_worker");
  }

  bool is_of_parent() const { return mark_.is_fork(); }

  // Whether this is a forked process, which is said: it inherits the recorder, but must not be recorded.
  bool is_fork() {
    if (!mark_.is_fork()) return false;
    const std::string where = "process " + std::to_string(getpid());
    if (fork_.exchange(getpid()) != getpid()) {
      say(rank, where, "a fork of the probed process is not recorded; one that is started anew (spawn) is");
    }
    return true;
  }

  // Starts a call; null if it is not recorded.
  std::unique_ptr<RunningCall> begin() {
    const int64_t number = number_++;
    const bool is_wanted = wanted_.contains(number);
    // Of a wrapper in Python, replays since its last recorded call are of calls that are not.
    if (wanted_.are_all() || !options_.of_python) read_replays();
    else if (is_wanted && captures_.has_any() && !is_capturing()) {
      captures_.each([](Capture& capture, uint64_t replays) { capture.seen = replays; });
    }
    return is_wanted ? start_call(number) : nullptr;
  }

  // The call of a thread in which none has begun. If calls are left out, its launches are measured only while a
  // CUDA graph is captured, which a wanted call may replay.
  std::unique_ptr<RunningCall> resume() {
    const int64_t number = std::max<int64_t>(number_ - 1, 0);
    if (wanted_.are_all()) return start_call(number);
    if (on_cpu_ || !probes_.reads_values || !is_capturing()) return nullptr;
    auto call = std::make_unique<RunningCall>(*this, number);
    call->is_wanted = false;
    return call;
  }

  // Reports the CUDA graphs that were replayed since the last time; `ended` is a call that is over. With
  // `is_last`, also those that never were. The process may then be exiting, where asking torch for its current
  // stream may crash.
  void read_replays(RunningCall* ended = nullptr, bool is_last = false) {
    if (!captures_.has_any() || (!is_last && is_capturing())) return;
    captures_.each([&](Capture& capture, uint64_t replays) {
      act("replay", [&] { report_replay(capture, replays, ended, is_last); });
    });
  }

  std::unique_ptr<RunningCall> start_call(int64_t number) {
    auto call = std::make_unique<RunningCall>(*this, number);
    call->before.resize(moments_.launches().size());
    call->after.resize(moments_.launches().size());
    call->start = start(number) + " ";
    // On the CPU, or if a crash is looked for, events are written immediately. On a device, another thread
    // writes them, since the device would be idle meanwhile. Names alone have nothing for it, and a call
    // would wait for it when it is over.
    call->is_behind = !prompt && !on_cpu_ && (probes_.observes || memory_ || dump_) && has_device();
    if (dump_) {
      act("dump", [&] { call->directory = dump_->start(number); });
      CallDirectory* const directory = call->directory.get();
      const auto make_files = [this, directory] { act("dump", [&] { directory->begin(); }); };
      if (directory && !directory->has_begun()) {
        if (call->is_behind) put_behind(job_of(make_files));  // before all other jobs of the call
        else make_files();
      } else if (!directory && dump_->kept().most && !dump_->kept().has_room()) {
        warn("dump", "--max-bytes: the rows have " + std::to_string(dump_->kept().most) +
            " bytes; no more calls are recorded, and the model runs on");
      }
    }
    return call;
  }

  // The calls that stay in the dump; null without a dump.
  KeptCalls* kept() { return dump_ ? &dump_->kept() : nullptr; }

  // Whether a CUDA graph measures for this recorder, which then has to live as long as the graph.
  bool has_captures() const { return captures_.has_any(); }

  // Ends a call, which is freed once it is written. Prints are written before this returns; the dump may be
  // written later.
  void end(std::unique_ptr<RunningCall> call);

  // Values with which a call begins, if they are not as many as the wrapper takes: it will fail.
  void at_given(RunningCall& call, const Contents& contents) {
    Event event = inputs_of(call);
    if (faulty_) return;
    check_inputs(call, event, contents);
    if (event.unexpected.empty()) return;
    note(call, event, [&](Json& json) { json.key("unexpected").string(event.unexpected[0].second); });
  }

  // A call of a wrapper in Python ends when its thread begins the next one. If a CUDA graph is captured then, in
  // which nothing may be waited for, it ends later.
  bool is_captured_now() const { return !on_cpu_ && is_capturing(); }
  void postpone(std::unique_ptr<RunningCall> call) {
    std::lock_guard<std::mutex> guard(postponing_);
    postponed_.push_back(std::move(call));
  }
  std::vector<std::unique_ptr<RunningCall>> take_postponed() {
    std::lock_guard<std::mutex> guard(postponing_);
    return std::exchange(postponed_, {});
  }

  // `lists` are those in the line; `given` are its values, each list as one.
  void at_inputs(RunningCall& call, Contents& contents, const Lists* lists = nullptr, const Contents* given = nullptr);

  void at_launch(RunningCall& call, int index, bool before, Contents& contents, const Lists* lists = nullptr);

  template <class Act>
  void at_memory(Act&& act_on) {
    if (memory_ && !faulty_ && !is_fork()) act("memory", [&] { act_on(*memory_); });
  }

  // The row of a launch, by index; null if the launch has no lines.
  const Row* row_of(int index) const {
    const int place = moments_.place_of(index);
    return place < 0 ? nullptr : moments_.launches()[static_cast<std::size_t>(place)].row;
  }

  // Prints a complete event, and writes it into the dump.
  void emit(EventJob& job) {
    Event& event = job.event;
    RunningCall& call = *job.call;
    for (Probe* probe : *job.moment->probes) {
      act(event, [&] { probe->measured(event, call, *this); });
    }
    if (!call.directory) return;
    if (job.has_values || event.iteration || job.moment->row.empty()) {
      add_row(call, event_rows(event, job.has_values));
    } else {
      add_row(call, job.moment->row);
    }
  }

 private:
  static constexpr std::size_t most_later = 4096;  // timed launches that wait to be read

  // The last job of a call, which frees it.
  OwnedJob<Job> end_of(std::unique_ptr<RunningCall> call) {
    return job_of([this, own = std::move(call)]() mutable {
      flush();
      std::unique_ptr<CallDirectory> directory = std::move(own->directory);
      own.reset();  // waits until its tensors are in files
      if (directory) act("dump", [&] { dump_->finish(std::move(directory)); });
    });
  }

  // An event with its values, measured or being measured; null if it has none.
  OwnedJob<EventJob> report(RunningCall& call, Event& event, Moment& moment, Contents& contents);

  void decline(const std::string& probe, const Event& event) {
    warn(event.about(), probe + " cannot copy to the host while a CUDA graph is being captured: "
        "only statistics come from a replay");
  }

  // An event of a call that is not recorded, while a CUDA graph is captured.
  void measure_replays(RunningCall& call, Moment& moment, Contents& contents) {
    if (moment.probes->empty() || !is_capturing()) return;
    const Event event = event_of(call, moment);
    act(event, [&] {
      OwnedJob<EventJob> job = read_values(moment, contents, *this);
      adopt(*job, call, event, moment);
      if (!job->event.captured) return;
      measure_values(*job, false, *this);
      captures_.keep(call, std::move(job));
    });
  }

  // The first replay belongs to the call that captured the graph. Each other one belongs to the call that has
  // ended, unless that has run these launches itself: then it gets a call of its own, since no line of the
  // wrapper runs in a replay.
  void report_replay(Capture& capture, uint64_t replays, RunningCall* ended, bool is_last);

  // Called when the program ends, or the library of the wrapper is unloaded.
  void close() override {
    if (!mark_.is_fork()) read_replays(nullptr, true);
  }

  static void adopt(EventJob& job, RunningCall& call, const Event& event, const Moment& moment) {
    job.moment = &moment;
    job.call = &call;
    job.has_values = true;
    static_cast<EventPlace&>(job.event) = event;
    job.event.error.clear();
    job.event.unexpected.clear();
  }

  static Event event_of(const RunningCall& call, const Moment& moment) {
    return Event({call.number, moment.launch, moment.phase, 0, &moment.line});
  }
  static Event inputs_of(const RunningCall& call) { return Event({call.number, nullptr, "inputs", 0, nullptr}); }

  void check_inputs(RunningCall& call, Event& event, const Contents& contents) {
    for (Probe* probe : probes_.checkers) {
      act(event, [&] { probe->given(event, contents, call, *this); });
    }
  }

  // Ends the program at a NaN, after everything is written, including what waits for the end of the call.
  [[noreturn]] void end_program(RunningCall& call) {
    finding_.write();
    call.catch_up();
    // The process ends: its thread frees it no more.
    put(end_of(std::unique_ptr<RunningCall>(&call)));
    drain();
    end_process(start(finding_.call()) + finding_.text());
  }

  // Reports a device fault and stops recording: nothing can be read from the device any more.
  void stop(const Event& event, RunningCall& call) {
    if (!event.launch) return;  // the first launch will find it, too
    faulty_ = true;
    note(call, event, [&](Json& json) { json.key("error").string(event.error); });
    const char* earlier = event.phase[0] == 'b' ? " (of something before this launch)" : "";
    say(about(event) + ": " + event.error + earlier + "\n");
  }

  const Options& options_;
  const ForkMark mark_;
  const ChosenProbes probes_;
  Moments moments_;
  const bool on_cpu_;  // whether all launches run there
  Captures captures_;
  const Calls wanted_;
  std::mutex postponing_;
  std::vector<std::unique_ptr<RunningCall>> postponed_;
  const Probes none_;
  const Moment unread_{nullptr, "inputs", nullptr, &none_, "", ""};
  std::unique_ptr<MemoryOfWrapper> memory_;  // if there are memory probes
  std::atomic<int64_t> number_{0};           // number of the next call
  std::atomic<bool> faulty_{false};
  Finding finding_;
  std::unique_ptr<DumpWriter> dump_;
  std::atomic<int> fork_{0};
};

}  // namespace inductor_rewriter
