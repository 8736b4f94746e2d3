// What the elements of each dtype are: their size, and whether they are numbers that can be measured.
#pragma once

#if !defined(__CUDACC_RTC__) && !defined(__HIPCC_RTC__)
#include <cstdint>
#endif

#include "../dtype.h"
#include "fingerprint.h"

namespace {
namespace inductor_rewriter {

namespace elements {

// Bytes of one element, 0 for a dtype that is not known. Packed ones are whole bytes.
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

// Whether an element is a number of its own. Others (quantized, packed, bits) have a fingerprint.
INDUCTOR_REWRITER_SHARED constexpr bool is_number(int32_t dtype) {
  return (dtype >= dtypes::uint8 && dtype <= dtypes::boolean) || dtype == dtypes::bfloat16 ||
      (dtype >= dtypes::float8_e5m2 && dtype <= dtypes::uint64) || dtype == dtypes::float8_e8m0fnu;
}

INDUCTOR_REWRITER_SHARED constexpr bool is_complex(int32_t dtype) {
  return dtype >= dtypes::complex32 && dtype <= dtypes::complex128;
}

// Integers that float64 does not hold.
INDUCTOR_REWRITER_SHARED constexpr bool is_wide(int32_t dtype) {
  return dtype == dtypes::int64 || dtype == dtypes::uint64;
}

// Squares and sums can leave the range of float64.
INDUCTOR_REWRITER_SHARED constexpr bool is_huge(int32_t dtype) {
  return dtype == dtypes::float64 || dtype == dtypes::complex128;
}

// Half of the largest finite number of a floating-point type of 16 or 8 bits, 0 of other dtypes: what
// is beyond overflows if it is doubled.
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

// Whether a finite element is near the limit of its type, of which `half` is half of the largest. The
// lowest number of a type of 16 bits is none: masks are made of it (`torch.finfo(dtype).min`).
INDUCTOR_REWRITER_SHARED constexpr bool is_near_limit(double value, double half, int32_t dtype) {
  if (value > half) return half != 0;
  return half != 0 && value < -half && (size(dtype) != 2 || value != -2 * half);
}

}  // namespace elements

}  // namespace inductor_rewriter
}  // namespace
