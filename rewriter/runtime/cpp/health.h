// Counts NaN, infinities, and numbers near the limit of a half-precision type.
#pragma once

#include <string>

#include "event.h"
#include "number.h"

namespace inductor_rewriter {

// As `health` in rewriter/runtime/plain.py; empty if there are none.
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
  auto number = [](double value, const std::string& whole) {
    return whole.empty() ? python_general(value) : whole;
  };
  text += statistics.magnitude ? "; |x| " : "; ";
  text += "min " + number(statistics.low, statistics.low_text);
  return text + " max " + number(statistics.high, statistics.high_text);
}

}  // namespace inductor_rewriter
