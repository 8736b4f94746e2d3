// What one pass over a tensor gives, and what that pass has to know of the tensor. The same bytes
// in C++, in the GPU's kernel and in Python (rewriter/runtime/engine.py).
#pragma once

#if !defined(__CUDACC_RTC__) && !defined(__HIPCC_RTC__)
#include <cstdint>
#endif

namespace {
namespace inductor_rewriter {

// Numbers of elements are as the shape shows them: one that an expanded dimension repeats counts as
// often. Of dtypes without numbers of their own (packed, quantized) only the fingerprint is known,
// and `finite` is -1.
struct Measured {
  int64_t finite, nan, positive_infinite, negative_infinite;
  // The extremes of the finite ones, exact: bits of float64; of int64 and uint64 the integer itself.
  uint64_t low, high;
  // Of the finite ones; deviation is that of a sample (n - 1), 0 for fewer than two.
  double mean, deviation;
  // The finished fingerprint (fingerprint.h): its text is the two as 16 hexadecimal digits each.
  uint64_t fingerprint[2];
  // Of types of 16 and 8 bits, the finite elements that are near the largest (elements.h).
  int64_t near_limit;
};
static_assert(sizeof(Measured) == 88, "Python has it as 88 bytes");

struct Layout {
  int32_t dtype;  // c10::ScalarType
  int32_t dim;
  int64_t numel;
  const int64_t* shape;
  const int64_t* stride;  // in elements; any, also 0 and negative
  int32_t device;         // -1: CPU
};

}  // namespace inductor_rewriter
}  // namespace
