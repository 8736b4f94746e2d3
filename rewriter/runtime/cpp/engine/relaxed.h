// Lets a thread allocate memory, load kernels and wait while another one captures a CUDA graph.
#pragma once

#include "driver.h"

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
  void exchange() {
    static const auto function = find_driver<int (*)(int*)>("cuThreadExchangeStreamCaptureMode");
    if (function) function(&mode_);
  }

  int mode_ = 2;  // relaxed; then the one before
};

}  // namespace inductor_rewriter
