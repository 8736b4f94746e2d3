// The driver of the GPU, as the process has loaded it: nothing is linked.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace inductor_rewriter::gpu {

// Functions of the driver, with their names in CUDA and in HIP. Handles are pointers, sizes are size_t,
// device memory is an integer of pointer size. HIP was never tried on a device.
struct Driver {
  bool is_hip = false;
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
  int (*is_capturing)(void*, int*) = nullptr;
  int (*synchronize)(void*) = nullptr;
  int (*get_error)(int, const char**) = nullptr;

  std::string find() {
    void* library = nullptr;
    for (const char* name : {"libcuda.so.1", "libamdhip64.so", "libamdhip64.so.6", "libamdhip64.so.7"}) {
      library = dlopen(name, RTLD_NOLOAD | RTLD_LAZY);
      is_hip = name[3] == 'a';
      if (library) break;
    }
    if (!library) return "no driver of a GPU is loaded";
    struct Name {
      void* to;
      const char* cuda;
      const char* hip;
    };
    const Name names[] = {
        {&get_context, "cuCtxGetCurrent", "hipCtxGetCurrent"},
        {&set_context, "cuCtxSetCurrent", "hipCtxSetCurrent"},
        {&get_device, "cuCtxGetDevice", "hipGetDevice"},
        {&get_attribute, "cuDeviceGetAttribute", "hipDeviceGetAttribute"},
        {&allocate, "cuMemAlloc_v2", "hipMalloc"},
        {&clear, "cuMemsetD8_v2", "hipMemsetD8"},
        {&allocate_host, "cuMemHostAlloc", "hipHostMalloc"},
        {&get_device_pointer, "cuMemHostGetDevicePointer_v2", "hipHostGetDevicePointer"},
        {&load, "cuModuleLoadData", "hipModuleLoadData"},
        {&get_function, "cuModuleGetFunction", "hipModuleGetFunction"},
        {&launch, "cuLaunchKernel", "hipModuleLaunchKernel"},
        {&is_capturing, "cuStreamIsCapturing", "hipStreamIsCapturing"},
        {&synchronize, "cuStreamSynchronize", "hipStreamSynchronize"},
        {&get_error, "cuGetErrorString", "hipDrvGetErrorString"},
    };
    for (const Name& name : names) {
      void* function = dlsym(library, is_hip ? name.hip : name.cuda);
      if (!function) return std::string("the driver lacks ") + (is_hip ? name.hip : name.cuda);
      std::memcpy(name.to, &function, sizeof function);
    }
    if (!is_hip) {
      void* function = dlsym(library, "cuLaunchKernelEx");
      std::memcpy(&launch_with, &function, sizeof function);
    }
    return "";
  }

  std::string describe(const char* what, int code) const {
    const char* text = nullptr;
    if (!get_error || get_error(code, &text) || !text) text = "unknown error";
    return std::string(what) + ": " + text;
  }
};

}  // namespace inductor_rewriter::gpu
