// What one part of a tensor gives on the CPU: statistics and products of the fingerprint, and how parts are merged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "../convert.h"
#include "fingerprint.h"

namespace inductor_rewriter::cpu {

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3", "no-fast-math", "tree-loop-vectorize")
#endif

constexpr int block_elements = 1024;

// The difference of two integers, which may be too large for int64.
inline double difference(int64_t a, int64_t b) {
  return a > b ? static_cast<double>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b))
               : -static_cast<double>(static_cast<uint64_t>(b) - static_cast<uint64_t>(a));
}

inline double smaller(double a, double b) { return b < a ? b : a; }
inline double larger(double a, double b) { return b > a ? b : a; }

// A power of two that brings the larger of these magnitudes near one.
inline double scale_for(double a, double b) {
  auto exponent = [](double value) { return bits_of(value) << 1 >> 53; };
  const uint64_t most = exponent(a) > exponent(b) ? exponent(a) : exponent(b);
  return double_of((most >= 2046 ? 1 : 2046 - most) << 52);
}

// Orders as the numbers do, and back.
inline int64_t key_of(double value) {
  const int64_t bits = static_cast<int64_t>(bits_of(value));
  return bits ^ (bits >> 63 & INT64_MAX);
}
inline double value_of(int64_t key) { return double_of(static_cast<uint64_t>(key ^ (key >> 63 & INT64_MAX))); }

// The measurement of some elements. Extremes are keys: of float64, int64, or uint64 minus 2^63. `mean` is relative to
// `shift`, or for integers of 64 bits to `shift_key`, and multiplied by `scale`: an offset that all elements have in
// common costs no precision. `squares` is the sum of the squared differences from the mean, of the same scale.
struct Part {
  int64_t finite = 0, nan = 0, positive_infinite = 0, negative_infinite = 0;
  int64_t low = 0, high = 0, shift_key = 0;
  double shift = 0, mean = 0, squares = 0, scale = 1;
  fingerprint::Pair total = {0, 0};

  void rescale(double to) {
    double change = to / scale;
    mean *= change;
    squares = squares * change * change;
    scale = to;
  }

  // Chan's formula.
  void merge(Part other) {
    nan += other.nan;
    positive_infinite += other.positive_infinite;
    negative_infinite += other.negative_infinite;
    total.low += other.total.low;
    total.high += other.total.high;
    if (!other.finite) return;
    if (!finite) {
      other.nan = nan;
      other.positive_infinite = positive_infinite;
      other.negative_infinite = negative_infinite;
      other.total = total;
      *this = other;
      return;
    }
    if (other.scale < scale) rescale(other.scale);
    if (scale < other.scale) other.rescale(scale);
    low = other.low < low ? other.low : low;
    high = other.high > high ? other.high : high;
    const double before = static_cast<double>(finite), size = static_cast<double>(other.finite);
    const double apart = (other.shift * scale - shift * scale) + difference(other.shift_key, shift_key) +
        (other.mean - mean);
    const double share = size / (before + size);
    finite += other.finite;
    mean += apart * share;
    squares += other.squares + apart * apart * before * share;
  }
};

__extension__ typedef unsigned __int128 uint128;

constexpr fingerprint::Keys<fingerprint::Pair> keys;

// Asks for the memory that follows these bytes at some distance. With so many instructions for each line of its cache,
// a processor looks only a few lines ahead by itself: of float32 in memory it reads 11 GB/s in place of 4 (Sapphire
// Rapids).
inline void look_ahead(const char* from, int bytes) {
  const uintptr_t ahead = reinterpret_cast<uintptr_t>(from) + 4096;  // no pointer: it may be beyond the tensor
  for (int i = 0; i < bytes; i += 64) __builtin_prefetch(reinterpret_cast<const void*>(ahead + i));
}

// Adds the product of a vector's words, each plus its key, which is the join of two, to the sums.
inline void add_product(
    const char* at, const fingerprint::Pair& a, const fingerprint::Pair& b, fingerprint::Pair& sums) {
  uint64_t words[2];
  std::memcpy(words, at, sizeof words);
  const uint128 product = static_cast<uint128>(words[0] + (a.low ^ b.low)) * (words[1] + (a.high ^ b.high));
  sums.low += static_cast<uint64_t>(product);
  sums.high += static_cast<uint64_t>(product >> 64);
}

// Adds the products of `count` vectors, from vector `first` of their tile on.
inline void add_vectors(const char* from, int first, int count, fingerprint::Pair& sums) {
  fingerprint::Pair own = sums;  // in registers
  for (int done = 0; done < count;) {
    const int row = (first + done) / 64, column = (first + done) % 64;
    const int some = 64 - column < count - done ? 64 - column : count - done;
    const fingerprint::Pair b = keys.b[row];
    const char* at = from + std::size_t(done) * fingerprint::vector_bytes;
    look_ahead(at, 1024);
    for (int i = 0; i < some; ++i, at += fingerprint::vector_bytes) add_product(at, keys.a[column + i], b, own);
    done += some;
  }
  sums = own;
}

inline void add_bytes(const char* from, int64_t first_byte, int64_t bytes, fingerprint::Pair& sums) {
  const int first = static_cast<int>(first_byte / fingerprint::vector_bytes);
  const int whole = static_cast<int>(bytes / fingerprint::vector_bytes);
  add_vectors(from, first, whole, sums);
  const int64_t rest = bytes % fingerprint::vector_bytes;
  if (!rest) return;
  char last[fingerprint::vector_bytes] = {};
  std::memcpy(last, from + whole * fingerprint::vector_bytes, static_cast<std::size_t>(rest));
  add_vectors(last, first + whole, 1, sums);
}

// Pads the values to a multiple of 8. Returns the new count.
template <class T>
inline int fill(T* values, int count, T with) {
  int whole = (count + 7) / 8 * 8;
  for (int i = count; i < whole; ++i) values[i] = with;
  return whole;
}

inline bool has_special(const double* values, int count) {
  Longs special = {};
  for (int i = 0; i < count; i += 8) {
    const Longs& bits = *reinterpret_cast<const Longs*>(values + i);
    special |= (bits & static_cast<int64_t>(infinity_bits)) == static_cast<int64_t>(infinity_bits);
  }
  int64_t any = 0;
  for (int i = 0; i < 8; ++i) any |= special[i];
  return any != 0;
}

// Moves the finite values to the front, and counts the others.
inline int keep_finite(double* values, int count, Part& part) {
  int kept = 0;
  for (int i = 0; i < count; ++i) {
    const uint64_t bits = bits_of(values[i]), size = bits << 1;
    values[kept] = values[i];
    kept += size < infinity_bits << 1;
    part.nan += size > infinity_bits << 1;
    part.positive_infinite += bits == infinity_bits;
    part.negative_infinite += bits == (infinity_bits | uint64_t{1} << 63);
  }
  return kept;
}

template <class T, class Vector>
inline void extremes(const T* values, int count, T& low, T& high) {
  const Vector* all = reinterpret_cast<const Vector*>(values);
  Vector lows = all[0], highs = all[0];
  for (int i = 1; i < count / 8; ++i) {
    lows = all[i] < lows ? all[i] : lows;
    highs = all[i] > highs ? all[i] : highs;
  }
  low = lows[0];
  high = highs[0];
  for (int i = 1; i < 8; ++i) {
    low = lows[i] < low ? lows[i] : low;
    high = highs[i] > high ? highs[i] : high;
  }
}

inline double total(const Doubles& sums) {
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

// Computes mean and squares of `count` differences into `part`. Overwrites what follows them in memory.
// Several sums lose less to rounding than one, and do not depend on one another.
inline void moments(double* values, int count, Part& part) {
  const int whole = fill(values, count, 0.0);
  const Doubles* all = reinterpret_cast<const Doubles*>(values);
  const int vectors = whole / 8;
  Doubles sums[4] = {}, squares[4] = {};
  int i = 0;
  for (; i + 4 <= vectors; i += 4) {
    for (int j = 0; j < 4; ++j) sums[j] += all[i + j];
  }
  for (; i < vectors; ++i) sums[0] += all[i];
  const double mean = total((sums[0] + sums[1]) + (sums[2] + sums[3])) / count;
  fill(values, count, mean);
  for (i = 0; i + 4 <= vectors; i += 4) {
    for (int j = 0; j < 4; ++j) squares[j] += (all[i + j] - mean) * (all[i + j] - mean);
  }
  for (; i < vectors; ++i) squares[0] += (all[i] - mean) * (all[i] - mean);
  part.mean = mean;
  part.squares = total((squares[0] + squares[1]) + (squares[2] + squares[3]));
}

// The same from sums of differences from the shift. False if that was so far from the mean that the squares have lost
// their precision.
inline bool finish_sums(double sum, double squares, Part& part) {
  part.mean = sum / static_cast<double>(part.finite);
  part.squares = larger(squares - sum * part.mean, 0);
  return part.squares * 128 >= squares;
}

// The same from exact sums of integers. What follows is exact, too: n * squares < 2^63.
inline Part exact(int64_t count, int64_t low, int64_t high, int64_t sum, int64_t squares) {
  Part part;
  part.finite = count;
  part.shift = static_cast<double>(low);
  part.low = key_of(part.shift);
  part.high = key_of(static_cast<double>(high));
  part.mean = static_cast<double>(sum - count * low) / static_cast<double>(count);
  part.squares = static_cast<double>(count * squares - sum * sum) / static_cast<double>(count);
  return part;
}

inline double centre(double low, double high) { return low + (high / 2 - low / 2); }
// The middle of [low, high], rounded up because int64 reaches one further down: no value of the range differs
// from it by more than int64 holds.
inline int64_t centre(int64_t low, int64_t high) { return (low | high) - ((low ^ high) >> 1); }

// `values` has room for a multiple of 8 and is overwritten.
inline Part measure_values(double* values, int count, bool huge) {
  Part part;
  if (has_special(values, fill(values, count, 0.0))) count = keep_finite(values, count, part);
  if (!count) return part;
  part.finite = count;
  const int whole = fill(values, count, values[0]);
  double low, high;
  extremes<double, Doubles>(values, whole, low, high);
  part.low = key_of(low);
  part.high = key_of(high);
  part.shift = centre(low, high);
  if (huge) part.scale = scale_for(low, high);
  Doubles* all = reinterpret_cast<Doubles*>(values);
  for (int i = 0; i < whole / 8; ++i) all[i] = all[i] * part.scale - part.shift * part.scale;
  moments(values, count, part);
  return part;
}

inline Part measure_keys(int64_t* values, int count) {
  Part part;
  part.finite = count;
  const int whole = fill(values, count, values[0]);
  extremes<int64_t, Longs>(values, whole, part.low, part.high);
  part.shift_key = centre(part.low, part.high);
  alignas(64) double offsets[block_elements];
  const Longs* all = reinterpret_cast<const Longs*>(values);
  for (int i = 0; i < whole / 8; ++i) {
    reinterpret_cast<Doubles*>(offsets)[i] = __builtin_convertvector(all[i] - part.shift_key, Doubles);
  }
  moments(offsets, count, part);
  return part;
}

// Floats in vectors of eight, for two groups of sums, which do not depend on one another.
template <class Type>
struct Lanes {
  using Vector = typename Type::Vector;
  using Bits = typename Type::Bits;
  Doubles sums[2] = {}, squares[2] = {};
  Vector lows = Vector{} + __builtin_inff(), highs = -lows;
  Bits largest = {};  // magnitudes

  void add(const Vector& some, double shift, int group) {
    const Bits magnitude = (Bits)some & Type::magnitude;
    largest = magnitude > largest ? magnitude : largest;
    lows = some < lows ? some : lows;
    highs = some > highs ? some : highs;
    const Doubles apart = __builtin_convertvector(some, Doubles) - shift;
    sums[group] += apart;
    squares[group] += apart * apart;
  }
};

// How eight elements are loaded as floats. `beyond` and `least` are limits of the largest magnitude, as bits: of the
// infinity as it is converted, and for float64 where squares leave its range.
struct Float32 {
  using Vector = Floats;
  using Bits = Words;
  static constexpr int size = 4;
  static constexpr int32_t magnitude = INT32_MAX;
  static constexpr int64_t beyond = 0x7f800000, least = 0;
  static void load(const char* from, Floats& to) { std::memcpy(&to, from, sizeof to); }
};
struct BFloat16 : Float32 {
  static constexpr int size = 2;
  static void load(const char* from, Floats& to) {
    Halves some;
    std::memcpy(&some, from, sizeof some);
    widen_bfloat16(some, to);
  }
};
struct Float16 : BFloat16 {
  static constexpr int64_t beyond = float16_infinity;
  static void load(const char* from, Floats& to) {
    Halves some;
    std::memcpy(&some, from, sizeof some);
    widen_float16(some, to);
  }
};
struct Float64 {
  using Vector = Doubles;
  using Bits = Longs;
  static constexpr int size = 8;
  static constexpr int64_t magnitude = INT64_MAX;
  static constexpr int64_t beyond = int64_t{1023 + 400} << 52, least = int64_t{1023 - 400} << 52;
  static void load(const char* from, Doubles& to) { std::memcpy(&to, from, sizeof to); }
};

// What `count` rows of 64 vectors have, statistics and products, from row `first` of their tile on.
// False where one is not within the limits, or the shift far from the others: then `part` has nothing else.
template <class Type>
inline bool measure_rows(const char* from, int first, int count, Part& part, fingerprint::Pair& sums) {
  constexpr int per = 16 / Type::size;  // times eight elements in 128 bytes
  const double shift = part.shift;
  Lanes<Type> lanes;
  fingerprint::Pair own = sums;  // in registers
  for (int row = 0; row < count; ++row) {
    const fingerprint::Pair b = keys.b[first + row];
    for (int i = 0; i < 64; i += 8, from += 128) {
      look_ahead(from, 128);
      for (int j = 0; j < 8; ++j) add_product(from + 16 * j, keys.a[i + j], b, own);
      for (int j = 0; j < per; ++j) {
        typename Type::Vector some;
        Type::load(from + 128 / per * j, some);
        lanes.add(some, shift, j % 2);
      }
    }
  }
  sums = own;
  int64_t most = lanes.largest[0];
  double lowest = lanes.lows[0], highest = lanes.highs[0];
  for (int i = 1; i < 8; ++i) {
    most = lanes.largest[i] > most ? lanes.largest[i] : most;
    lowest = smaller(lowest, lanes.lows[i]);
    highest = larger(highest, lanes.highs[i]);
  }
  if (most >= Type::beyond || most < Type::least) return false;
  part.low = key_of(lowest);
  part.high = key_of(highest);
  part.finite = count * (1024 / Type::size);
  return finish_sums(total(lanes.sums[0] + lanes.sums[1]), total(lanes.squares[0] + lanes.squares[1]), part);
}

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

}  // namespace inductor_rewriter::cpu
