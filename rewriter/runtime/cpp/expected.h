// Compares the inputs of a call with what the wrapper was compiled for. It reads no elements.
//
// Behind the rows of inputs (symbols.h) the table has guards, conditions on symbols that have to hold: `if s0==1`.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "symbols.h"

namespace inductor_rewriter {

// The expected size with the values of this call, or its limits.
inline std::string shown(const Texts& known, const Symbols& symbols) {
  Texts members;
  for (const std::string& text : known) {
    std::size_t colon = text.find(':');
    int64_t value = 0;
    if (colon != std::string::npos) members.push_back(text.substr(colon + 1));
    else members.push_back(symbols.evaluate(text, value) ? std::to_string(value) : text);
  }
  return "[" + join(members, ", ") + "]";
}

// Adds the symbols in a dimension to `named`.
inline void add_symbols(const std::string& text, const Symbols& symbols, std::vector<const Symbol*>& names) {
  std::string word;
  for (char letter : formula_of(text) + " ") {
    if (std::isalnum(static_cast<unsigned char>(letter)) || letter == '_') {
      word += letter;
      continue;
    }
    const Symbol* symbol = symbols.find(word);
    if (symbol && std::find(names.begin(), names.end(), symbol) == names.end()) names.push_back(symbol);
    word.clear();
  }
}

// Messages for the conditions that do not hold and whose first size is from this input.
inline Texts violated(const Texts& guards, const std::string& input, const Symbols& symbols) {
  Texts problems;
  for (const std::string& guard : guards) {
    std::vector<const Symbol*> names;
    add_symbols(guard, symbols, names);
    if (names.empty() || names[0]->source != input || holds(guard, symbols)) continue;
    Texts values;
    for (const Symbol* name : names) values.push_back(name->text());
    problems.push_back("the guard " + guard + " does not hold (" + join(values, "; ") + ")");
  }
  return problems;
}

inline bool is_outside(const std::string& text, int64_t size) {
  std::size_t colon = text.find(':');
  if (colon == std::string::npos) return false;
  Texts limits = split(text.substr(colon + 1), "..");
  return (!limits[0].empty() && size < std::atoll(limits[0].c_str())) ||
      (!limits[1].empty() && size > std::atoll(limits[1].c_str()));
}

inline std::string differing(
    const char* what, const Texts& known, const std::vector<int64_t>& actual,
    const Symbols& symbols, const Tensor* sizes) {
  Texts wrong;
  std::vector<const Symbol*> names;
  for (std::size_t i = 0; i < actual.size() && i < known.size(); ++i) {
    // The stride of a dimension with at most one element, or of an empty tensor, is never used.
    if (sizes && (sizes->shape[i] == 1 || !sizes->numel)) continue;
    int64_t value = 0;
    bool is_known = symbols.evaluate(known[i], value);
    bool differs = is_known && value != actual[i];
    if (!differs && !is_outside(known[i], actual[i])) continue;
    wrong.push_back(std::to_string(i));
    if (!is_known || differs) add_symbols(known[i], symbols, names);
  }
  if (wrong.empty()) return "";
  std::string where = wrong.size() > 1 ? "dimensions " : "dimension ";
  where += join(wrong, ", ");
  for (const Symbol* name : names) where += "; " + name->text();
  return std::string(what) + " " + joined(actual) + ", expected " + shown(known, symbols) +
      " (" + where + ")";
}

inline std::string compare_size(const ExpectedInput& row, const Tensor& tensor, const Symbols& symbols) {
  const Texts& known = row.size.texts;
  std::size_t dim = tensor.shape.size();
  if (!row.size.known) return "";
  if (!row.size.has_other_rank(dim)) return differing("size", known, tensor.shape, symbols, nullptr);
  std::string count = row.size.is_open() ? std::to_string(known.size() - 1) + " or more"
                                         : std::to_string(known.size());
  return "size " + joined(tensor.shape) + ", expected " + shown(known, symbols) + " (" +
      std::to_string(dim) + (dim == 1 ? " dimension" : " dimensions") + ", not " + count + ")";
}

inline std::string compare_stride(const ExpectedInput& row, const Tensor& tensor, const Symbols& symbols) {
  if (!row.stride.known) return "";
  if (!tensor.strided) return "not strided";
  if (row.stride.has_other_rank(tensor.shape.size())) return "";
  return differing("stride", row.stride.texts, tensor.stride, symbols, &tensor);
}

// How one input differs from what is expected; empty if it does not.
inline std::string compare(const ExpectedInput& row, const Given& given, const Symbols& symbols) {
  if (row.kind == "-") return "";
  if (row.kind != "tensor") {
    bool fits = given.is_integer || (row.kind == "float" && given.kind == "float");
    return fits ? "" : given.kind + ", expected " + row.kind;
  }
  if (!given.is_tensor()) return given.kind + ", expected a tensor";
  const Tensor& tensor = given.tensor;
  Texts problems;
  auto add = [&](const std::string& text) {
    if (!text.empty()) problems.push_back(text);
  };
  add(compare_size(row, tensor, symbols));
  add(compare_stride(row, tensor, symbols));
  std::string dtype = dtype_info(tensor.dtype).name;
  if (row.dtype != "-" && row.dtype != dtype) add("dtype " + dtype + ", expected " + row.dtype);
  std::string device = tensor.device, type = device.substr(0, device.find(':'));
  if (row.device != "-" && row.device != device && row.device != type) {
    add("device " + device + ", expected " + row.device);
  }
  int64_t over = 0;
  if (row.alignment) over = reinterpret_cast<uintptr_t>(tensor.data) % row.alignment;
  if (over) add(std::to_string(over) + " bytes off an alignment of " + std::to_string(row.alignment));
  return join(problems, "; ");
}

// The facts of an input that are not known.
inline Texts unknown(const ExpectedInput& row, const Symbols& symbols) {
  if (row.kind == "-") return {"anything"};
  Texts facts;
  if (row.kind != "tensor") return facts;
  if (row.dtype == "-") facts.push_back("dtype");
  if (row.device == "-") facts.push_back("device");
  auto add = [&](const char* name, const ExpectedDimensions& known) {
    bool open = !known.known;
    int64_t value = 0;
    for (const std::string& text : known.texts) {
      bool limited = text.find(':') != std::string::npos;
      open = open || (!limited && !symbols.evaluate(text, value));
    }
    if (open) facts.push_back(name);
  };
  add("size", row.size);
  add("stride", row.stride);
  return facts;
}

}  // namespace inductor_rewriter
