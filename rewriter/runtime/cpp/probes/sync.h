// Waits for the device around each launch, so that a fault shows at the launch that made it.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "../device.h"
#include "../engine/graph_marks.h"
#include "../engine/driver.h"
#include "../recorder.h"

namespace inductor_rewriter {

// The CUDA driver. Its memory writes can be captured, and need no device memory.
class MarkingDevice : public GraphMarks::Device {
 public:
  bool enroll(void* memory, std::size_t bytes) override {
    constexpr unsigned mapped_portable = 3;
    static int (*const enroll)(void*, std::size_t, unsigned) = find_driver("cuMemHostRegister_v2");
    static int (*const address)(uint64_t*, void*, unsigned) = find_driver("cuMemHostGetDevicePointer_v2");
    uint64_t there = 0;
    const Relaxed relaxed;
    return enroll && address && !enroll(memory, bytes, mapped_portable) &&
        !address(&there, memory, 0) && there == reinterpret_cast<uint64_t>(memory);
  }
  bool write(void* to, uint32_t value, void* stream) override {
    static int (*const set)(uint64_t, unsigned, std::size_t, void*) = find_driver("cuMemsetD32Async");
    return set && !set(reinterpret_cast<uint64_t>(to), value, 1, stream);
  }
  void wait() override {
    wait_for_device();  // a faulty device reports it again
  }
};

class Sync : public Probe {
 public:
  void check(Event& event, RunningCall& call, Recorder& recorder) override {
    if (!has_device()) return;
    if (is_capturing()) {
      if (!event.launch || leave_mark(event, call)) return;
      recorder.warn(
          event.about(),
          "sync cannot wait for the device while a CUDA graph is being captured: "
          "faults in a replay have no launch");
      return;
    }
    if (call.directory) marks_of(*call.directory, true);  // ready for a capture
    if (!is_on_device(event)) return;
    constexpr int not_while_capturing = 900;  // another thread captures a CUDA graph
    const int code = wait_for_device();
    if (code && code != not_while_capturing) event.error = driver_error("CUDA error", code);
  }

 private:
  // The marks of a dump. They cannot be prepared during a capture.
  static GraphMarks* marks_of(const CallDirectory& directory, bool makes) {
    static std::mutex lock;
    static std::map<std::string, std::unique_ptr<GraphMarks>> all;  // by dump
    const std::string root = directory.root();
    std::lock_guard<std::mutex> guard(lock);
    const auto found = all.find(root);
    if (found != all.end()) return found->second.get();
    if (!makes) return nullptr;
    return (all[root] = GraphMarks::make(root, std::make_unique<MarkingDevice>())).get();
  }

  static bool leave_mark(const Event& event, RunningCall& call) {
    if (!call.directory) return false;
    GraphMarks* const marks = marks_of(*call.directory, false);
    void* stream = nullptr;
    if (!marks || !current_stream(&stream)) return false;
    // Every marked launch has a row.
    call.recorder.note(call, event, [](Json& json) { json.key("captured").put("true"); });
    const GraphMarks::Place place{event.launch->row->launch, event.iteration, event.phase[0] == 'a'};
    return marks->leave(call.directory->run(), stream, place);
  }

  static bool is_on_device(const Event& event) {
    const std::string kind = event.launch ? event.launch->row->kind : "cpp";
    bool any = false;
    for (const Item& item : event.items) {
      if (!item.is_tensor()) continue;
      if (!item.tensor.on_cpu) return true;
      any = true;
    }
    return is_gpu_kind(kind) || !(any || kind == "cpp");
  }
};

}  // namespace inductor_rewriter
