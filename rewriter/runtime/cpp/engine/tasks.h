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

// The tensor's part of a quick task. False for what that kernel does not take, or takes too long for.
inline bool make_quick_task(const Layout& layout, const void* data, QuickTask& task) {
  switch (layout.dtype) {
    case dtypes::float32: case dtypes::bfloat16: case dtypes::float16: break;
    default: return false;
  }
  int64_t step = 1;
  for (int i = layout.dim; i-- > 0;) {
    if (layout.shape[i] != 1 && layout.stride[i] != step) return false;
    step *= layout.shape[i];
  }
  const int64_t bytes = layout.numel * elements::size(layout.dtype);
  if (!bytes || bytes > large_bytes || reinterpret_cast<uintptr_t>(data) % 16) return false;
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
