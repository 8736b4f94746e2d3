// What a wrapper expects of an input, what a call gives it, and the symbols in that: names of dynamic sizes, and
// formulas over them.
//
// The table first has a row for each input, with `-` for a fact that is not known:
//
//     NAME tensor DTYPE DEVICE [SIZE,...] [STRIDE,...] [ALIGNMENT]
//     NAME int|float SYMBOL
//
// A size or stride is a formula, or `?` if it is not known. `:low..high` behind it gives limits; `...` as the last one
// means any number of further dimensions.
//
// A formula has integers and symbols, the operators of Python, and the functions `min` and `max`. A symbol gets its
// value from the first input that gives one: int inputs come first, then sizes, then strides. A guard is a condition:
// `s77%8==0`, `s0==1 or s0%8==0`.
#pragma once

#include <algorithm>
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
  std::string text() const { return name + " is " + std::to_string(value) + " by " + source; }

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
    const auto is_word = [](unsigned char letter) { return std::isalnum(letter) || letter == '_'; };
    if (std::all_of(name.begin(), name.end(), is_word) && !find(name)) all_.push_back({name, source, value});
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

}  // namespace inductor_rewriter
