// The pickle that torch.save writes for a tensor whose elements fill its storage.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tensor.h"

namespace inductor_rewriter {

inline std::string pickle_number(int64_t value) {
  std::string text = value >= 0 && value < 256 ? "K" : "\x8a\x08";
  for (int i = 0; i < (text[0] == 'K' ? 1 : 8); ++i) text += static_cast<char>(value >> 8 * i);
  return text;
}

inline std::string pickle_tuple(const std::vector<int64_t>& numbers) {
  std::string text = "(";
  for (int64_t number : numbers) text += pickle_number(number);
  return text + "t";
}

// `_rebuild_tensor_v2` of a typed storage, or for dtypes that have no such class
// `_rebuild_tensor_v3` of bytes and the dtype.
inline std::string pickle_tensor(
    int32_t dtype, int64_t numel, const std::vector<int64_t>& shape, const std::vector<int64_t>& stride) {
  auto text = [](const char* value) {
    std::size_t size = std::strlen(value);
    return std::string("X") + static_cast<char>(size) + std::string(3, '\0') + value;
  };
  auto global = [](const std::string& module, const std::string& name) {
    return "c" + module + "\n" + name + "\n";
  };
  const Dtype& about = dtype_info(dtype);
  const int64_t bytes = numel * elements::size(dtype);
  const bool typed = dtype <= dtypes::bfloat16 && dtype != dtypes::complex32;
  std::string result = "\x80\x02";
  result += global("torch._utils", typed ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
  result += "((" + text("storage");
  result += typed ? global("torch", std::string(about.type) + "Storage")
                  : global("torch.storage", "UntypedStorage");
  result += text("0") + text("cpu") + pickle_number(typed ? numel : bytes);
  result += "tQ" + pickle_number(0) + pickle_tuple(shape) + pickle_tuple(stride);
  result += "\x89" + global("collections", "OrderedDict") + ")R";
  if (!typed) result += global("torch", about.name);
  return result + "tR.";
}

}  // namespace inductor_rewriter
