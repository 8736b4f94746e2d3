// Converts elements of every dtype to float64. Vectors are written out, since wrappers are compiled
// at -O1 or without loop vectorization.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "engine/elements.h"
#include "number.h"

namespace inductor_rewriter {

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3", "no-fast-math", "tree-loop-vectorize")
#endif

typedef double Doubles __attribute__((vector_size(64), may_alias));
typedef int64_t Longs __attribute__((vector_size(64), may_alias));
typedef float Floats __attribute__((vector_size(32), may_alias));
typedef uint32_t Words __attribute__((vector_size(32), may_alias));
typedef uint16_t Halves __attribute__((vector_size(16), may_alias));

// `make` turns 8 elements into 8 doubles; `to` has room for a multiple of 8.
template <class From, class Make>
inline void convert_by_8(const char* from, int count, double* to, Make make) {
  typedef From Froms __attribute__((vector_size(8 * sizeof(From))));
  Froms some;
  int i = 0;
  for (; i + 8 <= count; i += 8) {
    std::memcpy(&some, from + i * sizeof(From), sizeof some);
    make(some, *reinterpret_cast<Doubles*>(to + i));
  }
  if (i < count) {
    some = Froms{};
    std::memcpy(&some, from + i * sizeof(From), (count - i) * sizeof(From));
    make(some, *reinterpret_cast<Doubles*>(to + i));
  }
}

template <class From>
inline void widen(const char* from, int count, double* to) {
  convert_by_8<From>(from, count, to, [](const auto& some, Doubles& out) {
    out = __builtin_convertvector(some, Doubles);
  });
}

inline void widen_bfloat16(const Halves& some, Floats& to) {
  to = (Floats)(__builtin_convertvector(some, Words) << 16);
}

// Infinities and NaN become numbers from `float16_infinity` on, as bits.
constexpr uint32_t float16_infinity = 0x47800000;
inline void widen_float16(const Halves& some, Floats& to) {
  const Words bits = __builtin_convertvector(some, Words);
  // The exponents' biases differ by 112, for subnormal numbers too.
  const Floats size = (Floats)((bits & 0x7fff) << 13) * 0x1p112f;
  to = (Floats)((Words)size | (bits & 0x8000) << 16);
}

inline void convert_bfloat16(const char* from, int count, double* to) {
  convert_by_8<uint16_t>(from, count, to, [](const Halves& some, Doubles& out) {
    Floats wide;
    widen_bfloat16(some, wide);
    out = __builtin_convertvector(wide, Doubles);
  });
}

inline void convert_float16(const char* from, int count, double* to) {
  convert_by_8<uint16_t>(from, count, to, [](const Halves& some, Doubles& out) {
    Floats wide;
    widen_float16(some, wide);
    wide = (Floats)((Words)wide | ((Words)(((Words)wide & 0x7fffffff) >= float16_infinity) & 0x7f800000));
    out = __builtin_convertvector(wide, Doubles);
  });
}

inline double double_of(uint64_t bits) {
  double value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

constexpr uint64_t infinity_bits = uint64_t{0x7ff} << 52;
constexpr uint64_t nan_bits = infinity_bits | uint64_t{1} << 51;

// A float8 with so many bits of mantissa. `finite_only`: the variants fn and fnuz, without
// infinity.
inline double from_float8(unsigned byte, int mantissas, int bias, bool finite_only, bool unsigned_zero) {
  int exponents = 7 - mantissas;
  int exponent = byte >> mantissas & ((1 << exponents) - 1);
  int mantissa = byte & ((1 << mantissas) - 1);
  bool highest = exponent == (1 << exponents) - 1;
  double sign = byte >> 7 ? -1.0 : 1.0;
  if (unsigned_zero && byte == 0x80) return double_of(nan_bits);
  if (!unsigned_zero && finite_only && (byte & 0x7f) == 0x7f) return double_of(nan_bits);
  if (!finite_only && highest) {
    return double_of(mantissa ? nan_bits : infinity_bits | uint64_t{byte >> 7} << 63);
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissas);
  return sign * std::ldexp((1 << mantissas) + mantissa, exponent - bias - mantissas);
}

// The values of the 256 bytes of each of these dtypes.
struct Float8Values {
  double e5m2[256], e4m3fn[256], e5m2fnuz[256], e4m3fnuz[256], e8m0fnu[256];

  Float8Values() {
    for (unsigned byte = 0; byte < 256; ++byte) {
      e5m2[byte] = from_float8(byte, 2, 15, false, false);
      e4m3fn[byte] = from_float8(byte, 3, 7, true, false);
      e5m2fnuz[byte] = from_float8(byte, 2, 16, true, true);
      e4m3fnuz[byte] = from_float8(byte, 3, 8, true, true);
      e8m0fnu[byte] = byte == 255 ? double_of(nan_bits) : std::ldexp(1.0, int(byte) - 127);
    }
  }

  using Values = double[256];
  static const Values& of(int32_t dtype) {
    static const Float8Values all;
    switch (dtype) {
      case dtypes::float8_e5m2: return all.e5m2;
      case dtypes::float8_e4m3fn: return all.e4m3fn;
      case dtypes::float8_e5m2fnuz: return all.e5m2fnuz;
      case dtypes::float8_e4m3fnuz: return all.e4m3fnuz;
      default: return all.e8m0fnu;
    }
  }
};

inline void convert_float8(int32_t dtype, const char* from, int count, double* to) {
  const auto& values = Float8Values::of(dtype);
  for (int i = 0; i < count; ++i) to[i] = values[static_cast<unsigned char>(from[i])];
}

// The magnitudes of `count` pairs in `parts`. NaN where either part is, else infinite.
inline void magnitudes(const double* parts, int count, bool wide, double* to) {
  for (int i = 0; i < count; ++i) {
    double real = parts[2 * i], imag = parts[2 * i + 1];
    uint64_t a = bits_of(real) << 1, b = bits_of(imag) << 1, limit = infinity_bits << 1;
    if (a > limit || b > limit) to[i] = double_of(nan_bits);
    else if (a == limit || b == limit) to[i] = double_of(infinity_bits);
    // Squares of narrower parts are exact, and within the range of float64.
    else to[i] = wide ? std::hypot(real, imag) : std::sqrt(real * real + imag * imag);
  }
}

// Converts `count` contiguous elements, which for complex dtypes have twice as many parts; `to` has
// room for a multiple of 8. Not for 64-bit integers, which float64 cannot hold.
inline void convert(int32_t dtype, const char* from, int count, double* to) {
  switch (dtype) {
    case dtypes::uint8: case dtypes::boolean: return widen<uint8_t>(from, count, to);
    case dtypes::int8: return widen<int8_t>(from, count, to);
    case dtypes::int16: return widen<int16_t>(from, count, to);
    case dtypes::int32: return widen<int32_t>(from, count, to);
    case dtypes::int64: return widen<int64_t>(from, count, to);
    case dtypes::float16: return convert_float16(from, count, to);
    case dtypes::float32: return widen<float>(from, count, to);
    case dtypes::float64: return static_cast<void>(std::memcpy(to, from, count * sizeof(double)));
    case dtypes::complex32: return convert_float16(from, 2 * count, to);
    case dtypes::complex64: return widen<float>(from, 2 * count, to);
    case dtypes::complex128:
      return static_cast<void>(std::memcpy(to, from, 2 * count * sizeof(double)));
    case dtypes::bfloat16: return convert_bfloat16(from, count, to);
    case dtypes::uint16: return widen<uint16_t>(from, count, to);
    case dtypes::uint32: return widen<uint32_t>(from, count, to);
    case dtypes::uint64: return widen<uint64_t>(from, count, to);
    default: return convert_float8(dtype, from, count, to);
  }
}

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

}  // namespace inductor_rewriter
