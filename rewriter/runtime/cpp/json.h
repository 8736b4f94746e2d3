// JSON as Python's json.dumps writes it, on one line or with indent=1.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <type_traits>

#include "number.h"
#include "texts.h"

namespace inductor_rewriter {

// Decodes one character of UTF-8. Other bytes become lone surrogates, as with Python's
// surrogateescape.
inline uint32_t next_character(const char*& at) {
  unsigned char first = static_cast<unsigned char>(*at++);
  int more = first < 0xc2 ? 0 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : first < 0xf5 ? 3 : 0;
  if (first < 0x80) return first;
  uint32_t code = first & (0x3f >> more);
  for (int i = 0; i < more; ++i) {
    if ((at[i] & 0xc0) != 0x80) more = 0;
    else code = code << 6 | (at[i] & 0x3f);
  }
  at += more;
  return more ? code : 0xdc00 + first;
}

inline bool stands_for_itself(char one) {
  return one >= 0x20 && one < 0x7f && one != '"' && one != '\\';
}

inline void append_string(std::string& text, const char* from) {
  text += '"';
  const auto escape = [&](uint32_t code) {
    char digits[16];
    std::snprintf(digits, sizeof digits, "\\u%04x", static_cast<unsigned>(code));
    text += digits;
  };
  for (;;) {
    // Mostly all of it.
    const char* const start = from;
    while (stands_for_itself(*from)) ++from;
    text.append(start, static_cast<std::size_t>(from - start));
    if (!*from) break;
    uint32_t code = next_character(from);
    static const char named[] = "\"\\\n\r\t\b\f", names[] = "\"\\nrtbf";
    if (const char* const at = code < 128 ? std::strchr(named, static_cast<int>(code)) : nullptr) {
      text += '\\';
      text += names[at - named];
    } else if (code < 0x10000) {
      escape(code);
    } else {
      escape(0xd800 + ((code - 0x10000) >> 10));
      escape(0xdc00 + (code & 0x3ff));
    }
  }
  text += '"';
}

class Json {
 public:
  explicit Json(bool indented) : indented_(indented) {}

  std::string text;

  Json& open(char bracket) {
    separate();
    text += bracket;
    ++depth_;
    first_ = true;
    return *this;
  }
  Json& close(char bracket) {
    --depth_;
    if (!first_) wrap();
    text += bracket;
    first_ = false;
    return *this;
  }
  Json& key(const char* name) {
    separate();
    append_string(text, name);
    text += ": ";
    named_ = true;
    return *this;
  }
  // Adds text that is JSON already.
  Json& put(const std::string& value) {
    separate();
    text += value;
    return *this;
  }
  template <class Number>
  Json& number(Number value) {
    if constexpr (std::is_integral_v<Number>) return put(std::to_string(value));
    else return put(number_text(value));
  }
  // JSON has no infinity, so it is a string.
  static std::string number_text(double value) {
    return is_finite(value) ? python_repr(value) : '"' + std::string(name_special(value)) + '"';
  }
  Json& string(const char* value) {
    separate();
    append_string(text, value);
    return *this;
  }
  Json& string(const std::string& value) { return string(value.c_str()); }

  // The parts of a text between separators; an empty text has none.
  Json& list(const char* joined, const std::string& separator) {
    open('[');
    for (const std::string& one : split(joined, separator)) string(one);
    return close(']');
  }

 private:
  void separate() {
    if (!named_ && depth_) {
      if (!first_) text.append(", ", indented_ ? 1 : 2);
      wrap();
    }
    first_ = named_ = false;
  }
  void wrap() {
    if (indented_) text += '\n' + std::string(depth_, ' ');
  }

  bool indented_;
  bool first_ = true;
  bool named_ = false;
  int depth_ = 0;
};

}  // namespace inductor_rewriter
