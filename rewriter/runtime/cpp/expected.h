// Compares the inputs of a call with what the wrapper was compiled for.
// It reads no elements.
//
// The table first has a row for each input, with `-` for a fact that is not known:
//
//     NAME tensor DTYPE DEVICE [SIZE,...] [STRIDE,...] [ALIGNMENT]
//     NAME int|float SYMBOL
//
// A size or stride is an expression over integers and symbols (the names of dynamic sizes), or `?` if it is not
// known. `:low..high` behind it gives limits; `...` as the last one means any number of further dimensions. A
// symbol gets its value from the first input that gives one: int inputs come first, then sizes, then strides.
//
// Rows with guards follow, conditions on symbols that have to hold: `if s77%8==0`, `if s0==1 or s0%8==0`. They
// have the operators of Python and the functions `min` and `max`.
#pragma once

#include <cctype>
#include <cstdlib>
#include <string>
#include <vector>

#include "tensor.h"
#include "texts.h"

namespace inductor_rewriter {

// A dimension is a formula, and after a colon its limits.
inline std::string formula_of(const std::string& text) {
  return text.substr(0, text.find(':'));
}

struct ExpectedDimensions {
  bool known = false;
  Texts texts;

  bool is_open() const { return !texts.empty() && texts.back() == "..."; }
  bool has_other_rank(std::size_t dim) const {
    return is_open() ? texts.size() - 1 > dim : texts.size() != dim;
  }
};

// One row of the table.
struct ExpectedInput {
  std::string name, kind = "-", dtype = "-", device = "-", symbol = "-";
  ExpectedDimensions size, stride;
  int64_t alignment = 0;

  static ExpectedInput read(const std::string& row) {
    Texts fields = split(row, " ");
    ExpectedInput input;
    input.name = fields.at(0);
    input.kind = fields.at(1);
    if (input.kind != "tensor") {
      input.symbol = fields.at(2);
      return input;
    }
    input.dtype = fields.at(2);
    input.device = fields.at(3);
    input.size = dimensions(fields.at(4));
    input.stride = dimensions(fields.at(5));
    if (fields.size() > 6) input.alignment = std::atoll(fields[6].c_str());
    return input;
  }

  static ExpectedDimensions dimensions(const std::string& text) {
    ExpectedDimensions result;
    result.known = text != "-";
    if (text.size() > 2) result.texts = split(text.substr(1, text.size() - 2), ",");
    return result;
  }
};

// The actual value of one input.
struct Given {
  std::string kind = "nothing";  // a tensor, int, float, bool
  bool is_integer = false;
  int64_t number = 0;
  Tensor tensor;

  bool is_tensor() const { return kind == "a tensor"; }

  static Given read(const Content& content) {
    using Kind = Content::Kind;
    Given given;
    switch (content.kind) {
      case Kind::tensor: case Kind::view: case Kind::array:
        if (read_tensor(content, given.tensor)) given.kind = "a tensor";
        return given;
      case Kind::floating: given.kind = "float"; return given;
      case Kind::boolean: given.kind = "bool"; break;
      case Kind::other: given.kind = "other"; return given;
      case Kind::text: given.kind = content.type; return given;
      default: given.kind = "int";
    }
    given.is_integer = true;
    given.number = content.integer;
    return given;
  }
};

struct Symbol {
  std::string name, source;
  int64_t value;
};

// The values of named sizes in one call, and the inputs that they are from.
class Symbols {
 public:
  Symbols(const std::vector<ExpectedInput>& rows, const std::vector<Given>& given) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (given[i].is_integer) bind(rows[i].symbol, given[i].number, rows[i].name);
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
      bind_all(rows[i].size, given[i].tensor.shape, rows[i], given[i]);
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (!given[i].tensor.strided) continue;
      bind_all(rows[i].stride, given[i].tensor.stride, rows[i], given[i]);
    }
  }

  const Symbol* find(const std::string& name) const {
    for (const Symbol& symbol : all_) {
      if (symbol.name == name) return &symbol;
    }
    return nullptr;
  }

  // The value of a dimension; false if it is not known.
  bool evaluate(const std::string& text, int64_t& value) const {
    Formula formula{*this, formula_of(text)};
    value = formula.sum();
    return formula.known && formula.at == formula.text.size();
  }

 private:
  struct Formula {
    const Symbols& symbols;
    std::string text;
    std::size_t at = 0;
    bool known = true;

    char next() const { return at < text.size() ? text[at] : '\0'; }

    int64_t sum() {
      int64_t value = product();
      while (next() == '+' || next() == '-') {
        bool plus = text[at++] == '+';
        int64_t other = product();
        value = plus ? value + other : value - other;
      }
      return value;
    }

    int64_t product() {
      int64_t value = factor();
      while (next() == '*' || next() == '/' || next() == '%') {
        char sign = text[at];
        at += sign == '/' ? 2 : 1;
        int64_t other = factor();
        if (sign == '*') value *= other;
        else value = sign == '/' ? floor(value, other) : value - floor(value, other) * other;
      }
      return value;
    }

    int64_t factor() {
      char letter = next();
      if (letter == '-') return ++at, -factor();
      if (letter == '(') {
        ++at;
        int64_t value = sum();
        known = known && next() == ')';
        ++at;
        return value;
      }
      std::size_t start = at;
      while (std::isalnum(static_cast<unsigned char>(next())) || next() == '_') ++at;
      std::string word = text.substr(start, at - start);
      if (std::isdigit(static_cast<unsigned char>(letter))) return std::atoll(word.c_str());
      if (next() == '(') return chosen(word == "max");
      const Symbol* symbol = symbols.find(word);
      known = known && symbol;
      return symbol ? symbol->value : 0;
    }

    // The arguments of `min` or `max`, from the bracket on.
    int64_t chosen(bool largest) {
      int64_t value = 0;
      for (bool first = true; next() == '(' || next() == ','; first = false) {
        ++at;
        int64_t other = sum();
        if (first || (largest ? other > value : other < value)) value = other;
      }
      known = known && next() == ')';
      ++at;
      return value;
    }

    int64_t floor(int64_t value, int64_t by) {
      known = known && by;
      if (!by) return 0;
      return value / by - (value % by != 0 && (value < 0) != (by < 0));
    }
  };

  void bind_all(
      const ExpectedDimensions& known, const std::vector<int64_t>& actual, const ExpectedInput& row,
      const Given& given) {
    if (!known.known || !given.is_tensor() || known.has_other_rank(actual.size())) return;
    for (std::size_t i = 0; i < actual.size() && i < known.texts.size(); ++i) {
      bind(formula_of(known.texts[i]), actual[i], row.name);
    }
  }

  void bind(const std::string& name, int64_t value, const std::string& source) {
    if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0]))) return;
    for (char letter : name) {
      if (!std::isalnum(static_cast<unsigned char>(letter)) && letter != '_') return;
    }
    if (!find(name)) all_.push_back({name, source, value});
  }

  std::vector<Symbol> all_;
};

// Whether a condition such as `s0==1 or s0%8==0` holds; true if it cannot be evaluated.
inline bool holds(const std::string& guard, const Symbols& symbols) {
  for (const std::string& text : split(guard, " or ")) {
    std::size_t at = text.find_first_of("=!<>");
    if (at == std::string::npos) return true;
    std::size_t end = at + (at + 1 < text.size() && text[at + 1] == '=' ? 2 : 1);
    std::string sign = text.substr(at, end - at);
    int64_t left = 0, right = 0;
    if (!symbols.evaluate(text.substr(0, at), left)) return true;
    if (!symbols.evaluate(text.substr(end), right)) return true;
    if (sign == "==" && left == right) return true;
    if (sign == "!=" && left != right) return true;
    if (sign[0] == '<' && (left < right || (end - at == 2 && left == right))) return true;
    if (sign[0] == '>' && (left > right || (end - at == 2 && left == right))) return true;
  }
  return false;
}

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
inline void add_symbols(
    const std::string& text, const Symbols& symbols, std::vector<const Symbol*>& names) {
  std::string word;
  for (char letter : formula_of(text) + " ") {
    if (std::isalnum(static_cast<unsigned char>(letter)) || letter == '_') {
      word += letter;
      continue;
    }
    const Symbol* symbol = symbols.find(word);
    bool is_new = symbol != nullptr;
    for (const Symbol* name : names) is_new = is_new && name != symbol;
    if (is_new) names.push_back(symbol);
    word.clear();
  }
}

// Messages for the conditions that do not hold and whose first size is from this input.
inline Texts violated(
    const Texts& guards, const std::string& input, const Symbols& symbols) {
  Texts problems;
  for (const std::string& guard : guards) {
    std::vector<const Symbol*> names;
    add_symbols(guard, symbols, names);
    if (names.empty() || names[0]->source != input || holds(guard, symbols)) continue;
    Texts values;
    for (const Symbol* name : names) {
      values.push_back(name->name + " is " + std::to_string(name->value) + " by " + name->source);
    }
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
  for (const Symbol* name : names) {
    where += "; " + name->name + " is " + std::to_string(name->value) + " by " + name->source;
  }
  return std::string(what) + " " + joined(actual) + ", expected " + shown(known, symbols) +
      " (" + where + ")";
}

inline std::string compare_size(
    const ExpectedInput& row, const Tensor& tensor, const Symbols& symbols) {
  const Texts& known = row.size.texts;
  std::size_t dim = tensor.shape.size();
  if (!row.size.known) return "";
  if (!row.size.has_other_rank(dim)) {
    return differing("size", known, tensor.shape, symbols, nullptr);
  }
  std::string count = row.size.is_open() ? std::to_string(known.size() - 1) + " or more"
                                         : std::to_string(known.size());
  return "size " + joined(tensor.shape) + ", expected " + shown(known, symbols) + " (" +
      std::to_string(dim) + (dim == 1 ? " dimension" : " dimensions") + ", not " + count + ")";
}

inline std::string compare_stride(
    const ExpectedInput& row, const Tensor& tensor, const Symbols& symbols) {
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
  if (over) {
    add(std::to_string(over) + " bytes off an alignment of " + std::to_string(row.alignment));
  }
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
