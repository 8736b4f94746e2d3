// Which values of an event are shown.
#pragma once

#include "recorder.h"

namespace inductor_rewriter {

// An input is shown before a launch, and again after it only if it changed: something wrote out of
// bounds, or the wrapper does not declare that the launch writes it.
class Shown {
 public:
  Shown(const Event& event, RunningCall& call, const Recorder& recorder)
      : all_(recorder.upstream), before_(event.phase[0] == 'b'), after_(event.phase[0] == 'a'),
        call_(call) {
    if (before_) {
      call_.shown_launch = event.launch;
      call_.shown_iteration = event.iteration;
      call_.shown.clear();
    }
    after_ = after_ && call_.shown_launch == event.launch &&
        call_.shown_iteration == event.iteration;
  }

  bool is_fresh(const Item& item) {
    if (all_) return true;
    if (before_) call_.shown.emplace_back(item.label->name, item.facts());
    if (!after_ || item.label->role != "in") return true;
    for (const auto& [name, facts] : call_.shown) {
      if (name == item.label->name) return facts != item.facts();
    }
    return true;
  }

 private:
  const bool all_, before_;
  bool after_;
  RunningCall& call_;
};

}  // namespace inductor_rewriter
