// The events of CUDA graphs, which each replay measures again.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "moments.h"
#include "probe.h"
#include "running_call.h"

namespace inductor_rewriter {

// The events of one graph, in order. `call` is the call that captured it, until that is written, and `left`
// the same once its thread needs it no more. `seen` counts the replays that were reported.
struct Capture {
  RunningCall* call = nullptr;
  std::unique_ptr<RunningCall> left;
  std::vector<OwnedJob<EventJob>> events;
  uint64_t seen = 0;

  // Whether a call has run a launch of the graph itself, and so not replayed it.
  bool was_run_by(const RunningCall& other, const Moments& moments) const {
    return std::any_of(events.begin(), events.end(), [&](const OwnedJob<EventJob>& one) {
      if (!one->event.launch) return false;
      const auto place = static_cast<std::size_t>(moments.place_of(one->event.launch->row->launch));
      return other.before[place] || other.after[place];
    });
  }
};

class Captures {
 public:
  // Whether a graph measures, which then needs what it was made of as long as it lives.
  bool has_any() const { return has_any_.load(std::memory_order_acquire); }

  // Keeps an event: it is reported when a replay has measured its values.
  void keep(RunningCall& call, OwnedJob<EventJob> job) {
    std::lock_guard<std::mutex> guard(lock_);
    if (!call.capture) {
      all_.push_back(std::make_unique<Capture>());
      call.capture = all_.back().get();
      call.capture->call = &call;
      has_any_.store(true, std::memory_order_release);
    }
    call.capture->events.push_back(std::move(job));
  }

  // The thread of a call needs it no more. Null if it is captured: it is written after the first replay.
  std::unique_ptr<RunningCall> leave(std::unique_ptr<RunningCall> call) {
    std::lock_guard<std::mutex> guard(lock_);
    if (call->capture) call->capture->left = std::move(call);
    return call;
  }

  // Waits for the replays that were issued, and calls `act` with each graph and how many measured it so far.
  template <class Act>
  void each(Act&& act) {
    std::lock_guard<std::mutex> guard(lock_);
    const bool is_over = !wait_for_device();
    for (auto& capture : all_) act(*capture, replays_of(*capture, is_over));
  }

 private:
  // If the device failed, the last replay did not come to an end, but rows of earlier ones can be read.
  uint64_t replays_of(const Capture& capture, bool is_over) const {
    uint64_t most = 0, least = UINT64_MAX;
    for (const auto& captured : capture.events) {
      const uint64_t replays = captured->replays();
      most = std::max(most, replays);
      if (replays) least = std::min(least, replays);
    }
    return is_over ? most : std::min(least, most);
  }

  std::mutex lock_;
  std::vector<std::unique_ptr<Capture>> all_;
  std::atomic<bool> has_any_{false};
};

}  // namespace inductor_rewriter
