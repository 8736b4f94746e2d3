// Measures a tensor on the CPU in one pass: statistics and fingerprint.
//
// The elements in row-major order are cut into the tiles of the fingerprint, 64 KiB each, and tiles into
// pieces that stay in the first-level cache. What is merged in which order depends only on the number of
// elements, so that the result is the same for any number of threads.
#pragma once

#include <dlfcn.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
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
inline double scale_for(double a, double b, double c) {
  auto exponent = [](double value) { return bits_of(value) << 1 >> 53; };
  uint64_t most = exponent(a) > exponent(b) ? exponent(a) : exponent(b);
  most = exponent(c) > most ? exponent(c) : most;
  return double_of((most >= 2046 ? 1 : 2046 - most) << 52);
}

// The measurement of some elements. `mean` is relative to the tensor's origin and multiplied by `scale`.
// `squares` is the sum of the squared differences from the mean, of the same scale.
struct Part {
  int64_t finite = 0, nan = 0, positive_infinite = 0, negative_infinite = 0;
  double low = 0, high = 0;
  int64_t low_key = 0, high_key = 0;  // for int64, and for uint64 minus 2^63
  double mean = 0, squares = 0, scale = 1;
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
    low = smaller(low, other.low);
    high = larger(high, other.high);
    low_key = other.low_key < low_key ? other.low_key : low_key;
    high_key = other.high_key > high_key ? other.high_key : high_key;
    double before = static_cast<double>(finite), size = static_cast<double>(other.finite);
    double apart = other.mean - mean, share = size / (before + size);
    finite += other.finite;
    mean += apart * share;
    squares += other.squares + apart * apart * before * share;
  }
};

__extension__ typedef unsigned __int128 uint128;

struct Keys {
  uint64_t a0[64], a1[64], b0[64], b1[64];
};
constexpr Keys make_keys() {
  Keys keys = {};
  for (int i = 0; i < 64; ++i) {
    keys.a0[i] = fingerprint::key(0, i);
    keys.a1[i] = fingerprint::key(1, i);
    keys.b0[i] = fingerprint::key(2, i);
    keys.b1[i] = fingerprint::key(3, i);
  }
  return keys;
}
constexpr Keys keys = make_keys();

// Adds the product of a vector's words, each plus its key, to two sums.
inline void add_product(const char* at, uint64_t key0, uint64_t key1, uint64_t& low, uint64_t& high) {
  uint64_t words[2];
  std::memcpy(words, at, sizeof words);
  const uint128 product = static_cast<uint128>(words[0] + key0) * (words[1] + key1);
  low += static_cast<uint64_t>(product);
  high += static_cast<uint64_t>(product >> 64);
}

// Adds the products of `count` vectors, from vector `first` of their tile on.
inline void add_vectors(const char* from, int first, int count, fingerprint::Pair& sums) {
  uint64_t low = 0, high = 0;
  for (int done = 0; done < count;) {
    const int row = (first + done) / 64, column = (first + done) % 64;
    const int some = 64 - column < count - done ? 64 - column : count - done;
    const uint64_t b0 = keys.b0[row], b1 = keys.b1[row];
    const char* at = from + std::size_t(done) * fingerprint::vector_bytes;
    for (int i = 0; i < some; ++i, at += fingerprint::vector_bytes) {
      add_product(at, keys.a0[column + i] ^ b0, keys.a1[column + i] ^ b1, low, high);
    }
    done += some;
  }
  sums.low += low;
  sums.high += high;
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

// The same from sums of differences from `shift`, which is relative to the origin. False if `shift` was so
// far from the mean that the squares have lost their precision.
inline bool finish_sums(double sum, double squares, double shift, Part& part) {
  const double mean = sum / static_cast<double>(part.finite);
  part.mean = shift + mean;
  part.squares = larger(squares - sum * mean, 0);
  return part.squares * 128 >= squares;
}

// The same from exact sums of integers. What follows is exact, too: n * squares < 2^63.
inline Part exact(int64_t count, double low, double high, int64_t sum, int64_t squares, double origin) {
  Part part;
  part.finite = count;
  part.low = low;
  part.high = high;
  part.mean = static_cast<double>(sum - count * static_cast<int64_t>(origin)) /
      static_cast<double>(count);
  part.squares = static_cast<double>(count * squares - sum * sum) / static_cast<double>(count);
  return part;
}

inline double centre(double low, double high) { return low + (high / 2 - low / 2); }
// The middle of [low, high], rounded up because int64 reaches one further down: no value of the range differs
// from it by more than int64 holds.
inline int64_t centre(int64_t low, int64_t high) { return (low | high) - ((low ^ high) >> 1); }

// `values` has room for a multiple of 8 and is overwritten.
inline Part measure_values(double* values, int count, bool huge, double origin) {
  Part part;
  if (has_special(values, fill(values, count, 0.0))) count = keep_finite(values, count, part);
  if (!count) return part;
  part.finite = count;
  const int whole = fill(values, count, values[0]);
  extremes<double, Doubles>(values, whole, part.low, part.high);
  if (huge) part.scale = scale_for(part.low, part.high, origin);
  const double middle = centre(part.low * part.scale, part.high * part.scale);
  Doubles* all = reinterpret_cast<Doubles*>(values);
  for (int i = 0; i < whole / 8; ++i) all[i] = all[i] * part.scale - middle;
  moments(values, count, part);
  part.mean += middle - origin * part.scale;
  return part;
}

inline Part measure_keys(int64_t* values, int count, int64_t origin) {
  Part part;
  part.finite = count;
  const int whole = fill(values, count, values[0]);
  extremes<int64_t, Longs>(values, whole, part.low_key, part.high_key);
  const int64_t middle = centre(part.low_key, part.high_key);
  alignas(64) double offsets[block_elements];
  const Longs* all = reinterpret_cast<const Longs*>(values);
  for (int i = 0; i < whole / 8; ++i) {
    reinterpret_cast<Doubles*>(offsets)[i] = __builtin_convertvector(all[i] - middle, Doubles);
  }
  moments(offsets, count, part);
  part.mean += difference(middle, origin);
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

  void add(const Vector& some, const Bits& magnitude, double shift, int group) {
    largest = magnitude > largest ? magnitude : largest;
    lows = some < lows ? some : lows;
    highs = some > highs ? some : highs;
    const Doubles apart = __builtin_convertvector(some, Doubles) - shift;
    sums[group] += apart;
    squares[group] += apart * apart;
  }
};

// Each of these types adds 64 bytes. `beyond` and `least` are limits of the largest magnitude, as bits: for floats the
// infinity, for float64 where squares leave its range.
struct Float32 {
  using Vector = Floats;
  using Bits = Words;
  static constexpr int size = 4;
  static constexpr int64_t beyond = 0x7f800000, least = 0;
  static void add(Lanes<Float32>& lanes, const char* from, double shift, bool) {
    for (int i = 0; i < 2; ++i) {
      Floats some;
      std::memcpy(&some, from + 32 * i, sizeof some);
      lanes.add(some, (Words)some & 0x7fffffff, shift, i);
    }
  }
};

struct BFloat16 {
  using Vector = Floats;
  using Bits = Words;
  static constexpr int size = 2;
  static constexpr int64_t beyond = 0x7f800000, least = 0;
  static void add(Lanes<BFloat16>& lanes, const char* from, double shift, bool) {
    for (int i = 0; i < 4; ++i) {
      Halves some;
      std::memcpy(&some, from + 16 * i, sizeof some);
      const Words bits = __builtin_convertvector(some, Words) << 16;
      lanes.add((Floats)bits, bits & 0x7fffffff, shift, i % 2);
    }
  }
};

struct Float16 {
  using Vector = Floats;
  using Bits = Words;
  static constexpr int size = 2;
  static constexpr int64_t beyond = 0x7c00, least = 0;
  static void add(Lanes<Float16>& lanes, const char* from, double shift, bool) {
    for (int i = 0; i < 4; ++i) {
      Halves some;
      std::memcpy(&some, from + 16 * i, sizeof some);
      const Words bits = __builtin_convertvector(some, Words), magnitude = bits & 0x7fff;
      // The exponents' biases differ by 112, for subnormal numbers too.
      const Floats size = (Floats)(magnitude << 13) * 0x1p112f;
      lanes.add((Floats)((Words)size | (bits & 0x8000) << 16), magnitude, shift, i % 2);
    }
  }
};

struct Float64 {
  using Vector = Doubles;
  using Bits = Longs;
  static constexpr int size = 8;
  static constexpr int64_t beyond = int64_t{1023 + 400} << 52, least = int64_t{1023 - 400} << 52;
  static void add(Lanes<Float64>& lanes, const char* from, double shift, bool odd) {
    Doubles some;
    std::memcpy(&some, from, sizeof some);
    lanes.add(some, (Longs)some & 0x7fffffffffffffff, shift, odd);
  }
};

// What `count` rows of 64 vectors have, statistics and products, from row `first` of their tile on.
// False where one is not within the limits, or `shift` far from the others: then `part` says nothing.
template <class Type>
inline bool measure_rows(
    const char* from, int first, int count, double shift, double origin, Part& part,
    fingerprint::Pair& sums) {
  Lanes<Type> lanes;
  uint64_t low = 0, high = 0;
  for (int row = 0; row < count; ++row) {
    const uint64_t b0 = keys.b0[first + row], b1 = keys.b1[first + row];
    for (int i = 0; i < 64; i += 4, from += 64) {
      for (int j = 0; j < 4; ++j) {
        add_product(from + 16 * j, keys.a0[i + j] ^ b0, keys.a1[i + j] ^ b1, low, high);
      }
      Type::add(lanes, from, shift, i / 4 % 2);
    }
  }
  sums.low += low;
  sums.high += high;
  int64_t most = lanes.largest[0];
  part.low = lanes.lows[0];
  part.high = lanes.highs[0];
  for (int i = 1; i < 8; ++i) {
    most = lanes.largest[i] > most ? lanes.largest[i] : most;
    part.low = smaller(part.low, lanes.lows[i]);
    part.high = larger(part.high, lanes.highs[i]);
  }
  if (most >= Type::beyond || most < Type::least) return false;
  part.finite = count * (64 * 16 / Type::size);
  return finish_sums(
      total(lanes.sums[0] + lanes.sums[1]), total(lanes.squares[0] + lanes.squares[1]), shift - origin, part);
}

// Integers of 8 and 16 bits: sums over up to `piece_bytes` are exact.
template <class Integer, class Sum>
inline Part measure_small(const char* from, int count, double origin) {
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
  return exact(count, low, high, sum, squares, origin);
}

// Dtypes of 8 bits, which have few values: counts how often each one occurs.
inline Part measure_bytes(
    const char* from, int count, const double (&values)[256], double origin) {
  uint32_t often[4][256] = {};
  int i = 0;
  for (; i + 4 <= count; i += 4) {
    for (int j = 0; j < 4; ++j) ++often[j][static_cast<unsigned char>(from[i + j])];
  }
  for (; i < count; ++i) ++often[0][static_cast<unsigned char>(from[i])];
  Part part;
  double sum = 0, squares = 0, shift = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const uint32_t number = often[0][byte] + often[1][byte] + often[2][byte] + often[3][byte];
    if (!number) continue;
    const double value = values[byte];
    if (!is_finite(value)) {
      const bool is_nan = bits_of(value) << 12;
      (is_nan ? part.nan : value > 0 ? part.positive_infinite : part.negative_infinite) += number;
      continue;
    }
    if (!part.finite) shift = part.low = part.high = value;
    part.low = smaller(part.low, value);
    part.high = larger(part.high, value);
    part.finite += number;
    sum += number * (value - shift);
    squares += number * ((value - shift) * (value - shift));
  }
  if (!part.finite) return part;
  finish_sums(sum, squares, shift - origin, part);
  return part;
}

// The number that is subtracted from all elements before they are summed.
struct Origin {
  double value = 0;
  int64_t key = 0;  // for int64, and for uint64 minus 2^63
};

// One tensor: where its elements are, and its origin.
class Pass {
 public:
  Pass(const Layout& layout, const Dimensions& dims, const char* data)
      : dtype_(layout.dtype), size_(elements::size(layout.dtype)),
        bytes_(layout.numel * elements::size(layout.dtype)), data_(data), dims_(dims),
        contiguous_(dims.is_contiguous()) {
    flip_ = dtype_ == dtypes::uint64 ? uint64_t{1} << 63 : 0;
    switch (dtype_) {
      case dtypes::float32: add_rows_ = &Pass::add_rows<Float32>; break;
      case dtypes::bfloat16: add_rows_ = &Pass::add_rows<BFloat16>; break;
      case dtypes::float16: add_rows_ = &Pass::add_rows<Float16>; break;
      case dtypes::float64: add_rows_ = &Pass::add_rows<Float64>; break;
      default: break;
    }
    find_origin();
  }

  Origin origin() const { return {origin_, origin_key_}; }

  // Measures the tiles from `first` up to, but without, `last`.
  Part measure(int64_t first, int64_t last) const {
    Part all;
    Gather gather(dims_, data_, size_);
    alignas(64) char gathered[piece_bytes];
    if (!contiguous_) gather.seek(first * fingerprint::tile_bytes / size_);
    for (int64_t tile = first; tile < last; ++tile) {
      const int64_t begin = tile * fingerprint::tile_bytes;
      const int64_t end = smaller_of(begin + fingerprint::tile_bytes, bytes_);
      fingerprint::Pair sums = {0, 0};
      for (int64_t at = begin; at < end; at += piece_bytes) {
        const int64_t some = smaller_of(piece_bytes, end - at);
        const char* from = data_ + at;
        if (!contiguous_) {
          gather.next(some / size_, gathered);
          from = gathered;
        }
        measure_piece(from, at - begin, some, all, sums);
      }
      const fingerprint::Pair mixed = fingerprint::tile(sums, static_cast<uint64_t>(tile));
      all.total.low += mixed.low;
      all.total.high += mixed.high;
    }
    return all;
  }

 private:
  static int64_t smaller_of(int64_t a, int64_t b) { return a < b ? a : b; }

  // The origin is the first finite element among the first few, or else among some that are far apart. With
  // it, a large offset that all elements have in common costs no precision.
  void find_origin() {
    constexpr int some = 16;
    if (!bytes_ || !elements::is_number(dtype_)) return;
    const int64_t numel = bytes_ / size_;
    if (find_origin(0, static_cast<int>(smaller_of(some, numel))) || numel <= some) return;
    constexpr int64_t places = 256;
    for (int64_t i = 1; i <= places; ++i) {
      // Avoids a product that could overflow.
      if (find_origin((numel - 1) / places * i + (numel - 1) % places * i / places, 1)) return;
    }
  }

  bool find_origin(int64_t place, int count) {
    alignas(64) char first[16 * 16];
    alignas(64) double values[16];
    Gather gather(dims_, data_, size_);
    gather.seek(place);
    gather.next(count, first);
    if (elements::is_wide(dtype_)) {
      std::memcpy(&origin_key_, first, sizeof origin_key_);
      origin_key_ = static_cast<int64_t>(static_cast<uint64_t>(origin_key_) ^ flip_);
      return true;
    }
    to_values(first, count, values);
    for (int i = 0; i < count; ++i) {
      if (!is_finite(values[i])) continue;
      origin_ = values[i];
      return true;
    }
    return false;
  }

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
  void measure_piece(
      const char* from, int64_t at, int64_t bytes, Part& all, fingerprint::Pair& sums) const {
    const int rows = static_cast<int>(bytes / 1024), first = static_cast<int>(at / 1024);
    int64_t done = 0;
    if (rows && (this->*add_rows_)(from, first, rows, all, sums)) done = int64_t{rows} * 1024;
    add_bytes(from + done, at + done, bytes - done, sums);
    measure_elements(from + done, bytes - done, all);
  }

  bool add_no_rows(const char*, int, int, Part&, fingerprint::Pair&) const { return false; }

  template <class Type>
  bool add_rows(const char* from, int first, int rows, Part& all, fingerprint::Pair& sums) const {
    alignas(64) double shift[8];
    convert(dtype_, from, 1, shift);
    Part part;
    if (measure_rows<Type>(from, first, rows, shift[0], origin_, part, sums)) all.merge(part);
    else measure_elements(from, int64_t{rows} * 1024, all);
    return true;
  }

  void measure_elements(const char* from, int64_t bytes, Part& all) const {
    const int count = static_cast<int>(bytes / size_);
    if (!count || !elements::is_number(dtype_)) return;
    switch (dtype_) {
      case dtypes::uint8: return all.merge(measure_small<uint8_t, int32_t>(from, count, origin_));
      case dtypes::int8: return all.merge(measure_small<int8_t, int32_t>(from, count, origin_));
      case dtypes::uint16: return all.merge(measure_small<uint16_t, int64_t>(from, count, origin_));
      case dtypes::int16: return all.merge(measure_small<int16_t, int64_t>(from, count, origin_));
      case dtypes::boolean: {
        int64_t number = 0;
        for (int i = 0; i < count; ++i) number += from[i] != 0;
        return all.merge(exact(count, number == count, number > 0, number, number, origin_));
      }
      case dtypes::float8_e5m2: case dtypes::float8_e4m3fn: case dtypes::float8_e5m2fnuz:
      case dtypes::float8_e4m3fnuz: case dtypes::float8_e8m0fnu:
        return all.merge(measure_bytes(from, count, Float8Values::of(dtype_), origin_));
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
      for (int i = 0; flip_ && i < count; ++i) {
        values[i] = static_cast<int64_t>(static_cast<uint64_t>(values[i]) ^ flip_);
      }
      return measure_keys(values, count, origin_key_);
    }
    alignas(64) double values[block_elements];
    to_values(from, count, values);
    return measure_values(values, count, elements::is_huge(dtype_), origin_);
  }

  const int32_t dtype_;
  const int size_;
  const int64_t bytes_;
  const char* const data_;
  const Dimensions& dims_;
  const bool contiguous_;
  bool (Pass::*add_rows_)(const char*, int, int, Part&, fingerprint::Pair&) const =
      &Pass::add_no_rows;
  uint64_t flip_ = 0;
  double origin_ = 0;
  int64_t origin_key_ = 0;
};

inline void finish(
    const Part& part, const Origin& origin, int32_t dtype, int64_t bytes, Measured& to) {
  const uint64_t flip = dtype == dtypes::uint64 ? uint64_t{1} << 63 : 0;
  to = Measured{};
  const fingerprint::Pair text = fingerprint::finish(part.total, static_cast<uint64_t>(bytes));
  to.fingerprint[0] = text.low;
  to.fingerprint[1] = text.high;
  to.finite = elements::is_number(dtype) ? part.finite : -1;
  to.nan = part.nan;
  to.positive_infinite = part.positive_infinite;
  to.negative_infinite = part.negative_infinite;
  if (!part.finite) return;
  double low = part.low, high = part.high;
  if (elements::is_wide(dtype)) {
    auto number = [&](int64_t key) {
      const uint64_t value = static_cast<uint64_t>(key) ^ flip;
      return flip ? static_cast<double>(value) : static_cast<double>(key);
    };
    to.low = static_cast<uint64_t>(part.low_key) ^ flip;
    to.high = static_cast<uint64_t>(part.high_key) ^ flip;
    low = number(part.low_key);
    high = number(part.high_key);
    // Differences from the middle of the extremes, which may be nearer to the mean than the origin is.
    const int64_t middle = centre(part.low_key, part.high_key);
    to.mean = number(middle) + (part.mean + difference(origin.key, middle));
  } else {
    to.low = bits_of(low);
    to.high = bits_of(high);
    const double middle = centre(low, high);
    to.mean = middle + (part.mean + (origin.value * part.scale - middle * part.scale)) / part.scale;
  }
  to.mean = larger(smaller(to.mean, high), low);  // rounding may have moved it outside
  if (part.finite > 1) {
    to.deviation = std::sqrt(part.squares / static_cast<double>(part.finite - 1)) / part.scale;
  }
}

// Counts finite elements that are near the limit of their dtype: in another pass, if the extremes say that
// there may be some.
inline int64_t count_near_limit(
    const Layout& layout, const Dimensions& dims, const char* data, const Measured& of) {
  const int32_t dtype = layout.dtype;
  const double half = elements::half_of_largest(dtype);
  if (half == 0 || of.finite <= 0) return 0;
  const double low = double_of(of.low), high = double_of(of.high);
  if (high <= half && low >= -half) return 0;
  const int size = elements::size(dtype);
  alignas(64) double values[block_elements];
  alignas(64) char room[block_elements * 2];
  Gather gather(dims, data, size);
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
  static const Parallel parallel = reinterpret_cast<Parallel>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
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
inline bool measure_on_cpu(const Layout& layout, const void* data, int threads, Measured& to) {
  Dimensions dims;
  const int size = elements::size(layout.dtype);
  if (!size || !dims.read(layout)) return false;
  const int64_t bytes = layout.numel * size;
  const int64_t tiles = (bytes + fingerprint::tile_bytes - 1) / fingerprint::tile_bytes;
  const int64_t least = (tiles + cpu::most_chunks - 1) / cpu::most_chunks;
  const int64_t chunk = least > cpu::chunk_tiles ? least : cpu::chunk_tiles;
  const int64_t chunks = (tiles + chunk - 1) / chunk;
  const cpu::Pass pass(layout, dims, static_cast<const char*>(data));
  auto measure = [&](int64_t i) {
    return pass.measure(i * chunk, (i + 1) * chunk < tiles ? (i + 1) * chunk : tiles);
  };
  cpu::Part all;
  if (chunks > 1 && threads > 1) {
    std::vector<cpu::Part> parts(static_cast<std::size_t>(chunks));
    if (cpu::share(chunks, threads, [&](int64_t i) { parts[static_cast<std::size_t>(i)] = measure(i); })) {
      for (const cpu::Part& part : parts) all.merge(part);
      cpu::finish(all, pass.origin(), layout.dtype, bytes, to);
      to.near_limit = cpu::count_near_limit(layout, dims, static_cast<const char*>(data), to);
      return true;
    }
  }
  for (int64_t i = 0; i < chunks; ++i) all.merge(measure(i));
  cpu::finish(all, pass.origin(), layout.dtype, bytes, to);
  to.near_limit = cpu::count_near_limit(layout, dims, static_cast<const char*>(data), to);
  return true;
}

// The fingerprint of some bytes, in hexadecimal.
inline std::string fingerprint_of(const std::string& bytes) {
  const int64_t size = static_cast<int64_t>(bytes.size()), stride = 1;
  Measured measured;
  measure_on_cpu({dtypes::uint8, 1, size, &size, &stride, -1}, bytes.data(), 1, measured);
  return hexadecimal(measured.fingerprint);
}

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

}  // namespace inductor_rewriter
