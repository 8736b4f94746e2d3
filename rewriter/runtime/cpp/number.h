// Numbers as Python writes them: repr, and the format .4g.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "engine/process.h"

namespace inductor_rewriter {

// Compiler flags of wrappers may make std::isnan always false: look at the bits.
inline uint64_t bits_of(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline bool is_finite(double value) {
  return (bits_of(value) >> 52 & 0x7ff) != 0x7ff;
}

inline const char* name_special(double value) {
  uint64_t bits = bits_of(value);
  return bits << 12 ? "nan" : bits >> 63 ? "-inf" : "inf";
}

// 0.DIGITS times ten to the `point`.
struct Decimal {
  bool negative = false;
  char digits[40] = {};
  int count = 0;
  int point = 0;
};

// `std::to_chars` is ten times as fast. Looked up at run time: a library that links to it does not load with
// an older standard library.
struct ToChars {
  struct Result {
    char* end;
    int error;
  };
  static constexpr int scientific = 1;  // std::chars_format

  Result (*const shortest)(char*, char*, double, int) = loaded("_ZSt8to_charsPcS_dSt12chars_format");
  Result (*const precise)(char*, char*, double, int, int) = loaded("_ZSt8to_charsPcS_dSt12chars_formati");

  static const ToChars& get() {
    static const ToChars functions;
    return functions;
  }
};

inline Decimal read_decimal(const char* text) {
  Decimal result;
  result.negative = *text == '-';
  const char* exponent = std::strchr(text, 'e');
  result.point = std::atoi(exponent + 1) + 1;
  for (const char* at = text; at != exponent; ++at) {  // the locale sets the decimal point
    if (*at >= '0' && *at <= '9') result.digits[result.count++] = *at;
  }
  while (result.count > 1 && result.digits[result.count - 1] == '0') --result.count;
  return result;
}

inline Decimal to_decimal(double value, int precision) {
  char text[40];
  if (ToChars::get().precise) {
    *ToChars::get().precise(text, text + sizeof text - 1, value, ToChars::scientific, precision - 1).end = 0;
  } else {
    std::snprintf(text, sizeof text, "%.*e", precision - 1, value);
  }
  return read_decimal(text);
}

inline std::string write_decimal(const Decimal& from, int lowest, int highest, bool fraction) {
  const std::string digits(from.digits, static_cast<std::size_t>(from.count));
  const auto zeros = [](int count) { return std::string(static_cast<std::size_t>(count), '0'); };
  std::string text = from.negative ? "-" : "";
  if (from.point <= lowest || from.point > highest) {
    char exponent[16];
    std::snprintf(exponent, sizeof exponent, "e%+03d", from.point - 1);
    return text + digits[0] + (from.count > 1 ? "." : "") + digits.substr(1) + exponent;
  }
  if (from.point <= 0) return text + "0." + zeros(-from.point) + digits;
  if (from.count <= from.point) return text + digits + zeros(from.point - from.count) + (fraction ? ".0" : "");
  const auto point = static_cast<std::size_t>(from.point);
  return text + digits.substr(0, point) + "." + digits.substr(point);
}

// The shortest digits that read back as the same value.
inline std::string python_repr(double value, bool fraction = true) {
  if (!is_finite(value)) return name_special(value);
  if (ToChars::get().shortest) {
    char text[40];
    *ToChars::get().shortest(text, text + sizeof text - 1, value, ToChars::scientific).end = 0;
    return write_decimal(read_decimal(text), -4, 16, fraction);
  }
  // Fewer digits are zeros at the end, but for subnormal numbers.
  char text[40];
  for (int precision = (bits_of(value) >> 52 & 0x7ff) ? 15 : 1; precision <= 17; ++precision) {
    std::snprintf(text, sizeof text, "%.*e", precision - 1, value);
    if (std::strtod(text, nullptr) == value) break;
  }
  return write_decimal(read_decimal(text), -4, 16, fraction);
}

inline std::string python_general(double value, int precision = 4) {
  if (!is_finite(value)) return name_special(value);
  return write_decimal(to_decimal(value, precision), -4, precision, false);
}

inline std::string complex_repr(double real, double imag) {
  std::string text = python_repr(imag, false);
  if (bits_of(real) == 0) return text + "j";
  if (text[0] != '-') text = "+" + text;
  return "(" + python_repr(real, false) + text + "j)";
}

// A fingerprint as text.
inline std::string hexadecimal(const uint64_t (&words)[2]) {
  std::string text(32, '0');
  for (std::size_t i = 0; i < 32; ++i) {
    text[i] = "0123456789abcdef"[words[i / 16] >> (60 - 4 * (i % 16)) & 15];
  }
  return text;
}

// As Python prints a list.
inline std::string joined(const std::vector<int64_t>& numbers) {
  std::string text = "[";
  for (int64_t number : numbers) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(number);
  }
  return text + "]";
}

}  // namespace inductor_rewriter
