// The driver of the GPU, as the process has loaded it: nothing is linked.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

namespace inductor_rewriter {

// A function of the driver, or null.
template <class Function>
Function find_driver(const char* name) {
  void* cuda = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
  return cuda ? reinterpret_cast<Function>(dlsym(cuda, name)) : Function{};
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
    static const auto function = find_driver<int (*)(int*)>("cuThreadExchangeStreamCaptureMode");
    if (function) function(&mode_);
  }

  int mode_ = 2;  // relaxed; then the one before
};

}  // namespace inductor_rewriter

namespace inductor_rewriter::gpu {

// Functions of the driver. Handles are pointers, sizes are size_t, device memory is an integer of pointer size.
struct Driver {
  int (*get_context)(void**) = nullptr;
  int (*set_context)(void*) = nullptr;
  int (*get_device)(int*) = nullptr;
  int (*get_attribute)(int*, int, int) = nullptr;
  int (*allocate)(uintptr_t*, std::size_t) = nullptr;
  int (*clear)(uintptr_t, unsigned char, std::size_t) = nullptr;
  int (*allocate_host)(void**, std::size_t, unsigned) = nullptr;
  int (*get_device_pointer)(uintptr_t*, void*, unsigned) = nullptr;
  int (*load)(void**, const void*) = nullptr;
  int (*get_function)(void**, void*, const char*) = nullptr;
  int (*launch)(
      void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
      void**) = nullptr;
  int (*launch_with)(const void*, void*, void**, void**) = nullptr;  // with attributes; may be null
  int (*synchronize)(void*) = nullptr;
  int (*get_error)(int, const char**) = nullptr;

  std::string find() {
    const std::pair<void*, const char*> names[] = {
        {&get_context, "cuCtxGetCurrent"},
        {&set_context, "cuCtxSetCurrent"},
        {&get_device, "cuCtxGetDevice"},
        {&get_attribute, "cuDeviceGetAttribute"},
        {&allocate, "cuMemAlloc_v2"},
        {&clear, "cuMemsetD8_v2"},
        {&allocate_host, "cuMemHostAlloc"},
        {&get_device_pointer, "cuMemHostGetDevicePointer_v2"},
        {&load, "cuModuleLoadData"},
        {&get_function, "cuModuleGetFunction"},
        {&launch, "cuLaunchKernel"},
        {&synchronize, "cuStreamSynchronize"},
        {&get_error, "cuGetErrorString"},
    };
    for (const auto& [to, name] : names) {
      void* const function = find_driver<void*>(name);
      if (!function) return std::string("the driver lacks ") + name;
      std::memcpy(to, &function, sizeof function);
    }
    launch_with = find_driver<decltype(launch_with)>("cuLaunchKernelEx");
    return "";
  }

  std::string describe(const char* what, int code) const {
    const char* text = nullptr;
    if (!get_error || get_error(code, &text) || !text) text = "unknown error";
    return std::string(what) + ": " + text;
  }
};

}  // namespace inductor_rewriter::gpu
