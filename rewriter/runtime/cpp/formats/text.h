// The text of values, in our own format or in upstream's.
#pragma once

#include <string>

#include "../health.h"
#include "../line.h"
#include "../values.h"
#include "upstream.h"
#include "upstream_python.h"

namespace inductor_rewriter {

// `f32`, `bf16`, `i64`, `b8`, `c64`, `f8e4m3fn`.
inline std::string short_dtype(const std::string& name) {
  static const char* const pairs[][2] = {
      {"float8_", "f8"}, {"bfloat", "bf"}, {"float", "f"}, {"complex", "c"},
      {"uint", "u"}, {"int", "i"}, {"bool", "b8"}};
  for (auto& pair : pairs) {
    std::string start = pair[0];
    if (name.compare(0, start.size(), start) == 0) return pair[1] + name.substr(start.size());
  }
  return name;
}

inline std::string statistics_text(const Item& item) {
  const Statistics& statistics = item.statistics;
  if (!item.measured) return "not measured";
  if (!statistics.numel) return "empty";
  auto number = [&](double value, const std::string& whole) {
    return !statistics.finite ? "-" : whole.empty() ? python_general(value) : whole;
  };
  std::string text = statistics.magnitude ? "|x| min " : "min ";
  text += number(statistics.low, statistics.low_text);
  text += " max " + number(statistics.high, statistics.high_text);
  text += " mean " + number(statistics.mean, "");
  text += " std " + (statistics.finite > 1 ? python_general(statistics.std) : "-");
  return text + " nan " + std::to_string(statistics.nan) + " inf " + std::to_string(statistics.inf);
}

// The beginning of a line, before the results of the probes.
inline std::string about_value(const Event& event, const Item& item, const Recorder& recorder) {
  const Tensor& tensor = item.tensor;
  std::string text = line_start(event, recorder);
  text += "  " + item.label->role + " " + item.label->name + "  ";
  if (!item.is_tensor()) return text + item.kind + " " + item.text;
  text += short_dtype(dtype_info(tensor.dtype).name) + joined(tensor.shape);
  return text + "  " + tensor.device;
}

inline std::string fingerprint_text(const Item& item) {
  return item.fingerprint.empty() ? "not hashed" : "fingerprint=" + item.fingerprint;
}

inline std::string value_text(const Event& event, const Item& item, const Recorder& recorder) {
  if (recorder.upstream) {
    return recorder.of_python ? upstream_python::value_text(event, item) : upstream::value_text(event, item);
  }
  std::string text = about_value(event, item, recorder);
  if (!item.is_tensor()) return text + "\n";
  text += "  " + statistics_text(item);
  if (!item.fingerprint.empty()) text += "  " + fingerprint_text(item);
  if (item.has_head) {
    text += "\n    [";
    for (std::size_t i = 0; i < item.head.size(); ++i) text += (i ? ", " : "") + item.head[i];
    text += item.tensor.numel > static_cast<int64_t>(item.head.size()) ? " ...]" : "]";
  }
  return text + "\n";
}

inline std::string digest_text(const Event& event, const Item& item, const Recorder& recorder) {
  if (recorder.upstream) {
    return recorder.of_python ? upstream_python::digest_text(event, item) : upstream::digest_text(event, item);
  }
  return about_value(event, item, recorder) + "  " + fingerprint_text(item) + "\n";
}

inline std::string health_text(const Event& event, const Item& item, const Recorder& recorder) {
  if (recorder.upstream) {
    return recorder.of_python ? upstream_python::health_text(event, item) : upstream::health_text(event, item);
  }
  const std::string text = health_of(item);
  return text.empty() ? text : about_value(event, item, recorder) + "  " + text + "\n";
}

}  // namespace inductor_rewriter
