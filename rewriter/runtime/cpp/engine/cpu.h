// One pass over a tensor on the CPU: statistics and fingerprint.
//
// The elements in row-major order are cut into tiles of 64 KiB, those of the fingerprint, and tiles
// into blocks that stay in the nearest cache. What is merged, and in which order, depends on the
// number of elements alone: the result is the same for any number of threads.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "../convert.h"
#include "layout.h"

namespace {
namespace inductor_rewriter {

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3", "no-fast-math")
#endif

namespace cpu {

constexpr int block_elements = 1024;
constexpr int64_t chunk_tiles = 8;   // what a thread takes at a time, at least
constexpr int64_t most_chunks = 1024;

// The difference of two integers whose difference int64 may not hold.
inline double difference(int64_t a, int64_t b) {
  return a > b ? static_cast<double>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b))
               : -static_cast<double>(static_cast<uint64_t>(b) - static_cast<uint64_t>(a));
}

inline double smaller(double a, double b) { return b < a ? b : a; }
inline double larger(double a, double b) { return b > a ? b : a; }

// A power of two, exact, that brings the largest of these magnitudes to the order of one.
inline double scale_for(double a, double b, double c) {
  auto exponent = [](double value) { return bits_of(value) << 1 >> 53; };
  uint64_t most = exponent(a) > exponent(b) ? exponent(a) : exponent(b);
  most = exponent(c) > most ? exponent(c) : most;
  return double_of((most >= 2046 ? 1 : 2046 - most) << 52);
}

// What is known of some elements. The mean is relative to the tensor's origin, and times `scale`,
// as the root of `squares` is: the sum of the squared differences from the mean.
struct Part {
  int64_t finite = 0, nan = 0, positive_infinite = 0, negative_infinite = 0;
  double low = 0, high = 0;
  int64_t low_key = 0, high_key = 0;  // of int64, and of uint64 less 2^63
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
      finite = other.finite;
      low = other.low;
      high = other.high;
      low_key = other.low_key;
      high_key = other.high_key;
      mean = other.mean;
      squares = other.squares;
      scale = other.scale;
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

// The tables of the fingerprint.
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

// Adds the products of `count` vectors from place `first` of their tile on.
inline void add_vectors(const char* from, int first, int count, fingerprint::Pair& sums) {
  uint64_t low = 0, high = 0;
  for (int done = 0; done < count;) {
    const int row = (first + done) / 64, column = (first + done) % 64;
    const int some = 64 - column < count - done ? 64 - column : count - done;
    const uint64_t b0 = keys.b0[row], b1 = keys.b1[row];
    const char* at = from + std::size_t(done) * fingerprint::vector_bytes;
    for (int i = 0; i < some; ++i) {
      uint64_t words[2];
      std::memcpy(words, at + i * fingerprint::vector_bytes, sizeof words);
      uint64_t a = words[0] + (keys.a0[column + i] ^ b0);
      uint64_t b = words[1] + (keys.a1[column + i] ^ b1);
      const uint128 product = static_cast<uint128>(a) * b;
      low += static_cast<uint64_t>(product);
      high += static_cast<uint64_t>(product >> 64);
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

// Fill up to a multiple of 8; the new count.
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

// Moves the finite ones together, and counts the others.
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

// Mean and squares of `count` differences, to `part`. Overwrites what is after them.
inline void moments(double* values, int count, Part& part) {
  const int whole = fill(values, count, 0.0);
  const Doubles* all = reinterpret_cast<const Doubles*>(values);
  Doubles sums = {}, squares = {};
  for (int i = 0; i < whole / 8; ++i) sums += all[i];
  const double mean = total(sums) / count;
  fill(values, count, mean);
  for (int i = 0; i < whole / 8; ++i) squares += (all[i] - mean) * (all[i] - mean);
  part.mean = mean;
  part.squares = total(squares);
}

inline double centre(double low, double high) { return low + (high / 2 - low / 2); }
// Rounded up, because int64 reaches one further down: no value of [low, high] differs from it by
// more than int64 holds.
inline int64_t centre(int64_t low, int64_t high) { return (low | high) - ((low ^ high) >> 1); }

// `values` has room for a multiple of 8, and is overwritten.
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

// One tensor: where its elements are, and what their differences are relative to.
class Pass {
 public:
  Pass(const Layout& layout, const Dimensions& dims, const char* data)
      : dtype_(layout.dtype), size_(elements::size(layout.dtype)),
        bytes_(layout.numel * elements::size(layout.dtype)), data_(data), dims_(dims),
        contiguous_(dims.is_contiguous()) {
    flip_ = dtype_ == dtypes::uint64 ? uint64_t{1} << 63 : 0;
    find_origin();
  }

  double origin() const { return origin_; }
  int64_t origin_key() const { return origin_key_; }
  uint64_t flip() const { return flip_; }

  // Tiles from `first` to before `last`.
  Part measure(int64_t first, int64_t last) const {
    Part all;
    Gather gather(dims_, data_, size_);
    alignas(64) char gathered[block_elements * 16];
    const int64_t block = int64_t{block_elements} * size_;
    if (!contiguous_) gather.seek(first * fingerprint::tile_bytes / size_);
    for (int64_t tile = first; tile < last; ++tile) {
      const int64_t begin = tile * fingerprint::tile_bytes;
      const int64_t end = smaller_of(begin + fingerprint::tile_bytes, bytes_);
      fingerprint::Pair sums = {0, 0};
      for (int64_t at = begin; at < end; at += block) {
        const int64_t some = smaller_of(block, end - at);
        const char* from = data_ + at;
        if (!contiguous_) {
          gather.next(some / size_, gathered);
          from = gathered;
        }
        add_bytes(from, at - begin, some, sums);
        if (elements::is_number(dtype_)) all.merge(measure_block(from, static_cast<int>(some / size_)));
      }
      const fingerprint::Pair mixed = fingerprint::tile(sums, static_cast<uint64_t>(tile));
      all.total.low += mixed.low;
      all.total.high += mixed.high;
    }
    return all;
  }

 private:
  static int64_t smaller_of(int64_t a, int64_t b) { return a < b ? a : b; }

  // Differences are relative to the first finite one of the first few: a large offset that all
  // elements have in common then costs no precision.
  void find_origin() {
    constexpr int some = 16;
    if (!bytes_ || !elements::is_number(dtype_)) return;
    alignas(64) char first[some * 16];
    const int count = static_cast<int>(smaller_of(some, bytes_ / size_));
    Gather gather(dims_, data_, size_);
    gather.seek(0);
    gather.next(count, first);
    if (elements::is_wide(dtype_)) {
      std::memcpy(&origin_key_, first, sizeof origin_key_);
      origin_key_ = static_cast<int64_t>(static_cast<uint64_t>(origin_key_) ^ flip_);
      return;
    }
    alignas(64) double values[some];
    to_values(first, count, values);
    for (int i = 0; i < count; ++i) {
      if (is_finite(values[i])) {
        origin_ = values[i];
        return;
      }
    }
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
  uint64_t flip_ = 0;
  double origin_ = 0;
  int64_t origin_key_ = 0;
};

inline void finish(const Part& part, const Pass& pass, int32_t dtype, int64_t bytes, Measured& to) {
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
      const uint64_t value = static_cast<uint64_t>(key) ^ pass.flip();
      return pass.flip() ? static_cast<double>(value) : static_cast<double>(key);
    };
    to.low = static_cast<uint64_t>(part.low_key) ^ pass.flip();
    to.high = static_cast<uint64_t>(part.high_key) ^ pass.flip();
    low = number(part.low_key);
    high = number(part.high_key);
    // From the middle of the extremes: that is nearer to the mean than the origin may be.
    const int64_t middle = centre(part.low_key, part.high_key);
    to.mean = number(middle) + (part.mean + difference(pass.origin_key(), middle));
  } else {
    to.low = bits_of(low);
    to.high = bits_of(high);
    const double middle = centre(low, high);
    to.mean = middle + (part.mean + (pass.origin() * part.scale - middle * part.scale)) / part.scale;
  }
  to.mean = larger(smaller(to.mean, high), low);  // rounding may have led outside
  if (part.finite > 1) {
    to.deviation = std::sqrt(part.squares / static_cast<double>(part.finite - 1)) / part.scale;
  }
}

}  // namespace cpu

// Elements are read as the layout says, whatever bits (conjugate, negative) torch has beside it. With
// more than one thread large tensors are shared among OpenMP's, where the compiler has that.
// False, and nothing measured, for more than 64 dimensions and for a dtype that is not known.
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
#ifdef _OPENMP
  if (chunks > 1 && threads > 1) {
    std::vector<cpu::Part> parts(static_cast<std::size_t>(chunks));
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int64_t i = 0; i < chunks; ++i) parts[static_cast<std::size_t>(i)] = measure(i);
    for (const cpu::Part& part : parts) all.merge(part);
    cpu::finish(all, pass, layout.dtype, bytes, to);
    return true;
  }
#endif
  static_cast<void>(threads);
  for (int64_t i = 0; i < chunks; ++i) all.merge(measure(i));
  cpu::finish(all, pass, layout.dtype, bytes, to);
  return true;
}

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

}  // namespace inductor_rewriter
}  // namespace
