// Upstream's text formats of values, for tools that parse them. Elements in C++ are as in ATen/core/Formatting.cpp. The
// lines of the probe `names` are those of C++ in both languages, since upstream prints none in Python.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "../statistics.h"
#include "../values.h"

namespace inductor_rewriter::upstream {

// How the numbers of a matrix are printed: as integers, fixed or scientific, and divided by a scale.
class Columns {
 public:
  Columns(const double* values, std::size_t count) {
    bool whole = true, any = false;
    double least = 0, most = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (!is_finite(values[i])) continue;
      double size = std::fabs(values[i]);
      whole = whole && size == std::ceil(size);
      least = any && least < size ? least : size;
      most = any && most > size ? most : size;
      any = true;
    }
    double low = exponent(any ? least : 1), high = exponent(any ? most : 1);
    if (!any) low = high = 1;
    format_ = "%*.4f";
    if (whole) {
      format_ = high > 9 ? "%*.4e" : "%*.6g";
      width = high > 9 ? 11 : static_cast<int>(high) + 1;
    } else if (high - low > 4) {
      format_ = "%*.4e";
      width = std::fabs(high) > 99 || std::fabs(low) > 99 ? 12 : 11;
    } else if (high > 5 || high < 0) {
      width = 7;
      scale = std::pow(10, high - 1);
    } else {
      width = high == 0 ? 7 : static_cast<int>(high) + 6;
    }
  }

  std::string number(double value) const {
    char text[400];
    if (is_finite(value)) std::snprintf(text, sizeof text, format_, width, value / scale);
    else std::snprintf(text, sizeof text, "%*s", width, name_special(value));
    return text;
  }
  std::string scale_line() const { return python_general(scale, 6) + " *\n"; }

  int width = 0;
  double scale = 1;

 private:
  static double exponent(double size) { return size ? std::floor(std::log10(size)) + 1 : 1; }
  const char* format_;
};

inline std::string matrix_text(const double* values, int64_t rows, int64_t columns, int indent) {
  Columns style(values, static_cast<std::size_t>(rows * columns));
  std::string margin(indent, ' '), text;
  int64_t fit = (80 - indent) / (style.width + 1);
  for (int64_t first = 0, last; first < columns; first = last + 1) {
    last = first + fit <= columns - 1 ? first + fit - 1 : columns - 1;
    if (fit < columns) {
      text += first ? "\n" : "";
      text += "Columns " + std::to_string(first + 1) + " to " + std::to_string(last + 1) + margin;
    }
    if (style.scale != 1) text += style.scale_line() + margin;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t column = first; column <= last; ++column) {
        text += style.number(values[row * columns + column]) + (column == last ? "\n" : " ");
      }
      if (row != rows - 1) text += style.scale != 1 ? margin + " " : margin;
    }
  }
  return text;
}

inline std::string values_text(const Item& item) {
  const std::vector<int64_t>& shape = item.tensor.shape;
  std::vector<double> values;
  each_first(item, [&](const char* element) {
    alignas(64) double parts[8];
    convert(item.tensor.dtype, element, 1, parts);
    values.push_back(parts[0]);
  });
  std::string text, sizes;
  for (int64_t size : shape) sizes += (sizes.empty() ? "" : ",") + std::to_string(size);
  if (shape.empty()) {
    text = python_general(values[0], 6) + "\n";
  } else if (shape.size() == 1 && !values.empty()) {
    Columns style(values.data(), values.size());
    if (style.scale != 1) text += style.scale_line();
    for (double value : values) text += style.number(value) + "\n";
  } else if (shape.size() == 2 && !values.empty()) {
    text = matrix_text(values.data(), shape[0], shape[1], 0);
  } else if (!values.empty()) {
    std::size_t dim = shape.size();
    int64_t rows = shape[dim - 2], columns = shape[dim - 1], count = item.tensor.numel;
    std::vector<int64_t> place(dim - 2, 0);
    for (int64_t done = 0; done < count; done += rows * columns) {
      text += done ? "\n(" : "(";
      int64_t from = 0;
      for (std::size_t i = 0; i < dim - 2; ++i) {
        text += std::to_string(place[i] + 1) + ",";
        from = from * shape[i] + place[i];
      }
      text += ".,.) = \n" + matrix_text(&values[from * rows * columns], rows, columns, 1);
      // The first index varies fastest.
      for (std::size_t i = 0; i < dim - 2; ++i) {
        if (++place[i] < shape[i]) break;
        place[i] = 0;
      }
    }
  }
  std::string device = item.tensor.device.substr(0, item.tensor.device.find(':'));
  for (char& letter : device) letter = static_cast<char>(letter - ('a' - 'A'));
  return text + "[ " + device + dtype_info(item.tensor.dtype).type + "Type{" + sizes + "} ]\n";
}

// The name of the dtype in C++.
inline std::string type_text(const Dtype& dtype) {
  static const char* const names[][2] = {
      {"uint8", "unsigned char"}, {"int8", "signed char"}, {"int16", "short int"},
      {"int32", "int"}, {"int64", "long int"}, {"uint16", "short unsigned int"},
      {"uint32", "unsigned int"}, {"uint64", "long unsigned int"}, {"float64", "double"},
      {"complex32", "c10::complex<c10::Half>"}, {"complex64", "c10::complex<float>"},
      {"complex128", "c10::complex<double>"}};
  std::string name = dtype.name;
  for (auto& pair : names) {
    if (name == pair[0]) return pair[1];
  }
  bool known = name == "float32" || name == "float16" || name == "bfloat16" || name == "bool";
  return known ? name : std::string("c10::") + dtype.type;
}

// How upstream shows a value: in C++ as `aoti_torch_print_tensor_handle` of
// torch/csrc/inductor/aoti_torch/shim_common.cpp, in Python as `_print_debugging_tensor_value_info` of
// torch/_inductor/codegen/debug_utils.py. The statistics are ours, over the finite elements.
struct Form {
  const bool of_python;

  // The first line.
  std::string title(const Event& event, const Item& item) const {
    std::string about = event.launch ? std::string(event.phase) + "_launch" : "aoti_model_inputs";
    if (event.launch) about += std::string(" - ") + event.launch->row->kernel;
    about += " - " + item.label->expr;
    if (of_python) return "inductor: " + about + "\n";
    return "[  " + about + (item.is_tensor() ? "  ]:\n" : ": " + item.text + "  ]\n");
  }
  // One of the lines below it; empty if there is no such fact.
  std::string fact(const char* name, const std::string& text) const {
    return text.empty() ? text : name + std::string(of_python ? ":  " : ": ") + text + "\n";
  }
  const char* end() const { return of_python ? "" : "\n"; }
};

inline std::string digest_text(const Event& event, const Item& item, const Form& form) {
  return form.title(event, item) + form.fact("Fingerprint", item.fingerprint) + form.end();
}

inline std::string health_text(const Event& event, const Item& item, const Form& form) {
  const std::string health = form.fact("Health", health_of(item));
  return health.empty() ? health : form.title(event, item) + health + form.end();
}

// The facts of a tensor in a wrapper in Python.
inline std::string python_facts(const Item& item, const Form& form) {
  const Tensor& tensor = item.tensor;
  std::string text, values;
  if (item.has_head && tensor.numel <= most_values) {
    each_first(item, [&](const char* element) {
      values += (values.empty() ? "" : ", ") + element_text(element, tensor.dtype, true);
    });
    text += "[" + values + "]\n";
  }
  text += form.fact("Number of elements", std::to_string(tensor.numel));
  text += form.fact("Size", "torch.Size(" + joined(tensor.shape) + ")");
  text += form.fact("Dtype", std::string("torch.") + dtype_info(tensor.dtype).name);
  if (!item.has_statistics()) return text;
  const NumberTexts numbers(item, "None", [](double value) { return python_repr(value); });
  text += form.fact("Mean", numbers.mean) + form.fact("Min", numbers.low) + form.fact("Max", numbers.high);
  return text + form.fact("Std", numbers.std);
}

inline std::string cpp_facts(const Item& item, const Form& form) {
  const Tensor& tensor = item.tensor;
  std::string text;
  if (item.has_head && tensor.numel <= most_values) text += values_text(item);
  text += form.fact("Number of elements", std::to_string(tensor.numel));
  text += form.fact("Dtype", type_text(dtype_info(tensor.dtype)));
  if (item.has_statistics() && tensor.numel) {
    const NumberTexts numbers(item, "nan", [](double value) { return python_general(value, 6); });
    text += form.fact("Mean value", numbers.mean) + form.fact("Min value", numbers.low);
    text += form.fact("Max value", numbers.high);
  }
  text += form.fact("Device", tensor.device) + form.fact("Size", joined(tensor.shape));
  if (tensor.strided) {
    bool contiguous = true;
    int64_t next = 1;
    for (std::size_t i = tensor.shape.size(); i-- > 0; next *= tensor.shape[i]) {
      contiguous = contiguous && (tensor.shape[i] == 1 || tensor.stride[i] == next);
    }
    text += form.fact("Stride", joined(tensor.stride)) + form.fact("Layout", "Strided");
    text += form.fact("Is contiguous", contiguous || !tensor.numel ? "1" : "0");
  }
  return text + form.fact("Requires grad", "0");
}

inline std::string value_text(const Event& event, const Item& item, const Form& form) {
  const std::string title = form.title(event, item);
  if (!item.is_tensor()) return form.of_python ? title + "Value:  " + item.text + "\n" : title;
  const std::string facts = form.of_python ? python_facts(item, form) : cpp_facts(item, form);
  return title + facts + form.fact("Fingerprint", item.fingerprint) + form.end();
}

}  // namespace inductor_rewriter::upstream
