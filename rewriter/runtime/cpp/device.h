// The CUDA device, through libraries that the process has loaded already: links and initializes
// nothing.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <string>

#include "engine/driver.h"
#include "shim.h"

namespace inductor_rewriter {

// Functions that torch 2.6 lacks: looked up at run time.
template <class Function>
Function find(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

// The current stream of torch; false if there is none. -1 is the current device.
inline bool current_stream(void** stream, int device_index = -1) {
  using GetStream = AOTITorchError (*)(int32_t, void**);
  static const auto get = [] {
    const char* name = "aoti_torch_get_current_cuda_stream";
    if (auto linked = find<GetStream>(name)) return linked;
    void* torch = dlopen("libtorch_cuda.so", RTLD_NOLOAD | RTLD_LAZY);
    return torch ? reinterpret_cast<GetStream>(dlsym(torch, name)) : GetStream{};
  }();
  return get && !get(device_index, stream);
}

// Whether this thread has a current device.
inline bool has_device() {
  static const auto current = find_driver<int (*)(void**)>("cuCtxGetCurrent");
  void* context = nullptr;
  return current && !current(&context) && context;
}

// Inside a CUDA graph's capture a copy to the host is illegal, and waiting is, too.
inline bool is_captured(void* stream) {
  static const auto ask = find_driver<int (*)(void*, int*)>("cuStreamIsCapturing");
  int state = 0;
  return ask && ask(stream, &state) == 0 && state == 1;
}
inline bool is_capturing(int device_index = -1) {
  void* stream = nullptr;
  return has_device() && current_stream(&stream, device_index) && is_captured(stream);
}

// Waits until the device is idle. False if it failed, or had failed before.
inline bool wait_for_device() {
  static const auto wait = find_driver<int (*)()>("cuCtxSynchronize");
  const Relaxed relaxed;
  return !wait || !has_device() || !wait();
}

// The text of a driver error, as in torch's messages.
inline std::string cuda_error(int code) {
  static const auto describe = find_driver<int (*)(int, const char**)>("cuGetErrorString");
  const char* text = nullptr;
  if (!describe || describe(code, &text) || !text) text = "unknown error";
  return std::string("CUDA error: ") + text;
}

// Whether launches of a kind run on a GPU, wherever their arguments are. Generated from
// grammars/names.toml by rewriter/runtime/bundle.py.
inline bool is_gpu_kind(const std::string& kind);

}  // namespace inductor_rewriter
