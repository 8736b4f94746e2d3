// Receives the calls that an instrumented wrapper makes, and hands them to the probes.
#pragma once

#include <pthread.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <algorithm>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device.h"
#include "dump.h"
#include "event.h"

namespace {
namespace inductor_rewriter {

class Recorder;
struct Running;

// Whatever needs the values themselves: values.h, which only probes that read them include.
struct Values {
  // Raises what keeps all of them from being read.
  virtual void read(
      Event& event, const Labels& labels, Contents& contents,
      Recorder& recorder) const = 0;
  virtual void measure(Event& event, bool statistics, bool heads, Recorder& recorder) const = 0;
  virtual void describe(Json& json, const Item& item) const = 0;
};

// What happens around a launch; see `Probe` in rewriter/runtime/probes/__init__.py.
class Probe {
 public:
  const char* when = "both";
  bool spans = false;
  const Values* values = nullptr;  // how it reads them, if it does
  bool measures = false;
  bool saves = false;

  virtual ~Probe() = default;
  virtual void at(Event&, Recorder&, Run*) {}
  virtual void measured(Event&, Recorder&) {}
  // The inputs of a call, before the wrapper looks at them; for what acts at "inputs".
  virtual void given(Event&, const Contents&, Recorder&) {}
  // Before anything is read: set `event.error` where the device is found to be faulty.
  virtual void check(Event&, Recorder&) {}
  // Last before the launch runs, and first after it was issued.
  virtual void start(Event&, Recorder&, Running&) {}
  virtual void stop(Event&, Recorder&, Running&) {}
};

// Made for the selected probes by rewriter/instrumentation/bundle.py; null for a name that is none of them.
inline std::unique_ptr<Probe> make_probe(const std::string& name);

inline int64_t clock_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000000000 + now.tv_nsec;
}

// One call of the wrapper: where it dumps, and how often each phase of each launch came.
struct Running {
  Running(Recorder& from, int64_t call) : recorder(from), number(call) {}
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  ~Running();
  void catch_up() {
    for (auto& act : later) act();
    later.clear();
  }

  Recorder& recorder;
  const int64_t number;  // of the call in this process, from 0
  std::unique_ptr<Run> run;
  std::vector<int> before, after;
  std::vector<Content> kept;  // for the line that comes next
  std::vector<std::function<void()>> later;  // for the end of the call; they do not throw
  int64_t started = clock_ns();
  // For the probe `time`: the launch that runs, and since when; events of the device.
  int64_t issued = -1;
  std::shared_ptr<void> mark, zero;
  double zero_us = 0;
  // What was last shown before a launch: which one, and what was found of each value, by name.
  const Launch* shown_launch = nullptr;
  int shown_iteration = 0;
  std::vector<std::pair<std::string, std::string>> shown;
};

class Recorder {
 public:
  explicit Recorder(const Wrapper& wrapper)
      : rank(read_rank()), upstream(!std::strcmp(wrapper.options.format, "upstream")),
        heads(wrapper.options.values), options_(wrapper.options), pid_(getpid()),
        inputs_(read_labels(wrapper.inputs)), launches_(wrapper.size) {
    bool on_device = false;
    for (std::size_t i = 0; i < wrapper.size; ++i) {
      const Row& row = wrapper.rows[i];
      launches_[i].row = &row;
      launches_[i].before = read_labels(row.before);
      launches_[i].after = read_labels(row.after);
      if (places_.size() <= std::size_t(row.launch)) places_.resize(row.launch + 1, -1);
      places_[row.launch] = static_cast<int>(i);
      on_device = on_device || is_device_kind(row.kind);
      on_cpu_ = on_cpu_ || !std::strcmp(row.kind, "cpp");
    }
    on_cpu_ = on_cpu_ && !on_device;
    choose_probes();
    const char* wanted = std::getenv("REWRITER_DUMP");
    const char* quiet = std::getenv("REWRITER_QUIET");
    const char* calls = std::getenv("REWRITER_CALLS");
    read_calls(calls && *calls ? calls : options_.calls ? options_.calls : "");
    quiet_ = quiet && *quiet && std::strcmp(quiet, "0");
    dumping_ = wanted && *wanted;
    for (auto& probe : probes_) dumping_ = dumping_ || probe->saves;
    if (dumping_) {
      const char* root = wanted && *wanted ? wanted : "rewriter_dump";
      dump_ = std::make_unique<Dump>(options_, root, rank);
    }
  }

  const int rank;
  const bool upstream;
  const bool heads;

  // Whether this probe is one of those of the wrapper.
  bool has(const char* probe) const {
    return (std::string(",") + options_.probes + ",").find(std::string(",") + probe + ",") !=
        std::string::npos;
  }

  const char* expected() const { return options_.expected ? options_.expected : ""; }

  // Write to standard output in one piece, flushed: what follows may crash.
  void write(const std::string& text) {
    if (text.empty() || quiet_) return;
    flockfile(stdout);
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
    funlockfile(stdout);
  }

  // Say something once to standard error, about the first launch that it befell.
  void warn(const std::string& about, const std::string& message) {
    std::lock_guard<std::mutex> guard(warning_);
    // Paths and numbers in a message make it no other message.
    std::string said, word;
    for (char letter : message + " ") {
      if (letter != ' ') {
        if (letter < '0' || letter > '9') word += letter;
        continue;
      }
      if (word.find('/') == std::string::npos) said += word + letter;
      word.clear();
    }
    for (const std::string& before : warned_) {
      if (before == said) return;
    }
    warned_.push_back(said);
    say(rank, about, message);
  }

  static void say(int rank, const std::string& about, const std::string& message) {
    say("[rewriter " + std::to_string(rank) + "] warning: " + about + ": " + message + "\n");
  }

  static void say(const std::string& line) {
    std::fwrite(line.data(), 1, line.size(), stderr);
  }

  // How a line starts: `[rewriter 0] forward call 3`. A wrapper that was instrumented alone has no
  // label, and its first call no number.
  std::string start(const Event& event) const {
    std::string text = "[rewriter " + std::to_string(rank) + "]", label = options_.label;
    if (!label.empty()) text += " " + label;
    if (label.empty() && !event.call.number) return text;
    return text + " call " + std::to_string(event.call.number);
  }

  // `[rewriter 0] #12 KERNEL`, for a line about a launch as a whole.
  std::string about(const Event& event) const {
    std::string text = start(event) + " " + event.about();
    if (!event.launch) return text;
    if (event.iteration) text += "." + std::to_string(event.iteration);
    return text + " " + event.launch->row->kernel;
  }

  // Whether events of a device can time a launch: by its kind, and those of the launches around.
  bool runs_on_gpu(const Event& event) const {
    return event.launch && std::strcmp(event.launch->row->kind, "cpp") && !on_cpu_;
  }

  // Add a row of its own about an event to the dump; `add` writes the rest of it.
  template <class Add>
  void note(Run* run, const Event& event, Add&& add) {
    if (!run) return;
    Json json(false);
    base(json, event);
    add(json);
    run->write(json.close('}').text + "\n");
  }

  // Whether this process loads data for the one that is probed: torch names its thread.
  static bool is_worker() {
    char name[16] = "";
    return !pthread_getname_np(pthread_self(), name, sizeof name) &&
        !std::strcmp(name, "pt_data_worker");
  }

  // A fork inherits the recorder, but is not the program that is probed.
  bool is_fork(const char* about, int launch = -1) {
    int pid = getpid();
    if (pid == pid_) return false;
    if (fork_.exchange(pid) != pid) {
      std::string where = launch < 0 ? about : "#" + std::to_string(launch);
      say(rank, where, "this process is a fork of the one that is probed, and is not");
    }
    return true;
  }

  // Null for a call that is not to be recorded.
  Running* begin() {
    const int64_t number = number_++;
    if (!is_wanted(number)) return nullptr;
    auto call = std::make_unique<Running>(*this, number);
    call->before.resize(launches_.size());
    call->after.resize(launches_.size());
    if (dump_) {
      act("dump", [&] { call->run = dump_->start(launches_, number); });
    }
    return call.release();
  }

  void end(Running& call) {
    call.catch_up();
    if (call.run) {
      act("dump", [&] { dump_->finish(std::move(call.run)); });
    }
  }

  void at_inputs(Running& call, Contents& contents) {
    Event event(call);
    event.phase = "inputs";
    if (faulty_) return;
    for (Probe* probe : checkers_) {
      act("inputs", [&] { probe->given(event, contents, *this); });
    }
    if (options_.reads_inputs && !readers_.empty()) {
      report(call, event, inputs_, contents, readers_);
    } else if (!checkers_.empty() && call.run) {
      const Values* reader = checkers_[0]->values;
      act("inputs", [&] { reader->read(event, inputs_, contents, *this); });
      act("inputs", [&] { call.run->write(lines(event, reader)); });
    }
    for (const auto& [name, found] : event.unexpected) {
      // What is no value has no row.
      if (!has_value(event, name)) note_unexpected(call, event, name, found);
    }
  }

  void at_launch(Running& call, int index, bool before, Contents& contents) {
    if (index < 0 || std::size_t(index) >= places_.size() || places_[index] < 0) return;
    if (faulty_) return;
    Event event(call);
    const Launch& launch = launches_[places_[index]];
    event.launch = &launch;
    event.phase = before ? "before" : "after";
    event.iteration = (before ? call.before : call.after)[places_[index]]++;
    const auto& probes = before ? before_ : after_;
    for (std::size_t i = before ? 0 : probes.size(); i-- > 0;) {
      act(event.about(), [&] { probes[i]->stop(event, *this, call); });
    }
    report(call, event, before ? launch.before : launch.after, contents, probes);
    if (!before || !event.error.empty()) return;
    for (Probe* probe : probes) {
      act(event.about(), [&] { probe->start(event, *this, call); });
    }
  }

  // Let one part act; its failure is not that of the others.
  template <class Act>
  void act(const std::string& about, Act&& act) {
    try {
      act();
    } catch (const std::exception& error) {
      warn(about, error.what());
    } catch (...) {
      warn(about, "unknown failure");
    }
  }

 private:
  using Probes = std::vector<Probe*>;

  void report(
      Running& call, Event& event, const Labels& labels, Contents& contents,
      const Probes& probes) {
    Run* run = call.run.get();
    // Names first: they have to be out before anything that could fail is touched.
    for (Probe* probe : probes) {
      if (!probe->values) act(event.about(), [&] { probe->at(event, *this, run); });
    }
    const Values* reader = nullptr;
    bool measures = run != nullptr;
    for (Probe* probe : probes) {
      if (probe->values) reader = probe->values;
      measures = measures || probe->measures;
    }
    if (reader) {
      act(event.about(), [&] { reader->read(event, labels, contents, *this); });
      for (Probe* probe : probes) {
        act(event.about(), [&] { probe->check(event, *this); });
      }
      if (!event.error.empty()) return stop(event, run);
      for (Probe* probe : probes) {
        if (probe->values) act(event.about(), [&] { probe->at(event, *this, run); });
      }
      reader->measure(event, measures, heads || upstream, *this);
    }
    for (Probe* probe : probes) {
      act(event.about(), [&] { probe->measured(event, *this); });
    }
    if (run) act(event.about(), [&] { run->write(lines(event, reader)); });
  }

  static bool has_value(const Event& event, const std::string& name) {
    for (std::size_t i = 0; i < event.items.size(); ++i) {
      if (event.items[i].label->name == name) return true;
    }
    return false;
  }

  void note_unexpected(
      Running& call, const Event& event, const std::string& name, const std::string& found) {
    act("inputs", [&] {
      note(call.run.get(), event, [&](Json& json) {
        json.key("arg").string(name).key("role").string("in").key("unexpected").string(found);
      });
    });
  }

  // The device is faulty: nothing can be read from it any more, so say it and be still.
  void stop(const Event& event, Run* run) {
    if (!event.launch) return;  // the first launch finds it, too
    faulty_ = true;
    act(event.about(), [&] {
      note(run, event, [&](Json& json) { json.key("error").string(event.error); });
    });
    const char* earlier = event.phase[0] == 'b' ? " (of something before this launch)" : "";
    say(about(event) + ": " + event.error + earlier + "\n");
  }

  // The start of a row.
  static void base(Json& json, const Event& event) {
    json.open('{');
    if (event.launch) {
      json.key("launch").number(static_cast<int64_t>(event.launch->row->launch));
    }
    json.key("phase").string(event.phase);
    if (event.launch) {
      json.key("kernel").string(event.launch->row->kernel);
      if (event.launch->row->repeats || event.iteration) {
        json.key("iteration").number(static_cast<int64_t>(event.iteration));
      }
    }
  }

  // An event as JSON: one line per value, or one line if no value was read.
  std::string lines(const Event& event, const Values* reader) {
    std::string text;
    for (std::size_t i = 0; i == 0 || i < event.items.size(); ++i) {
      Json json(false);
      base(json, event);
      if (reader && i < event.items.size()) {
        reader->describe(json, event.items[i]);
        for (const auto& [name, found] : event.unexpected) {
          if (name == event.items[i].label->name) json.key("unexpected").string(found);
        }
      }
      text += json.close('}').text + "\n";
    }
    return text;
  }

  void choose_probes() {
    std::string names = options_.probes, wanted = options_.when;
    for (std::size_t start = 0; start < names.size();) {
      std::size_t end = names.find(',', start);
      if (end == std::string::npos) end = names.size();
      if (auto probe = make_probe(names.substr(start, end - start))) {
        bool checks = !std::strcmp(probe->when, "inputs");
        bool fixed = checks || probe->spans || wanted.empty();
        std::string when = fixed ? probe->when : wanted;
        if (checks) checkers_.push_back(probe.get());
        if (when == "before" || when == "both") before_.push_back(probe.get());
        if (when == "after" || when == "both") after_.push_back(probe.get());
        if (probe->values && !checks) readers_.push_back(probe.get());
        probes_.push_back(std::move(probe));
      }
      start = end + 1;
    }
  }

  // `3-5,9,20-`, as `Calls` in rewriter/runtime/calls.py.
  void read_calls(const std::string& text) {
    if (text.empty()) return;
    for (std::size_t at = 0, end; at <= text.size(); at = end + 1) {
      end = std::min(text.find(',', at), text.size());
      std::string part = text.substr(at, end - at);
      part.erase(0, std::min(part.find_first_not_of(' '), part.size()));
      part.erase(part.find_last_not_of(' ') + 1);
      const char* digits = "0123456789";
      std::size_t dash = std::min(part.find_first_not_of(digits), part.size());
      std::string first = part.substr(0, dash), last = first;
      bool sound = dash > 0 && dash <= 15;
      if (dash < part.size()) {
        last = part.substr(dash + 1);
        sound = sound && part[dash] == '-' && last.size() <= 15 &&
            last.find_first_not_of(digits) == std::string::npos;
      }
      int64_t low = sound ? std::atoll(first.c_str()) : 0;
      int64_t high = last.empty() ? INT64_MAX : std::atoll(last.c_str());
      if (!sound || low > high) {
        throw std::runtime_error("'" + part + "' is no call or range of calls, such as 3-5");
      }
      wanted_.emplace_back(low, high);
    }
  }

  bool is_wanted(int64_t number) const {
    for (const auto& [low, high] : wanted_) {
      if (low <= number && number <= high) return true;
    }
    return wanted_.empty();
  }

  static int read_rank() {
    const char* text = std::getenv("RANK");
    if (!text || !*text) text = std::getenv("LOCAL_RANK");
    if (!text || !*text || std::strspn(text, "0123456789") != std::strlen(text)) return 0;
    return std::strlen(text) < 10 ? std::atoi(text) : 0;
  }

  const Options& options_;
  const int pid_;
  Labels inputs_;
  Fixed<Launch> launches_;
  std::vector<int> places_;  // of launches, by index
  std::vector<std::unique_ptr<Probe>> probes_;
  Probes before_, after_, readers_, checkers_;
  bool dumping_ = false;
  bool quiet_ = false;
  bool on_cpu_ = false;
  std::vector<std::pair<int64_t, int64_t>> wanted_;  // ranges of calls; empty: all of them
  std::atomic<int64_t> number_{0};  // of the next call
  std::atomic<bool> faulty_{false};
  std::unique_ptr<Dump> dump_;
  std::mutex warning_;
  std::vector<std::string> warned_;
  std::atomic<int> fork_{0};
};

inline Running::~Running() { recorder.end(*this); }

}  // namespace inductor_rewriter
}  // namespace
