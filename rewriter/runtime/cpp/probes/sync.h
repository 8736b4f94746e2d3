// Waits for the device around each launch: a fault is found at the launch that made it.
#pragma once

#include "../device.h"
#include "../recorder.h"
#include "../values.h"

namespace {
namespace inductor_rewriter {

class Sync : public Probe {
 public:
  void check(Event& event, RunningCall&, Recorder& recorder) override {
    if (!has_device()) return;
    if (is_capturing()) {
      recorder.warn(
          event.about(),
          "sync cannot wait for the device while a CUDA graph is being captured: "
          "faults in a replay have no launch");
      return;
    }
    if (!is_on_device(event)) return;
    static const auto wait = find_driver<int (*)()>("cuCtxSynchronize");
    if (int code = wait ? wait() : 0) event.error = cuda_error(code);
  }

 private:
  static bool is_on_device(const Event& event) {
    std::string kind = event.launch ? event.launch->row->kind : "cpp";
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
}  // namespace
