// On a GPU (kernel.h): how the elements of a vector are summed, for each kind of dtypes.
#pragma once

#include "element_sums.h"

namespace inductor_rewriter::gpu {

// A kind of dtypes has `Extreme`; `huge`, whether sums are scaled; `passes`, whether a vector's
// elements can all go to `add`; and `add`. Most are like this one.
struct Usual {
  static constexpr bool huge = false;
  template <class Extreme>
  INDUCTOR_REWRITER_DEVICE bool passes(const Sums<Extreme>&, const Vector&, const Origin&) {
    return true;
  }
};

// Floats of 16 and 32 bits: each is converted. A number that is not finite shows in the extremes of many,
// since these operations keep NaN. Extremes of 16 bits are found two at a time; numbers near the limit are
// taken one by one: adding `step` carries from the exponents of both.
template <class Type>
struct Narrow : Usual {
  using Extreme = typename Type::Extreme;

  INDUCTOR_REWRITER_DEVICE void add(Sums<Extreme>& sums, const Vector& vector, const Origin& origin) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t word = word_of(vector, i);
      if (Type::pairs) add_one(sums, Type::lower(word), origin);
      add_one(sums, Type::upper(word), origin);
    }
  }
  INDUCTOR_REWRITER_DEVICE void add_one(Sums<Extreme>& sums, double value, const Origin& origin) {
    const double apart = value - origin.shift;
    sums.sum += apart;
    sums.squares = fma(apart, apart, sums.squares);
  }
};

// Returns the smaller or larger of two words `a` and `b`, with NaN before all others: by one instruction where the device
// has it.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define INDUCTOR_REWRITER_EXTREME(instruction, otherwise) \
  asm(instruction " %0, %1, %2;" : "=r"(a) : "r"(a), "r"(b)); \
  return a
#else
#define INDUCTOR_REWRITER_EXTREME(instruction, otherwise) return otherwise
#endif

struct Float32 {
  using Extreme = float;
  static constexpr bool pairs = false;
  static constexpr uint32_t step = 0x00800000u, exponents = 0x7f800000u, carries = 0x80000000u;
  INDUCTOR_REWRITER_DEVICE uint32_t bits(float value) { return __float_as_uint(value); }
  INDUCTOR_REWRITER_DEVICE float of_bits(uint32_t bits) { return __uint_as_float(bits); }
  INDUCTOR_REWRITER_DEVICE uint32_t smaller(uint32_t a, uint32_t b) {
    INDUCTOR_REWRITER_EXTREME("min.NaN.f32", (key_of(__uint_as_float(b)) < key_of(__uint_as_float(a)) ? b : a));
  }
  INDUCTOR_REWRITER_DEVICE uint32_t larger(uint32_t a, uint32_t b) {
    INDUCTOR_REWRITER_EXTREME("max.NaN.f32", (key_of(__uint_as_float(b)) > key_of(__uint_as_float(a)) ? b : a));
  }
  INDUCTOR_REWRITER_DEVICE double lower(uint32_t) { return 0; }
  INDUCTOR_REWRITER_DEVICE double upper(uint32_t bits) { return __uint_as_float(bits); }
};

// Two 16-bit numbers in one word.
template <class Type>
struct Two {
  uint32_t bits;
  INDUCTOR_REWRITER_DEVICE float first(Two two) { return Type::plain(two.bits & 0xffffu); }
  INDUCTOR_REWRITER_DEVICE float second(Two two) { return Type::plain(two.bits >> 16); }
};

template <class Type>
struct Pairs {
  using Extreme = Two<Type>;
  static constexpr bool pairs = true;
  static constexpr uint32_t carries = 0x80008000u;
  INDUCTOR_REWRITER_DEVICE uint32_t bits(Extreme two) { return two.bits; }
  INDUCTOR_REWRITER_DEVICE Extreme of_bits(uint32_t bits) { return {bits}; }
};

struct BFloat16 : Pairs<BFloat16> {
  static constexpr uint32_t step = 0x01000100u, exponents = 0x7f807f80u;
  static constexpr uint32_t most = 0x7f7f7f7fu, least = 0xff7fff7fu;
  INDUCTOR_REWRITER_DEVICE float plain(uint32_t bits) { return __uint_as_float(bits << 16); }
  INDUCTOR_REWRITER_DEVICE uint32_t of(float value) { return __float_as_uint(value) >> 16; }
  INDUCTOR_REWRITER_DEVICE uint32_t smaller(uint32_t a, uint32_t b) {
    INDUCTOR_REWRITER_EXTREME("min.NaN.bf16x2", (smaller_of(a, b)));
  }
  INDUCTOR_REWRITER_DEVICE uint32_t larger(uint32_t a, uint32_t b) {
    INDUCTOR_REWRITER_EXTREME("max.NaN.bf16x2", (larger_of(a, b)));
  }
  INDUCTOR_REWRITER_DEVICE double lower(uint32_t word) { return __uint_as_float(word << 16); }
  INDUCTOR_REWRITER_DEVICE double upper(uint32_t word) {
    return __uint_as_float(word & 0xffff0000u);
  }
};

struct Float16 : Pairs<Float16> {
  static constexpr uint32_t step = 0x08000800u, exponents = 0x7c007c00u;
  static constexpr uint32_t most = 0x7bff7bffu, least = 0xfbfffbffu;
  INDUCTOR_REWRITER_DEVICE float plain(uint32_t bits) {
    return __uint_as_float((bits & 0x8000u) << 16 | (bits & 0x7fffu) << 13) * 0x1p112f;
  }
  // Converts back a number that was converted from 16 bits.
  INDUCTOR_REWRITER_DEVICE uint32_t of(float value) {
    const uint32_t bits = __float_as_uint(value * 0x1p-112f);
    return (bits >> 16 & 0x8000u) | (bits >> 13 & 0x7fffu);
  }
  INDUCTOR_REWRITER_DEVICE uint32_t smaller(uint32_t a, uint32_t b) {
    INDUCTOR_REWRITER_EXTREME("min.NaN.f16x2", (smaller_of(a, b)));
  }
  INDUCTOR_REWRITER_DEVICE uint32_t larger(uint32_t a, uint32_t b) {
    INDUCTOR_REWRITER_EXTREME("max.NaN.f16x2", (larger_of(a, b)));
  }
#if defined(__CUDACC_RTC__)
  INDUCTOR_REWRITER_DEVICE double lower(uint32_t word) {
    float value;
    asm("{.reg .b16 a, b; mov.b32 {a, b}, %1; cvt.f32.f16 %0, a;}" : "=f"(value) : "r"(word));
    return value;
  }
  INDUCTOR_REWRITER_DEVICE double upper(uint32_t word) {
    float value;
    asm("{.reg .b16 a, b; mov.b32 {a, b}, %1; cvt.f32.f16 %0, b;}" : "=f"(value) : "r"(word));
    return value;
  }
#else
  INDUCTOR_REWRITER_DEVICE double lower(uint32_t word) { return from_float16(word & 0xffffu); }
  INDUCTOR_REWRITER_DEVICE double upper(uint32_t word) { return from_float16(word >> 16); }
#endif
};

struct Float8 : Usual {
  using Extreme = float;
  INDUCTOR_REWRITER_DEVICE bool passes(const Sums<float>&, const Vector& vector, const Origin& origin) {
    const bool is_fnuz = origin.dtype == dtypes::float8_e5m2fnuz || origin.dtype == dtypes::float8_e4m3fnuz;
    // The addition carries for numbers larger than half of the largest one.
    const uint32_t step = origin.dtype == dtypes::float8_e4m3fn ? 0x09090909u
        : origin.dtype == dtypes::float8_e5m2fnuz               ? 0x04040404u
                                                                : 0x08080808u;
    uint32_t any = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t word = word_of(vector, i), flipped = word ^ 0x80808080u;
      any |= (word & 0x7f7f7f7fu) + step;
      if (is_fnuz) any |= (flipped - 0x01010101u) & ~flipped;
    }
    return !(any & 0x80808080u) && origin.dtype != dtypes::float8_e8m0fnu;
  }
  INDUCTOR_REWRITER_DEVICE void add(Sums<float>& sums, const Vector& vector, const Origin& origin) {
    const Small8 how = float8_of(origin.dtype);
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const double value = float8_value(word_of(vector, i / 4) >> 8 * (i % 4) & 0xffu, how);
      add_apart(sums, static_cast<float>(value), value - origin.shift);
    }
  }
};

struct Float64 {
  using Extreme = double;
  static constexpr bool huge = true;
  // Exponents must be below the next scale's, and below that of infinity and NaN.
  INDUCTOR_REWRITER_DEVICE bool passes(const Sums<double>& sums, const Vector& vector, const Origin&) {
    const uint32_t limit = sums.scale == 0 ? 1023 - 400 : sums.scale == 1 ? 1023 + 400 : 2047;
    const uint32_t step = 0x80000000u - (limit << 20);
    const uint32_t any = ((word_of(vector, 1) & 0x7ff00000u) + step) | ((word_of(vector, 3) & 0x7ff00000u) + step);
    return !(any & 0x80000000u);
  }
  INDUCTOR_REWRITER_DEVICE void add(Sums<double>& sums, const Vector& vector, const Origin& origin) {
    const double by = scale(sums.scale), shift = origin.shift * by;
    add_apart(sums, from_bits(vector.first), from_bits(vector.first) * by - shift);
    add_apart(sums, from_bits(vector.second), from_bits(vector.second) * by - shift);
  }
};

// Complex numbers of 32 and 64 bits, and integers of 32 bits: each element is converted.
template <class Type>
struct Converted : Usual {
  using Extreme = double;
  INDUCTOR_REWRITER_DEVICE bool passes(const Sums<double>&, const Vector& vector, const Origin& origin) {
    return Type::passes(vector, origin.dtype);
  }
  INDUCTOR_REWRITER_DEVICE void add(Sums<double>& sums, const Vector& vector, const Origin& origin) {
#pragma unroll
    for (int i = 0; i < 16 / Type::bytes; ++i) {
      const double value = Type::value(vector, i, origin.dtype);
      add_apart(sums, value, value - origin.shift);
    }
  }
};

struct Complex64 {
  static constexpr int bytes = 8;
  INDUCTOR_REWRITER_DEVICE bool passes(const Vector& vector, int32_t) {
    uint32_t any = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) any |= (word_of(vector, i) & 0x7f800000u) + 0x00800000u;
    return !(any >> 31);
  }
  INDUCTOR_REWRITER_DEVICE double value(const Vector& vector, int i, int32_t) {
    const double real = __uint_as_float(word_of(vector, 2 * i));
    const double imaginary = __uint_as_float(word_of(vector, 2 * i + 1));
    return sqrt(fma(real, real, imaginary * imaginary));
  }
};

struct Integer32 {
  static constexpr int bytes = 4;
  INDUCTOR_REWRITER_DEVICE bool passes(const Vector&, int32_t) { return true; }
  INDUCTOR_REWRITER_DEVICE double value(const Vector& vector, int i, int32_t dtype) {
    const uint32_t word = word_of(vector, i);
    return dtype == dtypes::uint32 ? static_cast<double>(word)
                                   : static_cast<double>(static_cast<int32_t>(word));
  }
};

// Rare dtypes: element by element.
struct Rare {
  using Extreme = double;
  static constexpr bool huge = true;
  INDUCTOR_REWRITER_DEVICE bool passes(const Sums<double>&, const Vector&, const Origin&) {
    return false;
  }
  INDUCTOR_REWRITER_DEVICE void add(Sums<double>&, const Vector&, const Origin&) {}
};

// Integers of 8 and 16 bits: the elements of a vector are summed as integers.
template <int bytes>
struct Small : Usual {
  using Extreme = float;
  INDUCTOR_REWRITER_DEVICE void add(Sums<float>& sums, const Vector& vector, const Origin& origin) {
    // Flipping the sign bit and then subtracting it extends the sign.
    const int flip = origin.dtype == dtypes::int8 ? 1 << 7 : origin.dtype == dtypes::int16 ? 1 << 15 : 0;
    const int shift = static_cast<int>(origin.shift) + flip;
    int sum = 0, low = 1 << 20, high = -(1 << 20);
    uint64_t squares = 0;
#pragma unroll
    for (int i = 0; i < 16 / bytes; ++i) {
      const uint32_t word = word_of(vector, i * bytes / 4) >> 8 * (i * bytes % 4);
      const int apart = (static_cast<int>(word & ((1u << 8 * bytes) - 1)) ^ flip) - shift;
      low = apart < low ? apart : low;
      high = apart > high ? apart : high;
      sum += apart;
      const uint32_t size = static_cast<uint32_t>(apart < 0 ? -apart : apart);
      squares += bytes == 1 ? static_cast<uint64_t>(size * size) : static_cast<uint64_t>(size) * size;
    }
    const int start = shift - flip;
    sums.low = fminf(sums.low, static_cast<float>(low + start));
    sums.high = fmaxf(sums.high, static_cast<float>(high + start));
    sums.sum += sum;
    sums.squares += static_cast<double>(squares);
  }
};

// Booleans: bytes that are zero or not.
struct Boolean : Usual {
  using Extreme = float;
  INDUCTOR_REWRITER_DEVICE void add(Sums<float>& sums, const Vector& vector, const Origin& origin) {
    int zeros = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t word = word_of(vector, i);
      zeros += __popc(~(((word & 0x7f7f7f7fu) + 0x7f7f7f7fu) | word | 0x7f7f7f7fu));
    }
    if (zeros) sums.low = fminf(sums.low, 0.0f), sums.high = fmaxf(sums.high, 0.0f);
    if (zeros < 16) sums.low = fminf(sums.low, 1.0f), sums.high = fmaxf(sums.high, 1.0f);
    // The differences are from 0 or from 1.
    const int others = origin.shift != 0 ? zeros : 16 - zeros;
    sums.sum += origin.shift != 0 ? -others : others;
    sums.squares += others;
  }
};

// int64 and uint64, which float64 cannot hold: as keys in the order of int64.
struct Wide : Usual {
  using Extreme = int64_t;
  INDUCTOR_REWRITER_DEVICE int64_t key(uint64_t bits, int32_t dtype) {
    return static_cast<int64_t>(dtype == dtypes::uint64 ? bits ^ 1ull << 63 : bits);
  }
  INDUCTOR_REWRITER_DEVICE void add(Sums<int64_t>& sums, const Vector& vector, const Origin& origin) {
    const int64_t first = key(vector.first, origin.dtype), second = key(vector.second, origin.dtype);
    add_apart(sums, first, difference(first, origin.key));
    add_apart(sums, second, difference(second, origin.key));
  }
};
template <>
struct Extremes<int64_t> {
  INDUCTOR_REWRITER_DEVICE int64_t most() { return greatest_key; }
  INDUCTOR_REWRITER_DEVICE int64_t fewest() { return ~greatest_key; }
  INDUCTOR_REWRITER_DEVICE int64_t least(int64_t value) { return least_of(value); }
  INDUCTOR_REWRITER_DEVICE int64_t greatest(int64_t value) { return greatest_of(value); }
};

// Dtypes without numbers, such as quantized ones: only the fingerprint is computed.
struct Bytes : Usual {
  using Extreme = double;
  INDUCTOR_REWRITER_DEVICE void add(Sums<double>&, const Vector&, const Origin&) {}
};

// Finds out whether all elements of some vectors can go to `add`: `see` looks at each vector, and `keep`
// returns the result.
template <class Kind>
struct Look {
  bool all = true;
  INDUCTOR_REWRITER_MEMBER void see(
      const Sums<typename Kind::Extreme>& sums, const Vector& vector, const Origin& origin) {
    all &= Kind::passes(sums, vector, origin);
  }
  INDUCTOR_REWRITER_MEMBER bool keep(Sums<typename Kind::Extreme>&) const { return all; }
};
template <class Type>
struct Look<Narrow<Type>> {
  // For these vectors only: numbers near the limit in earlier vectors do not matter.
  uint32_t low = Type::bits(Extremes<typename Type::Extreme>::most());
  uint32_t high = Type::bits(Extremes<typename Type::Extreme>::fewest());
  INDUCTOR_REWRITER_MEMBER void see(const Sums<typename Type::Extreme>&, const Vector& vector, const Origin&) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      low = Type::smaller(low, word_of(vector, i));
      high = Type::larger(high, word_of(vector, i));
    }
  }
  // A carry out of the exponent says that one is not finite, or near the limit.
  INDUCTOR_REWRITER_MEMBER bool keep(Sums<typename Type::Extreme>& sums) const {
    const uint32_t any = ((low & Type::exponents) + Type::step) | ((high & Type::exponents) + Type::step);
    if (any & Type::carries) return false;
    sums.low = Type::of_bits(Type::smaller(low, Type::bits(sums.low)));
    sums.high = Type::of_bits(Type::larger(high, Type::bits(sums.high)));
    return true;
  }
};

// Adds elements one by one: the rest of a tensor that is less than a vector, and vectors with elements that
// are not finite or near the limit.
template <class Kind>
INDUCTOR_REWRITER_DEVICE void add_some(
    Sums<typename Kind::Extreme>& sums, const Vector& vector, int count, const Origin& origin, Shared& shared) {
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
    sums = add_value<Kind>(sums, value_of(vector, i, origin.dtype), origin, shared);
  }
}
template <>
INDUCTOR_REWRITER_SPECIAL void add_some<Wide>(
    Sums<int64_t>& sums, const Vector& vector, int, const Origin& origin, Shared&) {
  const int64_t first = Wide::key(vector.first, origin.dtype);
  add_apart(sums, first, difference(first, origin.key));
}
template <>
INDUCTOR_REWRITER_SPECIAL void add_some<Bytes>(
    Sums<double>&, const Vector&, int, const Origin&, Shared&) {}

}  // namespace inductor_rewriter::gpu
