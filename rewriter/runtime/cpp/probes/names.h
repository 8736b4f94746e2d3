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
    char room[256];
    const std::string& line = *event.line;
    const std::size_t size = call.start.size() + line.size() + 1;
    if (recorder.upstream) {
      std::string phase = event.phase;
      write("[ " + phase + "_launch: " + event.launch->row->kernel + " ]\n", recorder);
    } else if (event.iteration || size > sizeof room) {
      write(recorder.line(event) + "\n", recorder);
    } else {
      std::memcpy(room, call.start.data(), call.start.size());
      std::memcpy(room + call.start.size(), line.data(), line.size());
      room[size - 1] = '\n';
      recorder.write_now(room, size);
    }
    if (call.named) return;
    call.named = true;
    if (is_capturing()) {
      recorder.warn(
          event.about(),
          "names inside of a CUDA graph are printed when it is captured: "
          "its replays run no host code");
    }
  }

 private:
  static void write(const std::string& text, Recorder& recorder) {
    recorder.write_now(text.data(), text.size());
  }
};

}  // namespace inductor_rewriter
