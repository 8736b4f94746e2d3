// The driver of the GPU, as the process has loaded it: nothing is linked.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "process.h"

namespace inductor_rewriter {

// A function of the driver, or null.
inline LibraryFunction find_driver(const char* name) {
  void* const cuda = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
  return {cuda ? dlsym(cuda, name) : nullptr};
}

// What failed, and how, by the driver's text, as in torch's messages.
inline std::string driver_error(const std::string& what, int code) {
  static int (*const describe)(int, const char**) = find_driver("cuGetErrorString");
  const char* text = nullptr;
  if (!describe || describe(code, &text) || !text) text = "unknown error";
  return what + ": " + text;
}

// Lets a thread allocate memory, load kernels and wait while another one captures a CUDA graph. In the mode that
// captures have by default (global), what the driver calls unsafe would end that capture. For as long as the object
// lives, it does not.
class Relaxed {
 public:
  Relaxed() { exchange(); }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;
  ~Relaxed() { exchange(); }

 private:
  void exchange() {
    static int (*const function)(int*) = find_driver("cuThreadExchangeStreamCaptureMode");
    if (function) function(&mode_);
  }

  int mode_ = 2;  // relaxed; then the one before
};

}  // namespace inductor_rewriter

namespace inductor_rewriter::gpu {

// Functions of the driver. Handles are pointers, sizes are size_t, device memory is an integer of pointer size.
struct Driver {
  std::string lacks;  // one that is not there
  int (*get_context)(void**) = find("cuCtxGetCurrent");
  int (*set_context)(void*) = find("cuCtxSetCurrent");
  int (*get_device)(int*) = find("cuCtxGetDevice");
  int (*get_attribute)(int*, int, int) = find("cuDeviceGetAttribute");
  int (*allocate)(uintptr_t*, std::size_t) = find("cuMemAlloc_v2");
  int (*clear)(uintptr_t, unsigned char, std::size_t) = find("cuMemsetD8_v2");
  int (*allocate_host)(void**, std::size_t, unsigned) = find("cuMemHostAlloc");
  int (*get_device_pointer)(uintptr_t*, void*, unsigned) = find("cuMemHostGetDevicePointer_v2");
  int (*load)(void**, const void*) = find("cuModuleLoadData");
  int (*get_function)(void**, void*, const char*) = find("cuModuleGetFunction");
  int (*launch)(
      void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
      void**) = find("cuLaunchKernel");
  int (*synchronize)(void*) = find("cuStreamSynchronize");
  int (*copy_to_host)(void*, uint64_t, std::size_t, void*) = find("cuMemcpyDtoHAsync_v2");
  int (*free_host)(void*) = find("cuMemFreeHost");
  int (*create_event)(void**, unsigned) = find("cuEventCreate");
  int (*record_event)(void*, void*) = find("cuEventRecord");
  int (*wait_for_event)(void*) = find("cuEventSynchronize");
  int (*launch_with)(const void*, void*, void**, void**) = find_driver("cuLaunchKernelEx");  // with attributes; may be null

 private:
  LibraryFunction find(const char* name) {
    const LibraryFunction found = find_driver(name);
    if (!found.at && lacks.empty()) lacks = name;
    return found;
  }
};

}  // namespace inductor_rewriter::gpu
