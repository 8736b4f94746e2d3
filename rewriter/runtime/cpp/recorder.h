// Receives the calls that an instrumented wrapper makes, and passes them to the probes.
#pragma once

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "calls.h"
#include "device.h"
#include "findings.h"
#include "printer.h"
#include "probe.h"
#include "running_call.h"

namespace inductor_rewriter {

// Detects a fork: a forked process sees this page zeroed.
class ForkMark {
 public:
  ForkMark() {
    constexpr int wipe_on_fork = 18;  // MADV_WIPEONFORK, since Linux 4.14
    void* page = mmap(nullptr, 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return;
    if (madvise(page, 1, wipe_on_fork)) munmap(page, 1);
    else *(page_ = static_cast<char*>(page)) = 1;
  }
  ForkMark(const ForkMark&) = delete;
  ForkMark& operator=(const ForkMark&) = delete;
  ~ForkMark() {
    if (page_) munmap(const_cast<char*>(page_), 1);
  }
  bool is_fork() const { return page_ ? !*page_ : getpid() != pid_; }

 private:
  const int pid_ = getpid();
  volatile char* page_ = nullptr;
};

// The events of one CUDA graph, in order. `call` is the call that captured it, until that is written, and `left`
// the same once its thread needs it no more. `seen` counts the replays that were reported.
struct Capture {
  RunningCall* call = nullptr;
  std::unique_ptr<RunningCall> left;
  int64_t number = 0;
  std::vector<OwnedJob<EventJob>> events;
  uint64_t seen = 0;
};

// The lists in a line of Python, of which each member is a value of its own: for each value of the line, the
// place of its label, and what its name ends with. `shape` is the same for lines with the same lists.
struct Lists {
  std::string shape;
  std::vector<std::pair<std::size_t, std::string>> values;
};

class Recorder : public Printer, private Output {
 public:
  // `directory` is where it dumps to; null means the one of the environment.
  explicit Recorder(const Wrapper& wrapper, const char* directory = nullptr, bool be_quiet = false)
      : Printer(wrapper.options, be_quiet), heads(wrapper.options.values),
        fingerprints(
            holds(wrapper.options.probes, "hash") || holds(wrapper.options.probes, "record")),
        options_(wrapper.options),
        inputs_(read_labels(wrapper.inputs)), launches_(wrapper.size),
        moments_(2 * wrapper.size + 1), wanted_(wanted_calls(wrapper.options)), writer_(*this) {
    bool on_device = false;
    choose_probes();
    for (std::size_t i = 0; i < wrapper.size; ++i) {
      const Row& row = wrapper.rows[i];
      launches_[i].row = &row;
      launches_[i].before = read_labels(row.before);
      launches_[i].after = read_labels(row.after);
      make_moment(moments_[2 * i], launches_[i], "before", launches_[i].before, before_);
      make_moment(moments_[2 * i + 1], launches_[i], "after", launches_[i].after, after_);
      if (places_.size() <= std::size_t(row.launch)) places_.resize(row.launch + 1, -1);
      places_[row.launch] = static_cast<int>(i);
      on_device = on_device || is_gpu_kind(row.kind);
      on_cpu_ = on_cpu_ || !std::strcmp(row.kind, "cpp");
    }
    on_cpu_ = on_cpu_ && !on_device;
    moments_[2 * wrapper.size].labels = &inputs_;
    moments_[2 * wrapper.size].probes = &readers_;
    const bool has_own = options_.dump && *options_.dump;
    const char* wanted =
        directory ? directory : has_own ? options_.dump : std::getenv("REWRITER_DUMP");
    bool dumping = wanted && *wanted;
    for (auto& probe : probes_) dumping = dumping || probe->saves;
    if (dumping) {
      const char* root = wanted && *wanted ? wanted : "rewriter_dump";
      dump_ = std::make_unique<DumpWriter>(options_, root, rank, launches_);
      for (auto& probe : probes_) {
        if (probe->marks) dump_->record(probe->make_recorded);
      }
    }
    Writers::add(writer_);
    // With these probes somebody who looks for a crash reads along: everything is written before a launch runs.
    // What is only read afterwards need not hold up the device: there, `sync` tells which launch fails.
    prompt = upstream || options_.stop || has("sync") || (has("names") && probes_.size() > 1 && !quiet);
  }

  // All calls are over and written.
  ~Recorder() override {
    Writers::remove(writer_);
    retire();
  }

  const bool heads;
  const bool fingerprints;  // whether fingerprints are shown
  bool prompt = false;      // whether an event is written before the line returns

  // Whether the wrapper has this probe.
  bool has(const char* probe) const { return holds(options_.probes, probe); }

  const char* expected() const { return options_.expected ? options_.expected : ""; }
  const char* max_bytes() const { return options_.max_bytes; }
  // Whether the user named a value in `--allow`.
  bool allows(const Event& event, const Item& item) const {
    if (!options_.allow) return false;
    return is_allowed(
        options_.allow, event.launch ? event.launch->row->kernel : "inputs", item.label->name);
  }

  bool stops() const { return options_.stop; }

  // Ends the program at this NaN once the event is written.
  void stop_at(const Event& event, const RunningCall& call, const Item& item) {
    std::lock_guard<std::mutex> guard(finding_);
    if (finding_name_.empty()) {
      finding_name_ = item.label->name;
      const bool is_one = item.statistics.numel == 1;
      finding_text_ = std::to_string(item.statistics.nan) + " of " +
          std::to_string(item.statistics.numel) + (is_one ? " element of " : " elements of ") +
          item.label->name + (is_one ? " is" : " are") + " NaN";
      finding_launch_ = event.launch;
      finding_call_ = event.call;
      if (call.directory) finding_run_ = call.directory->path;
      has_finding_ = true;
    }
  }

  // Whether device events can time a launch, by the kinds of all launches.
  bool runs_on_gpu(const Event& event) const {
    return event.launch && std::strcmp(event.launch->row->kind, "cpp") && !on_cpu_;
  }

  // Writes to standard output, after all earlier output.
  void write(std::string&& text) {
    if (text.empty() || quiet) return;
    if (writer_.is_emitting()) return collect(text);
    put(OwnedJob<Job>(new TextJob(*this, nullptr, std::move(text))));
  }
  void write(const std::string& text) { write(std::string(text)); }

  void write_row(RunningCall& call, std::string&& lines) {
    if (writer_.is_emitting()) return add_row(call, lines);
    put(OwnedJob<Job>(new TextJob(*this, &call, std::move(lines))));
  }

  // Whether a thread waits until all is written.
  bool is_waited_for() const { return waiting != 0; }

  // Waits until all jobs are written.
  void drain() { writer_.drain(); }

  // Waits until the calls that ended are written.
  void finish() {
    if (reader_) reader_->finish();
    drain();
    for (auto& probe : probes_) probe->finish();
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
    else if (is_wanted) skip_replays();
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
    if (!has_captures_.load(std::memory_order_acquire) || !reader_) return;
    if (!is_last && reader_->is_in_capture()) return;
    std::lock_guard<std::mutex> guard(capturing_);
    const bool is_over = reader_->wait_for_replays();
    for (auto& capture : captures_) {
      act("replay", [&] { report_replay(*capture, ended, is_last, is_over); });
    }
  }

  void skip_replays() {
    if (!has_captures_.load(std::memory_order_acquire) || !reader_ || reader_->is_in_capture()) return;
    std::lock_guard<std::mutex> guard(capturing_);
    reader_->wait_for_replays();
    for (auto& capture : captures_) capture->seen = replays_of(*capture, true);
  }

  // Starts a recorded call with this number.
  std::unique_ptr<RunningCall> start_call(int64_t number) {
    auto call = std::make_unique<RunningCall>(*this, number);
    call->before.resize(launches_.size());
    call->after.resize(launches_.size());
    call->start = start(number) + " ";
    // On the CPU, or if a crash is looked for, events are written immediately. On a device, another thread
    // writes them, since the device would be idle meanwhile. Names alone have nothing for it, and a call
    // would wait for it when it is over.
    call->is_behind = !prompt && !on_cpu_ && (observes_ || memory_ || dump_) && has_device();
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
  bool has_captures() const { return has_captures_; }

  // Waits until all is written, and stops the thread. No call may follow.
  void retire() {
    drain();
    writer_.stop();
  }

  // The sides of a launch at which probes act.
  struct Sides {
    bool before = false, after = false;
  };
  static Sides sides_of(const Options& options) {
    Sides sides;
    for_each_probe(options, [&](std::unique_ptr<Probe> probe, const std::string&, const std::string& when) {
      sides.before = sides.before || when == "before" || when == "both" || probe->marks;
      sides.after = sides.after || when == "after" || when == "both";
    });
    return sides;
  }

  // Ends a call, which is freed once it is written. Prints are written before this returns; the dump may be
  // written later.
  void end(std::unique_ptr<RunningCall> call) {
    if (!call->is_wanted) {
      leave(std::move(call));
      return;
    }
    call->catch_up();
    if (reader_) reader_->settle();
    if (memory_) act("memory", [&] { memory_->finish(*call); });
    // A captured call is written after the first replay of its graph.
    call = leave(std::move(call));
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
    Moment& plain = moments_[moments_.size() - 1];
    Moment& moment = lists ? listed(plain, *lists) : plain;
    if (options_.reads_inputs && !readers_.empty()) {
      job = report(call, event, moment, contents);
    } else if (!checkers_.empty() && call.directory) {
      act(event, [&] { job = checkers_[0]->values->read(moment, contents, call, *this); });
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
      if (has_finding_) end_program(call);
    }
    for (const auto& [name, problem] : rest) note_unexpected(call, event, name, problem);
  }

  void at_launch(
      RunningCall& call, int index, bool before, Contents& contents, const Lists* lists = nullptr) {
    if (index < 0 || std::size_t(index) >= places_.size() || places_[index] < 0) return;
    if (faulty_) return;
    const int place = places_[index];
    Moment& plain = moments_[2 * place + !before];
    Moment& moment = lists ? listed(plain, *lists) : plain;
    if (!call.is_wanted) return measure_replays(call, moment, contents);
    Event event;
    event.call = call.number;
    event.launch = moment.launch;
    event.phase = moment.phase;
    event.iteration = (before ? call.before : call.after)[place]++;
    event.line = &moment.line;
    const Probes& probes = *moment.probes;
    if (options_.dormant && probes.empty()) return;  // other probes may be switched on later
    for (std::size_t i = before ? 0 : probes.size(); i-- > 0;) {
      act(event, [&] { probes[i]->stop(event, call, *this); });
    }
    const bool is_mark = before && marks_alone_;
    OwnedJob<EventJob> job = is_mark ? nullptr : report(call, event, moment, contents);
    if (job) put(call, std::move(job));
    if (has_finding_) end_program(call);
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
    if (index < 0 || std::size_t(index) >= places_.size() || places_[index] < 0) return nullptr;
    return launches_[std::size_t(places_[index])].row;
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

  // Calls `act`; an exception becomes a warning, so that the other probes go on.
  template <class About, class Act>
  void act(const About& about, Act&& act) {
    try {
      act();
    } catch (const std::exception& error) {
      warn(text_of(about), error.what());
    } catch (...) {
      warn(text_of(about), "unknown failure");
    }
  }

 private:
  static constexpr std::size_t most_later = 4096;  // timed launches that wait to be read

  // Writes text to standard output, or rows to a call's directory.
  struct TextJob : Job {
    TextJob(Recorder& recorder, RunningCall* call, std::string&& text)
        : recorder_(recorder), call_(call), text_(std::move(text)) {}
    void emit() override {
      if (call_) recorder_.add_row(*call_, text_);
      else recorder_.collect(text_);
    }

   private:
    Recorder& recorder_;
    RunningCall* const call_;
    const std::string text_;
  };

  void begin_files(RunningCall& call) {
    if (!call.is_behind) act("dump", [&] { call.directory->begin(); });
    else writer_.put_behind(OwnedJob<Job>(new BeginJob(*this, call)));
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

  static std::string text_of(const Event& event) { return event.about(); }
  static std::string text_of(const std::string& text) { return text; }  // or a string literal

  static bool holds(const std::string& names, const std::string& name) {
    return ("," + names + ",").find("," + name + ",") != std::string::npos;
  }

  static void make_moment(
      Moment& moment, const ProbedLaunch& launch, const char* phase, const Labels& labels,
      const Probes& probes) {
    moment.launch = &launch;
    moment.phase = phase;
    moment.labels = &labels;
    moment.probes = &probes;
    Event event;
    event.launch = &launch;
    event.phase = phase;
    moment.line = event.about() + " " + phase + (phase[0] == 'a' ? "  " : " ");
    moment.line += launch.row->kernel;
    moment.row = event_rows(event, nullptr);
  }

  void put(OwnedJob<Job> job) { writer_.put(std::move(job), prompt); }
  void put(const RunningCall& call, OwnedJob<Job> job) {
    if (call.is_behind) writer_.put_behind(std::move(job));
    else put(std::move(job));
  }

  // While a job is emitted.
  void collect(const std::string& text) {
    text_ += text;
    if (text_.size() > most_text) flush();
  }

  void add_row(RunningCall& call, const std::string& lines) {
    if (!call.directory) return;
    if (last_written_ != call.directory.get()) flush_rows();
    last_written_ = call.directory.get();
    act("dump", [&] { call.directory->write(lines); });
  }

  void flush_rows() {
    if (last_written_) act("dump", [&] { last_written_->flush(); });
    last_written_ = nullptr;
  }

  void flush() override {
    flush_rows();
    if (text_.empty()) return;
    write_now(text_.data(), text_.size());
    text_.clear();
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
    if (!reader && !call.directory && !observes_) return nullptr;
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
    keep(call, std::move(job));
    return nullptr;
  }

  void decline(const std::string& probe, const Event& event) {
    warn(event.about(), probe + " cannot copy to the host while a CUDA graph is being captured: "
        "only statistics come from a replay");
  }

  // An event of a call that is not recorded, while a CUDA graph is captured.
  void measure_replays(RunningCall& call, Moment& moment, Contents& contents) {
    if (moment.probes->empty() || !reader_->is_in_capture()) return;
    Event event;
    event.call = call.number;
    event.launch = moment.launch;
    event.phase = moment.phase;
    event.line = &moment.line;
    act(event, [&] {
      OwnedJob<EventJob> job = reader_->read(moment, contents, call, *this);
      adopt(*job, call, event, moment);
      if (!job->event.captured) return;
      reader_->measure(*job, false, *this);
      keep(call, std::move(job));
    });
  }

  // The moment with a label for each member of the lists in a line.
  Moment& listed(const Moment& plain, const Lists& lists) {
    std::lock_guard<std::mutex> guard(listing_);
    std::unique_ptr<Listed>& known = listed_[{&plain, lists.shape}];
    if (known) return known->moment;
    known = std::make_unique<Listed>();
    known->labels = Labels(lists.values.size());
    for (std::size_t i = 0; i < lists.values.size(); ++i) {
      const auto& [place, end] = lists.values[i];
      if (place >= plain.labels->size()) continue;
      Label& label = known->labels[i] = (*plain.labels)[place];
      label.name += end;
      label.expr += end;
    }
    Moment& made = known->moment;
    made.launch = plain.launch;
    made.phase = plain.phase;
    made.labels = &known->labels;
    made.probes = plain.probes;
    made.line = plain.line;
    made.row = plain.row;
    return made;
  }

  // Keeps an event of a CUDA graph capture: replays measure its values, and it is reported then.
  void keep(RunningCall& call, OwnedJob<EventJob> job) {
    std::lock_guard<std::mutex> guard(capturing_);
    if (!call.capture) {
      captures_.push_back(std::make_unique<Capture>());
      call.capture = captures_.back().get();
      call.capture->call = &call;
      call.capture->number = call.number;
      has_captures_.store(true, std::memory_order_release);
    }
    call.capture->events.push_back(std::move(job));
  }

  // How many replays measured the events of a graph. If the device failed, the last one did not come to an end,
  // but rows of earlier ones can be read.
  uint64_t replays_of(const Capture& capture, bool is_over) const {
    uint64_t most = 0, least = UINT64_MAX;
    for (const auto& captured : capture.events) {
      const uint64_t replays = reader_->replays(*captured);
      most = std::max(most, replays);
      if (replays) least = std::min(least, replays);
    }
    return is_over ? most : std::min(least, most);
  }

  // Whether a call has run a launch of a graph itself, and so not replayed it.
  bool has_run(const RunningCall& call, const Capture& capture) const {
    for (const auto& captured : capture.events) {
      const ProbedLaunch* const launch = captured->event.launch;
      if (!launch) continue;
      const std::size_t place = static_cast<std::size_t>(places_[std::size_t(launch->row->launch)]);
      if (call.before[place] || call.after[place]) return true;
    }
    return false;
  }

  // The first replay belongs to the call that captured the graph. Each other one belongs to the call that has
  // ended, unless that has run these launches itself: then it gets a call of its own, since no line of the
  // wrapper runs in a replay.
  void report_replay(Capture& capture, RunningCall* ended, bool is_last, bool is_over) {
    const uint64_t replays = replays_of(capture, is_over);
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
    const bool is_replayer = !call && ended && !has_run(*ended, capture);
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

  // The thread of a call needs it no more. Null if it is captured: it is written after the first replay.
  std::unique_ptr<RunningCall> leave(std::unique_ptr<RunningCall> call) {
    std::lock_guard<std::mutex> guard(capturing_);
    if (call->capture) call->capture->left = std::move(call);
    return call;
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
    for (std::size_t i = 0; i < event.items.size(); ++i) {
      if (event.items[i].label->name == name) return true;
    }
    return false;
  }

  static Event inputs_of(const RunningCall& call) {
    Event event;
    event.call = call.number;
    event.phase = "inputs";
    return event;
  }

  void check_inputs(RunningCall& call, Event& event, const Contents& contents) {
    for (Probe* probe : checkers_) {
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
    const Row* row = finding_launch_ ? finding_launch_->row : nullptr;
    const std::string kernel = row ? row->kernel : "";
    const std::string where = row ? "#" + std::to_string(row->launch) + " " + kernel : "the inputs";
    const std::string text = start(finding_call_) + " stopped at " + where + ": " + finding_text_ +
        " (--stop)\n";
    if (!finding_run_.empty()) write_stopped(finding_run_, row ? row->launch : -1, kernel, finding_name_);
    call.catch_up();
    // The process ends: its thread frees it no more.
    put(OwnedJob<Job>(new EndJob(*this, std::unique_ptr<RunningCall>(&call))));
    drain();
    end_process(text);
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

  // Calls `act` with each probe of a wrapper, its name, and when it acts.
  template <class Act>
  static void for_each_probe(const Options& options, Act&& act) {
    const std::string wanted = options.when;
    for (const std::string& name : split(options.probes, ",")) {
      auto probe = make_probe(name);
      if (!probe) continue;
      const bool checks = !std::strcmp(probe->when, "inputs");
      const bool fixed = checks || probe->spans || probe->marks || wanted.empty();
      const bool after = probe->of_results && options.args && !std::strcmp(options.args, "written");
      const std::string when = !fixed ? wanted : after && wanted.empty() ? "after" : probe->when;
      act(std::move(probe), name, when);
    }
  }

  void choose_probes() {
    for_each_probe(
        options_, [&](std::unique_ptr<Probe> probe, const std::string& name, const std::string& when) {
          if (probe->watch) {
            if (!memory_) memory_ = probe->watch(options_, *this);
            probes_.push_back(std::move(probe));
            return;
          }
          const bool checks = when == "inputs";
          if (checks) checkers_.push_back(probe.get());
          if (when == "before" || when == "both") before_.push_back(probe.get());
          if (when == "after" || when == "both") after_.push_back(probe.get());
          if (probe->values && !checks) readers_.push_back(probe.get());
          if (probe->values) reader_ = probe->values;
          if (probe->marks) marker_ = probe->make_mark();
          observes_ = observes_ || name != "names";
          probes_.push_back(std::move(probe));
        });
    if (!marker_) return;
    marks_alone_ = before_.empty();
    before_.push_back(marker_.get());  // the last thing before a launch
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

  static constexpr std::size_t most_text = 1 << 16;

  // A moment whose labels name the members of lists.
  struct Listed {
    Labels labels;
    Moment moment;
  };

  const Options& options_;
  const ForkMark mark_;
  Labels inputs_;
  std::vector<ProbedLaunch> launches_;
  std::vector<Moment> moments_;  // two for each launch, and one for the inputs
  std::mutex postponing_;
  std::vector<std::unique_ptr<RunningCall>> postponed_;
  std::mutex listing_;
  std::map<std::pair<const Moment*, std::string>, std::unique_ptr<Listed>> listed_;
  const Probes none_;
  const Moment unread_{nullptr, "inputs", nullptr, &none_, "", "", nullptr};
  const Calls wanted_;
  std::vector<int> places_;  // positions of launches in the table, by index
  std::vector<std::unique_ptr<Probe>> probes_;
  Probes before_, after_, readers_, checkers_;
  std::unique_ptr<Probe> marker_;  // marks the beginning of launches
  bool marks_alone_ = false;     // whether it is the only probe that acts before launches
  const Values* reader_ = nullptr;
  std::unique_ptr<MemoryWatch> memory_;  // if there are memory probes
  bool observes_ = false;  // whether any probe needs what was measured
  bool on_cpu_ = false;
  std::atomic<int64_t> number_{0};  // number of the next call
  std::atomic<bool> faulty_{false};
  // CUDA graph captures.
  std::mutex capturing_;
  std::vector<std::unique_ptr<Capture>> captures_;
  std::atomic<bool> has_captures_{false};
  // The NaN that ends the program.
  std::mutex finding_;
  std::atomic<bool> has_finding_{false};
  const ProbedLaunch* finding_launch_ = nullptr;
  std::string finding_name_, finding_text_, finding_run_;
  int64_t finding_call_ = 0;
  std::unique_ptr<DumpWriter> dump_;
  std::atomic<int> fork_{0};
  // Emitted and not flushed yet.
  std::string text_;
  CallDirectory* last_written_ = nullptr;
  Writer writer_;
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
