// What the environment says: limits of a dump, as rewriter/runtime/sizes.py reads them, and the rank of the process.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

namespace inductor_rewriter {

constexpr uint64_t most_bytes = ~uint64_t{0} >> 1;  // for a file

// Parses a size such as `500M`, `10GB` or `2GiB`.
inline uint64_t parse_bytes(const std::string& text) {
  const std::size_t digits = text.find_first_not_of("0123456789");
  const std::string number = text.substr(0, digits);
  std::string unit = digits == std::string::npos ? "" : text.substr(digits);
  if (!unit.empty() && unit.back() == 'B') unit.pop_back();
  const bool binary = unit.size() == 2 && unit[1] == 'i';
  const std::string powers = " KMGT";
  const std::size_t power = unit.empty() ? 0 : powers.find(unit[0], 1);
  const bool sound = !number.empty() && number.size() <= 15 && std::atoll(number.c_str()) > 0 &&
      power != std::string::npos && unit.size() <= 1 + std::size_t(binary);
  if (!sound) throw std::runtime_error("'" + text + "' is no size, such as 500M or 10G");
  uint64_t size = static_cast<uint64_t>(std::atoll(number.c_str()));
  for (std::size_t i = 0; i < power; ++i) {
    const uint64_t factor = binary ? 1024 : 1000;
    if (size > most_bytes / factor) return most_bytes;
    size *= factor;
  }
  return size;
}

// The size limit of a dump in bytes; 0 for none.
inline uint64_t wanted_bytes(const char* from_table) {
  const char* wanted = std::getenv("REWRITER_MAX_BYTES");
  if (!wanted || !*wanted) return from_table && *from_table ? parse_bytes(from_table) : 0;
  try {
    return parse_bytes(wanted);
  } catch (const std::exception& error) {
    throw std::runtime_error(std::string("REWRITER_MAX_BYTES: ") + error.what());
  }
}

// How many calls, the last ones, a dump keeps; 0 for all.
inline std::size_t wanted_calls(int from_table) {
  const char* wanted = std::getenv("REWRITER_KEEP");
  if (!wanted || !*wanted) return static_cast<std::size_t>(from_table);
  const std::string text = wanted;
  const bool sound = text.size() < 10 && text.find_first_not_of("0123456789") == std::string::npos;
  const int number = sound ? std::atoi(wanted) : 0;
  if (!number) {
    throw std::runtime_error("REWRITER_KEEP: '" + text + "' is no number of calls, such as 5");
  }
  return static_cast<std::size_t>(number);
}

// The value of an environment variable; -1 if it is not set, or not a number.
inline int number_of(const char* variable) {
  const char* text = std::getenv(variable);
  if (!text || !*text) return -1;
  const bool sound = std::strspn(text, "0123456789") == std::strlen(text);
  return sound && std::strlen(text) < 10 ? std::atoi(text) : -1;
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

}  // namespace inductor_rewriter
