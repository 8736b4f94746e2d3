// What the engine measured, as texts.
#pragma once

#include <string>

#include "engine/elements.h"
#include "event.h"
#include "number.h"
#include "tensor.h"

namespace inductor_rewriter {

// An extreme of a tensor as float64, which may not hold it if it is an integer.
inline double extreme_of(uint64_t bits, int32_t dtype) {
  if (dtype == dtypes::uint64) return static_cast<double>(bits);
  return dtype == dtypes::int64 ? static_cast<double>(static_cast<int64_t>(bits)) : double_of(bits);
}

// The extremes, the mean and the deviation as texts: by `write`, unless they are integers, and `none` where there is none.
struct NumberTexts {
  template <class Write>
  NumberTexts(const Item& item, const char* none, Write&& write) : low(none), high(none), mean(none), std(none) {
    const Measured& of = item.measurement;
    const int32_t dtype = item.tensor.dtype;
    const auto extreme = [&](uint64_t bits) -> std::string {
      if (dtype == dtypes::uint64) return std::to_string(bits);
      if (dtype == dtypes::int64) return std::to_string(static_cast<int64_t>(bits));
      const double value = double_of(bits);
      const bool is_whole = is_integer(dtype) || dtype == dtypes::boolean;
      return is_whole ? std::to_string(static_cast<int64_t>(value)) : write(value);
    };
    if (!of.finite) return;
    low = extreme(of.low);
    high = extreme(of.high);
    mean = write(of.mean);
    if (of.finite > 1) std = write(of.deviation);
  }
  std::string low, high, mean, std;
};

// The usual form of a number in a line.
inline std::string short_number(double value) { return python_general(value); }

// NaN, infinities, and numbers near the limit of a half-precision type, as `health` in rewriter/runtime/plain.py;
// empty if there are none.
inline std::string health_of(const Item& item) {
  const Measured& found = item.measurement;
  std::string text;
  auto add = [&](const char* name, int64_t count) {
    if (!count) return;
    if (!text.empty()) text += ' ';
    text += name + std::to_string(count);
  };
  if (!item.has_statistics()) return text;
  add("nan ", found.nan);
  add("+inf ", found.positive_infinite);
  add("-inf ", found.negative_infinite);
  add("near the limit ", found.near_limit);
  if (text.empty()) return text;
  const int64_t numel = item.tensor.numel;
  if (found.near_limit) text += " (" + python_general(100 * double(found.near_limit) / double(numel)) + "%)";
  text += " of " + std::to_string(numel);
  if (!found.finite) return text;
  const NumberTexts numbers(item, "-", short_number);
  return text + (is_complex(item.tensor.dtype) ? "; |x| min " : "; min ") + numbers.low + " max " + numbers.high;
}

}  // namespace inductor_rewriter
