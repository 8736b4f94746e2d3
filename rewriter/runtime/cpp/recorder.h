// Receives the calls that an instrumented wrapper makes, and hands them to the probes.
#pragma once

#include <pthread.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "calls.h"
#include "device.h"
#include "printer.h"
#include "probe.h"
#include "running_call.h"

namespace {
namespace inductor_rewriter {

class Recorder : public Printer {
 public:
  explicit Recorder(const Wrapper& wrapper)
      : Printer(wrapper.options), heads(wrapper.options.values), options_(wrapper.options),
        pid_(getpid()), inputs_(read_labels(wrapper.inputs)), launches_(wrapper.size),
        wanted_(wanted_calls(wrapper.options)) {
    bool on_device = false;
    for (std::size_t i = 0; i < wrapper.size; ++i) {
      const Row& row = wrapper.rows[i];
      launches_[i].row = &row;
      launches_[i].before = read_labels(row.before);
      launches_[i].after = read_labels(row.after);
      if (places_.size() <= std::size_t(row.launch)) places_.resize(row.launch + 1, -1);
      places_[row.launch] = static_cast<int>(i);
      on_device = on_device || is_gpu_kind(row.kind);
      on_cpu_ = on_cpu_ || !std::strcmp(row.kind, "cpp");
    }
    on_cpu_ = on_cpu_ && !on_device;
    choose_probes();
    const char* wanted = std::getenv("REWRITER_DUMP");
    dumping_ = wanted && *wanted;
    for (auto& probe : probes_) dumping_ = dumping_ || probe->saves;
    if (dumping_) {
      const char* root = wanted && *wanted ? wanted : "rewriter_dump";
      dump_ = std::make_unique<DumpWriter>(options_, root, rank);
    }
  }

  const bool heads;

  // Whether this probe is one of those of the wrapper.
  bool has(const char* probe) const {
    return (std::string(",") + options_.probes + ",").find(std::string(",") + probe + ",") !=
        std::string::npos;
  }

  const char* expected() const { return options_.expected ? options_.expected : ""; }
  const char* max_bytes() const { return options_.max_bytes; }

  // Whether events of a device can time a launch: by its kind, and those of the launches around.
  bool runs_on_gpu(const Event& event) const {
    return event.launch && std::strcmp(event.launch->row->kind, "cpp") && !on_cpu_;
  }

  // Act when the call is over, or so much is waiting that the device is waited for; `then` gets the
  // event, of which the values are gone by then.
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
      this->act(past.about(), [&] { then(past); });
    });
    if (call.later.size() >= most_later) call.catch_up();
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
  RunningCall* begin() {
    const int64_t number = number_++;
    if (!wanted_.contains(number)) return nullptr;
    auto call = std::make_unique<RunningCall>(*this, number);
    call->before.resize(launches_.size());
    call->after.resize(launches_.size());
    if (dump_) {
      act("dump", [&] { call->directory = dump_->start(launches_, number); });
    }
    return call.release();
  }

  void end(RunningCall& call) {
    call.catch_up();
    if (call.directory) {
      act("dump", [&] { dump_->finish(std::move(call.directory)); });
    }
  }

  void at_inputs(RunningCall& call, Contents& contents) {
    Event event;
    event.call = call.number;
    event.phase = "inputs";
    if (faulty_) return;
    for (Probe* probe : checkers_) {
      act("inputs", [&] { probe->given(event, contents, call, *this); });
    }
    if (options_.reads_inputs && !readers_.empty()) {
      report(call, event, inputs_, contents, readers_);
    } else if (!checkers_.empty() && call.directory) {
      const Values* reader = checkers_[0]->values;
      act("inputs", [&] { reader->read(event, inputs_, contents, *this); });
      act("inputs", [&] { call.directory->write(event_rows(event, reader)); });
    }
    for (const auto& [name, problem] : event.unexpected) {
      // What is no value has no row.
      if (!has_value(event, name)) note_unexpected(call, event, name, problem);
    }
  }

  void at_launch(RunningCall& call, int index, bool before, Contents& contents) {
    if (index < 0 || std::size_t(index) >= places_.size() || places_[index] < 0) return;
    if (faulty_) return;
    Event event;
    const ProbedLaunch& launch = launches_[places_[index]];
    event.call = call.number;
    event.launch = &launch;
    event.phase = before ? "before" : "after";
    event.iteration = (before ? call.before : call.after)[places_[index]]++;
    const auto& probes = before ? before_ : after_;
    for (std::size_t i = before ? 0 : probes.size(); i-- > 0;) {
      act(event.about(), [&] { probes[i]->stop(event, call, *this); });
    }
    report(call, event, before ? launch.before : launch.after, contents, probes);
    if (!before || !event.error.empty()) return;
    for (Probe* probe : probes) {
      act(event.about(), [&] { probe->start(event, call, *this); });
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
  static constexpr std::size_t most_later = 4096;  // pairs of events that wait to be read

  void report(
      RunningCall& call, Event& event, const Labels& labels, Contents& contents,
      const Probes& probes) {
    // Names first: they have to be out before anything that could fail is touched.
    for (Probe* probe : probes) {
      if (!probe->values) act(event.about(), [&] { probe->at(event, call, *this); });
    }
    const Values* reader = nullptr;
    bool measures = call.directory != nullptr;
    for (Probe* probe : probes) {
      if (probe->values) reader = probe->values;
      measures = measures || probe->measures;
    }
    if (reader) {
      act(event.about(), [&] { reader->read(event, labels, contents, *this); });
      for (Probe* probe : probes) {
        act(event.about(), [&] { probe->check(event, call, *this); });
      }
      if (!event.error.empty()) return stop(event, call);
      for (Probe* probe : probes) {
        if (probe->values) act(event.about(), [&] { probe->at(event, call, *this); });
      }
      reader->measure(event, measures, heads || upstream, *this);
    }
    for (Probe* probe : probes) {
      act(event.about(), [&] { probe->measured(event, call, *this); });
    }
    if (call.directory) {
      act(event.about(), [&] { call.directory->write(event_rows(event, reader)); });
    }
  }

  static bool has_value(const Event& event, const std::string& name) {
    for (std::size_t i = 0; i < event.items.size(); ++i) {
      if (event.items[i].label->name == name) return true;
    }
    return false;
  }

  void note_unexpected(
      RunningCall& call, const Event& event, const std::string& name, const std::string& problem) {
    act("inputs", [&] {
      call.note(event, [&](Json& json) {
        json.key("arg").string(name).key("role").string("in").key("unexpected").string(problem);
      });
    });
  }

  // The device is faulty: nothing can be read from it any more, so report it and stop.
  void stop(const Event& event, RunningCall& call) {
    if (!event.launch) return;  // the first launch meets it, too
    faulty_ = true;
    act(event.about(), [&] {
      call.note(event, [&](Json& json) { json.key("error").string(event.error); });
    });
    const char* earlier = event.phase[0] == 'b' ? " (of something before this launch)" : "";
    say(about(event) + ": " + event.error + earlier + "\n");
  }

  void choose_probes() {
    std::string names = options_.probes, wanted = options_.when;
    for (std::size_t start = 0; start < names.size();) {
      std::size_t end = names.find(',', start);
      if (end == std::string::npos) end = names.size();
      if (auto probe = make_probe(names.substr(start, end - start))) {
        bool checks = !std::strcmp(probe->when, "inputs");
        bool fixed = checks || probe->spans || wanted.empty();
        const bool after = probe->of_results && options_.args && !std::strcmp(options_.args, "written");
        std::string when = !fixed ? wanted : after && wanted.empty() ? "after" : probe->when;
        if (checks) checkers_.push_back(probe.get());
        if (when == "before" || when == "both") before_.push_back(probe.get());
        if (when == "after" || when == "both") after_.push_back(probe.get());
        if (probe->values && !checks) readers_.push_back(probe.get());
        probes_.push_back(std::move(probe));
      }
      start = end + 1;
    }
  }

  static Calls wanted_calls(const Options& options) {
    const char* calls = std::getenv("REWRITER_CALLS");
    return Calls(calls && *calls ? calls : options.calls ? options.calls : "");
  }

  const Options& options_;
  const int pid_;
  Labels inputs_;
  Fixed<ProbedLaunch> launches_;
  const Calls wanted_;
  std::vector<int> places_;  // of launches, by index
  std::vector<std::unique_ptr<Probe>> probes_;
  Probes before_, after_, readers_, checkers_;
  bool dumping_ = false;
  bool on_cpu_ = false;
  std::atomic<int64_t> number_{0};  // of the next call
  std::atomic<bool> faulty_{false};
  std::unique_ptr<DumpWriter> dump_;
  std::atomic<int> fork_{0};
};

inline RunningCall::~RunningCall() { recorder.end(*this); }

}  // namespace inductor_rewriter
}  // namespace
