// Upstream's text format of values in wrappers in Python: `_print_debugging_tensor_value_info` in
// torch/_inductor/codegen/debug_utils.py. The statistics are ours, over the finite elements, and `Dtype` is the
// dtype. The lines of the probe `names` are those of C++, since upstream prints none in Python.
#pragma once

#include <string>

#include "../health.h"
#include "../values.h"

namespace inductor_rewriter::upstream_python {

inline std::string title_text(const Event& event, const Item& item) {
  const std::string where = event.launch
      ? std::string(event.phase) + "_launch - " + event.launch->row->kernel
      : std::string("aoti_model_inputs");
  return "inductor: " + where + " - " + item.label->expr + "\n";
}

inline std::string digest_text(const Event& event, const Item& item) {
  const std::string& print = item.fingerprint;
  return title_text(event, item) + (print.empty() ? "" : "Fingerprint:  " + print + "\n");
}

inline std::string health_text(const Event& event, const Item& item) {
  const std::string text = health_of(item);
  return text.empty() ? text : title_text(event, item) + "Health:  " + text + "\n";
}

inline std::string value_text(const Event& event, const Item& item) {
  const Tensor& tensor = item.tensor;
  const Statistics& statistics = item.statistics;
  std::string text = title_text(event, item);
  if (!item.is_tensor()) return text + "Value:  " + item.text + "\n";
  if (item.has_head && tensor.numel <= most_values) {
    std::string values;
    for (const char* element : first_elements(item.host, tensor.dtype)) {
      values += (values.empty() ? "" : ", ") + element_text(element, tensor.dtype, true);
    }
    text += "[" + values + "]\n";
  }
  text += "Number of elements:  " + std::to_string(tensor.numel) + "\nSize:  torch.Size([";
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    text += (i ? ", " : "") + std::to_string(tensor.shape[i]);
  }
  text += std::string("])\nDtype:  torch.") + dtype_info(tensor.dtype).name + "\n";
  if (item.measured) {
    const auto number = [&](double value, const std::string& whole) {
      return !statistics.finite ? "None" : whole.empty() ? python_repr(value) : whole;
    };
    text += "Mean:  " + number(statistics.mean, "") + "\n";
    text += "Min:  " + number(statistics.low, statistics.low_text) + "\n";
    text += "Max:  " + number(statistics.high, statistics.high_text) + "\n";
    text += "Std:  " + (statistics.finite > 1 ? python_repr(statistics.std) : "None") + "\n";
  }
  return text + (item.fingerprint.empty() ? "" : "Fingerprint:  " + item.fingerprint + "\n");
}

}  // namespace inductor_rewriter::upstream_python
