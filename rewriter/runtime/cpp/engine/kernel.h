// The kernel that measures tensors on a GPU, by one launch for several of them. It is compiled at run
// time (gpu.h) from its text, which follows that of what it includes. A test compiles it for the
// host, where threads are fibers.
//
// A block takes units of one tensor, a tile of the fingerprint or a quarter of one, and leaves a Part;
// the last block of a tensor to finish merges the parts, and writes the row. Each thread sums
// differences from the first finite element that it met, in float64: sums then lose nothing to
// an offset that all elements have, nor to an outlier that others met.
#pragma once

#include "job.h"

#if defined(__CUDACC_RTC__) || defined(__HIPCC_RTC__)
#define INDUCTOR_REWRITER_DEVICE static __device__ __forceinline__
#define INDUCTOR_REWRITER_RARE static __device__ __noinline__
#endif
#if defined(__CUDACC_RTC__)
#define INDUCTOR_REWRITER_CONSTANT __grid_constant__  // read where it is, by any index
#elif defined(__HIPCC_RTC__)
#define INDUCTOR_REWRITER_CONSTANT
#endif

namespace {
namespace inductor_rewriter {

namespace gpu {

constexpr int ahead = 4;  // vectors that a thread loads before it uses the first

#if defined(__HIPCC_RTC__)
template <class T>
INDUCTOR_REWRITER_DEVICE T exchange(T value, int with) {
  return __shfl_xor(value, with, 32);
}
#else
template <class T>
INDUCTOR_REWRITER_DEVICE T exchange(T value, int with) {
  return __shfl_xor_sync(0xffffffffu, value, with);
}
#endif

INDUCTOR_REWRITER_DEVICE uint64_t bits_of(double value) {
  return static_cast<uint64_t>(__double_as_longlong(value));
}
INDUCTOR_REWRITER_DEVICE double from_bits(uint64_t bits) {
  return __longlong_as_double(static_cast<long long>(bits));
}
// From the upper word of float64: the lower one is zero.
INDUCTOR_REWRITER_DEVICE double from_upper(uint32_t bits) {
  return __hiloint2double(static_cast<int>(bits), 0);
}

constexpr uint64_t infinity = 0x7ff0000000000000;
constexpr double most = 1.7976931348623157e308;

enum Class { finite, nan, positive, negative };

INDUCTOR_REWRITER_DEVICE Class classify(double value) {
  const uint64_t bits = bits_of(value), magnitude = bits & ~(1ull << 63);
  if (magnitude < infinity) return finite;
  if (magnitude > infinity) return nan;
  return bits >> 63 ? negative : positive;
}

// Powers of two that values are summed with, where squares would leave the range of float64
// otherwise: by the largest magnitude so far, below 2^-400, below 2^400, or not.
INDUCTOR_REWRITER_DEVICE double scale(int number) {
  return number == 1 ? 1.0 : from_upper(number ? (1023u - 600) << 20 : (1023u + 600) << 20);
}
INDUCTOR_REWRITER_DEVICE int scale_for(double value) {
  const uint32_t exponent = static_cast<uint32_t>(bits_of(value) >> 52) & 0x7ff;
  return exponent < 1023 - 400 ? 0 : exponent < 1023 + 400 ? 1 : 2;
}
// What is scaled by one, scaled by a larger one's number. In steps: two are one no double holds.
INDUCTOR_REWRITER_DEVICE double rescaled(double value, int from, int to) {
  for (; from < to; ++from) value *= from_upper((1023u - 600) << 20);
  return value;
}

// Sixteen bytes of elements.
struct alignas(16) Vector {
  uint64_t first, second;
};
INDUCTOR_REWRITER_DEVICE uint64_t element_bits(const Vector& vector, int size, int i) {
  const int at = i * size;
  return (at < 8 ? vector.first : vector.second) >> 8 * (at & 7);
}

// What a thread knows of the elements that it met.
template <class Extreme>
struct State {
  double shift, sum, squares;
  Extreme low, high;
  uint32_t finite, nan, positive, negative;
  uint32_t guard;  // in the form that the kind's test wants; at first, nothing passes
  int scale;
};

// A kind of dtypes has: `Extreme`, `guarded` (the start of `guard`),
// `passes` (whether all elements of a whole vector can go to `add_all`), `add_all`, and `value`.

template <class Kind, class Sums>
INDUCTOR_REWRITER_DEVICE void add_value(Sums& state, double value) {
  switch (classify(value)) {
    case nan: ++state.nan; return;
    case positive: ++state.positive; return;
    case negative: ++state.negative; return;
    default: break;
  }
  ++state.finite;
  const auto extreme = static_cast<decltype(state.low)>(value);
  state.low = extreme < state.low ? extreme : state.low;
  state.high = extreme > state.high ? extreme : state.high;
  if (state.finite == 1) {
    state.shift = value;
    state.scale = Kind::huge ? scale_for(value) : 1;
    state.guard = Kind::guard_of(state.scale);
  }
  double by = 1;
  if (Kind::huge) {
    const int wanted = scale_for(value);
    if (wanted > state.scale) {
      state.sum = rescaled(state.sum, state.scale, wanted);
      state.squares = rescaled(rescaled(state.squares, state.scale, wanted), state.scale, wanted);
      state.scale = wanted;
      state.guard = Kind::guard_of(wanted);
    }
    by = scale(state.scale);
  }
  const double apart = value * by - state.shift * by;
  state.sum += apart;
  state.squares = fma(apart, apart, state.squares);
}

// Floats of 16 and 32 bits. As the upper bits of a float64 their exponent differs by a constant,
// also that of subnormal ones: one multiplication makes up for it, which is part of the difference.
template <class Type>
struct Narrow {
  using Extreme = float;
  static constexpr int bytes = Type::bytes;
  static constexpr bool huge = false;
  static constexpr uint32_t guarded = Type::bytes == 2 ? 0x80008000u : 0x80000000u;

  INDUCTOR_REWRITER_DEVICE uint32_t guard_of(int) { return Type::step; }

  INDUCTOR_REWRITER_DEVICE double value(const Vector& vector, int i, int32_t) {
    const uint32_t bits = static_cast<uint32_t>(element_bits(vector, bytes, i));
    if (Type::is_special(bits)) {
      if (Type::mantissa(bits)) return from_bits(infinity + 1);
      return from_bits(Type::is_negative(bits) ? infinity | 1ull << 63 : infinity);
    }
    return Type::wide(bits) * Type::factor();
  }

  // A carry out of the exponent says that one is not finite; at first, all say so.
  INDUCTOR_REWRITER_DEVICE bool passes(uint32_t guard, const uint32_t* words) {
    uint32_t any = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) any |= (words[i] & Type::exponents) + guard;
    return !(any & guarded);
  }

  template <class Sums>
  INDUCTOR_REWRITER_DEVICE void add_all(Sums& state, const uint32_t* words, int32_t) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (bytes == 4) {
        add(state, words[i]);
      } else {
        add(state, words[i] & 0xffffu);
        add(state, words[i] >> 16);
      }
    }
    state.finite += 16 / bytes;
  }

  template <class Sums>
  INDUCTOR_REWRITER_DEVICE void add(Sums& state, uint32_t bits) {
    const float plain = Type::plain(bits);
    state.low = fminf(state.low, plain);
    state.high = fmaxf(state.high, plain);
    const double apart = fma(Type::wide(bits), Type::factor(), -state.shift);
    state.sum += apart;
    state.squares = fma(apart, apart, state.squares);
  }
};

struct Float32 {
  static constexpr int bytes = 4;
  static constexpr uint32_t step = 0x00800000u, exponents = 0x7f800000u;
  INDUCTOR_REWRITER_DEVICE bool is_special(uint32_t bits) { return (bits & exponents) == exponents; }
  INDUCTOR_REWRITER_DEVICE bool mantissa(uint32_t bits) { return bits & 0x7fffffu; }
  INDUCTOR_REWRITER_DEVICE bool is_negative(uint32_t bits) { return bits >> 31; }
  INDUCTOR_REWRITER_DEVICE float plain(uint32_t bits) { return __uint_as_float(bits); }
  INDUCTOR_REWRITER_DEVICE double wide(uint32_t bits) {
    const int upper = static_cast<int>((bits & 0x80000000u) | (bits & 0x7fffffffu) >> 3);
    return __hiloint2double(upper, static_cast<int>(bits << 29));
  }
  INDUCTOR_REWRITER_DEVICE double factor() { return from_upper((1023u + 896) << 20); }
};

struct BFloat16 {
  static constexpr int bytes = 2;
  static constexpr uint32_t step = 0x00800080u, exponents = 0x7f807f80u;
  INDUCTOR_REWRITER_DEVICE bool is_special(uint32_t bits) { return (bits & 0x7f80u) == 0x7f80u; }
  INDUCTOR_REWRITER_DEVICE bool mantissa(uint32_t bits) { return bits & 0x7fu; }
  INDUCTOR_REWRITER_DEVICE bool is_negative(uint32_t bits) { return bits >> 15 & 1; }
  INDUCTOR_REWRITER_DEVICE float plain(uint32_t bits) { return __uint_as_float(bits << 16); }
  INDUCTOR_REWRITER_DEVICE double wide(uint32_t bits) {
    return from_upper((bits & 0x8000u) << 16 | (bits & 0x7fffu) << 13);
  }
  INDUCTOR_REWRITER_DEVICE double factor() { return from_upper((1023u + 896) << 20); }
};

struct Float16 {
  static constexpr int bytes = 2;
  static constexpr uint32_t step = 0x04000400u, exponents = 0x7c007c00u;
  INDUCTOR_REWRITER_DEVICE bool is_special(uint32_t bits) { return (bits & 0x7c00u) == 0x7c00u; }
  INDUCTOR_REWRITER_DEVICE bool mantissa(uint32_t bits) { return bits & 0x3ffu; }
  INDUCTOR_REWRITER_DEVICE bool is_negative(uint32_t bits) { return bits >> 15 & 1; }
  INDUCTOR_REWRITER_DEVICE float plain(uint32_t bits) {
    return __uint_as_float((bits & 0x8000u) << 16 | (bits & 0x7fffu) << 13) * 0x1p112f;
  }
  INDUCTOR_REWRITER_DEVICE double wide(uint32_t bits) {
    return from_upper((bits & 0x8000u) << 16 | (bits & 0x7fffu) << 10);
  }
  INDUCTOR_REWRITER_DEVICE double factor() { return from_upper((1023u + 1008) << 20); }
};

// A float8, with exponent and mantissa where those of float64 begin.
INDUCTOR_REWRITER_DEVICE double from_float8(uint32_t bits, int32_t dtype) {
  const uint32_t magnitude = bits & 0x7fu, sign = (bits & 0x80u) << 24;
  const double not_a_number = from_bits(infinity + 1);
  switch (dtype) {
    case dtypes::float8_e5m2:
      if (magnitude > 0x7cu) return not_a_number;
      if (magnitude == 0x7cu) return from_upper(sign | 0x7ff00000u);
      return from_upper(sign | magnitude << 18) * from_upper((1023u + 1008) << 20);
    case dtypes::float8_e4m3fn:
      if (magnitude == 0x7fu) return not_a_number;
      return from_upper(sign | magnitude << 17) * from_upper((1023u + 1016) << 20);
    case dtypes::float8_e5m2fnuz:
      if (bits == 0x80u) return not_a_number;
      return from_upper(sign | magnitude << 18) * from_upper((1023u + 1007) << 20);
    case dtypes::float8_e4m3fnuz:
      if (bits == 0x80u) return not_a_number;
      return from_upper(sign | magnitude << 17) * from_upper((1023u + 1015) << 20);
    default:
      return bits == 0xffu ? not_a_number : from_upper((bits + 896) << 20);
  }
}

INDUCTOR_REWRITER_DEVICE double magnitude(double real, double imaginary, bool is_wide) {
  const Class a = classify(real), b = classify(imaginary);
  if (a == nan || b == nan) return from_bits(infinity + 1);
  if (a != finite || b != finite) return from_bits(infinity);
  // Squares of narrower parts are exact, and within the range of float64.
  if (!is_wide) return sqrt(real * real + imaginary * imaginary);
  return hypot(real, imaginary);
}

INDUCTOR_REWRITER_DEVICE double converted(const Vector& vector, int i, int32_t dtype) {
  const int size = elements::size(dtype);
  const uint64_t bits = element_bits(vector, size, i);
  const uint32_t word = static_cast<uint32_t>(bits);
  if (size == 16) return magnitude(from_bits(vector.first), from_bits(vector.second), true);
  if (size == 8) {
    return magnitude(
        __uint_as_float(word), __uint_as_float(static_cast<uint32_t>(bits >> 32)), false);
  }
  switch (dtype) {
    case dtypes::boolean: return (word & 0xffu) != 0;
    case dtypes::uint32: return word;
    case dtypes::int32: return static_cast<int32_t>(word);
    case dtypes::complex32: {
      const Vector half = {bits, 0};
      return magnitude(
          Narrow<Float16>::value(half, 0, dtype), Narrow<Float16>::value(half, 1, dtype), false);
    }
    default: return from_float8(word & 0xffu, dtype);
  }
}

// What is converted one by one: floats of 8 bits, complex numbers, bool, integers of 32 bits.
template <bool is_huge>
struct Converted {
  using Extreme = double;
  static constexpr bool huge = is_huge;
  static constexpr uint32_t guarded = 0;
  INDUCTOR_REWRITER_DEVICE uint32_t guard_of(int) { return 0; }
  INDUCTOR_REWRITER_DEVICE bool passes(uint32_t, const uint32_t*) { return false; }
  template <class Sums>
  INDUCTOR_REWRITER_DEVICE void add_all(Sums&, const uint32_t*, int32_t) {}
  INDUCTOR_REWRITER_DEVICE double value(const Vector& vector, int i, int32_t dtype) {
    return converted(vector, i, dtype);
  }
};

// Integers of 8 and 16 bits: what a vector adds is summed as integers.
template <int bytes>
struct Small {
  using Extreme = int32_t;
  static constexpr bool huge = false;
  static constexpr uint32_t guarded = 1;
  // Half of the range of a signed one: flipping that bit and subtracting it extends the sign.
  INDUCTOR_REWRITER_DEVICE int half(int32_t dtype) {
    return dtype == dtypes::int8 ? 1 << 7 : dtype == dtypes::int16 ? 1 << 15 : 0;
  }
  INDUCTOR_REWRITER_DEVICE uint32_t guard_of(int) { return 0; }
  INDUCTOR_REWRITER_DEVICE bool passes(uint32_t guard, const uint32_t*) { return !guard; }
  INDUCTOR_REWRITER_DEVICE double value(const Vector& vector, int i, int32_t dtype) {
    const int bits = static_cast<int>(element_bits(vector, bytes, i)) & ((1 << 8 * bytes) - 1);
    return (bits ^ half(dtype)) - half(dtype);
  }
  template <class Sums>
  INDUCTOR_REWRITER_DEVICE void add_all(Sums& state, const uint32_t* words, int32_t dtype) {
    const int flip = half(dtype), shift = static_cast<int>(state.shift) + flip;
    int sum = 0;
    uint64_t squares = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4 / bytes; ++j) {
        const int bits = static_cast<int>(words[i] >> 8 * bytes * j) & ((1 << 8 * bytes) - 1);
        const int lifted = bits ^ flip;
        state.low = lifted - flip < state.low ? lifted - flip : state.low;
        state.high = lifted - flip > state.high ? lifted - flip : state.high;
        const int apart = lifted - shift;
        const uint32_t size = static_cast<uint32_t>(apart < 0 ? -apart : apart);
        sum += apart;
        squares += bytes == 1 ? static_cast<uint64_t>(size * size) : static_cast<uint64_t>(size) * size;
      }
    }
    state.sum += sum;
    state.squares += static_cast<double>(squares);
    state.finite += 16 / bytes;
  }
};

struct Float64 {
  using Extreme = double;
  static constexpr bool huge = true;
  static constexpr uint32_t guarded = 0x80000000u;
  // What an exponent must not reach: that of the next scale, or what is not finite.
  INDUCTOR_REWRITER_DEVICE uint32_t guard_of(int number) {
    const uint32_t limit = number == 0 ? 1023 - 400 : number == 1 ? 1023 + 400 : 2047;
    return 0x80000000u - (limit << 20);
  }
  INDUCTOR_REWRITER_DEVICE bool passes(uint32_t guard, const uint32_t* words) {
    const uint32_t any = ((words[1] & 0x7ff00000u) + guard) | ((words[3] & 0x7ff00000u) + guard);
    return !(any & guarded);
  }
  INDUCTOR_REWRITER_DEVICE double value(const Vector& vector, int i, int32_t) {
    return from_bits(i ? vector.second : vector.first);
  }
  template <class Sums>
  INDUCTOR_REWRITER_DEVICE void add_all(Sums& state, const uint32_t* words, int32_t) {
    const double by = scale(state.scale), shift = state.shift * by;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const double value = __hiloint2double(
          static_cast<int>(words[2 * i + 1]), static_cast<int>(words[2 * i]));
      state.low = value < state.low ? value : state.low;
      state.high = value > state.high ? value : state.high;
      const double apart = value * by - shift;
      state.sum += apart;
      state.squares = fma(apart, apart, state.squares);
    }
    state.finite += 2;
  }
};

// Integers that float64 does not hold: keys in the order of int64, whose differences from the first
// are summed.
struct Wide {
  using Extreme = int64_t;
  static constexpr bool huge = false;
  static constexpr uint32_t guarded = 0;
};

// The difference of two keys, which int64 may not hold: of halves, each exact.
INDUCTOR_REWRITER_DEVICE double difference(int64_t a, int64_t b) {
  const double upper = static_cast<double>((a >> 32) - (b >> 32));
  const double lower = static_cast<double>((a & 0xffffffffll) - (b & 0xffffffffll));
  return fma(upper, 4294967296.0, lower);
}

// Dtypes that have no numbers of their own.
struct Bytes {
  using Extreme = double;
  static constexpr bool huge = false;
  static constexpr uint32_t guarded = 0;
};

template <class Kind>
struct Sums : State<typename Kind::Extreme> {
  int64_t first = 0;  // of wide integers: what the others are relative to
};

INDUCTOR_REWRITER_DEVICE float least(float) { return -3.402823466e38f; }
INDUCTOR_REWRITER_DEVICE double least(double) { return -most; }
INDUCTOR_REWRITER_DEVICE int32_t least(int32_t) { return -2147483647 - 1; }
INDUCTOR_REWRITER_DEVICE int64_t least(int64_t) { return -9223372036854775807ll - 1; }
INDUCTOR_REWRITER_DEVICE float greatest(float) { return 3.402823466e38f; }
INDUCTOR_REWRITER_DEVICE double greatest(double) { return most; }
INDUCTOR_REWRITER_DEVICE int32_t greatest(int32_t) { return 2147483647; }
INDUCTOR_REWRITER_DEVICE int64_t greatest(int64_t) { return 9223372036854775807ll; }

template <class Kind>
INDUCTOR_REWRITER_DEVICE void start(Sums<Kind>& sums) {
  sums.shift = sums.sum = sums.squares = 0;
  sums.low = greatest(typename Kind::Extreme());
  sums.high = least(typename Kind::Extreme());
  sums.finite = sums.nan = sums.positive = sums.negative = 0;
  sums.guard = Kind::guarded;
  sums.scale = Kind::huge ? 0 : 1;
}

// By value: what a call has the address of is kept in memory.
template <class Kind>
INDUCTOR_REWRITER_RARE Sums<Kind> add_one_by_one(
    Sums<Kind> sums, Vector vector, int count, int32_t dtype) {
#pragma unroll 1
  for (int i = 0; i < count; ++i) add_value<Kind>(sums, Kind::value(vector, i, dtype));
  return sums;
}

struct Words {
  uint32_t at[4];
};
INDUCTOR_REWRITER_DEVICE Words words_of(const Vector& vector) {
  return {
      static_cast<uint32_t>(vector.first), static_cast<uint32_t>(vector.first >> 32),
      static_cast<uint32_t>(vector.second), static_cast<uint32_t>(vector.second >> 32)};
}

template <class Kind>
struct Adding {
  INDUCTOR_REWRITER_DEVICE bool passes(const Sums<Kind>& sums, const Vector& vector) {
    return Kind::passes(sums.guard, words_of(vector).at);
  }
  INDUCTOR_REWRITER_DEVICE void add_all(Sums<Kind>& sums, const Vector& vector, int32_t dtype) {
    Kind::add_all(sums, words_of(vector).at, dtype);
  }
  INDUCTOR_REWRITER_DEVICE void add(
      Sums<Kind>& sums, const Vector& vector, int count, int32_t dtype) {
    sums = add_one_by_one<Kind>(sums, vector, count, dtype);
  }
  // The element, as what the origin is known by.
  INDUCTOR_REWRITER_DEVICE bool origin(
      const Vector& vector, int i, int32_t dtype, double& value, int64_t&) {
    value = Kind::value(vector, i, dtype);
    return classify(value) == finite;
  }
};

template <>
struct Adding<Wide> {
  INDUCTOR_REWRITER_DEVICE int64_t key(const Vector& vector, int i, int32_t dtype) {
    const uint64_t bits = i ? vector.second : vector.first;
    return static_cast<int64_t>(dtype == dtypes::uint64 ? bits ^ 1ull << 63 : bits);
  }
  INDUCTOR_REWRITER_DEVICE bool passes(const Sums<Wide>&, const Vector&) { return true; }
  INDUCTOR_REWRITER_DEVICE void add_all(Sums<Wide>& sums, const Vector& vector, int32_t dtype) {
    add(sums, vector, 2, dtype);
  }
  INDUCTOR_REWRITER_DEVICE void add(
      Sums<Wide>& sums, const Vector& vector, int count, int32_t dtype) {
    if (!sums.finite) sums.first = key(vector, 0, dtype);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (i >= count) break;
      const int64_t value = key(vector, i, dtype);
      sums.low = value < sums.low ? value : sums.low;
      sums.high = value > sums.high ? value : sums.high;
      const double apart = difference(value, sums.first);
      sums.sum += apart;
      sums.squares = fma(apart, apart, sums.squares);
    }
    sums.finite += static_cast<uint32_t>(count);
  }
  INDUCTOR_REWRITER_DEVICE bool origin(
      const Vector& vector, int i, int32_t dtype, double&, int64_t& first) {
    first = key(vector, i, dtype);
    return true;
  }
};

template <>
struct Adding<Bytes> {
  INDUCTOR_REWRITER_DEVICE bool passes(const Sums<Bytes>&, const Vector&) { return true; }
  INDUCTOR_REWRITER_DEVICE void add_all(Sums<Bytes>&, const Vector&, int32_t) {}
  INDUCTOR_REWRITER_DEVICE void add(Sums<Bytes>&, const Vector&, int, int32_t) {}
  INDUCTOR_REWRITER_DEVICE bool origin(const Vector&, int, int32_t, double&, int64_t&) {
    return false;
  }
};

// What the threads of a block tell one another.
struct Shared {
  uint64_t b0[64], b1[64];
  uint64_t low[2][warps], high[2][warps];
  double sum[warps], squares[warps], extreme_low[warps], extreme_high[warps];
  int64_t key_low[warps], key_high[warps];
  uint64_t finite[warps], nan[warps], positive[warps], negative[warps];
  uint32_t last;
};

// The elements of one vector, where they are not contiguous or not aligned, in row-major order.
INDUCTOR_REWRITER_RARE Vector gather(const Task& task, int size, int64_t vector) {
  const int64_t per = 16 / size;
  int64_t element = vector * per;
  const int64_t left = task.numel - element;
  const int count = static_cast<int>(left < per ? left : per);
  const int last = task.dims - 1;
  int64_t place = 0, run = 1, step = 0;
  const char* at = task.data;
  Vector result = {0, 0};
  for (int i = 0; i < count; ++i, ++element) {
    if (i == 0 || place == run) {
      int64_t rest = element;
      at = task.data;
      for (int dim = last; dim >= 0; --dim) {
        const int64_t length = task.size[dim];
        const int64_t here = rest < length ? rest : rest % length;
        rest = rest < length ? 0 : rest / length;
        if (dim == last) place = here;
        at += here * task.stride[dim] * size;
      }
      if (last >= 0) run = task.size[last], step = task.stride[last] * size;
    }
    if (size == 16) {
      // Complex numbers of 16 bytes are aligned to 8.
      result.first = reinterpret_cast<const uint64_t*>(at)[0];
      result.second = reinterpret_cast<const uint64_t*>(at)[1];
      break;
    }
    uint64_t bits = 0;
    switch (size) {
      case 1: bits = *reinterpret_cast<const uint8_t*>(at); break;
      case 2: bits = *reinterpret_cast<const uint16_t*>(at); break;
      case 4: bits = *reinterpret_cast<const uint32_t*>(at); break;
      default: bits = *reinterpret_cast<const uint64_t*>(at); break;
    }
    const int from = i * size;
    if (from < 8) result.first |= bits << 8 * from;
    else result.second |= bits << 8 * (from - 8);
    at += step;
    ++place;
  }
  return result;
}

INDUCTOR_REWRITER_DEVICE Vector load(const Task& task, int size, int64_t vector, bool direct) {
  if (direct) return reinterpret_cast<const Vector*>(task.data)[vector];
  return gather(task, size, vector);
}

// The sums of all threads; thread 0 has them. One barrier.
INDUCTOR_REWRITER_DEVICE void sum_pairs(
    uint64_t& low, uint64_t& high, uint64_t* lows, uint64_t* highs) {
  for (int with = 16; with; with >>= 1) {
    low += exchange(low, with);
    high += exchange(high, with);
  }
  if (threadIdx.x % 32 == 0) {
    lows[threadIdx.x / 32] = low;
    highs[threadIdx.x / 32] = high;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 1; i < warps; ++i) {
      low += lows[i];
      high += highs[i];
    }
  }
}

// What has to be known before the squares: all threads have the result. `sum` is of the means'
// numerators.
struct Merged {
  uint64_t finite, nan, positive, negative;
  double sum, low, high;
  int64_t key_low, key_high;
};

INDUCTOR_REWRITER_RARE void merge(Merged& all, Shared& shared, bool is_wide) {
  const bool any = __syncthreads_or(all.nan || all.positive || all.negative);
  for (int with = 16; with; with >>= 1) {
    all.finite += exchange(all.finite, with);
    all.sum += exchange(all.sum, with);
    if (is_wide) {
      const int64_t low = exchange(all.key_low, with), high = exchange(all.key_high, with);
      all.key_low = low < all.key_low ? low : all.key_low;
      all.key_high = high > all.key_high ? high : all.key_high;
    } else {
      const double low = exchange(all.low, with), high = exchange(all.high, with);
      all.low = low < all.low ? low : all.low;
      all.high = high > all.high ? high : all.high;
    }
    if (any) {
      all.nan += exchange(all.nan, with);
      all.positive += exchange(all.positive, with);
      all.negative += exchange(all.negative, with);
    }
  }
  const int warp = threadIdx.x / 32;
  if (threadIdx.x % 32 == 0) {
    shared.finite[warp] = all.finite;
    shared.sum[warp] = all.sum;
    shared.nan[warp] = all.nan;
    shared.positive[warp] = all.positive;
    shared.negative[warp] = all.negative;
    shared.extreme_low[warp] = all.low;
    shared.extreme_high[warp] = all.high;
    shared.key_low[warp] = all.key_low;
    shared.key_high[warp] = all.key_high;
  }
  __syncthreads();
  all.finite = 0;
  all.sum = 0;
  for (int i = 0; i < warps; ++i) {
    all.finite += shared.finite[i];
    all.sum += shared.sum[i];
  }
  if (threadIdx.x != 0) return;
  for (int i = 1; i < warps; ++i) {
    all.nan += shared.nan[i];
    all.positive += shared.positive[i];
    all.negative += shared.negative[i];
    all.low = shared.extreme_low[i] < all.low ? shared.extreme_low[i] : all.low;
    all.high = shared.extreme_high[i] > all.high ? shared.extreme_high[i] : all.high;
    all.key_low = shared.key_low[i] < all.key_low ? shared.key_low[i] : all.key_low;
    all.key_high = shared.key_high[i] > all.key_high ? shared.key_high[i] : all.key_high;
  }
}

// The sum; thread 0 has it.
INDUCTOR_REWRITER_DEVICE double sum_squares(double squares, Shared& shared) {
  for (int with = 16; with; with >>= 1) squares += exchange(squares, with);
  if (threadIdx.x % 32 == 0) shared.squares[threadIdx.x / 32] = squares;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 1; i < warps; ++i) squares += shared.squares[i];
  }
  return squares;
}

// The block's threads agree on the largest scale.
INDUCTOR_REWRITER_DEVICE int largest_scale(int number) {
  const int plain = __syncthreads_or(number >= 1), large = __syncthreads_or(number >= 2);
  return large ? 2 : plain ? 1 : 0;
}

// What a thread knows when it has met its elements, of any kind.
struct Own {
  uint32_t finite, nan, positive, negative;
  double low, high;
  int64_t key_low, key_high, first_key, origin_key;
  double shift, sum, squares, origin;
  int scale;
  bool is_wide, is_huge;
  uint64_t first, second;  // of the fingerprint: thread 0 has them
  int turn;
};

// The row of a tensor, by the one thread that has all.
INDUCTOR_REWRITER_RARE void write_row(
    const Task& task, const Merged& all, double mean, double squares, int number, const Own& own,
    uint64_t low, uint64_t high) {
  uint64_t row[row_words];
  const uint64_t bytes = static_cast<uint64_t>(task.numel) * elements::size(task.dtype);
  const fingerprint::Pair text = fingerprint::finish({low, high}, bytes);
  const uint64_t flip = task.dtype == dtypes::uint64 ? 1ull << 63 : 0;
  row[0] = elements::is_number(task.dtype) ? all.finite : ~0ull;
  row[1] = all.nan;
  row[2] = all.positive;
  row[3] = all.negative;
  row[4] = row[5] = row[6] = row[7] = 0;
  if (all.finite) {
    double lowest = all.low, highest = all.high, middle;
    const double by = scale(number);
    if (own.is_wide) {
      const uint64_t lower = static_cast<uint64_t>(all.key_low) ^ flip;
      const uint64_t upper = static_cast<uint64_t>(all.key_high) ^ flip;
      row[4] = lower;
      row[5] = upper;
      lowest = flip ? static_cast<double>(lower) : static_cast<double>(all.key_low);
      highest = flip ? static_cast<double>(upper) : static_cast<double>(all.key_high);
      // From the middle of the extremes: that is nearer to the mean than the origin may be.
      const int64_t centre =
          (all.key_low | all.key_high) - ((all.key_low ^ all.key_high) >> 1);
      const uint64_t lifted = static_cast<uint64_t>(centre) ^ flip;
      middle = (flip ? static_cast<double>(lifted) : static_cast<double>(centre)) +
          (mean + difference(own.origin_key, centre));
    } else {
      row[4] = bits_of(lowest);
      row[5] = bits_of(highest);
      const double centre = lowest + (highest / 2 - lowest / 2);
      middle = centre + (mean + (own.origin * by - centre * by)) / by;
    }
    middle = middle < lowest ? lowest : middle > highest ? highest : middle;
    row[6] = bits_of(middle);
    if (all.finite > 1) row[7] = bits_of(sqrt(squares / static_cast<double>(all.finite - 1)) / by);
  }
  row[8] = text.low;
  row[9] = text.high;
  row[10] = task.replays ? ++*task.replays : task.sequence;
  row[11] = checksum(row);
  volatile uint64_t* to = task.row;
  for (int i = 0; i < row_words; ++i) to[i] = row[i];
}

// Merges the block's threads, and where this block is the last one, the blocks.
INDUCTOR_REWRITER_RARE void conclude(const Task& task, Shared& shared, Own own) {
  const int thread = static_cast<int>(threadIdx.x);
  const bool is_wide = own.is_wide, is_huge = own.is_huge;
  const uint32_t split = task.split;
  uint64_t first = own.first, second = own.second;
  int number = 1;
  if (is_huge) {
    const int wanted = scale_for(own.origin);
    number = largest_scale(own.scale > wanted ? own.scale : wanted);
    own.sum = rescaled(own.sum, own.scale, number);
    own.squares = rescaled(rescaled(own.squares, own.scale, number), own.scale, number);
  }
  const double by = scale(number), count = static_cast<double>(own.finite);
  double shift = is_wide ? difference(own.first_key, own.origin_key)
                         : own.shift * by - own.origin * by;
  if (!own.finite) shift = 0;
  Merged all;
  all.finite = own.finite;
  all.nan = own.nan;
  all.positive = own.positive;
  all.negative = own.negative;
  all.sum = fma(count, shift, own.sum);
  all.key_low = own.key_low;
  all.key_high = own.key_high;
  all.low = own.low;
  all.high = own.high;
  merge(all, shared, is_wide);
  double mean = all.finite ? all.sum / static_cast<double>(all.finite) : 0;
  const double apart = shift - mean;
  // What differences from the mean would have given, of those from this thread's first element.
  double squares = own.finite ? fma(apart, fma(count, apart, 2 * own.sum), own.squares) : 0;
  squares = sum_squares(squares, shared);
  if (squares < 0) squares = 0;  // by rounding

  if (task.blocks > 1) {
    if (thread == 0) {
      Part& part = task.parts[blockIdx.x - task.first_block];
      part.finite = all.finite;
      part.nan = all.nan;
      part.positive = all.positive;
      part.negative = all.negative;
      part.low = is_wide ? static_cast<uint64_t>(all.key_low) : bits_of(all.low);
      part.high = is_wide ? static_cast<uint64_t>(all.key_high) : bits_of(all.high);
      part.mean = mean;
      part.squares = squares;
      part.first = first;
      part.second = second;
      part.scale = static_cast<uint64_t>(number);
      __threadfence();
      shared.last = atomicInc(task.counter, task.blocks - 1) == task.blocks - 1;
    }
    __syncthreads();
    if (!shared.last) return;
    __threadfence();
    const int blocks = static_cast<int>(task.blocks);
    const volatile Part* parts = task.parts;
    if (is_huge) {
      int largest = number;
      for (int i = thread; i < blocks; i += threads) {
        const int other = static_cast<int>(parts[i].scale);
        largest = other > largest ? other : largest;
      }
      number = largest_scale(largest);
    }
    all.finite = all.nan = all.positive = all.negative = 0;
    all.sum = 0;
    all.low = most;
    all.high = -most;
    all.key_low = greatest(int64_t());
    all.key_high = least(int64_t());
    first = second = 0;
#pragma unroll 1
    for (int i = thread; i < blocks; i += threads) {
      const volatile Part& part = parts[i];
      if (!split) {
        first += part.first;
        second += part.second;
      }
      all.nan += part.nan;
      all.positive += part.positive;
      all.negative += part.negative;
      const uint64_t finite = part.finite;
      if (!finite) continue;
      all.finite += finite;
      const double means = rescaled(part.mean, static_cast<int>(part.scale), number);
      all.sum = fma(static_cast<double>(finite), means, all.sum);
      const uint64_t lows = part.low, highs = part.high;
      if (is_wide) {
        const int64_t low = static_cast<int64_t>(lows), high = static_cast<int64_t>(highs);
        all.key_low = low < all.key_low ? low : all.key_low;
        all.key_high = high > all.key_high ? high : all.key_high;
      } else {
        const double low = from_bits(lows), high = from_bits(highs);
        all.low = low < all.low ? low : all.low;
        all.high = high > all.high ? high : all.high;
      }
    }
    if (split) {
#pragma unroll 1
      for (int i = thread; i << split < blocks; i += threads) {
        uint64_t low = 0, high = 0;
        for (int j = i << split; j < (i + 1) << split && j < blocks; ++j) {
          low += parts[j].first;
          high += parts[j].second;
        }
        const fingerprint::Pair mixed = fingerprint::tile({low, high}, static_cast<uint64_t>(i));
        first += mixed.low;
        second += mixed.high;
      }
    }
    sum_pairs(first, second, shared.low[own.turn], shared.high[own.turn]);
    merge(all, shared, is_wide);
    mean = all.finite ? all.sum / static_cast<double>(all.finite) : 0;
    squares = 0;
#pragma unroll 1
    for (int i = thread; i < blocks; i += threads) {
      const volatile Part& part = parts[i];
      const uint64_t finite = part.finite;
      if (!finite) continue;
      const int from = static_cast<int>(part.scale);
      const double off = rescaled(part.mean, from, number) - mean;
      const double more = rescaled(rescaled(part.squares, from, number), from, number);
      squares += fma(off * off, static_cast<double>(finite), more);
    }
    squares = sum_squares(squares, shared);
  } else if (split && thread == 0 && task.numel) {
    const fingerprint::Pair mixed = fingerprint::tile({first, second}, 0);
    first = mixed.low;
    second = mixed.high;
  }
  if (thread == 0) write_row(task, all, mean, squares, number, own, first, second);
}

template <class Kind, bool is_wide>
INDUCTOR_REWRITER_DEVICE void measure(const Task& task, Shared& shared) {
  using namespace fingerprint;
  const int thread = static_cast<int>(threadIdx.x);
  const int32_t dtype = task.dtype;
  const int size = elements::size(dtype), per = 16 / size;
  const int64_t bytes = task.numel * size, vectors = (bytes + 15) / 16;
  const int64_t whole = bytes / 16;  // vectors that have all their elements
  const bool direct = task.direct;
  const uint32_t split = task.split;
  const int64_t unit_vectors = tile_vectors >> split;
  const int64_t units = (vectors + unit_vectors - 1) / unit_vectors;

  // What it is needed for comes last; till then it is on its way.
  Vector origin_vector = {0, 0};
  if (vectors) origin_vector = load(task, size, 0, direct && whole);
  if (thread < 64) shared.b0[thread] = key(2, thread);
  else if (thread < 128) shared.b1[thread - 64] = key(3, thread - 64);
  const uint64_t a0 = key(0, thread % 64), a1 = key(1, thread % 64);
  __syncthreads();

  Sums<Kind> sums;
  start(sums);
  Own own;
  own.first = own.second = 0;
  own.turn = 0;
  for (int64_t unit = blockIdx.x - task.first_block; unit < units; unit += task.blocks) {
    const int64_t begin = unit * unit_vectors;
    const int64_t left = vectors - begin, left_whole = direct ? whole - begin : 0;
    const int count = static_cast<int>(left < unit_vectors ? left : unit_vectors);
    const int ready = static_cast<int>(left_whole < unit_vectors ? left_whole : unit_vectors);
    const int row = static_cast<int>(begin % tile_vectors) / 64;
    const Vector* from = reinterpret_cast<const Vector*>(task.data) + begin;
    uint64_t low = 0, high = 0;
    auto add_product = [&](const Vector& vector, int i) {
      const uint64_t a = vector.first + (a0 ^ shared.b0[row + i / 64]);
      const uint64_t b = vector.second + (a1 ^ shared.b1[row + i / 64]);
      low += a * b;
      high += __umul64hi(a, b);
    };
    int i = thread;
#pragma unroll 1
    for (; i + (ahead - 1) * threads < ready; i += ahead * threads) {
      Vector some[ahead];
#pragma unroll
      for (int j = 0; j < ahead; ++j) some[j] = from[i + j * threads];
      bool pass = true;
#pragma unroll
      for (int j = 0; j < ahead; ++j) {
        add_product(some[j], i + j * threads);
        pass &= Adding<Kind>::passes(sums, some[j]);
      }
      if (pass) {
#pragma unroll
        for (int j = 0; j < ahead; ++j) Adding<Kind>::add_all(sums, some[j], dtype);
      } else {
#pragma unroll 1
        for (int j = 0; j < ahead; ++j) Adding<Kind>::add(sums, from[i + j * threads], per, dtype);
      }
    }
#pragma unroll 1
    for (; i < count; i += threads) {
      const Vector vector = load(task, size, begin + i, i < ready);
      add_product(vector, i);
      const bool complete = begin + i < whole;
      if (complete && Adding<Kind>::passes(sums, vector)) {
        Adding<Kind>::add_all(sums, vector, dtype);
      } else {
        const int64_t rest = task.numel - (begin + i) * per;
        Adding<Kind>::add(sums, vector, complete ? per : static_cast<int>(rest), dtype);
      }
    }
    sum_pairs(low, high, shared.low[own.turn], shared.high[own.turn]);
    own.turn ^= 1;
    if (thread == 0) {
      const Pair mixed = split ? Pair{low, high} : tile({low, high}, static_cast<uint64_t>(unit));
      own.first += mixed.low;
      own.second += mixed.high;
    }
  }

  own.origin = 0;
  own.origin_key = 0;
#pragma unroll 1
  for (int i = 0; i < per && i < task.numel; ++i) {
    if (Adding<Kind>::origin(origin_vector, i, dtype, own.origin, own.origin_key)) break;
    own.origin = 0;
  }
  own.finite = sums.finite;
  own.nan = sums.nan;
  own.positive = sums.positive;
  own.negative = sums.negative;
  own.key_low = is_wide ? static_cast<int64_t>(sums.low) : 0;
  own.key_high = is_wide ? static_cast<int64_t>(sums.high) : 0;
  own.low = sums.finite ? static_cast<double>(sums.low) : most;
  own.high = sums.finite ? static_cast<double>(sums.high) : -most;
  own.first_key = sums.first;
  own.shift = sums.shift;
  own.sum = sums.sum;
  own.squares = sums.squares;
  own.scale = sums.scale;
  own.is_wide = is_wide;
  own.is_huge = Kind::huge;
  conclude(task, shared, own);
}

}  // namespace gpu

}  // namespace inductor_rewriter
}  // namespace

extern "C" __global__ void __launch_bounds__(256, 4)
inductor_rewriter_measure(const INDUCTOR_REWRITER_CONSTANT inductor_rewriter::gpu::Job job) {
  using namespace inductor_rewriter;
  __shared__ gpu::Shared shared;
  int number = 0;
  while (number + 1 < job.count && blockIdx.x >= job.tasks[number + 1].first_block) ++number;
  const gpu::Task& task = job.tasks[number];
  switch (task.dtype) {
    case dtypes::float32: return gpu::measure<gpu::Narrow<gpu::Float32>, false>(task, shared);
    case dtypes::bfloat16: return gpu::measure<gpu::Narrow<gpu::BFloat16>, false>(task, shared);
    case dtypes::float16: return gpu::measure<gpu::Narrow<gpu::Float16>, false>(task, shared);
    case dtypes::float64: return gpu::measure<gpu::Float64, false>(task, shared);
    case dtypes::int64: case dtypes::uint64: return gpu::measure<gpu::Wide, true>(task, shared);
    case dtypes::uint8: case dtypes::int8: return gpu::measure<gpu::Small<1>, false>(task, shared);
    case dtypes::uint16: case dtypes::int16:
      return gpu::measure<gpu::Small<2>, false>(task, shared);
    case dtypes::complex128: return gpu::measure<gpu::Converted<true>, false>(task, shared);
    case dtypes::int32: case dtypes::uint32: case dtypes::complex32: case dtypes::complex64:
    case dtypes::boolean: case dtypes::float8_e5m2: case dtypes::float8_e4m3fn:
    case dtypes::float8_e5m2fnuz: case dtypes::float8_e4m3fnuz: case dtypes::float8_e8m0fnu:
      return gpu::measure<gpu::Converted<false>, false>(task, shared);
    default: return gpu::measure<gpu::Bytes, false>(task, shared);
  }
}
