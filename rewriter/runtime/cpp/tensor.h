// A tensor's facts and elements, read through the C shim.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "device.h"
#include "event.h"

namespace inductor_rewriter {

struct Dtype {
  int32_t number;
  const char* name;
  int size;
  bool plain;  // whether its elements are numbers that we can read
  const char* type;  // its name in ATen's C++
};

constexpr Dtype dtype_table[] = {
    {dtypes::uint8, "uint8", 1, true, "Byte"},
    {dtypes::int8, "int8", 1, true, "Char"},
    {dtypes::int16, "int16", 2, true, "Short"},
    {dtypes::int32, "int32", 4, true, "Int"},
    {dtypes::int64, "int64", 8, true, "Long"},
    {dtypes::float16, "float16", 2, true, "Half"},
    {dtypes::float32, "float32", 4, true, "Float"},
    {dtypes::float64, "float64", 8, true, "Double"},
    {dtypes::complex32, "complex32", 4, true, "ComplexHalf"},
    {dtypes::complex64, "complex64", 8, true, "ComplexFloat"},
    {dtypes::complex128, "complex128", 16, true, "ComplexDouble"},
    {dtypes::boolean, "bool", 1, true, "Bool"},
    {dtypes::qint8, "qint8", 1, false, "QInt8"},
    {dtypes::quint8, "quint8", 1, false, "QUInt8"},
    {dtypes::qint32, "qint32", 4, false, "QInt32"},
    {dtypes::bfloat16, "bfloat16", 2, true, "BFloat16"},
    {dtypes::quint4x2, "quint4x2", 1, false, "QUInt4x2"},
    {dtypes::quint2x4, "quint2x4", 1, false, "QUInt2x4"},
    {dtypes::bits1x8, "bits1x8", 1, false, "Bits1x8"},
    {dtypes::bits2x4, "bits2x4", 1, false, "Bits2x4"},
    {dtypes::bits4x2, "bits4x2", 1, false, "Bits4x2"},
    {dtypes::bits8, "bits8", 1, false, "Bits8"},
    {dtypes::bits16, "bits16", 2, false, "Bits16"},
    {dtypes::float8_e5m2, "float8_e5m2", 1, true, "Float8_e5m2"},
    {dtypes::float8_e4m3fn, "float8_e4m3fn", 1, true, "Float8_e4m3fn"},
    {dtypes::float8_e5m2fnuz, "float8_e5m2fnuz", 1, true, "Float8_e5m2fnuz"},
    {dtypes::float8_e4m3fnuz, "float8_e4m3fnuz", 1, true, "Float8_e4m3fnuz"},
    {dtypes::uint16, "uint16", 2, true, "UInt16"},
    {dtypes::uint32, "uint32", 4, true, "UInt32"},
    {dtypes::uint64, "uint64", 8, true, "UInt64"},
    {dtypes::uint1, "uint1", 1, false, "UInt1"},
    {dtypes::uint2, "uint2", 1, false, "UInt2"},
    {dtypes::uint3, "uint3", 1, false, "UInt3"},
    {dtypes::uint4, "uint4", 1, false, "UInt4"},
    {dtypes::uint5, "uint5", 1, false, "UInt5"},
    {dtypes::uint6, "uint6", 1, false, "UInt6"},
    {dtypes::uint7, "uint7", 1, false, "UInt7"},
    {dtypes::int1, "int1", 1, false, "Int1"},
    {dtypes::int2, "int2", 1, false, "Int2"},
    {dtypes::int3, "int3", 1, false, "Int3"},
    {dtypes::int4, "int4", 1, false, "Int4"},
    {dtypes::int5, "int5", 1, false, "Int5"},
    {dtypes::int6, "int6", 1, false, "Int6"},
    {dtypes::int7, "int7", 1, false, "Int7"},
    {dtypes::float8_e8m0fnu, "float8_e8m0fnu", 1, true, "Float8_e8m0fnu"},
    {dtypes::float4_e2m1fn_x2, "float4_e2m1fn_x2", 1, false, "Float4_e2m1fn_x2"},
};
constexpr int32_t dtype_count = sizeof dtype_table / sizeof *dtype_table;

constexpr bool is_in_order() {
  for (int32_t i = 0; i < dtype_count; ++i) {
    if (dtype_table[i].number != i) return false;
  }
  return true;
}
static_assert(is_in_order(), "a row of the table is missing, or in another place");

inline const Dtype& dtype_info(int32_t dtype) {
  static const Dtype unknown = {-1, "unknown", 0, false, "Unknown"};
  return dtype >= 0 && dtype < dtype_count ? dtype_table[dtype] : unknown;
}

inline bool is_complex(int32_t dtype) {
  return dtype >= dtypes::complex32 && dtype <= dtypes::complex128;
}

// Integers that float64 cannot hold.
inline bool is_wide(int32_t dtype) {
  return dtype == dtypes::int64 || dtype == dtypes::uint64;
}

inline bool is_integer(int32_t dtype) {
  return (dtype >= dtypes::uint8 && dtype <= dtypes::int64) ||
      (dtype >= dtypes::uint16 && dtype <= dtypes::uint64);
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
  static const auto ask =
      find<AOTITorchError (*)(AtenTensorHandle, bool*)>("aoti_torch_is_defined");
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

// The current facts of a value, from the shim. Pointers belong to the tensor or to the line.
struct Seen {
  bool is_present = false, is_tensor = false, is_strided = true;
  int32_t dtype = -1, device_type = 0, device_index = -1;
  int64_t dim = 0, offset = 0;
  const int64_t *sizes = nullptr, *strides = nullptr;
  AtenTensorHandle handle = nullptr;  // for a view, that of its base
  const char* data = nullptr;         // for an array
};

// Not present: a null handle, or an undefined tensor.
inline void look(const Content& content, Seen& seen) {
  seen = Seen();
  if (content.kind == Content::Kind::array) {
    const Array& array = content.array;
    seen.is_present = seen.is_tensor = true;
    seen.dtype = array.dtype;
    seen.device_type = array.device_type;
    if (array.device_type != aoti_torch_device_type_cpu()) seen.device_index = array.device_index;
    seen.dim = array.dim;
    seen.sizes = array.sizes;
    seen.strides = array.strides;
    seen.data = static_cast<const char*>(array.data);
    return;
  }
  AtenTensorHandle handle = content.handle;
  if (!handle) return;
  check(aoti_torch_get_dtype(handle, &seen.dtype), "get_dtype");
  if (!is_defined(handle, seen.dtype)) return;
  check(aoti_torch_get_device_type(handle, &seen.device_type), "get_device_type");
  check(aoti_torch_get_device_index(handle, &seen.device_index), "get_device_index");
  seen.handle = handle;
  if (content.kind == Content::Kind::view) {
    seen.dim = content.array.dim;
    seen.sizes = content.array.sizes;
    seen.strides = content.array.strides;
    seen.offset = content.offset;
    seen.is_present = seen.is_tensor = true;
    return;
  }
  int64_t *sizes = nullptr, *strides = nullptr;
  check(aoti_torch_get_dim(handle, &seen.dim), "get_dim");
  check(aoti_torch_get_sizes(handle, &sizes), "get_sizes");
  using GetLayout = AOTITorchError (*)(AtenTensorHandle, int32_t*);
  static const auto get_layout = find<GetLayout>("aoti_torch_get_layout");
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
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    last += (tensor.shape[i] - 1) * tensor.stride[i];
  }
  return (last + 1) * dtype_info(tensor.dtype).size;
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
  const int size = dtype_info(seen.dtype).size;
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
  Seen seen;
  look(content, seen);
  if (!seen.is_present) return false;
  set_facts(seen, tensor);
  locate(seen, tensor);
  return true;
}

struct Dimension {
  int64_t size, stride;
};

// The same elements in the same order, in as few dimensions as possible.
inline std::vector<Dimension> merge(const std::vector<Dimension>& all) {
  std::vector<Dimension> merged;
  for (const Dimension& next : all) {
    if (!merged.empty() && merged.back().stride == next.size * next.stride) {
      merged.back() = {merged.back().size * next.size, next.stride};
    } else {
      merged.push_back(next);
    }
  }
  return merged;
}

// The dimensions in memory order, as few as possible, without expanded ones; and how often the
// expanded ones repeat the elements.
inline std::vector<Dimension> distinct(
    const std::vector<int64_t>& shape, const std::vector<int64_t>& stride, int64_t& repeat) {
  std::vector<Dimension> all;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) continue;
    if (!stride[i]) {
      repeat *= shape[i];
      continue;
    }
    std::size_t at = all.size();
    all.push_back({shape[i], stride[i]});
    for (; at && all[at - 1].stride < stride[i]; --at) std::swap(all[at], all[at - 1]);
  }
  return merge(all);
}

// Whether the elements fill a contiguous range of memory, without overlap.
inline bool is_dense(const Tensor& tensor) {
  int64_t repeat = 1;
  if (tensor.numel <= 1) return true;
  auto dims = distinct(tensor.shape, tensor.stride, repeat);
  return repeat == 1 && dims.size() == 1 && dims[0].stride == 1;
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

}  // namespace inductor_rewriter
