// On a GPU (kernel.h): elements of each dtype as numbers, and their sums and extremes.
#pragma once

#include "job.h"
#include "lanes.h"

namespace inductor_rewriter::gpu {

INDUCTOR_REWRITER_DEVICE uint64_t element_bits(const Vector& vector, int size, int i) {
  const int at = i * size;
  return (at < 8 ? vector.first : vector.second) >> 8 * (at & 7);
}
INDUCTOR_REWRITER_DEVICE uint32_t word_of(const Vector& vector, int i) {
  const uint64_t half = i < 2 ? vector.first : vector.second;
  return static_cast<uint32_t>(i & 1 ? half >> 32 : half);
}

INDUCTOR_REWRITER_DEVICE double magnitude(double real, double imaginary, bool is_wide) {
  const uint64_t a = bits_of(real) << 1, b = bits_of(imaginary) << 1, limit = infinity << 1;
  if (a > limit || b > limit) return from_bits(infinity + 1);
  if (a == limit || b == limit) return from_bits(infinity);
  // Squares of narrower parts are exact, and within the range of float64.
  if (!is_wide) return sqrt(fma(real, real, imaginary * imaginary));
  return hypot(real, imaginary);
}

// Converts a float of 8 bits: shifts its exponent and mantissa to those of float64, and corrects the bias by
// one multiplication, which is right for subnormal numbers too.
struct Small8 {
  uint32_t move;
  double factor;
};
INDUCTOR_REWRITER_DEVICE Small8 float8_of(int32_t dtype) {
  const bool is_e5m2 = dtype == dtypes::float8_e5m2 || dtype == dtypes::float8_e5m2fnuz;
  const bool is_fnuz = dtype == dtypes::float8_e5m2fnuz || dtype == dtypes::float8_e4m3fnuz;
  const uint32_t bias = (is_e5m2 ? 15 : 7) + is_fnuz;
  return {is_e5m2 ? 18u : 17u, from_upper((1023u + 1023 - bias) << 20)};
}
INDUCTOR_REWRITER_DEVICE double float8_value(uint32_t bits, const Small8& how) {
  return from_upper((bits & 0x80u) << 24 | (bits & 0x7fu) << how.move) * how.factor;
}

INDUCTOR_REWRITER_DEVICE double from_float8(uint32_t bits, int32_t dtype) {
  const uint32_t size = bits & 0x7fu;
  const double not_a_number = from_bits(infinity + 1);
  switch (dtype) {
    case dtypes::float8_e5m2:
      if (size > 0x7cu) return not_a_number;
      if (size == 0x7cu) return from_upper((bits & 0x80u) << 24 | 0x7ff00000u);
      break;
    case dtypes::float8_e4m3fn:
      if (size == 0x7fu) return not_a_number;
      break;
    case dtypes::float8_e8m0fnu:
      return bits == 0xffu ? not_a_number : from_upper((bits + 896) << 20);
    default:
      if (bits == 0x80u) return not_a_number;
      break;
  }
  return float8_value(bits, float8_of(dtype));
}

INDUCTOR_REWRITER_DEVICE double from_float16(uint32_t bits) {
  const uint32_t sign = (bits & 0x8000u) << 16, size = bits & 0x7fffu;
  if (size >= 0x7c00u) return from_upper(sign | 0x7ff00000u | (size & 0x3ffu) << 10);
  return from_upper(sign | size << 10) * from_upper((1023u + 1008) << 20);
}

// An element as float64, by its bits; `join` makes one number of the parts of a complex one. Not for int64 and uint64.
template <class Join>
INDUCTOR_REWRITER_DEVICE double converted(uint64_t bits, uint64_t more, int32_t dtype, const Join& join) {
  const uint32_t word = static_cast<uint32_t>(bits), upper = static_cast<uint32_t>(bits >> 32);
  switch (dtype) {
    case dtypes::float32: return __uint_as_float(word);
    case dtypes::bfloat16: return __uint_as_float(word << 16);
    case dtypes::float16: return from_float16(word & 0xffffu);
    case dtypes::float64: return from_bits(bits);
    case dtypes::boolean: return (word & 0xffu) != 0;
    case dtypes::uint8: return word & 0xffu;
    case dtypes::int8: return static_cast<int8_t>(word);
    case dtypes::uint16: return word & 0xffffu;
    case dtypes::int16: return static_cast<int16_t>(word);
    case dtypes::uint32: return word;
    case dtypes::int32: return static_cast<int32_t>(word);
    case dtypes::complex32: return join(from_float16(word & 0xffffu), from_float16(word >> 16), false);
    case dtypes::complex64: return join(__uint_as_float(word), __uint_as_float(upper), false);
    case dtypes::complex128: return join(from_bits(bits), from_bits(more), true);
    default: return from_float8(word & 0xffu, dtype);
  }
}

// The magnitude of a complex number.
INDUCTOR_REWRITER_RARE double value_of(Vector vector, int i, int32_t dtype) {
  return converted(
      element_bits(vector, elements::size(dtype), i), vector.second, dtype,
      [](double real, double imaginary, bool is_wide) { return magnitude(real, imaginary, is_wide); });
}

// A number near the first element: the element itself, or the larger part of a complex number. It avoids calls:
// before a call all pending loads would have to arrive.
INDUCTOR_REWRITER_DEVICE double value_near(const Vector& vector, int32_t dtype) {
  return converted(vector.first, vector.second, dtype, [](double real, double imaginary, bool) {
    return bits_of(real) << 1 > bits_of(imaginary) << 1 ? fabs(real) : fabs(imaginary);
  });
}

// Adds the 128-bit product of two words to two sums: its lower half to one, its upper half to the other.
INDUCTOR_REWRITER_DEVICE void add_product(uint64_t a, uint64_t b, uint64_t& low, uint64_t& high) {
  const uint32_t a_low = static_cast<uint32_t>(a), a_high = static_cast<uint32_t>(a >> 32);
  const uint32_t b_low = static_cast<uint32_t>(b), b_high = static_cast<uint32_t>(b >> 32);
  const uint64_t lower = static_cast<uint64_t>(a_low) * b_low;
  const uint64_t middle = static_cast<uint64_t>(a_low) * b_high + (lower >> 32);
  const uint64_t other = static_cast<uint64_t>(a_high) * b_low + static_cast<uint32_t>(middle);
  low += other << 32 | static_cast<uint32_t>(lower);
  high += static_cast<uint64_t>(a_high) * b_high + (middle >> 32) + (other >> 32);
}

// Shared memory of a block.
struct Shared {
  Vector keys[64];  // B0 and B1
  uint64_t low[2][warps], high[2][warps];
  double sum[warps], squares[warps];
  int64_t least[warps], greatest[warps];
  uint32_t nan, positive, negative, near_limit;
  int scale;
  bool is_last;
  Part parts[warps];
};

// The sums of one thread. The extremes are floats, or integers in the order of the kind.
template <class Extreme>
struct Sums {
  double sum, squares;
  Extreme low, high;
  int scale;
};

// The origin that all threads of a block subtract from elements.
struct Origin {
  double shift;
  int64_t key;  // the same for int64, and for uint64 minus 2^63
  int32_t dtype;
};

// Extremes: `take` is for a single element, `least` and `greatest` are keys of float64, of the whole warp.
template <class T>
struct Extremes;
template <>
struct Extremes<float> {
  INDUCTOR_REWRITER_DEVICE float most() { return 3.402823466e38f; }
  INDUCTOR_REWRITER_DEVICE float fewest() { return -most(); }
  INDUCTOR_REWRITER_DEVICE void take(float& low, float& high, double value) {
    low = fminf(low, static_cast<float>(value));
    high = fmaxf(high, static_cast<float>(value));
  }
  INDUCTOR_REWRITER_DEVICE float lowest(float value) { return value; }
  INDUCTOR_REWRITER_DEVICE float highest(float value) { return value; }
  INDUCTOR_REWRITER_DEVICE int64_t least(float value) {
    return key_of(static_cast<double>(float_of(least_of(key_of(value)))));
  }
  INDUCTOR_REWRITER_DEVICE int64_t greatest(float value) {
    return key_of(static_cast<double>(float_of(~least_of(~key_of(value)))));
  }
};
template <>
struct Extremes<double> {
  INDUCTOR_REWRITER_DEVICE double most() { return 1.7976931348623157e308; }
  INDUCTOR_REWRITER_DEVICE double fewest() { return -most(); }
  INDUCTOR_REWRITER_DEVICE void take(double& low, double& high, double value) {
    low = value < low ? value : low;
    high = value > high ? value : high;
  }
  INDUCTOR_REWRITER_DEVICE int64_t least(double value) { return least_of(key_of(value)); }
  INDUCTOR_REWRITER_DEVICE int64_t greatest(double value) { return greatest_of(key_of(value)); }
};

template <class Type>
struct Two;
// The smaller of two floats of 16 bits, compared as ordered integers: NaN is beyond the infinities.
INDUCTOR_REWRITER_DEVICE uint32_t smaller_half(uint32_t a, uint32_t b) {
  const auto key = [](uint32_t x) {
    return static_cast<int>((x & 0x8000u) ? (x ^ 0x7fffu) | 0xffff0000u : x);
  };
  return key(b) < key(a) ? b : a;
}
INDUCTOR_REWRITER_DEVICE uint32_t larger_half(uint32_t a, uint32_t b) {
  return smaller_half(a, b) == a ? b : a;
}
INDUCTOR_REWRITER_DEVICE uint32_t smaller_of(uint32_t a, uint32_t b) {
  return smaller_half(a & 0xffffu, b & 0xffffu) | smaller_half(a >> 16, b >> 16) << 16;
}
INDUCTOR_REWRITER_DEVICE uint32_t larger_of(uint32_t a, uint32_t b) {
  return larger_half(a & 0xffffu, b & 0xffffu) | larger_half(a >> 16, b >> 16) << 16;
}
template <class Type>
struct Extremes<Two<Type>> {
  INDUCTOR_REWRITER_DEVICE Two<Type> most() { return {Type::most}; }
  INDUCTOR_REWRITER_DEVICE Two<Type> fewest() { return {Type::least}; }
  INDUCTOR_REWRITER_DEVICE void take(Two<Type>& low, Two<Type>& high, double value) {
    const uint32_t bits = Type::of(static_cast<float>(value));
    low = {Type::smaller(low.bits, bits | bits << 16)};
    high = {Type::larger(high.bits, bits | bits << 16)};
  }
  INDUCTOR_REWRITER_DEVICE float lowest(Two<Type> two) {
    return fminf(Two<Type>::first(two), Two<Type>::second(two));
  }
  INDUCTOR_REWRITER_DEVICE float highest(Two<Type> two) {
    return fmaxf(Two<Type>::first(two), Two<Type>::second(two));
  }
  INDUCTOR_REWRITER_DEVICE int64_t least(Two<Type> two) { return Extremes<float>::least(lowest(two)); }
  INDUCTOR_REWRITER_DEVICE int64_t greatest(Two<Type> two) { return Extremes<float>::greatest(highest(two)); }
};

template <class Extreme>
INDUCTOR_REWRITER_DEVICE Sums<Extreme> no_sums(int scale) {
  return {0, 0, Extremes<Extreme>::most(), Extremes<Extreme>::fewest(), scale};
}

// Adds a single element: counts it if it is not finite, or near the limit of its type.
template <class Kind>
INDUCTOR_REWRITER_RARE Sums<typename Kind::Extreme> add_value(
    Sums<typename Kind::Extreme> sums, double value, Origin origin, Shared& shared) {
  const uint64_t bits = bits_of(value), size = bits << 1;
  if (size >= infinity << 1) {
    atomicAdd(size > infinity << 1 ? &shared.nan : bits >> 63 ? &shared.negative : &shared.positive, 1u);
    return sums;
  }
  if (elements::is_near_limit(value, elements::half_of_largest(origin.dtype), origin.dtype)) {
    atomicAdd(&shared.near_limit, 1u);
  }
  Extremes<typename Kind::Extreme>::take(sums.low, sums.high, value);
  double by = 1;
  if (Kind::huge) {
    const int wanted = scale_for(value);
    if (wanted > sums.scale) {
      sums.sum = rescaled(sums.sum, sums.scale, wanted);
      sums.squares = rescaled(rescaled(sums.squares, sums.scale, wanted), sums.scale, wanted);
      sums.scale = wanted;
    }
    by = scale(sums.scale);
  }
  const double apart = value * by - origin.shift * by;
  sums.sum += apart;
  sums.squares = fma(apart, apart, sums.squares);
  return sums;
}

template <class Extreme>
INDUCTOR_REWRITER_DEVICE void add_apart(Sums<Extreme>& sums, Extreme extreme, double apart) {
  sums.low = extreme < sums.low ? extreme : sums.low;
  sums.high = extreme > sums.high ? extreme : sums.high;
  sums.sum += apart;
  sums.squares = fma(apart, apart, sums.squares);
}

}  // namespace inductor_rewriter::gpu
