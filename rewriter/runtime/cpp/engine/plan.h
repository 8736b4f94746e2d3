// What is known of one phase of a launch before it runs: the texts of its lines and rows, all but the
// measured numbers.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "../number.h"
#include "elements.h"
#include "measured.h"

namespace {
namespace inductor_rewriter {

// One value. `line` and `row` are the parts of its printed line and of its row between the text that all
// values of the launch share (`Plan::head`, `Plan::base`) and the measured numbers.
struct PlannedValue {
  bool is_tensor = false;
  bool is_read = false;     // the launch only reads it
  bool is_allowed = false;  // NaN and infinities are expected in it
  std::string name, line, row;
  Layout layout{};
  std::vector<int64_t> shape, stride;
};

// `launch` is -1 for the inputs of a call. A line begins with the call's start, `title`, the number
// of the iteration if it is not the first one, and `head`; a row with `base`.
struct Plan {
  static constexpr uint32_t before = 1, after = 2;  // phases
  static constexpr uint32_t prints = 1, prints_tensors = 2, fingerprints = 4, repeats = 8,
                            health = 16, stops = 32, together = 64;

  int32_t launch = -1;
  uint32_t phase = 0, flags = 0;
  std::string title, head, base;
  std::vector<PlannedValue> values;
  std::size_t tensors = 0;
  // The tensors on a GPU: their places among all tensors, and their layouts.
  int32_t device = -1;
  std::vector<std::size_t> gpu_places;
  std::vector<const Layout*> gpu_layouts;

  bool has(uint32_t flag) const { return flags & flag; }
};

// Reads a plan that Python packed: integers of 8 bytes; texts as their length and their bytes.
class PlanReader {
 public:
  explicit PlanReader(const char* data) : at_(data) {}

  Plan* read() {
    Plan* plan = new Plan;
    plan->launch = static_cast<int32_t>(number());
    plan->phase = static_cast<uint32_t>(number());
    plan->flags = static_cast<uint32_t>(number());
    plan->title = text();
    plan->head = text();
    plan->base = text();
    plan->values.resize(static_cast<std::size_t>(number()));
    for (PlannedValue& value : plan->values) {
      value.is_tensor = number();
      value.is_read = number();
      value.is_allowed = number();
      value.name = text();
      value.line = text();
      value.row = text();
      if (!value.is_tensor) continue;
      read_layout(value);
      if (value.layout.device >= 0) {
        plan->device = value.layout.device;
        plan->gpu_places.push_back(plan->tensors);
        plan->gpu_layouts.push_back(&value.layout);
      }
      ++plan->tensors;
    }
    return plan;
  }

 private:
  void read_layout(PlannedValue& value) {
    value.layout.dtype = static_cast<int32_t>(number());
    value.layout.device = static_cast<int32_t>(number());
    value.layout.numel = number();
    value.layout.dim = static_cast<int32_t>(number());
    for (auto* sizes : {&value.shape, &value.stride}) {
      for (int32_t i = 0; i < value.layout.dim; ++i) sizes->push_back(number());
    }
    value.layout.shape = value.shape.data();
    value.layout.stride = value.stride.data();
  }

  int64_t number() {
    int64_t value;
    std::memcpy(&value, at_, sizeof value);
    at_ += sizeof value;
    return value;
  }

  std::string text() {
    const std::size_t size = static_cast<std::size_t>(number());
    at_ += size;
    return std::string(at_ - size, size);
  }

  const char* at_;
};

// A measurement as text. The same as `_statistics` in rewriter/runtime/text.py and rows.py.
class MeasuredText {
 public:
  MeasuredText(const Measured& measured, const Layout& layout)
      : measured_(measured), layout_(layout) {}

  void add_to_line(std::string& line) const {
    if (measured_.finite < 0 || !layout_.numel) {
      line += layout_.numel ? "not measured" : "empty";
      return;
    }
    if (elements::is_complex(layout_.dtype)) line += "|x| ";
    line += "min ";
    extreme(line, measured_.low, false);
    line += " max ";
    extreme(line, measured_.high, false);
    line += " mean ";
    line += measured_.finite ? python_general(measured_.mean) : "-";
    line += " std ";
    line += measured_.finite > 1 ? python_general(measured_.deviation) : "-";
    line += " nan " + decimal(measured_.nan) + " inf " + decimal(infinite());
  }

  void add_to_row(std::string& row) const {
    if (measured_.finite < 0) return;
    row += ", \"numel\": " + decimal(layout_.numel) + ", \"min\": ";
    extreme(row, measured_.low, true);
    row += ", \"max\": ";
    extreme(row, measured_.high, true);
    row += ", \"mean\": ";
    json_number(row, measured_.mean, measured_.finite);
    row += ", \"std\": ";
    json_number(row, measured_.deviation, measured_.finite > 1);
    row += ", \"nan\": " + decimal(measured_.nan) + ", \"inf\": " + decimal(infinite());
    if (measured_.negative_infinite) row += ", \"neginf\": " + decimal(measured_.negative_infinite);
    if (measured_.near_limit) row += ", \"near_limit\": " + decimal(measured_.near_limit);
    if (elements::is_complex(layout_.dtype)) row += ", \"of\": \"magnitude\"";
  }

  // Adds NaN, infinities and elements near the dtype's limit, or nothing if there are none (`health` in
  // text.py).
  void add_health(std::string& line) const {
    const std::size_t start = line.size();
    auto add = [&](const char* name, int64_t count) {
      if (!count) return;
      if (line.size() != start) line += ' ';
      line += name + decimal(count);
    };
    if (measured_.finite < 0) return;
    add("nan ", measured_.nan);
    add("+inf ", measured_.positive_infinite);
    add("-inf ", measured_.negative_infinite);
    add("near the limit ", measured_.near_limit);
    if (line.size() == start) return;
    if (measured_.near_limit) {
      const double share = 100 * static_cast<double>(measured_.near_limit);
      line += " (" + python_general(share / static_cast<double>(layout_.numel)) + "%)";
    }
    line += " of " + decimal(layout_.numel);
    if (!measured_.finite) return;
    line += "; ";
    if (elements::is_complex(layout_.dtype)) line += "|x| ";
    line += "min ";
    extreme(line, measured_.low, false);
    line += " max ";
    extreme(line, measured_.high, false);
  }

  // The largest magnitude of the finite elements.
  double largest() const {
    if (measured_.finite <= 0) return 0;
    const double low = number(measured_.low), high = number(measured_.high);
    return std::max(std::fabs(low), std::fabs(high));
  }

  // False if the device failed before it measured the tensor.
  bool has_fingerprint() const {
    return measured_.finite >= 0 || measured_.fingerprint[0] || measured_.fingerprint[1];
  }

  std::string fingerprint() const { return hexadecimal(measured_.fingerprint); }

 private:
  int64_t infinite() const { return measured_.positive_infinite + measured_.negative_infinite; }

  double number(uint64_t bits) const {
    if (layout_.dtype == dtypes::uint64) return static_cast<double>(bits);
    if (layout_.dtype == dtypes::int64) return static_cast<double>(static_cast<int64_t>(bits));
    double value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }

  void extreme(std::string& to, uint64_t bits, bool json) const {
    const int32_t dtype = layout_.dtype;
    if (!measured_.finite) {
      to += json ? "null" : "-";
    } else if (dtype == dtypes::uint64) {
      to += std::to_string(bits);
    } else if (dtype == dtypes::int64) {
      to += decimal(static_cast<int64_t>(bits));
    } else {
      double value;
      std::memcpy(&value, &bits, sizeof value);
      if (is_whole(dtype)) to += decimal(static_cast<int64_t>(value));
      else if (json) json_number(to, value, true);
      else to += python_general(value);
    }
  }

  static bool is_whole(int32_t dtype) {
    return dtype <= dtypes::int32 || dtype == dtypes::boolean || dtype == dtypes::uint16 ||
        dtype == dtypes::uint32;
  }

  // JSON has no NaN and no infinity: these become strings.
  static void json_number(std::string& to, double value, bool known) {
    if (!known) to += "null";
    else if (is_finite(value)) to += python_repr(value);
    else to += std::string("\"") + name_special(value) + "\"";
  }

  const Measured& measured_;
  const Layout& layout_;
};

}  // namespace inductor_rewriter
}  // namespace
