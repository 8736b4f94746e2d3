// The CUDA device, through libraries that the process has loaded already: links and initializes
// nothing.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <string>

#include "engine/driver.h"
#include "shim.h"

namespace inductor_rewriter {

// The current stream of torch; false if there is none. -1 is the current device.
inline bool current_stream(void** stream, int device_index = -1) {
  using GetStream = AOTITorchError (*)(int32_t, void**);
  static const GetStream get = [] {
    const char* name = "aoti_torch_get_current_cuda_stream";
    const LibraryFunction linked = loaded(name);
    void* const torch = linked.at ? nullptr : dlopen("libtorch_cuda.so", RTLD_NOLOAD | RTLD_LAZY);
    return torch ? LibraryFunction{dlsym(torch, name)} : linked;
  }();
  return get && !get(device_index, stream);
}

// Whether this thread has a current device.
inline bool has_device() {
  static int (*const current)(void**) = find_driver("cuCtxGetCurrent");
  void* context = nullptr;
  return current && !current(&context) && context;
}

// Inside a CUDA graph's capture a copy to the host is illegal, and waiting is, too.
inline bool is_captured(void* stream) {
  static int (*const ask)(void*, int*) = find_driver("cuStreamIsCapturing");
  int state = 0;
  return ask && ask(stream, &state) == 0 && state == 1;
}
inline bool is_capturing(int device_index = -1) {
  void* stream = nullptr;
  return has_device() && current_stream(&stream, device_index) && is_captured(stream);
}

// Waits until the device is idle. The driver's error if it failed, or had failed before, or 0.
inline int wait_for_device() {
  static int (*const wait)() = find_driver("cuCtxSynchronize");
  const Relaxed relaxed;
  return wait && has_device() ? wait() : 0;
}

// Whether launches of a kind run on a GPU, wherever their arguments are. Generated from
// grammars/names.toml by rewriter/runtime/bundle.py.
inline bool is_gpu_kind(const std::string& kind);

}  // namespace inductor_rewriter
