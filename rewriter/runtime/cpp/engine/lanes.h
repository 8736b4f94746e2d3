// On a GPU (kernel.h): operations over the threads of a warp, and conversions between numbers and bits.
#pragma once

#include "job.h"

namespace inductor_rewriter::gpu {

constexpr uint64_t infinity = 0x7ff0000000000000;

// --- Warps -----------------------------------------------------------------------------------------

template <class T>
INDUCTOR_REWRITER_DEVICE T exchange(T value, int with) {
  return __shfl_xor_sync(0xffffffffu, value, with);
}
template <class T>
INDUCTOR_REWRITER_DEVICE T from_lane(T value, int lane) {
  return __shfl_sync(0xffffffffu, value, lane);
}
INDUCTOR_REWRITER_DEVICE uint32_t vote(bool value) { return __ballot_sync(0xffffffffu, value); }

// Reduces over `width` neighbouring lanes, a power of two; all of them get the result.
template <class T, class Join>
INDUCTOR_REWRITER_DEVICE T reduced(T value, int width, const Join& join) {
#pragma unroll
  for (int with = 16; with; with >>= 1) {
    if (with < width) value = join(value, exchange(value, with));
  }
  return value;
}
INDUCTOR_REWRITER_DEVICE double sum_of(double value, int width = 32) {
  return reduced(value, width, [](double a, double b) { return a + b; });
}
INDUCTOR_REWRITER_DEVICE int64_t least_of(int64_t value, int width = 32) {
  return reduced(value, width, [](int64_t a, int64_t b) { return b < a ? b : a; });
}
INDUCTOR_REWRITER_DEVICE int64_t greatest_of(int64_t value, int width = 32) {
  return ~least_of(~value, width);
}
INDUCTOR_REWRITER_DEVICE uint64_t sum_of(uint64_t value, int width = 32) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if (width == 32) {
    uint64_t sum = 0;
#pragma unroll
    for (int i = 0; i < 64; i += 16) {
      const uint32_t part = static_cast<uint32_t>(value >> i) & 0xffffu;
      sum += static_cast<uint64_t>(__reduce_add_sync(0xffffffffu, part)) << i;
    }
    return sum;
  }
#endif
  return reduced(value, width, [](uint64_t a, uint64_t b) { return a + b; });
}
INDUCTOR_REWRITER_DEVICE int32_t least_of(int32_t value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  return __reduce_min_sync(0xffffffffu, value);
#else
  return reduced(value, 32, [](int32_t a, int32_t b) { return b < a ? b : a; });
#endif
}

// --- Numbers ---------------------------------------------------------------------------------------

INDUCTOR_REWRITER_DEVICE uint64_t bits_of(double value) {
  return static_cast<uint64_t>(__double_as_longlong(value));
}
INDUCTOR_REWRITER_DEVICE double from_bits(uint64_t bits) {
  return __longlong_as_double(static_cast<long long>(bits));
}
// The float64 with this upper word; its lower word is zero.
INDUCTOR_REWRITER_DEVICE double from_upper(uint32_t bits) {
  return __hiloint2double(static_cast<int>(bits), 0);
}

INDUCTOR_REWRITER_DEVICE bool is_finite(double value) {
  return bits_of(value) << 1 < infinity << 1;
}

// Maps the bits of a float to an integer that orders as the floats do, and back.
INDUCTOR_REWRITER_DEVICE int32_t key_of(float value) {
  const int32_t bits = __float_as_int(value);
  return bits ^ (bits >> 31 & 0x7fffffff);
}
INDUCTOR_REWRITER_DEVICE float float_of(int32_t key) {
  return __int_as_float(key ^ (key >> 31 & 0x7fffffff));
}
INDUCTOR_REWRITER_DEVICE int64_t key_of(double value) {
  const int64_t bits = __double_as_longlong(value);
  return bits ^ (bits >> 63 & 0x7fffffffffffffffll);
}
constexpr int64_t greatest_key = 0x7fffffffffffffff;

// Powers of two by which values are multiplied before they are summed, so that their squares stay in the
// range of float64. Which one depends on the largest magnitude so far: below 2^-400, below 2^400, or above.
INDUCTOR_REWRITER_DEVICE double scale(int number) {
  return number == 1 ? 1.0 : from_upper(number ? (1023u - 600) << 20 : (1023u + 600) << 20);
}
INDUCTOR_REWRITER_DEVICE int scale_for(double value) {
  const uint32_t exponent = static_cast<uint32_t>(bits_of(value) >> 52) & 0x7ff;
  return exponent < 1023 - 400 ? 0 : exponent < 1023 + 400 ? 1 : 2;
}
// Converts a sum to the scale of a larger number. In two steps, since no float64 holds both factors in one.
INDUCTOR_REWRITER_DEVICE double rescaled(double value, int from, int to) {
#pragma unroll 1
  for (; from < to; ++from) value *= from_upper((1023u - 600) << 20);
  return value;
}

// The difference of two keys, which int64 may not hold: computed from exact halves.
INDUCTOR_REWRITER_DEVICE double difference(int64_t a, int64_t b) {
  const double upper = static_cast<double>((a >> 32) - (b >> 32));
  const double lower = static_cast<double>((a & 0xffffffffll) - (b & 0xffffffffll));
  return fma(upper, 4294967296.0, lower);
}

}  // namespace inductor_rewriter::gpu
