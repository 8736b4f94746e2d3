// Prints what a launch reads and writes: type, shape, statistics, counts of NaN and Inf.
#pragma once

#include "../formats/text.h"

namespace inductor_rewriter {

class Print : public Probe {
 public:
  void measured(Event& event, RunningCall& call, Recorder& recorder) override {
    if (recorder.quiet) return;
    std::string text;
    Shown shown(event, call, recorder);
    for (const Item& item : event.items) {
      if (shown.is_fresh(item)) text += value_text(event, item, recorder);
    }
    recorder.write(text);
  }
};

}  // namespace inductor_rewriter
