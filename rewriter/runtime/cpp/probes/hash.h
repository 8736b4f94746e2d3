// Tells tensors apart by a fingerprint of their elements: rewriter/runtime/cpp/engine/fingerprint.h.
#pragma once

#include "../formats/text.h"

namespace inductor_rewriter {

class Hash : public Probe {
 public:
  void measured(Event& event, RunningCall& call, Recorder& recorder) override {
    // With the probe print, fingerprints are at the end of its lines.
    if (recorder.quiet || recorder.has("print") || event.captured) return;
    std::string text;
    Shown shown(event, call, recorder);
    for (const Item& item : event.items) {
      if (item.is_tensor() && shown.is_fresh(item)) text += digest_text(event, item, recorder);
    }
    recorder.write(text);
  }
};

}  // namespace inductor_rewriter
