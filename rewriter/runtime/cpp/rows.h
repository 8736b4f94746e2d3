// Events as rows of a dump: JSON, one line each.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "json.h"
#include "tensor.h"

namespace inductor_rewriter {

// The beginning of a row.
inline void open_row(Json& json, const Event& event) {
  json.open('{');
  if (event.launch) {
    json.key("launch").number(static_cast<int64_t>(event.launch->row->launch));
  }
  json.key("phase").string(event.phase);
  if (event.launch) {
    json.key("kernel").string(event.launch->row->kernel);
    if (event.launch->row->repeats || event.iteration) {
      json.key("iteration").number(static_cast<int64_t>(event.iteration));
    }
  }
}

inline void extreme(
    Json& json, const Statistics& statistics, double value, const std::string& whole) {
  if (!statistics.finite) json.put("null");
  else if (!whole.empty()) json.put(whole);
  else json.number(value);
}

// What is known of a value, as members of its row.
inline void describe(Json& json, const Item& item) {
  const Tensor& tensor = item.tensor;
  const Statistics& statistics = item.statistics;
  json.key("arg").string(item.label->name).key("role").string(item.label->role);
  if (!item.is_tensor()) {
    json.key("type").string(item.kind).key("value").string(item.text);
    return;
  }
  json.key("dtype").string(dtype_info(tensor.dtype).name);
  json.key("shape").open('[');
  for (int64_t size : tensor.shape) json.number(size);
  json.close(']').key("stride").open('[');
  for (int64_t stride : tensor.stride) json.number(stride);
  json.close(']').key("device").string(tensor.device);
  if (item.measured) {
    json.key("numel").number(statistics.numel);
    extreme(json.key("min"), statistics, statistics.low, statistics.low_text);
    extreme(json.key("max"), statistics, statistics.high, statistics.high_text);
    extreme(json.key("mean"), statistics, statistics.mean, "");
    if (statistics.finite > 1) json.key("std").number(statistics.std);
    else json.key("std").put("null");
    json.key("nan").number(statistics.nan).key("inf").number(statistics.inf);
    if (statistics.negative_inf) json.key("neginf").number(statistics.negative_inf);
    if (statistics.near_limit) json.key("near_limit").number(statistics.near_limit);
    if (statistics.magnitude) json.key("of").string("magnitude");
  }
  if (!item.fingerprint.empty()) json.key("fingerprint").string(item.fingerprint);
  if (!item.file.empty()) json.key("file").string(item.file);
  if (!item.unsaved.empty()) json.key("unsaved").string(item.unsaved);
}

// One line per value, or one line if no value was read.
inline std::string event_rows(const Event& event, bool has_values) {
  constexpr std::size_t usual = 400;  // bytes of a row
  Json json(false);
  json.text.reserve(usual * std::max<std::size_t>(event.items.size(), 1));
  for (std::size_t i = 0; i == 0 || i < event.items.size(); ++i) {
    open_row(json, event);
    if (has_values && i < event.items.size()) {
      describe(json, event.items[i]);
      for (const auto& [name, problem] : event.unexpected) {
        if (name == event.items[i].label->name) json.key("unexpected").string(problem);
      }
    }
    if (event.captured) json.key("captured").put("true");
    json.close('}').text += '\n';
  }
  return std::move(json.text);
}

}  // namespace inductor_rewriter
