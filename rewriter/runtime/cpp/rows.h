// Events as rows of a dump: JSON, one line each.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "json.h"
#include "probe.h"

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

// One line per value, or one line if no value was read.
inline std::string event_rows(const Event& event, const Values* reader) {
  constexpr std::size_t usual = 400;  // bytes of a row
  Json json(false);
  json.text.reserve(usual * std::max<std::size_t>(event.items.size(), 1));
  for (std::size_t i = 0; i == 0 || i < event.items.size(); ++i) {
    open_row(json, event);
    if (reader && i < event.items.size()) {
      reader->describe(json, event.items[i]);
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
