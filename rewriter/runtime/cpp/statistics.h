// Statistics of a tensor's elements, in one pass over memory; `rewriter/runtime/statistics.py` says
// what they mean.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "convert.h"
#include "tensor.h"

namespace {
namespace inductor_rewriter {

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O2", "no-fast-math")
#endif

constexpr int block_size = 2048;  // elements; as float64 they stay in the nearest cache
constexpr int stride_8 = 32;      // elements summed at a time, in vectors of 8

// The middle of [low, high], without overflow; equal to both if they are equal.
inline double centre(double low, double high) {
  return low + (high / 2 - low / 2);
}
inline int64_t centre(int64_t low, int64_t high) {
  return (low | high) - ((low ^ high) >> 1);
}

// Fill up to a multiple of `stride_8`; the new count.
template <class T>
inline int pad(T* values, int count, T with) {
  int padded = (count + stride_8 - 1) / stride_8 * stride_8;
  for (int i = count; i < padded; ++i) values[i] = with;
  return padded;
}

// The extremes of `count` values, a multiple of `stride_8`. Steps are spelled out: a loop over them
// is not unrolled at every level, and then the sums are kept in memory.
template <class T, class Vector>
inline void extremes(const T* values, int count, T& low, T& high) {
  const Vector* all = reinterpret_cast<const Vector*>(values);
  Vector low_0 = all[0], low_1 = all[1], high_0 = all[0], high_1 = all[1];
  for (int i = 0; i < count / 8; i += 2) {
    low_0 = all[i] < low_0 ? all[i] : low_0;
    low_1 = all[i + 1] < low_1 ? all[i + 1] : low_1;
    high_0 = all[i] > high_0 ? all[i] : high_0;
    high_1 = all[i + 1] > high_1 ? all[i + 1] : high_1;
  }
  low_0 = low_1 < low_0 ? low_1 : low_0;
  high_0 = high_1 > high_0 ? high_1 : high_0;
  low = low_0[0];
  high = high_0[0];
  for (int i = 1; i < 8; ++i) {
    low = low_0[i] < low ? low_0[i] : low;
    high = high_0[i] > high ? high_0[i] : high;
  }
}

inline double total(const Doubles& sums) {
  double result = 0;
  for (int i = 0; i < 8; ++i) result += sums[i];
  return result;
}

inline double sum(const double* values, int count) {
  const Doubles* all = reinterpret_cast<const Doubles*>(values);
  Doubles a = {}, b = {}, c = {}, d = {};
  for (int i = 0; i < count / 8; i += 4) {
    a += all[i];
    b += all[i + 1];
    c += all[i + 2];
    d += all[i + 3];
  }
  return total((a + b) + (c + d));
}

inline double sum_of_squares(const double* values, int count, double mean) {
  const Doubles* all = reinterpret_cast<const Doubles*>(values);
  Doubles a = {}, b = {}, c = {}, d = {};
  for (int i = 0; i < count / 8; i += 4) {
    a += (all[i] - mean) * (all[i] - mean);
    b += (all[i + 1] - mean) * (all[i + 1] - mean);
    c += (all[i + 2] - mean) * (all[i + 2] - mean);
    d += (all[i + 3] - mean) * (all[i + 3] - mean);
  }
  return total((a + b) + (c + d));
}

inline bool has_special(const double* values, int count) {
  Longs special = {};
  for (int i = 0; i < count; i += 8) {
    const Longs& bits = *reinterpret_cast<const Longs*>(values + i);
    special |= (bits & static_cast<int64_t>(infinity_bits)) ==
        static_cast<int64_t>(infinity_bits);
  }
  int64_t any = 0;
  for (int i = 0; i < 8; ++i) any |= special[i];
  return any != 0;
}

// Collects blocks of one tensor. Moments are of offsets from the centre of the first block, so
// that a large offset costs no precision, and are merged by Chan's formula.
class Sums {
 public:
  // `huge`: squares and sums can leave the range of float64, so they are scaled.
  explicit Sums(bool huge) : huge_(huge) {}

  int64_t count = 0, nan = 0, inf = 0;
  double low = 0, high = 0;
  int64_t low_key = 0, high_key = 0;

  // `values` has room for a multiple of `stride_8`, and is overwritten.
  void add(double* values, int number) {
    if (has_special(values, pad(values, number, values[0]))) number = keep_finite(values, number);
    if (!number) return;
    double lowest, highest;
    int padded = pad(values, number, values[0]);
    extremes<double, Doubles>(values, padded, lowest, highest);
    if (huge_) rescale(lowest, highest);
    double middle = centre(lowest * scale_, highest * scale_);
    if (!count) origin_ = centre(lowest, highest);
    Doubles* all = reinterpret_cast<Doubles*>(values);
    for (int i = 0; i < padded / 8; ++i) all[i] = all[i] * scale_ - middle;
    low = count && low < lowest ? low : lowest;
    high = count && high > highest ? high : highest;
    merge(values, number, middle - origin_ * scale_);
  }

  // Of 64-bit integers; `offsets` is room for as many.
  void add(int64_t* keys, int number, double* offsets) {
    int64_t lowest, highest;
    int padded = pad(keys, number, keys[0]);
    extremes<int64_t, Longs>(keys, padded, lowest, highest);
    int64_t middle = centre(lowest, highest);
    if (!count) origin_key_ = middle;
    const Longs* all = reinterpret_cast<const Longs*>(keys);
    for (int i = 0; i < padded / 8; ++i) {
      reinterpret_cast<Doubles*>(offsets)[i] = __builtin_convertvector(all[i] - middle, Doubles);
    }
    low_key = count && low_key < lowest ? low_key : lowest;
    high_key = count && high_key > highest ? high_key : highest;
    merge(offsets, number, difference(middle, origin_key_));
  }

  double mean() const {
    double middle = centre(low, high);
    return middle + (mean_ + (origin_ * scale_ - middle * scale_)) / scale_;
  }
  // Of integers, less `middle`.
  double mean_from(int64_t middle) const { return mean_ + difference(origin_key_, middle); }
  double deviation() const { return std::sqrt(squares_ / static_cast<double>(count)) / scale_; }

 private:
  static double difference(int64_t a, int64_t b) {
    uint64_t apart = a > b ? uint64_t(a) - uint64_t(b) : uint64_t(b) - uint64_t(a);
    return a > b ? static_cast<double>(apart) : -static_cast<double>(apart);
  }

  int keep_finite(double* values, int number) {
    int kept = 0;
    for (int i = 0; i < number; ++i) {
      uint64_t size = bits_of(values[i]) << 1;
      nan += size > infinity_bits << 1;
      inf += size == infinity_bits << 1;
      if (size < infinity_bits << 1) values[kept++] = values[i];
    }
    return kept;
  }

  // Choose a power of two, exact, that brings the largest magnitude so far to the order of one.
  void rescale(double lowest, double highest) {
    uint64_t a = bits_of(lowest) << 1 >> 53, b = bits_of(highest) << 1 >> 53;
    int64_t exponent = 2046 - static_cast<int64_t>(a > b ? a : b);
    double wanted = double_of(static_cast<uint64_t>(exponent < 1 ? 1 : exponent) << 52);
    if (count && wanted >= scale_) return;
    double change = wanted / scale_;
    scale_ = wanted;
    if (!count) return;
    mean_ *= change;
    squares_ = squares_ * change * change;
  }

  void merge(double* offsets, int number, double shift) {
    double size = number;
    int padded = pad(offsets, number, 0.0);
    double mean = sum(offsets, padded) / size;
    pad(offsets, number, mean);
    double squares = sum_of_squares(offsets, padded, mean);
    double before = static_cast<double>(count), apart = mean + shift - mean_;
    count += number;
    double share = size / static_cast<double>(count);
    mean_ += apart * share;
    squares_ += squares + apart * apart * before * share;
  }

  bool huge_;
  double scale_ = 1, origin_ = 0, mean_ = 0, squares_ = 0;
  int64_t origin_key_ = 0;
};

// Calls `take(data, count)` for all elements, at most `block_size` at a time, the last dimension
// fastest.
template <class Take>
inline void walk(const char* data, const std::vector<Dimension>& dims, int size, Take take) {
  int64_t run = dims.empty() ? 1 : dims.back().size;
  int64_t step = (dims.empty() ? 1 : dims.back().stride) * size;
  std::vector<int64_t> place(dims.size(), 0);
  std::vector<char> gathered;
  int held = 0;
  bool whole = dims.size() <= 1 && step == size;
  if (!whole) gathered.resize(std::size_t(block_size) * size);
  while (true) {
    for (int64_t i = 0; i < run;) {
      int64_t room = block_size - held;
      int some = static_cast<int>(run - i < room ? run - i : room);
      const char* from = data + i * step;
      i += some;
      if (whole) {
        take(from, some);
        continue;
      }
      char* to = &gathered[std::size_t(held) * size];
      if (step == size) {
        std::memcpy(to, from, std::size_t(some) * size);
      } else {
        for (int j = 0; j < some; ++j) std::memcpy(to + j * size, from + j * step, size);
      }
      held += some;
      if (held == block_size) {
        take(gathered.data(), held);
        held = 0;
      }
    }
    int outer = static_cast<int>(dims.size()) - 2;
    for (; outer >= 0; --outer) {
      data += dims[outer].stride * size;
      if (++place[outer] < dims[outer].size) break;
      data -= dims[outer].stride * size * dims[outer].size;
      place[outer] = 0;
    }
    if (outer < 0) break;
  }
  if (held) take(gathered.data(), held);
}

inline Statistics measure(const Host& host, int32_t dtype, int64_t numel) {
  const bool complex = is_complex(dtype), wide = is_wide(dtype);
  const bool whole = is_integer(dtype) || dtype == dtypes::boolean;
  const uint64_t flip = dtype == dtypes::uint64 ? uint64_t{1} << 63 : 0;
  Statistics result;
  result.numel = numel;
  result.magnitude = complex;
  if (!numel) return result;
  int64_t repeat = host.repeat;
  Sums sums(dtype == dtypes::float64 || dtype == dtypes::complex128);
  alignas(64) double values[block_size];
  alignas(64) union {
    double parts[2 * block_size];
    int64_t keys[block_size];
  } room;
  auto dims = distinct(host.shape, host.stride, repeat);
  walk(host.data, dims, dtype_info(dtype).size, [&](const char* from, int count) {
    if (wide) {
      std::memcpy(room.keys, from, count * sizeof(int64_t));
      for (int i = 0; flip && i < count; ++i) {
        room.keys[i] = static_cast<int64_t>(uint64_t(room.keys[i]) ^ flip);
      }
      sums.add(room.keys, count, values);
      return;
    }
    convert(dtype, from, count, complex ? room.parts : values);
    if (complex) magnitudes(room.parts, count, dtype == dtypes::complex128, values);
    sums.add(values, count);
  });
  result.finite = sums.count * repeat;
  result.nan = sums.nan * repeat;
  result.inf = sums.inf * repeat;
  if (!result.finite) return result;
  result.low = sums.low;
  result.high = sums.high;
  if (wide) {
    int64_t middle = centre(sums.low_key, sums.high_key);
    uint64_t low = uint64_t(sums.low_key) ^ flip, high = uint64_t(sums.high_key) ^ flip;
    uint64_t lifted = uint64_t(middle) ^ flip;
    auto number = [&](uint64_t key) { return flip ? double(key) : double(int64_t(key)); };
    result.low = number(low);
    result.high = number(high);
    result.low_text = flip ? std::to_string(low) : std::to_string(int64_t(low));
    result.high_text = flip ? std::to_string(high) : std::to_string(int64_t(high));
    result.mean = number(lifted) + sums.mean_from(middle);
  } else {
    if (whole) {
      result.low_text = std::to_string(static_cast<int64_t>(sums.low));
      result.high_text = std::to_string(static_cast<int64_t>(sums.high));
    }
    result.mean = sums.mean();
  }
  // Rounding may have led outside.
  result.mean = result.mean < result.low ? result.low : result.mean;
  result.mean = result.mean > result.high ? result.high : result.mean;
  double count = static_cast<double>(result.finite);
  result.std = sums.deviation() * (result.finite > 1 ? std::sqrt(count / (count - 1)) : 0);
  return result;
}

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

}  // namespace inductor_rewriter
}  // namespace
