// Measures a tensor on the CPU in one pass: statistics and fingerprint.
//
// The elements in row-major order are cut into the tiles of the fingerprint, 64 KiB each, and tiles into
// pieces that stay in the first-level cache. What is merged in which order depends only on the number of
// elements, so that the result is the same for any number of threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "../convert.h"
#include "layout.h"

namespace inductor_rewriter {

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3", "no-fast-math", "tree-loop-vectorize")
#endif

namespace cpu {

constexpr int block_elements = 1024;
constexpr int64_t piece_bytes = 16384;  // a quarter of a tile
constexpr int64_t chunk_tiles = 8;      // how many tiles a thread takes at a time, at least
constexpr int64_t most_chunks = 1024;

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

// Integers of 8 and 16 bits: sums over up to `piece_bytes` are exact.
template <class Integer, class Sum>
inline Part measure_small(const char* from, int count) {
  Integer low = 0, high = 0;
  std::memcpy(&low, from, sizeof low);
  high = low;
  Sum sum = 0, squares = 0;
  for (int i = 0; i < count; ++i) {
    Integer value;
    std::memcpy(&value, from + i * sizeof value, sizeof value);
    low = value < low ? value : low;
    high = value > high ? value : high;
    sum += static_cast<Sum>(value);
    squares += static_cast<Sum>(static_cast<Sum>(value) * static_cast<Sum>(value));
  }
  return exact(count, low, high, sum, squares);
}

// Dtypes of 8 bits, which have few values: counts how often each one occurs.
inline Part measure_bytes(const char* from, int count, const double (&values)[256]) {
  uint32_t often[4][256] = {};
  int i = 0;
  for (; i + 4 <= count; i += 4) {
    for (int j = 0; j < 4; ++j) ++often[j][static_cast<unsigned char>(from[i + j])];
  }
  for (; i < count; ++i) ++often[0][static_cast<unsigned char>(from[i])];
  Part part;
  double sum = 0, squares = 0, low = 0, high = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const uint32_t number = often[0][byte] + often[1][byte] + often[2][byte] + often[3][byte];
    if (!number) continue;
    const double value = values[byte];
    if (!is_finite(value)) {
      const bool is_nan = bits_of(value) << 12;
      (is_nan ? part.nan : value > 0 ? part.positive_infinite : part.negative_infinite) += number;
      continue;
    }
    if (!part.finite) part.shift = low = high = value;
    low = smaller(low, value);
    high = larger(high, value);
    part.finite += number;
    sum += number * (value - part.shift);
    squares += number * ((value - part.shift) * (value - part.shift));
  }
  if (!part.finite) return part;
  part.low = key_of(low);
  part.high = key_of(high);
  finish_sums(sum, squares, part);
  return part;
}

// One tensor, and where its elements are.
class Pass {
 public:
  Pass(const Layout& layout, const Dimensions& dims)
      : dtype_(layout.dtype), size_(elements::size(layout.dtype)),
        bytes_(layout.numel * elements::size(layout.dtype)), data_(layout.data), dims_(dims),
        contiguous_(dims.is_contiguous()) {}

  // Measures the tiles from `first` up to, but without, `last`.
  Part measure(int64_t first, int64_t last) const {
    Part all;
    Gather gather(dims_, data_, size_);
    const int64_t room = contiguous_ ? 0 : std::min(last - first, chunk_tiles) * fingerprint::tile_bytes;
    const std::unique_ptr<char[]> gathered(new char[static_cast<std::size_t>(room)]);
    if (!contiguous_) gather.seek(first * fingerprint::tile_bytes / size_);
    const char* from = gathered.get();
    for (int64_t tile = first; tile < last; ++tile) {
      const int64_t begin = tile * fingerprint::tile_bytes, left = bytes_ - begin;
      const int64_t bytes = std::min<int64_t>(fingerprint::tile_bytes, left);
      if (contiguous_) {
        from = data_ + begin;
      } else if (from += fingerprint::tile_bytes; (tile - first) % chunk_tiles == 0) {
        gather.next(std::min(room, left) / size_, gathered.get());
        from = gathered.get();
      }
      fingerprint::Pair sums = {0, 0};
      for (int64_t at = 0; at < bytes; at += piece_bytes) {
        measure_piece(from + at, at, std::min<int64_t>(piece_bytes, bytes - at), all, sums);
      }
      const fingerprint::Pair mixed = fingerprint::tile(sums, static_cast<uint64_t>(tile));
      all.total.low += mixed.low;
      all.total.high += mixed.high;
    }
    return all;
  }

 private:
  void to_values(const char* from, int count, double* values) const {
    if (!elements::is_complex(dtype_)) {
      convert(dtype_, from, count, values);
      if (dtype_ == dtypes::boolean) {
        for (int i = 0; i < count; ++i) values[i] = values[i] != 0;
      }
      return;
    }
    alignas(64) double parts[2 * block_elements];
    convert(dtype_, from, count, parts);
    magnitudes(parts, count, dtype_ == dtypes::complex128, values);
  }

  // Measures up to `piece_bytes` bytes, which begin `at` bytes after the start of their tile.
  void measure_piece(const char* from, int64_t at, int64_t bytes, Part& all, fingerprint::Pair& sums) const {
    const int rows = static_cast<int>(bytes / 1024), first = static_cast<int>(at / 1024);
    int64_t done = rows * int64_t{1024};
    switch (rows ? dtype_ : dtypes::uint8) {
      case dtypes::float32: add_rows<Float32>(from, first, rows, all, sums); break;
      case dtypes::bfloat16: add_rows<BFloat16>(from, first, rows, all, sums); break;
      case dtypes::float16: add_rows<Float16>(from, first, rows, all, sums); break;
      case dtypes::float64: add_rows<Float64>(from, first, rows, all, sums); break;
      default: done = 0;
    }
    add_bytes(from + done, at + done, bytes - done, sums);
    measure_elements(from + done, bytes - done, all);
  }

  template <class Type>
  void add_rows(const char* from, int first, int rows, Part& all, fingerprint::Pair& sums) const {
    alignas(64) double shift[8];
    convert(dtype_, from, 1, shift);
    Part part;
    part.shift = shift[0];
    if (measure_rows<Type>(from, first, rows, part, sums)) all.merge(part);
    else measure_elements(from, int64_t{rows} * 1024, all);
  }

  void measure_elements(const char* from, int64_t bytes, Part& all) const {
    const int count = static_cast<int>(bytes / size_);
    if (!count || !elements::is_number(dtype_)) return;
    switch (dtype_) {
      case dtypes::uint8: return all.merge(measure_small<uint8_t, int32_t>(from, count));
      case dtypes::int8: return all.merge(measure_small<int8_t, int32_t>(from, count));
      case dtypes::uint16: return all.merge(measure_small<uint16_t, int64_t>(from, count));
      case dtypes::int16: return all.merge(measure_small<int16_t, int64_t>(from, count));
      case dtypes::boolean: {
        int64_t number = 0;
        for (int i = 0; i < count; ++i) number += from[i] != 0;
        return all.merge(exact(count, number == count, number > 0, number, number));
      }
      case dtypes::float8_e5m2: case dtypes::float8_e4m3fn: case dtypes::float8_e5m2fnuz:
      case dtypes::float8_e4m3fnuz: case dtypes::float8_e8m0fnu:
        return all.merge(measure_bytes(from, count, Float8Values::of(dtype_)));
      default: break;
    }
    for (int done = 0; done < count; done += block_elements) {
      const int some = count - done < block_elements ? count - done : block_elements;
      all.merge(measure_block(from + std::size_t(done) * std::size_t(size_), some));
    }
  }

  Part measure_block(const char* from, int count) const {
    if (elements::is_wide(dtype_)) {
      alignas(64) int64_t values[block_elements];
      std::memcpy(values, from, count * sizeof *values);
      for (int i = 0; dtype_ == dtypes::uint64 && i < count; ++i) values[i] ^= INT64_MIN;
      return measure_keys(values, count);
    }
    alignas(64) double values[block_elements];
    to_values(from, count, values);
    return measure_values(values, count, elements::is_huge(dtype_));
  }

  const int32_t dtype_;
  const int size_;
  const int64_t bytes_;
  const char* const data_;
  const Dimensions& dims_;
  const bool contiguous_;
};

inline Measured finish(const Part& part, int32_t dtype, int64_t bytes) {
  Measured to{};
  const fingerprint::Pair text = fingerprint::finish(part.total, static_cast<uint64_t>(bytes));
  to.fingerprint[0] = text.low;
  to.fingerprint[1] = text.high;
  to.finite = elements::is_number(dtype) ? part.finite : -1;
  to.nan = part.nan;
  to.positive_infinite = part.positive_infinite;
  to.negative_infinite = part.negative_infinite;
  if (!part.finite) return to;
  const bool is_wide = elements::is_wide(dtype), is_unsigned = dtype == dtypes::uint64;
  const uint64_t flip = is_unsigned ? uint64_t{1} << 63 : 0;
  auto number = [&](int64_t key) {
    if (!is_wide) return value_of(key);
    return is_unsigned ? static_cast<double>(static_cast<uint64_t>(key) ^ flip) : static_cast<double>(key);
  };
  const double low = number(part.low), high = number(part.high);
  to.low = is_wide ? static_cast<uint64_t>(part.low) ^ flip : bits_of(low);
  to.high = is_wide ? static_cast<uint64_t>(part.high) ^ flip : bits_of(high);
  to.mean = is_wide ? number(part.shift_key) + part.mean : (part.shift * part.scale + part.mean) / part.scale;
  to.mean = larger(smaller(to.mean, high), low);  // rounding may have moved it outside
  if (part.finite > 1) {
    to.deviation = std::sqrt(part.squares / static_cast<double>(part.finite - 1)) / part.scale;
  }
  return to;
}

// Counts finite elements that are near the limit of their dtype: in another pass, if the extremes say that
// there may be some.
inline int64_t count_near_limit(const Layout& layout, const Dimensions& dims, const Measured& of) {
  const int32_t dtype = layout.dtype;
  const double half = elements::half_of_largest(dtype);
  if (half == 0 || of.finite <= 0) return 0;
  const double low = double_of(of.low), high = double_of(of.high);
  if (high <= half && low >= -half) return 0;
  const int size = elements::size(dtype);
  alignas(64) double values[block_elements];
  alignas(64) char room[block_elements * 2];
  Gather gather(dims, layout.data, size);
  if (layout.numel) gather.seek(0);
  int64_t count = 0;
  for (int64_t done = 0; done < layout.numel; done += block_elements) {
    const int64_t left = layout.numel - done;
    const int some = left < block_elements ? static_cast<int>(left) : block_elements;
    gather.next(some, room);
    convert(dtype, room, some, values);
    for (int i = 0; i < some; ++i) {
      count += is_finite(values[i]) && elements::is_near_limit(values[i], half, dtype);
    }
  }
  return count;
}

// Does `work(0)` to `work(count - 1)` in threads of the OpenMP library that torch has loaded, whatever compiler
// this was compiled with. False, with nothing done, if there is none.
template <class Work>
inline bool share(int64_t count, int threads, const Work& work) {
  using Parallel = void (*)(void (*)(void*), void*, unsigned, unsigned);
  static const Parallel parallel = loaded("GOMP_parallel");
  if (!parallel) return false;
  struct Shared {
    const Work& work;
    const int64_t count;
    std::atomic<int64_t> next;
  } shared{work, count, {0}};
  auto take = [](void* of) {
    Shared& all = *static_cast<Shared*>(of);
    for (int64_t i; (i = all.next++) < all.count;) all.work(i);
  };
  parallel(take, &shared, static_cast<unsigned>(threads), 0);
  return true;
}

}  // namespace cpu

// Measures a tensor on the CPU. Elements are read as they are in memory: torch's bits for conjugate and
// negative views are ignored. With more than one thread, large tensors are shared among OpenMP's threads.
// False, with nothing measured, for more than 64 dimensions or an unknown dtype.
inline bool measure_on_cpu(const Layout& layout, int threads, Measured& to) {
  Dimensions dims;
  const int size = elements::size(layout.dtype);
  if (!size || !dims.read(layout)) return false;
  const int64_t bytes = layout.numel * size;
  const int64_t tiles = (bytes + fingerprint::tile_bytes - 1) / fingerprint::tile_bytes;
  const int64_t chunk = std::max((tiles + cpu::most_chunks - 1) / cpu::most_chunks, cpu::chunk_tiles);
  const int64_t chunks = (tiles + chunk - 1) / chunk;
  const cpu::Pass pass(layout, dims);
  const auto measure = [&](int64_t i) { return pass.measure(i * chunk, std::min((i + 1) * chunk, tiles)); };
  std::vector<cpu::Part> parts(static_cast<std::size_t>(chunks > 1 && threads > 1 ? chunks : 0));
  const bool is_shared = !parts.empty() &&
      cpu::share(chunks, threads, [&](int64_t i) { parts[static_cast<std::size_t>(i)] = measure(i); });
  cpu::Part all;
  for (int64_t i = 0; i < chunks; ++i) all.merge(is_shared ? parts[static_cast<std::size_t>(i)] : measure(i));
  to = cpu::finish(all, layout.dtype, bytes);
  to.near_limit = cpu::count_near_limit(layout, dims, to);
  return true;
}

// The fingerprint of some bytes, in hexadecimal.
inline std::string fingerprint_of(const std::string& bytes) {
  const int64_t size = static_cast<int64_t>(bytes.size()), stride = 1;
  Measured measured;
  measure_on_cpu({dtypes::uint8, 1, size, &size, &stride, bytes.data()}, 1, measured);
  return hexadecimal(measured.fingerprint);
}

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

}  // namespace inductor_rewriter
