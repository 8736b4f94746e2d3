// What a user sets: limits of a dump, as rewriter/core/quantities.py reads them, which calls are recorded, and the rank of
// the process.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "texts.h"

namespace inductor_rewriter {

// The value of an environment variable; empty if it is not set.
inline std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

// Whether such a value is `off`, in any case.
inline bool is_off(const std::string& text) {
  return text.size() == 3 && (text[0] | 32) == 'o' && (text[1] | 32) == 'f' && (text[2] | 32) == 'f';
}

// Reads what an environment variable has, or else the table. Errors name the variable.
template <class Read>
auto wanted(const char* variable, const char* from_table, Read&& read) {
  const std::string text = environment(variable);
  if (text.empty()) return read(std::string(from_table ? from_table : ""));
  try {
    return read(text);
  } catch (const std::exception& error) {
    throw std::runtime_error(std::string(variable) + ": " + error.what());
  }
}

// Reads a number of up to `most` digits; false for any other text.
inline bool read_number(const std::string& digits, std::size_t most, int64_t& to) {
  to = std::atoll(digits.c_str());
  return !digits.empty() && digits.size() <= most && digits.find_first_not_of("0123456789") == std::string::npos;
}

constexpr uint64_t most_bytes = ~uint64_t{0} >> 1;  // for a file

// Parses a size such as `500M`, `10GB` or `2GiB`.
inline uint64_t parse_bytes(const std::string& text) {
  const std::size_t digits = text.find_first_not_of("0123456789");
  int64_t number = 0;
  std::string unit = digits == std::string::npos ? "" : text.substr(digits);
  if (!unit.empty() && unit.back() == 'B') unit.pop_back();
  const bool binary = unit.size() == 2 && unit[1] == 'i';
  const std::string powers = " KMGT";
  const std::size_t power = unit.empty() ? 0 : powers.find(unit[0], 1);
  const bool sound = read_number(text.substr(0, digits), 15, number) && number > 0 &&
      power != std::string::npos && unit.size() <= 1 + std::size_t(binary);
  if (!sound) throw std::runtime_error("'" + text + "' is no size, such as 500M or 10G");
  uint64_t size = static_cast<uint64_t>(number);
  for (std::size_t i = 0; i < power; ++i) {
    const uint64_t factor = binary ? 1024 : 1000;
    if (size > most_bytes / factor) return most_bytes;
    size *= factor;
  }
  return size;
}

// The size limit of a dump in bytes; 0 for none.
inline uint64_t wanted_bytes(const char* from_table) {
  return wanted("REWRITER_MAX_BYTES", from_table, [](const std::string& text) {
    return text.empty() ? 0 : parse_bytes(text);
  });
}

// How many calls, the last ones, a dump keeps; 0 for all.
inline std::size_t wanted_calls(int from_table) {
  const std::string text = environment("REWRITER_KEEP");
  if (text.empty()) return static_cast<std::size_t>(from_table);
  int64_t number = 0;
  if (!read_number(text, 9, number) || !number) {
    throw std::runtime_error("REWRITER_KEEP: '" + text + "' is no number of calls, such as 5");
  }
  return static_cast<std::size_t>(number);
}

// The value of an environment variable; -1 if it is not set, or not a number.
inline int number_of(const char* variable) {
  int64_t number = 0;
  return read_number(environment(variable), 9, number) ? static_cast<int>(number) : -1;
}

// The number of this process in its job, 0 if it has none. torchrun and most launchers set RANK. Others set at
// least LOCAL_RANK, the number of the process on its host; with GROUP_RANK, the number of the host, and
// LOCAL_WORLD_SIZE that gives the rank. Under srun the rank is SLURM_PROCID, unless the task itself started
// several processes: then LOCAL_RANK differs from SLURM_LOCALID.
inline int read_rank() {
  const int rank = number_of("RANK"), local = number_of("LOCAL_RANK");
  const int host = number_of("GROUP_RANK"), step = number_of("SLURM_PROCID");
  if (rank >= 0) return rank;
  if (local >= 0 && host >= 0) {
    const int each = number_of("LOCAL_WORLD_SIZE");
    return host * (each > 0 ? each : 0) + local;
  }
  if (step >= 0 && (local < 0 || local == number_of("SLURM_LOCALID"))) return step;
  return local > 0 ? local : 0;
}

// The number of processes in the job, 0 if unknown.
inline int read_size() {
  const int size = number_of("WORLD_SIZE"), tasks = number_of("SLURM_NTASKS");
  if (size >= 0) return size;
  return number_of("SLURM_PROCID") >= 0 && tasks > 0 ? tasks : 0;
}

// Which calls of a wrapper are recorded, as in rewriter/core/quantities.py: `3-5,9,20-,100-/10`; an empty text means all.
class Calls {
 public:
  explicit Calls(const std::string& text) {
    for (std::string& part : split(text, ",")) {
      part.erase(0, std::min(part.find_first_not_of(' '), part.size()));
      part.erase(part.find_last_not_of(' ') + 1);
      const std::size_t slash = std::min(part.find('/'), part.size());
      const std::size_t dash = std::min(part.find('-'), slash);
      Range range;
      bool sound = read_number(part.substr(0, dash), most, range.low);
      range.high = range.low;
      if (dash < slash) {
        const std::string last = part.substr(dash + 1, slash - dash - 1);
        range.high = INT64_MAX;
        sound = sound && (last.empty() || read_number(last, most, range.high));
      }
      if (slash < part.size()) {
        sound = sound && dash < slash && read_number(part.substr(slash + 1), most, range.step) && range.step;
      }
      if (!sound || range.low > range.high) {
        throw std::runtime_error("'" + part + "' is no call or range of calls, such as 3-5");
      }
      ranges_.push_back(range);
    }
  }

  bool are_all() const { return ranges_.empty(); }

  bool contains(int64_t number) const {
    for (const Range& range : ranges_) {
      const bool inside = range.low <= number && number <= range.high;
      if (inside && (number - range.low) % range.step == 0) return true;
    }
    return ranges_.empty();
  }

 private:
  static constexpr std::size_t most = 15;  // digits
  struct Range {
    int64_t low = 0, high = 0, step = 1;
  };

  std::vector<Range> ranges_;
};

}  // namespace inductor_rewriter
