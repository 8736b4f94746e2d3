// Dormant probes: they do nothing until the file that REWRITER_CONTROL names switches them on. Each request
// gets a recorder of its own with the launches and probes that it selects.
#pragma once

#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <exception>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "control.h"
#include "recorder.h"

namespace inductor_rewriter {

class Dormant;

// What one request has switched on in one wrapper. Deleted once another request has replaced it and its last
// call has ended.
struct Session {
  Session(Dormant& dormant, const Wrapper& of, const Control& request)
      : of(dormant), control(request), probes(chosen(of.options, request)),
        wrapper(options_of(of, probes, control), rows_of(of, probes, control), of.inputs), recorder(wrapper) {}

  Dormant& of;
  const Control control;
  const std::string probes;
  const Wrapper wrapper;
  Recorder recorder;
  int64_t seen = 0, recorded = 0;
  int running = 0;  // calls
  bool is_done = false;

  // The requested probes, in the order of the wrapper's. Throws if it lacks one.
  static std::string chosen(const Options& options, const Control& control) {
    std::set<std::string> wanted(control.probes.begin(), control.probes.end());
    const Texts all = split(options.probes, ",");
    Texts result;
    for (const std::string& name : all) {
      if (wanted.erase(name)) result.push_back(name);
    }
    if (!wanted.empty()) {
      throw std::runtime_error("this wrapper has no probe '" + *wanted.begin() + "', but " + join(all, ", "));
    }
    return join(result, ",");
  }

 private:
  static Options options_of(const Wrapper& of, const std::string& probes, const Control& control) {
    Options options = of.options;
    options.probes = probes.c_str();
    options.dump = control.dump.c_str();
    options.quiet = control.quiet;
    if (control.keep) options.last = static_cast<int>(std::min<int64_t>(control.keep, INT_MAX));
    if (!control.max_bytes.empty()) options.max_bytes = control.max_bytes.c_str();
    return options;
  }

  static std::vector<Row> rows_of(const Wrapper& of, const std::string& probes, const Control& control) {
    const ChosenProbes chosen(options_of(of, probes, control));
    std::vector<Row> result;
    for (std::size_t i = 0; i < of.rows.size(); ++i) {
      Row row = of.rows[i];
      if (!control.has_launch(row.launch, row.kernel)) continue;
      if (chosen.before.empty() && !chosen.marker) row.before = nullptr;
      if (chosen.after.empty()) row.after = nullptr;
      // The line behind the next launch is to have measured what waits.
      const Row* next = i + 1 < of.rows.size() ? &of.rows[i + 1] : nullptr;
      row.together = row.together && next && control.has_launch(next->launch, next->kernel);
      result.push_back(row);
    }
    return result;
  }
};

class Dormant {
 public:
  explicit Dormant(const Wrapper& wrapper) : wrapper_(wrapper) {}

  std::unique_ptr<RunningCall> begin() {
    const int64_t number = number_.fetch_add(1, std::memory_order_relaxed);
    if (path_.empty()) return nullptr;
    const bool is_off = !on_.load(std::memory_order_acquire);
    // Accurate to a few milliseconds, and three times as fast as the other one.
    const int64_t now = clock_ns(CLOCK_MONOTONIC_COARSE);
    const bool is_due = now >= next_.load(std::memory_order_relaxed);
    if (is_off && !is_due) return nullptr;
    if (is_due) {
      next_.store(now + pause, std::memory_order_relaxed);
      if (is_off && look() == stamp_.load(std::memory_order_acquire)) return nullptr;
    }
    // Data loader workers are not probed. Checked last, since it costs a system call.
    return Recorder::is_worker() ? nullptr : begin_slowly(number, is_due);
  }

  // Ends a recorded call; its rows are written or queued.
  void end(Session& session) {
    Ended ended;
    State& now = state();
    const std::lock_guard<std::mutex> guard(now.lock);
    if (--session.running || !session.is_done) return;
    const auto own = std::find_if(
        now.ending.begin(), now.ending.end(), [&](const auto& one) { return one.get() == &session; });
    ended.sessions.push_back(std::move(*own));
    now.ending.erase(own);
  }

 private:
  // Identifies the version of the control file; 0 if there is none.
  uint64_t look() const {
    struct stat about;
    uint64_t stamp = 0;
    if (stat(path_.c_str(), &about)) return stamp;
    for (uint64_t fact : {uint64_t(about.st_ino), uint64_t(about.st_mtim.tv_sec),
                          uint64_t(about.st_mtim.tv_nsec), uint64_t(about.st_size)}) {
      stamp = (stamp ^ fact) * 0x9e3779b97f4a7c15u + 1;
    }
    return stamp;
  }

  // What is switched on in this process. A forked process is switched on separately: it can use neither the recorder
  // that it inherited, nor the lock, which a thread may have held that it does not have.
  struct State {
    const ForkMark mark;
    std::mutex lock;
    std::unique_ptr<Session> session;
    std::vector<std::unique_ptr<Session>> ending;  // of which calls are still running
    uint64_t stamp = 0;  // of the file that was read last
  };
  State& state() {
    State* known = state_.load(std::memory_order_acquire);
    if (!known->mark.is_fork()) return *known;
    auto made = std::make_unique<State>();
    return state_.compare_exchange_strong(known, made.get()) ? *made.release() : *known;
  }

  // Sessions without running calls. The destructor waits for their rows and deletes them, so declare this
  // before the lock guard: others should not wait for that.
  struct Ended {
    ~Ended() {
      for (std::unique_ptr<Session>& session : sessions) {
        session->recorder.retire();
        // A CUDA graph measures for it as long as the graph lives.
        if (session->recorder.has_captures()) static_cast<void>(session.release());
      }
    }
    std::vector<std::unique_ptr<Session>> sessions;
  };

  std::unique_ptr<RunningCall> begin_slowly(int64_t number, bool is_due) {
    Ended ended;
    State& now = state();
    const std::lock_guard<std::mutex> guard(now.lock);
    // Another thread may have seen a newer version.
    const uint64_t stamp = is_due ? look() : now.stamp;
    if (stamp != now.stamp) {
      now.stamp = stamp_ = stamp;
      switch_to(stamp != 0, ended);
    }
    std::unique_ptr<RunningCall> call;
    if (now.session && now.session->control.is_over()) {
      close(ended);
    } else if (now.session && now.session->seen++ % now.session->control.every == 0) {
      Session& session = *now.session;
      call = session.recorder.start_call(number);
      call->session = &session;
      ++session.running;
      ++session.recorded;
      if (session.recorded == session.control.calls) close(ended);
      else if (session.recorded <= few || clock_ns() - told_ > often) tell(session);
    }
    on_ = now.session != nullptr;
    return call;
  }

  void switch_to(bool is_there, Ended& ended) {
    if (!is_there) {
      request_.clear();
      return close(ended);
    }
    Control control;
    std::unique_ptr<Session> session;
    try {
      control = read_control_file(path_.c_str());
      if (control.id == request_) return;
      Session::chosen(wrapper_.options, control);
      const bool is_meant = !control.probes.empty() && !control.is_over() && control.has_rank(read_rank());
      if (is_meant) session = std::make_unique<Session>(*this, wrapper_, control);
    } catch (const std::exception& problem) {
      const std::string text = path_ + ": " + problem.what() + "; nothing was switched";
      if (said_.insert(text).second) Printer::say(read_rank(), "control", text);
      return;
    }
    request_ = control.id;
    close(ended);
    if (session) tell(*session);
    else tell(control.id, "");
    state().session = std::move(session);
  }

  void close(Ended& ended) {
    State& now = state();
    if (!now.session) return;
    now.session->is_done = true;
    tell(*now.session);
    (now.session->running ? now.ending : ended.sessions).push_back(std::move(now.session));
  }

  void tell(const Session& session) {
    told_ = clock_ns();
    recorded_ = session.recorded;
    tell(session.control.id, session.is_done ? "" : session.probes);
  }

  void tell(const std::string& id, const std::string& on) const {
    const char* label = wrapper_.options.label;
    tell_control(path_.c_str(), name_, [&](Json& json) {
      json.key("rank").number(read_rank());
      json.key("wrapper").string(label && *label ? label : wrapper_.options.artifact);
      json.key("id").string(id).key("on").list(on.c_str(), ",");
      json.key("recorded").number(recorded_);
    });
  }

  static constexpr int64_t pause = 50000000;   // nanoseconds between checks of the file
  static constexpr int64_t often = 500000000;  // nanoseconds between reports of how many calls were recorded
  static constexpr int64_t few = 16;

  const Wrapper& wrapper_;
  const std::string path_ = environment("REWRITER_CONTROL");
  const std::string name_ = std::to_string(reinterpret_cast<uintptr_t>(&wrapper_));
  std::string request_;  // the last one that counted
  std::atomic<int64_t> number_{0};
  std::atomic<uint64_t> stamp_{0};
  std::atomic<bool> on_{false};
  std::atomic<int64_t> next_{0};  // when the file is looked at again
  std::atomic<State*> state_{new State};
  std::set<std::string> said_;
  int64_t told_ = 0, recorded_ = 0;
};

}  // namespace inductor_rewriter
