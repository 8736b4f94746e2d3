// One call of a wrapper while it runs: where it dumps, and what waits for its end.
#pragma once

#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dump.h"
#include "event.h"
#include "rows.h"

namespace {
namespace inductor_rewriter {

inline int64_t clock_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000000000 + now.tv_nsec;
}

struct RunningCall {
  RunningCall(Recorder& from, int64_t call) : recorder(from), number(call) {}
  RunningCall(const RunningCall&) = delete;
  RunningCall& operator=(const RunningCall&) = delete;
  ~RunningCall();

  void catch_up() {
    for (auto& act : later) act();
    later.clear();
  }

  // Add a row of its own about an event to the dump, if one is written; `add` writes the rest.
  template <class Add>
  void note(const Event& event, Add&& add) {
    if (!directory) return;
    Json json(false);
    open_row(json, event);
    add(json);
    directory->write(json.close('}').text + "\n");
  }

  // What a probe keeps for as long as the call runs.
  template <class State>
  State& state(const Probe* of) {
    for (auto& [probe, kept] : states) {
      if (probe == of) return *static_cast<State*>(kept.get());
    }
    states.emplace_back(of, std::make_shared<State>());
    return *static_cast<State*>(states.back().second.get());
  }

  Recorder& recorder;
  const int64_t number;  // of the call in this process, from 0
  std::unique_ptr<CallDirectory> directory;
  std::vector<int> before, after;  // how often each phase of each launch came
  std::vector<Content> kept;  // for the line that comes next
  std::vector<std::function<void()>> later;  // for the end of the call; they do not throw
  std::vector<std::pair<const Probe*, std::shared_ptr<void>>> states;
  int64_t started = clock_ns();
  // What was last shown before a launch: which one, and the facts of each value, by name.
  const ProbedLaunch* shown_launch = nullptr;
  int shown_iteration = 0;
  std::vector<std::pair<std::string, std::string>> shown;
};

}  // namespace inductor_rewriter
}  // namespace
