// What a dump has of a call, as JSON: events, one line for each value, and the table of its launches.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "event.h"
#include "json.h"
#include "statistics.h"
#include "tensor.h"
#include "texts.h"

namespace inductor_rewriter {

inline void open_row(Json& json, const Event& event) {
  json.open('{');
  const Row* const row = event.launch ? event.launch->row : nullptr;
  if (row) json.key("launch").number(row->launch);
  json.key("phase").string(event.phase);
  if (row) json.key("kernel").string(row->kernel);
  if (row && (row->repeats || event.iteration)) json.key("iteration").number(event.iteration);
}

// What is known of a value, as members of its row.
inline void describe(Json& json, const Item& item) {
  const Tensor& tensor = item.tensor;
  const Measured& found = item.measurement;
  json.key("arg").string(item.label->name).key("role").string(item.label->role);
  if (!item.is_tensor()) {
    json.key("type").string(item.kind).key("value").string(item.text);
    return;
  }
  json.key("dtype").string(dtype_info(tensor.dtype).name);
  json.key("shape").put(joined(tensor.shape)).key("stride").put(joined(tensor.stride));
  json.key("device").string(tensor.device);
  if (item.has_statistics()) {
    json.key("numel").number(tensor.numel);
    const NumberTexts numbers(item, "null", Json::number_text);
    json.key("min").put(numbers.low).key("max").put(numbers.high);
    json.key("mean").put(numbers.mean).key("std").put(numbers.std);
    json.key("nan").number(found.nan).key("inf").number(found.infinite());
    if (found.negative_infinite) json.key("neginf").number(found.negative_infinite);
    if (found.near_limit) json.key("near_limit").number(found.near_limit);
    if (is_complex(tensor.dtype)) json.key("of").string("magnitude");
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

inline void write_labels(Json& json, const char* phase, const Labels& labels) {
  json.key(phase).open('[');
  for (const Label& label : labels) {
    json.open('[').string(label.role).string(label.name);
    if (label.expr != label.name) json.string(label.expr);
    json.close(']');
  }
  json.close(']');
}

inline void write_buffers(Json& json, const std::string& joined) {
  json.key("buffers").open('{');
  for (const std::string& one : split(joined, "; ")) {
    const std::size_t space = one.find(' ');
    json.key(one.substr(0, space).c_str()).string(one.substr(space + 1));
  }
  json.close('}');
}

// Lists by name: `name value value`, separated by `; `; `-` is an empty text.
inline void write_lists(Json& json, const char* key, const std::string& joined) {
  json.key(key).open('{');
  for (const std::string& one : split(joined, "; ")) {
    const Texts words = split(one, " ");
    json.key(words[0].c_str()).open('[');
    for (std::size_t i = 1; i < words.size(); ++i) json.string(words[i] == "-" ? "" : words[i]);
    json.close(']');
  }
  json.close('}');
}

inline void write_launch(Json& json, const ProbedLaunch& launch) {
  const Row& row = *launch.row;
  json.open('{').key("launch").number(row.launch);
  json.key("kernel").string(row.kernel).key("kind").string(row.kind);
  json.key("scope").string(row.scope).key("line").number(row.line);
  json.key("source_nodes").list(row.source_nodes, ", ");
  json.key("origins").list(row.origins, ", ");
  json.key("repeats").put(row.repeats ? "true" : "false");
  if (row.buffers) write_buffers(json, row.buffers);
  if (row.before) write_labels(json, "before", launch.before);
  if (row.after) write_labels(json, "after", launch.after);
  if (row.reads) write_labels(json, "reads", read_labels(row.reads));
  if (row.parameters) write_lists(json, "parameters", row.parameters);
  if (row.schema) json.key("schema").string(row.schema);
  json.close('}');
}

}  // namespace inductor_rewriter
