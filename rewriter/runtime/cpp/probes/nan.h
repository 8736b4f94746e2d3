// Counts elements that are not finite, and half-precision numbers near their limit; prints tensors
// that have any.
#pragma once

#include "../formats/text.h"

namespace inductor_rewriter {

class Nan : public Probe {
 public:
  void measured(Event& event, RunningCall& call, Recorder& recorder) override {
    const bool prints = !recorder.has("print");  // print shows it for all values
    std::string text;
    Shown shown(event, call, recorder);
    const Item* found = nullptr;
    for (const Item& item : event.items) {
      if (!item.is_tensor() || !item.has_statistics()) continue;
      const bool is_fresh = shown.is_fresh(item);
      if (recorder.allows(event, item)) continue;
      if (prints && is_fresh) text += health_text(event, item, recorder);
      if (item.measurement.nan && !found) found = &item;
    }
    recorder.write(text);
    if (found) recorder.found(event, call, *found);
  }
};

}  // namespace inductor_rewriter
