// The measurement of a tensor by one pass over it, and the layout of a tensor. These structures are the same
// in C++ and in the GPU's kernels.
#pragma once

#if !defined(__CUDACC_RTC__)
#include <cstdint>
#endif

namespace inductor_rewriter {

// Elements are counted as the shape says: one that an expanded dimension repeats counts each time. For dtypes
// whose elements are no numbers (packed, quantized) only the fingerprint is known, and `finite` is -1.
struct Measured {
  int64_t finite, nan, positive_infinite, negative_infinite;
  // The exact extremes of the finite elements: bits of float64, or the integer itself for int64 and uint64.
  uint64_t low, high;
  // Of the finite elements; the deviation is that of a sample (n - 1), and 0 for fewer than two elements.
  double mean, deviation;
  // The fingerprint (fingerprint.h). As text, each word is 16 hexadecimal digits.
  uint64_t fingerprint[2];
  // For dtypes of 16 and 8 bits: how many finite elements are near the largest number (elements.h).
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
