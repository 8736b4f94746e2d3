// Converts what the engine measured to statistics.
#pragma once

#include <cstring>
#include <string>

#include "engine/measured.h"
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

}  // namespace inductor_rewriter
