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

#include "layout.h"
#include "parts.h"

namespace inductor_rewriter {

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3", "no-fast-math", "tree-loop-vectorize")
#endif

namespace cpu {

constexpr int64_t piece_bytes = 16384;  // a quarter of a tile
constexpr int64_t chunk_tiles = 8;      // how many tiles a thread takes at a time, at least
constexpr int64_t most_chunks = 1024;

// Integers of 8 and 16 bits: sums over up to `piece_bytes` are exact.
template <class Integer, class Sum>
inline Part measure_small(const char* from, int count) {
  Integer low;
  std::memcpy(&low, from, sizeof low);
  Integer high = low;
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
    const int64_t start = first * fingerprint::tile_bytes;
    const int64_t room = std::min(std::min(last - first, chunk_tiles) * fingerprint::tile_bytes, bytes_ - start);
    std::unique_ptr<char[]> gathered;
    if (!contiguous_) {
      gathered.reset(new char[static_cast<std::size_t>(room)]);
      gather.seek(start / size_);
    }
    for (int64_t tile = first; tile < last; ++tile) {
      const int64_t begin = tile * fingerprint::tile_bytes, left = bytes_ - begin;
      const int64_t bytes = std::min<int64_t>(fingerprint::tile_bytes, left);
      const int64_t place = (tile - first) % chunk_tiles * fingerprint::tile_bytes;
      if (!contiguous_ && !place) gather.next(std::min(room, left) / size_, gathered.get());
      const char* from = contiguous_ ? data_ + begin : gathered.get() + place;
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
