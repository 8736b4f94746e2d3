// The engine as a library for Python (rewriter/runtime/engine.py): a C interface.

#include "cpu.h"
#include "saving.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))

using inductor_rewriter::Layout;
using inductor_rewriter::Measured;

// Bumped when a structure or a function changes; Python compares.
EXPORTED int32_t inductor_rewriter_interface() { return 1; }

// Measures `count` tensors on the CPU, one after the other, each with so many threads. How many were
// measured before the first one that could not be.
EXPORTED int32_t inductor_rewriter_measure(
    const Layout* const* layouts, const void* const* data, int32_t count, int32_t threads,
    Measured* to) {
  for (int32_t i = 0; i < count; ++i) {
    if (!inductor_rewriter::measure_on_cpu(*layouts[i], data[i], threads, to[i])) return i;
  }
  return count;
}
