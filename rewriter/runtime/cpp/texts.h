// Splits and joins texts.
#pragma once

#include <string>
#include <vector>

namespace inductor_rewriter {

using Texts = std::vector<std::string>;

// The parts between separators; an empty text has none.
inline Texts split(const std::string& text, const std::string& by) {
  Texts parts;
  for (std::size_t start = 0, end; !text.empty() && start <= text.size(); start = end + by.size()) {
    end = text.find(by, start);
    if (end == std::string::npos) end = text.size();
    parts.push_back(text.substr(start, end - start));
  }
  return parts;
}
inline Texts split(const char* text, const std::string& by) { return split(std::string(text ? text : ""), by); }

inline std::string join(const Texts& parts, const std::string& by) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) text += (i ? by : "") + parts[i];
  return text;
}

// Whether a name is among those that commas separate.
inline bool contains(const std::string& names, const std::string& name) {
  return ("," + names + ",").find("," + name + ",") != std::string::npos;
}

}  // namespace inductor_rewriter
