// How the GPU's kernels split a tensor among blocks.
#pragma once

#include <cstdint>

#include "job.h"
#include "layout.h"

namespace inductor_rewriter::gpu {

constexpr int blocks_per_processor = 2;  // blocks that run at once, by the kernel's launch bounds
constexpr int few = threads;             // partial results that a block merges in one step
constexpr int64_t large_bytes = 64 << 20;
// Tensors of up to so many tiles are split into quarters of tiles, also when the launch measures others.
// Quarters keep the whole device busy with a single tensor, but starting and ending a block takes longer
// than reading a quarter: with whole tiles, measuring a pass of the GPT of benchmarks/probes.py takes 843
// us in place of 951 (H200).
constexpr int64_t few_tiles = 32;

inline int most_blocks(int processors) {
  return processors * blocks_per_processor > few ? processors * blocks_per_processor : few;
}

inline int64_t tiles_of(int64_t bytes) { return (bytes + fingerprint::tile_bytes - 1) / fingerprint::tile_bytes; }

// Sets what the tasks of both kernels say of a tensor. Its units are tiles, or quarters of tiles.
inline void describe(const Layout& layout, int64_t bytes, bool in_quarters, AnyTask& task) {
  task.data = layout.data;
  task.numel = layout.numel;
  task.dtype = layout.dtype;
  task.whole = bytes / fingerprint::vector_bytes;
  task.split = in_quarters ? 2 : 0;
  const int64_t unit = fingerprint::tile_bytes >> task.split;
  task.units = static_cast<uint32_t>((bytes + unit - 1) / unit);
}

// Sets what a task says of a tensor. False if the kernel cannot read it.
inline bool make_task(const Layout& layout, int processors, Task& task) {
  Dimensions dims;
  const int size = elements::size(layout.dtype);
  if (!size || layout.numel < 0 || !dims.read(layout) || dims.count > most_dims) return false;
  const int64_t bytes = layout.numel * size;
  describe(layout, bytes, 4 * tiles_of(bytes) <= few, task);
  task.direct = dims.is_contiguous() && reinterpret_cast<uintptr_t>(layout.data) % 16 == 0 ? 1 : 0;
  task.dims = dims.count;
  for (int i = 0; i < dims.count; ++i) {
    task.size[i] = dims.size[i];
    task.stride[i] = dims.stride[i];
  }
  const int64_t most = bytes < large_bytes ? int64_t{few} : int64_t{most_blocks(processors)};
  const int64_t units = task.units;
  task.blocks = static_cast<uint32_t>(units < 1 ? 1 : units < most ? units : most);
  return true;
}

inline bool fits(int64_t stride) { return stride >= 0 && stride >> 31 == 0; }

inline Divisor make_divisor(int64_t size) {
  Divisor result = {static_cast<uint32_t>(size), 0, 0};
  while (int64_t{1} << result.shift < size) ++result.shift;
  result.factor = static_cast<uint32_t>(((uint64_t{1} << (31 + result.shift)) - 1) / size + 1);
  return result;
}

// Sets where the vectors of a strided tensor lie. False if it cannot be read in vectors.
inline bool make_quick_rows(const Dimensions& dims, int size, bool is_aligned, QuickRows& rows) {
  if (dims.count < 1 || dims.count > 4) return false;
  const int last = dims.count - 1, per = 16 / size;
  if (dims.size[last] % per || !fits(dims.stride[last])) return false;
  rows.kind = is_aligned && dims.stride[last] == 1 ? QuickRows::aligned : QuickRows::apart;
  for (int i = 0; i < last; ++i) {
    if (!fits(dims.stride[i])) return false;
    if (dims.stride[i] % per) rows.kind = QuickRows::apart;
  }
  rows.run = make_divisor(dims.size[last] / per);
  rows.step = static_cast<uint32_t>(dims.stride[last]);
  const int unit = rows.kind == QuickRows::aligned ? per : 1;
  for (int i = 0; i < last; ++i) {
    const int dim = last - 1 - i;
    if (i + 1 < last) rows.sizes[i] = make_divisor(dims.size[dim]);
    rows.strides[i] = static_cast<uint32_t>(dims.stride[dim] / unit);
  }
  rows.by_columns = last > 0 && dims.stride[last - 1] < dims.stride[last];
  return true;
}

// Sets the factors that divide by the height of a column, for a unit of so many vectors.
inline void make_factors(uint32_t vectors, const QuickRows& rows, uint32_t (&factors)[2]) {
  const uint32_t height = rows.by_columns ? vectors / rows.run.size : 0;
  for (uint32_t i = 0; i < 2; ++i) {
    factors[i] = height + i ? ((1u << 28) + height + i - 1) / (height + i) : 0;
  }
}

// Sets what a quick task says of a tensor. False if the quick kernel cannot measure it, or not quickly.
// `with_others`: the launch measures other tensors too, which keep the device busy.
inline bool make_quick_task(const Layout& layout, bool with_others, QuickTask& task, QuickRows& rows) {
  Dimensions dims;
  if (!dims.read(layout)) return false;
  const bool is_contiguous = dims.is_contiguous();
  rows = {};
  const int size = elements::size(layout.dtype);
  const int64_t bytes = layout.numel * size;
  if (size && (!bytes || (is_contiguous && bytes > 0 && bytes <= most_carried_words * 8))) {
    describe(layout, bytes, false, task);
    task.whole = bytes;
    task.split = carried;
    task.units = 0;  // no partial results
    task.blocks = 1;
    return true;
  }
  switch (layout.dtype) {
    case dtypes::float32: case dtypes::bfloat16: case dtypes::float16: break;
    default: return false;
  }
  if (bytes <= 0 || bytes > large_bytes) return false;
  const bool is_aligned = reinterpret_cast<uintptr_t>(layout.data) % 16 == 0;
  if ((!is_contiguous || !is_aligned) && !make_quick_rows(dims, size, is_aligned, rows)) return false;
  describe(layout, bytes, tiles_of(bytes) <= (with_others ? few_tiles : few / 4), task);
  task.blocks = task.units;
  if (rows.kind == QuickRows::apart) {
    const uint32_t whole = static_cast<uint32_t>(task.whole);
    const uint32_t length = static_cast<uint32_t>(fingerprint::tile_vectors >> task.split);
    make_factors(length, rows, rows.factors[0]);
    make_factors(whole - (task.units - 1) * length, rows, rows.factors[1]);
  }
  return true;
}

}  // namespace inductor_rewriter::gpu
