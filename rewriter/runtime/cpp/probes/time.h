// Times launches: on a GPU by two events on the stream, elsewhere by the clock.
#pragma once

#include <cmath>
#include <cstdio>
#include <memory>

#include "../device.h"
#include "../engine/driver.h"
#include "../recorder.h"

namespace inductor_rewriter {

class Time : public Probe {
 public:
  void start(Event& event, RunningCall& call, Recorder& recorder) override {
    Clocks& clocks = call.state<Clocks>(this);
    clocks.mark = nullptr;
    clocks.issued = -1;
    if (is_capturing()) {
      recorder.warn(event.about(), "launches cannot be timed while a CUDA graph is being captured");
      return;
    }
    if (recorder.runs_on_gpu(event)) clocks.mark = record();
    clocks.issued = clock_ns();
  }

  void stop(Event& event, RunningCall& call, Recorder& recorder) override {
    int64_t now = clock_ns();
    Clocks& clocks = call.state<Clocks>(this);
    if (clocks.issued < 0) return;
    double issued = double(clocks.issued - call.started) / 1000;
    Mark mark = std::move(clocks.mark), stopped = mark ? record() : nullptr;
    if (!stopped) {
      report(event, recorder, call, issued, double(now - clocks.issued) / 1000, "host");
      return;
    }
    // Events only have the time between two of them.
    if (!clocks.zero) {
      clocks.zero = mark;
      clocks.zero_us = issued;
    }
    recorder.later(event, call, [=, &recorder, &call, &clocks](Event& past) {
      read(past, recorder, call, clocks, mark.get(), stopped.get());
    });
  }

 private:
  using Mark = std::shared_ptr<void>;  // the device event

  // State of a call: when the running launch was issued, and the first event of the call.
  struct Clocks {
    int64_t issued = -1;
    Mark mark, zero;
    double zero_us = 0;
  };

  static Mark record() {
    static int (*const create)(void**, unsigned) = find_driver("cuEventCreate");
    static int (*const issue)(void*, void*) = find_driver("cuEventRecord");
    static int (*const destroy)(void*) = find_driver("cuEventDestroy_v2");
    void *event = nullptr, *stream = nullptr;
    if (!create || !issue || !destroy || !has_device() || !current_stream(&stream)) return nullptr;
    if (create(&event, 0)) return nullptr;
    Mark mark(event, [](void* made) { destroy(made); });
    return issue(event, stream) ? nullptr : mark;
  }

  static void read(
      Event& event, Recorder& recorder, RunningCall& call, const Clocks& clocks, void* mark, void* stopped) {
    static int (*const wait)(void*) = find_driver("cuEventSynchronize");
    static int (*const between)(float*, void*, void*) = find_driver("cuEventElapsedTime");
    float start = 0, duration = 0;
    const Relaxed relaxed;
    if (!wait || !between || wait(stopped)) return;
    if (between(&start, clocks.zero.get(), mark) || between(&duration, mark, stopped)) return;
    double from = clocks.zero_us + double(start) * 1000;
    report(event, recorder, call, from, double(duration) * 1000, "cuda");
  }

  static double rounded(double value) { return std::round(value * 1000) / 1000; }

  static void report(
      const Event& event, Recorder& recorder, RunningCall& call, double start, double duration, const char* clock) {
    recorder.note(call, event, [&](Json& json) {
      json.key("time").open('{').key("start_us").number(rounded(start));
      json.key("duration_us").number(rounded(duration)).key("clock").string(clock).close('}');
    });
    char text[64];
    std::snprintf(text, sizeof text, "  %.1f us\n", duration);
    recorder.write(recorder.about(event) + text);
  }
};

}  // namespace inductor_rewriter
