// What a wrapper expects of an input, and what a call gives it.
//
// The table first has a row for each input, with `-` for a fact that is not known:
//
//     NAME tensor DTYPE DEVICE [SIZE,...] [STRIDE,...] [ALIGNMENT]
//     NAME int|float SYMBOL
//
// A size or stride is a formula (symbols.h), or `?` if it is not known. `:low..high` behind it gives limits; `...` as
// the last one means any number of further dimensions.
#pragma once

#include <cstdlib>
#include <string>

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

}  // namespace inductor_rewriter
