// The kernels that compare guard bands and fill memory on a GPU (bands.h), one of which measures first.
#pragma once

#include "bands.h"
#include "quick_kernel.h"

namespace inductor_rewriter::gpu {

// Compares a band by one block. The records of damage are in host memory.
INDUCTOR_REWRITER_DEVICE void compare_band(Damage* const all_damage, uint64_t launch, const Band& band) {
  __shared__ int nearest;  // elements of the band minus the distance to the nearest damaged one
  __shared__ uint32_t count, is_damaged;
  if (threadIdx.x == 0) {
    nearest = 0;
    count = is_damaged = 0;
  }
  __syncthreads();
  const uint64_t first = reinterpret_cast<uint64_t>(band.data), end = first + band.bytes;
  const uint64_t words = (first + 7) / 8 * 8, behind = end / 8 * 8;
  uint64_t differs = 0;
  for (uint64_t at = words + 8 * threadIdx.x; at + 8 <= end; at += 8 * 256) {
    differs |= *reinterpret_cast<const uint64_t*>(at) ^ band.pattern;
  }
  if (threadIdx.x < 16) {  // the bytes before the first word, and after the last one
    const uint64_t at = threadIdx.x < 8 ? first + threadIdx.x : behind + threadIdx.x - 8;
    if (at < end && (threadIdx.x < 8 ? at < words : at >= words)) {
      differs |= *reinterpret_cast<const unsigned char*>(at) ^ (band.pattern >> (at % 8 * 8) & 255);
    }
  }
  if (differs) is_damaged = 1;
  __syncthreads();
  if (!is_damaged) return;
  const uint32_t elements = elements_of(band);
  for (uint32_t element = threadIdx.x; element < elements; element += 256) {
    const ElementBytes bytes = bytes_of(band, element);
    uint32_t at = bytes.begin;
    while (at < bytes.end && band.data[at] == (band.pattern >> ((first + at) % 8 * 8) & 255)) ++at;
    if (at == bytes.end) continue;
    atomicMax(&nearest, static_cast<int>(elements - element));
    atomicAdd(&count, 1u);
  }
  __syncthreads();
  Damage& damage = all_damage[band.slot];
  if (threadIdx.x != 0 || damage.launch) return;
  const uint32_t element = elements - static_cast<uint32_t>(nearest);
  const ElementBytes bytes = bytes_of(band, element);
  for (uint32_t i = 0; i < 8; ++i) {
    damage.element[i] = bytes.begin + i < bytes.end ? band.data[bytes.begin + i] : static_cast<unsigned char>(0);
  }
  damage.distance = element;
  damage.count = count;
  __threadfence();
  damage.launch = launch;
  all_damage[0].launch = launch;
}

INDUCTOR_REWRITER_DEVICE void wait_a_moment() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 700
  asm volatile("nanosleep.u32 100;");
#endif
}

// Fills a share of memory with a pattern: byte `address % 8` of it goes to each address.
INDUCTOR_REWRITER_DEVICE void fill_share(const Filled& part, uint64_t thread, uint64_t threads) {
  const uint64_t first = reinterpret_cast<uint64_t>(part.data), end = first + part.bytes;
  const uint64_t words = (first + 15) / 16 * 16, behind = end / 16 * 16;
  const Vector pattern = {part.pattern, part.pattern};
  for (uint64_t at = words + 16 * thread; at + 16 <= end; at += 16 * threads) {
    *reinterpret_cast<Vector*>(at) = pattern;
  }
  if (thread >= 32) return;
  const uint64_t at = thread < 16 ? first + thread : behind + thread - 16;
  if (at >= end || (thread < 16 ? at >= words : at < words)) return;
  *reinterpret_cast<unsigned char*>(at) = static_cast<unsigned char>(part.pattern >> (at % 8 * 8));
}

// One block for each band; the blocks after them fill memory, after waiting with `was_read` until it may be
// overwritten.
template <class Job, class Read>
INDUCTOR_REWRITER_DEVICE void act_on_memory(const Job& job, uint32_t number, Read was_read) {
  if (number < job.bands_count) {
    compare_band(job.damage, job.launch, job.bands[number]);
    return;
  }
  was_read();
  const uint64_t block = number - job.bands_count;
  const uint64_t thread = block * 256 + threadIdx.x, threads = uint64_t{job.blocks} * 256;
  for (uint32_t part = 0; part < job.parts_count; ++part) fill_share(job.parts[part], thread, threads);
}

}  // namespace inductor_rewriter::gpu

extern "C" __global__ void __launch_bounds__(256)
inductor_rewriter_memory(const INDUCTOR_REWRITER_CONSTANT inductor_rewriter::MemoryJob job) {
  inductor_rewriter::gpu::wait_for_launch_before();
  inductor_rewriter::gpu::act_on_memory(job, blockIdx.x, [] {});
}

extern "C" __global__ void __launch_bounds__(256)
inductor_rewriter_memory_few(const INDUCTOR_REWRITER_CONSTANT inductor_rewriter::SmallMemoryJob job) {
  inductor_rewriter::gpu::wait_for_launch_before();
  inductor_rewriter::gpu::act_on_memory(job, blockIdx.x, [] {});
}

// Measures tensors, then compares bands and fills memory: one launch in place of two. Blocks that fill wait
// until all blocks that measure have finished. This cannot deadlock: measuring blocks have the lower
// numbers, so they are started first, and in any other order there are too few filling blocks to occupy
// the device.
extern "C" __global__ void __launch_bounds__(256, 2)
inductor_rewriter_measure_and_act(const INDUCTOR_REWRITER_CONSTANT inductor_rewriter::gpu::JoinedJob job) {
  using namespace inductor_rewriter::gpu;
  wait_for_launch_before();
  if (blockIdx.x < job.blocks) {
    measure_block(job.quick, blockIdx.x);
    __syncthreads();  // all threads of the block have finished reading
    if (threadIdx.x == 0) {
      __threadfence();
      atomicAdd(job.measured, 1u);
    }
    return;
  }
  act_on_memory(job.memory, blockIdx.x - job.blocks, [&job] {
    if (threadIdx.x == 0) {
      while (static_cast<int>(atomicAdd(job.measured, 0u) - job.until) < 0) wait_a_moment();
      __threadfence();
    }
    __syncthreads();
  });
}
