// A call of a wrapper, while it runs and until it is written: where it dumps, and what waits for
// its end.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "dump.h"
#include "engine/process.h"
#include "event.h"
#include "probe.h"

namespace inductor_rewriter {

struct Session;
struct Capture;

struct RunningCall {
  RunningCall(Recorder& from, int64_t call) : recorder(from), number(call) {}

  void catch_up() {
    for (auto& act : later) act();
    later.clear();
  }

  template <class State>
  State& state(const Probe* of) {
    std::lock_guard<std::mutex> guard(keeping_);
    for (auto& [probe, kept] : states_) {
      if (probe == of) return *static_cast<State*>(kept.get());
    }
    states_.emplace_back(of, std::make_shared<State>());
    return *static_cast<State*>(states_.back().second.get());
  }

  Recorder& recorder;
  const int64_t number;  // number of the call in this process, from 0
  std::string start;     // the beginning of its printed lines
  std::unique_ptr<CallDirectory> directory;
  std::vector<int> before, after;  // how often each phase of each launch was reached
  Contents contents;  // memory for the current line, and the views in it
  Contents kept;
  const Pick* picks = nullptr;  // those of the wrapper
  std::vector<std::function<void()>> later;  // run at the end of the call; do not throw
  int64_t started = clock_ns();
  bool named = false;  // whether a name was printed
  bool is_behind = false;  // whether another thread writes it
  Session* session = nullptr;  // set if probes are dormant
  Capture* capture = nullptr;  // set if it is captured into a CUDA graph
  bool is_wanted = true;  // otherwise only what is captured in it is measured: another call may replay that
  // The last launch whose values were shown before it, and their facts by name.
  const ProbedLaunch* shown_launch = nullptr;
  int shown_iteration = 0;
  std::vector<std::pair<std::string, std::string>> shown;

 private:
  std::mutex keeping_;
  std::vector<std::pair<const Probe*, std::shared_ptr<void>>> states_;
};

}  // namespace inductor_rewriter
