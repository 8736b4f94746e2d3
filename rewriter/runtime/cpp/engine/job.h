// A launch of the GPU's kernel: what it is given, and the rows that it writes.
#pragma once

#if !defined(__CUDACC_RTC__) && !defined(__HIPCC_RTC__)
#include <cstdint>
#endif

#include "elements.h"

namespace {
namespace inductor_rewriter {

namespace gpu {

constexpr int threads = 256;
constexpr int warps = threads / 32;
constexpr int most_dims = 8;
constexpr int most_tasks = 16;
constexpr int row_words = 12;

// What a block knows of its share of a tensor.
struct Part {
  uint64_t finite, nan, positive, negative;
  uint64_t low, high;    // bits of float64, or keys: int64, and uint64 less 2^63
  double mean, squares;  // relative to the origin, times the scale
  uint64_t first, second;  // of the fingerprint
  uint64_t scale;          // 0, 1, 2: small, plain, large (Scale)
  uint64_t unused;
};

// One tensor of a launch.
struct Task {
  const char* data;
  int64_t numel;
  uint64_t* row;      // row_words in host memory
  uint64_t* replays;  // counts the replays of a captured launch, or null
  Part* parts;        // one for each block
  uint32_t* counter;  // 0 between launches
  uint64_t sequence;
  int32_t dtype;
  int32_t dims;        // that are below, in row-major order; strides are in elements
  int32_t direct;      // 1: contiguous and aligned
  uint32_t first_block, blocks;
  uint32_t split;      // 2: units are quarters of tiles, and blocks have one each; 0: tiles
  int64_t size[most_dims], stride[most_dims];
};

struct Job {
  int64_t count;
  Task tasks[most_tasks];
};
static_assert(sizeof(Job) <= 4096, "what a launch takes by value");

// What says that a row is whole: of all its other words. Any odd factors do.
INDUCTOR_REWRITER_SHARED inline uint64_t checksum(const uint64_t* row) {
  uint64_t sum = fingerprint::golden;
  for (int i = 0; i < row_words - 1; ++i) {
    sum += (row[i] ^ row[i] >> 32) * (fingerprint::key(0, i) | 1);
  }
  return sum;
}

}  // namespace gpu

}  // namespace inductor_rewriter
}  // namespace
