// The patterns that memory is filled with. rewriter/diagnosis/fill_patterns.py has the same and explains
// them.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "../engine/elements.h"
#include "../texts.h"

namespace inductor_rewriter {

enum MemoryProbe { bounds_probe, poison_probe, stale_probe, memory_probes };

inline const char* memory_probe_name(int probe) {
  static const char* const names[] = {"bounds", "poison", "stale"};
  return names[probe];
}

constexpr uint64_t repeated(uint64_t value, int bytes) {
  return bytes == 1 ? value * 0x0101010101010101u : bytes == 2 ? value * 0x0001000100010001u
                                                              : value * 0x0000000100000001u;
}

// For types of one byte: finite numbers, every second one negative, or NaN.
constexpr uint64_t bytes_or(int fill, uint64_t finite, uint64_t nan) {
  return fill ? repeated(finite, 1) | 0x0080008000800080u : repeated(nan, 1);
}

// The 8 bytes with which a probe fills memory of a dtype, as a little-endian number.
inline uint64_t memory_pattern(int probe, int fill, int32_t dtype) {
  const uint64_t place = static_cast<uint64_t>(probe);
  const uint64_t last[] = {0x4b, 0x4d, 0x4e};
  switch (dtype) {
    case dtypes::boolean: return repeated(static_cast<uint64_t>(fill), 1);
    case dtypes::float8_e4m3fn: return bytes_or(fill, last[probe], probe == 1 ? 0xff : 0x7f);
    case dtypes::float8_e5m2: return bytes_or(fill, last[probe], 0x7d + place);
    case dtypes::float8_e4m3fnuz:
    case dtypes::float8_e5m2fnuz: return bytes_or(fill, last[probe], 0x80);
    case dtypes::float8_e8m0fnu: return bytes_or(fill, last[probe], 0xff);
    case dtypes::float64:
    case dtypes::complex128: {
      const double finite = -12345.678 - probe;
      uint64_t bits;
      std::memcpy(&bits, &finite, sizeof bits);
      return fill ? bits : 0x7ff87fc17fc17fc1u + place;
    }
    case dtypes::float32:
    case dtypes::complex64: {
      const float finite = static_cast<float>(12345.678 + probe);
      uint32_t bits;
      std::memcpy(&bits, &finite, sizeof bits);
      return fill ? repeated(bits, 4) | 0x80000000u : repeated(0x7fc17fc1u + place, 4);
    }
    case dtypes::float16:
    case dtypes::complex32:
      return fill ? repeated(0x7207 + place, 2) | 0x0000800000008000u : repeated(0x7fc1 + place, 2);
    case dtypes::bfloat16:
      return fill ? repeated(0x4641 + place, 2) | 0x0000800000008000u : repeated(0x7fc1 + place, 2);
    default: {
      if (!fill) return repeated(0x5a + 2 * place, 1);
      const uint64_t small[] = {5, 1, 3};
      const int size = elements::size(dtype);
      return size == 8 ? small[probe] : repeated(small[probe], size == 2 || size == 4 ? size : 1);
    }
  }
}

// Reads REWRITER_FILL, the fill of each probe: `1` for all, or `bounds=1,stale=0`. False if it is anything
// else.
inline bool read_fills(const std::string& text, int (&fills)[memory_probes]) {
  auto strip = [](const std::string& from) {
    const std::size_t first = from.find_first_not_of(" \t\n\r");
    if (first == std::string::npos) return std::string();
    return from.substr(first, from.find_last_not_of(" \t\n\r") - first + 1);
  };
  int read[memory_probes] = {};
  for (const std::string& given : split(text, ",")) {
    const std::string part = strip(given);
    if (part.empty()) continue;
    const std::size_t equals = part.rfind('=');
    const std::string number = strip(equals == std::string::npos ? part : part.substr(equals + 1));
    const std::string name = equals == std::string::npos ? "" : strip(part.substr(0, equals));
    bool found = false;
    for (int probe = 0; probe < memory_probes; ++probe) {
      if (equals != std::string::npos && name != memory_probe_name(probe)) continue;
      read[probe] = number == "1";
      found = true;
    }
    if (!found || (number != "0" && number != "1")) return false;
  }
  for (int probe = 0; probe < memory_probes; ++probe) fills[probe] = read[probe];
  return true;
}

}  // namespace inductor_rewriter
