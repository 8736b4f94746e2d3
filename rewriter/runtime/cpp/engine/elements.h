// Dtypes, the layout of a tensor and its measurement, and what the elements of each dtype are. All of this is the same
// in C++ and in the GPU's kernels.
#pragma once

#if !defined(__CUDACC_RTC__)
#include <cstdint>
#endif

#include "fingerprint.h"

// By number, which never changed so far: c10::ScalarType of torch/headeronly/core/ScalarType.h.
namespace inductor_rewriter::dtypes {
enum : int32_t {
  uint8, int8, int16, int32, int64, float16, float32, float64, complex32, complex64, complex128,
  boolean, qint8, quint8, qint32, bfloat16, quint4x2, quint2x4, bits1x8, bits2x4, bits4x2, bits8,
  bits16, float8_e5m2, float8_e4m3fn, float8_e5m2fnuz, float8_e4m3fnuz, uint16, uint32, uint64,
  uint1, uint2, uint3, uint4, uint5, uint6, uint7, int1, int2, int3, int4, int5, int6, int7,
  float8_e8m0fnu, float4_e2m1fn_x2,
};
}  // namespace inductor_rewriter::dtypes

namespace inductor_rewriter {

// The measurement of a tensor by one pass over it.
// Elements are counted as the shape says: one that an expanded dimension repeats counts each time. Of complex numbers
// the magnitude is measured; an element is NaN if either part is, else infinite if either part or its magnitude is. For
// dtypes whose elements are no numbers (packed, quantized) only the fingerprint is known, and `finite` is -1.
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

  INDUCTOR_REWRITER_SHARED int64_t infinite() const { return positive_infinite + negative_infinite; }
};
static_assert(sizeof(Measured) == 88, "Python has it as 88 bytes");

// A tensor: where its elements are, and what they are.
struct Layout {
  int32_t dtype;  // c10::ScalarType
  int32_t dim;
  int64_t numel;
  const int64_t* shape;
  const int64_t* stride;  // in elements; any, also 0 and negative
  const char* data;       // the first element
};

}  // namespace inductor_rewriter

namespace inductor_rewriter::elements {

// The bytes of one element, 0 for an unknown dtype. An element of a packed dtype is a byte.
INDUCTOR_REWRITER_SHARED constexpr int size(int32_t dtype) {
  switch (dtype) {
    case dtypes::complex128: return 16;
    case dtypes::int64: case dtypes::uint64: case dtypes::float64: case dtypes::complex64: return 8;
    case dtypes::int32: case dtypes::uint32: case dtypes::float32: case dtypes::complex32:
    case dtypes::qint32: return 4;
    case dtypes::int16: case dtypes::uint16: case dtypes::float16: case dtypes::bfloat16:
    case dtypes::bits16: return 2;
    default: return dtype >= 0 && dtype <= dtypes::float4_e2m1fn_x2 ? 1 : 0;
  }
}

// Whether elements are numbers. Others (quantized, packed, bits) only have a fingerprint.
INDUCTOR_REWRITER_SHARED constexpr bool is_number(int32_t dtype) {
  return (dtype >= dtypes::uint8 && dtype <= dtypes::boolean) || dtype == dtypes::bfloat16 ||
      (dtype >= dtypes::float8_e5m2 && dtype <= dtypes::uint64) || dtype == dtypes::float8_e8m0fnu;
}

INDUCTOR_REWRITER_SHARED constexpr bool is_complex(int32_t dtype) {
  return dtype >= dtypes::complex32 && dtype <= dtypes::complex128;
}

// Whether there are integers that float64 cannot hold.
INDUCTOR_REWRITER_SHARED constexpr bool is_wide(int32_t dtype) {
  return dtype == dtypes::int64 || dtype == dtypes::uint64;
}

// Whether squares and sums can leave the range of float64.
INDUCTOR_REWRITER_SHARED constexpr bool is_huge(int32_t dtype) {
  return dtype == dtypes::float64 || dtype == dtypes::complex128;
}

// Half of the largest finite number of a floating-point dtype of 16 or 8 bits; 0 for other dtypes. A number
// above it overflows if it is doubled.
INDUCTOR_REWRITER_SHARED constexpr double half_of_largest(int32_t dtype) {
  switch (dtype) {
    case dtypes::float16: return 32752;
    case dtypes::bfloat16: return 0x1.fep126;
    case dtypes::float8_e5m2: case dtypes::float8_e5m2fnuz: return 28672;
    case dtypes::float8_e4m3fn: return 224;
    case dtypes::float8_e4m3fnuz: return 120;
    case dtypes::float8_e8m0fnu: return 0x1p126;
    default: return 0;
  }
}

// Whether a finite element is above `half` of the largest number of its dtype. The lowest number of a dtype
// of 16 bits does not count: attention masks are made of it (`torch.finfo(dtype).min`).
INDUCTOR_REWRITER_SHARED constexpr bool is_near_limit(double value, double half, int32_t dtype) {
  if (value > half) return half != 0;
  return half != 0 && value < -half && (size(dtype) != 2 || value != -2 * half);
}

}  // namespace inductor_rewriter::elements
