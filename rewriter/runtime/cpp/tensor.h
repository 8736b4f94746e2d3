// A tensor's facts and elements, read through the C shim.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "convert.h"
#include "engine/elements.h"
#include "engine/driver.h"
#include "event.h"

namespace inductor_rewriter {

struct Dtype {
  const char* name;
  const char* type;  // its name in ATen's C++
};

// By number, as in engine/elements.h.
constexpr Dtype dtype_table[] = {
    {"uint8", "Byte"}, {"int8", "Char"}, {"int16", "Short"}, {"int32", "Int"}, {"int64", "Long"},
    {"float16", "Half"}, {"float32", "Float"}, {"float64", "Double"}, {"complex32", "ComplexHalf"},
    {"complex64", "ComplexFloat"}, {"complex128", "ComplexDouble"}, {"bool", "Bool"}, {"qint8", "QInt8"},
    {"quint8", "QUInt8"}, {"qint32", "QInt32"}, {"bfloat16", "BFloat16"}, {"quint4x2", "QUInt4x2"},
    {"quint2x4", "QUInt2x4"}, {"bits1x8", "Bits1x8"}, {"bits2x4", "Bits2x4"}, {"bits4x2", "Bits4x2"},
    {"bits8", "Bits8"}, {"bits16", "Bits16"}, {"float8_e5m2", "Float8_e5m2"},
    {"float8_e4m3fn", "Float8_e4m3fn"}, {"float8_e5m2fnuz", "Float8_e5m2fnuz"},
    {"float8_e4m3fnuz", "Float8_e4m3fnuz"}, {"uint16", "UInt16"}, {"uint32", "UInt32"}, {"uint64", "UInt64"},
    {"uint1", "UInt1"}, {"uint2", "UInt2"}, {"uint3", "UInt3"}, {"uint4", "UInt4"}, {"uint5", "UInt5"},
    {"uint6", "UInt6"}, {"uint7", "UInt7"}, {"int1", "Int1"}, {"int2", "Int2"}, {"int3", "Int3"},
    {"int4", "Int4"}, {"int5", "Int5"}, {"int6", "Int6"}, {"int7", "Int7"},
    {"float8_e8m0fnu", "Float8_e8m0fnu"}, {"float4_e2m1fn_x2", "Float4_e2m1fn_x2"},
};
constexpr int32_t dtype_count = sizeof dtype_table / sizeof *dtype_table;
static_assert(dtype_count == dtypes::float4_e2m1fn_x2 + 1, "a row of the table is missing");

inline const Dtype& dtype_info(int32_t dtype) {
  static const Dtype unknown = {"unknown", "Unknown"};
  return dtype >= 0 && dtype < dtype_count ? dtype_table[dtype] : unknown;
}

using elements::is_complex;
using elements::is_number;
using elements::is_wide;

inline bool is_integer(int32_t dtype) {
  return (dtype >= dtypes::uint8 && dtype <= dtypes::int64) || (dtype >= dtypes::uint16 && dtype <= dtypes::uint64);
}

// Names by number (c10::DeviceType).
inline std::string device_text(int32_t type, int32_t index) {
  static const char* const names[] = {
      "cpu", "cuda", "mkldnn", "opengl", "opencl", "ideep", "hip",
      "fpga", "maia", "xla", "vulkan", "metal", "xpu", "mps",
      "meta", "hpu", "ve", "lazy", "ipu", "mtia", "privateuseone"};
  constexpr int32_t count = sizeof names / sizeof *names;
  std::string text = type >= 0 && type < count ? names[type] : "unknown";
  return index < 0 ? text : text + ":" + std::to_string(index);
}

inline void check(AOTITorchError error, const char* what) {
  if (error) throw std::runtime_error(std::string("cannot read a tensor: ") + what + " failed");
}

inline bool is_defined(AtenTensorHandle handle, int32_t dtype) {
  static AOTITorchError (*const ask)(AtenTensorHandle, bool*) = loaded("aoti_torch_is_defined");
  bool defined = true;
  if (ask) {
    check(ask(handle, &defined), "is_defined");
    return defined;
  }
  static const int32_t undefined = [] {
    Owned made;
    int32_t number = -1;
    aoti_torch_new_uninitialized_tensor(&made.handle);
    aoti_torch_get_dtype(made.handle, &number);
    return number;
  }();
  return dtype != undefined;
}

// Completes the facts of a tensor, a view or an array. Not present: a null handle, or an undefined tensor.
inline void look(Content::Kind kind, Seen& seen) {
  AtenTensorHandle handle = seen.handle;
  if (!handle) return;
  check(aoti_torch_get_dtype(handle, &seen.dtype), "get_dtype");
  if (!is_defined(handle, seen.dtype)) return;
  check(aoti_torch_get_device_type(handle, &seen.device_type), "get_device_type");
  check(aoti_torch_get_device_index(handle, &seen.device_index), "get_device_index");
  if (kind == Content::Kind::view) {
    seen.is_present = seen.is_tensor = true;
    return;
  }
  int64_t *sizes = nullptr, *strides = nullptr;
  check(aoti_torch_get_dim(handle, &seen.dim), "get_dim");
  check(aoti_torch_get_sizes(handle, &sizes), "get_sizes");
  static AOTITorchError (*const get_layout)(AtenTensorHandle, int32_t*) = loaded("aoti_torch_get_layout");
  int32_t layout = 0;
  if (get_layout) {
    check(get_layout(handle, &layout), "get_layout");
    seen.is_strided = layout == aoti_torch_layout_strided();
  }
  if (seen.is_strided && aoti_torch_get_strides(handle, &strides)) seen.is_strided = false;
  seen.sizes = sizes;
  seen.strides = strides;
  seen.is_present = seen.is_tensor = true;
}

// Bytes from the first element to the end of the last one; strides are not negative.
inline int64_t extent(const Tensor& tensor) {
  int64_t last = 0;
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) last += (tensor.shape[i] - 1) * tensor.stride[i];
  return (last + 1) * elements::size(tensor.dtype);
}

// Facts that only depend on shape, strides, dtype and device.
inline void set_facts(const Seen& seen, Tensor& tensor) {
  tensor.dtype = seen.dtype;
  tensor.device = device_text(seen.device_type, seen.device_index);
  tensor.on_cpu = seen.device_type == aoti_torch_device_type_cpu();
  tensor.device_index = tensor.on_cpu ? -1 : seen.device_index;
  tensor.strided = seen.is_strided;
  tensor.shape.assign(seen.sizes, seen.sizes + seen.dim);
  tensor.stride.clear();
  if (seen.is_strided) tensor.stride.assign(seen.strides, seen.strides + seen.dim);
  tensor.numel = 1;
  for (int64_t size : tensor.shape) tensor.numel *= size;
  tensor.bytes = tensor.strided && tensor.numel ? extent(tensor) : 0;
}

// The address of its elements, if they are in memory.
inline void locate(const Seen& seen, Tensor& tensor) {
  tensor.handle = nullptr;
  tensor.data = nullptr;
  tensor.in_memory = false;
  constexpr int32_t meta = 14;
  const int size = elements::size(seen.dtype);
  if (!tensor.strided || seen.device_type == meta || !size) return;
  if (!seen.handle) {
    tensor.data = seen.data;
    tensor.in_memory = tensor.on_cpu && (seen.data || !tensor.numel);
    return;
  }
  tensor.in_memory = !tensor.numel;
  if (tensor.in_memory) return;
  int64_t offset = 0, bytes = 0;
  void* data = nullptr;
  check(aoti_torch_get_storage_offset(seen.handle, &offset), "get_storage_offset");
  check(aoti_torch_get_storage_size(seen.handle, &bytes), "get_storage_size");
  if (bytes < (offset + seen.offset) * size + tensor.bytes) return;
  check(aoti_torch_get_data_ptr(seen.handle, &data), "get_data_ptr");
  if (data) tensor.data = static_cast<const char*>(data) + seen.offset * size;
  tensor.in_memory = data != nullptr;
}

// False if it is not a value.
inline bool read_tensor(const Content& content, Tensor& tensor) {
  Seen seen = content.seen;
  look(content.kind, seen);
  if (!seen.is_present) return false;
  set_facts(seen, tensor);
  locate(seen, tensor);
  return true;
}

// Whether the elements fill a contiguous range of memory, without overlap.
inline bool is_dense(const Tensor& tensor) {
  if (tensor.numel <= 1) return true;
  std::vector<std::pair<int64_t, int64_t>> dims;  // strides and sizes, in memory order
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    if (tensor.shape[i] != 1) dims.emplace_back(tensor.stride[i], tensor.shape[i]);
  }
  std::sort(dims.begin(), dims.end());
  int64_t next = 1;
  for (const auto& [stride, size] : dims) {
    if (stride != next) return false;
    next *= size;
  }
  return true;
}

// The strides that a dense copy gets: at::infer_dense_strides in ATen/ExpandUtils.cpp.
inline std::vector<int64_t> dense_strides(const Tensor& tensor) {
  int dim = static_cast<int>(tensor.shape.size());
  std::vector<int> order(dim);
  for (int i = 0; i < dim; ++i) order[i] = dim - 1 - i;
  auto compare = [&](int a, int b) {
    int64_t first = tensor.stride[a], second = tensor.stride[b];
    if (!first || !second) return 0;
    if (first != second) return first < second ? -1 : 1;
    return tensor.shape[a] > tensor.shape[b] ? 1 : 0;
  };
  for (int i = 1; i < dim; ++i) {
    int at = i;
    for (int j = i - 1; j >= 0; --j) {
      int sign = compare(order[j], order[at]);
      if (sign < 0) break;
      if (sign > 0) {
        std::swap(order[j], order[at]);
        at = j;
      }
    }
  }
  std::vector<int64_t> strides(dim);
  int64_t next = 1;
  for (int place : order) {
    strides[place] = next;
    if (tensor.shape[place] > 1) next *= tensor.shape[place];
  }
  return strides;
}

// The text of an element, as lines show it, or as Python's repr.
inline std::string element_text(const char* from, int32_t dtype, bool is_exact = false) {
  alignas(64) double parts[8];
  int64_t whole = 0;
  if (is_wide(dtype)) {
    std::memcpy(&whole, from, sizeof whole);
    const bool has_sign = dtype == dtypes::int64;
    return has_sign ? std::to_string(whole) : std::to_string(static_cast<uint64_t>(whole));
  }
  convert(dtype, from, 1, parts);
  if (dtype == dtypes::boolean) return parts[0] ? "True" : "False";
  if (is_complex(dtype)) return complex_repr(parts[0], parts[1]);
  if (is_integer(dtype)) return std::to_string(static_cast<int64_t>(parts[0]));
  return is_exact ? python_repr(parts[0]) : python_general(parts[0]);
}

// Copies are not recorded by autograd.
class NoGrad {
 public:
  NoGrad() { aoti_torch_grad_mode_set_enabled(false); }
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;
  ~NoGrad() { aoti_torch_grad_mode_set_enabled(before_); }

 private:
  bool before_ = aoti_torch_grad_mode_is_enabled();
};

// A new tensor on the CPU with the same elements; waits for the copy.
inline void copy_to_cpu(
    AtenTensorHandle from, int32_t dtype, const std::vector<int64_t>& shape,
    const std::vector<int64_t>& stride, Host& host) {
  NoGrad guard;
  const Relaxed relaxed;
  void* data = nullptr;
  check(
      aoti_torch_empty_strided(
          static_cast<int64_t>(shape.size()), shape.data(), stride.data(), dtype,
          aoti_torch_device_type_cpu(), 0, &host.owner.handle),
      "empty_strided");
  check(aoti_torch_copy_(host.owner.handle, from, 0), "copy_");
  check(aoti_torch_get_data_ptr(host.owner.handle, &data), "get_data_ptr");
  host.data = static_cast<const char*>(data);
  host.shape = shape;
  host.stride = stride;
}

// The handle of the tensor; for a view in the line, it is made here.
inline AtenTensorHandle handle_of(Item& item) {
  Tensor& tensor = item.tensor;
  if (tensor.handle || !item.base) return tensor.handle;
  check(
      aoti_torch__reinterpret_tensor(
          item.base, static_cast<int64_t>(tensor.shape.size()), tensor.shape.data(),
          tensor.stride.data(), item.offset, &item.view.handle),
      "reinterpret_tensor");
  return tensor.handle = item.view.handle;
}

// Makes `item.host` readable. With `whole`, it is a dense tensor that can be saved, with the
// strides of torch's own copy. Otherwise it has any strides: a tensor on the CPU is not copied, and
// the copy of one on a device takes no more memory than it has there, since expanded dimensions are
// copied once.
inline void fetch(Item& item, bool whole) {
  const Tensor& tensor = item.tensor;
  Host& host = item.host;
  if (host.ready && (host.whole || !whole)) return;
  bool dense = is_dense(tensor);
  // A complex tensor may be marked as conjugate, which only torch's copy sees.
  bool direct = tensor.on_cpu && (!whole || (dense && !is_complex(tensor.dtype)));
  AtenTensorHandle handle = direct || !tensor.numel ? nullptr : handle_of(item);
  host.owner.reset();
  if (!handle) {
    host.data = tensor.data;
    host.shape = tensor.shape;
    host.stride = tensor.stride;
  } else if (dense) {
    copy_to_cpu(handle, tensor.dtype, tensor.shape, tensor.stride, host);
  } else if (whole) {
    copy_to_cpu(handle, tensor.dtype, tensor.shape, dense_strides(tensor), host);
  } else {
    Owned view;
    std::vector<int64_t> sizes = tensor.shape, target(sizes.size());
    int64_t next = 1;
    for (std::size_t i = sizes.size(); i-- > 0; next *= sizes[i]) {
      if (!tensor.stride[i]) sizes[i] = 1;
      target[i] = next;
    }
    check(
        aoti_torch__reinterpret_tensor(
            handle, static_cast<int64_t>(sizes.size()), sizes.data(), tensor.stride.data(), 0,
            &view.handle),
        "reinterpret_tensor");
    copy_to_cpu(view.handle, tensor.dtype, sizes, target, host);
    host.shape = tensor.shape;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (sizes[i] != tensor.shape[i]) host.stride[i] = 0;
    }
  }
  host.ready = true;
  host.whole = whole;
}

}  // namespace inductor_rewriter
