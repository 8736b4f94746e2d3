// Measures launches: on a GPU between two events on the stream, elsewhere by the clock.
#pragma once

#include <cmath>
#include <cstdio>
#include <memory>

#include "../device.h"
#include "../recorder.h"

namespace {
namespace inductor_rewriter {

class Time : public Probe {
 public:
  Time() { spans = true; }

  void start(Event& event, Recorder& recorder, Running& call) override {
    call.mark = nullptr;
    call.issued = -1;
    if (is_capturing()) {
      recorder.warn(
          event.about(), "launches cannot be timed while a CUDA graph is being captured");
      return;
    }
    if (recorder.runs_on_gpu(event)) call.mark = record();
    call.issued = clock_ns();
  }

  void stop(Event& event, Recorder& recorder, Running& call) override {
    int64_t now = clock_ns();
    if (call.issued < 0) return;
    double issued = double(call.issued - call.started) / 1000;
    Mark mark = std::move(call.mark), stopped = mark ? record() : nullptr;
    if (!stopped) {
      report(event, recorder, call.run.get(), issued, double(now - call.issued) / 1000, "host");
      return;
    }
    // Events tell only how far apart they are.
    if (!call.zero) {
      call.zero = mark;
      call.zero_us = issued;
    }
    // The event itself is over by then.
    const Launch* launch = event.launch;
    const char* phase = event.phase;
    int iteration = event.iteration;
    call.later.push_back([=, &recorder, &call] {
      Event about(call);
      about.launch = launch;
      about.phase = phase;
      about.iteration = iteration;
      recorder.act(about.about(), [&] { read(about, recorder, call, mark.get(), stopped.get()); });
    });
    if (call.later.size() >= most) call.catch_up();
  }

 private:
  using Mark = std::shared_ptr<void>;  // an event of the device
  static constexpr std::size_t most = 4096;  // pairs of them that wait to be read

  static Mark record() {
    static const auto create = find_driver<int (*)(void**, unsigned)>("cuEventCreate");
    static const auto issue = find_driver<int (*)(void*, void*)>("cuEventRecord");
    static const auto destroy = find_driver<int (*)(void*)>("cuEventDestroy_v2");
    void *event = nullptr, *stream = nullptr;
    if (!create || !issue || !destroy || !has_device() || !current_stream(&stream)) return nullptr;
    if (create(&event, 0)) return nullptr;
    Mark mark(event, [](void* made) { destroy(made); });
    return issue(event, stream) ? nullptr : mark;
  }

  static void read(Event& event, Recorder& recorder, Running& call, void* mark, void* stopped) {
    static const auto wait = find_driver<int (*)(void*)>("cuEventSynchronize");
    static const auto between =
        find_driver<int (*)(float*, void*, void*)>("cuEventElapsedTime");
    float start = 0, duration = 0;
    if (!wait || !between || wait(stopped)) return;
    if (between(&start, call.zero.get(), mark) || between(&duration, mark, stopped)) return;
    double from = call.zero_us + double(start) * 1000;
    report(event, recorder, call.run.get(), from, double(duration) * 1000, "cuda");
  }

  static double rounded(double value) { return std::round(value * 1000) / 1000; }

  static void report(
      const Event& event, Recorder& recorder, Run* run, double start, double duration,
      const char* clock) {
    recorder.note(run, event, [&](Json& json) {
      json.key("time").open('{').key("start_us").number(rounded(start));
      json.key("duration_us").number(rounded(duration)).key("clock").string(clock).close('}');
    });
    char text[64];
    std::snprintf(text, sizeof text, "  %.1f us\n", duration);
    recorder.write(recorder.about(event) + text);
  }
};

}  // namespace inductor_rewriter
}  // namespace
