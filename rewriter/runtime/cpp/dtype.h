// Dtypes by number, which never changed so far: c10::ScalarType of
// torch/headeronly/core/ScalarType.h.
#pragma once

#if !defined(__CUDACC_RTC__)
#include <cstdint>
#endif

namespace inductor_rewriter::dtypes {
enum : int32_t {
  uint8, int8, int16, int32, int64, float16, float32, float64, complex32, complex64, complex128,
  boolean, qint8, quint8, qint32, bfloat16, quint4x2, quint2x4, bits1x8, bits2x4, bits4x2, bits8,
  bits16, float8_e5m2, float8_e4m3fn, float8_e5m2fnuz, float8_e4m3fnuz, uint16, uint32, uint64,
  uint1, uint2, uint3, uint4, uint5, uint6, uint7, int1, int2, int3, int4, int5, int6, int7,
  float8_e8m0fnu, float4_e2m1fn_x2,
};
}  // namespace inductor_rewriter::dtypes
