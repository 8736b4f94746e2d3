// Converts what the engine measured to statistics, and these to texts.
#pragma once

#include <cstring>
#include <string>

#include "engine/elements.h"
#include "event.h"
#include "number.h"
#include "tensor.h"

namespace inductor_rewriter {

inline Statistics statistics_of(const Measured& measured, const Tensor& tensor) {
  Statistics result;
  result.numel = tensor.numel;
  result.magnitude = is_complex(tensor.dtype);
  result.finite = measured.finite;
  result.nan = measured.nan;
  result.inf = measured.positive_infinite + measured.negative_infinite;
  result.negative_inf = measured.negative_infinite;
  result.near_limit = measured.near_limit;
  if (!result.finite) return result;
  result.mean = measured.mean;
  result.std = measured.deviation;
  if (tensor.dtype == dtypes::uint64) {
    result.low = static_cast<double>(measured.low);
    result.high = static_cast<double>(measured.high);
    result.low_text = std::to_string(measured.low);
    result.high_text = std::to_string(measured.high);
    return result;
  }
  if (tensor.dtype == dtypes::int64) {
    result.low = static_cast<double>(static_cast<int64_t>(measured.low));
    result.high = static_cast<double>(static_cast<int64_t>(measured.high));
  } else {
    std::memcpy(&result.low, &measured.low, sizeof result.low);
    std::memcpy(&result.high, &measured.high, sizeof result.high);
    if (!is_integer(tensor.dtype) && tensor.dtype != dtypes::boolean) return result;
  }
  const bool wide = tensor.dtype == dtypes::int64;
  auto whole = [&](uint64_t bits, double value) {
    return std::to_string(wide ? static_cast<int64_t>(bits) : static_cast<int64_t>(value));
  };
  result.low_text = whole(measured.low, result.low);
  result.high_text = whole(measured.high, result.high);
  return result;
}

// The extremes, the mean and the deviation as texts: by `write`, unless they are integers, and `none` where there is none.
struct NumberTexts {
  template <class Write>
  NumberTexts(const Statistics& of, const char* none, Write&& write) : low(none), high(none), mean(none), std(none) {
    if (!of.finite) return;
    low = of.low_text.empty() ? write(of.low) : of.low_text;
    high = of.high_text.empty() ? write(of.high) : of.high_text;
    mean = write(of.mean);
    if (of.finite > 1) std = write(of.std);
  }
  std::string low, high, mean, std;
};

// The usual form of a number in a line.
inline std::string short_number(double value) { return python_general(value); }

// NaN, infinities, and numbers near the limit of a half-precision type, as `health` in rewriter/runtime/plain.py;
// empty if there are none.
inline std::string health_of(const Item& item) {
  const Statistics& statistics = item.statistics;
  std::string text;
  auto add = [&](const char* name, int64_t count) {
    if (!count) return;
    if (!text.empty()) text += ' ';
    text += name + std::to_string(count);
  };
  if (!item.measured) return text;
  add("nan ", statistics.nan);
  add("+inf ", statistics.inf - statistics.negative_inf);
  add("-inf ", statistics.negative_inf);
  add("near the limit ", statistics.near_limit);
  if (text.empty()) return text;
  if (statistics.near_limit) {
    const double share = 100 * double(statistics.near_limit);
    text += " (" + python_general(share / double(statistics.numel)) + "%)";
  }
  text += " of " + std::to_string(statistics.numel);
  if (!statistics.finite) return text;
  const NumberTexts numbers(statistics, "-", short_number);
  return text + (statistics.magnitude ? "; |x| min " : "; min ") + numbers.low + " max " + numbers.high;
}

}  // namespace inductor_rewriter
