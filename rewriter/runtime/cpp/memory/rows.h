// The output of memory probes: printed lines, and rows of `memory.jsonl`.
#pragma once

#include <fcntl.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "../engine/files.h"
#include "../json.h"
#include "../rotation.h"
#include "guarded.h"

namespace inductor_rewriter {

// A store of a launch outside of a buffer. `count` and `distance`, from the edge of the buffer, are
// in elements.
struct Store {
  int launch = -1;
  const char* kernel = nullptr;  // null if not known
  int since = -1;  // the launch after which the band was still intact; -1: none
  std::string buffer;
  int allocated = -1;  // the event that allocated the buffer
  const char* side = "";  // `before` the buffer, or `behind` it
  int64_t distance = 0, count = 0;
  int32_t dtype = 0;
  std::string value;  // empty if not known
  bool is_captured = false;
};

// The element that was written; empty if not all of its bytes are known.
inline std::string stored_value(const Damage& damage, const Memory& memory) {
  if (memory.item > static_cast<int>(sizeof damage.element)) return "";
  if (is_number(memory.dtype)) {
    return element_text(reinterpret_cast<const char*>(damage.element), memory.dtype, true);
  }
  std::string text;
  for (int i = 0; i < memory.item; ++i) {
    for (int shift : {4, 0}) text += "0123456789abcdef"[damage.element[i] >> shift & 15];
  }
  return text;
}

inline std::string store_row(const Store& store) {
  Json json(false);
  json.open('{').key("event").string("memory").key("probe").string("bounds");
  json.key("what").string("store out of bounds").key("launch").number(int64_t{store.launch});
  if (store.kernel) json.key("kernel").string(store.kernel);
  if (store.since >= 0) json.key("since").number(int64_t{store.since});
  json.key("buffer").string(store.buffer).key("allocated").number(int64_t{store.allocated});
  json.key("side").string(store.side).key("distance").number(store.distance);
  json.key("count").number(store.count).key("dtype").string(dtype_info(store.dtype).name);
  if (!store.value.empty()) json.key("value").string(store.value);
  if (store.is_captured) json.key("captured").put("true");
  return json.close('}').text + "\n";
}

// `#12 KERNEL wrote outside buf3: 1 element, the nearest right behind its end, 3.5`, after the
// beginning of every line.
inline std::string store_line(const std::string& start, const Store& store) {
  const std::string side = store.side;
  std::string line = start + " #" + std::to_string(store.launch);
  if (store.kernel) line += " " + std::string(store.kernel);
  line += " wrote outside " + store.buffer + ": ";
  line += store.count == 1 ? "1 element" : std::to_string(store.count) + " elements";
  line += ", the nearest ";
  line += store.distance ? std::to_string(store.distance) + " elements " : "right ";
  line += side + (side == "behind" ? " its end" : " its start");
  if (!store.value.empty()) line += ", " + store.value;
  return line + "\n";
}

// Reasons why a probe left buffers out, with their numbers.
using LeftOut = std::vector<std::pair<std::string, int64_t>>;

// The row of how many buffers a probe guarded or filled in a call. `launches` is after how many
// launches bands were compared; -1 for a probe that compares none.
inline std::string coverage_row(
    const char* probe, int64_t done, int64_t launches, const LeftOut& left_out) {
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
