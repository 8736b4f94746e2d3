// How a tensor is shared among the blocks of a launch of the GPU's kernel.
#pragma once

#include <cstdint>

#include "job.h"
#include "layout.h"

namespace {
namespace inductor_rewriter {

namespace gpu {

constexpr int blocks_per_processor = 2;  // that run at a time, by the kernel's launch bounds
constexpr int few = threads;             // parts that the last block merges at once
constexpr int64_t large_bytes = 64 << 20;

inline int most_blocks(int processors) {
  return processors * blocks_per_processor > few ? processors * blocks_per_processor : few;
}

// The tensor's part of a task. False for what the kernel cannot read.
inline bool make_task(const Layout& layout, const void* data, int processors, Task& task) {
  Dimensions dims;
  const int size = elements::size(layout.dtype);
  if (!size || layout.numel < 0 || !dims.read(layout) || dims.count > most_dims) return false;
  const auto address = reinterpret_cast<uintptr_t>(data);
  task.data = static_cast<const char*>(data);
  task.numel = layout.numel;
  task.dtype = layout.dtype;
  task.direct = dims.is_contiguous() && address % 16 == 0 ? 1 : 0;
  task.dims = dims.count;
  for (int i = 0; i < dims.count; ++i) {
    task.size[i] = dims.size[i];
    task.stride[i] = dims.stride[i];
  }
  const int64_t bytes = layout.numel * size;
  const int64_t tiles = (bytes + fingerprint::tile_bytes - 1) / fingerprint::tile_bytes;
  task.split = 4 * tiles <= few ? 2 : 0;
  const int64_t unit = fingerprint::tile_bytes >> task.split;
  const int64_t units = (bytes + unit - 1) / unit;
  task.units = static_cast<uint32_t>(units);
  task.whole = bytes / fingerprint::vector_bytes;
  const int64_t most = bytes < large_bytes ? int64_t{few} : int64_t{most_blocks(processors)};
  task.blocks = static_cast<uint32_t>(units < 1 ? 1 : units < most ? units : most);
  return true;
}

inline Divisor make_divisor(int64_t size) {
  Divisor result = {static_cast<uint32_t>(size), 0, 0};
  while (int64_t{1} << result.shift < size) ++result.shift;
  result.factor = static_cast<uint32_t>(((uint64_t{1} << (31 + result.shift)) - 1) / size + 1);
  return result;
}

// How vectors of a tensor that is not contiguous are reached. False where they are no vectors.
inline bool make_quick_rows(const Layout& layout, QuickRows& rows) {
  Dimensions dims;
  if (!dims.read(layout) || dims.count < 2 || dims.count > 4) return false;
  const int last = dims.count - 1, size = elements::size(layout.dtype), per = 16 / size;
  if (dims.stride[last] != 1 || dims.size[last] % per) return false;
  rows.any = 1;
  rows.run = make_divisor(dims.size[last] / per);
  rows.sizes[0] = rows.sizes[1] = {0, 0, 0};
  rows.strides[0] = rows.strides[1] = rows.strides[2] = 0;
  for (int i = 0; i < last; ++i) {
    const int dim = last - 1 - i;
    const int64_t stride = dims.stride[dim] / per;
    if (dims.stride[dim] % per || stride < 0 || stride >> 31) return false;
    if (i + 1 < last) rows.sizes[i] = make_divisor(dims.size[dim]);
    rows.strides[i] = static_cast<uint32_t>(stride);
  }
  return true;
}

// The tensor's part of a quick task. False for what that kernel does not take, or takes too long for.
inline bool make_quick_task(
    const Layout& layout, const void* data, QuickTask& task, QuickRows& rows) {
  int64_t step = 1;
  bool is_contiguous = true;
  for (int i = layout.dim; i-- > 0;) {
    is_contiguous = is_contiguous && (layout.shape[i] == 1 || layout.stride[i] == step);
    step *= layout.shape[i];
  }
  rows.any = 0;
  const int size = elements::size(layout.dtype);
  const int64_t bytes = layout.numel * size;
  if (size && (!bytes || (is_contiguous && bytes > 0 && bytes <= most_carried_words * 8))) {
    task.data = static_cast<const char*>(data);
    task.numel = layout.numel;
    task.whole = bytes;
    task.dtype = layout.dtype;
    task.split = carried;
    task.units = 0;  // of which there are parts
    task.blocks = 1;
    return true;
  }
  switch (layout.dtype) {
    case dtypes::float32: case dtypes::bfloat16: case dtypes::float16: break;
    default: return false;
  }
  if (bytes <= 0 || bytes > large_bytes || reinterpret_cast<uintptr_t>(data) % 16) return false;
  if (!is_contiguous && !make_quick_rows(layout, rows)) return false;
  const int64_t tiles = (bytes + fingerprint::tile_bytes - 1) / fingerprint::tile_bytes;
  task.data = static_cast<const char*>(data);
  task.numel = layout.numel;
  task.whole = bytes / fingerprint::vector_bytes;
  task.dtype = layout.dtype;
  task.split = 4 * tiles <= few ? 2 : 0;
  const int64_t unit = fingerprint::tile_bytes >> task.split;
  task.units = static_cast<uint32_t>((bytes + unit - 1) / unit);
  task.blocks = task.units;  // each has one
  return true;
}

}  // namespace gpu

}  // namespace inductor_rewriter
}  // namespace
