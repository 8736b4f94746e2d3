// The kernels that measure tensors on a GPU, several tensors in one launch.
//
// A block takes units of one tensor: tiles of the fingerprint, or quarters of tiles. Its threads sum, in
// float64, differences from one element of the block, the origin; its first warp writes a partial result.
// Two kernels measure. In the general one, the last block of a tensor to finish merges its partial results
// and writes the row, so that it is there when the launch is over. The quick one leaves merging to a third
// kernel.
#pragma once

#include "element_kinds.h"
#include "job.h"
#include "vectors.h"

namespace inductor_rewriter::gpu {

// --- Memory ----------------------------------------------------------------------------------------

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

// --- Blocks ----------------------------------------------------------------------------------------

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

// Measures a block's share of a tensor, up to the results of its threads.
INDUCTOR_REWRITER_DEVICE void measure_share(
    const Task& task, uint32_t block, Share& share, Origin& origin, Shared& shared,
    Found& found) {
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

// How many elements a block's units have; the last unit may be shorter.
INDUCTOR_REWRITER_DEVICE int64_t count_of(const AnyTask& task, uint32_t block, int64_t unit_elements) {
  const uint32_t after = task.units - 1 - block, own = after / task.blocks;
  int64_t count = static_cast<int64_t>(own + 1) * unit_elements;
  if (own * task.blocks == after) count -= static_cast<int64_t>(task.units) * unit_elements - task.numel;
  return count;
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

// Merges the partial results that all warps have read, round by round; the first warp gets the result.
template <class Read>
INDUCTOR_REWRITER_DEVICE void merge(
    const Read& read, int count, bool split, bool is_wide, bool is_huge, Shared& shared,
    Sum& total) {
  const int warp = static_cast<int>(threadIdx.x) / 32, start = 32 * warp;
  const uint64_t finite = merge_parts(read, start, count, split, is_wide, is_huge, total);
  if (count <= 32) return;
  // The results of the warps are merged like those of the blocks.
  write_part(&shared.parts[warp], total, finite);
  __syncthreads();
  merge_parts(PartsRead{shared.parts}, start, warps, false, is_wide, is_huge, total);
}

// --- The quick kernel -------------------------------------------------------------------------------

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
    const QuickTask& task, const QuickRows& rows, uint32_t block, Shared& counts,
    QuickShared& shared) {
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
    const QuickTask& task, const QuickRows& rows, uint32_t block, Shared& counts,
    QuickShared& shared) {
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
