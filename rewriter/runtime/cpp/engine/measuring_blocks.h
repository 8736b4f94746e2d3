// What both kernels that measure on a GPU have in common, which measure several tensors in one launch.
//
// A block takes units of one tensor: tiles of the fingerprint, or quarters of tiles. Its threads sum, in
// float64, differences from one element of the block, the origin; its first warp writes a partial result.
#pragma once

#include "element_kinds.h"
#include "job.h"

namespace inductor_rewriter::gpu {

// Loads what another block wrote, past this processor's own cache.
INDUCTOR_REWRITER_DEVICE Vector read_new(const Vector* from) {
#if defined(__CUDACC_RTC__)
  Vector result;
  asm volatile("ld.volatile.v2.u64 {%0, %1}, [%2];" : "=l"(result.first), "=l"(result.second) : "l"(from) : "memory");
  return result;
#else
  const volatile uint64_t* words = reinterpret_cast<const uint64_t*>(from);
  return {words[0], words[1]};
#endif
}

// Puts an element into a vector of zeros, from byte `at` on.
INDUCTOR_REWRITER_DEVICE void put_element(Vector& to, int at, uint64_t bits) {
  if (at < 8) to.first |= bits << 8 * at;
  else to.second |= bits << 8 * (at - 8);
}

// Loads `count` elements that are `step` bytes apart.
INDUCTOR_REWRITER_DEVICE Vector collect(const char* at, int64_t step, int size, int count) {
  Vector result = {0, 0};
  if (step == size && count * size == 16 && !(reinterpret_cast<uint64_t>(at) & 15)) {
    return *reinterpret_cast<const Vector*>(at);
  }
  // All loads are issued before one is used.
  if (size == 2 && count == 8) {
    uint64_t bits[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) bits[i] = *reinterpret_cast<const uint16_t*>(at + i * step);
    return {
        bits[0] | bits[1] << 16 | bits[2] << 32 | bits[3] << 48,
        bits[4] | bits[5] << 16 | bits[6] << 32 | bits[7] << 48};
  }
  if (size == 4 && count == 4) {
    uint64_t bits[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) bits[i] = *reinterpret_cast<const uint32_t*>(at + i * step);
    return {bits[0] | bits[1] << 32, bits[2] | bits[3] << 32};
  }
#pragma unroll 1
  for (int i = 0; i < count; ++i, at += step) {
    uint64_t bits = 0;
    switch (size) {
      case 1: bits = *reinterpret_cast<const uint8_t*>(at); break;
      case 2: bits = *reinterpret_cast<const uint16_t*>(at); break;
      case 4: bits = *reinterpret_cast<const uint32_t*>(at); break;
      case 8: bits = *reinterpret_cast<const uint64_t*>(at); break;
      default:  // complex numbers of 16 bytes are aligned to 8
        return {reinterpret_cast<const uint64_t*>(at)[0], reinterpret_cast<const uint64_t*>(at)[1]};
    }
    put_element(result, i * size, bits);
  }
  return result;
}

INDUCTOR_REWRITER_TABLE fingerprint::Keys<Vector> key_table;

// A value if it is finite, otherwise one of so many samples that is, or 0. Each lane looks at another one.
template <class Sample>
INDUCTOR_REWRITER_DEVICE double finite_of(double value, int samples, const Sample& sample) {
  if (is_finite(value)) return value;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const double other = sample(static_cast<int64_t>(samples - 1) * lane / 31);
  const uint32_t usable = vote(is_finite(other));
  return usable ? from_lane(other, __ffs(static_cast<int>(usable)) - 1) : 0;
}

// Returns word `lane` of a structure to each lane.
template <int count>
INDUCTOR_REWRITER_DEVICE uint64_t pick(const uint64_t (&words)[count], int lane) {
  uint64_t word = 0;
#pragma unroll
  for (int i = 0; i < count; ++i) word = lane == i ? words[i] : word;
  return word;
}

INDUCTOR_REWRITER_DEVICE void write_part(Part* part, const Sum& sum, uint64_t finite) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const uint64_t words[12] = {
      finite, sum.shift, bits_of(sum.sum), bits_of(sum.squares), static_cast<uint64_t>(sum.low),
      static_cast<uint64_t>(sum.high), sum.first, sum.second, sum.nan, sum.positive, sum.negative,
      sum.scale | sum.near_limit << 2};
  const uint64_t word = pick(words, lane);
  if (lane < 12) part->words[lane] = word;
}

// Whether this is the last block of its tensor to finish: then it can read what the others wrote.
INDUCTOR_REWRITER_DEVICE bool is_last(uint32_t* counter, uint32_t blocks) {
  uint32_t before = 0;
#if defined(__CUDACC_RTC__)
  __syncwarp();
  if (threadIdx.x == 0) {
#if __CUDA_ARCH__ >= 700
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
                 : "=r"(before) : "l"(counter), "r"(blocks - 1) : "memory");
#else
    __threadfence();
    before = atomicInc(counter, blocks - 1);
    __threadfence();
#endif
  }
#else
  __threadfence();
  if (threadIdx.x == 0) before = atomicInc(counter, blocks - 1);
  __threadfence();
#endif
  return from_lane(before, 0) == blocks - 1;
}

// Loads the words of partial results from memory: sixteen bytes at a time, all loads issued at once.
struct PartsRead {
  const Part* parts;
  INDUCTOR_REWRITER_MEMBER void operator()(int i, Vector (&words)[6]) const {
    const Vector* from = reinterpret_cast<const Vector*>(parts[i].words);
#pragma unroll
    for (int j = 0; j < 6; ++j) words[j] = read_new(from + j);
  }
};

// Adds up `count` partial results of blocks or of warps, from `start` on, by all warps. Returns the number
// of finite elements.
template <class Read>
INDUCTOR_REWRITER_DEVICE uint64_t merge_parts(
    const Read& read, int start, int count, bool split, bool is_wide, bool is_huge, Sum& total) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  total.nan = total.positive = total.negative = total.near_limit = 0;
  total.low = greatest_key;
  total.high = ~greatest_key;
  total.shift = total.first = total.second = 0;
  total.sum = total.squares = 0;
  total.scale = is_huge ? 0 : 1;
  uint64_t all_finite = 0;
  bool known = false;
#pragma unroll 1
  for (; start < count; start += threads) {
    const bool has = start + lane < count;
    Vector words[6] = {};
    if (has) read(start + lane, words);
    const double finite = static_cast<double>(static_cast<int64_t>(words[0].first));
    const uint32_t any = vote(words[0].first != 0);
    if (!known && any) {
      total.shift = from_lane(words[0].second, __ffs(static_cast<int>(any)) - 1);
      known = true;
    }
    double sum = from_bits(words[1].first), squares = from_bits(words[1].second);
    double by = 1;
    if (is_huge) {
      const int own = static_cast<int>(words[5].second & 3), before = static_cast<int>(total.scale);
      const bool has_large = vote(words[0].first && own == 2);
      const int wanted = has_large ? 2 : vote(words[0].first && own == 1) ? 1 : 0;
      const int number = wanted > before ? wanted : before;
      total.sum = rescaled(total.sum, before, number);
      total.squares = rescaled(rescaled(total.squares, before, number), before, number);
      total.scale = static_cast<uint64_t>(number);
      sum = rescaled(sum, own, number);
      squares = rescaled(rescaled(squares, own, number), own, number);
      by = scale(number);
    }
    if (words[0].first) {
      // Convert from the block's own origin to the common one.
      const double apart = is_wide
          ? difference(static_cast<int64_t>(words[0].second), static_cast<int64_t>(total.shift))
          : from_bits(words[0].second) * by - from_bits(total.shift) * by;
      total.sum += fma(finite, apart, sum);
      total.squares += fma(apart, fma(finite, apart, 2 * sum), squares);
      const int64_t low = static_cast<int64_t>(words[2].first);
      const int64_t high = static_cast<int64_t>(words[2].second);
      total.low = low < total.low ? low : total.low;
      total.high = high > total.high ? high : total.high;
    }
    all_finite += words[0].first;
    total.nan += words[4].first;
    total.positive += words[4].second;
    total.negative += words[5].first;
    total.near_limit += words[5].second >> 2;
    uint64_t first = words[3].first, second = words[3].second;
    if (split) {
      // The quarters of a tile are neighbours.
      first = sum_of(first, 4);
      second = sum_of(second, 4);
      const fingerprint::Pair mixed = fingerprint::tile({first, second}, static_cast<uint64_t>(start + lane) >> 2);
      first = has && lane % 4 == 0 ? mixed.low : 0;
      second = has && lane % 4 == 0 ? mixed.high : 0;
    }
    total.first += first;
    total.second += second;
  }
  total.sum = sum_of(total.sum);
  total.squares = sum_of(total.squares);
  total.low = least_of(total.low);
  total.high = greatest_of(total.high);
  total.first = sum_of(total.first);
  total.second = sum_of(total.second);
  if (vote((total.nan | total.positive | total.negative | total.near_limit) != 0)) {
    total.near_limit = sum_of(total.near_limit);
    total.nan = sum_of(total.nan);
    total.positive = sum_of(total.positive);
    total.negative = sum_of(total.negative);
  }
  return sum_of(all_finite);
}

INDUCTOR_REWRITER_DEVICE void store_row(const AnyTask& task, uint64_t word, int lane) {
  const uint64_t whole = sum_of(lane < checksum_word ? checked(word, lane) : 0);
  if (lane == checksum_word) word = whole;
  if (lane < row_words) reinterpret_cast<volatile uint64_t*>(task.row)[lane] = word;
}

// Writes the row of a tensor, by one warp, a word for each lane. The host finishes it (ring.h).
INDUCTOR_REWRITER_DEVICE void write_row(const AnyTask& task, uint64_t sequence, const Sum& sum) {
  const int lane = static_cast<int>(threadIdx.x);
  const uint64_t words[row_words] = {
      sum.nan, sum.positive, sum.negative, static_cast<uint64_t>(sum.low),
      static_cast<uint64_t>(sum.high), sum.shift, bits_of(sum.sum), bits_of(sum.squares),
      sum.first, sum.second, sum.scale, sum.near_limit, static_cast<uint64_t>(task.numel),
      static_cast<uint64_t>(task.dtype), sequence, 0};
  store_row(task, pick(words, lane), lane);
}

// How many elements a block's units have; the last unit may be shorter.
INDUCTOR_REWRITER_DEVICE int64_t count_of(const AnyTask& task, uint32_t block, int64_t unit_elements) {
  const uint32_t after = task.units - 1 - block, own = after / task.blocks;
  int64_t count = static_cast<int64_t>(own + 1) * unit_elements;
  if (own * task.blocks == after) count -= static_cast<int64_t>(task.units) * unit_elements - task.numel;
  return count;
}

// Merges the partial results that all warps have read, round by round; the first warp gets the result.
template <class Read>
INDUCTOR_REWRITER_DEVICE void merge(
    const Read& read, int count, bool split, bool is_wide, bool is_huge, Shared& shared, Sum& total) {
  const int warp = static_cast<int>(threadIdx.x) / 32, start = 32 * warp;
  const uint64_t finite = merge_parts(read, start, count, split, is_wide, is_huge, total);
  if (count <= 32) return;
  // The results of the warps are merged like those of the blocks.
  write_part(&shared.parts[warp], total, finite);
  __syncthreads();
  merge_parts(PartsRead{shared.parts}, start, warps, false, is_wide, is_huge, total);
}

}  // namespace inductor_rewriter::gpu
