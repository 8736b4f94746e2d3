// Receives the calls that an instrumented wrapper makes, and passes them to the probes.
#pragma once

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "calls.h"
#include "captures.h"
#include "chosen_probes.h"
#include "device.h"
#include "findings.h"
#include "fork_mark.h"
#include "moments.h"
#include "probe.h"
#include "queued_output.h"
#include "running_call.h"

namespace inductor_rewriter {

class Recorder : public QueuedOutput {
 public:
  // `directory` is where it dumps to; null means the one of the environment.
  explicit Recorder(const Wrapper& wrapper, const char* directory = nullptr, bool be_quiet = false)
      : QueuedOutput(wrapper.options, be_quiet), heads(wrapper.options.values),
        fingerprints(contains(wrapper.options.probes, "hash") || contains(wrapper.options.probes, "record")),
        options_(wrapper.options), probes_(wrapper.options), moments_(wrapper, probes_),
        reader_(probes_.reader), on_cpu_(moments_.are_on_cpu()), captures_(reader_),
        wanted_(wanted_calls(wrapper.options)) {
    if (probes_.watch) memory_ = probes_.watch(options_, *this);
    const bool has_own = options_.dump && *options_.dump;
    const char* wanted =
        directory ? directory : has_own ? options_.dump : std::getenv("REWRITER_DUMP");
    const bool is_named = wanted && *wanted;
    if (is_named || probes_.saves) {
      dump_ = std::make_unique<DumpWriter>(
          options_, is_named ? wanted : "rewriter_dump", rank, moments_.launches(), probes_.marker != nullptr);
    }
    add_writer();
    // With these probes somebody who looks for a crash reads along: everything is written before a launch runs.
    // What is only read afterwards need not hold up the device: there, `sync` tells which launch fails.
    prompt = upstream || options_.stop || has("sync") || (has("names") && probes_.all.size() > 1 && !quiet);
  }

  // All calls are over and written.
  ~Recorder() override {
    remove_writer();
    retire();
  }

  const bool heads;
  const bool fingerprints;  // whether fingerprints are shown

  // Whether the wrapper has this probe.
  bool has(const char* probe) const { return contains(options_.probes, probe); }

  const char* expected() const { return options_.expected ? options_.expected : ""; }
  const char* max_bytes() const { return options_.max_bytes; }
  // Whether the user named a value in `--allow`.
  bool allows(const Event& event, const Item& item) const {
    if (!options_.allow) return false;
    return is_allowed(
        options_.allow, event.launch ? event.launch->row->kernel : "inputs", item.label->name);
  }

  // Ends the program at this NaN, with `--stop`, once the event is written.
  void found(const Event& event, const RunningCall& call, const Item& item) {
    if (options_.stop) finding_.note(event, item, call.directory ? call.directory->path : "");
  }

  // Whether device events can time a launch, by the kinds of all launches.
  bool runs_on_gpu(const Event& event) const {
    return event.launch && std::strcmp(event.launch->row->kind, "cpp") && !on_cpu_;
  }

  // Waits until the calls that ended are written.
  void finish() {
    if (reader_) reader_->finish();
    drain();
    for (auto& probe : probes_.all) probe->finish();
  }

  // Calls `then` when the call is over, or earlier if too many wait. It gets the event without its values.
  template <class Act>
  void later(const Event& event, RunningCall& call, Act then) {
    const ProbedLaunch* launch = event.launch;
    const char* phase = event.phase;
    int iteration = event.iteration;
    call.later.push_back([this, &call, launch, phase, iteration, then] {
      Event past;
      past.call = call.number;
      past.launch = launch;
      past.phase = phase;
      past.iteration = iteration;
      this->act(past, [&] { then(past); });
    });
    if (call.later.size() >= most_later) call.catch_up();
  }

  // Whether this process is a data loader worker, by the name that torch gives its thread.
  static bool is_worker() {
    char name[16] = "";
    return !pthread_getname_np(pthread_self(), name, sizeof name) &&
        !std::strcmp(name, "pt_data_worker");
  }

  bool is_of_parent() const { return mark_.is_fork(); }

  // Whether this is a forked process, which is said: it inherits the recorder, but must not be recorded.
  bool is_fork() {
    if (!mark_.is_fork()) return false;
    int pid = getpid();
    if (fork_.exchange(pid) != pid) {
      std::string where = "process " + std::to_string(pid);
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
    else if (is_wanted && captures_.has_any() && !reader_->is_in_capture()) {
      captures_.each([](Capture& capture, uint64_t replays) { capture.seen = replays; });
    }
    return is_wanted ? start_call(number) : nullptr;
  }

  // The call of a thread in which none has begun. If calls are left out, its launches are measured only while a
  // CUDA graph is captured, which a wanted call may replay.
  std::unique_ptr<RunningCall> resume() {
    const int64_t number = std::max<int64_t>(number_ - 1, 0);
    if (wanted_.are_all()) return start_call(number);
    if (on_cpu_ || !reader_ || !reader_->is_in_capture()) return nullptr;
    auto call = std::make_unique<RunningCall>(*this, number);
    call->is_wanted = false;
    return call;
  }

  // Reports the CUDA graphs that were replayed since the last time; `ended` is a call that is over. With
  // `is_last`, also those that never were. The process may then be exiting, where asking torch for its current
  // stream may crash.
  void read_replays(RunningCall* ended = nullptr, bool is_last = false) {
    if (!captures_.has_any() || (!is_last && reader_->is_in_capture())) return;
    captures_.each([&](Capture& capture, uint64_t replays) {
      act("replay", [&] { report_replay(capture, replays, ended, is_last); });
    });
  }

  // Starts a recorded call with this number.
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
      if (call->directory && !call->directory->has_begun()) begin_files(*call);
      if (!call->directory && dump_->kept().most && !dump_->kept().has_room()) warn_of_full_dump();
    }
    return call;
  }

  // The calls that stay in the dump; null without a dump.
  KeptCalls* kept() { return dump_ ? &dump_->kept() : nullptr; }

  // Whether a CUDA graph measures for this recorder, which then has to live as long as the graph.
  bool has_captures() const { return captures_.has_any(); }

  // Ends a call, which is freed once it is written. Prints are written before this returns; the dump may be
  // written later.
  void end(std::unique_ptr<RunningCall> call) {
    if (!call->is_wanted) {
      captures_.leave(std::move(call));
      return;
    }
    call->catch_up();
    if (reader_) reader_->settle();
    if (memory_) act("memory", [&] { memory_->finish(*call); });
    // A captured call is written after the first replay of its graph.
    call = captures_.leave(std::move(call));
    if (!call && reader_->is_in_capture()) return;
    // Not with a captured one, which may be freed in there.
    read_replays(call.get());
    if (call) put_end(std::move(call));
    if (!quiet) finish();
  }

  // Values with which a call begins, if they are not as many as the wrapper takes: it will fail.
  void at_given(RunningCall& call, const Contents& contents) {
    Event event = inputs_of(call);
    if (faulty_) return;
    check_inputs(call, event, contents);
    if (event.unexpected.empty()) return;
    act(event, [&] {
      call.note(event, [&](Json& json) { json.key("unexpected").string(event.unexpected[0].second); });
    });
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
  void at_inputs(
      RunningCall& call, Contents& contents, const Lists* lists = nullptr, const Contents* given = nullptr) {
    Event event = inputs_of(call);
    if (faulty_) return;
    check_inputs(call, event, given ? *given : contents);
    const auto unexpected = event.unexpected;
    OwnedJob<EventJob> job;
    Moment& moment = moments_.inputs(lists);
    if (options_.reads_inputs && !probes_.readers.empty()) {
      job = report(call, event, moment, contents);
    } else if (!probes_.checkers.empty() && call.directory) {
      act(event, [&] { job = probes_.checkers[0]->values->read(moment, contents, call, *this); });
      if (job) adopt(*job, call, event, unread_);
    }
    // Only values have rows.
    std::vector<std::pair<std::string, std::string>> rest;
    for (const auto& one : unexpected) {
      if (!job || !has_value(job->event, one.first)) rest.push_back(one);
    }
    if (job) {
      job->event.unexpected = unexpected;
      put(call, std::move(job));
      if (finding_.is_there()) end_program(call);
    }
    for (const auto& [name, problem] : rest) note_unexpected(call, event, name, problem);
  }

  void at_launch(
      RunningCall& call, int index, bool before, Contents& contents, const Lists* lists = nullptr) {
    const int place = moments_.place_of(index);
    if (place < 0 || faulty_) return;
    Moment& moment = moments_.at(place, before, lists);
    if (!call.is_wanted) return measure_replays(call, moment, contents);
    Event event = event_of(call, moment);
    event.iteration = (before ? call.before : call.after)[static_cast<std::size_t>(place)]++;
    const Probes& probes = *moment.probes;
    if (options_.dormant && probes.empty()) return;  // other probes may be switched on later
    for (std::size_t i = before ? 0 : probes.size(); i-- > 0;) {
      act(event, [&] { probes[i]->stop(event, call, *this); });
    }
    const bool is_mark = before && probes_.marks_alone;
    OwnedJob<EventJob> job = is_mark ? nullptr : report(call, event, moment, contents);
    if (job) put(call, std::move(job));
    if (finding_.is_there()) end_program(call);
    if (!before || !event.error.empty()) return;
    for (Probe* probe : probes) {
      act(event, [&] { probe->start(event, call, *this); });
    }
  }

  // Handles a memory line.
  template <class Act>
  void at_memory(RunningCall& call, Act&& act_on) {
    if (!memory_ || faulty_ || is_fork()) return;
    act("memory", [&] { act_on(*memory_, call); });
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
    const Values* reader = job.has_values ? reader_ : nullptr;
    if (reader || event.iteration || job.moment->row.empty()) {
      add_row(call, event_rows(event, reader));
    } else {
      add_row(call, job.moment->row);
    }
  }

 private:
  static constexpr std::size_t most_later = 4096;  // timed launches that wait to be read

  void begin_files(RunningCall& call) {
    if (!call.is_behind) act("dump", [&] { call.directory->begin(); });
    else put_behind(OwnedJob<Job>(new BeginJob(*this, call)));
  }
  void put_end(std::unique_ptr<RunningCall> call) {
    const RunningCall& of = *call;
    put(of, OwnedJob<Job>(new EndJob(*this, std::move(call))));
  }

  // Comes before all other jobs of its call.
  struct BeginJob : Job {
    BeginJob(Recorder& recorder, RunningCall& call) : recorder_(recorder), call_(call) {}
    void emit() override {
      recorder_.act("dump", [&] { call_.directory->begin(); });
    }

   private:
    Recorder& recorder_;
    RunningCall& call_;
  };

  struct EndJob : Job {
    EndJob(Recorder& recorder, std::unique_ptr<RunningCall> call)
        : recorder_(recorder), call_(std::move(call)) {}
    void emit() override {
      recorder_.flush();
      std::unique_ptr<CallDirectory> directory = std::move(call_->directory);
      call_.reset();  // waits until its tensors are in files
      if (directory) recorder_.act("dump", [&] { recorder_.dump_->finish(std::move(directory)); });
    }

   private:
    Recorder& recorder_;
    std::unique_ptr<RunningCall> call_;
  };

  void warn_of_full_dump() {
    const std::string size = std::to_string(dump_->kept().most);
    warn("dump", "--max-bytes: the rows have " + size +
        " bytes; no more calls are recorded, and the model runs on");
  }

  // An event with its values, measured or being measured; null if it has none.
  OwnedJob<EventJob> report(RunningCall& call, Event& event, Moment& moment, Contents& contents) {
    // Print the name first: everything after this may crash.
    const Probes& probes = *moment.probes;
    const Values* reader = nullptr;
    for (Probe* probe : probes) {
      if (probe->values) reader = probe->values;
      else act(event, [&] { probe->at(event, call, *this); });
    }
    if (!reader && !call.directory && !probes_.observes) return nullptr;
    OwnedJob<EventJob> job;
    if (reader) {
      act(event, [&] { job = reader->read(moment, contents, call, *this); });
    }
    const bool has_values = job != nullptr;  // what the reader made; others are not for it
    if (!job) job.reset(new EventJob);
    adopt(*job, call, event, moment);
    job->has_values = has_values;
    if (!reader) return job;
    bool measures = call.directory || fingerprints;
    for (Probe* probe : probes) {
      measures = measures || probe->measures;
      act(event, [&] { probe->check(job->event, call, *this); });
    }
    if (!job->event.error.empty()) {
      event.error = job->event.error;
      job.reset();
      stop(event, call);
      return nullptr;
    }
    if (!has_values) return job;
    for (Probe* probe : probes) {
      if (!probe->values) continue;
      if (job->event.captured && probe->saves) decline("save", job->event);
      else act(event, [&] { probe->at(job->event, call, *this); });
    }
    if (measures || heads || upstream) {
      act(event, [&] { reader->measure(*job, heads || upstream, *this); });
    }
    if (!job->event.captured) return job;
    if (fingerprints) decline("hash", job->event);
    captures_.keep(call, std::move(job));
    return nullptr;
  }

  void decline(const std::string& probe, const Event& event) {
    warn(event.about(), probe + " cannot copy to the host while a CUDA graph is being captured: "
        "only statistics come from a replay");
  }

  // An event of a call that is not recorded, while a CUDA graph is captured.
  void measure_replays(RunningCall& call, Moment& moment, Contents& contents) {
    if (moment.probes->empty() || !reader_->is_in_capture()) return;
    const Event event = event_of(call, moment);
    act(event, [&] {
      OwnedJob<EventJob> job = reader_->read(moment, contents, call, *this);
      adopt(*job, call, event, moment);
      if (!job->event.captured) return;
      reader_->measure(*job, false, *this);
      captures_.keep(call, std::move(job));
    });
  }

  // The first replay belongs to the call that captured the graph. Each other one belongs to the call that has
  // ended, unless that has run these launches itself: then it gets a call of its own, since no line of the
  // wrapper runs in a replay.
  void report_replay(Capture& capture, uint64_t replays, RunningCall* ended, bool is_last) {
    const bool is_new = replays != capture.seen;
    if (!is_new && !(is_last && capture.call)) return;
    if (!is_new && !capture.call->is_wanted) return;
    if (!is_new) {
      warn("exit", "a CUDA graph was captured and never replayed: it has no values");
    }
    capture.seen = replays;
    RunningCall* call = std::exchange(capture.call, nullptr);
    // A call in Python ends when its thread begins the next one: until then that thread has it.
    std::unique_ptr<RunningCall> left = std::move(capture.left);
    if (call && !call->is_wanted) {
      call->capture = nullptr;
      left.reset();
      call = nullptr;
    }
    const bool is_replayer = !call && ended && !capture.was_run_by(*ended, moments_);
    if (!call && !is_replayer && !wanted_.are_all() && options_.of_python) return;  // of a call that is left out
    if (!call && !is_replayer) left = start_call(capture.number);
    if (left) call = left.get();
    else if (!call) call = ended;
    if (!is_replayer) call->capture = nullptr;
    for (const auto& captured : capture.events) {
      OwnedJob<EventJob> job = reader_->replayed(*captured);
      adopt(*job, *call, captured->event, *captured->moment);
      job->event.call = call->number;
      job->event.captured = true;
      put(std::move(job));
    }
    if (left) put(OwnedJob<Job>(new EndJob(*this, std::move(left))));
  }

  // Called when the program ends, or the library of the wrapper is unloaded.
  void close() override {
    if (!mark_.is_fork()) read_replays(nullptr, true);
  }

  static void adopt(EventJob& job, RunningCall& call, const Event& event, const Moment& moment) {
    job.moment = &moment;
    job.call = &call;
    job.has_values = true;
    job.event.call = event.call;
    job.event.launch = event.launch;
    job.event.phase = event.phase;
    job.event.iteration = event.iteration;
    job.event.line = event.line;
    job.event.error.clear();
    job.event.unexpected.clear();
  }

  static bool has_value(const Event& event, const std::string& name) {
    return std::any_of(
        event.items.begin(), event.items.end(), [&](const Item& item) { return item.label->name == name; });
  }

  static Event event_of(const RunningCall& call, const Moment& moment) {
    Event event;
    event.call = call.number;
    event.launch = moment.launch;
    event.phase = moment.phase;
    event.line = &moment.line;
    return event;
  }
  static Event inputs_of(const RunningCall& call) {
    Event event;
    event.call = call.number;
    event.phase = "inputs";
    return event;
  }

  void check_inputs(RunningCall& call, Event& event, const Contents& contents) {
    for (Probe* probe : probes_.checkers) {
      act(event, [&] { probe->given(event, contents, call, *this); });
    }
  }

  void note_unexpected(
      RunningCall& call, const Event& event, const std::string& name, const std::string& problem) {
    act(event, [&] {
      call.note(event, [&](Json& json) {
        json.key("arg").string(name).key("role").string("in").key("unexpected").string(problem);
      });
    });
  }

  // Ends the program at a NaN, after everything is written, including what waits for the end of the call.
  [[noreturn]] void end_program(RunningCall& call) {
    finding_.write();
    call.catch_up();
    // The process ends: its thread frees it no more.
    put(OwnedJob<Job>(new EndJob(*this, std::unique_ptr<RunningCall>(&call))));
    drain();
    end_process(start(finding_.call()) + finding_.text());
  }

  // Reports a device fault and stops recording: nothing can be read from the device any more.
  void stop(const Event& event, RunningCall& call) {
    if (!event.launch) return;  // the first launch will find it, too
    faulty_ = true;
    act(event, [&] {
      call.note(event, [&](Json& json) { json.key("error").string(event.error); });
    });
    const char* earlier = event.phase[0] == 'b' ? " (of something before this launch)" : "";
    say(about(event) + ": " + event.error + earlier + "\n");
  }

  static Calls wanted_calls(const Options& options) {
    const char* calls = std::getenv("REWRITER_CALLS");
    if (!calls || !*calls) return Calls(options.calls ? options.calls : "");
    try {
      return Calls(calls);
    } catch (const std::exception& error) {
      throw std::runtime_error(std::string("REWRITER_CALLS: ") + error.what());
    }
  }

  const Options& options_;
  const ForkMark mark_;
  const ChosenProbes probes_;
  Moments moments_;
  const Values* const reader_;  // null if no probe reads values
  const bool on_cpu_;           // whether all launches run there
  Captures captures_;
  const Calls wanted_;
  std::mutex postponing_;
  std::vector<std::unique_ptr<RunningCall>> postponed_;
  const Probes none_;
  const Moment unread_{nullptr, "inputs", nullptr, &none_, "", "", nullptr};
  std::unique_ptr<MemoryWatch> memory_;  // if there are memory probes
  std::atomic<int64_t> number_{0};       // number of the next call
  std::atomic<bool> faulty_{false};
  Finding finding_;
  std::unique_ptr<DumpWriter> dump_;
  std::atomic<int> fork_{0};
};

inline void EventJob::emit() {
  Recorder& recorder = call->recorder;
  recorder.act(event, [&] { complete(); });
  recorder.emit(*this);
}

inline void RunningCall::write_row(std::string&& lines) {
  recorder.write_row(*this, std::move(lines));
}

}  // namespace inductor_rewriter
