// Finds the recorder: linked into the same library, loaded by the program, or where the environment says.
#pragma once

#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <cstdio>
#include <cstdlib>

#include "abi.h"

namespace inductor_rewriter {

extern "C" const Functions* inductor_rewriter_recorder_1() __attribute__((weak));

inline const Functions* find_recorder() {
  if (inductor_rewriter_recorder_1) return inductor_rewriter_recorder_1();
  const char* const path = std::getenv("REWRITER_RECORDER");
  void* const library = dlopen(path ? path : "libinductor_rewriter.so.1", RTLD_NOW);
  void* const found = library ? dlsym(library, "inductor_rewriter_recorder_1") : nullptr;
  if (found) return reinterpret_cast<decltype(&inductor_rewriter_recorder_1)>(found)();
  std::fputs("[rewriter] no probes: REWRITER_RECORDER does not name the library that records; "
             "`python -m rewriter.runtime.recorder_library` prints its path\n", stderr);
  return nullptr;
}

}  // namespace inductor_rewriter
