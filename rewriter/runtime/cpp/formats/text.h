// The text of values, in our own format or in upstream's.
#pragma once

#include <string>

#include "../recorder.h"
#include "../statistics.h"
#include "upstream.h"

namespace inductor_rewriter {

// Which values of an event are shown. An input is before a launch, and again after it only if it changed: something wrote out of
// bounds, or the wrapper does not declare that the launch writes it.
class Shown {
 public:
  Shown(const Event& event, RunningCall& call, const Recorder& recorder)
      : all_(recorder.upstream), before_(event.phase[0] == 'b'), after_(event.phase[0] == 'a'),
        call_(call) {
    if (before_) {
      call_.shown_launch = event.launch;
      call_.shown_iteration = event.iteration;
      call_.shown.clear();
    }
    after_ = after_ && call_.shown_launch == event.launch && call_.shown_iteration == event.iteration;
  }

  bool is_fresh(const Item& item) {
    if (all_) return true;
    if (before_) call_.shown.emplace_back(item.label->name, item.facts());
    if (!after_ || item.label->role != "in") return true;
    for (const auto& [name, facts] : call_.shown) {
      if (name == item.label->name) return facts != item.facts();
    }
    return true;
  }

 private:
  const bool all_, before_;
  bool after_;
  RunningCall& call_;
};

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
  const Measured& found = item.measurement;
  if (!item.has_statistics()) return "not measured";
  if (!item.tensor.numel) return "empty";
  const NumberTexts numbers(item, "-", short_number);
  const std::string text = (is_complex(item.tensor.dtype) ? "|x| min " : "min ") + numbers.low + " max " + numbers.high +
      " mean " + numbers.mean + " std " + numbers.std;
  return text + " nan " + std::to_string(found.nan) + " inf " + std::to_string(found.infinite());
}

// The beginning of a line, before the results of the probes.
inline std::string about_value(const Event& event, const Item& item, const Recorder& recorder) {
  const Tensor& tensor = item.tensor;
  std::string text = recorder.line(event);
  text += "  " + item.label->role + " " + item.label->name + "  ";
  if (!item.is_tensor()) return text + item.kind + " " + item.text;
  text += short_dtype(dtype_info(tensor.dtype).name) + joined(tensor.shape);
  return text + "  " + tensor.device;
}

inline std::string fingerprint_text(const Item& item) {
  return item.fingerprint.empty() ? "not hashed" : "fingerprint=" + item.fingerprint;
}

inline std::string value_text(const Event& event, const Item& item, const Recorder& recorder) {
  if (recorder.upstream) return upstream::value_text(event, item, {recorder.of_python});
  std::string text = about_value(event, item, recorder);
  if (!item.is_tensor()) return text + "\n";
  text += "  " + statistics_text(item);
  if (!item.fingerprint.empty()) text += "  " + fingerprint_text(item);
  if (item.has_head) {
    text += "\n    [" + join(item.head, ", ");
    text += item.tensor.numel > static_cast<int64_t>(item.head.size()) ? " ...]" : "]";
  }
  return text + "\n";
}

inline std::string digest_text(const Event& event, const Item& item, const Recorder& recorder) {
  if (recorder.upstream) return upstream::digest_text(event, item, {recorder.of_python});
  return about_value(event, item, recorder) + "  " + fingerprint_text(item) + "\n";
}

inline std::string health_text(const Event& event, const Item& item, const Recorder& recorder) {
  if (recorder.upstream) return upstream::health_text(event, item, {recorder.of_python});
  const std::string text = health_of(item);
  return text.empty() ? text : about_value(event, item, recorder) + "  " + text + "\n";
}

}  // namespace inductor_rewriter
