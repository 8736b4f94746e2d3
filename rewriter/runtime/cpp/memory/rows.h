// The output of memory probes: printed lines, and rows of `memory.jsonl`.
#pragma once

#include <fcntl.h>

#include <cerrno>
#include <cstdint>
#include <map>
#include <string>

#include "../engine/files.h"
#include "../json.h"
#include "guarded.h"

namespace inductor_rewriter {

// A store of a launch outside of a buffer.
struct Store {
  const Damage& damage;
  const Memory& memory;
  const Row* launch;  // null if not known
  int since;  // the launch after which the band was still intact; -1: none
  const std::string& buffer;
  int allocated;  // the event that allocated the buffer
  bool is_behind, is_captured;

  int64_t number() const { return static_cast<int64_t>(damage.launch) - 1; }
  const char* side() const { return is_behind ? "behind" : "before"; }
};

// The element that was written; empty if not all of its bytes are known.
inline std::string value_of(const Store& store) {
  const unsigned char* const from = store.damage.element;
  if (store.memory.item > static_cast<int>(sizeof store.damage.element)) return "";
  if (is_number(store.memory.dtype)) {
    return element_text(reinterpret_cast<const char*>(from), store.memory.dtype, true);
  }
  std::string text;
  for (int i = 0; i < store.memory.item; ++i) {
    for (int shift : {4, 0}) text += "0123456789abcdef"[from[i] >> shift & 15];
  }
  return text;
}

inline std::string store_row(const Store& store) {
  const std::string value = value_of(store);
  Json json(false);
  json.open('{').key("event").string("memory").key("probe").string("bounds");
  json.key("what").string("store out of bounds").key("launch").number(store.number());
  if (store.launch) json.key("kernel").string(store.launch->kernel);
  if (store.since >= 0) json.key("since").number(store.since);
  json.key("buffer").string(store.buffer).key("allocated").number(store.allocated);
  json.key("side").string(store.side()).key("distance").number(store.damage.distance);
  json.key("count").number(store.damage.count);
  json.key("dtype").string(dtype_info(store.memory.dtype).name);
  if (!value.empty()) json.key("value").string(value);
  if (store.is_captured) json.key("captured").put("true");
  return json.close('}').text + "\n";
}

// `#12 KERNEL wrote outside buf3: 1 element, the nearest right behind its end, 3.5`, after the
// beginning of every line.
inline std::string store_line(const std::string& start, const Store& store) {
  const std::string value = value_of(store);
  const uint64_t count = store.damage.count, distance = store.damage.distance;
  std::string line = start + " #" + std::to_string(store.number());
  if (store.launch) line += std::string(" ") + store.launch->kernel;
  line += " wrote outside " + store.buffer + ": " + std::to_string(count) + (count == 1 ? " element" : " elements");
  line += ", the nearest " + (distance ? std::to_string(distance) + " elements " : "right ");
  line += store.side() + std::string(store.is_behind ? " its end" : " its start");
  return line + (value.empty() ? "" : ", " + value) + "\n";
}

// Reasons why a probe left buffers out, with their numbers.
using LeftOut = std::map<std::string, int64_t>;

// The row of how many buffers a probe guarded or filled in a call. `launches` is after how many
// launches bands were compared; -1 for a probe that compares none.
inline std::string coverage_row(const char* probe, int64_t done, int64_t launches, const LeftOut& left_out) {
  Json json(false);
  json.open('{').key("event").string("coverage").key("probe").string(probe);
  json.key("done").number(done);
  if (launches >= 0) json.key("launches").number(launches);
  int64_t skipped = 0;
  for (const auto& [reason, count] : left_out) skipped += count;
  if (skipped) {
    json.key("skipped").number(skipped).key("why").open('{');
    for (const auto& [reason, count] : left_out) json.key(reason.c_str()).number(count);
    json.close('}');
  }
  return json.close('}').text + "\n";
}

// Appends rows immediately: the program may crash next.
inline void write_rows(const std::string& directory, const std::string& rows) {
  const std::string path = directory + "/memory.jsonl";
  errno = write_file(path, O_APPEND, rows.data(), rows.size());
  if (errno) fail("write", path);
}

}  // namespace inductor_rewriter
