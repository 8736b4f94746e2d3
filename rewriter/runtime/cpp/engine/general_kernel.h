// The kernel that measures tensors of any kind on a GPU. The last block of a tensor to finish merges its partial results
// and writes the row, so that it is there when the launch is over.
#pragma once

#include "measuring_blocks.h"
#include "vectors.h"

namespace inductor_rewriter::gpu {

// The address of an element.
INDUCTOR_REWRITER_RARE const char* place_of(const Task& task, int size, int64_t element) {
  const char* at = task.data;
#pragma unroll 1
  for (int dim = task.dims - 1; dim >= 0; --dim) {
    const int64_t length = task.size[dim];
    int64_t here = element, rest = 0;
    if (element >= length) {
      // Division of 64 bits is slow.
      rest = (element | length) >> 32 ? element / length
                                      : static_cast<uint32_t>(element) / static_cast<uint32_t>(length);
      here = element - rest * length;
    }
    element = rest;
    at += here * task.stride[dim] * size;
  }
  return at;
}

// Loads the elements of one vector, in row-major order, if they are not contiguous or not aligned.
INDUCTOR_REWRITER_RARE Vector gather(const Task& task, int size, int64_t vector) {
  const int64_t per = 16 / size, element = vector * per, left = task.numel - element;
  const int count = static_cast<int>(left < per ? left : per), last = task.dims - 1;
  const int64_t run = last < 0 ? 1 : task.size[last];
  const int64_t step = last < 0 ? 0 : task.stride[last] * size;
  const int64_t place = element < run ? element
      : (element | run) >> 32 ? element % run
                              : static_cast<uint32_t>(element) % static_cast<uint32_t>(run);
  if (place + count <= run) return collect(place_of(task, size, element), step, size, count);
  Vector result = {0, 0};
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
    const Vector one = collect(place_of(task, size, element + i), 0, size, 1);
    put_element(result, i * size, one.first);
  }
  return result;
}

// A block's share of a tensor: unit `first`, and every `task.blocks`th unit from there on.
struct Share {
  int size, per;  // bytes of an element, elements of a vector
  int length;     // vectors of a unit
  uint32_t first;
  uint64_t a0, a1;
};

// The result of a thread; the keys are those of its warp, the fingerprint is of complete tiles.
struct Found {
  double sum, squares;
  int64_t least, greatest;
  uint64_t first, second;
  int scale, turn;
};

// All units but for what follows the last one's products. `some` is where the first ones are, where
// `loaded` says so.
template <class Kind>
INDUCTOR_REWRITER_DEVICE void measure(
    Kind, const Task& task, const Share& share, const Origin& origin, Vector (&some)[ahead], bool loaded,
    Shared& shared, Found& found) {
  using namespace fingerprint;
  using Extreme = typename Kind::Extreme;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const bool direct = task.direct;
  Sums<Extreme> sums = no_sums<Extreme>(Kind::huge ? scale_for(origin.shift) : 1);
#pragma unroll 1
  for (uint32_t unit = share.first; unit < task.units; unit += task.blocks) {
    const int64_t begin = static_cast<int64_t>(unit) * share.length;
    const int64_t left = task.whole - begin;  // the last vector may lack elements, and is one more
    const bool is_whole = left >= share.length;
    const int full = is_whole ? share.length : static_cast<int>(left);
    const bool has_rest = !is_whole && (begin + full) * share.per < task.numel;
    const int count = full + has_rest;
    const int ready = direct ? full : 0;
    const int row = static_cast<int>(begin % tile_vectors) / 64;
    const Vector* from = reinterpret_cast<const Vector*>(task.data) + begin;
    uint64_t low = 0, high = 0;
    auto add_vector = [&](const Vector& vector, int i) {
      const Vector keys = shared.keys[row + i / 64];
      add_product(vector.first + (share.a0 ^ keys.first), vector.second + (share.a1 ^ keys.second), low, high);
    };
    int i = thread;
#pragma unroll 1
    for (; i + (ahead - 1) * threads < ready; i += ahead * threads) {
      if (!loaded) {
#pragma unroll
        for (int j = 0; j < ahead; ++j) some[j] = from[i + j * threads];
      }
      loaded = false;
      Look<Kind> look;
#pragma unroll
      for (int j = 0; j < ahead; ++j) {
        add_vector(some[j], i + j * threads);
        look.see(sums, some[j], origin);
      }
      if (look.keep(sums)) {
#pragma unroll
        for (int j = 0; j < ahead; ++j) Kind::add(sums, some[j], origin);
      } else {
#pragma unroll 1
        for (int j = 0; j < ahead; ++j) {
          add_some<Kind>(sums, from[i + j * threads], share.per, origin, shared);
        }
      }
    }
#pragma unroll 1
    for (; i < count; i += threads) {
      const Vector vector = i < ready ? from[i] : gather(task, share.size, begin + i);
      add_vector(vector, i);
      Look<Kind> look;
      look.see(sums, vector, origin);
      const bool complete = i < full;
      if (complete && look.keep(sums)) {
        Kind::add(sums, vector, origin);
      } else {
        const int64_t rest = task.numel - (begin + i) * share.per;
        add_some<Kind>(sums, vector, complete ? share.per : static_cast<int>(rest), origin, shared);
      }
    }
    low = sum_of(low);
    high = sum_of(high);
    if (lane == 0) {
      shared.low[found.turn][warp] = low;
      shared.high[found.turn][warp] = high;
    }
    if (unit + task.blocks >= task.units) break;  // the last unit needs no barrier
    __syncthreads();
    if (warp == 0) {
      const uint64_t lows = sum_of(shared.low[found.turn][lane % warps], warps);
      const uint64_t highs = sum_of(shared.high[found.turn][lane % warps], warps);
      const Pair mixed = tile({lows, highs}, static_cast<uint64_t>(unit));
      found.first += mixed.low;
      found.second += mixed.high;
    }
    found.turn ^= 1;
  }
  found.sum = sums.sum;
  found.squares = sums.squares;
  found.least = Extremes<Extreme>::least(sums.low);
  found.greatest = Extremes<Extreme>::greatest(sums.high);
  found.scale = sums.scale;
}

// Measures a block's share of a tensor, up to the results of its threads.
INDUCTOR_REWRITER_DEVICE void measure_share(
    const Task& task, uint32_t block, Share& share, Origin& origin, Shared& shared, Found& found) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const int32_t dtype = task.dtype;
  const bool is_wide = dtype == dtypes::int64 || dtype == dtypes::uint64;
  const int split = task.split;
  share.size = elements::size(dtype);
  share.per = 16 / share.size;
  share.length = static_cast<int>(fingerprint::tile_vectors) >> split;
  share.first = block;

  // The first loads are issued before anything else. The element in the middle of the block's first unit is
  // the origin.
  const int64_t begin = static_cast<int64_t>(share.first) * share.length;
  const int64_t begin_element = begin * share.per, left = task.numel - begin_element;
  const int unit_elements = share.length * share.per;
  const int sampled = left < unit_elements ? static_cast<int>(left) : unit_elements;
  auto sample = [&](int64_t element) {
    const char* at = task.direct ? task.data + element * share.size : place_of(task, share.size, element);
    return collect(at, 0, share.size, 1);
  };
  Vector one = {0, 0};
  if (sampled > 0) one = sample(begin_element + sampled / 2);
  Vector some[ahead] = {};
  const bool loaded = task.direct && begin + share.length <= task.whole;
  if (loaded) {
    const Vector* from = reinterpret_cast<const Vector*>(task.data) + begin;
#pragma unroll
    for (int j = 0; j < ahead; ++j) some[j] = from[thread + j * threads];
  }
  const Vector own = key_table.a[thread % 64];
  share.a0 = own.first;
  share.a1 = own.second;
  if (thread < 64) shared.keys[thread] = key_table.b[thread];
  if (thread == 64) {
    shared.nan = shared.positive = shared.negative = shared.near_limit = 0;
    shared.scale = 0;
  }
  origin = {0, 0, dtype};
  if (is_wide) {
    origin.key = Wide::key(one.first, dtype);
  } else if (elements::is_number(dtype) && sampled > 0) {
    origin.shift = finite_of(value_near(one, dtype), sampled, [&](int64_t element) {
      return value_near(sample(begin_element + element), dtype);
    });
  }
  __syncthreads();

  switch (dtype) {
    case dtypes::float32: return measure(Narrow<Float32>(), task, share, origin, some, loaded, shared, found);
    case dtypes::bfloat16: return measure(Narrow<BFloat16>(), task, share, origin, some, loaded, shared, found);
    case dtypes::float16: return measure(Narrow<Float16>(), task, share, origin, some, loaded, shared, found);
    case dtypes::float64: return measure(Float64(), task, share, origin, some, loaded, shared, found);
    case dtypes::int64: case dtypes::uint64: return measure(Wide(), task, share, origin, some, loaded, shared, found);
    case dtypes::uint8: case dtypes::int8:
      return measure(Small<1>(), task, share, origin, some, loaded, shared, found);
    case dtypes::uint16: case dtypes::int16:
      return measure(Small<2>(), task, share, origin, some, loaded, shared, found);
    case dtypes::int32: case dtypes::uint32:
      return measure(Converted<Integer32>(), task, share, origin, some, loaded, shared, found);
    case dtypes::boolean: return measure(Boolean(), task, share, origin, some, loaded, shared, found);
    case dtypes::complex64: return measure(Converted<Complex64>(), task, share, origin, some, loaded, shared, found);
    case dtypes::complex32: case dtypes::complex128:
      return measure(Rare(), task, share, origin, some, loaded, shared, found);
    case dtypes::float8_e5m2: case dtypes::float8_e4m3fn: case dtypes::float8_e5m2fnuz:
    case dtypes::float8_e4m3fnuz: case dtypes::float8_e8m0fnu:
      return measure(Float8(), task, share, origin, some, loaded, shared, found);
    default: return measure(Bytes(), task, share, origin, some, loaded, shared, found);
  }
}

// Merges the sums of a block's warps, by its first warp.
INDUCTOR_REWRITER_DEVICE void sum_block(
    uint32_t units, uint32_t blocks, bool split, bool any, const Share& share, Shared& shared,
    const Found& found, Sum& total) {
  const int other = static_cast<int>(threadIdx.x) % warps;
  total.nan = shared.nan;
  total.positive = shared.positive;
  total.negative = shared.negative;
  total.near_limit = shared.near_limit;
  total.sum = sum_of(shared.sum[other], warps);
  total.squares = sum_of(shared.squares[other], warps);
  total.low = least_of(shared.least[other], warps);
  total.high = greatest_of(shared.greatest[other], warps);
  total.first = found.first;
  total.second = found.second;
  if (!any) return;
  fingerprint::Pair pair = {
      sum_of(shared.low[found.turn][other], warps), sum_of(shared.high[found.turn][other], warps)};
  const uint32_t own = (units - 1 - share.first) / blocks;  // units after the first
  if (!split || blocks == 1) pair = fingerprint::tile(pair, split ? 0 : share.first + own * blocks);
  total.first += pair.low;
  total.second += pair.high;
}

// Writes the sums of threads to the block's shared memory.
INDUCTOR_REWRITER_DEVICE void share_sums(Found& found, Shared& shared) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  found.sum = sum_of(found.sum);
  found.squares = sum_of(found.squares);
  if (lane == 0) {
    shared.sum[warp] = found.sum;
    shared.squares[warp] = found.squares;
    shared.least[warp] = found.least;
    shared.greatest[warp] = found.greatest;
  }
  __syncthreads();
}

}  // namespace inductor_rewriter::gpu

extern "C" __global__ void __launch_bounds__(256, 2)
inductor_rewriter_measure(const INDUCTOR_REWRITER_CONSTANT inductor_rewriter::gpu::Job job) {
  using namespace inductor_rewriter;
  using namespace inductor_rewriter::gpu;
  __shared__ Shared shared;
  int place = 0;
  while (place + 1 < job.count && blockIdx.x >= job.tasks[place + 1].first_block) ++place;
  const Task& task = job.tasks[place];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int32_t dtype = task.dtype;
  const bool is_wide = dtype == dtypes::int64 || dtype == dtypes::uint64;
  const bool is_huge = elements::is_huge(dtype) || dtype == dtypes::complex32;
  Share share;
  Origin origin;
  Found found = {};
  measure_share(task, blockIdx.x - task.first_block, share, origin, shared, found);
  int number = found.scale;
  if (is_huge) {
    atomicMax(&shared.scale, found.scale);
    __syncthreads();
    number = shared.scale;
    found.sum = rescaled(found.sum, found.scale, number);
    found.squares = rescaled(rescaled(found.squares, found.scale, number), found.scale, number);
  }
  share_sums(found, shared);
  if (warp && task.blocks == 1) return;

  Sum total = {};
  if (warp == 0) {
    total.scale = static_cast<uint64_t>(number);
    total.shift = is_wide ? static_cast<uint64_t>(origin.key) : bits_of(origin.shift);
    sum_block(task.units, task.blocks, task.split, task.numel > 0, share, shared, found, total);
    if (task.blocks > 1) {
      const int64_t all = count_of(task, share.first, static_cast<int64_t>(share.length) * share.per);
      const int64_t others = static_cast<int64_t>(total.nan + total.positive + total.negative);
      const int64_t count = elements::is_number(dtype) ? all - others : 0;
      write_part(task.parts + share.first, total, static_cast<uint64_t>(count));
      const bool is_last_one = is_last(task.counter, task.blocks);
      if (lane == 0) shared.is_last = is_last_one;
    }
  }
  if (task.blocks > 1) {
    __syncthreads();
    if (!shared.is_last) return;
    merge(PartsRead{task.parts}, static_cast<int>(task.blocks), task.split, is_wide, is_huge, shared, total);
    if (warp) return;
  }
  uint64_t sequence = task.sequence;
  if (task.replays) {
    sequence = 0;
    if (lane == 0) sequence = ++*task.replays;
    sequence = from_lane(sequence, 0);
  }
  write_row(task, sequence, total);
}
