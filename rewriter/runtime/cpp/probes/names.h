// Prints the name of each launch, and flushes it before the launch runs: after a crash, the last
// one is the culprit.
#pragma once

#include "../device.h"
#include "../recorder.h"

namespace inductor_rewriter {

class Names : public Probe {
 public:
  void at(Event& event, RunningCall& call, Recorder& recorder) override {
    if (!event.launch) return;
    std::string text = call.start + line_text(event);
    if (recorder.upstream) text = std::string("[ ") + event.phase + "_launch: " + event.launch->row->kernel + " ]";
    text += '\n';
    recorder.write_now(text.data(), text.size());
    if (call.named) return;
    call.named = true;
    if (is_capturing()) {
      recorder.warn(
          event.about(),
          "names inside of a CUDA graph are printed when it is captured: "
          "its replays run no host code");
    }
  }
};

}  // namespace inductor_rewriter
