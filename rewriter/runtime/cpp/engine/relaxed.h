// Lets a thread allocate memory, load kernels and wait while another one captures a CUDA graph.
#pragma once

#include <dlfcn.h>

namespace inductor_rewriter {

// In the mode that captures have by default (global), what the driver calls unsafe would end the capture of another
// thread. For as long as the object lives, it does not.
class Relaxed {
 public:
  Relaxed() { exchange(); }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;
  ~Relaxed() { exchange(); }

 private:
  using Exchange = int (*)(int*);

  void exchange() {
    static const Exchange function = [] {
      const char* const names[][2] = {
          {"libcuda.so.1", "cuThreadExchangeStreamCaptureMode"},
          {"libamdhip64.so", "hipThreadExchangeStreamCaptureMode"},
          {"libamdhip64.so.6", "hipThreadExchangeStreamCaptureMode"},
          {"libamdhip64.so.7", "hipThreadExchangeStreamCaptureMode"}};
      for (const auto& name : names) {
        void* const library = dlopen(name[0], RTLD_NOLOAD | RTLD_LAZY);
        if (library) return reinterpret_cast<Exchange>(dlsym(library, name[1]));
      }
      return Exchange{};
    }();
    if (function) function(&mode_);
  }

  int mode_ = 2;  // relaxed; then the one before
};

}  // namespace inductor_rewriter
