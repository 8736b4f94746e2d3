// The table of a wrapper's launches as JSON, in launches.json.
#pragma once

#include <cstdint>
#include <string>

#include "event.h"
#include "json.h"
#include "texts.h"

namespace inductor_rewriter {

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
  json.open('{').key("launch").number(static_cast<int64_t>(row.launch));
  json.key("kernel").string(row.kernel).key("kind").string(row.kind);
  json.key("scope").string(row.scope).key("line").number(static_cast<int64_t>(row.line));
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
