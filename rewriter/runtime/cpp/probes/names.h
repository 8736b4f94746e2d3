// Says which launch comes next, flushed before it runs: the last name printed is the culprit.
#pragma once

#include "../device.h"
#include "../line.h"
#include "../recorder.h"

namespace {
namespace inductor_rewriter {

class Names : public Probe {
 public:
  void at(Event& event, RunningCall&, Recorder& recorder) override {
    if (!event.launch) return;
    if (recorder.upstream) {
      std::string phase = event.phase;
      recorder.write("[ " + phase + "_launch: " + event.launch->row->kernel + " ]\n");
    } else {
      recorder.write(line_start(event, recorder) + "\n");
    }
    if (is_capturing()) {
      recorder.warn(
          event.about(),
          "names inside of a CUDA graph are printed when it is captured: "
          "its replays run no host code");
    }
  }
};

}  // namespace inductor_rewriter
}  // namespace
