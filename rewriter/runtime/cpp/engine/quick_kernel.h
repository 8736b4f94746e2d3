// The kernel that measures the most common tensors on a GPU, and the one that merges its partial results.
#pragma once

#include "measuring_blocks.h"
#include "vectors.h"

namespace inductor_rewriter::gpu {

// Writes a row that holds the bytes of few elements, by one warp.
INDUCTOR_REWRITER_DEVICE void carry_elements(const QuickTask& task) {
  const int lane = static_cast<int>(threadIdx.x), bytes = static_cast<int>(task.whole);
  uint64_t word = 0;
#pragma unroll 1
  for (int i = 8 * lane; i < 8 * lane + 8 && i < bytes; ++i) {
    word |= static_cast<uint64_t>(static_cast<unsigned char>(task.data[i])) << i % 8 * 8;
  }
  if (lane == numel_word) word = static_cast<uint64_t>(task.numel);
  if (lane == dtype_word) word = static_cast<uint64_t>(task.dtype) | has_elements;
  if (lane == sequence_word) word = task.sequence;
  store_row(task, word, lane);
}

// The sums of a thread, a warp or a block.
struct QuickSums {
  double sum, squares;
  uint64_t low, high;  // of the fingerprint
  int32_t least, greatest;  // keys of floats
};

// Reduces over 2 * `with` neighbouring lanes. The code is short on purpose: when a launch begins it has to
// be fetched, which takes longer than running it.
INDUCTOR_REWRITER_DEVICE void sum_quickly(QuickSums& sums, int with) {
#pragma unroll 1
  for (; with; with >>= 1) {
    sums.sum += exchange(sums.sum, with);
    sums.squares += exchange(sums.squares, with);
    sums.low += exchange(sums.low, with);
    sums.high += exchange(sums.high, with);
    const int32_t least = exchange(sums.least, with), greatest = exchange(sums.greatest, with);
    sums.least = least < sums.least ? least : sums.least;
    sums.greatest = greatest > sums.greatest ? greatest : sums.greatest;
  }
}

// Shared memory of the quick kernel.
struct QuickShared {
  Vector keys[64];
  QuickSums sums[warps];
};

template <class Type>
INDUCTOR_REWRITER_DEVICE double sample_quickly(const char* from) {
  if (Type::pairs) return Type::lower(*reinterpret_cast<const uint16_t*>(from));
  return Type::upper(*reinterpret_cast<const uint32_t*>(from));
}

// Measures one unit of a tensor by one block, which writes a partial result. `Reader` says where the vectors
// are (vectors.h).
template <class Type, class Reader>
INDUCTOR_REWRITER_DEVICE void measure_quickly(
    const QuickTask& task, const QuickRows& rows, uint32_t block, Shared& counts, QuickShared& shared) {
  using Kind = Narrow<Type>;
  using Extreme = typename Type::Extreme;
  constexpr int per = Type::pairs ? 8 : 4;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int length = static_cast<int>(fingerprint::tile_vectors) >> task.split;
  const int64_t begin = static_cast<int64_t>(block) * length, left = task.whole - begin;
  const int full = left < length ? static_cast<int>(left) : length;
  const int64_t begin_element = begin * per, elements = task.numel - begin_element;
  const int sampled = elements < length * per ? static_cast<int>(elements) : length * per;
  Reader reader(task, rows, begin, full);
  const auto sample = [&](int element) { return sample_quickly<Type>(reader.element(element)); };
  // The first loads are issued before anything else. The element in the middle of the unit is the origin.
  typename Reader::Coming first;
  int i = thread;
  if (reader.has(i)) first = reader.load(i);
  Origin origin = {sample(sampled / 2), 0, task.dtype};
  reader.share_keys(key_table.a, key_table.b, counts.keys, shared.keys);
  if (thread == 128) counts.nan = counts.positive = counts.negative = counts.near_limit = 0;
  origin.shift = finite_of(origin.shift, sampled, [&](int64_t element) { return sample(static_cast<int>(element)); });
  __syncthreads();

  QuickSums total = {};
  Sums<Extreme> sums = no_sums<Extreme>(1);
  auto add_vector = [&](const Vector& vector, const Vector& key) {
    add_product(vector.first + key.first, vector.second + key.second, total.low, total.high);
  };
  if (reader.has(i)) {
    typename Reader::Taken some = reader.take(first);
#pragma unroll 1
    for (;;) {
      const int next = i + Reader::stride;
      const bool more = reader.has(next);
      typename Reader::Coming coming;
      if (more) coming = reader.load(next);
      Look<Kind> look;
#pragma unroll
      for (int j = 0; j < ahead; ++j) {
        add_vector(some.vectors[j], reader.key(some, j));
        look.see(sums, some.vectors[j], origin);
      }
      if (look.keep(sums)) {
#pragma unroll
        for (int j = 0; j < ahead; ++j) Kind::add(sums, some.vectors[j], origin);
      } else {
#pragma unroll 1
        for (int j = 0; j < ahead; ++j) add_some<Kind>(sums, reader.again(i, j), per, origin, counts);
      }
      i = next;
      reader.pass();
      if (!more) break;
      some = reader.take(coming);
    }
  }
  const int count = full + (full < length && (begin + full) * per < task.numel);
#pragma unroll 1
  for (i = reader.first_alone(i); i < count; i += threads) {
    const bool complete = Reader::is_whole || i < full;
    const int size = 16 / per, rest = static_cast<int>(task.numel - (begin + i) * per);
    const Vector vector = complete ? reader.alone(i) : collect(reader.element(i * per), size, size, rest);
    add_vector(vector, reader.key_alone(i));
    reader.pass_alone();
    Look<Kind> look;
    look.see(sums, vector, origin);
    if (complete && look.keep(sums)) Kind::add(sums, vector, origin);
    else add_some<Kind>(sums, vector, complete ? per : rest, origin, counts);
  }

  total.sum = sums.sum;
  total.squares = sums.squares;
  total.least = key_of(Extremes<Extreme>::lowest(sums.low));
  total.greatest = key_of(Extremes<Extreme>::highest(sums.high));
  sum_quickly(total, 16);
  if (lane == 0) shared.sums[warp] = total;
  __syncthreads();
  if (warp) return;
  total = shared.sums[lane % warps];
  sum_quickly(total, warps / 2);
  if (lane) return;
  fingerprint::Pair pair = {total.low, total.high};
  // The quarters of a tile are put together when partial results are merged.
  if (!task.split || task.blocks == 1) pair = fingerprint::tile(pair, task.split ? 0 : block);
  const uint32_t mark = part_mark(task.sequence);
  const uint64_t sum = bits_of(total.sum), squares = bits_of(total.squares);
  const auto half = [](uint64_t word, int which) { return static_cast<uint32_t>(word >> 32 * which); };
  const uint32_t words[3 * quick_vectors] = {
      __float_as_uint(static_cast<float>(origin.shift)), counts.nan, counts.positive,
      counts.negative, __float_as_uint(float_of(total.least)),
      __float_as_uint(float_of(total.greatest)), half(sum, 0), half(sum, 1), half(squares, 0),
      half(squares, 1), half(pair.low, 0), half(pair.low, 1), half(pair.high, 0),
      half(pair.high, 1), counts.near_limit};
#pragma unroll
  for (int j = 0; j < quick_vectors; ++j) {
    task.parts[static_cast<uint32_t>(j) * task.blocks + block] = {
        pair_of(words[3 * j], words[3 * j + 1]), pair_of(words[3 * j + 2], mark)};
  }
}

template <class Type>
INDUCTOR_REWRITER_DEVICE void measure_quickly(
    const QuickTask& task, const QuickRows& rows, uint32_t block, Shared& counts, QuickShared& shared) {
  if (rows.kind == QuickRows::contiguous) {
    measure_quickly<Type, Aligned<Type, false>>(task, rows, block, counts, shared);
  } else if (rows.kind == QuickRows::aligned) {
    measure_quickly<Type, Aligned<Type, true>>(task, rows, block, counts, shared);
  } else {
    measure_quickly<Type, Apart<Type>>(task, rows, block, counts, shared);
  }
}

// Loads a partial result of the quick kernel in the layout of `Part`. Its marks show whether it is there.
struct QuickPartsRead {
  const QuickTask& task;
  bool& is_there;
  INDUCTOR_REWRITER_MEMBER void operator()(int i, Vector (&to)[6]) const {
    uint32_t words[3 * quick_vectors];
#pragma unroll
    for (int j = 0; j < quick_vectors; ++j) {
      const Vector vector = read_new(task.parts + static_cast<uint32_t>(j) * task.blocks + i);
      words[3 * j] = static_cast<uint32_t>(vector.first);
      words[3 * j + 1] = static_cast<uint32_t>(vector.first >> 32);
      words[3 * j + 2] = static_cast<uint32_t>(vector.second);
      is_there = is_there && static_cast<uint32_t>(vector.second >> 32) == part_mark(task.sequence);
    }
    const auto value = [](uint32_t bits) { return static_cast<double>(__uint_as_float(bits)); };
    const int per = 16 / elements::size(task.dtype);
    const int64_t all = count_of(task, static_cast<uint32_t>(i), (fingerprint::tile_vectors >> task.split) * per);
    const int64_t others = static_cast<int64_t>(words[1]) + words[2] + words[3];
    to[0] = {static_cast<uint64_t>(all - others), bits_of(value(words[0]))};
    to[1] = {pair_of(words[6], words[7]), pair_of(words[8], words[9])};
    to[2] = {
        static_cast<uint64_t>(key_of(value(words[4]))), static_cast<uint64_t>(key_of(value(words[5])))};
    to[3] = {pair_of(words[10], words[11]), pair_of(words[12], words[13])};
    to[4] = {words[1], words[2]};
    to[5] = {words[3], 1 | static_cast<uint64_t>(words[14]) << 2};
  }
};

// Merges the partial results of a tensor, by one block.
INDUCTOR_REWRITER_DEVICE void merge_quick_parts(const QuickTask& task, bool checks, Shared& shared) {
  bool is_there = true;
  Sum total = {};
  const int blocks = static_cast<int>(task.blocks);
  if (threadIdx.x == 0) shared.nan = 0;
  __syncthreads();
  merge(QuickPartsRead{task, is_there}, blocks, task.split && blocks > 1, false, false, shared, total);
  if (checks) {
    if (!is_there) atomicAdd(&shared.nan, 1u);
    __syncthreads();
    if (shared.nan) return;
  }
  if (threadIdx.x < 32) write_row(task, task.sequence, total);
}

// Waits for the launch before this one, which may still be running (programmatic dependent launch).
INDUCTOR_REWRITER_DEVICE void wait_for_launch_before() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The part of a job that one block does.
INDUCTOR_REWRITER_DEVICE void measure_block(const QuickJob& job, uint32_t number) {
  __shared__ Shared shared;
  __shared__ QuickShared quick_shared;
  uint32_t place = 0;
  while (place + 1 < job.count && number >= job.tasks[place + 1].first_block) ++place;
  const QuickTask& task = job.tasks[place];
  const uint32_t block = number - task.first_block;
  const QuickRows& rows = job.rows[place];
  if (task.split == carried) {
    if (threadIdx.x < 32) carry_elements(task);
    return;
  }
  switch (task.dtype) {
    case dtypes::float32: measure_quickly<Float32>(task, rows, block, shared, quick_shared); break;
    case dtypes::bfloat16: measure_quickly<BFloat16>(task, rows, block, shared, quick_shared); break;
    default: measure_quickly<Float16>(task, rows, block, shared, quick_shared); break;
  }
}

}  // namespace inductor_rewriter::gpu

extern "C" __global__ void __launch_bounds__(256, 2)
inductor_rewriter_measure_quickly(const INDUCTOR_REWRITER_CONSTANT inductor_rewriter::gpu::QuickJob job) {
  inductor_rewriter::gpu::wait_for_launch_before();
  inductor_rewriter::gpu::measure_block(job, blockIdx.x);
}

// One block for each tensor.
extern "C" __global__ void __launch_bounds__(256, 2)
inductor_rewriter_merge(const INDUCTOR_REWRITER_CONSTANT inductor_rewriter::gpu::MergeJob job) {
  __shared__ inductor_rewriter::gpu::Shared shared;
  inductor_rewriter::gpu::wait_for_launch_before();
  inductor_rewriter::gpu::merge_quick_parts(job.tasks[blockIdx.x], job.checks, shared);
}
